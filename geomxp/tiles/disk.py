"""Tiles in a scratch file: positioned reads and writes, past the page cache where that is possible.

Each tile has a place of its own, as large as in FP64; what is not written takes no room in the
file. With a name the file has a journal beside it, from which a killed run goes on.
"""

import errno
import fcntl
import hashlib
import json
import mmap
import os
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path
from threading import Lock
from time import monotonic

import numpy as np

from ..errors import InvalidInput, NotEnoughMemory
from ..execution.devices import human_bytes

PAGE = 4096
SECONDS = 10.0
"""Between two entries in the journal within one tile column."""

MODE = os.O_RDWR | os.O_CREAT

_here = set()
"""Named files that this process has open."""


def pages(count):
    """Return a number of bytes rounded up to whole pages."""
    return -(-count // PAGE) * PAGE


def aligned(count):
    """Return that many bytes, in whole pages: a uint8 array that begins on a page."""
    return np.frombuffer(mmap.mmap(-1, max(pages(count), PAGE)), np.uint8)


class Disk:
    """A scratch file with a place for each tile.

    Parameters
    ----------
    layout : Layout
    needed : int
        Bytes of all tiles in their formats.
    directory : path, optional
        The system's directory for temporary files if not given.
    problem : str, optional
        What is computed: with it the file has a name, and a later run of the same problem goes on
        from what a killed one left.

    Raises
    ------
    InvalidInput
        If the directory cannot be used, or another process computes the same problem there.
    NotEnoughMemory
        If the disk has no room for the tiles.
    """

    def __init__(self, layout, needed, directory=None, problem=None):
        self.directory = Path(directory or tempfile.gettempdir())
        self._place = pages(8 * layout.tile**2)
        self.path, self.found, self._journal = None, [], None
        if problem is not None:
            name = "geomxp-" + hashlib.sha256(problem.encode()).hexdigest()[:16]
            path = self.directory / f"{name}.tiles"
            # a second factor of one problem in one process has nothing to go on from
            self.path = None if path in _here else path
        self._descriptor = self._open()
        if self.path is not None:
            _here.add(self.path)
            self._journal = Journal(self.path.with_suffix(".journal"), problem)
        self._finish = weakref.finalize(self, _remove, self._descriptor, self.path, self._journal)
        if self._journal is not None:
            try:
                self.found = self._journal.open(self)
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
                f"{self.directory}: name another scratch directory, or ask for less accuracy."
            )

    def close(self):
        """Give the file up, and remove it."""
        self._finish()

    def leave(self):
        """Give the file up, and leave it for a later run."""
        if self._journal is not None:
            self._journal.flush(self._descriptor)
            self._journal.close()
        if self._finish.detach():
            os.close(self._descriptor)
            _here.discard(self.path)

    def _open(self):
        """Open the file for direct access, or through the page cache where that is refused."""
        path = descriptor = None
        try:
            path = self.path
            if path is None:
                descriptor, name = tempfile.mkstemp(".tiles", "geomxp-", self.directory)
                os.close(descriptor)
                path, descriptor = Path(name), None
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
            raise InvalidInput(f"{path} is in use: another process computes the same.") from None
        except OSError as error:
            raise InvalidInput(
                f"the scratch directory {self.directory} cannot be used: "
                f"{error.strerror or error}: name another."
            ) from None
        finally:
            if self.path is None and path is not None:
                # nobody has to remove it, whatever happens to this process
                path.unlink(missing_ok=True)

    def _offset(self, key):
        # an accumulator that is out has the key (number of block rows, stream); the first page is
        # the journal's
        i, k = key
        return PAGE + (i * (i + 1) // 2 + k) * self._place

    def write(self, key, data):
        """Write a tile.

        Parameters
        ----------
        key : (int, int)
        data : (b,) ndarray of uint8
            On a page, in whole pages.
        """
        self.write_at(self._offset(key), data)

    def write_at(self, offset, data):
        """Write whole pages at an offset."""
        begin, left = offset, memoryview(data)
        try:
            while left.nbytes:
                done = os.pwrite(self._descriptor, left, offset)
                left, offset = left[done:], offset + done
        except OSError as error:
            raise self._full(error) from None
        if not self.direct and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._descriptor, begin, data.nbytes, os.POSIX_FADV_DONTNEED)

    def _full(self, error):
        """Return what to raise for an error of writing."""
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return error
        return NotEnoughMemory(
            f"the disk of {self.directory} is full: name another scratch directory."
        )

    def read(self, key, data):
        """Read a tile that was written, into an array such as `write` takes."""
        self.read_at(self._offset(key), data)

    def read_at(self, offset, data):
        """Read whole pages at an offset."""
        left = memoryview(data)
        while left.nbytes:
            done = os.preadv(self._descriptor, [left], offset)
            if not done:
                raise OSError(f"the scratch file in {self.directory} ends too early")
            left, offset = left[done:], offset + done

    def holds(self, key, count):
        """Return whether the file is long enough for a tile of so many bytes."""
        return self._offset(key) + count <= os.fstat(self._descriptor).st_size

    def note(self, entry, at_once=False):
        """Write what is done to the journal, once the tiles themselves are on the disk.

        Parameters
        ----------
        entry : list
            Of what JSON knows.
        at_once : bool
            Now, as at the end of a column; else with the next that is due.
        """
        if self._journal is None:
            return
        try:
            self._journal.note(entry, at_once, self._descriptor)
        except OSError as error:
            raise self._full(error) from None


