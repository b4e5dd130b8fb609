"""xarray grids to columns of numbers and back: where x and y are, by names and CF attributes."""

import numpy as np

from ..data import crs as systems
from ..errors import InvalidInput
from .frames import Table, is_kind
from .places import NAMES_OF_LATITUDE, NAMES_OF_LONGITUDE

NAMES = {
    "longitude": NAMES_OF_LONGITUDE,
    "latitude": NAMES_OF_LATITUDE,
    "x": ("x", "easting", "eastings"),
    "y": ("y", "northing", "northings"),
}
"""What horizontal coordinates are called, in lower case."""

STANDARD_NAMES = {
    "longitude": "longitude",
    "latitude": "latitude",
    "projection_x_coordinate": "x",
    "projection_y_coordinate": "y",
}
DIRECTIONS = {"e": "longitude", "east": "longitude", "n": "latitude", "north": "latitude"}
"""What the CF conventions call them, and the ends of their units: degrees_east, degreeN."""

UNITS = {"m": "metre", "meter": "metre", "km": "kilometre", "kilometer": "kilometre"}
"""Units of length under the names that coordinate reference systems give them."""


def variable_names(data):
    """Return the variables of a DataArray or Dataset that are no coordinates and no CRS."""
    dataset = _dataset(data)
    return [str(name) for name in dataset.data_vars if not _is_mapping(dataset[name])]


def from_grid(data, names=(), locations=()):
    """Return the table of a grid; see `geomxp.data.frames.tabulate`."""
    dataset = _dataset(data)
    chosen = tuple(locations) or _horizontal(dataset)
    for name in (*chosen, *names):
        if name not in dataset.variables:
            have = ", ".join(map(str, dataset.variables))
            raise InvalidInput(f"no variable {name!r}. The variables are: {have}.")
    dims = _dims(dataset, chosen, names)
    dataset = _without_single_dims(dataset, dims, names)
    columns = {}
    for name, variable in dataset.variables.items():
        wanted = name in (*chosen, *names)
        if wanted or (variable.dims and set(variable.dims) <= set(dims)):
            columns[name] = np.asarray(variable.set_dims(dims).values).ravel()
    import pandas as pd

    order = [*chosen, *(name for name in columns if name not in chosen)]
    crs, unit, metric = _system(dataset, chosen)
    return Table(pd.DataFrame(columns)[order], dataset, chosen, crs, unit, metric, dims)


def on_grid(table, results):
    """Return results as variables on the grid that the places came in, NaN where there are none.

    Parameters
    ----------
    table : Table
        What `geomxp.data.frames.targets` returned.
    results : dict of str to (m,) ndarray
        One number for each place.

    Returns
    -------
    xarray.Dataset

    Raises
    ------
    InvalidInput
        If the places came in no grid.
    """
    if table is None or table.dims is None:
        raise InvalidInput(
            "these places came in no grid: predict at a DataArray or Dataset, or use to_frame()."
        )
    import xarray

    grid = table.given.set_coords([*table.locations, *filter(None, [_mapping(table.given)])])
    coordinates = {
        name: coordinate.drop_encoding()
        for name, coordinate in grid.coords.items()
        if set(coordinate.dims) <= set(table.dims)
    }
    taken = [name for name in results if name in coordinates]
    if taken:
        raise InvalidInput(f"coordinate {taken[0]!r} has the name of a result: rename it.")
    shape = tuple(table.dims.values())
    rows = np.ones(shape, dtype=bool).ravel() if table.rows is None else table.rows
    variables = {}
    for name, column in results.items():
        cells = np.full(rows.shape, np.nan)
        cells[rows] = column
        variables[name] = (tuple(table.dims), cells.reshape(shape), _attributes(table.given))
    return xarray.Dataset(variables, coords=coordinates)


def _attributes(dataset):
    """Return what ties a variable to the grid's coordinate reference system."""
    mapping = _mapping(dataset)
    return {} if mapping is None else {"grid_mapping": mapping}


def _dataset(data):
    if not is_kind(data, "xarray", "DataArray"):
        return data
    name = str(data.name) if data.name is not None else "value"
    return data.rename(None).to_dataset(name="value" if name in data.coords else name)


