"""What the likelihood says of the parameters: profiles of one, contours of two."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..errors import InvalidInput
from ..inference.estimate import Fit
from ..inference.profile import profile_likelihood
from ..inference.profile_contours import LEVELS, profile_contours, wald_ellipse
from .axes import (
    BLUE,
    VERMILION,
    axes_of,
    checked,
    finish,
    legend,
    logarithmic,
    panels_of,
    parameter_label,
)

if TYPE_CHECKING:
    from ..annotations import Axes, AxesArray, Panels, Sequence

HALF_QUANTILE = 1.92
"""Half the 0.95 quantile of chi-square with one degree of freedom."""

LINEAR = ("anisotropy_angle", "nugget")
"""Parameters whose contours may pass 0."""


def profile(fit: Fit, name: str, *, ax: Axes | None = None, points: int = 9) -> Axes:
    """Draw the profile log-likelihood of an estimated parameter.

    The dashed line lies 1.92 below the maximum: what is above it is a 95 % confidence interval.

    Parameters
    ----------
    fit : Fit
    name : str
        One of `fit.free`.
    ax : matplotlib.axes.Axes, optional
    points : int
        Values at which the other parameters are estimated anew, with some 25 evaluations of the
        likelihood each.

    Returns
    -------
    matplotlib.axes.Axes
    """
    checked("fit", fit, Fit)
    ax = axes_of(ax)
    values, heights = profile_likelihood(fit, name, points=points)
    words, top = name.replace("_", " "), fit.log_likelihood
    ax.plot(*_through(values, heights, name), color=BLUE, linewidth=2)
    ax.plot(values, heights, "o", color=BLUE, markersize=5)
    level = top - HALF_QUANTILE
    ax.axhline(level, color="0.35", linestyle="--", linewidth=1, label="maximum − 1.92 (95 %)")
    estimate = fit.model.parameters()[name]
    ax.axvline(estimate, color="0.7", linewidth=0.8, zorder=0)
    ax.plot(estimate, top, "D", color=VERMILION, markersize=7, label=f"estimate, {estimate:.4g}")
    # far below the level there is nothing to read
    bottom = min(max(float(heights.min()), top - 3 * HALF_QUANTILE), level)
    room = max(top, float(heights.max())) - bottom
    ax.set(ylim=(bottom - 0.1 * room, bottom + 1.1 * room), title=f"Profile of the {words}")
    if name != "anisotropy_angle":
        logarithmic(ax.xaxis, values[0], values[-1])
    ax.set_xlabel(parameter_label(name, fit.observations))
    ax.set_ylabel("profile log-likelihood" + (" (REML)" if fit.reml else ""))
    legend(ax)
    finish(ax)
    return ax


def profiles(fit: Fit, *, points: int = 9, ax: Panels | None = None) -> AxesArray:
    """Draw the profile log-likelihoods of all estimated parameters.

    Parameters
    ----------
    fit : Fit
    points : int
        Of each; see `profile`.
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
    levels: Sequence[float] = LEVELS,
    rays: int = 24,
    ax: Axes | None = None,
) -> Axes:
    """Draw where two parameters may be together: contours of their profile log-likelihood.

    A region of level q holds all pairs of values that a likelihood-ratio test of both at once, with
    chi-square of two degrees of freedom, does not reject at 1 - q. The dashed ellipse is what the
    standard errors alone say for the largest level: where it is far from the contour, they are not
    to be believed. Of variance and range the dotted line is the ridge on which σ²a^(-2ν), which is
    what data in a bounded region tell (Zhang 2004), is that of the estimate.

    Parameters
    ----------
    fit : Fit
    first, second : str
        Two of `fit.free`, for the horizontal and the vertical axis.
    levels : sequence of float
    rays : int
        Directions in which contours are found; some eight gradients of the likelihood each.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InvalidInput
        If the parameters are not two that were estimated.
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
    ax.plot(values[first], values[second], "D", color=VERMILION, markersize=7, label="estimate")
    _scale(ax, (first, second), np.concatenate(reach))
    if {first, second} == {"variance", "range"}:
        _ridge(ax, fit.model, first)
    ax.set_xlabel(parameter_label(first, fit.observations))
    ax.set_ylabel(parameter_label(second, fit.observations))
    both = f"{first} and {second}".replace("_", " ")
    ax.set_title(f"Profile likelihood of {both}" + (" (REML)" if fit.reml else ""))
    legend(ax)
    finish(ax)
    return ax


def _scale(ax, names, points):
    """Give each axis its scale and its ends."""
    low, high = np.nanmin(points, axis=0), np.nanmax(points, axis=0)
    for axis, name, a, b in zip((ax.xaxis, ax.yaxis), names, low, high, strict=True):
        if name in LINEAR:
            margin = 0.06 * (b - a)
            ends = (a - margin, b + margin)
        else:
            factor = (b / a) ** 0.06
            ends = (a / factor, b * factor)
            logarithmic(axis, a, b)
        (ax.set_xlim if axis is ax.xaxis else ax.set_ylim)(*ends)


def _ridge(ax, model, first):
    """Draw σ² = κ a^(2ν) with κ of the estimate, from edge to edge."""
    ends = ax.get_xlim() if first == "range" else ax.get_ylim()
    a = np.geomspace(*ends, 101)
    variance = model.variance * (a / model.range) ** (2 * model.smoothness)
    pair = (a, variance) if first == "range" else (variance, a)
    limits = ax.get_xlim(), ax.get_ylim()
    ax.plot(*pair, color=VERMILION, linestyle=":", linewidth=1.5, label="ridge, σ²/a²ᵛ")
    ax.set(xlim=limits[0], ylim=limits[1])


def _through(values, heights, name):
    """Return points of a smooth curve through a profile, that of an angle in its own scale."""
    from scipy.interpolate import Akima1DInterpolator

    angle = name == "anisotropy_angle"
    x = values if angle else np.log(values)
    if len(x) < 3:
        return values, heights
    fine = np.linspace(x[0], x[-1], 201)
    curve = Akima1DInterpolator(x, heights, method="makima")(fine)
    return (fine if angle else np.exp(fine)), curve
