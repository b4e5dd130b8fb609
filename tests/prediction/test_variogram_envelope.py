import numpy as np
import pytest

import geomxp as gx
from geomxp.prediction.variogram import lags_of, residual_draws, variogram_envelope

MODEL = gx.Matern(2.0, 0.3, 0.5, 0.2)
FIXED = tuple(MODEL.parameters())


@pytest.fixture(scope="module")
def fit():
    places = np.random.default_rng(3).random((60, 2))
    seen = gx.Observations(places, gx.simulate(MODEL, places, seed=1)[0])
    return gx.fit(seen, MODEL, fixed=FIXED, trend="linear")


def covariance(fit):
    """Σ and X, and what the trend leaves of Σ: Σ - X(X'Σ⁻¹X)⁻¹X'."""
    seen = fit.observations
    sigma = MODEL(seen.locations, seen.locations) + MODEL.nugget * np.eye(len(seen))
    x = np.column_stack((np.ones(len(seen)), seen.locations))
    return sigma, x, sigma - x @ np.linalg.solve(x.T @ np.linalg.solve(sigma, x), x.T)


def test_drawn_residuals_are_orthogonal_to_the_trend_in_the_metric_of_the_model(fit):
    sigma, x, _ = covariance(fit)
    r = residual_draws(fit, np.arange(60), 5)
    weights = np.linalg.solve(sigma, r)
    scale = np.abs(x.T) @ np.abs(weights)
    # a singular matrix has a root to the square root of the rounding
    assert (np.abs(x.T @ weights) <= 60 * np.sqrt(2.0**-53) * scale).all()


@pytest.mark.parametrize("rows", [np.arange(60), np.arange(0, 60, 4)])
def test_drawn_residuals_have_the_covariance_of_residuals(fit, rows):
    _, _, rest = covariance(fit)
    draws = 4000
    r = residual_draws(fit, rows, draws, seed=2)
    found, expected = r @ r.T / draws, rest[np.ix_(rows, rows)]
    variances = np.diag(expected)
    # of a product of normals
    error = np.sqrt((np.outer(variances, variances) + expected**2) / draws)
    assert (np.abs(found - expected) < 5 * error).all()


def test_draws_depend_on_the_seed_and_not_on_their_number(fit):
    rows = np.arange(60)
    few, more = (residual_draws(fit, rows, count, seed=1) for count in (3, 7))
    np.testing.assert_array_equal(few, more[:, :3])
    assert not np.array_equal(few, residual_draws(fit, rows, 3, seed=2))


def test_envelope_holds_the_mean_of_the_semivariogram(fit):
    lags = lags_of(fit.observations, bins=10)
    _, _, rest = covariance(fit)
    i, j = lags.first, lags.second
    half = (rest[i, i] + rest[j, j] - 2 * rest[i, j]) / 2
    mean = np.array([part.mean() for part in np.split(half, lags.ends[:-1])])
    lower, upper = variogram_envelope(fit, lags)
    assert ((lower < mean) & (mean < upper)).all()


def test_envelope_holds_as_many_fields_as_it_says(fit):
    seen = fit.observations
    lags = lags_of(seen, bins=8)
    lower, upper = variogram_envelope(fit, lags, draws=399, level=0.9, seed=5)
    sigma, x, _ = covariance(fit)
    fields = gx.simulate(MODEL, seen.locations, draws=400, seed=9).T + 7.0
    beta = np.linalg.solve(x.T @ np.linalg.solve(sigma, x), x.T @ np.linalg.solve(sigma, fields))
    gamma = lags.semivariances(fields - x @ beta)
    inside = ((lower[:, None] < gamma) & (gamma < upper[:, None])).mean(axis=1)
    # of 400 fields, and of an envelope from 399
    error = np.sqrt(0.9 * 0.1 * (1 / 400 + 1 / 400))
    assert (np.abs(inside - 0.9) < 4 * error).all()


def test_envelope_of_least_draws_is_their_smallest_and_largest(fit):
    lags = lags_of(fit.observations, bins=5)
    gamma = lags.semivariances(residual_draws(fit, lags.rows, 39, seed=4))
    lower, upper = variogram_envelope(fit, lags, draws=39, seed=4)
    np.testing.assert_allclose(lower, gamma.min(axis=1), rtol=1e-12)
    np.testing.assert_allclose(upper, gamma.max(axis=1), rtol=1e-12)
    with pytest.raises(gx.InvalidInput, match="needs at least 39 draws"):
        variogram_envelope(fit, lags, draws=38)


def test_envelope_exists_where_the_covariance_matrix_has_no_factor():
    places = np.random.default_rng(3).random((60, 2))
    smooth = gx.Matern(1.0, 2.0, 3.5, 0.0)
    values = np.sin(3 * places[:, 0]) + places[:, 1]
    seen = gx.Observations(places, values)
    with pytest.warns(gx.GeomxpWarning, match="ill-conditioned"):
        fit = gx.fit(seen, smooth, gx.Vecchia(6), fixed=tuple(smooth.parameters()))
    lower, upper = variogram_envelope(fit, lags_of(seen))
    assert (lower > 0).all()
    assert (upper > lower).all()
