"""pandas and geopandas frames and xarray grids, to columns of numbers and back.

Whatever kind places come in, `tabulate` makes plain columns of them, one row for each place, and
remembers the kind; `beside` and `on_grid` put results back into it.
"""

import sys
import warnings
from dataclasses import dataclass, replace

import numpy as np

from ..data import crs as systems
from ..data import tables
from ..errors import GeomxpWarning, InvalidInput
from .places import names_say_degrees


@dataclass(frozen=True, eq=False)
class Table:
    """Places as plain columns, and the kind they came in.

    Parameters
    ----------
    columns : pandas.DataFrame
        One row for each place; coordinates are columns too.
    given : pandas.DataFrame, geopandas.GeoDataFrame or xarray.Dataset
        What they came as.
    locations : tuple of str
        The columns of the coordinates, x or longitude first; empty where the kind has none of its
        own.
    crs : str or None
    unit : str
        Of length, where it is known.
    metric : str or None
        That the coordinates call for, where it is known.
    dims : dict of str to int
        Of a grid: its dimensions, in the order of the rows.
    rows : (n,) ndarray of bool, optional
        The places that results are for; all of them if None.
    """

    columns: object
    given: object
    locations: tuple[str, ...] = ()
    crs: str | None = None
    unit: str = ""
    metric: str | None = None
    dims: dict | None = None
    rows: np.ndarray | None = None


def is_kind(data, library, *classes):
    """Whether an object is of a class of a library, which is not imported for it."""
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
    """Whether an object is one of the kinds that `tabulate` knows."""
    return is_kind(data, "pandas", "DataFrame") or is_geographic_frame(data) or is_grid(data)


def tabulate(data, names=(), locations=()):
    """Return places as plain columns.

    Parameters
    ----------
    data : pandas.DataFrame, geopandas.GeoDataFrame or GeoSeries, xarray.DataArray or Dataset
        The points of a geometry become columns x, y or lon, lat (and z, where all points have
        one); they stand before other columns of these names. The cells of a grid become rows, in
        the order of its dimensions.
    names : sequence of str
        Variables of a Dataset that must be there; the others are columns where they have the
        dimensions of the places.
    locations : sequence of str
        Coordinates of a grid; by names and CF attributes if not given.

    Returns
    -------
    Table

    Raises
    ------
    InvalidInput
        For geometries that are not points, grids without known coordinates or with further
        dimensions.
    """
    if is_geographic_frame(data):
        return _from_geometry(data)
    if is_grid(data):
        from .grids import from_grid

        return from_grid(data, names, locations)
    if is_kind(data, "pandas", "DataFrame"):
        return Table(data, data)
    raise InvalidInput(
        "a pandas or geopandas frame, or an xarray DataArray or Dataset is needed. "
        f"Got {type(data).__name__}."
    )


def _from_geometry(data):
    """Return the table of a geopandas frame of points."""
    import pandas as pd
    import shapely

    frame = data.to_frame("geometry") if is_kind(data, "geopandas", "GeoSeries") else data
    points = np.array(frame.geometry.array, dtype=object)
    _check_points(points)
    # an empty point has no x to ask for
    points[shapely.is_empty(points)] = None
    system = None if frame.crs is None else systems.describe(frame.crs)
    geographic = system is not None and system.geographic
    names = ("lon", "lat") if geographic else ("x", "y")
    columns = dict(zip(names, (shapely.get_x(points), shapely.get_y(points)), strict=True))
    others = frame.drop(columns=[frame.active_geometry_name, *names], errors="ignore")
    heights = shapely.get_z(points)
    if "z" not in others.columns and len(points) and np.isfinite(heights).all():
        columns["z"] = heights
    return Table(
        pd.concat([pd.DataFrame(columns, index=frame.index), pd.DataFrame(others)], axis=1),
        frame,
        names,
        None if system is None else system.name,
        "" if geographic or system is None else system.unit,
        None if system is None else "chordal" if geographic else "euclidean",
    )


def of_polygons(data):
    """Return the table of a geopandas frame whose geometries are blocks, not places."""
    frame = data.to_frame("geometry") if is_kind(data, "geopandas", "GeoSeries") else data
    return Table(frame.drop(columns=frame.active_geometry_name), frame)


def _check_points(shapes):
    """Raise `InvalidInput` for the first shape that is no point; missing and empty ones pass."""
    import shapely

    kinds = shapely.get_type_id(shapes)
    other = ~(shapely.is_empty(shapes) | shapely.is_missing(shapes) | (kinds == 0))
    if other.any():
        row = int(np.argmax(other))
        raise InvalidInput(
            f"geometries must be points. Got a {shapes[row].geom_type} in row {row + 1} "
            f"({int(other.sum())} such rows): take frame.centroid, or frame.explode() for "
            "multi-points; averages over polygons are predicted with block= (--block polygons)."
        )


