import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geomxp.tiles.cholesky import deal, left_looking

sizes = st.integers(1, 12)


def needed(i, k):
    """What tile (i, k) reads: L_ij and L_kj for j < k, and L_kk."""
    pairs = {(row, j) for j in range(k) for row in (i, k)}
    return pairs if i == k else pairs | {(k, k)}


@settings(deadline=None)
@given(tiles=sizes, width=sizes, height=st.none() | sizes)
def test_every_tile_comes_once_and_after_all_that_it_needs(tiles, width, height):
    done = set()
    for tile in left_looking(tiles, width, height):
        assert tile not in done
        assert needed(*tile) <= done
        done.add(tile)
    assert done == {(i, k) for i in range(tiles) for k in range(i + 1)}


@pytest.mark.parametrize("tiles", [1, 2, 7])
def test_without_a_width_columns_follow_each_other(tiles):
    assert list(left_looking(tiles)) == [(i, k) for k in range(tiles) for i in range(k, tiles)]


@pytest.mark.parametrize("width", [7, 8, 100])
def test_a_panel_of_all_columns_with_one_row_a_group_is_row_by_row(width):
    assert list(left_looking(7, width, 1)) == [(i, k) for i in range(7) for k in range(i + 1)]


@settings(deadline=None)
@given(tiles=sizes, width=sizes, devices=st.integers(1, 14))
def test_each_device_has_its_block_rows_in_the_order_of_all(tiles, width, devices):
    order = list(left_looking(tiles, width, devices))
    hands = deal(order, devices)
    assert len(hands) == devices
    for number, hand in enumerate(hands):
        assert hand == [(i, k) for i, k in order if i % devices == number]
