"""Drill: families that combine variables, time and anisotropy by the terms they return."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from scipy.special import gamma, kv

import geomxp as gx
from geomxp import testing
from geomxp.covariance.base import NUGGET, RANGE, VARIANCE, Tabulated
from geomxp.covariance.multivariate import ONE_FOR_ALL
from geomxp.covariance.space_time import TIME_RANGE
from geomxp.covariance.sums import derivative_sums
from geomxp.covariance.term import Change, Clock, Term
from geomxp.vecchia.blocks import LocalPasses, Sums, wanted_for

EXPONENTIAL = gx.Matern(1.0, 1.0, 0.5)


@dataclass(frozen=True)
class TwoInTime(gx.ParsimoniousMatern):
    """Several variables whose correlations all decay with time as exp(-|u|/b)."""

    family = "parsimonious-in-time"
    uses = ("time", "variable")
    groups: ClassVar = {**gx.ParsimoniousMatern.groups, "time_range": (ONE_FOR_ALL, TIME_RANGE)}
    time_range: float = 1.0

    def terms(self, dimensions):
        """Return the term of the spatial model, with functions of time."""
        (term,) = super().terms(dimensions)
        clock = Clock(EXPONENTIAL, "correlation", None, {"time_range": ("slope", None)})
        changes = {**term.changes, "time_range": Change(clock={"time_range": -1 / self.time_range})}
        return [replace(term, time_range=self.time_range, clock=clock, changes=changes)]

    def dense(self, a):
        """Evaluate the covariance by its formula, (n, n)."""
        h, u = lags(a)
        order = np.asarray(self.smoothness)[a.variable]
        rho = np.array([[1.0, self.correlation[0]], [self.correlation[0], 1.0]])
        size = np.sqrt(self.variance)[a.variable]
        amplitude = rho[np.ix_(a.variable, a.variable)] * np.outer(size, size)
        decay = np.exp(-u / self.time_range)
        return amplitude * matern(np.add.outer(order, order) / 2, h / self.range) * decay


@dataclass(frozen=True)
class CoregionalizationInTime(gx.Coregionalization):
    """Sums of fields W_k, of which each has a range in time of its own, as time is a coordinate."""

    family = "coregionalization-in-time"
    uses = ("time", "variable")
    groups: ClassVar = {**gx.Coregionalization.groups, "time_range": (ONE_FOR_ALL, TIME_RANGE)}
    time_range: float = 1.0

    def terms(self, dimensions):
        """Return the terms of the spatial model, the second one twice as long in time."""
        found = []
        for k, term in enumerate(super().terms(dimensions), start=1):
            own = Change(clock={"time_range": -1 / self.time_range})
            changes = {**term.changes, "time_range": own}
            found.append(replace(term, time_range=k * self.time_range, changes=changes))
        return found

    def dense(self, a):
        """Evaluate the covariance by its formula, (n, n)."""
        h, u = lags(a)
        loading, total = np.zeros((2, 2)), 0.0
        loading[np.tril_indices(2)] = self.loading
        for k in range(2):
            loads = loading[a.variable, k]
            r = np.sqrt((h / self.range[k]) ** 2 + (u / ((k + 1) * self.time_range)) ** 2)
            total = total + np.outer(loads, loads) * matern(self.smoothness[k], r)
        return total


@dataclass(frozen=True)
class TurnedInTime(Tabulated):
    """Gneiting's family with an exponential margin, α = ½, β = 0.6, δ = 0.4, and anisotropy."""

    family = "turned-in-time"
    uses = ("time",)
    declared = (
        *(VARIANCE, RANGE, TIME_RANGE),
        *(gx.Parameter("angle", 20.0, "identity", -np.inf), gx.Parameter("ratio", 0.5), NUGGET),
    )

    variance: float
    range: float
    time_range: float
    angle: float
    ratio: float
    nugget: float = 0.0

    def terms(self, dimensions):
        """Return a term with a linear map and functions of time."""
        turn = gx.Anisotropy(self.angle, self.ratio)
        by_angle, by_ratio = turn.generators().values()
        clock = gx.Gneiting(1.0, 1.0, 1.0, 0.5, 0.5, 0.6, 0.4).clock(dimensions)
        changes = {
            "variance": Change(amplitude=1.0),
            "range": Change(log_range=1 / self.range),
            "time_range": Change(clock={"time_range": -1 / self.time_range}),
            "angle": Change(map=by_angle),
            "ratio": Change(map=by_ratio),
        }
        where = self.range, turn.matrix(), self.time_range, clock
        return [Term(EXPONENTIAL, self.variance, *where, changes=changes)]

    def dense(self, a):
        """Evaluate the covariance by its formula, (n, n)."""
        h, u = lags(a, gx.Anisotropy(self.angle, self.ratio).matrix())
        psi = 1 + u / self.time_range
        return self.variance * psi**-1.0 * np.exp(-h / self.range / psi**0.3)


