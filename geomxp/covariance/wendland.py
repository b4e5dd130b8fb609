"""The generalized Wendland family, which has compact support.

With r = h/a, ρ(r) = 0 for r ≥ 1 and below

    ρ(r) = 1/B(1+2κ, μ) ∫_r^1 (u² - r²)^κ (1-u)^(μ-1) du,  κ ≥ 0;  (1-r)^μ for κ = 0.

κ governs the smoothness as ν = κ + ½ does in Matérn's (Bevilacqua et al. 2019, Ann. Stat. 47:828).
Valid in d Euclidean dimensions for μ ≥ (d+1)/2 + κ; with great-circle distances if valid for d = 3
and, unless κ = 0, of a range of at most half the circumference (Gneiting 2013, Bernoulli 19:1327).

For tables ρ and its derivatives are continued as Taylor series: as a function of r², ρ solves the
hypergeometric equation, and its derivatives by κ and μ solve it with a right-hand side.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil, floor, pi
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.polynomial.polynomial import polyval

from .anisotropy import LinearMap
from .base import Isotropic
from .bessel import log_gamma_and_digamma
from .distance import EARTH_RADIUS, metric_of
from .parameter import Parameter
from .table import (
    FOLD_FACTOR,
    PI,
    SERIES_PER_OCTAVE,
    SERIES_TERMS,
    TaylorSeries,
    recurrence,
    unfold,
)

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
    anisotropy : Anisotropy, Anisotropy3D, AxisRatios, AxisRatios3D, (angle, ratio) or None

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
    anisotropy: LinearMap | None = None

    def at_squares(self, s: Floats, rest: Floats) -> _Functions:
        """Return the function that evaluates ρ or a derivative at s; see `Isotropic.at_squares`."""
        return _Functions(self, s, rest)

    def expansions(self, octaves: Floats) -> WendlandSeries:
        """Return expansions of the correlation and its derivatives on octaves of s."""
        return WendlandSeries(self, octaves)

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


class WendlandSeries(TaylorSeries):
    """Taylor series of ρ and its derivatives in s = r², on octaves of s below ½ and of 1 - s above.

    With a = -κ - μ/2, b = a + ½, c = ½ - κ and L f = s(1-s) f'' + (c - (a+b+1)s) f' - ab f, the
    operator of the hypergeometric equation (DLMF 15.10.1):

    L ρ = 0,  L ∂ρ/∂κ = (1-2s) ρ' - (a+b) ρ,  L ∂ρ/∂μ = -s ρ' - (a+b)/2 ρ
    """

    def __init__(self, model, octaves):
        # rounding errors grow within a series as s^(κ+½), which solves the equation near s = 0
        super().__init__(
            octaves, SERIES_PER_OCTAVE if model.smoothness <= 30 else 4 * SERIES_PER_OCTAVE
        )
        k, m = np.longdouble(model.smoothness), np.longdouble(model.shape)
        self._sum, self._c = 0.5 - 2 * k - m, 0.5 - k
        v, d = self._centre, self._half_width
        # of the last octave only its lower end is in use, where s = ½: one series is sufficient
        self._centre, self._rest = unfold(
            np.minimum(v, FOLD_FACTOR / 2 * (1 + 0.5 / self._centres))
        )
        self._half_width = np.where(v < 0.5, d, -d / FOLD_FACTOR)
        self._at = model.at_squares(self._centre, self._rest)

    def _expansion(self, what):
        """Taylor coefficients of "correlation", "slope" or a derivative, (SERIES_TERMS, K)."""
        if what == "correlation":
            return self._series
        if what == "slope":
            return self._slope(self._series)
        s, d, n = self._centre, self._half_width, np.arange(SERIES_TERMS - 1)[:, None]
        f, slope = self._series[:-1], (n + 1) * self._series[1:]
        if what == "smoothness":
            return self._solve(what, (self._rest - s) * slope - d * (2 * n + self._sum) * f)
        return self._solve(what, -s * slope - d * (n + self._sum / 2) * f)

    @cached_property
    def _series(self):
        return self._solve("correlation", np.zeros((SERIES_TERMS, 1)))

    @cached_property
    def _equation(self):
        """The first three factors of `recurrence` for L, where s = centre + half-width · t."""
        s, rest, d, n = self._centre, self._rest, self._half_width, np.arange(SERIES_TERMS)[:, None]
        a, b = (self._sum - 0.5) / 2, (self._sum + 0.5) / 2
        above = (n + 1) * ((rest - s) * n + (self._c - (self._sum + 1) * s))
        return d / (s * rest), d * ((n + a) * (n + b)), above

    def _solve(self, what, right):
        """Return the Taylor coefficients in t of a solution of L f = right, (SERIES_TERMS, K).

        `right` holds the coefficients of the right-hand side times the half-width.
        """
        slope = self._at(what, slope=True) / (2 * self._centre)
        return recurrence((self._at(what), self._half_width * slope), *self._equation, right)


class _Functions:
    """ρ, ∂ρ/∂κ, ∂ρ/∂μ and r d/dr of these at given s = r².

    Near the end of the support they are power series of 1 - s; elsewhere integrals, which share one
    integrand. Its values are kept.
    """

    def __init__(self, model, s, rest):
        s, rest = np.broadcast_arrays(s, rest)
        self.far, self.shape = rest <= 0.5, s.shape
        self.k, self.m = np.longdouble(model.smoothness), np.longdouble(model.shape)
        self.z, self.r = rest[self.far], np.sqrt(s[~self.far])
        self._sums = {}

    def __call__(self, what, slope=False):
        """Return the values of "correlation", "slope", "smoothness" or "shape", or r d/dr of it."""
        if what == "slope":
            what, slope = "correlation", True
        result = np.empty(self.shape, dtype=np.longdouble)
        result[self.far] = self.by_series(what, slope)
        result[~self.far] = self.by_quadrature(what, slope)
        return result

    @cached_property
    def gammas(self):
        """Values log Γ and ψ at 2κ+μ+1, κ+½, κ+μ+1, 2κ+1 and μ."""
        k, m = self.k, self.m
        return [log_gamma_and_digamma(x) for x in (2 * k + m + 1, k + 0.5, k + m + 1, 2 * k + 1, m)]

    @cached_property
    def coefficients(self):
        """Coefficients of the power series of `by_series` and of their derivatives, by name."""
        k, m = self.k, self.m
        # from j = μ/2 on each term is less than 2/3 of the one before
        j = np.arange(70 + max(0, ceil(m) - 40))
        a, b, c = m / 2 + j, (m + 1) / 2 + j, k + m + 1 + j
        terms = np.cumprod(np.append(np.longdouble(1), a * b / c / (j + 1)))
        return {
            "correlation": terms,
            "smoothness": -terms * np.append(0, np.cumsum(1 / c)),
            "shape": terms * np.append(0, np.cumsum((1 / a + 1 / b) / 2 - 1 / c)),
        }

    def sums(self, what):
        """Return a power series P and (κ+μ) P + z dP/dz, (2, points)."""
        if what not in self._sums:
            terms = self.coefficients[what]
            both = np.array([terms, (self.k + self.m + np.arange(len(terms))) * terms]).T
            # below 1/16 the first few terms are sufficient
            few, small = 24 + ceil(self.m / 2), self.z < 1 / 16
            self._sums[what] = total = np.empty((2, len(self.z)), dtype=np.longdouble)
            total[:, small] = polyval(self.z[small], both[:few])
            total[:, ~small] = polyval(self.z[~small], both)
        return self._sums[what]

    def by_series(self, what, slope):
        """Evaluate S z^(κ+μ) ₂F₁(μ/2, (μ+1)/2; κ+μ+1; z) and its derivatives, z = 1 - s ≤ ½.

        S = 2^(-2κ-μ) √π Γ(2κ+μ+1) / (Γ(κ+½) Γ(κ+μ+1)).
        """
        k, m, z = self.k, self.m, self.z
        (top, psi_top), (half, psi_half), (low, psi_low) = self.gammas[:3]
        log2, log_z = np.log(np.longdouble(2)), np.log(z)
        log_scale = -(2 * k + m) * log2 + np.log(PI) / 2 + top - half - low
        total = self.sums(what)[int(slope)]
        if what != "correlation":
            change = 2 * (psi_top - log2) - psi_half - psi_low
            change = change if what == "smoothness" else psi_top - psi_low - log2
            plain = self.sums("correlation")
            total = total + (change + log_z) * plain[int(slope)]
            if slope:
                # ∂/∂κ and ∂/∂μ of the factor κ+μ
                total += plain[0]
        if slope:
            return -2 * (1 - z) * np.exp(log_scale + (k + m - 1) * log_z) * total
        return np.exp(log_scale + (k + m) * log_z) * total

    @cached_property
    def rule(self):
        """Points t of the trapezoidal rule, logarithms of t, 1 - t and the weights, (4, nodes).

        It is for the integral with u = r + (1-r)t, t = 1/(1+exp(-y)), whose integrand is
        analytic for |Im y| < π, whatever r is: the error falls as exp(-2π²/step).
        """
        k, m = self.k, self.m
        step = 2 * pi**2 / (46 + 2.6 * float(2 * k + m + 1))
        (both, _), _, _, (first, _), (second, _) = self.gammas
        # weights of the rule, t and 1 - t taken in
        # t^(κ+1) (1-t)^μ (2r + (1-r)t)^κ falls as exp((κ+1)y) and exp(-μy) from its largest value,
        # which lies at exp(y) between (κ+1)/μ and (2κ+1)/μ
        wide = np.sqrt(92 * (1 / (k + 1) + 1 / m))
        low = min(np.log((k + 1) / m), 0) - 46 / (k + 1) - wide
        high = max(np.log((2 * k + 1) / m), 0) + 46 / m + wide
        y = step * np.arange(floor(low / step), ceil(high / step) + 1).astype(np.longdouble)
        log_t, log_rest = -np.log1p(np.exp(-y)), -np.log1p(np.exp(y))
        log_weight = (k + 1) * log_t + m * log_rest + np.log(np.longdouble(step))
        log_weight += both - first - second
        # the sum is at least 1, and (2r + (1-r)t)^κ at most 2^κ
        needed = log_weight + k * np.log(2) > -50
        return np.array([np.exp(log_t), log_t, log_rest, log_weight])[:, needed]

    @property
    def inner(self):
        """2r + (1-r)t, (points, nodes)."""
        return np.multiply.outer(1 - self.r, self.rule[0]) + 2 * self.r[:, None]

    @cached_property
    def log_inner(self):
        """Logarithm of `inner`."""
        return np.log(self.inner)

    @cached_property
    def values(self):
        """Terms of the rule, (points, nodes)."""
        return np.exp(self.k * self.log_inner + self.rule[3])

    @cached_property
    def slopes(self):
        """Terms of the rule times r d/dr log((1-r)(2r + (1-r)t)), (points, nodes)."""
        t, r = self.rule[0], self.r[:, None]
        return self.values * (r * ((2 - t) / self.inner - 1 / (1 - r)))

    def integral(self, what, terms):
        """Return the sum of terms of the rule, or its derivative with (1-r)^(κ+μ) taken in."""
        total = terms.sum(axis=-1)
        if what == "correlation":
            return total
        _, log_t, log_rest, _ = self.rule
        (_, psi_both), _, _, (_, psi_first), (_, psi_second) = self.gammas
        if what == "smoothness":
            change = terms @ log_t + np.einsum("pn,pn->p", terms, self.log_inner)
            return change + (np.log1p(-self.r) - 2 * (psi_first - psi_both)) * total
        return terms @ log_rest + (np.log1p(-self.r) - (psi_second - psi_both)) * total

    def by_quadrature(self, what, slope):
        """Evaluate the integral over t times (1-r)^(κ+μ), and its derivatives.

        r d/dr of the logarithm of (1-r)^(κ+μ) (2r + (1-r)t)^κ is κ times the factor of `slopes`,
        minus μr/(1-r).
        """
        k, m, r = self.k, self.m, self.r
        total = self.integral(what, self.values)
        if slope:
            fall = r / (1 - r)
            total = k * self.integral(what, self.slopes) - m * fall * total
            if what == "smoothness":
                total += self.slopes.sum(axis=-1)
            elif what == "shape":
                total -= fall * self.values.sum(axis=-1)
        return np.exp((k + m) * np.log1p(-r)) * total
