"""Observations: locations, values and covariates, with the metric between locations."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypedDict, Unpack

import numpy as np

from ..covariance.distance import Metric, metric_of
from ..covariance.inputs import Inputs
from ..errors import GeomxpWarning, InvalidInput, check_one_of, did_you_mean
from ..runtime.equality import by_content
from . import checks, readers, spatial, tables, times
from .formula import Formula
from .labels import aligned, labels_of
from .names import in_python, option

if TYPE_CHECKING:
    import geopandas
    import pandas
    import xarray

    from .._typing import (
        Any,
        ArrayLike,
        DataArray,
        Document,
        Floats,
        Frame,
        Grid,
        Mapping,
        PathLikeText,
        Sequence,
        Whole,
    )

NewLocations: TypeAlias = (
    "ArrayLike | Inputs | Observations | pandas.DataFrame | geopandas.GeoDataFrame"
    " | geopandas.GeoSeries | xarray.DataArray | xarray.Dataset"
)
"""New locations: coordinates, or an object that holds them."""

LEAST_LOCATIONS = 3
"""Fewest locations of observations."""


class TableColumns(TypedDict, total=False):
    """Columns of a table or grid, as of `Observations.from_frame`."""

    values: str | Sequence[str] | None
    locations: Sequence[str] | None
    covariates: Sequence[str]
    formula: str | Sequence[str] | None
    metric: str | None
    drop_missing: bool
    crs: str | None
    time: str | None
    variable: str | None
    error_variance: str | Sequence[str | None] | None
    missing: float | Sequence[float]
    duplicates: str | None
    value_unit: str | None


EXTRA_COLUMNS = ("time", "variable", "error_variance", "replicates")
"""Optional columns of observations, with one number for each value."""

DUPLICATES = ("keep", "drop", "mean", "error")
"""What is done with rows at the location (time and variable) of an earlier row."""

LARGEST_DATUM_SHIFT_DEGREES = 0.02
"""Degrees by which coordinates of one place differ at most between datums."""

MISSING_ADVICE = "drop them (--drop-missing)"
"""Remedy for rows with missing numbers."""

LENGTH_SYMBOLS = {"metre": "m", "kilometre": "km"}
"""Symbols of units of length."""


@by_content
@dataclass(frozen=True)
class Observations:
    """Values at locations.

    Parameters
    ----------
    locations : (n, d) array_like
        Coordinates, d = 1, 2 or 3, in one unit of length; (longitude, latitude) in degrees for
        the two spherical metrics, whose unit of length is the km.
    values : (n,) array_like
    covariates : (n, p) array_like or frame, optional
        Numbers; columns of text in a pandas frame are stored as codes of their levels.
    metric : {"euclidean", "chordal", "great-circle"} or Metric
        "chordal" is the straight-line distance through the Earth. Use it for longitude and
        latitude: all families are valid covariances for it.
    location_names, value_name, covariate_names : optional
        Names for tables and figures.
    levels : dict of str to tuple of str, optional
        Levels of the covariates of text, in the order of their codes 0, 1, …
    source : dict, optional
        Origin of the table, as `geomxp.read_table` records it.
    crs : str, optional
        Coordinate reference system of the locations: "EPSG:28992", or WKT.
    length_unit : str, optional
        Unit of the locations, such as "metre", for tables and figures.
    value_unit : str, optional
        Unit of the values, such as "mg/kg", for tables and figures.
    time : (n,) array_like, optional
        Time of each observation, for space-time families: a number in any unit, or a date, which
        becomes a number of `time_unit` since `time_origin`. Ranges in time have this unit.
    variable : (n,) array_like of int or str, optional
        Variable that each value belongs to, for multivariate families: its number, from 0, or its
        name. Without `variable_names` names are numbered in order of appearance, and codes other
        than 0, 1, …, such as 10 and 20, become names in increasing order.
    variable_names : tuple of str, optional
        Names of the variables in the order of their numbers, such as ("zinc", "lead"); ignored
        without `variable`.
    time_unit : str, optional
        Unit of the times, for tables and figures; of dates one of "second", "minute", "hour",
        "day" and "year" (365.25 days), chosen by their span if not given.
    time_origin : str, optional
        Date and hour from which dates are counted, in UTC if they have a time zone; the first day
        if not given.
    time_calendar : str, optional
        CF calendar of the dates: "noleap", "all_leap", "360_day" or "julian"; "" for the Gregorian
        one. Dates of cftime have their own.
    time_zone : str, optional
        Time zone of the dates, such as "Europe/Paris". If not given, the zone of the dates
        themselves, "" if they have none.
    central_meridian : float, optional
        Longitude in degrees in the middle of the branch: `locations` holds longitudes within 180
        degrees of it. If not given, the branch is the shortest one that holds all locations, so
        that stations at 179 and -179 are stored at 179 and 181; subsets keep it. It is None for
        locations all round the globe, which have no shortest branch, and for other metrics.
    time_name, variable_name, error_variance_name : str
        Names for tables, and of the columns that `predict` reads from a frame.
    error_variance : (n,) array_like, optional
        Known variance of the measurement error of each value (the square of its standard error),
        at least 0, in addition to the nugget of the model.
    replicates : (n,) array_like, optional
        Number of measurements averaged into each value, or any positive weight. The nugget of the
        value is the model's nugget divided by this number.
    row_labels : pandas.Index, optional
        Labels of the rows, by which Series beside the observations are matched; those of the
        locations or the values if not given.

    Raises
    ------
    InvalidInput
        For fewer than 3 locations, shapes that do not match, NaN or infinite numbers (their count
        and the first row are given), latitudes outside ±90, numbers of variables that are not
        whole numbers from 0, or names of variables that are not among `variable_names`; for frames
        and Series whose row labels are not those of the locations.

    Notes
    -----
    Frames and Series are matched by the labels of their rows, in any order; arrays and lists by
    position. `series.to_numpy()` has no labels.

    Examples
    --------
    >>> observations = Observations([[0, 0], [1, 0], [0, 2]], [1.0, 2.0, 3.0])
    >>> len(observations), observations.dimensions, observations.location_names
    (3, 2, ('x', 'y'))

    Two variables, the second one measured at two of the locations:

    >>> places, element = [[0, 0], [1, 0], [0, 2], [0, 0], [1, 0]], ["zinc"] * 3 + ["lead"] * 2
    >>> Observations(places, [1.0, 2.0, 3.0, 0.5, 0.7], variable=element)
    <Observations of 2 variables (zinc 3, lead 2) at 3 locations (x, y), euclidean distances in \
