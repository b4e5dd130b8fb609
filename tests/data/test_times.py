"""Times: numbers and dates never mix, and dates keep their calendar and their zone."""

import warnings

import numpy as np
import pandas as pd
import pytest

import geomxp as gx
from geomxp.data.times import TimeAxis, Times, as_numbers, read_dates

cftime = pytest.importorskip("cftime")
xarray = pytest.importorskip("xarray")

RNG = np.random.default_rng(3)
PLACES = np.repeat(RNG.random((6, 2)), 4, axis=0)
VALUES = RNG.normal(size=24)
MODEL = gx.Separable(1.0, 1.0, 2.0, 0.5, 0.5, 0.1)
NEW = np.array([[0.4, 0.5]])
OWN = ("noleap", "all_leap", "360_day", "julian")


def fit_at(time, **about):
    """A fit of observations at four times."""
    seen = gx.Observations(PLACES, VALUES, time=np.tile(np.asarray(time, object), 6), **about)
    return gx.fit(seen, MODEL, fixed=tuple(MODEL.parameters()), progress=False)


def mean_at(fit, time):
    return gx.predict(fit, NEW, time=time, progress=False).mean.item()


NUMBERS = fit_at([0.0, 1.0, 2.0, 5.0])


# Dates written as digits


@pytest.mark.parametrize("kind", [int, float, str])
@pytest.mark.parametrize(
    ("digits", "days"),
    [
        ([19991231, 20000101, 20000228, 20000301], [0, 1, 59, 61]),
        ([202412310600, 202501010600, 202501011800, 202501040600], [0.25, 1.25, 1.75, 4.25]),
        (
            [20241231060000, 20250101060000, 20250101180000, 20250104060000],
            [0.25, 1.25, 1.75, 4.25],
        ),
    ],
)
def test_dates_may_be_written_as_digits(digits, days, kind):
    numbers, axis = as_numbers(np.array([kind(one) for one in digits]))
    np.testing.assert_allclose(numbers, days, rtol=1e-12)
    assert axis.unit == "day"
    # one by one they are the same dates
    for one, day in zip(digits, days, strict=True):
        assert axis.numbers(kind(one)) == pytest.approx(day)


@pytest.mark.parametrize(
    ("digits", "days"),
    [
        ([202411, 202412, 202501, 202502], [0, 30, 61, 92]),
        ([2024365, 2024366, 2025001, 2025060], [0, 1, 2, 61]),
        ([2024123106, 2024123118, 2025010106, 2025010406], [0.25, 0.75, 1.25, 4.25]),
    ],
)
def test_rarer_forms_of_digits_are_read_with_a_warning(digits, days):
    with pytest.warns(gx.GeomxpWarning, match=f"times such as {digits[0]} are read as dates"):
        numbers, _ = as_numbers(np.array(digits))
    np.testing.assert_allclose(numbers, days, rtol=1e-12)


@pytest.mark.parametrize(
    "numbers",
    [
        # no month, no day, no such year, another number of digits, a fraction, a sign
        [20231301, 20231302, 20231303],
        [20230232, 20230233, 20230234],
        [30000101, 30000102, 30000103],
        [20230101, 20230102, 2023010],
        [20230101.5, 20230102.5, 20230103.5],
        [-20230101, -20230102, -20230103],
        [2021, 2022, 2023],
        [1677715200, 1677801600, 1677888000],
        [2459945, 2459946, 2459947],
        [0, 1, 2],
    ],
)
def test_other_numbers_stay_numbers(numbers):
    found, axis = as_numbers(np.array(numbers))
    np.testing.assert_array_equal(found, numbers)
    assert axis == TimeAxis()


def test_numbers_with_a_unit_are_no_digits():
    axis = TimeAxis("second")
    assert as_numbers(np.array([20230101.0, 20230102.0]), axis)[1] == axis
    seen = gx.Observations(PLACES, VALUES, time=np.full(24, 20230101.0), time_unit="hour")
    assert (seen.time[0], seen.time_origin) == (20230101.0, "")


