"""Which formats a Kullback-Leibler divergence can pay for.

With LL' = Σ + E the divergence of N(0, LL') from N(0, Σ) is ¼‖Σ^-½ E Σ^-½‖_F² + O(E³), and for
independent errors of variance v_ik in tile (i, k) its mean is

    D ≈ ½ Σ_{i>k} v_ik p_i p_k

where p_i sums the diagonal of Σ⁻¹ over block row i: the precisions of its places given all others.
An error counts for as much as its places are certain.
"""

from dataclasses import replace

import numpy as np

from .formats import FP8, FP16, FP32, FP64
from .map import PrecisionMap

ROUNDING = {FP8: 0.9, FP16: 0.6, FP32: 5.0, FP64: 5.0}
"""Root mean square error of a tile in units of u ‖A_ik‖_F, rather too large than too small:
0.42 is one rounding to nearest; FP8's squares and FP32's sums of products add to theirs."""

COST = {FP8: 0.9, FP16: 1.0, FP32: 3.0, FP64: 8.0}
"""Relative time of a product on matrix units; FP8 is read as fast as FP16 and takes fewer bytes."""


def shares(norms, precisions, sizes, form):
    """Return each tile's share of the divergence in a format, (T, T), below the diagonal.

    Parameters
    ----------
    norms : (T, T) ndarray
    precisions : (T,) ndarray
        p_i.
    sizes : (T,) ndarray
        Rows of each block row.
    form : Format
    """
    deviation = ROUNDING[form] * form.unit_roundoff * norms
    if form in (FP8, FP16):
        # what is stored coarsely was summed in FP32
        deviation = np.hypot(deviation, ROUNDING[FP32] * FP32.unit_roundoff * norms)
    return 0.5 * np.tril(deviation**2 * np.outer(precisions / sizes, precisions / sizes), -1)


def predicted(formats, norms, precisions, sizes):
    """Return the divergence that a map of FP8, FP16, FP32 and FP64 tiles should cause."""
    share = {form: shares(norms, precisions, sizes, form) for form in ROUNDING}
    return float(
        sum(
            share[form][i, k]
            for i, row in enumerate(formats.rows)
            for k, form in enumerate(row[:i])
        )
    )


def cheapest(norms, precisions, sizes, target):
    """Return the cheapest map whose predicted divergence is at most the target.

    Minimises Σ cost + weight · Σ share over the formats of the tiles, for the smallest weight that
    meets the target. Diagonal tiles are FP64.

    Parameters
    ----------
    norms : (T, T) ndarray
    precisions, sizes : (T,) ndarray
    target : float
        In nats.

    Returns
    -------
    PrecisionMap
    """
    forms = (FP8, FP16, FP32, FP64)
    share = np.stack([shares(norms, precisions, sizes, form) for form in forms])
    cost = np.array([COST[form] for form in forms])[:, None, None]
    tiles = len(norms)

    def choose(weight):
        choice = np.argmin(cost + share * weight, axis=0)
        taken = np.take_along_axis(share, choice[None], axis=0)[0]
        return choice, float(taken.sum())

    low, high = 1e-30, 1e30 / max(target, 1e-30)
    choice, predicted = choose(high)
    for _ in range(200):
        middle = np.sqrt(low * high)
        tried, divergence = choose(middle)
        if divergence <= target:
            high, choice, predicted = middle, tried, divergence
        else:
            low = middle
    rows = tuple(
        tuple(FP64 if i == k else forms[choice[i, k]] for k in range(i + 1)) for i in range(tiles)
    )
    return replace(PrecisionMap(rows), divergence=predicted)
