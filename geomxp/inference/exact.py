"""The exact likelihood: one Cholesky factor of the whole covariance matrix."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InvalidInput
from ..execution.cluster_client import address_of, is_cluster
from ..execution.memory_plan import MemoryPlan
from ..execution.placement import Placement
from ..observations import Observations
from ..precision.formats import FP64
from ..precision.map import PrecisionMap
from ..precision.rules import describe, uniform
from ..tiles.krylov import METHODS
from ..tiles.layout import Layout
from .exact_evaluator import ExactEvaluator
from .factorize import planned_formats

if TYPE_CHECKING:
    from ..annotations import Client, Document, Floats, Matern, Rule, Sequence


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
    on : str, sequence of str, or dask.distributed.Client
        "cpu", "gpu" or "gpu:N"; several of a kind, which then share the work. Or a Dask cluster:
        the address of its scheduler, as "tcp://host:8786", or a client of it.
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
    trace : bool
        Keep what was copied and computed when: `Evaluation.events`, for `plots.timeline`. Of runs
        whose tiles one memory does not hold.

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

    def of_rows(self, rows: Sequence[int] | Floats) -> Exact:
        """Return the way to compute with some of the rows: no tile larger than all of them."""
        return self if self.tile is None else replace(self, tile=min(self.tile, len(rows)))

    def plan(self, places: int | Observations, model: Matern | None = None) -> MemoryPlan:
        """Say before a run where the tiles of Σ will live, and how much will move.

        Parameters
        ----------
        places : int or Observations
            How many; or the places themselves, with a model, where the rule of `precision` looks
            at the matrix: then its tiles are generated once.
        model : Matern, optional

        Returns
        -------
        MemoryPlan

        Raises
        ------
        InvalidInput
            If the formats cannot be known from a number of places.
        NotEnoughMemory
            If a bound is below what can be worked with.

        Examples
        --------
        >>> plan = Exact(tile=1000, memory="100MB").plan(10_000)
        >>> plan.layout.tiles, plan.on_disk
        (10, 440000000)
        """
        seen = places if isinstance(places, Observations) else None
        if seen is None and not (isinstance(places, Integral) and places > 0):
            raise InvalidInput(
                "`places` must be Observations, or how many there are. Got "
                f"{places if isinstance(places, Integral) else type(places).__name__}."
            )
        n, placement = int(places) if seen is None else len(seen), self.placement
        if not self.tiled:
            return placement.plan(Layout.of(n, n), PrecisionMap(((FP64,),)))
        layout = placement.layout(n, self.tile)
        formats = planned_formats(self.precision, layout, placement, seen, model)
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
            "accuracy": getattr(self.precision, "accuracy", None),
            "precision": describe(self.precision),
            "formats": {"fp64": 1},
            "promotions": 0,
            "neighbours": None,
        }
