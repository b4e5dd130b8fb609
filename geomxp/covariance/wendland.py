"""The generalized Wendland family, which has compact support.

With r = h/a, ρ(r) = 0 for r ≥ 1 and below

    ρ(r) = 1/B(1+2κ, μ) ∫_r^1 (u² - r²)^κ (1-u)^(μ-1) du,  κ ≥ 0;  (1-r)^μ for κ = 0.

κ governs the smoothness as ν = κ + ½ does in Matérn's (Bevilacqua et al. 2019, Ann. Stat. 47:828).
Valid in d Euclidean dimensions for μ ≥ (d+1)/2 + κ; with great-circle distances if valid for d = 3
and, unless κ = 0, of a range of at most half the circumference (Gneiting 2013, Bernoulli 19:1327).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil, floor, pi
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.polynomial.polynomial import polyval

from .base import Anisotropy, Isotropic, Parameter
from .bessel import log_gamma_and_digamma
from .distance import EARTH_RADIUS, metric_of

if TYPE_CHECKING:
    from .._typing import Floats
    from .distance import Metric


@dataclass(frozen=True)
class Wendland(Isotropic):
    """A generalized Wendland model: compact support, any smoothness; τ² on the diagonal.

    Parameters
    ----------
    variance, range, nugget : float
        σ² > 0, a > 0 and τ² ≥ 0, as of `Matern`; beyond the range the covariance is 0.
    smoothness : float
        0 ≤ κ ≤ 100.
    shape : float
        (d+1)/2 + κ ≤ μ ≤ 1000 in d dimensions.
    anisotropy : Anisotropy, (angle, ratio) or None

    Examples
    --------
    >>> float(Wendland(16.0, 0.5, smoothness=0.0, shape=2.0).covariance(0.25))
    4.0
    """

    family = "wendland"
    support = "rough"
    on_sphere: ClassVar = {}  # see `limits`
    shapes = (
        # the sums of `of_squares` have terms in proportion to both
        Parameter("smoothness", 0.5, "identity", upper=100.0, closed=True, search=(0.0, 10.0)),
        Parameter("shape", 3.5, upper=1000.0, search=(1.0, 30.0)),
    )

    variance: float
    range: float
    smoothness: float
    shape: float
    nugget: float = 0.0
    anisotropy: Anisotropy | None = None

    def at_squares(self, s: Floats, rest: Floats) -> _Functions:
        """Return the function that evaluates ρ or a derivative at s; see `Isotropic.at_squares`."""
        return _Functions(self, s, rest)

    def limits(self, metric: Metric | str, dimensions: int) -> dict[str, tuple[float, float]]:
        """Return the bounds of each parameter."""
        metric = metric_of(metric)
        least = (metric.dimensions(dimensions) + 1) / 2 + self.smoothness
        bounds = super().limits(metric, dimensions)
        bounds["shape"] = (least, bounds["shape"][1])
        if metric.arc and self.smoothness:
            bounds["range"] = (0.0, pi * EARTH_RADIUS)
        return bounds

    def practical_range(self) -> float:
        """Return a·(2κ+1)/(2κ+1+μ), the mean of u in the integral, where the correlation is low."""
        return self.range * self.infill_exponent / (self.infill_exponent + self.shape)

    @property
    def infill_exponent(self) -> float:
        """2κ+1: dense data determine variance/range^(2κ+1)."""
        return 2 * self.smoothness + 1


class _Functions:
    """ρ, r dρ/dr, ∂ρ/∂κ and ∂ρ/∂μ at given s = r².

    Near the end of the support they are power series of 1 - s; elsewhere integrals, which share one
    integrand. Its values are kept.
    """

    def __init__(self, model, s, rest):
        s, rest = np.broadcast_arrays(s, rest)
        self.far, self.shape = rest <= 0.5, s.shape
        self.k, self.m = np.longdouble(model.smoothness), np.longdouble(model.shape)
        self.z, self.r = rest[self.far], np.sqrt(s[~self.far])

    def __call__(self, what):
        """Return the values of "correlation", "slope", "smoothness" or "shape"."""
        result = np.empty(self.shape, dtype=np.longdouble)
        result[self.far] = self.by_series(what)
        result[~self.far] = self.by_quadrature(what)
        return result

    def by_series(self, what):
        """Evaluate S z^(κ+μ) ₂F₁(μ/2, (μ+1)/2; κ+μ+1; z) and its derivatives, z = 1 - s ≤ ½.

        S = 2^(-2κ-μ) √π Γ(2κ+μ+1) / (Γ(κ+½) Γ(κ+μ+1)).
        """
        k, m, z = self.k, self.m, self.z
        # from j = μ/2 on each term is less than 2/3 of the one before
        j = np.arange(70 + max(0, ceil(m) - 40))
        (top, psi_top), (half, psi_half), (low, psi_low) = map(
            log_gamma_and_digamma, (2 * k + m + 1, k + 0.5, k + m + 1)
        )
        log2 = np.log(np.longdouble(2))
        log_scale = -(2 * k + m) * log2 + log_gamma_and_digamma(0.5)[0] + top - half - low
        a, b, c = m / 2 + j, (m + 1) / 2 + j, k + m + 1 + j
        terms = np.cumprod(np.append(np.longdouble(1), a * b / c / (j + 1)))
        weights = {
            "correlation": terms,
            "slope": terms * (k + m + np.arange(len(j) + 1)),
            "smoothness": -terms * np.append(0, np.cumsum(1 / c)),
            "shape": terms * np.append(0, np.cumsum((1 / a + 1 / b) / 2 - 1 / c)),
        }
        total = _sum(z, weights[what], 24 + ceil(m / 2))
        if what == "slope":
            return -2 * (1 - z) * np.exp(log_scale + (k + m - 1) * np.log(z)) * total
        if what != "correlation":
            change = 2 * (psi_top - log2) - psi_half - psi_low
            change = change if what == "smoothness" else psi_top - psi_low - log2
            total += (change + np.log(z)) * _sum(z, terms, 24 + ceil(m / 2))
        return np.exp(log_scale + (k + m) * np.log(z)) * total

    @cached_property
    def rule(self):
        """Points t, (points,), of the trapezoidal rule, and its terms, (nodes, points).

        It is for the integral with u = r + (1-r)t, t = 1/(1+exp(-y)), whose integrand is
        analytic for |Im y| < π, whatever r is: the error falls as exp(-2π²/step).
        """
        k, m = self.k, self.m
        step = 2 * pi**2 / (46 + 2.6 * float(2 * k + m + 1))
        orders = 1 + 2 * k, m, 1 + 2 * k + m
        first, second, both = (log_gamma_and_digamma(order)[0] for order in orders)
        # weights of the rule, t and 1 - t taken in
        # t^(κ+1) (1-t)^μ (2r + (1-r)t)^κ falls as exp((κ+1)y) and exp(-μy) from its largest value,
        # which lies at exp(y) between (κ+1)/μ and (2κ+1)/μ
        wide = np.sqrt(92 * (1 / (k + 1) + 1 / m))
        low = min(np.log((k + 1) / m), 0) - 46 / (k + 1) - wide
        high = max(np.log((2 * k + 1) / m), 0) + 46 / m + wide
        y = step * np.arange(floor(low / step), ceil(high / step) + 1)
        t = 1 / (1 + np.exp(-y.astype(np.longdouble)))
        log_weight = (k + 1) * np.log(t) + m * np.log1p(-t) + np.log(np.longdouble(step))
        log_weight = log_weight - first - second + both
        return t, np.exp(k * np.log(self.inner(t)) + log_weight if k else log_weight)

    def inner(self, t):
        """Return 2r + (1-r)t, (nodes, points)."""
        return np.multiply.outer(1 - self.r, t) + 2 * self.r[:, None]

    def by_quadrature(self, what):
        """Evaluate the integral over t times (1-r)^(κ+μ), and its derivatives."""
        k, m, r = self.k, self.m, self.r
        t, values = self.rule
        orders = 1 + 2 * k, m, 1 + 2 * k + m
        psi_first, psi_second, psi_both = (log_gamma_and_digamma(order)[1] for order in orders)
        total, log_rest = values.sum(axis=-1), np.log1p(-r)
        if what == "slope":
            # r d/dr of (1-r)^(κ+μ) times the integral over t
            change = k * r * (values / self.inner(t) @ (2 - t)) if k else 0.0
            total = change - (k + m) * r / (1 - r) * total
        elif what == "smoothness":
            change = (values * (np.log(t) + np.log(self.inner(t)))).sum(axis=-1)
            total = change + (log_rest - 2 * (psi_first - psi_both)) * total
        elif what == "shape":
            change = values @ np.log1p(-t)
            total = change + (log_rest - (psi_second - psi_both)) * total
        return np.exp((k + m) * log_rest) * total


def _sum(z, terms, few):
    """Evaluate a power series for 0 < z ≤ ½. Below 1/16 its first few terms are sufficient."""
    small, total = z < 1 / 16, np.empty_like(z)
    total[small] = polyval(z[small], terms[:few])
    total[~small] = polyval(z[~small], terms)
    return total
