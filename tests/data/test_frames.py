"""Frames, grids and files of places: one set of observations, and predictions of the same kind."""

import json
import subprocess
import sys

import geopandas
import numpy as np
import pandas as pd
import pytest
import shapely
import xarray
from geopandas.testing import assert_geodataframe_equal

import geomxp as gx
from geomxp.cli.main import main
from geomxp.data import spatial, tables
from geomxp.prediction.raster import grid_over

RD = "EPSG:28992"
HELD = {"smoothness": 0.5}


def table():
    return pd.read_csv(gx.datasets.path("meuse"))


def points(frame, system=RD, names=("x", "y")):
    places = geopandas.points_from_xy(*(frame[name] for name in names), crs=system)
    return geopandas.GeoDataFrame(frame.drop(columns=list(names)), geometry=places)


def grid(rows=4, columns=5, **attributes):
    random = np.random.default_rng(3)
    return xarray.DataArray(
        random.standard_normal((rows, columns)),
        {"y": 330000.0 - 40 * np.arange(rows), "x": 180000.0 + 40 * np.arange(columns)},
        name="z",
        attrs=attributes,
    )


@pytest.fixture(scope="module")
def fitted():
    seen = gx.Observations.from_frame(points(table()), values="log_zinc", covariates=["sqrt_dist"])
    return gx.fit(seen, fixed=HELD, trend="covariates")


# observations


@pytest.mark.parametrize("ending", ["csv", "parquet", "gpkg"])
def test_every_kind_of_table_gives_the_same_digest(tmp_path, ending):
    data = table().rename(columns={"log_zinc": "z", "sqrt_dist": "c"})[["x", "y", "z", "c"]]
    path = tmp_path / f"t.{ending}"
    if ending == "gpkg":
        points(data).to_file(path)
    else:
        tables.write_frame(data, path)
    named = {"values": "z", "covariates": ["c"]}
    seen = gx.Observations.from_frame(points(data), **named)
    where = {} if ending == "gpkg" else {"locations": ("x", "y")}
    assert gx.read_table(path, **named, **where).digest() == seen.digest()
    plain = gx.Observations.from_frame(data, locations=("x", "y"), **named)
    assert plain.digest() == seen.digest()


def test_a_grid_its_table_its_points_and_its_file_give_the_same_digest(tmp_path):
    array = grid()
    seen = gx.Observations.from_xarray(array)
    data = array.to_dataframe().reset_index()
    assert len(seen) == 20
    array.to_netcdf(tmp_path / "t.nc")
    data.to_csv(tmp_path / "t.csv", index=False)
    for other in (
        gx.Observations.from_frame(data, locations=("x", "y"), values="z"),
        gx.Observations.from_frame(points(data), values="z"),
        gx.Observations.from_xarray(array.to_dataset()),
        gx.read_table(tmp_path / "t.nc"),
        gx.read_table(tmp_path / "t.csv", locations=("x", "y"), values="z"),
    ):
        assert other.digest() == seen.digest()


def test_longitude_and_latitude_give_the_same_digest_in_every_kind(tmp_path):
    data = pd.read_csv(gx.datasets.path("ozone"))
    seen = gx.datasets.load("ozone")
    geo = points(data, "EPSG:4326", ("lon", "lat"))
    geo.to_file(tmp_path / "t.geojson")
    for other in (
        gx.Observations.from_frame(data, locations=("lon", "lat"), values="o3_ppb"),
        gx.Observations.from_frame(geo, values="o3_ppb"),
        gx.Observations.from_frame(geo.set_crs("OGC:CRS84", allow_override=True), values="o3_ppb"),
        gx.read_table(tmp_path / "t.geojson", values="o3_ppb"),
    ):
        assert other.digest() == seen.digest()
        assert (other.metric, other.unit, other.location_names) == ("chordal", "km", ("lon", "lat"))


@pytest.mark.parametrize(
    ("system", "unit"), [(RD, "m"), ("EPSG:2263", "US survey foot"), ("EPSG:7415", "m")]
)
def test_projected_points_are_euclidean_in_their_unit(system, unit):
    seen = gx.Observations.from_frame(points(table(), system), values="log_zinc")
    assert (seen.metric, seen.unit) == ("euclidean", unit)
    assert spatial.same(seen.crs, system)
    assert seen.subset(slice(5)).unit == unit


