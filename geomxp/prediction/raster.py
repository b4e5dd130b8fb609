"""Kriging on a regular grid of the plane, for maps."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from itertools import pairwise
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .._version import __version__
from ..covariance.distance import metric_of, near_meridian, turn_towards
from ..covariance.responses import Hurdle, Response
from ..covariance.transformation import Transformation
from ..data import rasters, spatial, tables
from ..data.arrays import checked_variable, variable_numbers
from ..data.summaries import summary, summary_html
from ..data.times import NUMBER_AXIS, TimeAxis, Times
from ..errors import GeomxpWarning, InvalidInput, check_flags, check_whole
from ..estimation.hurdle import HurdleFit
from ..estimation.result import check_fit
from ..runtime.equality import by_content
from .kriging import ENDS_OF_OBSERVATION, PARTS_OF_HURDLE, Prediction, predict, refuse_blocks
from .supports import inside, polygons_of, targets_of

if TYPE_CHECKING:
    from .._typing import (
        Any,
        ArrayLike,
        Floats,
        Frame,
        Grid,
        Mapping,
        Of,
        PathLikeText,
        Sequence,
    )
    from ..estimation.result import Fit

DEFAULT_SIDE_CELLS = 60
"""Default number of cells along the longer side."""

MOST_GRID_CELLS = 10**9
"""More cells are probably a mistake in a unit."""


MOST_LISTED_SIDE_CELLS = 2_000
"""Most cells along a side of a grid that a table lists."""

ONE_SIGMA = 0.6826894921370859
"""Probability within one standard deviation of a normal distribution."""


@by_content
@dataclass(frozen=True)
class Raster:
    """Predictions on a regular grid; NaN where a mask excludes cells.

    Parameters
    ----------
    mean, variance : (rows, columns) ndarray
        Of the noiseless field at the centres of cells, or of its averages over cells; the first
        row has the smallest second coordinate.
    extent : tuple of float
        Left, right, bottom, top.
    noise : float or None
        Variance of the noise of a new observation, the nugget; None for averages.
    names : (str, str)
        Names of the coordinates.
    value_name : str
    metric : str
    crs : str or None
        Coordinate reference system; None if it is unknown.
    length_unit : str
        Unit of the coordinates; "" if it is unknown.
    transform : Transformation or None
        Transformation of the values to the Gaussian scale.
    gaussian : ((rows, columns) ndarray, (rows, columns) ndarray) or None
        Mean and variance on the Gaussian scale, with a transformation.
    samples : (draws, rows, columns) ndarray or None
        Drawn averages over cells, with a transformation.
    response : Response, Hurdle or None
        Distribution of a new observation given the field, if it is not Gaussian.
    presence, amount : Raster or None
        For a hurdle: the probability that a value is not 0, and the mean of values that are not 0.
    time : float or None
        Time of the map, of a space-time model; a number on `axis`.
    time_name : str
    axis : TimeAxis
        Unit, origin, calendar and zone of the time.
    """

    mean: Floats
    variance: Floats
    extent: tuple[float, float, float, float]
    noise: float | None = 0.0
    names: tuple[str, str] = ("x", "y")
    value_name: str = "value"
    metric: str = "euclidean"
    crs: str | None = None
    length_unit: str = ""
    transform: Transformation | None = None
    gaussian: tuple[Floats, Floats] | None = None
    samples: Floats | None = None
    response: Response | Hurdle | None = None
    presence: Raster | None = field(default=None, repr=False)
    amount: Raster | None = field(default=None, repr=False)
    time: float | None = None
    time_name: str = "time"
    axis: TimeAxis = NUMBER_AXIS

    def __repr__(self) -> str:
        rows, columns = self.mean.shape
        left, right, bottom, top = self.extent
        x, y = self.names
        return (
            f"<Raster of {self.value_name}: {columns:,} × {rows:,} cells, {x} from {left:.6g} to "
            f"{right:.6g}, {y} from {bottom:.6g} to {top:.6g}{self._time_in_words}>"
        )

    @property
    def _time_in_words(self):
        if self.time is None:
            return ""
        return f", {self.time_name} {self.axis.in_words([self.time])[0]}"

    def __str__(self) -> str:
        return summary(*self._summary())

    def _repr_html_(self) -> str:
        return summary_html(*self._summary())

    def _summary(self):
        known = int((~np.isnan(self.mean)).sum())
        kind = "predictions at centres of cells" if self.noise is not None else "averages of cells"
        columns = dict(zip(self.names, (self.x, self.y), strict=True))
        columns |= {"mean": self.mean, "standard error": self.standard_error}
        return f"{self!r}"[1:-1] + f"\n{known:,} {kind}", columns

    @property
    def standard_error(self) -> Floats:
        """Standard error of the predicted noiseless field, (rows, columns).

        With a transformation half the width of the interval that holds the field with 68 %, since
        variances of back-transformed fields can be infinite.
        """
        if self.transform is None:
            return np.sqrt(self.variance)
        lower, upper = self.interval(ONE_SIGMA)
        return 0.5 * (upper - lower)

    @property
    def centre(self) -> Floats:
        """The values to show on a map: the mean, or with a transformation of values the median."""
        return self.mean if self.transform is None or self.response is not None else self.median

    @property
    def x(self) -> Floats:
        """First coordinate of the cells' centres, (columns,)."""
        return _centres(*self.extent[:2], self.mean.shape[1])

    @property
    def y(self) -> Floats:
        """Second coordinate of the cells' centres, (rows,), increasing."""
        return _centres(*self.extent[2:], self.mean.shape[0])

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

        # means of some transformations are infinite, those of masked cells NaN
        known = ~np.isnan(self.mean).ravel()
        results = self._prediction().to_frame(level, of)
        taken = [name for name in self.names if name in results.columns]
        if taken:
            raise InvalidInput(f"coordinate {taken[0]!r} has the name of a result: rename it.")
        locations = pd.DataFrame(self.coordinates.reshape(-1, 2), columns=list(self.names))
        if self.time is not None:
            if self.time_name in {*self.names, *results.columns}:
                raise InvalidInput(
                    f"{self.time_name!r} names the times and another column: rename one."
                )
            locations[self.time_name] = self.axis.labels([self.time])[0]
        return pd.concat([locations, results], axis=1)[known].reset_index(drop=True)

    def _prediction(self):
        """Return the cells as rows of a `Prediction`."""
        if self.presence is not None:
            return Prediction.of_hurdle(self.presence._prediction(), self.amount._prediction())
        gaussian = self.gaussian and tuple(layer.ravel() for layer in self.gaussian)
        return Prediction(
            self.coordinates.reshape(-1, 2),
            self.mean.ravel(),
            self.variance.ravel(),
            self.noise,
            transform=self.transform,
            gaussian=gaussian,
            response=self.response,
            samples=None if self.samples is None else self.samples.reshape(len(self.samples), -1),
        )

    @property
    def median(self) -> Floats:
        """Median of the predicted field, (rows, columns)."""
        return self._prediction().median.reshape(self.mean.shape)

    def probability_above(self, threshold: float, of: Of = "field") -> Floats:
        """Return the probabilities to exceed a value; see `Prediction.probability_above`."""
        return self._prediction().probability_above(threshold, of).reshape(self.mean.shape)

    def layers(
        self, level: float = 0.95, of: Of = "field", units: str = ""
    ) -> dict[str, tuple[Floats, dict[str, str]]]:
        """Return the layers of a file.

        Parameters
        ----------
        level, of :
            As of `Prediction.interval`.
        units : str
            Unit of the values.

        Returns
        -------
        dict of str to (array, dict)
            mean; for a hurdle probability_of_presence and mean_of_amount; standard_error, lower and
            upper of the field; and, except for averages, standard_error_of_observation,
            observation_lower and observation_upper. With of="observation" mean,
            standard_error_of_observation, lower_of_observation and upper_of_observation. All with
            `long_name` and `units`.
        """
        layers = {"mean": (self.mean, f"kriging mean of {self.value_name}")}
        if self.presence is not None:
            parts = self.presence, self.amount
            for name, part in zip(PARTS_OF_HURDLE, parts, strict=True):
                words = f"{name.replace('_', ' ')} of {self.value_name}"
                layers[name] = part.mean, words
        end = "_of_observation"
        if of == "observation":
            layers |= self._uncertainty(level, of, (f"lower{end}", f"upper{end}"))
        else:
            layers |= self._uncertainty(level, of, ("lower", "upper"))
            if self.noise is not None:
                layers |= self._uncertainty(level, "observation", ENDS_OF_OBSERVATION)
        found = {key: (array, {"long_name": text}) for key, (array, text) in layers.items()}
        if units:
            for key, (_, attributes) in found.items():
                attributes["units"] = "1" if key == PARTS_OF_HURDLE[0] else units
        return found

    def _uncertainty(self, level, of, ends):
        """Return (array, description) of a standard error and two bounds, named `ends`."""
        variance, end, target = self.variance, "", "field"
        if of == "observation":
            variance = self._prediction().variance_of_observation.reshape(self.mean.shape)
            end, target = "_of_observation", "new observation"
        elif self.noise is None:
            target = "field's average over a cell"
        name, interval = self.value_name, f"{100 * level:g} % interval of the {target}"
        return {
            f"standard_error{end}": (
                np.sqrt(variance),
                f"standard error of {name} predicted for the {target}",
            )
        } | {
            key: (bound, f"{side} bound of {name}, {interval}")
            for key, side, bound in zip(
                ends, ("lower", "upper"), self.interval(level, of), strict=True
            )
        }

    def to_xarray(self, level: float = 0.95, of: Of = "field", units: str = "") -> Grid:
        """Return an xarray Dataset that follows the CF conventions; parameters as of `layers`."""
        return self.on_grid(self.layers(level, of, units))

    def on_grid(
        self, layers: Mapping[str, tuple[Floats, dict[str, str]]], time: Any = None
    ) -> Grid:
        """Return layers on this grid as an xarray Dataset; see `rasters.as_dataset`."""
        return rasters.as_dataset(
            layers,
            self.x,
            self.y,
            self.names,
            attributes=self._attributes(),
            crs=self.crs,
            spherical=metric_of(self.metric).geographic,
            length_unit=self.length_unit,
            time=time or (self.time is not None and (self.time_name, self.time, self.axis)) or None,
        )

    def save(
        self, path: PathLikeText, level: float = 0.95, of: Of = "field", units: str = ""
    ) -> None:
        """Write the raster: NetCDF (.nc), GeoTIFF (.tif), or a row per cell (.csv, .parquet, …).

        Parameters
        ----------
        path : path
            A GeoTIFF has the bands of `layers`, north up. Without a coordinate reference system it
            is written with a warning: `crs` of `predict_raster` names one.
        level, of, units :
            As of `layers`.

        Raises
        ------
        InvalidInput
            If a library of the extra `geo` is not installed.
        GeomxpError
            If the file cannot be written; an existing file of this name is unchanged.
        """
        suffix = Path(path).suffix.lower()
        if suffix in tables.GRID_ENDINGS:
            tables.write_frame(self.to_xarray(level, of, units), path)
        elif suffix in rasters.GEOTIFF_ENDINGS:
            layers = self.layers(level, of, units)
            tags = self._attributes()
            if self.time is not None:
                tags |= {self.time_name: self.axis.in_words([self.time])[0]}
            if self.crs is None:
                warnings.warn(
                    f"{path}: is written without a coordinate reference system, because the "
                    'observations have none. Name it with gx.predict_raster(fit, crs="EPSG:…") '
                    "(geomxp predict --crs).",
                    GeomxpWarning,
                    stacklevel=2,
                )
            rasters.write_geotiff(path, layers, self.extent, crs=self.crs, tags=tags)
        else:
            frame = self.to_frame(level, of)
            if suffix in tables.VECTOR_ENDINGS:
                geopandas = spatial.library("geopandas")
                system = None if self.crs is None else spatial.describe(self.crs).name
                points = geopandas.points_from_xy(*(frame[n] for n in self.names), crs=system)
                frame = geopandas.GeoDataFrame(frame, geometry=points)
            tables.write_frame(frame, path)

    def _attributes(self):
        return {"title": f"Kriging of {self.value_name}", "source": f"geomxp {__version__}"}


