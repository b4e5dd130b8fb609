import base64
import hashlib
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from math import cos, radians
from pathlib import Path

import matplotlib.image as mpimg
import numpy as np
import pytest
from reports import in_no_time, stopped

import geomxp as gx
from geomxp.plots.maps import LOWEST_OPACITY, opacity
from geomxp.reporting import findings
from geomxp.reporting.charts import chart, chart_of
from geomxp.reporting.findings import Findings, findings_of
from geomxp.reporting.maps import PIXELS_PER_CELL_SIDE, Frame, Maps, Scale, finer, sample_of, ticks
from geomxp.reporting.report import _conventions, cautions, number, report_html
from geomxp.reporting.sources import python_lines

EVERYTHING = ("variance", "range", "smoothness", "nugget")
NASTY = "<script>alert(1)</script>\"'& #ababab -->"
VOID = {"meta", "img", "br", "link", "input", "hr"}
ENDED = {"path", "rect", "use", "stop", "image", "circle", "line"}
U = np.finfo(float).eps / 2


class Page(HTMLParser):
    """What a browser would find: text, attributes, and whether every element is closed."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.attributes, self.words = [], [], [], []
        self.scripts, self.headings = [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts.append((self.tags[-1][1], data))
        elif self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split()).replace("\N{NO-BREAK SPACE}", " ")

    def values(self, name):
        return [value for _, other, value in self.attributes if other == name]

    def pictures(self):
        return [about for tag, about in self.tags if tag == "svg"]


@pytest.fixture(scope="module", autouse=True)
def _whole():
    with in_no_time():
        yield


@pytest.fixture(scope="module")
def fit():
    return gx.fit(gx.datasets.load("meuse"), fixed={"smoothness": 0.5})


@pytest.fixture(scope="module")
def html(fit, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "meuse.html"
    gx.report(fit, path, command="geomxp fit meuse --report 'a & b.html'")
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def nasty():
    """A fit to columns with names that strangers might choose; nothing is estimated."""
    random = np.random.default_rng(0)
    seen = gx.Observations(
        random.random((30, 2)),
        random.standard_normal(30),
        random.standard_normal(30),
        location_names=(NASTY, "y"),
        value_name=NASTY,
        covariate_names=(NASTY,),
        source={"path": NASTY + "\udcff", "sha256": "0" * 64},
    )
    model = gx.Matern(1.0, 0.3, 0.5)
    return gx.fit(seen, model, fixed=EVERYTHING, trend="covariates")


@pytest.fixture(scope="module")
def mixed():
    """A fit in tiles of several formats."""
    places = np.random.default_rng(3).random((150, 2))
    seen = gx.Observations(places, gx.simulate(gx.Matern(1.0, 0.1, 0.5), places, seed=1)[0])
    method = gx.Exact(gx.by_tile_norm(1e-4), tile=30)
    return gx.fit(seen, gx.Matern(1.0, 0.1, 0.5), method, fixed=EVERYTHING, trend="zero")


@pytest.fixture(scope="module")
def sparse():
    """Vecchia's approximation, of more places than any fit above."""
    places = np.random.default_rng(4).random((2000, 2))
    model = gx.Matern(1.0, 0.1, 0.5, 0.1)
    seen = gx.Observations(places, gx.simulate(model, places, seed=2)[0])
    return gx.fit(seen, model, gx.Vecchia(8), fixed=EVERYTHING, trend="zero")


