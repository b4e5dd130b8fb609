"""Do predictions err as they say? Residuals, their quantiles and places, PIT, coverage.

Bands are those of independent errors, each point by itself. What leave-one-out leaves to neighbours
is correlated: for six models of 155 and 600 places the right bands were 0.6 times as wide in the
middle of normal quantiles and as wide at their ends, 0.83 to 1.05 times as wide for PIT, and 1.0 to
1.28 times as wide for coverage.
"""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InvalidInput
from ..inference.estimate import Fit, z_value
from ..validation.validate import Validation, leave_one_out
from .axes import (
    BLUE,
    SKY,
    VERMILION,
    axes_of,
    checked,
    dots,
    finish,
    label,
    legend,
    panels_of,
    plain,
)
from .maps import signed_map, titled

if TYPE_CHECKING:
    from ..annotations import Axes, AxesArray, Panels

EXTREME = 4.0
"""Standardised errors of this size and more have the last colour of a map."""


def residuals(
    source: Fit | Validation, *, level: float = 0.95, ax: Panels | None = None
) -> AxesArray:
    """Draw standardised errors three times: against the prediction, by quantiles, on a map.

    Parameters
    ----------
    source : Fit or Validation
        Of a fit, its leave-one-out predictions.
    level : float
        Of the lines and of the band.
    ax : sequence of three matplotlib.axes.Axes, optional

    Returns
    -------
    (3,) ndarray of matplotlib.axes.Axes
    """
    panels = panels_of(ax, 3, columns=3, width=4.4, height=3.7)
    validation = _validation(source)
    residuals_against_prediction(validation, level=level, ax=panels[0])
    normal_quantiles(validation, level=level, ax=panels[1])
    standardised_residuals_map(validation, ax=panels[2])
    return panels


def residuals_against_prediction(
    source: Fit | Validation, *, level: float = 0.95, ax: Axes | None = None
) -> Axes:
    """Draw standardised errors, (observed - predicted)/its standard deviation, against predictions.

    Without a pattern, and with a part `level` between the dashed lines, they are those of a good
    model.

    Parameters
    ----------
    source : Fit or Validation
    level : float
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes
    """
    half, ax, validation = z_value(level), axes_of(ax), _validation(source)
    z, name = validation.standardised_errors, plain(validation.observations.value_name)
    ax.scatter(validation.mean, z, s=dots(len(z), ax), color=BLUE, alpha=0.7, linewidths=0)
    ax.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)
    for end in (-half, half):
        words = f"±{half:.3g} ({100 * level:g} %)" if end > 0 else None
        ax.axhline(end, color="0.35", linestyle="--", linewidth=1, label=words)
    # room for the legend above the dots
    reach = 1.08 * max(float(np.abs(z).max()), half)
    ax.set(ylim=(-reach, 1.25 * reach), title=f"Residuals, {_kind(validation)}")
    ax.set_xlabel(f"prediction of {name}")
    ax.set_ylabel("standardised error")
    legend(ax, loc="upper right")
    finish(ax)
    return ax


