"""Maps in raster files: NetCDF that follows the CF conventions, and GeoTIFF.

Arrays on a regular grid have the row of the smallest y (or latitude) first; a GeoTIFF stores the
northernmost row first.
"""

import warnings
from pathlib import Path

import numpy as np

from ..covariance.distance import METRICS
from ..errors import GeomxpWarning, InvalidInput, one_line
from . import readers
from .readers import ASCII_GRID_NODATA
from .spatial import check_free, describe, is_grid, library, tabulate, variable_names
from .tables import check_exists, read_data, reader_of, write_bytes

GEOTIFF_ENDINGS = (".tif", ".tiff")

CF_LENGTH_UNITS = {"metre": "m", "kilometre": "km", "US survey foot": "US_survey_foot"}
"""Units of length in the spelling of UDUNITS and the CF conventions."""

GREGORIAN_REFORM = np.datetime64("1582-10-15")

STEP_TOLERANCE = 1e-4
"""Relative tolerance for the steps of a regular axis: files may store coordinates in FP32."""


def check_libraries(path):
    """Raise `InvalidInput` if a library that writes maps with this ending is not installed."""
    suffix = Path(path).suffix.lower()
    needed = {".nc": ("xarray", "netCDF4")} | dict.fromkeys(GEOTIFF_ENDINGS, ("rasterio",))
    for name in needed.get(suffix, ()):
        library(name)


def as_dataset(
    layers, x, y, names, *, attributes=None, crs=None, spherical=False, length_unit="", time=None
):
    """Return layers on a grid as an xarray Dataset that follows the CF conventions.

    `layers` maps names to (rows, columns) arrays, NaN where there is no result, and their
    attributes. `x` (columns,) and `y` (rows,) are the centres of the cells, with their `names`.
    `spherical`: x and y are longitude and latitude; `length_unit` is their unit if they are
    lengths. `time` is its name, numbers and `TimeAxis`. With numbers (t,) layers are
    (t, rows, columns); one number is that of all layers.
    """
    xarray = library("xarray")
    dims = () if time is None or not np.ndim(time[1]) else (time[0],)
    first = () if time is None else (time[0],)
    check_free(layers, (*first, *names), "coordinate")
    system = None if crs is None else describe(crs)
    spherical = spherical or (system is not None and system.geographic)
    dataset = xarray.Dataset(
        {
            name: ((*dims, names[1], names[0]), values, attrs)
            for name, (values, attrs) in layers.items()
        },
        coords={
            name: (name, values, _axis(name, k, spherical, system, length_unit))
            for k, (name, values) in enumerate(zip(names, (x, y), strict=True))
        },
        attrs={"Conventions": "CF-1.8"} | (attributes or {}),
    )
    if time is not None:
        dataset = dataset.assign_coords({time[0]: _time_axis(*time)})
    for name in (*first, *names):
        # CF: a coordinate has no missing values
        dataset[name].encoding["_FillValue"] = None
    if system is not None:
        pyproj = library("pyproj")
        with warnings.catch_warnings():
            # parameters do not say all; the definition in words, which is written too, does
            warnings.simplefilter("ignore", UserWarning)
            mapping = pyproj.CRS.from_user_input(crs).to_cf()
        dataset = dataset.assign_coords(crs=((), np.int32(0), mapping))
        for name in layers:
            # as an encoding: xarray refuses to write it also as an attribute
            dataset[name].encoding["grid_mapping"] = "crs"
    return dataset


def _time_axis(name, numbers, axis):
    """Return a coordinate of times: dates if they have an origin, else numbers."""
    xarray = library("xarray")
    attrs = {"axis": "T", "long_name": name}
    dims = (name,) if np.ndim(numbers) else ()
    if not axis.origin:
        return xarray.Variable(dims, numbers, attrs | ({"units": axis.unit} if axis.unit else {}))
    # the years of UDUNITS are not those of a calendar
    units = f"{'day' if axis.unit == 'year' else axis.unit}s since {axis.origin}"
    dates = axis.dates(numbers)
    # the standard calendar of CF is the Julian one before this day
    early = not axis.calendar and min(np.min(dates), np.datetime64(axis.origin)) < GREGORIAN_REFORM
    calendar = axis.calendar or ("proleptic_gregorian" if early else "standard")
    encoding = {"units": units, "calendar": calendar, "dtype": "float64"}
    return xarray.Variable(dims, dates, attrs | {"standard_name": "time"}, encoding)


