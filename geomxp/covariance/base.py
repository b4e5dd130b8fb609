"""Covariance families: the interface of all of them, and what an isotropic one needs to define.

A family is a frozen dataclass. It declares its parameters in a table; estimation, files, reports
and messages read that table and know no parameter by name besides. An isotropic family defines
its correlation as a function of squared scaled distance and inherits everything else from
`Isotropic`: generation on CPU and GPU, derivatives, anisotropy, Vecchia's approximation, mixed
precision and out-of-core execution.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from math import inf
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..errors import InvalidInput, did_you_mean, with_article
from . import anisotropy as maps
from .anisotropy import ANGLE, RATIO, LinearMap
from .conventions import Convention, convention_of
from .distance import Metric, metric_of
from .generate import DensePairs, TablePairs
from .inputs import Inputs
from .noise import MICROSCALE, NUGGET, Noise, NoiseParameter
from .parameter import TRANSFORMATION, Parameter, central_derivative
from .responses import Response, response_of
from .table import Sampled
from .term import Change, Term
from .transformation import ByVariable, Transformation, transformation

if TYPE_CHECKING:
    from typing import Any, Self

    from .._typing import (
        ArrayLike,
        Callable,
        Collection,
        Floats,
        Hashable,
        Iterable,
        Mapping,
        Sequence,
    )


VARIANCE = Parameter("variance", 1.0, unit="value²", linear=True)
RANGE = Parameter("range", 1.0, unit="length")

LIMIT_TOLERANCE = 1e-12
"""Share of a limit by which a parameter may miss it: the exponential of a logarithm is rounded."""

FAMILIES_WITH = {
    "time": " (--family matern-space-time, separable or gneiting)",
    "variable": ", such as parsimonious-matern (--family parsimonious-matern)",
}


@cache
def _of_transformation(declared):
    """Return the parameters of a transformation with their role."""
    return tuple(replace(p, role=TRANSFORMATION) for p in declared)


@dataclass(frozen=True, repr=False)
class Covariance:
    """Base of all covariance families.

    A subclass is a frozen dataclass with a field for each declared parameter. It sets `family`
    and `declared` and defines `matrix` and `derivatives`; where the variance is not the same
    everywhere, `diagonal`; and where it is not valid everywhere, `limits` or `check_valid_on`.
    Isotropic families derive from `Isotropic` instead, and sums of terms from `Tabulated`, which
    defines `matrix` and `derivatives`.

    Parameters
    ----------
    microscale : float or None
        Variance of variation at distances shorter than any in the data. Replicates at one location
        share it. If None, it is part of the nugget.
    transform : Transformation, str, tuple of these or None
        Transformation of the measured values to the Gaussian scale; the covariance is that of the
        transformed values. None: no transformation. Of several variables one for all, or a tuple
        with one for each.
    response : Response, str or None
        Distribution of the values given the field plus its noise and the trend, such as "poisson";
        see `geomxp.responses`. None: Gaussian values.

    Attributes
    ----------
    family : str
        The family's name.
    declared : tuple of Parameter
        Its parameters in a fixed order, with values to start from. Those of the noise, such as
        "nugget", the variance of each measurement's error, are not a part of `matrix`.
    uses : tuple of {"time", "variable"}
        Inputs beside the locations that `matrix` reads. Inputs without them are refused, and so
        are inputs with others.
    tabulated : bool
        Whether entries come from a table of polynomials, which Vecchia's approximation needs.
    of_distance : bool
        Whether the covariance is one function of one (isotropic) distance.
    noise_parts : tuple of NoiseParameter
        Variances of the noise: the nugget, and those of a family of one's own.
    optional : tuple of str
        Parameters that a model may have or not.
    variables : int
        Number of variables that the model describes.
    """

    family: ClassVar[str]
    declared: ClassVar[tuple[Parameter, ...]]
    uses: ClassVar[tuple[str, ...]] = ()
    tabulated: ClassVar[bool] = False
    of_distance: ClassVar[bool] = False
    noise_parts: ClassVar[tuple[NoiseParameter, ...]] = (NUGGET,)
    optional: ClassVar[tuple[str, ...]] = (MICROSCALE.name,)
    variables: ClassVar[int] = 1
    nugget_covariance = None
    microscale: float | None = field(default=None, kw_only=True)
    transform: Transformation | None = field(default=None, kw_only=True)
    response: Response | None = field(default=None, kw_only=True)

    if TYPE_CHECKING:
        nugget: float

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        # dataclasses would put the fields of this class first
        if "__repr__" not in cls.__dict__:
            cls.__repr__ = Covariance.__repr__

    def __repr__(self) -> str:
        names = [each.name for each in fields(self) if not each.kw_only]
        optional = (each.name for each in fields(self) if each.kw_only)
        names += [name for name in optional if getattr(self, name) is not None]
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__name__}({values})"

    def __post_init__(self) -> None:
        for parameter in self.declared:
            value = getattr(self, parameter.name)
            # a search makes many models, whose values are floats within the limits
            within = type(value) is float and parameter.lower < value <= parameter.upper
            if not within or value == inf:
                object.__setattr__(self, parameter.name, parameter.check(value))
        if self.microscale is not None:
            object.__setattr__(self, "microscale", MICROSCALE.check(self.microscale))
        if self.transform is not None:
            transform = transformation(self.transform)
            if isinstance(transform, ByVariable):
                raise InvalidInput(
                    f"{with_article(self.family)} model has one variable: give one `transform`. "
                    f"Got {len(transform.transforms)}."
                )
            object.__setattr__(self, "transform", transform)
            self._check_names(transform.declared, f"transformation {transform.name!r}")
        if self.response is not None:
            self._set_response()

    def _set_response(self):
        """Check the response, which may be given by name."""
        response = response_of(self.response)
        object.__setattr__(self, "response", response)
        if response is None:
            return
        self._check_names(response.declared, f"response {response.name!r}")
        if self.transform is not None and not response.transformable:
            raise InvalidInput(
                f"a {response.name} response has a link and no transformation: leave `transform` "
                "out."
            )

    def _check_names(self, declared, what):
        """Raise `InvalidInput` if parameters of a part have names of the model's own."""
        own = {p.name for p in (*self.declared, MICROSCALE)}
        clash = [p.name for p in declared if p.name in own]
        if clash:
            raise InvalidInput(
                f"the parameter {clash[0]!r} of the {what} has the name of a parameter of "
                f"{type(self).__name__}: rename it."
            )

    @cached_property
    def table(self) -> tuple[Parameter, ...]:
        """The parameters with the model's values; last those of transformation and response."""
        values = self.parameters()
        return tuple([replace(p, value=values[p.name]) for p in self.declarations()])

    def declarations(self) -> tuple[Parameter, ...]:
        """Return the parameters with the values of their declaration, in the order of `table`."""
        own = self.declared if self.microscale is None else (*self.declared, MICROSCALE)
        return own + self.declarations_of_parts()

    def declarations_of_parts(self) -> tuple[Parameter, ...]:
        """Return the parameters of the transformation and of the response."""
        own = () if self.transform is None else _of_transformation(self.transform.declared)
        return own if self.response is None else own + self.response.declared

    def _values_of_parts(self):
        """Return the values of the parameters of the transformation and of the response."""
        parts = (part for part in (self.transform, self.response) if part is not None)
        return {name: value for part in parts for name, value in part.parameters().items()}

    def parameter(self, name: str) -> Parameter:
        """Return a parameter, with its value, by its name."""
        return next(p for p in self.table if p.name == name)

    @classmethod
    def count_in(cls, names: Collection[str]) -> int:
        """Return the number of variables of a model whose parameters have some names."""
        return 1

    @classmethod
    def declared_for(cls, variables: int = 1) -> tuple[Parameter, ...]:
        """Return the parameters of a model of so many variables, with values to start from."""
        return cls.declared

    @classmethod
    def optional_for(cls, variables: int = 1) -> tuple[Parameter, ...]:
        """Return the parameters that a model of so many variables may have, beside `optional`."""
        return ()

    def parameters(self) -> dict[str, float]:
        """Return the values of the parameters by name, in the order of `table`."""
        return dict(self._values)

    @cached_property
    def _values(self):
        """What `parameters` returns: a search asks for it often."""
        return self._own_parameters() | self._values_of_parts()

    def _own_parameters(self):
        """Return the values of the declared parameters, and of the microscale variation."""
        values = {parameter.name: getattr(self, parameter.name) for parameter in self.declared}
        return values if self.microscale is None else values | {"microscale": self.microscale}

    @classmethod
    def from_parameters(
        cls,
        values: Mapping[str, float],
        transform: Transformation | None = None,
        response: Response | None = None,
    ) -> Self:
        """Make a model from a dict as `parameters` returns it.

        Parameters
        ----------
        values : dict of str to float
        transform : Transformation, optional
        response : Response, optional
            Parameters of both are replaced by those in `values`.
        """
        parts = {"transform": transform, "response": response}
        parts = {name: part.with_values(values) for name, part in parts.items() if part is not None}
        return cls(**cls._arguments(values), **parts)

    @classmethod
    def _arguments(cls, values):
        """Return the arguments of the class for values of parameters of its own."""
        plain = {p.name: values[p.name] for p in cls.declared if p.name in values}
        if values.get(MICROSCALE.name) is not None:
            plain[MICROSCALE.name] = values[MICROSCALE.name]
        return plain

    def replace(self, **values: float) -> Self:
        """Return a model of the same family with other values of some parameters.

        Raises
        ------
        InvalidInput
            For a name that is not a parameter. Another transformation is set by
            `dataclasses.replace(model, transform="log")`.

        Examples
        --------
        >>> from geomxp import Matern
        >>> Matern(1.0, 2.0, 0.7).replace(range=3.0)
        Matern(variance=1.0, range=3.0, smoothness=0.7, nugget=0.0, anisotropy=None)
        """
        known = self._values
        for name in values:
            if name not in known and name not in self.optional:
                hint = did_you_mean(name, known)
                if name in ("transform", "response"):
                    hint = f" Use dataclasses.replace(model, {name}=...)."
                raise InvalidInput(
                    f"a model of the family {self.family} has the parameters "
                    f"{', '.join(known)}. Got {name!r}.{hint}"
                )
        return self.from_parameters(known | values, self.transform, self.response)

    def scaled(self, factor: float) -> Self:
        """Return the model with covariance matrix factor·Σ."""
        linear = {p.name: factor * p.value for p in self.table if p.linear}
        return self.replace(**linear)

    def as_member_of(self, family: type[Covariance]) -> tuple[Covariance, dict[str, str]] | None:
        """Return this model as one of a family that contains its own, or None.

        With it the names of parameters that differ there. Likelihood-ratio tests compare a family
        with one that contains it.

        Examples
        --------
        >>> import geomxp as gx
        >>> model = gx.Independent((1.0, 4.0), (0.5, 0.2), 0.5)
        >>> gx.Matern(1.0, 0.2, 0.5).as_member_of(gx.Independent) is None
        True
        >>> model.as_member_of(gx.FlexibleMatern)[0].correlation
        (0.0,)
        """
        return (self, {}) if type(self) is family else None

    def variance_of(self, nugget: str) -> float:
        """Return the variance of the field whose noise has a variance of this name."""
        return self.largest_variance

    def noise(self, inputs: Inputs) -> Noise:
        """Return the noise of observations."""
        return Noise.of(self, inputs)

    def of_field(self, inputs: Inputs) -> Inputs:
        """Return inputs that stand for the field, where observations at one location share noise.

        `matrix` of such inputs and those of observations does not have that noise.
        """
        return inputs

    def check_observations(self, inputs: Inputs) -> None:
        """Raise `InvalidInput`, with a remedy, where observations cannot have the model's noise."""

    @property
    def largest_variance(self) -> float:
        """The largest variance that the field has anywhere."""
        return self.parameters()["variance"]

    def __call__(
        self, a: Inputs | ArrayLike, b: Inputs | ArrayLike, metric: Metric | str = "euclidean"
    ) -> Floats:
        """Evaluate the covariance of the field, without the nugget, between two sets of locations.

        Parameters
        ----------
        a, b : (n, d), (m, d) ndarray, or Inputs
            Locations.
        metric : {"euclidean", "chordal", "great-circle"} or Metric

        Returns
        -------
        (n, m) ndarray, Fortran order
        """
        a, b = Inputs.of(a, metric), Inputs.of(b, metric)
        self.check_inputs(a)
        self.check_inputs(b)
        return self.matrix(a, self.of_field(b))

    def matrix(self, a: Inputs, b: Inputs) -> Floats:
        """Evaluate the covariance between inputs, (n, m), without noise on the diagonal.

        It is that of the field, but for the covariances of nuggets; see `of_field`.
        """
        raise NotImplementedError

    def derivatives(
        self,
        a: Inputs | ArrayLike,
        b: Inputs | ArrayLike,
        metric: Metric | str = "euclidean",
        names: Sequence[str] | None = None,
    ) -> dict[str, Floats]:
        """Evaluate the derivatives of `matrix` with respect to the parameters.

        Parameters
        ----------
        a, b : (n, d), (m, d) ndarray, or Inputs
        metric : Metric or str
        names : sequence of str, optional
            Parameters wanted, of `parameters()`; all of them if not given. The nugget is left
            out: its derivative is 1 where an observation meets itself.

        Returns
        -------
        dict of str to (n, m) ndarray
        """
        raise NotImplementedError

    def check_tabulated(self, remedy: str) -> None:
        """Raise `InvalidInput`, with a remedy, where the model has no table of polynomials."""
        if not self.tabulated:
            raise InvalidInput(f"this needs an isotropic family. Got {self.family!r}: {remedy}")

    def diagonal(self, a: Inputs) -> Floats:
        """Evaluate the variance of the field, without the nugget, at each input, (n,)."""
        return np.full(len(a), self.largest_variance)

    def pairs(self, a: Inputs, b: Inputs | None = None, box: Floats | None = None) -> DensePairs:
        """Return the generator of covariances and derivatives between inputs.

        Parameters
        ----------
        a, b : Inputs
            Rows and columns; b is a if not given.
        box : (2, k) ndarray, optional
            Lowest and highest coordinates of all points of which these are a part.
        """
        return DensePairs(self, a, b)

    def limits(self, metric: Metric | str, dimensions: int) -> dict[str, tuple[float, float]]:
        """Return the bounds (lower, upper) of each parameter for locations of a kind.

        Bounds of one parameter hold for the present values of the others. A lower bound is
        itself allowed where it is not that of the table.

        Parameters
        ----------
        metric : Metric or str
        dimensions : int
            Number of coordinates of a location.
        """
        return {p.name: (p.lower, p.upper) for p in self.declarations()}

    def widest_limits(
        self, metric: Metric | str, dimensions: int
    ) -> dict[str, tuple[float, float]] | None:
        """Return the bounds of each parameter for any values of the others; see `limits`.

        None if they are those of `limits` at the ends of the shapes.
        """
        return None

    def check_inputs(self, inputs: Inputs) -> None:
        """Raise `InvalidInput`, with a remedy, where the model is not a covariance of inputs."""
        for name in ("time", "variable"):
            used, known = name in self.uses, getattr(inputs, name) is not None
            if used and not known:
                raise InvalidInput(
                    f"{with_article(self.family)} model needs the {name} of each location: give "
                    f"`{name}` (--{name})."
                )
            if known and not used:
                raise InvalidInput(
                    f"{with_article(self.family)} model does not depend on `{name}`: leave "
                    f"`{name}` out, or use a family that does{FAMILIES_WITH[name]}."
                )
        self.check_valid_on(inputs.metric, inputs.dimensions)

    def check_valid_on(self, metric: Metric | str, dimensions: int) -> None:
        """Raise `InvalidInput`, with a remedy, where the model is not positive definite."""
        metric = metric_of(metric)
        limits = self.limits(metric, dimensions)
        for name, value in self._values.items():
            lower, upper = limits[name]
            if (
                lower - LIMIT_TOLERANCE * abs(lower)
                <= value
                <= upper + LIMIT_TOLERANCE * abs(upper)
            ):
                continue
            where, remedy = f"in {metric.dimensions(dimensions)} dimensions", "."
            if metric.arc:
                where, remedy = "with great-circle distances", ": use the chordal metric."
            bound = f"at least {lower:g}" if value < lower else f"at most {upper:g}"
            raise InvalidInput(
                f"{where} {with_article(self.family)} model needs {name} {bound}. "
                f"Got {name}={value:g}{remedy}"
            )

    def valid_on(self, metric: Metric | str, dimensions: int) -> bool:
        """Return whether the model is positive definite for a metric and dimensions."""
        try:
            self.check_valid_on(metric, dimensions)
        except InvalidInput:
            return False
        return True

    def effective_range(self, correlation: float = 0.05) -> float | None:
        """Return the distance at which the correlation has fallen to 5 %, if known."""
        return None

    def effective_lag(self, correlation: float = 0.05, dimensions: int = 2) -> float | None:
        """Return the lag in time at which the correlation has fallen to 5 %, if known."""
        return None

    def practical_range(self) -> float:
        """Return the length that a search uses in place of the range.

        The data should determine it almost independently of the shape parameters: the distance
        at which the correlation is about 0.14, say.
        """
        return self.parameters()["range"]

    @property
    def infill_exponent(self) -> float:
        """K such that dense data determine variance/range^k; infinite for smooth fields."""
        return inf

    def isotropic(self, inputs: Inputs | ArrayLike, metric: Metric | str = "euclidean") -> Floats:
        """Map inputs to points (n, k), k ≤ 3, that are near each other where they correlate."""
        return Inputs.of(inputs, metric).points

    # neighbours are near in points that depend on the model through a key

    def neighbour_key(self, known: Inputs) -> Hashable:
        """Return a first guess of the key for neighbours among `known`; None if there is none."""
        return None

    def moved_key(self, key: Any, halves: int) -> Hashable:
        """Return the key whose times or variables count 2^(halves/2) times as much."""
        return key

    def neighbour_points(self, inputs: Inputs, key: Any) -> Floats:
        """Map inputs to points (n, k) by whose distances neighbours are found."""
        return self.isotropic(inputs)


