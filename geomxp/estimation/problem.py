"""Maximise one likelihood: starts, search, a nugget of 0, Newton's method, and the outcome."""

from dataclasses import dataclass, replace
from functools import partial
from math import inf

import numpy as np

from ..covariance.base import Covariance
from ..errors import Ending, NotPositiveDefinite, Outcome
from ..likelihood.base import Evaluation, profile_variance, rescale_variance
from . import diagnose
from .parameters import LENGTH, NUGGET, SCALE
from .search import (
    INITIAL_STEP,
    NEAR,
    ascend,
    climb,
    information_at,
    maximize,
    of_unit_variance,
    scorer,
    searched,
)
from .search import starts as starting_models

AGAIN = 200
"""Evaluations of a second search, if the first did not converge."""

COARSE = 1e-3
"""Promised gain that is ignored if no step rises, where coarse formats make ℓ scatter."""

SMALL_NUGGET, NO_NUGGET = 1e-2, 1e-7
"""A falling nugget below this share of the variance is compared with 0: at first, and where no
model without a nugget exists."""


@dataclass(frozen=True)
class Solution:
    """Result of a search, in the units of the scaled problem.

    Parameters
    ----------
    model : Covariance
    evaluation : Evaluation
    outcome : Outcome
    free : tuple of str
        Parameters that were estimated and do not lie on a boundary.
    standard_errors : dict of str to (float or None)
    information : (k, k) ndarray or None
        Observed information in `ParameterTable.coordinates`, in the order of `free`.
    """

    model: Covariance
    evaluation: Evaluation
    outcome: Outcome
    free: tuple
    standard_errors: dict
    information: np.ndarray | None = None


