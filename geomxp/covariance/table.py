"""Correlations as piecewise polynomials of squared scaled distance.

For one set of shape parameters the correlation is a function f of one number, s = (h/a)². Each
binary octave of s is cut into 32 equal intervals; on each, f is a polynomial of degree 7 in t in
[-1, 1]. The interval and t come from the bits of the floating-point number s: no square root, no
exponential and no Bessel function is evaluated for an entry of the matrix.

The polynomials come from expansions in extended precision. Matérn's and Wendland's correlations
solve linear differential equations of second order: a recurrence gives all terms of a Taylor series
from the value and the slope at its centre, so that four evaluations an octave serve all
polynomials. For all other families they come from interpolation in Chebyshev nodes of an octave.

A correlation that is not analytic at the end of its support, s = 1, needs small intervals there
too. The variable is then v = s below ½ and v = 2⁵³(1 - s) above: the octaves from 0 to 52 hold
s between ½ and 1, in the opposite direction (`fold`).
"""

from collections import OrderedDict
from functools import cache
from math import comb
from threading import Lock

import numpy as np

SPLIT, DEGREE = 5, 7
"""Intervals of an octave, as a power of two, and the degree on each."""

SPLIT_FP32, DEGREE_FP32 = 6, 2
"""The same for FP32, whose errors they keep below 2e-8."""

CHEBYSHEV_NODES = 28
"""Chebyshev nodes of an octave: with no singularity between it and s = 0 the error of
interpolation is about (3 + √8)^-28 = 4e-22."""

SERIES_PER_OCTAVE = 4
"""Taylor series of an octave, unless a family needs more. With 2, rounding errors of Matérn's grow
as (6/5)^ν: too much at ν = 50."""

SERIES_TERMS = 28
"""Terms of a series: its centre is at least 7 half-widths away from the equation's singular points,
s = 0 and, for compact support, s = 1."""

ONE_AT_ZERO = ("correlation", "time decay", "time stretch")
"""Functions that are 1 for s = 0; the others, derivatives, are 0. No parameter has a space."""

LOWEST_OCTAVE, HIGHEST_OCTAVE = -1020, 1020
"""Octaves that a table may cover."""

LOWEST_OCTAVE_FP32 = -126
"""Lowest octave of normal FP32 numbers."""

FOLDED_OCTAVES = 53
"""Octaves above s = ½ of a folded table: 1 - s is at least 2^-53 there."""

FOLD_FACTOR, BEYOND_SUPPORT = 2.0**FOLDED_OCTAVES, 2.0**100


def fold(s):
    """Return the variable v of a folded table for squared scaled distances s ≥ 0.

    Examples
    --------
    >>> fold(np.array([0.25, 0.75, 1.0])) == [0.25, 2.0**51, 2.0**100]
    array([ True,  True,  True])
    """
    return np.where(s < 0.5, s, np.where(s < 1.0, (1.0 - s) * FOLD_FACTOR, BEYOND_SUPPORT))


def unfold(v):
    """Return s and 1 - s for variables v < 2^53 of a folded table, both without cancellation."""
    folded = v / FOLD_FACTOR
    return np.where(v < 0.5, v, 1 - folded), np.where(v < 0.5, 1 - v, folded)


class Table:
    """Polynomials of a model's correlation and of its derivatives for 2^low ≤ v < 2^high.

    Of the model's parameters only the shapes count.
    """

    def __init__(self, model, low, high):
        self.low, self.high = low, high
        # number of the first interval: the sign, the exponent and SPLIT bits of the mantissa
        self.base = (low + 1023) << SPLIT
        # FP32 has no lower octave, and 0 must lie below the table
        self._skipped_fp32 = max(LOWEST_OCTAVE_FP32 - low, 0) << SPLIT_FP32
        self.base_fp32 = ((low + 127) << SPLIT_FP32) + self._skipped_fp32
        self._expansions = model.expansions(np.exp2(np.arange(low, high, dtype=np.longdouble)))
        self._rows = {}

    def rows(self, what, single=False):
        """Return the coefficients of t⁰ … t⁷, (K + 2, 8), or of t⁰ … t², in FP32, (K + 2, 3).

        The first row stands for s = 0, the last for v ≥ 2^high, where all is 0. `what` is
        "correlation" for ρ, "slope" for r dρ/dr = 2s f'(s), or a shape parameter's name for ∂ρ.
        """
        if (what, single) not in self._rows:
            split, degree = (SPLIT_FP32, DEGREE_FP32) if single else (SPLIT, DEGREE)
            inside = self._expansions.polynomials(what, split, degree)
            inside = inside[self._skipped_fp32 :] if single else inside
            rows = np.zeros((len(inside) + 2, degree + 1), np.float32 if single else np.float64)
            rows[1:-1] = inside
            rows[0, 0] = 1.0 if what in ONE_AT_ZERO else 0.0
            self._rows[what, single] = rows
        return self._rows[what, single]

    def polynomials(self, what, single=False):
        """Return `rows` and the number of the first interval."""
        return self.rows(what, single), self.base_fp32 if single else self.base


