"""Tiles of low rank: divergence, time, bytes, growth, and the fit of 105,569 locations.

    python experiments/low_rank/run.py [divergence] [time] [growth] [threads] [--tiny]
    python experiments/low_rank/run.py satellite --data FOLDER

divergence.csv: measured divergence of `for_divergence(1e-3, low_rank=True)` from FP64, for three
smoothnesses, ranges, nuggets and kinds of locations. time.csv: seconds and bytes of a
log-likelihood in FP64, in tiles of mixed formats and in tiles of low rank, and of dpotrf alone, in
turn. growth.csv: the same of tiles of low rank and of Vecchia's approximation against n, with the
divergence of both. threads.csv: seconds of a factorization of tiles of low rank on one thread and
on two, in turn.

satellite.csv: fits of the observed temperatures of Heaton et al. (2019), and predictions of the
held-out ones. FOLDER holds heaton_satellite.csv.gz (lon, lat, observed, truth).
"""

import argparse
import os
import resource
import subprocess
import sys
import time
import warnings
from functools import partial
from pathlib import Path
from unittest.mock import patch

os.environ.setdefault("OMP_NUM_THREADS", "2")

import numpy as np

import geomxp as gx
from geomxp.likelihood.divergence import compare
from geomxp.likelihood.factors import tile_factor
from geomxp.linalg import blas, recursive
from geomxp.prediction.simulate import lay_out
from geomxp.runtime.devices import usable_cores

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import ceilings, let_mkl_rest, resume, write_rows

HERE = Path(__file__).parent
TARGET = 1e-3
LOW_RANK = gx.Exact(gx.for_divergence(TARGET, low_rank=True))
RANGES = {"weak": 0.02627, "medium": 0.078809, "strong": 0.210158}
"""Of ν = ½: effective ranges 0.08, 0.24 and 0.63, as in ExaGeoStat's studies."""


def clustered(n):
    """Return locations in 30 clusters."""
    random = np.random.default_rng(5)
    centres = random.random((30, 2))
    return centres[random.integers(0, 30, n)] + 0.03 * random.standard_normal((n, 2))


def masked(n):
    """Return n locations of a regular grid from which clouds (discs) are cut, as a satellite's."""
    random, side = np.random.default_rng(6), int(np.ceil(np.sqrt(1.6 * n)))
    axis = (np.arange(side) + 0.5) / side
    grid = np.column_stack([column.ravel() for column in np.meshgrid(axis, axis)])
    for centre in random.random((200, 2)):
        radius = 0.02 + 0.1 * random.random()
        rest = grid[np.sum((grid - centre) ** 2, axis=1) > radius**2]
        if len(rest) < n:
            break
        grid = rest
    # whole rows, without the last ones
    return grid[:n]


LOCATIONS = {
    "jittered grid": lambda n: lay_out(n, "uniform", 0),
    "clusters": clustered,
    "gappy grid": masked,
}


def cases(tiny):
    """Return the cells of divergence.csv: models that FP64 can factor."""
    sizes = {"jittered grid": 4096, "clusters": 4096, "gappy grid": 8192}
    found = []
    for where, n in sizes.items():
        for smoothness in (0.5, 1.5, 2.5):
            for length in (0.03, 0.1, 0.3):
                for nugget in (0.0, 1e-4, 1e-2):
                    # without noise these matrices are singular to working precision
                    singular = smoothness > 1.5 or (smoothness > 0.5 and length > 0.05)
                    if nugget == 0 and (singular or (where == "clusters" and smoothness > 0.5)):
                        continue
                    case = {"locations": where, "n": 300 if tiny else n, "smoothness": smoothness}
                    found.append(case | {"range": length, "nugget": nugget})
    for smoothness in (0.5, 1.5):
        for length in (0.03, 0.1, 0.3):
            case = {"locations": "jittered grid", "n": 16384, "smoothness": smoothness}
            found.append(case | {"range": length, "nugget": 1e-2})
    return found[::20][:3] if tiny else found


def divergence_rows(locations, n, smoothness, **rest):
    """Yield the row of a case."""
    model = gx.Matern(1.0, rest["range"], smoothness, rest["nugget"])
    (found,) = compare(model, LOCATIONS[locations](n), [LOW_RANK], progress=False)
    yield {
        "target": TARGET,
        "kl": found.kl,
        "kl_over_target": found.kl / TARGET,
        "promotions": found.promotions,
        "part_of_bytes": found.bytes / (4 * n * (n + 1)),
        "seconds": found.seconds,
        "seconds_fp64": found.reference_seconds,
    }


