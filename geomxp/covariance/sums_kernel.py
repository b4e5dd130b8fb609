"""Sums over pairs of places with the derivatives of the covariance, none of which is stored.

The derivatives of a model are a few fields of pairs; every parameter's is one of them times a
number (`geomxp.covariance.sums`). A strip of pairs is computed, used and dropped.
"""

import numpy as np

from ..runtime.devices import njit
from .kernel import STRIP, squared_distances
from .table import SPLIT

_SHIFT = 52 - SPLIT
_MASK = (1 << _SHIFT) - 1
_HALF = 2.0 ** (1 - _SHIFT)
_0, _1, _2, _3, _4, _5, _6, _7 = (np.uint64(k) for k in range(8))

# functions of their own, called with slices: inlined, or with indices such as i + p, these loops
# stay out of SIMD registers


@njit(nogil=True, cache=True, fastmath={"contract"})
def _polynomial(rows, row, t, count, out):
    """Write p(s) of a strip, given the row of each s and its place within the row's interval."""
    for p in range(count):
        r, u = row[p], t[np.uint64(p)]
        value = rows[r, _7] * u + rows[r, _6]
        value = value * u + rows[r, _5]
        value = value * u + rows[r, _4]
        value = value * u + rows[r, _3]
        value = value * u + rows[r, _2]
        value = value * u + rows[r, _1]
        out[np.uint64(p)] = value * u + rows[r, _0]


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
def add_pairs(
    x,
    i0,
    i1,
    j0,
    j1,
    inverse,
    mapping,
    tables,
    base,
    slope_at,
    change,
    weights,
    alpha,
    beside,
    sums,
    q,
):
    """Add the pairs i > j with i0 ≤ i < i1 and j0 ≤ j < j1 to the sums and the products.

    With w = α_i α_j - S_ij + (BB')_ij and f a field:
    sums_f += Σ w f,  q_f[i] += f α_j,  q_f[j] += f α_i.

    Parameters
    ----------
    x : (d, n) ndarray
    i0, i1, j0, j1 : int
    inverse : float
        1/a².
    mapping : int
        See `generate.mapping_of`.
    tables : (T, K + 2, 8) ndarray
        Polynomials of the first T fields.
    base : int
        First interval of the tables.
    slope_at : int
        Which of them is r dρ/dr; -1 if none is.
    change : (A, 2, 2) ndarray
        (∂A/∂φ)A⁻¹ for the last A fields: those of the anisotropy's parameters φ, which are
        (r dρ/dr)/h² · u'(∂A/∂φ)A⁻¹u with u = A d.
    weights : (n, n) ndarray, Fortran order
        S, its lower triangle.
    alpha : (n,) ndarray
    beside : (p, n) ndarray
        B'.
    sums : (T + A,) ndarray
    q : (T + A, n) ndarray
        Of no columns where products are not wanted.

    Returns
    -------
    int
        How many pairs are closer than the table reaches.
    """
    s = np.empty(STRIP)
    bits = s.view(np.int64)
    row, t = np.empty(STRIP, dtype=np.uint64), np.empty(STRIP)
    w, f, slope = np.empty(STRIP), np.empty(STRIP), np.empty(STRIP)
    top, missed = tables.shape[1] - 1, 0
    products = q.shape[1] > 0
    for j in range(j0, j1):
        i = max(j + 1, i0)
        while i < i1:
            k = min(i1, i + STRIP)
            count = k - i
            ours, column = alpha[i:k], weights.T[j][i:k]
            squared_distances(x, i, k, x, j, inverse, mapping, s)
            for p in range(count):
                b = bits[p]
                place = (b >> _SHIFT) - base + 1
                missed += place <= 0 and b > 0
                row[p] = min(max(place, 0), top)
                t[p] = (b & _MASK) * _HALF - 1.0
                w[p] = ours[p] * alpha[j] - column[p]
            for c in range(beside.shape[0]):
                other = beside[c][i:k]
                for p in range(count):
                    w[p] += other[p] * beside[c, j]
            for field in range(sums.size):
                if field < len(tables):
                    _polynomial(tables[field], row, t, count, f)
                    if field == slope_at:
                        # a loop compiles two seconds sooner than an assignment of slices
                        for p in range(count):
                            slope[p] = f[p]
                else:
                    _turned(x, i, j, count, inverse, change[field - len(tables)], slope, f)
                sums[field] += _inner(w, f, count)
                if products:
                    q[field, j] += _inner(f, ours, count)
                    _add(f, alpha[j], q[field][i:k])
            i = k
    return missed


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def _turned(x, i, j, count, inverse, change, slope, f):
    """Write (r dρ/dr)/h² · u'Mu with u the difference of two places of the plane; 0 at h = 0."""
    x0, x1 = x[0][i:], x[1][i:]
    for p in range(count):
        d0, d1 = x0[p] - x[0, j], x1[p] - x[1, j]
        form = change[0, 0] * d0 * d0 + (change[0, 1] + change[1, 0]) * d0 * d1
        form += change[1, 1] * d1 * d1
        s = (d0 * d0 + d1 * d1) * inverse
        f[p] = slope[p] * form * inverse / s if s > 0 else 0.0
