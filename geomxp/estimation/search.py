"""Maximise a function: NLopt's searches, Newton's method, Fisher scoring.

A model without a likelihood has the value -inf, so that a search avoids it.
"""

from dataclasses import dataclass, replace

import numpy as np

from ..covariance.base import Covariance
from ..errors import MissingPackage
from .names import NUGGET

SEARCHES = ("scoring", "bobyqa", "lbfgs", "slsqp")
"""Fisher scoring, and NLopt's algorithms."""

INITIAL_STEP = 0.4
"""First step of the search, in logarithms (in units of 30 degrees for an angle)."""


@dataclass(frozen=True)
class Maximum:
    """End of a search; `limited` if the limit on evaluations stopped it."""

    point: np.ndarray
    value: float
    limited: bool


def maximize(
    function,
    start,
    lower,
    upper,
    *,
    scales=None,
    tolerance=1e-6,
    evaluations=1000,
    step=INITIAL_STEP,
    slope=None,
    search="bobyqa",
):
    """Maximise a function in a box.

    Through NLopt: without derivatives BOBYQA (Powell 2009), and for one variable, which BOBYQA does
    not take, Sbplx (Rowan 1990); with them L-BFGS (Nocedal 1980) or SLSQP (Kraft 1994). The
    function may return -inf. `scales` are first steps in units of `step`, `tolerance` is absolute,
    and `slope` is the gradient at the last point where the function was evaluated.
    """
    d, start = len(start), np.array(start, dtype=float)
    if d == 0 or evaluations < 1:
        return Maximum(start, function(start) if evaluations else -np.inf, d > 0)
    nlopt = _nlopt(search)
    best, worst, failures = [-np.inf, start], [np.inf], []

    def objective(x, gradient):
        try:
            value = function(np.array(x))
            if gradient.size:
                gradient[:] = np.nan_to_num(slope(np.array(x))) if np.isfinite(value) else 0.0
        except BaseException as error:
            failures.append(error)
            raise
        if value > best[0]:
            best[:] = [value, np.array(x)]
        if np.isfinite(value):
            worst[0] = min(worst[0], value)
            return value
        # a quadratic model needs finite values: return less than the worst one so far
        return worst[0] - 0.1 * abs(worst[0]) - 10 if np.isfinite(worst[0]) else -1e10

    algorithm = {"lbfgs": nlopt.LD_LBFGS, "slsqp": nlopt.LD_SLSQP}.get(
        search, nlopt.LN_BOBYQA if d > 1 else nlopt.LN_SBPLX
    )
    search = nlopt.opt(algorithm, d)
    search.set_max_objective(objective)
    search.set_lower_bounds(lower)
    search.set_upper_bounds(upper)
    search.set_ftol_abs(tolerance)
    search.set_xtol_abs(1e-7)
    search.set_maxeval(min(int(evaluations), MOST_NLOPT_EVALUATIONS))
    room = np.maximum(upper - lower, 1e-6)
    search.set_initial_step(
        np.minimum(step * (np.ones(d) if scales is None else scales), 0.4 * room)
    )
    try:
        search.optimize(np.clip(start, lower, upper))
        limited = search.last_optimize_result() == nlopt.MAXEVAL_REACHED
    except (RuntimeError, ValueError, *_failures(nlopt)):
        if failures:
            # raised by the likelihood, not by the search
            raise
        # stopped by rounding: keep the best point, which Newton's method checks
        limited = False
    return Maximum(best[1], best[0], limited)


def _nlopt(search):
    """Import NLopt, which Fisher scoring needs only if it does not converge."""
    try:
        import nlopt
    except ImportError as error:
        raise MissingPackage(
            f"the search by {search} needs NLopt, which cannot be imported ({error}): "
            "pip install nlopt."
        ) from error
    return nlopt


def _failures(nlopt):
    """Return NLopt's exceptions for a search that cannot continue; they depend on its version."""
    names = "RoundoffLimited", "runtime_error", "logic_error"
    return tuple(vars(nlopt)[name] for name in names if name in vars(nlopt))


@dataclass(frozen=True)
class Summit:
    """The neighbourhood of a maximum: point, value, gradient (score) and minus the Hessian.

    `gain` is promised by one more Newton step, ½ s'I⁻¹s; inf if I is not positive definite.
    """

    point: np.ndarray
    value: float
    score: np.ndarray
    information: np.ndarray
    gain: float


