"""The exact likelihood of censored Gaussian values, by integration over the censored ones.

With the values that are known exactly, k, and the others, c, between limits l and u,

    ℓ = log N(y_k; Xβ, Σ) + log P(l < Z < u),

where Z has the distribution of y_c given y_k. The probability is an integral over a cube, by Genz's
sequential conditioning (1992, J. Comput. Graph. Stat. 1:141) with Botev's tilting, on Sobol's
points with a few random shifts. The points are the same for all models, so that ℓ is a smooth
function of the parameters.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import scipy

from ..errors import Ending, InvalidInput, NotPositiveDefinite, Outcome
from ..runtime.devices import blas_threads
from .base import Evaluation, Evaluator
from .latent import LaplaceEvaluator, bare, data_of
from .replicates import dense_covariance

if TYPE_CHECKING:
    from .._typing import Floats

MOST_CENSORED = 100
"""Limit on the censored values of an exact likelihood."""

MOST_COMPARED = 500
"""Most places at which Laplace's approximation is compared with the integral."""

SEARCH_POINTS, MOST_POINTS, SHIFTS = 1 << 8, 1 << 16, 8
"""Points of the sequence during a search; most points for a result; random shifts of the points."""

EIGENVALUE_TOLERANCE = 1e-14
"""Smallest conditional variance of a censored value, relative to its variance."""

MOST_COEFFICIENT_STEPS, LEAST_STEP_SHARE, COEFFICIENT_GAIN = 50, 1e-6, 1e-9
"""Most steps of the coefficients, smallest share of a step, and gain below which the steps end."""

CHORD_STEPS = 6
"""Steps of the coefficients after which their second derivatives are computed again."""

REPORTED_ERROR = 1e-6
"""Standard error of the log-likelihood of a result below which no more points are added."""

HESSIAN_STEP = 1e-2
"""Step of second differences, in logarithms of parameters and in standard errors."""


