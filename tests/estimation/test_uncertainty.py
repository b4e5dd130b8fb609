import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import chi2, norm

import geomxp as gx
from geomxp.estimation.profile import SETTLED_GAIN, Path, end_by_search, end_of
from geomxp.likelihood.trend import Trend
from geomxp.prediction.simulate import lay_out

TRUTH = gx.Matern(2.0, 0.1, 0.5, 0.2)
DROP = 0.5 * chi2.ppf(0.95, 1)
Z = norm.ppf(0.975)


@pytest.fixture(scope="module")
def field():
    places = lay_out(144, "jittered", 3)
    return gx.Observations(places, gx.simulate(TRUTH, places, seed=4)[0])


@pytest.fixture(scope="module")
def plain(field):
    return gx.fit(field, fixed={"smoothness": 0.5})


@pytest.fixture(scope="module")
def noiseless(field):
    bare = gx.Matern(2.0, 0.1, 0.5)
    return gx.Observations(field.locations, gx.simulate(bare, field.locations, seed=8)[0])


@pytest.fixture(scope="module")
def rough(noiseless):
    """All four parameters free: the nugget ends at 0."""
    return gx.fit(noiseless)


def variance_only(seen, **options):
    held = {"range": 0.1, "smoothness": 0.5, "nugget": 0.0}
    return gx.fit(seen, fixed=held, **options)


def closed_form(share, drop):
    """Ends of {x : ½m(x - 1 - log x) < drop}, x = σ̂²/σ², as σ²/σ̂²; share = m."""

    def excess(x):
        return 0.5 * share * (x - 1 - np.log(x)) - drop

    return 1 / brentq(excess, 1, 50, xtol=1e-14), 1 / brentq(excess, 1e-6, 1, xtol=1e-14)


@pytest.mark.slow
def test_criteria_count_a_nugget_that_was_estimated_as_zero(rough):
    assert rough.boundary == ("nugget",)
    # variance, range, smoothness, nugget and the constant
    assert rough.degrees_of_freedom == 5
    assert rough.aic == 2 * 5 - 2 * rough.log_likelihood


@pytest.mark.parametrize("kind", ["observed", "expected"])
def test_a_fit_of_nothing_has_information_of_order_zero(field, kind):
    held = gx.fit(field, TRUTH, fixed=tuple(TRUTH.parameters()))
    assert gx.information(held, kind).shape == (0, 0)


def test_wald_interval_is_the_delta_method_on_the_logarithm(plain):
    for name, (lower, upper) in plain.confidence_intervals().items():
        value = plain.model.parameters()[name]
        half = Z * plain.standard_errors[name] / value
        assert lower == pytest.approx(value * np.exp(-half), rel=1e-12)
        assert upper == pytest.approx(value * np.exp(half), rel=1e-12)


def test_wald_interval_of_an_angle_is_symmetric_and_that_of_a_ratio_stays_below_one():
    places = lay_out(144, "jittered", 3)
    model = gx.Matern(1.0, 0.3, 0.5, 0.05, (30.0, 0.35))
    seen = gx.Observations(places, gx.simulate(model, places, seed=5)[0])
    fit = gx.fit(seen, model, fixed=("smoothness",))
    angle, ratio = fit.model.anisotropy.angle, fit.model.anisotropy.ratio
    lower, upper = fit.confidence_intervals()["anisotropy_angle"]
    assert upper - angle == pytest.approx(Z * fit.standard_errors["anisotropy_angle"], rel=1e-9)
    assert angle - lower == pytest.approx(upper - angle, rel=1e-9)
    assert ratio < fit.confidence_intervals(1 - 1e-12)["anisotropy_ratio"][1] == 1.0
    assert_ends_are_where_the_profile_has_fallen(fit, seen, ["anisotropy_angle"])


@pytest.mark.parametrize("method", ["wald", "profile"])
def test_intervals_hold_the_estimate_and_grow_with_the_level(plain, method):
    narrow, wide = (plain.confidence_intervals(level, method) for level in (0.5, 0.9))
    for name, value in plain.model.parameters().items():
        if name == "smoothness":
            continue
        assert wide[name][0] < narrow[name][0] < value < narrow[name][1] < wide[name][1]


@pytest.mark.parametrize(("trend", "reml"), [("zero", False), ("linear", False), ("linear", True)])
def test_profile_interval_of_the_variance_alone_is_the_closed_form(field, trend, reml):
    fit = variance_only(field, trend=trend, reml=reml)
    share = len(field) - (3 if reml else 0)
    expected = fit.model.variance * np.array(closed_form(share, DROP))
    ends = fit.confidence_intervals(method="profile")["variance"]
    # ℓ is met to SETTLED_GAIN; its slope by log σ² at the ends is near √(2 DROP n/2)
    np.testing.assert_allclose(ends, expected, rtol=2 * SETTLED_GAIN / np.sqrt(DROP * share))


