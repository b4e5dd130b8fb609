"""Compiled loops of Vecchia's approximation, by numba: eight blocks at a time.

A block is a location and its neighbours, the location last: S = Σ_{(N, i), (N, i)} = LL'. With b =
L^-T e, e the last unit vector, its conditional distribution has the variance d = 1/b_i² and gives
the whitened value b'y. For a derivative D of S (Guinness 2021, Stat. Comput. 31:25)

    g = L^-1 D b:  ∂ log d = g_i,   ∂(b'y) = -Σ_q g_q u_q + ½ g_i u_i with u = L^-1 y,

and two of them have the information Σ_q g_q h_q - ½ g_i h_i. Blocks are padded to a multiple of
four rows; a row without a neighbour is that of the unit matrix.

Entry (i, j) of eight blocks is the vector at 8 (i (i + 1)/2 + j) of a flat array; entry i of eight
vectors is at 8 i. All loops over blocks take

    x : (d, n) ndarray; points
    targets : (d, k) ndarray; points too, x where not given
    neighbours : (k, m) ndarray of int32; points near each target, -1 for none
    first, last : int; the targets first ≤ i < last are handled
    noise, at_target : (n,), (k,) ndarray; variances of points and targets beside the field's
    field : tuple; 1/a²; True for great-circle arcs, else None; True for folded tables, else None;
        σ²; tables, a 1-D ndarray, of the correlation and of the derivatives wanted by shape
        parameters and by distance; numbers in one table, int; their first interval, int
    columns : (c, n) ndarray; vectors to be whitened
    mixed : None, or for several variables those of points and targets, (n,) and (k,) ndarray of
        int64; their number p; a table of eight numbers in a row, R rows for each component of
        each two variables, from row R (C (p i + j) + c) on: 1/a², the amplitude, the first row of
        their tables, then factors of derivatives; R; C; numbers in the tables of one function; and
        which derivative and which function (correlation, slope, smoothness) each factor is of,
        (E, 2) ndarray. The variance of the field is then a part of noise
    clock : None, or for space-time models, whose points have the time as their last coordinate,
        1/b²; tables of functions of time, a 1-D ndarray, or None if time is a coordinate; numbers
        in one of them; their first interval; the numbers of decay and stretch, or -1, among them

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


@njit(nogil=True, cache=True)
def _squared(points, order, dimensions, i, j):
    """Return |x_i - x_j|²."""
    apart = load(points, i * 8) - load(points, j * 8)
    s = apart * apart
    for axis in range(1, dimensions):
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


@njit(nogil=True, cache=True)
def _variable(squared, inverse, arc, folded, scratch):
    """Return the table's variable for squared distances."""
    # a branch on None is decided at compile time
    s = squared if arc is None else _arcs(squared, scratch)
    s = s * spread(inverse)
    if folded is None:
        return s
    one = spread(1.0)
    far = where_less(s, one, (one - s) * spread(FOLD_FACTOR), spread(BEYOND_SUPPORT))
    return where_less(s, spread(0.5), s, far)


@njit(nogil=True, cache=True)
def _lag(points, order, dimensions, i, j, inverse):
    """Return v = ((t_i - t_j)/b)²."""
    at = dimensions * order * 8
    lag = load(points, at + i * 8) - load(points, at + j * 8)
    return lag * lag * spread(inverse)


