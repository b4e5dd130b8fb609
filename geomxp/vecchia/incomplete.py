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

from ..errors import NotPositiveDefinite
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

    @cached_property
    def targets(self):
        """Places of products of two entries of each column in the flat array, (n, m(m-1)/2).

        For pairs of entries q > r, by q and then by r; -1 where a product has no place.
        """
        n = len(self.neighbours)
        ranks = np.empty(n, dtype=np.int64)
        ranks[self.sequence] = np.arange(n)
        return _targets(ranks, self.neighbours)

    def product(self, columns):
        """Return UU' on the pattern, as columns."""
        out = np.zeros_like(columns)
        _product(self.neighbours, self.targets, columns, out)
        return out

    def pulled(self, columns, change):
        """Return the gradient by U of a function of `product`, given its gradient by that."""
        out = np.empty_like(columns)
        _pulled(self.neighbours, self.targets, columns, change, out)
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
        self.pattern, self.columns = pattern, product.copy()
        self.columns[:, -1] += w
        given = pattern.sequence, pattern.neighbours, pattern.targets
        failed = _factor(*given, self.columns)
        if failed >= 0:
            raise NotPositiveDefinite("a pivot of the incomplete factor is not positive", failed)

    def log_determinant(self):
        """Return log|PP'|."""
        return 2.0 * float(np.log(self.columns[:, -1]).sum())

    def gradient(self):
        """Return the gradient of `log_determinant` by A on the pattern, as columns.

        Its last column is that by w. An entry off the diagonal stands for both of its places.
        """
        out = np.zeros_like(self.columns)
        pattern = self.pattern
        _gradient(pattern.sequence, pattern.neighbours, pattern.targets, self.columns, out)
        return out

    def solve(self, y):
        """Return (PP')⁻¹y for (n,)."""
        return self.solve_transposed(self.half_solve(y))

    def half_solve(self, y):
        """Return P⁻¹y for (n,)."""
        x = np.array(y, dtype=float)
        _forward(self.pattern.sequence, self.pattern.neighbours, self.columns, x)
        return x

    def solve_transposed(self, y):
        """Return P⁻ᵀy for (n,)."""
        x = np.array(y, dtype=float)
        _backward(self.pattern.sequence, self.pattern.neighbours, self.columns, x)
        return x


@njit(nogil=True, cache=True)
def _targets(ranks, neighbours):
    n, m = neighbours.shape
    out = np.full((n, m * (m - 1) // 2), -1, np.int64)
    for k in range(n):
        at = 0
        for q in range(m):
            for r in range(q):
                a, b = neighbours[k, q], neighbours[k, r]
                if a >= 0 and b >= 0:
                    if ranks[a] < ranks[b]:
                        a, b = b, a
                    # the later one has the column
                    for s in range(m):
                        if neighbours[a, s] == b:
                            out[k, at] = a * (m + 1) + s
                            break
                at += 1
    return out


@njit(nogil=True, cache=True)
def _product(neighbours, targets, u, out):
    n, m = neighbours.shape
    flat = out.reshape(-1)
    for k in range(n):
        own, at = u[k, m], 0
        out[k, m] += own * own
        for q in range(m):
            i = neighbours[k, q]
            if i >= 0:
                out[k, q] += u[k, q] * own
                out[i, m] += u[k, q] * u[k, q]
            for r in range(q):
                if targets[k, at] >= 0:
                    flat[targets[k, at]] += u[k, q] * u[k, r]
                at += 1


@njit(nogil=True, cache=True)
def _pulled(neighbours, targets, u, change, out):
    n, m = neighbours.shape
    flat = change.reshape(-1)
    for k in range(n):
        own, at, total = u[k, m], 0, 2.0 * change[k, m] * u[k, m]
        for q in range(m):
            i = neighbours[k, q]
            out[k, q] = 0.0
            if i >= 0:
                total += change[k, q] * u[k, q]
                out[k, q] = change[k, q] * own + 2.0 * change[i, m] * u[k, q]
            for r in range(q):
                if targets[k, at] >= 0:
                    slope = flat[targets[k, at]]
                    out[k, q] += slope * u[k, r]
                    out[k, r] += slope * u[k, q]
                at += 1
        out[k, m] = total


@njit(nogil=True, cache=True)
def _factor(sequence, neighbours, targets, p):
    """Overwrite A + W with P; return a location without a positive pivot, or -1."""
    n, m = neighbours.shape
    flat = p.reshape(-1)
    for position in range(n - 1, -1, -1):
        k = sequence[position]
        if not p[k, m] > 0.0:
            return k
        root = sqrt(p[k, m])
        p[k, m] = root
        at = 0
        for q in range(m):
            i = neighbours[k, q]
            p[k, q] /= root
            if i >= 0:
                p[i, m] -= p[k, q] * p[k, q]
            for r in range(q):
                if targets[k, at] >= 0:
                    flat[targets[k, at]] -= p[k, q] * p[k, r]
                at += 1
    return -1


@njit(nogil=True, cache=True)
def _gradient(sequence, neighbours, targets, p, out):
    """Out <- the gradient of Σ log d by A + W: the loops of `_factor`, backwards."""
    n, m = neighbours.shape
    flat = out.reshape(-1)
    for position in range(n):
        k = sequence[position]
        at = 0
        for q in range(m):
            i = neighbours[k, q]
            if i >= 0:
                out[k, q] -= 2.0 * out[i, m] * p[k, q]
            for r in range(q):
                if targets[k, at] >= 0:
                    slope = flat[targets[k, at]]
                    out[k, q] -= slope * p[k, r]
                    out[k, r] -= slope * p[k, q]
                at += 1
        root, total = p[k, m], 1.0
        for q in range(m):
            # entries were divided by the root of the pivot
            total -= 0.5 * out[k, q] * p[k, q]
            out[k, q] /= root
        out[k, m] = total / (root * root)


@njit(nogil=True, cache=True)
def _forward(sequence, neighbours, p, x):
    n, m = neighbours.shape
    for position in range(n - 1, -1, -1):
        k = sequence[position]
        x[k] /= p[k, m]
        for q in range(m):
            i = neighbours[k, q]
            if i >= 0:
                x[i] -= p[k, q] * x[k]


@njit(nogil=True, cache=True)
def _backward(sequence, neighbours, p, x):
    n, m = neighbours.shape
    for position in range(n):
        k = sequence[position]
        for q in range(m):
            i = neighbours[k, q]
            if i >= 0:
                x[k] -= p[k, q] * x[i]
        x[k] /= p[k, m]
