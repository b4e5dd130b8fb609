"""Profile likelihoods: ℓ maximised over all other parameters while one or two are held.

A profile holds one coordinate v; the others, ω, follow to the maximum of their slice. Away from it
the profile is ℓ_p(v) ≈ ℓ + ½ s_ω'I_ωω⁻¹s_ω, and it continues along the tangent
dω/dv = -I_ωω⁻¹I_ωv. Contours of two parameters are profiles along rays from the estimate.
"""

import warnings
from dataclasses import dataclass
from itertools import product
from math import cos, exp, inf, isfinite, log, nan, pi, sin, sqrt

import numpy as np
import scipy

from ..covariance.base import MICROSCALE as OF_MICROSCALE
from ..errors import GeomxpWarning, InvalidInput, NotPositiveDefinite, check_whole
from .coordinates import Coordinates, practical_factor
from .names import (
    MICROSCALE,
    NOISE,
    NUGGET,
    RANGE,
    VARIANCE,
    titles,
)
from .parameters import ParameterTable, template
from .problem import Monitor, Problem
from .search import information_at
from .units import Units

SETTLED_GAIN, COARSE_SETTLED_GAIN = 1e-5, 1e-3
"""Promised gain at which ω has converged: in FP64, and in coarse formats."""

MOST_NEWTON_STEPS, MOST_NEWTON_HALVINGS, LONGEST_NEWTON_STEP = 40, 8, 2.0
"""Limits on Newton steps, on the halvings of each, and on its length in logarithms."""

SHAPE_BOUND_STEP = 1e-6
"""Step of the derivatives of a shape's bounds, in the other shape's coordinate."""

PROFILE_POINT_EVALUATIONS, PROFILE_SEARCH_TOLERANCE = 10_000, 1e-7
"""Limit on the evaluations of a search for one point of a profile, where Newton's method fails, and
its tolerance."""


def held_values(fit):
    """Return the values of the parameters that a fit did not estimate."""
    estimated = fit.free + fit.boundary
    return {n: value for n, value in fit.model.parameters().items() if n not in estimated}


def design_of(fit):
    """Return the design of a fit's trend at its observations, (n, p)."""
    seen = fit.observations
    return fit.trend.design(seen.locations, seen.covariates, seen.variable)


def parameter_of(fit, name):
    """Return a parameter of the estimate, with its unit and limits."""
    known = {p.name: p for p in fit.model.table}
    # a model without microscale variation or nugget covariances is one where they are 0
    zeros = {p.name: p for p in (OF_MICROSCALE, *fit.model.optional_for(fit.model.variables))}
    return (zeros | known)[name]


def limits_of(fit, parameter, **others):
    """Return the smallest and the largest value of a parameter for which the family is valid.

    `others` are values of other parameters in place of their estimates.
    """
    observations, model = fit.observations, fit.model.replace(**others)
    limits = model.limits(observations.metric, observations.dimensions)
    return limits.get(parameter.name, (parameter.lower, parameter.upper))


def problem_of(fit):
    """Return the problem that a fit solved, to be searched again: (problem, estimate, units).

    Problem and estimate are in scaled units, within the bounds of the fit.
    """
    values, design = fit.model.parameters(), design_of(fit)
    turned = getattr(fit.model, "anisotropy", None)
    units = Units.of(fit.observations, design, fit.model)
    scaled = units.scaled(fit.observations)
    table = ParameterTable(
        template(
            type(fit.model),
            turned and type(turned),
            fit.model.transform,
            microscale=MICROSCALE in values,
            variables=fit.model.variables,
            nugget_covariance=fit.model.nugget_covariance is not None,
            response=fit.model.response,
        ),
        units.inward(fit.model, held_values(fit)),
        units.inward(fit.model, fit.bounds),
        scaled,
        units.variance,
    )
    monitor = Monitor(PROFILE_POINT_EVALUATIONS)
    problem = Problem(
        scaled, design, fit.reml, fit.method, table, monitor, PROFILE_SEARCH_TOLERANCE
    )
    return problem, fit.model.replace(**units.inward(fit.model, values)), units


@dataclass(frozen=True)
class Spot:
    """ℓ and its score (k,) at a point (k,), with the information of Fisher scoring if available."""

    point: np.ndarray
    value: float
    score: np.ndarray
    information: np.ndarray | None = None


@dataclass(frozen=True)
class Slice:
    """The slice of one coordinate v at a spot, from its score and information."""

    # step of all coordinates to the maximum of the slice, 0 for v; the gain that it promises
    newton: np.ndarray
    gain: float
    # dω/dv along the profile, 1 for v
    tangent: np.ndarray
    # derivative of the profile in v, and minus its second one
    slope: float
    curvature: float


