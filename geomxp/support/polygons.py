"""Polygons: their rings, what lies inside, and a rule that integrates over them."""

import numpy as np

from ..covariance.averages import gauss
from ..errors import InvalidInput
from ..exchange import crs as systems

ROWS = 256
"""Edges that are compared with all others at one time."""


def corners_of(block, name="block"):
    """Return the polygons that a caller gave: a sequence, a geopandas frame or series, or one.

    Examples
    --------
    >>> triangle = [[0, 0], [1, 0], [0, 1]]
    >>> len(corners_of([triangle])), len(corners_of([triangle, triangle]))
    (1, 2)
    """
    shape = hasattr(block, "geom_type") and not hasattr(block, "index")
    if shape or (isinstance(block, np.ndarray) and block.ndim == 2):
        return [block]
    if hasattr(block, "geometry"):
        return list(block.geometry)
    try:
        found = list(block)
    except TypeError:
        found = []
    if not found and name != "block":
        raise InvalidInput(
            f"`{name}` must be an array of bool, a path or polygons. Got {type(block).__name__}."
        )
    if not found:
        raise InvalidInput(
            "`block` must be the sides of a rectangle, a list of polygons or an array of points "
            f"(b, k, d). Got {type(block).__name__}."
        )
    return found


def in_system_of(block, seen):
    """Return polygons in the coordinate reference system of observations, if theirs is known."""
    theirs = getattr(block, "crs", None)
    if theirs is None:
        return block
    ours = seen.crs or (systems.LONGITUDE_LATITUDE if seen.metric != "euclidean" else None)
    name = systems.describe(theirs).name
    if ours is None:
        raise InvalidInput(
            f"the polygons are in {systems.title(name)}, and the observations have no coordinate "
            'reference system: read them with crs="EPSG:…", or give polygons without one.'
        )
    return block if systems.same(name, ours) else block.to_crs(ours)


def rings_of(polygon, name):
    """Return the rings of a polygon, each (c, 2): outer ones counter-clockwise, holes clockwise.

    Parameters
    ----------
    polygon : (c, 2) array_like, or shapely Polygon or MultiPolygon
    name : str
        For messages.

    Raises
    ------
    InvalidInput
        For fewer than 3 corners, no area, or edges that cross.
    """
    if hasattr(polygon, "geom_type"):
        kinds = ("Polygon", "MultiPolygon")
        if polygon.geom_type not in kinds or polygon.is_empty:
            what = "an empty geometry" if polygon.is_empty else f"a {polygon.geom_type}"
            raise InvalidInput(f"{name} must be a polygon. Got {what}.")
        if not polygon.is_valid:
            raise InvalidInput(f"{name}: the polygon is not valid (shapely's `make_valid` mends).")
        rings = []
        for part in getattr(polygon, "geoms", [polygon]):
            rings.append(_turned(np.array(part.exterior.coords)[:, :2], 1, name))
            rings += [_turned(np.array(r.coords)[:, :2], -1, name) for r in part.interiors]
        return rings
    try:
        corners = np.asarray(polygon, dtype=np.float64)
    except (TypeError, ValueError):
        corners = np.zeros(0)
    if corners.ndim != 2 or corners.shape[1] != 2:
        raise InvalidInput(
            f"{name} must be a polygon: corners (c, 2), or a shapely polygon. "
            f"Got {type(polygon).__name__} of shape {np.shape(corners)}."
        )
    if not np.isfinite(corners).all():
        raise InvalidInput(f"{name}: the corners of a polygon must be finite numbers.")
    ring = _turned(corners, 1, name)
    if _crosses_itself(ring):
        raise InvalidInput(f"{name}: the edges of the polygon cross each other.")
    return [ring]


def _turned(ring, way, name):
    """Return a ring without repeated corners, counter-clockwise (1) or clockwise (-1)."""
    ring = ring[(ring != np.roll(ring, -1, axis=0)).any(axis=1)]
    x, y = (ring - ring[:1]).T
    area = 0.5 * float((x * np.roll(y, -1) - np.roll(x, -1) * y).sum())
    if len(ring) < 3 or area == 0:
        raise InvalidInput(f"{name}: a polygon needs at least 3 corners and an area.")
    return ring if area * way > 0 else ring[::-1]


