import json
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from clusters import kill, start
from waiting import wait_until

import geomxp as gx
from geomxp.errors import LostCluster
from geomxp.runtime import dask
from geomxp.testing import observations
from geomxp.vecchia import shards
from geomxp.vecchia.blocks import SLICE_LOCATIONS

pytestmark = pytest.mark.cluster

N = 3 * SLICE_LOCATIONS + 200
MODEL = gx.Matern(1.0, 0.1, 0.8, 0.05)
TURNED = gx.Matern(1.0, 0.1, 0.5, 0.05, anisotropy=gx.Anisotropy(0.4, 0.3))


@pytest.fixture(scope="module")
def seen():
    random = np.random.default_rng(3)
    x = random.random((N, 2))
    return gx.Observations(x, np.sin(9 * x[:, 0]) + random.standard_normal(N))


def prepare(seen, on, reml=False):
    design = np.column_stack((np.ones(len(seen)), seen.locations))
    return gx.Vecchia(8, on=on).prepare(seen, design, reml)


@pytest.mark.parametrize("reml", [False, True])
@pytest.mark.parametrize("model", [MODEL, TURNED], ids=["isotropic", "anisotropic"])
def test_a_cluster_gives_the_bits_of_one_process(client, workers, seen, model, reml):
    here, there = prepare(seen, "cpu", reml), prepare(seen, client, reml)
    assert there(model).log_likelihood == here(model).log_likelihood
    assert there.gradient(model) == here.gradient(model)
    np.testing.assert_array_equal(
        there.expected_information(model), here.expected_information(model)
    )
    np.testing.assert_array_equal(
        there.factorize(model).half_solve(seen.values),
        here.factorize(model).half_solve(seen.values),
    )


def test_few_places_give_the_same_bits(client, workers):
    for n in (3, 9):
        seen = observations(n)
        here, there = prepare(seen, "cpu"), prepare(seen, client)
        assert there(MODEL).log_likelihood == here(MODEL).log_likelihood


def test_a_fit_and_its_predictions_are_those_of_one_process(client, workers, seen):
    fixed = {"fixed": ("smoothness",), "progress": False}
    some = seen.subset(np.arange(3000))
    here = gx.fit(some, MODEL, gx.Vecchia(8), **fixed)
    there = gx.fit(some, MODEL, gx.Vecchia(8, on=client), **fixed)
    assert there.model == here.model
    assert there.standard_errors == here.standard_errors
    places = np.random.default_rng(4).random((500, 2))
    for about in ({}, {"block": 0.05}, {"neighbours": 12, "local_trend": True}):
        mine, theirs = (gx.predict(fit, places, **about) for fit in (here, there))
        np.testing.assert_array_equal(theirs.mean, mine.mean)
        np.testing.assert_array_equal(theirs.variance, mine.variance)


def test_a_saved_fit_names_the_clusters_address(client, workers, tmp_path):
    held = tuple(MODEL.parameters())
    fit = gx.fit(observations(200), MODEL, gx.Vecchia(5, on=client), fixed=held, progress=False)
    assert fit.method.on == client.scheduler.address
    assert fit.method.describe(200)["on"] == client.scheduler.address


def test_places_without_a_factor_are_named_by_their_rows_as_in_one_process(client, workers):
    x = np.random.default_rng(5).random((2 * SLICE_LOCATIONS, 2))
    x[7] = x[1500] + 1e-13
    seen = gx.Observations(x, np.ones(len(x)))
    model = gx.Matern(1.0, 0.3, 2.5)
    here, there = prepare(seen, "cpu")(model), prepare(seen, client)(model)
    assert here.log_likelihood == -np.inf
    assert "rows 8 and 1501" in here.outcome.message
    assert there.outcome == here.outcome


