"""One thread a lane over the tiles of one store; each waits inside the read of what it needs."""

from threading import Thread

from ..dense import blas
from ..tiles.cholesky import finish
from ..tiles.stores import Stopped
from .devices import blas_threads, usable_cores


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

        workers = [
            Thread(target=work, args=lane, name=f"tiles-{t}") for t, lane in enumerate(lanes)
        ]
        for worker in workers:
            worker.start()
        try:
            for worker in workers:
                worker.join()
        except BaseException as interruption:
            # Ctrl-C: each thread ends with the tile that it has
            lanes[0][0].fail(interruption)
            for worker in workers:
                worker.join()
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
