"""The exact likelihood: one Cholesky factorization of the whole covariance matrix."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from numbers import Integral
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING

import numpy as np

from ..covariance import sums
from ..data.observations import Observations
from ..errors import Ending, InvalidInput, NotEnoughMemory, NotPositiveDefinite, NotRefined, Outcome
from ..linalg.device import empty_matrix
from ..linalg.formats import FP64
from ..linalg.precision import Frozen, PrecisionMap, as_rule, describe, uniform
from ..runtime.dask import address_of
from ..runtime.devices import Device, blas_threads, free_memory, gpu_memory, human_bytes, is_cluster
from ..runtime.trace import Trace
from ..tiles.layout import Layout
from ..tiles.placement import MemoryPlan, Placement
from ..tiles.refine import METHODS, RefinedFactor
from .base import Evaluation, Evaluator, Likelihood, gaussian_log_likelihood
from .derivatives import differentiate
from .factorize import dense_factor, explain, finer_rules, planned_formats, tile_factor
from .trend import fit_trend

if TYPE_CHECKING:
    from .._typing import Callable, Client, Document, Floats, Sequence
    from ..covariance.base import Covariance
    from ..linalg.precision import Rule
    from ..tiles.stores import Store

BLOCKS = 16
"""Of derivatives, in work on a GPU at one time."""


def _one_at_a_time(method):
    """Serialize calls from threads that share an evaluator and its workspace."""

    @wraps(method)
    def waiting(self, *arguments, **options):
        with self._lock:
            return method(self, *arguments, **options)

    return waiting


class ExactEvaluator(Evaluator):
    """ℓ(θ) and its derivatives for one data set, by Cholesky factorization of Σ.

    Parameters
    ----------
    observations : Observations
    design : (n, p) ndarray or None
    reml : bool
    method : Exact
    """

    def __init__(self, observations, design, reml, method):
        self.observations = observations
        n = len(observations)
        self.design = np.zeros((n, 0)) if design is None else design
        self.reml = reml
        self.method = method
        self.placement = method.placement
        self.device = self.placement.devices[0]
        if method.refine and (self.device.index is not None or is_cluster(method.on)):
            raise InvalidInput(f'`refine` is for on="cpu" only. Got on={method.on!r}.')
        if method.tiled:
            # a wrong size is an error before the first evaluation
            Layout.of(n, method.tile)
        else:
            check_memory(n, 1, self.device)
        self._workspace, self._lock = None, RLock()
        self._twins = observations.duplicate()
        self._frozen = None
        self._last = (None, None, None)

    @_one_at_a_time
    def freeze(self, model):
        """Use the formats chosen at this model for all later factors."""
        self._frozen = None
        self._last = (None, None, None)
        try:
            self._frozen = Frozen(self.factorize(model, self._space()).precision_map)
        except NotPositiveDefinite:
            # each model then has formats of its own
            return

    @gpu_memory()
    @_one_at_a_time
    def __call__(self, model):
        """Evaluate the log-likelihood; -inf with an outcome if Σ has no Cholesky factor."""
        if self._last[0] == model:
            return self._last[1]
        start = time.perf_counter()
        n = len(self.observations)
        try:
            with blas_threads(n):
                factor = self.factorize(model, self._space())
                least_squares = fit_trend(factor, self.values, self.design)
                return self._evaluation(factor, least_squares, start)
        except NotPositiveDefinite as error:
            refining = isinstance(error, NotRefined)
            ending = Ending.STALLED if refining else Ending.NOT_POSITIVE_DEFINITE
            outcome = Outcome(ending, str(error))
            return Evaluation.failed(outcome, n, time.perf_counter() - start)

    def _space(self):
        """Return the workspace that all evaluations overwrite, allocated on first use.

        Allocating it takes longer than computing its entries, and pinning it longer still.
        """
        n, index = len(self.observations), self.device.index
        if self._workspace is None:
            if self.method.tiled:
                self._workspace = self.placement.host()
            elif index is None:
                self._workspace = np.empty((n, n), order="F")
            else:
                self._workspace = empty_matrix(n, index)
        return self._workspace

    def _evaluation(self, factor, least_squares, start):
        """Return the evaluation at a model, given the factor of Σ."""
        n, log_determinant = len(self.observations), factor.log_determinant()
        value = gaussian_log_likelihood(n, log_determinant, least_squares, self.reml)
        value += self.log_jacobian
        if not np.isfinite(value):
            message = "the log-likelihood overflows FP64: rescale the values and the variance."
            outcome = Outcome(Ending.NOT_POSITIVE_DEFINITE, message)
            return Evaluation.failed(outcome, n, time.perf_counter() - start)
        return Evaluation(
            value,
            log_determinant,
            least_squares.quadratic_form,
            Outcome(Ending.COMPUTED),
            n,
            self.reml,
            least_squares.coefficients,
            least_squares.coefficient_covariance,
            least_squares.log_determinant_of_information,
            factor.precision_map,
            factor.promotions,
            factor.last,
            factor.moved,
            factor.events,
            seconds=time.perf_counter() - start,
        )

    @gpu_memory()
    def factorize(self, model, workspace=None):
        """Return the Cholesky factor of Σ(θ).

        Parameters
        ----------
        model : Covariance
        workspace : (n, n) array on the device, or Host, optional
            Overwritten, and then part of the factor: passing it again destroys that factor.

        Raises
        ------
        NotPositiveDefinite
            The message names the two closest locations.
        """
        observations = self.observations
        model.check_valid_on(observations.metric, observations.dimensions)
        if model.nugget == 0 and self._twins:
            # rounding may leave a positive pivot and a meaningless likelihood
            raise explain(NotPositiveDefinite("two equal rows"), observations, model)
        try:
            if self.method.tiled:
                rule = self._frozen or self.method.precision
                about = (self.method.tile, self._watched_placement())
                factor = tile_factor(model, observations, rule, *about, workspace)
                if not self.method.refine:
                    return factor
                attempts = finer_rules(rule) if self.method.fallback else ()
                finer = (
                    partial(tile_factor, model, observations, other, *about) for other in attempts
                )
                return RefinedFactor(factor, self.method.refine, finer=finer)
            return dense_factor(model, observations, self.device, workspace)
        except NotPositiveDefinite as error:
            raise explain(error, observations, model) from None

    def _watched_placement(self):
        """Return the placement, with a new trace for each factorization if requested."""
        return replace(self.placement, trace=Trace()) if self.method.trace else self.placement

    @gpu_memory()
    @_one_at_a_time
    def derivatives(self, model, names, *, curvature=False):
        """Return `Derivatives` at a model; the last ones and their evaluation are cached.

        Parameters
        ----------
        model : Covariance
        names : sequence of str
        curvature : bool
            The expected and the observed information as well.

        Raises
        ------
        NotPositiveDefinite
        NotEnoughMemory
        """
        known, _, kept = self._last
        wanted = set(names)
        fits = kept is not None and (kept.expected is not None or not curvature)
        if known == model and fits and wanted <= set(kept.names):
            return kept
        for matrices, device in self._matrices(len(wanted) if curvature else 0):
            check_memory(len(self.observations), matrices, device, self._held(device))
        start = time.perf_counter()
        with blas_threads(len(self.observations)):
            factor = self.factorize(model, self._space())
            least_squares = fit_trend(factor, self.values, self.design)
            evaluation = self._evaluation(factor, least_squares, start)
            found = differentiate(
                *(factor, least_squares, model, self.observations, self.design, self.reml, names),
                curvature=curvature,
            )
        self._last = (model, evaluation, found)
        return found

    expensive = True

    def keeps(self, model):
        """Whether the results at a model are cached."""
        return self._last[0] == model

    def has_curvature(self, names):
        """Whether memory allows to compute the observed information by formula."""
        return self.scoring and self._room_for(len(names))

    @property
    def scoring(self):
        """Whether memory allows to compute score and information, which need a dense Σ⁻¹.

        Σ⁻¹ overwrites L in core; tiles have to be assembled first.
        """
        return (self.placement.in_core and not self.method.tiled) or self._room_for(0)

    def _matrices(self, curvatures):
        """Return number and device of the n×n FP64 matrices that derivatives need beside L.

        The observed information needs one for each parameter.
        """
        if self.method.tiled:
            # assembled in RAM, wherever the tiles were factored
            return ((4 + curvatures, Device("cpu")),)
        if self.device.index is None:
            return ((1 + curvatures, self.device),) if curvatures else ()
        # L and one whitened derivative beside it; all of these in RAM
        return ((2, self.device), (curvatures, Device("cpu"))) if curvatures else ()

    def _room_for(self, curvatures):
        """Whether there is memory for the observed information of so many parameters."""
        return all(
            _bytes_for(len(self.observations), matrices, device) < self._bound(device)
            for matrices, device in self._matrices(curvatures)
        )

    def _bound(self, device):
        """Return the bytes available for matrices on a device."""
        if device.index is not None:
            # memory returned by the pool is fragmented
            return 0.9 * device.free_memory() + self._held(device)
        bound = free_memory() + self._held(device)
        return bound if self.placement.memory is None else min(bound, self.placement.memory)

    def _held(self, device):
        """Return the bytes of the workspace on a device."""
        if self._workspace is None:
            return 0
        if self.method.tiled:
            return self._workspace.bytes if device.index is None else 0
        return self._workspace.nbytes if device == self.device else 0


def _bytes_for(n, matrices, device=None):
    # with blocks in progress, whitened columns and the interpreter's overhead
    needed = int(1.02 * matrices * n * n * 8) + 64 * n + 2**24
    if device is None or device.index is None:
        return needed
    return needed + BLOCKS * 8 * min(n, sums.BLOCK) ** 2


def check_memory(n, matrices, device, held=0):
    """Raise `NotEnoughMemory` if n×n FP64 matrices exceed the free and already held bytes."""
    on_gpu = device.index is not None
    what, free = ("device memory", device.free_memory()) if on_gpu else ("memory", free_memory())
    needed = _bytes_for(n, matrices, device)
    if needed > free + held:
        raise NotEnoughMemory(
            f"the exact method for {n:,} places needs {human_bytes(needed)} of {what}, "
            f"{human_bytes(free)} free: use fewer places, or a machine with more memory."
        )


@dataclass(frozen=True)
class Exact(Likelihood):
    """The exact likelihood: Cholesky factorization of the whole covariance matrix.

    In FP64, or in tiles of mixed formats.

    Parameters
    ----------
    precision : callable
        A rule of `geomxp.linalg.precision`: `uniform`, `by_band`, `by_tile_norm`, `layered`,
        `for_divergence`.
    tile : int or None
        Rows of a tile; chosen by the number of locations if None.
    on : str, sequence of str, or dask.distributed.Client
        "cpu", "gpu" or "gpu:N"; several of a kind share the work. Or a Dask cluster: the address of
        its scheduler, such as "tcp://host:8786", or a client.
    memory : str or int, optional
        Limit on RAM, such as "4GB"; the other tiles are stored on disk.
    device_memory : str or int, optional
        Limit on each device's memory; the other tiles are stored in RAM, pinned for GPUs.
    scratch : path, optional
        Directory for tiles on disk. A killed run leaves its tiles there, and the same run resumes
        from them. By default a temporary directory, which is always removed.
    refine : {"ir", "cg", "gmres"}, optional
        Iterative refinement of solutions with a mixed factor to FP64's accuracy: of quadratic
        forms, coefficients and predictions, not of the log-determinant. On a CPU only.
    fallback : bool
        If refinement fails, factor in finer formats, finally in FP64.
    trace : bool
        Record copies and computations with their times in `Evaluation.events`, for
        `plots.timeline`, of runs whose tiles exceed one memory.
    store : callable, optional
        ``store(originals, formats)`` keeps the tiles of ``on="cpu"``: a subclass of
        `geomxp.tiles.stores.Store`. It is not saved with a fit.

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

    precision: Rule = field(default_factory=lambda: uniform("fp64"))
    tile: int | None = None
    on: str | Sequence[str] | Client = "cpu"
    memory: str | int | None = None
    device_memory: str | int | None = None
    scratch: str | Path | None = None
    refine: str | None = None
    fallback: bool = False
    trace: bool = field(default=False, compare=False)
    store: Callable[..., Store] | None = None

    def __post_init__(self):
        if self.refine not in (None, *METHODS):
            raise InvalidInput(
                f"`refine` must be None or one of: {', '.join(METHODS)}. Got {self.refine!r}."
            )
        if isinstance(self.on, (list, tuple)):
            # a list of one device is that device
            alone = self.on[0] if len(self.on) == 1 else tuple(self.on)
            object.__setattr__(self, "on", alone)
        object.__setattr__(self, "on", address_of(self.on))
        if not callable(self.precision):
            raise InvalidInput(
                "`precision` must be a rule, such as uniform('fp64') or by_tile_norm(1e-8). "
                f"Got {self.precision!r}."
            )
        object.__setattr__(self, "precision", as_rule(self.precision))

    @property
    def tiled(self) -> bool:
        """Whether Σ is stored in tiles; plain FP64 in one memory only if `tile` is given."""
        bounded = self.memory is not None or self.device_memory is not None
        several = len(self.placement.devices) > 1 or is_cluster(self.on)
        mixed = self.precision != uniform("fp64")
        own = self.tile is not None or self.store is not None
        return mixed or bounded or several or own or self.refine is not None

    @property
    def placement(self) -> Placement:
        """Where the tiles live; see `geomxp.tiles.placement.Placement`."""
        return Placement.of(self.on, self.memory, self.device_memory, self.scratch, self.store)

    @property
    def noisy(self) -> bool:
        """Whether rounding in coarse formats makes the likelihood scatter."""
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

        Returns
        -------
        ExactEvaluator

        Raises
        ------
        NotEnoughMemory
            If the covariance matrix does not fit; nothing has been allocated then.
        MissingDevice
        """
        return ExactEvaluator(observations, design, reml, self)

    @property
    def reference_device(self) -> str:
        """The first of its devices."""
        return self.placement.devices[0].name

    def of_rows(self, rows: Sequence[int] | Floats) -> Exact:
        """Return the method for a subset of the rows, with tiles no larger than the subset."""
        return self if self.tile is None else replace(self, tile=min(self.tile, len(rows)))

    def plan(self, places: int | Observations, model: Covariance | None = None) -> MemoryPlan:
        """Return where the tiles of Σ will be stored and how much will be moved, without a run.

        Parameters
        ----------
        places : int or Observations
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
        observations = places if isinstance(places, Observations) else None
        if observations is None and not (isinstance(places, Integral) and places > 0):
            raise InvalidInput(
                "`places` must be Observations, or how many there are. Got "
                f"{places if isinstance(places, Integral) else type(places).__name__}."
            )
        n, placement = int(places) if observations is None else len(observations), self.placement
        if not self.tiled:
            return placement.plan(Layout.of(n, n), PrecisionMap(((FP64,),)))
        layout = placement.layout(n, self.tile)
        formats = planned_formats(self.precision, layout, placement, observations, model)
        return placement.plan(layout, formats)

    def describe(self, n: int) -> Document:
        """Return the method's entry in the JSON of a fit of n places."""
        return {
            "name": "exact",
            "on": self.on if isinstance(self.on, str) else ",".join(self.on),
            "memory": self.memory,
            "device_memory": self.device_memory,
            "refine": self.refine,
            "fallback": self.fallback,
            "tiled": self.tiled,
            "tile": self.placement.layout(n, self.tile).tile if self.tiled and n else n,
            "accuracy": self.precision.accuracy,
            "precision": describe(self.precision),
            "formats": {"fp64": 1},
            "promotions": 0,
            "neighbours": None,
        }
