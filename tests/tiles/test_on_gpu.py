"""Tiles in one GPU's memory: one wait at the end gives the bits of a wait after each tile."""

import gc
import threading
from dataclasses import replace

import numpy as np
import pytest
from cuda_emulator import session

import geomxp as gx
from geomxp import testing
from geomxp.covariance import table
from geomxp.covariance.ordering import hilbert
from geomxp.likelihood.factors import tile_factor
from geomxp.linalg import mixed
from geomxp.linalg.formats import FP64
from geomxp.runtime.devices import gpu_count
from geomxp.tiles import assemble, cholesky
from geomxp.tiles.cholesky import factorize, left_looking
from geomxp.tiles.factor import TileFactor
from geomxp.tiles.on_gpu import GpuStore
from geomxp.tiles.placement import InMemory, Placement
from geomxp.tiles.stores import InCore

pytestmark = pytest.mark.gpu

ROUGH = gx.Matern(1.0, 0.0788, 0.5, 1e-2)
SMOOTH, LESS_SMOOTH = gx.Matern(1.0, 0.2, 2.5, 1e-4), gx.Matern(1.0, 0.2, 1.5, 1e-4)
RULES = {
    "fp64": gx.uniform("fp64"),
    "fp32": gx.uniform("fp32"),
    "fp16": gx.uniform("fp16"),
    "fp8": gx.uniform("fp8"),
    "fp16 products": gx.uniform("fp32-fp16"),
    "fp16 products beside all": gx.by_band(("fp32", 1), ("fp32-fp16", 2), ("fp16", 1), "fp8"),
    "by norm": gx.by_tile_norm(1e-5),
    "by norm, coarse": gx.by_tile_norm(1e-3),
    "without a scale": gx.by_tile_norm(1e-4, scale=False),
    "layered": gx.layered("fp8", "bf16", "fp16", "fp32"),
    "by band": gx.by_band(("fp64", 2), ("fp32", 2), "fp8"),
    "bf16 beside fp8": gx.by_band(("bf16", 1), "fp8"),
    "tf32 beside bf16": gx.by_band(("tf32", 1), ("fp16", 1), "bf16"),
    "fp8 beside all": gx.by_band(("fp32", 1), ("fp16", 1), "fp8"),
}
PROMOTED = {
    "by norm": (SMOOTH, gx.by_tile_norm(1e-3)),
    "fp16": (SMOOTH, gx.uniform("fp16")),
    "fp16 products": (SMOOTH, gx.uniform("fp32-fp16")),
    "fp8": (LESS_SMOOTH, gx.uniform("fp8")),
    "layered": (SMOOTH, gx.layered("fp16", "fp32", "fp64")),
    "deeply layered": (LESS_SMOOTH, gx.layered("fp8", "fp16", "fp32", "fp64")),
    "by band": (SMOOTH, gx.by_band(("fp32", 2), ("fp16", 3), "fp8")),
}


def orders(emulated):
    """Yield once on a GPU; on the emulator several times, each with another order of execution."""
    for number in range(session.size(1, emulated)):
        if session.size(False, True):
            from cuda_emulator import machine

            machine.seed(number)
        yield number


class AtOnce(GpuStore):
    """A store that waits after each tile, and so sees failures where they happen."""

    def run(self, tiles):
        for tile in tiles:
            super().run([tile])


def originals_of(model, n=161, tile=32, index=0):
    places = np.random.default_rng(1).random((n, 2))
    return assemble.originals(model, places[hilbert(places)], "euclidean", tile, index)


def factored(kind, model, rule, **options):
    """A store with the factor, and how many tiles were promoted."""
    originals = originals_of(model, **options)
    store = kind(originals, rule(originals.norms()))
    return store, factorize(store, store.order(), lambda store, tiles: store.run(tiles))


def assert_same_tiles(found, expected):
    """Formats, exponents, numbers, and bytes."""
    assert found.formats.rows == expected.formats.rows
    for pair in left_looking(found.layout.tiles):
        one, two = found.final(*pair), expected.final(*pair)
        assert (one.form, one.exponent) == (two.form, two.exponent)
        assert type(one.exponent) is int
        assert one.values.nbytes == two.values.nbytes
        assert not one.casts
        np.testing.assert_array_equal(one.widen().get(), two.widen().get())
    assert found.bytes == expected.bytes == found.formats.bytes(found.layout)


