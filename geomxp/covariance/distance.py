"""Distance metrics: Euclidean in 1-3 dimensions, chordal and great-circle on the Earth.

A metric embeds locations as points of a Euclidean space. Its distance is the straight line
between two points, or for great circles the arc above that line. Everything else works with
points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import frexp, ldexp
from typing import TYPE_CHECKING

import numpy as np
import scipy

from ..errors import InvalidInput

if TYPE_CHECKING:
    from .._typing import ArrayLike, Floats

EARTH_RADIUS = 6371.0
"""Radius of the sphere for longitude and latitude, in km."""

LEAST_GAP_DEGREES = 60.0
"""Degrees without data that end a branch of longitude wider than half the globe; such a gap must
also be twice as wide as any other. Data without one are all round the globe."""


@dataclass(frozen=True)
class Metric:
    """A way to measure distances between locations.

    Parameters
    ----------
    name : str
        What users give as `metric=`.
    embedding : callable, optional
        Maps locations (n, d) to points (n, k), k = 1, 2 or 3, of a Euclidean space; without it
        the locations are the points. A function of a module, where a cluster is to use it.
    dimension : int, optional
        k; that of the locations if not given.
    unit : str
        Unit of distances; empty where it is that of the locations.
    geographic : bool
        Whether locations are longitude and latitude in degrees.
    arc : bool
        Whether the distance is the arc of a great circle of radius 6371.0 km. A covariance
        family must then be valid on the sphere; otherwise it must be valid in k dimensions.
    fixed_scale : bool
        Whether points have lengths of ordinary size, so that squares need no scaling.

    Examples
    --------
    Locations (x, y, depth) where a metre of depth counts as 50 metres along the ground:

    >>> layered = Metric("layered", embedding=lambda places: places * [1.0, 1.0, 50.0])
    >>> layered.between(layered.embed([[0, 0, 0]]), layered.embed([[0, 0, 2]])).item()
    100.0
    """

    name: str
    embedding: Callable[[Floats], Floats] | None = None
    dimension: int | None = None
    unit: str = ""
    geographic: bool = False
    arc: bool = False
    fixed_scale: bool = False

    def __str__(self) -> str:
        return self.name

    def embed(self, locations: ArrayLike) -> Floats:
        """Return the points (n, k) of locations (n, d), which are degrees if `geographic`."""
        locations = np.asarray(locations, dtype=np.float64)
        return locations if self.embedding is None else self.embedding(locations)

    def between(self, a: Floats, b: Floats) -> Floats:
        """Return the distances (n, m) between points (n, k) and (m, k), as `embed` returns them."""
        straight = _scaled_cdist(a, b)
        if self.arc:
            # arc = 2R asin(chord / 2R)
            straight = 2 * EARTH_RADIUS * np.arcsin(np.minimum(straight / (2 * EARTH_RADIUS), 1.0))
        return straight

    @property
    def turns(self) -> bool:
        """Whether longitudes that differ by 360 degrees are one meridian."""
        return self.geographic and self.embedding is not None

    def branch_of(self, locations: Floats) -> tuple[Floats, float | None]:
        """Return locations with longitudes on one branch, and the branch's central meridian.

        The branch is the shortest one that holds all longitudes; those at a pole do not count.
        Numbers that are on a shortest branch are kept. Others increase eastwards: from 0 or more
        at the western end if the eastern one then has at most 360, so that 179 and -179 become 179
        and 181, and else from a negative number. There is no branch, None, if locations are all
        round the globe (see `LEAST_GAP_DEGREES`), and without longitudes.

        Examples
        --------
        >>> metric_of("chordal").branch_of(np.array([[176, -18], [179, -16], [-177, -17]]))
        (array([[176., -18.],
               [179., -16.],
               [183., -17.]]), 179.5)
        >>> metric_of("chordal").branch_of(np.array([[-91.0, 40.0], [-87.0, 41.0]]))[1]
        -89.0
        """
        if not self.turns or not len(locations):
            return locations, None
        away = np.abs(locations[:, 1]) != 90
        longitudes = locations[away if away.any() else ..., 0]
        low, high = float(longitudes.min()), float(longitudes.max())
        if high - low < 180:
            return self.on_branch(locations, (low + high) / 2), (low + high) / 2
        # such a gap contains one of these sectors: without an empty one there is no need to sort
        count = round(720 / LEAST_GAP_DEGREES)
        sectors = (longitudes % 360 // (360 / count)).astype(int)
        empty = not np.bincount(sectors, minlength=count)[:count].all()
        west, gap, second = widest_gap(longitudes) if empty else (0.0, 0.0, 0.0)
        if gap > 180 or (gap >= LEAST_GAP_DEGREES and gap >= 2 * second):
            middles = west + (360 - gap) / 2 + np.array([0.0, -360.0, -720.0])
            middles = middles[np.abs(middles) <= 180 + gap / 2 + 1e-9]
            kept = [(np.abs(longitudes - middle) <= 180).all() for middle in middles]
            middle = float(middles[np.argmax(kept)])
            return self.on_branch(locations, middle), middle
        # numbers of several turns, such as -170 and 250, become those of one
        return self.on_branch(locations, 0.0) if high - low > 360 else locations, None

    def on_branch(self, locations: Floats, meridian: float | None) -> Floats:
        """Return locations with longitudes within 180 degrees of a meridian; as they are for None.

        A pole is one place: its longitude becomes that of the meridian, 0 for None.

        Examples
        --------
        >>> metric_of("chordal").on_branch(np.array([[269.0, 41.0]]), -89.0)
        array([[-91.,  41.]])
        """
        if not self.turns:
            return locations
        longitudes, middle = locations[:, 0], 0.0 if meridian is None else meridian
        near = longitudes if meridian is None else near_meridian(longitudes, meridian)
        pole = np.abs(locations[:, 1]) == 90
        if near is longitudes and (longitudes[pole] == middle).all():
            return locations
        return np.column_stack((np.where(pole, middle, near), locations[:, 1:]))

    def dimensions(self, of_locations: int) -> int:
        """Return the dimension k of the points of locations with this many coordinates."""
        return self.dimension or of_locations


def meridians(locations: Floats) -> Floats:
    """Return the longitude of locations (n, 2) in [0, 360): one number for one place, 0 for a pole.

    Examples
    --------
    >>> meridians(np.array([[-90.7, 40.0], [269.3, 40.0], [-180.0, 0.0], [180.0, 0.0], [7, 90]]))
    array([269.3, 269.3, 180. , 180. ,   0. ])
    """
    longitudes = locations[:, 0]
    # a remainder takes longer
    simple = np.abs(longitudes).max(initial=0.0) <= 360
    turned = longitudes + 360.0 * (longitudes < 0) if simple else longitudes % 360.0
    turned = _as_decimal(turned)
    turned[(turned == 360.0) | (np.abs(locations[:, 1]) == 90)] = 0.0
    return turned


def near_meridian(longitudes: Floats, meridian: float) -> Floats:
    """Return longitudes moved by whole turns to within 180 degrees of a meridian.

    They are returned as they are if none has to be moved.

    Examples
    --------
    >>> near_meridian(np.array([179.0, -177.3]), 180.0)
    array([179. , 182.7])
    """
    # of the two ends, one meridian, the western one
    turns = np.floor((longitudes - meridian + 180) / 360)
    if not turns.any():
        return longitudes
    return np.where(turns, _as_decimal(longitudes - 360 * turns), longitudes)


def _as_decimal(longitudes):
    """Return longitudes without the rounding errors of decimal numbers that were moved by turns."""
    decimal = np.rint(longitudes * 1e10)
    decimal /= 1e10
    np.copyto(decimal, longitudes, where=np.abs(decimal - longitudes) >= 1e-13)
    return decimal


def widest_gap(longitudes: Floats) -> tuple[float, float, float]:
    """Return the east end of the widest gap between meridians, its width and that of the second.

    The end is in [0, 360), and widths are degrees. Of equal gaps it is the one that comes first.

    Examples
    --------
    >>> widest_gap(np.array([10.0, 350.0, 40.0]))
    (350.0, 310.0, 30.0)
    """
    turned = np.unique(longitudes % 360.0)
    gaps = np.diff(turned, append=turned[0] + 360.0)
    k = int(np.argmax(gaps))
    second = float(np.delete(gaps, k).max(initial=0.0))
    return float(turned[(k + 1) % len(turned)]), float(gaps[k]), second


def turn_towards(left: float, right: float, region: tuple[float, float]) -> float:
    """Return 0 or ±360: the turn after which an interval of longitudes overlaps a region most.

    Without overlap they are then nearest to each other. No turn is preferred.

    Examples
    --------
    >>> turn_towards(-94, -84, (266, 276)), turn_towards(-180, 180, (176, 183))
    (360.0, 0.0)
    """

    def overlap(by):
        return min(right + by, region[1]) - max(left + by, region[0])

    return max((0.0, 360.0, -360.0), key=overlap)


def on_sphere(locations: Floats) -> Floats:
    """Return longitude and latitude in degrees as points of the sphere, (n, 3) in km."""
    # one place has one point: ±180 degrees are one meridian, and a pole has none
    longitude, latitude = np.radians(meridians(locations)), np.radians(locations[:, 1])
    x, y = np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude)
    return EARTH_RADIUS * np.column_stack((x, y, np.sin(latitude)))


_ON_EARTH = {"embedding": on_sphere, "dimension": 3, "unit": "km"}
_ON_EARTH |= {"geographic": True, "fixed_scale": True}
METRICS = {
    metric.name: metric
    for metric in (
        Metric("euclidean"),
        Metric("chordal", **_ON_EARTH),
        Metric("great-circle", arc=True, **_ON_EARTH),
    )
}
"""The metrics that have names."""


def metric_of(metric: str | Metric) -> Metric:
    """Return the metric of a name, or the metric itself; raise `InvalidInput` for anything else."""
    if isinstance(metric, Metric):
        return metric
    try:
        return METRICS[metric]
    except (KeyError, TypeError):
        known = ", ".join(METRICS)
        raise InvalidInput(f"`metric` must be one of: {known}. Got {metric!r}.") from None


def embed(locations: ArrayLike, metric: str | Metric) -> Floats:
    """Return the points of locations; see `Metric.embed`."""
    return metric_of(metric).embed(locations)


def between(a: Floats, b: Floats, metric: str | Metric) -> Floats:
    """Return the distances between points; see `Metric.between`."""
    return metric_of(metric).between(a, b)


def power_of_two_near(number):
    """Return 2^k just above |number|, kept where its inverse is a normal number; 1 for 0."""
    exponent = frexp(number)[1] if number else 0
    return ldexp(1.0, min(max(exponent, -1021), 1021))


def _scaled_cdist(a, b):
    """Euclidean distances without over- or underflow: scaled by a power of two if extreme."""
    largest = max(np.max(np.abs(a), initial=0.0), np.max(np.abs(b), initial=0.0))
    if largest == 0 or 1e-70 < largest < 1e150:
        return scipy.spatial.distance.cdist(a, b)
    # halve twice, so that the sum of squares of differences stays finite
    scale = power_of_two_near(largest)
    return scipy.spatial.distance.cdist(a / scale / 4, b / scale / 4) * 4 * scale
