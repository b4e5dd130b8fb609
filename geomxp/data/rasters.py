"""Regular grids of the plane as NetCDF and GeoTIFF files. The only module that knows GeoTIFF.

Arrays have the row of the smallest y (or latitude) first, as `geomxp.prediction.raster.Raster`;
a GeoTIFF has the northernmost first.
"""

from pathlib import Path

import numpy as np

from ..data import crs as systems
from ..data import files, tables
from ..errors import InvalidInput

GEOTIFF = (".tif", ".tiff")
NETCDF = (".nc",)
ENDINGS = GEOTIFF + NETCDF

UNITS = {"metre": "m", "kilometre": "km", "US survey foot": "US_survey_foot"}
"""Units of length as UDUNITS and the CF conventions write them."""

REGULAR = 1e-4
"""Steps of a regular axis may differ by this part of one: a file may hold them in FP32."""


def check_libraries(path):
    """Raise `InvalidInput` if what writes files of this ending is not installed."""
    suffix = Path(path).suffix.lower()
    needed = ("xarray", "netCDF4") if suffix in NETCDF else ("rasterio",)
    for name in needed if suffix in ENDINGS else ():
        systems.library(name)


def dataset(layers, x, y, names, *, attributes=None, crs=None, spherical=False, length_unit=""):
    """Return layers on a grid as an xarray Dataset that follows the CF conventions.

    Parameters
    ----------
    layers : dict of str to (array, dict)
        (rows, columns) arrays, NaN where there is nothing, and their attributes.
    x, y : (columns,), (rows,) ndarray
        Centres of the cells.
    names : (str, str)
        Of x and y.
    attributes : dict, optional
        Of the whole.
    crs : str, optional
        Coordinate reference system.
    spherical : bool
        Whether x and y are longitude and latitude.
    length_unit : str
        Of x and y, where they are lengths.

    Returns
    -------
    xarray.Dataset

    Raises
    ------
    InvalidInput
        If xarray is not installed, or a coordinate has the name of a layer.
    """
    xarray = systems.library("xarray")
    taken = [name for name in names if name in layers]
    if taken:
        raise InvalidInput(f"coordinate {taken[0]!r} has the name of a result: rename it.")
    system = None if crs is None else systems.describe(crs)
    spherical = spherical or (system is not None and system.geographic)
    found = xarray.Dataset(
        {name: ((names[1], names[0]), values, about) for name, (values, about) in layers.items()},
        coords={
            name: (name, values, _axis(name, k, spherical, system, length_unit))
            for k, (name, values) in enumerate(zip(names, (x, y), strict=True))
        },
        attrs={"Conventions": "CF-1.8"} | (attributes or {}),
    )
    for name in names:
        # a coordinate has no missing values
        found[name].encoding["_FillValue"] = None
    if system is not None:
        pyproj = systems.library("pyproj")
        found = found.assign_coords(crs=((), np.int32(0), pyproj.CRS.from_user_input(crs).to_cf()))
        for name in layers:
            # written as an attribute; as an attribute in memory it would be written twice
            found[name].encoding["grid_mapping"] = "crs"
    return found


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


def write_netcdf(path, data):
    """Write an xarray Dataset as NetCDF, all or nothing."""
    files.write(data, path)


