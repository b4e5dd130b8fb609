"""The CF conventions: systems of coordinates, ragged arrays, and cells that are no data."""

import warnings

import numpy as np
import pandas as pd
import pytest

import geomxp as gx
from geomxp import testing
from geomxp.cli.main import main
from geomxp.data import cf, rasters, spatial, tables

geopandas = pytest.importorskip("geopandas")
netcdf = pytest.importorskip("netCDF4")
pyproj = pytest.importorskip("pyproj")
xarray = pytest.importorskip("xarray")

LAT, LON = "latitude_of_projection_origin", "longitude_of_projection_origin"
MERIDIAN, PARALLEL = "longitude_of_central_meridian", "standard_parallel"
VERTICAL, SCALE = "straight_vertical_longitude_from_pole", "scale_factor_at_projection_origin"
FALSE = {"false_easting": 250.0, "false_northing": -125.0}


def degrees_of(crs, points):
    """Longitude and latitude of (n, 2) coordinates, by PROJ."""
    way = pyproj.Transformer.from_crs(crs, "EPSG:4326", always_xy=True)
    return np.column_stack(way.transform(*np.transpose(points)))


def plane_grid(mapping, unit="m", side=1000.0, **attributes):
    """A Dataset of 3 × 4 cells with projected coordinates and a grid mapping."""
    axis = lambda name, n: (  # noqa: E731
        name,
        side * np.arange(1.0, n + 1),
        {"units": unit, "standard_name": f"projection_{name}_coordinate"},
    )
    values = np.random.default_rng(1).standard_normal((3, 4))
    data = {"z": (("y", "x"), values, {"grid_mapping": "crs"} | attributes)}
    return xarray.Dataset(
        data | {"crs": ((), np.int32(0), mapping)}, {"x": axis("x", 4), "y": axis("y", 3)}
    )


def read(dataset, **columns):
    return gx.Observations.from_xarray(dataset, values="z", **columns)


# Grid mappings

MAPPINGS = [
    (
        "albers_conical_equal_area",
        {PARALLEL: [20.0, 60.0], MERIDIAN: 3.0, LAT: 40.0},
        "aea +lat_1=20 +lat_2=60 +lon_0=3 +lat_0=40",
    ),
    (
        "albers_conical_equal_area",
        {PARALLEL: 35.0, MERIDIAN: 3.0, LAT: 40.0},
        "aea +lat_1=35 +lat_2=35 +lon_0=3 +lat_0=40",
    ),
    ("azimuthal_equidistant", {LON: -8.0, LAT: 53.0}, "aeqd +lon_0=-8 +lat_0=53"),
    ("lambert_azimuthal_equal_area", {LON: 20.0, LAT: 5.0}, "laea +lon_0=20 +lat_0=5"),
    (
        "lambert_conformal_conic",
        {PARALLEL: [33.0, 45.0], MERIDIAN: -97.0, LAT: 40.0},
        "lcc +lat_1=33 +lat_2=45 +lon_0=-97 +lat_0=40",
    ),
    (
        "lambert_conformal_conic",
        {PARALLEL: 25.0, MERIDIAN: -95.0, LAT: 25.0},
        "lcc +lat_1=25 +lat_0=25 +lon_0=-95",
    ),
    (
        "lambert_conformal_conic",
        {PARALLEL: [48.0], MERIDIAN: 9.0, LAT: 52.0},
        "lcc +lat_1=48 +lat_2=48 +lat_0=52 +lon_0=9",
    ),
    (
        "lambert_cylindrical_equal_area",
        {PARALLEL: 30.0, MERIDIAN: -20.0},
        "cea +lat_ts=30 +lon_0=-20",
    ),
    ("lambert_cylindrical_equal_area", {SCALE: 0.8, MERIDIAN: 0.0}, "cea +k=0.8"),
    ("mercator", {PARALLEL: 15.0, LON: 110.0}, "merc +lat_ts=15 +lon_0=110"),
    ("mercator", {SCALE: 0.997, LON: 110.0}, "merc +k=0.997 +lon_0=110"),
    (
        "oblique_mercator",
        {LON: 7.0, LAT: 47.0, "azimuth_of_central_line": 60.0, SCALE: 0.99},
        "omerc +lonc=7 +lat_0=47 +alpha=60 +k=0.99",
    ),
    ("orthographic", {LON: 100.0, LAT: -30.0}, "ortho +lon_0=100 +lat_0=-30"),
    (
        "polar_stereographic",
        {LON: 30.0, LAT: 90.0, PARALLEL: 60.0},
        "stere +lat_0=90 +lat_ts=60 +lon_0=30",
    ),
    (
        "polar_stereographic",
        {VERTICAL: 30.0, LAT: -90.0, SCALE: 0.97},
        "stere +lat_0=-90 +k=0.97 +lon_0=30",
    ),
    (
        "polar_stereographic",
        {VERTICAL: 0.0, LAT: -90.0, PARALLEL: 71.0},
        "stere +lat_0=-90 +lat_ts=-71",
    ),
    ("sinusoidal", {LON: 15.0}, "sinu +lon_0=15"),
    ("sinusoidal", {MERIDIAN: 15.0}, "sinu +lon_0=15"),
    ("stereographic", {LON: 5.0, LAT: 52.0, SCALE: 0.9999}, "stere +lon_0=5 +lat_0=52 +k=0.9999"),
    (
        "transverse_mercator",
        {MERIDIAN: 27.0, LAT: 10.0, "scale_factor_at_central_meridian": 0.9993},
        "tmerc +lon_0=27 +lat_0=10 +k=0.9993",
    ),
    (
        "vertical_perspective",
        {LON: 12.0, LAT: 48.0, "perspective_point_height": 4e6},
        "nsper +lon_0=12 +lat_0=48 +h=4e6",
    ),
    (
        "geostationary",
        {LON: 9.5, LAT: 0.0, "perspective_point_height": 35785831.0, "fixed_angle_axis": "y"},
        "geos +lon_0=9.5 +h=35785831 +sweep=x",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "parameters", "proj"), MAPPINGS)
