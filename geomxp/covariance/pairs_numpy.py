"""The loops of `pairs_numba` in NumPy, for machines without numba.

They evaluate the same polynomials; results differ by rounding where the compiled loops use fma.
"""

import numpy as np

from .distance import EARTH_RADIUS
from .table import SPLIT, SPLIT_FP32, fold

BATCH_ENTRIES = 1 << 15
"""Entries handled at a time: temporary arrays stay in the second-level cache."""

FRACTION_BITS = {"float64": (np.int64, 52 - SPLIT), "float32": (np.int32, 23 - SPLIT_FP32)}
"""Integer type for a number's bits, and how many low bits give its place in an interval."""


def fill(
    x,
    i0,
    i1,
    y,
    j0,
    j1,
    inverse,
    mapping,
    rows,
    base,
    scale,
    first,
    out,
    offset,
    stride,
    clock=None,
    kinds=None,
    add=False,
):
    """Write scale·p(s) for pairs of locations; see `pairs_numba.fill`. FP32 tables work in FP32."""
    coefficients, missed, length = np.ascontiguousarray(rows.T), 0, len(rows)
    width = max(1, BATCH_ENTRIES // max(1, i1 - i0))
    for left in range(j0, j1, width):
        right, top = min(left + width, j1), max(left + first, i0)
        if top >= i1:
            break
        s = squared_distances(x[:, top:i1], y[:, left:right], inverse, mapping)
        factor, starts, decay = scale, 0, None
        if kinds is not None:
            of_rows, of_columns, inverses, (starts, length), amplitudes = kinds
            pairs = np.ix_(of_columns[left:right], of_rows[top:i1])
            s = s * inverses[pairs]
            starts, factor = starts[pairs].astype(np.intp), amplitudes[pairs] * scale
        if clock is not None:
            s, decay, few = _in_time(clock, s, slice(top, i1), slice(left, right))
            missed += few
        s = fold(s) if mapping & 2 else s
        values, few = _polynomials(coefficients, base, s, length, starts)
        values = factor * (values if decay is None else values * decay)
        missed += few
        block = np.lib.stride_tricks.as_strided(
            out[offset + top + left * stride :], s.shape, (stride * out.itemsize, out.itemsize)
        )
        # column j starts at row j + first
        below = np.arange(top, i1) >= np.arange(left, right)[:, None] + first
        np.copyto(block, block + values if add else values, where=below)
    return missed


add_pairs = None


def _in_time(clock, s, rows, columns):
    """Return the variable of the table in space, the decay, and how many lags missed its table."""
    of_rows, of_columns, inverse, decay, stretch, base = clock
    v = (of_rows[rows] - of_columns[columns, None]) ** 2 * inverse
    if decay is None:
        return s + v, None, 0
    value, missed = _polynomials(np.ascontiguousarray(decay.T), base, v, len(decay))
    if stretch is not None:
        s = s * _polynomials(np.ascontiguousarray(stretch.T), base, v, len(stretch))[0]
    return s, value, missed


def squared_distances(x, y, inverse, mapping):
    """Return ((x - y)/a)² for (d, n) and (d, m) points, (m, n); see `pairs_numba`."""
    s = sum((of_rows - of_columns[:, None]) ** 2 for of_rows, of_columns in zip(x, y, strict=True))
    if mapping & 1:
        # arc = 2R asin(chord / 2R)
        s = (2 * EARTH_RADIUS * np.arcsin(np.minimum(np.sqrt(s) / (2 * EARTH_RADIUS), 1.0))) ** 2
    return s * inverse


def _polynomials(coefficients, base, s, length, starts=0):
    """Return p(s), and the number of positive s below the table.

    Tables of `length` rows begin at row `starts`, one number or one for each s.
    """
    with np.errstate(over="ignore", under="ignore"):
        s = s.astype(coefficients.dtype, copy=False)
    real, (whole, shift) = s.dtype.type, FRACTION_BITS[s.dtype.name]
    bits = s.view(whole)
    row = (bits >> shift) - whole(base - 1)
    missed = np.count_nonzero((row <= 0) & (bits > 0))
    row = np.clip(row, 0, length - 1) + starts
    # the place in the interval, from the low bits: t in [-1, 1)
    t = (bits & whole((1 << shift) - 1)).astype(real) * real(2.0 ** (1 - shift)) - real(1)
    value = coefficients[-1][row]
    with np.errstate(under="ignore"):
        for one in coefficients[-2::-1]:
            value = value * t + one[row]
    return value, missed
