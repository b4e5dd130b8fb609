"""Low-rank tiles U V', and their operations in the tile Cholesky factorization.

Covariances between distant groups of locations vary smoothly: their tile has a low numerical rank.
It is interpolated from a few of its rows and columns. A tile is compressed once, after all updates,
from products with random vectors (Halko, Martinsson and Tropp 2011, SIAM Review 53:217). Errors are
measured on rows, columns and products that the compression has not seen. Operations on T × T tiles
of rank r cost O(T r²) instead of O(T³). `low_rank_numba` has the loops.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from . import blas
from .formats import FP64, Tile, aligned

SURPLUS_COLUMNS, DENSE_SURPLUS_COLUMNS, CHECK_COLUMNS = 8, 24, 6
"""Columns of a first sample beyond the rank that is expected: of a tile that is a sum of products,
and of one that was generated. The last six columns check the others."""

EXPECTED_RANK, ADDED_COLUMNS = 16, 24
"""The expected rank of a tile without updates, and columns that are added to a sample at a time."""

INTERPOLATION_SHARE, SAMPLING_SHARE, TRUNCATION_SHARE = 0.3, 0.5, 0.7
"""Parts of the tolerance for the errors of interpolation, sample and truncation, whose squares add
up to less than 1."""

FIRST_SKELETON_ROWS, LARGEST_SKELETON_SHARE = 32, 1 / 8
"""Rows and columns from which a tile is interpolated: at first, and largest part of all of them."""

CHECK_ROWS = 16
"""Rows and columns on which an interpolation is checked."""

DENSE_RANK_SHARE = 0.35
"""Samples of about this part of a tile's smaller dimension do not suffice: it is kept dense."""


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

    @cached_property
    def operands(self) -> tuple[int, int, int, int, int]:
        """What compiled code needs: addresses of U and V, r, n, and the bytes of a number."""
        for part in (self.values, self.v):
            if not part.flags.f_contiguous or part.dtype != self.form.dtype:
                raise ValueError(f"U and V must be {self.form.name} in Fortran order.")
        size = self.rank, len(self.v), self.values.itemsize
        return self.values.ctypes.data, self.v.ctypes.data, *size

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
    rank : int, optional
        That of the tile, 0 for an array, unless the error of truncation would be more than three
        times its part of the tolerance; by default the least one for the tolerance.
    """

    def __init__(self, original, tolerance, form, rank=None):
        self.tolerance, self.rank = tolerance, rank
        self.form, self.dtype = form, form.dtype
        # what is subtracted: pairs of tiles, or of arrays (m, r) and (n, r)
        self.products = []
        if isinstance(original, tuple):
            left, right = original
            self.original, self.shape = None, (len(left), len(right))
            self.products.append((-left, right))
        else:
            self.original, self.shape = original, original.shape

    def __len__(self):
        return self.shape[0]

    def subtract(self, pairs):
        """Take note of products L_ij L_kj'; those of two dense tiles are subtracted at once."""
        for left, right, *_ in pairs:
            if isinstance(left, LowRankTile) and isinstance(right, LowRankTile):
                self.products.append((left, right))
            elif takes_part(left, right):
                self.products.append(product(left, right))
            else:
                if self.original is None:
                    self.original = np.zeros(self.shape, self.dtype, order="F")
                blas.gemm(self.original, left.widen(self.dtype), right.widen(self.dtype), -1.0)

    def compressed(self):
        """Return the sum as a `LowRankTile`, or as an array if its rank is high."""
        from .low_rank_numba import compressed

        dense = self.original is not None
        original = self.original if dense else np.empty((0, 0))
        most = int(DENSE_RANK_SHARE * min(self.shape)) + SURPLUS_COLUMNS
        surplus = DENSE_SURPLUS_COLUMNS if dense else SURPLUS_COLUMNS
        # what lies at the addresses is kept until the call has ended
        terms, _kept = _described(self.products, self.dtype)
        expected = int(np.minimum(terms[:, 2], terms[:, 7]).max(initial=0))
        first = (self.rank or expected or EXPECTED_RANK) + surplus
        columns = first, ADDED_COLUMNS, CHECK_COLUMNS
        bounds = SAMPLING_SHARE * self.tolerance, TRUNCATION_SHARE * self.tolerance
        u, v = compressed(
            *(_routines(self.dtype), np.ascontiguousarray(original.T, self.dtype), terms),
            *(self.shape, _random(self.shape[1], self.dtype)[:most], columns),
            *(bounds, -1 if self.rank is None else self.rank),
        )
        return LowRankTile(self.form, u.T, v=v.T) if len(v) else u.T


