"""How pictures are made: figures of no window, maps with their true shape, axes with units."""

from math import cos, radians

import numpy as np

LONGEST_NAME = 40
SLIM = 12.0
"""Regions so many times longer than wide are stretched, or nothing would be seen of them."""


def new_figure(width=6.4, height=4.8):
    """Return an empty figure, in inches, that no window and no global state knows."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def axes(ax):
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


def label(text, unit):
    """Return an axis label with its unit."""
    return f"{plain(text)} ({plain(unit)})" if unit else plain(text)


def coordinate_label(observations, j):
    """Return the axis label of coordinate j."""
    unit = observations.unit if observations.metric == "euclidean" else "degrees"
    return label(observations.location_names[j], unit)


def which_coordinates(observations):
    """Say in a title that a map of three dimensions is a projection."""
    return ", first two coordinates" if observations.dimensions == 3 else ""


def lay_map(ax, observations):
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
        axis.set_label_text(coordinate_label(observations, j))
    ax.ticklabel_format(useOffset=False, style="plain")


def dots(n):
    """Return the area of a dot, in points squared, where n of them share a map."""
    return float(np.clip(6000.0 / n, 3.0, 36.0))


def scatter_map(ax, observations, values, name, *, order=slice(None), **colours):
    """Draw coloured dots at places, with a colour bar."""
    x, y = observations.locations[order, :2].T
    n = len(values)
    drawn = ax.scatter(
        x,
        y,
        c=values[order],
        s=dots(n),
        edgecolors="0.25",
        linewidths=0.4 if n <= 1000 else 0.0,
        **colours,
    )
    lay_map(ax, observations)
    colour_bar(ax, drawn, name)


def scatter_line(ax, observations, values, name):
    """Draw values against the only coordinate."""
    ax.scatter(observations.locations[:, 0], values, s=dots(len(values)), color="C0")
    ax.set_xlabel(coordinate_label(observations, 0))
    ax.set_ylabel(name)
    uncluttered(ax)


def raster_map(ax, observations, cells, extent, name, **colours):
    """Draw a raster, the places over it, and a colour bar."""
    # between the centres of cells a continuous field is near the straight line
    drawn = ax.imshow(cells, origin="lower", extent=extent, interpolation="bilinear", **colours)
    x, y = observations.locations.T
    # dots on the border are drawn whole
    ax.scatter(x, y, s=dots(len(x)) / 5, color="black", alpha=0.6, linewidths=0, clip_on=False)
    lay_map(ax, observations)
    colour_bar(ax, drawn, name)


def colour_bar(ax, drawn, name):
    """Draw a colour bar beside a map."""
    ax.figure.colorbar(drawn, ax=ax, label=name, shrink=0.85)


def logarithmic(axis, values):
    """Make an axis logarithmic, with few ticks, in plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.axes.set_xscale("log")
    decades = float(np.log10(values[-1] / values[0]))
    digits = (1, 2, 3, 4, 5, 7) if decades < 1 else (1, 2, 5) if decades < 3 else (1,)
    axis.set_major_locator(LogLocator(subs=digits))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))


def uncluttered(ax):
    """Leave out the frame's upper and right side."""
    ax.spines[["top", "right"]].set_visible(False)
