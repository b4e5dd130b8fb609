"""Jets: numbers that carry their derivatives, so that a density is written once, as its formula.

A jet is the Taylor polynomial of a function of η at each of n points, to the third order, and the
first derivative of this polynomial with respect to one parameter ψ: an element of the algebra of
polynomials in dη and dψ with dη⁴ = dψ² = 0. Sums and products are those of polynomials. A function
f of a jet u = u₀ + d is

    f(u) = Σ_k f⁽ᵏ⁾(u₀) dᵏ / k!,  k ≤ 4

because dη³dψ is the term of the highest degree that is not 0. Derivatives are exact up to rounding
(Griewank and Walther 2008, Evaluating Derivatives, chapter 13).
"""

from __future__ import annotations

import numpy as np
import scipy

ORDERS = 4
"""Number of coefficients in dη: those of the value and of three derivatives."""

FACTORIALS = np.array([1.0, 1.0, 2.0, 6.0, 24.0])


class Jet:
    """A jet; in operations with it, numbers and NumPy arrays are constants.

    Parameters
    ----------
    coefficients : ndarray
        (1, 4, n), the coefficients of dη⁰ to dη³; or (2, 4, n), followed by those of dψ·dη⁰ to
        dψ·dη³.

    Examples
    --------
    The derivatives of η² exp(η) at 1 are 3e, 7e and 13e:

    >>> eta = variable(np.array([1.0]))
    >>> (eta * eta * exp(eta)).slopes() / np.e
    array([[ 3.],
           [ 7.],
           [13.]])
    """

    # NumPy leaves operations with an array on the left to the jet
    __array_ufunc__ = None

    def __init__(self, coefficients):
        self.coefficients = coefficients

    @property
    def value(self):
        """The values, (n,)."""
        return self.coefficients[0, 0]

    def slopes(self):
        """Return the first three derivatives with respect to η, (3, n)."""
        return self.coefficients[0, 1:] * FACTORIALS[1:ORDERS, None]

    def by_parameter(self):
        """Return the ψ-derivatives of the value and of its first two η-derivatives, (3, n)."""
        return self.coefficients[1, : ORDERS - 1] * FACTORIALS[: ORDERS - 1, None]

    def function(self, derivatives):
        """Return f of the jet, from the values of f and of four derivatives at `value`."""
        own, (f0, *rest) = self.coefficients, derivatives
        step = Jet(own.copy())
        step.coefficients[0, 0] = 0.0
        total, power = np.zeros(np.broadcast_shapes(own.shape, np.shape(f0))), step
        total[0, 0] = f0
        degrees = ORDERS - 1 + (len(own) > 1)
        for k, f in enumerate(rest[:degrees], 1):
            total += (f / FACTORIALS[k]) * power.coefficients
            if k < degrees:
                power = power * step
        return Jet(total)

    def __add__(self, other):
        if isinstance(other, Jet):
            first, second = _alike(self, other)
            return Jet(first + second)
        total = self.coefficients + np.zeros(np.shape(other))
        total[0, 0] += other
        return Jet(total)

    def __mul__(self, other):
        if not isinstance(other, Jet):
            return Jet(self.coefficients * other)
        a, b = _alike(self, other)
        total = np.zeros(np.broadcast_shapes(a.shape, b.shape))
        for i in range(ORDERS):
            total[0, i:] += a[0, i] * b[0, : ORDERS - i]
            if len(a) > 1:
                total[1, i:] += a[0, i] * b[1, : ORDERS - i] + a[1, i] * b[0, : ORDERS - i]
        return Jet(total)

    def __neg__(self):
        return Jet(-self.coefficients)

    def __sub__(self, other):
        return self + (-other)

    def __rsub__(self, other):
        return -self + other

    def __truediv__(self, other):
        return self * (reciprocal(other) if isinstance(other, Jet) else 1.0 / other)

    def __rtruediv__(self, other):
        return reciprocal(self) * other

    __radd__, __rmul__ = __add__, __mul__


def _alike(one, other):
    """Return the coefficients of two jets, both with those of dψ if one of them has these."""
    a, b = one.coefficients, other.coefficients
    if len(a) != len(b):
        a, b = (np.concatenate((c, np.zeros_like(c))) if len(c) == 1 else c for c in (a, b))
    return a, b


def variable(eta):
    """Return the jet of η itself at the points of an array, (n,)."""
    coefficients = np.zeros((1, ORDERS, len(eta)))
    coefficients[0, 0], coefficients[0, 1] = eta, 1.0
    return Jet(coefficients)


