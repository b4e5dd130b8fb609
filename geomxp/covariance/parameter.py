"""Parameters of models: their values and what may be done with them."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite

import numpy as np

from ..errors import InvalidInput


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
    unit : {"", "value²", "length", "time", "degrees"}
    linear : bool
        Whether Σ is linear in it.
    closed : bool
        Whether `lower` itself is allowed.
    search : (float, float), optional
        Interval to which a search keeps unless the user gives bounds.
    starts : tuple of float, optional
        Values of a parameter without a unit at which searches start, in units of the declared
        `value`; chosen by the search if not given.

    Examples
    --------
    >>> Parameter("power", 1.0, upper=2.0).check(1.5)
    1.5
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

    def check(self, value: float) -> float:
        """Return the value as a float; raise `InvalidInput` if it is not allowed."""
        number = finite(self.name, value)
        if number > self.upper or number < self.lower or (number == self.lower and not self.closed):
            wanted = [f"at least {self.lower:g}" if self.closed else f"greater than {self.lower:g}"]
            wanted = [] if self.lower == -inf else wanted
            wanted += [] if self.upper == inf else [f"at most {self.upper:g}"]
            raise InvalidInput(
                f"`{self.name}` must be {' and '.join(wanted)}. Got {self.name}={number!r}."
            )
        return number


def finite(name: str, value: float) -> float:
    """Return a value as a float; raise `InvalidInput` if it is not a finite number."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(f"`{name}` must be a number. Got {value!r}.") from None
    if not isfinite(number):
        raise InvalidInput(f"`{name}` must be a finite number. Got {name}={number!r}.")
    return number


_CENTRAL_WEIGHTS = tuple(np.longdouble(a) / b for a, b in ((4, 5), (-1, 5), (4, 105), (-1, 280)))
"""Weights of a central difference of order 8."""


def central_derivative(function, step):
    """Return the derivative of a function of one number at 0, by a central difference."""
    total = 0.0
    for k, weight in enumerate(_CENTRAL_WEIGHTS, start=1):
        for sign in (1, -1):
            total = total + sign * weight * function(sign * k * step)
    return total / step
