"""Profile likelihoods: ℓ maximised over all other parameters while one is held.

A profile holds one coordinate v; the others, ω, follow to the maximum of their slice. Away from it
the profile is ℓ_p(v) ≈ ℓ + ½ s_ω'I_ωω⁻¹s_ω, and it continues along the tangent
dω/dv = -I_ωω⁻¹I_ωv.
"""

import warnings
from dataclasses import dataclass
from math import exp, inf, isfinite, log, pi, sqrt

import numpy as np
import scipy

from ..errors import GeomxpWarning, InvalidInput, NotPositiveDefinite
from .parameters import (
    ANISOTROPY,
    LENGTH,
    NUGGET,
    SCALE,
    Coordinates,
    ParameterTable,
    Units,
    practical_factor,
    template,
)
from .problem import Monitor, Problem
from .search import information_at

SETTLED, COARSE = 1e-5, 1e-3
"""Promised gain at which ω has converged: in FP64, and in coarse formats."""

STEPS, HALVINGS = 40, 8
"""Limits on Newton steps, and on the halvings of each."""

LONGEST_PATH = 2.0
"""Longest step of ω, in logarithms."""

SEARCH_TOLERANCE = 1e-7
"""Tolerance of a search for one point of a profile, where Newton's method fails."""


def problem_of(fit, limit=10_000, tolerance=SEARCH_TOLERANCE):
    """Return the problem that a fit solved, to be searched again.

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
    model : Covariance
        The estimate in these units.
    units : Units
    """
    observations, values = fit.observations, fit.model.parameters()
    design = fit.trend.design(observations.locations, observations.covariates)
    units = Units.of(observations, design)
    scaled = units.scaled(observations)
    fixed = {n: v for n, v in values.items() if n not in fit.free + fit.boundary}
    table = ParameterTable(
        template(type(fit.model), ANISOTROPY[1] in values),
        units.inward(fit.model, fixed),
        units.inward(fit.model, fit.bounds),
        scaled,
        units.variance,
    )
    problem = Problem(scaled, design, fit.reml, fit.method, table, Monitor(limit), tolerance)
    return problem, fit.model.replace(**units.inward(fit.model, values)), units


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
    """Newton step and tangent of ω at a spot, from its score and information.

    Parameters
    ----------
    newton : (k,) ndarray
        Step to the maximum of the slice; 0 for v.
    tangent : (k,) ndarray
        dω/dv along the profile; 1 for v.
    gain : float
        Promised by the step.
    slope, curvature : float
        Of the profile in v: its derivative, and minus its second one.
    """

    newton: np.ndarray
    tangent: np.ndarray
    gain: float
    slope: float
    curvature: float