class Path(Coordinates):
    """ℓ and its score in the coordinates of profiles, around a fit's estimate.

    Logarithms; log(τ² + c) of the nugget with c near its standard error, so that 0 is an ordinary
    point; radians of an angle. The box of the coordinates is that of the fit. `held` names the
    parameters of the profile: a shape whose bounds depend on another one moves in proportion to
    their distance (`_Share`), unless both are held.
    """

    def __init__(self, fit, held=()):
        self.problem, model, self.units = problem_of(fit)
        estimated = fit.free + fit.boundary
        names = [name for name in model.parameters() if name in estimated]
        self.tolerance = COARSE_SETTLED_GAIN if self.problem.noisy else SETTLED_GAIN
        if self.problem.noisy or self.problem.moves:
            # formats or neighbours chosen anew at each model would change the function
            self.problem.freeze(model)
        self.scoring = self.problem.evaluator.scoring
        offset = self._offset(model, fit) if set(NOISE) & set(names) else 0.0
        self.share = None
        super().__init__(names, model, wrap=False, offset=offset)
        self.share = self._share(model, held)
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
            information = float(self.problem.evaluator.information(model, [NUGGET])[0, 0])
            error = 1 / np.sqrt(information) if information > 0 else None
        # without information about the nugget: a visible one
        size = model.largest_variance
        return float(np.clip(error or 1e-2 * size, 1e-8 * size, size + model.nugget))

    def _curvature(self, model, fit):
        """Return the information at the estimate; the observed one if it is known."""
        if fit.information is not None and not fit.boundary:
            order = [fit.free.index(name) for name in self.names]
            # from logarithms to these coordinates, for the noise
            values = model.parameters()
            change = [1 + self.offset / values[n] if n in NOISE else 1.0 for n in self.names]
            turn = np.array(change)[:, None] * self._turn(model)
            return turn.T @ fit.information[np.ix_(order, order)] @ turn
        if self.start.information is not None:
            return self.start.information
        return information_at(lambda x: self.at(x).score, self.start.point, 1e-3)

    def _box(self, name, model):
        """Return the smallest and the largest coordinate of a parameter."""
        table, value = self.problem.table, model.parameters()[name]
        if self.share is not None and name == self.share.name:
            return 0.0, self.share.width
        if self.table[name].unit == "degrees" and name not in table.bounds:
            return -inf, inf
        lower, upper = self.limits(name)
        if name in NOISE:
            lower = table.bounds.get(name, (0.0, 0.0))[0]
        return self.inward(name, min(lower, value)), self.inward(name, max(upper, value))

    def limits(self, name):
        """Return the smallest and the largest value of a parameter in a search, scaled."""
        table = self.problem.table
        if name == RANGE and name not in table.bounds:
            factor = practical_factor(self.origin)
            return tuple(end / factor for end in table.practical_bounds())
        return table.box(name)

    def _share(self, model, held):
        """Return the shape that moves in proportion to the distance of its bounds, or None."""
        table = self.problem.table
        shapes = [name for name in table.shapes if name in self.names]
        if model.variables > 1 or len(shapes) != 2 or set(shapes) <= set(held):
            return None
        for name, other in (shapes, shapes[::-1]):
            limits = [
                table.limits_at(model.replace(**{other: end}))[name] for end in table.box(other)
            ]
            if limits[0] != limits[1]:
                return _Share(self, model, name, other, name in held)
        return None

    def point(self, model):
        """Return the point of a model, (k,)."""
        x = super().point(model)
        return x if self.share is None else self.share.inward(model, x)

    def model(self, x):
        """Return the model at a point."""
        model = super().model(x)
        return model if self.share is None else self.share.outward(model, x)

    def _turn(self, model):
        """Return the derivatives of the coordinates without `share` by those with it, (k, k)."""
        return np.eye(len(self.names)) if self.share is None else self.share.turn(model)

    def in_coordinates(self, model, gradient, information=None):
        """Return the score ∂ℓ/∂x, and the information, from those in the parameters."""
        score, information = super().in_coordinates(model, gradient, information)
        turn = self._turn(model)
        return turn.T @ score, None if information is None else turn.T @ information @ turn

    def at(self, x):
        """Return the spot at a point; of value -inf where Σ has no Cholesky factor."""
        model, evaluator = self.model(x), self.problem.evaluator
        self.problem.monitor.count += 1
        information = None
        if not self.problem.table.valid(model):
            return Spot(x, -inf, np.full(len(x), np.nan))
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
        if more > REPORTED_RISE_TOLERANCES * self.tolerance:
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
        return Slice(newton, gain, tangent, slope, curvature)

    def step(self, spot, cut, j, to, least):
        """Move v to a value and ω to the top of its slice, in halved steps while ℓ ≤ `least`."""
        step = cut.newton + cut.tangent * (to - spot.point[j])
        step[j] = 0.0
        step *= min(1.0, LONGEST_NEWTON_STEP / max(np.abs(step).max(), 1e-300))
        step[j] = to - spot.point[j]
        for k in range(MOST_NEWTON_HALVINGS):
            x = np.clip(spot.point + step / 2**k, self.lower, self.upper)
            if k == 0:
                # without rounding
                x[j] = to
            moved = self.at(x)
            if moved.value > least:
                return moved
        return None

    def settle(self, spot, information, j):
        """Go to the maximum of the slice; return (spot, information), or None where that fails."""
        for _ in range(MOST_NEWTON_STEPS):
            cut = self.slice(spot, information, j)
            if cut.gain < self.tolerance:
                return spot, information
            moved = self.step(spot, cut, j, spot.point[j], spot.value)
            if moved is None:
                return None
            spot, information = moved, corrected(information, spot, moved)
        return None

    def search(self, j, x, start):
        """Maximise ℓ with coordinate j held at x by searches; return (value, model or None)."""
        name = self.names[j]
        held = {name: self.outward(name, x)}
        return self.maximum_holding(held, start.replace(**held))

    def maximum_holding(self, held, start):
        """Return the largest ℓ with some parameters held, and its model or None."""
        table = self.problem.whole.holding(**held)
        noise, values, ends = [name for name in NOISE if name in table.free], start.parameters(), []
        smallest = 1e-3 * start.largest_variance
        # a search moves in logarithms and never reaches 0
        choices = [
            (max(values[name], smallest), *[0.0] * (table.bounds.get(name, (0.0, 0.0))[0] == 0))
            for name in noise
        ]
        for choice in product(*choices):
            given = dict(zip(noise, choice, strict=True))
            zeros = {name: 0.0 for name, value in given.items() if value == 0}
            some = table.holding(**zeros) if zeros else table
            ends.append(self.problem.search(some, start.replace(**given), step=0.1)[:2])
        return max(ends, key=lambda end: end[0])


