"""Tables in files: reading, writing, and their columns as arrays.

Files are written to a temporary name and renamed, so that a full disk or a killed process leaves
earlier results intact. One regular file of this machine is read, by the library for the kind that
its content shows. The content is never executed, and references to other files are not followed.
"""

import fcntl
import hashlib
import json
import lzma
import math
import os
import re
import shutil
import stat
import tempfile
import warnings
import zipfile
import zlib
from collections import Counter
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from ..errors import (
    GeomxpError,
    GeomxpWarning,
    InvalidInput,
    check_one_of,
    did_you_mean,
    one_line,
)
from . import readers
from .formula import DATE_PATTERN, Formula
from .options import DECIMAL_SIGNS
from .readers import AS_TEXT, MISSING_CELLS, SPREADSHEET_ENDINGS
from .spatial import is_geographic_frame, is_grid, library, tabulate
from .times import as_texts

UNWRITABLE_ENDINGS = (
    *(".json", ".jsonl", ".ndjson", ".geoparquet", ".zip", ".nc4", ".cdf", ".h5", ".hdf5"),
    *(
        ".asc",
        ".grd",
        *(ending for _, endings, _, _ in readers.REFUSED_KINDS for ending in endings),
    ),
)
"""Endings of kinds that are not written."""

VECTOR_ENDINGS = (".gpkg", ".geojson", ".geojsonl", ".geojsons", ".fgb", ".shp")
GRID_ENDINGS = (".nc",)
SPATIAL_ENDINGS = (*VECTOR_ENDINGS, *GRID_ENDINGS)
"""Endings of spatial files that are written: points with attributes, and grids."""

DRIVERS = {
    ".gpkg": {"driver": "GPKG"},
    ".geojson": {"driver": "GeoJSON"},
    # its spatial index would change the order: findings/flatgeobuf_order_of_rows.sh
    ".fgb": {"driver": "FlatGeobuf", "spatial_index": "NO"},
}
"""Formats of points that are written. A shapefile would shorten the names of columns."""

COMPANION_ENDINGS = {
    ".shp": (".dbf", ".prj"),
    ".asc": (".prj",),
    ".tif": (".tfw",),
    ".tiff": (".tfw",),
}
"""Endings of other files of the same name whose content matters, for a shapefile or a raster."""

DECIMAL_COMMA_PATTERN = r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?"
LIMIT_PATTERN = r"[<>≤≥]=?\s*"
"""Start of a cell with a limit: <0.5."""

RANGE_PATTERN = r"\s*[-–—]\s*"
"""Between two limits: 0.2-0.5."""

THOUSANDS_PATTERN = r"[+-]?[1-9]\d{0,2}%s\d{3}"
"""Number of one group of thousands after a sign, which may also be a number of three decimals."""


# Reading


def check_path(path):
    """Raise `InvalidInput` if an argument is not a path."""
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidInput(f"`path` must be the path of a file (text or Path). Got {path!r:.60}.")


ADDRESS_PATTERN = re.compile(r"[a-z][\w.+-]*://|/vsi\w+/", re.IGNORECASE)
"""Start of the address of a file elsewhere, or in one of GDAL's virtual file systems."""


def kind_of(path):
    """Return "file", "folder", "other" (a pipe, a device) or None: what a path names.

    A path that can name nothing, such as one of 5,000 characters, is an `InvalidInput`.
    """
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"{path!r:.60}: not the path of a file ({reason}).") from None
    return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "other"


def check_exists(path):
    """Raise `InvalidInput` unless a path names a regular file of this machine."""
    check_path(path)
    kind = None if ADDRESS_PATTERN.match(str(path)) else kind_of(path)
    if kind == "folder":
        try:
            readers.refuse(path, Path(path).suffix.lower())
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error}") from None
    _refuse(
        path,
        (ADDRESS_PATTERN.match(str(path)), "is an address, not a file: download it first"),
        (kind == "folder", "is a folder, not a table"),
        (kind == "other", "is not a regular file: save its content in a file first"),
        (kind is None, "no such file, and no data set of this name"),
    )


