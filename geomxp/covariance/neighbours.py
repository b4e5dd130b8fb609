"""Nearest neighbours among the predecessors of a point: exact search in a k-d tree, in threads.

Each node stores the box and the lowest rank of its points. So one tree over all points serves
every point, whatever the order that defines the predecessors.
"""

from dataclasses import dataclass

import numpy as np

from ..runtime.devices import in_threads
from .distance import power_of_two_near

SLICE_POINTS = 4096
"""Points whose neighbours one thread finds at a time."""


@dataclass(frozen=True)
class Tree:
    """A k-d tree: a complete binary tree over points in the order of its k leaves.

    Node 1 is the root, node p has the children 2 p and 2 p + 1; k is a power of two.
    """

    points: np.ndarray  # (n, d), in the order of the leaves, divided by `unit`
    order: np.ndarray  # (n,), the row of each point before it was sorted into the tree
    ranks: np.ndarray  # (n,), position of each point in the order that defines predecessors
    bounds: np.ndarray  # (k + 1,): leaf j holds the points bounds[j] ≤ i < bounds[j + 1]
    low: np.ndarray  # (2 k, d), with `high` the boxes of the nodes
    high: np.ndarray
    least: np.ndarray  # (2 k,), lowest rank in each node
    unit: float


def tree_of(points, ranks=None):
    """Return the `Tree` of embedded points (n, d), n ≥ 1, whose ranks are by default their rows."""
    from .points_numba import build

    points = np.ascontiguousarray(points, dtype=np.float64)
    # squares of coordinates near 1 neither overflow nor vanish; powers of two are exact
    unit = power_of_two_near(float(np.abs(points).max()))
    points = points / unit
    ranks = np.arange(len(points)) if ranks is None else np.asarray(ranks, dtype=np.int64)
    order, bounds, low, high, least = build(points, ranks)
    return Tree(points[order], order, ranks[order], bounds, low, high, least, unit)


def nearest_predecessors(tree, count):
    """Return the `count` nearest points of lower rank for each point of a tree, (n, count).

    These are rows of `tree.points`, the nearest first and the lower rank first among equally near
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
    """Return the nearest points of a tree for other points, as `nearest_predecessors` does.

    With `limits`, (k,), only points of lower rank count.
    """
    points = np.ascontiguousarray(points, dtype=np.float64) / tree.unit
    limits = np.full(len(points), len(tree.points)) if limits is None else limits
    return _search(tree, points, limits, count)


def _search(tree, points, limits, count):
    from .points_numba import search

    found = np.empty((len(points), count), dtype=np.int32)
    slices = range(0, len(points), SLICE_POINTS)

    def work(first):
        last = min(first + SLICE_POINTS, len(points))
        search(
            points,
            limits,
            first,
            last,
            others=tree.points,
            ranks=tree.ranks,
            bounds=tree.bounds,
            low=tree.low,
            high=tree.high,
            least=tree.least,
            found=found,
        )

    in_threads(work, slices, len(points) * 100)
    return found
