"""Tiles on the workers of a Dask cluster: task schedule, store and factor.

Block row i belongs to the worker of slot i mod p, which generates, finishes and keeps its tiles. A
task computes a piece of a tile. The worker has the tiles of its own row already; those of block row
k travel in their own formats when they are final, once to each worker that has a row below. They
travel under names of their own, released with column k: of copies under one name Dask would keep
any one, not the owner's. An unfinished tile, an array or a `low_rank.Sum`, never travels.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from ..errors import NotEnoughMemory, NotPositiveDefinite
from ..linalg import recursive
from ..linalg.backend import backend_of, device_of
from ..linalg.formats import FP64, aligned
from ..linalg.low_rank import LowRankTile
from ..linalg.mixed import columns_of_sum
from ..runtime.dask import WorkerLost, itself
from ..runtime.devices import free_memory, human_bytes, pinned
from ..runtime.progress import tell
from .assemble import Originals
from .cholesky import finish_tile, solved_in, update_tile
from .factor import Factor, TileFactor, add_product, on_host, product
from .stores import Store, in_format, original, readable

# Schedule: which products of a tile are one task, and in which order.
#
# With one task per tile, a task cannot begin before all its operands are final: column after column
# waits for k products of L_k+1,k and k of the diagonal tile below it, and no more than about T/4.5
# threads are busy. With depths d_1 > d_2 > … a tile has several tasks, its pieces, each continuing
# the one before: a piece makes the products with the columns up to k - d_1 as soon as these are
# final, the next one those up to k - d_2, and the last one the rest and the solve or the factor.
# Each number sees the same operations in the same order.
#
#     columns    0 … k-d_1 | … k-d_2 | … k      of row i, and of row k; L_kk
#     tasks      piece 1   | piece 2 | last

DEPTHS_BY_THREAD_SHARE = ((1.0, (16, 2)), (0.25, (3,)), (0.05, (1,)))
"""(share, depths): depths for more threads than this share of the number of block rows."""


class Piece(NamedTuple):
    """A task on tile (i, k): products L_ij L_kj' with begin <= j < end."""

    i: int
    k: int
    begin: int
    end: int
    # whether the tile is final afterwards
    last: bool


