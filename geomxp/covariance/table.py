"""The Matérn correlation's special cases: half-integer and large smoothness.

Between them stands SciPy's modified Bessel function of the second kind (AMOS), whose own
error is below 1e-13.
"""

from collections import OrderedDict
from functools import cache, cached_property
from math import comb, factorial, log
from threading import Lock

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


# The correlation as piecewise polynomials of squared scaled distance, with its derivatives.
#
# For one ν the correlation is a function f of one number, s = (h/a)². Each binary octave of s is
# cut into 32 equal intervals; on each, f is a polynomial of degree 7 in t in [-1, 1]. The
# interval and t come from the bits of the floating-point number s: no square root, no exponential
# and no Bessel function is left for an entry of the matrix.
#
# The polynomials come from Taylor series at 4 centres an octave, of which Bessel's equation gives
# all terms from the first two; each serves eight intervals, economised by Chebyshev polynomials.


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
