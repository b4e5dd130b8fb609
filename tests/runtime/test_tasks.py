"""Independent tasks come to the same bits here and on a cluster, whatever happens to workers."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import types
import uuid
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from clusters import Elsewhere, distributed, rest, start
from terminals import Run
from waiting import PATIENCE, wait_until

import geomxp as gx
from geomxp import testing
from geomxp.cli import main
from geomxp.errors import LostCluster
from geomxp.estimation import bootstrap
from geomxp.likelihood.factors import tile_factor
from geomxp.runtime import dask
from geomxp.runtime import tasks as cluster_tasks
from geomxp.runtime.devices import blas_threads, usable_cores
from geomxp.runtime.progress import listening
from geomxp.runtime.tasks import Tasks
from geomxp.tiles.placement import Placement

pytestmark = pytest.mark.cluster

TRUTH = gx.Matern(1.0, 0.1, 0.5, nugget=0.1)
QUIETLY = {"progress": False}


@pytest.fixture(scope="module")
def alone():
    """One worker of two threads, which may use two cores."""
    about = {"n_workers": 1, "threads_per_worker": 2, "env": {"OMP_NUM_THREADS": "2"}}
    local, client = start(**about)
    yield client
    client.close()
    local.close()


@pytest.fixture(params=["alone", "client"])
def cluster(request):
    """One worker, and then two."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def seen():
    places = np.random.default_rng(1).random((60, 2))
    return gx.Observations(places, gx.simulate(TRUTH, places, seed=1)[0] + places[:, 0])


@pytest.fixture(scope="module")
def fit(seen):
    return gx.fit(seen, fixed={"smoothness": 0.5}, **QUIETLY)


def over(on, function, items, common=None):
    return list(Tasks(on).over(function, common, items))


# the same bits


def test_a_bootstrap_is_that_of_this_process(cluster, fit):
    here, there = (gx.bootstrap(fit, draws=3, seed=3, on=on) for on in ("cpu", cluster))
    assert there.estimates.equals(here.estimates)
    assert there.failures == here.failures


def test_draws_of_a_likelihood_ratio_are_those_of_this_process(cluster, fit, seen):
    larger = gx.fit(seen, fixed={"smoothness": 0.5}, trend="x", **QUIETLY)
    here, there = (
        gx.likelihood_ratio_test(fit, larger, bootstrap=2, seed=3, on=on) for on in ("cpu", cluster)
    )
    assert there == here


@pytest.mark.parametrize("method", ["exact, parameters anew", "vecchia"])
def test_folds_are_those_of_this_process(cluster, fit, method):
    about = {"refit": True}
    if method == "vecchia":
        fit, about = replace(fit, method=gx.Vecchia(10)), {}
    here, there = (gx.cross_validate(fit, 5, on=on, **about) for on in ("cpu", cluster))
    np.testing.assert_array_equal(there.mean, here.mean)
    np.testing.assert_array_equal(there.variance, here.variance)


def test_the_transforms_of_a_formula_travel_with_a_fit(alone, seen):
    fit = gx.fit(seen, fixed={"smoothness": 0.5}, trend="poly(x, 2)", **QUIETLY)
    about = {"folds": 2, "refit": True}
    here, there = (gx.cross_validate(fit, **about, on=on) for on in ("cpu", alone))
    np.testing.assert_array_equal(there.mean, here.mean)


@pytest.mark.parametrize("search", ["scoring", "bobyqa"])
def test_a_fit_from_several_starts_is_that_of_this_process(cluster, seen, search, tmp_path):
    about = {"starts": 3, "search": search, "fixed": {"smoothness": 0.5}, **QUIETLY}
    path = tmp_path / "state.json"
    here = gx.fit(seen, **about)
    there = gx.fit(seen, **about, starts_on=cluster, checkpoint=path)
    assert (there.model, there.log_likelihood) == (here.model, here.log_likelihood)
    assert there.standard_errors == here.standard_errors
    assert (there.evaluations, there.history) == (here.evaluations, here.history)
    assert json.loads(path.read_text())["model"] == there.model.parameters()


