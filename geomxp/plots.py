"""Pictures of observations and fits. Each function draws on given axes, or makes a figure.

A figure made here belongs to no window and no backend; matplotlib's global state is never
touched. `ax.figure` shows it in a notebook, `ax.figure.savefig(path)` writes it.
"""

import numpy as np

from . import drawing
from .drawing import label, plain
from .errors import InvalidInput
from .inference.profile import profile_likelihood
from .inference.raster import CELLS, predict_raster
from .inference.variogram import PLACES, empirical_variogram, semivariance, trend_residuals

VALUES, ERRORS, RESIDUALS = "viridis", "cividis", "PuOr"
"""Colour maps that the colour-blind can read; that of residuals is white at 0."""

HALF_QUANTILE = 1.92
"""Half the 0.95 quantile of chi-square with one degree of freedom."""


def values_map(observations, *, ax=None):
    """Draw the values at their places; in one dimension against the coordinate.

    Parameters
    ----------
    observations : Observations
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes
    """
    ax, name = drawing.axes(ax), plain(observations.value_name)
    if observations.dimensions == 1:
        drawing.scatter_line(ax, observations, observations.values, name)
    else:
        drawing.scatter_map(ax, observations, observations.values, name, cmap=VALUES)
    ax.set_title(f"Values{drawing.which_coordinates(observations)}")
    return ax


def residuals_map(fit, *, ax=None):
    """Draw what the trend leaves of the values, z - Xβ̂, at their places.

    Parameters
    ----------
    fit : Fit
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes
    """
    seen, residuals = fit.observations, trend_residuals(fit)
    ax, name = drawing.axes(ax), f"{plain(seen.value_name)} less its trend"
    if seen.dimensions == 1:
        drawing.scatter_line(ax, seen, residuals, name)
        ax.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)
    else:
        largest = float(np.abs(residuals).max()) or 1.0
        # the largest come last, on top of the others
        order = np.argsort(np.abs(residuals), kind="stable")
        drawing.scatter_map(
            ax, seen, residuals, name, order=order, cmap=RESIDUALS, vmin=-largest, vmax=largest
        )
    ax.set_title(f"Residuals, {fit.trend.kind} trend{drawing.which_coordinates(seen)}")
    return ax


def variogram(fit, *, bins=15, ax=None, seed=0):
    """Draw the empirical semivariogram of the trend's residuals, and the fitted model's.

    γ(h) = τ² + σ²(1 - ρ(h)). The area of a point grows with its number of pairs. The model was
    fitted by maximum likelihood to the values, not to the points.

    Parameters
    ----------
    fit : Fit
    bins : int
    ax : matplotlib.axes.Axes, optional
    seed : int
        Of the subsample that is taken of more than 2,000 places.

    Returns
    -------
    matplotlib.axes.Axes
    """
    seen, model = fit.observations, fit.model
    distance, gamma, pairs = empirical_variogram(
        seen, trend_residuals(fit), model=model, bins=bins, seed=seed
    )
    ax, n = drawing.axes(ax), len(seen)
    places = f"a random {PLACES:,} of {n:,} places" if n > PLACES else f"{n:,} places"
    area = 10 + 70 * pairs / pairs.max()
    ax.scatter(distance, gamma, s=area, color="0.35", label=f"empirical, {places}")
    # finest where the curve bends most, close to 0
    h = 1.04 * distance.max() * np.linspace(0.0, 1.0, 301)[1:] ** 2
    curve = semivariance(model, h)
    ax.plot(h, curve, color="C0", linewidth=2, label="fitted Matérn model")
    top, sill = max(gamma.max(), curve.max()), model.nugget + model.variance
    if sill <= 1.3 * top:
        ax.axhline(sill, color="C0", linewidth=1, linestyle=":", label="variance + nugget")
        top = max(top, sill)
    ax.set(xlim=(0, h[-1]), ylim=(0, 1.08 * top), title="Semivariogram")
    along = "distance" if model.anisotropy is None else "distance along the longest range"
    ax.set_xlabel(label(along, seen.unit))
    ax.set_ylabel(label("semivariance", drawing.unit_of("variance", seen)))
    ax.legend(fontsize="small")
    drawing.uncluttered(ax)
    return ax


def profile(fit, name, *, ax=None, points=9):
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
    values, heights = profile_likelihood(fit, name, points=points)
    ax, words, top = drawing.axes(ax), name.replace("_", " "), fit.log_likelihood
    ax.plot(*_through(values, heights, name), color="C0", linewidth=2)
    ax.plot(values, heights, "o", color="C0", markersize=5)
    level = top - HALF_QUANTILE
    ax.axhline(level, color="0.35", linestyle="--", linewidth=1, label="maximum − 1.92 (95 %)")
    estimate = fit.model.parameters()[name]
    ax.axvline(estimate, color="0.7", linewidth=0.8, zorder=0)
    ax.plot(estimate, top, "D", color="C3", markersize=7, label=f"estimate, {estimate:.4g}")
    # far below the level there is nothing to read
    bottom = min(max(float(heights.min()), top - 3 * HALF_QUANTILE), level)
    room = top - bottom
    ax.set(ylim=(bottom - 0.1 * room, top + 0.1 * room), title=f"Profile of the {words}")
    if name != "anisotropy_angle":
        drawing.logarithmic(ax.xaxis, values)
    ax.set_xlabel(label(words, drawing.unit_of(name, fit.observations)))
    ax.set_ylabel("profile log-likelihood" + (" (REML)" if fit.reml else ""))
    ax.legend(fontsize="small")
    drawing.uncluttered(ax)
    return ax


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


def prediction_map(fit, *, cells=CELLS, ax=None, raster=None):
    """Draw the kriging mean over the bounding box of the observations, and their places.

    Parameters
    ----------
    fit : Fit
    cells : int
        Along the longer side.
    ax : matplotlib.axes.Axes, optional
    raster : Raster, optional
        What `geomxp.inference.raster.predict_raster` returned, where both maps are drawn.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InvalidInput
        If the places do not spread over a plane, or if the trend needs covariates.
    """
    raster = predict_raster(fit, cells=cells) if raster is None else raster
    ax, name = drawing.axes(ax), plain(fit.observations.value_name)
    drawing.raster_map(ax, fit.observations, raster.mean, raster.extent, name, cmap=VALUES)
    ax.set_title("Kriging mean")
    return ax


def prediction_error_map(fit, *, cells=CELLS, ax=None, raster=None):
    """Draw the standard error of the kriging mean; parameters as of `prediction_map`."""
    raster = predict_raster(fit, cells=cells) if raster is None else raster
    ax, name = drawing.axes(ax), f"standard error of {plain(fit.observations.value_name)}"
    drawing.raster_map(
        ax, fit.observations, raster.standard_error, raster.extent, name, cmap=ERRORS
    )
    ax.set_title("Kriging standard error")
    return ax


def overview(fit):
    """Draw four pictures of a fit: values, kriging mean, semivariogram, a profile.

    Where there can be no map of predictions, or no profile, stand the trend's residuals.

    Parameters
    ----------
    fit : Fit

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure = drawing.new_figure(11.0, 8.5)
    (first, second), (third, fourth) = figure.subplots(2, 2)
    values_map(fit.observations, ax=first)
    try:
        prediction_map(fit, ax=second)
    except InvalidInput:
        residuals_map(fit, ax=second)
    variogram(fit, ax=third)
    if fit.free:
        profile(fit, "range" if "range" in fit.free else fit.free[0], ax=fourth)
    else:
        residuals_map(fit, ax=fourth)
    return figure