@pytest.mark.slow
def test_report_says_every_number(fit, html):
    text = Page(html).text.replace("−", "-")
    symbols = {"variance": "σ²", "range": "a", "smoothness": "ν", "nugget": "τ²"}
    for name, value in fit.model.parameters().items():
        assert f"{name} {symbols[name]} {value:.6g}" in text
    for error in filter(None, fit.standard_errors.values()):
        assert f"{error:.4g}" in text
    for method in ("wald", "profile"):
        for low, high in fit.confidence_intervals(method=method).values():
            assert f"{number(low)} to {number(high)}" in text
    for known in fit.derived().values():
        assert f"{number(known.lower)} to {number(known.upper)}" in text
    for value in fit.coefficients:
        assert f"{value:.6g}" in text
    for value in (fit.aic, fit.aicc, fit.bic):
        assert f"{value:.4f}" in text
    assert f"{fit.log_likelihood:.6f}" in text
    for sentence in re.split(r"(?<=[.]) (?=[A-Z])", fit.outcome.message):
        assert text.count(sentence) == 1
    for value in gx.leave_one_out(fit).scores().values():
        assert number(value).replace("−", "-") in text


@pytest.mark.slow
def test_report_says_where_it_comes_from_and_not_where_that_lies(fit, html):
    text, source = Page(html).text, fit.observations.source
    assert source["sha256"] in text
    assert Path(source["path"]).name in text
    assert str(Path(source["path"]).parent) not in html
    assert str(Path.home()) not in html
    assert f"geomxp {gx.__version__}" in text
    assert "geomxp fit meuse --report 'a & b.html'" in text
    assert "Gneiting, T. and Raftery, A. E. (2007)" in text


@pytest.mark.slow
def test_report_asks_the_network_for_nothing_and_runs_nothing_but_its_own_script(html):
    page = Page(html)
    assert not {"link", "iframe", "object", "embed", "base"} & {tag for tag, _ in page.tags}
    for name in ("src", "href", "xlink:href", "srcset", "action", "data"):
        for value in page.values(name):
            assert value.startswith(("data:image/png;base64,", "#"))
    assert not re.search(
        r"https?:|@import", re.sub(r'"data:[^"]*"|http://www.w3.org/\S+', "", html)
    )
    numbers, script = page.scripts
    assert numbers[0] == {"type": "application/json", "id": "numbers"}
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    (policy,) = [value for value in page.values("content") if "default-src" in value]
    assert policy == (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'"
    )


@pytest.mark.slow
def test_every_name_in_the_page_is_there_once_and_is_found(html):
    page = Page(html)
    names = page.values("id")
    assert len(set(names)) == len(names)
    wanted = re.findall(r'url\(#([\w-]+)\)|href="#([\w-]+)"', html)
    assert wanted
    assert {a or b for a, b in wanted} <= set(names)


@pytest.mark.slow
def test_headings_never_skip_a_level(html, nasty):
    for page in (Page(html), Page(report_html(nasty))):
        assert page.headings[0] == 1
        assert page.headings.count(1) == 1
        assert max(np.diff(page.headings)) <= 1


@pytest.mark.slow
def test_every_picture_says_what_it_shows(fit, html):
    shown = Page(html).pictures()
    # values, mean, error and misses; semivariogram, profiles, contours; four of validation
    assert len(shown) == 4 + 1 + len(fit.free) + 1 + 4
    for about in shown:
        assert about["role"] == "img"
        assert len(about["aria-label"]) > 30
    assert len({about["aria-label"] for about in shown}) == len(shown)


@pytest.mark.slow
def test_report_is_for_small_screens_and_small_mails(html, sparse):
    page = Page(html)
    assert "width=device-width, initial-scale=1" in page.values("content")
    assert len(html) < 1e6
    assert len(report_html(sparse)) < 2e6


@pytest.mark.slow
def test_images_are_images(html):
    from PIL import Image

    found = [value for value in Page(html).values("href") if value.startswith("data:")]
    assert len(found) == 2
    for address in found:
        data = base64.b64decode(address.removeprefix("data:image/png;base64,"), validate=True)
        with Image.open(io.BytesIO(data)) as image:
            image.verify()
            assert min(image.size) > 100


@pytest.mark.slow
def test_names_from_strangers_stay_text(nasty):
    html = report_html(nasty, command=NASTY)
    assert html.count("<script") == 2
    page = Page(html)
    assert f"Matérn model of {NASTY}" in page.text
    assert page.text.count(NASTY) >= 5
    assert json.loads(page.scripts[0][1])["axes"][0] == NASTY
    # not even a colour of the page's theme
    assert "#ababab" in page.text
    assert "?" in page.text
    assert any(NASTY in about["aria-label"] for about in page.pictures())


