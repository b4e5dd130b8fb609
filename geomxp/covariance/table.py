"""The correlation as piecewise polynomials of squared scaled distance, with its derivatives.

For one ν the correlation is a function f of one number, s = (h/a)². Each binary octave of s is
cut into 32 equal intervals; on each, f is a polynomial of degree 7 in t in [-1, 1]. The interval
and t come from the bits of the floating-point number s: no square root, no exponential and no
Bessel function is left for an entry of the matrix.

The polynomials come from Taylor series at 8 centres an octave, of which Bessel's equation gives
all terms from the first two; each serves four intervals, economised by Chebyshev polynomials.
"""

from collections import OrderedDict
from functools import cache, cached_property
from math import comb
from threading import Lock

import numpy as np

from .bessel import log_gamma_and_digamma, scaled_bessel_k

SPLIT, DEGREE = 5, 7
"""Intervals of an octave, as a power of two, and the degree on each."""

SPLIT_FP32, DEGREE_FP32 = 6, 2
"""The same for FP32, whose errors they keep below 2e-8."""

CENTRES = 8
"""Taylor series of an octave; each serves the intervals that it covers."""

TERMS = 20
"""Terms of a series: its centre is 17 half-widths away from the singular point s = 0."""

LOWEST, HIGHEST = -1020, 20
"""Octaves that a table may cover: 2^20 > 745², where exp(-r) is below the smallest number."""

LARGEST_SMOOTHNESS = 50.0


class CorrelationTable:
    """Polynomials of f(s) = ρ_ν(√s), of ∂f/∂ν, and of r dρ/dr = 2s f'(s).

    Parameters
    ----------
    nu : float
        Smoothness, 0 < ν ≤ 50.
    low, high : int
        The table covers 2^low ≤ s < 2^high.

    Attributes
    ----------
    correlation, by_smoothness, slope : (K + 2, 8) ndarray
        Coefficients of t⁰ … t⁷. The first row stands for s = 0, the last for s ≥ 2^high.
    base : int
        Number of the first interval, as the leading bits of s count them.
    """

    def __init__(self, nu, low, high):
        self.nu = float(nu)
        self.low, self.high = low, high
        # the sign, the exponent and SPLIT bits of the mantissa
        self.base = (low + 1023) << SPLIT
        self.base_fp32 = (low + 127) << SPLIT_FP32
        octaves = np.arange(low, high, dtype=np.longdouble)
        inside = (np.arange(CENTRES, dtype=np.longdouble) + np.longdouble(0.5)) / CENTRES
        centres = np.exp2(octaves)[:, None] * (1 + inside)
        self._centre = centres.ravel()
        width = np.broadcast_to(np.exp2(octaves)[:, None], centres.shape).ravel()
        self._half_width = width / (2 * CENTRES)

    @cached_property
    def correlation(self):
        """Coefficients of ρ; 1 at s = 0."""
        return _table(self._series[0], SPLIT, DEGREE, at_zero=1.0)

    @cached_property
    def correlation_fp32(self):
        """The same of degree 2 on 64 intervals an octave, in FP32."""
        rows = _table(self._series[0], SPLIT_FP32, DEGREE_FP32, at_zero=1.0)
        return rows.astype(np.float32)

    @cached_property
    def by_smoothness(self):
        """Coefficients of ∂ρ/∂ν."""
        return _table(self._series[1], SPLIT, DEGREE, at_zero=0.0)

    @cached_property
    def slope(self):
        """Coefficients of r dρ/dr."""
        # 2 s f'(s) with s = s₀ + δt, and f' = Σ (k+1) c_{k+1} tᵏ / δ
        f = self._series[0]
        k = np.arange(TERMS, dtype=np.longdouble)[:, None]
        derivative = (k[1:]) * f[1:]
        w = np.zeros_like(f)
        w[:-1] = derivative * (self._centre / self._half_width)
        w[1:] += derivative
        return _table(2 * w, SPLIT, DEGREE, at_zero=0.0)

    @cached_property
    def _series(self):
        """Taylor coefficients of f and ∂f/∂ν in t, (2, TERMS, K), by Bessel's equation.

        s f'' + (1-ν) f' - f/4 = 0, and for g = ∂f/∂ν:  s g'' + (1-ν) g' - g/4 = f'
        """
        nu, s, d = np.longdouble(self.nu), self._centre, self._half_width
        f, g = np.zeros((2, TERMS, len(s)), dtype=np.longdouble)
        f[:2], g[:2] = self._values_and_slopes()
        f[1] *= d
        g[1] *= d
        for k in range(TERMS - 2):
            # coefficients of tᵏ, with powers of the half-width d taken in
            a, b = d / (s * (k + 2) * (k + 1)), (k + 1 - nu) * (k + 1)
            f[k + 2] = a * (d * f[k] / 4 - b * f[k + 1])
            g[k + 2] = a * (d * g[k] / 4 - b * g[k + 1] + (k + 1) * f[k + 1])
        return f, g

    def _values_and_slopes(self):
        """Return (f, f') and (∂f/∂ν, ∂f'/∂ν) at the centres.

        f = C r^ν K_ν(r),  f' = -½ C r^(ν-1) K_{ν-1}(r),  C = 2^(1-ν)/Γ(ν)
        """
        nu, r = np.longdouble(self.nu), np.sqrt(self._centre)
        log_gamma, digamma = log_gamma_and_digamma(nu)
        log2 = np.log(np.longdouble(2))
        upper, lower, upper_nu, lower_nu = scaled_bessel_k(r, self.nu)
        with np.errstate(under="ignore"):
            common = np.exp((1 - nu) * log2 - log_gamma + nu * np.log(r) - r)
            below = -common / (2 * r)
            # ∂/∂ν of the logarithm of C r^ν
            change = np.log(r) - log2 - digamma
            return (
                np.array([common * upper, below * lower]),
                np.array(
                    [
                        common * (change * upper + upper_nu),
                        below * (change * lower + lower_nu),
                    ]
                ),
            )


