"""Kinds of files by their content, and readers of points and rasters.

The first bytes of a file say what it is, and its ending only where they do not. GDAL opens a file
only as the format that they say, so that no other driver follows what the file refers to.
"""

import csv
import glob
import json
import re
import shlex
import warnings
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import GeomxpWarning, InvalidInput
from .spatial import UNITS_OF_COLUMNS, describe, direction, library

HEAD_BYTES = 65_536
"""Bytes of a file that decide its kind."""

FILE_SIGNATURES = (
    (rb"SQLite format 3\0", ".gpkg"),
    (rb"fgb\x03fgb", ".fgb"),
    (rb"\0\0\x27\x0a", ".shp"),
    (rb"PAR1", ".parquet"),
    (rb"\x89HDF\r\n|CDF[\x01\x02\x05]", ".nc"),
    (rb"II[*+]\0|MM\0[*+]", ".tif"),
    (rb"DSAA\s|DSBB|DSRB", ".grd"),
    (rb"\s*(?i:ncols|nrows|[xy]ll(?:corner|center)|cellsize)[ \t]+[-+.\d]", ".asc"),
)
"""Beginnings of files, and the ending of the kind that they show."""

COMPRESSIONS = {
    ".gz": (b"\x1f\x8b", "gunzip -k"),
    ".bz2": (b"BZh", "bunzip2 -k"),
    ".xz": (b"\xfd7zXZ\0", "unxz -k"),
    ".zst": (b"\x28\xb5\x2f\xfd", "unzstd"),
}
"""Endings of compressed files, their first bytes and the commands that unpack them."""

TEXT_ENDINGS = (".csv", ".txt", ".tsv", ".dat", ".csvp", ".tsvp", ".rdb", ".gslib", ".eas")
"""Usual endings of tables of text."""

SPREADSHEET_ENDINGS = (".xlsx", ".xls", ".xlsm", ".ods")
JSON_LINES_ENDINGS = (".geojsonl", ".geojsons", ".ndjson", ".jsonl")

REFUSED_KINDS = (
    (
        "spreadsheets",
        SPREADSHEET_ENDINGS,
        rb"\xd0\xcf\x11\xe0",
        "save the sheet as CSV (UTF-8), or: ogr2ogr -f CSV {csv} {path}",
    ),
    (
        "KML, GML and GPX files",
        (".kml", ".kmz", ".gml", ".gpx"),
        rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--(?:(?!-->).)*+-->\s*)*+<(?:\w+:)?(?:kml|gpx|FeatureCollection)\b",
        "ogr2ogr {gpkg} {path}",
    ),
    (
        "virtual files",
        (".vrt", ".ovf"),
        rb"\s*<(?:OGRVRT|VRT)",
        "give the file that it refers to",
    ),
    (
        "files of MapInfo, SQLite and DXF, and geodatabases",
        (".mif", ".dxf", ".sqlite", ".mbtiles", ".gdb"),
        rb"!table",
        "ogr2ogr {gpkg} {path}",
    ),
    (
        "ESRI JSON, TopoJSON and JSON-FG",
        (".topojson",),
        rb'\s*\{.*"(?:geometryType"\s*:\s*"esri|type"\s*:\s*"Topology"|conformsTo"\s*:\s*\[)',
        "ogr2ogr {gpkg} {path}",
    ),
    (
        "rasters of this kind",
        (
            *(".img", ".bil", ".bip", ".bsq", ".flt", ".sdat", ".sgrd", ".hgt", ".rst", ".gri"),
            *(".adf", ".jp2", ".ecw"),
        ),
        None,
        "gdal_translate {path} {tif}",
    ),
    (
        # GDAL reads their null cells, *, as 0: findings/gdal_grass_ascii_null.sh
        "ASCII rasters of GRASS",
        (),
        rb"\s*(?:north|south|east|west|rows|cols):",
        "write a GeoTIFF in GRASS: r.out.gdal input=NAME output={tif}",
    ),
    (
        "GRIB files",
        (".grib", ".grb", ".grib2", ".grb2"),
        rb"GRIB",
        "cdo -f nc copy {path} {nc}",
    ),
    (
        "Feather and Arrow files",
        (".feather", ".arrow", ".ipc"),
        rb"ARROW1\0\0|FEA1",
        "write Parquet in Python: pandas.read_feather({py_path}).to_parquet({py_parquet})",
    ),
    (
        "files of R, Stata, SPSS, SAS and MATLAB",
        (".rds", ".rda", ".rdata", ".dta", ".sav", ".sas7bdat", ".mat"),
        rb"RDX[23]\n|MATLAB 5\.0|<stata_dta>|\$FL2",
        "write the table as CSV there, in R: write.csv(NAME, 'NAME.csv', row.names = FALSE)",
    ),
    (
        "NCCSV files",
        (".nccsv",),
        rb"\*GLOBAL\*\s*,",
        "request the table from ERDDAP as .csvp or .nc",
    ),
    (
        "pages (HTML, XML, PDF)",
        (".html", ".htm", ".xml", ".pdf"),
        rb"%PDF|\s*<(?:!|\?xml|(?i:html))",
        "save the table itself as CSV",
    ),
)
"""Kinds that are not read: plural, endings, beginning, and what to do instead."""

