"""Space-time families: formulas, derivatives, limits, validity, and every way to evaluate them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import mpmath
import numpy as np
import pytest
import scipy

import geomxp as gx
from geomxp import testing
from geomxp.covariance import generate, pairs_numpy
from geomxp.covariance.ordering import maximin
from geomxp.vecchia.blocks import LocalPasses, Neighbours, wanted_for

MODELS = {
    "matern-space-time": gx.MaternSpaceTime(2.0, 0.4, 2.0, 0.8, 0.1),
    "separable": gx.Separable(2.0, 0.4, 2.0, 0.8, 1.3, 0.1),
    "gneiting": gx.Gneiting(2.0, 0.4, 2.0, 0.8, 0.6, 0.7, 0.3, 0.1),
}
GPBOOST = json.loads((Path(__file__).parents[1] / "references" / "space_time.json").read_text())
each_family = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


def inputs(n=25, d=2, seed=0, metric="euclidean"):
    """Locations and times, some of which are equal."""
    random = np.random.default_rng(seed)
    locations = random.random((n, d)) * (1.0 if metric == "euclidean" else 40.0)
    locations[5:8] = locations[4]
    return gx.Inputs(locations, metric, time=np.round(random.random(n) * 6, 1))


def lags(a):
    """Distances and lags in time, (n, n)."""
    distances = scipy.spatial.distance.cdist(a.points, a.points)
    return distances, np.abs(np.subtract.outer(a.time, a.time))


def matern(nu, r):
    """Matérn's correlation, in the digits of mpmath."""
    if r == 0:
        return mpmath.mpf(1)
    return mpmath.mpf(2) ** (1 - nu) / mpmath.gamma(nu) * r**nu * mpmath.besselk(nu, r)


def by_formula(model, h, u, dimensions):
    """The covariance at one distance and lag, in the digits of mpmath."""
    h, u = mpmath.mpf(h) / model.range, mpmath.mpf(u) / model.time_range
    if model.family == "matern-space-time":
        return model.variance * matern(model.smoothness, mpmath.sqrt(h**2 + u**2))
    if model.family == "separable":
        in_time = matern(model.time_smoothness, u)
        return model.variance * matern(model.smoothness, h) * in_time
    psi = 1 + u ** (2 * mpmath.mpf(model.time_power))
    decay = psi ** -(model.time_decay + mpmath.mpf(model.interaction) * dimensions / 2)
    stretched = h / psi ** (mpmath.mpf(model.interaction) / 2)
    return model.variance * decay * matern(model.smoothness, stretched)


@pytest.mark.slow
@each_family
@pytest.mark.parametrize(("d", "metric"), [(1, "euclidean"), (2, "euclidean"), (2, "chordal")])
def test_covariances_are_those_of_the_formula(model, d, metric):
    n = 10
    a = inputs(n, d=d, metric=metric)
    model = model if metric == "euclidean" else model.replace(range=900.0)
    distances, times = lags(a)
    expected = np.empty((n, n))
    with mpmath.workdps(20):
        for i, k in zip(*np.tril_indices(n), strict=True):
            value = by_formula(model, distances[i, k], times[i, k], a.points.shape[1])
            expected[i, k] = expected[k, i] = float(value)
    np.testing.assert_allclose(model(a, a), expected, rtol=0, atol=1e-15 * model.variance)
    single = np.empty(expected.shape, np.float32, order="F")
    model.pairs(a).write("correlation", slice(0, n), slice(0, n), single)
    np.testing.assert_allclose(single, expected, rtol=0, atol=3e-7 * model.variance)


@each_family
def test_derivatives_are_slopes(model):
    a = inputs()
    found = model.derivatives(a, a)
    assert list(found) == [name for name in model.parameters() if name != "nugget"]
    for name, block in found.items():
        value = model.parameters()[name]
        step = 1e-4 * value
        at = {k: model.replace(**{name: value + k * step})(a, a) for k in (-2, -1, 1, 2)}
        slope = (8 * (at[1] - at[-1]) - (at[2] - at[-2])) / (12 * step)
        np.testing.assert_allclose(block, slope, rtol=0, atol=1e-9, err_msg=name)


