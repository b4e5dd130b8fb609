"""Left-looking tile Cholesky factorization: order of the tiles, operations, threads, promotions.

`linalg.mixed` has the arithmetic on a tile, a store the memory in which tiles are kept. In core,
out of core, on several GPUs and on a Dask cluster the tiles go through the same `update_tile` and
`finish_tile`. Their order is known before the run, and the operations on a tile do not depend on
who performs them or when: any number of threads gives the same bits.
"""

from functools import partial
from itertools import groupby
from threading import Thread

from ..errors import NotPositiveDefinite
from ..linalg import blas
from ..linalg.formats import FP32, FP64, in_planes
from ..linalg.low_rank import Sum
from ..linalg.mixed import arithmetic, columns_of_sum, gemm, potrf, release, trsm
from ..runtime.devices import blas_threads, in_kept_thread, usable_cores
from ..runtime.turns import working_for

# Order of the tiles.


def left_looking(tiles, width=1, height=None):
    """Yield every tile (i, k) of the lower triangle, T per dimension, after those that it needs.

    With a width the order goes by panels of this many columns, and within a panel by groups of
    rows, `height` each, or all. The operands of a group of rows then serve all columns of the
    panel: a memory of M tiles moves about T³/(6 width) tiles instead of T³/6.

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


def looking_ahead(tiles):
    """Yield the tiles column by column, the next diagonal tile in the middle of each column.

    All tiles of a column wait for its diagonal tile, which takes longest: for it, products of FP32
    and FP64 tiles are computed in FP64.

    Examples
    --------
    >>> list(looking_ahead(4))
    [(0, 0), (1, 0), (2, 0), (1, 1), (3, 0), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3)]
    """
    if tiles:
        yield 0, 0
    for k in range(tiles - 1):
        middle = (k + tiles) // 2
        for i in range(k + 1, tiles):
            yield i, k
            if i == middle:
                yield k + 1, k + 1


def deal(order, devices):
    """Return the tiles of each of p devices: block row i belongs to device i mod p.

    Examples
    --------
    >>> deal(left_looking(3), 2)
    [[(0, 0), (2, 0), (2, 1), (2, 2)], [(1, 0), (1, 1)]]
    """
    hands = [[] for _ in range(devices)]
    for i, k in order:
        hands[i % devices].append((i, k))
    return hands


# Operations on a tile.


def working_format(form):
    """Return the format in which a tile is computed: FP64 for an FP64 tile, else FP32."""
    return FP64 if form is FP64 else FP32


def update_tile(tile, updates, columns=0):
    """Subtract products L_ij L_kj' from A_ik in the order given; A_ik is overwritten.

    `updates` are pairs (L_ij, L_kj), on a GPU optionally with a factor; see `mixed.gemm`.
    """
    if isinstance(tile, Sum):
        tile.subtract(updates)
        return tile
    by_format = groupby(updates, key=lambda pair: arithmetic(tile, *pair[:2]))
    for form, pairs in by_format:
        # A_ik <- A_ik - Σ_j L_ij L_kj', adjacent products of one format in one accumulation
        tile = gemm(tile, pairs, form, columns)
    return tile


def finish_tile(tile, updates, diagonal=None, form=FP32, columns=0):
    """Compute L_ik from A_ik, which is overwritten, and from final tiles.

    `diagonal` returns L_kk and is called after all updates; a diagonal tile has none. A GPU
    multiplies in `form` during the solve, see `mixed.trsm`, and sums `columns` columns at
    once, see `mixed.columns_of_sum`. Raises `NotPositiveDefinite` if a
    diagonal tile has no Cholesky factor.
    """
    tile = update_tile(tile, updates, columns)
    if diagonal is None:
        # L_kk <- chol(A_kk)
        return potrf(tile)
    # L_ik <- A_ik L_kk⁻'
    return trsm(tile, diagonal(), form, columns=columns)


def solved_in(formats, layout, i, k):
    """Return the format in which a GPU multiplies while it solves for tile (i, k).

    FP32 where the formats promise an error so small that errors of coarse solves could exceed it:
    these are 2^-39 in each entry of a matrix whose diagonal is near 1. Otherwise the tile's own, in
    planes where `mixed.columns_of_sum` says so.
    """
    form, promised = formats[i, k], formats.error
    if form is not FP64 and promised is not None and promised < 2.0**-36 * layout.n**0.5:
        return FP32
    columns = columns_of_sum(formats)
    return in_planes(columns) if form is FP32 and columns else form


def finish(store, i, k):
    """Compute the final value of tile (i, k) of a store."""
    tile = store.original(i, k)

    def pairs():
        if isinstance(tile, Sum):
            # a sum is compressed after its last update, so that it can wait for the whole row
            left = store.row(i, k)
            yield from zip(left, left if i == k else store.row(k, k), strict=True)
            return
        for j in range(k):
            left = store.final(i, j)
            # one and the same tile for a diagonal tile: its update is a syrk
            yield left, left if i == k else store.final(k, j)

    diagonal = None if i == k else lambda: store.final(k, k)
    form, columns = solved_in(store.formats, store.layout, i, k), columns_of_sum(store.formats)
    store.write(i, k, finish_tile(tile, pairs(), diagonal, form, columns))


# Threads.


class Stopped(Exception):
    """Another thread has failed."""


def run(store, tiles, threads=None, finish=finish):
    """Finish tiles of a store, each listed after those that it needs, with a thread per worker.

    See `Store.workers`; by default one for each usable core. A worker finishes a tile by
    `finish(worker, i, k)`. Raises `NotPositiveDefinite` if a diagonal tile has no factor.
    """
    tiles = list(tiles)
    with blas_threads(0), store.workers(tiles, threads or usable_cores()) as workers:
        if len(workers) == 1 and not workers[0][0].locks:
            _finish_all(*workers[0], finish)
            return
        failures = []

        @working_for
        def work(worker, mine):
            try:
                _finish_all(worker, mine, finish)
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


def _finish_all(worker, tiles, finish):
    try:
        with blas.one_core(), worker.inside():
            for tile in tiles:
                if worker.error:
                    return
                finish(worker, *tile)
    finally:
        release()


def _start_on_new_threads(work, workers):
    """Start a thread for each worker; return functions that wait for them."""
    threads = [
        Thread(target=work, args=worker, name=f"tiles-{t}") for t, worker in enumerate(workers)
    ]
    for thread in threads:
        thread.start()
    return [thread.join for thread in threads]


def _start_on_kept_threads(work, workers):
    """Start a kept thread for each worker of a GPU; return functions that wait for them."""
    # CuPy gives each thread its own handles of cuBLAS and cuSOLVER, and creating these takes longer
    # than many factorizations
    return [in_kept_thread(partial(work, *worker)) for worker in workers]


# Factorization.


def promote(store, k, run):
    """Compute block row k one level finer from the final columns before k; count changed tiles."""
    changed = store.promote(k)
    for j in range(k):
        store.forget(k, j)
    run(store, [(k, j) for j in range(k)])
    return changed


def factorize(store, order=None, run=None):
    """Factor the matrix of a store, in finer formats where a diagonal tile fails.

    Another order than `store.order()`, and another function than `Store.run`, give the same bits.
    Returns the number of promoted tiles. Raises `NotPositiveDefinite` if a diagonal tile fails
    again after its block row was promoted, or no tile of the row can be promoted.
    """
    order, run = list(order or store.order()), run or type(store).run
    promoted, tried = 0, set(store.promoted)
    while True:
        try:
            run(store, [tile for tile in order if not store.has(*tile)])
            return promoted
        except NotPositiveDefinite as error:
            order_in_tile = error.order or 1
        # outside `except`: there the error's traceback keeps the memory of the failed run alive;
        # a diagonal tile fails only when all tiles before it in its row are final
        k = next(k for k in range(len(store.formats)) if not store.has(k, k))
        changed = 0 if k in tried else promote(store, k, run)
        if not changed:
            minor = k * store.layout.tile + order_in_tile
            raise NotPositiveDefinite(f"the leading minor of order {minor} is not positive", minor)
        tried.add(k)
        promoted += changed
