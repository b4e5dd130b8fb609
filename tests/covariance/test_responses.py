from dataclasses import replace

import mpmath
import numpy as np
import pytest
from scipy import integrate, stats

from geomxp import InvalidInput
from geomxp.covariance import responses
from geomxp.covariance.responses import Data

N = 60


def counts(mean):
    return np.random.default_rng(3).poisson(mean).astype(float)


def cases():
    """Return {name: (response, data)} for values near η, (N,)."""
    random, eta = np.random.default_rng(1), at()
    mean, trials = np.exp(eta), random.integers(1, 9, N).astype(float)
    some = random.binomial(trials.astype(int), 0.4).astype(float)
    positive = random.gamma(2.0, 1.0, N)
    zeros = random.random(N) < 0.3
    lower = random.normal(0.0, 1.0, N)
    upper = lower + random.random(N)
    kind = np.arange(N) % 5
    lower, upper = np.where(kind == 0, -np.inf, lower), np.where(kind == 1, np.inf, upper)
    upper = np.where(kind == 2, lower, upper)
    # far from η, on both sides
    lower[3::10], upper[3::10] = 6.0, 6.5
    lower[8::10], upper[8::10] = -9.0, -8.5
    limits = Data(np.zeros(N), lower=lower, upper=upper)
    return {
        "poisson": (responses.Poisson(), Data(counts(mean))),
        "bernoulli": (responses.Bernoulli(), Data((some > 1).astype(float))),
        **{
            f"binomial, {link}": (responses.Binomial(link), Data(some, trials=trials))
            for link in responses.Binomial.links
        },
        "negative-binomial": (responses.NegativeBinomial(2.2), Data(counts(mean))),
        "zero-inflated": (responses.ZeroInflatedPoisson(0.2), Data(counts(mean) * ~zeros)),
        "truncated": (responses.TruncatedPoisson(), Data(1.0 + counts(mean))),
        "gamma": (responses.Gamma(2.7), Data(positive)),
        "log-normal": (responses.LogNormal(0.3), Data(positive)),
        "beta": (responses.Beta(7.0), Data(random.beta(2.0, 2.0, N))),
        "student-t": (responses.StudentT(0.45, 4.0), Data(random.normal(0.0, 2.0, N))),
        "censored": (responses.Censored(0.5), limits),
        "tweedie": (responses.Tweedie(0.9, 1.4), Data(np.where(zeros, 0.0, positive))),
    }


def at():
    return np.random.default_rng(2).normal(0.0, 1.0, N)


CASES = pytest.mark.parametrize("name", cases())


@CASES
def test_derivatives_are_those_of_the_density(name):
    response, data = cases()[name]
    eta, names = at(), tuple(response.parameters())
    response.check(data)
    found = response.derivatives(data, eta, names)
    np.testing.assert_array_equal(found.value, response.log_density(data, eta))
    assert np.isfinite(found.eta).all()
    h = 1e-3

    def difference(of):
        """Of seven points, exact to the sixth order."""
        weights = np.array([-1, 9, -45, 0, 45, -9, 1]) / 60
        parts = (w * of(k) for k, w in zip(range(-3, 4), weights, strict=True))
        return sum(parts)

    levels = [
        lambda r, e: r.derivatives(data, e).value,
        *(lambda r, e, k=k: r.derivatives(data, e).eta[k] for k in range(2)),
    ]
    for order, level in enumerate(levels):
        slope = difference(lambda k, level=level: level(response, eta + k * h)) / h
        size = 1e-8 * (1 + np.abs(slope).max())
        np.testing.assert_allclose(found.eta[order], slope, rtol=0, atol=size)
        for each in names:
            value = response.parameters()[each]
            step = h * value

            def moved(k, level=level, each=each, value=value, step=step):
                return level(replace(response, **{each: value + k * step}), eta)

            slope = difference(moved) / step
            size = 1e-8 * (1 + np.abs(slope).max())
            np.testing.assert_allclose(found.parameters[each][order], slope, rtol=0, atol=size)


