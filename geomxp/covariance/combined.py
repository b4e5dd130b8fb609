"""Families combined: one in time with one in space, of one variable or several.

A name joins the names of the parts, "separable-spherical" or "gneiting-parsimonious-matern". The
parameters are those of the parts.
"""

from __future__ import annotations

from dataclasses import field, make_dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..errors import InvalidInput, with_article
from .base import FAMILIES, RANGE, VARIANCE, Inputs, Isotropic
from .coregionalization import Coregionalization, Coregionalized
from .distance import metric_of
from .gneiting import Gneiting, GneitingInTime
from .matern import Matern
from .matern_space_time import CoordinateInTime, MaternSpaceTime
from .multivariate import EACH_VARIABLE, ONE_FOR_ALL, Multivariate, SameLocation
from .multivariate_matern import Independent, Uncorrelated
from .separable import Separable, SeparableInTime
from .space_time import TIME_RANGE, SpaceTime
from .table import Sampled
from .term import Clock, Term

if TYPE_CHECKING:
    from .._typing import Callable, Floats
    from .base import Covariance
    from .distance import Metric

IN_TIME = {
    "separable": (SeparableInTime, Separable),
    "gneiting": (GneitingInTime, Gneiting),
    "metric": (CoordinateInTime, MaternSpaceTime),
}
"""Models of time by name: the base, and the family with Matérn's correlation in space."""

OF_VARIABLES = {
    "independent": (Uncorrelated, Independent),
    "coregionalization": (Coregionalized, Coregionalization),
}
"""Models of several variables that are valid with any isotropic correlation, by name: the base, and
the family with Matérn's."""


@cache
def in_time(name: str, space: type[Covariance]) -> type[Covariance]:
    """Return the family with a model of time and a family of one variable or several in space.

    Parameters
    ----------
    name : {"separable", "gneiting", "metric"}
        G(u) ρ(h), Gneiting's model, or ρ(√(h²/a² + u²/b²)).
    space : type
        An isotropic family, or one of several variables.

    Raises
    ------
    InvalidInput
        Where the combination is not a covariance.
    """
    base, matern = IN_TIME[name]
    inner = space.in_space if issubclass(space, Multivariate) else space
    if base.needs_mixture and not inner.is_mixture:
        raise InvalidInput(
            f"Gneiting's model stretches distances: it needs a correlation that is a mixture of "
            f"Gaussian ones, valid in all dimensions, and that of the family {inner.family!r} is "
            'not. Use a "separable" model, or another correlation.'
        )
    if space is Matern:
        return matern
    title = f"{name}-{space.family}"
    if issubclass(space, Multivariate):
        groups = {key: group for key, group in space.groups.items() if key != "nugget"}
        groups |= {p.name: (ONE_FOR_ALL, p) for p in (TIME_RANGE, *matern.temporal)}
        groups["nugget"] = space.groups["nugget"]
        more = [(p.name, object, field(kw_only=True)) for p in (TIME_RANGE, *matern.temporal)]
        own = {"groups": groups, "family": title, "timing": matern, "title": name}
        return _made(title, (_VariablesInTime, space), more, own)
    own = {"in_space": space, "family": title}
    own["on_sphere"] = space.on_sphere if base is SeparableInTime else None
    parameters = (VARIANCE, RANGE, TIME_RANGE, *space.shapes, *base.temporal)
    fields = [(p.name, float) for p in parameters] + [("nugget", float, field(default=0.0))]
    return _made(title, (base,), fields, own)


@cache
def of_variables(name: str, space: type[Isotropic]) -> type[Multivariate]:
    """Return the family of several variables with an isotropic correlation in space.

    Parameters
    ----------
    name : {"independent", "coregionalization"}
    space : type
        An isotropic family.
    """
    base, matern = OF_VARIABLES[name]
    if space is Matern:
        return matern
    groups = {}
    for key, group in matern.groups.items():
        if key == "smoothness":
            groups |= {shape.name: (EACH_VARIABLE, shape) for shape in space.shapes}
        else:
            groups[key] = group
    fields = [(key, object) for key in groups if key != "nugget"]
    fields.append(("nugget", object, field(default=0.0)))
    fields.append(("nugget_covariance", object, field(default=None, kw_only=True)))
    title = f"{name}-{space.family}"
    return _made(title, (base,), fields, {"groups": groups, "family": title, "in_space": space})


def _made(title, bases, fields, own):
    """Make a class; it is an attribute of this module, by which it is unpickled."""
    name = title.title().replace("-", "")
    doc = f"Combined family {title}; see `{__name__}`."
    own |= {"__doc__": doc, "__module__": __name__}
    globals()[name] = make_dataclass(name, fields, bases=bases, frozen=True, namespace=own)
    return globals()[name]


@cache
def named(title: str) -> type[Covariance] | None:
    """Return the family of a combination's name; None for other names.

    Examples
    --------
    >>> named("separable-spherical").declared[0].name
    'variance'
    """
    first, _, rest = title.partition("-")
    if not rest or first not in {**IN_TIME, **OF_VARIABLES}:
        return None
    space = FAMILIES.get(rest) or named(rest)
    if space is None or "time" in space.uses:
        return None
    if first in IN_TIME:
        return in_time(first, space)
    return None if "variable" in space.uses else of_variables(first, space)


