"""Loops over pairs of locations, compiled by numba: entries of Σ, and sums with its derivatives.

Compiled functions release the interpreter's lock, so that threads share the work; they are kept
on disk after the first compilation. A strip of pairs at a time stays in the first-level cache.
"""

from math import asin, sqrt

import numpy as np

from ..runtime.devices import njit
from .distance import EARTH_RADIUS
from .table import BEYOND_SUPPORT, FOLD_FACTOR, SPLIT, SPLIT_FP32

STRIP_ENTRIES = 512
"""Entries handled at a time: squared distances stay in the first-level cache."""

_SHIFT = 52 - SPLIT
_MASK = (1 << _SHIFT) - 1
_HALF = 2.0 ** (1 - _SHIFT)
_SHIFT32 = 23 - SPLIT_FP32
_MASK32 = (1 << _SHIFT32) - 1
_HALF32 = np.float32(2.0 ** (1 - _SHIFT32))
_0, _1, _2, _3, _4, _5, _6, _7 = (np.uint64(k) for k in range(8))


@njit(nogil=True, cache=True, fastmath={"contract"})
def squared_distances(x, i, k, y, j, inverse, mapping, s):
    """Write the table's variable for i ≤ row < k into s: ((x_i - y_j)/a)², or what it is mapped to.

    `mapping` is as of `generate.mapping_of`, None for 0. Code for `mapping` and for other numbers
    of coordinates, len(x), is not compiled where it cannot be reached.
    """
    # slices, so that no index is taken for one from the end: such loops stay out of SIMD registers
    n, x0, y0 = k - i, x[0][i:k], y[0][j]
    if len(x) == 2:
        x1, y1 = x[1][i:k], y[1][j]
        for p in range(n):
            d0, d1 = x0[p] - y0, x1[p] - y1
            s[p] = (d0 * d0 + d1 * d1) * inverse
    elif len(x) == 3:
        x1, x2, y1, y2 = x[1][i:k], x[2][i:k], y[1][j], y[2][j]
        for p in range(n):
            d0, d1, d2 = x0[p] - y0, x1[p] - y1, x2[p] - y2
            s[p] = (d0 * d0 + d1 * d1 + d2 * d2) * inverse
    else:
        for p in range(n):
            d0 = x0[p] - y0
            s[p] = d0 * d0 * inverse
    if mapping is not None:
        if mapping & 1:
            # arc = 2R asin(chord / 2R)
            for p in range(n):
                half_chord = sqrt(s[p] / inverse) / (2 * EARTH_RADIUS)
                length = 2 * EARTH_RADIUS * asin(min(half_chord, 1.0))
                s[p] = length * length * inverse
        if mapping & 2:
            # as table.fold
            for p in range(n):
                far = (1.0 - s[p]) * FOLD_FACTOR if s[p] < 1.0 else BEYOND_SUPPORT
                s[p] = s[p] if s[p] < 0.5 else far


@njit(nogil=True, cache=True, fastmath={"contract"})
def squared_lags(times, i, k, others, j, inverse, v):
    """Write ((t_i - t_j)/b)² for i ≤ row < k into v."""
    n, t, other = k - i, times[i:k], others[j]
    for p in range(n):
        lag = t[p] - other
        v[p] = lag * lag * inverse


# Functions of their own, called with slices: inlined, or with indices such as i + p, LLVM leaves
# these loops scalar.


@njit(nogil=True, cache=True)
def _intervals(bits, base, top, count, row, t):
    """Write the row of each s of a strip, from its bits, and its place in [-1, 1) of the interval.

    Return the number of pairs that are closer, yet not 0 apart, than the table reaches.
    """
    missed = 0
    for p in range(count):
        b = bits[p]
        q = (b >> _SHIFT) - base + 1
        missed += q <= 0 and b > 0
        row[p] = min(max(q, 0), top)
        t[p] = (b & _MASK) * _HALF - 1.0
    return missed


@njit(nogil=True, cache=True, fastmath={"contract"})
def _polynomial(rows, row, t, count, scale, out):
    """Write scale·p(s) of a strip."""
    for p in range(count):
        # unsigned, so that no index is taken for one from the end
        r, u = row[p], t[np.uint64(p)]
        value = rows[r, _7] * u + rows[r, _6]
        value = value * u + rows[r, _5]
        value = value * u + rows[r, _4]
        value = value * u + rows[r, _3]
        value = value * u + rows[r, _2]
        value = value * u + rows[r, _1]
        value = value * u + rows[r, _0]
        out[np.uint64(p)] = value * scale


