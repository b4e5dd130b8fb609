"""Charts of matplotlib as SVG inside the page, with words as text and colours of its theme."""

import io
import re
import warnings
from dataclasses import dataclass

from ..plots import new_figure

CHART_WIDTH_INCHES, CHART_HEIGHT_INCHES = 4.6, 3.3
"""Letters of 9 points are then legible on a phone, where a chart fills the width."""

MATPLOTLIB_SETTINGS = {
    "svg.fonttype": "none",
    "font.size": 9.0,
    "axes.labelsize": 9.0,
    "legend.fontsize": 7.5,
    "legend.framealpha": 0.7,
    "lines.markersize": 4.5,
}

MOST_VECTOR_MARKERS, MOST_VECTOR_CORNERS = 600, 2000
"""More markers of one kind, or corners of an area, are drawn as an image."""

DOTS_PER_INCH = 220

PAPER_SHADE = 10
"""Number of the last of the greys of the page's theme, from ink (0) to paper."""

TAG = re.compile(r"<[^>]*>")
THEMED_COLOUR = re.compile(r"#([0-9a-f]{2})\1\1\b|#0072b2\b|#d55e00\b")
NEEDLESS_ATTRIBUTE = re.compile(r' id="[A-Za-z][\w.]*_\d+"|(?<=[" ])font-family: [^;"]*;? ?')
METADATA = re.compile(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", re.DOTALL)
SVG_START = re.compile(r'\A.*?<svg [^>]*?viewBox="([\d. ]+)"[^>]*>', re.DOTALL)


@dataclass(frozen=True)
class Chart:
    """An SVG element without its opening tag, which the template writes."""

    box: str  # the attribute `viewBox`
    body: str  # markupsafe.Markup of the elements and the closing tag


def chart(draw, key):
    """Return what `draw(ax=ax)` draws on matplotlib axes, without the title, as a `Chart`.

    Names inside the SVG are derived from `key`.
    """
    import matplotlib as mpl

    # the global settings are restored at the end of the block
    with mpl.rc_context(MATPLOTLIB_SETTINGS | {"svg.hashsalt": key}), warnings.catch_warnings():
        # letters that the font lacks are measured as boxes
        warnings.filterwarnings("ignore", category=UserWarning)
        figure = new_figure(CHART_WIDTH_INCHES, CHART_HEIGHT_INCHES)
        ax = figure.add_subplot()
        draw(ax=ax)
        ax.set_title("")
        for axis in (ax.xaxis, ax.yaxis):
            if hasattr(axis.get_major_formatter(), "set_useOffset"):
                axis.get_major_formatter().set_useOffset(False)
        for drawn in ax.collections:
            corners = sum(len(path.vertices) for path in drawn.get_paths())
            if len(drawn.get_offsets()) > MOST_VECTOR_MARKERS or corners > MOST_VECTOR_CORNERS:
                drawn.set_rasterized(True)
        buffer = io.StringIO()
        figure.savefig(
            buffer, format="svg", dpi=DOTS_PER_INCH, transparent=True, metadata={"Date": None}
        )
    return chart_of(buffer.getvalue())


def chart_of(text):
    """Return the text of an SVG file of matplotlib as a `Chart`.

    >>> chart_of('<?xml version="1.0"?><svg width="9pt" viewBox="0 0 9 9"><g id="axes_1"/></svg>')
    Chart(box='0 0 9 9', body=Markup('<g/></svg>'))
    """
    from markupsafe import Markup

    # a style element would apply to the whole page
    text = METADATA.sub("", text)
    start = SVG_START.match(text)
    # only tags are changed: text between them may be a name given by the user
    body = TAG.sub(
        lambda tag: THEMED_COLOUR.sub(_themed, NEEDLESS_ATTRIBUTE.sub("", tag[0])),
        text[start.end() :],
    )
    return Chart(start[1], Markup(re.sub(r"\s*\n\s*", "\n", body).rstrip()))


def _themed(match):
    """Return a colour of the page's theme: a grey between ink and paper, blue or vermilion."""
    if match[1] is None:
        return "var(--blue)" if match[0] == "#0072b2" else "var(--vermilion)"
    return f"var(--shade-{round(int(match[1], 16) / 255 * PAPER_SHADE)})"
