"""Kriging on a regular grid of the plane: numbers for a map."""

from dataclasses import dataclass

import numpy as np

from ..errors import InvalidInput
from .predict import grid_over, predict

CELLS = 60


@dataclass(frozen=True)
class Raster:
    """Predictions on a regular grid.

    Parameters
    ----------
    mean, standard_error : (rows, columns) ndarray
        Of the noiseless field, in the unit of the values; the first row is that of the smallest
        second coordinate.
    extent : tuple of float
        Left, right, bottom, top.
    """

    mean: np.ndarray
    standard_error: np.ndarray
    extent: tuple[float, float, float, float]


def predict_raster(fit, *, cells=CELLS):
    """Predict on a regular grid over the bounding box of the observations.

    Parameters
    ----------
    fit : Fit
    cells : int
        Along the longer side.

    Returns
    -------
    Raster

    Raises
    ------
    InvalidInput
        If the places do not spread over a plane, or if the trend needs covariates, which are
        known at the observations only.

    Examples
    --------
    >>> import geomxp as gx
    >>> seen = gx.Observations([[0, 0], [4, 0], [4, 2], [0, 2]], [1.0, 2.0, 3.0, 5.0])
    >>> model = gx.Matern(1.0, 1.0, 0.5)
    >>> fit = gx.fit(seen, model, fixed=("variance", "range", "smoothness", "nugget"))
    >>> raster = predict_raster(fit, cells=8)
    >>> raster.mean.shape, raster.extent
    ((4, 8), (0.0, 4.0, 0.0, 2.0))
    """
    seen = fit.observations
    low, high = seen.locations.min(axis=0), seen.locations.max(axis=0)
    if seen.dimensions != 2 or (low == high).any():
        raise InvalidInput(
            "a map of predictions needs places that spread over a plane. "
            f"Got {'a line' if seen.dimensions == 2 else f'{seen.dimensions} coordinate(s)'}: "
            "use geomxp.predict."
        )
    if fit.trend.kind == "covariates":
        raise InvalidInput(
            f"a map of predictions needs the covariates {', '.join(fit.trend.names[1:])} "
            "everywhere, and they are known at the observations only: use geomxp.predict."
        )
    if not (isinstance(cells, int) and cells >= 2):
        raise InvalidInput(f"`cells` must be a whole number of at least 2. Got {cells!r}.")
    there = predict(fit, grid_over(seen, cells))
    columns, rows = (len(np.unique(axis)) for axis in there.places.T)
    return Raster(
        there.mean.reshape(rows, columns),
        np.sqrt(there.variance).reshape(rows, columns),
        tuple(float(bound) for bound in (low[0], high[0], low[1], high[1])),
    )
