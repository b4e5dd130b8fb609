"""GeoPackage, GeoJSON, shapefile and NetCDF files, through geopandas and xarray."""

import hashlib
import os
import tempfile
import warnings
from pathlib import Path

from ..errors import GeomxpError, InvalidInput
from .crs import library

VECTORS = (".gpkg", ".geojson", ".shp")
GRIDS = (".nc",)
ENDINGS = VECTORS + GRIDS
DRIVERS = {".gpkg": "GPKG", ".geojson": "GeoJSON"}
"""What can be written; a shapefile cuts names to ten letters, and is several files."""

OTHERS = (".xlsx", ".xls", ".xlsm", ".ods", ".json", ".html", ".pdf")
"""Endings that say another kind of file than a table."""

PARTS = (".shp", ".dbf", ".prj")
"""The files of a shapefile that hold numbers."""


def read(path):
    """Read a file by its ending, one of `ENDINGS`; see `read_vector` and `read_grid`."""
    return read_grid(path) if Path(path).suffix.lower() in GRIDS else read_vector(path)


def write(frame, path):
    """Write a file by its ending, all or nothing; see `write_vector` and `write_grid`.

    Raises
    ------
    GeomxpError
        If the folder is missing or the disk is full; an earlier file of this name is untouched.
    """
    path = Path(path)
    write_as = write_grid if path.suffix.lower() in GRIDS else write_vector
    try:
        # the libraries write to names, and some look at the ending
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
            written = Path(folder) / path.name
            write_as(frame, written)
            os.replace(written, path)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
    except OSError as error:
        raise GeomxpError(f"{path}: cannot be written ({error.strerror or error}).") from None


def read_vector(path):
    """Read places and their attributes.

    Parameters
    ----------
    path : path
        ``.gpkg``, ``.geojson`` or ``.shp``, of one layer.

    Returns
    -------
    geopandas.GeoDataFrame
        Or a pandas frame if the layer has no geometry.

    Raises
    ------
    InvalidInput
        If the file is not of its kind, has several layers, or geopandas is not installed.
    """
    geopandas = library("geopandas")
    pyogrio = library("pyogrio")
    try:
        layers = [str(name) for name, _ in pyogrio.list_layers(path)]
        if len(layers) != 1:
            raise InvalidInput(
                f"{path}: must hold one layer. Got {', '.join(layers) or 'none'}: save the one "
                "that is wanted as a file of its own."
            )
        return geopandas.read_file(path, engine="pyogrio")
    except InvalidInput:
        raise
    except (RuntimeError, ValueError, OSError) as error:
        kind = {".gpkg": "GeoPackage", ".geojson": "GeoJSON file", ".shp": "shapefile"}
        raise InvalidInput(
            f"{path}: not a {kind[Path(path).suffix.lower()]} ({_one_line(error, path)})."
        ) from None


def check_kind(path, points, grid):
    """Raise `InvalidInput` if a file of this ending cannot hold a frame of this kind.

    Parameters
    ----------
    path : path
    points, grid : bool
        Whether it has points; whether it is a grid.
    """
    suffix = Path(path).suffix.lower()
    if suffix in OTHERS:
        raise InvalidInput(f"{path}: such files are not written: write a .csv or .parquet.")
    if suffix in VECTORS and suffix not in DRIVERS:
        raise InvalidInput(
            f"{path}: shapefiles are read only, they cut names short: write a .gpkg."
        )
    if suffix in VECTORS and not points:
        raise InvalidInput(f"{path}: holds points of a geopandas frame: write a .csv or .parquet.")
    if suffix in GRIDS and not grid:
        raise InvalidInput(f"{path}: holds a grid, and these places are none: write a .csv.")


def write_vector(frame, path):
    """Write a geopandas frame as a GeoPackage or GeoJSON, by the path's ending.

    GeoJSON has longitude and latitude only: other coordinates are reprojected to EPSG:4326.

    Raises
    ------
    InvalidInput
        For GeoJSON without a coordinate reference system, and columns that the file cannot hold.
    """
    pyogrio = library("pyogrio")
    suffix = Path(path).suffix.lower()
    if suffix == ".geojson":
        if frame.crs is None:
            raise InvalidInput(
                "GeoJSON holds longitude and latitude, and the places have no coordinate "
                "reference system: write a .gpkg."
            )
        frame = frame.to_crs("EPSG:4326")
    try:
        with warnings.catch_warnings():
            # a file without a system is what places without one make
            warnings.filterwarnings("ignore", "'crs' was not provided")
            # not the file's name: some are no names of layers
            pyogrio.write_dataframe(frame, path, layer="places", driver=DRIVERS[suffix])
    except (RuntimeError, ValueError) as error:
        raise InvalidInput(f"it cannot hold these columns ({_one_line(error, path)}).") from None


def read_grid(path):
    """Read a NetCDF file whole.

    Parameters
    ----------
    path : path

    Returns
    -------
    xarray.Dataset
        Times stay numbers, with their units as attributes.

    Raises
    ------
    InvalidInput
        If it is no NetCDF file, or xarray or netCDF4 is not installed.
    """
    xarray = library("xarray")
    library("netCDF4")
    try:
        return xarray.load_dataset(path, engine="netcdf4", decode_coords="all", decode_times=False)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise InvalidInput(f"{path}: not a NetCDF file ({_one_line(error, path)}).") from None


def write_grid(dataset, path):
    """Write a Dataset as a NetCDF file."""
    library("netCDF4")
    try:
        dataset.to_netcdf(path, engine="netcdf4")
    except (ValueError, TypeError, RuntimeError) as error:
        raise InvalidInput(f"it cannot hold these variables ({_one_line(error, path)}).") from None


def sha256_of_parts(path):
    """Return the SHA-256 of a shapefile's files that hold numbers, one after the other."""
    found = hashlib.sha256()
    for ending in PARTS:
        for part in (Path(path).with_suffix(ending), Path(path).with_suffix(ending.upper())):
            if part.is_file():
                found.update(part.read_bytes())
                break
    return found.hexdigest()


def _one_line(error, path):
    """Return what a library says, without the path and without its own advice."""
    said = " ".join(str(error).replace(str(path), "the file").split()).split(";")[0]
    return said[:160].rstrip(".")
