"""Nearest points among those that come first: an exact search in a k-d tree, in threads.

Each node knows the box and the lowest rank of its points, so that one tree over all points serves
every point with the set of its own predecessors, whatever the order.
"""

from dataclasses import dataclass

import numpy as np

from ..runtime.devices import in_threads
from .distance import power_of_two_near

SLICE = 4096
"""Points whose neighbours one thread finds at a time."""


@dataclass(frozen=True)
class Tree:
    """A k-d tree: a complete binary tree over points sorted into it.

    Parameters
    ----------
    points : (n, d) ndarray
        In the order of the leaves: near each other in space.
    order : (n,) ndarray of int64
        Where each stood before.
    ranks : (n,) ndarray of int64
        Their places in the order that says who precedes whom.
    bounds : (k + 1,) ndarray of int64
        Leaf j holds the points bounds[j] ≤ i < bounds[j + 1], k a power of two.
    low, high : (2 k, d) ndarray
        Boxes of the nodes; node 1 is the root, node p has the children 2 p and 2 p + 1.
    least : (2 k,) ndarray of int64
        Lowest rank in each node.
    unit : float
        What coordinates have been divided by.
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
        n ≥ 1; places in the metric's straight lines, as `distance.embed` returns them.
    ranks : (n,) ndarray of int, optional
        A permutation: the number of each point in an order; their rows' if not given.

    Returns
    -------
    Tree
    """
    from .points_numba import build

    points = np.ascontiguousarray(points, dtype=np.float64)
    # the squares of coordinates near 1 are numbers, and powers of two change no digit
    unit = power_of_two_near(float(np.abs(points).max()))
    points = points / unit
    ranks = np.arange(len(points)) if ranks is None else np.asarray(ranks, dtype=np.int64)
    order, bounds, low, high, least = build(points, ranks)
    return Tree(points[order], order, ranks[order], bounds, low, high, least, unit)


def nearest_predecessors(tree, count):
    """Return the nearest points of lower rank, of each point of a tree.

    Parameters
    ----------
    tree : Tree
    count : int
        How many.

    Returns
    -------
    (n, count) ndarray of int32
        Rows of `tree.points`, the nearest first, and of equally near ones the lower rank; -1
        where there are no more.

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
    """Return the nearest points of a tree, for other points.

    Parameters
    ----------
    tree : Tree
    points : (k, d) ndarray
    count : int
    limits : (k,) ndarray of int64, optional
        Only points of lower rank are looked at; all of them if not given.

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
