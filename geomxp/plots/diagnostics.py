"""Diagnostic plots of a fit: prediction errors, semivariogram, and profiles of the likelihood.

Bands of prediction errors are pointwise and assume independent errors, while leave-one-out errors
of neighbours are correlated. For six models of 155 and 600 locations the exact bands were 0.6 times
as wide in the middle of normal quantiles and equal at their ends, 0.83 to 1.05 times as wide for
PIT, and 1.0 to 1.28 times as wide for coverage.
"""

from __future__ import annotations

from itertools import combinations, combinations_with_replacement
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np

from ..data.observations import Observations
from ..data.summaries import few
from ..errors import InvalidInput
from ..estimation.hurdle import HurdleFit
from ..estimation.names import squared_unit, titles
from ..estimation.profile import CONTOUR_LEVELS, profile_contours, profile_likelihood, wald_ellipse
from ..estimation.result import Fit, z_value
from ..likelihood.trend import TRENDS
from ..prediction.validation import Validation, leave_one_out
from ..prediction.variogram import (
    DEFAULT_BINS,
    LEAST_COMMON_LOCATIONS,
    LEAST_PAIRS,
    SAMPLE_LOCATIONS,
    Variogram,
    in_time,
    in_words,
    lags_of,
    lags_of_variables,
    name_of_pair,
    semivariance,
    semivariance_between,
    several_variables,
    trend_residuals,
    variogram_envelope,
)
from ..prediction.variogram import variogram as estimate_variogram
from . import axes
from .axes import (
    BLUE,
    GREEN,
    ORANGE,
    SKY,
    VERMILION,
    axes_of,
    checked,
    finish,
    label,
    panels_of,
    plain,
)
from .maps import one_variable, signed_map, titled

if TYPE_CHECKING:
    from .._typing import Axes, AxesArray, Panels, Sequence

MOST_HISTOGRAM_BARS = 60
"""Largest number of bars of a histogram of values."""

MOST_TRIANGLE_VARIABLES = 4
"""Largest number of variables with cross-variograms in one figure."""

EXTREME_STANDARDISED_ERROR = 4.0
"""Standardised errors beyond this have the last colour of a map."""


def residuals(
    source: Fit | Validation, *, level: float = 0.95, ax: Panels | None = None
) -> AxesArray:
    """Draw standardised errors in three plots: against predictions, against quantiles, on a map.

    Parameters
    ----------
    source : Fit or Validation
        For a fit, its leave-one-out predictions are computed.
    level : float
        Probability of the lines and of the band.
    ax : sequence of three matplotlib.axes.Axes, optional

    Returns
    -------
    (3,) ndarray of matplotlib.axes.Axes
    """
    panels = panels_of(ax, 3, columns=3, width=4.4, height=3.7)
    validation = _of_one_variable(validation_of(source))
    residuals_against_prediction(validation, level=level, ax=panels[0])
    normal_quantiles(validation, level=level, ax=panels[1])
    standardised_residuals_map(validation, ax=panels[2])
    return panels


def residuals_against_prediction(
    source: Fit | Validation, *, level: float = 0.95, ax: Axes | None = None
) -> Axes:
    """Draw standardised errors, (observed - predicted)/standard deviation, against predictions.

    If the model is good, the errors show no pattern, and the share `level` of them lies between the
    dashed lines. For a response, and for censored values, the errors are normal quantiles of the
    randomized PIT.

    Parameters
    ----------
    source : Fit or Validation
    level : float
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes
    """
    half, ax, validation = z_value(level), axes_of(ax), _of_one_variable(validation_of(source))
    z, name = validation.standardised_errors, axes.value_label(validation.observations)
    ax.scatter(validation.mean, z, s=axes.dots(len(z), ax), color=BLUE, alpha=0.7, linewidths=0)
    axes.zero_line(ax)
    for end in (-half, half):
        words = f"±{half:.3g} ({100 * level:g} %)" if end > 0 else None
        ax.axhline(end, color="0.35", linestyle="--", linewidth=1, label=words)
    # space for the legend above the dots
    reach = 1.08 * max(float(np.abs(z).max()), half)
    ax.set(ylim=(-reach, 1.25 * reach))
    title = f"Residuals, {kind_in_words(validation)}"
    labels = f"prediction of {name}", errors_in_words(validation)
    return finish(ax, title, *labels, loc="upper right")


