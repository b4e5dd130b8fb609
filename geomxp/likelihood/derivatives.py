"""Derivatives of the exact log-likelihood from one factorization.

With P = Σ⁻¹ - Σ⁻¹X(X'Σ⁻¹X)⁻¹X'Σ⁻¹, α = Pz, and Q = Σ⁻¹ for ML, Q = P for REML, and β̂ profiled out:

    ∂_jℓ   = ½ (α'∂_jΣ α - tr(Q ∂_jΣ))
    AI_jk  = ½ α'∂_jΣ P ∂_kΣ α                        the average information
    F_jk   = ½ tr(Q ∂_jΣ Q ∂_kΣ)                      the expected information
    -∂_jkℓ = 2 AI_jk - F_jk - ½ Σ W ∂_jkΣ             the observed one, W = αα' - Q

The score costs Σ⁻¹, twice a factorization, and sums over pairs of locations; the average
information of Johnson and Thompson (1995, J. Dairy Sci. 78:449) a few products more; the expected
one a congruence L⁻¹∂ΣL⁻ᵀ, three factorizations, for each parameter of the correlation.

On a GPU score and average information need one n×n matrix: P∂Σα by solves while L stands there,
then Σ⁻¹ in its place, then the sums by blocks. The whitened derivatives L⁻¹∂ΣL⁻ᵀ stay there if it
has room for all of them, and in RAM otherwise.
"""

from dataclasses import replace

import numpy as np
import scipy

from ..covariance.inputs import Inputs
from ..covariance.parameter import NOISE
from ..covariance.sums import derivative_products, derivative_sums, weighted_sums
from ..linalg import recursive
from ..linalg.backend import backend_of
from ..tiles.assemble import derivative_matrix, diagonal_matrix
from ..tiles.factor import CholeskyFactor, on_host
from .base import Derivatives

SECOND_DERIVATIVE_STEP = 1e-4
"""Relative step of the differences for second derivatives of Σ."""

CENTRAL_WEIGHTS, BACKWARD_WEIGHTS = {1: 0.5, -1: -0.5}, {0: 1.5, -1: -2.0, -2: 0.5}
FORWARD_WEIGHTS = {0: -1.5, 1: 2.0, 2: -0.5}
"""Weights by number of steps; backward at the upper limit of a parameter, forward at the lower."""


def differentiate(
    evaluator,
    factor,
    least_squares,
    model,
    names,
    curvature=False,
    index=None,
    stay=False,
    dtype=np.float64,
    space=None,
):
    """Return the `Derivatives` at a model, given the factor of Σ, which is overwritten.

    Expected and observed information only with `curvature`. `index` is the number of the GPU where
    a factor in tiles becomes one array, of this type, in `space` if that is given; `stay` tells
    whether whitened derivatives stay on a GPU.

    The inverse of a factor in coarse formats may be FP32, X ≈ Σ⁻¹. Then `Derivatives.error`
    estimates what it adds to the error of the score: with the residual r, for which E rα' = I,

        E r'(X - Σ⁻¹)∂_jΣα = tr((X - Σ⁻¹)∂_jΣ)

    one product Xr tells the error of all traces, REML's included. Its own standard deviation is
    about √(n/2) times the error, if entries of X have independent ones. Errors common to all
    entries are largest in the direction of the scale of Σ, where tr(QΣ) = n (n - p for REML) gives
    them.
    """
    observations, reml = evaluator.observations, evaluator.reml
    asked, order = tuple(names), factor.order
    transformed = Transformed(evaluator, model, asked)
    names = tuple(name for name in asked if name not in transformed.names)
    rooted = np.asfortranarray(evaluator.design @ least_squares.root)
    columns = least_squares.residual, rooted, transformed.slopes
    both = factor.solve(np.asfortranarray(np.column_stack(columns)))
    both = both if order is None else both[order]
    alpha, projection = np.ascontiguousarray(both[:, 0]), both[:, 1 : 1 + rooted.shape[1]]
    if transformed.names:
        transformed.project(both, rooted if order is None else rooted[order], order, curvature)
    places = observations.inputs if order is None else observations.inputs[order]
    white = factor.half_solve(rooted) if reml and rooted.shape[1] else rooted[:, :0]
    lower, expected = factor.into_dense(index, dtype, space), None
    beside = projection if reml else projection[:, :0]
    way, inverted = in_place if backend_of(lower).on_gpu else in_ram, False
    with recursive.fast_underflow(lower):
        if curvature:
            about = model, places, observations.metric, names
            expected, lower, inverted = _expected(lower, *about, white, stay)
        q, half, weigh, inverse = way(lower, inverted, model, places, names, alpha, beside)
        weighted, quadratic, along = weigh(model), alpha @ q, projection.T @ q
        average = 0.5 * (half - along.T @ along)
        average = (average + average.T) / 2
        observed = None
        if curvature:
            observed = 2 * average - expected - 0.5 * _bending(model, names, weigh)
    trace = quadratic - weighted
    score = 0.5 * (quadratic - trace)
    found = Derivatives(names, score, average, quadratic, trace, expected, observed)
    if lower.dtype == np.float32:
        residual = least_squares.residual if order is None else least_squares.residual[order]
        missing = np.abs(residual @ symmetric_product(inverse, q) - quadratic)
        scale = _scale_of(model)
        if scale in names:
            k, variance = names.index(scale), model.parameters()[scale]
            rest = _trace_of_noise(inverse, model.noise(places).variances, beside)
            along = variance * trace[k] + rest - (len(lower) - beside.shape[1])
            missing[k] = max(missing[k], abs(along) / variance)
        errors = np.sqrt(np.maximum(np.diag(average), np.finfo(float).tiny))
        found = replace(found, error=0.5 * missing / errors)
    return transformed.beside(found, q, asked) if transformed.names else found


