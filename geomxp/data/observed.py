"""Observations out of frames and grids: which columns, which metric, which rows."""

import warnings
from dataclasses import replace

import numpy as np

from ..data import covariates as covariates_
from ..data import crs as systems
from ..data import tables
from ..errors import GeomxpWarning, InvalidInput
from .frames import check_there, is_grid, tabulate, with_locations
from .observations import Observations
from .places import names_say_degrees


def observations(
    data,
    *,
    locations=None,
    values=None,
    covariates=(),
    formula=None,
    metric=None,
    drop_missing=False,
    crs=None,
):
    """Make observations of a frame or a grid.

    Parameters
    ----------
    data : pandas.DataFrame, geopandas.GeoDataFrame, xarray.DataArray or Dataset
    locations : sequence of str, optional
        Columns of the coordinates; a geometry and most grids know them.
    values : str, optional
        Column; may be left out for a DataArray.
    covariates : sequence of str
    formula : str, optional
        A trend, whose columns are covariates too.
    metric : str, optional
        By the coordinate reference system, or "chordal" for columns called lon and lat, else
        "euclidean".
    drop_missing : bool
        Leave out the rows with a missing number in a used column, or without a geometry.
    crs : str, optional
        Coordinate reference system of the columns `locations`.

    Returns
    -------
    Observations
        Longitude and latitude of another datum are reprojected to EPSG:4326.
    """
    for what, columns in (("locations", locations), ("covariates", covariates)):
        if isinstance(columns, str):
            raise InvalidInput(f"`{what}` must be a sequence of column names. Got {columns!r}.")
    if values is None:
        values = _only_variable(data)
    names = (values, *covariates_.needed((), covariates, formula)[0])
    table = tabulate(data, names, locations or ())
    table = _with_system(table, tuple(locations or ()), crs)
    if values in table.locations:
        raise InvalidInput(f"`values` must be a column beside the coordinates. Got {values!r}.")
    system = None if table.crs is None else systems.describe(table.crs)
    if system is not None and not system.geographic and metric not in (None, "euclidean"):
        raise InvalidInput(
            f'metric="{metric}" needs longitude and latitude. Got coordinates in '
            f"{systems.title(table.crs)} ({system.unit}): leave the metric out, or reproject."
        )
    if not drop_missing:
        check_there(table, ": drop them (--drop-missing)")
    if table.dims is not None:
        table = _observed_cells(table, values)
    if system is not None and system.geographic:
        table = _in_degrees(table)
    return _from_columns(table, values, covariates, formula, metric or table.metric, drop_missing)


def _from_columns(table, values, covariates, formula, metric, drop_missing):
    """Return the observations in the columns of a table."""
    locations = table.locations
    covariates, texts = covariates_.needed(locations, covariates, formula)
    codes, levels = covariates_.encode(table.columns, covariates, texts=texts)
    numbers = tables.number_columns(table.columns, (*locations, values))
    numbers = np.hstack((numbers, codes))
    if drop_missing:
        numbers = numbers[np.isfinite(numbers).all(axis=1)]
    d = len(locations)
    if metric is None:
        metric = "chordal" if names_say_degrees(locations) else "euclidean"
    return Observations(
        numbers[:, :d],
        numbers[:, d],
        numbers[:, d + 1 :] if covariates else None,
        metric,
        locations,
        values,
        covariates,
        levels=levels,
        crs=table.crs,
        length_unit=table.unit,
    )


def _only_variable(data):
    """Return the name of a grid's variable if it has one only."""
    if not is_grid(data):
        raise InvalidInput("`values` must name the column of the values.")
    from .grids import variable_names

    names = variable_names(data)
    if len(names) != 1:
        raise InvalidInput(f"`values` must name one of the variables: {', '.join(names)}.")
    return names[0]


def _with_system(table, locations, crs):
    """Return the table with the coordinates that the user named, and their system."""
    chosen = locations or table.locations
    if not chosen:
        have = ", ".join(map(str, table.columns.columns[:12]))
        raise InvalidInput(
            f"`locations` must name the columns of the coordinates. The columns are: {have}."
        )
    table = with_locations(table, chosen)
    if crs is not None:
        system = systems.describe(crs)
        if table.crs is not None and not systems.same(table.crs, crs):
            raise InvalidInput(
                f"`crs` must be left out where the coordinates have one. Got {system.name} for "
                f"coordinates in {systems.title(table.crs)}."
            )
        metric = "chordal" if system.geographic else "euclidean"
        unit = "" if system.geographic else system.unit
        table = replace(table, crs=system.name, unit=unit, metric=metric)
    return table


def _observed_cells(table, values):
    """Return the rows of a grid that have a value; say how many have none."""
    missing = np.isnan(tables.number_columns(table.columns, (values,))[:, 0])
    if missing.any():
        warnings.warn(
            f"{int(missing.sum()):,} of {len(missing):,} cells have no {values}: they are not "
            "observed.",
            GeomxpWarning,
            stacklevel=4,
        )
        table = replace(table, columns=table.columns[~missing])
    return table


def _in_degrees(table):
    """Return the table with its longitudes and latitudes in the system that we keep them in."""
    if systems.same(table.crs, systems.LONGITUDE_LATITUDE):
        return replace(table, crs=systems.LONGITUDE_LATITUDE)
    names = list(table.locations[:2])
    columns = table.columns.copy()
    columns[names] = systems.reproject(
        tables.number_columns(columns, names), table.crs, systems.LONGITUDE_LATITUDE
    )
    return replace(table, columns=columns, crs=systems.LONGITUDE_LATITUDE)
