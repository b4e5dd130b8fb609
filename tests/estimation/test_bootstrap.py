from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2, kstest

import geomxp as gx
from geomxp.prediction.simulate import lay_out

TRUTH = gx.Matern(2.0, 0.1, 0.5, 0.2)


@pytest.fixture(scope="module")
def field():
    places = lay_out(81, "jittered", 3)
    values = gx.simulate(TRUTH, places, seed=4)[0] + 3.0 - 2.0 * places[:, 0]
    return gx.Observations(places, values)


@pytest.fixture(scope="module")
def variance_only(field):
    """σ² alone, and a trend: everything has a closed form."""
    held = {"range": 0.1, "smoothness": 0.5, "nugget": 0.0}
    return gx.fit(field, fixed=held, trend="linear")


@pytest.fixture(scope="module")
def many(variance_only):
    return gx.bootstrap(variance_only, draws=400, seed=1)


@pytest.fixture(scope="module")
def whole(field):
    return gx.fit(field, fixed={"smoothness": 0.5})


@pytest.fixture(scope="module")
def some(whole):
    return gx.bootstrap(whole, draws=12, seed=5)


@pytest.mark.slow
def test_estimates_of_the_variance_have_their_chi_square(variance_only, many):
    # n σ̂²/σ² is chi-square with n - p degrees of freedom, at the estimate as the truth
    n, p = len(variance_only.observations), 3
    found = n * many.estimates["variance"] / variance_only.model.variance
    assert kstest(found, chi2(n - p).cdf).pvalue > 1e-3
    error = variance_only.model.variance * np.sqrt(2 * (n - p)) / n
    # a standard deviation of 400 draws is known to 1/√800
    assert many.standard_errors["variance"] == pytest.approx(error, rel=4 / np.sqrt(800))
    bias = -p / n * variance_only.model.variance
    assert many.bias["variance"] == pytest.approx(bias, abs=4 * error / 20)


@pytest.mark.slow
def test_coefficients_vary_as_generalised_least_squares_says(variance_only, many):
    names = variance_only.trend.names
    for name, value, error in zip(
        names, variance_only.coefficients, variance_only.coefficient_errors, strict=True
    ):
        column = f"trend: {name}"
        assert many.standard_errors[column] == pytest.approx(error, rel=4 / np.sqrt(800))
        assert many.estimates[column].mean() == pytest.approx(value, abs=4 * error / 20)


@pytest.mark.slow
def test_percentiles_are_those_of_the_draws_and_basic_intervals_their_reflection(many):
    value = many.estimate["variance"]
    low, high = many.intervals(0.9)["variance"]
    share = ((many.estimates["variance"] > low) & (many.estimates["variance"] < high)).mean()
    assert share == pytest.approx(0.9, abs=2 / 400)
    basic = many.intervals(0.9, "basic")["variance"]
    assert basic == pytest.approx((value**2 / high, value**2 / low), rel=1e-12)
    slope, (low, high) = many.estimate["trend: x"], many.intervals(0.9)["trend: x"]
    basic = many.intervals(0.9, "basic")["trend: x"]
    assert basic == pytest.approx((2 * slope - high, 2 * slope - low), rel=1e-12)


@pytest.mark.slow
def test_basic_interval_of_a_nugget_stays_at_zero_or_above(some):
    lower, upper = some.intervals(0.95, "basic")["nugget"]
    assert 0 <= lower < upper


@pytest.mark.slow
def test_columns_are_what_was_estimated_and_the_microergodic_parameter(whole, some):
    expected = ["variance", "range", "nugget", "trend: intercept", "microergodic"]
    assert list(some.estimates.columns) == expected == list(some.estimate)
    ratio = some.estimates["variance"] / some.estimates["range"]
    np.testing.assert_allclose(some.estimates["microergodic"], ratio, rtol=1e-12)
    known = whole.derived()["microergodic"].value
    assert some.estimate["microergodic"] == pytest.approx(known, rel=1e-12)


@pytest.mark.slow
def test_the_seed_is_all_that_the_draws_hang_on(whole, some):
    again = gx.bootstrap(whole, draws=12, seed=5)
    assert again.estimates.equals(some.estimates)
    other = gx.bootstrap(whole, draws=2, seed=6)
    assert not np.isclose(other.estimates["range"][0], some.estimates["range"][0])


@pytest.mark.slow
def test_a_draw_does_not_hang_on_how_many_there_are(whole, some):
    few = gx.bootstrap(whole, draws=4, seed=5)
    assert few.estimates.equals(some.estimates.loc[few.estimates.index])


