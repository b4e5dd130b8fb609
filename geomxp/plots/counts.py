"""Diagnostic plots of counts and of binary values: frequencies, and calibration of probabilities.

Bands are quantiles of values drawn from the predictive distributions, for each bar or point
separately. The draws are independent, while leave-one-out predictions of neighbours are correlated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..covariance.responses import Binomial
from ..errors import InvalidInput, check_whole
from ..estimation.hurdle import HurdleFit
from ..estimation.result import Fit, z_value
from ..prediction.mixtures import HurdleMixture
from ..prediction.validation import Validation
from . import axes
from .axes import BLUE, SKY, VERMILION, axes_of, finish, plain
from .diagnostics import kind_in_words, pointwise, validation_of

if TYPE_CHECKING:
    from .._typing import Axes, Floats

BAND_DRAWS = 999
"""Draws of all values from which a band is computed."""

MOST_BARS = 25
"""Largest number of bars of a rootogram."""

MOST_ENDS = 400
"""Largest number of counts at which expected frequencies are computed."""

LEAST_EXPECTED = 1.0
"""Smallest expected frequency of a bar; counts that are expected less often are joined."""

TAIL = 1e-4
"""Probability of counts beyond the range in which bars may end."""


@dataclass(frozen=True)
class Frequencies:
    """Frequencies of counts in bins.

    Attributes
    ----------
    last : (k,) ndarray
        The largest count of each bin, which begins after that of the bin before; infinite for the
        last bin.
    observed : (k,) ndarray of int
    expected : (k,) ndarray
        Sums of predictive probabilities.
    low, high : (k,) ndarray
        Bounds of the observed frequency.
    most : float
        Largest possible count.
    """

    last: Floats
    observed: Floats
    expected: Floats
    low: Floats
    high: Floats
    most: float = np.inf

    @property
    def names(self):
        """The counts of each bin as text, such as "3", "4–6" and "7+"."""
        ends = zip(np.r_[0, self.last[:-1] + 1], np.r_[self.last[:-1], self.most], strict=True)
        return [
            f"{a:.0f}+" if np.isinf(b) else f"{a:.0f}" if a == b else f"{a:.0f}–{b:.0f}"
            for a, b in ends
        ]


def rootogram(
    source: Fit | HurdleFit | Validation,
    *,
    level: float = 0.95,
    ax: Axes | None = None,
    seed: int = 0,
) -> Axes:
    """Draw a hanging rootogram: observed frequencies of counts against the expected ones.

    The dots are the square roots of the expected frequencies, the sums of the predictive
    probabilities. From each hangs a bar as long as the square root of the observed frequency: it
    ends above 0 where there are fewer of these counts than expected, and below 0 where there are
    more (Kleiber and Zeileis 2016, Am. Stat. 70:296). Counts with an expected frequency below 1 are
    joined, as are neighbouring counts if there would be more than 25 bars.

    The band is that of the bars' ends for a correct model, for each bar separately, with
    independent values.

    Parameters
    ----------
    source : Fit, HurdleFit or Validation
        Of counts. For a fit, its leave-one-out predictions are computed.
    level : float
        Level of the band.
    ax : matplotlib.axes.Axes, optional
    seed : int
        Seed of the draws for the band.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InvalidInput
        If the values are not counts.

    Examples
    --------
    >>> import geomxp as gx
    >>> fit = gx.fit(gx.datasets.load("nc_sids"), response="poisson", fixed={"smoothness": 0.5})
    >>> ax = rootogram(fit)
    >>> ax.get_ylabel()
    '√frequency (of 100)'
    """
    z_value(level)
    ax, validation = axes_of(ax), validation_of(source)
    found = frequencies(validation, level=level, seed=seed)
    at, top = np.arange(len(found.expected)), np.sqrt(found.expected)
    observed, low, high = (np.sqrt(x) for x in (found.observed, found.low, found.high))
    ax.bar(at, observed, 0.85, bottom=top - observed, color=SKY, edgecolor="white", linewidth=0.5)
    edges = np.r_[at - 0.5, at[-1] + 0.5]
    ends = (np.r_[end, end[-1]] for end in (top - high, top - low))
    band = {"step": "post", "color": "0.3", "alpha": 0.25, "linewidth": 0, "zorder": 2}
    ax.fill_between(edges, *ends, label=f"ends of bars, {pointwise(level)}", **band)
    ax.plot(at, top, "o-", color=VERMILION, markersize=4, linewidth=1.2, label="expected")
    ax.axhline(0.0, color="0.2", linewidth=0.8)
    names, ticks = found.names, _some_ticks(ax, found.names)
    ax.set_xticks(ticks, [names[k] for k in ticks])
    bottom = min(0.0, float(np.min(top - np.maximum(high, observed))))
    ax.set(xlim=(-0.6, at[-1] + 0.6), ylim=(1.1 * bottom, 1.25 * float(top.max())))
    labels = plain(validation.observations.value_name), f"√frequency (of {len(validation):,})"
    return finish(ax, f"Rootogram, {kind_in_words(validation)}", *labels, loc="upper right")


def frequencies(validation: Validation, *, level: float = 0.95, seed: int = 0) -> Frequencies:
    """Return the observed and expected frequencies of counts, with bounds of the observed ones."""
    mixture = validation.mixture
    if mixture is None or not mixture.discrete:
        raise InvalidInput(
            f"a rootogram needs counts, and {validation.observations.value_name} has another "
            "distribution: use geomxp.plots.pit, or fit counts with a response such as "
            'gx.fit(observations, response="poisson").'
        )
    check_whole("seed", seed, 0, np.inf)
    values = validation.observed
    expected = _expected(mixture, values)
    least, last = LEAST_EXPECTED, _joined(*expected, LEAST_EXPECTED)
    while len(last) > MOST_BARS:
        least *= 1.25
        last = _joined(*expected, least)
    random, tail = np.random.default_rng(seed), (1 - level) / 2
    drawn = [_counted(mixture.draw(random), last) for _ in range(BAND_DRAWS)]
    return Frequencies(
        last,
        _counted(values, last),
        np.diff(np.interp(last, *expected), prepend=0.0),
        np.quantile(drawn, tail, axis=0, method="lower"),
        np.quantile(drawn, 1 - tail, axis=0, method="higher"),
        _most(mixture),
    )


def _most(mixture):
    """Return the largest possible count: the trials of binomial values."""
    if not isinstance(getattr(mixture, "response", None), Binomial):
        return np.inf
    return 1.0 if mixture.trials is None else float(mixture.trials.max())


def _expected(mixture, values):
    """Return ends of possible bins, the last one infinite, and expected numbers up to them."""
    low = min(float(mixture.quantile(TAIL).min()), float(values.min()))
    high = max(float(np.quantile(mixture.quantile(1 - TAIL), 0.99)), float(values.max()))
    ends = np.arange(max(low, 0.0), high + 1)
    if len(ends) > MOST_ENDS:
        ends = np.unique(np.round(np.linspace(ends[0], ends[-1], MOST_ENDS)))
    upto = np.array([mixture.cumulative(end).sum() for end in ends])
    return np.r_[ends, np.inf], np.r_[np.maximum.accumulate(upto), len(mixture)]


def _joined(ends, upto, least):
    """Return the ends of bins of which each has an expected number of at least `least`.

    >>> _joined(np.array([0, 1, 2, 3, np.inf]), np.array([5.0, 5.4, 7.0, 7.9, 8.0]), 1.0)
    array([ 0.,  2., inf])
    """
    found, before = [], 0.0
    for end, total in zip(ends[:-1], upto[:-1], strict=True):
        if total - before >= least and upto[-1] - total >= least:
            found.append(end)
            before = total
    return np.r_[found, np.inf]


def _counted(values, last):
    """Return the number of values in each bin, (k,)."""
    return np.bincount(np.searchsorted(last, values), minlength=len(last))


def _some_ticks(ax, names):
    """Return the bars that have room for their counts."""
    room = axes.characters(ax) / (max(map(len, names)) + 1.5)
    return range(0, len(names), max(1, int(np.ceil(len(names) / max(room, 1.0)))))


@dataclass(frozen=True)
class Calibration:
    """Shares of successes in bins of predicted probabilities.

    Attributes
    ----------
    predicted, observed : (k,) ndarray
        Mean predicted probability, and share of successes.
    low, high : (k,) ndarray
        Bounds of the share if the probabilities are right.
    counts : (k,) ndarray of int
        Number of values in each bin.
    event : str
        What the probabilities are of.
    """

    predicted: Floats
    observed: Floats
    low: Floats
    high: Floats
    counts: Floats
    event: str


def calibration(
    source: Fit | HurdleFit | Validation,
    *,
    bins: int = 10,
    level: float = 0.95,
    ax: Axes | None = None,
    seed: int = 0,
) -> Axes:
    """Draw the observed share against the predicted probability of binary or binomial values.

    For counts, and for other values that may be 0, it is the probability of a value above 0. The
    values are in bins of about equal size, by their predicted probabilities. Above the diagonal
    predicted probabilities are too small.

    The band is where shares lie if the probabilities are right, for each bin separately, with
    independent values (Bröcker and Smith 2007, Weather Forecast. 22:651).

    Parameters
    ----------
    source : Fit, HurdleFit or Validation
        For a fit, its leave-one-out predictions are computed.
    bins : int
        Largest number of bins. Equal probabilities are in one bin.
    level : float
        Level of the band.
    ax : matplotlib.axes.Axes, optional
    seed : int
        Seed of the draws for the band.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InvalidInput
        If the values are neither binary nor counts, or cannot be 0.

    Examples
    --------
    >>> import geomxp as gx
    >>> meuse = gx.datasets.load("meuse", values="zinc")
    >>> above = gx.Observations(meuse.locations, meuse.values > 500, value_name="zinc > 500")
    >>> ax = calibration(gx.fit(above, response="bernoulli", fixed={"smoothness": 0.5}), bins=5)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('predicted probability of zinc > 500', 'observed share')
    """
    z_value(level)
    ax, validation = axes_of(ax, 5.0, 4.8), validation_of(source)
    found = shares(validation, bins=bins, level=level, seed=seed)
    x, low, high = found.predicted, found.low, found.high
    if len(x) == 1:
        # a band of one point has a width
        x, low, high = x + np.array([-0.02, 0.02]), np.repeat(low, 2), np.repeat(high, 2)
    axes.band(ax, x, low, high, pointwise(level))
    ax.plot((0, 1), (0, 1), color="0.35", linewidth=1)
    least, most = found.counts.min(), found.counts.max()
    words = f"{least:,} values each" if least == most else f"{least:,} to {most:,} values each"
    line = {"color": BLUE, "markersize": 4, "linewidth": 1.2}
    ax.plot(found.predicted, found.observed, "o-", label=words, **line)
    # probabilities of rare events are all near 0
    ends = np.r_[found.predicted, found.observed, found.low, found.high]
    margin = 0.06 * float(np.ptp(ends) or 1.0)
    ends = max(0.0, ends.min() - margin), min(1.0, ends.max() + 2 * margin)
    ends = (0.0, 1.0) if ends[1] - ends[0] > 0.6 else ends
    ax.set(xlim=ends, ylim=(ends[0], ends[1] + 0.05 * (ends[1] - ends[0])), aspect="equal")
    labels = f"predicted probability{found.event}", "observed share"
    title = f"Calibration, {kind_in_words(validation)}"
    return finish(ax, title, *labels, loc="lower right")


def shares(
    validation: Validation, *, bins: int = 10, level: float = 0.95, seed: int = 0
) -> Calibration:
    """Return the shares of successes in bins of predicted probabilities."""
    check_whole("bins", bins, 2, np.inf)
    check_whole("seed", seed, 0, np.inf)
    mixture, name = validation.mixture, plain(validation.observations.value_name)
    response = getattr(mixture, "response", None)
    if isinstance(response, Binomial):
        trials = np.ones(len(mixture)) if mixture.trials is None else mixture.trials
        probability, event = validation.mean / trials, f" of {name}"

        def successes(values):
            return values

    elif mixture is not None and may_be_zero(mixture):
        trials, event = np.ones(len(mixture)), f" of {name} > 0"
        probability = 1 - mixture.cumulative(0.0)

        def successes(values):
            return values > 0

    else:
        raise InvalidInput(
            "calibration of probabilities needs binary values, or values that may be 0, and "
            f"{validation.observations.value_name} has another distribution: use "
            "geomxp.plots.coverage."
        )
    bin_of = _equal_bins(probability, bins)
    total = np.bincount(bin_of, trials)
    random, tail = np.random.default_rng(seed), (1 - level) / 2
    drawn = [
        np.bincount(bin_of, successes(mixture.draw(random))) / total for _ in range(BAND_DRAWS)
    ]
    return Calibration(
        np.bincount(bin_of, trials * probability) / total,
        np.bincount(bin_of, successes(validation.observed)) / total,
        np.quantile(drawn, tail, axis=0, method="lower"),
        np.quantile(drawn, 1 - tail, axis=0, method="higher"),
        np.bincount(bin_of),
        event,
    )


def may_be_zero(mixture):
    """Whether a value may be 0."""
    if isinstance(mixture, HurdleMixture):
        return True
    response = mixture.response
    return response.atom or (response.discrete and not response.positive)


def _equal_bins(numbers, bins):
    """Return the bin of each number, of about equal sizes, from 0 without gaps.

    >>> _equal_bins(np.array([0.3, 0.1, 0.4, 0.1]), 2).tolist()
    [1, 0, 1, 0]
    """
    # probabilities that differ by rounding are equal
    numbers = np.round(numbers, 9)
    ends = np.quantile(numbers, np.arange(1, bins) / bins, method="lower")
    return np.unique(np.searchsorted(np.unique(ends), numbers), return_inverse=True)[1]
