"""Cholesky factorization of a matrix that is halved recursively, each block in its own format.

The blocks are those of `linalg.quadtree`, and are computed left-looking:

    A_b <- A_b - Σ L_c L_d'    c: parts left of b in its rows; d: those in the rows of its columns
    L_b <- A_b L_kk⁻'          by halves of b's columns; L_kk is the triangle of these columns

A block is generated once and rounded once. A sum over an inner dimension of up to n is cut where a
block ends, and in a solve at the halves of its columns: one product sums over at most n/4 columns.
Within it BLAS sums in FP32 or FP64, the arithmetic of the product, and the units of a GPU in FP32,
in pieces of `mixed.columns_of_sum` columns where FP32 is two planes. Products are added one after
the other: to FP64 blocks, among them the diagonal, in FP64, and to others in FP32.

Source: the bound of the formats is that of N. J. Higham and T. Mary, Mixed precision algorithms in
numerical linear algebra (2022), section 14, for blocks of different sizes.
"""

from itertools import count
from typing import NamedTuple

import numpy as np

from ..errors import NotPositiveDefinite
from ..linalg.formats import FP32, FP64, Format, Tile
from ..linalg.mixed import columns_of_sum, potrf, trsm
from ..linalg.quadtree import blocks, halves
from ..linalg.recursive import not_positive
from .cholesky import run, solved_in, update_tile, working_format
from .stores import Store, fp32_in_planes, in_format

BLOCKS_ACROSS = 4
"""Blocks have at most n over this many rows: the array of a block in work then takes at most an
eighth of the memory of the lower triangle in FP64, a sixteenth if it is FP32."""


