"""The powered exponential family: ρ(r) = exp(-r^p), r = h/a, 0 < p ≤ 2.

Valid in all Euclidean dimensions; with great-circle distances for p ≤ 1 (Gneiting 2013,
Bernoulli 19:1327, Table 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from .anisotropy import LinearMap
from .base import Isotropic
from .conventions import Convention
from .parameter import Parameter
from .table import HIGHEST_OCTAVE

if TYPE_CHECKING:
    from .._typing import Floats


@dataclass(frozen=True)
class PoweredExponential(Isotropic):
    """A powered exponential (stable) model: C(h) = σ² exp(-(h/a)^p), and τ² on the diagonal.

    Parameters
    ----------
    variance, range, nugget : float
        σ² > 0, a > 0 and τ² ≥ 0, as of `Matern`.
    power : float
        p, 0 < p ≤ 2; p = 1 is the exponential model, p = 2 the Gaussian.
    anisotropy : Anisotropy, Anisotropy3D, AxisRatios, AxisRatios3D, (angle, ratio) or None

    Examples
    --------
    >>> round(float(PoweredExponential(2.0, 0.5, 1.5).covariance(0.5)), 6)
    0.735759
    """

    family = "powered-exponential"
    is_mixture = True
    shapes = (Parameter("power", 1.0, upper=2.0, search=(0.05, 2.0)),)
    on_sphere: ClassVar = {"power": (0.0, 1.0)}
    conventions: ClassVar = {
        "geomxp": Convention(("variance", "range", "power", "nugget")),
        "gstools": Convention(("var", "len_scale", "alpha", "nugget")),
        "gstat": Convention(("psill", "range", "kappa", "nugget")),
        "geor": Convention(("sigmasq", "phi", "kappa", "tausq")),
    }

    variance: float
    range: float
    power: float
    nugget: float = 0.0
    anisotropy: LinearMap | None = None

    @property
    def last_octave(self) -> int:
        """Octave of s from which on exp(-s^(p/2)) is below the smallest number."""
        return ceil(min(20 / self.power, HIGHEST_OCTAVE))

    def correlation_of_squares(self, s: Floats, rest: Floats) -> Floats:
        """Evaluate exp(-r^p)."""
        return np.exp(-(s ** (self.power / np.longdouble(2))))

    def slope_of_squares(self, s: Floats, rest: Floats) -> Floats:
        """Evaluate -p r^p exp(-r^p)."""
        x = s ** (self.power / np.longdouble(2))
        return -self.power * x * np.exp(-x)

    def by_shape(self, name: str, s: Floats, rest: Floats) -> Floats:
        """Evaluate ∂ρ/∂p = -r^p exp(-r^p) log r."""
        x = s ** (self.power / np.longdouble(2))
        return -x * np.exp(-x) * np.log(s) / 2

    def practical_range(self) -> float:
        """Return 2^(1/p) a, where the correlation is exp(-2) = 0.14."""
        return 2 ** (1 / self.power) * self.range

    @property
    def infill_exponent(self) -> float:
        """p: dense data determine variance/range^p, if p < 2."""
        return self.power if self.power < 2 else inf