class Tabulated(Covariance):
    """Base of families whose covariance is a sum of terms, with tables of polynomials.

    A subclass defines `terms`, and inherits generation on CPU and GPU, derivatives and Vecchia's
    approximation. If it declares `VARIANCE`, all terms are proportional to it. With a field
    `anisotropy`, its terms are those of `turned`.
    """

    optional: ClassVar[tuple[str, ...]] = (MICROSCALE.name, *sorted(maps.NAMES))
    if TYPE_CHECKING:
        anisotropy: LinearMap | None
    else:
        anisotropy = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.anisotropy is not None:
            object.__setattr__(self, "anisotropy", maps.anisotropy_of(self.anisotropy))

    def declarations(self) -> tuple[Parameter, ...]:
        """Return the parameters; those of anisotropy are before those of the transformation."""
        kinds = super().declarations()
        if self.anisotropy is None:
            return kinds
        at = len(self._own_parameters())
        return (*kinds[:at], *self.anisotropy.declared, *kinds[at:])

    @cached_property
    def _values(self):
        values = self._own_parameters()
        if self.anisotropy is not None:
            values |= self.anisotropy.parameters()
        return values | self._values_of_parts()

    @classmethod
    def _arguments(cls, values):
        """Return the arguments of the class for values of parameters of its own."""
        turn = None if maps.NAMES.isdisjoint(values) else maps.from_parameters(values)
        plain = super()._arguments(values)
        return plain if turn is None else plain | {"anisotropy": turn}

    def terms(self, dimensions: int) -> list[Term]:
        """Return the terms of the covariance in a Euclidean space of so many dimensions."""
        raise NotImplementedError

    def turned(self, terms: Iterable[Term]) -> list[Term]:
        """Return terms with the model's anisotropy, which they have not yet."""
        if self.anisotropy is None:
            return list(terms)
        generators = self.anisotropy.generators()
        changes = {name: Change(map=change) for name, change in generators.items()}
        matrix = self.anisotropy.matrix()
        return [replace(one, map=matrix, changes={**one.changes, **changes}) for one in terms]

    def points(self, inputs: Inputs) -> Floats:
        """Map inputs to points (n, k) between which distances have no direction."""
        points = inputs.points
        return points if self.anisotropy is None else points @ self.anisotropy.matrix().T

    def check_anisotropy(self, metric: Metric, dimensions: int) -> None:
        """Raise `InvalidInput` where the model has an anisotropy of other locations."""
        given = self.anisotropy
        if given is None:
            return
        if metric.geographic or metric.dimensions(dimensions) != given.dimensions:
            name, other = type(given).__name__, self._map_for(metric, dimensions)
            raise InvalidInput(
                f"`anisotropy={name}(...)` needs Euclidean locations in {given.dimensions} "
                f"dimensions. Got {dimensions} with metric={metric.name!r}: {other}."
            )

    @staticmethod
    def _map_for(metric, dimensions):
        """Return in words which anisotropy locations may have."""
        if metric.geographic or metric.dimensions(dimensions) != dimensions:
            return "leave it out, or project the locations (metric='euclidean')"
        kinds = [kind.__name__ for kind in maps.KINDS if kind.dimensions == dimensions]
        return f"use {' or '.join(kinds)}" if kinds else "leave it out"

    @property
    def tabulated(self) -> bool:
        """Whether all correlations have tables of polynomials."""
        rows = (row for term in self.terms(2) for row in term.correlations)
        return all(one.tabulated for row in rows for one in row)

    @property
    def scaling(self) -> str | None:
        """Name of the parameter that all terms are proportional to."""
        return VARIANCE.name if VARIANCE in self.declared else None

    @property
    def field_names(self) -> tuple[str, ...]:
        """The parameters of the field, besides the one that it is proportional to."""
        own = [
            p.name
            for p in self.declared
            if p.name != self.scaling and not isinstance(p, NoiseParameter)
        ]
        return (*own, *(() if self.anisotropy is None else self.anisotropy.parameters()))

    def pairs(self, a: Inputs, b: Inputs | None = None, box: Floats | None = None) -> TablePairs:
        """Return the generator of covariances and derivatives; see `Covariance.pairs`."""
        return TablePairs(self, a, b, box)

    def matrix(self, a: Inputs, b: Inputs) -> Floats:
        """Evaluate the covariance between inputs, (n, m); see `Covariance.matrix`."""
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