def time_rows(sizes, repeats):
    """Yield rows of time.csv: methods in turn, medians."""
    for n in sizes:
        places = lay_out(n, "uniform", 0)
        seen = gx.Observations(places, np.random.default_rng(1).standard_normal(n))
        # beyond this FP64 takes an hour, and its matrix does not fit
        small = n <= 20_000
        for correlation, length in RANGES.items():
            model = gx.Matern(1.0, length, 0.5, 1e-2)
            ways = {"low rank": LOW_RANK}
            if small:
                ways |= {"mixed": gx.Exact(gx.for_divergence(TARGET)), "FP64": gx.Exact()}
            evaluators = {name: method.prepare(seen) for name, method in ways.items()}
            seconds = {name: [] for name in evaluators} | ({"dpotrf": []} if small else {})
            for repeat in range(repeats + 1):
                for name, evaluator in evaluators.items():
                    start = time.perf_counter()
                    evaluator(model)
                    if repeat:
                        seconds[name].append(time.perf_counter() - start)
                if small and repeat:
                    seconds["dpotrf"].append(dpotrf_seconds(model, places))
            for name, times in seconds.items():
                about = {"n": n, "correlation": correlation, "method": name}
                size, value = 4 * n * (n + 1), None
                if name in evaluators:
                    evaluator = evaluators[name]
                    value = evaluator(model).log_likelihood
                    size = evaluator.factorize(model).nbytes
                median = float(np.median(times))
                yield about | {"seconds": median, "bytes": size, "log_likelihood": value}


def thread_rows(n):
    """Yield the row of a size: seconds of a factorization on one thread and on two."""
    places = lay_out(n, "uniform", 0)
    seen = gx.Observations(places, np.zeros(n))
    model, tile = gx.Matern(1.0, RANGES["medium"], 0.5, 1e-2), LOW_RANK.tile_for(n)
    seconds = {1: [], 2: []}
    for repeat in range(2 if n < 1000 else 10):
        for threads, found in seconds.items():
            # the tiles, and all other work, use this many threads
            with (
                patch("geomxp.tiles.cholesky.usable_cores", lambda count=threads: count),
                patch("geomxp.runtime.devices.usable_cores", lambda count=threads: count),
            ):
                start = time.perf_counter()
                tile_factor(model, seen, LOW_RANK.precision, tile)
                # the first repeat compiles and allocates memory: it does not count
                found += [time.perf_counter() - start] if repeat else []
    one, two = (float(np.median(seconds[threads])) for threads in (1, 2))
    yield {"seconds_of_one_thread": one, "seconds_of_two_threads": two, "ratio": one / two}


def dpotrf_seconds(model, places):
    """Return the seconds of MKL's dpotrf of Σ, or of geomxp's without MKL; generation excluded."""
    sigma = np.asfortranarray(model(places, places))
    sigma[np.diag_indices(len(places))] += model.nugget
    # OpenBLAS 0.3.30's dpotrf crashes on two threads above order 15,000, the recursion does not
    potrf = blas.library("MKL")(blas.potrf) if blas.mkl() else recursive.potrf
    with blas.cores(usable_cores()):
        start = time.perf_counter()
        potrf(sigma)
        seconds = time.perf_counter() - start
    let_mkl_rest()
    return seconds


def growth_row(n, kind):
    """Return the row of growth.csv of one size and method; in a process of its own."""
    places = lay_out(n, "uniform", 0)
    seen = gx.Observations(places, np.random.default_rng(1).standard_normal(n))
    model = gx.Matern(1.0, RANGES["medium"], 0.5, 1e-2)
    method = LOW_RANK if kind == "low rank" else gx.Vecchia(int(kind.split()[-1]))
    evaluator = method.prepare(seen)
    # tables, compilation, and Vecchia's neighbours, which a fit needs once
    found, seconds = evaluator(model), []
    for repeat in range(3 if n < 70_000 else 1):
        # an evaluator keeps its last value
        other = gx.Matern(1.0, RANGES["medium"] * (1 + 1e-3 * (repeat + 1)), 0.5, 1e-2)
        start = time.perf_counter()
        evaluator(other)
        seconds.append(time.perf_counter() - start)
    row = {
        "seconds": float(np.median(seconds)),
        "resident_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "log_determinant": found.log_determinant,
        "bytes": 0,
        "kl": 0.0,
        "kl_standard_error": 0.0,
    }
    if kind == "low rank":
        divergence = gx.estimate_divergence(model, places, method, probes=16)
        row |= {"bytes": divergence.bytes, "kl": divergence.kl}
        row |= {"kl_standard_error": divergence.standard_error}
    return row


