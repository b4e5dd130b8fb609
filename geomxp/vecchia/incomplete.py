"""Incomplete Cholesky factor of Vecchia's precision matrix plus a diagonal.

Vecchia's approximation gives Q = UU' with column k of U at k and at its neighbours, which come
before k. Laplace's approximation needs the log-determinant of Q + W, and solves with it. P is the
incomplete factor with the pattern of U: PP' equals Q + W there, without the fill-in elsewhere
(Zilber and Katzfuss 2021, Comput. Stat. Data Anal. 153:107081; Schäfer, Katzfuss and Owhadi 2021,
SIAM J. Sci. Comput. 43:A2019). With all predecessors as neighbours nothing is left out.

log|PP'| is a smooth function of U and W, and its gradient is computed by one pass of the same loops
backwards, at about twice the cost of P.

All arrays are in the order of the tree of a `Graph`. Columns are (n, m + 1) arrays: for each
location the values at its neighbours, 0 for missing ones, and then its own value.
"""

from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np
from scipy import sparse

from ..errors import InvalidInput, NotPositiveDefinite
from ..linalg.simd import load8 as load
from ..linalg.simd import spread, store
from ..runtime.devices import njit


@dataclass(frozen=True)
class Pattern:
    """The pattern of U on a graph, and where products of entries of one column belong.

    Parameters
    ----------
    sequence : (n,) ndarray
        Numbers of the locations in Vecchia's order.
    neighbours : (n, m) ndarray of int32
    """

    sequence: np.ndarray
    neighbours: np.ndarray

    @classmethod
    def of(cls, graph):
        """Return the pattern of a `Graph`."""
        return cls(graph.sequence, graph.neighbours)

    @classmethod
    def eliminated(cls, graph):
        """Return the `elimination` of a graph, and the pattern with locations in this order.

        Passes over columns then read memory from its beginning to its end.
        """
        order = cls.of(graph).elimination
        ranks = np.empty(len(order) + 1, dtype=np.int32)
        ranks[order], ranks[-1] = np.arange(len(order)), -1
        pattern = cls(np.arange(len(order))[::-1], ranks[graph.neighbours[order]])
        # known without another search
        pattern.__dict__["elimination"] = np.arange(len(order))
        return order, pattern

    @cached_property
    def elimination(self):
        """Order in which columns of P are computed: each before those of its neighbours, (n,).

        Depth first, so that columns that are computed one after the other share neighbours.
        """
        return _depth_first(self.sequence, self.neighbours)

    @cached_property
    def partners(self):
        """The neighbours, and the location itself in place of missing ones, (n, m)."""
        own = np.arange(len(self.neighbours), dtype=np.int32)[:, None]
        return np.where(self.neighbours >= 0, self.neighbours, own)

    @cached_property
    def targets(self):
        """Places of products of two entries of each column, (n, m(m-1)/2), in `elimination`.

        They are for pairs of entries q > r, by q and then by r, and in the array of `columns`. A
        product without a place has one behind all columns, of r.
        """
        n, m = self.neighbours.shape
        if n * (m + 1) + m > np.iinfo(np.uint32).max:
            raise InvalidInput(f"{n} locations with {m} neighbours are too many: use fewer.")
        return _targets(self.elimination, self.neighbours)

    def columns(self, values=None):
        """Return a flat array with m numbers behind all columns, and a view of the columns."""
        n, m = self.neighbours.shape
        flat = np.zeros(n * (m + 1) + m)
        columns = flat[: n * (m + 1)].reshape(n, m + 1)
        if values is not None:
            columns[:] = values
        return flat, columns

    def product(self, columns):
        """Return UU' on the pattern, as columns."""
        flat, out = self.columns()
        _product(self.elimination, self.neighbours, self.targets, columns, flat)
        return out

    def pulled(self, columns, change):
        """Return the gradient by U of a function of `product`, given its gradient by that."""
        out = np.empty_like(columns)
        flat, _ = self.columns(change)
        _pulled(self.elimination, self.neighbours, self.targets, columns, flat, out)
        return out

    def matrix(self, columns):
        """Return the sparse matrix of columns."""
        inside = np.column_stack((self.neighbours >= 0, np.ones(len(columns), dtype=bool)))
        rows = np.column_stack((self.neighbours, np.arange(len(columns))))
        starts = np.concatenate(([0], np.cumsum(inside.sum(axis=1))))
        return sparse.csc_array((columns[inside], rows[inside], starts), shape=(len(columns),) * 2)

    def times(self, columns, y):
        """Return UU'y for (n,) or (n, 8)."""
        out = np.zeros(y.shape)
        if y.ndim == 1:
            _times(self.partners, columns, y, out)
        else:
            _times_eight(self.partners, columns, y.reshape(-1), out.reshape(-1))
        return out


