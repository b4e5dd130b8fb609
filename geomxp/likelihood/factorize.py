"""Compute the Cholesky factor of Σ(θ): one dense matrix, or tiles in mixed formats."""

from dataclasses import replace
from functools import cache

import numpy as np

from ..covariance.ordering import hilbert
from ..errors import InvalidInput, NotPositiveDefinite
from ..linalg import recursive
from ..linalg.formats import FP64
from ..linalg.precision import (
    Frozen,
    PrecisionMap,
    Uniform,
    as_rule,
    count_finer,
    describe,
    predicted,
    promised_error,
)
from ..tiles import assemble
from ..tiles.cholesky import factorize
from ..tiles.factor import CholeskyFactor
from ..tiles.placement import InMemory

BLIND = ("uniform", "by_band", "layered")
"""Rules that do not depend on the matrix."""


def dense_factor(model, observations, device, workspace=None):
    """Factor Σ(θ) in FP64 as one array.

    Parameters
    ----------
    model : Covariance
    observations : Observations
    device : Device
    workspace : (n, n) array on the device, Fortran order, optional
        Written over, and then part of the factor.

    Returns
    -------
    CholeskyFactor

    Raises
    ------
    NotPositiveDefinite
    """
    about = observations.locations, observations.metric, workspace, device.index
    sigma = assemble.covariance_matrix(model, *about)
    return CholeskyFactor(recursive.potrf(sigma))


def tile_factor(model, observations, rule, tile=None, placement=None, host=None):
    """Factor Σ(θ) in tiles with formats chosen by a rule, promoted to finer ones on failure.

    If a diagonal tile has no Cholesky factor, its block row is promoted by one level. On a second
    failure the factorization restarts with the rule's finer form (ε/10), then in FP64.

    Parameters
    ----------
    model : Covariance
    observations : Observations
    rule : callable
        Of `geomxp.linalg.precision`.
    tile : int, optional
    placement : Placement, optional
        The CPU, with all tiles in RAM, if not given.
    host : Host, optional
        See `Placement.store`; it is then part of the factor.

    Returns
    -------
    TileFactor

    Raises
    ------
    NotPositiveDefinite
        If FP64 fails as well.
    NotEnoughMemory
        If the tiles do not fit in the formats that the rule gives them.
    """
    placement, rule = placement or InMemory(), as_rule(rule)
    order = hilbert(model.isotropic(observations.locations, observations.metric))
    places, layout = (
        observations.locations[order],
        placement.layout(len(observations.locations), tile),
    )
    originals = placement.originals(model, places, observations.metric, layout)
    about, first = _asked_by(rule, originals, places, observations.metric), None
    norms = cache(originals.norms)
    for attempt in (rule, *finer_rules(rule)):
        formats = _chosen(attempt, layout.tiles, norms, about)
        first = first or formats
        store = placement.store(originals, formats, host)
        try:
            factorize(store)
        except NotPositiveDefinite:
            if host is None:
                store.close()
            else:
                # pinned memory is kept for the next evaluation
                host.reserve(0)
            if formats.all_fp64:
                raise
            continue
        except BaseException as error:
            # an interrupted run keeps its tiles on disk, as a killed one does
            store.leave() if isinstance(error, KeyboardInterrupt) else store.close()
            raise
        promoted = count_finer(first, store.formats)
        if promoted:
            store.formats = _as_promoted(store.formats, norms(), about)
        return store.factor(order, promoted)
    raise AssertionError("unreachable: FP64 has been tried")


def _asked_by(rule, originals, places, metric):
    """Return the arguments of a rule beside the norms of the tiles."""
    if not rule.needs_precisions:
        return {}
    from ..tiles.assemble import conditional_precisions

    layout = originals.layout
    return {
        "precisions": conditional_precisions(originals, places, metric),
        "sizes": np.array([layout.height(i) for i in range(layout.tiles)]),
    }