class _Share:
    """A shape's coordinate in proportion to the distance of its bounds, which another one moves.

    Of a shape θ with a lower limit that depends on the shape φ, such as μ ≥ (d+1)/2 + κ of
    Wendland's family, the coordinate is x = w (f(θ) - f(least)) / (f(most) - f(least)), where f is
    the usual coordinate and w the distance of the bounds at the estimate: the box of x does not
    depend on φ. With `reverse` θ is held, and φ moves between its least value and the one for which
    θ is at its limit.
    """

    def __init__(self, path, model, bounded, other, reverse):
        self.path, self.bounded, self.other = path, bounded, other
        self.name, self.by = (other, bounded) if reverse else (bounded, other)
        self.k, self.of = path.names.index(self.name), path.names.index(self.by)
        least, most = self._ends(model)
        self.width = most - least

    def _bounds(self, model):
        """Return the bounds of the shape for the value that the other one has in a model."""
        table, values = self.path.problem.table, model.parameters()
        least, most = table.box(self.name)
        limit = table.limits_at(model)[self.bounded][0]
        if self.name == self.bounded:
            return max(least, limit), most
        # the limit grows as the other shape does
        return least, max(min(most, values[self.name] + values[self.bounded] - limit), least)

    def _ends(self, model):
        """Return the bounds as usual coordinates, some distance apart."""
        least, most = (Coordinates.inward(self.path, self.name, end) for end in self._bounds(model))
        return least, max(most, least + 1e-9)

    def inward(self, model, x):
        """Return the point with the proportional coordinate, from the usual one."""
        least, most = self._ends(model)
        x[self.k] = min(max((x[self.k] - least) / (most - least), 0.0), 1.0) * self.width
        return x

    def outward(self, model, x):
        """Return the model at a point, from one with the values of all other coordinates."""
        (least, most), bounds = self._ends(model), self._bounds(model)
        value = self.path.outward(self.name, least + x[self.k] / self.width * (most - least))
        return model.replace(**{self.name: min(max(value, bounds[0]), bounds[1])})

    def _at(self, model, step):
        """Return the model a step of the other shape's coordinate further."""
        x = self.path.inward(self.by, model.parameters()[self.by]) + step
        return model.replace(**{self.by: self.path.outward(self.by, x)})

    def turn(self, model):
        """Return the derivatives of the usual coordinates by these, (k, k)."""
        turn, (least, most) = np.eye(len(self.path.names)), self._ends(model)
        x = self.path.inward(self.name, model.parameters()[self.name])
        place = (x - least) / (most - least)
        low, high = (
            np.array(self._ends(self._at(model, step)))
            for step in (-SHAPE_BOUND_STEP, SHAPE_BOUND_STEP)
        )
        turn[self.k, self.k] = (most - least) / self.width
        turn[self.k, self.of] = (high - low) @ (1 - place, place) / (2 * SHAPE_BOUND_STEP)
        return turn