def test_points_without_a_system_are_euclidean_and_nothing_is_said():
    seen = gx.Observations.from_frame(points(table(), None), values="log_zinc")
    assert (seen.metric, seen.unit, seen.crs) == ("euclidean", "units of the locations", None)


def test_another_datum_is_brought_to_wgs84():
    seen = gx.datasets.load("ozone")
    data = geopandas.GeoDataFrame(
        {"z": seen.values}, geometry=geopandas.points_from_xy(*seen.locations.T), crs="EPSG:4326"
    )
    # gradians east of Paris: numbers of another kind altogether
    there = gx.Observations.from_frame(data.to_crs("EPSG:4807"), values="z")
    assert there.crs == "EPSG:4326"
    # there and back through a datum shift: under a millimetre
    np.testing.assert_allclose(there.locations, seen.locations, atol=1e-8)


def test_missing_and_empty_points_are_named_or_dropped():
    data = points(table())
    data.loc[data.index[[3, 8]], "geometry"] = [None, shapely.Point()]
    kept = data.copy()
    with pytest.raises(gx.InvalidInput, match=r"row 4: the geometry is missing or empty \(2 such"):
        gx.Observations.from_frame(data, values="log_zinc")
    assert_geodataframe_equal(data, kept)
    seen = gx.Observations.from_frame(data, values="log_zinc", drop_missing=True)
    np.testing.assert_array_equal(seen.values, table().log_zinc.drop([3, 8]))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (shapely.box(0, 0, 1, 1), "Got a Polygon in row 3 \\(1 such rows\\): use frame.centroid"),
        (shapely.MultiPoint([(0, 0)]), "Got a MultiPoint in row 3"),
        (shapely.LineString([(0, 0), (1, 1)]), "Got a LineString in row 3"),
    ],
)
def test_other_shapes_than_points_are_named(shape, message):
    data = points(table())
    data.loc[data.index[2], "geometry"] = shape
    with pytest.raises(gx.InvalidInput, match=message):
        gx.Observations.from_frame(data, values="log_zinc", drop_missing=True)


def test_heights_count_where_they_are_named():
    data = table()
    data["geometry"] = shapely.points(data.x, data.y, data.elev)
    data = geopandas.GeoDataFrame(data, crs=RD)
    assert gx.Observations.from_frame(data, values="log_zinc").dimensions == 2
    seen = gx.Observations.from_frame(data, values="log_zinc", locations=("x", "y", "z"))
    np.testing.assert_array_equal(seen.locations[:, 2], data.elev)
    assert seen.crs == RD


def test_columns_may_have_a_system_of_their_own():
    seen = gx.Observations.from_frame(table(), locations=("x", "y"), values="log_zinc", crs=RD)
    assert (seen.crs, seen.unit) == (RD, "m")
    degrees = points(table()).to_crs(4258)
    data = pd.DataFrame({"e": degrees.geometry.x, "n": degrees.geometry.y, "z": table().log_zinc})
    seen = gx.Observations.from_frame(data, locations=("e", "n"), values="z", crs="EPSG:4258")
    assert (seen.crs, seen.metric) == ("EPSG:4326", "chordal")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"values": "gold"}, "no column 'gold'"),
        ({"values": "log_zinc", "metric": "chordal"}, 'metric="chordal" needs longitude and lat'),
        ({"values": "log_zinc", "crs": "EPSG:4326"}, "`crs` must be left out"),
        ({"values": "log_zinc", "crs": "RD new?"}, "must be a coordinate reference system"),
        ({"values": "log_zinc", "crs": "EPSG:4978"}, "geocentric coordinate reference system"),
        ({"values": "log_zinc", "locations": "xy"}, "sequence of column names"),
        ({"values": None}, "`values` must name the column"),
    ],
)
def test_wrong_choices_of_columns_are_named(options, message):
    with pytest.raises(gx.InvalidInput, match=message) as caught:
        gx.Observations.from_frame(points(table()), **options)
    assert "\n" not in str(caught.value)


def test_a_plain_frame_must_say_where_its_coordinates_are():
    frame = table().rename(columns={"x": "rd_east", "y": "rd_north"})
    with pytest.raises(gx.InvalidInput, match="`locations` must name the columns"):
        gx.Observations.from_frame(frame, values="log_zinc")
    with pytest.raises(gx.InvalidInput, match=r"a pandas or geopandas frame.*Got list"):
        gx.Observations.from_frame([1, 2], values="z")


