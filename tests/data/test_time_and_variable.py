"""Observations with a time and a variable: validation, tables, files, and who refuses them."""

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pandas as pd
import pytest

import geomxp as gx
from geomxp import testing
from geomxp.covariance.base import NUGGET, RANGE, VARIANCE

PLACES = np.repeat(testing.places(8), 3, axis=0)
TIME, VARIABLE = np.tile([0.0, 1.0, 2.5], 8), np.tile([0, 1, 0], 8)
VALUES = np.random.default_rng(0).standard_normal(24)


def observations(**changes):
    return gx.Observations(PLACES, VALUES, **({"time": TIME, "variable": VARIABLE} | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"time": TIME[:5]}, r"`time` must hold one number for each of the 24 locations.*\(5,\)"),
        (
            {"time": np.where(TIME == 1, np.nan, TIME)},
            "time must be finite numbers. Got nan in row 2",
        ),
        ({"time": ["noon"] * 24}, "`time` must be an array of numbers"),
        (
            {"variable": VARIABLE + 0.5},
            "`variable` must hold whole numbers from 0.*Got 0.5 in row 1",
        ),
        ({"variable": -VARIABLE}, "`variable` must hold whole numbers from 0.*Got -1 in row 2"),
        (
            {"variable": ["zinc"] * 24, "variable_names": ("zin", "lead")},
            "no variable 'zinc'. The variables are: zin, lead. Did you mean 'zin'",
        ),
        ({"variable_names": ("zinc",)}, "must be less than 1, the number of.*Got 1 in row 2"),
        ({"variable_names": ("zinc", "zinc")}, "`variable_names` must be different"),
        ({"variable": 1e30}, "`variable` must hold whole numbers from 0.*Got 1e\\+30 in row 1"),
        ({"time_name": "x"}, "coordinates, time, variable must be different columns. Got x, y, x"),
    ],
)
def test_wrong_columns_are_refused(changes, message):
    with pytest.raises(gx.InvalidInput, match=message):
        observations(**changes)


@pytest.mark.parametrize(
    ("column", "message"),
    [("z", "name a column other than the values"), (["hour"], "name a column by text")],
)
def test_the_columns_must_be_others_than_the_values(column, message):
    frame = pd.DataFrame({"x": PLACES[:, 0], "y": PLACES[:, 1], "hour": TIME, "z": VALUES})
    with pytest.raises(gx.InvalidInput, match=f"`time` must {message}"):
        gx.Observations.from_frame(frame, locations=("x", "y"), values="z", time=column)


def test_rows_at_one_location_differ_by_time_or_variable():
    assert observations().duplicate() is None
    assert observations(variable=None).duplicate() is None
    assert observations(time=None).duplicate() == (0, 2)
    assert observations(time=None, variable=None).duplicate() == (0, 1)


def test_subsets_keep_them_and_the_digest_knows_them():
    rows = [5, 1, 7]
    some = observations().subset(rows)
    np.testing.assert_array_equal(some.time, TIME[rows])
    np.testing.assert_array_equal(some.inputs.variable, VARIABLE[rows])
    without = [observations(**{name: None}) for name in ("time", "variable")]
    assert len({one.digest() for one in (observations(), *without)}) == 3
    assert "time" in str(observations())


@dataclass(frozen=True)
class Both(gx.Covariance):
    """C = σ² exp(-h/a - |u|) between values of one variable."""

    family = "both"
    uses = ("time", "variable")
    declared = (VARIANCE, RANGE, NUGGET)

    variance: float
    range: float
    nugget: float = 0.0

    def matrix(self, a, b):
        h = np.linalg.norm(a.points[:, None] - b.points, axis=-1)
        same = np.equal.outer(a.variable, b.variable)
        u = np.abs(np.subtract.outer(a.time, b.time))
        return same * self.variance * np.exp(-h / self.range - u)


