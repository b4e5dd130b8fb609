"""FP64 solutions from low-precision factors: iterative refinement, CG and GMRES.

Abdelfattah, Tomov & Dongarra (2020): scale A to a unit diagonal, H = D⁻¹AD⁻¹; shift it if
necessary, G = H + c·u·I; factor G mostly in FP16; use the factor as the preconditioner of an
iteration on A itself with FP64 residuals. This refines solutions, and with them quadratic forms and
kriging weights. It does not refine the log-determinant, which remains that of the factor.

All columns of b are iterated together, so that one product with A serves them all; each has its own
scalars. A column that has converged is not changed again.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np

from ..errors import (
    Ending,
    InvalidInput,
    NotPositiveDefinite,
    NotRefined,
    Outcome,
    brief_repr,
    is_finite,
)
from ..linalg import blas, recursive
from ..linalg.backend import as_array, backend_of, device_of
from ..linalg.formats import FP32, FP64, Tile
from ..linalg.mixed import solver
from ..linalg.precision import Uniform, as_rule, uniform
from ..linalg.views import contiguous
from ..runtime.devices import blas_threads, gpu_memory, in_threads, share, usable_cores
from ..runtime.equality import by_content
from .assemble import norms_of
from .cholesky import factorize
from .factor import Factor, add_product, on_host
from .layout import Layout
from .placement import Placement

if TYPE_CHECKING:
    from .._typing import Any, ArrayLike, Callable, Document, Floats, Iterable
    from ..linalg.precision import Rule

    Operator = Callable[[Floats], Floats]

GMRES_BASIS_VECTORS = 60
"""Vectors that GMRES keeps before it restarts."""

PATIENCE_ITERATIONS = {"ir": 6, "cg": 60, "gmres": 2 * GMRES_BASIS_VECTORS}
"""Iterations without halving of the residual after which a method stops."""


class Progress:
    """Residual history of an iteration, and its stopping rule.

    Each of the views returns of (r, x), by columns, the residual in the units of the tolerance, and
    the residual at the level of rounding. `patience` is that of `PATIENCE_ITERATIONS`; where all
    residuals are rounding errors, that of "ir" suffices.
    """

    def __init__(
        self, views: tuple[Callable[..., Any], ...], tolerance: float, limit: int, patience: int
    ) -> None:
        self.views, self.tolerance, self.limit, self.patience = views, tolerance, limit, patience
        self.history, self.iterations, self.ending = [], 0, None
        # the smallest residual, its solution, and whether it is rounding
        self._best = np.inf, None, False

    def measure(self, residual: Floats) -> Floats:
        """Return the residual of each column, the largest one of all views."""
        return np.max([view(residual, residual)[0] for view in self.views], axis=0)

    def enough(self, x: Floats) -> Floats:
        """Return a sufficient residual of each column: the tolerance, or the size of rounding."""
        return np.min([np.maximum(self.tolerance, view(x, x)[1]) for view in self.views], axis=0)

    def accept(self, residual: Floats, x: Floats) -> Any:
        """Return which columns have converged, in all views."""
        views = [view(residual, x) for view in self.views]
        return np.all(
            [value <= np.maximum(self.tolerance, floor) for value, floor in views], axis=0
        )

    def good(self, residual: Floats, x: Floats) -> Any:
        """Record the true residuals; return which columns have converged."""
        values = self.measure(residual)
        self.history.append((self.iterations, float(np.max(values, initial=0.0))))
        good = self.accept(residual, x)
        self._all = bool(good.all())
        if not self.history[-1][1] >= self._best[0]:
            self._best = self.history[-1][1], x, self.is_rounding(residual, x)
        return good

    def is_rounding(self, residual: Floats, x: Floats) -> bool:
        """Return whether all residuals are within the rounding errors of b - Ax.

        Higham (2002), section 3.5: these are at most γ_n (‖b‖ + ‖A‖‖x‖) <= 2 γ_n ‖A‖‖x‖; with √n
        for n, as rounding errors are signed.
        """
        most = 8.0 * np.sqrt(len(x))
        views = [view(residual, x) for view in self.views]
        return all(bool((value <= most * floor).all()) for value, floor in views)

    def go_on(self) -> bool:
        """Return whether to continue; otherwise `ending` has the reason."""
        values = [value for _, value in self.history]
        patience = PATIENCE_ITERATIONS["ir"] if self._best[2] else self.patience
        if self._all:
            self.ending = "converged"
        elif not np.isfinite(values[-1]) or values[-1] > 1e3 * values[0]:
            self.ending = "diverged"
        elif min(values[-patience:]) > 0.5 * min(values[:-patience], default=np.inf):
            self.ending = "stalled"
        elif self.iterations >= self.limit:
            self.ending = "limit"
        return self.ending is None

    def settle(self, x: Floats, residual_of: Operator) -> Floats:
        """Return the last solution, or the best of an iteration that did not meet the tolerance.

        The best has converged if its true residual is at the level of rounding.
        """
        if self.ending == "converged" or self._best[1] is None:
            return x
        x = self._best[1]
        residual = residual_of(x)
        self.history.append((self.iterations, float(np.max(self.measure(residual)))))
        if self.is_rounding(residual, x):
            self.ending = "converged"
        return x


# Methods: `multiply` returns Ax in FP64, `precondition` M⁻¹r, and the method x, (n, m) as b.


def classic(multiply: Operator, precondition: Operator, b: Floats, progress: Progress) -> Floats:
    """Solve by iterative refinement: x <- x + M⁻¹(b - Ax)."""
    x = precondition(b)
    progress.iterations = 1
    while True:
        residual = b - multiply(x)
        good = progress.good(residual, x)
        if not progress.go_on():
            return progress.settle(x, lambda x: b - multiply(x))
        x = x + np.where(good, 0.0, precondition(residual))
        progress.iterations += 1


def conjugate_gradients(
    multiply: Operator, precondition: Operator, b: Floats, progress: Progress
) -> Floats:
    """Solve by preconditioned conjugate gradients, Hestenes & Stiefel (1952)."""
    x, residual = np.zeros_like(b), b.copy()
    z = precondition(residual)
    p, rho = z, np.sum(residual * z, axis=0)
    good = progress.good(residual, x)
    while progress.go_on():
        q = multiply(p)
        with np.errstate(invalid="ignore", divide="ignore"):
            alpha = np.where(good, 0.0, rho / np.sum(p * q, axis=0))
        x = x + alpha * p
        residual = residual - alpha * q
        progress.iterations += 1
        if progress.accept(residual, x).all() or not progress.iterations % 20:
            # the updated residual drifts from the true one
            residual = b - multiply(x)
        good = progress.good(residual, x)
        z = precondition(residual)
        rho, before = np.sum(residual * z, axis=0), rho
        with np.errstate(invalid="ignore", divide="ignore"):
            p = z + np.where(good, 0.0, rho / before) * p
    return progress.settle(x, lambda x: b - multiply(x))


def gmres(multiply: Operator, precondition: Operator, b: Floats, progress: Progress) -> Floats:
    """Solve by flexible GMRES with M on the right, Saad (1993), algorithm 2.2.

    M⁻¹ is applied in FP32 and is therefore not exactly linear: the flexible form keeps each M⁻¹v.
    The true residual is computed when the estimate has converged.
    """
    x, residual = np.zeros_like(b), b
    good = progress.good(residual, x)
    while progress.go_on():
        step, estimates = _cycle(multiply, precondition, x, residual, good, progress)
        x = x + step * ~good
        residual = b - multiply(x)
        progress.history += estimates
        good = progress.good(residual, x)
    return progress.settle(x, lambda x: b - multiply(x))


def _cycle(multiply, precondition, x, residual, good, progress):
    """Return δx after one cycle of Arnoldi's process, and the estimated residuals."""
    norms = np.linalg.norm(residual, axis=0)
    safe = np.where(norms > 0, norms, 1.0)
    basis, directions = [residual / safe], []
    h = np.zeros((GMRES_BASIS_VECTORS + 1, GMRES_BASIS_VECTORS, residual.shape[1]))
    # estimate of measure / Euclidean norm, from the residual at the start of the cycle
    ratio = progress.measure(residual) / safe
    estimates = []
    for k in range(min(GMRES_BASIS_VECTORS, max(1, progress.limit - progress.iterations))):
        directions.append(precondition(basis[k]))
        w = multiply(directions[k])
        # twice, for orthogonality to machine precision
        for _ in range(2):
            for j, v in enumerate(basis):
                part = np.sum(v * w, axis=0)
                h[j, k] += part
                w = w - part * v
        h[k + 1, k] = np.linalg.norm(w, axis=0)
        progress.iterations += 1
        y, residuals = _least_squares(h[: k + 2, : k + 1], norms)
        step = sum(z * c for z, c in zip(directions, y, strict=True))
        estimate = float(np.max(np.where(good, 0.0, residuals * ratio), initial=0.0))
        if estimate <= 0.5 * progress.enough(x + step).min() or not np.isfinite(estimate):
            break
        estimates.append((progress.iterations, estimate))
        basis.append(w / np.where(h[k + 1, k] > 0, h[k + 1, k], 1.0))
    return step, estimates