def _axis(name, k, spherical, system, length_unit):
    """Return the CF attributes of a horizontal coordinate."""
    attrs = {"axis": "XY"[k], "long_name": name}
    if spherical:
        ends = ("degrees_east", "degrees_north")
        return attrs | {"standard_name": ("longitude", "latitude")[k], "units": ends[k]}
    if system is not None:
        attrs["standard_name"] = f"projection_{'xy'[k]}_coordinate"
        length_unit = system.unit
    units = CF_LENGTH_UNITS.get(length_unit, length_unit)
    # UDUNITS does not know units of several words
    return attrs | ({"units": units} if units.isidentifier() else {})


def write_geotiff(path, layers, extent, *, crs=None, tags=None):
    """Write layers as the bands of a GeoTIFF, north up, all or nothing.

    `layers` as of `as_dataset`: names become the descriptions of bands, `units` their units.
    `extent` is left, right, bottom, top.
    """
    rasterio = library("rasterio")
    from rasterio.io import MemoryFile

    rows, columns = next(iter(layers.values()))[0].shape
    left, right, bottom, top = extent
    try:
        # by a name of pyproj's: rasterio would download a system whose name is an address
        system = None if crs is None else rasterio.crs.CRS.from_user_input(describe(crs).name)
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
            for band, (name, (values, attrs)) in enumerate(layers.items(), start=1):
                file.write(values[::-1], band)
                file.set_band_description(band, name)
                if attrs.get("units"):
                    file.set_band_unit(band, attrs["units"])
            file.update_tags(AREA_OR_POINT="Area", **(tags or {}))
        write_bytes(path, memory.getbuffer())


def check_geotiff(path, data):
    """Raise `InvalidInput` unless a GeoTIFF can hold variables on this grid or frame.

    Returns the names of its coordinates, the extent of its cells and its CRS.
    """
    if not is_grid(data):
        raise InvalidInput(
            f"{path}: can hold only a map: give --grid, --resolution or --like, or LOCATIONS on a "
            "grid."
        )
    table = tabulate(data)
    data, (across, down) = table.source, table.locations[:2]
    others = [dim for dim, size in data.sizes.items() if dim not in (across, down) and size > 1]
    if others or any(data[name].ndim != 1 for name in (across, down)):
        raise InvalidInput(
            f"{path}: can hold only a regular grid of {across} and {down}, and the dimensions are "
            f"{', '.join(map(str, data.sizes))}: write a .nc."
        )
    extent = (*_ends(data[across], path), *_ends(data[down], path))
    return (across, down), extent, table.crs


def write_dataset(dataset, path, crs=None):
    """Write the variables of a regular grid as the bands of a GeoTIFF, all or nothing.

    `crs` is the coordinate reference system of a grid that has none. Warns if it is None, too.
    """
    (across, down), extent, own = check_geotiff(path, dataset)
    if own is None and crs is None:
        warnings.warn(
            f"{path}: is written without a coordinate reference system, because neither the grid "
            "nor the observations have one. Name it with geomxp predict --crs EPSG:CODE.",
            GeomxpWarning,
            stacklevel=2,
        )
    grid = dataset.squeeze().transpose(down, across).sortby([down, across])
    layers = {name: (grid[name].to_numpy(), {}) for name in variable_names(grid)}
    write_geotiff(path, layers, extent, crs=own or crs)


def read_cells(path):
    """Return the cells of a raster file: NetCDF, GeoTIFF, ASCII grid of ESRI or grid of Surfer.

    The extent (left, right, bottom, top), the shape (rows, columns) and the coordinate reference
    system as text, or None. An irregular or rotated grid is an `InvalidInput`.
    """
    return _read(path)[:3]