class Path(Coordinates):
    """ℓ and its score in the coordinates of profiles, around a fit's estimate.

    Logarithms; log(τ² + c) of the nugget with c near its standard error, so that 0 is an ordinary
    point; radians of an angle. The box of the coordinates is that of the fit.

    Parameters
    ----------
    fit : Fit
    """

    def __init__(self, fit):
        self.problem, model, self.units = problem_of(fit)
        estimated = fit.free + fit.boundary
        names = [name for name in model.parameters() if name in estimated]
        self.tolerance = COARSE if self.problem.noisy else SETTLED
        if self.problem.noisy:
            # formats chosen anew at each model would change the function
            self.problem.evaluator.freeze(model)
        self.scoring = self.problem.evaluator.scoring
        offset = self._offset(model, fit) if NUGGET in names else 0.0
        super().__init__(names, model, wrap=False, offset=offset)
        self.lower, self.upper = np.array([self._box(name, model) for name in names]).T
        self.best = None
        self.start = self.at(self.point(model))
        self.curvature = self._curvature(model, fit)

    def _offset(self, model, fit):
        """Return c: the standard error of the nugget, or an estimate of it."""
        error = fit.standard_errors.get(NUGGET)
        if error is not None:
            error = self.units.inward(model, {NUGGET: error})[NUGGET]
        elif self.scoring:
            found = float(self.problem.evaluator.information(model, [NUGGET])[0, 0])
            error = 1 / np.sqrt(found) if found > 0 else None
        # without information about the nugget: a visible one
        size = model.largest_variance
        return float(np.clip(error or 1e-2 * size, 1e-8 * size, size + model.nugget))

    def _curvature(self, model, fit):
        """Return the information at the estimate; the observed one if it is known."""
        if fit.information is not None and not fit.boundary:
            order = [fit.free.index(name) for name in self.names]
            # from logarithms to these coordinates, for the nugget
            change = [1 + self.offset / model.nugget if n == NUGGET else 1.0 for n in self.names]
            return fit.information[np.ix_(order, order)] * np.outer(change, change)
        if self.start.information is not None:
            return self.start.information
        return information_at(lambda x: self.at(x).score, self.start.point, 1e-3)

    def _box(self, name, model):
        """Return the smallest and the largest coordinate of a parameter."""
        table, value = self.problem.table, model.parameters()[name]
        if self.table[name].unit == "degrees" and name not in table.bounds:
            return -inf, inf
        if name == LENGTH and name not in table.bounds:
            one = practical_factor(model)
            lower, upper = (end / one for end in table.practical_bounds())
        else:
            lower, upper = table.box(name)
        if name == NUGGET:
            lower = table.bounds.get(NUGGET, (0.0, 0.0))[0]
        return self.inward(name, min(lower, value)), self.inward(name, max(upper, value))

    def at(self, x):
        """Return the spot at a point; of value -inf where Σ has no Cholesky factor."""
        model, evaluator = self.model(x), self.problem.evaluator
        self.problem.monitor.count += 1
        information = None
        try:
            gradient = evaluator.gradient(model, self.names)
            if self.scoring:
                information = evaluator.information(model, self.names)
        except NotPositiveDefinite:
            return Spot(x, -inf, np.full(len(x), np.nan))
        score, information = self.in_coordinates(model, gradient, information)
        spot = Spot(x, evaluator(model).log_likelihood, score, information)
        if self.best is None or spot.value > self.best.value:
            self.best = spot
        return spot

    def in_user_units(self, name, x):
        """Return a parameter's value, in the user's units, at one coordinate or several."""
        unit = self.units.of_parameter(self.table[name])
        values = np.vectorize(lambda each: self.outward(name, each) * unit, otypes=[float])(x)
        return float(values) if np.ndim(x) == 0 else values

    def warn_of_better(self, where, stacklevel):
        """Warn if a model on the way had a larger log-likelihood than the estimate."""
        more = self.best.value - self.start.value
        if more > ABOVE * self.tolerance:
            model = self.units.outward(self.model(self.best.point))
            warnings.warn(
                f"the fit is not at its maximum: a model inside its {where} has a log-likelihood "
                f"higher by {more:.3g}. Fit again from {model}.",
                GeomxpWarning,
                stacklevel=stacklevel + 1,
            )

    def slice(self, spot, information, j):
        """Return the slice of coordinate j. Parameters at active bounds are held fixed."""
        x, score = spot.point, spot.score
        active = ((x <= self.lower) & (score < 0)) | ((x >= self.upper) & (score > 0))
        free = [k for k in range(len(x)) if k != j and not active[k]]
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
        """Move v to a value and ω to the maximum of its slice, halving the step of ω as needed.

        Returns the new spot; None where ℓ stays below `least`.
        """
        step = cut.newton + cut.tangent * (to - spot.point[j])
        step[j] = 0.0
        step *= min(1.0, LONGEST_PATH / max(np.abs(step).max(), 1e-300))
        step[j] = to - spot.point[j]
        for k in range(HALVINGS):
            x = np.clip(spot.point + step / 2**k, self.lower, self.upper)
            if k == 0:
                # without rounding
                x[j] = to
            moved = self.at(x)
            if moved.value > least:
                return moved
        return None

    def settle(self, spot, information, j):
        """Go to the maximum of the slice; return (spot, information), (None, None) on failure."""
        for _ in range(STEPS):
            cut = self.slice(spot, information, j)
            if cut.gain < self.tolerance:
                return spot, information
            moved = self.step(spot, cut, j, spot.point[j], spot.value)
            if moved is None:
                return None, None
            spot, information = moved, corrected(information, spot, moved)
        return None, None

    def search(self, j, x, start):
        """Maximise ℓ with coordinate j held at x by searches; return (value, model or None)."""
        name = self.names[j]
        held = {name: self.outward(name, x)}
        return self.maximum_holding(held, start.replace(**held))

    def maximum_holding(self, held, start):
        """Return the largest ℓ with some parameters held, and its model or None."""
        table = self.problem.table.holding(**held)
        if NUGGET not in table.free:
            return self.problem.search(table, start, step=0.1)[:2]
        # a search moves in logarithms and never reaches 0
        smallest = 1e-3 * start.largest_variance
        ends = [
            self.problem.search(table, start.replace(nugget=max(start.nugget, smallest)), step=0.1)
        ]
        if table.bounds.get(NUGGET, (0.0, 0.0))[0] == 0:
            bare = start.replace(nugget=0.0)
            ends.append(self.problem.search(table.holding(nugget=0.0), bare, step=0.1))
        return max((end[:2] for end in ends), key=lambda end: end[0])