def test_columns_of_a_table_serve_fits_files_and_predictions(tmp_path):
    frame = pd.DataFrame({"x": PLACES[:, 0], "y": PLACES[:, 1], "hour": TIME, "z": VALUES})
    frame["element"] = VARIABLE
    frame.to_csv(tmp_path / "t.csv", index=False)
    columns = {"locations": ("x", "y"), "values": "z", "time": "hour", "variable": "element"}
    data = gx.read_table(tmp_path / "t.csv", **columns)
    assert data.digest() == gx.Observations.from_frame(frame, **columns).digest()
    np.testing.assert_array_equal(data.time, TIME)
    np.testing.assert_array_equal(data.variable, VARIABLE)
    model = Both(1.0, 0.3, 0.1)
    fit = gx.fit(data, model, fixed=tuple(model.parameters()), trend="zero")
    fit.save(tmp_path / "fit.json", embed=False)
    again = gx.Fit.load(tmp_path / "fit.json", family=Both)
    # a frame has the columns; Inputs and keyword arguments say the same
    means = [
        gx.predict(again, frame).mean,
        gx.predict(fit, PLACES, time=TIME, variable=VARIABLE).mean,
        gx.predict(fit, data).mean,
        gx.cross_validate(fit, folds=4).mean,
    ]
    np.testing.assert_array_equal(means[0], means[1])
    np.testing.assert_array_equal(means[0], means[2])
    assert np.isfinite(means[3]).all()
    assert np.isfinite(gx.predict_raster(fit, cells=4, time=1.0, variable=0).mean).all()
    one = gx.fit(data.subset(VARIABLE == 0), model, fixed=tuple(model.parameters()))
    lags = gx.variogram(one.observations).lags
    assert len(gx.plots.variogram(one).collections) == len(lags) > 1
    with pytest.raises(gx.InvalidInput, match="semivariogram of several variables and times"):
        gx.plots.variograms(fit)


@pytest.mark.parametrize("method", [gx.Exact(), gx.Exact(tile=8), gx.Vecchia(5)], ids=str)
def test_isotropic_families_refuse_them(method):
    with pytest.raises(gx.InvalidInput, match="does not depend on `time`: leave `time` out"):
        gx.log_likelihood(observations(), gx.Matern(1.0, 0.2, 0.5, 0.1), method)
    with pytest.raises(gx.InvalidInput, match="does not depend on `variable`"):
        gx.fit(observations(time=None), method=method)


def test_isotropic_predictions_and_draws_refuse_them():
    model = gx.Matern(1.0, 0.2, 0.5, 0.1)
    fit = gx.fit(testing.observations(20), model, fixed=tuple(model.parameters()))
    for act in (gx.predict, gx.simulate):
        with pytest.raises(gx.InvalidInput, match="does not depend on `time`"):
            act(fit, PLACES, time=TIME)
    with pytest.raises(gx.InvalidInput, match="does not depend on `variable`"):
        gx.simulate(model, PLACES, variable=1)
    square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
    with pytest.raises(gx.InvalidInput, match="does not depend on `time`"):
        gx.predict(fit, block=[square], time=1.0)


def test_dates_become_numbers_since_the_first_day():
    days = np.array(["2026-01-05T06", "2026-01-07", "2026-01-09T12"] * 8, "datetime64[h]")
    listed = [
        gx.Observations(PLACES, VALUES, time=time)
        for time in (days, days.tolist(), pd.Series(days))
    ]
    words = gx.Observations(PLACES, VALUES, time=[str(day) for day in days])
    for observations in (*listed, words):
        np.testing.assert_array_equal(observations.time[:3], [0.25, 2.0, 4.5])
        assert (observations.time_unit, observations.time_origin) == ("day", "2026-01-05")
        assert "times in days since 2026-01-05" in str(observations)
    hours = gx.Observations(
        PLACES, VALUES, time=days, time_unit="hour", time_origin="2026-01-05T05"
    )
    np.testing.assert_array_equal(hours.time[:3], [1.0, 43.0, 103.0])
    with pytest.raises(gx.InvalidInput, match=r"`time_unit` must be one of: second, minute"):
        gx.Observations(PLACES, VALUES, time=days, time_unit="fortnight")
    years = gx.Observations(PLACES, VALUES, time=["1999", "2000", "2001"] * 8)
    np.testing.assert_array_equal(years.time[:3], [1999.0, 2000.0, 2001.0])


def test_periods_are_their_first_moments():
    months = pd.period_range("2026-01", periods=3, freq="M")
    for given in (months, list(months), pd.Series(months)):
        seen = gx.Observations(PLACES[:3], VALUES[:3], time=given)
        assert (seen.time_unit, seen.time_origin) == ("day", "2026-01-01")
        assert seen.time.tolist() == [0.0, 31.0, 59.0]


