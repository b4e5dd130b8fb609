"""Reference numbers from elsewhere, and the observations that they are about."""

import json
from pathlib import Path

import numpy as np

import geomxp as gx

REFERENCES = Path(__file__).parent / "references"


def reference(name):
    return json.loads((REFERENCES / f"{name}.json").read_text())


SPATIAL_ML = reference("spatial_ml")
DATASETS = {
    "meuse_logzinc": {"name": "meuse"},
    "jura_co": {"name": "jura"},
    "ozone2_day16": {"name": "ozone", "metric": "great-circle"},
}
TRENDS = {None: "zero", "const": "constant", "const+sqrtdist": "covariates"}


def observations_of(case):
    """The observations of a case in spatial_ml.json, less its known mean."""
    metric = case.get("metric")
    metric = metric and metric.replace("_", "-")
    if case["dataset"] == "s100":
        seen = gx.Observations(SPATIAL_ML["s100"]["coords"], SPATIAL_ML["s100"]["y"])
    else:
        entry = DATASETS[case["dataset"]]
        seen = gx.datasets.load(entry["name"], metric=metric or entry.get("metric"))
    return gx.Observations(
        seen.locations, seen.values - (case.get("known_mean") or 0.0), seen.covariates, seen.metric
    )


def name_of(case):
    """What pytest calls a case."""
    if "id" in case:
        return case["id"]
    smoothness = case["nu_fixed"] or "free"
    nugget = "nugget" if case["nugget_estimated"] else "no_nugget"
    return f"{case['dataset']}-{case['X']}-{case['method']}-{smoothness}-{nugget}"


def model_of(case):
    """The model at a case's parameters, which are numbers or strings of digits."""
    return gx.Matern(*(float(case[name]) for name in ("sigma2", "range", "nu", "nugget")))


def numbers(strings):
    return np.array(strings, dtype=float)


def rounding(n):
    """What sums over n places leave of FP64's digits: 32 n u, relative; none here loses 200 u."""
    return 16 * n * np.finfo(float).eps
