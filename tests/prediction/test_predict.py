import dataclasses

import numpy as np
import pandas as pd
import pytest

import geomxp as gx
from geomxp import testing
from geomxp.prediction import kriging


def held(seen, model, trend="zero"):
    return gx.fit(seen, model, fixed=tuple(model.parameters()), trend=trend)


def test_kriging_is_the_conditional_gaussian():
    seen, model, there = testing.observations(), testing.MODEL, testing.places(7, seed=9)
    fit = held(seen, model)
    sigma = model(seen.locations, seen.locations) + model.nugget * np.eye(len(seen))
    k = model(seen.locations, there)
    found = gx.predict(fit, there)
    np.testing.assert_allclose(found.mean, k.T @ np.linalg.solve(sigma, seen.values), rtol=1e-9)
    variance = model.variance - np.diag(k.T @ np.linalg.solve(sigma, k))
    np.testing.assert_allclose(found.variance, variance, rtol=1e-9)
    np.testing.assert_allclose(found.variance_of_observation, variance + model.nugget, rtol=1e-9)


def test_universal_kriging_is_the_limit_of_a_vague_prior():
    """With β ~ N(0, 10⁷) simple kriging becomes universal kriging."""
    seen, model, there = testing.observations(), testing.MODEL, testing.places(5, seed=9)
    x = np.column_stack((np.ones(len(seen)), seen.locations))
    x0 = np.column_stack((np.ones(5), there))
    vague = 1e7
    sigma = model(seen.locations, seen.locations) + model.nugget * np.eye(len(seen))
    sigma += vague * x @ x.T
    k = model(seen.locations, there) + vague * x @ x0.T
    prior = model.variance + vague * (x0**2).sum(axis=1)
    variance = prior - np.einsum("ij,ij->j", k, np.linalg.solve(sigma, k))
    found = gx.predict(held(seen, model, "linear"), there)
    np.testing.assert_allclose(found.mean, k.T @ np.linalg.solve(sigma, seen.values), rtol=1e-4)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-3)


@pytest.mark.parametrize("entries", [1, 1000])
def test_chunks_change_nothing(monkeypatch, entries):
    fit, there = held(testing.observations(), testing.MODEL), testing.places(50, seed=3)
    whole = gx.predict(fit, there)
    monkeypatch.setattr(kriging, "CHUNK_ENTRIES", entries)
    pieces = gx.predict(fit, there)
    np.testing.assert_allclose(pieces.mean, whole.mean, rtol=1e-12)
    np.testing.assert_allclose(pieces.variance, whole.variance, rtol=1e-12)


def test_far_away_the_prediction_is_the_trend_and_the_full_variance():
    seen = testing.observations()
    fit = held(seen, testing.MODEL, "constant")
    found = gx.predict(fit, [[1e6, 1e6]])
    error = fit.coefficient_covariance[0, 0]
    assert found.mean[0] == pytest.approx(fit.coefficients[0], rel=1e-12)
    assert found.variance[0] == pytest.approx(testing.MODEL.variance + error, rel=1e-12)


def test_intervals_are_normal_quantiles():
    found = gx.predict(held(testing.observations(), testing.MODEL), testing.places(4, seed=5))
    lower, upper = found.interval(0.9)
    np.testing.assert_allclose((upper - lower) / np.sqrt(found.variance), 2 * 1.6448536269514722)
    lower, upper = found.interval(0.9, of="observation")
    half = 1.6448536269514722 * np.sqrt(found.variance_of_observation)
    np.testing.assert_allclose((upper - lower) / 2, half)
    with pytest.raises(gx.InvalidInput, match="`level` must lie between 0 and 1"):
        found.interval(95)
    with pytest.raises(gx.InvalidInput, match="`of` must be"):
        found.interval(of="mean")


