"""Distributions of new observations of a response, and what is predicted from them."""

import numpy as np
import pytest
from scipy import integrate, stats

import geomxp as gx
from geomxp import responses
from geomxp.covariance.responses import Data
from geomxp.prediction.mixtures import MeanScale, Mixture

MEAN, VARIANCE = np.array([-0.5, 1.0, 2.5]), np.array([0.2, 0.9, 1.6])
CASES = {
    "poisson": (responses.Poisson(), [0.0, 3.0, 40.0]),
    "negative-binomial": (responses.NegativeBinomial(2.5), [0.0, 3.0, 40.0]),
    "bernoulli": (responses.Bernoulli(), [0.0, 1.0, 0.0]),
    "zero-inflated": (responses.ZeroInflatedPoisson(0.3), [0.0, 3.0, 9.0]),
    "truncated": (responses.TruncatedPoisson(), [1.0, 3.0, 9.0]),
    "gamma": (responses.Gamma(2.0), [0.3, 3.0, 40.0]),
    "log-normal": (responses.LogNormal(0.3), [0.3, 3.0, 40.0]),
    "beta": (responses.Beta(5.0), [0.2, 0.6, 0.99]),
    "student-t": (responses.StudentT(0.5, 5.0), [-2.0, 1.0, 12.0]),
    "tweedie": (responses.Tweedie(0.8, 1.4), [0.0, 3.0, 20.0]),
}


def mixture(name):
    return Mixture(CASES[name][0], MEAN, VARIANCE)


def by_quadrature(name, function):
    """Return integrals of function(data of one value, η) over η, one for each row."""
    found = []
    for m, v in zip(MEAN, VARIANCE, strict=True):
        sd = np.sqrt(v)

        def integrand(eta, m=m, v=v):
            return function(np.array([eta]))[0] * stats.norm.pdf(eta, m, np.sqrt(v))

        found.append(
            integrate.quad(integrand, m - 9 * sd, m + 9 * sd, points=[m], limit=400, epsrel=1e-10)[
                0
            ]
        )
    return np.array(found)