@njit(nogil=True, cache=True, fastmath={"contract"})
def _fill(
    x, i0, i1, y, j0, j1, inverse, mapping, rows, base, scale, first, out, offset, stride, strip
):
    s, bits, row, t = strip
    top, missed = rows.shape[0] - 1, 0
    for j in range(j0, j1):
        i = max(j + first, i0)
        while i < i1:
            k = min(i1, i + STRIP_ENTRIES)
            squared_distances(x, i, k, y, j, inverse, mapping, s)
            missed += _intervals(bits, base, top, k - i, row, t)
            place = offset + i + j * stride
            _polynomial(rows, row, t, k - i, scale, out[place : place + k - i])
            i = k
    return missed


@njit(nogil=True, cache=True, fastmath={"contract"})
def _fill_fp32(
    x, i0, i1, y, j0, j1, inverse, mapping, rows, base, scale, first, out, offset, stride
):
    s = np.empty(STRIP_ENTRIES)
    single = np.empty(STRIP_ENTRIES, dtype=np.float32)
    bits = single.view(np.int32)
    row, t = np.empty(STRIP_ENTRIES, dtype=np.uint64), np.empty(STRIP_ENTRIES, dtype=np.float32)
    top, missed = rows.shape[0] - 1, 0
    for j in range(j0, j1):
        i = max(j + first, i0)
        while i < i1:
            k = min(i1, i + STRIP_ENTRIES)
            squared_distances(x, i, k, y, j, inverse, mapping, s)
            for p in range(k - i):
                single[p] = s[p]
            for p in range(k - i):
                b = bits[p]
                q = (b >> _SHIFT32) - base + 1
                missed += q <= 0 and b > 0
                row[p] = min(max(q, 0), top)
                t[p] = np.float32(b & _MASK32) * _HALF32 - np.float32(1.0)
            place = offset + i + j * stride
            for p in range(k - i):
                r, u = row[p], t[np.uint64(p)]
                value = rows[r, _2] * u + rows[r, _1]
                value = value * u + rows[r, _0]
                out[np.uint64(place + p)] = value * scale
            i = k
    return missed


# The same in space and time: decay(v)·p(s·stretch(v)), or p(s + v) without a decay, v = (u/b)².


@njit(nogil=True, cache=True)
def _intervals_fp32(bits, base, top, count, row, t):
    """As `_intervals`, for FP32."""
    missed = 0
    for p in range(count):
        b = bits[p]
        q = (b >> _SHIFT32) - base + 1
        missed += q <= 0 and b > 0
        row[p] = min(max(q, 0), top)
        t[p] = np.float32(b & _MASK32) * _HALF32 - np.float32(1.0)
    return missed


@njit(nogil=True, cache=True, fastmath={"contract"})
def _polynomial_fp32(rows, row, t, count, scale, out):
    """As `_polynomial`, for FP32."""
    for p in range(count):
        r, u = row[p], t[np.uint64(p)]
        value = rows[r, _2] * u + rows[r, _1]
        value = value * u + rows[r, _0]
        out[np.uint64(p)] = value * scale


@njit(nogil=True, cache=True)
def _multiply(x, count, y):
    for p in range(count):
        y[p] *= x[p]


@njit(nogil=True, cache=True)
def _convert(x, count, y):
    for p in range(count):
        y[p] = x[p]


@njit(nogil=True, cache=True)
def _plus(x, count, y):
    for p in range(count):
        y[p] += x[p]


@njit(nogil=True, cache=True)
def _fill_in_time(
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
    of_rows,
    of_columns,
    inverse_time,
    decay,
    stretch,
    base_time,
    strips,
):
    (s, bits, row, t), (v, bits_v, row_v, t_v), g = strips
    top, missed = rows.shape[0] - 1, 0
    for j in range(j0, j1):
        i = max(j + first, i0)
        while i < i1:
            k = min(i1, i + STRIP_ENTRIES)
            n = k - i
            squared_distances(x, i, k, y, j, inverse, mapping, s)
            squared_lags(of_rows, i, k, of_columns, j, inverse_time, v)
            if decay is None:
                _plus(v, n, s)
            else:
                missed += _intervals(bits_v, base_time, decay.shape[0] - 1, n, row_v, t_v)
                if stretch is not None:
                    _polynomial(stretch, row_v, t_v, n, 1.0, g)
                    _multiply(g, n, s)
                _polynomial(decay, row_v, t_v, n, 1.0, g)
            missed += _intervals(bits, base, top, n, row, t)
            place = offset + i + j * stride
            entries = out[place : place + n]
            _polynomial(rows, row, t, n, scale, entries)
            if decay is not None:
                _multiply(g, n, entries)
            i = k
    return missed


