"""Store of tiles of which some are of low rank."""

from dataclasses import replace

from ..linalg.low_rank import INTERPOLATED, LowRankTile, Sum, interpolated
from .stores import InCore, in_format

STEADY = 0.1
"""Factor of the tolerance of interpolation where ranks are those of an earlier factorization."""


class LowRankStore(InCore):
    """Tiles in one memory, U V' where the formats have a tolerance.

    The first locations of a block row must be spread over all of it, see `ordering.spread`.
    """

    def original(self, i, k):
        """Return A_ik, as a `Sum` if it is to be compressed."""
        tolerance, layout = self.formats.tolerance(i, k), self.layout
        if not tolerance:
            return super().original(i, k)
        above, left = layout.rows(i).start, layout.rows(k).start

        def entries(rows, columns):
            return self.originals.entries(
                slice(above + rows.start, above + rows.stop),
                slice(left + columns.start, left + columns.stop),
            )

        seed, ranks, closer = (i, k), self.formats.ranks, 1.0
        if ranks is not None:
            # interpolation, too, must not change with the parameters by steps
            closer = STEADY
        pair = interpolated(entries, layout.shape(i, k), closer * INTERPOLATED * tolerance, seed)
        form = self.formats[i, k]
        original = self.originals.tile(i, k, form) if pair is None else pair
        return Sum(original, tolerance, form, seed, None if ranks is None else ranks.get(seed, 0))

    def factor(self, order, promotions):
        """Return the factor; its formats have the ranks."""
        low = ((tile, part) for tile, part in self._tiles.items() if isinstance(part, LowRankTile))
        self.formats = replace(self.formats, ranks={tile: part.rank for tile, part in low})
        return super().factor(order, promotions)

    def write(self, i, k, array):
        """Keep L_ik, without casts: its products are in FP64, or in the format of U and V."""
        low = isinstance(array, LowRankTile)
        tile = array if low else in_format(self.formats, i, k, array)
        with self._lock:
            self._tiles[i, k] = tile
            self._count(tile.nbytes)
            self._unfinished[k] -= 1
