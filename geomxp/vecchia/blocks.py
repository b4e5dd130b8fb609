"""What a pass over Vecchia's blocks has summed, by parameters of the model."""

from math import asin, inf, log, sqrt

import numpy as np

from ..covariance.distance import EARTH_RADIUS
from ..runtime.devices import njit
from .lanes import (
    backward,
    factor,
    forward,
    fraction,
    interval,
    load,
    missed,
    polynomial,
    spread,
    store,
    total,
)

BASES = 6
"""Derivatives of a block's matrix S of which all others are made: S itself, the unit matrix, by
the smoothness, by the logarithm of all distances, by the angle and by the ratio of anisotropy."""

_OF = {
    "variance": 1,
    "nugget": 1,
    "smoothness": 2,
    "range": 3,
    "anisotropy_angle": 4,
    "anisotropy_ratio": 5,
}


def wanted_for(names):
    """Return which of the BASES the derivatives by some parameters need, (BASES,) of bool."""
    wanted = np.zeros(BASES, dtype=bool)
    for name in names:
        wanted[[0, _OF[name]]] = True
    if wanted[4:].any():
        wanted[3:] = True
    return wanted


class Sums:
    """Sums over all blocks, and their derivatives.

    Parameters
    ----------
    out : 1-D ndarray
        As `blocks.likelihood_slice` returns them.
    count : int
        Columns that were whitened, c.
    model : Matern
    names : set of str
        Parameters whose derivatives are there.

    Attributes
    ----------
    log_determinant : float
        log|Σ|.
    gram : (c, c) ndarray
        W'W of the whitened columns.
    """

    def __init__(self, out, count, model, names):
        self.names, self._model = names, model
        self.log_determinant = float(out[0])
        parts = np.split(out[1:], np.cumsum((count**2, BASES, BASES**2)))
        gram = np.tril(parts[0].reshape(count, count))
        self.gram = gram + np.tril(gram, -1).T
        self._traces = parts[1]
        information = np.tril(parts[2].reshape(BASES, BASES))
        self._information = information + np.tril(information, -1).T
        changes = parts[3].reshape(BASES, count, count)
        self._changes = changes + changes.transpose(0, 2, 1)

    def derivative(self, name):
        """Return ∂ log|Σ| and ∂(W'W), (c, c), by a parameter."""
        row = self._combination(name)
        return float(row @ self._traces), np.tensordot(row, self._changes, 1)

    def information(self, names):
        """Return the expected information of some parameters, (k, k)."""
        rows = np.array([self._combination(name) for name in names]).reshape(-1, BASES)
        return rows @ self._information @ rows.T

    def _combination(self, name):
        """Return the coefficients of the BASES in ∂S by a parameter, (BASES,)."""
        row, model = np.zeros(BASES), self._model
        row[_OF[name]] = 1.0
        if name == "variance":
            # S = σ²R + τ²I
            row[:2] = 1.0 / model.variance, -model.nugget / model.variance
        elif name == "range":
            # ∂C/∂a = -(σ²/a) r ρ'(r)
            row[3] = -1.0 / model.range
        return row


# Vecchia's blocks of eight places at a time: gathered, generated, factored and reduced.
#
# A block is a place and its neighbours, the place last: S = Σ_{(N, i), (N, i)} = LL'. With b =
# L^-T e, e the last unit vector, the place's conditional distribution has the variance d = 1/b_i²
# and gives the whitened value b'y. For a derivative D of S (Guinness 2021, Stat. Comput. 31:25)
#
#     g = L^-1 D b:  ∂ log d = g_i,   ∂(b'y) = -Σ_q g_q u_q + ½ g_i u_i with u = L^-1 y,
#
# and two of them have the information Σ_q g_q h_q - ½ g_i h_i. Blocks are padded to a multiple of
# four rows; rows that stand for no neighbour are those of the unit matrix.


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
def _fetch(columns, column, neighbours, first, last, own, order, y, start):
    """Fetch the values of eight blocks; those of the places themselves only if `own`."""
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
def _generate(points, keep, m, dimensions, inverse, arc, variance, table, base, a, scratch):
    """Write what stands below the diagonals; return whether the table did not reach a pair."""
    order, top = keep.size // 8, table.size // 8 - 1
    unit, scale, misses = spread(inverse), spread(variance), 0
    for i in range(1, order):
        at = 4 * i * (i + 1)
        known = min(i, m) if i < m or i == order - 1 else 0
        weight = scale * load(keep, i * 8)
        for j in range(known):
            s = _squared(points, order, dimensions, i, j)
            if arc:
                s = _arcs(s, scratch)
            s = s * unit
            row = interval(s, base, top)
            misses |= missed(s, row)
            value = polynomial(table, row, fraction(s))
            store(a, at + j * 8, value * (weight * load(keep, j * 8)))
        for j in range(known, i):
            store(a, at + j * 8, spread(0.0))
    return misses


