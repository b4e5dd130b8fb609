"""The cells of a map: where a regular grid lies, and which of its cells are wanted."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..data import crs as systems
from ..data import files, rasters, tables
from ..data.places import spread
from ..errors import InvalidInput
from ..estimation.result import check_fit
from .averages import corners_of, in_system_of, inside, rings_of
from .kriging import Prediction, predict

if TYPE_CHECKING:
    from .._typing import Any, Floats, Frame, Grid, Of, PathLikeText, Sequence
    from ..estimation.result import Fit

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


# Kriging on a regular grid of the plane: numbers for a map.


@dataclass(frozen=True)
class Raster:
    """Predictions on a regular grid; NaN where a mask leaves cells out.

    Parameters
    ----------
    mean, variance : (rows, columns) ndarray
        Of the noiseless field at the centres of cells, or of its averages over cells; the first
        row is that of the smallest second coordinate.
    extent : tuple of float
        Left, right, bottom, top.
    nugget : float or None
        None for averages.
    names : (str, str)
        Of the coordinates.
    value_name : str
    metric : str
    crs : str or None
        Coordinate reference system, where it is known.
    length_unit : str
        Of the coordinates, where it is known.
    """

    mean: Floats
    variance: Floats
    extent: tuple[float, float, float, float]
    nugget: float | None = 0.0
    names: tuple[str, str] = ("x", "y")
    value_name: str = "value"
    metric: str = "euclidean"
    crs: str | None = None
    length_unit: str = ""

    def __repr__(self) -> str:
        rows, columns = self.mean.shape
        left, right, bottom, top = self.extent
        x, y = self.names
        return (
            f"<Raster of {self.value_name}: {columns:,} × {rows:,} cells, {x} from {left:.6g} to "
            f"{right:.6g}, {y} from {bottom:.6g} to {top:.6g}>"
        )

    def __str__(self) -> str:
        known = int(np.isfinite(self.mean).sum())
        what = "predictions at centres of cells" if self.nugget is not None else "averages of cells"
        head = f"{self!r}"[1:-1] + f"\n{known:,} {what}"
        columns = dict(zip(self.names, (self.x, self.y), strict=True))
        columns |= {"mean": self.mean, "standard error": self.standard_error}
        return f"{head}\n\n{spread(columns)}"

    @property
    def standard_error(self) -> Floats:
        """Of the mean as a prediction of the noiseless field, (rows, columns)."""
        return np.sqrt(self.variance)

    @property
    def x(self) -> Floats:
        """First coordinate of the cells' centres, (columns,)."""
        return _centres(self.extent[0], self.extent[1], self.mean.shape[1])

    @property
    def y(self) -> Floats:
        """Second coordinate of the cells' centres, (rows,), increasing."""
        return _centres(self.extent[2], self.extent[3], self.mean.shape[0])

    @property
    def coordinates(self) -> Floats:
        """The centres of all cells, (rows, columns, 2)."""
        return np.stack(np.meshgrid(self.x, self.y), axis=-1)

    def interval(self, level: float = 0.95, of: Of = "field") -> tuple[Floats, Floats]:
        """Return the bounds of prediction intervals, (rows, columns); see `Prediction.interval`."""
        lower, upper = self._prediction().interval(level, of)
        return lower.reshape(self.mean.shape), upper.reshape(self.mean.shape)

    def to_frame(self, level: float = 0.95, of: Of = "field") -> Frame:
        """Return a pandas frame of the cells that are not masked: coordinates and predictions.

        Parameters
        ----------
        level, of :
            As of `Prediction.to_frame`.
        """
        import pandas as pd

        known = np.isfinite(self.mean).ravel()
        results = self._prediction().to_frame(level, of)
        taken = [name for name in self.names if name in results.columns]
        if taken:
            raise InvalidInput(f"coordinate {taken[0]!r} has the name of a result: rename it.")
        places = pd.DataFrame(self.coordinates.reshape(-1, 2), columns=list(self.names))
        return pd.concat([places, results], axis=1)[known].reset_index(drop=True)

    def _prediction(self):
        """Return the cells as one row each."""
        return Prediction(
            self.coordinates.reshape(-1, 2), self.mean.ravel(), self.variance.ravel(), self.nugget
        )

    def layers(
        self, level: float = 0.95, of: Of = "field", units: str = ""
    ) -> dict[str, tuple[Floats, dict[str, str]]]:
        """Return what a file holds of each cell.

        Parameters
        ----------
        level : float
            Probability that an interval covers.
        of : {"field", "observation"}
            Intervals of the noiseless field, or of a new observation.
        units : str
            Of the values.

        Returns
        -------
        dict of str to (array, dict)
            mean, standard_error, lower and upper, with `long_name` and `units`; for observations
            the names of the last three end in _of_observation.
        """
        lower, upper = self.interval(level, of)
        variance, end, what = self.variance, "", "field"
        if of == "observation":
            variance, end, what = self.variance + self.nugget, "_of_observation", "new observation"
        if self.nugget is None:
            what = "field's average over a cell"
        name, percent = self.value_name, f"{100 * level:g} %"
        known = {"units": units} if units else {}
        return {
            "mean": (self.mean, {"long_name": f"kriging mean of {name}"} | known),
            f"standard_error{end}": (
                np.sqrt(variance),
                {"long_name": f"standard error of {name} predicted for the {what}"} | known,
            ),
            f"lower{end}": (
                lower,
                {"long_name": f"lower bound of {name}, {percent} interval of the {what}"} | known,
            ),
            f"upper{end}": (
                upper,
                {"long_name": f"upper bound of {name}, {percent} interval of the {what}"} | known,
            ),
        }

    def to_xarray(self, level: float = 0.95, of: Of = "field", units: str = "") -> Grid:
        """Return an xarray Dataset that follows the CF conventions; parameters as of `layers`."""
        return rasters.dataset(
            self.layers(level, of, units),
            self.x,
            self.y,
            self.names,
            attributes=self._about(),
            crs=self.crs,
            spherical=self.metric != "euclidean",
            length_unit=self.length_unit,
        )

    def save(
        self, path: PathLikeText, level: float = 0.95, of: Of = "field", units: str = ""
    ) -> None:
        """Write the raster: NetCDF (.nc), GeoTIFF (.tif), or one row a cell (.csv, .parquet, …).

        Parameters
        ----------
        path : path
            A GeoTIFF has the bands of `layers`, north up.
        level, of, units :
            As of `layers`.

        Raises
        ------
        InvalidInput
            If a library of the extra `geo` is not installed.
        GeomxpError
            If the file cannot be written; an earlier file of this name is untouched.
        """
        suffix = Path(path).suffix.lower()
        if suffix in rasters.NETCDF:
            rasters.write_netcdf(path, self.to_xarray(level, of, units))
        elif suffix in rasters.GEOTIFF:
            layers = self.layers(level, of, units)
            rasters.write_geotiff(path, layers, self.extent, crs=self.crs, tags=self._about())
        else:
            frame = self.to_frame(level, of)
            tables.write_frame(self._points(frame) if suffix in files.VECTORS else frame, path)

    def _points(self, frame):
        """Return the frame with the cells' centres as points."""
        geopandas = systems.library("geopandas")
        x, y = (frame[name] for name in self.names)
        return geopandas.GeoDataFrame(frame, geometry=geopandas.points_from_xy(x, y, crs=self.crs))

    def _about(self):
        from .._version import __version__

        return {"title": f"Kriging of {self.value_name}", "source": f"geomxp {__version__}"}


