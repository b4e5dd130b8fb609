"""Maps of predictions, and the files that hold them."""

import sys

import numpy as np
import pytest

import geomxp as gx
from geomxp import testing
from geomxp.cli.main import main
from geomxp.data import rasters, tables
from geomxp.prediction.raster import grid_over

rasterio = pytest.importorskip("rasterio")
xarray = pytest.importorskip("xarray")
pytest.importorskip("netCDF4")

CRS = "EPSG:28992"


def held(seen, model=testing.MODEL, trend="linear"):
    return gx.fit(seen, model, fixed=tuple(model.parameters()), trend=trend)


LAYERS = (
    *("mean", "standard_error", "lower", "upper"),
    *("standard_error_of_observation", "observation_lower", "observation_upper"),
)


@pytest.fixture(scope="module")
def fit():
    seen = testing.observations()
    places = seen.locations * [1000.0, 600.0] + [180_000, 330_000]
    model = gx.Matern(1.7, 200.0, 0.8, 0.1)
    return held(gx.Observations(places, seen.values, crs=CRS, value_name="log_zinc"), model)


@pytest.fixture(scope="module")
def raster(fit):
    mask = np.ones((12, 20), dtype=bool)
    mask[0, 3] = False
    bounds = (180_000, 330_000, 181_000, 330_600)
    return gx.predict_raster(fit, resolution=50, bounds=bounds, mask=mask)


def test_cells_are_predicted_at_their_centres(fit, raster):
    assert raster.mean.shape == (12, 20)
    assert raster.extent == (180_000, 181_000, 330_000, 330_600)
    np.testing.assert_array_equal(raster.x, 180_025 + 50 * np.arange(20))
    np.testing.assert_array_equal(raster.y, 330_025 + 50 * np.arange(12))
    there = gx.predict(fit, raster.coordinates.reshape(-1, 2))
    known = np.isfinite(raster.mean).ravel()
    assert (~known).nonzero()[0].tolist() == [3]
    np.testing.assert_allclose(raster.mean.ravel()[known], there.mean[known], rtol=1e-12)
    np.testing.assert_allclose(
        raster.standard_error.ravel()[known] ** 2, there.variance[known], rtol=1e-12
    )
    lower, upper = there.interval(0.8, "observation")
    ours = raster.interval(0.8, "observation")
    np.testing.assert_allclose(ours[0].ravel()[known], lower[known], rtol=1e-11)
    np.testing.assert_allclose(ours[1].ravel()[known], upper[known], rtol=1e-11)


def test_grids_are_those_of_the_observations_if_nothing_else_is_said(fit):
    raster = gx.predict_raster(fit, cells=7)
    np.testing.assert_allclose(
        raster.coordinates.reshape(-1, 2), grid_over(fit.observations, 7), rtol=1e-14
    )
    aligned = gx.predict_raster(fit, resolution=70)
    low, high = (f(fit.observations.locations, axis=0) for f in (np.min, np.max))
    left, right, bottom, top = aligned.extent
    assert left % 70 == 0
    assert bottom % 70 == 0
    assert left <= low[0] < left + 70
    assert right - 70 < high[0] <= right
    assert bottom <= low[1] < bottom + 70
    assert top - 70 < high[1] <= top
    assert aligned.mean.shape == ((top - bottom) / 70, (right - left) / 70)


def test_cells_as_blocks_are_averages(fit):
    bounds = (180_000, 330_000, 180_200, 330_100)
    found = gx.predict_raster(fit, cells=4, bounds=bounds, block=True)
    there = gx.predict(fit, found.coordinates.reshape(-1, 2), block=50.0)
    np.testing.assert_allclose(found.mean.ravel(), there.mean, rtol=1e-12)
    np.testing.assert_allclose(found.variance.ravel(), there.variance, rtol=1e-11)
    with pytest.raises(gx.InvalidInput, match="a block has no new observation"):
        found.to_xarray(of="observation")


