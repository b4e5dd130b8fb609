"""Where a search starts: the best of a coarse grid, moved on by Vecchia's likelihood."""

import warnings
from math import inf

import numpy as np

from ..covariance.ordering import order_places
from ..errors import MissingPackage
from .exact import Exact
from .likelihood import profile_variance
from .progress import Monitor
from .scoring import of_unit_variance
from .vecchia import Vecchia

SUBSAMPLE = 300
"""Places on which starts are compared."""

ENOUGH, NEIGHBOURS, EVALUATIONS, TOLERANCE = 1000, 15, 60, 1e-2
"""Places from which on Vecchia's likelihood finds the start of an exact search, and how."""

RUNS, RUN = 250, 8
"""Subsample used without Vecchia's likelihood: the number of runs, and the number of
successive places along Hilbert's curve in each, so that long and short distances occur."""


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
        part, design = _part(problem, rows)
        if design is not None:
            how = problem.how.of_rows(rows) if hasattr(problem.how, "of_rows") else problem.how
            evaluator = how.prepare(part, design, problem.reml)
    values = []
    for model in candidates:
        if problem.space.profiled:
            values.append(profile_variance(evaluator(of_unit_variance(model)))[1])
        else:
            values.append(evaluator(model).log_likelihood)
    order = np.argsort([-v if np.isfinite(v) else inf for v in values], kind="stable")
    return [candidates[k] for k in order]


def _part(problem, rows):
    """Return some of the observations and their design; (None, None) if its rank is lower."""
    design = problem.design[rows]
    scaled = design / np.abs(design).max(axis=0, initial=1e-300)
    if np.linalg.matrix_rank(scaled) < design.shape[1]:
        return None, None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said already, about all of the coordinates
        return problem.observations.subset(rows), design


def approach(problem, model):
    """Return the maximum of Vecchia's likelihood near a model, where exact evaluations are dear.

    It costs about as much as one of them and lies within a fraction of the standard errors of the
    exact maximum. Vecchia's likelihood needs numba. Without numba, and from 4,000 places on, the
    maximum of the exact likelihood of 2,000 places is returned. It costs less on a GPU and lies
    within some standard errors of the exact maximum.

    Parameters
    ----------
    problem : Problem
    model : Matern

    Returns
    -------
    model : Matern
        The given one for few places, or where the likelihood used has no maximum near it.
    near : bool
        Whether it is another.
    """
    places = len(problem.observations) - problem.design.shape[1]
    if not (problem.space.free and problem.evaluator.expensive) or places < ENOUGH:
        return model, False
    try:
        rough = _rough(problem, problem.observations, problem.design, Vecchia(NEIGHBOURS))
    except MissingPackage:
        if places < 2 * RUNS * RUN:
            return model, False
        part, design = _part(problem, _spread(problem.observations))
        if design is None:
            return model, False
        # in FP64 and in one memory, whatever the formats and devices of the search
        rough = _rough(problem, part, design, Exact(on=problem.evaluator.device.name))
    value, reached, limited = rough.search(problem.space, model, evaluations=EVALUATIONS)
    found = reached is not None and np.isfinite(value) and not limited
    return (reached, True) if found else (model, False)


def _rough(problem, observations, design, how):
    """Return a problem in the same space, to be solved to a coarse tolerance."""
    monitor = Monitor(EVALUATIONS, lambda *pair: pair, None, "", False)
    about = observations, design, problem.reml, how, problem.space
    return type(problem)(*about, monitor, TOLERANCE)


def _spread(observations):
    """Return the rows of `RUNS` runs of nearby places, spread over all places."""
    order = order_places(observations.locations, "hilbert", observations.metric)
    first = np.linspace(0, len(order) - RUN, RUNS).astype(np.int64)
    return np.sort(order[first[:, None] + np.arange(RUN)].ravel())