def growth_rows(n):
    """Yield the rows of a size: tiles of low rank, then Vecchia's approximation."""
    exact = None
    for kind in ("low rank", "vecchia 30", "vecchia 60", "vecchia 120"):
        call = [sys.executable, __file__, "one", "--n", str(n), "--kind", kind]
        text = subprocess.run(call, capture_output=True, text=True, check=True).stdout
        row = {name: float(value) for name, value in (pair.split("=") for pair in text.split())}
        if kind == "low rank":
            exact = row["log_determinant"]
        else:
            # of Vecchia's approximation half the difference of log-determinants
            row["kl"] = 0.5 * (row["log_determinant"] - exact)
        yield {"method": kind} | row


def satellite_rows(model, folder):
    """Yield the row of a fit of the observed temperatures, with scores of the held-out ones."""
    sys.path.insert(0, str(HERE.parent / "vecchia"))
    import heaton

    observed, held = heaton.synthetic() if folder is None else heaton.load("satellite", folder)
    way = dict(heaton.WAYS["satellite"])[model]
    with warnings.catch_warnings():
        # degrees are what the paper's other methods used
        warnings.simplefilter("ignore", gx.GeomxpWarning)
        seen = gx.Observations(*observed, metric=way.get("metric", "euclidean"))
    about = {name: value for name, value in way.items() if name != "metric"}
    start = time.perf_counter()
    fit = gx.fit(seen, method=LOW_RANK, progress=False, raise_on_failure=False, **about)
    fitted = time.perf_counter()
    there = gx.predict(fit, held[0], progress=False)
    predicted = time.perf_counter()
    scores = gx.scores.summary(there.mean, there.variance_of_observation, held[1])
    yield {
        "n": len(seen),
        "seconds_fit": fitted - start,
        "seconds_predict": predicted - fitted,
        "resident_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "log_likelihood": fit.log_likelihood,
        **fit.model.parameters(),
        **{f"error_{name}": value for name, value in fit.standard_errors.items()},
        "outcome": str(fit.outcome),
        "evaluations": fit.evaluations,
        **{name: scores[name] for name in ("mae", "rmse", "crps", "coverage")},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", nargs="*", help="divergence, time, growth, threads, satellite")
    parser.add_argument("--tiny", action="store_true", help="seconds instead of hours")
    parser.add_argument("--anew", action="store_true", help="replace rows that are there")
    parser.add_argument("--data", type=Path, help="folder of heaton_satellite.csv.gz")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    parser.add_argument("--n", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.studies == ["one"]:
        print(*(f"{name}={value!r}" for name, value in growth_row(options.n, options.kind).items()))
        return
    tiny, folder = options.tiny, options.output
    studies = options.studies or ["divergence", "time", "growth"]
    if "divergence" in studies:
        resume(folder / "divergence.csv", cases(tiny), divergence_rows, anew=options.anew)
    if "time" in studies:
        sizes = (300,) if tiny else (4096, 16_384, 65_536)
        rows = []
        for row in time_rows(sizes, 1 if tiny else 3):
            rows.append(row)
            print(*row.values(), flush=True)
            write_rows(folder / "time.csv", rows, ceilings(256 if tiny else 2048))
    if "growth" in studies:
        cells = [{"n": n} for n in ((300,) if tiny else (8192, 16_384, 32_768, 65_536, 131_072))]
        resume(folder / "growth.csv", cells, growth_rows, anew=options.anew)
    if "threads" in studies or tiny:
        cells = [{"n": n} for n in ((300,) if tiny else (16_384, 65_536))]
        resume(folder / "threads.csv", cells, thread_rows, anew=options.anew)
    if "satellite" in studies or tiny:
        models = ["exponential, linear trend, degrees", "nu free, linear trend, degrees"]
        cells = [{"model": model} for model in models]
        rows_of = partial(satellite_rows, folder=options.data)
        resume(folder / "satellite.csv", cells, rows_of, anew=options.anew)


if __name__ == "__main__":
    main()