# grids


def test_cells_without_a_value_are_not_observed_and_counted():
    array = grid()
    array[1, 2:4] = np.nan
    with pytest.warns(gx.GeomxpWarning, match="2 of 20 cells have no z and are left out"):
        seen = gx.Observations.from_xarray(array)
    assert len(seen) == 18
    cells = np.isfinite(array.values)
    np.testing.assert_array_equal(seen.values, array.values[cells])
    np.testing.assert_array_equal(seen.locations[7], [180000 + 40 * 4, 330000 - 40])


@pytest.mark.parametrize(
    ("names", "attributes"),
    [
        (("lat", "lon"), ({}, {})),
        (("Latitude", "Longitude"), ({}, {})),
        (("j", "i"), ({"standard_name": "latitude"}, {"standard_name": "longitude"})),
        (("y", "x"), ({"units": "degrees_north"}, {"units": "degrees_east"})),
    ],
)
def test_longitude_and_latitude_are_known_by_names_and_attributes(names, attributes):
    array = grid().rename(dict(zip(("y", "x"), names, strict=True)))
    array = array.assign_coords({names[0]: [50.0, 49.0, 48.0, 47.0], names[1]: np.arange(5.0)})
    for name, words in zip(names, attributes, strict=True):
        array[name].attrs.update(words)
    # transposed too: longitude is first whatever the order of the dimensions
    for turned in (array, array.T):
        seen = gx.Observations.from_xarray(turned)
        assert (seen.metric, seen.location_names) == ("chordal", names[::-1])
        assert set(seen.locations[:, 1]) == {50.0, 49.0, 48.0, 47.0}


def test_curvilinear_grids_have_two_dimensional_coordinates():
    array = grid().drop_vars(["x", "y"])
    lon, lat = np.meshgrid(np.arange(5.0), np.arange(4.0))
    array = array.assign_coords(lon=(("y", "x"), lon + lat / 10), lat=(("y", "x"), lat))
    seen = gx.Observations.from_xarray(array)
    np.testing.assert_array_equal(seen.locations[:, 0], (lon + lat / 10).ravel())
    np.testing.assert_array_equal(seen.values, array.values.ravel())


def test_a_list_of_stations_is_a_grid_of_one_dimension():
    data = table()[["x", "y", "log_zinc"]]
    seen = gx.Observations.from_xarray(xarray.Dataset(data), values="log_zinc")
    assert (
        seen.digest()
        == gx.Observations.from_frame(data, locations=("x", "y"), values="log_zinc").digest()
    )


def test_the_grid_mapping_is_the_coordinate_reference_system():
    array = grid(grid_mapping="crs").to_dataset()
    array["crs"] = ((), 0, {"crs_wkt": spatial.library("pyproj").CRS(RD).to_wkt()})
    seen = gx.Observations.from_xarray(array)
    assert (seen.crs, seen.unit) == (RD, "m")
    # coordinates in another unit than the system's are no coordinates of it
    array["x"].attrs["units"] = "km"
    seen = gx.Observations.from_xarray(array)
    assert (seen.crs, seen.unit) == (None, "km")


def test_covariates_and_formulas_take_variables_of_a_grid():
    data = grid().to_dataset().assign(h=("y", np.arange(4.0)))
    seen = gx.Observations.from_xarray(data, values="z", covariates=["h"])
    np.testing.assert_array_equal(seen.covariates[:, 0], np.repeat(np.arange(4.0), 5))
    again = gx.Observations.from_xarray(data, values="z", formula="log(h + 1) + x")
    assert again.covariate_names == ("h",)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda a: a.expand_dims(time=3), r"'z' has a dimension 'time' of 3 besides y, x: select"),
        (lambda a: a.rename(x="u"), "coordinates called x and y, or lon and lat"),
        (lambda a: a.drop_vars("x"), "coordinates called x and y, or lon and lat"),
        (
            lambda a: a.to_dataset().assign(w=a),
            "`values` must name one or several of the variables: z, w",
        ),
    ],
)
def test_grids_that_cannot_be_read_are_named(make, message):
    with pytest.raises(gx.InvalidInput, match=message):
        gx.Observations.from_xarray(make(grid()))


