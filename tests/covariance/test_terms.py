"""Laws of every family: what follows from its being a sum of terms, whatever these are."""

import numpy as np
import pytest

import geomxp as gx
from geomxp import testing
from geomxp.covariance.base import FAMILIES
from geomxp.covariance.parameter import central_derivative


def defaults(family, **others):
    """A model with the values that parameters have before a fit, and some others."""
    count = 2 if "variable" in family.uses else 1
    values = {one.name: one.value for one in family.declared_for(count)}
    correlated = {name: 0.3 for name in values if name.startswith(("correlation", "loading_21"))}
    return family.from_parameters(values | correlated | others)


MODELS = {name: defaults(family) for name, family in FAMILIES.items()}
MODELS |= {
    f"{name}, anisotropic": defaults(FAMILIES[name], anisotropy_angle=35.0, anisotropy_ratio=0.4)
    for name in ("matern", "spherical", "gaussian")
}
MODELS["gneiting, without interaction"] = defaults(FAMILIES["gneiting"], interaction=0.0)
MODELS["matern, rough"] = defaults(FAMILIES["matern"], smoothness=0.1)
each_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


def inputs_of(model, n=90, extent=3.0, seed=5):
    """Locations in the plane, with times and variables for models that use them."""
    random = np.random.default_rng(seed)
    time = random.integers(0, 7, n) * 0.4 if "time" in model.uses else None
    variable = random.integers(0, 2, n) if "variable" in model.uses else None
    return gx.Inputs(extent * testing.places(n, seed=seed), time=time, variable=variable)


def apart(model, distance, lag=0.0):
    """Two inputs, or two for each of two variables, so far from each other."""
    count = model.variables
    places = np.repeat([[0.0, 0.0], [distance, 0.0]], count, axis=0)
    time = np.repeat([0.0, lag], count) if "time" in model.uses else None
    variable = np.tile(np.arange(count), 2) if "variable" in model.uses else None
    return gx.Inputs(places, time=time, variable=variable)


@each_model
def test_covariances_are_symmetric_and_positive_semidefinite(model):
    for seed in (1, 2):
        a = inputs_of(model, seed=seed)
        sigma = model.matrix(a, a)
        np.testing.assert_array_equal(sigma, sigma.T)
        # a table's error is at most a few units in the last place of the variance
        allowed = 8 * len(a) * np.finfo(float).eps * model.largest_variance
        assert np.linalg.eigvalsh(sigma)[0] >= -allowed
        assert (np.abs(sigma) <= np.sqrt(np.outer(sigma.diagonal(), sigma.diagonal()))).all()


@each_model
def test_the_order_of_inputs_does_not_change_a_bit(model):
    a = inputs_of(model)
    order = np.random.default_rng(3).permutation(len(a))
    sigma, changes = model.matrix(a, a), model.derivatives(a, a)
    np.testing.assert_array_equal(model.matrix(a[order], a[order]), sigma[np.ix_(order, order)])
    for name, change in model.derivatives(a[order], a[order]).items():
        np.testing.assert_array_equal(change, changes[name][np.ix_(order, order)])
        np.testing.assert_array_equal(change, change.T)


@each_model
def test_a_part_has_the_bits_of_the_whole(model):
    a = inputs_of(model)
    some, others = np.arange(10, 50), np.arange(30, 90)
    whole = model.pairs(a).block("correlation", slice(0, 90), slice(0, 90))
    block = model.pairs(a[some], a[others], a.box).block("correlation", slice(0, 40), slice(0, 60))
    np.testing.assert_array_equal(block, whole[np.ix_(some, others)])


@each_model
def test_covariances_depend_on_distances_in_units_of_the_range(model):
    a, factor = inputs_of(model), 4.0
    ranges = [p.name for p in model.table if p.unit == "length"]
    longer = model.replace(**{name: factor * model.parameters()[name] for name in ranges})
    farther = gx.Inputs(factor * a.locations, time=a.time, variable=a.variable)
    # a power of two changes no digit
    np.testing.assert_array_equal(longer.matrix(farther, farther), model.matrix(a, a))


@each_model
def test_covariances_of_the_field_grow_with_its_variances(model):
    a = inputs_of(model)
    np.testing.assert_allclose(
        model.scaled(4.0).matrix(a, a), 4.0 * model.matrix(a, a), rtol=1e-14, atol=0
    )


@each_model
def test_derivatives_are_limits_of_differences(model):
    a = inputs_of(model, 25)
    for name, change in model.derivatives(a, a).items():
        one = next(p for p in model.table if p.name == name)
        room = min(one.value - one.lower, one.upper - one.value, 1.0)
        if room < 1e-3:
            # at a bound there is no derivative from both sides
            continue
        # eight values on either side: the formula is of order 8, and what is left is rounding
        step = room / 128 * max(1.0, 45 * name.endswith("angle"))

        def moved(move, name=name, one=one):
            return model.replace(**{name: float(one.value + move)}).matrix(a, a)

        expected = central_derivative(moved, step)
        size = np.abs(expected).max() + model.largest_variance
        # not where the support of a correlation ends in between
        smooth = (moved(4 * step) == 0) == (moved(-4 * step) == 0)
        np.testing.assert_allclose(
            change[smooth], expected[smooth], rtol=0, atol=3e-11 * size, err_msg=name
        )


@each_model
def test_nearer_than_any_table_the_covariance_is_that_of_one_location(model):
    count = model.variables
    at_zero = model.matrix(apart(model, 0.0), apart(model, 0.0))
    np.testing.assert_array_equal(at_zero[:count, :count], at_zero[count:, :count])
    np.testing.assert_allclose(np.diag(at_zero), model.diagonal(apart(model, 0.0)), rtol=1e-15)
    near = apart(model, 1e-280)
    np.testing.assert_allclose(model.matrix(near, near), at_zero, rtol=0, atol=1e-15)
    for change in model.derivatives(near, near, names=("range", "smoothness")).values():
        assert np.abs(change).max() < 1e-12


@each_model
def test_far_apart_in_space_or_in_time_nothing_is_correlated(model):
    count, size = model.variables, model.largest_variance
    values = []
    for distance in (1.0, 1e2, 1e6, 1e12):
        a = apart(model, distance)
        values.append(np.abs(model.matrix(a, a)[count:, :count]).max())
    assert values == sorted(values, reverse=True)
    assert values[-1] <= 1e-5 * size
    if "time" in model.uses:
        lags = [apart(model, 0.0, lag) for lag in (1.0, 1e2, 1e6, 1e12)]
        values = [np.abs(model.matrix(a, a)[count:, :count]).max() for a in lags]
        assert values == sorted(values, reverse=True)
        assert values[-1] <= 1e-5 * size


@each_model
def test_fp32_is_fp64_to_its_precision(model):
    a = inputs_of(model)
    single = np.empty((len(a), len(a)), np.float32, order="F")
    model.pairs(a).write("correlation", slice(0, len(a)), slice(0, len(a)), single)
    tolerance = 4 * np.finfo(np.float32).eps * model.largest_variance
    np.testing.assert_allclose(single, model.matrix(a, a), rtol=0, atol=tolerance)