class CensoredEvaluator(LaplaceEvaluator):
    """ℓ(θ) of censored Gaussian values by integration, with the coefficients profiled out."""

    scoring = False

    def __init__(self, observations, design, method, response):
        super().__init__(observations, design, method, response)
        count = int(observations.censored.sum())
        if count > MOST_CENSORED:
            raise InvalidInput(
                f"the exact likelihood is for up to {MOST_CENSORED} censored values. Got {count}: "
                'use integral="laplace".'
            )
        self._points, self._last_beta, self._bend = SEARCH_POINTS, None, None

    def has_curvature(self, names):
        """See `Evaluator.has_curvature`: there are no derivatives."""
        return False

    # those of Laplace's approximation are not of this ℓ
    derivatives = Evaluator.derivatives
    observed_information = Evaluator.observed_information

    def keeps(self, model):
        """See `Evaluator.keeps`."""
        return False

    @blas_threads(0)
    def reported(self, model):
        """Evaluate with as many points as the standard error of a result needs."""
        self._points = 4 * SEARCH_POINTS
        evaluation = self(model)
        if np.isfinite(evaluation.log_likelihood):
            parts, value, error = self._parts(model), None, evaluation.error
            while error > REPORTED_ERROR and self._points < MOST_POINTS:
                self._points *= 4
                value, error = self._value(parts, evaluation.coefficients)
            if value is not None:
                evaluation = replace(evaluation, log_likelihood=value, error=error)
        self._points = SEARCH_POINTS
        return evaluation

    @blas_threads(0)
    def _evaluation(self, model, value_of):
        start, n = time.perf_counter(), len(self.observations)
        p = self.design.shape[1]
        try:
            parts = self._parts(model)
            beta = self._best_beta(parts)
            value, error = self._value(parts, beta)
            information = np.eye(p)
            if self._points > SEARCH_POINTS:
                information = -self._second_differences(lambda b: self._value(parts, b)[0], beta)
        except (NotPositiveDefinite, np.linalg.LinAlgError) as failure:
            outcome = Outcome(Ending.NOT_POSITIVE_DEFINITE, str(failure))
            return Evaluation.failed(outcome, n, time.perf_counter() - start)
        nan = float("nan")
        return Evaluation(
            log_likelihood=value,
            log_determinant=nan,
            quadratic_form=nan,
            outcome=Outcome(Ending.COMPUTED),
            n=n,
            coefficients=beta,
            coefficient_covariance=np.linalg.inv(information) if p else np.zeros((0, 0)),
            seconds=time.perf_counter() - start,
            log_jacobian=self._jacobian,
            error=error,
        )

    def at(self, model, coefficients):
        """Evaluate the log-likelihood at coefficients of the trend."""
        value, error = self._value(self._parts(model), np.asarray(coefficients, dtype=float))
        nan, p = float("nan"), len(coefficients)
        return Evaluation(
            value,
            nan,
            nan,
            Outcome(Ending.COMPUTED),
            len(self.observations),
            coefficients=np.asarray(coefficients, dtype=float),
            coefficient_covariance=np.zeros((p, p)),
            error=error,
        )

    def _parts(self, model):
        """Return what ℓ(β) of a model needs."""
        data, self._jacobian = data_of(self.observations, model.transform)
        self._transform = "unknown"
        exact = data.lower == data.upper
        sigma = dense_covariance(bare(model), self.observations.inputs)
        sigma[np.diag_indices(len(sigma))] += model.response.error_variance
        try:
            lower = scipy.linalg.cholesky(sigma[np.ix_(exact, exact)], lower=True)
            cross = scipy.linalg.solve_triangular(lower, sigma[np.ix_(exact, ~exact)], lower=True)
            rest = sigma[np.ix_(~exact, ~exact)] - cross.T @ cross
        except np.linalg.LinAlgError:
            raise NotPositiveDefinite("Σ has no Cholesky factor in FP64.") from None
        return data, exact, lower, cross, rest

    def _value(self, parts, beta):
        """Return ℓ at coefficients, and its standard error."""
        data, exact, lower, cross, rest = parts
        mean = self.laplace.offset + self.design @ beta
        white = scipy.linalg.solve_triangular(lower, (data.values - mean)[exact], lower=True)
        density = -0.5 * white @ white - np.log(lower.diagonal()).sum()
        density -= 0.5 * len(white) * np.log(2 * np.pi)
        centre = mean[~exact] + cross.T @ white
        log, error = log_probability(
            data.lower[~exact] - centre, data.upper[~exact] - centre, rest, self._points
        )
        return float(density + log) + self._jacobian, error

    def _best_beta(self, parts):
        """Return the coefficients with the largest ℓ, by Newton's method with differences."""
        p = self.design.shape[1]
        beta = self._last_beta
        if beta is None:
            beta = np.linalg.lstsq(self.design, parts[0].values, rcond=None)[0]
        if not p:
            return beta

        def value(b):
            return self._value(parts, b)[0]

        known = value(beta)
        for k in range(MOST_COEFFICIENT_STEPS):
            slope = self._slope_at(value, beta)
            if self._bend is None or k % CHORD_STEPS == CHORD_STEPS - 1:
                self._bend = -self._second_differences(value, beta)
                if not np.linalg.eigvalsh(self._bend)[0] > 0:
                    # ℓ is concave: this is an error of the points, or far from the maximum
                    self._bend = self.design.T @ self.design / np.var(parts[0].values)
            step, size = np.linalg.solve(self._bend, slope), 1.0
            while (trial := value(beta + size * step)) < known and size > LEAST_STEP_SHARE:
                size /= 2
            if not trial >= known:
                self._bend = None
                break
            gain, beta, known = trial - known, beta + size * step, trial
            if gain < COEFFICIENT_GAIN:
                break
        self._last_beta = beta
        return beta

    def _steps(self):
        """Return steps of differences of the coefficients, (p,)."""
        spread = float(np.std(self.observations.values)) or 1.0
        return 1e-2 * spread / np.maximum(np.abs(self.design).max(axis=0), 1e-300)

    def _slope_at(self, function, beta):
        """Return the slope of a function of the coefficients, (p,)."""
        steps, p = self._steps(), len(beta)
        slope = np.empty(p)
        for j in range(p):
            move = np.zeros(p)
            move[j] = steps[j]
            slope[j] = (function(beta + move) - function(beta - move)) / (2 * steps[j])
        return slope

    def _second_differences(self, function, beta):
        """Return the second derivatives of a function of the coefficients, (p, p)."""
        return second_differences(function, beta, self._steps())

    def joint_information(self, model, names):
        """Return minus the Hessian of ℓ by these parameters and the coefficients, (k + p, k + p).

        By second differences.
        """
        values, beta = model.parameters(), self(model).coefficients
        table = {one.name: one for one in model.table}
        start = np.r_[[values[name] for name in names], beta]
        units = [
            max(abs(values[name]), 1e-3) if table[name].transform == "log" else 1.0
            for name in names
        ]
        steps = np.r_[HESSIAN_STEP * np.array(units), self._steps()]
        k = len(names)

        def function(x):
            moved = model.replace(**dict(zip(names, x[:k].tolist(), strict=True)))
            return self._value(self._parts(moved), x[k:])[0]

        return -second_differences(function, start, steps)


