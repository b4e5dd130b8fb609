"""Fit the KAUST Competition 2021 fields, whose models are known, and predict their test places.

    python experiments/kaust/run.py [G1 G2 …] --data FOLDER [--tiny]

FOLDER holds G1.npz … of https://github.com/ecrc/exageostatR, data/90_10, as arrays `train` (90,000)
and `test` (10,000) of (x, y, z). For each field and way to fit, results/fields.csv gets a row, as
soon as it is there: estimates with standard errors beside the truth; MLOE, MMOM and RMOM of the
estimated model; scores of the test values, all predicted from the 120 nearest training places;
seconds. The first row of a field has the true model in place of an estimate. With --tiny, or
without --data, a small simulated field stands in.
"""

import argparse
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd

import geomxp as gx
from geomxp.prediction.simulate import lay_out

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import write_rows

HERE = Path(__file__).parent
NAMES = ("variance", "range", "smoothness", "nugget")
NEIGHBOURS = 120
"""Training places from which a test place is predicted, whatever the fit."""
TARGETS = 1000
"""Test places at which models are compared."""


def truth():
    """Return the known models by field."""
    frame = pd.read_csv(HERE / "true_model.csv", comment="#")
    return {row.field: gx.Matern(*(row[name] for name in NAMES)) for _, row in frame.iterrows()}


def load(field, folder):
    """Return training and test arrays, (n, 3) each."""
    with np.load(folder / f"{field}.npz", allow_pickle=False) as archive:
        return archive["train"], archive["test"]


def simulated(model, n=900, test=100):
    """Return training and test arrays of a small field of this model."""
    places = lay_out(n, "jittered", seed=1)
    table = np.column_stack((places, gx.simulate(model, places, seed=2)[0]))
    order = np.random.default_rng(3).permutation(n)
    return table[order[test:]], table[order[:test]]


def observations(table):
    """Return the observations of an array."""
    return gx.Observations(table[:, :2], table[:, 2])


def fitted(way, train):
    """Fit all four parameters; return the fit."""
    name, number = way
    if name == "Vecchia":
        seen, method = observations(train), gx.Vecchia(number)
    else:
        rows = np.random.default_rng(0).choice(len(train), number, replace=False)
        seen, method = observations(train[rows]), gx.Exact()
    return gx.fit(seen, None, method, trend="zero", progress=False, raise_on_failure=False)


def row(field, method, model, true, train, test, fit=None):
    """Predict the test places with a model, compare it with the true one; return a row."""
    # nothing is estimated here: the neighbours of its likelihood do not matter
    given = gx.fit(observations(train), model, gx.Vecchia(1), fixed=NAMES, trend="zero")
    start = time.perf_counter()
    there = gx.predict(given, test[:, :2], neighbours=NEIGHBOURS)
    seconds = time.perf_counter() - start
    scores = gx.scores.summary(there.mean, there.variance_of_observation, test[:, 2])
    apart = gx.mloe_mmom(
        true, model, train[:, :2], test[:TARGETS, :2], neighbours=min(NEIGHBOURS, len(train) - 1)
    ).to_dict()
    errors = {} if fit is None else fit.standard_errors
    return {
        "field": field,
        "method": method,
        "n": len(fit.observations) if fit else "",
        **model.parameters(),
        **{f"error_{name}": errors.get(name) for name in NAMES},
        **{f"true_{name}": value for name, value in true.parameters().items()},
        **{name: apart[name] for name in ("mloe", "mmom", "rmom")},
        **{name: scores[name] for name in ("rmse", "mae", "crps", "coverage")},
        "mean_squared_standardised_error": scores["mean_squared_standardised_error"],
        "theoretical_rmse": float(np.sqrt(there.variance_of_observation.mean())),
        "log_likelihood": fit.log_likelihood if fit else "",
        "outcome": str(fit.outcome.ending) if fit else "",
        "evaluations": fit.evaluations if fit else "",
        "seconds_fit": round(fit.seconds, 2) if fit else "",
        "seconds_predict": round(seconds, 2),
    }


def main():
    known = truth()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("fields", nargs="*", help=" ".join(known))
    parser.add_argument("--data", type=Path, help="folder of the data files")
    parser.add_argument("--tiny", action="store_true", help="seconds instead of an hour")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    ways = [("Vecchia", 30), ("Vecchia", 60), ("Exact", 4000)]
    small = options.tiny or options.data is None
    if small:
        known = {"simulated": gx.Matern(1.5, 0.1, 0.8, 0.1)}
        ways = [("Vecchia", 10), ("Exact", 300)]
    rows = []
    for field in options.fields or known:
        true = known[field]
        train, test = simulated(true) if small else load(field, options.data)
        rows.append(row(field, "true model", true, true, train, test))
        for way in ways:
            fit = fitted(way, train)
            method = f"{way[0]}({way[1]})" if way[0] == "Vecchia" else f"Exact, {way[1]} places"
            rows.append(row(field, method, fit.model, true, train, test, fit))
            print(*(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
            write_rows(options.output / "fields.csv", rows)


if __name__ == "__main__":
    main()
