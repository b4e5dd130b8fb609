"""Distances between places: Euclidean in 1-3 dimensions, chordal and great-circle on the Earth.

Each metric is a straight line in some space. `embed` takes places there once; `between` and
`straighten` do the rest, so that everything above works with points and straight lines.
"""

from math import frexp, ldexp

import numpy as np
import scipy

from ..errors import InvalidInput

METRICS = ("euclidean", "chordal", "great-circle")

EARTH_RADIUS = 6371.0
"""Radius of the sphere for longitude and latitude, in km."""


def check_metric(metric):
    """Return `metric` if there is such a metric, else raise `InvalidInput`."""
    if metric not in METRICS:
        raise InvalidInput(f"`metric` must be one of: {', '.join(METRICS)}. Got {metric!r}.")
    return metric


def embed(locations, metric):
    """Place locations where the metric's distance is a function of a straight line.

    Parameters
    ----------
    locations : (n, d) ndarray
        Coordinates in one unit of length; for the two spherical metrics longitude and latitude
        in degrees.
    metric : str

    Returns
    -------
    (n, d) ndarray, or (n, 3) in km on the sphere of radius 6371.0 km
    """
    if metric == "euclidean":
        return locations
    # one place has one point: ±180 degrees are one meridian, and a pole has none
    longitude = np.where(np.abs(locations[:, 1]) == 90, 0.0, locations[:, 0] % 360.0)
    longitude, latitude = np.radians(longitude), np.radians(locations[:, 1])
    return EARTH_RADIUS * np.column_stack(
        (
            np.cos(latitude) * np.cos(longitude),
            np.cos(latitude) * np.sin(longitude),
            np.sin(latitude),
        )
    )


def between(a, b, metric):
    """Return the distances between embedded points.

    Parameters
    ----------
    a, b : (n, d), (m, d) ndarray
        What `embed` returned.
    metric : str

    Returns
    -------
    (n, m) ndarray
        In the unit of the locations, or in km.
    """
    straight = _scaled_cdist(a, b)
    if metric == "great-circle":
        # arc = 2R asin(chord / 2R)
        straight = 2 * EARTH_RADIUS * np.arcsin(np.minimum(straight / (2 * EARTH_RADIUS), 1.0))
    return straight


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
