"""Memories for tiles: a scratch file, host memory, and pairs of a fast and a slow memory.

`Disk` and `Host` are slow memories with a place for each tile. `Ram` and `Gpu` are fast memories:
one arena whose slots a plan assigns, with copies from and to a slow memory.
"""

import errno
import fcntl
import hashlib
import json
import mmap
import os
import tempfile
import weakref
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from threading import Lock
from time import monotonic, perf_counter

import numpy as np

from ..errors import InvalidInput, NotEnoughMemory
from ..linalg.device import large_memory, streams
from ..runtime.devices import OUT_OF_MEMORY, human_bytes, in_threads

PAGE = 4096
SECONDS = 10.0
"""Between two writes of the journal within one tile column."""

MODE = os.O_RDWR | os.O_CREAT

_open = set()
"""Named files that this process has open."""


def pages(count):
    """Return a number of bytes rounded up to whole pages."""
    return -(-count // PAGE) * PAGE


def aligned(count):
    """Return a uint8 array of this many bytes in whole pages, aligned to a page."""
    return np.frombuffer(mmap.mmap(-1, max(pages(count), PAGE)), np.uint8)


class Disk:
    """Slow memory on a disk: a scratch file with a slot for each tile.

    Reads and writes are positioned and bypass the page cache where the system allows it. A place is
    as large as a tile in FP64; unwritten parts of the file take no room. All tiles in their formats
    need `needed` bytes. The default directory is the system's one for temporary files. If `problem`
    identifies the computation, the file has a name and a journal, and a later run of the same
    problem continues from the tiles that an interrupted one has left.

    Raises
    ------
    InvalidInput
        If the directory cannot be used, or another process computes the same problem there.
    NotEnoughMemory
        If the disk is too full for the tiles.
    """

    def __init__(self, layout, needed, directory=None, problem=None):
        self.directory = Path(directory or tempfile.gettempdir())
        self._place = pages(8 * layout.tile**2)
        self.path, self.entries, self._journal = None, [], None
        if problem is not None:
            name = "geomxp-" + hashlib.sha256(problem.encode()).hexdigest()[:16]
            path = self.directory / f"{name}.tiles"
            # a second factor of one problem in one process starts from nothing
            self.path = None if path in _open else path
        self._descriptor = self._open()
        if self.path is not None:
            _open.add(self.path)
            journal = self.path.with_suffix(".journal")
            self._journal = Journal(journal, problem, self._descriptor)
        self._finish = weakref.finalize(self, _remove, self._descriptor, self.path, self._journal)
        if self._journal is not None:
            try:
                self.entries = self._journal.open(self)
            except OSError as error:
                self.close()
                raise self._full(error) from None
        self._check(needed)

    def _check(self, needed):
        used = os.fstat(self._descriptor).st_blocks * 512
        system = os.statvfs(self.directory)
        free = system.f_bavail * system.f_frsize + used
        if needed > free:
            self.close()
            raise NotEnoughMemory(
                f"the tiles need {human_bytes(needed)} of disk, {human_bytes(free)} free in "
                f"{self.directory}: name another scratch directory, or request a lower accuracy."
            )

    def close(self):
        """Close and remove the file."""
        self._finish()

    def leave(self):
        """Close the file, and keep it for a later run."""
        if self._journal is not None:
            self._journal.flush()
            self._journal.close()
        if self._finish.detach():
            os.close(self._descriptor)
            _open.discard(self.path)

    def _open(self):
        """Open the file for direct access, or through the page cache if that is not supported."""
        path = self.path
        try:
            if path is None:
                descriptor, name = tempfile.mkstemp(".tiles", "geomxp-", self.directory)
                os.close(descriptor)
                path = Path(name)
            try:
                descriptor = os.open(path, MODE | getattr(os, "O_DIRECT", 0), 0o600)
                self.direct = hasattr(os, "O_DIRECT")
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                descriptor, self.direct = os.open(path, MODE, 0o600), False
            if self.path is not None:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise InvalidInput(
                f"{path} is in use: another process computes this problem. "
                "Name another scratch directory."
            ) from None
        except OSError as error:
            raise InvalidInput(
                f"the scratch directory {self.directory} cannot be used: "
                f"{error.strerror or error}: name another directory."
            ) from None
        finally:
            if self.path is None and path is not None:
                # unlinked at once, so that nothing is left however the process ends
                path.unlink(missing_ok=True)

    def offset_of(self, key):
        """Return the offset of a tile in the file."""
        # a swapped-out accumulator has the key (number of block rows, stream); the first page
        # belongs to the journal
        i, k = key
        return PAGE + (i * (i + 1) // 2 + k) * self._place

    def write(self, key, data):
        """Write tile (i, k) from a uint8 array of whole pages, aligned to a page."""
        self.write_at(self.offset_of(key), data)

    def write_at(self, offset, data):
        """Write whole pages at an offset."""
        begin, rest = offset, memoryview(data)
        try:
            while rest.nbytes:
                done = os.pwrite(self._descriptor, rest, offset)
                rest, offset = rest[done:], offset + done
        except OSError as error:
            raise self._full(error) from None
        if not self.direct and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._descriptor, begin, data.nbytes, os.POSIX_FADV_DONTNEED)

    def _full(self, error):
        """Return the exception for an error of writing."""
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return error
        return NotEnoughMemory(
            f"the disk of {self.directory} is full: name another scratch directory."
        )

    def read(self, key, data):
        """Read a tile into an array such as `write` takes."""
        self.read_at(self.offset_of(key), data)

    def read_at(self, offset, data):
        """Read whole pages at an offset."""
        rest = memoryview(data)
        while rest.nbytes:
            done = os.preadv(self._descriptor, [rest], offset)
            if not done:
                raise OSError(f"the scratch file in {self.directory} ends too early")
            rest, offset = rest[done:], offset + done

    def holds(self, key, count):
        """Return whether the file is long enough to contain a tile of this many bytes."""
        return self.offset_of(key) + count <= os.fstat(self._descriptor).st_size

    def note(self, entry, at_once=False):
        """Write a list of JSON values to the journal, after the tiles themselves.

        At once, as at the end of a column, or with the next entry that is due.
        """
        if self._journal is not None:
            try:
                self._journal.note(entry, at_once)
            except OSError as error:
                raise self._full(error) from None


class Journal:
    """List of the final tiles of a scratch file: a header, then a line of JSON for each entry."""

    def __init__(self, path, problem, descriptor):
        self.path, self.problem, self._descriptor = path, problem, descriptor
        self._file, self._pending, self._lock, self._synced = None, [], Lock(), monotonic()

    def open(self, disk):
        """Return the entries of an interrupted run, and open the journal for writing."""
        stamp, entries = aligned(PAGE), []
        try:
            disk.read_at(0, stamp)
            mark = bytes(stamp[:16]).hex()
            lines = self.path.read_bytes().split(b"\n")
            if lines[0].decode() == f"{mark} {self.problem}":
                # an incomplete last line is ignored
                entries = list(_parsed(lines[1:-1]))
        except (OSError, UnicodeDecodeError):
            entries = []
        if not entries:
            stamp[:16] = np.frombuffer(os.urandom(16), np.uint8)
            disk.write_at(0, stamp)
            mark = bytes(stamp[:16]).hex()
        text = "".join(f"{json.dumps(entry)}\n" for entry in entries)
        fresh = self.path.with_suffix(".new")
        fresh.write_text(f"{mark} {self.problem}\n{text}")
        os.replace(fresh, self.path)
        self._file = open(self.path, "a")  # noqa: SIM115 (as long as the scratch file)
        return entries

    def note(self, entry, at_once):
        """Add an entry, and write the pending ones if it is time."""
        with self._lock:
            self._pending.append(entry)
            if not at_once and monotonic() - self._synced < SECONDS:
                return
        self.flush()

    def flush(self):
        """Write the pending entries, after the tiles that they name."""
        with self._lock:
            entries, self._pending = self._pending, []
            os.fdatasync(self._descriptor)
            self._file.write("".join(json.dumps(entry) + "\n" for entry in entries))
            self._file.flush()
            os.fsync(self._file.fileno())
            self._synced = monotonic()

    def close(self):
        """Close the file."""
        if self._file is not None:
            # on a full disk: entries that could not be written are no longer needed
            with suppress(OSError):
                self._file.close()


def _parsed(lines):
    """Yield the readable entries of a journal."""
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            return
        if not (isinstance(entry, list) and entry):
            return
        yield entry


def _remove(descriptor, path, journal):
    """Remove a named file while it is still locked."""
    if journal is not None:
        journal.close()
    if path is not None:
        path.unlink(missing_ok=True)
        path.with_suffix(".journal").unlink(missing_ok=True)
        _open.discard(path)
    os.close(descriptor)


# Fast memories over slow ones: RAM over a disk, a GPU's memory over pinned host memory, and RAM
# over RAM, with which everything can be tested anywhere.
#
# On a CPU a copy is done when the call returns. On a GPU it is only put on a stream. Calls return
# moments (seconds on a CPU, events on a GPU) and take the moments that they have to wait for.


ALIGNMENT = 512
"""Alignment of tiles in host memory, in bytes."""

GROWTH = 2**24
"""Smallest region that is added when tiles outgrow the reserved memory."""

PART = 2**26
"""Bytes that a thread touches at a time to have the system allocate their pages."""

PORTABLE = 1
"""cudaHostRegisterPortable: the memory is pinned for all GPUs."""


class Host:
    """Slow memory in RAM, pinned for a GPU.

    Tiles have slots in one region, which is pinned once: CuPy's pool of pinned memory would round
    each tile up to a power of two. `needed` is the number of bytes of all tiles in their initial
    formats. Promoted tiles get new slots, if necessary in further regions.
    """

    entries = ()

    def __init__(self, needed=0, pinned=False):
        self._pinned, self._lock = pinned, Lock()
        self._regions, self._tiles = [], {}
        weakref.finalize(self, _release, self._regions, pinned).atexit = False
        self.reserve(needed)

    def reserve(self, needed):
        """Discard all tiles, and reuse the memory for tiles of this many bytes."""
        self._tiles.clear()
        self._needed, self._free = needed, list(self._regions)

    @property
    def bytes(self):
        """Bytes of RAM allocated so far."""
        return sum(len(region) for region in self._regions)

    def buffer(self, key, count):
        """Return the slot of a tile: `count` bytes, allocated by the first call."""
        with self._lock:
            slot = self._tiles.get(key)
            if slot is None or len(slot) < count:
                slot = self._tiles[key] = self._slot(-(-count // ALIGNMENT) * ALIGNMENT)
        return slot[:count]

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

            # threads touch the pages first: the driver would touch them one by one
            parts = [region[k : k + PART] for k in range(0, len(region), PART)]
            in_threads(lambda part: part.fill(0), parts, len(region))
            try:
                runtime.hostRegister(region.ctypes.data, len(region), PORTABLE)
            except runtime.CUDARuntimeError as error:
                if error.status != OUT_OF_MEMORY["CUDARuntimeError"]:
                    raise
                raise NotEnoughMemory(
                    f"{human_bytes(len(region))} of RAM cannot be pinned for a GPU ({error}): "
                    "use fewer locations, or request a lower accuracy."
                ) from None
        self._regions.append(region)
        return region

    def write(self, key, data):
        """Copy a tile into its slot."""
        np.copyto(self.buffer(key, len(data)), data)

    def read(self, key, data):
        """Copy a tile from its slot."""
        slot = self._tiles[key][: len(data)]
        np.copyto(data[: len(slot)], slot)

    def note(self, entry, at_once=False):
        """Do nothing: these tiles do not outlive the process."""

    def close(self):
        """Free the memory."""
        self.reserve(0)
        self._free.clear()
        _release(self._regions, self._pinned)

    leave = close


def _release(regions, pinned):
    """Unpin and free regions of memory."""
    if pinned and regions:
        from cupy.cuda import runtime

        while regions:
            runtime.hostUnregister(regions.pop().ctypes.data)
    regions.clear()


class Ram:
    """Fast memory in RAM over a slow one, a `Host` or a `Disk`; moments are times in seconds."""

    index = None
    # see `Gpu`
    active, mark = nullcontext, perf_counter

    def __init__(self, slow):
        self.slow, self._arena = slow, None

    def open(self, count):
        """Allocate the arena."""
        self._arena = aligned(count)

    def close(self):
        """Free the arena."""
        self._arena = None

    def array(self, slot, shape, dtype, order="F"):
        """Return a slot as an array."""
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self._arena[slot : slot + count].view(dtype).reshape(shape, order=order)

    def load(self, key, slot, count, waits=()):
        """Copy a tile from the slow memory into a slot; return the moments of begin and end."""
        begin = perf_counter()
        self.slow.read(key, self._arena[slot : slot + pages(count)])
        return begin, perf_counter()

    def store(self, key, slot, count, waits=()):
        """Copy a tile from a slot into the slow memory; return as `load`."""
        begin = perf_counter()
        self.slow.write(key, self._arena[slot : slot + pages(count)])
        return begin, perf_counter()

    def wait(self, moments):
        """Wait for some moments; on a CPU they have passed."""

    def seconds(self, moment):
        """Return a moment in seconds."""
        return moment


class Gpu:
    """Fast memory of a GPU; the slow one is pinned host memory.

    All factorizations share one stream for copies in and one for copies out; each worker computes
    on the stream of its thread.
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
        """Allocate the arena."""
        with self._device:
            self._arena = large_memory(count)

    def close(self):
        """Free the arena."""
        with self._device:
            self._device.synchronize()
        self._arena = None

    @contextmanager
    def active(self):
        """Enclose the computations of one worker, on its thread's stream."""
        with self._device, streams(self.index, 1)[0] as stream:
            yield
            stream.synchronize()

    def array(self, slot, shape, dtype, order="F"):
        """Return a slot as an array."""
        import cupy

        return cupy.ndarray(shape, dtype, self._arena + slot, order=order)

    def load(self, key, slot, count, waits=()):
        """Issue a copy into a slot on its stream; return the events of begin and end."""
        with self._device:
            # inside `with`: pinning creates a CUDA context on the current device
            host = self.slow.buffer(key, count)
            return self._copy(self._in, waits, self._arena.ptr + slot, host.ctypes.data, count)

    def store(self, key, slot, count, waits=()):
        """Issue a copy from a slot into the slow memory on its stream; return as `load`."""
        with self._device:
            host = self.slow.buffer(key, count)
            return self._copy(self._out, waits, host.ctypes.data, self._arena.ptr + slot, count)

    @staticmethod
    def _copy(stream, waits, to, source, count):
        from cupy.cuda import runtime

        for event in waits:
            stream.wait_event(event)
        begin = stream.record()
        # the addresses imply the direction
        runtime.memcpyAsync(to, source, count, runtime.memcpyDefault, stream.ptr)
        return begin, stream.record()

    def mark(self):
        """Return the event after this worker's operations so far."""
        import cupy

        return cupy.cuda.get_current_stream().record()

    def wait(self, moments):
        """Let this worker's next operations wait for some events."""
        import cupy

        for event in moments:
            cupy.cuda.get_current_stream().wait_event(event)

    def seconds(self, moment):
        """Wait for an event; return its time in seconds."""
        from cupy.cuda import get_elapsed_time

        moment.synchronize()
        return self._began + get_elapsed_time(self._start, moment) / 1e3


@cache
def _copy_streams(index):
    """Return two streams of a GPU, which must be the current device."""
    import cupy

    return tuple(cupy.cuda.Stream(non_blocking=True) for _ in range(2))
