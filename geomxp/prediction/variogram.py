"""Empirical semivariograms of observations, and of a fit's residuals with their envelope.

Of several variables also cross-variograms of each two.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from html import escape
from itertools import combinations_with_replacement
from math import inf
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np

from ..covariance.distance import between, embed
from ..data.observations import Observations
from ..data.summaries import few
from ..data.times import from_durations
from ..errors import InvalidInput, brief_repr, check_whole, is_finite
from ..estimation.result import design_of, z_value
from ..likelihood.replicates import dense_covariance
from ..likelihood.trend import Trend
from ..runtime.devices import blas_threads
from ..runtime.equality import by_content

if TYPE_CHECKING:
    from .._typing import (
        Document,
        Floats,
        Frame,
        Mapping,
        Sequence,
        Texts,
        TrendLike,
        Whole,
    )

SAMPLE_LOCATIONS = 2000
"""Number of locations above which a random subsample is used."""

CHUNK_PAIRS = 1 << 11
"""Pairs whose differences are computed at one time."""

DEFAULT_BINS, LEAST_PAIRS = 15, 30
"""Number of bins, and the number of pairs below which a bin is joined with the next one (Journel
and Huijbregts 1978, Mining Geostatistics, section III.C.1)."""

ONE_DIRECTION_TOLERANCE_DEGREES = 22.5
"""Tolerance of a single direction, in degrees."""

SQUARABLE_SPREADS = (1e-145, 1e145)
"""Spreads of values whose squares neither overflow nor underflow."""

MOST_DIRECTIONS_OR_LAGS = 36
"""Largest number of directions of a variogram, and of its lags in time."""

DEFAULT_TIME_LAGS = 5
"""Number of lags in time if the user gives neither lags nor their number."""

LEAST_COMMON_LOCATIONS = 10
"""Number of locations at which two variables, or one, must have values to be compared."""


@dataclass(frozen=True)
class Lags:
    """Pairs of locations in k bins of distance, or of distance and direction or lag in time.

    `rows` (m,) are the rows of the observations that are compared; `first` and `second` (p,) are
    pairs, as positions in `rows`, sorted by bin; `ends` (k,) is the end of each bin among the
    pairs; `distance` (k,) is the mean distance in each bin, which has the distances `lower` (k,) <
    h <= `upper` (k,), where 0, 0 is a bin of pairs at one location; `group` (k,) is the number of
    its direction or lag in time, 0 if there are none; `lag` (k,) is the mean lag in time of the
    pairs in all bins of its group, None for observations of one time. `others` (m,) are the rows of
    a second variable at the locations of `rows`, for a cross-variogram; None for one variable.
    """

    rows: np.ndarray
    first: np.ndarray
    second: np.ndarray
    ends: np.ndarray
    distance: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    group: np.ndarray
    lag: np.ndarray | None = None
    others: np.ndarray | None = None

    @property
    def pairs(self):
        """Number of pairs in each bin, (k,)."""
        return np.diff(self.ends, prepend=0)

    def semivariances(self, residuals, others=None):
        """Return half the mean squared difference in each bin, (k,) or (k, draws), of residuals.

        With those of a second variable at the same locations, half the mean product of differences.
        """
        sums = np.zeros((len(self.ends), *residuals.shape[1:]))
        for k, (end, count) in enumerate(zip(self.ends, self.pairs, strict=True)):
            for start in range(end - count, end, CHUNK_PAIRS):
                some = slice(start, min(start + CHUNK_PAIRS, end))
                d = e = residuals[self.first[some]] - residuals[self.second[some]]
                if others is not None:
                    e = others[self.first[some]] - others[self.second[some]]
                sums[k] += np.einsum("i...,i...->...", d, e)
        return (sums.T / (2 * self.pairs)).T

    def semivariances_of(self, model, inputs):
        """Return the mean of a model's semivariances over the pairs in each bin, (k,)."""
        if self.others is None:
            covariance = dense_covariance(model, inputs[self.rows])
        else:
            # noise at different locations is independent
            covariance = model.matrix(inputs[self.rows], inputs[self.others])
            covariance = (covariance + covariance.T) / 2
        variance = np.diag(covariance)[:, None] / 2
        each = (variance + variance.T - covariance)[self.first, self.second]
        return np.add.reduceat(each, self.ends - self.pairs) / self.pairs

    def robust(self, residuals):
        """Return Cressie and Hawkins' robust semivariance in each bin, (k,), of residuals (m,).

        2γ̂(h) = [1/N Σ |r_i - r_j|^½]⁴ / (0.457 + 0.494/N + 0.045/N²)
        (Cressie and Hawkins 1980, Math. Geol. 12:115)
        """
        roots = np.sqrt(np.abs(residuals[self.first] - residuals[self.second]))
        count = self.pairs
        mean = np.add.reduceat(roots, self.ends - count) / count
        return mean**4 / (2 * (0.457 + 0.494 / count + 0.045 / count**2))


