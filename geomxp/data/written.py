"""Predictions out of frames and grids into files, of the kind that a file can hold."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from ..data import crs, files, tables
from ..errors import InvalidInput
from .frames import check_free, is_geographic_frame, is_grid, tabulate

RESULTS = (
    *("mean", "variance", "lower", "upper", "variance_of_observation"),
    *("lower_of_observation", "upper_of_observation"),
)
"""Columns that `Prediction.to_frame` may add."""


def check_output(data, path):
    """Raise `InvalidInput` before the work if a file could not hold predictions at these places.

    Parameters
    ----------
    data : frame or grid
        The places.
    path : path or None
    """
    if path:
        # any places are points
        files.check_kind(path, True, is_grid(data))


def check_columns(data):
    """Raise `InvalidInput` if places have a column that is called as a result."""
    check_free(tabulate(data).columns, RESULTS)


def for_file(prediction, path, seen, level, of):
    """Return predictions as what a file of this ending holds: a grid, points or columns.

    Parameters
    ----------
    prediction : Prediction
        At places that came in a frame or a grid.
    path : path
    seen : Observations
        Of the fit; places that have no points of their own lie in their system.
    level, of :
        As `Prediction.interval` takes them.

    Returns
    -------
    xarray.Dataset, geopandas.GeoDataFrame or pandas.DataFrame
    """
    ending = Path(path).suffix.lower()
    if ending in files.GRIDS:
        return prediction.to_xarray(level, of)
    frame = prediction.to_frame(level, of)
    if ending not in files.VECTORS or is_geographic_frame(frame):
        return frame
    if prediction.places.shape[1] == 1:
        raise InvalidInput(f"{path}: holds points, and these places lie on a line: write a .csv.")
    geopandas = crs.library("geopandas")
    system = seen.crs or (crs.LONGITUDE_LATITUDE if seen.metric != "euclidean" else None)
    points = geopandas.points_from_xy(*prediction.places.T, crs=system)
    return geopandas.GeoDataFrame(tables.typed(frame), geometry=points)


def records(prediction, fit, level, of):
    """Return predictions as a list of dicts: coordinates, covariates of the trend, results."""
    import pandas as pd

    columns = dict(zip(fit.observations.location_names, prediction.places.T, strict=True))
    given = prediction.given.columns
    for name in fit.trend.needs:
        text = name in fit.trend.levels
        numbers = given[name] if text else tables.number_columns(given, (name,))[:, 0]
        columns[name] = np.asarray(numbers)
    results = replace(prediction, given=None).to_frame(level, of)
    return pd.DataFrame(columns).join(results).to_dict("records")
