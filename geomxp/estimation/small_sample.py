"""Small-sample inference on the trend's coefficients: their covariance, t and F tests, Bartlett.

The usual covariance of β̂, Φ = (X'Σ⁻¹X)⁻¹ at the estimate, ignores that Σ was estimated. With
Σ_j = ∂Σ/∂x_j in the coordinates x of the search (logarithms), LL' = Σ, X = L Q T⁻¹ with
orthonormal columns of Q, so that Φ = TT', and

    A_j = L⁻¹Σ_jL⁻ᵀ,  B_j = Q'A_jQ,  G_j = E A_jQ,  W = (½ tr(E A_i E A_j))⁻¹  with E = I - QQ'

the derivatives of Φ are TB_jT', W is the covariance of x̂ to first order, and

    cov β̂ ≈ Φ + TΛT',   E Φ(x̂) ≈ Φ - TΛT',   Λ = Σ W_ij G_i'G_j    (T⁻ᵀG_i'G_jT⁻¹ = Q_ij - P_iΦP_j)

(Kackar and Harville 1984, JASA 79:853; Harville and Jeske 1992, JASA 87:724), so that Φ + 2TΛT' at
x̂ estimates cov β̂. This is the covariance of Kenward and Roger (1997, Biometrics 53:983) without
second derivatives of Σ, whose terms are large and inaccurate for covariances that are far from
linear in their parameters. t and F have the degrees of freedom of Kenward and Roger, but at least
2: fewer come from parameters that the data do not determine. For a fit by ML all this is computed
after one step of Fisher scoring towards REML's estimate. Without spatial correlation both give the
t intervals of ordinary least squares with n - p degrees of freedom.
"""

import warnings
from dataclasses import dataclass
from math import inf, log

import numpy as np
import scipy

from ..errors import GeomxpWarning, NotPositiveDefinite
from ..likelihood.replicates import dense_covariance
from ..runtime.devices import blas_threads
from .coordinates import Coordinates
from .names import MICROSCALE
from .units import Units

MOST_CORRECTED_LOCATIONS = 1500
"""Number of locations up to which the corrections are computed: they take about 3k products of
n×n matrices for k covariance parameters, which is less than a fit takes."""

LEAST_DEGREES_OF_FREEDOM = 2.0
"""Fewest degrees of freedom of a t or an F."""

LARGEST_MOMENT_TERM = 0.5
"""Size of Kenward and Roger's terms above which their moments have no meaning."""

LONGEST_REML_STEP = 1.0
"""Longest step towards REML's estimate, in logarithms."""

LEAST_LOG_INFORMATION = 1e-2
"""Least information on a logarithm: a parameter that is not identifiable is uncertain by e^±10."""


@dataclass(frozen=True)
class TrendTest:
    """Result of an F test of coefficients of the trend.

    Parameters
    ----------
    statistic : float
    degrees_of_freedom : (float, float)
        Of numerator and denominator.
    p_value : float
    """

    statistic: float
    degrees_of_freedom: tuple[float, float]
    p_value: float


