from dataclasses import replace

import numpy as np
import pytest

import geomxp as gx
from geomxp import testing
from geomxp.prediction.simulate import lay_out


def test_draws_have_the_covariance_of_the_model():
    places, draws = testing.places(6), 40_000
    z = gx.simulate(testing.MODEL, places, draws, seed=1)
    sigma = testing.MODEL(places, places) + testing.MODEL.nugget * np.eye(6)
    # standard deviation of a sample covariance: √((σ_ii σ_jj + σ_ij²)/draws)
    allowed = 5 * np.sqrt((np.outer(np.diag(sigma), np.diag(sigma)) + sigma**2) / draws)
    assert (np.abs(z.T @ z / draws - sigma) < allowed).all()


def test_the_same_seed_gives_the_same_field_and_another_does_not():
    places = testing.places(30)
    first, again = (gx.simulate(testing.MODEL, places, 2, seed=7) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, gx.simulate(testing.MODEL, places, 2, seed=8))


@pytest.mark.parametrize(
    ("name", "length"), [("weak", 0.02627), ("medium", 0.078809), ("strong", 0.210158)]
)
def test_shipped_fields_are_what_their_readme_says(name, length):
    seen = gx.datasets.load(name)
    places = lay_out(1600, "jittered", 1600)
    np.testing.assert_array_equal(seen.locations, places)
    field = gx.simulate(gx.Matern(1.0, length, 0.5), places, seed=1600)[0]
    # another LAPACK may round differently
    np.testing.assert_allclose(seen.values, field, rtol=0, atol=1e-10)


def test_layouts_fill_the_unit_square():
    grid = lay_out(16, "grid")
    assert sorted(set(grid[:, 0])) == [0.125, 0.375, 0.625, 0.875]
    jittered = lay_out(16, "jittered", 3)
    assert (np.abs(jittered - grid) <= 0.1).all()
    assert not np.array_equal(jittered, grid)
    uniform = lay_out(17, "uniform", 3)
    assert uniform.shape == (17, 2)
    assert ((uniform >= 0) & (uniform < 1)).all()


def held(seen, model, trend="linear", method=None):
    return gx.fit(seen, model, method, fixed=tuple(model.parameters()), trend=trend)


def conditional(fit, places):
    """Mean and covariance matrix of the field given a fit's observations, by dense formulas."""
    seen, model = fit.observations, fit.model
    sigma = model(seen.locations, seen.locations) + model.nugget * np.eye(len(seen))
    k = model(seen.locations, places)
    x, x0 = fit.trend.design(seen.locations), fit.trend.design(places)
    solve = np.linalg.solve
    spread = np.linalg.inv(x.T @ solve(sigma, x))
    beta = spread @ x.T @ solve(sigma, seen.values)
    apart = x0 - k.T @ solve(sigma, x)
    mean = x0 @ beta + k.T @ solve(sigma, seen.values - x @ beta)
    return mean, model(places, places) - k.T @ solve(sigma, k) + apart @ spread @ apart.T


def check_moments(z, mean, covariance):
    """Sample mean and covariance lie within five of their standard deviations."""
    draws, variance = len(z), np.diag(covariance)
    assert (np.abs(z.mean(axis=0) - mean) < 5 * np.sqrt(variance / draws)).all()
    allowed = 5 * np.sqrt((np.outer(variance, variance) + covariance**2) / draws)
    assert (np.abs(np.cov(z.T) - covariance) < allowed).all()


@pytest.mark.parametrize("of", ["field", "observation"])
@pytest.mark.parametrize("method", [gx.Exact(), gx.Vecchia(59)])
def test_conditional_draws_have_the_joint_moments_of_kriging(method, of):
    """With all for neighbours Vecchia's draws are exact too."""
    seen, model = testing.observations(), testing.MODEL
    there = np.vstack((testing.places(6, seed=9), seen.locations[:1]))
    fit = replace(held(seen, model), method=method)
    mean, covariance = conditional(fit, there)
    if of == "observation":
        covariance = covariance + model.nugget * np.eye(7)
    check_moments(gx.simulate(fit, there, 20_000, seed=5, of=of), mean, covariance)


