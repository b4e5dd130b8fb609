"""Coordinate reference systems: which metric and unit they mean, and from one to another."""

import importlib
from dataclasses import dataclass

import numpy as np

from ..errors import InvalidInput

LONGITUDE_LATITUDE = "EPSG:4326"
"""The system in which longitude and latitude are kept."""


@dataclass(frozen=True)
class System:
    """What a coordinate reference system says of coordinates.

    Parameters
    ----------
    name : str
        Authority and code, "EPSG:28992"; else its text in WKT.
    geographic : bool
        Whether coordinates are longitude and latitude.
    unit : str
        Of the coordinates: "metre", "US survey foot", "degree".
    """

    name: str
    geographic: bool
    unit: str


def library(name):
    """Import an optional library of the extra `geo`.

    Raises
    ------
    InvalidInput
        If it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InvalidInput(
            f'{name} is needed and cannot be imported ({error}): pip install "geomxp[geo]".'
        ) from None


def describe(crs):
    """Return what a coordinate reference system says.

    Parameters
    ----------
    crs : str, int, pyproj.CRS or whatever else pyproj understands
        A vertical part is left out.

    Returns
    -------
    System

    Raises
    ------
    InvalidInput
        If pyproj does not know it, or its coordinates are not of a plane or of the Earth's surface.

    Examples
    --------
    >>> describe("EPSG:28992")
    System(name='EPSG:28992', geographic=False, unit='metre')
    """
    found = _horizontal(crs)
    if found.is_geocentric or found.is_vertical:
        kind = "geocentric" if found.is_geocentric else "vertical"
        raise InvalidInput(
            f"{found.name} is a {kind} coordinate reference system: reproject to longitude and "
            "latitude, or to a plane."
        )
    authority = found.to_authority(min_confidence=100)
    unit = found.axis_info[0].unit_name if found.axis_info else ""
    name = ":".join(authority) if authority else found.to_wkt()
    return System(name, found.is_geographic, unit)


def same(a, b):
    """Whether two systems give a place the same numbers, x or longitude first."""
    return a == b or _horizontal(a).equals(_horizontal(b), ignore_axis_order=True)


def reproject(coordinates, source, target):
    """Return (n, 2) coordinates of one system in another; x or longitude first in both.

    Raises
    ------
    InvalidInput
        For a place that the target system cannot hold.
    """
    if same(source, target):
        return coordinates
    pyproj = library("pyproj")
    known = np.isfinite(coordinates).all(axis=1)
    result = np.full_like(coordinates, np.nan)
    try:
        transformer = pyproj.Transformer.from_crs(
            _horizontal(source), _horizontal(target), always_xy=True
        )
        result[known] = np.column_stack(transformer.transform(*coordinates[known].T))
    except pyproj.exceptions.ProjError as error:
        raise InvalidInput(
            f"there is no way from {title(source)} to {title(target)} ({_one_line(error)})."
        ) from None
    lost = known & ~np.isfinite(result).all(axis=1)
    if lost.any():
        row = int(np.argmax(lost))
        x, y = coordinates[row]
        raise InvalidInput(
            f"row {row + 1}: ({x:g}, {y:g}) in {title(source)} has no place in {title(target)} "
            f"({int(lost.sum())} such rows): is the CRS right?"
        )
    return result


def title(crs):
    """Return a short name for messages."""
    name = str(crs)
    return name if len(name) <= 30 else _horizontal(crs).name


def _one_line(error):
    return " ".join(str(error).split())[:80]


def _horizontal(crs):
    """Return the horizontal part as a pyproj.CRS."""
    pyproj = library("pyproj")
    try:
        found = pyproj.CRS.from_user_input(crs)
    except pyproj.exceptions.CRSError as error:
        raise InvalidInput(
            "`crs` must be a coordinate reference system, such as 'EPSG:28992'. "
            f"Got {str(crs)[:60]!r} ({_one_line(error)})."
        ) from None
    return found.sub_crs_list[0] if found.is_compound else found.to_2d()
