"""Censored values beside common substitutions: estimates, predictions and the exact likelihood.

    python experiments/responses/censored.py [--tiny]

Logarithms of concentrations at 200 places in the unit square: exponential covariance of variance 1
and range 0.15, mean 0, error variance 0.1, of which a share is below one detection limit. 50 fields
for each share. `censored` is the response of that name; `limit`, `half` and `drop` are Gaussian
fits to the logarithms of the limit, of half of the limit, or without these places. Predictions are
at 100 new places: of the field (root mean squared error and coverage) and of new logarithms (CRPS
and coverage). Writes results/censored.csv.

results/censored_exact.csv has Laplace's log-likelihood beside the integral, at the maximizer of
Laplace's, for a few fields.
"""

import argparse
import os
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["NUMBA_NUM_THREADS"] = "1"

import numpy as np
from scipy.special import ndtr

import geomxp as gx
from geomxp.likelihood.censored import CensoredEvaluator
from geomxp.likelihood.latent import LaplaceEvaluator

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import QUIET, TINY, resume

HERE = Path(__file__).parent
N, NEW, FIELDS, EXACT_FIELDS = (60, 10, 1, 1) if TINY else (200, 100, 50, 5)
MODEL, ERROR_VARIANCE, LEVEL = gx.Matern(1.0, 0.15, 0.5), 0.1, 0.95
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5)
METHOD = gx.Exact()
HELD = {"smoothness": 0.5}


def problem(share, seed):
    """Return places, logarithms, the limit, new places, the field there and new logarithms."""
    random = np.random.default_rng(seed)
    places = random.random((N + NEW, 2))
    field = gx.simulate(MODEL, places, seed=seed)[0]
    values = field + np.sqrt(ERROR_VARIANCE) * random.standard_normal(N + NEW)
    limit = np.quantile(values[:N], share)
    return places[:N], values[:N], limit, places[N:], field[N:], values[N:]


def of_censored(places, values, limit):
    """Return observations with a limit."""
    below = values < limit
    shown = np.where(below, limit, values)
    return gx.Observations(places, shown, lower=np.where(below, -np.inf, values), upper=shown)


TREATMENTS = {
    "censored": of_censored,
    "limit": lambda places, values, limit: gx.Observations(places, np.maximum(values, limit)),
    "half": lambda places, values, limit: gx.Observations(
        places, np.where(values < limit, limit - np.log(2.0), values)
    ),
    "drop": lambda places, values, limit: gx.Observations(
        places[values >= limit], values[values >= limit]
    ),
}


def fitted(treatment, places, values, limit):
    """Return the fit of a treatment."""
    seen = TREATMENTS[treatment](places, values, limit)
    options, held = {}, HELD
    if treatment == "censored":
        options, held = {"response": "censored"}, HELD | {"nugget": 0.0}
    with warnings.catch_warnings():
        # an end at a limit is a result
        warnings.simplefilter("ignore", gx.GeomxpWarning)
        return gx.fit(seen, method=METHOD, fixed=held, **options, **QUIET)


def rows_of(share, seed, treatment):
    """Yield the row of a treatment of a field."""
    *known, new, field, values = problem(share, seed)
    begun = time.perf_counter()
    fit = fitted(treatment, *known)
    seconds = time.perf_counter() - begun
    parameters = fit.model.parameters()
    prediction = gx.predict(fit, new, progress=False)
    mean, variance = prediction.mean, prediction.variance_of_observation
    yield {
        "outcome": str(fit.outcome.ending),
        "seconds": round(seconds, 4),
        "variance": round(parameters["variance"], 5),
        "range": round(parameters["range"], 5),
        "error_variance": round(parameters.get("error_variance", parameters["nugget"]), 5),
        "mean": round(float(fit.coefficients[0]), 5),
        "rmse": round(float(np.sqrt(np.mean((mean - field) ** 2))), 5),
        "bias": round(float(np.mean(mean - field)), 5),
        "crps": round(float(np.mean(crps(values, mean, np.sqrt(variance)))), 5),
        "covered_field": round(covered(field, mean, prediction.variance), 4),
        "covered_values": round(covered(values, mean, variance), 4),
    }


def crps(values, mean, sd):
    """Return the continuous ranked probability score of normal predictions."""
    z = (values - mean) / sd
    density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    return sd * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / np.sqrt(np.pi))


def covered(values, mean, variance):
    """Return the share of values within 95 % intervals."""
    return float(np.mean(np.abs(ndtr((values - mean) / np.sqrt(variance)) - 0.5) <= LEVEL / 2))


def exact_rows_of(share, seed):
    """Yield Laplace's log-likelihood and the exact one, at the maximizer of Laplace's."""
    places, values, limit, *_ = problem(share, seed)
    fit = fitted("censored", places, values, limit)
    design, found = np.ones((N, 1)), {}
    for integral, kind in (("laplace", LaplaceEvaluator), ("exact", CensoredEvaluator)):
        model = replace(fit.model, response=replace(fit.model.response, integral=integral))
        evaluator = kind(fit.observations, design, METHOD, model.response)
        if integral == "exact":
            # as many points as a result has
            evaluator._points = 1 << 14
        begun = time.perf_counter()
        found[integral] = evaluator.at(model, fit.coefficients)
        seconds = time.perf_counter() - begun
    yield {
        "censored": int(fit.observations.censored.sum()),
        "laplace": round(found["laplace"].log_likelihood, 6),
        "exact": round(found["exact"].log_likelihood, 6),
        "standard_error": float(f"{found['exact'].error:.2g}"),
        "laplace_minus_exact": round(
            found["laplace"].log_likelihood - found["exact"].log_likelihood, 6
        ),
        "seconds_exact": round(seconds, 3),
    }


def main():
    """Measure all shares, fields and treatments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--anew", action="store_true", help="replace the rows of an earlier run")
    parser.add_argument("--tiny", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    fields = range(1, FIELDS + 1)
    cells = [
        {"share": share, "seed": seed, "treatment": treatment}
        for share in SHARES
        for seed in fields
        for treatment in TREATMENTS
    ]
    resume(options.output / "censored.csv", cells, rows_of, anew=options.anew)
    cells = [{"share": share, "seed": seed} for share in SHARES for seed in fields[:EXACT_FIELDS]]
    resume(options.output / "censored_exact.csv", cells, exact_rows_of, anew=options.anew)


if __name__ == "__main__":
    main()
