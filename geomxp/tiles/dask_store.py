"""The tasks of a factorization on a cluster: which products of a tile are one task, in which order.

One task a tile cannot begin before all that the tile reads is final, so that column after column
waits for k products of L_k+1,k and k of the diagonal tile below it: no more than about T/4.5
threads are of use. With depths d_1 > d_2 > … a tile has several tasks, its pieces, one upon the
other: a piece makes the products with the columns up to k - d_1 as soon as these are final, while
d_1 columns before k are at work, the next one those up to k - d_2, and the last one the rest and
the solve or the factor. Each number sees the same operations in the same order.

    columns    0 … k-d_1 | … k-d_2 | … k      of row i, and of row k; L_kk
    tasks      piece 1   | piece 2 | last
"""

from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import NamedTuple

import numpy as np

from ..errors import NotPositiveDefinite
from ..linalg import blas
from ..linalg.formats import FP64
from ..runtime.dask import WorkerLost
from ..runtime.devices import SMALL, at_most, blas_threads
from ..runtime.progress import tell
from .assemble import Originals
from .cholesky import finish_tile, update_tile
from .layout import left_looking
from .out_of_core import readable
from .stores import in_format, original, solved_in

LADDER = ((1.0, (16, 2)), (0.25, (3,)), (0.05, (1,)))
"""(share, depths): what more threads than this share of the block rows need."""


class Piece(NamedTuple):
    """Some of the work on tile (i, k): products with the columns from begin to end.

    Parameters
    ----------
    i, k : int
    begin, end : int
        L_ij and L_kj with begin <= j < end.
    last : bool
        Whether the tile is final then.
    """

    i: int
    k: int
    begin: int
    end: int
    last: bool


def pieces(tiles, depths=()):
    """Yield all pieces, each after those that it needs, what others wait for before the rest.

    Parameters
    ----------
    tiles : int
        Tiles per dimension.
    depths : tuple of int
        Falling, from 1 on; one task a tile if empty.

    Examples
    --------
    >>> [(i, k) for i, k, *_ in pieces(3)]
    [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
    >>> [piece for piece in pieces(4, (1,)) if piece.k == 2 and piece.i == 3]
    [Piece(i=3, k=2, begin=0, end=1, last=False), Piece(i=3, k=2, begin=1, end=2, last=True)]
    """
    yield Piece(0, 0, 0, 0, True)
    for k in range(tiles):
        if k + 1 < tiles:
            # the next diagonal tile: all columns after it wait for it
            yield _last(k + 1, k, depths)
            yield _last(k + 1, k + 1, depths)
        for i in range(k + 2, tiles):
            yield _last(i, k, depths)
        # what can begin now that column k is final; what is needed first comes first
        for s in reversed(range(len(depths))):
            column = k + 1 + depths[s]
            begin = max(0, column - depths[s - 1]) if s else 0
            for i in range(column, tiles):
                yield Piece(i, column, begin, k + 1, False)


def _last(i, k, depths):
    return Piece(i, k, max(0, k - depths[-1]) if depths else 0, k, True)


def depths_for(threads, tiles):
    """Return the depths that keep so many threads at work, with no more tasks than that needs.

    From simulations of 4 to 64 nodes (experiments/cluster): below a twentieth of T threads one task
    a tile is as fast; two tasks serve as many threads as there are block rows, and three more.

    Parameters
    ----------
    threads : int
        Of all workers together.
    tiles : int
        Tiles per dimension.

    Examples
    --------
    >>> depths_for(1, 12), depths_for(4, 12), depths_for(1024, 200)
    ((), (3,), (16, 2))
    """
    if threads > 1:
        for share, depths in LADDER:
            if threads > share * tiles:
                return depths
    return ()


def columns_ahead(depths):
    """Return of how many columns a block row has tiles at most that are begun and not final."""
    return depths[0] + 1 if depths else 0


def shallower(depths):
    """Return the depths that need less memory, from the next to none at all."""
    known = [step for _, step in LADDER] + [()]
    return known[known.index(depths) + 1 :]


