"""Pictures of observations and fits. Each function draws on given axes, or makes a figure.

A figure made here belongs to no window and no backend; matplotlib's global state is never
touched. `ax.figure` shows it in a notebook, `ax.figure.savefig(path)` writes it.
"""

from math import cos, radians

import numpy as np

from .errors import InvalidInput
from .inference.profile import profile_likelihood
from .inference.raster import CELLS, predict_raster
from .inference.variogram import PLACES, empirical_variogram, semivariance, trend_residuals

VALUES, ERRORS, RESIDUALS = "viridis", "cividis", "PuOr"
"""Colour maps that the colour-blind can read; that of residuals is white at 0."""

LONGEST_NAME = 40

SLIM = 12.0
"""Regions so many times longer than wide are stretched, or nothing would be seen of them."""

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
    ax, name = _axes(ax), plain(observations.value_name)
    if observations.dimensions == 1:
        _scatter_line(ax, observations, observations.values, name)
    else:
        _scatter_map(ax, observations, observations.values, name, cmap=VALUES)
    ax.set_title(f"Values{_which_coordinates(observations)}")
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
    ax, name = _axes(ax), f"{plain(seen.value_name)} less its trend"
    if seen.dimensions == 1:
        _scatter_line(ax, seen, residuals, name)
        ax.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)
    else:
        largest = float(np.abs(residuals).max()) or 1.0
        # the largest come last, on top of the others
        order = np.argsort(np.abs(residuals), kind="stable")
        _scatter_map(
            ax, seen, residuals, name, order=order, cmap=RESIDUALS, vmin=-largest, vmax=largest
        )
    ax.set_title(f"Residuals, {fit.trend.kind} trend{_which_coordinates(seen)}")
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
    ax, n = _axes(ax), len(seen)
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
    ax.set_xlabel(_label(along, seen.unit))
    ax.set_ylabel(_label("semivariance", unit_of("variance", seen)))
    ax.legend(loc="lower right", fontsize="small")
    _uncluttered(ax)
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
    ax, words, top = _axes(ax), name.replace("_", " "), fit.log_likelihood
    ax.plot(*_through(values, heights, name), color="C0", linewidth=2)
    ax.plot(values, heights, "o", color="C0", markersize=5)
    level = top - HALF_QUANTILE
    ax.axhline(level, color="0.35", linestyle="--", linewidth=1, label="maximum − 1.92 (95 %)")
    estimate = fit.model.parameters()[name]
    ax.axvline(estimate, color="0.7", linewidth=0.8, zorder=0)
    ax.plot(estimate, top, "D", color="C3", markersize=7, label=f"estimate, {estimate:.4g}")
    # far below the level there is nothing to read
    bottom = min(max(float(heights.min()), top - 3 * HALF_QUANTILE), level)
    room = max(top, float(heights.max())) - bottom
    ax.set(ylim=(bottom - 0.1 * room, bottom + 1.1 * room), title=f"Profile of the {words}")
    if name != "anisotropy_angle":
        _logarithmic(ax.xaxis, values)
    ax.set_xlabel(_label(words, unit_of(name, fit.observations)))
    ax.set_ylabel("profile log-likelihood" + (" (REML)" if fit.reml else ""))
    ax.legend(fontsize="small")
    _uncluttered(ax)
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
    ax, name = _axes(ax), plain(fit.observations.value_name)
    _raster_map(ax, fit.observations, raster.mean, raster.extent, name, cmap=VALUES)
    ax.set_title("Kriging mean")
    return ax


def prediction_error_map(fit, *, cells=CELLS, ax=None, raster=None):
    """Draw the standard error of the kriging mean; parameters as of `prediction_map`."""
    raster = predict_raster(fit, cells=cells) if raster is None else raster
    ax, name = _axes(ax), f"standard error of {plain(fit.observations.value_name)}"
    _raster_map(ax, fit.observations, raster.standard_error, raster.extent, name, cmap=ERRORS)
    ax.set_title("Kriging standard error")
    return ax


def overview(fit):
    """Draw four pictures of a fit: values, kriging mean, semivariogram, a profile.

    The residuals stand in where there can be no map of predictions, or no profile.

    Parameters
    ----------
    fit : Fit

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure = new_figure(11.0, 8.5)
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


def new_figure(width=6.4, height=4.8):
    """Return an empty figure, in inches, that no window and no global state knows."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _axes(ax):
    """Return the axes given, or those of a new figure."""
    return new_figure().add_subplot() if ax is None else ax


def plain(name):
    r"""Return a column's name as text for a picture: one line, not too long, no formula.

    Examples
    --------
    >>> print(plain("cost\n in $"))
    cost in \$
    """
    text = " ".join(str(name).split())
    text = text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"
    # between two dollar signs matplotlib would read TeX
    return text.replace("$", r"\$")


