"""Exploration before a fit: what it finds, what it suggests, and that its next command works."""

import dataclasses
import json
import re
import shlex
import warnings

import numpy as np
import pandas as pd
import pytest

import geomxp as gx
from geomxp.cli.main import main
from geomxp.prediction.screening import transformations_of, transformed
from geomxp.reporting import exploration


@pytest.fixture(scope="module")
def zinc():
    return gx.explore(gx.datasets.load("meuse", values="zinc"))


def field(n=150, seed=3):
    places = 1000 * np.random.default_rng(seed).random((n, 2))
    return places, gx.simulate(gx.Matern(1.0, 100.0, 0.5, 0.1), places, seed=seed)[0]


def topics(found, caution=None):
    return {one.topic for one in found.findings if caution is None or one.caution == caution}


def said(found, topic):
    return " ".join(one.text for one in found.findings if one.topic == topic)


def table(tmp_path, monkeypatch, places, values, name="wells.csv", header="x,y,z"):
    monkeypatch.chdir(tmp_path)
    rows = [
        f"{x!r},{y!r},{z!r}" for (x, y), z in zip(places.tolist(), values.tolist(), strict=True)
    ]
    (tmp_path / name).write_text("\n".join([header, *rows]) + "\n")
    return gx.read_table(name, locations=header.split(",")[:2], values=header.split(",")[2])


def run(found, tmp_path):
    """Run the next command, with a quick report, and the next call; return the fit of both."""
    words = shlex.split(found.command)
    assert words[0] == "geomxp"
    quickly = ["--fix", "smoothness=0.5", "--report-level", "quick", "--quiet"]
    assert main([*words[1:], *quickly]) == 0
    written = gx.Fit.load(words[words.index("--output") + 1])
    names = {}
    line = found.call.replace("print(fit)", "").replace(
        "gx.fit(observations", "gx.fit(observations, fixed={'smoothness': 0.5}, progress=False"
    )
    exec(line, names)
    return written, names["fit"]


def test_log_likelihoods_of_transformations_have_their_jacobians():
    seen = gx.datasets.load("meuse", values="zinc")
    y, n = seen.values, len(seen)
    design = np.column_stack((np.ones(n), seen.locations))
    design = (design - design.mean(axis=0)) / np.maximum(design.std(axis=0), 1)
    design[:, 0] = 1.0

    def independent(z, jacobian):
        r = z - design @ np.linalg.lstsq(design, z, rcond=None)[0]
        return -n / 2 * (np.log(2 * np.pi * (r @ r) / n) + 1) + jacobian.sum()

    for one in transformations_of(seen, "linear"):
        power = {"none": 1.0, "sqrt": 0.5, "log": 0.0}.get(one.name, one.parameter)
        z = np.log(y) if power == 0 else y**power
        jacobian = np.log(abs(power) * y ** (power - 1)) if power else -np.log(y)
        assert one.log_likelihood == pytest.approx(independent(z, jacobian), abs=1e-7)
    best = transformations_of(seen, "linear")[-1]
    for power in (best.parameter - 0.01, best.parameter + 0.01):
        assert independent(y**power, np.log(abs(power) * y ** (power - 1))) < best.log_likelihood


@pytest.mark.parametrize(("name", "power"), [("log", None), ("sqrt", None), ("boxcox", -0.7)])
def test_jacobians_are_the_derivatives_of_the_transformations(name, power):
    y, step = np.array([0.2, 1.0, 7.0]), 1e-6
    up, down = (transformed(y * (1 + h), name, power)[0] for h in (step, -step))
    slope = (up - down) / (2 * step * y)
    np.testing.assert_allclose(transformed(y, name, power)[1], np.log(slope), atol=1e-8)


