"""Space-time models on 90,000 observations: fits, predictions and scores.

    python experiments/space_time/run.py --data FOLDER [--sets 1 2 ...] [--tiny]

FOLDER holds 2a_1.npz, 2a_2.npz, … of the KAUST Competition 2022 (arXiv 2211.03119; arrays `train`
and `test` of x, y, t, z; github.com/TimGyger/SpaceTimeGPApprox, Data/2a). Writes
results/kaust.csv: for each set and model the seconds of fit and prediction, estimates, the
log-likelihood, and scores of the 10,000 predictions. "matern, scaled time" is a spatial model with
time as a third coordinate, times the best of three factors. --tiny uses a simulated set.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

import geomxp as gx

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import resume

HERE = Path(__file__).parent
FAMILIES = ("gneiting", "separable", "matern-space-time")
SPATIAL = "matern, scaled time"
FACTORS = (0.003, 0.01, 0.03)
"""Units of length that a unit of time counts."""

NEIGHBOURS, PREDICTED_FROM = 30, 60


def simulated():
    """Return a small set like those of the competition: train and test, of x, y, t, z."""
    random = np.random.default_rng(0)
    stations, times = random.random((40, 2)), np.arange(1.0, 11.0)
    where = np.column_stack((np.repeat(stations, 10, axis=0), np.tile(times, 40)))
    truth = gx.Gneiting(1.0, 0.2, 3.0, 0.5, 0.8, 0.6, 0.3, 0.01)
    values = gx.simulate(truth, where[:, :2], time=where[:, 2], seed=1)[0]
    whole = np.column_stack((where, values))
    return whole[:300], whole[300:]


def fitted(train, family):
    """Return the fit of a family, and the factor of time of the spatial model."""
    method = gx.Vecchia(NEIGHBOURS)
    about = {"trend": "zero", "progress": False, "raise_on_failure": False}
    if family != SPATIAL:
        seen = gx.Observations(train[:, :2], train[:, 3], time=train[:, 2])
        return gx.fit(seen, family=family, method=method, **about), None
    fits = {}
    for factor in FACTORS:
        seen = gx.Observations(train[:, :3] * [1.0, 1.0, factor], train[:, 3])
        fits[factor] = gx.fit(seen, method=method, **about)
    factor = max(fits, key=lambda one: fits[one].log_likelihood)
    return fits[factor], factor


def predicted(fit, factor, test):
    """Return the predictions of a fit at the test data."""
    if factor is None:
        new, about = test[:, :2], {"time": test[:, 2]}
    else:
        new, about = test[:, :3] * [1.0, 1.0, factor], {}
    return gx.predict(fit, new, neighbours=PREDICTED_FROM, progress=False, **about)


def kaust_rows(number, model, folder):
    """Yield the row of one set and model."""
    if folder is None:
        train, test = simulated()
    else:
        with np.load(folder / f"2a_{number}.npz") as arrays:
            train, test = arrays["train"], arrays["test"]
    start = time.perf_counter()
    fit, factor = fitted(train, model)
    middle = time.perf_counter()
    found = predicted(fit, factor, test)
    end = time.perf_counter()
    scores = gx.scores.summary(found.mean, found.variance_of_observation, test[:, 3])
    parameters = ("variance", "range", "time_range", "smoothness", "nugget")
    others = ("time_smoothness", "time_power", "interaction", "time_decay")
    values = fit.model.parameters()
    yield {
        "n": len(train),
        "seconds_of_fit": middle - start,
        "seconds_of_prediction": end - middle,
        "evaluations": fit.evaluations,
        "outcome": str(fit.outcome.ending),
        "log_likelihood": fit.log_likelihood,
        **{name: scores[name] for name in ("rmse", "mae", "crps", "coverage")},
        **{name: values.get(name, "") for name in (*parameters, *others)},
        "factor_of_time": "" if factor is None else factor,
    }


def main():
    """Read the command line and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sets", type=int, nargs="+", default=[1, 2, 4, 5, 7, 8])
    parser.add_argument("--models", nargs="+", default=[*FAMILIES, SPATIAL])
    parser.add_argument("--tiny", action="store_true", help="a small simulated set: seconds")
    parser.add_argument("--anew", action="store_true", help="replace the rows of earlier runs")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    if options.data is None and not options.tiny:
        parser.error("--data FOLDER is needed; --tiny needs none")
    sets = [0] if options.tiny else options.sets
    cells = [{"set": number, "model": model} for number in sets for model in options.models]
    folder = None if options.tiny else options.data

    def rows_of(**cell):
        return kaust_rows(cell["set"], cell["model"], folder)

    resume(options.output / "kaust.csv", cells, rows_of, anew=options.anew)


if __name__ == "__main__":
    main()
