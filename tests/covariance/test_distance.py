import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomxp.covariance.distance import EARTH_RADIUS, between, embed

LONLAT = np.random.default_rng(0).uniform([-180, -90], [180, 90], (40, 2))


def haversine(a, b):
    lon_a, lat_a, lon_b, lat_b = map(np.radians, (*a.T, *b.T))
    lon, lat = np.subtract.outer(lon_a, lon_b), np.subtract.outer(lat_a, lat_b)
    s = (
        np.sin(lat / 2) ** 2
        + np.multiply.outer(np.cos(lat_a), np.cos(lat_b)) * np.sin(lon / 2) ** 2
    )
    return np.sqrt(np.minimum(s, 1.0))


@pytest.mark.parametrize("metric", ["chordal", "great-circle"])
def test_spherical_distances_are_the_haversine_formula(metric):
    s = haversine(LONLAT, LONLAT)
    expected = 2 * EARTH_RADIUS * (s if metric == "chordal" else np.arcsin(s))
    points = embed(LONLAT, metric)
    # near antipodes arcsin turns a rounding u into √u
    atol = 1e-11 * EARTH_RADIUS if metric == "chordal" else 1e-7 * EARTH_RADIUS
    np.testing.assert_allclose(between(points, points, metric), expected, rtol=1e-12, atol=atol)


def test_pole_to_pole_is_half_a_great_circle():
    points = embed(np.array([[0.0, 90.0], [77.0, -90.0]]), "great-circle")
    assert between(points, points, "great-circle")[0, 1] == pytest.approx(np.pi * EARTH_RADIUS)


@given(st.integers(1, 3), st.integers(-300, 300))
def test_euclidean_distances_neither_overflow_nor_vanish(d, exponent):
    places = np.random.default_rng(d).random((5, d))
    expected = between(places, places, "euclidean")
    found = between(places * 10.0**exponent, places * 10.0**exponent, "euclidean")
    np.testing.assert_allclose(found / 10.0**exponent, expected, rtol=1e-12, atol=1e-15)
