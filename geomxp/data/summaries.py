"""Summaries of observations and results as text and HTML."""

from html import escape

import numpy as np


def counted(count, noun):
    """Return a count with its noun.

    Examples
    --------
    >>> counted(1, "time"), counted(1200, "time")
    ('1 time', '1,200 times')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def few(names, most=6):
    """Return names as one line: the first ones, and their number if some are left out.

    Examples
    --------
    >>> few("abc"), few("abcdefgh")
    ('a, b, c', 'a, b, c, d, e, f, … (8)')
    """
    shown = ", ".join(str(name) for name in names[:most])
    return f"{shown}, … ({len(names)})" if len(names) > most else shown


def _rows(columns):
    """Return (name, cells) of each column: minimum, median and maximum, or one text."""
    for name, column in columns.items():
        if isinstance(column, tuple):
            yield name, (f"levels: {few(column)}",)
            continue
        known = column[np.isfinite(column)]
        numbers = (known.min(), np.median(known), known.max()) if len(known) else ()
        yield name, tuple(f"{number:.6g}" for number in numbers) or ("no numbers",)


def summary(title, columns):
    """Return the minimum, median and maximum of columns as a table of text.

    Parameters
    ----------
    title : str
    columns : dict of str to (n,) ndarray or tuple of str
        NaN are left out; a tuple holds the levels of a column of text.

    Examples
    --------
    >>> print(summary("Soil", {"x": np.array([1.0, 5.0, 2.0]), "rock": ("clay", "sand")}))
    Soil
    <BLANKLINE>
             minimum      median     maximum
    x              1           2           5
    rock    levels: clay, sand
    """
    width = max(map(len, columns))
    lines = [title, "", f"{'':<{width}}{'minimum':>12}{'median':>12}{'maximum':>12}"]
    for name, cells in _rows(columns):
        form = "{:>12}" if len(cells) == 3 else "    {}"
        lines.append(f"{name:<{width}}{''.join(map(form.format, cells))}")
    return "\n".join(lines)


def summary_html(title, columns):
    """Return `summary` as HTML, for notebooks."""
    heads = "".join(f"<th>{name}</th>" for name in ("", "minimum", "median", "maximum"))
    lines = []
    for name, cells in _rows(columns):
        span = "" if len(cells) == 3 else ' colspan="3"'
        row = "".join(f"<td{span}>{escape(cell)}</td>" for cell in cells)
        lines.append(f"<tr><th>{escape(str(name))}</th>{row}</tr>")
    return f"<p>{escape(title)}</p><table><tr>{heads}</tr>{''.join(lines)}</table>"
