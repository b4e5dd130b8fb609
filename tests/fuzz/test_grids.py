"""Grids as CF has them: coordinates in two dimensions, mappings, calendars, ragged arrays.

Attributes are right, wrong, or of the wrong type. A grid in memory and the same grid in a file
must be refused by an error of geomxp, or give finite observations and predictions.
"""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from fuzzing import attempt, check_numbers, target
from hypothesis import strategies as st

import geomxp as gx

xarray = pytest.importorskip("xarray")
pytest.importorskip("netCDF4")
pytest.importorskip("cftime")
pytest.importorskip("pyproj")

UNITS = (
    *("days since 2000-02-27", "hours since 1999-12-31 18:00", "seconds since 1970-01-01T00:00Z"),
    *("days since 0001-01-01", "months since 2000-01-01", "days since 2000-13-45", "hours", "days"),
    *("day as %Y%m%d.%f", "since", " since ", "days since", "K", "", 3, None),
)
CALENDARS = (
    *("standard", "gregorian", "proleptic_gregorian", "noleap", "365_day", "all_leap", "360_day"),
    *("julian", "none", "utc", "", "x", 1, None),
)
ANGLES = st.one_of(
    st.floats(-400, 400),
    st.sampled_from((0.0, 90.0, -90.0, 1e30, float("nan"), "45", "x", np.array([30.0, 60.0]))),
)
MAPPINGS = (
    *("rotated_latitude_longitude", "lambert_conformal_conic", "lambert_azimuthal_equal_area"),
    *("polar_stereographic", "transverse_mercator", "mercator", "albers_conical_equal_area"),
    *("latitude_longitude", "geostationary", "sinusoidal", "stereographic", "orthographic"),
    *("vertical_perspective", "azimuthal_equidistant", "oblique_mercator", "nothing", "", 1),
)
PARAMETERS = (
    *("grid_north_pole_latitude", "grid_north_pole_longitude", "north_pole_grid_longitude"),
    *("standard_parallel", "longitude_of_central_meridian", "longitude_of_projection_origin"),
    *("latitude_of_projection_origin", "straight_vertical_longitude_from_pole", "false_easting"),
    *("scale_factor_at_central_meridian", "perspective_point_height", "sweep_angle_axis"),
    *("semi_major_axis", "inverse_flattening", "crs_wkt", "azimuth_of_central_line"),
)
NUMBERS = st.sampled_from((-9999.0, 9.969209968386869e36, 1e300, float("nan"), float("inf"), 0.0))
LIMITS = st.one_of(
    st.floats(-100, 100), st.sampled_from(("x", float("nan"), np.array([-5.0, 5.0])))
)
SAMPLES = ("", "station", "o", "nothing", 3)


@dataclass(frozen=True)
class Grid:
    """Recipe of a grid; it prints as the call that makes it."""

    places: str
    steps: int
    units: object
    calendar: object
    mapping: dict | None
    limits: dict
    holes: tuple
    degrees: bool
    sample: str
    seed: int
    decoded: bool = False
    names: tuple = field(default=("y", "x"))

    def make(self):
        random = np.random.default_rng(self.seed)
        rows, columns = (1, 6) if self.places in ("stations", "ragged") else (4, 5)
        y, x = np.linspace(40, 44, rows), np.linspace(-5, 3, columns) + 100.0 * (self.seed % 4)
        kinds = ("latitude", "longitude") if self.degrees else ("projection_y_coordinate", "x")
        about = [
            {"standard_name": kind, "units": f"degrees_{way}" if self.degrees else "m"}
            for kind, way in zip(kinds, ("north", "east"), strict=True)
        ]
        shape, dims, names = (rows, columns), ("j", "i"), self.names
        if self.places == "axes":
            dims = names
            coordinates = {names[0]: (names[0], y, about[0]), names[1]: (names[1], x, about[1])}
        elif self.places == "two":
            both = np.meshgrid(y, x, indexing="ij")
            coordinates = {
                n: (dims, one + 0.1 * random.random(shape), a)
                for n, one, a in zip(names, both, about, strict=True)
            }
        else:
            shape, dims = (columns,), ("station",)
            coordinates = {
                names[0]: (dims, random.uniform(40, 44, columns), about[0]),
                names[1]: (dims, x, about[1]),
            }
        times, time = {}, np.sort(random.uniform(0, 9, self.steps))
        known = {"units": self.units, "calendar": self.calendar}
        known = {key: value for key, value in known.items() if value is not None}
        if self.places == "ragged":
            owner = np.sort(random.integers(0, columns, 3 * columns))
            shape, dims = (len(owner),), ("o",)
            times = {"time": ("o", random.uniform(0, 9, len(owner)), known)}
        elif self.steps:
            shape, dims = (self.steps, *shape), ("time", *dims)
            times = {"time": ("time", time, known)}
        values = random.normal(size=shape)
        for hole, number in zip(self.holes, (0, 3, 5), strict=False):
            values.ravel()[number] = hole
        attributes = dict(self.limits)
        if self.mapping is not None:
            attributes["grid_mapping"] = "crs"
        data = {"z": (dims, values, attributes)}
        if self.mapping is not None:
            data["crs"] = ((), np.int32(0), self.mapping)
        if self.places == "ragged":
            index = {"instance_dimension": self.sample} if self.seed % 2 else {}
            sizes = np.bincount(owner, minlength=columns).astype("i4")
            if index:
                data["owner"] = ("o", owner.astype("i4"), index)
            else:
                data["count"] = ("station", sizes, {"sample_dimension": self.sample})
        grid = xarray.Dataset(data, coordinates | times)
        return xarray.decode_cf(grid) if self.decoded else grid