@lru_cache(maxsize=4)
def _random(n, dtype):
    """Return the random vectors, (count, n), for samples of all tiles with n columns.

    They depend on nothing else: any worker compresses a tile to the same bits.
    """
    return np.random.default_rng(n).standard_normal(
        (int(DENSE_RANK_SHARE * n) + SURPLUS_COLUMNS, n), dtype
    )


def _routines(dtype):
    return _routines_of(dtype, blas.uses_mkl())


@lru_cache(maxsize=4)
def _routines_of(dtype, _):
    from .low_rank_numba import Routines

    *names, convert = Routines._fields
    found = blas.addresses(names, dtype)
    # to numbers of this type, from those of the other one
    letter, other = ("sd", np.float32) if dtype == FP64.dtype else ("ds", np.float64)
    return Routines(*found, *blas.addresses([f"{convert}{letter[1]}"], other))


def _described(terms, dtype):
    """Return the `operands` of pairs of low-rank tiles, or of arrays, side by side: (terms, 10).

    An array (m, r) has 0 in place of V and of n. Return also the objects at these addresses, which
    must be kept until the call has ended; arrays are converted to `dtype`.
    """
    rows, held, size = [], [], np.dtype(dtype).itemsize
    for left, right in terms:
        if isinstance(left, LowRankTile):
            rows.append(left.operands + right.operands)
            continue
        pair = [np.asfortranarray(part, dtype) for part in (left, right)]
        held.append(pair)
        rows.append(sum(((part.ctypes.data, 0, part.shape[1], 0, size) for part in pair), ()))
    return np.array(rows, np.int64).reshape(-1, 10), (held, terms)


def interpolated(entries, shape, tolerance):
    """Return U, (m, r), and V, (n, r), of a smooth tile A ≈ U V' from some of its rows and columns.

    A ≈ A[:, J] A[I, J]⁻¹ A[I, :], with I and J among the first rows and columns, which must be
    spread over the tile. So must be the next 16, on which the error is measured. None if it
    exceeds the tolerance.

    Parameters
    ----------
    entries : callable
        ``entries(rows, columns)`` returns A[rows, columns] for two slices.
    shape : (int, int)
        (m, n).
    tolerance : float
        Bound of the Frobenius norm of the error.
    """
    from .low_rank_numba import through

    (m, n), count = shape, FIRST_SKELETON_ROWS
    routines = _routines(np.dtype(np.float64))
    while count <= LARGEST_SKELETON_SHARE * min(m, n):
        first = slice(0, count + CHECK_ROWS)
        across, down = entries(slice(0, m), first), entries(first, slice(0, n))
        parts = (np.ascontiguousarray(part.T) for part in (across[:, :count], down[:count]))
        u, v = (x.T for x in through(routines, *parts, tolerance * count / np.sqrt(m * n)))
        if u.shape[1]:
            missed = down[count:] - u[count : first.stop] @ v.T
            besides = across[:, count:] - u @ v[count : first.stop].T
            error = np.sqrt(
                max(m * np.vdot(missed, missed), n * np.vdot(besides, besides)) / CHECK_ROWS
            )
            if error <= tolerance:
                return u, v
        count *= 2
    return None


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


def subtract(c, pairs):
    """C <- C - Σ A B' for an array C and pairs of tiles of which one or both are of low rank.

    Of squares A A' only the lower triangle is subtracted.
    """
    squares = [(left, left) for left, right in pairs if left is right]
    if squares:
        from .low_rank_numba import subtract_squares

        terms, _kept = _described(squares, c.dtype)
        subtract_squares(_routines(c.dtype), terms, c.T)
    for left, right in pairs:
        if left is not right:
            a, b = (np.asfortranarray(factor, c.dtype) for factor in product(left, right))
            blas.gemm(c, a, b, -1.0)


def takes_part(left, right):
    """Whether one of two tiles is of low rank."""
    return isinstance(left, LowRankTile) or isinstance(right, LowRankTile)


def solve(c, lower):
    """Return C L⁻' of a compressed `Sum`: a `LowRankTile` with L⁻¹V, or an array.

    `lower(dtype)` returns L in a type, that of V for a low-rank tile: with V in FP32 the solve has
    the error of L rounded to FP32.
    """
    tile = c.compressed()
    if isinstance(tile, LowRankTile):
        v = blas.trsm(lower(c.dtype), np.asfortranarray(tile.v), side="L", trans="N")
        return replace(tile, v=v)
    return blas.trsm(lower(np.float64), np.asfortranarray(tile, np.float64))