def test_a_missing_cell_of_digits_is_a_missing_date():
    frame = pd.DataFrame({"x": PLACES[:, 0], "y": PLACES[:, 1], "z": VALUES})
    frame["day"] = np.tile([20230228.0, 20230301.0, 20230303.0, np.nan], 6)
    with pytest.raises(gx.InvalidInput, match=r"There is none in row 4 \(6 such rows"):
        gx.Observations.from_frame(frame, values="z", time="day")
    seen = gx.Observations.from_frame(frame, values="z", time="day", drop_missing=True)
    assert (len(seen), np.unique(seen.time).tolist()) == (18, [0.0, 1.0, 3.0])


# Numbers and dates


@pytest.mark.parametrize(
    "number", [4, 4.0, "4", np.int64(19418), 1677715200.0, [1.0], np.array([2.5]), -1, 10**20]
)
def test_a_number_asked_of_dates_is_refused(number):
    fit = fit_at(["2023-02-26", "2023-02-27", "2023-02-28", "2023-03-03"])
    with pytest.raises(gx.InvalidInput, match=r"`time` must be a date.*days since 2023-02-26"):
        mean_at(fit, number)
    with pytest.raises(gx.InvalidInput, match="`time` must be a date"):
        gx.predict_raster(fit, cells=3, time=[number] if np.ndim(number) == 0 else number)
    table = pd.DataFrame({"x": [0.4], "y": [0.5], "time": np.ravel(number)})
    with pytest.raises(gx.InvalidInput, match="`time` must be a date"):
        gx.predict(fit, table)


def test_a_grid_of_numbers_is_refused_where_dates_are_needed():
    fit = fit_at(["2023-02-26", "2023-02-27", "2023-02-28", "2023-03-03"])
    grid = xarray.Dataset(coords={"y": [0.5], "x": [0.4], "time": ("time", [2.0])})
    for units in ("", "days", "hours"):
        grid["time"].attrs = {"units": units} if units else {}
        with pytest.raises(gx.InvalidInput, match="`time` must be a date"):
            gx.predict(fit, grid)
    dated = grid.assign_coords(time=("time", [672.0], {"units": "hours since 2023-02-01"}))
    found = gx.predict(fit, dated).mean.item()
    assert found == pytest.approx(gx.predict(fit, [[0.4, 0.5]], time="2023-03-01").mean.item())


@pytest.mark.parametrize("date", ["2023-03-01", np.datetime64("2023-03-01"), pd.Timestamp("2023")])
def test_a_date_asked_of_numbers_is_refused(date):
    with pytest.raises(gx.InvalidInput, match=r"`time` must be a number.*Got a date"):
        mean_at(NUMBERS, date)
    assert mean_at(NUMBERS, 20230301) != mean_at(NUMBERS, 2.0)


@pytest.mark.parametrize("nothing", [[], np.array([]), ()])
def test_no_time_at_all_is_refused(nothing):
    fit = fit_at(["2023-02-26", "2023-02-27", "2023-02-28", "2023-03-03"])
    with pytest.raises(gx.InvalidInput, match=r"`time` must be a date.*Got \[\]"):
        mean_at(fit, nothing)


def test_durations_count_from_the_origin():
    fit = fit_at(["2023-02-26", "2023-02-27", "2023-02-28", "2023-03-03"])
    assert mean_at(fit, np.timedelta64(60, "h")) == mean_at(fit, "2023-02-28T12:00")


def test_dates_of_observations_are_dates_to_ask_for():
    dates = ["2023-02-26", "2023-02-27", "2023-02-28", "2023-03-03"]
    for fit in (fit_at(dates), fit_at(dates, time_calendar="360_day", time_unit="day")):
        seen = fit.observations
        series = gx.predict_raster(fit, cells=3, time=np.unique(seen.dates), progress=False)
        np.testing.assert_array_equal(series.times, np.unique(seen.time))
        of_dates = gx.predict(fit, seen.locations, time=seen.dates).mean
        np.testing.assert_array_equal(of_dates, gx.predict(fit, seen).mean)