def predict_raster(
    fit: Fit,
    *,
    cells: int | None = None,
    resolution: float | None = None,
    bounds: Sequence[float] | None = None,
    like: PathLikeText | None = None,
    mask: Any = None,
    block: bool = False,
    discretisation: int | None = None,
    neighbours: int | None = None,
    local_trend: bool = False,
    progress: bool = True,
) -> Raster:
    """Predict on a regular grid.

    Parameters
    ----------
    fit : Fit
        Of places in the plane, or on the Earth, whose trend needs no covariates.
    cells : int, optional
        Along the longer side; cells are (nearly) square. 60 if nothing else says how large cells
        are.
    resolution : float, optional
        Side of a cell, in units of the coordinates. Without `bounds` the cells begin at multiples
        of it.
    bounds : (float, float, float, float), optional
        Left, bottom, right, top; the bounding box of the observations if not given. A resolution
        that does not divide them widens them to the right and to the top.
    like : path, optional
        Raster file (GeoTIFF, NetCDF) whose cells to take.
    mask : (rows, columns) array_like of bool, path, or polygons, optional
        Where to predict: True, rows from the bottom up; cells of a raster file that have a value
        other than 0; centres within polygons (a list of arrays of corners, or shapely's).
    block : bool
        Predict averages over cells, not the field at their centres.
    discretisation, neighbours, local_trend, progress : optional
        As of `geomxp.predict`.

    Returns
    -------
    Raster

    Raises
    ------
    InvalidInput
        If the places do not spread over a plane, or if the trend needs covariates.

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
    _check_can_be_mapped(fit)
    seen = fit.observations
    extent, shape, crs = grid_of(seen, cells, resolution, bounds, like)
    raster = Raster(
        np.full(shape, np.nan),
        np.full(shape, np.nan),
        extent,
        None if block else fit.model.nugget,
        seen.location_names,
        seen.value_name,
        seen.metric,
        crs,
        seen.length_unit,
    )
    known = mask_of(mask, raster.x, raster.y, seen)
    places = raster.coordinates[known]
    sides = ((extent[1] - extent[0]) / shape[1], (extent[3] - extent[2]) / shape[0])
    there = predict(
        fit,
        places,
        block=sides if block else None,
        discretisation=discretisation,
        neighbours=neighbours,
        local_trend=local_trend,
        progress=progress,
    )
    raster.mean[known], raster.variance[known] = there.mean, there.variance
    return raster


def _check_can_be_mapped(fit):
    check_fit(fit)
    seen = fit.observations
    low, high = seen.locations.min(axis=0), seen.locations.max(axis=0)
    if seen.dimensions != 2 or (low == high).any():
        raise InvalidInput(
            "a map of predictions needs places that spread over a plane. "
            f"Got {'a line' if seen.dimensions == 2 else f'{seen.dimensions} coordinate(s)'}: "
            "use geomxp.predict."
        )
    if fit.trend.needs:
        raise InvalidInput(
            f"a map of predictions needs the covariates {', '.join(fit.trend.needs)} "
            "everywhere, and they are known at the observations only: give places that have them, "
            "a table or a grid (geomxp.predict)."
        )


def _centres(low, high, count):
    return low + (np.arange(count) + 0.5) * (high - low) / count
