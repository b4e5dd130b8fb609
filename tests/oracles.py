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


def numbers(strings):
    return np.array(strings, dtype=float)
