"""Parameters of models: their values and what may be done with them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache
from math import inf, isfinite
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

FIELD, NOISE, TRANSFORMATION, RESPONSE = "field", "noise", "transformation", "response"
"""What a parameter is a parameter of."""


@cache
def name_of(group: str, where: tuple[int, ...]) -> str:
    """Return the name of one number of a parameter that variables have.

    Examples
    --------
    >>> name_of("correlation", (0, 1)), name_of("correlation", (0, 11)), name_of("range", ())
    ('correlation_12', 'correlation_1_12', 'range')
    """
    numbers = [str(k + 1) for k in where]
    between = "" if max(map(len, numbers), default=1) == 1 else "_"
    return f"{group}_{between.join(numbers)}" if where else group


@dataclass(frozen=True)
class Parameter:
    """One parameter of a family: its value, and what may be done with it.

    Parameters
    ----------
    name : str
    value : float
        In a model's `table` the model's own value; in a family's `declared` table a value to
        start from.
    transform : {"log", "identity"}
        Coordinate in which a search moves and in which intervals are symmetric.
    lower, upper : float
        The value must be greater than `lower` and at most `upper`.
    unit : {"", "value", "value²", "length", "time", "degrees"}
    linear : bool
        Whether Σ is linear in it.
    closed : bool
        Whether `lower` itself is allowed.
    search : (float, float), optional
        Interval to which a search keeps unless the user gives bounds.
    starts : tuple of float, optional
        Values of a parameter without a unit at which searches start, in units of the declared
        `value`; chosen by the search if not given.
    role : {"field", "noise", "transformation", "response"}
        What it is a parameter of.
    where : tuple of int
        Numbers of the variables that it belongs to, from 0; empty for all.
    group : str
        Its name without its variables; `name` if not given.

    Examples
    --------
    >>> Parameter("power", 1.0, upper=2.0).check(1.5)
    1.5
    >>> Parameter("correlation", 0.0, "identity", -1.0, 1.0).of((0, 2)).name
    'correlation_13'
    """

    name: str
    value: float
    transform: str = "log"
    lower: float = 0.0
    upper: float = inf
    unit: str = ""
    linear: bool = False
    closed: bool = False
    search: tuple[float, float] | None = None
    starts: tuple[float, ...] | None = None
    role: str = FIELD
    where: tuple[int, ...] = ()
    group: str = ""

    def __post_init__(self) -> None:
        if not self.group:
            object.__setattr__(self, "group", self.name)

    def of(self, where: tuple[int, ...]) -> Self:
        """Return the parameter of some variables, by their numbers from 0."""
        return replace(self, name=name_of(self.group, where), where=where)

    def check(self, value: float) -> float:
        """Return the value as a float; raise `InvalidInput` if it is not allowed."""
        number = finite(self.name, value)
        # a search may miss a limit by rounding
        for end, allowed in ((self.upper, True), (self.lower, self.closed)):
            if allowed and isfinite(end) and abs(number - end) <= LIMIT_ROUNDING * abs(end):
                number = end
        if number > self.upper or number < self.lower or (number == self.lower and not self.closed):
            wanted = [f"at least {self.lower:g}" if self.closed else f"greater than {self.lower:g}"]
            wanted = [] if self.lower == -inf else wanted
            wanted += [] if self.upper == inf else [f"at most {self.upper:g}"]
            raise InvalidInput(
                f"`{self.name}` must be {' and '.join(wanted)}. Got {self.name}={number!r}."
            )
        return number


class Parametrized:
    """Base of frozen dataclasses with a field for each declared parameter.

    Attributes
    ----------
    declared : tuple of Parameter
        The parameters, with values to start from; none by default.
    """

    declared: ClassVar[tuple[Parameter, ...]] = ()

    def __post_init__(self) -> None:
        for parameter in self.declared:
            value = parameter.check(getattr(self, parameter.name))
            object.__setattr__(self, parameter.name, value)

    @property
    def table(self) -> tuple[Parameter, ...]:
        """The parameters with their values."""
        values = self.parameters()
        return tuple(replace(p, value=values[p.name]) for p in self.declared)

    def parameters(self) -> dict[str, float]:
        """Return the values of the parameters by name."""
        return {p.name: getattr(self, p.name) for p in self.declared}

    def parameter(self, name: str) -> Parameter:
        """Return a parameter, with its value, by its name."""
        return next(p for p in self.table if p.name == name)

    def constants(self) -> dict[str, float]:
        """Return the values of all fields by name: parameters, and constants such as a scale."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def with_values(self, values: Mapping[str, float]) -> Self:
        """Return the same with other values of its fields; other names do not count."""
        known = {name: values[name] for name in self.constants() if name in values}
        return replace(self, **known) if known else self


def finite(name: str, value: float) -> float:
    """Return a value as a float; raise `InvalidInput` if it is not a finite number."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(f"`{name}` must be a number. Got {value!r}.") from None
    if not isfinite(number):
        raise InvalidInput(f"`{name}` must be a finite number. Got {name}={number!r}.")
    return number


LIMIT_ROUNDING = 1e-14
"""Distance from a limit, relative to it, that counts as none."""

_CENTRAL_WEIGHTS = tuple(np.longdouble(a) / b for a, b in ((4, 5), (-1, 5), (4, 105), (-1, 280)))
"""Weights of a central difference of order 8."""


def central_derivative(function, step):
    """Return the derivative of a function of one number at 0, by a central difference."""
    total = 0.0
    for k, weight in enumerate(_CENTRAL_WEIGHTS, start=1):
        for sign in (1, -1):
            total = total + sign * weight * function(sign * k * step)
    return total / step
