"""Real schedulers and worker processes for tests."""

import os
import signal

import pytest

distributed = pytest.importorskip("distributed", reason='needs pip install "geomxp[cluster]"')


def start(**about):
    """Start a scheduler and worker processes; return them with a client."""
    about = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"} | about
    local = distributed.LocalCluster(processes=True, **about)
    return local, distributed.Client(local, set_as_default=False)


def present(client, count=2):
    """Return the addresses of a local cluster's workers, when so many are there.

    Dask does not always start one anew that is killed while it starts.
    """
    try:
        client.wait_for_workers(count, timeout=20)
    except TimeoutError:
        for size in (0, count):
            client.cluster.scale(size)
        client.wait_for_workers(count, timeout=60)
    return sorted(client.scheduler_info(n_workers=-1)["workers"])


def kill(client, at):
    """Kill the process of a worker."""
    os.kill(client.run(os.getpid, workers=[at])[at], signal.SIGKILL)
