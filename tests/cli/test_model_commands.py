"""Formulas, intervals and comparisons of models on the command line."""

import json

import numpy as np
import pandas as pd
import pytest

import geomxp as gx

HELD = ["--fix", "smoothness=0.5"]
MODEL = ["--variance", "0.2", "--range", "200", "--smoothness", "0.5", "--nugget", "0.02"]


@pytest.fixture(scope="module")
def rocks(tmp_path_factory):
    random = np.random.default_rng(0)
    places = 1000 * random.random((60, 2))
    rock = random.choice(["clay", "lime", "sand"], 60)
    z = gx.simulate(gx.Matern(1, 100, 0.5, nugget=0.1), places, seed=1)[0] + 2 * (rock == "lime")
    frame = pd.DataFrame({"x": places[:, 0], "y": places[:, 1], "rock": rock, "z": z})
    path = tmp_path_factory.mktemp("rocks") / "rocks.csv"
    frame.to_csv(path, index=False)
    return path


def test_a_formula_reads_the_columns_that_it_names(run):
    status, out, err = run("fit", "meuse", *HELD, "--formula", "elev + poly(x, 2)", "--json")
    assert (status, err) == (0, "")
    document = json.loads(out)
    seen = gx.datasets.load("meuse", covariates=("elev",))
    expected = gx.fit(seen, fixed={"smoothness": 0.5}, trend="elev + poly(x, 2)")
    assert document["log_likelihood"] == expected.log_likelihood
    assert document["trend"]["kind"] == "formula"
    assert document["trend"]["formula"] == "elev + poly(x, 2)"
    assert document["trend"]["names"] == ["intercept", "elev", "poly(x, 2)[1]", "poly(x, 2)[2]"]


def test_the_log_likelihood_of_a_formula(run):
    status, out, _ = run("log-likelihood", "meuse", *MODEL, "--formula", "x + y", "--json")
    assert status == 0
    expected = gx.log_likelihood(
        gx.datasets.load("meuse"), gx.Matern(0.2, 200, 0.5, 0.02), trend="linear"
    )
    value = json.loads(out)["log_likelihood"]
    assert value == pytest.approx(expected.log_likelihood, rel=1e-13)


def test_predictions_take_the_columns_by_name(run, rocks, tmp_path):
    fit, output = tmp_path / "fit.json", tmp_path / "predictions.csv"
    columns = ["--locations", "x,y", "--value", "z"]
    status, out, _ = run("fit", rocks, *columns, *HELD, "--formula", "C(rock)", "--output", fit)
    assert status == 0
    assert "trend: C(rock)[T.lime]" in out
    places = tmp_path / "places.csv"
    pd.DataFrame({"rock": ["sand", "lime"], "y": [10.0, 20.0], "x": [5.0, 6.0]}).to_csv(
        places, index=False
    )
    status, _, err = run("predict", fit, places, "--output", output, "--quiet")
    assert (status, err) == (0, "")
    expected = gx.predict(gx.Fit.load(fit), [[5.0, 10.0], [6.0, 20.0]], {"rock": ["sand", "lime"]})
    np.testing.assert_array_equal(pd.read_csv(output)["mean"], expected.mean)
    status, out, _ = run("predict", fit, places, "--json")
    assert [row["rock"] for row in json.loads(out)["rows"]] == ["sand", "lime"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--formula", "elev", "--trend", "linear"], "only one of --trend and --formula"),
        (["--formula", "height"], "meuse.csv: no column 'height'. The columns are: x, y"),
        (["--formula", "elev +"], "misplaced"),
        (["--formula", "I(__import__('os'))"], "no function '__import__'"),
        (["--intervals", "both"], "--intervals must be wald or profile. Got 'both'"),
        (["--intervals", "wald", "--level", "95"], "`level` must lie between 0 and 1"),
    ],
)
def test_wrong_options_of_a_fit_are_one_line(run, arguments, words):
    status, out, err = run("fit", "meuse", *HELD, *arguments)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert words in err


