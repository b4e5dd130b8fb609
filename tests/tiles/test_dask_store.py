import gc
import json
import os
import pickle
import re
import signal
from functools import partial

import numpy as np
import pytest
from clusters import Elsewhere, answering, dask_config, distributed, kill, pid_of, rest, start
from waiting import wait_until

import geomxp as gx
from geomxp.errors import LostCluster
from geomxp.estimation.problem import Monitor
from geomxp.likelihood.factors import tile_factor
from geomxp.linalg.formats import FORMATS, FP64, Tile, quantize
from geomxp.runtime import dask
from geomxp.runtime.dask import DaskBackend
from geomxp.runtime.progress import listening
from geomxp.testing import observations
from geomxp.tiles.dask_store import DaskOriginals
from geomxp.tiles.layout import Layout
from geomxp.tiles.placement import Placement

pytestmark = pytest.mark.cluster

N, TILE = 450, 64
MODEL = gx.Matern(1.0, 0.1, 0.5, 1e-2)
SMOOTH = gx.Matern(1.0, 0.2, 2.5, 1e-4)
LOW_RANK = gx.for_divergence(1e-3, low_rank=True)
CASES = [
    pytest.param(MODEL, gx.uniform("fp64"), id="fp64"),
    pytest.param(MODEL, gx.by_tile_norm(1e-5), id="by norm"),
    pytest.param(MODEL, gx.by_band(("fp64", 2), ("fp32", 2), "fp8"), id="by band"),
    pytest.param(MODEL, gx.layered("fp8", "bf16", "fp16", "fp32"), id="layered"),
    pytest.param(MODEL, gx.for_divergence(1e-3), id="for divergence"),
    pytest.param(SMOOTH, gx.layered("fp16", "fp32", "fp64"), id="promoted"),
    pytest.param(SMOOTH, gx.uniform("fp16"), id="promoted and begun anew"),
]


PLANS = [(), (1,), (3,), (4, 2)]
"""Depths of pieces; the tests that do not say which have those of two threads."""


@pytest.fixture
def plan(monkeypatch, request):
    """Have this many threads ask for the depths that a test gives."""
    monkeypatch.setattr("geomxp.tiles.dask_store.DEPTHS_BY_THREAD_SHARE", ((0.0, request.param),))
    return request.param


@pytest.fixture(scope="module")
def seen():
    return observations(N)


def both(client, seen, model, rule, tile=TILE):
    """Return the factor of this process and that of the cluster."""
    there = tile_factor(model, seen, rule, tile, Placement.of(client))
    return tile_factor(model, seen, rule, tile), there


# the same bits


@pytest.mark.parametrize(("model", "rule"), CASES)
def test_a_cluster_gives_the_bits_of_one_memory(client, workers, seen, model, rule):
    here, there = both(client, seen, model, rule)
    assert there.precision_map == here.precision_map
    assert there.promotions == here.promotions
    assert there.nbytes == here.precision_map.bytes(here.store.layout)
    assert there.log_determinant() == here.log_determinant()
    np.testing.assert_array_equal(there.dense(), here.dense())
    b = np.random.default_rng(2).standard_normal((N, 3))
    b[:100] = 0.0
    for ask in ("half_solve", "solve", "multiply"):
        np.testing.assert_array_equal(getattr(there, ask)(b), getattr(here, ask)(b))
    for ask in ("half_solve", "solve"):
        np.testing.assert_array_equal(getattr(there, ask)(b[:, 0]), getattr(here, ask)(b[:, 0]))


def test_low_rank_tiles_have_the_bits_of_one_memory(client, workers, seen):
    here, there = both(client, seen, MODEL, LOW_RANK)
    assert there.precision_map == here.precision_map
    assert len(there.precision_map.ranks) > 20
    assert there.nbytes == here.nbytes
    assert there.log_determinant() == here.log_determinant()
    b = np.random.default_rng(2).standard_normal((N, 3))
    for ask in ("half_solve", "multiply"):
        np.testing.assert_array_equal(getattr(there, ask)(b), getattr(here, ask)(b))
    np.testing.assert_allclose(there.solve(b), here.solve(b), rtol=0, atol=1e-12)


