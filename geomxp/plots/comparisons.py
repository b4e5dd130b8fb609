"""Plots that compare fits, models and precisions, and the timeline of a run."""

from __future__ import annotations

from numbers import Integral
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InvalidInput
from ..estimation.compare import ModelComparison, frame_of_fits
from ..estimation.result import z_value
from ..linalg.formats import FORMATS
from ..linalg.precision import PrecisionMap, kind_of
from ..runtime.trace import Event, row_of
from . import axes
from .axes import BLUE, ORANGE, SKY, VERMILION, axes_of, checked, finish, plain

if TYPE_CHECKING:
    from .._typing import Axes, AxesArray, Frame, Panels, Sequence
    from ..estimation.result import Fit

MODEL_CHOICE_FORMATS = {
    "family": "{}",
    "trend": "{}",
    "smoothness": "ν {}",
    "nugget": "τ² {}",
    "anisotropic": "{}",
}
"""Columns that tell models apart, and how their values are written."""

ANISOTROPIC_WORDS = {"no": "isotropic", "yes": "anisotropic", "axes": "a range for each axis"}

NAME_LINE_CHARACTERS = 28
"""Characters in a line of a model's name."""


def influence_of_precision(
    fits: Frame | Sequence[Fit], *, level: float = 0.95, ax: Panels | None = None
) -> AxesArray:
    """Draw estimates and their intervals at each accuracy ε of the tiles, and those of FP64.

    The band is the interval of FP64. An ε whose points stay near its middle loses nothing that
    matters statistically.

    Parameters
    ----------
    fits : pandas.DataFrame or sequence of Fit
        Result of `geomxp.precision_influence`; or fits to the same data, one in FP64 and the
        others with `by_tile_norm`.
    level : float
        Of the intervals, θ̂ exp(±z s/θ̂) (of an angle θ̂ ± z s).
    ax : sequence of matplotlib.axes.Axes, optional
        One for each parameter with a standard error.

    Returns
    -------
    (k,) ndarray of matplotlib.axes.Axes

    Raises
    ------
    InvalidInput
        If the frame does not come from `precision_influence`, or FP64 has no standard errors.
    """
    z, frame = z_value(level), _influence_frame(fits)
    names = [name.removeprefix("estimate_") for name in frame if name.startswith("estimate_")]
    exact = frame[frame["precision"] == "fp64"].iloc[0]
    names = [name for name in names if exact[f"standard_error_{name}"] > 0]
    if not names:
        raise InvalidInput("the fit in FP64 has no standard errors to compare with.")
    panels = axes.panels_of(ax, len(names), width=4.4, height=3.2)
    for one, name in zip(panels, names, strict=True):
        _estimates(one, frame, name, z)
        one.set_title(name.replace("_", " ").capitalize())
        # a frame that was read from a file has no units
        units = frame.attrs.get("parameter_units")
        text = name.replace("_", " ")
        one.set_ylabel("estimate" if units is None else axes.label(text, units.get(name)))
    axes.legend(panels[0], *_legend_of(level), loc="upper left", ncols=2)
    for one in panels:
        finish(one)
    return panels


def _influence_frame(fits):
    """Return the frame of `precision_influence`."""
    if not hasattr(fits, "columns"):
        try:
            fits = list(fits)
        except TypeError:
            raise InvalidInput(
                "`fits` must be a frame of precision_influence, or a sequence of fits. "
                f"Got {type(fits).__name__}."
            ) from None
        return frame_of_fits(fits)
    if (
        not {"precision", "accuracy"} <= set(fits.columns)
        or not (fits["precision"] == "fp64").any()
    ):
        raise InvalidInput(
            "`fits` must be a frame of precision_influence, with a row for fp64. Got the columns "
            f"{', '.join(map(str, fits.columns))}."
        )
    return fits


def _estimates(ax, frame, name, z):
    """Draw the estimates of one parameter."""
    at, values = np.arange(len(frame)), frame[f"estimate_{name}"].to_numpy(dtype=float)
    errors = frame[f"standard_error_{name}"].to_numpy(dtype=float)
    if name == "anisotropy_angle":
        low, high = values - z * errors, values + z * errors
    else:
        with np.errstate(invalid="ignore", divide="ignore"):
            low, high = values * np.exp(-z * errors / values), values * np.exp(z * errors / values)
    exact = int(np.flatnonzero(frame["precision"] == "fp64")[0])
    ax.axhspan(low[exact], high[exact], color=SKY, alpha=0.3, linewidth=0, zorder=0)
    ax.axhline(values[exact], color=BLUE, linewidth=1)
    known = np.isfinite(errors)
    ends = np.array([values - low, high - values])[:, known]
    ax.errorbar(at[known], values[known], ends, fmt="o", color="0.15", markersize=5, capsize=3)
    # estimates on a boundary have no standard error
    bare = ~known & np.isfinite(values)
    ax.plot(at[bare], values[bare], "o", color="0.15", markerfacecolor="white", markersize=5)
    for k in np.flatnonzero(~np.isfinite(values)):
        ax.text(at[k], 0.5, "no estimate", rotation=90, ha="center", va="center",
                color=VERMILION, transform=ax.get_xaxis_transform())  # fmt: skip
    # space for a legend
    bottom, top = np.nanmin(np.append(low, values)), np.nanmax(np.append(high, values))
    ax.set_ylim(bottom - 0.08 * (top - bottom), top + 0.25 * (top - bottom))
    ax.set_xticks(at, ["FP64" if word == "fp64" else word for word in frame["precision"]])
    ax.set(xlim=(-0.6, len(frame) - 0.4), xlabel="accuracy ε of the tiles")