@pytest.mark.parametrize(("unit", "metres"), [("m", 1.0), ("km", 1000.0)])
def test_parameters_of_a_grid_mapping_mean_what_they_mean_to_proj(
    name, parameters, proj, unit, metres
):
    # as netCDF4 returns them: NumPy's numbers and arrays
    numbers = {
        word: value if isinstance(value, str) else np.array(value)[()]
        for word, value in (parameters | FALSE).items()
    }
    seen = read(plane_grid({"grid_mapping_name": name} | numbers, unit, 1000.0 / metres))
    x, y = FALSE["false_easting"] * metres, FALSE["false_northing"] * metres
    want = degrees_of(f"+proj={proj} +x_0={x} +y_0={y} +datum=WGS84", seen.locations * metres)
    assert (seen.metric, seen.unit) == ("euclidean", unit)
    np.testing.assert_allclose(degrees_of(seen.crs, seen.locations), want, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("earth", "proj"),
    [
        ({"earth_radius": 6371229.0}, "+R=6371229"),
        ({"semi_major_axis": 6370000.0}, "+R=6370000"),
        ({"semi_major_axis": 6370000.0, "inverse_flattening": 0.0}, "+R=6370000"),
        ({"earth_radius": 6371200.0, "semi_major_axis": 6371200.0}, "+R=6371200"),
        (
            {"semi_major_axis": 6378137.0, "semi_minor_axis": 6356752.31414},
            "+a=6378137 +b=6356752.31414",
        ),
        ({"semi_major_axis": 6377397.155, "inverse_flattening": 299.1528128}, "+ellps=bessel"),
        ({"reference_ellipsoid_name": "GRS 1980"}, "+ellps=GRS80"),
        ({"earth_radius": np.float32(6371000)}, "+R=6371000"),
    ],
)
def test_the_figure_of_the_earth_is_that_of_the_mapping(earth, proj):
    laea = {"grid_mapping_name": "lambert_azimuthal_equal_area", LON: 10.0, LAT: 52.0}
    seen = read(plane_grid(laea | earth, side=1e5))
    want = degrees_of(f"+proj=laea +lon_0=10 +lat_0=52 {proj}", seen.locations)
    np.testing.assert_allclose(degrees_of(seen.crs, seen.locations), want, atol=1e-9)


def test_angles_of_a_geostationary_satellite_are_places():
    """The example of the GOES-R Product Definition and User's Guide, volume 3, section 5.1.2.8."""
    goes = {
        "grid_mapping_name": "geostationary",
        "perspective_point_height": 35786023.0,
        "semi_major_axis": 6378137.0,
        "semi_minor_axis": 6356752.31414,
        LON: -75.0,
        LAT: 0.0,
        "sweep_angle_axis": "x",
    }
    data = plane_grid(goes, "rad").assign_coords(
        x=("x", -0.024052 + 56e-6 * np.arange(4)), y=("y", 0.095340 - 56e-6 * np.arange(3))
    )
    for name in "xy":
        data[name].attrs = {
            "units": "rad",
            "standard_name": f"projection_{name}_angular_coordinate",
        }
    seen = read(data)
    assert seen.unit == "radian"
    np.testing.assert_allclose(
        degrees_of(seen.crs, seen.locations[:1])[0], [-84.690932, 33.846162], atol=1e-6
    )


@pytest.mark.parametrize("name", ["lambert_azimuthal_equal_area", "oblique_mercator"])
def test_maps_in_another_unit_have_the_mapping_in_words_and_by_parameters(name):
    parameters = next(values for kind, values, _ in MAPPINGS if kind == name)
    mapping = {"grid_mapping_name": name} | parameters | FALSE
    seen = read(plane_grid(mapping, "km", 1.0))
    model = gx.Matern(1.0, 2.0, 0.5)
    fit = gx.fit(seen, model, fixed=tuple(model.parameters()), progress=False)
    data = gx.predict_raster(fit, resolution=1.0, bounds=(0, 0, 4, 3)).to_xarray()
    assert data["x"].attrs["units"] == "km"
    assert gx.Observations.from_xarray(data, values="mean").crs == seen.crs
    data["crs"].attrs.pop("crs_wkt")
    again = gx.Observations.from_xarray(data, values="mean")
    np.testing.assert_allclose(
        degrees_of(again.crs, again.locations), degrees_of(seen.crs, again.locations), atol=1e-9
    )


def test_words_of_another_kind_than_the_parameters_are_of_the_datum_only():
    words = {"crs_wkt": pyproj.CRS(4326).to_wkt()}
    data, places = rotated_grid(False, POLE | words)
    np.testing.assert_allclose(read(data).locations, places, atol=1e-9)
    mercator = {"grid_mapping_name": "mercator", LON: 0.0, PARALLEL: 0.0}
    plain, both = read(plane_grid(mercator)), read(plane_grid(mercator | words))
    assert both.crs == plain.crs


def test_a_mapping_that_is_not_in_the_data_is_missed():
    data = plane_grid({"grid_mapping_name": "sinusoidal", LON: 0.0}).drop_vars("crs")
    with pytest.warns(gx.GeomxpWarning, match=r"mapping 'crs' of 'z' is not in the data.*--crs"):
        assert read(data).crs is None
    assert read(data, crs="EPSG:3035").crs == "EPSG:3035"


