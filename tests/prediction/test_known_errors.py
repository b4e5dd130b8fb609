"""Predictions, draws and validation of observations with known variances of their errors."""

import numpy as np
import pandas as pd
import pytest

import geomxp as gx
from geomxp import testing
from geomxp.estimation.bootstrap import simulated

MODEL = gx.Matern(1.7, 0.2, 0.8, 0.1)
HELD = tuple(MODEL.parameters())
N = 60


def observations(n=N, seed=0):
    random = np.random.default_rng(seed)
    places = testing.places(n, seed=seed)
    errors = random.random(n) * (np.arange(n) % 3 > 0)
    return gx.Observations(places, random.standard_normal(n), error_variance=errors)


def fitted(seen, method=None, model=MODEL, trend="linear"):
    return gx.fit(seen, model, method or gx.Exact(), fixed=HELD, trend=trend, progress=False)


def kriged(model, seen, places, design, at):
    """Universal kriging of the field by dense formulas: mean and variance."""
    sigma = model(seen.locations, seen.locations)
    sigma = sigma + np.diag(model.nugget + seen.error_variance)
    k = model(seen.locations, places)
    solved = np.linalg.solve(sigma, np.column_stack((seen.values, design, k)))
    p = design.shape[1]
    z, x, weights = solved[:, 0], solved[:, 1 : p + 1], solved[:, p + 1 :]
    information = design.T @ x
    beta = np.linalg.solve(information, design.T @ z)
    d = at - k.T @ x
    mean = at @ beta + k.T @ (z - x @ beta)
    variance = model.variance - np.einsum("ij,ij->j", k, weights)
    return mean, variance + np.einsum("ij,ij->i", d, np.linalg.solve(information, d.T).T)


def linear(places):
    return np.column_stack((np.ones(len(places)), places))


@pytest.mark.parametrize("neighbours", [None, N])
@pytest.mark.parametrize("method", [gx.Exact(), gx.Exact(tile=16), gx.Vecchia(N - 1)])
def test_kriging_is_that_of_dense_formulas(method, neighbours):
    seen = observations()
    places = np.vstack((testing.places(9, seed=5), seen.locations[:3]))
    found = gx.predict(fitted(seen, method), places, neighbours=neighbours)
    mean, variance = kriged(MODEL, seen, places, linear(seen.locations), linear(places))
    np.testing.assert_allclose(found.mean, mean, rtol=1e-10)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-10)
    np.testing.assert_array_equal(found.noise, 0.1)


def test_a_new_observation_has_the_error_that_is_given():
    fit, places = fitted(observations()), testing.places(4, seed=5)
    errors = np.array([0.0, 0.5, 1.0, 2.0])
    field = gx.predict(fit, places)
    found = gx.predict(fit, places, error_variance=errors)
    np.testing.assert_array_equal(found.mean, field.mean)
    np.testing.assert_array_equal(found.variance, field.variance)
    np.testing.assert_allclose(found.variance_of_observation, field.variance + 0.1 + errors)
    same = gx.predict(fit, gx.Inputs(places, error_variance=errors))
    np.testing.assert_array_equal(same.variance_of_observation, found.variance_of_observation)
    frame = pd.DataFrame(places, columns=["x", "y"]).assign(se=np.sqrt(errors), se2=errors)
    for column in ("se2", "I(se ** 2)"):
        named = gx.predict(fit, frame, error_variance=column)
        np.testing.assert_allclose(named.noise, found.noise, rtol=1e-14)
    with pytest.raises(gx.InvalidInput, match="no column 'se3'"):
        gx.predict(fit, frame, error_variance="se3")
    with pytest.raises(gx.InvalidInput, match="are a frame"):
        gx.predict(fit, places, error_variance="se2")
    with pytest.raises(gx.InvalidInput, match="at least 0"):
        gx.predict(fit, places, error_variance=-1.0)
    with pytest.raises(gx.InvalidInput, match="blocks have no `error_variance`"):
        gx.predict(fit, places, error_variance=1.0, block=0.1)


@pytest.mark.parametrize("method", [gx.Exact(), gx.Exact(tile=16), gx.Vecchia(N - 1)])
def test_leave_one_out_is_the_prediction_from_the_others(method):
    seen = observations()
    left_out = gx.leave_one_out(fitted(seen, method))
    for i in (0, 1, 2, 30):
        others = np.setdiff1d(np.arange(N), [i])
        rest, place = seen.subset(others), seen.locations[i : i + 1]
        mean, variance = kriged(MODEL, rest, place, linear(rest.locations), linear(place))
        assert left_out.mean[i] == pytest.approx(mean[0], rel=1e-9)
        noise = MODEL.nugget + seen.error_variance[i]
        assert left_out.variance[i] == pytest.approx(variance[0] + noise, rel=1e-9)
    folds = gx.cross_validate(fitted(seen, method), np.arange(N), refit=False)
    np.testing.assert_allclose(folds.mean, left_out.mean, rtol=1e-8)
    np.testing.assert_allclose(folds.variance, left_out.variance, rtol=1e-8)


