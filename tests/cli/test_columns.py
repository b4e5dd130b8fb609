"""Columns of a table: locations that need no option, and values that are a function of a column."""

import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import geomxp as gx
from geomxp.cli.main import main

HELD = ("--fix", "smoothness=0.5", "--fix", "range=200")


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*words):
        status = main(list(map(str, words)))
        return status, *capsys.readouterr()

    return run


def write(name, **renamed):
    pd.read_csv(gx.datasets.path("meuse")).rename(columns=renamed).to_csv(name, index=False)


@pytest.mark.slow
def test_locations_that_are_taken_are_said_in_one_line(run):
    write("wells.csv", x="Easting", y="Northing")
    words = ("fit", "wells.csv", "--value", "zinc", *HELD)
    status, _, err = run(*words)
    assert status == 0
    assert err == (
        "geomxp: wells.csv: columns Easting,Northing are the locations (others: --locations X,Y).\n"
    )
    status, named, err = run(*words, "--locations", "Easting,Northing", "--json")
    assert (status, err) == (0, "")
    status, _, err = run(*words, "--quiet")
    assert (status, err) == (0, "")
    status, taken, _ = run(*words, "--json")
    assert status == 0
    taken, named = json.loads(taken), json.loads(named)
    assert taken["table"] == named["table"]
    assert taken["log_likelihood"] == named["log_likelihood"]


@pytest.mark.parametrize("renamed", [{}, {"x": "rd_e", "y": "rd_n"}, {"x": "lon"}])
def test_the_command_of_the_error_works(run, renamed):
    write("wells.csv", **renamed)
    status, _, err = run("fit", "wells.csv", *HELD)
    assert status == 2
    assert err.count("\n") == 1
    words = shlex.split(err.partition("for example: ")[2].partition(". The columns")[0])
    assert words[0] == "geomxp"
    status, out, _ = run(*words[1:], "--json")
    assert status == 0
    assert json.loads(out)["table"]["value"] == "zinc"


def test_coordinates_that_are_ambiguous_are_an_error(run):
    write("wells.csv", lead="lon", copper="lat")
    status, _, err = run("fit", "wells.csv", "--value", "zinc", *HELD)
    assert status == 2
    assert err.count("\n") == 1
    assert "They may be x, y or lon, lat" in err
    assert "(--locations x,y)" in err


def test_a_saved_fit_of_a_function_reads_its_table_again(run):
    write("wells.csv")
    assert run("fit", "wells.csv", "--value", "log(zinc)", *HELD, "--output", "f.json")[0] == 0
    document = json.loads(Path("f.json").read_text())
    assert document["table"]["value"] == "log(zinc)"
    status, out, _ = run("predict", "f.json", "--grid", "4", "--json")
    assert status == 0
    fit = gx.Fit.load("f.json")
    np.testing.assert_array_equal(fit.observations.values, np.log(pd.read_csv("wells.csv").zinc))
    expected = gx.predict_raster(fit, cells=4).mean.ravel()
    assert [row["mean"] for row in json.loads(out)["rows"]] == expected.tolist()


def test_a_function_of_a_column_of_a_data_set(run):
    status, out, _ = run("fit", "meuse", "--value", "log(zinc)", *HELD, "--json")
    assert status == 0
    same = json.loads(run("fit", "meuse", *HELD, "--json")[1])
    assert json.loads(out)["log_likelihood"] == pytest.approx(same["log_likelihood"], abs=1e-6)


def test_simulate_takes_the_locations_of_a_table(run):
    write("wells.csv", x="longitude", y="latitude")
    frame = pd.read_csv("wells.csv")
    frame.assign(longitude=frame.longitude / 1e5, latitude=frame.latitude / 1e4).to_csv("ll.csv")
    model = ("--variance", "1", "--range", "20", "--smoothness", "0.5")
    named = run("simulate", "--at", "ll.csv", *model, "--locations", "longitude,latitude")
    assert named[0] == 0
    assert run("simulate", "--at", "ll.csv", *model) == named


