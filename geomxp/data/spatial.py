"""Coordinate reference systems, geopandas frames and xarray grids as plain columns, and back.

`tabulate` turns every kind of input into a `Table` of plain columns with one row per location and
remembers the kind; `beside` and `on_grid` return results in that kind.
"""

import importlib
import sys
import warnings
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

import numpy as np

from ..errors import GeomxpWarning, InvalidInput, one_line
from . import cf, times
from .cf import PLANE_ROLES, ROTATED_ROLES, SPHERE_ROLES

LONGITUDE_LATITUDE = "EPSG:4326"
"""The system in which longitude and latitude are stored."""


def library(name):
    """Import an optional library of the extra `geo`, or raise `InvalidInput`."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InvalidInput(
            f'{name} is needed and cannot be imported ({error}): pip install "geomxp[geo]".'
        ) from None


# Coordinate reference systems


@dataclass(frozen=True)
class System:
    """A coordinate reference system.

    `name` is authority and code, "EPSG:28992", or the definition in WKT; `geographic` is true for
    longitude and latitude; `unit` is that of the coordinates: "metre", "US survey foot", "degree".
    """

    name: str
    geographic: bool
    unit: str


def describe(crs):
    """Return the `System` of what `pyproj.CRS.from_user_input` takes, without its vertical part."""
    system = _horizontal(crs)
    if system.is_geocentric or system.is_vertical:
        kind = "geocentric" if system.is_geocentric else "vertical"
        raise InvalidInput(
            f"{system.name} is a {kind} coordinate reference system: reproject to longitude and "
            "latitude, or to a plane."
        )
    unit = system.axis_info[0].unit_name if system.axis_info else ""
    return System(_name(system.to_wkt()), system.is_geographic, unit)


@lru_cache(maxsize=64)
def _name(definition):
    """Return authority and code of a definition in WKT, or the definition; the search is slow."""
    system = library("pyproj").CRS.from_wkt(definition)
    # names that pyproj and PROJ give to systems by parameters; a sure match has the same name
    unnamed = system.name.startswith(("unknown", "undefined"))
    authority = None if unnamed else system.to_authority(min_confidence=100)
    return ":".join(authority) if authority else definition


def same(a, b):
    """Whether a location has the same coordinates in two systems, x or longitude first."""
    return a == b or _horizontal(a).equals(_horizontal(b), ignore_axis_order=True)


def reproject(coordinates, source, target):
    """Transform (n, 2) coordinates from one system to another; x or longitude first in both.

    A location that the target system cannot represent is an `InvalidInput`.
    """
    if same(source, target):
        return coordinates
    pyproj = library("pyproj")
    known = np.isfinite(coordinates).all(axis=1)
    result = np.full_like(coordinates, np.nan)
    try:
        transformer = pyproj.Transformer.from_crs(
            _horizontal(source), _horizontal(target), always_xy=True
        )
        result[known] = np.column_stack(transformer.transform(*coordinates[known].T))
    except pyproj.exceptions.ProjError as error:
        raise InvalidInput(
            f"coordinates in {title(source)} cannot be transformed to {title(target)} "
            f"({one_line(error, 80)})."
        ) from None
    lost = known & ~np.isfinite(result).all(axis=1)
    if lost.any():
        row = int(np.argmax(lost))
        x, y = coordinates[row]
        raise InvalidInput(
            f"row {row + 1}: ({x:g}, {y:g}) in {title(source)} has no coordinates in "
            f"{title(target)} ({int(lost.sum())} such rows): is the CRS right?"
        )
    return result


def title(crs):
    """Return a short name of a system for messages."""
    name = str(crs)
    return name if len(name) <= 30 else _horizontal(crs).name


def _horizontal(crs):
    """Return the horizontal part of a system as a pyproj.CRS."""
    pyproj = library("pyproj")
    try:
        system = pyproj.CRS.from_user_input(crs)
    except (pyproj.exceptions.CRSError, TypeError, ValueError) as error:
        raise InvalidInput(
            "`crs` must be a coordinate reference system, such as 'EPSG:28992'. "
            f"Got {str(crs)[:60]!r} ({one_line(error, 80)})."
        ) from None
    # to_2d of pyproj's own classes, such as ProjectedCRS, fails
    return system.sub_crs_list[0] if system.is_compound else pyproj.CRS(system).to_2d()


# Frames and grids as columns


COORDINATE_NAMES = {
    "longitude": ("lon", "long", "longitude", "lng", "decimallongitude", "dec_long_va"),
    "latitude": ("lat", "latitude", "decimallatitude", "dec_lat_va"),
    "x": ("x", "easting", "eastings"),
    "y": ("y", "northing", "northings"),
}
"""Names of horizontal coordinates by role, in lower case."""


def names_say_degrees(names):
    """Whether two columns are called longitude and latitude."""
    lower = [str(name).lower() for name in names]
    return (
        len(lower) == 2
        and lower[0] in COORDINATE_NAMES["longitude"]
        and lower[1] in COORDINATE_NAMES["latitude"]
    )


def latitude_first(names):
    """Whether two columns are called latitude and longitude, in this order."""
    return names_say_degrees(tuple(names)[::-1])


def northing_first(names):
    """Whether two columns are called y and x, or northing and easting, in this order."""
    lower = [str(name).lower() for name in names]
    return (
        len(lower) == 2 and lower[0] in COORDINATE_NAMES["y"] and lower[1] in COORDINATE_NAMES["x"]
    )


def location_pairs(names):
    """Return the pairs of columns that may be coordinates by their names, x or longitude first.

    A pair is x, y; easting, northing; or longitude, latitude, in any case.

    Examples
    --------
    >>> location_pairs(["Y", "lat", "X", "long", "northing"])
    [('X', 'Y'), ('long', 'lat')]
    """
    pairs = []
    for roles in (("x", "y"), ("longitude", "latitude")):
        named = [[n for n in names if str(n).lower() in COORDINATE_NAMES[role]] for role in roles]
        for first, second in product(*named):
            # x and northing do not belong together
            if "x" not in roles or (str(first).lower() == "x") == (str(second).lower() == "y"):
                pairs.append((first, second))
    return pairs


@dataclass(frozen=True, eq=False)
class Table:
    """Locations as plain columns, with the object that they came from.

    `columns` has one row per location and includes the coordinates, whose names are `locations`: x
    or longitude first; none if `source` does not define any. `unit` of length and `metric` are ""
    and None if they are unknown. A grid has `dims`, name to size in the order of the rows, and
    `rows`, (n,) truths: cells that have results (None: all). `time` is the name of its times, whose
    unit is `time_unit` if they are numbers; "" if it is unknown. `each` is the number of rows of
    `columns` for a location, as of several variables.
    """

    columns: object
    source: object
    locations: tuple[str, ...] = ()
    crs: str | None = None
    unit: str = ""
    metric: str | None = None
    dims: dict | None = None
    rows: np.ndarray | None = None
    time: str | None = None
    time_unit: str = ""
    each: int = 1

    def repeated(self, each):
        """Return the table with so many rows for each location, one after the other."""
        rows = np.repeat(np.arange(len(self.columns)), each)
        source = self.source if self.dims is not None else self.source.iloc[rows]
        return replace(self, columns=self.columns.iloc[rows], source=source, each=each)

    def some(self, rows):
        """Return the table of one row for each location, of repeated rows (n,) of truths."""
        source = self.source if self.dims is not None else self.source[rows]
        return replace(self, columns=self.columns[rows], source=source, each=1)

    def with_locations(self, names):
        """Return the table with other coordinate columns; their system is then unknown."""
        if names[:2] == self.locations[:2]:
            return replace(self, locations=names)
        return replace(self, locations=names, crs=None, unit="", metric=None)

    def with_system(self, system):
        """Return the table with the `System` of its coordinates."""
        if system.geographic:
            return replace(self, crs=system.name, unit="", metric="chordal")
        return replace(self, crs=system.name, unit=system.unit, metric="euclidean")

    def check_geometry(self, advice=""):
        """Raise `InvalidInput` for a missing or empty point."""
        if is_geographic_frame(self.source) and self.locations[0] in ("x", "lon"):
            shapes = self.source.geometry
            missing = (shapes.isna() | shapes.is_empty).to_numpy()
            if missing.any():
                raise InvalidInput(
                    f"row {int(np.argmax(missing)) + 1}: the geometry is missing or empty "
                    f"({int(missing.sum())} such rows){advice}."
                )

    def with_column(self, name, values):
        """Return the table, not of a grid, with other values in a column."""
        frames = (one.assign(**{name: values}) for one in (self.source, self.columns))
        source, columns = frames
        return replace(self, source=source, columns=columns)

    def at_time(self, name, times):
        """Return the table of a grid with another time, or one for each row, as a coordinate."""
        grid = self.source.drop_dims([dim for dim in self.source.sizes if dim not in self.dims])
        own = time_of(self.source, locations=self.locations)
        if own is not None and own not in self.dims:
            grid, name = grid.drop_vars(own, errors="ignore"), own
        if not np.ndim(times):
            grid = grid.assign_coords({name: ((), np.asarray(times))})
        elif self.rows is None:
            cells = np.reshape(times, tuple(self.dims.values()))
            grid = grid.assign_coords({name: (tuple(self.dims), cells)})
        return replace(self, source=grid, columns=self.columns.assign(**{name: times}))

    def beside(self, results):
        """Return result columns next to the given columns, with their kind and index.

        The cells of a grid are rows.
        """
        frame = self.columns if self.dims is not None else self.source
        check_free(frame, results.columns)
        return frame.assign(**{name: column.to_numpy() for name, column in results.items()})


def is_kind(data, library, *classes):
    """Whether an object is of a class of a library, without importing the library."""
    module = sys.modules.get(library)
    return module is not None and isinstance(data, tuple(getattr(module, c) for c in classes))


def is_grid(data):
    """Whether an object is an xarray DataArray or Dataset."""
    return is_kind(data, "xarray", "DataArray", "Dataset")


def is_geographic_frame(data):
    """Whether an object is a geopandas frame or series with a geometry."""
    if is_kind(data, "geopandas", "GeoSeries"):
        return True
    return is_kind(data, "geopandas", "GeoDataFrame") and data.active_geometry_name is not None


def is_frame(data):
    """Whether `tabulate` accepts an object."""
    return is_kind(data, "pandas", "DataFrame") or is_geographic_frame(data) or is_grid(data)


def tabulate(data, names=(), locations=(), time=None, crs=None, values=()):
    """Return locations as plain columns, a `Table`.

    The points of a geometry become the columns x, y or lon, lat (and z, if all points have one) and
    replace other columns of these names. The cells of a grid become rows, in the order of its
    dimensions: `names` are required variables, the others become columns if they have no further
    dimensions; `locations` are its coordinates, found by names and CF attributes if not given;
    dimensions of the variable `time` are dimensions of the cells, too. Each value of a ragged array
    is a row, or each value of the variables `values`. Longitude and latitude on a rotated pole
    become true ones. With `crs`, the system that the caller names, a grid mapping that cannot be
    read is no error.
    """
    if is_geographic_frame(data):
        return _from_geometry(data)
    if is_grid(data):
        return _from_grid(data, names, locations, time, crs, values)
    if is_kind(data, "pandas", "DataFrame"):
        return _from_columns(data)
    raise InvalidInput(
        "the data must be a pandas or geopandas frame, or an xarray DataArray or Dataset. "
        f"Got {type(data).__name__}."
    )


UNITS_OF_COLUMNS = "units of columns"
"""Key of `frame.attrs` for the units that a file states, {name of the column: unit}."""


def units_of(data):
    """Return the units that a file states, {name of the column: unit}, of a frame; {} of a grid."""
    return {} if is_grid(data) else data.attrs.get(UNITS_OF_COLUMNS, {})


def _from_columns(data):
    """Return the table of a pandas frame; units of columns may say longitude and latitude."""
    units = units_of(data)
    roles = [(direction(units[name]), name) for name in units if name in data.columns]
    roles = [(role, name) for role, name in roles if role]
    if sorted(role for role, _ in roles) != ["latitude", "longitude"]:
        return Table(data, data)
    names = dict(roles)
    locations = names["longitude"], names["latitude"]
    return Table(data, data, locations, LONGITUDE_LATITUDE, metric="chordal")


def _as_geo_frame(data):
    return data.to_frame("geometry") if is_kind(data, "geopandas", "GeoSeries") else data


def _from_geometry(data):
    """Return the table of a geopandas frame of points."""
    import pandas as pd
    import shapely

    frame = _as_geo_frame(data)
    points = np.array(frame.geometry.array, dtype=object)
    _check_points(points)
    # shapely.get_x refuses empty points
    points[shapely.is_empty(points)] = None
    system = None if frame.crs is None else describe(frame.crs)
    names = ("lon", "lat") if system is not None and system.geographic else ("x", "y")
    columns = dict(zip(names, (shapely.get_x(points), shapely.get_y(points)), strict=True))
    others = frame.drop(columns=[frame.active_geometry_name, *names], errors="ignore")
    heights = shapely.get_z(points)
    if "z" not in others.columns and len(points) and np.isfinite(heights).all():
        columns["z"] = heights
    plain = [pd.DataFrame(columns, index=frame.index), pd.DataFrame(others)]
    table = Table(pd.concat(plain, axis=1), frame, names)
    return table if system is None else table.with_system(system)


def of_polygons(data):
    """Return the table of a geopandas frame whose geometries are blocks."""
    frame = _as_geo_frame(data)
    return Table(frame.drop(columns=frame.active_geometry_name), frame)


def _check_points(shapes):
    """Raise `InvalidInput` for a geometry that is not a point; missing and empty ones pass."""
    import shapely

    kinds = shapely.get_type_id(shapes)
    other = ~(shapely.is_empty(shapes) | shapely.is_missing(shapes) | (kinds == 0))
    if other.any():
        row = int(np.argmax(other))
        raise InvalidInput(
            f"geometries must be points. Got a {shapes[row].geom_type} in row {row + 1} "
            f"({int(other.sum())} such rows): use frame.centroid, or frame.explode() for "
            "multi-points; averages over polygons are predicted with block= (--block polygons)."
        )


def check_free(used, names, kind="column"):
    """Raise `InvalidInput` if one of `names` is in `used`: a frame, or a collection of names."""
    taken = [name for name in names if name in used]
    if taken:
        raise InvalidInput(f"{kind} {taken[0]!r} has the name of a result: rename it.")


# Grids: coordinates are found by their names and by CF attributes


STANDARD_NAME_ROLES = {
    "longitude": "longitude",
    "latitude": "latitude",
    "projection_x_coordinate": "x",
    "projection_y_coordinate": "y",
    "projection_x_angular_coordinate": "x",
    "projection_y_angular_coordinate": "y",
    "grid_longitude": "grid_longitude",
    "grid_latitude": "grid_latitude",
}
DIRECTION_ROLES = {"e": "longitude", "east": "longitude", "n": "latitude", "north": "latitude"}
"""Roles by CF standard name, and by the end of CF units: degrees_east, degreeN."""

CALENDAR_DEFAULTS = {"units": "", "calendar": "standard"}
"""CF attributes of times, with the values that hold without them."""

CRS_UNITS = {"m": "metre", "meter": "metre", "km": "kilometre", "kilometer": "kilometre"}
CRS_UNITS |= {"ft": "foot", "feet": "foot", "rad": "radian", "radian": "radian"}
CRS_UNITS |= dict.fromkeys(("us_survey_foot", "us survey foot"), "US survey foot")
"""Units of projected coordinates in the spelling of coordinate reference systems."""

ROTATED_NAME_ROLES = {"rlon": ROTATED_ROLES[0], "rlat": ROTATED_ROLES[1]} | dict(
    zip(ROTATED_ROLES, ROTATED_ROLES, strict=True)
)
"""Roles of longitude and latitude on a rotated pole by name, in lower case."""


def variable_names(data):
    """Return the variables of a DataArray or Dataset that are not coordinates or a CRS."""
    dataset = _dataset(data)
    links = {name for _, name in cf.ragged(dataset).values()}
    return [
        str(name)
        for name in dataset.data_vars
        if not cf.is_mapping(dataset[name]) and name not in links
    ]


def time_of(data, values=None, locations=()):
    """Return the name of the variable of a grid that holds times, or None.

    It is recognized by its name, "time", by CF attributes, or by dates. For the times of a variable
    `values`, this must have a dimension of several times that the locations do not have.
    """
    dataset = _dataset(data)
    chosen = tuple(locations) or _horizontal_names(dataset)
    known = {dim for name in chosen if name in dataset.variables for dim in dataset[name].dims}
    if values is not None:
        if values not in dataset.variables:
            return None
        known |= {dim for dim, size in dataset.sizes.items() if size == 1}
    for name in _names_in_order(dataset):
        dims = set(dataset[name].dims)
        if name in (*chosen, values) or not _is_time(name, dataset[name]):
            continue
        if values is None or (dims - known and dims <= cf.dims_of(dataset, values)):
            return name
    return None


def _is_time(name, variable):
    """Whether a variable of a grid holds times."""
    standard = variable.attrs.get("standard_name")
    if standard is not None:
        return standard == "time"
    if variable.attrs.get("axis") == "T" or variable.dtype.kind == "M":
        return True
    return times.is_since(variable.attrs.get("units")) or str(name).lower() == "time"


def _from_grid(data, names=(), locations=(), time=None, crs=None, values=()):
    """Return the table of a grid."""
    import pandas as pd

    dataset = cf.without_missing(_dataset(data))
    chosen = tuple(locations) or _horizontal_names(dataset)
    names = (*names, *filter(None, [time]))
    pair = _pairs(dataset)[ROTATED_ROLES]
    if None not in pair and not {*chosen} <= {*dataset.variables}:
        # an earlier reading found them
        dataset, _ = _unrotated(dataset, pair, names)
    for name in (*chosen, *names):
        if name not in dataset.variables:
            have = ", ".join(map(str, dataset.variables))
            raise InvalidInput(f"no variable {name!r}. The variables are: {have}.")
    dataset = cf.with_a_row_for_each_value(dataset, values and (*chosen, *values))
    if _roles(dataset, chosen) == ROTATED_ROLES:
        dataset, chosen = _unrotated(dataset, chosen, names)
    dims = _dims(dataset, (*chosen, *filter(None, [time])), names)
    dataset = _without_single_dims(dataset, dims, names)
    columns, unit = {}, ""
    for name, variable in dataset.variables.items():
        wanted = name in (*chosen, *names)
        if wanted or (variable.dims and set(variable.dims) <= set(dims)):
            if name == time:
                calendar = (
                    variable.attrs.get(word, usual) for word, usual in CALENDAR_DEFAULTS.items()
                )
                values, unit = times.from_file(variable.values, *calendar)
                variable = variable.copy(data=values)
            columns[name] = np.asarray(variable.set_dims(dims).values).ravel()
    order = [*chosen, *(name for name in columns if name not in chosen)]
    frame = pd.DataFrame(columns)[order]
    table = Table(frame, dataset, chosen, dims=dims, time=time, time_unit=unit)
    return _with_system_of(dataset, table, names, crs)


def on_grid(table, results, along=None):
    """Return results, (m,) numbers by name, as variables on a `Table`'s grid, NaN elsewhere.

    `along` is the name of a dimension for the rows of one location, and its coordinate.
    """
    if table is None or table.dims is None:
        raise InvalidInput(
            "the new locations were not a grid: predict at a DataArray or Dataset, or use "
            "to_frame()."
        )
    import xarray

    if along is not None:
        name, labels = along
        check_free(table.source.variables, (name,), "coordinate")
        parts = [{n: x[k :: len(labels)] for n, x in results.items()} for k in range(len(labels))]
        layers = [
            on_grid(table, part).expand_dims({name: [labels[k]]}) for k, part in enumerate(parts)
        ]
        return xarray.concat(layers, dim=name, data_vars="all", join="exact")
    mapping = cf.mapping_text(table.source)
    others = *cf.mappings(table.source, mapping), *filter(None, [table.time])
    grid = table.source.set_coords([*table.locations, *others])
    coordinates = {
        name: coordinate.drop_encoding()
        for name, coordinate in grid.coords.items()
        if set(coordinate.dims) <= set(table.dims)
    }
    check_free(coordinates, results, "coordinate")
    shape = tuple(table.dims.values())
    rows = np.ones(shape, dtype=bool).ravel() if table.rows is None else table.rows
    attributes = {"grid_mapping": mapping} if mapping else {}
    variables = {}
    for name, column in results.items():
        cells = np.full(rows.shape, np.nan)
        cells[rows] = column
        variables[name] = (tuple(table.dims), cells.reshape(shape), attributes)
    return xarray.Dataset(variables, coords=coordinates)


def _dataset(data):
    if not is_kind(data, "xarray", "DataArray"):
        return data
    name = str(data.name) if data.name is not None else "value"
    return data.rename(None).to_dataset(name="value" if name in data.coords else name)


def _horizontal_names(dataset):
    """Return the names of x and y, or of longitude and latitude."""
    pairs = _pairs(dataset)
    plane = pairs[PLANE_ROLES]
    chosen = next((pair for pair in pairs.values() if None not in pair), plane)
    if all(name in dataset.dims for name in plane) and _says_plane(dataset, plane):
        chosen = plane
    if None in chosen:
        have = ", ".join(map(str, dataset.variables)) or "none"
        raise InvalidInput(
            "the grid must have coordinates called x and y, or lon and lat (or standard_name and "
            f"units of the CF conventions). Got: {have}; name them with `locations`."
        )
    return chosen


def _pairs(dataset):
    """Return the names of the coordinates of each pair of roles, None for one without."""
    roles = {}
    for name in _names_in_order(dataset):
        role = _role(name, dataset[name])
        if role:
            roles.setdefault(role, name)
    return {
        pair: tuple(map(roles.get, pair)) for pair in (SPHERE_ROLES, PLANE_ROLES, ROTATED_ROLES)
    }


def _says_plane(dataset, names):
    """Whether x and y are more than numbers of cells, beside longitude and latitude."""
    projected = [dataset[name].attrs.get("standard_name") in STANDARD_NAME_ROLES for name in names]
    measured = [_unit(dataset[name]) in (*cf.UNIT_METRES, "radian") for name in names]
    mappings = cf.mappings(dataset, cf.mapping_text(dataset))
    try:
        mapped = PLANE_ROLES in (_kind(dataset, name) for name in mappings)
    except InvalidInput:
        # the reading of coordinates says it
        mapped = True
    return mapped or all(projected) or all(measured)


def _names_in_order(dataset):
    """Return names: of coordinates of dimensions, then of other coordinates, then of variables."""
    return sorted(
        dataset.variables, key=lambda name: (name not in dataset.dims, name not in dataset.coords)
    )


def _role(name, variable):
    """Return the role of a horizontal coordinate, a key of `COORDINATE_NAMES`, or None."""
    if variable.attrs.get("standard_name") is not None:
        return STANDARD_NAME_ROLES.get(variable.attrs["standard_name"])
    role = direction(str(variable.attrs.get("units", "")))
    named = (role for role, names in COORDINATE_NAMES.items() if str(name).lower() in names)
    return role or next(named, ROTATED_NAME_ROLES.get(str(name).lower()))


def direction(unit):
    """Return "longitude" for the unit degrees_east, "latitude" for degrees_north, else None."""
    for start in ("degrees_", "degree_", "degrees", "degree"):
        if unit.lower().startswith(start) and unit.lower().removeprefix(start) in DIRECTION_ROLES:
            return DIRECTION_ROLES[unit.lower().removeprefix(start)]
    return None


def _roles(dataset, names):
    """Return the roles of the first two coordinates."""
    return tuple(_role(name, dataset[name]) for name in names[:2])


def _dims(dataset, chosen, names):
    """Return the dimensions of the locations, in the order of the first variable with all."""
    needed = dict.fromkeys(dim for name in reversed(chosen) for dim in dataset[name].dims)
    for name in (*names, *dataset.data_vars):
        if set(needed) <= set(dataset[name].dims):
            needed = [dim for dim in dataset[name].dims if dim in needed]
            break
    return {dim: dataset.sizes[dim] for dim in needed}


def _without_single_dims(dataset, dims, names):
    """Drop further dimensions of length 1, such as a single time; refuse longer ones."""
    for name in names:
        for dim, size in dataset[name].sizes.items():
            if dim not in dims and size != 1:
                raise InvalidInput(
                    f"{name!r} has a dimension {dim!r} of {size} besides {', '.join(dims)}: "
                    f"select one, data.isel({dim}=0), or name the variable of the times with "
                    "`time` (--time)."
                )
    single = [dim for dim, size in dataset.sizes.items() if dim not in dims and size == 1]
    return dataset.squeeze(single)


def _with_system_of(dataset, table, names, crs):
    """Return the table with the CRS of its coordinates, their unit of length and the metric."""
    roles = _roles(dataset, table.locations)
    if roles not in (SPHERE_ROLES, PLANE_ROLES):
        return table
    unit = _unit(dataset[table.locations[0]]) if roles == PLANE_ROLES else ""
    try:
        system = _mapped(dataset, table.locations, names, unit)
    except InvalidInput:
        if crs is None:
            raise
        system = None
    if system is None and roles == SPHERE_ROLES:
        return replace(table, crs=LONGITUDE_LATITUDE, metric="chordal")
    if system is None:
        _warn_of_lost_mapping(dataset, names if crs is None else ())
        return replace(table, unit=unit)
    if not system.geographic and unit.lower() not in ("", system.unit.lower()):
        warnings.warn(
            f"the coordinates are in {unit!r:.40} and their coordinate reference system in "
            f"{system.unit}, so that it is not used: give the coordinates in {system.unit}, or "
            "attributes `units` such as m, km or US_survey_foot.",
            GeomxpWarning,
            stacklevel=2,
        )
        return replace(table, unit=unit, metric="euclidean")
    return table.with_system(system)


def _warn_of_lost_mapping(dataset, names):
    """Warn if a variable names a grid mapping that the dataset does not have."""
    for name in names:
        text = dataset[name].attrs.get("grid_mapping", dataset[name].encoding.get("grid_mapping"))
        if text and not cf.mappings(dataset, text):
            warnings.warn(
                f"the grid mapping {text!r} of {name!r} is not in the data, and the coordinates "
                'have no coordinate reference system: read files with decode_coords="all", or name '
                'it with crs="EPSG:…" (--crs).',
                GeomxpWarning,
                stacklevel=2,
            )
            return


def _unit(variable):
    """Return the unit of a coordinate in the spelling of coordinate reference systems."""
    unit = str(variable.attrs.get("units", "")).lower()
    return CRS_UNITS.get(unit, CRS_UNITS.get(unit.rstrip("s").replace("metre", "meter"), unit))


def _mapped(dataset, locations, names, unit=""):
    """Return the `System` that a grid mapping of the variables `names` gives coordinates, or None.

    A mapping that lists no coordinates belongs to those of its kind: a projection to x, y, a
    rotated pole to its own longitude and latitude, another geographic system to true ones, also if
    these are called x and y.
    """
    roles = _roles(dataset, locations)
    for name, listed in cf.mappings(dataset, cf.mapping_text(dataset, names)).items():
        kind = _kind(dataset, name)
        if {*locations[:2]} <= {*listed} or (
            not listed and (kind == roles or (kind, roles) == (SPHERE_ROLES, PLANE_ROLES))
        ):
            return _described(name, dataset[name].attrs, unit)
    return None


def _kind(dataset, mapping):
    """Return the roles of the coordinates of a grid mapping."""
    attributes = dataset[mapping].attrs
    if "grid_mapping_name" in attributes:
        return cf.GRID_MAPPING_ROLES.get(attributes["grid_mapping_name"], PLANE_ROLES)
    return cf.kind_of(_horizontal(_described(mapping, attributes).name))


def with_mapping(data, crs):
    """Return a grid with the system `crs` in place of grid mappings that cannot be read."""
    dataset = _dataset(data)
    for name in cf.mappings(dataset, cf.mapping_text(dataset)):
        try:
            _described(name, dataset[name].attrs)
        except InvalidInput:
            dataset = dataset.assign({name: ((), np.int32(0), _horizontal(crs).to_cf())})
    return dataset


def _unrotated(dataset, names, variables):
    """Return the dataset with true longitude and latitude beside those of a rotated pole."""
    import xarray

    system = _mapped(dataset, names, variables)
    if system is None:
        raise InvalidInput(
            f"{names[0]}, {names[1]} are longitude and latitude on a rotated pole, and no grid "
            "mapping (rotated_latitude_longitude) says where the pole is: name true ones with "
            '`locations`, as in locations=("lon", "lat") (--locations lon,lat).'
        )
    pair = xarray.broadcast(*(dataset[name] for name in reversed(names[:2])))[::-1]
    rotated = np.column_stack([np.asarray(one.values, dtype=np.float64).ravel() for one in pair])
    true = reproject(rotated, system.name, LONGITUDE_LATITUDE)
    called = ("lon", "lat") if not {"lon", "lat"} & {*names, *dataset.dims} else SPHERE_ROLES
    words = ({"standard_name": role} for role in SPHERE_ROLES)
    columns = {
        name: (pair[0].dims, column.reshape(pair[0].shape), attrs)
        for name, column, attrs in zip(called, true.T, words, strict=True)
    }
    return dataset.assign_coords(columns), (*called, *names[2:])


def _described(name, attributes, unit=""):
    """Return the system that the attributes of a grid mapping describe."""
    pyproj = library("pyproj")
    try:
        return describe(cf.system_of(attributes, unit))
    except (pyproj.exceptions.CRSError, KeyError, ValueError, TypeError) as error:
        known = attributes.get("grid_mapping_name", "without a name")
        raise InvalidInput(
            f"the grid mapping {name!r} ({known}) cannot be read ({one_line(error, 80)}): name the "
            'system of the coordinates with crs="EPSG:…" (--crs), or take the mapping out, '
            f"data.drop_vars({name!r})."
        ) from None