def test_a_missing_date_is_named():
    dates = pd.date_range("2026-01-01", periods=3).to_numpy().copy()
    dates[1] = np.datetime64("NaT", "ns")
    with pytest.raises(gx.InvalidInput, match="There is none in row 2"):
        gx.Observations(PLACES[:3], VALUES[:3], time=dates)


def test_dates_of_new_locations_are_those_of_the_observations(tmp_path):
    dates = pd.date_range("2026-03-01", periods=6, freq="6h")
    corners = np.repeat([[0.0, 0.0], [1.0, 1.0], [2.0, 0.0], [0.5, 2.0]], 6, axis=0)
    frame = pd.DataFrame(corners, columns=["x", "y"])
    frame["when"], frame["z"] = np.tile(dates, 4), np.sin(np.arange(24.0))
    seen = gx.Observations.from_frame(frame, values="z", time="when")
    model = gx.Separable(1.0, 1.0, 12.0, 0.5, 0.5, 0.1)
    fit = gx.fit(seen, model, fixed=tuple(model.parameters()))
    by_date = gx.predict(fit, [[0.2, 0.3]], time="2026-03-02T12:00")
    by_number = gx.predict(fit, [[0.2, 0.3]], time=np.timedelta64(36, "h"))
    np.testing.assert_array_equal(by_date.mean, by_number.mean)
    of_table = gx.predict(fit, frame.drop(columns="z"))
    np.testing.assert_array_equal(of_table.mean, gx.predict(fit, seen).mean)
    fit.save(tmp_path / "fit.json")
    again = gx.Fit.load(tmp_path / "fit.json")
    found = gx.predict(again, [[0.2, 0.3]], time="2026-03-02T12:00").mean
    np.testing.assert_array_equal(found, by_date.mean)
    numbers = gx.Observations(frame[["x", "y"]], frame.z, time=np.tile(np.arange(6.0), 4))
    plain = gx.fit(numbers, model, fixed=tuple(model.parameters()))
    with pytest.raises(gx.InvalidInput, match=r"`time` must be a number.*Got a date"):
        gx.predict(plain, [[0.2, 0.3]], time="2026-03-02")


def test_counts_are_of_observations_locations_and_times():
    places = np.repeat([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]], 4, axis=0)
    values, when = np.arange(12.0), np.tile([0.0, 1.0, 2.0, 4.0], 3)
    seen = gx.Observations(places, values, time=when)
    assert seen.count_in_words == "12 observations at 3 locations and 4 times"
    assert "3 locations and 4 times (x, y, time)" in repr(seen)
    once = seen.subset(when == 1.0)
    assert once.count_in_words == "3 observations at 3 locations and 1 time"
    moving = gx.Observations(np.arange(12.0), values, time=np.arange(12.0))
    assert moving.count_in_words == "12 observations at 12 locations and 12 times"
    twice = gx.Observations(np.tile(places, (2, 1)), np.tile(values, 2), time=np.tile(when, 2))
    assert twice.count_in_words == "24 observations at 3 locations and 4 times"
    # longitudes of one meridian are one location
    around = gx.Observations(
        [[180, 0], [-180, 0], [0, 0]], values[:3], None, "chordal", time=when[:3]
    )
    assert around.count_in_words == "3 observations at 2 locations and 3 times"
    assert gx.Observations(places[::4], values[:3]).count_in_words == "3 locations"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("01/03/2026", r"dates must not begin with a numeric day or month. Got '01/03/2026'"),
        ("13-03-2026 05:00", r"numeric day or month.*write dates as 2026-03-01"),
        ("05:00", r"dates must have a year\. Got '05:00'"),
        ("today", r"dates must have a year\. Got 'today'"),
        ("1 March", r"dates must have a year\. Got '1 March'"),
    ],
)
def test_dates_that_may_be_read_otherwise_are_refused(text, message):
    with pytest.raises(gx.InvalidInput, match=message):
        gx.Observations(PLACES[:3], VALUES[:3], time=[text] * 3)
    with pytest.raises(gx.InvalidInput):
        gx.Observations(PLACES[:3], VALUES[:3], time=["2026-03-02", text, "2026-03-04"])


