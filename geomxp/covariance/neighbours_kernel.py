"""The loops of the neighbour search, compiled by numba: building a k-d tree, and walking it."""

from math import inf

import numpy as np

from ..runtime.devices import njit

LEAF = 8
"""Points of a leaf, about."""


@njit(cache=True)
def _split(values, rows, first, last, middle):
    """Put the rows with the lowest values first, up to the middle: Hoare's selection."""
    while last - first > 1:
        pivot = values[rows[(first + last) // 2]]
        i, j = first, last - 1
        while i <= j:
            while values[rows[i]] < pivot:
                i += 1
            while values[rows[j]] > pivot:
                j -= 1
            if i <= j:
                rows[i], rows[j] = rows[j], rows[i]
                i += 1
                j -= 1
        if middle <= j:
            last = j + 1
        elif middle >= i:
            first = i
        else:
            return


@njit(nogil=True, cache=True)
def build(points, ranks):
    """Return the rows in the order of the leaves, the leaves' bounds, boxes and lowest ranks.

    Each node is cut at the median of its box's longest side.
    """
    n, d = points.shape
    leaves = 1
    while leaves * LEAF < n:
        leaves *= 2
    rows = np.arange(n)
    bounds = np.empty(2 * leaves, dtype=np.int64)
    ends = np.empty(2 * leaves, dtype=np.int64)
    low, high = np.full((2 * leaves, d), inf), np.full((2 * leaves, d), -inf)
    least = np.full(2 * leaves, n)
    columns = points.T.copy()
    bounds[1], ends[1] = 0, n
    for node in range(1, 2 * leaves):
        first, last = bounds[node], ends[node]
        for k in range(first, last):
            least[node] = min(least[node], ranks[rows[k]])
        for axis in range(d):
            for k in range(first, last):
                value = columns[axis, rows[k]]
                low[node, axis] = min(low[node, axis], value)
                high[node, axis] = max(high[node, axis], value)
        if node < leaves:
            longest = 0
            for axis in range(1, d):
                if high[node, axis] - low[node, axis] > high[node, longest] - low[node, longest]:
                    longest = axis
            middle = (first + last) // 2
            _split(columns[longest], rows, first, last, middle)
            bounds[2 * node], ends[2 * node] = first, middle
            bounds[2 * node + 1], ends[2 * node + 1] = middle, last
    starts = np.empty(leaves + 1, dtype=np.int64)
    # a loop compiles two seconds sooner than an assignment of slices
    for leaf in range(leaves):
        starts[leaf] = bounds[leaves + leaf]
    starts[leaves] = n
    return rows, starts, low, high, least


@njit(nogil=True, cache=True)
def _to_box(point, low, high):
    """Return the squared distance of a point from a box; of an empty box, infinity."""
    total = 0.0
    for axis in range(len(point)):
        apart = max(low[axis] - point[axis], point[axis] - high[axis], 0.0)
        total += apart * apart
    return total


@njit(nogil=True, cache=True)
def search(points, limits, first, last, others, ranks, bounds, low, high, least, found):
    """Write the nearest of the others with ranks below each point's limit, first ≤ i < last."""
    count, leaves, d = found.shape[1], len(bounds) - 1, points.shape[1]
    if count == 0:
        return
    squared, number = np.empty(count), np.empty(count, dtype=np.int32)
    nodes, boxes = np.empty(128, dtype=np.int64), np.empty(128)
    for i in range(first, last):
        point, limit, size, depth = points[i], limits[i], 0, 1
        nodes[0], boxes[0] = 1, 0.0
        while depth > 0:
            depth -= 1
            node = nodes[depth]
            if size == count and boxes[depth] > squared[count - 1]:
                continue
            while node < leaves:
                # down to the nearer child, the other is kept for later
                near, far = 2 * node, 2 * node + 1
                to_near = _to_box(point, low[near], high[near]) if least[near] < limit else inf
                to_far = _to_box(point, low[far], high[far]) if least[far] < limit else inf
                if to_far < to_near:
                    near, far, to_near, to_far = far, near, to_far, to_near
                worst = squared[count - 1] if size == count else 1e308
                if to_far <= worst:
                    nodes[depth], boxes[depth] = far, to_far
                    depth += 1
                node = near if to_near <= worst else -1
                if node < 0:
                    break
            if node < 0:
                continue
            for j in range(bounds[node - leaves], bounds[node - leaves + 1]):
                if ranks[j] >= limit:
                    continue
                total = 0.0
                for axis in range(d):
                    apart = point[axis] - others[j, axis]
                    total += apart * apart
                k = size
                if size == count:
                    k = count - 1
                    if not _nearer(total, ranks[j], squared[k], ranks[number[k]]):
                        continue
                else:
                    size += 1
                while k > 0 and _nearer(total, ranks[j], squared[k - 1], ranks[number[k - 1]]):
                    squared[k], number[k] = squared[k - 1], number[k - 1]
                    k -= 1
                squared[k], number[k] = total, j
        for k in range(count):
            found[i, k] = number[k] if k < size else -1


@njit(nogil=True, cache=True)
def _nearer(squared, rank, other_squared, other_rank):
    return squared < other_squared or (squared == other_squared and rank < other_rank)
