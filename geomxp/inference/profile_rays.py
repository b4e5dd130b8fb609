"""Rays from an estimate in the plane of two parameters, along which the profile falls.

On a ray the other parameters follow to the top of their slice.
"""

from dataclasses import dataclass
from math import inf, pi, sqrt

import numpy as np

from ..covariance.matern import Matern
from .profile_path import Path, Spot, corrected

STEPS = 20
"""Points of a ray at most; where the likelihood is a parabola it takes as many as heights."""

NEAR, NARROW, MARGIN = 0.95, 0.02, 1.02
"""A height is known where a point has so much of it, or lies between two that are so near; the
largest one needs a point beyond: how far to aim for it."""

LEAST_SLOPE = 0.2
"""Of the height, below which a ray does not believe that it will go on so."""


@dataclass(frozen=True, eq=False)
class Point:
    """What is known of the profile at a distance from the estimate.

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
    """A path on which two parameters are replaced by how far they went in one direction.

    It starts where the other path starts, and asks it for its spots.

    Parameters
    ----------
    path : Path
    held : (int, int)
        Places of the two among `path.names`.
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
        self.information = self.turn.T @ path.information @ self.turn

    def at(self, x):
        """Return the spot at (r, others)."""
        return self._seen(self.path.at(self.origin + self.turn @ x), x)

    def _seen(self, spot, x):
        """Return a spot of the path as one of the ray."""
        information = spot.information
        if information is not None:
            information = self.turn.T @ information @ self.turn
        return Spot(x, spot.value, self.turn.T @ spot.score, information)

    def searched(self, r, near):
        """As `Path.search`: the spot with the largest ℓ at a distance, by searches."""
        path = self.path
        there = path.model(self.origin + self.turn @ np.concatenate(([r], near.point[1:])))
        values = there.parameters()
        held = {name: values[name] for name in path.names if name not in self.others}
        if values["nugget"] == 0 and "nugget" in self.others:
            # a search moves in logarithms, in which there is no 0
            values["nugget"] = 1e-3 * values["variance"]
        space = path.problem.space.holding(**held)
        model = path.problem.search(space, Matern.from_parameters(values), step=0.1)[1]
        if model is None:
            return None
        at = path.point(model)
        others = [at[path.names.index(name)] for name in self.others]
        return self.at(np.clip(np.concatenate(([r], others)), self.lower, self.upper))


def room(path, k, step):
    """Return how far a coordinate can go; beyond a right angle a direction comes round again."""
    room = (path.upper if step > 0 else path.lower)[k] - path.start.point[k]
    return min(abs(room), pi / 2) if path.names[k] == "anisotropy_angle" else abs(room)


def lengths_of(ray, heights):
    """Return how far out ℓ_p = ℓ_max - ½ height², for each of some heights in increasing order.

    √(2 fall) grows almost in proportion to the distance, so that a few points tell. What it does
    not reach: see `_between`.
    """
    points = [Point(0.0, 0.0, ray.start, ray.information)]
    for _ in range(STEPS):
        way = _next(points, heights, ray.edge)
        if way is None:
            break
        r, before = way
        spot, information = _top_at(ray, r, before.spot, before.information)
        # without a likelihood, or halved to where it was
        if spot is None or spot.value == -inf or spot.point[0] <= before.away:
            break
        height = sqrt(max(2 * (ray.start.value - spot.value), 0.0))
        place = points.index(before) + 1
        points.insert(place, Point(float(spot.point[0]), height, spot, information))
    away = np.array([point.away for point in points])
    found = np.array([point.height for point in points])
    return _between(found, away, np.array(heights), ray.edge)


def _next(points, heights, edge):
    """Return at which distance to look next, and after which point; None where all is known."""
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
            # a little too far, so that it lies between two points
            return min(last.away + (MARGIN * height - last.height) / _slope(points), edge), last
    return None


def _slope(points):
    """Return how fast the height grows, as from the last point but one to the last."""
    if len(points) == 1:
        return 1.0
    before, last = points[-2:]
    return max((last.height - before.height) / (last.away - before.away), LEAST_SLOPE)


def _inside(below, high, height):
    """Return a distance between two points: between a chord and the way that led to the first."""
    low, width = below[-1], high.away - below[-1].away
    chord = (height - low.height) / (high.height - low.height)
    straight = (height - low.height) / _slope(below) / width
    return low.away + width * float(np.clip((chord + min(straight, 1.0)) / 2, 0.1, 0.9))


def _top_at(ray, r, spot, information):
    """Go to the top of the slice at a distance; None where there is no likelihood."""
    there = ray.step(spot, ray.slice(spot, information, 0), 0, r, -inf)
    if there is not None:
        top, known = ray.settle(there, corrected(information, spot, there), 0)
        if top is not None:
            return top, known
    return ray.searched(r, spot), information


def _between(found, away, heights, edge):
    """Return distances at heights, by a monotone curve through those that were found.

    What was not reached before the edge is -edge, what was lost before is NaN.
    """
    from scipy.interpolate import PchipInterpolator

    # where the profile has a second top, the outermost crossing counts
    later = np.append(np.minimum.accumulate(found[::-1])[::-1][1:], inf)
    rising = found < later
    lengths = np.full(len(heights), -edge if away[-1] >= edge else np.nan)
    reached = heights <= found[-1]
    if rising.sum() > 1:
        lengths[reached] = PchipInterpolator(found[rising], away[rising])(heights[reached])
    return lengths
