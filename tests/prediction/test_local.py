from dataclasses import replace

import numpy as np
import pytest

import geomxp as gx
from geomxp import testing
from geomxp.prediction import kriging

MODELS = {
    "plane": testing.MODEL,
    "anisotropic": gx.Matern(1.7, 0.2, 1.5, 0.1, (30.0, 0.3)),
    "no nugget": gx.Matern(1.7, 0.2, 0.5),
}
TRENDS = ("zero", "constant", "linear", "x + I(y**2)")


def held(seen, model=testing.MODEL, trend="linear", method=None):
    return gx.fit(seen, model, method, fixed=tuple(model.parameters()), trend=trend)


def targets(seen):
    """New places, observed ones, and one far away."""
    return np.vstack((testing.places(7, seed=9), seen.locations[:2], [[30.0, -20.0]]))


@pytest.mark.slow
@pytest.mark.parametrize("local_trend", [False, True])
@pytest.mark.parametrize("trend", TRENDS)
@pytest.mark.parametrize("name", MODELS)
def test_all_observations_as_neighbours_are_kriging(name, trend, local_trend):
    seen, model = testing.observations(), MODELS[name]
    fit = held(seen, model, trend)
    there, whole = targets(seen), gx.predict(fit, targets(seen))
    ours = gx.predict(fit, there, neighbours=100, local_trend=local_trend)
    allowed = 1e-13 * testing.condition_number(model, seen)
    np.testing.assert_allclose(ours.mean, whole.mean, rtol=1e-10, atol=100 * allowed)
    np.testing.assert_allclose(ours.variance, whole.variance, rtol=100 * allowed, atol=allowed)


@pytest.mark.slow
@pytest.mark.parametrize("trend", TRENDS)
@pytest.mark.parametrize("name", MODELS)
def test_a_local_trend_is_kriging_with_the_neighbours_alone(name, trend):
    seen, model, count = testing.observations(), MODELS[name], 20
    there = testing.places(6, seed=9)
    found = gx.predict(held(seen, model, trend), there, neighbours=count, local_trend=True)
    points = model.isotropic(seen.locations)
    for i, place in enumerate(model.isotropic(there)):
        near = np.argsort(np.linalg.norm(points - place, axis=1))[:count]
        alone = gx.predict(held(seen.subset(near), model, trend), there[i : i + 1])
        assert found.mean[i] == pytest.approx(alone.mean[0], rel=1e-8, abs=1e-9)
        assert found.variance[i] == pytest.approx(alone.variance[0], rel=1e-8, abs=1e-10)


def test_neighbours_are_the_nearest_where_the_model_is_isotropic():
    """Along the longest range they reach further."""
    seen, model = testing.observations(), gx.Matern(1.7, 0.5, 0.5, 0.1, (0.0, 0.1))
    there = np.array([[0.5, 0.5]])
    found = gx.predict(held(seen, model, "zero"), there, neighbours=6)
    near = np.argsort(np.hypot(*((seen.locations - there) * [1.0, 10.0]).T))[:6]
    assert set(near) != set(np.argsort(np.hypot(*(seen.locations - there).T))[:6])
    alone = gx.predict(held(seen.subset(near), model, "zero"), there)
    assert found.mean[0] == pytest.approx(alone.mean[0], rel=1e-10)


def test_the_trend_is_that_of_all_observations_unless_asked():
    """Far away a global trend goes on, and its error is that of β̂."""
    seen = testing.observations()
    fit, far = held(seen, trend="constant"), [[1e6, 1e6]]
    found = gx.predict(fit, far, neighbours=5)
    assert found.mean[0] == pytest.approx(fit.coefficients[0], rel=1e-12)
    spread = fit.coefficient_covariance[0, 0]
    assert found.variance[0] == pytest.approx(testing.MODEL.variance + spread, rel=1e-12)
    alone = gx.predict(fit, far, neighbours=5, local_trend=True)
    assert alone.variance[0] > found.variance[0]


