"""Drill: an observation model in one file."""

import numpy as np
import pytest

import geomxp as gx
from geomxp.likelihood.base import ObservationModel

MODEL = gx.Matern(0.3, 0.2, 0.5, 0.05)


class LogNormal(ObservationModel):
    """log z is the field plus noise."""

    def transform(self, values):
        return np.log(values)

    def log_jacobian(self, values):
        return -float(np.log(values).sum())


@pytest.mark.parametrize("method", [gx.Exact(), gx.Exact(tile=32), gx.Vecchia(20)], ids=str)
def test_the_density_of_lognormal_values_is_that_of_their_logarithms_and_a_jacobian(method):
    locations = np.random.default_rng(1).random((70, 2))
    logs = gx.simulate(MODEL, locations, seed=2)[0]
    values = gx.Observations(locations, np.exp(logs))

    evaluator_type = type(method.prepare(values))

    class LogNormalEvaluator(evaluator_type):
        observation_model = LogNormal()

    evaluator = LogNormalEvaluator(values, np.ones((70, 1)), False, method)
    expected = gx.log_likelihood(
        gx.Observations(locations, logs), MODEL, method, trend="constant"
    ).log_likelihood
    assert evaluator(MODEL).log_likelihood == pytest.approx(expected - logs.sum(), abs=1e-9)
    # the Jacobian is constant in the parameters
    assert evaluator.gradient(MODEL)["range"] == pytest.approx(
        type(evaluator)
        .__base__(gx.Observations(locations, logs), np.ones((70, 1)), False, method)
        .gradient(MODEL)["range"],
        rel=1e-9,
    )
