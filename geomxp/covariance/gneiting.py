"""Gneiting's non-separable family with a Matérn margin in space.

    C(h, u) = σ² ψ^-(δ + β d/2) M_ν(h / (a ψ^(β/2))),   ψ = 1 + |u/b|^2α

Gneiting (2002, JASA 97:590), equation 14, with any ν: M_ν(√·) is completely monotone. At one time
the field is Matérn; at one location the correlation is of the Cauchy type. The interaction β joins
space and time: with β = 0 they are separable. d is the dimension in which distances are Euclidean,
3 for chordal distances on the sphere. Valid there for 0 < α ≤ 1, 0 ≤ β ≤ 1 and δ ≥ 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from .parameter import Parameter
from .space_time import TIME_RANGE, SpaceTime
from .table import ONE_AT_ZERO, Sampled
from .term import Clock

if TYPE_CHECKING:
    from .._typing import Callable, Floats


FREE_AT_0 = {"transform": "identity", "closed": True, "starts": (1.0,)}


@dataclass(frozen=True)
class _Functions:
    """G = ψ^-(δ + β d/2), Q = ψ^-β and their derivatives, as functions of v = (u/b)²."""

    power: float
    interaction: float
    decay: float
    dimensions: int

    support: ClassVar[None] = None
    last_octave: ClassVar[int] = 1020

    @property
    def table_key(self):
        return (type(self), self.power, self.interaction, self.decay, self.dimensions)

    def expansions(self, octaves):
        return Sampled(self, octaves)

    def evaluate(self, what, r):
        """Evaluate a function for r = |u|/b ≥ 0."""
        r = np.asarray(r, dtype=np.longdouble)
        found = np.where(r == 0, 1.0 if what in ONE_AT_ZERO else 0.0, 0.0)
        found[r > 0] = self.at_squares(r[r > 0] ** 2, None)(what)
        return found

    def at_squares(self, v: Floats, rest: Floats) -> Callable[[str], Floats]:
        """Return the function of a name in `Clock` that evaluates at v > 0."""
        exponent = self.decay + self.interaction * self.dimensions / 2
        risen = v ** np.longdouble(self.power)
        log_psi = np.log1p(risen)
        decay = np.exp(-exponent * log_psi)
        share = risen / (1 + risen)
        # ∂ log ψ of the three parameters that ψ depends on
        by_range, by_power = 2 * self.power * share, share * np.log(v)

        def function(what):
            if what == "time decay":
                return decay
            if what == "time stretch":
                return np.exp(-self.interaction * log_psi)
            name, part = what.split(" of ")
            change = {
                "time_range": (-exponent * by_range, -self.interaction * by_range),
                "time_power": (-exponent * by_power, -self.interaction * by_power),
                "interaction": (-self.dimensions / 2 * log_psi, -log_psi),
                "time_decay": (-log_psi, None),
            }[name]
            return decay * change[0] if part == "decay" else decay * change[1] / 2

        return function


class GneitingInTime(SpaceTime):
    """Base of Gneiting's models, in which time stretches distances."""

    needs_mixture = True
    temporal = (
        Parameter("time_power", 0.5, upper=1.0, search=(0.05, 1.0), starts=(1.0,)),
        Parameter("interaction", 0.5, upper=1.0, **FREE_AT_0, search=(0.0, 1.0)),
        Parameter("time_decay", 0.5, **FREE_AT_0, search=(0.0, 10.0)),
    )

    def half_lag(self) -> float:
        """Return the lag at which the correlation in the plane is ½.

        A shorter one where δ + β < 0.1, and never more than 10¹⁰⁰ times the range in time.
        """
        exponent = max(self.time_decay + self.interaction, 0.1)
        logarithm = np.log(2.0 ** (1 / exponent) - 1) * 0.5 / self.time_power
        return self.time_range * float(np.exp(min(logarithm, 230.0)))

    def clock(self, dimensions: int) -> Clock:
        """Return the functions of time; see `SpaceTime.clock`."""
        shapes = self.time_power, self.interaction, self.time_decay
        names = (TIME_RANGE.name, "time_power", "interaction")
        terms = {name: (f"{name} of decay", f"{name} of stretch") for name in names}
        terms["time_decay"] = ("time_decay of decay", None)
        return Clock(_Functions(*shapes, dimensions), "time decay", "time stretch", terms)


@dataclass(frozen=True)
class Gneiting(GneitingInTime):
    """A non-separable model: C = σ² ψ^-(δ + β d/2) M_ν(h / (a ψ^(β/2))), ψ = 1 + |u/b|^2α.

    Parameters
    ----------
    variance : float
        σ² > 0, in squared units of the values.
    range : float
        a > 0, in the units of the locations (km for longitude and latitude).
    time_range : float
        b > 0, in the unit of the times.
    smoothness : float
        ν > 0, in space; M_ν is the correlation of `Matern`.
    time_power : float
        α, 0 < α ≤ 1: the correlation in time falls as 1 - |u/b|^2α at first.
    interaction : float
        β, 0 ≤ β ≤ 1, between space and time; 0 is separable.
    time_decay : float
        δ ≥ 0: more decay in time at every distance. With δ = β = 0 a field does not change.
    nugget : float
        τ² ≥ 0.

    Examples
    --------
    >>> import numpy as np, geomxp as gx
    >>> model = Gneiting(1.0, 0.5, 3.0, 0.5, time_power=1.0, interaction=1.0, time_decay=0.0)
    >>> a = gx.Inputs(np.array([[0.0, 0.0]]), time=np.array([0.0]))
    >>> b = gx.Inputs(np.array([[0.0, 0.0]]), time=np.array([3.0]))
    >>> model(a, b).round(12).tolist()
    [[0.5]]
    """

    family = "gneiting"

    variance: float
    range: float
    time_range: float
    smoothness: float
    time_power: float
    interaction: float
    time_decay: float
    nugget: float = 0.0