@by_content
@dataclass(frozen=True)
class RasterSeries:
    """Predictions on one regular grid at several times.

    Parameters
    ----------
    rasters : tuple of Raster
        One for each time.
    times : (t,) ndarray
        In the unit and from the origin of the observations' times.
    name : str
        Name of the time coordinate.
    axis : TimeAxis
        Unit, origin, calendar and zone of the times.
    """

    rasters: tuple[Raster, ...]
    times: Floats
    name: str = "time"
    axis: TimeAxis = NUMBER_AXIS

    def __len__(self) -> int:
        return len(self.rasters)

    def __getitem__(self, k: int) -> Raster:
        return self.rasters[k]

    def __repr__(self) -> str:
        first, (rows, columns) = self.rasters[0], self.rasters[0].mean.shape
        ends = " to ".join(str(when) for when in (self.dates[0], self.dates[-1]))
        return (
            f"<RasterSeries of {first.value_name}: {columns:,} × {rows:,} cells at {len(self):,} "
            f"times, {self.name} {ends}>"
        )

    @property
    def dates(self) -> Any:
        """The times as dates if they have an origin, (t,), or `times`; see `TimeAxis.dates`."""
        return self.axis.dates(self.times)

    def to_frame(self, level: float = 0.95, of: Of = "field") -> Frame:
        """Return a pandas frame of all cells and times; see `Raster.to_frame`."""
        import pandas as pd

        return pd.concat([raster.to_frame(level, of) for raster in self.rasters], ignore_index=True)

    def to_xarray(self, level: float = 0.95, of: Of = "field", units: str = "") -> Grid:
        """Return an xarray Dataset (time, y, x) that follows the CF conventions.

        Parameters are those of `Raster.layers`.
        """
        first, each = self.rasters[0], [raster.layers(level, of, units) for raster in self.rasters]
        layers = {
            name: (np.stack([layers[name][0] for layers in each]), attributes)
            for name, (_, attributes) in each[0].items()
        }
        return first.on_grid(layers, (self.name, self.times, self.axis))

    def save(
        self, path: PathLikeText, level: float = 0.95, of: Of = "field", units: str = ""
    ) -> None:
        """Write all rasters: NetCDF (.nc), or a row per cell and time (.csv, .parquet).

        Raises
        ------
        InvalidInput
            For a GeoTIFF and vector files, which hold one time; if a library of the extra `geo` is
            not installed.
        GeomxpError
            If the file cannot be written; an existing file of this name is unchanged.
        """
        check_holds_series(path)
        if Path(path).suffix.lower() in tables.GRID_ENDINGS:
            tables.write_frame(self.to_xarray(level, of, units), path)
        else:
            tables.write_frame(self.to_frame(level, of), path)


