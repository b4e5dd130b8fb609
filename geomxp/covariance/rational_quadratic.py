"""The rational quadratic family: ρ(r) = (1 + r²/(2κ))^(-κ), r = h/a, κ > 0.

A scale mixture of Gaussian models, which are its limit as κ → ∞ (Rasmussen and Williams 2006,
section 4.2.1). Valid in all Euclidean dimensions; not with great-circle distances, as it is a
generalized Cauchy model with power 2 (Gneiting 2013, Bernoulli 19:1327, Table 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import expm1, log, sqrt
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from .anisotropy import LinearMap
from .base import Isotropic
from .conventions import Convention, Limit
from .parameter import Parameter

if TYPE_CHECKING:
    from .._typing import Floats


@dataclass(frozen=True)
class RationalQuadratic(Isotropic):
    """A rational quadratic model: C(h) = σ² (1 + h²/(2κa²))^(-κ), and τ² on the diagonal.

    Parameters
    ----------
    variance, range, nugget : float
        σ² > 0, a > 0 and τ² ≥ 0, as of `Matern`.
    shape : float
        κ > 0.
    anisotropy : Anisotropy, Anisotropy3D, AxisRatios, AxisRatios3D, (angle, ratio) or None

    Examples
    --------
    >>> float(RationalQuadratic(3.0, 0.5, shape=1.0).covariance(1.0))
    1.0
    """

    family = "rational-quadratic"
    is_mixture = True
    shapes = (Parameter("shape", 1.0, search=(0.02, 1000.0)),)
    conventions: ClassVar = {
        "geomxp": Convention(("variance", "range", "shape", "nugget")),
        "scikit-learn": Convention(("variance", "length_scale", "alpha", "noise_level")),
        "gpytorch": Convention(("outputscale", "lengthscale", "alpha", "noise")),
        "gstools": Convention(
            ("var", "len_scale", "alpha", "nugget"),
            sqrt(2),
            limit=Limit("alpha", 0.5, 50.0, "raises an error"),
        ),
    }

    variance: float
    range: float
    shape: float
    nugget: float = 0.0
    anisotropy: LinearMap | None = None

    def correlation_of_squares(self, s: Floats, rest: Floats) -> Floats:
        """Evaluate (1 + q)^(-κ), q = s/(2κ)."""
        return np.exp(-self.shape * np.log1p(s / (2 * self.shape)))

    def slope_of_squares(self, s: Floats, rest: Floats) -> Floats:
        """Evaluate -s/(1 + q) ρ."""
        return -s / (1 + s / (2 * self.shape)) * self.correlation_of_squares(s, rest)

    def by_shape(self, name: str, s: Floats, rest: Floats) -> Floats:
        """Evaluate ∂ρ/∂κ = ρ (q/(1 + q) - log(1 + q))."""
        q = s / (2 * self.shape)
        return self.correlation_of_squares(s, rest) * (q / (1 + q) - np.log1p(q))

    def practical_range(self) -> float:
        """Return the distance where the correlation is ½, before the long tail."""
        return sqrt(2 * self.shape * expm1(log(2) / self.shape)) * self.range
