"""From a frame or a grid to the fields of `Observations`: steps, each on the result of the last.

A step reads the options that concern it. A new option that changes what is read is a row of
`READER_OPTIONS`, and a step of `STEPS` or a change of one.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ..covariance.distance import metric_of
from ..errors import GeomxpWarning, InvalidInput
from . import checks, spatial, tables, times
from .arrays import MISSING_ADVICE, check_finite, checked_for_sentinels
from .formula import Formula
from .limits import Cells, is_censored, transformed
from .names import checked_names, in_python, option
from .options import READER_OPTIONS
from .summaries import few

if TYPE_CHECKING:
    from .._typing import Any, DataArray, Document, Floats, Frame, Grid, Mapping, Whole

COLUMN_ROLES = {
    "error_variance": ("error variances", 0.0),
    "trials": ("trials", 1.0),
    "offset": ("offsets", 0.0),
    "exposure": ("exposures", 1.0),
}
"""Roles whose column, or function of columns, an option names for each variable: what messages call
the numbers, and that of variables without such a column."""

LARGEST_DATUM_SHIFT_DEGREES = 0.02
"""Degrees by which coordinates of one place differ at most between datums."""


@dataclass(frozen=True)
class Source:
    """A column, or a function of columns, that gives values or one of `COLUMN_ROLES`.

    `text` names it, and `columns` are those that it needs; `function` is None for a column itself.
    """

    text: str
    columns: tuple[str, ...]
    function: Formula | None = None

    @classmethod
    def of(cls, frame, text, what="values", most=1):
        """Return the source that a text names: a column, or a function of at most so many."""
        grid = spatial.is_grid(frame)
        names = spatial.variable_names(frame) if grid else getattr(frame, "columns", ())
        if text in names:
            return cls(text, (text,))
        function = Formula.of_values(text, what, most)
        return (
            cls(text, (text,))
            if function is None
            else cls(function.text, function.variables, function)
        )

    def values(self, columns, what="values", rows=None):
        """Return finite values from the columns of numbers, (n,).

        `rows` are those of the table, (n,), for messages.
        """
        check_finite(np.column_stack(columns), self.columns, what, MISSING_ADVICE, rows)
        if self.function is None:
            return columns[0]
        values = self.function.values(*columns)
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            cells = ", ".join(
                f"{name} = {column[bad[0]]:g}"
                for name, column in zip(self.columns, columns, strict=True)
            )
            raise InvalidInput(
                f"{self.function.text} is not finite for {cells} in "
                f"row {(bad if rows is None else rows[bad])[0] + 1} ({len(bad)} such rows): use "
                "another function, such as log1p or cbrt, or the column itself."
            )
        return values


@dataclass(frozen=True)
class Reading:
    """A table that is being read, as far as the steps have come.

    Parameters
    ----------
    frame : DataFrame, GeoDataFrame, DataArray or Dataset
    options : dict
        All of `READER_OPTIONS`, checked.
    values : tuple of Source
        One for each variable that has a column of its own.
    roles : dict of str to tuple of Source or None
        `COLUMN_ROLES` that are used: the source for each of `values`.
    bounds : dict of str to tuple of float, str or None
        "below" and "above": the limit for each of `values`, or its column.
    time, variable : str, optional
        Columns.
    table : Table
        Columns with one row for each location, its coordinates and their system.
    named : tuple of str
        Columns of the coordinates in the frame.
    axis : TimeAxis
    labels : tuple of str
        Names of the variables of the column `variable`, by code.
    covariates : tuple of str
    levels : dict of str to tuple of str
        Levels of the covariates of text.
    codes : (m, p) ndarray
        Covariates, NaN where one is missing.
    coordinates : (m, d) ndarray
    numbers : dict of str to (m,) ndarray
        Other columns, NaN where a number is missing.
    limits : dict of str to Cells
        Columns of the values that may be censored.
    present, kept : (m, q) ndarray of bool
        Values that are not missing, and those that become observations.
    rows, of : (n,) ndarray of int
        Row of the table and number in `values` of each observation.
    """

    frame: Frame | DataArray | Grid
    options: dict[str, Any]
    values: tuple[Source, ...] = ()
    roles: dict[str, tuple[Source | None, ...]] = field(default_factory=dict)
    bounds: dict[str, tuple[float | str | None, ...]] = field(default_factory=dict)
    time: str | None = None
    variable: str | None = None
    table: spatial.Table | None = None
    named: tuple[str, ...] = ()
    axis: times.TimeAxis = times.NUMBER_AXIS
    labels: tuple[str, ...] = ()
    covariates: tuple[str, ...] = ()
    levels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    codes: Floats | None = None
    coordinates: Floats | None = None
    numbers: dict[str, Floats] = field(default_factory=dict)
    limits: dict[str, Cells] = field(default_factory=dict)
    present: np.ndarray | None = None
    kept: np.ndarray | None = None
    rows: Whole | None = None
    of: Whole | None = None

    @property
    def measured(self):
        """Columns of the values, one for each variable."""
        return tuple(one.columns[0] for one in self.values)

    @property
    def several(self):
        """Whether several columns hold values."""
        return len(self.values) > 1

    @property
    def shared(self):
        """Columns that all values of a row have in common besides coordinates and covariates."""
        return tuple(name for name in (self.time, self.variable) if name is not None)

    @property
    def others(self):
        """All columns of numbers besides coordinates and covariates."""
        sources = (one for each in self.roles.values() for one in each if one is not None)
        of_roles = (name for one in sources for name in one.columns)
        # the error variance may be a function of the values
        extra = [name for name in (*self.shared, *of_roles) if name not in self.measured]
        return tuple(dict.fromkeys((*extra, *self.measured)))

    @property
    def limit_columns(self):
        """Columns of limits."""
        each = (one for some in self.bounds.values() for one in some)
        return tuple(dict.fromkeys(one for one in each if isinstance(one, str)))

    @property
    def cells(self):
        """Numbers of the columns of values, (m, q)."""
        return np.column_stack([self.numbers[name] for name in self.measured])

    @property
    def metric(self):
        """Metric that was given, or that of the coordinates."""
        degrees = spatial.names_say_degrees(self.table.locations)
        usual = self.table.metric or ("chordal" if degrees else "euclidean")
        return self.options["metric"] or usual


def read(frame: Frame | DataArray | Grid, options: Mapping[str, Any]) -> Reading:
    """Return a table with all steps done.

    Raises
    ------
    InvalidInput
        See `Observations.from_frame`.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"x": [0, 1, 2], "y": [0, 1, 0], "z": [3.0, None, 5.0]})
    >>> reading = read(table, {"values": "z", "drop_missing": True})
    >>> reading.rows, reading.table.locations
    (array([0, 2]), ('x', 'y'))
    """
    reading = Reading(frame, READER_OPTIONS.checked(options))
    for step in STEPS:
        reading = step(reading)
    return reading


# Steps


def choose_columns(reading):
    """Choose the columns of the values, their errors, the times and the variables."""
    frame, options = reading.frame, reading.options
    values = _chosen_values(frame, options["values"])
    names, variable = [one.text for one in values], options["variable"]
    if len(values) > 1 and variable is not None:
        raise InvalidInput(
            f"`variable` is for a table with one column of values. Got {variable!r} and the "
            f"values {few(names, 8)}: leave one of them out."
        )
    given = {name: options[name] for name in COLUMN_ROLES if options[name] is not None}
    roles = {name: _chosen_sources(frame, name, one, names) for name, one in given.items()}
    bounds = {name: _chosen_limits(name, options[name], names) for name in ("below", "above")}
    time = options["time"]
    if time is None and spatial.is_grid(frame):
        time = spatial.time_of(frame, values[0].columns[0], options["locations"])
    reading = replace(
        reading, values=values, roles=roles, bounds=bounds, time=time, variable=variable
    )
    named = [("time", time), ("variable", variable)]
    for name, each in roles.items():
        named += [(name, one.text) for one in each if one and one.function is None]
    named += [(name, one) for name, each in bounds.items() for one in each]
    for what, column in named:
        if column in reading.measured:
            raise InvalidInput(
                f"`{what}` must name a column other than the values. Got {column!r}."
            )
    return reading


def find_coordinates(reading):
    """Make plain columns of the frame, with the coordinates and their reference system."""
    options, measured = reading.options, reading.measured
    swapped = longitude_first(options["locations"], options["crs"])
    needed = tables.covariates_of((), options["covariates"], options["formula"])[0]
    # a grid's dimensions are those of its first variable
    extra = [name for name in reading.others if name not in measured]
    columns = (*measured, *needed, *extra, *reading.limit_columns)
    table = spatial.tabulate(
        reading.frame, columns, swapped, reading.time, options["crs"], measured
    )
    table = _with_system(table, swapped, options["crs"], measured)
    for column in measured:
        if column in table.locations:
            raise InvalidInput(
                f"`values` must be a column other than the coordinates. Got {column!r}."
            )
    return replace(reading, table=table, named=swapped or table.locations)


def check_coordinates(reading):
    """Refuse a metric that does not suit the coordinates, and missing geometries."""
    table, metric = reading.table, reading.options["metric"]
    system = None if table.crs is None else spatial.describe(table.crs)
    needs_degrees = metric is not None and metric_of(metric).geographic
    if needs_degrees and system is not None and not system.geographic:
        raise InvalidInput(
            f'metric="{metric}" needs longitude and latitude. Got coordinates in '
            f"{spatial.title(table.crs)} ({system.unit}): leave the metric out, or reproject."
        )
    if not reading.options["drop_missing"]:
        table.check_geometry(": drop them (--drop-missing)")
    return reading


def leave_out_empty_cells(reading):
    """Leave out the cells of a grid that have no value, with a warning that counts them."""
    table, measured = reading.table, reading.measured
    if table.dims is None:
        return reading
    missing = np.isnan(tables.number_columns(table.columns, measured)).all(axis=1)
    if not missing.any():
        return reading
    _warn(
        f"{int(missing.sum()):,} of {len(missing):,} cells have no "
        f"{' or '.join(measured)} and are left out."
    )
    return replace(reading, table=replace(table, columns=table.columns[~missing]))


def transform_to_degrees(reading):
    """Transform longitude and latitude of other datums to EPSG:4326.

    Columns of other numbers, such as those on a rotated pole or in gradians, stay beside them:
    tables of new locations need the new ones.
    """
    table, target = reading.table, spatial.LONGITUDE_LATITUDE
    if table.crs is None or not spatial.describe(table.crs).geographic:
        return reading
    if spatial.same(table.crs, target):
        return replace(reading, table=replace(table, crs=target))
    names = list(table.locations[:2])
    numbers = tables.number_columns(table.columns, names)
    degrees = spatial.reproject(numbers, table.crs, target)
    moved = np.abs((degrees - numbers + 180) % 360 - 180) > LARGEST_DATUM_SHIFT_DEGREES
    if moved.any() and table.dims is None and not spatial.is_geographic_frame(table.source):
        taken = {"lon", "lat"} & {*table.columns.columns}
        names = ["longitude", "latitude"] if taken else ["lon", "lat"]
    columns = table.columns.assign(**dict(zip(names, degrees.T, strict=True)))
    locations = (*names, *table.locations[2:])
    return replace(reading, table=replace(table, columns=columns, crs=target, locations=locations))


def convert_times(reading):
    """Convert dates to numbers of a unit since an origin."""
    table, time = reading.table, reading.time
    axis = times.TimeAxis(table.time_unit) if table.time_unit else times.NUMBER_AXIS
    if time is not None and time in table.columns:
        drop_missing = reading.options["drop_missing"]
        column, axis = times.as_numbers(table.columns[time], axis, missing=drop_missing)
        table = replace(table, columns=table.columns.assign(**{time: column}))
    return replace(reading, table=table, axis=axis)


def number_variables(reading):
    """Replace the names of variables by codes."""
    table, name = reading.table, reading.variable
    if name is None:
        return reading
    codes, words = tables.encode(table.columns, (name,), texts=(name,))
    columns = table.columns.assign(**{name: codes[:, 0]})
    return replace(reading, table=replace(table, columns=columns), labels=words.get(name, ()))


def read_numbers(reading):
    """Read all columns as numbers, NaN in place of those that mark a missing value.

    The cells of values may be limits.
    """
    table, options = reading.table, reading.options
    covariates, texts = tables.covariates_of(
        table.locations, options["covariates"], options["formula"]
    )
    codes, levels = tables.encode(table.columns, covariates, texts=texts)
    d, measured = len(table.locations), reading.measured
    others = [name for name in reading.others if name not in measured]
    tables.check_columns(table.columns, (*table.locations, *others, *measured))
    numbers = tables.number_columns(table.columns, (*table.locations, *others))
    marked = np.isin(numbers, options["missing"])
    if reading.labels:
        # codes of names
        marked[:, d + others.index(reading.variable)] = False
    numbers = np.where(marked, np.nan, numbers)
    for column, name in enumerate(covariates):
        if name not in levels:
            codes[np.isin(codes[:, column], options["missing"]), column] = np.nan
    return replace(
        reading,
        covariates=covariates,
        levels=levels,
        codes=codes,
        coordinates=numbers[:, :d],
        numbers=dict(zip(others, numbers[:, d:].T, strict=True)),
    )


def read_values(reading):
    """Read the columns of the values, whose cells may be limits, and apply the options of limits."""
    columns, options = reading.table.columns, reading.options
    tables.check_columns(columns, reading.limit_columns)
    values, found = {}, {}
    for position, name in enumerate(reading.measured):
        bounds = {option: each[position] for option, each in reading.bounds.items()}
        asked = options["limits"] is not None or any(one is not None for one in bounds.values())
        cells = Cells.of(columns[name], name, options["missing"])
        if options["limits"] == "negative":
            cells = cells.with_negative()
        bounds = {
            option: columns[one] if isinstance(one, str) else one for option, one in bounds.items()
        }
        cells = cells.with_limits(**bounds)
        values[name] = cells.values
        if asked or cells.censored.any():
            found[name] = cells
    return replace(reading, numbers=reading.numbers | values, limits=found)


def choose_rows(reading):
    """Choose the values that become observations; refuse rows with missing numbers, or drop them.

    A missing value of one of several columns leaves out only itself.
    """
    cells, drop = reading.cells, reading.options["drop_missing"]
    several = reading.several
    present = ~np.isnan(cells) if several else np.ones(cells.shape, dtype=bool)
    kept = present & _complete(reading, cells) if drop else present
    if several and not drop:
        _check_complete(reading, cells, present)
    rows, of = np.nonzero(kept)
    if not len(rows) and several:
        measured = few(reading.measured, 8)
        raise InvalidInput(f"the columns {measured} have no values that can be used.")
    return replace(reading, present=present, kept=kept, rows=rows, of=of)


def _complete(reading, cells):
    """Whether all numbers of an observation are finite, (m, q)."""
    shared = [reading.numbers[name] for name in reading.shared]
    whole = np.isfinite(np.column_stack([reading.coordinates, *shared])).all(axis=1)
    whole &= np.isfinite(reading.codes).all(axis=1)
    kept = whole[:, None] & np.isfinite(cells)
    for each in reading.roles.values():
        for column, one in enumerate(each):
            for name in () if one is None else one.columns:
                kept[:, column] &= np.isfinite(reading.numbers[name])
    return kept


def _check_complete(reading, cells, present):
    """Raise `InvalidInput` if a row with a value lacks another number."""
    shared = [reading.numbers[name] for name in reading.shared]
    each = np.column_stack([reading.coordinates, *shared, reading.codes])
    names = (*reading.table.locations, *reading.shared, *reading.covariates)
    known = present.any(axis=1)[:, None]
    check_finite(np.where(known, each, 0.0), names, "columns", MISSING_ADVICE)
    check_finite(np.where(present, cells, 0.0), reading.measured, "values", MISSING_ADVICE)


def put_longitude_first(reading):
    """Exchange two coordinates if only the second can be longitudes, by their values."""
    table, coordinates = reading.table, reading.coordinates
    if not metric_of(reading.metric).geographic or spatial.names_say_degrees(table.locations):
        return reading
    if not _latitudes_first(coordinates[np.unique(reading.rows)]):
        return reading
    coordinates = np.hstack((coordinates[:, 1::-1], coordinates[:, 2:]))
    table = replace(table, locations=table.locations[::-1])
    _notice_of_order(table.locations, "by their values")
    return replace(reading, table=table, coordinates=coordinates)


def warn_of_mistakes(reading):
    """Warn of numbers that may mark missing values, and of coordinates of different kinds."""
    some, metric = np.unique(reading.rows), metric_of(reading.metric)
    locations, coordinates = reading.table.locations, reading.coordinates[some]
    columns = dict(zip(locations, coordinates.T, strict=True))
    columns |= {name: column[some] for name, column in reading.numbers.items()}
    # a number that marks a missing value may be below a limit
    columns |= {name: cells.written[some] for name, cells in reading.limits.items()}
    covariates = zip(reading.covariates, reading.codes[some].T, strict=True)
    columns |= {name: column for name, column in covariates if name not in reading.levels}
    if metric.turns:
        columns[locations[0]] = checked_for_sentinels(coordinates, metric)
    found = checks.sentinel_warning(columns), checks.axes_warning(locations, coordinates)
    for sentence in filter(None, found):
        _warn(sentence)
    return reading


STEPS = (
    choose_columns,
    find_coordinates,
    check_coordinates,
    leave_out_empty_cells,
    transform_to_degrees,
    convert_times,
    number_variables,
    read_numbers,
    read_values,
    choose_rows,
    put_longitude_first,
    warn_of_mistakes,
)
"""Steps of `read` in their order."""


# Results


def fields_of(reading: Reading) -> dict[str, Any]:
    """Return the fields of the observations: one for each value of each row."""
    table, axis, rows = reading.table, reading.axis, reading.rows
    variables, variable_names = _variables(reading)
    names = [one.text for one in reading.values]
    values, lower, upper = _values_and_limits(reading)
    fields = {}
    for name, each in reading.roles.items():
        fields[name] = _numbers_of_role(reading, name)
        if not reading.several:
            fields[f"{name}_name"] = each[0].text
    return fields | {
        "locations": reading.coordinates[rows],
        "values": values,
        "lower": lower,
        "upper": upper,
        "covariates": reading.codes[rows] if reading.covariates else None,
        "metric": reading.metric,
        "location_names": table.locations,
        "value_name": ", ".join(names),
        "covariate_names": reading.covariates,
        "levels": reading.levels,
        "crs": table.crs,
        "length_unit": table.unit,
        "value_unit": reading.options["value_unit"] or "",
        "time": None if reading.time is None else reading.numbers[reading.time][rows],
        "time_name": reading.time or "time",
        "time_unit": axis.unit,
        "time_origin": axis.origin,
        "time_calendar": axis.calendar,
        "time_zone": axis.zone,
        "variable": variables,
        "variable_name": reading.variable or "variable",
        "variable_names": variable_names,
        "row_labels": table.columns.index[rows] if table.dims is None else None,
    }


def source_of(reading: Reading) -> Document:
    """Return what the observations' source says of the reading, besides the options."""
    source, missing = {}, ~reading.present
    if {*reading.named} != {*reading.table.locations}:
        # reprojected longitude and latitude have other names
        source["locations"] = list(reading.named)
    left_out = int((reading.present & ~reading.kept).sum())
    if left_out:
        source["left_out"] = left_out
    if missing.any():
        names = [one.text for one in reading.values]
        source["missing_values"] = dict(zip(names, missing.sum(axis=0).tolist(), strict=True))
    return source