def check_holds_series(path: PathLikeText) -> None:
    """Raise `InvalidInput` if a file with this ending cannot hold maps of several times."""
    if Path(path).suffix.lower() in (*rasters.GEOTIFF_ENDINGS, *tables.VECTOR_ENDINGS):
        raise InvalidInput(
            f"{path}: can hold one time only: write NetCDF (.nc), or a file for each time."
        )


def times_in(fit: Fit, places: Any) -> Floats | None:
    """Return the distinct times in a table of places, increasing; None if it has none."""
    seen = fit.observations
    if seen.time is None or not spatial.is_frame(places) or seen.time_name not in places:
        return None
    return np.unique(targets_of(fit, places)[0].time)


def raster_at(
    fit: Fit,
    places: Any,
    *,
    time: ArrayLike | None = None,
    variable: int | str | None = None,
    progress: bool = True,
) -> Raster | RasterSeries:
    """Predict at the cells of a regular grid that a table lists; a missing cell is NaN.

    Parameters
    ----------
    fit : Fit
        Of locations in the plane.
    places : frame
        Columns of the coordinates, which are equally spaced, and of the trend's covariates. With a
        column of the times it has a row for each cell and time.
    time : increasing sequence, optional
        Times of the maps of a space-time model: of a table with times some of these, and all of
        them if not given.
    variable : str or int, optional
        The variable that the map shows, for a multivariate model.
    progress : bool

    Returns
    -------
    Raster, or for a space-time model a RasterSeries

    Raises
    ------
    InvalidInput
        If the locations are not in the plane, or not those of a regular grid; if the table has no
        times, and covariates of the trend change with time; if the table lacks one of the times.
    """
    seen = fit.observations
    if seen.dimensions != 2:
        raise InvalidInput(f"a map needs locations in the plane. Got {seen.dimensions} dimensions.")
    listed = times_in(fit, places)
    time = listed if time is None else _checked_times(time, seen)
    if seen.variable is not None:
        name = _mapped_variable(seen, variable)
        if time is not None:
            raise InvalidInput(
                "a table of places for maps of several times is for one variable: use "
                "gx.predict with a column of the times."
            )
    if time is None:
        prediction = predict(fit, places, variable=variable, progress=progress)
        raster, cells = _cells_of(fit, prediction.locations)
        raster = raster if seen.variable is None else replace(raster, value_name=name)
        return _filled(raster, cells, prediction, slice(None))
    if listed is None:
        _check_constant_in_time(fit)
    first = Times(time[0], seen.time_axis) if listed is None else None
    inputs, covariates, _ = targets_of(fit, places, time=first)
    rows = [np.flatnonzero((listed is None) | (inputs.time == when)) for when in time]
    for when, known in zip(time, rows, strict=True):
        if not len(known):
            raise InvalidInput(
                f"the table of places has no row of the time {when:g}: its times lie between "
                f"{listed[0]:g} and {listed[-1]:g}."
            )
    raster, cells = _cells_of(fit, inputs.locations)
    every, ends = np.concatenate(rows), np.cumsum([0, *map(len, rows)])
    prediction = predict(
        fit,
        replace(inputs[every], time=np.repeat(time, np.diff(ends))),
        None if covariates is None else covariates.iloc[every].reset_index(drop=True),
        progress=progress,
    )
    maps = [
        _filled(_at_time(raster, seen, when), tuple(cells[:, known]), prediction, slice(*part))
        for when, known, part in zip(time, rows, pairwise(ends), strict=True)
    ]
    return RasterSeries(tuple(maps), time, seen.time_name, seen.time_axis)