class Isotropic(Tabulated):
    """Base of families whose correlation depends on h/a only: C(h) = σ² ρ(h/a).

    A subclass is a frozen dataclass with the fields variance, range, its shape parameters,
    nugget and anisotropy, in this order. It sets `family` and `shapes` and defines
    `correlation_of_squares`; formulas for `slope_of_squares` and `by_shape` are optional.

    Attributes
    ----------
    shapes : tuple of Parameter
        Parameters of ρ, with values to start from.
    support : {None, "smooth", "rough"}
        None if ρ > 0 at all distances. Otherwise ρ(r) = 0 for r ≥ 1, and ρ(√s) for s < 1 is
        "smooth" where it can be continued beyond s = 1 as an analytic function.
    on_sphere : dict of str to (float, float), or None
        Bounds of parameters with great-circle distances; None if the family is not valid there.
    conventions : dict of str to Convention
        How other packages write the family, by package.
    last_octave : int
        ρ and its derivatives are 0, or negligible, for s ≥ 2^last_octave.
    is_mixture : bool
        Whether ρ(√·) is completely monotone, so that ρ is a mixture of Gaussian correlations and
        valid in all dimensions.
    most_dimensions : int
        Dimensions up to which ρ is valid.

    Examples
    --------
    The exponential covariance in full:

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Exponential(Isotropic):
    ...     family = "exponential"
    ...     variance: float
    ...     range: float
    ...     nugget: float = 0.0
    ...     anisotropy: Anisotropy | None = None
    ...
    ...     def correlation_of_squares(self, s, rest):
    ...         return np.exp(-np.sqrt(s))
    >>> Exponential(2.0, 0.5)([[0.0]], [[0.0], [0.5]]).round(4).tolist()
    [[2.0, 0.7358]]
    """

    shapes: ClassVar[tuple[Parameter, ...]] = ()
    support: ClassVar[str | None] = None
    on_sphere: ClassVar[Mapping[str, tuple[float, float]] | None] = None
    conventions: ClassVar[Mapping[str, Convention]] = {}
    last_octave: ClassVar[int] = 1020
    of_distance = True
    is_mixture: ClassVar[bool] = False
    most_dimensions: ClassVar[float] = inf
    tabulated = True
    variance: float
    range: float
    anisotropy: LinearMap | None

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        cls.declared = (VARIANCE, RANGE, *cls.shapes, *cls.noise_parts)

    # what a family defines

    def correlation_of_squares(self, s: Floats, rest: Floats) -> Floats:
        """Evaluate f(s) = ρ(√s) for s = (h/a)² > 0; with compact support only below 1.

        Arguments and result are in extended precision (`numpy.longdouble`), where the machine
        has it; `rest` is 1 - s, exact also where s is near 1.
        """
        raise NotImplementedError

    def slope_of_squares(self, s: Floats, rest: Floats) -> Floats:
        """Evaluate r dρ/dr = 2 s f'(s). Here by differences of order 8 in log s."""

        def moved(move):
            other = s * np.exp(move)
            return self.correlation_of_squares(other, 1 - other)

        return 2 * central_derivative(moved, np.longdouble(1) / 256)

    def by_shape(self, name: str, s: Floats, rest: Floats) -> Floats:
        """Evaluate the derivative of f(s) by a shape parameter. Here by differences of order 8."""
        value = getattr(self, name)

        def moved(move):
            # a parameter in extended precision, perhaps beyond its bound
            other = object.__new__(type(self))
            other.__dict__.update(self.__dict__)
            other.__dict__[name] = value + move
            return other.correlation_of_squares(s, rest)

        return central_derivative(moved, np.longdouble(min(0.01, value / 8) if value else 0.01))

    def expansions(self, octaves: Floats) -> Sampled:
        """Return expansions of the correlation and its derivatives on octaves of s."""
        return Sampled(self, octaves)

    # what all families inherit

    def at_squares(self, s: Floats, rest: Floats) -> Callable[[str], Floats]:
        """Return the function of `what` that evaluates at squared distances s; see `evaluate`."""

        def function(what):
            if what == "correlation":
                return self.correlation_of_squares(s, rest)
            if what == "slope":
                return self.slope_of_squares(s, rest)
            return self.by_shape(what, s, rest)

        return function

    @property
    def unit(self) -> Self:
        """The model of the correlation alone: variance and range 1, no noise, isotropic."""
        shapes = (getattr(self, shape.name) for shape in self.shapes)
        return type(self)(1.0, 1.0, *shapes)

    @property
    def table_key(self) -> tuple:
        """Key that identifies the correlation function."""
        return (type(self), *[getattr(self, p.name) for p in self.shapes])

    def terms(self, dimensions: int) -> list[Term]:
        """Return the only term; see `Tabulated.terms`."""
        changes = {
            VARIANCE.name: Change(amplitude=1.0),
            RANGE.name: Change(log_range=1 / self.range),
        }
        changes |= {shape.name: Change(shapes={shape.name: 1.0}) for shape in self.shapes}
        return self.turned([Term(self, self.variance, self.range, changes=changes)])

    @property
    def field_names(self) -> tuple[str, ...]:
        """The parameters of the correlation: shapes first, and last those of an anisotropy.

        Without one they are those of an ellipse, which kernels on a GPU count.
        """
        turned = (ANGLE.name, RATIO.name)
        if self.anisotropy is not None:
            turned = self.anisotropy.parameters()
        return (*(shape.name for shape in self.shapes), RANGE.name, *turned)

    def evaluate(self, what: str, r: ArrayLike) -> Floats:
        """Evaluate the correlation, its slope or a derivative by the formula.

        Parameters
        ----------
        what : str
            "correlation" for ρ, "slope" for r dρ/dr, or a shape parameter's name for ∂ρ/∂name.
        r : array_like
            Scaled distances h/a ≥ 0.

        Returns
        -------
        ndarray, as r
        """
        r = np.asarray(r, dtype=np.longdouble)
        inside = (r > 0) & np.isfinite(r) & (r < (1 if self.support else inf))
        s, rest = r[inside] ** 2, (1 - r[inside]) * (1 + r[inside])
        result = np.where(r == 0, 1.0 if what == "correlation" else 0.0, 0.0)
        with np.errstate(under="ignore", over="ignore"):
            result[inside] = self.at_squares(s, rest)(what)
        return result

    def covariance(self, h: ArrayLike) -> Floats:
        """Evaluate C(h) of the field (without the nugget) at (isotropic) distances h."""
        return self.variance * self.correlation(h)

    def correlation(self, h: ArrayLike) -> Floats:
        """Evaluate the correlation C(h)/σ² at distances h, in the units of `range`."""
        with np.errstate(over="ignore"):
            # h/a may overflow to inf, where the correlation is 0
            return self.evaluate("correlation", np.asarray(h, dtype=np.float64) / self.range)

    def effective_range(self, correlation: float = 0.05) -> float:
        """Return the distance at which the correlation has fallen to 5 % (or as given).

        Returns
        -------
        float, in the units of `range`
            Infinite if FP64 has no such distance.

        Examples
        --------
        >>> from geomxp import Matern
        >>> round(Matern(1.0, 1.0, 0.5).effective_range(), 4)
        2.9957
        """
        from scipy.optimize import brentq

        unit = self.replace(range=1.0)
        top = 1.0
        while unit.correlation(top) > correlation:
            top *= 2
            if top > 1e300:
                return inf
        # below any distance with a correlation above the level, also for a very rough field
        bottom = top
        while unit.correlation(bottom) < correlation:
            bottom /= 2
            if bottom < 1e-300:
                return 0.0
        if bottom == top:
            return self.range * top
        root = brentq(lambda r: float(unit.correlation(r)) - correlation, bottom, top, xtol=1e-300)
        return self.range * root

    def isotropic(self, inputs: Inputs | ArrayLike, metric: Metric | str = "euclidean") -> Floats:
        """Map inputs to points between which the model depends on distance only."""
        return self.points(Inputs.of(inputs, metric))

    def limits(self, metric: Metric | str, dimensions: int) -> dict[str, tuple[float, float]]:
        """Return the bounds of each parameter; see `Covariance.limits`."""
        found = super().limits(metric, dimensions)
        return found | (self.on_sphere or {}) if metric_of(metric).arc else found

    def check_valid_on(self, metric: Metric | str, dimensions: int) -> None:
        """Raise `InvalidInput`, with a remedy, where the model is not positive definite."""
        metric = metric_of(metric)
        if metric.arc and self.on_sphere is None:
            raise InvalidInput(
                f"{with_article(self.family)} model is not a covariance with great-circle "
                "distances: use the chordal metric."
            )
        if metric.dimensions(dimensions) > self.most_dimensions:
            raise InvalidInput(
                f"in {metric.dimensions(dimensions)} dimensions {with_article(self.family)} model "
                f"is not a covariance, in {self.most_dimensions:g} or fewer it is: use another "
                "family."
            )
        super().check_valid_on(metric, dimensions)
        self.check_anisotropy(metric, dimensions)

    @classmethod
    def from_convention(cls, package: str, **parameters: float) -> Self:
        """Make the model that another package means by its own parameters.

        A warning says if the package evaluates another function for these, or refuses them.

        Parameters
        ----------
        package : str
            A key of the family's `conventions`: "scikit-learn", "gpytorch", "gstools", "gstat", …
        **parameters
            Under the package's own names, as `to_convention` returns them.

        Examples
        --------
        >>> from geomxp import Matern
        >>> Matern.from_convention("scikit-learn", variance=1.0, length_scale=3.0, nu=1.5).range
        1.7320508075688774
        """
        convention = convention_of(cls.conventions, package)
        ours = convention.to_ours(package, parameters)
        convention.caution(package, parameters)
        return cls(**{p.name: value for p, value in zip(cls.declared, ours, strict=True)})

    def to_convention(self, package: str) -> dict[str, float]:
        """Return this model's parameters as another package writes them, as a dict.

        A warning says if the package evaluates another function for these, or refuses them: GSTools
        above a `nu` of 20, for example.

        Examples
        --------
        >>> from geomxp import Matern
        >>> Matern(1.0, 2.0, 0.5).to_convention("gpytorch")["lengthscale"]
        2.0
        """
        convention = convention_of(self.conventions, package)
        if self.anisotropy is not None:
            raise InvalidInput("`to_convention` translates isotropic models only.")
        theirs = convention.from_ours([getattr(self, p.name) for p in self.declared])
        convention.caution(package, theirs)
        return theirs


