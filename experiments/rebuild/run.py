"""Time two checkouts of geomxp against each other, interleaved, one thread each.

Usage: python experiments/rebuild/run.py BEFORE AFTER [--pairs 4] [--rounds 25]

For each task, a pair of processes, one of each checkout, runs the task in turns. The tasks use the
public interface only. The table holds medians over all rounds of all pairs: CPU seconds (of the
import: wall seconds, with compiled bytecode; each round is a process of its own), the ratios of
the seconds of one round, and peak resident memory.
"""

import argparse
import json
import sys
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import worker, write_rows

RESULTS = Path(__file__).parent / "results"

TASKS = {
    "import": "pass",
    "generation": "model(places[:2000], places[:2000])",
    "likelihood, dense FP64": "gx.log_likelihood(dense, model)",
    "likelihood, tiles by norm": "gx.log_likelihood(dense, model, mixed)",
    "likelihood, Vecchia": "gx.log_likelihood(large, model, gx.Vecchia(30))",
    "likelihood, space-time": "gx.log_likelihood(in_time, gneiting)",
    "likelihood, several variables": "gx.log_likelihood(several, both)",
    "likelihood, several variables, Vecchia": "gx.log_likelihood(several, both, gx.Vecchia(30))",
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
in_time = gx.Observations(places[:2000], values[:2000], time=np.arange(2000) % 20)
gneiting = gx.Gneiting(1.0, 0.1, 5.0, 0.8, 0.8, 0.5, 0.5, 0.1)
several = gx.Observations(places[:2000], values[:2000], variable=np.arange(2000) % 2)
both = gx.ParsimoniousMatern((1.0, 2.0), 0.1, (0.5, 0.8), 0.5, 0.1)
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


def run():
    if name == "import":
        return spent["import"]
    began = time.process_time()
    eval(work)
    return time.process_time() - began


for _ in sys.stdin:
    seconds = run()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "megabytes": peak}), flush=True)
"""


def measure(checkouts, name, rounds):
    """Yield the answers of a pair of processes, which take turns, for each round."""
    workers = [worker(checkout, WORKER, name, TASKS[name]) for checkout in checkouts]
    try:
        for k in range(rounds + 1):
            answers = [None, None]
            for which in (0, 1) if k % 2 else (1, 0):
                process = workers[which]
                process.stdin.write("go\n")
                process.stdin.flush()
                answers[which] = json.loads(process.stdout.readline())
            # the first round compiles and fills caches
            if k:
                yield answers
    finally:
        for process in workers:
            process.stdin.close()
            process.wait()


def main():
    """Measure all tasks and write results/speed.csv."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS))
    options = parser.parse_args()
    checkouts = options.before.resolve(), options.after.resolve()
    rows = []
    for name in options.tasks:
        pairs, rounds = options.pairs, options.rounds
        if name == "import":
            pairs, rounds = pairs * rounds // 5, 1
        found = [pair for _ in range(pairs) for pair in measure(checkouts, name, rounds)]
        row = {"task": name, "rounds": len(found)}
        for what in ("seconds", "megabytes"):
            old, new = (median(pair[k][what] for pair in found) for k in (0, 1))
            ratio = median(after[what] / before[what] for before, after in found)
            row |= {f"{what}_before": old, f"{what}_after": new, f"{what}_ratio": ratio}
        rows.append({k: round(v, 5) if isinstance(v, float) else v for k, v in row.items()})
        print(rows[-1], flush=True)
    write_rows(RESULTS / "speed.csv", rows)


if __name__ == "__main__":
    main()