def assert_ends_are_where_the_profile_has_fallen(fit, seen, names=None, **options):
    """Each end against a fit of its own with the parameter held there."""
    values = fit.model.parameters()
    held = {n: v for n, v in values.items() if n not in fit.free + fit.boundary}
    for name, ends in fit.confidence_intervals(method="profile", names=names).items():
        for end in ends:
            if not np.isfinite(end) or end == 0:
                continue
            again = gx.fit(
                seen,
                fit.model,
                fit.method,
                fixed=held | {name: end},
                trend=fit.trend.kind,
                reml=fit.reml,
                raise_on_failure=False,
                **options,
            )
            fall = fit.log_likelihood - again.log_likelihood
            assert fall == pytest.approx(DROP, abs=1e-4), (name, end)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"fixed": {"smoothness": 0.5}},
        {"fixed": {"smoothness": 0.5}, "trend": "linear", "reml": True},
        {"fixed": {"nugget": 0.2}},
        {"fixed": {"smoothness": 0.5}, "method": gx.Vecchia(10)},
    ],
    ids=["ml", "reml", "smoothness", "vecchia"],
)
def test_profile_ends_are_where_the_profile_has_fallen_by_half_a_quantile(field, options):
    fit = gx.fit(field, **options)
    assert fit.outcome.good
    assert_ends_are_where_the_profile_has_fallen(fit, field)


def test_search_from_bracket_to_bracket_finds_the_same_end(plain):
    path = Path(plain)
    j = path.names.index("range")
    for sign in (-1, 1):
        # both meet ℓ to a few 1e-5, where its slope by log a is above 1
        ends = end_of(path, j, sign, DROP), end_by_search(path, j, sign, DROP)
        assert ends[0] == pytest.approx(ends[1], abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["wald", "profile"])
def test_intervals_know_no_units(field, plain, method):
    length, value = 1000.0, 8.0
    other = gx.Observations(length * field.locations, value * field.values)
    again = gx.fit(other, fixed={"smoothness": 0.5}).confidence_intervals(method=method)
    units = {"variance": value**2, "range": length, "nugget": value**2}
    for name, ends in plain.confidence_intervals(method=method).items():
        # of a maximum known to 1e-6, and of ends to 1e-5, in ℓ
        np.testing.assert_allclose(again[name], np.multiply(ends, units[name]), rtol=1e-3)


@pytest.mark.slow
def test_nugget_at_zero_has_an_interval_from_zero_and_lets_the_others_go_farther(noiseless, rough):
    assert rough.boundary == ("nugget",)
    assert "nugget" not in rough.free
    ends = rough.confidence_intervals(method="profile")
    assert ends["nugget"][0] == 0 < ends["nugget"][1]
    assert "nugget" not in rough.confidence_intervals()
    held = gx.fit(noiseless, rough.model, fixed=("nugget",))
    without = held.confidence_intervals(method="profile")
    # a nugget makes up for a smoother field
    assert without["smoothness"][1] < 2 < ends["smoothness"][1]
    assert_ends_are_where_the_profile_has_fallen(rough, noiseless, ["smoothness", "nugget"])


def test_end_is_zero_where_no_nugget_is_not_refused():
    seen = gx.datasets.load("meuse")
    fit = gx.fit(seen, fixed={"smoothness": 0.5}, trend="covariates")
    assert fit.model.nugget > 0
    assert fit.confidence_intervals(method="profile")["nugget"][0] == 0
    none = gx.fit(seen, fixed={"smoothness": 0.5, "nugget": 0.0}, trend="covariates")
    assert fit.log_likelihood - none.log_likelihood < DROP


@pytest.mark.slow
def test_end_is_infinity_where_the_supremum_is_at_infinity():
    seen = gx.datasets.load("meuse")
    with pytest.warns(gx.GeomxpWarning, match="AT_LIMIT: .* as the range goes to infinity"):
        fit = gx.fit(seen, fixed={"smoothness": 0.5}, reml=True)
    assert fit.boundary == ("range",)
    ends = fit.confidence_intervals(method="profile")
    assert ends["range"][1] == np.inf == ends["variance"][1]
    assert 0 < ends["nugget"][0] < ends["nugget"][1] < 0.2
    again = gx.fit(seen, fixed={"smoothness": 0.5, "range": ends["range"][0]}, reml=True)
    assert fit.log_likelihood - again.log_likelihood == pytest.approx(DROP, abs=2e-3)
    assert set(fit.confidence_intervals()) == {"variance", "nugget"}


