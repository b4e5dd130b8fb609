"""The Matérn correlation's special cases: half-integer and large smoothness.

Between them stands SciPy's modified Bessel function of the second kind (AMOS), whose own
error is below 1e-13.
"""

from functools import cache
from math import factorial, log

import numpy as np
from scipy.special import gamma, kv

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
        rho = (2.0 ** (1.0 - nu) / gamma(nu)) * (r**nu * kv(nu, r))
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
        slope = -np.exp((1.0 - nu) * log(2.0)) / gamma(nu) * (r ** (nu + 1) * kv(1.0 - nu, r))
    return np.where(np.isfinite(slope) & (r > 0), slope, 0.0)
