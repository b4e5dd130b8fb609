"""The report of a space-time fit: one map for each time, in the same colours."""

import base64
import io
import json
import re

import numpy as np
import pandas as pd
import pytest
from matplotlib import colormaps
from PIL import Image
from reports import in_no_time

import geomxp as gx
from geomxp.reporting import findings
from geomxp.reporting.findings import Findings, findings_of
from geomxp.reporting.maps import MOST_MAP_TIMES, Maps, finer, near_in_time, nearest, times_shown
from geomxp.reporting.report import report_html

MODEL = gx.Separable(1.0, 0.3, 2.0, 0.5, 0.5, 0.1)
HELD = tuple(MODEL.parameters())
HELD4 = ("variance", "range", "smoothness", "nugget")
STATIONS, STEPS = 15, 4
KEYS = ("values", "mean", "error", "misses")


@pytest.fixture(scope="module", autouse=True)
def _whole():
    with in_no_time():
        yield


def fit_of(places, times, method=None, **about):
    """A fit of simulated values; nothing is estimated."""
    values = gx.simulate(MODEL, places, time=np.asarray(times, dtype=float), seed=1)[0]
    trend = about.pop("trend", "constant")
    seen = gx.Observations(places, values, **{"time": times, "time_name": "day"} | about)
    return gx.fit(seen, MODEL, method or gx.Exact(), fixed=HELD, trend=trend)


def stations(steps, count=STATIONS):
    """Return places and times of stations that observe at times 0, 1, …"""
    places = np.random.default_rng(0).random((count, 2))
    return np.repeat(places, steps, axis=0), np.tile(np.arange(steps), count)


@pytest.fixture(scope="module")
def fit():
    """A fit to dates: each station at 0 and 12 o'clock."""
    places, times = stations(STEPS)
    values = gx.simulate(MODEL, places, time=times / 2, seed=1)[0]
    frame = pd.DataFrame({"x": places[:, 0], "y": places[:, 1], "rain": values})
    frame["day"] = pd.Timestamp("2026-03-01") + pd.to_timedelta(12 * times, "h")
    seen = gx.Observations.from_frame(frame, values="rain", time="day", value_unit="mm")
    return gx.fit(seen, MODEL, fixed=HELD)


@pytest.fixture(scope="module")
def html(fit):
    return report_html(fit)


def text_of(html):
    """Return the words of a page."""
    bare = re.sub(r"<(style|script|svg).*?</\1>", "", html, flags=re.S)
    words = " ".join(re.sub(r"<[^>]*>", " ", bare).split())
    return words.replace("\N{NO-BREAK SPACE}", " ").replace(" ,", ",")


def numbers_of(html):
    return json.loads(html.partition('id="numbers">')[2].partition("</script>")[0])


def pixels(address):
    """Return the colours of an image, its first row at the bottom."""
    data = base64.b64decode(address.removeprefix("data:image/png;base64,"), validate=True)
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGBA"))[::-1] / 255.0


@pytest.mark.slow
def test_the_page_has_a_map_of_each_time_with_a_title_and_a_description(html):
    titles = ["2026-03-01 00:00", "2026-03-01 12:00", "2026-03-02 00:00", "2026-03-02 12:00"]
    assert numbers_of(html)["times"] == titles
    labels = re.findall(r'<svg class="small"[^>]*aria-label="([^"]*)"', html)
    assert len(labels) == len(set(labels)) == len(KEYS) * STEPS
    for key in KEYS:
        for k, title in enumerate(titles):
            assert html.count(f'<g id="still-{key}-{k}">') == 1
            assert sum(title in label for label in labels) == len(KEYS)
            # shown small
            assert html.count(f'href="#still-{key}-{k}"') == 1 + (k == 0)
    assert html.count('class="player"') == 1
    assert html.count(f'<span class="when">{titles[0]}</span>') == len(KEYS)
    assert len(re.findall(r'<image href="data:', html)) == 2 * STEPS
    names = re.findall(r' id="([^"]+)"', html)
    assert len(set(names)) == len(names)


@pytest.mark.slow
def test_the_numbers_of_each_time_are_those_of_its_prediction(fit, html):
    cells, times = numbers_of(html)["cells"], np.unique(fit.observations.dates)
    series = gx.predict_raster(fit, cells=findings.MAP_SIDE_CELLS_IN_TIME, time=times)
    assert cells["shape"] == list(series[0].mean.shape)
    columns = dict(cells["columns"])
    for name, layer, digits in (
        ("rain, predicted", "mean", 5e-4),
        ("standard error", "standard_error", 5e-3),
    ):
        expected = np.concatenate([getattr(raster, layer).ravel() for raster in series.rasters])
        np.testing.assert_allclose(columns[name], expected, rtol=digits)


