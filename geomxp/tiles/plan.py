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

import numpy as np

from ..errors import InvalidInput, NotEnoughMemory
from ..linalg.formats import FP32, FP64
from ..runtime.devices import human_bytes
from .memories import pages


@dataclass(frozen=True)
class Policy:
    """Caching policy of a device's memory.

    Parameters
    ----------
    name : str
    overlapped : bool
        Whether copies run ahead of the computations.
    accumulator_stays : bool
        Whether a tile stays through all its updates; otherwise it is copied out and back for each.
    reuse : {None, "oldest", "farthest"}
        Whether operands are cached. The tile evicted first is the one whose last use is the oldest,
        or the one whose next use is the latest, which the fixed order tells.
    """

    name: str
    overlapped: bool = True
    accumulator_stays: bool = True
    reuse: str | None = None


POLICIES = {
    policy.name: policy
    for policy in (
        Policy("sync", overlapped=False, accumulator_stays=False),
        Policy("async", accumulator_stays=False),
        Policy("v1"),
        Policy("v2", reuse="oldest"),
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
    """A tile that a step reads.

    Parameters
    ----------
    tile : (int, int)
    slot : int
        Its first byte in the arena.
    load : bool
        Whether this step copies it in.
    after : tuple of int
        Steps that must be done before its slot is overwritten.
    """

    tile: tuple
    slot: int
    load: bool
    after: tuple = ()


@dataclass(frozen=True)
class Step:
    """One step of a stream: "original", "update", "solve", "factor" or "write".

    Parameters
    ----------
    number : int
        Position among all steps of the device.
    stream : int
    tile : (int, int)
        The tile whose final value is being computed.
    kind : str
    reads : tuple of Read
    slot, after : int, tuple of int
        Slot of the original or the final tile, and the steps to wait for; see `Read`.
    travels : bool
        Whether the accumulator is copied out and back before this step.
    """

    number: int
    stream: int
    tile: tuple
    kind: str
    reads: tuple = ()
    slot: int = -1
    after: tuple = ()
    travels: bool = False


class Sizes:
    """Bytes of tiles, in the slow memory and in an arena.

    Parameters
    ----------
    layout : Layout
    formats : PrecisionMap
    """

    def __init__(self, layout, formats):
        self.layout, self.formats = layout, formats
        used = {form for row in formats.rows for form in row}
        entries = layout.tile**2
        work = {FP64 if form is FP64 else FP32 for form in used}
        self.unit = pages(min(form.bytes for form in used | work) * entries)
        largest = max(form.bytes for form in used | work)
        self.block = self.unit * self._units(largest * entries)

    def tile(self, i, k):
        """Return the bytes of tile (i, k) in its format."""
        return self.formats[i, k].bytes * self._entries(i, k)

    def accumulator(self, i, k):
        """Return the bytes of the accumulator of tile (i, k), in FP64 or FP32."""
        return (8 if self.formats[i, k] is FP64 else 4) * self._entries(i, k)

    def units(self, form_bytes):
        """Return the units of the arena, 2^m, of a tile with so many bytes per entry."""
        return self._units(form_bytes * self.layout.tile**2)

    def _units(self, count):
        return 1 << max(0, (-(-pages(count) // self.unit) - 1).bit_length())

    def _entries(self, i, k):
        return self.layout.height(i) * self.layout.height(k)


class Plan:
    """The steps of one device, in an order that cannot deadlock.

    Parameters
    ----------
    order : sequence of (int, int)
        All unfinished tiles, each after those that it needs.
    mine : sequence of (int, int)
        The tiles of this device, in the same order.
    layout : Layout
    formats : PrecisionMap
    arena : int
        Bytes for tiles.
    policy : Policy
    streams : int
        Tiles computed at the same time.

    Raises
    ------
    NotEnoughMemory
        If the arena is too small for one step of each stream.
    """

    def __init__(self, order, mine, layout, formats, arena, policy, streams):
        self.mine, self.formats, self.policy, self.streams = list(mine), formats, policy, streams
        self.sizes = Sizes(layout, formats)
        blocks, least = arena // self.sizes.block, least_blocks(streams)
        if blocks < least:
            raise NotEnoughMemory(
                f"{streams} tiles of {layout.tile} rows in work at one time need "
                f"{human_bytes(least * self.sizes.block)}. Got {human_bytes(arena)}."
            )
        # steps whose tiles stay cached, so that copies for later steps need not wait for them
        self.ahead = min(4 * streams, max(1, (blocks - streams - 1) // (8 if policy.reuse else 2)))
        self._arena = _Arena(blocks * self.sizes.block // self.sizes.unit, streams)
        self._where = np.full((layout.tiles, layout.tiles), -1, dtype=np.int64)
        for position, (i, k) in enumerate(order):
            self._where[i, k] = position
        self._own = np.full_like(self._where, -1)
        for i, k in self.mine:
            self._own[i, k] = self._where[i, k]
        self._uses, self._resident, self._recent = {}, {}, deque()

    def __iter__(self):
        accumulators = {}
        for number, (stream, tile, kind, tiles) in enumerate(self._sequence()):
            self._let_go(number - self.ahead)
            reads, slot, after, travels = (), 0, (), False
            if kind == "original":
                units = self.sizes.units(8 if self.formats[tile] is FP64 else 4)
                slot, after = self._claim(units, number, stream)
                accumulators[tile] = slot, units
            elif kind == "write":
                slot, after = self._write(number, stream, tile, *accumulators.pop(tile))
            else:
                reads = tuple(self._read(number, stream, tile, other) for other in tiles)
                if not self.policy.reuse:
                    for read in reads:
                        self._arena.free(*self._resident.pop(read.tile))
                # the first step finds the accumulator where it was generated
                first = tiles[0][1] == 0 if kind == "update" else tile[1] == 0
                travels = not (self.policy.accumulator_stays or first)
            place = slot * self.sizes.unit
            yield Step(number, stream, tile, kind, reads, place, after, travels)

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
            units = self.sizes.units(self.formats[tile].bytes)
            slot, after = self._claim(units, number, stream)
            self._resident[tile] = slot, units
        self._use(number, stream, task, tile)
        return Read(tile, self._resident[tile][0] * self.sizes.unit, load, after)

    def _write(self, number, stream, tile, slot, units):
        """Return the slot of the final tile: the accumulator's, or its own."""
        after = ()
        if self.formats[tile] is not FP64:
            accumulator = slot, units
            units = self.sizes.units(self.formats[tile].bytes)
            slot, after = self._claim(units, number, stream)
            self._arena.hold(*accumulator, None, number, stream)
            self._arena.free(*accumulator)
        self._resident[tile] = slot, units
        self._use(number, stream, tile, tile)
        # the copy out overlaps with the stream's next steps
        self._arena.hold(slot, units, tile, number, self.streams)
        if not self.policy.reuse:
            self._arena.free(*self._resident.pop(tile))
        return slot, after

    def _claim(self, units, number, stream):
        """Return a slot for a tile, and the steps that used it."""
        slot, after, gone = self._arena.choose(units)
        for tile in gone:
            self._arena.free(*self._resident.pop(tile))
        self._arena.hold(slot, units, None, number, stream)
        return slot, after

    def _use(self, number, stream, task, tile):
        self._arena.hold(*self._resident[tile], tile, number, stream)
        self._recent.append((number, task, tile))

    def _let_go(self, number):
        """Allow the tiles of a step to be evicted from now on, by their priorities."""
        while self._recent and self._recent[0][0] <= number:
            used, task, tile = self._recent.popleft()
            if tile in self._resident and self._arena.last_use(self._resident[tile][0]) == used:
                self._arena.rank(*self._resident[tile], self._rank(used, task, tile))

    def _rank(self, used, task, tile):
        """Return the eviction priority of a cached tile."""
        if self.policy.reuse == "oldest":
            return _Arena.KEPT - used
        if tile not in self._uses:
            self._uses[tile] = self._positions(*tile)
        later = self._uses[tile]
        place = np.searchsorted(later, self._where[task], side="right")
        if place == len(later):
            return _Arena.FREE - used
        return float(later[place]) + tile[1] / len(self._where)

    def _positions(self, i, j):
        """Return the positions in the order at which this device reads tile (i, j), ascending."""
        if i == j:
            found = self._own[i + 1 :, i]
        else:
            found = np.concatenate((self._own[i, j + 1 : i + 1], self._own[i + 1 :, i]))
        return np.sort(found[found >= 0])


def least_blocks(streams):
    """Return the number of largest tiles that a device must hold: one step for each stream."""
    return streams + 3


class _Arena:
    """Slots of 2^m units and their owners; the slot of highest eviction priority is taken first.

    Each unit records the last step of each stream, and of the writer, that used it.
    """

    FREE, KEPT, BUSY = 1e18, 1e15, -1.0

    def __init__(self, units, streams):
        self._rank = np.full(units, self.FREE)
        self._used = np.full((streams + 1, units), -1, dtype=np.int64)
        self._owner = [None] * units

    def choose(self, units):
        """Return the next slot, the steps that used it last, and the tiles in it."""
        slot = int(self._rank.reshape(-1, units).min(axis=1).argmax()) * units
        part = slice(slot, slot + units)
        assert self._rank[part].min() > self.BUSY, "the plan's arena has no room for one step"
        after = tuple(sorted({int(step) for step in self._used[:, part].flat} - {-1}))
        return slot, after, {tile for tile in self._owner[part] if tile is not None}

    def hold(self, slot, units, tile, number, stream):
        """Record that a step of a stream uses a slot, and that a tile owns it."""
        part = slice(slot, slot + units)
        self._owner[part] = [tile] * units
        self._rank[part], self._used[stream, part] = self.BUSY, number

    def free(self, slot, units):
        """Free a slot."""
        part = slice(slot, slot + units)
        self._owner[part] = [None] * units
        self._rank[part] = self.FREE - self._used[:, part].max()

    def rank(self, slot, units, value):
        """Set the eviction priority of a slot."""
        self._rank[slot : slot + units] = value

    def last_use(self, slot):
        """Return the last step that used a slot."""
        return self._used[:, slot].max()


# Budgets: how much fast memory a factorization needs and can use.


def beside(layout, formats, streams):
    """Return the bytes that streams need beside their tiles, for operands in other formats.

    Parameters
    ----------
    layout : Layout
    formats : PrecisionMap
    streams : int
        Tiles computed at the same time.
    """
    largest = 8 * layout.tile**2
    return streams * (largest if formats.all_fp64 else 4 * largest)


def least(layout, formats, streams):
    """Return the smallest sufficient budget of a device; parameters are those of `beside`."""
    sizes = Sizes(layout, formats)
    return least_blocks(streams) * sizes.block + beside(layout, formats, streams)


def check(budget, layout, formats, streams):
    """Raise `NotEnoughMemory` if a budget is too small."""
    needed = least(layout, formats, streams)
    if budget < needed:
        raise NotEnoughMemory(
            f"tiles of {layout.tile} rows, {streams} in work at one time, need at least "
            f"{human_bytes(needed)}. Got {human_bytes(budget)}: allow more, or use smaller tiles."
        )


def useful(needed):
    """Return the largest useful fast memory for tiles of so many bytes."""
    return 2 * needed + 2**28


def bounded(budget, layout, formats, streams):
    """Return a budget, reduced to what is useful: more would only cost management.

    Raises
    ------
    NotEnoughMemory
        If the budget is too small.
    """
    check(budget, layout, formats, streams)
    most = max(useful(formats.bytes(layout)), least(layout, formats, streams))
    return min(budget, most)


def panel_width(layout, formats, streams, room):
    """Return the number of columns of a panel whose operands stay in the fast memory.

    Parameters
    ----------
    layout : Layout
    formats : PrecisionMap
    streams : int
        Streams of all devices together.
    room : int
        Bytes for tiles of the device with the fewest.
    """
    row = 2 * formats.bytes(layout) / layout.tiles
    rows = int(0.9 * room / max(1, row)) - streams
    return max(1, min(rows, layout.tiles))
