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
):
    """Write scale·p(s) for pairs of locations; see `pairs_numba.fill`. FP32 tables work in FP32."""
    coefficients, missed = np.ascontiguousarray(rows.T), 0
    width = max(1, BATCH_ENTRIES // max(1, i1 - i0))
    for left in range(j0, j1, width):
        right, top = min(left + width, j1), max(left + first, i0)
        if top >= i1:
            break
        s = squared_distances(x[:, top:i1], y[:, left:right], inverse, mapping)
        decay = None
        if clock is not None:
            s, decay, few = _in_time(clock, s, slice(top, i1), slice(left, right))
            missed += few
        values, few = _polynomials(coefficients, base, s)
        values = values if decay is None else values * decay
        missed += few
        block = np.lib.stride_tricks.as_strided(
            out[offset + top + left * stride :], s.shape, (stride * out.itemsize, out.itemsize)
        )
        # column j starts at row j + first
        below = np.arange(top, i1) >= np.arange(left, right)[:, None] + first
        np.copyto(block, values * scale, where=below)
    return missed


def fill_by_variable(
    x, i0, i1, y, j0, j1, rows, base, first, out, offset, stride, kinds, add=False
):
    """Write A[i, j]·p_ij(s) for pairs of variables; see `pairs_numba.fill_by_variable`."""
    of_rows, of_columns, inverses, (starts, length), amplitudes = kinds
    missed, whole = 0, np.arange(i0, i1)
    block = np.lib.stride_tricks.as_strided(
        out[offset + i0 + j0 * stride :], (j1 - j0, i1 - i0), (stride * out.itemsize, out.itemsize)
    )
    for i, j in np.ndindex(*inverses.shape):
        r, c = whole[of_rows[i0:i1] == i], np.arange(j0, j1)[of_columns[j0:j1] == j]
        if not len(r) or not len(c):
            continue
        coefficients = rows[int(starts[i, j]) : int(starts[i, j]) + length].T
        s = squared_distances(x[:, r], y[:, c], inverses[i, j], 0)
        values, few = _polynomials(np.ascontiguousarray(coefficients), base, s)
        below = r >= c[:, None] + first
        missed += few
        where = np.ix_(c - j0, r - i0)
        old = block[where]
        values = amplitudes[i, j] * values + (old if add else 0)
        block[where] = np.where(below, values, old)
    return missed


fill_fp32, add_pairs, add_pairs_in_time = fill, None, None


def _in_time(clock, s, rows, columns):
    """Return the variable of the table in space, the decay, and how many lags missed its table."""
    of_rows, of_columns, inverse, decay, stretch, base = clock
    v = (of_rows[rows] - of_columns[columns, None]) ** 2 * inverse
    if decay is None:
        return s + v, None, 0
    value, missed = _polynomials(np.ascontiguousarray(decay.T), base, v)
    if stretch is not None:
        s = s * _polynomials(np.ascontiguousarray(stretch.T), base, v)[0]
    return s, value, missed


def squared_distances(x, y, inverse, mapping):
    """Return the table's variable for (d, n) and (d, m) points, (m, n); see `pairs_numba`."""
    s = sum((of_rows - of_columns[:, None]) ** 2 for of_rows, of_columns in zip(x, y, strict=True))
    if mapping & 1:
        # arc = 2R asin(chord / 2R)
        s = (2 * EARTH_RADIUS * np.arcsin(np.minimum(np.sqrt(s) / (2 * EARTH_RADIUS), 1.0))) ** 2
    s = s * inverse
    return fold(s) if mapping & 2 else s


def _polynomials(coefficients, base, s):
    """Return p(s), and the number of positive s below the table."""
    with np.errstate(over="ignore", under="ignore"):
        s = s.astype(coefficients.dtype, copy=False)
    real, (whole, shift) = s.dtype.type, FRACTION_BITS[s.dtype.name]
    bits = s.view(whole)
    row = (bits >> shift) - whole(base - 1)
    missed = np.count_nonzero((row <= 0) & (bits > 0))
    row = np.clip(row, 0, coefficients.shape[1] - 1)
    # the place in the interval, from the low bits: t in [-1, 1)
    t = (bits & whole((1 << shift) - 1)).astype(real) * real(2.0 ** (1 - shift)) - real(1)
    value = coefficients[-1][row]
    with np.errstate(under="ignore"):
        for one in coefficients[-2::-1]:
            value = value * t + one[row]
    return value, missed
