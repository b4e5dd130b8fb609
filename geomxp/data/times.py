"""Times of observations: numbers in a unit, or dates, which become numbers from an origin on."""

import re
import warnings
from datetime import timedelta

import numpy as np

from ..errors import InvalidInput, check_one_of, one_line

SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "year": 31_557_600}
"""Units of time in seconds; a year has 365.25 days."""

SYMBOLS = {"s": "second", "sec": "second", "min": "minute", "h": "hour", "hr": "hour", "d": "day"}
"""Symbols of units of time in files."""

LEAST = {"day": 3 * 86_400, "hour": 3 * 3600, "minute": 3 * 60}
"""Spans from which on a unit is chosen, the largest first; below all of them it is the second."""


def as_dates(values):
    """Return dates as datetime64 in µs and UTC, or None if the values are not dates.

    Dates are NumPy's, pandas', Python's, or text that pandas reads as dates; a pandas Period is its
    first moment. Dates with a time zone are converted to UTC, others are taken as they are.

    Raises InvalidInput for text without a year, and for dates that start with the day or the month.

    Examples
    --------
    >>> import pandas as pd
    >>> as_dates(pd.period_range("2026-11", periods=2, freq="M")).astype("datetime64[D]").tolist()
    [datetime.date(2026, 11, 1), datetime.date(2026, 12, 1)]
    """
    kind = getattr(getattr(values, "dtype", None), "kind", None)
    if kind is None or kind == "O":
        listed = np.asarray(values, dtype=object).ravel()
        first = next((one for one in listed if one is not None and one == one), None)
        first = listed[0] if first is None and len(listed) else first
        text = isinstance(first, str) and not _is_number(first)
        if not (text or hasattr(first, "year") or isinstance(first, np.datetime64)):
            return None
    elif (kind == "U" and values.size and _is_number(str(np.ravel(values)[0]))) or kind not in "MU":
        return None
    import pandas as pd

    # NumPy's NaT may have no unit
    values = values.astype("datetime64[us]") if kind == "M" and values.dtype == "M8" else values
    dates, column = None, pd.Series(np.atleast_1d(values)).infer_objects()
    if column.dtype.kind not in "mM":
        _check_order(column)
    if isinstance(column.dtype, pd.PeriodDtype):
        column = column.dt.to_timestamp()
    with warnings.catch_warnings():
        # dates of no known form are read one by one
        warnings.simplefilter("ignore")
        # some of the second form have a time of day, others none
        for form in (None, "ISO8601"):
            try:
                dates = pd.to_datetime(column, utc=True, format=form)
                break
            except (ValueError, TypeError, OverflowError):
                continue
    if dates is not None:
        result = dates.dt.tz_localize(None).to_numpy().astype("datetime64[us]")
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
    return result if np.ndim(values) else result[0]


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


def as_numbers(values, unit="", origin=""):
    """Return times as numbers, their unit and their origin.

    Numbers stay as they are. Dates become numbers since an origin, by default 0 o'clock of the
    first day, in a unit, by default the day if they span at least 3 days, the hour if they span at
    least 3 hours, the minute, or the second. Durations (timedelta64) become numbers in such a unit.

    Examples
    --------
    >>> as_numbers(np.array(["2026-01-05", "2026-01-08T12:00"], "M8[s]"))
    (array([0. , 3.5]), 'day', '2026-01-05')
    """
    unit = unit_named(unit) or unit
    if origin:
        try:
            np.datetime64(origin, "us")
        except ValueError:
            raise InvalidInput(
                f"`time_origin` must be a date such as 2026-03-01 or 2026-03-01T05:00. Got "
                f"{origin!r:.60}."
            ) from None
    each = _durations(values)
    durations = each is not None
    each = each if durations else as_dates(values)
    if each is None:
        return values, unit, origin
    if unit:
        check_one_of("time_unit", unit, tuple(SECONDS))
    known = np.atleast_1d(each)
    known = known[~np.isnat(known)]
    if not len(known):
        raise InvalidInput("`time` holds no date.")
    if len(known) < np.size(each):
        rows = np.flatnonzero(np.isnat(each))
        raise InvalidInput(
            f"`time` must have a date in every row. There is none in row {rows[0] + 1} "
            f"({len(rows)} such {'row' if len(rows) == 1 else 'rows'}): take these rows out."
        )
    if not durations:
        start = np.datetime64(origin, "us") if origin else known.min().astype("datetime64[D]")
    if not unit:
        span = (known.max() - known.min()) / np.timedelta64(1, "s")
        unit = next((name for name, least in LEAST.items() if span >= least), "second")
    seconds = (each if durations else each - start) / np.timedelta64(1, "s")
    return seconds / SECONDS[unit], unit, origin or ("" if durations else str(start))


