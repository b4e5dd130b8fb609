"""The Matérn correlation ρ_ν(r) = 2^(1-ν)/Γ(ν) r^ν K_ν(r), its slope and its derivative by ν.

Three ways: closed forms and SciPy's K_ν (AMOS, errors below 1e-13) for single values; Debye's
expansion for ν > 50; and for tables integrals in extended precision, continued as Taylor series.
"""

from __future__ import annotations

from functools import cache, cached_property
from math import factorial, log
from typing import TYPE_CHECKING

import numpy as np
import scipy

from .table import PI, SERIES_TERMS, TaylorSeries, recurrence

if TYPE_CHECKING:
    from .._typing import ArrayLike, Floats

LARGEST_TABULATED_NU = 50.0
"""Largest ν that has a table."""


def correlation(r: ArrayLike, nu: float) -> Floats:
    """Evaluate ρ_ν(r) = 2^(1-ν)/Γ(ν) r^ν K_ν(r) for scaled distances r ≥ 0 and smoothness ν > 0.

    Examples
    --------
    >>> r = np.array([0.0, 0.5, 2.0])
    >>> bool(np.allclose(correlation(r, 0.5), np.exp(-r), rtol=1e-15))
    True
    """
    r = np.asarray(r, dtype=np.float64)
    if nu > LARGEST_TABULATED_NU:
        return matern_large_order(r, nu)
    p = nu - 0.5
    if p == int(p) and p <= 10:
        return matern_half_integer(r, int(p))
    return matern_bessel(r, nu)


def correlation_slope(r: ArrayLike, nu: float) -> Floats:
    """Evaluate r·dρ_ν/dr, which is -r²ρ_{ν-1}(r)/(2(ν-1)) for ν > 1 (DLMF 10.29.4)."""
    r = np.asarray(r, dtype=np.float64)
    if nu == 0.5:
        return -r * np.exp(-r)
    if nu > 1:
        return -(r**2) * correlation(r, nu - 1) / (2 * (nu - 1))
    return slope_bessel(r, nu)


def correlation_by_smoothness(r: ArrayLike, nu: float) -> Floats:
    """Evaluate ∂ρ_ν(r)/∂ν by the central difference of order 8 (no closed form exists).

    With the step min(0.005, ν/8) the truncation and SciPy's rounding stay below 1e-10.
    """
    step = min(0.005, nu / 8)
    total = 0.0
    for k, weight in enumerate((4 / 5, -1 / 5, 4 / 105, -1 / 280), start=1):
        forward, backward = correlation(r, nu + k * step), correlation(r, nu - k * step)
        total = total + weight * (forward - backward)
    return total / step


def matern_half_integer(r, p):
    """Evaluate ρ for ν = p + ½: exp(-r) · p!/(2p)! · Σ_{i=0}^{p} (p+i)!/(i!(p-i)!) (2r)^{p-i}."""
    lead = factorial(p) / factorial(2 * p)
    total = np.zeros_like(r)
    for i in range(p + 1):
        # Horner in 2r, highest power (i = 0) first
        total = total * (2 * r) + lead * factorial(p + i) / (factorial(i) * factorial(p - i))
    return np.exp(-r) * total


def matern_bessel(r, nu):
    """Evaluate 2^(1-ν)/Γ(ν) r^ν K_ν(r) for 0 < ν ≤ 50 through `scipy.special.kv`.

    Where K_ν overflows (r tiny beside ν > 1) the ascending series 1 - r²/(4(ν-1)) is exact to
    the last bit.
    """
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        rho = (2.0 ** (1.0 - nu) / scipy.special.gamma(nu)) * (r**nu * scipy.special.kv(nu, r))
        near = 1.0 - r**2 / (4.0 * (nu - 1.0)) if nu > 1 else 1.0
    return np.where(np.isfinite(rho) & (r > 0), rho, near)


@cache
def _debye_polynomials(terms):
    """Coefficients of u_k(t), k < terms, by DLMF 10.41.9."""
    from numpy.polynomial import Polynomial

    t = Polynomial([0.0, 1.0])
    u = [Polynomial([1.0])]
    for _ in range(terms - 1):
        inner = (Polynomial([1.0, 0.0, -5.0]) * u[-1]).integ()
        u.append(0.5 * t**2 * Polynomial([1.0, 0.0, -1.0]) * u[-1].deriv() + inner / 8.0)
    return tuple(u)


