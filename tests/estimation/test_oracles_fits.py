"""Maximum likelihood against optima, curvatures and limits computed elsewhere."""

import numpy as np
import pytest
from oracles import SPATIAL_ML, TRENDS, model_of, name_of, numbers, observations_of, rounding

import geomxp as gx
from geomxp.likelihood.trend import Trend

FITS = SPATIAL_ML["ml_fits"]
WITHOUT_END, GAUSSIAN, ON_BOUNDARY = SPATIAL_ML["degenerate_cases"]
TOLERANCE = 1e-6
"""Of `fit`, on the log-likelihood; and the oracles' rule: not more than this below."""

COORDINATES = {"log range": "range", "log(nugget/sigma2)": "nugget", "log nu": "smoothness"}


def fitted(case, **options):
    fixed = {}
    if case["nu_fixed"]:
        fixed["smoothness"] = case["nu_fixed"]
    if not case.get("nugget_estimated", True):
        fixed["nugget"] = 0.0
    fixed |= options.pop("fixed", {})
    reml, trend = case["method"] == "REML", TRENDS[case["X"]]
    return gx.fit(observations_of(case), fixed=fixed, trend=trend, reml=reml, **options)


def point_of(case, model):
    """The coordinates of the references' Hessian: logarithms of a, τ²/σ² and ν."""
    values = model.parameters() | {"nugget": model.nugget / model.variance}
    return np.log([values[COORDINATES[name]] for name in case["reference"]["param_order"]])


def curvatures_of(case, information, names):
    """Eigenvalues of the information of those coordinates, σ² profiled out, from that of log θ."""
    order = ["variance", *(COORDINATES[name] for name in case["reference"]["param_order"])]
    at = [names.index(name) for name in order]
    information = information[np.ix_(at, at)]
    if "nugget" in order:
        # log τ² = log τ²/σ² + log σ²
        way = np.eye(len(order))
        way[order.index("nugget"), 0] = 1.0
        information = way.T @ information @ way
    along = information[1:, 0]
    return np.linalg.eigvalsh(information[1:, 1:] - np.outer(along, along) / information[0, 0])


@pytest.mark.slow
@pytest.mark.parametrize("case", FITS, ids=name_of)
def test_fit_is_not_below_the_certain_optimum(case):
    fit, expected = fitted(case), case["reference"]
    assert fit.outcome.ending == "CONVERGED"
    below = float(expected["loglik"]) - fit.log_likelihood
    assert below < TOLERANCE
    # and no program can be above a maximum, but by rounding
    assert below > -1e-11 * abs(fit.log_likelihood)
    # ½δ'Iδ is what is lost: where the likelihood is flat, the estimates are free to be apart
    curvatures = -np.array(expected["hessian_eigs"])
    far = np.sqrt(2 * TOLERANCE / curvatures.min())
    optimum = model_of(expected)
    assert np.linalg.norm(point_of(case, fit.model) - point_of(case, optimum)) < far
    # along the ridge σ² goes with a^(2ν), and the smoothest optimum has 2ν = 3
    assert fit.model.variance == pytest.approx(optimum.variance, rel=3 * far)
    np.testing.assert_allclose(fit.coefficients, numbers(expected["beta"]), rtol=3 * far)


def curvatures_at(case, model):
    """As `curvatures_of`, from the exact likelihood's own derivatives; and the score of log θ."""
    seen = observations_of(case)
    design = Trend.of(seen, TRENDS[case["X"]]).design(seen.locations, seen.covariates)
    evaluator = gx.Exact().prepare(seen, design, case["method"] == "REML")
    names = ["variance", *(COORDINATES[name] for name in case["reference"]["param_order"])]
    units = np.array([model.parameters()[name] for name in names])
    gradient = evaluator.gradient(model, names)
    score = units * [gradient[name] for name in names]
    information = np.outer(units, units) * evaluator.observed_information(model, names)
    return curvatures_of(case, information - np.diag(score), names), score


@pytest.mark.slow
@pytest.mark.parametrize("case", FITS, ids=name_of)
def test_likelihood_has_the_certain_curvatures_at_the_certain_optimum(case):
    expected = np.sort(-np.array(case["reference"]["hessian_eigs"]))
    found, score = curvatures_at(case, model_of(case["reference"]))
    # the references are differences and err by 9e-6 of the largest (see the next test)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 * expected.max())
    # the optimum is stated to 16 digits; the score's own sums round
    assert np.abs(score).max() < rounding(len(observations_of(case))) * expected.max()


