import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import geomxp as gx
from geomxp.tiles.cholesky import left_looking
from geomxp.tiles.layout import Layout


@st.composite
def layouts(draw):
    n = draw(st.integers(1, 500))
    return Layout(n, draw(st.integers(1, n)))


@given(layouts())
def test_block_rows_cover_the_matrix_once_and_only_the_last_is_ragged(layout):
    rows = [layout.rows(i) for i in range(layout.tiles)]
    covered = np.concatenate([np.arange(layout.n)[part] for part in rows])
    np.testing.assert_array_equal(covered, np.arange(layout.n))
    heights = [layout.height(i) for i in range(layout.tiles)]
    assert heights == [part.stop - part.start for part in rows]
    assert all(height == layout.tile for height in heights[:-1])
    assert 1 <= heights[-1] <= layout.tile


@given(layouts())
def test_lower_bytes_are_those_of_the_tiles_on_and_below_the_diagonal(layout):
    tiles = [(i, k) for i in range(layout.tiles) for k in range(i + 1)]
    expected = sum(8 * layout.height(i) * layout.height(k) for i, k in tiles)
    assert layout.lower_bytes == expected


@pytest.mark.parametrize("n", [1, 2, 255, 256, 257, 999, 1000, 4000, 59_999, 60_000, 10**6])
def test_a_layout_without_a_size_has_one_that_suits(n):
    layout = Layout.of(n)
    assert 1 <= layout.tile <= n
    assert layout.tiles == 1 or layout.tile >= 128 or n < 256
    # several formats to choose from, where there is anything to gain
    assert n < 256 or layout.tiles >= 2
    assert Layout.of(n, 1).tiles == n


@pytest.mark.parametrize("tile", [0, -1, 6, 4096, 2.0, True, "64"])
def test_sizes_that_are_none_are_refused_with_what_they_must_be(tile):
    message = "`tile` must be an integer between 1 and the number of locations. Got tile="
    with pytest.raises(gx.InvalidInput, match=f"^{message}{tile!r} for 5 locations.$"):
        Layout(5, tile)


@pytest.mark.parametrize("tile", [np.int64(3), np.int32(3)])
def test_numpys_integers_are_integers(tile):
    assert Layout(5, tile) == Layout(5, 3)


@given(st.integers(0, 12))
def test_every_tile_comes_once_and_after_those_that_it_needs(tiles):
    done = set()
    for i, k in left_looking(tiles):
        needed = {(row, j) for row in (i, k) for j in range(k)}
        if i > k:
            needed.add((k, k))
        assert needed <= done
        assert (i, k) not in done
        done.add((i, k))
    assert done == {(i, k) for i in range(tiles) for k in range(i + 1)}
