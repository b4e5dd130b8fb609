"""Laws that likelihoods, covariance families and metrics must obey, for people who extend geomxp.

    from geomxp.testing import check_covariance, check_likelihood, check_metric
    check_likelihood(MyLikelihood())

A law of a likelihood is an identity of the Gaussian density. Its tolerance is c·n·u·κ with the unit
roundoff u of the arithmetic and the condition number κ of the covariance matrix.
"""

import numpy as np

from .covariance.base import Covariance
from .covariance.distance import EARTH_RADIUS, Metric, metric_of
from .covariance.inputs import Inputs
from .covariance.matern import Matern
from .data.observations import Observations
from .likelihood.base import profile_variance, rescale_variance

MODEL = Matern(variance=1.7, range=0.2, smoothness=0.8, nugget=0.1)


def places(n=60, d=2, seed=1):
    """Return n random locations in the unit cube, (n, d)."""
    return np.random.default_rng(seed).random((n, d))


def observations(n=60, d=2, seed=1):
    """Return independent normal values at random locations."""
    return Observations(places(n, d, seed), np.random.default_rng(seed + 1).standard_normal(n))


def condition_number(model, data):
    """Return κ₂(Σ)."""
    values = np.linalg.eigvalsh(_covariance(model, data))
    return values[-1] / values[0]


def _covariance(model, data):
    """Return Σ with the nugget, (n, n)."""
    sigma = model(data.locations, data.locations, data.metric)
    return sigma + model.nugget * np.eye(len(data))


def _log_likelihood(method, data, model=MODEL):
    return method.prepare(data)(model).log_likelihood


def is_the_gaussian_density(method, tolerance):
    """ℓ equals SciPy's multivariate normal log-density."""
    from scipy.stats import multivariate_normal

    data = observations()
    density = multivariate_normal(np.zeros(len(data)), _covariance(MODEL, data))
    _equal(_log_likelihood(method, data), density.logpdf(data.values), tolerance)


def knows_no_order(method, tolerance):
    """ℓ does not depend on the order of the rows."""
    data = observations()
    other = data.subset(np.random.default_rng(3).permutation(len(data)))
    _equal(_log_likelihood(method, other), _log_likelihood(method, data), tolerance)


def knows_no_unit_of_length(method, tolerance):
    """ℓ does not depend on the unit of locations and range."""
    data = observations()
    other = Observations(data.locations * 1000.0, data.values)
    model = MODEL.replace(range=MODEL.range * 1000.0)
    _equal(_log_likelihood(method, other, model), _log_likelihood(method, data), tolerance)


def scales_with_the_values(method, tolerance):
    """Values times c, with σ² and τ² times c², give ℓ - n log c."""
    data, c = observations(), 8.0
    other = Observations(data.locations, c * data.values)
    expected = _log_likelihood(method, data) - len(data) * np.log(c)
    _equal(_log_likelihood(method, other, MODEL.scaled(c**2)), expected, tolerance)


def adds_over_independent_groups(method, tolerance):
    """ℓ of two groups of locations a thousand ranges apart is the sum of their ℓ."""
    first, second = observations(30, seed=1), observations(30, seed=5)
    both = Observations(
        np.vstack((first.locations, second.locations + 200.0)),
        np.concatenate((first.values, second.values)),
    )
    expected = _log_likelihood(method, first) + _log_likelihood(method, second)
    _equal(_log_likelihood(method, both), expected, tolerance)


def does_not_see_what_the_trend_takes(method, tolerance):
    """Adding Xβ to the values adds β to β̂ and does not change ℓ, for ML and REML."""
    data, design = _with_linear_trend()
    beta = np.array([3.0, -2.0, 5.0])
    other = Observations(data.locations, data.values + design @ beta)
    for reml in (False, True):
        plain = method.prepare(data, design, reml)(MODEL)
        moved = method.prepare(other, design, reml)(MODEL)
        _equal(moved.log_likelihood, plain.log_likelihood, 100 * tolerance)
        np.testing.assert_allclose(
            moved.coefficients, plain.coefficients + beta, rtol=0, atol=100 * tolerance
        )


def _with_linear_trend(coordinates=2):
    """Return observations, and the design of a constant and this many coordinates."""
    data = observations()
    return data, np.column_stack((np.ones(len(data)), data.locations[:, :coordinates]))