def read_mask(path, x, y, longitudes=False):
    """Return which locations lie in a cell of the first band other than 0, and the raster's CRS.

    `x` and `y` are coordinates, (columns,) and (rows,); locations outside the raster are False in
    the (rows, columns) result. `longitudes`: `x` may differ from the raster's by whole turns.
    """
    (left, right, bottom, top), (rows, columns), crs, values = _read(path, with_values=True)
    if longitudes:
        x = np.where((left <= x) & (x < right), x, left + (x - left) % 360)
    j = np.floor((x - left) / (right - left) * columns).astype(int)
    i = np.floor((y - bottom) / (top - bottom) * rows).astype(int)
    inside = ((i >= 0) & (i < rows))[:, None] & ((j >= 0) & (j < columns))
    at = values[np.clip(i, 0, rows - 1)[:, None], np.clip(j, 0, columns - 1)]
    return inside & np.isfinite(at) & (at != 0), crs


def _read(path, with_values=False):
    """Return `read_cells`, and the first band as (rows, columns) numbers if it is requested."""
    check_exists(path)
    values = None
    if "netCDF4" in reader_of(path)[1]:
        data = read_data(path)
        names = variable_names(data)[:1] if with_values else []
        further = [dim for name in names for dim in _further_dims(data, name)]
        if further:
            raise InvalidInput(
                f"{path}: a mask must be one map. Got {names[0]!r} with the dimension "
                f"{further[0]!r} of {data.sizes[further[0]]}: save one of its maps in a file."
            )
        table = tabulate(data, names)
        data = table.source
        x, y = (data[name] for name in table.locations)
        if x.ndim != 1 or y.ndim != 1:
            raise InvalidInput(f"{path}: the grid's coordinates must have one dimension each.")
        if table.crs is not None and describe(table.crs).geographic:
            # columns may go from 179 to -179
            moved = METRICS["chordal"].branch_of(np.column_stack((x, np.zeros(len(x)))))[0]
            data = data.assign_coords({x.name: (x.dims, moved[:, 0], x.attrs)})
            x = data[x.name]
        if with_values:
            if not names:
                raise InvalidInput(f"{path}: holds no variable.")
            layer = data[names[0]].squeeze().transpose(y.name, x.name).sortby([y.name, x.name])
            values = np.asarray(layer, dtype=np.float64)
        return (*_ends(x, path), *_ends(y, path)), (len(y), len(x)), table.crs, values
    with _opened(path) as file:
        left, bottom, right, top = file.bounds
        extent = (min(left, right), max(left, right), min(bottom, top), max(bottom, top))
        if with_values:
            values = file.read(1, masked=True).astype(np.float64).filled(np.nan)
            if file.driver == "AAIGrid" and file.nodata is None:
                values[values == ASCII_GRID_NODATA] = np.nan
            values = values[:: -1 if file.transform.e < 0 else 1]
            values = values[:, :: -1 if file.transform.a < 0 else 1]
        return extent, (file.height, file.width), _name(file.crs), values


def _further_dims(data, name):
    """Return the dimensions of a variable, longer than 1, besides the two of its cells."""
    cells = {dim for one in tabulate(data).locations for dim in data[one].dims}
    return [dim for dim in data[name].dims if dim not in cells and data.sizes[dim] > 1]


def _ends(centres, path):
    """Return the two ends of an axis of cells."""
    centres = np.sort(np.asarray(centres, dtype=np.float64))
    steps = np.diff(centres)
    # the coordinates may be missing
    if not len(steps) or not np.ptp(steps) <= STEP_TOLERANCE * steps.mean():
        raise InvalidInput(f"{path}: the cells of the grid must be of one size.")
    half = (centres[-1] - centres[0]) / len(steps) / 2
    return float(centres[0] - half), float(centres[-1] + half)


def _opened(path):
    """Open a raster file whose rows run along x."""
    rasterio, path = library("rasterio"), Path(path).absolute()
    try:
        driver, options = readers.driver_of(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
            file = rasterio.open(path, driver=driver, **options)
    except (ValueError, rasterio.errors.RasterioIOError):
        raise InvalidInput(f"{path}: not a raster file that GDAL can read.") from None
    if file.transform.b or file.transform.d:
        file.close()
        raise InvalidInput(f"{path}: the raster is rotated: resample it, gdalwarp OLD.tif NEW.tif.")
    return file


def _name(system):
    """Return a CRS of rasterio as text, or None."""
    if not system:
        return None
    authority = system.to_authority()
    return ":".join(authority) if authority else system.to_wkt()
