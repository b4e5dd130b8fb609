"""How other packages parametrize a family, and conversions to and from our parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import InvalidInput

if TYPE_CHECKING:
    from .._typing import Mapping


@dataclass(frozen=True)
class Convention:
    """One package's way of writing a model.

    Parameters
    ----------
    names : tuple of str
        The package's names for variance, range, the shape parameters and the nugget.
    scale : float or callable
        The package's range over ours; a callable takes the shape parameters.
    relative_nugget : bool
        Whether its nugget is τ²/σ².
    inverse_range : bool
        Whether it gives 1/range.
    """

    names: tuple[str, ...]
    scale: float | Callable[..., float] = 1.0
    relative_nugget: bool = False
    inverse_range: bool = False

    def range_over_ours(self, shapes):
        """Return the package's range over ours for values of the shape parameters."""
        return self.scale(*shapes) if callable(self.scale) else self.scale


def _convention(conventions, package):
    try:
        return conventions[package.lower()]
    except (KeyError, AttributeError):
        known = ", ".join(conventions)
        raise InvalidInput(f"`package` must be one of: {known}. Got {package!r}.") from None


def to_ours(
    names: tuple[str, ...],
    conventions: Mapping[str, Convention],
    package: str,
    parameters: Mapping[str, float],
) -> dict[str, float]:
    """Convert a package's parameters to ours.

    Parameters
    ----------
    names : tuple of str
        Our names: variance, range, the shape parameters, nugget.
    conventions : dict of str to Convention
        Those of the family, by package.
    package : str
    parameters : dict of str to float
        Under the package's names; a nugget that is missing is 0.

    Raises
    ------
    InvalidInput
        If the package is unknown, or its parameters are not those of its convention.
    """
    convention = _convention(conventions, package)
    variance, range_, *shapes, nugget = convention.names
    if set(parameters) - set(convention.names) or set(convention.names[:-1]) - set(parameters):
        raise InvalidInput(
            f"{package} calls its parameters {', '.join(convention.names)}. "
            f"Got {', '.join(map(str, parameters)) or 'none'}."
        )
    positive = [float(parameters[name]) for name in (range_, *shapes)]
    if min(positive) <= 0:
        raise InvalidInput(
            f"{' and '.join(f'`{name}`' for name in (range_, *shapes))} must be greater than 0. "
            f"Got {' and '.join(f'{value:g}' for value in positive)}."
        )
    length, *shapes = positive
    sigma2, tau2 = float(parameters[variance]), float(parameters.get(nugget, 0.0))
    length = 1 / length if convention.inverse_range else length
    length /= convention.range_over_ours(shapes)
    tau2 = tau2 * sigma2 if convention.relative_nugget else tau2
    return dict(zip(names, (sigma2, length, *shapes, tau2), strict=True))


def from_ours(
    names: tuple[str, ...],
    conventions: Mapping[str, Convention],
    package: str,
    parameters: Mapping[str, float],
) -> dict[str, float]:
    """Convert our parameters, as `Covariance.parameters` returns them; see `to_ours`."""
    convention = _convention(conventions, package)
    if "anisotropy_ratio" in parameters:
        raise InvalidInput("`to_convention` translates isotropic models only.")
    sigma2, length, *shapes, tau2 = (parameters[name] for name in names)
    length *= convention.range_over_ours(shapes)
    length = 1 / length if convention.inverse_range else length
    tau2 = tau2 / sigma2 if convention.relative_nugget else tau2
    return dict(zip(convention.names, (sigma2, length, *shapes, tau2), strict=True))