def _scale_of(model):
    """Return the name of the variance that scales the whole field, None if there are several."""
    linear = [p.name for p in model.table if p.linear and p.role != NOISE]
    return linear[0] if len(linear) == 1 else None


def _trace_of_noise(inverse, variances, beside):
    """Return tr(QN) for a diagonal N, with Q = X - BB'."""
    diagonal = on_host(inverse.diagonal()).astype(np.float64) - (beside**2).sum(axis=1)
    return float(diagonal @ variances)


class Transformed:
    """Derivatives by the parameters ψ of a transformation z = t(y).

    With ż = ∂z/∂ψ and J = Σ log t'(y):

        ∂ℓ/∂ψ_j       = -ż_j'α + ∂J
        -∂²ℓ/∂ψ_j∂ψ_k = ż_j'P ż_k + α'z̈_jk - ∂²J
        -∂²ℓ/∂θ∂ψ_j   = -α'∂Σ P ż_j
    """

    def __init__(self, evaluator, model, names):
        self._values, self._transform = evaluator.values, model.transform
        known = [] if model.transform is None else list(model.transform.parameters())
        self.names = [name for name in names if name in known]
        self._rows = [known.index(name) for name in self.names]
        self.slopes = np.zeros((len(evaluator.observations), 0))
        if self.names:
            slopes, jacobian = self._values.slopes(model.transform)
            self.slopes, self._jacobian = slopes[:, self._rows], jacobian[self._rows]
            if evaluator.design.shape[1]:
                # P removes the trend; done before, no digits cancel
                trend = np.linalg.lstsq(evaluator.design, self.slopes, rcond=None)[0]
                self.slopes = self.slopes - evaluator.design @ trend

    def project(self, solved, rooted, order, curvature):
        """Keep Pż and ż'α, given Σ⁻¹ times residual, X(X'Σ⁻¹X)^-½ and ż, in the factor's order."""
        p = rooted.shape[1]
        alpha, projection, solution = solved[:, 0], solved[:, 1 : 1 + p], solved[:, 1 + p :]
        slopes = self.slopes if order is None else self.slopes[order]
        self._projected = solution - projection @ (rooted.T @ solution)
        self._along = slopes.T @ alpha
        self._information = slopes.T @ self._projected
        self._bending = 0.0
        if curvature:
            bends, jacobian = self._values.bends(self._transform)
            kept = np.ix_(self._rows, self._rows)
            bends = bends if order is None else bends[order]
            self._bending = (np.tensordot(alpha, bends, 1) - jacobian)[kept]

    def beside(self, found, q, names):
        """Return the derivatives with those by ψ, for names in the order of the caller."""
        order = [(*found.names, *self.names).index(name) for name in names]
        cross = -q.T @ self._projected

        def vector(ours, theirs):
            return np.concatenate((ours, theirs))[order]

        def matrix(ours, theirs):
            if ours is None:
                return None
            whole = np.block([[ours, cross], [cross.T, theirs]])
            return whole[np.ix_(order, order)]

        slopes, observed = self._jacobian - self._along, self._information + self._bending
        return replace(
            found.joined(names, order, slopes, cross, self._information),
            quadratic=vector(found.quadratic, -2 * self._along),
            trace=vector(found.trace, -2 * self._jacobian),
            expected=matrix(found.expected, observed),
            observed=matrix(found.observed, observed),
            # these have no traces
            error=None if found.error is None else vector(found.error, 0.0 * self._along),
        )