def lags_of(
    observations,
    *,
    model=None,
    bins=DEFAULT_BINS,
    cutoff=None,
    directions=None,
    tolerance=None,
    time_lags=None,
    most=SAMPLE_LOCATIONS,
    seed=0,
):
    """Return the pairs of locations in bins of distance, and of direction or lag in time.

    Arguments as of `empirical_variogram`; with `bins=None` there are `DEFAULT_BINS`, of which those
    that have few pairs are joined with the next. `directions` (q,) are angles in degrees.
    `time_lags` are as of `variogram`; with directions, only pairs of the first lag are compared.
    """
    if bins is not None:
        check_whole("bins", bins)
    times = in_time(observations)
    isotropic = model is not None and model.of_distance
    if model is not None and not (isotropic or times is not None):
        raise InvalidInput(
            f"a semivariogram over distance needs an isotropic model. Got family {model.family!r}."
        )
    if several_variables(observations):
        raise InvalidInput(
            "a semivariogram over distance needs observations of one variable: take "
            "observations.of_variable(...) of each."
        )
    metric, rows = observations.metric, np.arange(len(observations))
    if len(rows) > most:
        rows = np.sort(np.random.default_rng(seed).choice(len(rows), most, replace=False))
    locations = observations.locations[rows]
    points = model.isotropic(locations, metric) if isotropic else embed(locations, metric)
    first, second = np.triu_indices(len(rows), 1)
    h = between(points, points, metric)[first, second]
    if h.max() == 0:
        raise InvalidInput(
            "a variogram needs distances, and all locations are the same: give different locations."
        )
    # without the zero distances between replicates
    reach = h.max() / 2 if h[h > 0].min() <= h.max() / 2 else h.max()
    if cutoff is not None:
        if h.min() > cutoff:
            raise InvalidInput(
                f"no two locations are closer than `cutoff`. Got {cutoff:g}: give at least "
                f"{h.min():.4g}."
            )
        reach = cutoff
    # bin k is (edges[k], edges[k + 1]]; pairs at one location belong to the first
    edges = np.linspace(0.0, reach, (bins or DEFAULT_BINS) + 1)
    inside = np.flatnonzero(h <= edges[-1])
    group, apart, groups = 0, None, 1
    if times is not None:
        groups = 1 if directions is not None else None
        lags, within = _lags_in_time(observations, time_lags)
        apart = np.abs(times[rows][first] - times[rows][second])
        group = _nearest(apart[inside], lags[:groups], within)
        if time_lags is None and not (group >= 0).any():
            # few times: all pairs together
            group, lags = np.zeros(len(inside), dtype=int), lags[:1]
        inside, group, groups = inside[group >= 0], group[group >= 0], len(lags)
        if not len(inside):
            raise InvalidInput(
                "no two observations are so far apart in time: give other `time_lags`. Got "
                f"{', '.join(f'{lag:g}' for lag in lags)} ± {within:g}."
            )
    if directions is not None:
        group = _directions_of(observations, rows, first[inside], second[inside])
        group, groups = _nearest(group, directions, tolerance, 180.0), len(directions)
        inside, group = inside[group >= 0], group[group >= 0]
        if not len(inside):
            raise InvalidInput(
                f"no pair of locations lies in a direction within {tolerance:g} degrees: give "
                "other `directions` or a larger `tolerance`."
            )
    number = np.searchsorted(edges[1:], h[inside], side="left")
    if bins is None:
        last = _joined(np.bincount(number, minlength=DEFAULT_BINS), LEAST_PAIRS * groups)
        edges, number = edges[[0, *(last + 1)]], np.searchsorted(last, number)
    if times is not None and directions is None:
        # pairs at one location are a bin of their own: the correlation in time alone
        edges, number = np.append(0.0, edges), np.where(h[inside] == 0, 0, number + 1)
    count = len(edges) - 1
    number = number + count * group
    order = np.argsort(number, kind="stable")
    inside = inside[order]
    pairs = np.bincount(number)
    used = np.flatnonzero(pairs)
    pairs = pairs[used]
    ends = np.cumsum(pairs)
    distance = np.add.reduceat(h[inside], ends - pairs) / pairs
    lower, upper = edges[:-1][used % count], edges[1:][used % count]
    group = used // count
    lag = None
    if apart is not None:
        # directions share the first lag
        lag = _mean_lags(apart[inside], ends, pairs, group * (directions is None))
    return Lags(
        rows,
        first=first[inside],
        second=second[inside],
        ends=ends,
        distance=distance,
        lower=lower,
        upper=upper,
        group=group,
        lag=lag,
    )