def climb(
    function, score, information, point, *, tolerance, steps, slack=0.0, renewed=2e-4, scatter=0.0
):
    """Climb from a point near the maximum to the `Summit` by Newton's method.

    It stops if the next step promises a gain below `tolerance`, or one that errors of the score
    hide, where the function scatters by `scatter`. The information is computed again after the
    distance `renewed`. `slack` is the loss that a step may have because the function scatters. A
    step that halves the promised gain may have `ROUNDING_LOSS`.
    """
    if not len(point):
        # all parameters are fixed: derivatives would cost more than the value
        return Summit(point, function(point), np.zeros(0), np.zeros((0, 0)), 0.0)
    # by formula the score comes with the information, and the value with the score
    curvature = information(point)
    slope, value = score(point), function(point)
    before, gain = np.inf, newton_gain(slope, curvature)
    moved = 0.0
    for _ in range(steps):
        step = _ascent(slope, curvature)
        if not 0.5 * slope @ step > tolerance or is_hidden(gain, before, scatter, True):
            break
        step /= max(1.0, np.abs(step).max())
        for fraction in (1.0, 0.5, 0.1, 0.01):
            candidate = point + fraction * step
            new_slope, new_value = score(candidate), function(candidate)
            loss, nearer = value - new_value, newton_gain(new_slope, curvature) < gain / 2
            if loss < slack or (nearer and loss < ROUNDING_LOSS):
                break
        else:
            break
        point, moved = candidate, moved + fraction * float(np.abs(step).max())
        if moved > renewed:
            curvature, moved = information(point), 0.0
        slope, value = new_slope, new_value
        before, gain = gain, newton_gain(slope, curvature)
    return Summit(point, value, slope, curvature, gain)


def _ascent(slope, information):
    """Return the Newton step I⁻¹s, with |eigenvalues| if I is not positive definite."""
    if not len(slope) or not (np.isfinite(information).all() and np.isfinite(slope).all()):
        return np.zeros(len(slope))
    values, vectors = np.linalg.eigh(information)
    # small curvatures are lost in differences of large scores
    floor = max(min(1e-6 * np.abs(values).max(), 1e-4), 1e-12)
    values = np.maximum(np.abs(values), floor)
    return vectors @ ((vectors.T @ slope) / values)


def information_at(score, point, difference):
    """Return minus the Hessian by central differences of the score, (d, d), symmetric."""
    rows = []
    for j in range(len(point)):
        away = np.zeros(len(point))
        away[j] = difference
        rows.append((score(point - away) - score(point + away)) / (2 * difference))
    rows = np.array(rows).reshape(len(point), len(point))
    return (rows + rows.T) / 2


def is_hidden(gain, before, scatter, closed=False):
    """Whether a promised gain is within the error of the score, given the scatter of ℓ.

    Newton steps divide the promised gain by more than `LEAST_CONTRACTION` until it is the error of
    the score alone. With the observed information, `closed`, one such step has been enough.
    """
    variance = scatter**2
    stalled = gain * LEAST_CONTRACTION > before
    return gain < variance * (1.0 if stalled else HIDDEN_GAIN_SHARE if closed else 0.0)


def newton_gain(slope, information):
    """Return the gain ½ s'I⁻¹s of a Newton step; inf if I is not positive definite."""
    if not len(slope):
        return 0.0
    if not np.isfinite(information).all() or not np.isfinite(slope).all():
        return np.inf
    if np.linalg.eigvalsh(information)[0] <= 0:
        return np.inf
    try:
        return 0.5 * float(slope @ np.linalg.solve(information, slope))
    except np.linalg.LinAlgError:
        # singular to working precision, with an eigenvalue that rounding has made positive
        return np.inf


# Fisher scoring
#
# Value, score and information come from one pass over the data, so that a few steps replace a
# hundred evaluations of a search without derivatives: with the average information of the exact
# likelihood (Johnson and Thompson 1995), and with the expected information of Vecchia's
# approximation (Guinness 2021, Stat. Comput. 31:25).


MOST_NLOPT_EVALUATIONS = 2**31 - 1
"""The largest limit that NLopt takes."""

MOST_SCORING_STEPS, MOST_SCORING_HALVINGS = 40, 8
"""Limits on steps, and on the halvings of each."""

