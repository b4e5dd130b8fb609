"""Responses: distributions of a value y given η, the trend plus the field plus an offset.

Each response is a class whose `density` is the formula of its log density in jets (see `jets`): all
derivatives that Laplace's approximation and its gradient need come from it. It includes all
constants: log y!, binomial coefficients, 1/y of the log-normal. A response of your own has the same
methods, or `log_density` and `derivatives` without jets.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import scipy

from ..errors import InvalidInput, did_you_mean
from . import jets
from .jets import (
    exp,
    expit,
    gammaln,
    log,
    log1mexp,
    log1mexp_of_exp,
    log1p,
    log_ndtr,
    softplus,
)
from .parameter import RESPONSE, Parameter, Parametrized

if TYPE_CHECKING:
    from typing import Self

    from .._typing import Floats

LINKS = {
    "log": np.log,
    "logit": lambda mean: scipy.special.logit(mean),
    "probit": lambda mean: scipy.special.ndtri(mean),
    "cloglog": lambda mean: np.log(-np.log1p(-mean)),
    "identity": lambda mean: mean,
}
"""Link functions, which map the mean to η, by name."""


@dataclass(frozen=True)
class Data:
    """Values of a response, with their trials and limits, in the order of the locations.

    Attributes
    ----------
    values : (n,) array
    trials : (n,) array or None
        Numbers of trials, for `Binomial`.
    lower, upper : (n,) array or None
        Limits between which a censored value lies; equal where it is known. For `Censored`.
    """

    values: Floats
    trials: Floats | None = None
    lower: Floats | None = None
    upper: Floats | None = None

    def __len__(self):
        return len(self.values)

    def of_rows(self, rows: Floats) -> Data:
        """Return the data of some rows."""
        columns = (getattr(self, one.name) for one in fields(self))
        return Data(*(None if column is None else column[rows] for column in columns))


@dataclass(frozen=True)
class Slopes:
    """Derivatives of the log density at each of n values.

    Attributes
    ----------
    value : (n,) array
        The log density.
    eta : (3, n) array
        Its first three derivatives with respect to η.
    parameters : dict of str to (3, n) array
        For each parameter: the derivatives with respect to it of the log density and of its first
        two derivatives with respect to η.
    """

    value: Floats
    eta: Floats
    parameters: dict[str, Floats]


@dataclass(frozen=True)
class Response(Parametrized):
    """Base class of responses.

    A subclass is a frozen dataclass with a field for each declared parameter. It defines `check`,
    `density`, and either `distribution` or `mean`, `cumulative`, `quantile` and `draw`. Without
    `density` it defines `log_density` and `derivatives`.

    Attributes
    ----------
    name : str
        Name for titles, files and the command line.
    discrete : bool
        Whether values are counts.
    links : tuple of str
        The links that the field `link` may name. Without such a field, the first one is used.
    declared : tuple of Parameter
        Its parameters, with start values. Their names must differ from those of covariance
        parameters.
    noise_parameter : str
        Name of the parameter that says how much values vary about their mean; empty if there is
        none.
    latent_nugget : bool
        Whether the nugget of the field is estimated by default. It is 0 for a response with a
        dispersion parameter, and for one binary value at each place.
    atom : bool
        Whether 0 has a positive probability, and other values have a density.
    positive : bool
        Whether all values are greater than 0: the response may then be the amount of a `Hurdle`.
    transformable : bool
        Whether the values may be transformed first.
    counts_trials : bool
        Whether a value is a number of successes in trials.
    """

    name: ClassVar[str] = "response"
    discrete: ClassVar[bool] = False
    links: ClassVar[tuple[str, ...]] = ("log",)
    noise_parameter: ClassVar[str] = ""
    latent_nugget: ClassVar[bool] = False
    transformable: ClassVar[bool] = False
    atom: ClassVar[bool] = False
    positive: ClassVar[bool] = False
    counts_trials: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        link = getattr(self, "link", self.links[0])
        if link not in self.links:
            raise InvalidInput(
                f"`link` of a {self.name} response must be one of: {', '.join(self.links)}. "
                f"Got {link!r}."
            )

    @property
    def used_link(self) -> str:
        """The link's name."""
        return getattr(self, "link", self.links[0])

    @property
    def normal_noise(self) -> float | None:
        """Variance of normal values about η; None for other distributions."""
        return None

    @property
    def of_values(self) -> bool:
        """Whether η has the unit of the values, as with the identity link."""
        return self.used_link == "identity"

    def check(self, data: Data) -> None:
        """Raise `InvalidInput` for values that the response cannot have."""

    def caution(self, noisy: bool) -> str:
        """Return a warning if the approximation is not reliable, or "".

        `noisy` says whether the field has a nugget.
        """
        return ""

    def extreme(self, data: Data) -> str:
        """Say why the values leave the likelihood without a maximum, such as only zeros; or ""."""
        if self.discrete or np.ptp(data.values) > 0:
            return ""
        return (
            f"all {len(data)} values are equal: the likelihood increases without limit as their "
            "variance goes to 0."
        )

    def pulls(self, data: Data) -> Floats | None:
        """Return the sign of the changes of η that never lower a value's density, (n,); 0 for none.

        It is -1 for a count of 0, for example. None if no value has such a sign.
        """
        return None

    def guess(self, data: Data) -> Floats:
        """Return an η that suits each value, (n,); a search starts there."""
        return self.link_of(data.values)

    def started(self, data: Data) -> Self:
        """Return the response with start values of its parameters that suit the data."""
        return self

    def variance_about(self, data: Data, design: Floats, offset: Floats) -> float | None:
        """Return the variance of values about a trend, (n, p), and an offset, (n,).

        It scales start values and limits of a search. None if it is that of `guess`.
        """
        return None

    def link_of(self, mean: Floats) -> Floats:
        """Return η from the mean of a value, or the probability of a success; inverse of `mean`."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return LINKS[self.used_link](np.asarray(mean, dtype=float))

    def density(self, data, eta, **parameters):
        """Return the log density as a jet; η and the parameters are jets or numbers."""
        raise NotImplementedError

    def log_density(self, data: Data, eta: Floats) -> Floats:
        """Return the log density of each value, (n,)."""
        return self.density(data, jets.variable(eta), **self.parameters()).value

    def derivatives(self, data: Data, eta: Floats, names: tuple[str, ...] = ()) -> Slopes:
        """Return the derivatives with respect to η and to the named parameters."""
        point, known, found = jets.variable(eta), self.parameters(), {}
        plain = self.density(data, point, **known)
        for name in names:
            moved = known | {name: jets.parameter(known[name])}
            found[name] = self.density(data, point, **moved).by_parameter()
        return Slopes(plain.value, plain.slopes(), found)

    def distribution(self, data: Data, eta: Floats):
        """Return SciPy's distribution of the values."""
        raise NotImplementedError

    def mean(self, data: Data, eta: Floats) -> Floats:
        """Return the mean of a value, (n,)."""
        return self.distribution(data, eta).mean()

    def variance(self, data: Data, eta: Floats) -> Floats:
        """Return the variance of a value, (n,)."""
        return self.distribution(data, eta).var()

    def cumulative(self, data: Data, eta: Floats, at: Floats) -> Floats:
        """Return the probability that a value is at most `at`, (n,)."""
        return self.distribution(data, eta).cdf(at)

    def quantile(self, data: Data, eta: Floats, probability: Floats) -> Floats:
        """Return the smallest value whose cumulative probability is at least this, (n,)."""
        return self.distribution(data, eta).ppf(probability)

    def draw(self, data: Data, eta: Floats, random: np.random.Generator) -> Floats:
        """Return random values, (n,)."""
        return self.distribution(data, eta).rvs(size=len(eta), random_state=random).astype(float)


