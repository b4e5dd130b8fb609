"""Frames, grids and files of places: one set of observations, and predictions of the same kind."""

import json
import subprocess
import sys
import warnings

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
HELD_IN_TIME = {
    **{"variance": 1, "range": 2, "time_range": 2, "smoothness": 0.5},
    **{"time_smoothness": 0.5, "nugget": 0.1},
}.items()


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
    # coordinates in an unknown unit are no coordinates of the system
    array["x"].attrs["units"] = "rods"
    with pytest.warns(gx.GeomxpWarning, match="the coordinates are in 'rods'"):
        seen = gx.Observations.from_xarray(array)
    assert (seen.crs, seen.unit) == (None, "rods")


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


# grids of several times


DAYS = pd.date_range("1987-06-03", periods=4, freq="D")


def cube(**attributes):
    """A DataArray (time, y, x) of four days, with one missing cell."""
    values = np.random.default_rng(5).standard_normal((4, 3, 5))
    values[2, 1, 3] = np.nan
    where = {"time": DAYS, "y": [2.0, 1.0, 0.0], "x": np.arange(5.0)}
    return xarray.DataArray(values, where, name="z", attrs=attributes)


def stations():
    """A Dataset (time, station) of discrete samples, with lon(station) and lat(station)."""
    random = np.random.default_rng(6)
    place = {
        "lon": ("station", random.uniform(5, 6, 7)),
        "lat": ("station", random.uniform(50, 51, 7)),
    }
    height = {
        "height": ("station", random.random(7)),
        "z": (("time", "station"), random.random((4, 7))),
    }
    data = xarray.Dataset(height, {"time": DAYS, **place})
    return data.assign_coords(station=[f"s{k}" for k in range(7)])


def undecoded(data, units="days since 1987-06-03", **attributes):
    """The data with numbers as times, as in a file."""
    numbers = ("time", np.arange(4), {"units": units, **attributes})
    return data.assign_coords(time=numbers)


def seen_in(data, **columns):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "1 of 60 cells have no z")
        return gx.Observations.from_frame(data, values="z", **columns)


def space_time_fit(seen):
    model = gx.Separable(1.0, 2.0, 2.0, 0.5, 0.5, 0.1)
    return gx.fit(seen, model, fixed=tuple(model.parameters()), progress=False)


@pytest.mark.parametrize(
    "make",
    [
        lambda: cube().to_dataset(),
        lambda: cube().transpose("y", "time", "x").to_dataset(),
        stations,
    ],
)
def test_times_of_a_grid_its_table_and_its_file_are_the_same(tmp_path, make):
    data = make()
    names = ("lon", "lat") if "lon" in data.coords else ("x", "y")
    seen = seen_in(data)
    frame = data.to_dataframe(dim_order=data["z"].dims).reset_index().dropna()
    data.to_netcdf(tmp_path / "t.nc")
    raw = tables.read_data(tmp_path / "t.nc")
    assert raw["time"].dtype.kind in "if"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "1 of 60 cells have no z")
        of_file = gx.read_table(tmp_path / "t.nc", values="z")
    of_frame = gx.Observations.from_frame(frame, values="z", time="time", locations=names)
    for other in (of_frame, of_file, seen_in(raw), seen_in(raw, time="time")):
        assert other.digest() == seen.digest()
        about = other.time_unit, other.time_origin, other.time_name
        assert about == ("day", "1987-06-03", "time")
    assert of_file.source["time"] == "time"
    assert seen.location_names == names


def test_numbers_in_units_of_dates_are_the_dates():
    seen = seen_in(cube())
    np.testing.assert_array_equal(np.unique(seen.time), [0.0, 1.0, 2.0, 3.0])
    for data in (
        undecoded(cube()),
        undecoded(cube(), "d since 1987-06-03 00:00:00", calendar="standard"),
        cube().rename(time="when"),
        undecoded(cube(), standard_name="time").rename(time="valid"),
    ):
        assert seen_in(data).digest() == seen.digest()
    later = seen_in(undecoded(cube(), "days since 1990-01-01"))
    assert (later.time_origin, later.digest()) == ("1990-01-01", seen.digest())


