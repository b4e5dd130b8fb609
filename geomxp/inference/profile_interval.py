"""Profile-likelihood intervals: the ends are found along the ridge where ω follows.

Venzon and Moolgavkar (1988, Appl. Stat. 37:87) solve ℓ(θ) = ℓ* and ∂ℓ/∂ω = 0 at once by Newton's
method. Here too one step moves the parameter v towards its end and the others ω to the top of their
slice, so that an end costs some ten scores; where ω lags behind, v waits for it. √(ℓ_max - ℓ_p),
nearly straight in v, says how far v has to go.
"""

import warnings
from dataclasses import dataclass
from math import inf, isfinite, pi, sqrt

import scipy

from ..errors import GeomxpWarning
from .profile_path import STEPS, Path, corrected

LAG = 0.2
"""Gain of ω, as a share of the drop, from which v waits."""

LONGEST = 1.0
"""First longest step of v; it doubles while v has farther to go."""

NARROW = 1e-3
"""Width, in logarithms, at which an end's bounds are doubted where Newton's step leaves them."""

RUNS_WITH = {("variance", 1): "range", ("range", -1): "smoothness"}
"""Where the range runs to infinity so does the variance; where the smoothness does, a goes to 0."""

LOST = 14
"""Steps after which what a walk found, which needs some eight, is compared with a search."""

DOUBT = 10.0
"""Tolerances of gain by the scoring information with which a corrected one is not believed."""

ABOVE = 1e3
"""Tolerances by which a point above the maximum is news."""


def profile_intervals(fit, names, drop):
    """Return where the profile log-likelihood lies less than `drop` below the maximum.

    Parameters
    ----------
    fit : Fit
    names : sequence of str
        Parameters that were estimated.
    drop : float
        ½χ²₁(level).

    Returns
    -------
    dict of str to (float, float)
        In the user's units. An end where ℓ_p never falls so far: 0, infinity, a bound of the fit,
        the largest value that the parameter can have, or 90 degrees from an angle.
    """
    if not names:
        return {}
    path, result = Path(fit), {}
    for name in names:
        ends = [_outward(path, fit, name, sign, drop) for sign in (-1, 1)]
        result[name] = tuple(ends)
    more = path.best.value - path.start.value
    if more > ABOVE * path.tolerance:
        model = path.units.outward(path.model(path.best.point))
        warnings.warn(
            f"a model with a log-likelihood higher by {more:.3g} than the fit's lies inside its "
            f"profile intervals: fit again from {model}.",
            GeomxpWarning,
            stacklevel=4,
        )
    return result


def _outward(path, fit, name, sign, drop):
    """Return an end in the user's units."""
    j = path.names.index(name)
    coordinate = end_of(path, j, sign, drop)
    if coordinate is None:
        return _open_end(fit, name, sign)
    value = path.outward(name, coordinate)
    return float(path.units.outward_errors({name: value})[name])


def _open_end(fit, name, sign):
    """Return the end of an interval that does not end where geomxp looks."""
    value = fit.model.parameters()[name]
    if name in fit.bounds:
        return fit.bounds[name][0 if sign < 0 else 1]
    if name == "anisotropy_angle":
        return value + 90.0 * sign
    if sign < 0:
        return 0.0
    great_circle = fit.observations.metric == "great-circle"
    return {"anisotropy_ratio": 1.0, "smoothness": 0.5 if great_circle else inf}.get(name, inf)


def end_of(path, j, sign, drop):
    """Return the coordinate where the profile has fallen by `drop`, to one side.

    Parameters
    ----------
    path : Path
    j : int
        The parameter's place in `path.names`.
    sign : {-1, 1}
    drop : float

    Returns
    -------
    float or None
        None where it does not fall so far before the edge of the box.
    """
    start, top = path.start.point[j], path.start.value
    way = _Way(_edge(path, j, sign), drop)
    here, information = path.start, path.information
    for count in range(STEPS):
        cut = path.slice(here, information, j)
        if cut.gain < path.tolerance and here.information is not None:
            fresh = path.slice(here, here.information, j)
            if fresh.gain > DOUBT * path.tolerance:
                # corrections along a bent path may see curvature that is not there
                cut, information = fresh, here.information
        away, fall = sign * (here.point[j] - start), top - here.value - cut.gain
        settled = cut.gain < path.tolerance
        if settled and abs(fall - drop) < path.tolerance:
            if _runs_on(path, here, j, sign):
                return None
            if count > LOST and _is_below(path, here, j):
                break
            return here.point[j]
        if settled and away >= way.edge and fall < drop:
            return None
        way.learn(away, fall, cut.gain)
        waits = cut.gain > LAG * drop or abs(fall - drop) < path.tolerance
        move = 0.0 if waits else way.move(away, fall, sign * cut.slope, cut.curvature)
        least = here.value if move == 0 else top - 3 * drop - 1
        there = path.step(here, cut, j, here.point[j] + sign * move, least)
        if there is None:
            break
        information = corrected(information, here, there)
        here = there
    return _end_by_search(path, j, sign, drop)