@pytest.mark.slow
def test_the_unit_of_the_values_is_kept_in_the_fit_and_named_in_the_report(run):
    write("wells.csv")
    words = ("fit", "wells.csv", "--value", "zinc", "--unit", "mg/kg", *HELD)
    for more in ((), ("--no-embed",)):
        status, *_ = run(*words, "--output", "fit.json", *more)
        assert status == 0
        assert gx.Fit.load("fit.json").observations.value_unit == "mg/kg"
    status, *_ = run(*words, "--report", "fit.html", "--report-level", "quick")
    assert status == 0
    assert "zinc (mg/kg)" in Path("fit.html").read_text("utf-8")
    status, out, _ = run("explore", "wells.csv", "--value", "zinc", "--unit", "mg/kg")
    assert status == 0
    assert "--unit mg/kg" in out
    status, _, err = run(*words, "--report", "fit.html", "--report-level", "brief")
    assert status == 2
    assert "'brief'" in err


@pytest.mark.slow
def test_intervals_below_zero_of_positive_values_suggest_a_transformation(run):
    words = ("fit", "meuse", "--value", "zinc", "--fix", "smoothness=0.5")
    for more, said in (((), 1), (("--transform", "log"), 0)):
        assert run(*words, *more, "--output", "fit.json")[0] == 0
        for where in (("meuse",), ("--grid", "20")):
            status, _, err = run("predict", "fit.json", *where)
            assert status == 0
            assert err.count("--transform log") == said
            assert run("predict", "fit.json", *where, "--quiet")[2] == ""


@pytest.mark.slow
def test_a_table_of_places_gives_the_report_its_map_where_the_trend_needs_covariates(run):
    write("wells.csv")
    x, y = np.meshgrid(np.arange(179000.0, 180000, 100), np.arange(330000.0, 331500, 100))
    grid = pd.DataFrame({"x": x.ravel(), "y": y.ravel(), "elev": 8.0}).drop(index=[3, 20])
    grid.to_csv("grid.csv", index=False)
    words = ("fit", "wells.csv", "--value", "log_zinc", "--formula", "elev", *HELD)
    report = ("--report", "fit.html", "--report-level", "quick")
    assert run(*words, *report)[0] == 0
    assert "map-mean" not in Path("fit.html").read_text("utf-8")
    assert run(*words, *report, "--places", "grid.csv", "--output", "fit.json")[0] == 0
    page = Path("fit.html").read_text("utf-8")
    assert "map-mean" in page
    numbers = json.loads(page.partition('id="numbers">')[2].partition("</script>")[0])["cells"]
    assert numbers["shape"] == [15, 10]
    assert numbers["box"] == [178950.0, 179950.0, 329950.0, 331450.0]
    cells = np.array(numbers["columns"][0][1], dtype=float)
    assert np.flatnonzero(np.isnan(cells)).tolist() == [3, 20]
    expected = gx.predict(gx.Fit.load("fit.json"), grid).mean
    np.testing.assert_allclose(cells[~np.isnan(cells)], expected, rtol=1e-3)
    status, _, err = run(*words, "--places", "grid.csv")
    assert (status, "give --report" in err) == (2, True)
    grid.assign(x=grid.x + np.sqrt(grid.y)).to_csv("grid.csv", index=False)
    status, _, err = run(*words, *report, "--places", "grid.csv")
    assert status == 0
    assert "must be those of a regular grid" in Path("fit.html").read_text("utf-8")


def test_a_new_observation_has_the_error_of_a_column(run):
    table, fit = "table.csv", "fit.json"
    pd.read_csv(gx.datasets.path("meuse")).assign(se=0.5).to_csv(table, index=False)
    status, _, messages = run(
        "fit", table, "--value", "zinc", "--output", fit, *HELD, "--fix", "nugget=0.1"
    )
    assert status == 0, messages

    def noise(*options):
        status, out, messages = run("predict", fit, table, "--json", *options)
        assert status == 0, messages
        rows = json.loads(out)["rows"]
        return [row["variance_of_observation"] - row["variance"] for row in rows]

    np.testing.assert_allclose(noise(), 0.1, rtol=1e-5)
    np.testing.assert_allclose(noise("--error-variance", "0.25"), 0.35, rtol=1e-5)
    np.testing.assert_allclose(noise("--error-variance", "I(se ** 2)"), 0.35, rtol=1e-5)
    status, _, messages = run("predict", fit, "--grid", "5", "--error-variance", "1")
    assert status == 2
    assert "a table of LOCATIONS" in messages
