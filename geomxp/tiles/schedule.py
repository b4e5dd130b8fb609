"""The order of the work: known before the run."""


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
