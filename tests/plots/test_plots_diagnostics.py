import inspect
import io
import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtri
from scipy.stats import beta, binom

import geomxp as gx
from geomxp import plots
from geomxp.estimation.profile import wald_ellipse
from geomxp.prediction.variogram import lags_of, variogram_envelope
from geomxp.tiles.layout import Layout
from geomxp.tiles.simulate import MACHINES
from geomxp.tiles.simulate import simulate as play

U = 2.0**-53


@pytest.fixture(scope="module")
def meuse():
    return gx.datasets.load("meuse")


@pytest.fixture(scope="module")
def fit(meuse):
    return gx.fit(meuse, fixed={"smoothness": 0.5, "nugget": 0.05}, start={"range": 300.0})


@pytest.fixture(scope="module")
def validation(fit):
    return gx.leave_one_out(fit)


@pytest.fixture(scope="module")
def influence(meuse):
    method = gx.Exact(tile=32)
    return gx.precision_influence(meuse, (1e-2, 1e-6), method=method, fixed={"smoothness": 0.5})


@pytest.fixture(scope="module")
def comparison(meuse):
    return gx.compare_models(meuse, smoothness=(0.5, 1.5), trends=("constant", "linear"))


@pytest.fixture(scope="module")
def pictures(fit, validation, influence, comparison, meuse):
    """Every picture of one panel, as a function of its axes."""
    formats = gx.layered("fp16", "fp32")(np.ones((8, 8)))
    compared = pd.DataFrame({"accuracy": [1e-4, 1e-6], "kl": [1e-2, 1e-5]})
    compared["kl_log_determinant"] = 2 * compared["kl"]
    layout = Layout(8192, 1024)
    counts = gx.Observations(meuse.locations, np.floor(meuse.values), value_name="count")
    held = gx.Matern(0.1, 200.0, 0.5, response="poisson")
    counted = gx.leave_one_out(gx.fit(counts, held, fixed=tuple(held.parameters())))
    run = play(MACHINES["GH200"], layout, gx.uniform("fp64")(np.ones((8, 8))), memory=10**9)
    return {
        "values_map": lambda ax: plots.values_map(meuse, ax=ax),
        "residuals_map": lambda ax: plots.residuals_map(fit, ax=ax),
        "prediction_map": lambda ax: plots.prediction_map(fit, cells=9, ax=ax),
        "prediction_error_map": lambda ax: plots.prediction_error_map(fit, cells=9, ax=ax),
        "variogram": lambda ax: plots.variogram(fit, ax=ax),
        "histogram": lambda ax: plots.histogram(fit.observations, ax=ax),
        "profile": lambda ax: plots.profile(fit, "range", points=5, ax=ax),
        "contours": lambda ax: plots.contours(fit, "range", "variance", ax=ax, rays=12),
        "residuals_against_prediction": lambda ax: plots.residuals_against_prediction(
            validation, ax=ax
        ),
        "normal_quantiles": lambda ax: plots.normal_quantiles(validation, ax=ax),
        "standardised_residuals_map": lambda ax: plots.standardised_residuals_map(
            validation, ax=ax
        ),
        "pit": lambda ax: plots.pit(validation, ax=ax),
        "coverage": lambda ax: plots.coverage(validation, ax=ax),
        "model_weights": lambda ax: plots.model_weights(comparison, ax=ax),
        "precision_map": lambda ax: plots.precision_map(formats, ax=ax),
        "divergences": lambda ax: plots.divergences(compared, 100, ax=ax),
        "timeline": lambda ax: plots.timeline(run.events, ax=ax),
        "rootogram": lambda ax: plots.rootogram(counted, ax=ax),
        "calibration": lambda ax: plots.calibration(counted, ax=ax),
    }