@njit(nogil=True, cache=True)
def _take(values, numbers, count, out):
    """Out <- values[numbers]."""
    for p in range(count):
        out[p] = values[numbers[p]]


@njit(nogil=True, cache=True)
def _fill_by_lag(
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
    of_rows,
    of_columns,
    decay,
    stretch,
    strips,
):
    (s, bits, row, t), g = strips
    top, missed = rows.shape[0] - 1, 0
    for j in range(j0, j1):
        i, when = max(j + first, i0), of_columns[j]
        while i < i1:
            k = min(i1, i + STRIP_ENTRIES)
            n, numbers = k - i, of_rows[i:k]
            squared_distances(x, i, k, y, j, inverse, mapping, s)
            if stretch is not None:
                _take(stretch[when], numbers, n, g)
                _multiply(g, n, s)
            missed += _intervals(bits, base, top, n, row, t)
            place = offset + i + j * stride
            entries = out[place : place + n]
            _polynomial(rows, row, t, n, scale, entries)
            _take(decay[when], numbers, n, g)
            _multiply(g, n, entries)
            i = k
    return missed


@njit(nogil=True, cache=True)
def _fill_by_lag_fp32(
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
    of_rows,
    of_columns,
    decay,
    stretch,
    strips,
):
    s, single, bits, row, t, g = strips
    top, missed = rows.shape[0] - 1, 0
    for j in range(j0, j1):
        i, when = max(j + first, i0), of_columns[j]
        while i < i1:
            k = min(i1, i + STRIP_ENTRIES)
            n, numbers = k - i, of_rows[i:k]
            squared_distances(x, i, k, y, j, inverse, mapping, s)
            if stretch is not None:
                _take(stretch[when], numbers, n, g)
                _multiply(g, n, s)
            _convert(s, n, single)
            missed += _intervals_fp32(bits, base, top, n, row, t)
            place = offset + i + j * stride
            entries = out[place : place + n]
            _polynomial_fp32(rows, row, t, n, scale, entries)
            _take(decay[when], numbers, n, g)
            _multiply(g, n, entries)
            i = k
    return missed


@njit(nogil=True, cache=True)
def _fill_in_time_fp32(
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
    of_rows,
    of_columns,
    inverse_time,
    decay,
    stretch,
    base_time,
    strips,
):
    s, v, single, bits, row, t, g = strips
    top, missed, one = rows.shape[0] - 1, 0, np.float32(1.0)
    for j in range(j0, j1):
        i = max(j + first, i0)
        while i < i1:
            k = min(i1, i + STRIP_ENTRIES)
            n = k - i
            squared_distances(x, i, k, y, j, inverse, mapping, s)
            squared_lags(of_rows, i, k, of_columns, j, inverse_time, v)
            if decay is None:
                _plus(v, n, s)
            else:
                _convert(v, n, single)
                missed += _intervals_fp32(bits, base_time, decay.shape[0] - 1, n, row, t)
                if stretch is not None:
                    _polynomial_fp32(stretch, row, t, n, one, g)
                    _multiply(g, n, s)
                _polynomial_fp32(decay, row, t, n, one, g)
            _convert(s, n, single)
            missed += _intervals_fp32(bits, base, top, n, row, t)
            place = offset + i + j * stride
            entries = out[place : place + n]
            _polynomial_fp32(rows, row, t, n, scale, entries)
            if decay is not None:
                _multiply(g, n, entries)
            i = k
    return missed


# The same for several variables: a scale of s, a table and an amplitude for each pair of variables.


@njit(nogil=True, cache=True)
def _begin_at(starts, numbers, count, row):
    """Add to each row where the table of its pair of variables begins."""
    for p in range(count):
        row[p] += starts[numbers[p]]


