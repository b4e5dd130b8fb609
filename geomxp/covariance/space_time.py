"""Space-time families: what they share.

With h the distance and u the lag in time, and v = (u/b)²,

    C(h, u) = σ² G(v) ρ(h √Q(v) / a),

where ρ is Matérn's correlation. The decay G is the correlation in time at one location, the stretch
Q shortens distances as the lag grows; Q = 1 makes space and time separable. Each function comes
from a table of polynomials (`covariance.table`): an entry needs no power and no Bessel function.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..errors import InvalidInput
from .base import RANGE, VARIANCE, Covariance, Inputs
from .conventions import Convention
from .distance import metric_of
from .generate import TimePairs
from .matern import Matern
from .parameter import NOISE, Parameter

if TYPE_CHECKING:
    from .._typing import ArrayLike, Floats, Mapping, Sequence
    from .distance import Metric

TIME_RANGE = Parameter("time_range", 1.0, unit="time")
SMOOTHNESS = replace(Matern.shapes[0], starts=(0.6, 1.0, 3.0))


@lru_cache(maxsize=256)
def distance_at(correlation: float, smoothness: float) -> float:
    """Return the scaled distance h/a at which Matérn's correlation has this value."""
    return Matern(1.0, 1.0, smoothness).effective_range(correlation)


HIGHEST_MATCHED, LOWEST_MATCHED = 0.99, 1e-6
"""Bounds on the correlation at which `SpaceTime.time_scale` matches distances and lags."""


LARGEST_LOG_LAG = 230.0
"""Largest logarithm of an effective lag over the range in time, 10¹⁰⁰."""


@dataclass(frozen=True)
class Clock:
    """The functions of v = (u/b)² in a space-time covariance, and their tables.

    Parameters
    ----------
    source : object with `evaluate`, `table_key`, `expansions`, `support` and `last_octave`
        What `table.table_of` takes: an isotropic model, or an object as one.
    decay, stretch : str or None
        The names in its tables of G and Q; without Q space and time are separable.
    terms : dict of str to (str, str or None)
        For each parameter of time the names of ∂G and of ½ G ∂ log Q: the derivative of the
        correlation is ∂G ρ + (½ G ∂ log Q) r ρ'(r). For "time_range" ∂ is r_t d/dr_t, r_t = |u|/b.
    """

    source: Any
    decay: str
    stretch: str | None = None
    terms: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)

    def evaluate(self, what: str, v: ArrayLike) -> Floats:
        """Evaluate one of the functions by its formula."""
        return self.source.evaluate(what, np.sqrt(v))


class SpaceTime(Covariance):
    """Base of space-time families with a Matérn correlation in space.

    A subclass is a frozen dataclass with the fields variance, range, time_range, smoothness, the
    parameters in `temporal`, and nugget, in this order. It sets `family` and `temporal` and defines
    `clock`.

    Attributes
    ----------
    temporal : tuple of Parameter
        Parameters of G and Q besides the range in time.
    shapes : tuple of Parameter
        The smoothness and those of `temporal`.
    conventions : dict of str to Convention
        How other packages write the family, by package.
    on_sphere : dict of str to (float, float), or None
        Bounds of parameters with great-circle distances; None if the family is not valid there.
    """

    uses = ("time",)
    temporal: ClassVar[tuple[Parameter, ...]] = ()
    shapes: ClassVar[tuple[Parameter, ...]] = ()
    conventions: ClassVar[Mapping[str, Convention]] = {}
    anisotropy: ClassVar[None] = None
    on_sphere: ClassVar[Mapping[str, tuple[float, float]] | None] = None
    variance: float
    range: float
    time_range: float
    smoothness: float

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        cls.shapes = (SMOOTHNESS, *cls.temporal)
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
        return float(self(*inputs)[0, 0] / self.variance)

    # what all families inherit

    def time_scale(self, shortest: float = 0.0) -> float:
        """Return the factor that converts times to distances: h/u for equal correlations.

        The lag u is the one with correlation ½, but at least `shortest`, because the data have no
        information on shorter lags; h is the distance with the same correlation.
        """
        if self.clock(2) is None:
            return self.range / self.time_range
        lag, correlation = self.half_lag(), 0.5
        if lag < shortest:
            lag, correlation = shortest, self.correlation_in_time(shortest)
        correlation = min(max(correlation, LOWEST_MATCHED), HIGHEST_MATCHED)
        return distance_at(correlation, self.smoothness) * self.range / lag

    @property
    def field_names(self) -> tuple[str, ...]:
        """The parameters, besides the variance, that the correlation depends on."""
        return tuple(p.name for p in self.declared if p is not VARIANCE and p.role != NOISE)

    @property
    def space(self) -> Matern:
        """The covariance of the field at one time."""
        return Matern(self.variance, self.range, self.smoothness, self.nugget)

    @property
    def tabulated(self) -> bool:
        """Whether there is a table of polynomials; see `Matern.tabulated`."""
        return self.space.tabulated

    def check_tabulated(self, remedy: str) -> None:
        """Raise `InvalidInput`, with a remedy, if there is no table."""
        self.space.check_tabulated(remedy)

    def pairs(self, a: Inputs, b: Inputs | None = None, box: Floats | None = None) -> TimePairs:
        """Return the generator of covariances and derivatives; see `Covariance.pairs`."""
        return TimePairs(self, a, b, box)

    def matrix(self, a: Inputs, b: Inputs) -> Floats:
        """Evaluate the covariance of the field between inputs, (n, m); see `__call__`."""
        return self.pairs(a, b).covariance()

    def derivatives(
        self,
        a: Inputs | ArrayLike,
        b: Inputs | ArrayLike,
        metric: Metric | str = "euclidean",
        names: Sequence[str] | None = None,
    ) -> dict[str, Floats]:
        """Evaluate the derivatives of `matrix`; see `Covariance.derivatives`."""
        a, b = Inputs.of(a, metric), Inputs.of(b, metric)
        wanted = self.parameters() if names is None else names
        return self.pairs(a, b).derivatives(slice(0, len(a)), slice(0, len(b)), wanted)

    def isotropic(self, inputs: Inputs | ArrayLike, metric: Metric | str = "euclidean") -> Floats:
        """Map inputs to points (n, k + 1): the last coordinate is time, by `time_scale`."""
        inputs = Inputs.of(inputs, metric)
        return inputs.with_time_axis(self.time_scale())

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
        return found | (self.on_sphere or {}) if metric_of(metric).arc else found

    def check_valid_on(self, metric: Metric | str, dimensions: int) -> None:
        """Raise `InvalidInput`, with a remedy, where the model is not positive definite."""
        if metric_of(metric).arc and self.on_sphere is None:
            raise InvalidInput(
                f"a {self.family} model is not known to be a covariance with great-circle "
                "distances: use the chordal metric."
            )
        super().check_valid_on(metric, dimensions)

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
