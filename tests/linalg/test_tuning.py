"""Variants are checked, raced and remembered; what cannot be read or written is said."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest

import geomxp as gx
from geomxp.linalg import batched, batched_programs, tuning
from geomxp.linalg.batched_programs import Variant
from geomxp.linalg.formats import FP16, FP64

QUICK = (Variant("left", 4), Variant("top", 2))


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GEOMXP_CACHE_DIR", str(tmp_path))
    return tmp_path / "batched.json"


def test_leaves_are_no_larger_than_the_matrix():
    assert tuning.leaf_size("potrf", 10, (FP64,)) == 10
    assert tuning.leaf_size("potrf", 9000, (FP16,)) < tuning.leaf_size("potrf", 9000, (FP64,))


def test_a_search_is_remembered_for_its_order_and_type_only(own_cache, monkeypatch):
    faster = Variant("top", 2)
    monkeypatch.setattr(
        tuning, "_race", lambda variants, *_: {v: 1.0 + (v != faster) for v in variants}
    )
    winner, seconds = tuning.search(24, np.float64, batch=32, among=QUICK)
    assert winner == faster
    assert set(seconds) == {tuning.UNTUNED, *QUICK}
    assert tuning.variant_for(24, np.float64) == faster
    assert tuning.variant_for(24, np.float32) == tuning.UNTUNED
    assert tuning.variant_for(25, np.float64) == tuning.UNTUNED
    (key,) = json.loads(own_cache.read_text())
    assert key == f"{tuning.device()} float64 24"


def test_the_untuned_variant_stays_where_the_others_gain_little(own_cache, monkeypatch):
    monkeypatch.setattr(
        tuning,
        "_race",
        lambda variants, *_: {v: 1.0 if v == tuning.UNTUNED else 0.99 for v in variants},
    )
    assert tuning.search(20, np.float32, batch=16, among=QUICK)[0] == tuning.UNTUNED


def test_a_real_race_has_a_winner_with_lapacks_factors(own_cache):
    winner, seconds = tuning.search(12, np.float64, batch=64, rounds=1, among=QUICK)
    assert winner in seconds
    assert all(value > 0 for value in seconds.values())


def test_a_variant_with_wrong_factors_is_not_raced(own_cache, monkeypatch):
    right = batched.potrf

    def wrong(a, *, variant, check=True):
        return right(a if variant.looking == "left" else 1.01 * a, variant=variant, check=check)

    monkeypatch.setattr(batched, "potrf", wrong)
    with pytest.warns(gx.GeomxpWarning, match="'top'.*wrong factors"):
        winner, seconds = tuning.search(9, np.float64, batch=16, rounds=1, among=QUICK)
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
        "\xff",
    ],
)
def test_a_corrupt_file_is_said_and_ignored(own_cache, text):
    own_cache.write_text(text, encoding="latin-1")
    with pytest.warns(gx.GeomxpWarning, match=r"batched\.json is ignored"):
        assert tuning.variant_for(20, np.float64) == tuning.UNTUNED
    with warnings.catch_warnings():
        # once
        warnings.simplefilter("error")
        tuning.variant_for(20, np.float64)
    tuning.remember(20, np.float64, Variant("top", 3))
    assert tuning.variant_for(20, np.float64) == Variant("top", 3)


def test_what_cannot_be_written_is_said_and_forgotten(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GEOMXP_CACHE_DIR", str(tmp_path / "file"))
    with pytest.warns(gx.GeomxpWarning, match="cannot be written"):
        tuning.remember(20, np.float64, Variant("top", 3))
    assert tuning.variant_for(20, np.float64) == tuning.UNTUNED
    # programs are compiled all the same
    program = batched_programs.factorization(Variant("right", 2), None)
    chunk = np.zeros((3, 3, batched.lanes_of(np.float64)))
    chunk[range(3), range(3)] = 4.0
    program.factor_chunk(chunk, 3)
    assert (chunk[range(3), range(3)] == 2.0).all()


def test_orders_beyond_the_batched_ones_are_refused():
    with pytest.raises(gx.InvalidInput, match=r"orders 1 to 128\. Got 129"):
        tuning.search(129)
    with pytest.raises(gx.InvalidInput, match="needs the order"):
        batched_programs.factorization(Variant(unroll=True))


@pytest.mark.parametrize("n", [1, 5, 8, 9, 16, 17, 64, 128])
def test_shipped_choices_are_candidates_of_a_search_or_differ_in_chunks(n, own_cache):
    shipped = tuning.variant_for(n, np.float64)
    assert replace(shipped, chunk=1) in tuning.candidates(n)
    assert {v.looking for v in tuning.candidates(n)} == {"top", "left", "right"}
