"""Columns beside new locations, blocks and observations are matched by the labels of the rows."""

import numpy as np
import pandas as pd
import pytest

import geomxp as gx

ROWS, OTHER = ["p", "q", "r", "s"], ["r", "p", "s", "q"]


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(31)
    frame = pd.DataFrame({"x": rng.uniform(0, 5, 40), "y": rng.uniform(0, 5, 40)})
    frame = frame.assign(a=rng.normal(size=40), b=rng.normal(size=40), day=rng.integers(0, 4, 40))
    frame["z"] = 1 + 2 * frame.a - frame.b + 0.2 * rng.normal(size=40)
    return frame.set_axis([f"site {k}" for k in range(40)])


@pytest.fixture(scope="module")
def fit(table):
    model = gx.Matern(0.5, 2.0, 0.5, nugget=0.1)
    seen = gx.Observations.from_frame(table, values="z", covariates=("a", "b"))
    return gx.fit(seen, model, fixed=tuple(model.parameters()), trend="covariates", progress=False)


@pytest.fixture
def places():
    columns = {"x": [1.0, 4.0, 2.0, 0.5], "y": [2.0, 2.5, 4.0, 1.5]}
    columns |= {"a": [0.5, -1.0, 2.0, 0.0], "b": [1.0, 0.0, -2.0, 3.0], "e": [0.1, 0.4, 0.2, 0.3]}
    return pd.DataFrame(columns, index=ROWS)


def predicted(fit, places, **about):
    """Return the mean and the variance of an observation at places, as one array."""
    found = gx.predict(fit, places, progress=False, **about)
    return np.array([found.mean, found.variance_of_observation])


def test_covariates_and_errors_in_another_order_give_the_same_predictions(fit, places):
    want = predicted(fit, places, error_variance=places.e)
    moved = places.loc[OTHER]
    about = {"error_variance": moved.e, "covariates": moved[["a", "b"]]}
    np.testing.assert_array_equal(predicted(fit, places[["x", "y"]], **about), want)
    # a dict of columns, of which one has no labels
    mixed = {"a": moved.a, "b": places.b.to_numpy()}
    about = {"error_variance": moved.e, "covariates": mixed}
    np.testing.assert_array_equal(predicted(fit, places[["x", "y"]], **about), want)


def test_predictions_of_columns_with_other_labels_are_refused(fit, places):
    bare = places[["a", "b"]].reset_index(drop=True)
    with pytest.raises(gx.InvalidInput, match=r"`covariates` must .*covariates\.to_numpy\(\)"):
        predicted(fit, places[["x", "y"]], covariates=bare)
    with pytest.raises(gx.InvalidInput, match=r"`covariates\['a'\]` must have the row labels"):
        predicted(fit, places[["x", "y"]], covariates={"a": bare.a, "b": places.b})
    plain = {"covariates": bare.to_numpy(), "error_variance": places.e.tolist()}
    np.testing.assert_array_equal(
        predicted(fit, places[["x", "y"]], **plain), predicted(fit, places, error_variance=places.e)
    )


def test_draws_given_a_fit_match_by_label(fit, places):
    draw = lambda c: gx.simulate(fit, places[["x", "y"]], covariates=c, seed=2, progress=False)  # noqa: E731
    want = draw(places[["a", "b"]])
    np.testing.assert_array_equal(draw(places.loc[OTHER, ["b", "a"]]), want)


def test_points_of_a_geopandas_frame_match_by_label(fit, places):
    geopandas = pytest.importorskip("geopandas")
    points = geopandas.GeoDataFrame(
        geometry=geopandas.points_from_xy(places.x, places.y), index=ROWS
    )
    for where in (points, points.geometry):
        found = gx.predict(fit, where, places.loc[OTHER, ["a", "b"]], progress=False)
        np.testing.assert_array_equal(found.mean, gx.predict(fit, places, progress=False).mean)


