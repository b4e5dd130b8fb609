"""Choice of the store for a request: `on`, `memory`, `device_memory`, `scratch` and `store`.

| request | placement | store | runner |
|---|---|---|---|
| a CPU | `InMemory` | `InCore` | threads: `schedule.run` |
| a CPU and a store class | `InMemory` | that class | threads |
| a GPU | `InMemory` | `GpuStore`, or `InCore` for very large tiles | streams: `on_gpu.run` |
| several devices, or a bounded memory | `OutOfCore` | `OutOfCoreStore` | threads |
| a Dask cluster | `OnDask` | `DaskStore` | tasks: `dask_store.run` |
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from shutil import disk_usage
from tempfile import gettempdir

from ..errors import InvalidInput, NotEnoughMemory
from ..linalg.mixed import LARGEST_ON_GPU, splits
from ..runtime.dask import DaskBackend, address_of
from ..runtime.devices import (
    Device,
    bytes_of,
    free_memory,
    human_bytes,
    is_cluster,
    resolve_all,
    usable_cores,
)
from ..runtime.trace import Trace
from . import plan as budgets
from .assemble import Originals
from .dask_store import DaskOriginals, DaskStore
from .layout import Layout
from .memories import ALIGNMENT, Disk, Gpu, Host, Ram
from .memory_plan import MemoryPlan
from .on_gpu import GpuStore
from .out_of_core import OutOfCoreDevice, OutOfCoreStore
from .stores import InCore, Store

GPU_STREAMS = 4
"""Tiles computed at the same time on a GPU."""

GPU_TILES = ((2048, 16_000), (1024, 4_000))
"""(tile, least n): a GPU needs larger tiles than a CPU. Not measured yet."""

GPU_TILES_OUT_OF_CORE = ((4096, 60_000), *GPU_TILES)
"""The same for tiles that travel: the larger they are, the fewer bytes move."""

CLUSTER_TILES = ((1024, 4_000),)
"""The same for a cluster, where each task costs some milliseconds."""


@dataclass(frozen=True)
class Placement:
    """Devices and memories for the tiles of one matrix: the base of the three kinds.

    Parameters
    ----------
    devices : tuple of Device
    trace : Trace or None
        Records the events of out-of-core runs.
    """

    devices: tuple = (Device("cpu"),)
    trace: Trace | None = None

    in_core = False
    memory = None
    sizes = ()

    @staticmethod
    def of(on, memory=None, device_memory=None, scratch=None, store=None):
        """Return the placement of a request; arguments are those of `geomxp.Exact`.

        Raises
        ------
        MissingDevice
        InvalidInput
        """
        if is_cluster(on):
            if (memory, device_memory, scratch, store) != (None,) * 4:
                raise InvalidInput(
                    "`memory`, `device_memory`, `scratch` and `store` are for one machine; the "
                    "memory of a cluster is bounded where its workers are started. "
                    f"Got on={on!r}."
                )
            return OnDask(scheduler=address_of(on))
        devices = resolve_all(on)
        alone, gpu = len(devices) == 1, devices[0].index is not None
        if memory is not None and device_memory is not None:
            raise InvalidInput(
                "`memory` and `device_memory` cannot both be given: tiles are on a disk behind "
                "RAM, or in RAM behind a device."
            )
        if memory is not None:
            memory = bytes_of("memory", memory)
            if gpu or not alone:
                raise InvalidInput(
                    '`memory` bounds the RAM of on="cpu", with a disk behind it. '
                    f"Got on={on!r}: bound a GPU's memory with `device_memory`."
                )
        if device_memory is not None:
            device_memory = bytes_of("device_memory", device_memory)
        if scratch is not None and memory is None:
            raise InvalidInput("`scratch` is for the tiles that `memory` does not hold: give both.")
        bounded = memory is not None or device_memory is not None
        if store is not None and (bounded or gpu or not alone):
            raise InvalidInput(
                f'`store` keeps the tiles of on="cpu", without `memory`. Got on={on!r}: leave '
                "`store`, `memory` and `device_memory` out."
            )
        if bounded or not alone:
            return OutOfCore(devices, None, memory, device_memory, scratch)
        return InMemory(devices, None, store)

    def layout(self, n, tile=None):
        """Return the layout for n locations; if `tile` is None with a size for the devices."""
        if tile is None:
            tile = next((size for size, least in self.sizes if n >= least), None)
        return Layout.of(n, tile)

    def originals(self, model, places, metric, layout, device=None):
        """Return the `Originals` that generate tiles on a device; on the first if not given."""
        return Originals(model, places, metric, layout, (device or self.devices[0]).index)

    def host(self):
        """Return RAM that stores may reuse one after the other; None if they do not need it."""
        return

    def store(self, model, places, metric, layout, formats, host=None, originals=None) -> Store:
        """Return the store for a factorization of Σ(θ).

        Parameters
        ----------
        model : Matern
        places : (n, d) ndarray
            Locations in the order of the tiles.
        metric : str
        layout : Layout
        formats : PrecisionMap
        host : Host, optional
            From `host()`. Tiles of an earlier store in it are overwritten.
        originals : Originals, optional
            From `originals(...)` for the first device.

        Raises
        ------
        NotEnoughMemory
            If the tiles do not fit, or a bound is too small.
        """
        raise NotImplementedError

    def plan(self, layout, formats) -> MemoryPlan:
        """Return the memory plan of a factorization.

        Raises
        ------
        NotEnoughMemory
            If a bound is too small.
        """
        raise NotImplementedError

    @property
    def on_gpu(self):
        """Whether the devices are GPUs."""
        return self.devices[0].index is not None

    @property
    def streams(self):
        """Tiles computed at the same time on each device."""
        return GPU_STREAMS if self.on_gpu else max(1, usable_cores() // len(self.devices))

    @property
    def _names(self):
        return tuple(device.name for device in self.devices)


@dataclass(frozen=True)
class InMemory(Placement):
    """All tiles in the memory of one device; see `Placement`.

    Parameters
    ----------
    own : callable or None
        own(originals, formats) returns the caller's `Store`.
    """

    own: Callable | None = None

    in_core = True

    @property
    def sizes(self):
        """Sizes of tiles, (tile, least n), other than those for a CPU."""
        return GPU_TILES if self.on_gpu else ()

    def store(self, model, places, metric, layout, formats, host=None, originals=None):
        """Return the store; see `Placement.store`."""
        if self.own is None:
            free = self.devices[0].free_memory()
            _check("memory", formats.bytes(layout) + 2**24, free)
        gpu = self.on_gpu and layout.tile <= LARGEST_ON_GPU
        kind = self.own or (GpuStore if gpu else InCore)
        return kind(originals or self.originals(model, places, metric, layout), formats)

    def plan(self, layout, formats):
        """Return the memory plan; see `Placement.plan`."""
        free = self.devices[0].free_memory()
        return MemoryPlan(layout, formats, self._names, streams=self.streams, free=free)


@dataclass(frozen=True)
class OutOfCore(Placement):
    """Tiles in a slow memory, computed in the bounded memories of devices; see `Placement`.

    Parameters
    ----------
    memory : int or None
        Bytes of RAM; the tiles are on a disk.
    device_memory : int or None
        Bytes of each device's memory; the tiles are in RAM, pinned for GPUs.
    scratch : path or None
        Directory of the tiles on disk. If given, an interrupted run leaves them there and the same
        run continues from them.
    policy : str
        See `geomxp.tiles.plan.POLICIES`.
    """

    memory: int | None = None
    device_memory: int | None = None
    scratch: str | Path | None = None
    policy: str = "v3"

    @property
    def sizes(self):
        """Sizes of tiles, (tile, least n), other than those for a CPU."""
        return GPU_TILES_OUT_OF_CORE if self.on_gpu else ()

    def host(self):
        """Return a `Host` for the tiles; None if they are on a disk."""
        return None if self.memory is not None else Host(pinned=self.on_gpu)

    def store(self, model, places, metric, layout, formats, host=None, originals=None):
        """Return the store; see `Placement.store`."""
        about, needed = (model, places, metric, layout), formats.bytes(layout)
        slow = self._slow(about, formats, needed, host)
        first = originals or self.originals(*about)
        generators = [first, *(self.originals(*about, d) for d in self.devices[1:])]
        memories = [
            Gpu(slow, device.index) if self.on_gpu else Ram(slow) for device in self.devices
        ]
        parts = [
            OutOfCoreDevice(generator, memory, self._bound(device), self.streams)
            for generator, memory, device in zip(generators, memories, self.devices, strict=True)
        ]
        store = OutOfCoreStore(formats, parts, self.policy, trace=self.trace)
        try:
            for part in parts:
                part.budget = budgets.bounded(part.budget, layout, store.formats, part.streams)
        except NotEnoughMemory:
            slow.close()
            raise
        return store

    def _slow(self, about, formats, needed, host):
        """Return the slow memory with room for all tiles."""
        *_, layout = about
        if self.memory is not None:
            _check("memory", min(self.memory, budgets.useful(needed)), free_memory())
            problem = None if self.scratch is None else _fingerprint(*about, formats)
            return Disk(layout, needed, self.scratch, problem)
        slow = self.host() if host is None else host
        _check("memory", needed, free_memory() + slow.bytes)
        # with room to align each tile
        slow.reserve(needed + ALIGNMENT * layout.tiles**2)
        return slow

    def plan(self, layout, formats):
        """Return the memory plan; see `Placement.plan`."""
        behind, free = "memory", free_memory()
        if self.memory is not None:
            behind, free = "disk", disk_usage(self.scratch or gettempdir()).free
        bounds = tuple(
            budgets.bounded(self._bound(device), layout, formats, self.streams)
            for device in self.devices
        )
        return MemoryPlan(layout, formats, self._names, behind, bounds, self.streams, free)

    def _bound(self, device):
        """Return the bound of a device's memory, in bytes."""
        bound = self.memory or self.device_memory
        if bound is None:
            alike = sum(device == other for other in self.devices)
            bound = int(0.9 * device.free_memory()) // alike
        return bound