class IncompleteFactor:
    """P with PP' ≈ A + diag(w) on a pattern.

    Parameters
    ----------
    pattern : Pattern
    product : (n, m + 1) ndarray
        A on the pattern.
    w : (n,) ndarray

    Raises
    ------
    NotPositiveDefinite
        If a pivot is not positive; its `order` is the location's number in the tree.

    Examples
    --------
    Of locations that are independent, UU' is diagonal: log|2I| = 6 log 2.

    >>> from geomxp.vecchia.factor import Graph
    >>> places = np.random.default_rng(0).random((6, 2))
    >>> pattern = Pattern.of(Graph.of(places, "maximin", 5))
    >>> columns = np.column_stack((np.zeros((6, 5)), np.ones(6)))
    >>> factor = IncompleteFactor(pattern, pattern.product(columns), np.ones(6))
    >>> bool(np.isclose(factor.log_determinant(), 6 * np.log(2)))
    True
    """

    def __init__(self, pattern, product, w):
        self.pattern = pattern
        flat, self.columns = pattern.columns(product)
        self.columns[:, -1] += w
        failed = _factor(pattern.elimination, pattern.neighbours, pattern.targets, flat)
        if failed >= 0:
            raise NotPositiveDefinite("a pivot of the incomplete factor is not positive", failed)

    def log_determinant(self):
        """Return log|PP'|."""
        return 2.0 * float(np.log(self.columns[:, -1]).sum())

    def gradient(self):
        """Return the gradient of `log_determinant` by A on the pattern, as columns.

        Its last column is that by w. An entry off the diagonal stands for both of its places.
        """
        pattern = self.pattern
        flat, out = pattern.columns()
        given = pattern.elimination, pattern.neighbours, pattern.targets
        _gradient(*given, self.columns, flat)
        return out

    def solve(self, y):
        """Return (PP')⁻¹y for (n,) or (n, 8)."""
        return self.solve_transposed(self.half_solve(y))

    def half_solve(self, y):
        """Return P⁻¹y for (n,) or (n, 8)."""
        return self._solved(y, _forward, _forward_eight)

    def solve_transposed(self, y):
        """Return P⁻ᵀy for (n,) or (n, 8)."""
        return self._solved(y, _backward, _backward_eight)

    def squares(self, near, weights):
        """Return |P⁻¹λ|² = λ'(PP')⁻¹λ of sparse vectors λ, (k,).

        Their entries are `weights`, (k, m), at the locations `near`, -1 for none. With weights of
        conditional means, these are the variances of the means if PP' is the precision matrix. The
        work is that of the locations from which the vectors' own are reached by neighbours.
        """
        order = np.argsort(near[:, 0], kind="stable")
        pattern, out = self.pattern, np.empty(len(near))
        ranks = np.empty(len(self.columns), dtype=np.int64)
        ranks[pattern.elimination] = np.arange(len(ranks))
        given = pattern.elimination, ranks, pattern.partners, self.columns
        # vectors beside each other share most of these locations
        _squares(*given, near, weights, order, out)
        return out

    def _solved(self, y, one, eight):
        x, pattern = np.array(y, dtype=float, order="C"), self.pattern
        solve = one if x.ndim == 1 else eight
        solve(pattern.elimination, pattern.partners, self.columns, x.reshape(-1))
        return x


@njit(nogil=True, cache=True)
def _depth_first(sequence, neighbours):
    """Return the locations so that each comes before its neighbours."""
    n, m = neighbours.shape
    starts = np.zeros(n + 1, np.int64)
    for k in range(n):
        for q in range(m):
            if neighbours[k, q] >= 0:
                starts[neighbours[k, q] + 1] += 1
    starts = np.cumsum(starts)
    # those whose neighbour a location is
    later, at = np.empty(starts[-1], np.int32), starts[:-1].copy()
    for k in range(n):
        for q in range(m):
            i = neighbours[k, q]
            if i >= 0:
                later[at[i]] = k
                at[i] += 1
    out, found, count = np.empty(n, np.int64), np.zeros(n, np.bool_), 0
    stack, at = np.empty(n, np.int64), starts[:-1].copy()
    for position in range(n):
        if found[sequence[position]]:
            continue
        stack[0], top = sequence[position], 0
        found[stack[0]] = True
        while top >= 0:
            i = stack[top]
            if at[i] < starts[i + 1]:
                k = later[at[i]]
                at[i] += 1
                if not found[k]:
                    found[k] = True
                    top += 1
                    stack[top] = k
            else:
                out[count] = i
                count += 1
                top -= 1
    return out