def check_there(table, advice=""):
    """Raise `InvalidInput` for a missing or empty point."""
    if is_geographic_frame(table.given) and table.locations[0] in ("x", "lon"):
        shapes = table.given.geometry
        missing = (shapes.isna() | shapes.is_empty).to_numpy()
        if missing.any():
            raise InvalidInput(
                f"row {int(np.argmax(missing)) + 1}: the geometry is missing or empty "
                f"({int(missing.sum())} such rows){advice}."
            )


def targets(fit, places, covariates=None):
    """Return where to predict: coordinates in the system of a fit's observations.

    Parameters
    ----------
    fit : Fit
    places : frame, grid, array_like or Observations
        Of a frame the columns that the observations' coordinates are called; of a geopandas frame
        the points; of a grid all cells, but those where a covariate is missing (said in a
        warning).
    covariates : (m, q) array_like, optional
        By name from a frame or a grid if not given.

    Returns
    -------
    places : (m, d) ndarray, or what was given if it is no frame
    covariates : frame or (m, q) array_like or None
        As a trend's design takes them.
    table : Table or None
        For `beside` and `on_grid`; None if `places` is no frame.

    Raises
    ------
    InvalidInput
        If a column is missing, or the places have a coordinate reference system and the
        observations none.
    """
    if not is_frame(places):
        return places, covariates, None
    seen = fit.observations
    needed = fit.trend.needs if covariates is None else ()
    table = tabulate(places, needed, _grid_coordinates(places, seen))
    if len(table.locations) != seen.dimensions:
        # on a line, in space, and in frames without points: columns by name
        table = with_locations(table, seen.location_names)
    check_there(table)
    if table.dims is not None and needed:
        table = _known_cells(table, needed)
    numbers = tables.number_columns(table.columns, table.locations)
    _bring(numbers, table, seen)
    return numbers, table.columns if needed else covariates, table


def with_locations(table, names):
    """Return the table with other columns as coordinates; only its own have a known system."""
    if names[:2] != table.locations[:2]:
        table = replace(table, crs=None, unit="", metric=None)
    return replace(table, locations=names)


def _grid_coordinates(places, seen):
    """Return the observations' names of coordinates if a grid has them all, else nothing."""
    if not is_grid(places):
        return ()
    here = set(places.coords) | set(getattr(places, "data_vars", ()))
    return seen.location_names if here >= set(seen.location_names) else ()


def _bring(coordinates, table, seen):
    """Bring (m, d) coordinates of a table to the system of the observations, in place."""
    spherical = seen.metric != "euclidean"
    target = seen.crs or (systems.LONGITUDE_LATITUDE if spherical else None)
    if table.crs is None and spherical and table.metric == "euclidean":
        raise InvalidInput("`places` must be longitude and latitude, as the observations are.")
    degrees = table.metric == "chordal" and names_say_degrees(seen.location_names)
    if table.crs is None or (target is None and degrees):
        return
    if target is None:
        raise InvalidInput(
            f"`places` are in {systems.title(table.crs)}, and the observations have no coordinate "
            'reference system: read them with crs="EPSG:…", or give places without one.'
        )
    coordinates[:, :2] = systems.reproject(coordinates[:, :2], table.crs, target)


def _known_cells(table, names):
    """Return the cells of a grid where the covariates are known; say how many are not."""
    tables.check_columns(table.columns, names)
    known = table.columns[list(names)].notna().all(axis=1).to_numpy()
    if not known.all():
        warnings.warn(
            f"{int((~known).sum()):,} of {len(known):,} cells have no {' or no '.join(names)}: "
            "nothing is predicted there.",
            GeomxpWarning,
            stacklevel=4,
        )
    return replace(table, columns=table.columns[known], rows=known)


def beside(table, results):
    """Return results as columns beside what the places came in, of its kind and index.

    Parameters
    ----------
    table : Table
    results : pandas.DataFrame
        One row for each place.

    Returns
    -------
    pandas.DataFrame or geopandas.GeoDataFrame
        Of a grid the cells as rows.
    """
    frame = table.columns if table.dims is not None else table.given
    check_free(frame, results.columns)
    return frame.assign(**{name: column.to_numpy() for name, column in results.items()})


def check_free(frame, names):
    """Raise `InvalidInput` if a frame of places has a column that is called as a result."""
    taken = [name for name in names if name in frame.columns]
    if taken:
        raise InvalidInput(f"column {taken[0]!r} has the name of a result: rename it.")