units of the locations>
    """

    locations: Floats
    values: Floats
    covariates: Floats | None = None
    metric: str | Metric = "euclidean"
    location_names: tuple[str, ...] = ()
    value_name: str = "value"
    covariate_names: tuple[str, ...] = ()
    source: Document = field(default_factory=dict, compare=False)
    levels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    crs: str | None = None
    length_unit: str = ""
    time: Floats | None = None
    variable: Whole | None = None
    time_name: str = "time"
    variable_name: str = "variable"
    error_variance: Floats | None = None
    replicates: Floats | None = None
    error_variance_name: str = "error_variance"
    value_unit: str = ""
    time_unit: str = ""
    time_origin: str = ""
    variable_names: tuple[str, ...] = ()
    time_calendar: str = ""
    time_zone: str = ""
    central_meridian: float | None = None
    row_labels: Any = field(default=None, repr=False, compare=False)

    if TYPE_CHECKING:
        # the fields hold the validated arguments
        def __init__(
            self,
            locations: ArrayLike,
            values: ArrayLike,
            covariates: ArrayLike | Frame | None = None,
            metric: str | Metric = "euclidean",
            location_names: Sequence[str] = (),
            value_name: str = "value",
            covariate_names: Sequence[str] = (),
            source: Document = ...,
            levels: Mapping[str, Sequence[str]] = ...,
            crs: str | None = None,
            length_unit: str = "",
            time: ArrayLike | None = None,
            variable: ArrayLike | None = None,
            time_name: str = "time",
            variable_name: str = "variable",
            error_variance: ArrayLike | None = None,
            replicates: ArrayLike | None = None,
            error_variance_name: str = "error_variance",
            value_unit: str = "",
            time_unit: str = "",
            time_origin: str = "",
            variable_names: Sequence[str] = (),
            time_calendar: str = "",
            time_zone: str = "",
            central_meridian: float | None = None,
            row_labels: Any = None,
        ) -> None: ...

    def __post_init__(self):
        self._match_rows()
        metric = metric_of(self.metric)
        texts = ("value_name", "crs", "length_unit", "time_name", "variable_name")
        about_time = "time_unit", "time_origin", "time_calendar", "time_zone"
        for name in (*texts, "error_variance_name", "value_unit", *about_time):
            text = getattr(self, name)
            if not (isinstance(text, str) or (name == "crs" and text is None)):
                raise InvalidInput(f"`{name}` must be text. Got {text!r:.60}.")
        for name in ("location_names", "covariate_names", "variable_names"):
            object.__setattr__(self, name, _names(name, getattr(self, name)))
        locations = checked_locations(
            self.locations, self.metric, self.location_names, MISSING_ADVICE
        )
        values = _as_numbers(self.values, "values")
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.shape != (len(locations),):
            raise InvalidInput(
                f"`values` must hold one number for each of the {len(locations)} locations. "
                f"Got shape {values.shape}."
            )
        if len(locations) < LEAST_LOCATIONS:
            raise InvalidInput(
                f"at least {LEAST_LOCATIONS} locations are needed. Got {len(locations)}."
            )
        check_finite(values[:, None], (self.value_name,), "values", MISSING_ADVICE)
        put = object.__setattr__
        locations, meridian = _on_branch(locations, metric, self.central_meridian)
        put(self, "central_meridian", meridian)
        put(self, "locations", _read_only(locations))
        put(self, "values", _read_only(values))
        if self.time is not None:
            time, axis = times.as_numbers(self.time, self.time_axis)
            put(self, "time", _read_only(_one_for_each(time, "time", len(locations))))
            for name in about_time:
                put(self, name, getattr(axis, name.removeprefix("time_")))
        self._check_variable_names()
        if self.variable is not None:
            names, numbers = self.variable_names, self.variable
            if not names or _is_text(numbers):
                names = names or names_of_variables(numbers)
                numbers = variable_numbers(numbers, names)
            put(self, "variable_names", names)
            put(self, "variable", _read_only(checked_variable(numbers, len(locations), names)))
        if self.error_variance is not None:
            error = _checked_error_variance(self.error_variance, len(locations))
            put(self, "error_variance", _read_only(error))
        if self.replicates is not None:
            put(self, "replicates", _read_only(_checked_replicates(self.replicates, len(values))))
        if self.covariates is not None:
            put(self, "covariates", _read_only(self._checked_covariates(len(locations))))
        names = self.location_names or _default_names(self.metric, locations.shape[1])
        put(self, "location_names", tuple(names))
        named = ("time", "variable", "error_variance")
        extra = [name for name in named if getattr(self, name) is not None]
        used = [*names, *(getattr(self, f"{name}_name") for name in extra)]
        if len(set(used)) < len(used):
            what = ", ".join(["coordinates", *extra])
            raise InvalidInput(f"{what} must be different columns. Got {', '.join(used)}.")
        if metric.embedding is None and _looks_like_degrees(self.locations, names):
            warnings.warn(
                f"the coordinates {', '.join(names)} look like longitude and latitude in degrees, "
                'but metric="euclidean" gives a degree the same length everywhere: use '
                'metric="chordal", which measures km.',
                GeomxpWarning,
                stacklevel=4,
            )

    def _match_rows(self):
        """Put the rows of all columns into the order of the labels, and keep these."""
        put, labels = object.__setattr__, labels_of(self.locations)
        names = ("values", "covariates", *EXTRA_COLUMNS)
        columns = {name: getattr(self, name) for name in names}
        own = self.row_labels if labels is None else labels
        for name, column in zip(names, aligned(own, **columns), strict=True):
            put(self, name, column)
        own = labels_of(self.values) if own is None else own
        try:
            matches = own is not None and len(own) == len(self.locations)
        except TypeError:
            # without rows: refused later
            matches = False
        put(self, "row_labels", own if matches else None)

    def _check_variable_names(self):
        names = self.variable_names
        if self.variable is None:
            # as of replace(observations, variable=None)
            object.__setattr__(self, "variable_names", ())
        elif len(set(names)) < len(names):
            raise InvalidInput(f"`variable_names` must be different. Got {few(names, 8)}.")

    def _checked_covariates(self, n):
        put, given = object.__setattr__, self.covariates
        if spatial.is_kind(given, "pandas", "DataFrame"):
            names = tuple(map(str, given.columns))
            given, levels = tables.encode(given.set_axis(names, axis=1), names)
            put(self, "covariate_names", names)
            put(self, "levels", levels)
        covariates = _as_numbers(given, "covariates")
        covariates = covariates[:, None] if covariates.ndim == 1 else covariates
        if covariates.ndim != 2 or len(covariates) != n:
            raise InvalidInput(
                f"`covariates` must have one row for each of the {n} locations. "
                f"Got shape {covariates.shape}."
            )
        p = covariates.shape[1]
        names = tuple(self.covariate_names) or tuple(f"covariate{j + 1}" for j in range(p))
        if len(names) != p:
            raise InvalidInput(f"`covariate_names` must hold {p} names. Got {len(names)}.")
        check_finite(covariates, names, "covariates", MISSING_ADVICE)
        unknown = sorted(set(self.levels) - set(names))
        if unknown:
            raise InvalidInput(
                f"`levels` must name covariates. Got {unknown[0]!r}, which is not a covariate."
            )
        put(self, "covariate_names", names)
        put(self, "levels", {name: tuple(map(str, words)) for name, words in self.levels.items()})
        tables.check_codes(covariates, names, self.levels)
        return covariates

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        names = () if self.covariates is None else self.covariate_names
        where = self.location_names + (() if self.time is None else (self.time_name,))
        covariates = f", covariates {few(names)}" if names else ""
        what = f"{self.value_name}, {self.count_in_words}"
        if self.variable is not None:
            what = f"{self._variables_in_words} at {self._places_in_words}"
        return (
            f"<Observations of {what} "
            f"({few(where)}), {self.metric} distances in {self.unit}{self._branch_in_words}"
            f"{self._times_in_words}{covariates}{self._missing_in_words}>"
        )

    def __str__(self) -> str:
        return summary(*self._summary())

    def _repr_html_(self) -> str:
        return summary_html(*self._summary())

    def _summary(self):
        columns = dict(zip(self.location_names, self.locations.T, strict=True))
        if self.time is not None:
            columns[self.time_name] = self.time
        if self.variable is None:
            columns[self.value_name] = self.values
        for number, label in enumerate(self.variable_labels):
            columns[label] = self.values[self.variable == number]
        if self.error_variance is not None:
            columns[self.error_variance_name] = self.error_variance
        if self.replicates is not None:
            columns["replicates"] = self.replicates
        if self.covariates is not None:
            named = zip(self.covariate_names, self.covariates.T, strict=True)
            columns |= {name: self.levels.get(name, column) for name, column in named}
        where = f"{self.metric} distances in {self.unit}"
        where += f"{self._branch_in_words}{self._times_in_words}"
        if self.variable is not None:
            of = f"{self._variables_in_words} at {self._places_in_words}"
            return f"{len(self):,} observations of {of}, {where}{self._missing_in_words}", columns
        return f"{len(self):,} observations, {where}", columns

    @property
    def _variables_in_words(self):
        """How many values of each variable there are: "2 variables (zinc 155, lead 152)"."""
        counts = np.bincount(self.variable, minlength=len(self.variable_labels))
        each = [f"{name} {n:,}" for name, n in zip(self.variable_labels, counts, strict=True)]
        return f"{counted(len(each), 'variable')} ({few(each, 8)})"

    @property
    def _places_in_words(self):
        """How many places there are: "155 locations", "40 locations and 10 times"."""
        places = counted(self.inputs.distinct_locations, "location")
        if self.time is None:
            return places
        return f"{places} and {counted(len(np.unique(self.time)), 'time')}"

    @property
    def _missing_in_words(self):
        """How many values of a table are missing: ", missing and left out: lead 3"."""
        missing = self.source.get("missing_values", {})
        each = ", ".join(f"{name} {n:,}" for name, n in missing.items() if n)
        return f", missing and left out: {each}" if each else ""

    @property
    def _times_in_words(self):
        return f", times in {self.time_axis}" if self.time_unit else ""

    @property
    def time_axis(self) -> times.TimeAxis:
        """Unit, origin, calendar and time zone of the times."""
        return times.TimeAxis(self.time_unit, self.time_origin, self.time_calendar, self.time_zone)

    @property
    def dates(self) -> Any:
        """The times as dates, (n,) of datetime64 in UTC or of cftime; `time` if they are numbers.

        Examples
        --------
        >>> seen = Observations([0.0, 1.0, 2.0], [1.0, 2.0, 3.0], time=["2026-03-01"] * 3)
        >>> seen.time.tolist(), str(seen.dates[0])
        ([0.0, 0.0, 0.0], '2026-03-01T00:00:00')
        """
        return None if self.time is None else self.time_axis.dates(self.time)

    @property
    def _branch_in_words(self):
        """Which branch of longitude a region across the date line has, as text."""
        west, east = self.locations[:, 0].min(), self.locations[:, 0].max()
        if self.central_meridian is None or not any(west < line < east for line in (-180, 180)):
            return ""
        return f", longitudes from {west:.6g} to {east:.6g} across the date line"

    @cached_property
    def inputs(self) -> Inputs:
        """Locations with all else that covariances and variances of errors depend on."""
        return Inputs(
            self.locations,
            self.metric,
            time=self.time,
            variable=self.variable,
            error_variance=self.error_variance,
            replicates=self.replicates,
        )

    @property
    def dimensions(self) -> int:
        """Number of coordinates, d."""
        return self.locations.shape[1]

    @property
    def variable_labels(self) -> tuple[str, ...]:
        """Names of the variables by number, "variable 0", … if they have none; () without."""
        if self.variable is None or self.variable_names:
            return self.variable_names
        return tuple(f"variable {k}" for k in range(int(self.variable.max()) + 1))

    def of_variable(self, variable: str | int) -> Observations:
        """Return the observations of one variable, as observations without a variable.

        Parameters
        ----------
        variable : str or int
            Name or number; a number is the name if all names are numbers.

        Raises
        ------
        InvalidInput
            If there is no such variable, or it has fewer than 3 values.

        Examples
        --------
        >>> import geomxp as gx
        >>> both = gx.datasets.load("meuse", values=("log(zinc)", "log(lead)"))
        >>> both.of_variable("log(lead)")
        <Observations of log(lead), 155 locations (x, y), euclidean distances in m, covariates \