def test_a_geotiff_lies_north_up_where_its_cells_are(raster, tmp_path):
    path = tmp_path / "map.tif"
    raster.save(path, level=0.9, units="log ppm")
    with rasterio.open(path) as file:
        assert file.descriptions == LAYERS
        assert file.units == ("log ppm",) * 7
        assert file.crs == rasterio.crs.CRS.from_epsg(28992)
        assert file.bounds == (180_000, 330_000, 181_000, 330_600)
        assert file.transform.e < 0 < file.transform.a
        assert np.isnan(file.nodata)
        assert file.tags()["AREA_OR_POINT"] == "Area"
        lower, upper = raster.interval(0.9)
        noisy = np.sqrt(raster.variance + raster.noise)
        ends = raster.interval(0.9, of="observation")
        layers = (raster.mean, raster.standard_error, lower, upper, noisy, *ends)
        for band, expected in enumerate(layers, start=1):
            np.testing.assert_array_equal(file.read(band)[::-1], expected)
        # the value at a place is that of the cell which holds it
        for i, j in ((0, 0), (11, 19), (4, 7)):
            (found,) = file.sample([(raster.x[j] + 20, raster.y[i] - 20)], indexes=1)
            assert found[0] == raster.mean[i, j]


def test_netcdf_follows_the_conventions_and_comes_back(raster, tmp_path):
    path = tmp_path / "map.nc"
    raster.save(path, units="log ppm")
    with xarray.open_dataset(path, decode_coords="all") as data:
        assert set(data.data_vars) == set(LAYERS)
        assert data["mean"].dims == ("y", "x")
        assert data.attrs["Conventions"].startswith("CF-")
        assert data["mean"].attrs["units"] == "log ppm"
        assert "95 % interval of the field" in data["lower"].attrs["long_name"]
        assert "95 % interval of the new obs" in data["observation_lower"].attrs["long_name"]
        assert data["x"].attrs["standard_name"] == "projection_x_coordinate"
        assert data["x"].attrs["units"] == "m"
        assert "Amersfoort" in data["crs"].attrs["crs_wkt"]
        for name in ("mean", "standard_error"):
            np.testing.assert_array_equal(data[name], getattr(raster, name))
        np.testing.assert_array_equal(data["upper"], raster.interval()[1])
        picked = data["mean"].sel(x=180_160, y=330_440, method="nearest")
        assert float(picked) == raster.mean[8, 3]
    # GDAL sees the same map
    with rasterio.open(f"netcdf:{path}:mean") as file:
        assert file.bounds == (180_000, 330_000, 181_000, 330_600)
        np.testing.assert_array_equal(file.read(1)[::-1], raster.mean)


def test_files_say_whether_intervals_are_of_the_field_or_of_observations(raster, tmp_path):
    raster.save(tmp_path / "map.tif", of="observation")
    ends = ["standard_error_of_observation", "lower_of_observation", "upper_of_observation"]
    with rasterio.open(tmp_path / "map.tif") as file:
        assert list(file.descriptions) == ["mean", *ends]
        expected = np.sqrt(raster.variance + raster.noise)
        np.testing.assert_array_equal(file.read(2)[::-1], expected)
    data = raster.to_xarray(of="observation")
    assert list(data.data_vars) == ["mean", *ends]
    assert "new observation" in data["upper_of_observation"].attrs["long_name"]


def test_what_is_written_can_be_observed_again(raster, tmp_path):
    raster.save(tmp_path / "map.nc")
    with pytest.warns(gx.GeomxpWarning, match="1 of 240 cells have no mean"):
        seen = gx.read_table(
            tmp_path / "map.nc", locations=("x", "y"), values="mean", drop_missing=True
        )
    assert len(seen) == 239
    assert seen.crs == CRS
    np.testing.assert_array_equal(seen.values, raster.to_frame()["mean"])


def test_longitude_and_latitude_are_degrees_in_files(tmp_path):
    random = np.random.default_rng(3)
    places = np.column_stack((170 + 20 * random.random(30), 40 + 10 * random.random(30)))
    seen = gx.Observations(places, random.standard_normal(30), metric="chordal")
    raster = gx.predict_raster(held(seen, gx.Matern(2.0, 900.0, 0.4, 0.1), "constant"), cells=8)
    data = raster.to_xarray()
    assert data["mean"].dims == ("lat", "lon")
    assert data["lat"].attrs["standard_name"] == "latitude"
    assert data["lon"].attrs["units"] == "degrees_east"
    assert data["crs"].attrs["grid_mapping_name"] == "latitude_longitude"
    raster.save(tmp_path / "map.tif")
    with rasterio.open(tmp_path / "map.tif") as file:
        assert file.crs.to_epsg() == 4326


