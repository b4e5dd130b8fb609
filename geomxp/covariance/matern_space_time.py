"""The Matérn family with time as a further, scaled coordinate: C = σ² M_ν(√(h²/a² + u²/b²)).

Valid in all Euclidean dimensions, because it is a Matérn covariance of one dimension more. GpGp's
`matern_spacetime`, and with the chordal metric its `matern_spheretime`.
"""

from __future__ import annotations

from dataclasses import dataclass

from .space_time import SpaceTime


class CoordinateInTime(SpaceTime):
    """Base of models with a scaled axis of time: C(h, u) = σ² ρ(√(h²/a² + u²/b²))."""

    further_axes = 1

    def clock(self, dimensions: int) -> None:
        """Return None: time is a coordinate."""
        return


@dataclass(frozen=True)
class MaternSpaceTime(CoordinateInTime):
    """A Matérn model with a scaled axis of time: C(h, u) = σ² M_ν(√(h²/a² + u²/b²)).

    Parameters
    ----------
    variance : float
        σ² > 0, in squared units of the values.
    range : float
        a > 0, in the units of the locations (km for longitude and latitude).
    time_range : float
        b > 0, in the unit of the times.
    smoothness : float
        ν > 0, in space and in time; M_ν is the correlation of `Matern`.
    nugget : float
        τ² ≥ 0.

    Examples
    --------
    >>> import numpy as np, geomxp as gx
    >>> model = MaternSpaceTime(2.0, range=0.5, time_range=3.0, smoothness=0.5)
    >>> a = gx.Inputs(np.array([[0.0, 0.0]]), time=np.array([0.0]))
    >>> b = gx.Inputs(np.array([[0.0, 0.5], [0.0, 0.0]]), time=np.array([0.0, 3.0]))
    >>> bool(np.allclose(model(a, b), 2 * np.exp(-1.0)))
    True
    """

    family = "matern-space-time"

    variance: float
    range: float
    time_range: float
    smoothness: float
    nugget: float = 0.0