def test_observations_that_count_from_another_day_are_moved():
    fit = fit_at(["2023-02-26", "2023-02-27", "2023-02-28", "2023-03-03"])
    later = gx.Observations(
        np.repeat(NEW, 3, axis=0), [0.0, 1.0, 2.0], time=[0, 24, 48], time_unit="hour",
        time_origin="2023-03-01",
    )  # fmt: skip
    found = gx.predict(fit, later).mean
    expected = [mean_at(fit, day) for day in ("2023-03-01", "2023-03-02", "2023-03-03")]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    numbers = gx.Observations(np.repeat(NEW, 3, axis=0), [0.0, 1.0, 2.0], time=[0, 1, 2])
    with pytest.raises(gx.InvalidInput, match="`time` must be a date"):
        gx.predict(fit, numbers)
    with pytest.raises(gx.InvalidInput, match="must be a number"):
        gx.predict(NUMBERS, later)


@pytest.mark.parametrize("about", [{}, {"time_unit": "fortnight"}])
def test_an_origin_needs_a_unit(about):
    with pytest.raises(gx.InvalidInput, match="`time_unit` must be one of"):
        gx.Observations(PLACES, VALUES, time=np.zeros(24), time_origin="2023-01-01", **about)


# Calendars


@pytest.mark.parametrize("calendar", OWN)
def test_days_between_dates_are_those_of_the_calendar(calendar):
    parts = [(2023, 2, 27), (2023, 2, 28), (2023, 3, 1), (2024, 2, 28), (2024, 3, 1)]
    dates = [cftime.datetime(*part, calendar=calendar) for part in parts]
    numbers, axis = as_numbers(dates)
    expected = [(one - dates[0]).total_seconds() / 86_400 for one in dates]
    np.testing.assert_array_equal(numbers, expected)
    assert (axis.calendar, axis.origin) == (calendar, "2023-02-27")
    np.testing.assert_array_equal(axis.dates(numbers), dates)
    texts = ["2023-02-27", "2023-2-28", "2023-03-01T00:00", "2024-02-28 00:00:00", "2024-03-01"]
    np.testing.assert_array_equal(axis.numbers(texts), expected)
    np.testing.assert_array_equal(axis.numbers([20230227, 20230228]), expected[:2])


@pytest.mark.parametrize("calendar", OWN)
def test_calendars_never_mix(calendar):
    dates = xarray.date_range("2023-02-25", periods=4, freq="D", calendar=calendar, use_cftime=True)
    fit = fit_at(dates)
    expected = mean_at(fit, dates[2])
    for same in ("2023-02-27", 20230227, dates[2:3]):
        assert mean_at(fit, same) == expected
    others = [one for one in (*OWN, "standard") if one != calendar]
    for other in others:
        with pytest.raises(gx.InvalidInput, match=f"{calendar} calendar, as the observations"):
            mean_at(fit, cftime.datetime(2023, 2, 27, calendar=other))
    for date in (np.datetime64("2023-02-27"), pd.Timestamp("2023-02-27")):
        with pytest.raises(gx.InvalidInput, match="Got dates of the Gregorian calendar"):
            mean_at(fit, date)
    gregorian = fit_at(["2023-02-25", "2023-02-26", "2023-02-27", "2023-02-28"])
    with pytest.raises(gx.InvalidInput, match=f"dates of the {calendar} calendar"):
        mean_at(gregorian, dates[2])
    with pytest.raises(gx.InvalidInput, match="dates of one calendar"):
        as_numbers([dates[0], cftime.datetime(2023, 2, 27, calendar=others[0])])


def test_a_day_that_the_calendar_does_not_have_is_named():
    fit = fit_at(xarray.date_range("2024-02-27", periods=4, calendar="noleap", use_cftime=True))
    with pytest.raises(gx.InvalidInput, match="noleap calendar has no date '2024-02-29'"):
        mean_at(fit, "2024-02-29")
    with pytest.raises(gx.InvalidInput, match=r"written as 2026-03-01.*Got '1 March 2024'"):
        mean_at(fit, "1 March 2024")
    with pytest.raises(gx.InvalidInput, match="without a time zone"):
        mean_at(fit, "2024-03-01T00:00Z")


