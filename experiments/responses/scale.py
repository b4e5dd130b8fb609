"""Seconds and memory of whole fits and predictions of counts, by the number of locations.

    python experiments/responses/scale.py [--tiny]

Writes results/scale.csv. Poisson counts about a field with exponential covariance in the unit
square, 20 neighbours: a fit with standard errors, and predictions with variances at 100,000 new
locations. Each size runs in a process of its own, on two threads, after a small fit that compiles;
another process simulates. `plot.py` draws the table.
"""

import argparse
import os
import resource
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "2")

import numpy as np

import geomxp as gx

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import TINY, resume

HERE = Path(__file__).parent
SIZES = (300, 600) if TINY else (10_000, 30_000, 100_000, 250_000, 1_000_000)
NEW = 50 if TINY else 100_000
TRUTH, MEAN, NEIGHBOURS = gx.Matern(1.0, 0.05, 0.5), 0.5, 20


def alone(work, *arguments):
    """Return what a function returns in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def simulated(n, file):
    """Write places and counts."""
    random = np.random.default_rng(n)
    places = random.random((n, 2))
    field = gx.simulate(TRUTH, places, seed=n, method=gx.Vecchia(30))[0]
    np.savez(file, places=places, values=random.poisson(np.exp(MEAN + field)).astype(float))


def fitted(places, values):
    """Return the fit."""
    return gx.fit(
        gx.Observations(places, values),
        method=gx.Vecchia(NEIGHBOURS),
        response="poisson",
        fixed={"smoothness": 0.5, "nugget": 0.0},
        progress=False,
    )


def measured(file):
    """Return the row of a size."""
    data = np.load(file)
    places, values = data["places"], data["values"]
    new = np.random.default_rng(0).random((NEW, 2))
    # compiled
    gx.predict(fitted(places[:300], values[:300]), new[:50], progress=False)
    begun = time.perf_counter()
    fit = fitted(places, values)
    errors = fit.standard_errors
    between = time.perf_counter()
    prediction = gx.predict(fit, new, progress=False)
    finite = bool(np.isfinite(prediction.mean).all() and (prediction.variance > 0).all())
    ended = time.perf_counter()
    return {
        "new": NEW,
        "threads": int(os.environ["NUMBA_NUM_THREADS"]),
        "seconds_fit": round(between - begun, 2),
        "seconds_predict": round(ended - between, 2),
        "seconds": round(ended - begun, 2),
        "peak_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6 * 1.024, 3),
        "evaluations": fit.evaluations,
        "outcome": str(fit.outcome.ending),
        "variance": round(fit.model.variance, 5),
        "variance_error": round(errors["variance"], 5),
        "range": round(fit.model.range, 6),
        "range_error": round(errors["range"], 6),
        "mean": round(float(fit.coefficients[0]), 4),
        "mean_error": round(float(fit.coefficient_errors[0]), 4),
        "log_likelihood": round(fit.log_likelihood, 3),
        "log_likelihood_error": round(fit.log_likelihood_error, 4),
        "predictions_finite": finite,
    }


def rows_of(n, folder):
    """Yield the row of a size."""
    file = Path(folder, f"{n}.npz")
    alone(simulated, n, file)
    yield alone(measured, file)


def main():
    """Measure all sizes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--anew", action="store_true", help="replace the rows of an earlier run")
    parser.add_argument("--tiny", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    cells = [{"n": n} for n in SIZES]
    with tempfile.TemporaryDirectory() as folder:
        rows = partial(rows_of, folder=folder)
        resume(options.output / "scale.csv", cells, rows, anew=options.anew)


if __name__ == "__main__":
    main()
