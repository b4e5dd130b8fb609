"""The correlation as piecewise polynomials of squared scaled distance, with its derivatives.

For one ν the correlation is a function f of one number, s = (h/a)². Each binary octave of s is
cut into 32 equal intervals; on each, f is a polynomial of degree 7 in t in [-1, 1]. The interval
and t come from the bits of the floating-point number s: no square root, no exponential and no
Bessel function is left for an entry of the matrix.

The polynomials come from Taylor series at 4 centres an octave, of which Bessel's equation gives
all terms from the first two; each serves eight intervals, economised by Chebyshev polynomials.
"""

from collections import OrderedDict
from functools import cache, cached_property
from math import comb
from threading import Lock

import numpy as np

from .bessel import matern_of_squares

SPLIT, DEGREE = 5, 7
"""Intervals of an octave, as a power of two, and the degree on each."""

SPLIT_FP32, DEGREE_FP32 = 6, 2
"""The same for FP32, whose errors they keep below 2e-8."""

CENTRES = 4
"""Taylor series of an octave. With 2, rounding errors grow as (6/5)^ν: too much at ν = 50."""

TERMS = 28
"""Terms of a series: its centre is at least 9 half-widths away from the singular point s = 0."""

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
        octaves = np.exp2(np.arange(low, high, dtype=np.longdouble))
        inside = (np.arange(CENTRES, dtype=np.longdouble) + np.longdouble(0.5)) / CENTRES
        self._centre = np.multiply.outer(octaves, 1 + inside).ravel()
        self._half_width = np.repeat(octaves, CENTRES) / (2 * CENTRES)

    @cached_property
    def correlation(self):
        """Coefficients of ρ; 1 at s = 0."""
        return _table(self._series, SPLIT, DEGREE, at_zero=1.0)

    @cached_property
    def correlation_fp32(self):
        """The same of degree 2 on 64 intervals an octave, in FP32."""
        rows = _table(self._series, SPLIT_FP32, DEGREE_FP32, at_zero=1.0)
        return rows.astype(np.float32)

    @cached_property
    def by_smoothness(self):
        """Coefficients of ∂ρ/∂ν."""
        series = self._solve(self._first[:, 1], self._series)
        return _table(series, SPLIT, DEGREE, at_zero=0.0)

    @cached_property
    def slope(self):
        """Coefficients of r dρ/dr."""
        # 2 s f'(s) with s = s₀ + δt, and f' = Σ k c_k t^(k-1) / δ
        kc = np.arange(TERMS, dtype=np.longdouble)[:, None] * self._series
        terms = kc.copy()
        terms[:-1] += kc[1:] * (self._centre / self._half_width)
        return _table(2 * terms, SPLIT, DEGREE, at_zero=0.0)

    @cached_property
    def _first(self):
        """Values f and ∂f/∂ν, slopes f' and ∂f'/∂ν at the centres, (2, 2, K)."""
        return matern_of_squares(self._centre, self.nu)

    @cached_property
    def _series(self):
        """Taylor coefficients of f in t, (TERMS, K)."""
        return self._solve(self._first[:, 0], 0)

    def _solve(self, first, source):
        """Return the Taylor coefficients in t of a solution of Bessel's equation, (TERMS, K).

        s f'' + (1-ν) f' - f/4 = 0, and for g = ∂f/∂ν:  s g'' + (1-ν) g' - g/4 = f'

        Parameters
        ----------
        first : (2, K) ndarray of longdouble
            The solution and its slope at the centres.
        source : (TERMS, K) ndarray of longdouble, or 0
            Coefficients of the function whose slope is the right-hand side.
        """
        nu, d = np.longdouble(self.nu), self._half_width
        ratio, quarter = d / self._centre, d / 4
        c = np.zeros((TERMS, len(d)), dtype=np.longdouble)
        c[:2] = first
        c[1] *= d
        # coefficients of tᵏ, with powers of the half-width d taken in
        right = np.arange(TERMS)[:, None] * source + np.zeros_like(c)
        for k in range(TERMS - 2):
            inner = quarter * c[k] - (k + 1) * (k + 1 - nu) * c[k + 1] + right[k + 1]
            c[k + 2] = ratio / ((k + 1) * (k + 2)) * inner
        return c


def _table(series, split, degree, at_zero):
    """Economise Taylor series in t and add the rows for s = 0 and for s beyond the table."""
    matrix, constants = _economisation(split, degree)
    rows = np.zeros(((series.shape[1] << split) // CENTRES + 2, degree + 1))
    inside = rows[1:-1]
    with np.errstate(under="ignore"):
        double = series.astype(np.float64)
        np.einsum("kc,kn->cn", double, matrix, out=inside.reshape(len(double.T), -1))
        # in extended precision, for t⁰ only: the other terms are small beside it
        inside[:, 0] = np.dot(series.T, constants).ravel()
    rows[0, 0] = at_zero
    return rows


@cache
def _economisation(split, degree):
    """Return the matrix from a series' Taylor coefficients to the polynomials of its intervals.

    The intervals are equal parts of the series' own: u = c + t/parts. The polynomial in t is the
    truncated Chebyshev series, with tᵏ = 2^(1-k) Σ_j binom(k, j) T_{k-2j}(t), the term T_0 halved.

    Returns
    -------
    matrix : (TERMS, parts (degree + 1)) ndarray
    constants : (TERMS, parts) ndarray of longdouble
        Its columns for t⁰, in extended precision.
    """
    parts, k = 2**split // CENTRES, np.arange(TERMS)
    binomial = np.array([[comb(m, j) for j in k] for m in k], dtype=np.longdouble)
    # Chebyshev polynomials in powers of t, row by row
    power = np.eye(degree + 1, dtype=np.longdouble)
    for n in range(2, degree + 1):
        power[n, 1:] = 2 * power[n - 1, :-1]
        power[n] -= power[n - 2]
    # powers of t in Chebyshev polynomials
    chebyshev = np.zeros((TERMS, degree + 1), dtype=np.longdouble)
    for n in range(degree + 1):
        m = np.arange(n, TERMS, 2)
        chebyshev[m, n] = binomial[m, (m - n) // 2] * np.exp2(np.longdouble(1) - m)
    chebyshev[:, 0] /= 2
    # u^m in powers of t
    centre = (2 * np.arange(parts, dtype=np.longdouble)[:, None, None] + 1 - parts) / parts
    shift = binomial * centre ** np.maximum(k[:, None] - k, 0) / np.longdouble(parts) ** k
    matrix = (shift @ (chebyshev @ power)).swapaxes(0, 1)
    return matrix.astype(np.float64).reshape(TERMS, -1), matrix[:, :, 0].copy()


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
