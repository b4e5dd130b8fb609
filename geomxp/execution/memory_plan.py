"""What a factorization will need and move, told before it runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from ..errors import InvalidInput, did_you_mean
from ..precision.map import PrecisionMap
from ..tiles import budgets
from ..tiles.layout import Layout
from ..tiles.plan import POLICIES, Sizes, policy_named
from .devices import human_bytes
from .machines import MACHINES, Machine, measured
from .simulate import Simulation, simulate, volumes
from .trace import Traffic

if TYPE_CHECKING:
    from ..annotations import Document

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
            Of `geomxp.execution.machines.MACHINES`, by name: "A100-PCIe", "H100-PCIe", "GH200" or
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