@pytest.mark.slow
def test_ends_stay_where_a_parameter_can_be(field):
    isotropic = gx.fit(field, fixed={"smoothness": 0.5}, anisotropy=True)
    names = ("anisotropy_angle", "anisotropy_ratio")
    ends = isotropic.confidence_intervals(method="profile", names=names)
    # this field has no direction: any angle, and a ratio of 1, will do
    angle = isotropic.model.anisotropy.angle
    assert ends["anisotropy_angle"] == (angle - 90, angle + 90)
    assert ends["anisotropy_ratio"][0] < isotropic.model.anisotropy.ratio
    assert ends["anisotropy_ratio"][1] == 1.0


@pytest.mark.slow
def test_great_circle_smoothness_ends_at_one_half():
    seen = gx.datasets.load("ozone", metric="great-circle")
    fit = gx.fit(seen)
    assert 0.2 < fit.model.smoothness < 0.5
    assert fit.confidence_intervals(method="profile", names="smoothness")["smoothness"][1] == 0.5


def test_bounds_of_the_fit_bound_its_profiles(field, plain):
    whole = plain.confidence_intervals(method="profile")["range"]
    assert whole[1] > 1.05 * plain.model.range
    top = 1.05 * plain.model.range
    fit = gx.fit(field, fixed={"smoothness": 0.5}, bounds={"range": (0.01, top)})
    ends = fit.confidence_intervals(method="profile", names=["range"])["range"]
    assert ends[1] == top
    assert ends[0] == pytest.approx(whole[0], rel=1e-3)


def test_a_parameter_on_its_bound_has_a_profile_to_one_side(field):
    fit = gx.fit(field, fixed={"smoothness": 0.5}, bounds={"range": (0.2, 3.0)})
    assert fit.boundary == ("range",)
    lower, upper = fit.confidence_intervals(method="profile", names=["range"])["range"]
    assert lower == 0.2 < upper < 3.0
    with pytest.raises(gx.InvalidInput, match=r"range is at a bound.*profile"):
        fit.confidence_intervals(names=["range"])


def test_mixed_formats_have_the_intervals_of_fp64(field, plain):
    method = gx.Exact(gx.by_tile_norm(1e-6), tile=48)
    fit = gx.fit(field, method=method, fixed={"smoothness": 0.5})
    mixed = fit.confidence_intervals(method="profile", names=["range"])["range"]
    whole = plain.confidence_intervals(method="profile", names=["range"])["range"]
    # ℓ is met to 1e-3 there, and the slope by log a is above 1
    np.testing.assert_allclose(mixed, whole, rtol=3e-3)


def test_a_higher_point_on_the_way_is_said(plain):
    model = replace(plain.model, variance=0.8 * plain.model.variance)
    below = replace(plain, model=model)
    with pytest.warns(gx.GeomxpWarning, match=r"log-likelihood higher by .* Fit again from Matern"):
        below.confidence_intervals(method="profile", names=["variance"])


def test_saved_fits_have_the_same_intervals(field, tmp_path):
    fit = gx.fit(field, fixed={"smoothness": 0.5}, bounds={"range": (0.01, 0.2)})
    fit.save(tmp_path / "fit.json")
    again = gx.Fit.load(tmp_path / "fit.json")
    for method in ("wald", "profile"):
        assert again.confidence_intervals(method=method) == fit.confidence_intervals(method=method)


def test_nothing_estimated_has_no_intervals(field):
    fit = gx.fit(field, TRUTH, fixed=tuple(TRUTH.parameters()))
    assert fit.confidence_intervals() == fit.confidence_intervals(method="profile") == {}
    assert fit.derived() == {}


def test_microergodic_parameter_has_the_delta_methods_interval(plain):
    covariance = np.linalg.inv(plain.information)
    slope = np.array([{"variance": 1.0, "range": -1.0}.get(name, 0.0) for name in plain.free])
    error = np.sqrt(slope @ covariance @ slope)
    known, model = plain.derived()["microergodic"], plain.model
    assert known.value == pytest.approx(model.variance / model.range, rel=1e-12)
    assert known.standard_error == pytest.approx(known.value * error, rel=1e-12)
    assert known.lower == pytest.approx(known.value * np.exp(-Z * error), rel=1e-12)
    assert known.upper == pytest.approx(known.value * np.exp(Z * error), rel=1e-12)