@pytest.mark.parametrize("kind", [np.array, list, pd.Series])
@pytest.mark.parametrize("dates", [("1680-01-01", "1980-01-01"), ("1500-01-01", "2300-01-01")])
def test_dates_may_be_centuries_apart(dates, kind):
    days = np.array([*dates, dates[0]], "datetime64[D]")
    expected = (days - days[0]) / np.timedelta64(1, "D")
    words = [str(day) for day in days]
    for given in (days.astype("datetime64[s]"), words, days.astype("datetime64[us]").tolist()):
        seen = gx.Observations(PLACES[:3], VALUES[:3], time=kind(given))
        assert (seen.time_unit, seen.time_origin) == ("day", dates[0])
        np.testing.assert_array_equal(seen.time, expected)


def test_an_origin_must_be_a_date():
    with pytest.raises(gx.InvalidInput, match=r"`time_origin` must be a date.*Got 'yesterday'"):
        gx.Observations(PLACES[:3], VALUES[:3], time=[0, 1, 2], time_origin="yesterday")


def in_time(**about):
    """A fit of observations in time."""
    seen = gx.Observations(PLACES, VALUES, time=TIME, **about)
    model = gx.Separable(1.0, 1.0, 2.0, 0.5, 0.5, 0.1)
    return gx.fit(seen, model, fixed=tuple(model.parameters()))


@pytest.mark.parametrize(
    "duration", [np.timedelta64(2, "h"), pd.Timedelta(hours=2), timedelta(hours=2)]
)
def test_durations_are_in_the_unit_of_the_times(duration):
    fit = in_time(time_unit="hour")
    expected = gx.predict(fit, PLACES[:2], time=2.0).mean
    np.testing.assert_array_equal(gx.predict(fit, PLACES[:2], time=duration).mean, expected)
    both = [duration, duration]
    np.testing.assert_array_equal(gx.predict(fit, PLACES[:2], time=both).mean, expected)
    seen = gx.Observations(PLACES[:3], VALUES[:3], time=[duration] * 3, time_unit="hour")
    assert seen.time.tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(gx.InvalidInput, match="durations need times with a unit"):
        gx.predict(in_time(), PLACES[:2], time=duration)


@pytest.mark.parametrize("missing", [np.datetime64("NaT", "ns"), pd.NaT])
def test_a_missing_date_of_new_locations_is_refused(missing):
    fit = in_time(time_unit="hour", time_origin="2026-03-01")
    with pytest.raises(gx.InvalidInput, match="`time` must have a date in every row"):
        gx.predict(fit, PLACES[:2], time=missing)


def test_a_trend_in_time_is_that_of_the_time_asked_for():
    frame = pd.DataFrame({"x": PLACES[:, 0], "y": PLACES[:, 1], "hour": TIME, "z": VALUES})
    about = {"values": "z", "time": "hour", "covariates": ("hour",)}
    model = gx.Separable(1.0, 1.0, 2.0, 0.5, 0.5, 0.1)
    data = gx.Observations.from_frame(frame, **about)
    fit = gx.fit(data, model, fixed=tuple(model.parameters()), trend="hour")
    new = frame[["x", "y", "hour"]].iloc[:4]
    later = gx.predict(fit, new.assign(hour=99.0))
    asked = gx.predict(fit, new, time=99.0)
    np.testing.assert_array_equal(asked.mean, later.mean)
    assert asked.to_frame()["hour"].tolist() == [99.0] * 4
    # dates are numbers in the trend too
    dates = np.datetime64("2026-03-01") + (TIME * 3600).astype("timedelta64[s]")
    data = gx.Observations.from_frame(frame.assign(hour=dates), **about)
    fit = gx.fit(data, model, fixed=tuple(model.parameters()), trend="hour")
    of_dates = gx.predict(fit, new.assign(hour=dates[:4]), time="2026-03-01T02:00")
    expected = gx.predict(fit, new.assign(hour=np.datetime64("2026-03-01T02:00")))
    np.testing.assert_array_equal(of_dates.mean, expected.mean)


def test_units_of_times_may_be_plural():
    seen = gx.Observations(PLACES, VALUES, time=TIME, time_unit="hours")
    assert seen.time_unit == "hour"
    assert "times in hours" in str(seen)
    assert "hourss" not in str(seen)


def test_a_trend_of_the_time_needs_it_as_a_covariate():
    seen = gx.Observations(PLACES, VALUES, time=TIME, time_name="hour")
    for trend in ("time", "hour"):
        with pytest.raises(
            gx.InvalidInput, match=r"give the time as a covariate too.*--covariates hour"
        ):
            gx.fit(seen, family="separable", trend=trend)