def lags_of_variables(observations, only=None, **options):
    """Yield (first, second, number of locations, `Lags`) of each variable, then of each two.

    Of two variables pairs of locations are compared that have values of both, the first value of
    each if there are several. Variables are numbers; with fewer locations than
    `LEAST_COMMON_LOCATIONS` the lags are None. `only` is a pair of numbers, of one variable twice
    the same, to yield nothing else; `options` are the other arguments of `lags_of`.
    """
    inputs, count = observations.inputs, len(observations.variable_labels)
    places = replace(inputs, variable=None, error_variance=None, replicates=None).first_rows()
    by_place = np.full((len(observations), count), -1)
    # the first row is written last
    by_place[places[::-1], observations.variable[::-1]] = np.arange(len(observations))[::-1]
    pairs = sorted(combinations_with_replacement(range(count), 2), key=lambda two: two[0] < two[1])
    for i, j in pairs if only is None else [only]:
        rows, others = np.flatnonzero(observations.variable == i), None
        if i < j:
            rows, others = by_place[(by_place[:, [i, j]] >= 0).all(axis=1)][:, [i, j]].T
        if len(rows) < LEAST_COMMON_LOCATIONS:
            yield i, j, len(rows), None
            continue
        lags = lags_of(observations.subset(rows, variable=None), **options)
        others = None if others is None else others[lags.rows]
        yield i, j, len(rows), replace(lags, rows=rows[lags.rows], others=others)


def name_of_pair(labels, i, j):
    """Return the name of a variable, or of two.

    >>> name_of_pair(("zinc", "lead"), 0, 0), name_of_pair(("zinc", "lead"), 0, 1)
    ('zinc', 'zinc × lead')
    """
    return labels[i] if i == j else f"{labels[i]} × {labels[j]}"


def several_variables(observations):
    """Return whether observations are of several variables."""
    return observations.variable is not None and bool(np.ptp(observations.variable))


def in_time(observations):
    """Return the times (n,) of observations of several times; None if there is one, or none."""
    times = observations.time
    return None if times is None or not np.ptp(times) else times


def step_in_time(times):
    """Return the median step between the different times; None if most of them occur once."""
    different = np.unique(times)
    return None if 2 * len(different) > len(times) else float(np.median(np.diff(different)))


def _lags_in_time(observations, asked):
    """Return validated lags in time, (q,) in ascending order, and their tolerance."""
    numbers = from_durations(asked, observations.time_unit)
    asked = asked if numbers is asked else np.atleast_1d(numbers)
    count = DEFAULT_TIME_LAGS if asked is None else asked
    if isinstance(count, Integral) and not isinstance(count, bool):
        if not 1 <= count <= MOST_DIRECTIONS_OR_LAGS:
            raise InvalidInput(
                f"`time_lags` must be a number from 1 to {MOST_DIRECTIONS_OR_LAGS}, or lags. Got "
                f"{asked!r}."
            )
        times = observations.time
        step = step_in_time(times)
        if step is None:
            # the last lag ends at half of the longest
            step = float(np.ptp(times)) / (2 * count - 1)
        return step * np.arange(count), step / 2
    try:
        lags = np.sort(np.asarray(asked, dtype=np.float64), axis=None)
    except (TypeError, ValueError, OverflowError):
        lags = np.array([np.nan])
    steps = np.diff(lags)
    known = 0 < len(lags) <= MOST_DIRECTIONS_OR_LAGS and np.isfinite(lags).all() and lags[0] >= 0
    if np.ndim(asked) != 1 or not known or not (steps > 0).all():
        raise InvalidInput(
            f"`time_lags` must be a number from 1 to {MOST_DIRECTIONS_OR_LAGS}, or different lags "
            f"of at least 0, such as [0, 1, 7]. Got {asked!r:.60}."
        )
    known = [*steps.tolist(), step_in_time(observations.time)]
    step = min((each for each in known if each is not None), default=None)
    return lags, (step or float(np.ptp(observations.time)) / (2 * DEFAULT_TIME_LAGS - 1)) / 2


def _mean_lags(apart, ends, pairs, group):
    """Return the mean lag in time in all bins of the same group, (k,)."""
    lag = np.empty(len(group))
    for one in np.unique(group):
        own = np.flatnonzero(group == one)
        lags = apart[ends[own[0]] - pairs[own[0]] : ends[own[-1]]]
        # equal lags without rounding
        lag[own] = lags.mean() if np.ptp(lags) > 1e-9 * lags.max() else lags[0]
    return lag


def _joined(counts, least):
    """Return the last of the bins that are joined into each bin with at least so many pairs.

    >>> _joined(np.array([10, 25, 40, 5, 30, 8]), 30)
    array([1, 2, 5])
    """
    last, total = [], 0
    for k, count in enumerate(counts.tolist()):
        total += count
        if total >= least:
            last.append(k)
            total = 0
    # too few pairs that are left over belong to the last bin
    return np.array([*last[:-1], len(counts) - 1])


def _directions_of(observations, rows, first, second):
    """Return the directions of pairs in degrees, 0 to 180, counter-clockwise from the first axis.

    NaN for pairs at one location. Degrees of longitude are as long as at the middle latitude.
    """
    x, y = observations.locations[rows].T
    across, up = x[second] - x[first], y[second] - y[first]
    if observations.geographic:
        across = (across + 180.0) % 360.0 - 180.0
        across *= np.cos(np.radians((y[first] + y[second]) / 2))
    angle = np.degrees(np.arctan2(up, across)) % 180.0
    return np.where((across == 0) & (up == 0), np.nan, angle)


