"""Times of observations: numbers in a unit, or dates, which become numbers from an origin on.

A `TimeAxis` is the reference of such numbers. Dates are those of the Gregorian calendar, with or
without a time zone, or cftime dates of another calendar, in which lengths of time are then counted.
"""

from __future__ import annotations

import re
import sys
import warnings
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np

from ..errors import GeomxpWarning, InvalidInput, check_one_of, one_line

if TYPE_CHECKING:
    from .._typing import Any, ArrayLike

UNIT_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "year": 31_557_600}
"""Units of time in seconds; a year has 365.25 days."""

TIME_SYMBOLS = {
    "s": "second",
    "sec": "second",
    "min": "minute",
    "h": "hour",
    "hr": "hour",
    "d": "day",
}
"""Symbols of units of time in files."""

LEAST_SPAN_SECONDS = {"day": 3 * 86_400, "hour": 3 * 3600, "minute": 3 * 60}
"""Spans from which on a unit is chosen, the largest first; below all of them it is the second."""

GREGORIAN_CALENDARS = ("standard", "gregorian", "proleptic_gregorian")
"""CF names of the calendar in use; before 1582-10-15 "standard" has the dates of the Julian one."""

OTHER_CALENDARS = {"noleap": "noleap", "365_day": "noleap", "all_leap": "all_leap"}
OTHER_CALENDARS |= {"366_day": "all_leap", "360_day": "360_day", "julian": "julian"}
"""Other calendars of CF, and their names here."""

DIGIT_FORMATS = {
    6: "%Y%m",
    7: "%Y%j",
    8: "%Y%m%d",
    10: "%Y%m%d%H",
    12: "%Y%m%d%H%M",
    14: "%Y%m%d%H%M%S",
}
"""Dates written as digits, by their number: 202303, 2023060, 20230301, …"""

CERTAIN_DIGITS = (8, 12, 14)
"""Numbers of digits that are read as dates without a warning."""

DIGIT_DATE_YEARS = 1800, 2199
"""First and last year of dates written as digits."""

ISO_PATTERN = re.compile(
    r"\s*(\d{4})-(\d{1,2})-(\d{1,2})(?:[T ](\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,6}))?)?)?\s*"
)
"""Dates as text in calendars that pandas does not know."""


# Units of time


def unit_named(units):
    """Return the unit of `UNIT_SECONDS` that text names: "days", "hr", "h since 2000-01-01"; or "".

    Examples
    --------
    >>> unit_named("hours"), unit_named("d since 2000-01-01"), unit_named("months")
    ('hour', 'day', '')
    """
    word = str(units).partition(" since ")[0].strip().lower()
    word = TIME_SYMBOLS.get(word, word.removesuffix("s"))
    word = TIME_SYMBOLS.get(word, word)
    return word if word in UNIT_SECONDS else ""


def in_unit(numbers, unit, wanted):
    """Return numbers in another unit of `UNIT_SECONDS`; unchanged if one unit is unknown."""
    if unit == wanted or not (unit in UNIT_SECONDS and wanted in UNIT_SECONDS):
        return numbers
    return numbers * (UNIT_SECONDS[unit] / UNIT_SECONDS[wanted])


# Dates and the axis of times that are numbers