def _values_and_limits(reading):
    """Return the value of each observation and its limits, (n,); None without limits."""
    values, limits = reading.cells[reading.rows, reading.of], {}
    for name in ("lower", "upper") if reading.limits else ():
        # the limits of other columns are their values
        each = (
            getattr(reading.limits[column], name)
            if column in reading.limits
            else reading.numbers[column]
            for column in reading.measured
        )
        limits[name] = np.column_stack(list(each))[reading.rows, reading.of]
    lower, upper = limits.get("lower", values), limits.get("upper", values)
    for position, one in enumerate(reading.values):
        own = reading.of == position
        if one.function is not None:
            rows, known = reading.rows[own], values[own]
            if reading.limits:
                columns = transformed(one, known, lower[own], upper[own], rows)
                values[own], lower[own], upper[own] = columns
            else:
                values[own] = one.values([known], rows=rows)
    asked = any(reading.options[name] is not None for name in ("below", "above", "limits"))
    if not asked and not is_censored(lower, upper).any():
        return values, None, None
    return values, lower, upper


def _numbers_of_role(reading, name):
    """Return the number of each observation in one of `COLUMN_ROLES`, (n,)."""
    words, unknown = COLUMN_ROLES[name]
    numbers = np.full(len(reading.rows), unknown)
    for position, one in enumerate(reading.roles[name]):
        if one is not None:
            own = reading.of == position
            rows = reading.rows[own]
            columns = [reading.numbers[column][rows] for column in one.columns]
            what = words if one.function is None else "values"
            numbers[own] = one.values(columns, what, rows)
    return numbers


