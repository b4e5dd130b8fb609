"""The likelihood-ratio test of one fit within another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InvalidInput
from .trend import Trend
from .uncertainty import check_is_fit
from .vecchia import Vecchia

if TYPE_CHECKING:
    from ..annotations import Fit

SLACK = 1e-2
"""A restricted fit may be so much above the full one, where both are maxima to their tolerance."""

ANISOTROPY = {"anisotropy_angle", "anisotropy_ratio"}


@dataclass(frozen=True)
class LikelihoodRatio:
    """What a likelihood-ratio test found.

    Parameters
    ----------
    statistic : float
        2(ℓ_full - ℓ_restricted) ≥ 0.
    degrees_of_freedom : int
        Parameters that the full fit estimates and the restricted one does not.
    p_value : float
    message : str
        Which distribution the statistic was compared with.
    """

    statistic: float
    degrees_of_freedom: int
    p_value: float
    message: str

    def __str__(self) -> str:
        return (
            f"likelihood ratio {self.statistic:.6g}, {self.degrees_of_freedom} degrees of freedom, "
            f"p = {self.p_value:.4g}: {self.message}"
        )


def likelihood_ratio_test(restricted: Fit, full: Fit) -> LikelihoodRatio:
    """Test whether the data ask for what a larger fit estimates and a smaller one holds.

    2(ℓ_full - ℓ_restricted) is compared with chi-square. A parameter that the smaller fit holds at
    the end of its range (a nugget of 0) can only move to one side: its part is 0 half of the time,
    and with d degrees of freedom the distribution is ½χ²_{d-1} + ½χ²_d (Self and Liang 1987, JASA
    82:605, case 6).

    Parameters
    ----------
    restricted, full : Fit
        Of the same observations by the same method, both maxima; everything that `restricted`
        estimates is estimated by `full`.

    Returns
    -------
    LikelihoodRatio

    Raises
    ------
    InvalidInput
        If the fits cannot be compared, or are not nested: the message says in what.

    Examples
    --------
    >>> import geomxp as gx
    >>> seen = gx.Observations([[0.0], [1.0], [2.5], [4.0], [4.5]], [1.0, 2.0, 0.5, 0.0, 0.4])
    >>> fit = gx.fit(seen, gx.Matern(1.0, 1.0, 0.5), fixed=("range", "smoothness", "nugget"))
    >>> test = gx.likelihood_ratio_test(fit, fit)
    >>> test.statistic, test.degrees_of_freedom, test.p_value
    (0.0, 0, 1.0)
    """
    _check_comparable(restricted, full)
    extra = _extra_parameters(restricted, full)
    coefficients = _extra_coefficients(restricted, full)
    at_end = [name for name in extra if _holds_at_end(restricted, name)]
    if set(extra) >= ANISOTROPY:
        # log-ratio and twice the angle are polar coordinates, isotropy is their origin, not an edge
        at_end = [name for name in at_end if name not in ANISOTROPY]
    gain = full.log_likelihood - restricted.log_likelihood
    if gain < -SLACK:
        raise InvalidInput(
            f"the full fit's log-likelihood is {-gain:.4g} below the restricted one's, so it is no "
            "maximum: fit again from restricted.model, or with more starts."
        )
    statistic, degrees = 2 * max(gain, 0.0), len(extra) + coefficients
    return LikelihoodRatio(
        statistic,
        degrees,
        _tail(statistic, degrees, bool(at_end)),
        _sentence(extra, coefficients, at_end, degrees),
    )


def _tail(statistic, degrees, at_end):
    """Return the probability of a larger statistic."""
    from scipy.stats import chi2

    def tail(d):
        # χ²₀ is 0
        return float(chi2.sf(statistic, d)) if d else float(statistic <= 0)

    if degrees == 0 or statistic == 0:
        return 1.0
    return 0.5 * (tail(degrees - 1) + tail(degrees)) if at_end else tail(degrees)


def _sentence(extra, coefficients, at_end, degrees):
    if not degrees:
        return "both fits estimate the same parameters"
    parts = [name.replace("_", " ") for name in extra]
    if coefficients:
        parts.append(f"{coefficients} coefficient{'s' * (coefficients > 1)} of the trend")
    what = f"tested: {', '.join(parts)}"
    if not at_end:
        return f"{what}; compared with chi-square"
    ends = " and the ".join(name.replace("_", " ") for name in at_end)
    mixture = f"½χ²({degrees - 1}) + ½χ²({degrees})"
    said = f"{what}; the {ends} held at the end of what it can be: compared with {mixture}"
    if len(at_end) > 1:
        said += ", which bounds p from above"
    return said


def _check_comparable(restricted, full):
    """Raise `InvalidInput` unless both are maxima of one likelihood of the same data."""
    for fit in (restricted, full):
        check_is_fit(fit)
    if restricted.observations.digest() != full.observations.digest():
        raise InvalidInput("the two fits are of different observations: fit both to the same.")
    if restricted.reml != full.reml:
        raise InvalidInput("one fit is by REML and the other by ML: use one of them for both.")
    if _arithmetic(restricted.method) != _arithmetic(full.method):
        raise InvalidInput(
            "the two fits approximate the likelihood in different ways: use one method for both."
        )
    designs = [_design(fit) for fit in (restricted, full)]
    if full.reml and not np.array_equal(*designs):
        raise InvalidInput(
            "restricted likelihoods with different trends are of different data (contrasts): "
            "compare trends by ML (reml=False)."
        )


def _arithmetic(method):
    """Return what makes the likelihood of a method another function."""
    if isinstance(method, Vecchia):
        return Vecchia, method.neighbours, method.ordering
    return type(method), getattr(method, "precision", None)


def _design(fit):
    return fit.trend.design(fit.observations.locations, fit.observations.covariates)


def _estimated(fit):
    return set(fit.free) | set(fit.boundary)


def _extra_parameters(restricted, full):
    """Return the covariance parameters that only the full fit estimates, in their order."""
    ours, theirs = _values(restricted), _values(full)
    more = sorted(_estimated(restricted) - _estimated(full))
    if more:
        raise InvalidInput(
            f"the fits are not nested: `restricted` estimates {', '.join(more)} and `full` does "
            "not. Exchange them, or free the same parameters."
        )
    for name in theirs:
        held = name not in _estimated(full)
        if held and not _isotropic(restricted, name) and ours[name] != theirs[name]:
            raise InvalidInput(
                f"the fits are not nested: {name} is held at {ours[name]:g} in `restricted` and at "
                f"{theirs[name]:g} in `full`."
            )
    if full.model.anisotropy is None and restricted.model.anisotropy is not None:
        raise InvalidInput("the fits are not nested: `restricted` is anisotropic, `full` is not.")
    return [name for name in theirs if name in _estimated(full) - _estimated(restricted)]


def _values(fit):
    return fit.model.parameters()


def _isotropic(fit, name):
    """Whether a parameter says nothing of a fit: an angle, or a ratio, of an isotropic model."""
    return name in ANISOTROPY and fit.model.anisotropy is None


def _holds_at_end(restricted, name):
    """Whether a parameter that a fit holds is held where it can move to one side only."""
    if name == "nugget":
        return restricted.model.nugget == 0
    if name == "anisotropy_ratio":
        return restricted.model.anisotropy is None or restricted.model.anisotropy.ratio == 1
    great_circle = restricted.observations.metric == "great-circle"
    return name == "smoothness" and great_circle and restricted.model.smoothness == 0.5


def _extra_coefficients(restricted, full):
    """Return how many coefficients the full fit's trend has more; its columns span the other's."""
    small, large = _design(restricted), _design(full)
    if not small.shape[1]:
        return large.shape[1]
    scale = np.abs(large).max(axis=0, initial=1e-300)
    found = np.linalg.lstsq(large / scale, small, rcond=None)[0] if large.shape[1] else None
    left = small if found is None else small - (large / scale) @ found
    # rounding of a projection of n numbers
    if np.abs(left).max() > 64 * len(small) * np.finfo(float).eps * np.abs(small).max():
        raise InvalidInput(
            f"the fits are not nested: the trend of `restricted` ({_kind(restricted.trend)}) is "
            f"no part of that of `full` ({_kind(full.trend)})."
        )
    return large.shape[1] - small.shape[1]


def _kind(trend):
    return trend.text if isinstance(trend, Trend) else str(trend)
