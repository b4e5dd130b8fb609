"""Maps: values, residuals and predictions at their places, in their true shape."""

from __future__ import annotations

from math import cos, radians
from typing import TYPE_CHECKING

import numpy as np

from ..data.observations import Observations
from ..estimation.result import Fit
from ..prediction.raster import CELLS, Raster, predict_raster
from ..prediction.variogram import trend_residuals
from .axes import (
    BLUE,
    ERRORS,
    RESIDUALS,
    VALUES,
    axes_of,
    characters,
    checked,
    colour_bar,
    dots,
    finish,
    inches,
    label,
    plain,
)

if TYPE_CHECKING:
    from .._typing import Axes, Floats

SLIM = 12.0
"""Regions so many times longer than wide are stretched, or nothing would be seen of them."""


def values_map(observations: Observations, *, ax: Axes | None = None) -> Axes:
    """Draw the values at their places; in one dimension against the coordinate.

    Parameters
    ----------
    observations : Observations
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes
    """
    checked("observations", observations, Observations)
    ax, name = axes_of(ax), plain(observations.value_name)
    if observations.dimensions == 1:
        _scatter_line(ax, observations, observations.values, name)
    else:
        _scatter_map(ax, observations, observations.values, name, cmap=VALUES)
    return titled(ax, observations, "Values")


def residuals_map(fit: Fit, *, ax: Axes | None = None) -> Axes:
    """Draw what the trend leaves of the values, z - Xβ̂, at their places.

    Parameters
    ----------
    fit : Fit
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes
    """
    seen, residuals = checked("fit", fit, Fit).observations, trend_residuals(fit)
    ax = signed_map(seen, residuals, f"{plain(seen.value_name)} less its trend", ax=ax)
    return titled(ax, seen, f"Residuals, {fit.trend.title}")


def signed_map(
    observations: Observations,
    numbers: Floats,
    name: str,
    *,
    most: float = np.inf,
    ax: Axes | None = None,
) -> Axes:
    """Draw numbers of both signs at the places of observations, in colours that are white at 0.

    Parameters
    ----------
    observations : Observations
    numbers : (n,) ndarray
    name : str
        Label of the colour bar.
    most : float
        Size from which on all have the last colour.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes
    """
    ax = axes_of(ax)
    if observations.dimensions == 1:
        _scatter_line(ax, observations, numbers, name)
        ax.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)
        return ax
    largest = float(np.abs(numbers).max()) or 1.0
    end = min(largest, most)
    # the largest come last, on top of the others
    order = np.argsort(np.abs(numbers), kind="stable")
    extend = "both" if largest > end else "neither"
    colours = {"cmap": RESIDUALS, "vmin": -end, "vmax": end}
    _scatter_map(ax, observations, numbers, name, order=order, extend=extend, **colours)
    return ax


def prediction_map(
    fit: Fit, *, cells: int = CELLS, ax: Axes | None = None, raster: Raster | None = None
) -> Axes:
    """Draw the kriging mean over the bounding box of the observations, and their places.

    Parameters
    ----------
    fit : Fit
    cells : int
        Along the longer side.
    ax : matplotlib.axes.Axes, optional
    raster : Raster, optional
        What `geomxp.prediction.raster.predict_raster` returned, where both maps are drawn.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InvalidInput
        If the places do not spread over a plane, or if the trend needs covariates.
    """
    ax, raster = axes_of(ax), _raster(fit, cells, raster)
    name = plain(fit.observations.value_name)
    _raster_map(ax, fit.observations, raster.mean, raster.extent, name, cmap=VALUES)
    return titled(ax, fit.observations, "Kriging mean")


def prediction_error_map(
    fit: Fit, *, cells: int = CELLS, ax: Axes | None = None, raster: Raster | None = None
) -> Axes:
    """Draw the standard error of the kriging mean; parameters as of `prediction_map`."""
    ax, raster = axes_of(ax), _raster(fit, cells, raster)
    name = f"standard error of {plain(fit.observations.value_name)}"
    _raster_map(ax, fit.observations, raster.standard_error, raster.extent, name, cmap=ERRORS)
    return titled(ax, fit.observations, "Kriging standard error")