@pytest.mark.parametrize(
    ("units", "unit"), [("hours", "hour"), ("h", "hour"), ("days", "day"), ("months", ""), ("", "")]
)
def test_numbers_in_other_units_stay(units, unit):
    seen = seen_in(undecoded(cube(), units))
    np.testing.assert_array_equal(np.unique(seen.time), [0.0, 1.0, 2.0, 3.0])
    assert (seen.time_unit, seen.time_origin) == (unit, "")


def test_durations_are_numbers():
    seen = seen_in(cube().assign_coords(time=DAYS - DAYS[0]))
    assert (seen.digest(), seen.time_unit, seen.time_origin) == (
        seen_in(cube()).digest(),
        "day",
        "",
    )
    fit = space_time_fit(seen)
    day = gx.predict(fit, [[0.5, 0.5]], time=np.timedelta64(36, "h")).mean
    np.testing.assert_array_equal(day, gx.predict(fit, [[0.5, 0.5]], time=1.5).mean)


@pytest.mark.parametrize(
    ("calendar", "same", "days"),
    [
        ("noleap", "365_day", [0.0, 1.0, 2.0, 3.0]),
        ("all_leap", "366_day", [0.0, 1.0, 2.0, 3.0]),
        ("360_day", "360_day", [0.0, 1.0, 2.0, 3.0]),
        ("julian", "julian", [0.0, 1.0, 2.0, 3.0]),
    ],
)
def test_dates_of_other_calendars_are_counted_in_their_calendar(calendar, same, days):
    numbers = undecoded(cube(), "days since 2001-02-27", calendar=same)
    seen = seen_in(numbers)
    assert (seen.time_unit, seen.time_origin, seen.time_calendar) == ("day", "2001-02-27", calendar)
    np.testing.assert_array_equal(np.unique(seen.time), days)
    decoded = xarray.decode_cf(numbers.to_dataset())
    assert decoded["time"].dtype.kind == "O"
    assert seen_in(decoded).digest() == seen.digest()
    # the day after 28 February: 1 March in a year without a leap day, the 29th where there is one
    third = {"noleap": "2001-03-01", "julian": "2001-03-01"}.get(calendar, "2001-02-29")
    fit = space_time_fit(seen)
    grid = gx.predict(fit, numbers.isel(time=[2]).to_dataset(name="w"))
    same_day = gx.predict(fit, grid.locations, time=third)
    np.testing.assert_allclose(same_day.mean, grid.mean, rtol=1e-12)
    with pytest.raises(gx.InvalidInput, match=f"dates of the {calendar} calendar"):
        gx.predict(fit, grid.locations, time=np.datetime64("2001-03-01"))
    with pytest.raises(gx.InvalidInput, match=f"since 2001-02-27 .{calendar} calendar.. Got"):
        gx.predict(fit, grid.locations, time=2.0)


def test_a_single_time_counts_only_where_it_is_named():
    one = cube().isel(time=[1])
    for data in (one, one.squeeze(), one.squeeze(drop=True)):
        assert seen_in(data).time is None
    for data in (one, one.squeeze()):
        seen = seen_in(data, time="time")
        assert (set(seen.time), seen.time_origin) == ({0.0}, "1987-06-04")


def test_times_of_each_location_are_no_dimension():
    """A list of places and times is spatial unless the time is named."""
    data = xarray.Dataset(cube().to_dataframe().reset_index())
    data["time"].attrs["standard_name"] = "time"
    data = data.set_coords(["time", "x", "y"]).isel(dim_0=slice(20))
    assert seen_in(data, duplicates="keep").time is None
    assert len(np.unique(seen_in(data, time="time").time)) == 2


