"""Loops over pairs of locations, compiled by numba: entries of Σ, and sums with its derivatives.

Compiled functions release the interpreter's lock, so that threads share the work; they are kept
on disk after the first compilation. A strip of pairs at a time stays in the first-level cache.
"""

import threading
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
def _take(values, numbers, first, count, out):
    """Out <- values[numbers - first]."""
    for p in range(count):
        out[p] = values[numbers[p] - first]


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
                _take(inverses[variable], of_rows, 0, n, v)
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
                    _take(stretch[when], numbers, 0, n, g)
                    _multiply(g, n, s)
                _take(decay[when], numbers, 0, n, g)
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
                _take(amplitudes[variable], of_rows, 0, n, h)
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


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def _turn(x, i, y, j, count, inverse, change, f):
    """F <- f u'Mu/|u|² with u the difference of two locations, of 2 or 3 coordinates; 0 at 0."""
    x0, x1, y0, y1 = x[0][i:], x[1][i:], y[0][j], y[1][j]
    cross = change[0, 1] + change[1, 0]
    if len(x) == 2:
        for p in range(count):
            d0, d1 = x0[p] - y0, x1[p] - y1
            form = change[0, 0] * d0 * d0 + cross * d0 * d1
            form += change[1, 1] * d1 * d1
            s = (d0 * d0 + d1 * d1) * inverse
            f[p] = f[p] * form * inverse / s if s > 0 else 0.0
    elif len(x) == 3:
        x2, y2 = x[2][i:], y[2][j]
        sides = change[0, 2] + change[2, 0], change[1, 2] + change[2, 1]
        for p in range(count):
            d0, d1, d2 = x0[p] - y0, x1[p] - y1, x2[p] - y2
            form = change[0, 0] * d0 * d0 + cross * d0 * d1
            form += change[1, 1] * d1 * d1
            form += (sides[0] * d0 + sides[1] * d1 + change[2, 2] * d2) * d2
            s = (d0 * d0 + d1 * d1 + d2 * d2) * inverse
            f[p] = f[p] * form * inverse / s if s > 0 else 0.0


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def _shares(s, v, count, g):
    """Write 1, v/(s + v) and s/(s + v), 0 for 0/0, and s <- s + v."""
    for p in range(count):
        both = s[p] + v[p]
        g[0, p] = 1.0
        g[1, p] = v[p] / both if both > 0 else 0.0
        g[2, p] = s[p] / both if both > 0 else 0.0
        s[p] = both


@njit(nogil=True, cache=True, fastmath={"contract"})
def _less(x, factor, y, count, w):
    """W <- factor x - y."""
    for p in range(count):
        w[p] = x[p] * factor - y[p]


@njit(nogil=True, cache=True)
def _product(x, y, count, f):
    for p in range(count):
        f[p] = x[p] * y[p]


@njit(nogil=True, cache=True, fastmath={"contract"})
def _add_product(x, y, count, f):
    for p in range(count):
        f[p] += x[p] * y[p]


@njit(nogil=True, cache=True, fastmath={"contract"})
def _add_pairs(
    x,
    of_rows,
    y,
    of_columns,
    j0,
    j1,
    inverse,
    mapping,
    tables,
    base,
    times_x,
    times_y,
    inverse_time,
    of_time,
    base_in_time,
    stretch,
    fields,
    change,
    weights,
    first,
    alpha_x,
    alpha_y,
    beside_x,
    beside_y,
    sums,
    q_x,
    q_y,
    strips,
):
    # a branch on an argument that is None is decided at compile time
    s, v, bits, bits_in_time, row, t, w, f, e, g = strips
    top, missed, last = tables.shape[1] - 1, 0, alpha_x.size
    products = q_x.shape[1] > 0
    for j in range(j0, j1):
        alpha = alpha_y[j]
        if of_rows is None:
            column, i = weights.T[j - first], j + 1
        else:
            column = weights.T[of_columns[j] - first]
            i = np.searchsorted(of_rows, of_columns[j], side="right")
        while i < last:
            k = min(last, i + STRIP_ENTRIES)
            count = k - i
            ours = alpha_x[i:k]
            squared_distances(x, i, k, y, j, inverse, mapping, s)
            if times_x is not None:
                squared_lags(times_x, i, k, times_y, j, inverse_time, v)
                if of_time is None:
                    _shares(s, v, count, g)
                else:
                    end = of_time.shape[1] - 1
                    missed += _intervals(bits_in_time, base_in_time, end, count, row, t)
                    for each in range(len(of_time)):
                        _polynomial(of_time[each], row, t, count, 1.0, g[each])
                    if stretch >= 0:
                        _multiply(g[stretch], count, s)
            if mapping is not None:
                fold_strip(mapping, count, s)
            missed += _intervals(bits, base, top, count, row, t)
            if of_rows is None:
                _less(ours, alpha, column[i - first : k - first], count, w)
            else:
                _take(column, of_rows[i:k], first, count, w)
                _less(ours, alpha, w, count, w)
            for c in range(beside_x.shape[0]):
                _add(beside_x[c][i:k], beside_y[c, j], w[:count])
            known = 0
            for field in range(sums.size):
                space = fields[field, 1]
                if times_x is None and change is None:
                    _polynomial(tables[space], row, t, count, 1.0, f)
                else:
                    # tables stand in the order in which functions need them
                    while known <= max(space, fields[field, 3]):
                        _polynomial(tables[known], row, t, count, 1.0, e[known])
                        known += 1
                    if times_x is None:
                        _convert(e[space], count, f)
                    else:
                        _product(g[fields[field, 0]], e[space], count, f)
                        if fields[field, 2] >= 0:
                            _add_product(g[fields[field, 2]], e[fields[field, 3]], count, f)
                # two conditions, so that the loop is not compiled for None
                if change is not None:  # noqa: SIM102
                    if fields[field, 4] >= 0:
                        _turn(x, i, y, j, count, inverse, change[fields[field, 4]], f)
                sums[field] += _inner(w, f, count)
                if products:
                    q_y[field, j] += _inner(f, ours, count)
                    _add(f, alpha, q_x[field][i:k])
            i = k
    return missed


