"""Seconds and results of whole fits, beside GPBoost's, and how far from the maximum they end.

    python experiments/responses/fits.py --python PEERS/bin/python [--tiny]

PEERS is an environment with gpboost (pip install gpboost). fits.csv: exponential covariance of
variance 1 and range 0.05 in the unit square, mean 0.3, 20 neighbours, one thread, both programs
with the same places, neighbours, values and start, in turns on one core. geomxp's seconds include
standard errors; those of GPBoost are without. `log_likelihood` is geomxp's reported value, with
the same random vectors, at the estimates of each. Without --python only geomxp is timed.

maximizers.csv: the estimates of a fit, which maximizes a smooth approximation of the reported
value, beside the maximizer of the reported value, which is exact at these sizes. It is found by
BOBYQA without derivatives.
"""

import argparse
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["NUMBA_NUM_THREADS"] = "1"

import nlopt
import numpy as np
from speed import NEIGHBOURS, RESPONSES, Theirs

import geomxp as gx
from geomxp.covariance.responses import Data
from geomxp.errors import NotPositiveDefinite
from geomxp.likelihood.laplace import VecchiaLaplace
from geomxp.prediction.simulate import lay_out
from geomxp.vecchia.factor import Graph

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import TINY, resume

HERE = Path(__file__).parent
MODEL, MEAN = gx.Matern(1.0, 0.05, 0.5), 0.3
START = {"variance": 1.0, "range": 0.1}
SIZES, FIELDS = ((300,), 1) if TINY else ((5_000, 10_000), 1)
METHODS = {"cholesky": "lbfgs", "pivoted_cholesky": "lbfgs", "vadu": "lbfgs"}
"""GPBoost's factors, and preconditioners of its iterative method, with an optimizer."""

CORRECTION_ERROR, REPEATS = 0.01, 3
FAR = 1.0
"""A fit whose log-likelihood is so much below the best one counts as a failure."""

SMALL, SMALL_FIELDS = ((200,), 1) if TINY else ((1_000, 2_000, 3_000), 3)
STEP, TOLERANCE = 0.05, 1e-4
"""First step of BOBYQA, and its last one, in logarithms of parameters."""


def problem(n, response, seed):
    """Return places in the order maximin, and values about a simulated field."""
    places = lay_out(n, "uniform", seed)
    graph = Graph.of(places, "maximin", NEIGHBOURS)
    places = np.ascontiguousarray(places[graph.tree.order[graph.sequence]])
    field = gx.simulate(MODEL, places, seed=seed, method=gx.Vecchia(30))[0]
    random = np.random.default_rng(seed)
    return places, response.draw(Data(np.zeros(n)), MEAN + field, random)


def fitted(places, values, name):
    """Return geomxp's fit."""
    return gx.fit(
        gx.Observations(places, values),
        method=gx.Vecchia(NEIGHBOURS, "given"),
        response=name,
        fixed={"smoothness": 0.5, "nugget": 0.0},
        start=START,
        progress=False,
        raise_on_failure=False,
    )


class Reported:
    """The reported log-likelihood at given parameters and a mean."""

    def __init__(self, places, values, response):
        n = len(values)
        seen, self._response = gx.Observations(places, np.zeros(n)), response
        self._laplace = VecchiaLaplace(
            seen, Data(values), np.ones((n, 1)), None, NEIGHBOURS, "given"
        )

    def __call__(self, variance, length, mean):
        """Return the value."""
        mode = self._laplace.mode(gx.Matern(variance, length, 0.5), self._response, [mean])
        return mode.log_likelihood + mode.correction(CORRECTION_ERROR)[0]