def test_text_between_the_tags_of_a_picture_stays_as_it_is():
    text = '<svg viewBox="0 0 1 1"><text id="text_1" style="fill: #595959">'
    text += ' id="a_1" #595959</text></svg>'
    found = chart_of(text).body
    assert '> id="a_1" #595959<' in found
    assert 'style="fill: var(--shade-3)"' in found
    assert found.count("id=") == 1


@pytest.mark.slow
def test_report_says_what_is_left_out_and_why(nasty):
    page = Page(report_html(nasty))
    assert "Profiles of the log-likelihood: no parameter was estimated." in page.text
    assert "Maps of predictions: left out, because the trend needs" in page.text
    assert "--places grid.csv" in page.text


@pytest.mark.slow
def test_without_time_the_report_has_the_estimates_and_says_what_it_has_not(fit):
    text = Page(report_html(fit, budget=0.0)).text
    assert f"{fit.model.range:.6g}" in text
    for what in (
        "Leave-one-out validation",
        "Maps of predictions",
        "Profile intervals",
        "Profiles of the log-likelihood",
        "Contours of variance and range",
    ):
        assert f"{what}: left out, because it would take about" in text
    assert "In Python: geomxp.leave_one_out(fit)." in text


@pytest.mark.slow
def test_a_quick_report_computes_no_map_and_no_profile_and_says_what_adds_them(fit, monkeypatch):
    assert "A quick report leaves out" not in Page(report_html(fit, budget=0.0)).text

    def refuse(*_, **__):
        raise AssertionError("a quick report must not compute this")

    for name in ("predict_raster", "predict", "compare", "seconds_of_a_score"):
        monkeypatch.setattr(f"geomxp.reporting.findings.{name}", refuse)
    for name in ("profile", "contours", "pit", "normal_quantiles", "coverage"):
        monkeypatch.setattr(f"geomxp.plots.{name}", refuse)
    monkeypatch.setattr("geomxp.plots.diagnostics.variogram_envelope", refuse)
    page = Page(report_html(fit, level="quick"))
    assert "--report-level full adds them" in page.text
    assert f"{fit.model.range:.6g}" in page.text
    assert "leave-one-out RMSE" in page.text


@pytest.mark.slow
def test_the_unit_of_the_values_is_in_tables_and_on_axes(tmp_path):
    zinc = gx.datasets.load("meuse", values="zinc", value_unit="mg/kg")
    page = Page(report_html(gx.fit(zinc, fixed={"smoothness": 0.5}), level="quick"))
    text = page.text
    for words in ("zinc (mg/kg)", "semivariance ((mg/kg)²)", "zinc, in mg/kg"):
        assert words in text, words
    assert "units of zinc" not in text
    assert "value_unit='mg/kg'" in text


@pytest.mark.slow
def test_a_transformed_fit_says_which_numbers_are_on_the_gaussian_scale():
    zinc = gx.datasets.load("meuse", values="zinc")
    logs = gx.fit(zinc, fixed={"smoothness": 0.5}, transform="log")
    page = Page(report_html(logs, level="quick"))
    assert "are on the Gaussian scale: log of zinc" in page.text
    assert "leave-one-out RMSE, log of zinc" in page.text
    assert "squared units of log of zinc" in page.text
    assert "squared units of zinc" not in page.text
    assert "begin below 0" not in page.text


@pytest.mark.slow
def test_positive_values_with_intervals_below_zero_are_to_be_transformed():
    zinc = gx.datasets.load("meuse", values="zinc")
    text = Page(report_html(gx.fit(zinc, fixed={"smoothness": 0.5}), level="quick")).text
    assert "All values of zinc are positive and they are skewed" in text
    assert text.count("begin below 0") == 1
    assert "--transform log" in text
    logs = gx.datasets.load("meuse")
    text = Page(report_html(gx.fit(logs, fixed={"smoothness": 0.5}), level="quick")).text
    assert "begin below 0" not in text