def _table(series, split, degree, at_zero):
    """Economise Taylor series in t and add the rows for s = 0 and for s beyond the table."""
    parts = 2**split // CENTRES
    rows = np.zeros((series.shape[1] * parts + 2, degree + 1))
    for part in range(parts):
        with np.errstate(under="ignore"):
            rows[1 + part : -1 : parts] = (_economisation(degree, part, parts) @ series).T
    rows[0, 0] = at_zero
    return rows


@cache
def _economisation(degree, part, parts):
    """Return the matrix from Taylor coefficients to one interval's polynomial.

    The interval is one of equal parts of the series' own: u = c + t/parts. In t the truncated
    Chebyshev series is taken, with tᵏ = 2^(1-k) Σ_j binom(k, j) T_{k-2j}(t), the term T_0 halved.
    """
    # u^k in powers of t
    centre = (np.longdouble(2 * part + 1) - parts) / parts
    shift = np.zeros((TERMS, TERMS), dtype=np.longdouble)
    for k in range(TERMS):
        for j in range(k + 1):
            shift[j, k] = comb(k, j) * centre ** (k - j) / np.longdouble(parts) ** j
    # Chebyshev polynomials in powers of t, row by row
    power = np.zeros((degree + 1, degree + 1), dtype=np.longdouble)
    power[0, 0] = 1
    power[1, 1] = 1
    for n in range(2, degree + 1):
        power[n, 1:] = 2 * power[n - 1, :-1]
        power[n] -= power[n - 2]
    chebyshev = np.zeros((degree + 1, TERMS), dtype=np.longdouble)
    for k in range(TERMS):
        for j in range(k // 2 + 1):
            n = k - 2 * j
            if n <= degree:
                share = np.longdouble(comb(k, j)) * np.exp2(np.longdouble(1 - k))
                chebyshev[n, k] += share / 2 if n == 0 else share
    return power.T @ chebyshev @ shift


_tables = OrderedDict()
_lock = Lock()
KEPT = 8


def correlation_table(nu, low, high):
    """Return a table for ν that covers the octaves low to high; the last few are kept.

    Parameters
    ----------
    nu : float
    low, high : int
        2^low ≤ s < 2^high is wanted; clipped to what numbers can reach.

    Returns
    -------
    CorrelationTable
    """
    high = min(max(high, LOWEST + 1), HIGHEST)
    low = min(max(low, LOWEST), high - 1)
    with _lock:
        table = _tables.pop(nu, None)
        if table is None or table.low > low or table.high < high:
            if table is not None:
                low, high = min(low, table.low), max(high, table.high)
            table = CorrelationTable(nu, low, high)
        _tables[nu] = table
        while len(_tables) > KEPT:
            _tables.popitem(last=False)
    return table
