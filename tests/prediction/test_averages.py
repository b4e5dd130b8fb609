from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad

import geomxp as gx
from geomxp.prediction.averages import Region, integrals

STATED = 1e-8
"""What prediction/supports.py promises, for σ² = 1."""


def unit(nu):
    return gx.Matern(1.0, 1.0, nu)


def correlation(r, nu):
    return unit(nu).correlation(r)


def joined(corners):
    corners = np.array(corners, dtype=float)
    return np.stack((corners, np.roll(corners, -1, axis=0)), axis=1)


def rectangle(width, height):
    return Region(joined([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * [width / 2, height / 2])


def pieces(function, ends):
    """An adaptive integral between ends, cut where the integrand bends."""
    return sum(
        quad(function, a, b, epsabs=1e-14, epsrel=1e-12, limit=200)[0] for a, b in pairwise(ends)
    )


def from_corner(width, height, nu):
    """∫∫ ρ over a rectangle with the kink in its corner, by rays: DLMF 10.43.1 along each."""

    def ray(longest):
        return 2 * nu * (1 - float(correlation(np.array(longest), nu + 1)))

    corner = np.arctan2(height, width)
    below = quad(lambda a: ray(width / np.cos(a)), 0, corner, epsabs=1e-12)[0]
    return below + quad(lambda a: ray(height / np.sin(a)), corner, np.pi / 2, epsabs=1e-12)[0]


def twice(width, height, nu):
    """∫∫∫∫ ρ/A²: of the vector between two points, whose density is a tent."""

    def ray(angle):
        c, s = np.cos(angle), np.sin(angle)
        longest = min(width / max(c, 1e-300), height / max(s, 1e-300))
        cuts = [r for r in (1e-8, 1e-6, 1e-4, 1e-2, 0.1, 1.0, 5.0, 20.0) if r < longest]
        return pieces(
            lambda r: (
                r * float(correlation(np.array(r), nu)) * (1 - r * c / width) * (1 - r * s / height)
            ),
            [0.0, *cuts, longest],
        )

    corner = np.arctan2(height, width)
    return (4 / (width * height)) * pieces(ray, [0.0, corner, np.pi / 2])


@pytest.mark.slow
@pytest.mark.parametrize("nu", [0.1, 0.5, 0.8, 2.5])
@pytest.mark.parametrize("sides", [(1.0, 1.0), (0.01, 0.02), (8.0, 3.0), (60.0, 1.0)])
def test_a_rectangles_own_average_is_right_in_spite_of_the_kink(sides, nu):
    assert rectangle(*sides).variance(unit(nu)) == pytest.approx(twice(*sides, nu), abs=STATED)


@pytest.mark.parametrize("nu", [0.1, 0.8, 2.5])
@pytest.mark.parametrize("sides", [(1.0, 1.0), (8.0, 3.0)])
def test_averages_with_a_point_are_sums_of_rectangles_that_meet_there(sides, nu):
    region, (width, height) = rectangle(*sides), sides
    for across, up in ((0.3, 0.2), (-0.499, 0.1), (0.5, 0.5), (0.7, -0.1)):
        x, y = across * width, up * height
        expected = sum(
            np.sign(a * b) * from_corner(abs(a), abs(b), nu)
            for a in (width / 2 - x, width / 2 + x)
            for b in (height / 2 - y, height / 2 + y)
            if a and b
        )
        found = region.averages(unit(nu), np.array([[x, y]]))[0]
        assert found == pytest.approx(expected / (width * height), abs=STATED)


@pytest.mark.parametrize("length", [1e-3, 1.0, 30.0])
def test_intervals_have_their_closed_forms(length):
    """For ν = ½: averages of exp(-|u - x|) and of exp(-|u - v|)."""
    region = Region(np.array([0.0, length]))
    x = np.array([0.0, 0.3, 1.0, 1.4]) * length
    inside = np.where(x <= length, 2 - np.exp(-x) - np.exp(-np.abs(length - x)), 0.0)
    beyond = np.exp(-np.abs(x - length)) - np.exp(-x)
    expected = np.where(x <= length, inside, beyond) / length
    # F and Φ are interpolated to 1e-12 of themselves
    np.testing.assert_allclose(
        region.averages(unit(0.5), x[:, None]), expected, rtol=1e-11, atol=1e-13
    )
    twofold = 2 * (length + np.expm1(-length)) / length**2
    # length + expm1(-length) cancels for short intervals
    assert region.variance(unit(0.5)) == pytest.approx(twofold, rel=1e-11 + 1e-15 / length**2)


def test_the_radial_integrals_have_their_closed_form_in_the_plane():
    """∫_0^r s ρ_ν(s) ds = 2ν(1 - ρ_{ν+1}(r)), which loses digits where ρ is near 1."""
    r = np.geomspace(0.1, 50, 200)
    for nu in (0.3, 0.5, 1.7, 30.0):
        table = integrals(unit(nu), 2, 50.0)
        expected = 2 * nu * (1 - correlation(r, nu + 1)) / r**2
        # the formula of ρ errs by 1e-13
        np.testing.assert_allclose(table.f(r), expected, rtol=0, atol=2 * nu * 1e-13 / r[0] ** 2)


CORNERS = [[0, 0], [2, 0.5], [1.2, 1], [2.5, 2], [0.5, 1.8], [0.8, 1]]


def test_regions_know_no_place_no_direction_and_no_number_of_corners():
    nu, points = 0.6, np.random.default_rng(1).normal(1, 2, (40, 2))
    far = np.array([30.0, -20.0])
    turn = np.array([[np.cos(1.0), np.sin(1.0)], [-np.sin(1.0), np.cos(1.0)]])
    edges = joined(CORNERS)
    plain = Region(edges)
    moved = Region((edges + far) @ turn)
    halves = np.concatenate([np.stack((e[0], e.mean(0), e.mean(0), e[1])) for e in edges])
    split = Region(halves.reshape(-1, 2, 2))
    for other, places in ((moved, (points + far) @ turn), (split, points)):
        assert other.variance(unit(nu)) == pytest.approx(plain.variance(unit(nu)), abs=STATED)
        np.testing.assert_allclose(
            other.averages(unit(nu), places), plain.averages(unit(nu), points), rtol=0, atol=STATED
        )


def test_the_average_over_parts_is_the_average_over_the_whole():
    nu, points = 0.6, np.random.default_rng(2).normal(0, 1, (40, 2))
    left, right = joined([[-1, -1], [0.2, -1], [0.2, 1], [-1, 1]]), None
    right = joined([[0.2, -1], [1, -1], [1, 1], [0.2, 1]])
    parts = 0.6 * Region(left).averages(unit(nu), points) + 0.4 * Region(right).averages(
        unit(nu), points
    )
    np.testing.assert_allclose(
        parts, rectangle(2.0, 2.0).averages(unit(nu), points), rtol=0, atol=STATED
    )


@pytest.mark.slow
@pytest.mark.parametrize("count", [17, 60, 200, 400])
def test_corners_on_straight_edges_change_nothing_however_many_there_are(count):
    """Short edges have fewer nodes; the square stays the square."""
    s = np.linspace(-1, 1, count // 4, endpoint=False)
    corners = np.concatenate([np.column_stack(c) for c in ((s, -1 + 0 * s), (1 + 0 * s, s))])
    region = Region(joined(np.concatenate((corners, -corners))) * 0.8)
    whole, points = rectangle(1.6, 1.6), np.random.default_rng(5).normal(0, 1, (20, 2))
    assert region.variance(unit(0.5)) == pytest.approx(whole.variance(unit(0.5)), abs=STATED)
    np.testing.assert_allclose(
        region.averages(unit(0.5), points), whole.averages(unit(0.5), points), rtol=0, atol=STATED
    )
    # where it stands beside its place does not matter
    moved = Region(region.edges + 300)
    assert moved.variance(unit(0.5)) == pytest.approx(whole.variance(unit(0.5)), abs=STATED)


def test_a_polygon_of_many_corners_is_nearly_its_disc():
    """ρ's average over a disc with its centre is 2F(R) as for any ball."""
    angles = 2 * np.pi * np.arange(200) / 200
    corners = np.column_stack((np.cos(angles), np.sin(angles)))
    # of the same area as the disc
    corners *= np.sqrt(np.pi / (100 * np.sin(np.pi / 100)))
    region = Region(joined(corners))
    found = region.averages(unit(0.8), np.zeros((1, 2)))[0]
    assert found == pytest.approx(
        2 * float(integrals(unit(0.8), 2, 1.0).f(np.array(1.0))), abs=1e-6
    )
    # a disc is the densest shape: no rectangle of its area is as near to itself
    side = np.sqrt(np.pi)
    assert rectangle(side, side).variance(unit(0.8)) < region.variance(unit(0.8)) < found


@pytest.mark.parametrize("length", [0.5, 1.0, 3.0])
def test_families_with_a_finite_range_have_their_closed_form_on_an_interval(length):
    """2/L² ∫ (L - h)(1 - 3h/2 + h³/2) dh from 0 to min(L, 1)."""
    top = min(length, 1.0)
    mean = top - 0.75 * top**2 + top**4 / 8
    moment = top**2 / 2 - top**3 / 2 + top**5 / 10
    found = Region(np.array([0.0, length])).variance(gx.Spherical(1.0, 1.0))
    assert found == pytest.approx(2 * (length * mean - moment) / length**2, abs=1e-10)


@pytest.mark.parametrize("lag", [1e-3, 0.05, 0.7])
@pytest.mark.parametrize("smoothness", [0.3, 0.5, 1.5])
def test_where_time_is_a_coordinate_planes_are_intervals_at_all_distances(smoothness, lag):
    model, random = unit(smoothness), np.random.default_rng(2)
    side = np.array([-0.4, 0.4])
    for x, y in (*random.uniform(-0.8, 0.8, (3, 2)), (0.0, 0.0), (0.4, 0.4)):
        found = Region(side).averages(model, np.array([[x]]), lag)[0]

        def along(u, lag=lag, x=x):
            return float(model.correlation(np.hypot(u - x, lag)))

        inside = [x] if abs(x) < 0.4 else None
        expected = quad(along, *side, points=inside, epsabs=1e-12, limit=500)[0] / 0.8
        assert found == pytest.approx(expected, abs=1e-9)

        def across(v, x=x, y=y):
            return Region(side).averages(model, np.array([[x]]), np.hypot(v - y, lag))[0]

        inside = [y] if abs(y) < 0.4 else None
        expected = quad(across, *side, points=inside, epsabs=1e-11, limit=500)[0] / 0.8
        found = rectangle(0.8, 0.8).averages(model, np.array([[x, y]]), lag)[0]
        assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("sides", [(30.0, 0.3), (1.5, 1.0), (0.4, 0.1), (3.0, 2.5)])
def test_a_compact_correlation_is_averaged_to_its_kink(sides):
    a, b = np.array(sides) / 2
    corners = np.array([[-a, -b], [a, -b], [a, b], [-a, b]])
    region = Region(np.stack((corners, np.roll(corners, -1, axis=0)), axis=1))
    # in polar coordinates about the centre, with ∫ (1 - 3r/2 + r³/2) r dr
    ends = {0.0, np.arctan2(b, a), np.pi / 2}
    ends |= {np.arcsin(b)} if b < 1 else set()
    ends = sorted(ends | ({np.arccos(a)} if a < 1 else set()))
    g, w = np.polynomial.legendre.leggauss(80)
    total = 0.0
    for low, high in pairwise(ends):
        angle = low + (high - low) * (g + 1) / 2
        r = np.minimum(np.minimum(a / np.cos(angle), b / np.sin(angle)), 1.0)
        total += (high - low) / 2 * (w @ (r**2 / 2 - r**3 / 2 + r**5 / 10))
    average = region.averages(gx.Spherical(1.0, 1.0).unit, np.zeros((1, 2)))[0]
    assert average == pytest.approx(total / (a * b), abs=1e-10)


def test_the_variance_over_an_elongated_region_passes_the_kink():
    a, b = 30.0, 0.3
    corners = np.array([[-a, -b], [a, -b], [a, b], [-a, b]]) / 2
    region = Region(np.stack((corners, np.roll(corners, -1, axis=0)), axis=1))
    unit = gx.Spherical(1.0, 1.0).unit
    g, w = np.polynomial.legendre.leggauss(10)
    nodes = [
        (side * (np.add.outer(np.arange(k), (g + 1) / 2) / k - 0.5), np.tile(w / k / 2, k))
        for side, k in ((a, 600), (b, 8))
    ]
    (x, of_x), (y, of_y) = ((points.ravel(), weights) for points, weights in nodes)
    points = np.array(np.meshgrid(x[x > 0], y[y > 0])).reshape(2, -1).T
    weights = 4 * np.outer(of_y[y > 0], of_x[x > 0]).ravel()
    expected = region.averages(unit, points) @ weights
    assert region.variance(unit) == pytest.approx(expected, abs=3e-8)
