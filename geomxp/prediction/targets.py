"""New locations in arrays, frames and grids, and predictions in the same kind of object."""

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..covariance.base import Inputs
from ..data import files, spatial, tables
from ..data.observations import Observations, checked_inputs
from ..errors import GeomxpWarning, InvalidInput

RESULTS = (
    *("mean", "variance", "lower", "upper", "variance_of_observation"),
    *("lower_of_observation", "upper_of_observation"),
)
"""Columns that `Prediction.to_frame` may add."""


def targets_of(fit, new_locations, covariates=None, time=None, variable=None):
    """Return inputs in the coordinate system of a fit's observations, and covariates.

    Parameters
    ----------
    fit : Fit
    new_locations : array_like, Inputs, Observations, frame or grid
        A pandas frame must have the columns of the observations' coordinates. Points of a
        geopandas frame and cells of a grid are reprojected. Cells of a grid with a missing
        covariate are dropped, with a warning.
    covariates : (m, q) array_like, optional
        Taken by name from a frame, a grid or observations if not given.
    time, variable : scalar or (m,) array_like, optional
        Taken by name from a frame or a grid, or from inputs or observations, if not given.

    Returns
    -------
    inputs : Inputs
    covariates : frame, Observations, (m, q) array_like or None
        As `Trend.design` takes them.
    table : Table or None
        The frame or grid that the locations came from; None for arrays and observations.

    Raises
    ------
    InvalidInput
        For a missing column, another metric or dimension, or a coordinate reference system where
        that of the observations is unknown.
    """
    observations, table = fit.observations, None
    if spatial.is_frame(new_locations):
        new_locations, covariates, table = _from_frame(fit, new_locations, covariates)
        known = table.columns.columns
        if time is None and observations.time is not None and observations.time_name in known:
            time = table.columns[observations.time_name]
        name = observations.variable_name
        if variable is None and observations.variable is not None and name in known:
            variable = table.columns[name]
    if isinstance(new_locations, (Inputs, Observations)):
        if new_locations.metric != observations.metric:
            raise InvalidInput(
                f"`new_locations` must be {observations.metric}. Got {new_locations.metric}."
            )
        if isinstance(new_locations, Observations) and covariates is None:
            covariates = new_locations
        new_locations = new_locations.inputs
    inputs = checked_inputs(new_locations, observations.metric, time, variable)
    if inputs.dimensions != observations.dimensions:
        raise InvalidInput(
            f"`new_locations` must have {observations.dimensions} columns of coordinates, as the "
            f"observations have. Got {inputs.dimensions}."
        )
    fit.model.check_inputs(inputs)
    return inputs, covariates, table


def _from_frame(fit, data, covariates):
    """As `targets_of`, for a frame or a grid."""
    observations, names = fit.observations, fit.observations.location_names
    needed = fit.trend.needs if covariates is None else ()
    variables = {*data.coords, *spatial.variable_names(data)} if spatial.is_grid(data) else ()
    table = spatial.tabulate(data, needed, names if set(names) <= set(variables) else ())
    if len(table.locations) != observations.dimensions:
        # in 1-D, in 3-D and without points the columns are found by name
        table = table.with_locations(names)
    table.check_geometry()
    if table.dims is not None and needed:
        table = _known_cells(table, needed)
    locations = tables.number_columns(table.columns, table.locations)
    _reproject(locations, table, observations)
    return locations, table.columns if needed else covariates, table


def _reproject(locations, table, observations):
    """Transform (m, d) locations of a table to the system of the observations, in place."""
    target = observations.system
    if table.crs is None and observations.geographic and table.metric == "euclidean":
        raise InvalidInput(
            "`new_locations` must be longitude and latitude, as the observations are."
        )
    degrees = table.metric == "chordal" and spatial.names_say_degrees(observations.location_names)
    if table.crs is None or (target is None and degrees):
        return
    if target is None:
        raise InvalidInput(
            f"`new_locations` are in {spatial.title(table.crs)}, and the observations have no "
            'coordinate reference system: read them with crs="EPSG:…", or give locations without '
            "one."
        )
    locations[:, :2] = spatial.reproject(locations[:, :2], table.crs, target)


def _known_cells(table, names):
    """Return the cells of a grid where the covariates are known; warn about the others."""
    tables.check_columns(table.columns, names)
    known = table.columns[list(names)].notna().all(axis=1).to_numpy()
    if not known.all():
        warnings.warn(
            f"{int((~known).sum()):,} of {len(known):,} cells have no {' or no '.join(names)}: "
            "nothing is predicted there.",
            GeomxpWarning,
            stacklevel=5,
        )
    return replace(table, columns=table.columns[known], rows=known)


# Predictions in files


def check_output(data, path):
    """Raise `InvalidInput` if a file cannot hold predictions at these locations.

    Parameters
    ----------
    data : frame or grid
        The new locations.
    path : path or None
    """
    if path:
        # all locations can be written as points
        files.check_kind(path, True, spatial.is_grid(data))


def check_columns(data):
    """Raise `InvalidInput` if new locations have a column with the name of a result."""
    spatial.check_free(spatial.tabulate(data).columns, RESULTS)


def for_file(prediction, path, observations, level, of):
    """Return predictions as the content of a file: a grid, points or columns.

    Parameters
    ----------
    prediction : Prediction
        At the locations of a frame or a grid.
    path : path
        Its ending decides.
    observations : Observations
        Of the fit; locations without points of their own have their system.
    level, of :
        As of `Prediction.interval`.

    Returns
    -------
    xarray.Dataset, geopandas.GeoDataFrame or pandas.DataFrame
    """
    ending = Path(path).suffix.lower()
    if ending in files.GRIDS:
        return prediction.to_xarray(level, of)
    frame = prediction.to_frame(level, of)
    if ending not in files.VECTORS or spatial.is_geographic_frame(frame):
        return frame
    if prediction.locations.shape[1] == 1:
        raise InvalidInput(f"{path}: holds points, and these locations are 1-D: write a .csv.")
    geopandas = spatial.library("geopandas")
    points = geopandas.points_from_xy(*prediction.locations.T, crs=observations.system)
    return geopandas.GeoDataFrame(tables.typed(frame), geometry=points)


def records(prediction, fit, level, of):
    """Return predictions as a list of dicts: coordinates, covariates of the trend, results."""
    import pandas as pd

    columns = dict(zip(fit.observations.location_names, prediction.locations.T, strict=True))
    given = prediction.table.columns
    for name in fit.trend.needs:
        text = name in fit.trend.levels
        columns[name] = np.asarray(
            given[name] if text else tables.number_columns(given, (name,))[:, 0]
        )
    results = replace(prediction, table=None).to_frame(level, of)
    return pd.DataFrame(columns).join(results).to_dict("records")
