import io
import itertools
import subprocess
import sys
import warnings
from math import asin, cos, dist, radians, sin, sqrt

import numpy as np
import pytest

import geomxp as gx
from geomxp import plots
from geomxp.estimation.profile import profile_likelihood
from geomxp.prediction.raster import predict_raster
from geomxp.prediction.variogram import empirical_variogram, semivariance, trend_residuals

U = 2.0**-53
TRUTH = gx.Matern(2.0, 0.15, 0.5, 0.2)
EVERYTHING = ("variance", "range", "smoothness", "nugget")
# what a search may leave below its maximum, as geomxp.estimation.profile says
SEARCH = 0.005


@pytest.fixture(scope="module")
def field():
    places = np.random.default_rng(1).random((64, 2)) * (1.0, 0.7)
    return gx.Observations(places, gx.simulate(TRUTH, places, seed=5)[0], value_name="zinc")


@pytest.fixture(scope="module")
def fit(field):
    return gx.fit(field, fixed={"smoothness": 0.5})


@pytest.fixture(scope="module")
def profiles(fit):
    return {name: profile_likelihood(fit, name, points=5) for name in fit.free}


@pytest.fixture(scope="module")
def known():
    """A fit to degrees on the Earth in which nothing is estimated but the mean."""
    return gx.fit(gx.datasets.load("ozone"), gx.Matern(800.0, 250.0, 0.5, 40.0), fixed=EVERYTHING)


def straight(a, b):
    return dist(a, b)


def arc(a, b):
    """Half of the haversine's angle between two places on the unit sphere."""
    (x, y), (u, v) = (map(radians, place) for place in (a, b))
    return asin(sqrt(sin((y - v) / 2) ** 2 + cos(y) * cos(v) * sin((x - u) / 2) ** 2))


def chord(a, b):
    return 2 * 6371.0 * sin(arc(a, b))


def great_circle(a, b):
    return 2 * 6371.0 * arc(a, b)


def along_and_across(a, b):
    """Distances of a model with angle 30 degrees and ratio 0.4."""
    x, y = a[0] - b[0], a[1] - b[1]
    c, s = cos(radians(30)), sin(radians(30))
    return sqrt((c * x + s * y) ** 2 + ((-s * x + c * y) / 0.4) ** 2)


@pytest.mark.parametrize(
    ("metric", "d", "model", "distance"),
    [
        ("euclidean", 1, None, straight),
        ("euclidean", 2, None, straight),
        ("euclidean", 3, None, straight),
        ("euclidean", 2, gx.Matern(1.0, 1.0, 0.5, 0.0, (30.0, 0.4)), along_and_across),
        ("chordal", 2, None, chord),
        ("great-circle", 2, None, great_circle),
    ],
)
def test_empirical_variogram_is_what_a_double_loop_counts(metric, d, model, distance):
    random = np.random.default_rng(8)
    places = random.random((25, d)) * (1.0 if metric == "euclidean" else 30.0)
    r = random.standard_normal(25)
    seen = gx.Observations(places, r, metric=metric)
    got = empirical_variogram(seen, r, model=model, bins=6)

    pairs = [
        (distance(places[i], places[j]), (r[i] - r[j]) ** 2)
        for i, j in itertools.combinations(range(25), 2)
    ]
    width = max(h for h, _ in pairs) / 2 / 6
    expected = []
    for k in range(6):
        here = [(h, square) for h, square in pairs if k * width < h <= (k + 1) * width]
        if here:
            lengths, squares = zip(*here, strict=True)
            expected.append((np.mean(lengths), np.mean(squares) / 2, len(here)))
    for one, other in zip(got, zip(*expected, strict=True), strict=True):
        np.testing.assert_allclose(one, other, rtol=25 * 25 * U)