def _least_squares(h, norms):
    """Return the columns y that minimize ‖norm e₁ - H y‖, and these minima."""
    rows, columns, m = h.shape
    y, residuals = np.zeros((columns, m)), np.zeros(m)
    for j in range(m):
        e = np.zeros(rows)
        e[0] = norms[j]
        y[:, j], *_ = np.linalg.lstsq(h[:, :, j], e, rcond=None)
        residuals[j] = np.linalg.norm(e - h[:, :, j] @ y[:, j])
    return y, residuals


REFINEMENT_METHODS = {"ir": classic, "cg": conjugate_gradients, "gmres": gmres}


# Operators: products with the matrix, and with an approximate inverse.


def _largest(b):
    """Return max|b| of each column, 1 for zeros."""
    largest = np.abs(b).max(axis=0)
    return np.where(largest > 0, largest, 1.0)


class _kept:  # noqa: N801 (used as a function)
    """A property that is computed once.

    `functools.cached_property` of Python 3.11 computes those of all instances under one lock, and a
    thread that waits for it would hold the turn at BLAS that the thread with the lock may need.
    """

    def __init__(self, compute):
        self.compute = compute

    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        value = instance.__dict__[self.name] = self.compute(instance)
        return value


class Dense:
    """H = D⁻¹AD⁻¹ of a dense matrix A; generates the tiles of μ(H + shift·I).

    Only the lower triangle of A, in Fortran order, is read. D is √diag(A) with `scaling`, otherwise
    a scalar, a power of two near √‖A‖₂. Raises `NotPositiveDefinite` if an entry of the diagonal is
    not positive.
    """

    exponent, index = 0, None

    def __init__(self, a: Floats, layout: Layout, scaling: bool = True) -> None:
        self.a, self.layout, self.shift, self.multiple = a, layout, 0.0, 1.0
        diagonal = on_host(a.diagonal()).astype(np.float64)
        wrong = np.flatnonzero(~(np.isfinite(diagonal) & (diagonal > 0)))
        if wrong.size:
            at = int(wrong[0])
            raise NotPositiveDefinite(f"diagonal entry {at + 1} is {diagonal[at]:g}", at + 1)
        self.scale = np.sqrt(diagonal)
        self._two_norm = 2.0 ** np.round(np.log2(self._largest_eigenvalue()))
        if not scaling:
            self.scale = np.full(len(a), np.sqrt(self._two_norm) * self._middle)

    def _largest_eigenvalue(self, steps=5):
        """Estimate ‖A‖₂ by the power method, in units of the square of `_middle`."""
        self._middle = 2.0 ** np.round(np.log2(self.scale.max()))
        x = np.random.default_rng(0).standard_normal((len(self.a), 1))
        for _ in range(steps):
            x /= np.linalg.norm(x) * self._middle
            x = self._times(x) / self._middle
        return max(float(np.linalg.norm(x)), 1e-300)

    def tile(
        self, i: int, k: int, form: Any = FP64, careful: bool = False, out: Floats | None = None
    ) -> Floats:
        """Return a tile; see `assemble.Originals.tile`."""
        from ..linalg import loops

        rows, columns = self.layout.rows(i), self.layout.rows(k)
        if out is None:
            out = np.empty(self.layout.shape(i, k), form.dtype, order="F")
        loops.scaled(self.a, rows.start, columns.start, self.scale, self.multiple, out, i == k)
        if i == k:
            out.reshape(-1, order="F")[:: len(out) + 1] += form.dtype.type(
                self.multiple * self.shift
            )
        return out

    def norms(self) -> Floats:
        """Return the Frobenius norms of all tiles; see `assemble.norms_of`."""
        return norms_of(self)

    def squares(self, pairs: list[tuple[int, int]]) -> list[float]:
        """Return the squared Frobenius norms of tiles."""

        def square(pair):
            entries = self.tile(*pair).reshape(-1, order="F")
            return entries @ entries

        return in_threads(square, pairs, len(self.a) ** 2)

    @_kept
    def _infinity_norms(self):
        """‖H‖∞, and ‖A‖∞ / ‖A‖₂ with ‖A‖₂ from the power method."""
        from ..linalg import loops

        n, step = len(self.a), 256
        starts = range(0, n, step)
        parts = [np.zeros((2, n)) for _ in range(usable_cores())]

        def work(core):
            for j in starts[core :: len(parts)]:
                loops.row_sums(self.a, j, min(j + step, n), self.scale, parts[core])

        in_threads(work, range(len(parts)), n * n // 2)
        scaled, plain = sum(parts).max(axis=1)
        return float(scaled), float(plain / self._middle / self._middle / self._two_norm)

    def _times(self, x):
        with blas_threads(len(self.a)), blas.cores(usable_cores()):
            return blas.symm(self.a, np.asfortranarray(x))

    @property
    def norm(self) -> float:
        """‖H‖∞."""
        return self._infinity_norms[0]

    def multiply(self, x: Floats) -> Floats:
        """Return Hx in FP64."""
        return self._times(x / self.scale[:, None]) / self.scale[:, None]

    def original(self, b: Floats) -> tuple[Operator, Operator]:
        """Return norms of residuals and solutions of H in the units of A, by columns.

        They map r to ‖b - Ax‖∞ / (n ‖A‖∞), and x to max|x|, with A scaled to ‖A‖₂ = 1 and the
        right-hand sides b of A, (n, m), to max|b| = 1.
        """
        largest = _largest(b)
        norm = len(b) * self._infinity_norms[1]
        forth = self.scale[:, None] / largest
        back = self._two_norm * self._middle / self.scale[:, None] * (self._middle / largest)
        return (
            lambda r: np.abs(r * forth).max(axis=0) / norm,
            lambda x: np.abs(x * back).max(axis=0),
        )


class DenseOnGpu(Dense):
    """`Dense` for a CuPy array in FP64 or FP32, of any layout, on its GPU.

    Vectors are NumPy arrays. Raises also `InvalidInput` if A is not finite.
    """

    def __init__(self, a: Any, layout: Layout, scaling: bool = True) -> None:
        self.index = backend_of(a).index(a)
        with np.errstate(invalid="ignore", over="ignore"):
            super().__init__(a, layout, scaling)
        if not np.isfinite(self._two_norm):
            raise InvalidInput("`a` contains a NaN or an infinity, or its products overflow.")
        # here, and not when a tile first needs it: other streams read it
        self._reciprocal = self._put(1.0 / self.scale)

    def _put(self, x):
        return backend_of(self.a).put(x, self.a)

    def tile(
        self,
        i: int,
        k: int,
        form: Any = FP64,
        careful: bool = False,
        out: Any = None,
        missed: Any = None,
    ) -> Any:
        """Return a tile; see `assemble.Originals.tile`."""
        from ..linalg.gpu import combine

        rows, columns, d = self.layout.rows(i), self.layout.rows(k), self._reciprocal
        if out is None:
            out = backend_of(self.a).empty(self.layout.shape(i, k), form.dtype, self.a)
        scale = {} if d is None else {"rows": d[rows], "columns": d[columns]}
        combine(out, self.a[rows, columns], self.multiple, lower=i == k, **scale)
        if i == k:
            with device_of(out):
                recursive.mirror(out)
                out.reshape(-1, order="F")[:: len(out) + 1] += self.multiple * self.shift
        return out

    def missed_pairs(self, tiles: int) -> Any:
        """Return zeros; see `assemble.Originals.missed_pairs`."""
        return backend_of(self.a).zeros((tiles, 1), np.int32, self.a)

    def extend(self) -> bool:
        """Return False: the entries are given, and come from no table."""
        return False

    def squares(self, pairs: list[tuple[int, int]]) -> list[float]:
        """Return the squared Frobenius norms of tiles."""
        totals = backend_of(self.a).zeros(len(pairs), np.float64, self.a)
        with device_of(self.a):
            for number, pair in enumerate(pairs):
                entries = self.tile(*pair)
                totals[number] = (entries * entries).sum()
        return on_host(totals).tolist()

    @_kept
    def _infinity_norms(self):
        unscaled = Regenerated(_Unscaled(self)).norm
        return Regenerated(self._not_shifted()).norm, unscaled / self._middle**2 / self._two_norm

    def _not_shifted(self):
        other = copy(self)
        other.shift, other.multiple = 0.0, 1.0
        return other

    def _times(self, x):
        return Regenerated(_Unscaled(self)).multiply(x)


class _Unscaled(DenseOnGpu):
    """The tiles of A itself; those off the diagonal are views of A where they can be."""

    def __init__(self, source):
        self.a, self.layout, self.index = source.a, source.layout, source.index
        self.shift, self.multiple, self._reciprocal = 0.0, 1.0, None

    def tile(self, i, k, form=FP64, careful=False, out=None, missed=None):
        view = self.a[self.layout.rows(i), self.layout.rows(k)]
        if i == k or out is not None or view.dtype != form.dtype or not contiguous(view):
            return super().tile(i, k, form, out=out)
        return view


class Regenerated:
    """Products with Σ, whose tiles are generated, used twice and discarded, on their device.

    Vectors are NumPy arrays.
    """

    def __init__(self, originals: Any) -> None:
        self.originals, self.layout = originals, originals.layout

    @_kept
    def norm(self) -> float:
        """Return ‖A‖∞."""

        def add(part, i, k, tile):
            tile = abs(tile)
            part[self.layout.rows(i)] += tile.sum(axis=1)
            if i > k:
                part[self.layout.rows(k)] += tile.sum(axis=0)

        return float(self._sum(add, self.layout.n).max())

    @gpu_memory()
    def multiply(self, x: Floats) -> Floats:
        """Return Ax in FP64."""
        index = self.originals.index
        if index is not None:
            import cupy

            with cupy.cuda.Device(index):
                x = cupy.asfortranarray(cupy.asarray(x))

        def add(part, i, k, tile):
            rows, columns, tile = self.layout.rows(i), self.layout.rows(k), Tile(FP64, tile)
            add_product(part[rows], tile, x[columns], 1.0)
            if i > k:
                add_product(part[columns], tile, x[rows], 1.0, transposed=True)

        return self._sum(add, x.shape)

    def _sum(self, add, shape):
        """Call add(part, i, k, tile) for all tiles, in threads or on a GPU; return the parts' sum.

        It is a NumPy array.
        """
        if self.originals.index is not None:
            return self._sum_on_gpu(add, shape)
        cores = usable_cores()

        def work(core):
            part = np.zeros(shape, order="F")
            with blas.one_core():
                for i, k in self.layout.lower[core::cores]:
                    add(part, i, k, self.originals.tile(i, k))
            return part

        with blas_threads(0):
            return sum(in_threads(work, range(cores), self.layout.n**2 // 2))

    @gpu_memory()
    def _sum_on_gpu(self, add, shape):
        import cupy

        originals, lower = self.originals, self.layout.lower
        with cupy.cuda.Device(originals.index):
            while True:
                part, missed = cupy.zeros(shape, order="F"), originals.missed_pairs(len(lower))
                for (i, k), wrong in zip(lower, missed, strict=True):
                    add(part, i, k, originals.tile(i, k, missed=wrong))
                if not (missed.any() and originals.extend()):
                    return on_host(part)


LEAST_SHARED_MULTIPLICATIONS = 10**6
"""Multiplications of a tile's product below which threads do not gain: with one column of 512."""


class Preconditioner:
    """x -> μ (L L')⁻¹x, in FP32 unless the factor is FP64; all tiles of L are final.

    Tiles in the memory of a GPU solve there; parts of the diagonal tiles are then inverted once.
    Other tiles, those in RAM behind a GPU among them, solve on the CPU.
    """

    def __init__(self, store: Any, multiple: float = 1.0) -> None:
        self.store, self.layout, self.multiple = store, store.layout, multiple
        first = store.final(0, 0).values
        self._like = first if backend_of(first).on_gpu else None
        self.dtype = np.float64 if store.formats.all_fp64 else np.float32
        self._triangle = cache(lambda k: solver(store.final(k, k), {FP32}))

    @gpu_memory()
    def __call__(self, b: Floats) -> Floats:
        """Return the product with the inverse, (n, m) in FP64."""
        # powers of two: exact, and within FP32's range
        unit = 2.0 ** np.round(np.log2(_largest(b)))
        y = np.asfortranarray(b / unit, dtype=self.dtype)
        if self._like is not None:
            y = backend_of(self._like).put(y, self._like)
        with blas_threads(0), device_of(y):
            self._forward(y)
            self._backward(y)
        return on_host(y).astype(np.float64) * (unit * self.multiple)

    def _forward(self, y):
        """Y <- L⁻¹Y, each block subtracted from all blocks below as soon as it is known."""
        layout = self.layout
        for j in range(layout.tiles):
            block = layout.rows(j)
            self._solve(j, y[block], transposed=False)

            def update(rows, j=j, block=block):
                for i in rows:
                    add_product(y[layout.rows(i)], self.store.final(i, j), y[block], -1.0)

            self._share(update, range(j + 1, layout.tiles), y)

    def _backward(self, y):
        """Y <- L⁻'Y."""
        layout, backend = self.layout, backend_of(y)
        for j in reversed(range(layout.tiles)):
            block = layout.rows(j)

            def gather(rows, j=j, block=block):
                part = backend.zeros(y[block].shape, y.dtype, y)
                for i in rows:
                    tile = self.store.final(i, j)
                    add_product(part, tile, y[layout.rows(i)], 1.0, transposed=True)
                return part

            y[block] -= sum(self._share(gather, range(j + 1, layout.tiles), y), 0.0)
            self._solve(j, y[block], transposed=True)

    def _share(self, work, rows, y):
        """Return the results of threads, which share the block rows; a GPU does not need them.

        Where the product of a tile takes a few dozen microseconds, threads would mostly wait for
        the interpreter's lock.
        """
        brief = self.layout.tile**2 * y.shape[1] < LEAST_SHARED_MULTIPLICATIONS
        cores = 1 if brief or backend_of(y).on_gpu else max(1, min(usable_cores(), len(rows)))
        # in this order, so that sums have the same bits in every run
        results = [None] * cores

        def put(core):
            results[core] = work(rows[core::cores])

        share(put, range(cores), cores)
        return results

    def _solve(self, k, block, transposed):
        """Y_k <- L_kk⁻¹Y_k, or L_kk⁻'Y_k."""
        if not backend_of(block).on_gpu:
            blas.trsm(self._wide(k), block, side="L", trans="T" if transposed else "N")
        elif block.dtype == np.float64:
            block[...] = recursive.trsm(self._wide(k), block, transposed)
        else:
            # L Y = B is Y'L' = B'
            rows = recursive.Rows(block.T, ())
            recursive.solve(self._triangle(k), rows, slice(0, len(block)), not transposed)

    def _wide(self, k):
        return self.store.final(k, k).widen(self.dtype)


# Solvers.


RESIDUAL_TOLERANCE = 1e-14
ROUNDING_TOLERANCE = 1e-18
"""A tolerance at the level of FP64's rounding, for quadratic forms of a likelihood."""

MOST_ITERATIONS = 200

ENDINGS_AND_ADVICE = {
    "converged": (Ending.CONVERGED, ""),
    "stalled": (
        Ending.STALLED,
        "the residual no longer decreases: use a finer factor, a shift, or gmres",
    ),
    "diverged": (Ending.STALLED, "the iteration diverges: use a finer factor, or gmres"),
    "limit": (Ending.EVALUATION_LIMIT, "allow more iterations, or use a finer factor"),
}


@by_content
@dataclass(frozen=True)
class Refinement:
    """A refined solution, with the report of its iteration.

    Parameters
    ----------
    solution : (n,) or (n, m) ndarray
        A NumPy array, or a CuPy array if the matrix is one.
    iterations : int
        Applications of the preconditioner.
    residual : float
        The largest ‖b - Ax‖∞ / (n ‖A‖∞) of all columns, with b scaled to max|b| = 1 and A to ‖A‖₂
        near 1; or that of the scaled system of the iteration, if it is larger.
    outcome : Outcome
    history : tuple of (int, float)
        Number of iterations, and the residual then (for GMRES partly estimates).
    method : str
    formats : dict of str to int
        Tiles of the factor in each format.
    shift : float
        c·u.
    scaled : bool
        Whether the matrix was scaled to a unit diagonal.
    """

    solution: Floats
    iterations: int
    residual: float
    outcome: Outcome
    history: tuple[Any, ...]
    method: str
    formats: dict[str, int]
    shift: float = 0.0
    scaled: bool = True

    def __repr__(self) -> str:
        return f"<Refinement by {self.method}: {self.outcome.ending}, residual {self.residual:.3g}>"

    def summary(self) -> Document:
        """Return the same as a dict for JSON, without the solution."""
        return {
            "method": self.method,
            "iterations": self.iterations,
            "residual": self.residual,
            "outcome": str(self.outcome.ending),
            "refined": ["solve", "quadratic_form"],
            "not_refined": ["log_determinant"],
        }


def refined(
    matrix: Any,
    precondition: Operator,
    b: Floats,
    *,
    method: str = "gmres",
    tolerance: float = RESIDUAL_TOLERANCE,
    limit: int = MOST_ITERATIONS,
    also: tuple[Operator, Operator] | None = None,
) -> tuple[Floats, Progress]:
    """Solve Ax = b, b (n,) or (n, m), with a preconditioner, to FP64's accuracy.

    ``matrix.multiply(x)`` is Ax in FP64, and ``matrix.norm`` is ‖A‖∞.

    The tolerance bounds ‖b - Ax‖∞ / (n ‖A‖∞), with b scaled to max|b| = 1. A residual at the level
    of rounding, ‖b - Ax‖∞ ≤ 2^-53 ‖A‖∞ ‖x‖∞, is accepted as well, and 8√n times as much where the
    iteration stalls. `also` has norms of residuals and solutions in another system, which must meet
    the tolerance too: see `Dense.original`. Returns the solution and its `Progress`.
    """
    if method not in REFINEMENT_METHODS:
        raise InvalidInput(
            f"`method` must be one of: {', '.join(REFINEMENT_METHODS)}. Got {method!r}."
        )
    columns = b.reshape(len(b), -1)
    unit = 2.0 ** np.round(np.log2(_largest(columns)))
    norm = len(b) * matrix.norm

    def scaled(r, x):
        return np.abs(r).max(axis=0) / norm, 2.0**-53 * np.abs(x).max(axis=0) / len(b)

    def original(r, x):
        return also[0](r * unit), 2.0**-53 * also[1](x * unit) / len(b)

    views = (scaled,) if also is None else (scaled, original)

    progress = Progress(views, tolerance, limit, PATIENCE_ITERATIONS[method])
    x = REFINEMENT_METHODS[method](matrix.multiply, precondition, columns / unit, progress)
    return (x * unit).reshape(b.shape), progress


MEMORY_REMEDY = "choose a coarser `precision`, or solve on the CPU (cupy.asnumpy(a))."
"""Remedy where a GPU's memory is exhausted."""


@gpu_memory(MEMORY_REMEDY)
def solve(
    a: ArrayLike,
    b: ArrayLike,
    precision: Rule | None = None,
    *,
    method: str = "gmres",
    scaling: bool | None = None,
    shift: float | None = None,
    range_scaling: float | None = None,
    tolerance: float = RESIDUAL_TOLERANCE,
    iterations: int = MOST_ITERATIONS,
    tile: int | None = None,
    fallback: bool = False,
) -> Refinement:
    """Solve Ax = b for a symmetric positive definite A, factored in coarse formats.

    Parameters
    ----------
    a : (n, n) array_like, or CuPy array
        Only the lower triangle is read. A CuPy array is factored, and multiplied, on its GPU; in
        FP64 or FP32 it is not copied.
    b : (n,) or (n, m) array_like, or CuPy array
    precision : callable, optional
        A rule of `geomxp.linalg.precision`; `uniform("fp16")` if not given. The paper's factor is
        `uniform("fp32-fp16")`: products in FP16, L stored in FP32. `uniform("bf16")` is faster on
        CPUs that multiply BF16 (`geomxp info`), but matrices that are nearly singular relative to
        BF16's roundoff, 2⁻⁸, cannot be factored in it without a larger shift.
    method : {"ir", "cg", "gmres"}
    scaling : bool, optional
        Iterate on D⁻¹AD⁻¹, with a unit diagonal; otherwise on A / ‖A‖₂, up to a power of two.
    shift : float, optional
        c ≥ 0: add c·u to the diagonal before the factorization, u the unit roundoff of the
        coarsest format. If scaling and shift are both left out, these settings are tried until the
        iteration converges: scaled with c = 0, scaled with 0.4, not scaled with 0.4, scaled with
        10. If only scaling is given, c is 0, 0.4 and 10; if only shift is given, scaled and then
        not scaled. Each setting takes a factorization.
    range_scaling : float, optional
        θ: multiply by θ·x_max/(1 + c·u), rounded to a power of two, x_max the largest FP16 number.
        Only rules with ``scale=False`` need it: the others scale each tile. Not on a GPU, whose
        solves in FP16 need entries near 1.
    tolerance : float
        Bound of `Refinement.residual`; see `refined`.
    iterations : int
        Largest number of iterations.
    tile : int, optional
        Rows of a tile; chosen by n if not given.
    fallback : bool
        If the iteration fails, factor again in finer formats and finally in FP64.

    Returns
    -------
    Refinement
        Its outcome tells whether the tolerance is met. Its solution is on the device of `a`.

    Raises
    ------
    InvalidInput
        If `a` is not square, `a` or `b` is not real and finite, or an option is not valid.
    MissingDevice
        If `a` or `b` is on a GPU, and there is no CuPy.
    NotEnoughMemory
        If the factor does not fit beside A.
    NotPositiveDefinite
        If A has no factor in these formats, nor in finer ones with `fallback`.

    Examples
    --------
    >>> a = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> result = solve(a, np.array([4.0, 7.0]))
    >>> bool(np.allclose(result.solution, [1.0, 2.0], rtol=1e-13)), str(result.outcome.ending)
    (True, 'CONVERGED')
    """
    a, b = _checked(a, b)
    _check_options(method, shift, range_scaling, tolerance, iterations)
    index = backend_of(a).index(a)
    if index is not None and range_scaling is not None:
        raise InvalidInput("`range_scaling` is for matrices on the CPU: leave it out.")
    rule = uniform("fp16") if precision is None else precision
    if not callable(rule):
        raise InvalidInput(f"`precision` must be a rule, such as uniform('fp16'). Got {rule!r}.")
    kind, on = (Dense, "cpu") if index is None else (DenseOnGpu, f"gpu:{index}")
    placement = Placement.of(on)
    sources = cache(partial(kind, a, placement.layout(len(a), tile)))
    attempts = product(_attempts(rule, fallback), _settings(scaling, shift))
    iteration = {"method": method, "tolerance": tolerance, "limit": iterations}
    best = error = None
    for attempt, (scaled, c) in attempts:
        try:
            with blas_threads(0):
                source = sources(scaled)
                found = _solved(placement, source, attempt, c, range_scaling, b, iteration)
        except NotPositiveDefinite as failure:
            # the traceback would keep the memory of the failed factorization alive
            error = failure.with_traceback(None)
            continue
        latest = replace(found, scaled=scaled)
        if best is None or latest.outcome.good or latest.residual < best.residual:
            best = latest
        if best.outcome.good:
            break
    if best is None:
        larger = "" if shift is None else " a larger shift,"
        remedy = f": use a finer precision,{larger} or fallback=True"
        raise NotPositiveDefinite(
            f"{error}{' in FP64' if fallback else remedy}", error.order
        ) from None
    return replace(best, solution=backend_of(a).put(best.solution, a))


def _solved(placement, source, rule, shift, range_scaling, b, iteration):
    """Return the `Refinement` of one setting; its factor is then free to be discarded."""
    store = _factor(placement, source, rule, shift, range_scaling)
    d = source.scale.reshape(-1, *[1] * (b.ndim - 1))
    preconditioner = Preconditioner(store, source.multiple)
    also = source.original(b.reshape(len(b), -1))
    x, progress = refined(source, preconditioner, b / d, also=also, **iteration)
    return _described(x / d, progress, iteration["method"], store, source.shift)


def _checked(a, b):
    a, b = as_array("a", a), on_host(as_array("b", b))
    on_gpu = backend_of(a).on_gpu
    if "c" in (a.dtype.kind, b.dtype.kind):
        raise InvalidInput("`a` and `b` must be real.")
    if not (on_gpu and a.dtype in (np.float32, np.float64)):
        with device_of(a):
            a = backend_of(a).xp.asfortranarray(a, dtype=np.float64)
    b = np.asarray(b, dtype=np.float64)
    if a.ndim != 2 or a.shape[0] != a.shape[1] or not len(a):
        raise InvalidInput(f"`a` must be square. Got shape {a.shape}.")
    if b.ndim not in (1, 2) or len(b) != len(a):
        raise InvalidInput(f"`b` must have {len(a)} rows. Got shape {b.shape}.")
    if not np.isfinite(b).all():
        raise InvalidInput("`b` contains a NaN or an infinity.")
    # `DenseOnGpu` looks itself
    for j in range(0 if on_gpu else len(a)):
        if not np.isfinite(a[j:, j].sum()) and not np.isfinite(a[j:, j]).all():
            # the error for a bad diagonal entry comes later
            if np.isfinite(a[j, j]):
                raise InvalidInput(f"`a` contains a NaN or an infinity in column {j + 1}.")
            break
    return a, b


def _check_options(method, shift, range_scaling, tolerance, iterations):
    if method not in REFINEMENT_METHODS:
        raise InvalidInput(
            f"`method` must be one of: {', '.join(REFINEMENT_METHODS)}. Got {method!r}."
        )
    if not isinstance(iterations, Integral) or iterations < 1:
        raise InvalidInput(f"`iterations` must be an integer of at least 1. Got {iterations!r}.")
    for name, value, least in (
        ("shift", 0.0 if shift is None else shift, 0.0),
        ("tolerance", tolerance, 0.0),
    ):
        if not (is_finite(value) and value >= least):
            raise InvalidInput(f"`{name}` must be at least 0. Got {brief_repr(value)}.")
    if range_scaling is not None and not (is_finite(range_scaling) and range_scaling > 0):
        raise InvalidInput(f"`range_scaling` must be positive. Got {brief_repr(range_scaling)}.")


FP16_SETTINGS = ((True, 0.0), (True, 0.4), (False, 0.4), (True, 10.0))
"""(scaling, c) of a factor in FP16: one of them converges for each spectrum of the paper."""


def _settings(scaling, shift):
    """Return the settings to try, with what is given."""
    if scaling is None and shift is None:
        return FP16_SETTINGS
    scalings = (True, False) if scaling is None else (bool(scaling),)
    shifts = sorted({c for _, c in FP16_SETTINGS}) if shift is None else (float(shift),)
    return tuple(product(scalings, shifts))


def _attempts(rule, fallback):
    yield rule
    if fallback:
        yield as_rule(rule).finer()
        yield Uniform(FP64)


def _factor(placement, source, rule, shift, range_scaling):
    """Factor μ(D⁻¹AD⁻¹ + c·u·I) as a rule says."""
    tiles = source.layout.tiles
    # a uniform rule does not need the norms
    plain = isinstance(rule, Uniform)
    formats = rule(np.ones((tiles, tiles)) if plain else source.norms())
    unit = max(form.unit_roundoff for row in formats.rows for form in row)
    source.shift = shift * unit
    source.multiple = 1.0
    if range_scaling is not None:
        source.multiple = 2.0 ** np.floor(np.log2(range_scaling * 65504.0 / (1 + source.shift)))
    store = placement.store(source, formats)
    factorize(store)
    return store


def _described(x, progress, method, store, shift=0.0):
    ending, advice = ENDINGS_AND_ADVICE[progress.ending]
    residual = progress.history[-1][1]
    message = f"{progress.iterations} iterations, residual {residual:.1e}"
    outcome = Outcome(ending, message + (f": {advice}" if advice else ""))
    counts, history = store.final_formats().counts(), tuple(progress.history)
    return Refinement(x, progress.iterations, residual, outcome, history, method, counts, shift)


_KEPT_ATTRIBUTES = (
    *("precision_map", "promotions", "nbytes", "store", "order", "originals", "moved", "events"),
    *("log_determinant", "multiply", "into_dense", "into_inverse", "half_solve", "whiten"),
    *("inverse_columns", "congruence_columns"),
)
"""What a refined factor has of the mixed one; L⁻¹ alone cannot be refined."""


class RefinedFactor(Factor):
    """A mixed factor of Σ whose solutions are refined to FP64's accuracy.

    Its log-determinant, products with L and half-solves are those of the mixed factor. A refined
    factor also has `times` and `gram`. Each callable in `finer` returns a finer factor, which
    replaces one whose iteration fails.
    """

    refines = True

    def __init__(
        self,
        factor: Any,
        method: str,
        tolerance: float = ROUNDING_TOLERANCE,
        limit: int = MOST_ITERATIONS,
        finer: Iterable[Callable[[], Any]] = (),
    ) -> None:
        self.method, self._finer, self.last = method, iter(finer), None
        self._refine = partial(refined, method=method, tolerance=tolerance, limit=limit)
        # blocks as large as the right-hand side that an iteration holds
        self.vectors = 2 * GMRES_BASIS_VECTORS if method == "gmres" else 4
        self._adopt(factor)

    def _adopt(self, factor):
        self.factor = factor
        for name in _KEPT_ATTRIBUTES:
            setattr(self, name, getattr(factor, name))
        self._product = Regenerated(factor.store.originals)
        self._precondition = Preconditioner(factor.store)

    @blas_threads(0)
    def solve(self, b: Floats) -> Floats:
        """Return Σ⁻¹b for (n,) or (n, m); raises `NotRefined` if no factor meets the tolerance."""
        while True:
            x = self._refined(b)
            if self.last.outcome.good:
                return x
            following = next(self._finer, None)
            if following is None:
                raise NotRefined(f"refinement by {self.method}: {self.last.outcome}")
            for name in (*_KEPT_ATTRIBUTES, "factor", "_product", "_precondition"):
                # there may not be room for two factors
                delattr(self, name)
            self._adopt(following())

    def _refined(self, b):
        columns = np.asfortranarray(on_host(b))[self.order]
        x, progress = self._refine(self._product, self._precondition, columns)
        solution = np.empty_like(x)
        solution[self.order] = np.ldexp(x, -2 * self.store.originals.exponent)
        self.last = _described(solution, progress, self.method, self.store)
        return solution

    @blas_threads(0)
    def times(self, x: Floats) -> Floats:
        """Return Σx for (n, m), with Σ generated in FP64."""
        product = np.empty_like(x)
        scaled = self._product.multiply(np.asfortranarray(x[self.order]))
        product[self.order] = np.ldexp(scaled, 2 * self.store.originals.exponent)
        return product

    def gram(self, a: Floats) -> tuple[Floats, Floats]:
        """Return A'Σ⁻¹A, and Σ⁻¹A, for (n, m)."""
        solution = self.solve(a)
        product = a.T @ solution
        return (product + product.T) / 2, solution

    def inner(self, a: Floats, b: Floats | None = None) -> Floats:
        """Return a'Σ⁻¹b for (n, m) and (n, k); b is a if not given.

        With w ≈ Σ⁻¹a and v ≈ Σ⁻¹b it is a'v + w'b - w'Σv: errors of w and v enter as their product.
        """
        a = on_host(a)
        w = self.solve(a)
        if b is not None:
            b = on_host(b)
            v = self.solve(b)
            return a.T @ v + w.T @ b - w.T @ self.times(v)
        product = a.T @ w
        return product + product.T - w.T @ self.times(w)

    def explained_by(self, x: Floats) -> Callable[[Floats], tuple[Floats, Floats]]:
        """Return a function from k (n, m) to the diagonal of k'Σ⁻¹k and to k'Σ⁻¹x (m, p)."""

        def explained(k):
            k = on_host(k)
            w = self.solve(k)
            # k'Σ⁻¹k = 2k'w - w'Σw + O(δw²): the error of w enters squared
            return np.einsum("ij,ij->j", 2 * k - self.times(w), w), w.T @ x

        return explained