def _nearest(numbers, centres, tolerance, period=np.inf):
    """Return the number of the nearest centre; -1 beyond the tolerance, and for NaN."""
    least, nearest = np.full(len(numbers), np.inf), np.full(len(numbers), -1)
    for k, centre in enumerate(centres):
        apart = numbers - centre
        if period < np.inf:
            apart = (apart + period / 2) % period - period / 2
        apart = np.abs(apart)
        closer = apart < least
        least[closer], nearest[closer] = apart[closer], k
    # rounding puts no pair between two centres
    nearest[~(least <= tolerance * (1 + 1e-12))] = -1
    return nearest


@by_content
@dataclass(frozen=True)
class Variogram:
    """Empirical semivariogram of observations in k bins of distance.

    Of several variables it holds the semivariogram of each, and the cross-variogram of each two.

    Parameters
    ----------
    distance : (k,) ndarray
        Mean distance of the pairs in each bin, in `unit`.
    semivariance : (k,) ndarray
        Half the mean squared difference of the pairs (Matheron), in squared units of the values. In
        a cross-variogram half the mean product of the differences of two variables.
    robust : (k,) ndarray
        Cressie and Hawkins' estimate, which outliers change less; NaN in a cross-variogram.
    pairs : (k,) ndarray
        Number of pairs.
    lower, upper : (k,) ndarray
        Each bin holds the distances lower < h <= upper; the first one those of 0 too. With several
        times pairs at one location have bins of their own, from 0 to 0.
    direction : (k,) ndarray or None
        Direction of each bin in degrees counter-clockwise from the first axis (from east, for
        longitude and latitude); None for all directions together.
    tolerance : float or None
        Largest difference of a pair's direction from that of its bin, in degrees.
    locations, total : int
        Number of observations that were compared, and of all.
    trend : str
        Trend whose residuals were compared.
    value_name, unit, value_unit : str
        Name of the values, unit of the distances, and unit of the values if it is known.
    repeated : bool
        Whether locations have several observations.
    lag : (k,) ndarray or None
        Mean lag in time of the pairs in all bins of the same class of lags, in `time_unit`; None
        for observations of one time.
    time_unit : str
        Unit of the lags; "" if it is unknown.
    pair : (k,) ndarray of str or None
        Variable of each bin, "zinc", or two, "zinc × lead"; None for observations of one variable.
    counts : dict of str to (int, int)
        By `pair` the number of locations that were compared, and of those that could be; also of
        pairs with fewer than 10, which have no bins. Empty for observations of one variable.
    """

    distance: Floats
    semivariance: Floats
    robust: Floats
    pairs: Whole
    lower: Floats
    upper: Floats
    direction: Floats | None = None
    tolerance: float | None = None
    locations: int = 0
    total: int = 0
    trend: str = "constant"
    value_name: str = "value"
    unit: str = "units of the locations"
    value_unit: str = ""
    repeated: bool = False
    lag: Floats | None = None
    time_unit: str = ""
    pair: Texts | None = None
    counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.distance)

    def __repr__(self) -> str:
        around = f" in {len(self.directions)} directions" if self.directions else ""
        around = f" at {len(self.lags)} lags in time" if len(self.lags) > 1 else around
        around += f" of {len(self.variable_pairs)} pairs of variables" if self.counts else ""
        return (
            f"<Variogram of {self.value_name}: {len(self)} bins{around} up to "
            f"{self.upper.max():.4g} {self.unit}, {self.pairs.sum():,} pairs>"
        )

    @property
    def directions(self) -> tuple[float, ...]:
        """The different directions in degrees; empty for all directions together."""
        return () if self.direction is None else tuple(np.unique(self.direction).tolist())

    @property
    def lags(self) -> tuple[float, ...]:
        """The different lags in time, ascending; empty for observations of one time."""
        return () if self.lag is None else tuple(np.unique(self.lag).tolist())

    @property
    def variable_pairs(self) -> tuple[str, ...]:
        """Names of the variables, then of each two that have a cross-variogram; () for one."""
        return () if self.pair is None else tuple(dict.fromkeys(self.pair.tolist()))

    @property
    def cross(self) -> bool:
        """Whether this is a cross-variogram of two variables."""
        return bool(np.isnan(self.robust).all())

    def of_pair(self, first: str, second: str | None = None) -> Variogram:
        """Return the semivariogram of a variable, or the cross-variogram of two.

        Parameters
        ----------
        first : str
            Name of a variable, or one of `variable_pairs`.
        second : str, optional
            Name of another variable.

        Raises
        ------
        InvalidInput
            If there are no bins of this pair.

        Examples
        --------
        >>> import geomxp as gx
        >>> metals = gx.datasets.load("meuse", values=("zinc", "lead"))
        >>> found = gx.variogram(metals, bins=3)
        >>> found.variable_pairs
        ('zinc', 'lead', 'zinc × lead')
        >>> print(found.of_pair("zinc", "lead"))
        Empirical cross-variogram of zinc × lead, 155 locations, trend constant, distances in m
        <BLANKLINE>
              from         to   distance      pairs  semivariance
                 0    740.127    450.008       2856       34094.7
           740.127    1480.25    1090.07       3576       48214.2
           1480.25    2220.38    1824.93       2578       40397.6
        """
        same = second is None or first == second
        names = (first,) if same else (f"{first} × {second}", f"{second} × {first}")
        name = next((one for one in names if one in self.variable_pairs), None)
        if name is None:
            known = ", ".join(self.variable_pairs) or "none"
            counts = [f"{one} {self.counts[one][1]}" for one in self._too_few]
            counts = ", ".join(counts)
            counts = f" Fewer than {LEAST_COMMON_LOCATIONS} locations: {counts}." if counts else ""
            raise InvalidInput(f"the pair must be one of: {known}.{counts} Got {names[0]!r:.80}.")
        locations, total = self.counts[name]
        one = replace(
            self._rows(self.pair == name),
            value_name=name,
            locations=locations,
            total=total,
            pair=None,
            counts={},
        )
        # one value of each variable at a location
        return replace(one, repeated=one.lag is not None) if one.cross else one

    @property
    def _too_few(self):
        """Names of the pairs without bins."""
        return [name for name in self.counts if name not in self.variable_pairs]

    def of_lag(self, lag: float) -> Variogram:
        """Return the bins of one of `lags`.

        Raises
        ------
        InvalidInput
            If there are no bins of this lag.
        """
        return self._part("lag", lag, self.lags)

    def of_direction(self, direction: float) -> Variogram:
        """Return the bins of one of `directions`.

        Raises
        ------
        InvalidInput
            If there are no bins of this direction.
        """
        return self._part("direction", direction, self.directions)

    def _part(self, name, value, known):
        """Return the bins with this value in a column."""
        if value not in known:
            listed = ", ".join(f"{one:g}" for one in known) or "none"
            raise InvalidInput(f"`{name}` must be one of: {listed}. Got {value!r}.")
        return self._rows(vars(self)[name] == value)

    def _rows(self, rows):
        """Return some of the bins."""
        columns = {one: vars(self)[one] for one in BIN_FIELDS}
        return replace(self, **{one: None if c is None else c[rows] for one, c in columns.items()})

    def to_frame(self) -> Frame:
        """Return a frame with a row for each bin.

        Columns: pair (of several variables), direction (if there are directions), lag (if there are
        several times), lower, upper, distance, pairs, semivariance, robust (not of a
        cross-variogram).
        """
        import pandas as pd

        names = [name for name in BIN_FIELDS if getattr(self, name) is not None]
        names = names[:-1] if self.cross else names
        return pd.DataFrame({name: getattr(self, name) for name in names})

    def to_dict(self) -> Document:
        """Return the variogram as a JSON object."""
        frame = self.to_frame()
        if self.counts:
            # JSON has no NaN
            frame = frame.astype({"robust": object}).where(frame.notna(), None)
        columns = {name: column.tolist() for name, column in frame.items()}
        names = ("tolerance", "locations", "total", "trend", "value_name", "unit", "value_unit")
        names += ("time_unit",) if self.lags else ()
        names += ("counts",) if self.counts else ()
        return columns | {name: getattr(self, name) for name in names}

    @property
    def title(self) -> str:
        """What was compared: values, locations, trend and unit, in one line."""
        kind = "cross-variogram" if self.cross else "semivariogram"
        kind = "semivariograms and cross-variograms" if self.counts else kind
        lags = f", lags in {self.time_unit}s" if self.time_unit and self.lags else ""
        return (
            f"Empirical {kind} of {self.value_name}, {self.compared}, trend {self.trend}, "
            f"distances in {self.unit}{lags}"
        )

    @property
    def compared(self) -> str:
        """How many observations were compared, in words."""
        if self.counts:
            sampled = any(0 < some < total for some, total in self.counts.values())
            return f"{self.total:,} observations" + ", of which a random part" * sampled
        return in_words(self.locations, self.total, self.repeated)

    def __str__(self) -> str:
        heads = {"lower": "from", "upper": "to"}
        frame = self.to_frame().rename(columns=heads)
        table = frame.to_string(index=False, float_format=lambda x: f"{x:.6g}", col_space=10)
        if self.counts:
            table = "\n\n".join(str(self.of_pair(name)) for name in self.variable_pairs)
        elif len(self.lags) > 1:
            table = f"Semivariance by lag in time:\n{self.table_by('lag')}"
        none = [
            f"{one}: none, {self.counts[one][1]} locations are too few" for one in self._too_few
        ]
        return "\n\n".join([self.title, table, *["\n".join(none)] * bool(none)])

    def table_by(self, name: str) -> str:
        """Return the semivariances as text, one column for each "direction" or "lag"."""
        form = {"direction": "{:g}°", "lag": "{:g}"}[name]
        table = self.to_frame().pivot(index=["lower", "upper"], columns=name)["semivariance"]
        table = table.rename(columns=form.format).reset_index()
        table = table.rename(columns={"lower": "from", "upper": "to"}).rename_axis(columns=None)
        return table.to_string(
            index=False, float_format=lambda x: f"{x:.6g}", na_rep="", col_space=9
        )

    def _repr_html_(self) -> str:
        table = self.to_frame().to_html(index=False, border=0, float_format=lambda x: f"{x:.6g}")
        return f"<p>{escape(self.title)}</p>{table}"