def _uphill(information):
    """Return the matrix with its eigenvalues made positive and bounded away from 0."""
    values, vectors = np.linalg.eigh(information)
    values = np.maximum(np.abs(values), 1e-6 * max(np.abs(values).max(), 1e-6))
    return (vectors * values) @ vectors.T


def _top_of_parabola(score, information, least, most):
    """Return the step to the maximum of s'd - ½ d'I d within a box, for a positive definite I."""
    step = np.linalg.solve(information, score)
    if ((least <= step) & (step <= most)).all():
        return step
    # with I = U'U it is the least-squares solution of U d = U'⁻¹s
    upper = scipy.linalg.cholesky(information)
    right = scipy.linalg.solve_triangular(upper, score, trans="T")
    # the box must be open
    box = least, np.maximum(most, least + 1e-12)
    return np.clip(scipy.optimize.lsq_linear(upper, right, box, method="bvls").x, least, most)


def corrected(information, before, after):
    """Return the information (or the last one) corrected by the change of the score (SR1)."""
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


WAITING_GAIN_SHARE, FIRST_STEP_LIMIT = 0.2, 1.0
"""Promised gain of ω, as a share of the drop, above which v waits; first limit on the step of v,
which doubles while v moves outward."""

NARROW_BRACKET_WIDTH = 1e-3
"""Width of the bracket, in logarithms, below which a Newton step outside it resets it."""

VERIFIED_WALK_STEPS = 14
"""Steps after which the result of a walk, which needs about eight, is verified by a search."""

DOUBTED_TOLERANCES, REPORTED_RISE_TOLERANCES = 10.0, 1e3
"""In units of the tolerance: gain promised by the scoring information above which a corrected
information is discarded, and excess over the maximum above which a point is reported."""


def profile_intervals(fit, names, drop):
    """Return where the profile log-likelihood lies less than `drop` below the maximum, by name.

    The ends are in the user's units. An end where ℓ_p never falls so far is 0, infinity, a bound
    of the fit, the largest value that the parameter can have, or 90 degrees from an angle.
    """
    if not names:
        return {}
    usual, result = Path(fit), {}
    paths = [usual]
    for name in names:
        path = usual
        if usual.share is not None and usual.share.name == name:
            path = Path(fit, (name,))
            paths.append(path)
        coordinates = [end_of(path, path.names.index(name), sign, drop) for sign in (-1, 1)]
        if any(x is not None and x != x for x in coordinates):
            warnings.warn(
                f"the profile interval of the {titles(fit.model, fit.observations)[name]} was not "
                f"found within {PROFILE_POINT_EVALUATIONS:,} evaluations: the missing end is NaN.",
                GeomxpWarning,
                stacklevel=3,
            )
        result[name] = tuple(
            _open_end(path, fit, name, sign) if x is None else path.in_user_units(name, x)
            for sign, x in zip((-1, 1), coordinates, strict=True)
        )
    max(paths, key=lambda path: path.best.value).warn_of_better("profile intervals", 3)
    return result


def _open_end(path, fit, name, sign):
    """Return the end of an interval that extends beyond the box of the search."""
    parameter, k = parameter_of(fit, name), 0 if sign < 0 else 1
    if name in fit.bounds:
        return fit.bounds[name][k]
    if parameter.unit == "degrees":
        return parameter.value + 90.0 * sign
    limit = limits_of(fit, parameter)[k]
    if path.share is not None and name == path.share.by:
        # for any value of the other shape, which moves
        ends = path.problem.table.box(path.share.name)
        limits = [limits_of(fit, parameter, **{path.share.name: end})[k] for end in ends]
        limit = min(limits) if sign < 0 else max(limits)
    return limit


