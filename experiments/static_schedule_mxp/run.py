"""Mixed-precision tile Cholesky: accuracy, KL divergence, rate and estimates (paper 001).

    python experiments/static_schedule_mxp/run.py [NAME ...] [--tiny]

Writes results/kl*.csv (Figure 10, more smoothness, a nugget), target.csv (`for_divergence`),
rate*.csv (Figure 11, beside dpotrf), plain.csv (the same with neither MKL nor matrix units)
and estimates*.csv (50 replicates at each ε). All of them if none is named.
"""

import argparse
import sys
import time
from itertools import product
from pathlib import Path

import numpy as np

import geomxp as gx
from geomxp.covariance.ordering import hilbert
from geomxp.data.observations import Observations
from geomxp.likelihood.divergence import compare
from geomxp.likelihood.exact import tile_factor
from geomxp.linalg import blas
from geomxp.prediction.simulate import lay_out
from geomxp.runtime.devices import blas_threads, usable_cores
from geomxp.tiles.assemble import covariance_matrix
from geomxp.tiles.layout import Layout

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import write_rows

HERE = Path(__file__).parent
RANGES = {"weak": 0.02627, "medium": 0.078809, "strong": 0.210158}
ACCURACIES = (1e-5, 1e-6, 1e-7, 1e-8)
TINY_TILE = 32
CRASHES = 15_000
"""OpenBLAS 0.3.30's dpotrf on two threads crashes the process above this order."""


def places(n):
    """Return n random places of the unit square, along Hilbert's curve."""
    x = lay_out(n, "uniform", 0)
    return x[hilbert(x)]


def backward_error(seen, model, rule, tile):
    """Return ‖A - LL'‖_F / ‖A‖_F, measured tile by tile in FP64."""
    factor = tile_factor(model, seen, rule, tile)
    layout, final = factor.store.layout, factor.store.final
    originals = factor.store.originals
    error = norm = 0.0
    with blas_threads(layout.n), blas.cores(usable_cores()):
        rows = [[final(i, j).widen() for j in range(i + 1)] for i in range(layout.tiles)]
        for i in range(layout.tiles):
            for k in range(i + 1):
                a = originals.tile(i, k)
                norm += (1 if i == k else 2) * float(np.sum(a * a))
                for j in range(k + 1):
                    blas.gemm(a, rows[i][j], rows[k][j], alpha=-1.0)
                error += (1 if i == k else 2) * float(np.sum(a * a))
    return float(np.sqrt(error / norm))


def kl_rows(cases, tile=None, errors=True):
    """Yield rows of kl.csv for cases of (n, smoothness, nugget, correlation)."""
    for n, nu, nugget, name in cases:
        x, model = places(n), gx.Matern(1.0, RANGES[name], nu, nugget)
        seen = Observations(x, np.zeros(n))
        rules = [gx.by_tile_norm(accuracy) for accuracy in ACCURACIES]
        found = compare(model, x, [gx.Exact(rule, tile) for rule in rules])
        for rule, row in zip(rules, found, strict=True):
            size = len(row.formats)
            eighth = row.formats.counts().get("fp8", 0) / (size * (size + 1) / 2)
            error = backward_error(seen, model, rule, tile) if errors else None
            unscaled = None
            if errors and eighth >= 1 / 3:
                try:
                    bare = gx.by_tile_norm(rule.accuracy, scale=False)
                    unscaled = backward_error(seen, model, bare, tile)
                except gx.NotPositiveDefinite:
                    unscaled = float("nan")
            yield {
                "n": n,
                "smoothness": nu,
                "nugget": nugget,
                "correlation": name,
                "accuracy": rule.accuracy,
                "tile": Layout.of(n, tile).tile,
                "formats": " ".join(f"{k}:{v}" for k, v in row.formats.counts().items()),
                "bytes_over_fp64": row.bytes / Layout.of(n, tile).lower_bytes,
                "backward_error": error,
                "backward_error_unscaled": unscaled,
                "kl": row.kl,
                "kl_log_determinant": row.kl_log_determinant,
                "promotions": row.promotions,
            }


def target_rows(sizes, targets=(1e-3,), tile=None):
    """Yield rows of target.csv: what `for_divergence` promises and what it gives."""
    for n, nu, nugget, name in product(sizes, (0.5, 1.5), (0.0, 1e-2), RANGES):
        x, model = places(n), gx.Matern(1.0, RANGES[name], nu, nugget)
        ways = [gx.Exact(gx.for_divergence(target), tile) for target in targets]
        for target, row in zip(targets, compare(model, x, ways), strict=True):
            yield {
                "n": n,
                "smoothness": nu,
                "nugget": nugget,
                "correlation": name,
                "target": target,
                "predicted_kl": row.formats.divergence,
                "kl": row.kl,
                "kl_log_determinant": row.kl_log_determinant,
                "formats": " ".join(f"{k}:{v}" for k, v in row.formats.counts().items()),
                "bytes_over_fp64": row.bytes / Layout.of(n, tile).lower_bytes,
                "promotions": row.promotions,
            }


def dpotrf(library, sigma):
    """Return the seconds of one dpotrf of a copy of a matrix, on all usable cores."""
    from scipy.linalg import lapack

    copy = sigma.copy(order="F")
    start = time.perf_counter()
    if library == "mkl":
        blas.mkl().MKL_Set_Num_Threads(usable_cores())
        info = blas.potrf(copy)
    else:
        with blas_threads(len(sigma)):
            _, info = lapack.dpotrf(copy, lower=1, clean=0, overwrite_a=1)
    assert info == 0
    return time.perf_counter() - start


