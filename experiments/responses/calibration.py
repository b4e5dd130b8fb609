"""Bias of estimates and coverage of intervals of responses, on simulated fields.

    python experiments/responses/calibration.py [--tiny]

400 places in the unit square; exponential covariance of variance 0.8 and range 0.12, nugget 0 and
the smoothness held. Poisson, binomial with 1 to 10 trials, negative binomial of size 2, gamma of
shape 2, and Gaussian values of error variance 0.1 of which 30 % are below a limit; 200 fields each.

calibration.csv has a row for each field and response. `kept_<parameter>` says whether
2(ℓ̂ - ℓ) ≤ 3.84 for a fit with that parameter held at the truth; `kept_all` compares with all of
them held, and χ² of so many. Predictions are at 50 new places: shares of new observations, and of
the means of new observations (the field, after the inverse of the link), within their 95 %
intervals; `pit` is the share of randomized PIT values of the observations between 0.025 and 0.975.

profiles.csv has the profile intervals of a few fields: at a finite end ℓ is 1.92 below its maximum,
by a fit held there.
"""

import argparse
import os
import sys
import time
import warnings
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["NUMBA_NUM_THREADS"] = "1"

import numpy as np
from scipy.special import chdtri

import geomxp as gx
from geomxp.covariance import responses
from geomxp.covariance.responses import Data

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import QUIET, TINY, resume

HERE = Path(__file__).parent
N, NEW, FIELDS, PROFILES = (60, 10, 1, 1) if TINY else (400, 50, 200, 5)
FIELD = gx.Matern(0.8, 0.12, 0.5)
HELD = {"smoothness": 0.5, "nugget": 0.0}
LEVEL, CENSORED_SHARE, MOST_TRIALS = 0.95, 0.3, 10
METHOD = gx.Vecchia(30)

CASES = {
    "poisson": (responses.Poisson(), 0.5),
    "binomial": (responses.Binomial(), 0.0),
    "negative-binomial": (responses.NegativeBinomial(2.0), 1.0),
    "gamma": (responses.Gamma(2.0), 0.5),
    "censored": (responses.Censored(0.1), 0.0),
}
"""Responses with their true parameters, and the mean of η."""


def problem(response, seed):
    """Return columns of the observations, new places, the field there and its new values."""
    kind, mean = CASES[response]
    random = np.random.default_rng([seed, list(CASES).index(response)])
    places = random.random((N + NEW, 2))
    eta = mean + gx.simulate(FIELD, places, seed=int(random.integers(2**31)))[0]
    trials = None
    if response == "binomial":
        trials = random.integers(1, MOST_TRIALS + 1, N + NEW).astype(float)
    values = kind.draw(Data(np.zeros(N + NEW), trials=trials), eta, random)
    seen, columns = values[:N], {}
    if trials is not None:
        columns["trials"] = trials[:N]
    if response == "censored":
        limit = np.quantile(seen, CENSORED_SHARE)
        columns["lower"] = np.where(seen < limit, -np.inf, seen)
        seen = np.maximum(seen, limit)
        columns["upper"] = seen
    new_trials = None if trials is None else trials[N:]
    return (places[:N], seen, columns), (places[N:], eta[N:], values[N:], new_trials)


def truth_of(response):
    """Return the true parameters that are estimated, and the mean of η."""
    kind, mean = CASES[response]
    own = dict(kind.parameters())
    return {"variance": FIELD.variance, "range": FIELD.range} | own, mean


def fitted(response, known, held=(), mean=None, near=None):
    """Return a fit with parameters held, by name and value; with a mean that one, too.

    The search starts at the estimates of another fit, if it is given.
    """
    places, values, columns = known
    if mean is not None:
        columns = columns | {"offset": np.full(N, mean)}
    held = HELD | dict(held)
    start = {} if near is None else near.model.parameters()
    with warnings.catch_warnings():
        # an end at a limit is a result
        warnings.simplefilter("ignore", gx.GeomxpWarning)
        return gx.fit(
            gx.Observations(places, values, **columns),
            method=METHOD,
            response=type(CASES[response][0])(),
            fixed=held,
            start={name: value for name, value in start.items() if name not in held},
            trend="constant" if mean is None else "zero",
            **QUIET,
        )