def _legend_of(level):
    """Return handles and labels of the legend."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    words = [f"FP64, {100 * level:g} %", f"at ε, {100 * level:g} %"]
    point = Line2D([], [], marker="o", color="0.15", markersize=5)
    return [Patch(color=SKY, alpha=0.3), point], words


def model_weights(comparison: ModelComparison, *, most: int = 12, ax: Axes | None = None) -> Axes:
    """Draw the weights of compared models, exp(-Δ/2) over their sum, with the best on top.

    With AIC they are Akaike weights; with BIC they approximate posterior probabilities for equal
    prior probabilities.

    Parameters
    ----------
    comparison : ModelComparison
    most : int
        Number of models to draw; the label of the axis gives the total weight of the others.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes
    """
    checked("comparison", comparison, ModelComparison)
    if not (isinstance(most, Integral) and not isinstance(most, bool) and most >= 1):
        raise InvalidInput(f"`most` must be a whole number of at least 1. Got {most!r}.")
    frame = comparison.to_frame()
    rest, frame = frame[most:], frame[:most]
    names = _names(comparison.to_frame(), len(frame))
    ax = axes_of(ax, 6.4, 1.3 + sum(0.16 + 0.16 * (1 + name.count("\n")) for name in names))
    weights = frame["weight"].fillna(0.0)
    ax.barh(np.arange(len(frame)), weights, color=BLUE, alpha=0.75)
    for k, (weight, delta) in enumerate(zip(frame["weight"], frame["delta"], strict=True)):
        # a model without a maximum has no criterion
        words = f"Δ {delta:.1f}" if delta == delta else "no maximum"
        ax.text((weight if weight == weight else 0.0) + 0.01, k, words, va="center",
                fontsize="small", color="0.15" if delta == delta else VERMILION)  # fmt: skip
    ax.set_yticks(np.arange(len(frame)), names)
    ax.invert_yaxis()
    name = comparison.criterion.upper().replace("AICC", "AICc")
    words = f"weight by {name}"
    if len(rest):
        words += f"\nthe other {len(rest)} together {rest['weight'].sum():.2g}"
    ax.set(xlim=(0, min(1.15, 1.25 * weights.max())))
    title = f"{len(comparison.candidates)} models, {comparison.best.observations.count_in_words}"
    return finish(ax, title + (" (REML)" if comparison.reml else ""), words)


def _names(frame, count):
    """Return names of the first models from the choices that differ, broken into short lines."""
    told = [name for name in MODEL_CHOICE_FORMATS if name in frame and frame[name].nunique() > 1]
    told = told or ["trend"]
    names = []
    for _, row in frame[:count].iterrows():
        words = dict(row, anisotropic=ANISOTROPIC_WORDS[row["anisotropic"]])
        parts = [MODEL_CHOICE_FORMATS[name].format(plain(words[name])) for name in told]
        names.append(fill(", ".join(parts), NAME_LINE_CHARACTERS))
    return names


# Formats of tiles, and their effect on the likelihood.


DIVERGENCE_AXIS_LABELS = {
    "accuracy": "accuracy ε of the tile norms",
    "kl_target": "target of the divergence (nats)",
    "neighbours": "neighbours",
}
"""Labels of the columns that divergences are drawn against."""


def precision_map(formats: PrecisionMap, *, ax: Axes | None = None) -> Axes:
    """Draw the format of every tile of the lower triangle.

    Parameters
    ----------
    formats : PrecisionMap
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes
    """
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    checked("formats", formats, PrecisionMap)
    ax = axes_of(ax, 5.6, 4.8)
    low = {kind_of(FORMATS["fp64"], True): VERMILION, kind_of(FORMATS["fp32"], True): ORANGE}
    colors = {name: form.color for name, form in FORMATS.items()} | low
    names, counts = list(colors), formats.counts()
    picture = np.full((len(formats), len(formats)), np.nan)
    for i, row in enumerate(formats.rows):
        kinds = [kind_of(form, formats.is_low(i, k)) for k, form in enumerate(row)]
        picture[i, : i + 1] = [names.index(kind) for kind in kinds]
    colours = ListedColormap(list(colors.values()))
    ax.imshow(picture, cmap=colours, vmin=-0.5, vmax=len(names) - 0.5, interpolation="none")
    for axis in (ax.xaxis, ax.yaxis):
        axis.get_major_locator().set_params(integer=True)
    used = counts.items()
    spelled = {name: name.replace("fp", "FP") if name in low else name.upper() for name in colors}
    used = [Patch(color=colors[name], label=f"{spelled[name]}, {k}") for name, k in used]
    axes.legend(ax, handles=used, title="format, tiles", loc="upper right", frameon=False)
    return finish(ax, None, "tile column", "tile row")


def divergences(frame: Frame, n: int, *, ax: Axes | None = None) -> Axes:
    """Draw two KL divergences against the accuracy, the target or the number of neighbours.

    Parameters
    ----------
    frame : pandas.DataFrame
        Rows as `geomxp compare` writes them, with the columns kl, kl_log_determinant, and one of
        accuracy, kl_target and neighbours.
    n : int
        Number of locations.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InvalidInput
        If the frame lacks one of these columns.
    """
    ax = axes_of(ax)
    columns = getattr(frame, "columns", ())
    across = next((name for name in DIVERGENCE_AXIS_LABELS if name in columns), None)
    if across is None or not {"kl", "kl_log_determinant"} <= set(columns):
        raise InvalidInput(
            "`frame` must have kl, kl_log_determinant and one of "
            f"{', '.join(DIVERGENCE_AXIS_LABELS)}, as `geomxp compare` writes it. "
            f"Got {', '.join(map(str, columns)) or 'no columns'}."
        )
    x = frame[across]
    ax.plot(x, frame["kl"].abs(), "o-", color=BLUE, label="½(tr(Σₐ⁻¹Σ₀) − n + log|Σₐ|/|Σ₀|)")
    logarithms = "½|log|Σₐ| − log|Σ₀||"
    ax.plot(x, frame["kl_log_determinant"].abs(), "s--", color=VERMILION, label=logarithms)
    ax.set(xscale="log", yscale="log")
    exact = "FP64"
    if across == "neighbours":
        ax.set_xticks(x, [str(m) for m in x], minor=False)
        ax.set_xticks([], minor=True)
        exact = "the exact model"
    else:
        ax.invert_xaxis()
    labels = DIVERGENCE_AXIS_LABELS[across], f"divergence from {exact} (nats)"
    return finish(ax, f"{n:,} locations", *labels, frameon=False)


# Copies and kernels of a run over time.


WORK_COLOURS = {
    "leave": "#969696",
    "return": "#636363",
    "original": "#9e9ac8",
    "solve": "#e6550d",
    "factor": "#a50f15",
    "write": "#bdbdbd",
}
"""Colours of kinds of work; other kinds have the colours of their formats."""


def timeline(events: Sequence[Event], *, device: int = 0, ax: Axes | None = None) -> Axes:
    """Draw the copies and kernels of one device against time.

    Parameters
    ----------
    events : sequence of geomxp.runtime.trace.Event
    device : int
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InvalidInput
        If the device has no events.
    """
    from matplotlib.patches import Patch

    ax = axes_of(ax, 8.0, 3.2)
    if not isinstance(events, (list, tuple)) or not all(isinstance(one, Event) for one in events):
        raise InvalidInput(
            "`events` must be the events of an evaluation, of Exact(trace=True). "
            f"Got {events!r:.60}."
        )
    everything = events
    events = [event for event in everything if event.device == device]
    if not events:
        known = ", ".join(map(str, sorted({event.device for event in everything})))
        others = f"devices with events are {known}" if known else "the sequence is empty"
        raise InvalidInput(f"`events` has no event of device {device!r}; {others}.")
    rows = sorted({row_of(event) for event in events}, key=lambda row: ("stream" in row, row))
    used = {}
    for number, row in enumerate(rows):
        mine = [event for event in events if row_of(event) == row]
        spans = [(event.begin, event.end - event.begin) for event in mine]
        labels = [_label(event) for event in mine]
        used |= dict.fromkeys(labels)
        ax.broken_barh(spans, (number - 0.4, 0.8), facecolors=[_colour(word) for word in labels])
    ax.set_yticks(range(len(rows)), [row if "stream" in row else f"copies {row}" for row in rows])
    ax.invert_yaxis()
    patches = [
        Patch(color=_colour(word), label=word.upper() if word in FORMATS else word)
        for word in sorted(used)
    ]
    where = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
    return finish(ax, None, "seconds", handles=patches, frameon=False, **where)


def _label(event):
    return event.kind if event.kind in WORK_COLOURS else event.form


def _colour(label):
    return WORK_COLOURS.get(label) or FORMATS[label].color