def end_of(path, j, sign, drop):
    """Return the coordinate to one side where the profile has fallen by `drop`, or None.

    NaN if `PROFILE_POINT_EVALUATIONS` do not suffice.
    """
    monitor = path.problem.monitor
    # each end has as many: it does not depend on which others are asked for
    monitor.limit = monitor.count + PROFILE_POINT_EVALUATIONS
    start, top = path.start.point[j], path.start.value
    bracket = _Bracket(_edge(path, j, sign), drop)
    spot, information = path.start, path.curvature
    for count in range(MOST_NEWTON_STEPS):
        cut = path.slice(spot, information, j)
        if cut.gain < path.tolerance and spot.information is not None:
            fresh = path.slice(spot, spot.information, j)
            if fresh.gain > DOUBTED_TOLERANCES * path.tolerance:
                # corrections along a curved path may add spurious curvature
                cut, information = fresh, spot.information
        away, fall = sign * (spot.point[j] - start), top - spot.value - cut.gain
        settled = cut.gain < path.tolerance
        if settled and abs(fall - drop) < path.tolerance:
            if _runs_on(path, spot, j, sign):
                return None
            better = _elsewhere(path, spot, j)
            if better is not None:
                (spot, information), bracket = better, _Bracket(bracket.edge, drop)
                continue
            if count > VERIFIED_WALK_STEPS:
                # from the estimate: ω may have a better maximum than the walk's
                value, _ = path.search(j, spot.point[j], path.model(path.start.point))
                if value > spot.value + DOUBTED_TOLERANCES * path.tolerance:
                    break
            return spot.point[j]
        if settled and away >= bracket.edge and fall < drop:
            return None
        bracket.learn(away, fall, cut.gain)
        waits = cut.gain > WAITING_GAIN_SHARE * drop or abs(fall - drop) < path.tolerance
        move = 0.0 if waits else bracket.move(away, fall, sign * cut.slope, cut.curvature)
        least = spot.value if move == 0 else top - 3 * drop - 1
        moved = path.step(spot, cut, j, spot.point[j] + sign * move, least)
        if moved is None:
            break
        information = corrected(information, spot, moved)
        spot = moved
    return end_by_search(path, j, sign, drop)


def _elsewhere(path, spot, j):
    """Return (spot, information) of a higher maximum of the slice, or None.

    Two shapes often give two maxima: one near either bound of the shape that moves with the other.
    """
    if path.share is None:
        return None
    model, k, tops = path.model(spot.point), path.share.k, []
    for end in (0.0, path.share.width):
        if abs(spot.point[k] - end) < 0.1 * path.share.width:
            continue
        moved = path.model(np.where(np.arange(len(spot.point)) == k, end, spot.point))
        if path.names[j] != RANGE and RANGE in path.names:
            same = model.practical_range() / moved.practical_range()
            moved = moved.replace(**{RANGE: moved.parameters()[RANGE] * same})
        x = np.clip(path.point(moved), path.lower, path.upper)
        x[j] = spot.point[j]
        start = path.at(x)
        top = None
        if start.information is not None:
            top = path.settle(start, start.information, j)
        if top is None:
            found = path.search(j, spot.point[j], path.model(x))[1]
            if found is not None:
                there = path.at(np.clip(path.point(found), path.lower, path.upper))
                top = there, there.information
        if top is not None and top[1] is not None:
            tops.append(top)
    best = max(tops, key=lambda top: top[0].value, default=None)
    higher = best is not None and best[0].value > spot.value + DOUBTED_TOLERANCES * path.tolerance
    return best if higher else None


def _runs_on(path, spot, j, sign):
    """Whether the end exists only because another parameter stops at the end of its box.

    As the range goes to infinity so does the variance; as a shape does, the range goes to 0.
    """
    table, side = path.problem.table, (path.names[j], sign)
    others = {(VARIANCE, 1): [RANGE], (RANGE, -1): table.shapes}.get(side, [])
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
class _Bracket:
    """Bracket of the distance of an end from the estimate, within the edge of the box."""

    edge: float
    drop: float
    inner: float = 0.0
    outer: float = inf
    longest: float = FIRST_STEP_LIMIT

    def learn(self, away, fall, gain):
        """Update the bracket with the profile at a distance, if it is accurate enough."""
        if gain > 0.1 * abs(fall - self.drop):
            return
        if fall < self.drop:
            self.inner = max(self.inner, away) if away < self.outer else self.inner
        else:
            self.outer = min(self.outer, away) if away > self.inner else self.outer

    def move(self, away, fall, slope, curvature):
        """Return the step from a distance, given the profile's fall and slope there."""
        rest = self.drop - fall
        if fall > 0.05 * self.drop and slope < 0:
            # Newton's method on √(2 fall), whose derivative is -slope/√(2 fall)
            root = sqrt(2 * fall)
            step = (sqrt(2 * self.drop) - root) * root / -slope
        elif curvature > 0:
            # -slope s + ½ curvature s² = rest
            step = (slope + sqrt(max(slope**2 + 2 * curvature * rest, 0.0))) / curvature
        else:
            step = self.longest
        if not self.inner < away + step < self.outer:
            if self.outer - self.inner < NARROW_BRACKET_WIDTH:
                # ω has two maxima, and the bracket belongs to the lower one
                self.inner, self.outer = (away, inf) if step > 0 else (0.0, away)
            else:
                middle = (self.inner + min(self.outer, self.inner + 2 * self.longest)) / 2
                step = middle - away
        if self.outer == inf and step > self.longest:
            step, self.longest = self.longest, 2 * self.longest
        return min(step, self.edge + 1e-12 - away)