@dataclass(frozen=True)
class TrendInference:
    """Estimates of the trend's coefficients with their small-sample distribution.

    Parameters
    ----------
    coefficients : (p,) ndarray
    covariance : (p, p) ndarray
        Adjusted for the estimation of the covariance parameters.
    root : (p, p) ndarray
        T, with TT' the unadjusted covariance.
    changes : (k, p, p) ndarray
        B_j: the derivatives of the unadjusted covariance are TB_jT'.
    parameters : (k, k) ndarray
        W, the covariance of the covariance parameters' coordinates.
    spread : (p, p) ndarray
        Λ.
    """

    coefficients: np.ndarray
    covariance: np.ndarray
    root: np.ndarray
    changes: np.ndarray
    parameters: np.ndarray
    spread: np.ndarray

    @property
    def standard_errors(self):
        """Standard errors of the coefficients, (p,)."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def degrees_of_freedom(self):
        """Degrees of freedom of each coefficient's t, (p,): 2Φ²/(g'Wg), g = ∂Φ (Satterthwaite)."""
        return np.array([self._moments(row[None])[0] for row in np.eye(len(self.coefficients))])

    def f_test(self, contrasts):
        """Return Kenward and Roger's F test that contrasts (q, p) of β are 0."""
        from scipy.stats import f

        values = contrasts @ self.coefficients
        form = values @ np.linalg.solve(contrasts @ self.covariance @ contrasts.T, values)
        m, scale = self._moments(contrasts)
        statistic = scale * float(form) / len(contrasts)
        p_value = float(f.sf(statistic, len(contrasts), m))
        return TrendTest(statistic, (len(contrasts), float(m)), p_value)

    def bartlett(self, contrasts):
        """Return E[LR]/q of the ML likelihood ratio for contrasts (q, p) of β, to order 1/n.

        With V = CΦC', V_j its derivatives, the statistic is the quadratic form g of Cβ̂ with V⁻¹ at
        x̂, less ¼∂g'W∂g. ML's x̂ has the bias -½W tr(B) from the trend, and with t_j = tr(V⁻¹V_j)

            E[LR] = q + ½t'W tr(B) + tr(V⁻¹CTΛT'C') + ½W_jk(tr(V⁻¹V_jV⁻¹V_k) - ½t_jt_k)

        without the terms of second derivatives of Σ. For independent data it is
        q(1 + (p + 1 - q/2)/(n - p)).
        """
        whiten = self._whitened(contrasts)
        first = self._first(whiten)
        traces = np.trace(first, axis1=1, axis2=2)
        bias = -0.5 * self.parameters @ np.trace(self.changes, axis1=1, axis2=2)
        squares = np.einsum("iab,jba->ij", first, first)
        weighted = self.parameters * (squares - 0.5 * np.outer(traces, traces))
        change = np.trace(whiten(self.spread)) - traces @ bias + 0.5 * weighted.sum()
        return 1 + float(change) / len(contrasts)

    def _whitened(self, contrasts):
        """Return a function, S to V^-½ C T S T' C' V^-T/2."""
        map_ = contrasts @ self.root
        lower = np.linalg.cholesky(map_ @ map_.T)
        map_ = scipy.linalg.solve_triangular(lower, map_, lower=True)
        return lambda matrix: map_ @ matrix @ map_.T

    def _first(self, whiten):
        """Return V^-½ V_j V^-T/2 by coordinate, (k, q, q)."""
        first = [whiten(change) for change in self.changes]
        return np.array(first).reshape(-1, *whiten(self.spread).shape)

    def _moments(self, contrasts):
        """Return denominator degrees of freedom and scale of F (Kenward and Roger 1997, 3.3)."""
        q, first = len(contrasts), self._first(self._whitened(contrasts))
        traces = np.trace(first, axis1=1, axis2=2)
        a1 = float(traces @ self.parameters @ traces)
        a2 = float((self.parameters * np.einsum("iab,jba->ij", first, first)).sum())
        if a2 <= 0:
            return inf, 1.0
        b = (a1 + 6 * a2) / (2 * q)
        g = ((q + 1) * a1 - (q + 4) * a2) / ((q + 2) * a2)
        c1, c2, c3 = np.array([g, q - g, q + 2 - g]) / (3 * q + 2 * (1 - g))
        if q == 1 or max(a2 / q, c2 * b, c3 * b) >= LARGEST_MOMENT_TERM:
            # with q = 1 the moments below give exactly this
            return max(2 * q / a2, LEAST_DEGREES_OF_FREEDOM), 1.0
        mean = 1 / (1 - a2 / q)
        variance = 2 / q * (1 + c1 * b) / ((1 - c2 * b) ** 2 * (1 - c3 * b))
        ratio = variance / (2 * mean**2)
        m = 4 + (q + 2) / (q * ratio - 1)
        return m, m / (mean * (m - 2))


def trend_inference(fit, restricted=True):
    """Return the `TrendInference` of a fit; None without a trend, or for many locations.

    None also for a response other than Gaussian values. With `restricted` a fit by ML is brought
    near that by REML first.
    """
    if fit.model.response is not None:
        return None
    fit = fit.gaussian
    seen = fit.observations
    design = fit.trend.design(seen.locations, seen.covariates, seen.variable)
    n, p = design.shape
    if not p or n > MOST_CORRECTED_LOCATIONS:
        return None
    with blas_threads(n):
        return _inference(fit, restricted, design)


def _inference(fit, restricted, design):
    n, p = design.shape
    units = Units.of(fit.observations, design, fit.model)
    inputs = units.scaled(fit.observations).inputs
    model = fit.model.replace(**units.inward(fit.model, fit.model.parameters()))
    coordinates = Coordinates(fit.free, model, wrap=False)
    inference = _at(model, coordinates, inputs, design, units.columns, fit.coefficients)
    if fit.reml or not restricted or inference is None:
        return inference
    # REML's score at ML's estimate is ½ tr(B)
    step = 0.5 * inference.parameters @ np.trace(inference.changes, axis1=1, axis2=2)
    linear = [parameter.name for parameter in model.table if parameter.linear and parameter.value]
    if set(linear) <= set(coordinates.names):
        # the share p/(n - p) of the scale of Σ is known exactly, log n/(n - p)
        known = [name in linear for name in coordinates.names]
        step += np.array(known) * (log(n / (n - p)) - p / (n - p))
    step *= min(1.0, LONGEST_REML_STEP / np.abs(step).max(initial=1e-300))
    model = coordinates.model(coordinates.point(model) + step)
    for name, (low, high) in model.limits(fit.observations.metric, inputs.dimensions).items():
        value = model.parameters()[name]
        if name in fit.free and not low <= value <= high:
            model = model.replace(**{name: min(max(value, low), high)})
    better = _at(model, coordinates, inputs, design, units.columns, fit.coefficients)
    return better or inference


