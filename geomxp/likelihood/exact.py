"""The exact likelihood: one Cholesky factorization of the whole covariance matrix.

The factor of Σ(θ) is one dense matrix, tiles in mixed formats, or a tree of halved blocks.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, wraps
from numbers import Integral
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING

import numpy as np

from ..covariance.base import Covariance
from ..covariance.ordering import hilbert
from ..covariance.responses import Response, response_of
from ..data.observations import Observations
from ..errors import (
    DuplicateLocations,
    Ending,
    GeomxpWarning,
    InvalidInput,
    NotEnoughMemory,
    NotPositiveDefinite,
    NotRefined,
    Outcome,
    check_flags,
)
from ..linalg import recursive
from ..linalg.device import empty_matrix
from ..linalg.formats import FP32, FP64
from ..linalg.precision import (
    Frozen,
    PrecisionMap,
    Uniform,
    as_rule,
    candidates,
    describe,
    in_words,
    layered_map,
    layers_of,
    promised_error,
    uniform,
)
from ..runtime.dask import address_of
from ..runtime.devices import (
    Device,
    blas_threads,
    free_memory,
    gpu_memory,
    is_cluster,
)
from ..runtime.trace import Trace
from ..runtime.turns import given_up
from ..tiles import assemble
from ..tiles.factor import CholeskyFactor
from ..tiles.layout import WHOLE, Layout
from ..tiles.placement import MemoryPlan, Placement
from ..tiles.refine import REFINEMENT_METHODS, RefinedFactor
from .base import (
    OVERFLOW_MESSAGE,
    Evaluation,
    Evaluator,
    Likelihood,
    Values,
    check_noise,
    gaussian_log_likelihood,
    noiseless_twins,
)
from .cost import LEAST_PANEL_COLUMNS, bytes_for, columns_of_panel
from .derivatives import differentiate
from .differences import Differences
from .evaluators import evaluator_for
from .factors import (
    check_memory,
    check_memory_of_tree,
    dense_factor,
    exact_norms,
    explain,
    finer_rules,
    formats_of,
    is_blind,
    originals_of,
    tile_factor,
    tree_factor,
)
from .probes import ENOUGH_DIVERGENCE, FormatDivergence, divergence_between, measure
from .replicates import evaluator_of
from .rounding import FP64_ROUNDOFF, bound, caution_rounding, from_noise, unit_of
from .trend import Trend, centred, fit_trend

if TYPE_CHECKING:
    from .._typing import Callable, Client, Document, Floats, Sequence, TrendLike
    from ..linalg.formats import Format
    from ..linalg.precision import Rule
    from ..tiles.stores import Store

LOW_RANK_TILE_ROWS = ((4_000, 256), (20_000, 448), (40_000, 640), (80_000, 768), (10**12, 1024))
"""Rows of low-rank tiles, by the largest number of locations."""

MOST_TILES = 5_000
"""Tiles per dimension that `Exact.plan` lists: the time grows with their square."""

KEPT_FIELD_LOCATIONS = 500
"""Observations up to which the covariance of the field is kept beside Σ: 2 MB."""

EXACT_DIVERGENCE_LOCATIONS = 1000
"""Locations up to which a fit compares its formats with a factor in FP64."""

DIVERGENCE_MARGIN, MOST_RAISES = 4.0, 2
"""Finer formats aim at the limit over this margin; after so many attempts they are FP64."""

MEASURED_STEP = 0.25
"""Change of a logarithm after which a search measures the divergence again."""

BROKEN_PROMISE = 1.5
"""Formats of one model are kept for another while their error is at most so many times that of the
rule."""

LARGEST_SCORE_ERROR = 0.01
"""Estimated error of a score by an inverse in FP32, in standard errors, above which it is FP64."""

LEAST_COLUMNS_ON_REQUEST = 16
"""Columns of Σ⁻¹ and of whitened derivatives that are computed together at least where information
is asked for by name, and the memory is bounded."""

LARGEST_FP32_EXPONENT = 16
"""Exponents of Σ's unit, 4^e, with which Σ⁻¹ is far from the limits of FP32."""


def _one_at_a_time(method):
    """Serialize calls from threads that share an evaluator and its workspace."""

    @wraps(method)
    def waiting(self, *arguments, **options):
        if not self._lock.acquire(blocking=False):
            with given_up():
                self._lock.acquire()
        try:
            return method(self, *arguments, **options)
        finally:
            self._lock.release()

    return waiting


