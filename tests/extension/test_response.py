"""Drill: a response in one class.

A subclass of `gx.responses.Response`, a frozen dataclass with a field for each of its parameters,
which `declared` lists with the role "response". It defines `name`, `links`, `check`, and

- the log density given η: as a formula in `density`, from whose jets come the derivatives by η and
  by the parameters; or `log_density` and `derivatives`, three of them by η, without jets;
- the distribution: SciPy's in `distribution`; or `mean`, `variance`, `cumulative`, `quantile` and
  `draw`.

All constants belong to the log density, so that models with other responses can be compared.
`Weibull` is written in the first way, with a parameter, `Geometric` in the second.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats
from scipy.special import gamma

import geomxp as gx
from geomxp.covariance.jets import exp, gammaln, log

FIELD = gx.Matern(0.5, 0.2, 0.5)
HELD = {"smoothness": 0.5}
METHODS = [gx.Exact(), gx.Vecchia(20)]


@dataclass(frozen=True)
class Weibull(gx.responses.Response):
    """Positive values with mean exp(η) and the distribution function 1 - exp(-(y/s)ᵏ)."""

    weibull_shape: float = 1.0

    name = "weibull"
    noise_parameter = "weibull_shape"
    declared = (gx.Parameter("weibull_shape", 1.0, role="response"),)

    def check(self, data):
        """Refuse values that are not positive."""
        if not (data.values > 0).all():
            raise gx.InvalidInput("Weibull responses need positive values.")

    def density(self, data, eta, weibull_shape):
        """Return log k - k log s + (k - 1) log y - (y/s)ᵏ with s = exp(η)/Γ(1 + 1/k)."""
        k, log_y = weibull_shape, np.log(data.values)
        above = (log_y - eta + gammaln(1.0 + 1.0 / k)) * k
        return log(k) - log_y + above - exp(above)

    def distribution(self, data, eta):
        """Return SciPy's distribution."""
        k = self.weibull_shape
        return stats.weibull_min(k, scale=np.exp(eta) / gamma(1 + 1 / k))


@dataclass(frozen=True)
class Geometric(gx.responses.Response):
    """Counts of failures before a success, with mean μ = exp(η); p = 1/(1 + μ)."""

    name = "geometric"
    discrete = True

    def check(self, data):
        """Refuse values that are no counts."""
        if not ((data.values >= 0) & (data.values % 1 == 0)).all():
            raise gx.InvalidInput("Geometric responses need counts.")

    def guess(self, data):
        """Return η near each value, also near 0."""
        return np.log(data.values + 0.5)

    def log_density(self, data, eta):
        """Return y η - (y + 1) log(1 + exp(η))."""
        return data.values * eta - (data.values + 1) * np.logaddexp(0, eta)

    def derivatives(self, data, eta, names=()):
        """Return three derivatives by η; there are no parameters."""
        y, q = data.values, 1 / (1 + np.exp(-eta))
        slope = y - (y + 1) * q
        second = -(y + 1) * q * (1 - q)
        third = second * (1 - 2 * q)
        return gx.responses.Slopes(
            self.log_density(data, eta), np.array([slope, second, third]), {}
        )

    def mean(self, data, eta):
        """Return μ."""
        return np.exp(eta)

    def variance(self, data, eta):
        """Return μ + μ²."""
        return np.exp(eta) + np.exp(2 * eta)

    def cumulative(self, data, eta, at):
        """Return 1 - (1 - p)^(at + 1)."""
        at = np.floor(at)
        return np.where(at < 0, 0.0, -np.expm1(-(at + 1) * np.logaddexp(0, -eta)))

    def quantile(self, data, eta, probability):
        """Return the least count with this probability up to it."""
        count = np.ceil(np.log1p(-np.asarray(probability)) / -np.logaddexp(0, -eta)) - 1
        return np.maximum(count, 0.0)

    def draw(self, data, eta, random):
        """Return random counts."""
        return random.geometric(1 / (1 + np.exp(eta))) - 1.0


KINDS = [Weibull(2.5), Geometric()]


def measured(response, n=150):
    locations = np.random.default_rng(1).random((n, 2))
    eta = 1.0 + gx.simulate(FIELD, locations, seed=2)[0]
    values = response.draw(gx.responses.Data(eta), eta, np.random.default_rng(3))
    return gx.Observations(locations, values)