def _variables(reading):
    """Return the number of the variable of each observation, or None, and the names by number."""
    if reading.several:
        return reading.of, tuple(one.text for one in reading.values)
    if reading.variable is None:
        return None, ()
    codes, rows = reading.numbers[reading.variable][reading.rows], reading.rows
    if not reading.labels:
        return codes, ()
    bad = np.flatnonzero(np.isnan(codes))
    if len(bad):
        raise InvalidInput(
            f"row {rows[bad[0]] + 1}: column {reading.variable!r} names no variable ({len(bad)} "
            f"such rows): {MISSING_ADVICE}."
        )
    # in order of appearance
    order = list(dict.fromkeys(codes.astype(int).tolist()))
    numbers = np.zeros(len(reading.labels), dtype=int)
    numbers[order] = np.arange(len(order))
    return numbers[codes.astype(int)], tuple(reading.labels[k] for k in order)


# Columns that the user names, or that are found by their names


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
    """Return the source of each variable."""
    values = _only_variable(frame) if values is None else values
    names = checked_names("values", (values,) if isinstance(values, str) else values)
    if not names:
        raise InvalidInput("`values` must name the column of the values, or several columns.")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidInput(f"`values` names {twice!r} twice.")
    return tuple(Source.of(frame, name) for name in names)


