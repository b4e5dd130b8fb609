"""The empirical semivariogram of residuals, and its envelope under a fitted model."""

from dataclasses import dataclass
from numbers import Integral

import numpy as np

from ..covariance.base import Isotropic
from ..covariance.distance import between, embed
from ..errors import InvalidInput, check_whole
from ..estimation.result import design_of, z_value
from ..likelihood.replicates import dense_covariance
from ..runtime.devices import blas_threads

MOST = 2000
"""Number of locations above which a random subsample is used."""

CHUNK = 1 << 11
"""Pairs whose differences are computed at one time."""


@dataclass(frozen=True)
class Lags:
    """Pairs of locations in k bins of distance.

    `rows` (m,) are the rows of the observations that are compared; `first` and `second` (p,) are
    pairs, as positions in `rows`, sorted by bin; `ends` (k,) is the end of each bin among the
    pairs; `distance` (k,) is the mean distance in each bin.
    """

    rows: np.ndarray
    first: np.ndarray
    second: np.ndarray
    ends: np.ndarray
    distance: np.ndarray

    @property
    def pairs(self):
        """Number of pairs in each bin, (k,)."""
        return np.diff(self.ends, prepend=0)

    def semivariances(self, residuals):
        """Return half the mean squared difference in each bin, (k,) or (k, draws), of residuals."""
        sums = np.zeros((len(self.ends), *residuals.shape[1:]))
        for k, (end, count) in enumerate(zip(self.ends, self.pairs, strict=True)):
            for start in range(end - count, end, CHUNK):
                some = slice(start, min(start + CHUNK, end))
                d = residuals[self.first[some]] - residuals[self.second[some]]
                sums[k] += np.einsum("i...,i...->...", d, d)
        return (sums.T / (2 * self.pairs)).T


def lags_of(observations, *, model=None, bins=15, most=MOST, seed=0):
    """Return the pairs of locations in bins of distance; arguments as of `empirical_variogram`."""
    check_whole("bins", bins)
    if model is not None and not isinstance(model, Isotropic):
        raise InvalidInput(
            f"a semivariogram over distance needs an isotropic model. Got family {model.family!r}."
        )
    for name in ("time", "variable"):
        column = getattr(observations, name)
        if column is not None and np.ptp(column):
            raise InvalidInput(
                f"a semivariogram over distance needs observations of one {name}: take a subset."
            )
    metric, rows = observations.metric, np.arange(len(observations))
    if len(rows) > most:
        rows = np.sort(np.random.default_rng(seed).choice(len(rows), most, replace=False))
    locations = observations.locations[rows]
    points = embed(locations, metric) if model is None else model.isotropic(locations, metric)
    first, second = np.triu_indices(len(rows), 1)
    h = between(points, points, metric)[first, second]
    if h.max() == 0:
        raise InvalidInput(
            "a variogram needs distances, and all locations are the same: give different locations."
        )
    reach = h.max() / 2 if h.min() <= h.max() / 2 else h.max()
    # bin k is (edges[k], edges[k + 1]]; pairs at one location belong to the first
    edges = np.linspace(0.0, reach, bins + 1)
    inside = np.flatnonzero(h <= edges[-1])
    number = np.searchsorted(edges[1:], h[inside], side="left")
    inside = inside[np.argsort(number, kind="stable")]
    pairs = np.bincount(number, minlength=bins)
    pairs = pairs[pairs > 0]
    ends = np.cumsum(pairs)
    distance = np.add.reduceat(h[inside], ends - pairs) / pairs
    return Lags(rows, first[inside], second[inside], ends, distance)


def trend_residuals(fit):
    """Return the residuals z - Xβ̂ of a fit's trend, (n,)."""
    return fit.gaussian.observations.values - design_of(fit) @ fit.coefficients


def empirical_variogram(observations, residuals, *, model=None, bins=15, most=MOST, seed=0):
    """Estimate the semivariogram; return distance (k,), semivariance (k,) and pairs (k,) of bins.

    γ̂(h) = 1/(2|N(h)|) Σ_{(i, j) in N(h)} (r_i - r_j)²  (Matheron 1963, Econ. Geol. 58:1246)

    N(h) are the pairs in one bin of distance; empty bins are left out. The bins are equally wide
    and extend to half of the largest distance, beyond which pairs are few and come from opposite
    ends of the region (to the largest distance if no pair is closer than half of it). Distances are
    in `observations.unit`, or those of the isotropic coordinates of a model with anisotropy. Above
    `most` locations a random subsample of this size is used.
    """
    r = np.asarray(residuals, dtype=np.float64)
    if r.shape != (len(observations),):
        raise InvalidInput(
            f"`residuals` must hold one number for each of the {len(observations)} locations. "
            f"Got shape {r.shape}."
        )
    lags = lags_of(observations, model=model, bins=bins, most=most, seed=seed)
    return lags.distance, lags.semivariances(r[lags.rows]), lags.pairs


def variogram_envelope(fit, lags, *, draws=199, level=0.95, seed=0):
    """Return pointwise bounds (k,) of the semivariogram under the fitted model.

    Values are simulated from the fitted model, and the trend is estimated from each draw with the
    covariance parameters held fixed. The bounds are pointwise: one of fifteen bins is often
    outside. The level is the probability between the k-th smallest and the k-th largest of the
    draws with k = (draws + 1)(1 - level)/2 (Davison and Hinkley 1997, section 4.2.1), interpolated
    between whole k.
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
    """Draw trend residuals of some rows, of values simulated from a fitted model, (m, draws).

    r = z - Xβ̂ ~ N(0, Σ - X(X'Σ⁻¹X)⁻¹X'). The first draws do not depend on the number of draws.
    """
    from scipy.linalg import lapack

    observations, model = fit.observations, fit.model
    inputs, design = observations.inputs[rows], design_of(fit)[rows]
    white = np.random.default_rng([seed, 2]).standard_normal((draws, len(rows))).T
    with blas_threads(len(rows)):
        covariance = np.asfortranarray(dense_covariance(model, inputs))
        covariance -= design @ fit.coefficient_covariance @ design.T
        # the rank is deficient by the trend's; pivoted Cholesky finds it
        lower, pivots, rank, _ = lapack.dpstrf(covariance, lower=1, overwrite_a=1)
        residuals = np.empty_like(white)
        residuals[pivots - 1] = np.tril(lower)[:, :rank] @ white[:rank]
    return residuals


def semivariance(model, h):
    """Evaluate an isotropic model's semivariogram γ(h) = τ² + σ²(1 - ρ(h)) for h > 0."""
    return model.nugget + model.variance * (1.0 - model.correlation(h))