@pytest.mark.parametrize("word", ["crs_wkt", "spatial_ref"])
def test_a_system_in_words_comes_before_the_parameters(word):
    mapping = {"grid_mapping_name": "mercator", LON: 0.0, word: pyproj.CRS(3035).to_wkt()}
    assert read(plane_grid(mapping)).crs == "EPSG:3035"
    km = read(plane_grid(mapping, "km", 1.0))
    np.testing.assert_allclose(
        degrees_of(km.crs, km.locations), degrees_of(3035, km.locations * 1000), atol=1e-9
    )
    assert spatial.title(km.crs) == "ETRS89-extended / LAEA Europe (kilometre)"


@pytest.mark.parametrize(
    ("mapping", "reason"),
    [
        ({"grid_mapping_name": "winkel"}, "Unsupported grid mapping name"),
        ({"grid_mapping_name": "transverse_mercator", LAT: 0.0}, LON),
        ({"grid_mapping_name": "mercator", "crs_wkt": "PROJCS[oops"}, "Invalid"),
    ],
)
def test_a_mapping_that_cannot_be_read_is_refused_until_the_user_names_the_system(mapping, reason):
    data = plane_grid(mapping)
    with pytest.raises(gx.InvalidInput, match=rf"(?s)'crs' .*{reason}.*crs=\"EPSG:…\" \(--crs\)"):
        read(data)
    assert read(data, crs="EPSG:3035").crs == "EPSG:3035"
    with pytest.raises(gx.InvalidInput, match="in the unit of the coordinates, kilometre"):
        read(plane_grid(mapping, "km"), crs="EPSG:3035")
    # true longitude and latitude need no projection
    lon, lat = np.meshgrid(np.arange(4.0), 50 + np.arange(3.0))
    data = data.drop_vars(["x", "y"]).assign_coords(lon=(("y", "x"), lon), lat=(("y", "x"), lat))
    if "crs_wkt" not in mapping:
        assert read(data).crs == "EPSG:4326"


def test_the_command_names_the_system_of_a_grid_whose_mapping_cannot_be_read(tmp_path, capsys):
    plane_grid({"grid_mapping_name": "winkel"}).to_netcdf(tmp_path / "t.nc")
    fit, table, result = (str(tmp_path / name) for name in ("fit.json", "t.nc", "map.nc"))
    held = [f"--fix={name}" for name in ("range=2000", "smoothness=0.5", "nugget=0", "variance=1")]
    named = ["--crs", "EPSG:3035"]
    assert main(["fit", table, "--value", "z", *held]) == 2
    assert "(winkel) cannot be read" in capsys.readouterr().err
    assert main(["fit", table, "--value", "z", *held, *named, "--output", fit]) == 0
    assert main(["predict", fit, table, "--output", result]) == 2
    assert main(["predict", fit, table, "--output", result, *named]) == 0
    there = gx.read_table(result, values="mean")
    assert there.crs == "EPSG:3035"
    known = plane_grid({})["z"].values.ravel()
    np.testing.assert_allclose(there.values, known, atol=1e-9)


@pytest.mark.parametrize(
    "system",
    [
        pyproj.crs.ProjectedCRS(
            pyproj.crs.coordinate_operation.LambertAzimuthalEqualAreaConversion(45, 5)
        ),
        pyproj.crs.GeographicCRS(datum=pyproj.crs.datum.CustomDatum(ellipsoid="GRS 1980")),
        pyproj.crs.BoundCRS(
            "EPSG:28992",
            "EPSG:4326",
            pyproj.crs.coordinate_operation.ToWGS84Transformation("EPSG:4289", 565, 50, 465),
        ),
        pyproj.crs.CompoundCRS("both", ["EPSG:32631", "EPSG:5773"]),
    ],
    ids=lambda system: type(system).__name__,
)
def test_systems_that_pyproj_built_are_read(system):
    places = np.random.default_rng(2).uniform(0, 10, (20, 2))
    points = geopandas.points_from_xy(*places.T, crs=system)
    frame = geopandas.GeoDataFrame({"z": np.arange(20.0)}, geometry=points)
    seen = gx.Observations.from_frame(frame, values="z")
    np.testing.assert_allclose(
        degrees_of(seen.crs, seen.locations),
        degrees_of(pyproj.CRS(system.to_wkt()), places),
        atol=1e-9,
    )


# Which coordinates a system belongs to

POLE = {
    "grid_mapping_name": "rotated_latitude_longitude",
    "grid_north_pole_latitude": 47.5,
    "grid_north_pole_longitude": -170.0,
}


def true_degrees(rlon, rlat, pole=47.5, meridian=-170.0):
    """Longitude and latitude of coordinates on a rotated pole: rotations of the unit sphere."""
    a, b, c = np.radians(rlon), np.radians(rlat), np.radians(pole)
    lat = np.arcsin(np.sin(c) * np.sin(b) + np.cos(c) * np.cos(b) * np.cos(a))
    east = np.cos(b) * np.sin(a)
    north = np.sin(c) * np.cos(b) * np.cos(a) - np.cos(c) * np.sin(b)
    return (np.degrees(np.arctan2(east, north)) + meridian) % 360 - 180, np.degrees(lat)


def rotated_grid(with_places=True, mapping=POLE, names=("rlon", "rlat"), **attributes):
    rlon, rlat = np.arange(-3.0, 4.0), np.arange(-12.0, -7.0)
    values = np.random.default_rng(4).standard_normal((5, 7))
    x, y = names
    axes = {
        x: (x, rlon, {"standard_name": "grid_longitude", "units": "degrees"}),
        y: (y, rlat, {"standard_name": "grid_latitude", "units": "degrees"}),
    }
    data = {"z": ((y, x), values, {"grid_mapping": "pole"}), "pole": ((), np.int32(0), mapping)}
    lon, lat = true_degrees(*np.meshgrid(rlon, rlat))
    if with_places:
        axes |= {"lon": ((y, x), lon), "lat": ((y, x), lat)}
    return xarray.Dataset(data, axes), np.column_stack((lon.ravel(), lat.ravel()))


