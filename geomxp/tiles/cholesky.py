"""Left-looking tile Cholesky factorization: the operations on one tile, and promotions.

`schedule` has the order of the tiles, `linalg.mixed` the arithmetic on a tile, a store the place
where tiles are kept. In core, out of core, on several GPUs and on a Dask cluster the tiles go
through the same `update_tile` and `finish_tile`.
"""

from itertools import groupby

from ..errors import NotPositiveDefinite
from ..linalg.formats import FP32, FP64
from ..linalg.mixed import arithmetic, gemm, potrf, trsm


def update_tile(tile, updates):
    """Subtract products from a tile of the factor, in the order given.

    Parameters
    ----------
    tile : (m, n) array
        A_ik; overwritten.
    updates : iterable of (Tile, Tile)
        (L_ij, L_kj); on a GPU optionally with a factor, see `mixed.gemm`.

    Returns
    -------
    (m, n) array
    """
    by_format = groupby(updates, key=lambda pair: arithmetic(tile, *pair[:2]))
    for form, pairs in by_format:
        # A_ik <- A_ik - Σ_j L_ij L_kj', adjacent products of one format in one accumulation
        tile = gemm(tile, pairs, form)
    return tile


def finish_tile(tile, updates, diagonal=None, form=FP32):
    """Compute the final value of one tile of the factor from final tiles.

    Parameters
    ----------
    tile : (m, n) array
        A_ik; overwritten.
    updates : iterable of (Tile, Tile)
        (L_ij, L_kj) for j < k, without those that `update_tile` has subtracted.
    diagonal : callable, optional
        Returns L_kk, called after all updates; not given for a diagonal tile.
    form : Format, optional
        Format in which a GPU multiplies during the solve; see `mixed.trsm`.

    Returns
    -------
    (m, n) array

    Raises
    ------
    NotPositiveDefinite
        If a diagonal tile has no Cholesky factor.
    """
    tile = update_tile(tile, updates)
    if diagonal is None:
        # L_kk <- chol(A_kk)
        return potrf(tile)
    # L_ik <- A_ik L_kk⁻'
    return trsm(tile, diagonal(), form)


def solved_in(formats, layout, i, k):
    """Return the format in which a GPU multiplies while it solves for tile (i, k).

    FP32 where the formats promise an error so small that errors of coarse solves could exceed it:
    these are 2^-39 in each entry of a matrix whose diagonal is near 1.
    """
    form, promised = formats[i, k], formats.error
    exact = promised is not None and promised < 2.0**-36 * layout.n**0.5
    return FP32 if exact and form is not FP64 else form


def finish(store, i, k):
    """Compute the final value of tile (i, k) of a store."""

    def pairs():
        for j in range(k):
            left = store.final(i, j)
            # one and the same tile for a diagonal tile: its update is a syrk
            yield left, left if i == k else store.final(k, j)

    diagonal = None if i == k else lambda: store.final(k, k)
    form = solved_in(store.formats, store.layout, i, k)
    store.write(i, k, finish_tile(store.original(i, k), pairs(), diagonal, form))


def promote(store, k, run):
    """Compute block row k again, one level finer, from the final tiles above it.

    Parameters
    ----------
    store : Store
        With the columns before k final.
    k : int
    run : Runner

    Returns
    -------
    int
        Number of tiles that became finer.
    """
    changed = store.promote(k)
    for j in range(k):
        store.forget(k, j)
    run(store, [(k, j) for j in range(k)])
    return changed


def factorize(store, order, run):
    """Factor the matrix of a store, in finer formats where a diagonal tile fails.

    Parameters
    ----------
    store : Store
    order : iterable of (int, int)
        Tiles, each after those that it needs; see `schedule.left_looking`.
    run : Runner
        ``run(store, tiles)`` finishes these tiles, as `schedule.run` does.

    Returns
    -------
    int
        Number of promoted tiles.

    Raises
    ------
    NotPositiveDefinite
        If a diagonal tile fails again after its block row was promoted, or no tile of the row can
        be promoted.
    """
    order, promoted, tried = list(order), 0, set(store.promoted)
    while True:
        try:
            run(store, [tile for tile in order if not store.has(*tile)])
            return promoted
        except NotPositiveDefinite as error:
            order_in_tile = error.order or 1
        # outside `except`: there the error's traceback keeps the memory of the failed run alive;
        # a diagonal tile fails only when all tiles before it are final
        k = next(k for k in range(len(store.formats)) if not store.has(k, k))
        changed = 0 if k in tried else promote(store, k, run)
        if not changed:
            minor = k * store.layout.tile + order_in_tile
            raise NotPositiveDefinite(f"the leading minor of order {minor} is not positive", minor)
        tried.add(k)
        promoted += changed
