"""The static schedule played on a described machine: how long, how many bytes, and what when.

The plan is the one that a store carries out (`tiles.plan`), so that the volumes are those of a
run, to the byte. Times follow from the machine's links and rates.
"""

from dataclasses import dataclass
from numbers import Integral

import numpy as np

from ..linalg.formats import FP64, Tile
from ..linalg.mixed import arithmetic
from ..runtime.trace import Event, Meter, Traffic, from_zero
from ..tiles.layout import deal, left_looking
from ..tiles.plan import Plan, Sizes, policy_named


@dataclass(frozen=True)
class Simulation:
    """What a simulated run did.

    Parameters
    ----------
    seconds : float
    flops : float
        n³/3.
    moved : Traffic
    events : list of Event
    """

    seconds: float
    flops: float
    moved: Traffic
    events: list

    def __repr__(self):
        return f"<Simulation of {self.flops:.3g} operations: {self.seconds:.3g} s, {self.moved}>"

    @property
    def rate(self):
        """Operations a second, n³/3 of them."""
        return self.flops / self.seconds


def simulate(machine, layout, formats, policy="v3", *, memory=None, devices=1, width=1):
    """Play a factorization on a machine.

    Parameters
    ----------
    machine : Machine
    layout : Layout
    formats : PrecisionMap
    policy : str
        Of `geomxp.tiles.plan.POLICIES`; "in core" if all tiles shall stay in the fast memory.
    memory : int or sequence of int, optional
        Bytes of each device for tiles; the machine's if not given.
    devices : int
        Each with its own links.
    width : int
        Columns of a panel; see `left_looking`.

    Returns
    -------
    Simulation

    Raises
    ------
    NotEnoughMemory
        If the memory has no room for one step of each stream.
    """
    in_core = policy == "in core"
    sizes = Sizes(layout, formats)
    if in_core:
        tiles = layout.tiles * (layout.tiles + 1) // 2
        policy, memory = "v3", (tiles + 10 * machine.streams) * sizes.block
    about = (memory or machine.memory, devices, width, machine.streams)
    players = [
        _Player(machine, sizes, not in_core, plan, number)
        for number, plan in enumerate(_plans(layout, formats, policy, *about))
    ]
    final, waiting = {}, list(players)
    while waiting:
        # each as far as the tiles of the others let it
        waiting = [player for player in waiting if not player.play(final)]
    events = from_zero([event for player in players for event in player.events])
    meter = Meter()
    for event in events:
        if event.bytes:
            meter.copied(event.kind, event.bytes)
    seconds = max(player.last for player in players)
    return Simulation(seconds, layout.n**3 / 3, meter.read(), events)


def volumes(layout, formats, policy="v3", *, memory, devices=1, width=1, streams=1):
    """Return the traffic of a factorization, without playing its times.

    Parameters
    ----------
    layout, formats, policy, memory, devices, width :
        As of `simulate`.
    streams : int
        Tiles in work at one time on each device.

    Returns
    -------
    Traffic
    """
    meter, sizes = Meter(), Sizes(layout, formats)
    for plan in _plans(layout, formats, policy, memory, devices, width, streams):
        for step in plan:
            for read in step.reads:
                if read.load:
                    meter.copied("in", sizes.tile(*read.tile))
            if step.travels:
                for way in ("leave", "return"):
                    meter.copied(way, sizes.accumulator(*step.tile))
            if step.kind == "write":
                meter.copied("out", sizes.tile(*step.tile))
    return meter.read()


def _plans(layout, formats, policy, memory, devices, width, streams):
    """Return the plan of each device."""
    arenas = (memory,) * devices if isinstance(memory, Integral) else memory
    order = list(left_looking(layout.tiles, width, streams * devices))
    return [
        Plan(order, mine, layout, formats, arena, policy_named(policy), streams)
        for mine, arena in zip(deal(order, devices), arenas, strict=True)
    ]


