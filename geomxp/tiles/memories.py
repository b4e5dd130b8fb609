"""Pairs of memories: a small fast one, where tiles are worked on, over a large slow one.

RAM over a disk, a GPU's memory over pinned host memory, and RAM over RAM, which is slow only by
name and lets everything be tested anywhere. On a CPU a copy is done when the call returns. On a
GPU it is only put on a stream. Calls return moments, seconds on a CPU and events on a GPU, and take
those that they must wait for.
"""

import weakref
from contextlib import contextmanager
from functools import cache
from threading import Lock
from time import perf_counter

import numpy as np

from ..cuda import large_memory
from ..cuda.streams import streams
from ..errors import NotEnoughMemory
from ..execution.devices import OUT_OF_MEMORY, human_bytes, in_threads
from .disk import aligned, pages

ALIGNMENT = 512
"""Alignment of tiles in host memory, in bytes."""

GROWTH = 2**24
"""Fewest bytes that are added when the tiles outgrow the reserved memory."""

PART = 2**26
"""Bytes that a thread touches at a time, so that the system provides their pages."""

PORTABLE = 1
"""cudaHostRegisterPortable: the memory is pinned for all GPUs."""


class Host:
    """The slow memory is RAM, pinned for a GPU.

    Tiles have slots in one region of memory, which is pinned once: CuPy's pool of pinned memory
    would round each tile to a power of two. Promoted tiles get new slots, where necessary in
    further regions.

    Parameters
    ----------
    needed : int
        Bytes of all tiles in the formats that they begin with.
    pinned : bool
    """

    found = ()

    def __init__(self, needed=0, pinned=False):
        self._pinned, self._lock = pinned, Lock()
        self._regions, self._tiles = [], {}
        weakref.finalize(self, _release, self._regions, pinned).atexit = False
        self.reserve(needed)

    def reserve(self, needed):
        """Discard all tiles, and reuse the memory for tiles that need so many bytes."""
        self._tiles.clear()
        self._needed, self._free = needed, list(self._regions)

    @property
    def bytes(self):
        """Bytes of RAM allocated so far."""
        return sum(len(region) for region in self._regions)

    def buffer(self, key, count):
        """Return the slot of a tile: `count` bytes, made at the first call."""
        with self._lock:
            found = self._tiles.get(key)
            if found is None or len(found) < count:
                found = self._tiles[key] = self._slot(-(-count // ALIGNMENT) * ALIGNMENT)
        return found[:count]

    def _slot(self, count):
        k = next((k for k, free in enumerate(self._free) if len(free) >= count), len(self._free))
        if k == len(self._free):
            missing = self._needed - self.bytes
            self._free.append(self._region(missing if missing >= count else max(count, GROWTH)))
        slot, self._free[k] = self._free[k][:count], self._free[k][count:]
        return slot

    def _region(self, count):
        """Return new memory, in whole pages."""
        region = aligned(count)
        if self._pinned:
            from cupy.cuda import runtime

            # threads touch the pages first: the driver would do so one page at a time
            parts = [region[k : k + PART] for k in range(0, len(region), PART)]
            in_threads(lambda part: part.fill(0), parts, len(region))
            try:
                runtime.hostRegister(region.ctypes.data, len(region), PORTABLE)
            except runtime.CUDARuntimeError as error:
                if error.status != OUT_OF_MEMORY["CUDARuntimeError"]:
                    raise
                raise NotEnoughMemory(
                    f"{human_bytes(len(region))} of RAM cannot be pinned for a GPU ({error}): "
                    "use fewer places, or ask for less accuracy."
                ) from None
        self._regions.append(region)
        return region

    def write(self, key, data):
        """Copy a tile here."""
        np.copyto(self.buffer(key, len(data)), data)

    def read(self, key, data):
        """Copy a tile from here."""
        found = self._tiles[key][: len(data)]
        np.copyto(data[: len(found)], found)

    def note(self, entry, at_once=False):
        """Nothing outlives the process."""

    def close(self):
        """Give the memory back."""
        self.reserve(0)
        self._free.clear()
        _release(self._regions, self._pinned)

    leave = close


def _release(regions, pinned):
    """Unpin regions of memory, and free them."""
    if pinned and regions:
        from cupy.cuda import runtime

        while regions:
            runtime.hostUnregister(regions.pop().ctypes.data)
    regions.clear()


class Ram:
    """The fast memory is RAM.

    Parameters
    ----------
    slow : Host or Disk
    """

    index = None

    def __init__(self, slow):
        self.slow, self._arena = slow, None

    def open(self, count):
        """Reserve the arena."""
        self._arena = aligned(count)

    def close(self):
        """Give the arena back."""
        self._arena = None

    @contextmanager
    def lane(self):
        """Enclose what one lane does."""
        yield

    def array(self, slot, shape, dtype, order="F"):
        """Return a slot as an array."""
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self._arena[slot : slot + count].view(dtype).reshape(shape, order=order)

    def load(self, key, slot, count, waits=()):
        """Copy a tile from the slow memory into a slot; return the moments of its begin and end."""
        begin = perf_counter()
        self.slow.read(key, self._arena[slot : slot + pages(count)])
        return begin, perf_counter()

    def store(self, key, slot, count, waits=()):
        """Copy a tile from a slot into the slow memory; return as `load`."""
        begin = perf_counter()
        self.slow.write(key, self._arena[slot : slot + pages(count)])
        return begin, perf_counter()

    def mark(self):
        """Return the moment at which this lane has done all so far."""
        return perf_counter()

    def wait(self, moments):
        """Let what this lane does next come after some moments: they are past."""

    def seconds(self, moment):
        """Return a moment in seconds."""
        return moment


class Gpu:
    """The fast memory is a GPU's, the slow one pinned host memory.

    One stream for copies in and one for copies out are shared by all factorizations; each lane uses
    a stream of its thread.

    Parameters
    ----------
    slow : Host
    index : int
        Number of the GPU.
    """

    def __init__(self, slow, index):
        import cupy

        self.slow, self.index, self._arena = slow, index, None
        self._device = cupy.cuda.Device(index)
        with self._device:
            self._in, self._out = _copy_streams(index)
            self._start, self._began = cupy.cuda.Event(), perf_counter()
            self._start.record()

    def open(self, count):
        """Reserve the arena."""
        with self._device:
            self._arena = large_memory(count)

    def close(self):
        """Give the arena back."""
        with self._device:
            self._device.synchronize()
        self._arena = None

    @contextmanager
    def lane(self):
        """Enclose what one lane does, on its thread's stream."""
        with self._device, streams(self.index, 1)[0] as stream:
            yield
            stream.synchronize()

    def array(self, slot, shape, dtype, order="F"):
        """Return a slot as an array."""
        import cupy

        return cupy.ndarray(shape, dtype, self._arena + slot, order=order)

    def load(self, key, slot, count, waits=()):
        """Put a copy into a slot on its stream; return the events of its begin and end."""
        with self._device:
            # inside `with`: pinning creates a CUDA context on the current device
            host = self.slow.buffer(key, count)
            return self._copy(self._in, waits, self._arena.ptr + slot, host.ctypes.data, count)

    def store(self, key, slot, count, waits=()):
        """Put a copy from a slot into the slow memory on its stream; return as `load`."""
        with self._device:
            host = self.slow.buffer(key, count)
            return self._copy(self._out, waits, host.ctypes.data, self._arena.ptr + slot, count)

    @staticmethod
    def _copy(stream, waits, to, source, count):
        from cupy.cuda import runtime

        for event in waits:
            stream.wait_event(event)
        begin = stream.record()
        # the direction is told from the addresses
        runtime.memcpyAsync(to, source, count, runtime.memcpyDefault, stream.ptr)
        return begin, stream.record()

    def mark(self):
        """Return the event of all that this lane has done so far."""
        import cupy

        return cupy.cuda.get_current_stream().record()

    def wait(self, moments):
        """Let what this lane does next come after some events."""
        import cupy

        for event in moments:
            cupy.cuda.get_current_stream().wait_event(event)

    def seconds(self, moment):
        """Return an event in seconds, when it is past."""
        from cupy.cuda import get_elapsed_time

        moment.synchronize()
        return self._began + get_elapsed_time(self._start, moment) / 1e3


@cache
def _copy_streams(index):
    """Return two streams of a GPU, which must be the current device."""
    import cupy

    return tuple(cupy.cuda.Stream(non_blocking=True) for _ in range(2))
