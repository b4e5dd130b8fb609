from dataclasses import replace

import numpy as np
import pytest

import geomxp as gx
from geomxp import testing
from geomxp.prediction import kriging


def held(seen, model, method=None, trend="linear", reml=False):
    return gx.fit(seen, model, method, fixed=tuple(model.parameters()), trend=trend, reml=reml)


MODELS = {
    "plane": testing.MODEL,
    "anisotropic": gx.Matern(1.7, 0.2, 1.5, 0.1, (30.0, 0.6)),
    "no nugget": gx.Matern(1.7, 0.2, 0.5),
}


@pytest.mark.parametrize("trend", ["zero", "constant", "linear"])
@pytest.mark.parametrize("name", MODELS)
def test_prediction_from_all_observations_is_kriging(name, trend):
    seen, model = testing.observations(), MODELS[name]
    there = np.vstack((testing.places(7, seed=9), seen.locations[:2], [[30.0, -20.0]]))
    exact = gx.predict(held(seen, model, trend=trend), there)
    ours = gx.predict(held(seen, model, gx.Vecchia(59), trend), there, neighbours=100)
    allowed = 1e-13 * testing.condition_number(model, seen)
    np.testing.assert_allclose(ours.mean, exact.mean, rtol=0, atol=100 * allowed)
    np.testing.assert_allclose(ours.variance, exact.variance, rtol=100 * allowed, atol=allowed)


@pytest.mark.parametrize("metric", ["chordal", "great-circle"])
def test_prediction_on_the_sphere_is_kriging(metric):
    random = np.random.default_rng(3)
    places = np.column_stack((170 + 20 * random.random(60), -30 + 20 * random.random(60)))
    seen = gx.Observations(places[:50], random.standard_normal(50), metric=metric)
    model = gx.Matern(2.0, 900.0, 0.4, 0.1)
    exact = gx.predict(held(seen, model, trend="constant"), places[50:])
    ours = gx.predict(held(seen, model, gx.Vecchia(49), "constant"), places[50:])
    np.testing.assert_allclose(ours.mean, exact.mean, rtol=0, atol=1e-11)
    np.testing.assert_allclose(ours.variance, exact.variance, rtol=1e-11)


def test_more_neighbours_predict_more_like_all():
    places, model = testing.places(400, seed=2), gx.Matern(1.0, 0.2, 0.8, 0.05)
    values = gx.simulate(model, places, seed=3)[0]
    seen, there = gx.Observations(places[:350], values[:350]), places[350:]
    exact = gx.predict(held(seen, model), there)
    fit = held(seen, model, gx.Vecchia(30))
    worst = [
        np.abs(gx.predict(fit, there, neighbours=m).mean - exact.mean).max() for m in (5, 20, 80)
    ]
    assert worst[0] > worst[1] > worst[2]
    # fewer data never make a prediction better
    few = gx.predict(fit, there, neighbours=20)
    assert (few.variance > exact.variance * (1 - 1e-6)).all()


def test_chunks_of_places_change_nothing(monkeypatch):
    fit = held(testing.observations(), testing.MODEL, gx.Vecchia(10))
    there = testing.places(50, seed=3)
    whole = gx.predict(fit, there)
    monkeypatch.setattr(kriging, "CHUNK_TARGETS", 7)
    pieces = gx.predict(fit, there)
    np.testing.assert_allclose(pieces.mean, whole.mean, rtol=1e-13)
    np.testing.assert_allclose(pieces.variance, whole.variance, rtol=1e-13)


def test_neighbours_that_make_no_sense_are_refused():
    seen = testing.observations()
    with pytest.raises(gx.InvalidInput, match="`neighbours` must be a whole number"):
        gx.predict(held(seen, testing.MODEL, gx.Vecchia(5)), [[0.1, 0.2]], neighbours=0)


@pytest.mark.parametrize("method", [gx.Exact(), gx.Vecchia(30)])
@pytest.mark.parametrize("trend", ["zero", "linear"])
def test_draws_given_observations_have_the_mean_and_covariance_of_kriging(method, trend):
    seen, model, draws = testing.observations(), testing.MODEL, 20_000
    there = testing.places(6, seed=9)
    fit = replace(held(seen, model, trend=trend), method=method)
    expected = gx.predict(replace(fit, method=gx.Exact()), there)
    # 30 of the nearest stand for all to a thousandth of a standard deviation
    z = gx.simulate(fit, np.vstack((there, there[:2])), draws, seed=5)
    np.testing.assert_array_equal(z.shape, (draws, 8))
    np.testing.assert_allclose(z[:, 6:], z[:, :2], atol=1e-6)
    error = (z[:, :6].mean(axis=0) - expected.mean) / np.sqrt(expected.variance / draws)
    assert np.abs(error).max() < 5
    spread = (z[:, :6].var(axis=0) / expected.variance - 1) / np.sqrt(2 / draws)
    assert np.abs(spread).max() < 5