ONE_STEP_GAIN, LAST_STEP_SHARE = 5e-5, 1e-2
"""Promised gain below which one step reaches a tolerance of 1e-6; share of the tolerance above
which a last step is made although the search has converged, because the observed information comes
with it."""

QUASI_NEWTON_GAIN = 10.0
"""Promised gain below which changes of the score correct the information."""

LONGEST_LOG_STEP, LONGEST_NUGGET_STEP = 1.0, 3.0
"""Longest step of a logarithm, and of the logarithm of the nugget."""

NEAR_LIMIT_VALUE = 0.02
"""Value below which a parameter without a logarithm may step to its limit, see `_least`; a nugget,
in units of the field's variance, see `_gone`."""

FLAT_INFORMATION = 1e-4
"""Information (curvature in the logarithm of a parameter) below which ℓ is flat."""

FLAT_RISE = FLAT_INFORMATION / 2
"""Increase of ℓ by a variance below which the variance is not identified: the information on its
logarithm is about twice the rise from a variance of 0."""

LARGEST_VANISHING_SHARE, LONGEST_FALL = 1e-3, 0.95
"""Share of its field's variance up to which a variance steps to 0, and the part of itself by which
a step may decrease a larger one: a longer step may pass a maximum."""

REPEATED_ZERO_FACTOR = 1e-2
"""Factor by which a variance falls after a step to 0 has failed, before the next such step."""

ZIGZAG_RISE = 1e-3
"""Increase of ℓ by a step below which steps along a bound are taken to zigzag."""

ROUNDING_LOSS = 1e-3
"""Loss of ℓ by a Newton step that may come from rounding, where Σ is ill-conditioned."""

SCATTER_DEVIATIONS, HIDDEN_GAIN_SHARE, LEAST_CONTRACTION = 4.0, 0.1, 4.0
"""Standard deviations of ℓ by coarse formats by which a step may lower it; promised gain that is
ignored next to a maximum, in units of their square; factor by which a step divides larger gains."""

BOUND_TEST_STEP = 1e-6
"""Step that tells whether a coordinate is on a bound."""


@dataclass(frozen=True)
class Point:
    """A point of the ascent: score and information in its coordinates; value -inf without them."""

    model: Covariance
    value: float
    score: np.ndarray | None = None
    information: np.ndarray | None = None
    # standard deviation of the error of the value by coarse formats
    scatter: float = 0.0


def ascend(
    evaluate,
    within,
    coordinates,
    model,
    *,
    tolerance,
    evaluations,
    enough=0.0,
    curved=False,
    stops=None,
):
    """Ascend by Fisher scoring; return the best `Point` and whether it converged.

    `evaluate` maps a model, and whether to compute the observed information, to a `Point`, which
    may have a better variance; `within` maps a model to one within the bounds, or to None. With
    `curved` the observed information is computed once, before the probably last step.

    It converged if one more step promises a gain below `tolerance`, or one that errors of the score
    by coarse formats hide; or below `enough`, and no step increases ℓ. A step may lower ℓ by at
    most `SCATTER_DEVIATIONS` times its scatter in these formats. The search ends, not converged,
    where stops(point, rise by the last step) is true.

    Variances in `coordinates.linear` have an active set at 0. A step that would make one of them
    negative leads to 0, and at 0 it moves only if ℓ rises with it. Where Σ has no Cholesky factor
    at 0 the search goes on towards it.
    """
    best, secants, risen, promised = evaluate(model, False), [], np.inf, np.inf
    closed = False
    # variances for which a step to 0 has failed, and their shares then
    failed = {}
    for _ in range(MOST_SCORING_STEPS):
        if not np.isfinite(best.value):
            return best, False
        if stops is not None and stops(best, risen):
            return best, False
        free = ~_held(within, coordinates, best)
        step = np.zeros(len(free))
        step[free] = _step(best.score[free], best.information[np.ix_(free, free)])
        before, promised = promised, 0.5 * best.score @ step
        flat, gone = _gone(coordinates, best, step, free, failed)
        hidden = is_hidden(promised, before, best.scatter, closed)
        converged = (promised < tolerance or hidden) and not gone.any()
        if converged and not (curved and promised > LAST_STEP_SHARE * tolerance):
            return best, True
        close = curved and promised < ONE_STEP_GAIN and not gone.any()
        curved, closed = curved and not close, closed or close
        step = _step_within(within, coordinates, best, step, free, flat, gone, failed)
        for _ in range(MOST_SCORING_HALVINGS):
            if evaluations < 2:
                return best, converged
            candidate = within(coordinates.moved(best.model, step))
            change, zeros = np.nan, gone & (step == -1)
            if candidate is not None:
                reached = evaluate(candidate, close)
                evaluations -= 1
                change = reached.value - best.value
                scatter = SCATTER_DEVIATIONS * max(best.scatter, reached.scatter)
                if change > -max(FLAT_RISE * zeros.any(), scatter):
                    break
            if converged or (promised < tolerance and zeros.any()):
                # its gain is too small for a shorter step
                return best, True
            if zeros.any() and (change == -np.inf or flat.any()):
                known = zip(coordinates.names, coordinates.shares(best.model), strict=True)
                failed |= {n: x for (n, x), zero in zip(known, zeros, strict=True) if zero}
                if flat.any():
                    # it was not flat: another step from the same point
                    reached = best
                    break
                step = LONGEST_FALL * step
            else:
                step = step * shorter(best.score @ step, change)
        else:
            return best, promised < enough
        risen = reached.value - best.value
        # far from the maximum the parabola of a secant misleads
        near = promised < QUASI_NEWTON_GAIN
        secant = Secant.between(coordinates, best, reached)
        secants = [*secants, secant][-len(free) :] if near else []
        best = _with_secants(coordinates, reached, secants)
    return best, False


