"""Memory plan: where the tiles of a matrix will be kept and how much will move, before the run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from ..errors import InvalidInput, did_you_mean
from ..linalg.precision import PrecisionMap
from ..runtime.devices import human_bytes
from ..runtime.trace import Traffic
from . import plan as budgets
from .layout import Layout
from .plan import POLICIES, Sizes, policy_named
from .simulate import MACHINES, Machine, Simulation, measured, simulate, volumes

if TYPE_CHECKING:
    from .._typing import Document

QUICK = 50
"""Tiles per dimension up to which copies are counted within about a second."""

WHERE = {"disk": "on a disk", "memory": "in RAM", "workers": "on a cluster's workers"}


@dataclass(frozen=True)
class MemoryPlan:
    """Where the tiles of one covariance matrix will be kept, and how much will move.

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
        return self._arenas(self.budgets, self.streams)

    @property
    def tiles_in_memory(self) -> int:
        """Tiles of the widest format that all devices together hold at the same time."""
        if not self.budgets:
            return self.tiles
        block = Sizes(self.layout, self.formats).block
        return min(self.tiles, sum(arena // block for arena in self.arenas))

    def _arenas(self, given, streams):
        beside = budgets.beside(self.layout, self.formats, streams)
        return tuple(budget - beside for budget in given)

    def traffic(self, *policies: str) -> dict[str, Traffic]:
        """Return the exact number of bytes that will move under each caching policy.

        The time is that of T³/6 updates for T tiles per dimension: for each policy about 1 s for
        T = 50 and 10 s for T = 100.

        Parameters
        ----------
        *policies : str
            "sync": operands are copied for each update, and the accumulator out and back. "async":
            the same, while other tiles are computed. "v1": the accumulator stays. "v2": operands
            are cached, and the least recently used one is evicted. "v3", used by runs: the one with
            the latest next use is evicted. All policies if none is named.

        Returns
        -------
        dict of str to Traffic
            Zeros if one memory holds all tiles; empty for a cluster.
        """
        for name in policies:
            policy_named(name)
        policies = policies or tuple(POLICIES)
        if self.behind == "workers":
            return {}
        if not self.behind:
            return dict.fromkeys(policies, Traffic())
        about = self._about(self.arenas, self.streams)
        return {
            name: volumes(self.layout, self.formats, name, streams=self.streams, **about)
            for name in policies
        }

    def play(self, machine: str | Machine | None = None, policy: str = "v3") -> Simulation:
        """Simulate the run on a machine: its time, its bytes and its events.

        Parameters
        ----------
        machine : str or Machine, optional
            A machine, or the name of one of `geomxp.tiles.simulate.MACHINES`: "A100-PCIe",
            "H100-PCIe", "GH200" or "H200-PCIe", with links and rates from data sheets and a paper.
            Without bounds in the plan its memory counts. If not given, this machine (RAM alone or
            over a disk), which is measured for some seconds.
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
            return self._play_measured(policy)
        if isinstance(machine, str):
            machine = _named(machine)
        given = tuple(
            budgets.bounded(budget, self.layout, self.formats, machine.streams)
            for budget in self.budgets or (machine.memory,) * len(self.devices)
        )
        about = self._about(self._arenas(given, machine.streams), machine.streams)
        return simulate(machine, self.layout, self.formats, policy, **about)

    def _play_measured(self, policy):
        """Simulate the run on this machine, with measured rates."""
        if self.devices != ("cpu",) or self.behind not in ("", "disk"):
            raise InvalidInput(
                "only RAM, alone or over a disk, can be measured on this machine: give `machine`, "
                f"one of: {', '.join(MACHINES)}."
            )
        forms = tuple(sorted({"fp64", "fp32", *self.formats.counts()}))
        machine = replace(_measured(self.layout.tile, forms), streams=self.streams)
        if not self.behind:
            return simulate(machine, self.layout, self.formats, "in core")
        about = self._about(self.arenas, self.streams)
        return simulate(machine, self.layout, self.formats, policy, **about)

    def _about(self, arenas, streams):
        """Return the arguments of `simulate` that describe the memory."""
        width = budgets.panel_width(self.layout, self.formats, streams * len(arenas), min(arenas))
        return {"memory": arenas, "devices": len(arenas), "width": width}

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
        """Where all tiles are kept, in words."""
        return WHERE.get(self.behind, f"in the memory of {self._where}")

    def _moves(self):
        """Return the traffic in words, if it can be counted quickly."""
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
