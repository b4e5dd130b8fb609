"""Space-time families: what they share.

With h the distance and u the lag in time, and v = (u/b)²,

    C(h, u) = σ² G(v) ρ(h √Q(v) / a),

where ρ is the correlation of an isotropic family. The decay G is the correlation in time at one
location, the stretch Q shortens distances as the lag grows; Q = 1 makes space and time separable.
Each function comes from a table of polynomials (`covariance.table`): an entry needs no power and no
Bessel function.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..errors import InvalidInput, with_article
from .base import RANGE, VARIANCE, Inputs, Isotropic, Tabulated
from .conventions import Convention
from .distance import metric_of
from .matern import Matern
from .parameter import Parameter
from .term import Change, Clock, Term

if TYPE_CHECKING:
    from .._typing import ArrayLike, Floats, Mapping
    from .anisotropy import LinearMap
    from .distance import Metric

TIME_RANGE = Parameter("time_range", 1.0, unit="time")
SMOOTHNESS = replace(Matern.shapes[0], starts=(0.6, 1.0, 3.0))


@lru_cache(maxsize=256)
def distance_at(unit: Isotropic, correlation: float) -> float:
    """Return the distance at which a model of range 1 has a correlation."""
    return unit.effective_range(correlation)


HIGHEST_MATCHED, LOWEST_MATCHED = 0.99, 1e-6
"""Bounds on the correlation at which `SpaceTime.time_scale` matches distances and lags."""


LARGEST_LOG_LAG = 230.0
"""Largest logarithm of an effective lag over the range in time, 10¹⁰⁰."""


@dataclass(frozen=True, repr=False)
class SpaceTime(Tabulated):
    """Base of space-time families.

    A subclass is a frozen dataclass with the fields variance, range, time_range, the shapes of
    `in_space`, the parameters in `temporal`, and nugget, in this order. It sets `family`,
    `temporal` and, if it is not Matérn's in space, `in_space`, and defines `clock` and, unless time
    is a coordinate, `half_lag`.

    Parameters
    ----------
    anisotropy : Anisotropy, Anisotropy3D, AxisRatios, AxisRatios3D, (angle, ratio) or None
        Geometric anisotropy in space; a pair is that of locations in the plane.

    Attributes
    ----------
    in_space : type
        The isotropic family of the correlation at one time.
    temporal : tuple of Parameter
        Parameters of G and Q besides the range in time.
    shapes : tuple of Parameter
        Those of the correlation in space and those of `temporal`.
    needs_mixture : bool
        Whether ρ(√·) must be completely monotone, because time stretches distances.
    further_axes : int
        1 where time is a coordinate, in which the correlation in space must be valid too.
    conventions : dict of str to Convention
        How other packages write the family, by package.
    on_sphere : dict of str to (float, float), or None
        Bounds of parameters with great-circle distances; None if the family is not valid there.
    """

    uses = ("time",)
    temporal: ClassVar[tuple[Parameter, ...]] = ()
    shapes: ClassVar[tuple[Parameter, ...]] = ()
    conventions: ClassVar[Mapping[str, Convention]] = {}
    in_space: ClassVar[type[Isotropic]] = Matern
    on_sphere: ClassVar[Mapping[str, tuple[float, float]] | None] = None
    needs_mixture: ClassVar[bool] = False
    further_axes: ClassVar[int] = 0
    anisotropy: LinearMap | None = field(default=None, kw_only=True)

    if TYPE_CHECKING:
        variance: float
        range: float
        time_range: float

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        in_space = (SMOOTHNESS,) if cls.in_space is Matern else cls.in_space.shapes
        cls.shapes = (*in_space, *cls.temporal)
        cls.declared = (VARIANCE, RANGE, TIME_RANGE, *cls.shapes, *cls.noise_parts)

    # what a family defines

    def clock(self, dimensions: int) -> Clock | None:
        """Return the functions of time in a space of so many dimensions.

        None if time is another coordinate: C = σ² ρ(√(h²/a² + u²/b²)).
        """
        raise NotImplementedError

    def half_lag(self) -> float:
        """Return the lag at which the correlation in the plane is ½."""
        raise NotImplementedError

    def correlation_in_time(self, lag: float, dimensions: int = 2) -> float:
        """Return the correlation at a lag, at one location, by default in the plane."""
        place = np.zeros((1, dimensions))
        inputs = [Inputs(place, time=np.array([when])) for when in (0.0, lag)]
        # at one location anisotropy has no effect
        return float(replace(self, anisotropy=None)(*inputs)[0, 0] / self.variance)

    # what all families inherit

    def time_scale(self, shortest: float = 0.0) -> float:
        """Return the factor that converts times to distances: h/u for equal correlations.

        The lag u is the one with correlation ½, but at least `shortest`, because the data have no
        information on shorter lags; h is the distance with the same correlation.
        """
        if self.clock(2) is None:
            return self.range / self.time_range
        lag, correlation = self.matched(shortest)
        return distance_at(self.space.unit, correlation) * self.range / lag

    def matched(self, shortest: float) -> tuple[float, float]:
        """Return the lag that is matched with a distance, and its correlation; see `time_scale`."""
        lag, correlation = self.half_lag(), 0.5
        if lag < shortest:
            lag, correlation = shortest, self.correlation_in_time(shortest)
        return lag, min(max(correlation, LOWEST_MATCHED), HIGHEST_MATCHED)

    @property
    def space(self) -> Isotropic:
        """The covariance of the field at one time, without anisotropy."""
        shapes = (getattr(self, shape.name) for shape in self.in_space.shapes)
        return self.in_space(self.variance, self.range, *shapes, self.nugget)

    @property
    def tabulated(self) -> bool:
        """Whether there is a table of polynomials; see `Matern.tabulated`."""
        return self.space.tabulated

    def check_tabulated(self, remedy: str) -> None:
        """Raise `InvalidInput`, with a remedy, if the correlation cannot be tabulated."""
        self.space.check_tabulated(remedy)

    def terms(self, dimensions: int) -> list[Term]:
        """Return the only term; see `Tabulated.terms`."""
        changes = {
            VARIANCE.name: Change(amplitude=1.0),
            RANGE.name: Change(log_range=1 / self.range),
            **{one.name: Change(shapes={one.name: 1.0}) for one in self.in_space.shapes},
        }
        term = Term(self.space, self.variance, self.range, changes=changes)
        return self.turned([self.timed(term, dimensions)])

    def timed(self, term: Term, dimensions: int) -> Term:
        """Return a term in space with this model's functions of time."""
        changes = {name.name: Change(clock={name.name: 1.0}) for name in self.temporal}
        # a function of |u|/b changes with log b as with -log |u|
        changes[TIME_RANGE.name] = Change(clock={TIME_RANGE.name: -1 / self.time_range})
        return replace(
            term,
            time_range=self.time_range,
            clock=self.clock(dimensions),
            changes={**term.changes, **changes},
        )

    def isotropic(self, inputs: Inputs | ArrayLike, metric: Metric | str = "euclidean") -> Floats:
        """Map inputs to points (n, k + 1): the last coordinate is time, by `time_scale`."""
        inputs = Inputs.of(inputs, metric)
        return np.column_stack((self.points(inputs), inputs.time * self.time_scale()))

    def neighbour_key(self, known: Inputs) -> int:
        """Return `time_scale` at lags of at least the median step, in half powers of two."""
        return round(2 * np.log2(self.time_scale(known.median_step)))

    def moved_key(self, key: int, halves: int) -> int:
        """Return the key whose times count 2^(halves/2) times as much."""
        return key + halves

    def neighbour_points(self, inputs: Inputs, key: int) -> Floats:
        """Map inputs to points (n, k + 1): the last coordinate is time, times 2^(key/2)."""
        return inputs.with_time_axis(2.0 ** (key / 2))

    def limits(self, metric: Metric | str, dimensions: int) -> dict[str, tuple[float, float]]:
        """Return the bounds of each parameter; see `Covariance.limits`."""
        found = super().limits(metric, dimensions)
        if metric_of(metric).arc:
            return found | (self.on_sphere or {})
        within = self.space.limits(*self._of_space(metric, dimensions))
        return found | {shape.name: within[shape.name] for shape in self.in_space.shapes}

    def widest_limits(
        self, metric: Metric | str, dimensions: int
    ) -> dict[str, tuple[float, float]] | None:
        """Return the bounds of each parameter for any values of the others."""
        within = self.space.widest_limits(*self._of_space(metric, dimensions))
        if within is None or metric_of(metric).arc:
            return None
        shapes = {shape.name: within[shape.name] for shape in self.in_space.shapes}
        return self.limits(metric, dimensions) | shapes

    def _of_space(self, metric, dimensions):
        """Return metric and dimensions in which the correlation in space must be valid."""
        if not self.further_axes:
            return metric, dimensions
        return "euclidean", metric_of(metric).dimensions(dimensions) + self.further_axes

    def check_valid_on(self, metric: Metric | str, dimensions: int) -> None:
        """Raise `InvalidInput`, with a remedy, where the model is not positive definite."""
        metric = metric_of(metric)
        if metric.arc and self.on_sphere is None:
            raise InvalidInput(
                f"{with_article(self.family)} model is not known to be a covariance with "
                "great-circle distances: use the chordal metric."
            )
        super().check_valid_on(metric, dimensions)
        if not metric.arc:
            self.space.check_valid_on(*self._of_space(metric, dimensions))
        self.check_anisotropy(metric, dimensions)

    def effective_range(self, correlation: float = 0.05) -> float:
        """Return the distance at which the correlation at one time has fallen to 5 %, or as given.

        See `Isotropic.effective_range`.
        """
        return self.space.effective_range(correlation)

    def effective_lag(self, correlation: float = 0.05, dimensions: int = 2) -> float:
        """Return the lag at which the correlation at one location has fallen to 5 %, or as given.

        Parameters
        ----------
        correlation : float
            Between 0 and 1.
        dimensions : int
            Of the distances: 3 for the chordal ones.

        Returns
        -------
        float, in the units of `time_range`
            Infinite if it is more than 10¹⁰⁰ times the range in time.

        Examples
        --------
        >>> import geomxp as gx
        >>> round(gx.Separable(1.0, 1.0, 1.0, 0.5, 0.5).effective_lag(), 4)
        2.9957
        """
        from scipy.optimize import brentq

        def above(logarithm):
            lag = self.time_range * np.exp(logarithm)
            return self.correlation_in_time(lag, dimensions) - correlation

        ends = [0.0, 0.0]
        for end, step in enumerate((-4.0, 4.0)):
            while above(ends[end]) * step > 0:
                ends[end] += step
                if abs(ends[end]) > LARGEST_LOG_LAG:
                    return inf if step > 0 else 0.0
        return self.time_range * float(np.exp(brentq(above, *ends, xtol=1e-12)))

    def practical_range(self) -> float:
        """Return the practical range in space; see `Matern.practical_range`."""
        return self.space.practical_range()

    @property
    def infill_exponent(self) -> float:
        """2ν; see `Matern.infill_exponent`."""
        return self.space.infill_exponent