def rate_rows(sizes, accuracies, repeats, correlations=tuple(RANGES), tile=None):
    """Yield rows of rate.csv: medians of interleaved runs."""
    for n, name in product(sizes, correlations):
        model, x = gx.Matern(1.0, RANGES[name], 0.5), places(n)
        seen = Observations(x, np.zeros(n))
        sigma = covariance_matrix(model, x, "euclidean")
        libraries = (["openblas"] if n < CRASHES or usable_cores() == 1 else []) + (
            ["mkl"] if blas.mkl() else []
        )
        seconds = {key: [] for key in (*libraries, *accuracies)}
        factors = {}
        for _ in range(repeats):
            for library in libraries:
                seconds[library].append(dpotrf(library, sigma))
            for accuracy in accuracies:
                start = time.perf_counter()
                rule = gx.by_tile_norm(accuracy)
                factors[accuracy] = tile_factor(model, seen, rule, tile)
                seconds[accuracy].append(time.perf_counter() - start)
        medians = {key: float(np.median(times)) for key, times in seconds.items()}
        for accuracy in accuracies:
            factor, fp64 = factors[accuracy], Layout.of(n, tile).lower_bytes
            yield {
                "n": n,
                "correlation": name,
                "accuracy": accuracy,
                "threads": usable_cores(),
                "tile": Layout.of(n, tile).tile,
                "seconds": medians[accuracy],
                "gflops": n**3 / 3 / medians[accuracy] / 1e9,
                **{f"seconds_dpotrf_{key}": medians.get(key) for key in ("openblas", "mkl")},
                "speedup": min(medians[key] for key in libraries) / medians[accuracy],
                "bytes_over_fp64": factor.store.bytes / fp64,
                "peak_bytes_over_fp64": factor.store.peak_bytes / fp64,
                "formats": " ".join(f"{k}:{v}" for k, v in factor.precision_map.counts().items()),
            }


def without_units():
    """Let this process have neither MKL nor matrix units."""
    blas.mkl.cache_clear()
    blas.mkl = lambda: None
    blas.has_unit = lambda form: False
    blas.routine.cache_clear()


def estimate_rows(n, replicates, tile=None, first=0):
    """Yield rows of estimates.csv: the same fields fitted in FP64 and at each ε."""
    x, truths = places(n), {name: gx.Matern(1.0, RANGES[name], 0.5) for name in RANGES}
    fields = {name: gx.simulate(truths[name], x, draws=replicates, seed=0) for name in RANGES}
    ways = {"fp64": gx.Exact()} | {
        f"{accuracy:g}": gx.Exact(gx.by_tile_norm(accuracy), tile) for accuracy in ACCURACIES
    }
    for replicate, name, label in product(range(first, replicates), RANGES, ways):
        fit = gx.fit(
            Observations(x, fields[name][replicate]),
            truths[name],
            ways[label],
            fixed=("nugget",),
            trend="zero",
            progress=False,
            raise_on_failure=False,
        )
        yield {
            "n": n,
            "correlation": name,
            "replicate": replicate,
            "accuracy": label,
            "variance": fit.model.variance,
            "range": fit.model.range,
            "smoothness": fit.model.smoothness,
            "log_likelihood": fit.log_likelihood,
            "outcome": str(fit.outcome.ending),
            "evaluations": fit.evaluations,
            "seconds": fit.seconds,
        }


def studies(tiny):
    """Return each study's rows, made when they are asked for."""
    combinations = [(0.5, 0.0), (0.5, 1e-2), (1.5, 0.0), (1.5, 1e-2)]
    if tiny:
        cases = [(200, 0.5, 0.0, "weak"), (200, 1.5, 1e-2, "medium")]
        return {
            "kl": lambda: kl_rows(cases, TINY_TILE),
            "target": lambda: target_rows((200,), tile=TINY_TILE),
            "rate": lambda: rate_rows((300,), (1e-5,), 1, tile=TINY_TILE),
            "plain": lambda: rate_rows((300,), (1e-5,), 1, ("weak",), TINY_TILE),
            "estimates": lambda: estimate_rows(100, 1, TINY_TILE),
        }
    cases = [(n, *c, name) for n, c, name in product((1024, 4096), combinations, RANGES)]
    large = [(16_384, 0.5, 0.0, name) for name in RANGES]
    return {
        "kl": lambda: kl_rows(cases),
        "kl_16384": lambda: kl_rows(large[:1]),
        "kl_16384_more": lambda: kl_rows(large[1:], errors=False),
        "target": lambda: target_rows((2048, 8192)),
        "rate": lambda: rate_rows((16_384, 8192, 4096), ACCURACIES, 3),
        "rate_16384": lambda: rate_rows((16_384,), (1e-5,), 3, ("weak", "medium")),
        "plain": lambda: rate_rows((16_384,), (1e-5,), 3, ("weak", "medium")),
        "estimates": lambda: estimate_rows(1600, 50),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", nargs="*", help="names of results, as above")
    parser.add_argument("--tiny", action="store_true", help="seconds instead of hours")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    known = studies(options.tiny)
    for name in options.studies or known:
        if name == "plain":
            without_units()
        rows = []
        for row in known[name]():
            rows.append(row)
            print(
                name,
                *(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()),
                flush=True,
            )
            # a study that is cut short has written what it had
            write_rows(options.output / f"{name}.csv", rows)


if __name__ == "__main__":
    main()
