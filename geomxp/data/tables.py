"""Tables of text and numbers: reading, writing, and their columns as arrays.

Files are written to a temporary name and renamed, so that a full disk or a killed process leaves
earlier results intact. The content of a file is never executed.
"""

import csv
import hashlib
import json
import os
import re
from collections import Counter
from pathlib import Path

import numpy as np

from ..errors import InvalidInput, did_you_mean
from . import files
from .files import check_there
from .formula import Formula
from .spatial import is_geographic_frame, is_grid, one_line, tabulate

MISSING = frozenset({"", "na", "nan", "null", "none", "n/a", "<na>", "-nan", "#n/a"})
"""Cells that mark a missing value, in lower case."""

SEPARATORS = ",;\t"
"""Separators of cells: the most frequent one in the header is used, a comma if there is none."""

SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".ods")

DECIMAL_COMMA = r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?"

AS_TEXT = {"dtype": str, "keep_default_na": False, "encoding": "utf-8-sig"}
"""Options of `pandas.read_csv` that leave cells as they are."""


# Reading


def read_data(path):
    """Read a file as a frame or a grid; cells of a CSV file stay text.

    Parameters
    ----------
    path : path
        ``.csv`` (also ``.csv.gz``, ``.txt``, ``.tsv``; separated by commas, semicolons or tabs),
        ``.parquet`` or ``.npz``; ``.gpkg``, ``.geojson`` or ``.shp``; ``.nc``.

    Returns
    -------
    pandas.DataFrame, geopandas.GeoDataFrame or xarray.Dataset

    Raises
    ------
    InvalidInput
        If the file is missing, empty or malformed, or needs a library that is not installed.
    """
    path = Path(path)
    check_there(path)
    suffix = path.suffix.lower()
    readers = {".parquet": _read_parquet, ".npz": _read_npz}
    readers |= dict.fromkeys(files.ENDINGS, files.read)
    return readers.get(suffix, _read_delimited)(path)


def read_frame(path):
    """Read a file as a pandas frame with the coordinates of points and cells as columns.

    See `read_data`.
    """
    data = read_data(path)
    try:
        return tabulate(data).columns
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def _read_parquet(path):
    import pandas as pd

    try:
        return pd.read_parquet(path)
    except (ValueError, OSError, ImportError, KeyError) as error:
        raise InvalidInput(f"{path}: not a Parquet table ({one_line(error, 160)}).") from None


def _read_npz(path):
    import zipfile

    import pandas as pd

    try:
        with np.load(path, allow_pickle=False) as archive:
            columns = {name: archive[name] for name in archive.files}
    except (
        *(ValueError, OSError, EOFError, KeyError, TypeError, AttributeError),
        zipfile.BadZipFile,
    ) as error:
        raise InvalidInput(
            f"{path}: not an NPZ archive of numbers ({one_line(error, 160)})."
        ) from None
    if {array.ndim for array in columns.values()} != {1} or len(
        {array.shape for array in columns.values()}
    ) != 1:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in columns.items())
        raise InvalidInput(f"{path}: columns must be 1-D arrays of one length. Got {shapes}.")
    return pd.DataFrame(columns)


def _read_delimited(path):
    """Read a CSV table as text.

    Spaces around the names of columns are removed. Where semicolons or tabs separate the cells,
    a column has decimal commas if some numbers have a comma and none has a point.
    """
    import pandas as pd

    if path.suffix.lower() in SPREADSHEETS:
        raise InvalidInput(f"{path}: spreadsheets are not read: save the sheet as CSV (UTF-8).")
    try:
        names, separator = _header(path)
        frame = pd.read_csv(path, sep=separator, **AS_TEXT)
    except pd.errors.EmptyDataError:
        raise InvalidInput(f"{path}: the file is empty.") from None
    except UnicodeError as error:
        raise InvalidInput(f"{path}: not UTF-8 text ({error.reason}): save it as UTF-8.") from None
    except (pd.errors.ParserError, ValueError, OSError, EOFError) as error:
        raise InvalidInput(f"{path}: not a CSV table{_complaint(error)}.") from None
    # pandas takes the first column as an index if the first row is longer than the header
    if not isinstance(frame.index, pd.RangeIndex) or len(names) != frame.shape[1]:
        raise InvalidInput(
            f"{path}: row 1 has more cells than the header has names: the first line must name "
            f"every column. Got {', '.join(names)[:60]!r}."
        )
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InvalidInput(f"{path}: two columns are called {twice[0]!r}: rename one of them.")
    frame.columns = names
    if separator != ",":
        for name in names:
            frame[name] = _with_points(frame[name])
    return frame


