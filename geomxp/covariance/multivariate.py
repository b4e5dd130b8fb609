"""Families for several variables: what they share.

The covariance of variables i and j at distance h is

    C_ij(h) = Σ_c A_c[i, j] ρ(h / a_c[i, j]; ν_c[i, j]),

where ρ is the correlation of an isotropic family with the shapes ν, by default Matérn's. A family
gives the components c: terms with matrices of amplitudes, ranges and shapes, and their derivatives
by its parameters. Every entry comes from the tables of `covariance.table`, one for each pair of
variables.

Parameters are one number, one for each variable (`variance_1`, `variance_2`, …), one for each pair
(`correlation_12`, …) or one for each entry of a lower triangle (`loading_21`, …).

The noise of variables measured at one location, such as those of one soil sample, may be
correlated. Observations at one location then share noise that the field does not have there: an
observation of a variable and the field itself are two kinds of inputs, i and p + i.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from itertools import combinations
from math import isqrt
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..errors import InvalidInput, with_article
from .anisotropy import NAMES as NAMES_OF_MAPS
from .anisotropy import LinearMap, anisotropy_of
from .anisotropy import from_parameters as map_from_parameters
from .base import VARIANCE, Inputs, Isotropic, Tabulated
from .conventions import Convention
from .distance import metric_of
from .matern import Matern
from .noise import NUGGET, NUGGET_COVARIANCE, check_one_value
from .parameter import NOISE, Parameter, finite, name_of
from .space_time import HIGHEST_MATCHED, LOWEST_MATCHED, distance_at
from .term import Change, Term
from .transformation import ByVariable, transformation

if TYPE_CHECKING:
    from typing import Self

    from .._typing import ArrayLike, Collection, Floats, Mapping, Sequence
    from .distance import Metric
    from .responses import Response
    from .transformation import Transformation

EIGENVALUE_TOLERANCE = 1e-12
"""Eigenvalue of a correlation matrix down to which it counts as positive semidefinite."""

LARGEST_CORRELATION, SHRINKING_FACTOR = 0.9, 0.95
"""Largest entry of a correlation matrix made of estimates; factor that brings it nearer to I."""

ONE_FOR_ALL, EACH_VARIABLE, EACH_PAIR, LOWER_TRIANGLE = "one", "variable", "pair", "lower"
"""How many numbers a parameter has: one, or one per variable, pair, or entry of a triangle."""

OWN_VARIANCE = replace(VARIANCE, linear=False)
SMOOTHNESS = Matern.shapes[0]
LOADING = Parameter("loading", 0.5, "identity", -np.inf, unit="value")
CORRELATION = Parameter(
    "correlation", 0.0, "identity", -1.0, 1.0, closed=True, search=(-1.0, 1.0), starts=(0.0,)
)
OPTIONAL_GROUPS = {NUGGET_COVARIANCE.name: (EACH_PAIR, NUGGET_COVARIANCE)}
"""Fields that a model may have or not."""


@cache
def indices(kind: str, p: int) -> tuple[tuple[int, ...], ...]:
    """Return the positions of the numbers of a parameter among p variables.

    >>> indices("pair", 3), indices("lower", 2)
    (((0, 1), (0, 2), (1, 2)), ((0, 0), (1, 0), (1, 1)))
    """
    if kind == ONE_FOR_ALL:
        return ((),)
    if kind == EACH_VARIABLE:
        return tuple((i,) for i in range(p))
    if kind == EACH_PAIR:
        return tuple(combinations(range(p), 2))
    return tuple((i, j) for i in range(p) for j in range(i + 1))


def variables_of(kind: str, count: int) -> int:
    """Return how many variables have this many values of a parameter; -1 if no number of them has.

    >>> variables_of("pair", 3), variables_of("lower", 3), variables_of("pair", 2)
    (3, 2, -1)
    """
    p = count
    if kind in (EACH_PAIR, LOWER_TRIANGLE):
        # p (p ∓ 1)/2 numbers
        p = ((kind == EACH_PAIR) - (kind == LOWER_TRIANGLE) + isqrt(8 * count + 1)) // 2
    return p if len(indices(kind, p)) == count else -1


@dataclass(frozen=True)
class SameLocation(Isotropic):
    """Correlation of noise: 1 at one location and 0 elsewhere."""

    family = "same-location"
    last_octave = Matern.last_octave
    variance: float
    range: float
    nugget: float = 0.0
    anisotropy: LinearMap | None = None

    def correlation_of_squares(self, s: Floats, rest: Floats) -> Floats:
        """Return 0; see `Isotropic.correlation_of_squares`."""
        return np.zeros_like(s)

    def slope_of_squares(self, s: Floats, rest: Floats) -> Floats:
        """Return 0; see `Isotropic.slope_of_squares`."""
        return np.zeros_like(s)

    def by_shape(self, name: str, s: Floats, rest: Floats) -> Floats:
        """Return 0; see `Isotropic.by_shape`."""
        return np.zeros_like(s)


@dataclass(frozen=True, repr=False)
class Multivariate(Tabulated):
    """Base of families for several variables.

    A subclass is a frozen dataclass. Its fields are numbers, or tuples with a number for each
    variable, pair of variables or entry of a lower triangle, as `groups` says. It sets `family`
    and `groups` and defines `components` and `_near`, which makes a start of a search.

    Parameters
    ----------
    anisotropy : Anisotropy, Anisotropy3D, AxisRatios, AxisRatios3D, (angle, ratio) or None
        Geometric anisotropy, the same for all variables; a pair is that of locations in the plane.

    Attributes
    ----------
    in_space : type
        The isotropic family of the correlations.
    groups : dict of str to (str, Parameter)
        For each field how many numbers it has and what they are.
    shapes : tuple of Parameter
        Those of the fields besides variance, range and nugget, one each.
    conventions : dict of str to Convention
        How other packages write the family, by package.
    """

    uses = ("variable",)
    optional: ClassVar[tuple[str, ...]] = tuple(sorted(NAMES_OF_MAPS))
    in_space: ClassVar[type[Isotropic]] = Matern
    on_sphere: ClassVar[Mapping[str, tuple[float, float]] | None] = None
    groups: ClassVar[Mapping[str, tuple[str, Parameter]]] = {}
    shapes: ClassVar[tuple[Parameter, ...]] = ()
    conventions: ClassVar[Mapping[str, Convention]] = {}
    nugget_covariance = None
    anisotropy: LinearMap | None = field(default=None, kw_only=True)

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        cls.shapes = tuple(
            replace(parameter, name=group, group=group)
            for group, (_, parameter) in cls.groups.items()
            if group not in ("variance", "range", "nugget")
        )

    def __post_init__(self) -> None:
        p = self._count()
        for group, (kind, parameter) in self.used_groups.items():
            diagonal = self.nugget if parameter is NUGGET_COVARIANCE else (1.0,) * p
            numbers = _numbers(group, kind, getattr(self, group), p, diagonal)
            checked = [
                _number(parameter, group, where).check(number)
                for where, number in zip(indices(kind, p), numbers, strict=True)
            ]
            object.__setattr__(self, group, checked[0] if kind == ONE_FOR_ALL else tuple(checked))
        if self.microscale is not None:
            raise InvalidInput(f"models of family {self.family} have no microscale: leave it out.")
        object.__setattr__(self, "transform", _transformations(self.transform, p))
        object.__setattr__(self, "anisotropy", anisotropy_of(self.anisotropy))
        if self.response is not None:
            self._set_response()

    def _count(self):
        """Return the number of variables, from the fields that have one number for each."""
        sizes = {}
        for group, (kind, _) in self.used_groups.items():
            value = getattr(self, group)
            if np.ndim(value) == 0 or kind == ONE_FOR_ALL:
                continue
            sizes[group] = variables_of(kind, len(value)) if np.ndim(value) == 1 else len(value)
        found = set(sizes.values()) or {2}
        if len(found) > 1 or min(found) < 2:
            if found == {1}:
                raise InvalidInput(
                    f"{with_article(self.family)} model needs 2 variables or more. Got 1."
                )
            said = ", ".join(f"{group} {size}" for group, size in sizes.items())
            raise InvalidInput(
                f"the parameters of a model of family {self.family} must be of the same number of "
                f"variables. Got numbers of variables: {said}."
            )
        return found.pop()

    @property
    def variables(self) -> int:
        """Number of variables, p."""
        kind, values = next(
            (kind, getattr(self, group))
            for group, (kind, _) in self.groups.items()
            if kind != ONE_FOR_ALL
        )
        return variables_of(kind, len(values))

    @property
    def used_groups(self) -> Mapping[str, tuple[str, Parameter]]:
        """The `groups` of this model, with the covariances of the nuggets if it has them."""
        return self.groups if self.nugget_covariance is None else {**self.groups, **OPTIONAL_GROUPS}

    @property
    def declared(self) -> tuple[Parameter, ...]:
        """The parameters in a fixed order, with values to start from."""
        p = self.variables
        more = () if self.nugget_covariance is None else self.optional_for(p)
        return self.declared_for(p) + more

    @classmethod
    def declared_for(cls, variables: int = 1) -> tuple[Parameter, ...]:
        """Return the parameters for so many variables; see `Covariance.declared_for`."""
        return _declared(tuple(cls.groups.items()), variables)

    @classmethod
    def optional_for(cls, variables: int = 1) -> tuple[Parameter, ...]:
        """Return the parameters that a model may have or not; see `Covariance.optional_for`."""
        return _declared(tuple(OPTIONAL_GROUPS.items()), variables)

    def _own_parameters(self):
        p, values = self.variables, {}
        for group, (kind, _) in self.used_groups.items():
            numbers = getattr(self, group)
            numbers = (numbers,) if kind == ONE_FOR_ALL else numbers
            places = indices(kind, p)
            values |= {name_of(group, w): x for w, x in zip(places, numbers, strict=True)}
        return values

    @classmethod
    def from_parameters(
        cls,
        values: Mapping[str, float],
        transform: Transformation | None = None,
        response: Response | None = None,
    ) -> Self:
        """Make a model from a dict as `parameters` returns it; see `Covariance.from_parameters`."""
        p = cls.count_in(values)
        missing = [one.name for one in cls.declared_for(p) if one.name not in values]
        if missing:
            raise InvalidInput(
                f"the {cls.family} model of {p} variables needs values of {', '.join(missing)} too."
            )
        zeros = {one.name: 0.0 for one in cls.optional_for(p)}
        known = {one.group for one in cls.optional_for(p) if one.name in values}
        groups = {**cls.groups, **{group: OPTIONAL_GROUPS[group] for group in known}}
        fields_ = {
            group: [(zeros | values)[name_of(group, where)] for where in indices(kind, p)]
            for group, (kind, _) in groups.items()
        }
        one = {
            group: x[0] if groups[group][0] == ONE_FOR_ALL else tuple(x)
            for group, x in fields_.items()
        }
        more = {"transform": transform and transform.with_values(values)}
        more |= {"response": response and response.with_values(values)}
        return cls(**one, **more, anisotropy=map_from_parameters(values))

    @classmethod
    def count_in(cls, names: Collection[str]) -> int:
        """Return the number of variables that names of parameters are of, at least 2."""
        groups = [(group, kind) for group, (kind, _) in cls.groups.items() if kind != ONE_FOR_ALL]
        groups += [(group, kind) for group, (kind, _) in OPTIONAL_GROUPS.items()]
        p = 2
        # the numbers of one variable more than p
        while any(
            name_of(group, where) in names
            for group, kind in groups
            for where in set(indices(kind, p + 1)) - set(indices(kind, p))
        ):
            p += 1
        return p

    def scaled(self, factor: float) -> Self:
        """Return the model with covariance matrix factor·Σ."""
        powers = {"value²": factor, "value": factor**0.5}
        return self.replace(**{p.name: powers.get(p.unit, 1.0) * p.value for p in self.table})

    # what a family defines

    def components(self) -> list[Term]:
        """Return the terms of the field, with numbers for each pair of variables, (p, p)."""
        raise NotImplementedError

    @property
    def variances(self) -> Floats:
        """Variance of each variable, without the nugget, (p,)."""
        return np.diag(sum(one.amplitude for one in self.components()))

    # what all families inherit

    def term(
        self, amplitude: Floats, range: Floats, shapes: Sequence[Floats], changes: dict[str, Change]
    ) -> Term:
        """Return a term of amplitudes, ranges and shapes of `in_space`, each (p, p)."""
        correlations = tuple(
            tuple(self.in_space(1.0, length, *own) for length, *own in zip(*rows, strict=True))
            for rows in zip(range, *shapes, strict=True)
        )
        return Term(correlations, amplitude, range, changes=changes)

    def terms(self, dimensions: int) -> list[Term]:
        """Return the terms of the covariance of all kinds of inputs; see `Tabulated.terms`.

        They are `components` if the noise is independent. Otherwise the last term is the covariance
        of the noise at one location. It has 2p kinds: observations of variable i, and the field of
        variable i, p + i, which shares no noise with observations.
        """
        terms = self.components()
        if self.nugget_covariance is not None:
            p, terms = self.variables, [_doubled(one) for one in terms]
            amplitude, changes = np.zeros((2 * p, 2 * p)), {}
            for (i, j), x in zip(indices(EACH_PAIR, p), self.nugget_covariance, strict=True):
                amplitude[i, j] = amplitude[j, i] = x
                name = name_of(NUGGET_COVARIANCE.name, (i, j))
                changes[name] = Change(amplitude=at(2 * p, i, j))
            white = SameLocation(1.0, 1.0)
            lengths = terms[0].range
            terms.append(Term(((white,) * 2 * p,) * 2 * p, amplitude, lengths, changes=changes))
        return self.turned(terms)

    def of_field(self, inputs: Inputs) -> Inputs:
        """Return inputs of the field without noise; see `Covariance.of_field`."""
        if self.nugget_covariance is None:
            return inputs
        return replace(inputs, variable=inputs.variable + self.variables)

    @property
    def nugget_matrix(self) -> Floats:
        """Covariance of the noise of the variables at one location, (p, p)."""
        matrix = np.diag(self.nugget)
        pairs = indices(EACH_PAIR, self.variables)
        known = self.nugget_covariance or (0.0,) * len(pairs)
        for (i, j), x in zip(pairs, known, strict=True):
            matrix[i, j] = matrix[j, i] = x
        return matrix

    @property
    def nugget_correlations(self) -> Floats:
        """Correlations of the noise of the variables at one location, (p, p); 0 without noise."""
        deviations = np.sqrt(self.nugget)
        outer = np.outer(deviations, deviations)
        with np.errstate(divide="ignore", invalid="ignore"):
            beta = np.where(outer > 0, self.nugget_matrix / outer, 0.0)
        np.fill_diagonal(beta, 1.0)
        return beta

    def with_nugget_correlations(self, correlations: Floats) -> Self:
        """Return the model with nuggets of correlations (p, p), brought nearer to 0 as needed."""
        beta = nearer(correlations)
        root = np.sqrt(self.nugget)
        covariance = beta * np.outer(root, root)
        pairs = indices(EACH_PAIR, self.variables)
        return replace(self, nugget_covariance=tuple(covariance[i, j] for i, j in pairs))

    def with_room(self, names: Sequence[str]) -> Self:
        """Return the model whose nuggets of these names are as large as their covariances need."""
        if self.nugget_covariance is None:
            return self
        matrix = np.abs(self.nugget_matrix)
        np.fill_diagonal(matrix, 0.0)
        least = matrix.sum(axis=1)
        return self.replace(
            **{p.name: max(least[p.where], p.value) for p in self.nuggets if p.name in names}
        )

    @property
    def nuggets(self) -> tuple[Parameter, ...]:
        """The parameters that are the nuggets of the variables, with their values."""
        return tuple(p for p in self.table if p.group == NUGGET.name)

    def least_nugget(self, name: str) -> float:
        """Return the smallest value of a nugget that its covariances allow."""
        (k,) = self.parameter(name).where
        beside = np.delete(self.nugget_matrix[k], k)
        others = np.delete(np.delete(self.nugget_matrix, k, 0), k, 1)
        return float(beside @ np.linalg.pinv(others, hermitian=True) @ beside)

    def vanishing(self, nugget: str) -> dict[str, float]:
        """Return the parameters that are 0 if a nugget is, by name, with this value."""
        (k,) = self.parameter(nugget).where
        return {p.name: 0.0 for p in self.table if p.role == NOISE and k in p.where}

    @property
    def correlations(self) -> Floats:
        """Correlations of the fields of the variables at one location, (p, p)."""
        whole = sum(one.amplitude for one in self.components())
        deviations = np.sqrt(np.diag(whole))
        return whole / np.outer(deviations, deviations)

    def marginal(self, variable: int) -> Isotropic:
        """Return the model of one variable alone, by its number; it must be of `in_space`."""
        if variable not in range(self.variables):
            raise InvalidInput(
                f"`variable` must be a number from 0 to {self.variables - 1}. Got {variable!r}."
            )
        k = variable
        one, *more = [term for term in self.components() if term.amplitude[k, k] > 0]
        if more:
            raise InvalidInput(
                f"variable {k} of this {self.family} model is a sum of {len(more) + 1} "
                f"{self.in_space.family} fields, not one model: evaluate its covariance by "
                "calling the model."
            )
        correlation = one.correlations[k][k]
        return replace(
            correlation,
            variance=one.amplitude[k, k],
            nugget=self.nugget[k],
            anisotropy=self.anisotropy,
        )

    @property
    def tabulated(self) -> bool:
        """Whether there are tables of polynomials; see `Matern.tabulated`."""
        return all(one.tabulated for one in self._own_correlations())

    def _own_correlations(self):
        """Return the correlation of each variable with itself, in every term."""
        return [row[k] for term in self.components() for k, row in enumerate(term.correlations)]

    def check_tabulated(self, remedy: str) -> None:
        """Raise `InvalidInput`, with a remedy, if the correlation cannot be tabulated."""
        for one in self._own_correlations():
            one.check_tabulated(remedy)

    @property
    def largest_variance(self) -> float:
        """The largest of the variances."""
        return float(self.variances.max())

    def practical_range(self) -> float:
        """Return the largest practical range of a variable; see `Matern.practical_range`."""
        return max(one.practical_range() for one in self._own_correlations())

    def variance_of(self, nugget: str) -> float:
        """Return the variance of the variable of a nugget; see `Covariance.variance_of`."""
        return float(self.variances[self.parameter(nugget).where])

    def diagonal(self, a: Inputs) -> Floats:
        """Evaluate the variance of the field, without the nugget, at each input, (n,)."""
        return self.variances[a.variable % self.variables]

    def check_inputs(self, inputs: Inputs) -> None:
        """Raise `InvalidInput`, with a remedy, where the model is not a covariance of inputs."""
        super().check_inputs(inputs)
        numbers = inputs.variable
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < self.variables:
            wrong = numbers.min() if numbers.min() < 0 else numbers.max()
            raise InvalidInput(
                f"this {self.family} model has {self.variables} variables, numbered from 0. Got "
                f"variable {wrong}."
            )

    def check_observations(self, inputs: Inputs) -> None:
        """Raise `InvalidInput` for replicates: it is not known which of them share noise."""
        if self.nugget_covariance is not None:
            check_one_value(
                inputs,
                "with nugget covariances a variable can have only one value at a location. Here "
                "one has several, or their mean (`replicates`): use one of them "
                '(duplicates="drop", --duplicates drop), or leave the nugget covariances out.',
            )

    def valid_dimensions(self, metric: Metric | str, dimensions: int) -> float:
        """Return the dimensions in which the correlations must be valid; infinite for all."""
        return metric_of(metric).dimensions(dimensions)

    def check_valid_on(self, metric: Metric | str, dimensions: int) -> None:
        """Raise `InvalidInput`, with a remedy, where the model is not positive definite."""
        metric = metric_of(metric)
        if metric.arc and self.in_space.on_sphere is None:
            raise InvalidInput(
                f"{with_article(self.family)} model is not known to be a covariance with "
                "great-circle distances: use the chordal metric."
            )
        self.check_anisotropy(metric, dimensions)
        d = self.valid_dimensions(metric, dimensions)
        for one in self._own_correlations() if d < np.inf else ():
            one.check_valid_on(*((metric, dimensions) if metric.arc else ("euclidean", int(d))))
        if self.nugget_covariance is not None:
            self._check_nuggets()

    def _check_nuggets(self):
        """Raise `InvalidInput` unless nuggets and their covariances are positive semidefinite."""
        beta, deviations = self.nugget_correlations, np.sqrt(self.nugget)
        matrix = self.nugget_matrix
        alone = (matrix != 0) & (np.outer(deviations, deviations) == 0)
        if alone.any() or np.linalg.eigvalsh(beta)[0] < -EIGENVALUE_TOLERANCE:
            raise InvalidInput(
                f"the nuggets {', '.join(f'{x:.4g}' for x in self.nugget)} and the covariances "
                f"{', '.join(f'{x:.4g}' for x in self.nugget_covariance)} do not form a "
                "positive semidefinite matrix. Use larger nuggets, or nugget covariances nearer to "
                "0."
            )

    def limits(self, metric: Metric | str, dimensions: int) -> dict[str, tuple[float, float]]:
        """Return the bounds of each parameter; see `Covariance.limits`.

        Those of the covariance of two nuggets are the ends at which their matrix becomes singular.
        """
        found = super().limits(metric, dimensions)
        if metric_of(metric).arc:
            bounds = self.in_space.on_sphere or {}
            found |= {p.name: bounds[p.group] for p in self.table if p.group in bounds}
        elif self.in_space is not Matern and self.valid_dimensions(metric, dimensions) < np.inf:
            found |= self._shape_limits(int(self.valid_dimensions(metric, dimensions)))
        if self.nugget_covariance is not None:
            beta, deviations = self.nugget_correlations, np.sqrt(self.nugget)
            for i, j in indices(EACH_PAIR, self.variables):
                (middle, half), size = interval(beta, i, j), deviations[i] * deviations[j]
                ends = max(middle - half, -1.0) * size, min(middle + half, 1.0) * size
                found[name_of(NUGGET_COVARIANCE.name, (i, j))] = ends
        return found

    def _shape_limits(self, dimensions):
        """Return the bounds of the shapes, which may depend on other shapes of the variable."""
        terms, found = self.components(), {}
        for k in range(self.variables):
            # that of variable k, or of field k of a linear model of coregionalization
            one = terms[k if len(terms) > 1 else 0].correlations[k][k]
            within = one.limits("euclidean", dimensions)
            for shape in self.in_space.shapes:
                found[name_of(shape.name, (k,))] = within[shape.name]
        return found

    def widest_limits(
        self, metric: Metric | str, dimensions: int
    ) -> dict[str, tuple[float, float]]:
        """Return the bounds of each parameter for any values of the others."""
        return {p.name: (p.lower, p.upper) for p in self.table}

    @classmethod
    def from_marginals(
        cls, marginals: Sequence[Isotropic], correlations: Floats, dimensions: int = 2
    ) -> Self:
        """Return a model near models of the variables alone and their correlations.

        Parameters
        ----------
        marginals : sequence of Isotropic
            Model of each variable alone.
        correlations : (p, p) ndarray
            Of the fields at one location; brought nearer to 0 as far as the family needs it.
        dimensions : int
            Of the space in which the model must be valid.
        """
        names = ("variance", "range", *(shape.name for shape in cls.in_space.shapes), "nugget")
        values = {name: tuple(getattr(one, name) for one in marginals) for name in names}
        values |= cls._shared(marginals)
        return cls._near(values, np.asarray(correlations, dtype=np.float64), dimensions)

    @classmethod
    def family_alone(cls) -> type[Tabulated]:
        """Return the family of one variable alone."""
        return cls.in_space

    @classmethod
    def _shared(cls, marginals):
        """Return values of parameters that all variables share, from models of each alone."""
        return {}

    @classmethod
    def _near(cls, values, correlations, dimensions):
        raise NotImplementedError

    # neighbours: variables are as far apart as locations of the same correlation

    def apart(self) -> Floats:
        """Return the distances that the variables count as apart, (p, p).

        Two fields at one location have the correlation ρ_ij; each of them has it at some distance,
        and the geometric mean of both is what counts.
        """
        rho = np.abs(self.correlations)
        if self.nugget_covariance is not None:
            # observations at one location
            noisy = np.diag(self.variances) + self.nugget_matrix
            whole = self.correlations * np.sqrt(np.outer(self.variances, self.variances))
            whole = whole + self.nugget_matrix
            size = np.sqrt(np.diag(noisy))
            rho = np.maximum(rho, np.abs(whole) / np.outer(size, size))
        rho = np.clip(rho, LOWEST_MATCHED, HIGHEST_MATCHED)
        own = np.array(
            [[self._length(i, rho[i, j]) for j in range(len(rho))] for i in range(len(rho))]
        )
        result = np.sqrt(own * own.T)
        np.fill_diagonal(result, 0.0)
        return result

    def _length(self, i, correlation):
        """Return the distance at which a variable has a correlation with itself."""
        parts = [term for term in self.components() if term.amplitude[i, i] > 0]
        lengths = [
            distance_at(_rounded(term.correlations[i][i]), float(f"{correlation:.3g}"))
            * term.range[i, i]
            for term in parts
        ]
        weights = [term.amplitude[i, i] for term in parts]
        return float(np.exp(np.average(np.log(lengths), weights=weights)))

    def neighbour_key(self, known: Inputs) -> tuple[int, ...]:
        """Return the distances of `apart`, as half powers of two."""
        p = self.variables
        return tuple(round(2 * np.log2(self.apart()[i, j])) for i, j in indices(EACH_PAIR, p))

    def moved_key(self, key: tuple[int, ...], halves: int) -> tuple[int, ...]:
        """Return the key whose variables are 2^(halves/2) times as far apart."""
        return tuple(half + halves for half in key)

    def isotropic(self, inputs: Inputs | ArrayLike, metric: Metric | str = "euclidean") -> Floats:
        """Map inputs to points between which distances have no direction."""
        return self.points(Inputs.of(inputs, metric))

    def neighbour_points(self, inputs: Inputs, key: tuple[int, ...]) -> Floats:
        """Map inputs to points (n, k + q): the last coordinates are those of the variables."""
        apart = np.zeros((self.variables, self.variables))
        for (i, j), half in zip(indices(EACH_PAIR, self.variables), key, strict=True):
            apart[i, j] = apart[j, i] = 2.0 ** (half / 2)
        axes = placed(apart)
        if self.nugget_covariance is not None:
            axes = np.vstack((axes, axes))
        return inputs.with_variable_axes(axes)


def _doubled(term):
    """Return the term of the kinds i and p + i, which are alike, (2p, 2p)."""

    def tiled(matrix):
        return None if matrix is None else np.tile(matrix, (2, 2))

    changes = {
        name: Change(
            tiled(one.amplitude),
            tiled(one.log_range),
            {shape: tiled(own) for shape, own in one.shapes.items()},
        )
        for name, one in term.changes.items()
    }
    correlations = tuple(2 * row for row in 2 * term.correlations)
    return Term(correlations, *map(tiled, (term.amplitude, term.range)), changes=changes)


def _rounded(model):
    """Return the model of range 1 with three digits of its shapes: near enough, and remembered."""
    unit = model.unit
    shapes = {shape.name: float(f"{getattr(unit, shape.name):.3g}") for shape in unit.shapes}
    return replace(unit, **shapes)


def placed(apart: Floats) -> Floats:
    """Return points (p, q) at these distances (p, p), or nearly: classical scaling.

    >>> placed(np.array([[0.0, 3.0], [3.0, 0.0]])).round(12).tolist()
    [[-1.5], [1.5]]
    """
    p = len(apart)
    centred = np.eye(p) - 1 / p
    values, vectors = np.linalg.eigh(-0.5 * centred @ apart**2 @ centred)
    used = values > 1e-9 * values.max()
    points = vectors[:, used] * np.sqrt(values[used])
    return points * np.where(points[0] > 0, -1.0, 1.0)


def _transformations(given, p):
    """Return the transformations of p variables, from one for all or one for each; None for None.

    An instance of `Transformation` for all of them has the same constants for each.
    """
    known = transformation(given)
    if known is None:
        return None
    known = known if isinstance(known, ByVariable) else ByVariable((known,) * p)
    if len(known.transforms) != p:
        raise InvalidInput(
            f"`transform` must be one transformation or one for each of the {p} variables. Got "
            f"{len(known.transforms)}."
        )
    return known


def _numbers(group, kind, value, p, diagonal):
    """Return the numbers of a field, a list, from what a user may give.

    `diagonal` are the numbers that a matrix of pairs must have there.
    """
    count, array = len(indices(kind, p)), value
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        array = np.empty((0, 0, 0))
    if array.ndim == 0 and kind in (ONE_FOR_ALL, EACH_VARIABLE, EACH_PAIR):
        return [finite(group, value)] * count
    if array.ndim == 2 and kind == EACH_PAIR and array.shape == (p, p):
        if not (np.array_equal(array, array.T) and (np.diag(array) == diagonal).all()):
            what = "the nuggets" if group in OPTIONAL_GROUPS else "ones"
            raise InvalidInput(
                f"`{group}` must be a symmetric matrix with {what} on its diagonal. "
                f"Got {value!r:.80}."
            )
        return array[np.triu_indices(p, 1)].tolist()
    if array.ndim == 2 and kind == LOWER_TRIANGLE and array.shape == (p, p):
        if np.triu(array, 1).any():
            raise InvalidInput(f"`{group}` must be a lower triangle. Got {value!r:.80}.")
        return array[np.tril_indices(p)].tolist()
    if array.ndim != 1 or len(array) != count or kind == ONE_FOR_ALL:
        wanted = {
            ONE_FOR_ALL: "one number",
            EACH_VARIABLE: f"{count} numbers, one for each variable",
            EACH_PAIR: f"{count} numbers, one for each pair of variables, or a {p} × {p} matrix",
            LOWER_TRIANGLE: f"a {p} × {p} lower triangle",
        }[kind]
        raise InvalidInput(f"`{group}` must be {wanted}. Got {value!r:.80}.")
    return array.tolist()


# a search asks for them several times per evaluation
@cache
def _declared(groups, variables):
    """Return the parameters of so many variables, for the items of `Multivariate.groups`."""
    return tuple(
        _number(parameter, group, where)
        for group, (kind, parameter) in groups
        for where in indices(kind, variables)
    )


@cache
def _number(parameter, group, where):
    """Return one number of a parameter; loadings on the diagonal are positive."""
    one = replace(parameter, group=group).of(where)
    if parameter == LOADING and where[0] == where[1]:
        return replace(one, value=1.0, transform="log", lower=0.0)
    return one


def symmetric(numbers: tuple[float, ...], p: int) -> Floats:
    """Return a matrix with ones on its diagonal from its numbers above it."""
    matrix = np.eye(p)
    for (i, j), x in zip(indices(EACH_PAIR, p), numbers, strict=True):
        matrix[i, j] = matrix[j, i] = x
    return matrix


def nearer(correlations: Floats) -> Floats:
    """Return correlations (p, p) that are surely those of a distribution.

    They lie between ±`LARGEST_CORRELATION`.
    """
    beta = np.clip(correlations, -LARGEST_CORRELATION, LARGEST_CORRELATION)
    np.fill_diagonal(beta, 1.0)
    while np.linalg.eigvalsh(beta).min() < 1 - LARGEST_CORRELATION:
        beta = SHRINKING_FACTOR * beta + (1 - SHRINKING_FACTOR) * np.eye(len(beta))
    return beta


def interval(beta: Floats, i: int, j: int) -> tuple[float, float]:
    """Return middle and half-width of the values of an entry that keep a matrix semidefinite."""
    others = [k for k in range(len(beta)) if k not in (i, j)]
    if not others:
        return 0.0, 1.0
    inner = np.linalg.pinv(beta[np.ix_(others, others)], hermitian=True)
    a, b = beta[i, others], beta[j, others]
    left = max(1 - a @ inner @ a, 0.0) * max(1 - b @ inner @ b, 0.0)
    # the others may be no correlation matrix
    return float(np.clip(a @ inner @ b, -1.0, 1.0)), float(np.sqrt(left))


def at(p: int, i: int, j: int) -> Floats:
    """Return the symmetric (p, p) matrix with ones at (i, j) and (j, i) and zeros elsewhere."""
    matrix = np.zeros((p, p))
    matrix[i, j] = matrix[j, i] = 1.0
    return matrix