@pytest.mark.slow
@pytest.mark.parametrize("method", ["wald", "profile"])
def test_intervals_are_those_of_the_fit(run, method):
    status, out, err = run("fit", "meuse", *HELD, "--intervals", method, "--level", "0.9", "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)["intervals"]
    assert (found["method"], found["level"]) == (method, 0.9)
    fit = gx.fit(gx.datasets.load("meuse"), fixed={"smoothness": 0.5})
    expected = fit.confidence_intervals(0.9, method)
    assert found["parameters"] == {name: list(pair) for name, pair in expected.items()}
    out = run("fit", "meuse", *HELD, "--intervals", method, "--level", "0.9")[1]
    assert "90 % confidence intervals" in out


def test_a_fit_of_nothing_has_no_intervals_and_says_so(run):
    fixed = [f"--fix={name}" for name in ("variance=1", "range=200", "nugget=0.1")]
    status, out, err = run("fit", "meuse", *HELD, *fixed, "--intervals", "wald", "--json")
    assert status == 0
    assert json.loads(out)["intervals"] is None
    assert err == "warning: no intervals: no parameter was estimated.\n"


@pytest.mark.slow
def test_models_are_compared(run, tmp_path):
    output = tmp_path / "models.csv"
    status, out, err = run(
        *("compare-models", "meuse", "--smoothness", "0.5,1.5", "--nugget", "0,free"),
        *("--trends", "constant", "--formulas", "elev; elev + sqrt_dist", "--output", output),
    )
    assert status == 0
    assert "12 models by maximum likelihood, 155 locations" in out
    # progress is for terminals
    assert err == ""
    frame = pd.read_csv(output)
    assert frame["trend"][0] == "elev + sqrt_dist"
    assert frame["delta"].is_monotonic_increasing
    assert frame["weight"].sum() == pytest.approx(1.0)


def test_a_comparison_prints_json_and_nothing_else(run):
    status, out, _ = run(
        *("compare-models", "meuse", "--smoothness", "1.5", "--anisotropy", "no,yes", "--json"),
        *("--criterion", "bic"),
    )
    assert status == 0
    document = json.loads(out)
    assert document["criterion"] == "bic"
    # two parameters for 3.8 of log-likelihood: too dear at log 155 each
    assert [row["anisotropic"] for row in document["rows"]] == ["no", "yes"]
    expected = gx.compare_models(
        gx.datasets.load("meuse"), smoothness=(1.5,), anisotropy=(False, True), criterion="bic"
    )
    assert document["rows"][0]["bic"] == expected.best.bic


def test_a_comparison_is_printed_before_it_is_written(run, tmp_path, monkeypatch):
    def full(*_):
        raise gx.GeomxpError("m.csv: cannot be written (No space left on device).")

    monkeypatch.setattr("geomxp.data.tables.write_frame", full)
    status, out, err = run(
        *("compare-models", "meuse", "--smoothness", "0.5", "--output", tmp_path / "m.csv")
    )
    assert (status, err.count("\n")) == (1, 1)
    assert "1 models by maximum likelihood" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--smoothness", "half"], "'half' is not a number"),
        (["--smoothness", ""], "`smoothness` must be a sequence"),
        (["--anisotropy", "maybe"], "--anisotropy must be no, yes or no,yes. Got 'maybe'"),
        (["--trends", "constant,linear", "--reml"], "restricted likelihoods of different trends"),
        (["--criterion", "dic"], "`criterion` must be one of"),
        (["--trends", "constant,elev"], "Got 'elev'. Write formulas as --formulas \"A; B\"."),
        (["--trends", "poly(x, 2)"], 'Write formulas as --formulas "A; B".'),
        (["--trends", "constent"], "Got 'constent'. Did you mean 'constant'?"),
        (["--formulas", "height"], "no column 'height'"),
        (["--method", "exact", "--neighbours", "10"], "--neighbours needs --method vecchia"),
    ],
)
def test_wrong_options_of_a_comparison_are_one_line(run, arguments, words):
    status, out, err = run("compare-models", "meuse", *arguments)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert words in err


COLUMNS = ("--locations", "x,y", "--value", "z")


def test_a_comparison_of_failures_has_status_1(run, tmp_path):
    table = tmp_path / "twins.csv"
    rows = [(0, 0, 1), (0, 0, 1), (1, 0, 0.5), (0, 1, 3), (2, 1, 1.5), (1, 2, 0), (3, 1, 2)]
    table.write_text("x,y,z\n" + "\n".join("{},{},{}".format(*row) for row in rows))
    status, out, err = run("compare-models", table, *COLUMNS, "--smoothness", "0.5")
    assert (status, out) == (1, "")
    assert "no model could be fitted; the first one: NO_FINITE_MAXIMUM" in err.splitlines()[-1]


@pytest.mark.slow
def test_two_saved_fits_are_compared_by_their_likelihood_ratio(run, tmp_path):
    fits = {}
    for name, held in (("none", ("--fix", "nugget=0")), ("free", ())):
        fits[name] = tmp_path / f"{name}.json"
        assert run("fit", "meuse", *HELD, *held, "--output", fits[name])[0] == 0
    loaded = [gx.Fit.load(path) for path in fits.values()]
    status, out, err = run("likelihood-ratio", *fits.values())
    assert (status, err) == (0, "")
    assert out.strip() == str(gx.likelihood_ratio_test(*loaded))
    draws = tmp_path / "draws.json"
    words = ("likelihood-ratio", *fits.values(), "--bootstrap", "2", "--checkpoint", draws)
    status, out, err = run(*words, "--seed", "4", "--json")
    assert (status, err) == (0, "")
    result = json.loads(out)
    assert result["draws"] == list(gx.likelihood_ratio_test(*loaded, bootstrap=2, seed=4).draws)
    assert json.loads(draws.read_text())["statistics"] == result["draws"]
    status, out, err = run(*words)
    assert (status, out) == (2, "")
    assert "a checkpoint of another test (fits or seed differ)" in err
    status, out, err = run("likelihood-ratio", *reversed(fits.values()))
    assert (status, out) == (2, "")
    assert "not nested" in err
