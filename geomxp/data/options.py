"""Options of functions: how each is checked, written on a command line, and kept in a saved fit.

A table of options, such as `READER_OPTIONS`, serves the function's own checks, the command line,
`fit.json`, and the calls and commands that reports and explorations show.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np

from ..covariance.distance import METRICS, metric_of
from ..errors import InvalidInput, check_flags, check_one_of, did_you_mean
from .arrays import as_numbers
from .names import checked_names, joined, split
from .spatial import describe

if TYPE_CHECKING:
    from .._typing import Any, Callable, Document, Mapping

# Values as they are written on a command line


def either(names):
    """Return names as `a, b or c`."""
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def check_choice(name, word, known, hint=""):
    """Raise `InvalidInput` if a word is not among the known ones, and propose the nearest."""
    if word not in known:
        near = did_you_mean(word, known) or hint
        raise InvalidInput(f"{name} must be {either(known)}. Got {word!r}.{near}")


def number(option, name, text):
    """Parse a number that was given under a name."""
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"{option} {name}={text}: {text!r} is not a number.") from None


def numbers(option, text):
    """Parse `50,20`."""
    return tuple(number(option, "number", word) for word in split(text))


PAIR_SEPARATOR = re.compile(r",(?=\s*\w+\s*=)")
"""Between `name=value` and the next one."""


def pairs(option, items, form="name=value", parse=number):
    """Parse repeated `name=value`, or another form of values; commas may join several."""
    result = {}
    for item in (one for given in items or () for one in PAIR_SEPARATOR.split(given)):
        name, equals, text = item.partition("=")
        if not equals:
            raise InvalidInput(f"{option} needs {form}. Got {item!r}.")
        result[name.strip()] = parse(option, name, text)
    return result


def _one_or_several(option, text):
    """Parse a name, or a tuple of names that commas separate."""
    if not {",", '"'} & {*text}:
        return text
    parts = split(text)
    return parts if len(parts) > 1 else next(iter(parts), text)


def _some_or_none(option, text):
    """Parse names of which some may be `none`."""
    names = _one_or_several(option, text)
    if isinstance(names, str):
        return names
    return tuple(None if word == "none" else word for word in names)


def _number_or_name(word):
    """Return a finite number, or the name of a column; None for `none`."""
    try:
        value = float(word)
    except ValueError:
        return None if word == "none" else word
    return value if np.isfinite(value) else word


def _limits(option, text):
    """Parse a number or a column, or several of these, of which some may be `none`."""
    words = _one_or_several(option, text)
    if isinstance(words, str):
        return _number_or_name(words)
    return tuple(map(_number_or_name, words))


def _limit_in_words(value):
    """Return a number, a column or None as users write it."""
    return "none" if value is None else value if isinstance(value, str) else plain_number(value)


def plain_number(value):
    """Return a number as users write it: -9999, 0.5.

    Examples
    --------
    >>> plain_number(-9999.0), plain_number(0.25)
    ('-9999', '0.25')
    """
    return f"{value!r}".removesuffix(".0")


# Kinds of values


def as_given(name, value):
    """Return a value that is checked elsewhere, or needs no check."""
    return value


def _text(needed):
    """Return the check of a value that is text or not given."""

    def check(name, value):
        if not (value is None or isinstance(value, str)):
            raise InvalidInput(f"`{name}` must {needed}. Got {value!r:.60}.")
        return value

    return check


def _checked_flag(name, value):
    check_flags(**{name: value})
    return bool(value)


def _name_or_names(name, value):
    return value if value is None or isinstance(value, str) else checked_names(name, value)


def _listed(value):
    return [value] if isinstance(value, str) else value


def _checked_metric(name, value):
    if value is not None:
        metric_of(value)
    return value


def _checked_markers(name, value):
    return as_numbers(value, name).ravel()


def _checked_limit(name, value):
    """Return a finite number as float, text or None as it is; several of these as a tuple."""
    if isinstance(value, (tuple, list)):
        return tuple(_checked_limit(name, one) for one in value)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool) or not (isinstance(value, Real) and np.isfinite(value)):
        raise InvalidInput(f"`{name}` must be a finite number or name a column. Got {value!r:.60}.")
    return float(value)


@dataclass(frozen=True)
class Kind:
    """Kind of the values of an option.

    Parameters
    ----------
    json : type, tuple or list
        Schema of a value in a saved fit.
    parse : callable
        parse(flag, text) returns the value that a text on the command line means.
    write : callable
        write(value) returns the texts after the flag, which is repeated for each; its inverse.
    check : callable
        check(name, value) returns a value in the form that the function uses, or raises
        `InvalidInput`.
    read : callable
        read(value) returns a value of JSON as an argument of the function.
    known : tuple of str
        Words that a shell proposes.
    column : bool
        Whether values are columns of the table, which a shell proposes.
    """

    json: Any
    parse: Callable[[str, str], Any] = as_given
    write: Callable[[Any], list[str]] = lambda value: [str(value)]
    check: Callable[[str, Any], Any] = as_given
    read: Callable[[Any], Any] = lambda value: value
    known: tuple[str, ...] = ()
    column: bool = False


NUMBER_IN_JSON = (int, float)

TEXT = Kind(str, check=_text("be text"))
COLUMN = Kind(str, check=_text("name a column by text"), column=True)
FLAG = Kind(bool, check=_checked_flag)
NAMES = Kind(
    [str],
    lambda _, text: split(text),
    lambda value: [joined(value)],
    checked_names,
    tuple,
    column=True,
)
NAME_OR_NAMES = Kind(
    (str, list),
    _one_or_several,
    lambda value: [joined(_listed(value))],
    _name_or_names,
    lambda value: value if isinstance(value, str) else tuple(value),
    column=True,
)
SOME_NAMES = replace(
    NAME_OR_NAMES,
    parse=_some_or_none,
    write=lambda value: [joined(one or "none" for one in _listed(value))],
    check=as_given,
)
FORMULAS = replace(NAME_OR_NAMES, parse=as_given, column=False)
MARKERS = Kind(
    (*NUMBER_IN_JSON, list),
    numbers,
    lambda value: [",".join(map(plain_number, np.ravel(value).tolist()))],
    _checked_markers,
)
LIMITS = Kind(
    (*NUMBER_IN_JSON, str, list),
    _limits,
    lambda value: [
        joined(map(_limit_in_words, value if isinstance(value, (tuple, list)) else (value,)))
    ],
    _checked_limit,
    lambda value: tuple(value) if isinstance(value, list) else value,
    column=True,
)
METRIC = Kind(str, check=_checked_metric, known=tuple(METRICS))


def one_of(*words):
    """Return the kind of values that are one of some words, or not given."""

    def parse(flag, word):
        check_choice(flag, word, words)
        return word

    def check(name, value):
        if value is not None:
            check_one_of(name, value, words)
        return value

    return Kind(str, parse, check=check, known=words)


# Options


@dataclass(frozen=True)
class Option:
    """An option of a function.

    Parameters
    ----------
    name : str
        Keyword of the function, and entry of a saved fit.
    kind : Kind
    value : str
        Placeholder of the value in the help of the command line.
    help : str
        For the command line.
    default
        Value if the option is not given.
    spelling : str
        Option of the command line; by default --name.
    panel : str
        Heading of the option in the help; by default that of the table.
    least : int, optional
        Smallest whole number that the command line takes.
    kept : callable, optional
        kept(given, result) returns the value for a saved fit from the options that were given and
        the result of the function; None for nothing. By default the value that was given.
    always : bool
        Whether every saved fit has the value.
    """

    name: str
    kind: Kind
    value: str
    help: str
    default: Any = None
    spelling: str = ""
    panel: str = ""
    least: int | None = None
    kept: Callable[[Mapping[str, Any], Any], Any] | None = None
    always: bool = False

    @property
    def flag(self) -> str:
        """The option on the command line: "--drop-missing"."""
        return self.spelling or f"--{self.name.replace('_', '-')}"


class Options(dict[str, Option]):
    """Options of a function by name.

    Examples
    --------
    >>> unit, drop = Option("unit", TEXT, "TEXT", "Unit."), Option("drop", FLAG, "", "Drop.", False)
    >>> options = Options.of(unit, drop)
    >>> options.checked({"unit": "m"})
    {'unit': 'm', 'drop': False}
    >>> options.command({"unit": "mg/kg", "drop": True})
    ['--unit', 'mg/kg', '--drop']
    """

    @classmethod
    def of(cls, *options: Option) -> Options:
        """Return a table of options."""
        return cls((one.name, one) for one in options)

    def checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of all options, in the form that the function uses.

        Raises
        ------
        InvalidInput
            For a value that an option cannot have.
        TypeError
            For another name.
        """
        for name in given:
            if name not in self:
                raise TypeError(f"unexpected keyword argument {name!r}.{did_you_mean(name, self)}")
        return {
            name: one.kind.check(name, given.get(name, one.default)) for name, one in self.items()
        }

    def parsed(self, texts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the options that a command line gives."""
        given = {name: texts[name] for name in self if name in texts}
        return {
            name: self[name].kind.parse(self[name].flag, text)
            for name, text in given.items()
            # 0 is a value, which may be refused later
            if text is not None and text is not False
        }

    def kept(self, given: Mapping[str, Any], result: Any) -> Document:
        """Return the entries of a saved fit."""
        found = {
            name: given.get(name) if one.kept is None else one.kept(given, result)
            for name, one in self.items()
        }
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in found.items()
            if value is not None
        }

    def own(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values, other than defaults, that the result of the function does not tell."""
        changed = self.changed(given)
        return {name: value for name, value in changed.items() if self[name].kept is None}

    def read(self, document: Document) -> dict[str, Any]:
        """Return the values in the entries of a saved fit."""
        return {
            name: one.kind.read(document[name])
            for name, one in self.items()
            if document.get(name) is not None
        }

    def schema(self) -> dict[str, Any]:
        """Return the schema of the entries of a saved fit."""
        return {name if one.always else f"{name}?": one.kind.json for name, one in self.items()}

    def changed(
        self, values: Mapping[str, Any], usual: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the values that are neither None nor the default, or in place of that `usual`."""
        defaults = {name: one.default for name, one in self.items()} | (usual or {})
        return {
            name: values[name]
            for name in self
            if values.get(name) is not None and values[name] != defaults[name]
        }

    def command(
        self, values: Mapping[str, Any], usual: Mapping[str, Any] | None = None
    ) -> list[str]:
        """Return the words of a command line for the values that are not usual."""
        words = []
        for name, value in self.changed(values, usual).items():
            one = self[name]
            if one.kind is FLAG:
                words.append(one.flag)
                continue
            for text in one.kind.write(value):
                words += [one.flag, text]
        return words


# Options of the readers

DUPLICATES = ("keep", "drop", "mean", "error")
"""What is done with rows at the location (time and variable) of an earlier row."""

DECIMAL_SIGNS = (".", ",")
"""Decimal signs of `decimal=`; the other one then separates thousands."""


def _of_columns(given, observations):
    """Whether each variable has a column of its own."""
    named = observations.value_name == ", ".join(observations.variable_names)
    return given.get("variable") is None and observations.variable is not None and named


def _variables(given, observations):
    return list(observations.variable_names) if _of_columns(given, observations) else None


def _variable(given, observations):
    without = observations.variable is None or _of_columns(given, observations)
    return None if without else observations.variable_name


def _markers(given, _):
    return np.ravel(given.get("missing", ())).astype(np.float64).tolist() or None


def _limits_kept(name):
    return lambda given, _: _checked_limit(name, given.get(name))


READER_OPTIONS = Options.of(
    Option(
        "locations",
        NAMES,
        "X,Y",
        "Columns of the coordinates; if not given, x,y or lon,lat or easting,northing.",
        kept=lambda _, observations: observations.location_names,
        always=True,
    ),
    Option(
        "values",
        NAME_OR_NAMES,
        "COLUMN",
        'Column of the values, or a function of one: "log(zinc)"; several columns, zinc,lead, are '
        "variables.",
        spelling="--value",
        kept=_variables,
    ),
    Option(
        "covariates",
        NAMES,
        "A,B",
        "Columns of covariates; the trend is then 'covariates'. Put a name that contains "
        "a comma in quotation marks: 'pH w,\"Cd, mg\"'.",
        (),
        kept=lambda _, observations: observations.covariate_names,
        always=True,
    ),
    Option(
        "formula",
        FORMULAS,
        "FORMULA",
        'Trend in columns and coordinates: "elev + poly(x, 2)".',
        panel="Model",
    ),
    Option(
        "metric",
        METRIC,
        "NAME",
        f"{either(METRICS)}; chordal if the columns are lon,lat.",
        kept=lambda _, observations: str(observations.metric),
        always=True,
    ),
    Option(
        "value_unit",
        TEXT,
        "TEXT",
        "Unit of the values, for tables and figures: mg/kg.",
        spelling="--unit",
    ),
    Option(
        "crs",
        replace(TEXT, check=as_given),
        "EPSG:N",
        "Coordinate reference system of the coordinates.",
        # longitude and latitude have been transformed to EPSG:4326
        kept=lambda given, _: None if given.get("crs") is None else describe(given["crs"]).name,
    ),
    Option(
        "time",
        COLUMN,
        "COLUMN",
        "Column of the times, numbers or dates, for space-time families. If not given, the "
        "coordinate of the times of a NetCDF grid with several.",
        # also where the time of a grid was found
        kept=lambda _, seen: None if seen.time is None else seen.time_name,
    ),
    Option(
        "variable",
        COLUMN,
        "COLUMN",
        "Column naming the variable of each value (names, numbers from 0, or codes), in a table "
        "with one row for each value.",
        kept=_variable,
    ),
    Option(
        "error_variance",
        SOME_NAMES,
        "COLUMN",
        "Column of the known variances of the errors of measurement, or a function of columns: "
        '"I(zinc_se ** 2)"; for several values one for each, or none.',
    ),
    Option(
        "trials",
        SOME_NAMES,
        "COLUMN",
        "Column of the numbers of trials, for a binomial response, or a function of columns.",
    ),
    Option(
        "offset",
        SOME_NAMES,
        "COLUMN",
        "Column of known numbers on the scale of the link, which are added to the trend, or a "
        'function of columns: "log(area)".',
    ),
    Option(
        "exposure",
        SOME_NAMES,
        "COLUMN",
        "Column of positive numbers to which the mean of counts is proportional, such as an area "
        "or a population; their logarithms are added to the offset.",
    ),
    Option(
        "below",
        LIMITS,
        "LIMIT",
        "Detection limit: values at or below it, and cells such as ND, are known only to lie below "
        "it. A number, a column with the limit of each row, or a column of flags, yes where the "
        "value itself is the limit.",
        kept=_limits_kept("below"),
    ),
    Option(
        "above",
        LIMITS,
        "LIMIT",
        "As --below, for values at or above a limit.",
        kept=_limits_kept("above"),
    ),
    Option(
        "limits",
        one_of("negative"),
        "NAME",
        "negative: the value -0.2 means a value below 0.2.",
    ),
    Option(
        "missing", MARKERS, "A,B", "Numbers that mark a missing value: -9999.", (), kept=_markers
    ),
    Option(
        "drop_missing",
        FLAG,
        "",
        "Leave out rows with missing or infinite numbers.",
        False,
        kept=lambda given, _: bool(given.get("drop_missing")),
        always=True,
    ),
    Option(
        "decimal",
        one_of(*DECIMAL_SIGNS),
        "SIGN",
        "Decimal sign of a CSV table, . or , (recognized if not given).",
    ),
    Option(
        "duplicates",
        one_of(*DUPLICATES),
        "NAME",
        f"Rows at the location of an earlier row: {either(DUPLICATES)}; kept, with a warning, if "
        "not given.",
    ),
)
"""Options of `Observations.from_frame` and the readers of files; `decimal` only of these."""


def options_of(source: Document) -> dict[str, Any]:
    """Return the options that a table was read with, from the source of its observations."""
    return {"values": source["value"]} | READER_OPTIONS.read(source)
