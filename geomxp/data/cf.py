"""The CF conventions: what the attributes of a NetCDF file say about its numbers.

Cells without data, ragged arrays of stations, and the parameters of grid mappings, as plain xarray
Datasets and `pyproj.CRS`.
"""

import re
import warnings

import numpy as np

from ..errors import GeomxpWarning, InvalidInput

NEVER_WRITTEN = {
    **{"i1": -127, "i2": -(2**15) + 1, "i4": -(2**31) + 1, "i8": -(2**63) + 2},
    **{"u1": 255, "u2": 2**16 - 1, "u4": 2**32 - 1, "u8": 2**64 - 2},
    **dict.fromkeys(("f4", "f8"), 15 * 2.0**119),
}
"""What the netCDF library has in cells that were never written, by type (netcdf.h, NC_FILL_…)."""

UNIT_METRES = {"metre": 1.0, "kilometre": 1000.0, "foot": 0.3048, "US survey foot": 1200 / 3937}
"""Units of length in metres."""

PARAMETER_ALIASES = (
    (
        "longitude_of_projection_origin",
        "longitude_of_central_meridian",
        "straight_vertical_longitude_from_pole",
    ),
    ("scale_factor_at_projection_origin", "scale_factor_at_central_meridian"),
)
"""Names of one parameter of grid mappings; versions of the conventions and files differ in them."""

SPHERE_ROLES, PLANE_ROLES = ("longitude", "latitude"), ("x", "y")
ROTATED_ROLES = ("grid_longitude", "grid_latitude")
"""Roles of pairs of coordinates; the last are longitude and latitude on a rotated pole."""

GRID_MAPPING_ROLES = {
    "latitude_longitude": SPHERE_ROLES,
    "rotated_latitude_longitude": ROTATED_ROLES,
}
"""Roles of the coordinates of grid mappings; those of others are x and y."""


# Cells that are no data


def without_missing(dataset):
    """Return the dataset with NaN where its file has no data.

    xarray knows `_FillValue` and `missing_value`. As in the netCDF library, cells that were never
    written (they hold a number that depends on the type), and values outside `valid_range`,
    `valid_min` and `valid_max` are missing too. This holds for variables as they were read, which
    their encoding shows: attributes may outlive a change of units, and the encoding does not.
    """
    found = {}
    for name, variable in dataset.variables.items():
        if "dtype" in variable.encoding and variable.dims and variable.dtype.kind in "iuf":
            missing = _is_missing(name, variable)
            if missing.any():
                found[name] = variable.copy(data=np.where(missing, np.nan, variable.values))
    return dataset.assign(found) if found else dataset


def _is_missing(name, variable):
    """Return which cells hold the default fill value, or lie outside the valid range."""
    known, values = variable.attrs | variable.encoding, variable.values
    packed = np.dtype(known.get("dtype", values.dtype))
    missing = np.zeros(values.shape, dtype=bool)
    if "_FillValue" not in known and packed.str[1:] in NEVER_WRITTEN:
        missing |= values == _unpacked(NEVER_WRITTEN[packed.str[1:]], variable, packed)
    ends = known.get("valid_min"), known.get("valid_max")
    if np.size(known.get("valid_range")) == 2:
        ends = known["valid_range"]
    for end, outside in zip(ends, (np.less, np.greater), strict=True):
        if end is None:
            continue
        if not _is_of_type(end, packed):
            warnings.warn(
                f"the valid range of {name!r} ends at {end!s:.40}, which is not a value of its "
                f"type {packed}: this end is ignored.",
                GeomxpWarning,
                stacklevel=2,
            )
            continue
        # a negative scale factor exchanges the ends
        backward = np.asarray(variable.encoding.get("scale_factor", 1.0)) < 0
        outside = {np.less: np.greater, np.greater: np.less}[outside] if backward else outside
        missing |= outside(values, _unpacked(end, variable, packed))
    return missing


def _is_of_type(number, kind):
    """Whether one number can be a value of a type of numbers."""
    number = np.asarray(number)
    if number.size != 1 or number.dtype.kind not in "iuf" or np.isnan(number).any():
        return False
    limits = np.iinfo(kind) if kind.kind in "iu" else np.finfo(kind)
    whole = kind.kind == "f" or bool((number % 1 == 0).all())
    return whole and bool(((number >= limits.min) & (number <= limits.max)).all())


def _unpacked(number, variable, packed):
    """Return a number of a file as xarray returns the values of a variable of this file."""
    import xarray

    words = ("scale_factor", "add_offset", "_Unsigned")
    packing = {word: variable.encoding[word] for word in words if word in variable.encoding}
    raw = xarray.Variable(("end",), np.asarray(number).astype(packed).reshape(1), packing)
    return xarray.decode_cf(xarray.Dataset({"number": raw}))["number"].values[0]


