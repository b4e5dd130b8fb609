"""The likelihood about an estimate: all that was estimated moves, in coordinates for profiles.

A profile holds one coordinate v; the others, ω, follow to the top of their slice. Where they stand
away from it the profile is read off as ℓ_p(v) ≈ ℓ + ½ s_ω'I_ωω⁻¹s_ω, and it goes on along the
tangent dω/dv = -I_ωω⁻¹I_ωv.
"""

import warnings
from dataclasses import dataclass
from math import exp, inf, isfinite, log, pi, radians, sqrt

import numpy as np
import scipy

from ..covariance.matern import Matern, practical_range
from ..errors import GeomxpWarning, InvalidInput, NotPositiveDefinite
from .monitor import Monitor
from .parameters import Extent, Space, Units
from .problem import Problem
from .search import information_at

SETTLED, COARSE = 1e-5, 1e-3
"""What ω may promise to gain where it has arrived: in FP64, and in formats in which ℓ scatters."""

STEPS, HALVINGS = 40, 8
"""Limits: of Newton steps, and of the halvings of each."""

LONGEST_PATH = 2.0
"""Longest step of ω, in logarithms."""

SEARCH_TOLERANCE = 1e-7
"""Of a search for one point of a profile, where Newton's method fails."""


def problem_of(fit, limit=10_000, tolerance=SEARCH_TOLERANCE):
    """Return what a fit maximised, to be searched again.

    Parameters
    ----------
    fit : Fit
    limit : int
        On evaluations.
    tolerance : float
        Of each search.

    Returns
    -------
    problem : Problem
        In scaled units; within the bounds of the fit.
    model : Matern
        The estimate in these units.
    units : Units
    """
    seen = fit.observations
    design = fit.trend.design(seen.locations, seen.covariates)
    units = Units.of(seen, design)
    scaled = units.scaled(seen)
    values = fit.model.parameters()
    estimated = fit.free + fit.boundary
    space = Space(
        units.inward({name: values[name] for name in values if name not in estimated}),
        units.inward_bounds(fit.bounds),
        Extent.of(scaled),
        seen.metric,
        units.variance,
        fit.model.anisotropy is not None,
    )
    monitor = Monitor(limit, lambda model, value: (model, value), None, "", False)
    problem = Problem(scaled, design, fit.reml, fit.method, space, monitor, tolerance)
    return problem, Matern.from_parameters(units.inward(values)), units


@dataclass(frozen=True)
class Spot:
    """ℓ at one point.

    Parameters
    ----------
    point : (k,) ndarray
    value : float
    score : (k,) ndarray
    information : (k, k) ndarray or None
        Of Fisher scoring, where the likelihood gives it with its score.
    """

    point: np.ndarray
    value: float
    score: np.ndarray
    information: np.ndarray | None = None


@dataclass(frozen=True)
class Slice:
    """What the score and the information say of ω beside a spot.

    Parameters
    ----------
    newton : (k,) ndarray
        Step to the top of the slice; 0 for v.
    tangent : (k,) ndarray
        dω/dv along the profile; 1 for v.
    gain : float
        What the step promises.
    slope, curvature : float
        Of the profile in v: its derivative, and minus its second one.
    """

    newton: np.ndarray
    tangent: np.ndarray
    gain: float
    slope: float
    curvature: float


