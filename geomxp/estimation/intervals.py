"""Information and confidence intervals of the parameters of a fit.

Standard errors and Wald intervals are those of logarithms (of an angle itself), where the
likelihood is nearest to a parabola; intervals of positive parameters stay positive.
"""

from __future__ import annotations

from math import isfinite, sqrt
from typing import TYPE_CHECKING

import numpy as np

from ..errors import Ending, InvalidInput
from .diagnose import Estimate, derived_logarithms, exp_or_inf, z_value
from .parameters import words
from .profile import problem_of, profile_intervals
from .search import information_at

if TYPE_CHECKING:
    from .._typing import Any, IntervalMethod, Intervals, Sequence

METHODS = ("wald", "profile")
KINDS = ("observed", "expected")

AT_SUPREMUM = (Ending.NO_FINITE_MAXIMUM, Ending.UNIDENTIFIED)
"""Outcomes without an estimate whose likelihood is at its supremum, so that profiles exist."""

DIFFERENCE, COARSE_DIFFERENCE = 2e-4, 2e-2
"""Steps of the score's differences, in logarithms: in FP64 and in mixed formats."""


def confidence_intervals(
    fit: Any,
    level: float = 0.95,
    method: IntervalMethod = "wald",
    names: Sequence[str] | None = None,
) -> Intervals:
    """Return confidence intervals of covariance parameters.

    "wald": θ̂ exp(±z s) with s the standard error of log θ̂ from the observed information; θ̂ ± z s
    of an angle. "profile": the values whose profile log-likelihood is above ℓ_max - ½χ²₁(level),
    which a likelihood-ratio test does not reject. An end where ℓ never falls so far is the limit of
    the parameter: 0 or infinity, say. Profile intervals exist even if the likelihood has no finite
    maximum.

    Parameters
    ----------
    fit : Fit
    level : float
        Between 0 and 1.
    method : {"wald", "profile"}
    names : sequence of str, optional
        Of `fit.free`, and for "profile" of `fit.boundary` too; all of these if not given.

    Returns
    -------
    dict of str to (float, float)
        In the units of the parameters, an angle in degrees.

    Raises
    ------
    InvalidInput
        If the fit is no estimate, or a parameter was not estimated.

    Examples
    --------
    With the variance alone unknown ℓ = -½n(log σ² + σ̂²/σ²) + const, whose information is n/2:

    >>> import geomxp as gx
    >>> seen = gx.Observations([[0.0], [1.0], [2.5], [4.0], [4.5]], [1.0, 2.0, 0.5, 0.0, 0.4])
    >>> fit = gx.fit(
    ...     seen, gx.Matern(1.0, 1.0, 0.5), fixed=("range", "smoothness", "nugget"), trend="zero"
    ... )
    >>> lower, upper = fit.confidence_intervals()["variance"]
    >>> bool(abs(upper / fit.model.variance / np.exp(1.959964 * np.sqrt(2 / 5)) - 1) < 1e-5)
    True
    """
    z = z_value(level)
    if method not in METHODS:
        raise InvalidInput(f"`method` must be one of: {', '.join(METHODS)}. Got {method!r}.")
    names = _checked_names(fit, names, method)
    if method == "profile":
        return profile_intervals(fit, names, 0.5 * z * z)
    errors = np.sqrt(np.diag(_covariance(fit)))
    table = {p.name: p for p in fit.model.table}
    return {name: _wald(table[name], z * errors[fit.free.index(name)]) for name in names}