def normal_quantiles(
    source: Fit | Validation, *, level: float = 0.95, ax: Axes | None = None
) -> Axes:
    """Draw standardised errors against normal quantiles, with a band for independent errors.

    The i-th smallest of n uniform numbers is Beta(i, n + 1 - i) distributed. The band is pointwise
    with probability `level`, so that some of many points lie outside.

    Parameters
    ----------
    source : Fit or Validation
    level : float
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes
    """
    from scipy.special import ndtri
    from scipy.stats import beta

    z_value(level)
    ax, validation = axes_of(ax), validation_of(source)
    z = np.sort(validation.standardised_errors)
    n, rank = len(z), np.arange(1, len(z) + 1)
    expected = ndtri((rank - 0.5) / n)
    ends = [
        ndtri(beta.ppf(share, rank, n + 1 - rank)) for share in (0.5 - level / 2, 0.5 + level / 2)
    ]
    axes.band(ax, expected, *ends, pointwise(level))
    ax.axline((0.0, 0.0), slope=1.0, color="0.35", linewidth=1)
    ax.scatter(expected, z, s=axes.dots(n, ax), color=BLUE, linewidths=0, zorder=3)
    title = f"Normal quantiles, {kind_in_words(validation)}"
    labels = "normal quantile", errors_in_words(validation)
    return finish(ax, title, *labels, loc="upper left")


def standardised_residuals_map(source: Fit | Validation, *, ax: Axes | None = None) -> Axes:
    """Draw standardised errors on a map, where clusters of one sign show what the model misses.

    Parameters
    ----------
    source : Fit or Validation
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes
    """
    ax, validation = axes_of(ax), _of_one_variable(validation_of(source))
    observations, z = validation.observations, validation.standardised_errors
    words = errors_in_words(validation)
    signed_map(observations, z, words, most=EXTREME_STANDARDISED_ERROR, ax=ax)
    return titled(ax, observations, f"{words.capitalize()}s")


def pit(
    source: Fit | Validation, *, bins: int = 10, level: float = 0.95, ax: Axes | None = None
) -> Axes:
    """Draw a histogram of the probability integral transforms Φ((observed - predicted)/sd).

    It is flat for calibrated predictions, high at both ends if their variances are too small, and
    high in the middle if they are too large. The band is binomial, for each bar separately. The
    transforms of counts and of censored values are randomized; see `Validation.pit`.

    Parameters
    ----------
    source : Fit or Validation
    bins : int
    level : float
        Of the band.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes
    """
    from scipy.stats import binom

    z_value(level)
    if not (isinstance(bins, Integral) and not isinstance(bins, bool) and bins >= 2):
        raise InvalidInput(f"`bins` must be a whole number of at least 2. Got {bins!r}.")
    ax, validation = axes_of(ax), validation_of(source)
    counts, edges = np.histogram(validation.pit(), bins, (0.0, 1.0))
    n = len(validation)
    low, high = binom.ppf((0.5 - level / 2, 0.5 + level / 2), n, 1 / bins)
    ax.bar(edges[:-1], counts, 1 / bins, align="edge", color=SKY, edgecolor="white")
    words = f"{100 * level:g} % of each bar, where uniform"
    ax.axhspan(low, high, color="0.3", alpha=0.2, linewidth=0, label=words, zorder=2)
    ax.axhline(n / bins, color="0.2", linestyle="--", linewidth=1)
    ax.set(xlim=(0, 1), ylim=(0, 1.25 * max(counts.max(), high)))
    labels = "probability integral transform", f"observations (of {n:,})"
    return finish(ax, f"PIT, {kind_in_words(validation)}", *labels, loc="upper center")


def coverage(source: Fit | Validation, *, level: float = 0.95, ax: Axes | None = None) -> Axes:
    """Draw the empirical coverage of prediction intervals against the nominal coverage.

    Below the diagonal intervals are too short. The band is binomial, for each point separately. For
    a response an interval holds an observation if its PIT is between the interval's probabilities.
    For counts use `rootogram`, and for binary values `calibration`.

    Parameters
    ----------
    source : Fit or Validation
    level : float
        Of the band.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes
    """
    from scipy.special import ndtri
    from scipy.stats import binom

    z_value(level)
    ax, validation = axes_of(ax, 5.0, 4.8), validation_of(source)
    nominal = np.append(np.arange(5, 100, 5), 99) / 100
    sizes = np.sort(np.abs(validation.standardised_errors))
    n = len(sizes)
    inside = np.searchsorted(sizes, ndtri(0.5 + nominal / 2), side="right") / n
    fine = np.linspace(0.0, 1.0, 201)[1:-1]
    ends = [binom.ppf(share, n, fine) / n for share in (0.5 - level / 2, 0.5 + level / 2)]
    axes.band(ax, 100 * fine, *(100 * end for end in ends), pointwise(level))
    ax.plot((0, 100), (0, 100), color="0.35", linewidth=1)
    ax.plot(100 * nominal, 100 * inside, "o-", color=BLUE, markersize=4, linewidth=1.2)
    at = int(np.flatnonzero(nominal == 0.95)[0])
    axes.estimate(ax, 95, 100 * inside[at], f"{100 * inside[at]:.1f} % of 95 %", size=6)
    ax.set(xlim=(0, 100), ylim=(0, 100), aspect="equal")
    labels = label("nominal coverage", "%"), label("empirical coverage", "%")
    title = f"Prediction intervals, {kind_in_words(validation)}"
    return finish(ax, title, *labels, loc="lower right")