def _stats():
    """Return `scipy.stats`, which takes half a second to import."""
    from scipy import stats

    return stats


def _only_zeros(data):
    """Say that all counts are 0."""
    if data.values.any():
        return ""
    return f"all {len(data)} values are 0: the likelihood increases as the mean goes to 0."


def _parameter(name, value, **options):
    return Parameter(name, value, role=RESPONSE, **options)


def _whole(values, what, least=0):
    """Raise `InvalidInput` unless values are whole numbers of at least `least`."""
    wrong = ~(np.isfinite(values) & (values >= least) & (values == np.round(values)))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise InvalidInput(
            f"{what} must be whole numbers of at least {least}. Got {values[row]:g} in row "
            f"{row + 1}."
        )


def _within(values, what, allowed, words):
    """Raise `InvalidInput` where values are not allowed, or not finite."""
    allowed = allowed & np.isfinite(values)
    if not allowed.all():
        row = int(np.flatnonzero(~allowed)[0])
        raise InvalidInput(f"{what} need {words}. Got {values[row]:g} in row {row + 1}.")


def _poisson(at, mean):
    """Return the probability that a Poisson number is at most `at`."""
    at = np.floor(at)
    return np.where(at < 0, 0.0, scipy.special.pdtr(np.maximum(at, 0), mean))


LARGEST_SIZE = 1e7
"""Largest size of a negative binomial in a search; beyond it rounding hides its effect."""

# Counts


@dataclass(frozen=True)
class Poisson(Response):
    """Counts with mean exp(η).

    Examples
    --------
    The log density of 2 with mean 1, and its first derivatives, y - μ, -μ and -μ:

    >>> found = Poisson().derivatives(Data(np.array([2.0])), np.array([0.0]))
    >>> bool(np.isclose(found.value[0], -1 - np.log(2))), found.eta[:, 0].tolist()
    (True, [1.0, -1.0, -1.0])
    """

    name = "poisson"
    discrete = True
    latent_nugget = True

    def guess(self, data):
        """See `Response.guess`."""
        return np.log(data.values + 0.5)

    def pulls(self, data):
        """See `Response.pulls`."""
        return -(data.values == 0).astype(float)

    def extreme(self, data):
        """See `Response.extreme`."""
        return _only_zeros(data)

    def check(self, data):
        """See `Response.check`."""
        _whole(data.values, "Poisson responses")

    def density(self, data, eta):
        """See `Response.density`."""
        return eta * data.values - exp(eta) - scipy.special.gammaln(data.values + 1)

    def cumulative(self, data, eta, at):
        """See `Response.cumulative`."""
        return _poisson(at, np.exp(eta))

    def distribution(self, data, eta):
        """See `Response.distribution`."""
        return _stats().poisson(np.exp(eta))


