"""Tiles in the memory of one GPU: conversion of finished tiles, and the in-core store.

Conversion does what `stores.in_format` and `stores.casts_of` do on a CPU, with exponents that stay
on the GPU.
"""

from collections import deque

import numpy as np

from ..errors import InvalidInput, NotPositiveDefinite
from ..linalg.device import streams
from ..linalg.formats import FP8, FP16, FP32, FP64, Tile, cast, check_largest
from ..linalg.gpu import CUPY, Exponents, factors, magnitude_of
from ..linalg.mixed import (
    arithmetic,
    columns_of_sum,
    other_formats,
    potrf,
    solver,
    stands_by_rows,
    trsm,
)
from .cholesky import left_looking, solved_in, update_tile, working_format
from .stores import InCore, meets_fp64_in_fp32, original, with_casts


def wanted_casts(formats, i, k):
    """Return the casts in which tile (i, k) is read: {format: whether in two FP16 planes}."""
    form, partners = formats[i, k], formats.partners(i, k)
    if i == k:
        # for the solves of FP32 arrays in this column
        return {FP32: False} if form is FP64 and partners - {FP64} else {}
    if form is FP8:
        # widened to FP16 for each product: a cast would triple its memory
        return {}
    forms = other_formats(form, partners)
    if meets_fp64_in_fp32(formats, i, k):
        forms |= {FP32}
    planes = columns_of_sum(formats) > 0
    if planes and FP32 in {form} | forms:
        # the high plane is FP16
        forms -= {FP16}
    return {cast: planes and cast is FP32 for cast in forms}


def stored_in_planes(formats, i, k):
    """Return whether final tile (i, k) is stored as two FP16 planes."""
    return i > k and formats[i, k] is FP32 and columns_of_sum(formats) > 0


def needs_magnitude(formats, i, k):
    """Return whether the largest magnitude of tile (i, k) is needed."""
    form = formats[i, k]
    if form in (FP64, FP32):
        return i > k and (form is FP32 or bool(wanted_casts(formats, i, k)))
    return True


def order_of(formats, i, k, shape, index):
    """Return the memory order of a finished tile: "C" if FP8 units multiply it, else "F"."""
    by_rows = i > k and stands_by_rows(formats[i, k], shape, formats.partners(i, k), index)
    return "C" if by_rows else "F"


def in_format(exponents, number, formats, i, k, array, room):
    """Return a finished tile in its format, without casts; an exponent stays on the GPU.

    `exponents` receives, at position `number`, the exponents of the tile and of its cast to FP16.
    FP64 and plain FP32 tiles keep the array; `room(shape, dtype, order)` allocates the others.
    """
    form, exponent, values = formats[i, k], 0, array
    if stored_in_planes(formats, i, k):
        exponent = exponents.find(number, array, FP16)
        planes = room((*array.shape, 2), FP16.dtype, "F")
        return Tile(form, CUPY.split(array, exponent, planes), exponent)
    if form.top is not None:
        exponent = exponents.find(number, array, form, scale=formats.scale)
    if form not in (FP64, FP32):
        order = order_of(formats, i, k, array.shape, array.device.id)
        values = room(array.shape, form.dtype, order)
        CUPY.round_into(values, array, form, exponent)
    tile = Tile(form, values, exponent)
    if form.top is None and needs_magnitude(formats, i, k):
        # after a promotion another cast may need the exponent
        needed = FP16 in wanted_casts(formats, i, k) or columns_of_sum(formats)
        as_fp16 = FP16 if needed else None
        exponents.find(number, _wide(tile), as_fp16, own=False)
    return tile


def cast_of(tile, form, planes, as_fp16):
    """Return a cast of a tile, FP32 perhaps in two FP16 planes; `as_fp16` is FP16's exponent."""
    return cast(_wide(tile), form, as_fp16 if planes or form is FP16 else 0, planes)


def check(largest, form):
    """Raise `InvalidInput` if a tile is not finite; `largest` is from `Exponents.fetch`."""
    check_largest(magnitude_of(largest, working_format(form).dtype), form)


def _wide(tile):
    return tile.values if tile.form is FP64 else tile.widen(np.float32)


def readable(formats, i, k, tile, as_fp16):
    """Return tile (i, k) with its readers' casts, each made on demand; see `cast_of`."""
    wanted = wanted_casts(formats, i, k)
    return with_casts(tile, wanted, lambda form: cast_of(tile, form, wanted[form], as_fp16))