@dataclass(frozen=True, eq=False)
class Dates:
    """Dates with their calendar and time zone.

    `values` are datetime64 in µs, in UTC if there is a zone; with a `calendar`, one of
    `OTHER_CALENDARS`, they are objects of cftime. A missing date is NaT or None.
    """

    values: np.ndarray
    calendar: str = ""
    zone: str = ""

    @property
    def missing(self):
        """Which dates are missing, an array of truths."""
        import pandas as pd

        return np.asarray(pd.isna(self.values))

    def seconds_since(self, origin):
        """Return the seconds since a date in text; NaN for a missing date."""
        if not self.calendar:
            return (self.values - np.datetime64(origin, "us")) / np.timedelta64(1, "s")
        import cftime

        seconds, known = np.full(np.shape(self.values), np.nan), ~self.missing
        units = f"microseconds since {origin}"
        seconds[known] = cftime.date2num(self.values[known], units, self.calendar) / 1e6
        return seconds[()]

    def first_day(self):
        """Return the day of the earliest date as text, 2026-03-01."""
        known = np.atleast_1d(self.values)[np.atleast_1d(~self.missing)]
        if self.calendar:
            return min(known).strftime("%Y-%m-%d")
        return str(known.min().astype("datetime64[D]"))

    def in_zone(self, zone):
        """Return dates without a time zone as those of a zone."""
        import pandas as pd

        try:
            local = pd.DatetimeIndex(np.atleast_1d(self.values)).tz_localize(zone)
        except (ValueError, TypeError) as error:
            raise InvalidInput(
                f"`time` has dates without a time zone, and they are not all times of {zone}, the "
                f"zone of the observations ({one_line(error, 80)}): give the zone, as in "
                "2026-03-01T05:00+01:00."
            ) from None
        values = local.tz_convert("UTC").tz_localize(None).to_numpy().astype("datetime64[us]")
        return Dates(values.reshape(np.shape(self.values))[()], zone=zone)


