"""Cholesky factor of a covariance matrix: solves, products and the log-determinant."""

from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..linalg import blas, recursive
from ..linalg.backend import backend_of, device_of
from ..linalg.device import copy_on_gpu, empty_matrix
from ..linalg.formats import FP64
from ..linalg.low_rank import LowRankTile
from ..linalg.precision import PrecisionMap
from ..runtime.devices import gpu_memory

CHUNK_ENTRIES = 1 << 22
"""Entries of L⁻¹ that are held at a time while the diagonal of Σ⁻¹ is computed."""


class Factor:
    """Operations of statistics on Σ = L L': the base of all factors. Returns NumPy arrays.

    A factor also defines `log_determinant()`, `solve(b)` = Σ⁻¹b, `half_solve(b)` = L⁻¹b with rows
    in the factor's order, `multiply(x)` = L x, `into_dense()` = L, and `into_inverse()`, the lower
    triangle of Σ⁻¹. The last two end the factor.

    Attributes
    ----------
    precision_map : PrecisionMap
        Formats of the tiles.
    nbytes : int
    """

    # tiles that needed a finer format than the rule gave them
    promotions = 0
    # row r of L belongs to location order[r]; None if rows are in the order of the locations
    order = None
    # the `Store` of the tiles
    store = None
    # whether `solve` is refined to FP64's accuracy while L is not; report on the latest solution
    refines, last = False, None
    # blocks as large as a right-hand side that `solve` holds at a time
    vectors = 1
    # `Traffic` of the factorization between memories, and, if it was traced, its `Event`s
    moved, events = None, ()

    def inner(self, a, b=None):
        """Return a'Σ⁻¹b = (L⁻¹a)'(L⁻¹b) for (n, m) and (n, k); b is a if not given."""
        half = self.half_solve(a)
        return half.T @ (half if b is None else self.half_solve(b))

    def whiten(self, b):
        """Return L⁻¹b, (n, m), of a NumPy or CuPy array; of a GPU's factor perhaps a CuPy array."""
        return self.half_solve(on_host(b))

    def explained_by(self, x):
        """Return a function from k (n, m) to the diagonal of k'Σ⁻¹k and to k'Σ⁻¹x (m, p)."""
        half_x = self.whiten(np.asfortranarray(x)) if x.shape[1] else None

        @gpu_memory()
        def explained(k):
            half = self.whiten(k)
            with device_of(half):
                cross = half.T @ half_x if x.shape[1] else np.empty((half.shape[1], 0))
                if backend_of(half).on_gpu:
                    # in place, because a GPU's memory may be almost full
                    half *= half
                    squares = half.sum(axis=0)
                else:
                    squares = np.einsum("ij,ij->j", half, half)
            return on_host(squares), on_host(cross)

        return explained

    def inverse_diagonal(self, n):
        """Return the diagonal of Σ⁻¹, (n,)."""
        # in the factor's order, because the half-solved columns then begin with zeros
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
    """Σ = L L' with L as one NumPy or CuPy array in Fortran order, whose upper triangle is ignored.

    Examples
    --------
    >>> sigma = np.array([[4.0, 2.0], [2.0, 3.0]], order="F")
    >>> factor = CholeskyFactor(recursive.potrf(sigma.copy(order="F")))
    >>> bool(np.allclose(sigma @ factor.solve(np.ones(2)), 1.0))
    True
    """

    lower: Any

    precision_map = PrecisionMap(((FP64,),))

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
    def half_solve(self, b):
        """Return L⁻¹b for (n,) or (n, m): independent, of variance 1 if b has covariance Σ."""
        return on_host(self.whiten(b))

    @gpu_memory()
    def whiten(self, b):
        """See `Factor.whiten`."""
        return recursive.trsm(self.lower, self._beside(b))

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
        """Return some columns of L, (n, m) on its device, zeros above the diagonal."""
        xp = backend_of(self.lower).xp
        with device_of(self.lower):
            block = xp.array(self.lower[:, first:last], order="F")
            block[:first] = 0.0
            block[first:last] = xp.tril(block[first:last])
        return block

    @gpu_memory()
    def into_dense(self, index=None, dtype=np.float64, out=None):
        """Return L as one array on its device; the factor cannot be used afterwards.

        A factor in tiles is assembled on the GPU `index`, or in RAM if it is None, in FP64 or FP32;
        the lower triangle of `out`, in RAM and of that type, is overwritten if it is given.
        """
        return self.lower

    @gpu_memory()
    def into_inverse(self):
        """Return the lower triangle of Σ⁻¹, where possible in L's memory; see `into_dense`."""
        return on_host(recursive.potri(self.lower))

    def _beside(self, b):
        """Return b on the device of L."""
        return backend_of(self.lower).put(b, self.lower)


