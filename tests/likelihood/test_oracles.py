"""Log-likelihoods and kriging against numbers with 16 to 50 certain digits."""

import numpy as np
import pytest
from oracles import (
    SPATIAL_ML,
    TRENDS,
    model_of,
    name_of,
    numbers,
    observations_of,
    reference,
    rounding,
)

import geomxp as gx
from geomxp.likelihood.trend import Trend

EXAGEOSTAT = reference("exageostat_16")
CASES = SPATIAL_ML["loglik_and_kriging_cases"]
WITH_TREND = [case for case in CASES if case["X"]]


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_log_likelihood_agrees_with_ball_arithmetic(case):
    seen, expected = observations_of(case), case["reference"]
    found = gx.log_likelihood(seen, model_of(case), trend=TRENDS[case["X"]])
    rel = rounding(len(seen))
    assert found.log_likelihood == pytest.approx(float(expected["loglik"]), rel=rel)
    assert found.log_determinant == pytest.approx(float(expected["logdet"]), rel=rel)
    assert found.quadratic_form == pytest.approx(float(expected["quad"]), rel=rel)


@pytest.mark.parametrize("case", WITH_TREND, ids=name_of)
def test_least_squares_and_reml_agree_with_ball_arithmetic(case):
    seen, expected, trend = observations_of(case), case["reference"], TRENDS[case["X"]]
    found = gx.log_likelihood(seen, model_of(case), trend=trend, reml=True)
    rel = rounding(len(seen))
    assert found.log_likelihood == pytest.approx(float(expected["reml"]), rel=rel)
    information = float(expected["logdet_XtSinvX"])
    assert found.log_determinant_of_information == pytest.approx(information, rel=rel)
    np.testing.assert_allclose(found.coefficients, numbers(expected["beta"]), rtol=rel)
    errors = np.sqrt(np.diag(found.coefficient_covariance))
    np.testing.assert_allclose(errors, numbers(expected["beta_se"]), rtol=rel)


@pytest.mark.parametrize("case", WITH_TREND, ids=name_of)
def test_design_is_that_of_the_references(case):
    """½ log|X'X| is what geoR's restricted log-likelihood has more than ours."""
    seen = observations_of(case)
    design = Trend.of(seen, TRENDS[case["X"]]).design(seen.locations, seen.covariates)
    found = np.linalg.slogdet(design.T @ design).logabsdet
    expected = float(case["reference"]["logdet_XtX"])
    assert found == pytest.approx(expected, rel=rounding(len(seen)))


@pytest.mark.parametrize("case", [case for case in CASES if case["targets"]], ids=name_of)
def test_kriging_agrees_with_ball_arithmetic(case):
    seen, model, trend = observations_of(case), model_of(case), TRENDS[case["X"]]
    fit = gx.fit(seen, model, fixed=tuple(model.parameters()), trend=trend)
    covariates = None
    if trend == "covariates":
        covariates = np.array(case["X_targets"])[:, 1:]
    there = gx.predict(fit, case["targets"], covariates)
    expected, rel = case["reference"], rounding(len(seen))
    mean = there.mean + (case["known_mean"] or 0.0)
    np.testing.assert_allclose(mean, numbers(expected["pred"]), rtol=rel)
    # a variance is what is left of σ²: its error is a rounding of σ²
    atol = rel * model.variance
    np.testing.assert_allclose(there.variance, numbers(expected["var_signal"]), rtol=0, atol=atol)
    np.testing.assert_allclose(
        there.variance_of_observation, numbers(expected["var_noisy"]), rtol=0, atol=atol
    )


@pytest.fixture(scope="module")
def sixteen():
    return gx.Observations(EXAGEOSTAT["locations"], EXAGEOSTAT["values"])