@dataclass(frozen=True)
class TimeAxis:
    """Reference of times that are numbers.

    Parameters
    ----------
    unit : str
        Unit of the numbers, one of "second", "minute", "hour", "day" and "year" if they count from
        an origin; "" if it is unknown.
    origin : str
        Date from which the numbers count, in UTC if there is a time zone; "" if times are not
        dates.
    calendar : {"", "noleap", "all_leap", "360_day", "julian"}
        Calendar of the dates, "" for the Gregorian one, which is in use.
    zone : str
        Time zone in which the dates were given, such as "Europe/Paris" or "UTC-05:00"; "" if they
        had none.

    Examples
    --------
    >>> axis = TimeAxis("day", "2026-01-05")
    >>> str(axis), axis.dates(np.array([0.0, 3.5])).astype(str).tolist()
    ('days since 2026-01-05', ['2026-01-05T00:00:00', '2026-01-08T12:00:00'])
    >>> axis.numbers("2026-01-08T12:00").item()
    3.5
    """

    unit: str = ""
    origin: str = ""
    calendar: str = ""
    zone: str = ""

    def __post_init__(self):
        put, calendar = object.__setattr__, self.calendar
        put(self, "unit", unit_named(self.unit) or self.unit)
        put(
            self,
            "calendar",
            "" if calendar in GREGORIAN_CALENDARS else OTHER_CALENDARS.get(calendar, calendar),
        )
        if self.calendar:
            check_one_of(
                "time_calendar", self.calendar, tuple(dict.fromkeys(OTHER_CALENDARS.values()))
            )
        if not self.origin:
            return
        dates = _text_of_calendar(self.origin, self.calendar) if self.calendar else None
        try:
            np.datetime64(self.origin, "us") if dates is None else dates
        except ValueError:
            raise InvalidInput(
                f"`time_origin` must be a date such as 2026-03-01 or 2026-03-01T05:00. Got "
                f"{self.origin!r:.60}."
            ) from None
        if self.unit:
            check_one_of("time_unit", self.unit, tuple(UNIT_SECONDS))
        if self.zone:
            import pandas as pd

            try:
                pd.Timestamp(0, tz=self.zone)
            except (ValueError, KeyError, TypeError, OSError):
                raise InvalidInput(
                    "`time_zone` must be a time zone such as 'Europe/Paris' or 'UTC-05:00'. Got "
                    f"{self.zone!r:.60}."
                ) from None

    def __str__(self) -> str:
        if not self.unit:
            return ""
        zone = " UTC" if self.zone else ""
        since = f" since {self.origin}{zone}" if self.origin else ""
        return f"{self.unit}s{since}{f' ({self.calendar} calendar)' if self.calendar else ''}"

    def dates(self, numbers: ArrayLike) -> Any:
        """Return numbers as dates, rounded to µs; unchanged if there is no origin.

        Dates are datetime64 in UTC, in seconds unless they have parts of a second; or objects of
        cftime in another calendar.
        """
        if not self.origin:
            return numbers
        dates = self._dates(numbers).values
        return dates if self.calendar else _in_seconds(dates)

    def _dates(self, numbers):
        """Return numbers as `Dates`, to the µs; to the second within rounding errors."""
        seconds = np.asarray(numbers, dtype=np.float64) * UNIT_SECONDS[self.unit]
        whole = np.rint(seconds)
        near = np.abs(seconds - whole) <= 4 * np.spacing(np.abs(seconds))
        parts = np.where(near, 0.0, np.rint((seconds - whole) * 1e6))
        steps = whole.astype(np.int64) * 10**6 + parts.astype(np.int64)
        if not self.calendar:
            start = np.datetime64(self.origin, "us")
            return Dates(start + steps.astype("timedelta64[us]"), zone=self.zone)
        import cftime

        dates = cftime.num2date(steps, f"microseconds since {self.origin}", self.calendar)
        return Dates(np.asarray(dates), self.calendar)

    def labels(self, numbers: ArrayLike) -> Any:
        """Return `dates` for tables: with their time zone, or as text of another calendar."""
        import pandas as pd

        dates = self.dates(numbers)
        if self.zone and self.origin:
            return pd.DatetimeIndex(dates, tz="UTC").tz_convert(self.zone)
        return as_texts(dates) if self.calendar else dates

    def in_words(self, numbers: ArrayLike) -> list[str]:
        """Return times as text: dates from the origin on, or numbers.

        Examples
        --------
        >>> TimeAxis("day", "2026-01-05").in_words(np.array([0.0, 3.5]))
        ['2026-01-05 00:00', '2026-01-08 12:00']
        >>> TimeAxis("day").in_words(np.array([0.0, 3.5]))
        ['0', '3.5']
        >>> TimeAxis().in_words(np.array([738000.25, 738001.25]))
        ['738000.25', '738001.25']
        """
        if self.origin:
            zone = " UTC" if self.zone else ""
            texts = [str(one).replace("T", " ") for one in self.dates(numbers)]
            ends = (" 00:00:00", ":00", "")
            end = next(end for end in ends if all(text.endswith(end) for text in texts))
            return [text.removesuffix(end) + zone for text in texts]
        # so many digits that usual steps between times can be seen
        steps = np.diff(np.unique(numbers))
        step = float(np.median(steps)) if len(steps) else np.inf
        for digits in range(6, 18):
            texts = [f"{when:.{digits}g}" for when in numbers]
            if np.abs(np.array(texts, dtype=float) - numbers).max(initial=0.0) <= 0.01 * step:
                break
        return texts

    def numbers(self, times: Any, unit: str = "", utc: bool = False) -> Any:
        """Return times that a user gives as numbers on this axis; None for None.

        Parameters
        ----------
        times : array_like, Times or None
            Dates, if the axis has an origin; numbers, if it has none; or durations, which count
            from the origin.
        unit : str
            Unit of numbers, if it is known.
        utc : bool
            Whether dates without a time zone are in UTC, as those of CF files are.

        Raises
        ------
        InvalidInput
            For a number where dates are needed, or the reverse; for dates of another calendar; for
            a missing date.
        """
        if times is None:
            return None
        if isinstance(times, Times):
            if times.axis == self or not (times.axis.origin or self.origin):
                return in_unit(times.numbers, times.axis.unit, self.unit)
            dates = times.axis._dates(times.numbers) if times.axis.origin else None
            return self._of_dates(dates, times.numbers)
        durations = _durations(times)
        if durations is not None:
            return from_durations(times, self.unit)
        dates = read_dates(times, self.calendar, digits=bool(self.origin))
        if dates is None and not self.origin:
            return in_unit(times, unit, self.unit)
        if utc and dates is not None and not dates.zone and self.zone:
            dates = Dates(dates.values, dates.calendar, "UTC")
        return self._of_dates(dates, times)

    def _of_dates(self, dates, times):
        """Return `Dates`, or None for times that are not dates, as numbers since the origin."""
        if dates is None:
            given = next(iter(np.ravel(np.asarray(times, dtype=object)).tolist()), [])
            raise InvalidInput(
                f"`time` must be a date: the times of the observations are {self}. Got "
                f"{given!r:.40}: give a date such as {str(self.labels([1.0])[0])[:10]}, or in "
                "Python one of observations.dates or a duration since the origin, "
                "numpy.timedelta64(1, 'D')."
            )
        if not self.origin:
            raise InvalidInput(
                "`time` must be a number, because the times of the observations are numbers, not "
                "dates. Got a date: give a number on the same scale."
            )
        if dates.calendar != self.calendar:
            ours, theirs = (name or "Gregorian" for name in (self.calendar, dates.calendar))
            raise InvalidInput(
                f"`time` must have dates of the {ours} calendar, as the observations do. Got "
                f"dates of the {theirs} calendar: convert them, or write them as text, 2026-03-01."
            )
        _check_no_missing(dates)
        if self.zone and not dates.zone:
            warnings.warn(
                "`time` has dates without a time zone. They are read as times of "
                f"{self.zone}, the zone of the observations: to give another zone, write "
                "2026-03-01T05:00+01:00 or 2026-03-01T05:00Z.",
                GeomxpWarning,
                stacklevel=4,
            )
            dates = dates.in_zone(self.zone)
        elif dates.zone and not self.zone:
            warnings.warn(
                f"`time` has dates in the time zone {dates.zone}, and the dates of the "
                "observations have none. They are converted to UTC: to avoid this, give all dates "
                "a time zone, or none.",
                GeomxpWarning,
                stacklevel=4,
            )
        return dates.seconds_since(self.origin) / UNIT_SECONDS[self.unit]