def _uphill(information):
    """Return the matrix with its eigenvalues made positive and bounded away from 0."""
    values, vectors = np.linalg.eigh(information)
    values = np.maximum(np.abs(values), 1e-6 * max(np.abs(values).max(), 1e-6))
    return (vectors * values) @ vectors.T


def _top_of_parabola(score, information, least, most):
    """Return the step to the maximum of s'd - ½ d'I d within a box (active sets)."""
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


def corrected(information, before, after):
    """Return the information at a spot, corrected by the change of the score (SR1 update).

    The base is that of Fisher scoring if the evaluator has it, otherwise the last one.
    """
    base = information if after.information is None else after.information
    change = after.point - before.point
    miss = before.score - after.score - base @ change
    scale = float(miss @ change)
    if abs(scale) <= 1e-8 * np.linalg.norm(miss) * np.linalg.norm(change):
        return base
    return base + np.outer(miss, miss) / scale


# Intervals
#
# Venzon and Moolgavkar (1988, Appl. Stat. 37:87) solve ℓ(θ) = ℓ* and ∂ℓ/∂ω = 0 together by
# Newton's method. Each step here moves v towards its end and ω to the maximum of its slice; an end
# takes about ten scores. v waits while ω lags behind. √(ℓ_max - ℓ_p) is nearly linear in v and
# gives the length of the next step.


LAG = 0.2
"""Promised gain of ω, as a share of the drop, above which v waits."""

LONGEST_INTERVAL = 1.0
"""First limit on the step of v; it doubles while v moves outward."""

NARROW = 1e-3
"""Width of the bracket, in logarithms, below which a Newton step outside it resets it."""

DOWN_WITH_SHAPES = (LENGTH, -1)
"""The range goes to 0 as a shape parameter goes to infinity."""

LOST = 14
"""Steps after which the result of a walk, which needs about eight, is verified by a search."""

DOUBT = 10.0
"""Tolerances of gain by the scoring information above which a corrected one is discarded."""

ABOVE = 1e3
"""Tolerances by which a point above the maximum is reported."""


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
    path.warn_of_better("profile intervals", 4)
    return result


def _outward(path, fit, name, sign, drop):
    """Return an end in the user's units."""
    j = path.names.index(name)
    coordinate = end_of(path, j, sign, drop)
    if coordinate is None:
        return _open_end(fit, name, sign)
    return path.in_user_units(name, coordinate)