sqrt_dist>
        """
        if self.variable is None:
            raise InvalidInput("the observations are of one variable: use them as they are.")
        labels = self.variable_labels
        number = int(checked_variable(variable_numbers(variable, labels), 1, labels)[0])
        name, rows = labels[number], self.variable == number
        if rows.sum() < LEAST_LOCATIONS:
            raise InvalidInput(
                f"at least {LEAST_LOCATIONS} observations of a variable are needed. Got "
                f"{int(rows.sum())} of {name!r}."
            )
        return self._with_rows(rows, variable=None, value_name=name)

    @property
    def geographic(self) -> bool:
        """Whether the locations are longitude and latitude."""
        return metric_of(self.metric).geographic

    @property
    def unit(self) -> str:
        """Unit of length of ranges, as text: "m"."""
        unit = metric_of(self.metric).unit or self.length_unit
        return LENGTH_SYMBOLS.get(unit, unit) or "units of the locations"

    @property
    def system(self) -> str | None:
        """Coordinate reference system, EPSG:4326 for the spherical metrics; None if unknown."""
        return self.crs or (spatial.LONGITUDE_LATITUDE if self.geographic else None)

    @classmethod
    def from_frame(
        cls,
        frame: Frame | DataArray | Grid,
        *,
        values: str | Sequence[str] | None = None,
        locations: Sequence[str] | None = None,
        covariates: Sequence[str] = (),
        formula: str | Sequence[str] | None = None,
        metric: str | None = None,
        drop_missing: bool = False,
        crs: str | None = None,
        time: str | None = None,
        variable: str | None = None,
        error_variance: str | Sequence[str | None] | None = None,
        missing: float | Sequence[float] = (),
        duplicates: str | None = None,
        value_unit: str | None = None,
    ) -> Observations:
        """Make observations from a pandas or geopandas frame, or an xarray grid.

        Warnings report what is probably wrong in a table: numbers that mark missing values, and
        coordinates of different kinds. Columns that are called latitude and longitude, in this
        order, are exchanged, with a warning.

        Parameters
        ----------
        frame : pandas.DataFrame, geopandas.GeoDataFrame, xarray.DataArray or Dataset
            Geometries must be points. Points in a projected coordinate reference system keep
            their coordinates and unit; longitude and latitude are transformed to EPSG:4326, and
            the metric is then "chordal". For grids see `from_xarray`.
        values : str or sequence of str, optional
            Column of the values, or a function of one column as in formulas: "log(zinc)". Then
            the values have this name, and estimates and predictions are on this scale. May be
            omitted for a grid of one variable. Several columns, ("zinc", "lead"), are variables
            numbered in this order: there is one observation for each value that is not missing,
            all variables of the first row, then those of the second, and so on. A missing value
            leaves out only itself; infinite values are an error unless `drop_missing`.
        locations : sequence of str, optional
            Columns of the coordinates, longitude first. If not given, the points of a geopandas
            frame, called x, y or lon, lat (their third coordinate z is used only if it is named
            here), or the coordinates of a grid; in other frames the two columns called x, y or
            lon, lat (longitude, latitude) or easting, northing, if there is only one such pair.
        covariates : sequence of str
            Columns of the covariates: numbers, or text.
        formula : str or sequence of str, optional
            Trends; their columns become covariates too.
        metric : str, optional
            If not given, "chordal" if the coordinate reference system or the names of the columns
            say longitude and latitude, else "euclidean".
        drop_missing : bool
            Drop rows with a missing number in a used column, or without a geometry.
        crs : str, optional
            Coordinate reference system of the columns `locations`: "EPSG:28992".
        time : str, optional
            Column of the times, numbers or dates. If not given, a grid whose values have several
            times has the times of its coordinate: see `from_xarray`.
        variable : str, optional
            Column that says to which variable each value belongs, for a table with one row for each
            value: names, numbered in order of appearance, or numbers from 0; other codes are names.
        error_variance : str or sequence of str, optional
            Column of the known variances of the errors of measurement, or a function of at most two
            columns, such as "I(zinc_se ** 2)" for a column of standard errors. For several `values`
            one for each of them; None for values without known errors.
        missing : float or sequence of float
            Numbers that mark a missing value in the used columns: -9999.
        duplicates : {"keep", "drop", "mean", "error"}, optional
            Rows at the location (time and variable) of an earlier row: keep them as replicates,
            drop them, replace such rows by the mean of their values and covariates (the number of
            rows becomes `replicates`), or raise. If not given they are kept, and a warning counts
            them.
        value_unit : str, optional
            Unit of the values, for tables and figures: "mg/kg".

        Returns
        -------
        Observations

        Raises
        ------
        InvalidInput
            For a missing column, a cell that is not a number (row, column and value are given),
            or a metric that does not suit the coordinates.

        Examples
        --------
        >>> import pandas as pd
        >>> table = pd.DataFrame({"lon": [5, 6, 7], "lat": [50, 52, 51], "z": [1.0, 2.0, 3.0]})
        >>> observations = Observations.from_frame(table, locations=("lon", "lat"), values="z")
        >>> observations.metric, observations.unit
        ('chordal', 'km')
        """
        locations, covariates = _names("locations", locations), _names("covariates", covariates)
        if formula is not None and not isinstance(formula, str):
            formula = _names("formula", formula)
        if not isinstance(drop_missing, (bool, np.bool_)):
            raise InvalidInput(f"`drop_missing` must be True or False. Got {drop_missing!r:.60}.")
        if duplicates is not None:
            check_one_of("duplicates", duplicates, DUPLICATES)
        markers = np.atleast_1d(_as_numbers(missing, "missing"))
        chosen = _chosen_values(frame, values)
        named, functions, measured = zip(*chosen, strict=True)
        several = len(chosen) > 1
        needed = tables.covariates_of((), covariates, formula)[0]
        if time is None and spatial.is_grid(frame):
            time = spatial.time_of(frame, measured[0], locations)
        if several and variable is not None:
            raise InvalidInput(
                f"`variable` is for a table with one column of values. Got {variable!r} and the "
                f"values {few(named, 8)}: leave one of them out."
            )
        errors = _chosen_errors(frame, error_variance, named)
        for what, column in {"time": time, "variable": variable}.items():
            _check_other_column(what, column, measured)
        for column, _ in filter(None, errors):
            _check_other_column("error_variance", column, measured)
        extra = tuple(name for name in (time, variable) if name is not None)
        shared = len(extra)
        for column, function in filter(None, errors):
            extra += (column,) if function is None else function.variables
        # the error variance may be a function of the values
        extra = tuple(dict.fromkeys(name for name in extra if name not in measured))
        swapped = longitude_first(locations, crs)
        used = tuple(dict.fromkeys((*extra, *measured)))
        table = spatial.tabulate(frame, (*measured, *needed, *extra), swapped, time, crs, measured)
        table = _with_system(table, swapped, crs, measured)
        for column in measured:
            if column in table.locations:
                raise InvalidInput(
                    f"`values` must be a column other than the coordinates. Got {column!r}."
                )
        system = None if table.crs is None else spatial.describe(table.crs)
        needs_degrees = metric is not None and metric_of(metric).geographic
        if needs_degrees and system is not None and not system.geographic:
            raise InvalidInput(
                f'metric="{metric}" needs longitude and latitude. Got coordinates in '
                f"{spatial.title(table.crs)} ({system.unit}): leave the metric out, or reproject."
            )
        if not drop_missing:
            table.check_geometry(": drop them (--drop-missing)")
        if table.dims is not None:
            table = _observed_cells(table, measured)
        read = swapped or table.locations
        if system is not None and system.geographic:
            table = _in_degrees(table)
        axis = times.TimeAxis(table.time_unit) if table.time_unit else times.NUMBER_AXIS
        if time is not None and time in table.columns:
            column, axis = times.as_numbers(table.columns[time], axis, missing=drop_missing)
            table = replace(table, columns=table.columns.assign(**{time: column}))
        labels = ()
        if variable is not None:
            codes, words = tables.encode(table.columns, (variable,), texts=(variable,))
            labels = words.get(variable, ())
            table = replace(table, columns=table.columns.assign(**{variable: codes[:, 0]}))
        names, texts = tables.covariates_of(table.locations, covariates, formula)
        codes, levels = tables.encode(table.columns, names, texts=texts)
        numbers = tables.number_columns(table.columns, (*table.locations, *used))
        marked = np.isin(numbers, markers)
        d = len(table.locations)
        if labels:
            # codes of names
            marked[:, d + extra.index(variable)] = False
        numbers = np.where(marked, np.nan, numbers)
        for column, name in enumerate(names):
            if name not in levels:
                codes[np.isin(codes[:, column], markers), column] = np.nan
        # one row for each value: its row in the table, and the position of its column
        inputs = dict(zip(used, numbers[:, d:].T, strict=True))
        cells = np.column_stack([inputs[name] for name in measured])
        present = ~np.isnan(cells) if several else np.ones(cells.shape, dtype=bool)
        kept = present
        if drop_missing:
            whole = np.isfinite(numbers[:, : d + shared]).all(axis=1)
            whole &= np.isfinite(codes).all(axis=1)
            kept = present & whole[:, None] & np.isfinite(cells)
            for column, needs in enumerate(map(_needs, errors)):
                for name in needs:
                    kept[:, column] &= np.isfinite(inputs[name])
        elif several:
            known = present.any(axis=1)[:, None]
            each = np.hstack((numbers[:, : d + shared], codes))
            check = (*table.locations, *extra[:shared], *names)
            check_finite(np.where(known, each, 0.0), check, "columns", MISSING_ADVICE)
            check_finite(np.where(present, cells, 0.0), measured, "values", MISSING_ADVICE)
        rows, of = np.nonzero(kept)
        if not len(rows) and several:
            raise InvalidInput(f"the columns {few(measured, 8)} have no values that can be used.")
        degrees = spatial.names_say_degrees(table.locations)
        metric = metric or table.metric or ("chordal" if degrees else "euclidean")
        some = np.unique(rows)
        if metric_of(metric).geographic and not degrees and _latitudes_first(numbers[some, :d]):
            numbers[:, :2] = numbers[:, 1::-1]
            table = replace(table, locations=table.locations[::-1])
            _notice_of_order(table.locations, "by their values")
        columns = dict(zip((*table.locations, *used), numbers[some].T, strict=True))
        columns |= {n: c for n, c in zip(names, codes[some].T, strict=True) if n not in levels}
        if metric_of(metric).turns:
            longitudes = _checked_for_sentinels(numbers[some, :d], metric_of(metric))
            columns[table.locations[0]] = longitudes
        for sentence in (
            checks.sentinel_warning(columns),
            checks.axes_warning(table.locations, numbers[some, :d]),
        ):
            if sentence:
                warnings.warn(sentence, GeomxpWarning, stacklevel=3)
        outcome = cells[rows, of]
        error = None if error_variance is None else np.zeros(len(rows))
        for position, function in enumerate(functions):
            own = of == position
            if function is not None:
                outcome[own] = _computed_values(function, outcome[own], rows=rows[own])
            if errors[position] is not None:
                column, function = errors[position]
                raw = [inputs[name][rows[own]] for name in _needs(errors[position])]
                if function is None:
                    check_finite(
                        raw[0][:, None], (column,), "error variances", MISSING_ADVICE, rows[own]
                    )
                    error[own] = raw[0]
                else:
                    error[own] = _computed_values(function, *raw, rows=rows[own])
        variables, variable_names = (of, named) if several else (None, ())
        if variable is not None:
            variables = inputs[variable][rows]
            if labels:
                variables, variable_names = _in_order(variables, labels, variable, rows)
        observations = cls(
            numbers[rows, :d],
            outcome,
            codes[rows] if names else None,
            metric,
            table.locations,
            ", ".join(named),
            names,
            levels=levels,
            crs=table.crs,
            length_unit=table.unit,
            time=None if time is None else inputs[time][rows],
            variable=variables,
            time_name=time or "time",
            variable_name=variable or "variable",
            error_variance=error,
            error_variance_name=(not several and error_variance) or "error_variance",
            value_unit="" if value_unit is None else value_unit,
            time_unit=axis.unit,
            time_origin=axis.origin,
            variable_names=variable_names,
            time_calendar=axis.calendar,
            time_zone=axis.zone,
            row_labels=table.columns.index[rows] if table.dims is None else None,
        )
        observations = observations._with_duplicates(duplicates, rows)
        if {*read} != {*table.locations}:
            # reprojected longitude and latitude have other names
            observations.source["locations"] = list(read)
        left_out = int((present & ~kept).sum())
        observations.source.update({"left_out": left_out} if left_out else {})
        if not present.all():
            missing = dict(zip(named, (~present).sum(axis=0).tolist(), strict=True))
            observations.source["missing_values"] = missing
        return observations

    def _with_duplicates(self, duplicates, rows):
        """Return the observations with the rows at an earlier location as the user asks.

        `rows` are those of the table, (n,).
        """
        first = self.inputs.first_rows()
        repeated = first != np.arange(len(first))
        if duplicates == "keep" or not repeated.any():
            return self
        row = int(np.argmax(repeated))
        count = int(repeated.sum())
        same = int((repeated & (self.values == self.values[first])).sum())
        noun, earlier = "row", "row"
        if self.variable is not None:
            noun, earlier = "value", "value of the same variable"
        found = (
            f"{count:,} {noun}{'s are' if count > 1 else ' is'} at the location of an earlier "
            f"{earlier} (row {rows[row] + 1} at that of row {rows[first[row]] + 1}), {same:,} "
            "with the same value"
        )
        if duplicates is None:
            warnings.warn(
                f"{found}. They are kept as replicates. To confirm this, use duplicates='keep'; to "
                "change it, use 'drop', 'mean' or 'error' (--duplicates keep|drop|mean|error).",
                GeomxpWarning,
                stacklevel=4,
            )
            return self
        if duplicates == "error":
            raise InvalidInput(f"{found}: use duplicates='mean' or 'keep' (--duplicates mean).")
        kept = self.subset(~repeated)
        if duplicates == "drop":
            return kept
        group = np.cumsum(~repeated)[first] - 1
        counts = np.bincount(group)

        def means(column):
            return np.bincount(group, column) / counts

        covariates = self.covariates
        if covariates is not None:
            for name in self.levels:
                codes = covariates[:, self.covariate_names.index(name)]
                if (codes != codes[first]).any():
                    other = int(np.argmax(codes != codes[first]))
                    raise InvalidInput(
                        f"covariate {name!r} differs between rows {rows[first[other]] + 1} and "
                        f"{rows[other] + 1} at one location, and text has no mean: use "
                        "duplicates='drop' or 'keep' (--duplicates drop)."
                    )
            covariates = np.column_stack([means(column) for column in covariates.T])
            for name in self.levels:
                column = self.covariate_names.index(name)
                covariates[:, column] = kept.covariates[:, column]
        columns = {"values": means(self.values), "covariates": covariates}
        if self.error_variance is not None:
            columns["error_variance"] = means(self.error_variance) / counts
        # the nugget stays that of one measurement
        measured = np.ones(len(self)) if self.replicates is None else self.replicates
        columns["replicates"] = np.bincount(group, measured)
        with warnings.catch_warnings():
            # all coordinates have been checked already
            warnings.simplefilter("ignore", GeomxpWarning)
            return replace(kept, **columns)

    @classmethod
    def from_xarray(cls, grid: DataArray | Grid, **columns: Unpack[TableColumns]) -> Observations:
        """Make observations from the cells of an xarray grid.

        Cells whose value is NaN are not observed: they are dropped, and a warning counts them.

        Values may have a dimension of time, besides those of a grid (time, y, x) or of stations
        (time, station). The times are dates, or numbers with CF units such as "days since
        1987-06-03". Dates of another calendar than the Gregorian one ("noleap", "360_day", …) are
        counted in this calendar. A single time is ignored unless `time` names it.

        Each value of a ragged array of the CF conventions, as of time series of stations, profiles
        or trajectories, is an observation. Cells that a file marks as missing are NaN, also those
        that were never written or lie outside `valid_range`, `valid_min` or `valid_max`. A grid
        mapping is the coordinate reference system of its own coordinates: of x and y, or of
        longitude and latitude on a rotated pole, which become true ones in EPSG:4326.

        Parameters
        ----------
        grid : xarray.DataArray or Dataset
            With coordinates x and y, or longitude and latitude, identified by their names or by
            the attributes `standard_name` and `units` of the CF conventions; true longitude and
            latitude come before those on a rotated pole, and x and y that are dimensions before
            both if they have units of length or a projection. The coordinate of
            several times is called "time", holds dates, or has the standard_name "time", the axis
            "T" or units of dates.
        **columns
            values, locations, covariates, formula, metric, drop_missing, crs, time, variable,
            error_variance, missing, duplicates, value_unit: as of `from_frame`.

        Returns
        -------
        Observations

        Examples
        --------
        >>> import xarray
        >>> grid = xarray.DataArray([[1.0, 2.0], [3.0, 4.0]], {"y": [1, 0], "x": [5, 6]})
        >>> Observations.from_xarray(grid).locations.tolist()
        [[5.0, 1.0], [6.0, 1.0], [5.0, 0.0], [6.0, 0.0]]
        >>> both = xarray.concat([grid, grid + 1], "time").assign_coords(time=[0.0, 6.0])
        >>> both.time.attrs["units"] = "hours since 2026-03-01"
        >>> seen = Observations.from_xarray(both)
        >>> seen.time[3:5], seen.time_unit, seen.time_origin
        (array([0., 6.]), 'hour', '2026-03-01')
        """
        return cls.from_frame(grid, **columns)

    def digest(self) -> str:
        """Return a SHA-256 of the numbers, as hexadecimal text."""
        sha = hashlib.sha256(str(self.metric).encode())
        for array in (self.locations, self.values, self.covariates, *self.extra().values()):
            if array is not None:
                sha.update(np.ascontiguousarray(array).tobytes())
        if self.levels:
            sha.update(repr(sorted(self.levels.items())).encode())
        if self.variable_names:
            sha.update(repr(self.variable_names).encode())
        return sha.hexdigest()

    def duplicate(self) -> tuple[int, int] | None:
        """Return the first pair of rows (i, j), i < j, at the same location, or None.

        Rows of different times or variables are different.

        Examples
        --------
        >>> Observations([[0, 0], [1, 0], [0, 0]], [1.0, 2.0, 3.0]).duplicate()
        (0, 2)
        """
        return self.inputs.duplicate()

    @property
    def distinct_inputs(self) -> int:
        """Number of distinct locations; see `Inputs.distinct_inputs`."""
        return self.inputs.distinct_inputs

    @property
    def duplicate_inputs(self) -> bool:
        """Whether several values have the same location, time and variable."""
        return self.inputs.duplicate_inputs

    @property
    def count_in_words(self) -> str:
        """How many they are: "385 locations", "390 observations at 150 locations".

        With times "400 observations at 40 locations and 10 times".
        """
        if self.variable is not None:
            of = counted(len(self.variable_labels), "variable")
            return f"{len(self):,} observations of {of} at {self._places_in_words}"
        if self.time is not None:
            return f"{len(self):,} observations at {self._places_in_words}"
        locations = counted(self.distinct_inputs, "location")
        return f"{len(self):,} observations at {locations}" if self.duplicate_inputs else locations

    def subset(self, rows: ArrayLike, **changes: Any) -> Observations:
        """Return the observations of some rows, in their order, with fields such as variable=None.

        Parameters
        ----------
        rows : array_like
            Numbers of rows, or a truth value for each.
        **changes : optional
            Fields of the result that are not those of the rows.
        """
        if np.asarray(rows).dtype == bool:
            (rows,) = aligned(self.row_labels, "the observations", rows=rows)
        return self._with_rows(rows if labels_of(rows) is None else np.asarray(rows), **changes)

    def _with_rows(self, rows, **changes):
        """Return the observations of some rows, with other fields changed."""
        fields = {name: column[rows] for name, column in self.extra().items()} | changes
        if self.row_labels is not None:
            fields["row_labels"] = self.row_labels[rows]
        if self.variable is not None:
            # a variable without values in these rows keeps its number
            fields["variable_names"] = self.variable_labels
        with warnings.catch_warnings():
            # all coordinates have been checked already
            warnings.simplefilter("ignore", GeomxpWarning)
            return replace(
                self,
                locations=self.locations[rows],
                values=self.values[rows],
                covariates=None if self.covariates is None else self.covariates[rows],
                **fields,
                source={},
            )

    def extra(self) -> dict[str, Floats]:
        """Return the columns of `EXTRA_COLUMNS` that these observations have, by name."""
        columns = {name: getattr(self, name) for name in EXTRA_COLUMNS}
        return {name: column for name, column in columns.items() if column is not None}

    def covariate_frame(self) -> Frame:
        """Return the covariates as a pandas frame, text as text."""
        import pandas as pd

        columns = np.empty((len(self), 0)) if self.covariates is None else self.covariates
        frame = pd.DataFrame(columns, columns=list(self.covariate_names))
        return frame.assign(
            **{name: tables.decode(frame[name], words) for name, words in self.levels.items()}
        )


def read_table(
    path: PathLikeText, *, decimal: str | None = None, **columns: Unpack[TableColumns]
) -> Observations:
    """Read observations from a file.

    Parameters
    ----------
    path : path
        CSV, Parquet or NPZ; tables of GeoEAS (GSLIB), the USGS (RDB) and ERDDAP; GeoPackage,
        GeoJSON, GeoParquet, FlatGeobuf or a shapefile; NetCDF, GeoTIFF, and grids of ESRI and
        Surfer. The content decides, not the ending.
    decimal : {".", ","}, optional
        Decimal sign of the numbers in a CSV file; the other sign separates thousands. If not given,
        commas are decimal signs between semicolons or tabs, where the column or another one shows
        it: a table in which 1,000 may be 1 or 1000 is refused.
    **columns
        values, locations, covariates, formula, metric, drop_missing, crs, time, variable,
        error_variance, missing, duplicates, value_unit: as of `Observations.from_frame`. `values`
        is the name of a column, or a function of one such as "log(zinc)", or a sequence of these
        for several variables; `locations` and `covariates` are sequences of names. Where a table
        states units, a name may have its unit behind it, "sst (degree_C)", and the unit of the
        values is `value_unit` if this is not given.

    Returns
    -------
    Observations

    Raises
    ------
    InvalidInput
        The message is one line with the file, row, column and value. Rows count from 1 below the
        header.

    Examples
    --------
    >>> from geomxp import datasets
    >>> observations = read_table(datasets.path("meuse"), locations=("x", "y"), values="log_zinc")
    >>> observations.values.shape
    (155,)
    >>> read_table(datasets.path("meuse"), values=("zinc", "om"))
    <Observations of 2 variables (zinc 155, om 153) at 155 locations (x, y), euclidean distances \
