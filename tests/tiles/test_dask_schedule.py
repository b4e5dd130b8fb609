"""The tasks of a factorization on a cluster, played in one process."""

import numpy as np
import pytest

import geomxp as gx
from geomxp.tiles.assemble import Originals
from geomxp.tiles.cholesky import factorize, finish, left_looking
from geomxp.tiles.dask_store import (
    DEPTHS_BY_THREAD_SHARE,
    columns_ahead,
    depths_for,
    pieces,
    share,
    useful_depths,
    work_on,
)
from geomxp.tiles.layout import Layout
from geomxp.tiles.stores import InCore

DEPTHS = [(), (1,), (3,), (4, 2), (16, 2), (5, 3, 1)]
SIZES = [1, 2, 3, 9, 24]


def run_alone(store, tiles):
    """Finish tiles in one process, one after the other."""
    for tile in tiles:
        finish(store, *tile)


# the plan


@pytest.mark.parametrize("tiles", SIZES)
@pytest.mark.parametrize("depths", DEPTHS)
def test_each_product_of_each_tile_is_made_once_in_order(tiles, depths):
    made, final = {}, set()
    for i, k, begin, end, last in pieces(tiles, depths):
        assert (i, k) not in final
        assert begin == made.get((i, k), 0)
        assert begin < end or last
        made[i, k] = end
        if last:
            assert end == k
            final.add((i, k))
    assert final == set(left_looking(tiles))


@pytest.mark.parametrize("tiles", SIZES)
@pytest.mark.parametrize("depths", DEPTHS)
def test_each_piece_comes_after_all_that_it_reads(tiles, depths):
    final = set()
    for i, k, _, end, last in pieces(tiles, depths):
        assert final.issuperset((i, j) for j in range(end))
        assert final.issuperset((k, j) for j in range(end))
        if last:
            assert i == k or (k, k) in final
            final.add((i, k))


@pytest.mark.slow
@pytest.mark.parametrize("tiles", SIZES)
@pytest.mark.parametrize("depths", DEPTHS)
def test_a_block_row_never_has_more_begun_tiles_than_columns_ahead(tiles, depths):
    final, most = set(), 0
    # whatever runs first of what can: each piece as early as possible, its own tile last
    waiting = list(pieces(tiles, depths))
    begun = [set() for _ in range(tiles)]
    while waiting:
        for piece in sorted(waiting, key=lambda piece: piece.last):
            i, k, begin, end, last = piece
            before = begin == 0 or (k, begin) in begun[i]
            reads = {(row, j) for row in (i, k) for j in range(end)}
            reads |= {(k, k)} if last and i > k else set()
            if before and reads <= final:
                break
        waiting.remove(piece)
        begun[i].discard((k, begin))
        final.add((i, k)) if last else begun[i].add((k, end))
        most = max(most, *map(len, begun))
    assert most <= columns_ahead(depths)
    if depths and tiles > 2 * depths[0] + 2:
        assert most == columns_ahead(depths)


@pytest.mark.parametrize("tiles", SIZES)
def test_the_next_diagonal_tile_comes_before_the_rest_of_its_column(tiles):
    order = [(piece.i, piece.k) for piece in pieces(tiles, (2,)) if piece.last]
    for k in range(tiles - 2):
        assert order.index((k + 1, k + 1)) < order.index((k + 2, k))


# how deep


def test_more_threads_never_ask_for_less_depth():
    for tiles in (1, 12, 200):
        ahead = [columns_ahead(depths_for(threads, tiles)) for threads in range(1, 1000)]
        assert ahead == sorted(ahead)
        assert ahead[0] == 0


def test_what_needs_less_memory_is_tried_next():
    known = [depths for _, depths in DEPTHS_BY_THREAD_SHARE]
    assert useful_depths(1024, 200) == known
    assert useful_depths(100, 200) == known[1:]
    assert useful_depths(1, 200) == []


def test_a_share_is_the_rows_of_a_slot_and_what_is_at_work():
    rows = [1, 2, 3, 4, 5]
    # rows 0, 2, 4 and 1, 3; the largest other
    assert share(rows, 2, (), 100) == [9 + 5, 6 + 5]
    # the three largest, and two begun tiles of each row
    assert share(rows, 2, (1,), 100) == [9 + 12 + 600, 6 + 12 + 400]


# the bits

MODEL = gx.Matern(1.0, 0.1, 0.5, 1e-2)
RULES = [
    pytest.param(gx.uniform("fp64"), id="fp64"),
    pytest.param(gx.uniform("fp32"), id="fp32"),
    pytest.param(gx.by_band(("fp64", 2), ("fp32", 2), "fp8"), id="by band"),
    pytest.param(gx.layered("fp8", "bf16", "fp16", "fp32", "fp64"), id="layered"),
]


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("depths", [(1,), (3,), (4, 2)])
def test_pieces_give_the_bits_of_whole_tiles(rule, depths):
    layout = Layout(300, 32)
    places = np.random.default_rng(0).random((layout.n, 2))
    originals = Originals(MODEL, places, "euclidean", layout)
    formats = rule(originals.norms())
    store = InCore(originals, formats)
    factorize(store, store.order(), run_alone)
    assert store.formats == formats
    final, begun = {}, {}
    for piece in pieces(layout.tiles, depths):
        i, k, begin, end, last = piece
        row = [final[i, j] for j in range(begin, end)]
        upper = [final[k, j] for j in range(begin, end + last)] if i > k else None
        before = begun.get((i, k))
        kept = None if before is None else before.copy()
        made = work_on(originals, formats, piece, row, upper, before)
        # what a worker holds stays what it was: Dask may give it to a task once more
        assert before is None or np.array_equal(before, kept)
        (final if last else begun)[i, k] = made
    for i, k in left_looking(layout.tiles):
        known = store.final(i, k)
        assert final[i, k].form is known.form
        assert final[i, k].exponent == known.exponent
        np.testing.assert_array_equal(final[i, k].widen(), known.widen())