def test_all_times_have_the_same_colours(fit):
    series = gx.predict_raster(fit, cells=12, time=np.unique(fit.observations.dates))
    values, mean, error = Maps(fit, raster=series).all()
    z, errors = fit.observations.values, np.array([r.standard_error for r in series.rasters])
    assert (values.scale.low, values.scale.high) == (z.min(), z.max())
    assert (mean.scale.low, mean.scale.high) == (z.min(), z.max())
    assert (error.scale.low, error.scale.high) == (errors.min(), errors.max())
    # the colour bar read backwards gives the numbers
    table = colormaps["cividis"](np.arange(256))
    for still, cells in zip(error.stills, errors, strict=True):
        found = np.abs(pixels(still.image["address"])[..., None, :] - table).sum(axis=-1)
        share = (finer(cells) - errors.min()) / np.ptp(errors)
        np.testing.assert_allclose((found.argmin(axis=-1) + 0.5) / 256, share, atol=4 / 256)
    # and equal values are dots of one colour
    palette = values.scale.palette()
    for k, still in enumerate(values.stills):
        then = fit.observations.subset(fit.observations.time == np.unique(fit.observations.time)[k])
        ((_, strokes),) = still.layers
        drawn = {path: colour for kind, colour, path in strokes if kind == "dot"}
        for place, value in zip(then.locations, then.values, strict=True):
            at = values.frame.path(*place[:, None])
            (colour,) = [colour for path, colour in drawn.items() if at in path]
            assert colour == palette[int(values.scale(value))]


def test_each_map_has_the_observations_of_its_time(fit):
    one, seen = Maps(fit).values(), fit.observations
    for when, still in zip(np.unique(seen.time), one.stills, strict=True):
        ((_, strokes),) = still.layers
        paths = "".join(path for kind, _, path in strokes if kind == "dot")
        found = np.array(re.findall(r"M([\d.]+) ([\d.]+)h0", paths), dtype=float)
        x, y = seen.locations[seen.time == when].T
        expected = np.column_stack((one.frame.x(x), one.frame.y(y)))
        order, other = np.lexsort(found.round(2).T), np.lexsort(expected.round(2).T)
        np.testing.assert_allclose(found[order], expected[other], atol=0.006)


def test_few_times_are_all_shown_and_of_many_equally_spaced_ones():
    places, times = stations(MOST_MAP_TIMES)
    assert times_shown(fit_of(places, times).observations).tolist() == list(range(MOST_MAP_TIMES))
    places, times = stations(40)
    known = times_shown(fit_of(places, times).observations)
    assert len(known) == MOST_MAP_TIMES
    assert set(known) <= set(range(40))
    even = np.linspace(0, 39, MOST_MAP_TIMES)
    assert np.abs(known - even).max() <= 0.5
    assert (known[0], known[-1]) == (0, 39)
    # two campaigns: there are maps between them, at times that nobody observed
    gap = np.where(times < 20, times, times + 300)
    known = times_shown(fit_of(places, gap).observations)
    even = np.linspace(0, 339, MOST_MAP_TIMES)
    assert np.abs(known - even).max() <= (even[1] - even[0]) / 4
    assert (np.diff(known) > 0).all()
    assert not set(known) <= set(gap)
    assert times_shown(gx.datasets.load("meuse")) is None


def test_the_nearest_time_is_the_one_of_all_pairs():
    random = np.random.default_rng(1)
    times, asked = np.sort(random.random(9)), 1.4 * random.random(200) - 0.2
    expected = np.abs(asked[:, None] - times).argmin(axis=1)
    assert nearest(times, asked).tolist() == expected.tolist()


def test_a_map_has_of_each_location_the_observation_nearest_in_time():
    places, times = stations(40)
    random = np.random.default_rng(2)
    chosen = np.sort(random.choice(len(times), 300, replace=False))
    # not all stations observe at the same time
    seen = fit_of(places[chosen], times[chosen] + 0.2 * random.random(300)).observations
    shown = times_shown(seen)
    rows, still = near_in_time(seen, shown)
    expected = set()
    for k, when in enumerate(shown):
        for place in np.unique(seen.locations, axis=0):
            near = [
                (abs(seen.time[i] - when), i)
                for i in range(len(seen))
                if (seen.locations[i] == place).all() and np.abs(seen.time[i] - shown).argmin() == k
            ]
            if near:
                expected.add((min(near)[1], k))
    assert set(zip(rows.tolist(), still.tolist(), strict=True)) == expected


