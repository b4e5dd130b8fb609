"""Choice of the store for a request: `on`, `memory`, `device_memory`, `scratch` and `store`.

| request | placement | store | tiles are finished by |
|---|---|---|---|
| a CPU | `InMemory` | `InCore` | threads |
| a CPU, the matrix halved | `InMemory` | `Tree` | threads |
| a GPU, the matrix halved | `InMemory` | `GpuTree` | streams |
| a CPU and a store class | `InMemory` | that class | threads |
| a GPU | `InMemory` | `GpuStore`, or `InCore` for very large tiles | streams, or threads |
| several devices, or a bounded memory | `OutOfCore` | `OutOfCoreStore` | threads |
| a bounded memory, tiles of low rank | `OutOfCore` | `OnDisk` | threads |
| a Dask cluster | `OnDask` | `DaskStore` | tasks |

`MemoryPlan` tells before the run where the tiles will be kept, and how much will move.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from shutil import disk_usage
from tempfile import gettempdir
from typing import TYPE_CHECKING

from ..covariance.inputs import Inputs
from ..errors import InvalidInput, NotEnoughMemory, did_you_mean
from ..linalg.mixed import LARGEST_GPU_TILE, splits
from ..linalg.precision import PrecisionMap
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
from ..runtime.trace import Trace, Traffic
from .assemble import Originals
from .dask_store import DaskOriginals, DaskStore
from .layout import WHOLE, Layout
from .memories import ALIGNMENT_BYTES, Disk, Gpu, Host, Ram, check_disk
from .on_disk import OnDisk
from .on_gpu import GpuStore
from .out_of_core import OutOfCoreDevice, OutOfCoreStore
from .plan import POLICIES, Sizes, policy_named, useful
from .simulate import MACHINES, Machine, Simulation, measured, simulate, volumes
from .stores import InCore, Store
from .tree import Tree, largest_block_bytes
from .tree_on_gpu import GpuTree

if TYPE_CHECKING:
    from .._typing import Document

GPU_STREAMS = 4
"""Tiles computed at the same time on a GPU."""

GPU_TILES = ((4096, 30_000), (2048, 16_000), (1024, 4_000))
"""(tile, least n): a GPU needs larger tiles than a CPU. From experiments/h200, stage f."""

CLUSTER_TILES = ((1024, 4_000),)
"""The same for a cluster, where each task costs some milliseconds."""


@dataclass(frozen=True)
class Placement:
    """Devices and memories for the tiles of one matrix: the base of the three kinds.

    The trace, if there is one, records the events of out-of-core runs. `tile_sizes` are pairs
    (tile, least n) other than those for a CPU.
    """

    devices: tuple = (Device("cpu"),)
    trace: Trace | None = None

    in_core = False
    checks_room = True
    memory = None
    tile_sizes = ()

    @staticmethod
    def of(on, memory=None, device_memory=None, scratch=None, store=None):
        """Return the placement of a request; arguments are those of `geomxp.Exact`."""
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
        """Return the layout for n locations; if `tile` is None with a size for the devices.

        For `layout.WHOLE` its tiles are the cells of a tree.
        """
        if tile == WHOLE:
            return Layout.of_cells(n, self.on_gpu)
        if tile is None:
            tile = next((size for size, least in self.tile_sizes if n >= least), None)
        return Layout.of(n, tile)

    def originals(self, model, locations, metric, layout):
        """Return the `Originals` that generate tiles on the first device."""
        return Originals(model, locations, metric, layout, self.devices[0].index)

    def host(self):
        """Return RAM that successive stores may reuse; None if they do not need it."""
        return

    def store(self, originals, formats, host=None) -> Store:
        """Return the store for a factorization.

        Tiles of an earlier store in the same `host()` are overwritten. Raises `NotEnoughMemory` if
        the tiles do not fit, or a bound is too small.
        """
        raise NotImplementedError

    def check_room(self, needed):
        """Raise `NotEnoughMemory` if tiles of so many bytes do not fit, before formats are known.

        `store` checks again, with the formats of all tiles.
        """

    def plan(self, layout, formats) -> MemoryPlan:
        """Return the plan of a factorization; raises `NotEnoughMemory` if a bound is too small."""
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
    """All tiles in the memory of one device; `own` is the caller's `Store`."""

    own: Callable | None = None

    in_core = True

    @property
    def tile_sizes(self):
        """See `Placement`."""
        return GPU_TILES if self.on_gpu else ()

    def store(self, originals, formats, host=None):
        """Return the store; see `Placement.store`."""
        layout = originals.layout
        if self.own is None:
            needed = formats.bytes(layout) + 2**24
            if layout.joined:
                # as many blocks as are computed at one time
                needed += self.streams * largest_block_bytes(layout)
            _check(needed, self.devices[0].free_memory(), self.on_gpu)
        if layout.joined:
            return (GpuTree if self.on_gpu else Tree)(originals, formats)
        gpu = self.on_gpu and layout.tile <= LARGEST_GPU_TILE
        return (self.own or (GpuStore if gpu else InCore))(originals, formats)

    def check_room(self, needed):
        """See `Placement.check_room`."""
        if self.own is None:
            _check(needed, self.devices[0].free_memory(), self.on_gpu)

    def plan(self, layout, formats):
        """Return the memory plan; see `Placement.plan`."""
        free = self.devices[0].free_memory()
        return MemoryPlan(layout, formats, self._names, streams=self.streams, free=free)