class Path:
    """ℓ and its score in the coordinates of profiles, from a fit's estimate on.

    Logarithms; of the nugget log(τ² + c) with c near its standard error, so that 0 is a place like
    any other; radians of an angle. Coordinates stay in a box: the bounds of the fit, or the ends of
    where geomxp looks.

    Parameters
    ----------
    fit : Fit
    """

    def __init__(self, fit):
        self.problem, model, self.units = problem_of(fit)
        self.fixed = model.parameters()
        self.names = [name for name in self.fixed if name in fit.free + fit.boundary]
        self.tolerance = COARSE if self.problem.noisy else SETTLED
        if self.problem.noisy:
            # one choice of formats: another at each model would be another function
            self.problem.evaluator.freeze(model)
        self.scoring = self.problem.evaluator.scoring
        self.offset = self._offset(model, fit) if "nugget" in self.names else 0.0
        self.lower, self.upper = np.array([self._box(name, model) for name in self.names]).T
        self.best = None
        self.start = self.at(self.point(model))
        self.information = self._information(model, fit)

    def _offset(self, model, fit):
        """Return c: the standard error of the nugget, or what comes near to it."""
        error = fit.standard_errors.get("nugget")
        if error is not None:
            error = self.units.inward({"nugget": error})["nugget"]
        elif self.scoring:
            found = float(self.problem.evaluator.information(model, ["nugget"])[0, 0])
            error = 1 / np.sqrt(found) if found > 0 else None
        # of a nugget of which nothing is known: one that can be seen
        error = error or 1e-2 * model.variance
        return float(np.clip(error, 1e-8 * model.variance, model.variance + model.nugget))

    def _information(self, model, fit):
        """Return the information at the estimate: the observed one where it is known."""
        if fit.information is not None and not fit.boundary:
            order = [fit.free.index(name) for name in self.names]
            # from logarithms to these coordinates, for the nugget
            change = [1 + self.offset / model.nugget if n == "nugget" else 1.0 for n in self.names]
            return fit.information[np.ix_(order, order)] * np.outer(change, change)
        if self.start.information is not None:
            return self.start.information
        return information_at(lambda x: self.at(x).score, self.start.point, 1e-3)

    def _box(self, name, model):
        """Return the least and the largest coordinate of a parameter."""
        space = self.problem.space
        if name == "anisotropy_angle" and name not in space.bounds:
            return -inf, inf
        if name == "range" and name not in space.bounds:
            one = practical_range(1.0, model.smoothness)
            lower, upper = (end / one for end in space.practical_range_bounds())
        else:
            lower, upper = space.box(name)
        if name == "nugget":
            lower = space.bounds.get("nugget", (0.0, 0.0))[0]
        value = self.fixed[name]
        return self.inward(name, min(lower, value)), self.inward(name, max(upper, value))

    def inward(self, name, value):
        """Return the coordinate of a parameter's value in scaled units."""
        if name == "anisotropy_angle":
            return radians(value)
        return log(value + self.offset) if name == "nugget" else log(max(value, 1e-300))

    def outward(self, name, x):
        """Return a parameter's value, in scaled units, at a coordinate."""
        if name == "anisotropy_angle":
            return float(np.degrees(x))
        value = exp(min(x, 600.0))
        if name == "nugget":
            # so near to c rounding is all that is left
            return value - self.offset if value > self.offset * (1 + 1e-14) else 0.0
        return min(value, 1.0) if name == "anisotropy_ratio" else value

    def point(self, model):
        """Return the point of a model in scaled units."""
        values = model.parameters()
        return np.array([self.inward(name, values[name]) for name in self.names])

    def model(self, x):
        """Return the model, in scaled units, at a point."""
        values = {name: self.outward(name, v) for name, v in zip(self.names, x, strict=True)}
        return Matern.from_parameters(self.fixed | values)

    def at(self, x):
        """Return the spot at a point; of value -inf where Σ has no factor."""
        model, evaluator = self.model(x), self.problem.evaluator
        self.problem.monitor.count += 1
        information = None
        try:
            gradient = evaluator.gradient(model, self.names)
            if self.scoring:
                information = evaluator.information(model, self.names)
        except NotPositiveDefinite:
            return Spot(x, -inf, np.full(len(x), np.nan))
        values = model.parameters()
        units = np.array([self._unit(name, values[name]) for name in self.names])
        score = np.array([gradient[name] for name in self.names]) * units
        if information is not None:
            information = information * np.outer(units, units)
        spot = Spot(x, evaluator(model).log_likelihood, score, information)
        if self.best is None or spot.value > self.best.value:
            self.best = spot
        return spot

    def _unit(self, name, value):
        """Return dθ/dx."""
        if name == "anisotropy_angle":
            return float(np.degrees(1.0))
        return value + self.offset if name == "nugget" else value

    def slice(self, spot, information, j):
        """Return the slice of coordinate j beside a spot; what leans against its box stays."""
        x, score = spot.point, spot.score
        leans = ((x <= self.lower) & (score < 0)) | ((x >= self.upper) & (score > 0))
        free = [k for k in range(len(x)) if k != j and not leans[k]]
        newton, tangent = np.zeros(len(x)), np.zeros(len(x))
        tangent[j] = 1.0
        gain = 0.0
        if free:
            curved = _uphill(information[np.ix_(free, free)])
            room = self.lower[free] - x[free], self.upper[free] - x[free]
            newton[free] = moved = _top_of_parabola(score[free], curved, *room)
            gain = float(score[free] @ moved - 0.5 * moved @ curved @ moved)
            tangent[free] = -np.linalg.solve(curved, information[free, j])
        slope, curvature = float(score @ tangent), float(tangent @ information @ tangent)
        return Slice(newton, tangent, gain, slope, curvature)

    def step(self, spot, cut, j, to, least):
        """Go on with v to a value and with ω to the top of its slice, or less far on this way.

        Returns the new spot; None where ℓ stays below `least`.
        """
        step = cut.newton + cut.tangent * (to - spot.point[j])
        step[j] = 0.0
        step *= min(1.0, LONGEST_PATH / max(np.abs(step).max(), 1e-300))
        step[j] = to - spot.point[j]
        for k in range(HALVINGS):
            x = np.clip(spot.point + step / 2**k, self.lower, self.upper)
            if k == 0:
                # to the last bit
                x[j] = to
            there = self.at(x)
            if there.value > least:
                return there
        return None

    def settle(self, spot, information, j):
        """Go to the top of the slice; (spot, information), (None, None) where that fails."""
        for _ in range(STEPS):
            cut = self.slice(spot, information, j)
            if cut.gain < self.tolerance:
                return spot, information
            there = self.step(spot, cut, j, spot.point[j], spot.value)
            if there is None:
                return None, None
            information = corrected(information, spot, there)
            spot = there
        return None, None

    def search(self, j, x, start):
        """Maximise ℓ with coordinate j held at x by searches; (value, model or None)."""
        name = self.names[j]
        space = self.problem.space.holding(**{name: self.outward(name, x)})
        values = start.parameters() | {name: self.outward(name, x)}
        ways = [(space, values)]
        if "nugget" in space.free:
            # a search moves in logarithms, and stops on the way to 0
            ways[0][1]["nugget"] = max(values["nugget"], 1e-3 * values["variance"])
            if space.bounds.get("nugget", (0.0, 0.0))[0] == 0:
                ways.append((space.holding(nugget=0.0), values | {"nugget": 0.0}))
        ends = [
            self.problem.search(where, Matern.from_parameters(first), step=0.1)[:2]
            for where, first in ways
        ]
        return max(ends, key=lambda end: end[0])


