"""Parametrizations of other packages, and conversions to and from our parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import InvalidInput

if TYPE_CHECKING:
    from .._typing import Mapping, Sequence


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

    def to_ours(self, package: str, parameters: Mapping[str, float]) -> list[float]:
        """Return our variance, range, shape parameters and nugget; a missing nugget is 0."""
        variance, range_, *shapes, nugget = self.names
        if set(parameters) - set(self.names) or set(self.names[:-1]) - set(parameters):
            raise InvalidInput(
                f"{package} calls its parameters {', '.join(self.names)}. "
                f"Got {', '.join(map(str, parameters)) or 'none'}."
            )
        positive = [float(parameters[name]) for name in (range_, *shapes)]
        if min(positive) <= 0:
            named = " and ".join(f"`{name}`" for name in (range_, *shapes))
            values = " and ".join(f"{value:g}" for value in positive)
            raise InvalidInput(f"{named} must be greater than 0. Got {values}.")
        length, *shapes = positive
        sigma2, tau2 = float(parameters[variance]), float(parameters.get(nugget, 0.0))
        length = 1 / length if self.inverse_range else length
        length /= self._range_over_ours(shapes)
        return [sigma2, length, *shapes, tau2 * sigma2 if self.relative_nugget else tau2]

    def from_ours(self, ours: Sequence[float]) -> dict[str, float]:
        """Return the package's parameters, given ours as `to_ours` returns them."""
        sigma2, length, *shapes, tau2 = ours
        length *= self._range_over_ours(shapes)
        length = 1 / length if self.inverse_range else length
        tau2 = tau2 / sigma2 if self.relative_nugget else tau2
        return dict(zip(self.names, (sigma2, length, *shapes, tau2), strict=True))

    def _range_over_ours(self, shapes):
        return self.scale(*shapes) if callable(self.scale) else self.scale


def convention_of(conventions: Mapping[str, Convention], package: str) -> Convention:
    """Return the convention of a package; raise `InvalidInput` if it is unknown."""
    try:
        return conventions[package.lower()]
    except (KeyError, AttributeError):
        known = ", ".join(conventions)
        raise InvalidInput(f"`package` must be one of: {known}. Got {package!r}.") from None
