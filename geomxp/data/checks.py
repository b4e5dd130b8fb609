"""Warnings about tables that are not what they seem: sentinels, and axes of different kinds."""

import re

import numpy as np

from .names import option
from .spatial import COORDINATE_NAMES

_SIGNED_SENTINELS = (999.0, 9999.0, 99999.0, 999999.0, 1e20, 1e21, 1e30, 1e31, 1e35, 1e36, 1e37)
SENTINELS = np.array(
    [
        *(sign * number for number in _SIGNED_SENTINELS for sign in (-1.0, 1.0)),
        *(-99.0, -999.9, -999.25, -9999.9, -32768.0, 32767.0, -2147483648.0, 2147483647.0),
        # fill values of NetCDF, ArcGIS and Surfer
        *(9.969209968386869e36, 9.96921e36, -3.4028234663852886e38, -1.797693134862316e308),
        *(-3.40282346638529e38, 3.4028234663852886e38, 1.70141e38, 1.70141183460469e38),
    ]
)
"""Numbers that programs write for a missing value."""

LEAST_REPEATS = 2
"""Fewest occurrences of a number that is not a usual sentinel."""

LEAST_GAP_SPREADS = 10.0
"""Least distance of such a number from all others, in units of their spread."""

LARGEST_SPREAD_RATIO = 1000.0
"""Ratio of the spreads of three axes from which they are probably of different kinds."""

TIME_NAMES = (
    *("t", "time", "times", "date", "datetime", "timestamp", "year", "years", "month", "months"),
    *("week", "weeks", "day", "days", "doy", "hour", "hours", "minute", "minutes", "seconds"),
)
DEGREE_NAMES = (*COORDINATE_NAMES["longitude"], *COORDINATE_NAMES["latitude"])
UNIT_SUFFIX = re.compile(r"[_ ]*[\[(_ ](m|km|cm|mm|ft|feet|mi|deg|degrees|°|h|d|s|yr)[\])]?$")
"""Unit at the end of a name: x_km, depth (m)."""


def sentinels(column):
    """Return the numbers of a column that probably mark missing values, and their counts.

    A usual sentinel (-9999, 1e30, …) counts if it lies further from the other numbers than these
    spread; any other extreme number if it is repeated and at least ten spreads away.

    Examples
    --------
    >>> sentinels(np.array([3.5, 4.0, -9999.0, 5.5]))
    {-9999.0: 1}
    >>> sentinels(np.array([3.5, 4.0, 0.0, 5.5]))
    {}
    """
    column = column[np.isfinite(column)]
    if len(column) < 3:
        return {}
    usual = np.isin(column, SENTINELS)
    others = column[~usual]
    found = {}
    if usual.any() and len(others):
        low, high = others.min(), others.max()
        for number in np.unique(column[usual]):
            gap = max(low - number, number - high)
            if gap > max(high - low, 0.0):
                found[float(number)] = int(np.sum(column == number))
    # two passes suffice: a smallest and a largest number
    others = column[~np.isin(column, list(found))]
    for number in {float(others.min()), float(others.max())}:
        rest = others[others != number]
        count = len(others) - len(rest)
        if count < LEAST_REPEATS or len(rest) <= count:
            continue
        gap = max(rest.min() - number, number - rest.max())
        spread = float(np.ptp(rest))
        if spread > 0 and gap > LEAST_GAP_SPREADS * spread:
            found[number] = count
    return found


def sentinel_warning(columns):
    """Return a sentence about the first column with sentinels; None without any.

    Parameters
    ----------
    columns : dict of str to (n,) ndarray
    """
    for name, column in columns.items():
        found = sentinels(column)
        if found:
            numbers = ",".join(f"{number!r}".removesuffix(".0") for number in sorted(found))
            rows = sum(found.values())
            return (
                f"column {name!r} holds {numbers} in {rows:,} row{'s' if rows > 1 else ''}, far "
                "from all its other numbers, and they are read as data: if they mark missing "
                f"values, use missing=({numbers},), drop_missing=True (--missing {numbers} "
                "--drop-missing)."
            )
    return None


def axes_warning(names, locations):
    """Return a sentence if axes are of different kinds by their names or scale; None if not."""
    kinds = [_kind(name) for name in names]
    if len(names) < 2:
        return None
    listed, remedy = ", ".join(map(str, names)), "give columns of one unit of length"
    if "time" in kinds and set(kinds) != {"time"}:
        column = names[kinds.index("time")]
        others = [name for name, kind in zip(names, kinds, strict=True) if kind != "time"]
        reason = f"{column!r} is a time"
        remedy = (
            f"give the others as locations ({option('locations', *others)}) and read the time with "
            f"time={column!r} for a space-time family, or convert it to the unit of the others"
        )
    elif "degrees" in kinds and set(kinds) != {"degrees"}:
        reason = f"{names[kinds.index('degrees')]!r} is in degrees"
        remedy = 'project longitude and latitude to metres (frame.to_crs("EPSG:…"))'
    else:
        units = {
            match[1] for match in (UNIT_SUFFIX.search(str(name).lower()) for name in names) if match
        }
        spreads = np.ptp(locations, axis=0) if len(locations) else np.zeros(1)
        spreads = spreads[spreads > 0]
        if len(units) > 1:
            reason = f"their units are {' and '.join(sorted(units))}"
        elif (
            len(names) == 3
            and len(spreads)
            and spreads.max() > LARGEST_SPREAD_RATIO * spreads.min()
        ):
            reason = f"they spread over {', '.join(f'{spread:.3g}' for spread in spreads)}"
        else:
            return None
        remedy += ", or estimate one range for each axis (axis_ranges=True, --axis-ranges)"
    return (
        f"the coordinates {listed} probably have different units ({reason}), but the distance "
        f"treats them alike: {remedy}."
    )


def _kind(name):
    word = UNIT_SUFFIX.sub("", str(name).strip().lower())
    return "time" if word in TIME_NAMES else "degrees" if word in DEGREE_NAMES else ""


ERROR_WORDS = {
    **dict.fromkeys(("se", "sd", "std", "stdev", "stderr", "sigma", "uncertainty", "error", "err")),
    **dict.fromkeys(("var", "variance"), "variances"),
}
"""Words in names of columns of errors, and what the columns hold; None for standard errors."""

OTHER_ERROR_WORDS = {"standard", "std", "error", "err", "measurement", "of", "deviation", "dev"}
"""Other words that such names have."""


def error_columns(names, value):
    """Return columns that may hold errors of the values by their names: {name: kind}.

    Examples
    --------
    >>> error_columns(["x", "zinc", "zincSE", "lead_se", "variance"], "zinc")
    {'zincSE': 'standard errors', 'variance': 'variances'}
    """
    own, found = _words(value), {}
    for name in map(str, names):
        words = _words(name)
        kinds = [ERROR_WORDS[word] for word in words if word in ERROR_WORDS]
        others = {word for word in words if word not in ERROR_WORDS} - OTHER_ERROR_WORDS
        if kinds and name != value and others <= {*own}:
            found[name] = "variances" if "variances" in kinds else "standard errors"
    return found


def _words(name):
    """Return the words of a name in small letters: precip and se of precipSE."""
    return [word.lower() for word in re.findall(r"[^\W\d_]?[^\W\d_A-Z]+|[A-Z]+|\d+", str(name))]