@dataclass(frozen=True)
class Binomial(Response):
    """Numbers of successes in trials with probability p; the link is logit, probit or cloglog.

    logit p = η; p = Φ(η); or log(-log(1 - p)) = η.
    """

    link: str = "logit"

    name, links = "binomial", ("logit", "probit", "cloglog")
    discrete = True
    latent_nugget = True
    counts_trials = True

    def guess(self, data):
        """See `Response.guess`."""
        return self.link_of((data.values + 0.5) / (_trials(data) + 1))

    def pulls(self, data):
        """See `Response.pulls`."""
        return (data.values == _trials(data)) - (data.values == 0).astype(float)

    def extreme(self, data):
        """See `Response.extreme`."""
        trials = _trials(data)
        full = "1" if (trials == 1).all() else "equal to their numbers of trials"
        for end, value, wanted in ((0, "0", 0.0), (1, full, trials)):
            if (data.values == wanted).all():
                return (
                    f"all {len(data)} values are {value}: the likelihood increases as the "
                    f"probability goes to {end}."
                )
        return ""

    def check(self, data):
        """See `Response.check`."""
        trials = _trials(data)
        _whole(trials, "Trials", 1)
        _whole(data.values, "Binomial responses")
        allowed = data.values <= trials
        _within(data.values, "Binomial responses", allowed, "at most as many successes as trials")

    def density(self, data, eta):
        """See `Response.density`."""
        y, trials = data.values, _trials(data)
        ways = scipy.special.gammaln(trials + 1) - scipy.special.gammaln(y + 1)
        ways = ways - scipy.special.gammaln(trials - y + 1)
        if self.link == "logit":
            return eta * y - softplus(eta) * trials + ways
        if self.link == "probit":
            return log_ndtr(eta) * y + log_ndtr(-eta) * (trials - y) + ways
        return log1mexp_of_exp(eta) * y - exp(eta) * (trials - y) + ways

    def probability(self, eta):
        """Return p, (n,)."""
        if self.link == "logit":
            return scipy.special.expit(eta)
        if self.link == "probit":
            return scipy.special.ndtr(eta)
        return -np.expm1(-np.exp(eta))

    def cumulative(self, data, eta, at):
        """See `Response.cumulative`."""
        at = np.floor(at)
        return np.where(at < 0, 0.0, _binomial(at, _trials(data), self.probability(eta)))

    def distribution(self, data, eta):
        """See `Response.distribution`."""
        return _stats().binom(_trials(data).astype(int), self.probability(eta))


class Bernoulli(Binomial):
    """0 or 1: `Binomial` with one trial each."""

    name = "bernoulli"
    latent_nugget = False
    counts_trials = False

    def check(self, data):
        """See `Response.check`."""
        _within(data.values, "Bernoulli responses", np.isin(data.values, (0, 1)), "0 or 1")


def _binomial(at, trials, p):
    """Return the probability of at most `at` successes, for at ≥ 0."""
    inside = np.clip(at, 0, trials - 1)
    return np.where(at >= trials, 1.0, scipy.special.betainc(trials - inside, inside + 1, 1 - p))


def _trials(data):
    return np.ones(len(data)) if data.trials is None else data.trials


@dataclass(frozen=True)
class NegativeBinomial(Response):
    """Counts with mean μ = exp(η) and variance μ + μ²/size."""

    size: float = 1.0

    name = "negative-binomial"
    noise_parameter = "size"
    declared = (_parameter("size", 1.0, search=(1e-3, LARGEST_SIZE)),)
    discrete = True

    def guess(self, data):
        """See `Response.guess`."""
        return np.log(data.values + 0.5)

    def pulls(self, data):
        """See `Response.pulls`."""
        return -(data.values == 0).astype(float)

    def extreme(self, data):
        """See `Response.extreme`."""
        return _only_zeros(data)

    def check(self, data):
        """See `Response.check`."""
        _whole(data.values, "Negative binomial responses")

    def density(self, data, eta, size):
        """See `Response.density`."""
        y = data.values
        above = eta - log(size)
        rising = gammaln(size + y) - gammaln(size)
        return rising - scipy.special.gammaln(y + 1) + above * y - softplus(above) * (size + y)

    def cumulative(self, data, eta, at):
        """See `Response.cumulative`."""
        at, share = np.floor(at), self.size / (self.size + np.exp(eta))
        return np.where(at < 0, 0.0, scipy.special.betainc(self.size, np.maximum(at, 0) + 1, share))

    def distribution(self, data, eta):
        """See `Response.distribution`."""
        return _stats().nbinom(self.size, self.size / (self.size + np.exp(eta)))