def test_the_only_time_of_a_grid_is_no_dimension():
    seen = gx.Observations.from_xarray(grid().expand_dims(time=[7.0]))
    assert seen.digest() == gx.Observations.from_xarray(grid()).digest()


# files


def test_a_fit_of_a_geopackage_reads_it_again(tmp_path):
    path = tmp_path / "t.gpkg"
    points(table()).to_file(path)
    seen = gx.read_table(path, values="log_zinc", covariates=["sqrt_dist"])
    fit = gx.fit(seen, fixed=HELD)
    fit.save(tmp_path / "fit.json", embed=False)
    again = gx.Fit.load(tmp_path / "fit.json").observations
    assert again.digest() == seen.digest()
    assert (again.crs, again.unit, again.location_names) == (RD, "m", ("x", "y"))
    points(table()[1:]).to_file(path)
    with pytest.raises(gx.InvalidInput, match="the table has changed"):
        gx.Fit.load(tmp_path / "fit.json")


def test_a_saved_fit_keeps_the_system_of_observations_it_embeds(tmp_path, fitted):
    fitted.save(tmp_path / "fit.json")
    again = gx.Fit.load(tmp_path / "fit.json").observations
    assert (again.crs, again.unit) == (RD, "m")
    path = tmp_path / "t.csv"
    table().to_csv(path, index=False)
    seen = gx.read_table(path, locations=("x", "y"), values="log_zinc", crs=RD)
    gx.fit(seen, fixed=HELD).save(tmp_path / "fit.json", embed=False)
    assert gx.Fit.load(tmp_path / "fit.json").observations.crs == RD


def test_a_shapefile_is_read_with_its_system(tmp_path):
    points(table()).to_file(tmp_path / "t.shp")
    seen = gx.read_table(tmp_path / "t.shp", values="log_zinc")
    assert (seen.metric, seen.unit) == ("euclidean", "m")
    # the format writes 15 decimals
    np.testing.assert_allclose(seen.values, table().log_zinc, atol=1e-15, rtol=1e-15)


def test_the_hash_of_a_shapefile_is_of_all_its_numbers(tmp_path):
    path = tmp_path / "t.shp"
    data = points(table())[["zinc", "geometry"]]
    data.to_file(path)
    first = tables.sha256(path)
    data.assign(zinc=data.zinc + 1).to_file(path)
    assert tables.sha256(path) != first


@pytest.mark.parametrize("ending", ["gpkg", "geojson", "shp", "nc"])
def test_files_that_are_not_of_their_kind_are_named_in_one_line(tmp_path, ending):
    path = tmp_path / f"t.{ending}"
    path.write_text("x,y,z\n1,2,3\n")
    with pytest.raises(gx.InvalidInput, match="not a") as caught:
        gx.read_table(path, values="z")
    assert "\n" not in str(caught.value)
    assert str(caught.value).count(str(path)) == 1