def error_of_laplace(observations, design, method, model, coefficients):
    """Return by how much Laplace's ℓ exceeds the integral, and over how many censored values.

    ℓ is that at coefficients, (p,), with `method`, the one of dense matrices. Of many values it is
    that of a part: the places around a censored value in the middle. The difference is NaN if one
    of both has no value in FP64.
    """
    censored, places = observations.censored, observations.locations
    if not censored.any():
        return 0.0, 0
    of_censored = places[censored]
    middle = np.linalg.norm(of_censored - np.median(of_censored, axis=0), axis=1).argmin()
    order = np.argsort(np.linalg.norm(places - of_censored[middle], axis=1), kind="stable")
    order = order[:MOST_COMPARED]
    rows = np.sort(order[np.cumsum(censored[order]) <= MOST_CENSORED])
    part = (observations.subset(rows), design if design is None else design[rows], method)
    found, count = [], int(censored[rows].sum())
    for kind, integral in ((LaplaceEvaluator, "laplace"), (CensoredEvaluator, "exact")):
        response = replace(model.response, integral=integral)
        evaluator, own = kind(*part, response), replace(model, response=response)
        try:
            found.append(evaluator.at(own, coefficients).log_likelihood)
        except NotPositiveDefinite:
            return float("nan"), count
    return found[0] - found[1], count


def second_differences(function, start, steps):
    """Return the second derivatives of a function of (p,) at a point, (p, p)."""
    p, found = len(start), np.empty((len(start),) * 2)
    moves, middle = np.diag(steps), function(start)
    for i in range(p):
        ends = function(start + moves[i]) + function(start - moves[i])
        found[i, i] = (ends - 2 * middle) / steps[i] ** 2
        for j in range(i):
            corners = (
                side * other * function(start + side * moves[i] + other * moves[j])
                for side in (1, -1)
                for other in (1, -1)
            )
            found[i, j] = found[j, i] = sum(corners) / (4 * steps[i] * steps[j])
    return found


def log_probability(
    lower: Floats, upper: Floats, covariance: Floats, points: int = SEARCH_POINTS, seed: int = 0
) -> tuple[float, float]:
    """Return log P(l < Z < u) for Z ~ N(0, Σ), and its standard error.

    Parameters
    ----------
    lower, upper : (k,) ndarray
        May be infinite.
    covariance : (k, k) ndarray
    points : int
        Number of points of Sobol's sequence, a power of 2, for each of 8 random shifts.
    seed : int

    Examples
    --------
    The orthant probability of two variables with a correlation of ½ is 1/3:

    >>> limits = np.zeros(2), np.full(2, np.inf)
    >>> found, error = log_probability(*limits, np.array([[1.0, 0.5], [0.5, 1.0]]), 1 << 12)
    >>> bool(abs(np.exp(found) - 1 / 3) < 1e-5)
    True
    """
    k = len(lower)
    if not k:
        return 0.0, 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        # far in a tail
        low, high, root = _ordered(lower, upper, covariance)
    scale = root.diagonal().copy()
    low, high = low / scale, high / scale
    root = root / scale[:, None]
    root[np.diag_indices(k)] = 0.0
    if k == 1:
        return float(_log_between(low, high)[0]), 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        tilt = _tilted(low, high, root)
    shifts = np.random.default_rng(seed).random((SHIFTS, 1, k - 1))
    # the tent makes the integrand periodic
    x = np.abs(2.0 * ((_sobol(k - 1, points) + shifts) % 1.0) - 1.0)
    logs = _integrand(low, high, root, tilt, x.reshape(-1, k - 1)).reshape(SHIFTS, points)
    found = scipy.special.logsumexp(logs, axis=1) - np.log(points)
    top = found.max()
    if not np.isfinite(top):
        raise NotPositiveDefinite("the probability of the limits underflows FP64.")
    each = np.exp(found - top)
    mean = each.mean()
    return float(top + np.log(mean)), float(each.std(ddof=1) / np.sqrt(SHIFTS) / mean)


@lru_cache(maxsize=8)
def _sobol(dimension, points):
    """Return the first points of Sobol's sequence, (points, dimension)."""
    from scipy.stats import qmc

    return qmc.Sobol(dimension, scramble=False).random(points)


def _log_between(low, high):
    """Return log(Φ(b) - Φ(a)) without cancellation."""
    flip = low > -high
    a, b = np.where(flip, -high, low), np.where(flip, -low, high)
    above, below = scipy.special.log_ndtr(b), scipy.special.log_ndtr(a)
    with np.errstate(divide="ignore", invalid="ignore"):
        return above + np.log1p(-np.exp(np.minimum(below - above, 0.0)))


