"""Workers of a Dask cluster that wait for memory, and will not have it.

Dask pauses a worker whose process is near its memory limit: it finishes what it computes and begins
nothing more, in the hope that memory becomes free. What no task holds does not.
"""

import time

from ..errors import NotEnoughMemory

PATIENCE = 60.0
"""Seconds after which a worker that Dask has paused, and that computes nothing, is given up."""


def paused(info, before):
    """Return since when workers are paused with nothing left to do, by their address.

    Parameters
    ----------
    info : dict
        What the scheduler says of itself.
    before : dict of str to float
        What this function has returned before.
    """
    now = time.monotonic()
    return {
        at: before.get(at, now)
        for at, found in info["workers"].items()
        if found["status"] == "paused" and not found["metrics"]["task_counts"].get("executing")
    }


def refuse_paused(since, among):
    """Raise `NotEnoughMemory` if one of some workers is paused for too long; see `paused`."""
    now = time.monotonic()
    for at in among:
        if now - since.get(at, now) > PATIENCE:
            raise NotEnoughMemory(
                f"worker {at} has been paused by Dask for {PATIENCE:.0f} s: its process holds "
                "nearly all of its memory limit. Use workers with more memory, or more of them."
            )
