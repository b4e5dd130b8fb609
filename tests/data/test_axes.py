"""Times and longitudes keep their reference from the file to the prediction."""

import re
import warnings
from datetime import timedelta

import numpy as np
import pandas as pd
import pytest

import geomxp as gx

xarray = pytest.importorskip("xarray")
cftime = pytest.importorskip("cftime")
geopandas = pytest.importorskip("geopandas")
pytest.importorskip("netCDF4")

CALENDARS = ("standard", "noleap", "360_day", "julian")
ZONES = ("", "UTC", "America/New_York", "Asia/Kolkata")
CENTRES = (-90.0, 5.0, 179.0, 181.5, 300.0)
FILES = ("csv", "parquet", "nc", "gpkg")
MODEL = gx.Separable(1.0, 500.0, 3.0, smoothness=0.5, time_smoothness=0.5, nugget=0.1)
STATIONS, STEPS = 7, 5
REASONS = r"calendar|time zone|date"


def fitted(observations, trend):
    return gx.fit(observations, MODEL, fixed=tuple(MODEL.parameters()), trend=trend, progress=False)


def around(longitudes, branch):
    """Longitudes in 0..360, or in -180..180."""
    return longitudes % 360 if branch == 360 else (longitudes + 180) % 360 - 180


class Case:
    """Stations of a random data set, and the right predictions from plain numbers."""

    def __init__(self, seed, calendar, zone):
        rng = np.random.default_rng(seed)
        self.calendar, self.zone, self.rng = calendar, zone, rng
        self.lon = rng.choice(CENTRES) + rng.uniform(-4, 4, STATIONS)
        self.lat = rng.uniform(-50, 50) + rng.uniform(-3, 3, STATIONS)
        self.branch = int(rng.choice([180, 360]))
        # hours since the origin, across the end of February of a leap year
        self.hours = np.sort(rng.choice(24 * 12, STEPS, replace=False)).astype(float)
        # far enough apart to be counted in days
        self.hours[[0, -1]] = 0.0, 24.0 * 12
        self.values = rng.normal(size=(STEPS, STATIONS))
        self.origin = cftime.datetime(2024, 2, 25, calendar=calendar)
        self.new_lon = self.lon[:3] + rng.uniform(-0.5, 0.5, 3)
        self.new_lat = self.lat[:3] + rng.uniform(-0.5, 0.5, 3)
        self.new_hours = rng.choice(24 * 12, 3).astype(float)
        self.trend = str(rng.choice(["constant", "linear"]))

    def right(self):
        """The predictions of a fit of numbers in one branch of longitude."""
        places = np.column_stack((np.tile(self.lon, STEPS), np.tile(self.lat, STEPS)))
        days = np.repeat(self.hours, STATIONS) / 24
        seen = gx.Observations(places, self.values.ravel(), metric="chordal", time=days)
        new = np.column_stack((self.new_lon, self.new_lat))
        model = fitted(seen, self.trend)
        return gx.predict(model, new, time=self.new_hours / 24, progress=False)

    def dates(self, hours):
        """Dates of the calendar as objects of cftime."""
        return np.array([self.origin + timedelta(hours=one) for one in hours])

    def stamps(self, hours):
        """Dates of the standard calendar for pandas, in the zone if there is one."""
        dates = pd.to_datetime([one.isoformat() for one in self.dates(hours)])
        # the origin is that of UTC
        return dates.tz_localize("UTC").tz_convert(self.zone) if self.zone else dates

    def write(self, path):
        """Write the stations; a file of rows has the dates as pandas writes them."""
        lon = around(self.lon, self.branch)
        if path.suffix == ".nc":
            when = xarray.Variable("time", self.dates(self.hours), {"standard_name": "time"})
            grid = xarray.Dataset(
                {"z": (("time", "station"), self.values)},
                {"lon": ("station", lon), "lat": ("station", self.lat), "time": when},
            )
            grid.to_netcdf(path)
            return
        frame = pd.DataFrame({"lon": np.tile(lon, STEPS), "lat": np.tile(self.lat, STEPS)})
        frame["time"] = np.repeat(self.stamps(self.hours), STATIONS)
        frame["z"] = self.values.ravel()
        if path.suffix == ".gpkg":
            points = geopandas.points_from_xy(frame.pop("lon"), frame.pop("lat"), crs=4326)
            geopandas.GeoDataFrame(frame, geometry=points).to_file(path)
        elif path.suffix == ".csv":
            frame.to_csv(path, index=False)
        else:
            frame.to_parquet(path)

    def spellings(self):
        """The new places and times in other words, as arguments of `gx.predict`."""
        lon = around(self.new_lon, 540 - self.branch)
        places = pd.DataFrame({"lon": lon, "lat": self.new_lat})
        dates = self.dates(self.new_hours)
        if not self.zone:
            # they have no time zone
            yield "objects of cftime", (places,), {"time": dates}
        grid = xarray.Dataset(
            coords={"lon": ("row", lon), "lat": ("row", self.new_lat), "time": ("row", dates)}
        )
        yield "a grid", (grid,), {}
        if self.calendar != "standard":
            yield "text", (places,), {"time": [one.isoformat() for one in dates]}
            return
        stamps = self.stamps(self.new_hours)
        yield "a column of the table", (places.assign(time=stamps),), {}
        yield "text", (places.to_numpy(),), {"time": [one.isoformat() for one in stamps]}
        if self.zone:
            other = stamps.tz_convert("Australia/Adelaide")
            yield "another zone", (places,), {"time": other}
            yield "offsets", (places,), {"time": [one.isoformat() for one in other]}
        else:
            digits = stamps.strftime("%Y%m%d%H%M%S").astype(np.int64)
            yield "digits", (places,), {"time": np.asarray(digits)}
            yield "text of digits", (places.assign(time=digits.astype(str)),), {}


@pytest.mark.slow
@pytest.mark.parametrize("ending", FILES)
@pytest.mark.parametrize("seed", range(8))
def test_places_and_times_may_be_spelled_otherwise(tmp_path, ending, seed):
    calendar = CALENDARS[seed % 4] if ending == "nc" else "standard"
    zone = ZONES[(seed + seed // 4) % 4] if calendar == "standard" else ""
    case = Case([seed, FILES.index(ending)], calendar, zone)
    case.write(tmp_path / f"stations.{ending}")
    right, answers = case.right(), 0
    with warnings.catch_warnings():
        # dates in UTC are asked of observations without a zone
        warnings.filterwarnings("ignore", "`time` has dates", gx.GeomxpWarning)
        seen = gx.read_table(tmp_path / f"stations.{ending}", values="z", time="time")
        fit = fitted(seen, case.trend)
        fit.save(tmp_path / "fit.json")
        for read in (fit, gx.Fit.load(tmp_path / "fit.json")):
            for name, places, about in case.spellings():
                try:
                    found = gx.predict(read, *places, **about, progress=False)
                except gx.GeomxpError as error:
                    refused = str(error)
                    assert re.search(REASONS, refused), refused
                    continue
                answers += 1
                for layer in ("mean", "variance"):
                    got, wanted = getattr(found, layer), getattr(right, layer)
                    np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9, err_msg=name)
    assert answers >= 4