# Ragged arrays: stations with different numbers of values


def ragged(dataset):
    """Return the ragged arrays: dimension of values to (dimension of stations, variable).

    The variable is an index, the station of each value, with the attribute `instance_dimension`, or
    a count, the number of values of each station, with the attribute `sample_dimension`.
    """
    found = {}
    for name, variable in dataset.variables.items():
        if len(variable.dims) != 1:
            continue
        of, instances = variable.dims[0], variable.attrs.get("instance_dimension")
        samples = variable.attrs.get("sample_dimension")
        if instances in dataset.dims:
            found[of] = instances, name
        elif samples in dataset.dims:
            found[samples] = of, name
    return found


def dims_of(dataset, name):
    """Return the dimensions of a variable, and those of the stations of its ragged arrays."""
    links, dims = ragged(dataset), dict.fromkeys(dataset[name].dims)
    for dim in dataset[name].dims:
        dims |= dict.fromkeys(_path(links, dim))
    return set(dims)


def _path(links, dim):
    """Return the dimension of values and those above: of their profiles, of their stations."""
    path = [dim]
    while path[-1] in links and links[path[-1]][0] not in path:
        path.append(links[path[-1]][0])
    return path


def with_a_row_for_each_value(dataset, names):
    """Return the dataset with ragged arrays written out: values, and their stations' variables.

    There is a row for each value of the variables `names`; if none are given, for each value of the
    longest ragged array. Raises `InvalidInput` for an index or a count that does not fit.
    """
    import xarray

    links = ragged(dataset)
    dims = dict.fromkeys(dim for name in names for dim in dataset[name].dims)
    paths = [_path(links, dim) for dim in (dims or links) if dim in links]
    longest = max(paths, key=len, default=[])
    for path in paths:
        if not set(path) <= set(longest):
            raise InvalidInput(
                f"the ragged arrays of {longest[0]!r} and of {path[0]!r} cannot be rows of "
                f"one table: drop one of them, data.drop_dims({path[0]!r})."
            )
    for samples in reversed(longest[:-1]):
        instances, name = links[samples]
        owner = _owners(dataset, samples, instances, name)
        known = owner >= 0
        if not known.all():
            warnings.warn(
                f"{int((~known).sum()):,} of {len(known):,} values of {samples!r} belong to no "
                f"{instances} ({name}) and are left out.",
                GeomxpWarning,
                stacklevel=2,
            )
        rows = xarray.DataArray(owner[known], dims=samples)
        if samples in dataset[name].dims:
            # the rows are of stations no longer
            index = dataset.variables[name].copy()
            index.attrs = {k: v for k, v in index.attrs.items() if k != "instance_dimension"}
            dataset = dataset.assign({name: index})
        else:
            dataset = dataset.drop_vars(name)
        dataset = dataset.isel({samples: known}).isel({instances: rows})
    return dataset


def _owners(dataset, samples, instances, name):
    """Return the position of the station of each value, -1 for none."""
    count, numbers = dataset.sizes[instances], dataset[name].values
    whole = np.where(np.isfinite(numbers), numbers, -1).astype(np.int64)
    if samples in dataset[name].dims:
        bad = np.flatnonzero((whole >= count) | ((whole < 0) & np.isfinite(numbers)))
        if len(bad):
            raise InvalidInput(
                f"the ragged array's index {name!r} must hold positions of {instances!r}, 0 to "
                f"{count - 1}. Got {numbers[bad[0]]:g} in row {bad[0] + 1} ({len(bad)} such rows)."
            )
        return whole
    sizes = np.maximum(whole, 0)
    total, found = dataset.sizes[samples], int(sizes.sum())
    if found > total:
        raise InvalidInput(
            f"the ragged array's counts {name!r} must sum to the {total:,} values of {samples!r}. "
            f"Got {found:,}."
        )
    return np.concatenate((np.repeat(np.arange(count), sizes), np.full(total - found, -1)))


# Grid mappings


def mapping_text(dataset, names=()):
    """Return the attribute `grid_mapping` of a dataset's variables, "" if there is no mapping.

    It is that of the first of the variables `names` that has one, or of the first of the others.
    """
    known = dataset.variables
    for variable in (known[name] for name in (*names, *known)):
        text = str(variable.attrs.get("grid_mapping", variable.encoding.get("grid_mapping", "")))
        if mappings(dataset, text):
            return text
    return next((str(name) for name in known if is_mapping(known[name])), "")


def mappings(dataset, text):
    """Return the variables of an attribute `grid_mapping`, each with its coordinates.

    The attribute is a name, "crs", whose coordinates are the usual ones, (), or it lists them:
    "crs: x y wgs84: lon lat".
    """
    found = {}
    for word in text.split():
        if word.endswith(":") or not found:
            found[word.removesuffix(":")] = ()
        else:
            last = next(reversed(found))
            found[last] = (*found[last], word)
    return {name: listed for name, listed in found.items() if name in dataset.variables}