def _at(model, coordinates, inputs, design, unit, coefficients):
    """Return the `TrendInference` at a model of the scaled problem.

    `unit` is that of the coefficients, a number or (p,). The result is None where Σ has no Cholesky
    factor in FP64.
    """
    p = design.shape[1]
    try:
        lower = np.linalg.cholesky(_sigma(model, inputs))
    except np.linalg.LinAlgError:
        return None
    if not np.isfinite(lower).all():
        # parameters beyond those of any data, as in an edited file
        return None
    powers = 2.0 ** np.round(np.log2(np.abs(design).max(axis=0)))
    q, r = np.linalg.qr(scipy.linalg.solve_triangular(lower, design / powers, lower=True))
    root = scipy.linalg.solve_triangular(r, np.eye(p)) * (unit / powers)[:, None]
    whitened = _derivatives(model, inputs, coordinates, lower)
    products = [matrix @ q for matrix in whitened]
    changes = [q.T @ product for product in products]
    off = [product - q @ change for product, change in zip(products, changes, strict=True)]
    projected = [_projected(matrix, q) for matrix in whitened]
    information = 0.5 * np.array([[np.vdot(a, b) for b in projected] for a in projected])
    parameters = _inverse(information.reshape(len(off), len(off)))
    spread = np.zeros((p, p))
    for row, left in zip(parameters, off, strict=True):
        for weight, right in zip(row, off, strict=True):
            spread += weight * left.T @ right
    covariance = root @ (np.eye(p) + spread + spread.T) @ root.T
    changes = np.array(changes).reshape(-1, p, p)
    return TrendInference(coefficients, covariance, root, changes, parameters, spread)


def _inverse(information):
    """Return the inverse, in which directions that the data do not determine are bounded."""
    values, vectors = np.linalg.eigh(information)
    return (vectors / np.maximum(values, LEAST_LOG_INFORMATION)) @ vectors.T


def _sigma(model, inputs):
    """Return Σ, (n, n)."""
    return dense_covariance(model, inputs)


def _derivatives(model, inputs, coordinates, lower):
    """Return L⁻¹Σ_jL⁻ᵀ by coordinate, a list of (n, n)."""
    noise = model.noise(inputs)
    names = [name for name in coordinates.names if name not in noise.names]
    changes = model.derivatives(inputs, inputs, names=names) if names else {}
    result = []
    for name, unit in zip(coordinates.names, coordinates.jacobian(model), strict=True):
        if name == MICROSCALE:
            first = inputs.first_rows()
            change = (first[:, None] == first).astype(np.float64)
        elif name in noise.names:
            change = np.diag(noise.derivative(name))
        else:
            change = changes[name]
        result.append(_whiten(lower, unit * change))
    return result


def _whiten(lower, matrix):
    """Return L⁻¹ M L⁻ᵀ."""
    half = scipy.linalg.solve_triangular(lower, matrix, lower=True, check_finite=False)
    return scipy.linalg.solve_triangular(lower, half.T, lower=True, check_finite=False)


def _projected(matrix, q):
    """Return E M E with E = I - QQ'."""
    matrix = matrix - q @ (q.T @ matrix)
    return matrix - (matrix @ q) @ q.T


# Standard errors where the score's variance is not its information


def sandwich(problem, solution):
    """Return the score's variance K and the standard errors of a solution; None for exact ones.

    The covariance of x̂ is H⁻¹KH⁻¹ with the observed information H (Godambe 1960, Ann. Math. Stat.
    31:1208). K is computed beside the expected information J. The symmetric A with AJA = H brings
    both to the data: AKA is returned, so that the covariance is H⁻¹ where K = J.
    """
    names, information = solution.free, solution.information
    plain = None, solution.standard_errors
    if not np.linalg.eigvalsh(information)[0] > 0:
        # there are no standard errors
        return plain
    try:
        variance = problem.evaluator.score_variance(solution.model, names)
    except (np.linalg.LinAlgError, NotPositiveDefinite):
        warnings.warn(
            "standard errors are those of the information, without the correction for Vecchia's "
            "approximation: data cannot be simulated from the estimate in FP64. Use a nugget, or "
            "gx.fit(observations, method=gx.Exact()).",
            GeomxpWarning,
            stacklevel=4,
        )
        return plain
    if variance is None:
        return plain
    coordinates = problem.table.coordinates(solution.model, names, relative=False)
    units = np.outer(*[coordinates.jacobian(solution.model)] * 2)
    expected = problem.evaluator.expected_information(solution.model, names) * units
    root = _power(expected, 0.5)
    back = _power(expected, -0.5)
    across = back @ _power(root @ information @ root, 0.5) @ back
    variance = across @ (variance * units) @ across
    godambe = information @ np.linalg.solve(variance, information)
    errors = solution.standard_errors | coordinates.standard_errors(solution.model, godambe)
    return variance, errors


def _power(matrix, exponent):
    """Return a power of a positive definite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * values**exponent) @ vectors.T