MODELS = {
    "two variables": TwoInTime((1.0, 2.0), 0.3, (0.5, 1.5), 0.3, (0.1, 0.2), time_range=2.0),
    "two fields": CoregionalizationInTime(
        [[1.0, 0.0], [0.4, 0.8]], (0.3, 0.2), (0.5, 1.5), (0.1, 0.2), time_range=2.0
    ),
    "anisotropy": TurnedInTime(1.5, 0.4, 2.0, 30.0, 0.5, 0.1),
}
each_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


def lags(a, turn=None):
    """Distances in space, perhaps after a linear map, and in time, (n, n)."""
    points = a.points if turn is None else a.points @ turn.T
    h = np.linalg.norm(points[:, None] - points, axis=-1)
    return h, np.abs(np.subtract.outer(a.time, a.time))


def matern(nu, r):
    """Matérn's correlation."""
    r = np.maximum(r, 1e-200)
    with np.errstate(invalid="ignore"):
        value = 2 ** (1 - nu) / gamma(nu) * r**nu * kv(nu, r)
    return np.where(r > 1e-100, value, 1.0)


def inputs_of(model, n=70):
    random = np.random.default_rng(4)
    variable = random.integers(0, 2, n) if "variable" in model.uses else None
    return gx.Inputs(testing.places(n), time=np.round(random.random(n) * 5, 1), variable=variable)


def difference(function, model, name):
    """The derivative of a function of the model by a parameter, by central differences."""
    value, found = model.parameters()[name], 0.0
    step = 1e-3 * max(abs(value), 0.1)
    for k, weight in ((1, 8.0), (2, -1.0)):
        ends = (function(model.replace(**{name: value + k * sign * step})) for sign in (1, -1))
        found = found + weight * np.subtract(*ends)
    return found / (12 * step)


@each_model
def test_covariance_and_derivatives_are_those_of_the_formula(model):
    a = inputs_of(model)
    found = model.matrix(a, a)
    np.testing.assert_allclose(found, model.dense(a), rtol=0, atol=2e-14)
    changes = model.derivatives(a, a)
    assert set(changes) == set(model.parameters()) - set(model.noise(a).names)
    for name, change in changes.items():
        expected = difference(lambda other: other.dense(a), model, name)
        np.testing.assert_allclose(change, expected, rtol=0, atol=1e-9, err_msg=name)
    single = np.empty(found.shape, np.float32, order="F")
    model.pairs(a).write("correlation", slice(0, len(a)), slice(0, len(a)), single)
    np.testing.assert_allclose(single, found, rtol=0, atol=1e-6)


