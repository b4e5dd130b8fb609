"""Schedulers and workers whose processes are stopped: reported, waited for or given up."""

import os
import signal
import subprocess
import sys
from threading import Thread

import numpy as np
import pytest
from waiting import PATIENCE, wait_until

import geomxp as gx
from geomxp.runtime import dask as cluster
from geomxp.runtime.progress import noticing

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
clusters = pytest.importorskip("clusters")
dask = pytest.importorskip("dask")

MODEL = gx.Matern(1.0, 0.1, 0.5, 0.01)
SEEN = gx.Observations(np.random.default_rng(0).random((120, 2)), np.ones(120))


@pytest.fixture
def elsewhere(monkeypatch):
    with clusters.Elsewhere() as there:
        stopped = []

        def stop(pid):
            stopped.append(pid)
            # not before: a loaded machine may take this long to answer
            monkeypatch.setattr(cluster, "SILENCE_SECONDS", 1.0)
            os.kill(pid, signal.SIGSTOP)

        there.stop = stop
        try:
            yield there
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)


def in_background(work):
    """Return the thread, the messages while it works, and a list for its result or error."""
    heard, ended = [], []

    def run():
        with noticing(heard.append):
            try:
                ended.append(work())
            except gx.GeomxpError as error:
                ended.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    return thread, heard, ended


def compute(on):
    return gx.log_likelihood(SEEN, MODEL, gx.Exact(tile=40, on=on))


def test_a_stopped_scheduler_is_reported_and_the_run_goes_on_when_it_continues(elsewhere):
    expected = compute(elsewhere.address)
    elsewhere.stop(elsewhere.process.pid)
    thread, heard, ended = in_background(lambda: compute(elsewhere.address))
    wait_until(lambda: heard)
    assert elsewhere.address in heard[0]
    assert "has not answered for 1 s: a process may be stopped" in heard[0]
    assert "Waiting until it answers; to give up sooner set DASK_GEOMXP__GIVE_UP_AFTER" in heard[0]
    assert thread.is_alive()
    os.kill(elsewhere.process.pid, signal.SIGCONT)
    thread.join(PATIENCE)
    assert ended[0].log_likelihood == expected.log_likelihood
    assert heard[1].endswith("answers again.")


def test_a_stopped_scheduler_is_given_up_after_the_time_that_the_user_set(elsewhere):
    compute(elsewhere.address)
    elsewhere.stop(elsewhere.process.pid)
    with dask.config.set({cluster.GIVE_UP_KEY: "2s"}):
        thread, _, ended = in_background(lambda: compute(elsewhere.address))
        thread.join(PATIENCE)
    (error,) = ended
    assert isinstance(error, gx.errors.LostCluster)
    assert "the limit geomxp.give-up-after is 2 s: continue the stopped process" in str(error)


def test_a_stopped_worker_is_reported_or_given_up(elsewhere, monkeypatch):
    backend = cluster.DaskBackend(elsewhere.address)
    (at,) = backend.slots
    backend.identity()
    pid = backend.client.run(os.getpid)[at]
    elsewhere.stop(pid)
    task = backend.submit(0, os.getpid)
    thread, heard, ended = in_background(lambda: backend.gather([task]))
    wait_until(lambda: any(f"worker {at} has not answered for 1 s" in line for line in heard))
    os.kill(pid, signal.SIGCONT)
    thread.join(PATIENCE)
    assert ended == [[pid]]
    monkeypatch.setattr(cluster, "SILENCE_SECONDS", 30.0)
    elsewhere.stop(pid)
    task = backend.submit(0, os.getpid)
    with dask.config.set({cluster.GIVE_UP_KEY: "2s"}):
        thread, _, ended = in_background(lambda: backend.gather([task]))
        thread.join(PATIENCE)
    assert isinstance(ended[0], gx.errors.LostCluster)
    assert f"worker {at} has not answered" in str(ended[0])


def test_a_command_that_gives_up_ends_with_one_line(elsewhere):
    """Also its process ends, although a thread still waits for the answer."""
    words = ["log-likelihood", "meuse", "--variance", "1", "--range", "200", "--smoothness", "0.5"]
    script = (
        "import os, signal, sys\n"
        "from geomxp.cli.main import main\n"
        "from geomxp.runtime import dask\n"
        "dask.connect(sys.argv[1])\n"
        "os.kill(int(sys.argv[2]), signal.SIGSTOP)\n"
        "sys.exit(main([*sys.argv[3:], '--on', sys.argv[1]]))\n"
    )
    address, pid = elsewhere.address, elsewhere.process.pid
    # continues it at the end
    elsewhere.stop(pid)
    os.kill(pid, signal.SIGCONT)
    run = subprocess.run(
        [sys.executable, "-c", script, address, str(pid), *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=os.environ | {"DASK_GEOMXP__GIVE_UP_AFTER": "3s"},
    )
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr.startswith(f'geomxp: the Dask cluster at "{address}" has not answered for')


@pytest.mark.parametrize("given", ["soon", "-1s", 0, [1]])
def test_a_time_that_is_none_is_refused(given):
    with (
        dask.config.set({cluster.GIVE_UP_KEY: given}),
        pytest.raises(gx.InvalidInput, match="must be a time such as"),
    ):
        cluster._patience()