NUMBER_AXIS = TimeAxis()
"""The axis of times that are numbers without a unit."""


@dataclass(frozen=True, eq=False)
class Times:
    """Numbers (n,) with the axis that they refer to; `TimeAxis.numbers` takes them as times."""

    numbers: np.ndarray
    axis: TimeAxis


# Dates of any kind


def _in_seconds(dates):
    """Return datetime64 in seconds, or in µs if they have parts of a second."""
    seconds = dates.astype("datetime64[s]")
    whole = np.isnat(dates) | (seconds == dates)
    return seconds if np.all(whole) else dates


def is_date(text):
    """Whether text is a date of some calendar."""
    return ISO_PATTERN.fullmatch(text) is not None or read_dates(text) is not None


def as_texts(values):
    """Return dates as text, 2026-03-01T05:00:00, and anything else as an array.

    Parts of a second are given if there are any.
    """
    dates = read_dates(values)
    if dates is None:
        return np.asarray(values)
    if not dates.calendar:
        zone = {"timezone": "UTC"} if dates.zone else {}
        return np.datetime_as_string(_in_seconds(dates.values), **zone)
    texts = ["" if one is None else one.isoformat() for one in np.ravel(dates.values)]
    return np.array(texts).reshape(np.shape(dates.values))


def read_dates(values, calendar="", digits=False):
    """Return `Dates`, or None if the values are not dates.

    Dates are those of NumPy, pandas, Python or cftime, or text that pandas reads as dates, or text
    of a `calendar` of `OTHER_CALENDARS`; with `digits` also whole numbers such as 20260301. A
    pandas Period is its first moment.

    Raises InvalidInput for text without a year, for dates that start with the day or the month,
    for dates with and without a time zone, and for a date that the calendar does not have.

    Examples
    --------
    >>> import pandas as pd
    >>> months = read_dates(pd.period_range("2026-11", periods=2, freq="M"))
    >>> months.values.astype("datetime64[D]").tolist()
    [datetime.date(2026, 11, 1), datetime.date(2026, 12, 1)]
    >>> read_dates("2026-03-01T05:00+01:00")
    Dates(values=np.datetime64('2026-03-01T04:00:00.000000'), calendar='', zone='UTC+01:00')
    """
    if digits:
        text = _as_text(values)
        values = values if text is None else text
    kind = getattr(getattr(values, "dtype", None), "kind", None)
    if kind is None or kind == "O":
        listed = np.asarray(values, dtype=object).ravel()
        first = next((one for one in listed if one is not None and one == one), None)
        first = listed[0] if first is None and len(listed) else first
        if _is_cftime(first):
            return _of_cftime(values)
        text = isinstance(first, str) and not _is_number(first)
        if not (text or hasattr(first, "year") or isinstance(first, np.datetime64)):
            return None
    elif (kind == "U" and values.size and _is_number(str(np.ravel(values)[0]))) or kind not in "MU":
        return None
    else:
        text = kind == "U"
    if text and calendar:
        return _text_of_calendar(values, calendar)
    return _gregorian(values)


