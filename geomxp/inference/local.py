"""Kriging from the nearest observations only, for fits of any kind.

Neighbours are the nearest where the model is isotropic: along the longest range of an anisotropic
one they reach further.
"""

from numbers import Integral

import numpy as np
import scipy

from ..covariance.neighbours import nearest, tree_of
from ..covariance.table import LARGEST_SMOOTHNESS
from ..errors import InvalidInput, NotPositiveDefinite
from ..support.blocks import Points
from ..vecchia.graph import Field
from .factorize import coincidence
from .progress import Line

CHUNK = 1 << 16
"""Targets predicted at one time."""

LEAST = 1e-12
"""Smallest eigenvalue of X_N'Σ⁻¹X_N, scaled to a unit diagonal, that still is an inverse's."""


def krige(fit, targets, design, neighbours=None, local_trend=False, line=None):
    """Return means and variances of targets, each from its nearest observations.

    E f = x₀'β + λ'(z_N - X_N β) with Σ_NN λ = k, and the variance c - k'λ + d'Cov(β)d with
    d = x₀ - X_N'λ; c is the target's own variance. β and its covariance are those of all
    observations, or generalised least squares on the neighbours. With all observations for
    neighbours both are kriging.

    Parameters
    ----------
    fit : Fit
    targets : Points or Blocks
        The neighbours of a block are those of its centre.
    design : (k, p) ndarray
        The trend's x₀'.
    neighbours : int, optional
        Twice those of the fit if not given, which must then be by `Vecchia`.
    local_trend : bool
        Whether β is that of the neighbours.
    line : Line, optional
        Told how many targets are done.

    Returns
    -------
    mean, variance : (k,) ndarray

    Raises
    ------
    InvalidInput
        If the neighbours of a target do not determine their own trend.
    NotPositiveDefinite
    """
    seen, model = fit.observations, fit.model
    count = count_of(fit, neighbours)
    if model.smoothness > LARGEST_SMOOTHNESS:
        raise InvalidInput(
            f"`neighbours` needs a `smoothness` of at most {LARGEST_SMOOTHNESS:g}. "
            f"Got {model.smoothness:g}: predict from all observations."
        )
    tree = tree_of(model.isotropic(seen.locations, seen.metric))
    here = fit.trend.design(seen.locations, seen.covariates)
    known, trend = seen.values - here @ fit.coefficients, design @ fit.coefficients
    if local_trend and here.shape[1]:
        here, design = _orthogonal(here, design)
    columns = np.vstack((known, here.T))[:, tree.order]
    noise = np.full(len(seen), model.nugget)
    mean, variance = np.empty(len(targets)), targets.variances(model, seen.metric)
    line = line or Line("predicting", shown=False)
    line.expect(len(targets), "places")
    for first in range(0, len(targets), CHUNK):
        part = slice(first, min(first + CHUNK, len(targets)))
        places = targets.places[part]
        near = nearest(tree, model.isotropic(places, seen.metric), count)
        field = Field(model, seen.metric, seen.locations[tree.order], places)
        given = _covariances(fit, targets, tree.order[near], part)
        grams = field.grams(near, noise, columns, given)
        _check(grams, first)
        spread = fit.coefficient_covariance if not local_trend else None
        mean[part], less = _from_grams(grams, design[part], spread, first)
        variance[part] -= less
        line.advance(len(less))
    return mean + trend, variance


def _from_grams(grams, design, spread, first):
    """Return λ'(z_N - X_N β̂) and what the target's own variance is reduced by, (k,).

    Parameters
    ----------
    grams : (k, 2 + p, 2 + p) ndarray
        Of the whitened k, z_N - X_N β̂ and X_N.
    design : (k, p) ndarray
    spread : (p, p) ndarray or None
        Covariance of β̂; None for coefficients of the neighbours themselves.
    first : int
        Number of the first target, for messages.
    """
    mean, less = grams[:, 0, 1].copy(), grams[:, 0, 0].copy()
    apart = design - grams[:, 0, 2:]
    if spread is not None:
        return mean, less - np.einsum("ij,jk,ik->i", apart, spread, apart)
    if not design.shape[1]:
        return mean, less
    # β of the neighbours is β̂ + (X_N'Σ⁻¹X_N)⁻¹X_N'Σ⁻¹(z_N - X_N β̂)
    weights = np.linalg.solve(_determined(grams[:, 2:, 2:], first), apart[..., None])[..., 0]
    mean += np.einsum("ij,ij->i", weights, grams[:, 2:, 1])
    return mean, less - np.einsum("ij,ij->i", weights, apart)


def _determined(information, first):
    """Return X_N'Σ⁻¹X_N of all targets if each has an inverse."""
    scale = np.sqrt(np.einsum("ijj->ij", information))
    with np.errstate(invalid="ignore", divide="ignore"):
        unit = information / (scale[:, :, None] * scale[:, None, :])
    unit = np.where(np.isfinite(unit), unit, 0.0)
    bad = np.flatnonzero(np.linalg.eigvalsh(unit)[:, 0] < LEAST)
    if len(bad):
        raise InvalidInput(
            f"the neighbours of place {first + bad[0] + 1} do not determine the trend's "
            f"coefficients ({len(bad)} such places): use more `neighbours`, or local_trend=False."
        )
    return information


def _orthogonal(here, there):
    """Return the design at observations with orthonormal columns, and that of targets alike."""
    q, r = np.linalg.qr(here)
    # well enough apart on all places, they mostly are on a few
    return q, scipy.linalg.solve_triangular(r, there.T, trans="T").T


def _covariances(fit, targets, rows, part):
    """Return covariances of targets that are no points with their neighbours, else None."""
    if isinstance(targets, Points):
        return None
    seen, model = fit.observations, fit.model
    return np.vstack(
        [
            targets.covariances(model, seen.locations[near], seen.metric, slice(b, b + 1))[:, 0]
            for b, near in zip(range(part.start, part.stop), rows, strict=True)
        ]
    )


def _check(grams, first):
    bad = np.flatnonzero(~np.isfinite(grams).all(axis=(1, 2)))
    if len(bad):
        raise NotPositiveDefinite(
            f"the covariance matrix of the observations near place {first + bad[0] + 1} is not "
            "positive definite in FP64: use fewer neighbours or a larger nugget."
        )


def count_of(fit, neighbours):
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
