"""The likelihood of responses as searches see it, and the exact one of censored values."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import geomxp as gx
from geomxp import responses
from geomxp.likelihood.censored import log_probability
from geomxp.likelihood.evaluators import evaluator_for

N = 90
CENSORED = json.loads(
    (Path(__file__).parents[1] / "references" / "censored.json").read_text(encoding="utf-8")
)


@pytest.fixture(scope="module")
def places():
    return np.random.default_rng(3).random((N, 2))


def data(places, response):
    random = np.random.default_rng(4)
    f = gx.simulate(gx.Matern(0.8, 0.2, 0.5), places, seed=2)[0]
    drawn = response.draw(responses.Data(np.zeros(N)), 0.5 + f, random)
    return gx.Observations(places, drawn)


CASES = [
    responses.Poisson(),
    responses.NegativeBinomial(2.0),
    responses.Bernoulli("probit"),
    responses.Gamma(2.0),
    responses.Tweedie(1.0, 1.5),
    responses.StudentT(0.4, 5.0),
]


@pytest.mark.parametrize("method", [gx.Exact(), gx.Vecchia(12)], ids=["dense", "vecchia"])
@pytest.mark.parametrize("response", CASES, ids=lambda one: one.name)
def test_the_score_and_the_information_are_those_of_differences(places, response, method):
    model = gx.Matern(0.7, 0.2, 0.5, 0.05, response=response)
    design = np.column_stack((np.ones(N), places[:, 0]))
    evaluator = evaluator_for(model, method, data(places, response), design)
    names = tuple(name for name in model.parameters() if name != "smoothness")
    found = evaluator.derivatives(model, names, curvature=True)
    plain = {}
    for name in names:
        step = 1e-4 * model.parameters()[name]
        ends = [
            evaluator(model.replace(**{name: model.parameters()[name] + side * step}))
            for side in (1, -1)
        ]
        plain[name] = (ends[0].log_likelihood - ends[1].log_likelihood) / (2 * step)
    score = found.gradient(names)
    for name in names:
        assert score[name] == pytest.approx(plain[name], rel=1e-4, abs=1e-4)
    # minus the Hessian of ℓ with the coefficients profiled out
    step = 1e-3 * model.variance
    ends = [
        evaluator.gradient(model.replace(variance=model.variance + side * step), names)
        for side in (1, -1)
    ]
    row = [-(ends[0][name] - ends[1][name]) / (2 * step) for name in names]
    np.testing.assert_allclose(found.observed[names.index("variance")], row, rtol=2e-3, atol=2e-3)
    information = found.information
    assert (np.linalg.eigvalsh(information) > -1e-8).all()


@pytest.mark.parametrize("method", [gx.Exact(), gx.Vecchia(N - 1)], ids=["dense", "vecchia"])
def test_working_values_have_the_mode_of_the_field(places, method):
    response = responses.Poisson()
    model = gx.Matern(0.7, 0.2, 0.5, 0.05, response=response)
    evaluator = evaluator_for(model, method, data(places, response), np.ones((N, 1)))
    beta = evaluator(model).coefficients
    z, variances = evaluator.working(model, beta)
    mode = evaluator.mode(model)
    field = gx.Matern(0.7, 0.2, 0.5)
    k = field(places, places) + 0.05 * np.eye(N)
    kriged = k @ np.linalg.solve(k + np.diag(variances), z - beta[0])
    np.testing.assert_allclose(kriged, mode.eta, atol=1e-8)


def test_the_reported_value_is_that_of_the_whole_determinant(places):
    response = responses.Bernoulli()
    model = gx.Matern(2.0, 0.5, 0.5, response=response)
    seen = data(places, response)
    few = evaluator_for(model, gx.Vecchia(6), seen, np.ones((N, 1)))
    search, reported = few(model), few.reported(model)
    assert reported.error == 0.0
    laplace = few.laplace.mode(replace(model, response=None), response, search.coefficients)
    change, _ = laplace.correction()
    assert reported.log_likelihood == pytest.approx(search.log_likelihood + change, abs=1e-9)
    form, determinant = reported.quadratic_form, reported.log_determinant
    eta = search.coefficients[0] + laplace.eta
    density = response.log_density(responses.Data(seen.values), eta).sum()
    assert density - 0.5 * (form + determinant) == pytest.approx(reported.log_likelihood, abs=1e-8)


# The exact likelihood of censored values


def test_probabilities_of_independent_values_are_products():
    lower, upper = np.array([-np.inf, 0.2, -1.0, 5.0]), np.array([0.5, np.inf, 2.0, 6.0])
    variances = np.array([1.0, 2.0, 0.5, 3.0])
    sd = np.sqrt(variances)
    known = np.log(stats.norm.cdf(upper / sd) - stats.norm.cdf(lower / sd)).sum()
    found, error = log_probability(lower, upper, np.diag(variances))
    assert found == pytest.approx(known, abs=1e-10)
    assert error < 1e-9


def test_orthants_have_their_probabilities():
    for k in (2, 3, 6):
        matrix = np.full((k, k), 0.5) + 0.5 * np.eye(k)
        found, error = log_probability(np.zeros(k), np.full(k, np.inf), matrix, 1 << 12)
        # of equal correlations of ½ it is 1/(k + 1)
        assert found == pytest.approx(-np.log(k + 1), abs=max(5 * error, 1e-8))
        assert error < 1e-4


def censored(kind):
    columns = CENSORED["columns"]
    lower, upper = (
        np.array([np.inf * (-1 if x == "-inf" else 1) if isinstance(x, str) else x for x in ends])
        for ends in (columns[f"{kind}_lower"], columns[f"{kind}_upper"])
    )
    values = np.where(np.isinf(lower), upper, np.where(np.isinf(upper), lower, 0.0))
    both = np.isfinite(lower) & np.isfinite(upper)
    values[both] = (lower[both] + upper[both]) / 2
    places = np.column_stack((columns["e"], columns["n"]))
    seen = gx.Observations(places, values, lower=lower, upper=upper)
    return seen, np.column_stack((np.ones(len(values)), columns["x"]))


@pytest.mark.parametrize("case", CENSORED["cases"], ids=lambda case: case["kind"])
def test_censored_values_have_the_likelihood_of_three_other_programs(case):
    seen, design = censored(case["kind"])
    model = gx.Matern(0.9, 2.2, 0.5, response=responses.Censored(0.2, "exact"))
    evaluator = evaluator_for(model, gx.Exact(), seen, design)
    evaluator._points = 1 << 14
    found = evaluator.at(model, [0.9, 0.5])
    assert found.log_likelihood == pytest.approx(case["value"], abs=case["error"] + 6 * found.error)
    assert found.error < 1e-5
    plain = gx.Matern(0.9, 2.2, 0.5, response=responses.Censored(0.2))
    laplace = evaluator_for(plain, gx.Exact(), seen, design).at(plain, [0.9, 0.5])
    # what Laplace's approximation misses
    assert abs(laplace.log_likelihood - case["value"]) < 0.5


@pytest.mark.slow
def test_an_exact_fit_of_censored_values_is_at_a_maximum():
    seen, _ = censored("right")
    held = {"smoothness": 0.5, "range": 2.0}
    fit = gx.fit(seen, response=responses.Censored(0.2, "exact"), fixed=held)
    assert fit.outcome.good
    for factor in (0.9, 1.1):
        moved = fit.model.replace(variance=factor * fit.model.variance)
        near = gx.log_likelihood(seen, moved, trend="constant")
        assert near.log_likelihood < fit.log_likelihood


def test_an_exact_likelihood_of_many_censored_values_is_refused():
    n = 400
    random = np.random.default_rng(1)
    values = random.standard_normal(n)
    lower = np.where(np.arange(n) < 300, -np.inf, values)
    seen = gx.Observations(random.random((n, 2)), values, lower=lower, upper=values)
    with pytest.raises(gx.InvalidInput, match=r"up to 100 censored values\. Got 300"):
        gx.fit(seen, response=responses.Censored(0.2, "exact"))
    with pytest.raises(gx.InvalidInput, match="`integral` must be one of"):
        responses.Censored(0.2, "monte-carlo")