def _crosses_itself(ring):
    """Whether two edges of a ring have a point in common that is no corner of both."""
    start, end = ring[None], np.roll(ring, -1, axis=0)[None]
    for first in range(0, len(ring), ROWS):
        p, q = (points[0, first : first + ROWS, None] for points in (start, end))
        ours = _side(p, q, start) * _side(p, q, end) < 0
        theirs = _side(start, end, p) * _side(start, end, q) < 0
        if (ours & theirs).any():
            return True
    return False


def _side(a, b, c):
    """Return the sign of c's side of the line from a to b."""
    apart, to = b - a, c - a
    return np.sign(apart[..., 0] * to[..., 1] - apart[..., 1] * to[..., 0])


def inside(edges, points):
    """Return which points lie within a polygon, (k,) of bool: an odd number of edges to the right.

    Parameters
    ----------
    edges : (e, 2, 2) ndarray
    points : (k, 2) ndarray
    """
    found = np.zeros(len(points), dtype=bool)
    x, y = points.T
    for (x0, y0), (x1, y1) in edges:
        spans = (y0 > y) != (y1 > y)
        found[spans] ^= x[spans] < x0 + (y[spans] - y0) / (y1 - y0) * (x1 - x0)
    return found


def area_of(edges):
    """Return the area on the left of edges, (e, 2, 2)."""
    (x0, y0), (x1, y1) = (edges - edges[0, 0]).transpose(1, 2, 0)
    return 0.5 * float(x0 @ y1 - x1 @ y0)


def interior_rule(edges, count):
    """Return the centroid of a polygon, and a rule of Gauss that integrates over it.

    The polygon is the sum of the signed triangles from its centroid to its edges. The rule is exact
    for polynomials of degree 2 `count` - 2 where edges are long.

    Parameters
    ----------
    edges : (e, 2, 2) ndarray
        The polygon on their left.
    count : int

    Returns
    -------
    centroid : (2,) ndarray
    nodes : (k, 2) ndarray
    weights : (k,) ndarray
        Of sum 1; some negative where the centroid does not see an edge from inside.

    Examples
    --------
    >>> corners = np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 1.0], [0.0, 1.0]])
    >>> edges = np.stack((corners, np.roll(corners, -1, axis=0)), axis=1)
    >>> centroid, nodes, weights = interior_rule(edges, 4)
    >>> centroid.tolist(), bool(np.isclose(weights @ nodes[:, 0] ** 2, 4 / 3))
    ([1.0, 0.5], True)
    """
    origin = edges[0, 0]
    start, end = edges[:, 0] - origin, edges[:, 1] - origin
    doubled = start[:, 0] * end[:, 1] - start[:, 1] * end[:, 0]
    centroid = (doubled @ (start + end)) / (3 * doubled.sum())
    start, end = start - centroid, end - centroid
    shares = (start[:, 0] * end[:, 1] - start[:, 1] * end[:, 0]) / doubled.sum()
    length = np.linalg.norm(end - start, axis=1) / np.linalg.norm(start, axis=1).max()
    g, w = gauss(count)
    r, weights_of_r = (g + 1) / 2, w * (g + 1) / 2
    nodes, weights = [], []
    for k in range(len(edges)):
        # short edges need few nodes along them
        along = count if length[k] > 0.25 else min(count, 3) if length[k] > 0.06 else min(count, 2)
        g, w = gauss(along)
        at = start[k] + (g[:, None] + 1) / 2 * (end[k] - start[k])
        nodes.append((r[:, None, None] * at).reshape(-1, 2))
        weights.append(shares[k] * np.outer(weights_of_r, w / 2).ravel())
    return origin + centroid, origin + centroid + np.vstack(nodes), np.concatenate(weights)