def reml_is_the_density_of_contrasts(method, tolerance):
    """The restricted ℓ is the density of K'z with K'X = 0 and K'K = I, minus ½ log|X'X|."""
    from scipy.linalg import null_space
    from scipy.stats import multivariate_normal

    data, design = _with_linear_trend(1)
    contrasts = null_space(design.T)
    sigma = contrasts.T @ _covariance(MODEL, data) @ contrasts
    density = multivariate_normal(np.zeros(len(data) - 2), sigma)
    expected = density.logpdf(contrasts.T @ data.values)
    expected -= 0.5 * np.linalg.slogdet(design.T @ design)[1]
    _equal(method.prepare(data, design, True)(MODEL).log_likelihood, expected, 100 * tolerance)


def profiles_the_variance(method, tolerance):
    """σ̂² and ℓ from one evaluation at variance 1 equal those of the model with σ̂²."""
    data, design = _with_linear_trend(0)
    for reml in (False, True):
        evaluator = method.prepare(data, design, reml)
        unit = MODEL.replace(variance=1.0, nugget=0.3)
        variance, value = profile_variance(evaluator(unit))
        full = unit.scaled(variance)
        direct, rescaled = evaluator(full), rescale_variance(evaluator(unit), variance)
        _equal(direct.log_likelihood, value, tolerance)
        for name in ("log_determinant", "quadratic_form", "log_determinant_of_information"):
            _equal(getattr(rescaled, name), getattr(direct, name), tolerance)


def gradient_is_the_slope(method, tolerance):
    """The gradient equals differences of ℓ in every parameter, for ML and REML."""
    data, design = _with_linear_trend(1)
    model = Matern(1.7, 0.2, 0.8, 0.1, (30.0, 0.6))
    for reml in (False, True):
        evaluator = method.prepare(data, design, reml)
        gradient = evaluator.gradient(model)
        for name, value in model.parameters().items():
            step = 1e-3 * value
            high, low, higher, lower = (
                evaluator(model.replace(**{name: value + k * step})).log_likelihood
                for k in (1, -1, 2, -2)
            )
            slope = (8 * (high - low) - (higher - lower)) / (12 * step)
            # error of the difference formula: O(step⁴), and the rounding of ℓ over the step
            allowed = 1e-8 * abs(slope) + 1e-7 / abs(value) + 10 * tolerance / step
            assert abs(gradient[name] - slope) <= allowed, (name, gradient[name], slope)


LAWS = (
    is_the_gaussian_density,
    knows_no_order,
    knows_no_unit_of_length,
    scales_with_the_values,
    adds_over_independent_groups,
    does_not_see_what_the_trend_takes,
    reml_is_the_density_of_contrasts,
    profiles_the_variance,
    gradient_is_the_slope,
)


def check_likelihood(method, *, unit_roundoff=2.0**-53, laws=LAWS):
    """Assert that a likelihood method satisfies every law.

    Parameters
    ----------
    method : likelihood
        With `prepare`, as `Exact` has it.
    unit_roundoff : float
        Unit roundoff of the arithmetic of the method.
    laws : sequence of callable, optional
    """
    data = observations()
    tolerance = 10 * len(data) * unit_roundoff * condition_number(MODEL, data)
    for law in laws:
        law(method, tolerance)


def _equal(value, expected, tolerance):
    assert abs(value - expected) <= tolerance * max(1.0, abs(expected)), (value, expected)