def matern_large_order(r, nu):
    """Evaluate the correlation for ν > 50 by Debye's uniform expansion of K_ν (DLMF 10.41.4).

    With z = r/ν, w = √(1+z²) - 1 and Stirling's series s(ν) for Γ the large terms cancel on
    paper: log ρ = ν(log(1 + w/2) - w) - ¼ log(1+z²) - s(ν) + log Σ_k (-1)^k u_k(1/√(1+z²))/ν^k.
    """
    # powers of a NumPy number overflow to infinity
    nu = np.float64(nu)
    z2 = (r / nu) ** 2
    root = np.sqrt(1.0 + z2)
    w = z2 / (1.0 + root)
    with np.errstate(over="ignore"):
        stirling = 1 / (12 * nu) - 1 / (360 * nu**3) + 1 / (1260 * nu**5) - 1 / (1680 * nu**7)
    series = sum((-1 / nu) ** k * u(1 / root) for k, u in enumerate(_debye_polynomials(9)))
    exponent = nu * (np.log1p(w / 2) - w) - 0.25 * np.log1p(z2) - stirling
    # at r = 0 the exact value is 1; the truncated series is off by rounding only
    return np.where(r == 0, 1.0, np.exp(exponent) * series)


def slope_bessel(r, nu):
    """Evaluate r·dρ/dr = -2^(1-ν)/Γ(ν) r^(ν+1) K_{1-ν}(r) for 0 < ν ≤ 1."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        scale = -np.exp((1.0 - nu) * log(2.0)) / scipy.special.gamma(nu)
        slope = scale * (r ** (nu + 1) * scipy.special.kv(1.0 - nu, r))
    return np.where(np.isfinite(slope) & (r > 0), slope, 0.0)


def log_gamma_and_digamma(nu):
    """Return log Γ(ν) and ψ(ν) in extended precision, by Stirling's series above 25.

    Γ(ν) = Γ(ν+N)/(ν(ν+1)…(ν+N-1)),  ψ(ν) = ψ(ν+N) - Σ 1/(ν+i)  (DLMF 5.11.1-2)
    """
    nu = np.longdouble(nu)
    shift = max(0, int(np.ceil(25 - float(nu))))
    steps = nu + np.arange(shift, dtype=np.longdouble)
    x = nu + shift
    k = np.arange(1, len(_BERNOULLI) + 1)
    powers = x ** (1 - 2 * k).astype(np.longdouble)
    log_gamma = (x - 0.5) * np.log(x) - x + np.log(2 * PI) / 2
    log_gamma += np.sum(_BERNOULLI * powers / (2 * k * (2 * k - 1))) - np.sum(np.log(steps))
    digamma = np.log(x) - 1 / (2 * x) - np.sum(_BERNOULLI * powers / (2 * k * x))
    return log_gamma, digamma - np.sum(1 / steps)


_BERNOULLI = np.array([1, -1, 1, -1, 5, -691, 7, -3617], dtype=np.longdouble)
_BERNOULLI /= np.array([6, 30, 42, 30, 66, 2730, 6, 510], dtype=np.longdouble)
"""B_2, B_4, …, B_16."""


def matern_of_squares(s, nu):
    """Evaluate f(s) = ρ_ν(√s), its slope and their derivatives in ν, in extended precision.

    With r = √s and C = (r/2)^ν/Γ(ν), integrals over all t (DLMF 10.32.9):

    f(s) = C ∫ exp(νt - r cosh t) dt,  f'(s) = -C/(2r) ∫ exp((ν-1)t - r cosh t) dt

    The trapezoidal rule converges geometrically: with the step h its relative error is about
    |Γ(ν + 2πi/h)|/Γ(ν) for small r and exp(-2π²/(r h²)) for large r (Trefethen and Weideman 2014,
    SIAM Review 56:385). All terms of f and of f' have one sign.

    Return f and ∂f/∂ν, f' and ∂f'/∂ν, (2, 2, n) of longdouble, for s > 0, (n,) of longdouble. The
    values at one s do not depend on the others.
    """
    r, nu = np.sqrt(s), np.longdouble(nu)
    log_gamma, digamma = log_gamma_and_digamma(nu)
    result = np.empty((2, 2, len(r)), dtype=np.longdouble)
    # arguments of like size share their points t: only one exponential is left for each pair
    size = np.frexp(r)[1] // TRAPEZOID_OCTAVES
    for some in set(size.tolist()):
        there = size == some
        result[..., there] = _trapezoid(r[there], nu, log_gamma, TRAPEZOID_OCTAVES * some - 1)
    result[1] /= -2 * r
    # ∂/∂ν of the logarithm of C
    result[:, 1] += (np.log(r / 2) - digamma) * result[:, 0]
    return result


TRAPEZOID_OCTAVES = 4
"""Octaves of r that share the points of the trapezoidal rule."""


def _trapezoid(r, nu, log_gamma, exponent):
    """Return C times ∫ e^w, ∫ t e^w, ∫ e^(w-t), ∫ t e^(w-t), where w = νt - r cosh t.

    The points are ±t with t = 0, h, 2h, …, for r from q = 2^exponent to q 2^`TRAPEZOID_OCTAVES`.
    """
    least, most, order = 2.0**exponent, 2.0 ** (exponent + TRAPEZOID_OCTAVES), abs(float(nu)) + 1
    # small r: Γ(ν + iy) at y = 2π/h must be below 1e-19 Γ(ν); large r: a Gaussian of width 1/√r
    step = np.longdouble(min(2 * np.pi / (31.4 + 1.4 * order), 0.62 / (most**2 + order**2) ** 0.25))
    # the integrand has fallen by e^-47 where r(cosh t - 1) - (ν + 1)t = 47
    top = np.arccosh(1 + 47 / least)
    for _ in range(4):
        top = np.arccosh(1 + (47 + order * top) / least)
    t = step * np.arange(int(np.ceil(top / float(step))) + 2, dtype=np.longdouble)
    log_half = np.log(np.longdouble(least) / 2)
    with np.errstate(under="ignore"):
        # h (q/2)^ν/Γ(ν) e^(νt) at t and at -t; a half of each at t = 0
        up, down = (step * np.exp(nu * (log_half + v) - log_gamma) for v in (t, -t))
        up[0] = down[0] = up[0] / 2
        grown = np.exp(t)
        up_less, down_less = up / grown, down * grown
        weights = np.array(
            [up + down, t * (up - down), up_less + down_less, t * (up_less - down_less)]
        )
        # exp(-r(cosh t - 1)), without cancellation
        fall = -2 * np.sinh(t / 2) ** 2
        # for large ν, points far below the integrands' peaks add nothing, whatever r
        peaks = (weights[::2] * np.exp(fall * most)).max(axis=1, keepdims=True)
        needed = (weights[::2] > 1e-22 * peaks).any(axis=0)
        decay = np.exp(np.multiply.outer(fall[needed], r))
        sums = np.exp(nu * np.log(r / least) - r) * np.dot(weights[:, needed], decay)
    return sums.reshape(2, 2, -1)


class BesselSeries(TaylorSeries):
    """Taylor series of ρ and its derivatives in squared scaled distance, for 0 < ν ≤ 50.

    s f'' + (1-ν) f' - f/4 = 0, and for g = ∂f/∂ν:  s g'' + (1-ν) g' - g/4 = f'
    """

    def __init__(self, nu, octaves):
        super().__init__(octaves)
        self.nu = float(nu)

    def _expansion(self, what):
        """Taylor coefficients of "correlation", "smoothness" or "slope", (SERIES_TERMS, K)."""
        if what == "correlation":
            return self._series
        if what == "smoothness":
            return self._solve(self._first[:, 1], self._series)
        return self._slope(self._series)

    @cached_property
    def _first(self):
        """Values f and ∂f/∂ν, slopes f' and ∂f'/∂ν at the centres, (2, 2, K)."""
        return matern_of_squares(self._centre, self.nu)

    @cached_property
    def _series(self):
        return self._solve(self._first[:, 0], np.zeros((SERIES_TERMS, 1)))

    def _solve(self, first, source):
        """Taylor coefficients in t of a solution of Bessel's equation, (SERIES_TERMS, K).

        `first`, (2, K), is the solution and its slope at the centres; `source`, (SERIES_TERMS, K),
        holds the coefficients of the function whose slope is the right-hand side.
        """
        d, k = self._half_width, np.arange(SERIES_TERMS)
        here = np.broadcast_to(d / 4, (SERIES_TERMS, len(d)))
        above = (k + 1) * (k + 1 - np.longdouble(self.nu))
        right = k[1:, None] * source[1:]
        return recurrence((first[0], d * first[1]), d / self._centre, here, above, right)
