"""Fisher scoring: Newton's method with the expected information, for likelihoods that give both.

Guinness (2021, Stat. Comput. 31:25): where value, score and information come from one pass over the
data, a few steps replace a hundred evaluations of a search without derivatives.
"""

from math import radians

import numpy as np

from ..errors import NotPositiveDefinite

STEPS, HALVINGS = 40, 8
"""Limits."""

LONGEST, OF_NUGGET = 1.0, 3.0
"""Longest step of a logarithm; of the nugget's, which may have far to go to 0."""


def ascend(evaluate, allowed, natural, model, *, tolerance, evaluations, vanishing=None):
    """Go up by Fisher scoring.

    Parameters
    ----------
    evaluate : callable
        Model to (log-likelihood, score, information) in the coordinates of `natural`.
    allowed : callable
        Whether a model lies within the bounds.
    natural : Natural
    model : Matern
        The start.
    tolerance : float
        Converged where one more step promises less.
    evaluations : int
        Limit.
    vanishing : callable, optional
        Whether a model's nugget is as good as 0: where it still falls then, the search ends as
        converged, and the caller compares with a nugget of 0.

    Returns
    -------
    log_likelihood : float
    model : Matern
    converged : bool
    """
    value, score, information = evaluate(model)
    for _ in range(STEPS):
        if not np.isfinite(value):
            return value, model, False
        step = _step(score, information)
        if 0.5 * score @ step < tolerance:
            return value, model, True
        if vanishing is not None and vanishing(model) and score[natural.names.index("nugget")] < 0:
            return value, model, True
        longest = [OF_NUGGET if name == "nugget" else LONGEST for name in natural.names]
        step = step / max(1.0, np.max(np.abs(step) / longest))
        point = natural.point(model)
        for _ in range(HALVINGS):
            if evaluations < 2:
                return value, model, False
            candidate = natural.model(point + step)
            if allowed(candidate):
                found = evaluate(candidate)
                evaluations -= 1
                if found[0] > value:
                    break
            step = step / 2
        else:
            return value, model, False
        model, (value, score, information) = candidate, found
    return value, model, False


def _step(score, information):
    """Return I⁻¹s; directions of which the data say nothing stay."""
    scale = np.sqrt(np.maximum(np.diag(information), 1e-300))
    values, vectors = np.linalg.eigh(information / np.outer(scale, scale))
    inverse = np.where(values > 1e-12, 1.0 / np.maximum(values, 1e-12), 0.0)
    return vectors @ (inverse * (vectors.T @ (score / scale))) / scale


def scorer(problem, natural):
    """Return the function that `ascend` wants, for a problem whose evaluator gives all three."""

    def evaluate(model):
        evaluator = problem.evaluator
        try:
            gradient = evaluator.gradient(model, natural.names)
            information = evaluator.information(model, natural.names)
        except NotPositiveDefinite as error:
            problem.complaint = str(error)
            return -np.inf, None, None
        value = evaluator(model).log_likelihood
        problem.monitor.record(model, value)
        values = model.parameters()
        units = np.array(
            [
                1 / radians(1.0) if name == "anisotropy_angle" else values[name]
                for name in natural.names
            ]
        )
        score = np.array([gradient[name] for name in natural.names])
        return value, score * units, information * np.outer(units, units)

    return evaluate
