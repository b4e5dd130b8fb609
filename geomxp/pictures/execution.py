"""Pictures of a run: what moved and what was computed, when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import InvalidInput
from ..execution.trace import row_of
from .axes import axes_of, finish, legend
from .precision import COLOURS

if TYPE_CHECKING:
    from ..annotations import Axes, Event, Sequence

KERNELS = {
    "leave": "#969696",
    "return": "#636363",
    "original": "#9e9ac8",
    "solve": "#e6550d",
    "factor": "#a50f15",
    "write": "#bdbdbd",
}
"""Colours of all but copies in and out and updates, which have their formats'."""


def timeline(events: Sequence[Event], *, device: int = 0, ax: Axes | None = None) -> Axes:
    """Draw the copies and kernels of one device against time, as paper 001's Figure 13.

    Parameters
    ----------
    events : sequence of geomxp.execution.trace.Event
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
    everything = list(events)
    events = [event for event in everything if event.device == device]
    if not events:
        known = ", ".join(map(str, sorted({event.device for event in everything}))) or "none"
        raise InvalidInput(f"`events` hold none of device {device!r}; devices with any: {known}.")
    rows = sorted({row_of(event) for event in events}, key=lambda row: ("stream" in row, row))
    used = {}
    for number, row in enumerate(rows):
        mine = [event for event in events if row_of(event) == row]
        spans = [(event.begin, event.end - event.begin) for event in mine]
        labels = [_label(event) for event in mine]
        used |= dict.fromkeys(labels)
        ax.broken_barh(spans, (number - 0.4, 0.8), facecolors=[_colour(word) for word in labels])
    ax.set_yticks(range(len(rows)), [row if "stream" in row else f"copies {row}" for row in rows])
    ax.set_xlabel("seconds")
    ax.invert_yaxis()
    patches = [
        Patch(color=_colour(word), label=word.upper() if word in COLOURS else word)
        for word in sorted(used)
    ]
    legend(ax, handles=patches, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    finish(ax)
    return ax


def _label(event):
    return event.kind if event.kind in KERNELS else event.form


def _colour(label):
    return KERNELS.get(label) or COLOURS[label]
