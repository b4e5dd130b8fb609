"""Pictures of precision: which tile has which format, and what that does to the likelihood."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..errors import InvalidInput
from ..precision.formats import FORMATS
from ..precision.map import PrecisionMap
from .axes import BLUE, VERMILION, axes_of, checked, finish, legend

if TYPE_CHECKING:
    from ..annotations import Axes, Frame

COLOURS = {
    "fp64": "#08306b",
    "fp32": "#3f8fc5",
    "tf32": "#7fbf7b",
    "bf16": "#d9ef8b",
    "fp16": "#fdb863",
    "fp8": "#f7e3b5",
}

ACROSS = {
    "accuracy": "accuracy ε of the tile norms",
    "kl_target": "target of the divergence (nats)",
    "neighbours": "neighbours",
}
"""What divergences are drawn against, and its words."""


def precision_map(formats: PrecisionMap, *, ax: Axes | None = None) -> Axes:
    """Draw the format of every tile of the lower triangle, as the papers do.

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
    names, counts = list(FORMATS), formats.counts()
    picture = np.full((len(formats), len(formats)), np.nan)
    for i, row in enumerate(formats.rows):
        picture[i, : i + 1] = [names.index(form.name) for form in row]
    colours = ListedColormap([COLOURS[name] for name in names])
    ax.imshow(picture, cmap=colours, vmin=-0.5, vmax=len(names) - 0.5, interpolation="none")
    ax.set(xlabel="tile column", ylabel="tile row")
    for axis in (ax.xaxis, ax.yaxis):
        axis.get_major_locator().set_params(integer=True)
    used = [Patch(color=COLOURS[name], label=f"{name.upper()}, {k}") for name, k in counts.items()]
    legend(ax, handles=used, title="format, tiles", loc="upper right", frameon=False)
    finish(ax)
    return ax


def divergences(frame: Frame, n: int, *, ax: Axes | None = None) -> Axes:
    """Draw both KL divergences against the accuracy, the target or the number of neighbours.

    Parameters
    ----------
    frame : pandas.DataFrame
        Rows of `geomxp compare`: kl, kl_log_determinant, and one of accuracy, kl_target and
        neighbours.
    n : int
        Number of places.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InvalidInput
        If the frame is another one.
    """
    ax = axes_of(ax)
    columns = getattr(frame, "columns", ())
    across = next((name for name in ACROSS if name in columns), None)
    if across is None or not {"kl", "kl_log_determinant"} <= set(columns):
        raise InvalidInput(
            f"`frame` must have kl, kl_log_determinant and one of {', '.join(ACROSS)}, as "
            f"`geomxp compare` writes it. Got {', '.join(map(str, columns)) or 'no columns'}."
        )
    x = frame[across]
    ax.plot(x, frame["kl"].abs(), "o-", color=BLUE, label="½(tr(Σₐ⁻¹Σ₀) − n + log|Σₐ|/|Σ₀|)")
    logarithms = "½|log|Σₐ| − log|Σ₀||"
    ax.plot(x, frame["kl_log_determinant"].abs(), "s--", color=VERMILION, label=logarithms)
    ax.set(xscale="log", yscale="log", title=f"{n:,} places")
    ax.set(xlabel=ACROSS[across], ylabel="divergence from FP64 (nats)")
    if across == "neighbours":
        ax.set_xticks(x, [str(m) for m in x], minor=False)
        ax.set_xticks([], minor=True)
        ax.set_ylabel("divergence from the exact model (nats)")
    else:
        ax.invert_xaxis()
    legend(ax, frameon=False)
    finish(ax)
    return ax
