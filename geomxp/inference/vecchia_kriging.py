"""Conditional draws from the nearest observations only."""

import numpy as np

from ..covariance.neighbours import nearest, tree_of
from ..covariance.ordering import order_places
from ..errors import NotPositiveDefinite
from ..vecchia.graph import Field
from .given import different, through_observations
from .local import count_of


def draw(fit, places, design, random, draws, neighbours=None):
    """Return draws of the field at places, given the observations of a fit, (draws, k).

    Each place is drawn given its nearest among the observations and the places drawn before it, in
    maximin order; each draw has its own trend, drawn about β̂.

    Parameters
    ----------
    fit : Fit
        By `Vecchia`.
    places : (k, d) ndarray
    design : (k, p) ndarray
    random : numpy.random.Generator
    draws : int
    neighbours : int, optional
    """
    from ..vecchia.rows import go_on

    seen, model = fit.observations, fit.model
    n, count = len(seen), count_of(fit, neighbours)
    root = _root(fit.coefficient_covariance)
    betas = fit.coefficients + random.standard_normal((draws, len(root))) @ root.T
    here = fit.trend.design(seen.locations, seen.covariates)
    residuals = seen.values[:, None] - here @ betas.T
    once, back = different(seen, model, places)
    new = places[once]
    if not len(new):
        found = betas @ design.T + residuals[back].T
        return through_observations(fit, found, design, here, betas, back)
    order = order_places(new, "maximin", seen.metric)
    both = np.vstack((seen.locations, new[order]))
    tree = tree_of(model.isotropic(both, seen.metric))
    at = np.empty(len(both), dtype=np.int64)
    at[tree.order] = np.arange(len(both))
    limits = np.arange(n, len(both))
    near = nearest(tree, model.isotropic(new[order], seen.metric), count, limits)
    field = Field(model, seen.metric, both[tree.order], new[order])
    noise = np.where(tree.order < n, model.nugget, 0.0)
    weights, variances = field.weights(near, noise, np.zeros(len(near)))
    if not np.isfinite(variances).all():
        raise NotPositiveDefinite(
            "the covariance matrix of the observations near a place is not positive definite in "
            "FP64: use fewer neighbours or a larger nugget."
        )
    y = np.empty((len(both), draws))
    y[at[:n]] = residuals
    y[at[n:]] = random.standard_normal((draws, len(new))).T
    go_on(at[n:], near, weights, np.maximum(variances, 0.0), y)
    values = np.empty((n + len(new), draws))
    values[:n] = residuals
    values[n + order] = y[at[n:]]
    found = betas @ design.T + values[back].T
    return through_observations(fit, found, design, here, betas, back)


def _root(covariance):
    """Return a matrix A with AA' = covariance, symmetric."""
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
