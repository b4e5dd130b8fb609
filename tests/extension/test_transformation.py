"""Drill: a transformation in one file."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

import geomxp as gx
from geomxp.likelihood.base import by_differences

FIELD = gx.Matern(0.8, 0.2, 0.5, 0.05)
HELD = {"smoothness": 0.5}
METHODS = [gx.Exact(), gx.Exact(tile=32), gx.Vecchia(20)]


@dataclass(frozen=True)
class ArcSinh(gx.Transformation):
    """z = arsinh(y/c): a logarithm for large values of both signs."""

    name = "arcsinh"
    declared = (gx.Parameter("arcsinh_scale", 1.0, unit="transform", search=(1e-3, 1e3)),)

    arcsinh_scale: float = 1.0

    def transform(self, values):
        return np.arcsinh(values / self.arcsinh_scale)

    def inverse(self, z):
        return self.arcsinh_scale * np.sinh(z)

    def log_jacobian(self, values):
        return -0.5 * np.log(values**2 + self.arcsinh_scale**2)


def measured(n=150):
    locations = np.random.default_rng(1).random((n, 2))
    z = gx.simulate(FIELD, locations, seed=2)[0]
    return gx.Observations(locations, ArcSinh(0.5).inverse(2 * z))


@pytest.mark.parametrize("reml", [False, True])
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_scores_are_slopes_of_the_log_likelihood(method, reml):
    evaluator = method.prepare(measured(), np.ones((150, 1)), reml)
    model = gx.Matern(0.8, 0.2, 0.5, 0.05, transform=ArcSinh(0.7))
    slopes, found = (
        by_differences(evaluator, model, list(model.parameters())),
        evaluator.gradient(model),
    )
    for name, slope in slopes.items():
        assert found[name] == pytest.approx(slope, rel=1e-4, abs=1e-5), name


def test_the_density_is_that_of_scipy():
    seen, model = measured(20), gx.Matern(0.8, 0.2, 0.5, 0.05, transform=ArcSinh(0.7))
    found = gx.log_likelihood(seen, model).log_likelihood
    sigma = model(seen.locations, seen.locations) + model.nugget * np.eye(20)
    z = np.arcsinh(seen.values / 0.7)
    normal = stats.multivariate_normal(np.zeros(20), sigma).logpdf(z)
    assert found == pytest.approx(normal - 0.5 * np.log(seen.values**2 + 0.49).sum(), abs=1e-9)


@pytest.mark.parametrize(
    "transform", [(ArcSinh(), "log"), {"zinc": ArcSinh(), "ph": "log"}, {"ph": ArcSinh}, ArcSinh()]
)
def test_a_fit_of_several_variables_is_read_with_the_transformations_of_the_fit(
    transform, tmp_path
):
    locations, variable = np.random.default_rng(1).random((30, 2)), np.arange(30) % 2
    values, names = np.random.default_rng(2).lognormal(size=30), ("zinc", "ph")
    seen = gx.Observations(locations, values, variable=variable, variable_names=names)
    model = gx.Independent((1.0, 1.0), 0.3, 0.5, 0.1)
    every = tuple(model.parameters())
    fit = gx.fit(seen, model, fixed=every, transform=transform, evaluations=1, progress=False)
    fit.save(tmp_path / "fit.json")
    assert gx.Fit.load(tmp_path / "fit.json", transform=transform) == fit
    with pytest.raises(gx.InvalidInput, match="must name variables: zinc, ph"):
        gx.Fit.load(tmp_path / "fit.json", transform={"zink": ArcSinh})


@pytest.mark.slow
def test_a_fit_estimates_the_parameter_and_predicts(tmp_path):
    seen = measured()
    fit = gx.fit(seen, fixed=HELD, transform=ArcSinh(), progress=False)
    scale = fit.model.transform.arcsinh_scale
    low, high = fit.confidence_intervals(0.999)["arcsinh_scale"]
    assert low < 0.5 < high
    new = np.random.default_rng(3).random((5, 2))
    held = gx.fit(seen, fixed=HELD, transform=ArcSinh(scale), start={}, progress=False)
    assert held.log_likelihood == pytest.approx(fit.log_likelihood, abs=1e-5)
    plain = gx.predict(fit.gaussian, new)
    found = gx.predict(fit, new)
    np.testing.assert_array_equal(found.median, scale * np.sinh(plain.mean))
    # E sinh Z = sinh(m) exp(v/2)
    mean = scale * np.sinh(plain.mean) * np.exp(plain.variance / 2)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-10)
    fit.save(tmp_path / "fit.json")
    again = gx.Fit.load(tmp_path / "fit.json", transform=ArcSinh)
    np.testing.assert_array_equal(gx.predict(again, new).mean, found.mean)
    with pytest.raises(gx.InvalidInput, match="does not have: give it"):
        gx.Fit.load(tmp_path / "fit.json")
    gx.report(again, tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size > 1000
    assert gx.kl_divergence(fit.model, seen, gx.Vecchia(10), trend="constant").kl > 0
