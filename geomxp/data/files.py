"""Spatial files (GeoPackage, GeoJSON, shapefile, NetCDF, GeoTIFF), and atomic replacement of files.

Arrays on a regular grid have the row of the smallest y (or latitude) first; a GeoTIFF stores the
northernmost row first.
"""

import os
import tempfile
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ..errors import GeomxpError, InvalidInput
from .spatial import describe, library, one_line, tabulate, variable_names

VECTORS = (".gpkg", ".geojson", ".shp")
GRIDS = (".nc",)
GEOTIFF = (".tif", ".tiff")
ENDINGS = (*VECTORS, *GRIDS)
"""Endings of files that `read` and `write` know."""

DRIVERS = {".gpkg": "GPKG", ".geojson": "GeoJSON"}
"""Formats of points that are written. A shapefile would shorten the names of columns."""

OTHERS = (".xlsx", ".xls", ".xlsm", ".ods", ".json", ".html", ".pdf")
"""Endings of other kinds of files than tables."""

PARTS = (".shp", ".dbf", ".prj")
"""Files of a shapefile whose content matters."""

UNITS = {"metre": "m", "kilometre": "km", "US survey foot": "US_survey_foot"}
"""Units of length in the spelling of UDUNITS and the CF conventions."""

REGULAR = 1e-4
"""Relative tolerance for the steps of a regular axis: files may store coordinates in FP32."""


@contextmanager
def replacing(path):
    """Yield a temporary path; its file replaces `path` at the end, unless an error was raised.

    Raises
    ------
    GeomxpError
        If the folder is missing or the disk is full; an existing file of this name is unchanged.
    """
    path = Path(path)
    try:
        # in a folder, because libraries write to names and look at their endings
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
            temporary = Path(folder) / path.name
            yield temporary
            with open(temporary, "r+b") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
    except OSError as error:
        raise GeomxpError(f"{path}: cannot be written ({error.strerror or error}).") from None


def check_there(path):
    """Raise `InvalidInput` if there is no such file."""
    if Path(path).is_dir():
        raise InvalidInput(f"{path}: is a folder, not a table.")
    if not Path(path).is_file():
        raise InvalidInput(f"{path}: no such file, and no data set of this name.")


def read(path):
    """Read a spatial file by its ending, one of `ENDINGS`."""
    return read_grid(path) if Path(path).suffix.lower() in GRIDS else read_vector(path)


def write(data, path):
    """Write a geopandas frame or an xarray Dataset by the path's ending, all or nothing.

    Raises
    ------
    InvalidInput
        For columns or variables that the file cannot hold.
    GeomxpError
        If the file cannot be written; an existing file of this name is unchanged.
    """
    write_as = _write_grid if Path(path).suffix.lower() in GRIDS else _write_vector
    try:
        with replacing(path) as temporary:
            write_as(data, temporary)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def check_kind(path, points, grid):
    """Raise `InvalidInput` if a file of this ending cannot hold a frame of this kind.

    Parameters
    ----------
    path : path
    points, grid : bool
        Whether the frame has points; whether it is a grid.
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
        raise InvalidInput(
            f"{path}: holds a grid, and these locations are not a grid: write a .csv."
        )


def parts(path):
    """Return the files whose bytes identify a table: several for a shapefile."""
    path = Path(path)
    if path.suffix.lower() != ".shp":
        return [path]
    result = []
    for ending in PARTS:
        spellings = (path.with_suffix(ending), path.with_suffix(ending.upper()))
        result += [part for part in spellings if part.is_file()][:1]
    return result


# Points with attributes


def read_vector(path):
    """Read the locations and attributes of a vector file of one layer.

    Parameters
    ----------
    path : path
        ``.gpkg``, ``.geojson`` or ``.shp``.

    Returns
    -------
    geopandas.GeoDataFrame
        A pandas frame if the layer has no geometry.

    Raises
    ------
    InvalidInput
        If the file has another format or several layers, or geopandas is not installed.
    """
    geopandas = library("geopandas")
    pyogrio = library("pyogrio")
    try:
        layers = [str(name) for name, _ in pyogrio.list_layers(path)]
        if len(layers) != 1:
            raise InvalidInput(
                f"{path}: must hold one layer. Got {', '.join(layers) or 'none'}: save the layer "
                "in a file of its own."
            )
        return geopandas.read_file(path, engine="pyogrio")
    except InvalidInput:
        raise
    except (RuntimeError, ValueError, OSError) as error:
        kinds = dict(zip(VECTORS, ("GeoPackage", "GeoJSON file", "shapefile"), strict=True))
        kind = kinds[Path(path).suffix.lower()]
        raise InvalidInput(f"{path}: not a {kind} ({_about(error, path)}).") from None


def _write_vector(frame, path):
    """Write points; GeoJSON stores longitude and latitude, so others are reprojected."""
    pyogrio = library("pyogrio")
    suffix = Path(path).suffix.lower()
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
            pyogrio.write_dataframe(frame, path, layer="places", driver=DRIVERS[suffix])
    except (RuntimeError, ValueError) as error:
        raise InvalidInput(f"it cannot hold these columns ({_about(error, path)}).") from None


def _about(error, path):
    """Return a library's message without the path and its own advice."""
    return one_line(str(error).replace(str(path), "the file").split(";")[0], 160)