@njit(nogil=True, cache=True)
def _put(x, count, add, y):
    """Write x into y, or add it."""
    if add:
        for p in range(count):
            y[p] += x[p]
    else:
        for p in range(count):
            y[p] = x[p]


@njit(nogil=True, cache=True, fastmath={"contract"})
def _fill_by_variable(
    x,
    i0,
    i1,
    y,
    j0,
    j1,
    rows,
    base,
    first,
    out,
    offset,
    stride,
    of_rows,
    of_columns,
    inverses,
    starts,
    length,
    amplitudes,
    add,
    strips,
):
    (s, bits, row, t), f, g = strips
    missed = 0
    for j in range(j0, j1):
        i, kind = max(j + first, i0), of_columns[j]
        while i < i1:
            k = min(i1, i + STRIP_ENTRIES)
            n, numbers = k - i, of_rows[i:k]
            squared_distances(x, i, k, y, j, 1.0, None, s)
            _take(inverses[kind], numbers, n, g)
            _multiply(g, n, s)
            missed += _intervals(bits, base, length - 1, n, row, t)
            _begin_at(starts[kind], numbers, n, row)
            _polynomial(rows, row, t, n, 1.0, f)
            _take(amplitudes[kind], numbers, n, g)
            _multiply(g, n, f)
            place = offset + i + j * stride
            _put(f, n, add, out[place : place + n])
            i = k
    return missed


@njit(nogil=True, cache=True, fastmath={"contract"})
def _fill_by_variable_fp32(
    x,
    i0,
    i1,
    y,
    j0,
    j1,
    rows,
    base,
    first,
    out,
    offset,
    stride,
    of_rows,
    of_columns,
    inverses,
    starts,
    length,
    amplitudes,
    add,
    strips,
):
    s, of_pair, single, bits, row, t, f, g = strips
    missed, one = 0, np.float32(1.0)
    for j in range(j0, j1):
        i, kind = max(j + first, i0), of_columns[j]
        while i < i1:
            k = min(i1, i + STRIP_ENTRIES)
            n, numbers = k - i, of_rows[i:k]
            squared_distances(x, i, k, y, j, 1.0, None, s)
            _take(inverses[kind], numbers, n, of_pair)
            _multiply(of_pair, n, s)
            _convert(s, n, single)
            missed += _intervals_fp32(bits, base, length - 1, n, row, t)
            _begin_at(starts[kind], numbers, n, row)
            _polynomial_fp32(rows, row, t, n, one, f)
            _take(amplitudes[kind], numbers, n, g)
            _multiply(g, n, f)
            place = offset + i + j * stride
            _put(f, n, add, out[place : place + n])
            i = k
    return missed


# Sums with the derivatives of the covariance, none of which is stored. They are a few fields of
# pairs; every parameter's is one of them times a number (see `sums`).


@njit(nogil=True, cache=True, fastmath={"contract", "reassoc"})
def _inner(a, b, count):
    total = 0.0
    for p in range(count):
        total += a[p] * b[p]
    return total


@njit(nogil=True, cache=True, fastmath={"contract"})
def _add(x, factor, y):
    for p in range(y.size):
        y[p] += x[p] * factor


@njit(nogil=True, cache=True, fastmath={"contract"})
def _add_pairs(
    x, i0, i1, j0, j1, inverse, mapping, polynomials, change, weights, alpha, beside, sums, q, strip
):
    tables, base, slope_at = polynomials
    s, bits, row, t, w, f, slope = strip
    top, missed = tables.shape[1] - 1, 0
    products = q.shape[1] > 0
    for j in range(j0, j1):
        i = max(j + 1, i0)
        while i < i1:
            k = min(i1, i + STRIP_ENTRIES)
            count = k - i
            ours, column = alpha[i:k], weights.T[j][i:k]
            squared_distances(x, i, k, x, j, inverse, mapping, s)
            missed += _intervals(bits, base, top, count, row, t)
            for p in range(count):
                w[p] = ours[p] * alpha[j] - column[p]
            for c in range(beside.shape[0]):
                other = beside[c][i:k]
                for p in range(count):
                    w[p] += other[p] * beside[c, j]
            for field in range(sums.size):
                if field < len(tables):
                    _polynomial(tables[field], row, t, count, 1.0, f)
                    # two conditions, so that the loop is not compiled for None
                    if change is not None:  # noqa: SIM102
                        if field == slope_at:
                            # a loop compiles two seconds sooner than an assignment of slices
                            for p in range(count):
                                slope[p] = f[p]
                elif change is not None:
                    _turned(x, i, j, count, inverse, change[field - len(tables)], slope, f)
                sums[field] += _inner(w, f, count)
                if products:
                    q[field, j] += _inner(f, ours, count)
                    _add(f, alpha[j], q[field][i:k])
            i = k
    return missed


