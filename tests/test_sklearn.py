"""The scikit-learn estimator: scikit-learn's own checks, and that it is a thin one."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import (
    check_estimators_dtypes,
    check_fit_idempotent,
    parametrize_with_checks,
)

import geomxp as gx
from geomxp import testing
from geomxp.sklearn import GeoRegressor, independent_columns

HELD = {"smoothness": 0.5}


def meuse():
    seen = gx.datasets.load("meuse")
    return seen, np.hstack((seen.locations, seen.covariates)), seen.values


@pytest.fixture(scope="module")
def fitted():
    seen, X, y = meuse()
    return seen, X, y, GeoRegressor(smoothness=0.5).fit(X, y)


# random tables that scikit-learn makes have likelihoods without a maximum, and it is said
no_maximum = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.slow
@no_maximum
@parametrize_with_checks([GeoRegressor(smoothness=0.5, nugget=0.1)])
def test_scikit_learn_finds_an_estimator(estimator, check):
    check(estimator)


@pytest.mark.slow
@no_maximum
@pytest.mark.parametrize("check", [check_fit_idempotent, check_estimators_dtypes])
def test_scikit_learn_finds_an_estimator_that_searches_for_all_parameters(check):
    check("GeoRegressor", GeoRegressor())


def test_it_is_fit_and_predict_to_the_bit(fitted):
    seen, X, _, regressor = fitted
    fit = gx.fit(seen, fixed=HELD, trend="covariates")
    there = gx.predict(fit, seen.locations, seen.covariates)
    mean, error = regressor.predict(X, return_std=True)
    assert regressor.model_ == fit.model
    assert regressor.log_marginal_likelihood_value_ == fit.log_likelihood
    np.testing.assert_array_equal(mean, there.mean)
    np.testing.assert_array_equal(error, np.sqrt(there.variance))


def test_draws_have_the_mean_and_the_spread_of_predictions(fitted):
    _, X, _, regressor = fitted
    X = X[:4] + np.array([20.0, 20.0, 0.0])
    draws = regressor.sample_y(X, 4000, random_state=1)
    mean, error = regressor.predict(X, return_std=True)
    assert draws.shape == (4, 4000)
    # means within 4.5 standard errors, standard deviations within 4.5 / √(2·4000)
    assert (np.abs(draws.mean(axis=1) - mean) < 4.5 * error / np.sqrt(4000)).all()
    assert (np.abs(draws.std(axis=1) / error - 1) < 4.5 / np.sqrt(8000)).all()
    np.testing.assert_array_equal(draws, regressor.sample_y(X, 4000, random_state=1))


def test_parameters_that_are_given_are_held():
    _, X, y = meuse()
    regressor = GeoRegressor(smoothness=1.5, nugget=0.05).fit(X, y)
    assert (regressor.model_.smoothness, regressor.model_.nugget) == (1.5, 0.05)
    assert regressor.fit_.free == ("variance", "range")


def test_one_range_for_each_axis_is_estimated():
    _, X, y = meuse()
    regressor = GeoRegressor(**HELD, axis_ranges=True).fit(X, y)
    assert regressor.fit_.free[-1] == "axis_ratio_2"


def test_values_are_transformed_and_predictions_back_transformed():
    seen = gx.datasets.load("meuse")
    regressor = GeoRegressor(smoothness=0.5, transformation="log").fit(seen.locations, seen.values)
    fit = gx.fit(
        gx.Observations(seen.locations, seen.values),
        fixed={"smoothness": 0.5},
        trend="constant",
        transform="log",
        progress=False,
    )
    assert regressor.model_ == fit.model
    mean, error = regressor.predict(seen.locations[:5] + 10.0, return_std=True)
    expected = gx.predict(fit, seen.locations[:5] + 10.0, progress=False)
    np.testing.assert_array_equal(mean, expected.mean)
    np.testing.assert_array_equal(error, np.sqrt(expected.variance))
    assert (regressor.sample_y(seen.locations[:5] + 10.0, 20) > 0).all()
    with pytest.raises(gx.InvalidInput, match="transform"):
        GeoRegressor(transformation="cube").fit(seen.locations, seen.values)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("response", ["poisson", "hurdle"])
def test_counts_are_predicted_by_their_response(response):
    places = testing.places(60)
    field = gx.simulate(gx.Matern(1.0, 0.3, 0.5), places, seed=1)[0]
    counts = np.random.default_rng(2).poisson(np.exp(field)).astype(float)
    regressor = GeoRegressor(smoothness=0.5, nugget=0.0, response=response).fit(places, counts)
    known = gx.predict(regressor.fit_, places[:5], progress=False)
    mean, standard_error = regressor.predict(places[:5], return_std=True)
    np.testing.assert_array_equal(mean, known.mean)
    np.testing.assert_array_equal(standard_error, np.sqrt(known.variance))
    assert regressor.sample_y(places[:5], 3).shape == (5, 3)
    kept = regressor.fit_
    models = kept.model if response == "poisson" else {k: v.model for k, v in kept.parts.items()}
    assert regressor.model_ == models


def test_leading_columns_are_coordinates_and_the_others_covariates():
    _, X, y = meuse()
    assert GeoRegressor(coordinates=2, **HELD).fit(X, y).fit_.trend.names[0] == "intercept"
    assert GeoRegressor(coordinates=3, **HELD).fit(X[:60], y[:60]).fit_.observations.dimensions == 3
    line = GeoRegressor(**HELD).fit(X[:60, :1], y[:60])
    assert line.fit_.observations.dimensions == 1


def test_names_of_a_frame_are_those_of_the_fit():
    _, X, y = meuse()
    frame = pd.DataFrame(X, columns=["x", "y", "sqrt_dist"])
    regressor = GeoRegressor(**HELD).fit(frame, y)
    assert regressor.fit_.observations.location_names == ("x", "y")
    assert regressor.fit_.trend.names == ("intercept", "sqrt_dist")
    with pytest.raises(ValueError, match="feature names"):
        regressor.predict(frame.rename(columns={"x": "u"}))


def test_a_formula_is_a_trend():
    _, X, y = meuse()
    frame = pd.DataFrame(X, columns=["x", "y", "sqrt_dist"])
    regressor = GeoRegressor(trend="sqrt_dist", **HELD).fit(frame, y)
    plain = GeoRegressor(**HELD).fit(frame, y)
    np.testing.assert_allclose(regressor.predict(frame[:9]), plain.predict(frame[:9]), rtol=1e-9)


def test_frames_of_longitude_and_latitude_are_chordal():
    seen = gx.datasets.load("ozone")
    frame = pd.DataFrame(seen.locations, columns=["lon", "lat"])
    assert GeoRegressor(**HELD).fit(frame, seen.values).fit_.observations.metric == "chordal"


def test_columns_that_say_the_same_enter_once():
    _, X, y = meuse()
    doubled = np.column_stack((X, 3 - 2 * X[:, 2], np.ones(len(X))))
    regressor = GeoRegressor(**HELD).fit(doubled, y)
    assert regressor.covariates_.tolist() == [2]
    np.testing.assert_array_equal(
        regressor.predict(doubled), GeoRegressor(**HELD).fit(X, y).predict(X)
    )


def test_columns_left_out_are_combinations_of_those_left_of_them():
    random = np.random.default_rng(0)
    base = random.standard_normal((50, 3)) * [1e-6, 1.0, 1e6] + [0.0, 1e3, 0.0]
    table = np.column_stack((base[:, :2], base[:, :2] @ [1e6, 2.0] + 5, base[:, 2]))
    assert independent_columns(table).tolist() == [0, 1, 3]
    assert independent_columns(np.zeros((5, 2))).tolist() == []
    # beyond n columns nothing is left
    assert len(independent_columns(random.standard_normal((4, 6)))) == 3


def test_grid_search_and_pipelines_take_it():
    _, X, y = meuse()
    pipeline = make_pipeline(StandardScaler(), GeoRegressor(nugget=0.05))
    search = GridSearchCV(pipeline, {"georegressor__smoothness": [0.5, 1.0]}, cv=3)
    search.fit(X, y)
    assert search.best_params_["georegressor__smoothness"] in (0.5, 1.0)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_clones_share_how_to_compute():
    regressor = GeoRegressor(method=gx.Vecchia(10), smoothness=0.5)
    twin = clone(regressor)
    assert twin.get_params() == regressor.get_params()
    _, X, y = meuse()
    assert twin.fit(X, y).fit_.method == gx.Vecchia(10)


def test_a_search_without_a_maximum_warns():
    X = np.column_stack((np.arange(40.0), np.zeros(40)))
    with pytest.warns(ConvergenceWarning, match="AT_LIMIT"):
        regressor = GeoRegressor(**HELD).fit(X, np.tile([0.0, 1.0], 20))
    assert not regressor.fit_.outcome.attained
    assert np.isfinite(regressor.predict(X)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coordinates": 4}, "`coordinates` must be 1, 2 or 3. Got 4"),
        ({"smoothness": "free"}, "`smoothness` must be a number, or None. Got 'free'"),
        ({"nugget": True}, "`nugget` must be a number"),
        ({"trend": "quadratic"}, "`trend` must be one of"),
        ({"metric": "manhattan"}, "`metric` must be one of"),
    ],
)
def test_wrong_options_are_named_when_fitted(options, message):
    _, X, y = meuse()
    with pytest.raises(ValueError, match=message):
        GeoRegressor(**options).fit(X, y)


def test_predicting_before_fitting_is_said():
    with pytest.raises(NotFittedError):
        GeoRegressor().sample_y(np.zeros((2, 2)))


def test_y_is_matched_to_the_rows_of_a_frame_by_label():
    rng = np.random.default_rng(12)
    X = pd.DataFrame(rng.uniform(0, 9, (30, 2)), [f"s{k}" for k in range(30)], ["x", "y"])
    y = pd.Series(np.sin(X.x) + 0.1 * rng.normal(size=30), index=X.index)
    moved = y.sample(frac=1, random_state=3)
    one = GeoRegressor(smoothness=0.5).fit(X, y)
    other = GeoRegressor(smoothness=0.5).fit(X, moved)
    np.testing.assert_array_equal(one.predict(X), other.predict(X))
    assert one.score(X, moved) == one.score(X, y)
    with pytest.raises(ValueError, match=r"`y` must have the row labels of X.*y\.to_numpy\(\)"):
        one.fit(X, y.reset_index(drop=True))