def titles() -> tuple[str, ...]:
    """Return the names of all combinations of families that have names and are covariances."""
    alone = [kind for kind in FAMILIES.values() if issubclass(kind, Isotropic)]
    several = [kind for kind in FAMILIES.values() if issubclass(kind, Multivariate)]
    spaces = [f"{name}-{kind.family}" for name in OF_VARIABLES for kind in alone if kind != Matern]
    spaces += [kind.family for kind in (*alone, *several)]
    known = {kind.family for kind in FAMILIES.values()}
    found = [f"{name}-{space}" for name in IN_TIME for space in spaces]
    found += [space for space in spaces if space not in known]
    return tuple(title for title in found if _is_covariance(title))


def _is_covariance(title):
    try:
        return named(title) is not None
    except InvalidInput:
        return False


def __getattr__(name):
    """Return a class that has not been made in this process, such as that of a worker."""
    for title in titles():
        if title.title().replace("-", "") == name:
            return named(title)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _VariablesInTime(Multivariate):
    """Base of families of several variables whose terms have functions of time."""

    uses = ("time", "variable")
    timing: ClassVar[type[SpaceTime]] = Separable
    title: ClassVar[str] = "separable"

    @classmethod
    def family_alone(cls) -> type[SpaceTime]:
        """Return the family of one variable alone."""
        return in_time(cls.title, cls.in_space)

    @classmethod
    def _shared(cls, marginals):
        names = [TIME_RANGE.name, *(parameter.name for parameter in cls.timing.temporal)]
        return {name: float(np.mean([getattr(one, name) for one in marginals])) for name in names}

    @property
    def _timing(self):
        """A model of one variable with the functions of time."""
        names = [parameter.name for parameter in self.timing.temporal]
        return self.timing(
            1.0, 1.0, self.time_range, 0.5, **{name: getattr(self, name) for name in names}
        )

    def terms(self, dimensions: int) -> list[Term]:
        """Return the terms of the covariance; see `Multivariate.terms`."""
        timed = [self._timing.timed(term, dimensions) for term in super().terms(dimensions)]
        if self.nugget_covariance is not None and timed[0].clock is not None:
            # noise has nothing in common at different times
            *_, white = timed
            alone = Clock(_SameTime(white.clock.decay), white.clock.decay, white.clock.stretch)
            timed[-1] = replace(white, clock=alone, changes=super().terms(dimensions)[-1].changes)
        return timed

    @property
    def tabulated(self) -> bool:
        """Whether there are tables of polynomials; see `Matern.tabulated`."""
        return super().tabulated and self._timing.tabulated

    def check_tabulated(self, remedy: str) -> None:
        """Raise `InvalidInput`, with a remedy, if the correlation cannot be tabulated."""
        super().check_tabulated(remedy)
        self._timing.check_tabulated(remedy)

    def valid_dimensions(self, metric: Metric | str, dimensions: int) -> float:
        """Return the dimensions in which the field must be valid; see `Multivariate`."""
        if self.timing.needs_mixture:
            return np.inf
        return super().valid_dimensions(metric, dimensions) + self.timing.further_axes

    def check_valid_on(self, metric: Metric | str, dimensions: int) -> None:
        """Raise `InvalidInput`, with a remedy, where the model is not positive definite."""
        if metric_of(metric).arc and self.timing is not Separable:
            raise InvalidInput(
                f"{with_article(self.family)} model is not known to be a covariance with "
                "great-circle distances: use the chordal metric."
            )
        super().check_valid_on(metric, dimensions)

    # neighbours: times and variables are as far apart as locations of the same correlation

    def _time_scale(self, shortest):
        """Return the factor that converts times to distances, for the mean variable."""
        own = range(self.variables)
        if self._timing.clock(2) is None:
            ranges = [term.range[k, k] for term in self.components() for k in own]
            return float(np.exp(np.mean(np.log(ranges)))) / self.time_range
        lag, correlation = self._timing.matched(shortest)
        lengths = [self._length(k, correlation) for k in own]
        return float(np.exp(np.mean(np.log(lengths)))) / lag

    def isotropic(self, inputs: Inputs, metric: Metric | str = "euclidean") -> Floats:
        """Map inputs to points (n, k + 1): the last coordinate is time, as far as distances."""
        inputs = Inputs.of(inputs, metric)
        return np.column_stack((self.points(inputs), inputs.time * self._time_scale(0.0)))

    def neighbour_key(self, known: Inputs) -> tuple[int, ...]:
        """Return the time scale and the distances of variables, as half powers of two."""
        scale = round(2 * np.log2(self._time_scale(known.median_step)))
        return scale, *super().neighbour_key(known)

    def neighbour_points(self, inputs: Inputs, key: tuple[int, ...]) -> Floats:
        """Map inputs to points (n, k + 1 + q): coordinates, time and those of the variables."""
        scale, *apart = key
        points = super().neighbour_points(inputs, tuple(apart))
        return np.column_stack((points, inputs.time * 2.0 ** (scale / 2)))


class _SameTime:
    """Functions of time of noise: 1 at one time, as the decay, and 0 elsewhere."""

    support, last_octave = None, SameLocation.last_octave

    def __init__(self, decay):
        self._decay = decay

    @property
    def table_key(self):
        return type(self), self._decay

    def expansions(self, octaves):
        return Sampled(self, octaves)

    def at_squares(self, v: Floats, rest: Floats) -> Callable[[str], Floats]:
        """Return the function of a name that evaluates at v > 0."""
        return lambda what: np.ones_like(v) if what == "time stretch" else np.zeros_like(v)

    def evaluate(self, what, r):
        """Evaluate a function for r = |u|/b ≥ 0."""
        r = np.asarray(r, dtype=np.longdouble)
        return np.where((r == 0) & (what == self._decay) | (what == "time stretch"), 1.0, 0.0)
