"""Cokriging beside gstat's, for a given linear model of coregionalization."""

import json
from pathlib import Path

import numpy as np
import pytest

import geomxp as gx

KNOWN = json.loads((Path(__file__).parents[1] / "references" / "cokriging.json").read_text("utf-8"))
MODEL = gx.Coregionalization((1.0, 0.6, 0.9), (0.3, 0.1), 0.5, (0.1, 0.2))
MEANS = (0.1, 2.0)


def places_of(table):
    return np.column_stack((table["x"], table["y"]))


def observations(values):
    """The data of gstat's cokriging; `values` are those of both variables."""
    tables = KNOWN["first"], KNOWN["second"]
    kinds = np.repeat([0, 1], [len(table["z"]) for table in tables])
    return gx.Observations(
        np.vstack([*map(places_of, tables)]), np.concatenate(values), variable=kinds
    )


@pytest.mark.parametrize("method", [gx.Exact(), gx.Exact(tile=32), gx.Vecchia(89)], ids=str)
def test_simple_cokriging_is_gstats(method):
    values = [
        np.array(KNOWN[name]["z"]) - mean
        for name, mean in zip(("first", "second"), MEANS, strict=True)
    ]
    seen = observations(values)
    fit = gx.fit(seen, MODEL, method, fixed=tuple(MODEL.parameters()), trend="zero")
    for k, letter in enumerate("ab"):
        found = gx.predict(
            fit, places_of(KNOWN["new"]), variable=k, neighbours=90 if method.approximate else None
        )
        known = KNOWN["simple"]
        np.testing.assert_allclose(found.mean + MEANS[k], known[f"{letter}.pred"], rtol=1e-10)
        # gstat's variance is that of an observation
        np.testing.assert_allclose(
            found.variance_of_observation, known[f"{letter}.var"], rtol=1e-10
        )