def _gone(coordinates, point, step, free, failed):
    """Return masks of the positive variances that are to become 0.

    In the first are small ones on which ℓ hardly depends: it does not rise with them, and the
    information on their logarithms, with the other parameters unknown, is below
    `FLAT_INFORMATION`. In the second are small ones that the step would make negative as well.
    `failed` maps variances for which a step to 0 has failed to their `shares` then.
    """
    shares, information = coordinates.shares(point.model), point.information
    flat, gone = np.zeros(len(step), dtype=bool), np.zeros(len(step), dtype=bool)
    for k in np.flatnonzero(free & (shares > 0)):
        if shares[k] > REPEATED_ZERO_FACTOR * failed.get(coordinates.names[k], np.inf):
            continue
        gone[k] = step[k] <= -1 and shares[k] <= LARGEST_VANISHING_SHARE
        if point.score[k] > FLAT_RISE:
            continue
        flat[k] = information[k, k] < FLAT_INFORMATION
        if shares[k] <= NEAR_LIMIT_VALUE:
            others = free & (np.arange(len(step)) != k)
            beside = information[others, k]
            known = beside @ _step(beside, information[np.ix_(others, others)])
            flat[k] |= information[k, k] - known < FLAT_INFORMATION
    return flat, gone | flat


def _step_within(within, coordinates, point, step, free, flat, gone, failed):
    """Return a step shortened, and changed where it meets bounds.

    A coordinate that reaches a bound is held there, and the others move to the maximum of the
    quadratic model conditional on it. `free` is a mask of the coordinates that move; `flat`, `gone`
    and `failed` are those of `_gone`.
    """
    table, origin = coordinates.table, coordinates.point(point.model)
    score, information = point.score, point.information
    if flat.any():
        # along the flat direction only
        score = np.zeros(len(step))
    # the largest fall of a variance, in units of its value
    deepest = np.where(gone, -1.0, -LONGEST_FALL)
    falling = coordinates.shares(point.model) > 0
    cut = flat if flat.any() else free & falling & (step <= deepest)
    while cut.any():
        step, free = np.where(cut, deepest, np.where(free, 0.0, step)), free & ~cut
        rest = score - information @ step
        step[free] = _step(rest[free], information[np.ix_(free, free)])
        cut = free & falling & (step <= deepest)
    straight = coordinates.straight
    named = zip(coordinates.names, origin, strict=True)
    least = np.array([_least(table[name], value) for name, value in named]) - origin
    step = shortened = _shortened(step, coordinates, point.model)
    while True:
        inside = within(coordinates.moved(point.model, np.maximum(step, least)))
        if inside is None:
            break
        reached = coordinates.step(point.model, inside)
        met = free & straight & (np.abs(reached - step) > BOUND_TEST_STEP / 2)
        if not met.any():
            break
        step, free = np.where(met, reached, np.where(free, 0.0, step)), free & ~met
        rest = score - information @ step
        step[free] = _step(rest[free], information[np.ix_(free, free)])
        step = _shortened(step, coordinates, point.model)
    return step if flat.any() or point.score @ step > 0 else shortened