@dataclass(frozen=True)
class ZeroInflatedPoisson(Response):
    """0 with probability `zeros`, else a Poisson count with mean exp(η)."""

    zeros: float = 0.2

    name = "zero-inflated-poisson"
    declared = (_parameter("zeros", 0.2, upper=1.0, search=(1e-4, 0.9999)),)
    discrete = True
    latent_nugget = True

    def guess(self, data):
        """See `Response.guess`."""
        return np.log(data.values + 0.5)

    def extreme(self, data):
        """See `Response.extreme`."""
        return _only_zeros(data)

    def check(self, data):
        """See `Response.check`."""
        _whole(data.values, "Zero-inflated Poisson responses")

    def density(self, data, eta, zeros):
        """See `Response.density`."""
        y, odds, mean = data.values, log(zeros / (1.0 - zeros)), exp(eta)
        counted = eta * y - mean - scipy.special.gammaln(y + 1)
        # log(e^odds + e^-mean) at 0
        return jets.chosen(y == 0, softplus(odds + mean) - mean, counted) - softplus(odds)

    def link_of(self, mean):
        """See `Response.link_of`."""
        return super().link_of(np.asarray(mean) / (1 - self.zeros))

    def mean(self, data, eta):
        """See `Response.mean`."""
        return (1 - self.zeros) * np.exp(eta)

    def variance(self, data, eta):
        """See `Response.variance`."""
        mean = np.exp(eta)
        return (1 - self.zeros) * mean * (1 + self.zeros * mean)

    def cumulative(self, data, eta, at):
        """See `Response.cumulative`."""
        counted = (1 - self.zeros) * _stats().poisson.cdf(at, np.exp(eta))
        return np.where(np.asarray(at) < 0, 0.0, self.zeros + counted)

    def quantile(self, data, eta, probability):
        """See `Response.quantile`."""
        rest = (np.asarray(probability) - self.zeros) / (1 - self.zeros)
        return _stats().poisson.ppf(np.maximum(rest, 0.0), np.exp(eta)).clip(0)

    def draw(self, data, eta, random):
        """See `Response.draw`."""
        counted = random.random(len(eta)) >= self.zeros
        return counted * random.poisson(np.exp(eta)).astype(float)


@dataclass(frozen=True)
class TruncatedPoisson(Response):
    """Counts of at least 1: Poisson with parameter exp(η), given that the count is not 0."""

    name = "truncated-poisson"
    discrete = positive = True
    latent_nugget = True

    def guess(self, data):
        """See `Response.guess`."""
        return np.log(data.values - 0.5)

    def pulls(self, data):
        """See `Response.pulls`."""
        return -(data.values == 1).astype(float)

    def extreme(self, data):
        """See `Response.extreme`."""
        if (data.values > 1).any():
            return ""
        return f"all {len(data)} values are 1: the likelihood increases as the mean goes to 1."

    def link_of(self, mean):
        """See `Response.link_of`."""
        mean = np.asarray(mean, dtype=float)
        # μ of μ/(1 - exp(-μ)), by Newton's method from above
        found = np.maximum(mean, 1e-300)
        for _ in range(60):
            rest = -np.expm1(-found)
            slope = (rest - found * np.exp(-found)) / rest**2
            found = np.maximum(found - (found / rest - mean) / slope, found / 4)
        with np.errstate(divide="ignore"):
            return np.where(mean > 1, np.log(found), -np.inf)

    def check(self, data):
        """See `Response.check`."""
        _whole(data.values, "Truncated Poisson responses", 1)

    def density(self, data, eta):
        """See `Response.density`."""
        rest = exp(eta) + log1mexp_of_exp(eta)
        return eta * data.values - rest - scipy.special.gammaln(data.values + 1)

    def mean(self, data, eta):
        """See `Response.mean`."""
        return np.exp(eta) / -np.expm1(-np.exp(eta))

    def variance(self, data, eta):
        """See `Response.variance`."""
        mean = self.mean(data, eta)
        return np.maximum(mean * (1 + np.exp(eta) - mean), 0.0)

    def cumulative(self, data, eta, at):
        """See `Response.cumulative`."""
        mean, at = np.exp(eta), np.floor(at)
        zeros, count = np.exp(-mean), np.maximum(at, 1)
        # of small means 1 - exp(-μ) has few digits, of large ones the probability of more than `at`
        above = scipy.special.gammainc(count + 1, mean) / -np.expm1(-np.maximum(mean, 1e-300))
        with np.errstate(invalid="ignore", divide="ignore"):
            large = (_poisson(at, mean) - zeros) / (1 - zeros)
        return np.where(at < 1, 0.0, np.where(mean < 1, 1 - above, large)).clip(0)

    def quantile(self, data, eta, probability):
        """See `Response.quantile`."""
        zeros = np.exp(-np.exp(eta))
        inside = zeros + (1 - zeros) * np.asarray(probability)
        found = _stats().poisson.ppf(inside, np.exp(eta)).clip(1)
        # rounding hides a mean near 0
        few = np.exp(eta) < 1e-6
        two = probability > self.cumulative(data, eta, np.ones_like(eta, dtype=float))
        return np.where(few, np.where(two, 2.0, 1.0), found)

    def draw(self, data, eta, random):
        """See `Response.draw`."""
        return self.quantile(data, eta, random.random(len(eta)))


# Positive values and proportions


