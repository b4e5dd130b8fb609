"""Maximise one likelihood: search, Newton's method, and the outcome.

`Problem` has the course of a fit; `Monitor` counts its evaluations and keeps its best model.
"""

import hashlib
import time
import warnings
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf

import numpy as np
import scipy

from ..covariance.base import Covariance
from ..covariance.noise import variances_in
from ..covariance.parameter import NOISE as OF_NOISE
from ..data import tables
from ..errors import (
    Ending,
    GeomxpError,
    GeomxpWarning,
    NotPositiveDefinite,
    Outcome,
)
from ..likelihood.base import Evaluation, profile_variance, rescale_variance
from ..likelihood.cost import closing
from ..likelihood.evaluators import evaluator_for
from ..likelihood.replicates import Groups
from ..runtime.progress import Line, clock, rate_in_words
from . import diagnose
from .coordinates import NUGGET_RATIO_BOUNDS, SpectralCoordinates, at_practical_range
from .names import (
    MICROSCALE,
    NOISE,
    NUGGET,
    RANGE,
    VARIANCE,
    of_nuggets,
)
from .parameters import is_compact
from .search import (
    FLAT_RISE,
    INITIAL_STEP,
    NEAR_LIMIT_VALUE,
    QUASI_NEWTON_GAIN,
    SCATTER_DEVIATIONS,
    ZIGZAG_RISE,
    Point,
    ascend,
    climb,
    information_at,
    maximize,
    newton_gain,
)

NEARBY_STEP = 0.1
"""First step of a search without derivatives near a maximum."""

EXACT_GRID_LOCATIONS = 450
"""Locations up to which all searches are patient, and up to which the grid of starts is evaluated
by exact likelihoods; without numba, the number of locations of the grid."""

HURRIED_EVALUATIONS = 30
"""Evaluations of a search that is not patient."""

SECOND_SEARCH_EVALUATIONS = 200
"""Evaluations of a second search, if the first did not converge."""

SINGULAR_MATRIX_MESSAGE = (
    "The covariance matrix of the best model is singular to working precision."
)
SINGULAR_MATRIX_REMEDY = (
    "Estimate the nugget, fix it at a positive value, or use a smaller smoothness."
)

SHORTER_RANGE_FACTORS = 1 - 1e-6, 1 - 1e-4, 0.99, 0.9, 0.7, 0.5
"""Factors of the range, tried in turn, if rounding makes the matrix of the best model singular."""

MOST_DIAGNOSES = 4
"""Limit on the diagnoses of a fit that find a better model."""

SCAN_STEP = 1 / 30
"""Step of a scan of the range, in logarithms."""

SCANNED_RANGE_FACTORS = np.exp([k * SCAN_STEP for k in range(-14, 15) if k])
"""Factors of the range that are scanned for other maxima of a model with compact support."""

REFINED_RANGES = 3
"""Number of the best of these ranges beside which half steps are scanned as well."""

MOST_RANGE_SCANS, MOST_SCAN_EVALUATIONS = 4, 4000
"""Limits on these scans, and on all of their evaluations."""

MOST_POLISHING_STEPS = 12
"""Limit on the steps of Newton's method from the end of a search."""

MOST_NEIGHBOUR_MOVES = 5
"""Limit on the searches in a row, each with the neighbours of the end of the one before."""

MOST_LATER_MOVES = 3
"""Limit on further searches with new neighbours after the maximum has been found."""

SCATTER_GAIN = 1e-3
"""Promised gain that is ignored if no step rises, where coarse formats make ℓ scatter."""

DIFFERENCES_TOLERANCE = 2e-3
"""Promised gain below which a search with a score by differences ends."""

SMALL_NUGGET_RATIO = 0.1
"""A nugget of one of several variables below this share of its variance is compared with 0."""

LARGEST_LOSS = 50.0
"""Loss of ℓ without a nugget above which no maximum without it is expected."""

PARABOLA_DEVIATION = 0.1
"""Relative deviation of a rise of ℓ from that of a parabola up to which a search ends where it
leads to a maximum that is known."""

RENEWED_IN_SCATTER, LARGEST_SCATTER = 2e-2, 0.1
"""Distance after which the information is computed again where ℓ scatters; limit on the scatter
that searches allow for."""

LARGEST_HIDDEN_GAIN, LARGEST_HIDDEN_RISE = 1e-4, 1e-2
"""Promised gain up to which a search has converged where rounding errors of ℓ are larger, and how
far another model may be above its end, by no more than these errors."""

LARGE_NUGGET_RATIO = 20.0
"""Ratio of nugget and variance above which a falling variance is compared with no field at all."""

INTERIOR_START_FACTOR = 1.5
"""Factor that leads from a bound to a start inside."""

MOST_BOUND_SEARCHES = 3
"""Limit on the searches along bounds that depend on other parameters."""

USUAL_SCORING_EVALUATIONS, USUAL_VECCHIA_EVALUATIONS = (5, 15), (10, 25)
USUAL_NLOPT_EVALUATIONS = (30, 150)
"""Usual numbers of evaluations of a search: by Fisher scoring, for the exact likelihood and for
Vecchia's approximation; by NLopt."""

SCORING_PATIENCE_EVALUATIONS = 8
"""Evaluations of Fisher scoring after which a field that has fallen is compared with no field."""


def fingerprint(observations, design, *settings):
    """Return a hash of the data and of all settings that change the result."""
    digest = hashlib.sha256()
    extra = observations.extra().values()
    for array in (observations.locations, observations.values, design, *extra):
        digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(repr((observations.metric, settings)).encode())
    return digest.hexdigest()


