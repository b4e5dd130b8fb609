import numpy as np
import pytest

import geomxp as gx
from geomxp.covariance.ordering import hilbert
from geomxp.linalg import blas, mixed
from geomxp.linalg.formats import FP8, FP16, FP32, FP64
from geomxp.linalg.precision import PrecisionMap
from geomxp.tiles import assemble
from geomxp.tiles.cholesky import factorize, finish, left_looking
from geomxp.tiles.stores import InCore

MODEL = gx.Matern(1.7, 0.08, 0.5, 0.1)
RULES = [
    gx.uniform("fp64"),
    gx.uniform("fp32"),
    gx.uniform("bf16"),
    gx.uniform("tf32"),
    gx.by_tile_norm(1e-4),
    gx.by_tile_norm(1e-4, scale=False),
    gx.by_tile_norm(1e-8),
    gx.layered("fp8", "fp16", "fp32"),
    gx.by_band(("fp64", 2), ("fp32", 1), "fp8"),
]


def originals(n=150, tile=32, model=MODEL):
    places = np.random.default_rng(1).random((n, 2))
    return assemble.originals(model, places[hilbert(places)], "euclidean", tile)


def store_of(rule, **options):
    matrix = originals(**options)
    return InCore(matrix, rule(matrix.norms()))


def one_by_one(store, tiles):
    for tile in tiles:
        finish(store, *tile)


def held(store):
    """Bytes of the arrays that a store holds."""
    tiles = [store.final(i, k) for i, k in left_looking(store.layout.tiles) if store.has(i, k)]
    return sum(tile.nbytes for tile in tiles)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_bytes_are_counted_as_they_come_and_go(rule):
    store = store_of(rule)
    assert store.bytes == 0
    peak = 0
    for tile in left_looking(store.layout.tiles):
        assert not store.has(*tile)
        one_by_one(store, [tile])
        assert store.has(*tile)
        assert store.bytes == held(store) <= store.peak_bytes
        peak = max(peak, store.bytes)
    assert store.peak_bytes >= peak


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("n", [128, 150, 127])
def test_in_the_end_a_store_holds_the_bytes_of_its_map_and_nothing_more(rule, n):
    store = store_of(rule, n=n)
    factorize(store, left_looking(store.layout.tiles), one_by_one)
    assert store.bytes == held(store) == store.formats.bytes(store.layout)
    assert not any(store.final(i, k).casts for i, k in left_looking(store.layout.tiles))


@pytest.mark.parametrize("way", ["units", "widening"])
@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_every_tile_lives_in_the_format_of_the_map(monkeypatch, way, rule):
    if way == "widening":
        monkeypatch.setattr(blas, "has_unit", lambda form: False)
    store = store_of(rule)
    factorize(store, left_looking(store.layout.tiles), one_by_one)
    for i, k in left_looking(store.layout.tiles):
        tile, form = store.final(i, k), store.formats[i, k]
        assert tile.form is form
        assert tile.values.nbytes == form.bytes * store.layout.height(i) * store.layout.height(k)
        assert tile.split == (form is FP32 and i > k and mixed.splits())


def test_without_a_scale_no_tile_has_an_exponent():
    store = store_of(gx.by_tile_norm(1e-4, scale=False))
    factorize(store, left_looking(store.layout.tiles), one_by_one)
    tiles = [store.final(i, k) for i, k in left_looking(store.layout.tiles)]
    coarse = [tile for tile in tiles if tile.form in (FP8, FP16)]
    assert coarse
    assert all(tile.exponent == 0 for tile in coarse)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_originals_are_those_of_the_covariance_in_fp64_or_fp32(rule):
    store = store_of(rule)
    places = store.originals.pairs.parts[0].x.T
    sigma = MODEL(places, places) + MODEL.nugget * np.eye(len(places))
    for i, k in left_looking(store.layout.tiles):
        tile = store.original(i, k)
        assert tile.dtype == (np.float64 if store.formats[i, k] is FP64 else np.float32)
        expected = sigma[store.layout.rows(i), store.layout.rows(k)]
        unit = 4.0**store.originals.exponent
        tolerance = 8 * (FP64 if tile.dtype == np.float64 else FP32).unit_roundoff
        np.testing.assert_allclose(unit * tile, expected, rtol=0, atol=tolerance * sigma[0, 0])


def test_norms_are_those_of_the_tiles():
    matrix = originals()
    norms = matrix.norms()
    for i, k in left_looking(matrix.layout.tiles):
        tile = matrix.tile(i, k)
        assert norms[i, k] == pytest.approx(
            np.linalg.norm(tile), rel=tile.size * FP32.unit_roundoff
        )
    np.testing.assert_array_equal(norms[np.triu_indices(len(norms), 1)], 0.0)


@pytest.mark.parametrize("power", [-498, -100, 1, 300, 498])
def test_no_unit_of_the_values_changes_a_bit_of_the_tiles(power):
    plain = originals()
    c = 4.0**power
    scaled = originals(model=gx.Matern(1.7 * c, 0.08, 0.5, 0.1 * c))
    assert scaled.exponent == plain.exponent + power
    for i, k in left_looking(plain.layout.tiles):
        for form in (FP64, FP32):
            np.testing.assert_array_equal(scaled.tile(i, k, form), plain.tile(i, k, form))


def test_a_forgotten_tile_is_gone_and_comes_back_the_same():
    store = store_of(gx.by_tile_norm(1e-4))
    factorize(store, left_looking(store.layout.tiles), one_by_one)
    before, values = store.bytes, store.final(3, 1).values.copy()
    store.forget(3, 1)
    assert not store.has(3, 1)
    assert store.bytes == held(store) < before
    one_by_one(store, [(3, 1)])
    np.testing.assert_array_equal(store.final(3, 1).values, values)
    assert store.bytes == before


def test_casts_live_while_somebody_reads_them_and_no_longer():
    """Column 0 of FP64 beside an FP32 row: (1, 0) keeps a cast until row 1 has been used."""
    rows = ((FP64,), (FP64, FP64), (FP32, FP32, FP64), (FP16, FP32, FP32, FP64))
    matrix = originals(n=128, tile=32)
    store = InCore(matrix, PrecisionMap(rows))
    for tile in left_looking(4):
        one_by_one(store, [tile])
        if tile == (3, 0):
            assert store.final(1, 0).casts
        if tile == (3, 1):
            assert not store.final(1, 0).casts
