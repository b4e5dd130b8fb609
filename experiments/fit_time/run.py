"""Whole fits in mixed precision beside FP64: seconds, memory, factorizations and estimates.

    python experiments/fit_time/run.py times [--sizes 2000,4000,8000] [--rounds 3] [--tiny]
    python experiments/fit_time/run.py low-rank [--sizes 2000,4000,8000] [--rounds 3] [--tiny]
    python experiments/fit_time/run.py estimates [--cases 200] [--every PART/OF] [--tiny]

`times` writes results/times.csv: for simulated fields, a row for each method, with the medians over
rounds in which the methods take turns, each fit in a process of its own on one core. `low-rank`
writes results/low_rank.csv, the same of low-rank tiles and of FP64 for one model. `estimates`
writes results/estimates.csv: random cases, hard ones among them, each fitted in FP64, by norm and
for a divergence, with the largest differences of estimates (in standard errors) and of standard
errors. Both resume where an earlier run ended.
"""

import argparse
import multiprocessing
import os
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from threading import Event, Thread

import numpy as np
import psutil

import geomxp as gx
from geomxp.likelihood.exact import ExactEvaluator

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import QUIET, TINY, resume

RESULTS = Path(__file__).parent / "results"

RANGES = {"weak": 0.02627, "medium": 0.078809, "strong": 0.210158}
"""Ranges for ν = ½ in the unit square; for ν = 1.5 they are divided by 1.6."""

METHODS = {
    "fp64": gx.Exact(),
    "by norm": gx.Exact(gx.by_tile_norm(1e-5)),
    "divergence": gx.Exact(gx.for_divergence(1e-3)),
    "layered": gx.Exact(gx.layered("fp32", "fp64"), tile="whole"),
}
LOW_RANK = {"low rank": gx.Exact(gx.for_divergence(1e-3, low_rank=True))}


def truth(correlation, smoothness, nugget):
    """Return the model of a field."""
    return gx.Matern(1.0, RANGES[correlation] / (1.6 if smoothness > 1 else 1), smoothness, nugget)


