"""Farthest-point order, compiled by numba: a heap of distances over a grid of halving cells."""

import numpy as np

from ..runtime.devices import njit


@njit(cache=True)
def _lay_grid(points, cell, counts, origin, start, member):
    """Sort points into cells: members of cell c are member[start[c]:start[c + 1]]."""
    n = points.shape[1]
    start[:] = 0
    where = np.empty(n, dtype=np.int64)
    for p in range(n):
        c = 0
        for axis in range(3):
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
def farthest_first(points, first, dimensions):
    """Return the farthest-point order of (3, n) points in [-1, 1], beginning with `first`.

    Parameters
    ----------
    points : (3, n) ndarray
        Rows beyond `dimensions` are 0.
    first : int
    dimensions : int

    Returns
    -------
    (n,) ndarray of int64
    """
    n = points.shape[1]
    order = np.empty(n, dtype=np.int64)
    key = np.empty(n)
    for p in range(n):
        d0 = points[0, p] - points[0, first]
        d1 = points[1, p] - points[1, first]
        d2 = points[2, p] - points[2, first]
        key[p] = d0 * d0 + d1 * d1 + d2 * d2
    key[first] = -1.0
    heap, slot = np.arange(n), np.arange(n)
    for i in range(n // 2 - 1, -1, -1):
        _sink(heap, slot, key, i, n)
    order[0] = first
    origin, extent = np.empty(3), np.empty(3)
    for axis in range(3):
        origin[axis] = points[axis].min()
        extent[axis] = points[axis].max() - origin[axis]
    counts = np.ones(3, dtype=np.int64)
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
    """Bring the distances of all points within reach of the chosen one up to date."""
    low, high = np.empty(3, dtype=np.int64), np.empty(3, dtype=np.int64)
    for axis in range(3):
        here = points[axis, chosen] - origin[axis]
        low[axis] = min(max(int((here - reach) / cell), 0), counts[axis] - 1)
        high[axis] = min(max(int((here + reach) / cell), 0), counts[axis] - 1)
    for c0 in range(low[0], high[0] + 1):
        for c1 in range(low[1], high[1] + 1):
            row = (c0 * counts[1] + c1) * counts[2]
            for m in range(start[row + low[2]], start[row + high[2] + 1]):
                p = member[m]
                d0 = points[0, p] - points[0, chosen]
                d1 = points[1, p] - points[1, chosen]
                d2 = points[2, p] - points[2, chosen]
                d = d0 * d0 + d1 * d1 + d2 * d2
                if d < key[p]:
                    key[p] = d
                    _sink(heap, slot, key, slot[p], size)
