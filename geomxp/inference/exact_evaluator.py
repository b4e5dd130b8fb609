"""One data set under the exact likelihood: ℓ(θ), its derivatives, and the factor of Σ(θ)."""

import time
from dataclasses import replace
from functools import partial, wraps
from threading import RLock

import numpy as np

from ..covariance import sums_by_blocks
from ..cuda import empty_matrix
from ..errors import InvalidInput, NotEnoughMemory, NotPositiveDefinite, NotRefined
from ..execution.cluster_client import is_cluster
from ..execution.devices import Device, blas_threads, free_memory, gpu_memory, human_bytes
from ..execution.trace import Trace
from ..outcome import Ending, Outcome
from ..precision.rules import Frozen
from ..tiles.layout import Layout
from ..tiles.refine import RefinedFactor
from .derivatives import by_differences, differentiate
from .factorize import dense_factor, explain, finer_rules, tile_factor
from .gls import fit_trend
from .likelihood import Evaluation, gaussian_log_likelihood

BLOCKS = 16
"""Of derivatives, in work on a GPU at one time."""


def _one_at_a_time(method):
    """Make threads that share an evaluator, and with it its workspace, wait for each other."""

    @wraps(method)
    def waiting(self, *arguments, **options):
        with self._lock:
            return method(self, *arguments, **options)

    return waiting