ONE_PANEL = (
    *("values_map", "residuals_map", "prediction_map", "prediction_error_map", "variogram"),
    *("histogram", "profile", "contours", "residuals_against_prediction", "normal_quantiles"),
    *("standardised_residuals_map", "pit", "coverage", "model_weights", "precision_map"),
    *("divergences", "timeline", "rootogram", "calibration"),
)
SEVERAL = ("residuals", "profiles", "influence_of_precision")
NO_PICTURES = {"LONGEST_NAME", "new_figure", "overview", "plain", "unit_of"}
OF_SERIES = {"prediction_maps", "prediction_animation", "correlations", "variograms"}
"""Pictures of several times, or variables: cli/test_series.py, test_plots_of_variables.py."""


def test_every_public_picture_is_tried_here_and_takes_axes():
    assert {*ONE_PANEL, *SEVERAL} == set(plots.__all__) - NO_PICTURES - OF_SERIES
    for name in (*ONE_PANEL, *SEVERAL):
        assert "ax" in inspect.signature(getattr(plots, name)).parameters


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE_PANEL)
def test_pictures_of_8_by_6_cm_have_no_word_cut_and_no_number_on_another(pictures, name):
    figure = plots.new_figure(8 / 2.54, 6 / 2.54)
    ax = figure.add_subplot()
    assert pictures[name](ax) is ax
    figure.savefig(io.BytesIO(), format="png", dpi=100)
    renderer = figure.canvas.get_renderer()
    whole = figure.bbox
    for one in (ax, *ax.child_axes):
        for text in (one.title, one.xaxis.label, one.yaxis.label):
            box = text.get_window_extent(renderer)
            if text.get_text() and one.axison:
                # a pixel for rounding
                assert box.x0 >= whole.x0 - 1, text
                assert box.x1 <= whole.x1 + 1, text
                assert box.y0 >= whole.y0 - 1, text
                assert box.y1 <= whole.y1 + 1, text
        for axis, j in ((one.xaxis, 0), (one.yaxis, 1)):
            shown = [tick for tick in axis.get_major_ticks() if tick.label1.get_visible()]
            low, high = sorted(axis.get_view_interval())
            boxes = [
                np.array(tick.label1.get_window_extent(renderer))[:, j]
                for tick in shown
                if tick.label1.get_text() and low <= tick.get_loc() <= high
            ]
            boxes.sort(key=lambda box: box[0])
            for before, after in itertools.pairwise(boxes):
                assert before[1] <= after[0], axis


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE_PANEL)
def test_pictures_say_what_is_on_their_axes(pictures, name):
    ax = pictures[name](None)
    assert ax.get_xlabel()
    assert ax.get_ylabel() or name in ("model_weights", "timeline")


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE_PANEL)
def test_no_axes_are_refused_in_one_line(pictures, name):
    with pytest.raises(gx.InvalidInput, match="`ax` must be matplotlib axes"):
        pictures[name]("here")


@pytest.mark.slow
def test_pictures_of_several_panels_take_as_many_axes(validation, fit, influence):
    figure = plots.new_figure()
    for draw, source, count in (
        (plots.residuals, validation, 3),
        (lambda source, ax: plots.profiles(source, points=3, ax=ax), fit, 2),
        (plots.influence_of_precision, influence, 3),
    ):
        panels = [figure.add_subplot() for _ in range(count)]
        assert list(draw(source, ax=panels)) == panels
        with pytest.raises(gx.InvalidInput, match=f"`ax` must hold {count} axes.*Got 1"):
            draw(source, ax=panels[0])


