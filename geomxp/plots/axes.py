"""Parts that all plots share: figures, colours, labels with units, ticks, legends and bands."""

from __future__ import annotations

from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InvalidInput
from ..estimation.names import titles, unit_of

if TYPE_CHECKING:
    from .._typing import Figure

VALUES_COLOUR_MAP, ERRORS_COLOUR_MAP, RESIDUALS_COLOUR_MAP = "viridis", "cividis", "PuOr"
"""Colour maps for colour-blind readers; that of residuals is white at 0."""

BLUE, VERMILION, ORANGE, SKY = "#0072B2", "#D55E00", "#E69F00", "#56B4E9"
GREEN = "#009E73"
"""Colours of Okabe and Ito's palette, for colour-blind readers."""

LONGEST_NAME = 40
"""Longest name of a column in a label; longer ones are cut."""


def new_figure(width: float = 6.4, height: float = 4.8) -> Figure:
    """Return an empty figure of a size in inches, without a window or global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    # notebooks show figures by this method; matplotlib defines it for pyplot's only
    figure._repr_png_ = partial(_png, figure)
    return figure


def _png(figure):
    """Return a figure as the bytes of a PNG file."""
    file = BytesIO()
    figure.savefig(file, format="png", bbox_inches="tight")
    return file.getvalue()


def axes_of(ax, width=6.4, height=4.8):
    """Return the given axes, or those of a new figure; raise `InvalidInput` for anything else."""
    if ax is None:
        return new_figure(width, height).add_subplot()
    if not hasattr(ax, "add_artist"):
        raise InvalidInput(f"`ax` must be matplotlib axes. Got {type(ax).__name__}.")
    return ax


def panels_of(ax, count, columns=None, width=4.2, height=3.5):
    """Return `count` given axes, or those of a new figure with panels of a size in inches.

    A row has `columns` panels, by default about as many as there are rows.
    """
    if ax is None:
        columns = columns or int(np.ceil(np.sqrt(count)))
        rows = -(-count // columns)
        figure = new_figure(width * columns, height * rows)
        return np.array([figure.add_subplot(rows, columns, k + 1) for k in range(count)])
    given = np.empty(np.size(ax), dtype=object)
    given[:] = list(np.ravel(ax))
    if len(given) != count:
        raise InvalidInput(f"`ax` must hold {count} axes, one for each panel. Got {len(given)}.")
    for one in given:
        axes_of(one)
    return given


def checked(name, value, *kinds):
    """Return an argument; raise `InvalidInput` if it is not of one of the classes."""
    if not isinstance(value, kinds):
        words = " or ".join(
            f"{'an' if k.__name__[0] in 'AEIOU' else 'a'} {k.__name__}" for k in kinds
        )
        raise InvalidInput(f"`{name}` must be {words}. Got {type(value).__name__}.")
    return value


def plain_name(name):
    """Return the name of a column as one line of limited length."""
    text = " ".join(str(name).split())
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"


def plain(name: str) -> str:
    r"""Return a column's name as text for a label: one line of limited length, without TeX.

    Examples
    --------
    >>> print(plain("cost\n in $"))
    cost in \$
    """
    # matplotlib reads text between dollar signs as TeX
    return plain_name(name).replace("$", r"\$")


def value_label(observations):
    """Return the axis label of the values, with their unit if it is known."""
    return label(observations.value_name, observations.value_unit)


def label(text, unit):
    """Return an axis label with its unit."""
    return f"{plain(text)} ({plain(unit)})" if unit else plain(text)


def parameter_label(name, observations, model):
    """Return the axis label of a parameter, with the names of several variables."""
    unit = unit_of(model.parameter(name), observations, model.response)
    return label(titles(model, observations)[name], unit)


def colour_bar(ax, drawn, name, extend="neither"):
    """Draw a colour bar next to a map, as high as the map."""
    beside = ax.inset_axes((1.04, 0.0, 0.045, 1.0))
    ax.figure.colorbar(drawn, cax=beside, label=name, extend=extend)


def logarithmic(axis, low, high):
    """Make an axis of data between two ends logarithmic, with as many ticks as fit."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    ax, horizontal = axis.axes, axis.axis_name == "x"
    (ax.set_xscale if horizontal else ax.set_yscale)("log")
    room = characters(ax) if horizontal else lines(ax)
    if high / low < 3:
        axis.set_major_locator(MaxNLocator(int(np.clip(room / 7, 2, 6)), steps=[1, 2, 5, 10]))
    else:
        axis.set_major_locator(LogLocator(subs=_digits(low, high, room, horizontal), numticks=20))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda x, _: _short(x)))