@st.composite
def grids(draw):
    """Draw the recipe of a grid."""
    mapping = None
    if draw(st.booleans()):
        chosen = draw(st.lists(st.sampled_from(PARAMETERS), max_size=5, unique=True))
        mapping = {"grid_mapping_name": draw(st.sampled_from(MAPPINGS))}
        mapping |= {name: draw(ANGLES) for name in chosen}
    limits = st.sampled_from(("valid_min", "valid_max", "valid_range", "missing_value", "units"))
    return Grid(
        draw(st.sampled_from(("axes", "axes", "two", "two", "stations", "ragged"))),
        draw(st.sampled_from((0, 0, 1, 3))),
        draw(st.sampled_from(UNITS)),
        draw(st.sampled_from(CALENDARS)),
        mapping,
        {name: draw(LIMITS) for name in draw(st.lists(limits, max_size=2, unique=True))},
        tuple(draw(st.lists(NUMBERS, max_size=3))),
        draw(st.booleans()),
        draw(st.sampled_from(SAMPLES)),
        draw(st.integers(0, 99)),
        names=draw(st.sampled_from((("y", "x"), ("lat", "lon"), ("rlat", "rlon"), ("a", "b")))),
    )


ASKED = (None, 2.0, "2000-02-28", "2000-02-30", 20000228, np.datetime64("2000-02-28"), "x", np.nan)


@pytest.mark.slow
@target(
    0.15,
    recipe=grids(),
    new=grids(),
    of_file=st.booleans(),
    drop=st.booleans(),
    time=st.sampled_from(ASKED),
)
def test_grids(recipe, new, of_file, drop, time):
    about = {"values": "z", "drop_missing": drop}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "grid.nc")
        if of_file:
            try:
                recipe.make().to_netcdf(path)
            except (ValueError, TypeError, RuntimeError, AttributeError):
                # xarray cannot write it
                return
            seen = attempt(gx.read_table, path, **about)
        else:
            seen = attempt(gx.Observations.from_frame, recipe.make(), **about)
    if seen is None:
        return
    assert np.isfinite(seen.values).all()
    assert np.isfinite(seen.locations).all()
    attempt(str, seen)
    attempt(lambda: seen.dates)
    timed = seen.time is not None
    scale = float(np.ptp(seen.locations)) or 1.0
    model = gx.Matern(1.0, scale, 0.5, 0.1)
    if timed:
        model = gx.Separable(1.0, scale, 1.0, 0.5, 0.5, 0.1)
    fixed = tuple(model.parameters())
    fit = attempt(gx.fit, seen, model, fixed=fixed, progress=False, raise_on_failure=False)
    if fit is None:
        return
    for places in (recipe.make(), new.make(), seen.locations[:2]):
        asked = {"time": time} if timed and time is not None else {}
        found = attempt(gx.predict, fit, places, **asked, progress=False)
        if found is not None:
            check_numbers(found.mean)
            check_numbers(found.variance)
            attempt(found.to_frame)