def _gregorian(values):
    """Return dates of the Gregorian calendar, or None if pandas and NumPy cannot read them."""
    import pandas as pd

    # NumPy's NaT may have no unit
    kind = getattr(getattr(values, "dtype", None), "kind", None)
    values = values.astype("datetime64[us]") if kind == "M" and values.dtype == "M8" else values
    dates, zone, column = None, "", pd.Series(np.atleast_1d(values)).infer_objects()
    if column.dtype.kind not in "mM":
        _check_order(column)
    if isinstance(column.dtype, pd.PeriodDtype):
        column = column.dt.to_timestamp()
    with warnings.catch_warnings():
        # dates of no known form are read one by one
        warnings.simplefilter("ignore")
        # some of the second form have a time of day, others none
        for form, utc in ((None, False), ("ISO8601", False), (None, True), ("ISO8601", True)):
            try:
                dates = pd.to_datetime(column, utc=utc, format=form)
            except (ValueError, TypeError, OverflowError):
                continue
            if dates.dtype.kind == "M":
                break
            dates = None
    if dates is not None:
        if dates.dt.tz is not None:
            zone = _zone_of(column) if utc else _name_of_zone(dates.dt.tz)
            dates = dates.dt.tz_convert("UTC").dt.tz_localize(None)
        result = dates.to_numpy().astype("datetime64[us]")
    else:
        try:
            # pandas may refuse dates outside 1677 to 2262
            result = column.to_numpy().astype("datetime64[us]")
        except (ValueError, TypeError):
            return None
    # pandas and NumPy take the year and the day from the clock
    without = [
        text
        for text, date in zip(column, result, strict=True)
        if isinstance(text, str) and not re.search(r"\d{4}", text) and not np.isnat(date)
    ]
    if without:
        raise InvalidInput(
            f"dates must have a year. Got {without[0]!r:.60}: write them as 2026-03-01 or "
            "2026-03-01T05:00, or give numbers, such as hours."
        )
    return Dates(result if np.ndim(values) else result[0], zone=zone)


def _zone_of(column):
    """Return the zone of dates with several offsets from UTC; refuse dates without a zone."""
    import pandas as pd

    for one in column.dropna().unique():
        if pd.to_datetime(one).tzinfo is None:
            raise InvalidInput(
                f"dates must all have a time zone, or none of them. {str(one)!r:.40} has none, and "
                "others have one: write 2026-03-01T05:00Z or 2026-03-01T05:00+01:00."
            )
    return "UTC"