def _at_time(raster, observations, time):
    """Return a raster with its time, a number on the axis of the observations."""
    return replace(
        raster, time=float(time), time_name=observations.time_name, axis=observations.time_axis
    )


def _check_constant_in_time(fit):
    """Raise `InvalidInput` if covariates of the trend differ between times at one location."""
    seen = fit.observations
    if not fit.trend.needs or seen.covariates is None:
        return
    place = np.unique(seen.inputs.points, axis=0, return_inverse=True)[1].reshape(-1)
    first = np.unique(place, return_index=True)[1][place]
    differ = (seen.covariates != seen.covariates[first]).any(axis=0)
    changing = [
        name
        for name, change in zip(seen.covariate_names, differ, strict=True)
        if change and name in fit.trend.needs
    ]
    if changing:
        raise InvalidInput(
            f"covariates of the trend change with time at one location ({', '.join(changing)}): "
            f"the table of places needs the column {seen.time_name!r} and a row for each cell and "
            "time."
        )


def _noise_of(model):
    """Return the variance of the noise of a new observation on the Gaussian scale."""
    response = model.response
    if response is None or response.normal_noise is None:
        return model.nugget
    return model.nugget + response.normal_noise


def _cells_of(fit, locations):
    """Return a raster without numbers and the row and column of each location, (2, n)."""
    seen, at, ends, sides = fit.observations, [], [], []
    middle = metric_of(seen.metric).branch_of(locations)[1]
    if middle is not None:
        moved = near_meridian(locations[:, 0], middle)
        moved = moved + turn_to(seen, moved.min(), moved.max())
        locations = np.column_stack((moved, locations[:, 1]))
    for name, x in zip(seen.location_names, locations.T, strict=True):
        known = np.unique(x)
        side = float(np.diff(known).min()) if len(known) > 1 else 0.0
        steps = (x - known[0]) / side if side else np.full(len(x), 0.5)
        cells = np.rint(steps).astype(int)
        if np.abs(steps - cells).max() > 0.01 or cells.max() >= MOST_LISTED_SIDE_CELLS:
            raise InvalidInput(
                f"the places of a map must be those of a regular grid. Column {name!r} is not "
                f"equally spaced with at most {MOST_LISTED_SIDE_CELLS:,} cells; cells may be "
                "missing."
            )
        at.append(cells)
        ends += [float(known[0]) - side / 2, float(known[-1]) + side / 2]
        sides.append(int(cells.max()) + 1)
    empty = np.full(sides[::-1], np.nan)
    raster = Raster(
        empty,
        empty,
        tuple(ends),
        noise=_noise_of(fit.model),
        names=seen.location_names,
        value_name=seen.value_name,
        metric=seen.metric,
        crs=seen.system,
        length_unit=seen.length_unit,
    )
    return raster, np.array(at[::-1])


