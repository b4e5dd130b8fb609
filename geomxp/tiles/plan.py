"""Plan of a device: the fixed order of the work, turned into copies and slots before the run.

A device keeps tiles in the slots of one arena. The plan goes through its work step by step. For
each step it says which tiles the step reads and from which slots, whether they must be copied in
first, and which earlier steps must be done before a slot is overwritten. `out_of_core` carries the
plan out and `simulate` simulates it: both move the same bytes. The policies are those of Ren et
al., "Accelerating mixed-precision out-of-core Cholesky factorization with static task scheduling"
(2024), section IV.
"""

from collections import deque
from dataclasses import dataclass
from math import prod

import numpy as np

from ..errors import InvalidInput, NotEnoughMemory
from ..linalg.formats import FP64
from ..runtime.devices import human_bytes
from .cholesky import working_format
from .memories import pages


@dataclass(frozen=True)
class Policy:
    """Caching policy of a device's memory."""

    name: str
    # copies run ahead of the computations
    overlapped: bool = True
    # a tile stays through all its updates; otherwise it is copied out and back for each
    accumulator_stays: bool = True
    # evicts the tile whose last use is the "oldest", or whose next use is the "farthest", which
    # the fixed order tells; None: operands are not cached
    reuse: str | None = None
    # keeps a diagonal tile until the solves of its column are done
    keeps_diagonal: bool = False
    # tiles computed at the same time on a device; as many as it has streams if None
    streams: int | None = None


POLICIES = {
    policy.name: policy
    for policy in (
        Policy("sync", overlapped=False, accumulator_stays=False, streams=1),
        Policy("async", accumulator_stays=False),
        Policy("v1"),
        Policy("v2", reuse="oldest"),
        # as published
        Policy("v3-lru", reuse="oldest", keeps_diagonal=True),
        # keeps a diagonal tile during the solves of its column: its next use is always near
        Policy("v3", reuse="farthest"),
    )
}


def policy_named(name):
    """Return a policy of `POLICIES`."""
    if name not in POLICIES:
        raise InvalidInput(f"`policy` must be one of: {', '.join(POLICIES)}. Got {name!r}.")
    return POLICIES[name]


@dataclass(frozen=True)
class Read:
    """A tile that a step reads from a slot, given by its first byte in the arena."""

    tile: tuple
    slot: int
    # whether this step copies the tile in, once the steps `after` no longer use its slot
    load: bool
    after: tuple = ()


@dataclass(frozen=True)
class Step:
    """One step of a stream: "original", "update", "solve", "factor" or "write"."""

    # position among all steps of the device
    number: int
    stream: int
    # the tile whose final value is being computed
    tile: tuple
    kind: str
    reads: tuple = ()
    # slot of the original or the final tile, and the steps that must be done before it is written
    slot: int = -1
    after: tuple = ()
    # whether the accumulator is copied out and back before this step
    travels: bool = False