@dataclass(frozen=True)
class OutOfCore(Placement):
    """Tiles in a slow memory, computed in the bounded memories of devices; see `Placement`."""

    # bytes of RAM; the tiles are on a disk
    memory: int | None = None
    # bytes of each device's memory; the tiles are in RAM, pinned for GPUs
    device_memory: int | None = None
    # directory of the tiles on disk, from which the same run continues after an interruption
    scratch: str | Path | None = None
    policy: str = "v3"

    @property
    def tile_sizes(self):
        """See `Placement`."""
        return GPU_TILES if self.on_gpu else ()

    def check_room(self, needed):
        """See `Placement.check_room`."""
        if self.memory is None:
            _check(needed, free_memory())
        elif os.path.isdir(directory := self.scratch or gettempdir()):
            check_disk(needed, disk_usage(directory).free, directory)

    def host(self):
        """Return a `Host` for the tiles; None if they are on a disk."""
        return None if self.memory is not None else Host(pinned=self.on_gpu)

    def store(self, originals, formats, host=None):
        """Return the store; see `Placement.store`."""
        if formats.tolerances is not None:
            needed = formats.bytes(originals.layout)
            _check(min(self.memory, useful(needed)), free_memory())
            disk = Disk(originals.layout, needed, self.scratch)
            return OnDisk(originals, formats, disk, self.memory)
        slow, streams = self._slow(originals, formats, host), policy_named(self.policy).streams
        generators = [originals, *(originals.on(device.index) for device in self.devices[1:])]
        parts = [
            OutOfCoreDevice(
                generator,
                Gpu(slow, device.index) if self.on_gpu else Ram(slow),
                self._bound(device),
                streams or self.streams,
            )
            for generator, device in zip(generators, self.devices, strict=True)
        ]
        store = OutOfCoreStore(formats, parts, self.policy, trace=self.trace)
        try:
            for part in parts:
                part.budget = store.sizes.bounded(part.budget)
        except NotEnoughMemory:
            slow.close()
            raise
        return store

    def _slow(self, originals, formats, host):
        """Return the slow memory with room for all tiles."""
        layout = originals.layout
        needed = formats.bytes(layout)
        if self.memory is not None:
            _check(min(self.memory, useful(needed)), free_memory())
            problem = None if self.scratch is None else _fingerprint(originals, formats)
            return Disk(layout, needed, self.scratch, problem)
        slow = self.host() if host is None else host
        _check(needed, free_memory() + slow.bytes)
        # with room to align each tile
        slow.reserve(needed + ALIGNMENT_BYTES * layout.tiles**2)
        return slow

    def plan(self, layout, formats):
        """Return the memory plan; see `Placement.plan`."""
        behind, free = "memory", free_memory()
        if self.memory is not None:
            behind, free = "disk", disk_usage(self.scratch or gettempdir()).free
        sizes = Sizes(layout, formats, self.streams)
        bounds = tuple(sizes.bounded(self._bound(device)) for device in self.devices)
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
    """Tiles on the workers of the Dask cluster with this scheduler address; see `Placement`."""

    scheduler: str = ""

    # workers are asked when the tiles are distributed
    checks_room = False
    tile_sizes = CLUSTER_TILES

    def originals(self, model, locations, metric, layout):
        """Return the `DaskOriginals`."""
        return DaskOriginals(DaskBackend(self.scheduler), model, locations, metric, layout)

    def store(self, originals, formats, host=None):
        """Return the store; see `Placement.store`."""
        return DaskStore(originals, formats)

    def plan(self, layout, formats):
        """Return the memory plan; see `Placement.plan`."""
        return MemoryPlan(layout, formats, (self.scheduler,), "workers")


def _check(needed, free, device=False):
    """Raise `NotEnoughMemory` if tiles need more than the free bytes, of a device or of RAM."""
    if needed > free:
        half = f"{max(1, int(free / 2e6))}MB"
        behind = f'most on a disk (--on cpu --memory {half}, gx.Exact(memory="{half}"))'
        if device:
            behind = (
                f'most in RAM (--device-memory {half}, gx.Exact(on="gpu", device_memory="{half}"))'
            )
        raise NotEnoughMemory(
            f"the tiles need {human_bytes(needed)} of memory, {human_bytes(free)} free: keep "
            f"{behind}, use coarser formats (--kl 1e-3, gx.Exact(gx.for_divergence(1e-3))), or "
            "Vecchia's approximation (--method vecchia, gx.Vecchia(30))."
        )