@pytest.mark.parametrize("calendar", ["standard", "gregorian", "proleptic_gregorian"])
def test_gregorian_dates_of_cftime_are_dates(calendar):
    dates = [cftime.datetime(2024, 2, day, 6, calendar=calendar) for day in (26, 27, 28, 29)]
    numbers, axis = as_numbers(dates)
    same, same_axis = as_numbers(pd.date_range("2024-02-26T06", periods=4))
    np.testing.assert_array_equal(numbers, same)
    assert axis == same_axis
    assert axis.numbers("2024-03-01") == 4.0


def test_early_dates_of_the_standard_calendar_are_moved_to_their_moment():
    """In 1582 the day after 4 October was 15 October."""
    days = [cftime.datetime(1582, 10, 4), cftime.datetime(1582, 10, 15)]
    with pytest.warns(gx.GeomxpWarning, match="1582-10-04 is 1582-10-14"):
        numbers, _ = as_numbers(days)
    assert numbers.tolist() == [0.0, 24.0]


def test_a_fit_of_another_calendar_says_so_and_is_the_same_from_its_file(tmp_path):
    dates = xarray.date_range("2023-02-26", periods=4, calendar="360_day", use_cftime=True)
    fit = fit_at(dates)
    assert "days since 2023-02-26 (360_day calendar)" in str(fit)
    assert "days since 2023-02-26 (360_day calendar)" in repr(fit.observations)
    assert fit.to_dict()["times"]["calendar"] == "360_day"
    fit.save(tmp_path / "fit.json")
    read = gx.Fit.load(tmp_path / "fit.json")
    assert read.observations.time_axis == fit.observations.time_axis
    assert mean_at(read, "2023-02-30") == mean_at(
        fit, cftime.datetime(2023, 2, 30, calendar="360_day")
    )


def test_a_unit_without_dates_is_kept_in_the_file(tmp_path):
    fit = fit_at([0.0, 1.0, 2.0, 3.0], time_unit="hour")
    fit.save(tmp_path / "fit.json")
    assert gx.Fit.load(tmp_path / "fit.json").observations.time_unit == "hour"


# Time zones


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata", "UTC", "UTC-05:00"])
def test_a_time_without_a_zone_is_read_in_that_of_the_observations_with_a_warning(zone):
    fit = fit_at(pd.date_range("2023-03-10", periods=4, tz=zone))
    assert fit.observations.time_zone == zone
    expected = mean_at(fit, pd.Timestamp("2023-03-12 12:00", tz=zone))
    for naive in (
        "2023-03-12 12:00",
        np.datetime64("2023-03-12T12:00"),
        cftime.datetime(2023, 3, 12, 12),
    ):
        with pytest.warns(gx.GeomxpWarning, match=f"without a time zone.*{zone}"):
            assert mean_at(fit, naive) == expected
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        utc = pd.Timestamp("2023-03-12 12:00", tz=zone).tz_convert("UTC")
        for same in (utc, utc.isoformat(), utc.tz_convert("Asia/Tokyo"), utc.to_pydatetime()):
            assert mean_at(fit, same) == pytest.approx(expected, rel=1e-12)


def test_a_time_with_a_zone_is_converted_to_utc_with_a_warning():
    fit = fit_at(pd.date_range("2023-03-10", periods=4))
    with pytest.warns(gx.GeomxpWarning, match="time zone UTC.05:00.*converted to UTC"):
        found = mean_at(fit, "2023-03-11T07:00-05:00")
    assert found == mean_at(fit, "2023-03-11T12:00")


def test_a_time_that_the_zone_does_not_have_is_refused():
    fit = fit_at(pd.date_range("2023-03-10", periods=4, tz="America/New_York"))
    with (
        pytest.warns(gx.GeomxpWarning, match="without a time zone"),
        pytest.raises(gx.InvalidInput, match="not all times of America/New_York"),
    ):
        mean_at(fit, "2023-03-12T02:30")


