"""Cokriging beside gstat's, for a given linear model of coregionalization."""

import json
from dataclasses import replace
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


@pytest.mark.parametrize("kind", ["ordinary", "correlated"])
def test_ordinary_cokriging_and_its_covariances_are_gstats(kind):
    seen = observations([KNOWN["first"]["z"], KNOWN["second"]["z"]])
    shared = 0.1 if kind == "correlated" else 0.0
    model = replace(MODEL, nugget_covariance=shared) if shared else MODEL
    fit = gx.fit(seen, model, fixed=tuple(model.parameters()))
    known, new = KNOWN[kind], places_of(KNOWN["new"])
    for k, letter in enumerate("ab"):
        found = gx.predict(fit, new, variable=k)
        np.testing.assert_allclose(found.mean, known[f"{letter}.pred"], rtol=1e-10)
        np.testing.assert_allclose(
            found.variance_of_observation, known[f"{letter}.var"], rtol=1e-10
        )
    errors = gx.prediction_covariance(fit, new)
    both = gx.predict(fit, new)
    np.testing.assert_allclose(np.diag(errors), both.variance, rtol=1e-9)
    # rows are both variables at the first place, then at the second
    cross = errors[np.arange(0, 24, 2), np.arange(1, 24, 2)]
    np.testing.assert_allclose(cross + shared, known["cov.a.b"], rtol=1e-9)
    assert np.linalg.eigvalsh(errors).min() > 0


def test_covariances_of_predictions_are_those_of_conditional_draws():
    seen = observations([KNOWN["first"]["z"], KNOWN["second"]["z"]])
    fit = gx.fit(seen, MODEL, fixed=tuple(MODEL.parameters()), trend="zero")
    new = places_of(KNOWN["new"])[:3]
    errors = gx.prediction_covariance(fit, new, variable=1)
    draws = gx.simulate(fit, new, variable=1, draws=20_000, seed=3)
    size = np.sqrt(np.outer(np.diag(errors), np.diag(errors)) / 20_000)
    assert (np.abs(np.cov(draws.T) - errors) < 6 * size).all()


def test_covariances_of_predictions_need_an_exact_fit():
    seen = observations([KNOWN["first"]["z"], KNOWN["second"]["z"]])
    near = gx.fit(seen, MODEL, gx.Vecchia(10), fixed=tuple(MODEL.parameters()))
    with pytest.raises(gx.InvalidInput, match="no joint distribution"):
        gx.prediction_covariance(near, [[0.5, 0.5]])
    one = gx.Observations(seen.locations[:40], np.exp(seen.values[:40]))
    logs = gx.fit(one, transform="log", fixed={"smoothness": 0.5})
    with pytest.raises(gx.InvalidInput, match="no covariance matrix in closed form"):
        gx.prediction_covariance(logs, [[0.5, 0.5]])