@pytest.mark.parametrize("method", [None, gx.Vecchia(N + 7)])
def test_draws_have_the_mean_and_the_covariance_of_kriging(method):
    seen, places = observations(), testing.places(8, seed=5)
    fit = fitted(seen, method, trend="zero")
    draws = gx.simulate(fit, places, draws=4000, seed=1)
    expected = gx.predict(fit, places)
    spread = np.sqrt(expected.variance)
    assert np.abs((draws.mean(axis=0) - expected.mean) / spread).max() < 5 / np.sqrt(4000)
    assert np.abs(draws.var(axis=0) / expected.variance - 1).max() < 5 * np.sqrt(2 / 4000)
    noisy = gx.simulate(fit, places, 4000, 1, of="observation", error_variance=3.0)
    added = noisy.var(axis=0) - draws.var(axis=0)
    assert np.abs(added / 3.1 - 1).max() < 0.25


def test_draws_equal_observations_without_noise_only():
    places = testing.places(6)
    errors = np.array([0.0, 1.0, 0.0, 1.0, 0.0, 1.0])
    seen = gx.Observations(places, np.arange(6.0), error_variance=errors)
    fit = fitted(seen, model=MODEL.replace(nugget=0.0), trend="constant")
    equal = gx.simulate(fit, places, draws=3) == seen.values
    np.testing.assert_array_equal(equal, [errors == 0] * 3)


def test_simulated_observations_of_a_model_have_their_errors():
    places, errors = testing.places(5), np.array([0.0, 1.0, 2.0, 4.0, 8.0])
    inputs = gx.Inputs(places, error_variance=errors)
    draws = gx.simulate(MODEL, inputs, draws=5000)
    sigma = MODEL(places, places) + np.diag(0.1 + errors)
    allowed = 5 * np.sqrt((sigma**2 + np.outer(np.diag(sigma), np.diag(sigma))) / 5000)
    assert (np.abs(np.cov(draws.T) - sigma) < allowed).all()
    field = gx.simulate(MODEL, inputs, draws=2, of="field")
    np.testing.assert_array_equal(field, gx.simulate(MODEL, places, draws=2, of="field"))


def test_a_saved_fit_keeps_the_errors(tmp_path):
    fit = fitted(observations())
    fit.save(tmp_path / "fit.json")
    again = gx.Fit.load(tmp_path / "fit.json")
    np.testing.assert_array_equal(
        again.observations.error_variance, fit.observations.error_variance
    )
    place = [[0.3, 0.4]]
    assert gx.predict(again, place).mean == gx.predict(fit, place).mean


def test_a_table_has_a_column_of_errors_and_so_have_new_locations(tmp_path):
    seen, path = observations(), tmp_path / "table.csv"
    frame = pd.DataFrame(seen.locations, columns=["x", "y"])
    frame.assign(z=seen.values, se2=seen.error_variance).to_csv(path, index=False)
    read = gx.read_table(path, locations=("x", "y"), values="z", error_variance="se2")
    np.testing.assert_array_equal(read.error_variance, seen.error_variance)
    fit = fitted(read)
    fit.save(tmp_path / "fit.json")
    again = gx.Fit.load(tmp_path / "fit.json")
    new = pd.DataFrame({"x": [0.1, 0.2], "y": [0.5, 0.6], "se2": [0.0, 4.0]})
    found = gx.predict(again, new)
    np.testing.assert_allclose(found.noise, [0.1, 4.1])
    mean = gx.read_table(
        path, locations=("x", "y"), values="z", error_variance="se2", duplicates="mean"
    )
    np.testing.assert_array_equal(mean.error_variance, seen.error_variance)


def test_the_mean_of_duplicates_has_the_error_of_a_mean():
    frame = pd.DataFrame(
        {"x": [0.0, 1.0, 2.0, 0.0], "z": [1.0, 2.0, 3.0, 5.0], "v": [1, 2, 3, 5.0]}
    )
    seen = gx.Observations.from_frame(
        frame, locations=("x",), values="z", error_variance="v", duplicates="mean"
    )
    np.testing.assert_array_equal(seen.values, [3.0, 2.0, 3.0])
    np.testing.assert_array_equal(seen.error_variance, [6.0 / 4, 2.0, 3.0])
    np.testing.assert_array_equal(seen.replicates, [2.0, 1.0, 1.0])


def test_bootstrap_and_small_sample_inference_use_the_errors():
    places, errors = testing.places(80), np.linspace(0.0, 2.0, 80)
    z = gx.simulate(MODEL, gx.Inputs(places, error_variance=errors), seed=2)[0]
    seen, held = gx.Observations(places, z, error_variance=errors), ("smoothness", "nugget")
    fit = gx.fit(seen, gx.Matern(1.0, 0.2, 0.8, 0.1), fixed=held, trend="x", progress=False)
    draws = np.array(simulated(fit, 3000, 0))
    expected = fit.model.variance + 0.1 + seen.error_variance
    assert np.abs(draws.var(axis=0) / expected - 1).max() < 6 * np.sqrt(2 / 3000)
    table = fit.coefficient_table()
    assert (table.standard_error > 0.9 * fit.coefficient_errors).all()
