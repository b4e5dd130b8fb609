"""Where a search starts: the best of a coarse grid, moved on by Vecchia's likelihood."""

import warnings
from math import inf

import numpy as np

from .likelihood import profile_variance
from .progress import Monitor
from .scoring import of_unit_variance
from .vecchia import Vecchia

SUBSAMPLE = 300
"""Places on which starts are compared."""

ENOUGH, NEIGHBOURS, EVALUATIONS, TOLERANCE = 1000, 15, 60, 1e-2
"""Places from which on Vecchia's likelihood finds the start of an exact search, and how."""


def starts(problem, start, count, seed):
    """Return the models to start from: the best of the candidates on a subsample.

    Parameters
    ----------
    problem : Problem
    start : dict of str to float
        Values for some of the free parameters.
    count : int
    seed : int
        Of the subsample.

    Returns
    -------
    list of Matern
    """
    candidates = list(problem.space.candidates(start))
    if len(candidates) > 1:
        candidates = _ranked(problem, candidates, seed)
    return candidates[:count]


def _ranked(problem, candidates, seed):
    n, p = problem.design.shape
    evaluator = problem.evaluator
    if n > SUBSAMPLE + p:
        rows = np.sort(np.random.default_rng(seed).choice(n, SUBSAMPLE + p, replace=False))
        design = problem.design[rows]
        if np.linalg.matrix_rank(design / np.abs(design).max(axis=0, initial=1e-300)) == p:
            how = problem.how.of_rows(rows) if hasattr(problem.how, "of_rows") else problem.how
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # said already, about all of the coordinates
                part = problem.observations.subset(rows)
            evaluator = how.prepare(part, design, problem.reml)
    values = []
    for model in candidates:
        if problem.space.profiled:
            values.append(profile_variance(evaluator(of_unit_variance(model)))[1])
        else:
            values.append(evaluator(model).log_likelihood)
    order = np.argsort([-v if np.isfinite(v) else inf for v in values], kind="stable")
    return [candidates[k] for k in order]


def approach(problem, model):
    """Return the maximum of Vecchia's likelihood near a model, where exact evaluations are dear.

    It costs about as much as one of them and lies within a fraction of the standard errors of the
    exact maximum.

    Parameters
    ----------
    problem : Problem
    model : Matern

    Returns
    -------
    model : Matern
        The given one for few places, or where Vecchia's likelihood has no maximum near it.
    near : bool
        Whether it is another.
    """
    places = len(problem.observations) - problem.design.shape[1]
    if not (problem.space.free and problem.evaluator.expensive) or places < ENOUGH:
        return model, False
    monitor = Monitor(EVALUATIONS, lambda *pair: pair, None, "", False)
    rough = type(problem)(
        *(problem.observations, problem.design, problem.reml, Vecchia(NEIGHBOURS), problem.space),
        *(monitor, TOLERANCE),
    )
    value, reached, limited = rough.search(problem.space, model, evaluations=EVALUATIONS)
    found = reached is not None and np.isfinite(value) and not limited
    return (reached, True) if found else (model, False)
