"""Where a factorization takes place: which devices, how much of which memory, which disk."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from shutil import disk_usage
from tempfile import gettempdir

from ..dense.matrix_units import splits
from ..dense.mixed import LARGEST_ON_GPU
from ..errors import InvalidInput, NotEnoughMemory
from ..tiles import budgets
from ..tiles.assemble import Originals
from ..tiles.disk import Disk
from ..tiles.factor import TileFactor
from ..tiles.layout import Layout
from ..tiles.memories import ALIGNMENT, Gpu, Host, Ram
from ..tiles.on_gpu import OnGpu
from ..tiles.out_of_core import OutOfCore, Shared
from ..tiles.stores import InCore
from . import local
from .cluster import Crew
from .cluster_client import address_of, is_cluster
from .cluster_factor import ClusterFactor
from .cluster_tiles import OnCluster, Spread
from .cluster_tiles import run as run_on_cluster
from .devices import Device, bytes_of, free_memory, human_bytes, resolve_all, usable_cores
from .memory_plan import MemoryPlan

GPU_STREAMS = 4
"""Tiles in work at one time on a GPU."""

GPU_TILES = ((2048, 16_000), (1024, 4_000))
"""(tile, least n): a GPU's products need larger tiles than a CPU's. Not measured yet."""

GPU_TILES_OUT_OF_CORE = ((4096, 60_000), *GPU_TILES)
"""The same where tiles travel: the larger they are, the fewer bytes."""

CLUSTER_TILES = ((1024, 4_000),)
"""The same for a cluster: each task costs some milliseconds."""


@dataclass(frozen=True)
class Placement:
    """Devices and memories for the tiles of one matrix.

    Parameters
    ----------
    devices : tuple of Device
    memory : int or None
        Bytes of RAM for tiles and what is computed with them; the rest lies on a disk.
    device_memory : int or None
        Bytes of each device's memory; the rest lies in RAM, pinned for GPUs.
    scratch : path or None
        Directory for tiles on the disk. If given, a run that is killed leaves them there, and the
        same run goes on from them.
    policy : str
        Of `geomxp.tiles.plan.POLICIES`.
    trace : Trace or None
        Watches the run.
    scheduler : str or None
        Address of a Dask cluster's scheduler, whose workers then hold the tiles.
    """

    devices: tuple = (Device("cpu"),)
    memory: int | None = None
    device_memory: int | None = None
    scratch: str | Path | None = None
    policy: str = "v3"
    trace: object = None
    scheduler: str | None = None

    @classmethod
    def of(cls, on, memory=None, device_memory=None, scratch=None):
        """Return the placement that the caller's words mean.

        Raises
        ------
        MissingDevice
        InvalidInput
        """
        if is_cluster(on):
            if (memory, device_memory, scratch) != (None, None, None):
                raise InvalidInput(
                    "`memory`, `device_memory` and `scratch` are for one machine: the workers of a "
                    f"cluster were started with theirs. Got on={on!r}."
                )
            return cls(scheduler=address_of(on))
        devices = resolve_all(on)
        if memory is not None and device_memory is not None:
            raise InvalidInput(
                "`memory` and `device_memory` cannot both be given: tiles lie on a disk beside "
                "RAM, or in RAM beside a device."
            )
        if memory is not None:
            memory = bytes_of("memory", memory)
            if devices[0].index is not None or len(devices) > 1:
                raise InvalidInput(
                    '`memory` bounds the RAM of on="cpu", with a disk behind it. '
                    f"Got on={on!r}: bound a GPU's memory with `device_memory`."
                )
        if device_memory is not None:
            device_memory = bytes_of("device_memory", device_memory)
        if scratch is not None and memory is None:
            raise InvalidInput("`scratch` is for the tiles that `memory` does not hold: give both.")
        return cls(devices, memory, device_memory, scratch)

    @property
    def in_core(self):
        """Whether all tiles lie in one memory."""
        bounded = self.memory is not None or self.device_memory is not None
        return not bounded and len(self.devices) == 1 and self.scheduler is None

    def layout(self, n, tile=None):
        """Return the layout for n places, of a size that suits the devices if `tile` is None."""
        if tile is None and self.scheduler is not None:
            tile = next((size for size, least in CLUSTER_TILES if n >= least), None)
        if tile is None and self.devices[0].index is not None:
            sizes = GPU_TILES if self.in_core else GPU_TILES_OUT_OF_CORE
            tile = next((size for size, least in sizes if n >= least), None)
        return Layout.of(n, tile)

    def originals(self, model, places, metric, layout, device=None):
        """Return what generates the tiles on a device, the first if not given."""
        if self.scheduler is not None:
            return Spread(Crew(self.scheduler), model, places, metric, layout)
        return Originals(model, places, metric, layout, (device or self.devices[0]).index)

    def host(self):
        """Return a `Host` for tiles that devices do not hold; None if they are kept elsewhere."""
        if self.in_core or self.memory is not None or self.scheduler is not None:
            return None
        return Host(pinned=self.devices[0].index is not None)

    def store(self, model, places, metric, layout, formats, host=None, originals=None):
        """Return the store for a factorization of Σ(θ).

        Parameters
        ----------
        model : Matern
        places : (n, d) ndarray
            In the order of the tiles.
        metric : str
        layout : Layout
        formats : PrecisionMap
        host : Host, optional
            From `self.host()`. Tiles of an earlier store in it are overwritten.
        originals : Originals, optional
            From `self.originals(...)` for the first device, where they are there already.

        Raises
        ------
        NotEnoughMemory
            If the tiles do not fit, or a budget is below what can be worked with.
        """
        about = model, places, metric, layout
        originals = originals or self.originals(*about)
        if self.scheduler is not None:
            return OnCluster(originals, formats)
        needed = formats.bytes(layout)
        if self.in_core:
            self._check("memory", needed + 2**24, self.devices[0].free_memory())
            return _in_core(originals, formats)
        gpu = self.devices[0].index is not None
        if self.memory is not None:
            self._check("memory", min(self.memory, budgets.useful(needed)), free_memory())
            problem = None
            if self.scratch is not None:
                problem = _fingerprint(model, places, metric, layout, formats)
            slow = Disk(layout, needed, self.scratch, problem)
        else:
            slow = self.host() if host is None else host
            self._check("memory", needed, free_memory() + slow.bytes)
            # with room to align each tile
            slow.reserve(needed + ALIGNMENT * layout.tiles**2)
        originals = [originals, *(self.originals(*about, d) for d in self.devices[1:])]
        memories = [Gpu(slow, device.index) if gpu else Ram(slow) for device in self.devices]
        parts = [
            OutOfCore(pairs, memory, self._asked(device), self.streams)
            for pairs, memory, device in zip(originals, memories, self.devices, strict=True)
        ]
        store = Shared(formats, parts, self.policy, trace=self.trace)
        try:
            for part in parts:
                part.budget = budgets.bounded(part.budget, layout, store.formats, part.streams)
        except NotEnoughMemory:
            slow.close()
            raise
        return store

    def run(self, store, tiles):
        """Finish some tiles of a store of this placement; see `local.run`."""
        if self.scheduler is not None:
            run_on_cluster(store, tiles)
        elif isinstance(store, OnGpu):
            store.run(tiles)
        else:
            local.run(store, tiles)

    def factor(self, store, order, promotions):
        """Return the factor whose tiles a store holds; see `TileFactor`."""
        kind = TileFactor if self.scheduler is None else ClusterFactor
        return kind(store, order, promotions)

    @property
    def streams(self):
        """Tiles in work at one time on each device."""
        if self.devices[0].index is not None:
            return GPU_STREAMS
        return max(1, usable_cores() // len(self.devices))

    def plan(self, layout, formats):
        """Return what a factorization will need and move.

        Parameters
        ----------
        layout : Layout
        formats : PrecisionMap

        Returns
        -------
        MemoryPlan

        Raises
        ------
        NotEnoughMemory
            If a bound is below what can be worked with.
        """
        if self.scheduler is not None:
            return MemoryPlan(layout, formats, (self.scheduler,), "workers")
        names = tuple(device.name for device in self.devices)
        if self.in_core:
            free = self.devices[0].free_memory()
            return MemoryPlan(layout, formats, names, streams=self.streams, free=free)
        behind, free = "memory", free_memory()
        if self.memory is not None:
            behind, free = "disk", disk_usage(self.scratch or gettempdir()).free
        about = (layout, formats, self.streams)
        bounds = tuple(budgets.bounded(self._asked(device), *about) for device in self.devices)
        return MemoryPlan(layout, formats, names, behind, bounds, self.streams, free)

    def _asked(self, device):
        """Return the bound of a device's memory, in bytes."""
        asked = self.memory or self.device_memory
        if asked is None:
            alike = sum(device == other for other in self.devices)
            asked = int(0.9 * device.free_memory()) // alike
        return asked

    @staticmethod
    def _check(what, needed, free):
        if needed > free:
            raise NotEnoughMemory(
                f"the tiles need {human_bytes(needed)} of {what}, {human_bytes(free)} free: ask "
                'for less accuracy, use fewer places, or let a disk hold them: memory="4GB".'
            )


def _in_core(originals, formats):
    """Return the store for tiles in one memory."""
    asynchronous = originals.index is not None and originals.layout.tile <= LARGEST_ON_GPU
    return (OnGpu if asynchronous else InCore)(originals, formats)


def _fingerprint(model, places, metric, layout, formats):
    """Return one line that is equal for equal problems only."""
    from .. import __version__

    places = hashlib.sha256(places.tobytes()).hexdigest()
    rows = hashlib.sha256(str(formats).encode()).hexdigest()
    about = (model.parameters(), metric, layout.n, layout.tile, formats.scale, splits())
    return f"geomxp {__version__} {about} {places} {rows}"