@njit(nogil=True, cache=True)
def _unit(order, b):
    """B <- the last unit vector."""
    for q in range(order - 1):
        store(b, q * 8, spread(0.0))
    store(b, (order - 1) * 8, spread(1.0))


@njit(nogil=True, cache=True)
def _dot(a, at, b, start, order):
    """Return Σ_q a_q b_q."""
    s, r = load(a, at) * load(b, start), load(a, at + 8) * load(b, start + 8)
    for q in range(16, order * 8, 16):
        s = s + load(a, at + q) * load(b, start + q)
        r = r + load(a, at + q + 8) * load(b, start + q + 8)
    return s + r


@njit(nogil=True, cache=True)
def _changes(
    points, keep, m, dimensions, inverse, arc, variance, tables, base, maps, wanted, b, g, scratch
):
    """G <- D b for the derivatives that need the field's: by smoothness, by distance, by maps."""
    order = keep.size // 8
    by_smoothness, slope = tables[1], tables[2]
    top = tables[0].size // 8 - 1
    unit, step, nothing, misses = spread(inverse), order * 8, spread(0.0), 0
    for q in range(2 * order, BASES * order):
        store(g, q * 8, nothing)
    for i in range(1, order):
        known = min(i, m) if i < m or i == order - 1 else 0
        weight, here = spread(variance) * load(keep, i * 8), load(b, i * 8)
        for j in range(known):
            s = apart = _squared(points, order, dimensions, i, j)
            if arc:
                s = _arcs(s, scratch)
            s = s * unit
            row, t = interval(s, base, top), fraction(s)
            misses |= missed(s, row)
            both, there = weight * load(keep, j * 8), load(b, j * 8)
            if wanted[2]:
                value = polynomial(by_smoothness, row, t) * both
                _spread_out(g, 2 * step, i, j, value, here, there)
            if wanted[3]:
                value = polynomial(slope, row, t) * both
                _spread_out(g, 3 * step, i, j, value, here, there)
                if wanted[4]:
                    # r ρ'(r) u'Mu/u'u, for u = 0 too
                    value = value / (apart + spread(1e-300))
                    d0 = load(points, i * 8) - load(points, j * 8)
                    d1 = load(points, step + i * 8) - load(points, step + j * 8)
                    for k in range(2):
                        inner = spread(maps[k, 0]) * d0 * d0 + spread(maps[k, 1]) * d0 * d1
                        inner = inner + spread(maps[k, 2]) * d1 * d1
                        _spread_out(g, (4 + k) * step, i, j, value * inner, here, there)
    return misses


@njit(nogil=True, cache=True)
def _spread_out(g, at, i, j, value, here, there):
    store(g, at + i * 8, load(g, at + i * 8) + value * there)
    store(g, at + j * 8, load(g, at + j * 8) + value * here)


@njit(nogil=True, cache=True)
def _derivatives(a, inverse, b, g, u, white, wanted, order, live, sums):
    """Add the traces, the changes of whitened products and the information of eight blocks."""
    step, last = order * 8, (order - 1) * 8
    count, half = white.size // 8, spread(0.5)
    for q in range(order):
        store(g, q * 8, spread(0.0))
        store(g, step + q * 8, load(b, q * 8))
    # L^-1 S b = L'b = e
    store(g, last, spread(1.0))
    for j in range(1, BASES):
        if wanted[j]:
            forward(a, inverse, g, j * step, order)
    for j in range(BASES):
        if not wanted[j]:
            continue
        end = load(g, j * step + last)
        tail = end * half
        store(sums, 8 * j, load(sums, 8 * j) + end * live)
        for k in range(j + 1):
            if wanted[k]:
                both = _dot(g, j * step, g, k * step, order) - tail * load(g, k * step + last)
                at = 8 * (BASES + j * BASES + k)
                store(sums, at, load(sums, at) + both * live)
        for c in range(count):
            change = tail * load(u, c * step + last) - _dot(g, j * step, u, c * step, order)
            for e in range(count):
                at = 8 * (BASES * (1 + BASES) + (j * count + c) * count + e)
                store(sums, at, load(sums, at) + change * load(white, e * 8) * live)


