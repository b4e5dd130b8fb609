"""Drill: two variables by linear coregionalization in one file."""

from dataclasses import dataclass
from math import inf

import numpy as np
import pytest

import geomxp as gx
from geomxp import testing
from geomxp.covariance.base import NUGGET, RANGE, VARIANCE


@dataclass(frozen=True)
class Coregionalization(gx.Covariance):
    """Y₀ = σW₁ and Y₁ = σ(bW₁ + √c W₂), with correlations exp(-h/a) of W₁ and exp(-h/d) of W₂."""

    family = "coregionalization"
    uses = ("variable",)
    declared = (
        *(VARIANCE, RANGE, gx.Parameter("loading", 0.5, "identity", -inf, search=(-10.0, 10.0))),
        *(gx.Parameter("specific", 0.5), gx.Parameter("length", 1.0, unit="length"), NUGGET),
    )

    variance: float
    range: float
    loading: float
    specific: float
    length: float
    nugget: float = 0.0

    def matrix(self, a, b):
        """Evaluate C, (n, m)."""
        return self.variance * self.derivatives(a, b, names=["variance"])["variance"]

    def derivatives(self, a, b, metric=None, names=None):
        """Evaluate the derivatives; with k entries of variable 1, C/σ² = b^k ρ₁ + c[k = 2] ρ₂."""
        h = np.linalg.norm(a.points[:, None] - b.points, axis=-1)
        k, power = np.add.outer(a.variable, b.variable), np.power
        first, second = np.exp(-h / self.range), (k == 2) * np.exp(-h / self.length)
        shared = power(self.loading, k) * first
        slopes = {
            "variance": shared + self.specific * second,
            "range": self.variance * shared * h / self.range**2,
            "loading": self.variance * k * power(self.loading, np.maximum(k - 1, 0)) * first,
            "specific": self.variance * second,
            "length": self.variance * self.specific * second * h / self.length**2,
        }
        return {name: slopes[name] for name in names or slopes}

    @property
    def largest_variance(self):
        """The larger one of the two variances."""
        return self.variance * max(1.0, self.loading**2 + self.specific)

    def diagonal(self, a):
        """Evaluate the variance of each input, (n,)."""
        return self.variance * np.where(a.variable, self.loading**2 + self.specific, 1.0)


TRUE = Coregionalization(1.5, 0.3, 0.8, 0.4, 0.1, 0.1)
PLACES, VARIABLE = np.repeat(testing.places(50), 2, axis=0), np.tile([0, 1], 50)


@pytest.fixture(scope="module")
def fit():
    values = gx.simulate(TRUE, PLACES, variable=VARIABLE, seed=1)[0]
    data = gx.Observations(PLACES, values, variable=VARIABLE)
    return gx.fit(data, family=Coregionalization, trend="zero", fixed={"length": 0.1})


@pytest.mark.slow
@pytest.mark.parametrize("method", [gx.Exact(), gx.Exact(gx.by_tile_norm(1e-9), 32)], ids=str)
def test_exact_methods_evaluate_it(fit, method):
    data = fit.observations
    testing.check_covariance(TRUE, data.inputs)
    sigma = TRUE(data.inputs, data.inputs) + TRUE.nugget * np.eye(len(data))
    value = -0.5 * data.values @ np.linalg.solve(sigma, data.values)
    value -= 0.5 * (np.linalg.slogdet(sigma)[1] + len(data) * np.log(2 * np.pi))
    assert gx.log_likelihood(data, TRUE, method).log_likelihood == pytest.approx(value, abs=1e-4)
    assert abs(gx.kl_divergence(TRUE, data, method).kl) < 1e-6


@pytest.mark.slow
def test_fits_predict_report_and_survive_a_file(fit, tmp_path):
    fit.save(tmp_path / "fit.json")
    again = gx.Fit.load(tmp_path / "fit.json", family=Coregionalization)
    assert again.model == fit.model
    new = testing.places(9, seed=3)
    found = gx.predict(again, new, variable=1)
    np.testing.assert_array_equal(gx.predict(fit, new, variable=1).mean, found.mean)
    # the other variable helps
    alone = fit.observations.subset(VARIABLE == 1)
    targets = gx.Inputs(new, variable=np.ones(9, dtype=int))
    errors = gx.mloe_mmom(fit.model, fit.model, alone, targets).error_of_true
    assert (found.variance < errors).all()
    gx.report(fit, tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size > 1000