@dataclass(frozen=True)
class Gamma(Response):
    """Positive values with mean exp(η) and variance mean²/gamma_shape."""

    gamma_shape: float = 1.0

    name = "gamma"
    positive = True
    noise_parameter = "gamma_shape"
    declared = (_parameter("gamma_shape", 1.0, search=(1e-3, 1e6)),)

    def check(self, data):
        """See `Response.check`."""
        _within(data.values, "Gamma responses", data.values > 0, "positive values")

    def density(self, data, eta, gamma_shape):
        """See `Response.density`."""
        y, shape = data.values, gamma_shape
        rest = shape * log(shape) - gammaln(shape) + (shape - 1.0) * np.log(y)
        return rest - shape * (eta + exp(-eta) * y)

    def cumulative(self, data, eta, at):
        """See `Response.cumulative`."""
        scaled = self.gamma_shape * np.maximum(at, 0.0) * np.exp(-eta)
        return scipy.special.gammainc(self.gamma_shape, scaled)

    def distribution(self, data, eta):
        """See `Response.distribution`."""
        return _stats().gamma(self.gamma_shape, scale=np.exp(eta) / self.gamma_shape)


@dataclass(frozen=True)
class LogNormal(Response):
    """Positive values with mean exp(η), whose logarithm is normal with the given variance."""

    log_variance: float = 1.0

    name = "log-normal"
    positive = True
    noise_parameter = "log_variance"
    declared = (_parameter("log_variance", 1.0),)

    def check(self, data):
        """See `Response.check`."""
        _within(data.values, "Log-normal responses", data.values > 0, "positive values")

    def density(self, data, eta, log_variance):
        """See `Response.density`."""
        logs = np.log(data.values)
        step = logs - eta + log_variance * 0.5
        return -0.5 * (step * step / log_variance + log(log_variance * (2 * np.pi))) - logs

    def distribution(self, data, eta):
        """See `Response.distribution`."""
        return _stats().lognorm(
            np.sqrt(self.log_variance), scale=np.exp(eta - self.log_variance / 2)
        )


@dataclass(frozen=True)
class Beta(Response):
    """Proportions in (0, 1) with mean μ = 1/(1 + exp(-η)) and variance μ(1 - μ)/(1 + precision)."""

    precision: float = 1.0

    name, links = "beta", ("logit",)
    positive = True
    noise_parameter = "precision"
    declared = (_parameter("precision", 1.0, search=(1e-3, 1e6)),)

    def check(self, data):
        """See `Response.check`."""
        inside = (data.values > 0) & (data.values < 1)
        _within(data.values, "Beta responses", inside, "proportions between 0 and 1")

    def density(self, data, eta, precision):
        """See `Response.density`."""
        y, a, b = data.values, expit(eta) * precision, expit(-eta) * precision
        rest = (a - 1.0) * np.log(y) + (b - 1.0) * np.log1p(-y)
        return rest + gammaln(precision) - gammaln(a) - gammaln(b)

    def mean(self, data, eta):
        """See `Response.mean`."""
        return scipy.special.expit(eta)

    def distribution(self, data, eta):
        """See `Response.distribution`."""
        mean = scipy.special.expit(eta)
        return _stats().beta(mean * self.precision, (1 - mean) * self.precision)


@dataclass(frozen=True)
class StudentT(Response):
    """Values with heavy tails: η plus `scale` times Student's t."""

    scale: float = 1.0
    degrees_of_freedom: float = 4.0

    name, links = "student-t", ("identity",)
    noise_parameter = "scale"
    declared = (
        _parameter("scale", 1.0, unit="value"),
        _parameter("degrees_of_freedom", 4.0, starts=(1.0,)),
    )
    latent_nugget = True

    def caution(self, noisy):
        """See `Response.caution`."""
        if noisy:
            return ""
        return (
            "Laplace's approximation for Student's t is not reliable where the field has no "
            "nugget: the log-likelihood may be far too high. Hold the nugget at a small positive "
            "value, or compare with a Gaussian fit by cross-validation."
        )

    def started(self, data):
        """See `Response.started`."""
        middle = np.median(data.values)
        return replace(self, scale=max(float(np.median(abs(data.values - middle))), 1e-12) / 2)

    def check(self, data):
        """See `Response.check`."""
        _within(data.values, "Student's t responses", True, "finite values")

    def density(self, data, eta, scale, degrees_of_freedom):
        """See `Response.density`."""
        step, half = (data.values - eta) / scale, (degrees_of_freedom + 1.0) * 0.5
        rest = (
            gammaln(half)
            - gammaln(degrees_of_freedom * 0.5)
            - log(scale)
            - 0.5 * log(degrees_of_freedom * np.pi)
        )
        return rest - half * log1p(step * step / degrees_of_freedom)

    def distribution(self, data, eta):
        """See `Response.distribution`."""
        return _stats().t(self.degrees_of_freedom, loc=eta, scale=self.scale)


CENSORED_SPREADS = -0.5, 5.0
"""Logarithms of the least and the largest variance of censored values, in units of the variance
where they are at their limits."""

INTEGRALS = "laplace", "exact"
"""How the likelihood of censored values is computed."""


