"""Loops over points, compiled by numba: k-d trees for nearest neighbours, and maximin order."""

from math import inf

import numpy as np

from ..runtime.devices import njit

LEAF_POINTS = 8
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
    while leaves * LEAF_POINTS < n:
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


# Maximin order: a heap of distances over a grid whose cells are halved.


@njit(cache=True)
def _lay_grid(points, cell, counts, origin, start, member):
    """Sort points into cells: members of cell c are member[start[c]:start[c + 1]]."""
    n = points.shape[1]
    start[:] = 0
    where = np.empty(n, dtype=np.int64)
    for p in range(n):
        c = 0
        for axis in range(len(points)):
            k = int((points[axis, p] - origin[axis]) / cell)
            c = c * counts[axis] + min(max(k, 0), counts[axis] - 1)
        where[p] = c
        start[c + 1] += 1
    for c in range(len(start) - 1):
        start[c + 1] += start[c]
    place = start[:-1].copy()
    for p in range(n):
        member[place[where[p]]] = p
        place[where[p]] += 1


@njit(cache=True)
def _sink(heap, slot, key, i, size):
    """Restore the heap below place i after its key has fallen; the lower number wins a tie."""
    p = heap[i]
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and _before(heap[child + 1], heap[child], key):
            child += 1
        if not _before(heap[child], p, key):
            break
        heap[i] = heap[child]
        slot[heap[i]] = i
        i = child
    heap[i] = p
    slot[p] = i


@njit(cache=True)
def _before(p, q, key):
    return key[p] > key[q] or (key[p] == key[q] and p < q)


@njit(cache=True)
def _squared(points, p, q):
    """Return the squared distance of two points, of (3, n) or (4, n)."""
    d0, d1 = points[0, p] - points[0, q], points[1, p] - points[1, q]
    d2 = points[2, p] - points[2, q]
    s = d0 * d0 + d1 * d1 + d2 * d2
    if len(points) == 4:
        d3 = points[3, p] - points[3, q]
        s += d3 * d3
    return s


@njit(cache=True)
def farthest_first(points, first, dimensions):
    """Return the farthest-point order of points in [-1, 1], beginning with `first`, (n,).

    They are (3, n), or (4, n) in 4 dimensions. Rows beyond `dimensions` are 0.
    """
    n = points.shape[1]
    order = np.empty(n, dtype=np.int64)
    key = np.empty(n)
    for p in range(n):
        key[p] = _squared(points, p, first)
    key[first] = -1.0
    heap, slot = np.arange(n), np.arange(n)
    for i in range(n // 2 - 1, -1, -1):
        _sink(heap, slot, key, i, n)
    order[0] = first
    axes = len(points)
    origin, extent = np.empty(axes), np.empty(axes)
    for axis in range(axes):
        origin[axis] = points[axis].min()
        extent[axis] = points[axis].max() - origin[axis]
    counts = np.ones(axes, dtype=np.int64)
    start, member = np.zeros(2, dtype=np.int64), np.arange(n)
    start[1] = n
    cell, size = 4.0, n
    # no finer than two cells a point
    finest = 2.0 * (0.5 / n) ** (1.0 / dimensions)
    for k in range(1, n):
        chosen = heap[0]
        order[k] = chosen
        reach = np.sqrt(key[chosen])
        key[chosen] = -1.0
        size -= 1
        heap[0] = heap[size]
        slot[heap[0]] = 0
        _sink(heap, slot, key, 0, size)
        if reach < cell / 2 and cell > finest:
            cell = max(reach, finest)
            total = 1
            for axis in range(dimensions):
                counts[axis] = int(extent[axis] / cell) + 1
                total *= counts[axis]
            start = np.zeros(total + 1, dtype=np.int64)
            _lay_grid(points, cell, counts, origin, start, member)
        _update(points, chosen, reach, cell, counts, origin, start, member, key, heap, slot, size)
    return order


@njit(cache=True)
def _update(points, chosen, reach, cell, counts, origin, start, member, key, heap, slot, size):
    """Update the distances of all points within reach of the chosen one."""
    axes = len(points)
    low, high = np.empty(axes, dtype=np.int64), np.empty(axes, dtype=np.int64)
    for axis in range(axes):
        here = points[axis, chosen] - origin[axis]
        low[axis] = min(max(int((here - reach) / cell), 0), counts[axis] - 1)
        high[axis] = min(max(int((here + reach) / cell), 0), counts[axis] - 1)
    # along the last axis cells are adjacent
    last = axes - 1
    for c0 in range(low[0], high[0] + 1):
        for c1 in range(low[1], high[1] + 1):
            for c2 in range(low[2], high[2] + 1 if axes == 4 else low[2] + 1):
                row = c0 * counts[1] + c1
                row = row * counts[2] if axes == 3 else (row * counts[2] + c2) * counts[3]
                for m in range(start[row + low[last]], start[row + high[last] + 1]):
                    p = member[m]
                    d = _squared(points, p, chosen)
                    if d < key[p]:
                        key[p] = d
                        _sink(heap, slot, key, slot[p], size)
