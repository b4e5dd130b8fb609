"""FP64 answers from low-precision factors: convergence, speed, kriging, memory (paper 002).

    python experiments/refinement/run.py [NAME ...] [--tiny]

Writes results/iterations.csv (Figures 4-7: iterations on five spectra, three methods, with and
without preprocessing, FP16 and FP32 factors), histories.csv (the residual at each iteration, as in
Figure 3; a spectrum without a factor has no rows), speed.csv (time to solution beside `dposv`,
LAPACK up to n = 8,192 and our recursion in FP64 above), kriging.csv (means and variances beside
FP64's), memory.csv (Σ is never stored in FP64) and log_determinant.csv (what refinement does not
repair: error against cost).
All of them if none is named.
"""

import argparse
import json
import subprocess
import sys
import time
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

import geomxp as gx
from geomxp.benchmarks.spectra import SPECTRA, spd_matrix
from geomxp.data.observations import Observations
from geomxp.errors import NotPositiveDefinite
from geomxp.likelihood.exact import tile_factor
from geomxp.linalg import blas
from geomxp.prediction.simulate import lay_out
from geomxp.runtime.devices import blas_threads, usable_cores
from geomxp.tiles.refine import RefinedFactor, solve

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import write_rows

HERE = Path(__file__).parent
RANGES = {"weak": 0.02627, "medium": 0.078809, "strong": 0.210158}
METHODS = ("ir", "cg", "gmres")
HARDEST = {"arithmetic": 1e8, "clustered": 1e8, "logarithmic": 1.7e5, "geometric": 1.7e5}
PREPROCESSING = (
    {"scaling": True, "shift": 0.0},
    {"scaling": False, "shift": 0.4},
    {"scaling": True, "shift": 0.4},
    {"scaling": True, "shift": 10.0},
)


def cases():
    """Yield (spectrum, condition) of the study."""
    for spectrum in SPECTRA:
        yield from ((spectrum, condition) for condition in (1e2, 1e4))
        if spectrum in HARDEST:
            yield spectrum, HARDEST[spectrum]


def solved(a, b, rule, method, about, tile=None):
    """Return one row of iterations.csv, and the history."""
    start = time.perf_counter()
    row = {"factor": rule.form.name, "method": method, "scaling": about["scaling"]}
    row["shift"] = about.get("shift", 0.0)
    try:
        found = solve(a, b, rule, method=method, tile=tile, **about)
    except NotPositiveDefinite as error:
        return row | {
            "iterations": None,
            "residual": None,
            "outcome": "NOT_POSITIVE_DEFINITE",
            "message": str(error),
            "seconds": time.perf_counter() - start,
        }, ()
    return row | {
        "iterations": found.iterations,
        "residual": found.residual,
        "outcome": str(found.outcome.ending),
        "message": found.outcome.message,
        "seconds": time.perf_counter() - start,
    }, found.history


def iteration_rows(n, which, tile=None):
    """Yield rows of iterations.csv."""
    for spectrum, condition in which:
        a = spd_matrix(spectrum, n, condition)
        b = np.random.default_rng(1).random(n)
        for name, method, about in product(("fp16", "fp32"), METHODS, PREPROCESSING):
            if name == "fp32" and (about.get("shift") or not about["scaling"]):
                continue
            row, _ = solved(a, b, gx.uniform(name), method, about, tile)
            yield {"spectrum": spectrum, "condition": condition, "n": n} | row


def history_rows(n, which, tile=None):
    """Yield rows of histories.csv: the residual at each iteration."""
    for spectrum, condition in which:
        a = spd_matrix(spectrum, n, condition)
        b = np.random.default_rng(1).random(n)
        for method in METHODS:
            _, history = solved(
                *(a, b, gx.uniform("fp16"), method, {"scaling": True, "shift": 0.4}, tile)
            )
            for iteration, residual in history:
                yield {
                    "spectrum": spectrum,
                    "condition": condition,
                    "n": n,
                    "method": method,
                    "iteration": iteration,
                    "residual": residual,
                }


