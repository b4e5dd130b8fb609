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

    def dimensions(self, of_locations: int) -> int:
        """Return the dimension k of the points of locations with this many coordinates."""
        return self.dimension or of_locations


def on_sphere(locations: Floats) -> Floats:
    """Return longitude and latitude in degrees as points of the sphere, (n, 3) in km."""
    # one place has one point: ±180 degrees are one meridian, and a pole has none
    longitude = np.where(np.abs(locations[:, 1]) == 90, 0.0, locations[:, 0] % 360.0)
    longitude, latitude = np.radians(longitude), np.radians(locations[:, 1])
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
