"""What brings one tile after the other to its final value on a device: a store to `finish`.

A lane takes the steps that its device's plan gives it, waits until what a step reads is there, and
says when it has done with it.
"""

from collections import deque
from contextlib import ExitStack, contextmanager
from threading import Condition, Thread

import numpy as np

from ..linalg.formats import FP32, FP64, Tile, named, quantize
from ..linalg.formats_gpu import Exponents
from ..runtime.trace import Meter
from ..tiles import on_gpu as stored_on_gpu
from ..tiles import plan as budgets
from .layout import deal, left_looking
from .memories import aligned
from .plan import Plan, Sizes, policy_named
from .stores import Stopped, casts_of, in_format, original


class Absent:
    """An array whose numbers are elsewhere."""

    ndim = property(lambda self: len(self.shape))

    def __init__(self, dtype, shape, order="F"):
        self.dtype, self.shape, self.order = np.dtype(dtype), tuple(shape), order
        self.nbytes = int(np.prod(self.shape)) * self.dtype.itemsize

    def over(self, data):
        """Return the array over these bytes."""
        return data[: self.nbytes].view(self.dtype).reshape(self.shape, order=self.order)


class Lane:
    """What brings one tile after the other of a device to its final value: a store, as it sees it.

    Parameters
    ----------
    device : OutOfCore
    store : Shared
    stream : int
    """

    def __init__(self, device, store, stream):
        self.device, self.store, self.stream = device, store, stream
        self.memory = device.memory
        self.steps, self.hungry = deque(), False
        self._step = self._begin = self._slot = None
        self._left, self._tiles = 0, {}
        self._away = store.layout.tiles, device.number * device.streams + stream

    @property
    def on_gpu(self):
        """Whether the lane works on a GPU, on a thread that is kept."""
        return self.memory.index is not None

    @property
    def formats(self):
        """The formats of all tiles."""
        return self.store.formats

    @property
    def layout(self):
        """The layout of all tiles."""
        return self.store.layout

    @property
    def error(self):
        """What has failed, anywhere."""
        return self.store.error

    def fail(self, error):
        """Stop all lanes."""
        self.store.fail(error)

    def tiles(self):
        """Yield the tiles that the plan gives to this lane."""
        while (step := self._peek()) is not None:
            yield step.tile

    def inside(self):
        """Enclose what this lane does."""
        return self.memory.lane()

    def original(self, i, k):
        """Return A_ik, generated where it will be worked on."""
        step = self._take("original", (i, k))
        layout, form = self.store.layout, self.store.formats[i, k]
        shape = layout.height(i), layout.height(k)
        dtype = np.dtype(np.float64 if form is FP64 else np.float32)
        self._slot = step.slot
        out = self.memory.array(step.slot, shape, dtype)
        return original(self.device.originals, self.store.formats, i, k, out=out)

    def final(self, i, k):
        """Return L_ik, when it is there."""
        if not self._left:
            self._advance()
        self._left -= 1
        return self._tiles[i, k]

    def write(self, i, k, array):
        """Keep L_ik in its format."""
        if i == k:
            # seen from here the last update and the factorization are one
            self._end("factor")
            self._take("factor", (i, k))
            self._end(None)
        step = self._take("write", (i, k))
        put = self._put_on_gpu if self.on_gpu else self._put
        about = put(i, k, array, step.slot)
        self._end()
        moment = self.memory.mark()
        self.device.ready[i, k] = about, moment
        self.device.out.append((step, about, moment))
        self.store.tell()
        if not self.store.policy.overlapped:
            self.store.wait_for(lambda: step.number in self.device.done)

    def _put(self, i, k, array, slot):
        """Write a finished tile in its format into a slot; return what is known of it."""
        tile = in_format(self.store.formats, i, k, array)
        place = self.memory.array(slot, tile.values.shape, tile.values.dtype)
        if tile.form is not FP64:
            place[...] = tile.values
        return Tile(tile.form, Absent(place.dtype, place.shape), tile.exponent)

    def _put_on_gpu(self, i, k, array, slot):
        """As `_put`, on a GPU; the CPU waits at most once, for the exponents."""
        formats = self.store.formats
        form, found = formats[i, k], Exponents(1)

        def room(order):
            return self.memory.array(slot, array.shape, form.dtype, order)

        tile = stored_on_gpu.in_format(found, 0, formats, i, k, array, room)
        if form is FP32:
            room("F")[...] = array
        exponent = as_fp16 = 0
        if stored_on_gpu.is_looked_at(formats, i, k):
            (largest,), ((exponent, as_fp16),), _ = found.fetch()
            stored_on_gpu.check(largest, form)
        self.store.exponents_as_fp16[i, k] = int(as_fp16)
        order = "F" if tile.values.flags.f_contiguous else "C"
        return Tile(form, Absent(form.dtype, array.shape, order), int(exponent))

    def _peek(self):
        if not self.steps:
            self.hungry = True
            self.store.tell()
            self.store.wait_for(lambda: self.steps)
            self.hungry = False
        return self.steps[0]

    def _take(self, kind, tile):
        """Go on to the next step, which must be this one, when all that it reads is there."""
        self._end()
        step = self._peek()
        assert (step.kind, step.tile) == (kind, tile), f"{step} is not {kind} of {tile}"
        self.steps.popleft()
        self.store.tell()
        ready = self.device.ready
        if step.travels:
            self._travel(tile)
        for read in step.reads:
            if read.tile not in ready:
                self.store.wait_for(lambda read=read: read.tile in ready)
        moments = [ready[read.tile][1] for read in step.reads]
        self.memory.wait(moments + [self.device.done[number] for number in step.after])
        self._step, self._begin = step, self.memory.mark()
        return step

    def _end(self, kind=""):
        """Let others have what the step before has used; None as its kind leaves it untraced."""
        step, self._step = self._step, None
        if step is None:
            return
        end = self.memory.mark()
        if kind is not None:
            kind = kind or step.kind
            self.device.trace(self.store, kind, step.tile, self.stream, self._begin, end)
        if step.kind != "write":
            self.device.done[step.number] = end
            self.store.tell()

    def _advance(self):
        """Go on to the step that reads next."""
        self._end()
        step = self._peek()
        self._take(step.kind, step.tile)
        self._tiles = {read.tile: self._tile(read) for read in step.reads}
        self._left = 2 if step.kind == "update" else 1

    def _tile(self, read):
        about, _ = self.device.ready[read.tile]
        numbers = about.values
        values = self.memory.array(read.slot, numbers.shape, numbers.dtype, numbers.order)
        tile = Tile(about.form, values, about.exponent)
        as_fp16 = self.store.exponents_as_fp16.get(read.tile) if self.on_gpu else None
        return readable(self.store.formats, *read.tile, tile, as_fp16)

    def _travel(self, tile):
        """Let the accumulator go out and come back, for policies that have no room for it."""
        count = Sizes(self.store.layout, self.store.formats).accumulator(*tile)
        store, memory = self.store, self.memory
        for copy, kind in ((memory.store, "leave"), (memory.load, "return")):
            begin, end = copy(self._away, self._slot, count, [memory.mark()])
            memory.wait([end])
            store.meter.copied(kind, count)
            self.device.trace(store, kind, tile, self.stream, begin, end, count)


