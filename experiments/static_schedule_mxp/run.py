"""Mixed-precision tile Cholesky: accuracy, KL divergence, rate and estimates (paper 001).

    python experiments/static_schedule_mxp/run.py [NAME ...] [--tiny] [--anew] [--every PART OF]

Writes results/kl*.csv (Figure 10, more smoothness, a nugget), maps.csv (Figure 4: one to four
formats), target.csv (`for_divergence`), rate*.csv (Figure 11, beside dpotrf), plain.csv (the same
where all coarse formats are multiplied in FP32, without MKL), avx512.csv (the same on a CPU that
multiplies BF16 in AVX-512) and estimates_*.csv (fits of simulated fields in FP64 and at each
ε). All of them if none is named.

kl*.csv and estimates_*.csv keep the rows of earlier runs, unless --anew is given, and add what is
missing. With --every, a process takes each OF-th matrix of kl*.csv and each OF-th fit of
estimates_*.csv, and writes <name>_part<PART>.csv; a run without it joins these files.
"""

import argparse
import sys
import time
from functools import cache, partial
from itertools import product
from pathlib import Path

import numpy as np

import geomxp as gx
from geomxp.covariance.ordering import hilbert
from geomxp.data.observations import Observations
from geomxp.likelihood.divergence import compare
from geomxp.likelihood.factors import tile_factor
from geomxp.linalg import blas, recursive
from geomxp.prediction.simulate import lay_out
from geomxp.runtime.devices import blas_threads, usable_cores
from geomxp.tiles.assemble import covariance_matrix
from geomxp.tiles.layout import Layout

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import ceilings, keep_memory, let_mkl_rest, resume, write_rows

HERE = Path(__file__).parent
RANGES = {"weak": 0.02627, "medium": 0.078809, "strong": 0.210158}
ACCURACIES = (1e-5, 1e-6, 1e-7, 1e-8)
TINY_TILE = 32
EVALUATIONS = 200
"""Limit on evaluations of each fit; searches in FP64 need about 10 to 40, mixed ones 20 to 80."""

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


def kl_cells(cases):
    """Return the cells of kl*.csv, one for each case of (n, smoothness, nugget, correlation)."""
    names = ("n", "smoothness", "nugget", "correlation")
    return [dict(zip(names, case, strict=True)) for case in cases]


def kl_rows(n, smoothness, nugget, correlation, tile=None, errors=True):
    """Yield one row for each accuracy; all share one FP64 factorization."""
    x, model = places(n), gx.Matern(1.0, RANGES[correlation], smoothness, nugget)
    seen, rules = Observations(x, np.zeros(n)), [gx.by_tile_norm(each) for each in ACCURACIES]
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


def map_rows(n, correlation, accuracy, tile=None):
    """Yield rows of maps.csv: one to four formats by the same rule (Figure 4)."""
    x, model = places(n), gx.Matern(1.0, RANGES[correlation], 0.5)
    seen, finest_first = Observations(x, np.zeros(n)), ("fp64", "fp32", "fp16", "fp8")
    choices = [finest_first[:count] for count in (1, 2, 3, 4)]
    rules = [gx.by_tile_norm(accuracy, formats=choice) for choice in choices]
    found = compare(model, x, [gx.Exact(rule, tile) for rule in rules])
    for choice, rule, row in zip(choices, rules, found, strict=True):
        yield {
            "n": n,
            "tile": Layout.of(n, tile).tile,
            "correlation": correlation,
            "accuracy": accuracy,
            "choice": " ".join(choice),
            "map": str(row.formats).replace("\n", " "),
            "formats": " ".join(f"{k}:{v}" for k, v in row.formats.counts().items()),
            "bytes_over_fp64": row.bytes / Layout.of(n, tile).lower_bytes,
            "backward_error": backward_error(seen, model, rule, tile),
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
    """Return the seconds of one factorization of a copy of a matrix in FP64, on all usable cores.

    "halves" is geomxp's recursive factorization, with OpenBLAS for leaves and products.
    """
    from scipy.linalg import lapack

    copy, info = sigma.copy(order="F"), 0
    start = time.perf_counter()
    if library == "mkl":
        with blas.cores(usable_cores()):
            info = blas.library("MKL")(blas.potrf)(copy)
    elif library == "halves":
        with blas_threads(len(sigma)):
            recursive.potrf(copy)
    else:
        with blas_threads(len(sigma)):
            _, info = lapack.dpotrf(copy, lower=1, clean=0, overwrite_a=1)
    assert info == 0
    seconds = time.perf_counter() - start
    if library == "mkl":
        let_mkl_rest()
    return seconds


def rate_rows(sizes, accuracies, repeats, correlations=tuple(RANGES), tile=None):
    """Yield rows of rate.csv: medians of interleaved runs."""
    for n, name in product(sizes, correlations):
        model, x = gx.Matern(1.0, RANGES[name], 0.5), places(n)
        seen = Observations(x, np.zeros(n))
        sigma = covariance_matrix(model, x, "euclidean")
        libraries = ["openblas" if n < CRASHES or usable_cores() == 1 else "halves"]
        libraries += ["mkl"] if blas.mkl() else []
        rules = {accuracy: gx.by_tile_norm(accuracy) for accuracy in accuracies}
        rules["fp32"] = gx.uniform("fp32")
        seconds = {key: [] for key in (*libraries, *rules)}
        factors = {}
        for _ in range(repeats):
            for library in libraries:
                seconds[library].append(dpotrf(library, sigma))
            for key, rule in rules.items():
                start = time.perf_counter()
                factors[key] = tile_factor(model, seen, rule, tile)
                seconds[key].append(time.perf_counter() - start)
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
                "seconds_fp32_tiles": medians["fp32"],
                **{
                    f"seconds_dpotrf_{key}": medians.get(key)
                    for key in ("openblas", "mkl", "halves")
                },
                "speedup": min(medians[key] for key in libraries) / medians[accuracy],
                "bytes_over_fp64": factor.store.bytes / fp64,
                "peak_bytes_over_fp64": factor.store.peak_bytes / fp64,
                "formats": " ".join(f"{k}:{v}" for k, v in factor.precision_map.counts().items()),
            }


