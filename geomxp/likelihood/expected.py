"""Expected information of the covariance parameters: whole matrices, or panels of columns.

It comes from M_j = E L⁻¹∂_jΣ L⁻ᵀ E, with E the projection orthogonal to the whitened trend for REML
and the unit matrix for ML:

    F_jk = ½ tr(M_j M_k)

The variance needs no matrix of its own: with the noise N on the diagonal σ²∂Σ/∂σ² = Σ - N, so that
σ²M = E - M_N. With a nugget alone N = τ²∂Σ/∂τ².

A whole matrix takes as many operations as three factorizations. Where they do not fit, panels of
columns take as many as six for each matrix, and one more for L⁻ᵀ.
"""

from functools import partial

import numpy as np

from ..covariance.inputs import Inputs
from ..covariance.parameter import NOISE
from ..covariance.sums import derivative_times
from ..linalg import recursive
from ..linalg.backend import backend_of
from ..tiles.assemble import derivative_matrix, diagonal_matrix
from ..tiles.factor import on_host
from .inverse import blas, panels_of, symmetric_product


class Changes:
    """The changes of Σ that the expected information of some parameters needs.

    Attributes
    ----------
    held : list of str
        Those with a matrix M each: parameters, and "noise" for N.
    diagonals : dict of str to (n,) array
        Those of `held` that are diagonal.
    """

    def __init__(self, model, places, metric, names):
        self.model, self.places, self.metric, self.names = model, places, metric, names
        # σ² needs no matrix of its own if it scales the whole field
        self._scale = scale_of(model)
        known, self._noise, self._size = model.noise(Inputs.of(places, metric)), "noise", 1.0
        if len(known) == 1 and known.names:
            self._noise, self._size = known.names[0], known.coefficients[0]
        self.held = [name for name in names if name != self._scale]
        if self._scale in names and self._size > 0 and self._noise not in self.held:
            self.held.append(self._noise)
        self.diagonals = {name: known.derivative(name) for name in self.held if name in known.names}
        if "noise" in self.held:
            self.diagonals["noise"] = known.variances

    @property
    def pairs(self):
        """The pairs of `held` whose tr(M_j M_k) is needed."""
        return [(a, b) for a in self.held for b in self.held if a <= b]

    def information(self, gram, traces, rank):
        """Return F, given tr(M_j M_k) of `pairs`, tr(M_j), and the rank of E."""
        gram = gram | {(b, a): value for (a, b), value in gram.items()}
        scale, size, noise = self._scale, self._size, self._noise
        if scale in self.names:
            variance = self.model.parameters()[scale]
            for name in self.held:
                beside = size * gram[noise, name] if size else 0.0
                gram[scale, name] = gram[name, scale] = (traces[name] - beside) / variance
            own = size * (traces[noise] + variance * gram[scale, noise]) if size else 0.0
            gram[scale, scale] = (rank - own) / variance**2
        rows = [[gram[a, b] for b in self.names] for a in self.names]
        return 0.5 * np.reshape(rows, (len(self.names), len(self.names)))


def scale_of(model):
    """Return the name of the variance that scales the whole field, None if there are several."""
    linear = [p.name for p in model.table if p.linear and p.role != NOISE]
    return linear[0] if len(linear) == 1 else None


def in_one_array(lower, model, places, metric, names, white, stay):
    """Return F, the array of L, and whether L⁻¹ has overwritten L in it.

    `white` are orthonormal columns that E removes; `stay` tells whether whitened derivatives stay
    on a GPU.
    """
    changes = Changes(model, places, metric, names)
    # those from L⁻¹ last
    late = {name for name, own in changes.diagonals.items() if (own >= 0).all()}
    matrices, inverted = {}, False
    for name in sorted(changes.held, key=lambda name: name in late):
        if name in late and not inverted:
            lower, inverted = recursive.inverted(lower), True
        diagonal = changes.diagonals.get(name)
        if inverted:
            matrix = recursive.whitened_diagonal(lower, diagonal)
        else:
            matrix = _whitened(lower, model, places, metric, name, diagonal)
        matrices[name] = _projected(matrix if stay else on_host(matrix), white)
    gram = {(a, b): _inner(matrices[a], matrices[b]) for a, b in changes.pairs}
    traces = {
        name: float(on_host(matrix.diagonal()).sum(dtype=np.float64))
        for name, matrix in matrices.items()
    }
    rank = len(lower) - white.shape[1]
    return changes.information(gram, traces, rank), lower, inverted