@each_family
def test_numpys_loops_and_formulas_have_the_same_values(model, monkeypatch):
    a = inputs(60)
    expected, slopes = model(a, a), model.derivatives(a, a)
    monkeypatch.setattr(type(model), "tabulated", False)
    np.testing.assert_allclose(model(a, a), expected, rtol=0, atol=1e-12)
    for name, block in model.derivatives(a, a).items():
        np.testing.assert_allclose(block, slopes[name], rtol=0, atol=1e-10, err_msg=name)
    monkeypatch.undo()
    monkeypatch.setattr(generate, "loops", lambda: pairs_numpy)
    np.testing.assert_allclose(model(a, a), expected, rtol=0, atol=1e-15)


@each_family
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_functions_of_few_times_have_the_bits_of_those_of_each_pair(model, dtype, monkeypatch):
    a = gx.Inputs(inputs(200).locations, time=np.arange(200) % 7 * 0.3)
    b, found = a[np.arange(30)], []
    for most in (1024, 6):
        monkeypatch.setattr(generate, "MOST_TIMES", most)
        pairs = model.pairs(a, b)
        block = np.zeros((150, 30), dtype, order="F")
        pairs.write("correlation", slice(20, 170), slice(0, 30), block)
        found.append(block)
        assert (pairs._different is None) == (most == 6)
    np.testing.assert_array_equal(*found)


@each_family
def test_tables_are_extended_to_close_times_and_locations(model):
    locations = np.array([[0.0, 0.0], [1e-9, 0.0], [1.0, 1.0], [0.0, 0.0]])
    a = gx.Inputs(locations, time=np.array([0.0, 0.0, 5.0, 1e-8]))
    part = model.pairs(a[[2, 3]], a[[0, 1]])
    np.testing.assert_allclose(part.covariance(), model(a, a)[2:, :2], rtol=0, atol=1e-15)


@pytest.mark.gpu
@each_family
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_gpu_writes_the_bits_of_the_cpu(model, dtype):
    import cupy

    a, whole = inputs(150), slice(0, 150)
    pairs = model.pairs(a)
    expected = np.empty((150, 150), dtype, order="F")
    out = cupy.empty((150, 150), dtype, order="F")
    pairs.write("correlation", whole, whole, expected)
    pairs.write_on_gpu("correlation", whole, whole, out)
    np.testing.assert_array_equal(cupy.asnumpy(out), expected)


@pytest.mark.slow
@pytest.mark.gpu
@each_family
@pytest.mark.parametrize("tile", [None, 40])
def test_likelihoods_and_scores_are_the_same_on_a_gpu(model, tile):
    data = field(model, 20, 5)
    cpu, gpu = (gx.Exact(tile=tile, on=on).prepare(data) for on in ("cpu", "gpu"))
    assert gpu(model).log_likelihood == pytest.approx(cpu(model).log_likelihood, abs=1e-9)
    expected = cpu.gradient(model)
    for name, value in gpu.gradient(model).items():
        assert value == pytest.approx(expected[name], abs=1e-8), name


@pytest.mark.slow
@pytest.mark.gpu
@each_family
@pytest.mark.parametrize("m", [5, 30])
def test_vecchias_blocks_are_the_same_on_a_gpu(model, m):
    data = field(model)
    cpu, gpu = (gx.Vecchia(m, on=on).prepare(data) for on in ("cpu", "gpu"))
    assert gpu(model).log_likelihood == pytest.approx(cpu(model).log_likelihood, abs=1e-9)
    expected = cpu.gradient(model)
    for name, value in gpu.gradient(model).items():
        assert value == pytest.approx(expected[name], abs=1e-8), name
    np.testing.assert_allclose(
        gpu.factorize(model).weights, cpu.factorize(model).weights, rtol=0, atol=1e-11
    )


# Identities


