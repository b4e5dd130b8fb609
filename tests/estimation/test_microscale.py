"""Microscale variation, which replicates share, beside a nugget that they do not."""

import numpy as np
import pytest
from scipy import stats

import geomxp as gx
from geomxp import testing
from geomxp.likelihood.base import by_differences
from geomxp.likelihood.replicates import dense_covariance

TRUTH = gx.Matern(1.0, 0.15, 0.5, 0.3, microscale=0.4)
HELD = {"smoothness": 0.5}
U, N = 120, 240


def locations():
    of = np.random.default_rng(1).integers(U, size=N - U)
    return testing.places(U, seed=1)[np.r_[np.arange(U), of]]


def observations(model=TRUTH, seed=5):
    places = locations()
    return gx.Observations(places, gx.simulate(model, places, seed=seed)[0])


def dense(model, places):
    same = (places[:, None] == places).all(axis=2)
    sigma = model(places, places) + model.microscale * same
    return sigma + model.nugget * np.eye(len(places))


@pytest.fixture(scope="module")
def fitted():
    return gx.fit(observations(), fixed=HELD, progress=False)


@pytest.mark.parametrize("method", [gx.Exact(), gx.Exact(tile=32), gx.Vecchia(U - 1)])
def test_the_log_likelihood_is_that_of_a_dense_sigma(method):
    seen = observations()
    sigma = dense(TRUTH, seen.locations)
    np.testing.assert_array_equal(dense_covariance(TRUTH, seen.inputs), sigma)
    expected = stats.multivariate_normal(np.zeros(N), sigma).logpdf(seen.values)
    found = gx.log_likelihood(seen, TRUTH, method).log_likelihood
    assert found == pytest.approx(expected, rel=1e-11)
    evaluator, names = method.prepare(seen), list(TRUTH.parameters())
    slopes = by_differences(evaluator, TRUTH, names)
    for name, slope in evaluator.gradient(TRUTH).items():
        assert slope == pytest.approx(slopes[name], rel=1e-4, abs=1e-4), name


@pytest.mark.gpu
def test_a_gpu_evaluates_microscale_variation_as_the_cpu():
    seen, names = observations(), tuple(TRUTH.parameters())
    for on_cpu, on_gpu in (
        (gx.Exact(), gx.Exact(on="gpu")),
        (gx.Vecchia(20), gx.Vecchia(20, on="gpu")),
    ):
        one, other = (method.prepare(seen) for method in (on_cpu, on_gpu))
        expected = one.derivatives(TRUTH, names).score
        np.testing.assert_allclose(other.derivatives(TRUTH, names).score, expected, rtol=1e-7)


def test_information_is_minus_the_slope_of_the_score():
    seen, names = observations(), list(TRUTH.parameters())
    evaluator = gx.Exact().prepare(seen, np.ones((N, 1)), True)
    observed = evaluator.observed_information(TRUTH, names)
    for row, name in zip(observed, names, strict=True):
        value, step = TRUTH.parameters()[name], 1e-5
        ends = [evaluator.gradient(TRUTH.replace(**{name: value + move})) for move in (step, -step)]
        slopes = [(ends[1][other] - ends[0][other]) / (2 * step) for other in names]
        np.testing.assert_allclose(row, slopes, rtol=1e-5, atol=1e-4)


@pytest.mark.slow
def test_replicates_separate_both_variances(fitted):
    assert str(fitted.outcome.ending) == "CONVERGED"
    assert set(fitted.free) == {"variance", "range", "nugget", "microscale"}
    for name in ("nugget", "microscale"):
        low, high = fitted.confidence_intervals(0.99, "profile", [name])[name]
        assert low < TRUTH.parameters()[name] < high, name
    one = gx.fit(observations(), fixed=HELD, microscale=False, progress=False)
    assert one.model.microscale is None
    assert one.log_likelihood < fitted.log_likelihood
    test = gx.likelihood_ratio_test(one, fitted)
    assert test.degrees_of_freedom == 1
    assert "½χ²(0) + ½χ²(1)" in test.message
    vecchia = gx.fit(observations(), fixed=HELD, method=gx.Vecchia(U - 1), progress=False)
    assert vecchia.log_likelihood == pytest.approx(fitted.log_likelihood, abs=1e-4)