def test_a_map_long_after_the_observations_has_none_of_them():
    seen = fit_of(*stations(3)).observations
    rows, still = near_in_time(seen, np.array([1.0, 2.0, 7.0, 8.0]))
    assert set(still) == {0, 1}
    assert set(seen.time[rows]) == {1.0, 2.0}
    rows, still = near_in_time(seen, np.array([7.0, 8.0]))
    assert len(rows) == len(still) == 0


@pytest.mark.slow
def test_the_page_says_what_its_maps_leave_out():
    text = text_of(report_html(fit_of(*stations(40), time_unit="hour"), level="quick"))
    assert "600 observations at 15 locations and 40 times" in text
    assert "The maps are of 12 times, the observations of 40." in text
    assert "show 180 of the 600 observations, at each location the one nearest in time" in text
    assert "where it was observed at this time" in text
    random = np.random.default_rng(3)
    places, times = random.random((60, 2)), np.sort(50 * random.random(60))
    irregular = fit_of(places, times, time_unit="hour")
    text = text_of(report_html(irregular, level="quick"))
    away = Maps(irregular).away
    assert re.fullmatch(r"[\d.]+ hours", away)
    assert f"nearest in time to the map, at most {away} earlier or later." in text
    assert "60 observations at 60 locations and 60 times" in text
    assert "The maps are of" not in text


@pytest.mark.slow
def test_sentences_are_those_of_space_and_time(html, fit):
    text = text_of(html)
    for words in (
        "60 observations at 15 locations and 4 times",
        "from 60 observations at 15 locations and 4 times, with a constant mean and a separable",
        "at one time.",
        "the observations of all times",
        "The others include later ones",
        "at distance h and lag in time u is",
        "times day, from 2026-03-01 00:00 to 2026-03-02 12:00",
    ):
        assert words in text, words
    assert "60 locations" not in text
    assert "observations of 4" not in text
    gneiting = gx.Gneiting(1.0, 0.3, 2.0, 0.5, 0.8, 0.5, 0.1, 0.1)
    other = gx.fit(fit.observations, gneiting, fixed=tuple(gneiting.parameters()))
    assert "a Gneiting covariance" in text_of(report_html(other, level="quick"))


def test_a_spatial_fit_has_no_times():
    meuse = gx.fit(gx.datasets.load("meuse"), gx.Matern(0.6, 300.0, 0.5, 0.05), fixed=HELD4)
    page = report_html(meuse, level="quick")
    for word in ('class="player"', 'class="stills"', 'class="when"', "in time"):
        assert word not in page.partition("<script")[0].partition("</style>")[2]
    assert not {"times", "stills"} & {*numbers_of(page), *numbers_of(page)["places"]}


def test_observations_of_one_time_are_explored_as_spatial_ones():
    meuse = gx.datasets.load("meuse")
    now = gx.Observations(meuse.locations, meuse.values, time=3.0)
    assert times_shown(now) is None
    one = Maps(gx.explore(now)).values()
    assert one.stills == ()
    assert one.layers == Maps(gx.explore(meuse)).values().layers


def test_an_exploration_shows_one_time_at_a_time_with_its_outliers(fit):
    seen = fit.observations
    values = seen.values.copy()
    values[[5, 30]] += 60.0
    found = gx.explore(gx.Observations(seen.locations, values, time=seen.time, time_name="hour"))
    assert {5, 30} <= set(found.outliers.rows)
    page = report_html(found)
    assert numbers_of(page)["times"] == ["hour 0", "hour 12", "hour 24", "hour 36"]
    assert len(re.findall(r'<svg class="small"', page)) == STEPS
    assert page.count('class="player"') == 1
    assert "where it was observed at this time." in text_of(page)
    frame = Maps(found).frame
    for row in (5, 30):
        path = frame.path(*seen.locations[row, :2][:, None])
        for k, when in enumerate(np.unique(seen.time)):
            still = page.partition(f'<g id="still-values-{k}">')[2]
            # the ring lies below the dots
            ring = re.search(r'stroke:var\(--mark\)" d="([^"]*)"', still)[1]
            assert (path in ring) == (seen.time[row] == when)


def test_maps_of_many_times_are_predicted_from_near_observations_or_left_out(fit, monkeypatch):
    monkeypatch.setattr(findings, "MAP_SIDE_CELLS_IN_TIME", 12)
    found = Findings(fit, left=5.0, score=1.0)
    found.predict()
    assert "use the 60 nearest observations of each cell" in found.notes[0]
    times = np.unique(fit.observations.dates)
    near = gx.predict_raster(fit, cells=findings.MAP_SIDE_CELLS_IN_TIME, time=times, neighbours=60)
    np.testing.assert_array_equal(found.raster[2].mean, near[2].mean)
    found = Findings(fit, left=1e-3, score=1.0)
    found.predict()
    assert found.raster is None
    assert found.notes[0].startswith("Maps of predictions: left out, because it would take about")


