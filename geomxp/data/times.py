"""Times of observations: numbers in a unit, or dates, which become numbers from an origin on."""

import warnings

import numpy as np

from ..errors import InvalidInput, check_one_of

SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "year": 31_557_600}
"""Units of time in seconds; a year has 365.25 days."""

LEAST = {"day": 3 * 86_400, "hour": 3 * 3600, "minute": 3 * 60}
"""Spans from which on a unit is chosen, the largest first; below all of them it is the second."""


def as_dates(values):
    """Return dates as datetime64 in ns and UTC, or None if the values are not dates.

    Dates are NumPy's, pandas', Python's, or text that pandas reads as dates.
    """
    kind = getattr(getattr(values, "dtype", None), "kind", None)
    if kind is None or kind == "O":
        listed = np.asarray(values, dtype=object).ravel()
        first = next((one for one in listed if one is not None and one == one), None)
        if not (isinstance(first, str) and not _is_number(first)) and not hasattr(first, "year"):
            return None
    elif (kind == "U" and values.size and _is_number(str(np.ravel(values)[0]))) or kind not in "MU":
        return None
    import pandas as pd

    dates, column = None, pd.Series(np.atleast_1d(values))
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
    if dates is None:
        return None
    result = dates.dt.tz_localize(None).to_numpy("datetime64[ns]")
    return result if np.ndim(values) else result[0]


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
    least 3 hours, the minute, or the second.

    Examples
    --------
    >>> as_numbers(np.array(["2026-01-05", "2026-01-08T12:00"], "M8[s]"))
    (array([0. , 3.5]), 'day', '2026-01-05')
    """
    dates = as_dates(values)
    if dates is None:
        return values, unit, origin
    if unit:
        check_one_of("time_unit", unit, tuple(SECONDS))
    known = dates[~np.isnat(dates)] if np.ndim(dates) else np.atleast_1d(dates)
    if not len(known):
        raise InvalidInput("`time` holds no date.")
    start = np.datetime64(origin) if origin else known.min().astype("datetime64[D]")
    if not unit:
        span = (known.max() - known.min()) / np.timedelta64(1, "s")
        unit = next((name for name, least in LEAST.items() if span >= least), "second")
    seconds = (dates - start) / np.timedelta64(1, "s")
    return seconds / SECONDS[unit], unit, str(start)


def since(values, unit, origin):
    """Return times in the unit and from the origin of other ones, as numbers.

    Raises InvalidInput for dates if the others were numbers.
    """
    if values is None or as_dates(values) is None:
        return values
    if not origin:
        raise InvalidInput(
            "`time` must be a number, as the times of the observations are. Got a date."
        )
    return as_numbers(values, unit, origin)[0]


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