@njit(nogil=True, cache=True, fastmath={"contract"})
def _add_pairs_of_two(
    x,
    of_rows,
    y,
    of_columns,
    j0,
    j1,
    inverse,
    tables,
    base,
    weights,
    alpha_x,
    alpha_y,
    beside_x,
    beside_y,
    sums,
    q_x,
    q_y,
    strip,
):
    s, bits, row, t, w, f = strip
    top, missed, last = tables.shape[1] - 1, 0, len(of_rows)
    products = q_x.shape[1] > 0
    for j in range(j0, j1):
        here, alpha = of_columns[j], alpha_y[j]
        column = weights.T[here]
        i = np.searchsorted(of_rows, here, side="right")
        while i < last:
            k = min(last, i + STRIP_ENTRIES)
            count = k - i
            ours = alpha_x[i:k]
            squared_distances(x, i, k, y, j, inverse, None, s)
            missed += _intervals(bits, base, top, count, row, t)
            _take(column, of_rows[i:k], count, w)
            for p in range(count):
                w[p] = ours[p] * alpha - w[p]
            for c in range(beside_x.shape[0]):
                _add(beside_x[c][i:k], beside_y[c, j], w[:count])
            for field in range(len(tables)):
                _polynomial(tables[field], row, t, count, 1.0, f)
                sums[field] += _inner(w, f, count)
                if products:
                    q_y[field, j] += _inner(f, ours, count)
                    _add(f, alpha, q_x[field][i:k])
            i = k
    return missed


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def _turned(x, i, j, count, inverse, change, slope, f):
    """Write (r dρ/dr)/h² · u'Mu with u the difference of two locations of the plane; 0 at h = 0."""
    x0, x1 = x[0][i:], x[1][i:]
    for p in range(count):
        d0, d1 = x0[p] - x[0][j], x1[p] - x[1][j]
        form = change[0, 0] * d0 * d0 + (change[0, 1] + change[1, 0]) * d0 * d1
        form += change[1, 1] * d1 * d1
        s = (d0 * d0 + d1 * d1) * inverse
        f[p] = slope[p] * form * inverse / s if s > 0 else 0.0


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def _shares(s, v, count, g):
    """Write 1, v/(s + v) and s/(s + v), 0 for 0/0, and s <- s + v."""
    for p in range(count):
        both = s[p] + v[p]
        g[0, p] = 1.0
        g[1, p] = v[p] / both if both > 0 else 0.0
        g[2, p] = s[p] / both if both > 0 else 0.0
        s[p] = both


@njit(nogil=True, cache=True)
def _product(x, y, count, f):
    for p in range(count):
        f[p] = x[p] * y[p]


@njit(nogil=True, cache=True, fastmath={"contract"})
def _add_product(x, y, count, f):
    for p in range(count):
        f[p] += x[p] * y[p]