def test_places_without_a_reference_system_make_files_without_one(tmp_path):
    raster = gx.predict_raster(held(testing.observations()), cells=5)
    assert raster.crs is None
    data = raster.to_xarray()
    assert "crs" not in data
    assert "units" not in data["x"].attrs
    with pytest.warns(gx.GeomxpWarning, match=r"without a coord.*predict_raster\(fit, crs="):
        raster.save(tmp_path / "map.tif")
    with rasterio.open(tmp_path / "map.tif") as file:
        assert file.crs is None


@pytest.mark.parametrize("ending", ["tif", "nc"])
def test_a_map_can_be_like_another(fit, raster, tmp_path, ending):
    raster.save(tmp_path / f"map.{ending}")
    again = gx.predict_raster(
        fit, like=tmp_path / f"map.{ending}", mask=str(tmp_path / f"map.{ending}")
    )
    assert again.extent == pytest.approx(raster.extent, rel=1e-14)
    np.testing.assert_allclose(again.mean, raster.mean, rtol=1e-9)
    assert np.isnan(again.mean[0, 3])


@pytest.mark.parametrize("ending", ["tif", "nc"])
def test_masks_from_files_are_looked_up_where_cells_are(fit, tmp_path, ending):
    """A coarse file of another extent: yes in its north-west only."""
    path, extent = tmp_path / f"mask.{ending}", (180_000.0, 180_400.0, 330_200.0, 330_600.0)
    layers = {"mask": (np.array([[0.0, np.nan], [1.0, 0.0]]), {})}
    if ending == "tif":
        rasters.write_geotiff(path, layers, extent, crs=CRS)
    else:
        x, y = np.array([180_100.0, 180_300.0]), np.array([330_300.0, 330_500.0])
        tables.write_frame(rasters.as_dataset(layers, x, y, ("x", "y"), crs=CRS), path)
    found = gx.predict_raster(
        fit, resolution=50, bounds=(180_000, 330_000, 181_000, 330_600), mask=path
    )
    known = np.zeros((12, 20), dtype=bool)
    known[8:, :4] = True
    np.testing.assert_array_equal(np.isfinite(found.mean), known)


def test_masks_by_polygons_hold_the_cells_whose_centres_lie_inside(fit):
    shapely = pytest.importorskip("shapely")
    triangle = [[180_000, 330_000], [180_500, 330_000], [180_000, 330_500]]
    box = shapely.box(180_900, 330_500, 181_000, 330_600)
    bounds = (180_000, 330_000, 181_000, 330_600)
    found = gx.predict_raster(fit, resolution=100, bounds=bounds, mask=[triangle, box])
    x, y = np.meshgrid(found.x - 180_000, found.y - 330_000)
    np.testing.assert_array_equal(np.isfinite(found.mean), (x + y < 500) | ((x > 900) & (y > 500)))


def test_masks_are_brought_to_the_system_of_the_observations(fit, raster, tmp_path):
    geopandas, shapely = (pytest.importorskip(name) for name in ("geopandas", "shapely"))
    bounds = (180_000, 330_000, 181_000, 330_600)
    box = shapely.box(180_000, 330_000, 180_520, 331_000)
    plain, elsewhere = (
        gx.predict_raster(fit, resolution=100, bounds=bounds, mask=mask)
        for mask in ([box], geopandas.GeoSeries([box], crs=CRS).to_crs("EPSG:4326"))
    )
    np.testing.assert_array_equal(np.isfinite(elsewhere.mean), np.isfinite(plain.mean))
    path = tmp_path / "mask.tif"
    rasters.write_geotiff(path, raster.layers(), raster.extent, crs="EPSG:32631")
    with pytest.raises(
        gx.InvalidInput, match=r"EPSG:32631, the observations in .*: warp the raster"
    ):
        gx.predict_raster(fit, resolution=100, bounds=bounds, mask=path)


@pytest.mark.slow
def test_a_missing_library_is_one_line_that_names_the_extra(raster, tmp_path, monkeypatch):
    for library, path in (("rasterio", "map.tif"), ("xarray", "map.nc")):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, library, None)
            with pytest.raises(gx.InvalidInput, match=rf'{library} is needed .*"geomxp\[geo\]"'):
                raster.save(tmp_path / path)
        assert not (tmp_path / path).exists()