WKT = {"crs_wkt": pyproj.CRS.from_cf(POLE).to_wkt()}


@pytest.mark.parametrize("mapping", [POLE, POLE | WKT, WKT], ids=["names", "both", "wkt"])
@pytest.mark.parametrize("with_places", [True, False])
@pytest.mark.parametrize("locations", [None, ("rlon", "rlat")])
def test_cells_of_a_rotated_pole_are_at_true_places(mapping, with_places, locations):
    data, places = rotated_grid(with_places, mapping)
    seen = read(data, locations=locations)
    np.testing.assert_allclose(seen.locations, places, atol=1e-9)
    assert (seen.crs, seen.metric, seen.location_names) == ("EPSG:4326", "chordal", ("lon", "lat"))
    assert ("lon" in data.variables) == with_places


def test_rotated_coordinates_may_be_called_lon_and_lat():
    data, places = rotated_grid(False, names=("lon", "lat"))
    seen = read(data)
    np.testing.assert_allclose(seen.locations, places, atol=1e-9)
    assert seen.location_names == ("longitude", "latitude")


def test_a_pole_that_nothing_describes_is_asked_for():
    data, _ = rotated_grid(False)
    with pytest.raises(gx.InvalidInput, match=r"on a rotated pole, and no grid mapping"):
        read(data.drop_vars("pole"))
    data, places = rotated_grid()
    np.testing.assert_array_equal(read(data.drop_vars("pole")).locations, places)


@pytest.mark.slow
@pytest.mark.parametrize("with_places", [True, False])
@pytest.mark.parametrize("locations", [(), ("rlon", "rlat"), ("lon", "lat")])
def test_a_fit_of_a_rotated_grid_reads_it_again_and_writes_its_mapping(
    tmp_path, with_places, locations
):
    data, places = rotated_grid(with_places)
    data.to_netcdf(tmp_path / "t.nc")
    seen = gx.read_table(tmp_path / "t.nc", values="z", locations=locations or None)
    model = gx.Matern(1.0, 300.0, 0.5)
    fit = gx.fit(seen, model, fixed=tuple(model.parameters()), progress=False)
    fit.save(tmp_path / "fit.json", embed=False)
    assert gx.Fit.load(tmp_path / "fit.json").observations.digest() == seen.digest()
    command = ["predict", tmp_path / "fit.json", tmp_path / "t.nc", "--quiet"]
    assert main([*map(str, command), "--output", str(tmp_path / "map.nc")]) == 0
    with xarray.open_dataset(tmp_path / "map.nc") as raw:
        assert raw["mean"].attrs["grid_mapping"] == "pole"
        assert {*raw["mean"].dims} == {"rlat", "rlon"}
        assert raw["pole"].attrs["grid_north_pole_latitude"] == 47.5
    result = gx.read_table(tmp_path / "map.nc", values="mean")
    np.testing.assert_allclose(result.locations, places, atol=1e-9)
    # without a nugget kriging returns the values
    np.testing.assert_allclose(result.values, data["z"].values.ravel(), atol=1e-9)


def test_tables_on_a_rotated_pole_become_true_places_and_new_tables_need_these(tmp_path):
    data, places = rotated_grid(False)
    frame = data["z"].drop_vars("pole", errors="ignore").to_dataframe().reset_index()
    frame = frame[["rlon", "rlat", "z"]]
    frame.to_csv(tmp_path / "t.csv", index=False)
    about = {"values": "z", "locations": ("rlon", "rlat"), "crs": WKT["crs_wkt"]}
    seen = gx.read_table(tmp_path / "t.csv", **about)
    np.testing.assert_allclose(seen.locations, places, atol=1e-9)
    model = gx.Matern(1.0, 300.0, 0.5)
    fit = gx.fit(seen, model, fixed=tuple(model.parameters()), progress=False)
    fit.save(tmp_path / "fit.json", embed=False)
    fit = gx.Fit.load(tmp_path / "fit.json")
    with pytest.raises(gx.InvalidInput, match="no column 'lon'"):
        gx.predict(fit, frame)
    there = gx.predict(fit, frame.assign(lon=places[:, 0], lat=places[:, 1]))
    np.testing.assert_allclose(there.mean, frame.z, atol=1e-9)
    # gradians east of Paris are other numbers, another datum is not
    frame = frame.rename(columns={"rlon": "lon", "rlat": "lat"})
    names = {
        crs: gx.Observations.from_frame(frame, values="z", crs=crs).location_names
        for crs in ("EPSG:4807", "EPSG:4230")
    }
    assert names == {"EPSG:4807": ("longitude", "latitude"), "EPSG:4230": ("lon", "lat")}


def both_grid(mapping, **axes):
    """A grid with x, y and with longitude and latitude of two dimensions, on another datum."""
    utm = {"grid_mapping_name": "transverse_mercator", MERIDIAN: 9.0, LAT: 0.0}
    data = plane_grid(utm | {"scale_factor_at_central_meridian": 0.9996, "false_easting": 5e5})
    data["z"].attrs["grid_mapping"] = mapping
    lon, lat = np.meshgrid(9 + np.arange(4.0), 50 + np.arange(3.0))
    data = data.assign_coords(lon=(("y", "x"), lon), lat=(("y", "x"), lat))
    return data.assign(old=((), np.int32(0), pyproj.CRS(4314).to_cf()))


@pytest.mark.parametrize(
    ("known", "names"),
    [
        ((), ("lon", "lat")),
        (("grid_mapping",), ("x", "y")),
        (("standard_name",), ("x", "y")),
        (("units",), ("x", "y")),
    ],
)
def test_x_and_y_are_coordinates_if_anything_says_more_than_their_names(known, names):
    data = both_grid("crs")
    for variable in (data["z"], data["x"], data["y"]):
        kept = {name: value for name, value in variable.attrs.items() if name in known}
        variable.attrs = kept
    data = data.drop_vars("old")
    if "grid_mapping" not in known:
        data = data.drop_vars("crs")
    assert read(data).location_names == names