def readable(formats, i, k, tile, as_fp16=None):
    """Return tile (i, k) as it is read: with the casts that its readers need.

    Parameters
    ----------
    formats : PrecisionMap
    i, k : int
    tile : Tile
    as_fp16 : int, optional
        On a GPU: the exponent of the tile's numbers in FP16.

    Returns
    -------
    Tile
        Of the same values.
    """
    if as_fp16 is not None:
        wanted = stored_on_gpu.wanted_casts(formats, i, k)

        def make(form):
            return stored_on_gpu.cast_of(tile, form, as_fp16)
    else:
        wanted = casts_of(formats, i, k, tile.values) if tile.form is FP64 else {}

        def make(form):
            return quantize(tile.values, form, split=wanted[form])

    if not wanted:
        return tile
    return Tile(tile.form, tile.values, tile.exponent, _OnDemand(wanted, make))


class _OnDemand(dict):
    """The casts of a tile, each made when it is read: the same bits as kept ones."""

    def __init__(self, wanted, make):
        super().__init__()
        self._wanted, self._make = wanted, make

    def get(self, form, default=None):
        if form not in self and form in self._wanted:
            self[form] = self._make(form)
        return super().get(form, default)


# Stores whose tiles live in a slow memory, and are worked on in the small fast ones of devices.
#
# Each device carries out a plan that is fixed before the run (`plan`): a loader thread copies in
# what the next steps read, the lanes compute, a writer thread copies out what is final. What a
# tile's value is depends on none of that.


QUEUED = 64
"""Steps that are handed to a lane before it has come to them."""


