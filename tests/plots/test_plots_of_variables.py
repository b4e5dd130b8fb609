"""Pictures of several variables."""

from dataclasses import replace

import numpy as np
import pytest

import geomxp as gx
from geomxp import plots

MODEL = gx.FlexibleMatern((1.0, 4.0, 0.5), (0.3, 0.2, 0.3), (0.5, 1.0, 0.5), 0.4, 0.1)
NAMES = ("zinc", "lead", "tin")


def observations(p=3, n=40, tin=40):
    random = np.random.default_rng(2)
    places = random.random((n, 2))
    rows = np.concatenate([np.arange(n if k < 2 else tin) for k in range(p)])
    kinds = np.repeat(range(p), [n if k < 2 else tin for k in range(p)])
    values = random.standard_normal(len(rows)) * (1.0 + kinds) + 10.0 * kinds
    names = NAMES[:p] if p < 4 else tuple(f"metal {k}" for k in range(p))
    return gx.Observations(places[rows], values, variable=kinds, variable_names=names)


@pytest.fixture(scope="module")
def fit():
    return gx.fit(observations(), MODEL, fixed=tuple(MODEL.parameters()))


def test_variograms_form_a_triangle_of_panels_with_the_models_lines(fit):
    for source, lines in ((fit, True), (fit.observations, False)):
        panels = plots.variograms(source)
        assert len(panels) == 6
        found = gx.variogram(fit.observations)
        for ax, name in zip(panels, found.variable_pairs, strict=True):
            assert name in ax.get_title()
            row, column = ax.get_subplotspec().rowspan.start, ax.get_subplotspec().colspan.start
            names = name.split(" × ")
            assert (NAMES[column], NAMES[row]) == (names[0], names[-1])
            assert ("squared units of" in ax.get_ylabel()) == ("×" not in name)
        if lines:
            h, curve = panels[3].lines[0].get_data()
            here = gx.Inputs(np.array([[0.0, 0.0]]), variable=np.array([0]))
            there = gx.Inputs(np.column_stack((h, 0 * h)), variable=np.ones(len(h), dtype=int))
            covariance = MODEL(here, there)[0]
            at_0 = 0.4 * 2.0
            np.testing.assert_allclose(curve, at_0 - covariance, rtol=1e-9, atol=1e-12)
    one = plots.variogram(fit, pair=("lead", "zinc"), envelope=0)
    assert one.get_title() == "Cross-variogram of zinc × lead"
    assert plots.variogram(fit.observations, pair="tin").get_title().startswith("Empirical")
    with pytest.raises(gx.InvalidInput, match=r"`pair` must be one or two of: zinc, lead"):
        plots.variogram(fit, pair=("zinc", "gold"))
    for source in (fit, fit.observations, gx.variogram(fit.observations)):
        with pytest.raises(gx.InvalidInput, match="give pair='zinc', or draw all"):
            plots.variogram(source)
    for alone in (gx.datasets.load("meuse"), gx.variogram(gx.datasets.load("meuse"))):
        with pytest.raises(gx.InvalidInput, match="there is one variable"):
            plots.variograms(alone)


def test_variograms_of_few_common_values_and_of_many_variables_have_fewer_panels():
    few = gx.fit(observations(tin=8), MODEL, fixed=tuple(MODEL.parameters()))
    titles = [ax.get_title() for ax in plots.variograms(few, envelope=0)]
    assert titles == [
        "Semivariogram of zinc", "Semivariogram of lead", "Cross-variogram of zinc × lead"
    ]  # fmt: skip
    with pytest.raises(gx.InvalidInput, match=r"at least 10 .* Got 8 of lead × tin"):
        plots.variogram(few, pair=("tin", "lead"))
    panels = plots.variograms(observations(5))
    assert [ax.get_title().split(" of ")[-1] for ax in panels] == [f"metal {k}" for k in range(5)]


@pytest.mark.slow
def test_a_band_of_a_cross_variogram_holds_most_of_simulated_ones():
    truth, inside = MODEL, []
    seen = observations()
    for seed in range(20):
        values = gx.simulate(truth, seen.locations, variable=seen.variable, seed=seed)[0]
        one = gx.Observations(seen.locations, values, variable=seen.variable)
        fit = gx.fit(one, truth, fixed=tuple(truth.parameters()))
        ax = plots.variogram(fit, pair=("variable 0", "variable 1"), envelope=79, bins=6)
        points, band = ax.collections
        low, high = np.sort(
            [
                band.get_paths()[0].vertices[:, 1][1:7],
                band.get_paths()[0].vertices[:, 1][8:14][::-1],
            ],
            axis=0,
        )
        gamma = points.get_offsets()[:, 1]
        inside.append(np.mean((low <= gamma) & (gamma <= high)))
    assert np.mean(inside) > 0.85


