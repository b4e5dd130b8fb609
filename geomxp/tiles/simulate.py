"""Simulate the static schedule on a described machine: time, bytes moved, events.

The plan is the one that a store carries out (`plan`), so the bytes are those of a run. Times follow
from the links and the rates of the machine.
"""

import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import cycle
from numbers import Integral

import numpy as np

from ..covariance.matern import Matern
from ..errors import InvalidInput
from ..linalg import blas, mixed
from ..linalg.formats import FORMATS, FP64, Tile, quantize
from ..linalg.mixed import arithmetic
from ..runtime.devices import blas_threads, usable_cores
from ..runtime.trace import Event, Meter, Traffic, from_zero
from ..runtime.turns import working_for
from .assemble import Originals
from .cholesky import deal, left_looking
from .layout import Layout
from .memories import Disk, aligned, pages
from .plan import Plan, Sizes, policy_named

# Machines.
#
# The numbers of GPUs are not measured by us. Memories, links and the peaks below FP64 are from data
# sheets. The FP64 rate of products is one that others measured on an H200 NVL, 59.0 TFLOP/s. It
# stands for all Hopper GPUs: the H100 of the paper exceeds the 51 of the PCIe card's data sheet. An
# A100 has the same share of its peak, 0.88. Sources are in experiments/h200/constants.csv. No
# rate comes from the papers that simulations are compared with. Rates of solves, factors and
# generation are guesses, which matter little for large matrices.

MEASURED_TILES = 12
"""Different tiles in a measured product: more than the caches hold."""


@dataclass(frozen=True)
class Machine:
    """A device with a fast memory over a larger and slower one.

    Parameters
    ----------
    name : str
    memory : int
        Bytes of the fast memory.
    into, out_of : float
        Bytes per second from the slow memory, and to it.
    latency : float
        Seconds before a copy.
    rates : dict of str to float
        Operations per second of products in each arithmetic format, of one unit.
    solve, factor : float
        Operations per second of FP64 triangular solves and Cholesky factors of a tile.
    generation : float
        Entries of Σ per second, of one unit.
    units : int
        Units that compute in parallel: cores, or 1 for a GPU, whose kernels use all of it.
    streams : int
        Tiles computed at the same time.
    overhead : float
        Seconds of a kernel beside its operations.
    remote : float, optional
        Bytes per second between the device and the slow memory beside another one, in each
        direction; as from and to its own if not given.
    """

    name: str
    memory: int
    into: float
    out_of: float
    latency: float
    rates: dict = field(hash=False)
    solve: float
    factor: float
    generation: float
    units: int = 1
    streams: int = 4
    overhead: float = 1e-5
    remote: float | None = None


def _gpu(name, memory, link, fp64, fp32, tf32, fp16, fp8):
    # large products reach about 0.7 of the peaks of the low formats
    low = {"tf32": 0.7 * tf32, "bf16": 0.7 * fp16, "fp16": 0.7 * fp16, "fp8": 0.7 * fp8}
    rates = {"fp64": fp64 * 1e12, "fp32": 0.9 * fp32 * 1e12} | {k: v * 1e12 for k, v in low.items()}
    return Machine(
        *(name, int(memory * 1e9), link * 1e9, link * 1e9, 1e-5, rates),
        *(0.5 * fp64 * 1e12, 0.1 * fp64 * 1e12, 2e10),
    )


MACHINES = {
    machine.name: machine
    for machine in (
        _gpu("A100-PCIe", 80, 25, 17.2, 19.5, 156, 312, 312),
        _gpu("H100-PCIe", 80, 55, 59.0, 51, 378, 756, 1513),
        _gpu("GH200", 96, 400, 59.0, 67, 494, 989, 1979),
        _gpu("H200-PCIe", 141, 55, 59.0, 67, 494, 989, 1979),
    )
}


# Simulation.


