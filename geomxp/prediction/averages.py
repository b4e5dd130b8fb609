"""Averages of an isotropic covariance over intervals and polygons, by Gauss's theorem.

With F(r) = r^-d ∫_0^r C(s) s^(d-1) ds the vector field u F(|u|) has divergence C, and with
Φ(r) = ∫_0^r s F(s) ds the gradient of Φ(|u|) is that vector field. Hence integrals over a region B
are integrals over its boundary with outer normal n, free of the kink of C at 0:

    ∫_B C(|u - x|) du      =  ∮ F(|u - x|) (u - x)·n du
    ∫_B ∫_B C(|u - v|) du dv = -∮∮ Φ(|u - v|) n_u·n_v du dv

Lengths are in units of the range, in coordinates where the model is isotropic. C is the
correlation of a unit model: variance and range are 1. At one lag and for one pair of variables a
term of a covariance (`covariance.term`) is such a function. Where time is a coordinate it is
C(√(s² + v)) with the squared lag v. In the plane r² F(r) is then the difference of s² F(s) between
s = √v and √(r² + v).
"""

from functools import cache, lru_cache, partial
from itertools import pairwise
from math import log

import numpy as np

KNOTS_PER_OCTAVE = 16
"""Knots per octave of the tables of F and Φ, quintic in log r: their errors are below 1e-12."""

NEAR_EDGE_NODES = 24
"""Nodes of the Gauss rule from the foot of a perpendicular to the end of a near edge."""

CHUNK_ENTRIES = 1 << 20
"""Values of F held at one time."""

FAR_EDGE_NODES = {3.0: 8, 20.0: 3}
"""Nodes along an edge by the distance of its middle in half-lengths; relative error 1e-9."""

OUTER_EDGE_NODES = {0.004: 2, 0.02: 4, 0.1: 8}
"""Nodes along edges up to this fraction of the region, in integrals over pairs of edges. Longer
edges, and those longer than a range, have `NEAR_EDGE_NODES` nodes on each half."""

CROWDED_EDGE_FRACTION = 0.01
"""Nodes crowd towards the foot down to this fraction of the edge, or of the range if smaller."""

SMALLEST_LOG_DISTANCE = -600.0
"""log r below which no table begins."""

NEAR_REGION_RADII = 3.0
"""Distance in radii of a region within which its covariance is an integral over its boundary."""

SMALL_REGION_SIDE = 1e-3
"""Side of a region, in units of the range, below which its covariances at a lag are sums over
nodes. Integrals over the boundary would cancel there."""

LEAST_STRETCH = 1e-20
"""Least factor Q of squared distances: the decay in time is less than its root, and negligible."""

LEAST_DISTANCE_OVER_LAG = 1e-3
"""Distance over lag below which F does not change: differences of its table would cancel."""


@cache
def gauss(count):
    """Return the nodes and weights of Gauss's rule on (-1, 1)."""
    return np.polynomial.legendre.leggauss(count)


class RadialIntegrals:
    """Tables of F and Φ for a unit model (isotropic), in 1 or 2 dimensions, up to a distance."""

    def __init__(self, unit, dimensions, longest):
        d = dimensions
        self.step = log(2.0) / KNOTS_PER_OCTAVE
        # r = 1, where the correlation of a compactly supported family has a kink, is a knot
        self.first = self.step * np.floor(_start(unit) / self.step)
        count = max(int(np.ceil((log(max(longest, 1e-3)) - self.first) / self.step)), 1) + 1
        y = self.first + self.step * np.arange(count + 1)
        g, w = gauss(6)
        inside = y[:-1, None] + self.step * (g + 1) / 2
        shares = (self.step / 2) * (unit.correlation(np.exp(inside)) * np.exp(d * inside)) @ w
        mass = np.exp(d * y[0]) / d + np.concatenate(([0.0], np.cumsum(shares)))
        r = np.exp(y)
        rho, slope = unit.correlation(r), unit.evaluate("slope", r)
        field = mass * np.exp(-d * y)
        # in y = log r: F' = C - dF, F'' = rC' - dF'
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

    def f(self, r, lag=0.0):
        """Evaluate F; with a lag (in 2 dimensions) that of C(√(s² + lag²))."""
        if not lag:
            return self._at(self.field, np.log(np.maximum(r, 1e-300)))
        r = np.maximum(r, LEAST_DISTANCE_OVER_LAG * lag)
        s = np.hypot(r, lag)
        return (s * s * self.f(s) - lag * lag * self.f(lag)) / (r * r)

    def phi(self, r):
        """Evaluate Φ."""
        y = np.log(np.maximum(r, 1e-300))
        value = self._at(self.potential, y)
        return np.where(y > self.first, value, r * r / (2 * self.dimensions))