def test_a_geopackage_of_two_layers_is_refused(tmp_path):
    path = tmp_path / "t.gpkg"
    for layer in ("a", "b"):
        points(table()).to_file(path, layer=layer)
    with pytest.raises(gx.InvalidInput, match="must hold one layer"):
        gx.read_table(path, values="zinc")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "library"), [("t.gpkg", "geopandas"), ("t.nc", "xarray"), ("t.geojson", "geopandas")]
)
def test_a_missing_library_is_one_line_that_names_the_extra(tmp_path, name, library):
    path = tmp_path / name
    path.write_text("")
    code = (
        f"import sys; sys.modules[{library!r}] = None\n"
        "import geomxp as gx\n"
        f"try: gx.read_table({str(path)!r}, values='z')\n"
        "except gx.InvalidInput as error: print(error)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.startswith(f"{library} is needed")
    assert 'pip install "geomxp[geo]"' in run.stdout
    assert run.stdout.count("\n") == 1


def test_files_hold_only_frames_of_their_kind(tmp_path):
    data = table()
    for name, frame, message in (
        ("t.gpkg", data, "can hold only points of a geopandas frame"),
        ("t.nc", data, "can hold only a grid"),
        ("t.shp", points(data), "shapefiles truncate names and cannot be written"),
        ("t.geojson", points(data, None), "have no coordinate reference system"),
    ):
        with pytest.raises(gx.InvalidInput, match=message):
            tables.write_frame(frame, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_full_or_gone_is_said(tmp_path):
    with pytest.raises(gx.GeomxpError, match="cannot be written"):
        tables.write_frame(points(table()), tmp_path / "gone" / "t.gpkg")


# predictions


def test_predictions_are_the_same_bits_in_every_kind(fitted):
    data = table()[:40]
    arrays = gx.predict(fitted, data[["x", "y"]].to_numpy(), data[["sqrt_dist"]].to_numpy())
    stations = xarray.Dataset(data)
    for places in (data, points(data), points(data, None), stations):
        there = gx.predict(fitted, places)
        np.testing.assert_array_equal(there.mean, arrays.mean)
        np.testing.assert_array_equal(there.variance, arrays.variance)
        np.testing.assert_array_equal(there.locations, arrays.locations)


def test_a_pandas_frame_comes_back_with_its_columns_and_index(fitted):
    data = table()[5:9].set_index(pd.Index(list("abca"), name="site"))
    frame = gx.predict(fitted, data).to_frame(0.9)
    assert frame.index.equals(data.index)
    pd.testing.assert_frame_equal(frame[data.columns], data)
    assert [*frame.columns[len(data.columns) :]] == [
        *("mean", "variance", "lower", "upper", "variance_of_observation"),
    ]
    bare = gx.predict(fitted, data[["x", "y"]].to_numpy(), data[["sqrt_dist"]])
    pd.testing.assert_frame_equal(
        frame[["mean", "lower"]].reset_index(drop=True), bare.to_frame(0.9)[["mean", "lower"]]
    )


def test_a_geopandas_frame_comes_back_with_its_geometry_and_system(fitted):
    data = points(table()[:6]).to_crs(4326)
    there = gx.predict(fitted, data)
    frame = there.to_frame()
    assert isinstance(frame, geopandas.GeoDataFrame)
    assert frame.crs == data.crs
    assert frame.geometry.equals(data.geometry)
    # reprojected there and back: a micrometre of places, and kriging is continuous
    np.testing.assert_allclose(there.locations, table()[["x", "y"]][:6], atol=1e-4)
    series = gx.predict(gx.fit(fitted.observations, fixed=HELD), data.geometry).to_frame()
    assert isinstance(series, geopandas.GeoDataFrame)


@pytest.mark.parametrize("order", [("y", "x"), ("x", "y")])
def test_a_grid_comes_back_as_a_grid(fitted, order):
    places = grid_over(fitted.observations, 9)
    x, y = np.unique(places[:, 0]), np.unique(places[:, 1])[::-1]
    field = xarray.Dataset(coords={"y": y, "x": x}).assign(
        sqrt_dist=(("y", "x"), np.linspace(0, 1, len(x) * len(y)).reshape(len(y), len(x)))
    )
    there = gx.predict(fitted, field.transpose(*order)).to_xarray()
    assert there["mean"].dims == order
    at = {"y": y[1], "x": x[2]}
    point = gx.predict(fitted, [[x[2], y[1]]], [[float(field.sqrt_dist.sel(at))]])
    # one place alone is solved in another order of operations than in a crowd
    assert float(there["mean"].sel(at)) == pytest.approx(point.mean[0], rel=1e-12)
    assert set(there.data_vars) >= {"mean", "variance", "lower", "upper"}


def test_cells_without_covariates_are_left_empty_and_counted(fitted):
    stations = table()[:30]
    stations.loc[[4, 7], "sqrt_dist"] = np.nan
    data = xarray.Dataset(stations)
    with pytest.warns(gx.GeomxpWarning, match="2 of 30 cells have no sqrt_dist and are not pred"):
        there = gx.predict(fitted, data)
    result = there.to_xarray()
    assert np.flatnonzero(result["mean"].isnull()).tolist() == [4, 7]
    np.testing.assert_array_equal(result["mean"].dropna("dim_0"), there.mean)
    assert len(there.to_frame()) == 28


def test_grids_in_degrees_are_brought_to_the_plane_of_the_observations(fitted):
    fit = gx.fit(fitted.observations, fixed=HELD)
    array = xarray.DataArray(
        np.zeros((2, 3)), {"lat": [50.99, 50.98], "lon": [5.74, 5.75, 5.76]}, ("lat", "lon")
    )
    there = gx.predict(fit, array)
    mesh = points(array.to_dataframe("z").reset_index(), "EPSG:4326", ("lon", "lat")).to_crs(RD)
    np.testing.assert_array_equal(there.locations, mesh.get_coordinates())
    assert there.to_xarray()["mean"].dims == ("lat", "lon")
    assert there.to_frame().lat.tolist() == [50.99] * 3 + [50.98] * 3


def test_places_on_a_line_are_columns_by_name():
    seen = gx.Observations.from_frame(
        table()[:60], locations=["elev"], values="log_zinc", duplicates="keep"
    )
    fit = gx.fit(seen, gx.Matern(1.0, 1.0, 0.5, 0.1), fixed=("range", "smoothness", "nugget"))
    np.testing.assert_array_equal(
        gx.predict(fit, points(table()[:5])).locations[:, 0], table().elev[:5]
    )
    with pytest.raises(gx.InvalidInput, match="no column 'elev'"):
        gx.predict(fit, points(table()[["x", "y"]]))


def test_draws_take_the_same_kinds(fitted):
    data = table()[:5]
    arrays = gx.simulate(fitted, data[["x", "y"]].to_numpy(), covariates=data[["sqrt_dist"]])
    np.testing.assert_array_equal(gx.simulate(fitted, points(data)), arrays)


def test_a_grid_written_and_read_again_is_the_same_grid(tmp_path, fitted):
    fit = gx.fit(fitted.observations, fixed=HELD)
    array = grid(grid_mapping="crs").to_dataset()
    array["crs"] = ((), 0, {"crs_wkt": spatial.library("pyproj").CRS(RD).to_wkt()})
    array.to_netcdf(tmp_path / "places.nc")
    result = gx.predict(fit, tables.read_data(tmp_path / "places.nc")).to_xarray()
    tables.write_frame(result, tmp_path / "map.nc")
    again = tables.read_data(tmp_path / "map.nc")
    xarray.testing.assert_equal(again, result)
    assert spatial.tabulate(again).crs == RD


def test_points_written_and_read_again_are_the_same_points(tmp_path, fitted):
    result = gx.predict(fitted, points(table()[:9])).to_frame()
    tables.write_frame(result, tmp_path / "map.gpkg")
    again = tables.read_data(tmp_path / "map.gpkg")
    assert again.crs == result.crs
    np.testing.assert_array_equal(again["mean"], result["mean"])
    tables.write_frame(result, tmp_path / "map.csv")
    assert list(tables.read_frame(tmp_path / "map.csv").columns[:2]) == ["x", "y"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["map.csv", "map.gpkg"]


@pytest.mark.parametrize(
    ("places", "message"),
    [
        (lambda: table().drop(columns="x"), "no column 'x'"),
        (lambda: table().drop(columns="sqrt_dist"), "no column 'sqrt_dist'"),
        (
            lambda: points(table().assign(geometry=0)).set_geometry(
                [shapely.box(0, 0, 1, 1)] * 155
            ),
            "geometries must be points. Got a Polygon",
        ),
        (lambda: grid(), "no variable 'sqrt_dist'"),
    ],
)
def test_places_that_cannot_be_used_are_named(fitted, places, message):
    with pytest.raises(gx.InvalidInput, match=message):
        gx.predict(fitted, places())


def test_places_with_a_system_need_observations_with_one():
    seen = gx.datasets.load("meuse")
    fit = gx.fit(seen, fixed=HELD)
    with pytest.raises(gx.InvalidInput, match="EPSG:28992, and the observations have no coordin"):
        gx.predict(fit, points(table()))
    gx.predict(fit, points(table(), None))
    ozone = gx.fit(gx.datasets.load("ozone"), fixed=HELD)
    there = gx.predict(ozone, points(table()))
    assert np.abs(there.locations - [5.75, 50.98]).max() < 0.1


@pytest.mark.filterwarnings("ignore:the coordinates lon, lat look like")
def test_degrees_taken_for_a_plane_stay_so():
    seen = gx.datasets.load("ozone", metric="euclidean")
    fit = gx.fit(seen, fixed=HELD)
    array = xarray.DataArray(np.zeros((2, 2)), {"lat": [41.0, 40.0], "lon": [-88.0, -87.0]})
    data = array.to_dataframe("z").reset_index()
    there = gx.predict(fit, array)
    np.testing.assert_array_equal(there.locations, data[["lon", "lat"]])
    np.testing.assert_array_equal(there.mean, gx.predict(fit, data).mean)


@pytest.mark.parametrize("wrong", [{"crs": 28992}, {"length_unit": None}])
def test_a_system_and_a_unit_are_text(wrong):
    with pytest.raises(gx.InvalidInput, match="must be text"):
        gx.Observations([[0, 0], [1, 0], [0, 1]], [1.0, 2.0, 3.0], **wrong)


def test_results_do_not_take_the_place_of_columns(fitted):
    there = gx.predict(fitted, table().assign(mean=0.0))
    with pytest.raises(gx.InvalidInput, match="column 'mean' has the name of a result"):
        there.to_frame()
    with pytest.raises(gx.InvalidInput, match="were not a grid"):
        there.to_xarray()


def test_places_outside_a_system_are_named():
    with pytest.raises(gx.InvalidInput, match=r"row 2: \(0, 95\).*has no coordinates in EPSG:3857"):
        spatial.reproject(np.array([[0.0, 5.0], [0.0, 95.0]]), "EPSG:4326", "EPSG:3857")


# the command line


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    points(table()).to_file(folder / "seen.gpkg")
    points(table()[:9]).to_crs(4326).to_file(folder / "there.gpkg")
    table()[:9].to_csv(folder / "there.csv", index=False)
    array = grid(grid_mapping="crs").to_dataset()
    array["crs"] = ((), 0, {"crs_wkt": spatial.library("pyproj").CRS(RD).to_wkt()})
    array.to_netcdf(folder / "there.nc")
    command = ["fit", folder / "seen.gpkg", "--value", "log_zinc", "--fix", "smoothness=0.5"]
    assert main([*map(str, command), "--output", str(folder / "fit.json")]) == 0
    return folder


@pytest.mark.parametrize("places", ["csv", "gpkg", "nc"])
@pytest.mark.parametrize("output", ["csv", "parquet", "gpkg", "geojson", "nc"])
def test_predictions_are_written_as_what_the_output_holds(folder, capsys, places, output):
    path = folder / f"{places}.{output}"
    fit, there = str(folder / "fit.json"), str(folder / f"there.{places}")
    status = main(["predict", fit, there, "--output", str(path)])
    if output == "nc" and places != "nc":
        assert status == 2
        assert "can hold only a grid, and these locations are not a grid" in capsys.readouterr().err
        return
    assert status == 0
    bare = gx.predict(
        gx.Fit.load(folder / "fit.json"), tables.read_data(folder / f"there.{places}")
    )
    written = tables.read_frame(path)
    if output == "nc":
        written = written[np.isfinite(written["mean"])]
    # GeoJSON has 17 digits of numbers too
    np.testing.assert_array_equal(tables.number_columns(written, ["mean"])[:, 0], bare.mean)
    if output == "gpkg":
        assert tables.read_data(path).crs == ("EPSG:4326" if places == "gpkg" else RD)


def test_json_of_predictions_has_the_coordinates_of_the_observations(folder, capsys):
    arguments = ["predict", str(folder / "fit.json"), str(folder / "there.gpkg"), "--json"]
    assert main(arguments) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    np.testing.assert_allclose([row["x"] for row in rows], table().x[:9], atol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "seen.gpkg"], "name the column of the values with --value"),
        (["fit", "seen.gpkg", "--value", "gold"], "no column 'gold'"),
        (
            ["fit", "there.csv"],
            "name the column of the values with --value, for example: geomxp fit",
        ),
        (
            ["predict", "fit.json", "there.csv", "--output", "map.shp"],
            "shapefiles truncate names and cannot be written",
        ),
    ],
)
def test_bad_usage_is_one_line_and_status_2(folder, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(folder)
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_columns_of_a_csv_get_a_system_on_the_command_line(folder, capsys):
    command = ["fit", str(folder / "there.csv"), "--locations", "x,y", "--value", "log_zinc"]
    held = ["--fix", "smoothness=0.5", "--fix", "range=200", "--fix", "nugget=0.1"]
    assert main([*command, *held, "--crs", RD]) == 0
    assert "correlation 5 %, in m\n" in capsys.readouterr().out