def read_data(path, decimal=None):
    """Read a file as a pandas frame, a geopandas frame or an xarray Dataset.

    Tables of text (separated by commas, semicolons or tabs, of GeoEAS, of the USGS or of ERDDAP;
    cells stay text), Parquet or NPZ; GeoParquet, GeoPackage, GeoJSON, FlatGeobuf or a shapefile
    with one layer of points; NetCDF, whose times stay numbers; GeoTIFF and the grids of ESRI and
    Surfer. The content decides (see `readers.true_ending`). `decimal` is the decimal sign of a
    table of text, "." or ","; None recognizes it.
    """
    if decimal is not None:
        check_one_of("decimal", decimal, DECIMAL_SIGNS)
    check_exists(path)
    path = Path(path)
    kind, libraries, read = reader_of(path)
    for name in libraries:
        library(name)
    try:
        return _read_delimited(path, decimal) if read is _read_delimited else read(path)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
    except READ_ERRORS as error:
        raise InvalidInput(f"{path}: not {kind} ({_reason(error, path)}).") from None


def reader_of(path):
    """Return the row of `READERS` for a file."""
    try:
        return READERS.get(readers.true_ending(path, READERS), ("a CSV table", (), _read_delimited))
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read ({error.strerror}).") from None


def content(path):
    """Return what a file holds: "grid", "points" or "columns"."""
    _, libraries, _ = reader_of(path)
    holds = {"xarray": "grid", "geopandas": "points"}
    return next((holds[name] for name in libraries if name in holds), "columns")


def read_frame(path, decimal=None):
    """Read a file as a pandas frame with the coordinates of points and cells as columns."""
    data = read_data(path, decimal)
    try:
        return tabulate(data).columns
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def _reason(error, path):
    """Return a library's message without the path and its own advice."""
    text = str(error).replace(str(path.absolute()), "the file").replace(str(path), "the file")
    return one_line(text.split(";")[0], 160)


def _read_parquet(path):
    import pandas as pd

    return pd.read_parquet(path)


def _read_npz(path):
    import pandas as pd

    with np.load(path, allow_pickle=False) as archive:
        columns = {name: archive[name] for name in archive.files}
    shapes = {array.shape for array in columns.values()}
    if {len(shape) for shape in shapes} != {1} or len(shapes) != 1:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in columns.items())
        raise InvalidInput(f"columns must be 1-D arrays of equal length. Got {shapes}.")
    return pd.DataFrame(columns)


def _read_grid(path):
    import xarray

    with warnings.catch_warnings():
        # a vector `missing_value` is valid, and all its numbers are missing
        warnings.filterwarnings("ignore", ".* has multiple fill values")
        return xarray.load_dataset(
            path.absolute(), engine="netcdf4", decode_coords="all", decode_times=False
        )


def _read_delimited(path, decimal=None):
    """Read a CSV table as text, with points as decimal signs.

    Spaces around the names of columns are removed. `_with_points` says where commas are decimal
    signs if the caller does not.
    """
    import pandas as pd

    try:
        layout = readers.layout(path)
        names, separator = column_names(path, layout), layout.separator
        header = None if layout.names else 0
        frame = pd.read_csv(path, sep=separator, skiprows=layout.skip, header=header, **AS_TEXT)
    except pd.errors.EmptyDataError:
        raise InvalidInput("the file is empty.") from None
    except UnicodeError as error:
        raise InvalidInput(f"not UTF-8 text ({error.reason}): save it as UTF-8.") from None
    except pd.errors.ParserError as error:
        match = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
        if match is None:
            raise
        known, line, cells = match.groups()
        raise InvalidInput(
            f"not a CSV table: line {line} has {cells} cells and the first line {known} names: "
            "name every column, and put quotation marks around cells with commas."
        ) from None
    # pandas takes the first column as an index if the first row is longer than the header
    if not isinstance(frame.index, pd.RangeIndex) or len(names) != frame.shape[1]:
        raise InvalidInput(
            "row 1 has more cells than the header has names: the first line must name every "
            f"column. It names {len(names)}."
        )
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InvalidInput(f"two columns are called {twice[0]!r}: rename one of them.")
    frame.columns = names
    if layout.names:
        # exponents of Fortran
        frame = frame.replace(r"^([-+]?[\d.]+)[dD]([-+]?\d+)$", r"\1e\2", regex=True)
    frame = readers.with_units(frame, path)
    if decimal is not None:
        attrs = frame.attrs
        frame = frame.apply(lambda column: _as_decimal(column, decimal))
        frame.attrs = attrs
        return frame
    return frame if separator == "," else _with_points(frame)


