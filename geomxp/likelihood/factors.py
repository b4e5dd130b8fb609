"""The factor of Σ(θ): one array, tiles in formats that a rule chooses, or a tree of halves."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

import numpy as np

from ..covariance.ordering import hilbert, spread
from ..errors import InvalidInput, NotPositiveDefinite
from ..linalg import recursive
from ..linalg.formats import FP64
from ..linalg.nested import SymmetricTree
from ..linalg.precision import (
    Frozen,
    PrecisionMap,
    Uniform,
    as_rule,
    count_finer,
    describe,
    layered_map,
    layers_of,
    predicted,
    promised_error,
)
from ..runtime.devices import free_memory, require_memory
from ..tiles import assemble
from ..tiles.cholesky import factorize
from ..tiles.factor import CholeskyFactor, TreeFactor
from ..tiles.layout import Layout
from ..tiles.placement import InMemory
from .base import coincidence, noiseless_twins
from .cost import alternatives, bytes_for

BLIND_RULES = ("uniform", "by_band", "layered")
"""Rules that do not depend on the matrix."""


def dense_factor(model, observations, device, workspace=None):
    """Return the `CholeskyFactor` of Σ(θ) in FP64 as one array, in the workspace if given."""
    sigma = assemble.covariance_matrix(
        model, observations.inputs, observations.metric, workspace, device.index
    )
    return CholeskyFactor(recursive.potrf(sigma))


def tree_factor(model, observations, rule, device):
    """Return the `TreeFactor` of Σ(θ), its blocks in the layers of a rule.

    If it has no Cholesky factor in these, it is factored without the coarsest layer, then in FP64.
    """
    n = len(observations)
    order = hilbert(model.isotropic(observations.inputs))
    places, metric = observations.inputs[order], observations.metric
    originals = assemble.Originals(model, places, metric, Layout.of(n, n), device.index)
    first = layered_map(layers_of(rule), n, device.name)
    for attempt in (rule, *finer_rules(rule)):
        layers = layers_of(attempt)
        check_memory_of_tree(n, layers, device)
        try:
            tree = SymmetricTree.generated(originals.block, originals.diagonal(), layers).potrf()
        except NotPositiveDefinite:
            if layers == (FP64,):
                raise
            continue
        # with as many block rows as the first one
        formats = layered_map(layers, n, device.name, depth=len(first).bit_length() - 1)
        promoted = count_finer(first, formats)
        return TreeFactor(tree, formats, originals.exponent, order, promoted, originals)
    raise AssertionError("unreachable: FP64 has been tried")


def check_memory_of_tree(n, layers, device):
    """Raise `NotEnoughMemory` if a tree does not fit with a block that is being computed.

    The block is a quarter of the matrix; its casts take as much again, twice at most.
    """
    formats = layered_map(layers, n, device.name)
    stored = formats.bytes(Layout.of(n, -(-n // len(formats))))
    matrices = (stored + 3 * layers[-1].bytes * n * n / 4) / (8 * n * n)
    check_memory(n, matrices, device)


def tile_factor(model, observations, rule, tile=None, placement=None, host=None, order=None):
    """Return the `TileFactor` of Σ(θ), with formats chosen by a rule of `linalg.precision`.

    If a diagonal tile has no Cholesky factor, its block row is promoted by one level. On a second
    failure the factorization restarts with the rule's finer form (ε/10), then in FP64. Without a
    placement all tiles are in RAM; a `host` (see `Placement.store`) becomes part of the factor.
    `order` is that of the locations, by default one that suits the model. If `tile` is
    `layout.WHOLE`, the tiles are the blocks of a `Tree`, which does not promote rows.
    """
    placement, rule = placement or InMemory(), as_rule(rule)
    order, places, originals = originals_of(
        model, observations, tile, placement, order, within=rule.low_rank
    )
    _check_thinned(rule, originals, placement)
    asked, first = asked_by(rule, originals, places, observations.metric), None
    roughly = partial(_roughly, originals, placement)
    norms = cache(roughly if rule.low_rank else exact_norms(rule, originals))
    attempts = rule, *finer_rules(rule)
    for attempt in attempts:
        formats = _chosen(attempt, originals.layout, norms, asked)
        first = first or formats
        store = placement.store(originals, formats, host)
        try:
            store.factorize() if originals.layout.joined else factorize(store)
        except NotPositiveDefinite:
            if host is None:
                store.close()
            else:
                # pinned memory is kept for the next evaluation
                host.reserve(0)
            if formats.all_fp64 or attempt is attempts[-1]:
                raise
            continue
        except BaseException as error:
            # an interrupted run keeps its tiles on disk, as a killed one does
            store.leave() if isinstance(error, KeyboardInterrupt) else store.close()
            raise
        promoted = count_finer(first, store.formats)
        if promoted and formats.tolerances is None:
            divergence = predicted(store.formats, norms(), **asked) if asked else None
            error = promised_error(store.formats, norms())
            store.formats = replace(store.formats, error=error, divergence=divergence)
        return store.factor(order, promoted)
    raise AssertionError("unreachable: FP64 has been tried")


SLOW_NORMS_LOCATIONS = 50_000
"""Number of locations from which the norms of all tiles take some seconds."""

THINNING_STEP = 8
"""Every so many locations give the norms of tiles up to a factor, in 1/64 of the time."""


def _check_thinned(rule, originals, placement):
    """Raise `NotEnoughMemory` if tiles do not fit by far, before the norms of all are computed.

    A subset of each tile's rows and columns has nearly its share of the norm, and rules compare
    norms with each other. `store` checks the formats that are used.
    """
    if not rule.low_rank:
        originals.check_memory()
    layout = originals.layout
    blind = is_blind(rule) or rule.needs_precisions or not placement.checks_room
    if layout.n < SLOW_NORMS_LOCATIONS or layout.tile % THINNING_STEP or blind:
        return
    norms = _thinned(originals, placement).norms()
    placement.check_room(int(0.8 * rule(norms).bytes(layout)))


def _thinned(originals, placement):
    """Return the `Originals` of every `THINNING_STEP`-th location."""
    (model, places, metric, _), layout = originals.source, originals.layout
    fewer = Layout.of(-(-layout.n // THINNING_STEP), layout.tile // THINNING_STEP)
    return placement.originals(model, places[::THINNING_STEP], metric, fewer)


def _roughly(originals, placement):
    """Return the norms of all tiles, estimated from a subset of their rows and columns."""
    if originals.layout.tile % THINNING_STEP:
        return originals.norms()
    return THINNING_STEP * _thinned(originals, placement).norms()


def originals_of(model, observations, tile, placement, order=None, within=False):
    """Return an order of the locations, the locations in it, and the `Originals`.

    Without `order` it is Hilbert's; with `within` the first locations of each block row are spread
    over it.
    """
    layout = placement.layout(len(observations), tile)
    if order is None:
        points = model.isotropic(observations.inputs)
        order = hilbert(points)
        order = order[spread(points[order], layout.tile)] if within else order
    places = observations.inputs[order]
    return order, places, placement.originals(model, places, observations.metric, layout)


def formats_of(rule, originals, places, metric):
    """Return the validated formats that a rule chooses for the tiles of Σ(θ)."""
    asked = asked_by(rule, originals, places, metric)
    return _chosen(rule, originals.layout, exact_norms(rule, originals), asked)


def exact_norms(rule, originals):
    """Return a function that computes the norms of all tiles, or those that a tree's rule needs."""
    return partial(originals.norms_for, rule) if originals.layout.joined else originals.norms