@pytest.mark.parametrize(
    ("of_normal", "expected"),
    [
        (lambda z: z, None),
        (lambda z: np.exp(1.2 * z), "log"),
        (lambda z: (z + 4) ** 2, "sqrt"),
        (lambda z: 1 / (1 + np.exp(3 - 1.5 * z)), "logit"),
        (lambda z: 1 / (4.5 + z), "boxcox"),
    ],
)
def test_the_transformation_that_made_the_values_is_suggested(of_normal, expected):
    places = np.random.default_rng(0).random((400, 2))
    z = gx.simulate(gx.Matern(1.0, 0.03, 0.5, 0.2), places, seed=4)[0]
    found = gx.explore(gx.Observations(places, of_normal(np.clip(z, -3.4, 3.4))))
    assert (found.suggestion and found.suggestion.name) == expected
    assert ("values" in topics(found, caution=True)) == (expected is not None)


def test_values_with_zeros_have_a_response_and_the_reason_is_given():
    places, z = field()
    values = np.exp(1.5 * z)
    values[:20] = 0.0
    found = gx.explore(gx.Observations(places, values))
    assert found.suggestion is None
    assert found.response.name == "tweedie"
    assert "of the values are 0, so that no transformation makes them Gaussian" in said(
        found, "values"
    )


def test_a_single_outlier_does_not_make_a_transformation():
    places, z = field()
    values = z + 10
    values[40] = 200.0
    found = gx.explore(gx.Observations(places, values))
    assert found.suggestion is None
    assert found.outliers.rows[0] == 40
    assert "without 1 outlier:" in said(found, "values")
    # numbers of observations are those of the table, also after rows that were left out
    values[:2] = -9999.0
    found = gx.explore(gx.Observations(places, values))
    assert found.outlier_rows()[0]["observation"] == 41
    assert found.outlier_rows()[0]["value"] == 200


def test_outliers_by_value_and_by_their_neighbours():
    places, z = field(300)
    x = places[:, 0]
    # a value that is usual elsewhere, and one that is usual nowhere
    values = 10 * np.sin(x / 160) + 0.1 * z
    low = int(np.argmin(np.abs(x - 754)))
    odd = int(np.argmin(np.abs(x - 251)))
    assert values[low] < -8
    values[low], values[odd] = 8.0, 60.0
    found = gx.explore(gx.Observations(places, values))
    rows = {row["observation"] - 1: row for row in found.outlier_rows()}
    assert abs(rows[low]["by_value"]) < found.outliers.limit < abs(rows[low]["by_neighbours"])
    assert rows[odd]["by_value"] > found.outliers.limit
    assert found.outliers.rows[0] == odd
    assert f"observation {odd + 1:,}" in said(found, "outliers")


def test_clean_fields_have_few_outliers():
    counts = []
    for seed in range(20):
        places, z = field(150, seed)
        counts.append(len(gx.explore(gx.Observations(places, z)).outliers))
    # one per cent of the fields should have one
    assert sum(count > 0 for count in counts) <= 4


@pytest.mark.slow
def test_suspected_sentinels_are_left_out_here_and_in_the_next_command(tmp_path, monkeypatch):
    places, z = field()
    values = z.copy()
    values[[3, 17]] = -9999.0
    with pytest.warns(gx.GeomxpWarning, match="holds -9999 in 2 rows"):
        seen = table(tmp_path, monkeypatch, places, values)
    found = gx.explore(seen)
    assert found.sentinels == {"z": {-9999.0: 2}}
    assert (found.rows, len(found.observations)) == (150, 148)
    assert found.observations.values.min() > -10
    np.testing.assert_array_equal(found.kept, np.delete(np.arange(150), [3, 17]))
    assert "column 'z' holds -9999 in 2 rows" in said(found, "sentinels").lower()
    assert "--missing -9999 --drop-missing" in found.command
    for fit in run(found, tmp_path):
        assert len(fit.observations) == 148
    # arrays have no file to be read again
    bare = gx.explore(gx.Observations(places, values))
    assert bare.command is None
    names = {"observations": gx.Observations(places, values)}
    exec(bare.call.replace("print(fit)", ""), names)
    assert names["fit"].observations.digest() == found.observations.digest()


