"""The Matérn correlation's special cases: half-integer and large smoothness.

Between them stands SciPy's modified Bessel function of the second kind (AMOS), whose own
error is below 1e-13.
"""

from functools import cache
from math import factorial, log

import numpy as np
import scipy

LARGE_ORDER = 50.0


def matern_half_integer(r, p):
    """Evaluate the correlation at smoothness p + ½, in closed form.

    ρ(r) = exp(-r) · p!/(2p)! · Σ_{i=0}^{p} (p+i)!/(i!(p-i)!) (2r)^{p-i}

    Parameters
    ----------
    r : ndarray
        Scaled distances h/a ≥ 0.
    p : int

    Returns
    -------
    ndarray, as r
    """
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
    lost = ~np.isfinite(rho) | (r == 0)
    if lost.any():
        near = r[lost]
        rho[lost] = 1.0 - near**2 / (4.0 * (nu - 1.0)) if nu > 1 else 1.0
    return rho


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
    z2 = (r / nu) ** 2
    root = np.sqrt(1.0 + z2)
    w = z2 / (1.0 + root)
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
    log_gamma = (x - 0.5) * np.log(x) - x + np.log(2 * _PI) / 2
    log_gamma += np.sum(_BERNOULLI * powers / (2 * k * (2 * k - 1))) - np.sum(np.log(steps))
    digamma = np.log(x) - 1 / (2 * x) - np.sum(_BERNOULLI * powers / (2 * k * x))
    return log_gamma, digamma - np.sum(1 / steps)


_PI = np.longdouble("3.14159265358979323846264338327950288")
_BERNOULLI = np.array(
    [
        np.longdouble(a) / np.longdouble(b)
        for a, b in (
            (1, 6),
            (-1, 30),
            (1, 42),
            (-1, 30),
            (5, 66),
            (-691, 2730),
            (7, 6),
            (-3617, 510),
        )
    ]
)
"""B_2, B_4, …, B_16."""


def matern_of_squares(s, nu):
    """Evaluate f(s) = ρ_ν(√s), its slope and their derivatives in ν, in extended precision.

    With r = √s and C = (r/2)^ν/Γ(ν), integrals over all t (DLMF 10.32.9):

    f(s) = C ∫ exp(νt - r cosh t) dt,  f'(s) = -C/(2r) ∫ exp((ν-1)t - r cosh t) dt

    The trapezoidal rule converges geometrically: with the step h its relative error is about
    |Γ(ν + 2πi/h)|/Γ(ν) for small r and exp(-2π²/(r h²)) for large r (Trefethen and Weideman 2014,
    SIAM Review 56:385). All terms of f and of f' have one sign.

    Parameters
    ----------
    s : (n,) ndarray of longdouble
        Greater than 0. The values at one do not depend on the others.
    nu : float

    Returns
    -------
    (2, 2, n) ndarray of longdouble
        f and ∂f/∂ν; f' and ∂f'/∂ν.
    """
    r, nu = np.sqrt(s), np.longdouble(nu)
    log_gamma, digamma = log_gamma_and_digamma(nu)
    result = np.empty((2, 2, len(r)), dtype=np.longdouble)
    # arguments of like size share their points t: only one exponential is left for each pair
    size = np.frexp(r)[1] // SIZES
    for some in set(size.tolist()):
        there = size == some
        result[..., there] = _trapezoid(r[there], nu, log_gamma, SIZES * some - 1)
    result[1] /= -2 * r
    # ∂/∂ν of the logarithm of C
    result[:, 1] += (np.log(r / 2) - digamma) * result[:, 0]
    return result


SIZES = 4
"""Octaves of r that share the points of the trapezoidal rule."""


def _trapezoid(r, nu, log_gamma, exponent):
    """Return C times ∫ e^w, ∫ t e^w, ∫ e^(w-t), ∫ t e^(w-t), where w = νt - r cosh t.

    The points are ±t with t = 0, h, 2h, …, for all r from q = 2^exponent to 2^SIZES q.
    """
    least, most, order = 2.0**exponent, 2.0 ** (exponent + SIZES), abs(float(nu)) + 1
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
