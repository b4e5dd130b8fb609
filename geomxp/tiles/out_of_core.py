"""Out-of-core store: tiles live in a slow memory and are computed in the fast ones of devices.

Each device carries out a plan that is fixed before the run (`plan`): a loader thread copies in the
operands of the next steps, one worker per stream computes, and a writer thread copies finished
tiles out. The bits of a tile do not depend on the timing.
"""

from collections import deque
from contextlib import ExitStack, contextmanager
from threading import Condition, Thread

import numpy as np

from ..linalg.formats import FP32, FP64, Tile, named
from ..linalg.gpu import Exponents
from ..runtime.trace import Meter
from ..runtime.turns import working_for
from . import on_gpu
from .cholesky import Stopped, deal, left_looking, working_format
from .memories import aligned
from .plan import Plan, Sizes, policy_named
from .stores import Store, in_format, original, readable

READERS = 2
"""Threads that read tiles ahead of a solve, one each."""

MOST_QUEUED_STEPS = 64
"""Steps that wait in the queue of a worker at most."""


class Absent:
    """Data type, shape and order of an array that is in the slow memory."""

    ndim = property(lambda self: len(self.shape))

    def __init__(self, dtype, shape, order="F"):
        self.dtype, self.shape, self.order = np.dtype(dtype), tuple(shape), order
        self.nbytes = int(np.prod(self.shape)) * self.dtype.itemsize

    def over(self, data):
        """Return these bytes as the array."""
        return data[: self.nbytes].view(self.dtype).reshape(self.shape, order=self.order)


