import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomxp.linalg.formats import BF16, FORMATS, FP8, FP16, FP16_IN_FP32, FP32, FP64, TF32
from geomxp.linalg.precision import PrecisionMap, count_finer
from geomxp.tiles.layout import Layout


@st.composite
def maps(draw):
    tiles = draw(st.integers(1, 7))
    form = st.sampled_from(list(FORMATS.values()))
    return PrecisionMap(tuple(tuple(draw(form) for _ in range(i + 1)) for i in range(tiles)))


def pairs(formats):
    return [(i, k) for i in range(len(formats)) for k in range(i + 1)]


@pytest.mark.slow
@given(maps())
def test_counts_are_of_all_tiles_finest_first(formats):
    counts, tiles = formats.counts(), len(formats)
    assert sum(counts.values()) == tiles * (tiles + 1) // 2
    for name, count in counts.items():
        assert count == sum(formats[i, k].name == name for i, k in pairs(formats)) > 0
    units = [FORMATS[name].unit_roundoff for name in counts]
    assert units == sorted(units)


@given(maps(), st.integers(1, 5), st.data())
def test_bytes_are_those_of_the_arrays_that_the_tiles_need(formats, tile, data):
    last = data.draw(st.integers(1, tile))
    n = (len(formats) - 1) * tile + last
    layout = Layout(n, min(tile, n))
    expected = sum(
        np.empty((layout.height(i), layout.height(k)), formats[i, k].dtype).nbytes
        for i, k in pairs(formats)
    )
    assert formats.bytes(layout) == expected
    whole = PrecisionMap(tuple(tuple(FP64 for _ in row) for row in formats.rows))
    assert formats.bytes(layout) <= whole.bytes(layout) == layout.lower_bytes


@given(maps())
def test_a_map_is_fp64_only_if_every_tile_is(formats):
    assert formats.all_fp64 == (set(formats.counts()) == {"fp64"})


@given(maps(), st.data())
def test_promotion_makes_one_block_row_finer_and_leaves_the_others(formats, data):
    k = data.draw(st.integers(0, len(formats) - 1))
    finer, changed = formats.promote_row(k)
    assert finer.rows[:k] + finer.rows[k + 1 :] == formats.rows[:k] + formats.rows[k + 1 :]
    assert finer.rows[k] == tuple(form.finer for form in formats.rows[k])
    assert changed == sum(form is not FP64 for form in formats.rows[k])
    assert changed == count_finer(formats, finer)
    assert count_finer(finer, formats) == count_finer(formats, formats) == 0


@given(maps(), st.data())
def test_promotions_end_where_nothing_is_left_to_promote(formats, data):
    k = data.draw(st.integers(0, len(formats) - 1))
    for _ in FORMATS:
        formats, changed = formats.promote_row(k)
    assert changed == 0
    assert set(formats.rows[k]) == {FP64}


def test_promotion_keeps_what_the_rule_said():
    formats = PrecisionMap(((FP64,), (FP16, FP64)), scale=False, accuracy=0.1)
    finer, _ = formats.promote_row(1)
    assert (finer.scale, finer.accuracy) == (False, 0.1)


@given(maps())
def test_partners_are_the_formats_that_a_tile_meets_in_products(formats):
    tiles = len(formats)
    met = {pair: set() for pair in pairs(formats)}
    for i, k in pairs(formats):
        for j in range(k):
            # A_ik - L_ij L_kj'
            met[i, j].add(formats[k, j])
            met[k, j].add(formats[i, j])
    for i in range(tiles):
        for k in range(i):
            assert formats.partners(i, k) == met[i, k]


@given(maps())
def test_the_picture_has_one_letter_for_each_tile(formats):
    letters = {FP64: "D", FP32: "S", FP16_IN_FP32: "M", TF32: "T", BF16: "B", FP16: "H", FP8: "Q"}
    lines = str(formats).split("\n")
    assert [len(line) for line in lines] == list(range(1, len(formats) + 1))
    for i, k in pairs(formats):
        assert lines[i][k] == letters[formats[i, k]]


@given(maps())
def test_the_array_holds_the_unit_roundoffs_of_the_lower_triangle(formats):
    picture = formats.as_array()
    for i, k in pairs(formats):
        assert 2.0 ** picture[i, k] == formats[i, k].unit_roundoff
    assert np.isnan(picture[np.triu_indices(len(formats), 1)]).all()


def test_maps_of_different_sizes_are_not_compared():
    small, large = PrecisionMap(((FP64,),)), PrecisionMap(((FP64,), (FP16, FP64)))
    with pytest.raises(ValueError, match="shorter"):
        count_finer(large, small)
