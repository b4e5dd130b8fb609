"""Compiled loops of Vecchia's approximation, by numba: eight blocks at a time.

A block is a location and its neighbours, the location last: S = Σ_{(N, i), (N, i)} = LL'. With b =
L^-T e, e the last unit vector, its conditional distribution has the variance d = 1/b_i² and gives
the whitened value b'y. For a derivative D of S (Guinness 2021, Stat. Comput. 31:25)

    g = L^-1 D b:  ∂ log d = g_i,   ∂(b'y) = -Σ_q g_q u_q + ½ g_i u_i with u = L^-1 y,

and two of them have the information Σ_q g_q h_q - ½ g_i h_i. Blocks are padded to a multiple of
four rows; a row without a neighbour is that of the unit matrix.

Entry (i, j) of eight blocks is the vector at 8 (i (i + 1)/2 + j) of a flat array; entry i of eight
vectors is at 8 i. All loops over blocks take

    x : (c, n) ndarray; coordinates of points
    targets : (c, k) ndarray; coordinates too, x where not given
    neighbours : (k, m) ndarray of int32; points near each target, -1 for none
    first, last : int; the targets first ≤ i < last are handled
    noise, at_target : (n,), (k,) ndarray; variances of points and targets beside the field's
    field : tuple; the dimension d of points; 1/a²; True for great-circle arcs, else None; whether
        the table of each term is folded, (C,) ndarray, or None if no table is; σ²; tables, a 1-D
        ndarray, of the correlation and of other functions of space; numbers in one table, and in
        the tables of one function, int; their first interval, int
    columns : (c, n) ndarray; vectors to be whitened
    mixed : None for one term of one variable. Otherwise the variables of points and targets, (n,)
        and (k,) ndarray of int64; their number p; the first row of the points of each term in x,
        (C,) ndarray; a table of eight numbers in a row, R rows for
        each term of each two variables, from row R (C (p i + j) + c) on: 1/a², the amplitude, the
        first row of its tables, 1/b², the first row of its tables of functions of time, then
        factors of derivatives; R; C; and which derivative and which function of pairs each factor
        is of, (E, 2) ndarray. 1/a² and 1/b² of `field` and `clock` are 1 then, and the variance of
        the field is a part of noise
    clock : None, or if points have the time as their last coordinate, 1/b²; tables of functions of
        time, a 1-D ndarray, or None if time is a coordinate; numbers in one of them, and in those
        of one function; their first interval; the numbers of decay and stretch, or -1, among them

and return a number that is not 0 if the tables did not reach a pair of points.
"""

from math import asin, inf, log, sqrt

import numpy as np

from ..covariance.distance import EARTH_RADIUS
from ..covariance.table import BEYOND_SUPPORT, FOLD_FACTOR, SPLIT
from ..linalg.batched import backward_packed, factor_packed, forward_packed
from ..linalg.simd import (
    fetch,
    fraction,
    interval,
    missed,
    moved,
    pairs_of,
    polynomial,
    spread,
    store,
    total,
    where_less,
)
from ..linalg.simd import load8 as load
from ..runtime.devices import njit


@njit(nogil=True, cache=True)
def _fetch(columns, column, neighbours, first, last, own, order, y, start):
    """Fetch the values of eight blocks; those of the targets themselves only if `own`."""
    m = neighbours.shape[1]
    for lane in range(8):
        i = min(first + lane, last - 1)
        for q in range(order):
            j = neighbours[i, q] if q < m else -1
            y[start + q * 8 + lane] = columns[column, j] if j >= 0 else 0.0
        if own:
            y[start + (order - 1) * 8 + lane] = columns[column, i]


@njit(nogil=True, cache=True, forceinline=True)
def _squared(points, order, first, dimensions, i, j):
    """Return |x_i - x_j|² of points from coordinate `first` on."""
    at = first * order * 8
    apart = load(points, at + i * 8) - load(points, at + j * 8)
    s = apart * apart
    for axis in range(first + 1, first + dimensions):
        at = axis * order * 8
        apart = load(points, at + i * 8) - load(points, at + j * 8)
        s = s + apart * apart
    return s


@njit(nogil=True, cache=True)
def _arcs(s, scratch):
    """Return squared great-circle arcs for squared chords, in km²: arc = 2R asin(chord / 2R)."""
    store(scratch, 0, s)
    for lane in range(8):
        length = 2 * EARTH_RADIUS * asin(min(sqrt(scratch[lane]) / (2 * EARTH_RADIUS), 1.0))
        scratch[lane] = length * length
    return load(scratch, 0)


