"""Stores: where the tiles of a factorization are kept.

A `Store` returns original and final tiles, takes finished ones, and runs the operations that finish
them. `InCore` keeps all tiles in one memory; `on_gpu`, `out_of_core`, `on_disk` and `dask_store`
have the other stores.
"""

from contextlib import contextmanager, nullcontext
from dataclasses import replace
from queue import SimpleQueue
from threading import Condition, Lock

from ..linalg.backend import backend_of
from ..linalg.formats import FP32, FP64, Tile, quantize
from ..linalg.low_rank import INTERPOLATION_SHARE, LowRankTile, Sum, interpolated
from ..linalg.mixed import cast_formats, columns_of_sum, other_formats, splits
from .cholesky import Stopped, left_looking, looking_ahead, run, working_format
from .factor import TileFactor

STEADY_TOLERANCE_FACTOR = 0.1
"""Factor of the tolerance of interpolation where ranks are those of an earlier factorization."""


def original(originals, formats, i, k, **options):
    """Return A_ik, to be overwritten, in `working_format`; options are those of `Originals.tile`.

    The error of generation in FP32 exceeds the rounding of FP32, but not that of coarser formats. A
    tile with a tolerance is a `low_rank.Sum`, which is compressed when it is finished.
    """
    form = formats[i, k]
    if formats.tolerance(i, k):
        return _to_be_compressed(originals, formats, i, k)
    return originals.tile(i, k, working_format(form), careful=form is FP32, **options)


def _to_be_compressed(originals, formats, i, k):
    """Return A_ik as a `Sum`: interpolated from some of its entries where that is possible.

    The first locations of a block row must be spread over all of it, see `ordering.spread`.
    """
    layout, tolerance = originals.layout, formats.tolerance(i, k)
    above, left = layout.rows(i).start, layout.rows(k).start

    def entries(rows, columns):
        return originals.entries(
            slice(above + rows.start, above + rows.stop),
            slice(left + columns.start, left + columns.stop),
        )

    ranks, closer = formats.ranks, 1.0
    if ranks is not None:
        # interpolation, too, must not change with the parameters by steps
        closer = STEADY_TOLERANCE_FACTOR
    pair = interpolated(entries, layout.shape(i, k), closer * INTERPOLATION_SHARE * tolerance)
    form = formats[i, k]
    whole = originals.tile(i, k, form) if pair is None else pair
    return Sum(whole, tolerance, form, None if ranks is None else ranks.get((i, k), 0))


def fp32_in_planes(formats, array):
    """Return whether FP32 tiles are stored as two FP16 planes, on the device of an array."""
    return columns_of_sum(formats) > 0 if backend_of(array).on_gpu else splits()


def in_format(formats, i, k, array):
    """Return a finished tile in its format; one of low rank has it already."""
    if isinstance(array, LowRankTile):
        return array
    form = formats[i, k]
    if form is FP64 or (i == k and form is FP32):
        return Tile(form, array)
    return quantize(array, form, scale=formats.scale, split=fp32_in_planes(formats, array))


def casts_of(formats, i, k, values):
    """Return {format: whether it is kept as two FP16 planes} of the casts of a tile."""
    if formats.tolerances is not None and i > k:
        # products with tiles of low rank are in FP64, or in the format of U and V
        return {}
    form, partners = formats[i, k], formats.partners(i, k)
    if form.products is not form:
        return dict.fromkeys(other_formats(form, partners), False)
    if form is not FP64:
        return {}
    if i > k:
        planes = fp32_in_planes(formats, values)
        if planes and backend_of(values).on_gpu and meets_fp64_in_fp32(formats, i, k):
            partners = partners | {FP32}
        return cast_formats(partners, planes)
    # for the solves of FP32 arrays in this column
    return {FP32: False} if partners - {FP64} else {}


def meets_fp64_in_fp32(formats, i, k):
    """Return whether an FP64 tile is multiplied with another FP64 tile for an FP32 array."""
    if formats[i, k] is not FP64:
        return False
    others = (j for j in range(k + 1, len(formats)) if formats[j, k] is FP64)
    return any(formats[max(i, j), min(i, j)] is not FP64 for j in others)


class Casts(dict):
    """The casts of a tile, each made when it is first read: the same bits as stored ones."""

    def __init__(self, wanted, make):
        super().__init__()
        self._wanted, self._make = wanted, make

    def get(self, form, default=None):
        """Return a cast, or the default if it is not one of the wanted ones."""
        if form not in self and form in self._wanted:
            self[form] = self._make(form)
        return super().get(form, default)