def test_covariates_and_centres_of_polygons_match_by_label(fit, places):
    geopandas = pytest.importorskip("geopandas")
    shapely = pytest.importorskip("shapely")
    shapes = shapely.box(places.x - 0.3, places.y - 0.2, places.x + 0.3, places.y + 0.2)
    blocks = geopandas.GeoDataFrame(geometry=shapes, index=ROWS)
    want = gx.predict(fit, None, places[["a", "b"]], block=blocks, progress=False)
    moved = places.loc[OTHER]
    found = gx.predict(fit, moved[["x", "y"]], moved[["a", "b"]], block=blocks, progress=False)
    np.testing.assert_array_equal(found.mean, want.mean)
    np.testing.assert_allclose(found.locations, places[["x", "y"]], rtol=1e-15)
    with pytest.raises(gx.InvalidInput, match="row labels of the blocks"):
        gx.predict(fit, None, moved[["a", "b"]].set_axis(range(4)), block=blocks, progress=False)


def test_sides_of_rectangles_are_no_rows(fit, places):
    sides = pd.Series([0.5, 0.25], index=["x", "y"])
    found = gx.predict(fit, places, block=sides, progress=False)
    want = gx.predict(fit, places, block=(0.5, 0.25), progress=False)
    np.testing.assert_array_equal(found.mean, want.mean)


def test_labels_of_folds_match_the_rows_of_the_observations(fit, table):
    folds = pd.Series(np.arange(40) % 4, index=table.index)
    want = gx.cross_validate(fit, folds.to_numpy(), progress=False)
    found = gx.cross_validate(fit, folds.sample(frac=1, random_state=1), progress=False)
    np.testing.assert_array_equal(found.mean, want.mean)
    np.testing.assert_array_equal(found.folds, want.folds)
    with pytest.raises(gx.InvalidInput, match="row labels of the observations"):
        gx.cross_validate(fit, folds.reset_index(drop=True), progress=False)


def test_scores_match_by_label():
    mean = pd.Series([1.0, 2.0, 4.0], index=list("abc"))
    seen = pd.Series([2.0, 4.5, 1.5], index=list("bca"))
    assert gx.scores.summary(mean, np.ones(3), seen)["mae"] == pytest.approx(1 / 3)
    with pytest.raises(gx.InvalidInput, match="`observed` must have the row labels of `mean`"):
        gx.scores.crps_gaussian(mean, 1.0, seen.reset_index(drop=True))


@pytest.fixture
def grid():
    xarray = pytest.importorskip("xarray")
    rng = np.random.default_rng(2)
    layers = {name: (("y", "x"), rng.normal(size=(3, 4))) for name in ("a", "b")}
    layers["e"] = (("y", "x"), rng.uniform(0.1, 0.9, (3, 4)))
    return xarray.Dataset(layers, {"y": [1.0, 2.0, 4.0], "x": [0.5, 1.5, 2.5, 3.5]})


def test_cells_of_grids_match_by_their_coordinates(fit, grid):
    want = predicted(fit, grid, error_variance=grid.e.to_numpy().ravel())
    bare, turned = grid[["e"]], grid.transpose("x", "y").isel(y=[2, 0, 1])
    errors = (turned.e, turned.e.to_series(), grid.e.to_series().sample(frac=1, random_state=5))
    for error in errors:
        np.testing.assert_array_equal(predicted(fit, grid, error_variance=error), want)
    for covariates in (turned[["a", "b"]], turned[["a", "b"]].to_dataframe()):
        about = {"covariates": covariates, "error_variance": turned.e}
        np.testing.assert_array_equal(predicted(fit, bare, **about), want)
    with pytest.raises(gx.InvalidInput, match="`error_variance` must have the row labels"):
        predicted(fit, grid, error_variance=grid.e.assign_coords(x=[0.5, 1.5, 2.5, 4.0]))
    with pytest.raises(gx.InvalidInput, match="`error_variance` must have the row labels"):
        predicted(fit, grid, error_variance=pd.Series(grid.e.to_numpy().ravel()))
