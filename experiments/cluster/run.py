"""A Dask cluster of worker processes on one machine: times, traffic, overhead, faults (part 10).

    python experiments/cluster/run.py [NAME ...] [--tiny] [--output DIR]

Writes results/scaling.csv (strong: one n on 1, 2, 4 workers; weak: n³ in step with the workers;
bytes that travelled beside the formula's), overhead.csv (seconds of the run beside those of its
tasks, by tile) and faults.csv (runs in which two workers are killed at random times), all of the
tile Cholesky; vecchia.csv (Vecchia's likelihood of up to 10⁷ places on two workers of 8 GB); and
simulation.csv (the tile Cholesky played on 4 to 64 nodes, beside runs here) with calibration.csv.
All of them if none is named. Every run's log-determinant or log-likelihood is compared with that
of one process, to the bit.
"""

import argparse
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import numpy as np
from distributed import Client, LocalCluster

import geomxp as gx
from geomxp.likelihood.factors import tile_factor
from geomxp.prediction.simulate import lay_out
from geomxp.tiles.placement import Placement

sys.path.insert(0, str(Path(__file__).parents[1]))
import simulation
import vecchia
from common import TINY, write_rows

HERE = Path(__file__).parent
MODEL = gx.Matern(1.0, 0.1, 0.5, 0.01)
MILLIONS = (100_000, 1_000_000, 10_000_000)
KILLED = 1 if TINY else 2
"""Workers that are killed in each run of faults.csv."""


@contextmanager
def workers(count, memory="auto", shared=None):
    """Start so many worker processes of one thread each; yield their client.

    Of a client that is shared, the cluster gets so many workers instead.
    """
    if shared:
        shared.cluster.scale(count)
        shared.wait_for_workers(count)
        yield shared
        return
    about = {
        "memory_limit": memory,
        "threads_per_worker": 1,
        "dashboard_address": ":0",
        "silence_logs": 50,
    }
    with LocalCluster(n_workers=count, processes=True, **about) as local:
        client = Client(local, set_as_default=False)
        try:
            # what a worker does once: imports and compiled kernels
            factor(200, 50, gx.uniform("fp64"), Placement.of(client))
            factor(200, 50, gx.by_tile_norm(1e-5), Placement.of(client))
            yield client
        finally:
            client.close()


def factor(n, tile, rule, placement=None):
    """Factor Σ of n places; return the factor and the seconds."""
    seen = gx.Observations(lay_out(n, "uniform", 0), np.zeros(n))
    start = time.perf_counter()
    found = tile_factor(MODEL, seen, rule, tile, placement)
    return found, time.perf_counter() - start


def _sent(client):
    return sum(client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total).values())


def row_of(client, n, tile, rule, known):
    """Return what one run took on a client's workers, beside the run in this process."""
    before = _sent(client)
    there, seconds = factor(n, tile, rule, Placement.of(client))
    moved, formula = _sent(client) - before, there.store.traffic()
    return {
        "n": n,
        "tile": tile,
        "workers": len(there.store.backend),
        "seconds": round(seconds, 3),
        "seconds_in_process": round(known[1], 3),
        "gflops": round(n**3 / 3 / seconds / 1e9, 1),
        "bytes_moved": moved,
        "bytes_formula": formula,
        "same_bits": there.log_determinant() == known[0].log_determinant(),
    }


def scaling_rows(workers, n, tile, counts, accuracy):
    """Yield rows of scaling.csv."""
    rule = gx.by_tile_norm(accuracy)
    local = {}
    for count in counts:
        sizes = {"strong": n, "weak": tile * round(n * count ** (1 / 3) / tile / 1.6)}
        with workers(count) as client:
            for study, size in sizes.items():
                if size not in local:
                    local[size] = factor(size, tile, rule)
                yield {"study": study, **row_of(client, size, tile, rule, local[size])}


