"""The cells of a map: where a regular grid lies, and which of its cells are wanted."""

from numbers import Integral, Real
from pathlib import Path

import numpy as np

from ..errors import InvalidInput
from ..exchange import crs as systems
from ..exchange import rasters
from .polygons import corners_of, in_system_of, inside, rings_of

CELLS = 60
"""Along the longer side, where nothing else is said."""

MOST = 10**9
"""Cells of a grid: more are a mistake in a unit."""


def grid_of(seen, cells=None, resolution=None, bounds=None, like=None):
    """Return the grid that a caller of `predict_raster` describes.

    Parameters
    ----------
    seen : Observations
    cells, resolution, bounds, like :
        As of `predict_raster`.

    Returns
    -------
    extent : tuple of float
        Left, right, bottom, top.
    shape : (int, int)
        Rows and columns.
    crs : str or None

    Examples
    --------
    >>> import geomxp as gx
    >>> seen = gx.Observations([[3, 2], [9, 4], [7, 8]], [1.0, 2.0, 3.0])
    >>> grid_of(seen, resolution=5)
    ((0.0, 10.0, 0.0, 10.0), (2, 2), None)
    """
    known = _system_of(seen)
    if like is not None:
        if not cells is resolution is bounds is None:
            raise InvalidInput("`like` says where cells are: leave out cells, resolution, bounds.")
        extent, shape, crs = rasters.read_grid(like)
        _check_same_system(like, crs, known)
        grid = extent, shape, known or crs
    else:
        if cells is not None and resolution is not None:
            raise InvalidInput("give only one of `cells` and `resolution`.")
        low, high = _box(seen, bounds)
        if resolution is None:
            extent, shape = _divided(low, high, CELLS if cells is None else cells)
        else:
            extent, shape = _stepped(low, high, resolution, aligned=bounds is None)
        grid = extent, shape, known
    if seen.metric != "euclidean":
        half = (extent[3] - extent[2]) / shape[0] / 2
        if extent[2] + half < -90 or extent[3] - half > 90:
            raise InvalidInput(f"a map cannot reach over a pole. Got latitudes {extent[2:]}.")
    return grid


def _system_of(seen):
    """Return the coordinate reference system of observations, None if it is not known."""
    return seen.crs or (systems.LONGITUDE_LATITUDE if seen.metric != "euclidean" else None)


def _check_same_system(path, crs, known):
    """Raise `InvalidInput` if a raster file is in another system than the observations."""
    if None not in (crs, known) and not systems.same(crs, known):
        raise InvalidInput(
            f"{path}: is in {systems.title(crs)}, the observations in {systems.title(known)}: "
            "warp the raster."
        )


def _box(seen, bounds):
    """Return the lower left and the upper right corner."""
    if bounds is None:
        return seen.locations.min(axis=0), seen.locations.max(axis=0)
    try:
        left, bottom, right, top = (float(number) for number in bounds)
    except (TypeError, ValueError):
        left = right = 0.0
        bottom = top = np.nan
    if not (np.isfinite([left, bottom, right, top]).all() and left < right and bottom < top):
        raise InvalidInput(
            "`bounds` must be left, bottom, right and top, the first two less than the others. "
            f"Got {bounds!r}."
        )
    return np.array([left, bottom]), np.array([right, top])


def _divided(low, high, cells):
    """Cut a box into so many cells along its longer side."""
    if not (isinstance(cells, Integral) and not isinstance(cells, bool) and cells >= 2):
        raise InvalidInput(f"`cells` must be a whole number of at least 2. Got {cells!r}.")
    width = (high - low).max() / int(cells)
    counts = np.maximum(np.round((high - low) / width), 1)
    return _checked(low, high, counts)


def _stepped(low, high, resolution, aligned):
    """Cover a box with cells of a given side."""
    if not (isinstance(resolution, Real) and np.isfinite(resolution) and resolution > 0):
        raise InvalidInput(f"`resolution` must be a number greater than 0. Got {resolution!r}.")
    if aligned:
        low = np.floor(low / resolution) * resolution
    # what rounding leaves over is no cell
    counts = np.maximum(np.ceil((high - low) / resolution - 1e-6), 1)
    return _checked(low, low + counts * resolution, counts)


def _checked(low, high, counts):
    if counts.prod() > MOST:
        raise InvalidInput(
            f"the grid would have {counts.prod():.3g} cells, and at most {MOST:.0e} can be: use "
            "larger cells."
        )
    extent = tuple(float(bound) for bound in (low[0], high[0], low[1], high[1]))
    return extent, (int(counts[1]), int(counts[0]))


def mask_of(mask, x, y, seen):
    """Return where to predict, (rows, columns) of bool; see `predict_raster`.

    Polygons of a geopandas frame are brought to the system of the observations; a raster file must
    be in it, where both are known.

    Parameters
    ----------
    mask : (rows, columns) array_like of bool, path, polygons or None
    x, y : (columns,), (rows,) ndarray
        Centres of the cells.
    seen : Observations
    """
    shape = len(y), len(x)
    if mask is None:
        return np.ones(shape, dtype=bool)
    if isinstance(mask, (str, Path)):
        _check_same_system(mask, rasters.read_grid(mask)[2], _system_of(seen))
        known = rasters.read_mask(mask, x, y)
    elif _is_truth(mask):
        known = np.asarray(mask)
        if known.shape != shape:
            raise InvalidInput(f"`mask` must have shape {shape}. Got {known.shape}.")
    else:
        known = np.zeros(shape, dtype=bool)
        centres = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
        for number, polygon in enumerate(corners_of(in_system_of(mask, seen), "mask"), start=1):
            rings = rings_of(polygon, f"mask {number}")
            edges = [np.stack((ring, np.roll(ring, -1, axis=0)), axis=1) for ring in rings]
            known |= inside(np.concatenate(edges), centres).reshape(shape)
    if not known.any():
        raise InvalidInput("`mask` leaves no cell to predict.")
    return known


def _is_truth(mask):
    """Whether an array or nested lists hold truth values."""
    try:
        return np.asarray(mask).dtype.kind == "b"
    except ValueError:
        return False
