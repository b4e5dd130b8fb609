"""Which response values need by their kind."""

import numpy as np
import pytest

import geomxp as gx
from geomxp.prediction.screening import suggested_response

N = 120
RANDOM = np.random.default_rng(1)
PLACES = RANDOM.random((N, 2))
COUNTS = RANDOM.poisson(2.0, N).astype(float)
AMOUNTS = RANDOM.gamma(2.0, 1.0, N)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        (COUNTS, "poisson"),
        (RANDOM.negative_binomial(0.3, 0.02, N).astype(float), "negative-binomial"),
        ((COUNTS > 1).astype(float), "bernoulli"),
        (np.where(np.arange(N) % 5, AMOUNTS, 0.0), "tweedie"),
        (np.where(np.arange(N) % 5, 0.0, AMOUNTS), "hurdle"),
        (RANDOM.beta(2.0, 3.0, N), "beta"),
        (AMOUNTS, None),
        (RANDOM.standard_normal(N), None),
        (100.0 + COUNTS, None),
        (np.round(AMOUNTS, 1), None),
        (0.5 + 0.01 * RANDOM.random(N), None),
        (np.ones(N), None),
    ],
)
def test_values_tell_their_response(values, name):
    found = suggested_response(gx.Observations(PLACES, values))
    assert (None if found is None else found.name) == name


def test_columns_tell_the_response():
    trials = np.full(N, 9.0)
    found = suggested_response(gx.Observations(PLACES, COUNTS.clip(0, 9), trials=trials))
    assert found.name == "binomial"
    lower = np.where(AMOUNTS < 1, -np.inf, AMOUNTS)
    censored = gx.Observations(PLACES, np.maximum(AMOUNTS, 1), lower=lower, upper=AMOUNTS.clip(1))
    assert suggested_response(censored).name == "censored"
    # counts of very different efforts are not clumped
    exposure = np.where(np.arange(N) % 2, 1.0, 200.0)
    values = RANDOM.poisson(exposure).astype(float)
    assert suggested_response(gx.Observations(PLACES, values)).name == "negative-binomial"
    effort = gx.Observations(PLACES, values, exposure=exposure)
    assert suggested_response(effort).name == "poisson"


def test_an_exploration_names_the_response_and_the_command_has_it(tmp_path):
    path = tmp_path / "birds.csv"
    rows = [f"{x},{y},{z:g}" for (x, y), z in zip(PLACES, COUNTS, strict=True)]
    path.write_text("\n".join(["x,y,birds", *rows]) + "\n")
    seen = gx.read_table(path, values="birds")
    found = gx.explore(seen)
    assert "--response poisson" in found.command
    assert "response='poisson'" in found.call
    (said,) = (one for one in found.findings if one.topic == "values")
    assert said.caution
    assert "counts" in said.text
    assert len(found.outliers) == 0
    assert found.to_dict()["response"] == "poisson"


@pytest.mark.filterwarnings("ignore:moments that do not exist")
@pytest.mark.parametrize("transform", ["log", "boxcox"])
def test_limits_are_transformed_with_the_values(transform):
    f = gx.simulate(gx.Matern(0.8, 0.2, 0.5, 0.05), PLACES, seed=3)[0]
    values = np.exp(f)
    limit = np.quantile(values, 0.3)
    upper = np.maximum(values, limit)
    lower = np.where(values < limit, 0.0, values)
    seen = gx.Observations(PLACES, upper, lower=lower, upper=upper)
    fit = gx.fit(seen, response="censored", transform=transform, fixed={"smoothness": 0.5})
    assert fit.outcome.good
    found = gx.predict(fit, [[0.5, 0.5]])
    assert found.median[0] > 0
    if transform == "boxcox":
        power = fit.model.transform.boxcox_power
        assert abs(power) < 5 * fit.standard_errors["boxcox_power"] + 0.05
    # the same in other units, with the Jacobian of the values that are known
    scaled = gx.Observations(PLACES, 10 * upper, lower=10 * lower, upper=10 * upper)
    other = gx.fit(scaled, response="censored", transform=transform, fixed={"smoothness": 0.5})
    exact = int((values >= limit).sum())
    assert other.log_likelihood + exact * np.log(10) == pytest.approx(fit.log_likelihood, abs=1e-3)
