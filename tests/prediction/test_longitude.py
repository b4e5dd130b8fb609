"""Longitude: one branch for each data set, whatever the spelling of longitudes."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import geomxp as gx
from geomxp.cli.main import main
from geomxp.covariance.distance import METRICS
from geomxp.plots import prediction_map
from geomxp.prediction.raster import raster_at

MODEL = gx.Matern(0.8, 400.0, 0.5, nugget=0.1)
HELD = tuple(MODEL.parameters())
MIDDLES = [0.5, 100.0, 179.3, 181.0, -91.0]

SPELLINGS = {
    "-180 to 180": lambda lon: (lon + 180) % 360 - 180,
    "0 to 360": lambda lon: lon % 360,
    "both": lambda lon: np.where(np.arange(lon.size) % 3, lon % 360, (lon + 180) % 360 - 180),
}


def spelled(places, how):
    """The same places with other numbers for their longitudes."""
    places = np.asarray(places, dtype=float)
    return np.column_stack((SPELLINGS[how](places[:, 0]).round(6), places[:, 1]))


def region(middle, n=40, seed=1):
    """Places in 8 by 6 degrees about a meridian, and values with a trend in the longitude."""
    random = np.random.default_rng(seed)
    places = (random.uniform([-4, 30], [4, 36], (n, 2))).round(4)
    places[:2] = [-4, 30], [4, 36]
    values = 3 + 0.8 * places[:, 0] - 0.1 * places[:, 1] + 0.3 * random.normal(size=n)
    return places + np.array([middle, 0]), values


def fitted(places, values, trend="linear", method=None, model=MODEL):
    seen = gx.Observations(places, values, metric="chordal")
    return gx.fit(seen, model, method, fixed=tuple(model.parameters()), trend=trend)


def both(prediction):
    return np.stack((prediction.mean, prediction.variance))


def equal(found, expected, rtol=1e-9):
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-12)


def universal(places, values, there):
    """Universal kriging with a trend in degrees east of the region's middle, by dense algebra."""

    def points(degrees):
        lon, lat = np.radians(degrees).T
        xyz = np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)
        return 6371.0 * np.stack(xyz, axis=1)

    def covariance(a, b):
        apart = np.linalg.norm(points(a)[:, None] - points(b), axis=2)
        return MODEL.variance * np.exp(-apart / MODEL.range)

    def design(degrees):
        return np.column_stack((np.ones(len(degrees)), degrees - places.mean(axis=0)))

    sigma = covariance(places, places) + MODEL.nugget * np.eye(len(places))
    k, x = covariance(places, there), design(places)
    beta = np.linalg.solve(x.T @ np.linalg.solve(sigma, x), x.T @ np.linalg.solve(sigma, values))
    return design(there) @ beta + k.T @ np.linalg.solve(sigma, values - x @ beta)