def test_pictures_refuse_what_they_cannot_draw(fit, validation):
    for draw, words in (
        (plots.values_map, "`observations` must be an Observations"),
        (plots.residuals_map, "`fit` must be a Fit"),
        (plots.histogram, "`observations` must be an Observations"),
        (plots.prediction_map, "`fit` must be a Fit"),
        (plots.variogram, "`source` must be a Fit or an Observations or a Variogram"),
        (plots.profiles, "`fit` must be a Fit"),
        (plots.overview, "`fit` must be a Fit"),
        (plots.residuals, "`source` must be a Fit or a HurdleFit or a Validation"),
        (plots.pit, "`source` must be a Fit or a HurdleFit or a Validation"),
        (plots.rootogram, "`source` must be a Fit or a HurdleFit or a Validation"),
        (plots.influence_of_precision, "`fits` must be a frame"),
        (plots.model_weights, "`comparison` must be a ModelComparison"),
        (plots.precision_map, "`formats` must be a PrecisionMap"),
    ):
        with pytest.raises(gx.InvalidInput, match=f"{words}.*Got (int|the columns)"):
            draw(3)
    with pytest.raises(gx.InvalidInput, match="`level` must lie between 0 and 1"):
        plots.residuals(validation, level=95)
    with pytest.raises(gx.InvalidInput, match="`bins` must be a whole number of at least 2"):
        plots.pit(validation, bins=1)
    with pytest.raises(gx.InvalidInput, match="needs at least 39 draws"):
        plots.variogram(fit, envelope=20)
    with pytest.raises(gx.InvalidInput, match="`raster` must be a Raster"):
        plots.prediction_map(fit, raster=fit)
    with pytest.raises(gx.InvalidInput, match="one of accuracy, kl_target, neighbours"):
        plots.divergences(pd.DataFrame({"kl": [1.0]}), 9)
    with pytest.raises(gx.InvalidInput, match="no event of device 0; the sequence is empty"):
        plots.timeline([])


def test_bars_of_pit_count_every_observation(validation):
    ax = plots.pit(validation, bins=7)
    heights = [bar.get_height() for bar in ax.patches if bar.get_width() < 0.5]
    assert len(heights) == 7
    assert sum(heights) == len(validation)
    u = np.sort(validation.pit())
    assert heights[0] == np.searchsorted(u, 1 / 7)


def test_band_of_pit_holds_a_binomial_count(validation):
    band = next(p for p in plots.pit(validation, bins=5).patches if p.get_width() == 1.0)
    low, high = band.get_y(), band.get_y() + band.get_height()
    n = len(validation)
    assert binom.cdf(low - 1, n, 0.2) < 0.025 <= binom.cdf(low, n, 0.2)
    assert binom.cdf(high - 1, n, 0.2) < 0.975 <= binom.cdf(high, n, 0.2)


def test_coverage_is_that_of_the_intervals(validation):
    ax = plots.coverage(validation)
    x, y = ax.lines[1].get_data()
    assert (np.diff(y) >= 0).all()
    for percent, inside in zip(x[::3], y[::3], strict=True):
        lower, upper = validation.interval(float(percent) / 100)
        share = gx.scores.coverage(lower, upper, validation.observed)
        # an observation on an end of its interval may fall either way
        assert abs(inside / 100 - share) <= 1 / len(validation) + 8 * U
    assert ax.get_aspect() == 1.0


def test_normal_quantiles_are_in_order_and_their_band_is_that_of_uniform_ranks(validation):
    ax = plots.normal_quantiles(validation, level=0.9)
    x, y = ax.collections[1].get_offsets().T
    np.testing.assert_array_equal(y, np.sort(validation.standardised_errors))
    n = len(validation)
    path = ax.collections[0].get_paths()[0].vertices
    for i in (1, n // 3, n):
        ends = ndtri(beta.ppf((0.05, 0.95), i, n + 1 - i))
        at = path[np.isclose(path[:, 0], x[i - 1], rtol=1e-12, atol=0)][:, 1]
        np.testing.assert_allclose((at.min(), at.max()), ends, rtol=1e-12)
    np.testing.assert_allclose(x, -x[::-1], atol=1e-12)


def test_residuals_of_a_fit_are_its_leave_one_out(fit, validation):
    for one, other in zip(plots.residuals(fit), plots.residuals(validation), strict=True):
        assert one.get_title() == other.get_title()
        a, b = (max((c.get_offsets() for c in ax.collections), key=len).data for ax in (one, other))
        np.testing.assert_array_equal(a, b)


def test_map_of_standardised_errors_ends_at_four(validation):
    z = validation.standardised_errors
    dots = plots.standardised_residuals_map(validation).collections[0]
    assert dots.get_clim() == (-np.abs(z).max(), np.abs(z).max())
    wild = gx.Validation(
        validation.observations,
        validation.mean,
        validation.variance / 100,
        validation.folds,
        validation.kind,
    )
    dots = plots.standardised_residuals_map(wild).collections[0]
    assert dots.get_clim() == (-4.0, 4.0)
    assert dots.colorbar.extend == "both"


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 3])
def test_residuals_have_pictures_in_other_dimensions(d):
    random = np.random.default_rng(6)
    seen = gx.Observations(random.random((30, d)), random.standard_normal(30))
    model = gx.Matern(1.0, 0.3, 0.5)
    held = gx.fit(seen, model, fixed=tuple(model.parameters()))
    panels = plots.residuals(held)
    panels[0].figure.savefig(io.BytesIO(), format="png", dpi=30)
    titled = panels[2].get_title()
    assert titled == "Standardised errors" + ", first two coordinates" * (d == 3)