def test_a_cluster_fits_with_low_rank_tiles(client, workers):
    seen = observations(150)
    values = gx.simulate(MODEL, seen.locations, seed=3, progress=False)[0]
    seen = gx.Observations(seen.locations, values)
    ways = [gx.Exact(LOW_RANK, tile=50, on=on) for on in ("cpu", client)]
    about = {"fixed": ("smoothness", "nugget", "range"), "progress": False}
    here, there = (gx.fit(seen, MODEL, method, **about) for method in ways)
    assert there.log_likelihood == pytest.approx(here.log_likelihood, abs=1e-8)
    answers = [gx.predict(fit, seen.locations[:5] + 0.01) for fit in (here, there)]
    np.testing.assert_allclose(answers[1].mean, answers[0].mean, rtol=1e-6)
    found = [gx.estimate_divergence(MODEL, seen, method, probes=8).kl for method in ways]
    assert found[1] == pytest.approx(found[0], rel=1e-6)


@pytest.mark.parametrize("plan", PLANS, indirect=True)
@pytest.mark.parametrize(("model", "rule"), CASES[2:5])
def test_pieces_of_tiles_give_the_bits_of_one_memory(client, workers, seen, plan, model, rule):
    here, there = both(client, seen, model, rule)
    assert there.store.depths == plan
    assert there.promotions == here.promotions
    np.testing.assert_array_equal(there.dense(), here.dense())
    # nothing that was begun is left
    assert not there.store._begun


def test_promotions_happen_in_these_tests(seen):
    factor = tile_factor(SMOOTH, seen, gx.layered("fp16", "fp32", "fp64"), TILE)
    assert factor.promotions > 0


def test_one_tile_is_a_matrix_too(client, workers):
    here, there = both(client, observations(20), MODEL, gx.uniform("fp64"), 20)
    np.testing.assert_array_equal(there.dense(), here.dense())
    assert sum(there.store._row_bytes()[:-1]) == 0


def test_the_inverse_and_no_columns_are_as_in_one_memory(client, workers):
    here, there = both(client, observations(100), MODEL, gx.uniform("fp64"), 40)
    np.testing.assert_array_equal(there.into_inverse(), here.into_inverse())
    assert there.half_solve(np.zeros((100, 0))).shape == (100, 0)
    assert there.solve(np.zeros((100, 0))).shape == (100, 0)


def test_likelihood_and_gradient_are_those_of_this_machine(client, workers, seen):
    here, there = (gx.Exact(tile=TILE, on=on).prepare(seen) for on in ("cpu", client))
    a, b = here(MODEL), there(MODEL)
    assert (b.log_likelihood, b.log_determinant) == (a.log_likelihood, a.log_determinant)
    assert there.gradient(MODEL) == here.gradient(MODEL)


def test_the_schedulers_address_means_its_client(client, workers, seen):
    address = client.scheduler.address
    assert gx.Exact(on=client) == gx.Exact(on=address)
    assert gx.Exact(on=address).tiled
    assert gx.Exact(on=address).describe(N)["on"] == address
    assert dask.connect(gx.Exact(on=client).on) is client
    assert gx.log_likelihood(seen, MODEL, gx.Exact(on=address)).n == N


def test_a_cluster_fits_and_predicts(client, workers):
    places = np.random.default_rng(3).random((100, 2))
    seen = gx.Observations(places, gx.simulate(MODEL, places, seed=3)[0])
    ways = [gx.Exact(tile=50, on=on) for on in ("cpu", client)]
    about = {"fixed": ("smoothness",), "progress": False, "evaluations": 5}
    fits = [gx.fit(seen, MODEL, method, raise_on_failure=False, **about) for method in ways]
    assert fits[1].model == fits[0].model
    answers = [gx.predict(fit, places[:5] + 0.01) for fit in fits]
    np.testing.assert_array_equal(answers[1].mean, answers[0].mean)
    np.testing.assert_array_equal(answers[1].variance, answers[0].variance)


@pytest.mark.parametrize("plan", [(), (1,)], indirect=True)
def test_what_is_not_positive_definite_is_told_as_on_one_machine(client, workers, plan):
    seen, model = observations(120), gx.Matern(1.0, 5.0, 5.0)
    messages = []
    for on in ("cpu", client):
        with pytest.raises(gx.NotPositiveDefinite, match="the closest locations are") as caught:
            gx.Exact(tile=32, on=on).prepare(seen).factorize(model)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


# what travels


@pytest.mark.parametrize(("name", "split"), [*((name, False) for name in FORMATS), ("fp32", True)])
def test_a_tile_travels_in_its_own_bytes(name, split):
    array = np.asfortranarray(np.random.default_rng(0).random((64, 48)))
    tile = quantize(array, name, split=split)
    tile.casts[FP64] = Tile(FP64, array)
    buffers = []
    text = pickle.dumps(tile, protocol=5, buffer_callback=buffers.append)
    assert sum(buffer.raw().nbytes for buffer in buffers) == FORMATS[name].bytes * 64 * 48
    assert len(text) < 400
    back = pickle.loads(text, buffers=buffers)
    assert back.form is tile.form
    assert back.exponent == tile.exponent
    assert not back.casts
    np.testing.assert_array_equal(back.values, tile.values)


