"""Parametrizations of other packages, and conversions to and from our parameters."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from ..errors import GeomxpWarning, InvalidInput

if TYPE_CHECKING:
    from .._typing import Mapping, Sequence


@dataclass(frozen=True)
class Limit:
    """Values of a shape parameter for which a package evaluates the model.

    Parameters
    ----------
    name : str
        As the package calls it.
    lower, upper : float
        They lie from `lower` to `upper`.
    elsewhere : str
        What the package does with other values.
    only : tuple of float
        The only values, if they are few.
    """

    name: str
    lower: float = 0.0
    upper: float = inf
    elsewhere: str = ""
    only: tuple[float, ...] = ()

    @property
    def values(self) -> str:
        """The values in words."""
        if self.only:
            *some, last = (f"{value:g}" for value in self.only)
            return f"{', '.join(some)} and {last}"
        if self.lower == 0:
            return f"up to {self.upper:g}"
        return f"from {self.lower:g} to {self.upper:g}"

    def holds(self, value: float) -> bool:
        """Whether the package evaluates the model at a value."""
        if self.only:
            return any(abs(value - one) <= 1e-12 * one for one in self.only)
        return self.lower <= value <= self.upper


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
    limit : Limit or None
        Where the package evaluates another function, or refuses.
    """

    names: tuple[str, ...]
    scale: float | Callable[..., float] = 1.0
    relative_nugget: bool = False
    inverse_range: bool = False
    limit: Limit | None = None

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

    def beyond(self, package: str, parameters: Mapping[str, float]) -> str | None:
        """Say that the package does not evaluate the model at its parameters; None if it does."""
        if self.limit is None or self.limit.holds(parameters[self.limit.name]):
            return None
        name, value = self.limit.name, float(parameters[self.limit.name])
        return (
            f"{package} evaluates this model for {name} {self.limit.values} only. Got {name} = "
            f"{value:.6g}: for other values it {self.limit.elsewhere}."
        )

    def caution(self, package: str, parameters: Mapping[str, float]) -> None:
        """Warn if the package does not evaluate the model at its parameters."""
        message = self.beyond(package, parameters)
        if message:
            # of the caller of `to_convention` or `from_convention`
            warnings.warn(message, GeomxpWarning, stacklevel=3)

    def _range_over_ours(self, shapes):
        return self.scale(*shapes) if callable(self.scale) else self.scale


def convention_of(conventions: Mapping[str, Convention], package: str) -> Convention:
    """Return the convention of a package; raise `InvalidInput` if it is unknown."""
    try:
        return conventions[package.lower()]
    except (KeyError, AttributeError):
        known = ", ".join(conventions)
        raise InvalidInput(f"`package` must be one of: {known}. Got {package!r}.") from None