def share(rows, slots, depths, block):
    """Return what each slot holds at most: its rows, rows of others, and tiles that are begun.

    Parameters
    ----------
    rows : sequence of int
        Bytes of each block row.
    slots : int
    depths : tuple of int
    block : int
        Bytes of a tile that is worked on.

    Returns
    -------
    list of int
    """
    # a piece of each of these columns may be at work, and each reads another row
    ahead = columns_ahead(depths)
    foreign = sum(sorted(rows)[-(1 + ahead) :])
    begun = [ahead * block * len(rows[slot::slots]) for slot in range(slots)]
    return [sum(rows[slot::slots]) + foreign + begun[slot] for slot in range(slots)]


# Tiles on the workers of a cluster: generated there, finished there, and kept there.
#
# Block row i belongs to the worker in slot i mod p. A task makes a piece of a tile
# (`cluster_plan`); of what it reads, the row's own tiles are there already, and those of block
# row k travel, in their own formats, when they are final: once to each worker that has a row
# below. They travel under names of their own, given up with column k: of copies under one name
# Dask would keep any, not the owner's. A tile that is begun is one array, which never travels.


AHEAD = 2000
"""Tasks that the scheduler is given before they are done: it pays for each that it knows."""

BLOCKS = 4
"""FP64 tiles that a task needs beside what it reads: the accumulator, and operands widened."""


class _Pinned:
    """Some cores for a task, one if not said: BLAS's limit is the process's, lifted by the last."""

    def __init__(self):
        self._lock, self._count, self._limit = Lock(), 0, None

    @contextmanager
    def __call__(self, cores=1):
        with at_most(cores):
            with self._lock:
                self._count += 1
                if self._count == 1:
                    self._limit = blas_threads(SMALL)
                    self._limit.__enter__()
            try:
                with blas.cores(cores):
                    yield
            finally:
                with self._lock:
                    self._count -= 1
                    if not self._count:
                        self._limit.__exit__(None, None, None)


pinned = _Pinned()
"""Encloses what a task computes: a worker has a thread for each core that it may use."""


def _originals(*about):
    return Originals(*about)


def _row_squares(originals, i):
    """Return the squared norms of block row i."""
    with pinned():
        return [originals.square(i, k) for k in range(i + 1)]


def _work(originals, formats, piece, row, upper=None, begun=None):
    """Return what a piece makes of a tile: `update_tile` or `finish_tile` on what a worker has.

    Parameters
    ----------
    originals : Originals
    formats : PrecisionMap
    piece : Piece
    row : list of Tile
        L_ij for begin <= j < end.
    upper : list of Tile, optional
        L_kj, below the diagonal; L_kk after them for the last piece.
    begun : array, optional
        What the piece before has returned.

    Returns
    -------
    array or Tile
        L_ik if the piece is the last one; or the `NotPositiveDefinite` of a diagonal tile, for
        all that depends on it.
    """
    for tile in (*row, *(upper or ()), begun):
        if isinstance(tile, NotPositiveDefinite):
            return tile
    i, k, begin, _, last = piece
    with pinned():
        lefts = [readable(formats, i, j, tile) for j, tile in enumerate(row, begin)]
        rights, diagonal = lefts, None
        if i > k:
            rights = [readable(formats, k, j, tile) for j, tile in enumerate(upper, begin)]
            diagonal = partial(_itself, rights.pop()) if last else None
        pairs = zip(lefts, rights, strict=True)
        # a copy: Dask may ask for what it has once more
        array = original(originals, formats, i, k) if begun is None else begun.copy(order="F")
        if not last:
            return update_tile(array, pairs)
        try:
            form = solved_in(formats, originals.layout, i, k)
            array = finish_tile(array, pairs, diagonal, form)
        except NotPositiveDefinite as error:
            # raised here it would stand in the worker's log, with a traceback
            return error.with_traceback(None)
        return in_format(formats, i, k, array)


def _failures(diagonal):
    """Return {k: NotPositiveDefinite} of those diagonal tiles that have no factor.

    Parameters
    ----------
    diagonal : dict of int to Tile
    """
    return {k: tile for k, tile in diagonal.items() if isinstance(tile, NotPositiveDefinite)}


