"""Low-rank tiles U V', and their operations in the tile Cholesky factorization.

Covariances between distant groups of locations vary smoothly: their tile has a low numerical rank.
It is interpolated from a few of its rows and columns. A tile is compressed once, after all updates,
from products with random vectors (Halko, Martinsson and Tropp 2011, SIAM Review 53:217). Errors are
measured on rows, columns and vectors that the compression has not seen. Operations on T × T tiles
of rank r cost O(T r²) instead of O(T³).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy

from . import blas
from .formats import Tile, aligned

MORE, FIRST = 8, 16
"""Columns of a first sample beyond the rank that is expected, and for a tile without updates."""

CHECKS = 6
"""Random vectors that check a compression."""

INTERPOLATED, SAMPLED, TRUNCATED = 0.3, 0.5, 0.7
"""Parts of the tolerance for the errors of interpolation, sample and truncation, whose squares add
up to less than 1."""

SKELETON, LARGEST = 32, 1 / 8
"""Rows and columns from which a tile is interpolated: at first, and largest part of all of them."""

FRESH = 16
"""Rows and columns on which an interpolation is checked."""

DENSE = 0.35
"""Ranks above this part of a tile's smaller dimension: the tile is kept dense."""


@dataclass(frozen=True)
class LowRankTile(Tile):
    """A ≈ U V', with U, (m, r), as `values` and V, (n, r), both FP64 or FP32 in Fortran order."""

    v: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        """(m, n)."""
        return len(self.values), len(self.v)

    @property
    def rank(self) -> int:
        """Number of columns of U and V."""
        return self.values.shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes of U and V."""
        return self.values.nbytes + self.v.nbytes

    def widen(self, dtype=np.float64, out=None):
        """Return U V' as an array."""
        product = np.asfortranarray((self.values @ self.v.T).astype(dtype, copy=False))
        if out is None:
            return product
        out[...] = product
        return out

    def __reduce__(self):
        return _arrived, (self.form, self.values, self.v)


def _arrived(form, values, v):
    return LowRankTile(form, aligned(values), v=aligned(v))


class Sum:
    """A_ik - Σ_j L_ij L_kj' of a tile that is to be compressed: A and the products are kept apart.

    Parameters
    ----------
    original : (m, n) ndarray, or pair of (m, r) and (n, r) ndarray
        A_ik, or U and V of A_ik ≈ U V'.
    tolerance : float
        Bound of the Frobenius norm of the compression's error.
    form : Format
        FP64, or FP32 where its rounding is far below the tolerance: of U and V, and of the
        compression.
    seed : tuple of int
        Of the random vectors: the same tile is always compressed with the same ones.
    rank : int, optional
        That of the tile, 0 for an array, unless its error would be far above the tolerance; by
        default the least one for the tolerance.
    """

    def __init__(self, original, tolerance, form, seed, rank=None):
        self.tolerance, self.seed, self.rank = tolerance, seed, rank
        self.form, self.dtype = form, form.dtype
        self.left, self.right, self.expected = [], [], 0
        if isinstance(original, tuple):
            left, right = original
            self.original, self.shape = None, (len(left), len(right))
            self._add(-left, right)
        else:
            self.original, self.shape = original, original.shape

    def __len__(self):
        return self.shape[0]

    def _add(self, left, right):
        self.left.append(left.astype(self.dtype, copy=False))
        self.right.append(right.astype(self.dtype, copy=False))
        self.expected = max(self.expected, left.shape[1])

    def subtract(self, pairs):
        """Take note of products L_ij L_kj'; those of two dense tiles are subtracted at once."""
        for left, right, *_ in pairs:
            if takes_part(left, right):
                self._add(*product(left, right))
                continue
            if self.original is None:
                self.original = np.zeros(self.shape, self.dtype, order="F")
            blas.gemm(self.original, left.widen(self.dtype), right.widen(self.dtype), -1.0)

    def compressed(self):
        """Return the sum as a `LowRankTile`, or as an array if its rank is high."""
        (m, n), tolerance = self.shape, self.tolerance
        left, right = (np.hstack(some) if some else None for some in (self.left, self.right))

        def times(x):
            y = 0.0 if self.original is None else self.original @ x
            return y if left is None else y - left @ (right.T @ x)

        def from_left(q):
            y = 0.0 if self.original is None else self.original.T @ q
            return y if left is None else y - right @ (left.T @ q)

        if self.rank == 0:
            return self._whole(left, right)
        random = np.random.default_rng(self.seed)
        most = int(DENSE * min(m, n))
        count = (self.rank or self.expected or FIRST) + MORE
        basis = np.empty((m, 0), self.dtype)

        def drawn(columns):
            return random.standard_normal((n, columns), self.dtype)

        while True:
            fresh = times(drawn(min(count, most + MORE) - basis.shape[1]))
            # of all columns: new ones that nearly cancel would not be orthogonal to the others
            basis = scipy.linalg.qr(
                np.hstack((basis, fresh)), mode="economic", check_finite=False, overwrite_a=True
            )[0]
            other = from_left(basis)
            test = drawn(CHECKS)
            missed = times(test) - basis @ (other.T @ test)
            if np.linalg.norm(missed) <= SAMPLED * tolerance * np.sqrt(CHECKS):
                found = _truncated(basis, other, TRUNCATED * tolerance, self.rank)
                return LowRankTile(self.form, found[0], v=found[1])
            if basis.shape[1] >= most:
                break
            count = 2 * basis.shape[1]
        return self._whole(left, right)

    def _whole(self, left, right):
        whole = 0.0 if self.original is None else self.original
        if left is not None:
            whole = whole - left @ right.T
        return np.asfortranarray(whole)


