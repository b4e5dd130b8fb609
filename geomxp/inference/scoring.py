"""Fisher scoring: Newton's method with an information that costs little more than the score.

Where value, score and information come from one pass over the data, a few steps replace a hundred
evaluations of a search without derivatives: for the exact likelihood with the average information
(Johnson and Thompson 1995), for Vecchia's with the expected one (Guinness 2021, Stat. Comput.
31:25).
"""

from dataclasses import dataclass, replace

import numpy as np

from ..covariance.matern import Matern
from ..errors import NotPositiveDefinite
from .likelihood import rescale_variance

STEPS, HALVINGS = 40, 8
"""Limits."""

CLOSE = 5e-5
"""A step that promises less goes to where less than a tolerance of 1e-6 is left."""

LONGEST, OF_NUGGET = 1.0, 3.0
"""Longest step of a logarithm; of the nugget's, which may have far to go to 0."""


@dataclass(frozen=True)
class Point:
    """A model on the way up.

    Parameters
    ----------
    model : Matern
    value : float
        Log-likelihood; -inf where there is none, and then no score.
    score : (k,) ndarray or None
        In the coordinates of `Natural`.
    information : (k, k) ndarray or None
    """

    model: Matern
    value: float
    score: np.ndarray | None = None
    information: np.ndarray | None = None


def ascend(
    evaluate,
    allowed,
    natural,
    model,
    *,
    tolerance,
    evaluations,
    enough=0.0,
    vanishing=None,
    curved=False,
):
    """Go up by Fisher scoring.

    Parameters
    ----------
    evaluate : callable
        Model, and whether the observed information is wanted too, to `Point`; of a better
        variance, where that costs nothing.
    allowed : callable
        Whether a model lies within the bounds.
    natural : Natural
    model : Matern
        The start.
    tolerance : float
        Converged where one more step promises less.
    evaluations : int
        Limit.
    enough : float
        Converged, too, where a step promises less and none goes up.
    curved : bool
        Whether to ask for the observed information, once, where the next step probably is the last.
    vanishing : float, optional
        Where the nugget is less of the variance, and still falls, the search ends as converged:
        the caller compares with a nugget of 0.

    Returns
    -------
    best : Point
    converged : bool
    """
    best, secants = evaluate(model, False), []
    for _ in range(STEPS):
        if not np.isfinite(best.value):
            return best, False
        step = _step(best.score, best.information)
        promised = 0.5 * best.score @ step
        if promised < tolerance:
            return best, True
        close, curved = curved and promised < CLOSE, curved and not promised < CLOSE
        falls = vanishing is not None and best.score[natural.names.index("nugget")] < 0
        if falls and best.model.nugget < vanishing * best.model.variance:
            return best, True
        longest = [OF_NUGGET if name == "nugget" else LONGEST for name in natural.names]
        step = step / max(1.0, np.max(np.abs(step) / longest))
        origin = natural.point(best.model)
        for _ in range(HALVINGS):
            if evaluations < 2:
                return best, False
            candidate = natural.model(origin + step)
            if allowed(candidate):
                found = evaluate(candidate, close)
                evaluations -= 1
                if found.value > best.value:
                    break
            step = step / 2
        else:
            return best, promised < enough
        way = natural.point(found.model) - natural.point(best.model)
        secants = [*secants, (way, best.score - found.score)][-len(way) :]
        best = _with_secants(found, secants)
    return best, False


def _with_secants(point, secants):
    """Return a point whose information agrees with how the score changed on the way to it.

    Broyden, Fletcher, Goldfarb, Shanno: where the model is wrong the information that scoring uses
    is not near the Hessian, and steps by it alone converge slowly.
    """
    information = point.information
    for step, change in secants:
        along, curvature = information @ step, change @ step
        expected = step @ along
        # else too far apart for a quadratic function
        if expected > 0 and 0.05 * expected < curvature < 20 * expected:
            information = information + np.outer(change, change) / curvature
            information -= np.outer(along, along) / expected
    return replace(point, information=information)


def _step(score, information):
    """Return I⁻¹s; directions of which the data say nothing stay."""
    scale = np.sqrt(np.maximum(np.diag(information), 1e-300))
    values, vectors = np.linalg.eigh(information / np.outer(scale, scale))
    inverse = np.where(values > 1e-12, 1.0 / np.maximum(values, 1e-12), 0.0)
    return vectors @ (inverse * (vectors.T @ (score / scale))) / scale


def scorer(problem, space, natural):
    """Return the function that `ascend` wants, for a problem whose evaluator has scores."""

    def evaluate(model, close):
        evaluator = problem.evaluator
        try:
            if hasattr(evaluator, "derivatives"):
                found = evaluator.derivatives(model, tuple(natural.names), curvature=close)
                point = _by_parts(evaluator(model), found, model, space, natural, close)
            else:
                gradient = evaluator.gradient(model, natural.names)
                information = evaluator.information(model, natural.names)
                units = natural.units(model)
                score = np.array([gradient[name] for name in natural.names]) * units
                point = Point(
                    *(model, evaluator(model).log_likelihood, score),
                    information * np.outer(units, units),
                )
        except NotPositiveDefinite as error:
            problem.complaint = str(error)
            return Point(model, -np.inf)
        problem.monitor.record(point.model, point.value)
        return point

    return evaluate


def _by_parts(evaluation, derivatives, model, space, natural, close):
    """Return the point at the best variance, where Σ is free to be multiplied by a number c.

    α and Σ⁻¹ divide by c, ∂Σ by logarithms multiplies: α'∂Σα and AI divide, tr(Σ⁻¹∂Σ) stays. Close
    to the maximum c is 1 to some digits, and the model stays what the evaluator keeps.
    """
    units, c = natural.units(model), 1.0
    if not np.isfinite(evaluation.log_likelihood):
        return Point(model, -np.inf)
    if space.profiled and not close:
        p = len(evaluation.coefficients) if evaluation.reml else 0
        c = evaluation.quadratic_form / (evaluation.n - p)
        evaluation = rescale_variance(evaluation, c)
        model = replace(model, variance=c * model.variance, nugget=c * model.nugget)
    score = 0.5 * units * (derivatives.quadratic / c - derivatives.trace)
    information = derivatives.average * np.outer(units, units) / c
    if not (np.isfinite(score).all() and np.isfinite(information).all()):
        # of a variance whose inverse squared is no number
        return Point(model, -np.inf)
    return Point(model, evaluation.log_likelihood, score, information)


def of_unit_variance(model):
    """Return R's model, where Σ = σ²R."""
    return replace(model, variance=1.0, nugget=model.nugget / model.variance)
