"""Loops over pairs of locations, compiled by numba: entries of Σ, and sums with its derivatives.

Compiled functions release the interpreter's lock, so that threads share the work; they are kept
on disk after the first compilation. A strip of pairs at a time stays in the first-level cache.
"""

from math import asin, sqrt

import numpy as np

from ..runtime.devices import njit, overload
from .distance import EARTH_RADIUS
from .table import (
    BEYOND_SUPPORT,
    DEGREE,
    DEGREE_FP32,
    FOLD_FACTOR,
    SPLIT,
    SPLIT_FP32,
)

STRIP_ENTRIES = 512
"""Entries handled at a time: squared distances stay in the first-level cache."""

FORMATS = {
    64: (np.float64, 52 - SPLIT, DEGREE),
    32: (np.float32, 23 - SPLIT_FP32, DEGREE_FP32),
}
"""By bits of a number: its type, how many low bits give its place in an interval, and the degree of
polynomials."""

LEAF = {"nogil": True, "fastmath": {"contract"}}
"""Options of functions that are compiled from one text for FP64 and FP32."""


@njit(nogil=True, cache=True, fastmath={"contract"})
def squared_distances(x, i, k, y, j, inverse, mapping, s):
    """Write ((x_i - y_j)/a)² for i ≤ row < k into s, with bit 1 of `mapping` for great circles.

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
    # two conditions, so that the loop is not compiled for None
    if mapping is not None:  # noqa: SIM102
        if mapping & 1:
            # arc = 2R asin(chord / 2R)
            for p in range(n):
                half_chord = sqrt(s[p] / inverse) / (2 * EARTH_RADIUS)
                length = 2 * EARTH_RADIUS * asin(min(half_chord, 1.0))
                s[p] = length * length * inverse


@njit(nogil=True, cache=True)
def fold_strip(mapping, count, s):
    """Write the variable of a folded table, as `table.fold`, with bit 2 of `mapping`."""
    if mapping & 2:
        for p in range(count):
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


def _intervals(bits, base, top, count, row, t):
    """Write the row of each s of a strip, from its bits, and its place in [-1, 1) of the interval.

    Return the number of pairs that are closer, yet not 0 apart, than the table reaches.
    """
    raise NotImplementedError


@overload(_intervals, jit_options=LEAF)
def _intervals_of(bits, base, top, count, row, t):
    real, shift, _ = FORMATS[bits.dtype.bitwidth]
    mask, half, one = (1 << shift) - 1, real(2.0 ** (1 - shift)), real(1.0)

    def intervals(bits, base, top, count, row, t):
        missed = 0
        for p in range(count):
            b = bits[p]
            q = (b >> shift) - base + 1
            missed += q <= 0 and b > 0
            row[p] = min(max(q, 0), top)
            t[p] = real(b & mask) * half - one
        return missed

    return intervals


def _polynomial(rows, row, t, count, scale, out):
    """Write scale·p(s) of a strip."""
    raise NotImplementedError


@overload(_polynomial, jit_options=LEAF)
def _polynomial_of(rows, row, t, count, scale, out):
    _, _, degree = FORMATS[rows.dtype.bitwidth]

    def polynomial(rows, row, t, count, scale, out):
        for p in range(count):
            # unsigned, so that no index is taken for one from the end
            r, u = row[p], t[np.uint64(p)]
            value = rows[r, np.uint64(degree)]
            for power in range(degree):
                value = value * u + rows[r, np.uint64(degree - 1 - power)]
            out[np.uint64(p)] = value * scale

    return polynomial


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
def _take(values, numbers, count, out):
    """Out <- values[numbers]."""
    for p in range(count):
        out[p] = values[numbers[p]]


@njit(nogil=True, cache=True)
def _begin_at(starts, numbers, count, row):
    """Add to each row where the table of its pair of variables begins."""
    for p in range(count):
        row[p] += starts[numbers[p]]


@njit(nogil=True, cache=True)
def _fill(
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
    clock,
    lags,
    decay,
    stretch,
    kinds,
    add,
    single,
    strips,
):
    # a branch on an argument that is None is decided at compile time
    s, v, bits, bits_in_time, row, t, f, g, h = strips
    top, missed = rows.shape[0] - 1, 0
    for j in range(j0, j1):
        i = max(j + first, i0)
        while i < i1:
            k = min(i1, i + STRIP_ENTRIES)
            n = k - i
            squared_distances(x, i, k, y, j, inverse, mapping, s)
            if kinds is not None:
                variables, of_columns, inverses, starts, top, amplitudes = kinds
                of_rows, variable = variables[i:k], of_columns[j]
                _take(inverses[variable], of_rows, n, v)
                _multiply(v, n, s)
            if clock is not None:
                times, others, inverse_time, base_time = clock
                squared_lags(times, i, k, others, j, inverse_time, v)
                if decay is None:
                    _plus(v, n, s)
                else:
                    if single is not None:
                        _convert(v, n, single)
                    last = decay.shape[0] - 1
                    missed += _intervals(bits_in_time, base_time, last, n, row, t)
                    if stretch is not None:
                        _polynomial(stretch, row, t, n, g.dtype.type(1.0), g)
                        _multiply(g, n, s)
                    _polynomial(decay, row, t, n, g.dtype.type(1.0), g)
            if lags is not None:
                times_of_rows, times_of_columns = lags
                numbers, when = times_of_rows[i:k], times_of_columns[j]
                if stretch is not None:
                    _take(stretch[when], numbers, n, g)
                    _multiply(g, n, s)
                _take(decay[when], numbers, n, g)
            if mapping is not None:
                fold_strip(mapping, n, s)
            if single is not None:
                _convert(s, n, single)
            missed += _intervals(bits, base, top, n, row, t)
            place = offset + i + j * stride
            entries = out[place : place + n]
            values = entries if add is None else f
            if kinds is not None:
                _begin_at(starts[variable], of_rows, n, row)
            _polynomial(rows, row, t, n, scale, values)
            if kinds is not None:
                _take(amplitudes[variable], of_rows, n, h)
                _multiply(h, n, values)
            if decay is not None:
                _multiply(g, n, values)
            if add is not None:
                _plus(values, n, entries)
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
            if mapping is not None:
                fold_strip(mapping, count, s)
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
            if mapping is not None:
                fold_strip(mapping, count, s)
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


def _strips(real):
    """Return memory for a strip: a copy of s for FP32 or None; s, v, their bits, rows, and more."""
    s, v = np.empty((2, STRIP_ENTRIES))
    row, others = np.empty(STRIP_ENTRIES, np.uint64), np.empty((4, STRIP_ENTRIES), real)
    if real == np.float64:
        return None, (s, v, s.view(np.int64), v.view(np.int64), row, *others)
    single = np.empty(STRIP_ENTRIES, real)
    bits = single.view(np.int32)
    return single, (s, v, bits, bits, row, *others)


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
    """Write scale·p(s) for pairs of a row place i0 ≤ i < i1 and a column place j0 ≤ j < j1.

    Return the number of pairs that are closer, yet not 0 apart, than the table reaches: it must be
    extended. x and y are points, (d, n) and (d, m); `inverse` is 1/a², `mapping` as of
    `generate.mapping_of`; `rows`, (K + 2, 8), and `base`, the first interval, are of a `Table`.
    Column j starts at row j + first: 0 for a lower triangle, -m for whole columns. Entry (i, j)
    goes to offset + i + j·stride of the 1-D `out`; with `add` it is added to what is there. FP32
    polynomials, (K + 2, 3), of degree 2, are written into FP32, with `scale` in FP32.

    `clock` are the times of rows and columns, 1/b², the polynomials of decay and stretch, or None,
    and their first interval: with v = (u/b)² what is written is scale·decay(v)·p(s·stretch(v)), and
    without a decay scale·p(s + v). Or, where few times occur, `clock` are the numbers of the times
    of rows and columns, and matrices of the decay and the stretch (or None) between these times.

    `kinds` are the variables of rows and columns; a factor of s for each pair of variables, (p, p);
    the row of `rows` where the table of each pair begins, (p, p), with the number of rows of a
    table; and a factor of the entry for each pair, (p, p), in the type of `out`. All three are
    symmetric.
    """
    lags = decay = stretch = None
    if clock is not None and len(clock) == 4:
        *lags, decay, stretch = clock
        clock, lags = None, tuple(lags)
    elif clock is not None:
        *clock, decay, stretch, base_in_time = clock
        clock = *clock, base_in_time
    if kinds is not None:
        of_rows, of_columns, inverses, (starts, length), amplitudes = kinds
        kinds = of_rows, of_columns, inverses, starts, length - 1, amplitudes
    return _fill(
        *(tuple(x), i0, i1, tuple(y), j0, j1, inverse, mapping or None, rows, base, scale),
        *(first, out, offset, stride, clock, lags, decay, stretch, kinds, add or None),
        *_strips(rows.dtype.type),
    )


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