def validation_of(source):
    """Return a validation unchanged; for a fit, its leave-one-out validation."""
    checked("source", source, Fit, HurdleFit, Validation)
    return source if isinstance(source, Validation) else leave_one_out(source)


def _of_one_variable(validation):
    """Raise `InvalidInput` for a validation of several variables, which may have several units."""
    labels = validation.observations.variable_labels
    if len(labels) > 1:
        first = validation.observations.variable_names[:1] or (0,)
        raise InvalidInput(
            f"errors of several variables have different units. Got {few(labels, 8)}: draw those "
            f"of one, gx.leave_one_out(fit).of_variable({first[0]!r})."
        )
    return validation


def kind_in_words(validation):
    """Return the kind of a validation for titles."""
    return plain(validation.kind)


def errors_in_words(validation):
    """Return what `Validation.standardised_errors` are: for a response they are not differences."""
    plain_errors = validation.mixture is None and not validation.censored.any()
    return "standardised error" if plain_errors else "quantile residual"


def pointwise(level):
    """Return the name of a band for legends."""
    return f"{100 * level:g} %, pointwise"


def histogram(
    observations: Observations, *, variable: str | int | None = None, ax: Axes | None = None
) -> Axes:
    """Draw a histogram of the values.

    Parameters
    ----------
    observations : Observations
    variable : str or int, optional
        Which of several variables.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes
    """
    observations = one_variable(checked("observations", observations, Observations), variable)
    ax, values = axes_of(ax), observations.values
    # numpy's rule has a bin for every value of some heavy tails
    bins = min(len(np.histogram_bin_edges(values, "auto")) - 1, MOST_HISTOGRAM_BARS)
    ax.hist(values, bins, color=BLUE, edgecolor="white", linewidth=0.6)
    labels = axes.value_label(observations), f"observations (of {len(values):,})"
    return finish(ax, "Histogram", *labels)


# Semivariogram of observations; of residuals, with the fitted model and an envelope of simulations.


DIRECTION_COLOURS = (BLUE, VERMILION, GREEN, ORANGE)
"""Colours of up to four directions."""


