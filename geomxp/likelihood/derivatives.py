"""Derivatives of the exact log-likelihood in all of its parameters, from one factorization.

With P = Σ⁻¹ - Σ⁻¹X(X'Σ⁻¹X)⁻¹X'Σ⁻¹, α = Pz, and Q = Σ⁻¹ for ML, Q = P for REML, and β̂ profiled out:

    ∂_jℓ   = ½ (α'∂_jΣ α - tr(Q ∂_jΣ))
    AI_jk  = ½ α'∂_jΣ P ∂_kΣ α                        the average information
    F_jk   = ½ tr(Q ∂_jΣ Q ∂_kΣ)                      the expected information
    -∂_jkℓ = 2 AI_jk - F_jk - ½ Σ W ∂_jkΣ             the observed one, W = αα' - Q

The score costs Σ⁻¹, twice a factorization, and sums over pairs of places; the average information
of Johnson and Thompson (1995, J. Dairy Sci. 78:449) a few products more; the expected one a
congruence L⁻¹∂ΣL⁻ᵀ, three factorizations, for each parameter of the correlation.

On a GPU score and average information need one n×n matrix: P∂Σα by solves while L stands there,
then Σ⁻¹ in its place, then the sums by blocks.
"""

from dataclasses import dataclass

import numpy as np
import scipy

from ..covariance.base import Inputs
from ..covariance.sums import derivative_products, derivative_sums, weighted_sums
from ..errors import InvalidInput, NotPositiveDefinite
from ..linalg import recursive
from ..linalg.backend import backend_of
from ..tiles.assemble import derivative_matrix
from ..tiles.factor import CholeskyFactor, on_host

LINEAR = ("variance", "nugget")
"""Parameters in which Σ is linear."""

STEP = 1e-4
"""Relative, of the differences that give second derivatives of Σ."""

CENTRAL, BACKWARD = {1: 0.5, -1: -0.5}, {0: 1.5, -1: -2.0, -2: 0.5}
"""Weights of the values so many steps away; backward where a ratio is at its end, 1."""


@dataclass(frozen=True)
class Derivatives:
    """At one model, in its own parameters.

    Parameters
    ----------
    names : tuple of str
    quadratic : (k,) ndarray
        α'(∂Σ)α.
    trace : (k,) ndarray
        tr(Q ∂Σ).
    average : (k, k) ndarray
        The average information.
    expected, observed : (k, k) ndarray or None
        Fisher's information, and minus the Hessian, where they were asked for.
    """

    names: tuple
    quadratic: np.ndarray
    trace: np.ndarray
    average: np.ndarray
    expected: np.ndarray | None = None
    observed: np.ndarray | None = None

    def gradient(self, names=None):
        """Return ∂ℓ, a dict of str to float."""
        slopes = 0.5 * (self.quadratic - self.trace)
        found = dict(zip(self.names, slopes.tolist(), strict=True))
        return {name: found[name] for name in names or self.names}

    def part(self, matrix, names):
        """Return the rows and columns of a matrix that belong to some of the names."""
        rows = np.array([self.names.index(name) for name in names], dtype=int)
        return matrix[np.ix_(rows, rows)]


def differentiate(factor, least_squares, model, seen, design, reml, names, *, curvature=False):
    """Return the derivatives at a model whose Σ has been factored; ends the factor.

    Parameters
    ----------
    factor : CholeskyFactor or TileFactor
    least_squares : GeneralisedLeastSquares
    model : Covariance
    seen : Observations
    design : (n, p) ndarray
    reml : bool
    names : sequence of str
        Parameters of the model.
    curvature : bool
        Whether the expected and the observed information are wanted as well.

    Returns
    -------
    Derivatives
    """
    names, order = tuple(names), factor.order
    rooted = np.asfortranarray(design @ least_squares.root)
    both = factor.solve(np.asfortranarray(np.column_stack((least_squares.residual, rooted))))
    both = both if order is None else both[order]
    alpha, projection = np.ascontiguousarray(both[:, 0]), both[:, 1:]
    places = seen.locations if order is None else seen.locations[order]
    white = factor.whiten(rooted) if reml and rooted.shape[1] else rooted[:, :0]
    lower, expected = factor.into_dense(), None
    if curvature:
        expected = _expected(lower, model, places, seen.metric, names, white)
    beside = projection if reml else projection[:, :0]
    way = _in_place if backend_of(lower).on_gpu else _in_ram
    q, half, weigh = way(lower, model, (Inputs(places, seen.metric), names), alpha, beside)
    weighted, quadratic, along = weigh(model), alpha @ q, projection.T @ q
    average = 0.5 * (half - along.T @ along)
    average = (average + average.T) / 2
    observed = None
    if curvature:
        observed = 2 * average - expected - 0.5 * _bending(model, names, weigh)
    return Derivatives(names, quadratic, quadratic - weighted, average, expected, observed)


def _gpu_of(array):
    """Return the number of an array's GPU, None of NumPy's."""
    return backend_of(array).index(array)


def _in_ram(lower, model, about, alpha, beside):
    """Return (∂Σ)α, their products by Σ⁻¹, and what sums W∂Σ of a model; L becomes Σ⁻¹.

    One sweep over the pairs of places has both the products and the sums.
    """
    inverse = recursive.potri(lower)
    given = (*about, inverse, alpha, beside)
    sums = derivative_sums(model, *given)
    q = sums.products

    def weigh(other):
        if other is model:
            return sums.weighted
        return derivative_sums(other, *given, products=False).weighted

    return q, q.T @ scipy.linalg.blas.dsymm(1.0, inverse, q, lower=1), weigh