@each_model
def test_sums_are_those_of_the_dense_derivatives(model):
    a, random = inputs_of(model), np.random.default_rng(0)
    n, names = len(a), tuple(model.parameters())
    weights, alpha, beside = random.random((n, n)), random.random(n), random.random((n, 2))
    found = derivative_sums(model, a, names, np.asfortranarray(weights + weights.T), alpha, beside)
    w = np.outer(alpha, alpha) - weights - weights.T + beside @ beside.T
    changes = model.derivatives(a, a)
    noise = model.noise(a)
    changes |= {name: np.diag(noise.derivative(name)) for name in noise.names}
    for k, name in enumerate(names):
        change = changes[name]
        assert found.weighted[k] == pytest.approx((w * change).sum(), rel=1e-11), name
        np.testing.assert_allclose(found.products[:, k], change @ alpha, rtol=1e-11, atol=1e-12)


@pytest.mark.gpu
@each_model
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["fp64", "fp32"])
def test_a_gpu_writes_the_values_of_the_cpu(model, dtype):
    import cupy

    a, whole = inputs_of(model), slice(0, 70)
    pairs = model.pairs(a)
    expected = np.empty((70, 70), dtype, order="F")
    out = cupy.empty((70, 70), dtype, order="F")
    pairs.write("correlation", whole, whole, expected)
    pairs.write_on_gpu("correlation", whole, whole, out)
    u = np.finfo(dtype).eps
    np.testing.assert_allclose(cupy.asnumpy(out), expected, rtol=0, atol=4 * u * 2)
    if dtype == np.float64:
        names = tuple(model.parameters())
        changes = pairs.derivatives(whole, whole, names)
        for name, change in pairs.derivatives(whole, whole, names, 0).items():
            atol = 1e-14 * np.abs(changes[name]).max()
            np.testing.assert_allclose(cupy.asnumpy(change), changes[name], rtol=0, atol=atol)


@each_model
def test_the_score_of_the_likelihood_is_that_of_dense_formulas(model):
    a = inputs_of(model)
    y = np.random.default_rng(1).standard_normal(len(a))
    seen = gx.Observations(a.locations, y, time=a.time, variable=a.variable)

    def log_likelihood(model):
        sigma = model.dense(a) + np.diag(model.noise(a).variances)
        value = np.linalg.slogdet(sigma)[1] + y @ np.linalg.solve(sigma, y)
        return -0.5 * (value + len(a) * np.log(2 * np.pi))

    found = gx.log_likelihood(seen, model).log_likelihood
    assert found == pytest.approx(log_likelihood(model), abs=1e-9)
    evaluator = gx.Exact().prepare(seen, np.empty((len(a), 0)), False)
    for name, slope in evaluator.derivatives(model, tuple(model.parameters())).gradient().items():
        assert slope == pytest.approx(difference(log_likelihood, model, name), abs=1e-6), name


@each_model
def test_vecchia_and_its_score_are_those_of_dense_conditional_densities(model):
    a = inputs_of(model)
    passes = LocalPasses(a, "maximin", 8)
    order, neighbours = passes.tree.order, passes.graph.neighbours
    y = np.random.default_rng(1).standard_normal(len(a))[order]
    b = a[order]

    def conditional(model):
        sigma = model.dense(b) + np.diag(model.noise(b).variances)
        found = np.zeros(2)
        for i, row in enumerate(neighbours):
            near = row[row >= 0]
            weights = np.linalg.solve(sigma[np.ix_(near, near)], sigma[near, i])
            variance = sigma[i, i] - weights @ sigma[near, i]
            found += np.log(variance), (y[i] - weights @ y[near]) ** 2 / variance
        return found

    passes.know(y[None])
    names = tuple(model.parameters())
    out, failed = passes.reduce(model, wanted_for(model, names, model.noise(b)))
    sums = Sums(out, 1, model, names, model.noise(b))
    assert failed is None
    expected = conditional(model)
    np.testing.assert_allclose([sums.log_determinant, sums.gram[0, 0]], expected, rtol=1e-11)
    for name in names:
        by_determinant, by_form = sums.derivative(name)
        expected = difference(conditional, model, name)
        np.testing.assert_allclose([by_determinant, by_form[0, 0]], expected, atol=2e-6)