OTHER_JSON_ADVICE = (
    "JSON is read only if it is GeoJSON: write the table as CSV, in Python: "
    "pandas.read_json({py_path}, lines=%s).to_csv({py_csv}, index=False)"
)


# Kinds of files


def true_ending(path, known):
    """Return the ending of a file's kind by its content; its own if that does not show a kind.

    `known` has the endings of kinds that can be read besides text, and their names first in their
    rows. Raises `InvalidInput` for a kind that cannot be read, with what to do instead.
    """
    path = Path(path)
    own = path.suffix.lower()
    with open(path, "rb") as file:
        head = file.read(HEAD_BYTES).removeprefix(b"\xef\xbb\xbf")
    if own == ".npz":
        return own
    if head.startswith(b"PK\x03\x04"):
        return _in_zip(path)
    if _is_compressed(path, head):
        return own
    found = next((ending for start, ending in FILE_SIGNATURES if re.match(start, head)), None)
    if found == ".gpkg" and own != found and head[68:70] != b"GP":
        # these bytes of an SQLite file name its application
        found, own = None, ".sqlite"
    if found in (".gpkg", ".fgb", ".shp") and own != found:
        # drivers of GDAL look at endings, too
        raise InvalidInput(f"is {known[found][0]}: rename it to {path.stem}{found}.")
    if found == ".parquet":
        return ".geoparquet" if _has_geometry(path) else found
    if found:
        return found
    if head:
        refuse(path, own, head)
    if re.match(rb'\x1e|\s*(?:\{\s*["}]|\[\s*[\[{])', head):
        return _kind_of_json(path, head)
    if b"\0" in head and own not in known and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InvalidInput("is neither text nor another kind that can be read: convert it to CSV.")
    return own


def refuse(path, ending, head=b""):
    """Raise `InvalidInput` for a kind that is not read, by an ending or the first bytes."""
    for kind, endings, start, advice in REFUSED_KINDS:
        if ending in endings or (start and re.match(start, head, re.DOTALL)):
            raise InvalidInput(f"{kind} cannot be read: {_advice(advice, Path(path))}.")


def _advice(advice, path):
    """Return advice with the names of the file and of new ones, quoted for a shell or Python."""
    names = {kind: path.with_suffix(f".{kind}") for kind in ("csv", "parquet", "gpkg", "tif", "nc")}
    for kind, name in names.items():
        if name == path:
            names[kind] = path.with_name(f"{path.stem}_new.{kind}")
    quoted = {kind: shlex.quote(str(name)) for kind, name in (names | {"path": path}).items()}
    python = {f"py_{kind}": repr(str(name)) for kind, name in (names | {"path": path}).items()}
    return advice.format(**quoted, **python)


def _is_compressed(path, head):
    """Whether a file is compressed text with the usual ending; `InvalidInput` for other kinds."""
    for ending, (start, command) in COMPRESSIONS.items():
        if not head.startswith(start):
            continue
        if path.suffix.lower() != ending:
            raise InvalidInput(f"is compressed: rename it to {path.name}{ending}.")
        if Path(path.stem).suffix.lower() not in ("", ".tar", *TEXT_ENDINGS):
            raise InvalidInput(
                "only tables of text can be read while they are compressed: "
                f"{command} {shlex.quote(str(path))}."
            )
        return True
    return False