def parameter(value):
    """Return the jet of the parameter ψ itself."""
    coefficients = np.zeros((2, ORDERS, 1))
    coefficients[0, 0], coefficients[1, 0] = value, 1.0
    return Jet(coefficients)


def chosen(condition, one, other):
    """Return `one` where a condition, (n,), holds, and `other` elsewhere."""
    a, b = _alike(*(each if isinstance(each, Jet) else constant(each) for each in (one, other)))
    return Jet(np.where(condition, a, b))


def constant(value):
    """Return the jet of a constant, or of constants (n,)."""
    coefficients = np.zeros((1, ORDERS, *(np.shape(value) or (1,))))
    coefficients[0, 0] = value
    return Jet(coefficients)


# Functions: each takes a jet or numbers


def _defined(derivatives):
    """Make a function of jets and of numbers from one that returns f and four derivatives."""

    def function(x):
        if not isinstance(x, Jet):
            return derivatives(np.asarray(x, dtype=float))[0]
        return x.function(derivatives(x.value))

    function.__doc__, function.__name__ = derivatives.__doc__, derivatives.__name__
    return function


@_defined
def exp(x):
    """Return eˣ."""
    return (np.exp(x),) * 5


@_defined
def log(x):
    """Return log x."""
    r = 1.0 / x
    return np.log(x), r, -(r**2), 2 * r**3, -6 * r**4


@_defined
def log1p(x):
    """Return log(1 + x)."""
    r = 1.0 / (1.0 + x)
    return np.log1p(x), r, -(r**2), 2 * r**3, -6 * r**4


@_defined
def reciprocal(x):
    """Return 1/x."""
    r = 1.0 / x
    return r, -(r**2), 2 * r**3, -6 * r**4, 24 * r**5


@_defined
def expit(x):
    """Return 1/(1 + e⁻ˣ)."""
    p = scipy.special.expit(x)
    v = p * scipy.special.expit(-x)
    return p, v, v * (1 - 2 * p), v * (1 - 6 * v), v * (1 - 2 * p) * (1 - 12 * v)


@_defined
def softplus(x):
    """Return log(1 + eˣ)."""
    p = scipy.special.expit(x)
    v = p * scipy.special.expit(-x)
    return np.logaddexp(0.0, x), p, v, v * (1 - 2 * p), v * (1 - 6 * v)


@_defined
def gammaln(x):
    """Return log Γ(x), x > 0."""
    return (
        scipy.special.gammaln(x),
        scipy.special.psi(x),
        *(scipy.special.polygamma(k, x) for k in (1, 2, 3)),
    )


@_defined
def log1mexp(x):
    """Return log(1 - e⁻ˣ), x > 0."""
    # 1/(eˣ - 1)
    b = np.exp(-x) / -np.expm1(-x)
    value = np.where(x < np.log(2), np.log(-np.expm1(-x)), np.log1p(-np.exp(-x)))
    return value, b, -b * (1 + b), b * (1 + b) * (1 + 2 * b), -b * (1 + b) * (1 + 6 * b * (1 + b))


@_defined
def log1mexp_of_exp(x):
    """Return log(1 - exp(-eˣ)), also where eˣ underflows or overflows."""
    h = np.exp(np.minimum(x, 6.5))
    # h/(eʰ - 1), whose derivative by x is r(1 - h - r)
    r = np.where(h > 1e-300, h / np.expm1(np.maximum(h, 1e-300)), 1.0)
    bend = np.where(h < 0.01, -h / 2 - h**2 / 12 + h**4 / 720, 1 - h - r)
    first = r * bend
    second = first * bend + r * (-h - first)
    third = second * bend + 2 * first * (-h - first) + r * (-h - second)
    inner = np.maximum(h, 1e-5)
    small = x + np.where(h < 1e-5, h * (h / 24 - 0.5), np.log(-np.expm1(-inner) / inner))
    value = np.where(h < np.log(2), small, np.log1p(-np.exp(-np.maximum(h, 0.1))))
    return value, r, first, second, third


@_defined
def log_ndtr(x):
    """Return log Φ(x) of the standard normal distribution."""
    # the inverse Mills ratio φ/Φ
    h = np.sqrt(2 / np.pi) / scipy.special.erfcx(-x / np.sqrt(2))
    second = -h * (x + h)
    third = -second * (x + h) - h * (1 + second)
    fourth = -third * (x + h) - 2 * second * (1 + second) - h * third
    return scipy.special.log_ndtr(x), h, second, third, fourth