@pytest.mark.slow
def test_copied_rows_are_to_be_dropped_and_replicates_to_be_kept(tmp_path, monkeypatch):
    places, z = field(60)
    again = np.vstack((places, places[:2]))
    with pytest.warns(gx.GeomxpWarning, match="2 rows are at the location"):
        copied = table(tmp_path, monkeypatch, again, np.r_[z, z[:2]])
    found = gx.explore(copied)
    assert found.duplicates == {"rows": 2, "same": 2}
    assert "--duplicates drop" in found.command
    assert [len(fit.observations) for fit in run(found, tmp_path)] == [60, 60]
    with pytest.warns(gx.GeomxpWarning, match="2 rows are at the location"):
        measured = table(tmp_path, monkeypatch, again, np.r_[z, z[:2] + 0.1], "again.csv")
    found = gx.explore(measured)
    assert found.duplicates == {"rows": 2, "same": 0}
    assert "--duplicates keep" in found.command
    assert "keeps them as replicates" in said(found, "duplicates")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [len(fit.observations) for fit in run(found, tmp_path)] == [62, 62]


@pytest.mark.slow
def test_the_next_command_repeats_how_the_table_was_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    lines = ['"East, m";North;lead;elev']
    places, z = field(40)
    for (x, y), lead, e in zip(places.round(3), z.round(3), rng.random(40).round(3), strict=True):
        lines.append(f"{x};{y};{lead};{e}".replace(".", ","))
    lines[5] = "0,3;0,4;;0,1"
    (tmp_path / "of site.csv").write_text("\n".join(lines) + "\n")
    seen = gx.read_table(
        "of site.csv",
        locations=("East, m", "North"),
        values="lead",
        formula="elev",
        decimal=",",
        drop_missing=True,
    )
    found = gx.explore(seen, trend="elev")
    words = shlex.split(found.command)
    for option, value in (
        ("--locations", '"East, m",North'),
        ("--value", "lead"),
        ("--formula", "elev"),
        ("--decimal", ","),
    ):
        assert words[words.index(option) + 1] == value
    assert words[2] == "of site.csv"
    assert "--drop-missing" in words
    for fit in run(found, tmp_path):
        assert fit.observations.digest() == seen.digest()
        assert fit.trend.text == "elev"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "columns", "trend", "words"),
    [
        ("meuse", {}, "constant", []),
        (
            "meuse",
            {"values": "zinc"},
            "covariates",
            ["--value", "zinc", "--trend", "covariates", "--transform", "log"],
        ),
        ("ozone", {"metric": "great-circle"}, "constant", ["--metric", "great-circle"]),
        ("meuse", {}, "linear", ["--trend", "linear"]),
    ],
)
def test_the_next_command_of_a_data_set_works(tmp_path, monkeypatch, name, columns, trend, words):
    monkeypatch.chdir(tmp_path)
    seen = gx.datasets.load(name, **columns)
    found = gx.explore(seen, trend=trend)
    end = ["--output", f"{name}-fit.json", "--report", f"{name}-fit.html"]
    assert shlex.split(found.command) == ["geomxp", "fit", name, *words, *end]
    for fit in run(found, tmp_path):
        assert fit.observations.digest() == seen.digest()
        assert fit.trend.text == trend


@pytest.mark.slow
def test_many_locations_are_fitted_by_vecchias_approximation():
    rng = np.random.default_rng(0)
    many = gx.Observations(rng.random((6001, 2)), rng.standard_normal(6001))
    found = gx.explore(many, sample=300)
    assert "method=gx.Vecchia(30)" in found.call
    assert "more than 6,000 locations" in said(found, "cost")
    assert "at random" in str(found)
    few = gx.explore(many.subset(np.arange(6000)), sample=300)
    assert "Vecchia" not in few.call
    assert found.costs["exact"].bytes > 8 * 6001**2


@pytest.mark.slow
def test_the_method_follows_the_number_of_locations_not_of_observations():
    places = np.tile(np.random.default_rng(1).random((10, 2)), (650, 1))
    values = np.random.default_rng(2).standard_normal(6500)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gx.GeomxpWarning)
        found = gx.explore(gx.Observations(places, values))
    assert "exact method" in said(found, "cost")
    assert "Vecchia" not in found.call