def predict_raster(
    fit: Fit | HurdleFit,
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
    time: ArrayLike | None = None,
    variable: int | str | None = None,
    crs: str | None = None,
    progress: bool = True,
) -> Raster | RasterSeries:
    """Predict on a regular grid, at one time or several.

    Parameters
    ----------
    fit : Fit or HurdleFit
        Of locations in the plane, or on the Earth, whose trend needs no covariates.
    cells : int, optional
        Number of cells along the longer side; cells are (nearly) square. 60 if no argument gives
        their size.
    resolution : float, optional
        Side of a cell, in units of the coordinates. Without `bounds` the cells begin at multiples
        of it.
    bounds : (float, float, float, float), optional
        Left, bottom, right, top; the bounding box of the observations if not given. They are
        extended to the right and to the top to a multiple of the resolution.
    like : path, optional
        Raster file (GeoTIFF, NetCDF) whose cells are used.
    mask : (rows, columns) array_like of bool, path, or polygons, optional
        Where to predict: True, rows from the bottom up; cells of a raster file with a value other
        than 0; centres within polygons (arrays of corners, shapely polygons, a geopandas frame).
    block : bool
        Predict averages over cells, not the field at their centres.
    discretisation, neighbours, local_trend, progress : optional
        As of `geomxp.predict`.
    time : number, date or increasing sequence of these, optional
        Time of the map, as of `geomxp.predict`; with several times there is a map of each.
    variable : str or int, optional
        The variable that the map shows, for a multivariate model.
    crs : str, optional
        Coordinate reference system of the observations' coordinates, for a fit that has none:
        "EPSG:28992".

    Returns
    -------
    Raster, or a RasterSeries for a sequence of times

    Raises
    ------
    InvalidInput
        If the locations do not span a plane, or if the trend needs covariates; for a `crs` that is
        not the fit's own, or cannot be that of its coordinates.

    Notes
    -----
    `bounds` of longitude are moved by 360 degrees to where they overlap the observations, and go
    across the date line if the left one exceeds the right one: (176, -19, -177, -15) is 7 degrees
    wide. A mask may have its longitudes in -180 to 180 or in 0 to 360.

    Examples
    --------
    >>> import geomxp as gx
    >>> observations = gx.Observations([[0, 0], [4, 0], [4, 2], [0, 2]], [1.0, 2.0, 3.0, 5.0])
    >>> model = gx.Matern(1.0, 1.0, 0.5)
    >>> fit = gx.fit(observations, model, fixed=tuple(model.parameters()))
    >>> raster = predict_raster(fit, cells=8)
    >>> raster.mean.shape, raster.extent
    ((4, 8), (0.0, 4.0, 0.0, 2.0))
    """
    _check_can_be_mapped(fit)
    check_flags(block=block, local_trend=local_trend)
    fit = in_system(fit, crs)
    observations, hurdle = fit.observations, isinstance(fit, HurdleFit)
    if block and hurdle:
        refuse_blocks()
    name = observations.value_name
    if observations.variable is not None:
        name = _mapped_variable(observations, variable)
    for part in fit.parts.values() if hurdle else (fit,):
        trend = part.trend
        if observations.variable is not None:
            trend = trend.each.get(observations.variable_labels.index(name), trend)
        _check_no_covariates(trend)
    extent, shape, crs = _grid_of(observations, cells, resolution, bounds, like)
    raster = Raster(
        np.full(shape, np.nan),
        np.full(shape, np.nan),
        extent,
        noise=None,
        names=observations.location_names,
        value_name=name,
        metric=observations.metric,
        crs=crs,
        length_unit=observations.length_unit,
    )
    known = _mask_of(mask, raster, observations)
    several = isinstance(time, Times) or np.ndim(time) > 0
    if time is not None:
        time = _checked_times(time if several else [time], observations)
    options = {
        "discretisation": discretisation,
        "neighbours": neighbours,
        "local_trend": local_trend,
        "variable": variable,
        "progress": progress,
    }
    if hurdle:
        parts = (_maps(part, raster, known, time, block, options) for part in fit.parts.values())
        maps = [_product(*each) for each in zip(*parts, strict=True)]
    else:
        maps = _maps(fit, raster, known, time, block, options)
    if not several:
        return maps[0]
    return RasterSeries(tuple(maps), time, observations.time_name, observations.time_axis)


