"""The tile Cholesky factorization: what is done to one tile, and what is done when it fails.

The order of the work is `schedule`'s, the arithmetic `linalg.mixed`'s, and where a tile lives is
the store's business.
"""

from itertools import groupby

from ..errors import NotPositiveDefinite
from ..linalg.formats import FP32
from ..linalg.mixed import arithmetic, gemm, potrf, trsm
from .stores import solved_in


def update_tile(tile, updates):
    """Subtract products from a tile of the factor, in the order given.

    Parameters
    ----------
    tile : array
        A_ik, written over.
    updates : iterable of (Tile, Tile)
        (L_ij, L_kj); on a GPU perhaps with a factor, see `mixed.gemm`.

    Returns
    -------
    array
    """
    by_format = groupby(updates, key=lambda pair: arithmetic(tile, *pair[:2]))
    for form, pairs in by_format:
        # A_ik <- A_ik - Σ_j L_ij L_kj', neighbours of one format in one accumulation
        tile = gemm(tile, pairs, form)
    return tile


def finish_tile(tile, updates, diagonal=None, form=FP32):
    """Bring one tile of the factor to its final value; all that it reads is already final.

    Parameters
    ----------
    tile : array
        A_ik, written over.
    updates : iterable of (Tile, Tile)
        (L_ij, L_kj) for j < k; those that `update_tile` has not made yet.
    diagonal : callable, optional
        Reads L_kk, once all updates are made; the tile itself is on the diagonal if not given.
    form : Format, optional
        Of the tile; see `mixed.trsm`.

    Returns
    -------
    array

    Raises
    ------
    NotPositiveDefinite
    """
    tile = update_tile(tile, updates)
    if diagonal is None:
        # L_kk <- chol(A_kk)
        return potrf(tile)
    # L_ik <- A_ik L_kk⁻'
    return trsm(tile, diagonal(), form)


def finish(store, i, k):
    """Bring tile (i, k) of a store to its final value."""
    updates = ((store.final(i, j), store.final(k, j)) for j in range(k))
    diagonal = None if i == k else lambda: store.final(k, k)
    form = solved_in(store.formats, store.layout, i, k)
    store.write(i, k, finish_tile(store.original(i, k), updates, diagonal, form))


def promote(store, k, run):
    """Compute block row k anew, its tiles one level finer, from the tiles above it.

    Parameters
    ----------
    store : store
        With the columns before k final.
    k : int
    run : callable
        See `factorize`.

    Returns
    -------
    int
        How many tiles are finer now.
    """
    changed = store.promote(k)
    for j in range(k):
        store.forget(k, j)
    run(store, [(k, j) for j in range(k)])
    return changed


def factorize(store, order, run):
    """Factor the matrix of a store, with finer formats where a diagonal tile fails.

    Parameters
    ----------
    store : store
    order : iterable of (int, int)
        Of the tiles, each after those that it needs; see `schedule`.
    run : callable
        ``run(store, tiles)`` finishes these tiles, as `tiles.local.run` does.

    Returns
    -------
    int
        Number of tiles that were promoted.

    Raises
    ------
    NotPositiveDefinite
        If a diagonal tile fails once more after its block row was promoted, or has nothing left
        to promote.
    """
    order, promoted, tried = list(order), 0, set(store.promoted)
    while True:
        try:
            run(store, [tile for tile in order if not store.has(*tile)])
            return promoted
        except NotPositiveDefinite as error:
            order_in_tile = error.order or 1
        # outside `except`, in which the error's traceback keeps the memory of that run alive;
        # a diagonal tile fails only when all before it are final
        k = next(k for k in range(len(store.formats)) if not store.has(k, k))
        changed = 0 if k in tried else promote(store, k, run)
        if not changed:
            minor = k * store.layout.tile + order_in_tile
            raise NotPositiveDefinite(f"the leading minor of order {minor} is not positive", minor)
        tried.add(k)
        promoted += changed
