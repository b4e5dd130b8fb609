"""Tables that are not what they seem."""

import json
import warnings
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest

import geomxp as gx
from geomxp.cli.main import main
from geomxp.data import checks, tables

COLUMNS = {"locations": ("x", "y"), "values": "z"}


def written(tmp_path, text, name="t.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("names", [("Latitude", "Longitude"), ("lat", "lon")])
def test_latitude_and_longitude_are_exchanged_by_name(tmp_path, names):
    path = written(tmp_path, f"{names[0]},{names[1]},z\n50,5,1\n51,6,2\n52,7,3\n")
    with pytest.warns(gx.GeomxpWarning, match=f"--locations {names[1]},{names[0]}"):
        seen = gx.read_table(path, locations=names, values="z")
    assert (seen.metric, seen.location_names) == ("chordal", names[::-1])
    right = gx.read_table(path, locations=names[::-1], values="z")
    assert seen.digest() == right.digest()


def test_latitude_and_longitude_are_exchanged_by_value():
    frame = pd.DataFrame({"a": [50, 51, 52], "b": [105, 106, 107], "z": [1.0, 2.0, 3.0]})
    with pytest.warns(gx.GeomxpWarning, match="by their values"):
        seen = gx.Observations.from_frame(frame, locations=("a", "b"), values="z", metric="chordal")
    np.testing.assert_array_equal(seen.locations, frame[["b", "a"]])
    named = frame.rename(columns={"a": "lon", "b": "lat"})
    with pytest.raises(gx.InvalidInput, match="latitudes must lie between"):
        gx.Observations.from_frame(named, locations=("lon", "lat"), values="z")


@pytest.mark.parametrize(
    ("rows", "decimal", "values"),
    [
        ("1;2;1,000 2;3;2,500 4;5;3,000", ".", [1000, 2500, 3000]),
        ("1;2;1,000 2;3;2,500 4;5;3,000", ",", [1, 2.5, 3]),
        ("1;2;1,000 2;3;2,5 4;5;3,000", None, [1, 2.5, 3]),
        ("1;2;0,100 2;3;2,500 4;5;3,000", None, [0.1, 2.5, 3]),
        ("1,5;2;1,000 2;3;2,500 4;5;3,000", None, [1, 2.5, 3]),
        ("1;2;1.234,5 2;3;2,5 4;5;1.000", ",", [1234.5, 2.5, 1000]),
        ("1;2;1,234.5 2;3;2.5 4;5;1,234,567", ".", [1234.5, 2.5, 1234567]),
    ],
)
def test_the_whole_column_says_what_a_comma_is(tmp_path, rows, decimal, values):
    path = written(tmp_path, "\n".join(["x;y;z", *rows.split()]))
    seen = gx.read_table(path, **COLUMNS, decimal=decimal)
    np.testing.assert_array_equal(seen.values, values)


def test_a_comma_of_unknown_meaning_is_refused(tmp_path):
    path = written(tmp_path, "x;y;z\n1;2;1,000\n2;3;2,500\n4;5;3\n")
    with pytest.raises(gx.InvalidInput, match=r"'1,000' is not a number .* --decimal ,"):
        gx.read_table(path, **COLUMNS)
    path = written(tmp_path, "x;y;z\n1;2;1,5\n2;3;2\n4;5;3\n")
    with pytest.raises(gx.InvalidInput, match="use decimal=','"):
        gx.read_table(path, **COLUMNS, decimal=".")
    path = written(tmp_path, "x;y;z\n1,5;2;1.000\n2;3;2.500\n4;5;3\n")
    with pytest.warns(gx.GeomxpWarning, match="column 'z': 1.000 is read with a decimal point"):
        gx.read_table(path, **COLUMNS)


@pytest.mark.parametrize("sentinel", [-9999, -999, 999, 9999, 1e30, -32768, -99])
def test_a_sentinel_draws_a_warning_whose_remedy_works(tmp_path, sentinel, capsys):
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.random((40, 3)), columns=["x", "y", "z"])
    clean = frame.drop(index=[3, 8])
    frame.loc[[3, 8], "z"] = sentinel
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.warns(gx.GeomxpWarning, match="--missing .* --drop-missing"):
        gx.read_table(tmp_path / "t.csv", **COLUMNS)
    seen = gx.read_table(tmp_path / "t.csv", **COLUMNS, missing=sentinel, drop_missing=True)
    np.testing.assert_array_equal(seen.values, clean.z)
    with pytest.raises(gx.InvalidInput, match="Got nan in row 4"):
        gx.read_table(tmp_path / "t.csv", **COLUMNS, missing=[sentinel])