def _itself(value):
    return value


def _tell(total, done):
    tell(done, total, "tiles")


class Spread:
    """`geomxp.tiles.assemble.Originals` on every worker of a crew.

    Parameters
    ----------
    crew : Crew
    model, locations, metric, layout
        See `Originals`.

    Attributes
    ----------
    model, exponent, layout
        As those of `Originals`.

    Raises
    ------
    NotEnoughMemory
        If the tiles do not fit on the workers in any format.
    """

    def __init__(self, crew, model, locations, metric, layout):
        here = Originals(model, locations, metric, layout)
        self.model, self.exponent, self.layout = here.model, here.exponent, layout
        self.crew = crew
        # of a worker's GPUs its first
        self._about = model, locations, metric, layout, 0 if crew.gpu else None
        self._there = {}
        # no format has less than a byte
        crew.check_memory([layout.n**2 // (2 * len(crew))] * len(crew))

    def on(self, slot):
        """Return the future of what generates tiles on the worker in a slot."""
        at = self.crew.slots[slot % len(self.crew)]
        if at not in self._there or self._there[at].status in ("lost", "cancelled"):
            self._there[at] = self.crew.submit(slot, _originals, *self._about)
        return self._there[at]

    def norms(self):
        """Return the Frobenius norms of all tiles, (T, T), zeros above the diagonal."""
        tiles = self.layout.tiles

        def submit():
            return [self.crew.submit(i, _row_squares, self.on(i), i) for i in range(tiles)]

        squares = np.zeros((tiles, tiles))
        for i, row in enumerate(self.crew.collect(submit, things="rows of norms")):
            squares[i, : i + 1] = row
        return np.sqrt(squares)


class OnCluster:
    """The store whose tiles are futures.

    Parameters
    ----------
    originals : Spread
    formats : PrecisionMap

    Raises
    ------
    NotEnoughMemory
        If a worker has too little for its part.
    """

    moved = trace = None

    def __init__(self, originals, formats):
        self.originals, self.formats, self.layout = originals, formats, originals.layout
        self.crew = originals.crew
        self.promoted = set()
        self._futures, self._maps = {}, {}
        # tiles that are begun, and what travels of the rows above: until their readers are known
        self._begun, self._upper = {}, {}
        self.depths = self._affordable()

    def _affordable(self):
        """Return the depths of the plan: those for this crew, or what its memory lets it have."""
        rows, p, block = self._row_bytes(), len(self.crew), FP64.bytes * self.layout.tile**2
        self.crew.check_memory(share(rows, p, (), block), BLOCKS * block)
        wanted = depths_for(self.crew.threads, self.layout.tiles)
        for depths in (wanted, *shallower(wanted)) if wanted else ():
            if self.crew.has_room(share(rows, p, depths, block), BLOCKS * block):
                return depths
        return ()

    def _row_bytes(self):
        """Return the bytes of each block row."""
        height = self.layout.height
        return [
            sum(form.bytes * height(i) * height(k) for k, form in enumerate(row))
            for i, row in enumerate(self.formats.rows)
        ]

    @property
    def bytes(self):
        """What the tiles hold in their formats."""
        return self.formats.bytes(self.layout)

    def traffic(self):
        """Return how many bytes travel in a factorization: each tile to those who read it.

        L_kj is read for the rows below k, by each worker that has one of them.
        """
        p, tiles = len(self.crew), self.layout.tiles
        total = 0
        for k, held in enumerate(self._row_bytes()):
            readers = {i % p for i in range(k + 1, min(tiles, k + 1 + p))} - {k % p}
            total += held * len(readers)
        return total

    def order(self):
        """Return the tiles in the order in which they are finished."""
        return left_looking(self.layout.tiles)

    def has(self, i, k):
        """Return whether tile (i, k) is final, and still there."""
        future = self._futures.get((i, k))
        return future is not None and future.status == "finished"

    def future(self, i, k):
        """Return the future of L_ik."""
        return self._futures[i, k]

    def promote(self, k):
        """Give block row k finer formats; return how many tiles that changes."""
        self.formats, changed = self.formats.promote_row(k)
        self._maps.clear()
        return changed

    def forget(self, i, k):
        """Give tile (i, k) up: it will be computed again."""
        del self._futures[i, k]

    def close(self):
        """Give all tiles up."""
        for futures in (self._futures, self._maps, self._begun, self._upper):
            futures.clear()

    leave = close

    def finish(self, tiles):
        """Finish some tiles, and those that are lost, until all are there.

        Parameters
        ----------
        tiles : iterable of (int, int)

        Raises
        ------
        NotPositiveDefinite
        LostCluster
        """
        wanted, unseen = set(tiles) | set(self._futures), set()
        try:
            while True:
                missing = [tile for tile in self.order() if tile in wanted and not self.has(*tile)]
                unseen |= {k for i, k in missing if i == k}
                if not missing and not unseen:
                    return
                try:
                    self._finish_once(missing)
                    self._look_for_failures(unseen)
                    unseen.clear()
                except WorkerLost:
                    self.crew.replace()
        except BaseException:
            # what waits for what will never be
            done = {tile: future for tile, future in self._futures.items() if self.has(*tile)}
            self._futures = done
            self._begun.clear()
            self._upper.clear()
            raise

    def _finish_once(self, tiles):
        for tile in tiles:
            self._futures.pop(tile, None)
        self._begun.clear()
        self._upper.clear()
        missing, final = set(tiles), []
        plan = [p for p in pieces(self.layout.tiles, self.depths) if (p.i, p.k) in missing]
        for begin in range(0, len(plan), AHEAD):
            for number, piece in enumerate(plan[begin : begin + AHEAD], begin):
                future = self._submit(piece, number)
                if piece.last:
                    final.append(future)
            last = begin + AHEAD >= len(plan)
            if last:
                self._upper.clear()
            most = 0 if last else AHEAD // 2 // (1 + len(self.depths))
            self.crew.wait(final, most, self._held, partial(_tell, len(tiles)))

    def _look_for_failures(self, columns):
        """Raise the first failure of these diagonal tiles, without what depends on it."""
        p, hands = len(self.crew), {}
        for k in columns:
            hands.setdefault(k % p, {})[k] = self._futures[k, k]
        tasks = [self.crew.submit(slot, _failures, hand) for slot, hand in hands.items()]
        self.crew.wait(tasks, held=self._held)
        failures = {k: e for found in self.crew.gather(tasks) for k, e in found.items()}
        if failures:
            first = min(failures)
            self._futures = {tile: f for tile, f in self._futures.items() if tile[1] < first}
            raise failures[first]

    def _submit(self, piece, number):
        """Return the future of a piece, the one of this number in the plan."""
        i, k, begin, end, last = piece
        at, final = self.crew.slots[i % len(self.crew)], self._futures
        if at not in self._maps or self._maps[at].status in ("lost", "cancelled"):
            self._maps[at] = self.crew.submit(i, _itself, self.formats)
        row = [final[i, j] for j in range(begin, end)]
        upper = self._row_above(piece, number) if i > k else None
        about = self.originals.on(i), self._maps[at], piece, row, upper
        begun = self._begun.pop((i, k), None)
        future = self.crew.submit(i, _work, *about, begun, priority=-number)
        (final if last else self._begun)[i, k] = future
        return future

    def _row_above(self, piece, number):
        """Return the future of what a piece reads of row k, one for all rows below it."""
        _, k, begin, end, last = piece
        # those of one depth are submitted column after column
        column, future = self._upper.get(k - end, (None, None))
        if column != k:
            row = [self._futures[k, j] for j in range(begin, end + last)]
            future = self.crew.submit(k, list, row, priority=-number)
            self._upper[k - end] = k, future
        return future

    def _held(self):
        return list(self._futures.values())

    def collect(self, submit, things="block rows"):
        """Return the results of tasks that read the tiles; see `Crew.collect`."""
        return self.crew.collect(submit, lambda: self.finish(()), self._held, things)


def run(store, tiles):
    """Finish the tiles of a store on a cluster; see `geomxp.tiles.local.run`."""
    store.finish(tiles)
