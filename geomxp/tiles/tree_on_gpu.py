"""Trees on one GPU: one thread of the CPU issues all operations, and waits once, at the end.

Off-diagonal blocks are distributed over S streams; the cells of the diagonal have a stream of their
own. A stream waits for
the latest block on each other stream that it reads. Exponents, info words and counts of missed
pairs stay on the GPU, as in `on_gpu`; the factors of all products are known from the numbers of
their parts, which one transfer brings to the GPU.
"""

from itertools import count, pairwise

import numpy as np

from ..covariance.generate import panels_of
from ..errors import InvalidInput, NotPositiveDefinite
from ..linalg.device import streams
from ..linalg.formats import FP16, FP32, FP64, Tile
from ..linalg.gpu import CUPY, Exponents, factors_of_pairs
from ..linalg.mixed import arithmetic, potrf, solver, stands_by_rows, trsm
from ..linalg.recursive import not_positive
from .cholesky import solved_in, update_tile, working_format
from .on_gpu import BLOCK_ROW_STREAMS, cast_of, check
from .tree import Round, Solve, Tree, Update, cut


class GpuTree(Tree):
    """The blocks of a matrix in the memory of one GPU; see `Tree`."""

    def factorize(self):
        """See `Tree.factorize`."""
        import cupy

        numbers = count(len(self.parts))
        program = [self.steps(part, numbers) for part in self.parts]
        with cupy.cuda.Device(self.originals.index):
            while True:
                run = _Run(self, program, next(numbers))
                try:
                    run.issue()
                    largest, exponents, more = run.fetch()
                except BaseException:
                    run.synchronize()
                    self.close()
                    raise
                *infos, missed = more.tolist()
                if not (missed and self.originals.extend()):
                    break
                self.close()
        try:
            self._settle(largest, exponents, infos)
        except (NotPositiveDefinite, InvalidInput):
            self.close()
            raise

    def _settle(self, largest, exponents, infos):
        """Read exponents and failures from the GPU's report, up to the first block that failed."""
        for number, rows, columns, form in self.parts:
            tile, info = self.tiles[number], infos[self.cells(rows)[0]]
            if rows == columns and info:
                raise not_positive(rows.start + info)
            check(largest[number], form)
            known = isinstance(tile.exponent, int)
            exponent = tile.exponent if known else int(exponents[number, 0])
            self.tiles[number] = Tile(form, tile.values, exponent)