def dposv(a, b):
    """Solve in FP64 with LAPACK, by halves where OpenBLAS crashes on two threads."""
    from geomxp.linalg import recursive

    with blas_threads(len(a)), blas.cores(usable_cores()):
        lower = recursive.potrf(a.copy(order="F"))
        half = recursive.trsm(lower, b)
        return recursive.trsm(lower, half, transposed=True)


def speed_rows(sizes, rounds, tile=None):
    """Yield rows of speed.csv: medians of runs in turn, arithmetic spectrum, κ₂ = 100, 1e4."""
    for n, condition in product(sizes, (1e2, 1e4)):
        a, b = spd_matrix("arithmetic", n, condition), np.random.default_rng(1).random(n)
        found, seconds = {}, {}
        ways = {
            "fp16 gmres": partial(solve, a, b, gx.uniform("fp16"), method="gmres", tile=tile),
            "fp16 ir": partial(solve, a, b, gx.uniform("fp16"), method="ir", tile=tile),
            "fp32 ir": partial(solve, a, b, gx.uniform("fp32"), method="ir", tile=tile),
            "dposv": partial(dposv, a, b),
        }
        for k in range(rounds + 1):
            for name, work in ways.items():
                start = time.perf_counter()
                found[name] = work()
                if k:
                    seconds.setdefault(name, []).append(time.perf_counter() - start)
        medians = {name: float(np.median(values)) for name, values in seconds.items()}
        for name, median in medians.items():
            result = found[name]
            yield {
                "n": n,
                "condition": condition,
                "threads": usable_cores(),
                "solver": name,
                "seconds": median,
                "times_dposv": medians["dposv"] / median,
                "iterations": getattr(result, "iterations", 0),
                "residual": getattr(result, "residual", None),
            }


def kriging_rows(n, targets, accuracy, tile=None):
    """Yield rows of kriging.csv: refined means and variances beside those in FP64."""
    places, there = lay_out(n, "uniform", 0), np.random.default_rng(5).random((targets, 2))
    for name, nu in product(RANGES, (0.5, 1.5)):
        model = gx.Matern(1.0, RANGES[name], nu, 1e-4)
        seen = Observations(places, gx.simulate(model, places, seed=1)[0])
        fixed = ("variance", "range", "smoothness", "nugget")
        exact = gx.predict(gx.fit(seen, model, fixed=fixed), there)
        for method in METHODS:
            how = gx.Exact(gx.by_tile_norm(accuracy), tile, refine=method)
            row = {"n": n, "correlation": name, "smoothness": nu, "nugget": 1e-4}
            row |= {"accuracy": accuracy, "method": method}
            try:
                start = time.perf_counter()
                evaluation = gx.log_likelihood(seen, model, how)
                found = gx.predict(gx.fit(seen, model, how, fixed=fixed), there)
            except gx.GeomxpError as error:
                yield row | {"iterations": None, "mean_error": None, "message": str(error)}
                continue
            yield row | {
                "iterations": evaluation.refinement.iterations,
                "mean_error": float(np.max(np.abs(found.mean / exact.mean - 1))),
                "variance_error": float(np.max(np.abs(found.variance / exact.variance - 1))),
                "seconds": time.perf_counter() - start,
                "formats": " ".join(
                    f"{k}:{v}" for k, v in evaluation.precision_map.counts().items()
                ),
            }


def memory_rows(n, tile=None):
    """Yield the row of memory.csv, from a process of its own."""
    command = [sys.executable, __file__, "--memory-of", json.dumps([n, tile])]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    yield json.loads(run.stdout)


