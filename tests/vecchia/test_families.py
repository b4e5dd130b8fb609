"""Vecchia's approximation takes every family that is a sum of terms."""

import numpy as np
import pytest

import geomxp as gx
from geomxp.vecchia import gpu

MODELS = {
    "no shape": gx.Spherical(1.0, 0.3, 0.1),
    "two shapes": gx.Cauchy(1.0, 0.1, 1.2, 0.8, 0.1, (30.0, 0.6)),
    "folded table": gx.Wendland(1.0, 0.5, 1.0, 3.0, 0.1),
    "folded and turned": gx.Spherical(1.0, 0.3, 0.1, (30.0, 0.6)),
    "time as a coordinate": gx.MaternSpaceTime(1.0, 0.3, 2.0, 0.8, 0.1),
    "stretch": gx.Gneiting(1.0, 0.3, 2.0, 0.8, 0.6, 0.7, 0.3, 0.1),
    "two variables": gx.ParsimoniousMatern((1.0, 2.0), 0.3, (0.5, 1.2), 0.3, (0.1, 0.2)),
    "two terms": gx.Coregionalization(
        (1.0, 0.4, 0.8), (0.3, 0.1), (0.5, 1.2), (0.1, 0.2), nugget_covariance=0.05
    ),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_with_all_predecessors_every_family_has_its_exact_likelihood_and_gradient(model):
    random = np.random.default_rng(0)
    places = random.random((120, 2))
    values, time, variable = random.standard_normal(120), random.random(120) * 5, np.arange(120) % 2
    observations = gx.Observations(
        places,
        values,
        time=time if "time" in model.uses else None,
        variable=variable if "variable" in model.uses else None,
    )
    design = np.column_stack((np.ones(120), places))
    exact, vecchia = (m.prepare(observations, design) for m in (gx.Exact(), gx.Vecchia(119)))
    assert vecchia(model).log_likelihood == pytest.approx(exact(model).log_likelihood, abs=1e-9)
    expected = exact.gradient(model)
    for name, slope in vecchia.gradient(model).items():
        assert slope == pytest.approx(expected[name], abs=1e-7)


@pytest.mark.parametrize(
    "model",
    [
        gx.Matern(1.0, 1.0, 0.5, anisotropy=gx.AxisRatios(2.0)),
        gx.Matern(1.0, 1.0, 0.5, anisotropy=gx.Anisotropy3D(30.0, 20.0, 10.0, 0.6, 0.3)),
        gx.Separable(1.0, 1.0, 1.0, 0.5, 0.5, anisotropy=(30.0, 0.5)),
        gx.ParsimoniousMatern((1.0, 1.0), 1.0, 0.5, 0.5),
    ],
    ids=["axes", "ellipsoid", "in time", "variables"],
)
def test_what_kernels_on_a_gpu_cannot_evaluate_is_refused(model):
    with pytest.raises(gx.InvalidInput, match='use on="cpu"'):
        gpu.check_tabulated(model)
    gpu.check_tabulated(gx.Matern(1.0, 1.0, 0.5, anisotropy=(30.0, 0.5)))
    gpu.check_tabulated(gx.Separable(1.0, 1.0, 1.0, 0.5, 0.5))