def variogram(
    source: Fit | Observations | Variogram,
    *,
    bins: int | None = None,
    envelope: int = 199,
    level: float = 0.95,
    pair: str | tuple[str, str] | None = None,
    ax: Axes | None = None,
    seed: int = 0,
) -> Axes:
    """Draw the empirical semivariogram of observations, or of a fit's residuals with its model.

    The area of a point grows with its number of pairs. Of a fit, the semivariogram of the trend's
    residuals is drawn, with that of the model, γ(h) = τ² + σ²(1 - ρ(h)), which was fitted by
    maximum likelihood to the values, not to the points. The band comes from fields simulated at the
    estimate, with the trend estimated again and the covariance parameters held. It is pointwise, so
    that one of fifteen points often lies outside.

    For a response the residuals are those of its working values (`Fit.gaussian`); the line and
    the band have their noise too.

    Observations of several times have points of one colour for each lag in time; the line of a fit
    is the mean of the model's semivariances over the pairs of each point, and there is no band.

    Of several variables give the `pair` that is drawn; `variograms` draws all. The line of a fit is
    then γ_ij(h) = C_ij(0) - C_ij(h), plus τ² for one variable.

    Parameters
    ----------
    source : Fit, Observations or Variogram
        Observations are compared with `geomxp.variogram`. A Variogram with directions or lags in
        time is drawn as one line for each, without bins of fewer than 30 pairs if others have more.
    bins : int, optional
        If not given, 15 for a fit, and those of `geomxp.variogram` for observations.
    envelope : int
        Number of fields to simulate for the band of a fit of one time; 0 for no band.
    level : float
        Of the band.
    pair : str or (str, str), optional
        One of several variables, or two: "zinc", ("zinc", "lead").
    ax : matplotlib.axes.Axes, optional
    seed : int
        Seed of the simulated fields, and of the sample taken from more than 2,000 locations.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InvalidInput
        If there are too few bins or fields, or the model is not isotropic; if `bins` is given for a
        Variogram; or if there are several variables and `pair` is not one of their pairs.

    Examples
    --------
    >>> import geomxp as gx
    >>> meuse = gx.datasets.load("meuse")
    >>> ax = variogram(meuse)
    >>> ax = variogram(gx.variogram(meuse, trend="sqrt_dist", directions=4))
    """
    checked("source", source, Fit, Observations, Variogram)
    if isinstance(source, Variogram):
        if bins is not None:
            raise InvalidInput("`bins` are those of the Variogram: give them to gx.variogram.")
    elif isinstance(source, Observations):
        source = estimate_variogram(source, bins=bins, seed=seed)
    of_variogram = isinstance(source, Variogram)
    several = source.counts if of_variogram else several_variables(source.observations)
    if several and pair is None:
        known = tuple(source.counts) if of_variogram else source.observations.variable_labels
        raise InvalidInput(
            f"there are several variables: give pair={known[0]!r}, or draw all of them by "
            "geomxp.plots.variograms."
        )
    if pair is not None and not several:
        raise InvalidInput("`pair` is for several variables: leave it out.")
    pair = (pair,) if isinstance(pair, str) else pair
    if of_variogram:
        return _draw_variogram(axes_of(ax), source.of_pair(*pair) if several else source)
    if several:
        numbers = _numbers_of_pair(source.observations.variable_labels, pair)
        (found,) = _lags_of_fit(source, bins, seed, numbers)
        return _draw_pair(axes_of(ax), source, found, envelope, level, seed)
    ax = axes_of(ax)
    observations, model = source.observations, source.model
    if in_time(observations) is not None:
        return _draw_in_time(ax, source, lags_of(observations, model=model, bins=bins, seed=seed))
    lags = lags_of(
        observations, model=model, bins=DEFAULT_BINS if bins is None else bins, seed=seed
    )
    gamma, distance = lags.semivariances(trend_residuals(source)[lags.rows]), lags.distance
    count = in_words(len(lags.rows), len(observations), observations.duplicate_inputs)
    words = f"empirical, {count}"
    _points(ax, distance, gamma, lags.pairs, color="0.35", label=words)
    # finest near 0, where the curve bends most
    h = 1.04 * distance.max() * np.linspace(0.0, 1.0, 301)[1:] ** 2
    noise = _working_noise(source, lags.rows)
    curve = semivariance(model, h) + noise
    more = " and noise of values" if noise else ""
    ax.plot(h, curve, color=BLUE, linewidth=2, label=f"fitted {_family(model)} model{more}")
    top, sill = max(gamma.max(), curve.max()), model.nugget + model.largest_variance + noise
    if sill <= 1.3 * top:
        words = f"variance + nugget{' + noise' if noise else ''}"
        ax.axhline(sill, color=BLUE, linewidth=1, linestyle=":", label=words)
        top = max(top, sill)
    if envelope:
        ends = variogram_envelope(source, lags, draws=envelope, level=level, seed=seed)
        words = f"{100 * level:g} % of {envelope} simulations, at each distance"
        axes.band(ax, distance, *ends, words)
        # a band may be several times higher than the points
        top = max(top, min(float(ends[1].max()), 2 * top))
    ax.set(xlim=(0, h[-1]), ylim=(0, 1.08 * top))
    along = "distance" if model.anisotropy is None else "distance along the longest range"
    up = label("semivariance", squared_unit(source.gaussian.observations))
    if model.response is not None and not model.response.of_values:
        up = "semivariance of working values"
    return finish(ax, "Semivariogram", label(along, observations.unit), up, loc="best")


def _working_noise(fit, rows):
    """Return the mean error variance of the working values of a response; 0 without one."""
    if fit.model.response is None:
        return 0.0
    return float(np.mean(fit.gaussian.observations.error_variance[rows]))


def variograms(
    source: Fit | Observations | Variogram,
    *,
    bins: int | None = None,
    envelope: int = 199,
    level: float = 0.95,
    ax: Panels | None = None,
    seed: int = 0,
) -> AxesArray:
    """Draw the semivariogram of each of several variables, and the cross-variogram of each two.

    The panels form a triangle; of more than four variables those of single variables are drawn
    only. Arguments as of `variogram`.

    Parameters
    ----------
    source : Fit, Observations or Variogram
        Of several variables.
    bins : int, optional
    envelope : int
        Number of fields to simulate for the bands of a fit; 0 for no bands.
    level : float
    ax : sequence of matplotlib.axes.Axes, optional
        One for each panel.
    seed : int

    Returns
    -------
    ndarray of matplotlib.axes.Axes
        Of each variable, then of each two.

    Raises
    ------
    InvalidInput
        For one variable, and as of `variogram`.

    Examples
    --------
    >>> import geomxp as gx
    >>> panels = variograms(gx.datasets.load("meuse", values=("log(zinc)", "log(lead)")))
    >>> [ax.get_title() for ax in panels][-1]
    'Empirical cross-variogram of log(zinc) × log(lead)'
    """
    checked("source", source, Fit, Observations, Variogram)
    if isinstance(source, Variogram) and bins is not None:
        raise InvalidInput("`bins` are those of the Variogram: give them to gx.variogram.")
    if isinstance(source, Observations) and several_variables(source):
        source = estimate_variogram(source, bins=bins, seed=seed)
    if isinstance(source, Variogram) and source.counts:
        panels = _triangle(source.variable_pairs, tuple(source.counts), ax)
        for name, one in panels.items():
            _draw_variogram(one, source.of_pair(name), f" of {plain(name)}")
    elif isinstance(source, Fit) and several_variables(source.observations):
        labels = source.observations.variable_labels
        found = {name_of_pair(labels, *one[:2]): one for one in _lags_of_fit(source, bins, seed)}
        known = tuple(name for name, one in found.items() if one[3] is not None)
        panels = _triangle(known, tuple(found), ax)
        for name, one in panels.items():
            _draw_pair(one, source, found[name], envelope, level, seed)
    else:
        raise InvalidInput("there is one variable: draw geomxp.plots.variogram.")
    return np.array(list(panels.values()))


