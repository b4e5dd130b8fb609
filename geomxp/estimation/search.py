"""Maximise a log-likelihood: starting points, Fisher scoring, NLopt's searches, Newton's method.

During a search a model without a likelihood has the value -inf, so that the search avoids it.
"""

import warnings
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from ..covariance.base import Covariance
from ..covariance.ordering import order_places
from ..errors import MissingPackage, NotPositiveDefinite
from ..likelihood.base import profile_variance, rescale_variance
from ..likelihood.exact import Exact
from ..likelihood.vecchia import Vecchia
from .monitor import Monitor
from .parameters import NUGGET, SCALE

SEARCHES = ("scoring", "bobyqa", "lbfgs", "slsqp")
"""Fisher scoring (`geomxp.estimation.search`), and NLopt's algorithms."""

INITIAL_STEP = 0.4
"""First step of the search, in logarithms (in units of 30 degrees for an angle)."""


@dataclass(frozen=True)
class Maximum:
    """End of a search.

    Parameters
    ----------
    point : ndarray
    value : float
    limited : bool
        Whether it was stopped by the limit on evaluations.
    """

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
    not take, Sbplx (Rowan 1990); with them L-BFGS (Nocedal 1980) or SLSQP (Kraft 1994).

    Parameters
    ----------
    function : callable
        (d,) ndarray to float; may return -inf.
    start, lower, upper : (d,) ndarray
    scales : (d,) ndarray, optional
        First steps in units of `step`; 1 if not given.
    tolerance : float
        Absolute, on the function's value.
    evaluations : int
        Limit.
    slope : callable, optional
        Maps (d,) ndarray to the gradient, (d,) ndarray, at the last point where the function was
        evaluated; for searches that use it.
    search : {"bobyqa", "lbfgs", "slsqp"}

    Returns
    -------
    Maximum

    Raises
    ------
    MissingPackage
        If NLopt cannot be imported.
    """
    d = len(start)
    if d == 0 or evaluations < 1:
        return Maximum(
            np.asarray(start, dtype=float), function(start) if evaluations else -np.inf, d > 0
        )
    nlopt = _nlopt(search)
    best = [-np.inf, np.array(start, dtype=float)]
    worst = [np.inf]

    failures = []

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
    search.set_maxeval(int(evaluations))
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
    """The neighbourhood of a maximum.

    Parameters
    ----------
    point : (d,) ndarray
    value : float
    score : (d,) ndarray
        Gradient.
    information : (d, d) ndarray
        Minus the Hessian.
    gain : float
        Promised by one more Newton step, ½ s'I⁻¹s; inf if the information is not positive definite.
    """

    point: np.ndarray
    value: float
    score: np.ndarray
    information: np.ndarray
    gain: float


def climb(function, score, information, point, *, tolerance, steps=12, slack=0.0, renewed=2e-4):
    """Climb to the maximum by Newton's method.

    Parameters
    ----------
    function : callable
        (d,) ndarray to float.
    score : callable
        (d,) ndarray to its gradient, (d,) ndarray.
    information : callable
        (d,) ndarray to minus the Hessian, (d, d) ndarray.
    point : (d,) ndarray
        Near the maximum.
    tolerance : float
        Stop if the next step promises a smaller gain.
    steps : int
        Limit.
    renewed : float
        Distance, in the coordinates, after which the information is computed again.
    slack : float
        Loss that a step may have: the scatter of the function in coarse formats.

    Returns
    -------
    Summit
    """
    # by formula the score comes with the information, and the value with the score
    curvature = information(point)
    slope, value = score(point), function(point)
    gain = _promised(slope, curvature)
    moved = 0.0
    for _ in range(steps):
        step = _ascent(slope, curvature)
        if not 0.5 * slope @ step > tolerance:
            break
        step /= max(1.0, np.abs(step).max())
        for fraction in (1.0, 0.5, 0.1, 0.01):
            candidate = point + fraction * step
            found = score(candidate), function(candidate)
            if found[1] > value - slack:
                break
        else:
            break
        point, moved = candidate, moved + fraction * float(np.abs(step).max())
        if moved > renewed:
            curvature, moved = information(point), 0.0
        slope, value = found
        gain = _promised(slope, curvature)
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


def _promised(slope, information):
    """Return the gain ½ s'I⁻¹s of a Newton step; inf if I is not positive definite."""
    if not len(slope):
        return 0.0
    if not np.isfinite(information).all() or not np.isfinite(slope).all():
        return np.inf
    if np.linalg.eigvalsh(information)[0] <= 0:
        return np.inf
    return 0.5 * float(slope @ np.linalg.solve(information, slope))


