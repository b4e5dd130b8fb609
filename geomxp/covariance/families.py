"""The covariance families by name."""

from ..errors import InvalidInput, did_you_mean
from .base import Covariance
from .cauchy import Cauchy
from .gaussian import Gaussian
from .matern import Matern
from .powered_exponential import PoweredExponential
from .rational_quadratic import RationalQuadratic
from .spherical import Spherical
from .wendland import Wendland

FAMILIES = {
    family.family: family
    for family in (
        Matern,
        Gaussian,
        PoweredExponential,
        Cauchy,
        RationalQuadratic,
        Spherical,
        Wendland,
    )
}
"""Families that have names; any other is given as a class or a model."""


def family_of(family: str | type[Covariance] | Covariance) -> type[Covariance]:
    """Return the class of a family, given by name, as a class or by a model.

    Examples
    --------
    >>> family_of("matern")
    <class 'geomxp.covariance.matern.Matern'>
    """
    if isinstance(family, Covariance):
        return type(family)
    if isinstance(family, type) and issubclass(family, Covariance):
        return family
    try:
        return FAMILIES[family]
    except (KeyError, TypeError):
        known = ", ".join(FAMILIES)
        raise InvalidInput(
            f"`family` must be one of {known}, or a subclass of gx.Covariance. Got {family!r}."
            f"{did_you_mean(family, FAMILIES)}"
        ) from None