class Sizes:
    """Bytes of tiles, and of the memory of a device that computes several at the same time."""

    def __init__(self, layout, formats, streams=1):
        self.layout, self.formats, self.streams = layout, formats, streams
        used = {form for row in formats.rows for form in row}
        widths = {form.bytes for form in used | {working_format(form) for form in used}}
        self.unit = pages(min(widths) * layout.tile**2)
        self.block = self.unit * self.units(max(widths))

    def tile(self, i, k):
        """Return the bytes of tile (i, k) in its format."""
        return self.formats[i, k].bytes * prod(self.layout.shape(i, k))

    def accumulator(self, i, k):
        """Return the bytes of the accumulator of tile (i, k), in FP64 or FP32."""
        return working_format(self.formats[i, k]).bytes * prod(self.layout.shape(i, k))

    def units(self, width):
        """Return the units of the arena, 2^m, of a tile with this many bytes per entry."""
        count = pages(width * self.layout.tile**2)
        return 1 << max(0, (-(-count // self.unit) - 1).bit_length())

    @property
    def beside(self):
        """Bytes in addition to the arena, for operands in other formats."""
        largest = 8 * self.layout.tile**2
        return self.streams * (largest if self.formats.all_fp64 else 4 * largest)

    def arena(self, budget):
        """Return the bytes of a budget that are available for tiles."""
        return budget - self.beside

    @property
    def least(self):
        """Smallest sufficient budget of a device, in bytes."""
        return least_blocks(self.streams) * self.block + self.beside

    def check(self, budget):
        """Raise `NotEnoughMemory` if the budget of a device is too small."""
        if budget < self.least:
            rows = int(0.9 * self.layout.tile * (budget / self.least) ** 0.5)
            smaller = f", or use smaller tiles (--tile {rows}, tile={rows})" if rows >= 8 else ""
            raise NotEnoughMemory(
                f"tiles of {self.layout.tile} rows, {self.streams} in work at one time, need at "
                f"least {human_bytes(self.least)}. Got {human_bytes(budget)}: allow more with "
                f"--memory or --device-memory (memory=, device_memory=){smaller}."
            )

    def bounded(self, budget):
        """Return a checked budget, reduced to what is useful: more would only cost management."""
        self.check(budget)
        return min(budget, max(useful(self.formats.bytes(self.layout)), self.least))

    def panel_width(self, arena, devices):
        """Return the number of columns of a panel whose operands stay in the smallest arena."""
        row = 2 * self.formats.bytes(self.layout) / self.layout.tiles
        rows = int(0.9 * arena / max(1, row)) - self.streams * devices
        return max(1, min(rows, self.layout.tiles))


def least_blocks(streams):
    """Return the number of largest tiles that a device must hold: one step for each stream."""
    return streams + 3


def useful(needed):
    """Return the largest useful fast memory for tiles of this many bytes."""
    return 2 * needed + 2**28


class Plan:
    """The steps of one device, in an order that cannot deadlock.

    `order` has all unfinished tiles, each after those that it needs; `mine` those of this device.

    Raises
    ------
    NotEnoughMemory
        If the arena, in bytes, is too small for one step of each stream.
    """

    def __init__(self, order, mine, sizes, arena, policy):
        self.mine, self.sizes, self.policy = list(mine), sizes, policy
        self.formats, self.streams = sizes.formats, sizes.streams
        layout, streams = sizes.layout, sizes.streams
        blocks, least = arena // sizes.block, least_blocks(streams)
        if blocks < least:
            raise NotEnoughMemory(
                f"{streams} tiles of {layout.tile} rows in work at one time need "
                f"{human_bytes(least * sizes.block)}. Got {human_bytes(arena)}."
            )
        # steps whose tiles stay cached, so that copies for later steps need not wait for them
        self.ahead = min(4 * streams, max(1, (blocks - streams - 1) // (8 if policy.reuse else 2)))
        self._arena = _Arena(blocks * sizes.block // sizes.unit, streams)
        self._where = np.full((layout.tiles, layout.tiles), -1, dtype=np.int64)
        for position, (i, k) in enumerate(order):
            self._where[i, k] = position
        self._own = np.full_like(self._where, -1)
        for i, k in self.mine:
            self._own[i, k] = self._where[i, k]
        self._uses, self._resident, self._recent = {}, {}, deque()

    def __iter__(self):
        accumulators = {}
        for number, (stream, tile, kind, operands) in enumerate(self._sequence()):
            self._let_go(number - self.ahead)
            reads, slot, after, travels = (), slice(0, 0), (), False
            if kind == "original":
                width = working_format(self.formats[tile]).bytes
                slot, after = self._claim(width, number, stream)
                accumulators[tile] = slot
            elif kind == "write":
                slot, after = self._write(number, stream, tile, accumulators.pop(tile))
            else:
                reads = tuple(self._read(number, stream, tile, other) for other in operands)
                if not self.policy.reuse:
                    for read in reads:
                        self._arena.free(self._resident.pop(read.tile))
                # the first step finds the accumulator where it was generated
                first = operands[0][1] == 0 if kind == "update" else tile[1] == 0
                travels = not (self.policy.accumulator_stays or first)
            yield Step(number, stream, tile, kind, reads, self._byte(slot), after, travels)

    def _byte(self, slot):
        return slot.start * self.sizes.unit

    def _sequence(self):
        """Yield (stream, tile, kind, tiles read), the streams in turn.

        A tile is read only after all earlier tiles of this device are written. Then nothing that
        this device waits for can wait for a later step of this device.
        """
        waiting = iter(self.mine)
        work = [self._task(next(waiting, None)) for _ in range(self.streams)]
        heads = [next(task, None) for task in work]
        while any(head is not None for head in heads):
            # position in the order of the earliest unfinished tile
            least = min(self._where[head[0]] for head in heads if head is not None)
            for stream, head in enumerate(heads):
                if head is None or any(self._where[other] >= least for other in head[2]):
                    continue
                yield stream, *head
                heads[stream] = next(work[stream], None)
                if heads[stream] is None:
                    work[stream] = self._task(next(waiting, None))
                    heads[stream] = next(work[stream], None)
                    least = min((self._where[h[0]] for h in heads if h is not None), default=0)

    @staticmethod
    def _task(tile):
        """Yield the steps of one tile: (tile, kind, tiles read)."""
        if tile is None:
            return
        i, k = tile
        yield tile, "original", ()
        for j in range(k):
            yield tile, "update", ((i, j),) if i == k else ((i, j), (k, j))
        yield (tile, "factor", ()) if i == k else (tile, "solve", ((k, k),))
        yield tile, "write", ()

    def _read(self, number, stream, task, tile):
        load, after = tile not in self._resident, ()
        if load:
            self._resident[tile], after = self._claim(self.formats[tile].bytes, number, stream)
        self._use(number, stream, task, tile)
        return Read(tile, self._byte(self._resident[tile]), load, after)

    def _write(self, number, stream, tile, accumulator):
        """Return the slot of the final tile: the accumulator's, or its own."""
        slot, after = accumulator, ()
        if self.formats[tile] is not FP64:
            slot, after = self._claim(self.formats[tile].bytes, number, stream)
            self._arena.hold(accumulator, None, number, stream)
            self._arena.free(accumulator)
        self._resident[tile] = slot
        self._use(number, stream, tile, tile)
        # the copy out overlaps with the stream's next steps
        self._arena.hold(slot, tile, number, self.streams)
        if not self.policy.reuse:
            self._arena.free(self._resident.pop(tile))
        return slot, after

    def _claim(self, width, number, stream):
        """Return a slot for a tile of this many bytes per entry, and the steps that used it."""
        slot, after, evicted = self._arena.choose(self.sizes.units(width))
        for tile in evicted:
            self._arena.free(self._resident.pop(tile))
        self._arena.hold(slot, None, number, stream)
        return slot, after

    def _use(self, number, stream, task, tile):
        self._arena.hold(self._resident[tile], tile, number, stream)
        self._recent.append((number, task, tile))

    def _let_go(self, number):
        """Allow the tiles of a step to be evicted from now on, by their priorities."""
        while self._recent and self._recent[0][0] <= number:
            used, task, tile = self._recent.popleft()
            if tile in self._resident and self._arena.last_use(self._resident[tile]) == used:
                self._arena.rank(self._resident[tile], self._rank(used, task, tile))

    def _rank(self, used, task, tile):
        """Return the eviction priority of a cached tile."""
        following = None
        if self.policy.reuse == "farthest" or (self.policy.keeps_diagonal and tile[0] == tile[1]):
            following = self._next_use(task, tile)
        if self.policy.reuse == "oldest":
            return _Arena.KEPT - used if following is None else _Arena.LAST
        if following is None:
            return _Arena.FREE - used
        return float(following) + tile[1] / len(self._where)

    def _next_use(self, task, tile):
        """Return the position at which a cached tile is read next; None if it is not."""
        if tile not in self._uses:
            self._uses[tile] = self._positions(*tile)
        later = self._uses[tile]
        following = np.searchsorted(later, self._where[task], side="right")
        return None if following == len(later) else later[following]

    def _positions(self, i, j):
        """Return the positions in the order at which this device reads tile (i, j), ascending."""
        if i == j:
            positions = self._own[i + 1 :, i]
        else:
            positions = np.concatenate((self._own[i, j + 1 : i + 1], self._own[i + 1 :, i]))
        return np.sort(positions[positions >= 0])


class _Arena:
    """Slots of 2^m units and their owners; the slot of highest eviction priority is taken first.

    A slot is a slice of units. Each unit records the last step of each stream, and of the writer,
    that used it.
    """

    FREE, KEPT, LAST, BUSY = 1e18, 1e15, 0.0, -1.0

    def __init__(self, units, streams):
        self._rank = np.full(units, self.FREE)
        self._used = np.full((streams + 1, units), -1, dtype=np.int64)
        self._owner = [None] * units

    def choose(self, units):
        """Return the next slot, the steps that used it last, and the tiles in it."""
        first = int(self._rank.reshape(-1, units).min(axis=1).argmax()) * units
        slot = slice(first, first + units)
        assert self._rank[slot].min() > self.BUSY, "the plan's arena has no room for one step"
        after = tuple(sorted({int(step) for step in self._used[:, slot].flat} - {-1}))
        return slot, after, {tile for tile in self._owner[slot] if tile is not None}

    def hold(self, slot, tile, number, stream):
        """Record that a step of a stream uses a slot, and that a tile owns it."""
        self._owner[slot] = [tile] * (slot.stop - slot.start)
        self._rank[slot], self._used[stream, slot] = self.BUSY, number

    def free(self, slot):
        """Free a slot."""
        self._owner[slot] = [None] * (slot.stop - slot.start)
        self._rank[slot] = self.FREE - self._used[:, slot].max()

    def rank(self, slot, priority):
        """Set the eviction priority of a slot."""
        self._rank[slot] = priority

    def last_use(self, slot):
        """Return the last step that used a slot."""
        return self._used[:, slot].max()
