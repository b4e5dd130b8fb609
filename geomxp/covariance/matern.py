"""The Matérn family, and how other packages write it.

C(h) = σ² · 2^(1-ν)/Γ(ν) · (h/a)^ν · K_ν(h/a), with τ² on the diagonal. σ² is the variance, a the
range, ν the smoothness, τ² the nugget (a variance). There is no √(2ν) in it: other packages scale
the range by a function of ν, and some count the nugget in units of σ². Valid in all Euclidean
dimensions; with great-circle distances for ν ≤ ½ (Gneiting 2013, Bernoulli 19:1327).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..errors import InvalidInput
from . import bessel
from .anisotropy import LinearMap
from .base import Isotropic
from .conventions import Convention, Limit
from .parameter import Parameter

if TYPE_CHECKING:
    from .._typing import ArrayLike, Floats


def _root_of_2nu(nu):
    return sqrt(2 * nu)


PACKAGES = {
    "geomxp": Convention(("variance", "range", "smoothness", "nugget")),
    "exageostat": Convention(("sigma_sq", "beta", "nu", "nugget")),
    "scikit-learn": Convention(
        ("variance", "length_scale", "nu", "noise_level"),
        _root_of_2nu,
        limit=Limit("nu", upper=19.0, elsewhere="gives nan between equal locations in k(X, Y)"),
    ),
    "gpytorch": Convention(
        ("outputscale", "lengthscale", "nu", "noise"),
        _root_of_2nu,
        limit=Limit("nu", elsewhere="raises an error", only=(0.5, 1.5, 2.5)),
    ),
    "gpboost": Convention(("variance", "range", "shape", "error_term"), _root_of_2nu),
    "openturns": Convention(
        ("amplitude_squared", "scale", "nu", "nugget_factor"), _root_of_2nu, relative_nugget=True
    ),
    "gstools": Convention(
        ("var", "len_scale", "nu", "nugget"),
        sqrt,
        limit=Limit(
            "nu",
            0.2,
            20.0,
            "evaluates exp(-h²/4), h = distance/len_scale (20 to 30), or raises an error",
        ),
    ),
    "geor": Convention(("sigmasq", "phi", "kappa", "tausq")),
    "gstat": Convention(("psill", "range", "kappa", "nugget")),
    "fields": Convention(("sigma2", "aRange", "smoothness", "tau2")),
    "spmodel": Convention(
        ("de", "range", "extra", "ie"),
        _root_of_2nu,
        limit=Limit("extra", 0.2, 5.0, "raises an error"),
    ),
    "spamm": Convention(("lambda", "rho", "nu", "phi"), inverse_range=True),
    "gpgp": Convention(("variance", "range", "smoothness", "nugget"), relative_nugget=True),
}


@dataclass(frozen=True)
class Matern(Isotropic):
    """A Matérn model: C(h) = σ² · 2^(1-ν)/Γ(ν) · (h/a)^ν · K_ν(h/a), and τ² on the diagonal.

    Parameters
    ----------
    variance : float
        σ² > 0, in squared units of the values.
    range : float
        a > 0, in the units of the locations (km for longitude and latitude).
    smoothness : float
        ν > 0; ν = ½ is exp(-h/a), ν → ∞ the Gaussian.
    nugget : float
        τ² ≥ 0, a variance (not relative to σ²); it belongs to each observation.
    anisotropy : Anisotropy, Anisotropy3D, AxisRatios, AxisRatios3D, (angle, ratio) or None
        Geometric anisotropy; a pair is that of locations in the plane.

    Raises
    ------
    InvalidInput
        If a parameter is not a finite number in its range.

    Examples
    --------
    >>> model = Matern(variance=2.0, range=0.3, smoothness=0.5)
    >>> a, b = np.array([[0.0, 0.0]]), np.array([[0.0, 0.3], [0.0, 0.0]])
    >>> bool(np.allclose(model(a, b), 2.0 * np.exp([[-1.0, 0.0]])))
    True
    """

    family = "matern"
    is_mixture = True
    shapes = (Parameter("smoothness", 0.5, search=(0.02, 30.0)),)
    on_sphere: ClassVar = {"smoothness": (0.0, 0.5)}
    conventions = PACKAGES
    last_octave = 20  # 2^20 > 745², where exp(-r) is below the smallest number

    variance: float
    range: float
    smoothness: float
    nugget: float = 0.0
    anisotropy: LinearMap | None = None

    if TYPE_CHECKING:
        # what may be given; the fields say what is kept
        def __init__(
            self,
            variance: float,
            range: float,
            smoothness: float,
            nugget: float = 0.0,
            anisotropy: LinearMap | tuple[float, float] | None = None,
        ) -> None: ...

    @property
    def tabulated(self) -> bool:
        """Whether there is a table of polynomials: ν ≤ 50."""
        return self.smoothness <= bessel.LARGEST_TABULATED_NU

    def check_tabulated(self, remedy: str) -> None:
        """Raise `InvalidInput`, with a remedy, if ν > 50."""
        if not self.tabulated:
            raise InvalidInput(
                f"`smoothness` must be at most {bessel.LARGEST_TABULATED_NU:g} here. "
                f"Got {self.smoothness:g}. {remedy}"
            )

    def expansions(self, octaves: Floats) -> bessel.BesselSeries:
        """Return expansions of the correlation and its derivatives on octaves of s."""
        return bessel.BesselSeries(self.smoothness, octaves)

    def evaluate(self, what: str, r: ArrayLike) -> Floats:
        """Evaluate the correlation, its slope or its derivative by ν; see `Isotropic.evaluate`."""
        r = np.minimum(np.asarray(r, dtype=np.float64), 1e4 * max(1.0, self.smoothness))
        function = {
            "correlation": bessel.correlation,
            "smoothness": bessel.correlation_by_smoothness,
            "slope": bessel.correlation_slope,
        }[what]
        return function(r, self.smoothness)

    def practical_range(self) -> float:
        """Return a√(8ν), the distance with correlation near 0.14 for any ν (Lindgren 2011)."""
        return self.range * sqrt(8 * self.smoothness)

    @property
    def infill_exponent(self) -> float:
        """2ν: dense data determine variance/range^(2ν)."""
        return 2 * self.smoothness
