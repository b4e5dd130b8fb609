"""Time two checkouts of geomxp against each other, interleaved, one thread each.

Usage: python experiments/rebuild/run.py BEFORE AFTER [--rounds 7]

Each round runs every task once in a process of each checkout, in alternating order. The tasks
use the public interface only. Times are the best of the repetitions within a process, CPU seconds
(for the import: wall seconds, with compiled bytecode); the table holds medians over the rounds, and
the peak resident memory.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

RESULTS = Path(__file__).parent / "results"

TASKS = {
    "import": "pass",
    "generation": "model(places[:2000], places[:2000])",
    "likelihood, dense FP64": "gx.log_likelihood(dense, model)",
    "likelihood, tiles by norm": "gx.log_likelihood(dense, model, mixed)",
    "likelihood, Vecchia": "gx.log_likelihood(large, model, gx.Vecchia(30))",
    "score": "evaluator.gradient(gx.Matern(1.0, next(lengths), 0.8, 0.1))",
    "fit, meuse": "gx.fit(meuse, progress=False)",
    "fit, Vecchia": "gx.fit(medium, None, gx.Vecchia(15), fixed={'smoothness': 0.5}, "
    "progress=False)",
    "prediction": "gx.predict(fitted, places[:2000], progress=False)",
}

WORKER = """
import itertools, json, os, resource, sys, time, warnings
import numpy as np
began = time.perf_counter()
import geomxp as gx
spent = {"import": time.perf_counter() - began}
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
places = rng.random((20_000, 2))
model = gx.Matern(1.0, 0.1, 0.8, 0.1)
values = rng.standard_normal(20_000)
dense = gx.Observations(places[:2000], values[:2000])
medium = gx.Observations(places[:3000], values[:3000])
large = gx.Observations(places, values)
meuse = gx.datasets.load("meuse")
mixed = gx.Exact(gx.by_tile_norm(1e-6), tile=256)
lengths = itertools.count(1)
lengths = map(lambda k: 0.1 + 1e-4 * k, lengths)
evaluator = gx.Exact().prepare(dense)
start = gx.Matern(0.6, 220.0, 0.5, 0.06)
fitted = gx.fit(meuse, start, fixed=tuple(start.parameters()), progress=False)
name, code = sys.argv[1:]
if name != "import":
    work = compile(code, name, "eval")
    eval(work)
    times = []
    while len(times) < 3 or (sum(times) < 1.5 and len(times) < 30):
        began = time.process_time()
        eval(work)
        times.append(time.process_time() - began)
    spent = {name: min(times)}
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": spent[name], "megabytes": peak}))
"""


def measure(checkout, name):
    """Return the seconds and the peak memory of one task in one process of a checkout."""
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    for threads in ("OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "OMP_NUM_THREADS"):
        environment[threads] = "1"
    command = [sys.executable, "-c", WORKER, name, TASKS[name]]
    run = subprocess.run(
        command, env=environment, cwd=checkout, capture_output=True, text=True, check=True
    )
    return json.loads(run.stdout.splitlines()[-1])


def main():
    """Measure all tasks and write results/speed.csv."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    pairs = {"before": options.before.resolve(), "after": options.after.resolve()}
    rows = []
    for name in TASKS:
        found = {"before": [], "after": []}
        for k in range(options.rounds + 1):
            for which in sorted(pairs, reverse=bool(k % 2)):
                answer = measure(pairs[which], name)
                # the first round compiles
                if k:
                    found[which].append(answer)
        row = {"task": name}
        for what in ("seconds", "megabytes"):
            old, new = (median(a[what] for a in found[which]) for which in ("before", "after"))
            row |= {f"{what}_before": old, f"{what}_after": new, f"{what}_ratio": new / old}
        rows.append(row)
        print(row, flush=True)
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / "speed.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
