"""The noise of observations, against matrices written out."""

from dataclasses import replace

import numpy as np
import pytest

import geomxp as gx
from geomxp import testing
from geomxp.covariance.noise import MICROSCALE, NUGGET, NUGGET_COVARIANCE, without_noise

ERRORS, COUNTS = np.array([0.0, 0.3, 0.2, 0.0]), np.array([1.0, 2.0, 4.0, 1.0])
PLACES = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
MODEL = gx.Matern(1.0, 0.5, 0.8, 0.1, microscale=0.05)
VARIABLES = gx.Independent((1.0, 4.0), 0.5, 0.5, (0.1, 0.4), nugget_covariance=0.15)


@pytest.mark.parametrize("errors", [None, ERRORS], ids=["", "errors"])
@pytest.mark.parametrize("counts", [None, COUNTS], ids=["", "replicates"])
def test_variances_are_those_of_nugget_microscale_and_errors(errors, counts):
    noise = MODEL.noise(gx.Inputs(PLACES, error_variance=errors, replicates=counts))
    own = np.full(4, 0.1) / (1.0 if counts is None else counts) + (0 if errors is None else errors)
    np.testing.assert_allclose(noise.unshared, own, rtol=1e-15)
    np.testing.assert_allclose(noise.variances, own + 0.05, rtol=1e-15)
    assert noise.least == noise.variances.min()
    assert noise.names == ("nugget", "microscale")
    for name in noise.names:
        step = replace(MODEL, **{name: getattr(MODEL, name) + 1.0}).noise(noise.inputs).variances
        np.testing.assert_allclose(noise.derivative(name), step - noise.variances, rtol=1e-14)


def test_each_variable_has_its_nugget():
    inputs = gx.Inputs(PLACES, variable=np.array([0, 1, 1, 0]), replicates=COUNTS)
    noise = replace(VARIABLES, nugget_covariance=None).noise(inputs)
    np.testing.assert_allclose(noise.variances, [0.1, 0.2, 0.1, 0.1], rtol=1e-15)
    np.testing.assert_array_equal(noise.derivative("nugget_2"), [0.0, 0.5, 0.25, 0.0])
    assert noise.matrix is None


def test_nuggets_of_one_place_are_drawn_with_their_covariance():
    inputs = gx.Inputs(PLACES, variable=np.array([0, 1, 1, 0]), error_variance=ERRORS)
    noise = VARIABLES.noise(inputs)
    drawn = noise.draw(np.random.default_rng(0), 200_000)
    expected = np.diag(noise.variances)
    expected[0, 1] = expected[1, 0] = 0.15
    np.testing.assert_allclose(np.cov(drawn.T, bias=True), expected, atol=0.01)
    assert noise.least == pytest.approx(np.linalg.eigvalsh([[0.1, 0.15], [0.15, 0.4]])[0])
    twice = gx.Inputs(PLACES, variable=np.zeros(4, dtype=int))
    with pytest.raises(gx.InvalidInput, match=r"a location is repeated.*of=\"field\""):
        VARIABLES.noise(twice).draw(np.random.default_rng(0), 1)


def test_a_model_without_noise_is_that_of_the_field():
    assert without_noise(MODEL) == gx.Matern(1.0, 0.5, 0.8)
    assert without_noise(VARIABLES) == gx.Independent((1.0, 4.0), 0.5, 0.5)


@pytest.mark.parametrize("model", [MODEL, VARIABLES, gx.Separable(1.0, 1.0, 2.0, 0.5, 0.5)])
def test_parameters_know_their_role_and_their_variables(model):
    noise = {NUGGET.name, MICROSCALE.name, NUGGET_COVARIANCE.name}
    for p in model.table:
        assert p.role == ("noise" if p.group in noise else "field")
        assert p.name == (p.of(p.where).name if p.where else p.group)
        assert max(p.where, default=0) < model.variables
    transformed = replace(gx.Matern(1.0, 1.0, 0.5), transform="boxcox")
    assert {p.name for p in transformed.table if p.role == "transformation"} == {"boxcox_power"}


@pytest.mark.parametrize(
    "family", [gx.Independent, gx.Coregionalization, gx.ParsimoniousMatern, gx.FlexibleMatern]
)
def test_twelve_variables_have_names_that_are_read_back(family):
    values = {p.name: p.value for p in family.declared_for(12)}
    model = family.from_parameters(values)
    assert model.variables == 12
    assert list(model.parameters()) == list(values)
    assert len(set(values)) == len(family.declared_for(12))
    assert family.from_parameters(model.parameters()) == model
    with pytest.raises(gx.InvalidInput, match="12 variables needs values of nugget_11 too"):
        family.from_parameters({n: x for n, x in values.items() if n != "nugget_11"})


def test_twelve_variables_obey_the_laws():
    random = np.random.default_rng(0)
    model = gx.ParsimoniousMatern(
        tuple(random.uniform(0.5, 2.0, 12)), 0.3, tuple(random.uniform(0.3, 1.5, 12)), 0.1, 0.1
    )
    inputs = gx.Inputs(random.random((60, 2)), variable=random.permutation(np.arange(60) % 12))
    testing.check_covariance(model, inputs)
    values = random.standard_normal(60)
    seen = gx.Observations(inputs.locations, values, variable=inputs.variable)
    sigma = model(inputs, inputs) + np.diag(model.noise(inputs).variances)
    expected = -0.5 * (values @ np.linalg.solve(sigma, values) + np.linalg.slogdet(sigma)[1])
    expected -= 30 * np.log(2 * np.pi)
    for method in (gx.Exact(), gx.Vecchia(59)):
        found = gx.log_likelihood(seen, model, method).log_likelihood
        assert found == pytest.approx(expected, rel=1e-9)
