"""Does a fit recover what a field was simulated with? Replicates at two sizes, seeds fixed.

    python experiments/recovery/run.py [--tiny] [--replicates 100] [--workers 2]

Writes results/estimates.csv (a row a fit) and results/summary.csv (mean, spread and bias of each
estimate beside the inverse Fisher information at the truth).
"""

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

import geomxp as gx
from geomxp.prediction.simulate import lay_out
from geomxp.runtime import devices

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import write_rows

HERE = Path(__file__).parent
TRUTH = gx.Matern(variance=1.0, range=0.07, smoothness=1.2, nugget=0.1)
FIRST_SEED = 20_000
NAMES = tuple(TRUTH.parameters())


def places(n):
    """Return a jittered grid, 400 places per unit area: more places mean a larger region."""
    return lay_out(n, "jittered", seed=n) * np.sqrt(n / 400)


def replicate(job):
    """Simulate one field and fit it, all four parameters free; one row."""
    # a process for each core: no threads below
    os.environ["OMP_NUM_THREADS"] = "1"
    n, seed = job
    there = places(n)
    seen = gx.Observations(there, gx.simulate(TRUTH, there, seed=seed)[0])
    start = time.perf_counter()
    fit = gx.fit(seen, trend="zero", progress=False, raise_on_failure=False)
    return {
        "n": n,
        "seed": seed,
        "outcome": str(fit.outcome.ending),
        "log_likelihood": fit.log_likelihood,
        "log_likelihood_at_truth": gx.log_likelihood(seen, TRUTH).log_likelihood,
        "evaluations": fit.evaluations,
        "seconds": round(time.perf_counter() - start, 3),
        **fit.model.parameters(),
        **{f"error_{name}": fit.standard_errors[name] for name in NAMES},
    }


def summary(rows, n):
    """Mean, spread and bias of each estimate, beside what Fisher's information promises."""
    seen = gx.Observations(places(n), np.zeros(n))
    information = gx.Exact().prepare(seen).expected_information(TRUTH, NAMES)
    promised = np.sqrt(np.diag(np.linalg.inv(information)))
    mine = [row for row in rows if row["n"] == n]
    good = [row for row in mine if row["outcome"] == "CONVERGED"]
    result = []
    for name, deviation in zip(NAMES, promised, strict=True):
        estimates = np.array([row[name] for row in good])
        truth = TRUTH.parameters()[name]
        result.append(
            {
                "n": n,
                "parameter": name,
                "truth": truth,
                "mean": estimates.mean(),
                "median": np.median(estimates),
                "bias": estimates.mean() - truth,
                "error_of_mean": estimates.std(ddof=1) / np.sqrt(len(estimates)),
                "spread": estimates.std(ddof=1),
                "spread_by_inverse_fisher": deviation,
                "fits": len(mine),
                "converged": len(good),
            }
        )
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="three replicates at n = 100")
    parser.add_argument("--replicates", type=int, default=100)
    parser.add_argument("--workers", type=int, default=devices.usable_cores())
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    sizes = (100,) if options.tiny else (400, 1600)
    count = 3 if options.tiny else options.replicates
    jobs = [(n, FIRST_SEED + k) for n in sizes for k in range(count)]
    rows = []
    with ProcessPoolExecutor(options.workers) as pool:
        for k, row in enumerate(pool.map(replicate, jobs), start=1):
            rows.append(row)
            if k % 10 == 0 or k == len(jobs):
                print(f"{k} of {len(jobs)} fits", flush=True)
    write_rows(options.output / "estimates.csv", rows)
    table = [line for n in sizes for line in summary(rows, n)]
    write_rows(options.output / "summary.csv", table)
    for line in table:
        print(
            "{n:5d} {parameter:11s} truth {truth:<6g} mean {mean:.4f} ± {error_of_mean:.4f}  "
            "spread {spread:.4f}  inverse Fisher {spread_by_inverse_fisher:.4f}".format(**line)
        )


if __name__ == "__main__":
    main()
