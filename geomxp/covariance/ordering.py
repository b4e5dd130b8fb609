"""Orderings of locations: along a space-filling curve, or by maximin distance.

Along a curve neighbours in space are near each other in the matrix, so that off-diagonal tiles are
small. Vecchia's approximation is most accurate in maximin order. An ordering is a permutation:
`locations[order]`.
"""

from functools import lru_cache

import numpy as np

from ..errors import InvalidInput
from .distance import embed


def order_places(locations, ordering, metric="euclidean"):
    """Return the permutation of "morton", "hilbert", "maximin" or "given", (n,).

    Longitude and latitude are ordered as points on the sphere.
    """
    return order_points(embed(np.asarray(locations, dtype=np.float64), metric), ordering)


def order_points(points, ordering):
    """As `order_places`, for points of a Euclidean space (n, d), d ≤ 4."""
    functions = {"morton": morton, "hilbert": hilbert, "maximin": maximin}
    if ordering == "given":
        return np.arange(len(points))
    if ordering not in functions:
        known = ", ".join((*functions, "given"))
        raise InvalidInput(f"`ordering` must be one of: {known}. Got {ordering!r}.")
    return functions[ordering](points)


def _lattice(points, bits):
    """Return the cubic cells of a grid with 2^bits cells a side that hold points, (n, d) uint64."""
    low = points.min(axis=0)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        extent = max(float((points - low).max()), np.finfo(float).tiny)
        cells = (points - low) / extent * 2.0**bits
    return np.minimum(np.nan_to_num(cells), 2.0**bits - 1).astype(np.uint64)


def _interleave(cells, bits):
    """Interleave the bits of the coordinates of each cell, highest first, (n,) uint64."""
    code = np.zeros(len(cells), dtype=np.uint64)
    for bit in range(bits - 1, -1, -1):
        for axis in range(cells.shape[1]):
            code = (code << np.uint64(1)) | ((cells[:, axis] >> np.uint64(bit)) & np.uint64(1))
    return code


def morton(points):
    """Return the order of points (n, d), d ≤ 4, along Morton's Z-curve, (n,).

    Examples
    --------
    >>> morton(np.array([[1.0, 1.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.0]])).tolist()
    [3, 1, 2, 0]
    """
    if points.shape[1] == 1:
        return np.argsort(points[:, 0], kind="stable")
    bits = 62 // points.shape[1]
    return np.argsort(_interleave(_lattice(points, bits), bits), kind="stable")


FARTHEST_POINTS = 128
"""Points of a block that are each as far as possible from those before; others follow in an order
that spreads them too."""


def spread(points, size):
    """Return an order of points (n, d): the first of each block of `size` are spread over it.

    They are at its boundary as well as inside, so that smooth functions can be interpolated from
    them.
    """
    n, d = points.shape
    whole = n // size * size
    parts = _spread(points[:whole].reshape(-1, size, d))
    parts += _spread(points[None, whole:])
    starts = range(0, n, size)
    return np.concatenate([first + part for first, part in zip(starts, parts, strict=False)])


def _spread(blocks):
    """Return the orders of the points of some blocks, (b, n, d), of equal size."""
    b, n, d = blocks.shape
    if not b * n:
        return []
    each, coordinates = np.arange(b), [np.ascontiguousarray(blocks[..., k]) for k in range(d)]
    middle, nearest = blocks.mean(axis=1), np.full((b, n), np.inf)
    chosen = [np.argmax(_squares(coordinates, middle.T), axis=1)]
    for _ in range(min(n, FARTHEST_POINTS) - 1):
        last = [x[each, chosen[-1]] for x in coordinates]
        np.minimum(nearest, _squares(coordinates, last), out=nearest)
        chosen.append(np.argmax(nearest, axis=1))
    orders = []
    for mine in np.transpose(chosen):
        mine = list(dict.fromkeys(mine.tolist()))
        rest = np.setdiff1d(np.arange(n), mine)
        orders.append(np.concatenate((mine, rest[_halved(len(rest))])))
    return orders


def _squares(coordinates, centres):
    """Return squared distances, (b, n), from one centre for each block."""
    return sum((x - centre[:, None]) ** 2 for x, centre in zip(coordinates, centres, strict=True))


@lru_cache(maxsize=4)
def _halved(n):
    """Return an order of 0, ..., n - 1 in which n/2, n/4, 3n/4, n/8, ... come first.

    The sequence of van der Corput (1935).
    """
    number, place = np.arange(n), np.zeros(n)
    for bit in range(n.bit_length()):
        place += (number >> bit & 1) * 0.5 ** (bit + 1)
    return np.argsort(np.argsort(place))


def hilbert(points):
    """Return the order of points (n, d), d ≤ 4, along Hilbert's curve, (n,).

    Skilling 2004, Programming the Hilbert curve, AIP Conf. Proc. 707:381, for all points at once.
    """
    n, d = points.shape
    if d == 1:
        return np.argsort(points[:, 0], kind="stable")
    bits = 62 // d
    x = [column.copy() for column in _lattice(points, bits).T]
    one = np.uint64(1)
    # Skilling's inverse undo: from the highest bit down
    for bit in range(bits - 1, 0, -1):
        q, p = one << np.uint64(bit), (one << np.uint64(bit)) - one
        for i in range(d):
            set_ = (x[i] & q) != 0
            exchange = np.where(set_, np.uint64(0), (x[0] ^ x[i]) & p)
            x[0] = np.where(set_, x[0] ^ p, x[0] ^ exchange)
            if i:
                x[i] ^= exchange
    # Gray encode
    for i in range(1, d):
        x[i] ^= x[i - 1]
    t = np.zeros(n, dtype=np.uint64)
    for bit in range(bits - 1, 0, -1):
        q = one << np.uint64(bit)
        t = np.where((x[d - 1] & q) != 0, t ^ (q - one), t)
    cells = np.column_stack([column ^ t for column in x])
    return np.argsort(_interleave(cells, bits), kind="stable")


def maximin(points):
    """Return the maximin order of points (n, d), d ≤ 4: each is as far as possible from all before.

    The first point is the one nearest to the centre. The work is O(n log n): when a point at
    distance ℓ from the chosen ones is added, only points within ℓ of it get nearer. A grid with
    cells of about ℓ, rebuilt each time ℓ has halved, finds them.

    Examples
    --------
    >>> maximin(np.array([[0.0], [1.0], [2.0], [3.0], [4.0]])).tolist()
    [2, 0, 4, 1, 3]
    """
    from .points_numba import farthest_first

    n, d = points.shape
    middle = points.mean(axis=0)
    padded = np.zeros((max(3, d), n))
    padded[:d] = (points - middle).T
    scale = np.abs(padded).max()
    if scale > 0:
        padded /= scale
    return farthest_first(padded, int(np.argmin((padded**2).sum(axis=0))), d)