def test_series_may_have_times_of_their_own():
    """CF: time(station, observation), filled up with missing values."""
    when = np.array([[0.0, 6.0, 12.0], [1.0, 7.0, np.nan], [2.0, np.nan, np.nan]])
    data = xarray.Dataset(
        {"z": (("station", "o"), np.where(np.isnan(when), np.nan, np.sin(when)))},
        {"x": ("station", [0.0, 1.0, 2.0]), "y": ("station", [0.0, 1.0, 0.0])},
    ).assign_coords(time=(("station", "o"), when, {"units": "hours since 2026-03-01"}))
    with pytest.warns(gx.GeomxpWarning, match="3 of 9 cells have no z"):
        seen = gx.Observations.from_frame(data)
    np.testing.assert_array_equal(seen.time, [0.0, 6.0, 12.0, 1.0, 7.0, 2.0])
    np.testing.assert_array_equal(seen.values, np.sin(seen.time))
    assert (seen.time_unit, seen.time_origin) == ("hour", "2026-03-01")


@pytest.mark.parametrize(
    ("make", "columns", "message"),
    [
        (
            lambda a: a.expand_dims(level=2),
            {},
            "'z' has a dimension 'level' of 2 besides time, y, x",
        ),
        (lambda a: a.drop_vars("time"), {}, r"name the variable of the times with `time`"),
        (lambda a: a, {"time": "when"}, "no variable 'when'"),
        (lambda a: a, {"time": "z"}, "`time` must name a column other than the values"),
        (
            lambda a: undecoded(a, "fortnights since 1987-06-03"),
            {},
            r"times in 'fortnights since 1987-06-03' \(standard calendar\) cannot be read",
        ),
    ],
)
def test_times_that_cannot_be_read_are_named(make, columns, message):
    with pytest.raises(gx.InvalidInput, match=message):
        gx.Observations.from_frame(make(cube()), values="z" if columns else None, **columns)


@pytest.mark.parametrize("order", [("time", "y", "x"), ("y", "x", "time")])
def test_predictions_at_a_grid_of_times_come_back_with_its_dimensions(tmp_path, order):
    fit = space_time_fit(seen_in(cube()))
    where = {"time": DAYS[1:3], "y": [1.5, 0.5], "x": [0.5, 1.5, 2.5]}
    places = xarray.DataArray(np.zeros((2, 2, 3)), where, ("time", "y", "x"), "w").transpose(*order)
    found = gx.predict(fit, places)
    result = found.to_xarray()
    assert result["mean"].dims == order
    for k, day in enumerate(DAYS[1:3]):
        flat = places.isel(time=k)
        at = gx.predict(fit, flat.drop_vars("time"), time=day).to_xarray()
        chosen = result.sel(time=day)
        xarray.testing.assert_allclose(chosen.transpose(*at["mean"].dims), at, rtol=1e-12)
        # a single time is a coordinate without a dimension
        xarray.testing.assert_allclose(gx.predict(fit, flat).to_xarray(), at)
    np.testing.assert_array_equal(
        gx.predict(fit, found.to_frame()[["x", "y", "time"]]).mean, found.mean
    )
    tables.write_frame(result, tmp_path / "map.nc")
    xarray.testing.assert_equal(xarray.load_dataset(tmp_path / "map.nc"), result)
    again = gx.predict(fit, tables.read_data(tmp_path / "map.nc")[["time", "y", "x"]])
    assert again.to_xarray()["mean"].sizes == {"time": 2, "y": 2, "x": 3}
    np.testing.assert_array_equal(np.sort(again.mean), np.sort(found.mean))


