"""Kriging and conditional draws from the nearest observations only."""

from numbers import Integral

import numpy as np

from ..covariance.neighbours import nearest, tree_of
from ..covariance.ordering import order_places
from ..errors import InvalidInput, NotPositiveDefinite
from .factorize import coincidence
from .vecchia_graph import Field

CHUNK = 1 << 16
"""Places predicted at one time: their weights are (CHUNK, m)."""


def krige(fit, places, design, neighbours=None):
    """Return means and variances of the field at places, each from its nearest observations.

    E f = x₀'β̂ + λ'(z_N - X_N β̂) with Σ_NN λ = k, and the variance σ² - k'λ + d'Cov(β̂)d with
    d = x₀ - X_N'λ. With all observations for neighbours it is kriging.

    Parameters
    ----------
    fit : Fit
        By `Vecchia`.
    places : (k, d) ndarray
    design : (k, p) ndarray
        The trend's x₀'.
    neighbours : int, optional
        Twice those of the fit if not given.

    Returns
    -------
    mean, variance : (k,) ndarray
    """
    seen, model = fit.observations, fit.model
    count = _count(fit, neighbours)
    tree = tree_of(model.isotropic(seen.locations, seen.metric))
    here = fit.trend.design(seen.locations, seen.covariates)
    known = np.column_stack((seen.values - here @ fit.coefficients, here))[tree.order]
    noise = np.full(len(seen), model.nugget)
    mean, variance = np.empty(len(places)), np.empty(len(places))
    for first in range(0, len(places), CHUNK):
        part = slice(first, first + CHUNK)
        near = nearest(tree, model.isotropic(places[part], seen.metric), count)
        field = Field(model, seen.metric, seen.locations[tree.order], places[part])
        weights, variance[part] = field.weights(near, noise, np.zeros(len(near)))
        found = _means(near, weights, known)
        mean[part] = design[part] @ fit.coefficients + found[:, 0]
        apart = design[part] - found[:, 1:]
        variance[part] += np.einsum("ij,jk,ik->i", apart, fit.coefficient_covariance, apart)
    _check(variance)
    return mean, variance


def _count(fit, neighbours):
    """Return how many observations a place is predicted from; refuse fits with twin places."""
    seen = fit.observations
    if fit.model.nugget == 0 and seen.duplicate():
        raise NotPositiveDefinite(coincidence(seen))
    if neighbours is None:
        neighbours = 2 * fit.method.neighbours
    elif not (isinstance(neighbours, Integral) and neighbours >= 1):
        raise InvalidInput(
            f"`neighbours` must be a whole number of at least 1. Got {neighbours!r}."
        )
    return min(int(neighbours), len(seen))


def _means(near, weights, known):
    from .vecchia_rows import means

    return means(near, weights, known)


def _check(variances):
    bad = np.flatnonzero(~np.isfinite(variances))
    if len(bad):
        raise NotPositiveDefinite(
            f"the covariance matrix of the observations near place {bad[0] + 1} is not positive "
            "definite in FP64: use fewer neighbours or a larger nugget."
        )


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
    from .vecchia_rows import go_on

    seen, model = fit.observations, fit.model
    n, count = len(seen), _count(fit, neighbours)
    root = _root(fit.coefficient_covariance)
    betas = fit.coefficients + random.standard_normal((draws, len(root))) @ root.T
    here = fit.trend.design(seen.locations, seen.covariates)
    residuals = seen.values[:, None] - here @ betas.T
    once, back = _different(seen, model, places)
    new = places[once]
    order = order_places(new, "maximin", seen.metric) if len(new) else np.zeros(0, dtype=int)
    both = np.vstack((seen.locations, new[order]))
    tree = tree_of(model.isotropic(both, seen.metric))
    at = np.empty(len(both), dtype=np.int64)
    at[tree.order] = np.arange(len(both))
    limits = np.arange(n, len(both))
    near = nearest(tree, model.isotropic(new[order], seen.metric), count, limits)
    field = Field(model, seen.metric, both[tree.order], new[order])
    noise = np.where(tree.order < n, model.nugget, 0.0)
    weights, variances = field.weights(near, noise, np.zeros(len(near)))
    _check(variances)
    y = np.empty((len(both), draws))
    y[at[:n]] = residuals
    y[at[n:]] = random.standard_normal((draws, len(new))).T
    go_on(at[n:], near, weights, np.maximum(variances, 0.0), y)
    values = np.empty((n + len(new), draws))
    values[:n] = residuals
    values[n + order] = y[at[n:]]
    return betas @ design.T + values[back].T


def _root(covariance):
    """Return a matrix A with AA' = covariance, symmetric."""
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T


def _different(seen, model, places):
    """Return which places to draw, and where each place then stands in (observations, drawn ones).

    A place is drawn once, and not where an observation without noise already tells its value.
    """
    n = len(seen)
    points = model.isotropic(places, seen.metric)
    _, first, inverse = np.unique(points, axis=0, return_index=True, return_inverse=True)
    inverse = inverse.reshape(-1)
    back = n + np.arange(len(first))
    if model.nugget == 0:
        tree = tree_of(model.isotropic(seen.locations, seen.metric))
        near = nearest(tree, points[first], 1)[:, 0]
        known = (tree.points[near] == points[first] / tree.unit).all(axis=1)
        back = np.where(known, tree.order[near], n + np.cumsum(~known) - 1)
        first = first[~known]
    return first, back[inverse]