class Journal:
    """What of a scratch file is final: a line of JSON for each event, behind what the file is.

    Parameters
    ----------
    path : Path
    problem : str
    """

    def __init__(self, path, problem):
        self.path, self.problem = path, problem
        self._file, self._pending, self._lock, self._synced = None, [], Lock(), monotonic()

    def open(self, disk):
        """Return the events that a killed run has left, and go on writing."""
        stamp, found = aligned(PAGE), []
        try:
            disk.read_at(0, stamp)
            mark = bytes(stamp[:16]).hex()
            lines = self.path.read_bytes().split(b"\n")
            if lines[0].decode() == f"{mark} {self.problem}":
                # what follows the last whole line is half a line
                found = list(_parsed(lines[1:-1]))
        except (OSError, UnicodeDecodeError):
            found = []
        if not found:
            stamp[:16] = np.frombuffer(os.urandom(16), np.uint8)
            disk.write_at(0, stamp)
            mark = bytes(stamp[:16]).hex()
        text = "".join(f"{json.dumps(entry)}\n" for entry in found)
        fresh = self.path.with_suffix(".new")
        fresh.write_text(f"{mark} {self.problem}\n{text}")
        os.replace(fresh, self.path)
        self._file = open(self.path, "a")  # noqa: SIM115 (as long as the scratch file)
        return found

    def note(self, entry, at_once, descriptor):
        """Keep an entry, and write all that are kept if it is time."""
        with self._lock:
            self._pending.append(entry)
            if not at_once and monotonic() - self._synced < SECONDS:
                return
        self.flush(descriptor)

    def flush(self, descriptor):
        """Write what is kept, behind the tiles that it speaks of."""
        with self._lock:
            entries, self._pending = self._pending, []
            os.fdatasync(descriptor)
            self._file.write("".join(json.dumps(entry) + "\n" for entry in entries))
            self._file.flush()
            os.fsync(self._file.fileno())
            self._synced = monotonic()

    def close(self):
        """Close the file."""
        if self._file is not None:
            # on a full disk: what could not be written is not needed any more
            with suppress(OSError):
                self._file.close()


def _parsed(lines):
    """Yield the events of a journal, as far as they can be read."""
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
        _here.discard(path)
    os.close(descriptor)