@pytest.mark.parametrize("mapping", ["crs", "crs: x y old: lon lat", "old: lat lon crs: y x"])
def test_a_mapping_belongs_to_its_own_coordinates(tmp_path, mapping):
    both_grid(mapping).to_netcdf(tmp_path / "t.nc")
    seen = gx.read_table(tmp_path / "t.nc", values="z")
    assert seen.location_names == ("x", "y")
    want = degrees_of("EPSG:32632", seen.locations)
    np.testing.assert_allclose(degrees_of(seen.crs, seen.locations), want, atol=1e-9)
    there = gx.read_table(tmp_path / "t.nc", values="z", locations=("lon", "lat"))
    raw = np.column_stack([both_grid(mapping)[name].values.ravel() for name in ("lon", "lat")])
    # DHDN is 100 m from WGS 84
    want = degrees_of("EPSG:4314", raw) if ":" in mapping else raw
    np.testing.assert_allclose(there.locations, want, atol=1e-9)
    model = gx.Matern(1.0, 1e4, 0.5)
    fit = gx.fit(seen, model, fixed=tuple(model.parameters()), progress=False)
    result = gx.predict(fit, tables.read_data(tmp_path / "t.nc")).to_xarray()
    tables.write_frame(result, tmp_path / "map.nc")
    again = gx.read_table(tmp_path / "map.nc", values="mean")
    assert again.crs == seen.crs
    np.testing.assert_array_equal(again.locations, seen.locations)


def test_numbers_of_cells_are_not_coordinates_beside_longitude_and_latitude():
    data = both_grid("crs")
    bare = data.drop_vars(["crs", "old"]).assign_coords(x=np.arange(4), y=np.arange(3))
    del bare["z"].attrs["grid_mapping"]
    assert read(bare).location_names == ("lon", "lat")
    assert read(bare.drop_vars(["lon", "lat"])).location_names == ("x", "y")
    metres = bare.assign_coords({n: (n, bare[n].values, {"units": "m"}) for n in "xy"})
    assert read(metres).location_names == ("x", "y")


def test_degrees_that_are_called_x_and_y_have_the_system_of_the_mapping():
    data = plane_grid(pyproj.CRS(4326).to_cf(), side=1.0)
    for name in "xy":
        data[name].attrs = {}
    seen = read(data)
    assert (seen.crs, seen.metric) == ("EPSG:4326", "chordal")


# Ragged arrays

LONGITUDE = {"standard_name": "longitude", "units": "degrees_east"}
LATITUDE = {"standard_name": "latitude", "units": "degrees_north"}
TIME = {"standard_name": "time", "units": "hours since 2021-05-04"}


def ragged_file(path, kind, index=True):
    """Write a file of ragged arrays, and return the same table with a row for each value.

    Time series have places of stations; trajectories have one for each value; profiles one for each
    profile. The last two are ragged arrays of ragged arrays.
    """
    random = np.random.default_rng(8)
    stations, profiles = 4, 7
    owner = random.permutation(np.repeat(np.arange(stations), [3, 0, 5, 2]))
    if kind.endswith("Profile"):
        above = random.permutation(np.repeat(np.arange(stations), [2, 1, 1, 3]))
        owner = np.repeat(np.arange(profiles), [2, 3, 0, 1, 2, 1, 1])
    elif not index:
        owner = np.sort(owner)
    n = len(owner)
    place = {"timeSeriesProfile": "station", "trajectoryProfile": "profile"}
    place |= {"timeSeries": "station", "profile": "station", "trajectory": "obs"}
    when = {"timeSeries": "obs", "trajectory": "obs", "profile": "station"}.get(kind, "profile")
    sizes = {"station": stations, "obs": n}
    if kind.endswith("Profile"):
        sizes["profile"] = profiles
    with netcdf.Dataset(path, "w") as file:
        file.featureType = kind
        for name, size in sizes.items():
            file.createDimension(name, size)

        def put(name, dim, values, **attributes):
            variable = file.createVariable(name, values.dtype, (dim,))
            variable.setncatts(attributes)
            variable[:] = values
            return values

        if kind.endswith("Profile"):
            put("of_profile", "profile", np.int32(above), instance_dimension="station")
            put(
                "count",
                "profile",
                np.int16(np.bincount(owner, minlength=profiles)),
                sample_dimension="obs",
            )
        elif index:
            put("of", "obs", np.int32(owner), instance_dimension="station")
        else:
            counts = np.int32(np.bincount(owner, minlength=stations))
            put("count", "station", counts, sample_dimension="obs")
        at = sizes[place[kind]]
        columns = {
            "lon": (place[kind], put("lon", place[kind], random.uniform(5, 8, at), **LONGITUDE)),
            "lat": (place[kind], put("lat", place[kind], random.uniform(50, 52, at), **LATITUDE)),
            "time": (when, put("time", when, 6.0 * random.permutation(sizes[when]), **TIME)),
            "height": ("station", put("height", "station", random.uniform(0, 9, stations))),
            "z": ("obs", put("z", "obs", random.standard_normal(n), coordinates="time lat lon")),
        }
    rows = {"obs": np.arange(n), "station": owner}
    if kind.endswith("Profile"):
        rows |= {"profile": owner, "station": above[owner]}
    table = pd.DataFrame({name: values[rows[dim]] for name, (dim, values) in columns.items()})
    table["time"] = pd.Timestamp("2021-05-04") + pd.to_timedelta(table["time"], unit="h")
    return table


