"""Averages of the Matérn covariance over intervals and polygons, by Gauss's theorem.

With F(r) = r^-d ∫_0^r C(s) s^(d-1) ds the field u F(|u|) has the divergence C, and with
Φ(r) = ∫_0^r s F(s) ds its gradient is that field. So the integrals over a region B are integrals
over its boundary, where n is the outer normal and the kink of C at 0 is gone:

    ∫_B C(|u - x|) du      =  ∮ F(|u - x|) (u - x)·n du
    ∫_B ∫_B C(|u - v|) du dv = -∮∮ Φ(|u - v|) n_u·n_v du dv

Lengths are in units of the range, in coordinates where the model is isotropic.
"""

from functools import cache, lru_cache
from itertools import pairwise
from math import log

import numpy as np

from ..covariance.bessel import correlation, correlation_slope
from ..data import crs
from ..errors import InvalidInput

PER_OCTAVE = 16
"""Knots of the tables of F and Φ, quintic in log r: their errors stay below 1e-12."""

NODES = 24
"""Of a Gauss rule from the foot of a perpendicular to the end of a near edge."""

CHUNK_ENTRIES = 1 << 20
"""Values of F held at one time."""

FAR = {3.0: 8, 20.0: 3}
"""Nodes along an edge whose middle is so many half-lengths away, for errors of 1e-9 of it."""

OUTER = {0.004: 2, 0.02: 4, 0.1: 8}
"""Nodes along edges up to this part of the region, in integrals over pairs of edges; longer edges,
and those longer than a range, have as many as `NODES` on each half."""

NEAREST = 0.01
"""Nodes crowd towards the foot down to this part of the edge, or of the range if that is less."""


@cache
def gauss(count):
    """Return the nodes and weights of Gauss's rule on (-1, 1)."""
    return np.polynomial.legendre.leggauss(count)


class RadialIntegrals:
    """F and Φ for σ² = 1, a = 1.

    Parameters
    ----------
    nu : float
        Smoothness.
    dimensions : {1, 2}
    longest : float
        Largest r wanted.
    """

    def __init__(self, nu, dimensions, longest):
        d = dimensions
        # below the first knot 1 - ρ, of order r^min(2ν, 2), is no number beside 1
        self.first = max(-36.0 / min(2 * nu, 2.0), -600.0)
        self.step = log(2.0) / PER_OCTAVE
        count = max(int(np.ceil((log(max(longest, 1e-3)) - self.first) / self.step)), 1) + 1
        y = self.first + self.step * np.arange(count + 1)
        g, w = gauss(6)
        inside = y[:-1, None] + self.step * (g + 1) / 2
        shares = (self.step / 2) * (correlation(np.exp(inside), nu) * np.exp(d * inside)) @ w
        mass = np.exp(d * y[0]) / d + np.concatenate(([0.0], np.cumsum(shares)))
        r = np.exp(y)
        rho, slope = correlation(r, nu), correlation_slope(r, nu)
        field = mass * np.exp(-d * y)
        # by y = log r: F' = C - dF, F'' = rC' - dF'
        change = rho - d * field
        self.field = _quintic(self.step, field, change, slope - d * change)
        shares = (self.step / 2) * (np.exp(2 * inside) * self._at(self.field, inside)) @ w
        potential = np.exp(2 * y[0]) / (2 * d) + np.concatenate(([0.0], np.cumsum(shares)))
        # Φ' = r²F, Φ'' = r²(2F + F')
        self.potential = _quintic(self.step, potential, r**2 * field, r**2 * (2 * field + change))
        self.dimensions = d

    def _at(self, rows, y):
        place = np.clip((y - self.first) / self.step, 0.0, rows.shape[1] - 1e-9)
        row = place.astype(np.int64)
        t = place - row
        value = rows[5][row]
        for k in (4, 3, 2, 1, 0):
            value = value * t + rows[k][row]
        return value

    def f(self, r):
        """Evaluate F."""
        return self._at(self.field, np.log(np.maximum(r, 1e-300)))

    def phi(self, r):
        """Evaluate Φ."""
        y = np.log(np.maximum(r, 1e-300))
        value = self._at(self.potential, y)
        return np.where(y > self.first, value, r * r / (2 * self.dimensions))


def _quintic(h, value, slope, curvature):
    """Return coefficients of t⁰ … t⁵, (6, K), of the quintics with these values at the knots."""
    a, b = value[:-1], h * slope[:-1]
    c = h * h * curvature[:-1] / 2
    rise = value[1:] - a - b - c
    turn = h * slope[1:] - b - 2 * c
    bend = h * h * curvature[1:] - 2 * c
    return np.array(
        [
            *(a, b, c, 10 * rise - 4 * turn + bend / 2),
            *(7 * turn - 15 * rise - bend, 6 * rise - 3 * turn + bend / 2),
        ]
    )


@lru_cache(maxsize=8)
def _integrals(nu, dimensions, octave):
    return RadialIntegrals(nu, dimensions, 2.0**octave)


def integrals(nu, dimensions, longest):
    """Return the tables up to a distance."""
    return _integrals(nu, dimensions, int(np.ceil(np.log2(max(longest, 1.0)))))