@pytest.mark.parametrize("name", CASES)
def test_moments_are_integrals_over_the_field(name):
    response, one = CASES[name][0], Data(np.zeros(1))
    mean = by_quadrature(name, lambda eta: response.mean(one, eta))
    second = by_quadrature(
        name, lambda eta: response.variance(one, eta) + response.mean(one, eta) ** 2
    )
    found = mixture(name)
    np.testing.assert_allclose(found.mean_value(), mean, rtol=1e-8)
    np.testing.assert_allclose(found.variance_value(), second - mean**2, rtol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_probabilities_are_integrals_over_the_field(name):
    response, values = CASES[name]
    found, values = mixture(name), np.array(values)
    for row, value in enumerate(values):
        one = Data(np.array([value]), lower=np.array([value]), upper=np.array([value]))
        expected = by_quadrature(
            name, lambda eta, one=one, value=value: response.cumulative(one, eta, value)
        )[row]
        assert found.cumulative(values)[row] == pytest.approx(expected, abs=1e-8)
        density = by_quadrature(name, lambda eta, one=one: np.exp(response.log_density(one, eta)))[
            row
        ]
        assert found.log_density(values)[row] == pytest.approx(np.log(density), abs=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_a_quantile_is_the_least_value_with_its_probability(name):
    found = mixture(name)
    for p in (0.03, 0.5, 0.9):
        at = found.quantile(p)
        assert (found.cumulative(at) >= p - 1e-7).all()
        assert (found.below(at) <= p + 1e-7).all()


@pytest.mark.parametrize("name", CASES)
def test_scores_are_those_of_draws(name):
    """CRPS = E|Y - y| - ½E|Y - Y'|."""
    response, values = CASES[name]
    found, y = mixture(name), np.array(values)
    random, count = np.random.default_rng(2), 40_000
    many = Mixture(response, *(np.repeat(x, count) for x in (MEAN, VARIANCE)))
    draws = many.draw(random).reshape(3, count)
    other = np.roll(draws, 1, axis=1)
    parts = np.abs(draws - y[:, None]) - 0.5 * np.abs(draws - other)
    error = parts.std(axis=1) / np.sqrt(count)
    np.testing.assert_array_less(np.abs(found.crps(y) - parts.mean(axis=1)), 5 * error + 1e-9)


def test_the_crps_of_large_counts_is_finite_and_right():
    """That of counts in the thousands is nearly that of a log-normal variable."""
    mean, variance = np.full(2, np.log(8000.0)), np.full(2, 0.3)
    y = np.array([2000.0, 12_000.0])
    found = Mixture(responses.Poisson(), mean, variance).crps(y)
    z = (np.log(y) - mean) / np.sqrt(variance)
    known = y * (2 * stats.norm.cdf(z) - 1) - 2 * np.exp(mean + variance / 2) * (
        stats.norm.cdf(z - np.sqrt(variance)) + stats.norm.cdf(np.sqrt(variance / 2)) - 1
    )
    np.testing.assert_allclose(found, known, rtol=2e-3)


def test_transforms_of_a_correct_model_are_uniform():
    random, count = np.random.default_rng(3), 4000
    for name in ("poisson", "gamma", "tweedie"):
        many = Mixture(CASES[name][0], np.full(count, 0.5), np.full(count, 0.8))
        found = many.pit(many.draw(random), random)
        assert stats.kstest(found, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("name", [name for name in CASES if name != "student-t"])
def test_the_scale_of_the_mean_is_inverse_to_the_link(name):
    scale, eta = MeanScale(CASES[name][0]), np.linspace(-2.0, 3.0, 7)
    np.testing.assert_allclose(scale.transform(scale.inverse(eta)), eta, atol=1e-9)
    assert scale.threshold(1e9) in (np.inf, pytest.approx(np.log(1e9), rel=0.1))


# Predictions of fits


@pytest.fixture(scope="module")
def fitted():
    random = np.random.default_rng(5)
    places = random.random((230, 2))
    f = gx.simulate(gx.Matern(0.8, 0.2, 0.5), places, seed=4)[0]
    trials = random.integers(1, 9, 230).astype(float)
    values = random.binomial(trials.astype(int), 1 / (1 + np.exp(-f))).astype(float)
    seen = gx.Observations(places[:200], values[:200], trials=trials[:200])
    held = gx.Observations(places[200:], values[200:], trials=trials[200:])
    return gx.fit(seen, response="binomial", fixed={"smoothness": 0.5}), held


def test_predictions_of_the_field_are_laplaces(fitted):
    """k'K⁻¹f̂ and k₀ - k'(K + W⁻¹)⁻¹k, and the trend's coefficients are those of the fit."""
    fit, held = fitted
    model, seen = fit.model, fit.observations
    field = gx.Matern(model.variance, model.range, 0.5)
    k = field(seen.locations, seen.locations) + model.nugget * np.eye(200)
    across = field(seen.locations, held.locations)
    f, ones = np.zeros(200), np.ones(200)
    for _ in range(50):
        p = 1 / (1 + np.exp(-(fit.coefficients[0] + f)))
        g, w = seen.values - seen.trials * p, seen.trials * p * (1 - p)
        f = k @ np.linalg.solve(np.eye(200) + w[:, None] * k, g + w * f)
    inverse = np.linalg.inv(k + np.diag(1 / w))
    mean = fit.coefficients[0] + across.T @ np.linalg.solve(k, f)
    rest = 1 - ones @ inverse @ across
    variance = model.variance - np.einsum("ij,ij->j", across, inverse @ across)
    variance += rest**2 / (ones @ inverse @ ones)
    found = gx.predict(fit, held.locations)
    np.testing.assert_allclose(found.gaussian[0], mean, atol=1e-6)
    np.testing.assert_allclose(found.gaussian[1], variance, rtol=1e-5)


def test_draws_have_the_predicted_distribution(fitted):
    fit, held = fitted
    found = gx.predict(fit, held.locations, trials=held.trials)
    draws = gx.simulate(
        fit, held.locations, draws=4000, of="observation", trials=held.trials, seed=1
    )
    error = np.sqrt(found.variance_of_observation / 4000)
    np.testing.assert_array_less(np.abs(draws.mean(0) - found.mean_of_observation), 5 * error)
    above = found.probability_above(2, of="observation")
    np.testing.assert_allclose((draws > 2).mean(axis=0), above, atol=0.05)
    lower, upper = found.interval(0.9, of="observation")
    assert ((lower <= draws) & (draws <= upper)).mean() > 0.9


def test_vecchia_predicts_nearly_as_dense(fitted):
    fit, held = fitted
    sparse = gx.fit(
        fit.observations, fit.model, gx.Vecchia(40), fixed=tuple(fit.model.parameters())
    )
    dense, near = (gx.predict(each, held.locations) for each in (fit, sparse))
    np.testing.assert_allclose(near.gaussian[0], dense.gaussian[0], atol=0.05)
    np.testing.assert_allclose(near.gaussian[1], dense.gaussian[1], rtol=0.05)


def test_validations_agree(fitted):
    """Leaving one out by working values is nearly what fits without each observation give."""
    fit, held = fitted
    one = gx.leave_one_out(fit)
    folds = gx.cross_validate(fit, folds=20)
    for name in ("crps", "log_score"):
        assert one.scores()[name] == pytest.approx(folds.scores()[name], rel=0.05)
    table = gx.validate(fit, held)
    assert len(table) == 30
    assert 0.8 < table.scores()["coverage"] <= 1.0
    assert np.isfinite(list(table.scores().values())).all()
    frame = table.to_frame()
    assert (frame["lower"] <= frame["upper"]).all()


def test_exact_refits_are_what_leaving_one_out_approximates(fitted):
    fit, _ = fitted
    one = gx.leave_one_out(fit)
    rest = fit.observations.subset(np.arange(1, 200))
    again = gx.fit(rest, fit.model, fixed=tuple(fit.model.parameters()))
    alone = gx.predict(again, fit.observations.locations[:1])
    assert one.mixture.mean[0] == pytest.approx(alone.gaussian[0][0], abs=0.05)
    variance = alone.gaussian[1][0] + fit.model.nugget
    assert one.mixture.variance[0] == pytest.approx(variance, rel=0.1)


def test_maps_and_blocks_have_responses(fitted):
    fit, held = fitted
    raster = gx.predict_raster(fit, cells=8)
    assert ((raster.mean > 0) & (raster.mean < 1)).all()
    above = raster.probability_above(0, of="observation")
    np.testing.assert_allclose(above, raster._prediction().mean_of_observation.reshape(8, 8))
    block = gx.predict(fit, held.locations[:2], block=0.1)
    assert ((block.mean > 0) & (block.mean < 1)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": [1.0, 2.0]}, "one for each of the 30"),
        ({"exposure": 1.0}, "needs the link log"),
        ({"trials": -1.0}, "positive"),
        ({"offset": np.nan}, "finite"),
        ({"trials": "n"}, "may name a column"),
    ],
)
def test_new_columns_that_cannot_be_are_refused(fitted, options, message):
    fit, held = fitted
    with pytest.raises(gx.InvalidInput, match=message):
        gx.predict(fit, held.locations, **options)


def test_trials_of_gaussian_fits_are_refused():
    fit = gx.fit(gx.datasets.load("meuse"), fixed={"smoothness": 0.5})
    with pytest.raises(gx.InvalidInput, match="for fits with a response"):
        gx.predict(fit, [[180_000.0, 331_000.0]], trials=3)


@pytest.mark.parametrize("name", ["poisson", "negative-binomial", "truncated"])
@pytest.mark.parametrize("sd", [1.5, 2.0])
def test_crps_of_counts_with_a_long_tail_is_the_sum_over_counts(name, sd):
    response, mean, variance = CASES[name][0], np.array([1.0]), np.array([sd**2])
    one = Mixture(response, mean, variance)
    counts = np.arange(int(one.quantile(1 - 1e-7)[0]) + 1)
    every = Mixture(response, *(np.full(len(counts), x) for x in (mean[0], variance[0])))
    f = every.cumulative(counts.astype(float))
    for y in (1.0, 40.0):
        exact = ((f - (counts >= y)) ** 2).sum()
        np.testing.assert_allclose(one.crps(np.array([y])), exact, rtol=1e-3)


def test_truncated_counts_with_a_tiny_mean_are_1():
    one = Mixture(responses.TruncatedPoisson(), np.array([-12.0]), np.array([16.0]))
    assert one.quantile(0.5) == 1
    assert 0.98 < one.cumulative(1.0)[0] < 1
    assert 0 < one.crps(np.array([1.0]))[0] < 1
    draws = one.response.draw(Data(np.zeros(9)), np.full(9, -60.0), np.random.default_rng(1))
    assert (draws == 1).all()
