"""How a symmetric matrix is cut into tiles."""

from dataclasses import dataclass
from numbers import Integral

from ..errors import InvalidInput


@dataclass(frozen=True)
class Layout:
    """Square tiles, the last row and column of them ragged.

    Parameters
    ----------
    n : int
        Order of the matrix.
    tile : int
        Rows and columns of a tile.

    Examples
    --------
    >>> layout = Layout(1000, 300)
    >>> layout.tiles, layout.rows(3)
    (4, slice(900, 1000, None))
    """

    n: int
    tile: int

    def __post_init__(self):
        whole = isinstance(self.tile, Integral) and not isinstance(self.tile, bool)
        if not whole or not 1 <= self.tile <= self.n:
            raise InvalidInput(
                "`tile` must be an integer between 1 and the number of locations. "
                f"Got tile={self.tile!r} for {self.n} locations."
            )

    @classmethod
    def of(cls, n, tile=None):
        """Return the layout for n places, of a size that suits a CPU if `tile` is None."""
        if tile is None:
            tile = next((size for size, least in SIZES if n >= least), n)
        whole = isinstance(tile, Integral) and not isinstance(tile, bool)
        return cls(n, int(tile) if whole else tile)

    @property
    def tiles(self):
        """Tiles per dimension."""
        return -(-self.n // self.tile)

    def rows(self, i):
        """Return the rows of block row i, which are the columns of block column i, as a slice."""
        return slice(i * self.tile, min((i + 1) * self.tile, self.n))

    def height(self, i):
        """Return how many rows block row i has."""
        return min((i + 1) * self.tile, self.n) - i * self.tile

    @property
    def lower_bytes(self):
        """Bytes of the lower triangle of tiles in FP64."""
        heights = [self.height(i) for i in range(self.tiles)]
        return 8 * (self.n**2 + sum(h * h for h in heights)) // 2


SIZES = ((1024, 60_000), (512, 4_000), (256, 1_000), (128, 256), (32, 96), (16, 32))
"""(tile, least n): large enough for matrix units, small enough to leave a choice of formats."""


# The order of the work: known before the run.


def left_looking(tiles, width=1, height=None):
    """Yield every tile (i, k) of the lower triangle, after all the tiles that it needs.

    With a width the columns are taken in panels, and in each panel the rows in groups: what is
    read of a group of rows then serves all columns of the panel, so that a memory of M tiles moves
    about T³/(6 width) of them instead of T³/6.

    Parameters
    ----------
    tiles : int
        Tiles per dimension.
    width : int
        Columns of a panel.
    height : int, optional
        Rows of a group; all of them if not given.

    Examples
    --------
    >>> list(left_looking(2))
    [(0, 0), (1, 0), (1, 1)]
    >>> list(left_looking(4, width=2, height=2))[3:7]
    [(2, 0), (3, 0), (2, 1), (3, 1)]
    """
    height = height or tiles
    for first in range(0, tiles, width):
        for top in range(first, tiles, height):
            for k in range(first, min(first + width, tiles)):
                for i in range(max(k, top), min(top + height, tiles)):
                    yield i, k


def deal(order, devices):
    """Return each device's own tiles: block row i belongs to device i mod p.

    Parameters
    ----------
    order : iterable of (int, int)
    devices : int

    Returns
    -------
    list of list of (int, int)

    Examples
    --------
    >>> deal(left_looking(3), 2)
    [[(0, 0), (2, 0), (2, 1), (2, 2)], [(1, 0), (1, 1)]]
    """
    hands = [[] for _ in range(devices)]
    for i, k in order:
        hands[i % devices].append((i, k))
    return hands
