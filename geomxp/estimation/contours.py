"""Contours of the profile log-likelihood of two parameters.

Rays leave the estimate in the plane of the two parameters; on a ray the other parameters follow to
the maximum of their slice.
"""

from dataclasses import dataclass
from math import cos, inf, log, pi, sin, sqrt
from numbers import Integral

import numpy as np

from ..errors import InvalidInput
from .profile import Path, Spot, corrected

STEPS = 20
"""Largest number of points of a ray; a quadratic likelihood takes as many as there are heights."""

NEAR, NARROW, MARGIN = 0.95, 0.02, 1.02
"""A height is known if a point reaches this share of it, or if two points this near enclose it;
the largest height needs a point beyond it, aimed at by the margin."""

LEAST_SLOPE = 0.2
"""Smallest slope of the height used for extrapolation."""


@dataclass(frozen=True, eq=False)
class Point:
    """The profile at a distance from the estimate.

    Parameters
    ----------
    away, height : float
        √(2(ℓ_max - ℓ_p)).
    spot : Spot
    information : (k, k) ndarray
    """

    away: float
    height: float
    spot: Spot
    information: np.ndarray


class Ray(Path):
    """A path in which two parameters are replaced by the distance along one direction.

    Its spots are those of the given path.

    Parameters
    ----------
    path : Path
    held : (int, int)
        Indices of the two in `path.names`.
    direction : (2,) ndarray
    """

    def __init__(self, path, held, direction):
        self.path, self.tolerance = path, path.tolerance
        others = [k for k in range(len(path.names)) if k not in held]
        self.others = [path.names[k] for k in others]
        # from the coordinates (r, others) to those of the path
        self.turn = np.zeros((len(path.names), 1 + len(others)))
        self.turn[held, 0] = direction
        self.turn[others, np.arange(1, 1 + len(others))] = 1.0
        self.origin = path.start.point.copy()
        self.origin[others] = 0.0
        self.edge = min(
            room(path, k, step) / abs(step) for k, step in zip(held, direction, strict=True) if step
        )
        self.lower = np.concatenate(([0.0], path.lower[others]))
        self.upper = np.concatenate(([self.edge], path.upper[others]))
        self.start = self._seen(path.start, np.concatenate(([0.0], path.start.point[others])))
        self.curvature = self.turn.T @ path.curvature @ self.turn

    def at(self, x):
        """Return the spot at (r, others)."""
        return self._seen(self.path.at(self.origin + self.turn @ x), x)

    def _seen(self, spot, x):
        """Return a spot of the path in the coordinates of the ray."""
        information = spot.information
        if information is not None:
            information = self.turn.T @ information @ self.turn
        return Spot(x, spot.value, self.turn.T @ spot.score, information)

    def searched(self, r, near):
        """Return the spot with the largest ℓ at a distance, by searches."""
        path = self.path
        start = path.model(self.origin + self.turn @ np.concatenate(([r], near.point[1:])))
        values = start.parameters()
        held = {name: values[name] for name in path.names if name not in self.others}
        model = path.maximum_holding(held, start)[1]
        if model is None:
            return None
        at = path.point(model)
        others = [at[path.names.index(name)] for name in self.others]
        return self.at(np.clip(np.concatenate(([r], others)), self.lower, self.upper))


def room(path, k, step):
    """Return how far a coordinate can move; angles repeat beyond 90 degrees."""
    room = (path.upper if step > 0 else path.lower)[k] - path.start.point[k]
    return min(abs(room), pi / 2) if path.table[path.names[k]].unit == "degrees" else abs(room)