@dataclass(frozen=True)
class Censored(Response):
    """Normal values with mean η, of which some are known only to lie between limits.

    The likelihood is Laplace's approximation; with ``integral="exact"`` it is the integral over the
    censored values, for up to 100 of them.
    """

    error_variance: float = 1.0
    integral: str = "laplace"

    name, links = "censored", ("identity",)
    transformable = True
    noise_parameter = "error_variance"
    declared = (_parameter("error_variance", 1.0, unit="value²", search=(0.02, 1e3)),)

    @property
    def table(self):
        """See `Parametrized.table`; Laplace's approximation fails where errors are smaller."""
        if self.integral == "laplace":
            return super().table
        return tuple(replace(parameter, search=None) for parameter in super().table)

    def extreme(self, data):
        """See `Response.extreme`."""
        lower, upper = _limits(data)
        if (lower == upper).any():
            return ""
        return (
            f"all {len(data)} values are censored: no value tells how much the field varies, and "
            "the likelihood may have no maximum."
        )

    def started(self, data):
        """See `Response.started`."""
        return replace(self, error_variance=max(0.2 * float(np.var(data.values)), 1e-300))

    def variance_about(self, data, design, offset):
        """See `Response.variance_about`; by maximum likelihood, as if values were independent."""
        lower, upper = _limits(data)
        known = lower == upper
        if known.all() or known.sum() <= design.shape[1] + 1:
            return None
        # columns of order 1
        q, n = design, len(data)
        if q.shape[1]:
            q = np.linalg.qr(design / np.abs(design).max(axis=0))[0] * np.sqrt(n)
        z = data.values - offset
        unit = float(np.sqrt(np.mean((z - q @ (q.T @ z) / n) ** 2))) or 1.0
        ends = (lower - offset) / unit, (upper - offset) / unit
        scaled = Data(z / unit, None, *ends)

        def descent(x):
            response = replace(self, error_variance=float(np.exp(x[-1])))
            slopes = response.derivatives(scaled, q @ x[:-1], ("error_variance",))
            direct = slopes.parameters["error_variance"][0].sum() * response.error_variance
            return -slopes.value.sum(), -np.append(q.T @ slopes.eta[0], direct)

        start = np.append(q.T @ scaled.values / n, 0.0)
        bounds = [(None, None)] * (len(start) - 1) + [CENSORED_SPREADS]
        found = scipy.optimize.minimize(descent, start, jac=True, method="L-BFGS-B", bounds=bounds)
        return float(np.exp(found.x[-1])) * unit**2

    def __post_init__(self):
        super().__post_init__()
        if self.integral not in INTEGRALS:
            raise InvalidInput(
                f"`integral` must be one of: {', '.join(INTEGRALS)}. Got {self.integral!r}."
            )

    @property
    def normal_noise(self):
        """See `Response.normal_noise`."""
        return self.error_variance

    def check(self, data):
        """See `Response.check`."""
        lower, upper = _limits(data)
        # values below or above a limit, or between two
        bounded = np.isfinite(lower) | ((lower < upper) & ~np.isnan(lower))
        allowed = bounded & (lower <= upper) & (np.isfinite(upper) | (lower < upper))
        shown = np.where(np.isfinite(lower), lower, upper)
        words = "to be at most the upper ones, with one of each pair finite"
        _within(shown, "Lower limits", allowed, words)

    def density(self, data, eta, error_variance):
        """See `Response.density`."""
        lower, upper = _limits(data)
        known, size = lower == upper, exp(0.5 * log(error_variance))
        step = (np.where(known, lower, 0.0) - eta) / size
        exact = -0.5 * (step * step) - log(size * np.sqrt(2 * np.pi))
        return jets.chosen(known, exact, _log_between(lower, upper, eta, size))

    def distribution(self, data, eta):
        """See `Response.distribution`."""
        return _stats().norm(eta, np.sqrt(self.error_variance))


def _limits(data):
    """Return the lower and upper limits of values."""
    return (data.values,) * 2 if data.lower is None else (data.lower, data.upper)


def _log_between(lower, upper, eta, size):
    """Return log(Φ((u - η)/s) - Φ((l - η)/s)) as a jet; an arbitrary number where u = l."""
    # intervals above η are reflected: below it differences of log Φ keep their digits
    with np.errstate(invalid="ignore"):
        flipped = (lower + upper) / 2 > eta.value
    sign = np.where(flipped, -1.0, 1.0)
    low, high = np.where(flipped, -upper, lower), np.where(flipped, -lower, upper)
    open_below, open_above, point = np.isneginf(low), np.isposinf(high), lower == upper

    def below(end, absent):
        return log_ndtr((np.where(absent, 0.0, end) - eta * sign) / size)

    above, under = below(high, open_above | point), below(low, open_below | point)
    gap = jets.chosen(open_below | open_above | point, 1.0, above - under)
    found = jets.chosen(open_below, above, above + log1mexp(gap))
    # a lower limit alone
    alone = log_ndtr((eta * sign - np.where(open_below | point, 0.0, low)) / size)
    return jets.chosen(open_above, jets.chosen(open_below, 0.0, alone), found)


