"""Where the tiles live. A store hands out originals and final tiles, and takes what is final.

For a run it opens lanes: the same interface, one for each tile that is in work at one time, whose
reads wait until the tile is final. Here all tiles are in one memory; `out_of_core` has the others.
"""

from contextlib import contextmanager, nullcontext
from threading import Condition, Lock

from ..linalg.formats import FP32, FP64, Tile, quantize
from ..linalg.mixed import cast_formats, splits
from .layout import left_looking


class Stopped(Exception):
    """Another lane has failed."""


def original(originals, formats, i, k, **place):
    """Return A_ik, to be written over: FP64 for an FP64 tile, FP32 for all others.

    Other arguments are those of `Originals.tile`.
    """
    form = formats[i, k]
    # FP32's own generation errs by more than FP32 rounds, which coarser formats do not see
    work = FP64 if form is FP64 else FP32
    return originals.tile(i, k, work, careful=form is FP32, **place)


def solved_in(formats, layout, i, k):
    """Return the format in which a GPU multiplies while it solves for tile (i, k).

    FP32 where the formats promise so small an error that those of coarse solves could exceed it:
    these are 2^-39 for each entry, of a matrix whose diagonal is near 1.
    """
    form, promised = formats[i, k], formats.error
    exact = promised is not None and promised < 2.0**-36 * layout.n**0.5
    return FP32 if exact and form is not FP64 else form


def in_format(formats, i, k, array):
    """Return a finished tile in its format."""
    form = formats[i, k]
    if form is FP64 or (i == k and form is FP32):
        return Tile(form, array)
    return quantize(array, form, scale=formats.scale, split=splits())


def casts_of(formats, i, k, values):
    """Return in which formats an FP64 tile is read as well, and which stand as two planes."""
    partners = formats.partners(i, k)
    if i > k:
        return cast_formats(values, partners)
    # the solves of the FP32 arrays in this column
    return {FP32: False} if partners - {FP64} else {}


class InCore:
    """All tiles in one memory, each in its format.

    Parameters
    ----------
    originals : geomxp.tiles.assemble.Originals
        Generates the tiles of Σ where they will live.
    formats : PrecisionMap

    Attributes
    ----------
    bytes, peak_bytes : int
        What the final tiles and their casts hold now, and at most held.
    """

    def __init__(self, originals, formats):
        self.originals, self.formats, self.layout = originals, formats, originals.layout
        self.bytes = self.peak_bytes = 0
        self.promoted = set()
        self._tiles = {}
        self._left = [self.layout.tiles - k for k in range(self.layout.tiles)]
        self._lock = Lock()

    def order(self):
        """Return the tiles in the order in which they are finished."""
        return left_looking(self.layout.tiles)

    def original(self, i, k):
        """Return A_ik, to be written over; see `original`."""
        return original(self.originals, self.formats, i, k)

    def has(self, i, k):
        """Return whether tile (i, k) is final."""
        return (i, k) in self._tiles

    def final(self, i, k):
        """Return L_ik."""
        return self._tiles[i, k]

    def write(self, i, k, array):
        """Keep L_ik in its format, with the casts that its readers need."""
        tile = in_format(self.formats, i, k, array)
        if tile.form is FP64:
            wanted = casts_of(self.formats, i, k, array)
            tile.casts.update({f: quantize(array, f, split=split) for f, split in wanted.items()})
        with self._lock:
            self._tiles[i, k] = tile
            self._count(tile.nbytes)
            self._left[k] -= 1
            if not self._left[k]:
                self._release(k)

    def _release(self, k):
        """Drop the casts of block row k, which nobody reads when column k is final."""
        for j in range(k + 1):
            tile = self._tiles[k, j]
            self._count(-sum(cast.nbytes for cast in tile.casts.values()))
            tile.casts.clear()

    def promote(self, k):
        """Give block row k finer formats; return how many tiles that changes."""
        self.formats, changed = self.formats.promote_row(k)
        return changed

    def forget(self, i, k):
        """Give tile (i, k) up: it will be computed again."""
        with self._lock:
            self._count(-self._tiles.pop((i, k)).nbytes)
            self._left[k] += 1

    def close(self):
        """Give all tiles up."""
        self._tiles.clear()

    leave = close

    def _count(self, change):
        self.bytes += change
        self.peak_bytes = max(self.peak_bytes, self.bytes)

    @contextmanager
    def lanes(self, tiles, threads):
        """Open lanes over tiles that are not final yet; see `tiles.local.run`."""
        waiting, queue = _Waiting(self), _Queue(tiles)
        yield [(waiting, queue)] * min(threads, max(1, len(tiles)))


class _Waiting:
    """An in-core store whose reads wait until the tile is final."""

    on_gpu = False
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

    def write(self, i, k, array):
        self.store.write(i, k, array)
        with self.changed:
            self.changed.notify_all()

    def fail(self, error):
        with self.changed:
            self.error = self.error or error
            self.changed.notify_all()


class _Queue:
    """Tiles from which each lane takes the next."""

    def __init__(self, tiles):
        self._tiles, self._lock = iter(tiles), Lock()

    def __iter__(self):
        return self

    def __next__(self):
        with self._lock:
            return next(self._tiles)
