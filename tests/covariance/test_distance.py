import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import geomxp as gx
from geomxp.covariance.distance import EARTH_RADIUS, METRICS, between, embed, metric_of

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


CHORDAL = METRICS["chordal"]


@given(
    st.floats(-180, 180),
    st.floats(0.1, 290),
    st.lists(st.sampled_from([0, 360, -360]), min_size=12, max_size=12),
)
def test_longitudes_on_a_branch_are_the_same_meridians_within_the_width_of_the_region(
    west, width, turns
):
    longitudes = west + width * np.linspace(0, 1, 12)
    given_as = np.where(np.abs(longitudes + turns) <= 360, longitudes + turns, longitudes)
    given_as = np.where(np.abs(given_as) <= 360, given_as, given_as - 360)
    places = np.column_stack((given_as, np.zeros(12)))
    moved, middle = CHORDAL.branch_of(places)
    # no more than the region, wherever 0 and 180 degrees lie in it
    assert np.ptp(moved[:, 0]) == pytest.approx(width, abs=1e-9)
    assert middle == pytest.approx((moved[:, 0].min() + moved[:, 0].max()) / 2, abs=1e-9)
    turned = (moved - places)[:, 0] / 360
    np.testing.assert_allclose(turned, np.round(turned), atol=1e-12)
    assert np.abs(moved[:, 0]).max() <= 360 + 1e-9
    np.testing.assert_array_equal(CHORDAL.branch_of(moved)[0], moved)
    np.testing.assert_array_equal(CHORDAL.on_branch(places, middle), moved)


@pytest.mark.parametrize(
    ("longitudes", "expected", "middle"),
    [
        # numbers on a shortest branch are kept
        ([-94, -90, -84], [-94, -90, -84], -89),
        ([266, 270, 276], [266, 270, 276], 271),
        ([176, 180, 183], [176, 180, 183], 179.5),
        ([-90, 0, 90], [-90, 0, 90], 0),
        ([-180, -180, -180], [-180, -180, -180], -180),
        # others increase eastwards, to at most 360
        ([170, 175, -175], [170, 175, 185], 177.5),
        ([175, -175, -130], [175, 185, 230], 202.5),
        ([-94, 270, 276], [266, 270, 276], 271),
        ([350, 355, 5], [-10, -5, 5], -2.5),
        ([180, -180, 181], [180, 180, 181], 180.5),
        ([-179, 300, 210], [181, 300, 210], 240.5),
    ],
)
def test_the_branch_is_the_shortest_and_keeps_numbers_where_it_can(longitudes, expected, middle):
    places = np.column_stack((longitudes, [10.0, 20.0, 30.0]))
    moved, found = CHORDAL.branch_of(places)
    np.testing.assert_array_equal(moved[:, 0], expected)
    assert found == middle


@pytest.mark.parametrize(
    "longitudes",
    [
        np.arange(0, 360, 2.5),
        np.arange(-180, 181, 2.5),  # both ends are one meridian
        np.arange(0, 360, 120),
        [0, 180, 0, 180],
        np.delete(np.arange(0, 360, 20.0), 3),  # one column is missing
        np.random.default_rng(5).uniform(-180, 180, 60),
    ],
)
def test_longitudes_all_round_the_globe_have_no_branch(longitudes):
    places = np.column_stack((longitudes, np.zeros(len(longitudes))))
    moved, middle = CHORDAL.branch_of(places)
    assert middle is None
    np.testing.assert_array_equal(moved, places)


def test_mixed_conventions_all_round_the_globe_become_one():
    longitudes = np.append(np.arange(-180, 180, 10.0), np.arange(5, 360, 10.0))
    moved, middle = CHORDAL.branch_of(np.column_stack((longitudes, 0 * longitudes)))
    assert middle is None
    assert np.abs(moved).max() <= 180


def test_a_pole_does_not_widen_the_branch_and_is_one_place():
    places = np.array([[0.0, 90.0], [170.0, 80.0], [-170.0, 80.0]])
    moved, middle = CHORDAL.branch_of(places)
    assert middle == 180
    assert moved[:, 0].tolist() == [180, 170, 190]
    poles = np.array([[-40.0, 90.0], [300.0, 90.0]])
    np.testing.assert_array_equal(CHORDAL.on_branch(poles, 180.0)[:, 0], 180.0)


@pytest.mark.parametrize("digits", [0, 1, 4, 9])
def test_a_decimal_longitude_has_the_same_point_in_every_spelling(digits):
    longitudes = np.random.default_rng(digits).uniform(-180, 180, 2000).round(digits)
    latitudes = np.random.default_rng(9).uniform(-90, 90, 2000)
    there = np.column_stack(((longitudes + 360).round(digits), latitudes))
    here = np.column_stack((longitudes, latitudes))
    np.testing.assert_array_equal(embed(here, "chordal"), embed(there, "chordal"))
    np.testing.assert_array_equal(CHORDAL.on_branch(there, 0.0), CHORDAL.on_branch(here, 0.0))


@pytest.mark.parametrize("metric", ["euclidean", gx.Metric("degrees", geographic=True)])
def test_metrics_that_do_not_turn_have_no_branch(metric):
    places = np.array([[179.0, 0.0], [-179.0, 0.0], [300.0, 90.0]])
    metric = metric_of(metric)
    assert metric.branch_of(places)[1] is None
    np.testing.assert_array_equal(metric.branch_of(places)[0], places)
    np.testing.assert_array_equal(metric.on_branch(places, 179.0), places)