def test_replicates_do_not_hide_the_shortest_distance():
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    values = np.random.default_rng(2).standard_normal(40)
    found = gx.explore(gx.Observations(np.repeat(corners, 10, axis=0), values))
    assert found.variogram.distance.max() >= 1.0
    assert "40 observations" in found.variogram.title


@pytest.mark.parametrize("kind", ["values", "places", "places with errors"])
def test_what_cannot_be_fitted_has_no_next_command(kind, tmp_path, monkeypatch):
    places, values = field(20)
    values = np.full(20, 7.0) if kind == "values" else values
    places = places if kind == "values" else np.ones((20, 2))
    errors = np.ones(20) if "errors" in kind else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gx.GeomxpWarning)
        found = gx.explore(gx.Observations(places, values, error_variance=errors))
    assert (found.command, found.call) == (None, "")
    assert "In Python" not in str(found)
    assert "Run next" not in found._repr_html_()


def test_errors_of_a_column_are_converted_to_those_of_its_logarithm(tmp_path, monkeypatch):
    places, values = field(60)
    lines = ["x,y,z,z_se"]
    lines += [
        f"{x!r},{y!r},{z!r},{0.1 * z!r}"
        for (x, y), z in zip(places.tolist(), np.exp(values).tolist(), strict=True)
    ]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "errors.csv").write_text("\n".join(lines) + "\n")
    found = gx.explore(gx.read_table("errors.csv", locations=("x", "y"), values="log(z)"))
    text = re.search(r"error_variance='(.+?)'", said(found, "errors"))[1]
    read = gx.read_table("errors.csv", locations=("x", "y"), values="log(z)", error_variance=text)
    np.testing.assert_allclose(read.error_variance, 0.01, rtol=1e-12)
    # a function of the table is computed for new locations too
    fit = gx.fit(read, fixed={"smoothness": 0.5}, progress=False)
    frame = pd.DataFrame({"x": [1.0], "y": [1.0], "z": [2.0], "z_se": [0.4]})
    one, other = (gx.predict(fit, each) for each in (frame, frame.drop(columns="z_se")))
    extra = one.variance_of_observation - other.variance_of_observation
    assert extra[0] == pytest.approx(0.04, rel=1e-9)
    with pytest.raises(gx.InvalidInput, match="z_se"):
        gx.predict(fit, frame.assign(z_se=np.nan))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ("I(z * 2)", "standard errors of z. A fit needs error variances of I"),
        ("log(z + 1)", "convert them first"),
    ],
)
def test_errors_of_other_functions_are_to_be_converted(tmp_path, monkeypatch, values, words):
    places, z = field(60)
    frame = pd.DataFrame(places, columns=["x", "y"]).assign(z=z - z.min() + 1.0, z_se=0.1)
    monkeypatch.chdir(tmp_path)
    frame.to_csv("table.csv", index=False)
    found = gx.explore(gx.read_table("table.csv", locations=("x", "y"), values=values))
    assert words in said(found, "errors")
    assert "--error-variance" not in said(found, "errors")


def test_a_unit_in_the_name_of_a_column_is_no_function(tmp_path, monkeypatch):
    places, z = field(60)
    frame = pd.DataFrame(places, columns=["x", "y"])
    frame = frame.assign(**{"Zn(ppm)": np.exp(z), "Zn(ppm)_se": 0.1})
    monkeypatch.chdir(tmp_path)
    frame.to_csv("table.csv", index=False)
    found = gx.explore(gx.read_table("table.csv", locations=("x", "y"), values="Zn(ppm)"))
    assert "standard errors of Zn(ppm)" in said(found, "errors")
    assert "`Zn(ppm)_se` ** 2" in said(found, "errors")


def test_options_are_not_broken_at_their_hyphens():
    found = gx.explore(gx.datasets.load("meuse", values="zinc"))
    one = exploration.Finding("x", 90 * "w" + " (--missing 1e+30 --drop-missing)")
    lines = str(dataclasses.replace(found, findings=(one,))).splitlines()
    assert any("--drop-missing" in line for line in lines)