def lengths_of(ray, heights):
    """Return the distances at which ℓ_p = ℓ_max - ½ height², for heights in increasing order.

    √(2 fall) is almost proportional to the distance, so that a few points suffice. Heights that are
    not reached: see `_between`.
    """
    points = [Point(0.0, 0.0, ray.start, ray.curvature)]
    for _ in range(STEPS):
        way = _next(points, heights, ray.edge)
        if way is None:
            break
        r, before = way
        spot, information = _top_at(ray, r, before.spot, before.information)
        # no likelihood, or no progress
        if spot is None or spot.value == -inf or spot.point[0] <= before.away:
            break
        height = sqrt(max(2 * (ray.start.value - spot.value), 0.0))
        place = points.index(before) + 1
        points.insert(place, Point(float(spot.point[0]), height, spot, information))
    away = np.array([point.away for point in points])
    found = np.array([point.height for point in points])
    return _between(found, away, np.array(heights), ray.edge)


def _next(points, heights, edge):
    """Return the next distance and the point before it; None if all heights are known."""
    last = points[-1]
    for height in heights:
        above = next((k for k, point in enumerate(points) if point.height >= height), None)
        if above is not None:
            low, high = points[above - 1], points[above]
            nearest = min(height - low.height, high.height - height)
            if nearest > (1 - NEAR) * height and high.away > (1 + NARROW) * low.away:
                return _inside(points[:above], high, height), low
        elif last.height < NEAR * height or height == heights[-1]:
            if last.away >= edge:
                return None
            # a little beyond, so that two points enclose the height
            return min(last.away + (MARGIN * height - last.height) / _slope(points), edge), last
    return None


def _slope(points):
    """Return the slope of the height between the last two points."""
    if len(points) == 1:
        return 1.0
    before, last = points[-2:]
    return max((last.height - before.height) / (last.away - before.away), LEAST_SLOPE)


def _inside(below, high, height):
    """Return a distance between two points, from the chord and from extrapolation."""
    low, width = below[-1], high.away - below[-1].away
    chord = (height - low.height) / (high.height - low.height)
    straight = (height - low.height) / _slope(below) / width
    return low.away + width * float(np.clip((chord + min(straight, 1.0)) / 2, 0.1, 0.9))


def _top_at(ray, r, spot, information):
    """Go to the maximum of the slice at a distance; None if there is no likelihood."""
    there = ray.step(spot, ray.slice(spot, information, 0), 0, r, -inf)
    if there is not None:
        top, known = ray.settle(there, corrected(information, spot, there), 0)
        if top is not None:
            return top, known
    return ray.searched(r, spot), information


def _between(found, away, heights, edge):
    """Return distances at heights by monotone interpolation.

    Heights not reached at the edge give -edge, heights beyond a failure NaN.
    """
    from scipy.interpolate import PchipInterpolator

    # if the profile has a second maximum, the outermost crossing counts
    later = np.append(np.minimum.accumulate(found[::-1])[::-1][1:], inf)
    rising = found < later
    lengths = np.full(len(heights), -edge if away[-1] >= edge else np.nan)
    reached = heights <= found[-1]
    if rising.sum() > 1:
        lengths[reached] = PchipInterpolator(found[rising], away[rising])(heights[reached])
    return lengths


# Contours

LEVELS = (0.5, 0.9, 0.95)

ALIKE, ROUNDS = 1.4, 3
"""Factor between lengths of neighbouring rays above which a ray is inserted, and the number of
rounds, the first rays included."""

FINE = 10
"""Points of a curve for each of the first rays."""

FLAT = 1e-6
"""Smallest eigenvalue of the information, relative to the largest."""


@dataclass(frozen=True)
class Contours:
    """Contours of the profile log-likelihood of two parameters.

    Parameters
    ----------
    names : (str, str)
    levels : tuple of float
        Probabilities: a contour lies ½χ²₂(level) = -log(1 - level) below the maximum.
    curves : (levels, points, 2) ndarray
        Closed, in the units of the parameters. If ℓ_p does not fall so far they follow the bounds
        of the fit, a nugget of 0, or the limits of the search; NaN if there is no likelihood.
    open : tuple of bool
        Whether a curve does so somewhere.
    """

    names: tuple
    levels: tuple
    curves: np.ndarray
    open: tuple


