"""Results as tables with colours on a terminal. Colours are left out if NO_COLOR is set."""

import re

from ..errors import Ending, Outcome
from ..estimation.names import titles

SHOWN_ROWS = 40
"""Rows of a table on a terminal; files have all rows."""


def styled(text):
    """Return text with a bold heading, cyan names, and outcomes in green or yellow."""
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


def fit(fitted, intervals=None):
    """Return a fit, with intervals of `commands.intervals_of`, as a table for a terminal."""
    from rich.console import Group
    from rich.text import Text

    head, _, rest = str(fitted).partition("\n")
    facts, outcome, after = rest.partition(str(fitted.outcome))
    facts = re.split(r"\n\s*\n", facts.strip())[-1]
    notes = Text("\n".join(line.strip() for line in after.strip().splitlines()), style="dim")
    parts = (Text(head, style="bold"), _estimates(fitted, intervals), styled(facts), Text())
    return Group(*parts, styled(outcome), notes)


def _estimates(fitted, intervals):
    """Return the table of parameters and coefficients of a fit."""
    columns = ["parameter", "estimate", "std. error"]
    level = intervals["level"] if intervals else 0.95
    coefficients = fitted.coefficient_table(level).set_index("coefficient")
    if intervals or len(coefficients):
        columns += [f"{100 * level:g} % from", "to"]
    table = Wide(columns)
    names = titles(fitted.model, fitted.observations)
    for row in fitted.to_frame().itertuples(index=False):
        name = names.get(row.parameter, row.parameter)
        if row.parameter in fitted.trend.names:
            name = f"trend: {row.parameter}"
        cells = [_cell(name), _cell(row.estimate), _cell(row.standard_error, ".5g")]
        if row.parameter in coefficients.index:
            cells += map(_cell, coefficients.loc[row.parameter, ["lower", "upper"]])
        elif intervals and row.parameter in intervals["parameters"]:
            lower, upper = intervals["parameters"][row.parameter]
            cells += [_cell(lower), "infinity" if upper is None else _cell(upper)]
        table.add_row(*cells)
    return table


def ranking(comparison):
    """Return a comparison of models as a table for a terminal, with the reasons of failures."""
    from rich.console import Group

    name = {"aic": "AIC", "aicc": "AICc", "bic": "BIC"}[comparison.criterion]
    titles = {"anisotropic": "anis.", "parameters": "k", "log_likelihood": "log-lik."}
    data = comparison.to_frame().rename(columns=titles | {comparison.criterion: name})
    data["outcome"] = data["outcome"].str.split(":").str[0]
    columns = ["trend", "smoothness", "nugget", "anis.", "k", "log-lik.", name, "delta", "weight"]
    # there is a column of families if several were compared
    columns = [*data.columns.intersection(["family"]), *columns]
    formats = {"log-lik.": ".2f", name: ".2f", "delta": ".2f", "weight": ".3f"}
    head, _, rest = str(comparison).partition("\n\n")
    table = frame(data[[*columns, "outcome"]], head, best=0, formats=formats)
    return Group(table, *map(styled, rest.split("\n\n")[1:]))


def tables(lists):
    """Return lists of rows as one table below the other; empty ones are left out."""
    import pandas as pd
    from rich.console import Group

    return Group(*(frame(pd.DataFrame(rows)) for rows in lists if rows))


def frame(data, head="", best=None, formats=None):
    """Return the first and last rows of a pandas frame as a table for a terminal.

    `head` is a line above the table, `best` a row to highlight; `formats` has formats of numbers
    by column, such as ".2f".
    """
    from pandas.api.types import is_numeric_dtype
    from rich.console import Group
    from rich.text import Text

    numeric = [is_numeric_dtype(kind) for kind in data.dtypes]
    formats = [(formats or {}).get(name, ".6g") for name in data.columns]
    table, gap = Wide(data.columns, numeric), len(data) > SHOWN_ROWS
    ends = [*range(SHOWN_ROWS // 2), *range(-(SHOWN_ROWS // 2), 0)] if gap else range(len(data))
    for k, row in enumerate(data.iloc[ends].itertuples(index=False)):
        if gap and k == SHOWN_ROWS // 2:
            table.add_row(*["…"] * len(data.columns))
        table.add_row(*map(_cell, row, formats), style="green" if k == best else None)
    parts = [Text(head, style="bold")] if head else []
    if gap:
        parts.append(Text(f"{len(data):,} rows, of which {SHOWN_ROWS} are shown", style="dim"))
    return Group(*parts, table)


class Wide:
    """A table that a narrow terminal shows in parts, each with the first column.

    By default all columns but the first hold numbers.
    """

    def __init__(self, columns, numeric=None):
        self.columns = list(map(str, columns))
        self.numeric = [bool(k) for k in range(len(self.columns))] if numeric is None else numeric
        self.rows = []

    def add_row(self, *cells, style=None):
        """Add a row; missing cells at its end are empty."""
        self.rows.append(([*cells, *[""] * (len(self.columns) - len(cells))], style))

    def __rich_console__(self, console, options):
        """Yield one table if it fits, or as few as do."""
        unlimited, chosen = options.update(width=10**4), [0]
        for k in range(1, len(self.columns)):
            wider = self._part([*chosen, k])
            fits = wider.__rich_measure__(console, unlimited).maximum <= options.max_width
            # at least one column beside the first, even if the names have to be folded
            if not fits and len(chosen) > 1:
                yield self._part(chosen)
                chosen = [0]
            chosen.append(k)
        yield self._part(chosen)

    def _part(self, chosen):
        """Return a table of some columns."""
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for k in chosen:
            justify = "right" if self.numeric[k] else "left"
            table.add_column(self.columns[k], justify=justify, no_wrap=bool(k), overflow="fold")
        table.columns[0].style = "cyan"
        for cells, style in self.rows:
            table.add_row(*(cells[k] for k in chosen), style=style)
        return table


def _cell(value, form=".6g"):
    """Return the text of a cell; empty for a missing value."""
    from pandas import isna
    from rich.text import Text

    if isna(value):
        return ""
    # Text, because rich reads brackets in names of columns as markup
    return Text(format(value, form) if isinstance(value, float) else str(value))