@pytest.mark.slow
def test_the_map_of_predictions_fades_far_from_observations(fit):
    raster = gx.predict_raster(fit, cells=30)
    share = opacity(raster, fit)
    order = np.argsort(raster.variance, axis=None)
    assert np.all(np.diff(share.ravel()[order]) <= 0)
    assert (share.max(), share.min()) == (1.0, LOWEST_OPACITY)
    mean = Maps(fit, raster=raster).all()[1]
    image = mpimg.imread(io.BytesIO(base64.b64decode(mean.image["address"].partition(",")[2])))
    near = np.unravel_index(order[[0, -1]], raster.mean.shape)
    rows, columns = (
        PIXELS_PER_CELL_SIDE * (len(share) - 1 - near[0]) + 2,
        PIXELS_PER_CELL_SIDE * near[1] + 2,
    )
    opaque, faint = image[rows, columns, 3]
    assert opaque > 0.99
    assert faint < 0.2


def test_the_progress_line_names_the_section(fit, monkeypatch):
    lines = []
    names = [(section, lowest) for _, section, lowest in Findings.PARTS]
    watched = [(lambda found: lines.append(str(found.progress)), *about) for about in names]
    monkeypatch.setattr(Findings, "PARTS", watched)
    findings.findings_of(fit)
    assert [line.split("  ")[0] for line in lines] == [f"report: {name}" for name, _ in names]


def test_a_budget_spends_no_more_than_it_has(monkeypatch):
    monkeypatch.setattr("geomxp.reporting.findings.time", stopped(10.0, 11.5))
    done, budget = [], Findings(None, left=2.0)
    assert budget.spend("Much", 2.1, lambda: done.append("much")) is None
    assert budget.spend("Little", 1.9, lambda: done.append("little") or 7) == 7
    assert done == ["little"]
    assert budget.left == 0.5
    assert budget.notes == [
        "Much: left out, because it would take about 2 seconds and the report’s time is bounded."
    ]


def test_a_part_that_cannot_be_done_is_left_out_with_the_reason():
    def fail():
        raise gx.NotPositiveDefinite("there is none.")

    budget = Findings(None, left=1.0)
    assert budget.spend("A factor", 0.0, fail) is None
    assert budget.notes == ["A factor: left out, there is none."]


@pytest.mark.parametrize(("seconds", "points"), [(0.05, 9), (1.3, 5), (2.6, 0)])
def test_profiles_have_as_many_points_as_there_is_time_for(fit, monkeypatch, seconds, points):
    asked = []

    def drawn(fit, name, *, ax, points):
        asked.append((name, points))

    monkeypatch.setattr("geomxp.plots.profile", drawn)
    found = Findings(fit, left=100.0, score=seconds)
    found.draw_profiles()
    assert asked == [(name, points) for name in fit.free] * (points > 0)
    assert len(found.notes) == (points < 9)


def test_many_places_are_predicted_from_near_ones_where_all_would_take_long(fit):
    found = Findings(fit, left=5.0, score=1.0)
    found.predict()
    assert "use the 60 nearest observations of each cell" in found.notes[0]
    near = gx.predict_raster(fit, cells=findings.MAP_SIDE_CELLS, neighbours=60)
    np.testing.assert_array_equal(found.raster.mean, near.mean)


@pytest.mark.slow
def test_report_warns_of_what_is_no_estimate(nasty):
    outcome = gx.Outcome(gx.Ending.NO_FINITE_MAXIMUM, "it rises for ever")
    text = Page(report_html(replace(nasty, outcome=outcome))).text
    assert "NO_FINITE_MAXIMUM" in text
    assert "it rises for ever." in text
    assert "not an estimate to rely on" in text
    assert "not an estimate" not in Page(report_html(nasty)).text