@njit(nogil=True, cache=True, fastmath={"contract"})
def _add_pairs_in_time(
    x,
    i0,
    i1,
    j0,
    j1,
    inverse,
    mapping,
    tables,
    base,
    times,
    inverse_time,
    of_time,
    base_time,
    stretch,
    fields,
    weights,
    alpha,
    beside,
    sums,
    q,
    strips,
):
    (s, bits, row, t), (v, bits_v, row_v, t_v), (w, f), e, g = strips
    top, missed = tables.shape[1] - 1, 0
    products = q.shape[1] > 0
    for j in range(j0, j1):
        i = max(j + 1, i0)
        while i < i1:
            k = min(i1, i + STRIP_ENTRIES)
            count = k - i
            ours, column = alpha[i:k], weights.T[j][i:k]
            squared_distances(x, i, k, x, j, inverse, mapping, s)
            squared_lags(times, i, k, times, j, inverse_time, v)
            if of_time is None:
                _shares(s, v, count, g)
            else:
                missed += _intervals(bits_v, base_time, of_time.shape[1] - 1, count, row_v, t_v)
                for each in range(len(of_time)):
                    _polynomial(of_time[each], row_v, t_v, count, 1.0, g[each])
                if stretch >= 0:
                    _multiply(g[stretch], count, s)
            missed += _intervals(bits, base, top, count, row, t)
            for each in range(len(tables)):
                _polynomial(tables[each], row, t, count, 1.0, e[each])
            for p in range(count):
                w[p] = ours[p] * alpha[j] - column[p]
            for c in range(beside.shape[0]):
                _add(beside[c][i:k], beside[c, j], w[:count])
            for field in range(sums.size):
                decay, of_space, turned, slope = fields[field]
                _product(g[decay], e[of_space], count, f)
                if turned >= 0:
                    _add_product(g[turned], e[slope], count, f)
                sums[field] += _inner(w, f, count)
                if products:
                    q[field, j] += _inner(f, ours, count)
                    _add(f, alpha[j], q[field][i:k])
            i = k
    return missed


# The same for callers. Less is compiled if what is not needed is None, if coordinates are a tuple,
# and if strips of memory are allocated by NumPy.


def _strip():
    """Return memory for a strip: s, its bits, the rows of the table, and t."""
    s, t, whole = np.empty((3, STRIP_ENTRIES))
    return s, s.view(np.int64), whole.view(np.uint64), t


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
    """Write scale·p(s) for pairs of a row place i0 ≤ i < i1 and a column place j0 ≤ j < j1.

    Return the number of pairs that are closer, yet not 0 apart, than the table reaches: it must be
    extended. x and y are points, (d, n) and (d, m); `inverse` is 1/a², `mapping` as of
    `generate.mapping_of`; `rows`, (K + 2, 8), and `base`, the first interval, are of a `Table`.
    Column j starts at row j + first: 0 for a lower triangle, -m for whole columns. Entry (i, j)
    goes to offset + i + j·stride of the 1-D `out`.

    `clock` are the times of rows and columns, 1/b², the polynomials of decay and stretch, or None,
    and their first interval: with v = (u/b)² what is written is scale·decay(v)·p(s·stretch(v)), and
    without a decay scale·p(s + v). Or, where few times occur, `clock` are the numbers of the times
    of rows and columns, and matrices of the decay and the stretch (or None) between these times.
    """
    pairs = tuple(x), i0, i1, tuple(y), j0, j1, inverse, mapping or None, rows, base, scale
    where = first, out, offset, stride
    if clock is None:
        return _fill(*pairs, *where, _strip())
    if len(clock) == 4:
        return _fill_by_lag(*pairs, *where, *clock, (_strip(), np.empty(STRIP_ENTRIES)))
    return _fill_in_time(*pairs, *where, *clock, (_strip(), _strip(), np.empty(STRIP_ENTRIES)))