def derived(fit: Any, level: float = 0.95) -> dict[str, Estimate]:
    """Return derived quantities, with intervals by the delta method on logarithms.

    Parameters
    ----------
    fit : Fit
    level : float

    Returns
    -------
    dict of str to Estimate
        "microergodic": σ²/a^k with k = 2ν of a Matérn model, which the data determine better than
        σ² and a (Zhang 2004). "effective_range": distance with correlation 5 %. "nugget_ratio":
        τ²/σ². Quantities that are 0 or depend on no estimated parameter are left out.

    Raises
    ------
    InvalidInput
        If the fit has no standard errors.
    """
    z, covariance = z_value(level), _covariance(fit)
    result = {}
    for name, (logarithm, slopes) in derived_logarithms(fit.model).items():
        slope = np.array([slopes.get(parameter, 0.0) for parameter in fit.free])
        if slope.any() and isfinite(logarithm):
            result[name] = Estimate.of_logarithm(logarithm, sqrt(slope @ covariance @ slope), z)
    return result


def fisher_information(fit, kind):
    """Return the information of a fit; see `geomxp.information`."""
    if kind not in KINDS:
        raise InvalidInput(f"`kind` must be one of: {', '.join(KINDS)}. Got {kind!r}.")
    check_is_estimate(fit)
    if not fit.free:
        return np.zeros((0, 0))
    if kind == "observed" and fit.information is not None:
        return np.array(fit.information)
    problem, model, _ = problem_of(fit)
    coordinates = problem.table.coordinates(model, fit.free)
    coordinates.wrap = False
    if kind == "observed":
        return information_at(
            lambda x: coordinates.score(x, problem.evaluator, problem.monitor),
            coordinates.point(model),
            COARSE_DIFFERENCE if problem.noisy else DIFFERENCE,
        )
    units = coordinates.jacobian(model)
    return problem.evaluator.expected_information(model, fit.free) * np.outer(units, units)


def check_is_estimate(fit, allowed=()):
    """Raise `InvalidInput` if a fit has no estimate and its outcome is not one of those allowed."""
    if fit.outcome.good or fit.outcome.ending in allowed:
        return
    advice = "fit again with more evaluations, other starts or fewer free parameters."
    if fit.outcome.ending in AT_SUPREMUM:
        advice = (
            'fix a parameter, or use confidence_intervals(method="profile"), which returns the '
            "values that the data allow."
        )
    raise InvalidInput(f"the fit has no estimate ({fit.outcome.ending}): {advice}")


def _checked_names(fit, names, method):
    check_is_estimate(fit, AT_SUPREMUM if method == "profile" else ())
    known = fit.free + (fit.boundary if method == "profile" else ())
    if names is None:
        return known
    if not isinstance(names, (str, tuple, list, set, dict)):
        raise InvalidInput(f"`names` must be a sequence of parameters. Got {names!r}.")
    names = (names,) if isinstance(names, str) else tuple(names)
    for name in names:
        if name in fit.boundary and name not in known:
            raise InvalidInput(
                f"the {words([name])} is at a bound, where it has no Wald interval: use "
                'method="profile".'
            )
        if name not in known:
            free = ", ".join(known) or "none"
            raise InvalidInput(f"`names` must be estimated parameters: {free}. Got {name!r}.")
    return names


def _covariance(fit):
    """Return the covariance of the logarithms of `fit.free`, (k, k)."""
    check_is_estimate(fit)
    if not fit.free:
        return np.zeros((0, 0))
    # files of earlier versions hold none
    found = fisher_information(fit, "observed")
    if not (np.isfinite(found).all() and np.linalg.eigvalsh(found)[0] > 0):
        raise InvalidInput(
            "the fit's observed information is not positive definite, so it has no standard "
            'errors: fit again, or use method="profile".'
        )
    return np.linalg.inv(found)


def _wald(parameter, half):
    """Return the interval of half such a width in the parameter's coordinate."""
    if parameter.unit == "degrees":
        # directions repeat beyond 90 degrees
        half = min(float(np.degrees(half)), 90.0)
    value = parameter.value
    if parameter.transform == "identity":
        return max(value - half, parameter.lower), min(value + half, parameter.upper)
    return value * exp_or_inf(-half), min(value * exp_or_inf(half), parameter.upper)
