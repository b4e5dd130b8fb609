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
has room for all of them, and in RAM otherwise. Where there is no memory for Σ⁻¹, score and
information come from panels of columns of Σ⁻¹ and of the whitened derivatives: see `inverse` and
`expected`.
"""

from dataclasses import replace

import numpy as np

from ..linalg import recursive
from ..linalg.backend import backend_of
from . import expected, inverse
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
    width=0,
):
    """Return the `Derivatives` at a model, given the factor of Σ, which is overwritten.

    Expected and observed information only with `curvature`. `index` is the number of the GPU where
    a factor in tiles becomes one array, of this type, in `space` if that is given; `stay` tells
    whether whitened derivatives stay on a GPU. With a `width` a factor in tiles stays as it is, and
    only so many columns are in memory at a time.

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
    beside = projection if reml else projection[:, :0]
    moves = _moves(model, names) if curvature else []
    models = [model, *(moved for *_, moved in moves)]
    given, fisher = (models, places, names, alpha, beside), None
    about = model, places, observations.metric, names
    if width:
        last_row = model(places[-1:], places).astype(dtype)
        with recursive.fast_underflow(last_row):
            if curvature:
                fisher = expected.by_columns(factor, width, dtype, *about, projection, white)
            sums = inverse.by_columns(factor, width, dtype, *given)
    else:
        lower, inverted = factor.into_dense(index, dtype, space), False
        way = inverse.in_place if backend_of(lower).on_gpu else inverse.in_ram
        with recursive.fast_underflow(lower):
            if curvature:
                fisher, lower, inverted = expected.in_one_array(lower, *about, white, stay)
            sums = way(lower, inverted, *given)
    q, (weighted, *moved) = sums.products, sums.weighted
    quadratic, along = alpha @ q, projection.T @ q
    average = 0.5 * (sums.squares - along.T @ along)
    average = (average + average.T) / 2
    observed = None
    if curvature:
        observed = 2 * average - fisher - 0.5 * _bending(model, names, moves, moved)
    trace = quadratic - weighted
    score = 0.5 * (quadratic - trace)
    found = Derivatives(names, score, average, quadratic, trace, fisher, observed)
    if sums.times is not None:
        residual = least_squares.residual if order is None else least_squares.residual[order]
        missing = np.abs(residual @ sums.times - quadratic)
        scale = expected.scale_of(model)
        if scale in names:
            k, variance = names.index(scale), model.parameters()[scale]
            # tr(QN), with Q = X - BB'
            diagonal = sums.diagonal - (beside**2).sum(axis=1)
            rest = float(diagonal @ model.noise(places).variances)
            along = variance * trace[k] + rest - (len(alpha) - beside.shape[1])
            missing[k] = max(missing[k], abs(along) / variance)
        errors = np.sqrt(np.maximum(np.diag(average), np.finfo(float).tiny))
        found = replace(found, error=0.5 * missing / errors)
    return transformed.beside(found, q, asked) if transformed.names else found


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


def _moves(model, names):
    """Return (k, weight, model) of the models whose sums give differences of second order."""
    table, moves = {p.name: p for p in model.table}, []
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
            moved = {name: parameter.value + move * step}
            moves.append((k, weight / step, model.replace(**moved)))
    return moves


def _bending(model, names, moves, sums):
    """Return Σ_ij W_ij ∂_jkΣ_ij, (k, k), from the sums Σ W ∂Σ, with W held, of `_moves`."""
    table, result = {p.name: p for p in model.table}, np.zeros((len(names), len(names)))
    for (k, weight, _), sum_ in zip(moves, sums, strict=True):
        result[:, k] += weight * sum_
    linear = np.array([table[name].linear for name in names], dtype=bool)
    # the column of a linear parameter equals its row
    result[:, linear] = np.where(linear[:, None], 0.0, result[linear].T)
    return (result + result.T) / 2
