"""Tables to arrays and back. The only module that reads or writes data files.

Files are written to a temporary name and renamed, so that a full disk or a killed run loses
no earlier result. Nothing that a stranger's file holds is ever run.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..data import delimited, files
from ..errors import GeomxpError, InvalidInput, did_you_mean
from .observations import Observations

if TYPE_CHECKING:
    from .._typing import PathLikeText, Sequence

MISSING = frozenset({"", "na", "nan", "null", "none", "n/a", "<na>", "-nan", "#n/a"})
"""Cells that say "no value", in lower case."""


def read_data(path):
    """Read a file as what it holds; CSV cells stay text until a column is used.

    Parameters
    ----------
    path : path
        ``.csv`` (also ``.csv.gz``, ``.txt``, ``.tsv``; commas, semicolons or tabs between cells),
        ``.parquet`` or ``.npz``; ``.gpkg``, ``.geojson`` or ``.shp``; ``.nc``.

    Returns
    -------
    pandas.DataFrame, geopandas.GeoDataFrame or xarray.Dataset

    Raises
    ------
    InvalidInput
        If the file is missing, empty or not of its kind, or needs a library that is not installed.
    """
    path = Path(path)
    check_there(path)
    suffix = path.suffix.lower()
    if suffix in files.ENDINGS:
        return files.read(path)
    readers = {".parquet": _read_parquet, ".npz": _read_npz}
    return readers.get(suffix, delimited.read)(path)


def read_frame(path):
    """Read a file as a plain pandas frame, the coordinates of points and cells as columns.

    See `read_data`.
    """
    from .frames import tabulate

    data = read_data(path)
    try:
        return tabulate(data).columns
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def check_there(path):
    """Raise `InvalidInput` if there is no such file."""
    if Path(path).is_dir():
        raise InvalidInput(f"{path}: is a folder, not a table.")
    if not Path(path).is_file():
        raise InvalidInput(f"{path}: no such file, and no data set of this name.")


def _read_parquet(path):
    import pandas as pd

    try:
        return pd.read_parquet(path)
    except (ValueError, OSError, ImportError, KeyError) as error:
        raise InvalidInput(f"{path}: not a Parquet table ({_one_line(error)}).") from None


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
        raise InvalidInput(f"{path}: not an NPZ archive of numbers ({_one_line(error)}).") from None
    if len({array.shape for array in columns.values()}) != 1 or any(
        array.ndim != 1 for array in columns.values()
    ):
        shapes = ", ".join(f"{name} {array.shape}" for name, array in columns.items())
        raise InvalidInput(f"{path}: columns must be 1-D arrays of one length. Got {shapes}.")
    return pd.DataFrame(columns)


def read_table(
    path: PathLikeText,
    *,
    locations: Sequence[str] | None = None,
    values: str | None = None,
    covariates: Sequence[str] = (),
    formula: str | Sequence[str] | None = None,
    metric: str | None = None,
    drop_missing: bool = False,
    crs: str | None = None,
) -> Observations:
    """Read observations from a table.

    Parameters
    ----------
    path : path
        CSV, Parquet or NPZ; GeoPackage, GeoJSON or shapefile; NetCDF.
    locations : sequence of str, optional
        Columns of the coordinates; longitude first. Points and most grids know theirs.
    values : str, optional
        Column of the values; may be left out for a grid of one variable.
    covariates : sequence of str
        Columns of the covariates: numbers, or text (of which none is a number).
    formula : str or sequence of str, optional
        Trends, whose columns are read as covariates too.
    metric : str, optional
        "chordal" by default where the columns are called lon and lat, or are by the file's
        coordinate reference system, else "euclidean".
    drop_missing : bool
        Leave out the rows with a missing or infinite number in a used column.
    crs : str, optional
        Coordinate reference system of the columns `locations`, as "EPSG:28992".

    Returns
    -------
    Observations

    Raises
    ------
    InvalidInput
        In one line with the file, row, column and value. Rows count from 1 below the header.
    """
    data = read_data(path)
    try:
        seen = Observations.from_frame(
            data,
            locations=locations,
            values=values,
            covariates=covariates,
            formula=formula,
            metric=metric,
            drop_missing=drop_missing,
            crs=crs,
        )
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
    seen.source.update(
        path=str(Path(path).resolve()),
        sha256=sha256(path),
        digest=seen.digest(),
        locations=list(seen.location_names),
        value=seen.value_name,
        covariates=list(seen.covariate_names),
        metric=seen.metric,
        drop_missing=bool(drop_missing),
        **({} if formula is None else {"formula": formula}),
        **({} if crs is None else {"crs": seen.crs}),
    )
    return seen


def number_columns(frame, names):
    """Return columns of a frame as an (n, len(names)) array; missing cells become NaN.

    Raises
    ------
    InvalidInput
        For a column that is not there, or a cell that is text (row and value are named).
    """
    check_columns(frame, names)
    return np.column_stack([_numbers(frame[name], name) for name in names]).reshape(
        len(frame), len(names)
    )


def check_columns(frame, names):
    """Raise `InvalidInput` for a column that is not there, or there twice."""
    for name in names:
        if name not in frame.columns:
            have = ", ".join(map(str, frame.columns[:12]))
            more = ", …" if len(frame.columns) > 12 else ""
            near = did_you_mean(name, frame.columns)
            if delimited.is_headless(frame.columns):
                near = " Does the first line hold names? It must."
            raise InvalidInput(f"no column {name!r}. The columns are: {have}{more}.{near}")
        if frame[name].ndim != 1:
            raise InvalidInput(f"two columns are called {name!r}.")


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
            f"{delimited.advice_on(value)}."
        )
    return numbers


def write_frame(frame, path):
    """Write a pandas frame as CSV, Parquet or NPZ, by the path's ending.

    A geopandas frame may also be written as a GeoPackage or GeoJSON; elsewhere its points become
    columns. An xarray Dataset is written as NetCDF.

    Raises
    ------
    InvalidInput
        If a file of this kind cannot hold the frame.
    """
    from .frames import is_geographic_frame, is_grid, tabulate

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
        frame = typed(frame)
        write_atomically(path, lambda file: frame.to_parquet(file, index=False))
    elif suffix == ".npz":
        columns = {str(name): _plain(column) for name, column in typed(frame).items()}
        if "file" in columns:
            raise InvalidInput(f"{path}: an NPZ file cannot have a column called 'file'.")
        write_atomically(path, lambda file: np.savez(file, **columns))
    else:
        write_text(path, frame.to_csv(index=False, sep="\t" if suffix == ".tsv" else ","))


def typed(frame):
    """Return the frame with columns of numbers written as text turned to numbers."""
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
    write_atomically(path, lambda file: file.write(text.encode("utf-8")))


def write_atomically(path, write):
    """Call `write(file)` on a temporary file beside `path`, then rename it to `path`.

    Raises
    ------
    GeomxpError
        If the folder is missing or the disk is full; an earlier file of this name is untouched.
    """
    path = Path(path)
    temporary = None
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        raise GeomxpError(f"{path}: cannot be written ({error.strerror or error}).") from None
    finally:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def check_writable(*paths, inputs=()):
    """Raise `InvalidInput` now if a file could not be written later, or would destroy an input."""
    paths = [path for path in paths if path]
    taken = {Path(path).resolve(): "an input" for path in inputs if path}
    for path in paths:
        if Path(path).resolve() in taken:
            raise InvalidInput(f"{path}: is {taken[Path(path).resolve()]}; choose another name.")
        taken[Path(path).resolve()] = "another output"
        if Path(path).exists() and not (Path(path).is_file() or Path(path).is_dir()):
            raise InvalidInput(f"{path}: is not a regular file.")
        folder = Path(path).resolve().parent
        if not folder.is_dir():
            raise InvalidInput(f"{path}: the folder {folder} does not exist.")
        if Path(path).is_dir():
            raise InvalidInput(f"{path}: is a folder, not a file.")
        if Path(path).suffix.lower() in delimited.SPREADSHEETS:
            raise InvalidInput(f"{path}: spreadsheets are not written: write a .csv.")
        if not os.access(folder, os.W_OK):
            raise InvalidInput(f"{path}: the folder {folder} is not writable.")


def read_json(path):
    """Read a JSON object.

    Raises
    ------
    InvalidInput
        If the file is missing or no JSON object.
    """
    if Path(path).exists() and not Path(path).is_file():
        raise InvalidInput(f"{path}: is not a regular file.")
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidInput(f"{path}: no such file.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{path}: not a JSON file ({_one_line(error)}).") from None
    if not isinstance(document, dict):
        raise InvalidInput(f"{path}: must hold a JSON object. Got {type(document).__name__}.")
    return document


def write_json(path, document):
    """Write a JSON object; numbers keep every digit."""
    write_text(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


def sha256(path):
    """Return the SHA-256 of a file's bytes (of a shapefile's parts), as hexadecimal text."""
    if Path(path).suffix.lower() == ".shp":
        return files.sha256_of_parts(path)
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _one_line(error):
    return " ".join(str(error).split())[:160].rstrip(".")