def test_cautions_tell_a_ridge_and_intervals_that_do_not_cover(fit):
    ridge = "Variance and range are not separately identifiable (log-correlation 0.99)."
    outcome = gx.Outcome(gx.Ending.CONVERGED, ridge)
    left_out = gx.leave_one_out(fit)
    narrow = replace(left_out, variance=left_out.variance / 4)
    said = cautions(Findings(replace(fit, outcome=outcome), validation=narrow))
    assert said[0] == ridge
    assert "they are too narrow" in said[-1]
    # the information says it too, whatever the message is
    silent = replace(fit, outcome=gx.Outcome(gx.Ending.CONVERGED))
    (said,) = cautions(Findings(silent))
    assert said.startswith("Variance and range are not separately identifiable")
    assert said in cautions(Findings(fit))
    assert not any("cover" in one for one in cautions(Findings(fit, validation=left_out)))


@pytest.mark.slow
def test_report_of_a_mixed_fit_shows_formats_and_divergence(mixed):
    found = findings_of(mixed)
    labels = [asked for asked, _ in found.divergences]
    assert labels == [{"accuracy": 1e-4}, {"accuracy": 1e-3}, {"accuracy": 1e-5}]
    page = Page(report_html(mixed))
    own = found.divergences[0][1]
    expected = gx.kl_divergence(mixed.model, mixed.observations, mixed.method, trend="zero")
    assert own.kl == pytest.approx(expected.kl, rel=1e-9)
    counts = ", ".join(f"{k} {form.upper()}" for form, k in expected.formats.counts().items())
    assert counts in page.text
    assert number(expected.kl, 3) in page.text
    assert "Formats of the tiles" in page.text
    assert "Higham, N. J. and Mary, T. (2022)" in page.text


@pytest.mark.slow
def test_without_the_divergence_the_formats_are_shown_nevertheless(mixed, monkeypatch):
    monkeypatch.setattr(findings, "MOST_DIVERGENCE_LOCATIONS", 100)
    found = findings_of(mixed)
    assert found.divergences == []
    assert found.formats.counts() == mixed.formats
    text = Page(report_html(mixed)).text
    assert "Formats of the tiles" in text
    assert "because it needs two n×n matrices and there are more than 100 locations" in text


@pytest.mark.slow
def test_report_of_vecchias_approximation_shows_neighbours(sparse):
    found = findings_of(sparse)
    assert [asked["neighbours"] for asked, _ in found.divergences] == [8, 4, 16]
    kl = [known.kl for _, known in found.divergences]
    # more neighbours are nearer to the exact model
    assert kl[1] > kl[0] > kl[2] > 0
    graph = sparse.method.prepare(sparse.observations).graph_of(sparse.model)
    one = Maps(sparse).neighbours(graph)
    drawn = [(size, kind, path.count("M")) for size, layer in one.layers for kind, _, path in layer]
    assert drawn[0][1:] == ("dot quiet", len(sparse.observations))
    assert drawn[1:] == 4 * [(5, "line", 8), (5, "dot", 8), (11, "dot halo", 1), (11, "dot", 1)]
    assert one.scale is None
    # lines begin at the location and end at its neighbours
    paths = [path for _, layer in one.layers for _, _, path in layer]
    for lines, ends, _, at in zip(*(paths[1 + k :: 4] for k in range(4)), strict=True):
        place = at.removesuffix("h0")
        assert re.findall("M[^ML]+", lines) == 8 * [place]
        assert re.findall("L([^ML]+)", lines) == re.findall("M([^M]+)h0", ends)


