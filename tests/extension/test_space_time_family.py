"""Drill: a separable space-time family in one file, for data with times."""

from dataclasses import dataclass
from math import inf

import numpy as np
import pytest

import geomxp as gx
from geomxp import testing
from geomxp.covariance.base import NUGGET, RANGE, VARIANCE


@dataclass(frozen=True)
class Separable(gx.Covariance):
    """C(h, u) = σ² exp(-h/a) exp(-|u|/b), valid in all Euclidean dimensions."""

    family = "separable"
    uses = ("time",)
    declared = (VARIANCE, RANGE, gx.Parameter("duration", 1.0, unit="time"), NUGGET)

    variance: float
    range: float
    duration: float
    nugget: float = 0.0

    def matrix(self, a, b):
        """Evaluate C, (n, m)."""
        apart = np.abs(np.subtract.outer(a.time, b.time)) / self.duration
        return self.variance * np.exp(-self._scaled(a, b) - apart)

    def derivatives(self, a, b, metric=None, names=None):
        """Evaluate ∂C/∂σ² = C/σ², ∂C/∂a = C h/a², ∂C/∂b = C |u|/b²."""
        field, apart = self.matrix(a, b), np.abs(np.subtract.outer(a.time, b.time))
        slopes = {
            "variance": field / self.variance,
            "range": field * self._scaled(a, b) / self.range,
            "duration": field * apart / self.duration**2,
        }
        return {name: slopes[name] for name in names or slopes}

    def _scaled(self, a, b):
        return np.linalg.norm(a.points[:, None] - b.points, axis=-1) / self.range


TRUE = Separable(1.5, 0.3, 2.0, 0.1)
TIMES = np.tile(np.arange(6.0), 15)


@pytest.fixture(scope="module")
def observations():
    stations = np.repeat(testing.places(15), 6, axis=0)
    values = gx.simulate(TRUE, stations, time=TIMES, seed=1)[0]
    return gx.Observations(stations, values, time=TIMES)