def is_mapping(variable):
    """Whether a variable of a grid describes a coordinate reference system."""
    words = ("grid_mapping_name", "crs_wkt", "spatial_ref")
    return not variable.dims and any(word in variable.attrs for word in words)


def kind_of(system):
    """Return the roles of the coordinates of a `pyproj.CRS`."""
    if not system.is_geographic:
        return PLANE_ROLES
    return ROTATED_ROLES if system.is_derived else SPHERE_ROLES


def system_of(attributes, unit=""):
    """Return the `pyproj.CRS` of a grid mapping for coordinates in a unit.

    `unit` is one of `UNIT_METRES`, or "radian" for the viewing angles of a satellite, which are
    lengths in units of its height. Another one leaves the unit of the system. The parameters come
    before a definition in words of another kind, such as the datum of a rotated pole.
    """
    import pyproj

    # NumPy's numbers cannot be written in JSON
    given = {
        word: value if isinstance(value, str) else np.asarray(value).tolist()
        for word, value in attributes.items()
    }
    name, text = given.get("grid_mapping_name"), given.get("crs_wkt") or given.get("spatial_ref")
    factor = given.get("perspective_point_height") if unit == "radian" else UNIT_METRES.get(unit)
    system = pyproj.CRS(text) if text else None
    if system is None or (name and GRID_MAPPING_ROLES.get(name, PLANE_ROLES) != kind_of(system)):
        words = {word: value for word, value in given.items() if "crs_wkt" != word != "spatial_ref"}
        words, text = _as_pyproj_reads(words, factor or 1.0), ""
        system = pyproj.CRS.from_cf(words)
        if name not in GRID_MAPPING_ROLES and PARAMETER_ALIASES[0][0] not in words:
            # pyproj takes Greenwich
            raise KeyError(PARAMETER_ALIASES[0][0])
    system = pyproj.CRS(system.sub_crs_list[0] if system.is_compound else system)
    if not system.is_projected:
        return system
    document = system.to_json_dict()
    # of a transformation to WGS 84, too
    plane = document.get("source_crs", document)
    parameters = {one["name"]: one for one in plane["conversion"]["parameters"]}
    if not text and name == "oblique_mercator":
        # x is east at the centre, as for PROJ; pyproj has it across the central line
        parameters["Angle from Rectified to Skew Grid"]["value"] = given["azimuth_of_central_line"]
    if factor is not None and system.axis_info[0].unit_name.lower() != unit.lower():
        plane.pop("id", None)
        plane["name"] += f" ({unit})"
        known = {"type": "LinearUnit", "name": unit, "conversion_factor": factor}
        for axis in plane["coordinate_system"]["axis"]:
            axis["unit"] = known
        for word, one in parameters.items():
            if re.search("easting|northing", word, re.IGNORECASE):
                # as the conventions have them
                metres = 1.0 if one["unit"] == "metre" else one["unit"]["conversion_factor"]
                one |= {"value": one["value"] * metres / factor, "unit": known}
    return pyproj.CRS.from_json_dict(document)


def _as_pyproj_reads(given, factor):
    """Return the parameters of a grid mapping for `pyproj.CRS.from_cf`.

    It takes some in another sense than the conventions and PROJ, and 0 for those of another name.
    False easting and northing are in the unit of the coordinates, `factor` metres.
    """
    kind, origin = given.get("grid_mapping_name"), given.get("latitude_of_projection_origin")
    for words in PARAMETER_ALIASES:
        known = next((given[word] for word in words if word in given), None)
        given = ({} if known is None else dict.fromkeys(words, known)) | given
    for word in ("false_easting", "false_northing"):
        given |= {word: given[word] * factor} if word in given else {}
    parallels = np.ravel(given.get("standard_parallel", ())).tolist()
    if len(parallels) == 1:
        given["standard_parallel"] = parallels[0]
        if kind == "polar_stereographic" and origin is not None:
            given["standard_parallel"] = float(np.copysign(parallels[0], origin))
        elif kind == "albers_conical_equal_area" or (
            kind == "lambert_conformal_conic" and origin is not None
        ):
            # pyproj has the second parallel at the equator, or the origin at the first
            given["standard_parallel"] = parallels * 2
    if "semi_major_axis" in given and not {"semi_minor_axis", "inverse_flattening"} & {*given}:
        given |= {"earth_radius": given["semi_major_axis"]}
    if "earth_radius" in given:
        # with an axis besides pyproj takes WGS 84
        for word in ("semi_major_axis", "semi_minor_axis", "inverse_flattening"):
            given.pop(word, None)
    return given