def memory_of(n, tile):
    """Return what one refined solution of Σx = b takes of memory."""
    import psutil

    model, places = gx.Matern(1.0, RANGES["weak"], 0.5, 1e-4), lay_out(n, "uniform", 0)
    seen = Observations(places, np.zeros(n))
    process = psutil.Process()
    before = process.memory_info().rss
    factor = tile_factor(model, seen, gx.by_tile_norm(1e-4), tile)
    refined = RefinedFactor(factor, "gmres")
    b = np.random.default_rng(1).standard_normal(n)
    x = refined.solve(b)
    import resource

    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "n": n,
        "fp64_matrix": 8 * n * n,
        "factor": factor.nbytes,
        "peak_above_start": peak - before,
        "over_fp64_matrix": (peak - before) / (8 * n * n),
        "iterations": refined.last.iterations,
        "residual": refined.last.residual,
        "largest": float(np.abs(x).max()),
    }


def determinant_rows(n, rounds, tile=None):
    """Yield rows of log_determinant.csv: error against cost of rules, FP64 beside them."""
    places = lay_out(n, "uniform", 0)
    seen = Observations(places, np.zeros(n))
    rules = {f"by_tile_norm({e:g})": gx.by_tile_norm(e) for e in (1e-5, 1e-6, 1e-7, 1e-8, 1e-9)}
    rules |= {f"for_divergence({k:g})": gx.for_divergence(k) for k in (1e-4, 1e-6, 1e-8)}
    rules |= {"fp32": gx.uniform("fp32"), "fp64": gx.uniform("fp64")}
    for name, nu in product(("weak", "medium"), (0.5, 1.5)):
        model, seconds, found = gx.Matern(1.0, RANGES[name], nu, 1e-4), {}, {}
        for k in range(rounds + 1):
            for label, rule in rules.items():
                start = time.perf_counter()
                factor = tile_factor(model, seen, rule, tile)
                found[label] = factor.log_determinant(), factor.precision_map, factor.promotions
                if k:
                    seconds.setdefault(label, []).append(time.perf_counter() - start)
        exact = found["fp64"][0]
        for label, values in seconds.items():
            value, formats, promotions = found[label]
            yield {
                "n": n,
                "correlation": name,
                "smoothness": nu,
                "rule": label,
                "error": value - exact,
                "seconds": float(np.median(values)),
                "over_fp64": float(np.median(values) / np.median(seconds["fp64"])),
                "promotions": promotions,
                "formats": " ".join(f"{k}:{v}" for k, v in formats.counts().items()),
            }


def studies(tiny):
    """Return each study's rows, made when they are asked for."""
    if tiny:
        few = [("arithmetic", 1e2), ("geometric", 1e4)]
        return {
            "iterations": lambda: iteration_rows(128, few, 32),
            "histories": lambda: history_rows(128, few, 32),
            "speed": lambda: speed_rows((128,), 1, 32),
            "kriging": lambda: kriging_rows(150, 5, 1e-4, 32),
            "memory": lambda: memory_rows(500, 64),
            "log_determinant": lambda: determinant_rows(150, 1, 32),
        }
    return {
        "iterations": lambda: iteration_rows(4096, cases()),
        "histories": lambda: history_rows(4096, [(s, HARDEST.get(s, 1e4)) for s in SPECTRA]),
        "speed": lambda: speed_rows((4096, 8192, 16_384), 3),
        "kriging": lambda: kriging_rows(4096, 100, 1e-4),
        "memory": lambda: memory_rows(16_384),
        "log_determinant": lambda: determinant_rows(8192, 2),
    }


def main():
    """Read the command line and write the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    parser.add_argument("--memory-of", help="(a process of its own)")
    arguments = parser.parse_args()
    if arguments.memory_of:
        print(json.dumps(memory_of(*json.loads(arguments.memory_of))))
        return
    found = studies(arguments.tiny)
    for name in arguments.names or found:
        rows = []
        for row in found[name]():
            rows.append(row)
            print(row, flush=True)
        names = dict.fromkeys(key for row in rows for key in row)
        write_rows(arguments.output / f"{name}.csv", [dict.fromkeys(names) | row for row in rows])


if __name__ == "__main__":
    main()