@pytest.mark.parametrize("kind", [list, pd.Series, np.array])
def test_dates_with_and_without_a_zone_are_refused(kind):
    with pytest.raises(gx.InvalidInput, match="all have a time zone, or none"):
        read_dates(kind(["2023-03-10T05:00Z", "2023-03-11T05:00", "2023-03-12T05:00Z"]))


def test_several_offsets_are_one_instant_each():
    dates = read_dates(["2023-03-11T07:00-05:00", "2023-03-12T08:00-04:00", "2023-03-13T12:00Z"])
    assert dates.zone == "UTC"
    assert dates.values.astype("M8[h]").astype(str).tolist() == [
        f"2023-03-{day}T12" for day in (11, 12, 13)
    ]


@pytest.mark.parametrize("zone", ["Mars/Olympus", "5"])
def test_a_zone_must_exist(zone):
    with pytest.raises(gx.InvalidInput, match="`time_zone` must be a time zone"):
        TimeAxis("day", "2023-01-01", zone=zone)


@pytest.mark.parametrize("offset", ["+05:30", "-6:00", "Z", ""])
def test_reference_dates_of_files_may_have_an_offset(offset):
    units = f"hours since 2024-01-01 00:00:00 {offset}"
    grid = xarray.Dataset(
        {"z": (("time", "i"), VALUES.reshape(4, 6))},
        {"x": ("i", PLACES[::4, 0]), "y": ("i", PLACES[::4, 1])},
    ).assign_coords(time=("time", [0.0, 6.0, 12.0, 18.0], {"units": units}))
    seen = gx.Observations.from_frame(grid)
    start = {"+05:30": "2023-12-31T18:30", "-6:00": "2024-01-01T06:00"}
    assert seen.dates.min() == np.datetime64(start.get(offset, "2024-01-01T00:00"))


def test_absolute_dates_of_files_are_dates():
    grid = xarray.Dataset(
        {"z": (("time", "i"), VALUES.reshape(4, 6))},
        {"x": ("i", PLACES[::4, 0]), "y": ("i", PLACES[::4, 1])},
    )
    about = {"units": "day as %Y%m%d.%f", "calendar": "proleptic_gregorian"}
    days = [20240228.0, 20240229.25, 20240301.0, 20240302.5]
    seen = gx.Observations.from_frame(grid.assign_coords(time=("time", days, about)))
    assert np.unique(seen.time).tolist() == [0.0, 1.25, 2.0, 3.5]


# Files that are written


@pytest.mark.slow
@pytest.mark.parametrize("calendar", [*OWN, "standard"])
@pytest.mark.parametrize("several", [True, False])
def test_maps_are_written_with_their_dates_and_calendar(tmp_path, calendar, several):
    dates = xarray.date_range(
        "2023-02-26", periods=4, freq="6h", calendar=calendar, use_cftime=True
    )
    fit = fit_at(dates)
    time = [dates[1], dates[3]] if several else dates[1]
    found = gx.predict_raster(fit, cells=4, time=time, progress=False)
    found.save(tmp_path / "maps.nc")
    with xarray.open_dataset(tmp_path / "maps.nc", decode_times=False) as raw:
        assert raw["time"].attrs["units"] == "hours since 2023-02-26"
        assert raw["time"].attrs["calendar"] == calendar
        assert raw["time"].attrs["standard_name"] == "time"
        np.testing.assert_array_equal(raw["time"], [6.0, 18.0] if several else 6.0)
        assert raw["mean"].dims == (("time", "y", "x") if several else ("y", "x"))
    # as new locations it has the predictions' own places and times
    again = gx.predict(fit, gx.data.tables.read_data(tmp_path / "maps.nc")[["time", "y", "x"]])
    wanted = [one.mean for one in found.rasters] if several else found.mean
    np.testing.assert_allclose(np.sort(again.mean), np.sort(np.ravel(wanted)), rtol=1e-12)
    frame = found.to_frame()
    texts = frame["time"].astype(str).str.replace("T", " ").unique().tolist()
    hours = ["06", "18"] if several else ["06"]
    assert [text[:13] for text in texts] == [f"2023-02-26 {hour}" for hour in hours]
    for ending in ("csv", "parquet"):
        found.save(tmp_path / f"maps.{ending}")
        table = gx.predict(
            fit, gx.data.tables.read_data(tmp_path / f"maps.{ending}")[["x", "y", "time"]]
        )
        np.testing.assert_allclose(table.mean, frame["mean"], rtol=1e-12)