def in_ram(lower, inverted, model, places, names, alpha, beside):
    """Return q = (∂Σ)α, q'Σ⁻¹q, a function, model to Σ W∂Σ, and Σ⁻¹, which overwrites L.

    `inverted` tells that `lower` is L⁻¹.
    """
    inverse = recursive.inverse_from(lower if inverted else recursive.inverted(lower))
    # one sweep over the pairs of locations computes both the products and the sums
    sums = derivative_sums(model, places, names, inverse, alpha, beside)
    q = sums.products

    def weigh(other):
        if other is model:
            return sums.weighted
        return derivative_sums(
            other, places, names, inverse, alpha, beside, products=False
        ).weighted

    return q, q.T @ symmetric_product(inverse, q), weigh, inverse


def in_place(lower, inverted, model, places, names, alpha, beside):
    """As `in_ram`, without memory of the size of Σ besides L, which Σ⁻¹ overwrites."""
    q = derivative_products(model, places, names, alpha, backend_of(lower).index(lower))
    # L⁻¹q, while L or its inverse is there
    if inverted:
        white = on_host(recursive.trmm(lower, backend_of(lower).put(q, lower)))
    else:
        white, lower = CholeskyFactor(lower).half_solve(q), recursive.inverted(lower)
    inverse, vectors = recursive.inverse_from(lower), np.column_stack((alpha, beside))

    def weigh(other):
        return weighted_sums(other, places, names, inverse, vectors)

    return q, white.T @ white, weigh, inverse


def _expected(lower, model, places, metric, names, white, stay):
    """Return F, the array of L, and whether L⁻¹ has overwritten L in it.

    F comes from M_j = E L⁻¹∂_jΣ L⁻ᵀ E, with E the projection orthogonal to the whitened trend.

    The variance needs no matrix of its own: with the noise N on the diagonal σ²∂Σ/∂σ² = Σ - N, so
    that σ²M = E - M_N. With a nugget alone N = τ²∂Σ/∂τ².
    """
    # σ² needs no matrix of its own if it scales the whole field
    scale = _scale_of(model)
    known, noise, size = model.noise(Inputs.of(places, metric)), "noise", 1.0
    if len(known) == 1 and known.names:
        noise, size = known.names[0], known.coefficients[0]
    held = [name for name in names if name != scale]
    if scale in names and size > 0 and noise not in held:
        held.append(noise)
    diagonals = {name: known.derivative(name) for name in held if name in known.names}
    if "noise" in held:
        diagonals["noise"] = known.variances
    # those from L⁻¹ last
    late = {name for name, own in diagonals.items() if (own >= 0).all()}
    held.sort(key=lambda name: name in late)
    matrices, inverted = {}, False
    for name in held:
        if name in late and not inverted:
            lower, inverted = recursive.inverted(lower), True
        if inverted:
            matrix = recursive.whitened_diagonal(lower, diagonals[name])
        else:
            matrix = _whitened(lower, model, places, metric, name, diagonals.get(name))
        matrices[name] = _projected(matrix if stay else on_host(matrix), white)
    gram = {(a, b): _inner(matrices[a], matrices[b]) for a in held for b in held if a <= b}
    traces = {
        name: float(on_host(matrix.diagonal()).sum(dtype=np.float64))
        for name, matrix in matrices.items()
    }
    gram |= {(b, a): value for (a, b), value in gram.items()}
    if scale in names:
        rank, variance = len(lower) - white.shape[1], model.parameters()[scale]
        for name in held:
            beside = size * gram[noise, name] if size else 0.0
            gram[scale, name] = gram[name, scale] = (traces[name] - beside) / variance
        own = size * (traces[noise] + variance * gram[scale, noise]) if size else 0.0
        gram[scale, scale] = (rank - own) / variance**2
    rows = [[gram[a, b] for b in names] for a in names]
    expected = 0.5 * np.reshape(rows, (len(names), len(names)))
    return expected, lower, inverted


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
    return _blas("syr2k", matrix)(
        -1.0, np.asfortranarray(white, matrix.dtype), half, 1.0, matrix, lower=1, overwrite_c=1
    )