@pytest.mark.slow
def test_maps_hold_the_numbers_of_the_observations_and_of_the_predictions(fit, html):
    numbers = json.loads(Page(html).scripts[0][1])
    seen, places = fit.observations, numbers["places"]
    np.testing.assert_allclose(np.column_stack((places["x"], places["y"])), seen.locations)
    columns = dict(places["columns"])
    np.testing.assert_allclose(columns["log_zinc"], seen.values, rtol=5e-5)
    z = gx.leave_one_out(fit).standardised_errors
    np.testing.assert_allclose(columns["standardised error"], z, rtol=5e-3)
    raster = gx.predict_raster(fit, cells=findings.MAP_SIDE_CELLS)
    assert numbers["cells"]["box"] == list(raster.extent)
    assert numbers["cells"]["shape"] == list(raster.mean.shape)
    cells = dict(numbers["cells"]["columns"])
    np.testing.assert_allclose(cells["log_zinc, predicted"], raster.mean.ravel(), rtol=5e-4)
    np.testing.assert_allclose(cells["standard error"], raster.standard_error.ravel(), rtol=5e-3)


def test_every_observation_is_a_dot_where_it_lies(fit):
    maps = Maps(fit)
    one, frame = maps.values(), maps.frame
    ((_, strokes),) = one.layers
    paths = "".join(path for kind, _, path in strokes if kind == "dot")
    found = np.array(re.findall(r"M([\d.]+) ([\d.]+)h0", paths), dtype=float)
    seen = fit.observations.locations
    expected = np.column_stack((frame.x(seen[:, 0]), frame.y(seen[:, 1])))
    order, other = np.lexsort(found.round(2).T), np.lexsort(expected.round(2).T)
    # two decimals of a picture that is 330 wide
    np.testing.assert_allclose(found[order], expected[other], atol=0.006)


def test_a_package_that_does_not_evaluate_a_model_is_named_with_its_limit():
    rows = dict(_conventions(gx.Matern(1.0, 0.2, 0.1, 0.1)))
    assert rows["gpgp"] == "range = 0.2, nugget = 0.1"
    assert rows["gstools"].startswith("gstools evaluates this model for nu from 0.2 to 20 only.")


@pytest.mark.parametrize("metric", ["euclidean", "chordal"])
def test_maps_have_their_true_shape(metric):
    places = np.array([[4.5, 50.0], [8.0, 50.0], [6.0, 52.5], [4.0, 51.0]])
    places += 200.0 if metric == "euclidean" else 0.0
    seen = gx.Observations(places, np.arange(4.0), metric=metric)
    frame = Frame.of(seen)
    across = float(np.diff(frame.x([4.0, 5.0]))[0])
    down = float(-np.diff(frame.y([50.0, 51.0]))[0])
    shrink = cos(radians(places[:, 1].mean())) if metric == "chordal" else 1.0
    # coordinates of some 100 widths lose two digits
    assert across / down == pytest.approx(shrink, rel=1e4 * U)
    assert (frame.x(places[:, 0]) > 0).all()
    assert (frame.x(places[:, 0]) < frame.width).all()


def test_places_on_a_line_have_a_map_too():
    places = np.column_stack((np.full(5, 3.0), np.arange(5.0)))
    frame = Frame.of(gx.Observations(places, np.arange(5.0)))
    assert frame.width > 0
    assert frame.x([3.0])[0] == pytest.approx(frame.width / 2)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (178605, 181390), (-3e-7, 2e-7), (5, 1e9)])
def test_ticks_are_round_numbers_between_the_ends(low, high):
    found, digits = ticks(low, high)
    assert 2 <= len(found) <= 6
    assert low <= found[0]
    assert found[-1] <= high
    steps = np.diff(found)
    np.testing.assert_allclose(steps, steps[0], rtol=1e-6)
    assert f"{steps[0]:.1e}"[:3] in ("1.0", "2.0", "2.5", "5.0")
    # with as many digits as they need, and no more
    assert [float(f"{v:.{digits}f}") for v in found] == found
    assert digits == 0 or [float(f"{v:.{digits - 1}f}") for v in found] != found