def test_a_tile_that_arrives_at_an_odd_address_is_moved():
    array = np.asfortranarray(np.random.default_rng(0).random((8, 8)))
    buffers = []
    text = pickle.dumps(Tile(FP64, array), protocol=5, buffer_callback=buffers.append)
    odd = memoryview(bytearray(b"x" + bytes(buffers[0].raw())))[1:]
    back = pickle.loads(text, buffers=[odd])
    assert back.values.flags.aligned
    assert back.values.flags.f_contiguous
    np.testing.assert_array_equal(back.values, array)


def sent(client):
    return sum(client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total).values())


@pytest.mark.parametrize("plan", PLANS, indirect=True)
def test_each_tile_travels_once_to_each_worker_that_reads_it(client, workers, plan):
    seen, before = observations(600), sent(client)
    factor = tile_factor(MODEL, seen, gx.by_tile_norm(1e-5), 100, Placement.of(client))
    # rows 0 and 2, 4 with a reader elsewhere, and 1, 3; the last is read by nobody
    traffic = sum(factor.store._row_bytes()[:-1])
    # beside the tiles some kB of names, and small tiles are counted with their headers
    assert 0.5 * traffic < sent(client) - before < 1.1 * traffic + 2**15


# faults


@pytest.mark.parametrize(
    ("victim", "rule"), [(0, gx.by_tile_norm(1e-5)), (1, LOW_RANK)], ids=["by norm", "low rank"]
)
def test_a_worker_killed_between_two_answers_changes_no_bit(client, workers, seen, victim, rule):
    here, there = both(client, seen, MODEL, rule)
    kill(client, workers[victim])
    np.testing.assert_array_equal(there.half_solve(seen.values), here.half_solve(seen.values))
    np.testing.assert_array_equal(there.dense(), here.dense())
    assert there.store.backend.losses >= 1


@pytest.mark.parametrize(
    ("plan", "share"), [((), 0.7), ((1,), 0.2), ((6, 2), 0.2), ((6, 2), 0.7)], indirect=["plan"]
)
def test_a_worker_killed_in_a_factorization_changes_no_bit(client, workers, plan, share):
    seen, struck = observations(300), []
    here = tile_factor(MODEL, seen, gx.by_tile_norm(1e-5), 30)

    victim = pid_of(client, workers[len(plan) % 2])

    def strike(done, total, things):
        # in the middle: with pieces some tiles are begun
        if things == "tiles" and share * total < done < total and not struck:
            struck.append(done)
            os.kill(victim, signal.SIGKILL)

    with listening(strike):
        # a process that had to wait for its turn has perhaps not seen the middle
        for _ in range(10):
            there = tile_factor(MODEL, seen, gx.by_tile_norm(1e-5), 30, Placement.of(client))
            if struck:
                break
    assert struck
    assert there.store.depths == plan
    np.testing.assert_array_equal(there.dense(), here.dense())
    assert there.log_determinant() == here.log_determinant()
    assert there.store.backend.losses >= 1


def test_tiles_are_given_up_with_their_factor(client, workers, monkeypatch):
    """Not only when Python looks for cycles: what Dask keeps of a wait in vain holds our frames."""
    # each wait is in vain at first
    monkeypatch.setattr("geomxp.runtime.dask.CHECK_INTERVAL_SECONDS", 1e-3)
    rest(client)
    gc.collect()
    gc.disable()
    try:
        factor = tile_factor(
            MODEL, observations(300), gx.by_tile_norm(1e-5), 30, Placement.of(client)
        )
        known = partial(client.run_on_scheduler, lambda dask_scheduler: len(dask_scheduler.tasks))
        assert known() > 50
        del factor
        wait_until(lambda: known() == 0)
    finally:
        gc.enable()