def _is_below(path, here, j):
    """Whether ω has a better maximum than the walk's, which a search from the estimate finds."""
    value, _ = path.search(j, here.point[j], path.model(path.start.point))
    return value > here.value + DOUBT * path.tolerance


def _runs_on(path, spot, j, sign):
    """Whether it is only the box of another parameter, which runs to infinity, that made an end."""
    other = RUNS_WITH.get((path.names[j], sign))
    if other not in path.names or other in path.problem.space.bounds:
        return False
    if other == "smoothness" and path.problem.space.metric == "great-circle":
        return False
    k = path.names.index(other)
    return bool(spot.point[k] >= path.upper[k])


def _edge(path, j, sign):
    """Return how far v can go to one side."""
    if path.names[j] == "anisotropy_angle" and not isfinite(path.upper[j]):
        return pi / 2
    # less what rounding may leave of it
    return sign * ((path.upper if sign > 0 else path.lower)[j] - path.start.point[j]) - 1e-12


@dataclass
class _Way:
    """How far the end is known to be from the estimate, and how far to go next.

    Parameters
    ----------
    edge : float
        Of the box.
    drop : float
    inner, outer : float
        The end lies between.
    longest : float
    """

    edge: float
    drop: float
    inner: float = 0.0
    outer: float = inf
    longest: float = LONGEST

    def learn(self, away, fall, gain):
        """Take note of the profile at a distance, where it is known well enough."""
        if gain > 0.1 * abs(fall - self.drop):
            return
        if fall < self.drop:
            self.inner = max(self.inner, away) if away < self.outer else self.inner
        else:
            self.outer = min(self.outer, away) if away > self.inner else self.outer

    def move(self, away, fall, slope, curvature):
        """Return the step from a distance, given the profile's fall and slope there."""
        left = self.drop - fall
        if fall > 0.05 * self.drop and slope < 0:
            # Newton's method on √(2 fall), whose derivative is -slope/√(2 fall)
            root = sqrt(2 * fall)
            step = (sqrt(2 * self.drop) - root) * root / -slope
        elif curvature > 0:
            # -slope s + ½ curvature s² = left
            step = (slope + sqrt(max(slope**2 + 2 * curvature * left, 0.0))) / curvature
        else:
            step = self.longest
        if not self.inner < away + step < self.outer:
            if self.outer - self.inner < NARROW:
                # two maxima of ω, and an end learnt on the lower one
                self.inner, self.outer = (away, inf) if step > 0 else (0.0, away)
            else:
                middle = (self.inner + min(self.outer, self.inner + 2 * self.longest)) / 2
                step = middle - away
        if self.outer == inf and step > self.longest:
            step, self.longest = self.longest, 2 * self.longest
        return min(step, self.edge + 1e-12 - away)


def _end_by_search(path, j, sign, drop):
    """As `end_of`, by bracketing and Brent's method on searches for the profile."""
    start, top = path.start.point[j], path.start.value
    edge, origin = _edge(path, j, sign), path.model(path.start.point)
    last = [origin]

    # a search depends on where it starts: what was found once at a distance stays
    known = {0.0: -drop}

    def excess(away):
        if away not in known:
            # from where the last one ended, and from the estimate: there may be two maxima of ω
            ways = [path.search(j, start + sign * away, model) for model in (last[0], origin)]
            value, model = max(ways, key=lambda way: way[0])
            if model is not None:
                last[0] = model
            # a profile of -inf has fallen, too
            known[away] = min(top - value, 1e3 * drop) - drop
        return known[away]

    cut = path.slice(path.start, path.information, j)
    inner = 0.0
    outer = min(sqrt(2 * drop / cut.curvature) if cut.curvature > 0 else LONGEST, LONGEST, edge)
    while excess(outer) < 0:
        if outer >= edge:
            return None
        inner, outer = outer, min(2 * outer, edge)
    return start + sign * scipy.optimize.brentq(excess, inner, outer, xtol=1e-7, rtol=1e-7)