def without_units():
    """Let this process have no MKL, and multiply all coarse formats in FP32."""
    blas.mkl = lambda: None
    blas.has_unit = lambda form: False


@cache
def fields(n, name, draws):
    """Return places, the true model and fields that it generates."""
    x, truth = places(n), gx.Matern(1.0, RANGES[name], 0.5)
    return x, truth, gx.simulate(truth, x, draws=draws, seed=0)


def estimate_cells(n, replicates):
    """Return the cells of estimates*.csv: FP64 and each ε, field by field."""
    labels = ("fp64", *(f"{accuracy:g}" for accuracy in ACCURACIES))
    names = ("n", "replicate", "correlation", "accuracy")
    return [
        dict(zip(names, values, strict=True))
        for values in product((n,), range(replicates), RANGES, labels)
    ]


def estimate_rows(n, replicate, correlation, accuracy, draws, tile=None):
    """Yield the fit of one of so many fields, from the truth, independent of all other fits."""
    x, truth, values = fields(n, correlation, draws)
    method = gx.Exact()
    if accuracy != "fp64":
        method = gx.Exact(gx.by_tile_norm(float(accuracy)), tile)
    fit = gx.fit(
        *(Observations(x, values[replicate]), truth, method),
        fixed=("nugget",),
        trend="zero",
        evaluations=EVALUATIONS,
        progress=False,
        raise_on_failure=False,
    )
    yield {
        "variance": fit.model.variance,
        "range": fit.model.range,
        "smoothness": fit.model.smoothness,
        "log_likelihood": fit.log_likelihood,
        "outcome": str(fit.outcome.ending),
        "evaluations": fit.evaluations,
        "seconds": fit.seconds,
    }


def kl_study(cases, **options):
    """Return the cells of kl*.csv and the function that computes their rows."""
    return kl_cells(cases), partial(kl_rows, **options)


def estimate_study(n, replicates, tile=None):
    """Return the cells of estimates*.csv and the function that computes their rows."""
    return estimate_cells(n, replicates), partial(estimate_rows, draws=replicates, tile=tile)


TIMED = ("rate", "plain", "avx512")


def studies(tiny):
    """Return each study: its cells and the function of their rows, or a function of all rows."""
    combinations = [(0.5, 0.0), (0.5, 1e-2), (1.5, 0.0), (1.5, 1e-2)]
    if tiny:
        cases = [(200, 0.5, 0.0, "weak"), (200, 1.5, 1e-2, "medium")]
        return {
            "kl": kl_study(cases, tile=TINY_TILE),
            "maps": lambda: map_rows(200, "weak", 1e-5, TINY_TILE),
            "target": lambda: target_rows((200,), tile=TINY_TILE),
            "rate": lambda: rate_rows((300,), (1e-5,), 1, tile=TINY_TILE),
            "avx512": lambda: rate_rows((300,), (1e-5,), 1, ("weak",), TINY_TILE),
            "estimates_100": estimate_study(100, 1, TINY_TILE),
            "plain": lambda: rate_rows((300,), (1e-5,), 1, ("weak",), TINY_TILE),
        }
    cases = [(n, *c, name) for n, c, name in product((1024, 4096), combinations, RANGES)]
    more = [(n, 0.5, 0.0, name) for n, name in product((2048, 8192), RANGES)]
    large = [(16_384, 0.5, 0.0, name) for name in RANGES]
    largest = [(32_768, 0.5, 0.0, name) for name in RANGES]
    return {
        "kl": kl_study(cases),
        "kl_8192": kl_study(more),
        "kl_16384": kl_study(large[:1]),
        "kl_16384_more": kl_study(large[1:], errors=False),
        "maps": lambda: map_rows(4096, "weak", 1e-5),
        "target": lambda: target_rows((2048, 8192)),
        "rate": lambda: rate_rows((16_384, 8192, 4096), ACCURACIES, 3),
        "avx512": lambda: rate_rows((16_384,), (1e-5, 1e-6), 3),
        "kl_32768": kl_study(largest, errors=False),
        "estimates_3600": estimate_study(3600, 50),
        "estimates_6400": estimate_study(6400, 10),
        # the last one: it changes the arithmetic of this process
        "plain": lambda: rate_rows((16_384,), (1e-5,), 3, ("weak", "medium")),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", nargs="*", help="names of results, as above")
    parser.add_argument("--tiny", action="store_true", help="seconds instead of hours")
    parser.add_argument("--anew", action="store_true", help="replace the rows of earlier runs")
    parser.add_argument("--every", type=int, nargs=2, default=(0, 1), metavar=("PART", "OF"))
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    known = studies(options.tiny)
    if unknown := set(options.studies) - set(known):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    for name in options.studies or known:
        path, study = options.output / f"{name}.csv", known[name]
        if isinstance(study, tuple):
            resume(path, *study, every=options.every, anew=options.anew)
            continue
        if name == "plain":
            without_units()
        rates = ceilings() if name in TIMED else None
        if name in TIMED:
            keep_memory()
        rows = []
        for row in study():
            rows.append(row)
            print(
                name,
                *(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()),
                flush=True,
            )
            # a study that is cut short has written what it had
            write_rows(path, rows, rates)


if __name__ == "__main__":
    main()