def on_host(array):
    """Return a NumPy array with the values and the layout of a NumPy or CuPy array."""
    return backend_of(array).get(array)


class _Ordered(Factor):
    """Base of factors of Σ with its rows in another order: Σ = 4^e L L'.

    A subclass also defines `dense()`, L in FP64 in its order and in the user's units, with zeros
    above the diagonal, and `exponent`, e.
    """

    @property
    def _unit(self):
        return 2.0**self.exponent

    @gpu_memory()
    def into_dense(self, index=None, dtype=np.float64, out=None):
        """Return `dense(index, dtype)`; see `CholeskyFactor.into_dense`."""
        return self.dense(index, dtype)

    def inverse_columns(self, columns, dtype=np.float64):
        """Return Σ⁻¹[f:, f:l] for columns f to l, in the factor's order."""
        first, last = columns.start, columns.stop
        units = np.zeros((len(self.order), last - first), order="F")
        units[self.order[first:last], np.arange(last - first)] = 1.0
        found = self.solve(units)
        return np.asfortranarray(found[self.order[first:]], dtype)

    @gpu_memory()
    def into_inverse(self):
        """Return the lower triangle of Σ⁻¹ in FP64, in the order of the locations."""
        inverse = recursive.potri(self.dense())
        back = np.argsort(self.order)
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        return np.asfortranarray(inverse[np.ix_(back, back)])

    def _sorted(self, b):
        """Return b / 2^e, (n, m) in the factor's order, on the device of b."""
        columns, order = b.reshape(len(b), -1), self.order
        backend = backend_of(columns)
        with device_of(columns):
            if (order == np.arange(len(order))).all():
                return backend.xp.asfortranarray(columns / self._unit)
            # an index of the second axis keeps the layout
            columns = columns.T[:, copy_on_gpu(order)].T if backend.on_gpu else columns[order]
            columns /= self._unit
            return backend.xp.asfortranarray(columns)

    def _unsorted(self, x):
        """Return (n, m) rows in the order of the locations, on the host."""
        result = np.empty(x.shape, order="F")
        result[self.order] = on_host(x)
        return result


@dataclass(frozen=True)
class TreeFactor(_Ordered):
    """Σ = 4^e L L' with L as one tree of blocks in layered formats; see `Factor`.

    Products and solves are FP64, with the values that the blocks store.
    """

    tree: Any
    precision_map: PrecisionMap
    exponent: int
    order: np.ndarray
    promotions: int = 0
    # generator of Σ's tiles
    originals: Any = None

    @property
    def nbytes(self):
        """Bytes of the blocks in their formats."""
        return self.tree.nbytes

    @gpu_memory()
    def log_determinant(self):
        """Return log|Σ| = 2 Σ_i log L_ii."""
        return self.tree.log_determinant() + 2.0 * len(self.order) * float(np.log(self._unit))

    @gpu_memory()
    def half_solve(self, b):
        """Return L⁻¹b, rows in the factor's order, for (n,) or (n, m)."""
        y = self.tree.half_solve(self._sorted(on_host(b)))
        return np.asfortranarray(on_host(y)).reshape(b.shape, order="A")

    @gpu_memory()
    def solve(self, b):
        """Return Σ⁻¹b for (n,) or (n, m)."""
        x = self.tree.solve(self._sorted(on_host(b)) / self._unit)
        return self._unsorted(x).reshape(b.shape, order="A")

    @gpu_memory()
    def multiply(self, x):
        """Return L x for (n, m), rows in the order of the locations."""
        return self._unsorted(self.tree.multiply(x) * self._unit)

    @gpu_memory()
    def dense(self, index=None, dtype=np.float64):
        """Return L, (n, n) in the factor's order, zeros above the diagonal.

        In RAM, or on the GPU `index`, where the blocks are.
        """
        lower = self.tree.to_dense(dtype)
        lower = on_host(lower) if index is None else lower
        with device_of(lower):
            if self.exponent:
                lower *= lower.dtype.type(self._unit)
        return lower