def test_predictions_of_stations_have_time_and_station():
    fit = space_time_fit(seen_in(stations()))
    data = stations()[["lon", "lat", "time"]]
    found = gx.predict(fit, data).to_xarray()
    assert dict(found["mean"].sizes) == {"time": 4, "station": 7}
    np.testing.assert_array_equal(
        found["mean"].values.ravel(), gx.predict(fit, fit.observations).mean
    )
    # time= in place of the grid's
    assert dict(gx.predict(fit, data, time="1987-06-05").to_xarray().sizes) == {"station": 7}


def test_covariates_may_have_fewer_dimensions_than_the_cells():
    seen = seen_in(stations(), covariates=["height"])
    np.testing.assert_array_equal(seen.covariates[:, 0], np.tile(stations().height.values, 4))
    model = gx.Separable(1.0, 50.0, 2.0, 0.5, 0.5, 0.1)
    fit = gx.fit(seen, model, fixed=tuple(model.parameters()), trend="covariates")
    assert gx.predict(fit, stations()).to_xarray()["mean"].dims == ("time", "station")


def test_times_of_a_grid_in_another_unit_are_converted():
    fit = space_time_fit(seen_in(undecoded(cube(), "days")))
    hours = (
        cube().isel(time=slice(2)).assign_coords(time=("time", [12.0, 36.0], {"units": "hours"}))
    )
    found, first = gx.predict(fit, hours), np.repeat([0.5, 1.5], 15)
    places = np.tile(gx.Observations.from_frame(cube()[0]).locations, (2, 1))
    np.testing.assert_array_equal(found.mean, gx.predict(fit, places, time=first).mean)


@pytest.mark.slow
def test_the_command_line_takes_the_times_of_a_netcdf_file(tmp_path, capsys):
    cube().to_netcdf(tmp_path / "t.nc")
    cube().isel(time=slice(2)).rename("w").to_netcdf(tmp_path / "new.nc")
    model = ["--family", "separable", *(f"--fix={name}={value}" for name, value in HELD_IN_TIME)]
    found = []
    for time in ([], ["--time", "time"]):
        command = ["fit", tmp_path / "t.nc", *time, *model, "--output", tmp_path / "fit.json"]
        assert main([*map(str, command)]) == 0
        assert ("time is the time (another: --time NAME)" in capsys.readouterr().err) == (not time)
        command = ["predict", tmp_path / "fit.json", tmp_path / "new.nc"]
        assert main([*map(str, command), "--output", str(tmp_path / "map.nc")]) == 0
        found.append(xarray.load_dataset(tmp_path / "map.nc"))
        assert dict(found[-1]["mean"].sizes) == {"time": 2, "y": 3, "x": 5}
        capsys.readouterr()
        assert main([*map(str, command), "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)["rows"]
        assert [row["time"] for row in rows[:16:15]] == [
            "1987-06-03T00:00:00",
            "1987-06-04T00:00:00",
        ]
    xarray.testing.assert_equal(*found)
    assert main(["fit", str(tmp_path / "t.nc")]) == 2
    assert "a matern model does not depend on `time`" in capsys.readouterr().err


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
        *("observation_lower", "observation_upper"),
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


@pytest.mark.slow
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


def test_predictions_at_another_time_than_the_tables_stand_beside_that_time():
    places = np.repeat(np.random.default_rng(0).random((8, 2)), 3, axis=0)
    frame = pd.DataFrame({"x": places[:, 0], "y": places[:, 1]})
    frame["when"] = np.tile(pd.date_range("2026-03-01", periods=3), 8)
    frame["z"] = np.random.default_rng(1).standard_normal(24)
    model = gx.Separable(1.0, 0.3, 2.0, 0.5, 0.5, 0.1)
    seen = gx.Observations.from_frame(frame, values="z", time="when")
    fit = gx.fit(seen, model, fixed=tuple(model.parameters()))
    found = gx.predict(fit, frame, time="2026-03-20").to_frame()
    assert set(pd.to_datetime(found["when"]).dt.day) == {20}
    own = gx.predict(fit, frame).to_frame()
    assert set(own["when"].dt.day) == {1, 2, 3}
