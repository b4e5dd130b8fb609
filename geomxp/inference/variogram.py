"""The empirical semivariogram: what residuals show of the covariance before any model."""

import numpy as np

from ..covariance.distance import between, embed
from ..errors import InvalidInput

PLACES = 2000
"""Places of which all pairs are compared; of more a random subsample is taken."""


def trend_residuals(fit):
    """Return z - Xβ̂, what the trend of a fit leaves of the values.

    Parameters
    ----------
    fit : Fit

    Returns
    -------
    (n,) ndarray
        In the unit of the values.
    """
    seen = fit.observations
    return seen.values - fit.trend.design(seen.locations, seen.covariates) @ fit.coefficients


def empirical_variogram(observations, residuals, *, model=None, bins=15, places=PLACES, seed=0):
    """Estimate the semivariogram by Matheron's method of moments.

    γ̂(h) = 1/(2|N(h)|) Σ_{(i, j) in N(h)} (r_i - r_j)²  (Matheron 1963, Econ. Geol. 58:1246)

    N(h) holds the pairs of one bin of distance; the bins are equally wide and reach to half of
    the largest distance, beyond which pairs are few and come from opposite ends of the region
    (to the largest, if no pair is nearer than that).

    Parameters
    ----------
    observations : Observations
    residuals : (n,) array_like
        Values less their trend.
    model : Matern, optional
        With anisotropy: distances are then those of the model's isotropic coordinates.
    bins : int
    places : int
        Number of places above which a random subsample of so many is used.
    seed : int
        Of the subsample.

    Returns
    -------
    distance : (k,) ndarray
        Mean distance of the pairs in each bin that has any, k ≤ bins; in `observations.unit`.
    semivariance : (k,) ndarray
        In squared units of the values.
    pairs : (k,) ndarray of int

    Raises
    ------
    InvalidInput
        For fewer than one bin, residuals that do not match, or places that are all one.

    Examples
    --------
    >>> from geomxp import Observations
    >>> seen = Observations([[0.0], [1.0], [2.0], [4.0]], [0.0, 1.0, 2.0, 2.0])
    >>> [array.tolist() for array in empirical_variogram(seen, seen.values, bins=2)]
    [[1.0, 2.0], [0.5, 1.0], [2, 2]]
    """
    r = np.asarray(residuals, dtype=np.float64)
    if r.shape != (len(observations),):
        raise InvalidInput(
            f"`residuals` must hold one number for each of the {len(observations)} places. "
            f"Got shape {r.shape}."
        )
    if not (isinstance(bins, int) and bins >= 1):
        raise InvalidInput(f"`bins` must be a whole number of at least 1. Got {bins!r}.")
    metric, locations = observations.metric, observations.locations
    if len(r) > places:
        rows = np.sort(np.random.default_rng(seed).choice(len(r), places, replace=False))
        r, locations = r[rows], locations[rows]
    points = embed(locations, metric) if model is None else model.isotropic(locations, metric)
    once = np.triu_indices(len(r), 1)
    h = between(points, points, metric)[once]
    if h.max() == 0:
        raise InvalidInput("all places are the same: a variogram needs distances between them.")
    reach = h.max() / 2 if h.min() <= h.max() / 2 else h.max()
    # bin k is (edges[k], edges[k + 1]]; pairs at one place belong to the first
    edges = np.linspace(0.0, reach, bins + 1)
    inside = h <= edges[-1]
    h, square = h[inside], (r[once[0][inside]] - r[once[1][inside]]) ** 2
    of = np.searchsorted(edges[1:], h, side="left")
    pairs = np.bincount(of, minlength=bins)
    some = pairs > 0
    pairs = pairs[some]
    distance = np.bincount(of, h, minlength=bins)[some] / pairs
    return distance, np.bincount(of, square, minlength=bins)[some] / (2 * pairs), pairs


def semivariance(model, h):
    """Evaluate a model's semivariogram γ(h) = τ² + σ²(1 - ρ(h)) for h > 0.

    Parameters
    ----------
    model : Matern
    h : array_like
        Distances, in the unit of the model's range.

    Returns
    -------
    ndarray, as h
    """
    return model.nugget + model.variance * (1.0 - model.correlation(h))