def _open_end(fit, name, sign):
    """Return the end of an interval that extends beyond the box of the search."""
    value = fit.model.parameters()[name]
    if name in fit.bounds:
        return fit.bounds[name][0 if sign < 0 else 1]
    parameter = next(p for p in fit.model.table if p.name == name)
    if parameter.unit == "degrees":
        return value + 90.0 * sign
    observations = fit.observations
    limits = fit.model.limits(observations.metric, observations.dimensions)
    return limits.get(name, (parameter.lower, parameter.upper))[0 if sign < 0 else 1]


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
    spot, information = path.start, path.curvature
    for count in range(STEPS):
        cut = path.slice(spot, information, j)
        if cut.gain < path.tolerance and spot.information is not None:
            fresh = path.slice(spot, spot.information, j)
            if fresh.gain > DOUBT * path.tolerance:
                # corrections along a curved path may add spurious curvature
                cut, information = fresh, spot.information
        away, fall = sign * (spot.point[j] - start), top - spot.value - cut.gain
        settled = cut.gain < path.tolerance
        if settled and abs(fall - drop) < path.tolerance:
            if _runs_on(path, spot, j, sign):
                return None
            if count > LOST and _is_below(path, spot, j):
                break
            return spot.point[j]
        if settled and away >= way.edge and fall < drop:
            return None
        way.learn(away, fall, cut.gain)
        waits = cut.gain > LAG * drop or abs(fall - drop) < path.tolerance
        move = 0.0 if waits else way.move(away, fall, sign * cut.slope, cut.curvature)
        least = spot.value if move == 0 else top - 3 * drop - 1
        moved = path.step(spot, cut, j, spot.point[j] + sign * move, least)
        if moved is None:
            break
        information = corrected(information, spot, moved)
        spot = moved
    return _end_by_search(path, j, sign, drop)


def _is_below(path, spot, j):
    """Whether ω has a better maximum than the walk's, which a search from the estimate finds."""
    value, _ = path.search(j, spot.point[j], path.model(path.start.point))
    return value > spot.value + DOUBT * path.tolerance


def _runs_on(path, spot, j, sign):
    """Whether the end exists only because another parameter stops at the end of its box.

    As the range goes to infinity so does the variance; as a shape does, the range goes to 0.
    """
    table, side = path.problem.table, (path.names[j], sign)
    others = {(SCALE, 1): [LENGTH], DOWN_WITH_SHAPES: table.shapes}.get(side, [])
    for other in others:
        if other not in path.names or other in table.bounds or isfinite(table.limits[other][1]):
            continue
        k = path.names.index(other)
        if spot.point[k] >= path.upper[k]:
            return True
    return False


def _edge(path, j, sign):
    """Return how far v can move to one side."""
    if not isfinite(path.upper[j]):
        return pi / 2
    # less a margin for rounding
    return sign * ((path.upper if sign > 0 else path.lower)[j] - path.start.point[j]) - 1e-12


@dataclass
class _Way:
    """Bracket of the distance of an end from the estimate, and the length of the next step.

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
        """Update the bracket with the profile at a distance, if it is accurate enough."""
        if gain > 0.1 * abs(fall - self.drop):
            return
        if fall < self.drop:
            self.inner = max(self.inner, away) if away < self.outer else self.inner
        else:
            self.outer = min(self.outer, away) if away > self.inner else self.outer

    def move(self, away, fall, slope, curvature):
        """Return the step from a distance, given the profile's fall and slope tspot."""
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
                # ω has two maxima, and the bracket belongs to the lower one
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

    # the result of a search depends on its start: keep the first one at each distance
    known = {0.0: -drop}

    def excess(away):
        if away not in known:
            # from the last end and from the estimate: ω may have two maxima
            ends = [path.search(j, start + sign * away, model) for model in (last[0], origin)]
            value, model = max(ends, key=lambda end: end[0])
            if model is not None:
                last[0] = model
            # a profile of -inf counts as fallen
            known[away] = min(top - value, 1e3 * drop) - drop
        return known[away]

    cut = path.slice(path.start, path.curvature, j)
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