def overhead_rows(workers, n, tiles):
    """Yield rows of overhead.csv: FP64 on one worker, whose thread computes all the time or waits.

    Scheduling is what the run takes beyond the seconds in which the worker's thread computes.
    """
    rule = gx.uniform("fp64")
    with workers(1) as client:
        # the scheduler takes notes from the first question on
        client.get_task_stream()
        for tile in tiles:
            placement = Placement.of(client)
            began = time.time()
            there, seconds = factor(n, tile, rule, placement)
            events = client.get_task_stream(start=began)
            computing = sum(
                part["stop"] - part["start"]
                for event in events
                for part in event["startstops"]
                if part["action"] == "compute"
            )
            tasks = len(events)
            yield {
                "n": n,
                "tile": tile,
                "tasks": tasks,
                "seconds": round(seconds, 3),
                "computing": round(computing, 3),
                "overhead": round(1 - computing / seconds, 4),
                "milliseconds_a_task": round(1e3 * (seconds - computing) / max(tasks, 1), 3),
                "log_determinant": there.log_determinant(),
            }


def faults_rows(workers, n, tile, runs, accuracy):
    """Yield rows of faults.csv: two workers killed, at random moments of the run."""
    rule, rng = gx.by_tile_norm(accuracy), np.random.default_rng(0)
    here, _ = factor(n, tile, rule)
    usual = None
    for run in range(runs):
        # a worker that is killed while it starts is not started again: each run has its own two
        with workers(2) as client:
            usual = usual or factor(n, tile, rule, Placement.of(client))[1]
            moments = np.sort(rng.uniform(0.0, usual, KILLED))
            thread = threading.Thread(target=_strike, args=(client, moments, rng))
            thread.start()
            there, seconds = factor(n, tile, rule, Placement.of(client))
            thread.join()
            yield {
                "run": run,
                "n": n,
                "tile": tile,
                "killed_at": " ".join(f"{moment:.2f}" for moment in moments),
                "seconds_unharmed": round(usual, 3),
                "seconds": round(seconds, 3),
                "losses": there.store.backend.losses,
                "same_bits": there.log_determinant() == here.log_determinant(),
            }


def vecchia_rows(workers, sizes, neighbours):
    """Yield rows of vecchia.csv."""
    with workers(2, vecchia.LIMIT) as client:
        for n in sizes:
            yield vecchia.row(client, n, neighbours)


def _strike(client, moments, rng):
    """Kill a worker at each of some moments from now on."""
    began = time.perf_counter()
    for moment in moments:
        time.sleep(max(0.0, moment - (time.perf_counter() - began)))
        alive = client.run(os.getpid, on_error="ignore")
        if alive:
            os.kill(alive[sorted(alive)[rng.integers(len(alive))]], signal.SIGKILL)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="scaling, overhead, faults, vecchia, simulation")
    parser.add_argument("--tiny", action="store_true", help="seconds instead of an hour")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    asked = parser.parse_args()
    # of a cluster that all share, workers only join
    with workers(1) if asked.tiny else nullcontext() as shared:
        run(asked, parser, partial(workers, shared=shared))


def run(asked, parser, workers):
    """Write the tables of the studies that are asked for; `workers` starts them."""
    n, tile = (300, 50) if asked.tiny else (12_000, 1_024)
    studies = {
        "scaling": lambda: scaling_rows(
            workers, n, tile, counts=(2,) if asked.tiny else (1, 2, 4), accuracy=1e-6
        ),
        "overhead": lambda: overhead_rows(
            workers, n, (tile,) if asked.tiny else (tile // 2, tile, 2 * tile)
        ),
        "faults": lambda: faults_rows(workers, n, tile, 1 if asked.tiny else 20, 1e-6),
        "vecchia": lambda: vecchia_rows(workers, (500,) if asked.tiny else MILLIONS, 30),
        "simulation": lambda: simulation.rows(
            *(simulation.QUICK if asked.tiny else simulation.Study(), workers, factor, MODEL),
            asked.output,
        ),
    }
    unknown = set(asked.names) - set(studies)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(studies)}")
    usual = ("overhead", "simulation", "scaling", "vecchia", "faults")
    for name in asked.names or usual:
        rows = []
        for row in studies[name]():
            print(row, flush=True)
            rows.append(row)
        write_rows(asked.output / f"{name}.csv", rows)


if __name__ == "__main__":
    main()
