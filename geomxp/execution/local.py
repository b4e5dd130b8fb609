"""One thread a core over the tiles of one store; each waits inside the read of what it needs."""

from threading import Condition, Lock, Thread

from ..dense import blas
from ..tiles.cholesky import finish
from .devices import blas_threads, usable_cores


class _Stopped(Exception):
    """Another thread has failed."""


class _Waiting:
    """A store whose reads wait until the tile is final."""

    def __init__(self, store):
        self.store, self.changed, self.error = store, Condition(), None
        self.original = store.original

    def final(self, i, k):
        if not self.store.has(i, k):
            with self.changed:
                self.changed.wait_for(lambda: self.store.has(i, k) or self.error)
                if not self.store.has(i, k):
                    raise _Stopped
        return self.store.final(i, k)

    def write(self, i, k, array):
        self.store.write(i, k, array)
        with self.changed:
            self.changed.notify_all()

    def fail(self, error):
        with self.changed:
            self.error = self.error or error
            self.changed.notify_all()


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
    threads = min(threads or usable_cores(), max(1, len(tiles)))
    with blas_threads(0):
        if threads == 1:
            with blas.one_core():
                for tile in tiles:
                    finish(store, *tile)
            return
        waiting, queue, taking = _Waiting(store), iter(tiles), Lock()

        def take():
            with taking:
                return None if waiting.error else next(queue, None)

        def work():
            try:
                with blas.one_core():
                    while (tile := take()) is not None:
                        finish(waiting, *tile)
            except _Stopped:
                pass
            except BaseException as error:
                waiting.fail(error)

        workers = [Thread(target=work, name=f"tiles-{t}") for t in range(threads)]
        for worker in workers:
            worker.start()
        try:
            for worker in workers:
                worker.join()
        except BaseException as interruption:
            # Ctrl-C: each thread ends with the tile that it has
            waiting.fail(interruption)
            for worker in workers:
                worker.join()
            raise
    if waiting.error is not None:
        raise waiting.error