# The profile of one parameter on a grid

WIDTH = 2.5
"""Half-width of a profile, in standard errors of the parameter's logarithm."""

WITHOUT_ERROR, WIDEST = 4.0, 20.0
"""Half-width of a profile as a factor: without a standard error, and at most."""

LONGEST = 1.0
"""Longest step between values, in logarithms."""

SAME = 1e-9
"""Distance in logarithms below which values are equal."""


def profile_likelihood(fit, name, *, points=9):
    """Return the profile log-likelihood of one parameter on a grid of its values.

    ℓ_p(v) = max {ℓ(θ) : θ_name = v}. Parameters fixed in the fit stay fixed. The values with
    ℓ_p > ℓ_max - 1.92 (half the 0.95 quantile of chi-square with one degree of freedom) form a 95 %
    confidence interval; `Fit.confidence_intervals` computes its ends.

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
        Increasing, in the unit of the parameter; k ≤ points: values without a likelihood, and
        values outside the box of the search, are left out.
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
    grid = _grid(path, fit, name, points)
    middle = int(np.argmax(grid == fit.model.parameters()[name]))
    below = _walk(path, name, grid[middle::-1])
    above = _walk(path, name, grid[middle + 1 :])
    profile = np.array(below[::-1] + above) + path.units.shift(path.problem.design, fit.reml)
    known = np.isfinite(profile)
    return grid[known], profile[known]


def _grid(path, fit, name, points):
    """Return the values at which a parameter is held: increasing, with the estimate."""
    value = fit.model.parameters()[name]
    error = fit.standard_errors.get(name)
    known = error is not None and isfinite(error) and error > 0
    left = (points - 1) // 2
    right = points - 1 - left
    if path.table[name].unit == "degrees":
        half = min(WIDTH * error, 90.0) if known else 45.0
        steps = np.concatenate((np.linspace(-half, 0.0, left + 1), np.linspace(0, half, right + 1)))
        return value + np.delete(steps, left)
    # the standard error of the logarithm is that of the parameter over the parameter
    factor = exp(min(WIDTH * error / value, log(WIDEST))) if known else WITHOUT_ERROR
    table = path.problem.table
    if name == LENGTH:
        one = practical_factor(fit.model)
        lower, upper = (end / one for end in table.practical_bounds())
    else:
        lower, upper = table.box(name)
    unit = path.units.of_parameter(path.table[name])
    low = min(max(value / factor, lower * unit), value)
    high = max(min(value * factor, upper * unit), value)
    grid = np.concatenate(
        (np.geomspace(low, value, left + 1), np.geomspace(value, high, right + 1))
    )
    # geomspace rounds its ends
    grid[left] = value
    # drop repetitions of the estimate, all of one side if the box ends there
    other = np.abs(np.log(grid / value)) > SAME
    other[left] = True
    return grid[other]


def _walk(path, name, values):
    """Return log-likelihoods along values, moving away from the estimate."""
    j, result, spot, information = path.names.index(name), [], path.start, path.curvature
    for value in values:
        x = path.inward(name, value / path.units.of_parameter(path.table[name]))
        x = float(np.clip(x, path.lower[j], path.upper[j]))
        top, known = _top_at(path, j, x, spot, information)
        if top is not None:
            spot, information = top, known
            result.append(top.value)
        else:
            result.append(path.search(j, x, path.model(spot.point))[0])
    return result


def _top_at(path, j, x, spot, information):
    """Go to the maximum of the slice at x; return (spot, information), (None, None) on failure."""
    for _ in range(STEPS):
        if spot.point[j] == x:
            return path.settle(spot, information, j)
        to = float(np.clip(x, spot.point[j] - LONGEST, spot.point[j] + LONGEST))
        moved = path.step(spot, path.slice(spot, information, j), j, to, -np.inf)
        if moved is None:
            break
        spot, information = moved, corrected(information, spot, moved)
    return None, None