in units of the locations, missing and left out: om 2>
    """
    data = tables.read_data(path, decimal)
    units = spatial.units_of(data)
    columns = {name: readers.without_units(named, units) for name, named in columns.items()}
    if columns.get("value_unit") is None and isinstance(columns.get("values"), str):
        columns["value_unit"] = units.get(columns["values"])
    try:
        observations = Observations.from_frame(data, **columns)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
    several = observations.variable_names if columns.get("variable") is None else ()
    if several:
        observations.source["values"] = list(several)
    observations.source.update(
        path=str(Path(path).resolve()),
        sha256=tables.sha256(path),
        digest=observations.digest(),
        locations=observations.source.get("locations", list(observations.location_names)),
        value=observations.value_name,
        covariates=list(observations.covariate_names),
        metric=str(observations.metric),
        drop_missing=bool(columns.get("drop_missing", False)),
    )
    if columns.get("formula") is not None:
        observations.source["formula"] = columns["formula"]
    if columns.get("crs") is not None:
        # longitude and latitude have been transformed to EPSG:4326
        observations.source["crs"] = spatial.describe(columns["crs"]).name
    if observations.time is not None:
        # also where the time of a grid was found
        observations.source["time"] = observations.time_name
    for name in ("variable", "error_variance", "duplicates", "value_unit"):
        if columns.get(name) is not None:
            given = columns[name]
            observations.source[name] = given if isinstance(given, str) else list(given)
    missing = np.ravel(columns.get("missing", ())).astype(np.float64).tolist()
    observations.source.update({"missing": missing} if missing else {})
    observations.source.update({"decimal": decimal} if decimal else {})
    if several:
        return observations
    errors = checks.error_columns(getattr(data, "columns", ()), observations.value_name)
    observations.source.update({"errors": errors} if errors else {})
    function = _function_of_columns(data, observations.value_name)
    observations.source.update({} if function is None else {"value_of": function.variables[0]})
    return observations


# Columns of a table


def _names(argument, names):
    """Return names of columns as a tuple, or raise `InvalidInput`."""
    try:
        names = () if names is None else tuple(None if isinstance(names, str) else names)
    except TypeError:
        raise InvalidInput(
            f"`{argument}` must be a sequence of column names. Got {names!r:.60}."
        ) from None
    for name in names:
        if not isinstance(name, str):
            raise InvalidInput(
                f"`{argument}` must name columns by text. Got {name!r:.60}: name the columns of a "
                "frame with frame.rename(columns=str)."
            )
    return names


def longitude_first(names, crs=None):
    """Return the names of coordinates with longitude, or x where a CRS needs it, first."""
    if spatial.latitude_first(names) or (crs is not None and spatial.northing_first(names)):
        _notice_of_order(names[::-1], "by their names")
        return names[::-1]
    return names


def _notice_of_order(names, why):
    warnings.warn(
        f"the coordinates {names[1]}, {names[0]} were exchanged: judging {why}, the second is "
        f"longitude (or x), which must be first. Write locations={in_words(names[:2])}.",
        GeomxpWarning,
        stacklevel=5,
    )


def _latitudes_first(coordinates):
    """Whether the first of two columns can be latitudes and the second only longitudes."""
    if coordinates.shape[1] != 2 or not len(coordinates):
        return False
    first, second = np.nanmax(np.abs(coordinates), axis=0, initial=0.0)
    return bool(first <= 90 < second <= 360)


def _only_variable(data):
    """Return the name of a grid's variable if there is only one."""
    if not spatial.is_grid(data):
        raise InvalidInput("`values` must name the column of the values.")
    names = spatial.variable_names(data)
    if len(names) != 1:
        raise InvalidInput(
            f"`values` must name one or several of the variables: {', '.join(names)}."
        )
    return names[0]