def test_effective_range_of_a_known_smoothness_is_as_well_known_as_the_range(plain):
    reach, ends = plain.derived()["effective_range"], plain.confidence_intervals()["range"]
    assert reach.value == pytest.approx(plain.model.effective_range(), rel=1e-12)
    growth = reach.value / plain.model.range
    assert (reach.lower, reach.upper) == pytest.approx(np.multiply(ends, growth), rel=1e-12)


def test_effective_range_is_better_known_than_the_range_where_the_smoothness_is_not(field):
    fit = gx.fit(field, fixed={"nugget": 0.2})
    reach = fit.derived()["effective_range"]
    assert reach.standard_error / reach.value < fit.standard_errors["range"] / fit.model.range


@pytest.mark.slow
def test_derived_quantities_are_those_of_what_was_estimated(field, plain, rough):
    assert set(plain.derived()) == {"microergodic", "effective_range", "nugget_ratio"}
    ratio = plain.derived()["nugget_ratio"]
    assert ratio.value == pytest.approx(plain.model.nugget / plain.model.variance, rel=1e-12)
    # a nugget of 0 has no logarithm
    assert "nugget_ratio" not in rough.derived()
    assert set(variance_only(field).derived()) == {"microergodic"}


def test_observed_information_is_minus_the_second_differences_of_the_log_likelihood(field, plain):
    point = np.log([plain.model.parameters()[name] for name in plain.free])

    def height(x):
        values = dict(zip(plain.free, np.exp(x), strict=True)) | {"smoothness": 0.5}
        model = gx.Matern(**values)
        return gx.log_likelihood(field, model, trend="constant").log_likelihood

    step, k = 3e-3, len(point)
    unit = step * np.eye(k)
    second = np.empty((k, k))
    for i in range(k):
        for j in range(k):
            corners = [(a, b) for a in (1, -1) for b in (1, -1)]
            total = sum(a * b * height(point + a * unit[i] + b * unit[j]) for a, b in corners)
            second[i, j] = total / (4 * step**2)
    # differences of second order, with a step of 3e-3, of a function with third derivatives near I
    scale = np.abs(plain.information).max()
    np.testing.assert_allclose(gx.information(plain), -second, rtol=0, atol=1e-3 * scale)


def test_information_of_a_file_without_it_is_found_again(plain):
    bare = replace(plain, information=None)
    scale = np.abs(plain.information).max()
    # the fit's own is of a point up to 1e-3 from the last one
    np.testing.assert_allclose(gx.information(bare), plain.information, rtol=0, atol=1e-3 * scale)
    for name, ends in plain.confidence_intervals().items():
        assert bare.confidence_intervals()[name] == pytest.approx(ends, rel=1e-3)


def test_expected_information_is_that_of_the_trace_formula(field, plain):
    model, places = plain.model, field.locations
    sigma = model(places, places) + model.nugget * np.eye(len(field))
    distances = np.linalg.norm(places[:, None] - places[None], axis=2) / model.range
    correlation = np.exp(-distances)
    by = {
        "variance": model.variance * correlation,
        "range": model.variance * correlation * distances,
        "nugget": model.nugget * np.eye(len(field)),
    }
    products = [np.linalg.solve(sigma, by[name]) for name in plain.free]
    expected = [[0.5 * np.trace(a @ b) for b in products] for a in products]
    found = gx.information(plain, "expected")
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_expected_information_of_vecchia_with_all_neighbours_is_exact(field, plain):
    fit = replace(plain, method=gx.Vecchia(len(field) - 1))
    np.testing.assert_allclose(
        gx.information(fit, "expected"), gx.information(plain, "expected"), rtol=1e-9
    )


@pytest.mark.slow
@pytest.mark.parametrize("reml", [False, True], ids=["ml", "reml"])
def test_scores_have_mean_zero_and_the_expected_information_as_covariance(reml):
    places, draws = lay_out(64, "jittered", 3), 300
    model = gx.Matern(1.5, 0.15, 0.8, 0.1)
    # without a trend, or with one that REML does not see
    kind = "linear" if reml else "zero"
    names = tuple(model.parameters())
    scores = []
    for values in gx.simulate(model, places, draws=draws, seed=20):
        seen = gx.Observations(places, values + (3.0 - 2.0 * places[:, 0] if reml else 0.0))
        design = Trend.of(seen, kind).design(places)
        evaluator = gx.Exact().prepare(seen, design, reml)
        gradient = evaluator.gradient(model, names)
        scores.append([gradient[name] for name in names])
    scores, information = np.array(scores), evaluator.expected_information(model, names)
    # white scores are uncorrelated, of mean 0 and variance 1: z-tests at 4 standard deviations
    white = np.linalg.solve(np.linalg.cholesky(information), scores.T)
    assert np.abs(white.mean(axis=1)).max() < 4 / np.sqrt(draws)
    # of the squares of nearly normal numbers
    moments = white @ white.T / draws
    assert np.abs(moments - np.eye(4)).max() < 4 * np.sqrt(3.0 / draws)


