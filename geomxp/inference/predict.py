"""Kriging: the mean and variance of the field at new places, given a fit."""

from dataclasses import dataclass

import numpy as np

from ..errors import InvalidInput
from ..execution.devices import blas_threads
from ..observations import Observations, check_finite, checked_places
from .estimate import z_value
from .gls import fit_trend
from .vecchia import Vecchia

CHUNK_ENTRIES = 1 << 22
"""Covariances between places and observations held at one time."""


@dataclass(frozen=True)
class Prediction:
    """Kriging predictions.

    Parameters
    ----------
    places : (m, d) ndarray
    mean : (m,) ndarray
    variance : (m,) ndarray
        Of the prediction error of the noiseless field, with the trend's uncertainty.
    nugget : float
    """

    places: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    nugget: float

    @property
    def variance_of_observation(self):
        """Variance of the prediction error of a new observation, (m,)."""
        return self.variance + self.nugget

    def interval(self, level=0.95, of="field"):
        """Return the bounds of prediction intervals.

        Parameters
        ----------
        level : float
            Probability that an interval covers.
        of : {"field", "observation"}
            The noiseless field, or a new observation.

        Returns
        -------
        lower, upper : (m,) ndarray
        """
        if of not in ("field", "observation"):
            raise InvalidInput(f'`of` must be "field" or "observation". Got {of!r}.')
        variance = self.variance if of == "field" else self.variance_of_observation
        half = z_value(level) * np.sqrt(variance)
        return self.mean - half, self.mean + half

    def to_frame(self, level=0.95, of="field"):
        """Return a pandas frame: mean, variance, lower, upper, variance_of_observation."""
        import pandas as pd

        lower, upper = self.interval(level, of)
        return pd.DataFrame(
            {
                "mean": self.mean,
                "variance": self.variance,
                "lower": lower,
                "upper": upper,
                "variance_of_observation": self.variance_of_observation,
            }
        )


def predict(fit, places, covariates=None, *, neighbours=None):
    """Predict the field at places.

    Simple kriging with a zero trend, ordinary with a constant one, universal with any other. A fit
    by Vecchia's approximation predicts each place from its nearest observations.

    Parameters
    ----------
    fit : Fit
    places : (m, d) array_like or Observations
    covariates : (m, q) array_like, optional
        For a trend with covariates.
    neighbours : int, optional
        Observations that each place is predicted from, for a fit by `Vecchia`: twice those of the
        fit if not given.

    Returns
    -------
    Prediction

    Examples
    --------
    Without a nugget kriging returns the observations:

    >>> import geomxp as gx
    >>> seen = gx.Observations([[0.0], [1.0], [3.0], [4.0]], [1.0, 2.0, 0.5, 0.0])
    >>> model = gx.Matern(1.0, 1.0, 0.5)
    >>> fit = gx.fit(seen, model, fixed=("variance", "range", "smoothness", "nugget"))
    >>> there = gx.predict(fit, seen.locations)
    >>> bool(np.allclose(there.mean, seen.values)), bool(np.allclose(there.variance, 0.0))
    (True, True)
    """
    places, there = checked_targets(fit, places, covariates)
    if isinstance(fit.method, Vecchia):
        from .vecchia_kriging import krige

        mean, variance = krige(fit, places, there, neighbours)
    elif neighbours is not None:
        raise InvalidInput("`neighbours` is for fits by Vecchia(); this one is exact.")
    else:
        mean, variance = _krige(fit, places, there)
    # rounding may leave a little less than 0 where a place is an observed one
    return Prediction(places, mean, np.maximum(variance, 0.0), fit.model.nugget)


def checked_targets(fit, places, covariates=None):
    """Return places, (m, d), and the trend's design there, (m, p); see `predict`."""
    seen = fit.observations
    if isinstance(places, Observations):
        if places.metric != seen.metric:
            raise InvalidInput(f"`places` must be {seen.metric}. Got {places.metric}.")
        covariates = places.covariates if covariates is None else covariates
        places = places.locations
    places = checked_places(places, seen.metric)
    if places.shape[1] != seen.dimensions:
        raise InvalidInput(
            f"`places` must have {seen.dimensions} columns of coordinates, as the observations "
            f"have. Got {places.shape[1]}."
        )
    if covariates is not None:
        covariates = np.asarray(covariates, dtype=np.float64)
        covariates = covariates[:, None] if covariates.ndim == 1 else covariates
        check_finite(covariates, [str(j + 1) for j in range(covariates.shape[1])], "covariates")
    return places, fit.trend.design(places, covariates)


def _krige(fit, places, there):
    """Return means and variances of the field, (m,), from all observations."""
    seen, model = fit.observations, fit.model
    here = fit.trend.design(seen.locations, seen.covariates)
    evaluator = fit.method.prepare(seen, here, fit.reml)
    with blas_threads(len(seen)):
        factor = evaluator.factorize(model)
        known = fit_trend(factor, seen.values, here)
        weights = factor.solve(known.residual)
        root = known.root
        explained = _explained_by(factor, here)
        mean, variance = np.empty(len(places)), np.empty(len(places))
        step = max(1, CHUNK_ENTRIES // len(seen) // getattr(factor, "vectors", 1))
        for first in range(0, len(places), step):
            part = slice(first, first + step)
            k = model(seen.locations, places[part], seen.metric)
            mean[part] = there[part] @ known.coefficients + k.T @ weights
            # σ² - k'Σ⁻¹k + d'(X'Σ⁻¹X)⁻¹d with d = x₀ - X'Σ⁻¹k
            squares, cross = explained(np.asfortranarray(k))
            error = model.variance - squares
            if root.size:
                error += (((there[part] - cross) @ root) ** 2).sum(axis=1)
            variance[part] = error
    return mean, variance


def _explained_by(factor, here):
    """Return k -> the diagonal of k'Σ⁻¹k, and k'Σ⁻¹X."""
    if hasattr(factor, "gram"):

        def from_solutions(k):
            w = factor.solve(k)
            # k'Σ⁻¹k = 2k'w - w'Σw + O(δw²): what w still errs by counts twice
            squares = np.einsum("ij,ij->j", 2 * k - factor.times(w), w)
            return squares, w.T @ here

        return from_solutions
    # whitened once
    white = factor.whiten(np.asfortranarray(here)) if here.shape[1] else here

    def from_halves(k):
        half = factor.whiten(k)
        return np.einsum("ij,ij->j", half, half), half.T @ white

    return from_halves


def grid_over(observations, cells):
    """Return the cell centres of a regular grid over the bounding box of the observations.

    Parameters
    ----------
    observations : Observations
    cells : int
        Along the longer side; cells are square.

    Returns
    -------
    (m, d) ndarray

    Examples
    --------
    >>> seen = Observations([[0, 0], [4, 0], [4, 2], [0, 2]], [1.0, 2.0, 3.0, 5.0])
    >>> grid_over(seen, 2).tolist()
    [[1.0, 1.0], [3.0, 1.0]]
    """
    low, high = observations.locations.min(axis=0), observations.locations.max(axis=0)
    width = (high - low).max() / cells
    counts = np.maximum(np.round((high - low) / width), 1).astype(int)
    axes = [
        a + (np.arange(k) + 0.5) * (b - a) / k for a, b, k in zip(low, high, counts, strict=True)
    ]
    # the first coordinate runs fastest, as in a raster
    mesh = np.meshgrid(*axes[::-1], indexing="ij")
    return np.column_stack([axis.ravel() for axis in mesh[::-1]])