def test_empirical_variogram_of_many_places_takes_a_seeded_sample_of_them():
    random = np.random.default_rng(2)
    # two clusters: pairs within one are near, and all others beyond half of the distance
    places = np.concatenate((random.random(50), 100 + random.random(50)))
    seen = gx.Observations(places, random.standard_normal(100))
    whole = empirical_variogram(seen, seen.values, most=100, bins=1)
    assert whole[2].tolist() == [2 * 50 * 49 // 2]
    first, again, other = (
        empirical_variogram(seen, seen.values, most=40, bins=1, seed=seed) for seed in (0, 0, 1)
    )
    assert first[1].tolist() == again[1].tolist() != other[1].tolist()
    # k of one cluster and 40 - k of the other
    k = np.arange(41)
    assert first[2][0] in k * (k - 1) // 2 + (40 - k) * (39 - k) // 2


def test_empirical_variogram_of_places_equally_far_apart_has_all_pairs():
    corners = [[0.0, 0.0], [1.0, 0.0], [0.5, sqrt(0.75)]]
    seen = gx.Observations(corners, [0.0, 1.0, 2.0])
    distance, gamma, pairs = empirical_variogram(seen, seen.values, bins=4)
    assert pairs.sum() == 3
    assert pairs @ gamma == pytest.approx((1 + 4 + 1) / 2, rel=8 * U)
    assert distance == pytest.approx(1.0, rel=8 * U)


def test_empirical_variogram_refuses_what_it_cannot_use(field):
    with pytest.raises(gx.InvalidInput, match="one number for each of the 64 locations"):
        empirical_variogram(field, [1.0, 2.0])
    with pytest.raises(gx.InvalidInput, match="`bins` must be a whole number"):
        empirical_variogram(field, field.values, bins=0)
    one = gx.Observations(np.zeros((4, 2)), np.arange(4.0))
    with pytest.raises(gx.InvalidInput, match="all locations are the same"):
        empirical_variogram(one, one.values)


def test_semivariance_is_the_covariance_upside_down():
    h = np.geomspace(1e-3, 10, 20)
    expected = TRUTH.nugget + TRUTH.variance - TRUTH.covariance(h)
    np.testing.assert_allclose(semivariance(TRUTH, h), expected, rtol=0, atol=8 * U * 2.2)


def test_residuals_are_orthogonal_to_the_trend_in_the_metric_of_the_model(fit, field):
    sigma = fit.model(field.locations, field.locations) + fit.model.nugget * np.eye(len(field))
    weights = np.linalg.solve(sigma, trend_residuals(fit))
    scale = np.abs(weights).sum()
    assert abs(weights.sum()) <= 100 * len(field) * U * np.linalg.cond(sigma) * scale


@pytest.mark.parametrize("name", ["variance", "range", "nugget"])
def test_profile_has_its_maximum_at_the_estimate(fit, profiles, name):
    values, heights = profiles[name]
    assert len(values) == 5
    assert values[2] == fit.model.parameters()[name]
    assert heights[2] == pytest.approx(fit.log_likelihood, abs=1e-6)
    assert heights.argmax() == 2
    assert (np.diff(values) > 0).all()
    assert heights.max() <= fit.log_likelihood + 1e-6


@pytest.mark.parametrize("name", ["variance", "range", "nugget"])
def test_profile_lies_above_the_slice_in_which_the_others_stay(fit, field, profiles, name):
    for value, height in zip(*profiles[name], strict=True):
        model = gx.Matern.from_parameters(fit.model.parameters() | {name: float(value)})
        held = gx.log_likelihood(field, model, trend="constant").log_likelihood
        assert height >= held - 1e-9


@pytest.mark.parametrize("name", ["variance", "range", "nugget"])
def test_profile_is_the_maximum_of_a_fit_with_the_parameter_fixed(fit, field, profiles, name):
    values, heights = profiles[name]
    fixed = {"smoothness": 0.5, name: float(values[1])}
    again = gx.fit(field, fit.model, fixed=fixed, raise_on_failure=False)
    assert heights[1] == pytest.approx(again.log_likelihood, abs=SEARCH)


def test_profile_knows_no_units(fit, field, profiles):
    length, value = 1024.0, 8.0
    other = gx.Observations(length * field.locations, value * field.values)
    # the first search is as exact as the tolerance of a fit, so are the places of the grid
    again = gx.fit(other, fixed={"smoothness": 0.5})
    values, heights = profile_likelihood(again, "range", points=5)
    np.testing.assert_allclose(values, length * profiles["range"][0], rtol=1e-3)
    shift = len(field) * np.log(value)
    np.testing.assert_allclose(heights + shift, profiles["range"][1], rtol=0, atol=SEARCH)


def test_profile_holds_for_restricted_likelihood_and_a_nugget_held_at_zero(field):
    fit = gx.fit(field, fixed={"smoothness": 0.5, "nugget": 0.0}, trend="linear", reml=True)
    values, heights = profile_likelihood(fit, "range", points=3)
    assert heights[1] == pytest.approx(fit.log_likelihood, abs=1e-6)
    for value, height in zip(values, heights, strict=True):
        fixed = {"smoothness": 0.5, "nugget": 0.0, "range": float(value)}
        again = gx.fit(field, fixed=fixed, trend="linear", reml=True)
        assert height == pytest.approx(again.log_likelihood, abs=SEARCH)


def test_profile_of_anisotropy_stays_within_what_a_ratio_can_be():
    places = np.random.default_rng(4).random((80, 2))
    truth = gx.Matern(1.0, 0.2, 0.5, 0.0, (30.0, 0.5))
    seen = gx.Observations(places, gx.simulate(truth, places, seed=2)[0])
    fit = gx.fit(seen, truth, fixed=("smoothness", "nugget"), trend="zero")
    assert {"anisotropy_angle", "anisotropy_ratio"} <= set(fit.free)
    for name in ("anisotropy_angle", "anisotropy_ratio"):
        values, heights = profile_likelihood(fit, name, points=3)
        assert values[1] == fit.model.parameters()[name]
        assert heights.max() <= fit.log_likelihood + 1e-6
        assert heights[1] == pytest.approx(fit.log_likelihood, abs=1e-6)
    assert values[-1] <= 1.0
    ax = plots.variogram(fit)
    assert "longest range" in ax.get_xlabel()


def test_profile_at_the_end_of_where_geomxp_looks_goes_to_the_other_side_only():
    random = np.random.default_rng(100)
    # the nugget alone exceeds the variance of the values
    seen = gx.Observations(random.random((60, 2)), random.standard_normal(60))
    held = {"smoothness": 0.5, "range": 0.2, "nugget": 20.0}
    fit = gx.fit(seen, fixed=held, trend="zero", raise_on_failure=False)
    assert fit.outcome.ending == gx.Ending.AT_LIMIT
    values, heights = profile_likelihood(fit, "variance", points=5)
    assert values[0] == fit.model.variance
    assert len(values) == 3
    assert (np.diff(values) > 0).all()
    assert heights[0] == pytest.approx(fit.log_likelihood, abs=1e-6)
    drawn(plots.profile(fit, "variance", points=5))


def test_profile_refuses_parameters_that_were_not_estimated(fit):
    with pytest.raises(gx.InvalidInput, match="estimated parameter: variance, range, nugget"):
        profile_likelihood(fit, "smoothness")
    with pytest.raises(gx.InvalidInput, match="`points` must be a whole number"):
        profile_likelihood(fit, "range", points=2)


def drawn(ax):
    """Draw a picture, so that whatever would fail in drawing fails here."""
    ax.figure.savefig(io.BytesIO(), format="png", dpi=30)
    return ax


@pytest.mark.slow
def test_axes_say_what_they_show_in_which_unit(fit, known):
    ax = drawn(plots.values_map(fit.observations))
    assert ax.get_xlabel() == "x (units of the locations)"
    ax = drawn(plots.values_map(gx.datasets.load("meuse")))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x (m)", "y (m)")
    ax = drawn(plots.values_map(fit.observations))
    assert ax.child_axes[0].get_ylabel() == "zinc"
    ax = drawn(plots.residuals_map(known))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("lon (degrees)", "lat (degrees)")
    ax = drawn(plots.variogram(known))
    assert ax.get_xlabel() == "distance (km)"
    assert ax.get_ylabel() == "semivariance (squared units of o3_ppb)"
    ax = drawn(plots.profile(fit, "range", points=3))
    assert ax.get_xlabel() == "range (units of the locations)"
    assert ax.get_ylabel() == "profile log-likelihood"
    assert ax.get_xscale() == "log"


def test_maps_have_their_true_shape(fit, known):
    assert plots.values_map(fit.observations).get_aspect() == 1.0
    latitude = known.observations.locations[:, 1].mean()
    expected = 1 / np.cos(np.radians(latitude))
    assert plots.values_map(known.observations).get_aspect() == pytest.approx(expected)


def test_residuals_have_the_colours_of_both_signs_alike(fit):
    dots = plots.residuals_map(fit).collections[0]
    low, high = dots.get_clim()
    assert low == -high
    assert high == np.abs(trend_residuals(fit)).max()
    assert sorted(dots.get_array()) == sorted(trend_residuals(fit))


def test_variogram_shows_the_points_and_the_model(fit, field):
    ax = plots.variogram(fit, bins=8)
    distance, gamma, pairs = empirical_variogram(field, trend_residuals(fit), bins=8)
    points = ax.collections[0]
    np.testing.assert_array_equal(points.get_offsets(), np.column_stack((distance, gamma)))
    assert points.get_sizes().argmax() == pairs.argmax()
    h, curve = ax.lines[0].get_data()
    np.testing.assert_array_equal(curve, semivariance(fit.model, h))


@pytest.mark.slow
def test_variogram_says_when_it_took_a_sample():
    places = np.random.default_rng(0).random((2001, 2))
    seen = gx.Observations(places, np.random.default_rng(1).standard_normal(2001))
    fit = gx.fit(seen, gx.Matern(1.0, 0.01, 0.5, 0.5), fixed=EVERYTHING, trend="zero")
    labels = [text.get_text() for text in plots.variogram(fit).get_legend().get_texts()]
    assert "empirical, 2,000 of 2,001 locations, at random" in labels


def test_raster_is_the_prediction_at_the_middle_of_its_cells(fit):
    raster = predict_raster(fit, cells=5)
    left, right, bottom, top = raster.extent
    rows, columns = raster.mean.shape
    assert columns == 5
    assert rows < columns
    for i, j in ((0, 0), (1, 3), (rows - 1, 2)):
        x = left + (j + 0.5) * (right - left) / columns
        y = bottom + (i + 0.5) * (top - bottom) / rows
        there = gx.predict(fit, [[x, y]])
        assert raster.mean[i, j] == pytest.approx(there.mean[0], rel=1e-9)
        assert raster.standard_error[i, j] ** 2 == pytest.approx(there.variance[0], rel=1e-9)
    image = drawn(plots.prediction_map(fit, raster=raster)).images[0]
    np.testing.assert_array_equal(image.get_array(), raster.mean)
    assert (image.origin, tuple(image.get_extent())) == ("lower", raster.extent)
    image = drawn(plots.prediction_error_map(fit, cells=5)).images[0]
    np.testing.assert_allclose(image.get_array(), raster.standard_error, rtol=1e-12)


def test_maps_of_predictions_say_why_there_is_none(fit):
    random = np.random.default_rng(3)
    values, model = random.standard_normal(30), gx.Matern(1.0, 0.3, 0.5)
    line = gx.Observations(random.random(30), values)
    flat = gx.Observations(np.column_stack((random.random(30), np.ones(30))), values)
    for seen, got in ((line, r"1 coordinate\(s\)"), (flat, "a line")):
        with pytest.raises(gx.InvalidInput, match=f"span a plane. Got {got}"):
            plots.prediction_map(gx.fit(seen, model, fixed=EVERYTHING))
    with_covariate = gx.Observations(random.random((30, 2)), values, values**2)
    held = gx.fit(with_covariate, model, fixed=EVERYTHING, trend="covariates")
    with pytest.raises(gx.InvalidInput, match="needs the covariates covariate1 everywhere"):
        plots.prediction_error_map(held)
    with pytest.raises(gx.InvalidInput, match="`cells` must be a whole number of at least 2"):
        plots.prediction_map(fit, cells=1)


@pytest.mark.slow
@pytest.mark.parametrize(("d", "title"), [(1, "Values"), (3, "Values, first two coordinates")])
def test_other_dimensions_have_pictures_too(d, title):
    random = np.random.default_rng(6)
    seen = gx.Observations(random.random((30, d)), random.standard_normal(30))
    fit = gx.fit(seen, gx.Matern(1.0, 0.3, 0.5), fixed=EVERYTHING)
    figure = plots.overview(fit)
    assert figure.axes[0].get_title() == title
    assert len(figure.axes) == 4
    drawn(figure.axes[0])


def test_names_of_columns_are_no_formulas_and_no_essays():
    random = np.random.default_rng(6)
    seen = gx.Observations(
        random.random((9, 2)),
        random.standard_normal(9),
        location_names=("$x_{$", "y\n" * 90),
        value_name=r"$\frac$ per \$",
    )
    ax = drawn(plots.values_map(seen))
    assert len(ax.get_ylabel()) <= 80
    assert len(plots.plain("n" * 1000)) == plots.LONGEST_NAME


def test_given_axes_are_drawn_on_and_returned(fit):
    figure = plots.new_figure()
    for draw in (plots.residuals_map, plots.variogram, plots.prediction_map):
        ax = figure.add_subplot()
        assert draw(fit, ax=ax) is ax
        assert ax.get_title()


@pytest.mark.slow
def test_overview_has_four_pictures(fit):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = plots.overview(fit)
        drawn(figure.axes[0])
    titles = [ax.get_title() for ax in figure.axes]
    assert titles == ["Values", "Kriging mean", "Semivariogram", "Profile of the range"]


@pytest.mark.slow
def test_matplotlib_is_imported_late_and_without_a_window():
    code = (
        "import sys, numpy as np, geomxp as gx, geomxp.plots as plots\n"
        "assert 'matplotlib' not in sys.modules\n"
        "plots.values_map(gx.Observations(np.eye(3), np.arange(3.0)))\n"
        "assert 'matplotlib.figure' in sys.modules\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_timeline_of_anything_but_events_is_refused():
    for wrong in (3, [3], gx.Matern(1.0, 0.1, 0.5)):
        with pytest.raises(gx.InvalidInput, match="`events` must be the events of an evaluation"):
            plots.timeline(wrong)
