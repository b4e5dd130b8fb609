"""Drill: a part of the noise in one place, the declaration of its parameter.

Laboratories report variances of errors that are too small by a factor 1 + k. The family is Matérn's
with the parameter k.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import geomxp as gx
from geomxp import testing


def reported(inputs, where=()):
    """Return the reported variances, (n,)."""
    known = inputs.error_variance
    return np.zeros(len(inputs)) if known is None else known


@dataclass(frozen=True)
class Inflated(gx.Matern):
    """Matérn's covariance with errors of variance (1 + k) times the reported one."""

    family = "inflated-matern"
    conventions: ClassVar = {}
    noise_parts = (
        *gx.Matern.noise_parts,
        gx.NoiseParameter("inflation", 0.5, unit="", linear=False, search=(0, 100), share=reported),
    )

    inflation: float = 0.0


TRUE, N = Inflated(1.0, 0.2, 0.5, 0.05, inflation=2.0), 200


@pytest.fixture(scope="module")
def seen():
    random = np.random.default_rng(0)
    places, errors = random.random((N, 2)), random.choice([0.0, 0.2, 0.4], N)
    values = gx.simulate(TRUE, gx.Inputs(places, error_variance=errors), seed=1)[0]
    return gx.Observations(places, values, error_variance=errors)


def dense_log_likelihood(model, seen):
    field = gx.Matern(model.variance, model.range, model.smoothness)
    variances = model.nugget + (1 + model.inflation) * seen.error_variance
    sigma = field(seen.locations, seen.locations) + np.diag(variances)
    quadratic = seen.values @ np.linalg.solve(sigma, seen.values)
    return -0.5 * (len(seen) * np.log(2 * np.pi) + np.linalg.slogdet(sigma)[1] + quadratic)


def test_it_obeys_the_laws(seen):
    testing.check_covariance(TRUE, gx.Inputs(seen.locations[:80]))


def test_every_method_evaluates_it(seen):
    expected = dense_log_likelihood(TRUE, seen)
    for method in (gx.Exact(), gx.Exact(tile=40), gx.Vecchia(neighbours=N - 1)):
        found = gx.log_likelihood(seen, TRUE, method).log_likelihood
        assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("method", [gx.Exact(), gx.Vecchia(neighbours=N - 1)], ids=str)
def test_it_has_a_score(seen, method):
    names = tuple(TRUE.parameters())
    evaluator = method.prepare(seen, np.zeros((N, 0)), False)
    score = evaluator.derivatives(TRUE, names).score
    for name, slope in zip(names, score, strict=True):
        value = TRUE.parameters()[name]
        ends = (TRUE.replace(**{name: value * (1 + step)}) for step in (1e-4, -1e-4))
        high, low = (dense_log_likelihood(end, seen) for end in ends)
        assert slope == pytest.approx((high - low) / (2e-4 * value), rel=1e-4, abs=1e-4)


def test_it_is_estimated_and_survives_a_file(seen, tmp_path):
    fit = gx.fit(seen, family=Inflated, trend="zero", fixed={"smoothness": 0.5})
    assert fit.log_likelihood >= dense_log_likelihood(TRUE, seen) - 1e-6
    assert fit.log_likelihood == pytest.approx(dense_log_likelihood(fit.model, seen), abs=1e-6)
    error = fit.standard_errors["inflation"]
    assert abs(fit.model.inflation - 2.0) < 4 * error
    fit.save(tmp_path / "fit.json")
    again = gx.Fit.load(tmp_path / "fit.json", family=Inflated)
    assert again.model == fit.model
    new = testing.places(9, seed=3)
    np.testing.assert_array_equal(gx.predict(again, new).mean, gx.predict(fit, new).mean)
    gx.report(fit, tmp_path / "report.html")
    assert "inflation" in (tmp_path / "report.html").read_text()


def test_a_wrong_value_is_named():
    with pytest.raises(gx.InvalidInput, match="`inflation` must be at least 0"):
        TRUE.replace(inflation=-1.0)


@dataclass(frozen=True)
class Sites(Inflated):
    """The same with a variance that replicates at one location share."""

    family = "matern-of-sites"
    noise_parts = (
        *Inflated.noise_parts,
        gx.NoiseParameter(
            "site", 0.5, share=lambda inputs, where: np.ones(len(inputs)), shared=True
        ),
    )

    site: float = 0.0


def test_replicates_share_a_part_that_says_so():
    model, where = Sites(1.0, 0.2, 0.5, 0.1, inflation=1.0, site=0.5), np.zeros((2, 2))
    inputs = gx.Inputs(where, error_variance=np.array([0.2, 0.2]))
    draws = gx.simulate(model, inputs, draws=40_000, seed=1)
    expected = 1.0 + 0.5 + (0.1 + 0.4) * np.eye(2)
    np.testing.assert_allclose(np.cov(draws.T), expected, atol=0.06)
    assert model.noise(inputs).of_locations.tolist() == [0.5, 0.5]


def of_variable(inputs, where):
    """Return the reported variances of one variable, (n,)."""
    return reported(inputs) * (inputs.variable == where[0])


@dataclass(frozen=True)
class InflatedOfVariables(gx.ParsimoniousMatern):
    """A parsimonious model in which errors of each variable are larger than reported."""

    family = "inflated-variables"
    groups: ClassVar = {
        **gx.ParsimoniousMatern.groups,
        "inflation": (
            "variable",
            gx.NoiseParameter("inflation", 0.5, unit="", linear=False, share=of_variable),
        ),
    }

    inflation: tuple[float, ...] = 0.0


def test_it_is_drawn_beside_correlated_nuggets():
    model = InflatedOfVariables(
        (1.0, 1.0), 0.3, 0.5, 0.5, (0.1, 0.2), inflation=(1.0, 2.0), nugget_covariance=0.05
    )
    errors, variable = np.array([0.3, 0.3]), np.array([0, 1])
    noise = model.noise(gx.Inputs(np.zeros((2, 2)), variable=variable, error_variance=errors))
    draws = noise.draw(np.random.default_rng(0), 100_000)
    np.testing.assert_allclose(np.cov(draws.T), [[0.7, 0.05], [0.05, 1.1]], atol=0.02)