def interpolated(entries, shape, tolerance, seed):
    """Return U, (m, r), and V, (n, r), of a smooth tile A ≈ U V' from some of its rows and columns.

    A ≈ A[:, J] A[I, J]⁻¹ A[I, :], with I and J among the first rows and columns, which must be
    spread over all of them. None if the error, measured on others, exceeds the tolerance.

    Parameters
    ----------
    entries : callable
        ``entries(rows, columns)`` returns A[rows, columns] for two slices.
    shape : (int, int)
        (m, n).
    tolerance : float
        Bound of the Frobenius norm of the error.
    seed : tuple of int
        Of the rows and columns on which the error is measured.
    """
    (m, n), count = shape, SKELETON
    rows, columns = slice(0, m), slice(0, n)
    random = np.random.default_rng(seed)
    while count <= LARGEST * min(m, n):
        across, down = entries(rows, slice(0, count)), entries(slice(0, count), columns)
        found = _through(across, down, tolerance * count / np.sqrt(m * n))
        if found is not None:
            u, v = found
            some, others = (_fresh(random, count, size) for size in (m, n))
            missed = entries(some, columns) - u[some] @ v.T
            besides = entries(rows, others) - u @ v[others].T
            error = np.sqrt(max(m * np.sum(missed**2), n * np.sum(besides**2)) / FRESH)
            if error <= tolerance:
                return found
        count *= 2
    return None


def _through(across, down, tolerance):
    """Return U and V of A[:, J] A[I, J]⁻¹ A[I, :] from the first columns and rows of A.

    None if their intersection has no lower rank at the tolerance: more of them are needed.
    """
    count = len(down)
    _, r, first = scipy.linalg.qr(across[:count], pivoting=True, check_finite=False)
    rank = int((np.abs(np.diag(r)) > 0.1 * tolerance / np.sqrt(count)).sum())
    if rank > 0.8 * count:
        return None
    chosen = first[: max(rank, 1)]
    some = across[:, chosen]
    # of the rows the best conditioned ones
    pivots = scipy.linalg.qr(some[:count].T, pivoting=True, mode="r", check_finite=False)[1]
    rows = pivots[: len(chosen)]
    u = np.linalg.solve(some[rows].T, some.T).T
    return u, down[rows].T


def _fresh(random, count, size):
    first = int(random.integers(count, size - FRESH + 1))
    return slice(first, first + FRESH)


def product(left, right):
    """Return L_ij L_kj' as two factors, (m, r) and (n, r), of tiles of which one is of low rank."""
    if isinstance(left, LowRankTile) and isinstance(right, LowRankTile):
        # U (V'W) X', on the side of the smaller rank
        inner = left.v.T @ right.v
        if left.rank <= right.rank:
            return left.values, right.values @ inner.T
        return left.values @ inner, right.values
    if isinstance(left, LowRankTile):
        return left.values, right.widen() @ left.v
    return left.widen() @ right.v, right.values


def subtract(c, left, right):
    """C <- C - A B' for an array C and tiles of which one is of low rank."""
    if left is right:
        # U V'V U' = (U R')(U R')' with V = QR
        r = scipy.linalg.qr(left.v, mode="r", check_finite=False)[0][: left.rank]
        blas.syrk(c, np.asfortranarray(left.values @ r.T, c.dtype), -1.0)
    else:
        a, b = (np.asfortranarray(factor, c.dtype) for factor in product(left, right))
        blas.gemm(c, a, b, -1.0)


def takes_part(left, right):
    """Whether one of two tiles is of low rank."""
    return isinstance(left, LowRankTile) or isinstance(right, LowRankTile)


def solve(c, lower):
    """Return C L⁻' of a compressed `Sum`: a `LowRankTile` with L⁻¹V, or an array."""
    tile = c.compressed()
    if isinstance(tile, LowRankTile):
        v = blas.trsm(lower, np.asfortranarray(tile.v, np.float64), side="L", trans="N")
        return replace(tile, v=np.asfortranarray(v, tile.v.dtype))
    return blas.trsm(lower, np.asfortranarray(tile, np.float64))


def _truncated(basis, other, tolerance, rank=None):
    """Return U and V of Q B' with the least rank whose truncation error is below the tolerance.

    With `rank` that one, if its error is below three times the tolerance.
    """
    q, r = scipy.linalg.qr(other, mode="economic", check_finite=False)
    # NumPy's: scipy.linalg.svd holds the interpreter's lock while it computes
    u, values, vt = np.linalg.svd(r.T, full_matrices=False)
    tail = np.sqrt(np.cumsum(values[::-1] ** 2))[::-1]
    if rank is None or (rank < len(tail) and tail[rank] > 3 * tolerance):
        rank = max(1, int((tail > tolerance).sum()))
    left = basis @ (u[:, :rank] * values[:rank])
    return np.asfortranarray(left), np.asfortranarray(q @ vt[:rank].T)