def test_finer_cells_keep_a_linear_field_between_the_centres():
    x, y = np.meshgrid(np.arange(6.0), np.arange(4.0))
    found = finer(2 * x - 3 * y)
    assert found.shape == (16, 24)
    at = (np.arange(24) + 0.5) / 4 - 0.5, (np.arange(16) + 0.5) / 4 - 0.5
    inside = (at[0] >= 0) & (at[0] <= 5), (at[1] >= 0) & (at[1] <= 3)
    expected = 2 * at[0][None, :] - 3 * at[1][:, None]
    inner = np.ix_(inside[1], inside[0])
    np.testing.assert_allclose(found[inner], expected[inner], atol=64 * U)
    assert found.min() >= -9.0
    assert found.max() <= 10.0


def test_colours_go_from_the_least_to_the_largest():
    scale = Scale("", -2.0, 2.0, "PuOr")
    steps = scale(np.array([-9.0, -2.0, 0.0, 2.0, 9.0]))
    assert steps.tolist() == [0, 0, 24, 47, 47]
    assert Scale("", 3.0, 3.0, "viridis")(np.array([3.0])).tolist() == [0]


def test_of_many_places_a_sample_is_drawn_and_the_report_says_so():
    places = np.random.default_rng(5).random((5100, 2))
    seen = gx.Observations(places, places[:, 0])
    fit = gx.fit(seen, gx.Matern(1.0, 0.1, 0.5), gx.Vecchia(1), fixed=EVERYTHING, trend="zero")
    maps = Maps(fit)
    (note,) = maps.notes()
    assert note.startswith("The maps show 5,000 of the 5,100 locations, drawn at random")
    numbers = maps.numbers()["places"]
    rows = np.array(numbers["rows"]) - 1
    assert len(set(rows)) == 5000
    np.testing.assert_allclose(numbers["x"], places[rows, 0], atol=1e-5)
    np.testing.assert_array_equal(sample_of(5100), sample_of(5100))
    assert sample_of(7).tolist() == list(range(7))


@pytest.mark.slow
@pytest.mark.parametrize("dimensions", [1, 3])
def test_other_dimensions_have_a_report(dimensions):
    random = np.random.default_rng(6)
    seen = gx.Observations(random.random((25, dimensions)), random.standard_normal(25))
    fit = gx.fit(seen, gx.Matern(1.0, 0.3, 0.5, 0.1), fixed=EVERYTHING)
    page = Page(report_html(fit))
    if dimensions == 1:
        assert "Observations and prediction" in page.text
        assert page.scripts == []
    else:
        assert "Observations , first two coordinates" in page.text.replace(",", " ,")
        columns = [name for name, _ in json.loads(page.scripts[0][1])["places"]["columns"]]
        assert columns[:2] == ["z", "value"]


def again(lines, **names):
    """Run the lines of a report; return the fit that they make."""
    space = dict(names)
    exec(lines.replace("print(fit)", ""), space)
    return space["fit"]


def test_lines_of_python_name_a_method_that_would_not_be_chosen(fit, monkeypatch):
    assert fit.method == gx.Exact()
    assert "method" not in python_lines(fit)
    monkeypatch.setattr("geomxp.reporting.sources.MOST_EXACT_LOCATIONS", 100)
    assert "method=gx.Exact()" in python_lines(fit)


@pytest.mark.slow
def test_lines_of_python_make_the_fit_of_a_data_set_again(fit, mixed):
    np.testing.assert_array_equal(again(python_lines(fit)).coefficients, fit.coefficients)
    seen = mixed.observations
    other = again(python_lines(mixed), locations=seen.locations, values=seen.values)
    assert other.method == mixed.method
    assert other.log_likelihood == mixed.log_likelihood