def _integrand(low, high, root, tilt, x):
    """Return the logarithm of the tilted integrand at points of the cube, (N, k - 1)."""
    n, k = len(x), len(low)
    z, logs = np.zeros((n, k)), np.zeros(n)
    for i in range(k):
        shift = tilt[i] + (z[:, :i] @ root[i, :i] if i else np.zeros(n))
        a, b = low[i] - shift, high[i] - shift
        logs += _log_between(a, b)
        if i == k - 1:
            break
        z[:, i] = tilt[i] + _quantile_between(x[:, i], a, b)
        logs += 0.5 * tilt[i] ** 2 - tilt[i] * z[:, i]
    return logs


def _quantile_between(x, a, b):
    """Return quantiles of a normal variable between limits, (N,)."""
    flip = a > -b
    a, b = np.where(flip, -b, a), np.where(flip, -a, b)
    below, above = scipy.special.ndtr(a), scipy.special.ndtr(b)
    drawn = scipy.special.ndtri(np.clip(below + x * (above - below), 1e-300, 1 - 1e-16))
    return np.where(flip, -drawn, np.clip(drawn, a, b))


def _tilted(low, high, root):
    """Return the tilt μ, (k,), that minimizes the largest integrand; 0 for the last variable.

    Botev (2017, J. R. Stat. Soc. B 79:125): the saddle point of
    ψ(x, μ) = Σ ½μ² - xμ + log(Φ(u - Lx - μ) - Φ(l - Lx - μ)).
    """
    k = len(low)
    inner = root[:, : k - 1]

    def slopes(point):
        x, mu = point[: k - 1], np.r_[point[k - 1 :], 0.0]
        shift = mu + inner @ x
        a, b = low - shift, high - shift
        width = _log_between(a, b)
        with np.errstate(invalid="ignore", over="ignore"):
            at_a = np.where(np.isinf(a), 0.0, np.exp(-0.5 * a * a - width)) / np.sqrt(2 * np.pi)
            at_b = np.where(np.isinf(b), 0.0, np.exp(-0.5 * b * b - width)) / np.sqrt(2 * np.pi)
            gap = at_a - at_b
            bend = -(gap**2) + np.where(np.isinf(a), 0.0, a) * at_a
            bend = bend - np.where(np.isinf(b), 0.0, b) * at_b
        by_x = -mu[:-1] + inner.T @ gap
        by_mu = mu[:-1] - x + gap[:-1]
        curved = bend[:, None] * inner
        jacobian = np.block(
            [
                [inner.T @ curved, -np.eye(k - 1) + curved[:-1].T],
                [-np.eye(k - 1) + curved[:-1], np.diag(1.0 + bend[:-1])],
            ]
        )
        return np.r_[by_x, by_mu], jacobian

    found = scipy.optimize.root(slopes, np.zeros(2 * (k - 1)), jac=True, method="hybr", tol=1e-12)
    # any tilt gives the same integral, this one with a small variance
    return np.r_[found.x[k - 1 :], 0.0] if np.isfinite(found.x).all() else np.zeros(k)


def _ordered(lower, upper, covariance):
    """Return the limits and the Cholesky factor with the least likely variable first.

    Each is the least likely one given the means of those before it (Genz and Bretz 2009, 4.1.3).
    """
    k = len(lower)
    low, high = np.array(lower, dtype=float), np.array(upper, dtype=float)
    sigma, root, z = np.array(covariance, dtype=float), np.zeros((k, k)), np.zeros(k)
    for j in range(k):
        rest = np.arange(j, k)
        variance = sigma[rest, rest] - (root[rest, :j] ** 2).sum(axis=1)
        if not (variance > EIGENVALUE_TOLERANCE * sigma[rest, rest]).all():
            raise NotPositiveDefinite(
                "the covariance matrix of the censored values is not positive definite in FP64: "
                "use a larger error variance."
            )
        sd, shift = np.sqrt(variance), root[rest, :j] @ z[:j]
        best = j + int(np.argmin(_log_between((low[rest] - shift) / sd, (high[rest] - shift) / sd)))
        for each in (low, high):
            each[[j, best]] = each[[best, j]]
        sigma[[j, best]] = sigma[[best, j]]
        sigma[:, [j, best]] = sigma[:, [best, j]]
        root[[j, best], :j] = root[[best, j], :j]
        root[j, j] = np.sqrt(sigma[j, j] - (root[j, :j] ** 2).sum())
        below = slice(j + 1, k)
        root[below, j] = (sigma[below, j] - root[below, :j] @ root[j, :j]) / root[j, j]
        shift = root[j, :j] @ z[:j]
        a, b = (low[j] - shift) / root[j, j], (high[j] - shift) / root[j, j]
        width = _log_between(np.array([a]), np.array([b]))[0]
        ends = [0.0 if np.isinf(x) else np.exp(-0.5 * x * x - width) for x in (a, b)]
        z[j] = (ends[0] - ends[1]) / np.sqrt(2 * np.pi)
    return low, high, root