# Fisher scoring
#
# Value, score and information come from one pass over the data, so that a few steps replace a
# hundred evaluations of a search without derivatives: with the average information of the exact
# likelihood (Johnson and Thompson 1995), and with the expected information of Vecchia's
# approximation (Guinness 2021, Stat. Comput. 31:25).


STEPS, HALVINGS = 40, 8
"""Limits on steps, and on the halvings of each."""

CLOSE = 5e-5
"""Promised gain below which one step reaches a tolerance of 1e-6."""

LONGEST, OF_NUGGET = 1.0, 3.0
"""Longest step of a logarithm, and of the logarithm of the nugget."""


@dataclass(frozen=True)
class Point:
    """A point of the ascent.

    Parameters
    ----------
    model : Covariance
    value : float
        Log-likelihood; -inf, without a score, if there is none.
    score : (k,) ndarray or None
        In the coordinates of the ascent.
    information : (k, k) ndarray or None
    """

    model: Covariance
    value: float
    score: np.ndarray | None = None
    information: np.ndarray | None = None


def ascend(
    evaluate,
    allowed,
    coordinates,
    model,
    *,
    tolerance,
    evaluations,
    enough=0.0,
    vanishing=None,
    curved=False,
):
    """Ascend by Fisher scoring.

    Parameters
    ----------
    evaluate : callable
        Maps a model, and whether to compute the observed information, to a `Point`, which may have
        a better variance.
    allowed : callable
        Whether a model lies within the bounds.
    coordinates : Coordinates
    model : Covariance
        The start.
    tolerance : float
        Converged if one more step promises a smaller gain.
    evaluations : int
        Limit.
    enough : float
        Converged also if a step promises a smaller gain and no step increases ℓ.
    curved : bool
        Whether to compute the observed information once, before the probably last step.
    vanishing : float, optional
        Converged if the nugget is below this share of the variance and still falls; the caller
        compares with a nugget of 0.

    Returns
    -------
    best : Point
    converged : bool
    """
    best, secants = evaluate(model, False), []
    for _ in range(STEPS):
        if not np.isfinite(best.value):
            return best, False
        step = _step(best.score, best.information)
        promised = 0.5 * best.score @ step
        if promised < tolerance:
            return best, True
        close, curved = curved and promised < CLOSE, curved and not promised < CLOSE
        falls = vanishing is not None and best.score[coordinates.names.index(NUGGET)] < 0
        if falls and best.model.nugget < vanishing * best.model.largest_variance:
            return best, True
        longest = [OF_NUGGET if name == NUGGET else LONGEST for name in coordinates.names]
        step = step / max(1.0, np.max(np.abs(step) / longest))
        origin = coordinates.point(best.model)
        for _ in range(HALVINGS):
            if evaluations < 2:
                return best, False
            candidate = coordinates.model(origin + step)
            if allowed(candidate):
                found = evaluate(candidate, close)
                evaluations -= 1
                if found.value > best.value:
                    break
            step = step / 2
        else:
            return best, promised < enough
        way = coordinates.point(found.model) - coordinates.point(best.model)
        secants = [*secants, (way, best.score - found.score)][-len(way) :]
        best = _with_secants(found, secants)
    return best, False


def _with_secants(point, secants):
    """Return a point whose information agrees with the changes of the score (BFGS update).

    For a misspecified model the scoring information differs from the Hessian, and its steps alone
    converge slowly.
    """
    information = point.information
    for step, change in secants:
        along, curvature = information @ step, change @ step
        expected = step @ along
        # otherwise the secant is too long for a quadratic approximation
        if expected > 0 and 0.05 * expected < curvature < 20 * expected:
            information = information + np.outer(change, change) / curvature
            information -= np.outer(along, along) / expected
    return replace(point, information=information)


