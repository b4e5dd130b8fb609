"""Pairs of memories: a small fast one, where tiles are worked on, over a large slow one.

RAM over a disk, a GPU's memory over pinned host memory, and RAM over RAM, which is slow only by
name and lets everything be tested anywhere. On a CPU a copy is done when the call returns. On a
GPU it is only put on a stream. Calls return moments, seconds on a CPU and events on a GPU, and take
those that they must wait for.
"""

from contextlib import contextmanager
from time import perf_counter

import numpy as np

from .disk import aligned, pages


class Host:
    """The slow memory is RAM, pinned for a GPU.

    Parameters
    ----------
    needed : int
        Bytes of all tiles, with those that may get a finer format.
    pinned : bool
    """

    found = ()

    def __init__(self, needed=0, pinned=False):
        self._tiles, self._pinned, self.needed = {}, pinned, needed

    def buffer(self, key, count):
        """Return the place of a tile: `count` bytes, made at the first call."""
        found = self._tiles.get(key)
        if found is None or len(found) < count:
            if self._pinned:
                import cupyx

                found = cupyx.empty_pinned(count, np.uint8)
            else:
                found = np.empty(count, np.uint8)
            self._tiles[key] = found
        return found[:count]

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
        self._tiles.clear()

    leave = close


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

    def array(self, slot, shape, dtype):
        """Return a slot as an array in Fortran order."""
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self._arena[slot : slot + count].view(dtype).reshape(shape, order="F")

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

    Copies in and copies out have a stream each, and every lane one.

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
            self._in, self._out = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
            self._start, self._began = cupy.cuda.Event(), perf_counter()
            self._start.record()

    def open(self, count):
        """Reserve the arena."""
        import cupy

        with self._device:
            self._arena = cupy.cuda.alloc(count)

    def close(self):
        """Give the arena back."""
        with self._device:
            self._device.synchronize()
        self._arena = None

    @contextmanager
    def lane(self):
        """Enclose what one lane does, on a stream of its own."""
        import cupy

        with self._device, cupy.cuda.Stream(non_blocking=True) as stream:
            yield
            stream.synchronize()

    def array(self, slot, shape, dtype):
        """Return a slot as an array in Fortran order."""
        import cupy

        return cupy.ndarray(shape, dtype, self._arena + slot, order="F")

    def load(self, key, slot, count, waits=()):
        """Put a copy into a slot on its stream; return the events of its begin and end."""
        host = self.slow.buffer(key, count)
        with self._device:
            return self._copy(self._in, waits, self._arena.ptr + slot, host.ctypes.data, count)

    def store(self, key, slot, count, waits=()):
        """Put a copy from a slot into the slow memory on its stream; return as `load`."""
        host = self.slow.buffer(key, count)
        with self._device:
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
