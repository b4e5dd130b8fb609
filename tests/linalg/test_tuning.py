"""Variants are checked, raced and remembered; what cannot be read or written is said."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest

import geomxp as gx
from geomxp.linalg import batched, blas, recursive
from geomxp.linalg.batched import Variant
from geomxp.linalg.formats import BF16, FP16, FP32, FP64

QUICK = (Variant("left", 4), Variant("top", 2))


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GEOMXP_CACHE_DIR", str(tmp_path))
    return tmp_path / "batched.json"


def test_leaves_are_no_larger_than_the_matrix():
    assert recursive.leaf_size("potrf", 10, (FP64,)) == 10


def test_leaves_are_larger_where_all_layers_are_computed_in_one_format():
    def leaf(name, *forms):
        return recursive.leaf_size(name, 9000, forms)

    for name in ("potrf", "syrk"):
        one = {leaf(name, *forms) for forms in ((FP64,), (FP32,), (FP32, FP32), (FP64, FP32))}
        assert one == {recursive.ONE_FORMAT_LEAVES[name]}
        several = leaf(name, FP16, FP32), leaf(name, FP16, FP64), leaf(name, FP32, FP64)
        assert max(several) < min(one)
    tree = leaf("tree", FP64), leaf("tree", FP32), leaf("tree", FP16, FP32)
    assert max(tree) < recursive.ONE_FORMAT_LEAVES["potrf"]


def test_a_small_matrix_is_one_leaf_where_avx512_multiplies_a_layer(monkeypatch):
    monkeypatch.setattr(blas, "on_matrix_units", lambda form: False)
    monkeypatch.setattr(blas, "has_unit", lambda form: form is BF16)
    largest = recursive.ONE_LEAF_ORDER
    for name in ("potrf", "syrk", "trsm", "trmm"):
        assert recursive.leaf_size(name, largest, (BF16, FP32)) == largest
        assert (
            recursive.leaf_size(name, largest + 1, (BF16, FP32))
            == recursive.FAST_PRODUCT_LEAVES[name]
        )
        # the layers above FP64 gain more
        assert (
            recursive.leaf_size(name, largest, (BF16, FP64)) == recursive.FAST_PRODUCT_LEAVES[name]
        )
    assert (
        recursive.leaf_size("tree", largest, (BF16, FP32)) == recursive.FAST_PRODUCT_LEAVES["tree"]
    )
    monkeypatch.setattr(blas, "on_matrix_units", lambda form: form is BF16)
    assert (
        recursive.leaf_size("potrf", largest, (BF16, FP32))
        == recursive.FAST_PRODUCT_LEAVES["potrf"]
    )


@pytest.mark.slow
def test_a_search_is_remembered_for_its_order_and_type_only(own_cache, monkeypatch):
    faster = Variant("top", 2)
    monkeypatch.setattr(
        batched, "race", lambda variants, *_: {v: 1.0 + (v != faster) for v in variants}
    )
    winner, seconds = batched.search(24, np.float64, batch=32, among=QUICK)
    assert winner == faster
    assert set(seconds) == {batched.UNTUNED, *QUICK}
    assert batched.variant_for(24, np.float64) == faster
    assert batched.variant_for(24, np.float32) == batched.UNTUNED
    assert batched.variant_for(25, np.float64) == batched.UNTUNED
    (key,) = json.loads(own_cache.read_text())
    assert key == f"{batched.device_name()} float64 24"


@pytest.mark.slow
def test_each_layout_has_a_search_of_its_own(own_cache, monkeypatch):
    raced, faster = [], Variant("top", 2)

    def race(variants, a, on, rounds, layout, what):
        raced.append(layout)
        return {v: 1.0 + (v != faster) for v in variants}

    monkeypatch.setattr(batched, "race", race)
    before = batched.variant_for(24, np.float64)
    batched.search(24, layout="interleaved", batch=32, among=QUICK)
    assert set(raced) == {"interleaved"}
    assert batched.variant_for(24, np.float64, "cpu", layout="interleaved") == faster
    assert batched.variant_for(24, np.float64) == before
    # it is what interleaved factorizations then use, and what chunks are made for
    batched.remember(24, np.float64, Variant("top", 2, "batch"), layout="interleaved")
    width = batched.lanes_of(np.float64)
    assert batched.interleave(np.zeros((3 * width + 1, 24, 24))).shape == (1, 24, 24, 4 * width)
    with pytest.raises(gx.InvalidInput, match="layout must be one of canonical, interleaved"):
        batched.search(24, layout="rows")
    with pytest.raises(gx.InvalidInput, match="what must be one of potrf, solve"):
        batched.search(24, what="forward")
    with pytest.raises(gx.InvalidInput, match="substitutions have variants on a GPU only, for can"):
        batched.search(24, on="gpu", layout="interleaved", what="solve")


def test_winners_of_each_layout_and_operation_are_remembered_apart(own_cache):
    kinds = ({}, {"layout": "interleaved"}, {"what": "solve"})
    for tile, kind in enumerate(kinds, 1):
        batched.remember(7, np.float32, Variant("right", tile), **kind)
    found = [batched.variant_for(7, np.float32, **kind).tile for kind in kinds[:2]]
    assert found == [1, 2]
    device = batched.device_name()
    ends = ("7", "7 interleaved", "7 solve")
    assert set(json.loads(own_cache.read_text())) == {f"{device} float32 {end}" for end in ends}


def test_larger_chunks_are_tried_for_the_best_variant_of_a_race(own_cache, monkeypatch):
    best, raced = Variant("top", 3), []

    def race(variants, *_):
        raced.append(list(variants))
        return {v: 1.0 - 0.5 * (v == best) for v in variants}

    monkeypatch.setattr(batched, "race", race)
    # compiling all candidates takes long; other tests compare their factors with LAPACK's
    monkeypatch.setattr(batched, "_is_right", lambda *_: True)
    for layout, sizes in (("canonical", (1, 2, 4)), ("interleaved", (1, 2, 4, "batch"))):
        raced.clear()
        assert batched.fastest(30, layout=layout, batch=16)[0] == best
        first = batched.candidates(30, layout=layout)
        assert set(raced[0]) == {batched.UNTUNED, *first}
        assert raced[1:] == [[replace(best, chunk=k) for k in sizes], [batched.UNTUNED, best]]


@pytest.mark.slow
def test_a_real_race_of_interleaved_batches_compares_chunks_and_none(own_cache):
    among = (*QUICK, Variant("left", 4, "batch"))
    winner, seconds = batched.fastest(12, layout="interleaved", batch=64, rounds=1, among=among)
    assert set(seconds) == {batched.UNTUNED, *among}
    assert winner in seconds
    assert all(value > 0 for value in seconds.values())
    # nothing is kept
    assert not own_cache.exists()


@pytest.mark.slow
def test_the_untuned_variant_stays_where_the_others_gain_little(own_cache, monkeypatch):
    monkeypatch.setattr(
        batched,
        "race",
        lambda variants, *_: {v: 1.0 if v == batched.UNTUNED else 0.99 for v in variants},
    )
    assert batched.search(20, np.float32, batch=16, among=QUICK)[0] == batched.UNTUNED


@pytest.mark.slow
def test_a_real_race_has_a_winner_with_lapacks_factors(own_cache):
    winner, seconds = batched.search(12, np.float64, batch=64, rounds=1, among=QUICK)
    assert winner in seconds
    assert all(value > 0 for value in seconds.values())


@pytest.mark.slow
def test_a_variant_with_wrong_factors_is_not_raced(own_cache, monkeypatch):
    right = batched.potrf

    def wrong(a, *, variant, check=True):
        return right(a if variant.looking == "left" else 1.01 * a, variant=variant, check=check)

    monkeypatch.setattr(batched, "potrf", wrong)
    with pytest.warns(gx.GeomxpWarning, match="'top'.*wrong factors"):
        winner, seconds = batched.search(9, np.float64, batch=16, rounds=1, among=QUICK)
    assert winner == Variant("left", 4)
    assert list(seconds) == [winner]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        '{"a": {"looking": "down"}}',
        '{"a": {"tiles": 3}}',
        '{"a": {"tile": 99}}',
        '{"a": {"panel": 3, "block": [32, 1, 1]}}',
        '{"a": {"chunk": 0, "panel": 3, "block": [32, 1]}}',
        '{"a": {"fast": true}}',
        '{"a": {"chunk": "row"}}',
        '{"a": {"chunk": 65}}',
        '{"a": {"chunk": null}}',
        "\xff",
    ],
)
def test_a_corrupt_file_is_said_and_ignored(own_cache, text):
    own_cache.write_text(text, encoding="latin-1")
    with pytest.warns(gx.GeomxpWarning, match=r"batched\.json is ignored"):
        assert batched.variant_for(20, np.float64) == batched.UNTUNED
    with warnings.catch_warnings():
        # once
        warnings.simplefilter("error")
        batched.variant_for(20, np.float64)
    batched.remember(20, np.float64, Variant("top", 3))
    assert batched.variant_for(20, np.float64) == Variant("top", 3)


@pytest.mark.slow
def test_what_cannot_be_written_is_said_and_forgotten(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GEOMXP_CACHE_DIR", str(tmp_path / "file"))
    with pytest.warns(gx.GeomxpWarning, match="cannot be written"):
        batched.remember(20, np.float64, Variant("top", 3))
    assert batched.variant_for(20, np.float64) == batched.UNTUNED
    # programs are compiled all the same
    factors = batched.potrf(4.0 * np.eye(3)[None], variant=Variant("right", 2))
    np.testing.assert_array_equal(factors, 2.0 * np.eye(3)[None])


def test_orders_beyond_the_batched_ones_are_refused():
    with pytest.raises(gx.InvalidInput, match=r"orders 1 to 128\. Got 129"):
        batched.search(129)


@pytest.mark.parametrize("n", [1, 5, 8, 9, 16, 17, 64, 128])
def test_shipped_choices_are_candidates_of_a_search_or_differ_in_chunks(n, own_cache):
    for layout in batched.BATCH_LAYOUTS:
        shipped = batched.variant_for(n, np.float64, "cpu", layout=layout)
        assert replace(shipped, chunk=1) in batched.candidates(n, layout=layout)
    assert {v.looking for v in batched.candidates(n)} == {"top", "left", "right"}


def test_what_has_no_variants_is_refused():
    with pytest.raises(gx.InvalidInput, match="orders 1 to 128"):
        batched.variant_for(129, np.float64)
    with pytest.raises(gx.InvalidInput, match="layout must be one of"):
        batched.variant_for(8, np.float64, layout="columns")
    with pytest.raises(gx.InvalidInput, match="substitutions have variants on a GPU only"):
        batched.variant_for(8, np.float64, what="solve")