def test_simulate_takes_longitude_first(tmp_path):
    at = written(tmp_path, "lat,lon\n50,5\n51,6\n52,7\n", "at.csv")
    model = ["--variance", "1", "--range", "100", "--smoothness", "0.5", "--locations", "lat,lon"]
    output = tmp_path / "out.csv"
    assert main(["simulate", "--at", str(at), *model, "--output", str(output)]) == 0
    assert list(pd.read_csv(output).columns)[:2] == ["lon", "lat"]


def test_ordinary_numbers_are_not_sentinels():
    random = np.random.default_rng(0)
    for column in (
        random.standard_normal(500),
        random.lognormal(0, 2, 500),
        np.where(random.random(500) < 0.5, 0.0, random.lognormal(size=500)),
        random.standard_cauchy(500),
        np.repeat([0.0, 1.0], [490, 10]),
        np.arange(900, 1100.0),
        np.full(5, -9999.0),
        np.array([1.0]),
    ):
        assert checks.sentinels(column) == {}
    assert checks.sentinels(np.r_[random.random(9), 12345, 12345]) == {12345.0: 2}
    assert set(checks.sentinels(np.r_[random.random(9), -9999, 9999, -999])) == {-9999, 9999, -999}


@pytest.mark.parametrize(
    ("names", "scales", "message"),
    [
        (("x", "y", "t"), (1, 1, 1), "'t' is a time"),
        (("lon", "lat", "depth"), (1, 1, 1), "'lon' is in degrees"),
        (("x_km", "y_m"), (1, 1), "their units are km and m"),
        (("x", "y", "h"), (1e5, 1e5, 10), "they spread over"),
        (("x", "y", "z"), (1, 1, 0.01), None),
        (("x (m)", "y (m)"), (1, 1), None),
        (("t",), (1,), None),
    ],
)
def test_axes_of_different_kinds_draw_a_warning(names, scales, message):
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.random((20, len(names))) * scales, columns=list(names))
    frame["value"] = random.random(20)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gx.Observations.from_frame(frame, locations=names, values="value")
    assert [message in str(one.message) for one in caught] == [True] * (message is not None)


REPEATED = pd.DataFrame(
    {
        "x": [1, 2, 1, 5, 1.0],
        "y": [2, 3, 2, 6, 2.0],
        "z": [1, 2, 5, 3, 6.0],
        "c": [1, 3, 2, 7, 6.0],
        "rock": list("abaca"),
    }
)


@pytest.mark.parametrize(
    ("duplicates", "values", "covariates"),
    [
        ("keep", [1, 2, 5, 3, 6], [1, 3, 2, 7, 6]),
        ("drop", [1, 2, 3], [1, 3, 7]),
        ("mean", [4, 2, 3], [3, 3, 7]),
    ],
)
def test_duplicates_are_treated_as_asked(tmp_path, duplicates, values, covariates):
    REPEATED.to_csv(tmp_path / "t.csv", index=False)
    about = COLUMNS | {"covariates": ("c", "rock"), "duplicates": duplicates}
    seen = gx.read_table(tmp_path / "t.csv", **about)
    np.testing.assert_array_equal(seen.values, values)
    np.testing.assert_array_equal(seen.covariates[:, 0], covariates)
    assert seen.source["duplicates"] == duplicates


def test_duplicates_are_counted():
    with pytest.warns(gx.GeomxpWarning, match=r"2 rows are .* \(row 3 at that of row 1\), 0 with"):
        seen = gx.Observations.from_frame(REPEATED, **COLUMNS)
    assert len(seen) == 5
    with pytest.raises(gx.InvalidInput, match="2 rows are at the location of an earlier row"):
        gx.Observations.from_frame(REPEATED, **COLUMNS, duplicates="error")
    other = REPEATED.assign(rock=list("abbca"))
    with pytest.raises(gx.InvalidInput, match="'rock' differs between rows 1 and 3"):
        gx.Observations.from_frame(other, **COLUMNS, covariates=("rock",), duplicates="mean")
    # rows of different times are different
    gx.Observations.from_frame(REPEATED, **COLUMNS, time="c", duplicates="error")