def test_coordinates_of_different_kinds_are_a_caution():
    places, z = field(40)
    degrees = gx.Observations(
        places / 100 + [5, 50], z, location_names=("a", "b"), metric="chordal"
    )
    assert "coordinates" not in topics(gx.explore(degrees))
    with pytest.warns(gx.GeomxpWarning, match="look like longitude and latitude"):
        wrong = gx.Observations(places / 100 + [5, 50], z)
    assert "look like longitude and latitude" in said(gx.explore(wrong), "coordinates")
    mixed = gx.Observations(places, z, location_names=("x_km", "y_m"))
    assert "probably have different units" in said(gx.explore(mixed), "axes")


def test_correlation_and_direction_are_seen_where_they_are():
    places = np.random.default_rng(0).random((400, 2))
    turned = gx.Matern(1.0, 0.3, 0.5, 0.02, anisotropy=(45, 0.15))
    found = gx.explore(gx.Observations(places, gx.simulate(turned, places, seed=1)[0]))
    assert "near values are alike" in said(found, "distance")
    assert "direction 135° is" in said(found, "direction")
    assert "--anisotropy" in said(found, "direction")
    noise = np.random.default_rng(1).standard_normal(400)
    found = gx.explore(gx.Observations(places, noise))
    assert "no spatial correlation is visible" in said(found, "distance")
    assert "common by chance" in said(found, "direction")
    found = gx.explore(gx.Observations(places, 5 * places[:, 0] + noise))
    assert "--trend linear" in said(found, "trend")


def test_an_exploration_is_json_text_and_html(zinc):
    document = json.loads(json.dumps(zinc.to_dict(), allow_nan=False))
    assert document["n"] == 155
    assert document["suggestion"] == "log"
    assert document["extent"]["x"] == [178605, 181390]
    assert document["variogram"]["semivariance"] == zinc.variogram.semivariance.tolist()
    assert {*document["directional"]["direction"]} == {0, 45, 90, 135}
    assert {row["method"] for row in document["costs"]} == set(zinc.costs)
    assert all(row["seconds_of_fit"] > 0 for row in document["costs"])
    assert document["command"] == zinc.command
    text, page = str(zinc), zinc._repr_html_()
    for one in zinc.findings:
        assert one.text in re.sub(r"\s+", " ", text)
    assert f"  {zinc.command}\n" in text
    assert max(map(len, text.splitlines())) <= 120
    assert "Suggested transformation: log, --transform log." in page
    assert "<script" not in page


def test_names_of_columns_are_escaped_in_html():
    places, z = field(40)
    found = gx.explore(gx.Observations(places, z, value_name="<b>z</b>"))
    assert "<b>z</b>" not in found._repr_html_()


@pytest.mark.parametrize("d", [1, 3])
def test_locations_on_a_line_and_in_space_have_no_directions(d):
    places = np.random.default_rng(0).random((50, d))
    found = gx.explore(gx.Observations(places, places[:, 0] ** 2))
    assert found.directional is None
    assert "direction" not in topics(found)
    json.dumps(found.to_dict(), allow_nan=False)
    assert str(found)


@pytest.mark.parametrize(
    ("places", "values", "words"),
    [
        (np.zeros((4, 2)), np.arange(4.0), "all at one location"),
        (np.arange(12.0).reshape(6, 2), np.ones(6), "All values are equal"),
        ([[0, 0], [1, 0], [0, 2]], [1.0, 2.0, 4.0], "3 observations"),
        (np.arange(10.0)[:, None] * [1.0, 2.0], np.arange(10.0), "10 observations"),
    ],
    ids=["one location", "one value", "three", "on a line"],
)
def test_little_data_are_explored_too(places, values, words):
    found = gx.explore(gx.Observations(places, values))
    assert words in " ".join(one.text for one in found.findings)
    json.dumps(found.to_dict(), allow_nan=False)
    assert str(found)


