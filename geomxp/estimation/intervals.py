"""How well parameters are known: information, intervals, what the data know of their combinations.

Standard errors and Wald intervals are those of logarithms (an angle's own), where the likelihood is
nearest to a parabola, and intervals of positive parameters stay positive.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, isfinite, log, sqrt
from typing import TYPE_CHECKING

import numpy as np

from ..covariance.matern import Matern
from ..errors import Ending, InvalidInput
from .result import Fit, z_value

if TYPE_CHECKING:
    from .._typing import Floats, IntervalMethod, Intervals, Kind, Sequence

METHODS = ("wald", "profile")
KINDS = ("observed", "expected")

WITHOUT_END = (Ending.NO_FINITE_MAXIMUM, Ending.UNIDENTIFIED)
"""Fits that are no estimates, but whose likelihood is at its supremum: it has profiles."""

RIDGE = 0.95
"""Correlation of log σ² and log a (either sign) from which the two are hardly told apart."""

DIFFERENCE, COARSE_DIFFERENCE = 2e-4, 2e-2
"""Steps of the score's differences, in logarithms: of FP64 and of mixed formats."""


@dataclass(frozen=True)
class Estimate:
    """A quantity, its standard error and its interval.

    Parameters
    ----------
    value, standard_error : float
    lower, upper : float
        Ends of the interval.
    """

    value: float
    standard_error: float
    lower: float
    upper: float