@pytest.mark.slow
@pytest.mark.parametrize("trend", ["zero", "linear"])
def test_intervals_of_both_kinds_cover_as_often_as_they_say(trend):
    """Fields and observations of independent data sets, one place of each: binomial counts."""
    model, replicates, level = gx.Matern(1.0, 0.2, 0.5, 0.3), 400, 0.9
    everywhere = testing.places(41, seed=21)
    fields = gx.simulate(model, everywhere, replicates, seed=22, of="field")
    noise = np.sqrt(model.nugget) * np.random.default_rng(23).standard_normal(fields.shape)
    covered = dict.fromkeys(("field", "observation", "field for observation"), 0)
    for field, observed in zip(fields, fields + noise, strict=True):
        fit = held(gx.Observations(everywhere[:40], observed[:40]), model, trend)
        there = gx.predict(fit, everywhere[40:])
        for of, truth in (("field", field[40]), ("observation", observed[40])):
            lower, upper = there.interval(level, of)
            covered[of] += lower[0] <= truth <= upper[0]
        lower, upper = there.interval(level)
        covered["field for observation"] += lower[0] <= observed[40] <= upper[0]
    allowed = 3 * np.sqrt(level * (1 - level) / replicates)
    assert abs(covered["field"] / replicates - level) < allowed
    assert abs(covered["observation"] / replicates - level) < allowed
    # the field's interval is too short for an observation
    assert covered["field for observation"] / replicates < level - allowed


def test_columns_say_what_they_are_of():
    there = gx.predict(held(testing.observations(), testing.MODEL), testing.places(3, seed=4))
    field, observation = there.to_frame(), there.to_frame(0.9, of="observation")
    plain = ["mean", "variance", "lower", "upper", "variance_of_observation"]
    beside = ["observation_lower", "observation_upper"]
    assert list(field.columns) == [*plain, *beside]
    ends = ["lower_of_observation", "upper_of_observation"]
    assert list(observation.columns) == ["mean", "variance", "variance_of_observation", *ends]
    np.testing.assert_array_equal(observation["variance"], field["variance"])
    lower, upper = there.interval(0.9, of="observation")
    np.testing.assert_array_equal(observation[ends], np.column_stack((lower, upper)))
    np.testing.assert_array_equal(there.to_frame(0.9)[beside], observation[ends])
    np.testing.assert_array_equal(
        field[["lower", "upper"]], np.column_stack(there.interval(0.95, of="field"))
    )


def test_of_a_transformation_both_intervals_are_on_the_scale_of_the_values():
    values = np.exp(testing.observations().values)
    seen = dataclasses.replace(testing.observations(), values=values)
    model = dataclasses.replace(testing.MODEL, transform="log")
    there = gx.predict(held(seen, model), testing.places(4, seed=8))
    frame, (mean, variance) = there.to_frame(0.8), there.gaussian
    half = 1.2815515655446004 * np.sqrt(variance + testing.MODEL.nugget)
    np.testing.assert_allclose(frame["observation_lower"], np.exp(mean - half), rtol=1e-12)
    np.testing.assert_allclose(frame["observation_upper"], np.exp(mean + half), rtol=1e-12)
    assert (frame["upper"] < frame["observation_upper"]).all()


def test_averages_over_blocks_have_no_intervals_of_observations():
    there = gx.predict(held(testing.observations(), testing.MODEL), [[0.4, 0.5]], block=0.2)
    assert list(there.to_frame().columns) == ["mean", "variance", "lower", "upper"]


def test_intervals_cover_new_observations_as_often_as_they_say():
    model = gx.Matern(1.0, 0.2, 0.5, 0.3)
    everywhere = testing.places(900, seed=21)
    values = gx.simulate(model, everywhere, seed=22)[0]
    fit = held(gx.Observations(everywhere[:300], values[:300]), model)
    lower, upper = gx.predict(fit, everywhere[300:]).interval(0.9, of="observation")
    covered = ((lower <= values[300:]) & (values[300:] <= upper)).mean()
    # errors are correlated: five binomial standard deviations
    assert abs(covered - 0.9) < 5 * np.sqrt(0.09 / 600)


@pytest.mark.parametrize(
    ("places", "covariates", "message"),
    [
        ([[0.1, 0.2, 0.3]], None, "must have 2 columns of coordinates"),
        ([[0.1]], None, "must have 2 columns"),
        ([[np.nan, 0.2]], None, "must be finite numbers. Got nan in row 1"),
        ([[0.1, 0.2]], None, "the trend needs 1 covariates"),
        ([[0.1, 0.2]], [[1.0, 2.0]], "the trend needs 1 covariates"),
        ([[0.1, 0.2]], [[np.inf]], "covariates must be finite"),
    ],
)
def test_wrong_places_are_named(places, covariates, message):
    seen = testing.observations()
    seen = gx.Observations(seen.locations, seen.values, np.arange(60.0))
    with pytest.raises(gx.InvalidInput, match=message):
        gx.predict(held(seen, testing.MODEL, "covariates"), places, covariates)