def test_an_earlier_file_survives_a_failure(raster, tmp_path, monkeypatch):
    path = tmp_path / "map.tif"
    raster.save(path)
    before = path.read_bytes()
    monkeypatch.setattr(
        "os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left"))
    )
    with pytest.raises(gx.GeomxpError, match=r"map\.tif: cannot be written"):
        raster.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cells": 1}, "`cells` must be a whole number of at least 2"),
        ({"cells": True}, "`cells` must be a whole number"),
        ({"cells": 5, "resolution": 10}, "only one of `cells` and `resolution`"),
        ({"resolution": 0}, "`resolution` must be a number greater than 0"),
        ({"resolution": "50"}, "`resolution` must be a number"),
        ({"resolution": 1e-9}, "use larger cells"),
        ({"bounds": (0, 1, 0, 2)}, "`bounds` must be left, bottom, right and top"),
        ({"bounds": (0, 1, 2)}, "`bounds` must be"),
        ({"bounds": (0, 1, 2, np.inf)}, "`bounds` must be"),
        ({"cells": 5, "mask": np.ones((2, 2), dtype=bool)}, r"`mask` must have shape \(3, 5\)"),
        ({"cells": 5, "mask": np.zeros((3, 5), dtype=bool)}, "leaves no cell"),
        ({"cells": 5, "mask": [[[0, 0], [1, 1]]]}, "mask 1: a polygon needs at least 3 corners"),
        ({"like": "nosuch.tif"}, "nosuch.tif: no such file"),
        ({"like": "nosuch.tif", "cells": 3}, "leave out cells"),
        ({"mask": "nosuch.nc"}, "nosuch.nc: no such file"),
        ({"mask": 5}, "`mask` must be an array of bool, a path or polygons. Got int"),
    ],
)
def test_wrong_grids_are_named(fit, arguments, message):
    with pytest.raises(gx.InvalidInput, match=message):
        gx.predict_raster(fit, **arguments)


def test_files_that_are_no_grids_are_named(fit, raster, tmp_path):
    (tmp_path / "text.tif").write_text("no raster")
    with pytest.raises(gx.InvalidInput, match=r"text\.tif: not a raster file"):
        gx.predict_raster(fit, like=tmp_path / "text.tif")
    askew = tmp_path / "askew.tif"
    turned = rasterio.Affine(10, 3, 0, 3, -10, 0)
    with rasterio.open(
        askew, "w", driver="GTiff", width=3, height=2, count=1, dtype="float32", transform=turned
    ) as file:
        file.write(np.ones((1, 2, 3), dtype="float32"))
    with pytest.raises(gx.InvalidInput, match=r"askew\.tif: the raster is rotated"):
        gx.predict_raster(fit, like=askew)
    uneven = xarray.Dataset(
        {"z": (("y", "x"), np.ones((2, 3)))}, {"x": [0.0, 1.0, 3.0], "y": [0.0, 1.0]}
    )
    uneven.to_netcdf(tmp_path / "uneven.nc")
    with pytest.raises(gx.InvalidInput, match="cells of the grid must be of one size"):
        gx.predict_raster(fit, like=tmp_path / "uneven.nc")
    elsewhere = tmp_path / "elsewhere.tif"
    rasters.write_geotiff(elsewhere, {"z": (raster.mean, {})}, raster.extent, crs="EPSG:32631")
    with pytest.raises(gx.InvalidInput, match="is in EPSG:32631, the observations in EPSG:28992"):
        gx.predict_raster(fit, like=elsewhere)


def test_a_map_stays_in_little_memory(monkeypatch):
    """Covariances held at once do not grow with the number of cells."""
    largest = []
    whole = gx.Matern.matrix

    def watched(self, a, b=None):
        largest.append(len(a) * len(a if b is None else b))
        return whole(self, a, b)

    fit = held(testing.observations())
    monkeypatch.setattr(gx.Matern, "matrix", watched)
    for module in ("prediction.kriging", "prediction.supports"):
        monkeypatch.setattr(f"geomxp.{module}.CHUNK_ENTRIES", 60_000)
    gx.predict_raster(fit, cells=100)
    gx.predict_raster(fit, cells=30, block=True)
    assert max(largest) <= 60_000


@pytest.fixture
def run(capsys):
    def run(*arguments):
        status = main(list(map(str, arguments)))
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture(scope="module")
def saved(fit, tmp_path_factory):
    path = tmp_path_factory.mktemp("fit") / "fit.json"
    fit.save(path)
    return path


BOUNDS = ("--bounds", "180000,330000,181000,330600")