# noise: the variance is at its lower end
@pytest.mark.filterwarnings("ignore:AT_LIMIT")
def test_lines_of_python_make_the_fit_of_a_table_again(tmp_path, monkeypatch):
    random = np.random.default_rng(7)
    rows = np.column_stack((random.random((40, 3)), random.standard_normal(40)))
    np.savetxt(tmp_path / "w.csv", rows, delimiter=",", header="lon,lat,depth,z", comments="")
    monkeypatch.chdir(tmp_path)
    seen = gx.read_table("w.csv", locations=("lon", "lat"), values="z", formula="depth + lon")
    model = gx.Matern(1.0, 20.0, 1.5, 0.5)
    method = gx.Vecchia(12, "hilbert")
    held = {"smoothness": 1.5, "range": 20.0}
    bounds = {"nugget": (1e-3, 9.0)}
    about = {"trend": "depth + lon", "fixed": held, "reml": True, "bounds": bounds}
    fit = gx.fit(seen, model, method, **about)
    assert str(tmp_path) not in python_lines(fit)
    found = again(python_lines(fit))
    assert found.method == method
    assert found.bounds == bounds
    assert found.reml
    assert found.log_likelihood == pytest.approx(fit.log_likelihood, abs=1e-5)


def test_report_of_arrays_says_that_there_is_no_table(nasty):
    bare = replace(nasty, observations=nasty.observations.subset(np.arange(30)))
    text = Page(report_html(bare, budget=0.0)).text
    assert "arrays given in Python" in text
    assert bare.observations.digest() in text


@pytest.mark.slow
def test_the_same_fit_has_the_same_report(nasty, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    first = report_html(nasty)
    assert "1970-01-02" in first
    assert report_html(nasty) == first


def test_pictures_leave_the_settings_of_matplotlib_as_they_were():
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    shown = chart(lambda ax: ax.plot([0, 1], [0, 1]), "line")
    assert dict(mpl.rcParams) == before
    assert shown.body.endswith("</svg>")


def test_pictures_of_many_dots_are_images_and_their_words_stay_words():
    x = np.random.default_rng(8).random(findings.MAP_SIDE_CELLS * 10)

    def draw(ax):
        ax.scatter(x, x)
        ax.set_xlabel("the words")

    svg = chart(draw, "dots").body
    assert svg.count("<use") < 100
    assert svg.count("<image") == 1
    assert ">the words</text>" in svg


def test_report_is_refused_before_work_where_it_cannot_be_written(fit, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "geomxp.reporting.report.report_html", lambda *_, **__: pytest.fail("worked")
    )
    with pytest.raises(gx.InvalidInput, match="does not exist"):
        gx.report(fit, tmp_path / "no" / "report.html")


def test_report_is_of_a_fit_and_of_nothing_else(fit, tmp_path):
    with pytest.raises(gx.InvalidInput, match=r"must be a Fit or an Exploration\. Got NoneType"):
        gx.report(None, tmp_path / "report.html")
    with pytest.raises(gx.InvalidInput, match=r"must be a Fit or an Exploration\. Got str"):
        report_html("fit")
    with pytest.raises(gx.InvalidInput, match="`budget` must be"):
        report_html(fit, budget=-1)
    with pytest.raises(gx.InvalidInput, match=r"`level` must be one of: quick, full\. Got 'brief'"):
        report_html(fit, level="brief")


@pytest.mark.slow
def test_a_report_of_space_and_time_has_the_units_of_both():
    places = np.repeat(np.random.default_rng(2).random((12, 2)), 5, axis=0)
    when = np.tile(np.arange("2026-03-01", "2026-03-06", dtype="datetime64[D]"), 12)
    model = gx.Separable(1.0, 0.3, 2.0, 0.5, 0.5, 0.1)
    values = gx.simulate(model, places, time=np.tile(np.arange(5.0), 12), seed=1)[0]
    about = {"length_unit": "kilometre", "value_unit": "mm"}
    seen = gx.Observations(places, values, time=when, **about)
    held = tuple(model.parameters())
    text = Page(report_html(gx.fit(seen, model, fixed=held), level="quick")).text
    assert "60 observations at 12 locations and 5 times" in text
    assert "60 locations" not in text
    # where an exponential correlation is 5 %
    lag = f"{-2.0 * np.log(0.05):.3g}"
    for words in (
        f"{lag} days; correlation 5 % at one location",
        "time, from 2026-03-01 to 2026-03-05, in days",
    ):
        assert words in text, words
