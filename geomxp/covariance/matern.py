"""How other packages write the Matérn model, and the way to and from our parameters.

Ours: C(h) = σ² · 2^(1-ν)/Γ(ν) · (h/a)^ν · K_ν(h/a), nugget τ² a variance. Every other
convention scales the range by a function of ν, and some count the nugget in units of σ².
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from math import cos, isfinite, radians, sin, sqrt
from typing import TYPE_CHECKING

import numpy as np

from ..covariance import table
from ..errors import InvalidInput
from .distance import check_metric, embed

if TYPE_CHECKING:
    from .._typing import ArrayLike, Floats, Mapping, Sequence


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


# The Matérn covariance: its parameters, and its values and derivatives between places.
#
# C(h) = σ² · 2^(1-ν)/Γ(ν) · (h/a)^ν · K_ν(h/a), C(0) = σ² (+ τ² where an observation meets
# itself)
#
# σ² is the variance, a the range, ν the smoothness, τ² the nugget. There is no √(2ν) in it.


def correlation(r: ArrayLike, nu: float) -> Floats:
    """Evaluate ρ_ν(r) = 2^(1-ν)/Γ(ν) r^ν K_ν(r).

    Parameters
    ----------
    r : array_like
        Scaled distances h/a ≥ 0.
    nu : float
        Smoothness ν > 0.

    Returns
    -------
    ndarray, as r

    Examples
    --------
    >>> r = np.array([0.0, 0.5, 2.0])
    >>> bool(np.allclose(correlation(r, 0.5), np.exp(-r), rtol=1e-15))
    True
    """
    r = np.asarray(r, dtype=np.float64)
    if nu > table.LARGE_ORDER:
        return table.matern_large_order(r, nu)
    p = nu - 0.5
    if p == int(p) and p <= 10:
        return table.matern_half_integer(r, int(p))
    return table.matern_bessel(r, nu)


def correlation_slope(r: ArrayLike, nu: float) -> Floats:
    """Evaluate r·dρ_ν/dr, which is -r²ρ_{ν-1}(r)/(2(ν-1)) for ν > 1 (DLMF 10.29.4)."""
    r = np.asarray(r, dtype=np.float64)
    if nu == 0.5:
        return -r * np.exp(-r)
    if nu > 1:
        return -(r**2) * correlation(r, nu - 1) / (2 * (nu - 1))
    return table.slope_bessel(r, nu)


def correlation_by_smoothness(r: ArrayLike, nu: float) -> Floats:
    """Evaluate ∂ρ_ν(r)/∂ν by the central difference of order 8 (no closed form exists).

    With the step min(0.005, ν/8) the truncation and SciPy's rounding stay below 1e-10.
    """
    step = min(0.005, nu / 8)
    total = 0.0
    for k, weight in enumerate((4 / 5, -1 / 5, 4 / 105, -1 / 280), start=1):
        forward, backward = correlation(r, nu + k * step), correlation(r, nu - k * step)
        total = total + weight * (forward - backward)
    return total / step


@dataclass(frozen=True)
class Anisotropy:
    """Geometric anisotropy in the plane: the range depends on the direction.

    Parameters
    ----------
    angle : float
        Direction of the longest range, in degrees counter-clockwise from the x-axis.
    ratio : float
        Shortest range over longest range, in (0, 1]; the model's `range` is the longest one.
        Angle and ratio are as in GSTools (there in radians); gstat counts its angle clockwise
        from north.
    """

    angle: float
    ratio: float

    def __post_init__(self):
        for name in ("angle", "ratio"):
            object.__setattr__(self, name, _number(f"anisotropy_{name}", getattr(self, name)))
        if not 0 < self.ratio <= 1:
            raise InvalidInput(
                "`anisotropy_ratio` is the shortest range over the longest one: "
                f"it must lie in (0, 1]. Got {self.ratio!r}."
            )

    def matrix(self) -> Floats:
        """Return the (2, 2) map to coordinates where the model is isotropic.

        Rows: along the longest range; across it, stretched by 1/ratio.
        """
        c, s = cos(radians(self.angle)), sin(radians(self.angle))
        return np.array([[c, s], [-s / self.ratio, c / self.ratio]])

    def matrix_derivatives(self) -> tuple[Floats, Floats]:
        """Return d matrix/d angle (per degree) and d matrix/d ratio."""
        c, s, q = cos(radians(self.angle)), sin(radians(self.angle)), self.ratio
        by_angle = radians(1.0) * np.array([[-s, c], [-c / q, -s / q]])
        by_ratio = np.array([[0.0, 0.0], [s / q**2, -c / q**2]])
        return by_angle, by_ratio


PARAMETERS = ("variance", "range", "smoothness", "nugget", "anisotropy_angle", "anisotropy_ratio")
"""Names of the parameters, in the order in which geomxp lists them."""


@dataclass(frozen=True)
class Matern:
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

    def __post_init__(self):
        for name in ("variance", "range", "smoothness", "nugget"):
            value = _number(name, getattr(self, name))
            if value < 0 or (value == 0 and name != "nugget"):
                least = "at least 0" if name == "nugget" else "greater than 0"
                raise InvalidInput(f"`{name}` must be {least}. Got {name}={value!r}.")
            object.__setattr__(self, name, value)
        if self.anisotropy is not None and not isinstance(self.anisotropy, Anisotropy):
            try:
                angle, ratio = self.anisotropy
            except (TypeError, ValueError):
                raise InvalidInput(
                    "`anisotropy` must be a pair (angle in degrees, ratio). "
                    f"Got {self.anisotropy!r}."
                ) from None
            object.__setattr__(self, "anisotropy", Anisotropy(angle, ratio))

    def __call__(self, a: ArrayLike, b: ArrayLike, metric: str = "euclidean") -> Floats:
        """Evaluate the covariance of the field, without the nugget, between two sets of places.

        Parameters
        ----------
        a, b : (n, d), (m, d) ndarray
            Locations.
        metric : {"euclidean", "chordal", "great-circle"}

        Returns
        -------
        (n, m) ndarray, Fortran order
        """
        from .generate import Generator

        self.check_valid_on(metric, np.shape(a)[-1])
        return Generator(self, metric, a, b).covariance()

    def covariance(self, h: ArrayLike) -> Floats:
        """Evaluate C(h) of the field (without the nugget) at (isotropic) distances h."""
        return self.variance * self.correlation(h)

    def correlation(self, h: ArrayLike) -> Floats:
        """Evaluate the correlation C(h)/σ² at distances h, in the units of `range`."""
        with np.errstate(over="ignore"):
            # h/a may overflow to inf, where the correlation is 0
            r = np.asarray(h, dtype=np.float64) / self.range
            r = np.minimum(r, 1e4 * max(1.0, self.smoothness))
        return correlation(r, self.smoothness)

    def isotropic(self, locations: ArrayLike, metric: str = "euclidean") -> Floats:
        """Map locations to points between which the model depends on distance only."""
        points = embed(np.asarray(locations, dtype=np.float64), metric)
        return points if self.anisotropy is None else points @ self.anisotropy.matrix().T

    def derivatives(
        self,
        a: ArrayLike,
        b: ArrayLike,
        metric: str = "euclidean",
        names: Sequence[str] | None = None,
    ) -> dict[str, Floats]:
        """Evaluate the derivatives of the field's covariance with respect to the parameters.

        Parameters
        ----------
        a, b : (n, d), (m, d) ndarray
            Locations.
        metric : str
        names : sequence of str, optional
            Parameters wanted, of `parameters()`; all of them if not given. The nugget is left
            out: its derivative is 1 where an observation meets itself.

        Returns
        -------
        dict of str to (n, m) ndarray
        """
        from .generate import Generator

        pairs = Generator(self, metric, a, b)
        wanted = self.parameters() if names is None else names
        return pairs.derivatives(slice(0, len(a)), slice(0, len(b)), wanted)

    def check_valid_on(self, metric: str, dimensions: int) -> None:
        """Raise `InvalidInput` where this model is no covariance for the metric and dimensions.

        With great-circle distances a Matérn model is positive definite only for ν ≤ ½
        (Gneiting 2013, Bernoulli 19:1327).
        """
        check_metric(metric)
        if metric == "great-circle" and self.smoothness > 0.5:
            raise InvalidInput(
                "with great-circle distances a Matérn model needs smoothness at most 0.5. "
                f"Got smoothness={self.smoothness:g}: use the chordal metric."
            )
        if self.anisotropy is not None and (metric != "euclidean" or dimensions != 2):
            raise InvalidInput(
                "`anisotropy` needs Euclidean locations in 2 dimensions. "
                f"Got metric={metric!r} in {dimensions}."
            )

    def parameters(self) -> dict[str, float]:
        """Return the parameters as a dict by name; with anisotropy its angle and ratio too."""
        values = {name: getattr(self, name) for name in PARAMETERS[:4]}
        if self.anisotropy is not None:
            values["anisotropy_angle"] = self.anisotropy.angle
            values["anisotropy_ratio"] = self.anisotropy.ratio
        return values

    @classmethod
    def from_parameters(cls, values: Mapping[str, float]) -> Matern:
        """Make a model from a dict as `parameters` returns it.

        Examples
        --------
        >>> model = Matern(1.0, 2.0, 0.7, 0.1, (30.0, 0.5))
        >>> Matern.from_parameters(model.parameters()) == model
        True
        """
        plain = {field.name: values[field.name] for field in fields(cls) if field.name in values}
        if values.get("anisotropy_ratio") is not None:
            plain["anisotropy"] = Anisotropy(
                values.get("anisotropy_angle", 0.0), values["anisotropy_ratio"]
            )
        return cls(**plain)

    def effective_range(self, correlation: float = 0.05) -> float:
        """Return the distance at which the correlation has fallen to 5 % (or as given).

        Returns
        -------
        float, in the units of `range`

        Examples
        --------
        >>> round(Matern(1.0, 1.0, 0.5).effective_range(), 4)
        2.9957
        """
        from scipy.optimize import brentq

        unit = Matern(1.0, 1.0, self.smoothness)
        top = 1.0
        while unit.correlation(top) > correlation:
            top *= 2
        # below any distance with a correlation above the level, also for ν near 0
        bottom = top
        while unit.correlation(bottom) < correlation:
            bottom /= 2
            if bottom < 1e-300:
                return 0.0
        if bottom == top:
            return self.range * top
        root = brentq(lambda r: float(unit.correlation(r)) - correlation, bottom, top, xtol=1e-300)
        return self.range * root

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


def _number(name, value):
    try:
        value = float(value)
    except (TypeError, ValueError):
        raise InvalidInput(f"`{name}` must be a number. Got {value!r}.") from None
    if not isfinite(value):
        raise InvalidInput(f"`{name}` must be a finite number. Got {name}={value!r}.")
    return value


def practical_range(range_: float, nu: float) -> float:
    """Return a√(8ν), the distance with correlation near 0.14 whatever ν is (Lindgren 2011)."""
    return range_ * sqrt(8 * nu)