def test_the_command_writes_the_maps_of_python(run, saved, raster, tmp_path):
    for ending in ("tif", "nc", "csv"):
        path = tmp_path / f"map.{ending}"
        status, out, err = run("predict", saved, "--resolution", 50, *BOUNDS, "--output", path)
        assert (status, out) == (0, f"240 predictions written to {path}\n")
        assert err.endswith(f"geomxp: the observations are those in {saved}.\n")
    with rasterio.open(tmp_path / "map.tif") as tif, xarray.open_dataset(tmp_path / "map.nc") as nc:
        known = np.isfinite(raster.mean)
        np.testing.assert_allclose(tif.read(1)[::-1][known], raster.mean[known], rtol=1e-12)
        np.testing.assert_array_equal(nc["lower"], tif.read(3)[::-1])
    status, _, _ = run(
        *("predict", saved, "--like", tmp_path / "map.tif", "--mask", tmp_path / "map.nc"),
        *(
            "--of",
            "observation",
            "--level",
            "0.5",
            "--neighbours",
            20,
            "--output",
            tmp_path / "o.nc",
        ),
    )
    assert status == 0
    with xarray.open_dataset(tmp_path / "o.nc") as data:
        assert "50 % interval" in data["lower_of_observation"].attrs["long_name"]
    status, out, _ = run(
        "predict",
        saved,
        "--grid",
        4,
        "--block",
        "cell",
        "--local-trend",
        "--neighbours",
        30,
        "--json",
    )
    assert status == 0
    assert '"upper"' in out
    assert "variance_of_observation" not in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either a table of LOCATIONS, or --grid"),
        (["meuse", "--grid", "5"], "give either a table of LOCATIONS"),
        (["meuse", "--mask", "x.tif"], "give either a table of LOCATIONS"),
        ([*BOUNDS], "give either a table of LOCATIONS"),
        (["meuse", "--output", "map.tif"], "map.tif: can hold only a map"),
        (["--grid", "5", "--bounds", "1,2,x,4"], "--bounds number=x: 'x' is not a number"),
        (["--grid", "5", "--bounds", "1,2,3"], "`bounds` must be left"),
        (["--grid", "5", "--resolution", "5"], "only one of `cells` and `resolution`"),
        (["--grid", "5", "--block", "20"], "--block of a grid must be cell"),
        (["meuse", "--block", "polygons"], "needs a file of polygons"),
        (["meuse", "--block", "1,2,3"], "`block` must be 2 side(s)"),
        (["--grid", "5", "--of", "mean"], "--of must be field or observation"),
        (["--grid", "5", "--local-trend"], "`local_trend` needs `neighbours`"),
    ],
)
def test_wrong_commands_are_one_line_and_status_2(run, saved, arguments, message):
    status, out, err = run("predict", saved, *arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_a_file_of_several_maps_gives_cells_and_is_no_mask(tmp_path):
    places = np.random.default_rng(3).random((12, 2))
    seen = gx.Observations(places, places[:, 0], time=np.arange(12) % 3)
    model = gx.Separable(1.0, 0.5, 2.0, 0.5, 0.5, 0.1)
    fit = gx.fit(seen, model, fixed=tuple(model.parameters()), progress=False)
    several = gx.predict_raster(fit, cells=4, time=[0.0, 1.0], progress=False)
    several.save(tmp_path / "maps.nc")
    like = gx.predict_raster(fit, like=tmp_path / "maps.nc", time=1.0, progress=False)
    np.testing.assert_allclose(like.mean, several[1].mean, rtol=1e-12)
    with pytest.raises(gx.InvalidInput, match=r"a mask must be one map\. Got 'mean' with the dim"):
        gx.predict_raster(fit, cells=4, mask=tmp_path / "maps.nc", time=1.0, progress=False)


def test_locations_beyond_any_side_of_a_mask_are_outside_it(raster, tmp_path):
    path = tmp_path / "map.nc"
    raster.save(path)
    inside, _ = rasters.read_mask(path, raster.x, raster.y)
    np.testing.assert_array_equal(inside, np.isfinite(raster.mean))
    beyond_x, beyond_y = raster.x[-1] - raster.x[0] + 50, raster.y[-1] - raster.y[0] + 50
    for x, y in ((beyond_x, 0), (-beyond_x, 0), (0, beyond_y), (0, -beyond_y)):
        assert not rasters.read_mask(path, raster.x + x, raster.y + y)[0].any()
    # a cell further, other cells
    inside, _ = rasters.read_mask(path, raster.x + 50, raster.y)
    np.testing.assert_array_equal(inside[:, :-1], np.isfinite(raster.mean)[:, 1:])
    assert not inside[:, -1].any()