def unit_of(parameter, observations):
    """Return the unit of a parameter of the model, in words; None for a pure number."""
    squared = f"squared units of {observations.value_name}"
    return {
        "variance": squared,
        "nugget": squared,
        "range": observations.unit,
        "anisotropy_angle": "degrees",
    }.get(parameter)


def _label(text, unit):
    """Return an axis label with its unit."""
    return f"{plain(text)} ({plain(unit)})" if unit else plain(text)


def _coordinate_label(observations, j):
    """Return the axis label of coordinate j."""
    unit = observations.unit if observations.metric == "euclidean" else "degrees"
    return _label(observations.location_names[j], unit)


def _which_coordinates(observations):
    """Say in a title that a map of three dimensions is a projection."""
    return ", first two coordinates" if observations.dimensions == 3 else ""


def _lay_map(ax, observations):
    """Give a map its shape and its labels: equal lengths, or degrees as at the mean latitude."""
    from matplotlib.ticker import MaxNLocator

    places = observations.locations[:, :2]
    # length of a unit of the second coordinate in units of the first
    ratio = 1.0
    if observations.metric != "euclidean":
        ratio = 1.0 / max(cos(radians(float(places[:, 1].mean()))), 0.1)
    width, height = np.ptp(places, axis=0) * (1.0, ratio)
    slim = min(width, height) * SLIM < max(width, height)
    ax.set_aspect("auto" if slim else ratio)
    # numbers stand side by side below a map, and one above the other beside it
    ticks = (3 if width < 0.9 * height and not slim else 5, 5)
    for j, axis in enumerate((ax.xaxis, ax.yaxis)):
        axis.set_major_locator(MaxNLocator(ticks[j], steps=[1, 2, 2.5, 5, 10]))
        axis.set_label_text(_coordinate_label(observations, j))
    if 1e-3 < np.abs(places).max() < 1e8:
        ax.ticklabel_format(useOffset=False, style="plain")


def _dots(n):
    """Return the area of a dot, in points squared, where n of them share a map evenly."""
    return float(np.clip(24000.0 / n, 4.0, 36.0))


def _scatter_map(ax, observations, values, name, *, order=slice(None), **colours):
    """Draw coloured dots at places, with a colour bar."""
    x, y = observations.locations[order, :2].T
    n = len(values)
    drawn = ax.scatter(
        x,
        y,
        c=values[order],
        s=_dots(n),
        edgecolors="0.25" if n <= 1000 else "0.6",
        # without a line around them dots in the lightest colour would be lost
        linewidths=0.4 if n <= 1000 else 0.15,
        **colours,
    )
    _lay_map(ax, observations)
    _colour_bar(ax, drawn, name)


def _scatter_line(ax, observations, values, name):
    """Draw values against the only coordinate."""
    ax.scatter(observations.locations[:, 0], values, s=_dots(len(values)), color="C0")
    ax.set_xlabel(_coordinate_label(observations, 0))
    ax.set_ylabel(name)
    _uncluttered(ax)


def _raster_map(ax, observations, cells, extent, name, **colours):
    """Draw a raster, the places over it, and a colour bar."""
    # between the centres of cells a continuous field is near the straight line
    drawn = ax.imshow(cells, origin="lower", extent=extent, interpolation="bilinear", **colours)
    x, y = observations.locations.T
    # dots on the border are drawn whole
    ax.scatter(
        x,
        y,
        s=np.clip(_dots(len(x)) / 5, 1.0, 7.0),
        color="black",
        alpha=0.6,
        linewidths=0,
        clip_on=False,
    )
    _lay_map(ax, observations)
    _colour_bar(ax, drawn, name)


def _colour_bar(ax, drawn, name):
    """Draw a colour bar beside a map, as high as the map whatever its shape is."""
    ax.figure.colorbar(drawn, cax=ax.inset_axes((1.04, 0.0, 0.045, 1.0)), label=name)


def _logarithmic(axis, values):
    """Make an axis logarithmic, with few ticks, in plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    axis.axes.set_xscale("log")
    decades = float(np.log10(values[-1] / values[0]))
    digits = (1, 2, 3, 4, 5, 7) if decades < 1 else (1, 2, 5) if decades < 3 else (1,)
    few = MaxNLocator(6, steps=[1, 2, 5, 10])
    axis.set_major_locator(few if decades < 0.5 else LogLocator(subs=digits))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.6g}"))


def _uncluttered(ax):
    """Leave out the frame's upper and right side."""
    ax.spines[["top", "right"]].set_visible(False)
