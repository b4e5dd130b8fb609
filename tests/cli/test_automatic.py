"""The method that the command line chooses, and the line that says so."""

import json

import numpy as np
import pytest

import geomxp as gx

HELD = ["--fix", "smoothness=0.5"]


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A table of 6,100 locations."""
    locations = np.random.default_rng(0).random((6_100, 2))
    model = gx.Matern(1.0, 0.1, 0.5, nugget=0.1)
    (values,) = gx.simulate(model, locations, method=gx.Vecchia(30), seed=0)
    path = tmp_path_factory.mktemp("many") / "many.csv"
    rows = np.column_stack((locations, values))
    np.savetxt(path, rows, delimiter=",", header="x,y,z", comments="")
    return path


def method_of(out):
    method = json.loads(out)["method"]
    return method["name"], method["neighbours"]


def test_few_locations_are_exact_without_a_word(run):
    for options in ([], ["--method", "auto"]):
        status, out, err = run("fit", "meuse", *HELD, *options, "--json")
        assert (status, err) == (0, "")
        assert method_of(out) == ("exact", None)


@pytest.mark.slow
def test_many_locations_are_vecchias_in_one_line(run, many):
    table = [many, "--locations", "x,y", "--value", "z"]
    held = [*HELD, "--fix", "range=0.1"]
    status, out, err = run("fit", *table, *held, "--json")
    assert status == 0
    assert method_of(out) == ("vecchia", 30)
    assert err.count("\n") == 1
    assert err.startswith(
        "geomxp: 6,100 locations: Vecchia's approximation with 30 neighbours (a fit: "
    )
    assert err.endswith(": --method exact.\n")
    chosen = run("fit", *table, *held, "--method", "vecchia", "--json")
    assert chosen[2] == ""
    assert json.loads(chosen[1])["model"] == json.loads(out)["model"]
    status, out, err = run("fit", *table, *held, "--quiet")
    assert (status, err) == (0, "")
    model = ["--variance", 1, "--range", 0.1, "--smoothness", 0.5, "--nugget", 0.1]
    status, out, err = run("log-likelihood", *table, *model, "--json")
    assert err.endswith(": --method exact.\n")
    status, named, _ = run("log-likelihood", *table, *model, "--method", "vecchia", "--json")
    assert json.loads(named)["log_likelihood"] == json.loads(out)["log_likelihood"]


@pytest.mark.slow
def test_exact_fits_that_take_a_while_are_announced_with_their_cost(run, monkeypatch):
    monkeypatch.setattr("geomxp.cli.options.ANNOUNCED_CHOICE_LOCATIONS", 1_000)
    status, out, err = run("fit", "rainfall", *HELD, "--json")
    assert status == 0
    assert method_of(out) == ("exact", None)
    line, *_ = err.splitlines()
    assert line.startswith("geomxp: 1,720 locations: the exact likelihood (a fit: ")
    assert line.endswith(": --method vecchia.")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--neighbours", "20"], ("vecchia", 20)),
        (["--accuracy", "1e-8"], ("exact", None)),
        (["--tile", "64"], ("exact", None)),
        (["--memory", "1GB", "--tile", "64"], ("exact", None)),
    ],
)
def test_an_option_of_one_method_decides(run, options, expected):
    status, out, err = run("fit", "meuse", *HELD, *options, "--json")
    assert status == 0
    assert method_of(out) == expected
    assert ("because of --neighbours (a fit: " in err) == (expected[0] == "vecchia")


def test_an_option_of_the_exact_method_decides_for_many_locations(run, monkeypatch):
    monkeypatch.setattr("geomxp.likelihood.automatic.MOST_EXACT_LOCATIONS", 1_000)
    monkeypatch.setattr("geomxp.cli.options.ANNOUNCED_CHOICE_LOCATIONS", 1_000)
    model = ["--variance", 1e5, "--range", 100, "--smoothness", 0.5, "--nugget", 1e4]
    status, out, err = run("log-likelihood", "rainfall", *model, "--layers", "fp32,fp64", "--json")
    assert status == 0
    assert json.loads(out)["formats"]["fp32"] > 0
    (line,) = err.splitlines()
    assert "1,720 locations: the exact likelihood because of --layers (a fit: " in line
    assert line.endswith(": --method vecchia without --layers.")


def test_options_of_both_methods_exclude_each_other(run):
    status, out, err = run("fit", "meuse", "--neighbours", 20, "--memory", "1GB")
    assert (status, out) == (2, "")
    assert "--neighbours is for --method vecchia, and --memory for --method exact" in err


@pytest.mark.slow
def test_comparisons_of_models_use_one_method(run):
    arguments = "compare-models", "meuse", "--smoothness", "0.5", "--json"

    def value(*options):
        status, out, err = run(*arguments, *options)
        assert status == 0
        (row,) = json.loads(out)["rows"]
        return row["log_likelihood"], err

    assert value() == value("--method", "exact")
    few, err = value("--neighbours", "5")
    assert "because of --neighbours" in err
    assert few == value("--method", "vecchia", "--neighbours", "5")[0] != value()[0]


@pytest.mark.slow
def test_a_very_smooth_model_of_many_locations_stays_exact(run, monkeypatch):
    monkeypatch.setattr("geomxp.likelihood.automatic.MOST_EXACT_LOCATIONS", 100)
    model = ["--variance", 1, "--range", 50, "--nugget", 0.5, "--smoothness", 60]
    exact = run("log-likelihood", "meuse", *model)
    assert exact == run("log-likelihood", "meuse", *model, "--method", "exact")
    status, out, _ = run("fit", "meuse", "--fix", "smoothness=60", "--json")
    assert status == 0
    assert method_of(out) == ("exact", None)
    status, out, _ = run("fit", "meuse", *HELD, "--json")
    assert method_of(out) == ("vecchia", 30)