@pytest.mark.parametrize("method", [gx.Exact(), gx.Vecchia(20)])
def test_without_a_nugget_draws_pass_through_the_observations(method):
    seen = testing.observations()
    fit = replace(held(seen, gx.Matern(1.7, 0.2, 0.5), trend="constant"), method=method)
    there = np.vstack((seen.locations[5:8], testing.places(3, seed=2)))
    z = gx.simulate(fit, there, 4, seed=1)
    np.testing.assert_allclose(z[:, :3], np.tile(seen.values[5:8], (4, 1)), atol=1e-6)
    assert z[:, 3:].std(axis=0).min() > 0.01
    np.testing.assert_array_equal(z, gx.simulate(fit, there, 4, seed=1))


def test_draws_of_vecchia_have_its_covariance():
    places, draws = testing.places(8), 40_000
    method = gx.Vecchia(3)
    z = gx.simulate(testing.MODEL, places, draws, seed=1, method=method)
    seen = gx.Observations(places, np.zeros(8))
    sigma = np.linalg.inv(method.prepare(seen).factorize(testing.MODEL).solve(np.eye(8)))
    allowed = 5 * np.sqrt((np.outer(np.diag(sigma), np.diag(sigma)) + sigma**2) / draws)
    assert (np.abs(z.T @ z / draws - sigma) < allowed).all()


def test_draws_for_a_trend_with_covariates_need_them():
    seen = testing.observations()
    seen = gx.Observations(seen.locations, seen.values, np.arange(60.0))
    fit = held(seen, testing.MODEL, gx.Vecchia(10), "covariates")
    with pytest.raises(gx.InvalidInput, match="the trend needs 1 covariates"):
        gx.simulate(fit, [[0.5, 0.5]])
    assert gx.simulate(fit, [[0.5, 0.5]], covariates=[[3.0]]).shape == (1, 1)


def field(n=400, model=None, seed=6):
    places = testing.places(n, seed=seed)
    return gx.Observations(places, 5 + gx.simulate(model or testing.MODEL, places, seed=7)[0])


@pytest.mark.slow
@pytest.mark.parametrize("reml", [False, True])
def test_a_fit_with_all_predecessors_is_the_exact_fit(reml):
    seen = field(120)
    exact, ours = (gx.fit(seen, None, method, reml=reml) for method in (None, gx.Vecchia(119)))
    assert ours.outcome.ending == exact.outcome.ending == "CONVERGED"
    assert ours.log_likelihood == pytest.approx(exact.log_likelihood, abs=1e-6)
    for name, error in exact.standard_errors.items():
        assert ours.standard_errors[name] == pytest.approx(error, rel=1e-3)
        assert abs(getattr(ours.model, name) - getattr(exact.model, name)) < 0.01 * error


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"fixed": {"smoothness": 0.5}},
        {"bounds": {"smoothness": (0.1, 0.6)}},
        {"bounds": {"variance": (0.5, 4.0)}},
        {"anisotropy": True},
        {"fixed": {"nugget": 0.1}, "trend": "linear", "reml": True},
    ],
    ids=str,
)
def test_fisher_scoring_finds_what_a_search_without_derivatives_finds(options):
    seen = field()
    scored = gx.fit(seen, None, gx.Vecchia(10), **options)
    searched = gx.fit(seen, None, gx.Vecchia(10), search="bobyqa", **options)
    assert scored.outcome.ending == searched.outcome.ending
    assert scored.log_likelihood >= searched.log_likelihood - 1e-6


def test_a_fit_goes_to_a_nugget_of_0_where_the_data_show_no_noise():
    fit = gx.fit(field(model=gx.Matern(1.7, 0.2, 0.5)), None, gx.Vecchia(10))
    assert fit.outcome.ending == "CONVERGED"
    assert fit.model.nugget < 1e-2


def test_a_fit_is_saved_loaded_and_says_how_it_was_made(tmp_path):
    order = np.random.default_rng(1).permutation(60)
    for method in (gx.Vecchia(5, "morton"), gx.Vecchia(7, order)):
        fit = held(testing.observations(), testing.MODEL, method)
        fit.save(tmp_path / "fit.json")
        again = gx.Fit.load(tmp_path / "fit.json")
        assert again.method == method
        there = testing.places(3, seed=2)
        np.testing.assert_array_equal(gx.predict(again, there).mean, gx.predict(fit, there).mean)
        assert fit.to_dict()["method"]["neighbours"] == method.neighbours
        assert f"Vecchia's approximation, {method.neighbours} neighbours" in str(fit)


def test_draws_of_few_observations_with_enough_neighbours_are_exact():
    where, new = testing.places(6, seed=1), testing.places(40, seed=2)
    model = gx.Matern(1.0, 0.3, 1.5, 0.01)
    seen = gx.Observations(where, gx.simulate(model, where, seed=1)[0])
    exact, vecchia = (
        gx.fit(seen, model, method, fixed=tuple(model.parameters()), trend="zero")
        for method in (gx.Exact(), gx.Vecchia(40))
    )
    draws = gx.simulate(vecchia, new, draws=20_000, seed=3)
    # six standard errors
    tolerance = 6 * (2 / 20_000) ** 0.5
    np.testing.assert_allclose(
        np.cov(draws.T), gx.prediction_covariance(exact, new), atol=tolerance
    )
    np.testing.assert_allclose(draws.mean(axis=0), gx.predict(exact, new).mean, atol=tolerance)