def _horizontal(dataset):
    """Return the names of x and y, or of longitude and latitude."""
    found = {}
    # a dimension's own coordinate stands before the others, and coordinates before variables
    for name in sorted(
        dataset.variables, key=lambda name: (name not in dataset.dims, name not in dataset.coords)
    ):
        role = _role(name, dataset[name])
        if role:
            found.setdefault(role, name)
    plane, sphere = (
        (found.get("x"), found.get("y")),
        (found.get("longitude"), found.get("latitude")),
    )
    if None in sphere or all(name in dataset.dims for name in plane):
        sphere, plane = plane, sphere
    if None in sphere:
        have = ", ".join(map(str, dataset.variables)) or "none"
        raise InvalidInput(
            "the grid must have coordinates called x and y, or lon and lat (or standard_name and "
            f"units of the CF conventions). Got: {have}; name them with `locations`."
        )
    return tuple(sphere)


def _role(name, variable):
    """Return what a variable is as a horizontal coordinate, or None."""
    if variable.attrs.get("standard_name") is not None:
        return STANDARD_NAMES.get(variable.attrs["standard_name"])
    unit = str(variable.attrs.get("units", "")).lower()
    for start in ("degrees_", "degree_", "degrees", "degree"):
        if unit.startswith(start) and unit.removeprefix(start) in DIRECTIONS:
            return DIRECTIONS[unit.removeprefix(start)]
    return next((role for role, names in NAMES.items() if str(name).lower() in names), None)


def _dims(dataset, chosen, names):
    """Return the dimensions of the places, in the order of the first variable that has them."""
    needed = dict.fromkeys(dim for name in reversed(chosen) for dim in dataset[name].dims)
    for name in (*names, *dataset.data_vars):
        if set(needed) <= set(dataset[name].dims):
            needed = [dim for dim in dataset[name].dims if dim in needed]
            break
    return {dim: dataset.sizes[dim] for dim in needed}


def _without_single_dims(dataset, dims, names):
    """Return the grid at the only time, depth, … of each variable that is wanted."""
    for name in names:
        for dim, size in dataset[name].sizes.items():
            if dim not in dims and size != 1:
                raise InvalidInput(
                    f"{name!r} has a dimension {dim!r} of {size} besides {', '.join(dims)}: "
                    f"select one, data.isel({dim}=0)."
                )
    single = [dim for dim, size in dataset.sizes.items() if dim not in dims and size == 1]
    return dataset.squeeze(single)


def _system(dataset, chosen):
    """Return the CRS of the chosen coordinates, their unit of length and the metric."""
    roles = [_role(name, dataset[name]) for name in chosen[:2]]
    mapping = _mapping(dataset)
    system = None if mapping is None else _described(dataset[mapping].attrs)
    if roles == ["longitude", "latitude"]:
        geographic = system is not None and system.geographic
        return system.name if geographic else systems.LONGITUDE_LATITUDE, "", "chordal"
    if roles != ["x", "y"]:
        return None, "", None
    if system is not None and system.geographic:
        return system.name, "", "chordal"
    unit = str(dataset[chosen[0]].attrs.get("units", "")).lower()
    unit = UNITS.get(unit, UNITS.get(unit.rstrip("s").replace("metre", "meter"), unit))
    if system is None or unit not in ("", system.unit.lower()):
        # coordinates in another unit than their system's: it cannot be used to reproject them
        return None, unit, "euclidean" if system is not None else None
    return system.name, system.unit, "euclidean"


def _mapping(dataset):
    """Return the name of the variable that describes the coordinate reference system, or None."""
    for variable in dataset.variables.values():
        name = variable.attrs.get("grid_mapping", variable.encoding.get("grid_mapping"))
        if name in dataset.variables:
            return name
    return next((name for name in dataset.variables if _is_mapping(dataset[name])), None)


def _is_mapping(variable):
    words = ("grid_mapping_name", "crs_wkt", "spatial_ref")
    return not variable.dims and any(word in variable.attrs for word in words)


def _described(attributes):
    """Return the system that CF attributes describe."""
    pyproj = systems.library("pyproj")
    try:
        return systems.describe(pyproj.CRS.from_cf(dict(attributes)))
    except (pyproj.exceptions.CRSError, KeyError, ValueError) as error:
        raise InvalidInput(
            f"the grid's coordinate reference system cannot be read ({str(error)[:80]})."
        ) from None