def _maps(fit, raster, known, time, block, options):
    """Return the maps of one model at all times, or without times, in the cells that are `known`.

    `options` are arguments of `predict`.
    """
    observations, (left, right, bottom, top) = fit.observations, raster.extent
    rows, columns = raster.mean.shape
    sides = (right - left) / columns, (top - bottom) / rows
    if not block and observations.variable is None:
        raster = replace(raster, noise=_noise_of(fit.model))
    places, cells = raster.coordinates[known], int(known.sum())
    if observations.geographic:
        # cells of a map across 360 degrees
        beyond = np.abs(places[:, 0]) > 360
        places[beyond, 0] %= 360
    if time is not None:
        places, when = np.tile(places, (len(time), 1)), np.repeat(time, cells)
        options = options | {"time": Times(when, observations.time_axis)}
    prediction = predict(fit, places, block=sides if block else None, **options)
    if time is None:
        return [_filled(raster, np.nonzero(known), prediction, slice(None))]
    return [
        _filled(
            _at_time(raster, observations, when),
            np.nonzero(known),
            prediction,
            slice(k * cells, (k + 1) * cells),
        )
        for k, when in enumerate(time)
    ]


def _product(presence, amount):
    """Return the map of a hurdle from those of its parts."""
    both = Prediction.of_hurdle(presence._prediction(), amount._prediction())
    shape = amount.mean.shape
    return replace(
        amount,
        mean=both.mean.reshape(shape),
        variance=both.variance.reshape(shape),
        transform=None,
        gaussian=None,
        response=both.response,
        presence=presence,
        amount=amount,
    )


def in_system(fit: Fit | HurdleFit, crs: str | None) -> Fit | HurdleFit:
    """Return a fit whose coordinates are in the system `crs`, for a fit that has none.

    Raises
    ------
    InvalidInput
        If the fit has another system, or its coordinates are in another unit, or they are not
        longitude and latitude and `crs` is geographic.
    """
    if crs is None:
        return fit
    if isinstance(fit, HurdleFit):
        known = {name: in_system(part, crs) for name, part in fit.parts.items()}
        return replace(fit, **known, observations=_in_system(fit.observations, crs))
    return replace(fit, observations=_in_system(fit.observations, crs))


