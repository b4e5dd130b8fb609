"""Kriging from the nearest observations only, for fits of any kind.

Neighbours are the nearest where the model is isotropic: along the longest range of an anisotropic
one they reach further.
"""

from dataclasses import dataclass
from numbers import Integral

import numpy as np
import scipy

from ..covariance.matern import Matern
from ..covariance.neighbours import Tree, nearest, tree_of
from ..covariance.table import LARGEST_SMOOTHNESS
from ..errors import InvalidInput, NotPositiveDefinite
from ..execution.cluster_client import is_cluster
from ..execution.cluster_tasks import Tasks
from ..support.blocks import Points
from ..vecchia.graph import Field
from .factorize import coincidence
from .progress import Line

CHUNK = 1 << 16
"""Targets predicted at one time."""

LEAST_CHUNK = 1 << 12
"""Targets of a task on a cluster: fewer would take less time than what a task costs."""

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
    known, trend, design = _known(fit, design, neighbours, local_trend)
    mean, variance = np.empty(len(targets)), np.empty(len(targets))
    line = line or Line("predicting", shown=False)
    line.expect(len(targets), "places")
    tasks = Tasks(fit.method.on if is_cluster(fit.method.on) else "cpu")
    step = min(CHUNK, max(LEAST_CHUNK, -(-len(targets) // (4 * tasks.threads))))
    starts = range(0, len(targets), step)
    parts = [slice(first, min(first + step, len(targets))) for first in starts]
    cut = [(targets.part(part), design[part], part.start) for part in parts]
    for part, found in zip(parts, tasks.over(krige_part, known, cut), strict=True):
        mean[part], variance[part] = found
        line.advance(part.stop - part.start)
    return mean + trend, variance


@dataclass(frozen=True)
class Known:
    """What all predictions from neighbours read.

    Parameters
    ----------
    model : Matern
    metric : str
    tree : geomxp.covariance.neighbours.Tree
        Of the observations, where the model is isotropic.
    locations : (n, d) ndarray
        In the order of the tree, as the columns.
    columns : (1 + p, n) ndarray
        z - Xβ̂, and X'.
    count : int
        How many neighbours.
    spread : (p, p) ndarray or None
        Covariance of β̂; None for coefficients of the neighbours themselves.
    """

    model: Matern
    metric: str
    tree: Tree
    locations: np.ndarray
    columns: np.ndarray
    count: int
    spread: np.ndarray | None


def _known(fit, design, neighbours, local_trend):
    """Return `Known`, the trend at the targets, (k,), and their design for it."""
    seen, model = fit.observations, fit.model
    count = count_of(fit, neighbours)
    if model.smoothness > LARGEST_SMOOTHNESS:
        raise InvalidInput(
            f"`neighbours` needs a `smoothness` of at most {LARGEST_SMOOTHNESS:g}. "
            f"Got {model.smoothness:g}: predict from all observations."
        )
    tree = tree_of(model.isotropic(seen.locations, seen.metric))
    here = fit.trend.design(seen.locations, seen.covariates)
    residuals, trend = seen.values - here @ fit.coefficients, design @ fit.coefficients
    if local_trend and here.shape[1]:
        here, design = _orthogonal(here, design)
    columns = np.vstack((residuals, here.T))[:, tree.order]
    spread = fit.coefficient_covariance if not local_trend else None
    known = Known(model, seen.metric, tree, seen.locations[tree.order], columns, count, spread)
    return known, trend, design


def krige_part(known, part):
    """Return the means about the trend at β̂ and the variances of some targets, (k,).

    Parameters
    ----------
    known : Known
    part : (Points or Blocks, (k, p) ndarray, int)
        The targets, their design, and the number of the first, for messages.
    """
    targets, design, first = part
    model, metric, tree = known.model, known.metric, known.tree
    near = nearest(tree, model.isotropic(targets.places, metric), known.count)
    field = Field(model, metric, known.locations, targets.places)
    noise = np.full(len(known.locations), model.nugget)
    grams = field.grams(near, noise, known.columns, _covariances(known, targets, near))
    _check(grams, first)
    mean, less = _from_grams(grams, design, known.spread, first)
    return mean, targets.variances(model, metric) - less


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


def _covariances(known, targets, near):
    """Return covariances of targets that are no points with their neighbours, else None."""
    if isinstance(targets, Points):
        return None
    return np.vstack(
        [
            targets.covariances(known.model, known.locations[n], known.metric, slice(b, b + 1))[
                :, 0
            ]
            for b, n in enumerate(near)
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