def pieces(tiles, depths=()):
    """Yield all pieces, each after those that it needs; pieces that others wait for come first.

    There are T tiles per dimension. Depths decrease to 1 at least; without any, a tile is one task.

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
            # all later columns wait for the next diagonal tile
            yield _last(k + 1, k, depths)
            yield _last(k + 1, k + 1, depths)
        for i in range(k + 2, tiles):
            yield _last(i, k, depths)
        # pieces that can begin now that column k is final; the most urgent first
        for s in reversed(range(len(depths))):
            column = k + 1 + depths[s]
            begin = max(0, column - depths[s - 1]) if s else 0
            for i in range(column, tiles):
                yield Piece(i, column, begin, k + 1, False)


def _last(i, k, depths):
    return Piece(i, k, max(0, k - depths[-1]) if depths else 0, k, True)


def useful_depths(threads, tiles):
    """Return the depths that keep a number of threads busy; later ones need less memory.

    From simulations of 4 to 64 nodes (experiments/cluster): up to T/20 threads one task per tile is
    as fast; two tasks serve up to T threads of all workers together, and three tasks more.
    """
    return [depths for share, depths in DEPTHS_BY_THREAD_SHARE if threads > max(1, share * tiles)]


def depths_for(threads, tiles):
    """Return the depths that keep a number of threads busy with the fewest tasks.

    Examples
    --------
    >>> depths_for(1, 12), depths_for(4, 12), depths_for(1024, 200)
    ((), (3,), (16, 2))
    """
    return next(iter(useful_depths(threads, tiles)), ())


def columns_ahead(depths):
    """Return the largest number of begun and unfinished tiles of a block row."""
    return depths[0] + 1 if depths else 0


def share(rows, slots, depths, block):
    """Return the bytes that each slot holds at most: its rows, other rows, unfinished tiles.

    `rows` are the bytes of each block row, `block` those of an unfinished tile.
    """
    # a piece of each of these columns may be running, and each reads another row
    ahead = columns_ahead(depths)
    foreign = sum(sorted(rows)[-(1 + ahead) :])
    begun = [ahead * block * len(rows[slot::slots]) for slot in range(slots)]
    return [sum(rows[slot::slots]) + foreign + begun[slot] for slot in range(slots)]


# Store.

MOST_UNFINISHED_TILE_TASKS = 2000
"""Unfinished tasks that the scheduler holds at most: each one costs it time."""

WORKING_TILES = 4
"""FP64 tiles that a task needs beside its operands: the accumulator and widened operands."""


@pinned()
def _row_squares(originals, i):
    """Return the squared norms of block row i."""
    return originals.squares([(i, k) for k in range(i + 1)])


@pinned()
def work_on(originals, formats, piece, row, upper=None, begun=None):
    """Run a piece on a worker: return L_ik if it is the last one, else the unfinished array.

    `row` has L_ij for begin <= j < end, and `upper`, below the diagonal, L_kj, followed by L_kk for
    the last piece; `begun` is the result of the piece before. Where a diagonal tile has failed, the
    result is its `NotPositiveDefinite`, also of all tasks that depend on it.
    """
    for tile in (*row, *(upper or ()), begun):
        if isinstance(tile, NotPositiveDefinite):
            return tile
    i, k, begin, _, last = piece
    lefts = [readable(formats, i, j, tile) for j, tile in enumerate(row, begin)]
    rights, diagonal = lefts, None
    if i > k:
        rights = [readable(formats, k, j, tile) for j, tile in enumerate(upper, begin)]
        diagonal = partial(itself, rights.pop()) if last else None
    pairs = zip(lefts, rights, strict=True)
    # a copy: Dask may repeat this task with the same operand
    array = original(originals, formats, i, k) if begun is None else begun.copy(order="F")
    columns = columns_of_sum(formats)
    if not last:
        return update_tile(array, pairs, columns)
    try:
        form = solved_in(formats, originals.layout, i, k)
        array = finish_tile(array, pairs, diagonal, form, columns)
    except NotPositiveDefinite as error:
        # if it were raised here, the worker would log it with a traceback
        return error.with_traceback(None)
    return in_format(formats, i, k, array)


def _failures(diagonal):
    """Return {k: NotPositiveDefinite} of those diagonal tiles {k: L_kk} that have no factor."""
    return {k: tile for k, tile in diagonal.items() if isinstance(tile, NotPositiveDefinite)}


class DaskOriginals:
    """`geomxp.tiles.assemble.Originals` on every worker of a cluster."""

    def __init__(self, backend, model, locations, metric, layout):
        local = Originals(model, locations, metric, layout)
        self.model, self.exponent, self.layout = local.model, local.exponent, layout
        self.source, self.noise, self.backend = local.source, local.noise, backend
        # a worker uses the first of its GPUs
        self._arguments = *local.source, 0 if backend.gpu else None
        self._futures = {}

    def check_memory(self):
        """Raise `NotEnoughMemory` if the tiles do not fit on the workers in any format."""
        n, p = self.layout.n, len(self.backend)
        # an entry takes at least one byte
        self.backend.check_memory([n**2 // (2 * p)] * p)

    def on(self, slot):
        """Return the future of the `Originals` on the worker of a slot."""
        at = self.backend.slots[slot % len(self.backend)]
        if at not in self._futures or self._futures[at].status in ("lost", "cancelled"):
            self._futures[at] = self.backend.submit(slot, Originals, *self._arguments)
        return self._futures[at]

    def norms(self):
        """Return the Frobenius norms of all tiles, (T, T), zeros above the diagonal."""
        tiles = self.layout.tiles

        def submit():
            return [self.backend.submit(i, _row_squares, self.on(i), i) for i in range(tiles)]

        squares = np.zeros((tiles, tiles))
        for i, row in enumerate(self.backend.collect(submit, things="rows of norms")):
            squares[i, : i + 1] = row
        return np.sqrt(squares)


class DaskStore(Store):
    """Tiles as futures on the workers; see `Store`. `original` and `write` run inside the tasks.

    Raises `NotEnoughMemory` if a worker's memory is too small for its part.
    """

    def __init__(self, originals, formats):
        super().__init__(originals, formats)
        self.backend = originals.backend
        self._futures, self._maps = {}, {}
        # unfinished tiles, and parts of rows that travel, until their readers are submitted
        self._begun, self._upper = {}, {}
        self.depths = self._affordable()

    def _affordable(self):
        """Return the depths for these workers, or the largest that their memory allows."""
        rows, p, block = self._row_bytes(), len(self.backend), FP64.bytes * self.layout.tile**2
        self.backend.check_memory(share(rows, p, (), block), WORKING_TILES * block)
        if self.formats.tolerances is not None:
            # a piece would only take note of products, and hold them
            return ()
        for depths in useful_depths(self.backend.threads, self.layout.tiles):
            if self.backend.has_room(share(rows, p, depths, block), WORKING_TILES * block):
                return depths
        return ()

    def _row_bytes(self):
        """Return the bytes of each block row."""
        tiles = range(self.layout.tiles)
        return [
            sum(self.formats.tile_bytes(self.layout, i, k) for k in range(i + 1)) for i in tiles
        ]

    def traffic(self):
        """Return the bytes that travel in a factorization.

        L_kj travels to each worker that has a row below k.
        """
        p, tiles = len(self.backend), self.layout.tiles
        total = 0
        for k, held in enumerate(self._row_bytes()):
            readers = {i % p for i in range(k + 1, min(tiles, k + 1 + p))} - {k % p}
            total += held * len(readers)
        return total

    def has(self, i, k):
        """Return whether tile (i, k) is final and not lost."""
        future = self._futures.get((i, k))
        return future is not None and future.status == "finished"

    def final(self, i, k):
        """Return L_ik, transferred to this process."""
        return self.collect(lambda: [self.future(i, k)])[0]

    def future(self, i, k):
        """Return the future of L_ik."""
        return self._futures[i, k]

    def factor(self, order, promotions):
        """Return the factor of the complete store; see `Store`."""
        self.found = self.final_formats()
        return DaskFactor(self, order, promotions)

    def ranks(self):
        """Return {(i, k): rank} of the tiles of low rank."""

        def submit():
            return [
                self.backend.submit(i, _ranks, [self.future(i, k) for k in range(i)])
                for i in range(self.layout.tiles)
            ]

        rows = self.collect(submit)
        return {(i, k): rank for i, row in enumerate(rows) for k, rank in enumerate(row) if rank}

    def promote(self, k):
        """Give block row k finer formats; return the number of tiles that changed."""
        self._maps.clear()
        return super().promote(k)

    def forget(self, i, k):
        """Discard tile (i, k): it will be computed again."""
        del self._futures[i, k]

    def close(self):
        """Discard all tiles."""
        for futures in (self._futures, self._maps, self._begun, self._upper):
            futures.clear()

    def run(self, tiles):
        """Finish some tiles, and compute lost ones again, until all are final."""
        wanted, unchecked = set(tiles) | set(self._futures), set()
        try:
            while True:
                missing = [tile for tile in self.order() if tile in wanted and not self.has(*tile)]
                unchecked |= {k for i, k in missing if i == k}
                if not missing and not unchecked:
                    return
                try:
                    self._finish_once(missing)
                    self._raise_failure(unchecked)
                    unchecked.clear()
                except WorkerLost:
                    self.backend.replace()
        except BaseException:
            # forget tasks whose operands will never be computed
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
        report = partial(tell, total=len(tiles), things="tiles")
        plan = [p for p in pieces(self.layout.tiles, self.depths) if (p.i, p.k) in missing]
        for begin in range(0, len(plan), MOST_UNFINISHED_TILE_TASKS):
            for number, piece in enumerate(plan[begin : begin + MOST_UNFINISHED_TILE_TASKS], begin):
                future = self._submit(piece, number)
                if piece.last:
                    final.append(future)
            last = begin + MOST_UNFINISHED_TILE_TASKS >= len(plan)
            if last:
                self._upper.clear()
            most = 0 if last else MOST_UNFINISHED_TILE_TASKS // 2 // (1 + len(self.depths))
            self.backend.wait(final, most, self._held, report)

    def _raise_failure(self, columns):
        """Raise the first failure of these diagonal tiles, and forget the tiles after it."""
        p, groups = len(self.backend), {}
        for k in columns:
            groups.setdefault(k % p, {})[k] = self._futures[k, k]
        tasks = [self.backend.submit(slot, _failures, group) for slot, group in groups.items()]
        self.backend.wait(tasks, held=self._held)
        failures = {k: e for group in self.backend.gather(tasks) for k, e in group.items()}
        if failures:
            first = min(failures)
            self._futures = {tile: f for tile, f in self._futures.items() if tile[1] < first}
            raise failures[first]

    def _submit(self, piece, number):
        """Return the future of a piece; `number` is its position in the schedule."""
        i, k, begin, end, last = piece
        at, final = self.backend.slots[i % len(self.backend)], self._futures
        if at not in self._maps or self._maps[at].status in ("lost", "cancelled"):
            self._maps[at] = self.backend.submit(i, itself, self.formats)
        row = [final[i, j] for j in range(begin, end)]
        upper = self._row_above(piece, number) if i > k else None
        operands = self.originals.on(i), self._maps[at], piece, row, upper
        begun = self._begun.pop((i, k), None)
        future = self.backend.submit(i, work_on, *operands, begun, priority=-number)
        (final if last else self._begun)[i, k] = future
        return future

    def _row_above(self, piece, number):
        """Return the future of the tiles of row k that a piece reads, one for all rows below."""
        _, k, begin, end, last = piece
        # pieces of one depth are submitted column by column
        column, future = self._upper.get(k - end, (None, None))
        if column != k:
            row = [self._futures[k, j] for j in range(begin, end + last)]
            future = self.backend.submit(k, list, row, priority=-number)
            self._upper[k - end] = k, future
        return future

    def _held(self):
        return list(self._futures.values())

    def collect(self, submit, things="block rows"):
        """Return the results of tasks that read the tiles; see `DaskBackend.collect`."""
        return self.backend.collect(submit, lambda: self.run(()), self._held, things)


# Factor: what statistics asks of L, computed on the workers.

BACKWARD_PANEL_COLUMNS = 64
"""Right-hand sides of one backward substitution, whose partial sums travel: a block per tile."""


def _operand(matrix, y):
    """Return a vector on the device of a matrix; vectors travel as NumPy arrays."""
    return backend_of(matrix).put(aligned(y), matrix)


def _solved(diagonal, y, transposed=False):
    """Return L_kk⁻¹y, or L_kk⁻'y."""
    lower = diagonal.widen()
    return on_host(recursive.trsm(lower, _operand(lower, y), transposed=transposed))


