"""One search for a maximum: starts, BOBYQA, the nugget's boundary, Newton, and the verdict."""

from dataclasses import dataclass, replace
from functools import partial
from math import inf

import numpy as np

from ..covariance.matern import Matern
from ..errors import Ending, NotPositiveDefinite, Outcome
from ..estimation import diagnose
from ..estimation import search as scoring
from ..likelihood.base import Evaluation, profile_variance, rescale_variance
from .parameters import PARAMETER_NAMES, Natural
from .search import INITIAL_STEP, NEAR, climb, information_at, maximize, searched
from .search import starts as starting_models

AGAIN = 200
"""Evaluations of a second search, where the first did not come to a maximum."""

COARSE = 1e-3
"""Gain that is given up where no step rises, for a Σ factored in formats that make ℓ scatter."""

SMALL_NUGGET, NO_NUGGET = 1e-2, 1e-7
"""A nugget of so little of the variance, and falling, is compared with none: at first, and where
there is no model without one."""


@dataclass(frozen=True)
class Found:
    """What a search brought, in the units of the scaled problem.

    Parameters
    ----------
    model : Matern
    evaluation : Evaluation
    outcome : Outcome
    free : tuple of str
        Parameters that were estimated and do not lie on a boundary.
    standard_errors : dict of str to (float or None)
    information : (k, k) ndarray or None
        Observed information in the coordinates of `Natural`, in the order of `free`.
    """

    model: Matern
    evaluation: Evaluation
    outcome: Outcome
    free: tuple
    standard_errors: dict
    information: np.ndarray | None = None


