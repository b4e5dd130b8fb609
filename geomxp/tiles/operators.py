"""What an iteration needs of a matrix and of its factor: products, and an approximate inverse."""

import numpy as np

from ..dense import blas
from ..errors import NotPositiveDefinite
from ..execution.devices import blas_threads, in_threads, usable_cores
from ..precision.formats import FP64


class Dense:
    """H = D⁻¹AD⁻¹ of a matrix that is there; a source of the tiles of μ(H + shift·I).

    Parameters
    ----------
    a : (n, n) ndarray of FP64, Fortran order
        Its lower triangle is looked at.
    layout : Layout
    scaling : bool
        Whether D is √diag(A); else it is a number, a power of two near √‖A‖₂.

    Raises
    ------
    NotPositiveDefinite
        If an entry of the diagonal is not positive.
    """

    exponent, index = 0, None

    def __init__(self, a, layout, scaling=True):
        self.a, self.layout, self.shift, self.multiple = a, layout, 0.0, 1.0
        diagonal = a.diagonal().copy()
        wrong = np.flatnonzero(~(np.isfinite(diagonal) & (diagonal > 0)))
        if wrong.size:
            at = int(wrong[0])
            raise NotPositiveDefinite(f"diagonal entry {at + 1} is {diagonal[at]:g}", at + 1)
        self.scale = np.sqrt(diagonal)
        self._two_norm = 2.0 ** np.round(np.log2(self._largest_eigenvalue()))
        if not scaling:
            self.scale = np.full(len(a), np.sqrt(self._two_norm) * self._middle)
        self._norms = None

    def _largest_eigenvalue(self, steps=5):
        """Estimate ‖A‖₂ by the power method, over the square of a number near its scale."""
        self._middle = 2.0 ** np.round(np.log2(self.scale.max()))
        x = np.random.default_rng(0).standard_normal((len(self.a), 1))
        for _ in range(steps):
            x /= np.linalg.norm(x) * self._middle
            x = self._times(x) / self._middle
        return max(float(np.linalg.norm(x)), 1e-300)

    def tile(self, i, k, form=FP64, careful=False, out=None):
        """Return a tile; see `assemble.Originals.tile`."""
        from ..dense import symmetric

        rows, columns = self.layout.rows(i), self.layout.rows(k)
        if out is None:
            out = np.empty((self.layout.height(i), self.layout.height(k)), form.dtype, order="F")
        symmetric.scaled(self.a, rows.start, columns.start, self.scale, self.multiple, out, i == k)
        if i == k:
            out.reshape(-1, order="F")[:: len(out) + 1] += form.dtype.type(
                self.multiple * self.shift
            )
        return out

    def norms(self):
        """Return the Frobenius norms of all tiles; see `assemble.Originals.norms`."""
        tiles = self.layout.tiles
        norms = np.zeros((tiles, tiles))

        def measure(pair):
            norms[pair] = np.linalg.norm(self.tile(*pair))

        in_threads(measure, [(i, k) for i in range(tiles) for k in range(i + 1)], len(self.a) ** 2)
        return norms

    def infinity_norms(self):
        """Return ‖H‖∞, and ‖A‖∞ / ‖A‖₂ as far as the power method knows it."""
        from ..dense import symmetric

        if self._norms is None:
            n, step = len(self.a), 256
            starts = range(0, n, step)
            parts = [np.zeros((2, n)) for _ in range(usable_cores())]

            def work(core):
                for j in starts[core :: len(parts)]:
                    symmetric.row_sums(self.a, j, min(j + step, n), self.scale, parts[core])

            in_threads(work, range(len(parts)), n * n // 2)
            scaled, plain = sum(parts).max(axis=1)
            self._norms = float(scaled), float(plain / self._middle / self._middle / self._two_norm)
        return self._norms

    def _times(self, x):
        with blas_threads(len(self.a)), blas.cores(usable_cores()):
            return blas.symm(self.a, np.asfortranarray(x))

    def multiply(self, x):
        """Return Hx in FP64; with None ‖H‖∞."""
        if x is None:
            return self.infinity_norms()[0]
        return self._times(x / self.scale[:, None]) / self.scale[:, None]

    def original(self, b):
        """Return how residuals and solutions of H look in A, with A over ‖A‖₂ and max|b| = 1.

        Parameters
        ----------
        b : (n, m) ndarray
            In the units of A.

        Returns
        -------
        callable, callable
            r to ‖b - Ax‖∞ / (n ‖A‖∞), and x to max|x|, by columns.
        """
        largest = np.abs(b).max(axis=0)
        largest = np.where(largest > 0, largest, 1.0)
        norm = len(b) * self.infinity_norms()[1]
        forth = self.scale[:, None] / largest
        back = self._two_norm * self._middle / self.scale[:, None] * (self._middle / largest)
        return (
            lambda r: np.abs(r * forth).max(axis=0) / norm,
            lambda x: np.abs(x * back).max(axis=0),
        )


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
    """x -> μ (L L')⁻¹x, in FP32 unless the factor is FP64.

    Parameters
    ----------
    store : store
        With all tiles of L final.
    multiple : float
        L L' is so many times the matrix.
    """

    def __init__(self, store, multiple=1.0):
        self.store, self.layout, self.multiple = store, store.layout, multiple
        self.dtype = np.float64 if store.formats.all_fp64 else np.float32

    def __call__(self, b):
        """Return the product with the inverse, (n, m) in FP64."""
        # powers of two: no digit changes, and FP32's range is not left
        largest = np.abs(b).max(axis=0)
        unit = 2.0 ** np.round(np.log2(np.where(largest > 0, largest, 1.0)))
        y = np.asfortranarray(b / unit, dtype=self.dtype)
        with blas_threads(0):
            self._forward(y)
            self._backward(y)
        return y.astype(np.float64) * (unit * self.multiple)

    def _forward(self, y):
        """Y <- L⁻¹Y, each block as soon as it is known used in all below."""
        layout = self.layout
        for j in range(layout.tiles):
            here = layout.rows(j)
            blas.trsm(self._wide(j, j), y[here], side="L", trans="N")

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
            blas.trsm(self._wide(j, j), y[here], side="L", trans="T")

    def _share(self, work, rows):
        cores = usable_cores()
        parts = [rows[core::cores] for core in range(cores)]
        return in_threads(work, parts, len(rows) * self.layout.tile**2)

    def _wide(self, i, k):
        return self.store.final(i, k).widen(self.dtype)
