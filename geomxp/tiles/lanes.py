"""What brings one tile after the other to its final value on a device: a store to `finish`.

A lane takes the steps that its device's plan gives it, waits until what a step reads is there, and
says when it has done with it.
"""

from collections import deque

import numpy as np

from ..precision.formats import FP32, FP64
from ..precision.quantize import Tile, quantize
from ..precision.quantize_on_gpu import Exponents
from . import stored_on_gpu
from .plan import Sizes
from .stores import casts_of, in_format, original


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