def _digits(low, high, room, horizontal):
    """Return the leading digits of as many ticks as fit in a room of characters, or of lines.

    >>> _digits(1.0, 10.0, 40, True), _digits(1.0, 1000.0, 40, True), _digits(1, 1e6, 20, False)
    ((1, 2, 3, 4, 5, 7), (1, 3), (1, 3))
    """
    powers = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    for digits in ((1, 2, 3, 4, 5, 7), (1, 2, 3, 5), (1, 2, 5), (1, 3)):
        ticks = np.outer(powers, digits).ravel()
        ticks = ticks[(ticks >= 0.9 * low) & (ticks <= 1.1 * high)]
        sizes = np.array([len(_short(x)) + 1.5 if horizontal else 1.3 for x in ticks])
        gaps = np.diff(np.log(ticks)) / np.log(high / low) * room
        if (gaps >= (sizes[1:] + sizes[:-1]) / 2).all():
            return digits
    return (1,)


def _short(x):
    """Return a number as text for a tick.

    >>> _short(0.05), _short(20000.0), _short(1e6), _short(1.25e-5)
    ('0.05', '20000', '1e6', '1.25e-5')
    """
    text = f"{x:.6g}" if 1e-4 <= x < 1e5 else f"{x:.3e}"
    mantissa, mark, power = text.partition("e")
    return f"{float(mantissa):g}e{int(power)}" if mark else text


def scale_of(ax):
    """Return the factor by which letters and dots shrink on small axes, from 0.7 to 1."""
    return float(np.clip(inches(ax)[0] / 3.4, 0.7, 1.0))


def inches(ax):
    """Return width and height of axes in inches, before the figure is laid out."""
    box, (width, height) = ax.get_position(original=True), ax.figure.get_size_inches()
    return box.width * width, box.height * height


def characters(ax, width=None):
    """Return how many digits fit along the horizontal axis, or a width in inches."""
    return 72 * (width or inches(ax)[0]) / (0.6 * _points("xtick.labelsize") * scale_of(ax))


def lines(ax):
    """Return how many lines of numbers fit beside the vertical axis."""
    return 72 * inches(ax)[1] / (1.2 * _points("ytick.labelsize") * scale_of(ax))


def _points(name):
    """Return a font size of matplotlib's settings in points."""
    from matplotlib import rcParams
    from matplotlib.font_manager import FontProperties

    return FontProperties(size=rcParams[name]).get_size_in_points()


def finish(ax, title=None, xlabel=None, ylabel=None, *, frame=False, **legend_options):
    """Set title and labels, and fit letters to small axes; return the axes.

    `frame` keeps the upper and right side, as of a map. Without legend options there is no legend.
    """
    texts = {"title": title, "xlabel": xlabel, "ylabel": ylabel}
    ax.set(**{name: text for name, text in texts.items() if text is not None})
    if legend_options:
        legend(ax, **legend_options)
    if not frame:
        ax.spines[["top", "right"]].set_visible(False)
    scale = scale_of(ax)
    if scale < 1:
        for one in (ax, *ax.child_axes):
            one.title.set_fontsize(_points("axes.titlesize") * scale)
            for axis, name in ((one.xaxis, "xtick.labelsize"), (one.yaxis, "ytick.labelsize")):
                axis.label.set_fontsize(_points("axes.labelsize") * scale)
                axis.set_tick_params(labelsize=_points(name) * scale)
    # a title may extend over the numbers at the left
    _break(ax.title, 1.15 * inches(ax)[0], ", ", ",\n")
    for one in (ax, *ax.child_axes):
        _break(one.xaxis.label, inches(ax)[0], " (", "\n(")
        _break(one.yaxis.label, inches(ax)[1], " (", "\n(")
    return ax


def legend(ax, *handles_and_labels, **options):
    """Draw a legend in small letters; arguments as of `Axes.legend`."""
    size = 0.83 * _points("font.size") * scale_of(ax)
    title = {"title_fontsize": size} if "title" in options else {}
    return ax.legend(*handles_and_labels, fontsize=size, handlelength=1.6, **title, **options)


def band(ax, x, low, high, words=None):
    """Draw a band between two curves."""
    ax.fill_between(x, low, high, color=SKY, alpha=0.3, linewidth=0, label=words)


def zero_line(ax):
    """Draw a thin horizontal line at 0."""
    ax.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)


def estimate(ax, x, y, words, size=7):
    """Draw a diamond that marks an estimate."""
    ax.plot(x, y, "D", color=VERMILION, markersize=size, label=words)


def _break(text, length, here, instead):
    """Break a text into two lines if it is longer than a length in inches."""
    words = text.get_text()
    if 0.52 * text.get_fontsize() * len(words) > 72 * length:
        text.set_text(words.replace(here, instead, 1))


def dots(n, ax):
    """Return the area of a dot, in points squared, on axes with n dots."""
    return float(np.clip(24000.0 / n, 4.0, 36.0)) * scale_of(ax) ** 2
