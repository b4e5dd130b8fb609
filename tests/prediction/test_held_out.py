"""Scores of observations that a fit does not know."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr

import geomxp as gx

JURA = {"values": "log(Ni)", "locations": ("x", "y")}


def drawn(n=60, seed=3):
    """A table of locations, times, covariates, errors and replicates, and values of two kinds."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(rng.uniform(0, 8, (n, 2)), columns=["x", "y"])
    table = table.assign(depth=rng.normal(size=n), se2=rng.uniform(0.05, 0.6, n))
    table = table.assign(times=rng.integers(1, 5, n), day=rng.integers(0, 6, n).astype(float))
    table["which"] = np.where(np.arange(n) % 2, "b", "a")
    table["z"] = np.sin(table.x) + table.depth + 0.3 * rng.normal(size=n)
    return table


def columns_of(table, *names):
    """Return columns of a table as arguments of `Observations`."""
    known = {
        "covariates": table[["depth"]],
        "error_variance": table.se2,
        "replicates": table.times,
        "time": table.day,
        "variable": table.which,
    }
    return {name: known[name] for name in names}


MODELS = {
    "plain": (gx.Matern(0.8, 2.0, 0.5, 0.1), (), "constant"),
    "covariates": (gx.Matern(0.8, 2.0, 0.5, 0.1), ("covariates",), "covariates"),
    "errors": (gx.Matern(0.8, 2.0, 0.5, 0.1), ("error_variance", "replicates"), "linear"),
    "microscale": (gx.Matern(0.8, 2.0, 0.5, 0.1, microscale=0.05), ("replicates",), "constant"),
    "times": (
        gx.Separable(0.8, 2.0, 3.0, smoothness=0.5, time_smoothness=0.5, nugget=0.2),
        ("time", "error_variance"),
        "constant",
    ),
    "variables": (
        gx.Independent((0.8, 0.5), (2.0, 1.0), 0.5, nugget=(0.1, 0.2)),
        ("variable", "covariates"),
        "covariates",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("method", [gx.Exact(), gx.Vecchia(12)], ids=["exact", "Vecchia"])
@pytest.mark.parametrize("case", MODELS)
def test_a_held_out_table_is_a_fold_that_the_fit_lacks(case, method):
    table, (model, names, trend) = drawn(), MODELS[case]
    seen = gx.Observations(table[["x", "y"]], table.z, **columns_of(table, *names))
    labels = np.arange(60) % 3
    about = {"fixed": tuple(model.parameters()), "trend": trend, "progress": False}
    folds = gx.cross_validate(gx.fit(seen, model, method, **about), labels, progress=False)
    rows = np.flatnonzero(labels == 1)
    others = gx.fit(seen.subset(np.flatnonzero(labels != 1)), model, method, **about)
    found = gx.validate(others, seen.subset(rows), progress=False)
    np.testing.assert_allclose(found.mean, folds.mean[rows], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.variance, folds.variance[rows], rtol=1e-9)
    assert (found.repeated, found.folds, found.refitted) == (0, None, False)


@pytest.fixture(scope="module")
def jura():
    fit = gx.fit(gx.datasets.load("jura", **JURA), fixed={"smoothness": 0.5}, progress=False)
    return fit, gx.datasets.load("jura_validation", **JURA)


def test_scores_are_those_of_the_predictions_of_observations(jura):
    fit, others = jura
    found, there = gx.validate(fit, others), gx.predict(fit, others)
    error = there.mean - others.values
    lower, upper = there.interval(0.8, of="observation")
    scores = found.scores(0.8)
    assert scores["rmse"] == pytest.approx(np.sqrt((error**2).mean()), rel=1e-12)
    assert scores["bias"] == pytest.approx(error.mean(), rel=1e-12)
    assert scores["coverage"] == ((lower <= others.values) & (others.values <= upper)).mean()
    assert (
        scores["coverage"]
        > (
            (there.interval(0.8)[0] <= others.values) & (others.values <= there.interval(0.8)[1])
        ).mean()
    )
    frame = found.to_frame(0.8)
    assert list(frame.columns[:4]) == ["x", "y", "observed", "mean"]
    np.testing.assert_allclose(frame.upper, upper, rtol=1e-13)


def crps_lognormal(mean, sd, observed):
    """The closed form of Baran and Lerch (2015, QJRMS 141:2289)."""
    z = (np.log(observed) - mean) / sd
    heavy = 2 * np.exp(mean + sd**2 / 2) * (ndtr(z - sd) + ndtr(sd / np.sqrt(2)) - 1)
    return observed * (2 * ndtr(z) - 1) - heavy


def test_scores_of_a_transformation_are_on_the_scale_of_the_values(jura):
    fit, others = jura
    raw = JURA | {"values": "Ni"}
    seen, held = (gx.datasets.load(name, **raw) for name in ("jura", "jura_validation"))
    model = replace(fit.model, transform="log")
    lognormal = gx.fit(seen, model, fixed=tuple(model.parameters()), progress=False)
    found, plain = gx.validate(lognormal, held), gx.validate(fit, others)
    scores, of_logarithms = found.scores(0.9), plain.scores(0.9)
    y, sd = held.values, np.sqrt(plain.variance)
    for name in ("coverage", "mean_squared_standardised_error"):
        assert scores[name] == pytest.approx(of_logarithms[name], rel=1e-9)
    # the density of y is that of log y over y
    log_score = of_logarithms["log_score"] + np.log(y).mean()
    assert scores["log_score"] == pytest.approx(log_score, rel=1e-9)
    assert scores["crps"] == pytest.approx(crps_lognormal(plain.mean, sd, y).mean(), rel=1e-9)
    there = gx.predict(lognormal, held)
    assert scores["rmse"] == pytest.approx(np.sqrt(((there.mean - y) ** 2).mean()), rel=1e-12)
    ends = (
        np.exp(plain.mean - 1.6448536269514722 * sd),
        np.exp(plain.mean + 1.6448536269514722 * sd),
    )
    np.testing.assert_allclose(found.interval(0.9), ends, rtol=1e-9)
    score = gx.scores.interval_score(*ends, y, 0.9).mean()
    assert scores["interval_score"] == pytest.approx(score, rel=1e-9)
    np.testing.assert_allclose(found.pit(), plain.pit(), rtol=1e-8)
    assert "RMSE" in str(found)


def test_the_crps_of_quantiles_holds_far_out():
    from geomxp.prediction.scores import crps_back_transformed

    mean, sd = np.repeat([0.3, -1.0, 2.0], 5), np.repeat([0.01, 0.7, 1.8], 5)
    z = np.tile([-12.0, -2.0, 0.0, 1.0, 9.0], 3)
    y = np.exp(mean + z * sd)
    found = crps_back_transformed(mean, sd, y, gx.Log())
    np.testing.assert_allclose(found, crps_lognormal(mean, sd, y), rtol=1e-8)


def test_scores_that_do_not_exist_are_null_and_said():
    places = np.random.default_rng(0).uniform(0, 5, (40, 2))
    model = gx.Matern(0.4, 1.5, 0.5, 0.1, transform=gx.BoxCox(boxcox_power=-0.8))
    with pytest.warns(gx.GeomxpWarning, match="moments"):
        drawn = gx.simulate(model, places, seed=1, progress=False)[0]
    seen = gx.Observations(places, drawn)
    fit = gx.fit(seen.subset(range(25)), model, fixed=tuple(model.parameters()), progress=False)
    found = gx.validate(fit, seen.subset(range(25, 40)))
    scores = found.to_dict()["scores"]
    assert (scores["rmse"], scores["interval_score"]) == (None, None)
    assert np.isfinite(scores["log_score"])
    assert 0.7 < scores["coverage"] <= 1
    assert "infinite in some row" in str(found)


def test_rows_of_the_fit_are_counted_and_said(jura):
    fit, others = jura
    twice = pd.DataFrame(np.vstack((fit.observations.locations[:7], others.locations)))
    values = np.concatenate((fit.observations.values[:7], others.values))
    # a new measurement at a known location is not a row of the fit
    values[0] += 0.5
    mixed = gx.Observations(twice, values)
    with pytest.warns(gx.GeomxpWarning, match="6 of the 107 observations are also in the fit"):
        found = gx.validate(fit, mixed)
    assert found.to_dict()["repeated"] == 6
    assert "6 of the 107 observations are also in the fit" in str(found)


def test_predictions_without_an_error_cannot_be_scored(jura):
    fit, others = jura
    model = replace(fit.model, nugget=0.0)
    exact = gx.fit(fit.observations.subset(range(9)), model, fixed=tuple(model.parameters()))
    places = np.vstack((others.locations[:3], fit.observations.locations[4]))
    with pytest.raises(gx.InvalidInput, match=r"row 4 is at a location of .* \(1 such rows\)"):
        gx.validate(exact, gx.Observations(places, np.ones(4)))
    known = gx.Observations(places, np.ones(4), error_variance=[0, 0, 0, 0.1])
    assert gx.validate(exact, known).variance[3] == pytest.approx(0.1, rel=1e-9)


def test_times_are_counted_from_the_origin_of_the_fit():
    table, (model, _, _) = drawn(), MODELS["times"]
    dates = np.datetime64("2024-02-20T00:00") + (table.day * 24).astype("m8[h]").to_numpy()
    made = lambda rows, when, **about: gx.Observations(  # noqa: E731
        table[["x", "y"]].iloc[rows], table.z.iloc[rows], time=when[rows], **about
    )
    first, later = np.arange(40), np.flatnonzero((np.arange(60) >= 40) & (table.day > 1))
    fit = gx.fit(made(first, dates), model, fixed=tuple(model.parameters()), progress=False)
    want = gx.validate(fit, made(later, dates, time_origin="2024-02-20", time_unit="day"))
    # their own first day, and another unit
    other = made(later, dates, time_unit="hour")
    assert other.time_origin != fit.observations.time_origin
    np.testing.assert_allclose(gx.validate(fit, other).mean, want.mean, rtol=1e-12)
    np.testing.assert_allclose(gx.predict(fit, other).mean, want.mean, rtol=1e-9)
    with pytest.raises(gx.InvalidInput, match="`time` must be a date"):
        gx.validate(fit, made(later, table.day.to_numpy()))


def test_locations_in_another_system_are_reprojected(jura):
    pytest.importorskip("pyproj")
    from pyproj import Transformer

    rng = np.random.default_rng(9)
    places, values = 180_000 + rng.uniform(0, 5000, (30, 2)), rng.normal(size=30)
    places[:, 1] += 150_000
    model = gx.Matern(1.0, 1500.0, 0.5, 0.1)
    seen = gx.Observations(places, values, crs="EPSG:28992", length_unit="metre")
    fit = gx.fit(seen.subset(range(20)), model, fixed=tuple(model.parameters()), progress=False)
    turned = Transformer.from_crs("EPSG:28992", "EPSG:4326", always_xy=True)
    degrees = np.column_stack(turned.transform(*places[20:].T))
    others = gx.Observations(degrees, values[20:], metric="chordal")
    found, want = gx.validate(fit, others), gx.validate(fit, seen.subset(range(20, 30)))
    np.testing.assert_allclose(found.mean, want.mean, rtol=0, atol=1e-6)
    assert found.observations is others
    bare = gx.fit(replace(seen, crs=None), model, fixed=tuple(model.parameters()), progress=False)
    with pytest.raises(gx.InvalidInput, match="those of the fit have no coordinate reference"):
        gx.validate(bare, seen.subset(range(20, 30)))


def test_scores_of_variables_are_those_of_each():
    table, (model, names, trend) = drawn(), MODELS["variables"]
    seen = gx.Observations(table[["x", "y"]], table.z, **columns_of(table, *names))
    about = {"fixed": tuple(model.parameters()), "trend": trend, "progress": False}
    fit = gx.fit(seen.subset(range(40)), model, **about)
    # the variables of the table are numbered in another order
    back = table.iloc[:39:-1]
    others = gx.Observations(back[["x", "y"]], back.z, **columns_of(back, *names))
    assert others.variable_names == ("b", "a")
    found = gx.validate(fit, others)
    document = found.to_dict(0.8)
    assert document["variables"]["b"] == found.of_variable("b").scores(0.8)
    want = gx.validate(fit, seen.subset(range(40, 60)))
    np.testing.assert_allclose(found.mean, want.mean[::-1], rtol=1e-12)
    with pytest.raises(gx.InvalidInput, match=r"the fit is of several variables \(a, b\)"):
        gx.validate(fit, gx.Observations(back[["x", "y"]], back.z))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda seen: seen.values, "`observations` must be Observations. Got ndarray"),
        (lambda seen: replace(seen, value_unit="g/kg"), "are in mg/kg, those of the observations"),
        (lambda seen: gx.Observations(seen.locations[:, :1], seen.values), "must have 2 columns"),
    ],
)
def test_observations_that_do_not_suit_the_fit_are_refused(jura, wrong, message):
    fit, others = jura
    fit = replace(fit, observations=replace(fit.observations, value_unit="mg/kg"))
    with pytest.raises(gx.InvalidInput, match=message):
        gx.validate(fit, wrong(others))


def test_values_of_another_name_are_said(jura):
    fit, _ = jura
    other = gx.datasets.load("jura_validation", **JURA | {"values": "Ni"})
    with pytest.warns(gx.GeomxpWarning, match=r"the fit is of log\(Ni\), and the .* are of Ni"):
        gx.validate(fit, other)


def test_the_plots_of_a_validation_draw_a_held_out_table(jura):
    pytest.importorskip("matplotlib")
    found = gx.validate(*jura)
    assert "held-out table" in gx.plots.pit(found).get_title().lower()