@njit(nogil=True, cache=True)
def _in_time(s, v, tables, size, base, decay, stretch):
    """Return the variable of the table in space, the decay, and whether the table was missed."""
    if tables is None:
        return s + v, spread(1.0), 0
    row, t = interval(v, SPLIT, base, size // 8 - 1), fraction(v, SPLIT)
    if stretch >= 0:
        s = s * polynomial(tables, stretch * size, row, t)
    return s, polynomial(tables, decay * size, row, t), missed(v, row)


@njit(nogil=True, cache=True)
def _memory(d, m):
    """Return memory for eight blocks: points, which rows are in use, S, 1/l_ii, and a vector."""
    size = (m + 4) // 4 * 4 * 8
    a = np.zeros(size * (size + 8) // 16)
    kinds = np.empty(size, dtype=np.int64)
    return np.empty(d * size), np.empty(size), a, np.empty(size), np.empty(8), kinds


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
def _generate(points, keep, m, dimensions, field, clock, a, scratch):
    """Write the entries below the diagonals."""
    inverse, arc, folded, variance, table, size, base = field
    order, top = keep.size // 8, size // 8 - 1
    variances, misses = spread(variance), 0
    for i in range(1, order):
        at = 4 * i * (i + 1)
        known = min(i, m) if i < m or i == order - 1 else 0
        weight = variances * load(keep, i * 8)
        for j in range(known):
            s = _squared(points, order, dimensions, i, j)
            s = _variable(s, inverse, arc, folded, scratch)
            if clock is not None:
                v = _lag(points, order, dimensions, i, j, clock[0])
                s, decay, late = _in_time(s, v, clock[1], clock[2], clock[3], clock[4], clock[5])
                misses |= late
            row = interval(s, SPLIT, base, top)
            misses |= missed(s, row)
            value = polynomial(table, 0, row, fraction(s, SPLIT))
            if clock is not None:
                value = value * decay
            store(a, at + j * 8, value * (weight * load(keep, j * 8)))
        for j in range(known, i):
            store(a, at + j * 8, spread(0.0))
    return misses


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
def _generate_mixed(points, keep, m, dimensions, field, mixed, kinds, a):
    """As `_generate`, for several variables."""
    _, _, _, _, tables, size, base = field
    _, _, p, numbers, rows, components, _, _ = mixed
    order, top, misses = keep.size // 8, size // 8 - 1, 0
    pair_numbers = np.empty(64)
    for i in range(1, order):
        at = 4 * i * (i + 1)
        known = min(i, m) if i < m or i == order - 1 else 0
        own = load(keep, i * 8)
        for j in range(known):
            squared = _squared(points, order, dimensions, i, j)
            pair, value = pairs_of(kinds, i * 8, j * 8, p), spread(0.0)
            for c in range(components):
                fetch(numbers, pair, c * rows, components * rows, pair_numbers)
                s = squared * load(pair_numbers, 0)
                row = interval(s, SPLIT, base, top)
                misses |= missed(s, row)
                row = moved(row, load(pair_numbers, 16))
                correlation = polynomial(tables, 0, row, fraction(s, SPLIT))
                value = value + correlation * load(pair_numbers, 8)
            store(a, at + j * 8, value * (own * load(keep, j * 8)))
        for j in range(known, i):
            store(a, at + j * 8, spread(0.0))
    return misses


@njit(nogil=True, cache=True)
def _entries(neighbours, first, last, field, mixed, clock, dimensions, memory):
    """Write the entries below the diagonals of eight blocks."""
    points, keep, a, _, scratch, kinds = memory
    m = neighbours.shape[1]
    if mixed is None:
        return _generate(points, keep, m, dimensions, field, clock, a, scratch)
    _gather_variables(neighbours, first, last, mixed, kinds)
    return _generate_mixed(points, keep, m, dimensions, field, mixed, kinds, a)


@njit(nogil=True, cache=True)
def _factor(x, targets, neighbours, first, last, noise, at_target, field, mixed, clock, memory):
    """Generate and factor the matrices of eight blocks."""
    points, keep, a, inverse = memory[0], memory[1], memory[2], memory[3]
    _gather(x, targets, neighbours, first, last, noise, at_target, field[3], points, keep, a)
    dimensions = len(x) if clock is None else len(x) - 1
    misses = _entries(neighbours, first, last, field, mixed, clock, dimensions, memory)
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


@njit(nogil=True, cache=True)
def _changes(points, keep, m, dimensions, field, maps, shape, wanted, b, g, scratch):
    """G <- D b for the derivatives by shape parameters, by distance and by anisotropy.

    `shape` is the number of the first of them.
    """
    inverse, arc, folded, variance, tables, size, base = field
    order, bases = keep.size // 8, wanted.size
    distance, top = bases - 3, size // 8 - 1
    step, misses = order * 8, 0
    g[shape * step :] = 0.0
    for i in range(1, order):
        known = min(i, m) if i < m or i == order - 1 else 0
        weight, b_i = spread(variance) * load(keep, i * 8), load(b, i * 8)
        for j in range(known):
            squared = _squared(points, order, dimensions, i, j)
            s = _variable(squared, inverse, arc, folded, scratch)
            row, t = interval(s, SPLIT, base, top), fraction(s, SPLIT)
            misses |= missed(s, row)
            both, b_j, table = weight * load(keep, j * 8), load(b, j * 8), size
            value = both
            for basis in range(shape, distance + 1):
                if wanted[basis]:
                    value = polynomial(tables, table, row, t) * both
                    _add_products(g, basis * step, i, j, value, b_i, b_j)
                    table += size
            if wanted[distance + 1]:
                # r ρ'(r) u'Mu/u'u, for u = 0 too
                value = value / (squared + spread(1e-300))
                d0 = load(points, i * 8) - load(points, j * 8)
                d1 = load(points, step + i * 8) - load(points, step + j * 8)
                for k in range(2):
                    inner = spread(maps[k, 0]) * d0 * d0 + spread(maps[k, 1]) * d0 * d1
                    inner = inner + spread(maps[k, 2]) * d1 * d1
                    at = (distance + 1 + k) * step
                    _add_products(g, at, i, j, value * inner, b_i, b_j)
    return misses


@njit(nogil=True, cache=True)
def _of_time(tables, which, size, row, t, s, v):
    """Return a function of time; if time is a coordinate 1, v/(s + v) or s/(s + v), 0 for 0/0."""
    if tables is None:
        if which == 0:
            return spread(1.0)
        return (v if which == 1 else s) / (s + v + spread(1e-300))
    return polynomial(tables, which * size, row, t)


@njit(nogil=True, cache=True)
def _changes_in_time(
    points, keep, m, dimensions, field, clock, fields, shape, wanted, b, g, scratch
):
    """G <- D b for the derivatives of a space-time model.

    Derivative k is g[a]·e[b] + g[c]·e[d] with (a, b, c, d) = `fields[k]`, e functions of space and
    g of time, without the second product where c = -1. `shape` is the number of the first one.
    """
    inverse, arc, folded, variance, tables, size, base = field
    order, top, misses = keep.size // 8, size // 8 - 1, 0
    step = order * 8
    g[shape * step :] = 0.0
    for i in range(1, order):
        known = min(i, m) if i < m or i == order - 1 else 0
        weight, b_i = spread(variance) * load(keep, i * 8), load(b, i * 8)
        for j in range(known):
            s = _squared(points, order, dimensions, i, j)
            s = _variable(s, inverse, arc, folded, scratch)
            v = _lag(points, order, dimensions, i, j, clock[0])
            late, t_late = interval(v, SPLIT, clock[3], clock[2] // 8 - 1), fraction(v, SPLIT)
            both, _, few = _in_time(s, v, clock[1], clock[2], clock[3], clock[4], clock[5])
            row, t = interval(both, SPLIT, base, top), fraction(both, SPLIT)
            misses |= few | missed(both, row)
            weights, b_j = weight * load(keep, j * 8), load(b, j * 8)
            for k in range(len(fields)):
                if not wanted[shape + k]:
                    continue
                value = polynomial(tables, fields[k, 1] * size, row, t)
                value = value * _of_time(clock[1], fields[k, 0], clock[2], late, t_late, s, v)
                if fields[k, 2] >= 0:
                    other = polynomial(tables, fields[k, 3] * size, row, t)
                    turn = _of_time(clock[1], fields[k, 2], clock[2], late, t_late, s, v)
                    value = value + other * turn
                _add_products(g, (shape + k) * step, i, j, value * weights, b_i, b_j)
    return misses


@njit(nogil=True, cache=True)
def _changes_mixed(points, keep, m, dimensions, field, mixed, kinds, shape, wanted, b, g):
    """G <- D b for the derivatives of a model of several variables, from number `shape` on."""
    _, _, _, _, tables, size, base = field
    _, _, p, numbers, rows, components, whole, entries = mixed
    order, top, misses = keep.size // 8, size // 8 - 1, 0
    step = order * 8
    g[shape * step :] = 0.0
    pair_numbers, e = np.empty(64 * rows), np.empty(24)
    for i in range(order):
        # the diagonal, where the correlation is 1 and its derivatives are 0
        pair = pairs_of(kinds, i * 8, i * 8, p)
        end = load(b, i * 8) * load(keep, i * 8)
        for c in range(components):
            for r in range(rows):
                fetch(numbers, pair, c * rows + r, components * rows, pair_numbers[64 * r :])
            for k in range(len(entries)):
                if entries[k, 1] == 0:
                    at = (shape + entries[k, 0]) * step + i * 8
                    store(g, at, load(g, at) + end * load(pair_numbers, (3 + k) * 8))
    for i in range(1, order):
        known = min(i, m) if i < m or i == order - 1 else 0
        own, b_i = load(keep, i * 8), load(b, i * 8)
        for j in range(known):
            squared = _squared(points, order, dimensions, i, j)
            pair = pairs_of(kinds, i * 8, j * 8, p)
            both, b_j = own * load(keep, j * 8), load(b, j * 8)
            for c in range(components):
                for r in range(rows):
                    fetch(numbers, pair, c * rows + r, components * rows, pair_numbers[64 * r :])
                s = squared * load(pair_numbers, 0)
                row, t = interval(s, SPLIT, base, top), fraction(s, SPLIT)
                misses |= missed(s, row)
                row = moved(row, load(pair_numbers, 16))
                for function in range(3):
                    value = polynomial(tables, function * whole, row, t)
                    store(e, function * 8, value * both)
                for k in range(len(entries)):
                    basis = shape + entries[k, 0]
                    if wanted[basis]:
                        value = load(e, entries[k, 1] * 8) * load(pair_numbers, (3 + k) * 8)
                        _add_products(g, basis * step, i, j, value, b_i, b_j)
    return misses


@njit(nogil=True, cache=True)
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
):
    """Reduce blocks to the sums that the likelihood and its derivatives need.

    `diagonals`, (q, n), are those of the derivatives by parameters of the noise. `maps`, (2, 3),
    are the quadratic forms of the derivatives by angle and ratio of anisotropy, `fields` those of
    `_changes_in_time`. `wanted`, (D,),
    tells which derivatives of S are wanted, in the order of `blocks`; none if the first is not. The
    sums in `out` are Σ log d; W'W, (c, c); and with derivatives Σ g_i, (D,); the information,
    (D, D), its lower triangle; and (∂W)'W, (D, c, c). Also return the first location whose matrix
    is not positive definite, or `last`.
    """
    d, m, count, bases = len(x), neighbours.shape[1], len(columns), wanted.size
    memory = points, keep, a, inverse, scratch, kinds = _memory(d, m)
    order = keep.size // 8
    b, u = np.empty(order * 8), np.empty(count * order * 8)
    g = np.empty(bases * order * 8 if wanted[0] else 0)
    white, live = np.empty(count * 8), np.ones(8)
    sums = np.zeros(8 * bases * (1 + bases + count * count))
    products = np.zeros(count * count * 8)
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
        for c in range(count):
            _fetch(columns, c, neighbours, place, last, True, order, u, c * order * 8)
            store(white, c * 8, _dot(b, 0, u, c * order * 8, order))
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
            if mixed is not None:
                misses |= _changes_mixed(
                    points, keep, m, d, field, mixed, kinds, shape, wanted, b, g
                )
            elif clock is not None:
                misses |= _changes_in_time(
                    points, keep, m, d - 1, field, clock, fields, shape, wanted, b, g, scratch
                )
            else:
                misses |= _changes(points, keep, m, d, field, maps, shape, wanted, b, g, scratch)
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
    order, end, b = keep.size // 8, keep.size - 8, np.empty(keep.size)
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
            variances[i] = field[3] + at_target[i] - scratch[lane]
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
    u, no_noise = np.empty(count * step), np.zeros(targets.shape[1])
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