KINDS = [
    *((kind, index) for kind in ("timeSeries", "trajectory", "profile") for index in (True, False)),
    *(("timeSeriesProfile", True), ("trajectoryProfile", True)),
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* at the location of an earlier row|column .* far from all")
@pytest.mark.parametrize(("kind", "index"), KINDS)
def test_a_ragged_array_is_the_table_with_a_row_for_each_value(tmp_path, kind, index):
    table = ragged_file(tmp_path / "t.nc", kind, index)
    about = {"values": "z", "time": "time", "covariates": ("height",)}
    seen = gx.read_table(tmp_path / "t.nc", **about)
    want = gx.Observations.from_frame(table, **about)
    assert seen.digest() == want.digest()
    assert (seen.time_unit, seen.time_origin) == (want.time_unit, want.time_origin)
    with xarray.open_dataset(tmp_path / "t.nc") as data:
        attributes = {name: dict(data[name].attrs) for name in data.variables}
        again = gx.Observations.from_xarray(data, **about)
        assert again.digest() == want.digest()
        assert {name: data[name].attrs for name in data.variables} == attributes
    # new locations
    model = gx.Separable(1.0, 150.0, 3.0, smoothness=0.5, time_smoothness=0.5, nugget=0.3)
    fit = gx.fit(want, model, fixed=tuple(model.parameters()), trend="covariates", progress=False)
    there = gx.predict(fit, tables.read_data(tmp_path / "t.nc"))
    np.testing.assert_array_equal(there.mean, gx.predict(fit, table).mean)
    result = there.to_xarray()
    assert result["mean"].dims == ("obs",)
    np.testing.assert_array_equal(result["lon"], table.lon)
    tables.write_frame(result, tmp_path / "map.nc")
    np.testing.assert_array_equal(tables.read_data(tmp_path / "map.nc")["mean"], there.mean)


@pytest.mark.filterwarnings("ignore:.* at the location of an earlier row|column .* far from all")
@pytest.mark.parametrize(("kind", "index"), KINDS)
def test_the_time_of_a_ragged_array_is_found_where_places_have_several(tmp_path, kind, index):
    ragged_file(tmp_path / "t.nc", kind, index)
    seen = gx.read_table(tmp_path / "t.nc", values="z")
    assert (seen.time is not None) == kind.startswith("timeSeries")
    # neither the index nor the count are values
    assert not {"of", "count", "of_profile"} & {
        *spatial.variable_names(tables.read_data(tmp_path / "t.nc"))
    }


def test_a_variable_of_stations_has_a_row_for_each_station(tmp_path):
    ragged_file(tmp_path / "t.nc", "timeSeries")
    seen = gx.read_table(tmp_path / "t.nc", values="height")
    assert len(seen) == 4


@pytest.mark.parametrize(
    ("index", "change", "message"),
    [
        (True, {3: 4}, r"index 'of' must hold positions of 'station', 0 to 3. Got 4 in row 4"),
        (True, {0: -7}, r"index 'of' must hold positions .* Got -7 in row 1"),
        (False, {2: 900}, r"counts 'count' must sum to the 10 values of 'obs'. Got 905"),
    ],
)
def test_an_index_or_count_that_does_not_fit_is_named(tmp_path, index, change, message):
    ragged_file(tmp_path / "t.nc", "timeSeries", index)
    with netcdf.Dataset(tmp_path / "t.nc", "a") as file:
        for row, number in change.items():
            file["of" if index else "count"][row] = number
    with pytest.raises(gx.InvalidInput, match=message):
        gx.read_table(tmp_path / "t.nc", values="z")


@pytest.mark.filterwarnings("ignore:column .* far from all")
@pytest.mark.parametrize("index", [True, False])
def test_values_without_a_station_are_left_out_and_counted(tmp_path, index):
    table = ragged_file(tmp_path / "t.nc", "timeSeries", index)
    with netcdf.Dataset(tmp_path / "t.nc", "a") as file:
        if index:
            file["of"][8:] = netcdf.default_fillvals["i4"]
        else:
            file["count"][3] = 0
    with pytest.warns(gx.GeomxpWarning, match="2 of 10 values of 'obs' belong to no station"):
        seen = gx.read_table(tmp_path / "t.nc", values="z")
    np.testing.assert_array_equal(seen.values, table.z[:8])


def test_two_ragged_arrays_are_two_tables():
    place = {"lon": ("station", [5.0, 6.0], LONGITUDE), "lat": ("station", [50.0, 51.0], LATITUDE)}
    of = {"instance_dimension": "station"}
    data = xarray.Dataset(
        {
            "i": ("rain", [0, 1, 1], of),
            "wet": ("rain", [1.0, 2.0, 3.0]),
            "j": ("wind", [1, 0], of),
            "fast": ("wind", [4.0, 5.0]),
        },
        place,
    )
    seen = gx.Observations.from_xarray(data, values="wet", duplicates="keep")
    np.testing.assert_array_equal(seen.locations[:, 0], [5.0, 6.0, 6.0])
    with pytest.raises(gx.InvalidInput, match=r"of 'rain' and of 'wind' .*drop_dims\('wind'\)"):
        spatial.tabulate(data)


def test_padding_of_stations_is_neither_observed_nor_predicted(tmp_path):
    random = np.random.default_rng(9)
    padded = np.arange(5) >= np.array([5, 2, 4])[:, None]
    hours, z = 1.0 * np.arange(15).reshape(3, 5), random.standard_normal((3, 5))
    masked = lambda values: (("station", "obs"), np.where(padded, np.nan, values))  # noqa: E731
    data = xarray.Dataset(
        {"z": masked(z)},
        {
            "lon": ("station", [5.0, 6.0, 7.0], LONGITUDE),
            "lat": ("station", [50.0, 51.0, 50.5], LATITUDE),
            "time": (*masked(hours), TIME),
        },
    )
    data.to_netcdf(tmp_path / "t.nc")
    with pytest.warns(gx.GeomxpWarning, match="4 of 15 cells have no z and are left out"):
        seen = gx.read_table(tmp_path / "t.nc", values="z")
    np.testing.assert_array_equal(seen.values, z[~padded])
    np.testing.assert_array_equal(seen.time, hours[~padded])
    assert (seen.time_unit, seen.time_origin) == ("hour", "2021-05-04")
    model = gx.Separable(1.0, 150.0, 3.0, smoothness=0.5, time_smoothness=0.5)
    fit = gx.fit(seen, model, fixed=tuple(model.parameters()), progress=False)
    with pytest.warns(gx.GeomxpWarning, match="4 of 15 cells have no time and are not predicted"):
        there = gx.predict(fit, tables.read_data(tmp_path / "t.nc")).to_xarray()
    np.testing.assert_allclose(there["mean"], np.where(padded, np.nan, z), atol=1e-9)


# Cells that are no data


def packed_file(path, random, kind):
    """Write a variable of a random type, with random attributes and perhaps cells not written."""
    whole = kind[0] in "iu"

    def some(n):
        return (random.integers(0, 100, n) if whole else random.normal(0, 50, n)).astype(kind)

    choices = {
        "valid_range": np.sort(some(2)),
        "valid_min": some(1)[0],
        "valid_max": some(1)[0],
        "missing_value": some(random.integers(1, 3)),
        "scale_factor": random.choice([0.1, -0.5, 2.0]),
        "add_offset": random.choice([0.0, 273.15]),
    }
    kept = {word: value for word, value in choices.items() if random.random() < 0.35}
    with netcdf.Dataset(path, "w") as file:
        for name, size in (("y", 2), ("x", 15)):
            file.createDimension(name, size)
            file.createVariable(name, "f8", (name,))[:] = np.arange(size)
        fill = some(1)[0] if random.random() < 0.4 else None
        z = file.createVariable("z", kind, ("y", "x"), fill_value=fill)
        z.set_auto_maskandscale(False)
        z.setncatts(kept)
        z[0] = some(15)
        if random.random() < 0.5:
            z[1] = some(15)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"])
def test_cells_are_missing_where_they_are_for_netcdf4(tmp_path, kind):
    random = np.random.default_rng(10)
    for number in range(8):
        path = tmp_path / f"{number}.nc"
        packed_file(path, random, kind)
        with netcdf.Dataset(path) as file:
            masked = np.ma.asarray(file["z"][:], dtype=np.float64)
        want = np.ma.filled(masked, np.nan).ravel()
        of_file = spatial.tabulate(tables.read_data(path)).columns["z"]
        np.testing.assert_allclose(of_file.to_numpy(dtype=float), want, rtol=1e-6)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", xarray.SerializationWarning)
            data = xarray.load_dataset(path, engine="netcdf4")
        in_memory = spatial.tabulate(data).columns["z"]
        np.testing.assert_array_equal(in_memory, of_file)


def test_numbers_of_cells_never_written_are_those_of_the_netcdf_library():
    known = {kind: netcdf.default_fillvals[kind] for kind in cf.NEVER_WRITTEN}
    assert known == cf.NEVER_WRITTEN


def invalid_file(path, values, **attributes):
    """Write values (y, x) as FP32 without a fill value; x and y in metres."""
    values = np.asarray(values)
    with netcdf.Dataset(path, "w") as file:
        for name, size in zip("yx", values.shape, strict=True):
            file.createDimension(name, size)
            axis = file.createVariable(name, "f8", (name,))
            axis.setncatts({"units": "m", "standard_name": f"projection_{name}_coordinate"})
            axis[:] = 10.0 * np.arange(size)
        z = file.createVariable("z", "f4", ("y", "x"))
        z.set_auto_mask(False)
        with warnings.catch_warnings():
            # netCDF4 uses only ends that the type represents
            warnings.simplefilter("ignore", UserWarning)
            z.setncatts(attributes)
        rows = np.flatnonzero(np.isfinite(values).all(axis=1))
        z[rows] = values[rows]


@pytest.mark.parametrize(
    "attributes",
    [
        {"valid_range": [-5.0, 50.0]},
        {"valid_min": 0.1, "valid_max": 40.1},
        {"valid_min": np.float32(-5), "valid_max": np.float32(50), "long_name": "z"},
    ],
)
def test_cells_outside_the_valid_range_are_counted_as_missing(tmp_path, attributes):
    values = np.random.default_rng(11).uniform(1, 40, (6, 5))
    values[2], values[4, 1:3] = np.nan, [-999.0, 1e6]
    invalid_file(tmp_path / "t.nc", values, **attributes)
    kept = (values > -5) & (values < 50)
    with pytest.warns(gx.GeomxpWarning, match="7 of 30 cells have no z and are left out"):
        seen = gx.read_table(tmp_path / "t.nc", values="z")
    np.testing.assert_array_equal(seen.values, np.float32(values[kept]))


def test_a_range_that_packed_numbers_cannot_have_is_not_used_and_said(tmp_path):
    packed = ("y", "x"), np.arange(12, dtype="i2").reshape(3, 4)
    about = {"valid_max": 5.5, "scale_factor": 0.5}
    data = xarray.Dataset({"z": (*packed, about)}, {"x": np.arange(4.0), "y": np.arange(3.0)})
    data.to_netcdf(tmp_path / "t.nc")
    with pytest.warns(gx.GeomxpWarning, match="valid range of 'z' ends at 5.5, .* type int16"):
        seen = gx.read_table(tmp_path / "t.nc", values="z")
    np.testing.assert_array_equal(seen.values, 0.5 * np.arange(12))


def test_a_range_does_not_outlive_a_change_of_units(tmp_path):
    values = np.random.default_rng(12).uniform(1, 40, (4, 5))
    invalid_file(tmp_path / "t.nc", values, valid_max=np.float32(50))
    with xarray.open_dataset(tmp_path / "t.nc") as data:
        with xarray.set_options(keep_attrs=True):
            warmer = data.assign(z=data["z"] + 273.15)
        assert warmer["z"].attrs["valid_max"] == 50
        np.testing.assert_array_equal(read(warmer).values, warmer["z"].values.ravel())


def test_coordinates_covariates_and_masks_have_such_cells_too(tmp_path):
    values = np.random.default_rng(13).uniform(1, 40, (6, 5))
    values[1] = np.nan
    invalid_file(tmp_path / "c.nc", values)
    y, x = np.meshgrid(10.0 * np.arange(6), 10.0 * np.arange(5), indexing="ij")
    frame = pd.DataFrame({"x": x.ravel(), "y": y.ravel(), "z": np.nan_to_num(values).ravel()})
    frame["w"] = np.random.default_rng(14).standard_normal(30)
    seen = gx.Observations.from_frame(frame, values="w", covariates=("z",))
    model = gx.Matern(1.0, 20.0, 0.5, 0.1)
    fixed = {"fixed": tuple(model.parameters()), "progress": False}
    fit = gx.fit(seen, model, trend="covariates", **fixed)
    with pytest.warns(gx.GeomxpWarning, match="5 of 30 cells have no z and are not predicted"):
        there = gx.predict(fit, tables.read_data(tmp_path / "c.nc")).to_xarray()
    np.testing.assert_array_equal(np.isfinite(there["mean"]), np.isfinite(values))
    plain = gx.fit(seen, model, **fixed)
    bounds = (-5, -5, 45, 55)
    found = gx.predict_raster(plain, resolution=10, bounds=bounds, mask=tmp_path / "c.nc")
    np.testing.assert_array_equal(np.isfinite(found.mean), np.isfinite(values))
    with netcdf.Dataset(tmp_path / "c.nc", "a") as file:
        file["x"].set_auto_mask(False)
        file["x"][2] = netcdf.default_fillvals["f8"]
    with pytest.raises(gx.InvalidInput, match="cells of the grid must be of one size"):
        rasters.read_cells(tmp_path / "c.nc")
    with pytest.warns(gx.GeomxpWarning, match="10 of 30 cells have no z or no x and are not pre"):
        there = gx.predict(fit, tables.read_data(tmp_path / "c.nc")).to_xarray()
    assert not np.isfinite(there["mean"][:, 2]).any()


# A system for a fit that has none


@pytest.fixture(scope="module")
def fit():
    seen = testing.observations()
    places = seen.locations * [1000.0, 600.0] + [180_000, 330_000]
    model = gx.Matern(1.7, 200.0, 0.8, 0.1)
    seen = gx.Observations(places, seen.values)
    return gx.fit(seen, model, fixed=tuple(model.parameters()), progress=False)


def test_a_system_is_named_for_the_maps_of_a_fit_without_one(fit, tmp_path, capsys):
    rasterio = pytest.importorskip("rasterio")
    plain, named = (gx.predict_raster(fit, cells=4, crs=crs) for crs in (None, "EPSG:28992"))
    assert (plain.crs, named.crs, named.length_unit) == (None, "EPSG:28992", "metre")
    np.testing.assert_array_equal(named.mean, plain.mean)
    fit.save(tmp_path / "fit.json")
    map_of = ["predict", str(tmp_path / "fit.json"), "--grid", "4", "--output"]
    assert main([*map_of, str(tmp_path / "a.tif")]) == 0
    assert "without a coordinate reference system" in capsys.readouterr().err
    for ending in ("tif", "nc", "gpkg"):
        assert main([*map_of, str(tmp_path / f"b.{ending}"), "--crs", "EPSG:28992"]) == 0
    assert "without a coordinate" not in capsys.readouterr().err
    with rasterio.open(tmp_path / "b.tif") as file:
        assert file.crs.to_epsg() == 28992
    assert rasters.read_cells(tmp_path / "b.nc")[2] == "EPSG:28992"
    assert geopandas.read_file(tmp_path / "b.gpkg").crs == "EPSG:28992"
    places = pd.DataFrame(fit.observations.locations[:5], columns=["x", "y"])
    places.to_csv(tmp_path / "t.csv", index=False)
    command = [
        "predict",
        str(tmp_path / "fit.json"),
        str(tmp_path / "t.csv"),
        "--crs",
        "EPSG:28992",
    ]
    assert main([*command, "--output", str(tmp_path / "t.gpkg")]) == 0
    assert geopandas.read_file(tmp_path / "t.gpkg").crs == "EPSG:28992"


@pytest.mark.parametrize(
    ("about", "crs", "message"),
    [
        ({}, "EPSG:4326", "must be a projected system, .*not longitude and lat.* Got EPSG:4326"),
        ({"crs": "EPSG:28992"}, "EPSG:32631", "coordinates are in EPSG:28992. Got EPSG:32631"),
        (
            {"length_unit": "kilometre"},
            "EPSG:28992",
            "in the unit of .*, kilometre. Got EPSG:28992",
        ),
        ({}, "EPSG:4978", "geocentric"),
        ({}, "no such", "must be a coordinate reference system"),
    ],
)
def test_a_system_that_contradicts_the_fit_is_refused(fit, about, crs, message):
    seen = fit.observations
    seen = gx.Observations(seen.locations, seen.values, **about)
    model = fit.model
    other = gx.fit(seen, model, fixed=tuple(model.parameters()), progress=False)
    with pytest.raises(gx.InvalidInput, match=message):
        gx.predict_raster(other, cells=4, crs=crs)


def test_a_data_set_may_have_a_system():
    seen = gx.datasets.load("meuse", crs="EPSG:28992")
    assert (seen.crs, seen.unit) == ("EPSG:28992", "m")
    with pytest.raises(gx.InvalidInput, match="the unit of jura's coordinates, kilometre"):
        gx.datasets.load("jura", crs="EPSG:21781")