class ExactEvaluator:
    """ℓ(θ), its gradient and its expected information, for one data set.

    Parameters
    ----------
    observations : Observations
    design : (n, p) ndarray or None
    reml : bool
    how : Exact
    """

    def __init__(self, observations, design, reml, how):
        self.observations = observations
        n = len(observations)
        self.design = np.zeros((n, 0)) if design is None else design
        self.reml = reml
        self.how = how
        self.placement = how.placement
        self.device = self.placement.devices[0]
        if how.refine and (self.device.index is not None or is_cluster(how.on)):
            raise InvalidInput(f'`refine` is for on="cpu" only. Got on={how.on!r}.')
        if how.tiled:
            # a wrong size is an error before the first evaluation
            Layout.of(n, how.tile)
        else:
            check_memory(n, 1, self.device)
        self._workspace, self._lock = None, RLock()
        self._twins = observations.duplicate()
        self._frozen = None
        self._last = (None, None, None)

    @_one_at_a_time
    def freeze(self, model):
        """Let all later factors have the formats that the rule chooses for this model."""
        self._frozen = None
        self._last = (None, None, None)
        try:
            self._frozen = Frozen(self.factorize(model, self._space()).precision_map)
        except NotPositiveDefinite:
            # then each model has its own, and its own failure
            return

    @gpu_memory()
    @_one_at_a_time
    def __call__(self, model):
        """Evaluate the log-likelihood; -inf with an outcome where Σ has no factor."""
        if self._last[0] == model:
            return self._last[1]
        start = time.perf_counter()
        n = len(self.observations)
        try:
            with blas_threads(n):
                factor = self.factorize(model, self._space())
                least_squares = fit_trend(factor, self.observations.values, self.design)
                return self._evaluation(factor, least_squares, start)
        except NotPositiveDefinite as error:
            refining = isinstance(error, NotRefined)
            ending = Ending.STALLED if refining else Ending.NOT_POSITIVE_DEFINITE
            outcome = Outcome(ending, str(error))
            return Evaluation.failed(outcome, n, time.perf_counter() - start)

    def _space(self):
        """Return the memory that all evaluations overwrite, allocated at the first one.

        Allocating it anew would take longer than computing its entries, and pinning it even longer.
        """
        n, index = len(self.observations), self.device.index
        if self._workspace is None:
            if self.how.tiled:
                self._workspace = self.placement.host()
            elif index is None:
                self._workspace = np.empty((n, n), order="F")
            else:
                self._workspace = empty_matrix(n, index)
        return self._workspace

    def _evaluation(self, factor, least_squares, start):
        """Return the evaluation of a model whose Σ has been factored."""
        n, log_determinant = len(self.observations), factor.log_determinant()
        value = gaussian_log_likelihood(n, log_determinant, least_squares, self.reml)
        if not np.isfinite(value):
            message = "the log-likelihood is no FP64 number: rescale the values and the variance."
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
            getattr(factor, "last", None),
            *movements(factor),
            seconds=time.perf_counter() - start,
        )

    @gpu_memory()
    def factorize(self, model, workspace=None):
        """Return the Cholesky factor of Σ(θ).

        Parameters
        ----------
        model : Matern
        workspace : (n, n) array on the device, or Host, optional
            Overwritten, and then part of the factor: passing it again destroys that factor.

        Raises
        ------
        NotPositiveDefinite
            Naming the two locations that are hardest to tell apart.
        """
        seen = self.observations
        model.check_valid_on(seen.metric, seen.dimensions)
        if model.nugget == 0 and self._twins:
            # rounding may leave a pivot that is positive, and a likelihood that means nothing
            raise explain(NotPositiveDefinite("two equal rows"), seen, model)
        try:
            if self.how.tiled:
                rule = self._frozen or self.how.precision
                about = (self.how.tile, self._watched_placement())
                factor = tile_factor(model, seen, rule, *about, workspace)
                if not self.how.refine:
                    return factor
                attempts = finer_rules(rule) if self.how.fallback else ()
                finer = (partial(tile_factor, model, seen, other, *about) for other in attempts)
                return RefinedFactor(factor, self.how.refine, finer=finer)
            return dense_factor(model, seen, self.device, workspace)
        except NotPositiveDefinite as error:
            raise explain(error, seen, model) from None

    def _watched_placement(self):
        """Return the placement, with a trace of its own for each factorization if one is wanted."""
        return replace(self.placement, trace=Trace()) if self.how.trace else self.placement

    def gradient(self, model, names=None):
        """Evaluate ∂ℓ/∂θ; see `geomxp.inference.derivatives`.

        Where memory is bounded and does not hold Σ⁻¹, by differences of ℓ.

        Parameters
        ----------
        model : Matern
        names : sequence of str, optional
            Parameters wanted; all of `model.parameters()` if not given.

        Returns
        -------
        dict of str to float
        """
        names = tuple(model.parameters() if names is None else names)
        if not self.scoring:
            return by_differences(self, model, names)
        return self.derivatives(model, names).gradient(names)

    def information(self, model, names):
        """Return the average information, (k, k): beside the gradient it costs next to nothing."""
        found = self.derivatives(model, names)
        return found.part(found.average, names)

    def observed_information(self, model, names=None):
        """Return minus the Hessian of ℓ in some parameters, (k, k)."""
        names = tuple(model.parameters() if names is None else names)
        found = self.derivatives(model, names, curvature=True)
        return found.part(found.observed, names)

    def expected_information(self, model, names=None):
        """Evaluate Fisher's expected information F_jk = ½ tr(Q ∂_jΣ Q ∂_kΣ).

        Parameters
        ----------
        model : Matern
        names : sequence of str, optional
            All of `model.parameters()` if not given.

        Returns
        -------
        (k, k) ndarray, in the order of `names`
        """
        names = tuple(model.parameters() if names is None else names)
        found = self.derivatives(model, names, curvature=True)
        return found.part(found.expected, names)

    @gpu_memory()
    @_one_at_a_time
    def derivatives(self, model, names, *, curvature=False):
        """Return `Derivatives` at a model; the last ones, and the evaluation there, are kept.

        Parameters
        ----------
        model : Matern
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
            least_squares = fit_trend(factor, self.observations.values, self.design)
            evaluation = self._evaluation(factor, least_squares, start)
            found = differentiate(
                *(factor, least_squares, model, self.observations, self.design, self.reml, names),
                curvature=curvature,
            )
        self._last = (model, evaluation, found)
        return found

    expensive = True

    def keeps(self, model):
        """Whether the evaluation and the derivatives at a model are those kept."""
        return self._last[0] == model

    def curved(self, names):
        """Whether the observed information of some parameters has a formula that memory allows."""
        return self.scoring and self._room_for(len(names))

    @property
    def scoring(self):
        """Whether scores and information can be had: Σ⁻¹ is dense, and memory may be short.

        In the place of L they need nothing more; tiles have to be put together first.
        """
        return (self.placement.in_core and not self.how.tiled) or self._room_for(0)

    def _matrices(self, curvatures):
        """Return the number and the device of the n×n FP64 matrices that derivatives need.

        Nothing if the memory of L suffices. The information needs one for each of so many
        parameters.
        """
        if self.how.tiled:
            # put together in RAM, wherever the tiles were factored
            return ((4 + curvatures, Device("cpu")),)
        if self.device.index is None:
            return ((1 + curvatures, self.device),) if curvatures else ()
        # L and one whitened derivative beside it; all of these in RAM
        return ((2, self.device), (curvatures, Device("cpu"))) if curvatures else ()

    def _room_for(self, curvatures):
        """Whether there is memory for the matrices of so many parameters' curvatures."""
        return all(
            _bytes_for(len(self.observations), matrices, device) < self._bound(device)
            for matrices, device in self._matrices(curvatures)
        )

    def _bound(self, device):
        """Return the bytes that matrices may have in a memory."""
        if device.index is not None:
            # what the pool gives back is in pieces
            return 0.9 * device.free_memory() + self._held(device)
        bound = free_memory() + self._held(device)
        return bound if self.placement.memory is None else min(bound, self.placement.memory)

    def _held(self, device):
        """Return the bytes that the workspace already holds in a memory."""
        if self._workspace is None:
            return 0
        if self.how.tiled:
            return self._workspace.bytes if device.index is None else 0
        return self._workspace.nbytes if device == self.device else 0


def movements(factor):
    """Return the traffic of a factorization, and its events; None and nothing in one memory."""
    store = getattr(factor, "store", None)
    trace = getattr(store, "trace", None)
    return getattr(store, "moved", None), () if trace is None else tuple(trace.events())


def _bytes_for(n, matrices, device=None):
    # blocks in work, whitened columns, and the interpreter's own
    needed = int(1.02 * matrices * n * n * 8) + 64 * n + 2**24
    if device is None or device.index is None:
        return needed
    return needed + BLOCKS * 8 * min(n, sums_by_blocks.BLOCK) ** 2


def check_memory(n, matrices, device, held=0):
    """Raise `NotEnoughMemory` if n×n FP64 matrices need more than the free and the held bytes."""
    on_gpu = device.index is not None
    what, free = ("device memory", device.free_memory()) if on_gpu else ("memory", free_memory())
    needed = _bytes_for(n, matrices, device)
    if needed > free + held:
        raise NotEnoughMemory(
            f"the exact method for {n:,} places needs {human_bytes(needed)} of {what}, "
            f"{human_bytes(free)} free: use fewer places, or a machine with more memory."
        )
