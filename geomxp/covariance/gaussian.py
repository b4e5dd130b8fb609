"""The Gaussian family: ρ(r) = exp(-r²), r = h/a, the limit of Matérn's as ν → ∞.

Infinitely smooth: Σ is nearly singular unless there is a nugget. Valid in all Euclidean
dimensions; not with great-circle distances (Gneiting 2013, Bernoulli 19:1327, Table 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi, sqrt
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from .anisotropy import LinearMap
from .base import Isotropic
from .conventions import Convention

if TYPE_CHECKING:
    from .._typing import Floats


@dataclass(frozen=True)
class Gaussian(Isotropic):
    """A Gaussian (squared exponential) model: C(h) = σ² exp(-h²/a²), and τ² on the diagonal.

    Parameters
    ----------
    variance : float
        σ² > 0, in squared units of the values.
    range : float
        a > 0, in the units of the locations (km for longitude and latitude).
    nugget : float
        τ² ≥ 0, the noise variance of each observation.
    anisotropy : Anisotropy, Anisotropy3D, AxisRatios, AxisRatios3D, (angle, ratio) or None

    Examples
    --------
    >>> round(float(Gaussian(2.0, 0.5).covariance(0.5)), 6)
    0.735759
    """

    family = "gaussian"
    is_mixture = True
    last_octave = 10  # exp(-2^10) is below the smallest number
    conventions: ClassVar = {
        "geomxp": Convention(("variance", "range", "nugget")),
        "scikit-learn": Convention(("variance", "length_scale", "noise_level"), 1 / sqrt(2)),
        "gpytorch": Convention(("outputscale", "lengthscale", "noise"), 1 / sqrt(2)),
        "gstools": Convention(("var", "len_scale", "nugget"), sqrt(pi) / 2),
        "gstat": Convention(("psill", "range", "nugget")),
        "geor": Convention(("sigmasq", "phi", "tausq")),
    }

    variance: float
    range: float
    nugget: float = 0.0
    anisotropy: LinearMap | None = None

    def correlation_of_squares(self, s: Floats, rest: Floats) -> Floats:
        """Evaluate exp(-s)."""
        return np.exp(-s)

    def slope_of_squares(self, s: Floats, rest: Floats) -> Floats:
        """Evaluate -2s exp(-s)."""
        return -2 * s * np.exp(-s)

    def practical_range(self) -> float:
        """Return √2 a, where the correlation is exp(-2) = 0.14."""
        return sqrt(2) * self.range