def write_geotiff(path, layers, extent, *, crs=None, tags=None):
    """Write layers as the bands of a GeoTIFF, north up, all or nothing.

    Parameters
    ----------
    path : path
    layers : dict of str to (array, dict)
        As `dataset` takes them; names become the bands' descriptions, `units` their units.
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
    rasterio = systems.library("rasterio")
    from rasterio.io import MemoryFile

    first = next(iter(layers.values()))[0]
    left, right, bottom, top = extent
    rows, columns = first.shape
    try:
        system = None if crs is None else rasterio.crs.CRS.from_user_input(crs)
    except rasterio.errors.CRSError as error:
        said = " ".join(str(error).split())[:80]
        raise InvalidInput(f"the coordinate reference system cannot be written ({said}).") from None
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
        tables.write_atomically(path, lambda file: file.write(memory.getbuffer()))


def read_grid(path):
    """Return where the cells of a raster file are.

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
        If the file is none, or its grid is not regular, or lies askew.
    """
    tables.check_there(path)
    if Path(path).suffix.lower() in NETCDF:
        x, y, crs = _netcdf_axes(path, files.read_grid(path))
        return (*_ends(x, path), *_ends(y, path)), (len(y), len(x)), crs
    with _opened(path) as file:
        left, bottom, right, top = file.bounds
        extent = (min(left, right), max(left, right), min(bottom, top), max(bottom, top))
        return extent, (file.height, file.width), _name(file.crs)


def _netcdf_axes(path, data):
    """Return x, y and the coordinate reference system of a NetCDF grid."""
    from .frames import tabulate
    from .grids import variable_names

    table = tabulate(data, variable_names(data)[:1])
    x, y = (data[name] for name in table.locations)
    if x.ndim != 1 or y.ndim != 1:
        raise InvalidInput(f"{path}: the grid's coordinates must have one dimension each.")
    return np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64), table.crs


def _ends(centres, path):
    """Return where an axis of cells begins and ends."""
    centres = np.sort(centres)
    steps = np.diff(centres)
    if not len(steps) or np.ptp(steps) > REGULAR * steps.mean():
        raise InvalidInput(f"{path}: the cells of the grid must be of one size.")
    half = (centres[-1] - centres[0]) / len(steps) / 2
    return float(centres[0] - half), float(centres[-1] + half)


def _opened(path):
    """Open a raster file whose rows run along x."""
    import warnings

    rasterio = systems.library("rasterio")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
            file = rasterio.open(path)
    except rasterio.errors.RasterioIOError:
        raise InvalidInput(f"{path}: not a raster file that GDAL can read.") from None
    if file.transform.b or file.transform.d:
        file.close()
        raise InvalidInput(f"{path}: the raster lies askew: warp it to rows from west to east.")
    return file


def _name(system):
    """Return a CRS of rasterio as text, None if there is none."""
    if not system:
        return None
    authority = system.to_authority()
    return ":".join(authority) if authority else system.to_wkt()


def read_mask(path, x, y):
    """Return where a raster says yes: the cell about a place has a value, and it is not 0.

    Parameters
    ----------
    path : path
        GeoTIFF (or another format of GDAL), or NetCDF; its first band or variable.
    x, y : (columns,), (rows,) ndarray
        Places; outside the raster it says no.

    Returns
    -------
    (rows, columns) ndarray of bool
    """
    (left, right, bottom, top), (rows, columns), _ = read_grid(path)
    if Path(path).suffix.lower() in NETCDF:
        values = _netcdf_values(path)
    else:
        with _opened(path) as file:
            band = file.read(1, masked=True)
            values = np.where(np.ma.getmaskarray(band), np.nan, band.data.astype(np.float64))
            values = values[:: -1 if file.transform.e < 0 else 1]
            values = values[:, :: -1 if file.transform.a < 0 else 1]
    j = np.floor((x - left) / (right - left) * columns).astype(int)
    i = np.floor((y - bottom) / (top - bottom) * rows).astype(int)
    inside = ((i >= 0) & (i < rows))[:, None] & ((j >= 0) & (j < columns))
    found = values[np.clip(i, 0, rows - 1)[:, None], np.clip(j, 0, columns - 1)]
    return inside & np.isfinite(found) & (found != 0)


def _netcdf_values(path):
    """Return the first variable of a NetCDF grid, the row of the smallest y first."""
    from .frames import tabulate
    from .grids import variable_names

    data = files.read_grid(path)
    names = variable_names(data)[:1]
    if not names:
        raise InvalidInput(f"{path}: holds no variable.")
    x, y = tabulate(data, names).locations
    layer = data[names[0]].squeeze().transpose(y, x).sortby([y, x])
    return np.asarray(layer, dtype=np.float64)
