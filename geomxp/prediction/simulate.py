"""Conditional draws from the nearest observations only."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np

from ..covariance.base import Covariance
from ..covariance.neighbours import nearest, tree_of
from ..covariance.ordering import order_places
from ..data.observations import Observations, checked_places
from ..errors import InvalidInput, NotEnoughMemory, NotPositiveDefinite
from ..estimation.result import Fit
from ..likelihood.base import Locations
from ..likelihood.exact import Exact, check_memory
from ..likelihood.trend import fit_trend
from ..linalg import recursive
from ..runtime.devices import blas_threads, gpu_memory
from ..runtime.progress import Line
from ..vecchia.blocks import Blocks
from ..vecchia.factor import draw_onwards
from .kriging import checked_targets, count_of, different, through_observations

if TYPE_CHECKING:
    from .._typing import Columns, Floats, Of
    from ..data.observations import Places
    from ..likelihood.base import Likelihood


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
    blocks = Blocks(model, seen.metric, both[tree.order], new[order])
    noise = np.where(tree.order < n, model.nugget, 0.0)
    weights, variances = blocks.weights(near, noise, np.zeros(len(near)))
    if not np.isfinite(variances).all():
        raise NotPositiveDefinite(
            "the covariance matrix of the observations near a place is not positive definite in "
            "FP64: use fewer neighbours or a larger nugget."
        )
    y = np.empty((len(both), draws))
    y[at[:n]] = residuals
    y[at[n:]] = random.standard_normal((draws, len(new))).T
    draw_onwards(at[n:], near, weights, np.maximum(variances, 0.0), y)
    values = np.empty((n + len(new), draws))
    values[:n] = residuals
    values[n + order] = y[at[n:]]
    found = betas @ design.T + values[back].T
    return through_observations(fit, found, design, here, betas, back)


def _root(covariance):
    """Return a matrix A with AA' = covariance, symmetric."""
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T


# Draw Gaussian fields, and lay out places to draw them at.


LAYOUTS = ("grid", "jittered", "uniform")


@gpu_memory()
def simulate(
    model: Covariance | Fit,
    places: Places,
    draws: int = 1,
    seed: int = 0,
    *,
    metric: str = "euclidean",
    method: Likelihood | None = None,
    covariates: Columns | None = None,
    of: Of | None = None,
    progress: bool = True,
) -> Floats:
    """Draw a field: observations of a zero-mean one, or a fit's field given its observations.

    With a model: z = L w with Σ = L L' and w independent standard normal. With a fit: the field and
    its trend given the observations, each draw with coefficients of its own, so that draws have the
    mean and the (joint) covariance of kriging. Where a place is an observed one, and there is no
    nugget, all draws are the observation, to the bit.

    Parameters
    ----------
    model : Covariance or Fit
    places : (n, d) array_like or Observations
    draws : int
    seed : int
        Of NumPy's PCG64: the same seed gives the same draws (to rounding on another machine).
    metric : str
        Of an array of places; a fit's places have the metric of its observations.
    method : Exact or Vecchia, optional
        `Exact()` if not given, or the fit's own. Exact draws need the covariance matrix of all
        places, and with a fit that of its observations besides; `Vecchia` draws each place given
        its nearest.
    covariates : (n, q) array_like, optional
        For a fit whose trend has covariates.
    of : {"field", "observation"}, optional
        The noiseless field, or new observations, which have the nugget as independent noise. If
        not given, observations of a model and the field of a fit.
    progress : bool
        Show a line where standard error is a terminal, after two seconds.

    Returns
    -------
    (draws, n) ndarray

    Raises
    ------
    NotPositiveDefinite
        For a field so smooth, or places so close, that Σ has no Cholesky factor in FP64.
    NotEnoughMemory

    Examples
    --------
    >>> from geomxp import Matern
    >>> draws = simulate(Matern(1.0, 0.1, 0.5), np.random.default_rng(0).random((9, 2)), draws=2)
    >>> draws.shape
    (2, 9)
    """
    if not (isinstance(seed, Integral) and seed >= 0):
        raise InvalidInput(f"`seed` must be a whole number of at least 0. Got {seed!r}.")
    if not isinstance(model, (Covariance, Fit)):
        kind = type(model).__name__
        raise InvalidInput(f"`model` must be a covariance model or a Fit. Got {kind}.")
    if not (isinstance(draws, Integral) and not isinstance(draws, bool) and draws >= 1):
        raise InvalidInput(f"`draws` must be a whole number of at least 1. Got {draws!r}.")
    if of not in (None, "field", "observation"):
        raise InvalidInput(f'`of` must be "field" or "observation". Got {of!r}.')
    with Line("drawing", shown=progress):
        if isinstance(model, Fit):
            return _simulate_given(model, places, draws, seed, method, covariates, of or "field")
        return _simulate_freely(model, places, draws, seed, metric, method, of)