class _Run:
    """The operations of one factorization, issued on streams."""

    def __init__(self, tree, program, numbers):
        import cupy

        self.tree, self.program, self.formats = tree, program, tree.formats
        self.planes = tree.sums > 0
        self.current = cupy.cuda.get_current_stream()
        self.streams = streams(tree.originals.index, BLOCK_ROW_STREAMS + 1)
        # an info word for each cell of the diagonal, and the number of missed pairs
        self.words = Exponents(numbers, more=tree.layout.tiles + 1)
        self.missed, self.squares = self._panels()
        pairs = [
            (left[0].number, right[0].number)
            for steps in program
            for step in steps
            if isinstance(step, Update)
            for left, right in step.pairs
        ]
        self.pairs = cupy.asarray(np.array(pairs, np.int32).reshape(-1, 2))
        self.issued, self.triangles = 0, {}
        # of each block its stream and an event; of each pair of streams the latest known block
        self.done, self.known = {}, {}
        start = self.current.record()
        for stream in self.streams:
            stream.wait_event(start)

    def _panels(self):
        """Return the counters of missed pairs of each block, and a buffer for sums of squares."""
        import cupy

        counts = [
            panels_of(rows.stop - rows.start, columns.stop - columns.start)
            for _, rows, columns, _ in self.tree.parts
        ]
        every, ends = cupy.zeros(sum(counts), np.int32), np.cumsum([0, *counts])
        each = [every[first:last] for first, last in pairwise(ends)]
        return (every, each), cupy.empty(max(counts, default=0))

    def issue(self):
        """Issue all operations."""
        others = 0
        for block, steps in zip(self.tree.parts, self.program, strict=True):
            on_diagonal = block.rows == block.columns
            place = 0 if on_diagonal else 1 + others % BLOCK_ROW_STREAMS
            others += not on_diagonal
            with self.streams[place] as stream:
                self._finish(block, steps, place)
                self.done[block.number] = place, stream.record()

    def _finish(self, block, steps, place):
        array, parts = self._original(block), {}
        for step in steps:
            match step:
                case Update():
                    self._update(array[step.rows, step.columns], step.pairs, parts, place)
                case Round():
                    final = array[:, step.columns]
                    parts[step.part.number] = self._stored(block, step.part.number, final)
                case Solve():
                    self._work(array[:, step.columns], block, step.k, place)
        if block.rows != block.columns:
            self.tree.tiles[block.number] = self._stored(block, block.number, array)

    def _original(self, block):
        panels = self.squares[: len(self.missed[1][block.number])], self.missed[1][block.number]
        place = block.rows, block.columns, block.form
        array, dtype = self.tree.originals.block(*place, panels), working_format(block.form).dtype
        if array.dtype == dtype:
            return array
        out = CUPY.empty(array.shape, dtype, array)
        CUPY.assign(out, array)
        return out

    def _wait(self, number, place):
        """Let a stream wait for a block on another, unless it has waited for a later one there."""
        other, event = self.done[number]
        if other != place and self.known.get((place, other), -1) < number:
            self.streams[place].wait_event(event)
            self.known[place, other] = number

    def _update(self, target, pairs, parts, place):
        """Subtract products, their operands in the formats of the arithmetic."""
        first, self.issued = self.issued, self.issued + len(pairs)
        sources = {part.number for pair in pairs for part, *_ in pair} - set(parts)
        for number in sorted(sources, reverse=True):
            self._wait(number, place)
        alpha = factors_of_pairs(self.words.on_gpu, self.pairs[first : self.issued], -1.0)
        updates, casts = [], {}
        for j, (left, right) in enumerate(pairs):
            one, other = (self._tile(part.number, parts) for part, *_ in (left, right))
            form = arithmetic(target, one, other)
            one = self._cut(left, one, form, casts)
            other = one if left == right else self._cut(right, other, form, casts)
            updates.append((one, other, alpha[j]))
        update_tile(target, updates, self.tree.sums)

    def _tile(self, number, parts):
        return parts.get(number) or self.tree.tiles[number]

    def _cut(self, operand, tile, form, casts):
        """Return some rows and columns of a part.

        FP32 and FP64 parts are cast to the format of the product. `casts` keeps the casts of this
        update.
        """
        part, rows, columns = operand
        if form is not FP64 and tile.form in {FP32, FP64} - {form} and not tile.split:
            key = part.number, form
            casts[key] = tile = casts.get(key) or self._cast(part.number, tile, form)
        return cut(tile, rows, columns)

    def _cast(self, number, tile, form):
        planes = self.planes and form in (FP32, FP16)
        as_fp16 = self.words.on_gpu[number, 1:]
        return cast_of(tile, FP32 if planes else form, planes, as_fp16)

    def _work(self, array, block, k, place):
        """Factor a cell of the diagonal, or solve with it."""
        tree = self.tree
        if block.rows == block.columns:
            potrf(array, self.words.more[k : k + 1])
            self.words.find(block.number, array, None)
            tree.tiles[block.number] = Tile(block.form, array)
            self._prepare(k, block)
            return
        diagonal = tree.number(k, k)
        self._wait(diagonal, place)
        form, at_once = self._solved_in(tree.cells(block.rows)[0], k)
        trsm(array, tree.tiles[diagonal], form, self.triangles.get((k, at_once)), tree.sums)

    def _solved_in(self, i, k):
        """Return the format of the products of a solve, and whether one inverse does it at once.

        The error of one inverse of a whole cell grows with the cell's condition. The rounding of
        blocks in coarse formats hides it.
        """
        form = solved_in(self.formats, self.tree.layout, i, k)
        return form, form is self.formats[i, k] and form.coarse

    def _prepare(self, k, block):
        """Make the inverses that the solves of FP32 arrays in column k read on all streams."""
        tile, rows = self.tree.tiles[block.number], range(k + 1, len(self.formats))
        below = {self._solved_in(i, k) for i in rows}
        for at_once in (False, True):
            forms = {form for form, once in below if once is at_once} - {FP64}
            if forms:
                self.triangles[k, at_once] = solver(tile, forms, self.tree.sums, at_once)

    def _stored(self, block, number, array):
        """Return a final block, or a part of it, in its format; its exponent stays on the GPU."""
        form, find = block.form, self.words.find
        if form is FP32 and self.planes:
            exponent = find(number, array, FP16)
            return Tile(form, CUPY.split(array, exponent), exponent)
        if form in (FP64, FP32):
            # casts to FP16 may need it
            find(number, array, FP16, own=False)
            return Tile(form, array)
        exponent = 0
        if form.top is None:
            find(number, array, None)
        else:
            exponent = find(number, array, form, scale=self.formats.scale)
        by_rows = stands_by_rows(form, array.shape, {form}, array.device.id)
        values = CUPY.empty(array.shape, form.dtype, array, "C" if by_rows else "F")
        CUPY.round_into(values, array, form, exponent)
        return Tile(form, values, exponent)

    def fetch(self):
        """Wait for all streams; return what `Exponents.fetch` returns."""
        for stream in self.streams:
            self.current.wait_event(stream.record())
        self.words.more[-1:] = self.missed[0].sum()
        return self.words.fetch()

    def synchronize(self):
        """Wait until all issued operations are done."""
        for stream in self.streams:
            stream.synchronize()
