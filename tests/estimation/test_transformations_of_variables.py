"""Transformations of several variables, against those of each variable and dense formulas."""

from dataclasses import replace

import numpy as np
import pytest

import geomxp as gx
from geomxp.covariance.transformation import ByVariable

N = 40
PLACES = np.repeat(np.random.default_rng(0).random((N, 2)), 2, axis=0)
VARIABLE = np.tile(["zinc", "ph"], N)
FIELD = gx.ParsimoniousMatern((0.5, 0.3), 0.3, (0.5, 0.8), 0.6, (0.05, 0.02))
HELD = {"smoothness_1": 0.5, "smoothness_2": 0.8}
BOTH = ByVariable((gx.BoxCox(0.3), gx.TukeyGH(0.2, 0.05)))
ROWS = np.array([0, 1, 1, 0, 0])
Y = np.array([1.5, -0.3, 2.0, 0.7, 3.0])


@pytest.fixture(scope="module")
def seen():
    z = gx.simulate(FIELD, PLACES, variable=np.tile([0, 1], N), seed=2)[0]
    values = np.where(VARIABLE == "zinc", np.exp(z), 7 + z)
    return gx.Observations(PLACES, values, variable=VARIABLE)


def gaussian(seen):
    """The same with logarithms of zinc, transformed by hand."""
    values = np.where(VARIABLE == "zinc", np.log(np.abs(seen.values)), seen.values)
    return gx.Observations(PLACES, values, variable=VARIABLE)


def jacobian(seen):
    return -np.log(seen.values[VARIABLE == "zinc"]).sum()


@pytest.mark.parametrize("what", ["transform", "log_jacobian", "inverse", "moment_order"])
def test_each_value_has_the_transformation_of_its_variable(what):
    y = np.abs(Y) if what == "moment_order" else Y
    found = getattr(BOTH.of(ROWS), what)(y)
    for x, k, one in zip(y, ROWS, found, strict=True):
        assert one == getattr(BOTH.transforms[k], what)(np.array([x]))[0]


def test_derivatives_are_those_of_the_variables():
    bound, names = BOTH.of(ROWS), ["boxcox_power_1", "tukey_g_2", "tukey_h_2"]
    assert list(BOTH.parameters()) == names
    (z, logs), (bends, more) = bound.slopes(Y), bound.bends(Y)
    for k, name in enumerate(names):
        value = BOTH.parameters()[name]
        high, low = (BOTH.with_values({name: value + s}).of(ROWS) for s in (1e-5, -1e-5))
        for found, what in ((z, "transform"), (logs, "log_jacobian")):
            change = (getattr(high, what)(Y) - getattr(low, what)(Y)) / 2e-5
            np.testing.assert_allclose(found[k], change, atol=1e-8)
        for found, order in ((bends, 0), (more, 1)):
            change = (high.slopes(Y)[order] - low.slopes(Y)[order]) / 2e-5
            np.testing.assert_allclose(found[k], change, atol=1e-7)


def test_draws_thresholds_and_supports_are_those_of_the_variables():
    both = ByVariable(("log", None)).of(np.array([0, 1]))
    z = np.random.default_rng(1).standard_normal((3, 4, 2))
    np.testing.assert_array_equal(both.inverse(z)[..., 0], np.exp(z[..., 0]))
    np.testing.assert_array_equal(both.inverse(z)[..., 1], z[..., 1])
    np.testing.assert_array_equal(both.threshold(2.0), [np.log(2.0), 2.0])
    np.testing.assert_array_equal(both.support, [[0, -np.inf], [np.inf, np.inf]])
    mean, variance = both.moments(np.zeros(2), np.ones(2))
    np.testing.assert_allclose(mean, [np.exp(0.5), 0.0], atol=1e-12)
    np.testing.assert_allclose(variance, [(np.e - 1) * np.e, 1.0], rtol=1e-12)
    assert both.of_rows(np.array([True, False])) == gx.covariance.transformation.Log()
    assert (both.name, BOTH.name) == ("log, identity", "boxcox, tukey-gh")
    assert ByVariable(("log", "log")).name == "log"


@pytest.mark.parametrize("method", [gx.Exact(), gx.Vecchia(2 * N - 1), gx.Exact(tile=24)], ids=str)
def test_the_likelihood_is_that_of_the_gaussian_values_and_the_jacobian(seen, method):
    model = replace(FIELD, transform=("log", None))
    found = gx.log_likelihood(seen, model, method).log_likelihood
    expected = gx.log_likelihood(gaussian(seen), FIELD, method).log_likelihood + jacobian(seen)
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("method", [gx.Exact(), gx.Vecchia(10)], ids=str)
def test_the_score_by_a_power_of_one_variable(seen, method):
    model = replace(FIELD, transform=("boxcox", None))
    assert list(model.parameters())[-1] == "boxcox_power_1"
    evaluator = method.prepare(seen, np.ones((2 * N, 1)), False)
    score = evaluator.derivatives(model, ("range", "boxcox_power_1")).score
    for name, slope in zip(("range", "boxcox_power_1"), score, strict=True):
        value = model.parameters()[name]
        high, low = (evaluator(model.replace(**{name: value + s})) for s in (1e-5, -1e-5))
        change = (high.log_likelihood - low.log_likelihood) / 2e-5
        assert slope == pytest.approx(change, rel=1e-5, abs=1e-4)