def test_correlations_are_written_with_their_intervals():
    free = tuple(name for name in MODEL.parameters() if not name.startswith("correlation"))
    fit = gx.fit(observations(), MODEL, fixed=free)
    ax = plots.correlations(fit)
    table = fit.correlation_table()
    written = {(t.get_position()): t.get_text() for t in ax.texts}
    for (i, j), row in zip(((0, 1), (0, 2), (1, 2)), table.itertuples(), strict=True):
        text = written[i, j - 1]
        assert text == f"{row.estimate:.2f}\n{row.lower:.2f} to {row.upper:.2f}"
    assert [t.get_text() for t in ax.get_xticklabels()] == ["zinc", "lead"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["lead", "tin"]
    held = gx.fit(observations(), MODEL, fixed=tuple(MODEL.parameters()))
    assert all("\n" not in t.get_text() for t in plots.correlations(held).texts)
    one = gx.fit(gx.datasets.load("meuse"), fixed={"smoothness": 0.5})
    with pytest.raises(gx.InvalidInput, match="need a model of several variables"):
        plots.correlations(one)


@pytest.mark.slow
def test_maps_show_one_variable_with_its_own_colours(fit):
    seen = fit.observations
    for draw, source in (
        (plots.values_map, seen),
        (plots.residuals_map, fit),
        (lambda *a, **k: plots.prediction_map(*a, cells=6, **k), fit),
        (lambda *a, **k: plots.prediction_error_map(*a, cells=6, **k), fit),
    ):
        ax = draw(source, variable="lead")
        assert "lead" in ax.child_axes[0].get_ylabel()
        assert draw(source, variable=1).child_axes[0].get_ylabel() == ax.child_axes[0].get_ylabel()
        with pytest.raises(gx.InvalidInput, match=r"one variable of zinc, lead, tin.*'zinc'"):
            draw(source)
        with pytest.raises(gx.InvalidInput, match="no variable 'gold'"):
            draw(source, variable="gold")
    maps = plots.prediction_maps(fit, cells=6)
    assert [ax.get_title() for ax in maps] == list(NAMES)
    for k, ax in enumerate(maps):
        (image,) = ax.get_images()
        own = seen.of_variable(k).values
        assert (image.norm.vmin, image.norm.vmax) == (own.min(), own.max())
        expected = gx.predict_raster(fit, cells=6, variable=k)
        np.testing.assert_array_equal(image.get_array(), expected.centre)
    raster = gx.predict_raster(fit, cells=6, variable="tin")
    assert "tin" in plots.prediction_map(fit, raster=raster).child_axes[0].get_ylabel()
    with pytest.raises(gx.InvalidInput, match="raster is of tin, and `variable` is lead"):
        plots.prediction_map(fit, raster=raster, variable="lead")
    alone = gx.fit(gx.datasets.load("meuse"), fixed={"smoothness": 0.5})
    with pytest.raises(gx.InvalidInput, match="of one variable: leave `variable` out"):
        plots.values_map(alone.observations, variable="zinc")
    with pytest.raises(gx.InvalidInput, match="of several times or variables"):
        plots.prediction_maps(alone)
    assert len(plots.overview(fit).axes) >= 4


def test_errors_and_histograms_are_those_of_one_variable(fit):
    left_out = gx.leave_one_out(fit)
    for draw in (
        plots.residuals,
        plots.residuals_against_prediction,
        plots.standardised_residuals_map,
    ):
        with pytest.raises(gx.InvalidInput, match=r"Got zinc, lead, tin.*of_variable\('zinc'\)"):
            draw(left_out)
        draw(left_out.of_variable("lead"))
    assert "lead" in plots.histogram(fit.observations, variable="lead").get_xlabel()
    with pytest.raises(gx.InvalidInput, match="a picture shows one variable of zinc, lead, tin"):
        plots.histogram(fit.observations)
    # standardised errors have no unit
    for draw in (plots.normal_quantiles, plots.pit, plots.coverage):
        draw(left_out)


def test_variograms_of_anisotropic_models_are_means_over_directions():
    random = np.random.default_rng(0)
    places = np.tile(random.random((60, 2)), (2, 1))
    seen = gx.Observations(places, random.normal(size=120), variable=np.repeat(["a", "b"], 60))
    model = gx.ParsimoniousMatern((1.0, 1.0), 0.6, 0.5, 0.5, (0.1, 0.2), anisotropy=(0.0, 0.1))
    alone = replace(model, anisotropy=None)
    ends = []
    for one in (model, alone, alone.replace(range=0.06)):
        fit = gx.fit(seen, one, fixed=tuple(one.parameters()), trend="zero")
        (line,) = plots.variogram(fit, pair=("a",)).get_lines()
        ends.append(line.get_ydata()[-1])
    across, along, short = ends[0], ends[1], ends[2]
    assert along < across < short
