"""Log-likelihoods, kriging and optima against numbers with 16 to 50 certain digits."""

import numpy as np
import pytest
from oracles import SPATIAL_ML, TRENDS, numbers, observations_of, reference

import geomxp as gx

EXAGEOSTAT = reference("exageostat_16")
CASES = SPATIAL_ML["loglik_and_kriging_cases"]
FITS = SPATIAL_ML["ml_fits"]


def name_of(case):
    if "id" in case:
        return case["id"]
    smoothness = case["nu_fixed"] or "free"
    nugget = "nugget" if case["nugget_estimated"] else "no_nugget"
    return f"{case['dataset']}-{case['X']}-{case['method']}-{smoothness}-{nugget}"


def model_of(case):
    return gx.Matern(case["sigma2"], case["range"], case["nu"], case["nugget"])


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_log_likelihood_agrees_with_ball_arithmetic(case):
    seen, model, trend = observations_of(case), model_of(case), TRENDS[case["X"]]
    expected = case["reference"]
    found = gx.log_likelihood(seen, model, trend=trend)
    assert found.log_likelihood == pytest.approx(float(expected["loglik"]), rel=1e-9)
    assert found.log_determinant == pytest.approx(float(expected["logdet"]), rel=1e-9)
    assert found.quadratic_form == pytest.approx(float(expected["quad"]), rel=1e-9)
    if "reml" in expected:
        restricted = gx.log_likelihood(seen, model, trend=trend, reml=True)
        assert restricted.log_likelihood == pytest.approx(float(expected["reml"]), rel=1e-9)
        np.testing.assert_allclose(found.coefficients, numbers(expected["beta"]), rtol=1e-9)
        errors = np.sqrt(np.diag(found.coefficient_covariance))
        np.testing.assert_allclose(errors, numbers(expected["beta_se"]), rtol=1e-9)


@pytest.mark.parametrize("case", [c for c in CASES if c["targets"]], ids=name_of)
def test_kriging_agrees_with_ball_arithmetic(case):
    seen, model, trend = observations_of(case), model_of(case), TRENDS[case["X"]]
    held = tuple(model.parameters())
    fit = gx.fit(seen, model, fixed=held, trend=trend)
    covariates = None
    if trend == "covariates":
        covariates = np.array(case["X_targets"])[:, 1:]
    there = gx.predict(fit, case["targets"], covariates)
    mean, expected = there.mean + (case["known_mean"] or 0.0), case["reference"]
    np.testing.assert_allclose(mean, numbers(expected["pred"]), rtol=1e-9)
    # a variance is what is left of σ²: its error is a rounding of σ²
    atol = 1e-11 * case["sigma2"]
    np.testing.assert_allclose(there.variance, numbers(expected["var_signal"]), rtol=0, atol=atol)
    np.testing.assert_allclose(
        there.variance_of_observation, numbers(expected["var_noisy"]), rtol=0, atol=atol
    )


@pytest.mark.parametrize("case", FITS, ids=name_of)
def test_fit_is_not_below_the_certain_optimum(case):
    seen, expected = observations_of(case), case["reference"]
    fixed = {}
    if case["nu_fixed"]:
        fixed["smoothness"] = case["nu_fixed"]
    if not case["nugget_estimated"]:
        fixed["nugget"] = 0.0
    fit = gx.fit(seen, fixed=fixed, trend=TRENDS[case["X"]], reml=case["method"] == "REML")
    assert fit.outcome.ending == "CONVERGED"
    # the oracle's rule: not more than 1e-6 below; and no program can be above a maximum
    assert abs(fit.log_likelihood - float(expected["loglik"])) < 1e-6
    # curvature 0.08 at the least: 1e-6 of log-likelihood leaves 5e-3 of a parameter's logarithm
    for name, key in (("variance", "sigma2"), ("range", "range"), ("smoothness", "nu")):
        assert getattr(fit.model, name) == pytest.approx(float(expected[key]), rel=5e-3)
    assert fit.model.nugget == pytest.approx(float(expected["nugget"]), rel=5e-3)
    np.testing.assert_allclose(fit.coefficients, numbers(expected["beta"]), rtol=5e-3)


@pytest.mark.parametrize("case", FITS[3:9], ids=name_of)
def test_standard_errors_are_those_of_the_certain_hessian(case):
    """The references have the eigenvalues of the Hessian in the logarithms of (a, τ²/σ², ν)."""
    fixed = {"smoothness": case["nu_fixed"]} if case["nu_fixed"] else {}
    fit = gx.fit(
        observations_of(case),
        fixed=fixed,
        trend=TRENDS[case["X"]],
        reml=case["method"] == "REML",
    )
    eigenvalues = np.array(case["reference"]["hessian_eigs"], dtype=float)
    # the determinant of the profile's information is that of the inverse of our covariance's
    # block in the same coordinates; for ν fixed the range is one of two, so bounds by eigenvalues
    relative = fit.standard_errors["range"] / fit.model.range
    largest, smallest = 1 / np.abs(eigenvalues).min(), 1 / np.abs(eigenvalues).max()
    assert smallest * 0.999 <= relative**2 <= largest * 1.001


def test_restricted_likelihood_without_a_finite_maximum_is_said_in_words():
    case = SPATIAL_ML["degenerate_cases"][0]
    with pytest.raises(gx.FitFailed, match=r"no finite maximum.*range goes to infinity") as caught:
        gx.fit(observations_of(case), fixed={"smoothness": 0.5}, reml=True)
    fit = caught.value.fit
    assert fit.outcome.ending == "NO_FINITE_MAXIMUM"
    # glmmTMB and nlme, who stop at ranges of 4e8 and 9e11, are the limit
    assert fit.log_likelihood == pytest.approx(-97.7644, abs=1e-3)
    assert all(error is None for error in fit.standard_errors.values())


def test_smoothness_that_grows_for_ever_is_said_in_words():
    case = SPATIAL_ML["degenerate_cases"][1]
    with pytest.raises(gx.FitFailed, match="Gaussian limit") as caught:
        gx.fit(observations_of(case), trend="covariates")
    assert caught.value.fit.log_likelihood == pytest.approx(-73.74, abs=5e-3)


def test_nugget_on_its_boundary_is_zero_and_said_so():
    case = SPATIAL_ML["degenerate_cases"][2]
    fit = gx.fit(observations_of(case), fixed={"smoothness": 0.5})
    assert fit.model.nugget == 0.0
    assert fit.log_likelihood == pytest.approx(-83.5695736956, abs=1e-6)
    assert "nugget is 0, at its boundary" in fit.outcome.message
    assert fit.standard_errors["nugget"] is None


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
    found = gx.kl_between(gx.Matern(**case["p"]), gx.Matern(**case["q"]), sixteen.locations)
    assert found == pytest.approx(case["kl_p_q"], rel=1e-11)


@pytest.mark.parametrize(("kind", "trend"), [("simple", "zero"), ("ordinary", "constant")])
def test_kriging_agrees_with_gstat(sixteen, kind, trend):
    case = EXAGEOSTAT["kriging"][0]
    model = gx.Matern(**case["theta"])
    fit = gx.fit(sixteen, model, fixed=tuple(model.parameters()), trend=trend)
    there = gx.predict(fit, case["targets"])
    np.testing.assert_allclose(there.mean, case[kind]["mean"], rtol=1e-12)
    np.testing.assert_allclose(there.variance, case[kind]["variance"], rtol=1e-12)
