"""One thread a lane over the tiles of one store; each waits inside the read of what it needs.

Threads that run tiles out of core on a GPU are kept: CuPy gives each thread its own handles of
cuBLAS and cuSOLVER, and creating these takes longer than many factorizations.
"""

import os
from queue import SimpleQueue
from threading import Event, Lock, Thread

from ..linalg import blas
from ..runtime.devices import blas_threads, usable_cores
from .cholesky import finish
from .stores import Stopped


def run(store, tiles, threads=None):
    """Finish the tiles of a store.

    What is done to a tile does not depend on who does it or when, so that any number of threads
    and any order that respects the dependencies give the same bits.

    Parameters
    ----------
    store : store
    tiles : sequence of (int, int)
        Each after all those that it needs.
    threads : int, optional
        A thread a core if not given.

    Raises
    ------
    NotPositiveDefinite
        If a diagonal tile has no factor.
    """
    tiles = list(tiles)
    with blas_threads(0), store.lanes(tiles, threads or usable_cores()) as lanes:
        if len(lanes) == 1:
            _finish_all(*lanes[0])
            return
        failures = []

        def work(lane, mine):
            try:
                _finish_all(lane, mine)
            except Stopped:
                pass
            except BaseException as error:
                failures.append(error)
                lane.fail(error)

        on_gpu = any(lane.on_gpu for lane, _ in lanes)
        waits = (_start_on_kept_threads if on_gpu else _start_on_new_threads)(work, lanes)
        try:
            for wait in waits:
                wait()
        except BaseException as interruption:
            # Ctrl-C: each thread ends with the tile that it has
            lanes[0][0].fail(interruption)
            for wait in waits:
                wait()
            raise
        if failures:
            # keep no reference in this frame: the error's traceback holds the lanes' memory
            raise failures.pop(0)


def _finish_all(lane, tiles):
    with blas.one_core(), lane.inside():
        for tile in tiles:
            if lane.error:
                return
            finish(lane, *tile)


def _start_on_new_threads(work, lanes):
    """Start a thread for each lane; return what waits for the end of each."""
    threads = [Thread(target=work, args=lane, name=f"tiles-{t}") for t, lane in enumerate(lanes)]
    for thread in threads:
        thread.start()
    return [thread.join for thread in threads]


_idle, _lock = [], Lock()
"""Task queues of the kept threads that are idle."""

if hasattr(os, "register_at_fork"):
    # threads do not exist in a child process
    os.register_at_fork(after_in_child=_idle.clear)


def _start_on_kept_threads(work, lanes):
    """Start kept threads, as many of them as there are lanes; see `_start_on_new_threads`."""
    waits = []
    for lane in lanes:
        with _lock:
            tasks = _idle.pop() if _idle else None
        if tasks is None:
            tasks = SimpleQueue()
            Thread(target=_serve, args=(tasks,), name="gpu-tiles", daemon=True).start()
        done = Event()
        tasks.put((work, lane, done))
        waits.append(done.wait)
    return waits


def _serve(tasks):
    while True:
        work, lane, done = tasks.get()
        work(*lane)
        # keep no reference to a lane's memory while waiting for other work
        del work, lane
        with _lock:
            _idle.append(tasks)
        done.set()
