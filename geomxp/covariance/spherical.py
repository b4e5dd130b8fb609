"""The spherical family: ρ(r) = 1 - 3/2 r + 1/2 r³ for r = h/a < 1, and 0 beyond.

Valid in Euclidean spaces of up to 3 dimensions, and with great-circle distances for every range
(Gneiting 2013, Bernoulli 19:1327, Table 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from .anisotropy import LinearMap
from .base import Isotropic
from .conventions import Convention

if TYPE_CHECKING:
    from .._typing import Floats


@dataclass(frozen=True)
class Spherical(Isotropic):
    """A spherical model: C(h) = σ² (1 - 3/2 h/a + 1/2 (h/a)³) for h < a, and τ² on the diagonal.

    Parameters
    ----------
    variance, range, nugget : float
        σ² > 0, a > 0 and τ² ≥ 0, as of `Matern`; beyond the range the covariance is 0.
    anisotropy : Anisotropy, Anisotropy3D, AxisRatios, AxisRatios3D, (angle, ratio) or None

    Examples
    --------
    >>> Spherical(2.0, 0.5).covariance([0.25, 0.5, 0.75]).tolist()
    [0.625, 0.0, 0.0]
    """

    family = "spherical"
    most_dimensions = 3
    support = "smooth"
    on_sphere: ClassVar = {}  # all ranges
    conventions: ClassVar = {
        "geomxp": Convention(("variance", "range", "nugget")),
        "gstools": Convention(("var", "len_scale", "nugget")),
        "gstat": Convention(("psill", "range", "nugget")),
        "geor": Convention(("sigmasq", "phi", "tausq")),
        "spmodel": Convention(("de", "range", "ie")),
    }

    variance: float
    range: float
    nugget: float = 0.0
    anisotropy: LinearMap | None = None

    def correlation_of_squares(self, s: Floats, rest: Floats) -> Floats:
        """Evaluate 1 - 3/2 r + 1/2 r³."""
        return 1 + np.sqrt(s) * (s - 3) / 2

    def slope_of_squares(self, s: Floats, rest: Floats) -> Floats:
        """Evaluate -3/2 (r - r³)."""
        return -1.5 * np.sqrt(s) * rest

    def practical_range(self) -> float:
        """Return 0.65 a, where the correlation is 0.16."""
        return 0.65 * self.range

    @property
    def infill_exponent(self) -> float:
        """1: dense data determine variance/range."""
        return 1.0
