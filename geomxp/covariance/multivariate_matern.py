"""Multivariate Matérn families: independent, parsimonious and flexible.

C_ij(h) = ρ_ij σ_i σ_j M(h/a_ij; ν_ij) with ν_ij = (ν_i + ν_j)/2. The correlations of the fields at
one location are ρ_ij = β_ij κ_ij: a model is valid where β is a correlation matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..errors import InvalidInput
from .base import NUGGET, RANGE
from .coregionalization import Coregionalized
from .distance import metric_of
from .multivariate import (
    CORRELATION,
    EACH_PAIR,
    EACH_VARIABLE,
    EIGENVALUE_TOLERANCE,
    ONE_FOR_ALL,
    OWN_VARIANCE,
    SMOOTHNESS,
    Multivariate,
    at,
    indices,
    interval,
    name_of,
    nearer,
    symmetric,
)
from .term import Change, Term

if TYPE_CHECKING:
    from .._typing import Floats
    from .base import Covariance
    from .distance import Metric


class _OneComponent(Multivariate):
    """Base of families of several variables with one component, Matérn's or another one.

    ν_ij = (ν_i + ν_j)/2 and 1/a_ij² = (1/a_i² + 1/a_j²)/2. The correlations ρ_ij of the fields at
    one location are β_ij κ_ij, and the model is valid where β is a correlation matrix.
    """

    variance: tuple[float, ...]
    range: float | tuple[float, ...]
    smoothness: tuple[float, ...]

    def factors(self, dimensions: int) -> Floats:
        """Return κ, the largest correlations of two variables alone, (p, p)."""
        raise NotImplementedError

    @property
    def _rho(self):
        return symmetric(self.correlation, self.variables)

    def _shared_with(self, family, but):
        """Return the fields besides one that a model of a family with the same functions has."""
        if not issubclass(family, Multivariate):
            return None
        if (family.in_space, family.family_alone()) != (self.in_space, self.family_alone()):
            return None
        own = (*self.groups, "nugget_covariance", "anisotropy", "transform")
        return {name: getattr(self, name) for name in own if name != but}

    def components(self) -> list[Term]:
        """Return the only term."""
        p, rho = self.variables, self._rho
        deviation = np.sqrt(self.variance)
        amplitude = rho * np.outer(deviation, deviation)
        names = [shape.name for shape in self.in_space.shapes]
        shapes = [np.asarray(getattr(self, name)) for name in names]
        changes = {}
        for k in range(p):
            # 1 where the variable is one of the pair, 2 where it is both
            own = np.zeros((p, p))
            own[k] += 1
            own[:, k] += 1
            change = amplitude * own / (2 * self.variance[k])
            changes[name_of("variance", (k,))] = Change(amplitude=change)
            for name in names:
                changes[name_of(name, (k,))] = Change(shapes={name: own / 2})
        if np.ndim(self.range) == 0:
            lengths = np.full((p, p), self.range)
            changes["range"] = Change(log_range=1 / lengths)
        else:
            inverse = np.asarray(self.range) ** -2.0
            lengths = ((inverse[:, None] + inverse) / 2) ** -0.5
            for k in range(p):
                own = np.zeros((p, p))
                own[k] += 1
                own[:, k] += 1
                change = own * lengths**2 / 2 / self.range[k] ** 3
                changes[name_of("range", (k,))] = Change(log_range=change)
        if "correlation" in self.groups:
            for i, j in indices(EACH_PAIR, p):
                change = at(p, i, j) * deviation[i] * deviation[j]
                changes[name_of("correlation", (i, j))] = Change(amplitude=change)
        between = [(one[:, None] + one) / 2 for one in shapes]
        return [self.term(amplitude, lengths, between, changes)]

    def factors_on_sphere(self) -> Floats:
        """Return κ for great-circle distances, (p, p)."""
        raise NotImplementedError

    def _kappa(self, metric, dimensions):
        """Return κ, and in words where it holds."""
        if metric_of(metric).arc:
            return self.factors_on_sphere(), "with great-circle distances"
        d = self.valid_dimensions(metric, dimensions)
        return self.factors(d), f"in {'all' if d == np.inf else f'{d:g}'} dimensions"

    def _beta(self, kappa):
        """Return β = ρ/κ, of which no entry is much larger than 1: smooth fields have κ = 0."""
        rho = self._rho
        return np.clip(rho / np.maximum(kappa, 1e-300), -2.0, 2.0)

    @classmethod
    def _near(cls, values, correlations, dimensions):
        if cls.groups["range"][0] == ONE_FOR_ALL:
            values["range"] = float(np.exp(np.mean(np.log(values["range"]))))
        p = len(values["variance"])
        model = cls(**values, correlation=(0.0,) * len(indices(EACH_PAIR, p)))
        kappa = model.factors(model.valid_dimensions("euclidean", dimensions))
        rho = nearer(correlations / np.maximum(kappa, 1e-300)) * kappa
        return replace(model, correlation=tuple(rho[i, j] for i, j in indices(EACH_PAIR, p)))

    def check_valid_on(self, metric: Metric | str, dimensions: int) -> None:
        """Raise `InvalidInput`, with a remedy, where the model is not positive definite."""
        super().check_valid_on(metric, dimensions)
        kappa, where = self._kappa(metric, dimensions)
        beta = self._beta(kappa)
        if (
            np.abs(beta).max() > 1 + EIGENVALUE_TOLERANCE
            or np.linalg.eigvalsh(beta).min() < -EIGENVALUE_TOLERANCE
        ):
            most = ", ".join(f"{kappa[i, j]:.4g}" for i, j in indices(EACH_PAIR, self.variables))
            raise InvalidInput(
                f"{where} these correlations are too large for the smoothnesses (and "
                f"ranges): divided by {most} they must be a correlation matrix. Got "
                f"{', '.join(f'{x:.4g}' for x in self.correlation)}."
            )

    def limits(self, metric: Metric | str, dimensions: int) -> dict[str, tuple[float, float]]:
        """Return the bounds of each parameter; see `Covariance.limits`.

        Those of a correlation are the ends at which β becomes singular.
        """
        found = super().limits(metric, dimensions)
        kappa, _ = self._kappa(metric, dimensions)
        beta = self._beta(kappa)
        for i, j in indices(EACH_PAIR, self.variables):
            middle, half = interval(beta, i, j)
            ends = (middle - half) * kappa[i, j], (middle + half) * kappa[i, j]
            found[name_of("correlation", (i, j))] = max(ends[0], -1.0), min(ends[1], 1.0)
        return found


class Uncorrelated(_OneComponent):
    """Base of independent variables, with correlations of any isotropic family."""

    @property
    def _rho(self):
        return np.eye(self.variables)

    @classmethod
    def _near(cls, values, correlations, dimensions):
        return cls(**values)

    def as_member_of(self, family: type[Covariance]) -> tuple[Covariance, dict[str, str]] | None:
        """Return this model as a flexible one or one of coregionalization, both uncorrelated."""
        shared, p = self._shared_with(family, "variance"), self.variables
        if shared is not None and issubclass(family, FlexibleMatern):
            nothing = (0.0,) * (p * (p - 1) // 2)
            return family(self.variance, correlation=nothing, **shared), {}
        if shared is not None and issubclass(family, Coregionalized):
            loading = np.diag(np.sqrt(self.variance))
            names = {name_of("variance", (k,)): name_of("loading", (k, k)) for k in range(p)}
            return family(loading, **shared), names
        return super().as_member_of(family)

    def check_valid_on(self, metric: Metric | str, dimensions: int) -> None:
        """Raise `InvalidInput`, with a remedy, where the model is not positive definite."""
        Multivariate.check_valid_on(self, metric, dimensions)

    def limits(self, metric: Metric | str, dimensions: int) -> dict[str, tuple[float, float]]:
        """Return the bounds of each parameter; see `Covariance.limits`."""
        return Multivariate.limits(self, metric, dimensions)


@dataclass(frozen=True)
class Independent(Uncorrelated):
    """Independent variables, each with a Matérn model of its own: C_ij = 0 for i ≠ j.

    Parameters
    ----------
    variance, range, smoothness : tuple of float
        σ_i² > 0, a_i > 0 and ν_i > 0 of each variable; one number stands for all.
    nugget : tuple of float
        τ_i² ≥ 0.
    nugget_covariance : tuple of float, optional
        Covariance of the noise of variables i and j at one location, for each pair 12, 13, …; or
        a matrix with the nuggets on its diagonal. If not given the noise is independent.

    Examples
    --------
    >>> import numpy as np, geomxp as gx
    >>> model = Independent((1.0, 4.0), (0.5, 0.2), 0.5)
    >>> inputs = gx.Inputs(np.zeros((2, 1)), variable=np.array([0, 1]))
    >>> model(inputs, inputs).tolist()
    [[1.0, 0.0], [0.0, 4.0]]
    """

    family = "independent"
    groups: ClassVar = {
        "variance": (EACH_VARIABLE, OWN_VARIANCE),
        "range": (EACH_VARIABLE, RANGE),
        "smoothness": (EACH_VARIABLE, SMOOTHNESS),
        "nugget": (EACH_VARIABLE, NUGGET),
    }

    variance: tuple[float, ...]
    range: tuple[float, ...]
    smoothness: tuple[float, ...]
    nugget: tuple[float, ...] = 0.0
    nugget_covariance: tuple[float, ...] | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class ParsimoniousMatern(_OneComponent):
    """Matérn models with a common range: C_ij = ρ_ij σ_i σ_j M_ν(h/a) with ν = (ν_i + ν_j)/2.

    Valid in d dimensions where ρ_ij/κ_ij is a correlation matrix, with κ_ij =
    [Γ(ν_i + d/2) Γ(ν_j + d/2) / (Γ(ν_i) Γ(ν_j))]^½ Γ(ν_ij) / Γ(ν_ij + d/2)
    (Gneiting, Kleiber and Schlather 2010, JASA 105:1167, theorem 1).

    Parameters
    ----------
    variance : tuple of float
        σ_i² > 0 of each variable, in its squared units.
    range : float
        a > 0, in the units of the locations (km for longitude and latitude).
    smoothness : tuple of float
        ν_i > 0.
    correlation : tuple of float
        ρ_ij of the fields at one location, for each pair 12, 13, …, 23, …; or a matrix.
    nugget : tuple of float
        τ_i² ≥ 0.
    nugget_covariance : tuple of float, optional
        Covariance of the noise of variables i and j at one location, for each pair 12, 13, …; or
        a matrix with the nuggets on its diagonal. If not given the noise is independent.

    Examples
    --------
    >>> import numpy as np, geomxp as gx
    >>> model = ParsimoniousMatern((1.0, 4.0), 0.5, (0.5, 1.5), correlation=0.4)
    >>> inputs = gx.Inputs(np.zeros((2, 1)), variable=np.array([0, 1]))
    >>> model(inputs, inputs).tolist()
    [[1.0, 0.8], [0.8, 4.0]]
    """

    family = "parsimonious-matern"
    groups: ClassVar = {
        "variance": (EACH_VARIABLE, OWN_VARIANCE),
        "range": (ONE_FOR_ALL, RANGE),
        "smoothness": (EACH_VARIABLE, SMOOTHNESS),
        "correlation": (EACH_PAIR, CORRELATION),
        "nugget": (EACH_VARIABLE, NUGGET),
    }

    variance: tuple[float, ...]
    range: float
    smoothness: tuple[float, ...]
    correlation: tuple[float, ...]
    nugget: tuple[float, ...] = 0.0
    nugget_covariance: tuple[float, ...] | None = field(default=None, kw_only=True)

    def as_member_of(self, family: type[Covariance]) -> tuple[Covariance, dict[str, str]] | None:
        """Return this model as a flexible one with equal ranges."""
        shared = self._shared_with(family, "range")
        if shared is None or not issubclass(family, FlexibleMatern):
            return super().as_member_of(family)
        ranges = (self.range,) * self.variables
        return family(range=ranges, **shared), {"range": name_of("range", (0,))}

    def factors(self, dimensions: int) -> Floats:
        """Return κ, the largest correlations of two variables alone, (p, p)."""
        from scipy.special import gammaln

        nu, half = np.asarray(self.smoothness), dimensions / 2
        between = (nu[:, None] + nu) / 2
        if half == np.inf:
            own = -gammaln(nu) / 2
            return np.exp(own[:, None] + own + gammaln(between))
        own = (gammaln(nu + half) - gammaln(nu)) / 2
        return np.exp(own[:, None] + own + gammaln(between) - gammaln(between + half))

    def factors_on_sphere(self) -> Floats:
        """Return κ for great-circle distances and smoothnesses of at most ½, (p, p).

        Matérn's correlation is then a mixture of exponential ones: with x = ½ - ν the density of
        exp(-th/a) is (t² - 1)^(x - 1) / (Γ(½ - x) Γ(x)) for t > 1, and matrices of densities are
        positive semidefinite where [ρ_ij / (Γ(ν_ij) Γ(½ - ν_ij))] is. Thus κ_ij is
        Γ(ν_ij) Γ(½ - ν_ij) over the root of the same products of i and j.
        """
        from scipy.special import gammaln

        nu = np.minimum(self.smoothness, 0.5)
        between = (nu[:, None] + nu) / 2

        def logarithm(nu):
            # an exponential correlation is a mixture of itself
            return gammaln(nu) + gammaln(np.maximum(0.5 - nu, 1e-300))

        own = -logarithm(nu) / 2
        return np.exp(own[:, None] + own + logarithm(between))


@dataclass(frozen=True)
class FlexibleMatern(_OneComponent):
    """Matérn models with ranges of their own: C_ij = ρ_ij σ_i σ_j M_ν(h/a_ij), ν = (ν_i + ν_j)/2.

    1/a_ij² = (1/a_i² + 1/a_j²)/2. Valid in all dimensions where ρ_ij/κ_ij is a correlation matrix,
    with κ_ij = Γ(ν_ij) / [Γ(ν_i) Γ(ν_j)]^½ · a_ij^(2ν_ij) / (a_i^ν_i a_j^ν_j), a case of
    Apanasovich, Genton and Sun (2012, JASA 107:180, theorem 1). Two variables have the largest
    correlation that is valid.

    Parameters
    ----------
    variance : tuple of float
        σ_i² > 0 of each variable, in its squared units.
    range : tuple of float
        a_i > 0, in the units of the locations (km for longitude and latitude).
    smoothness : tuple of float
        ν_i > 0.
    correlation : tuple of float
        ρ_ij of the fields at one location, for each pair 12, 13, …, 23, …; or a matrix.
    nugget : tuple of float
        τ_i² ≥ 0.
    nugget_covariance : tuple of float, optional
        Covariance of the noise of variables i and j at one location, for each pair 12, 13, …; or
        a matrix with the nuggets on its diagonal. If not given the noise is independent.

    Examples
    --------
    >>> import numpy as np, geomxp as gx
    >>> model = FlexibleMatern((1.0, 4.0), (0.5, 0.3), (0.5, 1.5), correlation=0.4)
    >>> inputs = gx.Inputs(np.zeros((2, 1)), variable=np.array([0, 1]))
    >>> model(inputs, inputs).tolist()
    [[1.0, 0.8], [0.8, 4.0]]
    """

    family = "flexible-matern"
    groups: ClassVar = {
        "variance": (EACH_VARIABLE, OWN_VARIANCE),
        "range": (EACH_VARIABLE, RANGE),
        "smoothness": (EACH_VARIABLE, SMOOTHNESS),
        "correlation": (EACH_PAIR, CORRELATION),
        "nugget": (EACH_VARIABLE, NUGGET),
    }

    variance: tuple[float, ...]
    range: tuple[float, ...]
    smoothness: tuple[float, ...]
    correlation: tuple[float, ...]
    nugget: tuple[float, ...] = 0.0
    nugget_covariance: tuple[float, ...] | None = field(default=None, kw_only=True)

    def factors(self, dimensions: int) -> Floats:
        """Return κ, the largest correlations of two variables alone, (p, p)."""
        from scipy.special import gammaln

        nu, alpha = np.asarray(self.smoothness), 1 / np.asarray(self.range)
        between, mean = (nu[:, None] + nu) / 2, (alpha[:, None] ** 2 + alpha**2) / 2
        own = nu * np.log(alpha) - gammaln(nu) / 2
        kappa = own[:, None] + own + gammaln(between) - between * np.log(mean)
        if self.variables == 2 and dimensions < np.inf:
            # the least √(f₁₁f₂₂)/f₁₂ of the spectral densities of correlations, f_ij(ω) =
            # Γ(ν_ij + d/2)/Γ(ν_ij) α_ij^2ν_ij (α_ij² + ω²)^-(ν_ij + d/2), but for a constant
            half = dimensions / 2
            weights = (nu + half) / 2
            kappa[0, 1] += gammaln(nu + half).sum() / 2 - gammaln(between[0, 1] + half)
            kappa[0, 1] = kappa[1, 0] = kappa[0, 1] + _least(weights, alpha**2)
        return np.exp(kappa)

    def factors_on_sphere(self) -> Floats:
        """Raise `InvalidInput`: no correlations besides 0 are known to be valid."""
        raise InvalidInput(
            "a flexible-matern model is not known to be a covariance with great-circle distances: "
            "with different ranges it is not a mixture of exponential covariances. Give it equal "
            "ranges as a parsimonious-matern model, or use the chordal metric."
        )


def _least(weights, squares):
    """Return the minimum of (A + B) log(m + t) - A log(x + t) - B log(y + t) over t ≥ 0.

    A and B are the weights, x and y the squares, m their mean.
    """
    (a, b), (x, y), m = weights, squares, squares.mean()

    def value(t):
        return (a + b) * np.log(m + t) - a * np.log(x + t) - b * np.log(y + t)

    found = [0.0, value(0.0)]
    # the only stationary point
    t = (x - y) / 2 * (a + b) / (a - b) - m if a != b else -1.0
    return min([*found, value(t)] if t > 0 else found)