@pytest.fixture(scope="module", params=KINDS, ids=lambda response: response.name)
def fit(request):
    return gx.fit(measured(request.param), response=type(request.param), fixed=HELD)


@pytest.mark.parametrize("response", KINDS, ids=lambda response: response.name)
def test_derivatives_are_slopes(response):
    data, step = gx.responses.Data(measured(response, 20).values), 1e-5
    eta = np.linspace(-1.0, 2.0, 20)
    ends = [response.derivatives(data, eta + side * step) for side in (1, -1)]
    found = response.derivatives(data, eta, tuple(response.parameters()))
    higher = (ends[0].eta - ends[1].eta) / (2 * step)
    np.testing.assert_allclose(found.eta[0], (ends[0].value - ends[1].value) / (2 * step), 1e-6)
    np.testing.assert_allclose(found.eta[1:], higher[:2], rtol=1e-6, atol=1e-8)
    for name, slopes in found.parameters.items():
        value = response.parameters()[name]
        sides = (response.with_values({name: value + side * step}) for side in (1, -1))
        above, below = (side.log_density(data, eta) for side in sides)
        np.testing.assert_allclose(slopes[0], (above - below) / (2 * step), rtol=1e-6, atol=1e-8)


def test_the_density_is_that_of_scipy():
    response, eta = Weibull(2.5), np.linspace(-1.0, 2.0, 20)
    data = gx.responses.Data(measured(response, 20).values)
    expected = response.distribution(data, eta).logpdf(data.values)
    np.testing.assert_allclose(response.log_density(data, eta), expected, rtol=1e-12)


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_geometric_response_is_a_negative_binomial_one_of_size_1(method):
    seen = measured(Geometric())
    found, known = (
        gx.log_likelihood(seen, FIELD, method, response=response, trend="constant")
        for response in (Geometric(), gx.responses.NegativeBinomial(1.0))
    )
    assert found.log_likelihood == pytest.approx(known.log_likelihood, rel=1e-9)


def test_a_fit_estimates_its_parameters(fit):
    assert fit.outcome.ending.name == "CONVERGED"
    for name, (low, high) in fit.confidence_intervals(0.999).items():
        if name == "weibull_shape":
            assert low < 2.5 < high
    low, high = fit.confidence_intervals(0.999)["variance"]
    assert low < 0.5 < high


def test_new_observations_are_predicted_and_drawn(fit):
    places = np.random.default_rng(4).random((5, 2))
    found, response = gx.predict(fit, places), fit.model.response
    lower, upper = found.interval(0.9, of="observation")
    assert (lower < found.mean_of_observation).all()
    assert (found.mean_of_observation < upper).all()
    assert (found.variance_of_observation > found.variance).all()
    draws = gx.simulate(fit, places, draws=2000, of="observation", seed=5)
    assert draws.shape == (2000, 5)
    np.testing.assert_allclose(draws.mean(axis=0), found.mean_of_observation, rtol=0.15)
    above = found.probability_above(2.0, of="observation")
    np.testing.assert_allclose((draws > 2.0).mean(axis=0), above, atol=0.05)
    if response.discrete:
        assert (draws % 1 == 0).all()


def test_it_is_scored(fit):
    found = gx.leave_one_out(fit).scores(0.9)
    assert np.isfinite(list(found.values())).all()
    assert 0.8 < found["coverage"] < 1.0


def test_a_saved_fit_needs_the_response(fit, tmp_path):
    path, places = tmp_path / "fit.json", [[0.5, 0.5]]
    fit.save(path)
    again = gx.Fit.load(path, response=type(fit.model.response))
    assert again == fit
    np.testing.assert_array_equal(gx.predict(again, places).mean, gx.predict(fit, places).mean)
    with pytest.raises(gx.InvalidInput, match="does not have: give it"):
        gx.Fit.load(path)


def test_values_that_it_cannot_have_are_refused():
    locations = np.random.default_rng(1).random((20, 2))
    with pytest.raises(gx.InvalidInput, match="need counts"):
        gx.fit(gx.Observations(locations, np.full(20, 0.5)), response=Geometric)
    with pytest.raises(gx.InvalidInput, match="need positive values"):
        gx.fit(gx.Observations(locations, np.zeros(20)), response=Weibull())
