"""Geometric anisotropy: the range depends on the direction.

A linear map M brings locations to coordinates in which the model is isotropic, with the range along
the first of them. It has parameters: those of an ellipse in the plane, of an ellipsoid in space, or
one ratio for each further axis.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import copysign, cos, inf, radians, sin
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..errors import InvalidInput
from .parameter import Parameter

if TYPE_CHECKING:
    from typing import Self

    from .._typing import Collection, Floats, Mapping

_DEGREES = {"transform": "identity", "lower": -inf, "unit": "degrees"}
ANGLE = Parameter("anisotropy_angle", 0.0, search=(-180.0, 360.0), **_DEGREES)
DIP = Parameter("anisotropy_dip", 0.0, search=(-90.0, 90.0), **_DEGREES)
ROLL = Parameter("anisotropy_roll", 0.0, search=(-180.0, 360.0), **_DEGREES)
RATIO = Parameter("anisotropy_ratio", 0.5, upper=1.0, search=(0.02, 1.0))
THIRD_RATIO = Parameter("anisotropy_ratio_3", 0.5, upper=1.0, search=(0.02, 1.0))
SECOND_AXIS = Parameter("axis_ratio_2", 1.0, search=(1e-3, 1e3))
THIRD_AXIS = Parameter("axis_ratio_3", 1.0, search=(1e-3, 1e3))


@dataclass(frozen=True)
class LinearMap:
    """Base of maps to coordinates in which a model is isotropic.

    A subclass is a frozen dataclass with a field for each declared parameter, in its order, and
    defines `matrix` and `slopes`.

    Attributes
    ----------
    declared : tuple of Parameter
        The parameters, with values to start from.
    dimensions : int
        Number of coordinates of a location.
    """

    declared: ClassVar[tuple[Parameter, ...]] = ()
    dimensions: ClassVar[int] = 2

    def __post_init__(self) -> None:
        for field, parameter in zip(fields(self), self.declared, strict=True):
            object.__setattr__(self, field.name, parameter.check(getattr(self, field.name)))

    def parameters(self) -> dict[str, float]:
        """Return the values of the parameters by name."""
        values = (getattr(self, field.name) for field in fields(self))
        return {p.name: value for p, value in zip(self.declared, values, strict=True)}

    @classmethod
    def from_parameters(cls, values: Mapping[str, float]) -> Self:
        """Make a map from values by name; angles that are not given are 0."""
        missing = [p.name for p in cls.declared if p.name not in values and p.unit != "degrees"]
        if missing:
            given = next(p.name for p in cls.declared if p.name in values)
            raise InvalidInput(f"`{given}` needs `{missing[0]}`: give both.")
        return cls(*(values.get(p.name, p.value) for p in cls.declared))

    def matrix(self) -> Floats:
        """Return M, (d, d)."""
        raise NotImplementedError

    def slopes(self) -> Floats:
        """Return the derivatives of M by the parameters, (k, d, d)."""
        raise NotImplementedError

    def generators(self) -> dict[str, Floats]:
        """Return (∂M)M⁻¹ for each parameter, by name, each (d, d)."""
        back = np.linalg.inv(self.matrix())
        return {p.name: slope @ back for p, slope in zip(self.declared, self.slopes(), strict=True)}


@dataclass(frozen=True)
class Anisotropy(LinearMap):
    """Geometric anisotropy in the plane: an ellipse.

    Parameters
    ----------
    angle : float
        Direction of the longest range, in degrees counter-clockwise from the x-axis.
    ratio : float
        Shortest range over longest range, in (0, 1]; the model's `range` is the longest one.
        Angle and ratio are as in GSTools (there in radians); gstat counts its angle clockwise
        from north.

    Examples
    --------
    >>> Anisotropy(90.0, 0.5).matrix().round(12).tolist()
    [[0.0, 1.0], [-2.0, 0.0]]
    """

    declared = (ANGLE, RATIO)
    angle: float
    ratio: float

    def matrix(self) -> Floats:
        """Return M, (2, 2). Rows: along the longest range; across it, divided by the ratio."""
        c, s = cos(radians(self.angle)), sin(radians(self.angle))
        return np.array([[c, s], [-s / self.ratio, c / self.ratio]])

    def slopes(self) -> Floats:
        """Return the derivatives of M by the angle (per degree) and the ratio, (2, 2, 2)."""
        c, s, q = cos(radians(self.angle)), sin(radians(self.angle)), self.ratio
        by_angle = radians(1.0) * np.array([[-s, c], [-c / q, -s / q]])
        return np.array([by_angle, [[0.0, 0.0], [s / q**2, -c / q**2]]])


@dataclass(frozen=True)
class Anisotropy3D(LinearMap):
    """Geometric anisotropy in space: an ellipsoid.

    Parameters
    ----------
    angle : float
        Direction of the longest range in the plane of the first two axes, in degrees
        counter-clockwise from the first.
    dip : float
        Degrees by which the longest range rises above that plane.
    roll : float
        Degrees by which the second longest range is turned about the longest one, out of the
        plane towards the third axis.
    ratio, third_ratio : float
        Ranges along the second and the third principal axis over the longest one, in (0, 1]. The
        model's `range` is the longest.

    Notes
    -----
    Several sets of angles have the same ellipsoid. A fit has that of `principal`: 0 ≤ angle < 180,
    -90 ≤ dip ≤ 90, 0 ≤ roll < 180 and third_ratio ≤ ratio.

    Examples
    --------
    A layered medium, with a tenth of the range across the layers:

    >>> Anisotropy3D(0.0, 0.0, 0.0, 1.0, 0.1).matrix().tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 10.0]]
    """

    declared = (ANGLE, DIP, ROLL, RATIO, THIRD_RATIO)
    dimensions = 3
    angle: float
    dip: float
    roll: float
    ratio: float
    third_ratio: float

    def principal(self, free: Collection[str] | None = None) -> Self:
        """Return the same ellipsoid with its principal angles.

        Only the parameters whose names are `free`, by default all, change.

        Examples
        --------
        >>> Anisotropy3D(200.0, 10.0, 30.0, 0.2, 0.5).principal()
        Anisotropy3D(angle=20.0, dip=-10.0, roll=60.0, ratio=0.5, third_ratio=0.2)
        """
        names = {p.name for p in self.declared}
        held = names - set(names if free is None else free)
        angle, dip, roll, ratio, third = self.parameters().values()
        if third > ratio and not held & {ROLL.name, RATIO.name, THIRD_RATIO.name}:
            ratio, third, roll = third, ratio, roll + 90.0
        if abs(dip) > 90.0 and not held & {ANGLE.name, DIP.name}:
            dip = (dip + 180.0) % 360.0 - 180.0
            if abs(dip) > 90.0:
                # the same direction, from the other side of the vertical
                angle, dip = angle + 180.0, copysign(180.0, dip) - dip
        if ANGLE.name not in held:
            angle %= 360.0
            turns = (DIP.name not in held or dip == 0) and (ROLL.name not in held or roll % 90 == 0)
            if angle >= 180.0 and turns:
                # the same axis, from its other end
                angle, dip = angle - 180.0, -dip or 0.0
                roll = roll if ROLL.name in held else -roll
        if ROLL.name not in held:
            roll %= 180.0
        return type(self)(angle, dip, roll, ratio, third)

    def _turns(self):
        """Return the turns about the third, the second and the first axis, and their slopes."""
        turns, slopes = [], []
        for degrees, (i, j) in ((self.angle, (0, 1)), (self.dip, (0, 2)), (self.roll, (1, 2))):
            c, s = cos(radians(degrees)), sin(radians(degrees))
            turn, slope = np.eye(3), np.zeros((3, 3))
            turn[[i, i, j, j], [i, j, i, j]] = c, s, -s, c
            slope[[i, i, j, j], [i, j, i, j]] = radians(1.0) * np.array((-s, c, -c, -s))
            turns.append(turn)
            slopes.append(slope)
        return turns, slopes

    def matrix(self) -> Floats:
        """Return M, (3, 3). Rows: the principal axes, the longest first, over their ratios."""
        (about_third, about_second, about_first), _ = self._turns()
        ratios = np.array((1.0, self.ratio, self.third_ratio))
        return about_first @ about_second @ about_third / ratios[:, None]

    def slopes(self) -> Floats:
        """Return the derivatives of M by angles (per degree) and ratios, (5, 3, 3)."""
        (a, b, c), (da, db, dc) = self._turns()
        ratios, whole = np.array((1.0, self.ratio, self.third_ratio)), c @ b @ a
        by_angles = [turn / ratios[:, None] for turn in (c @ b @ da, c @ db @ a, dc @ b @ a)]
        by_ratios = np.zeros((2, 3, 3))
        for k in (1, 2):
            by_ratios[k - 1, k] = -whole[k] / ratios[k] ** 2
        return np.concatenate((by_angles, by_ratios))


@dataclass(frozen=True)
class AxisRatios(LinearMap):
    """One range for each axis of the plane.

    Parameters
    ----------
    second : float
        The range along the second axis over the model's `range`, which is that along the first.

    Examples
    --------
    >>> AxisRatios(4.0).matrix().tolist()
    [[1.0, 0.0], [0.0, 0.25]]
    """

    declared = (SECOND_AXIS,)
    second: float

    def matrix(self) -> Floats:
        """Return M, diagonal, (d, d)."""
        return np.diag((1.0, *(1 / ratio for ratio in self.parameters().values())))

    def slopes(self) -> Floats:
        """Return the derivatives of M by the ratios, (d - 1, d, d)."""
        ratios = list(self.parameters().values())
        result = np.zeros((len(ratios), len(ratios) + 1, len(ratios) + 1))
        for k, ratio in enumerate(ratios):
            result[k, k + 1, k + 1] = -1 / ratio**2
        return result

    def ellipse(self) -> tuple[float, LinearMap]:
        """Return the longest range over that along the first axis, and the ellipse or ellipsoid.

        Examples
        --------
        >>> AxisRatios(4.0).ellipse()
        (4.0, Anisotropy(angle=90.0, ratio=0.25))
        """
        lengths = [1.0, *self.parameters().values()]
        first, *others = sorted(range(len(lengths)), key=lambda k: -lengths[k])
        ratios = [lengths[k] / lengths[first] for k in others]
        angle, dip = 90.0 * (first == 1), 90.0 * (first == 2)
        if self.dimensions == 2:
            return lengths[first], Anisotropy(angle, *ratios)
        # without roll the second principal axis is the first or, across that, the second one
        roll = 90.0 * (others[0] != (0 if first == 1 else 1))
        return lengths[first], Anisotropy3D(angle, dip, roll, *ratios)


@dataclass(frozen=True)
class AxisRatios3D(AxisRatios):
    """One range for each of three axes.

    Parameters
    ----------
    second, third : float
        The ranges along the second and the third axis over the model's `range`, which is that
        along the first.

    Examples
    --------
    >>> AxisRatios3D(1.0, 0.1).matrix().tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 10.0]]
    """

    declared = (SECOND_AXIS, THIRD_AXIS)
    dimensions = 3
    third: float


KINDS = (Anisotropy, Anisotropy3D, AxisRatios, AxisRatios3D)
"""Maps, by which names of parameters are recognised."""

NAMES = frozenset(p.name for kind in KINDS for p in kind.declared)
"""Names of the parameters of all maps."""


def anisotropy_of(given: LinearMap | tuple[float, float] | None) -> LinearMap | None:
    """Return a map given as such, as a pair (angle, ratio) of the plane, or as None."""
    if given is None or isinstance(given, LinearMap):
        return given
    try:
        angle, ratio = given
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(
            f"`anisotropy` must be a pair (angle in degrees, ratio). Got {given!r}."
        ) from None
    return Anisotropy(angle, ratio)


def from_parameters(values: Mapping[str, float]) -> LinearMap | None:
    """Return the map that values of parameters by name mean; None without any of its names.

    Examples
    --------
    >>> from_parameters({"range": 2.0, "anisotropy_angle": 30.0, "anisotropy_ratio": 0.5})
    Anisotropy(angle=30.0, ratio=0.5)
    """
    known = {name: x for name, x in values.items() if name in NAMES and x is not None}
    kind = kind_with(known)
    return kind and kind.from_parameters(known)


def kind_with(names: Collection[str]) -> type[LinearMap] | None:
    """Return the kind of map with the fewest parameters that has some names; None without any."""
    wanted = set(names) & NAMES
    if not wanted:
        return None
    for kind in sorted(KINDS, key=lambda kind: len(kind.declared)):
        if wanted <= {p.name for p in kind.declared}:
            return kind
    raise InvalidInput(f"no anisotropy has the parameters {', '.join(sorted(wanted))} together.")