BIN_FIELDS = (
    "pair",
    "direction",
    "lag",
    "lower",
    "upper",
    "distance",
    "pairs",
    "semivariance",
    "robust",
)
"""Fields of a `Variogram` with a number for each bin."""


def variogram(
    observations: Observations,
    *,
    trend: TrendLike = "constant",
    bins: int | None = None,
    cutoff: float | None = None,
    directions: int | Sequence[float] | None = None,
    tolerance: float | None = None,
    time_lags: int | Sequence[float] | None = None,
    sample: int = SAMPLE_LOCATIONS,
    seed: int = 0,
) -> Variogram:
    """Estimate the semivariogram of observations from the pairs of their locations.

    γ̂(h) = 1/(2|N(h)|) Σ_{(i, j) in N(h)} (r_i - r_j)²  (Matheron 1963, Econ. Geol. 58:1246)

    N(h) are the pairs in one bin of distance, r the residuals of the trend by ordinary least
    squares. The robust estimate of Cressie and Hawkins is computed too. `geomxp.fit` needs no
    variogram; look at one before a fit to see whether near values are alike, at which distances,
    in which directions, and for how long.

    Observations of several times are compared at several lags in time: N(h, u) are the pairs in one
    bin of distance whose times differ by about u. Pairs at one location have a bin of their own.

    Of several variables the semivariogram of each is estimated, and the cross-variogram of each two
    that have values at 10 or more common locations: γ̂_kl(h) = 1/(2|N(h)|) Σ (r_ki - r_kj)(r_li -
    r_lj) with N(h) of common locations (Wackernagel 2003, Multivariate Geostatistics, ch. 20).

    Parameters
    ----------
    observations : Observations
    trend : str or dict
        Trend to remove: "constant", "linear", "covariates" or a formula, as of `geomxp.fit`.
    bins : int, optional
        Number of equally wide bins; empty ones are left out. If not given 15, of which those with
        fewer than 30 pairs (on average over the directions) are joined with the next one.
    cutoff : float, optional
        Largest distance, in `observations.unit`; half of the largest distance between locations if
        not given.
    directions : int or sequence of float, optional
        Number of equally spaced directions (4 are 0, 45, 90 and 135 degrees), or angles in degrees
        counter-clockwise from the first axis, as of `Anisotropy`; from east for longitude and
        latitude. Each pair belongs to the nearest direction, and pairs at one location to none. If
        not given, all directions together. Locations must have two dimensions.
    tolerance : float, optional
        Largest difference from a direction, in degrees. If not given 90/q for q directions, with
        which equally spaced ones take all pairs; 22.5 for one. Directions of observations of
        several times are those of pairs at the first lag.
    time_lags : int or sequence of float, optional
        Number of lags in time, or lags in the unit of the times, 0 for pairs at one time; 5 if not
        given. A number means multiples, from 0, of the median step between times; if most times
        occur once, of the step with which the lags reach half of the time span. Each pair belongs
        to the nearest lag, and to none if it differs by more than half of the smallest step between
        lags or half of the median one between times. Durations take the unit of the times.
    sample : int
        Number of locations above which a random sample of this size is compared.
    seed : int
        Seed of the sample.

    Returns
    -------
    Variogram

    Raises
    ------
    InvalidInput
        For an argument out of its range, if all locations are the same, if no pair is within the
        cutoff and tolerance, if squares of the values overflow or underflow, if each of several
        variables has fewer than 10 values, or for `time_lags` of observations of one time.

    Examples
    --------
    >>> import geomxp as gx
    >>> found = gx.variogram(gx.datasets.load("meuse"), bins=3)
    >>> print(found)
    Empirical semivariogram of log_zinc, 155 locations, trend constant, distances in m
    <BLANKLINE>
          from         to   distance      pairs  semivariance     robust
             0    740.127    450.008       2856      0.439205   0.415103
       740.127    1480.25    1090.07       3576      0.640599   0.686793
       1480.25    2220.38    1824.93       2578      0.536207   0.576557
    >>> around = gx.variogram(gx.datasets.load("meuse"), directions=4)
    >>> around.directions
    (0.0, 45.0, 90.0, 135.0)
    """
    if not isinstance(observations, Observations):
        kind = type(observations).__name__
        raise InvalidInput(f"`observations` must be Observations. Got {kind}.")
    check_whole("sample", sample, 2)
    check_whole("seed", seed, 0, inf)
    if cutoff is not None and not (is_finite(cutoff) and cutoff > 0):
        raise InvalidInput(f"`cutoff` must be a distance greater than 0. Got {brief_repr(cutoff)}.")
    check_squares(observations.values)
    if time_lags is not None and in_time(observations) is None:
        raise InvalidInput("`time_lags` need observations of several times: leave it out.")
    angles, tolerance = _angles(observations, directions, tolerance)
    residuals = least_squares(observations, trend)(observations.values)
    options = {"bins": bins, "cutoff": cutoff, "directions": angles, "tolerance": tolerance}
    options |= {"time_lags": time_lags, "most": sample, "seed": seed}
    several = several_variables(observations)
    if several:
        parts, names, counts = [], [], {}
        for i, j, total, lags in lags_of_variables(observations, **options):
            name = name_of_pair(observations.variable_labels, i, j)
            counts[name] = 0 if lags is None else len(lags.rows), total
            if lags is not None:
                names.append(name)
                parts.append(lags)
        if not parts:
            raise InvalidInput(
                f"a variogram needs at least {LEAST_COMMON_LOCATIONS} values of a variable. Got "
                f"{', '.join(f'{name} {total}' for name, (_, total) in counts.items())}."
            )
    else:
        parts = [lags_of(observations, **options)]
    bars = [_bins_of(lags, residuals, angles) for lags in parts]
    columns = {
        name: None if bars[0][name] is None else np.concatenate([one[name] for one in bars])
        for name in bars[0]
    }
    return Variogram(
        **columns,
        tolerance=tolerance,
        locations=sum(len(lags.rows) for lags in parts if lags.others is None),
        total=len(observations),
        trend=Trend.of(observations, trend).text,
        value_name=few(observations.variable_labels, 8) if several else observations.value_name,
        unit=observations.unit,
        value_unit=observations.value_unit,
        repeated=observations.duplicate_inputs or columns["lag"] is not None,
        time_unit=observations.time_unit,
        pair=np.repeat(names, [len(lags.ends) for lags in parts]) if several else None,
        counts=counts if several else {},
    )