def _uphill(information):
    """Return the matrix with its eigenvalues made positive, and none too near 0."""
    values, vectors = np.linalg.eigh(information)
    values = np.maximum(np.abs(values), 1e-6 * max(np.abs(values).max(), 1e-6))
    return (vectors * values) @ vectors.T


def _top_of_parabola(score, information, least, most):
    """Return the step to the top of s'd - ½ d'I d; what would leave its box stops at the edge."""
    step, inside = np.zeros(len(score)), np.ones(len(score), dtype=bool)
    while inside.any():
        rest = score[inside] - information[np.ix_(inside, ~inside)] @ step[~inside]
        step[inside] = np.linalg.solve(information[np.ix_(inside, inside)], rest)
        beyond = inside & ((step < least) | (step > most))
        if not beyond.any():
            break
        step[beyond] = np.clip(step, least, most)[beyond]
        inside &= ~beyond
    return step


def corrected(information, here, there):
    """Return the information at a spot, true to the change of the score on the way there (SR1).

    Of Fisher scoring where the likelihood gives it; else the last one.
    """
    base = information if there.information is None else there.information
    change = there.point - here.point
    miss = here.score - there.score - base @ change
    scale = float(miss @ change)
    if abs(scale) <= 1e-8 * np.linalg.norm(miss) * np.linalg.norm(change):
        return base
    return base + np.outer(miss, miss) / scale


# Profile-likelihood intervals: the ends are found along the ridge where ω follows.
#
# Venzon and Moolgavkar (1988, Appl. Stat. 37:87) solve ℓ(θ) = ℓ* and ∂ℓ/∂ω = 0 at once by
# Newton's method. Here too one step moves the parameter v towards its end and the others ω to the
# top of their slice, so that an end costs some ten scores; where ω lags behind, v waits for it.
# √(ℓ_max - ℓ_p), nearly straight in v, says how far v has to go.


LAG = 0.2
"""Gain of ω, as a share of the drop, from which v waits."""

LONGEST_INTERVAL = 1.0
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
    longest: float = LONGEST_INTERVAL

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
    outer = min(
        sqrt(2 * drop / cut.curvature) if cut.curvature > 0 else LONGEST_INTERVAL,
        LONGEST_INTERVAL,
        edge,
    )
    while excess(outer) < 0:
        if outer >= edge:
            return None
        inner, outer = outer, min(2 * outer, edge)
    return start + sign * scipy.optimize.brentq(excess, inner, outer, xtol=1e-7, rtol=1e-7)


# The profile likelihood: how fast ℓ falls when one parameter is held and the others follow.


WIDTH = 2.5
"""Standard errors (of the parameter's logarithm) that a profile reaches to either side."""

WITHOUT_ERROR, WIDEST = 4.0, 20.0
"""Factors that a profile reaches where there is no standard error, and at most."""

LONGEST = 1.0
"""Longest step from one value to the next, in logarithms."""

SAME = 1e-9
"""Values nearer in logarithms are one."""


