"""Do 95 % intervals hold the truth 95 times in 100? Wald's and the profile likelihood's, simulated.

    python experiments/intervals/run.py [coverage | coverage-reml | bias] [--tiny] [--output DIR]

coverage: 300 places, all four parameters and a constant mean estimated by ML, 500 fields; writes
results/replicates.csv (a row for each field and parameter) and results/coverage.csv. coverage-reml:
the same fields by REML; results/replicates_reml.csv and coverage_reml.csv. bias: variance and a
linear trend estimated by ML and REML, the rest known; results/reml.csv. Seeds are 1, 2, …;
replicate k is the same in every run.
"""

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import write_rows

import geomxp as gx

HERE = Path(__file__).parent
TRUTH = gx.Matern(variance=1.0, range=0.1, smoothness=0.8, nugget=0.1)
LEVEL = 0.95
METHODS = ("wald", "profile")


def places(n):
    """Return uniform places, the same for every replicate."""
    return np.random.default_rng(0).random((n, 2))


def replicate(job):
    """Return the rows of one simulated field."""
    n, seed, reml = job
    values = gx.simulate(TRUTH, places(n), seed=seed)[0]
    seen = gx.Observations(places(n), values)
    began = time.perf_counter()
    fit = gx.fit(seen, trend="constant", reml=reml, progress=False, raise_on_failure=False)
    fitted = time.perf_counter() - began
    common = {"seed": seed, "outcome": str(fit.outcome.ending), "evaluations": fit.evaluations}
    rows = []
    for method in METHODS:
        began = time.perf_counter()
        try:
            found, why = fit.confidence_intervals(LEVEL, method), ""
        except gx.GeomxpError as error:
            found, why = {}, str(error)
        seconds = time.perf_counter() - began
        for name, truth in TRUTH.parameters().items():
            lower, upper = found.get(name) or (None, None)
            known = lower is not None and upper is not None
            rows.append(
                common
                | {
                    "parameter": name,
                    "method": method,
                    "estimate": fit.model.parameters()[name],
                    "lower": lower,
                    "upper": upper,
                    "covers": bool(lower <= truth <= upper) if known else None,
                    "fit_seconds": round(fitted, 4),
                    "interval_seconds": round(seconds, 4),
                    "why_not": why,
                }
            )
    return rows


def summary(rows):
    """Return coverage by parameter and method, with binomial standard errors."""
    result = []
    for name in TRUTH.parameters():
        for method in METHODS:
            mine = [r for r in rows if (r["parameter"], r["method"]) == (name, method)]
            known = [r for r in mine if r["covers"] is not None]
            if not known:
                continue
            share = np.mean([r["covers"] for r in known])
            missed_low = np.mean([r["upper"] < TRUTH.parameters()[name] for r in known])
            open_ended = np.mean([r["lower"] == 0 or not np.isfinite(r["upper"]) for r in known])
            error = np.sqrt(LEVEL * (1 - LEVEL) / len(known))
            result.append(
                {
                    "parameter": name,
                    "method": method,
                    "replicates": len(mine),
                    "with_interval": len(known),
                    "coverage": round(share, 4),
                    "binomial_standard_errors_from_95": round((share - LEVEL) / error, 2),
                    "truth_above": round(missed_low, 4),
                    "truth_below": round(1 - share - missed_low, 4),
                    "open_ended": round(open_ended, 4),
                    "median_interval_seconds": float(
                        np.median([r["interval_seconds"] for r in mine])
                    ),
                }
            )
    return result


def coverage(n, count, output, reml=False):
    rows, suffix = [], "_reml" if reml else ""
    with ProcessPoolExecutor(2) as pool:
        for k, found in enumerate(pool.map(replicate, [(n, s, reml) for s in range(1, count + 1)])):
            rows += found
            if (k + 1) % 25 == 0 or k + 1 == count:
                write_rows(output / f"replicates{suffix}.csv", rows)
                write_rows(output / f"coverage{suffix}.csv", summary(rows))
                print(f"{k + 1} of {count}", flush=True)
    for row in summary(rows):
        print(row)


def bias(n, count, output):
    """σ̂² of ML and of REML, with a linear trend: only REML's is unbiased."""
    where = places(n)
    rows = []
    fixed = {"range": TRUTH.range, "smoothness": TRUTH.smoothness, "nugget": 0.0}
    field = gx.Matern(1.0, TRUTH.range, TRUTH.smoothness)
    values = gx.simulate(field, where, draws=count, seed=1)
    for restricted in (False, True):
        found = [
            gx.fit(
                gx.Observations(where, z + 2.0 - where[:, 0]),
                fixed=fixed,
                trend="linear",
                reml=restricted,
                progress=False,
            ).model.variance
            for z in values
        ]
        error = np.std(found, ddof=1) / np.sqrt(count)
        rows.append(
            {
                "method": "REML" if restricted else "ML",
                "n": n,
                "replicates": count,
                "truth": 1.0,
                "mean": round(float(np.mean(found)), 5),
                "monte_carlo_error": round(float(error), 5),
                "errors_from_truth": round(float((np.mean(found) - 1.0) / error), 2),
                "expected": 1.0 if restricted else (n - 3) / n,
            }
        )
        print(rows[-1], flush=True)
    write_rows(output / "reml.csv", rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", nargs="?", choices=("coverage", "coverage-reml", "bias"))
    parser.add_argument("--tiny", action="store_true", help="a field of 50 places")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    fields = (50, 1) if options.tiny else (300, 500)
    if options.study in (None, "bias"):
        bias(*((20, 3) if options.tiny else (60, 2000)), options.output)
    if options.study in (None, "coverage"):
        coverage(*fields, options.output)
    if options.study in (None, "coverage-reml"):
        coverage(*fields, options.output, reml=True)


if __name__ == "__main__":
    main()