def in_words(values, unit="", origin=""):
    """Return times as text: dates from an origin on, or numbers.

    >>> in_words(np.array([0.0, 3.5]), "day", "2026-01-05"), in_words(np.array([0.0, 3.5]), "day")
    (['2026-01-05 00:00', '2026-01-08 12:00'], ['0', '3.5'])
    >>> in_words(np.array([738000.25, 738001.25])), in_words([0, 5], "second", "2026-01-05")
    (['738000.25', '738001.25'], ['2026-01-05 00:00:00', '2026-01-05 00:00:05'])
    """
    if origin:
        dates = as_given(np.asarray(values), unit, origin)
        coarser = (dates.astype(f"datetime64[{part}]") for part in "Dm")
        shown = next((known for known in coarser if (known == dates).all()), dates)
        return [str(one).replace("T", " ") for one in shown]
    # so many digits that usual steps between times can be seen
    steps = np.diff(np.unique(values))
    step = float(np.median(steps)) if len(steps) else np.inf
    for digits in range(6, 18):
        texts = [f"{when:.{digits}g}" for when in values]
        if np.abs(np.array(texts, dtype=float) - values).max(initial=0.0) <= 0.01 * step:
            break
    return texts


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
    if unit not in SECONDS:
        raise InvalidInput(
            f"durations need times with a unit ({', '.join(SECONDS)}): give numbers."
        )
    return durations / np.timedelta64(1, "s") / SECONDS[unit]


def since(values, unit, origin):
    """Return times in the unit and from the origin of other ones, as numbers.

    Raises InvalidInput for dates if the others were numbers, for durations if they have no unit.
    """
    values = from_durations(values, unit)
    if values is None or as_dates(values) is None:
        return values
    if not origin:
        raise InvalidInput(
            "`time` must be a number, as the times of the observations are. Got a date."
        )
    return as_numbers(values, unit, origin)[0]


# Times in files with the conventions of CF: numbers with units such as "days since 1987-06-03"


def is_since(units):
    """Whether units are those of dates: "hours since 2000-01-01"."""
    return " since " in str(units)


def unit_named(units):
    """Return the unit of `SECONDS` that text names: "days", "hr", "h since 2000-01-01"; or "".

    Examples
    --------
    >>> unit_named("hours"), unit_named("d since 2000-01-01"), unit_named("months")
    ('hour', 'day', '')
    """
    word = str(units).partition(" since ")[0].strip().lower()
    word = SYMBOLS.get(word, word.removesuffix("s"))
    word = SYMBOLS.get(word, word)
    return word if word in SECONDS else ""


def in_unit(numbers, unit, wanted):
    """Return numbers in another unit of `SECONDS`; unchanged if one of the units is unknown."""
    if unit == wanted or not (unit in SECONDS and wanted in SECONDS):
        return numbers
    return numbers * (SECONDS[unit] / SECONDS[wanted])


def from_file(values, units="", calendar="standard"):
    """Return the times of an xarray variable as dates or numbers, and the unit of numbers.

    Numbers in CF units of dates become dates. Dates of a calendar that is not in use, such as
    "noleap" of climate models, become days since 1970-01-01 of that calendar.

    Examples
    --------
    >>> from_file(np.array([0.5, 1.0]), "days since 1987-06-03")[0].astype("M8[h]")
    array(['1987-06-03T12', '1987-06-04T00'], dtype='datetime64[h]')
    >>> from_file(np.array([0.5, 1.0]), "hours")
    (array([0.5, 1. ]), 'hour')
    """
    if values.dtype.kind in "iuf" and is_since(units):
        import xarray

        about = {"units": units, "calendar": calendar}
        raw = xarray.Dataset({"time": (tuple(map(str, range(values.ndim))), values, about)})
        try:
            values = xarray.decode_cf(raw)["time"].values
        except (ValueError, OverflowError, ImportError) as error:
            raise InvalidInput(
                f"times in {str(units)!r:.60} ({calendar} calendar) cannot be read "
                f"({one_line(error, 80)}): convert them to dates, or to numbers without `units`."
            ) from None
    first = next((one for one in values.ravel() if one == one), None)
    if hasattr(first, "calendar"):
        import cftime

        known, numbers = values == values, np.full(values.shape, np.nan)
        origin = "days since 1970-01-01"
        numbers[known] = cftime.date2num(values[known], origin, calendar=first.calendar)
        return numbers, "day"
    return values, unit_named(units) if values.dtype.kind in "iuf" else ""


def as_given(times, unit, origin):
    """Return times as dates if they have an origin, datetime64 in seconds, or as they are.

    Examples
    --------
    >>> as_given(np.array([0.0, 3.5]), "day", "2026-01-05").astype(str).tolist()
    ['2026-01-05T00:00:00', '2026-01-08T12:00:00']
    """
    if not origin:
        return times
    seconds = np.round(times * SECONDS[unit]).astype("timedelta64[s]")
    return np.datetime64(origin, "s") + seconds