def column_names(path, layout):
    """Return the names of the columns of a table of text with this `readers.Layout`."""
    import pandas as pd

    if layout.names:
        return list(layout.names)
    options = {"sep": layout.separator, "skiprows": layout.skip, **AS_TEXT}
    names = pd.read_csv(path, header=None, nrows=1, **options)
    cells = [] if names.empty else [" ".join(str(name).split()) for name in names.iloc[0]]
    # pandas keeps quotation marks that follow a space
    bare = [re.sub(r'^"(.*)"$', r"\1", cell).strip() for cell in cells]
    return [name or f"Unnamed: {k}" for k, name in enumerate(bare)]


def _with_points(frame):
    """Return a frame of text with decimal commas replaced by points.

    A column has decimal commas if some numbers have a comma, none has a point, and not every comma
    may separate thousands (1,000), in this column or in another one. A column in which only the
    latter is known stays as it is, so that its use as numbers is an error.
    """
    certain, doubtful = {}, {}
    for name in frame.columns:
        text = frame[name].astype("string").str.strip()
        commas = text.str.fullmatch(DECIMAL_COMMA_PATTERN).fillna(False)
        if commas.any() and not text.str.contains(".", regex=False).any():
            groups = text[commas].str.fullmatch(THOUSANDS_PATTERN % ",").all()
            (doubtful if groups else certain)[name] = commas, text.str.replace(",", ".")
    if certain:
        _warn_of_points(frame, next(iter(certain)))
        certain |= doubtful
    for name, (commas, text) in certain.items():
        frame[name] = frame[name].where(~commas, text)
    return frame


def _warn_of_points(frame, other):
    """Warn if points may separate thousands, in a table with decimal commas."""
    for name in frame.columns:
        text = frame[name].astype("string").str.strip()
        points = text.str.contains(".", regex=False).fillna(False)
        if points.any() and text[points].str.fullmatch(THOUSANDS_PATTERN % r"\.").all():
            warnings.warn(
                f"column {name!r}: {text[points].iloc[0]} is read with a decimal point, and column "
                f'{other!r} has decimal commas: use decimal="," (--decimal ,) if the point '
                "separates thousands. Otherwise write all columns with one decimal sign.",
                GeomxpWarning,
                stacklevel=6,
            )


def _as_decimal(column, decimal):
    """Return a column of text whose numbers have a decimal point and no thousands separators."""
    thousands = "." if decimal == "," else ","
    sign, mark = re.escape(thousands), re.escape(decimal)
    number = rf"[+-]?(?:\d{{1,3}}(?:{sign}\d{{3}})+|\d*)(?:{mark}\d*)?(?:[eE][+-]?\d+)?"
    text = column.astype("string").str.strip()
    numbers = text.str.fullmatch(number).fillna(False)
    plain = text.str.replace(thousands, "", regex=False).str.replace(decimal, ".", regex=False)
    wrong = text.str.fullmatch(rf"[+-]?\d*{sign}\d+(?:[eE][+-]?\d+)?").fillna(False) & ~numbers
    if wrong.any():
        # float would take the other sign for a decimal point
        row = int(np.argmax(wrong.to_numpy()))
        raise InvalidInput(
            f"row {row + 1}, column {column.name!r}: {text.iloc[row]!r:.40} is not a number with "
            f"decimal={decimal!r}: use decimal={thousands!r} (--decimal {thousands})."
        )
    return column.where(~numbers, plain)


