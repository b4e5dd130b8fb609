"""The likelihood about an estimate: all that was estimated moves, in coordinates for profiles.

A profile holds one coordinate v; the others, ω, follow to the top of their slice. Where they stand
away from it the profile is read off as ℓ_p(v) ≈ ℓ + ½ s_ω'I_ωω⁻¹s_ω, and it goes on along the
tangent dω/dv = -I_ωω⁻¹I_ωv.
"""

from dataclasses import dataclass
from math import exp, inf, log, radians

import numpy as np

from ..covariance.matern import Matern, practical_range
from ..errors import NotPositiveDefinite
from .maximize import information_at
from .problem import Problem
from .progress import Monitor
from .space import Extent, Space
from .units import Units

SETTLED, COARSE = 1e-5, 1e-3
"""What ω may promise to gain where it has arrived: in FP64, and in formats in which ℓ scatters."""

STEPS, HALVINGS = 40, 8
"""Limits: of Newton steps, and of the halvings of each."""

LONGEST = 2.0
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
        self.scoring = getattr(self.problem.evaluator, "scoring", False)
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
        step *= min(1.0, LONGEST / max(np.abs(step).max(), 1e-300))
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
