"""Drill: a likelihood method in one file, through the whole package."""

from dataclasses import dataclass

import numpy as np
import pytest

import geomxp as gx
from geomxp import testing
from geomxp.likelihood.base import Evaluation, Evaluator, Likelihood, gaussian_log_likelihood
from geomxp.likelihood.trend import fit_trend
from geomxp.tiles.factor import CholeskyFactor


@dataclass(frozen=True)
class Tapered(Likelihood):
    """Covariance tapering: Σ times a Wendland correlation that vanishes beyond a distance.

    Kaufman, Schervish and Nychka (2008), JASA 103:1545, the one-taper approximation.
    """

    support: float

    def prepare(self, observations, design=None, reml=False):
        return TaperedEvaluator(self, observations, design, reml)

    def describe(self, n):
        return {"name": "tapered", "on": "cpu", "support": self.support}


class TaperedEvaluator(Evaluator):
    """ℓ by a dense Cholesky factorization; derivatives are left to differences."""

    def __init__(self, method, observations, design, reml):
        self.method, self.observations, self.reml = method, observations, reml
        self.design = np.zeros((len(observations), 0)) if design is None else design

    def factorize(self, model):
        a, metric = self.observations.locations, self.observations.metric
        taper = gx.Wendland(1.0, self.method.support, smoothness=1.0, shape=3.0)
        sigma = model(a, a, metric) * taper(a, a, metric) + model.nugget * np.eye(len(a))
        try:
            return CholeskyFactor(np.asfortranarray(np.linalg.cholesky(sigma)))
        except np.linalg.LinAlgError:
            raise gx.NotPositiveDefinite("the tapered matrix is not positive definite.") from None

    def __call__(self, model):
        n = len(self.observations)
        try:
            factor = self.factorize(model)
        except gx.NotPositiveDefinite as error:
            outcome = gx.Outcome(gx.Ending.NOT_POSITIVE_DEFINITE, str(error))
            return Evaluation.failed(outcome, n)
        trend, log_determinant = fit_trend(factor, self.observations.values, self.design), 0.0
        log_determinant = factor.log_determinant()
        return Evaluation(
            log_likelihood=gaussian_log_likelihood(n, log_determinant, trend, self.reml),
            log_determinant=log_determinant,
            quadratic_form=trend.quadratic_form,
            outcome=gx.Outcome(gx.Ending.COMPUTED),
            n=n,
            reml=self.reml,
            coefficients=trend.coefficients,
            coefficient_covariance=trend.coefficient_covariance,
            log_determinant_of_information=trend.log_determinant_of_information,
        )


WIDE = Tapered(1e9)
MODEL = gx.Matern(1.0, 0.1, 0.5, 0.1)


@pytest.fixture(scope="module")
def observations():
    locations = np.random.default_rng(1).random((80, 2))
    return gx.Observations(locations, gx.simulate(MODEL, locations, seed=2)[0])


@pytest.fixture(scope="module")
def fit(observations):
    return gx.fit(observations, method=Tapered(0.5), fixed={"smoothness": 0.5}, progress=False)


def test_a_wide_taper_obeys_the_laws():
    laws = [law for law in testing.LAWS if law is not testing.gradient_is_the_slope]
    testing.check_likelihood(WIDE, laws=laws)


def test_a_wide_taper_is_the_exact_likelihood(observations):
    tapered = gx.log_likelihood(observations, MODEL, WIDE, trend="constant")
    exact = gx.log_likelihood(observations, MODEL, trend="constant")
    assert tapered.log_likelihood == pytest.approx(exact.log_likelihood, abs=1e-6)


def test_it_fits_predicts_and_simulates(fit):
    assert fit.outcome.good
    assert fit.standard_errors["range"] > 0
    places = np.random.default_rng(3).random((5, 2))
    prediction = gx.predict(fit, places)
    assert (prediction.variance > 0).all()
    assert gx.simulate(fit, places, draws=2).shape == (2, 5)


def test_a_fit_is_saved_and_loaded(fit, tmp_path):
    fit.save(tmp_path / "fit.json")
    again = gx.Fit.load(tmp_path / "fit.json", method=fit.method)
    assert again.model == fit.model
    assert again.method == Tapered(0.5)
    with pytest.raises(gx.InvalidInput, match=r"method 'tapered'.*method="):
        gx.Fit.load(tmp_path / "fit.json")


def test_its_divergence_from_the_exact_covariance(observations):
    near = gx.kl_divergence(MODEL, observations, Tapered(2.0)).kl
    far = gx.kl_divergence(MODEL, observations, Tapered(0.3)).kl
    assert 0 < near < far


@pytest.mark.slow
def test_it_has_a_report(fit, tmp_path):
    gx.report(fit, tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size > 1000
