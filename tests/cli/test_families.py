"""Covariance families on the command line, and in reports."""

import json
import re

import numpy as np
import pytest

import geomxp as gx
from geomxp.cli.main import main
from geomxp.covariance.base import FAMILIES
from geomxp.reporting.report import report_html

ISOTROPIC = [name for name, family in FAMILIES.items() if not family.uses]
GIVEN = ["--variance", "0.6", "--range", "500", "--nugget", "0.06"]
SHAPES = {
    "matern": ["--smoothness", "0.5"],
    "powered-exponential": ["--parameter", "power=1.5"],
    "cauchy": ["--parameter", "power=1", "--parameter", "decay=2"],
    "rational-quadratic": ["--parameter", "shape=2"],
    "wendland": ["--smoothness", "0.5", "--parameter", "shape=3.5"],
}


@pytest.fixture
def run(capsys):
    def run(*arguments):
        status = main(list(arguments))
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.mark.parametrize("family", ISOTROPIC)
def test_each_family_has_a_log_likelihood(run, family):
    words = ["log-likelihood", "meuse", "--family", family, *GIVEN, *SHAPES.get(family, [])]
    status, out, err = run(*words, "--json")
    assert (status, err) == (0, "")
    shapes = [word for word in SHAPES.get(family, []) if "=" in word]
    values = {name: float(value) for name, value in (word.split("=") for word in shapes)}
    if "--smoothness" in words:
        values["smoothness"] = 0.5
    model = FAMILIES[family](variance=0.6, range=500.0, nugget=0.06, **values)
    expected = gx.log_likelihood(gx.datasets.load("meuse"), model).log_likelihood
    assert json.loads(out)["log_likelihood"] == expected


@pytest.mark.slow
def test_a_family_is_fitted_predicted_from_and_drawn(run, tmp_path):
    path = str(tmp_path / "fit.json")
    words = ["fit", "jura", "--family", "powered-exponential", "--fix", "power=1.0"]
    assert run(*words, "--start", "range=0.3", "--output", path)[0] == 0
    fitted = gx.Fit.load(path)
    assert fitted.model.family == "powered-exponential"
    assert fitted.model.parameters()["power"] == 1.0
    # with power 1 it is the exponential model, as Matérn's with smoothness 0.5
    matern = gx.fit(gx.datasets.load("jura"), fixed={"smoothness": 0.5}, progress=False)
    assert fitted.log_likelihood == pytest.approx(matern.log_likelihood, abs=1e-5)
    assert run("predict", path, "jura_validation", "--json")[0] == 0
    assert run("simulate", "--fit", path, "--at", "jura_validation", "--json")[0] == 0
    words = ["--variance", "1", "--range", "0.1", "--family", "gaussian", "--nugget", "0.1"]
    assert run("simulate", "--n", "9", *words)[0] == 0
    assert run("compare", "--n", "60", *words, "--tile", "20", "--accuracies", "1e-3")[0] == 0


@pytest.mark.slow
def test_families_are_compared(run):
    words = ["compare-models", "meuse", "--family", "matern,spherical", "--smoothness", "0.5"]
    status, out, _ = run(*words)
    assert status == 0
    assert re.search(r"spherical +constant", out)
    assert re.search(r"matern +constant", out)


def test_a_range_for_each_axis_is_compared(run):
    words = ["compare-models", "meuse", "--smoothness", "0.5", "--axis-ranges", "no,yes"]
    status, out, _ = run(*words, "--json")
    assert status == 0
    assert {row["anisotropic"] for row in json.loads(out)["rows"]} == {"no", "axes"}


@pytest.mark.slow
def test_nugget_covariances_are_compared(run):
    about = ["--value", "Cd,Ni", "--locations", "x,y", "--family", "independent"]
    words = ["compare-models", "jura_validation", *about, "--smoothness", "0.5"]
    status, out, _ = run(*words, "--nugget-covariance", "no,yes", "--json")
    assert status == 0
    rows = json.loads(out)["rows"]
    assert {row["nugget_covariance"] for row in rows} == {"no", "yes"}
    assert sorted(row["parameters"] for row in rows) == [8, 9]
    assert run(*words, "--nugget-covariance", "maybe")[0] != 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--family", "gausian"], "Got 'gausian'. Did you mean 'gaussian'?"),
        (["--family", "seperable-spherical"], "Did you mean 'separable-spherical'?"),
        (["--family", "gneiting-parsimonius-matern"], "mean 'gneiting-parsimonious-matern'?"),
        (["--family", "cauchy"], "--parameter power=VALUE and --parameter decay=VALUE must be"),
        (["--family", "gaussian", "--smoothness", "1"], "gaussian model has no parameter 'smooth"),
        (["--parameter", "power=1"], "a matern model has no parameter 'power'; it has variance"),
        (["--parameter", "power"], "--parameter needs name=value. Got 'power'."),
    ],
)
def test_wrong_parameters_of_a_family_are_one_line(run, words, message):
    status, out, err = run("log-likelihood", "meuse", *GIVEN, *words)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_reports_name_the_family_and_its_formula(family):
    random = np.random.default_rng(0)
    kind, about = FAMILIES[family], {}
    if "time" in kind.uses:
        about["time"] = random.random(40)
    elif kind.uses:
        about["variable"] = np.arange(40) % 2
    seen = gx.Observations(random.random((40, 2)), random.standard_normal(40), **about)
    values = {p.name: p.value or 0.1 for p in kind.declared_for(2)}
    values |= {name: 0.3 for name in values if name.startswith("range")}
    model = kind.from_parameters(values)
    fit = gx.fit(seen, model, fixed=tuple(model.parameters()))
    page = report_html(fit, level="quick", budget=0.0)
    title = re.search("<title>(.*) model of va(?:lue|riable 0 and variable 1)</title>", page)[1]
    title = title.lower().replace("é", "e").replace("-", " ")
    assert set(family.split("-")) <= set(title.split())
    formula = re.search('<p class="formula">(.*?)</p>', page, re.DOTALL)[1]
    if "variable" in kind.uses:
        assert formula.startswith("<i>C</i><sub>")
        return
    lags = "<i>h</i>, <i>u</i>" if kind.uses else "<i>h</i>"
    assert formula.startswith(f"<i>C</i>({lags}) = σ²")
    assert ("Γ" in formula) == (family == "matern")


def test_a_model_of_the_command_line_may_be_anisotropic(run):
    words = ["simulate", "--n", "2", "--variance", "1", "--range", "0.3", "--smoothness", "0.5"]
    plain = run(*words)
    turned = run(*words, "--parameter", "axis_ratio_2=3")
    assert (plain[0], turned[0]) == (0, 0)
    assert plain[1] != turned[1]
