"""Transformations: how measured values relate to a Gaussian field.

z = t(y) is a Gaussian field with noise; y is what was measured. The log-likelihood of y is that of
z plus Σ log t'(y_i), so that log-likelihoods under different transformations can be
compared. A transformation may have parameters, which are estimated with those of the covariance.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from math import comb, inf
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.polynomial import Polynomial

from ..errors import InvalidInput, did_you_mean
from ..runtime.devices import blas_threads
from .parameter import Parameter, Parametrized, central_derivative, finite, name_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from .._typing import Floats, Whole

NOTABLE_ZEROS = 0.05
"""Share of zeros above which values of at least 0 have no continuous distribution."""

QUADRATURE_NODES = 64
"""Nodes of Gauss-Hermite quadrature for moments of back-transformed predictions."""

NEGLIGIBLE_TAIL_SDS, SMALL_TAIL_SDS = 8.3, 4.9
"""Standard deviations beyond which a normal distribution has less than 1e-16, and about 1e-6."""


@dataclass(frozen=True)
class Transformation(Parametrized):
    """Base of transformations; by itself the identity, z = y.

    A subclass is a frozen dataclass with a field for each declared parameter. It defines
    `transform`, which must increase with y, `inverse` and `log_jacobian`, and `check` if some
    numbers cannot be transformed. Derivatives by the parameters are computed by differences unless
    it defines `slopes`, and moments by quadrature unless it defines `moments`. A quadrature gives a
    finite number also for an integral that is infinite: define `moment_order` and `moment_rule` if
    values grow as fast as exp(bz²), or to infinity at a finite z.

    Attributes
    ----------
    name : str
        Name for titles, files and the command line.
    support : (float, float)
        The values that can be measured lie between these.
    atom : float
        The largest z that `inverse` maps to the lower end of the support; -inf if none is. The
        probability of z up to there is that of a measured value at this end.
    moment_rule : str
        Which moments are infinite, in words for a warning; empty if none is.
    declared : tuple of Parameter
        Its parameters, with values to start from; none by default. Their names must differ from
        those of covariance parameters.

    Examples
    --------
    >>> class Cube(Transformation):
    ...     name = "cube"
    ...
    ...     def transform(self, values):
    ...         return np.cbrt(values)
    ...
    ...     def inverse(self, z):
    ...         return z**3
    ...
    ...     def log_jacobian(self, values):
    ...         return -np.log(3 * np.cbrt(values) ** 2)
    >>> Cube().inverse(Cube().transform(np.array([-8.0, 1.0]))).tolist()
    [-8.0, 1.0]
    """

    name: ClassVar[str] = "identity"
    support: ClassVar[tuple[float, float]] = (-inf, inf)
    atom: ClassVar[float] = -inf
    moment_rule: ClassVar[str] = ""
    declared: ClassVar[tuple[Parameter, ...]] = ()

    def of(self, variable: Whole | None) -> Transformation:
        """Return the transformation of values of these variables, by number, (n,)."""
        return self

    def of_rows(self, rows: slice | Whole) -> Transformation:
        """Return the transformation of some of the values that `of` was given."""
        return self

    def check(self, values: Floats) -> None:
        """Raise `InvalidInput`, with a remedy, for values that cannot be transformed."""

    def transform(self, values: Floats) -> Floats:
        """Return the values on the Gaussian scale, t(y), (n,)."""
        return values

    def inverse(self, z: Floats) -> Floats:
        """Return the measured values of Gaussian ones, t⁻¹(z)."""
        return z

    def log_jacobian(self, values: Floats) -> Floats:
        """Return log t'(y), (n,), which the log-likelihood of the measurements includes."""
        return np.zeros(np.shape(values))

    def slopes(self, values: Floats) -> tuple[Floats, Floats]:
        """Return the derivatives of t(y) and of log t'(y) by the parameters, each (k, n)."""
        result = np.zeros((2, len(self.declared), len(values)))
        for k, parameter in enumerate(self.table):

            def moved(move, parameter=parameter):
                other = self._beyond(parameter.name, parameter.value + move)
                return np.array((other.transform(values), other.log_jacobian(values)))

            result[:, k] = _difference(moved, parameter)
        return result[0], result[1]

    def bends(self, values: Floats) -> tuple[Floats, Floats]:
        """Return the second derivatives of t(y) and of log t'(y), each (k, k, n)."""
        k = len(self.declared)
        result = np.zeros((2, k, k, len(values)))
        for i, parameter in enumerate(self.table):

            def moved(move, parameter=parameter):
                other = self._beyond(parameter.name, parameter.value + move)
                return np.array(other.slopes(values))

            result[:, i] = _difference(moved, parameter)
        symmetric = (result + result.swapaxes(1, 2)) / 2
        return symmetric[0], symmetric[1]

    def _beyond(self, name, value):
        """Return a copy with another value of a parameter, perhaps beyond its bounds."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.__dict__[name] = value
        return other

    def threshold(self, value: float) -> float:
        """Return the largest z with t⁻¹(z) ≤ y, which is t(y) in the support."""
        low, high = self.support
        if value < low:
            return -inf
        if value >= high:
            return inf
        if value == low:
            return self.atom
        return float(self.transform(np.array([value], dtype=np.float64))[0])

    def adapted(self, values: Floats) -> Self:
        """Return the transformation with constants, such as a scale, that suit the values."""
        return self

    def moment_order(self, variance: Floats) -> Floats:
        """Return q such that E|t⁻¹(Z)|^k is finite for k < q only, (n,), for normal Z."""
        return np.full(np.shape(variance), inf)

    def moments(self, mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
        """Return mean and variance of t⁻¹(Z) for normal Z. Here by Gauss-Hermite quadrature.

        A moment that does not exist, by `moment_order`, is infinite. If t⁻¹ is infinite within 8.3
        standard deviations, the integral stops at 4.9: a probability of 1e-6 is ignored. If it is
        infinite there too, both moments are infinite.
        """
        first, second = self._moments(mean, variance, NEGLIGIBLE_TAIL_SDS)
        lost = ~(np.isfinite(first) & np.isfinite(second))
        if np.any(lost):
            near = self._moments(mean, variance, SMALL_TAIL_SDS)
            first, second = (
                np.where(lost, *both) for both in zip(near, (first, second), strict=True)
            )
        known, order = np.isfinite(first) & np.isfinite(second), self.moment_order(variance)
        return np.where(known & (order > 1), first, inf), np.where(known & (order > 2), second, inf)

    def _moments(self, mean, variance, reach):
        """Return the moments by the nodes within so many standard deviations."""
        x, weights = np.polynomial.hermite_e.hermegauss(QUADRATURE_NODES)
        kept = np.abs(x) < reach
        x, weights = x[kept], weights[kept] / weights[kept].sum()
        with np.errstate(over="ignore", invalid="ignore"):
            spread = np.sqrt(np.asarray(variance))
            y = self.inverse(np.add.outer(x, 0.0 * spread) * spread + mean)
            first = np.tensordot(weights, y, 1)
            return first, np.tensordot(weights, (y - first) ** 2, 1)


def _difference(moved, parameter):
    """Return the derivative at 0 of a function of a change of a parameter.

    Near the end of the support a step can move the end past a value, where the function is not
    finite. The step is then divided by 8, up to six times.
    """
    step = _step(parameter)
    with np.errstate(all="ignore"):
        found = central_derivative(moved, step)
        for _ in range(6):
            if np.isfinite(found).all():
                break
            step = step / 8
            found = np.where(np.isfinite(found), found, central_derivative(moved, step))
    return found


def _step(parameter):
    """Return the step of differences by a parameter; four steps stay positive where it is."""
    return 1e-2 * (
        parameter.value if parameter.transform == "log" else max(abs(parameter.value), 0.1)
    )


def _check_positive(values, model, remedy):
    wrong = np.flatnonzero(~(values > 0))
    if not len(wrong):
        return
    if (values == 0).mean() > NOTABLE_ZEROS and values.min() == 0:
        remedy = (
            'values with so many zeros need a response, such as response="tweedie" or "hurdle", or '
            '"poisson" for counts (--response).'
        )
    raise InvalidInput(
        f"the transformation {model.name!r} needs values greater than 0. Got "
        f"{values[wrong[0]]:g} in row {wrong[0] + 1} ({len(wrong):,} such rows): {remedy}"
    )


NOT_POSITIVE_ADVICE = "use tukey-gh, or add a constant to all values first."


@dataclass(frozen=True)
class Log(Transformation):
    """z = log y: lognormal values.

    Examples
    --------
    The mean of a lognormal distribution:

    >>> bool(Log().moments(0.0, 1.0)[0] == np.exp(0.5))
    True
    """

    name = "log"
    support = (0.0, inf)

    def check(self, values: Floats) -> None:
        """Raise `InvalidInput` for values that are not greater than 0."""
        _check_positive(values, self, NOT_POSITIVE_ADVICE)

    def transform(self, values: Floats) -> Floats:
        """Return log y."""
        return np.log(values)

    def inverse(self, z: Floats) -> Floats:
        """Return exp z."""
        return np.exp(z)

    def log_jacobian(self, values: Floats) -> Floats:
        """Return -log y."""
        return -np.log(values)

    def moments(self, mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
        """Return exp(μ + σ²/2) and its square times exp(σ²) - 1."""
        with np.errstate(over="ignore", invalid="ignore"):
            first = np.exp(mean + np.asarray(variance) / 2)
            # 0 for a known value, also one that overflows
            spread = np.where(np.equal(variance, 0), 0.0, first**2 * np.expm1(variance))
        return first, spread


@dataclass(frozen=True)
class Sqrt(Transformation):
    """z = √y: values greater than 0; y = 0 for z < 0.

    Examples
    --------
    >>> Sqrt().inverse(np.array([-1.0, 3.0])).tolist()
    [0.0, 9.0]
    """

    name = "sqrt"
    support = (0.0, inf)
    atom = 0.0

    def check(self, values: Floats) -> None:
        """Raise `InvalidInput` for values that are not greater than 0."""
        _check_positive(values, self, NOT_POSITIVE_ADVICE)

    def transform(self, values: Floats) -> Floats:
        """Return √y."""
        return np.sqrt(values)

    def inverse(self, z: Floats) -> Floats:
        """Return max(z, 0)²."""
        return np.maximum(z, 0.0) ** 2

    def log_jacobian(self, values: Floats) -> Floats:
        """Return -log(2√y)."""
        return -np.log(2.0) - 0.5 * np.log(values)

    def moments(self, mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
        """Return E max(Z, 0)² and the variance, by the moments of a truncated normal Z."""
        from scipy.special import ndtr

        m, v = np.asarray(mean), np.asarray(variance)
        s = np.sqrt(np.maximum(v, 1e-300))
        ratio = np.clip(m / s, -NEGLIGIBLE_TAIL_SDS, NEGLIGIBLE_TAIL_SDS)
        above, density = ndtr(ratio), np.exp(-0.5 * ratio**2) / np.sqrt(2 * np.pi)
        first = (m**2 + v) * above + m * s * density
        fourth = (m**4 + 6 * m**2 * v + 3 * v**2) * above + (m**3 + 5 * m * v) * s * density
        # far above 0 nothing is cut off, and the difference of two moments would cancel
        spread = np.where(m < NEGLIGIBLE_TAIL_SDS * s, fourth - first**2, 4 * m**2 * v + 2 * v**2)
        return first, np.maximum(spread, 0.0)


@dataclass(frozen=True)
class Logit(Transformation):
    """z = log(y/(1 - y)): values between 0 and 1, such as shares.

    Examples
    --------
    >>> Logit().transform(np.array([0.5])).tolist()
    [0.0]
    """

    name = "logit"
    support = (0.0, 1.0)

    def check(self, values: Floats) -> None:
        """Raise `InvalidInput` for values that are not between 0 and 1."""
        wrong = np.flatnonzero(~((values > 0) & (values < 1)))
        if len(wrong):
            raise InvalidInput(
                "the transformation 'logit' needs values greater than 0 and less than 1. Got "
                f"{values[wrong[0]]:g} in row {wrong[0] + 1} ({len(wrong):,} such rows). If "
                "they are percentages, divide them by 100."
            )

    def transform(self, values: Floats) -> Floats:
        """Return log(y/(1 - y))."""
        return np.log(values) - np.log1p(-values)

    def inverse(self, z: Floats) -> Floats:
        """Return 1/(1 + exp(-z))."""
        with np.errstate(over="ignore"):
            return 1.0 / (1.0 + np.exp(-z))

    def log_jacobian(self, values: Floats) -> Floats:
        """Return -log(y (1 - y))."""
        return -np.log(values) - np.log1p(-values)


@dataclass(frozen=True)
class BoxCox(Transformation):
    """z = ((y/s)^λ - 1)/λ, or log(y/s) for λ = 0, with s > 0 (Box and Cox 1964, JRSS B 26:211).

    y = s(1 + λz)^(1/λ). For λ > 0 all z up to -1/λ are a measured value of 0. For λ < 0 values from
    z = -1/λ on are infinite, and the k-th moment is infinite for -k ≤ λ < 0 whatever the mean and
    the variance of z: near -1/λ it is an integral of (1 + λz)^(k/λ). Quantiles exist in any case.

    Parameters
    ----------
    boxcox_power : float
        λ, from -3 to 3.
    scale : float
        s > 0, a constant: the geometric mean of the values in fits, so that λ and the variance of z
        are almost orthogonal.

    Examples
    --------
    >>> BoxCox(0.5).transform(np.array([1.0, 4.0])).tolist()
    [0.0, 2.0]
    """

    name = "boxcox"
    support = (0.0, inf)
    declared = (Parameter("boxcox_power", 0.5, "identity", -3.0, 3.0, "transform", closed=True),)

    boxcox_power: float = 0.5
    scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        Parameter("scale", 1.0).check(self.scale)

    def check(self, values: Floats) -> None:
        """Raise `InvalidInput` for values that are not greater than 0."""
        _check_positive(values, self, NOT_POSITIVE_ADVICE)

    @property
    def atom(self) -> float:
        """The largest z of a value 0: -1/λ for a positive power."""
        return -1.0 / self.boxcox_power if self.boxcox_power > 0 else -inf

    @property
    def moment_rule(self) -> str:
        """Which moments a negative power has."""
        power, limited = self.boxcox_power, "infinite with a probability above 1e-6"
        if power >= 0:
            return ""
        if power >= -1:
            lost = "all moments are infinite"
        elif power >= -2:
            lost = f"the variance is infinite, and the mean where values are {limited}"
        else:
            lost = f"moments are infinite where values are {limited}"
        return f"at a Box-Cox power of {power:.3g} {lost}"

    def moment_order(self, variance: Floats) -> Floats:
        """Return -λ for a negative power, also for a variance of 0: rounding may make it one."""
        return np.full(np.shape(variance), -self.boxcox_power if self.boxcox_power < 0 else inf)

    def moments(self, mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
        """Return mean and variance, near -1/λ by the moments of a truncated normal w = 1 + λz.

        With w = tZ, where Z has mean x and variance 1, E y^k = s^k t^(k/λ) E max(Z, 0)^(k/λ). For
        λ < 0 it is that of finite values, or infinite if x < 4.9.
        """
        from scipy.special import ndtr

        first, second = (np.array(x) for x in super().moments(mean, variance))
        power = self.boxcox_power
        if not power or abs(power) < LEAST_POWER:
            return first, second
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.abs(power) * np.sqrt(variance) + np.zeros(first.shape)
            x = (1 + power * np.asarray(mean)) / t
        near = (t > 0) & (x < NEGLIGIBLE_TAIL_SDS)
        if power < 0:
            infinite = (t > 0) & (x <= SMALL_TAIL_SDS)
            first[infinite] = second[infinite] = inf
            near &= ~infinite
        t, x = t[near], x[near]
        order, known = self.moment_order(0.0), ndtr(x) if power < 0 else 1.0
        raw = {
            k: self.scale**k * t ** (k / power) * _truncated(k / power, x) / known
            for k in (1, 2)
            if k < order
        }
        if 1 in raw:
            first[near] = raw[1]
        if 2 in raw:
            second[near] = raw[2] - raw[1] ** 2
        return first, second

    def adapted(self, values: Floats) -> BoxCox:
        """Return the transformation with the geometric mean of the values as scale."""
        return replace(self, scale=float(np.exp(np.mean(np.log(values)))))

    def transform(self, values: Floats) -> Floats:
        """Return ((y/s)^λ - 1)/λ."""
        logarithm = np.log(values / self.scale)
        return logarithm * _expm1_over(self.boxcox_power * logarithm)

    def inverse(self, z: Floats) -> Floats:
        """Return s (1 + λz)^(1/λ); 0 or infinity where 1 + λz < 0."""
        power = self.boxcox_power
        if power == 0:
            return self.scale * np.exp(z)
        with np.errstate(divide="ignore", over="ignore"):
            return self.scale * np.exp(np.log1p(np.maximum(power * z, -1.0)) / power)

    def log_jacobian(self, values: Floats) -> Floats:
        """Return (λ - 1) log(y/s) - log s."""
        return (self.boxcox_power - 1) * np.log(values / self.scale) - np.log(self.scale)

    def slopes(self, values: Floats) -> tuple[Floats, Floats]:
        """Return (e^u(u - 1) + 1) L²/u² with L = log(y/s) and u = λL, and L."""
        logarithm = np.log(values / self.scale)
        u = self.boxcox_power * logarithm
        return (logarithm**2 * _expm1_over_slope(u))[None], logarithm[None]

    def bends(self, values: Floats) -> tuple[Floats, Floats]:
        """Return (e^u(u² - 2u + 2) - 2) L³/u³, and 0."""
        logarithm = np.log(values / self.scale)
        bend = logarithm**3 * _expm1_over_bend(self.boxcox_power * logarithm)
        return bend[None, None], np.zeros_like(bend)[None, None]


LEAST_POWER = 0.03
"""Smallest power of Box and Cox for which the moments of a truncated normal do not overflow."""


def _truncated(a, x):
    """Return E max(Z, 0)^a for Z ~ N(x, 1) and a > -1: Winkelbauer 2014, arXiv:1209.4340."""
    from scipy.special import gamma, hyp1f1, hyperu

    half = np.minimum(x * x / 2, 700.0)
    below = gamma(a + 1) / np.sqrt(2 * np.pi) * 2 ** (-(a + 1) / 2) * np.exp(-half)
    below = below * hyperu((a + 1) / 2, 0.5, half)
    even = gamma((a + 1) / 2) * hyp1f1(-a / 2, 0.5, -half)
    odd = gamma(a / 2 + 1) * hyp1f1((1 - a) / 2, 1.5, -half)
    return np.where(x < 0, below, 2 ** (a / 2 - 1) / np.sqrt(np.pi) * (even + np.sqrt(2) * x * odd))


def _expm1_over(u):
    """Return (e^u - 1)/u."""
    safe = np.where(u == 0, 1.0, u)
    return np.where(u == 0, 1.0, np.expm1(safe) / safe)


@dataclass(frozen=True)
class TukeyGH(Transformation):
    """y = c + s τ(z) with τ(z) = (e^(gz) - 1)/g e^(hz²/2): skewness g and heavy tails h.

    (Xu and Genton 2017, JASA 112:1236.) The k-th moment of y is infinite if k h σ² ≥ 1, with σ² the
    variance of z. Quantiles exist in any case.

    Parameters
    ----------
    tukey_g : float
        Skewness, from -3 to 3; 0 for symmetric values.
    tukey_h : float
        Weight of the tails, from 0 to 1; 0 for tails of a normal or lognormal distribution.
    centre, scale : float
        c, and s > 0, constants: in fits the median of the values and a robust standard deviation.

    Examples
    --------
    >>> model = TukeyGH(0.5, 0.1)
    >>> bool(np.allclose(model.transform(model.inverse(np.array([-2.0, 3.0]))), [-2.0, 3.0]))
    True
    """

    name = "tukey-gh"
    declared = (
        Parameter("tukey_g", 0.1, "identity", -3.0, 3.0, "transform", closed=True),
        Parameter("tukey_h", 0.05, "identity", 0.0, 1.0, "transform", closed=True),
    )

    tukey_g: float = 0.1
    tukey_h: float = 0.05
    centre: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        finite("centre", self.centre)
        Parameter("scale", 1.0).check(self.scale)

    def adapted(self, values: Floats) -> TukeyGH:
        """Return a copy with the median, and the interquartile range over that of N(0, 1)."""
        low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
        spread = (high - low) / 1.349 or float(np.std(values)) or 1.0
        return replace(self, centre=float(middle), scale=float(spread))

    def _tau(self, z, by_z=0, by_g=0, by_h=0):
        """Return τ = m(z) e^(hz²/2), m(z) = (e^(gz) - 1)/g, or its derivative of these orders.

        At most the second one by g. Derivatives of e^(hz²/2), and of m' = e^(gz), are polynomials
        in z times these functions.
        """
        g, h, z_itself = self.tukey_g, self.tukey_h, Polynomial((0.0, 1.0))
        tail, e, total = np.exp(0.5 * h * z * z), np.exp(g * z), 0.0
        for order in range(by_z + 1):
            if order == 0:
                along = (_expm1_over, _expm1_over_slope, _expm1_over_bend)[by_g]
                skewed = z ** (by_g + 1) * along(g * z)
            else:
                skewed = _derivative(z_itself**by_g, Polynomial((g,)), order - 1)(z) * e
            tails = _derivative((z_itself**2 / 2) ** by_h, h * z_itself, by_z - order)(z) * tail
            total = total + comb(by_z, order) * skewed * tails
        return total

    def transform(self, values: Floats) -> Floats:
        """Return z by Newton's method, safeguarded by bisection."""
        g, h = self.tukey_g, self.tukey_h
        x = (np.asarray(values, dtype=np.float64) - self.centre) / self.scale
        low, high = np.full(x.shape, -1.0), np.full(x.shape, 1.0)
        with np.errstate(all="ignore"):
            for _ in range(60):
                short = self._tau(high) < x, self._tau(low) > x
                if not (short[0] | short[1]).any():
                    break
                high, low = np.where(short[0], 2 * high, high), np.where(short[1], 2 * low, low)
            z = np.clip(x, low, high)
            for _ in range(100):
                m, tail = z * _expm1_over(g * z), np.exp(0.5 * h * z * z)
                tau, slope = m * tail, (np.exp(g * z) + h * z * m) * tail
                low, high = np.where(tau <= x, z, low), np.where(tau >= x, z, high)
                moved = z - (tau - x) / slope
                inside = (moved >= low) & (moved <= high)
                moved = np.where(inside, moved, 0.5 * (low + high))
                done = np.abs(moved - z) <= 4e-16 * np.maximum(np.abs(z), 1e-8)
                z = moved
                if done.all():
                    break
        # without tails values may be beyond the end of the distribution
        return np.where(short[0], np.inf, np.where(short[1], -np.inf, z))

    def inverse(self, z: Floats) -> Floats:
        """Return c + s τ(z)."""
        with np.errstate(over="ignore"):
            return self.centre + self.scale * self._tau(np.asarray(z, dtype=np.float64))

    def log_jacobian(self, values: Floats) -> Floats:
        """Return -log(s τ'(z))."""
        return -np.log(self.scale * self._tau(self.transform(values), 1))

    @property
    def moment_rule(self) -> str:
        """Which moments exist."""
        h = self.tukey_h
        words = (
            f"at a Tukey h of {h:.3g} the k-th moment is infinite where k·h·var(z) is at least 1"
        )
        return words if h else ""

    def moment_order(self, variance: Floats) -> Floats:
        """Return 1/(hσ²)."""
        with np.errstate(divide="ignore"):
            return 1.0 / (self.tukey_h * np.asarray(variance, dtype=np.float64))

    def moments(self, mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
        """Return mean and variance, by closed forms.

        E f(Z) exp(bZ²/2) is a multiple of a mean of f under another normal distribution.
        """
        m, v = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in (mean, variance)))
        _, second = super().moments(m, v)
        one, _ = self._tilted(m, v, self.tukey_h)
        _, two = self._tilted(m, v, 2 * self.tukey_h)
        with np.errstate(invalid="ignore"):
            wide = two - one**2
            # where the difference of two moments keeps 10 digits
            exact = ~(wide < 1e-6 * two)
            centred = np.where(exact, wide, second / self.scale**2)
        centred = np.where(np.isinf(two) | np.isinf(one), np.inf, centred)
        return self.centre + self.scale * one, self.scale**2 * centred

    def _tilted(self, m, v, b):
        """Return the means of q(Z) e^(bZ²/2) and q(Z)² e^(bZ²/2) with q(z) = (e^(gz) - 1)/g."""
        g, spare = self.tukey_g, 1 - b * v
        safe = np.where(spare > 0, spare, 1.0)
        with np.errstate(over="ignore", invalid="ignore"):
            weight = np.exp(0.5 * b * m**2 / safe) / np.sqrt(safe)
            mu, s2 = m / safe, v / safe
            exponent = g * mu + 0.5 * g * g * s2
            one = (mu + 0.5 * g * s2) * _expm1_over(exponent)
            spread = s2 * _expm1_over(g * g * s2) * np.exp(2 * g * mu + g * g * s2)
            means = weight * one, weight * (spread + one**2)
        return tuple(np.where((spare > 0) & np.isfinite(x), x, np.inf) for x in means)

    def slopes(self, values: Floats) -> tuple[Floats, Floats]:
        """Return -∂τ/τ', and -(∂τ' + τ'' ∂z)/τ', by g and by h."""
        z = self.transform(values)
        one, two = self._tau(z, 1), self._tau(z, 2)
        of_z = np.array([-self._tau(z, 0, *by) / one for by in BY_G_OR_H])
        by = np.array([self._tau(z, 1, *by) for by in BY_G_OR_H])
        return of_z, -(by + two * of_z) / one

    def bends(self, values: Floats) -> tuple[Floats, Floats]:
        """Return the second derivatives, from those of τ(z) = x and of -log τ'(z)."""
        z = self.transform(values)
        one, two, three = (self._tau(z, order) for order in (1, 2, 3))
        of_z, of_log = self.slopes(values)
        # ∂τ' and ∂τ'' by g and h, and ∂∂τ and ∂∂τ' by both, at a fixed z
        of_one, of_two = (
            np.array([self._tau(z, order, *by) for by in BY_G_OR_H]) for order in (1, 2)
        )
        of_tau, of_slope = (
            np.array([[self._tau(z, order, *np.add(a, b)) for b in BY_G_OR_H] for a in BY_G_OR_H])
            for order in (0, 1)
        )

        def along(slope, bend):
            """Return slope_j ∂_k z + slope_k ∂_j z + bend ∂_j z ∂_k z."""
            cross = slope[:, None] * of_z
            return cross + cross.swapaxes(0, 1) + bend * (of_z[:, None] * of_z)

        bends = -(of_tau + along(of_one, two)) / one
        whole = of_slope + along(of_two, three) + two * bends
        return bends, of_log[:, None] * of_log - whole / one


