"""Nearest neighbours among the predecessors of a point: exact search in a k-d tree, in threads.

Each node stores the box and the lowest rank of its points. So one tree over all points serves
every point, whatever the order that defines the predecessors.
"""

from dataclasses import dataclass

import numpy as np

from ..runtime.devices import in_threads
from .distance import power_of_two_near

SLICE = 4096
"""Points whose neighbours one thread finds at a time."""


@dataclass(frozen=True)
class Tree:
    """A k-d tree: a complete binary tree over points in the order of its leaves.

    Parameters
    ----------
    points : (n, d) ndarray
        In the order of the leaves: neighbours are near each other in space.
    order : (n,) ndarray of int64
        The row of each point before it was sorted into the tree.
    ranks : (n,) ndarray of int64
        Position of each point in the order that defines predecessors.
    bounds : (k + 1,) ndarray of int64
        Leaf j holds the points bounds[j] ≤ i < bounds[j + 1], k a power of two.
    low, high : (2 k, d) ndarray
        Boxes of the nodes; node 1 is the root, node p has the children 2 p and 2 p + 1.
    least : (2 k,) ndarray of int64
        Lowest rank in each node.
    unit : float
        Coordinates have been divided by it.
    """

    points: np.ndarray
    order: np.ndarray
    ranks: np.ndarray
    bounds: np.ndarray
    low: np.ndarray
    high: np.ndarray
    least: np.ndarray
    unit: float


def tree_of(points, ranks=None):
    """Build the tree.

    Parameters
    ----------
    points : (n, d) ndarray
        n ≥ 1; embedded locations, as `distance.embed` returns them.
    ranks : (n,) ndarray of int, optional
        A permutation: the position of each point in an order; the order of the rows if not
        given.

    Returns
    -------
    Tree
    """
    from .points_numba import build

    points = np.ascontiguousarray(points, dtype=np.float64)
    # squares of coordinates near 1 neither overflow nor vanish; powers of two are exact
    unit = power_of_two_near(float(np.abs(points).max()))
    points = points / unit
    ranks = np.arange(len(points)) if ranks is None else np.asarray(ranks, dtype=np.int64)
    order, bounds, low, high, least = build(points, ranks)
    return Tree(points[order], order, ranks[order], bounds, low, high, least, unit)


def nearest_predecessors(tree, count):
    """Return the nearest points of lower rank for each point of a tree.

    Parameters
    ----------
    tree : Tree
    count : int
        How many.

    Returns
    -------
    (n, count) ndarray of int32
        Rows of `tree.points`, the nearest first and the lower rank first among equally near
        ones; -1 where there are no more.

    Examples
    --------
    >>> tree = tree_of(np.array([[0.0], [1.0], [3.0], [2.0]]))
    >>> found = nearest_predecessors(tree, 2)
    >>> last = int(tree.ranks.argmax())
    >>> tree.order[found[last]].tolist()
    [1, 2]
    """
    return _search(tree, tree.points, tree.ranks, count)


def nearest(tree, points, count, limits=None):
    """Return the nearest points of a tree for other points.

    Parameters
    ----------
    tree : Tree
    points : (k, d) ndarray
    count : int
    limits : (k,) ndarray of int64, optional
        Only points of lower rank count; all points if not given.

    Returns
    -------
    (k, count) ndarray of int32
        As `nearest_predecessors` returns them.
    """
    points = np.ascontiguousarray(points, dtype=np.float64) / tree.unit
    limits = np.full(len(points), len(tree.points)) if limits is None else limits
    return _search(tree, points, limits, count)


def _search(tree, points, limits, count):
    from .points_numba import search

    found = np.empty((len(points), count), dtype=np.int32)
    slices = range(0, len(points), SLICE)

    def work(first):
        last = min(first + SLICE, len(points))
        search(
            *(points, limits, first, last, tree.points, tree.ranks, tree.bounds),
            *(tree.low, tree.high, tree.least, found),
        )

    in_threads(work, slices, len(points) * 100)
    return found
