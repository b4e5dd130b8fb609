"""Real schedulers and worker processes for tests."""

import gc
import os
import signal
import subprocess
import sys
from functools import cache
from multiprocessing import forkserver
from unittest.mock import patch

import pytest
from waiting import PATIENCE, comes_true, wait_until

distributed = pytest.importorskip("distributed", reason='needs pip install "geomxp[cluster]"')

from dask import config as dask_config  # noqa: E402

# a local cluster looks so long after the loss of a worker whether there is one of its name, and
# never again starts one that is just then killed once more
dask_config.set({"distributed.deploy.lost-worker-timeout": "1 hour"})

# workers begin as copies of a process that has loaded everything; that of `Elsewhere` loads it
dask_config.set({"distributed.worker.multiprocessing-method": "forkserver"})


class Local(distributed.LocalCluster):
    """A local cluster that outlives the loss of a worker of which it has not heard yet."""

    def _update_worker_status(self, op, msg):
        # Dask's own would end in a KeyError, and with it all that follows, closing too
        if op != "remove" or msg in self.scheduler_info["workers"]:
            super()._update_worker_status(op, msg)


@cache
def begin():
    """Start the process that workers are copies of, with the variables that Dask sets for them."""
    # Dask sets a list of its own at its first call
    distributed.utils.get_mp_context().set_forkserver_preload(["begun"])
    fixed = dask_config.get("distributed.nanny.pre-spawn-environ")
    fixed = {name: str(value) for name, value in fixed.items() if name not in os.environ}
    # it would find nothing in folders of tests
    path = os.pathsep.join(filter(None, sys.path))
    with patch.dict(os.environ, fixed, PYTHONPATH=path):
        forkserver.ensure_running()


def start(**about):
    """Start a scheduler and worker processes; return them with a client."""
    if dask_config.get("distributed.worker.multiprocessing-method") == "forkserver":
        begin()
    about = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"} | about
    local = Local(processes=True, **about)
    return local, distributed.Client(local, set_as_default=False)


def answering(client):
    """Return the addresses of the workers that are there."""
    said = client.run(os.getpid, on_error="return")
    return sorted(at for at, pid in said.items() if isinstance(pid, int))


def present(client, count=2):
    """Return the addresses of a local cluster's workers, when so many are there.

    Dask does not always start one anew that is killed while it starts.
    """
    if not comes_true(lambda: len(answering(client)) == count, 60):
        client.cluster.scale(0)
        wait_until(lambda: not client.scheduler_info(n_workers=-1)["workers"])
        client.cluster.scale(count)
        wait_until(lambda: len(answering(client)) == count)
    return answering(client)


def rest(client):
    """Wait until nobody has anything to do, nor anything that is not yet forgotten."""

    def nothing():
        # futures in cycles are wanted until they are collected
        gc.collect()
        known = client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))
        there = client.run(lambda dask_worker: len(dask_worker.state.tasks))
        return not (known or any(there.values()))

    wait_until(nothing)


def pid_of(client, at):
    """Return the number of a worker's process."""
    return client.run(os.getpid, workers=[at])[at]


def kill(client, at):
    """Kill the process of a worker."""
    os.kill(pid_of(client, at), signal.SIGKILL)


SCHEDULER = """
import sys
from distributed import LocalCluster
if __name__ == "__main__":
    about = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(processes=True, **about) as local:
        print(local.scheduler_address, flush=True)
        sys.stdin.read()
"""


class Elsewhere:
    """A scheduler with a worker in a process of its own, which can be killed: both are gone."""

    def __enter__(self):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([sys.executable, "-c", SCHEDULER], text=True, **pipes)
        self.address = self.process.stdout.readline().strip()
        assert self.address
        return self

    def __exit__(self, *_):
        self.kill()
        # the worker has this end of it as well
        self.process.communicate(timeout=PATIENCE)

    def kill(self):
        """Kill the scheduler, whatever it does; its worker ends with it."""
        self.process.kill()