def _in_system(seen, crs):
    system = spatial.describe(crs)
    if seen.system is not None:
        if spatial.same(seen.system, crs):
            return seen
        raise InvalidInput(
            f"`crs` (--crs) must be left out, because the fit's coordinates are in "
            f"{spatial.title(seen.system)}. Got {system.name:.40}: reproject the result instead."
        )
    if seen.length_unit not in ("", system.unit):
        raise InvalidInput(
            f"`crs` (--crs) must be a system in the unit of the fit's coordinates, "
            f"{seen.length_unit}. Got {system.name:.40}, in {system.unit}."
        )
    if system.geographic and (np.abs(seen.locations).max(axis=0) > [360, 90]).any():
        raise InvalidInput(
            "`crs` (--crs) must be a projected system, because the fit's coordinates are not "
            f"longitude and latitude. Got {system.name:.40}."
        )
    unit = "" if system.geographic else system.unit
    return replace(seen, crs=system.name, length_unit=unit)


def _mapped_variable(observations, variable):
    """Return the name of the variable that a map shows."""
    labels = observations.variable_labels
    if variable is None or np.ndim(variable):
        example = repr(observations.variable_names[0]) if observations.variable_names else "0"
        raise InvalidInput(
            f"a map shows one variable of {', '.join(labels)}. Got {variable!r:.60}: give "
            f"variable={example} (--variable)."
        )
    return labels[int(checked_variable(variable_numbers(variable, labels), 1, labels)[0])]