@dataclass(frozen=True)
class TileFactor(_Ordered):
    """Σ = 4^e L L' with L in tiles, each in its own format; see `Factor`.

    Products and solves are FP64, with the values that the tiles store. All tiles are final.
    """

    store: Any
    order: np.ndarray
    promotions: int = 0

    @property
    def originals(self):
        """Generator of the tiles of Σ."""
        return self.store.originals

    @property
    def precision_map(self):
        """The final formats, with the ranks of the tiles."""
        return self.store.found or self.store.formats

    @property
    def nbytes(self):
        """Bytes of the tiles in their formats."""
        return self.store.bytes

    @property
    def moved(self):
        """Bytes that the factorization moved between memories, as `Traffic` or None."""
        return self.store.moved

    @property
    def events(self):
        """Copies and kernels of the factorization, if it was traced."""
        return () if self.store.trace is None else tuple(self.store.trace.events())

    @property
    def exponent(self):
        """e, so that the diagonal of L L' is near 1."""
        return self.store.originals.exponent

    @gpu_memory()
    def log_determinant(self):
        """Return log|Σ| = 2 Σ_i log L_ii."""
        return 2.0 * (sum(self._logs()) + self.store.layout.n * float(np.log(self._unit)))

    def _logs(self):
        """Return Σ log L_ii of each diagonal tile; those of a GPU come in one transfer."""
        layout, final = self.store.layout, self.store.final
        diagonals = (final(i, i).widen().diagonal() for i in range(layout.tiles))
        first = final(0, 0).values
        if backend_of(first).on_gpu:
            import cupy

            with first.device:
                whole = cupy.empty(layout.n)
                for i, diagonal in enumerate(diagonals):
                    whole[layout.rows(i)] = diagonal
                whole = whole.get()
            diagonals = (whole[layout.rows(i)] for i in range(layout.tiles))
        return [float(np.log(diagonal).sum()) for diagonal in diagonals]

    @gpu_memory()
    def half_solve(self, b):
        """Return L⁻¹b, rows in the factor's order, for (n,) or (n, m)."""
        return on_host(self.whiten(b)).reshape(b.shape, order="A")

    @gpu_memory()
    def whiten(self, b):
        """See `Factor.whiten`."""
        y = self._beside(self._sorted(b))
        layout = self.store.layout
        with device_of(y):
            # leading zeros stay zeros
            start = next(
                (part.start for part in map(layout.rows, range(layout.tiles)) if y[part].any()),
                layout.n,
            )
        return self._forward(y, start)

    @gpu_memory()
    def solve(self, b):
        """Return Σ⁻¹b for (n,) or (n, m)."""
        y = self.whiten(b)
        with device_of(y):
            y /= self._unit
        return self._unsorted(self._backward(y)).reshape(b.shape, order="A")

    def _forward(self, y, start=0, solve=None):
        """Y <- L⁻¹Y without the unit, where rows before `start` are 0; see `_solve`."""
        solve = solve or _solve
        with device_of(y):
            for rows, columns, tile in self.store.blocks(start):
                if rows == columns:
                    solve(tile.widen(y.dtype), y[rows], False)
                else:
                    add_product(y[rows], tile, y[columns], -1.0)
        return y

    def _backward(self, y, start=0, stop=None, solve=None):
        """Y <- L⁻'Y without the unit, in rows from `start` on, where rows from `stop` on are 0."""
        solve = solve or _solve
        with device_of(y):
            for rows, columns, tile in self.store.blocks(start, True, stop):
                if rows == columns:
                    solve(tile.widen(y.dtype), y[rows], True)
                else:
                    add_product(y[columns], tile, y[rows], -1.0, transposed=True)
        return y

    @gpu_memory()
    def inverse_columns(self, columns, dtype=np.float64):
        """See `_Ordered.inverse_columns`; all panels take ⅓ of the operations of plain solves."""
        first = columns.start
        y = self._units(columns, dtype, self._unit**-2)
        with _shared(y) as solve:
            y = self._backward(self._forward(y, first, solve), first, solve=solve)
        return _from_row(first, on_host(y))

    @gpu_memory()
    def congruence_columns(self, columns, names, add_products, dtype=np.float64):
        """Return {name: (L⁻¹ A L⁻ᵀ)[f:, f:l]} of symmetric matrices A, for columns f to l.

        ``add_products(z, found)`` writes Az to ``found[name]``, which is 0, in the factor's order,
        for an (n, l - f) array on the host whose rows from l on are 0.
        """
        z = self._units(columns, dtype, self._unit**-2)
        with _shared(z) as solve:
            z = self._backward(z, stop=columns.stop, solve=solve)
        # side by side: one solve reads the tiles
        n, count = z.shape
        y = np.zeros((n, count * len(names)), dtype, order="F")
        parts = [slice(count * k, count * (k + 1)) for k in range(len(names))]
        add_products(
            on_host(z), {name: y[:, some] for name, some in zip(names, parts, strict=True)}
        )
        del z
        with _shared(y := self._beside(y)) as solve:
            y = on_host(self._forward(y, solve=solve))
        return {
            name: _from_row(columns.start, y[:, some])
            for name, some in zip(names, parts, strict=True)
        }

    def _units(self, columns, dtype, size):
        """Return columns of the unit matrix times a number, beside L."""
        first, count = columns.start, columns.stop - columns.start
        units = np.zeros((self.store.layout.n, count), dtype, order="F")
        units[first + np.arange(count), np.arange(count)] = size
        return self._beside(units)

    @gpu_memory()
    def multiply(self, x):
        """Return L x for (n, m), rows in the order of the locations."""
        x = self._beside(np.asfortranarray(x))
        with device_of(x):
            y = 0.0 * x
            for rows, columns, tile in self.store.blocks():
                add_product(y[rows], tile, x[columns], 1.0)
            y *= self._unit
        return self._unsorted(y)

    @gpu_memory()
    def dense(self, index=None, dtype=np.float64):
        """Return L, (n, n) in the factor's order, zeros above the diagonal, in FP64 or FP32.

        On the GPU `index`, where the tiles are, or in RAM.
        """
        n = self.store.layout.n
        if index is None:
            # memory is taken only for what is written below
            return self.into_dense(out=np.zeros((n, n), dtype, order="F"))
        lower = empty_matrix(n, index, dtype)
        with device_of(lower):
            lower[...] = 0.0
        return self.into_dense(index, out=lower)

    @gpu_memory()
    def into_dense(self, index=None, dtype=np.float64, out=None):
        """See `CholeskyFactor.into_dense`."""
        if out is None:
            return self.dense(index, dtype)
        lower, unit = out, out.dtype.type(self._unit)
        with device_of(lower):
            for rows, columns, tile in self.store.blocks():
                part = tile.widen(lower.dtype)
                part = part if index is not None else on_host(part)
                lower[rows, columns] = part if unit == 1 else part * unit
        return lower

    def _beside(self, b):
        """Return b on the device of L."""
        first = self.store.final(0, 0).values
        return backend_of(first).put(b, first)