POINT_LIBRARIES = ("geopandas", "pyogrio")
RASTER_LIBRARIES = ("xarray", "rasterio")
READERS = {
    ".parquet": ("a Parquet table", (), _read_parquet),
    ".npz": ("an NPZ archive of numbers", (), _read_npz),
    ".geoparquet": ("a GeoParquet table", ("geopandas",), readers.read_geoparquet),
    ".gpkg": ("a GeoPackage", POINT_LIBRARIES, readers.read_points),
    ".geojson": (
        "a GeoJSON file",
        POINT_LIBRARIES,
        partial(readers.read_points, prefix=readers.GEOJSON_PREFIX),
    ),
    ".geojsonl": (
        "GeoJSON by lines",
        POINT_LIBRARIES,
        partial(readers.read_points, prefix=readers.GEOJSONSEQ_PREFIX),
    ),
    ".fgb": ("a FlatGeobuf file", POINT_LIBRARIES, readers.read_points),
    ".shp": ("a shapefile", POINT_LIBRARIES, readers.read_shapefile),
    ".shp.zip": ("a shapefile", POINT_LIBRARIES, readers.read_zipped_shapefile),
    ".nc": ("a NetCDF file", ("xarray", "netCDF4"), _read_grid),
    ".tif": ("a GeoTIFF", RASTER_LIBRARIES, readers.read_raster),
    ".asc": ("an ASCII grid of ESRI", RASTER_LIBRARIES, readers.read_raster),
    ".grd": ("a grid of Surfer", RASTER_LIBRARIES, readers.read_raster),
}
"""What a kind of file is called, the libraries and the function that read it, by its ending.

All others are CSV tables.
"""

READ_ERRORS = (
    *(AttributeError, EOFError, ImportError, KeyError, OSError, RuntimeError, TypeError),
    *(ValueError, lzma.LZMAError, zipfile.BadZipFile, zlib.error),
)
"""Errors of libraries that read a damaged file."""


# Columns as numbers


def number_columns(frame, names):
    """Return columns of a frame as an (n, len(names)) array; missing cells become NaN.

    A column that does not exist, or a cell of text (row and value are named), is an `InvalidInput`.
    """
    return encode(frame, names, levels={})[0]


def check_columns(frame, names):
    """Raise `InvalidInput` for a column that does not exist, or exists twice."""
    for name in names:
        if name not in frame.columns:
            have = ", ".join(map(str, frame.columns[:12]))
            more = ", …" if len(frame.columns) > 12 else ""
            if len(frame.columns) == 1:
                # the only name may be a line of a file that is not a table
                raise InvalidInput(
                    f"no column {name!r}: there is only one column. In a text file, commas, "
                    "semicolons or tabs must separate the names in the first line."
                )
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


def _cells(column):
    """Return the cells of a column as text, missing ones as NA."""
    text = column.astype("string").str.strip()
    return text.mask(text.str.lower().isin(MISSING_CELLS).fillna(False))


