"""Replicates: sufficient statistics have the likelihood of all observations."""

from dataclasses import replace

import numpy as np
import pytest
import scipy
from scipy import stats

import geomxp as gx
from geomxp import testing
from geomxp.likelihood.base import by_differences
from geomxp.likelihood.exact import ExactEvaluator
from geomxp.likelihood.replicates import Groups, sufficient

MODEL = gx.Matern(1.7, 0.2, 0.8, 0.3, (30.0, 0.6))
NAMES = tuple(MODEL.parameters())
U, N = 40, 100
TILES = gx.Exact(tile=16)
REFINED = gx.Exact(gx.uniform("fp32"), tile=16, refine="cg")


def observations(errors=False, seed=0):
    """100 observations at 40 locations, in random order; some locations have only one."""
    random = np.random.default_rng(seed)
    of = random.permutation(np.r_[np.arange(U), random.integers(U // 2, size=N - U)])
    places = testing.places(U, seed=seed)
    values = 3.0 + places[of, 0] + random.standard_normal(U)[of] + 0.5 * random.standard_normal(N)
    errors = random.random(U)[of] * (of % 3 > 0) if errors else None
    return gx.Observations(places[of], values, error_variance=errors)


def linear(seen):
    return np.column_stack((np.ones(len(seen)), seen.locations))


def whole(seen, design, reml):
    """An evaluator of all observations, which does not reduce replicates."""
    return ExactEvaluator(seen, design, reml, gx.Exact())


@pytest.mark.parametrize("reml", [False, True])
@pytest.mark.parametrize("errors", [False, True])
@pytest.mark.parametrize("method", [gx.Exact(), TILES, REFINED, gx.Vecchia(U - 1)])
def test_evaluations_are_those_of_all_observations(method, errors, reml):
    seen = observations(errors)
    design = linear(seen)
    expected = whole(seen, design, reml)(MODEL)
    found = method.prepare(seen, design, reml)(MODEL)
    assert found.n == N
    allowed = 2e-6 if method is REFINED else 1e-11
    for name in ("log_likelihood", "log_determinant", "quadratic_form"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=allowed), name
    np.testing.assert_allclose(found.coefficients, expected.coefficients, rtol=1e-9)
    covariance = expected.coefficient_covariance
    np.testing.assert_allclose(found.coefficient_covariance, covariance, rtol=1e-9)


def test_one_matrix_of_the_locations_is_factored(monkeypatch):
    orders, factorize = [], ExactEvaluator.factorize

    def counted(self, *arguments):
        orders.append(len(self.observations))
        return factorize(self, *arguments)

    monkeypatch.setattr(ExactEvaluator, "factorize", counted)
    gx.log_likelihood(observations(), MODEL)
    assert orders == [U]


@pytest.mark.parametrize("reml", [False, True])
@pytest.mark.parametrize("errors", [False, True])
def test_scores_and_information_are_those_of_all_observations(errors, reml):
    seen = observations(errors)
    design = linear(seen)
    expected = whole(seen, design, reml).derivatives(MODEL, NAMES, curvature=True)
    found = gx.Exact().prepare(seen, design, reml).derivatives(MODEL, NAMES, curvature=True)
    for name in ("score", "quadratic", "trace", "information", "expected", "observed"):
        one, other = getattr(found, name), getattr(expected, name)
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-8 * np.abs(other).max())


@pytest.mark.parametrize("method", [gx.Exact(), TILES, gx.Vecchia(10)])
def test_scores_are_slopes_of_the_log_likelihood(method):
    seen = observations(errors=True)
    evaluator = method.prepare(seen, linear(seen), True)
    slopes, found = by_differences(evaluator, MODEL, NAMES), evaluator.gradient(MODEL)
    for name in NAMES:
        assert found[name] == pytest.approx(slopes[name], rel=1e-4, abs=1e-5), name


@pytest.mark.parametrize("method", [gx.Exact(), TILES, REFINED, gx.Vecchia(U - 1)])
def test_a_factor_is_that_of_all_observations(method):
    seen, random = observations(errors=True), np.random.default_rng(1)
    sigma = MODEL(seen.locations, seen.locations)
    sigma += np.diag(MODEL.nugget + seen.error_variance)
    inverse = np.linalg.inv(sigma)
    factor = method.prepare(seen).factorize(MODEL)
    a, b = random.standard_normal((2, N, 3))
    coarse = 1e-5 if method is REFINED else 1e-10
    np.testing.assert_allclose(factor.solve(a), inverse @ a, rtol=0, atol=1e-10)
    np.testing.assert_allclose(factor.solve(a[:, 0]), inverse @ a[:, 0], rtol=0, atol=1e-10)
    np.testing.assert_allclose(factor.inner(a), a.T @ inverse @ a, rtol=0, atol=1e-9)
    np.testing.assert_allclose(factor.inner(a, b), a.T @ inverse @ b, rtol=0, atol=1e-9)
    half = factor.half_solve(a)
    np.testing.assert_allclose(half.T @ half, a.T @ inverse @ a, rtol=0, atol=1e2 * coarse)
    squares, cross = factor.explained_by(b)(a)
    np.testing.assert_allclose(squares, np.diag(a.T @ inverse @ a), rtol=1e-10)
    np.testing.assert_allclose(cross, a.T @ inverse @ b, rtol=0, atol=1e-9)
    np.testing.assert_allclose(factor.inverse_diagonal(N), np.diag(inverse), rtol=coarse)
    if method is REFINED:
        np.testing.assert_allclose(factor.times(a), sigma @ a, rtol=0, atol=1e-10)
    determinant = np.linalg.slogdet(sigma)[1]
    assert factor.log_determinant() == pytest.approx(determinant, abs=coarse)
    root = factor.multiply(np.eye(N, order="F"))
    np.testing.assert_allclose(root @ root.T, sigma, rtol=0, atol=coarse)


@pytest.mark.gpu
def test_a_gpu_evaluates_replicates_as_the_cpu():
    seen = observations(errors=True)
    for method in (gx.Exact(), TILES, gx.Vecchia(20)):
        both = [replace(method, on=on).prepare(seen, linear(seen), True) for on in ("cpu", "gpu")]
        values = [one(MODEL).log_likelihood for one in both]
        assert values[1] == pytest.approx(values[0], rel=1e-10)
        one, other = (evaluator.derivatives(MODEL, NAMES).score for evaluator in both)
        np.testing.assert_allclose(other, one, rtol=1e-7)


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("trend", ["zero", "linear"])
@pytest.mark.parametrize("method", [gx.Exact(), TILES, REFINED])
def test_a_gpu_predicts_from_replicates_as_the_cpu(method, trend):
    seen, there = observations(), testing.places(7, seed=3)
    # locations of observations, too
    there[:2] = seen.locations[:2]
    # an estimate of the microscale would follow the rounding errors of FP32's determinant
    fixed = {**MODEL.parameters(), "microscale": 0.3}
    both = [
        gx.fit(seen, MODEL, replace(method, on=on), fixed=fixed, trend=trend)
        for on in ("cpu", "gpu")
    ]
    for of in (
        lambda fit: gx.predict(fit, there).mean,
        lambda fit: gx.predict(fit, there).variance,
        lambda fit: gx.prediction_covariance(fit, there),
        lambda fit: gx.leave_one_out(fit).mean,
        lambda fit: gx.simulate(fit, there, 2, seed=1),
    ):
        expected, found = (of(fit) for fit in both)
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


def test_rows_that_differ_in_noise_or_trend_are_no_replicates():
    places = np.zeros((4, 1))
    places[3] = 1.0
    errors = np.array([0.1, 0.1, 0.2, 0.1])
    inputs = gx.Inputs(places, error_variance=errors)
    assert Groups.of_inputs(inputs).of.tolist() == [0, 0, 1, 2]
    design = np.array([[1.0], [2.0], [1.0], [1.0]])
    assert Groups.of_inputs(gx.Inputs(places), design).of.tolist() == [0, 1, 0, 2]
    seen = gx.Observations(places[:, :1], np.arange(4.0), error_variance=errors)
    model = gx.Matern(1.7, 0.2, 0.8, 0.3)
    dense = model(seen.locations, seen.locations) + np.diag(0.3 + errors)
    expected = scipy.stats.multivariate_normal(np.zeros(4), dense).logpdf(seen.values)
    assert gx.log_likelihood(seen, model).log_likelihood == pytest.approx(expected, rel=1e-12)


def test_means_of_means_count_all_measurements():
    places = np.array([[0.0], [1.0], [0.0], [2.0]])
    seen = gx.Observations(places, [1.0, 2.0, 3.0, 4.0], replicates=[2, 5, 2, 1])
    means, _, _ = sufficient(seen)
    assert means.replicates.tolist() == [4.0, 5.0, 1.0]
    model = gx.Matern(1.7, 0.2, 0.8, 0.3)
    dense = model(places, places) + np.diag(0.3 / seen.replicates)
    expected = scipy.stats.multivariate_normal(np.zeros(4), dense).logpdf(seen.values)
    assert gx.log_likelihood(seen, model).log_likelihood == pytest.approx(expected, rel=1e-12)


def test_a_transformation_counts_all_observations():
    seen = observations()
    positive, model = replace(seen, values=np.exp(seen.values / 4)), replace(MODEL, transform="log")
    found = gx.log_likelihood(positive, model)
    expected = whole(positive, None, False)(model)
    assert found.log_likelihood == pytest.approx(expected.log_likelihood, rel=1e-11)


@pytest.mark.parametrize("errors", [False, True])
def test_the_information_of_a_transformation_is_that_of_all_observations(errors):
    seen = observations(errors)
    positive = replace(seen, values=np.exp(seen.values / 4))
    model = replace(MODEL, transform=gx.BoxCox(0.3))
    names = ("nugget", "boxcox_power", "variance")
    found = gx.Exact().prepare(positive).derivatives(model, names, curvature=True)
    expected = whole(positive, None, False).derivatives(model, names, curvature=True)
    for name in ("score", "observed"):
        one, other = getattr(found, name), getattr(expected, name)
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-8 * np.abs(other).max())


def test_replicates_need_a_nugget():
    seen = observations()
    with pytest.raises(gx.NotPositiveDefinite, match="are at the same location"):
        gx.log_likelihood(seen, MODEL.replace(nugget=0.0))
    evaluator = gx.Exact().prepare(seen)
    assert evaluator(MODEL.replace(nugget=0.0)).log_likelihood == -np.inf
    known = observations(errors=True)
    known = replace(known, error_variance=known.error_variance + 0.1)
    bare = MODEL.replace(nugget=0.0)
    expected = whole(known, None, False)(bare).log_likelihood
    assert gx.log_likelihood(known, bare).log_likelihood == pytest.approx(expected, rel=1e-11)


def test_the_divergence_of_replicates_is_that_of_their_means():
    seen = observations()
    found = gx.kl_divergence(MODEL, seen, gx.Vecchia(5), trend="constant")
    means, _, _ = sufficient(seen)
    expected = gx.kl_divergence(MODEL, means, gx.Vecchia(5), trend="constant")
    assert 0 < found.kl == pytest.approx(expected.kl, rel=1e-9)
    ours, theirs = (method.prepare(seen).factorize(MODEL) for method in (gx.Vecchia(5), gx.Exact()))
    difference = ours.log_determinant() - theirs.log_determinant()
    trace = np.trace(ours.solve(MODEL(seen.locations, seen.locations) + 0.3 * np.eye(N)))
    assert found.kl == pytest.approx(0.5 * (trace - N + difference), rel=1e-9)


def test_a_fit_and_its_predictions_are_those_of_all_observations():
    truth, random = gx.Matern(1.0, 0.15, 0.5, 0.25), np.random.default_rng(2)
    places = np.repeat(testing.places(150, seed=1), 2, axis=0)
    places = places[random.permutation(300)[:220]]
    seen = gx.Observations(places, gx.simulate(truth, places, seed=3)[0])
    fit = gx.fit(seen, fixed={"smoothness": 0.5}, progress=False)
    evaluator = whole(seen, np.ones((220, 1)), False)
    score = evaluator.gradient(fit.model, ("variance", "range", "nugget"))
    for name, slope in score.items():
        assert abs(slope) * fit.standard_errors[name] < 2e-3, name
    assert fit.log_likelihood == pytest.approx(evaluator(fit.model).log_likelihood, rel=1e-11)
    new = testing.places(5, seed=9)
    sigma = fit.model(places, places) + fit.model.nugget * np.eye(220)
    k, beta = fit.model(places, new), fit.coefficients
    mean = beta + k.T @ np.linalg.solve(sigma, seen.values - beta)
    np.testing.assert_allclose(gx.predict(fit, new).mean, mean, rtol=1e-9)
    near = gx.predict(fit, new, neighbours=220)
    np.testing.assert_allclose(near.mean, mean, rtol=1e-9)
    left_out = gx.leave_one_out(fit)
    inverse = np.linalg.inv(sigma)
    q = inverse - inverse.sum(1, keepdims=True) @ inverse.sum(0, keepdims=True) / inverse.sum()
    np.testing.assert_allclose(left_out.variance, 1 / np.diag(q), rtol=1e-8)
    np.testing.assert_allclose(left_out.mean, seen.values - q @ seen.values / np.diag(q), rtol=1e-8)


@pytest.mark.parametrize("locations", [1, 2, 3])
def test_few_locations_with_replicates_have_a_log_likelihood(locations):
    places = np.arange(4.0 * locations)[:, None] % locations
    z = np.random.default_rng(1).standard_normal(len(places))
    model = gx.Matern(1.0, 2.0, 0.5, 0.3)
    sigma = model(places, places) + 0.3 * np.eye(len(places))
    expected = stats.multivariate_normal(np.zeros(len(z)), sigma).logpdf(z)
    found = gx.log_likelihood(gx.Observations(places, z), model).log_likelihood
    assert found == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("method", [gx.Exact(), gx.Vecchia(3)], ids=["exact", "vecchia"])
def test_deviations_whose_squares_overflow_are_refused(method):
    places = np.random.default_rng(0).random((20, 2))
    errors = np.full(40, 5e-324)
    seen = gx.Observations(np.vstack((places, places)), np.arange(40.0), error_variance=errors)
    with pytest.raises(gx.GeomxpError, match="overflows FP64: rescale the values"):
        gx.log_likelihood(seen, gx.Matern(1.0, 0.1, 0.5), method)
