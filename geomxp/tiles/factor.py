"""The Cholesky factor of a covariance matrix, and all that statistics asks of it."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..linalg import recursive
from ..linalg.backend import backend_of, device_of
from ..linalg.formats import FP64
from ..linalg.precision import PrecisionMap
from ..runtime.devices import gpu_memory

CHUNK_ENTRIES = 1 << 22
"""Entries of Σ^(-½) held at one time while the diagonal of Σ⁻¹ is summed."""


class Factor:
    """Base of the factors of Σ: inner products with Σ⁻¹, by whitening.

    Attributes
    ----------
    vectors : int
        Blocks as large as the right-hand side that a solution holds.
    order : (n,) ndarray of int or None
        Row r of L belongs to location order[r]; None for the order of the locations.
    """

    vectors = 1
    order = None

    def inner(self, a, b=None):
        """Return a'Σ⁻¹b = (L⁻¹a)'(L⁻¹b) for (n, m) and (n, k); b is a if not given."""
        half = self.whiten(a)
        return half.T @ (half if b is None else self.whiten(b))

    def explained_by(self, x):
        """Return a function from k (n, m) to the diagonal of k'Σ⁻¹k and to k'Σ⁻¹x (m, p)."""
        half_x = self.whiten(np.asfortranarray(x)) if x.shape[1] else x

        def explained(k):
            half = self.whiten(k)
            return np.einsum("ij,ij->j", half, half), half.T @ half_x

        return explained

    def inverse_diagonal(self, n):
        """Return the diagonal of Σ⁻¹, (n,)."""
        # in the factor's order, because the whitened columns then begin with zeros
        order = np.arange(n) if self.order is None else self.order
        diagonal, explained = np.empty(n), self.explained_by(np.zeros((n, 0)))
        step = max(1, CHUNK_ENTRIES // n // self.vectors)
        for first in range(0, n, step):
            rows = order[first : first + step]
            columns = np.zeros((n, len(rows)), order="F")
            columns[rows, np.arange(len(rows))] = 1.0
            diagonal[rows] = explained(columns)[0]
        return diagonal


@dataclass(frozen=True)
class CholeskyFactor(Factor):
    """Σ = L L'. Takes NumPy or CuPy arrays and returns NumPy arrays, wherever L lives.

    Parameters
    ----------
    lower : (n, n) NumPy or CuPy array, Fortran order
        L in the lower triangle; the rest is not looked at.

    Examples
    --------
    >>> sigma = np.array([[4.0, 2.0], [2.0, 3.0]], order="F")
    >>> factor = CholeskyFactor(kernels.potrf(sigma.copy(order="F")))
    >>> bool(np.allclose(sigma @ factor.solve(np.ones(2)), 1.0))
    True
    """

    lower: Any

    precision_map = PrecisionMap(((FP64,),))
    promotions = 0

    @property
    def nbytes(self):
        """Bytes of the lower triangle."""
        return 4 * len(self.lower) * (len(self.lower) + 1)

    @gpu_memory()
    def log_determinant(self):
        """Return log|Σ| = 2 Σ_i log L_ii."""
        diagonal = self.lower.diagonal()
        return 2.0 * float(np.log(on_host(diagonal)).sum())

    @gpu_memory()
    def whiten(self, b):
        """Return L⁻¹b for (n,) or (n, m): independent and of variance 1 if b has covariance Σ."""
        return on_host(recursive.trsm(self.lower, self._beside(b)))

    @gpu_memory()
    def solve(self, b):
        """Return Σ⁻¹b for (n,) or (n, m)."""
        half = recursive.trsm(self.lower, self._beside(b))
        return on_host(recursive.trsm(self.lower, half, transposed=True))

    @gpu_memory()
    def multiply(self, x):
        """Return L x for (n, m): of covariance Σ if x is independent and of variance 1."""
        return on_host(recursive.trmm(self.lower, self._beside(x)))

    @gpu_memory()
    def columns(self, first, last):
        """Return some columns of L, (n, m), zeros above the diagonal."""
        block = np.array(on_host(self.lower[:, first:last]), order="F")
        for j in range(block.shape[1]):
            block[: first + j, j] = 0.0
        return block

    @gpu_memory()
    def into_dense(self):
        """Return L as one FP64 array, where it lives; ends this factor."""
        return self.lower

    @gpu_memory()
    def into_inverse(self):
        """Return the lower triangle of Σ⁻¹, written over L where that can be; ends this factor."""
        return on_host(recursive.potri(self.lower))

    def _beside(self, b):
        """Return b where L is."""
        return backend_of(self.lower).put(b, self.lower)


def on_host(array):
    """Return a NumPy array of the values of a NumPy or CuPy one, of its layout."""
    return backend_of(array).get(array)


@dataclass(frozen=True)
class TileFactor(Factor):
    """Σ = 4^e L L' with L in tiles, each in its own format; the interface of `CholeskyFactor`.

    Products and solves are FP64: what a tile stores is what it stands for.

    Parameters
    ----------
    store : store
        With all tiles final.
    order : (n,) ndarray of int
        Row r of L belongs to place order[r].
    promotions : int
        How many tiles needed a finer format than the rule gave them.
    """

    store: Any
    order: np.ndarray
    promotions: int = 0

    @property
    def precision_map(self):
        """The formats in the end."""
        return self.store.formats

    @property
    def nbytes(self):
        """Bytes of the tiles in their formats."""
        return self.store.bytes

    @property
    def _unit(self):
        return 2.0**self.store.originals.exponent

    @gpu_memory()
    def log_determinant(self):
        """Return log|Σ| = 2 Σ_i log L_ii."""
        layout = self.store.layout
        parts = _diagonals(layout, self.store.final)
        logs = sum(float(np.log(part).sum()) for part in parts)
        return 2.0 * (logs + layout.n * float(np.log(self._unit)))

    @gpu_memory()
    def whiten(self, b):
        """Return L⁻¹b, its rows in the factor's order, for (n,) or (n, m)."""
        columns = self._sorted(b)
        layout, final = self.store.layout, self.store.final
        blocks = range(layout.tiles)
        # zeros at the top stay zeros
        start = next((i for i in blocks if columns[layout.rows(i)].any()), layout.tiles)
        y = self._beside(columns)
        with device_of(y):
            for i in blocks[start:]:
                rows = layout.rows(i)
                for j in range(start, i):
                    _add_product(y[rows], final(i, j).widen(), y[layout.rows(j)], -1.0)
                y[rows] = recursive.trsm(final(i, i).widen(), y[rows])
            return on_host(y).reshape(b.shape, order="A")

    @gpu_memory()
    def solve(self, b):
        """Return Σ⁻¹b for (n,) or (n, m)."""
        x = self._transposed_solve(self._beside(self.whiten(b).reshape(len(b), -1) / self._unit))
        return self._unsorted(x).reshape(b.shape, order="A")

    def _transposed_solve(self, y):
        """Y <- L⁻'y."""
        layout, final = self.store.layout, self.store.final
        with device_of(y):
            for i in reversed(range(layout.tiles)):
                rows = layout.rows(i)
                y[rows] = recursive.trsm(final(i, i).widen(), y[rows], transposed=True)
                for j in range(i):
                    _add_product(y[layout.rows(j)], final(i, j).widen().T, y[rows], -1.0)
        return y

    @gpu_memory()
    def multiply(self, x):
        """Return L x for (n, m), its rows in the order of the places."""
        layout, final = self.store.layout, self.store.final
        x = self._beside(np.asfortranarray(x))
        with device_of(x):
            y = 0.0 * x
            for i in range(layout.tiles):
                rows = layout.rows(i)
                for j in range(i + 1):
                    _add_product(y[rows], final(i, j).widen(), x[layout.rows(j)], 1.0)
            y *= self._unit
        return self._unsorted(y)

    @gpu_memory()
    def dense(self):
        """Return L in FP64, rows and columns in the factor's order, zeros above the diagonal.

        Returns
        -------
        (n, n) ndarray, Fortran order
        """
        layout = self.store.layout
        lower = np.zeros((layout.n, layout.n), order="F")
        for i in range(layout.tiles):
            for j in range(i + 1):
                lower[layout.rows(i), layout.rows(j)] = on_host(self.store.final(i, j).widen())
        lower *= self._unit
        return lower

    @gpu_memory()
    def into_dense(self):
        """Return `dense()`."""
        return self.dense()

    @gpu_memory()
    def into_inverse(self):
        """Return the lower triangle of Σ⁻¹ in FP64, rows and columns in the order of the places."""
        inverse = recursive.potri(self.dense())
        back = np.argsort(self.order)
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        return np.asfortranarray(inverse[np.ix_(back, back)])

    def _sorted(self, b):
        columns = on_host(b).reshape(len(b), -1)
        if (self.order != np.arange(len(self.order))).any():
            columns = columns[self.order]
        return np.asfortranarray(columns / self._unit)

    def _unsorted(self, x):
        result = np.empty(x.shape, order="F")
        result[self.order] = on_host(x)
        return result

    def _beside(self, b):
        """Return b where L is."""
        first = self.store.final(0, 0).values
        return backend_of(first).put(b, first)


def _add_product(y, a, x, alpha):
    """Y <- Y + αAX, for α of 1 or -1."""
    if backend_of(y).on_gpu:
        # in one call; CuPy would make a copy of the product
        backend_of(y).gemm(y, a, x, alpha)
    elif alpha > 0:
        y += a @ x
    else:
        y -= a @ x


def _diagonals(layout, final):
    """Yield the diagonals of the diagonal tiles as NumPy arrays; of a GPU's, in one transfer."""
    parts = (final(i, i).widen().diagonal() for i in range(layout.tiles))
    if isinstance(final(0, 0).values, np.ndarray):
        yield from parts
        return
    import cupy

    with final(0, 0).values.device:
        whole = cupy.empty(layout.n)
        for i, part in enumerate(parts):
            whole[layout.rows(i)] = part
        whole = whole.get()
    for i in range(layout.tiles):
        yield whole[layout.rows(i)]