def _numbers_of_pair(labels, pair):
    """Return the numbers of one or two variables that are given by name, the smaller one first."""
    known = {}
    for i, j in combinations_with_replacement(range(len(labels)), 2):
        known |= dict.fromkeys([(name_of_pair(labels, i, j),), (labels[i], labels[j])], (i, j))
    found = known.get(tuple(pair), known.get(tuple(pair)[::-1]))
    if found is None:
        listed = few(labels, 8)
        raise InvalidInput(f"`pair` must be one or two of: {listed}. Got {pair!r:.80}.")
    return found


def _lags_of_fit(fit, bins, seed, only=None):
    """Return what `lags_of_variables` yields for a fit, a list."""
    observations = fit.observations
    if in_time(observations) is not None:
        raise InvalidInput(
            "a semivariogram of several variables and times cannot be drawn with its model: draw "
            "that of the observations."
        )
    most = SAMPLE_LOCATIONS // len(observations.variable_labels)
    bins = DEFAULT_BINS if bins is None else bins
    return list(lags_of_variables(observations, only, bins=bins, seed=seed, most=most))


def _triangle(known, names, ax):
    """Return the axes of each variogram of several variables, by name.

    `names` are of all variables, then of each two; those `known` have bins.
    """
    count = int(np.sqrt(2 * len(names)))
    if count > MOST_TRIANGLE_VARIABLES:
        known = [name for name in names[:count] if name in known]
    if ax is not None or count > MOST_TRIANGLE_VARIABLES:
        return dict(zip(known, panels_of(ax, len(known)), strict=True))
    figure = axes.new_figure(4.2 * count, 3.5 * count)
    places = sorted(combinations_with_replacement(range(count), 2), key=lambda two: two[0] < two[1])
    where = dict(zip(names, places, strict=True))
    return {
        name: figure.add_subplot(count, count, where[name][1] * count + where[name][0] + 1)
        for name in known
    }


def _draw_pair(ax, fit, found, envelope, level, seed):
    """Draw the variogram of one variable, or of two, with that of the model."""
    i, j, total, lags = found
    observations, residuals = fit.observations, trend_residuals(fit)
    name = name_of_pair(observations.variable_labels, i, j)
    if lags is None:
        raise InvalidInput(
            f"a variogram needs at least {LEAST_COMMON_LOCATIONS} (common) locations. Got {total} "
            f"of {name}."
        )
    distance, others = lags.distance, None if i == j else residuals[lags.others]
    gamma = lags.semivariances(residuals[lags.rows], others)
    words = f"empirical, {in_words(len(lags.rows), total, observations.duplicate_inputs)}"
    _points(ax, distance, gamma, lags.pairs, color="0.35", label=words)
    if fit.model.variables > 1 and getattr(fit.model, "anisotropy", None) is None:
        h = 1.04 * distance.max() * np.linspace(0.0, 1.0, 301)[1:] ** 2
        curve = semivariance_between(fit.model, h, i, j)
    else:
        # the mean over all directions
        h, curve = distance, lags.semivariances_of(fit.model, fit.gaussian.observations.inputs)
    ax.plot(h, curve, color=BLUE, linewidth=2, label="fitted model")
    ends = np.concatenate((gamma, curve))
    if envelope:
        words = f"{100 * level:g} % of {envelope} simulations, at each distance"
        bounds = variogram_envelope(fit, lags, draws=envelope, level=level, seed=seed)
        axes.band(ax, distance, *bounds, words)
        ends = np.concatenate((ends, *bounds))
    low, high = min(ends.min(), 0.0), max(ends.max(), 0.0)
    ax.set(xlim=(0, 1.04 * distance.max()), ylim=(1.08 * low, 1.08 * high or 1.0))
    if low < 0:
        axes.zero_line(ax)
    title = f"{'Semivariogram' if i == j else 'Cross-variogram'} of {plain(name)}"
    up = label("semivariance", _squared(observations.value_unit, name, i != j))
    return finish(ax, title, label("distance", observations.unit), up, loc="best")


def _squared(unit, name, cross):
    """Return the unit of the semivariances of a variable, or of two."""
    if unit:
        return f"({unit})²"
    return f"units of {name}" if cross else f"squared units of {name}"


