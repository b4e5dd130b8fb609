"""Observations: locations, values and covariates, with the metric between locations."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypedDict, Unpack

import numpy as np

from ..covariance.distance import Metric, metric_of
from ..covariance.inputs import Inputs
from ..errors import GeomxpWarning, InvalidInput
from ..runtime.equality import by_content
from . import checks, readers, spatial, tables, times
from .arrays import (
    MISSING_ADVICE,
    as_numbers,
    check_finite,
    checked_error_variance,
    checked_exposure,
    checked_limits,
    checked_locations,
    checked_replicates,
    checked_trials,
    checked_variable,
    default_names,
    is_text,
    looks_like_degrees,
    names_of_variables,
    on_branch,
    one_for_each,
    read_only,
    variable_numbers,
)
from .labels import aligned, labels_of
from .limits import counts_in_words, is_censored
from .names import checked_names
from .options import READER_OPTIONS
from .reading import Source, fields_of, read, source_of
from .summaries import counted, few, summary, summary_html

if TYPE_CHECKING:
    import geopandas
    import pandas
    import xarray

    from .._typing import (
        Any,
        ArrayLike,
        Callable,
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
    trials: str | Sequence[str | None] | None
    offset: str | Sequence[str | None] | None
    exposure: str | Sequence[str | None] | None
    below: float | str | Sequence[float | str | None] | None
    above: float | str | Sequence[float | str | None] | None
    limits: str | None
    missing: float | Sequence[float]
    duplicates: str | None
    value_unit: str | None


LENGTH_SYMBOLS = {"metre": "m", "kilometre": "km"}
"""Symbols of units of length."""


TEXT_FIELDS = (
    *("value_name", "crs", "length_unit", "time_name", "variable_name", "error_variance_name"),
    *("value_unit", "time_unit", "time_origin", "time_calendar", "time_zone"),
    *("trials_name", "offset_name", "exposure_name"),
)
"""Fields of observations that are text."""


@dataclass(frozen=True)
class Column:
    """A column of observations.

    Parameters
    ----------
    name : str
    values : (n,) ndarray
        Numbers; codes of `levels` if there are any.
    role : str
        "location", "value", "covariate", or one of `ROLES`.
    unit : str
        "" if it is unknown, or there is none.
    levels : tuple of str
    """

    name: str
    values: Floats | Whole
    role: str
    unit: str = ""
    levels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Role:
    """Role of an optional column of observations, with one number for each value.

    Parameters
    ----------
    name : str
        Field with the numbers; `NAME_name` is that with the column's name.
    checked : callable
        checked(observations, n) returns the fields in their final form, by name, or raises
        `InvalidInput`.
    named : bool
        Whether the column has a name of its own, other than those of the coordinates.
    unit, levels : str
        Fields with the unit and the levels of the column, if it has any.
    of_inputs : bool
        Whether covariances and variances of errors depend on the column, so that `Inputs` have it.
    absent : float, optional
        Infinite number that null stands for in a saved fit.
    """

    name: str
    checked: Callable[[Observations, int], dict[str, Any]]
    named: bool = True
    unit: str = ""
    levels: str = ""
    of_inputs: bool = False
    absent: float | None = None

    def column(self, observations):
        """Return the column of this role."""
        return Column(
            getattr(observations, f"{self.name}_name") if self.named else self.name,
            getattr(observations, self.name),
            self.name,
            getattr(observations, self.unit) if self.unit else "",
            getattr(observations, self.levels) if self.levels else (),
        )


def _checked_times(observations, n):
    time, axis = times.as_numbers(observations.time, observations.time_axis)
    return {
        "time": read_only(one_for_each(time, "time", n)),
        "time_unit": axis.unit,
        "time_origin": axis.origin,
        "time_calendar": axis.calendar,
        "time_zone": axis.zone,
    }


def _checked_variables(observations, n):
    names, numbers = observations.variable_names, observations.variable
    if len(set(names)) < len(names):
        raise InvalidInput(f"`variable_names` must be different. Got {few(names, 8)}.")
    if not names or is_text(numbers):
        names = names or names_of_variables(numbers)
        numbers = variable_numbers(numbers, names)
    numbers = checked_variable(numbers, n, names)
    return {"variable_names": names, "variable": read_only(numbers)}


def _checked_error_variances(observations, n):
    return {"error_variance": read_only(checked_error_variance(observations.error_variance, n))}


def _checked_replicates(observations, n):
    return {"replicates": read_only(checked_replicates(observations.replicates, n))}


def _checked_trials(observations, n):
    return {"trials": read_only(checked_trials(observations.trials, n))}


def _checked_offsets(observations, n):
    return {"offset": read_only(one_for_each(observations.offset, "offset", n))}


def _checked_exposures(observations, n):
    return {"exposure": read_only(checked_exposure(observations.exposure, n))}


def _checked_limits(observations, n):
    seen = observations
    limits = checked_limits(seen.values, seen.lower, seen.upper)
    return dict(zip(("lower", "upper"), map(read_only, limits), strict=True))


ROLES = {
    one.name: one
    for one in (
        Role("time", _checked_times, unit="time_unit", of_inputs=True),
        Role("variable", _checked_variables, levels="variable_labels", of_inputs=True),
        Role("error_variance", _checked_error_variances, of_inputs=True),
        Role("replicates", _checked_replicates, named=False, of_inputs=True),
        Role("trials", _checked_trials),
        Role("offset", _checked_offsets),
        Role("exposure", _checked_exposures),
        Role("lower", _checked_limits, named=False, unit="value_unit", absent=-np.inf),
        Role("upper", _checked_limits, named=False, unit="value_unit", absent=np.inf),
    )
}
"""Roles of optional columns."""

NAMED_ROLES = tuple(name for name, role in ROLES.items() if role.named)

RESPONSE_ROLES = tuple(name for name, role in ROLES.items() if not role.of_inputs)
"""Roles of columns that only the distribution of a value depends on, given the field."""


def _check_one_level(codes, first, rows, name):
    """Raise `InvalidInput` if a covariate of text differs between rows at one location."""
    differ = np.flatnonzero(codes != codes[first])
    if len(differ):
        other = differ[0]
        raise InvalidInput(
            f"covariate {name!r} differs between rows {rows[first[other]] + 1} and "
            f"{rows[other] + 1} at one location, and text has no mean: use "
            "duplicates='drop' or 'keep' (--duplicates drop)."
        )


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
    trials : (n,) array_like of int, optional
        Number of trials of each value, at least 1, for a binomial response: the value counts the
        successes.
    offset : (n,) array_like, optional
        Known number on the scale of the link, which is added to the trend and the field.
    exposure : (n,) array_like, optional
        Positive number, such as an area or a population, to which the mean of a count is
        proportional. Its logarithm is an offset, in addition to `offset`; see `total_offset`.
    lower, upper : (n,) array_like, optional
        Limits between which a censored value lies; equal where the value is known. `lower` is -inf
        where there is no lower limit, `upper` inf where there is no upper one. If only one of the
        two is given, the value itself is the other limit. `values` then hold the value where it is
        known, the limit where there is one, and the middle where there are two.
    trials_name, offset_name, exposure_name : str
        Names of these columns.
    row_labels : pandas.Index, optional
        Labels of the rows, by which Series beside the observations are matched; those of the
        locations or the values if not given.

    Raises
    ------
    InvalidInput
        For fewer than 3 locations, shapes that do not match, NaN or infinite numbers (their count
        and the first row are given), latitudes outside ±90, numbers of variables that are not
        whole numbers from 0, or names of variables that are not among `variable_names`; for trials
        below 1, exposures of at most 0, and limits between which the value does not lie; for frames
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

    A value that is only known to be below 0.2, the others exactly:

    >>> places, values = [[0, 0], [1, 0], [0, 2]], [0.2, 1.5, 3.0]
    >>> seen = Observations(places, values, lower=[-np.inf, 1.5, 3.0])
    >>> seen.upper.tolist(), seen.censored.tolist(), seen.limits_in_words
    ([0.2, 1.5, 3.0], [True, False, False], '1 of 3 values is below a limit (0.2)')
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
    trials: Floats | None = None
    offset: Floats | None = None
    exposure: Floats | None = None
    lower: Floats | None = None
    upper: Floats | None = None
    trials_name: str = "trials"
    offset_name: str = "offset"
    exposure_name: str = "exposure"
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
            trials: ArrayLike | None = None,
            offset: ArrayLike | None = None,
            exposure: ArrayLike | None = None,
            lower: ArrayLike | None = None,
            upper: ArrayLike | None = None,
            trials_name: str = "trials",
            offset_name: str = "offset",
            exposure_name: str = "exposure",
            row_labels: Any = None,
        ) -> None: ...

    def __post_init__(self):
        self._match_rows()
        self._check_texts()
        put = object.__setattr__
        for name, value in self._checked_locations().items():
            put(self, name, value)
        put(self, "values", read_only(self._checked_values()))
        if self.variable is None:
            # as of replace(observations, variable=None)
            put(self, "variable_names", ())
        for role in ROLES.values():
            if getattr(self, role.name) is not None:
                for name, value in role.checked(self, len(self.locations)).items():
                    put(self, name, value)
        if self.covariates is not None:
            put(self, "covariates", read_only(self._checked_covariates(len(self.locations))))
        self._check_names()

    def _check_texts(self):
        for name in TEXT_FIELDS:
            text = getattr(self, name)
            if not (isinstance(text, str) or (name == "crs" and text is None)):
                raise InvalidInput(f"`{name}` must be text. Got {text!r:.60}.")
        for name in ("location_names", "covariate_names", "variable_names"):
            object.__setattr__(self, name, checked_names(name, getattr(self, name)))

    def _checked_locations(self):
        """Return the locations on their branch of longitude, its meridian, and their names."""
        metric, names = metric_of(self.metric), self.location_names
        locations = checked_locations(self.locations, self.metric, names, MISSING_ADVICE)
        if len(locations) < LEAST_LOCATIONS:
            raise InvalidInput(
                f"at least {LEAST_LOCATIONS} locations are needed. Got {len(locations)}."
            )
        locations, meridian = on_branch(locations, metric, self.central_meridian)
        return {
            "locations": read_only(locations),
            "central_meridian": meridian,
            "location_names": names or tuple(default_names(self.metric, locations.shape[1])),
        }

    def _checked_values(self):
        values, n = as_numbers(self.values, "values"), len(self.locations)
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.shape != (n,):
            raise InvalidInput(
                f"`values` must hold one number for each of the {n} locations. "
                f"Got shape {values.shape}."
            )
        check_finite(values[:, None], (self.value_name,), "values", MISSING_ADVICE)
        return values

    def _check_names(self):
        """Refuse columns of one name; warn if the names of coordinates say another metric."""
        # trials may also be an exposure
        roles = {"location", *NAMED_ROLES} - {*RESPONSE_ROLES}
        different = [one for one in self.columns if one.role in roles]
        used = [one.name for one in different]
        if len(set(used)) < len(used):
            roles = [one.role for one in different if one.role != "location"]
            what = ", ".join(["coordinates", *roles])
            raise InvalidInput(f"{what} must be different columns. Got {', '.join(used)}.")
        names = self.location_names
        if metric_of(self.metric).embedding is None and looks_like_degrees(self.locations, names):
            warnings.warn(
                f"the coordinates {', '.join(names)} look like longitude and latitude in degrees, "
                'but metric="euclidean" gives a degree the same length everywhere: use '
                'metric="chordal", which measures km.',
                GeomxpWarning,
                stacklevel=5,
            )

    def _match_rows(self):
        """Put the rows of all columns into the order of the labels, and keep these."""
        put, labels = object.__setattr__, labels_of(self.locations)
        names = ("values", "covariates", *ROLES)
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

    def _checked_covariates(self, n):
        put, given = object.__setattr__, self.covariates
        if spatial.is_kind(given, "pandas", "DataFrame"):
            names = tuple(map(str, given.columns))
            given, levels = tables.encode(given.set_axis(names, axis=1), names)
            put(self, "covariate_names", names)
            put(self, "levels", levels)
        covariates = as_numbers(given, "covariates")
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
            f"{self._times_in_words}{covariates}{self._limits_in_words}{self._missing_in_words}>"
        )

    def __str__(self) -> str:
        return summary(*self._summary())

    def _repr_html_(self) -> str:
        return summary_html(*self._summary())

    def _summary(self):
        columns = {}
        for one in self.columns:
            if one.role == "value" and self.variable is not None:
                for number, label in enumerate(self.variable_labels):
                    columns[label] = one.values[self.variable == number]
            elif one.role not in ("variable", "lower", "upper"):
                columns[one.name] = one.levels or one.values
        where = f"{self.metric} distances in {self.unit}"
        where += f"{self._branch_in_words}{self._times_in_words}"
        if self.variable is not None:
            of = f"{self._variables_in_words} at {self._places_in_words}"
            title = f"{len(self):,} observations of {of}, {where}"
            return f"{title}{self._limits_in_words}{self._missing_in_words}", columns
        return f"{len(self):,} observations, {where}{self._limits_in_words}", columns

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns with their names, units, levels and roles, coordinates first.

        Examples
        --------
        >>> import geomxp as gx
        >>> jura = gx.datasets.load("jura", covariates=("Rock",), value_unit="mg/kg")
        >>> [(one.name, one.role, one.unit) for one in jura.columns]
        [('x', 'location', 'km'), ('y', 'location', 'km'), ('Co', 'value', 'mg/kg'), \
('Rock', 'covariate', '')]
        """
        length = LENGTH_SYMBOLS.get(self.length_unit, self.length_unit)
        unit = "degree" if self.geographic else length
        coordinates = zip(self.location_names, self.locations.T, strict=True)
        found = [Column(name, values, "location", unit) for name, values in coordinates]
        own = {name: role.column(self) for name, role in ROLES.items() if name in self.extra()}
        found += [own.pop("time")] if "time" in own else []
        found += [Column(self.value_name, self.values, "value", self.value_unit), *own.values()]
        if self.covariates is not None:
            named = zip(self.covariate_names, self.covariates.T, strict=True)
            found += [
                Column(name, values, "covariate", levels=self.levels.get(name, ()))
                for name, values in named
            ]
        return tuple(found)

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
    def _limits_in_words(self):
        """How many values are censored: ", 21 of 155 values below a limit"."""
        counts = counts_in_words(self.values, self.lower, self.upper, numbers=False)
        return f", {counts}" if counts else ""

    @property
    def limits_in_words(self) -> str:
        """How many values are censored, with their limits; "" if none is.

        Examples
        --------
        >>> seen = Observations([0.0, 1.0, 2.0], [0.1, 0.2, 3.0], lower=[-np.inf, -np.inf, 3.0])
        >>> seen.limits_in_words
        '2 of 3 values are below a limit (0.1 to 0.2)'
        """
        return counts_in_words(self.values, self.lower, self.upper)

    @property
    def censored(self) -> np.ndarray | None:
        """Whether each value is only known to lie between limits, (n,); None without limits.

        Examples
        --------
        >>> Observations([0.0, 1.0, 2.0], [0.1, 2.0, 3.0], upper=[0.1, 2.0, np.inf]).censored
        array([False, False,  True])
        """
        return None if self.lower is None else is_censored(self.lower, self.upper)

    @property
    def total_offset(self) -> Floats | None:
        """`offset` plus log(`exposure`), (n,); None without both.

        Examples
        --------
        >>> Observations([0.0, 1.0, 2.0], [3, 0, 7], exposure=[1, 1, 2]).total_offset.round(3)
        array([0.   , 0.   , 0.693])
        """
        if self.exposure is None:
            return self.offset
        return np.log(self.exposure) + (0.0 if self.offset is None else self.offset)

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
        columns = {name: one for name, one in self.extra().items() if ROLES[name].of_inputs}
        return Inputs(self.locations, self.metric, **columns)

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
        trials: str | Sequence[str | None] | None = None,
        offset: str | Sequence[str | None] | None = None,
        exposure: str | Sequence[str | None] | None = None,
        below: float | str | Sequence[float | str | None] | None = None,
        above: float | str | Sequence[float | str | None] | None = None,
        limits: str | None = None,
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
        trials, offset, exposure : str or sequence of str, optional
            Columns of the numbers of trials, of offsets on the scale of the link, and of exposures,
            as of `Observations`; or functions of columns, such as "log(area)". For several `values`
            one for each of them, or None.
        below : float, str or sequence of these, optional
            Detection limit: values at or below it, and cells such as ND, are known only to lie
            below it. One number, or a column: with the limit of each row (an empty cell: none), or
            of flags (true or false, yes or no, 1 or 0) that say where the value itself is the
            limit. For several `values` one for each of them, or None.
        above : float, str or sequence of these, optional
            As `below`, for values at or above a limit.
        limits : {"negative"}, optional
            "negative": a negative value -x means that the value is below x.
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
            a metric that does not suit the coordinates, or a cell such as ND without `below`.

        Notes
        -----
        Cells of the column of values may have limits, whatever the options: "<0.5", "≤0.5", ">100",
        "≥100", "0.2-0.5", and with `below` ND, BDL, BLQ, <LOD, "not detected" and the like. Such
        values are censored: see `lower` and `upper` of `Observations`. A function of the values
        transforms their limits too and must be increasing: log, log10, log1p, sqrt, cbrt, ….

        Examples
        --------
        >>> import pandas as pd
        >>> table = pd.DataFrame({"lon": [5, 6, 7], "lat": [50, 52, 51], "z": [1.0, 2.0, 3.0]})
        >>> observations = Observations.from_frame(table, locations=("lon", "lat"), values="z")
        >>> observations.metric, observations.unit
        ('chordal', 'km')

        Values below detection limits:

        >>> table = table.assign(z=["<0.5", "ND", "3.0"])
        >>> seen = Observations.from_frame(table, values="z", below=0.2)
        >>> seen.lower, seen.upper
        (array([-inf, -inf,   3.]), array([0.5, 0.2, 3. ]))
        """
        given = {name: value for name, value in locals().items() if name in READER_OPTIONS}
        return cls.from_options(frame, given)

    @classmethod
    def from_options(
        cls, frame: Frame | DataArray | Grid, options: Mapping[str, Any]
    ) -> Observations:
        """Make observations as `from_frame` does, with any of `READER_OPTIONS` by name."""
        reading = read(frame, options)
        observations = cls(**fields_of(reading))
        observations = observations._with_duplicates(reading.options["duplicates"], reading.rows)
        observations.source.update(source_of(reading))
        return observations

    def _with_duplicates(self, duplicates, rows):
        """Return the observations with the rows at an earlier location as the user asks.

        `rows` are those of the table, (n,).
        """
        first = self.inputs.first_rows()
        repeated = first != np.arange(len(first))
        if duplicates == "keep" or not repeated.any():
            return self
        found = self._repeated_in_words(first, rows)
        if duplicates is None:
            warnings.warn(
                f"{found}. They are kept as replicates. To confirm this, use duplicates='keep'; to "
                "change it, use 'drop', 'mean' or 'error' (--duplicates keep|drop|mean|error).",
                GeomxpWarning,
                stacklevel=4,
            )
            return self
        counts = [name for name in self.extra() if name in RESPONSE_ROLES]
        other = "drop" if counts else "mean"
        if duplicates == "error":
            raise InvalidInput(
                f"{found}: use duplicates={other!r} or 'keep' (--duplicates {other})."
            )
        if duplicates == "mean" and counts:
            raise InvalidInput(
                f"{found}, and values with {' and '.join(counts)} have no mean: use "
                "duplicates='keep' or 'drop' (--duplicates keep)."
            )
        kept = self.subset(~repeated)
        return kept if duplicates == "drop" else self._with_means(kept, first, rows)

    def _repeated_in_words(self, first, rows):
        """How many observations are at the location of an earlier one, `first`, (n,)."""
        repeated = first != np.arange(len(first))
        row, count = int(np.argmax(repeated)), int(repeated.sum())
        same = int((repeated & (self.values == self.values[first])).sum())
        noun, earlier = "row", "row"
        if self.variable is not None:
            noun, earlier = "value", "value of the same variable"
        return (
            f"{count:,} {noun}{'s are' if count > 1 else ' is'} at the location of an earlier "
            f"{earlier} (row {rows[row] + 1} at that of row {rows[first[row]] + 1}), {same:,} "
            "with the same value"
        )

    def _with_means(self, kept, first, rows):
        """Return the observations `kept` with means over those at their locations, `first`."""
        group = np.cumsum(first == np.arange(len(first)))[first] - 1
        counts = np.bincount(group)

        def means(column):
            return np.bincount(group, column) / counts

        columns = {"values": means(self.values)}
        if self.covariates is not None:
            covariates = np.array(kept.covariates)
            for position, name in enumerate(self.covariate_names):
                column = self.covariates[:, position]
                if name in self.levels:
                    _check_one_level(column, first, rows, name)
                else:
                    covariates[:, position] = means(column)
            columns["covariates"] = covariates
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
            error_variance, trials, offset, exposure, below, above, limits, missing, duplicates,
            value_unit: as of `from_frame`.

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
        for array in (self.locations, self.values, self.covariates):
            if array is not None:
                sha.update(np.ascontiguousarray(array).tobytes())
        for name, array in self.extra().items():
            # the same numbers may be trials or an exposure
            sha.update(name.encode() if name in RESPONSE_ROLES else b"")
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
        """Return the columns with one of `ROLES` that these observations have, by role."""
        columns = {name: getattr(self, name) for name in ROLES}
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
        error_variance, trials, offset, exposure, below, above, limits, missing, duplicates,
        value_unit: as of `Observations.from_frame`. `values` is the name of a column, or a function
        of one such as "log(zinc)", or a sequence of these for several variables; `locations` and
        `covariates` are sequences of names. Cells of values may be limits, "<0.5", ">100" or
        "0.2-0.5", and ND with `below`. Where a table states units, a name may have its unit behind
        it, "sst (degree_C)", and the unit of the values is `value_unit` if this is not given.

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
    options = {name: readers.without_units(named, units) for name, named in columns.items()}
    options["decimal"] = decimal
    if options.get("value_unit") is None and isinstance(options.get("values"), str):
        options["value_unit"] = units.get(options["values"])
    try:
        observations = Observations.from_options(data, options)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
    observations.source.update(
        READER_OPTIONS.kept(options, observations)
        | observations.source
        | {
            "path": str(Path(path).resolve()),
            "sha256": tables.sha256(path),
            "digest": observations.digest(),
            "value": observations.value_name,
        }
    )
    if "values" in observations.source:
        return observations
    errors = checks.error_columns(getattr(data, "columns", ()), observations.value_name)
    observations.source.update({"errors": errors} if errors else {})
    source = Source.of(data, observations.value_name)
    if source.function is not None:
        observations.source["value_of"] = source.columns[0]
    return observations