@njit(nogil=True, cache=True)
def _targets(order, neighbours):
    n, m = neighbours.shape
    out, ranks = np.empty((n, m * (m - 1) // 2), np.uint32), np.empty(n, np.int64)
    for position in range(n):
        ranks[order[position]] = position
    for position in range(n):
        k, at = order[position], 0
        for q in range(m):
            for r in range(q):
                out[position, at] = n * (m + 1) + r
                a, b = neighbours[k, q], neighbours[k, r]
                if a >= 0 and b >= 0:
                    # the one that is eliminated first has the column
                    if ranks[a] > ranks[b]:
                        a, b = b, a
                    for s in range(m):
                        if neighbours[a, s] == b:
                            out[position, at] = a * (m + 1) + s
                            break
                at += 1
    return out


@njit(nogil=True, cache=True)
def _product(order, neighbours, targets, u, flat):
    n, m = neighbours.shape
    out = flat[: n * (m + 1)].reshape((n, m + 1))
    for position in range(n):
        k, at = order[position], 0
        own = u[k, m]
        out[k, m] += own * own
        for q in range(m):
            i, entry = neighbours[k, q], u[k, q]
            if i >= 0:
                out[k, q] += entry * own
                out[i, m] += entry * entry
            for r in range(q):
                flat[targets[position, at]] += entry * u[k, r]
                at += 1


@njit(nogil=True, cache=True)
def _pulled(order, neighbours, targets, u, flat, out):
    n, m = neighbours.shape
    change = flat[: n * (m + 1)].reshape((n, m + 1))
    slopes, entries = np.empty(m), np.empty(m)
    for position in range(n):
        k, at = order[position], 0
        own, total = u[k, m], 2.0 * change[k, m] * u[k, m]
        for q in range(m):
            i, entry = neighbours[k, q], u[k, q]
            entries[q], slopes[q] = entry, 0.0
            if i >= 0:
                total += change[k, q] * entry
                slopes[q] = change[k, q] * own + 2.0 * change[i, m] * entry
            along = 0.0
            for r in range(q):
                slope = flat[targets[position, at]]
                along += slope * entries[r]
                slopes[r] += slope * entry
                at += 1
            slopes[q] += along
        out[k, :m] = slopes
        out[k, m] = total


@njit(nogil=True, cache=True)
def _factor(order, neighbours, targets, flat):
    """Overwrite A + W with P; return a location without a positive pivot, or -1."""
    n, m = neighbours.shape
    p = flat[: n * (m + 1)].reshape((n, m + 1))
    for position in range(n):
        k, at = order[position], 0
        if not p[k, m] > 0.0:
            return k
        root = sqrt(p[k, m])
        inverse = 1.0 / root
        p[k, m] = root
        for q in range(m):
            i = neighbours[k, q]
            p[k, q] *= inverse
            entry = p[k, q]
            if i >= 0:
                p[i, m] -= entry * entry
            for r in range(q):
                flat[targets[position, at]] -= entry * p[k, r]
                at += 1
    return -1


@njit(nogil=True, cache=True)
def _gradient(order, neighbours, targets, p, flat):
    """Out <- the gradient of Σ log d by A + W: the loops of `_factor`, backwards."""
    n, m = neighbours.shape
    out = flat[: n * (m + 1)].reshape((n, m + 1))
    slopes, entries = np.empty(m), np.empty(m)
    for position in range(n - 1, -1, -1):
        k, at = order[position], 0
        for q in range(m):
            i, entry = neighbours[k, q], p[k, q]
            entries[q], slopes[q] = entry, out[k, q]
            if i >= 0:
                slopes[q] -= 2.0 * out[i, m] * entry
            along = 0.0
            for r in range(q):
                slope = flat[targets[position, at]]
                along += slope * entries[r]
                slopes[r] -= slope * entry
                at += 1
            slopes[q] -= along
        root, total = p[k, m], 1.0
        for q in range(m):
            # entries were divided by the root of the pivot
            total -= 0.5 * slopes[q] * entries[q]
            out[k, q] = slopes[q] / root
        out[k, m] = total / (root * root)


# Without branches: entries of missing neighbours are 0, and their partner is the location itself


@njit(nogil=True, cache=True)
def _times(partners, u, y, out):
    """Out <- UU'y, for an `out` of zeros."""
    n, m = partners.shape
    for k in range(n):
        value = u[k, m] * y[k]
        for q in range(m):
            value += u[k, q] * y[partners[k, q]]
        out[k] += u[k, m] * value
        for q in range(m):
            out[partners[k, q]] += u[k, q] * value


@njit(nogil=True, cache=True)
def _forward(order, partners, p, x):
    n, m = partners.shape
    for position in range(n):
        k = order[position]
        value = x[k] / p[k, m]
        x[k] = value
        for q in range(m):
            x[partners[k, q]] -= p[k, q] * value


@njit(nogil=True, cache=True)
def _backward(order, partners, p, x):
    n, m = partners.shape
    for position in range(n - 1, -1, -1):
        k = order[position]
        value = x[k]
        for q in range(m):
            value -= p[k, q] * x[partners[k, q]]
        x[k] = value / p[k, m]


# The same for eight vectors: those of location i are at 8 i of a flat array


@njit(nogil=True, cache=True)
def _times_eight(partners, u, y, out):
    """Out <- UU'y, for an `out` of zeros."""
    n, m = partners.shape
    for k in range(n):
        own = spread(u[k, m])
        value = own * load(y, 8 * k)
        for q in range(m):
            value = value + spread(u[k, q]) * load(y, 8 * partners[k, q])
        store(out, 8 * k, load(out, 8 * k) + own * value)
        for q in range(m):
            at = 8 * partners[k, q]
            store(out, at, load(out, at) + spread(u[k, q]) * value)


@njit(nogil=True, cache=True)
def _forward_eight(order, partners, p, x):
    n, m = partners.shape
    for position in range(n):
        k = order[position]
        value = load(x, 8 * k) * spread(1.0 / p[k, m])
        store(x, 8 * k, value)
        for q in range(m):
            at = 8 * partners[k, q]
            store(x, at, load(x, at) - spread(p[k, q]) * value)


@njit(nogil=True, cache=True)
def _backward_eight(order, partners, p, x):
    n, m = partners.shape
    for position in range(n - 1, -1, -1):
        k = order[position]
        value = load(x, 8 * k)
        for q in range(m):
            value = value - spread(p[k, q]) * load(x, 8 * partners[k, q])
        store(x, 8 * k, value * spread(1.0 / p[k, m]))


@njit(nogil=True, cache=True)
def _squares(order, ranks, partners, p, near, weights, vectors, out):
    """Out <- |P⁻¹λ|² of eight vectors at a time, by forward substitution where they are not 0."""
    n, m = partners.shape
    x, reached, total = np.zeros(8 * n), np.zeros(n, np.bool_), np.empty(8)
    stack, found = np.empty(n, np.int64), np.empty(n, np.int64)
    for first in range(0, len(vectors), 8):
        lanes, count, top = min(8, len(vectors) - first), 0, 0
        for lane in range(lanes):
            vector = vectors[first + lane]
            for q in range(near.shape[1]):
                i = near[vector, q]
                if i >= 0:
                    x[8 * i + lane] += weights[vector, q]
                    if not reached[i]:
                        reached[i] = True
                        stack[top] = i
                        top += 1
        while top > 0:
            top -= 1
            i = stack[top]
            found[count] = ranks[i]
            count += 1
            for q in range(m):
                j = partners[i, q]
                if not reached[j]:
                    reached[j] = True
                    stack[top] = j
                    top += 1
        squares = spread(0.0)
        for position in np.sort(found[:count]):
            k = order[position]
            value = load(x, 8 * k) * spread(1.0 / p[k, m])
            squares = squares + value * value
            for q in range(m):
                at = 8 * partners[k, q]
                store(x, at, load(x, at) - spread(p[k, q]) * value)
            store(x, 8 * k, spread(0.0))
            reached[k] = False
        store(total, 0, squares)
        for lane in range(lanes):
            out[vectors[first + lane]] = total[lane]