def asked_by(rule, originals, places, metric):
    """Return the arguments of a rule in addition to the norms of the tiles."""
    if not rule.needs_precisions:
        return {}
    layout = originals.layout
    precisions, clumped = assemble.conditional_precisions(originals, places, metric)
    return {
        "precisions": precisions,
        "clumped": clumped,
        "sizes": layout.heights,
    }


def _chosen(rule, layout, norms, asked):
    """Return the validated formats of a rule; the norms are computed only if it needs them."""
    tiles, asked = layout.tiles, asked if rule.needs_precisions else {}
    given = norms() if _needs_norms(rule, tiles) else np.ones((tiles, tiles))
    if layout.joined:
        formats = rule.joined(given, **{"sizes": layout.heights} | asked, least=layout.joined)
    else:
        formats = rule(given, **asked)
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
    if not is_blind(rule):
        return True
    # the relative error of tiles in one format is its unit roundoff, whatever their norms
    return len(rule(np.ones((tiles, tiles))).counts()) > 1


def is_blind(rule):
    """Whether the formats of a rule do not depend on the matrix."""
    named = describe(rule)
    return named is not None and named["rule"] in BLIND_RULES


def finer_rules(rule):
    """Return the rules to try after one that fails: its finer form, then FP64.

    Of low rank a form finer still, because a dense matrix may not fit the memory.
    """
    finer = rule.finer()
    return (finer, finer.finer() if rule.low_rank else Uniform(FP64))


def explain(error, observations, model):
    """Return `NotPositiveDefinite` with a message that names the closest locations and a remedy."""
    twins = noiseless_twins(model, observations)
    if twins:
        return NotPositiveDefinite(coincidence(observations, twins), error.order)
    advice = "give the model a nugget" if model.nugget == 0 else "use a larger nugget"
    i, j = _closest_pair(observations, model)
    return NotPositiveDefinite(
        f"the covariance matrix is not positive definite in FP64 (leading minor {error.order} of "
        f"{len(observations)}); the closest locations are rows {i + 1} and {j + 1}: {advice}, a "
        "shorter range or a smaller smoothness.",
        error.order,
    )


def _closest_pair(observations, model):
    from scipy.spatial import cKDTree

    points = model.isotropic(observations.inputs)
    distance, neighbour = cKDTree(points).query(points, k=2)
    i = int(np.argmin(distance[:, 1]))
    j = int(neighbour[i, 1] if neighbour[i, 1] != i else neighbour[i, 0])
    return min(i, j), max(i, j)


def check_memory(n, matrices, device, held=0, remedy=None):
    """Raise `NotEnoughMemory` if n×n FP64 matrices exceed the free and already held bytes.

    `remedy` says what to use instead; by default another method for a fit.
    """
    on_gpu = device.index is not None
    kind, free = "memory", free_memory()
    if on_gpu:
        kind, free = "device memory", device.free_memory()
    needed = bytes_for(n, matrices, device)
    if needed > free + held:
        # alternatives are timed
        remedy = remedy or alternatives(n, on_gpu)
        require_memory(f"the exact method for {n:,} locations needs", needed, remedy, free, kind)
