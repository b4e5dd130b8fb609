"""CSV tables as people have them: commas, semicolons or tabs, decimal commas, spaces in headers."""

import csv
import re
from collections import Counter
from pathlib import Path

import numpy as np

from ..errors import InvalidInput

SEPARATORS = ",;\t"
"""What may stand between cells: the one that the header has most of, commas where it has none."""

SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".ods")

DECIMAL_COMMA = r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?"


def read(path):
    """Read a CSV table; cells stay text.

    Spaces around names of columns are no part of them. Where semicolons or tabs stand between
    cells, a column whose numbers have commas, and none a point, has decimal commas.

    Parameters
    ----------
    path : path

    Returns
    -------
    pandas.DataFrame

    Raises
    ------
    InvalidInput
        If the file is empty, no UTF-8 text or no table, or two columns have one name.
    """
    import pandas as pd

    path = Path(path)
    if path.suffix.lower() in SPREADSHEETS:
        raise InvalidInput(f"{path}: spreadsheets are not read: save the sheet as CSV (UTF-8).")
    try:
        names, separator = header(path)
        frame = pd.read_csv(path, sep=separator, **AS_TEXT)
    except pd.errors.EmptyDataError:
        raise InvalidInput(f"{path}: the file is empty.") from None
    except UnicodeError as error:
        raise InvalidInput(f"{path}: not UTF-8 text ({error.reason}): save it as UTF-8.") from None
    except (pd.errors.ParserError, ValueError, OSError, EOFError) as error:
        raise InvalidInput(f"{path}: {_complaint(error)}") from None
    # a first row longer than the header makes pandas take the first column as an index
    if not isinstance(frame.index, pd.RangeIndex) or len(names) != frame.shape[1]:
        raise InvalidInput(
            f"{path}: row 1 has more cells than the header has names: the first line must name "
            f"every column. Got {', '.join(names)[:60]!r}."
        )
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InvalidInput(f"{path}: two columns are called {twice[0]!r}: rename one of them.")
    frame.columns = names
    return frame if separator == "," else _with_points(frame)


AS_TEXT = {"dtype": str, "keep_default_na": False, "encoding": "utf-8-sig"}


def header(path):
    """Return the names of the columns, and what stands between cells."""
    import pandas as pd

    # one cell: the whole line
    line = pd.read_csv(path, sep="\x1f", header=None, nrows=1, quoting=csv.QUOTE_NONE, **AS_TEXT)
    text = "" if line.empty else str(line.iloc[0, 0])
    separator = "\t" if ".tsv" in Path(path).suffixes else separator_of(text)
    names = pd.read_csv(path, sep=separator, header=None, nrows=1, **AS_TEXT)
    cells = [] if names.empty else [" ".join(str(name).split()) for name in names.iloc[0]]
    # with a space before it a quotation mark does not count as one
    bare = [re.sub(r'^"(.*)"$', r"\1", cell).strip() for cell in cells]
    return [name or f"Unnamed: {k}" for k, name in enumerate(bare)], separator


def separator_of(line):
    r"""Return what stands between the names of a header.

    Examples
    --------
    >>> separator_of('x;y;"pH, wet"'), separator_of("depth"), separator_of("x\ty")
    (';', ',', '\t')
    """
    unquoted = re.sub(r'"[^"]*"', "", line)
    return max(SEPARATORS, key=unquoted.count)


def _complaint(error):
    """Return what is wrong with a table, of what pandas says."""
    said = " ".join(str(error).split())
    found = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", said)
    if found is None:
        return f"not a CSV table ({said[:160].rstrip('.')})."
    known, line, cells = found.groups()
    return (
        f"not a CSV table: line {line} has {cells} cells and the first line {known} names: name "
        "every column, and put quotation marks around cells with commas."
    )


def _with_points(frame):
    """Return the frame with a point for each decimal comma."""
    for name in frame.columns:
        text = frame[name].astype("string").str.strip()
        commas = text.str.fullmatch(DECIMAL_COMMA).fillna(False)
        if commas.any() and not text.str.contains(".", regex=False).any():
            frame[name] = frame[name].where(~commas, text.str.replace(",", "."))
    return frame


ADVICE = (
    (r"\d{4}-\d\d?-\d\d?.*|\d\d?[./]\d\d?[./]\d{2,4}.*", "write dates as numbers: days, or years"),
    (r"[<>≤≥]\s*[\d.,]+", "a bound is no number: replace it, or empty the cell (--drop-missing)"),
    (r"[+-]?\d{1,3}(?:[, '\u202f\u00a0]\d{3})+(?:\.\d*)?", "write it without separators: 1234.5"),
    (r"[+-]?[\d.]*,\d*", "write decimals with a point, or put semicolons between cells"),
)
"""What to do with cells that are no numbers, by what they look like."""


def advice_on(cell):
    """Return what to do with a cell that is no number, as the end of a sentence.

    Examples
    --------
    >>> advice_on("2020-01-31"), advice_on("clay")
    (': write dates as numbers: days, or years', '')
    """
    return next((f": {what}" for form, what in ADVICE if re.fullmatch(form, cell.strip())), "")


def is_headless(names):
    """Whether all names of a table are numbers: then its first line holds none, probably."""
    try:
        return bool(np.isfinite([float(name) for name in names]).all()) and len(names) > 0
    except (TypeError, ValueError):
        return False
