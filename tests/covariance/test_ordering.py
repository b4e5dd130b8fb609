import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import geomxp as gx
from geomxp.covariance.ordering import hilbert, maximin, morton, order_places, spread


def greedy(points):
    """Maximin order as its definition says it, O(n²)."""
    first = int(np.argmin(((points - points.mean(axis=0)) ** 2).sum(axis=1)))
    distance = ((points - points[first]) ** 2).sum(axis=1)
    order = [first]
    distance[first] = -1.0
    for _ in range(len(points) - 1):
        best = int(np.argmax(distance))
        order.append(best)
        distance = np.minimum(distance, ((points - points[best]) ** 2).sum(axis=1))
        distance[order] = -1.0
    return np.array(order)


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 2, 3, 60, 500])
def test_maximin_is_the_greedy_order(n, d):
    points = np.random.default_rng(n + d).random((n, d))
    np.testing.assert_array_equal(maximin(points), greedy(points))


def farthest(points):
    """The first points of `spread` as its definition says them, and all others."""
    distance = ((points - points.mean(axis=0)) ** 2).sum(axis=1)
    order, nearest = [int(np.argmax(distance))], np.full(len(points), np.inf)
    for _ in range(min(len(points), 128) - 1):
        nearest = np.minimum(nearest, ((points - points[order[-1]]) ** 2).sum(axis=1))
        order.append(int(np.argmax(nearest)))
    return order


@pytest.mark.parametrize("d", [1, 2, 3, 4])
@pytest.mark.parametrize(("n", "size"), [(7, 7), (500, 130), (500, 500), (260, 130), (300, 8)])
def test_each_block_is_spread_by_itself(d, n, size):
    points = np.random.default_rng(n + d).random((n, d))
    order = spread(points, size)
    for first in range(0, n, size):
        block = order[first : first + size] - first
        assert sorted(block) == list(range(len(block)))
        wanted = farthest(points[first : first + size])
        np.testing.assert_array_equal(block[: len(wanted)], wanted)


@pytest.mark.parametrize("side", [5, 16])
def test_maximin_of_a_grid_breaks_ties_but_keeps_the_law(side):
    """Each point is, of all that are left, one of those farthest from the points before it."""
    points = np.stack(np.meshgrid(np.arange(side), np.arange(side)), axis=-1).reshape(-1, 2) * 1.0
    order = maximin(points)
    distance = ((points - points[order[0]]) ** 2).sum(axis=1)
    for chosen in order[1:]:
        assert distance[chosen] == pytest.approx(distance.max(), rel=1e-12)
        distance = np.minimum(distance, ((points - points[chosen]) ** 2).sum(axis=1))


@pytest.mark.slow
@pytest.mark.parametrize("ordering", ["morton", "hilbert", "maximin", "given"])
@given(st.integers(1, 40), st.integers(1, 3), st.sampled_from([1e-300, 1.0, 1e300]), st.booleans())
def test_every_ordering_is_a_permutation(ordering, n, d, scale, twins):
    points = np.random.default_rng(n).random((n, d)) * scale
    if twins:
        points[n // 2 :] = points[: n - n // 2]
    assert sorted(order_places(points, ordering)) == list(range(n))


def test_hilbert_visits_the_cells_of_a_grid_as_neighbours():
    cells = np.stack(np.meshgrid(np.arange(16), np.arange(16)), axis=-1).reshape(-1, 2) + 0.5
    walk = cells[hilbert(cells)]
    steps = np.abs(np.diff(walk, axis=0)).sum(axis=1)
    assert np.median(steps) == 1.0


@pytest.mark.parametrize(("curve", "most"), [(morton, 1.7), (hilbert, 1.1)])
def test_curves_keep_neighbours_together(curve, most):
    points = np.random.default_rng(0).random((4096, 2))
    steps = np.linalg.norm(np.diff(points[curve(points)], axis=0), axis=1)
    assert steps.mean() * 64 < most


def test_orders_of_longitude_and_latitude_are_on_the_sphere():
    """Either side of the date line is near."""
    places = np.array([[179.9, 0.0], [-179.9, 0.0], [0.0, 0.0], [0.1, 0.0]])
    order = order_places(places, "morton", "chordal").tolist()
    assert abs(order.index(0) - order.index(1)) == 1


def test_unknown_orderings_are_named():
    with pytest.raises(gx.InvalidInput, match="`ordering` must be one of: morton"):
        order_places(np.zeros((3, 2)), "spiral")
