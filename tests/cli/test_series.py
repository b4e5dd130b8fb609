"""Maps at several times: `predict_raster(time=[...])` and `geomxp predict --time 0,1,2`."""

import json

import numpy as np
import pandas as pd
import pytest

import geomxp as gx

MODEL = gx.Separable(1.0, 0.3, 2.0, 0.5, 0.5, 0.1)
DATES = ["2026-03-02", "2026-03-04T12:00"]


def fit_of(dates, transform=None):
    """A fit of 60 values at 6 times, numbers or dates."""
    random = np.random.default_rng(0)
    places, when = random.random((60, 2)), np.arange(60) % 6
    frame = pd.DataFrame({"x": places[:, 0], "y": places[:, 1]})
    frame["day"] = pd.Timestamp("2026-03-01") + pd.to_timedelta(when, "D") if dates else when
    frame["rain"] = np.exp(random.standard_normal(60))
    seen = gx.Observations.from_frame(frame, values="rain", time="day")
    about = {"transform": transform} if transform else {}
    return gx.fit(seen, MODEL, fixed=tuple(MODEL.parameters()), trend="constant", **about)


@pytest.mark.parametrize("transform", [None, "log"])
def test_maps_of_several_times_are_those_of_each(transform):
    fit = fit_of(True, transform)
    mask = np.arange(25).reshape(5, 5) % 3 > 0
    about = {"cells": 5, "mask": mask}
    series = gx.predict_raster(fit, time=DATES, **about)
    assert len(series) == 2
    assert series.dates.tolist() == [pd.Timestamp(one).to_pydatetime() for one in DATES]
    for k, when in enumerate(DATES):
        one = gx.predict_raster(fit, time=when, **about)
        for name in ("mean", "variance", "centre"):
            found, expected = getattr(series[k], name), getattr(one, name)
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
            assert (np.isnan(found) == ~mask).all()


def test_a_series_is_a_netcdf_file_that_follows_the_cf_conventions(tmp_path):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("netCDF4")
    series = gx.predict_raster(fit_of(True), cells=4, time=DATES)
    series.save(tmp_path / "maps.nc", units="mm")
    with xarray.open_dataset(tmp_path / "maps.nc", decode_times=False) as raw:
        assert raw["mean"].dims == ("day", "y", "x")
        assert raw["day"].attrs["units"] == "days since 2026-03-01"
        assert raw["day"].values.tolist() == [1.0, 3.5]
        assert (raw["day"].attrs["axis"], raw["mean"].attrs["units"]) == ("T", "mm")
    with xarray.open_dataset(tmp_path / "maps.nc") as read:
        assert (read["day"].values == np.array(DATES, "M8[ns]")).all()
        np.testing.assert_array_equal(read["mean"][1], series[1].mean)
    numbers = gx.predict_raster(fit_of(False), cells=4, time=[1, 3.5])
    assert numbers.to_xarray()["day"].values.tolist() == [1.0, 3.5]
    np.testing.assert_allclose(numbers[1].mean, series[1].mean, rtol=1e-12)


def test_a_series_is_a_table_of_cells_and_times(tmp_path):
    series = gx.predict_raster(fit_of(True), cells=4, time=DATES)
    series.save(tmp_path / "maps.csv")
    table = pd.read_csv(tmp_path / "maps.csv", parse_dates=["day"])
    assert list(table.columns[:4]) == ["x", "y", "day", "mean"]
    assert table["day"].tolist() == [pd.Timestamp(one) for one in DATES for _ in range(16)]
    np.testing.assert_allclose(table["mean"][16:], series[1].mean.ravel(), rtol=1e-14)
    assert "RasterSeries of rain: 4 × 4 cells at 2 times, day 2026-03-02" in repr(series)


