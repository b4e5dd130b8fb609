"""Default fits end at the maxima that experiments/maxima finds by an exhaustive search."""

import csv
import importlib.util
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import geomxp as gx

FOLDER = Path(__file__).parents[2] / "experiments" / "maxima"
HARD = (1, 55, 206, 490, 500, 659, 954, 1004, 1028, 1668, 2723)
"""Cases in which earlier versions ended at a lower maximum."""


@pytest.fixture(scope="module")
def study():
    spec = importlib.util.spec_from_file_location("maxima", FOLDER / "run.py")
    module = importlib.util.module_from_spec(spec)
    path = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = path
    return module


@pytest.fixture(scope="module")
def reference():
    with open(FOLDER / "results" / "reference.csv", newline="") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return {int(row["case"]): float(row["log_likelihood"]) for row in rows}


@pytest.mark.parametrize("case", HARD)
def test_a_default_fit_ends_at_the_largest_maximum(case, study, reference):
    observations, options, *_ = study.case(case)
    with warnings.catch_warnings():
        # an estimate at a limit
        warnings.simplefilter("ignore", gx.GeomxpWarning)
        fit = gx.fit(observations, progress=False, **options)
    assert fit.log_likelihood > reference[case] - 0.01


@pytest.mark.parametrize("seed", [7, pytest.param(39, id="not a maximum of Vecchia's likelihood")])
def test_a_default_fit_is_not_below_a_search_from_the_truth(seed):
    places = np.random.default_rng(seed).random((500, 2))
    truth = gx.Matern(0.12, 0.05, 0.5, 0.9)
    seen = gx.Observations(places, gx.simulate(truth, places, seed=seed)[0])
    options = {"fixed": {"smoothness": 0.5}, "progress": False}
    near = {name: truth.parameters()[name] for name in ("variance", "range", "nugget")}
    known = gx.fit(seen, start=near, **options)
    assert gx.fit(seen, **options).log_likelihood > known.log_likelihood - 1e-6