@dataclass(frozen=True)
class Simulation:
    """Result of a simulated run.

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
        """Operations per second."""
        return self.flops / self.seconds


SLOW_MEMORY_PLACES = ("cyclic", "one")
"""Where the slow memory of a block row may be; see `simulate`."""


def simulate(
    machine, layout, formats, policy="v3", *, memory=None, devices=1, width=1, placed="cyclic"
):
    """Simulate a factorization on a machine.

    Parameters
    ----------
    machine : Machine
    layout : Layout
    formats : PrecisionMap
    policy : str
        See `geomxp.tiles.plan.POLICIES`; "in core" keeps all tiles in the fast memory.
    memory : int or sequence of int, optional
        Bytes of each device for tiles; the machine's memory if not given.
    devices : int
        Number of devices, each with its own links.
    width : int
        Columns of a panel; see `left_looking`.
    placed : {"cyclic", "one"}
        Whether a block row is in the slow memory beside the device that computes it, or all are
        beside the first device. Devices do not share links, nor the bandwidth of a slow memory.

    Returns
    -------
    Simulation

    Raises
    ------
    NotEnoughMemory
        If the memory has no room for one step of each stream.
    InvalidInput
        If the policy or the placement is unknown.
    """
    if placed not in SLOW_MEMORY_PLACES:
        raise InvalidInput(
            f"`placed` must be one of: {', '.join(SLOW_MEMORY_PLACES)}. Got {placed!r}."
        )
    in_core = policy == "in core"
    if not in_core and (streams := policy_named(policy).streams):
        machine = replace(machine, streams=streams)
    sizes = Sizes(layout, formats, machine.streams)
    if in_core:
        policy, memory = "v3", (len(layout.lower) + 10 * machine.streams) * sizes.block
    plans = _plans(sizes, policy, memory or machine.memory, devices, width)
    players = [
        _Player(machine, sizes, not in_core, plan, number, len(plans) if placed == "cyclic" else 1)
        for number, plan in enumerate(plans)
    ]
    final, waiting = {}, list(players)
    while waiting:
        # each device as far as the tiles of the others allow
        waiting = [player for player in waiting if not player.play(final)]
    events = from_zero([event for player in players for event in player.events])
    meter = Meter()
    for event in events:
        if event.bytes:
            meter.copied(event.kind, event.bytes)
    seconds = max(player.last for player in players)
    return Simulation(seconds, layout.n**3 / 3, meter.read(), events)


def volumes(layout, formats, policy="v3", *, memory, devices=1, width=1, streams=1):
    """Return the traffic of a factorization without simulating its times.

    Parameters
    ----------
    layout, formats, policy, memory, devices, width
        See `simulate`.
    streams : int
        Tiles computed at the same time on each device.

    Returns
    -------
    Traffic
    """
    meter, sizes = Meter(), Sizes(layout, formats, policy_named(policy).streams or streams)
    for plan in _plans(sizes, policy, memory, devices, width):
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


def _plans(sizes, policy, memory, devices, width):
    """Return the plan of each device."""
    arenas = (memory,) * devices if isinstance(memory, Integral) else memory
    order = list(left_looking(sizes.layout.tiles, width, sizes.streams * devices))
    return [
        Plan(order, mine, sizes, arena, policy_named(policy))
        for mine, arena in zip(deal(order, devices), arenas, strict=True)
    ]


class _Player:
    """A device that executes its plan; block row i is in slow memory i mod `memories`."""

    def __init__(self, machine, sizes, copies, plan, number, memories):
        self.machine, self.sizes, self.copies, self.number = machine, sizes, copies, number
        self.memories = memories
        self.policy, self._steps = plan.policy, iter(plan)
        self.events, self.last, self._next = [], 0.0, next(self._steps, None)
        self._loader = self._in = self._out = 0.0
        self._stream = [0.0] * machine.streams
        self._unit = [0.0] * machine.units
        self._done, self._ready = {}, {}

    def play(self, final):
        """Continue until a tile of another device is missing; return whether all is done."""
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
        """Return the end of a copy; each direction makes one copy after the other."""
        if not self.copies:
            return earliest
        machine = self.machine
        inwards = way in ("in", "return")
        near = machine.remote is None or tile[0] % self.memories == self.number
        rate = (machine.into if inwards else machine.out_of) if near else machine.remote
        begin = max(earliest, self._in if inwards else self._out)
        if inwards:
            begin = max(begin, self._loader) if way == "in" else begin
            self._in = end = begin + machine.latency + count / rate
        else:
            self._out = end = begin + machine.latency + count / rate
        self._note(way, tile, step.stream, begin, end, count)
        return end

    def _note(self, kind, tile, stream, begin, end, count=0):
        form = self.sizes.formats[tile].name
        self.events.append(Event(kind, tile, form, self.number, stream, begin, end, count))

    def _seconds(self, step):
        """Return the seconds of a kernel."""
        (i, k), machine, layout = step.tile, self.machine, self.sizes.layout
        m, n = layout.shape(i, k)
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
            # a different tile, even if of the same format: not a square
            right = Tile(self.sizes.formats[step.reads[-1].tile], None)
        form = arithmetic(_EMPTY_FP64 if fine else _EMPTY_FP32, left, right)
        # FP64 updates of a diagonal tile compute one triangle; others do so on CPUs without matrix
        # units only, and are counted whole
        flops = m * n * inner * (1 if i == k and form is FP64 else 2)
        return machine.overhead + flops / machine.rates[form.name]


_EMPTY_FP64, _EMPTY_FP32 = np.empty(0), np.empty(0, np.float32)


# This machine, measured.


def measured(tile=512, memory=2_000_000_000, directory=None, forms=("fp64",)):
    """Measure this machine: RAM over a disk, all its cores at once.

    Parameters
    ----------
    tile : int
        Rows of a tile: rates depend on it.
    memory : int
        Bytes that tiles may take.
    directory : path, optional
        Of the scratch file.
    forms : sequence of str
        Formats of the arithmetic.

    Returns
    -------
    Machine
    """
    cores = usable_cores()
    rng = np.random.default_rng(0)
    # more tiles than the caches hold, as in a factorization
    tiles = [np.asfortranarray(rng.standard_normal((tile, tile))) for _ in range(MEASURED_TILES)]
    a = tiles[0]
    spd = np.asfortranarray(a @ a.T + tile * np.eye(tile))
    lower = quantize(np.linalg.cholesky(spd).copy(order="F"), FP64)
    originals = Originals(
        Matern(1.0, 0.1, 0.5), rng.random((2 * tile, 2)), "euclidean", Layout(2 * tile, tile)
    )

    def product(form):
        operands = [quantize(values, form) for values in tiles]
        pairs = cycle(zip(operands, operands[1:] + operands[:1], strict=True))
        return lambda c: mixed.gemm(c, [next(pairs)], form)

    with blas_threads(0):
        rates = {}
        for name in forms:
            work = np.float64 if name == "fp64" else np.float32
            c = np.zeros((tile, tile), work, "F")
            rates[name] = 2 * tile**3 / _seconds(product(FORMATS[name]), c, cores, 60)
        solve = tile**3 / _seconds(lambda c: mixed.trsm(c, lower), a, cores)
        factor = tile**3 / 3 / _seconds(lambda c: mixed.potrf(c), spd, cores)
        entries = tile**2 / _seconds(lambda c: originals.tile(1, 0, out=c), a, cores)
        with _computing(product(FP64), tile, cores):
            into, out_of = _disk_rates(tile, directory)
    return Machine(
        *("this machine", memory, into, out_of, 1e-4, rates, solve, factor, entries),
        *(cores, cores, 1e-4),
    )


def _seconds(work, array, cores, rounds=15):
    """Return the seconds of one call, with all cores at it: the best of three medians.

    Other load on the machine makes calls slower, never faster.
    """
    return min(_median_seconds(work, array, cores, rounds) for _ in range(3))


def _median_seconds(work, array, cores, rounds):
    copies = [[array.copy(order="F") for _ in range(rounds)] for _ in range(cores)]

    @working_for
    def one(mine):
        seconds = []
        with blas.one_core():
            for copy in mine:
                start = time.perf_counter()
                work(copy)
                seconds.append(time.perf_counter() - start)
        return seconds

    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(cores) as pool:
        return float(np.median([s for mine in pool.map(one, copies) for s in mine[1:]]))


@contextmanager
def _computing(work, tile, cores):
    """Keep all cores at products, as they are while tiles move."""
    go_on = [True]

    @working_for
    def busy():
        c = np.zeros((tile, tile), order="F")
        with blas.one_core():
            while go_on:
                work(c)

    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(cores) as pool:
        for _ in range(cores):
            pool.submit(busy)
        try:
            yield
        finally:
            go_on.clear()


def _disk_rates(tile, directory, count=64):
    """Return the bytes a second of reading and of writing tiles."""
    layout, data = Layout(count * tile, tile), aligned(pages(8 * tile**2))
    data[:] = 1
    disk, rates = Disk(layout, 0, directory), []
    try:
        for move in (disk.write, disk.read):
            start = time.perf_counter()
            for k in range(count):
                move((k, 0), data)
            rates.append(count * len(data) / (time.perf_counter() - start))
    finally:
        disk.close()
    return rates[1], rates[0]