class ExactEvaluator(Evaluator):
    """ℓ(θ) and its derivatives for one data set, by Cholesky factorization of Σ."""

    expensive = True

    def __init__(self, observations, design, reml, method, values=None):
        self.observations = observations
        self.values = Values(observations) if values is None else values
        n = len(observations)
        self.design = np.zeros((n, 0)) if design is None else design
        self.reml = reml
        self.method = method
        # computed at each access
        self.placement, self._tiled = method.placement, method.tiled
        self.device = self.placement.devices[0]
        if method.refine and is_cluster(method.on):
            raise InvalidInput(
                '`refine` is for the CPU or GPUs of one machine: use on="cpu" or on="gpu". '
                f"Got on={method.on!r}."
            )
        if method.layers is not None:
            check_memory_of_tree(n, method.layers, self.device)
        elif not method.dense:
            # a wrong size is an error before the first evaluation, and too little memory also for
            # the coarsest formats before the norms of all tiles are computed
            self.placement.layout(n, method.tile_for(n)).check_room()
            if not (is_blind(method.precision) or method.low_rank):
                least = min(form.bytes for form in candidates())
                self.placement.check_room(least * n * (n + 1) // 2)
        else:
            check_memory(n, 1, self.device)
        self._workspace, self._single, self._lock = None, None, RLock()
        self._twins = observations.duplicate()
        self._frozen = self._order = self._curve = None
        # in searches formats are those of one model, and finer ones where these are not enough
        self.moves = method.noisy and not method.low_rank
        self._raised, self._raises, self._warned = None, 0, False
        self.divergence = self._measured_at = None
        self._last = (None, None, None)
        self._centred = (None, None)
        self._field = (None, None)

    @_one_at_a_time
    def freeze(self, model):
        """See `Evaluator.freeze`.

        Formats that also suit this model are kept. The first factorization in new ones measures
        their divergence, and finer ones are chosen until it is small enough.
        """
        if self.method.low_rank:
            self._freeze_ranks(model)
        elif self._frozen is None:
            self._choose_formats(model)
        elif self._is_coarse():
            self._raise_formats(model)
        elif self._raised is not None and self._has_moved(model):
            # those asked for may be fine enough here
            self._raised, self._raises = None, 0
            self._choose_formats(model)
        elif self.would_move(model):
            self._choose_formats(model)

    def _freeze_ranks(self, model):
        self._frozen = self._order = None
        self._last = (None, None, None)
        try:
            self._frozen = Frozen(self.factorize(model, self._space()).precision_map)
        except NotPositiveDefinite:
            # each model then has ranks of its own
            return

    def _choose_formats(self, model):
        """Keep the formats that the rule chooses at a model, without a factorization."""
        self._last, self.divergence = (None, None, None), None
        self._frozen = self._rule
        if not is_blind(self._rule):
            norms = self._norms_at(model)
            self._frozen = Frozen(formats_of(self._rule, *norms))

    def _norms_at(self, model):
        """Return originals, locations and metric at a model, for `formats_of`."""
        seen, tile = self.observations, self.method.tile_for(len(self.observations))
        order = self._along_curve(model)
        _, places, originals = originals_of(model, seen, tile, self.placement, order)
        return originals, places, seen.metric

    @gpu_memory()
    @_one_at_a_time
    def divergence_at(self, model):
        """See `Evaluator.divergence_at`; exact for few locations."""
        n, rule = len(self.observations), self.method.precision
        if not self.method.noisy:
            return None
        try:
            with blas_threads(0 if self._tiled else n):
                exact = n <= EXACT_DIVERGENCE_LOCATIONS
                if not exact and self.divergence is not None and self._measured_at == model:
                    found = self.divergence
                else:
                    factor = self.factorize(model, self._space())
                    found = self._exactly(factor, model) if exact else None
                    found = found or measure(factor, index=self.device.index)
        except (NotPositiveDefinite, NotEnoughMemory) as error:
            found = FormatDivergence(float("nan"), reason=str(error))
        return replace(found, target=rule.kl)

    def _exactly(self, factor, model):
        """Return the divergence of a factor from one in FP64; None if Σ has none."""
        factor = factor.factor if factor.refines else factor
        try:
            reference = dense_factor(model, self.observations, Device("cpu"))
        except NotPositiveDefinite:
            return None
        return FormatDivergence(divergence_between(reference, factor))

    @property
    def notice(self):
        """See `Evaluator.notice`."""
        if self._raised is None:
            return ""
        return (
            f"The formats of {in_words(self.method.precision)} are not fine enough for "
            f"{self._purpose}: their divergence from FP64 is {self._first_kl:.2g} nats. The fit "
            f"uses those of {in_words(self._raised)}. To keep yours, give Exact(..., "
            "keep_formats=True) (--keep-formats)."
        )

    @property
    def scatter(self):
        """See `Evaluator.scatter`."""
        return 0.0 if self.divergence is None else self.divergence.scatter

    @property
    def _rule(self):
        """The rule of the method, or a finer one."""
        return self._raised or self.method.precision

    @_one_at_a_time
    def would_move(self, model, exactly=False):
        """See `Evaluator.would_move`: whether formats that are kept break the rule's promise."""
        if not self.moves or self._frozen is None:
            return False
        if self._is_coarse():
            return True
        # formats for a divergence are judged by the measured one
        if is_blind(self._rule) or self._rule.accuracy is None:
            return False
        originals, *_ = self._norms_at(model)
        promised = promised_error(self._frozen.formats, exact_norms(self._rule, originals)())
        return promised > BROKEN_PROMISE * self._rule.accuracy

    def _is_coarse(self):
        """Whether the measured divergence is too large, and formats can be finer."""
        found, rule = self.divergence, self._frozen
        if found is None or self.method.keep_formats or rule == Uniform(FP64):
            return False
        if isinstance(rule, Frozen) and rule.formats.all_fp64:
            return False
        # not larger by chance; it may also be NaN
        return not found.kl - 2 * found.standard_error <= self._divergence_limit

    @property
    def _purpose(self):
        """What formats have to be fine enough for, in words."""
        target = self.method.precision.kl
        if target is not None:
            return f"the target {target:g}"
        return "estimates within 0.01 standard errors of FP64's"

    @property
    def _divergence_limit(self):
        return self.method.precision.kl or ENOUGH_DIVERGENCE

    def __call__(self, model):
        """See `Evaluator.__call__`; the evaluation of the last `derivatives` is cached."""
        return self._evaluate(model, careful=False)

    def carefully(self, model):
        """See `Evaluator.carefully`."""
        return self._evaluate(model, careful=True)

    @gpu_memory()
    @_one_at_a_time
    def _evaluate(self, model, careful):
        if self._last[0] == model:
            return self._last[1]
        start = time.perf_counter()
        n = len(self.observations)
        try:
            # tiles are shared by threads of geomxp
            with blas_threads(0 if self._tiled else n):
                factor = self.factorize(model, self._space())
                least_squares = self._least_squares(factor, model)
                return self._evaluation(factor, model, least_squares, start, careful)
        except NotPositiveDefinite as error:
            refining = isinstance(error, NotRefined)
            ending = Ending.STALLED if refining else Ending.NOT_POSITIVE_DEFINITE
            return Evaluation.failed(Outcome(ending, str(error)), n, time.perf_counter() - start)

    def _least_squares(self, factor, model):
        z = self.values.at(model.transform).z
        if self._centred[0] is not z:
            # the same for all models of one transformation
            self._centred = z, centred(z, self.design)
        values, start = self._centred[1]
        return fit_trend(factor, values, self.design, start)

    def _space(self):
        """Return the workspace that all evaluations overwrite, allocated on first use."""
        # allocating it takes longer than computing its entries, and pinning it longer still
        n, index = len(self.observations), self.device.index
        if self._workspace is None and not self.method.whole:
            if self._tiled:
                self._workspace = self.placement.host()
            elif index is None:
                self._workspace = np.empty((n, n), order="F")
            else:
                self._workspace = empty_matrix(n, index)
        return self._workspace

    def _evaluation(self, factor, model, least_squares, start, careful):
        """Return the evaluation at a model, given the factor of Σ; see `carefully`."""
        n, log_determinant = len(self.observations), factor.log_determinant()
        value = gaussian_log_likelihood(n, log_determinant, least_squares, self.reml)
        log_jacobian = self.values.at(model.transform).log_jacobian
        value += log_jacobian
        if not np.isfinite(value):
            outcome = Outcome(Ending.NOT_POSITIVE_DEFINITE, OVERFLOW_MESSAGE)
            return Evaluation.failed(outcome, n, time.perf_counter() - start)
        # before the solves below
        moved, events = factor.moved, factor.events
        rounding, form = None, least_squares.quadratic_form
        noise = model.noise(self.observations.inputs)
        if careful:
            rounding = bound(factor, model, noise, least_squares.residual, form, log_determinant)
        elif unit_of(factor) == FP64_ROUNDOFF:
            rounding = from_noise(model, noise, n, form, log_determinant)
        return Evaluation(
            log_likelihood=value,
            log_determinant=log_determinant,
            quadratic_form=form,
            outcome=Outcome(Ending.COMPUTED),
            n=n,
            reml=self.reml,
            coefficients=least_squares.coefficients,
            coefficient_covariance=least_squares.coefficient_covariance,
            log_determinant_of_information=least_squares.log_determinant_of_information,
            precision_map=factor.precision_map,
            promotions=factor.promotions,
            refinement=factor.last,
            traffic=moved,
            events=events,
            seconds=time.perf_counter() - start,
            log_jacobian=log_jacobian,
            rounding=rounding,
        )

    def _along_curve(self, model):
        """Return the order of the locations along Hilbert's curve, computed once if it can be."""
        points = model.isotropic(self.observations.inputs)
        if self._curve is None or not np.array_equal(points, self._curve[0]):
            # of an anisotropic model the points depend on its parameters
            self._curve = points, hilbert(points)
        return self._curve[1]

    @gpu_memory()
    def factorize(self, model, workspace=None):
        """Return the Cholesky factor of Σ(θ); `NotPositiveDefinite` names the closest locations.

        A workspace, an (n, n) array on the device or a Host, is overwritten and then part of the
        factor: passing it again destroys that factor.
        """
        observations = self.observations
        model.check_inputs(observations.inputs)
        noise = check_noise(model, observations)
        if self._twins and noiseless_twins(model, observations):
            # rounding may leave a positive pivot and a meaningless likelihood
            raise explain(NotPositiveDefinite("two equal rows"), observations, model)
        try:
            if not self.method.dense:
                return self._in_formats(model, workspace)
            # other families may compare equal although they differ
            ours = type(model).__module__.startswith("geomxp.")
            if ours and self.device.index is None and len(observations) <= KEPT_FIELD_LOCATIONS:
                return self._sharing_field(model, noise, workspace)
            return dense_factor(model, observations, self.device, workspace)
        except NotPositiveDefinite as error:
            raise explain(error, observations, model) from None

    def _in_formats(self, model, workspace):
        """Return a factor in tiles or in halves; in a search in formats that are fine enough."""
        factor = self._in_rule(model, self._frozen or self.method.precision, workspace)
        while self.moves and self._frozen is not None and self._has_moved(model):
            self._measure(factor, model)
            if self._is_coarse():
                # its tiles are in the workspace
                del factor
                self._raise_formats(model)
                factor = self._in_rule(model, self._frozen, workspace)
        return factor

    def _measure(self, factor, model):
        """Measure the divergence of a factor, unless it is known."""
        if self.divergence is None or self._measured_at != model:
            self.divergence = measure(factor, index=self.device.index)
            self._measured_at = model

    def _has_moved(self, model):
        """Whether a model is far from the one at which the divergence was measured."""
        if self.divergence is None:
            return True
        known, now = self._measured_at.parameters(), model.parameters()
        pairs = [(known[p.name], now[p.name]) for p in model.table if p.transform != "identity"]
        return any(abs(np.log(max(b, 1e-300) / max(a, 1e-300))) > MEASURED_STEP for a, b in pairs)

    def _raise_formats(self, model):
        """Choose finer formats by the divergence of those that are kept, FP64 in the end."""
        if self._raised is None:
            self._first_kl = self.divergence.kl
        rule, factor = self._rule, DIVERGENCE_MARGIN * self.divergence.kl / self._divergence_limit
        finite = np.isfinite(factor) and self._raises < MOST_RAISES
        error = self._frozen.formats.error if isinstance(self._frozen, Frozen) else None
        self._raised = rule.tightened(factor, error) if finite else Uniform(FP64)
        self._raises += 1
        if not self._warned:
            self._warned = True
            warnings.warn(self.notice, GeomxpWarning, stacklevel=2)
        self._choose_formats(model)

    def _in_rule(self, model, rule, workspace):
        """Return the factor in the formats of a rule, or in finer ones where it has none."""
        observations = self.observations
        if self.method.layers is not None:
            return tree_factor(model, observations, rule, self.device)
        tile = self.method.tile_for(len(observations))
        placement = self._watched_placement()
        order = self._order if self.method.low_rank else self._along_curve(model)
        factor = tile_factor(model, observations, rule, tile, placement, workspace, order)
        if self.method.low_rank:
            # other tiles would have other errors, and ℓ would jump
            self._order = factor.order
        if not self.method.refine:
            return factor
        attempts = (*finer_rules(rule), Uniform(FP64)) if self.method.fallback else ()
        finer = (
            partial(tile_factor, model, observations, other, tile, placement)
            for other in dict.fromkeys(attempts)
        )
        return RefinedFactor(factor, self.method.refine, finer=finer)

    def _sharing_field(self, model, noise, workspace):
        """Return `dense_factor`; only if the field differs from the last one, compute it again."""
        inputs, field = noise.inputs, model.replace(**dict.fromkeys(noise.names, 0.0))
        known, matrix = self._field
        if known != field:
            matrix = assemble.field_matrix(field, inputs)
            self._field = field, matrix
        sigma = np.empty_like(matrix) if workspace is None else workspace
        sigma[...] = matrix
        return CholeskyFactor(recursive.potrf(assemble.with_noise(sigma, noise.variances)))

    def _watched_placement(self):
        """Return the placement, with a new trace for each factorization if requested."""
        return replace(self.placement, trace=Trace()) if self.method.trace else self.placement

    @gpu_memory()
    @_one_at_a_time
    def derivatives(self, model, names, *, curvature=False):
        """See `Evaluator.derivatives`; the last ones and their evaluation are cached."""
        known, _, kept = self._last
        wanted = set(names)
        fits = kept is not None and (kept.observed is not None or not curvature)
        if known == model and fits and wanted <= set(kept.names):
            return kept
        if self.differences:
            return self._by_differences(model, names, curvature)
        curvatures = len(wanted) if curvature else 0
        # before the tiles take their part of the memory
        index, stay = self._assembled_on(curvatures), self._whitened_stay(curvatures)
        # fewer columns than `has_curvature` requires, where a caller asks in any case
        whole = self._room_for(curvatures)
        width = 0 if whole else self._columns_in_memory(curvatures, LEAST_COLUMNS_ON_REQUEST)
        if not width:
            for matrices, device in self._matrices(curvatures):
                check_memory(len(self.observations), matrices, device, self._held(device))
        fine = not self.moves or width > 0 or self._room_for(curvatures, 1.0)
        start = time.perf_counter()
        with blas_threads(len(self.observations)):
            factor = self.factorize(model, self._space())
            if curvature and self.moves and self._frozen is not None:
                # this may be the last evaluation
                self._measure(factor, model)
            least_squares = self._least_squares(factor, model)
            evaluation = self._evaluation(factor, model, least_squares, start, careful=True)
            given = self, factor, least_squares, model, names, curvature, index, stay
            dtype = self._type_of_inverse(factor, fine)
            # columns in FP64 take the memory of this many
            in_fp64 = -(-width // 2) if self.moves else width
            space = None if width else self._inverse_space(dtype, index)
            width = in_fp64 if dtype == FP64.dtype else width
            derivatives = differentiate(*given, dtype, space, width)
            error = derivatives.error
            if error is not None and fine and not (error < LARGEST_SCORE_ERROR).all():
                # tiles and blocks were copied
                derivatives = differentiate(*given, FP64.dtype, None, in_fp64)
        self._last = (model, evaluation, derivatives)
        return derivatives

    def _inverse_space(self, dtype, index):
        """Return the memory of an FP32 inverse in RAM, which all evaluations share; else None."""
        if dtype == FP64.dtype or index is not None:
            return None
        if self._single is None:
            n = len(self.observations)
            self._single = np.zeros((n, n), dtype, order="F")
        return self._single

    def _type_of_inverse(self, factor, fine):
        """Return the type of Σ⁻¹ for a score: FP32 beside coarse formats, in the units of a fit.

        `fine` tells whether there is memory for FP64.
        """
        if not self.moves or (fine and factor.precision_map.all_fp64):
            return FP64.dtype
        near = abs(factor.originals.exponent) <= LARGEST_FP32_EXPONENT
        return FP32.dtype if near else FP64.dtype

    def _by_differences(self, model, names, curvature):
        evaluation = self._evaluate(model, careful=True)
        # the middle of the differences
        self._last = (model, evaluation, None)
        derivatives = self._differences.derivatives(model, names, curvature)
        self._last = (model, evaluation, derivatives)
        return derivatives

    @cached_property
    def _differences(self):
        return Differences(self, self.method.noisy)

    @property
    def differences(self):
        """See `Evaluator.differences`."""
        return self.method.low_rank

    def keeps(self, model):
        """See `Evaluator.keeps`."""
        return self._last[0] == model

    def has_curvature(self, names):
        """See `Evaluator.has_curvature`."""
        if self.differences:
            return True
        count = len(names)
        return self.scoring and (self._room_for(count) or self._columns_in_memory(count) > 0)

    @property
    def scoring(self):
        """Whether there is memory for Σ⁻¹, or for panels of its columns."""
        if self.differences:
            return True
        # in core it overwrites L; tiles have to be assembled first
        whole = (self.placement.in_core and self.method.dense) or self._room_for(0)
        return whole or self._columns_in_memory(0) > 0

    def _columns_in_memory(self, curvatures, least=LEAST_PANEL_COLUMNS):
        """Return how many columns of Σ⁻¹ fit in the memory at a time; 0 if it must be whole.

        0, too, if they are fewer than `least`: with curvatures, of Σ⁻¹ and of each whitened
        derivative, which only tiles on one machine provide.
        """
        method, n = self.method, len(self.observations)
        plain = method.layers is not None or is_cluster(method.on)
        if method.dense or (curvatures and plain):
            return 0
        room = free_memory() - self._bytes_of_tiles()
        if self.placement.memory is not None:
            room = min(room, self.placement.memory)
        if self.placement.in_core and self.device.index is not None:
            # beside columns that CuPy copies to the device and back
            room = min(room, int(0.9 * self.device.free_memory() / 4))
        tile = self.placement.layout(n, method.tile_for(n)).tile
        # plain solves with all of L copy their columns, in FP64
        share = 4.0 if plain else self._share
        width = columns_of_panel(n, room, 1 + curvatures, share, tile)
        return 0 if width < min(n, least) else width * (1 + curvatures)

    @property
    def _share(self):
        """Size of a matrix that derivatives need, in FP64 matrices: ½ beside coarse formats."""
        return 0.5 if self.moves else 1.0

    def _matrices(self, curvatures, share=None):
        """Return number and device of the n×n FP64 matrices that derivatives need besides L.

        `share` is their size in such matrices.
        """
        if not self.method.dense:
            share = self._share if share is None else share
            index = self._assembled_on(curvatures)
            if index is None:
                # LAPACK copies those in FP64
                beside = 4 if share == 1.0 else 2
                return ((share * (beside + curvatures), Device("cpu")),)
            if not curvatures or self._whitened_stay(curvatures):
                return ((share * (2 + curvatures), self.device),)
            # the tiles, L, and one whitened derivative beside it; all of these in RAM
            return (share * 3, self.device), (share * curvatures, Device("cpu"))
        if not curvatures:
            return ()
        if self.device.index is None or self._whitened_stay(curvatures):
            return ((1 + curvatures, self.device),)
        # L and one whitened derivative beside it; all of these in RAM
        return (2, self.device), (curvatures, Device("cpu"))

    def _bytes_of_tiles(self):
        """Return about how many bytes of RAM the tiles still need."""
        placement, n = self.placement, len(self.observations)
        elsewhere = placement.memory is not None or is_cluster(self.method.on)
        if elsewhere or (placement.in_core and self.device.index is not None):
            return 0
        if isinstance(self._frozen, Frozen):
            needed = self._frozen.formats.bytes(placement.layout(n, self.method.tile_for(n)))
        else:
            needed = int(4 * self._share * n * (n + 1))
        return needed - (0 if self._workspace is None else min(needed, self._workspace.bytes))

    def _whitened_stay(self, curvatures):
        """Whether a GPU has room for all whitened derivatives, beside L and the tiles."""
        device, beside = self.device, 1 if self.method.dense else 2
        if device.index is None or not (self.method.dense or self._alone):
            return False
        matrices = self._share * (beside + curvatures)
        needed = bytes_for(len(self.observations), matrices, device)
        return needed < self._bound(device)

    def _assembled_on(self, curvatures):
        """Return the number of the GPU where tiles are assembled to L, or None for RAM."""
        device, matrices = self.device, self._share * (2 + bool(curvatures))
        if self.method.dense or not self._alone:
            return None
        enough = bytes_for(len(self.observations), matrices, device) < self._bound(device)
        return device.index if enough else None

    @property
    def _alone(self):
        """Whether the factor is on one GPU."""
        placement = self.placement
        return placement.in_core and len(placement.devices) == 1 and self.device.index is not None

    def _room_for(self, curvatures, share=None):
        """Whether there is memory for derivatives with one matrix for each of these curvatures."""
        return all(
            bytes_for(len(self.observations), matrices, device) < self._bound(device)
            for matrices, device in self._matrices(curvatures, share)
        )

    def _bound(self, device):
        """Return the bytes available for matrices on a device."""
        if device.index is not None:
            # memory returned by the pool is fragmented
            return 0.9 * device.free_memory() + self._held(device)
        bound = free_memory() + self._held(device)
        return bound if self.placement.memory is None else min(bound, self.placement.memory)

    def _held(self, device):
        """Return the bytes of the workspaces on a device."""
        single = 0 if self._single is None or device.index is not None else self._single.nbytes
        if self._workspace is None:
            return single
        if self._tiled:
            return single + self._workspace.bytes if device.index is None else 0
        return self._workspace.nbytes if device == self.device else 0


@dataclass(frozen=True)
class Exact(Likelihood):
    """The exact likelihood: Cholesky factorization of the whole covariance matrix.

    In FP64, in tiles of mixed formats, or in blocks that are halved recursively.

    Parameters
    ----------
    precision : callable
        A rule of `geomxp.linalg.precision`: `uniform`, `by_band`, `by_tile_norm`, `layered`,
        `for_divergence`.
    tile : int, "whole" or None
        Rows of a tile; chosen by the number of locations if None. With "whole" the matrix is not
        cut into tiles but halved recursively, in one memory and without refinement. `layered`, and
        `uniform` in FP32 or FP64, then give the formats of the off-diagonal blocks from the
        outermost inwards. `by_tile_norm` and `for_divergence` choose a format for each block, and
        cut a block in four where its parts can have coarser formats. Other rules give the formats
        of the cells, the smallest blocks.
    on : str, sequence of str, or dask.distributed.Client
        "cpu", "gpu" or "gpu:N"; several of a kind share the work. Or a Dask cluster: the address of
        its scheduler, such as "tcp://host:8786", or a client.
    memory : str or int, optional
        Limit on RAM, such as "4GB"; the other tiles are stored on disk.
    device_memory : str or int, optional
        Limit on each device's memory; the other tiles are stored in RAM, pinned for GPUs.
    scratch : path, optional
        Directory for tiles on disk. A killed run leaves its tiles there, unless they are of low
        rank, and the same run resumes from them. By default a temporary directory, which is always
        removed.
    refine : {"ir", "cg", "gmres"}, optional
        Iterative refinement of solutions with a mixed factor to FP64's accuracy: of quadratic
        forms, coefficients and predictions, not of the log-determinant. Not on a cluster.
    fallback : bool
        If refinement fails, factor in finer formats, finally in FP64.
    trace : bool
        Record copies and computations with their times in `Evaluation.events`, for
        `plots.timeline`, of runs whose tiles exceed one memory.
    store : callable, optional
        ``store(originals, formats)`` keeps the tiles of ``on="cpu"``: a subclass of
        `geomxp.tiles.stores.Store`. It is not saved with a fit.
    keep_formats : bool
        Keep the formats of the rule in a fit, however large their divergence from FP64, which is in
        `Fit.divergence`. By default a fit chooses finer ones, with a warning, where the divergence
        exceeds the target of `for_divergence`, or for other rules 5e-5 nats, which shift estimates
        by up to 0.01 standard errors. Low-rank tiles keep their rule in any case.

    Examples
    --------
    >>> import numpy as np
    >>> import geomxp as gx
    >>> places = np.random.default_rng(0).random((300, 2))
    >>> seen, model = gx.Observations(places, np.ones(300)), gx.Matern(1.0, 0.1, 0.5)
    >>> exact = gx.log_likelihood(seen, model)
    >>> mixed = gx.log_likelihood(seen, model, gx.Exact(gx.by_tile_norm(1e-8), tile=64))
    >>> abs(mixed.log_likelihood / exact.log_likelihood - 1) < 1e-6
    True
    """

    replicates = True
    precision: Rule = field(default_factory=lambda: uniform("fp64"))
    tile: int | str | None = None
    on: str | Sequence[str] | Client = "cpu"
    memory: str | int | None = None
    device_memory: str | int | None = None
    scratch: str | Path | None = None
    refine: str | None = None
    fallback: bool = False
    trace: bool = field(default=False, compare=False)
    store: Callable[..., Store] | None = None
    keep_formats: bool = False

    def __post_init__(self):
        if self.refine not in (None, *REFINEMENT_METHODS):
            raise InvalidInput(
                f"`refine` must be None or one of: {', '.join(REFINEMENT_METHODS)}. "
                f"Got {self.refine!r}."
            )
        check_flags(fallback=self.fallback, trace=self.trace, keep_formats=self.keep_formats)
        if isinstance(self.on, (list, tuple)):
            # a list of one device is that device
            alone = self.on[0] if len(self.on) == 1 else tuple(self.on)
            object.__setattr__(self, "on", alone)
        if is_cluster(self.on):
            object.__setattr__(self, "on", address_of(self.on))
        devices = self.on if isinstance(self.on, tuple) else (self.on,)
        if not devices or not all(isinstance(device, str) for device in devices):
            raise InvalidInput(
                '`on` must be a device such as "cpu" or "gpu:0", a list of devices, or a cluster. '
                f"Got {self.on!r:.80}."
            )
        if not callable(self.precision):
            raise InvalidInput(
                "`precision` must be a rule, such as uniform('fp64') or by_tile_norm(1e-8). "
                f"Got {self.precision!r}."
            )
        object.__setattr__(self, "precision", as_rule(self.precision))
        if self.whole:
            self._check_whole()
        elif self.tile is not None and (
            not isinstance(self.tile, Integral) or isinstance(self.tile, bool)
        ):
            raise InvalidInput(f'`tile` must be a number of rows, or "whole". Got {self.tile!r}.')
        if self.low_rank:
            self._check_low_rank()

    def _check_low_rank(self):
        """Raise `InvalidInput` for options that low-rank tiles do not have."""
        for name in ("device_memory", "store", "trace"):
            if getattr(self, name):
                raise InvalidInput(
                    f"low-rank tiles cannot be combined with `{name}`: leave it or "
                    "low_rank=True (--low-rank) out."
                )
        if self.on != "cpu" and not is_cluster(self.on):
            raise InvalidInput(
                "low-rank tiles are for one CPU, or for a Dask cluster. Got "
                f'on={self.on!r:.80}: use on="cpu", or leave low_rank=True (--low-rank) out.'
            )

    @property
    def low_rank(self) -> bool:
        """Whether tiles away from the diagonal are stored as U V'."""
        return self.precision.low_rank

    def _check_whole(self):
        """Raise `InvalidInput` unless the options suit a matrix that is factored as a whole."""
        layers, whole = self.layers, 'tile="whole" (--tile whole)'
        if layers is not None and layers[-1] not in (FP32, FP64):
            raise InvalidInput(
                f"layers of {whole} must end with fp32 or fp64, the formats of the diagonal "
                'blocks: Exact(gx.layered("fp16", "fp32"), tile="whole"), --layers fp16,fp32. '
                f"Got {in_words(self.precision)}."
            )
        if self.low_rank:
            raise InvalidInput(
                f"{whole} cannot be combined with low_rank=True (--low-rank): leave one out."
            )
        for form in layers or ():
            if form.products is not form:
                raise InvalidInput(
                    f"{whole} has no layers in {form.name}, a format of tiles: use "
                    f"{form.products.name}."
                )
        for name in ("memory", "device_memory", "scratch", "refine", "store"):
            if getattr(self, name) is not None:
                raise InvalidInput(f"{whole} cannot be combined with `{name}`: leave one out.")
        if is_cluster(self.on) or len(self.placement.devices) > 1:
            raise InvalidInput(f"{whole} is for one device. Got on={self.on!r:.80}.")

    @property
    def whole(self) -> bool:
        """Whether the matrix is halved recursively instead of cut into tiles."""
        return isinstance(self.tile, str) and self.tile == WHOLE

    @property
    def layers(self) -> tuple[Format, ...] | None:
        """Formats of a matrix that is factored as a whole, from the outermost block inwards."""
        return layers_of(self.precision) if self.whole else None

    @property
    def dense(self) -> bool:
        """Whether Σ is one FP64 array in one memory."""
        return not self.whole and not self.tiled

    @property
    def tiled(self) -> bool:
        """Whether Σ is stored in tiles; plain FP64 in one memory only if `tile` is given."""
        if self.whole:
            return False
        bounded = self.memory is not None or self.device_memory is not None
        several = len(self.placement.devices) > 1 or is_cluster(self.on)
        mixed = self.precision != uniform("fp64")
        own = self.tile is not None or self.store is not None
        return mixed or bounded or several or own or self.refine is not None

    @property
    def placement(self) -> Placement:
        """Storage of the tiles; see `geomxp.tiles.placement.Placement`."""
        return Placement.of(self.on, self.memory, self.device_memory, self.scratch, self.store)

    @property
    def noisy(self) -> bool:
        """Whether rounding in coarse formats makes the likelihood scatter."""
        if self.layers is not None:
            return set(self.layers) != {FP64}
        return self.precision != uniform("fp64")

    def prepare(
        self, observations: Observations, design: Floats | None = None, reml: bool = False
    ) -> ExactEvaluator:
        """Return the evaluator of one data set.

        Parameters
        ----------
        observations : Observations
        design : (n, p) ndarray, optional
            X; no trend if not given.
        reml : bool

        Raises
        ------
        NotEnoughMemory
            If the covariance matrix does not fit; nothing has been allocated then.
        MissingDevice
        """
        return evaluator_of(ExactEvaluator, observations, design, reml, self)

    @property
    def reference_device(self) -> str:
        """The first of its devices."""
        return self.placement.devices[0].name

    def of_rows(self, rows: Sequence[int] | Floats) -> Exact:
        """Return the method for a subset of the rows, with tiles no larger than the subset."""
        if self.tile is None or self.whole:
            return self
        return replace(self, tile=min(self.tile, len(rows)))

    def plan(self, locations: int | Observations, model: Covariance | None = None) -> MemoryPlan:
        """Return where the tiles of Σ will be stored and how much will be moved, without a run.

        Parameters
        ----------
        locations : int or Observations
            Number of locations; or the observations, with a model, if the rule of `precision`
            depends on the matrix, whose tiles are then generated once.
        model : Covariance, optional

        Returns
        -------
        MemoryPlan

        Raises
        ------
        InvalidInput
            If the formats cannot be determined from the number of locations.
        NotEnoughMemory
            If a limit is below the minimum.

        Examples
        --------
        >>> plan = Exact(tile=1000, memory="100MB").plan(10_000)
        >>> plan.layout.tiles, plan.on_disk
        (10, 440000000)
        """
        observations = locations if isinstance(locations, Observations) else None
        number = isinstance(locations, Integral) and not isinstance(locations, bool)
        if observations is None and not (number and 0 < locations < 2**53):
            raise InvalidInput(
                "`locations` must be Observations, or the number of locations. Got "
                f"{locations if number else type(locations).__name__}."
            )
        if model is not None:
            check_is_model(model)
        n, placement = int(locations) if observations is None else len(observations), self.placement
        if self.low_rank:
            raise InvalidInput(
                "memory cannot be planned: the ranks of tiles are known only after a "
                "factorization. For an upper bound, plan FP64 tiles."
            )
        if self.layers is not None:
            formats = layered_map(self.layers, n, placement.devices[0].name)
            return placement.plan(Layout.of(n, -(-n // len(formats))), formats)
        if self.dense:
            return placement.plan(Layout.of(n, n), PrecisionMap(((FP64,),)))
        layout = placement.layout(n, self.tile)
        if layout.tiles > MOST_TILES:
            raise InvalidInput(
                f"a plan has at most {MOST_TILES:,} tiles per dimension. Got {n:,} locations in "
                f"tiles of {layout.tile:,}: give Exact(tile={-(-n // MOST_TILES)}) or more."
            )
        if observations is not None and model is not None:
            _, ordered, originals = originals_of(model, observations, self.tile, placement)
            formats = formats_of(self.precision, originals, ordered, observations.metric)
        elif is_blind(self.precision):
            formats = self.precision(np.ones((layout.tiles, layout.tiles)))
        else:
            raise InvalidInput(
                "the formats of this `precision` depend on the matrix: give the observations and a "
                "model, method.plan(observations, model)."
            )
        return placement.plan(layout, formats)

    def _tile_of(self, n):
        """Return the rows of a tile for n locations; "whole" where the matrix is halved."""
        if self.whole:
            return WHOLE
        return self.placement.layout(n, self.tile_for(n)).tile if self.tiled and n else n

    def tile_for(self, n: int) -> int | None:
        """Return the rows of a tile if given, or those that suit low-rank tiles; else None."""
        if self.tile is not None or not self.low_rank:
            return self.tile
        return min(n, next(tile for most, tile in LOW_RANK_TILE_ROWS if n <= most))

    def describe(self, n: int) -> Document:
        """Return the method's entry in the JSON of a fit of n locations."""
        return {
            "name": "exact",
            "on": self.on if isinstance(self.on, str) else ",".join(self.on),
            "memory": self.memory,
            "device_memory": self.device_memory,
            "refine": self.refine,
            "fallback": self.fallback,
            **({"keep_formats": True} if self.keep_formats else {}),
            "tiled": not self.dense,
            "tile": self._tile_of(n),
            "accuracy": self.precision.accuracy,
            "precision": describe(self.precision),
            "formats": {"fp64": 1},
            "promotions": 0,
            "neighbours": None,
        }


# The log-likelihood of one model


def log_likelihood(
    observations: Observations,
    model: Covariance,
    method: Likelihood | None = None,
    *,
    trend: TrendLike = "zero",
    reml: bool = False,
    response: str | Response | None = None,
) -> Evaluation:
    """Evaluate the log-likelihood of a model.

    Parameters
    ----------
    observations : Observations
    model : Covariance
    method : likelihood, optional
        `Exact()` if not given.
    trend : str or dict
        "zero", "constant", "linear", "covariates", or a formula such as "elev + poly(x, 2)"; of
        several variables also a dict with a trend for each. The mean; its coefficients are profiled
        out by generalised least squares.
    reml : bool
        Restricted likelihood.
    response : str or Response, optional
        Distribution of the values, if it is not Gaussian and `model` has none: "poisson", or one of
        `geomxp.responses`. The log-likelihood is then Laplace's approximation; see `error`.

    Returns
    -------
    Evaluation

    Raises
    ------
    NotPositiveDefinite
        If Σ has no Cholesky factor; the message names a pair of locations that is too close.
    NotRefined
        If `Exact(refine=...)` does not reach FP64's accuracy.
    """
    check_model_and_method(model, method)
    check_flags(reml=reml)
    kind = Trend.of(observations, trend)
    design = kind.design(observations.locations, observations.covariates, observations.variable)
    kind.check_full_rank(design)
    method = method or Exact()
    response = response_of(response)
    if response is not None:
        if model.response is not None:
            raise InvalidInput("`model` has a response, and `response` is given: leave one out.")
        model = replace(model, response=response)
    evaluator = evaluator_for(model, method, observations, design, reml)
    if model.response is not None:
        evaluation = evaluator.reported(model)
        if not evaluation.outcome.good:
            raise NotPositiveDefinite(evaluation.outcome.message)
        return evaluation
    evaluation = evaluator.carefully(model)
    if evaluation.outcome.ending is Ending.NOT_POSITIVE_DEFINITE:
        twins = noiseless_twins(model, observations)
        raise (DuplicateLocations if twins else NotPositiveDefinite)(evaluation.outcome.message)
    if not evaluation.outcome.good:
        raise NotRefined(evaluation.outcome.message)
    caution(method, evaluation)
    return evaluation


def check_model_and_method(model, method, given=True):
    """Validate the model (if one is given) and the method."""
    if given:
        check_is_model(model)
    if method is not None:
        check_is_method(method)


def check_is_model(model, name="model"):
    """Raise `InvalidInput` if an argument is not a covariance model."""
    if not isinstance(model, Covariance):
        raise InvalidInput(
            f"`{name}` must be a covariance model, such as Matern(...). Got {type(model).__name__}."
        )


def check_is_method(method):
    """Raise `InvalidInput` if an argument is not a method."""
    if not isinstance(method, Likelihood):
        raise InvalidInput(
            f"`method` must be a method such as Exact() or Vecchia(). Got {method!r:.80}."
        )


def _counted(method, promotions):
    """Return how many tiles, or cells of a matrix that is halved, were promoted, in words."""
    what = "cell" if method is not None and method.whole else "tile"
    return f"1 {what} was" if promotions == 1 else f"{promotions:,} {what}s were"


def caution(method, evaluation):
    """Warn if rounding or mixed formats may have made an evaluation inaccurate."""
    caution_rounding(evaluation.rounding)
    formats = evaluation.precision_map
    target = None if method is None or method.precision is None else method.precision.kl
    if evaluation.promotions:
        warnings.warn(
            f"{_counted(method, evaluation.promotions)} promoted to finer formats, because Σ had "
            "no Cholesky factor in the formats of the rule. The log-likelihood may differ from "
            "FP64's: `geomxp compare` measures by how much.",
            GeomxpWarning,
            stacklevel=3,
        )
    if target is not None and formats is not None and (formats.divergence or 0.0) > target:
        warnings.warn(
            f"the requested divergence {target:g} cannot be met: even FP64 rounding gives about "
            f"{formats.divergence:.2g}. Give the model a nugget.",
            GeomxpWarning,
            stacklevel=3,
        )