def _chosen_sources(frame, argument, given, named):
    """Return the source of a role's numbers for each variable, None for those without."""
    each = given if isinstance(given, (tuple, list)) else (given,)
    if len(each) != len(named) or (len(named) == 1 and each is given):
        wanted = "name a column other than the values"
        if len(named) > 1:
            example = '"I(se ** 2)"' if argument == "error_variance" else f'"{argument}"'
            others = ", None" * (len(named) - 1)
            wanted = (
                f"hold a column, or None, for each of {few(named, 8)}, such as ({example}{others})"
            )
        raise InvalidInput(f"`{argument}` must {wanted}. Got {given!r:.80}.")
    for text in each:
        if not (text is None or isinstance(text, str)):
            raise InvalidInput(f"`{argument}` must name columns by text. Got {text!r:.60}.")
    return tuple(
        None if text is None else replace(Source.of(frame, text, argument, 2), text=text)
        for text in each
    )


def _chosen_limits(argument, given, named):
    """Return the limit, or the column of limits, of each variable; None for those without."""
    if given is None:
        return (None,) * len(named)
    each = given if isinstance(given, tuple) else (given,)
    if len(each) != len(named):
        others = ", None" * (len(named) - 1)
        raise InvalidInput(
            f"`{argument}` must hold a limit, a column or None for each of {few(named, 8)}, such "
            f"as (0.2{others}). Got {given!r:.80}."
        )
    return each


def longitude_first(names, crs=None):
    """Return the names of coordinates with longitude, or x where a CRS needs it, first."""
    if spatial.latitude_first(names) or (crs is not None and spatial.northing_first(names)):
        _notice_of_order(names[::-1], "by their names")
        return names[::-1]
    return names


def _notice_of_order(names, why):
    _warn(
        f"the coordinates {names[1]}, {names[0]} were exchanged: judging {why}, the second is "
        f"longitude (or x), which must be first. Write locations={in_words(names[:2])}."
    )


def _latitudes_first(coordinates):
    """Whether the first of two columns can be latitudes and the second only longitudes."""
    if coordinates.shape[1] != 2 or not len(coordinates):
        return False
    first, second = np.nanmax(np.abs(coordinates), axis=0, initial=0.0)
    return bool(first <= 90 < second <= 360)


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


def column_or_function(frame, text, what, most):
    """Return a column of a frame, or a function of at most so many columns, as an (n,) array."""
    source = Source.of(frame, text, what, most)
    columns = tables.number_columns(frame, source.columns).T
    return columns[0] if source.function is None else source.values(columns)


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


def _warn(message):
    """Warn the caller of a reader."""
    warnings.warn(message, GeomxpWarning, stacklevel=6)