def _bins_of(lags, residuals, angles):
    """Return the columns of a `Variogram` of one variable, or two, by name."""
    r, cross = residuals[lags.rows], lags.others is not None
    return {
        "distance": lags.distance,
        "semivariance": lags.semivariances(r, residuals[lags.others] if cross else None),
        "robust": np.full(len(lags.ends), np.nan) if cross else lags.robust(r),
        "pairs": lags.pairs,
        "lower": lags.lower,
        "upper": lags.upper,
        "direction": None if angles is None else angles[lags.group],
        "lag": lags.lag,
    }


def in_words(some, total, repeated):
    """Return how many of all observations are compared.

    >>> in_words(2000, 5000, False), in_words(390, 390, True)
    ('2,000 of 5,000 locations, at random', '390 observations')
    """
    places = f"{total:,} {'observations' if repeated else 'locations'}"
    return places if some == total else f"{some:,} of {places}, at random"


def check_squares(values):
    """Raise `InvalidInput` if squares of values overflow or underflow in FP64."""
    spread = float(np.ptp(values / 2)) * 2 if len(values) else 0.0
    if spread and not SQUARABLE_SPREADS[0] < spread < SQUARABLE_SPREADS[1]:
        raise InvalidInput(
            f"the values spread by about {spread:.0e}, whose square overflows or underflows in "
            "FP64: divide them by a constant first."
        )


