import numpy as np
import pytest

from geomxp.covariance.neighbours import nearest, nearest_predecessors, tree_of
from geomxp.covariance.ordering import order_places


def by_brute_force(points, ranks, i, count):
    squared = sum((points[:, k] - points[i, k]) ** 2 for k in range(points.shape[1]))
    before = np.flatnonzero(ranks < ranks[i])
    return before[np.lexsort((ranks[before], squared[before]))][:count]


def clusters(n):
    """Points of which half are in one billionth of the square, and some at one place."""
    x = np.random.default_rng(n).random((n, 2))
    x[: n // 2] = 0.3 + 1e-9 * x[: n // 2]
    x[: n // 10] = x[0]
    return x


POINTS = {
    "uniform": lambda: np.random.default_rng(1).random((500, 2)),
    "grid": lambda: np.stack(np.meshgrid(*2 * [np.arange(18.0)]), axis=-1).reshape(-1, 2),
    "line": lambda: np.random.default_rng(2).random((200, 1)),
    "cube": lambda: np.random.default_rng(3).random((300, 3)),
    "clusters": lambda: clusters(400),
    "one place": lambda: np.ones((40, 2)),
    "one point": lambda: np.ones((1, 2)),
    "far apart": lambda: 1e200 * np.random.default_rng(4).random((100, 2)),
}


@pytest.mark.parametrize("name", POINTS)
@pytest.mark.parametrize("ordering", ["maximin", "morton", "given"])
def test_neighbours_are_the_nearest_of_those_before_and_of_equally_near_ones_the_first(
    name, ordering
):
    points = POINTS[name]()
    ranks = np.empty(len(points), dtype=int)
    ranks[order_places(points, ordering)] = np.arange(len(points))
    tree = tree_of(points, ranks)
    np.testing.assert_array_equal(np.sort(tree.order), np.arange(len(points)))
    np.testing.assert_array_equal(tree.points * tree.unit, points[tree.order])
    found = nearest_predecessors(tree, 12)
    for i, row in enumerate(found):
        expected = by_brute_force(tree.points, tree.ranks, i, 12)
        np.testing.assert_array_equal(row[: len(expected)], expected)
        assert (row[len(expected) :] == -1).all()


def test_fewer_neighbours_are_the_first_of_more():
    tree = tree_of(POINTS["uniform"]())
    few, many = nearest_predecessors(tree, 3), nearest_predecessors(tree, 20)
    np.testing.assert_array_equal(few, many[:, :3])


def test_other_points_find_the_nearest_of_all():
    points = POINTS["uniform"]()
    tree, others = tree_of(points), np.random.default_rng(7).random((50, 2))
    found = nearest(tree, others, 5)
    squared = ((others[:, None] - tree.points * tree.unit) ** 2).sum(axis=2)
    np.testing.assert_array_equal(
        np.take_along_axis(squared, found, axis=1), np.sort(squared, axis=1)[:, :5]
    )
    assert (nearest(tree, others, 600)[:, 500:] == -1).all()
    assert nearest(tree, others, 0).shape == (50, 0)


def test_threads_change_nothing(monkeypatch):
    points, found = np.random.default_rng(5).random((20_000, 2)), []
    for cores in (1, 2, 4):
        monkeypatch.setattr("geomxp.runtime.devices.usable_cores", lambda cores=cores: cores)
        found.append(nearest_predecessors(tree_of(points), 8))
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])