def confidence_intervals(
    fit: Fit,
    level: float = 0.95,
    method: IntervalMethod = "wald",
    names: Sequence[str] | None = None,
) -> Intervals:
    """Return confidence intervals of covariance parameters.

    "wald": θ̂ exp(±z s) with s the standard error of log θ̂ from the observed information; of an
    angle θ̂ ± z s. "profile": the values whose profile log-likelihood is above ℓ_max - ½χ²₁(level),
    all that a likelihood-ratio test does not reject; an end where ℓ never falls so far is 0,
    infinity, or the largest value that the parameter can have. Profiles exist, and are all that is
    known, also where the likelihood has no finite maximum.

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
        from .profile import profile_intervals

        return profile_intervals(fit, names, 0.5 * z * z)
    errors = np.sqrt(np.diag(_covariance(fit)))
    values = fit.model.parameters()
    return {name: _wald(name, values[name], z * errors[fit.free.index(name)]) for name in names}


def derived(fit: Fit, level: float = 0.95) -> dict[str, Estimate]:
    """Return what follows from the parameters, with intervals by the delta method on logarithms.

    Parameters
    ----------
    fit : Fit
    level : float

    Returns
    -------
    dict of str to Estimate
        "microergodic": σ²a^(-2ν), which the data know better than σ² and a (Zhang 2004); its unit
        depends on ν, and so does its error where ν is estimated. "effective_range": where the
        correlation is 5 %. "nugget_ratio": τ²/σ². Those of which no parameter was estimated, or
        that are 0, are left out.

    Raises
    ------
    InvalidInput
        If the fit has no standard errors.
    """
    z, covariance = z_value(level), _covariance(fit)
    result = {}
    for name, (logarithm, slopes) in _logarithms(fit.model).items():
        slope = np.array([slopes.get(parameter, 0.0) for parameter in fit.free])
        if slope.any() and isfinite(logarithm):
            result[name] = _estimate(logarithm, sqrt(slope @ covariance @ slope), z)
    return result


def derived_value(model, name):
    """Return a derived quantity of a model; "microergodic" is σ²a^(-2ν)."""
    return _exp(_logarithms(model)[name][0])


def information(fit: Fit, kind: Kind = "observed") -> Floats:
    """Return Fisher's information about the logarithms of the estimated parameters.

    "observed" is minus the Hessian of ℓ at the estimate, the inverse covariance of Wald intervals;
    "expected" its mean over data that the model itself makes, ½ tr(P ∂_jΣ P ∂_kΣ).

    Parameters
    ----------
    fit : Fit
    kind : {"observed", "expected"}

    Returns
    -------
    (k, k) ndarray
        In the order of `fit.free`; of an angle's radians.

    Raises
    ------
    InvalidInput

    Examples
    --------
    Without a nugget the variance alone has n/2 of either kind:

    >>> import geomxp as gx
    >>> seen = gx.Observations([[0.0], [1.0], [2.5], [4.0], [4.5]], [1.0, 2.0, 0.5, 0.0, 0.4])
    >>> fit = gx.fit(
    ...     seen, gx.Matern(1.0, 1.0, 0.5), fixed=("range", "smoothness", "nugget"), trend="zero"
    ... )
    >>> gx.information(fit).round(3), gx.information(fit, "expected").round(3)
    (array([[2.5]]), array([[2.5]]))
    """
    if kind not in KINDS:
        raise InvalidInput(f"`kind` must be one of: {', '.join(KINDS)}. Got {kind!r}.")
    check_is_fit(fit)
    if not fit.free:
        return np.zeros((0, 0))
    if kind == "observed" and fit.information is not None:
        return np.array(fit.information)
    from .problem import Natural
    from .profile import problem_of
    from .search import information_at

    problem, model, _ = problem_of(fit)
    natural = Natural(fit.free, model, wrap=False)
    if kind == "observed":
        return information_at(
            lambda x: natural.score(x, problem.evaluator, problem.monitor),
            natural.point(model),
            COARSE_DIFFERENCE if problem.noisy else DIFFERENCE,
        )
    units = natural.units(model)
    return problem.evaluator.expected_information(model, fit.free) * np.outer(units, units)


def ridge(model, names, information_, level=0.95):
    """Say that the variance and the range are hardly told apart; None where they are.

    On one realisation in a bounded region σ² and a are not consistently estimated, σ²a^(-2ν) is
    (Zhang 2004, JASA 99:250; intervals: Kaufman and Shaby 2013, Biometrika 100:473).

    Parameters
    ----------
    model : Matern
        In the user's units.
    names : sequence of str
    information_ : (k, k) ndarray
        Of the logarithms of the parameters `names`.
    level : float

    Returns
    -------
    str or None
    """
    if not {"variance", "range"} <= set(names):
        return None
    covariance = np.linalg.inv(information_)
    errors = np.sqrt(np.diag(covariance))
    i, j = (list(names).index(name) for name in ("variance", "range"))
    correlation = covariance[i, j] / (errors[i] * errors[j])
    if not abs(correlation) > RIDGE:
        return None
    said = (
        "the variance and the range are hardly told apart (their logarithms correlate by "
        f"{correlation:.3f})"
    )
    logarithm, slopes = _logarithms(model)["microergodic"]
    slope = np.array([slopes.get(name, 0.0) for name in names])
    error = sqrt(slope @ covariance @ slope)
    if error > errors[i]:
        # with the smoothness unknown too its unit is not known
        return said
    known = _estimate(logarithm, error, z_value(level))
    return (
        f"{said}: what the data know is variance/range^(2 smoothness) = {known.value:.4g}, "
        f"{100 * level:g} % interval {known.lower:.4g} to {known.upper:.4g}"
    )


def check_is_fit(fit, allowed=()):
    """Raise `InvalidInput` for anything but a fit that is an estimate, or ended as is allowed."""
    if not isinstance(fit, Fit):
        raise InvalidInput(f"`fit` must be what gx.fit returns. Got {type(fit).__name__}.")
    if fit.outcome.good or fit.outcome.ending in allowed:
        return
    advice = "fit again first, with more evaluations, other starts or fewer free parameters."
    if fit.outcome.ending in WITHOUT_END:
        advice = (
            'fix a parameter, or ask for confidence_intervals(method="profile"), which say from '
            "where on the data allow it."
        )
    raise InvalidInput(f"the fit is no estimate ({fit.outcome.ending}): {advice}")


def _checked_names(fit, names, method):
    check_is_fit(fit, WITHOUT_END if method == "profile" else ())
    known = fit.free + (fit.boundary if method == "profile" else ())
    if names is None:
        return known
    if not isinstance(names, (str, tuple, list, set, dict)):
        raise InvalidInput(f"`names` must be a sequence of parameters. Got {names!r}.")
    names = (names,) if isinstance(names, str) else tuple(names)
    for name in names:
        if name in fit.boundary and name not in known:
            raise InvalidInput(
                f"the {name.replace('_', ' ')} lies on a boundary, where it has no Wald interval: "
                'use method="profile".'
            )
        if name not in known:
            free = ", ".join(known) or "none"
            raise InvalidInput(f"`names` must be estimated parameters: {free}. Got {name!r}.")
    return names


def _covariance(fit):
    """Return the covariance of the logarithms of `fit.free`; of a fit of nothing, of order 0."""
    check_is_fit(fit)
    if not fit.free:
        return np.zeros((0, 0))
    # the file of an earlier version holds none
    found = information(fit)
    if not (np.isfinite(found).all() and np.linalg.eigvalsh(found)[0] > 0):
        raise InvalidInput(
            "the fit's observed information is not positive definite, so it has no standard "
            'errors: fit again, or use method="profile".'
        )
    return np.linalg.inv(found)


def _wald(name, value, half):
    """Return the interval of half such a width on the scale of the standard errors."""
    if name == "anisotropy_angle":
        # beyond a right angle a direction comes round again
        half = min(float(np.degrees(half)), 90.0)
        return value - half, value + half
    top = 1.0 if name == "anisotropy_ratio" else np.inf
    return value * _exp(-half), min(value * _exp(half), top)


def _estimate(logarithm, error, z):
    value = _exp(logarithm)
    return Estimate(value, value * error, _exp(logarithm - z * error), _exp(logarithm + z * error))


def _exp(x):
    """e^x, infinity where that is no FP64 number."""
    return exp(x) if x < 709.0 else np.inf


def _log(x):
    return log(x) if x > 0 else -np.inf


def _logarithms(model):
    """Return log q of the derived quantities, and ∂ log q/∂ log θ by parameter."""
    nu = model.smoothness
    step = 1e-4

    def reach(order):
        return _log(Matern(1.0, 1.0, order).effective_range())

    # by differences: no closed form exists
    widening = (reach(nu * exp(step)) - reach(nu * exp(-step))) / (2 * step)
    ratio = _log(model.nugget) - log(model.variance)
    growth = {"variance": 1.0, "range": -2 * nu, "smoothness": -2 * nu * log(model.range)}
    return {
        "microergodic": (log(model.variance) - 2 * nu * log(model.range), growth),
        "effective_range": (
            log(model.range) + reach(nu),
            {"range": 1.0, "smoothness": widening},
        ),
        "nugget_ratio": (ratio, {"nugget": 1.0, "variance": -1.0}),
    }
