"""Maps of values, residuals and predictions, in their true shape."""

from __future__ import annotations

import warnings
from dataclasses import replace
from math import cos, radians
from typing import TYPE_CHECKING

import numpy as np

from ..covariance.responses import Binomial
from ..data.observations import Observations
from ..data.summaries import few
from ..errors import GeomxpWarning, InvalidInput, brief_repr, is_finite
from ..estimation.result import Fit
from ..prediction.raster import DEFAULT_SIDE_CELLS, Raster, RasterSeries, predict_raster, turn_to
from ..prediction.variogram import trend_residuals
from . import axes
from .axes import BLUE, axes_of, checked, finish, label, panels_of

if TYPE_CHECKING:
    from matplotlib.animation import FuncAnimation

    from .._typing import Axes, Sequence

LARGEST_ELONGATION = 12.0
"""Regions more elongated than this are stretched, so that something can be seen."""


MOST_FIGURE_MAPS = 24
"""Largest number of maps in a figure."""

LOWEST_OPACITY = 0.12
"""Opacity of a map of predictions far from all observations."""


def values_map(
    observations: Observations, *, variable: str | int | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the values on a map; in one dimension against the coordinate.

    Parameters
    ----------
    observations : Observations
    variable : str or int, optional
        Which of several variables.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InvalidInput
        If the observations are of several variables and `variable` is not one of them.
    """
    checked("observations", observations, Observations)
    observations = one_variable(observations, variable)
    ax, name = axes_of(ax), axes.value_label(observations)
    if observations.dimensions == 1:
        _scatter_line(ax, observations, observations.values, name)
    else:
        _scatter_map(ax, observations, observations.values, name, cmap=axes.VALUES_COLOUR_MAP)
    return titled(ax, observations, "Values")


def one_variable(observations, variable):
    """Return the observations of one of several variables; those of one variable as they are."""
    if observations.variable is None:
        if variable is not None:
            raise InvalidInput("the observations are of one variable: leave `variable` out.")
        return observations
    labels = observations.variable_labels
    if variable is None and len(labels) > 1:
        first = observations.variable_names[0] if observations.variable_names else 0
        raise InvalidInput(
            f"a picture shows one variable of {few(labels, 8)}: give variable={first!r}."
        )
    return observations.of_variable(labels[0] if variable is None else variable)


def residuals_map(fit: Fit, *, variable: str | int | None = None, ax: Axes | None = None) -> Axes:
    """Draw the residuals of the trend, z - Xβ̂, on a map; with a response, of working values.

    Parameters
    ----------
    fit : Fit
    variable : str or int, optional
        Which of several variables.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes
    """
    observations, residuals = checked("fit", fit, Fit).gaussian.observations, trend_residuals(fit)
    own = one_variable(observations, variable)
    if own is not observations:
        number = observations.variable_labels.index(own.value_name)
        observations, residuals = own, residuals[observations.variable == number]
    name = label(f"{observations.value_name} minus its trend", observations.value_unit)
    ax = signed_map(observations, residuals, name, ax=ax)
    return titled(ax, observations, f"Residuals, {fit.trend.title}")


def signed_map(observations, numbers, name, *, most=np.inf, ax=None):
    """Draw numbers of both signs on a map, white at 0, with one colour beyond ±`most`."""
    ax = axes_of(ax)
    if observations.dimensions == 1:
        _scatter_line(ax, observations, numbers, name)
        axes.zero_line(ax)
        return ax
    largest = float(np.abs(numbers).max()) or 1.0
    end = min(largest, most)
    # the largest are drawn last, on top of the others
    order = np.argsort(np.abs(numbers), kind="stable")
    extend = "both" if largest > end else "neither"
    colours = {"cmap": axes.RESIDUALS_COLOUR_MAP, "vmin": -end, "vmax": end}
    _scatter_map(ax, observations, numbers, name, order=order, extend=extend, **colours)
    return ax


def prediction_map(
    fit: Fit,
    *,
    cells: int = DEFAULT_SIDE_CELLS,
    variable: str | int | None = None,
    ax: Axes | None = None,
    raster: Raster | None = None,
) -> Axes:
    """Draw the kriging mean over the bounding box of the observations, and their locations.

    With a transformation the median of the field is drawn, with a response the mean of a value or
    the probability of a success, for an offset of 0 and an exposure of 1. The colours are those of
    the observed values, as in `values_map`, or of their shares of trials. Cells fade where the
    variance of the prediction exceeds 40 % of that of the values less the nugget; with a response,
    where that of η exceeds 70 % of the field's.

    Parameters
    ----------
    fit : Fit
    cells : int
        Along the longer side.
    variable : str or int, optional
        Which of several variables; that of the raster if there is one.
    ax : matplotlib.axes.Axes, optional
    raster : Raster, optional
        Result of `geomxp.predict_raster`; computed if not given.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InvalidInput
        If the locations do not extend over a plane, or if the trend needs covariates.
    """
    raster, seen = _raster(fit, cells, raster, variable)
    response = fit.model.response
    shown = values_shown(seen, response)
    ax, name = axes_of(ax), label(predicted_name(seen, response), shown.value_unit)
    centre, values = raster.centre, shown.values
    low, high = float(values.min()), float(values.max())
    beyond = bool(np.nanmin(centre) < low), bool(np.nanmax(centre) > high)
    extend = {(True, True): "both", (True, False): "min", (False, True): "max"}
    colours = {"cmap": axes.VALUES_COLOUR_MAP, "vmin": low, "vmax": high}
    colours |= {"alpha": opacity(raster, fit), "extend": extend.get(beyond, "neither")}
    _raster_map(ax, seen, centre, raster.extent, name, **colours)
    title = "Kriging mean" if raster.transform is None else "Median of the prediction"
    if raster.response is not None:
        title = "Probability" if isinstance(response, Binomial) else "Mean of a value"
    return titled(ax, seen, title)


def values_shown(observations, response):
    """Return the observations in the unit of a map of predictions.

    They are shares of the trials of a binomial response, and divided by the exposure (and the
    exponential of the offset) of one whose link is the logarithm.
    """
    offset, name, divisor = observations.total_offset, observations.value_name, None
    if isinstance(response, Binomial):
        if observations.trials is not None:
            name, divisor = f"share of {name}", observations.trials
    elif response is not None and response.used_link == "log" and offset is not None:
        name, divisor = f"{name} at offset 0", np.exp(offset)
        if observations.offset is None:
            name = f"{observations.value_name} / {observations.exposure_name}"
    if divisor is None:
        return observations
    columns = dict.fromkeys(("trials", "offset", "exposure", "lower", "upper"))
    with warnings.catch_warnings():
        # the observations have been checked already
        warnings.simplefilter("ignore", GeomxpWarning)
        values = observations.values / divisor
        return replace(observations, values=values, value_name=name, value_unit="", **columns)


def predicted_name(observations, response):
    """Return the name of what a map of predictions shows."""
    if isinstance(response, Binomial):
        return f"probability of {observations.value_name}"
    return values_shown(observations, response).value_name


def prediction_maps(
    fit: Fit,
    series: RasterSeries | None = None,
    *,
    cells: int = DEFAULT_SIDE_CELLS,
    ax: Sequence[Axes] | None = None,
) -> list[Axes]:
    """Draw maps of several times side by side, in the same colours; or of several variables.

    Each variable has colours of its own.

    Parameters
    ----------
    fit : Fit
    series : RasterSeries, optional
        Result of `geomxp.predict_raster` with several times, at most 24. Without it there is a map
        of each variable of the fit.
    cells : int
        Of the maps of several variables, along the longer side.
    ax : sequence of matplotlib.axes.Axes, optional
        One for each time or variable.

    Returns
    -------
    list of matplotlib.axes.Axes

    Raises
    ------
    InvalidInput
        If there are more than 24 times, or neither a series nor several variables.
    """
    if series is None:
        labels = checked("fit", fit, Fit).observations.variable_labels
        if not labels:
            raise InvalidInput(
                "maps side by side are of several times or variables: give a series, "
                "gx.predict_raster(fit, time=[...]), or use `prediction_map`."
            )
        panels = panels_of(ax, len(labels))
        for one, name in zip(panels, labels, strict=True):
            prediction_map(fit, cells=cells, variable=name, ax=one).set_title(axes.plain(name))
        return list(panels)
    if len(checked("series", series, RasterSeries)) > MOST_FIGURE_MAPS:
        raise InvalidInput(
            f"a figure has room for {MOST_FIGURE_MAPS} maps. Got {len(series)} times: draw some of "
            "them, or `prediction_animation`."
        )
    panels = panels_of(ax, len(series))
    for one, raster, title in zip(panels, series.rasters, _titles(series), strict=True):
        prediction_map(fit, ax=one, raster=raster).set_title(title)
    return list(panels)


def prediction_animation(fit: Fit, series: RasterSeries, *, seconds: float = 0.5) -> FuncAnimation:
    """Draw maps of several times one after the other.

    Parameters
    ----------
    fit : Fit
    series : RasterSeries
        Result of `geomxp.predict_raster` with several times.
    seconds : float
        Duration of each map.

    Returns
    -------
    matplotlib.animation.FuncAnimation
        Its method `save("maps.gif", writer="pillow")` writes a file.
    """
    from matplotlib.animation import FuncAnimation

    if not (is_finite(seconds) and seconds > 0):
        raise InvalidInput(f"`seconds` must be a number greater than 0. Got {brief_repr(seconds)}.")
    titles = _titles(checked("series", series, RasterSeries))
    ax = prediction_map(fit, raster=series[0])
    (image,) = ax.get_images()

    def draw(k):
        image.set(data=series[k].centre, alpha=opacity(series[k], fit))
        ax.set_title(titles[k])
        return image, ax.title

    canvas = ax.figure
    return FuncAnimation(canvas, draw, frames=len(series), interval=1e3 * seconds, repeat=True)


def _titles(series):
    """Return the times as titles: dates, or numbers with name and unit."""
    texts = series.axis.in_words(series.times)
    if series.axis.origin:
        return texts
    return [label(f"{series.name} {text}", series.axis.unit) for text in texts]


def prediction_error_map(
    fit: Fit,
    *,
    cells: int = DEFAULT_SIDE_CELLS,
    variable: str | int | None = None,
    ax: Axes | None = None,
    raster: Raster | None = None,
) -> Axes:
    """Draw the standard error of the kriging mean; parameters as of `prediction_map`.

    With a transformation or a response it is `Raster.standard_error`.
    """
    raster, seen = _raster(fit, cells, raster, variable)
    ax = axes_of(ax)
    response = fit.model.response
    unit = values_shown(seen, response).value_unit
    name = label(f"standard error of {predicted_name(seen, response)}", unit)
    _raster_map(ax, seen, raster.standard_error, raster.extent, name, cmap=axes.ERRORS_COLOUR_MAP)
    title = "Kriging standard error"
    if raster.response is not None:
        of = "the probability" if isinstance(response, Binomial) else "the mean of a value"
        title = f"Standard error of {of}"
    return titled(ax, seen, title)


def opacity(raster, fit):
    """Return the opacity of the cells of a map of predictions, (rows, columns).

    A cell is opaque where the variance of the prediction is at most 40 % of that of the values less
    the nugget, and nearly transparent from 80 %. With a response η has not been observed: there the
    variance of its prediction is at most 70 % of the field's, and 100 %.
    """
    if raster.samples is not None:
        return np.ones(raster.mean.shape)
    variance = raster.variance if raster.gaussian is None else raster.gaussian[1]
    if raster.response is not None:
        left = variance / (fit.model.largest_variance or np.inf)
        return np.nan_to_num(np.interp(left, (0.7, 1.0), (1.0, LOWEST_OPACITY)))
    seen, nugget = fit.gaussian.observations, fit.model.nugget
    if seen.variable is not None:
        number = seen.variable_labels.index(raster.value_name)
        nugget = np.broadcast_to(nugget, len(seen.variable_labels))[number]
        seen = seen.of_variable(raster.value_name)
    values = float(np.var(seen.values)) or np.inf
    # values may have a larger nugget than variance
    left = variance / max(values - nugget, 0.1 * values)
    return np.nan_to_num(np.interp(left, (0.4, 0.8), (1.0, LOWEST_OPACITY)))


def _raster(fit, cells, raster, variable):
    """Return a raster of one variable, and its observations."""
    seen = checked("fit", fit, Fit).observations
    if raster is not None:
        of = checked("raster", raster, Raster).value_name
        if seen.variable is not None and variable is None and of in seen.variable_labels:
            variable = of
        own = one_variable(seen, variable)
        if seen.variable is not None and own.value_name != of:
            raise InvalidInput(
                f"the raster is of {of}, and `variable` is {own.value_name}: leave one of them out."
            )
        return raster, own
    own = one_variable(seen, variable)
    if "time" in fit.model.uses:
        which = f"time={seen.time[0]:g}"
        which += "" if seen.variable is None else f", variable={own.value_name!r}"
        raise InvalidInput(
            f"a map of a {fit.model.family} model needs its time: give "
            f"raster=gx.predict_raster(fit, {which})."
        )
    name = None if seen.variable is None else own.value_name
    return predict_raster(fit, cells=cells, variable=name, progress=False), own


def _coordinate_label(observations, j):
    """Return the axis label of coordinate j."""
    unit = "degrees" if observations.geographic else observations.unit
    return label(observations.location_names[j], unit)


def titled(ax, observations, title):
    """Finish a map with its title, which mentions a projection of three dimensions."""
    projected = observations.dimensions == 3
    title += ", first two coordinates" * projected
    return finish(ax, title, frame=observations.dimensions > 1)


def length_ratio(observations):
    """Return the length of a unit of the second coordinate, in units of the first."""
    if not observations.geographic:
        return 1.0
    return 1.0 / max(cos(radians(float(observations.locations[:, 1].mean()))), 0.1)


def _lay_map(ax, observations):
    """Set shape and labels of a map: equal lengths, or degrees as at the mean latitude."""
    from matplotlib.ticker import MaxNLocator

    places, ratio = observations.locations[:, :2], length_ratio(observations)
    width, height = np.ptp(places, axis=0) * (1.0, ratio)
    slim = not min(width, height) * LARGEST_ELONGATION > max(width, height)
    ax.set_aspect("auto" if slim else ratio)
    # numbers are side by side below a map, and above each other beside it
    ticks = (_intervals_below(ax, places[:, 0], 0.0 if slim else height / width), 5)
    for j, axis in enumerate((ax.xaxis, ax.yaxis)):
        axis.set_major_locator(MaxNLocator(ticks[j], steps=[1, 2, 2.5, 5, 10]))
        axis.set_label_text(_coordinate_label(observations, j))
    if 1e-3 < np.abs(places).max() < 1e8:
        ax.ticklabel_format(useOffset=False, style="plain")


def _intervals_below(ax, x, slope):
    """Return how many intervals between numbers fit below a map of height/width `slope`."""
    width, height = axes.inches(ax)
    if slope:
        width = min(width, height / slope)
    step = max(float(np.ptp(x)), 1e-6 * float(np.abs(x).max()), 1e-300) / 4
    decimals = max(0, -int(np.floor(np.log10(step))))
    length = len(f"{np.abs(x).max():.0f}") + decimals + (decimals > 0) + (x.min() < 0)
    return int(np.clip(axes.characters(ax, width) / (length + 1.5), 2, 6)) - 1


def _scatter_map(ax, observations, values, name, *, order=slice(None), extend="neither", **colours):
    """Draw coloured dots at locations, with a colour bar."""
    x, y = observations.locations[order, :2].T
    n = len(values)
    # an outline keeps dots in the lightest colour visible
    outline = {"edgecolors": "0.25", "linewidths": 0.4}
    if n > 1000:
        outline = {"edgecolors": "0.6", "linewidths": 0.15}
    drawn = ax.scatter(x, y, c=values[order], s=axes.dots(n, ax), **outline, **colours)
    _lay_map(ax, observations)
    axes.colour_bar(ax, drawn, name, extend)


def _scatter_line(ax, observations, values, name):
    """Draw values against the only coordinate."""
    ax.scatter(observations.locations[:, 0], values, s=axes.dots(len(values), ax), color=BLUE)
    ax.set_xlabel(_coordinate_label(observations, 0))
    ax.set_ylabel(name)


def _raster_map(ax, observations, cells, extent, name, *, extend="neither", **colours):
    """Draw a raster, the locations over it, and a colour bar."""
    from matplotlib.cm import ScalarMappable

    turn = turn_to(observations, *extent[:2])
    extent = extent[0] + turn, extent[1] + turn, *extent[2:]
    # a continuous field is nearly linear between the centres of cells
    drawn = ax.imshow(cells, origin="lower", extent=extent, interpolation="bilinear", **colours)
    x, y = observations.locations.T
    size = np.clip(axes.dots(len(x), ax) / 5, 1.0, 7.0)
    # dots on the border are not clipped
    ax.scatter(x, y, s=size, color="black", alpha=0.6, linewidths=0, clip_on=False)
    _lay_map(ax, observations)
    # the bar shows the colours of opaque cells
    colours = ScalarMappable(drawn.norm, drawn.cmap)
    axes.colour_bar(ax, colours, name, extend)
