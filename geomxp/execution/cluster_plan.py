"""The tasks of a factorization on a cluster: which products of a tile are one task, in which order.

One task a tile cannot begin before all that the tile reads is final, so that column after column
waits for k products of L_k+1,k and k of the diagonal tile below it: no more than about T/4.5
threads are of use. With depths d_1 > d_2 > … a tile has several tasks, its pieces, one upon the
other: a piece makes the products with the columns up to k - d_1 as soon as these are final, while
d_1 columns before k are at work, the next one those up to k - d_2, and the last one the rest and
the solve or the factor. Each number sees the same operations in the same order.

    columns    0 … k-d_1 | … k-d_2 | … k      of row i, and of row k; L_kk
    tasks      piece 1   | piece 2 | last
"""

from typing import NamedTuple

LADDER = ((1.0, (16, 2)), (0.25, (3,)), (0.05, (1,)))
"""(share, depths): what more threads than this share of the block rows need."""


class Piece(NamedTuple):
    """Some of the work on tile (i, k): products with the columns from begin to end.

    Parameters
    ----------
    i, k : int
    begin, end : int
        L_ij and L_kj with begin <= j < end.
    last : bool
        Whether the tile is final then.
    """

    i: int
    k: int
    begin: int
    end: int
    last: bool


def pieces(tiles, depths=()):
    """Yield all pieces, each after those that it needs, what others wait for before the rest.

    Parameters
    ----------
    tiles : int
        Tiles per dimension.
    depths : tuple of int
        Falling, from 1 on; one task a tile if empty.

    Examples
    --------
    >>> [(i, k) for i, k, *_ in pieces(3)]
    [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
    >>> [piece for piece in pieces(4, (1,)) if piece.k == 2 and piece.i == 3]
    [Piece(i=3, k=2, begin=0, end=1, last=False), Piece(i=3, k=2, begin=1, end=2, last=True)]
    """
    yield Piece(0, 0, 0, 0, True)
    for k in range(tiles):
        if k + 1 < tiles:
            # the next diagonal tile: all columns after it wait for it
            yield _last(k + 1, k, depths)
            yield _last(k + 1, k + 1, depths)
        for i in range(k + 2, tiles):
            yield _last(i, k, depths)
        # what can begin now that column k is final; what is needed first comes first
        for s in reversed(range(len(depths))):
            column = k + 1 + depths[s]
            begin = max(0, column - depths[s - 1]) if s else 0
            for i in range(column, tiles):
                yield Piece(i, column, begin, k + 1, False)


def _last(i, k, depths):
    return Piece(i, k, max(0, k - depths[-1]) if depths else 0, k, True)


def depths_for(threads, tiles):
    """Return the depths that keep so many threads at work, with no more tasks than that needs.

    From simulations of 4 to 64 nodes (experiments/cluster): below a twentieth of T threads one task
    a tile is as fast; two tasks serve as many threads as there are block rows, and three more.

    Parameters
    ----------
    threads : int
        Of all workers together.
    tiles : int
        Tiles per dimension.

    Examples
    --------
    >>> depths_for(1, 12), depths_for(4, 12), depths_for(1024, 200)
    ((), (3,), (16, 2))
    """
    if threads > 1:
        for share, depths in LADDER:
            if threads > share * tiles:
                return depths
    return ()


def columns_ahead(depths):
    """Return of how many columns a block row has tiles at most that are begun and not final."""
    return depths[0] + 1 if depths else 0


def shallower(depths):
    """Return the depths that need less memory, from the next to none at all."""
    known = [step for _, step in LADDER] + [()]
    return known[known.index(depths) + 1 :]


def share(rows, slots, depths, block):
    """Return what each slot holds at most: its rows, rows of others, and tiles that are begun.

    Parameters
    ----------
    rows : sequence of int
        Bytes of each block row.
    slots : int
    depths : tuple of int
    block : int
        Bytes of a tile that is worked on.

    Returns
    -------
    list of int
    """
    # a piece of each of these columns may be at work, and each reads another row
    ahead = columns_ahead(depths)
    foreign = sum(sorted(rows)[-(1 + ahead) :])
    begun = [ahead * block * len(rows[slot::slots]) for slot in range(slots)]
    return [sum(rows[slot::slots]) + foreign + begun[slot] for slot in range(slots)]