def end_by_search(path, j, sign, drop):
    """As `end_of`, by bracketing and Brent's method on searches for the profile."""
    start, top = path.start.point[j], path.start.value
    edge, origin = _edge(path, j, sign), path.model(path.start.point)
    models = {0.0: origin}

    # the result of a search depends on its start: keep the first one at each distance
    known = {0.0: -drop}

    def excess(away):
        if away not in known:
            # from the ends on either side, or the estimate: ω may have two maxima
            below = max((x for x in models if x < away), default=0.0)
            above = min((x for x in models if x > away), default=0.0)
            starts = dict.fromkeys((below, above))
            ends = [path.search(j, start + sign * away, models[x]) for x in starts]
            value, model = max(ends, key=lambda end: end[0])
            if model is not None:
                models[away] = model
            elif not path.problem.monitor.left:
                raise _Spent
            # a profile of -inf counts as fallen
            known[away] = min(top - value, 1e3 * drop) - drop
        return known[away]

    try:
        return _crossed(path, j, sign, drop, edge, excess)
    except _Spent:
        return nan


class _Spent(Exception):
    """The limit on evaluations is reached."""


def _crossed(path, j, sign, drop, edge, excess):
    """Return the coordinate where a function of the distance crosses 0, or None."""
    start = path.start.point[j]
    cut = path.slice(path.start, path.curvature, j)
    inner = 0.0
    outer = min(
        sqrt(2 * drop / cut.curvature) if cut.curvature > 0 else FIRST_STEP_LIMIT,
        FIRST_STEP_LIMIT,
        edge,
    )
    while excess(outer) < 0:
        if outer >= edge:
            return None
        inner, outer = outer, min(2 * outer, edge)
    return start + sign * scipy.optimize.brentq(excess, inner, outer, xtol=1e-7, rtol=1e-7)


# The profile of one parameter on a grid

PROFILE_WIDTH_ERRORS = 2.5
"""Half-width of a profile, in standard errors of the parameter's logarithm."""

UNKNOWN_ERROR_FACTOR, WIDEST_PROFILE_FACTOR = 4.0, 20.0
"""Half-width of a profile as a factor: without a standard error, and at most."""

LONGEST_PROFILE_STEP = 1.0
"""Longest step between values, in logarithms."""

EQUAL_VALUES_DISTANCE = 1e-9
"""Distance in logarithms below which values are equal."""


def profile_likelihood(fit, name, *, points=9):
    """Return the profile log-likelihood ℓ_p(v) = max {ℓ(θ) : θ_name = v} on a grid of values.

    The grid has up to `points` values, the estimate among them, equally far apart in logarithms on
    either side of it (in degrees for an angle). The result is (values, log-likelihoods), both (k,);
    values are increasing, in the unit of the parameter; those without a likelihood and those
    outside the box of the search are left out.
    """
    # a grid of logarithms has no 0
    values = fit.model.parameters()
    known = fit.free + tuple(each for each in fit.boundary if values[each] > 0)
    if name not in known:
        free = ", ".join(known) or "none"
        raise InvalidInput(f"`name` must be an estimated parameter: {free}. Got {name!r}.")
    check_whole("points", points, 3)
    path = Path(fit, (name,))
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
        half = min(PROFILE_WIDTH_ERRORS * error, 90.0) if known else 45.0
        steps = np.concatenate((np.linspace(-half, 0.0, left + 1), np.linspace(0, half, right + 1)))
        return value + np.delete(steps, left)
    if path.table[name].transform == "identity":
        unit = path.units.of_parameter(path.table[name])
        lower, upper = (end * unit for end in path.limits(name))
        half = PROFILE_WIDTH_ERRORS * error if known else (upper - lower) / 4
        ends = max(value - half, lower), min(value + half, upper)
        steps = np.linspace(ends[0], value, left + 1), np.linspace(value, ends[1], right + 1)
        return np.unique(np.concatenate(steps))
    # the standard error of the logarithm is that of the parameter over the parameter
    factor = (
        exp(min(PROFILE_WIDTH_ERRORS * error / value, log(WIDEST_PROFILE_FACTOR)))
        if known
        else UNKNOWN_ERROR_FACTOR
    )
    lower, upper = path.limits(name)
    unit = path.units.of_parameter(path.table[name])
    low = min(max(value / factor, lower * unit), value)
    high = max(min(value * factor, upper * unit), value)
    grid = np.concatenate(
        (np.geomspace(low, value, left + 1), np.geomspace(value, high, right + 1))
    )
    # geomspace rounds its ends
    grid[left] = value
    # drop repetitions of the estimate, all of one side if the box ends there
    other = np.abs(np.log(grid / value)) > EQUAL_VALUES_DISTANCE
    other[left] = True
    return grid[other]