def _unscaled(model, log_likelihood):
    return model, log_likelihood


class Interrupted(KeyboardInterrupt):
    """A fit interrupted by Ctrl-C.

    `state` is the content of a checkpoint, None before there is a model; `checkpoint` the path of
    a file with this state, or None.
    """

    def __init__(self, state, checkpoint, evaluations, seconds):
        super().__init__(f"the fit was interrupted after {evaluations} evaluations")
        self.state, self.checkpoint = state, checkpoint
        self.evaluations, self.seconds = evaluations, seconds


class Monitor:
    """Counts evaluations, remembers the best model, draws the progress line, writes checkpoints.

    `limit` is that on evaluations; `rescale` maps (model, log-likelihood) of the scaled problem to
    the user's units; `fingerprint` identifies the problem in the checkpoint.
    """

    def __init__(self, limit, rescale=_unscaled, checkpoint=None, fingerprint="", shown=False):
        self.limit = limit
        self.rescale = rescale
        self.checkpoint = checkpoint
        self.fingerprint = fingerprint
        self.count = 0
        # log-likelihood and model, and (number of the evaluation, model, log-likelihood) of each
        # improvement, of the scaled problem
        self.best = (-inf, None)
        self.rises = []
        # evaluations that are usual, and those that the standard errors cost; time and count at
        # the first one
        self.usual, self.closing, self.first = USUAL_SCORING_EVALUATIONS, 0, None
        self.line = Line("fitting", shown=shown)

    def __enter__(self):
        self.line.__enter__()
        return self

    def __exit__(self, kind, error, _):
        self.line.__exit__()
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            seconds = time.perf_counter() - self.line.began
            raise Interrupted(self.state(), self.checkpoint, self.count, seconds) from error

    @property
    def history(self):
        """Each improvement in the user's units, a list of dict; see `forget`."""
        rows = []
        for count, *rise in self.rises:
            model, value = self.rescale(*rise)
            rows.append({"evaluation": count, **model.parameters(), "log_likelihood": value})
        return rows

    def _last(self):
        """Return parameters and log-likelihood of the last improvement, in the user's units."""
        model, value = self.rescale(*self.rises[-1][1:])
        return model.parameters(), value

    @property
    def left(self):
        """Evaluations that may still be made."""
        return max(0, self.limit - self.count)

    def record(self, model, log_likelihood, counted=True):
        """Record one evaluation of the scaled problem; count it if it took a factorization."""
        self.count += counted
        if self.first is None:
            self.first = time.perf_counter(), self.count
        self._note([(self.count, model, log_likelihood)])

    def forget(self):
        """Forget the best model, because later log-likelihoods have other neighbours.

        The first of them counts as an improvement, even if it is smaller.
        """
        self.best = (-inf, None)

    def join(self, count, rises):
        """Record the evaluations of another monitor: its `count` and its `rises`."""
        before = self.count
        self.count += count
        self._note([(before + number, model, value) for number, model, value in rises])

    def _note(self, evaluations):
        """Keep the improvements; update the progress line and the checkpoint."""
        known = len(self.rises)
        for number, model, value in evaluations:
            if value > self.best[0]:
                self.best = (value, model)
                self.rises.append((number, model, value))
        if self.checkpoint is not None and len(self.rises) > known:
            self._write()
        if self.line.shown:
            self.line.note = self._status()

    def _status(self):
        least, most = self.usual
        limit = f", at most {self.limit:,}" if self.count > most else ""
        text = f"iteration {self.count}, usually {least}-{most}{limit}{self._pace()}"
        if not self.rises:
            return text
        model, value = self._last()
        parameters = "  ".join(f"{name} {number:.4g}" for name, number in model.items())
        return f"{text}  log-likelihood {value:.4f}  {parameters}"

    def _pace(self):
        """Return the rate, and the time left if the search takes as long as usual, as text."""
        began, before = self.first or (0.0, self.count)
        if self.count == before:
            return ""
        rate = (self.count - before) / max(time.perf_counter() - began, 1e-9)
        least, most = self.usual
        middle = (least + most) // 2
        expected = middle if self.count < middle else most
        if self.count > most:
            return f"  {rate_in_words(rate)}"
        left = max(expected - self.count, 1) + self.closing
        return f"  {rate_in_words(rate)}  about {clock(left / rate)} left"

    def state(self):
        """Return the content of a checkpoint; None before there is a model."""
        if not self.rises:
            return None
        model, value = self._last()
        return {
            "problem": self.fingerprint,
            "model": model,
            "log_likelihood": value,
            "evaluations": self.count,
        }

    def _write(self):
        try:
            tables.write_json(self.checkpoint, self.state())
        except GeomxpError as error:
            # continue the fit without a checkpoint
            warnings.warn(f"no more checkpoints are written: {error}", GeomxpWarning, stacklevel=2)
            self.checkpoint = None


@dataclass(frozen=True)
class Solution:
    """Result of a search, in the units of the scaled problem."""

    model: Covariance
    evaluation: Evaluation
    outcome: Outcome
    # parameters that were estimated and are not on a bound
    free: tuple
    standard_errors: dict
    # the observed one in `ParameterTable.coordinates`, (k, k), in the order of `free`
    information: np.ndarray | None = None
    # parameters that are not identifiable, which the standard errors of the free ones hold
    unidentified: tuple = ()
    # options of a fit that may end better, with parameters in the user's units
    remedy: dict = field(default_factory=dict)


