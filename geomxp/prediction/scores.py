"""Proper scores of Gaussian predictions: accuracy and calibration.

Gneiting and Raftery (2007, JASA 102:359). All scores are negatively oriented: smaller is better.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy

from ..covariance.transformation import NEGLIGIBLE_TAIL_SDS, QUADRATURE_NODES, SMALL_TAIL_SDS
from ..data.labels import aligned, labels_of
from ..errors import InvalidInput
from ..estimation.result import z_value

if TYPE_CHECKING:
    from .._typing import ArrayLike, Floats
    from ..covariance.transformation import Transformation
    from .mixtures import HurdleMixture, Mixture


def crps_gaussian(mean: ArrayLike, sd: ArrayLike, observed: ArrayLike) -> Floats:
    """Return the continuous ranked probability score, in the unit of the values.

    CRPS = ∫ (F(x) - 1{x ≥ y})² dx = σ (z(2Φ(z) - 1) + 2φ(z) - 1/√π) with z = (y - μ)/σ, as in
    Gneiting and Raftery (2007), section 4.2. For σ → 0 it is the absolute error.

    Parameters
    ----------
    mean, sd : array_like
        Mean and standard deviation of the prediction; sd > 0.
    observed : array_like
        y. All arguments are broadcast against each other.

    Returns
    -------
    ndarray

    Raises
    ------
    InvalidInput
        For numbers that are not finite, shapes that do not match, sd ≤ 0.

    Examples
    --------
    >>> bool(np.isclose(crps_gaussian(1.0, 1e-9, 3.0), 2.0))
    True
    """
    mean, sd, observed = _checked(mean=mean, sd=sd, observed=observed)
    z = (observed - mean) / sd
    return sd * (z * (2 * scipy.special.ndtr(z) - 1) + 2 * _density(z) - 1 / np.sqrt(np.pi))


def log_score(mean: ArrayLike, sd: ArrayLike, observed: ArrayLike) -> Floats:
    """Return the logarithmic score, -log f(y) = ½ log(2πσ²) + ½ ((y - μ)/σ)².

    Parameters
    ----------
    mean, sd, observed : array_like
        See `crps_gaussian`.

    Returns
    -------
    ndarray, in nats

    Examples
    --------
    >>> bool(np.isclose(log_score(0.0, 1.0, 0.0), 0.5 * np.log(2 * np.pi)))
    True
    """
    mean, sd, observed = _checked(mean=mean, sd=sd, observed=observed)
    return 0.5 * np.log(2 * np.pi) + np.log(sd) + 0.5 * ((observed - mean) / sd) ** 2


def interval_score(
    lower: ArrayLike, upper: ArrayLike, observed: ArrayLike, level: float = 0.95
) -> Floats:
    """Return the score of central prediction intervals, in the unit of the values.

    S = (u - l) + 2/α ((l - y)⁺ + (y - u)⁺) with α = 1 - level: Gneiting and Raftery (2007),
    section 6.2.

    Parameters
    ----------
    lower, upper, observed : array_like
        lower ≤ upper.
    level : float
        Nominal probability that an interval covers.

    Returns
    -------
    ndarray

    Examples
    --------
    >>> interval_score(0.0, 1.0, [0.5, 1.5], level=0.5).tolist()
    [1.0, 3.0]
    """
    z_value(level)
    lower, upper, observed = _checked(lower=lower, upper=upper, observed=observed)
    outside = np.maximum(lower - observed, 0.0) + np.maximum(observed - upper, 0.0)
    return upper - lower + 2 / (1 - level) * outside


def coverage(lower: ArrayLike, upper: ArrayLike, observed: ArrayLike) -> float:
    """Return the fraction of observed values inside their intervals, ends included.

    Parameters
    ----------
    lower, upper, observed : array_like
        lower ≤ upper.

    Returns
    -------
    float

    Examples
    --------
    >>> coverage([0.0, 0.0], [1.0, 1.0], [0.5, 1.5])
    0.5
    """
    lower, upper, observed = _checked(lower=lower, upper=upper, observed=observed)
    return float(((lower <= observed) & (observed <= upper)).mean())


def pit(mean: ArrayLike, sd: ArrayLike, observed: ArrayLike) -> Floats:
    """Return the probability integral transform Φ((y - μ)/σ), uniform for correct predictions.

    Parameters
    ----------
    mean, sd, observed : array_like
        See `crps_gaussian`.

    Returns
    -------
    ndarray, in [0, 1]

    Examples
    --------
    >>> float(pit(2.0, 3.0, 2.0))
    0.5
    """
    mean, sd, observed = _checked(mean=mean, sd=sd, observed=observed)
    return scipy.special.ndtr((observed - mean) / sd)


def summary(
    mean: ArrayLike, variance: ArrayLike, observed: ArrayLike, level: float = 0.95
) -> dict[str, float]:
    """Return the means of all scores over a set of predictions.

    Parameters
    ----------
    mean, variance : (n,) array_like
        Of the prediction of an observation: the variance includes the nugget.
    observed : (n,) array_like
    level : float
        Level of the intervals that are scored.

    Returns
    -------
    dict of str to float
        `rmse`, `mae`; `bias`, the mean of predicted minus observed; `crps`, `log_score`,
        `interval_score`; `coverage`, to be compared with the level; and
        `mean_squared_standardised_error`, about 1 if the variances are correct.

    Examples
    --------
    >>> result = summary([0.0, 0.0], [1.0, 4.0], [1.0, -2.0])
    >>> result["mae"], result["bias"], result["mean_squared_standardised_error"]
    (1.5, 0.5, 1.0)
    """
    mean, variance, observed = _checked(mean=mean, variance=variance, observed=observed)
    if not mean.size:
        raise InvalidInput("at least one prediction is needed. Got none.")
    sd, error = np.sqrt(variance), mean - observed
    half = z_value(level) * sd
    lower, upper = mean - half, mean + half
    return {
        "rmse": float(np.sqrt(np.mean(error**2))),
        "mae": float(np.mean(np.abs(error))),
        "bias": float(np.mean(error)),
        "crps": float(np.mean(crps_gaussian(mean, sd, observed))),
        "log_score": float(np.mean(log_score(mean, sd, observed))),
        "interval_score": float(np.mean(interval_score(lower, upper, observed, level))),
        "coverage": coverage(lower, upper, observed),
        "mean_squared_standardised_error": float(np.mean((error / sd) ** 2)),
    }


NAMES = (
    *("rmse", "mae", "bias", "crps", "log_score", "interval_score", "coverage"),
    "mean_squared_standardised_error",
)
"""Names of the scores of `summary`."""


def mixed_summary(
    mixture: Mixture | HurdleMixture,
    mean: Floats,
    variance: Floats,
    observed: Floats,
    level: float = 0.95,
) -> dict[str, float]:
    """Return the means of all scores of predictions of a response, as `summary`.

    With `brier`, the mean squared difference of values and probabilities, for binary values; for a
    hurdle it is that of presences.

    Parameters
    ----------
    mixture : Mixture or HurdleMixture
        Distributions of the values.
    mean, variance : (n,) ndarray
        Of these.
    observed : (n,) ndarray
    level : float
    """
    error, tail = mean - observed, (1 - level) / 2
    lower, upper = mixture.quantile(tail), mixture.quantile(1 - tail)
    found = {
        "rmse": float(np.sqrt(np.mean(error**2))),
        "mae": float(np.mean(np.abs(error))),
        "bias": float(np.mean(error)),
        "crps": float(np.mean(mixture.crps(observed))),
        "log_score": -float(np.mean(mixture.log_density(observed))),
        "interval_score": float(np.mean(interval_score(lower, upper, observed, level))),
        "coverage": coverage(lower, upper, observed),
        "mean_squared_standardised_error": float(np.mean(error**2 / variance)),
    }
    brier = mixture.brier(observed)
    return found if brier is None else found | {"brier": brier}


def back_transformed_summary(
    point: Floats,
    mean: Floats,
    variance: Floats,
    observed: Floats,
    transform: Transformation,
    level: float = 0.95,
) -> dict[str, float]:
    """Return the means of all scores of predictions of transformed values, as `summary`.

    Parameters
    ----------
    point : (n,) ndarray
        Predictions of the values, whose errors are scored.
    mean, variance : (n,) ndarray
        Of the prediction of an observation on the Gaussian scale.
    observed : (n,) ndarray
        On the scale of the values, as all scores except the mean squared standardised error.
    transform : Transformation
    level : float
    """
    own = summary(mean, variance, transform.transform(observed), level)
    sd = np.sqrt(variance)
    with np.errstate(over="ignore", invalid="ignore"):
        ends = (transform.inverse(mean + side * z_value(level) * sd) for side in (-1, 1))
        error, (lower, upper) = point - observed, ends
        outside = np.maximum(lower - observed, 0.0) + np.maximum(observed - upper, 0.0)
        return own | {
            "rmse": float(np.sqrt(np.mean(error**2))),
            "mae": float(np.mean(np.abs(error))),
            "bias": float(np.mean(error)),
            "crps": float(np.mean(crps_back_transformed(mean, sd, observed, transform))),
            "log_score": own["log_score"] - float(np.mean(transform.log_jacobian(observed))),
            "interval_score": float(np.mean(upper - lower + 2 / (1 - level) * outside)),
        }


def crps_back_transformed(
    mean: Floats, sd: Floats, observed: Floats, transform: Transformation
) -> Floats:
    """Return the CRPS of t⁻¹(Z) for normal Z, (n,), by quadrature of its quantiles.

    With q(u) = t⁻¹(μ + σu) and z = (t(y) - μ)/σ it is
    2 ∫_{u<z} Φ(u) (y - q(u)) φ(u) du + 2 ∫_{u>z} Φ(-u) (q(u) - y) φ(u) du: Gneiting and Ranjan
    (2011, JBES 29:411). As for moments, infinite quantiles with a probability of 1e-6 do not count.

    Examples
    --------
    >>> import geomxp as gx
    >>> found = crps_back_transformed(np.ones(1), np.ones(1), np.ones(1), gx.Transformation())
    >>> bool(np.isclose(found[0], crps_gaussian(1.0, 1.0, 1.0), rtol=1e-12))
    True
    """
    z = np.clip(
        (transform.transform(observed) - mean) / sd, -NEGLIGIBLE_TAIL_SDS, NEGLIGIBLE_TAIL_SDS
    )[:, None]
    x, weights = np.polynomial.legendre.leggauss(QUADRATURE_NODES)
    result = np.zeros(len(observed))
    for side in (-1, 1):
        half = (NEGLIGIBLE_TAIL_SDS - side * z) / 2
        u = z + side * half * (1 + x)
        with np.errstate(over="ignore", invalid="ignore"):
            quantiles = transform.inverse((mean[:, None] + u * sd[:, None]).T).T
            beyond = side * (quantiles - observed[:, None])
            beyond[np.isinf(beyond) & (np.abs(u) > SMALL_TAIL_SDS)] = 0.0
            result += 2 * (
                half * weights * scipy.special.ndtr(-side * u) * _density(u) * beyond
            ).sum(1)
    return result


def _density(z):
    return np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)


def _checked(**arrays):
    """Return finite arrays of one shape, with positive `sd` and `variance`, `upper` ≥ `lower`."""
    checked, first = {}, next(iter(arrays))
    columns = aligned(labels_of(arrays[first]), f"`{first}`", **arrays)
    for name, values in zip(arrays, columns, strict=True):
        try:
            array = checked[name] = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise InvalidInput(f"`{name}` must be numbers. Got {values!r:.80}.") from None
        bad = ~np.isfinite(array)
        if bad.any():
            raise InvalidInput(
                f"`{name}` must be finite numbers. Got {int(bad.sum())} that are not, the first at "
                f"index {int(np.argmax(bad))}."
            )
        if name in ("sd", "variance") and not (array > 0).all():
            first = int(np.argmin(array > 0))
            raise InvalidInput(
                f"`{name}` must be greater than 0. Got {array.flat[first]:g} at index {first}: a "
                "prediction without an error has no density to score."
            )
    try:
        result = np.broadcast_arrays(*checked.values())
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in checked.items())
        raise InvalidInput(f"shapes must match. Got {shapes}.") from None
    if "lower" in arrays and (result[0] > result[1]).any():
        first = int(np.argmax(result[0] > result[1]))
        raise InvalidInput(f"`lower` must not exceed `upper`. It does at index {first}.")
    return result
