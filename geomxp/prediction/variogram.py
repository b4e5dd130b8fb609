"""The empirical semivariogram: what residuals show of the covariance before any model."""

from dataclasses import dataclass
from numbers import Integral

import numpy as np

from ..covariance.distance import between, embed
from ..errors import InvalidInput
from ..estimation.result import z_value
from ..runtime.devices import blas_threads

PLACES = 2000
"""Places of which all pairs are compared; of more a random subsample is taken."""

CHUNK = 1 << 11
"""Pairs whose differences are formed at a time."""


@dataclass(frozen=True)
class Lags:
    """Pairs of places in bins of distance.

    Parameters
    ----------
    rows : (m,) ndarray of int
        Places that are compared, in increasing order.
    first, second : (p,) ndarray of int
        Pairs, as positions in `rows`; those of a bin stand together.
    ends : (k,) ndarray of int
        Where each bin ends among the pairs.
    distance : (k,) ndarray
        Mean distance in each bin.
    """

    rows: np.ndarray
    first: np.ndarray
    second: np.ndarray
    ends: np.ndarray
    distance: np.ndarray

    @property
    def pairs(self):
        """How many pairs each bin has, (k,)."""
        return np.diff(self.ends, prepend=0)

    def semivariances(self, residuals):
        """Return half the mean squared difference in each bin, (k,).

        Parameters
        ----------
        residuals : (m,) or (m, draws) ndarray
            At the places of `rows`.

        Returns
        -------
        (k,) or (k, draws) ndarray
        """
        sums = np.zeros((len(self.ends), *residuals.shape[1:]))
        for k, (end, count) in enumerate(zip(self.ends, self.pairs, strict=True)):
            for start in range(end - count, end, CHUNK):
                some = slice(start, min(start + CHUNK, end))
                d = residuals[self.first[some]] - residuals[self.second[some]]
                sums[k] += np.einsum("i...,i...->...", d, d)
        return (sums.T / (2 * self.pairs)).T


def lags_of(observations, *, model=None, bins=15, places=PLACES, seed=0):
    """Return the pairs of places in bins of distance; parameters as of `empirical_variogram`."""
    if not (isinstance(bins, Integral) and bins >= 1):
        raise InvalidInput(f"`bins` must be a whole number of at least 1. Got {bins!r}.")
    metric, rows = observations.metric, np.arange(len(observations))
    if len(rows) > places:
        rows = np.sort(np.random.default_rng(seed).choice(len(rows), places, replace=False))
    locations = observations.locations[rows]
    points = embed(locations, metric) if model is None else model.isotropic(locations, metric)
    first, second = np.triu_indices(len(rows), 1)
    h = between(points, points, metric)[first, second]
    if h.max() == 0:
        raise InvalidInput("all places are the same: a variogram needs distances between them.")
    reach = h.max() / 2 if h.min() <= h.max() / 2 else h.max()
    # bin k is (edges[k], edges[k + 1]]; pairs at one place belong to the first
    edges = np.linspace(0.0, reach, bins + 1)
    inside = np.flatnonzero(h <= edges[-1])
    of = np.searchsorted(edges[1:], h[inside], side="left")
    inside = inside[np.argsort(of, kind="stable")]
    pairs = np.bincount(of, minlength=bins)
    ends = np.cumsum(pairs[pairs > 0])
    distance = np.add.reduceat(h[inside], ends - pairs[pairs > 0]) / pairs[pairs > 0]
    return Lags(rows, first[inside], second[inside], ends, distance)


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
    lags = lags_of(observations, model=model, bins=bins, places=places, seed=seed)
    return lags.distance, lags.semivariances(r[lags.rows]), lags.pairs


def variogram_envelope(fit, lags, *, draws=199, level=0.95, seed=0):
    """Say between what the semivariogram's points lie if the fitted model is true.

    Values are simulated at the estimate, the covariance parameters held and the trend estimated
    anew. Each bin has an interval of its own: among fifteen bins one is often outside.

    Parameters
    ----------
    fit : Fit
    lags : Lags
        Of the fit's observations.
    draws : int
    level : float
        The k-th smallest and the k-th largest of the draws, k = (draws + 1)(1 - level)/2, have this
        probability between them (Davison and Hinkley 1997, section 4.2.1); between whole k by
        interpolation.
    seed : int

    Returns
    -------
    lower, upper : (k,) ndarray
        In squared units of the values.

    Raises
    ------
    InvalidInput
        For fewer draws than the level needs.

    Examples
    --------
    >>> import geomxp as gx
    >>> fit = gx.fit(gx.datasets.load("meuse"), fixed={"smoothness": 0.5})
    >>> lags = lags_of(fit.observations)
    >>> lower, upper = variogram_envelope(fit, lags, draws=39)
    >>> gamma = lags.semivariances(trend_residuals(fit))
    >>> bool(np.mean((lower < gamma) & (gamma < upper)) > 0.7)
    True
    """
    z_value(level)
    tail = (1 - level) / 2
    least = int(np.ceil(1 / tail - 1e-9)) - 1
    if not (isinstance(draws, Integral) and not isinstance(draws, bool) and draws >= least):
        raise InvalidInput(
            f"an envelope of level {level:g} needs at least {least} draws. Got {draws!r}."
        )
    gamma = lags.semivariances(residual_draws(fit, lags.rows, draws, seed))
    return tuple(np.quantile(gamma, (tail, 1 - tail), axis=1, method="weibull"))


def residual_draws(fit, rows, draws, seed=0):
    """Draw what the trend of a fit leaves of values that its model makes, (m, draws).

    r = z - Xβ̂ ~ N(0, Σ - X(X'Σ⁻¹X)⁻¹X'): of some places without the others.

    Parameters
    ----------
    fit : Fit
    rows : (m,) ndarray of int
        Of the observations.
    draws : int
    seed : int

    Returns
    -------
    (m, draws) ndarray
        In the unit of the values; the first draws do not depend on how many there are.
    """
    from scipy.linalg import lapack

    seen, model = fit.observations, fit.model
    places = seen.locations[rows]
    design = fit.trend.design(seen.locations, seen.covariates)[rows]
    white = np.random.default_rng([seed, 2]).standard_normal((draws, len(rows))).T
    with blas_threads(len(rows)):
        covariance = np.asfortranarray(model(places, places, seen.metric))
        covariance[np.diag_indices(len(rows))] += model.nugget
        covariance -= design @ fit.coefficient_covariance @ design.T
        # of deficient rank, by the trend's: Cholesky with pivots says where rounding begins
        lower, pivots, rank, _ = lapack.dpstrf(covariance, lower=1, overwrite_a=1)
        found = np.empty_like(white)
        found[pivots - 1] = np.tril(lower)[:, :rank] @ white[:rank]
    return found


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