@njit(nogil=True, cache=True, forceinline=True)
def _fold(s, folded, term):
    """Return the variable of the table of a term, for those that are folded as by `table.fold`."""
    # a branch on None is decided at compile time
    if folded is None or not folded[term]:
        return s
    one = spread(1.0)
    far = where_less(s, one, (one - s) * spread(FOLD_FACTOR), spread(BEYOND_SUPPORT))
    return where_less(s, spread(0.5), s, far)


@njit(nogil=True, cache=True, forceinline=True)
def _lag(points, order, axis, i, j):
    """Return (t_i - t_j)²."""
    at = axis * order * 8
    lag = load(points, at + i * 8) - load(points, at + j * 8)
    return lag * lag


@njit(nogil=True, cache=True, forceinline=True)
def _of_time(tables, which, whole, row, t, s, v):
    """Return a function of time; if time is a coordinate 1, v/(s + v) or s/(s + v), 0 for 0/0."""
    if tables is None:
        if which == 0:
            return spread(1.0)
        return (v if which == 1 else s) / (s + v + spread(1e-300))
    return polynomial(tables, which * whole, row, t)


@njit(nogil=True, cache=True, forceinline=True)
def _in_time(s, v, tables, whole, row, t, decay, stretch):
    """Return the variable of the table in space, and the decay."""
    if tables is None:
        return s + v, spread(1.0)
    if stretch >= 0:
        s = s * polynomial(tables, stretch * whole, row, t)
    return s, polynomial(tables, decay * whole, row, t)


@njit(nogil=True, cache=True, forceinline=True)
def _missed_in_time(tables, v, row):
    """Return whether the tables of functions of time, if there are any, were missed."""
    return 0 if tables is None else missed(v, row)