# The same for callers. Less is compiled if what is not needed is None, if coordinates are a tuple,
# and if strips of memory are allocated by NumPy.


_mine = threading.local()
"""Strips of each thread: for small blocks their allocation takes noticeable time."""


def _strips(real):
    """Return this thread's memory for a strip, which the next call overwrites.

    A copy of s for FP32 or None; s, v, their bits, rows, and more.
    """
    kept = vars(_mine)
    if real not in kept:
        kept[real] = _new_strips(real)
    return kept[real]


def _new_strips(real):
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
    rows, columns, j0, j1, inverse, mapping, tables, clock, fields, change, weights, sums, q_x, q_y
):
    """Add pairs of locations, whose row comes after the column, to sums and to products.

    With w = α_i α_j - S_ij + (BB')_ij and f a function of pairs:
    sums_f += Σ w f,  q_x[f, i] += f α_j,  q_y[f, j] += f α_i.

    Return the number of missed pairs, as `fill` does. Rows, and columns j0 ≤ j < j1 of `columns`,
    are each a group of locations with `points`, (d, n); their `numbers` among all locations, in
    ascending order, or None for all of them; `times` or None; α, `alpha`, (n,); and B', `beside`,
    (p, n). `tables` are those of functions of space e, (T, K + 2, 8), and their first interval.
    `clock` is None, or 1/b², tables of functions of time g or None, their first interval, and which
    of them is the stretch, or -1; without tables g are 1, v/(s + v) and s/(s + v).

    Function f is g[a]·e[b] + g[c]·e[d] with (a, b, c, d) = `fields[f, :4]`, without the second
    product where c = -1, and e[b] without a clock; times u'Mu/|u|² with M = change[fields[f, 4]]
    where this is not -1. `weights` are S[f:, f:], its lower triangle in Fortran order, or columns
    of it, and f; `sums` is (F,), and the products are (F, n) and (F, m), without columns where they
    are not wanted; one array if rows and columns are the same.
    """
    times = inverse_time = of_time = times_of_columns = None
    base_in_time = stretch = -1
    if clock is not None:
        times, times_of_columns = rows.times, columns.times
        inverse_time, of_time, base_in_time, stretch = clock
    memory, (tables, base) = np.empty((5, STRIP_ENTRIES)), tables
    s, v, t, w, f = memory
    strips = s, v, s.view(np.int64), v.view(np.int64), np.empty(STRIP_ENTRIES, np.uint64), t, w, f
    e = np.empty((len(tables), STRIP_ENTRIES))
    g = np.empty((3 if of_time is None else len(of_time), STRIP_ENTRIES))
    return _add_pairs(
        *(tuple(rows.points), rows.numbers, tuple(columns.points), columns.numbers, j0, j1),
        *(inverse, mapping or None, tables, base, times, times_of_columns, inverse_time, of_time),
        *(base_in_time, stretch, fields, change if len(change) else None, *weights),
        *(rows.alpha, columns.alpha, rows.beside, columns.beside, sums, q_x, q_y),
        (*strips, e, g),
    )