def _chosen(rule, tiles, norms, about):
    """Return the validated formats of a rule; the norms are computed only if it needs them."""
    given = norms() if _needs_norms(rule, tiles) else np.ones((tiles, tiles))
    formats = rule(given, **(about if rule.needs_precisions else {}))
    if not isinstance(formats, PrecisionMap) or len(formats) != tiles:
        raise InvalidInput(
            f"the precision rule must return a PrecisionMap of {tiles} block rows. "
            f"Got {type(formats).__name__}."
        )
    return formats


def _needs_norms(rule, tiles):
    """Whether the formats of a rule, or their predicted error, depend on the norms."""
    if isinstance(rule, Frozen):
        return False
    if not _is_blind(rule):
        return True
    # the relative error of tiles in one format is its unit roundoff, whatever their norms
    return len(rule(np.ones((tiles, tiles))).counts()) > 1


def _is_blind(rule):
    """Whether the formats of a rule do not depend on the matrix."""
    named = describe(rule)
    return named is not None and named["rule"] in BLIND


def planned_formats(rule, layout, placement, observations=None, model=None):
    """Return the formats with which `tile_factor` begins.

    Parameters
    ----------
    rule : callable
    layout : Layout
    placement : Placement
    observations : Observations, optional
    model : Covariance, optional
        Not needed for rules that do not depend on the matrix.

    Raises
    ------
    InvalidInput
        If the rule depends on the matrix and they are not given.
    """
    if observations is None or model is None:
        if not _is_blind(rule):
            raise InvalidInput(
                "the formats of this `precision` depend on the matrix: give the observations and a "
                "model, method.plan(observations, model)."
            )
        return rule(np.ones((layout.tiles, layout.tiles)))
    places = observations.locations[
        hilbert(model.isotropic(observations.locations, observations.metric))
    ]
    originals = placement.originals(model, places, observations.metric, layout)
    about = _asked_by(rule, originals, places, observations.metric)
    return _chosen(rule, layout.tiles, originals.norms, about)


def _as_promoted(formats, norms, about):
    """Return a map with its predicted error and divergence after promotions."""
    divergence = predicted(formats, norms, **about) if about else None
    return replace(formats, error=promised_error(formats, norms), divergence=divergence)


def finer_rules(rule):
    """Return the rules to try after one that fails: its finer form, then FP64."""
    return (_finer(rule), Uniform(FP64))


def _finer(rule):
    """Return the finer form of a rule."""
    return rule.finer()


def explain(error, observations, model):
    """Return `NotPositiveDefinite` with a message that names the closest locations and a remedy."""
    if model.nugget == 0 and observations.duplicate():
        return NotPositiveDefinite(coincidence(observations), error.order)
    advice = (
        "give the model a nugget" if model.nugget == 0 else "use a larger nugget"
    ) + ", a shorter range or a smaller smoothness"
    i, j = _closest_pair(observations, model)
    return NotPositiveDefinite(
        f"the covariance matrix is not positive definite in FP64 (leading minor {error.order} of "
        f"{len(observations)}); the closest locations are rows {i + 1} and {j + 1}: {advice}.",
        error.order,
    )


def coincidence(observations):
    """Return the message for duplicate locations without a nugget."""
    i, j = observations.duplicate()
    place = ", ".join(f"{c:g}" for c in observations.locations[i])
    return (
        f"rows {i + 1} and {j + 1} are at the same place ({place}) and the nugget is 0: the "
        "covariance matrix is singular. Estimate a nugget, or drop one of the rows."
    )


def _closest_pair(observations, model):
    from scipy.spatial import cKDTree

    points = model.isotropic(observations.locations, observations.metric)
    distance, neighbour = cKDTree(points).query(points, k=2)
    i = int(np.argmin(distance[:, 1]))
    j = int(neighbour[i, 1] if neighbour[i, 1] != i else neighbour[i, 0])
    return min(i, j), max(i, j)
