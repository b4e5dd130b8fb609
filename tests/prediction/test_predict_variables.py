"""Predictions of several variables: which ones, in which rows, and in frames, grids and maps."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import geomxp as gx
from geomxp import testing
from geomxp.likelihood.trend import Trend

NAMES = ("zinc", "log(lead)")
MODEL = gx.ParsimoniousMatern((1.0, 2.0), 0.3, (0.5, 1.5), 0.6, (0.1, 0.2))
NEW = pd.DataFrame(testing.places(7, seed=2), columns=["x", "y"], index=list("abcdefg")).assign(
    dist=np.linspace(0, 1, 7)
)


def seen(names=NAMES):
    random = np.random.default_rng(4)
    frame = pd.DataFrame(testing.places(30), columns=["x", "y"]).assign(dist=random.random(30))
    frame["zinc"], frame["lead"] = random.standard_normal(30), random.random(30) + 1
    frame.loc[::4, "lead"] = np.nan
    return gx.Observations.from_frame(frame, values=names, covariates=("dist",))


@pytest.fixture(scope="module")
def fit():
    return gx.fit(seen(), MODEL, fixed=tuple(MODEL.parameters()), trend="dist")


@pytest.fixture(scope="module")
def plain():
    return gx.fit(seen(), MODEL, fixed=tuple(MODEL.parameters()))


def each(fit, new=NEW, **about):
    """Predictions of one variable after the other, by number, as interleaved rows."""
    found = [gx.predict(fit, new, variable=np.full(len(new), k), **about) for k in (0, 1)]
    columns = ("mean", "variance", "variance_of_observation")
    return {c: np.column_stack([getattr(one, c) for one in found]).ravel() for c in columns}


def check(prediction, expected, rows=slice(None)):
    for name, column in expected.items():
        np.testing.assert_allclose(getattr(prediction, name), column[rows], rtol=1e-12, atol=1e-12)


def test_all_variables_are_predicted_at_every_location(fit):
    expected, array = each(fit), NEW[["x", "y"]].to_numpy()
    for prediction in (
        gx.predict(fit, NEW),
        gx.predict(fit, NEW, variable=NAMES),
        gx.predict(fit, array, NEW),
        gx.predict(fit, array, NEW[["dist"]].to_numpy(), variable=[0, 1]),
        gx.predict(fit, array, {"dist": NEW["dist"].to_numpy()}),
    ):
        check(prediction, expected)
        assert prediction.variable.tolist() == [*NAMES] * 7
        np.testing.assert_array_equal(prediction.locations, np.repeat(array, 2, axis=0))
    order = np.arange(14).reshape(7, 2)[:, ::-1].ravel()
    check(gx.predict(fit, NEW, variable=NAMES[::-1]), expected, order)


@pytest.mark.parametrize("method", [gx.Exact(), gx.Vecchia(20)], ids=str)
def test_independent_variables_are_predicted_as_each_alone(method):
    model = gx.Independent((1.0, 2.0), (0.3, 0.4), (0.5, 1.5), (0.1, 0.2))
    data = seen()
    held = gx.fit(data, model, method, fixed=tuple(model.parameters()), trend="dist")
    for k, name in enumerate(NAMES):
        own = model.marginal(k)
        about = {"fixed": tuple(own.parameters()), "trend": "dist"}
        alone = gx.fit(data.of_variable(name), own, gx.Exact(), **about)
        expected = gx.predict(alone, NEW)
        found = gx.predict(held, NEW, variable=name)
        # Vecchia's neighbours are not all observations of the variable
        tolerance = 1e-9 if method == gx.Exact() else 0.05
        np.testing.assert_allclose(found.mean, expected.mean, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(found.variance, expected.variance, rtol=tolerance)
        np.testing.assert_array_equal(found.noise, expected.noise)


def test_each_location_may_have_its_variable(fit):
    which = [0, 1, 1, 0, 1, 0, 0]
    names = np.array(NAMES)[which]
    rows = 2 * np.arange(7) + which
    for variable in (which, names, names.tolist(), pd.Series(names, NEW.index)):
        check(gx.predict(fit, NEW, variable=variable), each(fit), rows)
    table = NEW.assign(variable=names)
    found = gx.predict(fit, table)
    check(found, each(fit), rows)
    # the column of the table is not repeated
    assert list(found.to_frame().columns[:6]) == ["x", "y", "dist", "variable", "mean", "variance"]
    with pytest.raises(gx.InvalidInput, match="have a column 'variable': leave `variable`"):
        gx.predict(fit, table, variable="zinc")


def test_observations_name_their_variables(fit):
    data = seen()
    turned = seen(NAMES[::-1])
    assert turned.variable_names == NAMES[::-1]
    order = np.lexsort((turned.variable == 0, *turned.locations.T))
    same = np.lexsort((data.variable == 1, *data.locations.T))
    one, other = gx.predict(fit, data), gx.predict(fit, turned)
    np.testing.assert_allclose(other.mean[order], one.mean[same], rtol=1e-12)
    assert set(other.variable.tolist()) == set(NAMES)


def test_a_frame_has_a_row_for_each_location_and_variable(fit):
    frame = gx.predict(fit, NEW).to_frame()
    assert frame.index.tolist() == list("aabbccddeeffgg")
    assert frame["variable"].tolist() == [*NAMES] * 7
    np.testing.assert_array_equal(frame["dist"], np.repeat(NEW["dist"], 2))
    one = gx.predict(fit, NEW).of_variable("log(lead)")
    pd.testing.assert_frame_equal(one.to_frame(), frame[frame["variable"] == "log(lead)"])
    alone = gx.predict(fit, NEW, variable="log(lead)")
    pd.testing.assert_frame_equal(alone.to_frame(), one.to_frame())
    np.testing.assert_allclose(one.interval(of="observation"), alone.interval(of="observation"))
    with pytest.raises(gx.InvalidInput, match=r"must be one of: zinc, log\(lead\). Got 'lead'"):
        gx.predict(fit, NEW).of_variable("lead")


def test_error_variances_and_draws_follow_the_rows(fit):
    error = np.linspace(0, 1, 7)
    found = gx.predict(fit, NEW, error_variance=error)
    plain = gx.predict(fit, NEW)
    added = found.variance_of_observation - plain.variance_of_observation
    np.testing.assert_allclose(added, np.repeat(error, 2), atol=1e-12)
    draws = gx.simulate(fit, NEW, draws=400, seed=1)
    assert draws.shape == (400, 14)
    assert (np.abs(draws.mean(axis=0) - plain.mean) < 5 * np.sqrt(plain.variance / 400)).all()


def test_unnamed_variables_are_numbers():
    data = seen()
    unnamed = gx.Observations(data.locations, data.values, variable=data.variable)
    fit = gx.fit(unnamed, MODEL, fixed=tuple(MODEL.parameters()))
    frame = gx.predict(fit, NEW).to_frame()
    assert frame["variable"].tolist() == [0, 1] * 7
    assert fit.trend.names == ("variable 0: intercept", "variable 1: intercept")
    with pytest.raises(
        gx.InvalidInput, match=r"no variable 'zinc'. The variables are: variable 0, variable 1"
    ):
        gx.predict(fit, NEW, variable="zinc")


def test_grids_have_a_dimension_of_the_variables(fit, tmp_path):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("netCDF4")
    dist = np.array([[0.1, 0.2, 0.3], [0.4, np.nan, 0.6]])
    grid = xarray.Dataset({"dist": (("y", "x"), dist)}, {"y": [0.2, 0.8], "x": [0.1, 0.5, 0.9]})
    with pytest.warns(gx.GeomxpWarning, match="1 of 6 cells have no dist"):
        found = gx.predict(fit, grid)
    cube = found.to_xarray()
    assert cube["mean"].dims == ("variable", "y", "x")
    assert cube["variable"].values.tolist() == list(NAMES)
    for name in NAMES:
        with pytest.warns(gx.GeomxpWarning, match="1 of 6 cells"):
            one = gx.predict(fit, grid, variable=name)
        np.testing.assert_allclose(cube["mean"].sel(variable=name), one.to_xarray()["mean"])
        flat = found.of_variable(name)
        np.testing.assert_allclose(flat.to_xarray()["mean"], one.to_xarray()["mean"])
    cube.to_netcdf(tmp_path / "cube.nc")
    with xarray.open_dataset(tmp_path / "cube.nc") as back:
        assert back["variable"].values.tolist() == list(NAMES)
    assert len(found.to_frame()) == 10


def test_a_map_shows_one_variable(plain):
    for k, name in enumerate(NAMES):
        raster = gx.predict_raster(plain, cells=4, variable=name)
        centres = raster.coordinates.reshape(-1, 2)
        expected = gx.predict(plain, centres, variable=np.full(len(centres), k))
        np.testing.assert_array_equal(raster.mean.ravel(), expected.mean)
        assert (raster.value_name, raster.noise) == (name, MODEL.nugget[k])
        frame = raster.to_frame(of="observation")
        np.testing.assert_allclose(
            frame["variance_of_observation"], expected.variance_of_observation
        )
    with pytest.raises(
        gx.InvalidInput, match=r"one variable of zinc, log\(lead\).*variable='zinc'"
    ):
        gx.predict_raster(plain, cells=4)
    with pytest.raises(gx.InvalidInput, match="no variable 'tin'"):
        gx.predict_raster(plain, cells=4, variable="tin")


def test_files_keep_the_names(plain, fit, tmp_path):
    data = seen()
    frame = pd.DataFrame(data.locations, columns=["x", "y"]).assign(
        element=np.array(NAMES)[data.variable], content=data.values
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    read = gx.read_table(tmp_path / "t.csv", values="content", variable="element")
    of_table = gx.fit(read, MODEL, fixed=tuple(MODEL.parameters()))
    for one, embed in ((plain, True), (fit, True), (of_table, True), (of_table, False)):
        one.save(tmp_path / "fit.json", embed=embed)
        again = gx.Fit.load(tmp_path / "fit.json")
        assert again.observations.variable_names == NAMES
        assert again.observations.digest() == one.observations.digest()
        assert again.trend.names == one.trend.names
        found = gx.predict(again, NEW, variable="log(lead)")
        np.testing.assert_array_equal(found.mean, gx.predict(one, NEW, variable="log(lead)").mean)
    assert gx.predict(of_table, NEW).to_frame()["element"].tolist() == [*NAMES] * 7


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ("zink", "no variable 'zink'. The variables are: zinc, .*Did you mean 'zinc'"),
        (2, "has 2 variables, numbered from 0. Got variable 2"),
        (("zinc", "zinc"), "different variables to predict at each of the 7 locations"),
        ((), "different variables to predict at each of the 7 locations"),
        ([0, 1, 0], "different variables to predict at each of the 7 locations"),
        (np.array([0, 1, 0]), "`variable` must hold one number for each of the 7 locations"),
    ],
)
def test_wrong_variables_are_refused(fit, variable, message):
    with pytest.raises(gx.InvalidInput, match=message):
        gx.predict(fit, NEW, variable=variable)


def test_a_fit_of_one_variable_has_none():
    model = gx.Matern(1.0, 0.3, 0.5, 0.1)
    fit = gx.fit(seen().of_variable("zinc"), model, fixed=tuple(model.parameters()))
    with pytest.raises(gx.InvalidInput, match=r"of one variable: leave `variable`"):
        gx.predict(fit, NEW, variable="zinc")


def test_variables_without_observations_are_not_predicted_unless_asked_for(plain):
    data = seen()
    only = data.subset(data.variable == 1)
    fit = replace(plain, observations=only, trend=Trend.of(only, "constant"))
    assert set(gx.predict(fit, NEW).variable.tolist()) == {"log(lead)"}
    with pytest.raises(gx.InvalidInput, match="no observation is of the variable 'zinc'"):
        gx.predict(fit, NEW, variable="zinc")
    # a mean of 0 is known
    known = replace(plain, observations=only, trend=Trend.of(only, "zero"))
    assert np.isfinite(gx.predict(known, NEW, variable="zinc").mean).all()