@pytest.fixture(scope="module")
def fit(seen):
    return gx.fit(seen, family="parsimonious-matern", transform={"zinc": "log"}, fixed=HELD)


@pytest.mark.slow
def test_a_fit_is_that_of_the_gaussian_values(fit, seen):
    by_hand = gx.fit(gaussian(seen), family="parsimonious-matern", fixed=HELD)
    assert fit.log_likelihood == pytest.approx(by_hand.log_likelihood + jacobian(seen), abs=1e-6)
    new = [[0.4, 0.5], [0.1, 0.9]]
    ours, theirs = gx.predict(fit, new), gx.predict(by_hand, new)
    zinc, ph = (ours.variable == name for name in ("zinc", "ph"))
    np.testing.assert_allclose(ours.median[zinc], np.exp(theirs.mean[zinc]), rtol=1e-4)
    np.testing.assert_allclose(ours.mean[ph], theirs.mean[ph], rtol=1e-4)
    lower, upper = ours.of_variable("zinc").interval()
    ends = theirs.of_variable("zinc").interval()
    np.testing.assert_allclose((lower, upper), np.exp(ends), rtol=1e-3)
    above, same = ours.probability_above(1.1), theirs.probability_above(np.log(1.1))
    np.testing.assert_allclose(above[zinc], same[zinc], rtol=1e-3, atol=1e-6)


@pytest.mark.slow
def test_it_is_read_back_drawn_mapped_validated_and_reported(fit, seen, tmp_path):
    assert "transformation log, identity" in str(fit)
    fit.save(tmp_path / "fit.json")
    again = gx.Fit.load(tmp_path / "fit.json")
    assert again.model == fit.model
    drawn = gx.simulate(fit, [[0.4, 0.5]], variable="zinc", draws=400, seed=1)
    assert (drawn > 0).all()
    point = gx.predict(fit, [[0.4, 0.5]], variable="zinc")
    assert np.median(drawn) == pytest.approx(point.median[0], rel=0.1)
    raster = gx.predict_raster(fit, cells=4, variable="zinc", progress=False)
    corner = gx.predict(fit, raster.coordinates.reshape(-1, 2), variable="zinc")
    np.testing.assert_allclose(raster.median.ravel(), corner.median, rtol=1e-12)
    other = gx.Observations(PLACES[:8] + 0.01, np.abs(seen.values[:8]), variable=VARIABLE[:8])
    held_out = gx.validate(fit, other)
    log_zinc = held_out.of_variable("zinc")
    assert log_zinc.transform.name == "log"
    np.testing.assert_allclose(
        log_zinc.standardised_errors,
        (np.log(log_zinc.observed) - log_zinc.gaussian[0]) / np.sqrt(log_zinc.gaussian[1]),
    )
    assert np.isfinite(list(held_out.scores().values())).all()
    gx.report(fit, tmp_path / "report.html")
    assert "log, identity" in (tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_powers_of_both_variables_are_estimated(seen):
    fit = gx.fit(seen, family="independent", transform="boxcox", fixed=HELD)
    assert {"boxcox_power_1", "boxcox_power_2"} <= set(fit.free)
    assert "boxcox power of zinc" in str(fit)
    assert abs(fit.model.transform.parameters()["boxcox_power_1"]) < 0.5
    alone = [
        gx.fit(seen.of_variable(name), transform="boxcox", fixed={"smoothness": s})
        for name, s in (("zinc", 0.5), ("ph", 0.8))
    ]
    assert fit.log_likelihood == pytest.approx(sum(f.log_likelihood for f in alone), abs=1e-4)


def test_wrong_transformations_are_named(seen):
    family = {"family": "parsimonious-matern", "fixed": HELD}
    with pytest.raises(gx.InvalidInput, match=r"must name variables: zinc, ph. Got 'zink'.*'zinc'"):
        gx.fit(seen, transform={"zink": "log"}, **family)
    with pytest.raises(gx.InvalidInput, match=r"one for each of the 2 variables\. Got 3"):
        gx.fit(seen, transform=("log", "log", "log"), **family)
    with pytest.raises(gx.InvalidInput, match=r"has one variable: give one `transform`\. Got 2"):
        gx.fit(seen.of_variable("ph"), transform=("log", "log"))
    negative = gx.Observations(PLACES, seen.values - 7.0, variable=VARIABLE)
    with pytest.raises(gx.InvalidInput, match="log"):
        gx.fit(negative, transform={"zinc": "log"}, **family)


def test_a_value_that_cannot_be_transformed_is_counted_in_its_variable():
    values, variable = np.array([1.0, 2.0, 3.0, -1.0, 4.0, 5.0]), np.arange(6) % 2
    seen = gx.Observations(np.arange(6.0)[:, None], values, variable=variable)
    with pytest.raises(gx.InvalidInput, match=r"variable 2, whose rows .* Got -1 in row 2"):
        gx.fit(seen, family="independent", transform="log", progress=False)