def _chosen_values(frame, values):
    """Return (name, function, column) of each variable; the function of a column may be None."""
    values = _only_variable(frame) if values is None else values
    names = _names("values", (values,) if isinstance(values, str) else values)
    if not names:
        raise InvalidInput("`values` must name the column of the values, or several columns.")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidInput(f"`values` names {twice!r} twice.")
    functions = [_function_of_columns(frame, name) for name in names]
    return [
        (name, None, name) if one is None else (one.text, one, one.variables[0])
        for name, one in zip(names, functions, strict=True)
    ]


def _chosen_errors(frame, error_variance, named):
    """Return (text, function) of the error variance of each variable, None for those without."""
    if error_variance is None:
        return [None] * len(named)
    each = error_variance if isinstance(error_variance, (tuple, list)) else (error_variance,)
    if len(each) != len(named) or (len(named) == 1 and each is error_variance):
        wanted = "name a column other than the values"
        if len(named) > 1:
            others = ", None" * (len(named) - 1)
            wanted = (
                f"hold a column, or None, for each of {few(named, 8)}, such as "
                f'("I(se ** 2)"{others})'
            )
        raise InvalidInput(f"`error_variance` must {wanted}. Got {error_variance!r:.80}.")
    for text in each:
        if not (text is None or isinstance(text, str)):
            raise InvalidInput(f"`error_variance` must name columns by text. Got {text!r:.60}.")
    return [
        None if text is None else (text, _function_of_columns(frame, text, "error_variance", 2))
        for text in each
    ]


