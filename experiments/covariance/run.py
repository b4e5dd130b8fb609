"""Covariance generation: accuracy against mpmath, rate beside SciPy's K_ν, share of a likelihood.

    python experiments/covariance/run.py [--tiny]

Writes results/errors.csv, rates.csv, families.csv, likelihood.csv and memory.csv. One thread.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

import geomxp as gx
from geomxp.benchmarks import bench
from geomxp.covariance.base import FAMILIES
from geomxp.covariance.inputs import Inputs

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import write_rows

HERE = Path(__file__).parent


def one_evaluation(n):
    """Evaluate one likelihood in this process and print the growth of its peak memory, in bytes."""
    seen = gx.Observations(
        np.random.default_rng(1).random((n, 2)), np.random.default_rng(2).standard_normal(n)
    )
    model = gx.Matern(1.0, 0.1, 0.8, 0.01)
    # compiled and loaded before the memory is looked at
    gx.log_likelihood(seen.subset(np.arange(200)), model)
    # a process inherits its parent's peak: begin anew
    Path("/proc/self/clear_refs").write_text("5")
    before = high_water()
    gx.log_likelihood(seen, model)
    print(high_water() - before)


def families(n, rounds):
    """Return the time of a covariance matrix of each family beside Matérn's, timed in turns."""
    inputs = Inputs(np.random.default_rng(1).random((n, 2)))
    models = {}
    for name, family in FAMILIES.items():
        if family.uses:
            continue
        model = family.from_parameters({p.name: p.value for p in family.declared})
        # equal effective ranges: the correlation is 5 % at 0.3
        models[name] = model.replace(range=0.3 * model.range / model.effective_range())
    work = {name: lambda m=model: m.matrix(inputs, inputs) for name, model in models.items()}
    seconds = bench.interleaved(work, rounds)
    return [
        {
            "family": name,
            "model": str(models[name]),
            "n": n,
            "seconds": taken,
            "entries_per_s": n * n / taken,
            "over_matern": taken / seconds["matern"],
        }
        for name, taken in seconds.items()
    ]


def high_water():
    """Return the peak of this process's resident memory, in bytes (Linux)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    raise RuntimeError("no VmHWM in /proc/self/status")


def memory(n):
    """Return the peak memory of one evaluation beside its matrix, from a fresh process."""
    run = subprocess.run(
        [sys.executable, __file__, "--one", str(n)], capture_output=True, text=True, check=True
    )
    matrix = 8 * n * n
    return {
        "n": n,
        "matrix_bytes": matrix,
        "peak_bytes": int(run.stdout),
        "times_matrix": int(run.stdout) / matrix,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one_evaluation(options.one)
        return
    tiny = options.tiny
    tables = {
        "errors": bench.matern_errors(
            (0.8,) if tiny else bench.ACCURACY_SMOOTHNESS, 20 if tiny else 200
        ),
        "rates": [
            row
            for nu in ((0.8,) if tiny else (0.5, 0.8, 1.3, 2.5))
            for row in bench.matern_rates(256 if tiny else 2048, nu, 3 if tiny else 15)
        ],
        "families": families(256 if tiny else 2048, 3 if tiny else 31),
        "likelihood": [
            row
            for n in ((100,) if tiny else (500, 1000, 2000, 4000, 8000))
            for row in bench.likelihood_rates(n, 0.8, 3 if n > 4000 else 7)
        ],
        "memory": [memory(n) for n in ((300,) if tiny else (4000, 8000))],
        "table": bench.table_times(),
    }
    for name, rows in tables.items():
        print(f"{name}\n{bench.as_text(rows)}\n", flush=True)
        if rows:
            write_rows(options.output / f"{name}.csv", rows)


if __name__ == "__main__":
    main()