class StreamWorker:
    """Worker that executes one stream of a device's plan; presents the plan as a store."""

    # loader and writer need the same lock, which an interrupted thread might leave locked: Ctrl-C
    # interrupts the main thread, so tiles are computed on another one
    locks = True

    def __init__(self, device, stream):
        self.device, self.store, self.stream = device, device.store, stream
        self.formats, self.layout = self.store.formats, self.store.layout
        self.memory, self.inside, self.fail = device.memory, device.memory.active, self.store.fail
        self.on_gpu = self.memory.index is not None
        self.steps, self.hungry = deque(), False
        self._step = self._begin = self._slot = None
        self._unread, self._tiles = 0, {}
        # key of the accumulator in the slow memory while it is swapped out
        self._away = self.layout.tiles, device.number * device.streams + stream

    @property
    def error(self):
        """The first error of any thread, or None."""
        return self.store.error

    def tiles(self):
        """Yield the tiles that the plan assigns to this worker."""
        while (step := self._peek()) is not None:
            yield step.tile

    def original(self, i, k):
        """Return A_ik, generated in its slot of the fast memory."""
        step = self._take("original", (i, k))
        self._slot, dtype = step.slot, working_format(self.formats[i, k]).dtype
        out = self.memory.array(step.slot, self.layout.shape(i, k), dtype)
        return original(self.device.originals, self.formats, i, k, out=out)

    def final(self, i, k):
        """Return L_ik once it is in the fast memory."""
        if not self._unread:
            self._advance()
        self._unread -= 1
        return self._tiles[i, k]

    def write(self, i, k, array):
        """Keep L_ik in its format."""
        if i == k:
            # in the trace the last update and the factorization are one event
            self._end("factor")
            self._take("factor", (i, k))
            self._end(None)
        step = self._take("write", (i, k))
        put = self._put_on_gpu if self.on_gpu else self._put
        header = put(i, k, array, step.slot)
        self._end()
        moment = self.memory.mark()
        self.device.ready[i, k] = header, moment
        self.device.out.append((step, header, moment))
        self.store.tell()
        if not self.store.policy.overlapped:
            self.store.wait_for(lambda: step.number in self.device.done)

    def _put(self, i, k, array, slot):
        """Write a finished tile in its format into a slot; return it without its values."""
        tile = in_format(self.formats, i, k, array)
        place = self.memory.array(slot, tile.values.shape, tile.values.dtype)
        if tile.form is not FP64:
            place[...] = tile.values
        return Tile(tile.form, Absent(place.dtype, place.shape), tile.exponent)

    def _put_on_gpu(self, i, k, array, slot):
        """Do the same on a GPU; the CPU waits at most once, for the exponents."""
        formats, exponents = self.formats, Exponents(1)
        form = formats[i, k]

        def room(shape, dtype, order):
            return self.memory.array(slot, shape, dtype, order)

        tile = on_gpu.in_format(exponents, 0, formats, i, k, array, room)
        if tile.values is array and form is FP32:
            room(array.shape, array.dtype, "F")[...] = array
        exponent = as_fp16 = 0
        if on_gpu.needs_magnitude(formats, i, k):
            (largest,), ((exponent, as_fp16),), _ = exponents.fetch()
            on_gpu.check(largest, form)
        self.store.exponents_as_fp16[i, k] = int(as_fp16)
        values = tile.values
        order = "F" if values.flags.f_contiguous else "C"
        return Tile(form, Absent(values.dtype, values.shape, order), int(exponent))

    def _peek(self):
        if not self.steps:
            self.hungry = True
            self.store.tell()
            self.store.wait_for(lambda: self.steps)
            self.hungry = False
        return self.steps[0]

    def _take(self, kind, tile):
        """Begin the next step, which must be this one, once its operands are loaded."""
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
        """End the current step and release its slots; with None as its kind it is not traced."""
        step, self._step = self._step, None
        if step is None:
            return
        end = self.memory.mark()
        if kind is not None:
            kind = kind or step.kind
            self.device.trace(kind, step.tile, self.stream, self._begin, end)
        if step.kind != "write":
            self.device.done[step.number] = end
            self.store.tell()

    def _advance(self):
        """Begin the next step that reads tiles."""
        self._end()
        step = self._peek()
        self._take(step.kind, step.tile)
        self._tiles = {read.tile: self._tile(read) for read in step.reads}
        self._unread = len(step.reads)

    def _tile(self, read):
        header, _ = self.device.ready[read.tile]
        absent = header.values
        values = self.memory.array(read.slot, absent.shape, absent.dtype, absent.order)
        tile = Tile(header.form, values, header.exponent)
        if not self.on_gpu:
            return readable(self.formats, *read.tile, tile)
        as_fp16 = self.store.exponents_as_fp16[read.tile]
        return on_gpu.readable(self.formats, *read.tile, tile, as_fp16)

    def _travel(self, tile):
        """Copy the accumulator out and back, for policies that do not keep it."""
        count, memory = self.device.sizes.accumulator(*tile), self.memory
        for copy, kind in ((memory.store, "leave"), (memory.load, "return")):
            begin, end = copy(self._away, self._slot, count, [memory.mark()])
            memory.wait([end])
            self.store.meter.copied(kind, count)
            self.device.trace(kind, tile, self.stream, begin, end, count)