@njit(nogil=True, cache=True)
def _vectors(count):
    """Return memory for numbers that begins a cache line, so that no vector lies in two."""
    memory = np.empty(count + 7)
    first = -(memory.ctypes.data // 8) % 8
    return memory[first : first + count]


@njit(nogil=True, cache=True)
def _memory(d, m):
    """Return memory for eight blocks: points, which rows are in use, S, 1/l_ii, and a vector."""
    size = (m + 4) // 4 * 4 * 8
    a = _vectors(size * (size + 8) // 16)
    a[:] = 0.0
    kinds = np.empty(size, dtype=np.int64)
    return _vectors(d * size), _vectors(size), a, _vectors(size), _vectors(8), kinds


@njit(nogil=True, cache=True)
def _gather(x, targets, neighbours, first, last, noise, at_target, variance, points, keep, a):
    """Fetch the coordinates of eight blocks, and write the diagonals of their matrices."""
    m, order, d = neighbours.shape[1], keep.size // 8, x.shape[0]
    for lane in range(8):
        i = min(first + lane, last - 1)
        for q in range(order):
            j = neighbours[i, q] if q < m else -1
            for axis in range(d):
                points[(axis * order + q) * 8 + lane] = x[axis, j] if j >= 0 else targets[axis, i]
            keep[q * 8 + lane] = 1.0 if j >= 0 or q == order - 1 else 0.0
            diagonal = variance + noise[j] if j >= 0 else 1.0
            if q == order - 1:
                diagonal = variance + at_target[i]
            a[4 * q * (q + 3) + lane] = diagonal


@njit(nogil=True, cache=True)
def _gather_variables(neighbours, first, last, mixed, kinds):
    """Fetch the variables of the rows of eight blocks."""
    m, order = neighbours.shape[1], kinds.size // 8
    for lane in range(8):
        i = min(first + lane, last - 1)
        for q in range(order):
            j = neighbours[i, q] if q < m else -1
            kinds[q * 8 + lane] = mixed[0][j] if j >= 0 else mixed[1][i]


@njit(nogil=True, cache=True)
def _generate(points, keep, m, field, mixed, clock, kinds, a, scratch):
    """Write the entries below the diagonals."""
    dimensions, inverse, arc, folded, variance, tables, size, _, base = field
    order, top, misses, terms = keep.size // 8, size // 8 - 1, 0, 1
    last_axis = points.size // keep.size - 1
    variance = spread(variance)
    if clock is not None:
        inverse_time, times, size_in_time, apart, base_in_time, of_decay, of_stretch = clock
        last = size_in_time // 8 - 1
    if mixed is not None:
        _, _, p, places, table, rows, terms, _ = mixed
        variance, numbers = spread(1.0), _vectors(64)
    for i in range(1, order):
        at = 4 * i * (i + 1)
        known = min(i, m) if i < m or i == order - 1 else 0
        weight = variance * load(keep, i * 8)
        for j in range(known):
            whole = spread(0.0)
            squared = _squared(points, order, 0, dimensions, i, j)
            if mixed is not None:
                pair = pairs_of(kinds, i * 8, j * 8, p)
            first = 0
            for c in range(terms):
                if mixed is not None:
                    if places[c] != first:
                        first = places[c]
                        squared = _squared(points, order, first, dimensions, i, j)
                    fetch(table, pair, c * rows, terms * rows, numbers)
                # a branch on None is decided at compile time
                s = squared if arc is None else _arcs(squared, scratch)
                s = s * spread(inverse) if mixed is None else s * load(numbers, 0)
                if clock is not None:
                    v = _lag(points, order, last_axis, i, j)
                    v = v * spread(inverse_time) if mixed is None else v * load(numbers, 24)
                    late, t_late = interval(v, SPLIT, base_in_time, last), fraction(v, SPLIT)
                    misses |= _missed_in_time(times, v, late)
                    if mixed is not None:
                        late = moved(late, load(numbers, 32))
                    s, decay = _in_time(s, v, times, apart, late, t_late, of_decay, of_stretch)
                s = _fold(s, folded, c)
                row, t = interval(s, SPLIT, base, top), fraction(s, SPLIT)
                misses |= missed(s, row)
                if mixed is not None:
                    row = moved(row, load(numbers, 16))
                value = polynomial(tables, 0, row, t)
                if clock is not None:
                    value = value * decay
                whole = value if mixed is None else whole + value * load(numbers, 8)
            store(a, at + j * 8, whole * (weight * load(keep, j * 8)))
        for j in range(known, i):
            store(a, at + j * 8, spread(0.0))
    return misses


@njit(nogil=True, cache=True)
def _entries(neighbours, first, last, field, mixed, clock, memory):
    """Write the entries below the diagonals of eight blocks."""
    points, keep, a, _, scratch, kinds = memory
    if mixed is not None:
        _gather_variables(neighbours, first, last, mixed, kinds)
    return _generate(points, keep, neighbours.shape[1], field, mixed, clock, kinds, a, scratch)


@njit(nogil=True, cache=True)
def _factor(x, targets, neighbours, first, last, noise, at_target, field, mixed, clock, memory):
    """Generate and factor the matrices of eight blocks."""
    points, keep, a, inverse = memory[0], memory[1], memory[2], memory[3]
    _gather(x, targets, neighbours, first, last, noise, at_target, field[4], points, keep, a)
    misses = _entries(neighbours, first, last, field, mixed, clock, memory)
    factor_packed(a, inverse, keep.size // 8)
    return misses


@njit(nogil=True, cache=True)
def _dot(a, at, b, start, order):
    """Return Σ_q a_q b_q."""
    s, r = load(a, at) * load(b, start), load(a, at + 8) * load(b, start + 8)
    for q in range(16, order * 8, 16):
        s = s + load(a, at + q) * load(b, start + q)
        r = r + load(a, at + q + 8) * load(b, start + q + 8)
    return s + r


@njit(nogil=True, cache=True, forceinline=True)
def _form(points, order, first, dimensions, i, j, forms, at):
    """Return u'Mu, u = x_i - x_j; `forms` has the entries of M + M' above the diagonal and M's."""
    if dimensions == 2:
        d0 = load(points, first * order * 8 + i * 8) - load(points, first * order * 8 + j * 8)
        row = (first + 1) * order * 8
        d1 = load(points, row + i * 8) - load(points, row + j * 8)
        inner = spread(forms[at]) * d0 * d0 + spread(forms[at + 1]) * d0 * d1
        return inner + spread(forms[at + 2]) * d1 * d1
    inner = spread(0.0)
    for p in range(first, first + dimensions):
        row = p * order * 8
        one = load(points, row + i * 8) - load(points, row + j * 8)
        for q in range(p, first + dimensions):
            row = q * order * 8
            other = load(points, row + i * 8) - load(points, row + j * 8)
            inner = inner + spread(forms[at]) * one * other
            at += 1
    return inner


@njit(nogil=True, cache=True)
def _on_diagonal(keep, mixed, kinds, shape, b, g):
    """G <- D b on the diagonal, where correlations are 1 and their derivatives are 0."""
    order, step, terms, rows, entries = keep.size // 8, keep.size, mixed[6], mixed[5], mixed[7]
    numbers = _vectors(64 * rows)
    for i in range(order):
        pair = pairs_of(kinds, i * 8, i * 8, mixed[2])
        end = load(b, i * 8) * load(keep, i * 8)
        for c in range(terms):
            for r in range(rows):
                fetch(mixed[4], pair, c * rows + r, terms * rows, numbers[64 * r :])
            for k in range(len(entries)):
                if entries[k, 1] == 0:
                    at = (shape + entries[k, 0]) * step + i * 8
                    store(g, at, load(g, at) + end * load(numbers, (5 + k) * 8))


@njit(nogil=True, cache=True)
def _changes(
    points, keep, m, field, mixed, clock, fields, maps, kinds, shape, wanted, b, g, scratch
):
    """G <- D b for the derivatives by parameters of the field, from number `shape` on.

    Function of pairs k is g[a]·e[b] + g[c]·e[d] with (a, b, c, d) = fields[k, :4], e functions of
    space and g of time; without the second product where c = -1, and e[b] without a clock. It is
    multiplied by u'Mu/|u|² with the form maps[fields[k, 4], c] of each term c where that is not -1;
    `maps`, (T, C, d (d + 1) / 2), is flat, and None without forms.
    Of one term, it is derivative fields[k, 5] but for σ². Without `fields` the wanted derivatives
    are e[1], e[2], …, and then the last of them, multiplied by one form after the other.
    """
    dimensions, inverse, arc, folded, variance, tables, size, whole, base = field
    order, top, misses, terms = keep.size // 8, size // 8 - 1, 0, 1
    step, last_axis = keep.size, points.size // keep.size - 1
    g[shape * step :] = 0.0
    variance = spread(variance)
    if clock is not None:
        inverse_time, times, size_in_time, apart, base_in_time, of_decay, of_stretch = clock
        last = size_in_time // 8 - 1
    if mixed is not None:
        _on_diagonal(keep, mixed, kinds, shape, b, g)
        _, _, p, places, table, rows, terms, entries = mixed
        variance, numbers, e = spread(1.0), _vectors(64 * rows), _vectors(8 * len(fields))
    for i in range(1, order):
        known = min(i, m) if i < m or i == order - 1 else 0
        weight, b_i = variance * load(keep, i * 8), load(b, i * 8)
        for j in range(known):
            both, b_j = weight * load(keep, j * 8), load(b, j * 8)
            squared = _squared(points, order, 0, dimensions, i, j)
            if mixed is not None:
                pair = pairs_of(kinds, i * 8, j * 8, p)
            first = 0
            for c in range(terms):
                if mixed is not None:
                    if places[c] != first:
                        first = places[c]
                        squared = _squared(points, order, first, dimensions, i, j)
                    for r in range(rows):
                        fetch(table, pair, c * rows + r, terms * rows, numbers[64 * r :])
                # a branch on None is decided at compile time
                s = squared if arc is None else _arcs(squared, scratch)
                s = s * spread(inverse) if mixed is None else s * load(numbers, 0)
                if clock is not None:
                    space, v = s, _lag(points, order, last_axis, i, j)
                    v = v * spread(inverse_time) if mixed is None else v * load(numbers, 24)
                    late, t_late = interval(v, SPLIT, base_in_time, last), fraction(v, SPLIT)
                    misses |= _missed_in_time(times, v, late)
                    if mixed is not None:
                        late = moved(late, load(numbers, 32))
                    s, _ = _in_time(s, v, times, apart, late, t_late, of_decay, of_stretch)
                s = _fold(s, folded, c)
                row, t = interval(s, SPLIT, base, top), fraction(s, SPLIT)
                misses |= missed(s, row)
                if mixed is not None:
                    row = moved(row, load(numbers, 16))
                if fields is None:
                    at, basis, value = whole, shape, both
                    while at < tables.size:
                        if wanted[basis]:
                            value = polynomial(tables, at, row, t) * both
                            _add_products(g, basis * step, i, j, value, b_i, b_j)
                            at += whole
                        basis += 1
                    if maps is not None:
                        # 0 for u = 0 too
                        share, at = value / (squared + spread(1e-300)), 0
                        while at < maps.size:
                            if wanted[basis]:
                                form = _form(points, order, first, dimensions, i, j, maps, at)
                                _add_products(g, basis * step, i, j, share * form, b_i, b_j)
                                at += dimensions * (dimensions + 1) // 2
                            basis += 1
                else:
                    value, held, share, turned = both, -1, both, -1
                    for k in range(len(fields)):
                        of_space, other, turn = fields[k, 1], fields[k, 2], fields[k, 4]
                        if clock is not None:
                            value = polynomial(tables, of_space * whole, row, t)
                            value = value * _of_time(
                                times, fields[k, 0], apart, late, t_late, space, v
                            )
                            if other >= 0:
                                product = polynomial(tables, fields[k, 3] * whole, row, t)
                                value = value + product * _of_time(
                                    times, other, apart, late, t_late, space, v
                                )
                            value, turned = value * both, -1
                        elif held != of_space:
                            held = of_space
                            value = polynomial(tables, held * whole, row, t) * both
                        change = value
                        # two conditions, so that the form is not compiled for None
                        if maps is not None:  # noqa: SIM102
                            if turn >= 0:
                                at = (turn * terms + c) * (dimensions * (dimensions + 1) // 2)
                                form = _form(points, order, first, dimensions, i, j, maps, at)
                                if turned != of_space:
                                    # 0 for u = 0 too
                                    turned, share = of_space, value / (squared + spread(1e-300))
                                change = share * form
                        if mixed is None:
                            basis = shape + fields[k, 5]
                            _add_products(g, basis * step, i, j, change, b_i, b_j)
                        else:
                            store(e, k * 8, change)
                if mixed is not None:
                    for k in range(len(entries)):
                        basis = shape + entries[k, 0]
                        if wanted[basis]:
                            change = load(e, entries[k, 1] * 8) * load(numbers, (5 + k) * 8)
                            _add_products(g, basis * step, i, j, change, b_i, b_j)
    return misses


@njit(nogil=True, cache=True, forceinline=True)
def _add_products(g, at, i, j, value, b_i, b_j):
    """G <- g + D b for the entries (i, j) and (j, i) of D."""
    store(g, at + i * 8, load(g, at + i * 8) + value * b_j)
    store(g, at + j * 8, load(g, at + j * 8) + value * b_i)


@njit(nogil=True, cache=True)
def _derivatives(a, inverse, g, u, white, wanted, order, live, sums):
    """Add the traces, the changes of whitened products and the information of eight blocks."""
    step, last, bases = order * 8, (order - 1) * 8, wanted.size
    count, half = white.size // 8, spread(0.5)
    # L^-1 S b = L'b = e
    g[:last], g[last:step] = 0.0, 1.0
    for j in range(1, bases):
        if wanted[j]:
            forward_packed(a, inverse, g, j * step, order)
    for j in range(bases):
        if not wanted[j]:
            continue
        end = load(g, j * step + last)
        tail = end * half
        store(sums, 8 * j, load(sums, 8 * j) + end * live)
        for k in range(j + 1):
            if wanted[k]:
                both = _dot(g, j * step, g, k * step, order) - tail * load(g, k * step + last)
                at = 8 * (bases + j * bases + k)
                store(sums, at, load(sums, at) + both * live)
        for c in range(count):
            change = tail * load(u, c * step + last) - _dot(g, j * step, u, c * step, order)
            for e in range(count):
                at = 8 * (bases * (1 + bases) + (j * count + c) * count + e)
                store(sums, at, load(sums, at) + change * load(white, e * 8) * live)


@njit(nogil=True, cache=True)
def likelihood_slice(
    x,
    neighbours,
    first,
    last,
    noise,
    field,
    mixed,
    clock,
    columns,
    diagonals,
    maps,
    fields,
    wanted,
    out,
    local=None,
):
    """Reduce blocks to the sums that the likelihood and its derivatives need.

    `diagonals`, (q, n), are those of the derivatives by parameters of the noise. For `maps` and
    `fields` see `_changes`. `wanted`, (D,), tells which derivatives of S are wanted, in the order
    of `blocks`; none if the first is not. The sums in `out` are Σ log d; W'W, (c, c); and with
    derivatives Σ g_i, (D,); the information, (D, D), its lower triangle; and (∂W)'W, (D, c, c).
    With `local`, (n, m + 1), vectors y of each block's neighbours and its location, the last of the
    c columns is of these, and counts as 1 on the right: of ∂b'y the sums are there. Also return the
    first location whose matrix is not positive definite, or `last`.
    """
    d, m, count, bases = len(x), neighbours.shape[1], len(columns), wanted.size
    if local is not None:
        count += 1
    memory = points, keep, a, inverse, scratch, kinds = _memory(d, m)
    order = keep.size // 8
    b, u = _vectors(order * 8), _vectors(count * order * 8)
    g = _vectors(bases * order * 8 if wanted[0] else 0)
    white, live = _vectors(count * 8), np.ones(8)
    sums = _vectors(8 * bases * (1 + bases + count * count))
    products = _vectors(count * count * 8)
    sums[:], products[:] = 0.0, 0.0
    logs, failed, misses = 0.0, last, 0
    for place in range(first, last, 8):
        live[last - place :] = 0.0
        misses |= _factor(x, x, neighbours, place, last, noise, noise, field, mixed, clock, memory)
        b[:-8], b[-8:] = 0.0, 1.0
        backward_packed(a, inverse, b, 0, order)
        for lane in range(min(8, last - place)):
            end = b[(order - 1) * 8 + lane]
            if not 0.0 < end < inf:
                failed = min(failed, place + lane)
            logs -= 2.0 * log(end) if end > 0.0 else 0.0
        for c in range(len(columns)):
            _fetch(columns, c, neighbours, place, last, True, order, u, c * order * 8)
            store(white, c * 8, _dot(b, 0, u, c * order * 8, order))
        if local is not None:
            for lane in range(8):
                i, at = min(place + lane, last - 1), len(columns) * order * 8 + lane
                for q in range(order - 1):
                    u[at + q * 8] = local[i, q] if q < m else 0.0
                u[at + (order - 1) * 8] = local[i, m]
                white[len(columns) * 8 + lane] = 1.0
        weight = load(live, 0)
        for c in range(count):
            for e in range(c + 1):
                at = (c * count + e) * 8
                both = load(white, c * 8) * load(white, e * 8)
                store(products, at, load(products, at) + both * weight)
        if wanted[0]:
            for c in range(count):
                forward_packed(a, inverse, u, c * order * 8, order)
            for k in range(len(diagonals)):
                at = (1 + k) * order * 8
                _fetch(diagonals, k, neighbours, place, last, True, order, g, at)
                g[at : at + order * 8] *= b
            shape = 1 + len(diagonals)
            misses |= _changes(
                points,
                keep,
                m,
                field,
                mixed,
                clock,
                fields,
                maps,
                kinds,
                shape,
                wanted,
                b,
                g,
                scratch,
            )
            _derivatives(a, inverse, g, u, white, wanted, order, weight, sums)
    out[0] = logs
    for k in range(count * count):
        out[1 + k] = total(load(products, 8 * k))
    if wanted[0]:
        for k in range(sums.size // 8):
            out[1 + count * count + k] = total(load(sums, 8 * k))
    return failed, misses


@njit(nogil=True, cache=True)
def weights_slice(
    x, targets, neighbours, first, last, noise, field, mixed, clock, at_target, weights, variances
):
    """Write the weights λ, (k, m), and the variances d, (k,), of the conditional means of targets.

    E(y_i | y_N) = λ'y_N with Σ_NN λ = Σ_Ni, and the variance is d = Σ_ii - |L_NN^-1 Σ_Ni|², which
    is NaN where Σ_NN is not positive definite.
    """
    m, misses = neighbours.shape[1], 0
    memory = _, keep, a, inverse, scratch, _ = _memory(len(x), m)
    order, end, b = keep.size // 8, keep.size - 8, _vectors(keep.size)
    for place in range(first, last, 8):
        misses |= _factor(
            x, targets, neighbours, place, last, noise, at_target, field, mixed, clock, memory
        )
        # L'λ = L_i with 0 and 1 for the target itself: its own pivot may be 0
        b[:end], b[end:], inverse[end:] = a[a.size - keep.size : -8], 0.0, 1.0
        store(scratch, 0, _dot(b, 0, b, 0, order))
        backward_packed(a, inverse, b, 0, order)
        for lane in range(min(8, last - place)):
            i = place + lane
            variances[i] = field[4] + at_target[i] - scratch[lane]
            for q in range(m):
                weights[i, q] = b[q * 8 + lane]
    return misses


@njit(nogil=True, cache=True)
def gram_slice(
    x, targets, neighbours, first, last, noise, field, mixed, clock, columns, given, grams
):
    """Write W'W, (k, c + 1, c + 1), for targets, W = L_NN^-1 [k, columns at N].

    `given` are the covariances with the neighbours of targets that are not points, (k, m), or
    (0, m) for points. W'W is NaN where Σ_NN is not positive definite.
    """
    m, count, misses = neighbours.shape[1], len(columns) + 1, 0
    memory = _, keep, a, inverse, scratch, _ = _memory(len(x), m)
    step, end, order = keep.size, keep.size - 8, keep.size // 8
    u, no_noise = _vectors(count * step), np.zeros(targets.shape[1])
    for place in range(first, last, 8):
        misses |= _factor(
            x, targets, neighbours, place, last, noise, no_noise, field, mixed, clock, memory
        )
        if len(given):
            for lane in range(8):
                i = min(place + lane, last - 1)
                for q in range(order):
                    known = q < m and neighbours[i, q] >= 0
                    u[q * 8 + lane] = given[i, q] if known else 0.0
            forward_packed(a, inverse, u, 0, order)
        else:
            # the target's row of the factor is L_iN = k'L_NN^-T
            u[:end] = a[a.size - step : -8]
        for c in range(1, count):
            _fetch(columns, c - 1, neighbours, place, last, False, order, u, c * step)
            forward_packed(a, inverse, u, c * step, order)
        for c in range(count):
            # the target's own row, which may have no pivot
            u[c * step + end : (c + 1) * step] = 0.0
            for e in range(c + 1):
                store(scratch, 0, _dot(u, c * step, u, e * step, order))
                for lane in range(min(8, last - place)):
                    grams[place + lane, c, e] = scratch[lane]
                    grams[place + lane, e, c] = scratch[lane]
    return misses


# Products with the sparse factor B: row i is (1 at i, -λ_i at its neighbours)/√d_i, and Σ⁻¹ = B'B.
# Columns are (n, c) in C order, so that the values of one place are adjacent.


@njit(nogil=True, cache=True)
def whiten(neighbours, weights, variances, y, out):
    """Out <- B y."""
    for i in range(len(out)):
        out[i] = y[i]
        for q in range(neighbours.shape[1]):
            j = neighbours[i, q]
            if j >= 0:
                for c in range(y.shape[1]):
                    out[i, c] -= weights[i, q] * y[j, c]
        out[i] /= sqrt(variances[i])


@njit(nogil=True, cache=True)
def transposed(neighbours, weights, variances, y, out):
    """Out <- B'y."""
    out[:] = 0.0
    for i in range(len(out)):
        scale = 1.0 / sqrt(variances[i])
        for c in range(y.shape[1]):
            out[i, c] += y[i, c] * scale
        for q in range(neighbours.shape[1]):
            j = neighbours[i, q]
            if j >= 0:
                for c in range(y.shape[1]):
                    out[j, c] -= weights[i, q] * y[i, c] * scale


@njit(nogil=True, cache=True)
def unwhiten(sequence, rows, neighbours, weights, variances, y):
    """Y <- B⁻¹ y at the locations of a sequence, in its order; theirs are these rows of B."""
    for k in range(len(sequence)):
        i, row = sequence[k], rows[k]
        y[i] *= sqrt(variances[row])
        for q in range(neighbours.shape[1]):
            j = neighbours[row, q]
            if j >= 0:
                for c in range(y.shape[1]):
                    y[i, c] += weights[row, q] * y[j, c]


@njit(nogil=True, cache=True)
def unwhiten_transposed(sequence, neighbours, weights, variances, y):
    """Y <- B⁻ᵀ y."""
    for k in range(len(sequence) - 1, -1, -1):
        i = sequence[k]
        for q in range(neighbours.shape[1]):
            j = neighbours[i, q]
            if j >= 0:
                for c in range(y.shape[1]):
                    y[j, c] += weights[i, q] * y[i, c]
        y[i] *= sqrt(variances[i])