def test_each_start_has_its_own_limit_of_evaluations(client, seen):
    about = {"starts": 2, "search": "bobyqa", "evaluations": 15, **QUIETLY}
    here, there = (gx.fit(seen, **about, starts_on=on) for on in ("cpu", client))
    assert there.model == here.model
    assert str(there.outcome) == str(here.outcome)
    assert here.evaluations == there.evaluations
    # two starts at least: one in each basin
    assert here.evaluations >= 30
    assert here.evaluations % 15 == 0


def test_the_command_validates_on_a_cluster(client, fit, tmp_path, capsys):
    fit.save(tmp_path / "fit.json")
    words = ["validate", str(tmp_path / "fit.json"), "--folds", "3", "--refit", "--json"]
    scores = []
    for on in ("cpu", client.scheduler.address):
        assert main.main([*words, "--on", on]) == 0
        scores.append(json.loads(capsys.readouterr().out)["scores"])
    assert scores[0] == scores[1]


def test_the_command_searches_from_its_starts_on_a_cluster(client, capsys):
    words = ["fit", "meuse", "--fix", "smoothness=0.5", "--starts", "2", "--json"]
    found = []
    for on in ("cpu", client.scheduler.address):
        assert main.main([*words, "--starts-on", on]) == 0
        found.append(json.loads(capsys.readouterr().out) | {"seconds": None})
    assert found[0] == found[1]


def test_what_a_task_reads_is_what_it_would_be_here(cluster):
    def look(common, item):
        arrays = [*common, *item]
        flags = [(a.flags.aligned, a.flags.writeable, a.flags.f_contiguous) for a in arrays]
        return flags, [a.sum() for a in arrays]

    random = np.random.default_rng(0)
    common = [np.asfortranarray(random.random((20, 30))), random.random(7)]
    common[1].flags.writeable = False
    items = [[random.random(size)] for size in (3, 4, 1000)]
    assert over(cluster, look, items, common) == over("cpu", look, items, common)