# NetCDF


def read_grid(path):
    """Read a whole NetCDF file.

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
        If the file has another format, or xarray or netCDF4 is not installed.
    """
    xarray = library("xarray")
    library("netCDF4")
    try:
        return xarray.load_dataset(path, engine="netcdf4", decode_coords="all", decode_times=False)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise InvalidInput(f"{path}: not a NetCDF file ({_about(error, path)}).") from None


def _write_grid(dataset, path):
    """Write an xarray Dataset as NetCDF."""
    library("netCDF4")
    try:
        dataset.to_netcdf(path, engine="netcdf4")
    except (ValueError, TypeError, RuntimeError) as error:
        raise InvalidInput(f"it cannot hold these variables ({_about(error, path)}).") from None


# Regular grids of numbers: maps


def check_libraries(path):
    """Raise `InvalidInput` if a library that writes maps with this ending is not installed."""
    suffix = Path(path).suffix.lower()
    needed = {".nc": ("xarray", "netCDF4")} | dict.fromkeys(GEOTIFF, ("rasterio",))
    for name in needed.get(suffix, ()):
        library(name)


def as_dataset(layers, x, y, names, *, attributes=None, crs=None, spherical=False, length_unit=""):
    """Return layers on a grid as an xarray Dataset that follows the CF conventions.

    Parameters
    ----------
    layers : dict of str to (array, dict)
        (rows, columns) arrays, NaN where there is no result, and their attributes.
    x, y : (columns,), (rows,) ndarray
        Centres of the cells.
    names : (str, str)
        Names of x and y.
    attributes : dict, optional
        Attributes of the whole.
    crs : str, optional
        Coordinate reference system.
    spherical : bool
        Whether x and y are longitude and latitude.
    length_unit : str
        Unit of x and y if they are lengths.

    Returns
    -------
    xarray.Dataset

    Raises
    ------
    InvalidInput
        If xarray is not installed, or a coordinate has the name of a layer.
    """
    xarray = library("xarray")
    taken = [name for name in names if name in layers]
    if taken:
        raise InvalidInput(f"coordinate {taken[0]!r} has the name of a result: rename it.")
    system = None if crs is None else describe(crs)
    spherical = spherical or (system is not None and system.geographic)
    dataset = xarray.Dataset(
        {name: ((names[1], names[0]), values, about) for name, (values, about) in layers.items()},
        coords={
            name: (name, values, _axis(name, k, spherical, system, length_unit))
            for k, (name, values) in enumerate(zip(names, (x, y), strict=True))
        },
        attrs={"Conventions": "CF-1.8"} | (attributes or {}),
    )
    for name in names:
        # CF: a coordinate has no missing values
        dataset[name].encoding["_FillValue"] = None
    if system is not None:
        pyproj = library("pyproj")
        mapping = pyproj.CRS.from_user_input(crs).to_cf()
        dataset = dataset.assign_coords(crs=((), np.int32(0), mapping))
        for name in layers:
            # as an encoding: xarray refuses to write it also as an attribute
            dataset[name].encoding["grid_mapping"] = "crs"
    return dataset


def _axis(name, k, spherical, system, length_unit):
    """Return the CF attributes of a horizontal coordinate."""
    about = {"axis": "XY"[k], "long_name": name}
    if spherical:
        ends = ("degrees_east", "degrees_north")
        return about | {"standard_name": ("longitude", "latitude")[k], "units": ends[k]}
    if system is not None:
        about["standard_name"] = f"projection_{'xy'[k]}_coordinate"
        length_unit = system.unit
    units = UNITS.get(length_unit, length_unit)
    # UDUNITS does not know units of several words
    return about | ({"units": units} if units.isidentifier() else {})