# In-core store of one GPU. One thread of the CPU issues all operations and waits once, at the end.
#
# S streams compute the block rows, row i on stream i mod S; another one the diagonal tiles:
#
#     stream of row i    A_ik - Σ_j L_ij L_kj'    after (k, k-1)
#                        L_ik <- A_ik L_kk⁻'      after (k, k)
#     stream D           L_kk <- chol(A_kk - Σ_j L_kj L_kj')    after (k, k-1)
#
# So the updates of column k overlap with the factorization of its diagonal tile. Exponents, info
# words and counts of missed pairs stay on the GPU until one transfer shows whether a tile has
# failed. Tiles after the first failure are then discarded: formats, promotions and bits are those
# of a factorization that stops there.
#
# CuPy's pool gives freed memory only to later allocations on the same stream. The temporary
# arrays of a tile are used on one stream only. All streams read the casts of a block row; these
# are freed after the streams that allocated them wait for all readers.


BLOCK_ROW_STREAMS = 4
"""Streams of the block rows, beside the stream of the diagonal tiles."""


class GpuStore(InCore):
    """All tiles in the memory of one GPU, each in its format; see `InCore`."""

    def __init__(self, originals, formats):
        super().__init__(originals, formats)
        self._exponents = None

    def order(self):
        """Return the tiles column by column; diagonal tiles have a stream of their own."""
        return left_looking(self.layout.tiles)

    def run(self, tiles):
        """Finish some tiles, each after those that it needs, the tiles of one column together.

        Raises
        ------
        NotPositiveDefinite
            If a diagonal tile has no factor. Only the tiles before it are then final.
        InvalidInput
            If a tile contains a NaN or an infinity.
        """
        import cupy

        tiles = list(tiles)
        with cupy.cuda.Device(self.originals.index):
            while True:
                run = _Run(self, tiles)
                try:
                    run.issue()
                    largest, exponents, infos, missed = run.fetch()
                except BaseException:
                    run.synchronize()
                    self._give_up(tiles)
                    raise
                self._drop_all_casts()
                if not (missed and self.originals.extend()):
                    break
                self._give_up(tiles)
        self._settle(tiles, largest, exponents, infos)

    def words(self, tiles):
        """Return the `Exponents` of these tiles with info words, and zeroed missed-pair counts."""
        count = number(self.layout.tiles, 0)
        if self._exponents is None:
            # an info word for each diagonal tile, and the number of missed pairs
            self._exponents = Exponents(count, more=self.layout.tiles + 1)
        else:
            self._exponents.forget([number(*tile) for tile in tiles])
        return self._exponents, self.originals.missed_pairs(count)

    def keep(self, i, k, tile):
        """Store a tile and its casts; they are final once the GPU has executed their stream."""
        if not self.has(i, k):
            self._count(tile.values.nbytes)
        self._tiles[i, k] = tile
        self._count(sum(part.nbytes for part in tile.casts.values()))

    def _settle(self, tiles, largest, exponents, infos):
        """Read exponents and failures from the GPU's report, up to the first failed tile."""
        for position, (i, k) in enumerate(tiles):
            tile, place = self._tiles[i, k], number(i, k)
            try:
                if i == k and infos[k]:
                    minor = f"the leading minor of order {infos[k]}"
                    raise NotPositiveDefinite(f"{minor} is not positive", infos[k])
                check(largest[place], tile.form)
            except (NotPositiveDefinite, InvalidInput):
                self._give_up(tiles[position:])
                raise
            self._tiles[i, k] = Tile(tile.form, tile.values, int(exponents[place, 0]))

    def _drop_all_casts(self):
        for i in range(self.layout.tiles):
            self.drop_casts(i)

    def _give_up(self, tiles):
        """Discard those of some tiles that exist, and all casts."""
        self._drop_all_casts()
        for tile in tiles:
            if tile in self._tiles:
                self._count(-self._tiles.pop(tile).nbytes)

    def forget(self, i, k):
        """Discard tile (i, k): it will be computed again."""
        self._give_up([(i, k)])


def number(i, k):
    """Return the position of a tile in the lower triangle, row by row."""
    return i * (i + 1) // 2 + k