def _step(score, information):
    """Return I⁻¹s, without movement in directions of no information."""
    scale = np.sqrt(np.maximum(np.diag(information), 1e-300))
    values, vectors = np.linalg.eigh(information / np.outer(scale, scale))
    inverse = np.where(values > 1e-12, 1.0 / np.maximum(values, 1e-12), 0.0)
    return vectors @ (inverse * (vectors.T @ (score / scale))) / scale


def scorer(problem, table, coordinates):
    """Return the function that `ascend` needs: a model to a `Point` at the best variance.

    α and Σ⁻¹ divide by c, ∂Σ by logarithms multiplies: α'∂Σα and AI divide, tr(Σ⁻¹∂Σ) stays. Close
    to the maximum c is 1 to some digits, and the model stays the one that the evaluator caches.
    """
    names = tuple(coordinates.names)

    def evaluate(model, close):
        try:
            found = problem.evaluator.derivatives(model, names, curvature=close)
        except NotPositiveDefinite as error:
            problem.complaint = str(error)
            return Point(model, -np.inf)
        evaluation, units, c = problem.evaluator(model), coordinates.jacobian(model), 1.0
        point = Point(model, -np.inf)
        if np.isfinite(evaluation.log_likelihood):
            if found.rescalable and table.profiled and not close:
                p = len(evaluation.coefficients) if evaluation.reml else 0
                c = evaluation.quadratic_form / (evaluation.n - p)
                evaluation, model = rescale_variance(evaluation, c), model.scaled(c)
            score = found.score_of(c) * units
            information = found.information * np.outer(units, units) / c
            point = Point(model, evaluation.log_likelihood, score, information)
            if not (np.isfinite(score).all() and np.isfinite(information).all()):
                # the inverse of a tiny variance overflows
                point = Point(model, -np.inf)
        problem.monitor.record(point.model, point.value)
        return point

    return evaluate


def of_unit_variance(model):
    """Return the model of R, where Σ = σ²R."""
    size = model.parameters()[SCALE]
    return model.replace(**{SCALE: 1.0, NUGGET: model.nugget / size})


# Starting points: the best of a coarse grid, improved by Vecchia's approximation


SUBSAMPLE = 300
"""Locations on which starts are compared."""

ENOUGH, NEIGHBOURS, EVALUATIONS, TOLERANCE = 1000, 15, 60, 1e-2
"""Locations above which Vecchia's approximation finds the start of an exact search; options."""

RUNS, RUN = 250, 8
"""Subsample without Vecchia's approximation: number of runs, and of successive locations along
Hilbert's curve in each, so that long and short distances occur."""


def starts(problem, start, count, seed):
    """Return the models to start from: the best of the candidates on a subsample.

    Parameters
    ----------
    problem : Problem
    start : dict of str to float
        Values for some of the free parameters.
    count : int
    seed : int
        Of the subsample.

    Returns
    -------
    list of Covariance
    """
    candidates = list(problem.table.candidates(start))
    if len(candidates) > 1:
        candidates = _ranked(problem, candidates, seed)
    return candidates[:count]


def _ranked(problem, candidates, seed):
    n, p = problem.design.shape
    evaluator = problem.evaluator
    if n > SUBSAMPLE + p:
        rows = np.sort(np.random.default_rng(seed).choice(n, SUBSAMPLE + p, replace=False))
        part, design = _part(problem, rows)
        if design is not None:
            evaluator = problem.method.of_rows(rows).prepare(part, design, problem.reml)
    values = []
    for model in candidates:
        if problem.table.profiled:
            values.append(profile_variance(evaluator(of_unit_variance(model)))[1])
        else:
            values.append(evaluator(model).log_likelihood)
    order = np.argsort([-v if np.isfinite(v) else inf for v in values], kind="stable")
    return [candidates[k] for k in order]


