"""Turns at BLAS: its number of threads is one for the whole process, and results depend on it.

Calls in several Python threads compute side by side if they need the same number of BLAS threads.
Calls that need different numbers take turns, first come, first served. The last one to leave
restores the number that the process had before.

A thread has at most one turn. Inside it the thread may change to another number, for which it gives
up its turn and takes a new one. Threads that work for it compute within its turn (`working_for`).
A thread that waits for another one must not hold the turn that the other one may need: it gives up
its turn while it waits (`given_up`). So no two threads wait for each other.
"""

import os
from collections import deque
from contextlib import contextmanager, nullcontext
from functools import cache, partial, wraps
from threading import Lock, local


class _Here(local):
    """The turn of the calling thread."""

    threads = None
    """Number of BLAS threads in the thread's turn; None if it has no turn."""

    works = False
    """Whether it works within another thread's turn."""


class _Gate:
    """Admits the threads that need the same number of BLAS threads."""

    def __init__(self):
        self._lock, self._queue = Lock(), deque()
        self._threads, self._inside, self._before = None, 0, None

    def move(self, threads):
        """Give up the calling thread's turn, if it has one, and take one if `threads` is given."""
        if _here.threads is not None:
            _here.threads = None
            self._leave()
        if threads is not None:
            self._enter(threads)
            _here.threads = threads

    def _enter(self, threads):
        with self._lock:
            if not self._inside:
                self._before = [library.num_threads for library, _ in _libraries()]
                self._set(threads)
            if self._threads == threads and not self._queue:
                self._inside += 1
                return
            admitted = Lock()
            admitted.acquire()
            waiting = threads, admitted
            self._queue.append(waiting)
        try:
            admitted.acquire()
        except BaseException:
            # Ctrl-C, perhaps after the admission
            with self._lock:
                missing = waiting not in self._queue
                if not missing:
                    self._queue.remove(waiting)
            if missing:
                self._leave()
            raise

    def _leave(self):
        with self._lock:
            self._inside -= 1
            if self._inside:
                return
            if not self._queue:
                self._restore()
                return
            self._set(self._queue[0][0])
            for waiting in [one for one in self._queue if one[0] == self._threads]:
                self._queue.remove(waiting)
                self._inside += 1
                waiting[1].release()

    def _set(self, threads):
        self._threads = threads
        for library, forget in _libraries():
            forget()
            library.set_num_threads(threads)

    def _restore(self):
        for (library, forget), threads in zip(_libraries(), self._before, strict=True):
            forget()
            library.set_num_threads(threads)
            forget()

    def begin_anew(self):
        """Keep the calling thread only, in a child process, which has no other thread."""
        _here.works = False
        self._lock, others = Lock(), self._inside
        self._queue.clear()
        self._inside = int(_here.threads is not None)
        if others and not self._inside:
            self._restore()


_here, _gate = _Here(), _Gate()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_gate.begin_anew)


@cache
def _pools():
    """Return threadpoolctl's controller of all libraries, or None where it is missing."""
    import scipy.linalg  # noqa: F401  (loads its BLAS)

    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()


@cache
def _libraries():
    """Return the BLAS libraries' controllers, each with what lets any thread set the number.

    threadpoolctl 3.8 lets one thread control OpenBLAS, the first that sets the number, as long as
    it lives; other threads set it without effect (findings/threadpoolctl_controlling_thread.sh).
    """
    found = []
    for library in _pools().select(user_api="blas").lib_controllers:
        forget = getattr(library, "clear_controlling_thread", None)
        found.append((library, partial(forget, force=True) if forget else bool))
    return found


@cache
def _openmp():
    """Return the controller of OpenMP, whose number is the calling thread's; None without it."""
    pools = _pools().select(user_api="openmp")
    return pools if len(pools) else None


@contextmanager
def turn(threads):
    """Let BLAS use this number of threads inside the block; wait for calls with another number.

    A thread that works for another one has that one's number.
    """
    before = _here.threads
    if _here.works or before == threads or _pools() is None:
        yield
        return
    # a BLAS that was built with OpenMP sets the number of the calling thread as well
    with _openmp().limit(limits=threads) if _openmp() else nullcontext():
        _gate.move(threads)
        try:
            yield
        finally:
            _gate.move(before)


@contextmanager
def given_up():
    """Give up the calling thread's turn inside the block, which waits for other threads."""
    before = _here.threads
    if before is None:
        yield
        return
    _gate.move(None)
    try:
        yield
    finally:
        _gate.move(before)


def working_for(work):
    """Return `work` for other threads, which compute it within the calling thread's turn.

    The calling thread must wait until they have ended; it may call it as well.
    """
    if _here.threads is None and not _here.works:
        return work

    @wraps(work)
    def within(*arguments):
        before, _here.works = _here.works, True
        try:
            return work(*arguments)
        finally:
            _here.works = before

    return within