def _angles(observations, directions, tolerance):
    """Return validated directions in degrees from 0 to 180, (q,), and their tolerance, or Nones."""
    if directions is None:
        if tolerance is not None:
            raise InvalidInput("`tolerance` is of directions: give `directions` too.")
        return None, None
    if observations.dimensions != 2:
        raise InvalidInput(
            "`directions` need locations in two dimensions. Got "
            f"{observations.dimensions}: leave `directions` out."
        )
    if isinstance(directions, Integral) and not isinstance(directions, bool):
        if not 2 <= directions <= MOST_DIRECTIONS_OR_LAGS:
            raise InvalidInput(
                f"`directions` must be a number from 2 to {MOST_DIRECTIONS_OR_LAGS}, or angles in "
                f"degrees. Got {directions!r}."
            )
        angles = 180.0 * np.arange(directions) / directions
    else:
        try:
            angles = np.asarray(directions, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            angles = np.array(np.nan)
        if angles.ndim != 1 or not 0 < len(angles) <= MOST_DIRECTIONS_OR_LAGS:
            angles = np.array([np.nan])
        angles = angles % 180.0
        if not np.isfinite(angles).all() or len(set(angles.tolist())) < len(angles):
            raise InvalidInput(
                f"`directions` must be a number from 2 to {MOST_DIRECTIONS_OR_LAGS}, or different "
                f"angles in degrees, such as [0, 90]. Got {directions!r:.60}."
            )
    if tolerance is None:
        tolerance = 90.0 / len(angles) if len(angles) > 1 else ONE_DIRECTION_TOLERANCE_DEGREES
    elif not (is_finite(tolerance) and 0 < tolerance <= 90):
        raise InvalidInput(
            f"`tolerance` must be degrees, more than 0 and at most 90. Got {brief_repr(tolerance)}."
        )
    return angles, float(tolerance)


@blas_threads(0)
def least_squares(observations, trend):
    """Return the function that takes values (n,) to their residuals from a trend, (n,).

    The trend is estimated by ordinary least squares.
    """
    kind = Trend.of(observations, trend)
    design = kind.design(observations.locations, observations.covariates, observations.variable)
    kind.check_full_rank(design)
    constant = design.shape[1] > 0 and bool((design[:, 0] == 1).all())
    if constant:
        # columns that are orthogonal to 1 lose no digits to large coordinates
        design = design[:, 1:] - design[:, 1:].mean(axis=0)
    q, _ = np.linalg.qr(design / np.abs(design).max(axis=0))

    @blas_threads(0)
    def residuals(values):
        r = values - values.mean() if constant else values
        # the second time removes what rounding left (Parlett 1998, section 6.9)
        for _ in range(2):
            r = r - q @ (q.T @ r)
        return r

    return residuals


@blas_threads(0)
def trend_residuals(fit):
    """Return the residuals z - Xβ̂ of a fit's trend, (n,)."""
    return fit.gaussian.observations.values - design_of(fit) @ fit.coefficients


def empirical_variogram(
    observations, residuals, *, model=None, bins=15, most=SAMPLE_LOCATIONS, seed=0
):
    """Estimate the semivariogram; return distance (k,), semivariance (k,) and pairs (k,) of bins.

    γ̂(h) = 1/(2|N(h)|) Σ_{(i, j) in N(h)} (r_i - r_j)²  (Matheron 1963, Econ. Geol. 58:1246)

    N(h) are the pairs in one bin of distance; empty bins are left out. The bins are equally wide
    and extend to half of the largest distance, beyond which pairs are few and come from opposite
    ends of the region (to the largest distance if no pair is closer than half of it). Distances are
    in `observations.unit`, or those of the isotropic coordinates of a model with anisotropy. Above
    `most` locations a random subsample of this size is used.
    """
    r = np.asarray(residuals, dtype=np.float64)
    if r.shape != (len(observations),):
        raise InvalidInput(
            f"`residuals` must hold one number for each of the {len(observations)} locations. "
            f"Got shape {r.shape}."
        )
    lags = lags_of(observations, model=model, bins=bins, most=most, seed=seed)
    return lags.distance, lags.semivariances(r[lags.rows]), lags.pairs


def variogram_envelope(fit, lags, *, draws=199, level=0.95, seed=0):
    """Return pointwise bounds (k,) of the semivariogram under the fitted model.

    Values are simulated from the fitted model, and the trend is estimated from each draw with the
    covariance parameters held fixed. The bounds are pointwise: one of fifteen bins is often
    outside. The level is the probability between the k-th smallest and the k-th largest of the
    draws with k = (draws + 1)(1 - level)/2 (Davison and Hinkley 1997, section 4.2.1), interpolated
    between whole k.
    """
    z_value(level)
    tail = (1 - level) / 2
    least = int(np.ceil(1 / tail - 1e-9)) - 1
    if not (isinstance(draws, Integral) and not isinstance(draws, bool) and draws >= least):
        raise InvalidInput(
            f"an envelope of level {level:g} needs at least {least} draws. Got {draws!r}."
        )
    if lags.others is None:
        gamma = lags.semivariances(residual_draws(fit, lags.rows, draws, seed))
    else:
        both = residual_draws(fit, np.concatenate((lags.rows, lags.others)), draws, seed)
        gamma = lags.semivariances(*np.split(both, 2))
    return tuple(np.quantile(gamma, (tail, 1 - tail), axis=1, method="weibull"))


def residual_draws(fit, rows, draws, seed=0):
    """Draw trend residuals of some rows, of values simulated from a fitted model, (m, draws).

    r = z - Xβ̂ ~ N(0, Σ - X(X'Σ⁻¹X)⁻¹X'). The first draws do not depend on the number of draws.
    Those of a response are of working values, with their error variances.
    """
    from scipy.linalg import lapack

    fit = fit.gaussian
    observations, model = fit.observations, fit.model
    inputs, design = observations.inputs[rows], design_of(fit)[rows]
    white = np.random.default_rng([seed, 2]).standard_normal((draws, len(rows))).T
    with blas_threads(len(rows)):
        covariance = np.asfortranarray(dense_covariance(model, inputs))
        covariance -= design @ fit.coefficient_covariance @ design.T
        # the rank is deficient by the trend's; pivoted Cholesky finds it
        lower, pivots, rank, _ = lapack.dpstrf(covariance, lower=1, overwrite_a=1)
        residuals = np.empty_like(white)
        residuals[pivots - 1] = np.tril(lower)[:, :rank] @ white[:rank]
    return residuals


def semivariance_between(model, h, i, j):
    """Evaluate γ_ij(h) of a multivariate model for h > 0: of variable i, or of i and j."""
    nugget = model.nugget_matrix[i, j]
    return nugget + sum(
        one.amplitude[i, j] * (1.0 - one.correlations[i][j].correlation(h))
        for one in model.components()
    )


def semivariance(model, h):
    """Evaluate an isotropic model's semivariogram γ(h) = τ² + σ²(1 - ρ(h)) for h > 0."""
    return model.nugget + model.variance * (1.0 - model.correlation(h))