class Sampled:
    """A model's functions, interpolated in the Chebyshev nodes of octaves with lower ends 2^k."""

    def __init__(self, model, octaves):
        v = np.multiply.outer(octaves, (3 + _nodes(CHEBYSHEV_NODES)) / 2)
        s, rest = v, 1 - v
        if model.support == "rough":
            # of the last octave only its lower end is in use, where s = ½
            s, rest = unfold(np.minimum(v, FOLD_FACTOR / 2))
        self._at, self._shape = model.at_squares(s, rest), s.shape

    def polynomials(self, what, split, degree):
        """Return the polynomials on 2^split intervals of each octave, (2^split K, degree + 1)."""
        with np.errstate(under="ignore", over="ignore"):
            values = np.asarray(self._at(what), dtype=np.longdouble)
            rows = np.broadcast_to(values, self._shape) @ _economisation(split, degree)
            return rows.astype(np.float64).reshape(-1, degree + 1)


def _nodes(count):
    """Return the zeros of the Chebyshev polynomial T_count, in extended precision."""
    # sines are exact to the last bit near 0, and antisymmetric
    k = np.arange(count) - np.longdouble(count - 1) / 2
    return np.sin(k * PI / count)


PI = np.longdouble("3.14159265358979323846264338327950288")


def _chebyshev(x, count):
    """Return T_0 … T_{count-1} at points, (count, len(x))."""
    values = np.ones((count, len(x)), dtype=x.dtype)
    values[1] = x
    for n in range(2, count):
        values[n] = 2 * x * values[n - 1] - values[n - 2]
    return values


def monomials(degree):
    """Return the Chebyshev polynomials T_0 … T_degree in powers of t, row by row."""
    power = np.eye(degree + 1, dtype=np.longdouble)
    for n in range(2, degree + 1):
        power[n, 1:] = 2 * power[n - 1, :-1]
        power[n] -= power[n - 2]
    return power


def _coefficients(count, kept):
    """Return the matrix from values in Chebyshev nodes to coefficients of T_0 … T_{kept-1}."""
    matrix = 2 * _chebyshev(_nodes(count), count)[:kept].T / count
    matrix[:, 0] /= 2
    return matrix


@cache
def _economisation(split, degree):
    """Return the matrix from values in an octave's nodes to the polynomials of its intervals."""
    parts = 2**split
    t = _nodes(degree + 7)
    places = (2 * np.arange(parts, dtype=np.longdouble)[:, None] + 1 - parts + t) / parts
    values = _coefficients(CHEBYSHEV_NODES, CHEBYSHEV_NODES) @ _chebyshev(
        places.ravel(), CHEBYSHEV_NODES
    )
    matrix = values.reshape(CHEBYSHEV_NODES, parts, len(t)) @ _coefficients(len(t), degree + 1)
    # products of extended precision are sums along contiguous columns
    return np.asfortranarray((matrix @ monomials(degree)).reshape(CHEBYSHEV_NODES, -1))


