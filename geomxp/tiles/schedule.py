"""Static schedule: the order in which tiles are finished, and the threads that follow it.

The order is known before the run, and the operations on a tile do not depend on who performs them
or when. Any number of threads therefore gives the same bits.
"""

import os
from queue import SimpleQueue
from threading import Event, Lock, Thread

from ..linalg import blas
from ..runtime.devices import blas_threads, usable_cores
from .cholesky import finish


def left_looking(tiles, width=1, height=None):
    """Yield every tile (i, k) of the lower triangle after all the tiles that it needs.

    With a width the order goes by panels of columns, and within a panel by groups of rows. The
    operands of a group of rows then serve all columns of the panel: a memory of M tiles moves about
    T³/(6 width) tiles instead of T³/6.

    Parameters
    ----------
    tiles : int
        Tiles per dimension.
    width : int
        Columns of a panel.
    height : int, optional
        Rows of a group; all rows if not given.

    Examples
    --------
    >>> list(left_looking(2))
    [(0, 0), (1, 0), (1, 1)]
    >>> list(left_looking(4, width=2, height=2))[3:7]
    [(2, 0), (3, 0), (2, 1), (3, 1)]
    """
    height = height or tiles
    for first in range(0, tiles, width):
        for top in range(first, tiles, height):
            for k in range(first, min(first + width, tiles)):
                for i in range(max(k, top), min(top + height, tiles)):
                    yield i, k


def deal(order, devices):
    """Return the tiles of each device: block row i belongs to device i mod p.

    Parameters
    ----------
    order : iterable of (int, int)
    devices : int

    Returns
    -------
    list of list of (int, int)

    Examples
    --------
    >>> deal(left_looking(3), 2)
    [[(0, 0), (2, 0), (2, 1), (2, 2)], [(1, 0), (1, 1)]]
    """
    hands = [[] for _ in range(devices)]
    for i, k in order:
        hands[i % devices].append((i, k))
    return hands


class Stopped(Exception):
    """Another thread has failed."""


def run(store, tiles, threads=None):
    """Finish the tiles of a store, one thread per worker; the runner of most stores.

    Parameters
    ----------
    store : Store
        Its workers' reads wait until a tile is final; see `Store.workers`.
    tiles : sequence of (int, int)
        Each after all the tiles that it needs.
    threads : int, optional
        All usable cores if not given.

    Raises
    ------
    NotPositiveDefinite
        If a diagonal tile has no factor.
    """
    tiles = list(tiles)
    with blas_threads(0), store.workers(tiles, threads or usable_cores()) as workers:
        if len(workers) == 1:
            _finish_all(*workers[0])
            return
        failures = []

        def work(worker, mine):
            try:
                _finish_all(worker, mine)
            except Stopped:
                pass
            except BaseException as error:
                failures.append(error)
                worker.fail(error)

        on_gpu = any(worker.on_gpu for worker, _ in workers)
        waits = (_start_on_kept_threads if on_gpu else _start_on_new_threads)(work, workers)
        try:
            for wait in waits:
                wait()
        except BaseException as interruption:
            # Ctrl-C: each thread ends after its current tile
            workers[0][0].fail(interruption)
            for wait in waits:
                wait()
            raise
        if failures:
            # keep no reference in this frame: the error's traceback holds the workers' memory
            raise failures.pop(0)


def _finish_all(worker, tiles):
    with blas.one_core(), worker.inside():
        for tile in tiles:
            if worker.error:
                return
            finish(worker, *tile)


def _start_on_new_threads(work, workers):
    """Start a thread for each worker; return functions that wait for them."""
    threads = [
        Thread(target=work, args=worker, name=f"tiles-{t}") for t, worker in enumerate(workers)
    ]
    for thread in threads:
        thread.start()
    return [thread.join for thread in threads]


# Threads that compute on a GPU are kept: CuPy gives each thread its own handles of cuBLAS and
# cuSOLVER, and creating these takes longer than many factorizations.

_idle, _lock = [], Lock()
"""Task queues of the kept threads that are idle."""

if hasattr(os, "register_at_fork"):
    # a child process has none of the threads
    os.register_at_fork(after_in_child=_idle.clear)


def _start_on_kept_threads(work, workers):
    """Start a kept thread for each worker; return functions that wait for them."""
    waits = []
    for worker in workers:
        with _lock:
            tasks = _idle.pop() if _idle else None
        if tasks is None:
            tasks = SimpleQueue()
            Thread(target=_serve, args=(tasks,), name="gpu-tiles", daemon=True).start()
        done = Event()
        tasks.put((work, worker, done))
        waits.append(done.wait)
    return waits


def _serve(tasks):
    while True:
        work, worker, done = tasks.get()
        work(*worker)
        # keep no reference to a worker's memory while waiting for the next task
        del work, worker
        with _lock:
            _idle.append(tasks)
        done.set()
