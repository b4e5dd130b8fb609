"""Coordinates and columns of numbers: what they must be, and whether they are degrees."""

import numpy as np

from ..errors import InvalidInput


def checked_places(locations, metric, names=(), advice="take these rows out"):
    """Return locations as a contiguous (n, d) array of finite numbers that suit the metric."""
    places = as_numbers(locations, "locations")
    if places.ndim == 1:
        places = places[:, None]
    if places.ndim != 2 or not 1 <= places.shape[1] <= 3:
        raise InvalidInput(
            f"`locations` must have 1, 2 or 3 columns of coordinates. Got shape {places.shape}."
        )
    if names and len(names) != places.shape[1]:
        raise InvalidInput(f"`location_names` must hold {places.shape[1]} names. Got {len(names)}.")
    check_finite(places, names or default_names(metric, places.shape[1]), "locations", advice)
    if metric != "euclidean":
        if places.shape[1] != 2:
            raise InvalidInput(
                f'metric="{metric}" needs two columns, longitude and latitude. '
                f"Got {places.shape[1]}."
            )
        outside = np.flatnonzero(np.abs(places[:, 1]) > 90)
        if len(outside):
            raise InvalidInput(
                f"latitudes must lie between -90 and 90 degrees. Got {places[outside[0], 1]:g} "
                f"in row {outside[0] + 1} ({len(outside)} such rows): is longitude first?"
            )
        wide = np.flatnonzero(np.abs(places[:, 0]) > 360)
        if len(wide):
            raise InvalidInput(
                f"longitudes must lie between -360 and 360 degrees. Got {places[wide[0], 0]:g} "
                f"in row {wide[0] + 1} ({len(wide)} such rows)."
            )
    return np.ascontiguousarray(places)


def default_names(metric, dimensions):
    """Return names for coordinates that have none."""
    return ("x", "y", "z")[:dimensions] if metric == "euclidean" else ("lon", "lat")


def check_finite(columns, names, what, advice="take these rows out"):
    """Raise `InvalidInput` if an (n, p) array has a NaN or an infinite number."""
    bad = ~np.isfinite(columns)
    if bad.any():
        rows = bad.any(axis=1)
        row = int(np.argmax(rows))
        column = int(np.argmax(bad[row]))
        raise InvalidInput(
            f"{what} must be finite numbers. Got {columns[row, column]} in row {row + 1}, column "
            f"{names[column]!r} ({int(rows.sum())} such rows): {advice}."
        )


def as_numbers(values, what):
    """Return an array of FP64, masked cells as NaN, or raise `InvalidInput`."""
    if np.ma.isMaskedArray(values):
        values = values.astype(np.float64).filled(np.nan)
    if np.iscomplexobj(values) or getattr(getattr(values, "dtype", None), "kind", "f") in "Mm":
        raise InvalidInput(f"`{what}` must be real numbers. Got {np.asarray(values).dtype}.")
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"`{what}` must be an array of numbers: {error}.") from None


NAMES_OF_LONGITUDE = ("lon", "long", "longitude", "lng")
NAMES_OF_LATITUDE = ("lat", "latitude")


def names_say_degrees(names):
    """Whether two columns are called longitude and latitude."""
    lower = [str(name).lower() for name in names]
    return len(lower) == 2 and lower[0] in NAMES_OF_LONGITUDE and lower[1] in NAMES_OF_LATITUDE


def looks_like_degrees(locations, names=()):
    """Whether coordinates are probably longitude and latitude.

    By their names; or because they fit into ±180 × ±90, reach beyond 10, and lie further from
    the origin than they spread, as a region on the Earth does and a local grid does not.
    """
    if locations.shape[1] != 2:
        return False
    if names_say_degrees(names):
        return True
    x, y = locations.T
    if np.abs(x).max() > 180 or np.abs(y).max() > 90 or np.abs(locations).max() < 10:
        return False
    centre = np.abs(locations.mean(axis=0))
    return bool((centre > np.ptp(locations, axis=0)).any())


def few(names, most=6):
    """Return names as text for one line: the first, and how many there are if some are left out.

    Examples
    --------
    >>> few("abc"), few("abcdefgh")
    ('a, b, c', 'a, b, c, d, e, f, … (8)')
    """
    shown = ", ".join(str(name) for name in names[:most])
    return f"{shown}, … ({len(names)})" if len(names) > most else shown


def spread(columns):
    """Return the least, the median and the greatest number of columns, as a table of text.

    Parameters
    ----------
    columns : dict of str to (n,) ndarray or tuple of str
        NaN are left out; of columns of text the levels.

    Examples
    --------
    >>> print(spread({"x": np.array([1.0, 5.0, 2.0]), "rock": ("clay", "sand")}))
               least      median    greatest
    x              1           2           5
    rock    levels: clay, sand
    """
    width = max(map(len, columns))
    lines = [f"{'':<{width}}{'least':>12}{'median':>12}{'greatest':>12}"]
    for name, column in columns.items():
        if isinstance(column, tuple):
            lines.append(f"{name:<{width}}    levels: {few(column)}")
            continue
        known = column[np.isfinite(column)]
        numbers = (known.min(), np.median(known), known.max()) if len(known) else ()
        cells = "".join(f"{number:>12.6g}" for number in numbers)
        lines.append(f"{name:<{width}}{cells or '    no numbers'}")
    return "\n".join(lines)
