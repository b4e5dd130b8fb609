"""What a factorization will need and move, told before it runs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from shutil import disk_usage
from tempfile import gettempdir
from typing import TYPE_CHECKING

from ..benchmarks.machines import MACHINES, Machine, measured
from ..benchmarks.schedule_model import Simulation, simulate, volumes
from ..errors import InvalidInput, NotEnoughMemory, did_you_mean
from ..linalg.mixed import LARGEST_ON_GPU, splits
from ..linalg.precision import PrecisionMap
from ..runtime.dask import Crew, address_of, is_cluster
from ..runtime.devices import Device, bytes_of, free_memory, human_bytes, resolve_all, usable_cores
from ..runtime.trace import Traffic
from ..tiles import local
from ..tiles import plan as budgets
from .assemble import Originals
from .dask_factor import ClusterFactor
from .dask_store import OnCluster, Spread
from .dask_store import run as run_on_cluster
from .factor import TileFactor
from .layout import Layout
from .memories import ALIGNMENT, Disk, Gpu, Host, Ram
from .on_gpu import OnGpu
from .out_of_core import OutOfCore, Shared
from .plan import POLICIES, Sizes, policy_named
from .stores import InCore

if TYPE_CHECKING:
    from .._typing import Document

QUICK = 50
"""Tiles per dimension up to which copies are counted within about a second."""


@dataclass(frozen=True)
class MemoryPlan:
    """Where the tiles of one covariance matrix will live, and how much will move.

    Parameters
    ----------
    layout : Layout
        n, tile (rows of a tile) and tiles (per dimension).
    formats : PrecisionMap
        That the run begins with.
    devices : tuple of str
        That compute.
    behind : {"", "disk", "memory", "workers"}
        Where the tiles lie that a device's memory does not hold; "" if one memory holds them all,
        "workers" for a cluster, whose memories hold them.
    budgets : tuple of int
        Bytes of each device's memory, where something is behind it.
    streams : int
        Tiles in work at one time on a device.
    free : int or None
        Bytes that are free where all tiles lie.
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
        """Of all tiles in their formats; of an untiled matrix all of it."""
        return self.formats.bytes(self.layout)

    @property
    def on_disk(self) -> int:
        """Bytes that the run writes to a disk."""
        return self.bytes if self.behind == "disk" else 0

    @property
    def tiles(self) -> int:
        """How many tiles the lower triangle has."""
        return self.layout.tiles * (self.layout.tiles + 1) // 2

    @property
    def rooms(self) -> tuple[int, ...]:
        """Bytes for tiles in each device's memory, less what is needed beside them."""
        return self._rooms(self.budgets, self.streams)

    @property
    def tiles_in_memory(self) -> int:
        """How many tiles of the widest format the devices hold at one time, all of them at most."""
        if not self.budgets:
            return self.tiles
        block = Sizes(self.layout, self.formats).block
        return min(self.tiles, sum(room // block for room in self.rooms))

    def _rooms(self, given, streams):
        beside = budgets.beside(self.layout, self.formats, streams)
        return tuple(budget - beside for budget in given)

    def traffic(self, *policies: str) -> dict[str, Traffic]:
        """Return what will move, to the byte, by what is kept in the fast memory.

        Counting goes through all T³/6 updates of T tiles per dimension: a second for 50, ten for
        100, for each policy.

        Parameters
        ----------
        *policies : str
            "sync", "async": operands come for each update and the accumulator goes and comes back,
            "async" while others compute; "v1": the accumulator stays; "v2": what was read is kept,
            the least recently used gives way; "v3": the one whose next use is the farthest, which
            is what runs do. All if none is named.

        Returns
        -------
        dict of str to Traffic
            Zeros where one memory holds all tiles; of a cluster nothing is known.
        """
        for name in policies:
            policy_named(name)
        policies = policies or tuple(POLICIES)
        if self.behind == "workers":
            return {}
        if not self.behind:
            return dict.fromkeys(policies, Traffic())
        about = self._about(self.rooms, self.streams)
        return {
            name: volumes(self.layout, self.formats, name, streams=self.streams, **about)
            for name in policies
        }

    def play(self, machine: str | Machine | None = None, policy: str = "v3") -> Simulation:
        """Play the run on a machine: how long, how many bytes, and what when.

        Parameters
        ----------
        machine : str or Machine, optional
            Of `geomxp.benchmarks.machines.MACHINES`, by name: "A100-PCIe", "H100-PCIe", "GH200" or
            "H200-PCIe". Links and rates of these are from data sheets and a paper, not measured.
            Its memory counts where the plan has no bounds. If not given this machine, which is
            measured for some seconds: RAM over a disk, or RAM alone.
        policy : str
            See `traffic`.

        Returns
        -------
        Simulation
            Its `events` are for `plots.timeline`.

        Raises
        ------
        InvalidInput
            For an unknown machine or policy, or none where this one cannot be measured.
        NotEnoughMemory
            If the machine's memory is below what can be worked with.
        """
        policy_named(policy)
        if machine is None:
            return self._play_here(policy)
        if isinstance(machine, str):
            machine = _named(machine)
        given = tuple(
            budgets.bounded(budget, self.layout, self.formats, machine.streams)
            for budget in self.budgets or (machine.memory,) * len(self.devices)
        )
        about = self._about(self._rooms(given, machine.streams), machine.streams)
        return simulate(machine, self.layout, self.formats, policy, **about)

    def _play_here(self, policy):
        """Play on this machine, as it is measured."""
        if self.devices != ("cpu",) or self.behind not in ("", "disk"):
            raise InvalidInput(
                "only RAM over a disk is measured here: name a `machine`, one of: "
                f"{', '.join(MACHINES)}."
            )
        forms = tuple(sorted({"fp64", "fp32", *self.formats.counts()}))
        machine = replace(_measured(self.layout.tile, forms), streams=self.streams)
        if not self.behind:
            return simulate(machine, self.layout, self.formats, "in core")
        about = self._about(self.rooms, self.streams)
        return simulate(machine, self.layout, self.formats, policy, **about)

    def _about(self, rooms, streams):
        """Return what a schedule depends on besides the tiles."""
        width = budgets.panel_width(self.layout, self.formats, streams * len(rooms), min(rooms))
        return {"memory": rooms, "devices": len(rooms), "width": width}

    def to_dict(self) -> Document:
        """Return the numbers of the plan, without the traffic."""
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
            f"<MemoryPlan for {self.layout.n:,} places: {self.tiles:,} tiles of "
            f"{self.layout.tile:,} rows, {human_bytes(self.bytes)}, on "
            f"{', '.join(self.devices)}{behind}>"
        )

    def __str__(self) -> str:
        layout, size = self.layout, human_bytes(self.bytes)
        tiles = ", ".join(f"{count:,} {name}" for name, count in self.formats.counts().items())
        free = "" if self.free is None else f"; {human_bytes(self.free)} free"
        lines = [f"Covariance matrix of {layout.n:,} places", ""]
        if layout.tiles == 1:
            lines.append(f"  one matrix       {size} in FP64, in the memory of {self._where}{free}")
            return "\n".join(lines)
        lines += [
            f"  tiles            {self.tiles:,} of {layout.tile:,} rows: {tiles}",
            f"  all of them      {size}, {self._home}{free}",
        ]
        if self.budgets:
            held = f"{self.tiles_in_memory:,} tiles at one time, {self.streams} in work on each"
            lines.append(f"  memory bound     {human_bytes(sum(self.budgets))}: {held}")
            lines.append(f"  moves            {self._moves()}")
        return "\n".join(lines)

    @property
    def _where(self):
        return " and ".join(self.devices)

    @property
    def _home(self):
        """Where all tiles lie, in words."""
        words = {"disk": "on a disk", "memory": "in RAM", "workers": "on a cluster's workers"}
        return words.get(self.behind, f"in the memory of {self._where}")

    def _moves(self):
        """Say what moves, where it is quickly counted."""
        if self.layout.tiles > QUICK:
            return "counted by traffic(), which takes a while for so many tiles"
        return str(self.traffic("v3")["v3"])


def _named(machine):
    if machine not in MACHINES:
        near = did_you_mean(machine, MACHINES)
        raise InvalidInput(
            f"`machine` must be one of: {', '.join(MACHINES)}. Got {machine!r}.{near}"
        )
    return MACHINES[machine]


@cache
def _measured(tile, forms):
    return measured(tile, forms=forms)


# Where a factorization takes place: which devices, how much of which memory, which disk.


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
    from .._version import __version__

    places = hashlib.sha256(places.tobytes()).hexdigest()
    rows = hashlib.sha256(str(formats).encode()).hexdigest()
    about = (model.parameters(), metric, layout.n, layout.tile, formats.scale, splits())
    return f"geomxp {__version__} {about} {places} {rows}"