class Problem:
    """A likelihood to be maximised over a space of models.

    Parameters
    ----------
    observations : Observations
        Lengths and values near 1.
    design : (n, p) ndarray
    reml : bool
    method : likelihood
    space : Space
    monitor : Monitor
    tolerance : float
    choice : str
        One of `maximize.SEARCHES`.
    """

    def __init__(
        self, observations, design, reml, method, space, monitor, tolerance, choice="scoring"
    ):
        self.observations = observations
        self.design = design
        self.reml = reml
        self.method = method
        self.space = space
        self.monitor = monitor
        self.tolerance, self.choice = tolerance, choice
        self.evaluator = method.prepare(observations, design, reml)
        self.complaint, self.vanishing = None, SMALL_NUGGET
        # whether a search ends in an estimate, of which the information will be asked
        self.ends = False
        self.noisy = method.noisy

    def solve(self, start, starts, seed, evaluations, tasks):
        """Search, climb, judge.

        Parameters
        ----------
        start : dict of str to float
            Values for some of the free parameters.
        starts : int
        seed : int
        evaluations : int
            Limit for each start.
        tasks : Tasks
            Where the searches from the starts take place.

        Returns
        -------
        Found
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
        space = self.space
        if not limited:
            value, model, space = self._at_zero_nugget(value, model)
        limited |= self.monitor.left == 0
        if limited:
            return self._stopped(space, model)
        noise = 0.0
        if self.noisy:
            noise = self._settle(model)
            value = self.evaluation_of(model).log_likelihood
        model, pinned, natural, summit = self._climb(space, model, value, noise)
        if summit.gain > self.tolerance:
            # a curved valley can end a search early, and a bound Newton's method: once more
            again, moved, _ = self.search(space, model, step=NEAR, evaluations=AGAIN)
            if again > max(value, summit.value):
                model, pinned, natural, summit = self._climb(space, moved, again, noise)
        outcome, flat = diagnose.judge(self, space, model, pinned, natural, summit)
        if noise > 0 and noise == self.tolerance:
            message = (
                f"{outcome.message}; in these formats the log-likelihood scatters by {noise:.1g}"
            )
            outcome = replace(outcome, message=message)
        errors, information = dict.fromkeys(model.parameters()), None
        if not flat and np.isfinite(summit.gain):
            errors |= natural.standard_errors(summit)
            information = summit.information
        names = tuple(natural.names)
        return Found(model, self.evaluation_of(model), outcome, names, errors, information)

    def _stopped(self, space, model):
        """Return what the limit on evaluations has left."""
        outcome = Outcome(
            Ending.EVALUATION_LIMIT,
            f"stopped after {self.monitor.count} evaluations, before the search had converged: "
            "allow more evaluations; the same call with a checkpoint goes on from there",
        )
        errors = dict.fromkeys(PARAMETER_NAMES[: len(model.parameters())])
        return Found(model, self.evaluation_of(model), outcome, space.free, errors)

    def _climb(self, space, model, value, noise=0.0):
        """Go up from a model of this value by Newton's method; parameters on a bound stay there."""
        pinned = diagnose.on_bounds(space, model)
        natural = Natural(
            [name for name in space.free if name not in pinned],
            model,
            wrap="anisotropy_angle" not in space.bounds,
        )
        summit = climb(
            lambda x: self._value(natural.model(x), space, pinned),
            lambda x: self._score_within(natural, x, space, pinned),
            lambda x: self._information(natural, x),
            natural.point(model),
            tolerance=1e-3 * self.tolerance,
            slack=noise,
            # by formula it costs more than all of the search, and changes by as little
            renewed=3e-4 if self._curved(natural.names) else 2e-4,
        )
        if summit.value > value - noise:
            model = natural.model(summit.point)
        return model, pinned, natural, summit

    def _score_within(self, natural, x, space, pinned):
        """Return the score at a point; NaN outside the bounds, where there may be no model."""
        if set(diagnose.outside(space, natural.model(x))) - set(pinned):
            return np.full(len(x), np.nan)
        return natural.score(x, self.evaluator, self.monitor)

    def _curved(self, names):
        """Whether the observed information of some parameters has a formula."""
        return not self.noisy and self.evaluator.has_curvature(names)

    def _information(self, natural, x):
        """Return the observed information at a point, by formula or by differences."""
        if self._curved(natural.names):
            return natural.information(x, self.evaluator, self.monitor)
        # a coarse factor's gradient scatters: wider differences see past that
        difference = 2e-2 if self.noisy else 2e-4
        score = partial(natural.score, evaluator=self.evaluator, monitor=self.monitor)
        return information_at(score, x, difference)

    def _settle(self, model):
        """Choose the formats for all that follows, and return the noise that ℓ has in them."""
        # one choice of formats from here on: another at each model would be another function
        self.evaluator.freeze(scoring.of_unit_variance(model) if self.space.profiled else model)
        noise = self._noise(model)
        self.tolerance = max(self.tolerance, noise)
        return noise

    def _noise(self, model):
        """Return how far ℓ scatters about a parabola between models that differ by a little.

        Their factors round differently in coarse formats. What the formats do to all of them alike
        is not seen.
        """
        steps = np.linspace(-1e-2, 1e-2, 9)
        near = [replace(model, range=model.range * (1 + step)) for step in steps]
        values = np.array([self.evaluation_of(other).log_likelihood for other in near])
        self.monitor.count += len(values)
        if not np.isfinite(values).all():
            return 0.0
        middle = values - values[4]
        rest = middle - np.polyval(np.polyfit(steps, middle, 2), steps)
        # six degrees of freedom are left; four deviations, for a search looks at many models
        return 4.0 * float(np.sqrt(np.sum(rest**2) / 6))

    def search(self, space, model, *, step=INITIAL_STEP, evaluations=None):
        """Search from a model; return (log-likelihood, model or None, stopped by the limit).

        Where the likelihood gives its information with its gradient, Fisher scoring goes first, and
        alone where it converges, unless the caller chose one of NLopt's searches.
        """
        found = {}
        left = self.monitor.left if evaluations is None else evaluations
        if self.choice == "scoring" and self.evaluator.scoring and space.free and left > 1:
            before = self.monitor.count
            value, model, converged = self._score(space, model, left)
            if converged:
                return value, model, False
            left = max(left - (self.monitor.count - before), 1)
            if np.isfinite(value):
                found.update(value=value, model=model)

        def function(x):
            value, full = self.evaluate(space, x)
            if value > found.get("value", -inf):
                found.update(value=value, model=full)
            return value

        end = maximize(
            function,
            space.point(model),
            space.lower,
            space.upper,
            scales=np.array(
                [40.0 if c.name == "anisotropy_angle" else 1.0 for c in space.coordinates]
            ),
            tolerance=self.tolerance,
            evaluations=left,
            step=step,
            slope=partial(self._slope, space),
            search="bobyqa" if self.choice == "scoring" else self.choice,
        )
        return found.get("value", -inf), found.get("model"), end.limited

    def _slope(self, space, x):
        """Return the gradient at a point of the search, at the best variance."""
        model = space.model(x)
        if space.profiled:
            size = profile_variance(self.evaluator(model))[0]
            model = replace(model, variance=size, nugget=model.nugget * size)
        self.monitor.count += not self.evaluator.keeps(model)
        try:
            gradient = self.evaluator.gradient(model)
        except NotPositiveDefinite:
            return np.zeros(len(x))
        return space.slope(model, gradient)

    def _score(self, space, model, evaluations):
        """Run Fisher scoring from a model; return (log-likelihood, model, converged)."""
        # from inside the bounds
        start = space.model(space.point(model))
        if space.profiled:
            size = model.variance
            start = replace(start, variance=size, nugget=start.nugget * size)
        natural = Natural(space.free, start, wrap="anisotropy_angle" not in space.bounds)
        unbounded = "nugget" in space.free and "nugget" not in space.bounds
        # with two observations at one place there is no model without a nugget to end at
        unbounded = unbounded and not self.observations.duplicate()
        best, converged = scoring.ascend(
            scoring.scorer(self, space, natural),
            lambda other: not diagnose.outside(space, other),
            natural,
            start,
            tolerance=self.tolerance,
            evaluations=evaluations,
            enough=COARSE if self.noisy else 0.0,
            vanishing=self.vanishing if unbounded else None,
            curved=self.ends and self._curved(natural.names),
        )
        return best.value, best.model, converged

    def evaluate(self, space, x):
        """Return (log-likelihood, model) at a point, with the best variance if that drops out."""
        model = space.model(x)
        evaluation = self.evaluator(model)
        value = evaluation.log_likelihood
        if not np.isfinite(value):
            self.complaint = evaluation.outcome.message
            value = -inf
        elif space.profiled:
            variance, value = profile_variance(evaluation)
            if not np.isfinite(value):
                return -inf, model
            model = replace(model, variance=variance, nugget=model.nugget * variance)
        self.monitor.record(model, value)
        return value, model

    def evaluation_of(self, model):
        """Return the evaluation of a full model, by the arithmetic in which the search saw it."""
        if not self.space.profiled or not self.noisy:
            return self.evaluator(model)
        evaluation = self.evaluator(scoring.of_unit_variance(model))
        if not np.isfinite(evaluation.log_likelihood):
            return evaluation
        return rescale_variance(evaluation, model.variance)

    def _value(self, model, space, pinned):
        """ℓ of a full model; -inf outside the bounds."""
        if set(diagnose.outside(space, model)) - set(pinned):
            return -inf
        counted = not self.evaluator.keeps(model)
        value = self.evaluation_of(model).log_likelihood
        self.monitor.record(model, value, counted)
        return value

    def _at_zero_nugget(self, value, model):
        """Return the better of the maximum found and the best model without a nugget.

        In logarithms a search comes near a nugget of 0 but never there.
        """
        space = self.space
        small = "nugget" in space.free and model.nugget < 1e-2 * model.variance
        if not small or space.bounds.get("nugget", (0.0, 0.0))[0] > 0:
            return value, model, space
        # in logarithms the likelihood is flat towards 0, and a search that came there may have
        # passed a maximum: once more from a nugget that can be seen
        again, seen, _ = self.search(space, replace(model, nugget=0.1 * model.variance))
        if again > value:
            value, model = again, seen
        without = space.holding(nugget=0.0)
        bare_value, bare, _ = self.search(without, replace(model, nugget=0.0))
        rises = bare is not None and self._rises_from_zero(bare)
        if bare is None or rises:
            # a maximum in between, which the search may have left aside; where ℓ rises from 0 no
            # nugget is too small: 1e-9 of a smooth field's variance may be many units of ℓ
            self.vanishing = None if rises else NO_NUGGET
            again, seen, _ = self.search(space, model)
            if again > value:
                value, model = again, seen
        if bare is not None and bare_value >= value - self.tolerance:
            return bare_value, bare, without
        return value, model, space

    def _rises_from_zero(self, bare):
        """Whether ℓ rises as a model without a nugget is given one."""
        self.monitor.count += not self.evaluator.keeps(bare)
        try:
            return self.evaluator.gradient(bare, ("nugget",))["nugget"] > 0
        except NotPositiveDefinite:
            return True