def normal_quantiles(
    source: Fit | Validation, *, level: float = 0.95, ax: Axes | None = None
) -> Axes:
    """Draw the standardised errors against normal quantiles, with the band of independent ones.

    The i-th smallest of n uniform numbers has the Beta distribution of i and n + 1 - i; the band
    holds each point by itself with probability `level`, so that some of many lie outside.

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
    ax, validation = axes_of(ax), _validation(source)
    z = np.sort(validation.standardised_errors)
    n, rank = len(z), np.arange(1, len(z) + 1)
    expected = ndtri((rank - 0.5) / n)
    ends = [
        ndtri(beta.ppf(share, rank, n + 1 - rank)) for share in (0.5 - level / 2, 0.5 + level / 2)
    ]
    words = f"{100 * level:g} %, each point by itself"
    ax.fill_between(expected, *ends, color=SKY, alpha=0.3, linewidth=0, label=words)
    ax.axline((0.0, 0.0), slope=1.0, color="0.35", linewidth=1)
    ax.scatter(expected, z, s=dots(n, ax), color=BLUE, linewidths=0, zorder=3)
    ax.set(xlabel="normal quantile", ylabel="standardised error")
    ax.set_title(f"Normal quantiles, {_kind(validation)}")
    legend(ax, loc="upper left")
    finish(ax)
    return ax


def standardised_residuals_map(source: Fit | Validation, *, ax: Axes | None = None) -> Axes:
    """Draw the standardised errors at their places: neighbours alike are what a model missed.

    Parameters
    ----------
    source : Fit or Validation
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes
    """
    ax, validation = axes_of(ax), _validation(source)
    seen, z = validation.observations, validation.standardised_errors
    signed_map(seen, z, "standardised error", most=EXTREME, ax=ax)
    return titled(ax, seen, "Standardised errors")


def pit(
    source: Fit | Validation, *, bins: int = 10, level: float = 0.95, ax: Axes | None = None
) -> Axes:
    """Draw a histogram of the probability integral transforms Φ((observed - predicted)/sd).

    Flat where predictions are honest; high at both ends where their variances are too small, in the
    middle where they are too large. The band is binomial, for each bar by itself.

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
    ax, validation = axes_of(ax), _validation(source)
    counts, edges = np.histogram(validation.pit(), bins, (0.0, 1.0))
    n = len(validation)
    low, high = binom.ppf((0.5 - level / 2, 0.5 + level / 2), n, 1 / bins)
    ax.bar(edges[:-1], counts, 1 / bins, align="edge", color=SKY, edgecolor="white")
    words = f"{100 * level:g} % of each bar, where uniform"
    ax.axhspan(low, high, color="0.3", alpha=0.2, linewidth=0, label=words, zorder=2)
    ax.axhline(n / bins, color="0.2", linestyle="--", linewidth=1)
    ax.set(xlim=(0, 1), ylim=(0, 1.25 * max(counts.max(), high)))
    ax.set(xlabel="probability integral transform", ylabel=f"observations, {n:,} in all")
    ax.set_title(f"PIT, {_kind(validation)}")
    legend(ax, loc="upper center")
    finish(ax)
    return ax


def coverage(source: Fit | Validation, *, level: float = 0.95, ax: Axes | None = None) -> Axes:
    """Draw how many observations lie in their prediction intervals, against how many should.

    Below the diagonal intervals are too short. The band is binomial, for each point by itself.

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
    ax, validation = axes_of(ax, 5.0, 4.8), _validation(source)
    nominal = np.append(np.arange(5, 100, 5), 99) / 100
    sizes = np.sort(np.abs(validation.standardised_errors))
    n = len(sizes)
    inside = np.searchsorted(sizes, ndtri(0.5 + nominal / 2), side="right") / n
    fine = np.linspace(0.0, 1.0, 201)[1:-1]
    ends = [binom.ppf(share, n, fine) / n for share in (0.5 - level / 2, 0.5 + level / 2)]
    words = f"{100 * level:g} %, each point by itself"
    percent = 100 * fine
    ax.fill_between(percent, *(100 * end for end in ends), color=SKY, alpha=0.3, label=words, lw=0)
    ax.plot((0, 100), (0, 100), color="0.35", linewidth=1)
    ax.plot(100 * nominal, 100 * inside, "o-", color=BLUE, markersize=4, linewidth=1.2)
    at = int(np.flatnonzero(nominal == 0.95)[0])
    said = f"{100 * inside[at]:.1f} % of 95 %"
    ax.plot(95, 100 * inside[at], "D", color=VERMILION, markersize=6, label=said)
    ax.set(xlim=(0, 100), ylim=(0, 100), aspect="equal")
    ax.set(xlabel=label("nominal coverage", "%"), ylabel=label("empirical coverage", "%"))
    ax.set_title(f"Prediction intervals, {_kind(validation)}")
    legend(ax, loc="lower right")
    finish(ax)
    return ax


def _validation(source):
    """Return the validation given, or that of a fit by leave-one-out."""
    checked("source", source, Fit, Validation)
    return leave_one_out(source) if isinstance(source, Fit) else source


def _kind(validation):
    return plain(validation.kind)