class Shared:
    """The tiles of one matrix in a slow memory, block row i being the work of device i mod p.

    Parameters
    ----------
    formats : PrecisionMap
    devices : sequence of OutOfCore
        With the same slow memory.
    policy : str
        See `geomxp.tiles.plan.POLICIES`.
    width : int, optional
        Columns of a panel, see `schedule.left_looking`; as many as the memory allows if not given.
    trace : Trace, optional

    Attributes
    ----------
    meter : Meter
        Counts bytes that go in and out.
    """

    def __init__(self, formats, devices, policy="v3", width=None, trace=None):
        self.formats, self.devices, self.policy = formats, devices, policy_named(policy)
        self.originals, self.slow = devices[0].originals, devices[0].memory.slow
        self.layout = self.originals.layout
        self.width, self.trace, self.meter = width, trace, Meter()
        self.changed, self.error = Condition(), None
        self.about, self.events, self.promoted = {}, {}, set()
        # on GPUs: exponents of the tiles' numbers in FP16
        self.exponents_as_fp16 = {}
        self._recover()

    def _recover(self):
        """Take over what a killed run of the same problem has left."""
        for what, *entry in self.slow.found:
            if what == "promote":
                # the tiles of that row were about to be written anew
                self.formats = self.formats.promote_row(*entry)[0]
                self.promoted.add(entry[0])
                for j in range(entry[0]):
                    self.about.pop((entry[0], j), None)
            else:
                i, k, form, exponent, dtype, shape = entry
                tile = Tile(named(form), Absent(dtype, shape), exponent)
                if self.slow.holds((i, k), tile.values.nbytes):
                    self.about[i, k] = tile

    @property
    def bytes(self):
        """What the final tiles hold, in the slow memory."""
        return sum(tile.values.nbytes for tile in self.about.values())

    @property
    def moved(self):
        """The `Traffic` so far: bytes that went in and out."""
        return self.meter.read()

    @property
    def peak_bytes(self):
        """The same; see `moved` for what went to and fro."""
        return self.bytes

    def order(self):
        """Return the tiles in the order in which they are finished."""
        streams = sum(device.streams for device in self.devices)
        return left_looking(self.layout.tiles, self.panel_width(), streams)

    def panel_width(self):
        """Return how many columns a panel has, for the rows that it reads again to stay."""
        if self.width is not None:
            return self.width
        room = min(device.arena(self) for device in self.devices)
        streams = sum(device.streams for device in self.devices)
        return budgets.panel_width(self.layout, self.formats, streams, room)

    def has(self, i, k):
        """Return whether tile (i, k) is final."""
        return (i, k) in self.about

    def final(self, i, k):
        """Return L_ik, read from the slow memory into RAM."""
        about = self.about[i, k]
        data = aligned(about.values.nbytes)
        self.slow.read((i, k), data)
        return Tile(about.form, about.values.over(data), about.exponent)

    def forget(self, i, k):
        """Give tile (i, k) up: it will be computed again."""
        self.about.pop((i, k), None)

    def close(self):
        """Give all tiles up, and remove what holds them."""
        self.slow.close()

    def leave(self):
        """Give all tiles up, and leave what a later run can go on from."""
        self.slow.leave()

    def promote(self, k):
        """Give block row k finer formats; return how many tiles that changes."""
        self.formats, changed = self.formats.promote_row(k)
        self.slow.note(["promote", k], at_once=True)
        return changed

    @contextmanager
    def lanes(self, tiles, threads=None):
        """Open lanes over tiles that are not final yet; see `tiles.local.run`."""
        self.error = None
        hands = deal(tiles, len(self.devices))
        with ExitStack() as stack:
            lanes = []
            for number, (device, mine) in enumerate(zip(self.devices, hands, strict=True)):
                if mine:
                    lanes += stack.enter_context(device.working(self, number, tiles, mine))
            try:
                yield lanes
            except Stopped:
                pass
            except BaseException as error:
                self.fail(error)
                raise
        if self.error:
            raise self.error

    def wait_for(self, condition):
        """Wait until a condition holds, or something has failed."""
        with self.changed:
            self.changed.wait_for(lambda: condition() or self.error)
            if self.error:
                raise Stopped

    def tell(self):
        """Let all who wait look again."""
        with self.changed:
            self.changed.notify_all()

    def fail(self, error):
        """Stop all lanes, loaders and writers."""
        with self.changed:
            self.error = self.error or error
            self.changed.notify_all()

    def written(self, key, tile, event):
        """Take note of a tile that is in the slow memory."""
        with self.changed:
            self.events[key] = event
            self.about[key] = tile
            self.changed.notify_all()
        (i, k), values = key, tile.values
        entry = ["tile", i, k, tile.form.name, tile.exponent, values.dtype.name, values.shape]
        column = all((r, k) in self.about for r in range(k, self.layout.tiles))
        self.slow.note(entry, at_once=column)