@pytest.mark.parametrize("scale", [1e-140, 1e140])
def test_the_unit_of_the_values_does_not_change_what_is_found(scale):
    places, z = field(60)
    values = np.exp(z)
    values[7] = 1e4
    ours, theirs = (gx.explore(gx.Observations(places, unit * values)) for unit in (1.0, scale))
    assert theirs.suggestion.name == ours.suggestion.name == "log"
    np.testing.assert_array_equal(theirs.outliers.rows, ours.outliers.rows)
    assert 7 in ours.outliers.rows
    gain = [one.suggestion.log_likelihood - one.transformations[0].log_likelihood
            for one in (ours, theirs)]  # fmt: skip
    assert gain[1] == pytest.approx(gain[0], rel=1e-9)


@pytest.mark.slow
def test_values_of_any_kind_at_places_of_any_kind_are_explored():
    rng = np.random.default_rng(0)
    places = (
        *(rng.random((30, 2)), 1e149 * rng.random((30, 2)), 1e9 + rng.random((30, 2))),
        *(rng.integers(0, 4, (30, 2)), np.outer(rng.random(30), [1, 1])),
        1e-200 * rng.random((30, 3)),
    )
    values = (
        *(rng.integers(0, 2, 30), rng.random(30), 1e12 + rng.random(30), np.full(30, 0.1)),
        *(10.0 ** rng.uniform(-140, 140, 30), np.where(rng.random(30) < 0.8, 1.0, rng.random(30))),
    )
    for one in places:
        for z in values:
            found = gx.explore(gx.Observations(one, z))
            json.dumps(found.to_dict(), allow_nan=False)
            assert str(found)


def test_what_cannot_be_explored_is_refused():
    with pytest.raises(gx.InvalidInput, match=r"must be Observations. Got str."):
        gx.explore("meuse")
    seen = gx.datasets.load("meuse")
    with pytest.raises(gx.InvalidInput, match=r"`sample` must be a whole number of at least 3"):
        gx.explore(seen, sample=2)
    with pytest.raises(gx.InvalidInput, match="`trend` must be one of"):
        gx.explore(seen, trend="cubic")
    with pytest.raises(gx.InvalidInput, match=r"spread by about 2e.200, whose square"):
        gx.explore(gx.Observations([[0.0], [1.0], [2.0]], [0.0, 1e200, 2e200]))
    with pytest.raises(gx.InvalidInput, match="fewer than 3 are left"):
        gx.explore(gx.Observations([[0.0], [1.0], [2.0]], [0.3, 0.1, -9999.0]))
    several = gx.Observations(seen.locations, seen.values, variable=np.arange(155) % 2)
    with pytest.raises(
        gx.InvalidInput,
        match=r"one at a time. Got 2 .variable 0, variable 1.: use .*of_variable.0.",
    ):
        gx.explore(several)


def in_space_and_time():
    rng = np.random.default_rng(3)
    places = np.repeat(rng.random((40, 2)), 9, axis=0)
    when = np.tile(np.arange("2026-03-01", "2026-03-10", dtype="M8[D]"), 40)
    model = gx.Gneiting(1.0, 0.3, 2.0, 0.5, 0.8, 0.6, 0.5, 0.05)
    values = gx.simulate(model, places, time=np.tile(np.arange(9.0), 40), seed=1)[0]
    values[77] += 7
    return gx.Observations(places, values, time=when)