@pytest.mark.slow
@pytest.mark.parametrize("tile", [32, 50])
@pytest.mark.parametrize("rule", RULES)
def test_the_bits_are_those_of_a_wait_after_each_tile(rule, tile):
    about = ROUGH, RULES[rule]
    expected, _ = factored(AtOnce, *about, n=129, tile=tile)
    for _ in orders(3):
        found, promoted = factored(GpuStore, *about, n=129, tile=tile)
        assert promoted == 0
        assert_same_tiles(found, expected)


@pytest.mark.slow
def test_a_run_begins_after_what_was_put_on_the_gpu_before():
    originals, formats = originals_of(ROUGH, 128, 32), None
    found = []
    for _ in orders(24):
        formats = formats or RULES["fp8 beside all"](originals.norms())
        store = GpuStore(originals, formats)
        factorize(store, store.order(), lambda store, tiles: store.run(tiles))
        found.append([store.final(i, k).widen().get() for i in range(4) for k in range(i + 1)])
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, two)


@pytest.mark.slow
@pytest.mark.parametrize("case", PROMOTED)
def test_a_failure_that_is_seen_at_the_end_gives_the_same_promotions_and_bits(case):
    expected, promoted = factored(AtOnce, *PROMOTED[case])
    assert promoted > 0
    for _ in orders(3):
        found, again = factored(GpuStore, *PROMOTED[case])
        assert again == promoted
        assert_same_tiles(found, expected)


HARD = {
    "promoted once": (SMOOTH, gx.by_tile_norm(1e-3)),
    "twice, then a tenth of the error": (gx.Matern(1.0, 0.4, 2.5, 1e-6), gx.by_tile_norm(1e-2)),
    "FP64 in the end": (gx.Matern(1.0, 0.5, 2.5, 1e-9), gx.uniform("fp8")),
    "bf16 and tf32": (
        gx.Matern(1.0, 0.2, 2.5, 3e-4),
        gx.by_band(("tf32", 1), ("fp32", 1), "bf16"),
    ),
    "a tenth, then FP64": (gx.Matern(1.0, 1.0, 2.5, 1e-10), gx.by_tile_norm(1e-2)),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", HARD)
def test_rules_are_made_finer_as_if_each_failure_were_seen_at_once(case):
    seen, (model, rule) = testing.observations(161), HARD[case]
    found = tile_factor(model, seen, rule, 32, Placement.of("gpu"))
    at_once = replace(Placement.of("gpu"), own=AtOnce)
    expected = tile_factor(model, seen, rule, 32, at_once)
    assert found.promotions == expected.promotions > 0
    assert_same_tiles(found.store, expected.store)
    if "FP64" in case:
        assert found.precision_map.all_fp64


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["fp64", "by norm", "fp8", "fp8 beside all"])
def test_a_matrix_without_a_factor_is_the_same_error(rule):
    model, errors = gx.Matern(1.0, 50.0, 2.5), []
    for kind in (AtOnce, GpuStore):
        with pytest.raises(gx.NotPositiveDefinite) as caught:
            factored(kind, model, RULES[rule])
        errors.append((str(caught.value), caught.value.order))
    assert errors[0] == errors[1]


@pytest.mark.slow
@pytest.mark.parametrize("where", [(0, 0), (3, 1), (4, 4), (5, 2)])
def test_a_tile_that_is_not_finite_is_an_error(where, monkeypatch):
    """An infinity becomes NaN in the next product: a diagonal tile fails, or the tile itself."""
    tile, errors = assemble.Originals.tile, []

    def spoiled(self, i, k, *about, **options):
        array = tile(self, i, k, *about, **options)
        if (i, k) == where:
            array[-1, 0] = np.inf
        return array

    monkeypatch.setattr(assemble.Originals, "tile", spoiled)
    for kind in (AtOnce, GpuStore):
        with pytest.raises((gx.InvalidInput, gx.NotPositiveDefinite)) as caught:
            factored(kind, ROUGH, gx.by_band(("fp64", 1), "fp16"))
        errors.append((type(caught.value), str(caught.value)))
    assert errors[0] == errors[1]
    on_the_diagonal = where[0] == where[1]
    assert errors[0][0] is (gx.NotPositiveDefinite if on_the_diagonal else gx.InvalidInput)