@pytest.mark.parametrize("ending", ["csv", "parquet", "nc", "gpkg"])
@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata"])
def test_written_maps_keep_their_zone(tmp_path, zone, ending):
    fit = fit_at(pd.date_range("2023-03-11", periods=4, tz=zone))
    found = gx.predict_raster(fit, cells=4, time="2023-03-12T09:00Z", progress=False)
    assert "2023-03-12 09:00 UTC" in repr(found)
    found.save(tmp_path / f"map.{ending}")
    again = gx.predict(fit, gx.data.tables.read_data(tmp_path / f"map.{ending}"))
    np.testing.assert_allclose(np.sort(again.mean), np.sort(found.mean.ravel()), rtol=1e-12)


def test_a_grid_asked_at_another_time_comes_back_with_that_time():
    fit = fit_at(["2023-02-26", "2023-02-27", "2023-02-28", "2023-03-03"])
    grid = xarray.Dataset(coords={"y": [0.2, 0.5], "x": [0.1, 0.4, 0.7]})
    old = grid.assign_coords(time=pd.Timestamp("2023-02-26"))
    for given in (grid, old, old.expand_dims("time")):
        found = gx.predict(fit, given, time="2023-03-01").to_xarray()
        assert found["time"].values == np.datetime64("2023-03-01")
        assert found["mean"].dims == ("y", "x")


def test_times_are_taken_as_numbers_on_their_axis():
    axis = TimeAxis("hour", "2023-03-01")
    assert TimeAxis("day", "2023-02-26").numbers(Times(np.array([36.0]), axis)) == 4.5
    assert TimeAxis("day").numbers(Times(np.array([36.0]), TimeAxis("hour"))) == 1.5


def test_maps_of_early_dates_are_written_in_the_calendar_of_their_dates(tmp_path):
    fit = fit_at(np.array(["1500-03-11", "1500-03-12", "1500-03-13", "1500-03-16"], "M8[D]"))
    time = ["1500-03-11", "1500-03-13"]
    gx.predict_raster(fit, cells=3, time=time, progress=False).save(tmp_path / "maps.nc")
    with xarray.open_dataset(tmp_path / "maps.nc", decode_times=False) as raw:
        assert raw["time"].attrs["calendar"] == "proleptic_gregorian"
    again = gx.predict(fit, gx.data.tables.read_data(tmp_path / "maps.nc")[["time", "y", "x"]])
    cells = np.unique(again.locations, axis=0)
    wanted = [gx.predict(fit, cells, time=day).mean for day in time]
    np.testing.assert_allclose(np.sort(again.mean), np.sort(np.ravel(wanted)), rtol=1e-12)


@pytest.mark.parametrize("year", ["0850", "1700", "2026"])
def test_dates_are_exact_to_the_second_far_from_the_origin_and_keep_parts_of_seconds(year):
    axis = TimeAxis("day", f"{year}-01-01")
    seconds = np.array([0, 1, 86_399, 31_556_952 * 900 + 7], dtype=np.int64)
    dates = axis.dates(seconds / 86_400)
    np.testing.assert_array_equal(dates, np.datetime64(f"{year}-01-01", "s") + seconds)
    tenths = np.array([0.1, 0.7, 2.5])
    expected = np.datetime64(f"{year}-01-01", "ms") + np.array([100, 700, 2500])
    np.testing.assert_array_equal(TimeAxis("second", f"{year}-01-01").dates(tenths), expected)