def _part(problem, rows):
    """Return some of the observations and their design; (None, None) if its rank is lower."""
    design = problem.design[rows]
    scaled = design / np.abs(design).max(axis=0, initial=1e-300)
    if np.linalg.matrix_rank(scaled) < design.shape[1]:
        return None, None
    with warnings.catch_warnings():
        # the user has been warned about all coordinates
        warnings.simplefilter("ignore")
        return problem.observations.subset(rows), design


def approach(problem, model):
    """Return the maximum of Vecchia's approximation near a model, if evaluations are expensive.

    It costs about one exact evaluation and lies within a fraction of the standard errors of the
    exact maximum. Without numba, and from 4,000 locations on, the maximum of the exact likelihood
    of 2,000 locations is returned, which lies within a few standard errors.

    Parameters
    ----------
    problem : Problem
    model : Covariance

    Returns
    -------
    model : Covariance
        The given one for few locations, or if the approximation has no maximum near it.
    near : bool
        Whether it has moved.
    """
    places = len(problem.observations) - problem.design.shape[1]
    if not (problem.table.free and problem.evaluator.expensive) or places < ENOUGH:
        return model, False
    try:
        rough = _rough(problem, problem.observations, problem.design, Vecchia(NEIGHBOURS))
    except MissingPackage:
        if places < 2 * RUNS * RUN:
            return model, False
        part, design = _part(problem, _spread(problem.observations))
        if design is None:
            return model, False
        # in FP64 and in one memory, whatever the formats and devices of the search
        rough = _rough(problem, part, design, Exact(on=problem.evaluator.device.name))
    value, reached, limited = rough.search(problem.table, model, evaluations=EVALUATIONS)
    found = reached is not None and np.isfinite(value) and not limited
    return (reached, True) if found else (model, False)


def _rough(problem, observations, design, method):
    """Return a problem with the same parameters and a coarse tolerance."""
    monitor = Monitor(EVALUATIONS, lambda *pair: pair, None, "", False)
    about = observations, design, problem.reml, method, problem.table
    return type(problem)(*about, monitor, TOLERANCE)


def _spread(observations):
    """Return the rows of `RUNS` runs of nearby locations, spread over all."""
    order = order_places(observations.locations, "hilbert", observations.metric)
    first = np.linspace(0, len(order) - RUN, RUNS).astype(np.int64)
    return np.sort(order[first[:, None] + np.arange(RUN)].ravel())


# Searches from several starts, one after the other or as tasks on a cluster


NEAR = 0.1
"""First step of a search without derivatives near a maximum."""


def searched(problem, candidates, evaluations, tasks):
    """Yield the end of a search from each start: (log-likelihood, model or None, limited).

    Parameters
    ----------
    problem : Problem
        Its monitor records all evaluations, in the order of the starts.
    candidates : list of Covariance
    evaluations : int
        Limit for each.
    tasks : Tasks
    """
    if tasks.local:
        for candidate in candidates:
            yield _from(problem, candidate, min(evaluations, problem.monitor.left))
        return
    about = problem.observations, problem.design, problem.reml, problem.method, problem.table
    common = type(problem), about, (problem.tolerance, problem.choice), evaluations
    line = problem.monitor.line
    line.expect(len(candidates), "starts")
    for found, *recorded, complaint in tasks.over(_alone, common, candidates, line.advance):
        problem.monitor.join(*recorded)
        problem.complaint = complaint or problem.complaint
        yield found
    line.expect(None, "")


def _from(problem, candidate, evaluations):
    """Search from one start, or from the maximum of Vecchia's approximation near it."""
    model, near = approach(problem, candidate)
    problem.ends = True
    step = NEAR if near else INITIAL_STEP
    found = problem.search(problem.table, model, step=step, evaluations=evaluations)
    problem.ends = False
    return found


def _alone(common, candidate):
    """Return the end of a search from one start, its evaluations and its last complaint.

    The search solves a problem of its own, in the process of a worker.
    """
    kind, about, settings, evaluations = common
    monitor = Monitor(evaluations, lambda *pair: pair, None, "", False)
    problem = kind(*about, monitor, *settings)
    found = _from(problem, candidate, evaluations)
    return found, monitor.count, monitor.rises, problem.complaint