def _header(path):
    """Return the names of the columns, and the separator of cells."""
    import pandas as pd

    # with a separator that does not occur, the whole line is one cell
    line = pd.read_csv(path, sep="\x1f", header=None, nrows=1, quoting=csv.QUOTE_NONE, **AS_TEXT)
    text = "" if line.empty else str(line.iloc[0, 0])
    separator = "\t" if ".tsv" in path.suffixes else separator_of(text)
    names = pd.read_csv(path, sep=separator, header=None, nrows=1, **AS_TEXT)
    cells = [] if names.empty else [" ".join(str(name).split()) for name in names.iloc[0]]
    # pandas keeps quotation marks that follow a space
    bare = [re.sub(r'^"(.*)"$', r"\1", cell).strip() for cell in cells]
    return [name or f"Unnamed: {k}" for k, name in enumerate(bare)], separator


def separator_of(line):
    r"""Return the separator of the names in a header.

    Examples
    --------
    >>> separator_of('x;y;"pH, wet"'), separator_of("depth"), separator_of("x\ty")
    (';', ',', '\t')
    """
    return max(SEPARATORS, key=re.sub(r'"[^"]*"', "", line).count)


def _complaint(error):
    """Return the reason that pandas gives, as the end of a sentence."""
    said = one_line(error, 160)
    match = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", said)
    if match is None:
        return f" ({said})"
    known, line, cells = match.groups()
    return (
        f": line {line} has {cells} cells and the first line {known} names: name every column, "
        "and put quotation marks around cells with commas"
    )


def _with_points(column):
    """Return a column of text with decimal commas replaced by points."""
    text = column.astype("string").str.strip()
    commas = text.str.fullmatch(DECIMAL_COMMA).fillna(False)
    if not commas.any() or text.str.contains(".", regex=False).any():
        return column
    return column.where(~commas, text.str.replace(",", "."))


# Columns as numbers


def number_columns(frame, names):
    """Return columns of a frame as an (n, len(names)) array; missing cells become NaN.

    Raises
    ------
    InvalidInput
        For a column that does not exist, or a cell of text (row and value are named).
    """
    check_columns(frame, names)
    return np.column_stack([_numbers(frame[name], name) for name in names]).reshape(
        len(frame), len(names)
    )


def check_columns(frame, names):
    """Raise `InvalidInput` for a column that does not exist, or exists twice."""
    for name in names:
        if name not in frame.columns:
            have = ", ".join(map(str, frame.columns[:12]))
            more = ", …" if len(frame.columns) > 12 else ""
            near = did_you_mean(name, frame.columns)
            if _is_headless(frame.columns):
                near = " The first line must hold the names of the columns."
            raise InvalidInput(f"no column {name!r}. The columns are: {have}{more}.{near}")
        if frame[name].ndim != 1:
            raise InvalidInput(f"two columns are called {name!r}.")


def _is_headless(names):
    """Whether all names of columns are numbers, so that the file probably has no header."""
    try:
        return len(names) > 0 and bool(np.isfinite([float(name) for name in names]).all())
    except (TypeError, ValueError):
        return False


