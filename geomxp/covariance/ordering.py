"""Orders of places: along a space-filling curve, or each as far as can be from those before it.

A curve puts near places near each other in the matrix, so that tiles off the diagonal are small;
maximin order is what Vecchia's approximation wants. An order is a permutation: `places[order]`.
"""

import numpy as np

from ..errors import InvalidInput
from .distance import embed


def order_places(locations, ordering, metric="euclidean"):
    """Return the permutation that puts places in an order.

    Parameters
    ----------
    locations : (n, d) ndarray
    ordering : {"morton", "hilbert", "maximin", "given"}
    metric : str
        Longitude and latitude are ordered as points on the sphere.

    Returns
    -------
    (n,) ndarray of int
    """
    functions = {"morton": morton, "hilbert": hilbert, "maximin": maximin}
    if ordering == "given":
        return np.arange(len(locations))
    if ordering not in functions:
        known = ", ".join((*functions, "given"))
        raise InvalidInput(f"`ordering` must be one of: {known}. Got {ordering!r}.")
    return functions[ordering](embed(np.asarray(locations, dtype=np.float64), metric))


def _lattice(points, bits):
    """Return points as whole numbers of so many bits, (n, d) uint64; cells are cubes."""
    low = points.min(axis=0)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        extent = max(float((points - low).max()), np.finfo(float).tiny)
        cells = (points - low) / extent * 2.0**bits
    return np.minimum(np.nan_to_num(cells), 2.0**bits - 1).astype(np.uint64)


def _interleave(cells, bits):
    """Return one number whose bits are those of the coordinates in turn, highest first."""
    code = np.zeros(len(cells), dtype=np.uint64)
    for bit in range(bits - 1, -1, -1):
        for axis in range(cells.shape[1]):
            code = (code << np.uint64(1)) | ((cells[:, axis] >> np.uint64(bit)) & np.uint64(1))
    return code


def morton(points):
    """Return the order of points along Morton's Z-curve.

    Parameters
    ----------
    points : (n, d) ndarray
        d = 1, 2 or 3.

    Returns
    -------
    (n,) ndarray of int

    Examples
    --------
    >>> morton(np.array([[1.0, 1.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.0]])).tolist()
    [3, 1, 2, 0]
    """
    if points.shape[1] == 1:
        return np.argsort(points[:, 0], kind="stable")
    bits = 62 // points.shape[1]
    return np.argsort(_interleave(_lattice(points, bits), bits), kind="stable")


def hilbert(points):
    """Return the order of points along Hilbert's curve: neighbours on it are neighbours in space.

    Skilling 2004, Programming the Hilbert curve, AIP Conf. Proc. 707:381, for all points at once.

    Parameters
    ----------
    points : (n, d) ndarray
        d = 1, 2 or 3.

    Returns
    -------
    (n,) ndarray of int
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
    """Return the order in which each point is as far as can be from all before it.

    The first is the one nearest to the middle. The work is O(n log n): when a point at distance
    ℓ is chosen, only points within ℓ of it can come nearer to the chosen ones, and a grid with
    cells of about ℓ, laid anew each time ℓ has halved, finds them.

    Parameters
    ----------
    points : (n, d) ndarray
        d = 1, 2 or 3.

    Returns
    -------
    (n,) ndarray of int

    Examples
    --------
    >>> maximin(np.array([[0.0], [1.0], [2.0], [3.0], [4.0]])).tolist()
    [2, 0, 4, 1, 3]
    """
    from .points_numba import farthest_first

    n, d = points.shape
    middle = points.mean(axis=0)
    padded = np.zeros((3, n))
    padded[:d] = (points - middle).T
    scale = np.abs(padded).max()
    if scale > 0:
        padded /= scale
    return farthest_first(padded, int(np.argmin((padded**2).sum(axis=0))), d)