FAMILIES: dict[str, type[Covariance]] = {}
"""Families that have names, filled by the package; any other is given as a class or a model."""

COMBINED: list[Callable[[str], type[Covariance] | None]] = []
"""Functions that return a combination of families by its name, or None."""

COMBINED_NAMES: list[Callable[[], tuple[str, ...]]] = []
"""Functions that return the names of all combinations of families."""


def made_by_name(name: str) -> type[Covariance] | None:
    """Return the family, or the combination of families, of a name; None if the name is unknown."""
    return next((made for find in (FAMILIES.get, *COMBINED) if (made := find(name))), None)


def names_of_families() -> list[str]:
    """Return the names of all families and of their combinations."""
    return [*FAMILIES, *(name for names in COMBINED_NAMES for name in names())]


def family_of(family: str | type[Covariance] | Covariance) -> type[Covariance]:
    """Return the class of a family, given by name, as a class or by a model.

    Parameters
    ----------
    family : str, type or Covariance
        Names of families may be joined: a model of time ("separable", "gneiting", "metric"), one of
        several variables ("independent", "coregionalization", "parsimonious-matern",
        "flexible-matern") and an isotropic family, in this order.

    Returns
    -------
    type
        A subclass of `Covariance`.

    Raises
    ------
    InvalidInput
        For an unknown name, and for families that do not make a covariance together.

    Examples
    --------
    >>> family_of("matern")
    <class 'geomxp.covariance.matern.Matern'>
    >>> model = family_of("separable-spherical")(1.0, 0.5, 3.0, time_smoothness=0.5)
    >>> model.correlation_in_time(0.0)
    1.0
    """
    if isinstance(family, Covariance):
        return type(family)
    if isinstance(family, type) and issubclass(family, Covariance):
        return family
    made = made_by_name(family) if isinstance(family, str) else None
    if made is not None:
        return made
    raise InvalidInput(
        f"`family` must be one of {', '.join(FAMILIES)}, a combination of them such as "
        f"separable-spherical, or a subclass of gx.Covariance. Got {family!r}."
        f"{did_you_mean(family, names_of_families())}"
    )