@pytest.mark.slow
def test_observations_of_several_times_are_explored_and_the_next_command_fits_them(
    tmp_path, monkeypatch
):
    seen = in_space_and_time()
    found = gx.explore(seen)
    said = {one.topic: one.text for one in found.findings}
    assert (
        "40 locations and 9 times, from 2026-03-01 to 2026-03-09; the median step is 1 day."
        in said["times"]
    )
    own = found.variogram.of_lag(1.0)
    assert own.upper[0] == 0
    assert own.pairs[0] == 40 * 8
    assert "At one location and a lag of 1 day" in said["lag"]
    assert said["duplicates"] == "No location has more than one observation at one time."
    # only one observation is wrong, and its neighbours are those of the same day
    assert found.outliers.rows.tolist() == [77]
    assert found.outlier_rows()[0]["time"] == "2026-03-06"
    assert "gx.fit(observations, family='gneiting')" in found.call
    # spacing is that of stations
    places = np.unique(seen.locations, axis=0)
    apart = np.sqrt(((places[:, None] - places[None]) ** 2).sum(axis=2)) + 9 * np.eye(40)
    assert np.isclose(found.spacing, np.median(apart.min(axis=1)))
    gx.report(found, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "By lag in time" in page
    assert "All directions" not in page
    monkeypatch.chdir(tmp_path)
    columns = {"x": seen.locations[:, 0], "y": seen.locations[:, 1]}
    pd.DataFrame(columns | {"day": seen.time, "z": seen.values}).to_csv("st.csv", index=False)
    command = gx.explore(gx.read_table("st.csv", values="z", time="day")).command
    assert "--time day --family gneiting" in command


def test_outliers_of_times_that_occur_once_are_found(tmp_path):
    rng = np.random.default_rng(0)
    places, when = rng.random((300, 2)), 5 * rng.random(300)
    values = np.sin(3 * places[:, 0] + when)
    values[17] += 1.5
    found = gx.explore(gx.Observations(places, values, time=when))
    assert 17 in found.outliers.rows
    said = {one.topic: one.text for one in found.findings}
    assert "300 times, from" in said["times"]
    assert "most times have one observation" in said["times"]


@pytest.mark.slow
def test_the_page_of_an_exploration_has_the_findings_and_loads_nothing(zinc, tmp_path):
    path = tmp_path / "zinc.html"
    gx.report(zinc, path, command="geomxp explore meuse --value zinc")
    text = path.read_text("utf-8")
    plain = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", text)).replace("\xa0", " ")
    for one in zinc.findings:
        assert one.text in plain.replace("&#39;", "'")
    assert zinc.command in plain
    assert "geomxp explore meuse --value zinc" in plain
    assert not re.findall(r'(?:src|href)="(?!#|data:)', text)
    assert text.count('class="chart"') == 4
    assert text.count('class="map"') == 1
    # the ring is drawn below the dots
    assert text.index("var(--mark)") < text.index("dot halo")
    with pytest.raises(gx.InvalidInput, match=r"must be a Fit or an Exploration. Got int"):
        gx.report(3, path)


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 3])
def test_there_is_a_page_for_locations_on_a_line_and_in_space(d, tmp_path):
    places = np.random.default_rng(0).random((50, d))
    path = tmp_path / "r.html"
    gx.report(gx.explore(gx.Observations(places, places[:, 0] ** 2)), path)
    text = path.read_text("utf-8")
    assert ("Map, first two coordinates" in text) == (d == 3)
    assert ("Along the line" in text) == (d == 1)


@pytest.mark.parametrize("metric", ["euclidean", "chordal"])
@pytest.mark.parametrize("n", [3, 4, 6, 10, 40])
def test_few_observations_at_times_of_their_own_are_explored(n, metric):
    rng = np.random.default_rng(n)
    places = rng.random((n, 3 if metric == "euclidean" else 2)) * 9
    for seed in range(5):
        times = np.random.default_rng(seed).random(n)
        seen = gx.Observations(places, rng.standard_normal(n), metric=metric, time=times)
        assert "times" in {one.topic for one in gx.explore(seen).findings}


@pytest.mark.slow
def test_one_time_for_all_is_left_out_of_the_next_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seen = gx.datasets.load("coalash")
    frame = pd.DataFrame(seen.locations, columns=["x", "y"]).assign(z=seen.values, year=1970)
    frame.to_csv("now.csv", index=False)
    found = gx.explore(gx.read_table("now.csv", values="z", time="year"))
    assert "--time" not in found.command
    assert "time=" not in found.call
    quickly = ["--fix", "smoothness=0.5", "--report-level", "quick"]
    assert main([*shlex.split(found.command)[1:], *quickly]) == 0
