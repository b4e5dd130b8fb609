"""Reports of fits with responses: sentences that hold, units, charts, and code that runs."""

import html
import re

import numpy as np
import pandas as pd
import pytest
from reports import in_no_time

import geomxp as gx
from geomxp.reporting.findings import Findings
from geomxp.reporting.maps import Maps
from geomxp.reporting.report import cautions, report_html
from geomxp.reporting.sources import python_lines, response_text

N = 80
LOCATIONS = np.random.default_rng(0).random((N, 2))
FIELD = gx.Matern(0.8, 0.3, 0.5)
TRIALS = np.resize([3.0, 8.0], N)
EXPOSURE = np.resize([0.5, 2.0, 4.0], N)


def fitted(name, transform=None, response=None):
    """Return a fit of a response at given parameters."""
    random = np.random.default_rng(1)
    eta = gx.simulate(FIELD, LOCATIONS, seed=1)[0]
    share, columns = 1 / (1 + np.exp(-eta)), {}
    if name == "poisson":
        values, columns = random.poisson(EXPOSURE * np.exp(eta)), {"exposure": EXPOSURE}
    elif name == "bernoulli":
        values = random.random(N) < share
    elif name == "binomial":
        values, columns = random.binomial(TRIALS.astype(int), share), {"trials": TRIALS}
    elif name == "gamma":
        values = random.gamma(4.0, np.exp(eta) / 4)
    else:
        exact = np.exp(eta + 0.1 * random.standard_normal(N))
        limit = np.quantile(exact, 0.2)
        values = np.maximum(exact, limit)
        columns = {"lower": np.where(exact < limit, -np.inf, exact), "upper": values}
    seen = gx.Observations(LOCATIONS, values, value_name="caught", **columns)
    model = gx.Matern(0.8, 0.3, 0.5, 0.05, response=response or name, transform=transform)
    return gx.fit(seen, model, fixed=tuple(model.parameters()), progress=False)


CASES = {
    "poisson": ("poisson",),
    "bernoulli": ("bernoulli",),
    "binomial": ("binomial",),
    "gamma": ("gamma",),
    "censored": ("censored",),
    "log": ("censored", "log"),
}


@pytest.fixture(scope="module")
def fits():
    return {name: fitted(*case) for name, case in CASES.items()}


def text_of(fit, level):
    """Return the words of a report, with the descriptions of its pictures."""
    with in_no_time():
        page = report_html(fit, level=level)
    page = re.sub(r"<(style|script).*?</\1>", "", page, flags=re.DOTALL)
    page = re.sub(r'<svg[^>]*aria-label="([^"]*)".*?</svg>', r" \1 ", page, flags=re.DOTALL)
    text = html.unescape(re.sub(r"<[^>]+>", " ", page)).replace("\N{NO-BREAK SPACE}", " ")
    return " ".join(text.split())


@pytest.fixture(scope="module")
def texts(fits):
    return {
        (name, level): text_of(fit, level)
        for name, fit in fits.items()
        for level in ("quick", "full")
    }


@pytest.mark.slow
@pytest.mark.parametrize("level", ["quick", "full"])
@pytest.mark.parametrize("name", CASES)
def test_no_sentence_is_of_another_distribution(texts, name, level):
    text = texts[name, level]
    assert "The observations are a trend plus" not in text
    assert "The same model in other packages" not in text
    assert "link of" not in text
    assert "Gaussian scale" not in text
    assert "Standardised" not in text
    assert "divided by the standard deviation of that prediction" not in text
    assert "Laplace’s approximation, with dense matrices" in text
    assert f"response {CASES[name][0]} (" in text
    if name not in ("censored", "log"):
        assert "Kriging mean" not in text
        assert "back-transformed" not in text


@pytest.mark.slow
def test_parameters_have_units_only_on_the_scale_of_the_values(texts):
    for name in ("poisson", "bernoulli", "binomial", "gamma"):
        assert "squared units" not in texts[name, "full"]
        assert "on the scale of the link: they have no unit" in texts[name, "full"]
    assert "squared units of caught" in texts["censored", "full"]
    assert "squared units of log of caught" in texts["log", "full"]
    assert "are on the scale of log of caught" in texts["log", "full"]


@pytest.mark.slow
def test_each_response_has_the_charts_that_say_something_about_it(texts):
    charts = "Rootogram ", "Calibration of probabilities ", "Coverage of intervals ", "Normal quant"
    expected = {
        "poisson": (1, 1, 0, 1),
        "bernoulli": (0, 1, 0, 0),
        "binomial": (1, 1, 0, 1),
        "gamma": (0, 0, 1, 1),
        "censored": (0, 0, 1, 1),
    }
    for name, known in expected.items():
        found = tuple(int(chart in texts[name, "full"]) for chart in charts)
        assert found == known, name
    assert "Calibration of probabilities " in texts["bernoulli", "quick"]
    assert "Errors against predictions" not in texts["bernoulli", "full"]


