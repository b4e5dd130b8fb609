"""The Matérn family, and how other packages write it.

C(h) = σ² · 2^(1-ν)/Γ(ν) · (h/a)^ν · K_ν(h/a), with τ² on the diagonal. σ² is the variance, a the
range, ν the smoothness, τ² the nugget (a variance). There is no √(2ν) in it: other packages scale
the range by a function of ν, and some count the nugget in units of σ².
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..errors import InvalidInput
from . import bessel
from .base import Anisotropy, Isotropic, Parameter
from .distance import metric_of

if TYPE_CHECKING:
    from .._typing import ArrayLike, Floats
    from .distance import Metric


def _one(nu):
    return 1.0


def _root_of_2nu(nu):
    return sqrt(2 * nu)


@dataclass(frozen=True)
class Convention:
    """One package's way of writing the model.

    Parameters
    ----------
    names : tuple of str
        The package's words for variance, range, smoothness and nugget.
    scale : callable
        The package's range over ours, as a function of ν.
    relative_nugget : bool
        Whether its nugget is τ²/σ².
    inverse_range : bool
        Whether it gives 1/range.
    """

    names: tuple[str, str, str, str]
    scale: Callable = _one
    relative_nugget: bool = False
    inverse_range: bool = False


PACKAGES = {
    "geomxp": Convention(("variance", "range", "smoothness", "nugget")),
    "exageostat": Convention(("sigma_sq", "beta", "nu", "nugget")),
    "scikit-learn": Convention(("variance", "length_scale", "nu", "noise_level"), _root_of_2nu),
    "gpytorch": Convention(("outputscale", "lengthscale", "nu", "noise"), _root_of_2nu),
    "gpboost": Convention(("variance", "range", "shape", "error_term"), _root_of_2nu),
    "openturns": Convention(
        ("amplitude_squared", "scale", "nu", "nugget_factor"), _root_of_2nu, relative_nugget=True
    ),
    "gstools": Convention(("var", "len_scale", "nu", "nugget"), sqrt),
    "geor": Convention(("sigmasq", "phi", "kappa", "tausq")),
    "gstat": Convention(("psill", "range", "kappa", "nugget")),
    "fields": Convention(("sigma2", "aRange", "smoothness", "tau2")),
    "spmodel": Convention(("de", "range", "extra", "ie"), _root_of_2nu),
    "spamm": Convention(("lambda", "rho", "nu", "phi"), inverse_range=True),
    "gpgp": Convention(("variance", "range", "smoothness", "nugget"), relative_nugget=True),
}


def _named(package):
    try:
        return PACKAGES[package.lower()]
    except (KeyError, AttributeError):
        known = ", ".join(PACKAGES)
        raise InvalidInput(f"`package` must be one of: {known}. Got {package!r}.") from None


def to_ours(package, parameters):
    """Translate a package's parameters to ours, as keyword arguments of `Matern`."""
    convention = _named(package)
    variance, range_, smoothness, nugget = convention.names
    wrong = set(parameters) - set(convention.names)
    missing = {variance, range_, smoothness} - set(parameters)
    if wrong or missing:
        raise InvalidInput(
            f"{package} calls its parameters {', '.join(convention.names)}. "
            f"Got {', '.join(map(str, parameters)) or 'none'}."
        )
    sigma2, nu = float(parameters[variance]), float(parameters[smoothness])
    length = float(parameters[range_])
    if length <= 0 or nu <= 0:
        raise InvalidInput(
            f"`{range_}` and `{smoothness}` must be greater than 0. Got {length:g} and {nu:g}."
        )
    length = 1 / length if convention.inverse_range else length
    tau2 = float(parameters.get(nugget, 0.0))
    return {
        "variance": sigma2,
        "range": length / convention.scale(nu),
        "smoothness": nu,
        "nugget": tau2 * sigma2 if convention.relative_nugget else tau2,
    }