BY_G_OR_H = (1, 0), (0, 1)
"""Orders of the derivatives by g and by h."""


def _derivative(polynomial, slope, order):
    """Return the polynomial q with (p e^s)^(order) = q e^s, given p and s'."""
    for _ in range(order):
        polynomial = polynomial.deriv() + slope * polynomial
    return polynomial


def _expm1_over_slope(u):
    """Return the derivative (e^u(u - 1) + 1)/u² of (e^u - 1)/u."""
    small, safe = _split(u)
    return np.where(small, _moment(u, 1), (np.exp(safe) * (safe - 1) + 1) / safe**2)


def _expm1_over_bend(u):
    """Return the second derivative (e^u(u² - 2u + 2) - 2)/u³ of (e^u - 1)/u."""
    small, safe = _split(u)
    far = (np.exp(safe) * (safe**2 - 2 * safe + 2) - 2) / safe**3
    return np.where(small, _moment(u, 2), far)


def _split(u):
    """Return whether |u| < 1, where the formulas lose digits, and u elsewhere."""
    small = np.abs(u) < 1.0
    return small, np.where(small, 1.0, u)


def _moment(u, power):
    """Return the integral of t^p e^(ut) from 0 to 1, Σ u^k/(k!(k + p + 1)), for |u| < 1."""
    u = np.where(np.abs(u) < 1.0, u, 0.0)
    series, term = np.zeros_like(u), np.ones_like(u)
    for k in range(20):
        series += term / (k + power + 1)
        term = term * u / (k + 1)
    return series