def test_without_microscale_variation_its_variance_is_0():
    plain = gx.Matern(1.0, 0.15, 0.5, 0.3)
    fit = gx.fit(observations(plain, seed=8), fixed=HELD, progress=False)
    assert fit.model.microscale == 0.0
    assert "microscale" in fit.boundary
    assert "microscale variance is 0" in fit.outcome.message
    one = gx.fit(observations(plain, seed=8), fixed=HELD, microscale=False, progress=False)
    assert fit.log_likelihood == pytest.approx(one.log_likelihood, abs=1e-6)


@pytest.mark.parametrize("method", [None, gx.Vecchia(U - 1)])
@pytest.mark.parametrize("neighbours", [None, U])
def test_predictions_are_of_the_smooth_field(method, neighbours):
    seen, held = observations(), tuple(TRUTH.parameters())
    fit = gx.fit(seen, TRUTH, method, fixed=held, trend="zero", progress=False)
    new = np.vstack((testing.places(5, seed=9), seen.locations[:2]))
    found = gx.predict(fit, new, neighbours=neighbours)
    k, sigma = TRUTH(seen.locations, new), dense(TRUTH, seen.locations)
    weights = np.linalg.solve(sigma, k)
    np.testing.assert_allclose(found.mean, weights.T @ seen.values, rtol=1e-9)
    variance = 1.0 - np.einsum("ij,ij->j", k, weights)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-9)
    np.testing.assert_allclose(found.variance_of_observation, variance + 0.7, rtol=1e-9)
    left_out, inverse = gx.leave_one_out(fit), np.linalg.inv(sigma)
    np.testing.assert_allclose(left_out.variance, 1 / np.diag(inverse), rtol=1e-8)


def test_draws_of_replicates_share_it():
    places = np.array([[0.1, 0.1], [0.1, 0.1], [0.5, 0.6]])
    draws = gx.simulate(TRUTH, places, draws=6000)
    sigma = dense(TRUTH, places)
    allowed = 5 * np.sqrt((sigma**2 + np.outer(np.diag(sigma), np.diag(sigma))) / 6000)
    assert (np.abs(np.cov(draws.T) - sigma) < allowed).all()
    field = gx.simulate(TRUTH, places[[0, 2]], draws=6000, of="field")
    assert np.abs(field.var(axis=0) - 1.0).max() < 5 * np.sqrt(2 / 6000)


def test_a_saved_fit_keeps_it(fitted, tmp_path):
    fitted.save(tmp_path / "fit.json")
    again = gx.Fit.load(tmp_path / "fit.json")
    assert again.model == fitted.model
    table = fitted.coefficient_table()
    assert (table.standard_error > 0).all()


def test_it_needs_replicates():
    seen = gx.Observations(testing.places(30), np.arange(30.0))
    with pytest.raises(gx.InvalidInput, match="only from replicates"):
        gx.fit(seen, microscale=True)
    assert gx.fit(seen, fixed=HELD, progress=False).model.microscale is None
    copies = gx.Observations(np.tile(testing.places(30), (2, 1)), np.tile(np.arange(30.0), 2))
    with pytest.raises(gx.FitFailed, match="Drop one of them, or fix the nugget"):
        gx.fit(copies, fixed=HELD, progress=False)
    with pytest.raises(gx.InvalidInput, match="`microscale` must be at least 0"):
        gx.Matern(1.0, 1.0, 0.5, microscale=-1.0)


@pytest.mark.slow
@pytest.mark.parametrize("method", [None, gx.Vecchia(10), gx.Exact(tile=32)])
def test_replicates_that_differ_in_their_errors_are_refused(method):
    places = locations()
    errors = np.random.default_rng(2).uniform(0.05, 0.3, N)
    seen = gx.Observations(places, observations().values, error_variance=errors)
    for call in (
        lambda: gx.log_likelihood(seen, TRUTH, method),
        lambda: gx.fit(seen, fixed=HELD, method=method, microscale=True),
        lambda: gx.fit(seen, method=method, fixed=HELD | {"microscale": 0.1}),
        lambda: gx.fit(seen, TRUTH, method),
    ):
        with pytest.raises(gx.InvalidInput, match="same error variance, count and covariates"):
            call()
    assert gx.fit(seen, fixed=HELD, method=method, progress=False).model.microscale is None


