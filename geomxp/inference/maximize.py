"""Maximising a log-likelihood: NLopt's searches, and Newton to the top.

Inside a search a model without a likelihood counts as a bad one (-inf), so that the search walks
past it.
"""

from dataclasses import dataclass

import numpy as np

from ..errors import MissingPackage

SEARCHES = ("scoring", "bobyqa", "lbfgs", "slsqp")
"""Fisher scoring (`geomxp.inference.scoring`), and NLopt's algorithms."""

INITIAL_STEP = 0.4
"""First step of the search, in logarithms (in units of 30 degrees for an angle)."""


@dataclass(frozen=True)
class Maximum:
    """Where a search ended.

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
        (d,) ndarray to the gradient, (d,) ndarray, at the point where the function was last asked
        for; for the searches that use it.
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
        # a quadratic model cannot hold -inf: below the worst value seen
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
            # an error of the likelihood, not of the search
            raise
        # rounding keeps it from going on: what it has reached stands, and Newton judges it
        limited = False
    return Maximum(best[1], best[0], limited)


def _nlopt(search):
    """Import NLopt. A fit by Fisher scoring needs it only where scoring does not converge."""
    try:
        import nlopt
    except ImportError as error:
        raise MissingPackage(
            f"the search by {search} needs NLopt, which cannot be imported ({error}): "
            "pip install nlopt."
        ) from error
    return nlopt


def _failures(nlopt):
    """Return the exceptions of NLopt for a search that cannot continue; 2.11 has its own."""
    names = "RoundoffLimited", "runtime_error", "logic_error"
    return tuple(getattr(nlopt, name) for name in names if hasattr(nlopt, name))


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
        What one more Newton step promises, ½ s'I⁻¹s; inf where the information is not positive
        definite.
    """

    point: np.ndarray
    value: float
    score: np.ndarray
    information: np.ndarray
    gain: float


def climb(function, score, information, point, *, tolerance, steps=12, slack=0.0, renewed=2e-4):
    """Go to the top by Newton's method.

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
        Stop when the next step promises less.
    steps : int
        Limit.
    renewed : float
        How far a point may lie, in its coordinates, from that of its information.
    slack : float
        A step may lose as much: how far the function scatters where it is computed coarsely.

    Returns
    -------
    Summit
    """
    # where they have formulas, the score comes with the information and the value with the score
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
    """Return the Newton step I⁻¹s; where I is not positive definite, with |eigenvalues| instead."""
    if not len(slope) or not (np.isfinite(information).all() and np.isfinite(slope).all()):
        return np.zeros(len(slope))
    values, vectors = np.linalg.eigh(information)
    # a floor for what the differences of large scores leave of a small curvature
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
    """½ s'I⁻¹s, the gain of a Newton step; inf if I is not positive definite."""
    if not len(slope):
        return 0.0
    if not np.isfinite(information).all() or not np.isfinite(slope).all():
        return np.inf
    if np.linalg.eigvalsh(information)[0] <= 0:
        return np.inf
    return 0.5 * float(slope @ np.linalg.solve(information, slope))