def _simulate_freely(model, places, draws, seed, metric, method, of):
    """Return draws of a zero-mean field with its noise, or without, (draws, n)."""
    if isinstance(places, Observations):
        places, metric = places.locations, places.metric
    places = checked_places(places, metric)
    if not len(places):
        raise InvalidInput("`places` must hold at least one place.")
    model = replace(model, nugget=0.0) if of == "field" else model
    evaluator = (method or Exact()).prepare(Locations(places, metric))
    with blas_threads(len(places)):
        factor = evaluator.factorize(model)
        white = np.random.default_rng(seed).standard_normal((draws, len(places)))
        return np.ascontiguousarray(factor.multiply(np.asfortranarray(white.T)).T)


def _simulate_given(fit, places, draws, seed, method, covariates, of):
    """Return draws of the field and its trend given the observations of a fit, (draws, n)."""
    places, there = checked_targets(fit, places, covariates)
    if not len(places):
        raise InvalidInput("`places` must hold at least one place.")
    fit = fit if method is None else replace(fit, method=method)
    random = np.random.default_rng(seed)
    if fit.method.approximate:
        found = draw(fit, places, there, random, draws)
    else:
        found = _draw_exactly(fit, places, there, random, draws)
    if of == "observation" and fit.model.nugget:
        found += np.sqrt(fit.model.nugget) * random.standard_normal(found.shape)
    return found


def _draw_exactly(fit, places, design, random, draws):
    """Draw X₀β + k'Σ⁻¹(z - Xβ) + C w, CC' = K - k'Σ⁻¹k, with β about β̂ by (X'Σ⁻¹X)⁻¹."""
    seen, model = fit.observations, fit.model
    here = fit.trend.design(seen.locations, seen.covariates)
    evaluator = fit.method.prepare(seen, here, fit.reml)
    once, back = different(seen, model, places)
    new, n = places[once], len(seen)
    _check_memory(max(n, len(new)), evaluator.device)
    with blas_threads(max(n, len(new))):
        factor = evaluator.factorize(model)
        known = fit_trend(factor, seen.values, here)
        betas = known.coefficients[:, None] + known.root @ random.standard_normal(
            (here.shape[1], draws)
        )
        values = seen.values[:, None] - here @ betas
        if len(new):
            k = np.asfortranarray(model(seen.locations, new, seen.metric))
            solved = factor.solve(np.asfortranarray(np.column_stack((seen.values, here))))
            mean = k.T @ (solved[:, :1] - solved[:, 1:] @ betas)
            rest = model(new, new, seen.metric) - factor.inner(k)
            noise = _root_times(rest, random.standard_normal((len(new), draws)))
            values = np.vstack((values, mean + noise))
    return through_observations(fit, (design @ betas + values[back]).T, design, here, betas.T, back)


def _check_memory(n, device):
    try:
        check_memory(n, 3, device)
    except NotEnoughMemory as error:
        about = str(error).partition(": use")[0]
        raise NotEnoughMemory(
            f"{about}: draw with method=Vecchia(30), or at fewer places."
        ) from None


def _root_times(covariance, white):
    """Return draws C w with CC' = covariance, by Cholesky; by eigenvalues where it has no factor.

    A field that the observations all but determine has a conditional covariance matrix of rounding
    errors; its symmetric root is the same on every machine, to the root of the rounding.
    """
    try:
        lower = recursive.potrf(np.array(covariance, order="F"))
    except NotPositiveDefinite:
        values, vectors = np.linalg.eigh(covariance)
        return vectors @ (np.sqrt(np.maximum(values, 0.0))[:, None] * (vectors.T @ white))
    return np.tril(lower) @ white


def lay_out(n: int, layout: str = "jittered", seed: int = 0) -> Floats:
    """Return places in the unit square.

    Parameters
    ----------
    n : int
    layout : {"grid", "jittered", "uniform"}
        A square grid of cell centres; the same moved at random by up to 0.4 cells, as
        ExaGeoStat's synthetic data; independent uniform.
    seed : int

    Returns
    -------
    (n, 2) ndarray

    Raises
    ------
    InvalidInput
        If a grid is asked for and n is no square.
    """
    if not (isinstance(n, Integral) and n >= 1):
        raise InvalidInput(f"`n` must be a whole number of at least 1. Got {n!r}.")
    if layout not in LAYOUTS:
        raise InvalidInput(f"`layout` must be one of: {', '.join(LAYOUTS)}. Got {layout!r}.")
    # another stream than the one that draws values with the same seed
    random = np.random.default_rng([seed, 1])
    if layout == "uniform":
        return random.random((n, 2))
    side = round(n**0.5)
    if side * side != n:
        raise InvalidInput(
            f'layout="{layout}" needs a square number of places. Got {n}; try {side * side}.'
        )
    cells = np.arange(side) + 0.5
    grid = np.stack(np.meshgrid(cells, cells, indexing="ij"), axis=-1).reshape(n, 2)
    if layout == "jittered":
        grid = grid + random.uniform(-0.4, 0.4, grid.shape)
    return grid / side