class OutOfCoreStore(Store):
    """Tiles of one matrix in a slow memory; device i mod p computes block row i.

    The devices have the same slow memory and the same number of streams. Panels have `width`
    columns, see `left_looking`, or as many as the memory allows. `headers` are the final tiles
    without their values, and `meter` counts copies into and out of the fast memories.
    """

    def __init__(self, formats, devices, policy="v3", width=None, trace=None):
        super().__init__(devices[0].originals, formats)
        self.devices, self.policy = devices, policy_named(policy)
        self.slow = devices[0].memory.slow
        self.width, self.trace, self.meter = width, trace, Meter()
        self.changed, self.error = Condition(), None
        self.headers, self.events = {}, {}
        # on GPUs: exponent of each tile's cast to FP16
        self.exponents_as_fp16 = {}
        self._recover()

    def _recover(self):
        """Continue from the tiles of an interrupted run of the same problem."""
        for kind, *entry in self.slow.entries:
            if kind == "promote":
                self.formats = self.formats.promote_row(*entry)[0]
                self.promoted.add(entry[0])
            else:
                i, k, form, exponent, dtype, shape, _ = entry
                # an edited journal of geomxp 0.1.0 may name another format
                if self.formats[i, k].name == form:
                    self.headers[i, k] = Tile(named(form), Absent(dtype, shape), exponent)

    @property
    def bytes(self):
        """Bytes of the final tiles in the slow memory."""
        return sum(tile.values.nbytes for tile in self.headers.values())

    @property
    def moved(self):
        """The `Traffic` so far."""
        return self.meter.read()

    def order(self):
        """Return the tiles in the order in which they are finished."""
        streams = self.devices[0].streams * len(self.devices)
        return left_looking(self.layout.tiles, self.panel_width(), streams)

    def panel_width(self):
        """Return the columns of a panel whose operands stay in the fast memory."""
        if self.width is not None:
            return self.width
        smallest = min(device.budget for device in self.devices)
        return self.sizes.panel_width(self.sizes.arena(smallest), len(self.devices))

    @property
    def sizes(self):
        """`Sizes` for the formats that the tiles have now."""
        return Sizes(self.layout, self.formats, self.devices[0].streams)

    def has(self, i, k):
        """Return whether tile (i, k) is final."""
        return (i, k) in self.headers

    def final(self, i, k):
        """Return L_ik, read from the slow memory into RAM."""
        header = self.headers[i, k]
        data = aligned(header.values.nbytes)
        self.slow.read((i, k), data)
        return Tile(header.form, header.values.over(data), header.exponent)

    def finals(self, pairs):
        """See `Store.finals`; threads read the next tiles while the caller works on one."""
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(READERS) as readers:
            coming = deque()
            for i, k in pairs:
                coming.append(readers.submit(self.final, i, k))
                if len(coming) > READERS:
                    yield coming.popleft().result()
            while coming:
                yield coming.popleft().result()

    def forget(self, i, k):
        """Discard tile (i, k): it will be computed again."""
        self.headers.pop((i, k), None)

    def close(self):
        """Discard all tiles and their slow memory."""
        self.slow.close()

    def leave(self):
        """Release the store, and keep on disk what a later run can continue from."""
        self.slow.leave()

    def promote(self, k):
        """Give block row k finer formats; return the number of tiles that changed."""
        changed = super().promote(k)
        self.slow.note(["promote", k], at_once=True)
        return changed

    @contextmanager
    def workers(self, tiles, threads=None):
        """Yield pairs (worker, tiles), one for each stream of each device; see `Store.workers`."""
        self.error = None
        hands = deal(tiles, len(self.devices))
        with ExitStack() as stack:
            workers = []
            for number, (device, mine) in enumerate(zip(self.devices, hands, strict=True)):
                if mine:
                    workers += stack.enter_context(device.working(self, number, tiles, mine))
            try:
                yield workers
            except Stopped:
                pass
            except BaseException as error:
                self.fail(error)
                raise
        if self.error:
            raise self.error

    def wait_for(self, condition):
        """Wait until a condition holds; raise `Stopped` if a thread has failed."""
        with self.changed:
            self.changed.wait_for(lambda: condition() or self.error)
            if self.error:
                raise Stopped

    def tell(self):
        """Wake all waiting threads."""
        with self.changed:
            self.changed.notify_all()

    def fail(self, error):
        """Stop all workers, loaders and writers."""
        with self.changed:
            self.error = self.error or error
            self.changed.notify_all()

    def written(self, key, tile, event):
        """Record a tile that is in the slow memory."""
        with self.changed:
            self.events[key] = event
            self.headers[key] = tile
            self.changed.notify_all()
        (i, k), values = key, tile.values
        header = tile.form.name, tile.exponent, values.dtype.name, values.shape
        entry = ["tile", i, k, *header, self.slow.checksum(key)]
        column = all((r, k) in self.headers for r in range(k, self.layout.tiles))
        self.slow.note(entry, at_once=column)


