"""Drill: a separable space-time family in one file, for data with times."""

from dataclasses import dataclass

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
        h, u = self.lags(a, b)
        return self.variance * np.exp(-h / self.range - u / self.duration)

    def derivatives(self, a, b, metric=None, names=None):
        """Evaluate ∂C/∂σ² = C/σ², ∂C/∂a = C h/a² and ∂C/∂b = C |u|/b²."""
        field, (h, u) = self.matrix(a, b), self.lags(a, b)
        slopes = {"variance": field / self.variance}
        slopes |= {"range": field * h / self.range**2, "duration": field * u / self.duration**2}
        return {name: slopes[name] for name in names or slopes}

    def lags(self, a, b):
        """Return distances in space and in time, (n, m)."""
        h = np.linalg.norm(a.points[:, None] - b.points, axis=-1)
        return h, np.abs(np.subtract.outer(a.time, b.time))


TRUE = Separable(1.5, 0.3, 2.0, 0.1)
STATIONS, TIME = np.repeat(testing.places(20), 5, axis=0), np.tile(np.arange(5.0), 20)
METHODS = [gx.Exact(), gx.Exact(tile=32), gx.Exact(gx.for_divergence(1e-9), 32)]
METHODS += [gx.Exact(gx.by_tile_norm(1e-9), 32, memory="200kB")]


@pytest.fixture(scope="module")
def fit():
    values = gx.simulate(TRUE, STATIONS, time=TIME, seed=1)[0]
    return gx.fit(gx.Observations(STATIONS, values, time=TIME), family=Separable, trend="zero")


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_every_exact_method_evaluates_it(fit, method):
    testing.check_covariance(TRUE, gx.Inputs(STATIONS, time=TIME))
    data = fit.observations
    sigma = TRUE(data.inputs, data.inputs) + TRUE.nugget * np.eye(len(data))
    value = -0.5 * data.values @ np.linalg.solve(sigma, data.values)
    value -= 0.5 * (np.linalg.slogdet(sigma)[1] + len(data) * np.log(2 * np.pi))
    assert gx.log_likelihood(data, TRUE, method).log_likelihood == pytest.approx(value, abs=1e-4)
    assert abs(gx.kl_divergence(TRUE, data, method).kl) < 1e-6
    assert fit.log_likelihood >= value


@pytest.mark.slow
def test_fits_predict_simulate_report_and_survive_a_file(fit, tmp_path):
    fit.save(tmp_path / "fit.json")
    again, new = gx.Fit.load(tmp_path / "fit.json", family=Separable), testing.places(9, seed=7)
    assert again.model == fit.model
    now = gx.predict(fit, new, time=2.5)
    np.testing.assert_array_equal(gx.predict(again, new, time=2.5).mean, now.mean)
    late = gx.predict(fit, gx.Inputs(new, time=np.full(9, 1e3)))
    assert np.abs(late.mean).max() < 1e-12 < np.abs(now.mean).max()
    assert gx.simulate(fit, new, 2, time=2.5).shape == (2, 9)
    gx.report(fit, tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size > 1000


@pytest.mark.slow
def test_other_data_and_other_families_are_refused(fit):
    with pytest.raises(gx.InvalidInput, match="needs the time of each location: give `time`"):
        gx.predict(fit, STATIONS)
    with pytest.raises(gx.InvalidInput, match="a matern model does not depend on `time`"):
        gx.fit(fit.observations)


@pytest.mark.slow
def test_a_map_names_the_call_that_works(fit):
    with pytest.raises(gx.InvalidInput, match=r"raster=gx.predict_raster\(fit, time=") as refused:
        gx.plots.prediction_map(fit)
    time = float(str(refused.value).split("time=")[1].rstrip(")."))
    gx.plots.prediction_map(fit, raster=gx.predict_raster(fit, time=time, cells=4))