def test_the_command_writes_maps_of_several_times(run, tmp_path):
    pytest.importorskip("netCDF4")
    fit = fit_of(True)
    fit.save(tmp_path / "fit.json")
    known = ("predict", tmp_path / "fit.json", "--grid", 4, "--time", ",".join(DATES))
    status, _, _ = run(*known, "--output", tmp_path / "maps.nc")
    assert status == 0
    series = gx.predict_raster(fit, cells=4, time=DATES)
    xarray = pytest.importorskip("xarray")
    with xarray.open_dataset(tmp_path / "maps.nc") as read:
        np.testing.assert_allclose(read["mean"][1], series[1].mean, rtol=1e-12)
    status, out, _ = run(*known, "--json")
    rows = json.loads(out)["rows"]
    assert [row["day"] for row in rows[::16]] == ["2026-03-02T00:00:00", "2026-03-04T12:00:00"]
    assert len(rows) == 32
    means = np.concatenate([raster.mean.ravel() for raster in series.rasters])
    np.testing.assert_allclose([row["mean"] for row in rows], means, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("dates", [True, False])
def test_maps_of_a_series_are_drawn_side_by_side_and_one_after_the_other(dates, tmp_path):
    fit = fit_of(dates)
    series = gx.predict_raster(fit, cells=4, time=DATES if dates else [1, 3.5])
    panels = gx.plots.prediction_maps(fit, series)
    titles = ["2026-03-02 00:00", "2026-03-04 12:00"] if dates else ["day 1", "day 3.5"]
    assert [ax.get_title() for ax in panels] == titles
    images = [ax.get_images()[0] for ax in panels]
    assert images[0].get_clim() == images[1].get_clim()
    np.testing.assert_array_equal(images[1].get_array(), series[1].mean)
    film = gx.plots.prediction_animation(fit, series)
    film.save(tmp_path / "maps.gif", writer="pillow")
    from PIL import Image

    with Image.open(tmp_path / "maps.gif") as gif:
        assert gif.n_frames == 2
    many = gx.predict_raster(fit, cells=2, time=np.arange(25.0)) if not dates else None
    if many:
        with pytest.raises(gx.InvalidInput, match="room for 24 maps"):
            gx.plots.prediction_maps(fit, many)


def test_years_are_written_as_days(tmp_path):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("netCDF4")
    random = np.random.default_rng(0)
    years = pd.to_datetime([f"{1990 + k % 6}-07-01" for k in range(60)])
    seen = gx.Observations(random.random((60, 2)), random.random(60), time=years, time_unit="year")
    fit = gx.fit(seen, MODEL, fixed=tuple(MODEL.parameters()), trend="constant")
    gx.predict_raster(fit, cells=3, time=["1991-07-01", "1993-07-01"]).save(tmp_path / "maps.nc")
    with xarray.open_dataset(tmp_path / "maps.nc") as read:
        assert read["time"].dt.year.values.tolist() == [1991, 1993]


def test_a_list_of_times_is_for_the_plane(run, tmp_path):
    line = gx.Observations(np.arange(20.0)[:, None], np.arange(20.0), time=np.arange(20.0) % 4)
    gx.fit(line, MODEL, fixed=tuple(MODEL.parameters())).save(tmp_path / "line.json")
    status, _, err = run("predict", tmp_path / "line.json", "--grid", 3, "--time", "0,1,2")
    assert (status, "a list of --time is for maps of the plane only" in err) == (2, True)
    spatial = gx.fit(gx.datasets.load("meuse"), gx.Matern(0.6, 220.0, 0.5, 0.06), fixed=("range",))
    with pytest.raises(gx.InvalidInput, match="the observations have no times"):
        gx.predict_raster(spatial, cells=4, time=[0, 1])


@pytest.mark.parametrize("seconds", [0, -1, np.nan, "1"])
def test_a_film_needs_a_time_for_each_map(seconds):
    fit = fit_of(False)
    series = gx.predict_raster(fit, cells=2, time=[0, 1])
    with pytest.raises(gx.InvalidInput, match="`seconds` must be a number greater than 0"):
        gx.plots.prediction_animation(fit, series, seconds=seconds)


@pytest.mark.parametrize(
    ("time", "message"),
    [
        ([2, 0], "must increase"),
        ([], "one time or a sequence of them"),
        ([[1, 2]], "one time or a sequence of them"),
        (["soon", "later"], "Got 'soon'"),
    ],
)
def test_wrong_times_are_named(time, message):
    with pytest.raises(gx.InvalidInput, match=message):
        gx.predict_raster(fit_of(not (time and time[0] == 2)), cells=4, time=time)


def test_files_of_one_time_refuse_several(run, tmp_path):
    fit = fit_of(False)
    series = gx.predict_raster(fit, cells=4, time=[0, 1])
    for name in ("maps.tif", "maps.gpkg"):
        with pytest.raises(gx.InvalidInput, match="can hold one time only: write NetCDF"):
            series.save(tmp_path / name)
    fit.save(tmp_path / "fit.json")
    (tmp_path / "there.csv").write_text("x,y,day\n0.5,0.5,1\n")
    status, _, err = run(
        *("predict", tmp_path / "fit.json", tmp_path / "there.csv", "--time", "0,1")
    )
    assert status == 2
    assert "a list of --time is for maps of the plane only" in err
    for name, text in (("maps.tif", "can hold one time only"), ("x.nc", "must increase")):
        known = ("predict", tmp_path / "fit.json", "--grid", 4, "--output", tmp_path / name)
        status, _, err = run(*known, "--time", "0,0" if name == "x.nc" else "0,1")
        assert status == 2
        assert text in err
    status, _, err = run("predict", tmp_path / "fit.json", "--grid", 4, "--time", ",")
    assert (status, "--time needs a number or a date" in err) == (2, True)