@CASES
def test_probabilities_sum_to_one_and_agree_with_the_rest(name):
    response, data = cases()[name]
    if name == "censored":
        pytest.skip("a censored value has no density of its own")
    random, eta = np.random.default_rng(5), np.array([-0.8, 0.4, 1.1])
    trials = None if data.trials is None else np.full(3, 6.0)
    few = Data(np.zeros(3), trials=trials)

    def density(y):
        return np.exp(response.log_density(replace(few, values=np.full(3, float(y))), eta))

    if response.discrete:
        least = 1 if name == "truncated" else 0
        most = {"bernoulli": 1}.get(name, 6 if trials is not None else 200)
        support = np.arange(least, most + 1)
        mass = np.array([density(y) for y in support])
        np.testing.assert_allclose(mass.sum(axis=0), 1.0, rtol=1e-12)
        mean, total = support @ mass, np.cumsum(mass, axis=0)
        for k, y in enumerate(support[:8]):
            np.testing.assert_allclose(response.cumulative(few, eta, y), total[k], atol=1e-12)
        for p in (0.01, 0.5, 0.93):
            expected = support[(total >= p - 1e-12).argmax(axis=0)]
            np.testing.assert_array_equal(response.quantile(few, eta, p), expected)
    else:
        ends = {"beta": (0.0, 1.0), "student-t": (-np.inf, np.inf)}.get(name, (0.0, np.inf))
        for k in range(3):
            # a transformation with finite ends, split where densities vary most
            split = float(response.quantile(few, eta, 0.5)[k])
            parts = [(ends[0], split), (split, ends[1])]
            atom = density(0.0)[k] if name == "tweedie" else 0.0
            whole = sum(integrate.quad(lambda y, k=k: density(y)[k], *e)[0] for e in parts)
            assert whole + atom == pytest.approx(1.0, abs=1e-6)
            upper = float(response.quantile(few, eta, 0.9)[k])
            share = sum(
                integrate.quad(lambda y, k=k: density(y)[k], *e)[0]
                for e in (parts[0], (split, upper))
            )
            assert share + atom == pytest.approx(0.9, abs=1e-6)
        mean = response.mean(few, eta)
    np.testing.assert_allclose(response.mean(few, eta), mean, rtol=1e-9, atol=1e-9)
    many = Data(np.zeros(30_000), trials=None if trials is None else np.full(30_000, 6.0))
    draws = response.draw(many, np.full(30_000, 0.4), random)
    expected = response.mean(few, eta)[1]
    assert abs(draws.mean() - expected) < 5 * draws.std() / np.sqrt(30_000)
    for p in (0.25, 0.75):
        level = response.quantile(few, eta, p)[1]
        share = (draws <= level + 1e-12).mean()
        assert abs(share - response.cumulative(few, eta, level)[1]) < 0.015


def test_densities_are_scipys():
    eta = at()
    for name, (response, data) in cases().items():
        if name in ("zero-inflated", "truncated", "censored", "tweedie"):
            continue
        known = response.distribution(data, eta)
        expected = (known.logpmf if response.discrete else known.logpdf)(data.values)
        np.testing.assert_allclose(response.log_density(data, eta), expected, rtol=0, atol=1e-11)