def _fingerprint(originals, formats):
    """Return a line that is equal for equal problems only."""
    from .._version import __version__

    model, locations, metric, layout = originals.source
    inputs = Inputs.of(locations, metric)
    columns = inputs.locations, inputs.time, inputs.variable
    columns = *columns, inputs.error_variance, inputs.replicates
    places = b"".join(column.tobytes() for column in columns if column is not None)
    places = hashlib.sha256(places).hexdigest()
    rows = hashlib.sha256(str(formats).encode()).hexdigest()
    problem = (model.parameters(), metric, layout.n, layout.tile, formats.scale, splits())
    return f"geomxp {__version__} {problem} {places} {rows}"


# Memory plan.

MOST_COUNTED_TILES = 50
"""Tiles per dimension up to which copies are counted within about a second."""

STORAGE_IN_WORDS = {"disk": "on a disk", "memory": "in RAM", "workers": "on a cluster's workers"}


@dataclass(frozen=True)
class MemoryPlan:
    """Storage of the tiles of one covariance matrix, and the expected traffic.

    Parameters
    ----------
    layout : Layout
        Its `n`, `tile` (rows of a tile) and `tiles` (per dimension).
    formats : PrecisionMap
        Formats at the begin of the run.
    devices : tuple of str
        Devices that compute.
    behind : {"", "disk", "memory", "workers"}
        Where tiles are kept that do not fit in a device's memory; "" if one memory holds all tiles,
        "workers" if those of a cluster do.
    budgets : tuple of int
        Bytes of each device's memory, if it is bounded.
    streams : int
        Tiles computed at the same time on a device.
    free : int or None
        Free bytes of the memory or the disk that holds all tiles.
    """

    layout: Layout
    formats: PrecisionMap
    devices: tuple[str, ...] = ("cpu",)
    behind: str = ""
    budgets: tuple[int, ...] = ()
    streams: int = 1
    free: int | None = None

    @property
    def bytes(self) -> int:
        """Bytes of all tiles in their formats, or of the whole matrix if it is not tiled."""
        return self.formats.bytes(self.layout)

    @property
    def on_disk(self) -> int:
        """Bytes that the run writes to a disk."""
        return self.bytes if self.behind == "disk" else 0

    @property
    def tiles(self) -> int:
        """Number of tiles of the lower triangle."""
        return self.layout.tiles * (self.layout.tiles + 1) // 2

    @property
    def arenas(self) -> tuple[int, ...]:
        """Bytes for tiles in each device's memory, without those for temporary arrays."""
        return tuple(map(self._sizes.arena, self.budgets))

    @property
    def tiles_in_memory(self) -> int:
        """Tiles of the widest format that all devices together hold at the same time."""
        if not self.budgets:
            return self.tiles
        block = self._sizes.block
        return min(self.tiles, sum(arena // block for arena in self.arenas))

    @property
    def _sizes(self):
        return Sizes(self.layout, self.formats, self.streams)

    def traffic(self, *policies: str) -> dict[str, Traffic]:
        """Return the exact number of bytes that will move under each caching policy.

        The time is that of T³/6 updates for T tiles per dimension: for each policy about 1 s for
        T = 50 and 10 s for T = 100.

        Parameters
        ----------
        *policies : str
            "sync": one tile at a time on each device; operands are copied for each update, and the
            accumulator out and back. "async": the same, while other tiles are computed. "v1": the
            accumulator stays. "v2": operands are cached, and the least recently used one is
            evicted. "v3-lru": the same, but a diagonal tile stays until the solves of its column
            are done. "v3", used by runs: the one with the latest next use is evicted. All policies
            if none is named.

        Returns
        -------
        dict of str to Traffic
            Zeros if one memory holds all tiles; empty for a cluster.
        """
        policies = [policy_named(name).name for name in policies or POLICIES]
        if self.behind == "workers":
            return {}
        if not self.behind:
            return dict.fromkeys(policies, Traffic())
        result = {}
        for name in policies:
            streams = policy_named(name).streams or self.streams
            memory = _memory(Sizes(self.layout, self.formats, streams), self.budgets)
            result[name] = volumes(self.layout, self.formats, name, streams=streams, **memory)
        return result

    def play(self, machine: str | Machine | None = None, policy: str = "v3") -> Simulation:
        """Simulate the run on a machine: its time, its bytes and its events.

        Parameters
        ----------
        machine : str or Machine, optional
            A machine, or the name of one of `geomxp.tiles.simulate.MACHINES`: "A100-PCIe",
            "H100-PCIe", "GH200" or "H200-PCIe", with links and rates from data sheets and
            published measurements. Without bounds in the plan its memory counts. If not given,
            this machine (RAM alone or over a disk), which is measured for some seconds.
        policy : str
            See `traffic`.

        Returns
        -------
        Simulation
            `plots.timeline` draws its `events`.

        Raises
        ------
        InvalidInput
            If the machine or the policy is unknown, or this machine cannot be measured.
        NotEnoughMemory
            If the memory of the machine is too small.
        """
        policy_named(policy)
        if machine is None:
            machine = self._this_machine()
            if not self.behind:
                return simulate(machine, self.layout, self.formats, "in core")
        if isinstance(machine, str):
            machine = _named(machine)
        streams = policy_named(policy).streams or machine.streams
        sizes = Sizes(self.layout, self.formats, streams)
        given = self.budgets or (machine.memory,) * len(self.devices)
        memory = _memory(sizes, [sizes.bounded(budget) for budget in given])
        return simulate(machine, self.layout, self.formats, policy, **memory)

    def _this_machine(self):
        """Measure this machine."""
        if self.devices != ("cpu",) or self.behind not in ("", "disk"):
            raise InvalidInput(
                "only RAM, alone or over a disk, can be measured on this machine: give `machine`, "
                f"one of: {', '.join(MACHINES)}."
            )
        forms = tuple(sorted({"fp64", "fp32", *self.formats.counts()}))
        return replace(measured_machine(self.layout.tile, forms), streams=self.streams)

    def to_dict(self) -> Document:
        """Return the plan without its traffic, for JSON."""
        return {
            "n": self.layout.n,
            "tile": self.layout.tile,
            "tiles": self.tiles,
            "tiles_in_memory": self.tiles_in_memory,
            "formats": self.formats.counts(),
            "bytes": self.bytes,
            "bytes_on_disk": self.on_disk,
            "devices": list(self.devices),
            "behind": self.behind,
            "budgets": list(self.budgets),
            "streams": self.streams,
            "free": self.free,
        }

    def __repr__(self) -> str:
        behind = f" over {self.behind}" * bool(self.behind)
        return (
            f"<MemoryPlan for {self.layout.n:,} locations: {self.tiles:,} tiles of "
            f"{self.layout.tile:,} rows, {human_bytes(self.bytes)}, on "
            f"{', '.join(self.devices)}{behind}>"
        )

    def __str__(self) -> str:
        layout, size = self.layout, human_bytes(self.bytes)
        tiles = ", ".join(f"{count:,} {name}" for name, count in self.formats.counts().items())
        free = "" if self.free is None else f"; {human_bytes(self.free)} free"
        lines = [f"Covariance matrix of {layout.n:,} locations", ""]
        if layout.tiles == 1:
            form = self.formats[0, 0].name.upper()
            lines.append(
                f"  one matrix       {size} in {form}, in the memory of {self._where}{free}"
            )
            return "\n".join(lines)
        if layout.joined:
            tiles = f"{tiles}; adjacent cells of one format form a block"
        lines += [
            f"  {'cells' if layout.joined else 'tiles'}            {self.tiles:,} of "
            f"{layout.tile:,} rows: {tiles}",
            f"  all of them      {size}, {self._home}{free}",
        ]
        if self.budgets:
            held = f"{self.tiles_in_memory:,} tiles at a time, {self.streams} in work on each"

            lines.append(f"  memory bound     {human_bytes(sum(self.budgets))}: {held}")
            lines.append(f"  moves            {self._moves()}")
        return "\n".join(lines)

    @property
    def _where(self):
        return " and ".join(self.devices)

    @property
    def _home(self):
        """Storage of all tiles, in words."""
        return STORAGE_IN_WORDS.get(self.behind, f"in the memory of {self._where}")

    def _moves(self):
        """Return the traffic in words, if it can be counted quickly."""
        if self.layout.tiles > MOST_COUNTED_TILES:
            return "not counted for this many tiles; traffic() counts them, slowly"
        return str(self.traffic("v3")["v3"])


def _memory(sizes, budgets):
    """Return the arguments of `simulate` and `volumes` that describe the memory."""
    arenas = tuple(map(sizes.arena, budgets))
    width = sizes.panel_width(min(arenas), len(arenas))
    return {"memory": arenas, "devices": len(arenas), "width": width}


def _named(machine):
    if machine not in MACHINES:
        near = did_you_mean(machine, MACHINES)
        raise InvalidInput(
            f"`machine` must be one of: {', '.join(MACHINES)}. Got {machine!r}.{near}"
        )
    return MACHINES[machine]


@cache
def measured_machine(tile, forms):
    """Measure this machine once per process; see `simulate.measured`."""
    return measured(tile, forms=forms)