class TaylorSeries:
    """Taylor series of a correlation and its derivatives in squared scaled distance s.

    A subclass defines `_expansion(what)`: Taylor coefficients in t, (SERIES_TERMS, K), for the K
    intervals s = centre + half-width · t, |t| ≤ 1. `octaves` are their lower ends 2^k, of
    longdouble; `centres` is a power of two.
    """

    def __init__(self, octaves, centres=SERIES_PER_OCTAVE):
        inside = (np.arange(centres, dtype=np.longdouble) + np.longdouble(0.5)) / centres
        self._centre = np.multiply.outer(octaves, 1 + inside).ravel()
        self._half_width = np.repeat(octaves, centres) / (2 * centres)
        self._centres = centres

    def polynomials(self, what, split, degree):
        """Return the polynomials on 2^split intervals of each octave; see `table.Sampled`."""
        with np.errstate(under="ignore"):
            series = self._expansion(what)
            # operations on subnormal numbers would take ten times as long
            series = np.where(np.abs(series) < 1e-250, 0, series)
            matrix, constants = _of_series(2**split // self._centres, degree)
            rows = np.empty((series.shape[1] * constants.shape[1], degree + 1))
            double = series.astype(np.float64)
            np.einsum("kc,kn->cn", double, matrix, out=rows.reshape(len(double.T), -1))
            # in extended precision, for t⁰ only: the other terms are small beside it
            rows[:, 0] = np.dot(series.T, constants).ravel()
        return rows

    def _slope(self, series):
        """Return the coefficients of 2 s f'(s) from those of f."""
        # s = s₀ + δt, and f' = Σ k c_k t^(k-1) / δ
        kc = np.arange(SERIES_TERMS, dtype=np.longdouble)[:, None] * series
        terms = kc.copy()
        terms[:-1] += kc[1:] * (self._centre / self._half_width)
        return 2 * terms


def recurrence(first, ratio, here, above, right):
    """Return the Taylor coefficients of a solution from its first two, (SERIES_TERMS, K).

    c_{k+2} = ratio/((k+1)(k+2)) (here_k c_k - above_k c_{k+1} + right_k)

    These factors include powers of the half-width. `first` is (2, K); `here`, `above` and `right`
    have a number or a row for each k < SERIES_TERMS - 2.
    """
    c = np.empty((SERIES_TERMS, len(ratio)), dtype=np.longdouble)
    c[:2] = first
    for k in range(SERIES_TERMS - 2):
        inner = here[k] * c[k] - above[k] * c[k + 1] + right[k]
        c[k + 2] = ratio / ((k + 1) * (k + 2)) * inner
    return c


@cache
def _of_series(parts, degree):
    """Return the matrix from a series' Taylor coefficients to the polynomials of its intervals.

    The intervals are equal parts of the series' own: u = c + t/parts. The polynomial in t is the
    truncated Chebyshev series, with tᵏ = 2^(1-k) Σ_j binom(k, j) T_{k-2j}(t), the term T_0 halved.

    Return the matrix, (SERIES_TERMS, parts (degree + 1)), and its columns for t⁰ in extended
    precision.
    """
    k = np.arange(SERIES_TERMS)
    binomial = np.array([[comb(m, j) for j in k] for m in k], dtype=np.longdouble)
    power = monomials(degree)
    # powers of t in Chebyshev polynomials
    chebyshev = np.zeros((SERIES_TERMS, degree + 1), dtype=np.longdouble)
    for n in range(degree + 1):
        m = np.arange(n, SERIES_TERMS, 2)
        chebyshev[m, n] = binomial[m, (m - n) // 2] * np.exp2(np.longdouble(1) - m)
    chebyshev[:, 0] /= 2
    # u^m in powers of t
    centre = (2 * np.arange(parts, dtype=np.longdouble)[:, None, None] + 1 - parts) / parts
    shift = binomial * centre ** np.maximum(k[:, None] - k, 0) / np.longdouble(parts) ** k
    matrix = (shift @ (chebyshev @ power)).swapaxes(0, 1)
    return matrix.astype(np.float64).reshape(SERIES_TERMS, -1), matrix[:, :, 0].copy()


tables_kept = OrderedDict()
_lock = Lock()
KEPT_TABLES = 64
"""Number of tables that are kept, larger than that of the shapes at which searches start and of the
pairs of ten variables. One has about 0.3 MB."""


def table_of(model, low, high):
    """Return a `Table` of a model for 2^low ≤ s < 2^high; the last few tables are kept.

    Octaves where the correlation is 1 or 0 are left out.
    """
    if model.support == "rough":
        low, high = min(low, -2), FOLDED_OCTAVES
    elif model.support:
        high = min(high, 0)
    high = min(max(high, LOWEST_OCTAVE + 1), model.last_octave, HIGHEST_OCTAVE)
    low = min(max(low, LOWEST_OCTAVE), high - 1)
    key = model.table_key
    with _lock:
        table = tables_kept.pop(key, None)
        if table is None or table.low > low or table.high < high:
            if table is not None:
                low, high = min(low, table.low), max(high, table.high)
            table = Table(model, low, high)
        tables_kept[key] = table
        while len(tables_kept) > KEPT_TABLES:
            tables_kept.popitem(last=False)
    return table
