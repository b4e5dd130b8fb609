"""Drill: a distance metric in one file.

Locations are (day of the year, depth): the year is a circle, and depths are stretched.
"""

import numpy as np
import pytest

import geomxp as gx
from geomxp import testing

YEAR = 365.25


def on_cylinder(locations):
    """Return points of a cylinder; its circumference is one year, 1 m of depth counts 10 days."""
    angle = 2 * np.pi * locations[:, 0] / YEAR
    radius = YEAR / (2 * np.pi)
    return np.column_stack((radius * np.cos(angle), radius * np.sin(angle), 10 * locations[:, 1]))


SEASONAL = gx.Metric("seasonal", embedding=on_cylinder, dimension=3, unit="days")


def places(n=120, seed=1):
    return np.random.default_rng(seed).random((n, 2)) * [YEAR, 20.0]


def test_it_obeys_the_laws():
    testing.check_metric(SEASONAL, places(60))
    model = gx.Matern(1.3, 40.0, 0.8, 0.1)
    testing.check_covariance(model, gx.Inputs(places(60), SEASONAL))


def test_the_years_ends_are_neighbours():
    model = gx.Gaussian(1.0, 30.0)
    ends = model([[0.5, 3.0]], [[YEAR - 0.5, 3.0], [0.5, 3.1]], SEASONAL)
    np.testing.assert_allclose(ends, np.exp(-1 / 30**2), rtol=1e-4)


@pytest.mark.parametrize("method", [gx.Exact(), gx.Exact(tile=32), gx.Vecchia(119)])
def test_likelihoods_use_it(method):
    model = gx.PoweredExponential(1.0, 60.0, 1.2, 0.1)
    field = gx.simulate(model, places(), draws=1, seed=0, metric=SEASONAL)[0]
    seen = gx.Observations(places(), field, metric=SEASONAL)
    points = gx.Observations(on_cylinder(places()), field)
    expected = gx.log_likelihood(points, model).log_likelihood
    assert gx.log_likelihood(seen, model, method).log_likelihood == pytest.approx(expected)


def test_fits_and_predictions_use_it():
    field = gx.simulate(gx.Matern(1.0, 60.0, 0.5), places(), draws=1, seed=0, metric=SEASONAL)[0]
    new = places(10, seed=2)
    found = [
        gx.predict(gx.fit(seen, fixed={"smoothness": 0.5}, trend="constant"), at)
        for seen, at in (
            (gx.Observations(places(), field, metric=SEASONAL), new),
            (gx.Observations(on_cylinder(places()), field), on_cylinder(new)),
        )
    ]
    np.testing.assert_allclose(found[0].mean, found[1].mean, rtol=1e-4)


def test_families_are_checked_in_its_dimension():
    # valid in the plane, not in 3 dimensions
    with pytest.raises(gx.InvalidInput, match=r"in 3 dimensions .* needs shape at least 2"):
        gx.Wendland(1.0, 50.0, 0.0, 1.6)(places(), places(), SEASONAL)
    with pytest.raises(gx.InvalidInput, match="`metric` must be one of"):
        gx.Observations(places(), np.zeros(120), metric="seasonal")
