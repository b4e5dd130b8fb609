"""The profile likelihood: how fast ℓ falls when one parameter is held and the others follow."""

from math import exp, isfinite, log

import numpy as np

from ..covariance.matern import practical_range
from ..errors import InvalidInput
from .profile_path import STEPS, Path, corrected

WIDTH = 2.5
"""Standard errors (of the parameter's logarithm) that a profile reaches to either side."""

WITHOUT_ERROR, WIDEST = 4.0, 20.0
"""Factors that a profile reaches where there is no standard error, and at most."""

LONGEST = 1.0
"""Longest step from one value to the next, in logarithms."""

SAME = 1e-9
"""Values nearer in logarithms are one."""


def profile_likelihood(fit, name, *, points=9):
    """Maximise the log-likelihood with one parameter held, at a row of its values.

    ℓ_p(v) = max {ℓ(θ) : θ_name = v}. Parameters that were fixed in the fit stay where they are. The
    values with ℓ_p > ℓ_max - 1.92 are a 95 % confidence interval (half the 0.95 quantile of
    chi-square with one degree of freedom): `Fit.confidence_intervals` finds its ends.

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
        likelihood are left out, and those beyond where geomxp looks.
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
    path = Path(fit)
    grid = _grid(fit, name, points, path.problem.space, path.units)
    middle = int(np.argmax(grid == fit.model.parameters()[name]))
    below = _walk(path, name, grid[middle::-1])
    above = _walk(path, name, grid[middle + 1 :])
    profile = np.array(below[::-1] + above) + path.units.shift(path.problem.design, fit.reml)
    known = np.isfinite(profile)
    return grid[known], profile[known]


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
    # once: it ends both rows, and all of one where geomxp looks no farther to that side
    other = np.abs(np.log(grid / value)) > SAME
    other[left] = True
    return grid[other]


def _walk(path, name, values):
    """Return log-likelihoods along values, from the estimate away."""
    j, result, spot, information = path.names.index(name), [], path.start, path.information
    for value in values:
        x = path.inward(name, path.units.inward({name: value})[name])
        x = float(np.clip(x, path.lower[j], path.upper[j]))
        top, known = _top_at(path, j, x, spot, information)
        if top is not None:
            spot, information = top, known
            result.append(top.value)
        else:
            result.append(path.search(j, x, path.model(spot.point))[0])
    return result


def _top_at(path, j, x, spot, information):
    """Go to the top of the slice at x; (spot, information), (None, None) where that fails."""
    for _ in range(STEPS):
        if spot.point[j] == x:
            return path.settle(spot, information, j)
        to = float(np.clip(x, spot.point[j] - LONGEST, spot.point[j] + LONGEST))
        there = path.step(spot, path.slice(spot, information, j), j, to, -np.inf)
        if there is None:
            break
        information = corrected(information, spot, there)
        spot = there
    return None, None