def statistics(response, known, best):
    """Return 2(ℓ̂ - ℓ) with each parameter held at the truth, the mean, and all."""
    truth, mean = truth_of(response)

    def above(**options):
        held = fitted(response, known, near=best, **options)
        return 2 * (best.log_likelihood - held.log_likelihood)

    found = {name: above(held={name: value}) for name, value in truth.items()}
    return found | {"mean": above(mean=mean), "all": above(held=truth, mean=mean)}


def rows_of(response, seed):
    """Yield the row of a field."""
    (kind, _), (known, new) = CASES[response], problem(response, seed)
    begun = time.perf_counter()
    best = fitted(response, known)
    seconds = time.perf_counter() - begun
    own = next(iter(kind.parameters()), None)
    estimates = best.model.parameters()
    twice = statistics(response, known, best)
    row = {
        "outcome": str(best.outcome.ending),
        "evaluations": best.evaluations,
        "seconds": round(seconds, 3),
    }
    for label, name in (("variance", "variance"), ("range", "range"), ("own", own), ("mean", None)):
        if label == "mean":
            estimate, name = float(best.coefficients[0]), "mean"
        else:
            estimate = estimates[name] if name else ""
        row[label] = round(estimate, 6) if name else ""
        row[f"twice_{label}"] = round(twice[name], 4) if name else ""
        row[f"kept_{label}"] = int(twice[name] <= chdtri(1, 1 - LEVEL)) if name else ""
    row["twice_all"] = round(twice["all"], 4)
    row["kept_all"] = int(twice["all"] <= chdtri(len(twice) - 1, 1 - LEVEL))
    yield row | _covered(best, new, seed)


def _covered(fit, new, seed):
    """Return the shares of new values and of their means within intervals."""
    places, eta, values, trials = new
    columns = {} if trials is None else {"trials": trials}
    prediction = gx.predict(fit, places, progress=False, **columns)
    low, high = prediction.interval(LEVEL, of="observation")
    observed = (low <= values) & (values <= high)
    low, high = prediction.interval(LEVEL, of="field")
    mean = fit.model.response.mean(Data(values, trials=trials), eta)
    if trials is not None:
        # the field is a probability
        mean = mean / trials
    of_field = (low <= mean) & (mean <= high)
    pit = _pit(fit, prediction, values, np.random.default_rng(seed))
    tail = (1 - LEVEL) / 2
    return {
        "observations": round(float(observed.mean()), 4),
        "pit": round(float(((pit > tail) & (pit < 1 - tail)).mean()), 4),
        "field": round(float(of_field.mean()), 4),
    }


def _pit(fit, prediction, values, random):
    """Return the randomized PIT of values."""
    if fit.model.response.normal_noise is not None:
        from scipy.special import ndtr

        return ndtr((values - prediction.mean) / np.sqrt(prediction.variance_of_observation))
    return prediction._new.pit(values, random)


def profiles_of(response, seed):
    """Yield a row for each parameter's profile interval."""
    known, _ = problem(response, seed)
    best = fitted(response, known)
    truth, _ = truth_of(response)
    begun = time.perf_counter()
    try:
        found, why = best.confidence_intervals(LEVEL, "profile"), ""
    except gx.GeomxpError as error:
        found, why = {}, str(error)
    seconds = time.perf_counter() - begun
    for name, value in truth.items():
        ends = found.get(name, (None, None))
        row = {
            "parameter": name,
            "estimate": round(best.model.parameters()[name], 6),
            "covers": int(ends[0] <= value <= ends[1]) if name in found else "",
            "seconds": round(seconds, 3),
            "why_not": why,
        }
        for label, end in zip(("lower", "upper"), ends, strict=True):
            row[label] = "" if end is None else f"{end:.6g}"
            row[f"drop_at_{label}"] = ""
            if end is not None and 0 < end < np.inf:
                held = fitted(response, known, held={name: end}, near=best)
                row[f"drop_at_{label}"] = round(best.log_likelihood - held.log_likelihood, 4)
        yield row


def main():
    """Measure all responses and fields."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--anew", action="store_true", help="replace the rows of an earlier run")
    parser.add_argument("--tiny", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    for name, rows, count in (
        ("profiles", profiles_of, PROFILES),
        ("calibration", rows_of, FIELDS),
    ):
        cells = [
            {"response": response, "seed": seed}
            for seed in range(1, count + 1)
            for response in CASES
        ]
        resume(options.output / f"{name}.csv", cells, rows, anew=options.anew)


if __name__ == "__main__":
    main()