def _needs(error):
    """Return the columns that an error variance of `_chosen_errors` needs."""
    if error is None:
        return ()
    text, function = error
    return (text,) if function is None else function.variables


def _check_other_column(what, column, measured):
    """Raise `InvalidInput` unless an optional column is text and not one of the values."""
    if column is not None and (not isinstance(column, str) or column in measured):
        raise InvalidInput(f"`{what}` must name a column other than the values. Got {column!r}.")


def _in_order(codes, words, column, rows):
    """Return the numbers of variables and their names in order of appearance, from codes."""
    bad = np.flatnonzero(np.isnan(codes))
    if len(bad):
        raise InvalidInput(
            f"row {rows[bad[0]] + 1}: column {column!r} names no variable ({len(bad)} such rows): "
            f"{MISSING_ADVICE}."
        )
    order = list(dict.fromkeys(codes.astype(int).tolist()))
    numbers = np.zeros(len(words), dtype=int)
    numbers[order] = np.arange(len(order))
    return numbers[codes.astype(int)], tuple(words[k] for k in order)


def _function_of_columns(frame, text, what="values", most=1):
    """Return the `Formula` of a function of at most so many columns; None for a column."""
    grid = spatial.is_grid(frame)
    names = spatial.variable_names(frame) if grid else getattr(frame, "columns", ())
    return None if text in names else Formula.of_values(text, what, most)


def column_or_function(frame, text, what, most):
    """Return a column of a frame, or a function of at most so many columns, as an (n,) array."""
    function = _function_of_columns(frame, text, what, most)
    names = (text,) if function is None else function.variables
    columns = tables.number_columns(frame, names).T
    return columns[0] if function is None else _computed_values(function, *columns)


def _computed_values(function, *columns, rows=None):
    """Return a function of columns of numbers; an `InvalidInput` where it is not finite.

    `rows` are those of the table, (n,), for messages.
    """
    check_finite(np.column_stack(columns), function.variables, "values", MISSING_ADVICE, rows)
    values = function.values(*columns)
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        cells = ", ".join(
            f"{name} = {column[bad[0]]:g}"
            for name, column in zip(function.variables, columns, strict=True)
        )
        raise InvalidInput(
            f"{function.text} is not finite for {cells} in "
            f"row {(bad if rows is None else rows[bad])[0] + 1} ({len(bad)} such rows): use "
            "another function, such as log1p or cbrt, or the column itself."
        )
    return values


def in_words(names):
    r"""Return names of coordinates as Python and the command line take them.

    Examples
    --------
    >>> in_words(("East", "North, m"))
    '("East", "North, m") (--locations \'East,"North, m"\')'
    """
    return f"({', '.join(map(in_python, names))}) ({option('locations', *names)})"