@pytest.mark.slow
def test_neighbours_of_a_space_time_fit_are_those_of_its_model():
    fit = fit_of(*stations(20), gx.Vecchia(6))
    graph = findings_of(fit, level="quick").graph
    assert graph.neighbours.shape == (300, 6)
    assert "Distances include time, scaled by the model" in text_of(report_html(fit, level="quick"))


def test_replicates_are_one_location_of_the_map_of_neighbours():
    random = np.random.default_rng(4)
    places = random.random((80, 2))
    twice = np.concatenate((places[[5, 9, 5]], places, places[[70, 70]]))
    model = gx.Matern(1.0, 0.3, 0.5, 0.1)
    # the order is that of the first rows
    first = np.unique(twice, axis=0, return_index=True)[1]
    drawn = []
    for locations in (twice, twice[np.sort(first)]):
        seen = gx.Observations(locations, random.standard_normal(len(locations)))
        fit = gx.fit(seen, model, gx.Vecchia(5), fixed=HELD4, microscale=False)
        graph = fit.method.prepare(seen).graph_of(model)
        drawn.append(Maps(fit).neighbours(graph).layers[1:])
    assert drawn[0] == drawn[1]


@pytest.mark.slow
def test_a_page_of_twelve_times_is_not_large():
    random = np.random.default_rng(5)
    places, times = random.random((6000, 2)), 50 * random.random(6000)
    page = report_html(fit_of(places, times, gx.Vecchia(4)))
    assert page.count('<image href="data:') == 2 * MOST_MAP_TIMES
    assert "show 5,000 of the 6,000 observations, drawn at random (seed 0)" in text_of(page)
    assert len(page) < 3.2e6


@pytest.mark.slow
@pytest.mark.parametrize("dimensions", [1, 3])
def test_other_dimensions_have_a_report_in_time(dimensions):
    places = np.repeat(np.random.default_rng(6).random((12, dimensions)), 3, axis=0)
    page = report_html(fit_of(places, np.tile(np.arange(3), 12)))
    if dimensions == 1:
        assert "Prediction: left out, because the report has no picture of one" in text_of(page)
        assert 'class="player"' not in page
    else:
        assert "Maps of predictions: left out, a map of predictions needs" in text_of(page)
        assert numbers_of(page)["times"] == ["day 0", "day 1", "day 2"]


# Tables of places


def covariate_fit(changing):
    """A fit with the covariate x, or x plus the time."""
    places, times = stations(3)
    column = places[:, :1] + changing * times[:, None]
    return fit_of(places, times, covariates=column, covariate_names=("c",), trend="covariates")


@pytest.fixture
def grid():
    x, y = np.meshgrid(np.linspace(0.0, 1.0, 5), np.linspace(0.0, 1.0, 4))
    return pd.DataFrame({"x": x.ravel(), "y": y.ravel(), "c": x.ravel()}).drop(index=[7])


@pytest.mark.slow
def test_places_without_times_are_predicted_at_the_times_of_the_maps(grid):
    fit = covariate_fit(changing=False)
    assert "--places grid.csv" in text_of(report_html(fit))
    page = report_html(fit, level="quick", places=grid)
    cells = np.array(dict(numbers_of(page)["cells"]["columns"])["value, predicted"], dtype=float)
    for k, found in enumerate(cells.reshape(3, 20)):
        expected = gx.predict(fit, grid, time=k).mean
        np.testing.assert_allclose(np.delete(found, 7), expected, rtol=1e-3)
        assert np.isnan(found[7])
    assert "the covariates of the table of places at all times" in text_of(page)


@pytest.mark.slow
def test_covariates_that_change_with_time_need_a_table_with_times(grid):
    fit = covariate_fit(changing=True)
    assert "If they change with time, add 'day'" in text_of(report_html(fit)).replace("&#39;", "'")
    page = report_html(fit, level="quick", places=grid)
    assert "map-mean" not in page
    assert "covariates of the trend change with time at one location (c)" in text_of(page)
    timed = pd.concat([grid.assign(c=grid.x + day, day=day) for day in (1, 2)])
    page = report_html(fit, level="quick", places=timed.sample(frac=1.0, random_state=0))
    assert numbers_of(page)["times"] == ["day 1", "day 2"]
    cells = np.array(dict(numbers_of(page)["cells"]["columns"])["value, predicted"], dtype=float)
    expected = gx.predict(fit, timed).mean
    np.testing.assert_allclose(cells[~np.isnan(cells)], expected, rtol=1e-3)
    # one time has no film
    page = report_html(fit, level="quick", places=timed[timed.day == 2])
    assert 'class="player"' not in page
    assert '<span class="when">day 2</span>' in page
