"""Tiles that stay on one GPU: what is kept beside them, what is chosen there, what is refused."""

import gc
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, BrokenBarrierError

import numpy as np
import pytest
from cuda_emulator import session

import geomxp as gx
from geomxp import testing
from geomxp.likelihood.factors import tile_factor
from geomxp.linalg.device import copy_on_gpu
from geomxp.prediction import kriging
from geomxp.runtime import devices
from geomxp.runtime.devices import Device
from geomxp.tiles.placement import InMemory, OutOfCore
from geomxp.tiles.plan import POLICIES


def test_a_gpus_tiles_are_larger_than_a_cpus_in_one_memory_too():
    there, here = InMemory((Device("gpu:0", 0),)), InMemory()
    for n, tile in ((60_000, 4096), (16_000, 2048), (4_000, 1024)):
        assert there.in_core
        assert there.layout(n).tile == tile > here.layout(n).tile
    assert there.layout(300).tile == here.layout(300).tile
    assert there.layout(60_000, 512).tile == 512
    bounded = OutOfCore((Device("gpu:0", 0),), device_memory=2**30)
    assert [bounded.layout(n).tile for n in (60_000, 16_000, 4_000)] == [4096, 2048, 1024]


def test_a_stream_for_each_thread_is_refused(monkeypatch):
    monkeypatch.setattr(devices, "gpu_count", lambda: 1)
    for value in ("", "0"):
        monkeypatch.setenv(devices.PER_THREAD_STREAM_VARIABLE, value)
        assert devices.resolve("gpu").index == 0
    monkeypatch.setenv(devices.PER_THREAD_STREAM_VARIABLE, "1")
    with pytest.raises(gx.InvalidInput, match="PER_THREAD_DEFAULT_STREAM=1: unset it"):
        devices.resolve("gpu")
    assert devices.resolve("cpu").index is None


# from here on with a GPU ----------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("tile", [None, 64])
def test_predictions_do_not_depend_on_how_many_are_made_at_a_time(monkeypatch, tile):
    seen, targets = testing.observations(200), testing.places(50)
    method = gx.Exact(tile=tile, on="gpu")
    fit = gx.fit(
        seen, testing.MODEL, method, fixed=tuple(testing.MODEL.parameters()), progress=False
    )
    at_once = gx.predict(fit, targets, progress=False)
    monkeypatch.setattr(kriging, "GPU_CHUNK_ENTRIES", 7 * len(seen))
    in_parts = gx.predict(fit, targets, progress=False)
    condition = testing.condition_number(testing.MODEL, seen)
    tolerance = 10 * len(seen) * 2.0**-53 * condition
    np.testing.assert_allclose(in_parts.mean, at_once.mean, rtol=0, atol=tolerance)
    np.testing.assert_allclose(in_parts.variance, at_once.variance, rtol=0, atol=tolerance)


def fill(pool):
    """Limit CuPy's pool to what it has, and return what takes the parts of it that are free."""
    import cupy

    gc.collect()
    pool.free_all_blocks()
    pool.set_limit(size=max(pool.total_bytes(), 1))
    taken, size = [], 2**30
    while size >= 512:
        try:
            taken.append(cupy.empty(size, np.uint8))
        except MemoryError:
            size //= 2
    return taken


@pytest.fixture
def little_memory():
    """CuPy's pool has no memory left on the current GPU."""
    import cupy

    pool = cupy.get_default_memory_pool()
    taken = fill(pool)
    yield
    pool.set_limit(size=0)
    del taken


METHODS = {
    "dense": lambda: gx.Exact(on="gpu"),
    "tiles": lambda: gx.Exact(on="gpu", tile=100),
    "mixed tiles": lambda: gx.Exact(gx.by_tile_norm(1e-6), on="gpu", tile=100),
    "Vecchia": lambda: gx.Vecchia(30, on="gpu"),
}


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
def test_a_full_gpu_is_an_error_that_says_what_to_do(method, little_memory, monkeypatch):
    # as if another process had taken the memory after it was checked
    monkeypatch.setattr(Device, "free_memory", lambda self: 1e12)
    seen = testing.observations(1000)
    message = r"the memory of the GPU is exhausted \(.*\): keep most tiles in RAM \(--device-memory"
    with pytest.raises(gx.NotEnoughMemory, match=message):
        gx.log_likelihood(seen, testing.MODEL, METHODS[method](), trend="linear")