def test_a_fit_reads_its_table_again_as_it_was_read(tmp_path, capsys):
    random = np.random.default_rng(1)
    lines = [f"{x:.4f};{y:.4f};{z:.1f}" for x, y, z in random.random((30, 3)) * (1, 1, 9)]
    lines += [lines[0], "0.5;0.5;-9999"]
    path = written(tmp_path, "\n".join(["x;y;z", *lines]))
    fit = tmp_path / "fit.json"
    options = ["--missing", "-9999", "--drop-missing", "--duplicates", "mean", "--decimal", "."]
    model = ["--fix", "smoothness=0.5", "--fix", "range=0.2", "--fix", "nugget=1"]
    command = ["fit", str(path), "--locations", "x,y", "--value", "z", *options, *model]
    assert main([*command, "--output", str(fit)]) == 0
    assert "warning" not in capsys.readouterr().err.lower()
    assert len(gx.Fit.load(fit).observations) == 30
    assert main([*command, "--duplicates", "some"]) == 2
    at = written(tmp_path, "x;y\n0,125;0.5\n0,250;0.5\n".replace(".", ","), "at.csv")
    capsys.readouterr()
    assert main(["predict", str(fit), str(at), "--decimal", ",", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["x"] for row in rows] == [0.125, 0.25]
    assert main(["predict", str(fit), str(at), "--decimal", "."]) == 2
    assert main(["predict", str(fit), "--grid", "5", "--decimal", "."]) == 2


def test_a_file_that_is_not_a_table_is_not_quoted(tmp_path):
    secret = written(tmp_path, "root:$6$hash:19000:0:99999\nbin:*:1\n", "shadow")
    with pytest.raises(gx.InvalidInput) as caught:
        gx.read_table(secret, **COLUMNS)
    assert "hash" not in str(caught.value)
    fit = gx.fit(gx.datasets.load("meuse"), gx.Matern(1, 200, 0.5, 0.1), fixed=("smoothness",))
    fit.save(tmp_path / "fit.json", embed=False)
    document = json.loads((tmp_path / "fit.json").read_text())
    del document["table"]["dataset"]
    # also where the file looks like a table
    secret.write_text("user,$6$hash,19000\nbin,1,2\n")
    document["table"]["path"] = str(secret)
    (tmp_path / "fit.json").write_text(json.dumps(document))
    with pytest.raises(gx.InvalidInput, match="the table has changed") as caught:
        gx.Fit.load(tmp_path / "fit.json")
    assert "hash" not in str(caught.value)


@pytest.mark.parametrize("number", ["1" + "0" * 400, "1e400", "NaN", "-Infinity", "1" + "0" * 5000])
def test_numbers_beyond_fp64_are_refused_in_json(tmp_path, number):
    path = written(tmp_path, f'{{"n": {number}}}', "fit.json")
    with pytest.raises(gx.InvalidInput, match="not a JSON file"):
        gx.Fit.load(path)


WRONG = (3, None, b"x", ["x"], 2.5, {"a": 1}, True, np.nan, "q", (), ("x", 3), np.array([1, 2]))


@pytest.mark.filterwarnings("ignore::geomxp.errors.GeomxpWarning")
@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_arguments_of_a_wrong_type_are_errors_of_geomxp(wrong):
    frame = pd.DataFrame(np.random.default_rng(0).random((5, 4)), columns=list("xyzc"))
    arrays = {"locations": frame[["x", "y"]].to_numpy(), "values": frame.z.to_numpy()}
    calls = [(gx.read_table, (wrong,), COLUMNS), (gx.Fit.load, (wrong,), {})]
    calls += [(gx.datasets.load, (wrong,), {}), (gx.datasets.path, (wrong,), {})]
    calls += [(gx.Observations.from_frame, (wrong,), COLUMNS)]
    options = ("locations", "values", "covariates", "formula", "metric", "drop_missing", "crs")
    for name in (*options, "time", "variable", "missing", "duplicates"):
        calls.append((gx.Observations.from_frame, (frame,), COLUMNS | {name: wrong}))
    names = ("covariates", "metric", "location_names", "value_name", "covariate_names", "levels")
    for name in (*arrays, *names, "crs", "length_unit", "time", "variable", "time_name"):
        calls.append((lambda **about: str(gx.Observations(**about)), (), arrays | {name: wrong}))
    for function, given, about in calls:
        with suppress(gx.GeomxpError):
            function(*given, **about)


def test_coordinates_whose_squares_overflow_are_refused():
    with pytest.raises(gx.InvalidInput, match=r"at most 1e\+150 in size.*Got 1e\+155 in row 2"):
        gx.Observations([[0, 0], [1e155, 0], [0, 1]], [1.0, 2.0, 3.0])


def test_degrees_and_minutes_are_not_numbers(tmp_path):
    path = written(tmp_path, "lon,lat,z\n5°30'E,50,1\n6,51,2\n")
    with pytest.raises(gx.InvalidInput, match="write degrees as decimal numbers"):
        gx.read_table(path, locations=("lon", "lat"), values="z")


def test_a_path_of_any_text_is_an_error_of_geomxp():
    for path in ("\0", "a" * 5000):
        with pytest.raises(gx.InvalidInput):
            tables.read_data(path)