class _Player:
    """One device that follows its plan."""

    def __init__(self, machine, sizes, copies, plan, number):
        self.machine, self.sizes, self.copies, self.number = machine, sizes, copies, number
        self.policy, self._steps = plan.policy, iter(plan)
        self.events, self.last, self._next = [], 0.0, next(self._steps, None)
        self._loader = self._in = self._out = 0.0
        self._stream = [0.0] * machine.streams
        self._unit = [0.0] * machine.units
        self._done, self._ready = {}, {}

    def play(self, final):
        """Go on until a tile of another device is missing; return whether all is done."""
        while self._next is not None:
            step = self._next
            if any(read.load and read.tile not in final for read in step.reads):
                return False
            self._play(step, final)
            self._next = next(self._steps, None)
        return True

    def _play(self, step, final):
        stream, begin = step.stream, self._stream[step.stream]
        if not self.policy.overlapped:
            self._loader = max(self._loader, begin)
        self._loader = max([self._loader, *(self._done[s] for s in step.after)])
        for read in step.reads:
            if read.load:
                earliest = [final[read.tile], *(self._done[s] for s in read.after)]
                count = self.sizes.tile(*read.tile)
                self._loader = self._copy("in", step, read.tile, max(earliest), count)
                self._ready[read.tile] = self._loader
        if step.travels:
            count = self.sizes.accumulator(*step.tile)
            for way in ("leave", "return"):
                begin = self._copy(way, step, step.tile, begin, count)
        begin = max([begin, self._loader, *(self._ready[r.tile] for r in step.reads)])
        unit = stream if len(self._unit) == len(self._stream) else int(np.argmin(self._unit))
        begin = max(begin, self._unit[unit])
        end = begin + self._seconds(step)
        self._note(step.kind, step.tile, stream, begin, end)
        self._stream[stream] = self._unit[unit] = end
        self._done[step.number] = self._ready[step.tile] = end
        self.last = max(self.last, end)
        if step.kind == "write":
            count = self.sizes.tile(*step.tile)
            final[step.tile] = self._done[step.number] = self._copy(
                "out", step, step.tile, end, count
            )
            self.last = max(self.last, final[step.tile])
            if not self.policy.overlapped:
                self._stream[stream] = final[step.tile]

    def _copy(self, way, step, tile, earliest, count):
        """Return when a copy ends; each way takes one after the other."""
        if not self.copies:
            return earliest
        machine = self.machine
        inwards = way in ("in", "return")
        begin = max(earliest, self._in if inwards else self._out)
        if inwards:
            begin = max(begin, self._loader) if way == "in" else begin
            self._in = end = begin + machine.latency + count / machine.into
        else:
            self._out = end = begin + machine.latency + count / machine.out_of
        self._note(way, tile, step.stream, begin, end, count)
        return end

    def _note(self, kind, tile, stream, begin, end, count=0):
        form = self.sizes.formats[tile].name
        self.events.append(Event(kind, tile, form, self.number, stream, begin, end, count))

    def _seconds(self, step):
        """Return how long a kernel takes."""
        (i, k), machine, layout = step.tile, self.machine, self.sizes.layout
        m, n = layout.height(i), layout.height(k)
        fine = self.sizes.formats[i, k] is FP64
        # FP32 takes half as long as FP64
        half = 1.0 if fine else 0.5
        if step.kind == "original":
            return machine.overhead + m * n / machine.generation
        if step.kind == "solve":
            return machine.overhead + half * m * n * n / machine.solve
        if step.kind == "factor":
            return machine.overhead + half * n**3 / 3 / machine.factor
        if step.kind == "write":
            return machine.overhead
        inner = layout.height(step.reads[0].tile[1])
        left = right = Tile(self.sizes.formats[step.reads[0].tile], None)
        if i > k:
            # another tile, perhaps of the same format: no square
            right = Tile(self.sizes.formats[step.reads[-1].tile], None)
        form = arithmetic(_DOUBLE if fine else _SINGLE, left, right)
        # a diagonal tile's updates in FP64 are half as long
        flops = m * n * inner * (1 if i == k and form is FP64 else 2)
        return machine.overhead + flops / machine.rates[form.name]


_DOUBLE, _SINGLE = np.empty(0), np.empty(0, np.float32)
