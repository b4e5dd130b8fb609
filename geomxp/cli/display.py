"""Results for people: tables with colour on a terminal, plain text wherever else they go.

What is piped is the text of `str(result)`, the same on every machine; colours follow NO_COLOR.
"""

import json
import re
import sys
import warnings
from dataclasses import dataclass

from ..errors import Ending, GeomxpWarning, Outcome

MOST = 40
"""Rows of a table on the screen; files have all."""


@dataclass(frozen=True)
class Screen:
    """What a command may say.

    Parameters
    ----------
    as_json : bool
        The result is one JSON object.
    quiet : bool
        Nothing but the result: no progress, notes or warnings.
    """

    as_json: bool = False
    quiet: bool = False

    def __post_init__(self):
        if self.quiet:
            # the command line puts the filters back
            warnings.simplefilter("ignore", GeomxpWarning)

    @property
    def progress(self):
        """Whether a line on the terminal may say how far the work is."""
        return not (self.as_json or self.quiet)

    def result(self, document, text, picture=None):
        """Print a result.

        Parameters
        ----------
        document, text : callable
            Return its JSON object, and its plain text.
        picture : callable, optional
            Returns what rich draws on a terminal; the text in colour if not given.
        """
        if self.as_json:
            print(json.dumps(document(), allow_nan=False), flush=True)
        elif sys.stdout is not None and sys.stdout.isatty():
            from rich.console import Console

            Console(file=sys.stdout, highlight=False).print(
                picture() if picture else styled(text())
            )
        else:
            print(text(), flush=True)

    def note(self, text):
        """Print what else there is to know, such as which file holds the result."""
        if self.progress:
            print(text, flush=True)


def styled(text):
    """Return a text of names and values in colour: a heading, names, how things ended.

    Parameters
    ----------
    text : str

    Returns
    -------
    rich.text.Text
    """
    from rich.text import Text

    shown = Text(text)
    if text.split("\n", 2)[1:2] == [""]:
        shown.highlight_regex(r"\A.+", "bold")
    shown.highlight_regex(r"(?m)^ *[^\W\d]\S*(?: \S+)*?(?=  )|^\S.*:$", "cyan")
    for ending in Ending:
        style = "green" if Outcome(ending).good else "yellow"
        shown.highlight_regex(rf"\b{ending}\b", style)
    shown.highlight_regex(r"\b(?:missing|not usable|none usable)\b.*", "yellow")
    return shown


def fit(found, intervals=None):
    """Return the picture of a fit, with intervals where there are some.

    Parameters
    ----------
    found : Fit
    intervals : dict, optional
        What `choices.intervals_of` returns.

    Returns
    -------
    rich.console.Group
    """
    from rich.console import Group
    from rich.text import Text

    head, _, rest = str(found).partition("\n")
    facts, outcome, after = rest.partition(str(found.outcome))
    facts = re.split(r"\n\s*\n", facts.strip())[-1]
    notes = Text("\n".join(line.strip() for line in after.strip().splitlines()), style="dim")
    parts = (Text(head, style="bold"), _estimates(found, intervals), styled(facts), Text())
    return Group(*parts, styled(outcome), notes)


def _estimates(found, intervals):
    """Return the table of a fit's parameters and coefficients."""
    columns = ["parameter", "estimate", "std. error"]
    if intervals:
        columns += [f"{100 * intervals['level']:g} % from", "to"]
    table = _table(columns)
    for row in found.to_frame().itertuples(index=False):
        name = row.parameter.replace("_", " ")
        if row.parameter in found.trend.names:
            name = f"trend: {row.parameter}"
        cells = [_cell(name), _cell(row.estimate), _cell(row.standard_error, ".5g")]
        if intervals and row.parameter in intervals["parameters"]:
            lower, upper = intervals["parameters"][row.parameter]
            cells += [_cell(lower), "infinity" if upper is None else _cell(upper)]
        table.add_row(*cells)
    return table


def _table(columns, numeric=None):
    """Return an empty table; all columns but the first hold numbers if nothing else is said."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for k, name in enumerate(columns):
        right = bool(k) if numeric is None else numeric[k]
        about = {"justify": "right" if right else "left", "no_wrap": bool(k), "overflow": "fold"}
        table.add_column(str(name), **about)
    table.columns[0].style = "cyan"
    return table


def _cell(value, form=".6g"):
    """Return what stands in a cell: nothing for a number that is none."""
    from pandas import isna
    from rich.text import Text

    if isna(value):
        return ""
    # no markup: names of a formula's columns have brackets
    return Text(format(value, form) if isinstance(value, float) else str(value))


def frame(data, head="", best=None, forms=None):
    """Return the picture of a pandas frame: its first and last rows, if it has many.

    Parameters
    ----------
    data : pandas.DataFrame
    head : str
        A line above it.
    best : int, optional
        A row to point out.
    forms : dict of str to str, optional
        How to write the numbers of a column: ".2f".

    Returns
    -------
    rich.console.Group
    """
    from pandas.api.types import is_numeric_dtype
    from rich.console import Group
    from rich.text import Text

    numeric = [is_numeric_dtype(kind) for kind in data.dtypes]
    forms = [(forms or {}).get(name, ".6g") for name in data.columns]
    table, gap = _table(data.columns, numeric), len(data) > MOST
    ends = [*range(MOST // 2), *range(-(MOST // 2), 0)] if gap else range(len(data))
    for k, row in enumerate(data.iloc[ends].itertuples(index=False)):
        if gap and k == MOST // 2:
            table.add_row(*["…"] * len(data.columns))
        table.add_row(*map(_cell, row, forms), style="green" if k == best else None)
    parts = [Text(head, style="bold")] if head else []
    if gap:
        parts.append(Text(f"{len(data):,} rows, of which {MOST} are shown", style="dim"))
    return Group(*parts, table)