def symmetric_product(matrix, vectors):
    """Return AX, (n, m), from the lower triangle of A; on a GPU the upper one is filled in."""
    vectors = np.asfortranarray(vectors, matrix.dtype)
    backend = backend_of(matrix)
    if not backend.on_gpu:
        return _blas("symm", matrix)(1.0, matrix, vectors, lower=1)
    recursive.mirror(matrix)
    with backend.on(matrix):
        return backend.get(matrix @ backend.put(vectors, matrix))


def _blas(name, a):
    """Return BLAS's routine for an array of FP64 or FP32 in RAM."""
    return getattr(scipy.linalg.blas, ("s" if a.dtype == np.float32 else "d") + name)


def _panels(n, width=256):
    """Return the slices of n columns."""
    return [slice(first, min(first + width, n)) for first in range(0, n, width)]


def _inner(a, b):
    """Return Σ_ij A_ij B_ij of two symmetric matrices, from their lower triangles.

    On a GPU from the whole of them.
    """
    backend, total = backend_of(a), 0.0
    if backend.on_gpu:
        with backend.on(a):
            parts = [
                backend.xp.vdot(*(m.T[some].astype(np.float64, copy=False) for m in (a, b)))
                for some in _panels(len(a), 4096 if a.dtype == np.float64 else 1024)
            ]
            return float(sum(parts))
    for some in _panels(len(a)):
        first, last = some.start, some.stop
        left, right = a[first:, first:last], b[first:, first:last]
        below = last - first
        total += 2 * np.einsum("ij,ij->", left[below:], right[below:], dtype=np.float64)
        # what stands above the diagonals may be anything, NaN too
        left, right = np.tril(left[:below], -1), np.tril(right[:below], -1)
        total += 2 * np.einsum("ij,ij->", left, right, dtype=np.float64)
    return float(total + a.diagonal().astype(np.float64) @ b.diagonal())


def _bending(model, names, weigh):
    """Return Σ_ij W_ij ∂_jkΣ_ij, (k, k), by differences of second order with W held."""
    table, result = {p.name: p for p in model.table}, np.zeros((len(names), len(names)))
    for k, name in enumerate(names):
        parameter = table[name]
        if parameter.linear:
            continue
        step = SECOND_DERIVATIVE_STEP * parameter.value
        if parameter.transform == "identity":
            step = 1e-2
        weights = BACKWARD_WEIGHTS if parameter.value + step > parameter.upper else CENTRAL_WEIGHTS
        if parameter.value - step < parameter.lower:
            weights = FORWARD_WEIGHTS
        for move, weight in weights.items():
            moved = model.replace(**{name: parameter.value + move * step})
            result[:, k] += weight / step * weigh(moved)
    linear = np.array([table[name].linear for name in names], dtype=bool)
    # the column of a linear parameter equals its row
    result[:, linear] = np.where(linear[:, None], 0.0, result[linear].T)
    return (result + result.T) / 2
