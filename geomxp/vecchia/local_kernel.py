"""Gram matrices of kriging from neighbours, eight targets at a time, compiled by numba."""

import numpy as np

from ..execution.jit import njit
from .blocks import _dot, _fetch, _gather, _generate
from .lanes import load, spread, store
from .solve import factor, forward


@njit(nogil=True, cache=True)
def gram_slice(
    x,
    targets,
    neighbours,
    first,
    last,
    noise,
    scaled,
    variance,
    table,
    base,
    columns,
    given,
    grams,
):
    """Write W'W for the targets first ≤ i < last, W = L_NN^-1 [k, columns at N].

    Parameters
    ----------
    x : (d, n) ndarray
        Points.
    targets : (d, k) ndarray
    neighbours : (k, m) ndarray of int32
        Points near each target; -1 for none.
    first, last : int
    noise : (n,) ndarray
        Variance that each point has beside the field's.
    scaled : (float, bool)
        1/a², and whether distances are great-circle arcs.
    variance : float
    table : 1-D ndarray
        Polynomials of a `CorrelationTable`.
    base : int
    columns : (c, n) ndarray
    given : (k, m) ndarray
        Covariances of targets that are no points with their neighbours; (0, m) for points.
    grams : (k, c + 1, c + 1) ndarray
        NaN where Σ_NN is not positive definite.

    Returns
    -------
    int
        Not 0 where the table did not reach a pair of places.
    """
    d, m, count = len(x), neighbours.shape[1], len(columns) + 1
    inverse_square, arc = scaled
    order = (m + 4) // 4 * 4
    step, end = order * 8, (order - 1) * 8
    points, keep = np.empty(d * step), np.empty(step)
    a, inverse = np.zeros(4 * order * (order + 1)), np.empty(step)
    u, scratch, nothing = np.empty(count * step), np.empty(8), np.zeros(targets.shape[1])
    misses = 0
    for place in range(first, last, 8):
        _gather(x, targets, neighbours, place, last, noise, nothing, variance, points, keep, a)
        misses |= _generate(
            points, keep, m, d, inverse_square, arc, variance, table, base, a, scratch
        )
        factor(a, inverse, order)
        if len(given):
            for lane in range(8):
                i = min(place + lane, last - 1)
                for q in range(order):
                    there = q < m and neighbours[i, q] >= 0
                    u[q * 8 + lane] = given[i, q] if there else 0.0
            forward(a, inverse, u, 0, order)
        else:
            # L_iN = k'L_NN^-T stands in the factor
            for q in range(order - 1):
                store(u, q * 8, load(a, (order - 1) * order * 4 + q * 8))
        for c in range(1, count):
            _fetch(columns, c - 1, neighbours, place, last, False, order, u, c * step)
            forward(a, inverse, u, c * step, order)
        for c in range(count):
            # the target's own row, which may have no pivot
            store(u, c * step + end, spread(0.0))
        for c in range(count):
            for e in range(c + 1):
                store(scratch, 0, _dot(u, c * step, u, e * step, order))
                for lane in range(min(8, last - place)):
                    grams[place + lane, c, e] = scratch[lane]
                    grams[place + lane, e, c] = scratch[lane]
    return misses