@pytest.mark.parametrize("trend", ["zero", "linear"])
@pytest.mark.parametrize("method", [gx.Exact(), gx.Vecchia(20)])
def test_without_a_nugget_draws_are_the_observations_to_the_bit(method, trend):
    seen = testing.observations()
    fit = replace(held(seen, gx.Matern(1.7, 0.2, 0.5), trend), method=method)
    new = testing.places(3, seed=2)
    there = np.vstack((seen.locations[5:8], new, new[:1], seen.locations[5:6]))
    for of in ("field", "observation"):
        z = gx.simulate(fit, there, 4, seed=1, of=of)
        expected = np.tile(seen.values[[5, 6, 7, 5]], (4, 1))
        np.testing.assert_array_equal(z[:, [0, 1, 2, 7]], expected)
        # one place has one value
        np.testing.assert_allclose(z[:, 6], z[:, 3], rtol=1e-15)
        assert z[:, 3:6].std(axis=0).min() > 0.01
    alone = gx.simulate(fit, seen.locations, 2, seed=1)
    np.testing.assert_array_equal(alone, np.tile(seen.values, (2, 1)))


@pytest.mark.parametrize("method", [gx.Exact(), gx.Vecchia(20)])
def test_an_observed_place_with_other_covariates_has_another_trend(method):
    seen = testing.observations()
    seen = gx.Observations(seen.locations, seen.values, np.arange(60.0))
    fit = replace(held(seen, gx.Matern(1.7, 0.2, 0.5), "covariates"), method=method)
    there = seen.locations[:2]
    same = gx.simulate(fit, there, 3, seed=1, covariates=[[0.0], [1.0]])
    np.testing.assert_array_equal(same, np.tile(seen.values[:2], (3, 1)))
    other = gx.simulate(fit, there, 20_000, seed=1, covariates=[[0.0], [3.0]])
    np.testing.assert_array_equal(other[:, 0], seen.values[0])
    error = np.sqrt(4 * fit.coefficient_covariance[1, 1])
    expected = seen.values[1] + 2 * fit.coefficients[1]
    assert abs(other[:, 1].mean() - expected) < 5 * error / np.sqrt(20_000)
    assert other[:, 1].std() == pytest.approx(error, rel=5 / np.sqrt(40_000))


@pytest.mark.parametrize(
    ("method", "allowed"),
    [
        (gx.Exact(tile=16), 1e-11),
        (gx.Exact(gx.by_tile_norm(1e-9), tile=16), 1e-5),
        (gx.Exact(gx.by_tile_norm(1e-4), tile=16, refine="gmres"), 1e-9),
    ],
)
def test_conditional_draws_are_the_same_however_they_are_computed(method, allowed):
    fit, there = held(testing.observations(), testing.MODEL), testing.places(9, seed=3)
    plain = gx.simulate(fit, there, 3, seed=2)
    np.testing.assert_allclose(
        gx.simulate(fit, there, 3, seed=2, method=method), plain, rtol=0, atol=allowed
    )


def test_two_observations_of_one_place_differ_by_their_noise():
    fit = held(testing.observations(), testing.MODEL)
    z = gx.simulate(fit, [[0.3, 0.4], [0.3, 0.4]], 20_000, seed=3, of="observation")
    spread = (z[:, 0] - z[:, 1]).var() / (2 * testing.MODEL.nugget)
    assert abs(spread - 1) < 5 * np.sqrt(2 / 20_000)
    field = gx.simulate(fit, [[0.3, 0.4], [0.3, 0.4]], 5, seed=3)
    np.testing.assert_array_equal(field[:, 0], field[:, 1])


