"""Operations on a GPU have the CPU's results, for each kind of data and each way to compute."""

from dataclasses import replace
from functools import cached_property

import numpy as np
import pytest
from cases import by_pairs

import geomxp as gx
from geomxp import testing
from geomxp.likelihood import divergence
from geomxp.linalg import recursive

pytestmark = pytest.mark.gpu

N = 40
MODEL = gx.Matern(1.3, 0.15, 0.8, 0.1)


def plain():
    return testing.observations(N), MODEL


def replicated():
    rows = np.repeat(np.arange(N // 2), 2)
    seen = testing.observations(N)
    return gx.Observations(seen.locations[rows], seen.values), MODEL


def with_known_errors():
    seen, errors = testing.observations(N), np.random.default_rng(1).random(N)
    return gx.Observations(seen.locations, seen.values, error_variance=errors), MODEL


def anisotropic():
    return testing.observations(N), replace(MODEL, anisotropy=(30.0, 0.6))


def on_the_sphere():
    random = np.random.default_rng(2)
    places = np.column_stack((random.uniform(-20, 20, N), random.uniform(40, 60, N)))
    seen = gx.Observations(places, random.standard_normal(N), metric="great-circle")
    return seen, gx.Matern(1.0, 500.0, 0.5, 0.1)


def of_compact_support():
    return testing.observations(N), gx.Wendland(1.0, 0.5, 0.5, 3.0, 0.1)


def in_space_and_time():
    random = np.random.default_rng(3)
    values, time = random.standard_normal(N), random.random(N)
    seen = gx.Observations(random.random((N, 2)), values, time=time)
    return seen, gx.Gneiting(1.0, 0.3, 0.5, 0.5, 0.8, 0.5, 1.0, 0.1)


def of_two_variables():
    random = np.random.default_rng(4)
    variable = np.repeat(["zinc", "lead"], N // 2)
    seen = gx.Observations(random.random((N, 2)), random.standard_normal(N), variable=variable)
    return seen, gx.ParsimoniousMatern((1.0, 2.0), 0.2, (0.5, 1.5), 0.4, nugget=(0.1, 0.2))


def transformed():
    seen = testing.observations(N)
    values = np.exp(0.3 * seen.values)
    return gx.Observations(seen.locations, values), replace(MODEL, transform=gx.Log())


KINDS = (
    *(plain, replicated, with_known_errors, anisotropic, on_the_sphere, of_compact_support),
    *(in_space_and_time, of_two_variables, transformed),
)
METHODS = {
    "one matrix": gx.Exact(),
    "tiles": gx.Exact(gx.by_tile_norm(1e-9), 16),
    "halved": gx.Exact(gx.layered("fp32", "fp64"), "whole"),
    "blocks": gx.Exact(gx.by_tile_norm(1e-9), "whole"),
    "vecchia": gx.Vecchia(10),
}


@pytest.fixture(autouse=True)
def small_leaves(monkeypatch):
    """Halve matrices of a few rows."""
    for table in (
        recursive.EQUAL_SPEED_LEAVES,
        recursive.FAST_PRODUCT_LEAVES,
        recursive.GPU_LEAVES,
    ):
        monkeypatch.setitem(table, "tree", 16)
    # divergences need several blocks of columns
    monkeypatch.setattr(divergence, "GPU_WHITENED_COLUMNS", 16)


OPERATIONS = {
    "likelihood": lambda run: run.likelihood(),
    "restricted likelihood": lambda run: run.likelihood(reml=True),
    "draws": lambda run: gx.simulate(run.model, run.seen.inputs, 2, seed=1, method=run.method),
    "divergence": lambda run: gx.kl_divergence(run.model, run.seen.inputs, run.method).kl,
    "derivatives": lambda run: run.derivatives(),
    "predictions": lambda run: both(gx.predict(run.fit, run.there)),
    "from neighbours": lambda run: both(gx.predict(run.fit, run.there, neighbours=8)),
    "of blocks": lambda run: both(gx.predict(run.fit, run.there, block=0.05)),
    "their covariances": lambda run: gx.prediction_covariance(run.fit, run.there),
    "left out": lambda run: both(gx.leave_one_out(run.fit)),
    "folds": lambda run: both(gx.cross_validate(run.fit, 3)),
    "conditional draws": lambda run: gx.simulate(run.fit, run.there, 2, seed=1),
}
REFUSED = {
    "their covariances": (transformed, "vecchia"),
}
"""Operations that these kinds of data, or methods, do not have."""


CASES = by_pairs(KINDS, [*METHODS], [*OPERATIONS])
"""Each operation with each kind of data, and with each method."""


def both(found):
    """Mean and variance in one array."""
    return np.concatenate((found.mean, found.variance))


class Run:
    """One kind of data, its model, and a method."""

    def __init__(self, seen, model, method):
        self.seen, self.model, self.method = seen, model, method
        # the first one is a location of an observation
        some = seen.inputs[:4]
        steps = np.array([[0.0], [0.01], [0.02], [0.03]])
        self.there = replace(some, locations=some.locations + steps, error_variance=None)

    @cached_property
    def fit(self):
        """The model as a fit that estimates the trend only."""
        fixed = tuple(self.model.parameters())
        return gx.fit(self.seen, self.model, self.method, fixed=fixed)

    def likelihood(self, reml=False):
        found = gx.log_likelihood(self.seen, self.model, self.method, trend="linear", reml=reml)
        return [found.log_likelihood, *found.coefficients]

    def derivatives(self):
        design = np.ones((len(self.seen), 1))
        evaluator, names = self.method.prepare(self.seen, design), tuple(self.model.parameters())
        return evaluator.derivatives(self.model, names).score


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::geomxp.GeomxpWarning")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_gpu_gives_what_the_cpu_gives(kind, method):
    how = METHODS[method]
    if kind is of_two_variables and method == "vecchia":
        with pytest.raises(gx.InvalidInput, match='use on="cpu"'):
            Run(*kind(), replace(how, on="gpu")).likelihood()
        return
    on_cpu, on_gpu = (Run(*kind(), replace(how, on=on)) for on in ("cpu", "gpu"))
    for name in (case[2] for case in CASES if case[:2] == (kind, method)):
        of = OPERATIONS[name]
        if {kind, method} & set(REFUSED.get(name, ())):
            for run in (on_cpu, on_gpu):
                with pytest.raises(gx.InvalidInput):
                    of(run)
            continue
        allowed = 1e-5 if method == "halved" else 1e-6
        np.testing.assert_allclose(of(on_gpu), of(on_cpu), allowed, allowed, err_msg=name)


@pytest.mark.parametrize("devices", [("gpu", "cpu"), ("cpu", "gpu")])
def test_divergences_do_not_depend_on_the_device_of_their_reference(devices):
    seen, model = plain()
    methods = [gx.Exact(gx.uniform("fp16"), 16, on=on) for on in devices]
    alone = [gx.kl_divergence(model, seen.inputs, method).kl for method in methods]
    found = [one.kl for one in gx.compare(model, seen.inputs, methods)]
    np.testing.assert_allclose(found, alone, rtol=1e-6)
