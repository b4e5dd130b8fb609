"""Known variances of errors of measurement: Σ = C + diag(v) + τ²I, for every method."""

from dataclasses import replace

import numpy as np
import pytest
import scipy

import geomxp as gx
from geomxp import testing
from geomxp.likelihood.base import by_differences

MODEL = gx.Matern(1.7, 0.2, 0.8, 0.1, (30.0, 0.6))
N = 150
METHODS = {
    "exact": gx.Exact(),
    "tiles": gx.Exact(tile=64),
    "formats": gx.Exact(gx.by_tile_norm(1e-12), tile=64),
    "refined": gx.Exact(gx.uniform("fp32"), tile=64, refine="cg"),
    "out of core": gx.Exact(tile=32, memory="64MB"),
    "vecchia": gx.Vecchia(N - 1),
}


def observations(n=N, seed=0):
    random = np.random.default_rng(seed)
    errors = random.random(n) * (np.arange(n) % 3 > 0)
    places = testing.places(n, seed=seed)
    values = 3.0 + places[:, 0] + random.standard_normal(n)
    return gx.Observations(places, values, error_variance=errors)


def dense(model, seen):
    """Σ, by formulas of its own."""
    sigma = model(seen.locations, seen.locations, seen.metric)
    return sigma + np.diag(model.nugget + seen.error_variance)


def reference(model, seen, design, reml):
    """The log-likelihood by a dense Σ, and generalised least squares."""
    sigma, z, (n, p) = dense(model, seen), seen.values, design.shape
    white = scipy.linalg.solve_triangular(
        np.linalg.cholesky(sigma), np.column_stack((z, design)), lower=True
    )
    beta, *_ = np.linalg.lstsq(white[:, 1:], white[:, 0], rcond=None)
    form = ((white[:, 0] - white[:, 1:] @ beta) ** 2).sum()
    value = (n - (p if reml else 0)) * np.log(2 * np.pi) + np.linalg.slogdet(sigma)[1] + form
    if reml:
        value += np.linalg.slogdet(white[:, 1:].T @ white[:, 1:])[1]
    return -0.5 * value