def test_a_models_field_has_no_noise():
    places, model = testing.places(6), testing.MODEL
    z = gx.simulate(model, places, 40_000, seed=1, of="field")
    check_moments(z, np.zeros(6), model(places, places))
    np.testing.assert_array_equal(
        gx.simulate(model, places, 2, seed=1, of="observation"),
        gx.simulate(model, places, 2, seed=1),
    )


def test_fields_that_observations_all_but_determine_are_drawn():
    """Where the conditional covariance has no Cholesky factor its symmetric root stands in."""
    x = np.linspace(0, 1, 12)[:, None]
    seen = gx.Observations(x, np.sin(3 * x[:, 0]))
    fit = held(seen, gx.Matern(1.0, 0.5, 4.5), "zero")
    there = np.linspace(0.3, 0.7, 80)[:, None]
    found = gx.predict(fit, there)
    z = gx.simulate(fit, there, 200, seed=1)
    # the root of rounding: √(n u κ) is far below what is known
    assert np.abs(z.mean(axis=0) - found.mean).max() < 1e-5
    assert z.std(axis=0).max() < 1e-5


def test_too_many_places_are_told_to_be_drawn_by_vecchia(monkeypatch):
    fit = held(testing.observations(), testing.MODEL)
    monkeypatch.setattr("geomxp.likelihood.factors.free_memory", lambda: 2**28)
    with pytest.raises(gx.NotEnoughMemory, match=r"method=Vecchia\(30\)"):
        gx.simulate(fit, testing.places(20_000, seed=3))
    assert gx.simulate(fit, testing.places(2000, seed=3), method=gx.Vecchia(5)).shape == (1, 2000)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lay_out(10, "grid"), "square number of locations. Got 10; try 9"),
        (lambda: lay_out(9, "hexagonal"), "`layout` must be one of"),
        (lambda: lay_out(0), "`n` must be"),
        (lambda: gx.simulate(testing.MODEL, testing.places(5), 0), "`draws` must be"),
        (lambda: gx.simulate(testing.MODEL, [[0.0, 100.0]], metric="chordal"), "latitudes"),
        (lambda: gx.simulate(testing.MODEL, testing.places(5), of="trend"), "`of` must be"),
    ],
)
def test_wrong_layouts_are_named(call, message):
    with pytest.raises(gx.InvalidInput, match=message):
        call()


def test_methods_and_targets_of_the_wrong_kind_are_refused():
    model, places = gx.Matern(1.0, 0.1, 0.5), testing.places(9)
    with pytest.raises(gx.InvalidInput, match="`method` must be a method such as"):
        gx.simulate(model, places, method=3)
    with pytest.raises(gx.InvalidInput, match="`of` must be"):
        gx.simulate(model, places, of=np.zeros(3))


def test_flags_that_are_tables_are_refused():
    seen = gx.Observations(testing.places(9), np.arange(9.0))
    model = gx.Matern(1.0, 0.3, 0.5, 0.1)
    fit = gx.fit(seen, model, fixed=tuple(model.parameters()))
    for call in (
        lambda: gx.predict(fit, testing.places(2), local_trend=np.ones(3)),
        lambda: gx.predict_raster(fit, block=np.ones(3)),
        lambda: gx.cross_validate(fit, refit=np.ones(3)),
        lambda: gx.fit(seen, reml=np.ones(3)),
        lambda: gx.log_likelihood(seen, model, reml=np.ones(3)),
        lambda: gx.Exact(fallback=np.ones(3)),
    ):
        with pytest.raises(gx.InvalidInput, match="must be True or False"):
            call()


def test_draws_that_do_not_fit_the_memory_are_refused():
    with pytest.raises(
        gx.NotEnoughMemory, match=r"1,000,000,000 draws at 5 locations need 120\.0 GB"
    ):
        gx.simulate(gx.Matern(1.0, 1.0, 1.0), testing.places(5), draws=10**9)