def test_all_solves_of_a_column_use_one_set_of_inverses(monkeypatch):
    def again(*_):
        raise AssertionError("inverses of a diagonal tile were computed for one solve")

    # `trsm` calls it if it is given no triangle
    monkeypatch.setattr(mixed, "solver", again)
    found, _ = factored(GpuStore, ROUGH, gx.by_tile_norm(1e-4))
    assert found.formats.counts()["fp64"] < found.layout.tiles * (found.layout.tiles + 1) // 2


@pytest.mark.slow
def test_after_an_error_nothing_is_left_and_the_rest_can_be_done(monkeypatch):
    tile, broken = assemble.Originals.tile, []

    def failing(self, i, k, *about, **options):
        if [(i, k)] == broken and "missed" in options:
            raise OSError("a tile is not there")
        return tile(self, i, k, *about, **options)

    monkeypatch.setattr(assemble.Originals, "tile", failing)
    originals, rule = originals_of(ROUGH), gx.by_tile_norm(1e-4)
    store = GpuStore(originals, rule(originals.norms()))
    for number in orders(6):
        broken[:] = [(5 - number // 2, 2)]
        with pytest.raises(OSError, match="not there"):
            store.run(store.order())
        assert store.bytes == 0
        assert not any(store.has(*pair) for pair in store.order())
    broken.clear()
    store.run(store.order())
    assert_same_tiles(store, factored(AtOnce, ROUGH, rule)[0])


@pytest.mark.parametrize("by_norms", [True, False])
def test_tables_that_do_not_reach_all_pairs_are_extended(by_norms):
    """Pairs that are closer than the table expects, seen by the norms or at the end only."""
    places = np.random.default_rng(1).random((128, 2))
    places[77] = places[3] + 1e-6
    places = places[hilbert(places)]
    # tables are kept for each smoothness
    model = gx.Matern(1.0, 0.1, 0.31 + by_norms / 100, 0.1)
    there, here = (assemble.originals(model, places, "euclidean", 32, index) for index in (0, None))
    before = there.pairs.parts[0].octaves
    store = GpuStore(there, gx.uniform("fp64")(np.ones((4, 4))))
    if by_norms:
        norms = there.norms()
    store.run(store.order())
    assert there.pairs.parts[0].octaves[0] < before[0]
    if by_norms:
        np.testing.assert_allclose(norms, here.norms(), rtol=1e-6)
    known = InCore(here, store.formats)
    cholesky.run(known, known.order(), threads=1)
    for pair in store.order():
        one, two = store.final(*pair).values.get(), known.final(*pair).values
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_a_store_that_finishes_tiles_by_threads_finds_the_same_but_for_its_sums(rule):
    """FP8 is stored by columns there, and products as FP16 may be summed in another order."""
    found, _ = factored(GpuStore, ROUGH, RULES[rule], n=129)
    known = InCore(found.originals, found.formats)
    cholesky.run(known, known.order(), threads=3)
    for pair in found.order():
        one, two = found.final(*pair), known.final(*pair)
        assert (one.form, one.exponent) == (two.form, two.exponent)
        u = max(one.form.unit_roundoff, 2.0**-24)
        np.testing.assert_allclose(one.widen().get(), two.widen().get(), rtol=2 * u, atol=1e-6)


@pytest.mark.parametrize("tile", [32, 48])
def test_fp8_stands_by_rows_where_units_multiply_it_and_once_only(tile):
    store, _ = factored(GpuStore, ROUGH, gx.by_band(("fp16", 1), "fp8"), n=240, tile=tile)
    last = store.layout.tiles - 1
    for i, k in left_looking(store.layout.tiles):
        values = store.final(i, k).values
        if values.dtype == np.uint8:
            # those that no other FP8 tile is multiplied with stay in columns
            assert values.flags.c_contiguous == (k < last - 1)


@pytest.mark.slow
def test_two_devices_have_the_same_bits():
    if gpu_count() < 2:
        pytest.skip("needs two GPUs; this machine has one")
    import cupy

    rule, model = RULES["fp8 beside all"], ROUGH
    expected, _ = factored(GpuStore, model, rule)
    expected = {pair: expected.final(*pair).widen().get() for pair in expected.order()}
    pool = cupy.get_default_memory_pool()
    gc.collect()
    pool.free_all_blocks()
    before = pool.total_bytes()
    for _ in orders(3):
        found, _ = factored(GpuStore, model, rule, index=1)
        assert cupy.cuda.Device().id == 0
        for pair, values in expected.items():
            assert found.final(*pair).values.device.id == 1
            np.testing.assert_array_equal(found.final(*pair).widen().get(), values)
    assert pool.total_bytes() <= before


ACCURACIES = [1e-5, 1e-8]
RANGES = {"weak": 0.02627, "medium": 0.078809, "strong": 0.210158}
"""The correlations of the papers."""


def counted(work):
    """What a second call asks of the GPU, when kernels are compiled and tables are there."""
    if not session.size(False, True):
        pytest.skip("the emulator counts operations")
    from cuda_emulator import machine

    work()
    with machine.counting() as counts:
        work()
    return counts


# each range and each accuracy
SOME = [("weak", 1e-5), ("medium", 1e-8), ("strong", 1e-8)]


@pytest.mark.slow
@pytest.mark.parametrize(("correlation", "accuracy"), SOME)
def test_the_cpu_waits_once_for_the_norms_and_once_for_the_factor(correlation, accuracy):
    model = gx.Matern(1.0, RANGES[correlation], 0.5, nugget=0.01)
    originals, rule = originals_of(model, n=225, tile=32), gx.by_tile_norm(accuracy)

    def work():
        store = GpuStore(originals, rule(originals.norms()))
        assert factorize(store, store.order(), lambda store, tiles: store.run(tiles)) == 0

    assert counted(work)["synchronizations"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("case", PROMOTED)
def test_each_run_after_a_failure_is_one_more_wait(case):
    (model, rule), runs = PROMOTED[case], []
    originals = originals_of(model)
    formats = rule(originals.norms())

    def run(store, tiles):
        runs.append(tiles)
        store.run(tiles)

    def work():
        store = GpuStore(originals, formats)
        runs.clear()
        factorize(store, store.order(), run)

    # a run that fails, one for the promoted row, one for the rest
    assert counted(work)["synchronizations"] == len(runs) >= 3


@pytest.mark.slow
@pytest.mark.parametrize(("correlation", "accuracy"), SOME)
def test_launches_and_waits_of_a_likelihood_are_few(correlation, accuracy):
    """a + b (products + tiles) launches, at two sizes."""
    models = (gx.Matern(v, RANGES[correlation], 0.5, nugget=0.01) for v in range(1, 100))
    for tiles in (6, 10):
        method = gx.Exact(gx.by_tile_norm(accuracy), tile=32, on="gpu")
        evaluator = method.prepare(testing.observations(32 * tiles))
        counts = counted(lambda evaluator=evaluator: evaluator(next(models)))
        # the places are copied; norms, factor, log-determinant and whitened values come back
        assert counts["synchronizations"] <= 5
        products, all_tiles = tiles * (tiles**2 - 1) // 6 + tiles * (tiles - 1) // 2, tiles**2 // 2
        # a product in two FP16 planes takes three calls
        assert counts["library calls"] <= 30 + 3 * products + 18 * all_tiles
        assert counts["launches"] <= 60 + 3.6 * products + 40 * all_tiles
        assert counts["events created"] <= 6 * tiles + 30
        assert counts["streams created"] == counts["handles created"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(("correlation", "accuracy"), SOME)
def test_launches_and_waits_out_of_core_are_linear_in_products_and_tiles(correlation, accuracy):
    model = gx.Matern(1.0, RANGES[correlation], 0.5, nugget=0.01)
    for tiles in (6, 10):
        seen, there = testing.observations(32 * tiles), Placement.of("gpu", device_memory="600kB")

        def work(seen=seen, there=there):
            tile_factor(model, seen, gx.by_tile_norm(accuracy), 32, there).store.close()

        counts = counted(work)
        products, all_tiles = tiles * (tiles**2 - 1) // 6 + tiles * (tiles - 1) // 2, tiles**2 // 2
        assert counts["synchronizations"] <= 30 + 2 * all_tiles
        assert counts["launches"] <= 60 + 3.1 * products + 52 * all_tiles
        assert counts["streams created"] == counts["handles created"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("accuracy", ACCURACIES)
@pytest.mark.parametrize("correlation", RANGES)
def test_a_factor_by_norms_is_as_near_on_a_gpu_as_on_the_cpu(correlation, accuracy):
    seen, model = testing.observations(250), gx.Matern(1.0, RANGES[correlation], 0.5, nugget=0.01)
    errors = []
    for there in (InMemory(), Placement.of("gpu")):
        factor = tile_factor(model, seen, gx.by_tile_norm(accuracy), 50, there)
        lower, places = factor.dense(), seen.locations[factor.order]
        sigma = model(places, places) + 0.01 * np.eye(250)
        errors.append(np.linalg.norm(lower @ lower.T - sigma) / np.linalg.norm(sigma))
    # solves in coarse formats err about as much as their tiles are rounded
    assert errors[1] <= 1.5 * errors[0] + 1e-7
    assert errors[1] <= accuracy + 1e-7


@pytest.mark.parametrize("accuracy", [1e-9, 1e-11, 1e-13])
def test_far_tiles_are_as_near_as_the_rule_promises(accuracy):
    places = np.random.default_rng(1).random((300, 2)) * [0.1, 1.0]
    places[100:200, 0] += 2.6
    places[200:, 0] += 5.2
    model = gx.Matern(1.0, 0.1, 0.5, 1e-4)
    sigma = model(places, places) + 1e-4 * np.eye(300)
    originals = assemble.originals(model, places, "euclidean", 100, 0)
    store = GpuStore(originals, gx.by_tile_norm(accuracy)(originals.norms()))
    factorize(store, store.order(), lambda store, tiles: store.run(tiles))
    lower = TileFactor(store, np.arange(300)).dense()
    error = (lower @ lower.T - sigma)[100:, :100]
    assert np.linalg.norm(error) <= 2 * accuracy * np.linalg.norm(sigma)


@pytest.mark.slow
def test_another_thread_may_replace_the_table_that_is_read(monkeypatch):
    places, rule = np.random.default_rng(2).random((200, 2)), gx.by_tile_norm(1e-6)
    model, main = gx.Matern(1.0, 0.08, 0.7, 1e-2), threading.current_thread()

    def factor_of(places, tile):
        originals = assemble.originals(model, places, "euclidean", tile, 0)
        store = GpuStore(originals, rule(originals.norms()))
        factorize(store, store.order(), lambda store, tiles: store.run(tiles))
        return TileFactor(store, np.arange(200)).dense()

    expected, generate, calls = factor_of(places, 40), assemble.Originals.tile, []

    def tile(*about, **more):
        if threading.current_thread() is main:
            calls.append(about)
            if len(calls) == 8:
                other = threading.Thread(target=factor_of, args=(places * 1e-3, 100))
                other.start()
                other.join()
        return generate(*about, **more)

    monkeypatch.setattr(assemble.Originals, "tile", tile)
    for _ in orders(6):
        calls.clear()
        table.tables_kept.clear()
        np.testing.assert_array_equal(factor_of(places, 40), expected)


def test_streams_and_handles_are_created_once():
    if not session.size(False, True):
        pytest.skip("the emulator counts them")
    from cuda_emulator import machine

    factored(GpuStore, ROUGH, RULES["by norm"])
    with machine.counting() as counts:
        factored(GpuStore, ROUGH, RULES["by norm"])
    assert counts["streams created"] == counts["handles created"] == 0


def test_the_memory_at_the_end_is_that_of_the_tiles():
    store, _ = factored(GpuStore, ROUGH, RULES["fp8 beside all"])
    held = sum(store.final(*pair).nbytes for pair in store.order())
    assert store.bytes == held == store.formats.bytes(store.layout)
    assert store.peak_bytes >= store.bytes
    assert FP64 in {store.formats[k, k] for k in range(store.layout.tiles)}
    store.close()