def test_a_task_has_its_share_of_the_workers_cores(alone):
    def look(_, order):
        from threadpoolctl import threadpool_info

        with blas_threads(order):
            pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
            threads = {pool["num_threads"] for pool in pools}
        return usable_cores(), threads

    (cores,) = alone.run(usable_cores).values()
    share = max(1, cores // 2)
    # the worker has the variables of this process
    of_blas = min(share, int(os.environ.get("OPENBLAS_NUM_THREADS", share)))
    assert over(alone, look, [10, 10_000]) == [(share, {1}), (share, {of_blas})]


def test_warnings_of_tasks_are_the_callers(client):
    """Noise has no range, in either fold."""
    seen = gx.Observations(testing.places(40), np.random.default_rng(3).standard_normal(40))
    model = gx.Matern(0.5, 0.05, 0.5, 0.5)
    fit = gx.fit(seen, model, fixed=tuple(model.parameters()))
    fit = replace(fit, free=("variance", "range", "nugget"))
    said = []
    for on in ("cpu", client, client):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            gx.cross_validate(fit, 2, refit=True, on=on)
        said.append([str(one.message) for one in caught])
        assert {one.filename for one in caught} == {__file__}
    assert said[0]
    assert said[0] == said[1] == said[2]


# faults


def dying(folder, item):
    """A function that kills its worker at an item, the first time."""
    mark = Path(folder, "killed")

    def work(common, k):
        if k == item and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return float(common @ np.arange(k, k + 5.0))

    return work


def test_the_only_worker_killed_in_the_middle_changes_no_bit(alone, tmp_path):
    common, items = np.random.default_rng(0).random(5), list(range(20))
    there = over(alone, dying(tmp_path, 9), items, common)
    assert (tmp_path / "killed").exists()
    assert there == over("cpu", dying(tmp_path, 9), items, common)


def test_a_worker_killed_in_a_bootstrap_changes_no_bit(client, workers, fit, monkeypatch, tmp_path):
    here, work = gx.bootstrap(fit, draws=12), bootstrap._estimated
    mark = tmp_path / "killed"

    def die_once(*arguments):
        Path(tmp_path, uuid.uuid4().hex).touch()
        # in the middle
        if len(list(tmp_path.iterdir())) > 4 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return work(*arguments)

    monkeypatch.setattr(bootstrap, "_estimated", die_once)
    there = gx.bootstrap(fit, draws=12, on=client)
    assert mark.exists()
    assert there.estimates.equals(here.estimates)


def test_a_task_that_costs_worker_after_worker_ends_in_one_line(client, workers):
    def allow(count):
        def change(dask_scheduler):
            before = dask_scheduler.allowed_failures
            dask_scheduler.allowed_failures = count
            return before

        return client.run_on_scheduler(change)

    def deadly(_, k):
        if k == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return k

    before = allow(1)
    try:
        with pytest.raises(
            LostCluster, match=r"2 workers that ran task \d of 3 were lost"
        ) as error:
            over(client, deadly, range(3))
    finally:
        allow(before)
    assert "\n" not in str(error.value)


def test_a_slow_task_keeps_none_behind_it_waiting(client, workers, monkeypatch, tmp_path):
    monkeypatch.setattr("geomxp.runtime.tasks.MOST_TASKS_AHEAD", 4)

    def work(folder, k):
        if k == 0:
            wait_until(Path(folder, "19").exists)
        Path(folder, str(k)).touch()
        return k

    assert over(client, work, range(20), tmp_path) == list(range(20))


def test_tasks_that_somebody_else_cancels_are_given_again(client, workers, tmp_path):
    """As after `client.restart`, or where a scheduler comes back."""

    def work(folder, k):
        Path(folder, str(k)).touch()
        if k > 2:
            wait_until(Path(folder, "cancelled").exists)
        return k

    def strike():
        wait_until(lambda: any((tmp_path / str(k)).exists() for k in range(3, 12)))
        client.cancel([distributed.Future(key, client) for key in list(client.futures)])
        (tmp_path / "cancelled").touch()

    thread = threading.Thread(target=strike)
    thread.start()
    assert over(client, work, range(12), tmp_path) == list(range(12))
    thread.join()


def test_the_first_error_in_order_is_raised_and_nothing_begun_after_it(
    alone, monkeypatch, tmp_path
):
    """On two threads of one worker, which takes its tasks in any order."""
    monkeypatch.setattr("geomxp.runtime.tasks.MOST_TASKS_AHEAD", 4)
    begun, held, go = (tmp_path / name for name in ("begun", "held", "go"))
    begun.mkdir()
    held.mkdir()

    def work(begun, k):
        fatal = begun / "1", begun / "3"
        if k > 3 and all(path.exists() for path in fatal):
            Path(held, str(k)).touch()
            wait_until(go.exists)
        Path(begun, str(k)).touch()
        if k == 3:
            raise gx.InvalidInput("three")
        if k == 1:
            # that of 3 comes first
            wait_until(fatal[1].exists)
            time.sleep(0.5)
            raise gx.NotPositiveDefinite("one", order=7)

    with pytest.raises(gx.NotPositiveDefinite, match="one") as caught:
        over(alone, work, range(1000), begun)
    assert caught.value.order == 7
    wait_until(
        lambda: not any(alone.run(lambda dask_worker: len(dask_worker.state.ready)).values())
    )
    go.touch()
    rest(alone)
    # each thread may have begun another one; and no other begins
    assert len(list(held.iterdir())) <= 2
    assert len(list(begun.iterdir())) < 1000


def test_a_lost_scheduler_is_one_line(tmp_path):
    def work(folder, k):
        Path(folder, str(k)).touch()
        time.sleep(0.2 if len(list(Path(folder).iterdir())) < 3 else 600)

    with Elsewhere() as there:
        client = distributed.Client(there.address, set_as_default=False)

        def strike():
            wait_until(lambda: len(list(tmp_path.iterdir())) > 1)
            there.kill()

        thread = threading.Thread(target=strike)
        thread.start()
        line = f'scheduler at "{re.escape(there.address)}" is lost'
        with pytest.raises(LostCluster, match=line) as caught:
            over(client, work, range(100), tmp_path)
        thread.join()
        client.close()
    assert "\n" not in str(caught.value)


def test_a_scheduler_that_cannot_be_reached_has_not_lost_its_workers(alone, monkeypatch):
    async def refused(**_):
        raise OSError("connection refused")

    tasks = Tasks(alone)
    run = cluster_tasks._Run(tasks.workers, pow, 2, range(3), lambda: None)
    # as after a long silence
    run._last_worker -= 2 * cluster_tasks.REPLACEMENT_SECONDS
    monkeypatch.setattr(tasks.workers.client.scheduler, "identity", refused, raising=False)
    with pytest.raises(LostCluster, match=r"scheduler at .* is lost \(.*connection refused"):
        run._check_workers()


def test_workers_that_do_not_come_back_are_one_line(monkeypatch, tmp_path):
    for name in ("CHECK_INTERVAL_SECONDS", "REPLACEMENT_SECONDS"):
        monkeypatch.setattr(f"geomxp.runtime.tasks.{name}", 0.3)

    def work(folder, k):
        Path(folder, str(k)).touch()
        time.sleep(1)

    local, client = start(n_workers=1)

    def strike():
        wait_until(lambda: any(tmp_path.iterdir()))
        local.scale(0)

    thread = threading.Thread(target=strike)
    thread.start()
    with pytest.raises(LostCluster, match=r"all workers of the cluster at .* are lost"):
        over(client, work, range(100), tmp_path)
    thread.join()
    client.close()
    local.close()


# who is refused


def call_itself(version):
    from geomxp import _version

    _version.__version__, before = version, _version.__version__
    return before


def test_a_worker_with_another_version_is_refused_before_the_run(client, workers, fit):
    at = workers[1]
    mine = client.run(call_itself, "0.0.1", workers=[at])[at]
    try:
        with pytest.raises(gx.InvalidInput, match=rf"\({at}\) has geomxp 0\.0\.1, this process"):
            gx.bootstrap(fit, draws=2, on=client)
    finally:
        client.run(call_itself, mine, workers=[at])


def test_a_worker_with_another_version_that_comes_later_is_refused(client, workers):
    def change(_, k):
        from geomxp import _version

        _version.__version__ = "0.0.1"
        time.sleep(0.1)

    try:
        with pytest.raises(gx.InvalidInput, match=r"worker .* has geomxp 0\.0\.1, this process"):
            over(client, change, range(10))
    finally:
        # what is late would change it again
        rest(client)
        client.run(call_itself, gx.__version__)


def test_tasks_whose_only_worker_is_paused_for_good_end_in_one_line(alone, monkeypatch):
    def pause_above(share):
        def settle(dask_worker):
            memory = dask_worker.memory_manager
            memory.memory_pause_fraction, before = share, memory.memory_pause_fraction
            return before

        return next(iter(alone.run(settle).values()))

    before = pause_above(1e-6)
    try:
        with monkeypatch.context() as impatient:
            impatient.setattr(dask, "PAUSED_WORKER_SECONDS", 1.0)
            with pytest.raises(gx.NotEnoughMemory, match="has been paused by Dask for 1 s: its"):
                # the first ones, perhaps, before the worker looks at its memory
                over(alone, lambda _, k: time.sleep(0.1), range(5000))
    finally:
        pause_above(before)
    assert over(alone, pow, [2, 3], 2) == [4, 8]


@pytest.mark.parametrize("on", ["gpu", "", 3, None, ["cpu"]])
def test_what_is_no_place_for_tasks_is_refused(fit, on):
    with pytest.raises(gx.InvalidInput, match=r'`on` must be "cpu" \(this process\) or a Dask'):
        gx.bootstrap(fit, draws=2, on=on)
    with pytest.raises(gx.InvalidInput, match='`starts_on` must be "cpu"'):
        gx.fit(fit.observations, starts=2, starts_on=on)


def test_a_method_with_a_cluster_or_a_scratch_of_its_own_is_refused(client, seen, fit, tmp_path):
    with pytest.raises(gx.InvalidInput, match=r"leave `starts_on` out, or use a method with on="):
        gx.fit(seen, None, gx.Exact(on=client), starts=2, starts_on=client)
    own = replace(fit, method=gx.Exact(memory="1GB", scratch=tmp_path))
    with pytest.raises(gx.InvalidInput, match="`scratch` keeps the tiles of one computation"):
        gx.bootstrap(own, draws=2, on=client)


def test_folds_that_come_from_one_factorization_are_refused(client, fit):
    with pytest.raises(gx.InvalidInput, match="one factorization for all folds: leave `on`"):
        gx.cross_validate(fit, 4, on=client)


BAD_ADDRESS = """
import sys
import geomxp as gx
seen = gx.Observations([[0.0], [1.0], [2.0]], [1.0, 2.0, 4.0])
for on in sys.argv[1:]:
    try:
        gx.fit(seen, method=gx.Exact(on=on))
    except gx.GeomxpError as error:
        print(error)
"""


def test_an_address_that_is_none_is_one_line_and_lets_the_process_end():
    addresses = ["tcp://127.0.0.1", "tls://127.0.0.1:1", "://"]
    command = [sys.executable, "-c", BAD_ADDRESS, *addresses]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    for on, line in zip(addresses, ended.stdout.splitlines(), strict=True):
        assert re.fullmatch(rf'"{re.escape(on)}" is not the address of a Dask .* \(.*', line)
    assert ended.returncode == 0


def test_a_place_is_known_while_another_thread_imports_dask(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", types.ModuleType("distributed"))
    assert dask.address_of("cpu") == "cpu"


# how far it is


def test_a_factorization_on_a_cluster_says_how_far_it_is(client, workers):
    heard = []
    with listening(lambda *about: heard.append(about)):
        about = testing.observations(300), gx.by_tile_norm(1e-9), 30, Placement.of(client)
        factor = tile_factor(TRUTH, *about)
        factor.log_determinant()
    tiles = [done for done, total, things in heard if (total, things) == (55, "tiles")]
    assert tiles == sorted(tiles)
    assert tiles[-1] == 55
    assert len(set(tiles)) > 3
    assert (10, 10, "rows of norms") in heard
    assert (10, 10, "block rows") in heard


STUDY = """
import sys, time
import geomxp as gx
from geomxp import testing
from geomxp.runtime import progress
if __name__ == "__main__":
    progress.QUIET_SECONDS = 0.1
    known = {"range": 0.1, "smoothness": 0.5, "nugget": 0.1}
    fit = gx.fit(testing.observations(30), fixed=known, progress=False)
    try:
        gx.bootstrap(fit, draws=5000, on=sys.argv[1])
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr, flush=True)
        time.sleep(3600)
"""


def test_ctrl_c_leaves_nothing_on_the_cluster(client, workers, tmp_path):
    # of other tests
    rest(client)
    run = Run(["-c", STUDY, client.scheduler.address], tmp_path, terminal="stderr")
    try:
        # a draw is done
        run.read_until(" left")
        assert re.search(r"bootstrapping  \d+ of 5,000 draws", run.shown)
        assert client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) > 2
        run.process.send_signal(signal.SIGINT)
        run.read_until("stopped")
        wait_until(
            lambda: not client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))
        )
    finally:
        run.process.kill()
        run.finish()