def test_predictions_stay_in_little_memory(monkeypatch):
    """The covariances held at once are CHUNK_ENTRIES, whatever the number of locations."""
    largest = []
    whole = gx.Matern.matrix

    def watched(self, a, b):
        largest.append(len(a) * len(b))
        return whole(self, a, b)

    fit = held(testing.observations(), testing.MODEL)
    monkeypatch.setattr(gx.Matern, "matrix", watched)
    monkeypatch.setattr(kriging, "CHUNK_ENTRIES", 60_000)
    gx.predict(fit, testing.places(20_000, seed=6))
    assert max(largest) <= 60_000
    assert sum(largest) == 60 * 20_000


def test_predictions_show_themselves_as_a_table_in_notebooks():
    fit = held(testing.observations(), testing.MODEL)
    for result in (gx.predict(fit, testing.places(5, seed=3)), gx.predict_raster(fit, cells=4)):
        html = result._repr_html_()
        assert html.count("<tr>") == len(str(result).split("\n\n")[1].splitlines())
        assert "standard error" in html


def test_a_prediction_with_a_transformation_shows_its_median_in_notebooks():
    seen = testing.observations()
    positive = gx.Observations(seen.locations, np.exp(seen.values))
    fit = gx.fit(positive, testing.MODEL, fixed=tuple(testing.MODEL.parameters()), transform="log")
    prediction = gx.predict(fit, testing.places(5, seed=3))
    html = prediction._repr_html_()
    assert f"{np.median(prediction.median):.6g}" in html
    assert "<th>median</th><td>" in html
    assert "<th>median</th><td>" not in gx.predict(fit.gaussian, [[0.5, 0.5]])._repr_html_()


def infinite_means():
    """A fit whose back-transformed values are infinite beyond 1 on the Gaussian scale."""
    model = dataclasses.replace(testing.MODEL, transform=gx.BoxCox(-1.0))
    seen = testing.observations()
    z = np.minimum(0.3 * seen.values, 0.9)
    values = gx.BoxCox(-1.0).inverse(z)
    return gx.fit(gx.Observations(seen.locations, values), model, fixed=tuple(model.parameters()))


def test_cells_whose_mean_is_infinite_are_kept():
    with pytest.warns(gx.GeomxpWarning, match="moments that do not exist are infinite"):
        raster = gx.predict_raster(infinite_means(), cells=5)
    assert np.isinf(raster.mean).all()
    assert len(raster.to_frame()) == raster.mean.size
    assert f"{raster.mean.size:,} predictions" in str(raster)


@pytest.mark.slow
def test_averages_of_infinite_values_have_no_nan(tmp_path):
    fit = infinite_means()
    # the only warning
    with pytest.warns(gx.GeomxpWarning, match="moments that do not exist are infinite"):
        averages = gx.predict_raster(fit, cells=3, block=True)
    frame = averages.to_frame()
    assert np.isinf(averages.mean).all()
    assert not frame.isna().any().any()
    assert (frame.lower <= frame["median"]).all()
    # maps of infinite standard errors
    gx.report(fit, tmp_path / "report.html")
    assert "Infinity" not in (tmp_path / "report.html").read_text()


def test_records_hold_covariates_of_numbers_and_of_text():
    seen = testing.observations()
    kinds = np.array(["clay", "sand"])[np.arange(len(seen)) % 2]
    frame = pd.DataFrame(seen.locations, columns=["x", "y"])
    frame = frame.assign(z=seen.values, depth=np.arange(len(seen)) / 10.0, soil=kinds)
    observed = gx.Observations.from_frame(
        frame, values="z", locations=("x", "y"), formula="depth + soil"
    )
    held = tuple(testing.MODEL.parameters())
    fit = gx.fit(observed, testing.MODEL, fixed=held, trend="depth + soil", progress=False)
    new = frame[["x", "y", "depth", "soil"]].iloc[:3].assign(depth=[0.5, 0.6, 0.7])
    new["x"] += 0.01
    found = kriging.records(gx.predict(fit, new), fit, 0.95, "field")
    assert [row["depth"] for row in found] == [0.5, 0.6, 0.7]
    assert [row["soil"] for row in found] == ["clay", "sand", "clay"]
    assert [row["x"] for row in found] == new["x"].tolist()