def test_curvature_of_an_exponential_agrees_with_mpmath():
    """40 digits, second difference of the profile in log a with a step of 1e-8."""
    case = FITS[0]
    found, _ = curvatures_at(case, model_of(case["reference"]))
    # second derivatives of Σ are differences over 1e-4 of a, which err by its square
    assert found[0] == pytest.approx(8.6192209499180, rel=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("case", FITS, ids=name_of)
def test_fit_knows_the_certain_curvatures(case):
    """Its information may be that of a step before: logarithms 1e-3 away from the estimate."""
    fit = fitted(case)
    expected = np.sort(-np.array(case["reference"]["hessian_eigs"]))
    found = curvatures_of(case, fit.information, fit.free)
    np.testing.assert_allclose(found, expected, rtol=4e-3)


def test_restricted_likelihood_without_a_finite_maximum_is_said_in_words():
    assert "increases monotonically to an intrinsic limit" in WITHOUT_END["expect"]
    with pytest.warns(gx.GeomxpWarning, match=r"supremum as the range goes to infinity"):
        fit = fitted(WITHOUT_END)
    assert "variance/range bounded" in fit.outcome.message
    assert fit.outcome.ending == "AT_LIMIT"
    # glmmTMB stops there, at a range of 3.7e8 m; rounding carries nlme a little beyond
    assert fit.log_likelihood == pytest.approx(-97.764582053, abs=1e-3)
    assert fit.standard_errors["range"] is None
    # the intrinsic model: with an exponential field σ²/a and the nugget are all that there is
    ratio = fit.model.variance / fit.model.range
    other = fitted(WITHOUT_END, fixed={"range": 1e8})
    assert other.model.variance / 1e8 == pytest.approx(ratio, rel=1e-2)
    assert other.model.nugget == pytest.approx(fit.model.nugget, rel=1e-2)


@pytest.mark.slow
def test_restricted_likelihood_rises_with_the_range_to_its_limit():
    ranges = [45000.0, 1e6, 1e8, 3.7e8, 1e10]
    fits = [fitted(WITHOUT_END, fixed={"range": value}) for value in ranges]
    values = np.array([fit.log_likelihood for fit in fits])
    # spaMM at its bound of 45000, all its digits
    assert values[0] == pytest.approx(-97.7758217, abs=5e-8)
    # glmmTMB, whose range is said to two digits and whose Σ has the condition number 4e11
    assert values[3] == pytest.approx(-97.764582053, abs=1e-5)
    # below the limit by a share that falls as 1/a, until rounding of σ² = 8e6 reaches τ² = 0.04
    assert (np.diff(values[:3]) > 0).all()
    np.testing.assert_allclose(values[3:], values[2], rtol=0, atol=1e-5)
    slopes = [fit.model.variance / fit.model.range for fit in fits]
    np.testing.assert_allclose(slopes, slopes[-1], rtol=5e-3)
    # a nugget is there however small a part of the variance it is
    np.testing.assert_allclose([fit.model.nugget for fit in fits], 0.0365, rtol=5e-3)


@pytest.mark.slow
def test_smoothness_that_grows_for_ever_is_said_in_words():
    assert "Gaussian limit" in GAUSSIAN["expect"]
    with pytest.warns(gx.GeomxpWarning, match="smoothness goes to infinity") as caught:
        fit = fitted(GAUSSIAN)
    assert 'the family is "gaussian"' in str(caught[0].message)
    assert fit.log_likelihood == pytest.approx(-73.74, abs=5e-3)
    limit = gx.fit(fit.observations, family="gaussian", trend=fit.trend.text)
    assert 0 < limit.log_likelihood - fit.log_likelihood < 0.02


def test_fit_at_the_smoothness_where_another_program_stops_is_that_programs():
    """SpaMM's bound, all its digits."""
    fit = fitted(GAUSSIAN, fixed={"smoothness": 25.0})
    assert fit.log_likelihood == pytest.approx(-73.7399052531, abs=1e-9)


def test_nugget_on_its_boundary_is_zero_and_said_so():
    fit = fitted(ON_BOUNDARY)
    assert fit.model.nugget == 0.0
    assert fit.log_likelihood == pytest.approx(-83.5695736956, abs=1e-9)
    assert fit.log_likelihood == pytest.approx(fitted(FITS[0]).log_likelihood, abs=1e-9)
    assert "nugget is 0, its lower limit" in fit.outcome.message
    assert fit.standard_errors["nugget"] is None


def test_fit_is_not_below_the_truth_where_the_nugget_is_a_trace():
    """A nugget of 1e-10 of the variance counts for many units of a smooth field's likelihood."""
    places = np.random.default_rng(1).random((150, 2))
    truth = gx.Matern(1.0, 2.0, 2.5, 1e-10)
    seen = gx.Observations(places, gx.simulate(truth, places, seed=1)[0])
    fit = gx.fit(seen, fixed={"smoothness": 2.5}, trend="zero")
    assert fit.log_likelihood > gx.log_likelihood(seen, truth).log_likelihood
    assert fit.model.nugget > 0
