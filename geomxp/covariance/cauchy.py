"""The generalized Cauchy family: ρ(r) = (1 + r^α)^(-β/α), r = h/a, 0 < α ≤ 2, β > 0.

The power α governs the field's roughness, the decay β its long memory: ρ ~ r^-β (Gneiting and
Schlather 2004, SIAM Review 46:269). Valid in all Euclidean dimensions; with great-circle distances
for α ≤ 1 (Gneiting 2013, Bernoulli 19:1327, Table 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from .anisotropy import LinearMap
from .base import Isotropic
from .conventions import Convention
from .parameter import Parameter

if TYPE_CHECKING:
    from .._typing import Floats


@dataclass(frozen=True)
class Cauchy(Isotropic):
    """A generalized Cauchy model: C(h) = σ² (1 + (h/a)^α)^(-β/α), and τ² on the diagonal.

    Parameters
    ----------
    variance, range, nugget : float
        σ² > 0, a > 0 and τ² ≥ 0, as of `Matern`.
    power : float
        α, 0 < α ≤ 2.
    decay : float
        β > 0.
    anisotropy : Anisotropy, Anisotropy3D, AxisRatios, AxisRatios3D, (angle, ratio) or None

    Examples
    --------
    >>> float(Cauchy(2.0, 0.5, power=1.0, decay=1.0).covariance(0.5))
    1.0
    """

    family = "cauchy"
    is_mixture = True
    shapes = (
        Parameter("power", 1.0, upper=2.0, search=(0.05, 2.0)),
        Parameter("decay", 1.0, search=(0.05, 50.0)),
    )
    on_sphere: ClassVar = {"power": (0.0, 1.0)}
    conventions: ClassVar = {
        "geomxp": Convention(("variance", "range", "power", "decay", "nugget")),
        "randomfields": Convention(("var", "scale", "alpha", "beta", "nugget")),
    }

    variance: float
    range: float
    power: float
    decay: float
    nugget: float = 0.0
    anisotropy: LinearMap | None = None

    def correlation_of_squares(self, s: Floats, rest: Floats) -> Floats:
        """Evaluate (1 + r^α)^(-β/α)."""
        return self._terms(s)[2]

    def slope_of_squares(self, s: Floats, rest: Floats) -> Floats:
        """Evaluate -β r^α/(1 + r^α) ρ."""
        x, _, rho = self._terms(s)
        return -self.decay * x / (1 + x) * rho

    def by_shape(self, name: str, s: Floats, rest: Floats) -> Floats:
        """Evaluate ∂ρ/∂β = -ρ log(1+r^α)/α or ∂ρ/∂α."""
        x, log, rho = self._terms(s)
        if name == "decay":
            return -rho * log / self.power
        return rho * self.decay / self.power * (log / self.power - x / (1 + x) * np.log(s) / 2)

    def _terms(self, s):
        """Return r^α, log(1 + r^α) and ρ."""
        x = s ** (self.power / np.longdouble(2))
        log = np.log1p(x)
        return x, log, np.exp(-np.longdouble(self.decay) / self.power * log)

    def practical_range(self) -> float:
        """Return the distance where the correlation is ½, before the long tail."""
        return np.expm1(self.power / self.decay * np.log(2)) ** (1 / self.power) * self.range

    @property
    def infill_exponent(self) -> float:
        """α: dense data determine variance·decay/range^α, if α < 2."""
        return self.power if self.power < 2 else inf
