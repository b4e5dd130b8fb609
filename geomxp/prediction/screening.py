"""Screening of observations before a fit: transformations of the values, and outliers."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite, log
from typing import TYPE_CHECKING

import numpy as np

from ..covariance.distance import embed
from ..covariance.transformation import NOTABLE_ZEROS, BoxCox, transformation
from ..errors import InvalidInput
from ..runtime.equality import by_content
from .variogram import in_time, lags_of, least_squares, step_in_time

if TYPE_CHECKING:
    from .._typing import Floats, Whole
    from ..data.observations import Observations

NOTABLE_SKEWNESS = 0.5
"""Skewness of the residuals from which a transformation may be suggested."""

SIMPLER_GAIN_SHARE = 0.9
"""Share of the gain in log-likelihood of the best transformation that a simpler one must reach."""

REMAINING_SKEWNESS_SHARE = 0.5
"""Largest skewness after a transformation, as a share of that before."""

BOX_COX_POWERS = (-2.0, 2.0)
"""Range of the power of Box and Cox."""

COMPARED_NEIGHBOURS = 8
"""Number of neighbours whose median an observation is compared with."""

OVERFLOW_CRITERION = 1e100
"""Criterion of a power that overflows, which a search can compute with."""

OTHER_TIME_FACTOR = 1e6
"""Factor by which other times are farther than other locations, if neighbours are of one time."""

EPS = float(np.finfo(float).eps)

LARGEST_OUTLIER_SCORE = 1e6
"""Largest score of an outlier."""

FALSE_OUTLIER_PROBABILITY = 0.01
"""Probability that some value of a normal sample is called an outlier."""

CLUMPED_RATIO = 5.0
"""Ratio of variance and mean of counts above which they vary more than a field usually explains."""

MOST_ZEROS, LEAST_SPREAD_OF_PROPORTIONS = 0.5, 0.2
"""Share of zeros above which presence needs a field of its own; range of values between 0 and 1
above which they may be proportions."""


@dataclass(frozen=True)
class ScreenedTransformation:
    """A transformation of the values, judged as if the residuals were independent.

    The log-likelihood is that of the measured values: of normal residuals about the trend by least
    squares, on the transformed scale, with the Jacobian. `parameter` is the power of Box and Cox.
    `skewness` is that of the residuals.
    """

    name: str
    parameter: float | None
    log_likelihood: float
    skewness: float

    @property
    def title(self) -> str:
        """Name in words, with the power of Box and Cox."""
        words = {"sqrt": "square root (sqrt)", "none": "no transformation"}
        if self.name == "boxcox":
            return f"Box-Cox with power {self.parameter:.2f} (boxcox)"
        return words.get(self.name, self.name)

    @property
    def known(self) -> bool:
        """Whether there is a log-likelihood: the values are not all equal."""
        return isfinite(self.log_likelihood)


def transformed(values, name, parameter=None):
    """Return transformed values and log|dz/dy| of each, (n,) and (n,).

    >>> transformed(np.array([1.0, 4.0]), "sqrt")[0]
    array([1., 2.])
    """
    if name == "none":
        return values, np.zeros(len(values))
    model = transformation(name) if parameter is None else BoxCox(parameter)
    return model.transform(values), model.log_jacobian(values)


def transformations_of(observations, trend, ends=None):
    """Return the transformations that the values allow, judged after a trend; "none" is first.

    log, sqrt and boxcox need values above 0, logit needs values between 0 and 1. `ends` are the
    smallest and largest value that must be allowed, where they are not those of the observations.
    """
    from scipy.optimize import minimize_scalar

    residuals_of = least_squares(observations, trend)
    y = observations.values
    low, high = (y.min(), y.max()) if ends is None else ends
    # powers of values in another unit differ by a factor only
    scale = float(np.exp(np.mean(np.log(y)))) if low > 0 else 1.0

    def judged(name, parameter=None):
        with np.errstate(over="ignore", invalid="ignore"):
            z, jacobian = transformed(y / scale if name == "boxcox" else y, name, parameter)
            r = residuals_of(z)
            spread = float(np.sqrt(np.mean(r**2)))
        # rounding errors of values that the trend fits exactly
        if not 16 * EPS * np.abs(z).max() < spread < inf:
            return ScreenedTransformation(name, parameter, -inf, 0.0)
        jacobian = float(jacobian.sum()) - (len(y) * log(scale) if name == "boxcox" else 0.0)
        value = -len(r) * (log(2 * np.pi) / 2 + log(spread) + 0.5) + jacobian
        return ScreenedTransformation(name, parameter, value, skewness(r))

    names = ["none"]
    if low > 0:
        names += ["log", "sqrt"]
    if low > 0 and high < 1:
        names.append("logit")
    found = [judged(name) for name in names]
    if low > 0 and found[0].known:

        def minus(power):
            return min(-judged("boxcox", power).log_likelihood, OVERFLOW_CRITERION)

        best = minimize_scalar(
            minus, bounds=BOX_COX_POWERS, method="bounded", options={"xatol": 1e-4}
        )
        found.append(judged("boxcox", float(best.x)))
    return tuple(found)


def suggested(found):
    """Return the `ScreenedTransformation` to suggest, or None.

    The simplest one with `SIMPLER_GAIN_SHARE` of the gain of the best; None if the residuals of the
    values are not skewed, if no transformation is more likely, or if they stay about as skewed with
    it.
    """
    none, *others = found
    best = max(found, key=lambda one: one.log_likelihood)
    if not none.known:
        return None
    gain = best.log_likelihood - none.log_likelihood
    # 1.92: half the 95 % quantile of chi-square with one degree of freedom
    if abs(none.skewness) < NOTABLE_SKEWNESS or gain < 1.92:
        return None
    simple = [one for one in others if one.parameter is None]
    nearest = max(simple, key=lambda one: one.log_likelihood, default=best)
    enough = nearest.log_likelihood - none.log_likelihood >= SIMPLER_GAIN_SHARE * gain
    one = nearest if enough else best
    return one if abs(one.skewness) <= REMAINING_SKEWNESS_SHARE * abs(none.skewness) else None


@dataclass(frozen=True)
class SuggestedResponse:
    """A response for values that are not Gaussian, and a sentence that says why."""

    name: str
    why: str


def suggested_response(observations: Observations) -> SuggestedResponse | None:
    """Return the response that suits the kind of the values, or None for measurements.

    It recognizes values with limits, numbers of successes in trials, only 0 and 1, whole numbers
    with zeros, measurements with many zeros, and proportions.

    Examples
    --------
    >>> import numpy as np, geomxp as gx
    >>> counts = gx.Observations(np.arange(5.0)[:, None], [0.0, 3.0, 1.0, 0.0, 2.0])
    >>> suggested_response(counts).name
    'poisson'
    """
    values = observations.values
    zeros = float((values == 0).mean())
    share = f"{100 * zeros:.0f} % of the values are 0"
    if observations.limits_in_words:
        return SuggestedResponse("censored", f"{observations.limits_in_words}.")
    if observations.trials is not None:
        return SuggestedResponse("binomial", "The values are numbers of successes in trials.")
    if np.unique(values).tolist() == [0.0, 1.0]:
        return SuggestedResponse("bernoulli", "All values are 0 or 1.")
    if values.min() < 0 or not np.ptp(values) > 0:
        return None
    whole = bool((values == np.round(values)).all())
    if whole and zeros > 0:
        exposure = 1.0 if observations.exposure is None else observations.exposure
        expected = exposure * values.sum() / np.sum(exposure * np.ones(len(values)))
        clumped = np.mean((values - expected) ** 2 / expected) > CLUMPED_RATIO
        name = "negative-binomial" if clumped else "poisson"
        return SuggestedResponse(name, f"The values are counts: whole numbers, and {share}.")
    if zeros > NOTABLE_ZEROS:
        name = "hurdle" if zeros > MOST_ZEROS else "tweedie"
        said = "so that no transformation makes them Gaussian"
        return SuggestedResponse(name, f"{share[:1].upper()}{share[1:]}, {said}.")
    if values.min() > 0 and values.max() < 1 and np.ptp(values) > LEAST_SPREAD_OF_PROPORTIONS:
        return SuggestedResponse("beta", "All values are between 0 and 1, as proportions are.")
    return None


def skewness(r):
    """Return the skewness of numbers, 0 if they are equal."""
    d = r - r.mean()
    size = float(np.abs(d).max())
    if not size > 0:
        return 0.0
    d = d / size
    return float(np.mean(d**3) / np.mean(d**2) ** 1.5)


@by_content
@dataclass(frozen=True)
class Outliers:
    """Observations that are far from the trend, or from their neighbours, on one scale.

    `rows` (k,) are in descending order of the larger score. `by_value` (k,) are the residuals from
    the trend, and `by_neighbours` (k,) the differences from the median of the nearest neighbours in
    units of their usual size at that distance; both less their median, in units of their robust
    standard deviation. A score beyond `limit` is one of an outlier.
    """

    rows: Whole
    by_value: Floats
    by_neighbours: Floats
    limit: float

    def __len__(self) -> int:
        return len(self.rows)


def below_zero(fit, lower):
    """Return a sentence that suggests a transformation, or None.

    It is for positive, skewed values of one variable without one, if a prediction interval begins
    below 0.
    """
    values = fit.observations.values
    if fit.observations.variable is not None:
        return None
    response = fit.model.response
    if response is not None and not response.transformable:
        return None
    if fit.model.transform is not None or values.min() <= 0 or skewness(values) < NOTABLE_SKEWNESS:
        return None
    if not np.nanmin(lower) < 0:
        return None
    return (
        f"all values of {fit.observations.value_name} are positive and they are skewed, but "
        "prediction intervals begin below 0: fit again with a transformation, such as "
        '--transform log (transform="log")'
    )


def outliers_of(observations, residuals, seed=0):
    """Return the `Outliers` among observations by their residuals from a trend, (n,)."""
    from scipy.special import ndtri

    n, residuals = len(observations), residuals / (np.abs(residuals).max() or 1.0)
    by_value = _scores(residuals)
    by_neighbours = _scores(_from_neighbours(observations, residuals, seed))
    limit = float(-ndtri(FALSE_OUTLIER_PROBABILITY / (2 * n)))
    size = np.maximum(np.abs(by_value), np.abs(by_neighbours))
    rows = np.flatnonzero(size > limit)
    rows = rows[np.argsort(-size[rows], kind="stable")]
    return Outliers(rows, by_value[rows], by_neighbours[rows], limit)


def _from_neighbours(observations, r, seed):
    """Return the difference of each residual from the median of its neighbours, (n,), scaled."""
    from scipy.spatial import KDTree

    points = embed(observations.locations, observations.metric)
    times, first = in_time(observations), None
    if times is not None:
        # neighbours are those of the same time; if most times occur once, a share of the time span
        # is as far as the same share of the region
        first = [0.0]
        scale = np.ptp(points, axis=0).max() / np.ptp(times)
        if step_in_time(times) is not None:
            scale *= OTHER_TIME_FACTOR
        points = np.column_stack((points, scale * times))
    try:
        lags = lags_of(observations, bins=None, time_lags=first, seed=seed)
    except InvalidInput:
        # one location has no distances
        return np.zeros(len(r))
    count = min(COMPARED_NEIGHBOURS, len(r) - 1)
    distance, rows = KDTree(points).query(points, count + 1)
    # an observation is not the first of several at its location
    own = rows == np.arange(len(r))[:, None]
    own[~own.any(axis=1), -1] = True
    distance, rows = (part[~own].reshape(-1, count) for part in (distance, rows))
    known = lags.robust(r[lags.rows])
    gamma = np.interp(distance.mean(axis=1), lags.distance, known)
    least = max(1e-12 * float(known.max()), 1e-300)
    return (r - np.median(r[rows], axis=1)) / np.sqrt(np.maximum(gamma, least))


def _scores(d):
    """Return numbers less their median in units of 1.4826 MAD; zeros if the MAD is 0."""
    d = d - np.median(d)
    size = 1.4826 * float(np.median(np.abs(d)))
    if not size > 16 * EPS:
        return np.zeros(len(d))
    return np.clip(d / size, -LARGEST_OUTLIER_SCORE, LARGEST_OUTLIER_SCORE)
