"""Taylor series of correlations that solve a linear differential equation of second order.

The equation's recurrence gives all terms of a series from the value and the slope at its centre:
four evaluations an octave serve all polynomials of a table (see `table`).
"""

from __future__ import annotations

from functools import cache
from math import comb

import numpy as np

from .table import monomials

CENTRES = 4
"""Taylor series of an octave, unless a family needs more. With 2, rounding errors of Matérn's grow
as (6/5)^ν: too much at ν = 50."""

TERMS = 28
"""Terms of a series: its centre is at least 7 half-widths away from the equation's singular points,
s = 0 and, for compact support, s = 1."""


class TaylorSeries:
    """Taylor series of a correlation and its derivatives in squared scaled distance s.

    A subclass defines `_expansion(what)`: Taylor coefficients in t, (TERMS, K), for the K intervals
    s = centre + half-width · t, |t| ≤ 1. `octaves` are their lower ends 2^k, of longdouble;
    `centres` is a power of two.
    """

    def __init__(self, octaves, centres=CENTRES):
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
            matrix, constants = _economisation(2**split // self._centres, degree)
            rows = np.empty((series.shape[1] * constants.shape[1], degree + 1))
            double = series.astype(np.float64)
            np.einsum("kc,kn->cn", double, matrix, out=rows.reshape(len(double.T), -1))
            # in extended precision, for t⁰ only: the other terms are small beside it
            rows[:, 0] = np.dot(series.T, constants).ravel()
        return rows

    def _slope(self, series):
        """Return the coefficients of 2 s f'(s) from those of f."""
        # s = s₀ + δt, and f' = Σ k c_k t^(k-1) / δ
        kc = np.arange(TERMS, dtype=np.longdouble)[:, None] * series
        terms = kc.copy()
        terms[:-1] += kc[1:] * (self._centre / self._half_width)
        return 2 * terms


def recurrence(first, ratio, here, above, right):
    """Return the Taylor coefficients of a solution from its first two, (TERMS, K).

    c_{k+2} = ratio/((k+1)(k+2)) (here_k c_k - above_k c_{k+1} + right_k)

    These factors include powers of the half-width. `first` is (2, K); `here`, `above` and `right`
    have a number or a row for each k < TERMS - 2.
    """
    c = np.empty((TERMS, len(ratio)), dtype=np.longdouble)
    c[:2] = first
    for k in range(TERMS - 2):
        inner = here[k] * c[k] - above[k] * c[k + 1] + right[k]
        c[k + 2] = ratio / ((k + 1) * (k + 2)) * inner
    return c


@cache
def _economisation(parts, degree):
    """Return the matrix from a series' Taylor coefficients to the polynomials of its intervals.

    The intervals are equal parts of the series' own: u = c + t/parts. The polynomial in t is the
    truncated Chebyshev series, with tᵏ = 2^(1-k) Σ_j binom(k, j) T_{k-2j}(t), the term T_0 halved.

    Return the matrix, (TERMS, parts (degree + 1)), and in extended precision its columns for t⁰.
    """
    k = np.arange(TERMS)
    binomial = np.array([[comb(m, j) for j in k] for m in k], dtype=np.longdouble)
    power = monomials(degree)
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