def with_casts(tile, wanted, make):
    """Return a tile with casts to the wanted formats, which `make(form)` returns on demand."""
    if not wanted:
        return tile
    return Tile(tile.form, tile.values, tile.exponent, Casts(wanted, make))


def readable(formats, i, k, tile):
    """Return tile (i, k) with the casts that its readers need, each made on demand."""
    wanted = casts_of(formats, i, k, tile.values)
    return with_casts(tile, wanted, lambda f: quantize(tile.values, f, split=wanted[f]))


class Store:
    """Storage of the tiles of a factorization: the base of all stores.

    A subclass defines `save(i, k, tile)`, `load(i, k)`, `has(i, k)` (whether the tile is final)
    and `forget(i, k)` (to compute it again). Threads call `load` and `has` at the same time as
    `save`, for different tiles. The factorization itself calls `original`, `final`, `write`, `has`
    and `forget`.

    Parameters
    ----------
    originals : geomxp.tiles.assemble.Originals
        Generates the tiles of Σ.
    formats : geomxp.linalg.precision.PrecisionMap
        Format of each tile.

    Attributes
    ----------
    layout : Layout
    promoted : set of int
        Block rows that were promoted in an earlier run of the same problem.
    found : PrecisionMap or None
        The formats of the factor, with the ranks of its tiles, once there is one.
    moved : Traffic or None
        Bytes copied between memories so far; None if there is only one.
    trace : Trace or None
        Events of the run, if it is traced.

    Examples
    --------
    A store that keeps tiles in a dict:

    >>> class Tiles(Store):
    ...     def __init__(self, originals, formats):
    ...         super().__init__(originals, formats)
    ...         self.tiles = {}
    ...
    ...     def save(self, i, k, tile):
    ...         self.tiles[i, k] = tile
    ...
    ...     def load(self, i, k):
    ...         return self.tiles[i, k]
    ...
    ...     def has(self, i, k):
    ...         return (i, k) in self.tiles
    ...
    ...     def forget(self, i, k):
    ...         del self.tiles[i, k]
    >>> import geomxp as gx
    >>> from geomxp import testing
    >>> observations, model = testing.observations(50), gx.Matern(1.0, 0.1, 0.5)
    >>> method = gx.Exact(gx.by_tile_norm(1e-4), tile=16)
    >>> own = gx.Exact(gx.by_tile_norm(1e-4), tile=16, store=Tiles)
    >>> evaluations = [gx.log_likelihood(observations, model, m) for m in (method, own)]
    >>> evaluations[0].log_likelihood == evaluations[1].log_likelihood
    True
    """

    found = moved = trace = None

    def __init__(self, originals, formats):
        self.originals, self.formats, self.layout = originals, formats, originals.layout
        self.promoted = set()

    @property
    def bytes(self):
        """Bytes of the tiles in their formats."""
        return (self.found or self.formats).bytes(self.layout)

    def order(self):
        """Return the tiles in the order in which they are finished."""
        return left_looking(self.layout.tiles)

    def original(self, i, k):
        """Return A_ik, which may be overwritten; see `original`."""
        return original(self.originals, self.formats, i, k)

    def write(self, i, k, array):
        """Keep L_ik in its format."""
        self.save(i, k, in_format(self.formats, i, k, array))

    def final(self, i, k):
        """Return L_ik with the casts that its readers need."""
        return readable(self.formats, i, k, self.load(i, k))

    def row(self, i, k):
        """Return L_ij for j < k, all of them final."""
        return [self.final(i, j) for j in range(k)]

    def blocks(self, start=0, backwards=False, stop=None):
        """Yield (rows, columns, tile) in the order of a solve with L, or with L' if `backwards`.

        Rows and columns are slices of the matrix; tiles that end at or before column `start`, or
        begin at or after row `stop`, are omitted.
        """
        first, rows = start // self.layout.tile, self.layout.rows
        last = self.layout.tiles if stop is None else -(-stop // self.layout.tile)
        pairs = [(i, k) for i in range(first, last) for k in range(first, i + 1)]
        pairs = pairs[::-1] if backwards else pairs
        for (i, k), tile in zip(pairs, self.finals(pairs), strict=True):
            yield rows(i), rows(k), tile

    def finals(self, pairs):
        """Yield L_ik of each pair (i, k)."""
        for i, k in pairs:
            yield self.final(i, k)

    def promote(self, k):
        """Give block row k finer formats; return the number of tiles that changed."""
        self.formats, changed = self.formats.promote_row(k)
        return changed

    def run(self, tiles):
        """Finish tiles, each listed after those that it needs; see `cholesky.run`."""
        run(self, tiles)

    @contextmanager
    def workers(self, tiles, threads):
        """Yield pairs (worker, tiles), one for each thread of `cholesky.run`.

        A worker is the store as a thread sees it: its reads wait until the tile is final.
        """
        worker, queue = _Worker(self), SimpleQueue()
        threads = min(threads, max(1, len(tiles)))
        for tile in (*tiles, *[None] * threads):
            queue.put(tile)
        yield [(worker, iter(queue.get, None)) for _ in range(threads)]

    def factor(self, order, promotions):
        """Return the factor once all tiles are final; row r of L belongs to location order[r]."""
        self.found = self.final_formats()
        return TileFactor(self, order, promotions)

    def final_formats(self):
        """Return the formats of final tiles, with their ranks.

        `formats` stays as it is: a tile that is lost and computed again must have the same bits.
        """
        if self.formats.tolerances is None:
            return self.formats
        return replace(self.formats, ranks=self.ranks())

    def ranks(self):
        """Return {(i, k): rank} of the tiles of low rank."""
        tiles = ((tile, self.final(*tile)) for tile in self.layout.lower)
        return {tile: part.rank for tile, part in tiles if isinstance(part, LowRankTile)}

    def close(self):
        """Discard all tiles."""

    def leave(self):
        """Release the store, and keep on disk what a later run can continue from: nothing here."""
        self.close()


class InCore(Store):
    """All tiles in one memory. `bytes` and `peak_bytes` count tiles and their casts."""

    bytes = 0

    def __init__(self, originals, formats):
        super().__init__(originals, formats)
        self.bytes = self.peak_bytes = 0
        self._tiles = {}
        self._unfinished = [self.layout.tiles - k for k in range(self.layout.tiles)]
        self._lock = Lock()

    def order(self):
        """Return the tiles in the order in which they are finished."""
        return looking_ahead(self.layout.tiles)

    def has(self, i, k):
        """Return whether tile (i, k) is final."""
        return (i, k) in self._tiles

    def final(self, i, k):
        """Return L_ik."""
        return self._tiles[i, k]

    def row(self, i, k):
        """See `Store.row`."""
        return [self._tiles[i, j] for j in range(k)]

    def write(self, i, k, array):
        """Keep L_ik in its format, with the casts that its readers need."""
        tile = in_format(self.formats, i, k, array)
        wanted = casts_of(self.formats, i, k, array)
        tile.casts.update({f: quantize(array, f, split=split) for f, split in wanted.items()})
        with self._lock:
            self._tiles[i, k] = tile
            self._count(tile.nbytes)
            self._unfinished[k] -= 1
            if not self._unfinished[k]:
                self.drop_casts(k)

    def drop_casts(self, i):
        """Drop the casts of block row i, which have no readers once column i is final."""
        for k in range(i + 1):
            tile = self._tiles.get((i, k))
            if tile is not None:
                self._count(-sum(cast.nbytes for cast in tile.casts.values()))
                tile.casts.clear()

    def forget(self, i, k):
        """Discard tile (i, k): it will be computed again."""
        with self._lock:
            self._count(-self._tiles.pop((i, k)).nbytes)
            self._unfinished[k] += 1

    def close(self):
        """Discard all tiles."""
        self._tiles.clear()

    def _count(self, change):
        self.bytes += change
        self.peak_bytes = max(self.peak_bytes, self.bytes)


class _Worker:
    """A store in RAM as threads see it: reads wait until the tile is final."""

    on_gpu = False
    # one worker alone waits for nobody, and may run in the main thread
    locks = False
    formats = property(lambda self: self.store.formats)
    layout = property(lambda self: self.store.layout)

    def __init__(self, store):
        self.store, self.changed, self.error = store, Condition(), None
        self.original, self.inside = store.original, nullcontext

    def final(self, i, k):
        if not self.store.has(i, k):
            with self.changed:
                self.changed.wait_for(lambda: self.store.has(i, k) or self.error)
                if not self.store.has(i, k):
                    raise Stopped
        return self.store.final(i, k)

    def row(self, i, k):
        if k:
            # all tiles before it in its row are final when it is
            self.final(i, k - 1)
        return self.store.row(i, k)

    def write(self, i, k, array):
        self.store.write(i, k, array)
        with self.changed:
            self.changed.notify_all()

    def fail(self, error):
        with self.changed:
            self.error = self.error or error
            self.changed.notify_all()