def _raster(fit, cells, raster):
    checked("fit", fit, Fit)
    if raster is None:
        return predict_raster(fit, cells=cells)
    return checked("raster", raster, Raster)


def _coordinate_label(observations, j):
    """Return the axis label of coordinate j."""
    unit = observations.unit if observations.metric == "euclidean" else "degrees"
    return label(observations.location_names[j], unit)


def titled(ax, observations, title):
    """Give a map its title, which says if it is a projection of three dimensions, and finish it."""
    projected = observations.dimensions == 3
    ax.set_title(title + ", first two coordinates" * projected)
    finish(ax, frame=observations.dimensions > 1)
    return ax


def _lay_map(ax, observations):
    """Give a map its shape and its labels: equal lengths, or degrees as at the mean latitude."""
    from matplotlib.ticker import MaxNLocator

    places = observations.locations[:, :2]
    # length of a unit of the second coordinate in units of the first
    ratio = 1.0
    if observations.metric != "euclidean":
        ratio = 1.0 / max(cos(radians(float(places[:, 1].mean()))), 0.1)
    width, height = np.ptp(places, axis=0) * (1.0, ratio)
    slim = not min(width, height) * SLIM > max(width, height)
    ax.set_aspect("auto" if slim else ratio)
    # numbers stand side by side below a map, and one above the other beside it
    ticks = (_intervals_below(ax, places[:, 0], 0.0 if slim else height / width), 5)
    for j, axis in enumerate((ax.xaxis, ax.yaxis)):
        axis.set_major_locator(MaxNLocator(ticks[j], steps=[1, 2, 2.5, 5, 10]))
        axis.set_label_text(_coordinate_label(observations, j))
    if 1e-3 < np.abs(places).max() < 1e8:
        ax.ticklabel_format(useOffset=False, style="plain")


def _intervals_below(ax, x, slope):
    """Return between how many numbers there is room below a map so many times higher than wide."""
    width, height = inches(ax)
    if slope:
        width = min(width, height / slope)
    step = max(float(np.ptp(x)), 1e-6 * float(np.abs(x).max()), 1e-300) / 4
    decimals = max(0, -int(np.floor(np.log10(step))))
    length = len(f"{np.abs(x).max():.0f}") + decimals + (decimals > 0) + (x.min() < 0)
    return int(np.clip(characters(ax, width) / (length + 1.5), 2, 6)) - 1


def _scatter_map(ax, observations, values, name, *, order=slice(None), extend="neither", **colours):
    """Draw coloured dots at places, with a colour bar."""
    x, y = observations.locations[order, :2].T
    n = len(values)
    drawn = ax.scatter(
        x,
        y,
        c=values[order],
        s=dots(n, ax),
        edgecolors="0.25" if n <= 1000 else "0.6",
        # without a line around them dots in the lightest colour would be lost
        linewidths=0.4 if n <= 1000 else 0.15,
        **colours,
    )
    _lay_map(ax, observations)
    colour_bar(ax, drawn, name, extend)


def _scatter_line(ax, observations, values, name):
    """Draw values against the only coordinate."""
    ax.scatter(observations.locations[:, 0], values, s=dots(len(values), ax), color=BLUE)
    ax.set_xlabel(_coordinate_label(observations, 0))
    ax.set_ylabel(name)


def _raster_map(ax, observations, cells, extent, name, **colours):
    """Draw a raster, the places over it, and a colour bar."""
    # between the centres of cells a continuous field is near the straight line
    drawn = ax.imshow(cells, origin="lower", extent=extent, interpolation="bilinear", **colours)
    x, y = observations.locations.T
    # dots on the border are drawn whole
    ax.scatter(
        x,
        y,
        s=np.clip(dots(len(x), ax) / 5, 1.0, 7.0),
        color="black",
        alpha=0.6,
        linewidths=0,
        clip_on=False,
    )
    _lay_map(ax, observations)
    colour_bar(ax, drawn, name)
