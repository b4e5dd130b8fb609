"""Validation of the arrays that observations and inputs of covariances hold."""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING

import numpy as np

from ..covariance.distance import metric_of
from ..covariance.inputs import Inputs
from ..errors import InvalidInput, did_you_mean
from . import checks, spatial
from .labels import aligned, labels_of
from .summaries import counted, few

if TYPE_CHECKING:
    from .._typing import ArrayLike, Sequence

MISSING_ADVICE = "drop them (--drop-missing)"
"""Remedy for rows with missing numbers."""


def checked_locations(locations, metric, names=(), advice="take these rows out"):
    """Return locations as a contiguous (n, d) array of finite numbers that suit the metric."""
    locations = as_numbers(locations, "locations")
    if locations.ndim == 1:
        locations = locations[:, None]
    if locations.ndim != 2 or not 1 <= locations.shape[1] <= 3:
        raise InvalidInput(
            f"`locations` must have 1, 2 or 3 columns of coordinates. Got shape {locations.shape}."
        )
    d = locations.shape[1]
    if names and len(names) != d:
        raise InvalidInput(f"`location_names` must hold {d} names. Got {len(names)}.")
    check_finite(locations, names or default_names(metric, d), "locations", advice)
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


def on_branch(locations, metric, meridian):
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


def checked_for_sentinels(locations, metric):
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
    time = None if time is None else one_for_each(time, "time", n)
    variable = None if variable is None else checked_variable(variable, n)
    if error_variance is not None:
        error_variance = checked_error_variance(error_variance, n)
    replicates = None if replicates is None else checked_replicates(replicates, n)
    return Inputs(locations, metric, time, variable, error_variance, replicates)


def one_for_each(column, name, n):
    """Return one finite number for each of n locations, (n,); a scalar is that of all."""
    numbers = as_numbers(column, name)
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
    if is_text(column):
        names = tuple(dict.fromkeys(_words(column)))
        if not all(map(_is_number, names)):
            return names
        column = np.array(names, dtype=np.float64)
    codes = np.unique(checked_variable(column, np.size(column)))
    return () if np.array_equal(codes, np.arange(len(codes))) else tuple(map(str, codes.tolist()))


def is_text(column):
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
    if not (codes or is_text(column)):
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
    numbers = one_for_each(column, "variable", n)
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


def checked_error_variance(column, n):
    """Return the variance of the error of each of n values, (n,); a scalar is that of all."""
    numbers = one_for_each(column, "error_variance", n)
    wrong = np.flatnonzero(numbers < 0)
    if len(wrong):
        raise InvalidInput(
            "`error_variance` must hold variances of at least 0, the squares of standard errors. "
            f"Got {numbers[wrong[0]]:g} in row {wrong[0] + 1} ({len(wrong)} such rows)."
        )
    return numbers


def checked_replicates(column, n):
    """Return the number of measurements of each of n values, (n,)."""
    numbers = one_for_each(column, "replicates", n)
    # the reciprocal of a subnormal number overflows
    wrong = np.flatnonzero(~(numbers >= np.finfo(np.float64).tiny))
    if len(wrong):
        raise InvalidInput(
            "`replicates` must be greater than 0: the number of measurements averaged into each "
            f"value, or a weight. Got {numbers[wrong[0]]:g} in row {wrong[0] + 1}."
        )
    return numbers


def checked_trials(column, n):
    """Return the number of trials of each of n values, (n,); a scalar is that of all."""
    numbers = one_for_each(column, "trials", n)
    wrong = np.flatnonzero((numbers < 1) | (numbers != np.floor(numbers)))
    if len(wrong):
        raise InvalidInput(
            "`trials` must hold whole numbers of at least 1. "
            f"Got {numbers[wrong[0]]:g} in row {wrong[0] + 1} "
            f"({counted(len(wrong), 'such row')}): leave out the rows without trials."
        )
    return numbers


def checked_exposure(column, n):
    """Return the exposure of each of n values, (n,); a scalar is that of all."""
    numbers = one_for_each(column, "exposure", n)
    wrong = np.flatnonzero(numbers <= 0)
    if len(wrong):
        raise InvalidInput(
            "`exposure` must be greater than 0. "
            f"Got {numbers[wrong[0]]:g} in row {wrong[0] + 1} "
            f"({counted(len(wrong), 'such row')}): leave out the rows without exposure, or give "
            "its logarithm as `offset` (--offset)."
        )
    return numbers


def checked_limits(values, lower, upper):
    """Return lower and upper limits of censored values, (n,) each.

    A limit that is not given is the value itself. Values must be finite numbers.
    """
    limits = []
    for name, column in (("lower", lower), ("upper", upper)):
        numbers = as_numbers(values if column is None else column, name)
        numbers = np.full(len(values), numbers) if numbers.ndim == 0 else numbers
        if numbers.shape != values.shape:
            raise InvalidInput(
                f"`{name}` must hold one limit for each of the {len(values)} values. "
                f"Got shape {numbers.shape}."
            )
        limits.append(numbers)
    lower, upper = limits

    def refuse(wrong, needed, remedy=""):
        if wrong.any():
            row = int(np.argmax(wrong))
            raise InvalidInput(
                f"{needed}. Got {lower[row]:g} and {upper[row]:g} for the value {values[row]:g} "
                f"in row {row + 1} ({counted(int(wrong.sum()), 'such row')}){remedy}."
            )

    both = "`lower` and `upper`"
    refuse(
        np.isnan(lower) | np.isnan(upper),
        f"{both} must not be NaN",
        ": without a lower limit write -inf, without an upper one inf",
    )
    refuse(lower > upper, "`lower` must be at most `upper`")
    refuse(
        np.isinf(lower) & np.isinf(upper),
        f"one of {both} must be finite",
        ": leave out these rows, which say nothing about the value",
    )
    refuse(
        (lower > values) | (values > upper),
        f"each value must lie between its {both}",
        ": if the values were changed, change the limits too, or use lower=None, upper=None",
    )
    return lower, upper


LARGEST_COORDINATE = 1e150
"""Largest size of a coordinate."""

DEGREE_LIMITS = (
    (1, "latitudes", -90, 90, ": longitude must be the first column"),
    (0, "longitudes", -360, 360, ""),
)


def default_names(metric, dimensions):
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


def as_numbers(values, what):
    """Return an array of FP64 with NaN for masked cells, or raise `InvalidInput`."""
    if np.ma.isMaskedArray(values):
        values = values.astype(np.float64).filled(np.nan)
    if np.iscomplexobj(values) or getattr(getattr(values, "dtype", None), "kind", "f") in "Mm":
        raise InvalidInput(f"`{what}` must be real numbers. Got {np.asarray(values).dtype}.")
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"`{what}` must be an array of numbers: {error}.") from None


def read_only(array):
    """Return a read-only copy, so that observations do not change after a fit."""
    copy = np.array(array)
    copy.setflags(write=False)
    return copy


def looks_like_degrees(locations, names=()):
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