def _in_zip(path):
    """Return the ending of the kind of file in a ZIP archive."""
    own, quoted = path.suffix.lower(), shlex.quote(str(path))
    try:
        with zipfile.ZipFile(path) as archive:
            members = [one for one in archive.namelist() if not one.startswith("__MACOSX")]
    except zipfile.BadZipFile:
        return own
    endings = {Path(one).suffix.lower() for one in members if not one.endswith("/")}
    shapes = [one for one in members if one.lower().endswith(".shp")]
    if len(shapes) > 1:
        raise InvalidInput(f"holds {len(shapes)} shapefiles: unzip {quoted}, and give one of them.")
    if shapes:
        return ".shp.zip"
    if endings == {".npy"}:
        return ".npz"
    refuse(path, ".xlsx" if {"[Content_Types].xml", "content.xml"} & {*members} else own)
    if len(members) == 1 and endings <= {*TEXT_ENDINGS} and own == ".zip":
        return ".csv"
    listed = f"{', '.join(members[:3]) or 'nothing'}{', …' if len(members) > 3 else ''}"
    raise InvalidInput(f"is a ZIP archive of {listed}: unzip {quoted}, and give one of the files.")


def _has_geometry(path):
    """Whether a Parquet file says which of its columns are geometries."""
    import pyarrow.parquet

    try:
        return b"geo" in (pyarrow.parquet.read_schema(path).metadata or {})
    except (pyarrow.ArrowException, OSError):
        # the reader says what is wrong
        return False


def _kind_of_json(path, head):
    """Return ".geojson", or ".geojsonl" for one feature in each line."""
    lines = head.startswith(b"\x1e") or path.suffix.lower() in JSON_LINES_ENDINGS
    text = head.decode("utf-8", "replace")
    if '"geomxp"' in text and '"log_likelihood"' in text:
        raise InvalidInput("is a fit, not a table: give the table that it was made from.")
    if not re.search(r'"type"\s*:\s*"(?:Feature|(?:Multi)?Point"|GeometryCollection")', text):
        raise InvalidInput(f"{_advice(OTHER_JSON_ADVICE % lines, path)}.")
    first, _, others = text.strip().partition("\n")
    try:
        # a feature in a line of its own, and more lines
        lines = lines or (others and json.loads(first)["type"] == "Feature")
    except (ValueError, KeyError, TypeError):
        lines = False
    return ".geojsonl" if lines else ".geojson"


# Points


STYLE_TABLES = ("layer_styles", "qgis_projects")
"""Tables of a GeoPackage in which QGIS keeps styles and projects."""


GEOJSON_PREFIX, GEOJSONSEQ_PREFIX = "GeoJSON:", "GeoJSONSeq:"
"""Prefixes by which GDAL opens a file of text as GeoJSON, whatever it holds."""

LINK_PATTERN = re.compile(rb"""["'](?:link|url)|\\u""", re.IGNORECASE)
"""Words that a reference system in GeoJSON has if it is at an address."""


def read_points(path, prefix=""):
    """Read the only layer of points, or the only layer, of a file.

    `prefix` is "", `GEOJSON_PREFIX` or `GEOJSONSEQ_PREFIX`.
    """
    if prefix:
        _check_links(path, prefix == GEOJSONSEQ_PREFIX)
    else:
        _check_binary(path)
        if "!" in str(path):
            raise InvalidInput("GDAL cannot open a path with an exclamation mark: rename it.")
    return _read_layer(f"{prefix}{path.absolute()}", path)


def _check_binary(path):
    """Raise ValueError for a file or member of an archive that is text, for other drivers."""
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if not any(re.match(start, head) for start, _ in FILE_SIGNATURES):
        raise ValueError("it begins like a file of another kind")


def _check_links(path, by_lines):
    """Raise `InvalidInput` for GeoJSON whose reference system is at an address.

    GDAL would open the address, in a collection and in each geometry.
    """
    content = path.read_bytes()
    if LINK_PATTERN.search(content):
        for text in content.splitlines() if by_lines else [content]:
            text = text.strip(b"\x1e \t\r")
            if text:
                json.loads(text, object_pairs_hook=_refuse_link)


def _refuse_link(members):
    for name, value in members:
        if name.lower() == "crs" and isinstance(value, dict):
            kinds = [str(kind).lower() for word, kind in value.items() if word.lower() == "type"]
            if any(kind.startswith(("link", "url")) for kind in kinds):
                raise InvalidInput(
                    "its coordinate reference system is a link, which is not followed: remove the "
                    "member `crs`, and name the system (--crs EPSG:28992, crs=)."
                )
    return dict(members)


def read_shapefile(path):
    """Read a shapefile."""
    _check_binary(path)
    there = {one.suffix.lower() for one in path.parent.glob(f"{glob.escape(path.stem)}.*")}
    missing = [path.stem + ending for ending in (".shx", ".dbf") if ending not in there]
    if missing:
        raise InvalidInput(f"a shapefile needs {' and '.join(missing)} beside it.")
    return read_points(path)