@njit(nogil=True, cache=True)
def likelihood_slice(
    x, neighbours, first, last, columns, noise, scaled, variance, tables, base, maps, wanted, out
):
    """Reduce the blocks of the places first ≤ i < last.

    Parameters
    ----------
    x : (d, n) ndarray
        Points.
    neighbours : (n, m) ndarray of int32
        Of each point; -1 for none.
    first, last : int
    columns : (c, n) ndarray
        What is whitened.
    noise : (n,) ndarray
        Variance that each point has beside the field's.
    scaled : (float, bool)
        1/a², and whether distances are great-circle arcs.
    variance : float
    tables : three 1-D ndarray
        Polynomials of a `CorrelationTable`: correlation, by_smoothness, slope.
    base : int
    maps : (2, 3) ndarray
        The quadratic forms of the anisotropy's derivatives.
    wanted : (BASES,) ndarray of bool
        Derivatives; none if the first is not.
    out : 1-D ndarray
        Σ log d, then W'W, (c, c); then the sums g_i, (BASES,); the information, (BASES, BASES),
        its lower triangle; and (∂W)'W, (BASES, c, c).

    Returns
    -------
    failed : int
        The first place whose matrix is not positive definite; `last` if there is none.
    misses : int
        Not 0 where the tables did not reach a pair of places.
    """
    d, m, count = len(x), neighbours.shape[1], len(columns)
    inverse_square, arc = scaled
    order = (m + 4) // 4 * 4
    points, keep = np.empty(d * order * 8), np.empty(order * 8)
    a, inverse = np.zeros(4 * order * (order + 1)), np.empty(order * 8)
    b, u = np.empty(order * 8), np.empty(count * order * 8)
    g = np.empty(BASES * order * 8 if wanted[0] else 0)
    white, scratch, live = np.empty(count * 8), np.empty(8), np.ones(8)
    sums = np.zeros(8 * BASES * (1 + BASES + count * count))
    products = np.zeros(count * count * 8)
    logs, failed, misses = 0.0, last, 0
    for place in range(first, last, 8):
        live[last - place :] = 0.0
        _gather(x, x, neighbours, place, last, noise, noise, variance, points, keep, a)
        misses |= _generate(
            points, keep, m, d, inverse_square, arc, variance, tables[0], base, a, scratch
        )
        factor(a, inverse, order)
        _unit(order, b)
        backward(a, inverse, b, 0, order)
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
                forward(a, inverse, u, c * order * 8, order)
            misses |= _changes(
                *(points, keep, m, d, inverse_square, arc, variance, tables, base),
                *(maps, wanted, b, g, scratch),
            )
            _derivatives(a, inverse, b, g, u, white, wanted, order, weight, sums)
    out[0] = logs
    for k in range(count * count):
        out[1 + k] = total(load(products, 8 * k))
    if wanted[0]:
        for k in range(sums.size // 8):
            out[1 + count * count + k] = total(load(sums, 8 * k))
    return failed, misses


@njit(nogil=True, cache=True)
def weights_slice(
    x,
    targets,
    neighbours,
    first,
    last,
    noise,
    at_target,
    scaled,
    variance,
    table,
    base,
    weights,
    variances,
):
    """Write the conditional means' weights and the variances of the targets first ≤ i < last.

    E(y_i | y_N) = λ'y_N with Σ_NN λ = Σ_Ni, and the variance is d = Σ_ii - |L_NN^-1 Σ_Ni|².

    Parameters
    ----------
    x : (d, n) ndarray
    targets : (d, k) ndarray
    neighbours : (k, m) ndarray of int32
        Points near each target.
    noise, at_target : (n,), (k,) ndarray
        Variances beside the field's, of points and targets.
    weights : (k, m) ndarray
        λ.
    variances : (k,) ndarray
        d; NaN where Σ_NN is not positive definite.

    Returns
    -------
    int
        Not 0 where the table did not reach a pair of places.
    """
    d, m = len(x), neighbours.shape[1]
    inverse_square, arc = scaled
    order = (m + 4) // 4 * 4
    points, keep = np.empty(d * order * 8), np.empty(order * 8)
    a, inverse = np.zeros(4 * order * (order + 1)), np.empty(order * 8)
    b, scratch = np.empty(order * 8), np.empty(8)
    end, misses = (order - 1) * 8, 0
    for place in range(first, last, 8):
        _gather(x, targets, neighbours, place, last, noise, at_target, variance, points, keep, a)
        misses |= _generate(
            points, keep, m, d, inverse_square, arc, variance, table, base, a, scratch
        )
        factor(a, inverse, order)
        # L'λ = L_i with 0 and 1 for the target itself: its own pivot may be 0
        for q in range(order - 1):
            store(b, q * 8, load(a, (order - 1) * order * 4 + q * 8))
        store(b, end, spread(0.0))
        store(inverse, end, spread(1.0))
        explained = _dot(b, 0, b, 0, order)
        backward(a, inverse, b, 0, order)
        store(scratch, 0, explained)
        for lane in range(min(8, last - place)):
            i = place + lane
            variances[i] = variance + at_target[i] - scratch[lane]
            for q in range(m):
                weights[i, q] = b[q * 8 + lane]
    return misses


# Gram matrices of kriging from neighbours, eight targets at a time, compiled by numba.


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