class Problem:
    """A likelihood and the table of parameters over which to maximise it.

    Parameters
    ----------
    observations : Observations
        Scaled: lengths and values near 1.
    design : (n, p) ndarray
    reml : bool
    method : Likelihood
    table : ParameterTable
    monitor : Monitor
    tolerance : float
    choice : str
        One of `search.SEARCHES`.
    """

    def __init__(
        self, observations, design, reml, method, table, monitor, tolerance, choice="scoring"
    ):
        self.observations = observations
        self.design = design
        self.reml = reml
        self.method = method
        self.table = table
        self.monitor = monitor
        self.tolerance, self.choice = tolerance, choice
        self.evaluator = method.prepare(observations, design, reml)
        self.complaint, self.vanishing = None, SMALL_NUGGET
        # whether the observed information will be needed at the end of the search
        self.ends = False
        self.noisy = method.noisy

    def solve(self, start, starts, seed, evaluations, tasks):
        """Search from the starts, climb to the maximum, and diagnose it.

        Parameters
        ----------
        start : dict of str to float
            Values for some of the free parameters.
        starts : int
        seed : int
        evaluations : int
            Limit for each start.
        tasks : Tasks
            Runs the searches from the starts.

        Returns
        -------
        Solution
        """
        best = (-inf, None)
        limited = False
        candidates = starting_models(self, start, starts, seed)
        for value, reached, stopped in searched(self, candidates, evaluations, tasks):
            limited |= stopped
            best = max(best, (value, reached), key=lambda pair: pair[0])
        if best[1] is None:
            reason = str(self.complaint or "no model in the bounds has a likelihood")
            raise NotPositiveDefinite(reason)
        value, model = best
        table = self.table
        if not limited:
            value, model, table = self._at_zero_nugget(value, model)
        limited |= self.monitor.left == 0
        if limited:
            return self._stopped(table, model)
        noise = 0.0
        if self.noisy:
            noise = self._settle(model)
            value = self.evaluation_of(model).log_likelihood
        model, pinned, coordinates, summit = self._climb(table, model, value, noise)
        if summit.gain > self.tolerance:
            # a curved ridge can stop a search early, and a bound Newton's method: search again
            again, moved, _ = self.search(table, model, step=NEAR, evaluations=AGAIN)
            if again > max(value, summit.value):
                model, pinned, coordinates, summit = self._climb(table, moved, again, noise)
        outcome, flat = diagnose.diagnose(self, table, model, pinned, coordinates, summit)
        if noise > 0 and noise == self.tolerance:
            message = (
                f"{outcome.message} Rounding in these formats scatters the log-likelihood by "
                f"{noise:.1g}."
            ).strip()
            outcome = replace(outcome, message=message)
        errors, information = dict.fromkeys(model.parameters()), None
        if not flat and np.isfinite(summit.gain):
            top = coordinates.model(summit.point)
            errors |= coordinates.standard_errors(top, summit.information)
            information = summit.information
        names = tuple(coordinates.names)
        return Solution(model, self.evaluation_of(model), outcome, names, errors, information)

    def _stopped(self, table, model):
        """Return the best model when the limit on evaluations is reached."""
        outcome = Outcome(
            Ending.EVALUATION_LIMIT,
            f"stopped after {self.monitor.count} evaluations before convergence. Increase "
            "`evaluations`; with `checkpoint`, the same call resumes from here.",
        )
        errors = dict.fromkeys(model.parameters())
        return Solution(model, self.evaluation_of(model), outcome, table.free, errors)

    def _climb(self, table, model, value, noise=0.0):
        """Climb by Newton's method from a model of this value; parameters on bounds stay fixed."""
        pinned = table.on_bounds(model)
        coordinates = table.coordinates(model, [n for n in table.free if n not in pinned])

        def within(x):
            """Whether the model at a point lies within the bounds of what moves."""
            return not set(table.outside(coordinates.model(x))) - set(pinned)

        def score(x):
            """Return the score; NaN outside the bounds, where there may be no model."""
            if not within(x):
                return np.full(len(x), np.nan)
            return coordinates.score(x, self.evaluator, self.monitor)

        summit = climb(
            lambda x: self._value(coordinates.model(x)) if within(x) else -inf,
            score,
            lambda x: self._information(coordinates, x),
            coordinates.point(model),
            tolerance=1e-3 * self.tolerance,
            slack=noise,
            # by formula it is expensive, and changes as little
            renewed=3e-4 if self._curved(coordinates.names) else 2e-4,
        )
        if summit.value > value - noise:
            model = coordinates.model(summit.point)
        return model, pinned, coordinates, summit

    def _curved(self, names):
        """Whether the observed information of some parameters is computed by formula."""
        return not self.noisy and self.evaluator.has_curvature(names)

    def _information(self, coordinates, x):
        """Return the observed information at a point, by formula or by differences."""
        if self._curved(coordinates.names):
            return coordinates.information(x, self.evaluator, self.monitor)
        # wider differences average over the scatter of coarse formats
        difference = 2e-2 if self.noisy else 2e-4
        score = partial(coordinates.score, evaluator=self.evaluator, monitor=self.monitor)
        return information_at(score, x, difference)

    def _settle(self, model):
        """Freeze the formats at a model, and return the scatter of ℓ in them."""
        # formats chosen anew at each model would change the function being maximised
        self.evaluator.freeze(of_unit_variance(model) if self.table.profiled else model)
        noise = self._noise(model)
        self.tolerance = max(self.tolerance, noise)
        return noise

    def _noise(self, model):
        """Return the scatter of ℓ about a parabola between models that differ slightly.

        Their factors round differently in coarse formats. A bias that all of them share is not
        detected.
        """
        steps = np.linspace(-1e-2, 1e-2, 9)
        values = model.parameters()
        name = LENGTH if LENGTH in values else next(iter(values))
        near = [model.replace(**{name: values[name] * (1 + step)}) for step in steps]
        values = np.array([self.evaluation_of(other).log_likelihood for other in near])
        self.monitor.count += len(values)
        if not np.isfinite(values).all():
            return 0.0
        middle = values - values[4]
        rest = middle - np.polyval(np.polyfit(steps, middle, 2), steps)
        # six degrees of freedom are left; four deviations, since a search visits many models
        return 4.0 * float(np.sqrt(np.sum(rest**2) / 6))

    def search(self, table, model, *, step=INITIAL_STEP, evaluations=None):
        """Search from a model; return (log-likelihood, model or None, stopped by the limit).

        Fisher scoring comes first if the method supports it and the caller did not choose one of
        NLopt's searches; NLopt follows only if scoring does not converge.
        """
        best = {}
        left = self.monitor.left if evaluations is None else evaluations
        if self.choice == "scoring" and self.evaluator.scoring and table.free and left > 1:
            before = self.monitor.count
            value, model, converged = self._score(table, model, left)
            if converged:
                return value, model, False
            left = max(left - (self.monitor.count - before), 1)
            if np.isfinite(value):
                best.update(value=value, model=model)
        coordinates = table.search_coordinates()

        def function(x):
            value, full = self.evaluate(table, coordinates.model(x))
            if value > best.get("value", -inf):
                best.update(value=value, model=full)
            return value

        end = maximize(
            function,
            coordinates.point(model),
            coordinates.lower,
            coordinates.upper,
            scales=coordinates.scales,
            tolerance=self.tolerance,
            evaluations=left,
            step=step,
            slope=lambda x: self._slope(table, coordinates, x),
            search="bobyqa" if self.choice == "scoring" else self.choice,
        )
        return best.get("value", -inf), best.get("model"), end.limited

    def _slope(self, table, coordinates, x):
        """Return the gradient at a point of the search, at the best variance."""
        model = coordinates.model(x)
        if table.profiled:
            model = model.scaled(profile_variance(self.evaluator(model))[0])
        self.monitor.count += not self.evaluator.keeps(model)
        try:
            gradient = self.evaluator.gradient(model)
        except NotPositiveDefinite:
            return np.zeros(len(x))
        return coordinates.slope(model, gradient)

    def _score(self, table, model, evaluations):
        """Run Fisher scoring from a model; return (log-likelihood, model, converged)."""
        # from inside the bounds
        search = table.search_coordinates()
        start = search.model(search.point(model))
        if table.profiled:
            start = start.scaled(model.parameters()[SCALE])
        coordinates = table.coordinates(start)
        unbounded = NUGGET in table.free and NUGGET not in table.bounds
        # duplicate locations exclude a nugget of 0
        unbounded = unbounded and not self.observations.duplicate()
        best, converged = ascend(
            scorer(self, table, coordinates),
            lambda other: not table.outside(other) and table.valid(other),
            coordinates,
            start,
            tolerance=self.tolerance,
            evaluations=evaluations,
            enough=COARSE if self.noisy else 0.0,
            vanishing=self.vanishing if unbounded else None,
            curved=self.ends and self._curved(coordinates.names),
        )
        return best.value, best.model, converged

    def evaluate(self, table, model):
        """Return (log-likelihood, model), with the best variance if that is profiled out."""
        if not table.valid(model):
            return -inf, model
        evaluation = self.evaluator(model)
        value = evaluation.log_likelihood
        if not np.isfinite(value):
            self.complaint = evaluation.outcome.message
            value = -inf
        elif table.profiled:
            variance, value = profile_variance(evaluation)
            if not np.isfinite(value):
                return -inf, model
            model = model.scaled(variance)
        self.monitor.record(model, value)
        return value, model

    def evaluation_of(self, model):
        """Return the evaluation at a model in the same arithmetic as during the search."""
        if not self.table.profiled or not self.noisy:
            return self.evaluator(model)
        evaluation = self.evaluator(of_unit_variance(model))
        if not np.isfinite(evaluation.log_likelihood):
            return evaluation
        return rescale_variance(evaluation, model.parameters()[SCALE])

    def _value(self, model):
        """Return ℓ of a full model, and record it."""
        counted = not self.evaluator.keeps(model)
        value = self.evaluation_of(model).log_likelihood
        self.monitor.record(model, value, counted)
        return value

    def _at_zero_nugget(self, value, model):
        """Return the better of this maximum and the best model without a nugget.

        In logarithms a search approaches a nugget of 0 but never reaches it.
        """
        table = self.table
        small = NUGGET in table.free and model.nugget < 1e-2 * model.largest_variance
        if not small or table.bounds.get(NUGGET, (0.0, 0.0))[0] > 0:
            return value, model, table
        # the likelihood is flat in log τ² near 0, and the search may have passed a maximum:
        # search again from a visible nugget
        visible = model.replace(nugget=0.1 * model.largest_variance)
        again, moved, _ = self.search(table, visible)
        if again > value:
            value, model = again, moved
        without = table.holding(**{NUGGET: 0.0})
        bare_value, bare, _ = self.search(without, model.replace(nugget=0.0))
        rises = bare is not None and self._rises_from_zero(bare)
        if bare is None or rises:
            # a maximum in between may have been missed; where ℓ rises from 0 no nugget is too
            # small: 1e-9 of a smooth field's variance may change ℓ by many units
            self.vanishing = None if rises else NO_NUGGET
            again, moved, _ = self.search(table, model)
            if again > value:
                value, model = again, moved
        if bare is not None and bare_value >= value - self.tolerance:
            return bare_value, bare, without
        return value, model, table

    def _rises_from_zero(self, bare):
        """Whether ℓ increases with the nugget at a model without one."""
        self.monitor.count += not self.evaluator.keeps(bare)
        try:
            return self.evaluator.gradient(bare, (NUGGET,))[NUGGET] > 0
        except NotPositiveDefinite:
            return True