def _name_of_zone(zone):
    """Return the name of a time zone as pandas reads it; UTC for a zone without such a name."""
    import pandas as pd

    try:
        pd.Timestamp(0, tz=str(zone))
    except (ValueError, KeyError, TypeError, OSError):
        return "UTC"
    return str(zone)


def _check_order(column):
    """Raise `InvalidInput` for text such as 01/03/2026."""
    for text in column:
        if isinstance(text, str) and re.match(r"\s*\d{1,2}[-/. ]\d{1,2}[-/. ]", text):
            raise InvalidInput(
                f"dates must not begin with a numeric day or month. Got {text!r:.60}: write "
                "dates as 2026-03-01, or convert them: pandas.to_datetime(column, "
                'format="%d/%m/%Y").'
            )


def _is_number(text):
    """Whether a text is a number, which is not read as a year."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_cftime(value):
    """Whether an object is a date of cftime, without importing cftime."""
    module = sys.modules.get("cftime")
    return module is not None and isinstance(value, module.datetime)


def _of_cftime(values):
    """Return dates of cftime, which must have one calendar."""
    import pandas as pd

    listed = np.asarray(values, dtype=object)
    known = ~np.asarray(pd.isna(listed))
    calendars = {getattr(one, "calendar", "") for one in listed[known].ravel()}
    names = {"" if name in GREGORIAN_CALENDARS else OTHER_CALENDARS.get(name) for name in calendars}
    if len(names) != 1 or None in names:
        listed_names = ", ".join(sorted(repr(name) for name in calendars))
        raise InvalidInput(
            "`time` must have dates of one calendar, which must be one of "
            f"{', '.join(GREGORIAN_CALENDARS)}, {', '.join(OTHER_CALENDARS)}. "
            f"Got the calendars {listed_names}."
        )
    (name,) = names
    if name:
        return Dates(np.where(known, listed, None), name)
    result = np.full(listed.shape, np.datetime64("NaT"), dtype="datetime64[us]")
    early = [one for one in listed[known].ravel() if _is_julian(one)]
    if early:
        date = (
            early[0]
            .change_calendar(GREGORIAN_CALENDARS[2], has_year_zero=True)
            .strftime("%Y-%m-%d")
        )
        warnings.warn(
            f"dates of the {early[0].calendar} calendar before 1582-10-15 are those of the Julian "
            f"calendar, and become those of the Gregorian one: {early[0].strftime('%Y-%m-%d')} is "
            f"{date}. Ask for such dates.",
            GeomxpWarning,
            stacklevel=5,
        )
    # before 1582-10-15 the same moment has another date in the standard calendar
    same = [
        one.change_calendar(GREGORIAN_CALENDARS[2], has_year_zero=True)
        for one in listed[known].ravel()
    ]
    result[known] = [np.datetime64(one.isoformat(), "us") for one in same]
    return Dates(result[()])


def _is_julian(date):
    """Whether a date of cftime is one of the Julian calendar, as early ones of "standard" are."""
    early = (date.year, date.month, date.day) < (1582, 10, 15)
    return early and date.calendar != GREGORIAN_CALENDARS[2]


def _text_of_calendar(values, calendar):
    """Return dates as text, 2026-02-30T05:00, as dates of a calendar of `OTHER_CALENDARS`."""
    import cftime

    def date(text):
        match = ISO_PATTERN.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            if text is None or text != text or (isinstance(text, str) and not text.strip()):
                return None
            raise InvalidInput(
                f"dates of the {calendar} calendar must be written as 2026-03-01 or "
                f"2026-03-01T05:00, without a time zone. Got {text!r:.60}."
            )
        *parts, fraction = match.groups()
        parts = [*map(int, filter(None, parts))]
        parts += [0] * (6 - len(parts)) + [int((fraction or "0").ljust(6, "0"))]
        try:
            return cftime.datetime(*parts, calendar=calendar)
        except ValueError:
            raise InvalidInput(f"the {calendar} calendar has no date {text!r:.60}.") from None

    listed = np.asarray(values, dtype=object)
    dates = np.empty(listed.shape, dtype=object)
    dates.ravel()[:] = [date(text) for text in listed.ravel()]
    return Dates(dates[()] if dates.ndim else np.asarray(dates), calendar)


def _as_text(values):
    """Return dates written as digits, 20260301, as text 2026-03-01T00:00:00; None for others.

    All of them must be whole numbers with as many digits, and dates of the years of
    `DIGIT_DATE_YEARS`.
    """
    import pandas as pd

    column = pd.Series(np.atleast_1d(np.asarray(values, dtype=object)).ravel())
    text = column.map(lambda one: one.strip() if isinstance(one, str) else one)
    known = ~(text.isna() | text.map(lambda one: isinstance(one, str) and not one)).to_numpy()
    numbers = pd.to_numeric(text[known], errors="coerce").to_numpy(dtype=np.float64)
    lengths = (10 ** np.array([*DIGIT_FORMATS]) / 10).tolist()
    if not len(numbers) or not (numbers >= lengths[0]).all() or (numbers % 1).any():
        return None
    if not (numbers < 10 * lengths[-1]).all():
        return None
    words = [f"{number:.0f}" for number in numbers]
    count = len(words[0])
    if count not in DIGIT_FORMATS or {*map(len, words)} != {count}:
        return None
    dates = pd.to_datetime(pd.Series(words), format=DIGIT_FORMATS[count], errors="coerce")
    if dates.isna().any() or not dates.dt.year.between(*DIGIT_DATE_YEARS).all():
        return None
    if count not in CERTAIN_DIGITS:
        warnings.warn(
            f"times such as {words[0]} are read as dates, {dates[0].isoformat()}. Write dates in "
            "this form to avoid the warning. If they are numbers, subtract a constant from all.",
            GeomxpWarning,
            stacklevel=5,
        )
    result = np.full(len(column), "", dtype=object)
    result[known] = dates.dt.strftime("%Y-%m-%dT%H:%M:%S").to_numpy()
    return result.reshape(np.shape(values)) if np.ndim(values) else str(result[0])


def as_numbers(values, axis=None, missing=False):
    """Return times as numbers, and their `TimeAxis`.

    Numbers stay as they are. Dates become numbers since the origin of the axis, by default 0
    o'clock of the first day, in its unit, by default the day if they span at least 3 days, the hour
    if they span at least 3 hours, the minute, or the second. Durations (timedelta64) become numbers
    in such a unit. A missing date is NaN with `missing`, else an error.

    Examples
    --------
    >>> numbers, axis = as_numbers(np.array(["2026-01-05", "2026-01-08T12:00"], "M8[s]"))
    >>> numbers, str(axis)
    (array([0. , 3.5]), 'days since 2026-01-05')
    """
    axis = axis or NUMBER_AXIS
    durations = _durations(values)
    if durations is not None:
        seconds = np.asarray(durations / np.timedelta64(1, "s"))
        unit = axis.unit or _unit_for(seconds)
        check_one_of("time_unit", unit, tuple(UNIT_SECONDS))
        return seconds / UNIT_SECONDS[unit], TimeAxis(unit, axis.origin, axis.calendar, axis.zone)
    plain = not (axis.unit or axis.origin)
    dates = read_dates(values, axis.calendar, digits=plain)
    if dates is None:
        if axis.origin:
            check_one_of("time_unit", axis.unit, tuple(UNIT_SECONDS))
        return values, axis
    if dates.calendar != axis.calendar and (axis.calendar or axis.origin):
        raise InvalidInput(
            f"`time` must have dates of the {axis.calendar or 'Gregorian'} calendar. Got dates of "
            f"the {dates.calendar or 'Gregorian'} calendar."
        )
    if axis.unit:
        check_one_of("time_unit", axis.unit, tuple(UNIT_SECONDS))
    if dates.missing.all():
        raise InvalidInput("`time` must have dates. Got missing dates only.")
    if not missing:
        _check_no_missing(dates)
    if axis.zone and not dates.zone:
        dates = dates.in_zone(axis.zone)
    origin = axis.origin or dates.first_day()
    seconds = dates.seconds_since(origin)
    unit = axis.unit or _unit_for(seconds)
    return seconds / UNIT_SECONDS[unit], TimeAxis(
        unit, origin, dates.calendar, axis.zone or dates.zone
    )


def _unit_for(seconds):
    """Return the unit in which times with this span are counted."""
    span = np.nanmax(seconds) - np.nanmin(seconds)
    return next((name for name, least in LEAST_SPAN_SECONDS.items() if span >= least), "second")


def _check_no_missing(dates):
    """Raise `InvalidInput` for a missing date."""
    rows = np.flatnonzero(dates.missing)
    if len(rows):
        raise InvalidInput(
            f"`time` must have a date in every row. There is none in row {rows[0] + 1} "
            f"({len(rows)} such {'row' if len(rows) == 1 else 'rows'}): take these rows out."
        )


def _durations(values):
    """Return durations as timedelta64 in µs, or None if the values are not durations."""
    try:
        array = np.asarray(values)
    except ValueError:
        return None
    first = array.ravel()[0] if array.size else None
    if array.dtype.kind != "m" and not isinstance(first, (np.timedelta64, timedelta)):
        return None
    return array.astype("timedelta64[us]")


def from_durations(values, unit):
    """Return durations, one or several, as numbers of a unit; anything else unchanged.

    >>> from_durations([np.timedelta64(36, "h")], "day")
    array([1.5])
    """
    durations = _durations(values)
    if durations is None:
        return values
    if unit not in UNIT_SECONDS:
        raise InvalidInput(
            f"durations need times with a unit ({', '.join(UNIT_SECONDS)}): give numbers instead."
        )
    return durations / np.timedelta64(1, "s") / UNIT_SECONDS[unit]


# Times in files with the conventions of CF: numbers with units such as "days since 1987-06-03"


def is_since(units):
    """Whether units are those of dates: "hours since 2000-01-01"."""
    return " since " in str(units)


def from_file(values, units="", calendar="standard"):
    """Return the times of an xarray variable as dates or numbers, and the unit of numbers.

    Numbers in CF units of dates become dates: datetime64, or objects of cftime for other calendars
    than the Gregorian one, such as "noleap" of climate models.

    Examples
    --------
    >>> from_file(np.array([0.5, 1.0]), "days since 1987-06-03")[0].astype("M8[h]")
    array(['1987-06-03T12', '1987-06-04T00'], dtype='datetime64[h]')
    >>> from_file(np.array([0.5, 1.0]), "hours")
    (array([0.5, 1. ]), 'hour')
    """
    if values.dtype.kind not in "iuf":
        return values, ""
    if str(units).startswith("day as %Y%m%d"):
        # absolute dates of CDO: 20260301.25 is 6 o'clock
        days = read_dates(np.floor(values), digits=True)
        if days is not None:
            return days.values + np.round(values % 1 * 86_400e6).astype("timedelta64[us]"), ""
    if not (is_since(units) or " as %" in str(units)):
        return values, unit_named(units)
    import xarray

    attrs = {"units": units, "calendar": calendar}
    raw = xarray.Dataset({"time": (tuple(map(str, range(values.ndim))), values, attrs)})
    try:
        with warnings.catch_warnings():
            # early dates become objects of cftime
            warnings.simplefilter("ignore", xarray.SerializationWarning)
            return xarray.decode_cf(raw)["time"].values, ""
    except (ValueError, OverflowError, ImportError) as error:
        raise InvalidInput(
            f"times in {str(units)!r:.60} ({calendar} calendar) cannot be read "
            f"({one_line(error, 80)}): convert them to dates, or to numbers without `units`."
        ) from None