def _walk(path, name, values):
    """Return log-likelihoods along values, moving away from the estimate."""
    j, result, spot, information = path.names.index(name), [], path.start, path.curvature
    for value in values:
        x = path.inward(name, value / path.units.of_parameter(path.table[name]))
        x = float(np.clip(x, path.lower[j], path.upper[j]))
        top = _top_at(path, j, x, spot, information)
        if top is None:
            result.append(path.search(j, x, path.model(spot.point))[0])
        else:
            spot, information = top
            result.append(spot.value)
    return result


def _top_at(path, j, x, spot, information):
    """Go to the maximum of the slice at x; return (spot, information), or None if that fails."""
    for _ in range(MOST_NEWTON_STEPS):
        if spot.point[j] == x:
            return path.settle(spot, information, j)
        to = float(
            np.clip(x, spot.point[j] - LONGEST_PROFILE_STEP, spot.point[j] + LONGEST_PROFILE_STEP)
        )
        moved = path.step(spot, path.slice(spot, information, j), j, to, -np.inf)
        if moved is None:
            break
        spot, information = moved, corrected(information, spot, moved)
    return None


# Rays in the plane of two parameters

MOST_RAY_POINTS = 20
"""Largest number of points of a ray; a quadratic likelihood takes as many as there are heights."""

KNOWN_HEIGHT_SHARE, ENCLOSING_GAP, HEIGHT_MARGIN, LEAST_RAY_SLOPE = 0.95, 0.02, 1.02, 0.2
"""A height is known if a point reaches this share of it, or if two points this near enclose it; the
largest height needs a point beyond it, aimed at by the margin. Smallest slope to extrapolate."""


@dataclass(frozen=True, eq=False)
class Point:
    """The profile at a distance: its height √(2(ℓ_max - ℓ_p)), and where ω has its maximum."""

    away: float
    height: float
    spot: Spot
    information: np.ndarray


