"""Vecchia's approximation: accuracy against neighbours, and time against places.

    python experiments/vecchia/run.py [accuracy] [time] [--tiny]

Writes results/accuracy.csv (KL divergence from the exact model, for orders and numbers of
neighbours) and results/time.csv (ordering and search, one evaluation, gradient with information,
and memory, against n). Two threads at most.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "2")

import numpy as np

import geomxp as gx
from geomxp.likelihood.divergence import compare
from geomxp.prediction.simulate import lay_out

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import write_rows

HERE = Path(__file__).parent
MODELS = {
    "rough": gx.Matern(1.0, 0.1, 0.5, 0.01),
    "nu = 0.8": gx.Matern(1.0, 0.08, 0.8, 0.01),
    "smooth": gx.Matern(1.0, 0.05, 1.5, 0.01),
    "no nugget": gx.Matern(1.0, 0.08, 0.8),
}
ORDERINGS = {
    "maximin": "maximin",
    "morton": "morton",
    "given": "given",
    "by coordinate": "given",
}
"""The given order is that of random places; by coordinate, theirs once sorted by x."""


def accuracy_rows(n, neighbours):
    """Yield rows of accuracy.csv."""
    random = lay_out(n, "uniform", 0)
    for name, model in MODELS.items():
        for label, ordering in ORDERINGS.items():
            places = random[np.argsort(random[:, 0])] if label == "by coordinate" else random
            ways = [gx.Vecchia(m, ordering) for m in neighbours]
            for method, found in zip(ways, compare(model, places, ways), strict=True):
                yield {
                    "model": name,
                    "n": n,
                    "ordering": label,
                    "neighbours": method.neighbours,
                    "kl": found.kl,
                    "seconds": found.seconds,
                    "seconds_exact": found.reference_seconds,
                }


def time_row(n, m, repeats):
    """Return a row of time.csv; in a process of its own, for its memory."""
    random = np.random.default_rng(1)
    seen = gx.Observations(random.random((n, 2)), random.standard_normal(n))
    # compiled before anything is timed
    small = gx.Vecchia(m).prepare(seen.subset(np.arange(1000)), np.ones((1000, 1)))
    model = gx.Matern(1.0, 0.05, 0.8, 0.1)
    small(model)
    small.gradient(model)
    start = time.perf_counter()
    evaluator = gx.Vecchia(m).prepare(seen, np.ones((n, 1)))
    prepared = time.perf_counter() - start
    values, slopes = [], []
    for k in range(repeats):
        # another smoothness each time, as in a fit
        other = gx.Matern(1.0, 0.05, 0.8 + 0.01 * (k + 1), 0.1)
        start = time.perf_counter()
        value = evaluator(other).log_likelihood
        middle = time.perf_counter()
        evaluator.gradient(other)
        values.append(middle - start)
        slopes.append(time.perf_counter() - middle)
    return {
        "n": n,
        "neighbours": m,
        "seconds_order_and_search": prepared,
        "seconds_evaluation": float(np.median(values)),
        "seconds_gradient_and_information": float(np.median(slopes)),
        "resident_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "log_likelihood": value,
    }


def time_rows(sizes, neighbours, repeats):
    """Yield rows of time.csv."""
    for m in neighbours:
        for n in sizes:
            call = [sys.executable, __file__, "one", "--n", str(n), "--m", str(m)]
            call += ["--repeats", str(repeats)]
            text = subprocess.run(call, capture_output=True, text=True, check=True).stdout
            pairs = (pair.split("=") for pair in text.split())
            yield {name: float(value) if "." in value else int(value) for name, value in pairs}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", nargs="*", help="accuracy, time")
    parser.add_argument("--tiny", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    for name in ("n", "m", "repeats"):
        parser.add_argument(f"--{name}", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.studies == ["one"]:
        row = time_row(options.n, options.m, options.repeats)
        print(*(f"{k}={v!r}" for k, v in row.items()))
        return
    tiny = options.tiny
    known = {
        "accuracy": lambda: accuracy_rows(
            *((200, (1, 10)) if tiny else (4096, (5, 10, 20, 30, 60)))
        ),
        "time": lambda: time_rows(
            *(((2000,), (10,), 1) if tiny else ((10**4, 10**5, 10**6, 3 * 10**6), (10, 30), 3))
        ),
    }
    for name in options.studies or known:
        rows = []
        for row in known[name]():
            rows.append(row)
            print(name, *(f"{k}={v}" for k, v in row.items()), flush=True)
            write_rows(options.output / f"{name}.csv", rows)


if __name__ == "__main__":
    main()