def _draw_in_time(ax, fit, lags):
    """Draw points of each lag in time and a line through the model's means in the same bins."""
    observations, top = fit.observations, 0.0
    gamma = lags.semivariances(trend_residuals(fit)[lags.rows])
    fitted = lags.semivariances_of(fit.model, fit.gaussian.observations.inputs)
    groups = np.unique(lags.group)
    for group, look in zip(groups, _looks_in_time(len(groups)), strict=True):
        own = np.flatnonzero(lags.group == group)
        own = own[lags.pairs[own] >= min(LEAST_PAIRS, lags.pairs[own].max())]
        ax.plot(lags.distance[own], fitted[own], linewidth=2, **look)
        name = _lag_in_words(lags.lag[own[0]], observations.time_unit)
        _points(ax, lags.distance[own], gamma[own], lags.pairs[own], label=name, **look)
        top = max(top, float(gamma[own].max()), float(fitted[own].max()))
    ax.set(xlim=(0, 1.04 * lags.distance.max()), ylim=(0, 1.08 * (top or 1.0)))
    count = in_words(len(lags.rows), len(observations), True)
    title = f"Semivariogram, {count}; lines: the fitted model"
    up = label("semivariance", squared_unit(fit.gaussian.observations))
    return finish(ax, title, label("distance", observations.unit), up, loc="best")


def correlations(fit: Fit, *, level: float = 0.95, ax: Axes | None = None) -> Axes:
    """Draw the correlations of the variables at one location, with their intervals.

    Parameters
    ----------
    fit : Fit
        Of several variables; see `Fit.correlation_table`.
    level : float
        Of the intervals.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InvalidInput
        If the model is not of several variables.

    Examples
    --------
    >>> import geomxp as gx
    >>> metals = gx.datasets.load("meuse", values=("log(zinc)", "log(lead)"))
    >>> fixed = {"smoothness_1": 0.5, "smoothness_2": 0.5}
    >>> ax = correlations(gx.fit(metals, family="coregionalization", fixed=fixed))
    """
    table = checked("fit", fit, Fit).correlation_table(level)
    labels = [plain(name) for name in fit.observations.variable_labels]
    p = len(labels)
    ax = axes_of(ax, max(4.0, 1.05 * p + 1.6), max(3.0, 0.75 * p + 1.2))
    # rows are the variables from the second on, columns those to the last but one
    known = np.full((p - 1, p - 1), np.nan)
    pairs = list(combinations(range(p), 2))
    for (i, j), row in zip(pairs, table.itertuples(), strict=True):
        known[j - 1, i] = row.estimate
    drawn = ax.imshow(known, cmap=axes.RESIDUALS_COLOUR_MAP, vmin=-1.0, vmax=1.0, aspect="auto")
    width = axes.inches(ax)[0] / (p - 1)
    # an interval has at most 14 characters
    size = float(np.clip(72 * width / (0.6 * 15), 5.0, 10.0))
    for (i, j), row in zip(pairs, table.itertuples(), strict=True):
        words = f"{row.estimate:.2f}"
        if np.isfinite(row.lower):
            words += f"\n{row.lower:.2f} to {row.upper:.2f}"
        colour = "white" if abs(row.estimate) > 0.6 else "black"
        ax.text(i, j - 1, words, ha="center", va="center", fontsize=size, color=colour)
    ax.set_xticks(range(p - 1), labels[:-1])
    ax.set_yticks(range(p - 1), labels[1:])
    axes.colour_bar(ax, drawn, "correlation")
    words = f"Correlations at one location, with {100 * level:g} % intervals"
    return finish(ax, words if table.lower.notna().any() else words.partition(",")[0])


def _lag_in_words(lag, unit):
    """Return a lag in time with its unit.

    >>> _lag_in_words(2.0, "day"), _lag_in_words(0.0, "day"), _lag_in_words(1.5, "")
    ('lag 2 days', 'same time', 'lag 1.5')
    """
    if lag == 0:
        return "same time"
    return f"lag {lag:.3g}" + (f" {unit}{'' if lag == 1 else 's'}" if unit else "")


def _looks_in_time(count):
    """Return a colour for each of some lags, from dark for the first to light."""
    from matplotlib import colormaps

    return [{"color": colormaps["viridis"](0.9 * k / max(count - 1, 1))} for k in range(count)]


