import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomxp.linalg.formats import FP8, FP16, FP32, FP64
from geomxp.linalg.precision import (
    PrecisionMap,
    by_band,
    by_tile_norm,
    for_divergence,
    frobenius,
    layered,
    predicted,
    promised_error,
    uniform,
)
from geomxp.linalg.quadtree import LEAST_SAVING, blocks, halves, joined

FORMS = (FP8, FP16, FP32, FP64)


def map_of(tiles, seed, kinds):
    """Return a map whose formats repeat in patches."""
    random = np.random.default_rng(seed)
    patches = random.integers(0, kinds, (tiles // 2 + 1, tiles // 2 + 1))
    rows = [[FORMS[patches[i // 2, k // 2]] for k in range(i)] + [FP64] for i in range(tiles)]
    return PrecisionMap(tuple(map(tuple, rows)))


@given(st.integers(1, 40), st.integers(0, 5), st.integers(1, 4), st.integers(1, 16))
def test_blocks_cover_the_triangle_in_an_order_in_which_they_can_be_computed(
    tiles, seed, kinds, most
):
    formats, done = map_of(tiles, seed, kinds), np.zeros((tiles, tiles), int)
    for block in blocks(formats.rows, most):
        (top, bottom), (first, last) = block.rows, block.columns
        assert max(bottom - top, last - first) <= most
        assert {formats[i, k] for i in range(top, bottom) for k in range(first, last)} == {
            block.form
        }
        # all that is left of it, and the rows of the triangle of its columns
        assert done[top:bottom, :first].all()
        assert top == first or all(done[k, : k + 1].all() for k in range(first, last))
        assert not done[top:bottom, first:last].any()
        done[top:bottom, first:last] = 1
        assert block.on_diagonal == (top == first)
    np.testing.assert_array_equal(done, np.tril(np.ones((tiles, tiles), int)))


@given(st.integers(2, 33))
def test_a_block_of_one_format_is_not_cut(tiles):
    formats = layered("fp16")(np.ones((tiles, tiles)))
    # one for each halving
    assert sum(not block.on_diagonal for block in blocks(formats.rows, tiles)) == tiles - 1
    one, two = halves((0, tiles))
    assert one[1] == two[0]
    assert one[1].bit_count() == 1


def shares_of(tiles, seed):
    random = np.random.default_rng(seed)
    norms = np.exp(3 * random.standard_normal((tiles, tiles)))
    return np.stack([(form.unit_roundoff * norms) ** 2 for form in FORMS])


@given(st.integers(2, 20), st.integers(0, 5), st.floats(-14, -2), st.integers(1, 3))
def test_blocks_have_the_first_format_that_is_allowed(tiles, seed, level, least):
    shares, sizes = shares_of(tiles, seed), np.arange(1, tiles + 1)
    allowed = np.maximum(10.0**level * np.outer(sizes, sizes), shares[-1])
    chosen = joined(FORMS, shares, allowed, sizes, least)
    assert set(chosen) == {(i, k) for i in range(tiles) for k in range(i)}
    rows = [(*(chosen[i, k] for k in range(i)), FP64) for i in range(tiles)]
    total = bound = 0.0
    for block in blocks(rows, tiles):
        if block.on_diagonal:
            continue
        here = np.s_[slice(*block.rows), slice(*block.columns)]
        share = shares[FORMS.index(block.form)][here].sum()
        assert share <= allowed[here].sum() * (1 + 1e-12)
        total, bound = total + share, bound + allowed[here].sum()
    assert total <= bound * (1 + 1e-12)


def test_a_block_is_cut_where_that_saves_bytes():
    sizes, allowed = np.full(8, 10), np.ones((8, 8))
    # only one cell needs FP32
    shares = np.zeros((4, 8, 8))
    shares[:2, 5, 1] = 100.0
    chosen = joined(FORMS, shares, allowed, sizes, 1)
    assert chosen[5, 1] is FP32
    assert chosen[7, 3] is chosen[4, 2] is FP8
    assert [chosen[5, 0], chosen[4, 1]] == [FP8, FP8]
    # parts of two cells at least
    chosen = joined(FORMS, shares, allowed, sizes, 2)
    assert [chosen[5, 0], chosen[4, 1], chosen[4, 2]] == [FP32, FP32, FP8]
    # a cell of few rows is not worth a cut
    few = np.array([100, 1, 100, 100])
    shares = np.zeros((4, 4, 4))
    shares[:3, 2:, 1] = 100.0
    spread = np.zeros((4, 4))
    assert joined(FORMS, shares, spread, few, 1)[2, 0] is FP8
    shares[:3, 2:, 1], shares[:3, 2:, 0] = 0.0, 100.0
    assert joined(FORMS, shares, spread, few, 1)[2, 1] is FP64
    assert LEAST_SAVING > 1 / 101


def norms_of(tiles, seed):
    random = np.random.default_rng(seed)
    apart = np.abs(np.subtract.outer(np.arange(tiles), np.arange(tiles)))
    norms = np.exp(-random.uniform(0.2, 1.5) * apart + random.standard_normal((tiles, tiles)))
    return np.tril(norms + np.eye(tiles))


@given(st.integers(1, 24), st.integers(0, 20), st.floats(-12, -2))
def test_the_error_of_blocks_by_norm_is_that_of_the_rule(tiles, seed, level):
    norms, sizes, accuracy = norms_of(tiles, seed), np.full(tiles, 7), 10.0**level
    formats = by_tile_norm(accuracy).joined(norms, sizes, 1)
    assert formats.error == promised_error(formats, norms)
    assert formats.error <= np.hypot(accuracy, 2.0**-53)
    assert formats.accuracy == accuracy
    whole = frobenius(norms)
    for block in blocks(formats.rows, tiles):
        part = np.linalg.norm(norms[slice(*block.rows), slice(*block.columns)])
        area = np.prod([last - first for first, last in block[:2]])
        bound = accuracy * whole * np.sqrt(area) / tiles
        assert block.form is FP64 or block.form.unit_roundoff * part <= bound * (1 + 1e-12)


def test_formats_of_choice_and_scales_are_those_of_the_rule():
    norms, sizes = norms_of(8, 1), np.full(8, 7)
    formats = by_tile_norm(1e-5, False, ["fp32"]).joined(norms, sizes, 1)
    assert set(formats.counts()) == {"fp64", "fp32"}
    assert not formats.scale
    assert by_tile_norm(1e-5).joined(norms, sizes, 1).scale


@given(st.integers(2, 24), st.integers(0, 20), st.floats(-8, 0), st.booleans())
def test_blocks_for_a_divergence_keep_to_it(tiles, seed, level, clumps):
    norms, sizes = norms_of(tiles, seed), np.full(tiles, 7)
    random = np.random.default_rng(seed)
    asked = {
        "precisions": 7 * np.exp(random.standard_normal(tiles)),
        "clumped": random.random(tiles) < (0.2 if clumps else 0.0),
    }
    target = 10.0**level
    rule = for_divergence(target)
    formats = rule.joined(norms, sizes, 1, **asked)
    again = predicted(formats, norms, sizes=sizes, **asked)
    assert formats.divergence == pytest.approx(again, rel=1e-9, abs=1e-30)
    cells = rule(norms, sizes=sizes, **asked)
    assert formats.divergence <= cells.divergence * (1 + 1e-9)
    for i in np.flatnonzero(asked["clumped"]):
        assert set(formats.rows[i]) == {FP64}
        assert {formats.rows[j][i] for j in range(i, tiles)} == {FP64}


def test_other_rules_have_the_formats_of_tiles():
    norms = norms_of(8, 2)
    for rule in (layered("fp16", "fp32"), by_band(("fp32", 2), "fp8"), uniform("fp16")):
        assert rule.joined(norms, np.full(8, 7), 1) == rule(norms)
