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
        If the directory cannot be used.
    NotEnoughMemory
        If the disk has no room for the tiles.
    """

    def __init__(self, layout, needed, directory=None, problem=None):
        self.directory = Path(directory or tempfile.gettempdir())
        self._place = pages(8 * layout.tile**2)
        self.path = self._journal = None
        if problem is not None:
            name = "geomxp-" + hashlib.sha256(problem.encode()).hexdigest()[:16]
            self.path = self.directory / f"{name}.tiles"
        self._descriptor = self._open()
        self.close = weakref.finalize(self, _remove, self._descriptor, self._names())
        self.found = self._recover(problem) if self.path else {}
        used = os.fstat(self._descriptor).st_blocks * 512
        free = os.statvfs(self.directory)
        free = free.f_bavail * free.f_frsize + used
        if needed > free:
            self.close()
            raise NotEnoughMemory(
                f"the tiles need {human_bytes(needed)} of disk, {human_bytes(free)} free in "
                f"{self.directory}: name another scratch directory, or ask for less accuracy."
            )
        self._pending, self._lock, self._synced = [], Lock(), monotonic()

    def _names(self):
        return () if self.path is None else (self.path, self.path.with_suffix(".journal"))

    def _open(self):
        """Open the file for direct access, or through the page cache where that is refused."""
        try:
            path = self.path
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
            if self.path is None:
                # nobody has to remove it, whatever happens to this process
                path.unlink()
            else:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            raise InvalidInput(f"{path} is in use: another process computes the same.") from None
        except OSError as error:
            raise InvalidInput(
                f"the scratch directory {self.directory} cannot be used: "
                f"{error.strerror or error}: name another."
            ) from None

    def _offset(self, key):
        # an accumulator that is out has the key (number of block rows, stream)
        i, k = key
        return (i * (i + 1) // 2 + k) * self._place

    def write(self, key, data):
        """Write a tile.

        Parameters
        ----------
        key : (int, int)
        data : (b,) ndarray of uint8
            On a page, in whole pages.
        """
        offset, left = self._offset(key), memoryview(data)
        try:
            while left.nbytes:
                done = os.pwrite(self._descriptor, left, offset)
                left, offset = left[done:], offset + done
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise NotEnoughMemory(
                f"the disk of {self.directory} is full: name another scratch directory."
            ) from None
        if not self.direct and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._descriptor, offset - data.nbytes, data.nbytes, 4)

    def read(self, key, data):
        """Read a tile that was written, into an array such as `write` takes."""
        offset, left = self._offset(key), memoryview(data)
        while left.nbytes:
            done = os.preadv(self._descriptor, [left], offset)
            if not done:
                raise OSError(f"the scratch file in {self.directory} ends too early")
            left, offset = left[done:], offset + done

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
        with self._lock:
            self._pending.append(entry)
            if not at_once and monotonic() - self._synced < SECONDS:
                return
            entries, self._pending = self._pending, []
        os.fdatasync(self._descriptor)
        with self._lock:
            self._journal.write("".join(json.dumps(entry) + "\n" for entry in entries))
            self._journal.flush()
            os.fsync(self._journal.fileno())
            self._synced = monotonic()

    def _recover(self, problem):
        """Return what the journal of a killed run says is done, and go on writing it."""
        path, found = self.path.with_suffix(".journal"), []
        if path.exists():
            lines = path.read_text().split("\n")
            # the last line may be half a line
            if lines and lines[0] == problem:
                found = [json.loads(line) for line in lines[1:-1]]
        self._journal = open(path, "w")  # noqa: SIM115 (as long as the scratch file)
        self._journal.write("\n".join([problem, *(json.dumps(entry) for entry in found), ""]))
        self._journal.flush()
        return found


def _remove(descriptor, names):
    os.close(descriptor)
    for name in names:
        name.unlink(missing_ok=True)