def _draw_variogram(ax, found, of=""):
    """Draw an empirical semivariogram: both estimates, or one line per direction or lag."""
    words, top = found.compared, 0.0
    parts = [
        (f"{one:g}° ± {found.tolerance:g}°", found.of_direction(one), look)
        for one, look in zip(found.directions, _looks(len(found.directions)), strict=True)
    ] or [
        (_lag_in_words(one, found.time_unit), found.of_lag(one), look)
        for one, look in zip(found.lags, _looks_in_time(len(found.lags)), strict=True)
    ]
    for name, one, look in parts:
        enough = one.pairs >= min(LEAST_PAIRS, one.pairs.max())
        distance, gamma = one.distance[enough], one.semivariance[enough]
        ax.plot(distance, gamma, linewidth=1.2, **look)
        _points(ax, distance, gamma, one.pairs[enough], label=name, **look)
        top = max(top, float(gamma.max()))
    if not parts:
        _points(ax, found.distance, found.semivariance, found.pairs, color=BLUE, label=words)
        if not found.cross:
            ax.plot(found.distance, found.robust, label="robust to outliers",
                    color=VERMILION, linewidth=1.2, marker="D", markersize=4)  # fmt: skip
        top = max(found.semivariance.max(), 0.0 if found.cross else found.robust.max())
    low = min(float(found.semivariance.min()), 0.0)
    if low < 0:
        axes.zero_line(ax)
    top = 1.08 * (top or (0.0 if low else 1.0))
    ax.set(xlim=(0, 1.04 * found.distance.max()), ylim=(1.08 * low, top))
    squared = _squared(found.value_unit, found.value_name, found.cross)
    title = f"Empirical {'cross-variogram' if found.cross else 'semivariogram'}{of}"
    if found.trend not in ("zero", "constant"):
        trend = f"{found.trend} trend" if found.trend in TRENDS else f"trend {found.trend}"
        title += f", residuals of {plain(trend)}"
    labels = label("distance", found.unit), label("semivariance", squared)
    return finish(ax, title, *labels, loc="best")


def _points(ax, distance, gamma, pairs, **look):
    """Draw points whose area grows with their number of pairs."""
    area = (10 + 70 * pairs / pairs.max()) * axes.scale_of(ax) ** 2
    ax.scatter(distance, gamma, s=area, zorder=3, **look)


def _looks(count):
    """Return a colour for each of some directions; 0 and 180 degrees are alike."""
    if count <= len(DIRECTION_COLOURS):
        return [{"color": colour} for colour in DIRECTION_COLOURS[:count]]
    from matplotlib import colormaps

    return [{"color": colormaps["twilight_shifted"](k / count)} for k in range(count)]


def _family(model):
    return "Matérn" if model.family == "matern" else model.family


# Profiles of the likelihood in one parameter, and contours in two.


HALF_CHI_SQUARE_QUANTILE = 1.92
"""Half the 0.95 quantile of chi-square with one degree of freedom."""

LINEAR_AXIS_PARAMETERS = ("nugget", "microscale")
"""Parameters with linear axes in contours, because they may be 0."""


def _is_plain(fit, name):
    """Whether a parameter is searched as it is, not in logarithms: it may be negative."""
    return {p.name: p for p in fit.model.table}[name].transform == "identity"


def profile(fit: Fit, name: str, *, ax: Axes | None = None, points: int = 9) -> Axes:
    """Draw the profile log-likelihood of an estimated parameter.

    The dashed line lies 1.92 below the maximum: values above it are a 95 % confidence interval.

    Parameters
    ----------
    fit : Fit
    name : str
        One of `fit.free`.
    ax : matplotlib.axes.Axes, optional
    points : int
        Number of values at which the other parameters are estimated again, with about 25
        evaluations of the likelihood each.

    Returns
    -------
    matplotlib.axes.Axes
    """
    checked("fit", fit, Fit)
    ax = axes_of(ax)
    values, heights = profile_likelihood(fit, name, points=points)
    words, top = titles(fit.model, fit.observations)[name], fit.log_likelihood
    ax.plot(*_through(values, heights, _is_plain(fit, name)), color=BLUE, linewidth=2)
    ax.plot(values, heights, "o", color=BLUE, markersize=5)
    level = top - HALF_CHI_SQUARE_QUANTILE
    ax.axhline(level, color="0.35", linestyle="--", linewidth=1, label="maximum − 1.92 (95 %)")
    estimate = fit.model.parameters()[name]
    ax.axvline(estimate, color="0.7", linewidth=0.8, zorder=0)
    axes.estimate(ax, estimate, top, f"estimate, {estimate:.4g}")
    # values far below the level do not matter
    bottom = min(max(float(heights.min()), top - 3 * HALF_CHI_SQUARE_QUANTILE), level)
    room = max(top, float(heights.max())) - bottom
    ax.set(ylim=(bottom - 0.1 * room, bottom + 1.1 * room))
    if not _is_plain(fit, name):
        axes.logarithmic(ax.xaxis, values[0], values[-1])
    along = axes.parameter_label(name, fit.gaussian.observations, fit.model)
    up = "profile log-likelihood" + (" (REML)" if fit.reml else "")
    return finish(ax, f"Profile of the {words}", along, up, loc="best")