@dataclass(frozen=True)
class OnDask(Placement):
    """Tiles on the workers of a Dask cluster; see `Placement`.

    Parameters
    ----------
    scheduler : str
        Address of the scheduler.
    """

    scheduler: str = ""

    sizes = CLUSTER_TILES

    def originals(self, model, places, metric, layout, device=None):
        """Return the `DaskOriginals`."""
        return DaskOriginals(DaskBackend(self.scheduler), model, places, metric, layout)

    def store(self, model, places, metric, layout, formats, host=None, originals=None):
        """Return the store; see `Placement.store`."""
        return DaskStore(originals or self.originals(model, places, metric, layout), formats)

    def plan(self, layout, formats):
        """Return the memory plan; see `Placement.plan`."""
        return MemoryPlan(layout, formats, (self.scheduler,), "workers")


def _check(what, needed, free):
    if needed > free:
        raise NotEnoughMemory(
            f"the tiles need {human_bytes(needed)} of {what}, {human_bytes(free)} free: ask "
            'for less accuracy, use fewer places, or keep the tiles on a disk: memory="4GB".'
        )


def _fingerprint(model, places, metric, layout, formats):
    """Return a line that is equal for equal problems only."""
    from .._version import __version__

    places = hashlib.sha256(places.tobytes()).hexdigest()
    rows = hashlib.sha256(str(formats).encode()).hexdigest()
    about = (model.parameters(), metric, layout.n, layout.tile, formats.scale, splits())
    return f"geomxp {__version__} {about} {places} {rows}"
