"""Vecchia's approximation takes every isotropic family: none, one or two shape parameters."""

import numpy as np
import pytest

import geomxp as gx

MODELS = {
    "no shape": gx.Spherical(1.0, 0.3, 0.1),
    "two shapes": gx.Cauchy(1.0, 0.1, 1.2, 0.8, 0.1, (30.0, 0.6)),
    "folded table": gx.Wendland(1.0, 0.5, 1.0, 3.0, 0.1),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_with_all_predecessors_every_family_has_its_exact_likelihood_and_gradient(model):
    random = np.random.default_rng(0)
    places = random.random((120, 2))
    observations = gx.Observations(places, random.standard_normal(120))
    design = np.column_stack((np.ones(120), places))
    exact, vecchia = (m.prepare(observations, design) for m in (gx.Exact(), gx.Vecchia(119)))
    assert vecchia(model).log_likelihood == pytest.approx(exact(model).log_likelihood, abs=1e-9)
    expected = exact.gradient(model)
    for name, slope in vecchia.gradient(model).items():
        assert slope == pytest.approx(expected[name], abs=1e-7)
