"""Pictures of precision: which tile has which format, and what that does to the likelihood."""

import numpy as np

from .plots import new_figure
from .precision.formats import FORMATS

COLOURS = {
    "fp64": "#08306b",
    "fp32": "#3f8fc5",
    "tf32": "#7fbf7b",
    "bf16": "#d9ef8b",
    "fp16": "#fdb863",
    "fp8": "#f7e3b5",
}


def precision_map(formats, *, ax=None):
    """Draw the format of every tile of the lower triangle, as the papers do.

    Parameters
    ----------
    formats : PrecisionMap
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    ax = new_figure(5.6, 4.8).add_subplot() if ax is None else ax
    names, counts = list(FORMATS), formats.counts()
    picture = np.full((len(formats), len(formats)), np.nan)
    for i, row in enumerate(formats.rows):
        picture[i, : i + 1] = [names.index(form.name) for form in row]
    colours = ListedColormap([COLOURS[name] for name in names])
    ax.imshow(picture, cmap=colours, vmin=-0.5, vmax=len(names) - 0.5, interpolation="none")
    ax.set(xlabel="block column", ylabel="block row")
    used = [Patch(color=COLOURS[name], label=f"{name.upper()}, {k}") for name, k in counts.items()]
    ax.legend(handles=used, title="format, tiles", loc="upper right", frameon=False)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax


def divergences(frame, n, *, ax=None):
    """Draw both KL divergences against the accuracy asked for.

    Parameters
    ----------
    frame : pandas.DataFrame
        Rows of `geomxp compare`: accuracy (or kl_target), kl, kl_log_determinant.
    n : int
        Number of places.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    ax = new_figure().add_subplot() if ax is None else ax
    by_target = "kl_target" in frame and "accuracy" not in frame
    across = frame["kl_target" if by_target else "accuracy"]
    ax.plot(across, frame["kl"].abs(), "o-", label="½(tr(Σₐ⁻¹Σ₀) - n + log|Σₐ|/|Σ₀|)")
    ax.plot(across, frame["kl_log_determinant"].abs(), "s--", label="½|log|Σₐ| - log|Σ₀||")
    ax.set(xscale="log", yscale="log", ylabel="divergence from FP64, nats", title=f"{n:,} places")
    ax.set_xlabel("target" if by_target else "accuracy ε of the tile norms")
    ax.invert_xaxis()
    ax.legend(frameon=False)
    return ax