def profile_contours(fit, first, second, *, levels=LEVELS, rays=24):
    """Return contours of the profile log-likelihood of two parameters.

    ℓ_p(v, w) = max {ℓ(θ) : θ_first = v, θ_second = w}; inside the contour of level q it is less
    than ½χ²₂(q) below the maximum.

    Parameters
    ----------
    fit : Fit
    first, second : str
        Two of `fit.free`.
    levels : sequence of float
    rays : int
        Smallest number of directions; a ray costs about eight gradients of ℓ.

    Returns
    -------
    Contours

    Raises
    ------
    InvalidInput
        If the parameters are not two estimated ones, or a level is not between 0 and 1.

    Examples
    --------
    >>> import geomxp as gx
    >>> fit = gx.fit(gx.datasets.load("meuse"), fixed={"smoothness": 0.5, "nugget": 0.05})
    >>> curve = profile_contours(fit, "variance", "range", levels=[0.9], rays=8).curves[0]
    >>> model = gx.Matern(curve[0, 0], curve[0, 1], 0.5, 0.05)
    >>> there = gx.log_likelihood(fit.observations, model, trend="constant").log_likelihood
    >>> bool(abs(fit.log_likelihood - there + np.log(0.1)) < 1e-2)
    True
    """
    names, levels = _checked(fit, first, second, levels, rays)
    path = Path(fit)
    held = [path.names.index(name) for name in names]
    spread = _spread(path.curvature, held)
    heights = [sqrt(-2 * log(1 - level)) for level in levels]
    found = {}
    angles = 2 * pi * np.arange(rays) / rays
    for _ in range(ROUNDS):
        for angle in angles:
            ray = Ray(path, held, spread @ (cos(angle), sin(angle)))
            found[float(angle)] = lengths_of(ray, heights)
        angles = _between_unlike(found)
    angles = np.array([*sorted(found), 2 * pi])
    lengths = np.array([found[angle % (2 * pi)] for angle in angles.tolist()])
    fine = np.linspace(0.0, 2 * pi, FINE * rays + 1)
    curves = [
        _curve(path, held, spread, fine, _radii(angles, column, fine)) for column in lengths.T
    ]
    path.warn_of_better("contours", 2)
    return Contours(names, levels, np.array(curves), tuple((~(lengths > 0)).any(axis=0).tolist()))


def wald_ellipse(fit, first, second, level=0.95, points=241):
    """Return the Wald ellipse of two parameters, (points, 2).

    (log θ - log θ̂)'V⁻¹(log θ - log θ̂) = χ²₂(level) with the covariance V of the two logarithms (of
    an angle itself).

    Parameters
    ----------
    fit : Fit
        With standard errors.
    first, second : str
        Two of `fit.free`.
    level : float
    points : int

    Returns
    -------
    (points, 2) ndarray
        Closed, in the units of the parameters.

    Raises
    ------
    InvalidInput
    """
    names, (level,) = _checked(fit, first, second, [level], 3)
    if fit.information is None:
        raise InvalidInput(f"the fit has no standard errors: {fit.outcome}")
    held = [fit.free.index(name) for name in names]
    turn = np.linspace(0.0, 2 * pi, points)
    root = _spread(fit.information, held) * sqrt(-2 * log(1 - level))
    away = root @ np.array([np.cos(turn), np.sin(turn)])
    table = {p.name: p for p in fit.model.table}
    curve = [
        table[name].value + np.degrees(x)
        if table[name].unit == "degrees"
        else table[name].value * np.exp(x)
        for name, x in zip(names, away, strict=True)
    ]
    return np.column_stack(curve)