def _least(parameter, value):
    """Return the coordinate to which a step may decrease a parameter.

    A parameter without a logarithm, whose lower limit is allowed, falls at most to a third in one
    step, until it is below `NEAR_LIMIT_VALUE`.
    """
    held = parameter.transform == "identity" and parameter.closed and value > NEAR_LIMIT_VALUE
    return value / 3 if held else -np.inf


def _shortened(step, coordinates, model):
    """Return a step that is not too long in any coordinate."""
    shares = coordinates.shares(model)
    longest = [LONGEST_NUGGET_STEP if n == NUGGET else LONGEST_LOG_STEP for n in coordinates.names]
    # a small variance may grow up to this share of the field's
    large = NEAR_LIMIT_VALUE / np.where(shares > 0, shares, 1.0)
    longest = np.where(coordinates.linear, np.maximum(LONGEST_NUGGET_STEP, large), longest)
    return step / max(1.0, np.max(np.abs(step) / longest, initial=0.0))


def _held(within, coordinates, point):
    """Return a mask of the coordinates on bounds across which ℓ rises.

    Variances of 0 are held where a step promises to raise ℓ by less than `FLAT_RISE`.
    """
    score, known = point.score, np.maximum(np.diag(point.information), 1e-300)
    beyond = within(coordinates.moved(point.model, BOUND_TEST_STEP * np.sign(score)))
    zero = coordinates.shares(point.model) == 0
    held = zero & ((score <= 0) | (0.5 * score**2 < FLAT_RISE * known))
    if beyond is None:
        return held
    stays = np.abs(coordinates.step(point.model, beyond)) < BOUND_TEST_STEP / 2
    return held | (stays & coordinates.straight & ~zero & (score != 0))


def shorter(slope, change):
    """Return the factor, 0.1 to 0.5, by which to shorten a step along which ℓ does not rise.

    It leads to the maximum of the parabola with this slope at the origin (∂ℓ/∂fraction of the step,
    positive) and this change ≤ 0 of ℓ along the whole step; 0.5 if the change is not finite.
    """
    if not np.isfinite(change):
        return 0.5
    return min(max(0.5 * slope / (slope - change), 0.1), 0.5)


@dataclass(frozen=True)
class Secant:
    """A step, and by how much it decreases the score, in units that all points share."""

    step: np.ndarray
    change: np.ndarray

    @classmethod
    def between(cls, coordinates, point, reached):
        """Return the secant of two points."""
        scores = [
            np.linalg.lstsq(coordinates.common(at.model).T, at.score, rcond=None)[0]
            for at in (point, reached)
        ]
        step = coordinates.common_step(point.model, reached.model)
        return cls(step, scores[0] - scores[1])

    def at(self, coordinates, point):
        """Return step and change in the coordinates at a point."""
        common = coordinates.common(point.model)
        step = np.linalg.lstsq(common, self.step, rcond=None)[0]
        return step, common.T @ self.change + coordinates.bend(point.model, point.score) @ step


def _with_secants(coordinates, point, secants):
    """Return a point whose information agrees with the changes of the score (BFGS update).

    For a misspecified model the scoring information differs from the Hessian, and its steps alone
    converge slowly.
    """
    information = point.information
    for secant in secants:
        step, change = secant.at(coordinates, point)
        along, curvature = information @ step, change @ step
        expected = step @ along
        # otherwise the secant is too long for a quadratic approximation
        if expected > 0 and 0.05 * expected < curvature < 20 * expected:
            information = information + np.outer(change, change) / curvature
            information -= np.outer(along, along) / expected
    return replace(point, information=information)


def _step(score, information):
    """Return I⁻¹s, without movement in directions of no information."""
    step, known = np.zeros(len(score)), np.diag(information) > 0
    # rounding may leave a negative information where Σ is nearly singular
    score, information = score[known], information[np.ix_(known, known)]
    scale = np.sqrt(np.diag(information))
    values, vectors = np.linalg.eigh(information / np.outer(scale, scale))
    inverse = np.where(values > 1e-12, 1.0 / np.maximum(values, 1e-12), 0.0)
    step[known] = vectors @ (inverse * (vectors.T @ (score / scale))) / scale
    return step
