"""The exact likelihood: one Cholesky factor of the whole covariance matrix."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InvalidInput, NotEnoughMemory, NotPositiveDefinite, NotRefined
from ..execution.cluster_client import address_of, is_cluster
from ..execution.devices import Device, blas_threads, free_memory, human_bytes
from ..execution.placement import Placement
from ..outcome import Ending, Outcome
from ..precision.rules import Frozen, describe, uniform
from ..tiles.krylov import METHODS
from ..tiles.layout import Layout
from ..tiles.refine import RefinedFactor
from .derivatives import by_differences, differentiate
from .factorize import dense_factor, explain, finer_rules, tile_factor
from .gls import fit_trend
from .likelihood import Evaluation, gaussian_log_likelihood

if TYPE_CHECKING:
    from ..annotations import Document, Floats, Observations, Rule, Sequence


@dataclass(frozen=True)
class Exact:
    """Compute with the whole covariance matrix: in FP64, or in tiles of mixed formats.

    Parameters
    ----------
    precision : callable
        A rule of `geomxp.precision.rules`: `uniform`, `by_band`, `by_tile_norm`, `layered`,
        `for_divergence`.
    tile : int or None
        Rows of a tile; of a size that suits the number of places if None.
    on : str or sequence of str
        "cpu", "gpu" or "gpu:N"; several of a kind, which then share the work. Or a Dask cluster:
        the address of its scheduler, as "tcp://host:8786", or a `dask.distributed.Client`.
    memory : str or int, optional
        Bound of RAM, as "4GB": tiles that it does not hold lie on a disk.
    device_memory : str or int, optional
        Bound of each device's memory: tiles that it does not hold lie in RAM, pinned for GPUs.
    scratch : path, optional
        Directory for the tiles on a disk; that of the system's temporary files if not given, and
        then nothing is left there whatever happens. With it a killed run leaves its tiles, and the
        same run goes on from them.
    refine : {"ir", "cg", "gmres"}, optional
        Refine what a mixed factor solves to FP64's accuracy, by this iteration: quadratic forms,
        coefficients and predictions; not the log-determinant. On a CPU only.
    fallback : bool
        Factor in finer formats, and in FP64 at last, where refinement fails.

    Examples
    --------
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
    on: str | Sequence[str] = "cpu"
    memory: str | int | None = None
    device_memory: str | int | None = None
    scratch: str | Path | None = None
    refine: str | None = None
    fallback: bool = False

    def __post_init__(self):
        if self.refine not in (None, *METHODS):
            raise InvalidInput(
                f"`refine` must be None or one of: {', '.join(METHODS)}. Got {self.refine!r}."
            )
        if isinstance(self.on, (list, tuple)):
            # one device in a list is that device
            alone = self.on[0] if len(self.on) == 1 else tuple(self.on)
            object.__setattr__(self, "on", alone)
        object.__setattr__(self, "on", address_of(self.on))
        if not callable(self.precision):
            raise InvalidInput(
                "`precision` must be a rule, such as uniform('fp64') or by_tile_norm(1e-8). "
                f"Got {self.precision!r}."
            )

    @property
    def tiled(self) -> bool:
        """Whether Σ is cut into tiles: plain FP64 in one memory only if a size is given."""
        bounded = self.memory is not None or self.device_memory is not None
        several = len(self.placement.devices) > 1 or is_cluster(self.on)
        mixed = self.precision != uniform("fp64")
        return mixed or bounded or several or self.tile is not None or self.refine is not None

    @property
    def placement(self) -> Placement:
        """Where the tiles live; see `geomxp.execution.placement.Placement`."""
        return Placement.of(self.on, self.memory, self.device_memory, self.scratch)

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
            "accuracy": getattr(self.precision, "accuracy", None),
            "precision": describe(self.precision),
            "formats": {"fp64": 1},
            "promotions": 0,
            "neighbours": None,
        }


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
        self._workspace = None
        self._twins = observations.duplicate()
        self._frozen = None
        self._last = (None, None, None)

    def freeze(self, model):
        """Let all later factors have the formats that the rule chooses for this model."""
        self._frozen = None
        self._last = (None, None, None)
        try:
            self._frozen = Frozen(self.factorize(model).precision_map)
        except NotPositiveDefinite:
            # then each model has its own, and its own failure
            return

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
        """One matrix serves all evaluations: fresh memory would cost more than its entries."""
        n = len(self.observations)
        if self._workspace is None and self.device.index is None and not self.how.tiled:
            self._workspace = np.empty((n, n), order="F")
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
            seconds=time.perf_counter() - start,
        )

    def factorize(self, model, workspace=None):
        """Return the Cholesky factor of Σ(θ).

        Parameters
        ----------
        model : Matern
        workspace : (n, n) ndarray, Fortran order, optional
            Written over, and on a CPU then part of the factor; not used for tiles.

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
                about = (self.how.tile, self.placement)
                factor = tile_factor(model, seen, rule, *about)
                if not self.how.refine:
                    return factor
                attempts = finer_rules(rule) if self.how.fallback else ()
                finer = (partial(tile_factor, model, seen, other, *about) for other in attempts)
                return RefinedFactor(factor, self.how.refine, finer=finer)
            return dense_factor(model, seen, self.device, workspace)
        except NotPositiveDefinite as error:
            raise explain(error, seen, model) from None

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
        # Σ⁻¹ is dense and FP64; the information wants a matrix for each curved parameter
        matrices = (4 if self.how.tiled else 1) + (len(wanted) if curvature else 0)
        if matrices > 1:
            in_core = self.placement.in_core
            check_memory(
                len(self.observations), matrices, self.device if in_core else Device("cpu")
            )
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

    @property
    def curved(self):
        """Whether the observed information has a formula that memory allows."""
        return self.scoring

    @property
    def scoring(self):
        """Whether scores and information can be had: Σ⁻¹ is dense, and bounded memory is short."""
        return self.placement.in_core or self._inverse_fits()

    def _inverse_fits(self):
        """Whether the dense Σ⁻¹ may be held, where memory is bounded."""
        bound = free_memory()
        if self.placement.memory is not None:
            bound = min(bound, self.placement.memory)
        return 4 * 8 * len(self.observations) ** 2 < bound


def check_memory(n, matrices, device):
    """Raise `NotEnoughMemory` if so many n×n FP64 matrices do not fit into what is free."""
    on_gpu = device.index is not None
    what, free = ("device memory", device.free_memory()) if on_gpu else ("memory", free_memory())
    # blocks in work, whitened columns, and the interpreter's own
    needed = int(1.02 * matrices * n * n * 8) + 64 * n + 2**24
    if needed > free:
        raise NotEnoughMemory(
            f"the exact method for {n:,} places needs {human_bytes(needed)} of {what}, "
            f"{human_bytes(free)} free: use fewer places, or a machine with more memory."
        )