@dataclass(frozen=True)
class Tweedie(Response):
    """0 or a positive value: the sum of a Poisson number of gamma amounts, with mean μ = exp(η).

    The variance is dispersion·μᵖ, with 1.01 ≤ p ≤ 1.99. The density of positive values is a
    series (Dunn and Smyth 2005, Stat. Comput. 15:267).
    """

    dispersion: float = 1.0
    tweedie_power: float = 1.5

    name = "tweedie"
    noise_parameter = "dispersion"
    atom = True
    declared = (
        _parameter("dispersion", 1.0, search=(1e-12, 1e12)),
        _parameter("tweedie_power", 1.5, transform="identity", lower=1.01, upper=1.99, closed=True),
    )

    def guess(self, data):
        """See `Response.guess`."""
        return np.log(np.maximum(data.values, 0.1 * float(data.values.mean()) or 1.0))

    def pulls(self, data):
        """See `Response.pulls`."""
        return -(data.values == 0).astype(float)

    def started(self, data):
        """See `Response.started`."""
        # its unit is that of the values to the power 2 - p
        mean = max(float(data.values.mean()), 1e-300)
        return replace(self, dispersion=min(max(mean ** (2 - self.tweedie_power), 1e-9), 1e9))

    def extreme(self, data):
        """See `Response.extreme`."""
        return _only_zeros(data) or super().extreme(data)

    def check(self, data):
        """See `Response.check`."""
        _within(data.values, "Tweedie responses", data.values >= 0, "values of at least 0")

    def density(self, data, eta, dispersion, tweedie_power):
        """See `Response.density`."""
        power = tweedie_power
        y, positive = data.values, data.values > 0
        size = exp(eta * (2.0 - power)) / (2.0 - power)
        mean = exp(eta * (1.0 - power)) / (1.0 - power) * y
        if not positive.any():
            return (mean - size) / dispersion
        # a value that is 0 has no series, and another one takes its place
        of_series = np.where(positive, y, y[positive].min())
        rest = _tweedie_series(of_series, dispersion, power) - np.log(of_series)
        return (mean - size) / dispersion + jets.chosen(positive, rest, 0.0)

    def _amounts(self, eta):
        """Return the mean number of amounts, and their shape and scale."""
        mean, p, phi = np.exp(eta), self.tweedie_power, self.dispersion
        rate = mean ** (2 - p) / (phi * (2 - p))
        return rate, (2 - p) / (p - 1), phi * (p - 1) * mean ** (p - 1)

    def mean(self, data, eta):
        """See `Response.mean`."""
        return np.exp(eta)

    def variance(self, data, eta):
        """See `Response.variance`."""
        return self.dispersion * np.exp(eta * self.tweedie_power)

    def cumulative(self, data, eta, at):
        """See `Response.cumulative`."""
        rate, shape, scale = self._amounts(np.asarray(eta, dtype=float))
        at, rate, scale = (np.ravel(x) for x in np.broadcast_arrays(at, rate, scale))
        width = AMOUNTS_SDS * np.sqrt(rate) + 20
        # far from 0 the probabilities are smooth, and every `stride`-th one is enough
        far = rate > LARGE_RATE
        stride = np.where(far, np.maximum(np.ceil(2 * width / MOST_AMOUNTS), 1.0), 1.0)
        count, last = np.where(far, np.floor(rate - width), 1.0), rate + width
        found, active = np.exp(-rate), np.arange(len(rate))
        while len(active):
            k, mean = count[active], rate[active]
            chance = np.exp(scipy.special.xlogy(k, mean) - mean - scipy.special.gammaln(k + 1))
            share = scipy.special.gammainc(k * shape, np.maximum(at[active], 0) / scale[active])
            found[active] += stride[active] * chance * share
            count[active] += stride[active]
            active = active[count[active] <= last[active]]
        found = np.where(at < 0, 0.0, found).clip(0, 1)
        return found.reshape(np.shape(eta))

    def quantile(self, data, eta, probability):
        """See `Response.quantile`."""
        eta = np.asarray(eta, dtype=float)
        wanted = np.broadcast_to(np.asarray(probability, dtype=float), eta.shape)
        low, high = np.zeros_like(eta), np.exp(eta)
        while (short := self.cumulative(data, eta, high) < wanted).any():
            high = np.where(short, 2 * high, high)
        for _ in range(60):
            middle = (low + high) / 2
            short = self.cumulative(data, eta, middle) < wanted
            low, high = np.where(short, middle, low), np.where(short, high, middle)
        return np.where(wanted <= self.cumulative(data, eta, 0.0 * eta), 0.0, high)

    def draw(self, data, eta, random):
        """See `Response.draw`."""
        rate, shape, scale = self._amounts(eta)
        counts = random.poisson(rate)
        amounts = random.gamma(np.where(counts > 0, counts * shape, 1.0), scale)
        return np.where(counts > 0, amounts, 0.0)


AMOUNTS_SDS, MOST_AMOUNTS, LARGE_RATE = 9.0, 200, 150.0
"""Sums over a Poisson number of amounts reach so many standard deviations from its mean. Where the
mean is above the last of these, only about so many numbers are summed, at equal steps."""

TERMS_BESIDE_THE_LARGEST = 9.0
"""Terms of a series are summed up to so many standard deviations from the largest one: the rest is
below e⁻⁴⁰ of it."""