def by_columns(factor, width, dtype, model, places, metric, names, solved, white):
    """Return F, with so many columns of all matrices in memory; the factor stays as it is.

    `white` are orthonormal columns L⁻¹R, (n, p), that E removes, and `solved` is Σ⁻¹R.
    """
    changes = Changes(model, places, metric, names)
    smooth = [name for name in changes.held if name not in changes.diagonals]
    inputs = Inputs.of(places, metric)

    def add_products(z, found, last=None):
        derivative_times(model, inputs, smooth, z, last, found)
        for name, own in changes.diagonals.items():
            # one product with nothing to add to
            np.multiply(z, own[:, None], out=found[name], casting="same_kind")

    halves = {}
    if white.shape[1]:
        halves = {name: np.zeros_like(solved) for name in changes.held}
        add_products(solved, halves)
    for name, change in halves.items():
        product = factor.half_solve(change[np.argsort(factor.order)])
        halves[name] = product - 0.5 * white @ (white.T @ product)
    gram, traces = dict.fromkeys(changes.pairs, 0.0), dict.fromkeys(changes.held, 0.0)
    for columns in panels_of(len(places), width // (1 + len(changes.held))):
        first, last = columns.start, columns.stop
        # no two panels at a time
        add, found, part = partial(add_products, last=last), None, None
        found = factor.congruence_columns(columns, changes.held, add, dtype)
        for name, half in halves.items():
            for some in _panels(last - first):
                mine = slice(first + some.start, first + some.stop)
                beside = white[first:] @ half[mine].T + half[first:] @ white[mine].T
                found[name][:, some] -= beside
        for a, b in gram:
            gram[a, b] += _inner(found[a], found[b])
        for name, part in found.items():
            traces[name] += float(part.diagonal().sum(dtype=np.float64))
    return changes.information(gram, traces, len(places) - white.shape[1])


def _whitened(lower, model, places, metric, name, diagonal):
    """Return the lower triangle of L⁻¹∂Σ L⁻ᵀ where L is; a GPU stores only it and L.

    `diagonal` is ∂Σ by a parameter of the noise, None for others.
    """
    index = backend_of(lower).index(lower)
    if diagonal is not None:
        change = diagonal_matrix(diagonal, len(lower), index, lower.dtype)
    else:
        change = derivative_matrix(model, places, metric, name, index, lower.dtype)
    return recursive.congruence(lower, change)


def _projected(matrix, white):
    """Return E M E, its lower triangle, with E = I - QQ' for orthonormal columns Q.

    On a GPU the whole of it, as `_inner` reads it there.
    """
    backend = backend_of(matrix)
    if backend.on_gpu:
        recursive.mirror(matrix)
    if not white.shape[1]:
        return matrix
    if backend.on_gpu:
        with backend.on(matrix):
            q = backend.put(white, matrix)
            product = matrix @ q
            half = product - 0.5 * (q @ (q.T @ product))
            for some in _panels(len(matrix)):
                matrix[:, some] -= q @ half[some].T + half @ q[some].T
        return matrix
    product = symmetric_product(matrix, white)
    half = np.asfortranarray(product - 0.5 * white @ (white.T @ product), matrix.dtype)
    return blas("syr2k", matrix)(
        -1.0, np.asfortranarray(white, matrix.dtype), half, 1.0, matrix, lower=1, overwrite_c=1
    )


def _panels(n, width=256):
    """Return the slices of n columns."""
    return [slice(first, min(first + width, n)) for first in range(0, n, width)]


def _inner(a, b):
    """Return Σ_ij A_ij B_ij of two symmetric matrices, from their lower triangles.

    On a GPU from the whole of them. For A[f:, f:l] and B[f:, f:l] it is the part of these columns.
    """
    backend, total = backend_of(a), 0.0
    if backend.on_gpu:
        with backend.on(a):
            parts = [
                backend.xp.vdot(*(m.T[some].astype(np.float64, copy=False) for m in (a, b)))
                for some in _panels(len(a), 4096 if a.dtype == np.float64 else 1024)
            ]
            return float(sum(parts))
    for some in _panels(a.shape[1]):
        first, last = some.start, some.stop
        left, right = a[first:, some], b[first:, some]
        below = last - first
        total += 2 * np.einsum("ij,ij->", left[below:], right[below:], dtype=np.float64)
        # what stands above the diagonals may be anything, NaN too
        left, right = np.tril(left[:below], -1), np.tril(right[:below], -1)
        total += 2 * np.einsum("ij,ij->", left, right, dtype=np.float64)
    return float(total + a.diagonal().astype(np.float64) @ b.diagonal())