def test_variogram_draws_its_envelope_and_says_that_it_is_pointwise(fit):
    ax = plots.variogram(fit, bins=8, envelope=39, seed=3)
    lower, upper = variogram_envelope(
        fit, lags_of(fit.observations, model=fit.model, bins=8, seed=3), draws=39, seed=3
    )
    drawn = ax.collections[1].get_paths()[0].vertices[:, 1]
    assert set(drawn) >= set(lower) | set(upper)
    words = [text.get_text() for text in ax.get_legend().get_texts()]
    assert "95 % of 39 simulations, at each distance" in words
    assert len(plots.variogram(fit, envelope=0).collections) == 1


def test_variogram_of_observations_has_both_estimates(meuse):
    ax = plots.variogram(meuse, bins=6)
    found = gx.variogram(meuse, bins=6)
    offsets = ax.collections[0].get_offsets()
    np.testing.assert_array_equal(offsets, np.column_stack((found.distance, found.semivariance)))
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), found.robust)
    assert (ax.get_xlabel(), ax.get_ylabel()) == (
        *("distance (m)", "semivariance (squared units of log_zinc)"),
    )
    words = [text.get_text() for text in ax.get_legend().get_texts()]
    assert words == ["155 locations", "robust to outliers"]
    ax = plots.variogram(gx.variogram(meuse, trend="sqrt_dist", sample=60))
    words = [text.get_text() for text in ax.get_legend().get_texts()]
    assert "60 of 155 locations, at random" in words
    assert ax.get_title().replace("\n", " ").endswith("residuals of trend sqrt_dist")
    with pytest.raises(gx.InvalidInput, match="`bins` are those of the Variogram"):
        plots.variogram(found, bins=3)


@pytest.mark.parametrize("count", [2, 4, 6])
def test_variogram_of_directions_has_a_line_of_its_own_colour_for_each(meuse, count):
    found = gx.variogram(meuse, directions=count)
    ax = plots.variogram(found)
    assert len(ax.lines) == count
    assert len({str(line.get_color()) for line in ax.lines}) == count
    for line, direction in zip(ax.lines, found.directions, strict=True):
        one = found.of_direction(direction)
        np.testing.assert_array_equal(line.get_ydata(), one.semivariance[one.pairs >= 30])
    words = [text.get_text() for text in ax.get_legend().get_texts()]
    assert words[1] == f"{180 / count:g}° ± {90 / count:g}°"


def test_a_histogram_counts_every_value_with_few_bars(meuse):
    bars = plots.histogram(meuse).patches
    assert sum(bar.get_height() for bar in bars) == len(meuse)
    places = np.random.default_rng(0).random((2000, 2))
    heavy = np.random.default_rng(1).standard_cauchy(2000)
    assert len(plots.histogram(gx.Observations(places, heavy)).patches) <= 60