class OutOfCore:
    """One device: a fast memory with a budget, and the threads that keep it supplied.

    Parameters
    ----------
    originals : Originals
        Generates tiles where this device works.
    memory : Ram or Gpu
        Of `geomxp.tiles.memories`.
    budget : int
        Bytes of the fast memory: for tiles, and for what the computations need beside them.
    streams : int
        Tiles in work at one time: a core each on a CPU.
    """

    def __init__(self, originals, memory, budget, streams):
        self.originals, self.memory, self.budget, self.streams = originals, memory, budget, streams

    def arena(self, store):
        """Return the bytes for tiles."""
        return self.budget - budgets.beside(store.layout, store.formats, self.streams)

    def least(self, store):
        """Return the smallest budget with which this device can work."""
        return budgets.least(store.layout, store.formats, self.streams)

    def check(self, store):
        """Raise `NotEnoughMemory` if the budget is below the least."""
        budgets.check(self.budget, store.layout, store.formats, self.streams)

    @contextmanager
    def working(self, store, number, order, mine):
        """Open this device's lanes for its tiles."""
        self.check(store)
        arena, self.number = self.arena(store), number
        plan = Plan(*(order, mine, store.layout, store.formats, arena, store.policy, self.streams))
        self.memory.open(arena)
        self.done, self.ready, self.out = {}, {}, deque()
        lanes = [Lane(self, store, stream) for stream in range(self.streams)]
        workers = [
            Thread(target=_guarded, args=(store, work), name=f"{name}-{number}")
            for name, work in (
                ("loader", lambda: self._load(store, plan, lanes)),
                ("writer", lambda: self._write(store)),
            )
        ]
        for worker in workers:
            worker.start()
        try:
            yield [(lane, lane.tiles()) for lane in lanes]
        except BaseException as error:
            store.fail(error)
            raise
        finally:
            self.out.append(None)
            store.tell()
            for worker in workers:
                worker.join()
            self.memory.close()

    def _load(self, store, plan, lanes):
        """Copy in what each step reads, as far ahead as the slots allow."""
        for step in plan:
            lane = lanes[step.stream]
            if store.policy.overlapped:
                store.wait_for(lambda lane=lane: len(lane.steps) < QUEUED)
            else:
                store.wait_for(lambda lane=lane: lane.hungry)
            self._wait_for(store, step.after)
            for read in step.reads:
                if read.load:
                    self._load_tile(store, step, read)
            lane.steps.append(step)
            store.tell()
        for lane in lanes:
            lane.steps.append(None)
        store.tell()

    def _load_tile(self, store, step, read):
        store.wait_for(lambda: read.tile in store.about)
        about, waits = store.about[read.tile], self._wait_for(store, read.after)
        if read.tile in store.events:
            waits.append(store.events[read.tile])
        begin, end = self.memory.load(read.tile, read.slot, about.values.nbytes, waits)
        self.ready[read.tile] = about, end
        store.meter.copied("in", about.values.nbytes)
        self.trace(store, "in", read.tile, step.stream, begin, end, about.values.nbytes)

    def _wait_for(self, store, steps):
        """Wait until some steps are done; return the moments at which they are."""
        if steps:
            store.wait_for(lambda: all(step in self.done for step in steps))
        return [self.done[step] for step in steps]

    def _write(self, store):
        """Copy out what is final."""
        while True:
            # also when something has failed: what is final is kept
            with store.changed:
                store.changed.wait_for(lambda: self.out)
            entry = self.out.popleft()
            if entry is None:
                return
            step, about, moment = entry
            count = about.values.nbytes
            begin, end = self.memory.store(step.tile, step.slot, count, [moment])
            store.meter.copied("out", count)
            store.written(step.tile, about, end)
            self.trace(store, "out", step.tile, step.stream, begin, end, count)
            self.done[step.number] = end
            store.tell()

    def trace(self, store, kind, tile, stream, begin, end, count=0):
        """Note an event, where somebody watches."""
        if store.trace is not None:
            form = store.formats[tile].name
            store.trace.add(kind, tile, form, self, stream, begin, end, count)


def _guarded(store, work):
    try:
        work()
    except Stopped:
        pass
    except BaseException as error:
        store.fail(error)