class _Run:
    """The operations that finish some tiles, issued on streams."""

    def __init__(self, store, tiles):
        import cupy

        self.store, self.formats, self.tiles = store, store.formats, tiles
        self.columns = columns_of_sum(store.formats)
        self.current = cupy.cuda.get_current_stream()
        *self.rows, self.diagonal = streams(store.originals.index, BLOCK_ROW_STREAMS + 1)
        self.words, self.missed = store.words(tiles)
        start = self.current.record()
        for stream in (*self.rows, self.diagonal):
            stream.wait_event(start)
        self.started, self.row_done, self.factored = set(), {}, {}
        self.triangles = {}

    def issue(self):
        """Issue all operations."""
        leaving, column = deque(), None
        for i, k in self.tiles:
            if k != column and column is not None:
                self._leave(leaving, column)
            column = k
            self._begin_row(k)
            self._begin_row(i)
            with self._stream(i, k) as stream:
                self._finish(i, k, stream)

    def _stream(self, i, k):
        return self.diagonal if i == k else self.rows[i % len(self.rows)]

    def _begin_row(self, i):
        """Make the casts of the tiles of a block row that an earlier run has finished."""
        if i in self.started:
            return
        self.started.add(i)
        final = [k for k in range(i + 1) if self.store.has(i, k)]
        with self._stream(i, -1) as stream:
            for k in final:
                tile = self.store.final(i, k)
                self._cast(i, k, tile)
                self.store.keep(i, k, tile)
            if final:
                self.row_done[i] = stream.record()

    def _leave(self, leaving, k):
        """Free the operands of an earlier column after all their readers."""
        leaving.append((k, [stream.record() for stream in (*self.rows, self.diagonal)]))
        if len(leaving) > 1:
            row, readers = leaving.popleft()
            for owner in (self._stream(row, -1), self.diagonal):
                for event in readers:
                    owner.wait_event(event)
            self.store.drop_casts(row)
            self.triangles.pop(row, None)

    def _finish(self, i, k, stream):
        """Compute the final value of tile (i, k); see `cholesky.finish_tile`."""
        store = self.store
        missed = self.missed[number(i, k)]
        tile = original(store.originals, self.formats, i, k, missed=missed)
        if k in self.row_done:
            stream.wait_event(self.row_done[k])
        # A_ik <- A_ik - Σ_j L_ij L_kj'
        tile = update_tile(tile, self._updates(i, k, tile), self.columns)
        if i == k:
            # L_kk <- chol(A_kk)
            tile = potrf(tile, self.words.more[k : k + 1])
        else:
            if k in self.factored:
                stream.wait_event(self.factored[k])
            # L_ik <- A_ik L_kk⁻'
            form, triangle = self._solved_in(i, k), self.triangles.get(k)
            tile = trsm(tile, store.final(k, k), form, triangle, self.columns)
        store.keep(i, k, self._stored(i, k, tile))
        if i == k:
            self._prepare(k)
            self.factored[k] = stream.record()
        elif i == k + 1:
            self.row_done[i] = stream.record()

    def _solved_in(self, i, k):
        return solved_in(self.formats, self.store.layout, i, k)

    def _prepare(self, k):
        """Make the casts and inverses that the solves of column k read on all streams."""
        below = {self._solved_in(i, j) for i, j in self.tiles if j == k < i} - {FP64}
        if below:
            self.triangles[k] = solver(self.store.final(k, k), below, self.columns)

    def _updates(self, i, k, tile):
        """Return the pairs of tiles to multiply, with the factors of their products."""
        final = self.store.final
        pairs = [(final(i, j), final(k, j)) for j in range(k)]
        scaled = (FP32, FP16, FP8) if self.columns else (FP16, FP8)
        squares = i == k and any(left.split for left, _ in pairs)
        if not squares and not any(arithmetic(tile, *pair) in scaled for pair in pairs):
            # other products have no exponents
            return pairs
        exponents = self.words.on_gpu.reshape(-1)
        left, right = (exponents[2 * number(r, 0) :][: 2 * k] for r in (i, k))
        alpha = factors(left, right, -1.0)
        return [(*pair, alpha[2 * j : 2 * j + 2]) for j, pair in enumerate(pairs)]

    def _stored(self, i, k, array):
        """Return a finished tile in its format, with its casts."""
        import cupy

        def room(shape, dtype, order):
            return cupy.empty(shape, dtype, order)

        place = number(i, k)
        tile = in_format(self.words, place, self.formats, i, k, array, room)
        self._cast(i, k, tile)
        return tile

    def _cast(self, i, k, tile):
        """Make the casts of a tile."""
        as_fp16 = self.words.on_gpu[number(i, k), 1:]
        for form, planes in wanted_casts(self.formats, i, k).items():
            tile.casts[form] = cast_of(tile, form, planes, as_fp16)

    def fetch(self):
        """Wait for all streams; return the report on the tiles.

        It has two arrays of `Exponents.fetch`, for each diagonal tile the order of the leading
        minor that is not positive, or 0, and the number of pairs of locations closer than the
        correlation table reaches.
        """
        for stream in (*self.rows, self.diagonal):
            self.current.wait_event(stream.record())
        self.words.more[-1:] = self.missed.sum()
        largest, exponents, more = self.words.fetch()
        *infos, missed = more.tolist()
        return largest, exponents, infos, missed

    def synchronize(self):
        """Wait until all issued operations are done."""
        for stream in (*self.rows, self.diagonal):
            stream.synchronize()