def found_locations(names, values=None):
    """Return the only pair of columns whose names say coordinates, or raise `InvalidInput`.

    The column of the values, or a tuple of such columns, is not a coordinate.

    Examples
    --------
    >>> found_locations(["station", "Longitude", "Latitude", "zinc"])
    ('Longitude', 'Latitude')
    """
    measured = (values,) if isinstance(values, str) else values or ()
    names = [str(name) for name in names if name not in measured]
    pairs = spatial.location_pairs(names)
    if len(pairs) == 1:
        return pairs[0]
    why, (first, second) = f"The columns are: {few(names, 12)}", (pairs or [("x", "y")])[0]
    if pairs:
        why = f"They may be {' or '.join(map(', '.join, pairs))}"
    elif len(names) > 1:
        first, second = names[:2]
    raise InvalidInput(
        f"`locations` must name the columns of the coordinates. {why}: write for example "
        f"locations={in_words((first, second))}."
    )


def _with_system(table, locations, crs, values):
    """Return the table with the coordinates that the user named, and their system."""
    if table.dims is None:
        found = locations or table.locations or found_locations(table.columns.columns, values)
        table = table.with_locations(found)
    if crs is None:
        return table
    system = spatial.describe(crs)
    if table.unit not in ("", system.unit) and table.crs is None:
        raise InvalidInput(
            f"`crs` must be a system in the unit of the coordinates, {table.unit}. Got "
            f"{system.name}, in {system.unit}: convert the coordinates."
        )
    if table.crs is not None and not spatial.same(table.crs, crs):
        raise InvalidInput(
            f"`crs` must be left out if the coordinates have one. Got {system.name} for "
            f"coordinates in {spatial.title(table.crs)}."
        )
    return table.with_system(system)


def _observed_cells(table, measured):
    """Return the rows of a grid that have a value; warn about those without."""
    missing = np.isnan(tables.number_columns(table.columns, measured)).all(axis=1)
    if missing.any():
        warnings.warn(
            f"{int(missing.sum()):,} of {len(missing):,} cells have no "
            f"{' or '.join(measured)} and are left out.",
            GeomxpWarning,
            stacklevel=4,
        )
        table = replace(table, columns=table.columns[~missing])
    return table


def _in_degrees(table):
    """Return the table with longitude and latitude in EPSG:4326.

    Columns of other numbers, such as those on a rotated pole or in gradians, stay beside them:
    tables of new locations need the new ones.
    """
    target = spatial.LONGITUDE_LATITUDE
    if spatial.same(table.crs, target):
        return replace(table, crs=target)
    names = list(table.locations[:2])
    numbers = tables.number_columns(table.columns, names)
    degrees = spatial.reproject(numbers, table.crs, target)
    moved = np.abs((degrees - numbers + 180) % 360 - 180) > LARGEST_DATUM_SHIFT_DEGREES
    if moved.any() and table.dims is None and not spatial.is_geographic_frame(table.source):
        taken = {"lon", "lat"} & {*table.columns.columns}
        names = ["longitude", "latitude"] if taken else ["lon", "lat"]
    columns = table.columns.assign(**dict(zip(names, degrees.T, strict=True)))
    return replace(table, columns=columns, crs=target, locations=(*names, *table.locations[2:]))


# Validation of arrays


def checked_locations(locations, metric, names=(), advice="take these rows out"):
    """Return locations as a contiguous (n, d) array of finite numbers that suit the metric."""
    locations = _as_numbers(locations, "locations")
    if locations.ndim == 1:
        locations = locations[:, None]
    if locations.ndim != 2 or not 1 <= locations.shape[1] <= 3:
        raise InvalidInput(
            f"`locations` must have 1, 2 or 3 columns of coordinates. Got shape {locations.shape}."
        )
    d = locations.shape[1]
    if names and len(names) != d:
        raise InvalidInput(f"`location_names` must hold {d} names. Got {len(names)}.")
    check_finite(locations, names or _default_names(metric, d), "locations", advice)
    large = np.abs(locations) > LARGEST_COORDINATE
    if large.any():
        row, column = np.argwhere(large)[0]
        raise InvalidInput(
            f"locations must be at most {LARGEST_COORDINATE:g} in size, so that squares of "
            f"distances are finite. Got {locations[row, column]:g} in row {row + 1}: choose a "
            "larger unit of length."
        )
    if metric_of(metric).geographic:
        if d != 2:
            raise InvalidInput(
                f'metric="{metric}" needs two columns, longitude and latitude. Got {d}.'
            )
        for column, name, least, most, hint in DEGREE_LIMITS:
            outside = np.flatnonzero(np.abs(locations[:, column]) > most)
            if len(outside):
                raise InvalidInput(
                    f"{name} must lie between {least} and {most} degrees. Got "
                    f"{locations[outside[0], column]:g} in row {outside[0] + 1} "
                    f"({len(outside)} such rows){hint}."
                )
    return np.ascontiguousarray(locations)


def _on_branch(locations, metric, meridian):
    """Return locations on the branch about a meridian, or the shortest one, and its meridian."""
    if not metric.turns:
        return locations, None
    if meridian is None:
        return metric.branch_of(locations)
    if isinstance(meridian, bool) or not (isinstance(meridian, Real) and abs(meridian) <= 360):
        raise InvalidInput(
            "`central_meridian` must be a longitude between -360 and 360 degrees. "
            f"Got {meridian!r:.60}."
        )
    return metric.on_branch(locations, float(meridian)), float(meridian)


def _checked_for_sentinels(locations, metric):
    """Return longitudes on one branch, where -179 is near 179; usual sentinels such as -99 stay."""
    longitudes = locations[:, 0]
    if locations.shape[1] != 2 or not np.isfinite(locations).all():
        # refused later
        return longitudes
    usual = np.isin(longitudes, checks.SENTINELS)
    return np.where(usual, longitudes, metric.branch_of(locations)[0][:, 0])


def checked_inputs(
    locations, metric="euclidean", time=None, variable=None, error_variance=None, replicates=None
):
    """Return `Inputs` of finite numbers.

    Locations are coordinates, or `Inputs`, whose other columns then hold if not given. A scalar is
    the time, the variable or the error variance of all locations.
    """
    if isinstance(locations, Inputs):
        given, locations = locations, locations.locations
        time = given.time if time is None else time
        variable = given.variable if variable is None else variable
        error_variance = given.error_variance if error_variance is None else error_variance
        replicates = given.replicates if replicates is None else replicates
        metric = given.metric
    columns = {"time": time, "variable": variable}
    columns |= {"error_variance": error_variance, "replicates": replicates}
    time, variable, error_variance, replicates = aligned(labels_of(locations), **columns)
    locations = checked_locations(locations, metric)
    n = len(locations)
    time = None if time is None else _one_for_each(time, "time", n)
    variable = None if variable is None else checked_variable(variable, n)
    if error_variance is not None:
        error_variance = _checked_error_variance(error_variance, n)
    replicates = None if replicates is None else _checked_replicates(replicates, n)
    return Inputs(locations, metric, time, variable, error_variance, replicates)


def _one_for_each(column, name, n):
    """Return one finite number for each of n locations, (n,); a scalar is that of all."""
    numbers = _as_numbers(column, name)
    numbers = np.full(n, numbers) if numbers.ndim == 0 else numbers
    if numbers.shape != (n,):
        raise InvalidInput(
            f"`{name}` must hold one number for each of the {n} locations. "
            f"Got shape {numbers.shape}."
        )
    check_finite(numbers[:, None], (name,), name)
    return numbers


def names_of_variables(column: ArrayLike) -> tuple[str, ...]:
    """Return the names of variables in order of appearance; () for the numbers 0, 1, ….

    Other whole numbers are names in increasing order.

    Examples
    --------
    >>> names_of_variables(["zinc", "lead", "zinc"]), names_of_variables([0, 1, 0])
    (('zinc', 'lead'), ())
    >>> names_of_variables([20, 10, 20])
    ('10', '20')
    """
    if _is_text(column):
        names = tuple(dict.fromkeys(_words(column)))
        if not all(map(_is_number, names)):
            return names
        column = np.array(names, dtype=np.float64)
    codes = np.unique(checked_variable(column, np.size(column)))
    return () if np.array_equal(codes, np.arange(len(codes))) else tuple(map(str, codes.tolist()))


def _is_text(column):
    """Whether variables are given by names."""
    return np.asarray(column).dtype.kind in "OU"


def _words(column):
    """Return names of variables without spaces around them, as a list; refuse missing ones."""
    import pandas as pd

    cells = np.asarray(column, dtype=object).ravel()
    words = [
        "" if missing else str(cell).strip()
        for cell, missing in zip(cells, pd.isna(cells), strict=True)
    ]
    # an array of text holds a missing name as "nan"
    bad = [row for row, word in enumerate(words) if word in ("", "nan", "None")]
    if bad:
        raise InvalidInput(
            f"`variable` must name a variable in every row. There is none in row {bad[0] + 1} "
            f"({counted(len(bad), 'such row')}): take these rows out."
        )
    return words


