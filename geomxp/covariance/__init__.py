"""From locations to covariances."""

from . import combined
from .base import COMBINED, COMBINED_NAMES, FAMILIES
from .cauchy import Cauchy
from .coregionalization import Coregionalization
from .gaussian import Gaussian
from .gneiting import Gneiting
from .matern import Matern
from .matern_space_time import MaternSpaceTime
from .multivariate_matern import FlexibleMatern, Independent, ParsimoniousMatern
from .powered_exponential import PoweredExponential
from .rational_quadratic import RationalQuadratic
from .separable import Separable
from .spherical import Spherical
from .wendland import Wendland

_ORDERED = (
    *(Matern, Gaussian, PoweredExponential, Cauchy, RationalQuadratic, Spherical, Wendland),
    *(MaternSpaceTime, Separable, Gneiting),
    *(Independent, Coregionalization, ParsimoniousMatern, FlexibleMatern),
)
"""Families in the order of messages and tables."""

COMBINED.append(combined.named)
COMBINED_NAMES.append(combined.titles)
FAMILIES.update((family.family, family) for family in _ORDERED)