def _transposed_product(tile, x):
    """Return A'X for a tile A."""
    with device_of(tile.values):
        x = _operand(tile.values, x)
        if isinstance(tile, LowRankTile):
            return tile.v @ (tile.values.T @ x)
        return on_host(product(tile, x, transposed=True))


def _with_product(block, tile, x, alpha):
    """Return B + αAX for a tile A and α of 1 or -1, with the bits of `TileFactor`."""
    with device_of(tile.values):
        block = _operand(tile.values, np.array(block, order="F"))
        add_product(block, tile, _operand(tile.values, x), alpha)
        return on_host(block)


@pinned()
def _ranks(row):
    """Return the ranks of tiles, 0 of dense ones."""
    return [tile.rank if isinstance(tile, LowRankTile) else 0 for tile in row]


@pinned()
def _log_diagonal(tile):
    """Return Σ log L_ii of a diagonal tile."""
    return float(np.log(on_host(tile.widen().diagonal())).sum())


@pinned()
def _forward(diagonal, rest, j):
    """Return y_j = L_jj⁻¹ (b_j - Σ_{k<j} L_jk y_k); rest[j] is the bracket."""
    return _solved(diagonal, rest[j])


@pinned()
def _subtract(rest, y, below):
    """Return {i: b_i - … - L_ij y_j} of one worker; `below` has the tiles {i: L_ij}."""
    return {i: _with_product(rest[i], tile, y, -1.0) for i, tile in below.items()}