def largest_block_bytes(layout):
    """Return an upper bound of the bytes of a block that is being computed, with its casts."""
    return 16 * (-(-layout.tiles // BLOCKS_ACROSS) * layout.tile) ** 2


class Part(NamedTuple):
    """A block, or final columns of the block in work.

    `number` identifies its tile; `rows` and `columns` are slices of the matrix.
    """

    number: int
    rows: slice
    columns: slice
    form: Format


class Update(NamedTuple):
    """Subtract products of parts from some rows and columns of a block.

    `rows` and `columns` are slices of the block; each pair is (left, right), both
    (part, rows, columns) with slices of the part.
    """

    rows: slice
    columns: slice
    pairs: list


class Round(NamedTuple):
    """Store final columns of a block as a part, for later updates of the same block."""

    columns: slice
    part: Part


class Solve(NamedTuple):
    """Multiply columns of a block by L_kk⁻' for a cell k; on the diagonal, factor it."""

    columns: slice
    k: int


class Tree(Store):
    """The blocks of a matrix in one memory: a `Store` that factors itself.

    The layout has the cells, each of which has the format of its block.
    """

    def __init__(self, originals, formats):
        super().__init__(originals, formats)
        self.sums = columns_of_sum(formats)
        most = -(-self.layout.tiles // BLOCKS_ACROSS)
        self.parts, self.tiles = [], {}
        # the number of each cell's block
        self._number = np.full((self.layout.tiles, self.layout.tiles), -1)
        for number, block in enumerate(blocks(formats.rows, most)):
            rows, columns = self._slice(block.rows), self._slice(block.columns)
            self.parts.append(Part(number, rows, columns, block.form))
            self._number[slice(*block.rows), slice(*block.columns)] = number

    def _slice(self, cells):
        """Return the rows of some cells."""
        rows = self.layout.rows
        return slice(rows(cells[0]).start, rows(cells[1] - 1).stop)

    def cells(self, rows):
        """Return the first and the last cell of some rows; see `_slice`."""
        return rows.start // self.layout.tile, -(-rows.stop // self.layout.tile)

    def number(self, i, k):
        """Return the number of the block of cell (i, k)."""
        return int(self._number[i, k])

    def has(self, i, k):
        """Return whether the block of cell (i, k) is final."""
        return self.number(i, k) in self.tiles

    def load(self, i, k):
        """Return the block of cell (i, k): for i = k the cell."""
        return self.tiles[self.number(i, k)]

    def final(self, i, k):
        """Return `load(i, k)`, with the casts of a cell on the diagonal."""
        return self.load(i, k)

    def blocks(self, start=0, backwards=False, stop=None):
        """See `Store.blocks`."""
        stop = self.layout.n if stop is None else stop
        for number, rows, columns, _ in reversed(self.parts) if backwards else self.parts:
            if columns.stop > start and rows.start < stop:
                yield rows, columns, self.tiles[number]

    def close(self):
        """Discard all blocks."""
        self.tiles.clear()

    def order(self):
        """Return the first cell of each block, in the order in which blocks are finished."""
        return [(self.cells(part.rows)[0], self.cells(part.columns)[0]) for part in self.parts]

    def run(self, tiles):
        """Finish blocks, each listed after those that it needs, given by their first cells."""
        run(self, tiles, finish=self.finish)

    def factorize(self):
        """Compute all blocks.

        Raises
        ------
        NotPositiveDefinite
            If a cell on the diagonal has no Cholesky factor. The tree is then empty.
        """
        try:
            self.run(self.order())
        except BaseException:
            self.close()
            raise
        for tile in self.tiles.values():
            tile.casts.clear()

    # What there is to do, on any device.

    def steps(self, part, numbers):
        """Return the steps that compute a block; `numbers` yields numbers for its parts."""
        cells, left = self.cells(part.columns), slice(0, part.columns.start)
        given = self._left_of(part.rows, left), self._left_of(part.columns, left)
        updates = self._updates(part, part.rows, part.columns, *given)
        return [*updates, *self._solve(part, cells, numbers)]

    def _left_of(self, rows, columns):
        """Return the blocks in some rows and columns, by their columns."""
        cells = (slice(*self.cells(some)) for some in (rows, columns))
        if not columns.stop:
            return []
        parts = (self.parts[number] for number in np.unique(self._number[tuple(cells)]))
        return sorted(parts, key=lambda part: (part.columns.start, part.rows.start))

    def _updates(self, block, rows, columns, lefts, rights):
        """Return the `Update`s of rows and columns of a block with parts that share columns."""
        targets = {}
        for a, b in _meeting(lefts, rights):
            left, right = lefts[a], rights[b]
            inner = _common(left.columns, right.columns)
            pair = []
            for part, target in ((left, rows), (right, columns)):
                here = _common(part.rows, target)
                pair.append((part, _inside(part.rows, here), _inside(part.columns, inner)))
            above, beside = _common(left.rows, rows), _common(right.rows, columns)
            within = _inside(block.rows, above), _inside(block.columns, beside)
            key = tuple((some.start, some.stop) for some in within)
            targets.setdefault(key, Update(*within, [])).pairs.append(pair)
        return list(targets.values())

    def _solve(self, block, cells, numbers):
        """Return the steps of B <- B L_kk⁻' for some cells of columns; see `recursive.solve`."""
        columns = self._slice(cells)
        within = _inside(block.columns, columns)
        if len(halves(cells)) == 1:
            return [Solve(within, cells[0])]
        one, two = halves(cells)
        solved, rest = self._slice(one), self._slice(two)
        # rounded as it will be stored
        left = Part(next(numbers), block.rows, solved, block.form)
        rights = self._left_of(rest, solved)
        return [
            *self._solve(block, one, numbers),
            Round(_inside(block.columns, solved), left),
            *self._updates(block, block.rows, rest, [left], rights),
            *self._solve(block, two, numbers),
        ]

    # How it is done, by threads on a CPU.

    def finish(self, worker, i, k):
        """Compute the block of a cell and keep it; a worker waits for the blocks that it reads."""
        block = self.parts[self.number(i, k)]
        array, parts = self.original(i, k), {}
        # numbers of parts that only this block reads
        for step in self.steps(block, count(len(self.parts))):
            match step:
                case Update():
                    tiles = [self._operands(pair, worker, parts) for pair in step.pairs]
                    update_tile(array[step.rows, step.columns], tiles, self.sums)
                case Round():
                    parts[step.part.number] = self._rounded(block, array[:, step.columns])
                case Solve() if i != k:
                    form = solved_in(self.formats, self.layout, i, step.k)
                    diagonal = worker.final(step.k, step.k)
                    trsm(array[:, step.columns], diagonal, form, columns=self.sums)
                case Solve():
                    try:
                        potrf(array)
                    except NotPositiveDefinite as error:
                        raise not_positive(block.rows.start + (error.order or 1)) from None
        worker.write(i, k, array)

    def original(self, i, k):
        """Return the entries of A in a block, in the format in which it is computed."""
        _, rows, columns, form = self.parts[self.number(i, k)]
        array, dtype = self.originals.block(rows, columns, form), working_format(form).dtype
        return array if array.dtype == dtype else array.astype(dtype, order="F")

    def write(self, i, k, array):
        """Keep a block in its format."""
        tile = in_format(self.formats, i, k, array)
        if i == k and tile.form is FP64 and self.formats.partners(k, k) - {FP64}:
            # for the solves of FP32 arrays in this column
            tile.casts[FP32] = Tile(FP32, tile.widen(np.float32))
        self.tiles[self.number(i, k)] = tile

    def _operands(self, pair, worker, parts):
        """Return the two tiles of a product; `parts` has those that only this block reads."""
        tiles = []
        for part, rows, columns in pair:
            tile = parts.get(part.number)
            if tile is None:
                tile = worker.final(self.cells(part.rows)[0], self.cells(part.columns)[0])
            tiles.append(cut(tile, rows, columns))
        # one and the same tile on the diagonal: its update is a syrk
        return tiles if pair[0] != pair[1] else tiles[:1] * 2

    def _rounded(self, block, array):
        """Return final columns of a block as they will be stored."""
        if block.form is FP32 and not fp32_in_planes(self.formats, array):
            return Tile(FP32, array)
        i, k = self.cells(block.rows)[0], self.cells(block.columns)[0]
        return in_format(self.formats, i, k, array)


def cut(tile, rows, columns):
    """Return some rows and columns of a tile; the tile itself where these are all."""
    whole = rows.stop - rows.start, columns.stop - columns.start
    return tile if whole == tile.shape else tile.part(rows, columns)


def _inside(whole, part):
    """Return a slice of all rows as one of a block's rows."""
    return slice(part.start - whole.start, part.stop - whole.start)


def _common(a, b):
    """Return what two slices share."""
    return slice(max(a.start, b.start), min(a.stop, b.stop))


def _meeting(lefts, rights):
    """Return the pairs (a, b) for which lefts[a] and rights[b] share columns."""
    if not (lefts and rights):
        return []
    starts, ends = (
        np.array([getattr(b.columns, end) for b in rights]) for end in ("start", "stop")
    )
    pairs = []
    for a, left in enumerate(lefts):
        shared = (ends > left.columns.start) & (starts < left.columns.stop)
        pairs += ((a, b) for b in np.flatnonzero(shared).tolist())
    return pairs