def read_zipped_shapefile(path):
    """Read the only shapefile of a ZIP archive."""
    with zipfile.ZipFile(path) as archive:
        inner = next(one for one in archive.namelist() if one.lower().endswith(".shp"))
        _check_binary(zipfile.Path(archive, inner))
    return _read_layer(f"/vsizip/{{{path.absolute()}}}/{inner}", path)


def _read_layer(source, path):
    # absolute: GDAL takes some relative names, such as GPKG:x, for something else than a path
    pyogrio = library("pyogrio")
    layer = _layer(dict(pyogrio.list_layers(source).tolist()), path)
    with _shapes(), warnings.catch_warnings():
        # dates with an offset from UTC (findings/geopackage_time_offset.sh); they are read right
        warnings.filterwarnings("ignore", "Non-conformant content", RuntimeWarning)
        return pyogrio.read_dataframe(source, layer=layer)


@contextmanager
def _shapes():
    """Turn errors of damaged geometries, which have a class of their own, into ValueError."""
    import shapely

    try:
        yield
    except shapely.errors.ShapelyError as error:
        raise ValueError(str(error)) from None


def _layer(layers, path):
    """Return the name of the layer to read, of {name: type of geometry or None}."""
    shapes = [name for name, kind in layers.items() if kind is not None]
    points = [name for name in shapes if layers[name].startswith("Point")]
    tables = [name for name in layers if name not in STYLE_TABLES]
    for chosen in (shapes, points, () if shapes else tables):
        if len(chosen) == 1:
            others = ", ".join(name for name in shapes if name != chosen[0])
            if others:
                warnings.warn(
                    f"{path}: layer {chosen[0]!r} is read, the only layer of points. Other layers: "
                    f"{others}.",
                    GeomxpWarning,
                    stacklevel=5,
                )
            return chosen[0]
    several = points or shapes or tables
    name = several[0] if several else "NAME"
    new = shlex.quote(str(path.with_name(f"{path.stem}_{name}.gpkg")))
    raise InvalidInput(
        f"must hold one layer of points. Got {', '.join(several) or 'none'}: save the layer in a "
        f"file of its own: ogr2ogr {new} {shlex.quote(str(path))} {shlex.quote(name)}."
    )


def read_geoparquet(path):
    """Read a GeoParquet table with its primary geometry."""
    geopandas = library("geopandas")
    with _shapes():
        frame = geopandas.read_parquet(path)
    others = frame.columns[frame.dtypes == "geometry"].drop(frame.active_geometry_name)
    return frame.drop(columns=others)


# Rasters


SURFER_BLANK = 1.7e38
"""Surfer writes larger numbers into cells that are blank."""

ASCII_GRID_NODATA = -9999.0
"""Cells without data in an ESRI ASCII grid whose header has no NODATA_value.

GDAL takes them for data: findings/gdal_esri_ascii_nodata.sh.
"""