def test_a_checkpoint_of_one_place_goes_on_at_another(client, workers, tmp_path):
    seen, about = gx.datasets.load("meuse"), {"fixed": {"smoothness": 0.5}, "progress": False}
    for name, here in (("vecchia", gx.Vecchia(5)), ("exact", gx.Exact(tile=80))):
        about["checkpoint"] = tmp_path / f"{name}.json"
        gx.fit(seen, None, replace(here, on=client), evaluations=3, **about)
        stopped = json.loads(about["checkpoint"].read_text())["evaluations"]
        again = gx.fit(seen, None, here, **about)
        assert again.evaluations > stopped > 0
        assert again.outcome.ending == "CONVERGED"
    with pytest.raises(gx.InvalidInput, match="a checkpoint of another problem"):
        gx.fit(seen, None, gx.Exact(gx.uniform("fp32"), tile=80), **about)


# faults


@pytest.mark.parametrize("victim", [0, 1])
def test_a_worker_killed_between_two_evaluations_changes_no_bit(client, workers, seen, victim):
    here, there = prepare(seen, "cpu"), prepare(seen, client)
    assert there(MODEL).log_likelihood == here(MODEL).log_likelihood
    kill(client, workers[victim])
    assert there(TURNED).log_likelihood == here(TURNED).log_likelihood
    assert there._passes._backend.losses >= 1


def test_a_worker_killed_while_parts_are_made_changes_no_bit(client, workers, seen):
    here, there = prepare(seen, "cpu"), prepare(seen, client)
    thread = threading.Thread(target=lambda: (time.sleep(0.05), kill(client, workers[0])))
    thread.start()
    found = [there.gradient(gx.Matern(1.0, a, 0.8, 0.05)) for a in (0.1, 0.11, 0.12)]
    thread.join()
    assert found == [here.gradient(gx.Matern(1.0, a, 0.8, 0.05)) for a in (0.1, 0.11, 0.12)]


def test_a_lost_scheduler_is_one_line(seen):
    local, client = start(n_workers=1)
    there = prepare(seen, client)
    there(MODEL)
    local.close()
    with pytest.raises(LostCluster, match="is lost") as caught:
        there(TURNED)
    assert "\n" not in str(caught.value)
    client.close()


def test_workers_without_room_are_refused_before_anything_travels(
    client, workers, seen, monkeypatch
):
    monkeypatch.setattr(shards, "SEARCH_BYTES_PER_NEIGHBOUR", 10**9)
    with pytest.raises(gx.NotEnoughMemory, match=rf"worker \d+ \({workers[0]}\) needs"):
        prepare(seen, client)(MODEL)


def pause_above(share):
    def settle(dask_worker):
        dask_worker.memory_manager.memory_pause_fraction = share

    return settle


def test_a_worker_that_is_paused_for_good_is_one_line_and_no_wait_for_ever(
    client, workers, seen, monkeypatch
):
    there = prepare(seen, client)
    before = there(MODEL).log_likelihood
    (usual,) = client.run(
        lambda dask_worker: dask_worker.memory_manager.memory_pause_fraction, workers=workers[:1]
    ).values()
    try:
        client.run(pause_above(1e-6), workers=workers[:1])
        wait_until(lambda: status(client, workers[0]) == "paused")
        line = rf"worker {workers[0]} has been paused by Dask for 1 s: its process holds"
        with monkeypatch.context() as impatient:
            impatient.setattr(dask, "PAUSED_WORKER_SECONDS", 1.0)
            with pytest.raises(gx.NotEnoughMemory, match=line):
                there(TURNED)
    finally:
        client.run(pause_above(usual), workers=workers[:1])
    wait_until(lambda: status(client, workers[0]) == "running")
    there(TURNED)
    assert there(MODEL).log_likelihood == before


def status(client, at):
    return client.scheduler_info(n_workers=-1)["workers"][at]["status"]


def test_what_needs_all_neighbours_here_says_so_where_there_is_no_room(
    client, workers, seen, monkeypatch
):
    there = prepare(seen, client)
    monkeypatch.setattr(shards, "free_memory", lambda: 1000)
    with pytest.raises(gx.NotEnoughMemory, match=f"8 neighbours of {N:,} locations need"):
        there.factorize(MODEL)
