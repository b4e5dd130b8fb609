"""Pictures of a report as SVG inside its page: words stay words, colours follow its theme."""

import io
import re
import warnings
from dataclasses import dataclass

from ..plots import new_figure

WIDTH, HEIGHT = 4.6, 3.3
"""Inches: with letters of 9 points they can be read on a phone, where a picture is as wide."""

STYLE = {
    "svg.fonttype": "none",
    "font.size": 9.0,
    "axes.labelsize": 9.0,
    "legend.fontsize": 7.5,
    "legend.framealpha": 0.7,
    "lines.markersize": 4.5,
}

MANY, CORNERS = 600, 2000
"""Marks of one kind, and corners of an area, of which more are drawn as an image."""

DOTS_PER_INCH = 220

SHADES = 10
"""Greys of the page's theme, from ink (0) to paper (10)."""

TAG = re.compile(r"<[^>]*>")
COLOUR = re.compile(r"#([0-9a-f]{2})\1\1\b|#0072b2\b|#d55e00\b")
NEEDLESS = re.compile(r' id="[A-Za-z][\w.]*_\d+"|(?<=[" ])font-family: [^;"]*;? ?')
PROLOGUE = re.compile(r"\A.*?(?=<svg )", re.DOTALL)
METADATA = re.compile(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", re.DOTALL)
SIZE = re.compile(r'<svg [^>]*?viewBox="([\d. ]+)"[^>]*>')


@dataclass(frozen=True)
class Picture:
    """A picture of the report.

    Parameters
    ----------
    title : str
    caption : str
    svg : markupsafe.Markup
        An element whose `aria-label` says what can be seen.
    """

    title: str
    caption: str
    svg: str


def picture(draw, title, caption, alt, *, width=WIDTH, height=HEIGHT):
    """Return what a function of `geomxp.plots` draws.

    Parameters
    ----------
    draw : callable
        Of matplotlib axes; the title that it gives them is left to the page.
    title, caption, alt : str
        `alt` says in words what the picture shows.
    width, height : float
        In inches.

    Returns
    -------
    Picture
    """
    import matplotlib as mpl

    # restored at the end: the state that all share is borrowed for one picture
    with mpl.rc_context(STYLE | {"svg.hashsalt": title}), warnings.catch_warnings():
        # a name in letters that the font does not have is measured by boxes
        warnings.filterwarnings("ignore", category=UserWarning)
        figure = new_figure(width, height)
        ax = figure.add_subplot()
        draw(ax)
        ax.set_title("")
        _plain_numbers(ax)
        _rasterize_many(ax)
        buffer = io.StringIO()
        figure.savefig(
            buffer,
            format="svg",
            dpi=DOTS_PER_INCH,
            transparent=True,
            metadata={"Date": None},
        )
    return Picture(title, caption, element(buffer.getvalue(), alt))


def _plain_numbers(ax):
    """Let no axis count from a number that stands apart from it."""
    for axis in (ax.xaxis, ax.yaxis):
        if hasattr(axis.get_major_formatter(), "set_useOffset"):
            axis.get_major_formatter().set_useOffset(False)


def _rasterize_many(ax):
    """Let marks and areas be dots of an image where they would make the page long."""
    for drawn in ax.collections:
        corners = sum(len(path.vertices) for path in drawn.get_paths())
        if len(drawn.get_offsets()) > MANY or corners > CORNERS:
            drawn.set_rasterized(True)


def element(text, alt):
    """Return matplotlib's SVG as an element of a page.

    Parameters
    ----------
    text : str
        A whole file.
    alt : str

    Returns
    -------
    markupsafe.Markup

    Examples
    --------
    >>> text = '<?xml version="1.0"?><svg width="9pt" viewBox="0 0 9 9"><g id="axes_1"/></svg>'
    >>> print(element(text, "x < y"))
    <svg class="chart" viewBox="0 0 9 9" role="img" aria-label="x &lt; y"><g/></svg>
    """
    from markupsafe import Markup, escape

    # a rule for all elements in it would hold for those of the whole page
    body = METADATA.sub("", PROLOGUE.sub("", text, count=1))
    first = SIZE.match(body)
    # within tags: between them are names, which stay as they are
    rest = TAG.sub(lambda tag: COLOUR.sub(_themed, NEEDLESS.sub("", tag[0])), body[first.end() :])
    start = f'<svg class="chart" viewBox="{first[1]}" role="img" aria-label="{escape(alt)}">'
    return Markup(start + re.sub(r"\s*\n\s*", "\n", rest).rstrip())


def _themed(match):
    """Return a colour of the page's theme: a grey between ink and paper, its blue, its red."""
    if match[1] is None:
        return "var(--blue)" if match[0] == "#0072b2" else "var(--vermilion)"
    return f"var(--shade-{round(int(match[1], 16) / 255 * SHADES)})"
