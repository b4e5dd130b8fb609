"""Scores are what their integrals say, and proper: no wrong prediction scores better."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import kstest, norm

import geomxp as gx
from geomxp.prediction import scores

CASES = [(0.0, 1.0, 0.3), (2.0, 0.5, -1.0), (-3.0, 4.0, 5.0), (1.0, 2.0, 1.0)]


@pytest.mark.parametrize(("mean", "sd", "observed"), CASES)
def test_crps_is_the_integral_of_the_squared_distance_of_distribution_functions(mean, sd, observed):
    below, _ = quad(lambda x: norm.cdf(x, mean, sd) ** 2, mean - 12 * sd, observed)
    above, _ = quad(lambda x: norm.sf(x, mean, sd) ** 2, observed, mean + 12 * sd)
    # quad's own error estimate is below 1e-8
    assert float(scores.crps_gaussian(mean, sd, observed)) == pytest.approx(below + above, abs=1e-8)


@pytest.mark.parametrize(("mean", "sd", "observed"), CASES)
def test_log_score_is_minus_the_log_density_and_pit_the_distribution_function(mean, sd, observed):
    assert float(scores.log_score(mean, sd, observed)) == pytest.approx(
        -norm.logpdf(observed, mean, sd), rel=1e-14
    )
    assert float(scores.pit(mean, sd, observed)) == pytest.approx(
        norm.cdf(observed, mean, sd), rel=1e-14
    )


@pytest.mark.parametrize("score", [scores.crps_gaussian, scores.log_score])
def test_no_wrong_prediction_has_a_better_expected_score(score):
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    expected = {
        (mean, sd): float(weights @ score(mean, sd, 1.0 + 2.0 * nodes))
        for mean in (0.8, 1.0, 1.2)
        for sd in (1.6, 2.0, 2.4)
    }
    assert min(expected, key=expected.get) == (1.0, 2.0)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def test_the_best_interval_has_the_quantiles_of_the_truth_for_ends(level):
    y = norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    z = norm.ppf(0.5 + level / 2)
    best = scores.interval_score(-z, z, y, level).mean()
    for lower, upper in ((-z - 0.1, z), (-z + 0.1, z), (-z, z + 0.1), (-z, z - 0.1)):
        assert scores.interval_score(lower, upper, y, level).mean() > best


def test_interval_score_is_width_and_penalty():
    # 2/α = 40 for every unit outside
    found = scores.interval_score(1.0, 3.0, [2.0, 3.5, 0.0], 0.95)
    np.testing.assert_allclose(found, [2.0, 22.0, 42.0], rtol=1e-14)


def test_scores_of_scaled_predictions_are_scaled():
    """CRPS and interval score have the unit of the values; the log score moves by its logarithm."""
    mean, sd, y = np.array([[1.0, 2.0, 3.0], [0.5, 1.0, 2.0], [0.0, 2.5, 9.0]])
    c = 8.0
    for score in (scores.crps_gaussian, scores.interval_score):
        np.testing.assert_allclose(
            score(c * (mean - sd), c * (mean + sd), c * y),
            c * score(mean - sd, mean + sd, y),
            rtol=1e-14,
        )
    np.testing.assert_allclose(
        scores.log_score(c * mean, c * sd, c * y),
        scores.log_score(mean, sd, y) + np.log(c),
        rtol=1e-13,
    )


def test_the_transforms_of_draws_are_uniform():
    draws = 3.0 + 0.7 * np.random.default_rng(1).standard_normal(5000)
    assert kstest(scores.pit(3.0, 0.7, draws), "uniform").pvalue > 0.01
    assert kstest(scores.pit(3.0, 0.9, draws), "uniform").pvalue < 1e-6


def test_a_summary_is_the_means_of_its_parts():
    random = np.random.default_rng(2)
    mean, variance, y = random.random(50), 0.5 + random.random(50), random.standard_normal(50)
    sd = np.sqrt(variance)
    found = scores.summary(mean, variance, y, level=0.8)
    half = norm.ppf(0.9) * sd
    expected = {
        "rmse": np.sqrt(np.mean((y - mean) ** 2)),
        "mae": np.mean(np.abs(y - mean)),
        "bias": np.mean(mean - y),
        "crps": scores.crps_gaussian(mean, sd, y).mean(),
        "log_score": scores.log_score(mean, sd, y).mean(),
        "interval_score": scores.interval_score(mean - half, mean + half, y, 0.8).mean(),
        "coverage": scores.coverage(mean - half, mean + half, y),
        "mean_squared_standardised_error": np.mean((y - mean) ** 2 / variance),
    }
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-13), name


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: scores.crps_gaussian(0.0, [1.0, 0.0], 0.0),
            "`sd` must be greater than 0.*index 1",
        ),
        (lambda: scores.pit(0.0, -1.0, 0.0), "`sd` must be greater than 0. Got -1"),
        (lambda: scores.log_score([0.0, np.nan], 1.0, 0.0), "`mean` must be finite.*index 1"),
        (lambda: scores.pit("a", 1.0, 0.0), "`mean` must be numbers"),
        (lambda: scores.pit([1.0, 2.0], 1.0, [1.0, 2.0, 3.0]), "shapes must match"),
        (lambda: scores.interval_score(1.0, 0.0, 0.0), "`lower` must not exceed `upper`"),
        (lambda: scores.interval_score(0.0, 1.0, 0.0, 95), "`level` must lie between 0 and 1"),
        (lambda: scores.summary([], [], []), "at least one prediction"),
        (lambda: scores.summary([1.0], [1.0], [1.0], level=0), "`level` must lie between"),
    ],
)
def test_what_cannot_be_scored_is_named(call, message):
    with pytest.raises(gx.InvalidInput, match=message):
        call()