def _numbers(column, name):
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_complex_dtype(column):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    text = column.astype("string").str.strip()
    numbers = pd.to_numeric(text, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    missing = text.isna().to_numpy() | text.str.lower().isin(MISSING).to_numpy(dtype=bool)
    bad = np.flatnonzero(np.isnan(numbers) & ~missing)
    if len(bad):
        value = str(column.iloc[bad[0]])[:40]
        raise InvalidInput(
            f"row {bad[0] + 1}, column {name!r}: {value!r} is not a number ({len(bad)} such rows)"
            f"{advice_on(value)}."
        )
    return numbers


ADVICE = (
    (r"\d{4}-\d\d?-\d\d?.*|\d\d?[./]\d\d?[./]\d{2,4}.*", "write dates as numbers: days, or years"),
    (r"[<>≤≥]\s*[\d.,]+", "replace the bound by a number, or empty the cell (--drop-missing)"),
    (r"[+-]?\d{1,3}(?:[, '\u202f\u00a0]\d{3})+(?:\.\d*)?", "write it without separators: 1234.5"),
    (r"[+-]?[\d.]*,\d*", "write decimals with a point, or put semicolons between cells"),
)
"""Remedies for cells that are not numbers, by their form."""


def advice_on(cell):
    """Return the remedy for a cell that is not a number, as the end of a sentence.

    Examples
    --------
    >>> advice_on("2020-01-31"), advice_on("clay")
    (': write dates as numbers: days, or years', '')
    """
    return next((f": {what}" for form, what in ADVICE if re.fullmatch(form, cell.strip())), "")


# Columns of text as codes of their levels


def encode(frame, names, levels=None, texts=()):
    """Return columns of a frame as numbers; columns of text as positions in their levels.

    A column is text if it has cells and none of them is a number.

    Parameters
    ----------
    frame : pandas.DataFrame
    names : sequence of str
    levels : dict of str to sequence of str, optional
        Levels of the columns of text, if they are known; all other columns must hold numbers.
    texts : collection of str
        Columns that are text as soon as one cell is not a number.

    Returns
    -------
    codes : (n, len(names)) ndarray
        NaN where a cell is missing.
    levels : dict of str to tuple of str
        Levels of the columns of text, sorted.

    Raises
    ------
    InvalidInput
        For a column that does not exist, a cell that is not a number, or an unknown level (row
        and value are named).

    Examples
    --------
    >>> import pandas as pd
    >>> encode(pd.DataFrame({"rock": ["lime", "clay", "lime"], "z": [1, 2, 3]}), ["rock", "z"])[1]
    {'rock': ('clay', 'lime')}
    """
    columns, used = [np.empty((len(frame), 0))], {}
    for name in names:
        known = None if levels is None else levels.get(name)
        if known is not None or (levels is None and _is_text(frame, name, name in texts)):
            codes, used[name] = _codes(frame, name, known)
            columns.append(codes[:, None])
        else:
            columns.append(number_columns(frame, (name,)))
    return np.hstack(columns), used


def decode(codes, levels):
    """Return the text that codes stand for.

    Parameters
    ----------
    codes : (n,) ndarray
        Whole numbers from 0.
    levels : sequence of str

    Returns
    -------
    (n,) ndarray of str objects
    """
    return np.array(levels, dtype=object)[np.asarray(codes).astype(np.intp)]


def check_codes(columns, names, levels):
    """Raise `InvalidInput` unless columns of text, (n, q), hold positions in their levels."""
    for name, words in levels.items():
        codes = columns[:, list(names).index(name)]
        bad = np.flatnonzero(~np.isin(codes, np.arange(len(words))))
        if len(bad):
            raise InvalidInput(
                f"covariate {name!r} holds codes of {len(words)} levels, 0 to {len(words) - 1}. "
                f"Got {codes[bad[0]]:g} in row {bad[0] + 1}: give a frame with the text itself."
            )


def covariates_of(locations, covariates, formula):
    """Return the covariates that a caller and the formulas name, and the categories among them.

    Parameters
    ----------
    locations, covariates : sequence of str
    formula : str, sequence of str or None

    Returns
    -------
    names : tuple of str
    categories : frozenset of str
        Columns that may hold any text.
    """
    if formula is None:
        return tuple(covariates), frozenset()
    texts = (formula,) if isinstance(formula, str) else tuple(formula)
    parsed = [Formula.parse(text) for text in texts]
    names = dict.fromkeys(covariates)
    for each in parsed:
        names |= dict.fromkeys(name for name in each.variables if name not in locations)
    elsewhere = {name for each in parsed for name in set(each.variables) - each.categories}
    return tuple(names), frozenset(set().union(*(e.categories for e in parsed)) - elsewhere)


def _cells(frame, name):
    """Return the cells of a column as text, missing ones as NA."""
    check_columns(frame, (name,))
    text = frame[name].astype("string").str.strip()
    return text.mask(text.str.lower().isin(MISSING).fillna(False))


def _is_text(frame, name, any_word):
    """Whether a column holds text: no cell is a number, or (`any_word`) not every cell."""
    import pandas as pd

    check_columns(frame, (name,))
    if pd.api.types.is_numeric_dtype(frame[name]):
        return False
    words = pd.to_numeric(_cells(frame, name).dropna(), errors="coerce").isna()
    return bool(len(words) and (words.any() if any_word else words.all()))


def _codes(frame, name, levels):
    """Return positions in the levels, and the levels (those of the cells if None)."""
    cells = _cells(frame, name)
    present = cells.notna().to_numpy()
    levels = tuple(sorted(cells.dropna().unique())) if levels is None else tuple(levels)
    positions = {word: float(k) for k, word in enumerate(levels)}
    codes = np.array([positions.get(word, -1.0) for word in cells[present]])
    unknown = np.flatnonzero(codes < 0)
    if len(unknown):
        row = int(np.flatnonzero(present)[unknown[0]])
        raise InvalidInput(
            f"row {row + 1}, column {name!r}: {cells.iloc[row]!r} is a level that no observation "
            f"has ({len(unknown)} such rows). The levels are: {', '.join(levels)}."
        )
    result = np.full(len(cells), np.nan)
    result[present] = codes
    return result, levels


# Writing


def write_frame(frame, path):
    """Write a frame as CSV, Parquet or NPZ, by the path's ending.

    A geopandas frame may also be written as a GeoPackage or GeoJSON; elsewhere its points become
    columns. An xarray Dataset is written as NetCDF.

    Raises
    ------
    InvalidInput
        If a file of this kind cannot hold the frame.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    points, grid = is_geographic_frame(frame), is_grid(frame)
    files.check_kind(path, points, grid)
    if suffix in files.ENDINGS:
        files.write(frame, path)
        return
    if points or grid:
        frame = tabulate(frame).columns
    if suffix == ".parquet":
        with files.replacing(path) as temporary:
            typed(frame).to_parquet(temporary, index=False)
    elif suffix == ".npz":
        columns = {str(name): _plain(column) for name, column in typed(frame).items()}
        if "file" in columns:
            raise InvalidInput(f"{path}: an NPZ file cannot have a column called 'file'.")
        with files.replacing(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, **columns)
    else:
        write_text(path, frame.to_csv(index=False, sep="\t" if suffix == ".tsv" else ","))


def typed(frame):
    """Return the frame with numbers in place of columns of text that hold only numbers."""
    import pandas as pd

    result = frame.copy()
    for name in frame.columns:
        if not pd.api.types.is_numeric_dtype(frame[name]):
            numbers = pd.to_numeric(frame[name], errors="coerce")
            if numbers.notna().all():
                result[name] = numbers
    return result


def _plain(column):
    """Return a column as an array without Python objects."""
    array = column.to_numpy()
    return array if array.dtype.kind in "biuf" else column.astype(str).to_numpy(dtype="U")


def write_text(path, text):
    """Write text as UTF-8, all or nothing."""
    with files.replacing(path) as temporary:
        temporary.write_bytes(text.encode("utf-8"))


def check_writable(*paths, inputs=()):
    """Raise `InvalidInput` if a file cannot be written later, or would overwrite an input."""
    paths = [path for path in paths if path]
    taken = {Path(path).resolve(): "an input" for path in inputs if path}
    for name in paths:
        path, folder = Path(name), Path(name).resolve().parent
        if path.resolve() in taken:
            raise InvalidInput(f"{name}: is {taken[path.resolve()]}; choose another name.")
        taken[path.resolve()] = "another output"
        problems = (
            (path.exists() and not (path.is_file() or path.is_dir()), "is not a regular file"),
            (not folder.is_dir(), f"the folder {folder} does not exist"),
            (path.is_dir(), "is a folder, not a file"),
            (
                path.suffix.lower() in SPREADSHEETS,
                "spreadsheets are not written: write a .csv",
            ),
            (not os.access(folder, os.W_OK), f"the folder {folder} is not writable"),
        )
        for wrong, what in problems:
            if wrong:
                raise InvalidInput(f"{name}: {what}.")


# JSON documents


def read_json(path):
    """Read a JSON object.

    Raises
    ------
    InvalidInput
        If the file is missing, or does not hold a JSON object.
    """
    if Path(path).exists() and not Path(path).is_file():
        raise InvalidInput(f"{path}: is not a regular file.")
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidInput(f"{path}: no such file.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{path}: not a JSON file ({one_line(error, 160)}).") from None
    if not isinstance(document, dict):
        raise InvalidInput(f"{path}: must hold a JSON object. Got {type(document).__name__}.")
    return document


def write_json(path, document):
    """Write a JSON object; numbers keep every digit."""
    write_text(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


def sha256(path):
    """Return the SHA-256 of a file's bytes (of all parts of a shapefile), as hexadecimal text."""
    digest = hashlib.sha256()
    for part in files.parts(path):
        with open(part, "rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()