def test_a_lost_scheduler_is_one_line_and_the_fit_goes_on_from_its_checkpoint(
    tmp_path, monkeypatch
):
    state, write = tmp_path / "state.json", Monitor._write
    about = {"progress": False, "checkpoint": state, "search": "bobyqa"}
    with Elsewhere() as there, monkeypatch.context() as struck:
        address = there.address
        client = distributed.Client(address, set_as_default=False)
        ask = partial(gx.fit, observations(60), MODEL, gx.Exact(tile=30, on=client), **about)
        struck.setattr(Monitor, "_write", lambda self: (write(self), there.kill()))
        line = f'scheduler at "{re.escape(address)}" is lost'
        with pytest.raises(LostCluster, match=line) as caught:
            ask()
    assert "\n" not in str(caught.value)
    client.close()
    port = int(address.rpartition(":")[2])
    local, client = start(n_workers=1, scheduler_port=port)
    known = json.loads(state.read_text())
    try:
        fit = ask(evaluations=known["evaluations"] + 3, raise_on_failure=False)
    finally:
        client.close()
        local.close()
    assert fit.evaluations > known["evaluations"]
    # to rounding: the same model may be evaluated in another order
    assert fit.log_likelihood >= known["log_likelihood"] - 1e-9


# who is refused


def test_a_worker_with_another_version_is_refused_by_name(client, workers):
    def call_itself(version):
        from geomxp import _version

        _version.__version__, before = version, _version.__version__
        return before

    at = workers[1]
    mine = client.run(call_itself, "0.0.1", workers=[at])[at]
    try:
        with pytest.raises(gx.InvalidInput, match=rf"\({at}\) has geomxp 0\.0\.1, this process"):
            gx.log_likelihood(observations(20), MODEL, gx.Exact(on=client))
    finally:
        client.run(call_itself, mine, workers=[at])


def test_workers_of_two_kinds_are_refused():
    local, client = start(n_workers=1)
    local.new_spec["options"] = {**local.new_spec["options"], "resources": {"GPU": 1}}
    local.scale(2)
    wait_until(lambda: len(answering(client)) == 2)
    try:
        with pytest.raises(gx.GeomxpError, match="GPU") as caught:
            DaskBackend(client.scheduler.address)
    finally:
        client.close()
        local.close()
    assert re.search("was started with a resource GPU: |Use workers of one kind", str(caught.value))
    assert "\n" not in str(caught.value)


@pytest.mark.gpu
def test_workers_with_a_gpu_keep_their_tiles_there(seen):
    # the emulator is for processes that begin with the variables of this one
    with dask_config.set({"distributed.worker.multiprocessing-method": "spawn"}):
        local, client = start(n_workers=1, resources={"GPU": 1})
    try:
        # the first rule multiplies FP64 tiles for FP32 arrays
        for rule in (gx.by_tile_norm(1e-4, formats=["fp64", "fp16"]), gx.by_tile_norm(1e-5)):
            there = tile_factor(MODEL, seen, rule, TILE, Placement.of(client))
            assert there.store.backend.gpu
            known = tile_factor(MODEL, seen, rule, TILE, Placement.of("gpu"))
            np.testing.assert_array_equal(there.dense(), known.dense())
        close = 100 * len(seen) * np.finfo(float).eps * abs(known.log_determinant())
        assert abs(there.log_determinant() - known.log_determinant()) <= close
        solved, expected = there.solve(seen.values), known.solve(seen.values)
        np.testing.assert_allclose(solved, expected, rtol=0, atol=1e-9 * abs(expected).max())
        moved = there.store.future(1, 0).result().values
        assert hasattr(moved, "__cuda_array_interface__")
    finally:
        client.close()
        local.close()


def test_workers_with_too_little_memory_are_refused_before_the_run(client, workers):
    places = np.random.default_rng(0).random((1_000_000, 2))
    with pytest.raises(gx.NotEnoughMemory, match=rf"worker \d+ \({workers[0]}\) needs 250\.0 GB"):
        DaskOriginals(
            DaskBackend(client.scheduler.address), MODEL, places, "euclidean", Layout(10**6, 1000)
        ).check_memory()


def test_nobody_at_an_address_is_one_line(monkeypatch):
    monkeypatch.setattr(dask, "CONNECTION_TIMEOUT_SECONDS", 1)
    with pytest.raises(LostCluster, match=r'no Dask scheduler answers at "tcp://127.0.0.1:9"'):
        gx.log_likelihood(observations(20), MODEL, gx.Exact(on="tcp://127.0.0.1:9"))


def test_what_is_for_one_machine_is_refused_on_a_cluster(client):
    for name in ("memory", "device_memory", "scratch"):
        with pytest.raises(gx.InvalidInput, match="are for one machine"):
            Placement.of(client, **{name: "1GB"})
    with pytest.raises(gx.InvalidInput, match="for the CPU or GPUs of one machine"):
        gx.Exact(on=client, refine="cg").prepare(observations(20))