def check_covariance(model: Covariance, inputs: Inputs, *, tolerance: float = 1e-7) -> None:
    """Assert that a covariance model obeys the laws of its interface.

    Parameters
    ----------
    model : Covariance
        Without special parameter values; with a nugget greater than 0.
    inputs : Inputs
        Where, when and of which variable values are taken; 30 to 300 of them.
    tolerance : float
        Of derivatives, which are compared with differences.

    Examples
    --------
    >>> check_covariance(MODEL, Inputs(places()))
    """
    kind, values, n = type(model), model.parameters(), len(inputs)
    assert [p.name for p in model.table] == list(values)
    assert kind.from_parameters(values) == model == model.replace(**values)
    sigma = model.matrix(inputs, inputs)
    assert sigma.shape == (n, n)
    np.testing.assert_allclose(sigma, sigma.T, rtol=0, atol=1e-14 * np.abs(sigma).max())
    np.testing.assert_allclose(sigma.diagonal(), model.diagonal(inputs), rtol=1e-14)
    for what in (sigma + np.diag(model.noise(inputs).variances), model(inputs, inputs)):
        assert np.linalg.eigvalsh(what)[0] > -1e-12 * np.abs(what).max(), "not positive definite"
    some, others = slice(0, n // 3), slice(n // 3, n)
    part = model.matrix(inputs[some], inputs[others])
    np.testing.assert_allclose(part, sigma[some, others], rtol=0, atol=1e-14 * np.abs(sigma).max())
    scaled = model.scaled(4.0)
    np.testing.assert_allclose(scaled.matrix(inputs, inputs), 4 * sigma, rtol=1e-14)
    noise = model.noise(inputs)
    np.testing.assert_allclose(scaled.noise(inputs).variances, 4 * noise.variances, rtol=1e-14)
    slopes = model.derivatives(inputs, inputs)
    for p in model.table:
        if p.name in noise.names:
            assert p.name not in slopes
            continue
        step = 1e-5 * (abs(p.value) or 1.0)
        high, low = (model.replace(**{p.name: p.value + k * step}) for k in (1, -1))
        change = (high.matrix(inputs, inputs) - low.matrix(inputs, inputs)) / (2 * step)
        allowed = tolerance * max(1.0, np.abs(change).max())
        np.testing.assert_allclose(slopes[p.name], change, rtol=0, atol=allowed, err_msg=p.name)


def random_model(
    family: type[Covariance],
    random: np.random.Generator,
    metric: Metric | str = "euclidean",
    dimensions: int = 2,
) -> Covariance:
    """Return a model with random parameters for which the family is valid, to test that it is.

    The variance is 1 and the nugget 0. Ranges are 10⁻² to 10² Earth radii for longitude and
    latitude, 10⁻² to 10² otherwise. Other parameters lie anywhere within their limits and the
    search's bounds, and often at a limit that is allowed.

    Parameters
    ----------
    family : type
        A subclass of `Covariance`.
    random : numpy.random.Generator
    metric : Metric or str
    dimensions : int
        Number of coordinates of a location.

    Examples
    --------
    >>> from geomxp import Separable
    >>> model = random_model(Separable, np.random.default_rng(1), "great-circle")
    >>> model.valid_on("great-circle", 2)
    True
    """
    values = {p.name: p.value for p in family.declared} | {"variance": 1.0, "nugget": 0.0}
    limits = family.from_parameters(values).limits(metric, dimensions)
    for p in family.declared:
        if p.name in ("variance", "nugget"):
            continue
        if p.unit:
            earth = p.unit == "length" and metric_of(metric).geographic
            values[p.name] = 10.0 ** random.uniform(-2, 2) * (EARTH_RADIUS if earth else 1.0)
            continue
        (lower, upper), (first, last) = limits[p.name], p.search or (1e-2, 1e2)
        low, high = max(lower, first), min(upper, last)
        identity = p.transform == "identity"
        inside = random.uniform(low, high) if identity else low * (high / low) ** random.random()
        ends = [low] * (p.closed and low == lower) + [high] * (high == upper)
        values[p.name] = random.choice([inside, inside, *ends])
    return family.from_parameters(values)


def check_metric(metric: Metric, locations: np.ndarray) -> None:
    """Assert that a metric's distances are distances.

    Parameters
    ----------
    metric : Metric
    locations : (n, d) ndarray

    Examples
    --------
    >>> check_metric(Metric("euclidean"), places())
    """
    points = metric.embed(locations)
    assert points.shape == (len(locations), metric.dimensions(np.shape(locations)[1]))
    assert points.dtype == np.float64
    h = metric.between(points, points)
    size = h.max()
    np.testing.assert_allclose(h, h.T, rtol=0, atol=1e-14 * size)
    np.testing.assert_allclose(h.diagonal(), 0, rtol=0, atol=1e-7 * size)
    for k in range(len(h)):
        assert (h <= h[:, k : k + 1] + h[k] + 1e-12 * size).all(), "the triangle is not closed"