def from_ours(package, parameters):
    """Translate our parameters (a dict as of `Matern.parameters`) to a package's own names."""
    convention = _named(package)
    if "anisotropy_ratio" in parameters:
        raise InvalidInput("`to_convention` translates isotropic models only.")
    sigma2, nu, tau2 = (parameters[name] for name in ("variance", "smoothness", "nugget"))
    length = parameters["range"] * convention.scale(nu)
    ours = (
        sigma2,
        1 / length if convention.inverse_range else length,
        nu,
        tau2 / sigma2 if convention.relative_nugget else tau2,
    )
    return dict(zip(convention.names, ours, strict=True))


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
    anisotropy : Anisotropy, (angle, ratio) or None
        Geometric anisotropy, for locations in the plane.

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
    shapes = (Parameter("smoothness", 0.5, search=(0.02, 30.0)),)
    last_octave: ClassVar[int] = 20  # 2^20 > 745², where exp(-r) is below the smallest number

    variance: float
    range: float
    smoothness: float
    nugget: float = 0.0
    anisotropy: Anisotropy | None = None

    if TYPE_CHECKING:
        # what may be given; the fields say what is kept
        def __init__(
            self,
            variance: float,
            range: float,
            smoothness: float,
            nugget: float = 0.0,
            anisotropy: Anisotropy | tuple[float, float] | None = None,
        ) -> None: ...

    @property
    def tabulated(self) -> bool:
        """Whether there is a table of polynomials: ν ≤ 50."""
        return self.smoothness <= bessel.LARGE_ORDER

    def check_tabulated(self, remedy: str) -> None:
        """Raise `InvalidInput`, with a remedy, if ν > 50."""
        if not self.tabulated:
            raise InvalidInput(
                f"`smoothness` must be at most {bessel.LARGE_ORDER:g} here. "
                f"Got {self.smoothness:g}. {remedy}"
            )

    def expansions(self, centre: Floats, half_width: Floats) -> bessel.BesselSeries:
        """Return expansions of the correlation and its derivatives on pieces of s."""
        return bessel.BesselSeries(self.smoothness, centre, half_width)

    def evaluate(self, what: str, r: ArrayLike) -> Floats:
        """Evaluate the correlation, its slope or its derivative by ν; see `Isotropic.evaluate`."""
        r = np.minimum(np.asarray(r, dtype=np.float64), 1e4 * max(1.0, self.smoothness))
        function = {
            "correlation": bessel.correlation,
            "smoothness": bessel.correlation_by_smoothness,
            "slope": bessel.correlation_slope,
        }[what]
        return function(r, self.smoothness)

    def limits(self, metric: Metric | str, dimensions: int) -> dict[str, tuple[float, float]]:
        """Return the bounds of each parameter.

        With great-circle distances a Matérn model is positive definite only for ν ≤ ½
        (Gneiting 2013, Bernoulli 19:1327).
        """
        found = super().limits(metric, dimensions)
        return found | ({"smoothness": (0.0, 0.5)} if metric_of(metric).arc else {})

    def practical_range(self) -> float:
        """Return a√(8ν), the distance with correlation near 0.14 whatever ν is (Lindgren 2011)."""
        return practical_range(self.range, self.smoothness)

    @property
    def infill_exponent(self) -> float:
        """2ν: dense data determine variance/range^(2ν)."""
        return 2 * self.smoothness

    @classmethod
    def from_convention(cls, package: str, **parameters: float) -> Matern:
        """Make the model that another package means by its own parameters.

        Parameters
        ----------
        package : str
            One of `geomxp.covariance.matern.PACKAGES`: "scikit-learn", "gpytorch",
            "gpboost", "gstools", "geor", "spmodel", "gpgp", "gstat", "exageostat", "spamm", …
        **parameters
            Under the package's own names, as `to_convention` returns them.

        Examples
        --------
        >>> Matern.from_convention("scikit-learn", variance=1.0, length_scale=3.0, nu=1.5).range
        1.7320508075688774
        """
        return cls(**to_ours(package, parameters))

    def to_convention(self, package: str) -> dict[str, float]:
        """Return this model's parameters as another package writes them, as a dict.

        Examples
        --------
        >>> Matern(1.0, 2.0, 2.0).to_convention("gpytorch")["lengthscale"]
        4.0
        """
        return from_ours(package, self.parameters())


PARAMETERS = (*(p.name for p in Matern.declared), "anisotropy_angle", "anisotropy_ratio")
"""Names of the parameters, in the order in which geomxp lists them."""


def practical_range(range_: float, nu: float) -> float:
    """Return a√(8ν), the distance with correlation near 0.14 whatever ν is (Lindgren 2011)."""
    return range_ * sqrt(8 * nu)
