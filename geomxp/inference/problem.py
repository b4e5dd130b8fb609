"""One search for a maximum: starts, BOBYQA, the nugget's boundary, Newton, and the verdict."""

import warnings
from dataclasses import dataclass, replace
from math import exp, inf, log, radians

import numpy as np

from ..covariance.matern import Matern
from ..errors import NotPositiveDefinite
from ..outcome import Ending, Outcome
from . import vecchia_scoring, verdict
from .likelihood import Evaluation, profile_variance, rescale_variance
from .maximize import INITIAL_STEP, climb, maximize
from .space import PARAMETER_NAMES

AGAIN = 200
"""Evaluations of a second search, where the first did not come to a maximum."""

NO_NUGGET = 1e-7
"""A nugget of so little of the variance, and falling, is compared with none."""

SUBSAMPLE = 300
"""Places on which starts are compared."""


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
    how : likelihood
    space : Space
    monitor : Monitor
    tolerance : float
    """

    def __init__(self, observations, design, reml, how, space, monitor, tolerance):
        self.observations = observations
        self.design = design
        self.reml = reml
        self.how = how
        self.space = space
        self.monitor = monitor
        self.tolerance = tolerance
        self.evaluator = how.prepare(observations, design, reml)
        self.complaint = None
        self.noisy = getattr(how, "noisy", False)

    def solve(self, start, starts, seed):
        """Search, climb, judge.

        Parameters
        ----------
        start : dict of str to float
            Values for some of the free parameters.
        starts : int
        seed : int

        Returns
        -------
        Found
        """
        best = (-inf, None)
        limited = False
        for model in self._starts(start, starts, seed):
            value, reached, stopped = self.search(self.space, model)
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
            outcome = Outcome(
                Ending.EVALUATION_LIMIT,
                f"stopped after {self.monitor.count} evaluations, before the search had converged: "
                "allow more evaluations; the same call with a checkpoint goes on from there",
            )
            errors = dict.fromkeys(PARAMETER_NAMES[: len(model.parameters())])
            return Found(model, self.evaluation_of(model), outcome, space.free, errors)
        noise = 0.0
        if self.noisy:
            # one choice of formats from here on: another at each model would be another function
            self.evaluator.freeze(_of_unit_variance(model) if self.space.profiled else model)
            noise = self._noise(model)
            value = self.evaluation_of(model).log_likelihood
            self.tolerance = max(self.tolerance, noise)
        model, pinned, natural, summit = self._climb(space, model, value, noise)
        if summit.gain > self.tolerance:
            # a curved valley can end a search early, and a bound Newton's method: once more
            again, moved, _ = self.search(space, model, step=0.1, evaluations=AGAIN)
            if again > max(value, summit.value):
                model, pinned, natural, summit = self._climb(space, moved, again, noise)
        outcome, flat = verdict.judge(self, space, model, pinned, natural, summit)
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

    def _climb(self, space, model, value, noise=0.0):
        """Go up from a model of this value by Newton's method; parameters on a bound stay there."""
        pinned = verdict.on_bounds(space, model)
        natural = Natural(
            [name for name in space.free if name not in pinned],
            model,
            wrap="anisotropy_angle" not in space.bounds,
        )
        summit = climb(
            lambda x: self._value(natural.model(x), space, pinned),
            lambda x: natural.score(x, self.evaluator, self.monitor),
            natural.point(model),
            tolerance=1e-3 * self.tolerance,
            # a coarse factor's gradient scatters: wider differences see past that
            difference=2e-2 if self.noisy else 2e-4,
            slack=noise,
        )
        if summit.value > value - noise:
            model = natural.model(summit.point)
        return model, pinned, natural, summit

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
        """Run BOBYQA from a model; return (log-likelihood, model or None, stopped by the limit).

        Where the likelihood gives its information with its gradient, Fisher scoring goes first, and
        alone where it converges.
        """
        found = {}
        left = self.monitor.left if evaluations is None else evaluations
        if getattr(self.how, "scoring", False) and space.free and left > 1:
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
        )
        return found.get("value", -inf), found.get("model"), end.limited

    def _score(self, space, model, evaluations):
        """Run Fisher scoring from a model; return (log-likelihood, model, converged)."""
        # from inside the bounds
        start = space.model(space.point(model))
        if space.profiled:
            size = model.variance
            start = replace(start, variance=size, nugget=start.nugget * size)
        natural = Natural(space.free, start, wrap="anisotropy_angle" not in space.bounds)
        unbounded = "nugget" in space.free and "nugget" not in space.bounds
        return vecchia_scoring.ascend(
            vecchia_scoring.scorer(self, natural),
            lambda other: not verdict.outside(space, other),
            natural,
            start,
            tolerance=self.tolerance,
            evaluations=evaluations,
            vanishing=_has_hardly_a_nugget if unbounded else None,
        )

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
        if not self.space.profiled:
            return self.evaluator(model)
        evaluation = self.evaluator(_of_unit_variance(model))
        if not np.isfinite(evaluation.log_likelihood):
            return evaluation
        return rescale_variance(evaluation, model.variance)

    def _value(self, model, space, pinned):
        """ℓ of a full model; -inf outside the bounds."""
        if set(verdict.outside(space, model)) - set(pinned):
            return -inf
        value = self.evaluation_of(model).log_likelihood
        self.monitor.record(model, value)
        return value

    def _starts(self, start, starts, seed):
        """Return the models to start from: the best of the candidates on a subsample."""
        candidates = list(self.space.candidates(start))
        if len(candidates) > 1:
            candidates = self._ranked(candidates, seed)
        return candidates[:starts]

    def _ranked(self, candidates, seed):
        n, p = self.design.shape
        evaluator = self.evaluator
        if n > SUBSAMPLE + p:
            rows = np.sort(np.random.default_rng(seed).choice(n, SUBSAMPLE + p, replace=False))
            design = self.design[rows]
            if np.linalg.matrix_rank(design / np.abs(design).max(axis=0, initial=1e-300)) == p:
                how = self.how.of_rows(rows) if hasattr(self.how, "of_rows") else self.how
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # said already, about all of the coordinates
                    part = self.observations.subset(rows)
                evaluator = how.prepare(part, design, self.reml)
        values = []
        for model in candidates:
            if self.space.profiled:
                values.append(profile_variance(evaluator(_of_unit_variance(model)))[1])
            else:
                values.append(evaluator(model).log_likelihood)
        order = np.argsort([-v if np.isfinite(v) else inf for v in values], kind="stable")
        return [candidates[k] for k in order]

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
        if bare is not None and bare_value >= value - self.tolerance:
            return bare_value, bare, without
        return value, model, space