def variable_numbers(column: ArrayLike, names: Sequence[str]) -> ArrayLike:
    """Return the numbers of variables that are given by number or by name.

    If all names are numbers, such as the codes 10 and 20, a number is a name.

    Raises
    ------
    InvalidInput
        For text that is neither a name nor a number.

    Examples
    --------
    >>> variable_numbers(["lead", "zinc"], ("zinc", "lead"))
    array([1., 0.])
    >>> float(variable_numbers("lead", ("zinc", "lead")))
    1.0
    >>> variable_numbers([20, 10], ("10", "20"))
    array([1., 0.])
    """
    codes = bool(names) and all(map(_is_number, names))
    if not (codes or _is_text(column)):
        return column
    words, back = np.unique(_words(column), return_inverse=True)
    numbers = []
    for word in words.tolist():
        if word not in names and codes and _is_number(word) and float(word).is_integer():
            word = str(int(float(word)))
        if word not in names and (codes or not _is_number(word)):
            known = f"The variables are: {few(names, 8)}" if names else "The variables are numbers"
            raise InvalidInput(f"no variable {word!r}. {known}.{did_you_mean(word, names)}")
        numbers.append(names.index(word) if word in names else float(word))
    return np.array(numbers, dtype=np.float64)[back].reshape(np.shape(column))


def _is_number(word):
    try:
        return bool(np.isfinite(float(word)))
    except ValueError:
        return False


def checked_variable(column, n, names=()):
    """Return the number of the variable of each of n locations, (n,) of int."""
    numbers = _one_for_each(column, "variable", n)
    most = np.iinfo(np.int32).max
    wrong = np.flatnonzero((numbers < 0) | (numbers > most) | (numbers != np.floor(numbers)))
    if len(wrong):
        raise InvalidInput(
            "`variable` must hold whole numbers from 0, the number of each value's variable. "
            f"Got {numbers[wrong[0]]:g} in row {wrong[0] + 1}."
        )
    wrong = np.flatnonzero(numbers >= len(names)) if names else ()
    if len(wrong):
        raise InvalidInput(
            f"`variable` must be less than {len(names)}, the number of the variables "
            f"{few(names, 8)}. Got {numbers[wrong[0]]:g} in row {wrong[0] + 1}."
        )
    return numbers.astype(np.int64)


def _checked_error_variance(column, n):
    """Return the variance of the error of each of n values, (n,); a scalar is that of all."""
    numbers = _one_for_each(column, "error_variance", n)
    wrong = np.flatnonzero(numbers < 0)
    if len(wrong):
        raise InvalidInput(
            "`error_variance` must hold variances of at least 0, the squares of standard errors. "
            f"Got {numbers[wrong[0]]:g} in row {wrong[0] + 1} ({len(wrong)} such rows)."
        )
    return numbers


def _checked_replicates(column, n):
    """Return the number of measurements of each of n values, (n,)."""
    numbers = _one_for_each(column, "replicates", n)
    # the reciprocal of a subnormal number overflows
    wrong = np.flatnonzero(~(numbers >= np.finfo(np.float64).tiny))
    if len(wrong):
        raise InvalidInput(
            "`replicates` must be greater than 0: the number of measurements averaged into each "
            f"value, or a weight. Got {numbers[wrong[0]]:g} in row {wrong[0] + 1}."
        )
    return numbers


LARGEST_COORDINATE = 1e150
"""Largest size of a coordinate."""

DEGREE_LIMITS = (
    (1, "latitudes", -90, 90, ": longitude must be the first column"),
    (0, "longitudes", -360, 360, ""),
)


def _default_names(metric, dimensions):
    """Return names for coordinates without names."""
    return ("lon", "lat") if metric_of(metric).geographic else ("x", "y", "z")[:dimensions]


def check_finite(columns, names, what, advice="take these rows out", numbers=None):
    """Raise `InvalidInput` if an (n, p) array has a NaN or an infinite number.

    `numbers` are those of the rows from 0, (n,), for the message.
    """
    bad = ~np.isfinite(columns)
    if bad.any():
        rows = bad.any(axis=1)
        row = int(np.argmax(rows))
        column = int(np.argmax(bad[row]))
        raise InvalidInput(
            f"{what} must be finite numbers. Got {columns[row, column]} in row "
            f"{(row if numbers is None else numbers[row]) + 1}, column "
            f"{names[column]!r} ({int(rows.sum())} such rows): {advice}."
        )


def _as_numbers(values, what):
    """Return an array of FP64 with NaN for masked cells, or raise `InvalidInput`."""
    if np.ma.isMaskedArray(values):
        values = values.astype(np.float64).filled(np.nan)
    if np.iscomplexobj(values) or getattr(getattr(values, "dtype", None), "kind", "f") in "Mm":
        raise InvalidInput(f"`{what}` must be real numbers. Got {np.asarray(values).dtype}.")
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"`{what}` must be an array of numbers: {error}.") from None


def _read_only(array):
    """Return a read-only copy, so that observations do not change after a fit."""
    copy = np.array(array)
    copy.setflags(write=False)
    return copy


def _looks_like_degrees(locations, names=()):
    """Whether coordinates are probably longitude and latitude.

    By their names; or because they lie within ±180 × ±90, exceed 10, and are further from the
    origin than they spread, as a region on the Earth and unlike a local grid.
    """
    if locations.shape[1] != 2:
        return False
    if spatial.names_say_degrees(names):
        return True
    x, y = locations.T
    if np.abs(x).max() > 180 or np.abs(y).max() > 90 or np.abs(locations).max() < 10:
        return False
    centre = np.abs(locations.mean(axis=0))
    return bool((centre > np.ptp(locations, axis=0)).any())


# Summaries as text and HTML


def counted(count, noun):
    """Return a count with its noun.

    Examples
    --------
    >>> counted(1, "time"), counted(1200, "time")
    ('1 time', '1,200 times')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def few(names, most=6):
    """Return names as one line: the first ones, and their number if some are left out.

    Examples
    --------
    >>> few("abc"), few("abcdefgh")
    ('a, b, c', 'a, b, c, d, e, f, … (8)')
    """
    shown = ", ".join(str(name) for name in names[:most])
    return f"{shown}, … ({len(names)})" if len(names) > most else shown


def _rows(columns):
    """Return (name, cells) of each column: minimum, median and maximum, or one text."""
    for name, column in columns.items():
        if isinstance(column, tuple):
            yield name, (f"levels: {few(column)}",)
            continue
        known = column[np.isfinite(column)]
        numbers = (known.min(), np.median(known), known.max()) if len(known) else ()
        yield name, tuple(f"{number:.6g}" for number in numbers) or ("no numbers",)


def summary(title, columns):
    """Return the minimum, median and maximum of columns as a table of text.

    Parameters
    ----------
    title : str
    columns : dict of str to (n,) ndarray or tuple of str
        NaN are left out; a tuple holds the levels of a column of text.

    Examples
    --------
    >>> print(summary("Soil", {"x": np.array([1.0, 5.0, 2.0]), "rock": ("clay", "sand")}))
    Soil
    <BLANKLINE>
             minimum      median     maximum
    x              1           2           5
    rock    levels: clay, sand
    """
    width = max(map(len, columns))
    lines = [title, "", f"{'':<{width}}{'minimum':>12}{'median':>12}{'maximum':>12}"]
    for name, cells in _rows(columns):
        form = "{:>12}" if len(cells) == 3 else "    {}"
        lines.append(f"{name:<{width}}{''.join(map(form.format, cells))}")
    return "\n".join(lines)


def summary_html(title, columns):
    """Return `summary` as HTML, for notebooks."""
    heads = "".join(f"<th>{name}</th>" for name in ("", "minimum", "median", "maximum"))
    lines = []
    for name, cells in _rows(columns):
        span = "" if len(cells) == 3 else ' colspan="3"'
        row = "".join(f"<td{span}>{escape(cell)}</td>" for cell in cells)
        lines.append(f"<tr><th>{escape(str(name))}</th>{row}</tr>")
    return f"<p>{escape(title)}</p><table><tr>{heads}</tr>{''.join(lines)}</table>"
