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
import secrets
import stat
import tempfile
import warnings
import weakref
import zlib
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from threading import Lock
from time import monotonic, perf_counter

import numpy as np

from ..errors import GeomxpWarning, InvalidInput, NotEnoughMemory
from ..linalg.device import large_memory, streams
from ..linalg.formats import named
from ..runtime.devices import OUT_OF_MEMORY_STATUS, human_bytes, in_threads

PAGE_BYTES = 4096
JOURNAL_INTERVAL_SECONDS = 10.0
"""Between two writes of the journal within one tile column."""

OPEN_FLAGS = os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)

_open = set()
"""Named files that this process has open."""


def pages(count):
    """Return a number of bytes rounded up to whole pages."""
    return -(-count // PAGE_BYTES) * PAGE_BYTES


def aligned(count):
    """Return a uint8 array of this many bytes in whole pages, aligned to a page."""
    return np.frombuffer(mmap.mmap(-1, max(pages(count), PAGE_BYTES)), np.uint8)


def check_disk(needed, free, directory):
    """Raise `NotEnoughMemory` if the tiles need more than the free bytes of a disk."""
    if needed > free:
        raise NotEnoughMemory(
            f"the tiles need {human_bytes(needed)} of disk, {human_bytes(free)} free in "
            f"{directory}: name another directory (--scratch FOLDER, scratch=), use coarser "
            "formats (--kl 1e-3, gx.Exact(gx.for_divergence(1e-3))), or Vecchia's approximation "
            "(--method vecchia, gx.Vecchia(30))."
        )


def open_own(path):
    """Return the descriptor of a scratch file of this user, created if it does not exist.

    The name is predictable, and the folder may belong to everybody, as /tmp does. A link, or a file
    that another user owns or may write, raises `InvalidInput`: nothing is read from it or written
    to it.
    """
    with suppress(FileExistsError):
        return os.open(path, OPEN_FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
    reason = None
    try:
        # a FIFO does not block
        descriptor = os.open(path, OPEN_FLAGS | os.O_NONBLOCK)
    except FileNotFoundError:
        # removed meanwhile, by the process that has used it
        return open_own(path)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EMLINK, errno.EISDIR, errno.ENXIO):
            raise
        reason = "is a link or no regular file"
    else:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            reason = "is not a regular file"
        elif status.st_uid != os.geteuid():
            reason = f"belongs to another user (uid {status.st_uid})"
        elif status.st_nlink > 1:
            reason = "has a second name (a hard link)"
        elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            reason = f"may be written by other users (mode {stat.S_IMODE(status.st_mode):o})"
        if reason is None:
            return descriptor
        os.close(descriptor)
    raise InvalidInput(
        f"the scratch file {path} {reason}, so it is not used: remove it, or name a scratch "
        "directory that only you may write (mkdir -m 700 tiles)."
    )


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
        self.layout, self._sums = layout, {}
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
            self._recover()
        self._check(needed)

    def _recover(self):
        """Find the entries of an interrupted run whose tiles are as they were written."""
        journal = self._journal
        try:
            found, tiles = journal.read(self), {}
            for kind, *entry in found:
                if kind == "promote":
                    # the tiles of that row were to be computed again
                    tiles = {key: header for key, header in tiles.items() if key[0] != entry[0]}
                else:
                    tiles[tuple(entry[:2])] = entry
            intact = {key: entry[:6] for key, entry in tiles.items() if self._intact(key, *entry)}
            for key, entry in intact.items():
                self.entries.append(["tile", *entry, self._sums[key]])
            # first: a promotion is of all tiles of its row that come before it
            self.entries[:0] = [entry for entry in found if entry[0] == "promote"]
            journal.begin(self, self.entries)
        except InvalidInput:
            # the journal is not ours; the tiles may be those of an interrupted run
            if self._finish.detach():
                _open.discard(self.path)
                _release_file(self._descriptor, self.path)
            raise
        except OSError as error:
            self.close()
            raise self._full(error) from None
        lost = len(tiles) - len(intact)
        if lost or journal.damaged:
            what = [f"{lost} of {len(tiles)} finished tiles"] * bool(lost)
            what += ["the journal of finished tiles"] * journal.damaged
            warnings.warn(
                f"{' and '.join(what)} in {self.directory} changed after they were written: tiles "
                "without a valid checksum are computed again. Check the disk.",
                GeomxpWarning,
                stacklevel=2,
            )
        elif intact and not journal.checked:
            warnings.warn(
                f"the {len(intact)} finished tiles in {self.directory} were written without "
                "checksums by an earlier geomxp and cannot be verified: to compute them again, "
                f"remove {self.path}.",
                GeomxpWarning,
                stacklevel=2,
            )

    def _check(self, needed):
        used = os.fstat(self._descriptor).st_blocks * 512
        system = os.statvfs(self.directory)
        free = system.f_bavail * system.f_frsize + used
        try:
            check_disk(needed, free, self.directory)
        except NotEnoughMemory:
            self.close()
            raise

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
        path, descriptor = self.path, None
        try:
            if path is None:
                path = self.directory / f"geomxp-{secrets.token_hex(8)}.tiles"
                descriptor = os.open(path, OPEN_FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
                # unlinked at once, so that nothing is left however the process ends
                path.unlink()
            else:
                descriptor = open_own(path)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.direct = _direct(descriptor)
            return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise InvalidInput(
                f"{path} is in use: another process computes this problem. "
                "Name another scratch directory."
            ) from None
        except OSError as error:
            if descriptor is not None:
                _release_file(descriptor, self.path)
            raise InvalidInput(
                f"the scratch directory {self.directory} cannot be used: "
                f"{error.strerror or error}: name another directory."
            ) from None

    def offset_of(self, key):
        """Return the offset of a tile in the file."""
        # a swapped-out accumulator has the key (number of block rows, stream); the first page
        # belongs to the journal
        i, k = key
        return PAGE_BYTES + (i * (i + 1) // 2 + k) * self._place

    def write(self, key, data):
        """Write tile (i, k) from a uint8 array of whole pages, aligned to a page."""
        self._sums[key] = zlib.crc32(data)
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
            f"the disk of {self.directory} is full: name another scratch directory "
            "(--scratch FOLDER, scratch=), or use Vecchia's approximation (--method vecchia, "
            "gx.Vecchia(30))."
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

    def checksum(self, key):
        """Return the CRC-32 of the pages of a tile as they were written."""
        return self._sums.get(key)

    def _intact(self, key, i, k, form, exponent, dtype, shape, checksum=None):
        """Return whether a tile has its checksum, or is there at all if it has none."""
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if self.offset_of(key) + count > os.fstat(self._descriptor).st_size:
            return False
        data = aligned(count)
        try:
            self.read(key, data)
        except OSError:
            # the disk cannot read it any more
            return False
        self._sums[key] = zlib.crc32(data)
        return checksum in (None, self._sums[key])

    def note(self, entry, at_once=False):
        """Write a list of JSON values to the journal, after the tiles themselves.

        At once, as at the end of a column, or with the next entry that is due.
        """
        if self._journal is not None:
            try:
                self._journal.note(entry, at_once)
            except OSError as error:
                raise self._full(error) from None


def _direct(descriptor):
    """Let an open file bypass the page cache; return False if the filesystem refuses it."""
    if not hasattr(os, "O_DIRECT"):
        return False
    try:
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False
    return True


def _release_file(descriptor, path):
    """Close a scratch file, and remove it if it has a name and holds nothing."""
    if path is not None and not os.fstat(descriptor).st_size:
        path.unlink(missing_ok=True)
    os.close(descriptor)


CHECKSUM_WORD = "crc32"
"""Word in the header of a journal whose lines have checksums."""


class Journal:
    """List of the final tiles of a scratch file: a header, then a line for each entry.

    The header holds the mark of the scratch file and the problem. A line is an entry in JSON after
    the CRC-32 of the line before it, continued over the entry: a line that was changed, removed or
    moved invalidates all from there on. Journals of geomxp 0.1.0 have entries only.
    """

    def __init__(self, path, problem, descriptor):
        self.path, self.problem, self._descriptor = path, problem, descriptor
        self._file, self._pending, self._lock, self._synced = None, [], Lock(), monotonic()
        self._mark, self._sum, self.checked, self.damaged = "", 0, True, False

    def read(self, disk):
        """Return the entries of an interrupted run."""
        stamp, entries = aligned(PAGE_BYTES), []
        with open(open_own(self.path), "rb") as file:
            # an incomplete last line is ignored
            header, *lines = file.read().split(b"\n")[:-1] or [b""]
        with suppress(OSError):
            # an empty scratch file has no mark
            disk.read_at(0, stamp)
            self._mark = bytes(stamp[:16]).hex()
            self.checked = header != f"{self._mark} {self.problem}".encode()
            if not self.checked:
                entries = list(_parsed(lines, disk.layout))
            elif header == self._header():
                entries = list(_parsed(_verified(lines, zlib.crc32(header)), disk.layout))
        self.damaged = len(entries) < len(lines)
        return entries

    def _header(self):
        return f"{self._mark} {CHECKSUM_WORD} {self.problem}".encode()

    def begin(self, disk, entries):
        """Replace the journal by one of these entries, and open it for writing."""
        if not entries:
            stamp = aligned(PAGE_BYTES)
            stamp[:16] = np.frombuffer(os.urandom(16), np.uint8)
            disk.write_at(0, stamp)
            self._mark = bytes(stamp[:16]).hex()
        fresh, header = self.path.with_suffix(".new"), self._header()
        fresh.unlink(missing_ok=True)
        self._file = open(open_own(fresh), "wb")  # noqa: SIM115 (as long as the scratch file)
        self._sum = zlib.crc32(header)
        self._file.write(header + b"\n")
        self._append(entries)
        os.replace(fresh, self.path)

    def _append(self, entries):
        for entry in entries:
            text = json.dumps(entry).encode()
            self._sum = zlib.crc32(text, self._sum)
            self._file.write(b"%08x %b\n" % (self._sum, text))
        self._file.flush()

    def note(self, entry, at_once):
        """Add an entry, and write the pending ones if it is time."""
        with self._lock:
            self._pending.append(entry)
            if not at_once and monotonic() - self._synced < JOURNAL_INTERVAL_SECONDS:
                return
        self.flush()

    def flush(self):
        """Write the pending entries, after the tiles that they name."""
        with self._lock:
            entries, self._pending = self._pending, []
            os.fdatasync(self._descriptor)
            self._append(entries)
            os.fsync(self._file.fileno())
            self._synced = monotonic()

    def close(self):
        """Close the file."""
        if self._file is not None:
            # on a full disk: entries that could not be written are no longer needed
            with suppress(OSError):
                self._file.close()


def _verified(lines, checksum):
    """Yield the entries of a journal up to the first one that is not as it was written."""
    for line in lines:
        stated, _, text = line.partition(b" ")
        checksum = zlib.crc32(text, checksum)
        if stated != b"%08x" % checksum:
            return
        yield text


def _parsed(lines, layout):
    """Yield the entries of a journal up to the first one that names no tile or row of a matrix."""
    for line in lines:
        try:
            entry = json.loads(line)
            _check_entry(layout, *entry)
        except (ValueError, TypeError, KeyError, RecursionError):
            return
        yield entry


def _check_entry(layout, kind, i, *tile):
    """Raise `ValueError`, `TypeError` or `KeyError` for an entry that a run does not write."""
    known = type(i) is int and 0 <= i < layout.tiles
    if kind == "tile":
        k, form, exponent, dtype, shape = tile[:5]
        known &= type(k) is int and 0 <= k <= i and type(exponent) is int and len(tile) < 7
        # two planes, if FP32 is split into them
        known = known and tuple(shape[:2]) == layout.shape(i, k) and shape[2:] in ([], [2])
        dtype = np.dtype(dtype)
        known = known and named(form) and dtype.kind in "fiu" and dtype.itemsize * len(shape) <= 16
    else:
        known &= kind == "promote" and not tile
    if not known:
        raise ValueError


def _remove(descriptor, path, journal):
    """Remove a named file while it is still locked."""
    if journal is not None:
        journal.close()
    if path is not None:
        path.unlink(missing_ok=True)
        path.with_suffix(".journal").unlink(missing_ok=True)
        path.with_suffix(".new").unlink(missing_ok=True)
        _open.discard(path)
    os.close(descriptor)


# Fast memories over slow ones: RAM over a disk, a GPU's memory over pinned host memory, and RAM
# over RAM, with which everything can be tested anywhere.
#
# On a CPU a copy is done when the call returns. On a GPU it is only put on a stream. Calls return
# moments (seconds on a CPU, events on a GPU) and take the moments that they have to wait for.


ALIGNMENT_BYTES = 512
"""Alignment of tiles in host memory."""

LEAST_REGION_BYTES = 2**24
"""Smallest region that is added when tiles outgrow the reserved memory."""

TOUCHED_PART_BYTES = 2**26
"""Bytes that a thread touches at a time to have the system allocate their pages."""

HOST_REGISTER_PORTABLE = 1
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
                slot = self._tiles[key] = self._slot(-(-count // ALIGNMENT_BYTES) * ALIGNMENT_BYTES)
        return slot[:count]

    def _slot(self, count):
        k = next((k for k, free in enumerate(self._free) if len(free) >= count), len(self._free))
        if k == len(self._free):
            missing = self._needed - self.bytes
            self._free.append(
                self._region(missing if missing >= count else max(count, LEAST_REGION_BYTES))
            )
        slot, self._free[k] = self._free[k][:count], self._free[k][count:]
        return slot

    def _region(self, count):
        """Return new memory, in whole pages."""
        region = aligned(count)
        if self._pinned:
            from cupy.cuda import runtime

            # threads touch the pages first: the driver would touch them one by one
            parts = [
                region[k : k + TOUCHED_PART_BYTES]
                for k in range(0, len(region), TOUCHED_PART_BYTES)
            ]
            in_threads(lambda part: part.fill(0), parts, len(region))
            try:
                runtime.hostRegister(region.ctypes.data, len(region), HOST_REGISTER_PORTABLE)
            except runtime.CUDARuntimeError as error:
                if error.status != OUT_OF_MEMORY_STATUS["CUDARuntimeError"]:
                    raise
                raise NotEnoughMemory(
                    f"{human_bytes(len(region))} of RAM cannot be pinned for a GPU ({error}): "
                    "use coarser formats (--kl 1e-3, gx.for_divergence(1e-3)), or Vecchia's "
                    "approximation (--method vecchia, gx.Vecchia(30))."
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

    def checksum(self, key):
        """Return None: these tiles do not outlive the process."""

    def note(self, entry, at_once=False):
        """Do nothing, for the same reason."""

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