def test_at_one_time_every_family_is_matern():
    a = gx.Inputs(inputs().locations, time=np.full(25, 3.0))
    for model in MODELS.values():
        spatial = model.space(a.locations, a.locations)
        np.testing.assert_allclose(model(a, a), spatial, rtol=0, atol=1e-15)


def test_gneitings_family_without_interaction_is_a_product():
    a, model = inputs(), gx.Gneiting(2.0, 0.4, 2.0, 0.8, 0.6, 0.0, 0.7)
    in_time = gx.Cauchy(1.0, 2.0, power=1.2, decay=0.84)
    _, u = lags(a)
    expected = model.space(a.locations, a.locations) * in_time.covariance(u)
    np.testing.assert_allclose(model(a, a), expected, rtol=0, atol=4e-15)


def test_with_a_long_range_in_time_every_family_is_spatial():
    a = inputs()
    for model in MODELS.values():
        spatial = model.space(a.locations, a.locations)
        found = model.replace(time_range=1e40)(a, a)
        np.testing.assert_allclose(found, spatial, rtol=0, atol=1e-12)


SPACES = [
    *(("euclidean", d) for d in (1, 2, 3)),
    *((metric, 2) for metric in ("chordal", "great-circle")),
]


def least_eigenvalue(model, seed, metric, d, n=30):
    """The smallest eigenvalue of a correlation matrix, and how far below 0 rounding moves it.

    At most n(1e-15 + n u): entries err by 1e-15, and eigenvalues by u times the norm, at most n.
    """
    random = np.random.default_rng(seed)
    locations = random.random((n, d))
    if metric != "euclidean":
        locations = locations * [360.0, 180.0] - [180.0, 90.0]
        # opposite points of the sphere
        locations[1::3] = locations[::3] * [1.0, -1.0] + [180.0, 0.0]
    if seed % 3 == 0:
        locations = np.repeat(locations[: n // 2], 2, axis=0)
    times = (np.arange(n) % 2, random.random(n), random.integers(4, size=n))[seed % 3]
    a = gx.Inputs(locations, metric, time=times)
    return np.linalg.eigvalsh(model(a, a))[0], -n * (1e-15 + n * 2.0**-53)


@pytest.mark.slow
@each_family
@pytest.mark.parametrize(("metric", "d"), SPACES)
def test_covariance_matrices_are_positive_definite_for_random_parameters(model, metric, d):
    family, random = type(model), np.random.default_rng(5)
    if not model.replace(smoothness=0.5).valid_on(metric, d):
        assert (metric, family.on_sphere) == ("great-circle", None)
        return
    for seed in range(45):
        one = testing.random_model(family, random, metric, d)
        least, rounding = least_eigenvalue(one, seed, metric, d)
        assert least > rounding, (seed, one)


class Unlimited(gx.Separable):
    """Without its limit on the sphere, where smoothnesses above ½ are not valid."""

    on_sphere: ClassVar = {}


class OnTheLine(gx.Gneiting):
    """With the exponent for one dimension, which is too small in space."""

    def clock(self, dimensions):
        return super().clock(1)


def test_eigenvalues_show_a_wrong_limit_and_a_wrong_dimension():
    random = np.random.default_rng(5)
    models = [testing.random_model(Unlimited, random, "great-circle") for _ in range(45)]
    found = [least_eigenvalue(one, k, "great-circle", 2)[0] for k, one in enumerate(models)]
    assert min(found) < -0.05
    values = (1.0, 0.2, 0.5, 0.5, 1.0, 1.0, 0.0)
    a = gx.Inputs(np.repeat(testing.places(15, 3, seed=0), 2, axis=0), time=np.arange(30) % 2)
    right, wrong = (np.linalg.eigvalsh(kind(*values)(a, a))[0] for kind in (gx.Gneiting, OnTheLine))
    assert right > 0.1
    assert wrong < -0.1


# Likelihoods, fits and predictions


def field(model, stations=25, times=6, seed=1):
    """Simulated observations of stations at several times."""
    locations = np.repeat(testing.places(stations, seed=seed), times, axis=0)
    time = np.tile(np.arange(float(times)), stations)
    values = gx.simulate(model, locations, time=time, seed=seed)[0]
    return gx.Observations(locations, values, time=time)


EXACT = [
    gx.Exact(),
    gx.Exact(tile=32),
    gx.Exact(gx.by_tile_norm(1e-10), tile=32),
    gx.Exact(gx.layered("fp32", "fp64"), tile="whole"),
    gx.Exact(tile=32, memory="200kB"),
]


@each_family
def test_log_likelihoods_are_those_of_a_dense_evaluation(model):
    data = field(model)
    sigma = model(data.inputs, data.inputs) + model.nugget * np.eye(len(data))
    expected = scipy.stats.multivariate_normal(np.zeros(len(data)), sigma).logpdf(data.values)
    for method in EXACT:
        found = gx.log_likelihood(data, model, method).log_likelihood
        assert found == pytest.approx(expected, rel=1e-6 if "layered" in repr(method) else 1e-10)
    found = gx.log_likelihood(data, model, gx.Vecchia(len(data) - 1)).log_likelihood
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("case", GPBOOST["cases"], ids=lambda case: repr(case["model"]))
def test_log_likelihoods_of_gneitings_models_are_gpboosts(case):
    data = gx.Observations(
        np.array(GPBOOST["locations"]), np.array(GPBOOST["values"]), time=GPBOOST["time"]
    )
    model, n = gx.Gneiting(**case["model"]), len(data)
    for method, expected in (
        (gx.Exact(), case["exact"]),
        (gx.Vecchia(n - 1, ordering=tuple(range(n))), case["vecchia"]),
    ):
        found = gx.log_likelihood(data, model, method, trend="zero").log_likelihood
        assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("lag", [0.0, 0.5, 20.0])
@pytest.mark.parametrize("kind", ["separable", "gneiting"])
def test_a_distance_has_the_correlation_of_a_lag(kind, lag):
    model = MODELS[kind].replace(nugget=0.0)
    used = max(lag, model.half_lag())
    distance = model.time_scale(lag) * used
    here = gx.Inputs(np.zeros((1, 2)), time=np.zeros(1))
    away = gx.Inputs(np.array([[distance, 0.0]]), time=np.zeros(1))
    later = gx.Inputs(np.zeros((1, 2)), time=np.array([used]))
    assert model(here, away)[0, 0] == pytest.approx(model(here, later)[0, 0], rel=1e-9)
    if used > lag:
        assert model(here, later)[0, 0] == pytest.approx(model.variance / 2, rel=1e-9)


@each_family
def test_scores_are_slopes_and_vecchias_equal_the_exact_ones(model):
    data = field(model)
    exact, vecchia = (m.prepare(data) for m in (gx.Exact(), gx.Vecchia(len(data) - 1)))
    expected = exact.gradient(model)
    for name, value in vecchia.gradient(model).items():
        step = 1e-4 * model.parameters()[name]
        at = [
            exact(model.replace(**{name: model.parameters()[name] + k * step})).log_likelihood
            for k in (-1, 1)
        ]
        assert value == pytest.approx(expected[name], abs=1e-8), name
        assert value == pytest.approx((at[1] - at[0]) / (2 * step), rel=1e-5, abs=1e-6), name


@pytest.mark.slow
@each_family
@pytest.mark.parametrize("later", [40.0, 1e3, 1e7])
def test_scores_of_times_far_apart_are_the_exact_ones(model, later):
    data = field(model)
    time = data.time + later * (np.arange(len(data)) % 2)
    data, model = replace(data, time=time), model.replace(time_range=0.3)
    exact, vecchia = (m.prepare(data) for m in (gx.Exact(), gx.Vecchia(len(data) - 1)))
    expected = exact.gradient(model)
    for name, value in vecchia.gradient(model).items():
        assert value == pytest.approx(expected[name], rel=1e-9, abs=1e-8), name


@pytest.mark.slow
@each_family
def test_a_fit_finds_a_better_model_than_the_truth_and_predicts(model):
    data = field(model, 25, 6)
    fit = gx.fit(data, family=model.family, trend="zero", progress=False)
    assert fit.outcome.good or fit.boundary
    assert fit.log_likelihood > gx.log_likelihood(data, model).log_likelihood
    new, time = testing.places(7, seed=3), np.linspace(0.5, 9.0, 7)
    all_of_them = gx.predict(fit, new, time=time)
    nearest = gx.predict(fit, new, time=time, neighbours=len(data))
    np.testing.assert_allclose(nearest.mean, all_of_them.mean, rtol=0, atol=1e-9)
    np.testing.assert_allclose(nearest.variance, all_of_them.variance, rtol=0, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "truth",
    [
        gx.MaternSpaceTime(1.0, 0.2, 30.0, 0.5, 0.1),
        gx.Separable(1.0, 0.2, 30.0, 0.5, 0.5, 0.1),
        gx.Gneiting(1.0, 0.2, 0.1, 0.5, 0.4, 0.9, 0.1, 0.1),
    ],
    ids=lambda truth: truth.family,
)
def test_neighbours_are_those_of_the_fitted_model(truth):
    data = field(truth, 40, 8)
    about = {"trend": "zero", "progress": False, "raise_on_failure": False}
    start, evaluator = truth.replace(time_range=1.0), gx.Vecchia(10).prepare(data)
    fit = gx.fit(data, start, gx.Vecchia(10), fixed=("smoothness", "nugget"), **about)
    evaluator.freeze(start)
    assert evaluator.would_move(fit.model)
    again = gx.log_likelihood(data, fit.model, gx.Vecchia(10)).log_likelihood
    assert fit.log_likelihood == pytest.approx(again, abs=1e-9)
    draws = gx.simulate(fit, testing.places(9, seed=8), time=2.5, draws=4, seed=0)
    assert np.isfinite(draws).all()


@pytest.mark.slow
@pytest.mark.parametrize("evaluations", [3, 5, 7])
def test_the_limit_on_evaluations_ends_a_fit_whose_neighbours_move(evaluations):
    stations = np.random.default_rng(3).random((60, 2))
    locations, when = np.tile(stations, (6, 1)), np.repeat(np.arange(6.0), 60)
    truth = gx.Separable(1.0, 0.2, 1.5, 0.5, 0.5, 0.05)
    values = gx.simulate(truth, locations, time=when, seed=2)[0]
    data = gx.Observations(locations, values, time=when)
    start = gx.Separable(1.0, 0.2, 1.0, 0.5, 0.5)
    about = {"evaluations": evaluations, "raise_on_failure": False, "progress": False}
    fit = gx.fit(data, start, gx.Vecchia(8), **about)
    assert fit.outcome.ending is gx.Ending.EVALUATION_LIMIT
    again = gx.log_likelihood(data, fit.model, gx.Vecchia(8), trend="constant").log_likelihood
    assert fit.log_likelihood == pytest.approx(again, abs=1e-9)


@pytest.mark.slow
def test_neighbours_stay_during_a_fit_of_repeated_observations():
    truth = gx.Separable(1.0, 0.2, 3.0, 0.5, 0.5, 0.1)
    data = field(truth, 40, 8)
    rows = np.concatenate((np.arange(len(data)), np.arange(40)))
    noise = 0.3 * np.random.default_rng(2).standard_normal(len(rows))
    repeated = gx.Observations(
        data.locations[rows], data.values[rows] + noise, time=data.time[rows]
    )
    about = {"trend": "zero", "progress": False, "raise_on_failure": False, "microscale": False}
    fit = gx.fit(repeated, truth.replace(time_range=1.0), gx.Vecchia(10), **about)
    again = gx.log_likelihood(repeated, fit.model, gx.Vecchia(10), trend="zero").log_likelihood
    assert fit.log_likelihood == pytest.approx(again, abs=1e-9)
    evaluator = gx.Vecchia(10).prepare(repeated)
    assert evaluator.moves
    evaluator.freeze(truth)
    assert evaluator.would_move(truth.replace(time_range=300.0))


@pytest.mark.parametrize("method", [gx.Exact(), gx.Vecchia(20)], ids=["exact", "vecchia"])
def test_folds_are_consecutive_times_and_forecasts_know_earlier_ones_only(method):
    model = MODELS["separable"]
    data = field(model, 20, 9)
    fit = gx.fit(data, model, method, fixed=tuple(model.parameters()), trend="constant")
    forecast = gx.cross_validate(fit, 2, in_time="forecast")
    assert sorted(set(forecast.observations.time)) == [3, 4, 5, 6, 7, 8]
    known = data.subset(np.flatnonzero(data.time < 6))
    earlier = gx.fit(known, model, method, fixed=tuple(model.parameters()), trend="constant")
    last = forecast.observations.time >= 6
    new = forecast.observations.inputs[last]
    expected = gx.predict(earlier, new).mean
    np.testing.assert_allclose(forecast.mean[last], expected, rtol=0, atol=1e-10)
    blocks = gx.cross_validate(fit, 3, in_time="blocks")
    given = gx.cross_validate(fit, data.time // 3)
    np.testing.assert_allclose(blocks.mean, given.mean, rtol=0, atol=1e-12)
    assert blocks.scores()["rmse"] < forecast.scores()["rmse"]
    for folds, about, message in (
        (10, {}, "`folds` must be at most 9 for 9 different times"),
        (3, {"blocks": 0.1}, "are different folds: give one of them"),
    ):
        with pytest.raises(gx.InvalidInput, match=message):
            gx.cross_validate(fit, folds, in_time="blocks", **about)
    held = tuple(testing.MODEL.parameters())
    spatial = gx.fit(testing.observations(), testing.MODEL, fixed=held)
    with pytest.raises(gx.InvalidInput, match="needs observations with times"):
        gx.cross_validate(spatial, 3, in_time="forecast")


@pytest.mark.slow
def test_fits_do_not_depend_on_the_unit_of_time():
    model = MODELS["separable"]
    data = field(model)
    hours = gx.Observations(data.locations, data.values, time=24 * data.time)
    one, other = (
        gx.fit(d, family="separable", trend="zero", progress=False) for d in (data, hours)
    )
    assert other.model.time_range == pytest.approx(24 * one.model.time_range, rel=1e-4)
    assert other.log_likelihood == pytest.approx(one.log_likelihood, abs=1e-7)


@pytest.mark.parametrize("d", [2, 3, 4])
def test_maximin_order_takes_the_farthest_point_next(d):
    points = np.random.default_rng(d).random((80, d))
    order = maximin(points)
    for k in range(1, 80):
        away = scipy.spatial.distance.cdist(points, points[order[:k]]).min(axis=1)
        assert away[order[k]] == pytest.approx(away.max(), rel=1e-12)


# Wrong input


def test_messages_name_the_problem_and_the_remedy():
    model, places = MODELS["gneiting"], testing.places(20)
    plain = gx.Observations(places, places[:, 0])
    for call, message in (
        (lambda: gx.log_likelihood(plain, model), "needs the time of each location: give `time`"),
        (
            lambda: gx.fit(
                gx.Observations(places, places[:, 0], time=np.ones(20)), family="gneiting"
            ),
            "all times are the same: leave the time out",
        ),
        (
            lambda: model(
                gx.Inputs(places, "great-circle", time=np.ones(20)),
                gx.Inputs(places, "great-circle"),
            ),
            "not known to be a covariance with great-circle distances: use the chordal metric",
        ),
        (lambda: gx.Gneiting(1.0, 1.0, 1.0, 0.5, 1.2, 0.5, 0.5), "`time_power` must be"),
        (lambda: gx.Gneiting(1.0, 1.0, 1.0, 0.5, 1.0, -0.1, 0.5), "`interaction` must be"),
    ):
        with pytest.raises(gx.InvalidInput) as error:
            call()
        assert message in str(error.value)


ROUGH = gx.Gneiting(1.0, 0.2, 0.01, 0.5, 0.15, 0.5, 0.1, 0.02)
"""The correlation is ½ far below a step of 1 between times, and more than 0.3 after it."""


def series(model, stations=60, steps=10):
    """Observations at stations, and the fit of the model that drew them."""
    places = np.repeat(np.random.default_rng(4).random((stations, 2)), steps, axis=0)
    when = np.tile(np.arange(float(steps)), stations)
    values = gx.simulate(model, places, time=when, seed=1)[0]
    data = gx.Observations(places, values, time=when)
    return gx.fit(data, model, fixed=tuple(model.parameters()), trend="zero", progress=False)


def nearest_to(place, when, data, scale, count):
    """Rows of the nearest observations, with times multiplied by the scale."""
    apart = np.hypot(*(data.locations - place).T)
    return np.argsort(np.hypot(apart, scale * (data.time - when)))[:count]


@pytest.mark.slow
def test_predictions_are_from_the_neighbours_of_vecchias_scale():
    fit, count = series(ROUGH), 12
    assert ROUGH.half_lag() < 0.2
    assert ROUGH.correlation_in_time(1.0) > 0.3
    new, when = testing.places(8, seed=9), np.linspace(0.5, 9.5, 8)
    found = gx.predict(fit, new, time=when, neighbours=count)
    whole = gx.predict(fit, new, time=when)
    before = []
    for i, (place, at) in enumerate(zip(new, when, strict=True)):
        here = gx.Inputs(place[None], time=np.array([at]))
        # of the smallest divergence, not at correlation ½
        key = Neighbours(fit.observations.inputs, count).key_of(ROUGH)
        scales = 2.0 ** (key / 2), ROUGH.time_scale()
        variances = []
        for scale in scales:
            near = fit.observations.subset(nearest_to(place, at, fit.observations, scale, count))
            sigma = ROUGH(near.inputs, near.inputs) + ROUGH.nugget * np.eye(count)
            k = ROUGH(near.inputs, here)[:, 0]
            weights = np.linalg.solve(sigma, k)
            variances.append(ROUGH.variance - k @ weights)
            if scale == scales[0]:
                assert found.mean[i] == pytest.approx(weights @ near.values, abs=1e-10)
        assert found.variance[i] == pytest.approx(variances[0], rel=1e-9)
        before.append(variances[1])
    # the mean squared error of prediction, beyond that from all observations
    excess, earlier = (np.mean(v - whole.variance) for v in (found.variance, np.array(before)))
    assert 0 < excess < earlier


@pytest.mark.slow
@pytest.mark.parametrize("count", [5, 15])
def test_neighbours_have_the_smallest_divergence_of_all_scales_of_time(count):
    inputs = series(ROUGH).observations.inputs
    for model in (ROUGH, gx.Gneiting(1.0, 0.3, 2.0, 0.5, 0.9, 0.8, 0.2, 0.1)):
        neighbours = Neighbours(inputs, count)
        key, first = neighbours.key_of(model), model.neighbour_key(inputs)
        evaluator = gx.Vecchia(count).prepare(inputs)
        values = {}
        for halves in range(-4, 5):
            passes = LocalPasses(
                inputs, "maximin", count, model.neighbour_points(inputs, key + halves)
            )
            passes.know(np.empty((0, len(inputs))))
            out, _ = passes.reduce(model, wanted_for(model, (), model.noise(inputs)))
            values[key + halves] = 0.5 * out[0]
            loss = values[key + halves] - values.get(key, np.inf)
            if halves > 0:
                assert neighbours.loss(model, key + halves) * len(inputs) == pytest.approx(loss)
        assert values[key] <= min(values[key - 1], values[key + 1])
        assert neighbours.loss(model, first) >= 0
        # half of log|Σ_V| - log|Σ| is the divergence, whose order breaks ties in another way
        exact = gx.Exact().prepare(inputs).factorize(model).log_determinant()
        kl = gx.kl_divergence(model, inputs, gx.Vecchia(count)).kl
        assert kl == pytest.approx(values[key] - 0.5 * exact, rel=0.05)
        assert not evaluator.would_move(model)


@pytest.mark.slow
def test_the_error_of_predictions_from_neighbours_falls_to_that_from_all():
    fit = series(ROUGH)
    new, when = testing.places(30, seed=9), np.linspace(0.0, 10.0, 30)
    whole = gx.predict(fit, new, time=when)
    excess = [
        np.mean(gx.predict(fit, new, time=when, neighbours=m).variance - whole.variance)
        for m in (5, 20, 80, len(fit.observations))
    ]
    assert excess == sorted(excess, reverse=True)
    assert excess[-1] == pytest.approx(0.0, abs=1e-10)


def test_the_median_step_is_that_between_different_times():
    times = np.array([0.0, 0.0, 5.0, 1.0, 2.0, 2.0])
    assert gx.Inputs(np.zeros((6, 1)), time=times).median_step == 1.0
    assert gx.Inputs(np.zeros((2, 1)), time=np.ones(2)).median_step == 0.0


def test_misspecification_is_from_the_same_neighbours():
    fit, count = series(ROUGH), 12
    new = gx.Inputs(testing.places(3, seed=9), time=np.array([1.5, 4.0, 9.5]))
    found = gx.mloe_mmom(ROUGH, ROUGH, fit.observations.inputs, new, neighbours=count)
    predicted = gx.predict(fit, new, neighbours=count)
    np.testing.assert_allclose(found.error_of_true, predicted.variance, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("correlation", [0.5, 0.05])
@each_family
def test_the_effective_lag_has_its_correlation(model, correlation, dimensions):
    lag = model.effective_lag(correlation, dimensions)
    assert model.correlation_in_time(lag, dimensions) == pytest.approx(correlation, rel=1e-8)
    # a lag scales with the range in time
    longer = model.replace(time_range=7.0 * model.time_range)
    assert longer.effective_lag(correlation, dimensions) == pytest.approx(7.0 * lag, rel=1e-8)


@pytest.mark.slow
def test_a_correlation_that_does_not_fall_has_no_effective_lag():
    assert gx.Gneiting(1.0, 1.0, 1.0, 0.5, 0.5, 0.0, 0.0).effective_lag() == np.inf


@pytest.mark.parametrize(("unit", "said"), [("day", ", in days"), ("", "")])
def test_a_fit_says_how_far_it_reaches_in_space_and_time(unit, said):
    model = gx.Separable(1.0, 0.3, 2.0, 0.5, 0.5, 0.1)
    data = replace(series(model, 12, 5).observations, time_unit=unit, length_unit="kilometre")
    fit = gx.fit(data, model, fixed=tuple(model.parameters()))
    text = str(fit)
    ranges = [f"{-scale * np.log(0.05):>14.6g}" for scale in (0.3, 2.0)]
    assert f"effective range   {ranges[0]}   correlation 5 % at one time, in km\n" in text
    assert f"effective lag     {ranges[1]}   correlation 5 % at one location{said}\n" in text
    for shown in (text, repr(fit), fit._repr_html_()):
        assert "60 observations at 12 locations and 5 times" in shown
    assert gx.plots.unit_of(model.parameter("time_range"), data) == (unit or None)


def test_the_effective_lag_of_a_fit_is_that_of_the_metric():
    """On the sphere distances are those of three dimensions, on which Gneiting's decay depends."""
    model = gx.Gneiting(1.0, 300.0, 2.0, 0.5, 0.6, 0.9, 0.3, 0.1)
    places, when = np.repeat(testing.places(9) * 5.0, 4, axis=0), np.tile(np.arange(4.0), 9)
    data = gx.Observations(places, np.cos(np.arange(36.0)), metric="chordal", time=when)
    fit = gx.fit(data, model, fixed=tuple(model.parameters()), trend="zero")
    assert f"{model.effective_lag(dimensions=3):.6g}   correlation 5 % at one loc" in str(fit)
    assert model.effective_lag(dimensions=3) != pytest.approx(model.effective_lag(), rel=0.01)