def test_censored_values_have_the_probability_of_their_interval():
    response, data = cases()["censored"]
    eta, size = at(), np.sqrt(0.5)
    found = response.log_density(data, eta)
    for value, center, low, high in zip(found, eta, data.lower, data.upper, strict=True):
        if low == high:
            assert value == pytest.approx(stats.norm.logpdf(low, center, size), rel=1e-12)
            continue
        with mpmath.workdps(60):
            ends = [mpmath.ncdf((mpmath.mpf(e) - center) / size) for e in (high, low)]
            assert value == pytest.approx(float(mpmath.log(ends[0] - ends[1])), rel=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("dispersion", [0.05, 2.0])
@pytest.mark.parametrize("power", [1.01, 1.05, 1.5, 1.9, 1.99])
def test_the_series_of_tweedie_is_right_near_both_ends(power, dispersion):
    y = np.array([0.02, 0.7, 3.0])
    eta = np.array([-1.0, 0.3, 0.9])
    response = responses.Tweedie(dispersion, power)
    found = response.derivatives(Data(y), eta, ("dispersion", "tweedie_power"))
    with mpmath.workdps(40):
        # exact changes of the parameters as they are in FP64
        phi, p = mpmath.mpf(dispersion), mpmath.mpf(power)

        def density(k, phi, p):
            mean, value = mpmath.exp(eta[k]), mpmath.mpf(y[k])
            shape, scale = (2 - p) / (p - 1), phi * (p - 1) * mean ** (p - 1)
            rate = mean ** (2 - p) / (phi * (2 - p))
            largest = int(value ** (2 - p) / (phi * (2 - p)))
            width = 60 + int(12 * largest**0.5)
            total = mpmath.mpf(0)
            for j in range(max(1, largest - width), largest + width):
                log = j * mpmath.log(rate) - rate - mpmath.loggamma(j + 1) - value / scale
                log += (j * shape - 1) * mpmath.log(value) - j * shape * mpmath.log(scale)
                total += mpmath.exp(log - mpmath.loggamma(j * shape))
            return mpmath.log(total)

        step = mpmath.mpf(10) ** -12
        for k in range(3):
            value = float(density(k, phi, p))
            by_phi = (density(k, phi + step, p) - density(k, phi - step, p)) / (2 * step)
            by_p = (density(k, phi, p + step) - density(k, phi, p - step)) / (2 * step)
            # logarithms of terms are differences of numbers of the size of their index
            largest = y[k] ** (2 - power) / (dispersion * (2 - power)) + 1
            rounding = 1e-13 * largest / (power - 1)
            assert found.value[k] == pytest.approx(value, abs=rounding)
            size = 100 * rounding / min(dispersion, power - 1, 2 - power)
            assert found.parameters["dispersion"][0][k] == pytest.approx(float(by_phi), abs=size)
            assert found.parameters["tweedie_power"][0][k] == pytest.approx(float(by_p), abs=size)


@pytest.mark.parametrize(
    ("response", "values", "text"),
    [
        (responses.Poisson(), [1.5], "whole numbers of at least 0. Got 1.5 in row 1"),
        (responses.NegativeBinomial(), [2.0, -1.0], "Got -1 in row 2"),
        (responses.TruncatedPoisson(), [0.0], "at least 1"),
        (responses.Bernoulli(), [2.0], "0 or 1. Got 2 in row 1"),
        (responses.Binomial(), [2.0], "at most as many successes as trials"),
        (responses.Gamma(), [0.0], "positive values"),
        (responses.LogNormal(), [-1.0], "positive values"),
        (responses.Beta(), [1.0], "between 0 and 1"),
        (responses.Tweedie(), [-0.1], "at least 0"),
        (responses.Poisson(), [np.nan], "whole numbers"),
    ],
)
def test_values_that_a_response_cannot_have_are_refused(response, values, text):
    with pytest.raises(InvalidInput, match=text):
        response.check(Data(np.array(values)))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@CASES
def test_values_that_are_not_finite_are_refused(name, value):
    response, data = cases()[name]
    if name == "censored":
        data = replace(data, lower=None, upper=None)
    values = data.values.copy()
    values[3] = value
    with pytest.raises(InvalidInput, match="in row 4"):
        response.check(replace(data, values=values))


INFINITE = np.inf


@pytest.mark.parametrize(
    ("lower", "upper"),
    [(2.0, 1.0), (-INFINITE, INFINITE), (INFINITE, INFINITE), (np.nan, 1.0), (1.0, np.nan)],
)
def test_limits_that_no_value_has_are_refused(lower, upper):
    limits = Data(np.zeros(1), lower=np.array([lower]), upper=np.array([upper]))
    with pytest.raises(InvalidInput, match="at most the upper ones, with one of each pair finite"):
        responses.Censored().check(limits)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: responses.Gamma(-1.0), "`gamma_shape` must be greater than 0"),
        (lambda: responses.Tweedie(1.0, 2.0), "`tweedie_power` must be"),
        (lambda: responses.ZeroInflatedPoisson(1.5), "`zeros`"),
        (lambda: responses.Binomial("log"), "`link` of a binomial response must be one of"),
    ],
)
def test_wrong_parameters_are_refused(make, text):
    with pytest.raises(InvalidInput, match=text):
        make()


def test_derivatives_by_eta_are_finite_far_from_the_values():
    eta = np.array([-700.0, -200.0, -40.0, 0.0, 6.0, 20.0])
    present = Data(np.ones(len(eta)))
    for response in (responses.Bernoulli("cloglog"), responses.TruncatedPoisson()):
        slopes = response.derivatives(present, eta)
        assert np.isfinite(slopes.value[:-1]).all()
        assert np.isfinite(slopes.eta).all()
    found = responses.Bernoulli("cloglog").derivatives(Data(np.ones(3)), eta[:3])
    np.testing.assert_allclose(found.value, eta[:3], rtol=1e-12)
    np.testing.assert_allclose(found.eta[0], 1.0)
