"""Fits, predictions, draws and files of transformed values."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

import geomxp as gx
from geomxp import testing
from geomxp.likelihood.base import by_differences

FIELD = gx.Matern(0.5, 0.1, 0.5, 0.1)
HELD = {"smoothness": 0.5}
LAWS = {
    "log": gx.Log(),
    "sqrt": gx.Sqrt(),
    "boxcox": gx.BoxCox(0.3),
    "logit": gx.Logit(),
    "tukey-gh": gx.TukeyGH(0.5, 0.1, 3.0, 2.0),
}


def observations(name, n=200, seed=3, replicates=False):
    places = testing.places(n, seed=seed)
    if replicates:
        places = places[np.r_[np.arange(n // 2), np.arange(n // 2)]]
    z = gx.simulate(FIELD, places, seed=seed)[0]
    return gx.Observations(places, LAWS[name].inverse(z + {"sqrt": 4.0}.get(name, 1.0)))


@pytest.fixture(scope="module", params=LAWS)
def fitted(request):
    """A fit by each transformation."""
    return gx.fit(observations(request.param), fixed=HELD, transform=request.param, progress=False)


@pytest.mark.slow
def test_the_log_likelihood_is_that_of_the_values(fitted):
    seen, transform = fitted.observations, fitted.model.transform
    z, model = transform.transform(seen.values), fitted.gaussian.model
    sigma = model(seen.locations, seen.locations) + model.nugget * np.eye(len(seen))
    density = stats.multivariate_normal(np.full(len(seen), fitted.coefficients[0]), sigma)
    expected = density.logpdf(z) + transform.log_jacobian(seen.values).sum()
    assert fitted.log_likelihood == pytest.approx(expected, rel=1e-10)
    again = gx.log_likelihood(seen, fitted.model, trend="constant")
    assert again.log_likelihood == pytest.approx(expected, rel=1e-10)
    assert fitted.degrees_of_freedom == 4 + len(transform.declared)


@pytest.mark.slow
def test_the_end_is_a_maximum_in_all_parameters(fitted):
    seen = fitted.observations
    evaluator = gx.Exact().prepare(seen, np.ones((len(seen), 1)))
    slopes = by_differences(evaluator, fitted.model, fitted.free)
    assert set(fitted.model.transform.parameters()) <= set(fitted.free) | set(fitted.boundary)
    for name in fitted.free:
        assert abs(slopes[name]) * fitted.standard_errors[name] < 5e-3, name


@pytest.mark.slow
def test_predictions_are_back_transformed(fitted):
    new, transform = testing.places(6, seed=8), fitted.model.transform
    found, plain = gx.predict(fitted, new), gx.predict(fitted.gaussian, new)
    np.testing.assert_array_equal(found.median, transform.inverse(plain.mean))
    lower, upper = found.interval(0.9)
    for p, expected in ((0.05, lower), (0.95, upper), (0.5, found.median)):
        np.testing.assert_allclose(found.quantile(p), expected, rtol=1e-12)
        probability = [found.probability_above(y)[k] for k, y in enumerate(expected)]
        np.testing.assert_allclose(probability, 1 - p, rtol=1e-9)
    rough = found.interval(0.9, of="observation")
    assert (rough[0] < lower).all()
    assert (rough[1] > upper).all()
    draws = transform.inverse(
        plain.mean + np.sqrt(plain.variance) * np.random.default_rng(0).normal(size=(200_000, 6))
    )
    error = draws.std(axis=0) / np.sqrt(len(draws))
    assert (np.abs(draws.mean(axis=0) - found.mean) < 6 * error).all()
    assert (np.abs(draws.var(axis=0) / found.variance - 1) < 0.2).all()
    frame = found.to_frame()
    np.testing.assert_array_equal(frame["median"], found.median)
    raster = gx.predict_raster(fitted, cells=5)
    same = gx.predict(fitted, raster.coordinates.reshape(-1, 2))
    np.testing.assert_array_equal(raster.mean.ravel(), same.mean)
    np.testing.assert_array_equal(raster.interval()[1].ravel(), same.interval()[1])
    np.testing.assert_array_equal(raster.median.ravel(), same.median)


@pytest.mark.slow
def test_draws_have_the_distribution_of_predictions(fitted):
    new = testing.places(4, seed=8)
    draws, found = gx.simulate(fitted, new, draws=2000), gx.predict(fitted, new)
    for p in (0.1, 0.5, 0.9):
        share = (draws < found.quantile(p)).mean(axis=0)
        assert np.abs(share - p).max() < 5 * np.sqrt(p * (1 - p) / 2000)


@pytest.mark.slow
def test_a_saved_fit_has_its_transformation(fitted, tmp_path):
    fitted.save(tmp_path / "fit.json")
    again = gx.Fit.load(tmp_path / "fit.json")
    assert again.model == fitted.model
    new = testing.places(3, seed=8)
    np.testing.assert_array_equal(gx.predict(again, new).mean, gx.predict(fitted, new).mean)
    assert again.confidence_intervals() == fitted.confidence_intervals()


@pytest.mark.slow
def test_profile_intervals_contain_the_estimates(fitted):
    if not fitted.model.transform.declared:
        return
    names = [name for name in fitted.model.transform.parameters() if name in fitted.free]
    intervals = fitted.confidence_intervals(method="profile", names=names)
    for name in names:
        low, high = intervals[name]
        assert low < fitted.model.parameters()[name] < high
        held = {name: high} | HELD
        start = {n: v for n, v in fitted.model.parameters().items() if n not in held}
        there = gx.fit(
            fitted.observations,
            fixed=held,
            start=start,
            transform=fitted.model.transform,
            progress=False,
        )
        assert fitted.log_likelihood - there.log_likelihood == pytest.approx(1.9207, abs=2e-2)


@pytest.mark.slow
@pytest.mark.parametrize("method", [gx.Exact(), gx.Vecchia(30)])
def test_averages_over_blocks_are_those_of_draws(method):
    fit = gx.fit(observations("log"), fixed=HELD, transform="log", method=method, progress=False)
    centres = np.array([[0.5, 0.5], [0.2, 0.7]])
    found = gx.predict(fit, centres, block=0.2, discretisation=4, draws=3000)
    steps = (np.arange(4) - 1.5) * 0.05
    nodes = (centres[:, None] + np.stack(np.meshgrid(steps, steps), -1).reshape(-1, 2)).reshape(
        -1, 2
    )
    # E exp Z = exp(m + v/2), node by node; 0.05 is exact in neither
    means = gx.predict(fit, nodes).mean.reshape(2, 16).mean(axis=1)
    error = np.sqrt(found.variance / 3000)
    assert (np.abs(found.mean - means) < 5 * error + 0.02 * means).all()
    lower, upper = found.interval(0.9)
    assert (lower < found.median).all()
    assert (found.median < upper).all()
    np.testing.assert_allclose(found.probability_above(float(found.median[0]))[0], 0.5, atol=1e-3)
    # averages vary less than the field at a point
    assert (found.variance < gx.predict(fit, centres).variance).all()
    again = gx.predict(fit, centres, block=0.2, discretisation=4, draws=3000)
    np.testing.assert_array_equal(again.mean, found.mean)
    raster = gx.predict_raster(fit, cells=3, block=True)
    assert np.isfinite(raster.mean).all()
    assert (raster.interval()[0] < raster.median).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sign", "bounds", "method"),
    [
        (1, None, gx.Exact()),
        (-1, None, gx.Vecchia(10)),
        (-1, {"boxcox_power": (0.2, 0.9)}, gx.Exact()),
    ],
)
def test_a_power_on_which_the_likelihood_does_not_depend_is_not_identified(sign, bounds, method):
    places = testing.places(70, seed=4)
    # values are skewed to one side, so that the search ends at a bound
    values = 5.2e3 + 0.02 * sign * np.exp(gx.simulate(FIELD, places, seed=6)[0])
    fit = gx.fit(
        gx.Observations(places, values),
        fixed=HELD,
        transform="boxcox",
        bounds=bounds,
        method=method,
        progress=False,
        raise_on_failure=False,
    )
    assert fit.outcome.ending is gx.Ending.UNIDENTIFIED
    assert "The boxcox power is not identifiable" in fit.outcome.message
    assert "boxcox_power" in fit.outcome.options["fixed"]
    held = gx.fit(
        gx.Observations(places, values),
        **{"transform": "boxcox", "method": method, "progress": False} | fit.outcome.options,
    )
    assert held.outcome.good
    assert held.log_likelihood > fit.log_likelihood - 0.1


def test_a_power_at_its_bound_that_the_data_determine_is_on_its_bound():
    places = testing.places(70, seed=4)
    values = np.exp(gx.simulate(FIELD, places, seed=6)[0])
    about = {"fixed": HELD, "transform": "boxcox", "progress": False}
    fit = gx.fit(gx.Observations(places, values), bounds={"boxcox_power": (0.9, 1.0)}, **about)
    assert fit.outcome.ending is gx.Ending.ON_BOUND
    assert "poorly determined" not in fit.outcome.message
    # all powers are in the interval
    left = gx.Observations(places, 60 - gx.simulate(FIELD, places, seed=6)[0])
    slightly = gx.fit(left, **about)
    assert slightly.outcome.ending is gx.Ending.ON_BOUND
    assert "The boxcox power is poorly determined" in slightly.outcome.message
    ends = slightly.confidence_intervals(method="profile", names=["boxcox_power"])
    assert ends["boxcox_power"] == (-3.0, 3.0)


@pytest.fixture(scope="module")
def without_moments():
    """Fits at given parameters whose predictions have no moments, some of them or anywhere."""
    places = testing.places(40, seed=5)
    z = gx.simulate(gx.Matern(0.04, 0.3, 0.5, 0.01), places, seed=2)[0]
    fits = {}
    for law in (gx.BoxCox(-0.8), gx.BoxCox(-1.4), gx.TukeyGH(0.2, 0.9)):
        scale = 1.0 if law.name == "boxcox" else 25.0
        values = law.inverse(np.sqrt(scale) * z)
        model = gx.Matern(0.04, 0.3, 0.5, 0.01).scaled(scale)
        start = gx.Matern(model.variance, 0.3, 0.5, model.nugget, transform=law)
        held = tuple(start.parameters())
        seen = gx.Observations(places, values)
        fits[law] = gx.fit(seen, start, fixed=held, progress=False)
    return fits


def test_moments_that_do_not_exist_are_said_once_and_quantiles_are_given(without_moments):
    new = testing.places(9, seed=8) * 3
    for law, fit in without_moments.items():
        with pytest.warns(gx.GeomxpWarning) as caught:
            found = gx.predict(fit, new)
        assert len(caught) == 1
        assert law.moment_rule in str(caught[0].message)
        plain = gx.predict(fit.gaussian, new)
        columns = found.to_frame(of="observation")
        for name, k, noise in (
            ("mean", 1, 0.0),
            ("variance", 2, 0.0),
            ("variance_of_observation", 2, plain.noise),
        ):
            expected = law.moment_order(plain.variance + noise) <= k
            if law.name == "boxcox" and not expected.all():
                # the mean of a power of -1.4
                expected = plain.mean + 4.9 * np.sqrt(plain.variance) > -1 / law.boxcox_power
                assert 0 < expected.sum() < len(new)
            np.testing.assert_array_equal(np.isinf(columns[name]), expected, err_msg=name)
            assert f"{name} in {expected.sum()}" in str(caught[0].message)
        np.testing.assert_array_equal(columns["median"], law.inverse(plain.mean))
        assert np.isfinite(found.quantile(0.5, of="observation")).all()


def test_averages_and_draws_without_moments_are_said(without_moments):
    new = testing.places(4, seed=8) * 3
    for law, fit in without_moments.items():
        with pytest.warns(gx.GeomxpWarning, match="moments that do not exist") as caught:
            found = gx.predict(fit, new, block=0.1, discretisation=2, draws=50)
        assert len(caught) == 1
        assert np.isinf(found.variance).any()
        assert np.isfinite(found.median).all()
        if law == gx.BoxCox(-0.8):
            assert np.isinf([found.mean, found.variance]).all()
        with pytest.warns(gx.GeomxpWarning, match="the variance does not exist at") as caught:
            draws = gx.simulate(fit, new, draws=50)
        assert len(caught) == 1
        assert "quantiles" in str(caught[0].message)
        assert draws.shape == (50, 4)


@pytest.mark.slow
def test_the_logarithm_is_box_cox_of_power_0():
    seen = observations("log")
    logs = gx.fit(seen, fixed=HELD, transform="log", progress=False)
    power = gx.fit(seen, fixed=HELD | {"boxcox_power": 0.0}, transform="boxcox", progress=False)
    assert power.log_likelihood == pytest.approx(logs.log_likelihood, abs=1e-5)
    new = testing.places(4, seed=8)
    means = [gx.predict(fit, new).mean for fit in (logs, power)]
    np.testing.assert_allclose(means[1], means[0], rtol=1e-3)
    free = gx.fit(seen, fixed=HELD, transform="boxcox", progress=False)
    test = gx.likelihood_ratio_test(power, free)
    assert test.degrees_of_freedom == 1
    assert 0 < test.p_value <= 1


def test_a_fit_of_logarithms_has_the_aic_of_the_values():
    seen = observations("log")
    logs = np.log(seen.values)
    by_hand = gx.fit(gx.Observations(seen.locations, logs), fixed=HELD, progress=False)
    fit = gx.fit(seen, fixed=HELD, transform="log", progress=False)
    assert fit.aic == pytest.approx(by_hand.aic + 2 * logs.sum(), abs=1e-5)
    assert fit.aic < gx.fit(seen, fixed=HELD, progress=False).aic


@pytest.fixture(scope="module")
def exact():
    return gx.fit(observations("tukey-gh"), fixed=HELD, transform="tukey-gh", progress=False)


@pytest.mark.slow
@pytest.mark.parametrize("method", [gx.Exact(tile=64), gx.Vecchia(199)])
def test_all_methods_find_the_same_parameters(exact, method):
    seen = exact.observations
    fit = gx.fit(seen, fixed=HELD, transform="tukey-gh", method=method, progress=False)
    assert fit.log_likelihood == pytest.approx(exact.log_likelihood, abs=1e-4)
    for name in exact.free:
        assert abs(fit.model.parameters()[name] - exact.model.parameters()[name]) < (
            0.05 * exact.standard_errors[name]
        )
        ratio = fit.standard_errors[name] / exact.standard_errors[name]
        assert 0.9 < ratio < 1.1


def test_replicates_and_known_errors_are_transformed_too():
    seen = observations("boxcox", replicates=True)
    fit = gx.fit(seen, fixed=HELD, transform="boxcox", reml=True, progress=False)
    assert fit.outcome.good
    z, n = fit.model.transform.transform(seen.values), len(seen)
    sigma = fit.model(seen.locations, seen.locations) + fit.model.nugget * np.eye(n)
    inverse = np.linalg.inv(sigma)
    information = inverse.sum()
    beta = (inverse @ z).sum() / information
    form = (z - beta) @ inverse @ (z - beta)
    expected = (n - 1) * np.log(2 * np.pi) + np.linalg.slogdet(sigma)[1] + np.log(information)
    expected = -0.5 * (expected + form) + fit.model.transform.log_jacobian(seen.values).sum()
    assert fit.log_likelihood == pytest.approx(expected, rel=1e-9)
    known = gx.Observations(seen.locations, seen.values, error_variance=np.full(n, 0.01))
    with_errors = gx.fit(known, fixed=HELD, transform="boxcox", reml=True, progress=False)
    assert with_errors.log_likelihood == pytest.approx(fit.log_likelihood, abs=1e-3)


@pytest.mark.slow
def test_symmetric_values_need_no_tails():
    places = testing.places(200, seed=3)
    z = gx.simulate(FIELD, places, seed=3)[0]
    uniform = gx.Observations(places, stats.norm.cdf(z / z.std()))
    fit = gx.fit(uniform, fixed=HELD, transform="tukey-gh", progress=False, raise_on_failure=False)
    assert fit.outcome.good
    assert fit.model.transform.tukey_h == 0.0
    assert "tukey_h" in fit.boundary


def test_validation_is_on_the_gaussian_scale():
    fit = gx.fit(observations("log"), fixed=HELD, transform="log", progress=False)
    left_out = gx.leave_one_out(fit)
    np.testing.assert_array_equal(left_out.observed, np.log(fit.observations.values))
    same = gx.leave_one_out(fit.gaussian)
    np.testing.assert_array_equal(left_out.mean, same.mean)
    folds = gx.cross_validate(fit, 5, refit=True)
    assert folds.observations.value_name == "log of value"


@pytest.mark.slow
def test_bootstrap_draws_are_fitted_with_their_transformation():
    fit = gx.fit(observations("boxcox", 100), fixed=HELD, transform="boxcox", progress=False)
    powers = gx.bootstrap(fit, draws=19, progress=False).estimates["boxcox_power"]
    low, high = powers.min(), powers.max()
    assert low < fit.model.transform.boxcox_power < high


def test_wrong_requests_are_refused():
    seen = gx.Observations(testing.places(5), np.arange(5.0))
    with pytest.raises(gx.InvalidInput, match="'log' needs values greater than 0"):
        gx.fit(seen, transform="log")
    with pytest.raises(gx.InvalidInput, match="`transform` must be one of"):
        gx.fit(seen, transform="lognormal")
    with pytest.raises(gx.InvalidInput, match="leave one out"):
        gx.fit(seen, gx.Matern(1.0, 1.0, 0.5, transform="sqrt"), transform="log")
    fit = gx.fit(observations("log"), fixed=HELD, transform="log", progress=False)
    with pytest.raises(gx.InvalidInput, match="leave `neighbours` and `local_trend` out"):
        gx.predict(fit, [[0.5, 0.5]], block=0.1, neighbours=10)
    with pytest.raises(gx.InvalidInput, match="a block has no new observation"):
        gx.predict(fit, [[0.5, 0.5]], block=0.1).quantile(0.5, of="observation")
    with pytest.raises(gx.InvalidInput, match=r"`p` must be between 0 and 1\. Got 1\.0"):
        gx.predict(fit, [[0.5, 0.5]]).quantile(1.0)
    with pytest.raises(gx.InvalidInput, match="`threshold` must be a finite number"):
        gx.predict(fit, [[0.5, 0.5]]).probability_above(np.nan)
    assert gx.predict(fit, [[0.5, 0.5]]).probability_above(-1.0) == 1.0


@pytest.mark.slow
def test_transformations_are_ranked_by_the_aic_of_the_values():
    seen = observations("log")
    options = {"smoothness": (0.5,), "transforms": ("none", "log", "boxcox"), "progress": False}
    ranking = gx.compare_models(seen, **options)
    frame = ranking.to_frame().set_index("transform")
    assert ranking.best.model.transform.name in ("log", "boxcox")
    assert frame["aic"]["none"] > frame["aic"]["log"] + 10
    logs = gx.fit(seen, fixed=HELD, transform="log", progress=False)
    assert frame["aic"]["log"] == pytest.approx(logs.aic, abs=1e-3)
    assert frame["estimate_boxcox_power"].notna().sum() == 1
    assert "boxcox" in str(ranking)
    with pytest.raises(gx.InvalidInput, match="`transform` must be one of"):
        gx.compare_models(seen, transforms=("none", "cube"))


@pytest.mark.parametrize("transform", ["sqrt", "boxcox"])
def test_bootstrap_draws_beyond_the_range_are_refused(transform):
    zinc = gx.datasets.load("meuse", values="zinc")
    fit = gx.fit(zinc, fixed=HELD, transform=transform, progress=False)
    with pytest.raises(gx.InvalidInput, match="beyond the range of the transformation"):
        gx.bootstrap(fit, draws=5, progress=False)


def test_the_gaussian_fit_has_the_likelihood_of_its_own_values():
    fit = gx.fit(observations("boxcox"), fixed=HELD, transform="boxcox", progress=False)
    own = gx.log_likelihood(fit.gaussian.observations, fit.gaussian.model, trend="constant")
    assert fit.gaussian.log_likelihood == pytest.approx(own.log_likelihood, rel=1e-12)


def test_another_transformation_is_not_loaded(tmp_path):
    fit = gx.fit(observations("log"), fixed=HELD, transform="log", progress=False)
    fit.save(tmp_path / "fit.json")
    with pytest.raises(gx.InvalidInput, match="give the transformation of the fit"):
        gx.Fit.load(tmp_path / "fit.json", transform="sqrt")


def test_a_parameter_without_upper_limit_can_be_searched():
    @dataclass(frozen=True)
    class Shifted(gx.Transformation):
        name = "shifted"
        support = (0.0, np.inf)
        declared = (gx.Parameter("shift", 0.5),)
        shift: float = 0.5

        def transform(self, values):
            return np.log(values + self.shift)

        def inverse(self, z):
            return np.exp(z) - self.shift

        def log_jacobian(self, values):
            return -np.log(values + self.shift)

    z = gx.simulate(FIELD, testing.places(200, seed=3), seed=3)[0]
    seen = gx.Observations(testing.places(200, seed=3), np.exp(z + 2.0) - 0.5)
    fit = gx.fit(seen, fixed=HELD, transform=Shifted, progress=False)
    low, high = fit.confidence_intervals()["shift"]
    assert low < 0.5 < high


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [{"seed": -1}, {"seed": 1.5}, {"draws": 1}])
def test_wrong_draws_of_block_averages_are_refused(wrong):
    fit = gx.fit(observations("log"), fixed=HELD, transform="log", progress=False)
    with pytest.raises(gx.InvalidInput, match="must be a whole number"):
        gx.predict(fit, [[0.5, 0.5]], block=0.1, **wrong)


@pytest.mark.parametrize("method", [gx.Exact(), gx.Vecchia(10)], ids=["exact", "vecchia"])
def test_a_transformation_alone_may_be_estimated(method):
    seen, model = observations("boxcox", 100), gx.Matern(1.0, 0.1, 0.5, 0.1)
    held = tuple(model.parameters())
    fit = gx.fit(seen, model, method, fixed=held, transform="boxcox", progress=False)
    assert fit.free == ("boxcox_power",)
    errors = fit.standard_errors
    power, step = fit.model.parameters()["boxcox_power"], 0.2 * errors["boxcox_power"]
    values = [
        gx.log_likelihood(
            *(seen, fit.model.replace(boxcox_power=power + k * step), method),
            trend=fit.trend.text or "constant",
        ).log_likelihood
        for k in (-1, 0, 1)
    ]
    bend = (values[0] - 2 * values[1] + values[2]) / step**2
    assert errors["boxcox_power"] == pytest.approx((-bend) ** -0.5, rel=0.02)