@pytest.mark.slow
def test_each_draw_is_a_fit_of_simulated_values(field, whole, some):
    white = np.random.default_rng([5, 3, 3]).standard_normal(len(field))
    sigma = whole.model(field.locations, field.locations)
    lower = np.linalg.cholesky(sigma + whole.model.nugget * np.eye(len(field)))
    seen = gx.Observations(field.locations, whole.coefficients[0] + lower @ white)
    fit = gx.fit(seen, whole.model, fixed=("smoothness",))
    # two maxima, each to 1e-6 in ℓ
    assert some.estimates["range"][3] == pytest.approx(fit.model.range, rel=1e-3)
    assert some.estimates["trend: intercept"][3] == pytest.approx(fit.coefficients[0], rel=1e-3)


@pytest.mark.slow
def test_vecchias_approximation_with_all_neighbours_has_the_exact_standard_errors(variance_only):
    near = replace(variance_only, method=gx.Vecchia(len(variance_only.observations) - 1))
    found = gx.bootstrap(near, draws=60, seed=1).standard_errors["variance"]
    n = len(variance_only.observations)
    error = variance_only.model.variance * np.sqrt(2 * (n - 3)) / n
    assert found == pytest.approx(error, rel=4 / np.sqrt(120))


@pytest.mark.slow
def test_draws_keep_to_the_bounds_and_the_trend_of_the_fit(field):
    fit = gx.fit(
        field, fixed={"smoothness": 0.5}, bounds={"range": (0.1, 0.13)}, trend="linear", reml=True
    )
    found = gx.bootstrap(fit, draws=10, seed=2).estimates
    assert found["range"].between(0.1 * (1 - 1e-9), 0.13 * (1 + 1e-9)).all()
    assert "trend: y" in found


@pytest.mark.slow
def test_angles_are_counted_from_the_fits_own():
    places = lay_out(100, "jittered", 3)
    model = gx.Matern(1.0, 0.3, 0.5, 0.0, (178.0, 0.25))
    seen = gx.Observations(places, gx.simulate(model, places, seed=5)[0])
    fit = gx.fit(seen, model, fixed=("smoothness", "nugget"))
    angle = fit.model.anisotropy.angle
    found = gx.bootstrap(fit, draws=12, seed=1)
    assert (np.abs(found.estimates["anisotropy_angle"] - angle) <= 90).all()
    assert found.standard_errors["anisotropy_angle"] < 30


@pytest.mark.slow
def test_draws_without_an_estimate_are_counted_and_said():
    # twins with nearly no noise: the likelihood of many draws has no limit
    places = lay_out(64, "jittered", 3)
    places = np.vstack([places, places[:1]])
    model = gx.Matern(1.0, 0.3, 0.5, 3e-13)
    seen = gx.Observations(places, gx.simulate(model, places, seed=1)[0])
    fit = gx.fit(seen, model, fixed=("smoothness", "nugget"))
    fit = replace(fit, free=(*fit.free, "nugget"))
    found = gx.bootstrap(fit, draws=12, seed=3)
    lost = sum(found.failures.values())
    assert lost > 0
    assert len(found.estimates) == 12 - lost
    assert f"{lost} of 12 draws have no estimate and are left out" in str(found)
    assert all(name in str(found) for name in found.failures)


def test_table_and_text_show_every_parameter(some):
    frame, text = some.to_frame(0.9), str(some)
    assert list(frame["parameter"]) == list(some.estimate)
    assert (frame["lower"] <= frame["upper"]).all()
    assert all(name in text for name in some.estimate)
    assert "12 draws, seed 5" in text


def test_wrong_questions_have_one_line_answers(field, whole, some):
    for draws in (1, 2.5, True):
        with pytest.raises(gx.InvalidInput, match="`draws` must be a whole number of at least 2"):
            gx.bootstrap(whole, draws=draws)
    with pytest.raises(gx.InvalidInput, match="`seed` must be a whole number of at least 0"):
        gx.bootstrap(whole, seed=-1)
    with pytest.raises(gx.InvalidInput, match=r"`fit` must be a Fit"):
        gx.bootstrap(TRUTH)
    held = gx.fit(field, TRUTH, fixed=tuple(TRUTH.parameters()))
    with pytest.raises(gx.InvalidInput, match="nothing to estimate"):
        gx.bootstrap(held)
    with pytest.raises(gx.InvalidInput, match="no estimate"):
        gx.bootstrap(gx.fit(field, evaluations=2))
    with pytest.raises(gx.InvalidInput, match="`method` must be one of: percentile, basic"):
        some.intervals(method="bca")
    with pytest.raises(gx.InvalidInput, match="`level` must lie between 0 and 1"):
        some.intervals(95)