class Region:
    """An interval, or a polygon with holes and parts: its boundary in scaled isotropic units.

    Parameters
    ----------
    edges : (e, 2, 2) ndarray, or (2,) ndarray of the two ends of an interval
        From corner to corner, the region on the left.

    Examples
    --------
    For ν = ½ on an interval of one range, ∫∫ exp(-|u - v|) = 2/e:

    >>> bool(np.isclose(Region(np.array([0.0, 1.0])).variance(0.5), 2 / np.e, rtol=1e-12))
    True
    """

    def __init__(self, edges):
        self.edges = edges
        self.dimensions = 1 if edges.ndim == 1 else 2
        # of the ball about the origin that holds the region
        self.radius = float(np.linalg.norm(edges.reshape(-1, self.dimensions), axis=1).max())
        if self.dimensions == 1:
            self.measure = float(edges[1] - edges[0])
            return
        start, end = edges[:, 0], edges[:, 1]
        self._extent = float(np.ptp(start, axis=0).max()) / 2
        self._length = np.hypot(*(end - start).T)
        self._along = (end - start) / self._length[:, None]
        self._normal = np.column_stack((self._along[:, 1], -self._along[:, 0]))
        self.measure = float(0.5 * (start[:, 0] * end[:, 1] - end[:, 0] * start[:, 1]).sum())

    def averages(self, nu, points):
        """Return the correlation's average over the region with each point, (k,) for (k, d)."""
        farthest = np.abs(self.edges).max() + np.abs(points).max(initial=0.0)
        table = integrals(nu, self.dimensions, 2 * float(farthest))
        if self.dimensions == 1:
            apart = self.edges - points
            return (table.f(np.abs(apart)) * apart) @ [-1.0, 1.0] / self.measure
        found = np.empty(len(points))
        step = max(1, CHUNK_ENTRIES // (len(self.edges) * NODES))
        for first in range(0, len(points), step):
            delta, parts = self._along_edges(table.f, points[first : first + step])
            found[first : first + step] = (delta * parts).sum(axis=1) / self.measure
        return found

    def variance(self, nu):
        """Return the correlation's average over all pairs of points of the region."""
        table = integrals(nu, self.dimensions, 4 * float(np.ptp(self.edges)))
        if self.dimensions == 1:
            return float(2 * table.phi(np.array(self.measure)) / self.measure**2)
        total = 0.0
        for start, along, normal, length in zip(
            self.edges[:, 0], self._along, self._normal, self._length, strict=True
        ):
            s, weights = self._outer_rule(length)
            _, inner = self._along_edges(table.phi, start + s[:, None] * along)
            total -= weights @ (inner @ (self._normal @ normal))
        return float(total / self.measure**2)

    def _outer_rule(self, length):
        """Return nodes and weights along an edge; the other integral bends where edges meet."""
        for part, count in OUTER.items():
            if length <= min(part * self._extent, 1.0):
                g, w = gauss(count)
                return length * (g + 1) / 2, length * w / 2
        s, weights = _crowded(np.array(length / 2), NODES)
        return np.concatenate((s, length - s)), np.concatenate((weights, weights))

    def _along_edges(self, function, points):
        """Return distances to the edges' lines, and the integrals of f(|u - x|) along the edges.

        Returns
        -------
        delta, integrals : (k, e) ndarray
        """
        start = self.edges[:, 0] - points[:, None]
        delta = np.einsum("kej,ej->ke", start, self._normal)
        low = np.einsum("kej,ej->ke", start, self._along)
        length = np.broadcast_to(self._length, delta.shape)
        away = np.hypot(low + length / 2, delta) / (length / 2)
        found = np.empty(delta.shape)
        for nearest, farthest in pairwise((0.0, *FAR, np.inf)):
            some = (away >= nearest) & (away < farthest)
            ends = low[some], low[some] + length[some], delta[some]
            if nearest:
                found[some] = _from_end(function, *ends, FAR[nearest])
            else:
                found[some] = _from_foot(function, ends[1], ends[2])
                found[some] -= _from_foot(function, ends[0], ends[2])
        return delta, found


def _from_end(function, low, high, delta, count):
    """Return ∫ f(√(t² + δ²)) dt from low to high, by a plain rule."""
    g, w = gauss(count)
    half = (high - low)[..., None] / 2
    t = low[..., None] + half * (g + 1)
    return (function(np.hypot(t, delta[..., None])) * half) @ w


def _from_foot(function, s, delta):
    """Return ∫_0^s f(√(t² + δ²)) dt for arrays s and δ, odd in s."""
    t, weights = _crowded(np.abs(s), NODES, np.abs(delta))
    return np.sign(s) * (function(np.hypot(t, delta[..., None])) * weights).sum(axis=-1)


def _crowded(length, count, delta=0.0):
    """Return nodes and weights on (0, length), equal in y with t = b sinh y: dense towards 0."""
    g, w = gauss(count)
    b = np.maximum(np.maximum(delta, NEAREST * np.minimum(length, 1.0)), 1e-300)[..., None]
    top = np.arcsinh(length[..., None] / b)
    y = top * (g + 1) / 2
    return b * np.sinh(y), b * np.cosh(y) * top * w / 2


# Polygons: their rings, what lies inside, and a rule that integrates over them.


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
    ours = seen.crs or (crs.LONGITUDE_LATITUDE if seen.metric != "euclidean" else None)
    name = crs.describe(theirs).name
    if ours is None:
        raise InvalidInput(
            f"the polygons are in {crs.title(name)}, and the observations have no coordinate "
            'reference system: read them with crs="EPSG:…", or give polygons without one.'
        )
    return block if crs.same(name, ours) else block.to_crs(ours)


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
