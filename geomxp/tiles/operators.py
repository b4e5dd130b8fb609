"""What an iteration needs of a matrix and of its factor: products, and an approximate inverse."""

import numpy as np

from ..dense import blas, kernels
from ..errors import NotPositiveDefinite
from ..execution.devices import blas_threads, in_threads, usable_cores
from ..precision.formats import FP64


class Dense:
    """The tiles of D⁻¹AD⁻¹ + shift·I, times μ, for a matrix that is there: a source of originals.

    Parameters
    ----------
    a : (n, n) ndarray of FP64, Fortran order
        Its lower triangle is looked at.
    layout : Layout
    scaling : bool
        Whether D is √diag(A), or I.
    """

    exponent, index = 0, None

    def __init__(self, a, layout, scaling=True):
        self.a, self.layout, self.shift, self.multiple = a, layout, 0.0, 1.0
        diagonal = a.diagonal().copy()
        if not (np.isfinite(diagonal).all() and (diagonal > 0).all()):
            bad = int(np.flatnonzero(~(np.isfinite(diagonal) & (diagonal > 0)))[0])
            raise NotPositiveDefinite(f"diagonal entry {bad + 1} is {diagonal[bad]:g}", bad + 1)
        self.scale = np.sqrt(diagonal) if scaling else np.ones(len(a))

    def tile(self, i, k, form=FP64, careful=False, out=None):
        """Return a tile; see `assemble.Originals.tile`."""
        rows, columns = self.layout.rows(i), self.layout.rows(k)
        block = self.a[rows, columns]
        if i == k:
            block = np.tril(block) + np.tril(block, -1).T
        found = block * (np.sqrt(self.multiple) / self.scale[rows])[:, None]
        found *= np.sqrt(self.multiple) / self.scale[columns]
        if i == k:
            found[np.diag_indices(len(found))] += self.multiple * self.shift
        if out is None:
            return np.asfortranarray(found, dtype=form.dtype)
        out[...] = found
        return out

    def norms(self):
        """Return the Frobenius norms of all tiles; see `assemble.Originals.norms`."""
        return _norms(self)

    def multiply(self, x):
        """Return Ax and, when called with None, the largest sum of absolute values in a row."""
        n, step = len(self.a), 1024
        if x is None:
            sums = np.zeros(n)
            for j in range(0, n, step):
                part = np.abs(np.tril(self.a[j:, j : j + step]))
                sums[j:] += part.sum(axis=1)
                part[np.diag_indices(part.shape[1])] = 0.0
                sums[j : j + step] += part.sum(axis=0)
            return float(sums.max())
        with blas_threads(n), blas.cores(usable_cores()):
            return blas.symm(self.a, np.asfortranarray(x))


def _norms(originals):
    tiles = originals.layout.tiles
    norms = np.zeros((tiles, tiles))
    for i in range(tiles):
        for k in range(i + 1):
            norms[i, k] = np.linalg.norm(originals.tile(i, k))
    return norms


class Regenerated:
    """Products with Σ, whose tiles are generated, used twice and dropped.

    Parameters
    ----------
    originals : Originals
    """

    def __init__(self, originals):
        self.originals, self.layout = originals, originals.layout
        self._pairs = [(i, k) for i in range(self.layout.tiles) for k in range(i + 1)]

    def multiply(self, x):
        """Return Ax in FP64; with None the largest sum of absolute values in a row."""
        layout = self.layout
        parts = [np.zeros(layout.n if x is None else x.shape, order="F") for _ in self._hands()]

        def work(part, pairs):
            with blas.one_core():
                for i, k in pairs:
                    self._add(part, i, k, x)

        work_items = list(zip(parts, self._hands(), strict=True))
        with blas_threads(0):
            in_threads(lambda item: work(*item), work_items, layout.n**2 // 2)
        total = sum(parts)
        return float(total.max()) if x is None else total

    def _hands(self):
        cores = usable_cores()
        return [self._pairs[core::cores] for core in range(cores)]

    def _add(self, part, i, k, x):
        tile = self.originals.tile(i, k)
        rows, columns = self.layout.rows(i), self.layout.rows(k)
        if x is None:
            tile = np.abs(tile)
            part[rows] += tile.sum(axis=1)
            if i > k:
                part[columns] += tile.sum(axis=0)
            return
        part[rows] += tile @ x[columns]
        if i > k:
            part[columns] += tile.T @ x[rows]


class Preconditioner:
    """x -> (D L L' D)⁻¹x, in FP32 unless the factor is FP64.

    Parameters
    ----------
    store : store
        With all tiles of L final.
    scale : (n,) ndarray, optional
        D; I if not given.
    multiple : float
        L L' is so many times the matrix.
    """

    def __init__(self, store, scale=None, multiple=1.0):
        self.store, self.layout = store, store.layout
        self.scale, self.multiple = scale, multiple
        self.dtype = np.float64 if store.formats.all_fp64 else np.float32

    def __call__(self, b):
        """Return the product with the inverse, (n, m) in FP64."""
        d = 1.0 if self.scale is None else self.scale[:, None]
        y = b / d
        # powers of two: no digit changes, and FP32's range is not left
        largest = np.abs(y).max(axis=0)
        unit = 2.0 ** np.round(np.log2(np.where(largest > 0, largest, 1.0)))
        y = np.asfortranarray(y / unit, dtype=self.dtype)
        with blas_threads(0):
            self._forward(y)
            self._backward(y)
        return y.astype(np.float64) * (unit * self.multiple) / d

    def _forward(self, y):
        """Y <- L⁻¹Y, each block as soon as it is known used in all below."""
        layout = self.layout
        for j in range(layout.tiles):
            here = layout.rows(j)
            self._solve(self._wide(j, j), y, here, "N")

            def update(rows, j=j, here=here):
                for i in rows:
                    y[layout.rows(i)] -= self._wide(i, j) @ y[here]

            self._share(update, range(j + 1, layout.tiles))

    def _backward(self, y):
        """Y <- L⁻'Y."""
        layout = self.layout
        for j in reversed(range(layout.tiles)):
            here = layout.rows(j)

            def gather(rows, j=j):
                return sum((self._wide(i, j).T @ y[layout.rows(i)] for i in rows), 0.0)

            y[here] -= sum(self._share(gather, range(j + 1, layout.tiles)), 0.0)
            self._solve(self._wide(j, j), y, here, "T")

    @staticmethod
    def _solve(lower, y, here, trans):
        if isinstance(y, np.ndarray):
            blas.trsm(lower, y[here], side="L", trans=trans)
        else:
            y[here] = kernels.trsm(lower, y[here], transposed=trans == "T")

    def _share(self, work, rows):
        cores = usable_cores()
        parts = [rows[core::cores] for core in range(cores)]
        return in_threads(work, parts, len(rows) * self.layout.tile**2)

    def _wide(self, i, k):
        return self.store.final(i, k).widen(self.dtype)