def profile_likelihood(fit, name, *, points=9):
    """Maximise the log-likelihood with one parameter held, at a row of its values.

    ℓ_p(v) = max {ℓ(θ) : θ_name = v}. Parameters that were fixed in the fit stay where they are. The
    values with ℓ_p > ℓ_max - 1.92 are a 95 % confidence interval (half the 0.95 quantile of
    chi-square with one degree of freedom): `Fit.confidence_intervals` finds its ends.

    Parameters
    ----------
    fit : Fit
    name : str
        One of `fit.free`.
    points : int
        Values, the estimate among them; equally far apart in logarithms on either side of it
        (in degrees for an angle).

    Returns
    -------
    values : (k,) ndarray
        Increasing, in the unit of the parameter; k ≤ points, because values without a
        likelihood are left out, and those beyond where geomxp looks.
    log_likelihoods : (k,) ndarray

    Raises
    ------
    InvalidInput
        If the parameter was not estimated, or for fewer than 3 points.

    Examples
    --------
    >>> import geomxp as gx
    >>> seen = gx.Observations([[0.0], [1.0], [2.5], [4.0], [4.5]], [1.0, 2.0, 0.5, 0.0, 0.4])
    >>> fit = gx.fit(seen, gx.Matern(1.0, 1.0, 0.5), fixed=("range", "smoothness", "nugget"))
    >>> values, profile = profile_likelihood(fit, "variance", points=5)
    >>> bool(values[2] == fit.model.variance), bool(abs(profile[2] - fit.log_likelihood) < 1e-12)
    (True, True)
    """
    if name not in fit.free:
        free = ", ".join(fit.free) or "none"
        raise InvalidInput(f"`name` must be an estimated parameter: {free}. Got {name!r}.")
    if not (isinstance(points, int) and points >= 3):
        raise InvalidInput(f"`points` must be a whole number of at least 3. Got {points!r}.")
    path = Path(fit)
    grid = _grid(fit, name, points, path.problem.space, path.units)
    middle = int(np.argmax(grid == fit.model.parameters()[name]))
    below = _walk(path, name, grid[middle::-1])
    above = _walk(path, name, grid[middle + 1 :])
    profile = np.array(below[::-1] + above) + path.units.shift(path.problem.design, fit.reml)
    known = np.isfinite(profile)
    return grid[known], profile[known]


def _grid(fit, name, points, space, units):
    """Return the values at which a parameter is held: increasing, the estimate in the middle."""
    value = fit.model.parameters()[name]
    error = fit.standard_errors.get(name)
    known = error is not None and isfinite(error) and error > 0
    left = (points - 1) // 2
    right = points - 1 - left
    if name == "anisotropy_angle":
        half = min(WIDTH * error, 90.0) if known else 45.0
        steps = np.concatenate((np.linspace(-half, 0.0, left + 1), np.linspace(0, half, right + 1)))
        return value + np.delete(steps, left)
    # a standard error of the logarithm is one of the parameter over the parameter
    factor = exp(min(WIDTH * error / value, log(WIDEST))) if known else WITHOUT_ERROR
    if name == "range":
        lower, upper = space.practical_range_bounds()
        one = practical_range(1.0, fit.model.smoothness)
        lower, upper = lower / one, upper / one
    else:
        lower, upper = space.box(name)
    # the box is one of the scaled problem
    unit = units.outward_errors({name: 1.0})[name]
    low = min(max(value / factor, lower * unit), value)
    high = max(min(value * factor, upper * unit), value)
    grid = np.concatenate(
        (np.geomspace(low, value, left + 1), np.geomspace(value, high, right + 1))
    )
    # geomspace rounds its ends
    grid[left] = value
    # once: it ends both rows, and all of one where geomxp looks no farther to that side
    other = np.abs(np.log(grid / value)) > SAME
    other[left] = True
    return grid[other]


def _walk(path, name, values):
    """Return log-likelihoods along values, from the estimate away."""
    j, result, spot, information = path.names.index(name), [], path.start, path.information
    for value in values:
        x = path.inward(name, path.units.inward({name: value})[name])
        x = float(np.clip(x, path.lower[j], path.upper[j]))
        top, known = _top_at(path, j, x, spot, information)
        if top is not None:
            spot, information = top, known
            result.append(top.value)
        else:
            result.append(path.search(j, x, path.model(spot.point))[0])
    return result


def _top_at(path, j, x, spot, information):
    """Go to the top of the slice at x; (spot, information), (None, None) where that fails."""
    for _ in range(STEPS):
        if spot.point[j] == x:
            return path.settle(spot, information, j)
        to = float(np.clip(x, spot.point[j] - LONGEST, spot.point[j] + LONGEST))
        there = path.step(spot, path.slice(spot, information, j), j, to, -np.inf)
        if there is None:
            break
        information = corrected(information, spot, there)
        spot = there
    return None, None