@pytest.mark.parametrize("reml", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_the_log_likelihood_is_that_of_a_dense_sigma(method, reml):
    seen = observations()
    design = np.column_stack((np.ones(N), seen.locations))
    found = gx.log_likelihood(seen, MODEL, METHODS[method], trend="linear", reml=reml)
    expected = reference(MODEL, seen, design, reml)
    allowed = 1e-5 if method == "refined" else 1e-10
    assert found.log_likelihood == pytest.approx(expected, rel=allowed)


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("method", [gx.Exact(), gx.Exact(tile=64), gx.Vecchia(N - 23)])
def test_a_gpu_evaluates_as_the_cpu(method):
    seen, names = observations(), tuple(MODEL.parameters())
    both = method, replace(method, on="gpu")
    one, other = (how.prepare(seen, np.ones((N, 1))) for how in both)
    assert other(MODEL).log_likelihood == pytest.approx(one(MODEL).log_likelihood, rel=1e-10)
    expected = one.derivatives(MODEL, names).score
    np.testing.assert_allclose(other.derivatives(MODEL, names).score, expected, rtol=1e-7)


@pytest.mark.parametrize("reml", [False, True])
@pytest.mark.parametrize("method", ["exact", "tiles", "vecchia"])
def test_scores_are_slopes_of_the_log_likelihood(method, reml):
    seen = observations(80)
    how = gx.Vecchia(20) if method == "vecchia" else METHODS[method]
    evaluator = how.prepare(seen, np.ones((80, 1)), reml)
    names = tuple(MODEL.parameters())
    slopes, found = by_differences(evaluator, MODEL, names), evaluator.gradient(MODEL)
    for name in names:
        assert found[name] == pytest.approx(slopes[name], rel=1e-4, abs=1e-5), name


@pytest.mark.parametrize("reml", [False, True])
def test_information_is_that_of_dense_derivatives(reml):
    seen, names = observations(50), tuple(MODEL.parameters())
    design = np.column_stack((np.ones(50), seen.locations[:, 0]))
    inverse = np.linalg.inv(dense(MODEL, seen))
    if reml:
        b = inverse @ design
        inverse = inverse - b @ np.linalg.solve(design.T @ b, b.T)
    changes = MODEL.derivatives(seen.locations, seen.locations) | {"nugget": np.eye(50)}
    products = [inverse @ changes[name] for name in names]
    expected = 0.5 * np.array([[np.sum(a * b.T) for b in products] for a in products])
    evaluator = gx.Exact().prepare(seen, design, reml)
    np.testing.assert_allclose(evaluator.expected_information(MODEL), expected, rtol=1e-8)
    observed, step = evaluator.observed_information(MODEL), 1e-5
    for row, name in zip(observed, names, strict=True):
        ends = [
            evaluator.derivatives(
                MODEL.replace(**{name: MODEL.parameters()[name] + move}), names
            ).score
            for move in (step, -step)
        ]
        slopes = (ends[1] - ends[0]) / (2 * step)
        np.testing.assert_allclose(row, slopes, atol=1e-4 * np.sqrt(np.diag(expected)).max())


@pytest.mark.slow
def test_equal_error_variances_are_a_nugget():
    seen = observations()
    same = gx.Observations(seen.locations, seen.values, error_variance=np.full(N, 0.3))
    plain = gx.Observations(seen.locations, seen.values)
    found = gx.log_likelihood(same, MODEL.replace(nugget=0.2), trend="constant")
    expected = gx.log_likelihood(plain, MODEL.replace(nugget=0.5), trend="constant")
    assert found.log_likelihood == pytest.approx(expected.log_likelihood, rel=1e-13)
    fits = [gx.fit(plain, fixed={"nugget": 0.5}), gx.fit(same, fixed={"nugget": 0.2})]
    values = [fit.log_likelihood for fit in fits]
    assert values[1] == pytest.approx(values[0], abs=1e-4)


def test_means_of_replicates_have_the_nugget_divided_by_their_number():
    seen, counts = observations(), 1 + np.arange(N) % 4
    means = gx.Observations(seen.locations, seen.values, replicates=counts)
    found = gx.log_likelihood(means, MODEL).log_likelihood
    errors = MODEL.nugget / counts
    known = gx.Observations(seen.locations, seen.values, error_variance=errors)
    expected = gx.log_likelihood(known, MODEL.replace(nugget=0.0)).log_likelihood
    assert found == pytest.approx(expected, rel=1e-12)
    slopes = by_differences(gx.Exact().prepare(means), MODEL, ("nugget",))
    for method in (gx.Exact(), gx.Vecchia(N - 1)):
        gradient = method.prepare(means).gradient(MODEL, ("nugget",))
        assert gradient["nugget"] == pytest.approx(slopes["nugget"], rel=1e-5)


@pytest.mark.slow
def test_a_fit_recovers_the_model_and_scales_with_the_data():
    truth, places = gx.Matern(2.0, 0.1, 0.5, 0.2), testing.places(400, seed=3)
    errors = np.random.default_rng(3).uniform(0.0, 2.0, 400)
    z = gx.simulate(truth, gx.Inputs(places, error_variance=errors), seed=4)[0]
    held = {"smoothness": 0.5}
    fit = gx.fit(gx.Observations(places, z, error_variance=errors), fixed=held)
    for name, value in truth.parameters().items():
        if name not in held:
            low, high = fit.confidence_intervals(0.999)[name]
            assert low < value < high, name
    big = gx.Observations(1e3 * places, 1e4 * z, error_variance=1e8 * errors)
    scaled = gx.fit(big, fixed=held)
    assert scaled.model.variance == pytest.approx(1e8 * fit.model.variance, rel=1e-3)
    assert scaled.model.range == pytest.approx(1e3 * fit.model.range, rel=1e-3)
    without = gx.fit(gx.Observations(places, z), fixed=held)
    assert without.model.nugget > fit.model.nugget + 0.5


def test_two_values_at_one_location_need_a_nugget_only_if_both_are_exact():
    places = np.vstack((testing.places(20), testing.places(20)[:1]))
    values = np.arange(21.0)
    for first, second in ((0.0, 0.1), (0.1, 0.1), (0.1, 0.0)):
        errors = np.r_[first, np.zeros(19), second]
        seen = gx.Observations(places, values, error_variance=errors)
        bare = MODEL.replace(nugget=0.0)
        found = gx.log_likelihood(seen, bare).log_likelihood
        assert found == pytest.approx(reference(bare, seen, np.empty((21, 0)), False), rel=1e-9)
    exact = gx.Observations(places, values, error_variance=np.zeros(21))
    with pytest.raises(gx.NotPositiveDefinite, match="rows 1 and 21 are at the same location"):
        gx.log_likelihood(exact, MODEL.replace(nugget=0.0))


@pytest.mark.parametrize(
    ("errors", "words"),
    [
        (np.r_[-1.0, np.ones(9)], "at least 0, the squares of standard errors. Got -1 in row 1"),
        (np.ones(9), "one number for each of the 10 locations"),
        (np.r_[np.nan, np.ones(9)], "must be finite"),
    ],
)
def test_wrong_error_variances_are_refused(errors, words):
    with pytest.raises(gx.InvalidInput, match=words):
        gx.Observations(testing.places(10), np.ones(10), error_variance=errors)


@pytest.mark.parametrize("replicates", [np.full(10, -0.5), np.zeros(10), np.full(10, 5e-324)])
def test_wrong_numbers_of_replicates_are_refused(replicates):
    with pytest.raises(gx.InvalidInput, match="must be greater than 0"):
        gx.Observations(testing.places(10), np.ones(10), replicates=replicates)


@pytest.mark.slow
@pytest.mark.parametrize("number", [7, 1e6])
def test_a_fit_of_means_of_many_measurements_is_that_of_their_nugget(number):
    places = testing.places(60, seed=5)
    z = gx.simulate(gx.Matern(1.0, 0.3, 0.5, 0.1), places, seed=3)[0]
    options = {"fixed": {"smoothness": 0.5}, "progress": False}
    one = gx.fit(gx.Observations(places, z), **options)
    means = gx.Observations(places, z, replicates=np.full(60, number))
    many = gx.fit(means, **options)
    assert many.log_likelihood == pytest.approx(one.log_likelihood, abs=1e-8)
    assert many.model.nugget == pytest.approx(number * one.model.nugget, rel=1e-3)
    ends = [fit.confidence_intervals(method="profile")["nugget"] for fit in (one, many)]
    assert ends[1] == pytest.approx(tuple(number * end for end in ends[0]), rel=1e-3)


def test_log_likelihoods_are_those_of_scikit_learn_with_alpha():
    gaussian_process = pytest.importorskip("sklearn.gaussian_process")
    seen, kernels = observations(), gaussian_process.kernels
    for nu in (0.5, 1.5, 2.5):
        kernel = kernels.ConstantKernel(1.7) * kernels.Matern(0.2, nu=nu)
        regressor = gaussian_process.GaussianProcessRegressor(
            kernel, alpha=seen.error_variance + 0.1, optimizer=None
        )
        expected = regressor.fit(seen.locations, seen.values).log_marginal_likelihood_value_
        model = gx.Matern.from_convention(
            "scikit-learn", variance=1.7, length_scale=0.2, nu=nu
        ).replace(nugget=0.1)
        found = gx.log_likelihood(seen, model).log_likelihood
        assert found == pytest.approx(expected, rel=1e-9)
