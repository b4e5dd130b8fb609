"""Where the tiles live. A store hands out originals and final tiles, and takes what is final."""

from threading import Lock

from ..dense.matrix_units import casts_for, splits
from ..precision.formats import FP32, FP64
from ..precision.quantize import Tile, quantize


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
        self._tiles = {}
        self._left = [self.layout.tiles - k for k in range(self.layout.tiles)]
        self._lock = Lock()

    def original(self, i, k):
        """Return A_ik, to be written over: FP64 for an FP64 tile, FP32 for all others."""
        form = self.formats[i, k]
        # FP32's own generation errs by more than FP32 rounds, which coarser formats do not see
        return self.originals.tile(i, k, FP64 if form is FP64 else FP32, careful=form is FP32)

    def has(self, i, k):
        """Return whether tile (i, k) is final."""
        return (i, k) in self._tiles

    def final(self, i, k):
        """Return L_ik."""
        return self._tiles[i, k]

    def write(self, i, k, array):
        """Keep L_ik in its format, with the casts that its readers need."""
        form = self.formats[i, k]
        if form is FP64 or (i == k and form is FP32):
            tile = Tile(form, array)
        else:
            tile = quantize(array, form, scale=self.formats.scale, split=splits())
        if form is FP64:
            tile.casts.update(self._casts(i, k, array))
        with self._lock:
            self._tiles[i, k] = tile
            self._count(tile.nbytes)
            self._left[k] -= 1
            if not self._left[k]:
                self._release(k)

    def _casts(self, i, k, array):
        """Cast a finished FP64 tile once for each arithmetic in which it is read."""
        if i > k:
            return casts_for(array, self.formats.partners(i, k))
        if all(form is FP64 for form in self.formats.partners(k, k)):
            return {}
        # the solves of the FP32 arrays in this column
        return {FP32: quantize(array, FP32)}

    def _release(self, k):
        """Drop the casts of block row k, which nobody reads when column k is final."""
        for j in range(k + 1):
            tile = self._tiles[k, j]
            self._count(-sum(cast.nbytes for cast in tile.casts.values()))
            tile.casts.clear()

    def forget(self, i, k):
        """Give tile (i, k) up: it will be computed again."""
        with self._lock:
            self._count(-self._tiles.pop((i, k)).nbytes)
            self._left[k] += 1

    def _count(self, change):
        self.bytes += change
        self.peak_bytes = max(self.peak_bytes, self.bytes)
