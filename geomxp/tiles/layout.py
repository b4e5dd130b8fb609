"""Layout of a symmetric matrix in square tiles."""

from dataclasses import dataclass
from numbers import Integral

import numpy as np

from ..errors import InvalidInput
from ..runtime.devices import require_memory

CPU_TILES = ((1024, 60_000), (512, 4_000), (256, 1_000), (128, 256), (32, 96), (16, 32))
"""(tile, least n): large enough for matrix units, small enough to leave a choice of formats."""

WHOLE = "whole"
"""`tile` of a matrix that is halved recursively instead of cut into tiles."""

LARGEST_CPU_CELL, GPU_CELL, MOST_CELLS = 256, 1024, 256
"""Rows of the cells of a matrix that is halved, and the most cells in a dimension. A GPU's cells
are the smallest diagonal blocks that cuSOLVER factors fast; off-diagonal blocks are cut down to two
cells in a dimension, because smaller products leave a GPU partly idle."""

TILE_OVERHEAD_BYTES = 500
"""Bytes of a tile beside its numbers: the objects that hold it, and its place in lists."""


@dataclass(frozen=True)
class Layout:
    """Square tiles, of order n; those of the last block row and column may be smaller.

    Raises `InvalidInput` if `tile`, the rows of a tile, is not an integer between 1 and n. `joined`
    is 0 for tiles. For the cells of a `tree.Tree` it is the fewest cells in a dimension of a part
    of an off-diagonal block.

    Examples
    --------
    >>> layout = Layout(1000, 300)
    >>> layout.tiles, layout.rows(3)
    (4, slice(900, 1000, None))
    """

    n: int
    tile: int
    joined: int = 0

    def __post_init__(self):
        if not _is_integer(self.tile) or not 1 <= self.tile <= self.n:
            raise InvalidInput(
                "`tile` must be an integer between 1 and the number of locations. "
                f"Got tile={self.tile!r} for {self.n} locations."
            )

    @classmethod
    def of(cls, n, tile=None):
        """Return the layout for n locations; if `tile` is None with a size that suits a CPU."""
        if tile is None:
            tile = next((size for size, least in CPU_TILES if n >= least), n)
        return cls(n, int(tile) if _is_integer(tile) else tile)

    @classmethod
    def of_cells(cls, n, on_gpu=False):
        """Return the layout of a matrix that is halved, for n locations."""
        cell = min(cls.of(n).tile, LARGEST_CPU_CELL)
        large = on_gpu and n >= 4 * GPU_CELL
        least = -(-n // MOST_CELLS)
        cell = max(GPU_CELL if large else cell, least if least <= cell else -(-least // 128) * 128)
        return cls(n, cell, 2 if large else 1)

    def check_room(self):
        """Raise `NotEnoughMemory` for so many tiles that the objects that hold them do not fit."""
        count = self.tiles * (self.tiles + 1) // 2
        require_memory(
            f"a matrix of order {self.n:,} in {count:,} tiles of {self.tile:,} row(s) needs",
            TILE_OVERHEAD_BYTES * count,
            "use larger tiles (--tile 512, tile=512), or leave their size out",
        )

    @property
    def tiles(self):
        """Tiles per dimension."""
        return -(-self.n // self.tile)

    def rows(self, i):
        """Return the rows of block row i, which are the columns of block column i, as a slice."""
        return slice(i * self.tile, min((i + 1) * self.tile, self.n))

    def height(self, i):
        """Return the number of rows of block row i."""
        return min((i + 1) * self.tile, self.n) - i * self.tile

    @property
    def heights(self):
        """Rows of all block rows, (T,)."""
        return np.array([self.height(i) for i in range(self.tiles)])

    def shape(self, i, k):
        """Return the shape of tile (i, k)."""
        return self.height(i), self.height(k)

    @property
    def lower(self):
        """All (i, k) of the lower triangle, row by row, as a list."""
        return [(i, k) for i in range(self.tiles) for k in range(i + 1)]

    @property
    def lower_bytes(self):
        """Bytes of the lower triangle of tiles in FP64."""
        heights = [self.height(i) for i in range(self.tiles)]
        return 8 * (self.n**2 + sum(h * h for h in heights)) // 2


def _is_integer(value):
    return isinstance(value, Integral) and not isinstance(value, bool)