def _tweedie_series(y, dispersion, power):
    """Return log Σ_j W_j as a jet, for positive values y, (n,).

    With a = (2 - p)/(p - 1):
    log W_j = j (a log(y/(p - 1)) - (1 + a) log φ - log(2 - p)) - log j! - log Γ(ja).
    """
    phi, p = (each.value[0] if isinstance(each, jets.Jet) else each for each in (dispersion, power))
    a = (2 - p) / (p - 1)
    slope = a * np.log(y / (p - 1)) - (1 + a) * np.log(phi) - np.log(2 - p)
    # where the derivative by j vanishes, for large j
    largest = np.maximum(y ** (2 - p) / (phi * (2 - p)), 1.0)
    width = TERMS_BESIDE_THE_LARGEST * np.sqrt(largest / (1 + a)) + TERMS_BESIDE_THE_LARGEST
    first = np.maximum(np.floor(largest - width), 1.0)
    j = first[:, None] + np.arange(int(np.max(largest + width - first)) + 2)
    terms = j * slope[:, None] - scipy.special.gammaln(j + 1) - scipy.special.gammaln(j * a)
    value = scipy.special.logsumexp(terms, axis=1)
    weights = np.exp(terms - value[:, None])
    found = jets.constant(value)
    for number, moved in ((dispersion, "dispersion"), (power, "power")):
        if not isinstance(number, jets.Jet):
            continue
        if moved == "dispersion":
            change = -(1 + a) / phi * j
        else:
            by_a = np.log(y / (p - 1))[:, None] - np.log(phi) - scipy.special.psi(j * a)
            change = j * (-by_a / (p - 1) ** 2 - a / (p - 1) + 1 / (2 - p))
        coefficients = np.concatenate((found.coefficients, 0.0 * found.coefficients))
        coefficients[1, 0] = (weights * change).sum(axis=1)
        found = jets.Jet(coefficients)
    return found


RESPONSES = {
    kind.name: kind
    for kind in (
        Poisson,
        NegativeBinomial,
        ZeroInflatedPoisson,
        TruncatedPoisson,
        Bernoulli,
        Binomial,
        Gamma,
        LogNormal,
        Tweedie,
        Beta,
        StudentT,
        Censored,
    )
}
"""Responses by name."""

GAUSSIAN = "gaussian"
"""Name of Gaussian values, which need no response."""

HURDLE = "hurdle"
"""Name of the response with a model of presence and one of amount."""


@dataclass(frozen=True)
class Hurdle:
    """Values that are 0 or positive, with two independent models: of presence and of amount.

    It is not a `Response`, which has one field: the presence of a value other than 0, and its
    amount where it is present, each have a field, a trend and parameters. See `geomxp.HurdleFit`.

    Parameters
    ----------
    amount : str or Response, optional
        Distribution of the values that are not 0: "truncated-poisson", "gamma", "log-normal",
        "beta", or a response with `positive`. If not given, the truncated Poisson distribution for
        whole numbers and the gamma distribution for others.
    link : {"logit", "probit", "cloglog"}
        Link of the probability that a value is not 0. With "cloglog" the offsets and exposures of
        the observations act on both models: log(-log(1 - p)) and the logarithm of the amount's
        mean.

    Examples
    --------
    >>> Hurdle().amount_of(np.array([0.0, 2.0])), Hurdle("gamma").amount_of(np.array([0.0, 2.0]))
    (TruncatedPoisson(), Gamma(gamma_shape=1.0))
    """

    amount: str | Response | None = None
    link: str = "logit"

    name: ClassVar[str] = HURDLE

    def __post_init__(self) -> None:
        Bernoulli(self.link)
        known = [name for name, kind in RESPONSES.items() if kind.positive]
        kind = RESPONSES.get(self.amount) if isinstance(self.amount, str) else self.amount
        if not (self.amount is None or getattr(kind, "positive", False)):
            raise InvalidInput(
                f"`amount` of a hurdle must be a response for positive values: {', '.join(known)}. "
                f"Got {self.amount!r:.80}.{did_you_mean(self.amount, known)}"
            )

    def amount_of(self, values: Floats) -> Response:
        """Return the response of the values that are not 0, chosen by them if it is not given."""
        if self.amount is not None:
            return response_of(self.amount)
        return TruncatedPoisson() if (values == np.round(values)).all() else Gamma()


def hurdle_of(response: object) -> Hurdle | None:
    """Return a hurdle given by name, as a class or as an instance; None for anything else."""
    if (isinstance(response, str) and response == HURDLE) or response is Hurdle:
        return Hurdle()
    return response if isinstance(response, Hurdle) else None


def response_of(response: Response | type[Response] | str | None) -> Response | None:
    """Return a response given by name, as a class or as an instance; None for Gaussian values.

    Examples
    --------
    >>> response_of("poisson"), response_of("gaussian")
    (Poisson(), None)
    """
    if response is None or isinstance(response, Response):
        return response
    if isinstance(response, type) and issubclass(response, Response):
        return response()
    if isinstance(response, str) and response == GAUSSIAN:
        return None
    if hurdle_of(response) is not None:
        raise InvalidInput(
            "a hurdle has two models, of presence and of amount: fit it with gx.fit(observations, "
            'response="hurdle") (geomxp fit --response hurdle), or give the response of one model.'
        )
    try:
        return RESPONSES[response]()
    except (KeyError, TypeError):
        raise InvalidInput(
            f"`response` must be one of {GAUSSIAN}, {', '.join(RESPONSES)}, or a response of "
            f"gx.responses. Got {response!r:.80}.{did_you_mean(response, RESPONSES)}"
        ) from None