@pytest.mark.slow
def test_binary_values_have_a_brier_score_and_no_intervals(texts, fits):
    text = texts["bernoulli", "full"]
    brier = gx.leave_one_out(fits["bernoulli"]).scores()["brier"]
    assert f"(the Brier score) is {brier:.3g}" in text
    spread = fits["bernoulli"].observations.values.var()
    assert f"it is {spread:.3g} if each is predicted with the share of ones" in text
    assert "95 % prediction intervals" not in text
    assert "interval score" not in text


@pytest.mark.slow
def test_maps_say_what_they_show(texts):
    assert "Mean of caught given the field, for an exposure of 1" in texts["poisson", "full"]
    assert "Probability of 1, without the nugget’s noise" in texts["bernoulli", "full"]
    assert "Probability of a success" in texts["binomial", "full"]
    assert "share of caught where it was observed" in texts["binomial", "full"]
    assert "Mean of caught given the field" in texts["gamma", "full"]
    assert "Kriging mean of the field" in texts["censored", "full"]
    assert "Median of the back-transformed field" in texts["log", "full"]
    assert "Censored values are drawn at a limit" in texts["log", "full"]


def test_observations_and_predictions_of_a_map_have_one_unit(fits):
    for name, divisor in (("binomial", TRIALS), ("poisson", EXPOSURE), ("gamma", 1.0)):
        fit = fits[name]
        raster = gx.predict_raster(fit, cells=6, progress=False)
        maps = Maps(fit, None, raster)
        values = fit.observations.values / divisor
        np.testing.assert_allclose(maps.shown.values, values, rtol=1e-15)
        first, second, _ = maps.all()
        assert (first.scale.low, first.scale.high) == (values.min(), values.max())
        assert (second.scale.low, second.scale.high) == (values.min(), values.max())
        columns = dict(maps.numbers()["places"]["columns"])
        np.testing.assert_allclose(columns["caught"], fit.observations.values, rtol=1e-4)


def test_intervals_of_counts_are_not_called_too_wide(fits):
    for name in ("bernoulli", "binomial"):
        findings = Findings(fits[name])
        findings.validation = gx.leave_one_out(fits[name])
        assert findings.validation.scores()["coverage"] > 0.97
        assert not any("too wide" in said for said in cautions(findings))


def test_the_code_names_the_response_its_link_and_its_settings():
    for response, expected in (
        (gx.responses.Poisson(), "'poisson'"),
        (gx.responses.Gamma(7.0), "'gamma'"),
        (gx.responses.Binomial(link="cloglog"), "gx.responses.Binomial(link='cloglog')"),
        (gx.responses.Censored(integral="exact"), "gx.responses.Censored(integral='exact')"),
    ):
        assert repr(response_text(response)) == expected


@pytest.mark.parametrize("kind", ["poisson", "binomial", "probit", "log"])
def test_the_code_of_a_report_makes_the_fit_again(tmp_path, monkeypatch, kind, fits):
    if kind == "probit":
        fit = fitted("bernoulli", response=gx.responses.Bernoulli(link="probit"))
    else:
        fit = fits[kind]
    seen, read = fit.observations, {"values": "caught"}
    caught = [repr(value) for value in seen.values.tolist()]
    if seen.censored is not None:
        caught = ["<" * bool(low) + one for low, one in zip(seen.censored, caught, strict=True)]
    frame = pd.DataFrame({"x": LOCATIONS[:, 0], "y": LOCATIONS[:, 1], "caught": caught})
    for name in ("trials", "exposure"):
        if getattr(seen, name) is not None:
            read[name], frame[name] = name, getattr(seen, name)
    frame.to_csv(tmp_path / "w.csv", index=False)
    monkeypatch.chdir(tmp_path)
    held, response = fit.model.parameters(), fit.model.response
    seen = gx.read_table("w.csv", locations=("x", "y"), **read)
    options = {"transform": fit.model.transform.name} if kind == "log" else {}
    found = gx.fit(seen, response=response, fixed=held, **options)
    space = {}
    exec(python_lines(found).replace("print(fit)", ""), space)
    again = space["fit"]
    assert again.model.response == found.model.response
    assert again.log_likelihood == pytest.approx(found.log_likelihood, abs=1e-6)