def test_contours_are_drawn_with_wald_and_ridge_of_variance_and_range(fit):
    ax = plots.contours(fit, "range", "variance", levels=(0.5, 0.9), rays=8)
    lines = {line.get_label(): line.get_data() for line in ax.lines}
    assert list(lines) == ["50 %", "90 %", "90 %, Wald", "estimate", "ridge, σ²/a²ᵛ"]
    a, variance = lines["ridge, σ²/a²ᵛ"]
    known = fit.model.variance / fit.model.range ** (2 * fit.model.smoothness)
    np.testing.assert_allclose(variance / a ** (2 * fit.model.smoothness), known, rtol=1e-12)
    ellipse = wald_ellipse(fit, "range", "variance", 0.9)
    np.testing.assert_array_equal(np.column_stack(lines["90 %, Wald"]), ellipse)
    assert ax.get_xlabel() == "range (m)"
    assert ax.get_ylabel() == "variance (squared units of log_zinc)"
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")


def test_profiles_are_those_of_all_estimated_parameters(fit):
    panels = plots.profiles(fit, points=3)
    assert [ax.get_title() for ax in panels] == ["Profile of the variance", "Profile of the range"]
    held = gx.fit(fit.observations, fit.model, fixed=tuple(fit.model.parameters()))
    with pytest.raises(gx.InvalidInput, match="no parameter of the fit was estimated"):
        plots.profiles(held)


@pytest.mark.slow
def test_influence_of_precision_draws_the_wald_intervals_of_fp64(influence, meuse):
    panels = plots.influence_of_precision(influence)
    assert [ax.get_title() for ax in panels] == ["Variance", "Range", "Nugget"]
    assert panels[1].get_ylabel() == "range (m)"
    exact = gx.fit(meuse, fixed={"smoothness": 0.5}, method=gx.Exact(tile=32))
    band = panels[1].patches[0]
    low, high = exact.confidence_intervals()["range"]
    np.testing.assert_allclose((band.get_y(), band.get_y() + band.get_height()), (low, high), 1e-9)
    points = panels[1].containers[0].lines[0].get_ydata()
    np.testing.assert_array_equal(points, influence["estimate_range"])
    words = [text.get_text() for text in panels[0].get_xticklabels()]
    assert words == ["FP64", "1e-06", "1e-02"]


@pytest.mark.slow
def test_influence_of_precision_says_where_there_is_no_estimate(influence):
    lost = influence.copy()
    lost.loc[2, ["estimate_range", "standard_error_range"]] = np.nan
    ax = plots.influence_of_precision(lost)[1]
    assert [text.get_text() for text in ax.texts] == ["no estimate"]
    without = influence.drop(columns="precision")
    with pytest.raises(gx.InvalidInput, match="must be a frame of precision_influence"):
        plots.influence_of_precision(without)
    none = influence.assign(**{n: np.nan for n in influence if n.startswith("standard_error_")})
    with pytest.raises(gx.InvalidInput, match="no standard errors"):
        plots.influence_of_precision(none)


def test_weights_of_models_are_those_of_the_comparison(comparison):
    ax = plots.model_weights(comparison, most=3)
    frame = comparison.to_frame()
    widths = [bar.get_width() for bar in ax.patches]
    np.testing.assert_array_equal(widths, frame["weight"][:3])
    assert ax.get_xlabel().startswith("weight by AIC\nthe other 1 together")
    names = [text.get_text() for text in plots.model_weights(comparison).get_yticklabels()]
    assert len(set(names)) == 4
    assert set(names) == {f"{t}, ν {nu}" for t in ("constant", "linear") for nu in ("0.5", "1.5")}


def test_divergences_against_neighbours_have_their_numbers_on_the_axis():
    frame = pd.DataFrame({"neighbours": [10, 30], "kl": [1.0, 0.1], "kl_log_determinant": 0.1})
    ax = plots.divergences(frame, 50)
    assert [text.get_text() for text in ax.get_xticklabels()] == ["10", "30"]
    assert ax.get_ylabel() == "divergence from the exact model (nats)"