def orders(emulated):
    """Yield once on a GPU; on the emulator several times, each with another order of execution."""
    for number in range(session.size(1, emulated)):
        if session.size(False, True):
            from cuda_emulator import machine

            machine.seed(number)
        yield number


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize(
    ("rule", "room", "runs"),
    [(gx.uniform("fp64"), 45_000, 8), (gx.by_band(("fp64", 1), ("fp16", 2), "fp8"), 70_000, 3)],
    ids=["fp64", "all formats"],
)
def test_out_of_core_a_gpu_has_the_bits_of_one_memory_in_any_order(rule, room, runs, policy):
    seen, gpus = testing.observations(98), (Device("gpu:0", 0),)
    known = tile_factor(testing.MODEL, seen, rule, 16, InMemory(gpus)).dense()
    # eight or nine slots, which are soon reused
    placement = OutOfCore(gpus, device_memory=room, policy=policy)
    for _ in orders(runs):
        found = tile_factor(testing.MODEL, seen, rule, 16, placement)
        np.testing.assert_array_equal(found.dense(), known)


@pytest.mark.gpu
def test_a_copy_that_streams_share_is_there_for_all_of_them():
    import cupy

    for number in range(10):
        array = np.arange(1000.0) + number
        with cupy.cuda.Stream(non_blocking=True):
            copy_on_gpu(array)
        with cupy.cuda.Stream(non_blocking=True):
            np.testing.assert_array_equal(copy_on_gpu(array).get(), array)


@pytest.mark.gpu
def test_threads_that_want_a_copy_at_once_share_one(monkeypatch):
    import cupy

    asarray, both, made = cupy.asarray, Barrier(2), []

    def watched(array):
        made.append(array)
        with suppress(BrokenBarrierError):
            # a second thread, if it is let in, comes meanwhile
            both.wait(0.5)
        return asarray(array)

    monkeypatch.setattr(cupy, "asarray", watched)
    array = np.arange(1000.0)
    with ThreadPoolExecutor(2) as threads:
        one, two = threads.map(copy_on_gpu, (array, array))
    assert one is two
    assert len(made) == 1


USES = {
    "predict": lambda fit: gx.predict(fit, testing.places(2000, seed=3)),
    "leave_one_out": gx.leave_one_out,
    "cross_validate": lambda fit: gx.cross_validate(fit, 3, progress=False),
    "simulate": lambda fit: gx.simulate(fit, testing.places(5, seed=3)),
    "bootstrap": lambda fit: gx.bootstrap(fit, draws=2, progress=False),
}


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("use", USES)
def test_a_gpu_that_is_full_after_the_factorization_is_the_same_error(use, monkeypatch):
    import cupy

    from geomxp.likelihood.exact import ExactEvaluator

    places, held = testing.places(300), ("range", "smoothness", "nugget")
    seen = gx.Observations(places, gx.simulate(testing.MODEL, places, seed=1)[0])
    fit = gx.fit(seen, testing.MODEL, gx.Exact(on="gpu"), fixed=held, progress=False)
    pool, factorize = cupy.get_default_memory_pool(), ExactEvaluator.factorize
    taken = []

    def then_full(*arguments):
        factor = factorize(*arguments)
        taken.extend(fill(pool))
        return factor

    monkeypatch.setattr(ExactEvaluator, "factorize", then_full)
    try:
        with pytest.raises(gx.NotEnoughMemory, match="the memory of the GPU is exhausted"):
            USES[use](fit)
    finally:
        pool.set_limit(size=0)


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("device_memory", [None, "2MB"])
def test_threads_may_share_an_evaluator(device_memory):
    tile = None if device_memory is None else 64
    method = gx.Exact(on="gpu", tile=tile, device_memory=device_memory)
    evaluator = method.prepare(testing.observations(200))
    models = [gx.Matern(1.0 + k, 0.2, 0.5, 0.01) for k in range(3)]
    expected = [evaluator(model).log_likelihood for model in models]
    with ThreadPoolExecutor(3) as threads:
        for _ in range(3):
            found = threads.map(lambda model: evaluator(model).log_likelihood, models)
            assert list(found) == expected


@pytest.mark.gpu
def test_models_without_a_factor_do_not_cost_the_pinned_memory(monkeypatch):
    from cupy.cuda import runtime

    register, calls = runtime.hostRegister, []
    monkeypatch.setattr(
        runtime, "hostRegister", lambda *about: calls.append(about) or register(*about)
    )
    places = testing.places(256)
    places[1] = places[0] + 1e-15
    seen = gx.Observations(places, np.random.default_rng(0).standard_normal(256))
    good, bad = gx.Matern(1.0, 0.1, 0.5, 0.1), gx.Matern(1.0, 50.0, 5.0, 0.0)
    evaluator = gx.Exact(tile=64, on="gpu", device_memory="3MB").prepare(seen)
    values = [evaluator(model).log_likelihood for model in (good, bad, good, bad, good)]
    assert values[1] == values[3] == -np.inf
    assert values[0] == values[2] == values[4]
    assert len(calls) == 1