def _spread(information, held):
    """Return a root of the covariance of two coordinates, (2, 2)."""
    values, vectors = np.linalg.eigh(information)
    values = np.maximum(np.abs(values), FLAT * np.abs(values).max())
    return np.linalg.cholesky(((vectors / values) @ vectors.T)[np.ix_(held, held)])


def _between_unlike(found):
    """Return angles halfway between neighbouring rays with unlike lengths."""
    angles = [*sorted(found), 2 * pi]
    sizes = np.maximum(np.abs([found[angle % (2 * pi)] for angle in angles]), 1e-12)
    unlike = (np.abs(np.diff(np.log(sizes), axis=0)) > log(ALIKE)).any(axis=1)
    return (np.array(angles[:-1]) + np.diff(angles) / 2)[unlike]


def _curve(path, held, spread, fine, r):
    """Return a contour in the user's units, (points, 2)."""
    away = spread @ (r * np.array([np.cos(fine), np.sin(fine)]))
    curve = np.full((len(fine), 2), np.nan)
    for j, k in enumerate(held):
        name, x = path.names[k], away[j]
        # between rays that reach the edge the curve follows the edge
        x = path.start.point[k] + np.clip(x, -room(path, k, -1), room(path, k, 1))
        known = np.isfinite(x)
        curve[known, j] = path.in_user_units(name, x[known])
    return curve


def _radii(angles, lengths, fine):
    """Return radii at fine angles: by a spline of 1/r², which is smooth for an ellipse.

    Examples
    --------
    >>> turn = np.linspace(0.0, 2 * pi, 25)
    >>> there = turn + 0.1
    >>> found = _radii(turn, 1 / np.hypot(np.cos(turn) / 3, np.sin(turn)), there)
    >>> bool(np.allclose(1 / found**2, np.cos(there) ** 2 / 9 + np.sin(there) ** 2, atol=1e-3))
    True
    """
    reached = lengths > 0
    if reached.all():
        return _spline(angles, lengths, fine % (2 * pi), "periodic")
    r = np.interp(fine, angles, np.abs(lengths))
    # splines between the gaps, starting the turn at the first gap
    first = int(np.argmin(reached))
    order = (first + np.arange(len(angles) - 1)) % (len(angles) - 1)
    turned = angles[order] + 2 * pi * (order < first)
    for run in np.split(np.arange(len(order)), np.flatnonzero(np.diff(reached[order])) + 1):
        if reached[order[run[0]]] and len(run) > 3:
            at = fine + 2 * pi * (fine < turned[run[0]])
            inside = at <= turned[run[-1]]
            r[inside] = _spline(turned[run], lengths[order[run]], at[inside], "not-a-knot")
    return r


def _spline(angles, lengths, at, ends):
    """Return radii between the first angle and the last one."""
    from scipy.interpolate import CubicSpline

    inverse = lengths**-2.0
    k = np.clip(np.searchsorted(angles, at, side="right"), 1, len(angles) - 1)
    # keep a spline through too few rays from diverging
    least = 0.5 * np.minimum(inverse[k - 1], inverse[k])
    return np.maximum(CubicSpline(angles, inverse, bc_type=ends)(at), least) ** -0.5


def _checked(fit, first, second, levels, rays):
    for name in (first, second):
        if name not in fit.free:
            free = ", ".join(fit.free) or "none"
            raise InvalidInput(f"contours are of two estimated parameters: {free}. Got {name!r}.")
    if first == second:
        raise InvalidInput(f"contours are of two different parameters. Got {first!r} twice.")
    levels = tuple(np.atleast_1d(levels).tolist())
    if not levels or not all(isinstance(q, (int, float)) and 0 < q < 1 for q in levels):
        raise InvalidInput(f"`levels` must lie between 0 and 1. Got {levels!r}.")
    if not (isinstance(rays, Integral) and not isinstance(rays, bool) and rays >= 3):
        raise InvalidInput(f"`rays` must be a whole number of at least 3. Got {rays!r}.")
    return (first, second), tuple(sorted(levels))
