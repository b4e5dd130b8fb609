"""From locations to covariances."""

from .base import FAMILIES
from .cauchy import Cauchy
from .gaussian import Gaussian
from .matern import Matern
from .powered_exponential import PoweredExponential
from .rational_quadratic import RationalQuadratic
from .spherical import Spherical
from .wendland import Wendland

_ORDERED = (
    *(Matern, Gaussian, PoweredExponential, Cauchy, RationalQuadratic, Spherical, Wendland),
)
"""Families in the order of messages and tables."""

FAMILIES.update((family.family, family) for family in _ORDERED)