def rows_of(n, response, seed, python, folder):
    """Yield a row for geomxp and one for each method of GPBoost."""
    kind, likelihood = RESPONSES[response]
    places, values = problem(n, kind, seed)
    # compiled
    fitted(places, values, response)
    ours = []

    def once():
        begun = time.perf_counter()
        fit = fitted(places, values, response)
        ours.append(time.perf_counter() - begun)
        return fit

    theirs, version = {}, ""
    for _ in range(REPEATS):
        fit = once()
    if python is not None:
        worker = Theirs(python, places, values, likelihood, folder)
        for method, optimizer in METHODS.items():
            theirs[method] = worker.ask(method, START["variance"], START["range"], optimizer)
            once()
        version = worker.version
        worker.close()
    reported, middle = Reported(places, values, kind), float(np.median(ours))
    mean = float(fit.coefficients[0])
    best = reported(fit.model.variance, fit.model.range, mean)
    yield {
        "package": "geomxp",
        "method": "",
        "optimizer": "scoring",
        "seconds": round(middle, 3),
        "times_as_long": 1.0,
        "evaluations": fit.evaluations,
        "outcome": str(fit.outcome.ending),
        "variance": round(fit.model.variance, 5),
        "range": round(fit.model.range, 6),
        "mean": round(mean, 5),
        "log_likelihood": round(best, 4),
        "below_geomxp": 0.0,
        "own_log_likelihood": round(fit.log_likelihood, 4),
    }
    for method, found in theirs.items():
        failure, value = found.get("failure", ""), float("nan")
        variance, length = found.get("parameters", (np.nan,) * 2)
        (mean,) = found.get("coefficients", (np.nan,))
        if not failure and np.isfinite([variance, length, mean]).all():
            value = reported(variance, length, mean)
        if not failure and not value > best - FAR:
            failure = "far below"
        yield {
            "package": f"gpboost {version}",
            "method": method,
            "optimizer": METHODS[method],
            "seconds": round(found["seconds"], 3),
            "times_as_long": round(found["seconds"] / middle, 2),
            "evaluations": found.get("iterations", ""),
            "outcome": failure,
            "variance": round(variance, 5),
            "range": round(length, 6),
            "mean": round(mean, 5),
            "log_likelihood": round(value, 4),
            "below_geomxp": round(best - value, 4),
            "own_log_likelihood": round(found.get("log_likelihood", float("nan")), 4),
        }


def maximizer_rows_of(n, response, seed):
    """Yield the row of a field."""
    kind, _ = RESPONSES[response]
    places, values = problem(n, kind, seed)
    fit = fitted(places, values, response)
    reported = Reported(places, values, kind)
    start = np.r_[np.log([fit.model.variance, fit.model.range]), fit.coefficients]

    def value(x, _):
        try:
            return reported(np.exp(x[0]), np.exp(x[1]), x[2])
        except NotPositiveDefinite:
            return -1e300

    search = nlopt.opt(nlopt.LN_BOBYQA, 3)
    search.set_max_objective(value)
    search.set_initial_step(STEP)
    search.set_xtol_abs(TOLERANCE)
    search.set_maxeval(30 if TINY else 300)
    found = search.optimize(start)
    first, last = np.r_[np.exp(start[:2]), start[2]], np.r_[np.exp(found[:2]), found[2]]
    errors = [fit.standard_errors[name] for name in ("variance", "range")]
    errors = np.array([*errors, float(fit.coefficient_errors[0])])
    distances = np.abs(last - first) / errors
    yield {
        "outcome": str(fit.outcome.ending),
        "variance": round(first[0], 6),
        "range": round(first[1], 6),
        "mean": round(first[2], 6),
        "variance_error": round(errors[0], 6),
        "range_error": round(errors[1], 7),
        "mean_error": round(errors[2], 6),
        "variance_reported": round(last[0], 6),
        "range_reported": round(last[1], 6),
        "mean_reported": round(last[2], 6),
        "gain": round(search.last_optimum_value() - value(start, None), 6),
        "correction": round(reported(*first) - _uncorrected(reported, *first), 4),
        "distance_variance": round(distances[0], 5),
        "distance_range": round(distances[1], 5),
        "distance_mean": round(distances[2], 5),
        "farthest": round(distances.max(), 5),
    }


def _uncorrected(reported, variance, length, mean):
    mode = reported._laplace.mode(gx.Matern(variance, length, 0.5), reported._response, [mean])
    return mode.log_likelihood


def main():
    """Measure all sizes, responses and fields."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", help="of an environment with gpboost")
    parser.add_argument("--anew", action="store_true", help="replace the rows of an earlier run")
    parser.add_argument("--tiny", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()

    def cells(sizes, count):
        return [
            {"n": n, "response": name, "seed": seed}
            for seed in range(1, count + 1)
            for n in sizes
            for name in RESPONSES
        ]

    with tempfile.TemporaryDirectory() as folder:
        rows = partial(rows_of, python=options.python, folder=folder)
        resume(options.output / "fits.csv", cells(SIZES, FIELDS), rows, anew=options.anew)
    small = cells(SMALL, SMALL_FIELDS)
    resume(options.output / "maximizers.csv", small, maximizer_rows_of, anew=options.anew)


if __name__ == "__main__":
    main()
