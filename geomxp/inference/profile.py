"""The profile likelihood: how fast ℓ falls when one parameter is held and the others follow."""

from math import exp, isfinite, log

import numpy as np

from ..covariance.matern import Matern, practical_range
from ..errors import InvalidInput
from .fit import Units
from .problem import Problem
from .progress import Monitor
from .space import Extent, Space

WIDTH = 2.5
"""Standard errors (of the parameter's logarithm) that a profile reaches to either side."""

WITHOUT_ERROR, WIDEST = 4.0, 20.0
"""Factors that a profile reaches where there is no standard error, and at most."""

TOLERANCE, STEP = 1e-5, 0.1
"""Of each search. BOBYQA ends some hundred tolerances below the maximum, and a start beside it
needs no large first step: with these the profiles of the data sets are good to 0.005."""

PER_POINT = 300
"""Limit on the evaluations for one point."""


def profile_likelihood(fit, name, *, points=9):
    """Maximise the log-likelihood with one parameter held, at a row of its values.

    ℓ_p(v) = max {ℓ(θ) : θ_name = v}. Parameters that were fixed in the fit, or ended on a
    boundary, stay where they are. The values with ℓ_p > ℓ_max - 1.92 are a 95 % confidence
    interval (half the 0.95 quantile of chi-square with one degree of freedom).

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
        Increasing, in the unit of the parameter; k ≤ points, because values without a
        likelihood are left out.
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
    problem, units = _problem(fit, PER_POINT * points)
    model = Matern.from_parameters(units.inward(fit.model.parameters()))
    grid = _grid(fit, name, points, problem.space, units)
    middle = (points - 1) // 2
    below = _walk(problem, model, name, [units.inward({name: v})[name] for v in grid[middle::-1]])
    above = _walk(problem, model, name, [units.inward({name: v})[name] for v in grid[middle + 1 :]])
    profile = np.array(below[::-1] + above) + units.shift(problem.design, fit.reml)
    known = np.isfinite(profile)
    return grid[known], profile[known]


def _problem(fit, limit):
    """Return the fit's problem in scaled units, to be searched again, and the units."""
    seen = fit.observations
    design = fit.trend.design(seen.locations, seen.covariates)
    units = Units.of(seen, design)
    scaled = units.scaled(seen)
    values = fit.model.parameters()
    space = Space(
        units.inward({name: values[name] for name in values if name not in fit.free}),
        {},
        Extent.of(scaled),
        seen.metric,
        units.variance,
        fit.model.anisotropy is not None,
    )
    monitor = Monitor(limit, lambda model, value: (model, value), None, "", False)
    return Problem(scaled, design, fit.reml, fit.method, space, monitor, TOLERANCE), units


def _grid(fit, name, points, space, units):
    """Return the values at which a parameter is held: increasing, the estimate in the middle."""
    value = fit.model.parameters()[name]
    error = fit.standard_errors.get(name)
    known = error is not None and isfinite(error) and error > 0
    left = (points - 1) // 2
    right = points - 1 - left
    if name == "anisotropy_angle":
        half = min(WIDTH * error, 90.0) if known else 45.0
        steps = np.concatenate((np.linspace(-half, 0.0, left + 1), np.linspace(0, half, right + 1)))
        return value + np.delete(steps, left)
    # a standard error of the logarithm is one of the parameter over the parameter
    factor = exp(min(WIDTH * error / value, log(WIDEST))) if known else WITHOUT_ERROR
    if name == "range":
        lower, upper = space.practical_range_bounds()
        one = practical_range(1.0, fit.model.smoothness)
        lower, upper = lower / one, upper / one
    else:
        lower, upper = space.box(name)
    # the box is one of the scaled problem
    unit = units.outward_errors({name: 1.0})[name]
    low = min(max(value / factor, lower * unit), value)
    high = max(min(value * factor, upper * unit), value)
    grid = np.concatenate(
        (np.geomspace(low, value, left + 1), np.geomspace(value, high, right + 1))
    )
    # geomspace rounds its ends
    grid[left] = value
    return np.delete(grid, left + 1)


def _walk(problem, model, name, values):
    """Return log-likelihoods along values; each search starts where those before it point."""
    result, trail = [], [model.parameters()]
    for value in values:
        space = problem.space.holding(**{name: value})
        start = _ahead(trail, name, value, space)
        best, reached, _ = problem.search(space, start, step=STEP)
        result.append(best)
        if reached is not None:
            trail.append(reached.parameters())
    return result


def _ahead(trail, name, value, space):
    """Return the model to start from: the last one, moved on as it moved in the last step."""
    last = trail[-1]
    start = last | {name: value}
    if name == "smoothness" and "range" in space.free:
        # the data know the practical range, almost whatever the smoothness is
        start["range"] *= practical_range(1.0, last[name]) / practical_range(1.0, value)
    before = trail[-2][name] if len(trail) > 1 else last[name]
    if name != "anisotropy_angle" and before != last[name]:
        ahead = log(value / last[name]) / log(last[name] / before)
        for other in space.free:
            if other != "anisotropy_angle" and min(last[other], trail[-2][other]) > 0:
                step = ahead * log(last[other] / trail[-2][other])
                start[other] = last[other] * exp(min(max(step, -1.0), 1.0))
        if "anisotropy_ratio" in start:
            start["anisotropy_ratio"] = min(start["anisotropy_ratio"], 1.0)
    return Matern.from_parameters(start)