def _open_box(parameter):
    """Return a finite box inside the limits of a parameter, around its declared value."""
    low, high = parameter.lower, parameter.upper
    wide = 1e3 * max(abs(parameter.value), 1.0)
    low = max(low, parameter.value - wide)
    high = min(high, parameter.value + wide)
    if parameter.transform == "log":
        low = max(low, 1e-3 * parameter.value)
    return low + 1e-9 * (high - low), high


@dataclass(frozen=True)
class ByVariable(Transformation):
    """Transformations of several variables: one for each.

    What a function of values returns is in the order of the variables' numbers that `of` was given.

    Parameters
    ----------
    transforms : tuple of Transformation, str or None
        That of each variable; None leaves its values as they are.

    Examples
    --------
    >>> both = ByVariable(("log", None))
    >>> both.of(np.array([0, 1])).transform(np.array([np.e, 2.0])).tolist()
    [1.0, 2.0]
    """

    transforms: tuple[Transformation, ...]
    variable: Whole | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        each = tuple(transformation(one) or Transformation() for one in self.transforms)
        object.__setattr__(self, "transforms", each)

    @property
    def name(self) -> str:
        """The name, or the names in the order of the variables where they differ."""
        names = [one.name for one in self.transforms]
        return names[0] if len(set(names)) == 1 else ", ".join(names)

    @property
    def declared(self) -> tuple[Parameter, ...]:
        """The parameters of all variables, such as `boxcox_power_2`."""
        return _declared_of(tuple(one.declared for one in self.transforms))

    @property
    def support(self) -> tuple[Floats, Floats]:
        """The values that can be measured lie between these, each (n,)."""
        return tuple(np.array([one.support for one in self.transforms])[self.variable].T)

    @property
    def moment_rule(self) -> str:
        """Which moments are infinite, in words for a warning; empty if none is."""
        return "; ".join(dict.fromkeys(one.moment_rule for one in self.transforms)).strip("; ")

    def parameters(self) -> dict[str, float]:
        """Return the values of the parameters by name."""
        return {p.name: getattr(self.transforms[p.where[0]], p.group) for p in self.declared}

    def constants(self) -> dict[str, float]:
        """Return the values of all numbers of the variables by name, such as `scale_2`."""
        return {
            name_of(name, (k,)): x
            for k, one in enumerate(self.transforms)
            for name, x in one.constants().items()
        }

    def with_values(self, values: Mapping[str, float]) -> Self:
        """Return the transformation with other values of its numbers; see `constants`."""
        own = [
            one.with_values(
                {n: values[name_of(n, (k,))] for n in one.constants() if name_of(n, (k,)) in values}
            )
            for k, one in enumerate(self.transforms)
        ]
        return replace(self, transforms=tuple(own))

    def of(self, variable: Whole | None) -> Transformation:
        """Return the transformation of values of these variables, by number, (n,)."""
        return replace(self, variable=np.asarray(variable))

    def of_rows(self, rows: slice | Whole) -> Transformation:
        """Return the transformation of some values: that of the variable if it is only one."""
        kept = self.variable[rows]
        one = kept[0] if len(kept) else 0
        return self.transforms[one] if (kept == one).all() else replace(self, variable=kept)

    def _by_variable(self, function, *arrays):
        """Return function(transformation, *arrays) of each variable; values are along last axes."""
        result = None
        for k, one in enumerate(self.transforms):
            rows = np.flatnonzero(self.variable == k)
            if not len(rows):
                continue
            part = np.asarray(function(one, *(np.asarray(array)[..., rows] for array in arrays)))
            if result is None:
                result = np.empty((*part.shape[:-1], len(self.variable)))
            result[..., rows] = part
        return np.zeros(0) if result is None else result

    def check(self, values: Floats) -> None:
        """Raise `InvalidInput`, with a remedy, for values that cannot be transformed."""
        for k, one in enumerate(self.transforms):
            try:
                one.check(values[self.variable == k])
            except InvalidInput as error:
                raise InvalidInput(
                    f"of the values of variable {k + 1}, whose rows are counted alone: {error} "
                    'Variables may have different transformations, ("log", None) or log,none.'
                ) from error

    def transform(self, values: Floats) -> Floats:
        """Return the values on the Gaussian scale, (n,)."""
        return self._by_variable(lambda one, y: one.transform(y), values)

    def inverse(self, z: Floats) -> Floats:
        """Return the measured values of Gaussian ones, (…, n)."""
        return self._by_variable(lambda one, y: one.inverse(y), z)

    def log_jacobian(self, values: Floats) -> Floats:
        """Return log t'(y), (n,)."""
        return self._by_variable(lambda one, y: one.log_jacobian(y), values)

    def slopes(self, values: Floats) -> tuple[Floats, Floats]:
        """Return the derivatives of t(y) and of log t'(y) by the parameters, each (k, n)."""
        result = np.zeros((2, len(self.declared), len(values)))
        for places, rows, one in self._blocks():
            result[:, places, rows] = one.slopes(values[rows])
        return result[0], result[1]

    def bends(self, values: Floats) -> tuple[Floats, Floats]:
        """Return the second derivatives of t(y) and of log t'(y), each (k, k, n)."""
        k = len(self.declared)
        result = np.zeros((2, k, k, len(values)))
        for places, rows, one in self._blocks():
            result[:, places, places, rows] = one.bends(values[rows])
        return result[0], result[1]

    def _blocks(self):
        """Yield the slice of parameters, the rows and the transformation of each variable."""
        first = 0
        for k, one in enumerate(self.transforms):
            last = first + len(one.declared)
            if last > first:
                yield slice(first, last), self.variable == k, one
            first = last

    def threshold(self, value: float) -> Floats:
        """Return the largest z with t⁻¹(z) ≤ y of each variable, (n,)."""
        return np.array([one.threshold(value) for one in self.transforms])[self.variable]

    def moment_order(self, variance: Floats) -> Floats:
        """Return q such that E|t⁻¹(Z)|^k is finite for k < q only, (n,), for normal Z."""
        return self._by_variable(lambda one, x: one.moment_order(x), variance)

    def moments(self, mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
        """Return mean and variance of t⁻¹(Z) for normal Z, each (n,)."""
        return tuple(self._by_variable(lambda one, *x: one.moments(*x), mean, variance))


@cache
def _declared_of(tables):
    """Return the parameters of the transformations of several variables."""
    return tuple(p.of((k,)) for k, table in enumerate(tables) for p in table)


@blas_threads(0)
def started(given: Transformation, values: Floats, design: Floats) -> Transformation:
    """Return a transformation with the most likely parameters for independent values about a trend.

    With r the residuals of z on the design, (n, p): ℓ = -½n log Σr² + Σ log t'(y).
    """
    if not given.declared:
        return given
    from scipy.optimize import minimize

    q, _ = np.linalg.qr(design)
    boxes, names = [p.search or _open_box(p) for p in given.declared], list(given.parameters())

    def loss(x):
        some = given.with_values(dict(zip(names, map(float, x), strict=True)))
        with np.errstate(all="ignore"):
            z = some.transform(values)
            if not np.isfinite(z).all():
                return 1e300
            rest = z - z.mean() if not q.shape[1] else z - q @ (q.T @ z)
            value = 0.5 * np.log(np.mean(rest**2)) - np.mean(some.log_jacobian(values))
        return value if np.isfinite(value) else 1e300

    first = [p.value for p in given.table]
    options = {"xatol": 1e-3, "fatol": 1e-6}
    found = minimize(loss, first, method="Nelder-Mead", bounds=boxes, options=options)
    # inside the bounds, where a search can move to both sides
    inside = [
        min(max(x, low + 1e-3 * (high - low)), high - 1e-3 * (high - low))
        for x, (low, high) in zip(found.x, boxes, strict=True)
    ]
    return given.with_values(dict(zip(names, inside, strict=True)))


TRANSFORMS = {kind.name: kind for kind in (Log, Sqrt, BoxCox, Logit, TukeyGH)}
"""Transformations by name."""


def transformation(transform):
    """Return a transformation given by name, as a class or as an instance; None for None.

    Several of them, as a tuple or a list, are those of several variables.

    Examples
    --------
    >>> transformation("log")
    Log()
    """
    if transform is None or isinstance(transform, Transformation):
        return transform
    if isinstance(transform, type) and issubclass(transform, Transformation):
        try:
            return transform()
        except TypeError as error:
            name = transform.__name__
            raise InvalidInput(
                f"`transform`: the class {name} needs arguments ({error}). Pass an instance: "
                f"transform={name}(...)."
            ) from error
    if isinstance(transform, (tuple, list)) and len(transform) > 1:
        return ByVariable(tuple(transform))
    try:
        return TRANSFORMS[transform]()
    except (KeyError, TypeError):
        raise InvalidInput(
            f"`transform` must be one of {', '.join(TRANSFORMS)}, or a gx.Transformation. Got "
            f"{transform!r:.80}.{did_you_mean(transform, TRANSFORMS)}"
        ) from None


def by_label(transform, labels):
    """Return the transformations in a dict by names of variables, in their order: None for none.

    Anything but a dict is returned as it is.

    Examples
    --------
    >>> by_label({"zinc": "log"}, ("lead", "zinc")), by_label("log", ("lead", "zinc"))
    ([None, 'log'], 'log')
    """
    if not isinstance(transform, dict):
        return transform
    unknown = sorted(set(transform) - set(labels), key=str)
    if unknown:
        raise InvalidInput(
            f"`transform` must name variables: {', '.join(labels)}. Got {unknown[0]!r:.60}."
            f"{did_you_mean(unknown[0], labels)}"
        )
    return [transform.get(label) for label in labels]