def _solve(lower, y, transposed):
    """Y <- L⁻¹Y or L⁻'Y for one diagonal tile."""
    y[...] = recursive.trsm(lower, y, transposed)


@contextmanager
def _shared(y):
    """Share products and solves of many columns among geomxp's threads; yield their `_solve`.

    Between calls threads of BLAS would busy-wait on the cores that read tiles.
    """
    if backend_of(y).on_gpu:
        yield _solve
        return

    def solve(lower, block, transposed):
        blas.trsm(lower, block, side="L", trans="T" if transposed else "N")

    with blas.own_threads():
        yield solve


def _from_row(first, y):
    """Return y[first:] as an array in Fortran order, in the memory of y, which is overwritten."""
    n, m = y.shape
    flat, rows = y.reshape(-1, order="F"), n - first
    for column in range(m if first else 0):
        # towards the front: columns that follow are not overwritten
        flat[column * rows : (column + 1) * rows] = y[first:, column]
    return flat[: rows * m].reshape(rows, m, order="F")


def add_product(y, tile, x, alpha, transposed=False):
    """Y <- Y + αAX or Y + αA'X, for α of 1 or -1 and a tile A."""
    if isinstance(tile, LowRankTile):
        # U (V'X), or V (U'X), in place: sums of temporary arrays would take most of the time
        left, right = (tile.v, tile.values) if transposed else (tile.values, tile.v)
        left, right = (part.astype(y.dtype, copy=False) for part in (left, right))
        backend = backend_of(y)
        inner = backend.empty((right.shape[1], x.shape[1]), y.dtype, y)
        backend.gemm(inner, right.T, x, 1.0, 0.0)
        backend.gemm(y, left, inner, alpha)
        return
    if backend_of(y).on_gpu:
        # one call; CuPy's operators would allocate the product
        a = tile.widen(y.dtype).T if transposed else tile.widen(y.dtype)
        backend_of(y).gemm(y, a, x, alpha)
    elif alpha > 0:
        y += product(tile, x, transposed)
    else:
        y -= product(tile, x, transposed)


def product(tile, x, transposed=False):
    """Return AX or A'X for a tile A and (k, m), in X's type and in Fortran order."""
    backend = backend_of(x)
    if not backend.on_gpu and x.shape[1] == 1:
        found = backend.product_with_column(tile, x, transposed)
        if found is not None:
            return found
    a = tile.widen(x.dtype).T if transposed else tile.widen(x.dtype)
    if x.shape[1] == 1:
        # by gemv
        return a @ x
    # NumPy's own product is by rows
    return backend.gemm(backend.empty((len(a), x.shape[1]), x.dtype, x), a, x, 1.0, 0.0)