def fill_fp32(
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
    """As `fill`, with FP32 polynomials of degree 2 into an FP32 array."""
    pairs = tuple(x), i0, i1, tuple(y), j0, j1, inverse, mapping or None, rows, base, scale
    where = first, out, offset, stride
    if clock is None:
        return _fill_fp32(*pairs, *where)
    s, v = np.empty((2, STRIP_ENTRIES))
    single, t, g = np.empty((3, STRIP_ENTRIES), dtype=np.float32)
    row = np.empty(STRIP_ENTRIES, dtype=np.uint64)
    if len(clock) == 4:
        strips = s, single, single.view(np.int32), row, t, g
        return _fill_by_lag_fp32(*pairs, *where, *clock, strips)
    strips = s, v, single, single.view(np.int32), row, t, g
    return _fill_in_time_fp32(*pairs, *where, *clock, strips)


def fill_by_variable(
    x, i0, i1, y, j0, j1, rows, base, first, out, offset, stride, kinds, add=False
):
    """Write A[i, j]·p_ij(s) for pairs of variables i and j into FP64 or FP32, or add it.

    Arguments as of `fill`. `kinds` are the variables of rows and columns, 1/a² of each pair of
    variables (p, p), the row of `rows` where the table of each pair begins (p, p) with the number
    of rows of a table, and A, (p, p), in the type of `out`; all three are symmetric.
    """
    of_rows, of_columns, inverses, (starts, length), amplitudes = kinds
    pairs = tuple(x), i0, i1, tuple(y), j0, j1, rows, base, first, out, offset, stride
    variables = of_rows, of_columns, inverses, starts, length, amplitudes, add
    if out.dtype == np.float64:
        return _fill_by_variable(*pairs, *variables, (_strip(), *np.empty((2, STRIP_ENTRIES))))
    s, of_pair = np.empty((2, STRIP_ENTRIES))
    single, t, f, g = np.empty((4, STRIP_ENTRIES), dtype=np.float32)
    row = np.empty(STRIP_ENTRIES, dtype=np.uint64)
    strips = s, of_pair, single, single.view(np.int32), row, t, f, g
    return _fill_by_variable_fp32(*pairs, *variables, strips)


def add_pairs(
    x, i0, i1, j0, j1, inverse, mapping, polynomials, change, weights, alpha, beside, sums, q
):
    """Add the pairs i > j with i0 ≤ i < i1 and j0 ≤ j < j1 to the sums and the products.

    With w = α_i α_j - S_ij + (BB')_ij and f a field:
    sums_f += Σ w f,  q_f[i] += f α_j,  q_f[j] += f α_i.

    Return the number of missed pairs, as `fill` does. `polynomials` are the tables of the first T
    fields, (T, K + 2, 8), their first interval, and which of them is r dρ/dr (-1 if none is).
    `change`, (A, 2, 2), is (∂A/∂φ)A⁻¹ for the last A fields: those of the anisotropy's parameters
    φ, (r dρ/dr)/h² · u'(∂A/∂φ)A⁻¹u with u = A d. `weights` is S, its lower triangle in Fortran
    order, `beside` is B', (p, n), `sums` is (T + A,), and `q`, (T + A, n), has no columns where
    products are not wanted.
    """
    return _add_pairs(
        *(tuple(x), i0, i1, j0, j1, inverse, mapping or None, polynomials),
        *(change if len(change) else None, weights, alpha, beside, sums, q),
        (*_strip(), *np.empty((3, STRIP_ENTRIES))),
    )


def add_pairs_of_two(
    x,
    of_rows,
    y,
    of_columns,
    j0,
    j1,
    inverse,
    tables,
    base,
    weights,
    alpha_x,
    alpha_y,
    beside_x,
    beside_y,
    sums,
    q_x,
    q_y,
):
    """As `add_pairs`, for rows of one variable at x and columns j0 ≤ j < j1 of another one at y.

    `of_rows` and `of_columns` are their numbers among all locations, in ascending order; pairs are
    those whose row comes after the column. `weights` is S of all locations; the other arrays are
    those of x or of y. q_x has the products of the rows, q_y those of the columns.
    """
    strips = *_strip(), *np.empty((2, STRIP_ENTRIES))
    return _add_pairs_of_two(
        *(tuple(x), of_rows, tuple(y), of_columns, j0, j1, inverse, tables, base, weights),
        *(alpha_x, alpha_y, beside_x, beside_y, sums, q_x, q_y, strips),
    )


def add_pairs_in_time(
    x,
    i0,
    i1,
    j0,
    j1,
    inverse,
    mapping,
    polynomials,
    times,
    clock,
    fields,
    weights,
    alpha,
    beside,
    sums,
    q,
):
    """As `add_pairs`, in space and time.

    Field k is g[a]·e[b] + g[c]·e[d] with (a, b, c, d) = `fields[k]`, without the second product
    where c = -1; e are the functions of space in `polynomials`, (T, K + 2, 8) and the first
    interval. `clock` is 1/b², the polynomials of g as functions of time, their first interval and
    which of them is the stretch, or -1. If the polynomials are None, time is a coordinate, and g
    are 1, v/(s + v) and s/(s + v).
    """
    tables, base = polynomials
    _, of_time, _, _ = clock
    strips = (
        *(_strip(), _strip(), tuple(np.empty((2, STRIP_ENTRIES)))),
        np.empty((len(tables), STRIP_ENTRIES)),
        np.empty((3 if of_time is None else len(of_time), STRIP_ENTRIES)),
    )
    return _add_pairs_in_time(
        *(tuple(x), i0, i1, j0, j1, inverse, mapping or None, tables, base, times, *clock),
        *(fields, weights, alpha, beside, sums, q, strips),
    )