def _in_place(lower, model, about, alpha, beside):
    """As `_in_ram`, with nothing of the size of Σ beside L, which becomes Σ⁻¹ where it lives."""
    q = derivative_products(model, *about, alpha, _gpu_of(lower))
    # q'Σ⁻¹q, while L is there
    white = CholeskyFactor(lower).whiten(q)
    inverse, vectors = recursive.potri(lower), np.column_stack((alpha, beside))
    return q, white.T @ white, lambda other: weighted_sums(other, *about, inverse, vectors)


def _expected(lower, model, places, metric, names, white):
    """F from M_j = E L⁻¹∂_jΣ L⁻ᵀ E, with E the projection beside the whitened trend.

    The variance needs no matrix of its own: σ²∂Σ/∂σ² = Σ - τ²I, so that σ²M = E - τ²M_τ.
    """
    held = [name for name in names if name not in LINEAR]
    if "nugget" in names or ("variance" in names and model.nugget > 0):
        # first, for it needs most room beside itself
        held = ["nugget", *held]
    matrices = {}
    for name in held:
        matrices[name] = _projected(_whitened(lower, model, places, metric, name), white)
    gram = {(a, b): _inner(matrices[a], matrices[b]) for a in held for b in held if a <= b}
    traces = {name: float(np.trace(matrices[name])) for name in held}
    gram |= {(b, a): value for (a, b), value in gram.items()}
    if "variance" in names:
        rank, noise, size = len(lower) - white.shape[1], model.nugget, model.variance
        for name in held:
            beside = noise * gram["nugget", name] if noise else 0.0
            gram["variance", name] = gram[name, "variance"] = (traces[name] - beside) / size
        own = noise * (traces["nugget"] + size * gram["variance", "nugget"]) if noise else 0.0
        gram["variance", "variance"] = (rank - own) / size**2
    return 0.5 * np.array([[gram[a, b] for b in names] for a in names])


def _whitened(lower, model, places, metric, name):
    """Return L⁻¹∂Σ L⁻ᵀ in RAM, its lower triangle; a GPU holds it beside L, and nothing else."""
    if name == "nugget":
        return on_host(recursive.inverse_gram(lower))
    change = derivative_matrix(model, places, metric, name, _gpu_of(lower))
    return on_host(recursive.congruence(lower, change))


def _projected(matrix, white):
    """Return E M E, its lower triangle, with E = I - QQ' for orthonormal columns Q."""
    if not white.shape[1]:
        return matrix
    product = scipy.linalg.blas.dsymm(1.0, matrix, white, lower=1)
    half = np.asfortranarray(product - 0.5 * white @ (white.T @ product))
    return scipy.linalg.blas.dsyr2k(
        -1.0, np.asfortranarray(white), half, 1.0, matrix, lower=1, overwrite_c=1
    )


def _inner(a, b, width=256):
    """Return Σ_ij A_ij B_ij of two symmetric matrices, from their lower triangles."""
    total = 0.0
    for first in range(0, len(a), width):
        last = min(first + width, len(a))
        left, right = a[first:, first:last], b[first:, first:last]
        below = last - first
        total += 2 * np.einsum("ij,ij->", left[below:], right[below:])
        # what stands above the diagonals may be anything, NaN too
        left, right = np.tril(left[:below], -1), np.tril(right[:below], -1)
        total += 2 * np.einsum("ij,ij->", left, right)
    return float(total + a.diagonal() @ b.diagonal())


def _bending(model, names, weigh):
    """Return Σ_ij W_ij ∂_jkΣ_ij, (k, k), by differences of second order with W held."""
    values, result = model.parameters(), np.zeros((len(names), len(names)))
    for k, name in enumerate(names):
        if name in LINEAR:
            continue
        step = 1e-2 if name == "anisotropy_angle" else STEP * values[name]
        edge = name == "anisotropy_ratio" and values[name] + step > 1
        for move, weight in (BACKWARD if edge else CENTRAL).items():
            moved = model.replace(**{name: values[name] + move * step})
            result[:, k] += weight / step * weigh(moved)
    linear = np.array([name in LINEAR for name in names], dtype=bool)
    # what a linear parameter's column would hold stands in its row
    result[:, linear] = np.where(linear[:, None], 0.0, result[linear].T)
    return (result + result.T) / 2


def by_differences(evaluator, model, names):
    """Return the gradient from two more evaluations for each parameter, a dict of str to float.

    All that is left where memory holds no dense Σ⁻¹.

    Parameters
    ----------
    evaluator : callable
        Model to `Evaluation`.
    model : Covariance
    names : sequence of str
    """
    values, result = model.parameters(), {}
    for name in names:
        step = 1e-3 * (abs(values[name]) or (1.0 if "angle" in name else 1e-3 * model.variance))
        # to one side where the other is outside
        below = 0.0 if name == "nugget" and values[name] < step else step
        there = {name: values[name] + step}
        above = step if _allowed(model, there, evaluator.observations) else 0.0
        ends = [
            evaluator(model.replace(**{name: values[name] + move}))
            for move in (above, -below)
        ]
        if not all(np.isfinite(end.log_likelihood) for end in ends):
            raise NotPositiveDefinite(f"the log-likelihood has no difference in {name}")
        result[name] = (ends[0].log_likelihood - ends[1].log_likelihood) / (above + below)
    return result


def _allowed(model, values, seen):
    """Whether there is such a model on these places."""
    try:
        model.replace(**values).check_valid_on(seen.metric, seen.dimensions)
    except InvalidInput:
        return False
    return True