class Problem:
    """A likelihood and the table of parameters over which to maximise it.

    The observations are scaled: lengths and values near 1. `choice` is one of `search.SEARCHES`.
    """

    def __init__(
        self, observations, design, reml, method, table, monitor, tolerance, choice="scoring"
    ):
        self.observations, self.design, self.reml = observations, design, reml
        self.method, self.whole, self.monitor = method, table, monitor
        # microscale variation comes last, see `_with_microscale`
        self.table = table.holding(**{MICROSCALE: 0.0}) if MICROSCALE in table.free else table
        self.choice = choice
        # the limit on evaluations before starts increase it
        self.asked = monitor.limit
        self.evaluator = evaluator_for(table.model, method, observations, design, reml)
        self.tolerance = tolerance
        if self.evaluator.differences:
            self.tolerance = max(tolerance, DIFFERENCES_TOLERANCE)
        if choice != "scoring" or not self.evaluator.scoring:
            monitor.usual = USUAL_NLOPT_EVALUATIONS
        else:
            monitor.usual = USUAL_SCORING_EVALUATIONS
            if method.approximate:
                monitor.usual = USUAL_VECCHIA_EVALUATIONS
            monitor.closing = closing(method, len(table.free))
        self.complaint = None
        # whether the observed information will be needed at the end of the search
        self.ends = False
        self.noisy = method.noisy
        # whether coarse formats are those of one model, with a divergence that is measured
        self.kept = method.noisy and self.evaluator.moves
        # whether the neighbours of Vecchia's approximation follow the model, during searches
        self.moves = self.follows = self.evaluator.moves

    def solve(self, ends):
        """Return the `Solution`: climb from the best end to the maximum, and diagnose it.

        `ends` are those of searches from several starts: (log-likelihood, model or None, limited).
        """
        solution = self._solved(ends)
        if self.evaluator.would_move(solution.model, exactly=True):
            # the limit on evaluations was reached, or no set of neighbours reproduces itself:
            # compute ℓ with the neighbours of the estimate
            self.freeze(solution.model)
            return replace(solution, evaluation=self.evaluation_of(solution.model))
        return solution

    def _solved(self, ends):
        """Search and diagnose as `solve`; the neighbours may be those of an earlier model."""
        ends = list(ends)
        limited = any(stopped for *_, stopped in ends)
        ends = [(value, model) for value, model, _ in ends if model is not None]
        if not ends:
            complaint = self.complaint or "no model within the bounds has a finite likelihood."
            raise NotPositiveDefinite(complaint + self._remedy_of_response())
        value, model = max(ends, key=self._preference)
        if self.moves:
            # all that follows compares log-likelihoods
            self.freeze(model)
            ends = [(self._value(model), model) for _, model in ends]
            value, model = max(ends, key=self._preference)
        if not limited:
            value, model = self._rougher(*self._off_bounds(value, model))
            value, model = self._without_nuggets(value, model)
            if is_compact(model) and RANGE in self.table.free:
                value, model = self._scan_range(value, model)
            if self.table is not self.whole:
                value, model = self._with_microscale(value, model)
        self.table = self.whole
        table = self._without_zeros(self.table, model)
        limited |= self.monitor.left == 0
        if limited:
            return self._checked(self._stopped(table, model))
        noise = 0.0
        if self.kept:
            noise = SCATTER_DEVIATIONS * self.scatter
        elif self.noisy:
            noise = self._settle(model)
            value = self.evaluation_of(model).log_likelihood
        solution = self._checked(self._diagnosed(table, model, value, noise))
        for _ in range(MOST_LATER_MOVES):
            if not self.evaluator.would_move(solution.model):
                return solution
            self.freeze(solution.model)
            table = self._without_zeros(self.table, solution.model)
            value, model, limited = self.search(table, solution.model, step=NEARBY_STEP)
            if limited or self.monitor.left == 0:
                return self._checked(self._stopped(table, model or solution.model))
            if model is None:
                break
            solution = self._checked(self._diagnosed(table, model, value, noise))
        return solution

    def _preference(self, end):
        """Return ℓ of an end (ℓ, model), larger for each variance of noise that is 0.

        A variance that raises ℓ by less than `FLAT_RISE` is not identified. Where the field is
        noise itself, any part of it may be the nugget.
        """
        value, model = end
        if model.of_distance:
            nearest = model.correlation(self.table.extent.shortest)
            if nearest < diagnose.NO_CORRELATION:
                return value
        return value + FLAT_RISE * sum(p.value == 0 for p in variances_in(model))

    def freeze(self, model):
        """Fix the formats or neighbours at those of a model; reset the best log-likelihood."""
        self.follows = False
        self.evaluator.freeze(model)
        self.monitor.forget()

    def _without_zeros(self, table, model):
        """Return a table that holds the variances of noise that are 0 in a model."""
        values = model.parameters()
        noise = [p.name for p in variances_in(model) if p.name in table.free]
        zeros = [name for name in noise if values[name] == 0]
        return table.holding(**dict.fromkeys(zeros, 0.0)) if zeros else table

    def _remedy_of_response(self):
        """Return a remedy where the likelihood of a response was finite for no model, or ""."""
        response = self.table.model.response
        if response is None:
            return ""
        noise = response.noise_parameter or NUGGET
        return (
            f" Start with a value of `{noise}` that means more noise (`start`, --start), or hold "
            "it there."
        )

    def _checked(self, solution):
        """Return a solution with a finite log-likelihood.

        If rounding makes the matrix of the best model singular, the solution has a shorter range
        and the outcome STALLED. Raise `NotPositiveDefinite` if such ranges do not help either.
        """
        if np.isfinite(solution.evaluation.log_likelihood):
            return solution
        for factor in SHORTER_RANGE_FACTORS if RANGE in self.whole.free else ():
            model = self._stretched(solution.model, factor)
            # those who evaluate the result do not scale its variance to 1, as a search does
            known = np.isfinite(self.evaluator(model).log_likelihood)
            evaluation = self.evaluation_of(model)
            if known and RANGE not in self.whole.outside(model):
                message = (
                    f"{SINGULAR_MATRIX_MESSAGE} The result has {factor:g} times its range. "
                    f"{SINGULAR_MATRIX_REMEDY}"
                )
                return replace(
                    solution,
                    model=model,
                    evaluation=evaluation,
                    outcome=Outcome(Ending.STALLED, message),
                    standard_errors=dict.fromkeys(model.parameters()),
                    information=None,
                )
        raise NotPositiveDefinite(f"{SINGULAR_MATRIX_MESSAGE} {SINGULAR_MATRIX_REMEDY}")

    def _diagnosed(self, table, model, value, noise):
        """Return the `Solution`: climb and diagnose, again where that finds more.

        A diagnosis may find a better model, or the limit of a parameter, where the others are
        estimated again.
        """
        limits, rounds, known = [], 0, -inf
        while True:
            model, pinned, coordinates, summit = self._summit(table, model, value, noise)
            verdict = diagnose.diagnose(self, table, model, pinned, coordinates, summit)
            best, better = self.monitor.best
            rounds += 1
            reached = max(value, summit.value, known)
            rise = self._least_rise(table, better)
            higher = noise == 0 and best > reached + rise and rounds < MOST_DIAGNOSES
            if higher and not (np.isfinite(summit.gain) and best < reached + self._rounding(model)):
                value, model, limits = best, better, []
                table = self._without_zeros(self.table, better)
                continue
            # each limit holds another parameter
            if not verdict.held or len(limits) == len(self.table.free):
                break
            limits.append(verdict.outcome.message)
            table = table.holding(**verdict.held)
            value, model, _ = self.search(table, verdict.model, step=NEARBY_STEP)
            if model is None:
                # a profile has found it, by another way
                model, value = verdict.model, self._value(verdict.model)
            table = self._without_zeros(table, model)
            # a model farther towards the limit may be a little better
            known = best if value > best - diagnose.LIMIT_SUPREMUM_SLACK else -inf
        outcome, flat = verdict.outcome, verdict.flat
        if limits and outcome.ending is not Ending.STALLED:
            outcome = Outcome(Ending.AT_LIMIT, " ".join([*limits, outcome.message]).strip())
        if noise > 0 and not self.kept and noise == self.tolerance:
            message = (
                f"{outcome.message} Rounding in these formats scatters the log-likelihood by "
                f"{noise:.1g}."
            ).strip()
            outcome = replace(outcome, message=message)
        errors, information = dict.fromkeys(model.parameters()), None
        held = [name for name in coordinates.names if name in verdict.unidentified]
        names = [name for name in coordinates.names if name not in held]
        if not flat and np.isfinite(summit.gain):
            top = coordinates.model(summit.point)
            information = coordinates.absolute(top, summit.information)
            kept = np.isin(coordinates.names, names)
            information = information[np.ix_(kept, kept)]
            errors |= table.coordinates(top, names).standard_errors(top, information)
        evaluation = self.evaluation_of(model)
        free, held = tuple(names), tuple(held)
        return Solution(model, evaluation, outcome, free, errors, information, held, verdict.remedy)

    def _summit(self, table, model, value, noise):
        """Climb from a model of this value; search again where that does not converge."""
        model, pinned, coordinates, summit = self._climb(table, model, value, noise)
        if not self.converged(model, summit) and not diagnose.only_noise(table, pinned):
            # a curved ridge can stop a search early, and a bound Newton's method: search again
            again, moved, _ = self.search(
                table, model, step=NEARBY_STEP, evaluations=SECOND_SEARCH_EVALUATIONS
            )
            if again > max(value, summit.value):
                return self._climb(table, moved, again, noise)
        return model, pinned, coordinates, summit

    def converged(self, model, summit):
        """Whether the promised gain is below the tolerance, or within the rounding errors of ℓ."""
        if summit.gain <= max(self.tolerance, self.scatter**2):
            return True
        return summit.gain <= LARGEST_HIDDEN_GAIN and summit.gain < self._rounding(model)

    def _rounding(self, model):
        """Return the bound of the rounding error of ℓ at a model; 0 if it is not known."""
        rounding = self.evaluator.carefully(model).rounding
        return 0.0 if rounding is None else min(rounding.log_likelihood, LARGEST_HIDDEN_RISE)

    def _stopped(self, table, model):
        """Return the best model when the limit on evaluations is reached."""
        model = table.principal(model)
        outcome = Outcome(
            Ending.EVALUATION_LIMIT,
            f"stopped after {self.monitor.count} evaluations before convergence. Increase "
            "`evaluations`; with `checkpoint`, the same call resumes from here.",
        )
        remedy = {"evaluations": 4 * self.asked}
        verdict = diagnose.collinear(self, model, open_end=False)
        if verdict:
            # more evaluations would not help
            outcome, remedy = verdict.outcome, verdict.remedy
        errors, evaluation = dict.fromkeys(model.parameters()), self.evaluation_of(model)
        return Solution(model, evaluation, outcome, table.free, errors, remedy=remedy)

    def _climb(self, table, model, value, noise=0.0):
        """Climb by Newton's method from a model of this value; parameters on bounds stay fixed."""
        model = table.principal(model)
        pinned = table.on_bounds(model)
        following = [pair for pair in pinned.items() if table.coupled(*pair, model)]
        if len(following) > 1 and (table.covariances or table.nuggets_beside):
            every = table.coordinates(model)
            score = every.score(every.point(model), self.evaluator, self.monitor)
            bound = table.binding(following, model, dict(zip(every.names, score, strict=True)))
            for pair in set(following) - set(bound):
                pinned.pop(pair[0])
            following = bound
        moving = [name for name in table.free if name not in pinned]
        coordinates = table.coordinates(model, moving, following)

        def within(x):
            """Whether the model at a point is valid, and within the bounds of what moves."""
            at = coordinates.model(x)
            return table.valid(at) and not set(table.outside(at)) - set(pinned)

        def score(x):
            """Return the score; NaN outside the bounds, where there may be no model."""
            if not within(x):
                return np.full(len(x), np.nan)
            return coordinates.score(x, self.evaluator, self.monitor)

        summit = climb(
            lambda x: self._value(coordinates.model(x)) if within(x) else -inf,
            score,
            lambda x: self._information(coordinates, x, score),
            coordinates.point(model),
            tolerance=self.tolerance * (1.0 if self.evaluator.differences or self.noisy else 1e-3),
            steps=0 if diagnose.only_noise(table, pinned) else MOST_POLISHING_STEPS,
            slack=noise,
            scatter=self.scatter,
            renewed=self._renewal(coordinates),
        )
        if summit.value > value - noise:
            model = coordinates.model(summit.point)
        return model, pinned, coordinates, summit

    def _curved(self, coordinates):
        """Whether the observed information is computed by formula."""
        if coordinates.curved:
            return False
        return self.evaluator.has_curvature(coordinates.names)

    def _information(self, coordinates, x, score):
        """Return the observed information at a point, by formula or by differences of the score."""
        if self._curved(coordinates):
            return coordinates.information(x, self.evaluator, self.monitor)
        # wider differences average over the scatter of coarse formats
        return information_at(score, x, 2e-2 if self.noisy else 2e-4)

    def _renewal(self, coordinates):
        """Return the distance after which Newton's method computes the information again."""
        if self.kept:
            return RENEWED_IN_SCATTER
        # by formula it is expensive, and changes as little
        return 3e-4 if self._curved(coordinates) else 2e-4

    @property
    def scatter(self):
        """Standard deviation of ℓ by coarse formats that are kept, as searches allow for it."""
        return min(self.evaluator.scatter, LARGEST_SCATTER)

    def _settle(self, model):
        """Freeze the ranks at a model, and return the scatter of ℓ in them."""
        # ranks chosen anew at each model would change the function being maximised
        self.evaluator.freeze(of_unit_variance(model) if self.table.profiled else model)
        noise = self._noise(model)
        self.tolerance = max(self.tolerance, noise)
        return noise

    def _noise(self, model):
        """Return the scatter of ℓ about a parabola between models that differ slightly.

        It comes from rounding in coarse formats; a bias that all of them share is not detected.
        """
        steps = np.linspace(-1e-2, 1e-2, 9)
        values = model.parameters()
        name = RANGE if RANGE in values else next(iter(values))
        near = [model.replace(**{name: values[name] * (1 + step)}) for step in steps]
        values = np.array([self.evaluation_of(other).log_likelihood for other in near])
        self.monitor.count += len(values)
        if not np.isfinite(values).all():
            return 0.0
        middle = values - values[4]
        rest = middle - np.polyval(np.polyfit(steps, middle, 2), steps)
        # six degrees of freedom are left; four deviations, since a search visits many models
        return 4.0 * float(np.sqrt(np.sum(rest**2) / 6))

    def search(self, table, model, *, step=INITIAL_STEP, evaluations=None, patient=True):
        """Search from a model; return (log-likelihood, model or None, stopped by the limit).

        Fisher scoring comes first if the method supports it and the caller did not choose one of
        NLopt's searches; NLopt follows only if scoring does not converge. A search that is not
        `patient` has few evaluations of scoring, and NLopt does not follow.

        Where neighbours follow the model, those of the start are kept, and the search goes on from
        its end with the neighbours of that model.
        """
        if not self.follows:
            return self._search(table, model, step, evaluations, patient)
        for _ in range(MOST_NEIGHBOUR_MOVES):
            self.evaluator.freeze(model)
            end = self._search(table, model, step, evaluations, patient)
            if end[1] is None or end[2] or not self.evaluator.would_move(end[1]):
                break
            model = end[1]
        return end

    def _search(self, table, model, step, evaluations, patient):
        """As `search`, with the same neighbours throughout."""
        best, scores = {}, self.choice == "scoring" and self.evaluator.scoring
        left = self.monitor.left if evaluations is None else evaluations
        if scores and table.free and left > 1:
            before = self.monitor.count
            most = left if patient else min(left, HURRIED_EVALUATIONS)
            value, model, converged = self.score(table, model, most)
            if converged or (not patient and np.isfinite(value)):
                return value, model, False
            left = max(left - (self.monitor.count - before), 1)
            if np.isfinite(value):
                best.update(value=value, model=model)
        # in logarithms 0 can be neither reached nor left: what scoring found to be 0 stays
        table = self._without_zeros(table, best.get("model", model))
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
        value, model = best.get("value", -inf), best.get("model")
        zeros = {} if scores or model is None or end.limited else self._small(table, model)
        if zeros:
            start = model.replace(**zeros)
            bare = self._search(table.holding(**zeros), start, step, left, patient)
            if bare[0] >= value - FLAT_RISE:
                return bare
        return value, model, end.limited

    def _small(self, table, model):
        """Return the variances of noise that may be 0 and are small, with a value of 0."""
        values, names = model.parameters(), self.vanishing(table)
        fields = {name: model.variance_of(name) for name in names}
        return {n: 0.0 for n in names if values[n] < NEAR_LIMIT_VALUE * fields[n]}

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

    def score(self, table, model, evaluations):
        """Run Fisher scoring from a model; return (log-likelihood, model, converged)."""
        # from inside the bounds, also of shapes whose bounds depend on each other
        search, values = table.search_coordinates(), model.parameters()
        start = search.model(search.point(model))
        kept = [name for name in self.vanishing(table) if values[name] == 0]
        start = start.replace(**{n: values[n] for n in (*kept, *self._noise_matrix(table))})
        start = table.within(start) or start
        if table.profiled:
            start = start.scaled(values[VARIANCE])
        last = self.monitor.count + evaluations
        pauses = evaluations > 2 * SCORING_PATIENCE_EVALUATIONS and table.profiled
        pauses = pauses and NUGGET in table.free
        limit = SCORING_PATIENCE_EVALUATIONS if pauses else evaluations
        best, converged = self._ascended(table, start, limit)
        if pauses and not converged and np.isfinite(best.value):
            if nugget_ratio(best.model) > LARGE_NUGGET_RATIO:
                best, converged = self._without_field(table, best)
            if not converged:
                best, converged = self._ascended(table, best.model, last - self.monitor.count)
        return best.value, best.model, converged

    def vanishing(self, table):
        """Return the variances of noise that may become 0 in a search."""
        names = [p.name for p in variances_in(table.model) if table.may_vanish(p.name)]
        if self.observations.duplicate() and table.model.response is None:
            # which need a nugget
            names = [name for name in names if name == MICROSCALE]
        # a covariance that may differ from 0 needs its nuggets
        needed = {n for n, x in table.fixed.items() if of_nuggets(table.parameters[n]) and x}
        needed |= set(table.covariances)
        alone = {n for n in names if not table.parameters[n].where}
        return [n for n in names if n in alone or not needed & set(table.model.vanishing(n))]

    def _noise_matrix(self, table):
        """Return nuggets and covariances, if all are free and without bounds; none otherwise."""
        names = [p.name for p in table.model.table if p.role == OF_NOISE and p.where]
        free = set(names) <= set(table.free) - set(table.bounds)
        return names if table.covariances and free and not self.observations.duplicate() else []

    def _coordinates(self, table, model, names=None, following=()):
        """Return the coordinates of Fisher scoring, in which variances of noise may become 0."""
        noise, names = self._noise_matrix(table), table.free if names is None else names
        if not noise:
            return table.coordinates(model, names, following, vanishing=self.vanishing(table))
        names = [name for name in names if name not in noise]
        others = table.coordinates(model, names, following)
        return SpectralCoordinates(others, noise, model.variables)

    def _without_field(self, table, best):
        """Return the `Point` from which a search goes on, and whether that is its end.

        The end is the largest ratio of nugget and variance, where the variance falls and ℓ has not
        reached the value there. In logarithms a search would need many steps to get there, and the
        range changes with each of them.
        """
        if best.score[table.coordinates(best.model).names.index(VARIANCE)] >= 0:
            return best, False
        values, ratio = best.model.parameters(), NUGGET_RATIO_BOUNDS[1]
        variance = (values[VARIANCE] + values[NUGGET]) / (1 + ratio)
        model = best.model.replace(**{VARIANCE: variance, NUGGET: ratio * variance})
        end = self._point(table, table.coordinates(model), model, False)
        return (end, True) if end.value >= best.value else (best, False)

    def _ascended(self, table, start, evaluations):
        """Return the `Point` at the end of Fisher scoring, and whether it converged.

        Where a bound depends on other parameters and stops it, scoring goes on along the bound.
        """
        last = self.monitor.count + evaluations
        best, converged = self._ascend(table, self._coordinates(table, start), start, evaluations)
        along = False
        for _ in range(MOST_BOUND_SEARCHES):
            following = self._followed(table, best)
            left = last - self.monitor.count
            if left < 2:
                break
            if not following:
                if not (along and self._meets(table, best)):
                    break
                # at the maximum along the bound ℓ rises away from it
                coordinates = self._coordinates(table, best.model)
                end, converged = self._ascend(table, coordinates, best.model, left)
                best, along = max(best, end, key=lambda point: point.value), False
                continue
            held, along = dict(following), True
            moving = [name for name in table.free if name not in held]
            coordinates = self._coordinates(table, best.model, moving, following)
            end, converged = self._ascend(table, coordinates, best.model, left)
            # with the score by all parameters
            end = self._point(table, self._coordinates(table, end.model), end.model, False)
            risen = end.value > best.value + self.tolerance
            best = max(best, end, key=lambda point: point.value)
            if not risen:
                break
        return best, converged

    def _meets(self, table, point):
        """Whether a shape is on a bound that another shape moves: steps zigzag along it."""
        bounds = table.on_bounds(point.model) if table.shapes else {}
        return point.model.of_distance and any(
            name in table.shapes and table.coupled(name, side, point.model)
            for name, side in bounds.items()
        )

    def _followed(self, table, point):
        """Return the bounds across which ℓ rises: (name, side) of those that depend on others."""
        if point.score is None or not (table.shapes or table.covariances or table.nuggets_beside):
            return []
        score = dict(zip(self._coordinates(table, point.model).names, point.score, strict=True))
        followed = [
            (name, side)
            for name, side in table.on_bounds(point.model).items()
            if name in score
            and table.coupled(name, side, point.model)
            and (score[name] < 0) == (side == "lower")
        ]
        return table.binding(followed, point.model, score)

    def _ascend(self, table, coordinates, start, evaluations, stops=None):
        if stops is None and not coordinates.following:
            stops = partial(self._blocked, table)
        return ascend(
            partial(self._point, table, coordinates),
            table.within,
            coordinates,
            start,
            tolerance=self.tolerance,
            evaluations=evaluations,
            enough=SCATTER_GAIN if self.noisy else 0.0,
            curved=self.ends and self._curved(coordinates),
            stops=stops,
        )

    def _blocked(self, table, point, risen):
        """Whether ℓ rises across a bound that another shape moves: scoring goes on along it."""
        return (
            risen < ZIGZAG_RISE and self._meets(table, point) and bool(self._followed(table, point))
        )

    def _point(self, table, coordinates, model, close):
        """Return the `Point` of a model at the best variance.

        With cΣ in place of Σ, ∂Σ by logarithms is c times as large, α and Σ⁻¹ are 1/c times: α'∂Σα
        and AI divide by c, tr(Σ⁻¹∂Σ) stays. The units are those of the model before.
        Close to the maximum c is 1 to some digits, and the model stays the one that the evaluator
        caches.
        """
        if not table.valid(model):
            return Point(model, -inf)
        names = tuple(coordinates.moving)
        try:
            derivatives = self.evaluator.derivatives(model, names, curvature=close)
        except NotPositiveDefinite as error:
            self.complaint = str(error)
            return Point(model, -inf)
        evaluation, c = self.evaluator(model), 1.0
        point = Point(model, -inf)
        if np.isfinite(evaluation.log_likelihood):
            # the derivatives may be those of more names, kept from before
            order = [derivatives.names.index(name) for name in names]
            coordinates.align(model, dict(zip(names, derivatives.score[order], strict=True)))
            slopes, units = coordinates.with_followers(model)[1], coordinates.jacobian(model)
            if derivatives.rescalable and table.profiled and not close:
                p = len(evaluation.coefficients) if evaluation.reml else 0
                c = evaluation.quadratic_form / (evaluation.n - p)
                evaluation, model = rescale_variance(evaluation, c), model.scaled(c)
            score = slopes.T @ derivatives.score_of(c)[order] * units
            information = slopes.T @ derivatives.part(derivatives.information, names) @ slopes
            information = information * np.outer(units, units) / c + coordinates.bend(model, score)
            point = Point(model, evaluation.log_likelihood, score, information, self.scatter)
            if not (np.isfinite(score).all() and np.isfinite(information).all()):
                # the inverse of a tiny variance overflows
                point = Point(model, -inf)
        self.monitor.record(point.model, point.value)
        return point

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
        if not self.table.profiled or not self.noisy or self.kept:
            evaluation = self.evaluator(model)
            if not self.table.profiled or np.isfinite(evaluation.log_likelihood):
                return evaluation
            # of two almost singular matrices one may have a Cholesky factor
        evaluation = self.evaluator(of_unit_variance(model))
        if not np.isfinite(evaluation.log_likelihood):
            return evaluation
        return rescale_variance(evaluation, model.parameters()[VARIANCE])

    def _value(self, model):
        """Return ℓ of a full model, and record it."""
        counted = not self.evaluator.keeps(model)
        value = self.evaluation_of(model).log_likelihood
        self.monitor.record(model, value, counted)
        return value

    def _scan_range(self, value, model):
        """Scan ranges near the maximum of a compact family; return the best (value, model).

        Where the covariance becomes 0 its derivatives jump, so that ℓ of strongly correlated
        values has many maxima, a few per cent of the range apart.
        """
        table, left = self._without_zeros(self.table, model), self.monitor.left
        # the scan does not count against the limit
        self.monitor.limit += MOST_SCAN_EVALUATIONS
        for _ in range(MOST_RANGE_SCANS):
            before = value
            found = {1.0: (value, model)}
            for between in (False, True):
                factors = SCANNED_RANGE_FACTORS
                if between:
                    best = sorted(found, key=lambda factor: -found[factor][0])[:REFINED_RANGES]
                    factors = np.outer(best, np.exp([-SCAN_STEP / 2, SCAN_STEP / 2])).ravel()
                for factor in factors:
                    other = self._stretched(model, factor)
                    outside = table.outside(other)
                    found[factor] = (-inf, None) if outside else self.evaluate(table, other)
            order = sorted(found)
            values = np.array([found[factor][0] for factor in order])
            peaks = values >= scipy.ndimage.maximum_filter(values, size=3, mode="nearest")
            peaks = [k for k in np.argsort(-values) if peaks[k] and values[k] > before - 1]
            for _, moved in [found[order[k]] for k in peaks if order[k] != 1.0][:2]:
                again, moved, _ = self.search(
                    self.table, moved, step=NEARBY_STEP, evaluations=SECOND_SEARCH_EVALUATIONS
                )
                if again > value + self.tolerance:
                    value, model = again, moved
            if value == before:
                break
            table = self._without_zeros(self.table, model)
        self.monitor.limit = self.monitor.count + left
        return value, model

    def _stretched(self, model, factor):
        """Return a model of another range, with the same variogram at the shortest distance."""
        values, h = model.parameters(), self.table.extent.shortest
        wide = model.replace(**{RANGE: values[RANGE] * factor})
        before, after = (m.variance - float(m.covariance(h)) for m in (model, wide))
        if VARIANCE not in self.table.free or min(before, after) <= 0:
            return wide
        ratio = min(max(before / after, 0.1), 10.0)
        return wide.replace(**{VARIANCE: values[VARIANCE] * ratio})

    def _off_bounds(self, value, model):
        """Return the best (value, model) of this end and of a search off its bounds.

        There may be a maximum on a bound that depends on other parameters, and another one inside.
        """
        table = self.table
        for name, side in table.on_bounds(model).items():
            if RANGE not in table.free or not table.coupled(name, side, model):
                continue
            if name in self._noise_matrix(table):
                continue
            inside = model.replace(**{name: self._inside(table, model, name, side)})
            inside = table.within(at_practical_range(inside, model.practical_range()))
            if inside is not None:
                again, moved, _ = self.search(
                    table, inside, step=NEARBY_STEP, evaluations=SECOND_SEARCH_EVALUATIONS
                )
                if again > value + self.tolerance:
                    value, model = again, moved
        return value, model

    def _rougher(self, value, model):
        """Return the better of a maximum at a shape's upper bound and of a rougher field.

        Beside a small nugget the field may be as smooth as can be, and a rougher one without a
        nugget as likely.
        """
        table = self.table
        if NUGGET in self.vanishing(table) and nugget_ratio(model) < NEAR_LIMIT_VALUE:
            smoothest = [n for n, side in table.on_bounds(model).items() if side == "upper"]
            for name in set(smoothest) & set(table.shapes):
                below = [x for x in table.shape_axis(name) if x < model.parameters()[name]]
                for rough in below[-1:]:
                    start = model.replace(**{NUGGET: 0.0, name: rough})
                    patient = len(self.observations) <= EXACT_GRID_LOCATIONS
                    again, moved, _ = self.search(table, start, patient=patient)
                    if again > value + self.tolerance:
                        value, model = again, moved
        return value, model

    def _without_nuggets(self, value, model):
        """Return the better of a maximum of several variables and those without a small nugget."""
        table, scores = self.table, self.choice == "scoring" and self.evaluator.scoring
        for name in self.vanishing(table):
            nugget, field = model.parameter(name), model.variance_of(name)
            if not (nugget.where and 0 < nugget.value < SMALL_NUGGET_RATIO * field):
                continue
            start, done = model.replace(**{name: 0.0}), False
            if scores:
                coordinates = self._coordinates(table, start)
                stops = partial(self._leads_to, coordinates, value, model)
                best, _ = self._ascend(table, coordinates, start, HURRIED_EVALUATIONS, stops)
                if np.isfinite(best.value):
                    start, done = best.model, stops(best, 0.0)
            if not done:
                again, moved, _ = self.search(table, start, step=NEARBY_STEP)
                if again > value + self.tolerance:
                    value, model = again, moved
        return value, model

    def _leads_to(self, coordinates, value, model, point, _):
        """Whether a search leads from a point to a maximum that is known, a model of this value.

        It does if ℓ rises to it as along a parabola, and less without the variances that are 0; and
        probably if it is far above.
        """
        rise, step = value - point.value, coordinates.step(point.model, model)
        along, others = 0.5 * point.score @ step, coordinates.shares(point.model) != 0
        parabolic = 0 < rise < QUASI_NEWTON_GAIN and abs(along - rise) < PARABOLA_DEVIATION * rise
        if parabolic:
            score, information = point.score[others], point.information[np.ix_(others, others)]
            parabolic = newton_gain(score, information) < rise / 2
        return parabolic or abs(rise) < self.tolerance or rise > LARGEST_LOSS

    def _inside(self, table, model, name, side):
        """Return the value of a parameter away from the bound on which it is."""
        value = model.parameters()[name]
        if table.parameters[name].transform == "log":
            if side == "lower":
                return value * INTERIOR_START_FACTOR
            return value / INTERIOR_START_FACTOR
        lower, upper = table.box_at(name, model)
        return value + ((upper if side == "lower" else lower) - value) / 3

    def _with_microscale(self, value, model):
        """Return the better of the best model without microscale variation and one with it.

        The variance of the noise alone is that of the deviations of replicates from their means.
        """
        groups = Groups.of_inputs(self.observations.inputs, self.design)
        z = self.evaluator.values.at(model.transform).z
        spare = len(groups.of) - len(groups)
        alone = float((groups.deviations(z) ** 2).sum()) / spare if spare else 0.0
        starts = [model]
        if 0 < alone < model.nugget and NUGGET in self.whole.free:
            starts.append(model.replace(**{NUGGET: alone, MICROSCALE: model.nugget - alone}))
        best = value, model
        for start in starts:
            again, moved, _ = self.search(self.whole, start, step=NEARBY_STEP)
            if again > best[0] + self.tolerance:
                best = again, moved
        return best

    def _least_rise(self, table, model):
        """Return the rise of ℓ for which a model replaces one of a table.

        A variance of noise that raises ℓ by less than `FLAT_RISE` is not identified.
        """
        values = {} if model is None else model.parameters()
        added = any(not held and values.get(name, 0.0) > 0 for name, held in table.fixed.items())
        return max(self.tolerance, FLAT_RISE) if added else self.tolerance


def nugget_ratio(model):
    """Return the nugget as a multiple of the variance."""
    return model.nugget / model.largest_variance


def of_unit_variance(model):
    """Return the model of R, where Σ = σ²R."""
    values = model.parameters()
    noise = {name: values[name] / values[VARIANCE] for name in NOISE if name in values}
    return model.replace(**{VARIANCE: 1.0}, **noise)