@pytest.mark.parametrize("case", EXAGEOSTAT["log_likelihoods"])
def test_exageostat_log_likelihoods(sixteen, case):
    found = gx.log_likelihood(sixteen, gx.Matern(**case["theta"]))
    assert found.log_likelihood == pytest.approx(float(case["log_likelihood"]), rel=1e-12)


def test_exageostat_published_value(sixteen):
    published = EXAGEOSTAT["published"]["exact_after_3_bobyqa_steps"]
    found = gx.log_likelihood(sixteen, gx.Matern(**published["theta"]))
    assert found.log_likelihood == pytest.approx(
        published["log_likelihood"], abs=published["margin"]
    )


def test_gradient_agrees_with_mpmath(sixteen):
    case = EXAGEOSTAT["gradient"]
    gradient = gx.Exact().prepare(sixteen).gradient(gx.Matern(**case["theta"]))
    for name, expected in zip(case["order"], case["d_log_likelihood"], strict=True):
        assert gradient[name] == pytest.approx(expected, rel=1e-9)


def test_expected_information_agrees_with_mpmath(sixteen):
    case = EXAGEOSTAT["fisher"]
    information = (
        gx.Exact().prepare(sixteen).expected_information(gx.Matern(**case["theta"]), case["order"])
    )
    np.testing.assert_allclose(information, case["information"], rtol=1e-9)
    inverse = np.linalg.inv(information)[np.triu_indices(3)]
    np.testing.assert_allclose(inverse, case["inverse_upper"], rtol=1e-9)


def test_divergence_agrees_with_mpmath(sixteen):
    case = EXAGEOSTAT["kl"]
    p, q = gx.Matern(**case["p"]), gx.Matern(**case["q"])
    found = gx.kl_between(p, q, sixteen.locations)
    assert gx.kl_between(p, q, sixteen) == found
    assert found == pytest.approx(case["kl_p_q"], rel=1e-11)


@pytest.mark.parametrize(("kind", "trend"), [("simple", "zero"), ("ordinary", "constant")])
def test_kriging_agrees_with_gstat(sixteen, kind, trend):
    case = EXAGEOSTAT["kriging"][0]
    model = gx.Matern(**case["theta"])
    fit = gx.fit(sixteen, model, fixed=tuple(model.parameters()), trend=trend)
    there = gx.predict(fit, case["targets"])
    np.testing.assert_allclose(there.mean, case[kind]["mean"], rtol=1e-12)
    np.testing.assert_allclose(there.variance, case[kind]["variance"], rtol=1e-12)


def test_published_numbers_that_are_wrong_are_not_ours(sixteen):
    """The third of `not_oracles` is of another package's covariance."""
    assert "is not a Gaussian log-likelihood" in EXAGEOSTAT["not_oracles"][0]
    model = gx.Matern(**EXAGEOSTAT["published"]["exact_after_3_bobyqa_steps"]["theta"])
    halves = [
        gx.Observations(sixteen.locations[part], sixteen.values[part])
        for part in (slice(8), slice(8, 16))
    ]
    blocks = sum(gx.log_likelihood(half, model).log_likelihood for half in halves)
    # the likelihood of two independent blocks is the one named there, and the published is neither
    assert blocks == pytest.approx(-24.004854808517628, rel=1e-12)
    for value in (blocks, gx.log_likelihood(sixteen, model).log_likelihood):
        assert abs(value - -24.028197) > 1e-3

    assert "leaves out the last two observations" in EXAGEOSTAT["not_oracles"][1]
    case = EXAGEOSTAT["kriging"][0]
    model, wrong = gx.Matern(**case["theta"]), [-1.04437, -1.63133]
    seen = gx.Observations(sixteen.locations[:14], sixteen.values[:14])
    fit = gx.fit(seen, model, fixed=tuple(model.parameters()), trend="zero")
    np.testing.assert_allclose(gx.predict(fit, case["targets"]).mean[:2], wrong, atol=5e-6)
    assert np.abs(np.array(case["simple"]["mean"][:2]) - wrong).min() > 1e-4