def _checked_times(time, observations):
    """Return times as increasing numbers on the axis of the observations."""
    if observations.time is None:
        raise InvalidInput("the observations have no times: leave `time` out.")
    if not isinstance(time, Times) and (np.ndim(time) != 1 or not len(time)):
        raise InvalidInput(
            f"`time` must be one time or a sequence of them. Got shape {np.shape(time)}."
        )
    numbers = observations.time_axis.numbers(time)
    try:
        numbers = np.asarray(numbers, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput("`time` must hold numbers or dates.") from None
    if (np.diff(numbers) <= 0).any():
        raise InvalidInput("the times of a series of maps must increase: sort `time`.")
    return numbers


def _filled(raster, at, prediction, rows):
    """Return a raster with some rows of a prediction in the cells of these rows and columns."""

    def layer(values):
        cells = np.full((*values.shape[:-1], *raster.mean.shape), np.nan)
        cells[(..., *at)] = values[..., rows]
        return cells

    filled = replace(
        raster,
        mean=layer(prediction.mean),
        variance=layer(prediction.variance),
        transform=prediction.transform and prediction.transform.of_rows(rows),
        response=prediction.response,
    )
    if prediction.variable is not None and prediction.noise is not None:
        # that of the variable
        filled = replace(filled, noise=float(np.ravel(prediction.noise)[0]))
    if prediction.transform is None:
        return filled
    if prediction.samples is not None:
        return replace(filled, samples=layer(prediction.samples))
    return replace(filled, gaussian=tuple(map(layer, prediction.gaussian)))


def _check_can_be_mapped(fit):
    if not isinstance(fit, HurdleFit):
        check_fit(fit)
    d = fit.observations.dimensions
    if d != 2 or not np.ptp(fit.observations.locations, axis=0).all():
        raise InvalidInput(
            "a map of predictions needs locations that span a plane. "
            f"Got {'a line' if d == 2 else f'{d} coordinate(s)'}: use geomxp.predict."
        )


def _check_no_covariates(trend):
    if trend.needs:
        raise InvalidInput(
            f"a map of predictions needs the covariates {', '.join(trend.needs)} everywhere, "
            "and they are known at the observations only: give locations that have them, a table "
            "or a grid (geomxp.predict)."
        )


# The grid


def _grid_of(observations, cells, resolution, bounds, like):
    """Return the extent, the shape and the CRS of the grid that a caller describes."""
    system = observations.system
    if like is not None:
        if not cells is resolution is bounds is None:
            raise InvalidInput("`like` gives the cells: leave out cells, resolution and bounds.")
        extent, shape, crs = rasters.read_cells(like)
        _check_same_system(like, crs, system)
        system = system or crs
    else:
        if cells is not None and resolution is not None:
            raise InvalidInput("give only one of `cells` and `resolution`.")
        low, high = _box(observations, bounds)
        if resolution is None:
            extent, shape = _divided(low, high, DEFAULT_SIDE_CELLS if cells is None else cells)
        else:
            extent, shape = _stepped(low, high, resolution, aligned=bounds is None)
    if observations.geographic:
        half = (extent[3] - extent[2]) / shape[0] / 2
        if extent[2] + half < -90 or extent[3] - half > 90:
            raise InvalidInput(f"a map cannot reach over a pole. Got latitudes {extent[2:]}.")
    return extent, shape, system


def _check_same_system(path, crs, known):
    """Raise `InvalidInput` if a raster file has another system than the observations."""
    if None not in (crs, known) and not spatial.same(crs, known):
        raise InvalidInput(
            f"{path}: is in {spatial.title(crs)}, the observations in {spatial.title(known)}: "
            "warp the raster."
        )


def _box(observations, bounds):
    """Return the lower left and the upper right corner."""
    if bounds is None:
        return observations.locations.min(axis=0), observations.locations.max(axis=0)
    try:
        left, bottom, right, top = (float(number) for number in bounds)
    except (TypeError, ValueError, OverflowError):
        left = bottom = right = top = np.nan
    if observations.geographic and left > right and np.isfinite([left, right]).all():
        # across the date line
        right += 360 * np.ceil((left - right) / 360)
    if not (left < right and bottom < top and np.isfinite([left, bottom, right, top]).all()):
        raise InvalidInput(
            "`bounds` must be left, bottom, right and top, the first two less than the others. "
            f"Got {bounds!r}."
        )
    turn = turn_to(observations, left, right)
    return np.array([left + turn, bottom]), np.array([right + turn, top])


def turn_to(observations, left, right):
    """Return the whole turns in degrees that move longitudes to those of the observations."""
    if observations.central_meridian is None:
        return 0.0
    longitudes = observations.locations[:, 0]
    return turn_towards(left, right, (longitudes.min(), longitudes.max()))


def _divided(low, high, cells):
    """Divide a box into this many cells along its longer side."""
    check_whole("cells", cells, 2)
    return _checked(low, high, _counts(low, high, int(cells)))


def _counts(low, high, cells):
    """Return the number of (nearly) square cells along each side of a box."""
    width = (high - low).max() / cells
    return np.maximum(np.round((high - low) / width), 1)


def _stepped(low, high, resolution, aligned):
    """Cover a box with cells of a given side."""
    if not (isinstance(resolution, Real) and np.isfinite(resolution) and resolution > 0):
        raise InvalidInput(f"`resolution` must be a number greater than 0. Got {resolution!r}.")
    if aligned:
        low = np.floor(low / resolution) * resolution
    # a remainder due to rounding is not a cell
    counts = np.maximum(np.ceil((high - low) / resolution - 1e-6), 1)
    return _checked(low, low + counts * resolution, counts)


def _checked(low, high, counts):
    """Return the extent and the shape (rows, columns) of a grid that is not too large."""
    if counts.prod() > MOST_GRID_CELLS:
        raise InvalidInput(
            f"the grid must have at most {MOST_GRID_CELLS:.0e} cells. Got {counts.prod():.3g}: use "
            "larger cells."
        )
    extent = tuple(float(bound) for bound in (low[0], high[0], low[1], high[1]))
    return extent, (int(counts[1]), int(counts[0]))


def _mask_of(mask, raster, observations):
    """Return where to predict, (rows, columns) of bool; see `predict_raster`.

    Polygons of a geopandas frame are reprojected; a raster file must have the system of the
    observations, if both are known.
    """
    shape = raster.mean.shape
    if mask is None:
        return np.ones(shape, dtype=bool)
    if isinstance(mask, (str, Path)):
        known, crs = rasters.read_mask(mask, raster.x, raster.y, observations.geographic)
        _check_same_system(mask, crs, observations.system)
    elif _is_truth(mask):
        known = np.asarray(mask)
        if known.shape != shape:
            raise InvalidInput(f"`mask` must have shape {shape}. Got {known.shape}.")
    else:
        centres = raster.coordinates.reshape(-1, 2)
        polygons = polygons_of(mask, observations, "mask")
        # a polygon may be given in -180 to 180 degrees, and the map in 0 to 360
        turns = (0.0, 360.0, -360.0) if metric_of(observations.metric).turns else (0.0,)
        known = np.zeros(len(centres), dtype=bool)
        for turn in turns:
            turned = centres + np.array([turn, 0.0])
            for polygon in polygons:
                known |= inside(polygon, turned)
        known = known.reshape(shape)
    if not known.any():
        raise InvalidInput("`mask` leaves no cell to predict.")
    return known


def _is_truth(mask):
    """Whether an array or nested lists hold truth values."""
    try:
        return np.asarray(mask).dtype.kind == "b"
    except ValueError:
        return False


def _centres(low, high, count):
    return low + (np.arange(count) + 0.5) * (high - low) / count


def grid_over(observations, cells):
    """Return the centres (m, d) of a regular grid over the bounding box of the observations.

    `cells` is the number along the longest side; cells are (nearly) square.
    """
    low, high = _box(observations, None)
    axes = [_centres(*ends) for ends in zip(low, high, _counts(low, high, cells), strict=True)]
    # the first coordinate varies fastest, as in a raster
    mesh = np.meshgrid(*axes[::-1], indexing="ij")
    return np.column_stack([axis.ravel() for axis in mesh[::-1]])
