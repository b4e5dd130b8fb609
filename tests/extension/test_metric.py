"""Drill: a distance metric in one file.

Locations are (hour of the day, depth): the day is a circle, and depths are stretched.
"""

import numpy as np
import pytest

import geomxp as gx
from geomxp import testing

DAY = 24.0


def on_cylinder(locations):
    """Return points of a cylinder of circumference one day; 1 m of depth counts half an hour."""
    angle = 2 * np.pi * locations[:, 0] / DAY
    radius = DAY / (2 * np.pi)
    return np.column_stack((radius * np.cos(angle), radius * np.sin(angle), locations[:, 1] / 2))


DAILY = gx.Metric("daily", embedding=on_cylinder, dimension=3, unit="hours")


def places(n=120, seed=1):
    return np.random.default_rng(seed).random((n, 2)) * [DAY, 20.0]


def test_it_obeys_the_laws():
    testing.check_metric(DAILY, places(60))
    model = gx.Matern(1.3, 4.0, 0.8, 0.1)
    testing.check_covariance(model, gx.Inputs(places(60), DAILY))


def test_midnight_has_two_sides():
    ends = gx.Gaussian(1.0, 3.0)([[0.1, 3.0]], [[DAY - 0.1, 3.0], [0.1, 3.4]], DAILY)
    np.testing.assert_allclose(ends, np.exp(-((0.2 / 3) ** 2)), rtol=1e-4)


@pytest.mark.parametrize("method", [gx.Exact(), gx.Exact(tile=32), gx.Vecchia(119)])
def test_likelihoods_use_it(method):
    model = gx.PoweredExponential(1.0, 4.0, 1.2, 0.1)
    field = gx.simulate(model, places(), draws=1, seed=0, metric=DAILY)[0]
    seen = gx.Observations(places(), field, metric=DAILY)
    points = gx.Observations(on_cylinder(places()), field)
    expected = gx.log_likelihood(points, model).log_likelihood
    found = gx.log_likelihood(seen, model, method).log_likelihood
    assert found == pytest.approx(expected, rel=1e-9)


def test_fits_predict_and_survive_a_file(tmp_path):
    field = gx.simulate(gx.Matern(1.0, 4.0, 0.5), places(), draws=1, seed=0, metric=DAILY)[0]
    new, points = places(10, seed=2), gx.Observations(on_cylinder(places()), field)
    fit = gx.fit(gx.Observations(places(), field, metric=DAILY), fixed={"smoothness": 0.5})
    fit.save(tmp_path / "fit.json")
    again = gx.Fit.load(tmp_path / "fit.json", metric=DAILY)
    found = gx.predict(again, new).mean
    np.testing.assert_array_equal(found, gx.predict(fit, new).mean)
    straight = gx.fit(points, fixed={"smoothness": 0.5})
    np.testing.assert_allclose(found, gx.predict(straight, on_cylinder(new)).mean, rtol=1e-4)


def test_families_are_checked_in_its_dimension():
    # valid in the plane, not in 3 dimensions
    with pytest.raises(gx.InvalidInput, match=r"in 3 dimensions .* needs shape at least 2"):
        gx.Wendland(1.0, 5.0, 0.0, 1.6)(places(), places(), DAILY)
    with pytest.raises(gx.InvalidInput, match="`metric` must be one of"):
        gx.Observations(places(), np.zeros(120), metric="daily")