def _has_hardly_a_nugget(model):
    return model.nugget < NO_NUGGET * model.variance


def _of_unit_variance(model):
    """Return R's model, where Σ = σ²R."""
    return replace(model, variance=1.0, nugget=model.nugget / model.variance)


class Natural:
    """Logarithms of parameters (radians of the angle): the coordinates of Newton and of errors.

    Parameters
    ----------
    names : sequence of str
        Parameters that move.
    model : Matern
        Gives the others.
    wrap : bool
        Whether angles are brought into [0, 180).
    """

    def __init__(self, names, model, wrap=True):
        self.names = list(names)
        self.wrap = wrap
        self.others = model.parameters()

    def point(self, model):
        """Return the point of a model."""
        values = model.parameters()
        return np.array(
            [radians(values[n]) if n == "anisotropy_angle" else log(values[n]) for n in self.names]
        )

    def model(self, x):
        """Return the model at a point."""
        values = dict(self.others)
        for name, value in zip(self.names, x, strict=True):
            if name == "anisotropy_angle":
                angle = float(np.degrees(value))
                values[name] = angle % 180.0 if self.wrap else angle
            elif name == "anisotropy_ratio":
                values[name] = min(exp(value), 1.0)
            else:
                values[name] = exp(min(value, 600.0))
        return Matern.from_parameters(values)

    def score(self, x, evaluator, monitor):
        """Return the gradient of the log-likelihood at a point; NaN where it has none."""
        model = self.model(x)
        monitor.count += 1
        try:
            gradient = evaluator.gradient(model, self.names)
        except NotPositiveDefinite:
            return np.full(len(x), np.nan)
        values = model.parameters()
        return np.array(
            [
                gradient[n] * (np.degrees(1.0) if n == "anisotropy_angle" else values[n])
                for n in self.names
            ]
        )

    def standard_errors(self, summit):
        """Return standard errors of the parameters from the observed information."""
        covariance = np.linalg.inv(summit.information)
        values = self.model(summit.point).parameters()
        return {
            n: float(
                np.sqrt(covariance[j, j])
                * (np.degrees(1.0) if n == "anisotropy_angle" else values[n])
            )
            for j, n in enumerate(self.names)
        }