@pinned()
def _backward(diagonal, y, unit, i, sums):
    """Return x_i = L_ii⁻' (y_i - Σ_{k>i} L_ki' x_k); `sums` has the terms of the sum."""
    y = y / unit
    for terms in sums:
        y = y - terms[i]
    return _solved(diagonal, y, transposed=True)


@pinned()
def _terms(x, row):
    """Return {j: L_ij' x_i} for some tiles of block row i."""
    return {j: _transposed_product(tile, x) for j, tile in row.items()}


@pinned()
def _times(row, x):
    """Return Σ_j L_ij x_j."""
    y = np.zeros((row[0].shape[0], x[0].shape[1]), order="F")
    for j, tile in enumerate(row):
        y = _with_product(y, tile, x[j], 1.0)
    return y


class DaskFactor(TileFactor):
    """Σ = 4^e L L' with the tiles of L on the workers of a cluster; see `TileFactor`.

    Each number sees the operations of `TileFactor` in the same order; in `solve` products with
    tiles of low rank are rounded before they are subtracted.
    """

    def _logs(self):
        submit, tile = self.store.backend.submit, self.store.future
        blocks = range(self.store.layout.tiles)
        return self.store.collect(lambda: [submit(i, _log_diagonal, tile(i, i)) for i in blocks])

    def half_solve(self, b):
        """Return L⁻¹b, rows in the factor's order, for (n,) or (n, m)."""
        blocks = self._blocks(self._sorted(on_host(b)))
        half = self.store.collect(lambda: self._half_solved(blocks))
        return np.asfortranarray(np.vstack(half)).reshape(b.shape, order="A")

    # tiles are in other processes, to which b goes from the host
    whiten = Factor.whiten

    def solve(self, b):
        """Return Σ⁻¹b for (n,) or (n, m)."""
        y = self._sorted(on_host(b))
        panels = []
        for first in range(0, y.shape[1], BACKWARD_PANEL_COLUMNS):
            blocks = self._blocks(y[:, first : first + BACKWARD_PANEL_COLUMNS])
            panels.append(np.vstack(self.store.collect(lambda b=blocks: self._solved(b))))
        x = np.hstack(panels) if panels else y
        return self._unsorted(x).reshape(b.shape, order="A")

    def multiply(self, x):
        """Return L x for (n, m), rows in the order of the locations."""
        backend, tile = self.store.backend, self.store.future
        parts, p = self._blocks(np.asfortranarray(x)), len(backend)

        def products():
            copies = [backend.submit(slot, itself, parts) for slot in range(p)]
            return [
                backend.submit(i, _times, [tile(i, j) for j in range(i + 1)], copies[i % p])
                for i in range(len(parts))
            ]

        return self._unsorted(self._unit * np.vstack(self.store.collect(products)))

    def dense(self, index=None, dtype=np.float64):
        """Return L as one array in this process; `NotEnoughMemory` if it does not fit."""
        layout = self.store.layout
        needed, free = np.dtype(dtype).itemsize * layout.n**2, free_memory()
        if needed > free:
            raise NotEnoughMemory(
                f"the factor of {layout.n:,} locations as one array needs {human_bytes(needed)} of "
                f"this process's memory, {human_bytes(free)} free: it stays on the cluster."
            )
        return super().dense(index, dtype)

    def _row(self, i):
        return self.store.collect(lambda: [self.store.future(i, j) for j in range(i + 1)])

    def _blocks(self, y):
        layout = self.store.layout
        return [np.asfortranarray(y[layout.rows(i)]) for i in range(layout.tiles)]

    def _beside(self, b):
        return b

    def _half_solved(self, blocks):
        """Return the futures of the blocks of y = L⁻¹b.

        As soon as y_j is known, each worker subtracts L_ij y_j from all its rows below.
        """
        backend, tile, tiles = self.store.backend, self.store.future, len(blocks)
        submit, p = backend.submit, len(backend)
        # leading zeros stay zeros
        start = next((i for i in range(tiles) if blocks[i].any()), tiles)
        y = [submit(i, itself, blocks[i]) for i in range(start)]
        rest = [
            submit(slot, itself, {i: blocks[i] for i in range(start, tiles) if i % p == slot})
            for slot in range(p)
        ]
        for j in range(start, tiles):
            y.append(submit(j, _forward, tile(j, j), rest[j % p], j))
            # the owner of the next row first
            for slot in range(j + 1, min(j + 1 + p, tiles)):
                below = {i: tile(i, j) for i in range(slot, tiles, p)}
                rest[slot % p] = submit(slot, _subtract, rest[slot % p], y[j], below)
        return y

    def _solved(self, blocks):
        """Return the futures of the blocks of x = L⁻'L⁻¹b."""
        backend, tile, tiles = self.store.backend, self.store.future, len(blocks)
        submit, p = backend.submit, len(backend)
        y, x = self._half_solved(blocks), [None] * tiles
        sums = [[] for _ in range(tiles)]
        for i in reversed(range(tiles)):
            x[i] = submit(i, _backward, tile(i, i), y[i], self._unit, i, sums[i])
            # the owner of the next row first
            for slot in range(i - 1, max(i - 1 - p, -1), -1):
                mine = range(slot, -1, -p)
                terms = submit(i, _terms, x[i], {j: tile(i, j) for j in mine})
                for j in mine:
                    sums[j].append(terms)
        return x
