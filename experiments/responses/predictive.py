"""Predictive standard deviations by Vecchia's approximation beside those of dense matrices.

    python experiments/responses/predictive.py [--tiny]

Counts and binary values at 10,000 locations, parameters held at the truth, 20 neighbours. At 2,000
new locations the standard deviations of η by `geomxp.predict` are compared with those of dense
matrices, whose weights W are at the same mode; then 100,000 new locations are timed. Writes
results/predictive.csv.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import scipy

import geomxp as gx

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import TINY, resume

HERE = Path(__file__).parent
RANGES = (0.02, 0.05, 0.2)
RESPONSES = ("poisson", "bernoulli")
NEIGHBOURS = 20
WANTED = 0.02


def drawn(response, f, random):
    """Return values given the field."""
    if response == "poisson":
        return random.poisson(np.exp(0.5 + f)).astype(float)
    return (random.random(len(f)) < 1 / (1 + np.exp(-f))).astype(float)


def deviations(model, seen, w, new):
    """Return the standard deviations of the field given Gaussian values of precision w, (m,)."""
    root = np.sqrt(w)
    matrix = model(seen, seen)
    matrix *= root[:, None]
    matrix *= root
    matrix[np.diag_indices_from(matrix)] += 1.0
    lower = scipy.linalg.cholesky(matrix, lower=True, overwrite_a=True, check_finite=False)
    across = root[:, None] * model(seen, new)
    white = scipy.linalg.solve_triangular(lower, across, lower=True, check_finite=False)
    ones = scipy.linalg.solve_triangular(lower, root, lower=True, check_finite=False)
    rest = 1.0 - ones @ white
    trend = rest**2 / (ones @ ones)
    return np.sqrt(model.variance - np.einsum("ij,ij->j", white, white) + trend)


def rows_of(response, length, n):
    """Yield the row of a cell."""
    new, many = (100, 500) if TINY else (2_000, 100_000)
    random = np.random.default_rng(1)
    places = random.random((n + new, 2))
    model = gx.Matern(1.0, length, 0.5)
    f = gx.simulate(model, places, seed=2, method=gx.Vecchia(40))[0]
    seen = gx.Observations(places[:n], drawn(response, f[:n], random))
    held = dict(model.parameters())
    fit = gx.fit(seen, method=gx.Vecchia(NEIGHBOURS), response=response, fixed=held)
    found = gx.predict(fit, places[n:])
    began = time.perf_counter()
    gx.predict(fit, random.random((many, 2)))
    seconds = time.perf_counter() - began
    weights = 1.0 / fit.gaussian.observations.error_variance
    ratio = np.sqrt(found.gaussian[1]) / deviations(model, places[:n], weights, places[n:])
    yield {
        "new": new,
        "within_2_percent": round(float((np.abs(ratio - 1) <= WANTED).mean()), 4),
        "smallest_ratio": round(float(ratio.min()), 4),
        "median_ratio": round(float(np.median(ratio)), 4),
        "largest_ratio": round(float(ratio.max()), 4),
        "many": many,
        "seconds_many": round(seconds, 2),
    }


def main():
    """Compare all responses and ranges."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--anew", action="store_true", help="replace the rows of an earlier run")
    parser.add_argument("--tiny", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    cells = [
        {"response": response, "length": length, "n": 400 if TINY else 10_000}
        for response in RESPONSES
        for length in (RANGES[-1:] if TINY else RANGES)
    ]
    resume(options.output / "predictive.csv", cells, rows_of, anew=options.anew)


if __name__ == "__main__":
    main()