def profiles(fit: Fit, *, points: int = 9, ax: Panels | None = None) -> AxesArray:
    """Draw the profile log-likelihoods of all estimated parameters.

    Parameters
    ----------
    fit : Fit
    points : int
        Points of each profile; see `profile`.
    ax : sequence of matplotlib.axes.Axes, optional
        One for each of `fit.free`.

    Returns
    -------
    (k,) ndarray of matplotlib.axes.Axes
        In the order of `fit.free`.

    Raises
    ------
    InvalidInput
        If no parameter was estimated.
    """
    if not checked("fit", fit, Fit).free:
        raise InvalidInput("no parameter of the fit was estimated: there is no profile to draw.")
    panels = panels_of(ax, len(fit.free))
    for one, name in zip(panels, fit.free, strict=True):
        profile(fit, name, points=points, ax=one)
    return panels


def contours(
    fit: Fit,
    first: str,
    second: str,
    *,
    levels: Sequence[float] = CONTOUR_LEVELS,
    rays: int = 24,
    ax: Axes | None = None,
) -> Axes:
    """Draw contours of the profile log-likelihood of two parameters: joint confidence regions.

    A region of level q holds all pairs of values that a likelihood-ratio test of both, with
    chi-square of two degrees of freedom, does not reject at 1 - q. The dashed ellipse follows from
    the standard errors for the largest level; if it is far from the contour, do not rely on them.
    For variance and range the dotted line is the ridge of constant σ²/a^(2ν), which data in a
    bounded region determine (Zhang 2004).

    Parameters
    ----------
    fit : Fit
    first, second : str
        Two of `fit.free`, for the horizontal and the vertical axis.
    levels : sequence of float
    rays : int
        Number of directions, with about eight gradients of the likelihood each.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InvalidInput
        If the parameters are not two different estimated ones.
    """
    checked("fit", fit, Fit)
    ax = axes_of(ax)
    found = profile_contours(fit, first, second, levels=levels, rays=rays)
    shades = np.linspace(0.35, 1.0, len(found.levels))[::-1]
    for level, curve, is_open, shade in zip(
        found.levels, found.curves, found.open, shades, strict=True
    ):
        words = f"{100 * level:g} %" + (", open" if is_open else "")
        ax.plot(*curve.T, color=BLUE, alpha=shade, linewidth=2, label=words)
    reach = [found.curves.reshape(-1, 2)]
    if fit.information is not None:
        ellipse = wald_ellipse(fit, first, second, found.levels[-1])
        words = f"{100 * found.levels[-1]:g} %, Wald"
        ax.plot(*ellipse.T, color="0.35", linestyle="--", linewidth=1.2, label=words)
        reach.append(ellipse)
    values = fit.model.parameters()
    axes.estimate(ax, values[first], values[second], "estimate")
    plain = [name in LINEAR_AXIS_PARAMETERS or _is_plain(fit, name) for name in (first, second)]
    _scale(ax, plain, np.concatenate(reach))
    if {first, second} == {"variance", "range"} and np.isfinite(fit.model.infill_exponent):
        _ridge(ax, fit.model, first)
    observations, words = fit.gaussian.observations, titles(fit.model, fit.observations)
    labels = [axes.parameter_label(name, observations, fit.model) for name in (first, second)]
    both = f"{words[first]} and {words[second]}"
    title = f"Profile likelihood of {both}" + (" (REML)" if fit.reml else "")
    return finish(ax, title, *labels, loc="best")


def _scale(ax, plain, points):
    """Set the scale and the ends of each axis."""
    low, high = np.nanmin(points, axis=0), np.nanmax(points, axis=0)
    for axis, linear, a, b in zip((ax.xaxis, ax.yaxis), plain, low, high, strict=True):
        if linear:
            margin = 0.06 * (b - a)
            ends = (a - margin, b + margin)
        else:
            factor = (b / a) ** 0.06
            ends = (a / factor, b * factor)
            axes.logarithmic(axis, a, b)
        (ax.set_xlim if axis is ax.xaxis else ax.set_ylim)(*ends)


def _ridge(ax, model, first):
    """Draw σ² = κ a^k with κ of the estimate; k is 2ν for a Matérn model."""
    ends = ax.get_xlim() if first == "range" else ax.get_ylim()
    a = np.geomspace(*ends, 101)
    variance = model.variance * (a / model.range) ** model.infill_exponent
    pair = (a, variance) if first == "range" else (variance, a)
    limits = ax.get_xlim(), ax.get_ylim()
    words = "ridge, σ²/a²ᵛ" if model.family == "matern" else "ridge"
    ax.plot(*pair, color=VERMILION, linestyle=":", linewidth=1.5, label=words)
    ax.set(xlim=limits[0], ylim=limits[1])


def _through(values, heights, plain):
    """Return points of a smooth curve through a profile, in logarithms unless `plain`."""
    from scipy.interpolate import Akima1DInterpolator

    x = values if plain else np.log(values)
    if len(x) < 3:
        return values, heights
    fine = np.linspace(x[0], x[-1], 201)
    curve = Akima1DInterpolator(x, heights, method="makima")(fine)
    return (fine if plain else np.exp(fine)), curve