class OutOfCoreDevice:
    """A device with a bounded fast memory, its workers, and its loader and writer threads.

    The budget is in bytes of the fast memory, for tiles and for temporary arrays. `streams` tiles
    are computed at the same time: one per core of a CPU.
    """

    def __init__(self, originals, memory, budget, streams):
        self.originals, self.memory, self.budget, self.streams = originals, memory, budget, streams

    @contextmanager
    def working(self, store, number, order, mine):
        """Yield this device's workers with their tiles."""
        self.sizes, self.number = store.sizes, number
        self.sizes.check(self.budget)
        arena = self.sizes.arena(self.budget)
        plan = Plan(order, mine, self.sizes, arena, store.policy)
        self.memory.open(arena)
        # only during a run: a store and its devices must not keep each other alive
        self.store = store
        self.done, self.ready, self.out = {}, {}, deque()
        workers = [StreamWorker(self, stream) for stream in range(self.streams)]
        threads = [
            Thread(target=working_for(self._guarded), args=work, name=f"{name}-{number}")
            for name, work in (("loader", (self._load, plan, workers)), ("writer", (self._write,)))
        ]
        for thread in threads:
            thread.start()
        try:
            yield [(worker, worker.tiles()) for worker in workers]
        except BaseException as error:
            store.fail(error)
            raise
        finally:
            self.out.append(None)
            store.tell()
            for thread in threads:
                thread.join()
            self.memory.close()
            self.store = None

    def _guarded(self, work, *arguments):
        try:
            work(*arguments)
        except Stopped:
            pass
        except BaseException as error:
            self.store.fail(error)

    def _load(self, plan, workers):
        """Copy in the operands of each step, as far ahead as the slots allow."""
        store = self.store
        for step in plan:
            worker = workers[step.stream]
            if store.policy.overlapped:
                store.wait_for(lambda worker=worker: len(worker.steps) < MOST_QUEUED_STEPS)
            else:
                store.wait_for(lambda worker=worker: worker.hungry)
            self._wait_for(step.after)
            for read in step.reads:
                if read.load:
                    self._load_tile(step, read)
            worker.steps.append(step)
            store.tell()
        for worker in workers:
            worker.steps.append(None)
        store.tell()

    def _load_tile(self, step, read):
        store = self.store
        store.wait_for(lambda: read.tile in store.headers)
        header, waits = store.headers[read.tile], self._wait_for(read.after)
        if read.tile in store.events:
            waits.append(store.events[read.tile])
        count = header.values.nbytes
        begin, end = self.memory.load(read.tile, read.slot, count, waits)
        self.ready[read.tile] = header, end
        store.meter.copied("in", count)
        self.trace("in", read.tile, step.stream, begin, end, count)

    def _wait_for(self, steps):
        """Wait until some steps are issued; return the moments of their end."""
        if steps:
            self.store.wait_for(lambda: all(step in self.done for step in steps))
        return [self.done[step] for step in steps]

    def _write(self):
        """Copy finished tiles out."""
        store = self.store
        while True:
            # also after a failure: finished tiles are kept
            with store.changed:
                store.changed.wait_for(lambda: self.out)
            entry = self.out.popleft()
            if entry is None:
                return
            step, header, moment = entry
            count = header.values.nbytes
            begin, end = self.memory.store(step.tile, step.slot, count, [moment])
            store.meter.copied("out", count)
            store.written(step.tile, header, end)
            self.trace("out", step.tile, step.stream, begin, end, count)
            self.done[step.number] = end
            store.tell()

    def trace(self, kind, tile, stream, begin, end, count=0):
        """Record an event if the run is traced."""
        if self.store.trace is not None:
            form = self.store.formats[tile].name
            self.store.trace.add(kind, tile, form, self, stream, begin, end, count)