def read_raster(path):
    """Read a GeoTIFF, or an ASCII grid of ESRI, or a grid of Surfer, as an xarray Dataset.

    Each band is a variable, whose name is the band's description, or the name of the file if there
    is one band, or band_1, …; cells without data are NaN. The coordinates are the centres of cells.
    """
    rasterio, xarray = library("rasterio"), library("xarray")
    driver, options = driver_of(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        file = rasterio.open(path.absolute(), driver=driver, **options)
    with file:
        at = file.transform
        if at.is_identity and file.crs is None:
            raise InvalidInput(
                "the raster is not georeferenced: gdal_translate -a_srs EPSG:CODE -a_ullr LEFT "
                "TOP RIGHT BOTTOM OLD.tif NEW.tif."
            )
        if at.b or at.d:
            raise InvalidInput("the raster is rotated: resample it, gdalwarp OLD.tif NEW.tif.")
        if any("complex" in kind for kind in file.dtypes):
            raise InvalidInput("the raster holds complex numbers: write their real parts.")
        bands = file.read(masked=True).astype(np.float64).filled(np.nan)
        bands = bands * np.reshape(file.scales, (-1, 1, 1)) + np.reshape(file.offsets, (-1, 1, 1))
        if driver == "AAIGrid" and file.nodata is None:
            bands[bands == ASCII_GRID_NODATA] = np.nan
        if driver.startswith("GS"):
            bands[bands >= SURFER_BLANK] = np.nan
        system = None if file.crs is None else describe(file.crs.to_wkt())
        across, down = ("lon", "lat") if system is not None and system.geographic else ("x", "y")
        centres = {
            across: at.c + (np.arange(file.width) + 0.5) * at.a,
            down: at.f + (np.arange(file.height) + 0.5) * at.e,
        }
        units = file.units
        names = _names_of_bands(file.descriptions, path.stem, (across, down, "crs"))
    layers = {
        name: ((down, across), band, {"units": unit} if unit else {})
        for name, band, unit in zip(names, bands, units, strict=True)
    }
    dataset = xarray.Dataset(layers, coords=centres)
    if system is None:
        return dataset
    for name in names:
        dataset[name].attrs["grid_mapping"] = "crs"
    mapping = library("pyproj").CRS.from_user_input(system.name).to_cf()
    return dataset.assign_coords(crs=((), np.int32(0), mapping))


def driver_of(path):
    """Return GDAL's driver of a raster by its first bytes, and options."""
    with open(path, "rb") as file:
        start = file.read(4)
    if start[:2] in (b"II", b"MM"):
        return "GTiff", {}
    binary = {b"DSBB": "GSBG", b"DSRB": "GS7BG"}
    if start in binary:
        return binary[start], {}
    if not path.read_bytes().isascii():
        raise ValueError("it is not plain text")
    # by default decimals are rounded to FP32: findings/gdal_esri_ascii_single_precision.sh
    return ("GSAG", {}) if start == b"DSAA" else ("AAIGrid", {"DATATYPE": "Float64"})


def _names_of_bands(descriptions, stem, taken):
    """Return names of bands that differ from each other and from those taken."""
    only = stem if len(descriptions) == 1 else None
    names, taken = [], {*taken}
    for k, described in enumerate(descriptions, start=1):
        free = (one for one in (described, only) if one and one not in taken)
        names.append(next(free, f"band_{k}"))
        taken.add(names[-1])
    return names


# Tables of text


MOST_COMMENT_LINES = 1000
"""Most lines of comments before the names of columns."""


@dataclass(frozen=True)
class Layout:
    """How a table of text begins: lines to skip, separator of cells, names that precede the rows.

    Without `names` they are in the first line that is not skipped.
    """

    skip: int
    separator: str
    names: tuple[str, ...] = ()


AS_TEXT = {"dtype": str, "keep_default_na": False, "encoding": "utf-8-sig"}
"""Options of `pandas.read_csv` that leave cells as they are."""

MISSING_CELLS = frozenset({"", "na", "nan", "null", "none", "n/a", "<na>", "-nan", "#n/a"})
"""Cells that mark a missing value, in lower case."""

SEPARATORS = ",;\t"
"""Separators of cells: the most frequent one in the header is used, a comma without any."""

TAB_ENDINGS = {".tsv", ".tsvp", ".rdb", ".tab"}
"""Endings of tables separated by tabs."""

NUMBER_PATTERN = r"[-+]?(?:\d+[.,]?\d*|[.,]\d+)(?:[eEdD][-+]?\d+)?"


def layout(path):
    """Return the `Layout` of a table of text.

    Lines of comments (#) before the names are skipped. Spaces separate cells if the names have none
    of `SEPARATORS` and the first row as many words, some of them numbers. A table of GeoEAS (GSLIB)
    begins with a title, the number of columns and a line with the name of each.
    """
    lines = _first_lines(path)
    geoeas = _geoeas(lines)
    if geoeas is not None:
        return geoeas
    filled = [k for k, line in enumerate(lines) if line.strip()]
    skip = next(iter(filled), 0)
    tabs = "\t" if TAB_ENDINGS & {ending.lower() for ending in path.suffixes} else None
    after = next((k for k in filled if not lines[k].startswith("#")), skip)
    cells = lines[after].split(tabs or separator_of(lines[after])) if filled else ()
    # where a row of numbers follows the comments, the last of them may hold the names
    if not _has_number(cells):
        skip = after
    header, first = (*(lines[k] for k in filled if k >= skip), "", "")[:2]
    words, cells = (re.findall(r'"[^"]*"|\S+', line) for line in (header, first))
    spaced = len(words) > 1 and len(cells) - len(words) in (0, 1) and _has_number(cells)
    if spaced and not (tabs or any(separator in header for separator in SEPARATORS)):
        return Layout(skip, r"\s+")
    return Layout(skip, tabs or separator_of(header))


def _has_number(cells):
    return any(re.fullmatch(NUMBER_PATTERN, cell.strip()) for cell in cells)


def _first_lines(path):
    import pandas as pd

    # with a separator that does not occur, the whole line is one cell
    whole = {"sep": "\x1f", "quoting": csv.QUOTE_NONE, "skip_blank_lines": False}
    frame = pd.read_csv(
        path, header=None, names=["line"], nrows=MOST_COMMENT_LINES, **whole, **AS_TEXT
    )
    return frame["line"].fillna("").tolist()


def separator_of(line):
    """Return the separator of the names in a header; one inside quotation marks does not count."""
    return max(SEPARATORS, key=re.sub(r'"[^"]*"', "", line).count)


def _geoeas(lines):
    """Return the layout of a table of GeoEAS; None for lines of another kind."""
    match = re.fullmatch(r" *(\d+)(?: [^,;\t]*)?", lines[1]) if len(lines) > 2 else None
    count = int(match[1][:6]) if match else 0
    names = tuple(" ".join(line.split()) for line in lines[2 : 2 + count])
    rows = [line for line in lines[2 + count :] if line.strip()]
    if not names or len(names) < count or not all(names):
        return None
    cells = [re.split(r"[\s,;]+", name) for name in names]
    # such lines are rows
    if any(_has_number(row[:1]) for row in cells) or all(map(_has_number, cells)):
        return None
    for separator, split in ((r"\s+", str.split), (",", lambda line: line.split(","))):
        if not rows or len(split(rows[0])) == count:
            return Layout(2 + count, separator, names)
    if any(separator in "".join(names) for separator in SEPARATORS):
        return None
    raise InvalidInput(
        f"line 2 of the GeoEAS table says {count} columns, and the first row has "
        f"{len(rows[0].split())} cells: correct the number and the names."
    )


# Units of columns in tables of text


RDB_FORMAT_PATTERN = re.compile(r"\d+[sdn]", re.IGNORECASE)
"""Width and type of a column in the second line of the USGS's RDB."""


def with_units(frame, path):
    """Return a frame of text without a row of units or formats and without units in its names.

    The units are in `frame.attrs[UNITS_OF_COLUMNS]`. A row of units is the first row if it holds
    no number where all later rows do, a row of formats that of RDB (5s, 15s, 12n). Names have units
    in tables of ERDDAP ("sst (degree_C)"), where some are degrees_east or degrees_north.
    """
    if not len(frame):
        return frame
    first = frame.iloc[0].astype("string").fillna("").str.strip()
    if all(RDB_FORMAT_PATTERN.fullmatch(cell) for cell in first):
        return frame.iloc[1:].reset_index(drop=True)
    if _are_units(frame, first):
        frame = frame.iloc[1:].reset_index(drop=True)
        frame.attrs[UNITS_OF_COLUMNS] = {name: unit for name, unit in first.items() if unit}
        return frame
    parts = {name: re.fullmatch(r"(.*\S)\s*\(([^()]*)\)", name) for name in frame.columns}
    pairs = {name: match.groups() for name, match in parts.items() if match}
    named = {".csvp", ".tsvp"} & {ending.lower() for ending in path.suffixes}
    if not named and not any(direction(unit) for _, unit in pairs.values()):
        return frame
    bare = [pairs.get(name, (name,))[0] for name in frame.columns]
    pairs = {name: pair for name, pair in pairs.items() if bare.count(pair[0]) == 1}
    frame = frame.rename(columns={name: pair[0] for name, pair in pairs.items()})
    frame.attrs[UNITS_OF_COLUMNS] = dict(pairs.values())
    return frame


def _are_units(frame, first):
    """Whether the first row holds units."""
    import pandas as pd

    if any(direction(cell) for cell in first):
        return True
    words = [name for name, cell in first.items() if cell.lower() not in MISSING_CELLS]
    if len(words) < 2 or _has_number(first):
        return False
    below = frame.iloc[1:]
    numbers = [
        name
        for name in below.columns
        if len(below) and pd.to_numeric(below[name], errors="coerce").notna().all()
    ]
    if len({*numbers} & {*words}) < 2:
        return False
    warnings.warn(
        f"the first row below the names, {', '.join(first[:6])}, is read as the units of the "
        "columns.",
        GeomxpWarning,
        stacklevel=6,
    )
    return True


def without_units(named, units):
    """Return a name of a column, a formula or a sequence of these without units behind names."""
    if isinstance(named, (tuple, list)) and units:
        return tuple(without_units(one, units) for one in named)
    if isinstance(named, str):
        for name, unit in units.items():
            named = named.replace(f"{name} ({unit})", name)
    return named
