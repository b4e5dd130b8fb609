"""Drill: a covariance family in one file, used everywhere at full speed.

The family is a mixture of an exponential and a Gaussian correlation. It defines its correlation
and inherits everything else, derivatives included.
"""

from dataclasses import dataclass

import numpy as np
import pytest

import geomxp as gx
from geomxp import testing


@dataclass(frozen=True)
class Mixture(gx.Isotropic):
    """C(h) = σ² (w exp(-h/a) + (1 - w) exp(-h²/a²)), valid in all Euclidean dimensions."""

    family = "mixture"
    shapes = (gx.Parameter("weight", 0.5, "identity", upper=1.0, closed=True, search=(0.0, 1.0)),)

    variance: float
    range: float
    weight: float
    nugget: float = 0.0
    anisotropy: gx.Anisotropy | None = None

    def correlation_of_squares(self, s, rest):
        """Evaluate the correlation for s = (h/a)²."""
        return self.weight * np.exp(-np.sqrt(s)) + (1 - self.weight) * np.exp(-s)


TRUE = Mixture(1.5, 0.2, 0.6, 0.05)


@pytest.fixture(scope="module")
def seen():
    places = testing.places(150)
    noise = np.sqrt(TRUE.nugget) * np.random.default_rng(1).standard_normal(150)
    return gx.Observations(places, gx.simulate(TRUE, places, draws=1, seed=2)[0] + noise)


def dense_log_likelihood(model, seen):
    sigma = model(seen.locations, seen.locations) + model.nugget * np.eye(len(seen))
    quadratic = seen.values @ np.linalg.solve(sigma, seen.values)
    return -0.5 * (len(seen) * np.log(2 * np.pi) + np.linalg.slogdet(sigma)[1] + quadratic)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_it_obeys_the_laws(d):
    testing.check_covariance(TRUE, gx.Inputs(testing.places(60, d)))
    testing.check_covariance(TRUE.replace(nugget=0.1), gx.Inputs(testing.places(60, 2)))


@dataclass(frozen=True)
class Wrong(Mixture):
    """Derivatives by the range are 1 % too large."""

    family = "wrong"

    def derivatives(self, a, b, names=None):
        return {
            name: slope * (1.01 if name == "range" else 1.0)
            for name, slope in super().derivatives(a, b, names).items()
        }


def test_a_wrong_derivative_breaks_them():
    model = Wrong(1.5, 0.2, 0.6, 0.05)
    with pytest.raises(AssertionError, match="range"):
        testing.check_covariance(model, gx.Inputs(testing.places(60, 2)))


def test_entries_are_good_to_the_last_bits():
    r = np.geomspace(1e-6, 30.0, 200)[:, None]
    model = Mixture(1.0, 1.0, 0.3)
    exact = 0.3 * np.exp(-r) + 0.7 * np.exp(-(r**2))
    np.testing.assert_allclose(model(r, np.zeros((1, 1))), exact, rtol=0, atol=4e-16)


def test_every_method_evaluates_it(seen):
    expected = dense_log_likelihood(TRUE, seen)
    for method in (gx.Exact(), gx.Exact(tile=40), gx.Vecchia(neighbours=len(seen) - 1)):
        found = gx.log_likelihood(seen, TRUE, method).log_likelihood
        assert found == pytest.approx(expected, rel=1e-9)
    mixed = gx.log_likelihood(seen, TRUE, gx.Exact(gx.by_tile_norm(1e-8), tile=40))
    assert mixed.log_likelihood == pytest.approx(expected, rel=1e-4)
    out_of_core = gx.Exact(tile=40, memory="300kB")
    assert gx.log_likelihood(seen, TRUE, out_of_core).log_likelihood == pytest.approx(expected)
    assert (
        gx.kl_divergence(TRUE, seen.locations, gx.Exact(gx.by_tile_norm(1e-8), tile=40)).kl < 1e-4
    )


@pytest.mark.gpu
def test_a_gpu_evaluates_it(seen):
    expected = dense_log_likelihood(TRUE, seen)
    for method in (gx.Exact(on="gpu", tile=40), gx.Vecchia(neighbours=20, on="gpu")):
        found = gx.log_likelihood(seen, TRUE, method).log_likelihood
        assert found == pytest.approx(expected, rel=1e-2)


def test_fits_predict_and_survive_a_file(seen, tmp_path):
    fit = gx.fit(seen, family=Mixture, trend="zero")
    assert fit.log_likelihood >= dense_log_likelihood(TRUE, seen) - 1e-6
    fit.save(tmp_path / "fit.json")
    again = gx.Fit.load(tmp_path / "fit.json", family=Mixture)
    assert again.model == fit.model
    new = testing.places(9, seed=7)
    np.testing.assert_array_equal(gx.predict(again, new).mean, gx.predict(fit, new).mean)


def test_it_is_refused_where_it_is_not_known_to_be_valid():
    with pytest.raises(gx.InvalidInput, match="chordal"):
        TRUE.check_valid_on("great-circle", 2)
    with pytest.raises(gx.InvalidInput, match="`weight` must be at least 0 and at most 1"):
        TRUE.replace(weight=1.2)
