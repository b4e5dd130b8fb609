"""Draw Gaussian fields, and lay out places to draw them at."""

from dataclasses import replace
from numbers import Integral

import numpy as np

from ..errors import InvalidInput
from ..execution.devices import blas_threads
from ..observations import Observations, checked_places
from .estimate import Fit
from .exact import Exact, check_memory
from .gls import fit_trend
from .predict import checked_targets
from .vecchia import Vecchia

LAYOUTS = ("grid", "jittered", "uniform")


def simulate(model, places, draws=1, seed=0, *, metric="euclidean", how=None, covariates=None):
    """Draw a field: observations of a zero-mean one, or a fit's field given its observations.

    With a model it is the field, and the model's nugget as noise: z = L w with Σ = L L' and w
    independent standard normal. With a fit it is the noiseless field and its trend, each draw with
    coefficients of its own, so that draws have the mean and the variance of `predict`.

    Parameters
    ----------
    model : Matern or Fit
    places : (n, d) array_like or Observations
    draws : int
    seed : int
        Of NumPy's PCG64: the same seed gives the same draws (to rounding on another machine).
    metric : str
        Of an array of places; a fit's places have the metric of its observations.
    how : Exact or Vecchia, optional
        `Exact()` if not given, or the fit's own.
    covariates : (n, q) array_like, optional
        For a fit whose trend has covariates.

    Returns
    -------
    (draws, n) ndarray

    Raises
    ------
    NotPositiveDefinite
        For a field so smooth, or places so close, that Σ has no Cholesky factor in FP64.

    Examples
    --------
    >>> from geomxp import Matern
    >>> draws = simulate(Matern(1.0, 0.1, 0.5), np.random.default_rng(0).random((9, 2)), draws=2)
    >>> draws.shape
    (2, 9)
    """
    if not (isinstance(seed, Integral) and seed >= 0):
        raise InvalidInput(f"`seed` must be a whole number of at least 0. Got {seed!r}.")
    if not (isinstance(draws, Integral) and draws >= 1):
        raise InvalidInput(f"`draws` must be a whole number of at least 1. Got {draws!r}.")
    if isinstance(model, Fit):
        return _simulate_given(model, places, draws, seed, how, covariates)
    if isinstance(places, Observations):
        places, metric = places.locations, places.metric
    places = checked_places(places, metric)
    if not len(places):
        raise InvalidInput("`places` must hold at least one place.")
    evaluator = (how or Exact()).prepare(_Places(places, metric))
    with blas_threads(len(places)):
        factor = evaluator.factorize(model)
        white = np.random.default_rng(seed).standard_normal((draws, len(places)))
        return np.ascontiguousarray(factor.multiply(np.asfortranarray(white.T)).T)


def _simulate_given(fit, places, draws, seed, how, covariates):
    """Return draws of the field and its trend given the observations of a fit, (draws, n)."""
    places, there = checked_targets(fit, places, covariates)
    if not len(places):
        raise InvalidInput("`places` must hold at least one place.")
    fit = fit if how is None else replace(fit, method=how)
    random = np.random.default_rng(seed)
    if isinstance(fit.method, Vecchia):
        from .vecchia_kriging import draw

        return draw(fit, places, there, random, draws)
    return _draw_exactly(fit, places, there, random, draws)


def _draw_exactly(fit, places, design, random, draws):
    """Draw X₀β + k'Σ⁻¹(z - Xβ) + C w, CC' = K - k'Σ⁻¹k, with β about β̂ by (X'Σ⁻¹X)⁻¹."""
    seen, model = fit.observations, fit.model
    here = fit.trend.design(seen.locations, seen.covariates)
    evaluator = fit.method.prepare(seen, here, fit.reml)
    check_memory(max(len(seen), len(places)), 3, evaluator.device)
    with blas_threads(len(seen)):
        factor = evaluator.factorize(model)
        known = fit_trend(factor, seen.values, here)
        betas = known.coefficients[:, None] + known.root @ random.standard_normal(
            (here.shape[1], draws)
        )
        k = np.asfortranarray(model(seen.locations, places, seen.metric))
        weights = factor.solve(k)
        mean = weights.T @ (seen.values[:, None] - here @ betas)
        rest = model(places, places, seen.metric) - k.T @ weights
        rest = (rest + rest.T) / 2
        # of semidefinite matrices too: some places may be observed ones
        values, vectors = np.linalg.eigh(rest)
        white = random.standard_normal((draws, len(places))).T
        noise = vectors @ (np.sqrt(np.maximum(values, 0.0))[:, None] * white)
    return np.ascontiguousarray((design @ betas + mean + noise).T)


class _Places:
    """Places without values: as much of `Observations` as a factor needs."""

    def __init__(self, locations, metric):
        self.locations = locations
        self.metric = metric
        self.dimensions = locations.shape[1]

    def __len__(self):
        return len(self.locations)

    def duplicate(self):
        """As `Observations.duplicate`."""
        return Observations.duplicate(self)


def lay_out(n, layout="jittered", seed=0):
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
