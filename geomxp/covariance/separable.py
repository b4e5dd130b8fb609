"""The separable Matérn family: C = σ² M_ν(h/a) M_η(|u|/b).

Valid wherever M_ν is, with great-circle distances for ν ≤ ½. Observations at other locations add
nothing to a prediction at a location that is observed at all times (without a nugget): space and
time do not interact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .matern import Matern
from .parameter import Parameter
from .space_time import TIME_RANGE, SpaceTime, distance_at
from .term import Clock


class SeparableInTime(SpaceTime):
    """Base of separable models, with Matérn's correlation in time."""

    temporal = (Parameter("time_smoothness", 0.5, search=(0.02, 30.0), starts=(1.0,)),)

    @property
    def time(self) -> Matern:
        """The correlation of the field at one location, as a function of the lag in time."""
        return Matern(1.0, self.time_range, self.time_smoothness)

    @property
    def tabulated(self) -> bool:
        """Whether there are tables of polynomials: smoothnesses are at most 50."""
        return self.space.tabulated and self.time.tabulated

    def check_tabulated(self, remedy: str) -> None:
        """Raise `InvalidInput`, with a remedy, if the correlation cannot be tabulated."""
        self.space.check_tabulated(remedy)
        self.time.check_tabulated(remedy)

    def half_lag(self) -> float:
        """Return the lag at which the correlation is ½."""
        return distance_at(self.time.unit, 0.5) * self.time_range

    def clock(self, dimensions: int) -> Clock:
        """Return the functions of time; see `SpaceTime.clock`."""
        terms = {TIME_RANGE.name: ("slope", None), "time_smoothness": ("smoothness", None)}
        return Clock(self.time, "correlation", None, terms)


@dataclass(frozen=True)
class Separable(SeparableInTime):
    """A separable model, Matérn in space and in time: C(h, u) = σ² M_ν(h/a) M_η(|u|/b).

    Parameters
    ----------
    variance : float
        σ² > 0, in squared units of the values.
    range : float
        a > 0, in the units of the locations (km for longitude and latitude).
    time_range : float
        b > 0, in the unit of the times.
    smoothness, time_smoothness : float
        ν > 0 in space and η > 0 in time; M_ν is the correlation of `Matern`.
    nugget : float
        τ² ≥ 0.

    Examples
    --------
    >>> import numpy as np, geomxp as gx
    >>> model = Separable(2.0, 0.5, 3.0, smoothness=0.5, time_smoothness=0.5)
    >>> a = gx.Inputs(np.array([[0.0, 0.0]]), time=np.array([0.0]))
    >>> b = gx.Inputs(np.array([[0.0, 0.5]]), time=np.array([3.0]))
    >>> bool(np.allclose(model(a, b), 2 * np.exp(-2.0)))
    True
    """

    family = "separable"
    on_sphere: ClassVar = Matern.on_sphere

    variance: float
    range: float
    time_range: float
    smoothness: float
    time_smoothness: float
    nugget: float = 0.0