@pytest.mark.parametrize("middle", MIDDLES)
@pytest.mark.parametrize("how", SPELLINGS)
def test_predictions_with_a_trend_are_those_of_dense_algebra_on_one_branch(middle, how):
    places, values = region(middle)
    there = region(middle, n=7, seed=2)[0] + [0.5, 0.25]
    expected = universal(places, values, there)
    fit = fitted(spelled(places, how), values)
    for other in SPELLINGS:
        equal(gx.predict(fit, spelled(there, other)).mean, expected, rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("trend", ["lon + lat", "poly(lon, 2) + lat", "bs(lon, df=4)"])
@pytest.mark.parametrize("middle", [-0.7, 180.0])
def test_a_formula_of_the_longitude_has_one_value_at_one_place(trend, middle):
    places, values = region(middle)
    there = region(middle, n=5, seed=3)[0]
    fits = [fitted(spelled(places, how), values, trend) for how in SPELLINGS]
    for fit in fits:
        assert fit.log_likelihood == pytest.approx(fits[0].log_likelihood, rel=1e-9)
        for how in SPELLINGS:
            equal(both(gx.predict(fit, spelled(there, how))), both(gx.predict(fits[0], there)))


def test_a_covariate_that_is_the_longitude_is_that_of_the_location():
    places, values = region(180.0)
    frame = pd.DataFrame(spelled(places, "-180 to 180"), columns=["lon", "lat"]).assign(z=values)
    seen = gx.Observations.from_frame(frame, values="z", covariates=("lon", "lat"))
    there = pd.DataFrame(region(180.0, n=5, seed=4)[0], columns=["lon", "lat"])
    expected = gx.predict(fitted(places, values), there.to_numpy())
    for trend in ("covariates", "lon + lat"):
        fit = gx.fit(seen, MODEL, fixed=HELD, trend=trend)
        equal(both(gx.predict(fit, there)), both(expected))


def test_new_places_are_arrays_frames_grids_points_and_inputs():
    geopandas, xarray = pytest.importorskip("geopandas"), pytest.importorskip("xarray")
    places, values = region(180.5)
    fit = fitted(spelled(places, "-180 to 180"), values)
    lon, lat = np.array([178.5, 179.5, 180.5, 181.5]), np.array([31.0, 33.0])
    there = np.stack(np.meshgrid(lon, lat), axis=-1).reshape(-1, 2)
    west = spelled(there, "-180 to 180")
    expected = both(gx.predict(fitted(places, values), there))
    points = geopandas.GeoDataFrame(geometry=geopandas.points_from_xy(*west.T), crs="EPSG:4326")
    grid = xarray.Dataset(coords={"lat": lat, "lon": west[:4, 0]})
    for new in (
        west.tolist(),
        pd.DataFrame(west, columns=["lon", "lat"]),
        points,
        grid,
        gx.Inputs(west, "chordal"),
        gx.Observations(west, np.zeros(8), metric="chordal"),
    ):
        equal(both(gx.predict(fit, new)), expected)
    # Mercator about 180 degrees, whose inverse gives ±180
    equal(both(gx.predict(fit, points.to_crs("EPSG:3832"))), expected, rtol=1e-6)
    # results stand beside the user's own numbers
    frame = gx.predict(fit, pd.DataFrame(west, columns=["lon", "lat"])).to_frame()
    np.testing.assert_array_equal(frame[["lon", "lat"]], west)
    result = gx.predict(fit, grid).to_xarray()
    np.testing.assert_array_equal(result["lon"], grid["lon"])
    equal(result["mean"].to_numpy().ravel(), expected[0])


@pytest.mark.parametrize("method", [gx.Exact(), gx.Vecchia(15)])
def test_folds_subsets_and_draws_have_the_branch_of_all_observations(method):
    places, values = region(179.6)
    fit = fitted(spelled(places, "-180 to 180"), values, method=method)
    plain = fitted(places, values, method=method)
    for how in ({"folds": 4}, {"folds": 3, "blocks": 200.0, "refit": True}):
        equal(gx.cross_validate(fit, **how).mean, gx.cross_validate(plain, **how).mean, 1e-8)
    equal(gx.leave_one_out(fit).mean, gx.leave_one_out(plain).mean)
    there = region(179.6, n=4, seed=8)[0]
    draws = (
        gx.simulate(one, spelled(there, how), draws=3)
        for one, how in ((fit, "0 to 360"), (plain, "both"))
    )
    equal(next(draws), next(draws), 1e-7)


def test_the_part_of_a_region_across_the_date_line_keeps_its_branch():
    places, values = region(180.0)
    seen = gx.Observations(spelled(places, "-180 to 180"), values, metric="chordal")
    middle = seen.central_meridian
    east = seen.locations[:, 0] > middle
    for part in (
        seen.subset(np.flatnonzero(east)),
        replace(seen, values=2 * values),
        gx.Observations(
            np.tile(spelled(places, "0 to 360"), (2, 1)),
            np.tile(values, 2),
            metric="chordal",
            variable=np.repeat(["a", "b"], len(values)),
            central_meridian=middle,
        ).of_variable("b"),
    ):
        assert part.central_meridian == middle
        assert np.abs(part.locations[:, 0] - middle).max() <= 4
    # a part by itself may have another branch: two stations 190 degrees apart
    wide = gx.Observations(
        np.column_stack((np.arange(0, 191, 10.0), np.zeros(20))), np.zeros(20), metric="chordal"
    )
    ends = wide.subset([0, 1, 19])
    assert ends.locations[:, 0].tolist() == [0, 10, 190]
    alone = gx.Observations(ends.locations, np.zeros(3), metric="chordal")
    assert alone.central_meridian != ends.central_meridian


def test_a_summary_says_where_a_region_crosses_the_date_line():
    places, values = region(181.0)
    seen = gx.Observations(spelled(places, "-180 to 180"), values, metric="chordal")
    assert "longitudes from 177 to 185 across the date line" in repr(seen)
    assert "across the date line" in str(seen)
    assert "date line" not in repr(gx.datasets.load("ozone"))


@pytest.mark.parametrize("embed", [True, False])
def test_a_saved_fit_keeps_the_branch(tmp_path, embed):
    places, values = region(179.5)
    frame = pd.DataFrame(spelled(places, "-180 to 180"), columns=["lon", "lat"]).assign(z=values)
    frame.to_csv(tmp_path / "t.csv", index=False)
    seen = gx.read_table(tmp_path / "t.csv", values="z")
    fit = gx.fit(seen, MODEL, fixed=HELD, trend="linear")
    fit.save(tmp_path / "fit.json", embed=embed)
    document = json.loads((tmp_path / "fit.json").read_text())
    assert document["central_meridian"] == seen.central_meridian == 179.5
    again = gx.Fit.load(tmp_path / "fit.json")
    np.testing.assert_array_equal(again.observations.locations, seen.locations)
    # the branch is that of the file
    document["central_meridian"] = -180.5
    (tmp_path / "other.json").write_text(json.dumps(document))
    with warnings.catch_warnings():
        # a file that was changed by hand
        warnings.simplefilter("ignore", gx.GeomxpWarning)
        if not embed:
            other = gx.Fit.load(tmp_path / "other.json")
            assert other.observations.central_meridian == -180.5
            assert other.observations.locations[:, 0].max() == -176.5
    document["central_meridian"] = "west"
    (tmp_path / "wrong.json").write_text(json.dumps(document))
    with pytest.raises(gx.InvalidInput, match=r"central_meridian must be a number\. Got text"):
        gx.Fit.load(tmp_path / "wrong.json")


# Maps


@pytest.fixture(scope="module")
def across():
    """A fit of stations in -180 to 180 from 176 E to 176 W, and the same in 176 to 184."""
    places, values = region(180.0)
    return fitted(spelled(places, "-180 to 180"), values), fitted(places, values)


@pytest.mark.parametrize(
    "size", [{"cells": 16}, {"resolution": 0.5}, {"cells": 8, "block": True}, {}]
)
def test_a_map_is_as_wide_as_the_region(across, size):
    fit, plain = (gx.predict_raster(one, **size) for one in across)
    assert np.diff(fit.extent[:2]) == pytest.approx(8)
    assert fit.mean.shape == plain.mean.shape
    equal(fit.mean, plain.mean)


@pytest.mark.parametrize(
    "bounds",
    [(177, 31, -178, 35), (-183, 31, -178, 35), (177, 31, 182, 35)],
)
def test_bounds_are_moved_to_the_branch_and_cross_the_date_line(across, bounds):
    for fit in across:
        raster = gx.predict_raster(fit, resolution=0.5, bounds=bounds)
        assert raster.extent == (177, 182, 31, 35)
        expected = gx.predict_raster(across[1], resolution=0.5, bounds=(177, 31, 182, 35))
        equal(raster.mean, expected.mean)


def test_bounds_round_the_globe_stay_as_they_are(across):
    raster = gx.predict_raster(across[0], resolution=30, bounds=(-180, -60, 180, 60))
    assert raster.extent == (-180, 180, -60, 60)


def test_a_map_may_go_beyond_360_degrees():
    places, values = region(355.0)
    raster = gx.predict_raster(fitted(places, values), resolution=1, bounds=(352, 30, 2, 36))
    assert raster.extent == (352, 362, 30, 36)
    there = fitted(spelled(places, "-180 to 180"), values)
    expected = gx.predict_raster(there, resolution=1, bounds=(-8, 30, 2, 36))
    equal(raster.mean, expected.mean)


def test_bounds_from_east_to_west_are_refused_in_the_plane():
    fit = gx.fit(gx.datasets.load("meuse"), fixed={"smoothness": 0.5})
    with pytest.raises(gx.InvalidInput, match="`bounds` must be left, bottom"):
        gx.predict_raster(fit, bounds=(181000, 330000, 180000, 331000))


BOX = np.array([[178.0, 31.0], [181.5, 31.0], [181.5, 34.0], [178.0, 34.0]])


@pytest.mark.parametrize("how", ["-180 to 180", "0 to 360"])
@pytest.mark.parametrize("start", range(4))
@pytest.mark.parametrize("step", [1, -1])
def test_polygons_across_the_date_line_are_masks_and_blocks(across, how, start, step):
    corners = spelled(np.roll(BOX, start, axis=0)[::step], how)
    expected = gx.predict_raster(across[1], resolution=0.5, mask=[BOX]).mean
    assert 0 < np.isfinite(expected).sum() < expected.size
    average = both(gx.predict(across[1], block=[BOX]))
    for fit in across:
        equal(gx.predict_raster(fit, resolution=0.5, mask=[corners]).mean, expected)
        equal(both(gx.predict(fit, block=[corners])), average)


@pytest.mark.parametrize("wrong", [np.inf, np.nan])
def test_a_polygon_without_a_longitude_is_refused(across, wrong):
    shapely = pytest.importorskip("shapely")
    with np.errstate(invalid="ignore"):
        polygon = shapely.Polygon([(178, 31), (wrong, 31), (-179, 34)])
        with pytest.raises(gx.InvalidInput, match="the polygon is not valid"):
            gx.predict(across[0], block=[polygon])


def test_polygons_cut_at_the_date_line_are_one(across):
    geopandas, shapely = pytest.importorskip("geopandas"), pytest.importorskip("shapely")
    parts = shapely.box(178, 31, 180, 34), shapely.box(-180, 31, -178.5, 34)
    cut = geopandas.GeoDataFrame(geometry=[shapely.MultiPolygon(parts)], crs="EPSG:4326")
    for fit in across:
        equal(both(gx.predict(fit, block=cut)), both(gx.predict(across[1], block=[BOX])))
        equal(
            gx.predict_raster(fit, resolution=0.5, mask=cut).mean,
            gx.predict_raster(across[1], resolution=0.5, mask=[BOX]).mean,
        )


def test_sets_of_points_and_rectangles_across_the_date_line(across):
    there = region(180.0, n=6, seed=6)[0]
    west = spelled(there, "-180 to 180")
    for fit in across:
        found = gx.predict(fit, block=west.reshape(2, 3, 2))
        equal(both(found), both(gx.predict(across[1], block=there.reshape(2, 3, 2))))
        found = gx.predict(fit, west, block=(1.0, 0.5))
        equal(both(found), both(gx.predict(across[1], there, block=(1.0, 0.5))))


@pytest.mark.parametrize("world", [(-180, 180), (0, 360)])
def test_a_polygon_round_the_globe_is_a_mask_of_all_longitudes(across, world):
    west, east = world
    band = [[west, 32], [east, 32], [east, 34], [west, 34]]
    known = np.isfinite(gx.predict_raster(across[0], resolution=1, mask=[band]).mean)
    assert known.all(axis=1).sum() == 2
    assert known.sum() == 2 * known.shape[1]


def mask_files(folder):
    """The same global mask as a GeoTIFF and a NetCDF in both branches, and a part cut at 180."""
    rasterio, xarray = pytest.importorskip("rasterio"), pytest.importorskip("xarray")
    pytest.importorskip("netCDF4")
    lon, lat = np.arange(0.5, 360), np.arange(25.5, 40)
    cells = (np.random.default_rng(7).random((len(lat), len(lon))) > 0.5).astype(float)
    west = (lon + 180) % 360 - 180
    order = np.argsort(west)
    near = np.abs(lon - 180) < 10
    layers = {
        "east": (lon, cells),
        "west": (west[order], cells[:, order]),
        "cut": (west[near], cells[:, near]),
        "back": (west[near][::-1], cells[:, near][:, ::-1]),
    }
    for name, (x, values) in layers.items():
        dataset = xarray.Dataset({"sea": (("lat", "lon"), values)}, {"lat": lat, "lon": x})
        dataset.to_netcdf(folder / f"{name}.nc")
        yield folder / f"{name}.nc"
        if name in ("east", "west"):
            about = {"driver": "GTiff", "count": 1, "dtype": "float64", "crs": "EPSG:4326"}
            about |= {"height": len(lat), "width": len(x)}
            about["transform"] = rasterio.Affine(1, 0, x[0] - 0.5, 0, -1, 40)
            with rasterio.open(folder / f"{name}.tif", "w", **about) as file:
                file.write(values[::-1], 1)
            yield folder / f"{name}.tif"


def test_raster_files_are_masks_in_either_branch(across, tmp_path):
    found = [
        np.isfinite(gx.predict_raster(fit, resolution=0.5, mask=path).mean)
        for path in mask_files(tmp_path)
        for fit in across
    ]
    assert 0 < found[0].mean() < 1
    for known in found[1:]:
        np.testing.assert_array_equal(known, found[0])


def test_a_grid_whose_columns_cross_the_date_line_gives_the_cells(across, tmp_path):
    files = {path.name: path for path in mask_files(tmp_path)}
    rasters = [gx.predict_raster(fit, like=files["cut.nc"]) for fit in across]
    rasters.append(gx.predict_raster(across[0], resolution=1, bounds=(170, 25, 190, 40)))
    for raster in rasters:
        assert raster.extent == (170, 190, 25, 40)
        equal(raster.mean, rasters[0].mean)
    # a raster on another branch is drawn where the observations are
    west = gx.predict_raster(across[1], like=files["west.tif"])
    assert west.extent[:2] == (-180, 180)
    ax = prediction_map(across[1], raster=replace(rasters[0], extent=(-190, -170, 25, 40)))
    assert ax.get_images()[0].get_extent() == [170, 190, 25, 40]


def test_a_table_of_cells_across_the_date_line_is_a_map(across):
    lon, lat = np.meshgrid([178.5, 179.5, -179.5, -178.5], [31.0, 32.0, 33.0])
    places = pd.DataFrame({"lon": lon.ravel(), "lat": lat.ravel()})
    raster = raster_at(across[0], places, progress=False)
    assert raster.extent == (178, 182, 30.5, 33.5)
    equal(raster.mean.ravel(), gx.predict(across[0], places).mean)


def test_stations_beyond_the_date_line_are_not_taken_for_sentinels():
    lon = [177.1, 178.0, 178.9, 179.5, 177.7, -179.98, -179.98]
    frame = pd.DataFrame({"lon": lon, "lat": np.arange(7.0), "z": np.arange(7.0) % 4})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        seen = gx.Observations.from_frame(frame, values="z")
    assert seen.locations[:, 0].max() == 180.02
    frame.loc[:1, "lon"] = -99.0
    with pytest.warns(gx.GeomxpWarning, match="'lon' holds -99 in 2 rows"):
        gx.Observations.from_frame(frame, values="z")


# All round the globe


def globe(n=60, seed=3):
    random = np.random.default_rng(seed)
    lon = random.uniform(-180, 180, n).round(3)
    lat = np.degrees(np.arcsin(random.uniform(-1, 1, n))).round(3)
    values = np.cos(np.radians(lon)) + 0.01 * lat + 0.2 * random.normal(size=n)
    return np.column_stack((lon, lat)), values


FAR = gx.Matern(0.5, 3000.0, 0.5, nugget=0.1)


@pytest.mark.parametrize(
    "trend", ["linear", "lon", "lat + lon:lat", "poly(lon, 2)", "bs(lon, df=4)", "I(lon > 0)"]
)
def test_a_trend_in_longitude_is_refused_all_round_the_globe(trend):
    places, values = globe()
    with pytest.raises(gx.InvalidInput, match=r"all round the globe .* jumps at one meridian"):
        fitted(places, values, trend, model=FAR)


@pytest.mark.slow
def test_other_trends_and_periodic_ones_are_fitted_all_round_the_globe():
    places, values = globe()
    there = globe(n=5, seed=4)[0]
    periodic = "cos(radians(lon)) + sin(radians(lon))"
    for trend in ("constant", "lat", f"{periodic} + lat", "sin(lon / 57.29577951)"):
        fits = [fitted(spelled(places, how), values, trend, model=FAR) for how in SPELLINGS]
        for fit in fits:
            assert fit.observations.central_meridian is None
            for how in SPELLINGS:
                found = both(gx.predict(fit, spelled(there, how)))
                equal(found, both(gx.predict(fits[0], there)), 1e-7)
    # the message names a trend that works
    with pytest.raises(gx.InvalidInput, match="radians") as refused:
        fitted(places, values, "linear", model=FAR)
    assert f'"{periodic}"' in str(refused.value)


def test_a_trend_of_one_of_several_variables_is_refused_by_its_name():
    places, values = globe()
    seen = gx.Observations(
        np.tile(places, (2, 1)),
        np.tile(values, 2),
        metric="chordal",
        variable=np.repeat(["ice", "sea"], len(values)),
    )
    with pytest.raises(gx.InvalidInput, match=r"sea.*all round the globe"):
        gx.log_likelihood(
            seen,
            FAR,
            trend={"ice": "constant", "sea": "linear"},
        )


def test_maps_masks_and_exploration_work_all_round_the_globe():
    places, values = globe()
    fit = fitted(places, values, "constant", model=FAR)
    raster = gx.predict_raster(fit, resolution=15, bounds=(-180, -60, 180, 60))
    other = gx.predict_raster(fit, resolution=15, bounds=(0, -60, 360, 60))
    equal(np.roll(raster.mean, 12, axis=1), other.mean)
    for bounds in ((-180, -60, 180, 60), (0, -60, 360, 60)):
        box = [[165, -30], [210, -30], [210, 0], [165, 0]]
        found = gx.predict_raster(fit, resolution=15, bounds=bounds, mask=[box])
        assert np.isfinite(found.mean).sum() == 6
    assert "region of" in str(gx.explore(fit.observations))


def test_a_polygon_that_may_go_either_way_round_is_said():
    places, values = globe()
    fit = fitted(places, values, "constant", model=FAR)
    box = [[170, -30], [-160, -30], [-160, 0], [170, 0]]
    with pytest.warns(gx.GeomxpWarning, match=r"from -160 to 170, .* 30 degrees wide"):
        found = gx.predict_raster(fit, resolution=10, bounds=(-180, -60, 180, 60), mask=[box])
    assert np.isfinite(found.mean).sum() == 9


def test_a_subset_of_observations_round_the_globe_has_its_own_branch():
    places, values = globe(n=300)
    seen = gx.Observations(places, values, metric="chordal")
    rows = np.abs(np.abs(places[:, 0]) - 180) < 25
    part = seen.subset(np.flatnonzero(rows))
    assert seen.central_meridian is None
    assert np.ptp(part.locations[:, 0]) < 50
    fit = gx.fit(part, FAR, fixed=HELD, trend="linear")
    assert np.isfinite(fit.log_likelihood)


@pytest.mark.parametrize("metric", METRICS)
def test_locations_at_one_meridian_have_it_in_the_middle(metric):
    seen = gx.Observations(
        [[-180.0, 1.0], [-180.0, 2.0], [180.0, 3.0]],
        [1.0, 2.0, 3.0],
        metric=metric,
        location_names=("a", "b"),
    )
    turned = metric != "euclidean"
    assert seen.central_meridian == (180.0 if turned else None)
    assert np.ptp(seen.locations[:, 0]) == (0 if turned else 360)


@pytest.mark.parametrize("wrong", ["0", np.nan, 400.0, [0.0], True])
def test_a_central_meridian_is_a_longitude(wrong):
    with pytest.raises(gx.InvalidInput, match="`central_meridian` must be a longitude"):
        gx.Observations(globe()[0], globe()[1], metric="chordal", central_meridian=wrong)


# The command line


def test_commands_fit_map_and_predict_across_the_date_line(tmp_path, capsys):
    places, values = region(180.2)
    west = spelled(places, "-180 to 180")
    for name, table in (("west", west), ("east", places)):
        frame = pd.DataFrame(table, columns=["lon", "lat"]).assign(z=values)
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    maps = []
    for name in ("west", "east"):
        fix = [f"--fix={key}={value}" for key, value in MODEL.parameters().items()]
        table, fit = str(tmp_path / f"{name}.csv"), str(tmp_path / f"{name}.json")
        assert not main(
            ["fit", table, "--value", "z", "--trend", "linear", *fix, "--output", fit, "--quiet"]
        )
        output = str(tmp_path / f"{name}-map.csv")
        about = ["--resolution", "0.5", "--bounds", "177,31,-177,35", "--output", output]
        assert not main(["predict", fit, *about, "--quiet"])
        maps.append(pd.read_csv(output))
        output = str(tmp_path / f"{name}-out.csv")
        there = str(tmp_path / "west.csv")
        assert not main(["predict", fit, there, "--output", output, "--quiet"])
        maps.append(pd.read_csv(output))
    capsys.readouterr()
    assert (maps[0]["lon"].min(), maps[0]["lon"].max()) == (177.25, 182.75)
    np.testing.assert_array_equal(maps[1]["lon"], west[:, 0])
    for one, other in zip(maps[:2], maps[2:], strict=True):
        equal(one["mean"], other["mean"])