def one_fit(method, n, correlation, smoothness, nugget, held, seed=1):
    """Fit a simulated field; return CPU seconds, peak memory in n×n matrices, and the fit."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    warnings.simplefilter("ignore")
    model, places = (
        truth(correlation, smoothness, nugget),
        np.random.default_rng(seed).random((n, 2)),
    )
    values = gx.simulate(model, places, 1, seed).ravel()
    options = {"method": method, "fixed": {"smoothness": smoothness} if held else {}} | QUIET
    # compiled code and caches
    gx.fit(gx.Observations(places[:200], values[:200]), **options)
    counted, plain = [], ExactEvaluator.factorize

    def factorize(self, *arguments):
        if len(self.observations) == n:
            counted.append(1)
        return plain(self, *arguments)

    ExactEvaluator.factorize = factorize
    with Peak() as peak:
        began = time.process_time()
        fit = gx.fit(gx.Observations(places, values), **options)
        seconds = time.process_time() - began
    values, errors = fit.model.parameters(), fit.standard_errors
    return {
        "seconds": seconds,
        "factorizations": len(counted),
        "matrices": peak.bytes / (8 * n * n),
        "divergence": None if fit.divergence is None else fit.divergence.kl,
        "log_likelihood": fit.log_likelihood,
        "estimates": {name: (values[name], errors[name]) for name in fit.free},
        "raised": "not fine enough" in fit.outcome.message,
    }


class Peak:
    """Peak of this process's resident memory above that at the start, every 5 ms."""

    def __enter__(self):
        process, self._end = psutil.Process(), Event()
        before, self.bytes = process.memory_info().rss, 0

        def watch():
            while not self._end.wait(0.005):
                self.bytes = max(self.bytes, process.memory_info().rss - before)

        self._thread = Thread(target=watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()


def alone(*arguments):
    """Call `one_fit` in a new process."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return pool.submit(one_fit, *arguments).result()


def difference(fit, exact):
    """Return the largest differences of estimates, in standard errors, and of standard errors."""
    pairs = [(fit[name], exact[name]) for name in exact if name in fit and exact[name][1]]
    moved = max((abs(a[0] - b[0]) / b[1] for a, b in pairs), default=float("nan"))
    wider = max((abs(a[1] / b[1] - 1) for a, b in pairs if a[1]), default=float("nan"))
    return moved, wider


def times(rounds, methods):
    """Return the function that measures a cell of times.csv."""

    def rows_of(n, correlation, smoothness, nugget, held):
        about, found = (n, correlation, smoothness, nugget, held), {name: [] for name in methods}
        for k in range(rounds if n < 8000 else 1):
            names = list(methods)
            for name in names[k % len(names) :] + names[: k % len(names)]:
                found[name].append(alone(methods[name], *about))
        middle = {name: median(fit["seconds"] for fit in fits) for name, fits in found.items()}
        exact = found["fp64"][0]
        for name, fits in found.items():
            fit, least = fits[0], min(each["matrices"] for each in fits)
            moved, wider = difference(fit["estimates"], exact["estimates"])
            yield {
                "method": name,
                "seconds": round(middle[name], 3),
                "times_as_fast": round(middle["fp64"] / middle[name], 3),
                "factorizations": fit["factorizations"],
                "matrices": round(least, 3),
                "memory_share": round(least / min(f["matrices"] for f in found["fp64"]), 3),
                "divergence": fit["divergence"],
                "raised": fit["raised"],
                "estimates_moved": float(f"{moved:.2g}"),
                "standard_errors_changed": float(f"{wider:.2g}"),
            }

    return rows_of


def random_case(case):
    """Return observations and options of a case, some with an ill-conditioned matrix."""
    random = np.random.default_rng(case)
    n = 60 if TINY else int(random.choice([500, 800, 1200]))
    smoothness = float(random.choice([0.5, 0.5, 0.8, 1.5, 2.5]))
    length = float(np.exp(random.uniform(np.log(0.02), np.log(0.5)))) / (1 + (smoothness - 0.5) / 2)
    nugget = float(random.choice([0.1, 0.01, 1e-3, 1e-4]))
    held, reml = bool(random.random() < 0.6), bool(random.random() < 0.3)
    trend = str(random.choice(["zero", "constant", "linear"]))
    reml = reml and trend != "zero"
    places = random.random((n, 2))
    model = gx.Matern(1.0, length, smoothness, nugget)
    seen = gx.Observations(places, gx.simulate(model, places, 1, case).ravel())
    about = {"n": n, "smoothness": smoothness, "range": round(length, 4), "nugget": nugget}
    fixed = {"smoothness": smoothness} if held else {}
    options = {"fixed": fixed, "trend": trend, "reml": reml}
    return seen, options, about | {"held": held, "trend": trend, "reml": reml}


def estimates_of(case):
    """Fit a case in FP64, by norm and for a divergence; yield a row for each of the latter."""
    warnings.simplefilter("ignore")
    seen, options, about = random_case(case)
    exact = gx.fit(seen, method=gx.Exact(), **options, **QUIET)
    for name in ("by norm", "divergence"):
        fit = gx.fit(seen, method=METHODS[name], **options, **QUIET)
        moved, wider = difference(
            *(
                {p: (each.model.parameters()[p], each.standard_errors[p]) for p in each.free}
                for each in (fit, exact)
            )
        )
        yield {
            "method": name,
            **about,
            "outcome": str(fit.outcome.ending),
            "outcome_fp64": str(exact.outcome.ending),
            "same_boundary": fit.boundary == exact.boundary,
            "evaluations": fit.evaluations,
            "evaluations_fp64": exact.evaluations,
            "divergence": float(f"{fit.divergence.kl:.3g}"),
            "raised": "not fine enough" in fit.outcome.message,
            "estimates_moved": float(f"{moved:.2g}"),
            "standard_errors_changed": float(f"{wider:.2g}"),
        }


def main():
    """Run one of the two parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parts = "times", "low-rank", "estimates"
    parser.add_argument("part", choices=parts, nargs="?", default="times")
    parser.add_argument("--sizes", default="200" if TINY else "2000,4000,8000")
    parser.add_argument("--rounds", type=int, default=1 if TINY else 3)
    parser.add_argument("--cases", type=int, default=2 if TINY else 200)
    parser.add_argument("--every", default="0/1")
    parser.add_argument("--anew", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    every = tuple(map(int, options.every.split("/")))
    if options.part == "estimates":
        cells = [{"case": case} for case in range(options.cases)]
        path = options.output / "estimates.csv"
        resume(path, cells, estimates_of, every=every, anew=options.anew)
        return
    cells = [
        {"n": n, "correlation": name, "smoothness": nu, "nugget": nugget, "held": held}
        for n in map(int, options.sizes.split(","))
        for nu, held in ((0.5, True), (0.5, False), (1.5, True))
        for name in RANGES
        for nugget in (0.1, 0.01)
    ]
    methods, table = METHODS, "times.csv"
    if options.part == "low-rank":
        methods, table = {"fp64": METHODS["fp64"]} | LOW_RANK, "low_rank.csv"
        one = {"correlation": "medium", "smoothness": 0.5, "nugget": 0.01, "held": True}
        cells = [cell for cell in cells if cell.items() >= one.items()]
    rows = times(options.rounds, methods)
    resume(options.output / table, cells[:1] if TINY else cells, rows, anew=options.anew)


if __name__ == "__main__":
    main()
