"""Predictive distributions of responses whose η is normal, and their scores.

The distribution of a value y given η is a response's, and η is N(m, s²) where kriging predicts it.
Integrals over η are sums over equally spaced nodes, whose error falls exponentially with their
number: Trefethen and Weideman (2014, SIAM Rev. 56:385). The nodes are so dense that the
distribution of y changes little from one to the next, also for counts of many thousands.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy

from ..covariance.responses import Data, Response
from ..covariance.transformation import Transformation

if TYPE_CHECKING:
    from .._typing import Callable, Floats

REACH_SDS = 8.5
"""Standard deviations of η from its mean up to which nodes reach; 2e-17 of it lies beyond."""

WIDEST_STEP, FINEST_STEP, STEP_SHARE = 0.5, 1 / 128, 0.5
"""Largest and smallest distance of nodes in standard deviations of η, and the largest one in units
of the change of η that shifts a value by its own standard deviation."""

TYPICAL_SDS = 2.5
"""Standard deviations of η from its mean at which this is measured."""

CHUNK_ENTRIES = 1 << 21
"""Values at nodes that are held at one time."""

MOST_BISECTIONS = 200
"""Bisections of a quantile, at most."""

CRPS_POINTS, CRPS_TAIL = 400, 1e-7
"""Points of the integral of a CRPS on either side of the value, and probability beyond its ends."""

MOST_NEWTON_STEPS, LONGEST_NEWTON_STEP = 50, 2.0
"""Steps to the mode of η given a value, and the longest one in standard deviations."""


class Distributions:
    """Base class of distributions of n values: scores from `cumulative`, `below` and `quantile`.

    A subclass also has `__len__` and `discrete`, whether values are counts.
    """

    def crps(self, values: Floats) -> Floats:
        """Return the CRPS ∫ (F(x) - 1{x ≥ y})² dx of values, (n,)."""
        y = np.asarray(values, dtype=float)
        low, high = self.quantile(CRPS_TAIL), self.quantile(1 - CRPS_TAIL)
        result = np.zeros(len(self))
        for side, first, last in ((0, np.minimum(low, y), y), (1, y, np.maximum(high, y))):
            if self.discrete:
                # beyond both quantiles F is 0 or 1, and the sum is a distance
                inside = np.clip(first, low, high), np.clip(last, low, high)
                result += self._sum_of_squares(*inside, side)
                beyond = np.maximum(low - y, 0) if side else np.maximum(y - high, 0)
                result += beyond
            else:
                result += self._integral_of_squares(first, last, side)
        return result

    def _sum_of_squares(self, first, last, side):
        """Return the sum of (F(k) - side)² over k from first to last - 1, (n,).

        Between points that are more than 1 apart F changes little: the distance from the first
        grows geometrically, as the field's values are normal on the scale of the logarithm.
        """
        gap, steps = np.maximum(last - first, 0.0), np.arange(CRPS_POINTS + 1)[:, None]
        growing = np.expm1(steps / CRPS_POINTS * np.log1p(gap))
        points = first + np.round(np.maximum(np.minimum(steps, gap), growing))
        points[-1] = first + gap
        result, before = np.zeros(len(self)), None
        for k in range(CRPS_POINTS):
            here, beyond = points[k], points[k + 1]
            length = beyond - here
            if not length.any():
                continue
            f = (self.cumulative(here) if before is None else before) - side
            if (length > 1).any():
                before = self.cumulative(beyond - 1)
                ends = before - side
                # a parabola through the ends and the middle, and the sum over whole numbers
                middle = self.cumulative(np.floor((here + beyond - 1) / 2)) - side
                whole = (f**2 + 4 * middle**2 + ends**2) / 6
                result += np.where(length > 1, length * whole, length * f**2)
            else:
                result += length * f**2
            before = None
        return result

    def _integral_of_squares(self, first, last, side):
        """Return ∫ (F(x) - side)² dx from first to last, (n,), by Gauss and Legendre's rule."""
        x, weights = np.polynomial.legendre.leggauss(CRPS_POINTS // 4)
        half = (last - first) / 2
        result = np.zeros(len(self))
        for node, weight in zip(x, weights, strict=True):
            # more points near the value, where F changes most
            u = (1 + node) / 2
            place = 1 - (1 - u) ** 2 if side == 0 else u**2
            slope = 2 * (1 - u) if side == 0 else 2 * u
            at = first + place * (last - first)
            result += weight * half * slope * (self.cumulative(at) - side) ** 2
        return result

    def pit(self, values: Floats, random: np.random.Generator) -> Floats:
        """Return P(Y < y) + U P(Y = y), (n,): uniform for a correct model (Czado et al. 2009)."""
        y = np.asarray(values, dtype=float)
        upper, lower = self.cumulative(y), self.below(y)
        return lower + random.random(len(self)) * (upper - lower)


@dataclass(frozen=True)
class Mixture(Distributions):
    """Distribution of new observations of a response, for normal η.

    Parameters
    ----------
    response : Response
    mean, variance : (n,) ndarray
        Of η, including the noise of the field and the offset.
    trials : (n,) ndarray or None
        Of a binomial response; 1 if not given.
    steps : (n,) ndarray or None
        Distances of nodes, in standard deviations of η; computed if not given.
    """

    response: Response
    mean: Floats
    variance: Floats
    trials: Floats | None = None
    steps: Floats | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.steps is None:
            object.__setattr__(self, "steps", self._steps())

    def __len__(self) -> int:
        return len(self.mean)

    @property
    def discrete(self) -> bool:
        """Whether values are counts."""
        return self.response.discrete

    def of_rows(self, rows: Floats) -> Mixture:
        """Return the distributions of some rows."""
        trials = None if self.trials is None else self.trials[rows]
        columns = (column[rows] for column in (self.mean, self.variance))
        return Mixture(self.response, *columns, trials, self.steps[rows])

    def _data(self, values=None):
        """Return the data of one value for each row."""
        values = np.zeros(len(self)) if values is None else values
        return Data(values, trials=self.trials, lower=values, upper=values)

    @property
    def _sd(self):
        return np.sqrt(self.variance)

    # integrals over η

    def _steps(self):
        """Return the distance of nodes of each row, (n,), a power of 2."""
        steps = np.full(len(self), WIDEST_STEP)
        with np.errstate(all="ignore"):
            for side in (-1, 0, 1):
                eta = self.mean + side * TYPICAL_SDS * self._sd
                data = self._data(self.response.mean(self._data(), eta))
                information = -self.response.derivatives(data, eta).eta[1]
                wanted = STEP_SHARE / np.sqrt(np.maximum(information, 1e-300)) / self._sd
                steps = np.fmin(steps, wanted)
        steps = 2.0 ** np.floor(np.log2(np.maximum(steps, FINEST_STEP)))
        return np.clip(steps, FINEST_STEP, WIDEST_STEP)

    def _parts(self, per_node: int = 1) -> Iterator[tuple[Floats, Floats, Floats]]:
        """Yield rows, their η at the nodes, (k, rows), and the weights of the nodes, (k,)."""
        steps = self.steps
        for step in np.unique(steps):
            z = np.arange(-REACH_SDS, REACH_SDS + step / 2, step)
            weights = np.exp(-0.5 * z * z)
            weights /= weights.sum()
            rows = np.flatnonzero(steps == step)
            count = max(1, CHUNK_ENTRIES // len(z) // per_node)
            for first in range(0, len(rows), count):
                some = rows[first : first + count]
                yield some, self.mean[some] + np.multiply.outer(z, self._sd[some]), weights

    def _expected(self, function: Callable) -> Floats:
        """Return E function(mixture of rows, η), (n,)."""
        result = np.empty(len(self))
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            for rows, eta, weights in self._parts():
                result[rows] = weights @ function(self.of_rows(rows), eta)
        return result

    def mean_value(self) -> Floats:
        """Return the means of the values, (n,)."""
        return self._expected(lambda part, eta: part.response.mean(part._data(), eta))

    def variance_value(self) -> Floats:
        """Return the variances of the values, (n,): E Var(y|η) + Var E(y|η)."""
        mean = self.mean_value()

        def spread(part, eta):
            data = part._data()
            return part.response.variance(data, eta) + part.response.mean(data, eta) ** 2

        return np.maximum(self._expected(spread) - mean**2, 0.0)

    def cumulative(self, at: Floats) -> Floats:
        """Return the probability of values up to `at`, (n,)."""
        at, result = np.broadcast_to(at, len(self)), np.empty(len(self))
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            for rows, eta, weights in self._parts():
                part = self.of_rows(rows)
                result[rows] = weights @ self.response.cumulative(part._data(), eta, at[rows])
        return result.clip(0.0, 1.0)

    def below(self, at: Floats) -> Floats:
        """Return the probability of values less than `at`, (n,)."""
        at = np.broadcast_to(np.asarray(at, dtype=float), len(self))
        if self.response.discrete:
            return self.cumulative(at - 1)
        return np.where(at > 0, self.cumulative(at), 0.0) if self.response.atom else (
            self.cumulative(at)
        )  # fmt: skip

    def quantile(self, p: Floats) -> Floats:
        """Return the smallest value whose cumulative probability is at least p, (n,)."""
        p = np.broadcast_to(np.asarray(p, dtype=float), len(self)).copy()
        data, response = self._data(), self.response
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            low, high = (
                response.quantile(data, self.mean + side * REACH_SDS * self._sd, p)
                for side in (-1, 1)
            )
        low = np.minimum(low, high)
        if response.atom:
            high = np.where(self.cumulative(0.0) >= p, 0.0, high)
            low = np.where(high == 0, 0.0, low)
        if response.discrete:
            low = low - 1
        active = np.flatnonzero(np.isfinite(low) & np.isfinite(high) & (low < high))
        for _ in range(MOST_BISECTIONS):
            if response.discrete:
                active = active[high[active] - low[active] > 1]
            else:
                wide = high[active] - low[active] > 1e-12 * np.abs(high[active]) + 1e-300
                active = active[wide]
            if not len(active):
                break
            middle = _between(low[active], high[active], response.discrete)
            reached = self.of_rows(active).cumulative(middle) >= p[active]
            high[active] = np.where(reached, middle, high[active])
            low[active] = np.where(reached, low[active], middle)
        return high

    def log_density(self, values: Floats) -> Floats:
        """Return log p(y) of values, (n,), by nodes about the mode of η given the value."""
        result, data = np.empty(len(self)), self._data(np.asarray(values, dtype=float))
        return self.log_density_of(data, result)

    def log_density_of(self, data: Data, result: Floats | None = None) -> Floats:
        """Return the log densities, or probabilities of censored values, of data, (n,)."""
        result = np.empty(len(self)) if result is None else result
        eta, sd = self._modes(data)
        # both the value and the prior may be far from the mode
        z = np.arange(-REACH_SDS, REACH_SDS + 0.05, 0.1)
        count = max(1, CHUNK_ENTRIES // len(z))
        with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
            for first in range(0, len(self), count):
                rows = slice(first, first + count)
                nodes = eta[rows] + np.multiply.outer(z, sd[rows])
                part, mean, var = data.of_rows(rows), self.mean[rows], self.variance[rows]
                logs = np.array([self.response.log_density(part, each) for each in nodes])
                logs = logs - 0.5 * ((nodes - mean) ** 2 / var + np.log(2 * np.pi * var))
                logs = np.where(np.isnan(logs), -np.inf, logs)
                result[rows] = scipy.special.logsumexp(logs, axis=0) + np.log(0.1 * sd[rows])
        return result

    def _modes(self, data):
        """Return the mode of η given each value, and a width of the density about it, (n,)."""
        eta, precision = self.mean.astype(float).copy(), 1.0 / self.variance
        for _ in range(MOST_NEWTON_STEPS):
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                slopes = self.response.derivatives(data, eta).eta
            w = np.maximum(-np.nan_to_num(slopes[1]), 0.0) + precision
            step = (np.nan_to_num(slopes[0]) - (eta - self.mean) * precision) / w
            longest = LONGEST_NEWTON_STEP * self._sd
            step = np.clip(step, -longest, longest)
            eta += step
            if (np.abs(step) <= 1e-9 * self._sd).all():
                break
        return eta, 1.0 / np.sqrt(w)

    def brier(self, values: Floats) -> float | None:
        """Return the Brier score of binary values; None for other values."""
        if self.response.links == ("log",) or not np.isin(values, (0, 1)).all():
            return None
        return float(np.mean((values - self.mean_value()) ** 2))

    def draw(self, random: np.random.Generator) -> Floats:
        """Return random values, (n,)."""
        eta = self.mean + self._sd * random.standard_normal(len(self))
        return self.response.draw(self._data(), eta, random)


@dataclass(frozen=True)
class HurdleMixture(Distributions):
    """Distribution of new observations that are 0 or positive, by independent mixtures.

    Parameters
    ----------
    presence : Mixture
        Of 1 where a value is not 0, else 0.
    amount : Mixture
        Of the values that are not 0, (n,).

    Examples
    --------
    A value is 0 with probability 1/2, otherwise gamma with mean 1, almost without a field:

    >>> from geomxp.covariance.responses import Bernoulli, Gamma
    >>> zero, small = np.zeros(1), np.full(1, 1e-12)
    >>> both = HurdleMixture(Mixture(Bernoulli(), zero, small), Mixture(Gamma(), zero, small))
    >>> both.mean_value().round(6), both.cumulative(0.0).round(6), both.quantile(0.4)
    (array([0.5]), array([0.5]), array([0.]))
    """

    presence: Mixture
    amount: Mixture

    def __len__(self) -> int:
        return len(self.presence)

    @property
    def discrete(self) -> bool:
        """Whether values are counts."""
        return self.amount.discrete

    @cached_property
    def probability(self) -> Floats:
        """Probability that a value is not 0, (n,)."""
        return self.presence.mean_value()

    def of_rows(self, rows: Floats) -> HurdleMixture:
        """Return the distributions of some rows."""
        return HurdleMixture(self.presence.of_rows(rows), self.amount.of_rows(rows))

    def mean_value(self) -> Floats:
        """Return the means of the values, (n,)."""
        return self.probability * self.amount.mean_value()

    def variance_value(self) -> Floats:
        """Return the variances of the values, (n,)."""
        p, mean = self.probability, self.amount.mean_value()
        return p * self.amount.variance_value() + p * (1 - p) * mean**2

    def cumulative(self, at: Floats) -> Floats:
        """Return the probability of values up to `at`, (n,)."""
        p, at = self.probability, np.asarray(at, dtype=float)
        return np.where(at < 0, 0.0, 1 - p + p * self.amount.cumulative(at))

    def below(self, at: Floats) -> Floats:
        """Return the probability of values less than `at`, (n,)."""
        p, at = self.probability, np.asarray(at, dtype=float)
        return np.where(at > 0, 1 - p + p * self.amount.below(at), 0.0)

    def quantile(self, p: Floats) -> Floats:
        """Return the smallest value whose cumulative probability is at least p, (n,)."""
        rest = 1 - (1 - np.broadcast_to(np.asarray(p, dtype=float), len(self))) / self.probability
        # cells that a mask leaves out have no prediction: their quantiles are NaN
        result, rows = np.where(np.isnan(rest), np.nan, 0.0), np.flatnonzero(rest > 0)
        result[rows] = self.amount.of_rows(rows).quantile(rest[rows])
        return result

    def log_density(self, values: Floats) -> Floats:
        """Return log p(y) of values, (n,): the log probability where a value is 0."""
        values = np.asarray(values, dtype=float)
        result, rows = self.presence.log_density(values != 0), np.flatnonzero(values)
        result[rows] += self.amount.of_rows(rows).log_density(values[rows])
        return result

    def draw(self, random: np.random.Generator) -> Floats:
        """Return random values, (n,)."""
        return self.presence.draw(random) * self.amount.draw(random)

    def brier(self, values: Floats) -> float:
        """Return the mean squared difference of presences and their probabilities."""
        return float(np.mean(((values != 0) - self.probability) ** 2))


def _between(low, high, discrete):
    """Return a point between two ends: the geometric mean where both are positive and far apart."""
    with np.errstate(invalid="ignore", divide="ignore"):
        far = (low > 0) & (high > 4 * low)
        middle = np.where(far, np.sqrt(low) * np.sqrt(high), low / 2 + high / 2)
    if not discrete:
        return middle
    return np.clip(np.floor(middle), low + 1, high - 1)


@dataclass(frozen=True)
class MeanScale(Transformation):
    """Back-transformation of η to the mean of a value given η: the inverse link of a response."""

    response: Response | None = None

    @property
    def name(self) -> str:
        """The response's name."""
        return self.response.name

    def inverse(self, z: Floats) -> Floats:
        """Return the mean of a value, or the probability of a success."""
        z = np.asarray(z, dtype=float)
        flat = z.reshape(-1)
        with np.errstate(over="ignore"):
            return np.asarray(self.response.mean(Data(np.zeros(len(flat))), flat)).reshape(z.shape)

    def transform(self, values: Floats) -> Floats:
        """Return the η with these means."""
        return self.response.link_of(values)

    def threshold(self, value: float) -> float:
        """Return the largest η whose mean is at most a value."""
        found = float(self.response.link_of(np.array([value], dtype=float))[0])
        if np.isnan(found):
            low, high = self.inverse(np.array([-700.0, 700.0]))
            return -np.inf if value < low else np.inf if value >= high else found
        return found