def test_replicates_with_equal_errors_share_the_variation():
    places = locations()
    of = np.unique(places, axis=0, return_inverse=True)[1].reshape(-1)
    errors = np.random.default_rng(2).uniform(0.05, 0.3, U)[of]
    seen = gx.Observations(places, observations().values, error_variance=errors)
    sigma = dense(TRUTH, places) + np.diag(errors)
    expected = stats.multivariate_normal(np.zeros(N), sigma).logpdf(seen.values)
    assert gx.log_likelihood(seen, TRUTH).log_likelihood == pytest.approx(expected, rel=1e-11)


@pytest.mark.slow
def test_a_fit_with_a_target_of_divergence_measures_it_on_the_means():
    method = gx.Exact(gx.for_divergence(1e-3), tile=32)
    held = HELD | {"microscale": 0.4}
    one = gx.fit(observations(), method=method, fixed=held, progress=False)
    other = gx.fit(observations(), fixed=held, progress=False)
    assert one.log_likelihood == pytest.approx(other.log_likelihood, abs=0.05)


def test_divergences_at_repeated_locations_are_those_of_the_means():
    places, method = locations(), gx.Exact(gx.for_divergence(1e-3), tile=32)
    once, counts = np.unique(places, axis=0, return_counts=True)
    several = (gx.Inputs(once, replicates=counts), gx.Inputs(places), observations())
    given = [gx.compare(TRUTH, each, [method])[0].kl for each in several]
    assert given == pytest.approx([given[0]] * 3, rel=1e-6)
    with pytest.raises(gx.NotPositiveDefinite, match="Estimate a nugget"):
        gx.compare(TRUTH.replace(nugget=0.0), places, [method])


def test_divergences_of_replicates_with_different_covariates():
    places = np.repeat(testing.places(40, seed=3), 2, axis=0)
    seen = gx.Observations(places, np.arange(80.0), covariates=np.arange(80.0)[:, None] % 7)
    model, method = gx.Matern(1.0, 0.2, 0.5, 0.1), gx.Exact(gx.by_tile_norm(1e-3), tile=16)
    (found,) = gx.compare(model, seen, [method], trend="covariates")
    assert 0 < found.kl < 0.1
    assert found.n == 80


def test_the_divergence_between_models_counts_replicates():
    places, q = locations(), TRUTH.replace(range=0.2, nugget=0.5, microscale=0.1)
    one, other = dense(TRUTH, places), dense(q, places)
    trace = np.trace(np.linalg.solve(other, one))
    logs = np.linalg.slogdet(other)[1] - np.linalg.slogdet(one)[1]
    assert gx.kl_between(TRUTH, q, places) == pytest.approx(0.5 * (trace - N + logs), rel=1e-10)


def test_contradictions_are_refused():
    with pytest.raises(gx.InvalidInput, match="`microscale` is False"):
        gx.fit(observations(), fixed=HELD | {"microscale": 0.1}, microscale=False)
    alone = gx.Observations(testing.places(30), np.arange(30.0))
    for request in (
        {"start": {"microscale": 0.1}},
        {"model": gx.Matern(1.0, 0.2, 0.5, microscale=0.2)},
    ):
        with pytest.raises(gx.InvalidInput, match="only from replicates"):
            gx.fit(alone, **request)


def test_approximations_are_compared_with_microscale_variation():
    places = testing.places(40, seed=3)
    model = gx.Matern(1.0, 0.2, 0.5, nugget=0.1, microscale=0.3)
    (found,) = gx.compare(model, places, [gx.Exact(gx.by_tile_norm(1e-3), tile=8)])
    # one value at each location: both are noise
    (same,) = gx.compare(
        gx.Matern(1.0, 0.2, 0.5, nugget=0.4), places, [gx.Exact(gx.by_tile_norm(1e-3), tile=8)]
    )
    assert found.kl == pytest.approx(same.kl, rel=1e-9, abs=1e-12)