@pytest.mark.parametrize("metric", ["chordal", "great-circle"])
def test_local_kriging_on_the_sphere(metric):
    random = np.random.default_rng(3)
    places = np.column_stack((170 + 20 * random.random(60), -30 + 20 * random.random(60)))
    seen = gx.Observations(places[:50], random.standard_normal(50), metric=metric)
    fit = held(seen, gx.Matern(2.0, 900.0, 0.4, 0.1), "constant")
    whole = gx.predict(fit, places[50:])
    for local_trend in (False, True):
        ours = gx.predict(fit, places[50:], neighbours=50, local_trend=local_trend)
        np.testing.assert_allclose(ours.mean, whole.mean, rtol=0, atol=1e-11)
        np.testing.assert_allclose(ours.variance, whole.variance, rtol=1e-11)


@pytest.mark.parametrize("local_trend", [False, True])
def test_chunks_of_targets_change_nothing(monkeypatch, local_trend):
    fit, there = held(testing.observations()), testing.places(50, seed=3)
    whole = gx.predict(fit, there, neighbours=12, local_trend=local_trend)
    monkeypatch.setattr(kriging, "CHUNK_TARGETS", 7)
    pieces = gx.predict(fit, there, neighbours=12, local_trend=local_trend)
    np.testing.assert_allclose(pieces.mean, whole.mean, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(pieces.variance, whole.variance, rtol=1e-12)


def test_columns_of_very_different_sizes_are_told_apart_by_neighbours():
    """Coordinates in metres, far from the origin, leave the local trend its digits."""
    seen, there = testing.observations(), testing.places(5, seed=9)
    plain = gx.predict(held(seen), there, neighbours=20, local_trend=True)
    model = replace(testing.MODEL, range=1000 * testing.MODEL.range)
    moved = gx.Observations(seen.locations * 1000 + 5e6, seen.values)
    found = gx.predict(held(moved, model), there * 1000 + 5e6, neighbours=20, local_trend=True)
    # a coordinate near 5e6 has 1e-9 of a range
    np.testing.assert_allclose(found.mean, plain.mean, rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.variance, plain.variance, rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"neighbours": 0}, "`neighbours` must be a whole number of at least 1"),
        ({"neighbours": 2.5}, "`neighbours` must be a whole number"),
        ({"local_trend": True}, "`local_trend` needs `neighbours`"),
        ({"neighbours": 2, "local_trend": True}, "location 1 do not determine the trend's"),
    ],
)
def test_wrong_neighbourhoods_are_named(arguments, message):
    with pytest.raises(gx.InvalidInput, match=message):
        gx.predict(held(testing.observations()), [[0.1, 0.2]], **arguments)


def test_neighbours_on_a_line_do_not_determine_a_plane():
    places = np.vstack(
        (np.column_stack((np.arange(10.0), np.zeros(10))), [[0.0, 90.0], [5.0, 99.0]])
    )
    seen = gx.Observations(places, np.arange(12.0) ** 0.5)
    fit = held(seen, gx.Matern(1.0, 3.0, 0.5, 0.1))
    with pytest.raises(
        gx.InvalidInput, match=r"location 2 do not determine .* \(1 such locations\)"
    ):
        gx.predict(fit, [[5.0, 60.0], [4.0, 0.5]], neighbours=6, local_trend=True)


def test_what_local_kriging_cannot_do_is_said():
    seen = testing.observations()
    smooth = held(seen, gx.Matern(1.0, 0.01, 60.0, 0.1), "zero")
    with pytest.raises(gx.InvalidInput, match="`smoothness` must be at most 50"):
        gx.predict(smooth, [[0.1, 0.2]], neighbours=5)
    twins = gx.Observations(np.vstack((seen.locations, seen.locations[:1])), np.arange(61.0))
    fit = replace(held(twins), model=gx.Matern(1.7, 0.2, 0.8))
    with pytest.raises(gx.NotPositiveDefinite, match="rows 1 and 61 are at the same location"):
        gx.predict(fit, [[0.1, 0.2]], neighbours=5)
    flat = replace(held(seen), model=gx.Matern(1.0, 1e4, 5.0))
    with pytest.raises(gx.NotPositiveDefinite, match="near location 1 is not positive definite"):
        gx.predict(flat, [[0.1, 0.2]], neighbours=30)