def write_geotiff(path, layers, extent, *, crs=None, tags=None):
    """Write layers as the bands of a GeoTIFF, north up, all or nothing.

    Parameters
    ----------
    path : path
    layers : dict of str to (array, dict)
        As of `as_dataset`; names become the descriptions of bands, `units` their units.
    extent : tuple of float
        Left, right, bottom, top.
    crs : str, optional
    tags : dict of str to str, optional

    Raises
    ------
    InvalidInput
        If rasterio is not installed, or does not know the coordinate reference system.
    GeomxpError
        If the file cannot be written.
    """
    rasterio = library("rasterio")
    from rasterio.io import MemoryFile

    rows, columns = next(iter(layers.values()))[0].shape
    left, right, bottom, top = extent
    try:
        system = None if crs is None else rasterio.crs.CRS.from_user_input(crs)
    except rasterio.errors.CRSError as error:
        raise InvalidInput(
            f"the coordinate reference system cannot be written ({one_line(error)})."
        ) from None
    profile = {
        "driver": "GTiff",
        "height": rows,
        "width": columns,
        "count": len(layers),
        "dtype": "float64",
        "nodata": np.nan,
        "crs": system,
        "transform": rasterio.Affine(
            *((right - left) / columns, 0.0, left),
            *(0.0, (bottom - top) / rows, top),
        ),
        "compress": "deflate",
        "predictor": 3,
    }
    with MemoryFile() as memory:
        with memory.open(**profile) as file:
            for band, (name, (values, about)) in enumerate(layers.items(), start=1):
                file.write(values[::-1], band)
                file.set_band_description(band, name)
                if about.get("units"):
                    file.set_band_unit(band, about["units"])
            file.update_tags(AREA_OR_POINT="Area", **(tags or {}))
        with replacing(path) as temporary:
            temporary.write_bytes(memory.getbuffer())


def read_cells(path):
    """Return the cells of a raster file.

    Parameters
    ----------
    path : path
        GeoTIFF (or another format of GDAL), or NetCDF.

    Returns
    -------
    extent : tuple of float
        Left, right, bottom, top.
    shape : (int, int)
        Rows and columns.
    crs : str or None

    Raises
    ------
    InvalidInput
        If GDAL or NetCDF cannot read the file, or its grid is irregular or rotated.
    """
    check_there(path)
    if Path(path).suffix.lower() in GRIDS:
        data = read_grid(path)
        table = tabulate(data, variable_names(data)[:1])
        x, y = (data[name] for name in table.locations)
        if x.ndim != 1 or y.ndim != 1:
            raise InvalidInput(f"{path}: the grid's coordinates must have one dimension each.")
        return (*_ends(x, path), *_ends(y, path)), (len(y), len(x)), table.crs
    with _opened(path) as file:
        left, bottom, right, top = file.bounds
        extent = (min(left, right), max(left, right), min(bottom, top), max(bottom, top))
        return extent, (file.height, file.width), _name(file.crs)


def _ends(centres, path):
    """Return the two ends of an axis of cells."""
    centres = np.sort(np.asarray(centres, dtype=np.float64))
    steps = np.diff(centres)
    if not len(steps) or np.ptp(steps) > REGULAR * steps.mean():
        raise InvalidInput(f"{path}: the cells of the grid must be of one size.")
    half = (centres[-1] - centres[0]) / len(steps) / 2
    return float(centres[0] - half), float(centres[-1] + half)


def _opened(path):
    """Open a raster file whose rows run along x."""
    rasterio = library("rasterio")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
            file = rasterio.open(path)
    except rasterio.errors.RasterioIOError:
        raise InvalidInput(f"{path}: not a raster file that GDAL can read.") from None
    if file.transform.b or file.transform.d:
        file.close()
        raise InvalidInput(f"{path}: the raster is rotated: warp it to rows from west to east.")
    return file


def _name(system):
    """Return a CRS of rasterio as text, or None."""
    if not system:
        return None
    authority = system.to_authority()
    return ":".join(authority) if authority else system.to_wkt()


def read_mask(path, x, y):
    """Return which locations lie in a cell with a value other than 0.

    Parameters
    ----------
    path : path
        GeoTIFF (or another format of GDAL), or NetCDF; its first band or variable counts.
    x, y : (columns,), (rows,) ndarray
        Coordinates; False outside the raster.

    Returns
    -------
    (rows, columns) ndarray of bool
    """
    (left, right, bottom, top), (rows, columns), _ = read_cells(path)
    if Path(path).suffix.lower() in GRIDS:
        values = _netcdf_values(path)
    else:
        with _opened(path) as file:
            values = file.read(1, masked=True).astype(np.float64).filled(np.nan)
            values = values[:: -1 if file.transform.e < 0 else 1]
            values = values[:, :: -1 if file.transform.a < 0 else 1]
    j = np.floor((x - left) / (right - left) * columns).astype(int)
    i = np.floor((y - bottom) / (top - bottom) * rows).astype(int)
    inside = ((i >= 0) & (i < rows))[:, None] & ((j >= 0) & (j < columns))
    at = values[np.clip(i, 0, rows - 1)[:, None], np.clip(j, 0, columns - 1)]
    return inside & np.isfinite(at) & (at != 0)


def _netcdf_values(path):
    """Return the first variable of a NetCDF grid, the row of the smallest y first."""
    data = read_grid(path)
    names = variable_names(data)[:1]
    if not names:
        raise InvalidInput(f"{path}: holds no variable.")
    x, y = tabulate(data, names).locations
    layer = data[names[0]].squeeze().transpose(y, x).sortby([y, x])
    return np.asarray(layer, dtype=np.float64)