def numbers_and_text(column):
    """Return the cells of a column as numbers, NaN for others, (n,), and the rows of text, (q,).

    Missing cells are not text.

    Examples
    --------
    >>> import pandas as pd
    >>> numbers_and_text(pd.Series(["1.5", "NA", "<0.2"]))
    (array([1.5, nan, nan]), array([2]))
    """
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_complex_dtype(column):
        return column.to_numpy(dtype=np.float64, na_value=np.nan), np.zeros(0, dtype=int)
    cells = _cells(column)
    numbers = pd.to_numeric(cells, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    return numbers, np.flatnonzero(np.isnan(numbers) & cells.notna())


def refuse_text(column, name, rows):
    """Raise `InvalidInput` if there are rows whose cells are neither numbers nor missing."""
    if len(rows):
        value = str(column.iloc[rows[0]])[:40]
        raise InvalidInput(
            f"row {rows[0] + 1}, column {name!r}: {value!r} is not a number ({len(rows)} such rows)"
            f"{advice_on(value)}."
        )


def _numbers(column, name):
    numbers, text = numbers_and_text(column)
    refuse_text(column, name, text)
    return numbers


NUMBER_ADVICE = (
    (r".*\d\s*[°º].*", "write degrees as decimal numbers: 5.75, south and west negative"),
    (
        r"[+-]?[1-9]\d{0,2},\d{3}",
        "say whether the comma is decimal (decimal=',', --decimal ,) or separates thousands "
        "(decimal='.', --decimal .)",
    ),
    (DATE_PATTERN, "write dates as numbers: days, or years"),
    (r"[<>≤≥]\s*[\d.,]+", "replace the bound by a number, or empty the cell (--drop-missing)"),
    (r"[+-]?\d{1,3}(?:[, '\u202f\u00a0]\d{3})+(?:\.\d*)?", "write it without separators: 1234.5"),
    (
        r"[+-]?[\d.]*,\d*",
        "set the decimal mark (gx.read_table(..., decimal=','), --decimal ,), or write decimals "
        "with a point",
    ),
)
"""Remedies for cells that are not numbers, by their form."""


def advice_on(cell):
    """Return the remedy for a cell that is not a number, as the end of a sentence."""
    return next(
        (f": {remedy}" for form, remedy in NUMBER_ADVICE if re.fullmatch(form, cell.strip())), ""
    )


# Columns of text as codes of their levels


def encode(frame, names, levels=None, texts=()):
    """Return columns of a frame as (n, len(names)) numbers, and the levels of columns of text.

    A column is text if it has cells and none of them is a number, a column among `texts` as soon as
    one cell is not a number; if `levels` are known, the columns that they name. Text becomes the
    position in the sorted levels, a missing cell NaN. An unknown level is an `InvalidInput`.
    """
    check_columns(frame, names)
    columns, used = [np.empty((len(frame), 0))], {}
    for name in names:
        known = None if levels is None else levels.get(name)
        if known is not None or (levels is None and _is_text(frame[name], name in texts)):
            codes, used[name] = _codes(_cells(frame[name]), name, known)
        else:
            codes = _numbers(frame[name], name)
        columns.append(codes[:, None])
    return np.hstack(columns), used


def decode(codes, levels):
    """Return the text that codes, whole numbers from 0, represent."""
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
    """Return the covariates that a caller and the formulas name, and those that may be any text."""
    if formula is None:
        return tuple(covariates), frozenset()
    texts = (formula,) if isinstance(formula, str) else tuple(formula)
    names, categories, elsewhere = dict.fromkeys(covariates), set(), set()
    for parsed in map(Formula.parse, texts):
        names |= dict.fromkeys(name for name in parsed.variables if name not in locations)
        categories |= parsed.categories
        elsewhere |= set(parsed.variables) - parsed.categories
    return tuple(names), frozenset(categories - elsewhere)


def _is_text(column, any_word):
    """Whether a column holds text: no cell is a number, or (`any_word`) not every cell."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column):
        return False
    words = pd.to_numeric(_cells(column).dropna(), errors="coerce").isna()
    return bool(len(words) and (words.any() if any_word else words.all()))


def _codes(cells, name, levels):
    """Return positions in the levels, and the levels (those of the cells if None)."""
    levels = tuple(sorted(cells.dropna().unique())) if levels is None else tuple(levels)
    positions = {word: float(k) for k, word in enumerate(levels)}
    codes = cells.astype(object).map(positions).to_numpy(dtype=np.float64)
    unknown = np.flatnonzero(np.isnan(codes) & cells.notna())
    if len(unknown):
        raise InvalidInput(
            f"row {unknown[0] + 1}, column {name!r}: {cells.iloc[unknown[0]]!r} is a level that no "
            f"observation has ({len(unknown)} such rows). The levels are: {', '.join(levels)}."
        )
    return codes, levels


# Writing


@contextmanager
def replacing(path):
    """Yield a temporary path; its file replaces `path` at the end, unless an error was raised.

    If the folder is missing or the disk full, the `GeomxpError` leaves an existing file unchanged.
    """
    path = Path(path)
    try:
        # in a folder, because libraries write to names and look at their endings
        with _workshop(path) as folder:
            temporary = folder / path.name
            yield temporary
            with open(temporary, "r+b") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
    except OSError as error:
        raise GeomxpError(f"{path}: cannot be written ({error.strerror or error}).") from None


@contextmanager
def _workshop(path):
    """Yield a new folder beside a file, and remove those of killed processes for this file.

    A folder is locked as long as its process lives.
    """
    start = f".{path.name}.geomxp-"
    for name in os.listdir(path.parent):
        if name.startswith(start) and (left := _locked(path.parent / name)) is not None:
            shutil.rmtree(path.parent / name, ignore_errors=True)
            os.close(left)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=start) as folder:
        lock = _locked(folder)
        try:
            yield Path(folder)
        finally:
            if lock is not None:
                os.close(lock)


def _locked(folder):
    """Return a descriptor that locks a folder; None if another process has it, or it is gone."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def write_frame(frame, path):
    """Write a frame or an xarray Dataset in the format of the path's ending, all or nothing.

    CSV, Parquet and NPZ hold columns (also those of points and cells), GeoPackage and GeoJSON the
    points of a geopandas frame, NetCDF a Dataset.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    points, grid = is_geographic_frame(frame), is_grid(frame)
    check_kind(path, points, grid)
    if suffix not in SPATIAL_ENDINGS and (points or grid):
        frame = tabulate(frame).columns
    writers = {".parquet": _write_parquet, ".npz": _write_npz, ".nc": _write_grid}
    writers |= dict.fromkeys(DRIVERS, _write_vector)
    writers |= dict.fromkeys(readers.COMPRESSIONS, _write_compressed)
    if suffix not in writers:
        write_text(path, frame.to_csv(index=False, sep="\t" if suffix == ".tsv" else ","))
        return
    try:
        with replacing(path) as temporary:
            writers[suffix](frame, temporary)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def check_kind(path, points, grid):
    """Raise `InvalidInput` if a file of this ending cannot hold a frame of points, or a grid."""
    suffix = Path(path).suffix.lower()
    _refuse(
        path,
        (
            suffix in UNWRITABLE_ENDINGS,
            "files of this type cannot be written: write a .csv or .parquet",
        ),
        (suffix == ".shp", "shapefiles truncate names and cannot be written: write a .gpkg"),
        (
            suffix in VECTOR_ENDINGS and suffix not in DRIVERS,
            "GeoJSON by lines cannot be written: write a .geojson",
        ),
        (
            suffix in VECTOR_ENDINGS and not points,
            "can hold only points of a geopandas frame: write a .csv or .parquet",
        ),
        (
            suffix in GRID_ENDINGS and not grid,
            "can hold only a grid, and these locations are not a grid: write a .csv",
        ),
    )


def _refuse(path, *problems):
    """Raise `InvalidInput` for the first of (condition, complaint) that is true."""
    for wrong, complaint in problems:
        if wrong:
            raise InvalidInput(f"{path}: {complaint}.")


def _write_compressed(frame, path):
    # pandas sees in the name how
    frame.to_csv(path, index=False, sep="\t" if path.stem.lower().endswith(".tsv") else ",")


def _write_parquet(frame, path):
    typed(frame).to_parquet(path, index=False)


def _write_npz(frame, path):
    columns = {str(name): column.to_numpy() for name, column in typed(frame).items()}
    if "file" in columns:
        raise InvalidInput("an NPZ file cannot have a column called 'file'.")
    for name, array in columns.items():
        if array.dtype.kind not in "biuf":
            # Python objects would need pickle
            columns[name] = array.astype("U")
    with open(path, "wb") as file:
        np.savez(file, **columns)


def _write_vector(frame, path):
    """Write points; GeoJSON stores longitude and latitude, so others are reprojected."""
    pyogrio = library("pyogrio")
    suffix = path.suffix.lower()
    if suffix == ".geojson":
        if frame.crs is None:
            raise InvalidInput(
                "GeoJSON holds longitude and latitude, and the locations have no coordinate "
                "reference system: write a .gpkg."
            )
        frame = frame.to_crs("EPSG:4326")
    try:
        with warnings.catch_warnings():
            # locations without a system are written without one
            warnings.filterwarnings("ignore", "'crs' was not provided")
            # a fixed name: some file names are not valid names of layers
            pyogrio.write_dataframe(frame, path, layer="places", **DRIVERS[suffix])
    except (RuntimeError, ValueError) as error:
        raise InvalidInput(f"it cannot hold these columns ({_reason(error, path)}).") from None


def _write_grid(dataset, path):
    library("netCDF4")
    try:
        dataset.to_netcdf(path, engine="netcdf4")
    except (ValueError, TypeError, RuntimeError) as error:
        raise InvalidInput(f"it cannot hold these variables ({_reason(error, path)}).") from None


def typed(frame):
    """Return the frame with numbers in place of columns of text that hold only numbers.

    Dates of cftime become text.
    """
    import pandas as pd

    result = frame.copy()
    for name in frame.columns:
        # dates would become numbers without their origin
        if frame[name].dtype.kind == "O":
            numbers = pd.to_numeric(frame[name], errors="coerce")
            is_numbers = len(numbers) and numbers.notna().all()
            result[name] = numbers if is_numbers else as_texts(frame[name])
    return result


def write_text(path, text):
    """Write text as UTF-8, as `write_bytes` does."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path, content):
    """Write the content of a file, all or nothing.

    Where the filesystem allows it the new file has no name until it is complete, so that a killed
    process leaves none. At most `.NAME.new` remains, complete, if it is killed between the last
    two system calls; the next write removes it.
    """
    path = Path(path)
    try:
        unnamed = os.open(path.parent, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o666)
    except (AttributeError, OSError):
        # another system, or a filesystem without unnamed files; other errors occur again
        with replacing(path) as temporary:
            temporary.write_bytes(content)
        return
    try:
        with open(unnamed, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            _give_name(file.fileno(), path)
    except OSError as error:
        raise GeomxpError(f"{path}: cannot be written ({error.strerror or error}).") from None


def _give_name(descriptor, path):
    """Let `path` name an unnamed file, in place of the file that it names."""
    fresh, folder = path.with_name(f".{path.name}.new"), os.open(path.parent, os.O_RDONLY)
    try:
        for attempt in range(100):
            try:
                # with a descriptor of a folder, os.link follows the link in /proc
                source = f"/proc/self/fd/{descriptor}"
                os.link(source, fresh.name, src_dir_fd=folder, dst_dir_fd=folder)
                os.replace(fresh, path)
            except (FileExistsError, FileNotFoundError):
                # left by a killed process, or another process writes at the same time
                if attempt == 99:
                    raise
                fresh.unlink(missing_ok=True)
            except OSError:
                fresh.unlink(missing_ok=True)
                raise
            else:
                return
    finally:
        os.close(folder)


def check_writable(*paths, inputs=()):
    """Raise `InvalidInput` if a file cannot be written later, or would overwrite an input."""
    taken = {Path(path).resolve(): "an input" for path in inputs if path}
    for name in filter(None, paths):
        kind, path, folder = kind_of(name), Path(name), Path(name).resolve().parent
        if path.resolve() in taken:
            raise InvalidInput(f"{name}: is {taken[path.resolve()]}; choose another name.")
        taken[path.resolve()] = "another output"
        _refuse(
            name,
            (kind == "other", "is not a regular file"),
            (not folder.is_dir(), f"the folder {folder} does not exist"),
            (kind == "folder", "is a folder, not a file"),
            (
                path.suffix.lower() in SPREADSHEET_ENDINGS,
                "spreadsheets cannot be written: write a .csv",
            ),
            (not os.access(folder, os.W_OK), f"the folder {folder} is not writable"),
        )


# JSON documents, and the identity of files

READABLE_ENDINGS = (
    *(*readers.TEXT_ENDINGS, ".csv.gz", ".parquet", ".npz"),
    *(*SPATIAL_ENDINGS, ".shp.zip", ".asc", ".grd", ".tif"),
)
"""Usual endings of files that can be read."""

NOT_JSON_ENDINGS = {*READABLE_ENDINGS, *UNWRITABLE_ENDINGS, ".tiff"} - {".json", ".txt", ".dat"}
"""Endings of tables, rasters and pages, which are not fits."""


def check_is_for_json(path):
    """Raise `InvalidInput` if the name of a file says that it is a table, a raster or a page."""
    plain = Path(re.sub(r"\.(gz|bz2|zip|xz|zst)$", "", str(path), flags=re.IGNORECASE))
    if plain.suffix.lower() in NOT_JSON_ENDINGS:
        raise InvalidInput(
            f"{path}: a fit is written as JSON, not as a {plain.suffix} file: choose a name such "
            f"as {plain.stem}.json."
        )


def read_json(path):
    """Read a JSON object; `InvalidInput` for a missing file or other content."""
    if kind_of(path) not in ("file", None):
        raise InvalidInput(f"{path}: is not a regular file.")
    try:
        text = Path(path).read_text(encoding="utf-8")
        document = json.loads(
            text, parse_int=_whole, parse_float=_finite, parse_constant=_not_finite
        )
    except FileNotFoundError:
        raise InvalidInput(f"{path}: no such file.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{path}: not a JSON file ({one_line(error, 160)}).") from None
    if not isinstance(document, dict):
        raise InvalidInput(f"{path}: must hold a JSON object. Got {type(document).__name__}.")
    return document


def _not_finite(text):
    raise ValueError(f"a number is not finite: {text[:12]}")


def _finite(text):
    number = float(text)
    return number if math.isfinite(number) else _not_finite(text)


def _whole(text):
    _finite(text)
    return int(text)


def write_json(path, document):
    """Write a JSON object with its checksum; numbers keep every digit."""
    document = document | {CHECKSUM_KEY: checksum(document)}
    write_text(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


CHECKSUM_KEY = "checksum"
"""Name of the entry that holds the checksum of the others."""


def checksum(document):
    """Return the SHA-256 of a JSON object without its checksum.

    The layout, the order, and whether a number is written as 1 or 1.0 do not count.
    """
    rest = {name: value for name, value in document.items() if name != CHECKSUM_KEY}
    text = json.dumps(_with_floats(rest), sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _with_floats(value):
    """Return a value of JSON with floats in place of whole numbers that they can represent."""
    if isinstance(value, dict):
        return {name: _with_floats(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_with_floats(one) for one in value]
    whole = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if whole and abs(value) < 2**53 else value


def warn_if_edited(path, document):
    """Warn if a document is not as `write_json` wrote it; call it when the document is valid."""
    try:
        if document.get(CHECKSUM_KEY) == checksum(document):
            return
    except RecursionError:
        # deeper than anything that geomxp writes
        pass
    what = "was edited after it was written" if CHECKSUM_KEY in document else "has no checksum"
    warnings.warn(
        f"{path}: {what}, so its numbers may not be those that geomxp computed. They are used as "
        "they are: repeat the command that wrote the file to be sure.",
        GeomxpWarning,
        stacklevel=4,
    )


def sha256(path):
    """Return the SHA-256 of a file and of its `COMPANION_ENDINGS`, as hexadecimal text."""
    path = Path(path)
    files, digest = [path], hashlib.sha256()
    for part in COMPANION_ENDINGS.get(path.suffix.lower(), ()):
        both = path.with_suffix(part), path.with_suffix(part.upper())
        files += [one for one in both if one.is_file()][:1]
    for part in files:
        with open(part, "rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()