def _start(unit):
    """Return log r below which the correlation is 1 to rounding."""
    y = -18.0
    while y > SMALLEST_LOG_DISTANCE and 1.0 - float(unit.correlation(np.exp(y))) > 1e-15:
        y *= 1.25
    return max(y, SMALLEST_LOG_DISTANCE)


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
def _tables(unit, dimensions, octave):
    return RadialIntegrals(unit, dimensions, 2.0**octave)


def integrals(unit, dimensions, longest):
    """Return the tables of F and Φ of a unit model up to a distance; the last ones are cached."""
    return _tables(unit, dimensions, int(np.ceil(np.log2(max(longest, 1.0)))))


class Region:
    """An interval or a polygon, with holes and parts, by its boundary in units of the range.

    `edges` run from corner to corner with the region on the left, (e, 2, 2); or they are the two
    ends of an interval, (2,).
    """

    def __init__(self, edges):
        self.edges = edges
        self.dimensions = 1 if edges.ndim == 1 else 2
        # radius of the ball about the origin that contains the region
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

    def averages(self, unit, points, lag=0.0):
        """Return the average correlation of the region with each point, (k,) for (k, d).

        With a lag it is that of C(√(s² + lag²)) at distances s.
        """
        # the correlation is 0 beyond
        last = np.inf if unit.support is None else max(1.0 - lag * lag, 0.0) ** 0.5
        if self.dimensions == 1 and lag:
            ends = np.clip(self.edges - points, -last, last)
            parts = _from_foot(unit.correlation, ends, np.full(ends.shape, lag))
            return parts @ [-1.0, 1.0] / self.measure
        farthest = np.abs(self.edges).max() + np.abs(points).max(initial=0.0) + lag
        table = integrals(unit, self.dimensions, 2 * float(farthest))
        if self.dimensions == 1:
            apart = self.edges - points
            return (table.f(np.abs(apart)) * apart) @ [-1.0, 1.0] / self.measure
        field = partial(table.f, lag=lag)
        averages = np.empty(len(points))
        step = max(1, CHUNK_ENTRIES // (len(self.edges) * NEAR_EDGE_NODES))
        for first in range(0, len(points), step):
            some = points[first : first + step]
            if np.isfinite(last):
                # r² F is constant
                tail = partial(_of_inverse_square, last * last * field(np.array(last)))
                delta, parts = self._past_kink(field, tail, last, some)
            else:
                delta, parts = self._along_edges(field, some)
            averages[first : first + step] = (delta * parts).sum(axis=1) / self.measure
        return averages

    def variance(self, unit):
        """Return the average correlation of all pairs of points of the region."""
        table = integrals(unit, self.dimensions, 4 * float(np.ptp(self.edges)))
        if self.dimensions == 1:
            return float(2 * table.phi(np.array(self.measure)) / self.measure**2)
        total = 0.0
        for start, along, normal, length in zip(
            self.edges[:, 0], self._along, self._normal, self._length, strict=True
        ):
            s, weights = self._outer_rule(length)
            points = start + s[:, None] * along
            if unit.support is None:
                _, inner = self._along_edges(table.phi, points)
            else:
                tail = partial(_of_logarithm, table.phi(np.array(1.0)), table.f(np.array(1.0)))
                _, inner = self._past_kink(table.phi, tail, 1.0, points)
            total -= weights @ (inner @ (self._normal @ normal))
        return float(total / self.measure**2)

    def _outer_rule(self, length):
        """Return nodes and weights along an edge, dense at its ends, where edges meet."""
        for part, count in OUTER_EDGE_NODES.items():
            if length <= min(part * self._extent, 1.0):
                g, w = gauss(count)
                return length * (g + 1) / 2, length * w / 2
        s, weights = _crowded(np.array(length / 2), NEAR_EDGE_NODES)
        return np.concatenate((s, length - s)), np.concatenate((weights, weights))

    def _seen_from(self, points):
        """Return distances to the edges' lines, and from their feet to the starts of the edges."""
        start = self.edges[:, 0] - points[:, None]
        delta = np.einsum("kej,ej->ke", start, self._normal)
        return delta, np.einsum("kej,ej->ke", start, self._along)

    def _past_kink(self, function, tail, last, points):
        """Return what `_along_edges` returns for a function with a kink at the distance `last`.

        Beyond, tail(t, δ) is its antiderivative along a line.
        """
        delta, low = self._seen_from(points)
        crossing, total = np.sqrt(np.maximum(last * last - delta * delta, 0.0)), 0.0
        for sign, ends in ((1, low + self._length), (-1, low)):
            inner = np.clip(ends, -crossing, crossing)
            beyond = tail(ends, delta) - tail(inner, delta)
            total = total + sign * (_from_foot(function, inner, delta) + beyond)
        return delta, total

    def _along_edges(self, function, points):
        """Return distances to the edges' lines, and integrals of f(|u - x|) along them, (k, e)."""
        delta, low = self._seen_from(points)
        length = np.broadcast_to(self._length, delta.shape)
        away = np.hypot(low + length / 2, delta) / (length / 2)
        result = np.empty(delta.shape)
        for nearest, farthest in pairwise((0.0, *FAR_EDGE_NODES, np.inf)):
            some = (away >= nearest) & (away < farthest)
            ends = low[some], low[some] + length[some], delta[some]
            if nearest:
                result[some] = _from_end(function, *ends, FAR_EDGE_NODES[nearest])
            else:
                result[some] = _from_foot(function, ends[1], ends[2])
                result[some] -= _from_foot(function, ends[0], ends[2])
        return delta, result


def _from_end(function, low, high, delta, count):
    """Return ∫ f(√(t² + δ²)) dt from low to high, by one Gauss rule."""
    g, w = gauss(count)
    half = (high - low)[..., None] / 2
    t = low[..., None] + half * (g + 1)
    return (function(np.hypot(t, delta[..., None])) * half) @ w


def _from_foot(function, s, delta):
    """Return ∫_0^s f(√(t² + δ²)) dt for arrays s and δ, odd in s."""
    t, weights = _crowded(np.abs(s), NEAR_EDGE_NODES, np.abs(delta))
    return np.sign(s) * (function(np.hypot(t, delta[..., None])) * weights).sum(axis=-1)


def _of_inverse_square(mass, t, delta):
    """Return δ⁻¹ mass atan(t/δ), the antiderivative of mass/(t² + δ²); 0 for δ = 0."""
    delta = np.where(delta == 0, np.inf, delta)
    return mass * np.arctan(t / delta) / delta


def _of_logarithm(start, slope, t, delta):
    """Return the antiderivative of start + slope log √(t² + δ²)."""
    r = np.hypot(t, delta)
    angle = np.arctan(t / np.where(delta == 0, np.inf, delta))
    inside = t * (np.log(np.maximum(r, 1e-300)) - 1) + delta * angle
    return start * t + slope * inside


def _crowded(length, count, delta=0.0):
    """Return nodes and weights on (0, length) that are dense towards 0: t = b sinh y."""
    g, w = gauss(count)
    least = CROWDED_EDGE_FRACTION * np.minimum(length, 1.0)
    b = np.maximum(np.maximum(delta, least), 1e-300)[..., None]
    top = np.arcsinh(length[..., None] / b)
    y = top * (g + 1) / 2
    return b * np.sinh(y), b * np.cosh(y) * top * w / 2


# Terms of a covariance


def mapped(term, points):
    """Return points (…, d) in coordinates in which a term is isotropic."""
    return points if term.map is None else points @ term.map.T


class Pairs:
    """The functions of distance that a term is for pairs of inputs (k): σ² ρ(√(h²/a² + lag²)).

    `size` is σ², `length` a, both (k,); `first` and `second` are the variables, which choose ρ.
    """

    def __init__(self, term, a, b):
        k = len(a)
        self.term, self.lag = term, np.zeros(k)
        self.first = self.second = np.zeros(k, dtype=np.int64)
        if term.by_variable:
            self.first, self.second = a.variable, b.variable
        self.size, self.length = (
            np.atleast_2d(x)[self.first, self.second] for x in (term.amplitude, term.range)
        )
        if term.time_range is None:
            return
        lag, clock = np.abs(a.time - b.time) / term.time_range, term.clock
        if clock is None:
            self.lag = lag
            return
        v = lag * lag
        self.size = self.size * np.asarray(clock.evaluate(clock.decay, v), dtype=np.float64)
        if clock.stretch is not None:
            stretch = np.asarray(clock.evaluate(clock.stretch, v), dtype=np.float64)
            self.length = self.length / np.sqrt(np.maximum(stretch, LEAST_STRETCH))

    def groups(self):
        """Yield ρ, a, the lag and the rows of the pairs that have them; not those of size 0."""
        used = np.flatnonzero(self.size)
        keys = np.column_stack((self.first, self.second, self.length, self.lag))[used]
        found, of = np.unique(keys, axis=0, return_inverse=True)
        order = np.argsort(of.reshape(-1), kind="stable")
        ends = np.cumsum(np.bincount(of.reshape(-1), minlength=len(found)))
        for (i, j, length, lag), rows in zip(found, np.split(used[order], ends[:-1]), strict=False):
            yield self.term.correlations[int(i)][int(j)].unit, length, lag, rows


def term_averages(term, edges, a, b):
    """Return the averages of a term between inputs a and equal regions about inputs b, (k,)."""
    pairs, result = Pairs(term, a, b), np.zeros(len(a))
    edges, offsets = _edges_in(term, edges), mapped(term, a.points - b.points)
    for unit, length, lag, rows in pairs.groups():
        found = Region(edges / length).averages(unit, offsets[rows] / length, lag)
        result[rows] = pairs.size[rows] * found
    return result


def term_variance(term, edges, one):
    """Return the average of a term over pairs of points of a region, at one input."""
    pairs, edges = Pairs(term, one, one), _edges_in(term, edges)
    return sum(
        float(pairs.size[0]) * Region(edges / length).variance(unit)
        for unit, length, _, _ in pairs.groups()
    )


def near_pairs(term, tree, edges, known, centres):
    """Return rows of known inputs and of equal regions whose averages need integrals, each (k,).

    `tree` holds the points of the known inputs as `mapped`.
    """
    region = Region(_edges_in(term, edges))
    least = reach = NEAR_REGION_RADII * region.radius
    if term.support is not None:
        # the correlation has a kink at the range
        reach = max(reach, float(np.max(term.range)) + region.radius)
    found = tree.query_ball_point(mapped(term, centres.points), reach)
    columns = np.repeat(np.arange(len(found)), [len(rows) for rows in found])
    rows = np.concatenate(found).astype(np.int64)
    a, b = known[rows], centres[columns]
    pairs = Pairs(term, a, b)
    apart = np.linalg.norm(mapped(term, a.points - b.points), axis=1)
    small = region.measure < (SMALL_REGION_SIDE * pairs.length) ** region.dimensions
    reach = np.where(small & (pairs.lag > 0), least, reach)
    near = (np.hypot(apart, pairs.lag * pairs.length) < reach) & (pairs.size != 0)
    return rows[near], columns[near]


def _edges_in(term, edges):
    """Return the edges of a region in coordinates in which a term is isotropic."""
    d = 1 if edges.ndim == 1 else 2
    return mapped(term, edges.reshape(-1, d)).reshape(edges.shape)


def interior_rule(edges, count):
    """Return the centroid of a polygon, and nodes (k, 2) and weights of a Gauss rule over it.

    The polygon (its edges as of `Region`) is the sum of the signed triangles from its centroid to
    its edges. The rule is exact for polynomials of degree 2 `count` - 2 on triangles with long
    edges. The weights sum to 1; some are negative if the polygon is not star-shaped.

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
