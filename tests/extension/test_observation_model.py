"""Drill: an observation model in one file."""

import numpy as np
import pytest

import geomxp as gx
from geomxp.likelihood.base import ObservationModel

MODEL = gx.Matern(0.3, 0.2, 0.5, 0.05)
METHODS = [gx.Exact(), gx.Exact(tile=32), gx.Vecchia(20)]


class LogNormal(ObservationModel):
    """log y is the field plus noise."""

    def transform(self, values):
        return np.log(values)

    def log_jacobian(self, values):
        return -np.log(values)


def measured(n=70):
    """Return measurements and their logarithms, as observations."""
    locations = np.random.default_rng(1).random((n, 2))
    logs = 4.0 + gx.simulate(MODEL, locations, seed=2)[0]
    return gx.Observations(locations, np.exp(logs)), gx.Observations(locations, logs)


@pytest.mark.parametrize("reml", [False, True])
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_the_density_of_measurements_is_that_of_their_logarithms_and_a_jacobian(method, reml):
    values, logs = measured()
    found = gx.log_likelihood(LogNormal().apply(values), MODEL, method, reml=reml)
    expected = gx.log_likelihood(logs, MODEL, method, reml=reml).log_likelihood
    assert found.log_likelihood == pytest.approx(expected - logs.values.sum(), abs=1e-9)


@pytest.mark.parametrize("method", [METHODS[0], METHODS[2]], ids=str)
def test_a_fit_and_its_predictions_are_those_of_the_logarithms(method, tmp_path):
    values, logs = measured()
    options = {"fixed": {"smoothness": 0.5}, "progress": False}
    found, expected = (
        gx.fit(o, None, method, **options) for o in (LogNormal().apply(values), logs)
    )
    assert found.model == expected.model
    assert found.log_likelihood == pytest.approx(expected.log_likelihood - logs.values.sum())
    new = np.random.default_rng(3).random((5, 2))
    np.testing.assert_array_equal(gx.predict(found, new).mean, gx.predict(expected, new).mean)
    found.save(tmp_path / "fit.json")
    again = gx.Fit.load(tmp_path / "fit.json")
    assert again.log_likelihood == found.log_likelihood
    value = gx.log_likelihood(again.observations, again.model, again.method, trend="constant")
    assert value.log_likelihood == pytest.approx(found.log_likelihood, abs=1e-9)
    np.testing.assert_array_equal(gx.predict(again, new).mean, gx.predict(found, new).mean)
    gx.report(again, tmp_path / "report.html")
    assert "log_jacobian=log_jacobian" in (tmp_path / "report.html").read_text()


def test_the_density_is_that_of_scipy():
    values, _ = measured(20)
    stats = pytest.importorskip("scipy.stats")
    found = gx.log_likelihood(LogNormal().apply(values), MODEL, trend="zero").log_likelihood
    sigma = MODEL(values.locations, values.locations) + MODEL.nugget * np.eye(20)
    normal = stats.multivariate_normal(np.zeros(20), sigma).logpdf(np.log(values.values))
    assert found == pytest.approx(normal - np.log(values.values).sum(), abs=1e-9)


def test_the_jacobians_of_successive_transformations_add():
    logs = np.random.default_rng(5).random(9) + 1.0
    first = gx.Observations(np.arange(9.0)[:, None], np.exp(np.exp(logs)))
    twice = LogNormal().apply(LogNormal().apply(first))
    np.testing.assert_allclose(twice.values, logs, rtol=1e-14)
    # d log log y / dy = 1 / (y log y)
    expected = -np.log(first.values) - np.log(np.log(first.values))
    np.testing.assert_allclose(twice.log_jacobian, expected, rtol=1e-14)


def test_parts_keep_their_jacobian():
    values, logs = measured()
    half = LogNormal().apply(values).subset(range(35))
    np.testing.assert_array_equal(half.log_jacobian, -logs.values[:35])
    with pytest.raises(gx.InvalidInput, match="log_jacobian"):
        gx.Observations(values.locations, values.values, log_jacobian=[1.0])