@pytest.mark.slow
def test_reml_estimates_the_variance_without_bias_and_ml_does_not():
    places, draws, truth = lay_out(16, "jittered", 1), 160, 2.0
    model = gx.Matern(truth, 0.2, 0.5)
    held = {"range": 0.2, "smoothness": 0.5, "nugget": 0.0}
    found = {True: [], False: []}
    for values in gx.simulate(model, places, draws=draws, seed=8):
        seen = gx.Observations(places, values + 1.0 + places[:, 0] - 4.0 * places[:, 1])
        for reml, estimates in found.items():
            fit = gx.fit(seen, fixed=held, trend="linear", reml=reml)
            estimates.append(fit.model.variance / truth)
    m = len(places) - 3
    # σ̂² m/σ² is chi-square with n - p degrees of freedom
    error = np.sqrt(2 / m / draws)
    assert abs(np.mean(found[True]) - 1) < 3 * error
    assert abs(np.mean(found[False]) - m / len(places)) < 3 * error
    # or the test would not see the difference
    assert 1 - m / len(places) > 6 * error


def test_a_ridge_is_said_with_the_parameter_that_the_data_know(field, plain):
    places, long = field.locations, gx.Matern(1.0, 2.0, 0.5, 0.01)
    seen = gx.Observations(places, gx.simulate(long, places, seed=5)[0])
    fit = gx.fit(seen, long, fixed=("smoothness",))
    covariance = np.linalg.inv(fit.information)
    i, j = fit.free.index("variance"), fit.free.index("range")
    correlation = covariance[i, j] / np.sqrt(covariance[i, i] * covariance[j, j])
    assert correlation > 0.95
    known = fit.derived()["microergodic"]
    said = f"the data determine variance/range = {known.value:.4g} (95 % interval"
    assert f"{said} {known.lower:.4g} to" in fit.outcome.message
    assert said in fit.outcome.message
    assert said in str(fit)
    error = fit.standard_errors["range"] / fit.model.range
    assert known.standard_error / known.value < 0.5 * error
    assert "not separately identifiable" not in plain.outcome.message


@pytest.mark.parametrize("level", [0, 1, -0.5, 95, "0.95", True, float("nan")])
def test_a_level_is_a_share(plain, level):
    for call in (plain.confidence_intervals, plain.derived):
        with pytest.raises(gx.InvalidInput, match="`level` must lie between 0 and 1"):
            call(level)


def test_wrong_questions_have_one_line_answers(field, plain):
    with pytest.raises(gx.InvalidInput, match=r"`method` must be one of: wald, profile. Got 'lr'"):
        plain.confidence_intervals(method="lr")
    with pytest.raises(gx.InvalidInput, match=r"estimated parameters: .*Got 'smoothness'"):
        plain.confidence_intervals(names=["smoothness"])
    with pytest.raises(gx.InvalidInput, match=r"`names` must be a sequence of parameters. Got 5"):
        plain.confidence_intervals(names=5)
    flat = replace(plain, information=np.zeros((3, 3)))
    with pytest.raises(gx.InvalidInput, match="not positive definite, so it has no standard"):
        flat.confidence_intervals()
    with pytest.raises(gx.InvalidInput, match="`kind` must be one of: observed, expected"):
        gx.information(plain, "average")
    with pytest.raises(
        gx.InvalidInput, match=r"`fit` must be a Fit, as gx.fit returns it. Got Matern"
    ):
        gx.information(TRUTH)
    stopped = gx.fit(field, evaluations=1)
    assert stopped.outcome.ending == "EVALUATION_LIMIT"
    for call in (stopped.confidence_intervals, stopped.derived, lambda: gx.information(stopped)):
        with pytest.raises(gx.InvalidInput, match=r"no estimate \(EVALUATION_LIMIT\).*again"):
            call()
    with pytest.raises(gx.InvalidInput, match="no estimate"):
        stopped.confidence_intervals(method="profile")


def test_one_name_stands_for_a_list_of_one(plain):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(plain.confidence_intervals(names="range")) == ["range"]