class Ray(Path):
    """A path in which two parameters (`held`) become the distance along a direction, (2,)."""

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
        self.start = self._turned(path.start, np.concatenate(([0.0], path.start.point[others])))
        self.curvature = self.turn.T @ path.curvature @ self.turn

    def at(self, x):
        """Return the spot at (r, others)."""
        return self._turned(self.path.at(self.origin + self.turn @ x), x)

    def _turned(self, spot, x):
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

    √(2 fall) is almost proportional to the distance, so that a few points suffice.
    """
    points = [Point(0.0, 0.0, ray.start, ray.curvature)]
    for _ in range(MOST_RAY_POINTS):
        following = _next(points, heights, ray.edge)
        if following is None:
            break
        r, before = following
        spot, information = _top_on(ray, r, before.spot, before.information)
        # no likelihood, or no progress
        if spot is None or spot.value == -inf or spot.point[0] <= before.away:
            break
        height = sqrt(max(2 * (ray.start.value - spot.value), 0.0))
        place = points.index(before) + 1
        points.insert(place, Point(float(spot.point[0]), height, spot, information))
    return _between(points, np.array(heights), ray.edge)


def _next(points, heights, edge):
    """Return the next distance and the point before it; None if all heights are known."""
    last = points[-1]
    for height in heights:
        above = next((k for k, point in enumerate(points) if point.height >= height), None)
        if above is not None:
            low, high = points[above - 1], points[above]
            nearest = min(height - low.height, high.height - height)
            unknown = nearest > (1 - KNOWN_HEIGHT_SHARE) * height
            if unknown and high.away > (1 + ENCLOSING_GAP) * low.away:
                return _inside(points[:above], high, height), low
        elif last.height < KNOWN_HEIGHT_SHARE * height or height == heights[-1]:
            if last.away >= edge:
                return None
            # a little beyond, so that two points enclose the height
            rest = HEIGHT_MARGIN * height - last.height
            return min(last.away + rest / _slope(points), edge), last
    return None


def _slope(points):
    """Return the slope of the height between the last two points."""
    if len(points) == 1:
        return 1.0
    before, last = points[-2:]
    return max((last.height - before.height) / (last.away - before.away), LEAST_RAY_SLOPE)


def _inside(below, high, height):
    """Return a distance between two points, from the chord and from extrapolation."""
    low, width = below[-1], high.away - below[-1].away
    chord = (height - low.height) / (high.height - low.height)
    straight = (height - low.height) / _slope(below) / width
    return low.away + width * float(np.clip((chord + min(straight, 1.0)) / 2, 0.1, 0.9))


def _top_on(ray, r, spot, information):
    """Go to the maximum of the slice at a distance; the spot is None if there is no likelihood."""
    moved = ray.step(spot, ray.slice(spot, information, 0), 0, r, -inf)
    if moved is not None:
        top = ray.settle(moved, corrected(information, spot, moved), 0)
        if top is not None:
            return top
    return ray.searched(r, spot), information


def _between(points, heights, edge):
    """Return distances at heights between points, by monotone interpolation.

    Heights not reached at the edge give -edge, heights beyond a failure NaN.
    """
    from scipy.interpolate import PchipInterpolator

    away, known = np.array([(point.away, point.height) for point in points]).T
    # if the profile has a second maximum, the outermost crossing counts
    later = np.append(np.minimum.accumulate(known[::-1])[::-1][1:], inf)
    rising = known < later
    lengths = np.full(len(heights), -edge if away[-1] >= edge else np.nan)
    reached = heights <= known[-1]
    if rising.sum() > 1:
        lengths[reached] = PchipInterpolator(known[rising], away[rising])(heights[reached])
    return lengths


# Contours

CONTOUR_LEVELS = (0.5, 0.9, 0.95)

NEIGHBOUR_RAYS_RATIO, RAY_ROUNDS, CURVE_POINTS_PER_RAY = 1.4, 3, 10
"""Factor between lengths of neighbouring rays above which a ray is inserted; number of rounds, the
first rays included; points of a curve for each of the first rays."""

LEAST_CONTOUR_EIGENVALUE = 1e-6
"""Smallest eigenvalue of the information, relative to the largest."""


@dataclass(frozen=True)
class Contours:
    """Contours of the profile log-likelihood: closed curves, (levels, points, 2), in user's units.

    The contour of a probability (level) lies ½χ²₂(level) = -log(1 - level) below the maximum. If
    ℓ_p does not fall so far somewhere, `open` is true and the curve follows the bounds of the fit,
    a nugget of 0, or the limits of the search; NaN if there is no likelihood.
    """

    names: tuple
    levels: tuple
    curves: np.ndarray
    open: tuple


def profile_contours(fit, first, second, *, levels=CONTOUR_LEVELS, rays=24):
    """Return contours of the profile log-likelihood of two parameters of `fit.free`.

    ℓ_p(v, w) = max {ℓ(θ) : θ_first = v, θ_second = w}; inside the contour of level q it is less
    than ½χ²₂(q) below the maximum. `rays` is the smallest number of directions; a ray costs about
    eight gradients of ℓ.
    """
    names, levels = _checked(fit, first, second, levels, rays)
    path = Path(fit, names)
    held = [path.names.index(name) for name in names]
    spread = _spread(path.curvature, held)
    heights = [sqrt(-2 * log(1 - level)) for level in levels]
    by_angle, angles = {}, 2 * pi * np.arange(rays) / rays
    for _ in range(RAY_ROUNDS):
        for angle in angles.tolist():
            ray = Ray(path, held, spread @ (cos(angle), sin(angle)))
            by_angle[angle] = lengths_of(ray, heights)
        # between neighbouring rays with unlike lengths
        turn = np.array([*sorted(by_angle), 2 * pi])
        lengths = np.array([by_angle[angle % (2 * pi)] for angle in turn.tolist()])
        sizes = np.log(np.maximum(np.abs(lengths), 1e-12))
        unlike = (np.abs(np.diff(sizes, axis=0)) > log(NEIGHBOUR_RAYS_RATIO)).any(axis=1)
        angles = (turn[:-1] + np.diff(turn) / 2)[unlike]
    fine = np.linspace(0.0, 2 * pi, CURVE_POINTS_PER_RAY * rays + 1)
    curves = [_curve(path, held, spread, fine, _radii(turn, column, fine)) for column in lengths.T]
    path.warn_of_better("contours", 2)
    return Contours(names, levels, np.array(curves), tuple((~(lengths > 0)).any(axis=0).tolist()))


def wald_ellipse(fit, first, second, level=0.95, points=241):
    """Return the Wald ellipse of two parameters of `fit.free`, (points, 2), closed.

    (log θ - log θ̂)'V⁻¹(log θ - log θ̂) = χ²₂(level) with the covariance V of the two logarithms (of
    an angle itself).
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
    values = np.maximum(np.abs(values), LEAST_CONTOUR_EIGENVALUE * np.abs(values).max())
    return np.linalg.cholesky(((vectors / values) @ vectors.T)[np.ix_(held, held)])


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
    >>> fine = turn + 0.1
    >>> radii = _radii(turn, 1 / np.hypot(np.cos(turn) / 3, np.sin(turn)), fine)
    >>> bool(np.allclose(1 / radii**2, np.cos(fine) ** 2 / 9 + np.sin(fine) ** 2, atol=1e-3))
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
            raise InvalidInput(f"contours need two estimated parameters: {free}. Got {name!r}.")
    if first == second:
        raise InvalidInput(f"contours need two different parameters. Got {first!r} twice.")
    levels = tuple(np.atleast_1d(levels).tolist())
    if not levels or not all(isinstance(q, (int, float)) and 0 < q < 1 for q in levels):
        raise InvalidInput(f"`levels` must lie between 0 and 1. Got {levels!r}.")
    check_whole("rays", rays, 3)
    return (first, second), tuple(sorted(levels))
