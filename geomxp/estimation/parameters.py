"""Parameters of a fit: free and fixed ones, their bounds, and the search coordinates.

All estimation works on one table, made from the table of the covariance family. A `Coordinates`
object maps points x to models and back; the search, Newton's method, the information, standard
errors and profiles use it with different options:

    log θ                     positive parameters
    log(θ + c)                parameters that may be 0, in profiles
    radians, or degrees       angles
    log a·f(ν), f = a√(8ν)/a  the range in a search: the practical range, which the data determine
                              almost independently of the shape parameters
    log τ²/σ²                 the nugget in a search with the variance profiled out
"""

import re
import warnings
from dataclasses import dataclass, field, replace
from itertools import product
from math import exp, inf, log, radians

import numpy as np
import scipy

from ..covariance.base import Isotropic
from ..covariance.distance import embed, metric_of, power_of_two_near
from ..covariance.multivariate import MOST, NUGGET_COVARIANCE, Multivariate, indices, name_of
from ..errors import InvalidInput, NotPositiveDefinite
from ..likelihood.trend import ordinary_residuals

SCALE, NUGGET, LENGTH, MICROSCALE = "variance", "nugget", "range", "microscale"
"""Names of the parameters that have a role of their own: C = σ²ρ(h/a), and τ² on the diagonal, in
part shared by replicates."""

NUGGETS = tuple(f"{NUGGET}_{k + 1}" for k in range(MOST))
"""Names of the nuggets of several variables."""

NOISE = (NUGGET, MICROSCALE)
"""Parameters of the noise, which may be 0."""

ANISOTROPY = ("anisotropy_angle", "anisotropy_ratio")

NUGGET_RATIO = (1e-13, 1e4)
"""Bounds of τ²/σ² in a search."""

VARIANCES = (1e-8, 1e8)
"""Bounds of variances in a search, in units of the variance about the trend."""

LOADINGS = (1e-4, 1e4)
"""Bounds of loadings in a search, in units of the standard deviation about the trend; of those that
may be negative, the negative upper bound is the lower one."""

LENGTHS = (0.1, 1e3)
"""Bounds of the practical range: times the shortest distance, and times the extent."""

SHARES = (0.02, 0.2, 0.5, 0.85, 0.98, 0.997)
"""Shares of the variance that the nugget takes in the grid of starts."""

FINE_SHARES = (0.02, 0.08, 0.2, 0.4, 0.65, 0.85, 0.94, 0.98, 0.997)
"""These shares in a grid without shape parameters."""

FIRST_SHAPE, OTHER_SHAPES = (0.4, 1.0, 3.0, 12.0, 60.0), (0.3, 1.0, 4.0, 40.0)
"""Shape parameters in the grid of starts, in units of the family's declared values."""

REACH, SPACING, MOST_LENGTHS = 1.5, 1.7, 20
"""Practical ranges in the grid of starts: from the smallest distance to so many extents; ratio of
successive ones, and limit on their number."""

LAGS = (0.02, 0.1, 0.5, 3.0)
"""Ranges in time in the grid of starts, in units of the longest lag."""

BEYOND = (6.0, 40.0)
"""Practical ranges beyond `REACH` in the grid of starts, in extents: almost a linear trend."""

SPACING_WITHOUT_SHAPES = 1.4
"""Ratio of successive practical ranges in a grid without shape parameters."""

SUPPORT_SPACING, SUPPORT_LENGTHS = 1.1, 80
"""This ratio for compact supports, whose likelihoods have kinks, and limit on the number."""

SINGULAR = 1e-3
"""Eigenvalue of the correlations of nuggets that counts as 0, where a bound is as near."""

TINY = 1e-300
"""Stands for 0 in logarithms."""


def words(names):
    """Return names of parameters as text.

    Examples
    --------
    >>> words(["range"]), words(["variance", "range", "anisotropy_ratio"])
    ('range', 'variance, range and anisotropy ratio')
    """
    *first, last = (name.replace("_", " ") for name in names)
    return f"{', '.join(first)} and {last}" if first else last


def titles(model, observations):
    """Return the name in words of each parameter of a model, by name.

    Those of several variables have the names of the variables. Ranges and smoothnesses of a linear
    model of coregionalization are those of its fields.

    Examples
    --------
    >>> import numpy as np, geomxp as gx
    >>> model = gx.Coregionalization([[1.0, 0.0], [0.5, 2.0]], (0.5, 0.1), 0.5)
    >>> about = {"variable": ["zinc", "lead"] * 2}
    >>> seen = gx.Observations([[0, 0], [0, 0], [1, 1], [1, 1]], np.arange(4.0), **about)
    >>> names = titles(model, seen)
    >>> names["loading_21"], names["range_2"], names["nugget_2"]
    ('loading of lead on field 1', 'range of field 2', 'nugget of lead')
    """
    if not isinstance(model, Multivariate):
        return {name: words([name]) for name in model.parameters()}
    labels, result = observations.variable_labels, {}
    fields = ("range", "smoothness") if "loading" in model.groups else ()
    for group, (kind, _) in model.used_groups.items():
        for where in indices(kind, model.variables):
            of = [f"field {k + 1}" if group in fields else _label(labels, k) for k in where]
            text = f"{words([group])} of {of[0]}" if where else group
            if len(where) == 2:
                text += f" on field {where[1] + 1}" if group == "loading" else f" and {of[1]}"
            result[name_of(group, where)] = text
    return result


def with_titles(text, model, observations):
    """Return a text in which parameters of several variables have the names of the variables."""
    if not isinstance(model, Multivariate):
        return text
    for name, title in titles(model, observations).items():
        for old, new in ((words([name]), title), (words([name]).capitalize(), _capital(title))):
            text = re.sub(rf"\b{old}\b(?!\.\d)", lambda _, new=new: new, text)
    return text


def _capital(text):
    return text[:1].upper() + text[1:]


def _label(labels, k):
    """Return the name of variable k; a model may have more variables than observations."""
    return labels[k] if k < len(labels) else f"variable {k}"


@dataclass(frozen=True)
class Units:
    """Powers of two that bring lengths and values near 1 for the search."""

    # units of the scaled problem in the user's units
    length: float
    value: float
    # of the scaled values about the least-squares trend
    variance: float
    # unit of the numbers of measurements
    replicates: float = 1.0
    time: float = 1.0
    # units of the values of several variables, in units of `value`; none if they have one trend
    variables: tuple[float, ...] = ()
    # of each value (n,) and of each coefficient of the trend (p,), in the user's units
    rows: np.ndarray | float = field(default=1.0, compare=False)
    columns: np.ndarray | float = field(default=1.0, compare=False)

    @classmethod
    def of(cls, observations, design, model):
        """Choose units; raise `InvalidInput` if the values have no variance.

        Values that a transformation of the model maps to the Gaussian scale keep their unit.
        """
        transform = model.transform
        z = observations.values if transform is None else transform.transform(observations.values)
        largest = float(np.abs(z).max())
        unit = power_of_two_near(largest)
        residual = z / unit
        if design.shape[1]:
            scaled = design / np.abs(design).max(axis=0)
            residual = ordinary_residuals(residual, scaled)
        of_variables = []
        if isinstance(model, Multivariate):
            of_variables = _units_of_variables(observations, design, residual)
        if of_variables:
            # a model whose parameters are all fixed may have more variables
            of_variables += [1.0] * (model.variables - len(of_variables))
            residual = residual / np.array(of_variables)[observations.variable]
        spread = float(np.sqrt(np.mean(residual**2)))
        # rounding errors of values that the trend fits exactly
        if spread <= 16 * np.finfo(float).eps * max(1.0, design.shape[1]):
            what = (
                f"the values are all equal ({z[0]:g})"
                if np.ptp(z) == 0
                else "the trend fits the values exactly"
            )
            raise InvalidInput(f"{what}: there is no variance to estimate.")
        value = unit * power_of_two_near(spread) if transform is None else 1.0
        if not 1e-145 < value < 1e145:
            raise InvalidInput(
                f"the values spread by about {value:.0e}, whose square overflows or underflows in "
                "FP64: divide them by a constant first."
            )
        length = 1.0
        if metric_of(observations.metric).embedding is None:
            # divided by 4 so that the spread of coordinates near ±1e308 stays finite
            spreads = np.ptp(observations.locations / 4, axis=0)
            length = 4 * power_of_two_near(float(spreads.max()))
            length = min(max(length, 2.0**-1000), 2.0**1000)
        replicates = 1.0
        if observations.replicates is not None:
            replicates = power_of_two_near(float(np.median(observations.replicates)))
        time = 1.0
        if observations.time is not None:
            time = power_of_two_near(float(np.ptp(observations.time)))
        rows = columns = value
        if of_variables:
            each = value * np.array(of_variables)
            rows = each[observations.variable]
            # a column is of the variable of its rows that are not 0
            first = (design != 0).argmax(axis=0) if len(design) else np.zeros(0, dtype=int)
            columns = rows[first]
        variance = (spread * unit / value) ** 2
        about = replicates, time, tuple(of_variables), rows, columns
        return cls(length, value, variance, *about)

    def scaled(self, observations):
        """Return the observations in the units of the scaled problem."""
        locations = observations.locations
        with warnings.catch_warnings():
            # the user has been warned about the original coordinates
            warnings.simplefilter("ignore")
            known, counts = observations.error_variance, observations.replicates
            return replace(
                observations,
                locations=locations / self.length if self.length != 1 else locations,
                values=observations.values / self.rows,
                error_variance=None if known is None else known / self.rows**2,
                replicates=None if counts is None else counts / self.replicates,
                time=None if observations.time is None else observations.time / self.time,
                source={},
            )

    def of_parameter(self, parameter):
        """Return the unit of a `Parameter`."""
        first = last = self.value
        if self.variables and parameter.unit in ("value²", "value"):
            # variance_2, loading_21, nugget_covariance_12
            numbers = parameter.name.rpartition("_")[2]
            first *= self.variables[int(numbers[0]) - 1]
            last *= self.variables[int(numbers[-1]) - 1]
        units = {"value²": first * last, "value": first}
        units |= {"length": self.length, "time": self.time}
        unit = units.get(parameter.unit, 1.0)
        return unit * self.replicates if parameter.name.startswith(NUGGET) else unit

    def by_name(self, model):
        """Return the unit of each parameter of a model, a dict."""
        return {p.name: self.of_parameter(p) for p in model.table}

    def inward(self, model, values):
        """Return {name: value} or {name: (lower, upper)} in the units of the scaled problem."""
        units, scaled = self.by_name(model), {}
        for name, value in values.items():
            if isinstance(value, tuple):
                scaled[name] = tuple(end / units[name] for end in value)
            else:
                scaled[name] = value / units[name]
        return scaled

    def outward(self, model):
        """Return a model of the scaled problem in the user's units."""
        units = self.by_name(model)
        return model.replace(
            **{p.name: p.value * units[p.name] for p in model.table if p.unit != "degrees"}
        )

    def outward_values(self, model, values):
        """Return values of parameters, such as standard errors, in the user's units."""
        units = self.by_name(model)
        return {
            name: None if value is None else value * units[name] for name, value in values.items()
        }

    def shift(self, design, reml):
        """Return the log-Jacobian of the scaling, to add to the scaled log-likelihood."""
        n, p = design.shape
        logs = np.broadcast_to(np.log(self.rows), n).sum()
        return float(-(logs - (np.broadcast_to(np.log(self.columns), p).sum() if reml else 0.0)))


def _units_of_variables(observations, design, residual):
    """Return powers of two near the spreads of several variables; none if they share a trend."""
    if observations.variable is None or len(observations.variable_labels) == 1:
        return []
    own = [observations.variable == k for k in range(len(observations.variable_labels))]
    used = np.array([(design[rows] != 0).any(axis=0) for rows in own])
    if (used.sum(axis=0) > 1).any():
        return []
    sizes = [float(np.sqrt((residual[rows] ** 2).sum() / max(rows.sum(), 1))) for rows in own]
    limit = 16 * np.finfo(float).eps
    for rows, size, name in zip(own, sizes, observations.variable_labels, strict=True):
        if rows.any() and size <= limit:
            raise InvalidInput(
                f"the values of {name} are all equal, or the trend fits them exactly: there is no "
                "variance to estimate."
            )
    return [power_of_two_near(size) if size > 0 else 1.0 for size in sizes]


@dataclass(frozen=True)
class Extent:
    """Smallest distance between two different locations, and diagonal of their bounding box.

    Of observations with times also the smallest and the largest lag in time, else None.
    """

    shortest: float
    longest: float
    lags: tuple[float, float] | None = None

    @classmethod
    def of(cls, observations):
        """Measure; raise `InvalidInput` if all locations coincide."""
        points = np.unique(embed(observations.locations, observations.metric), axis=0)
        if len(points) < 2:
            raise InvalidInput("all locations are the same: the range cannot be estimated.")
        distances = scipy.spatial.cKDTree(points).query(points, k=2)[0][:, 1]
        distances = distances[distances > 0]
        if not len(distances):
            raise InvalidInput(
                "all locations are the same to the digits of FP64: the range cannot be estimated."
            )
        longest = float(np.linalg.norm(np.ptp(points, axis=0)))
        lags = None
        if observations.time is not None:
            between = np.diff(np.unique(observations.time))
            if not len(between):
                raise InvalidInput(
                    "all times are the same: leave the time out and use a spatial model."
                )
            lags = float(between.min()), float(between.sum())
        return cls(float(distances.min()), longest, lags)


def template(
    family, anisotropic, transform=None, microscale=False, variables=1, nugget_covariance=False
):
    """Return a model of a family at its declared values, with further parameters if requested."""
    values = {p.name: p.value for p in family.declared_for(variables)}
    values |= {p.name: p.value for p in family.optional_for(variables) if nugget_covariance}
    values |= {MICROSCALE: 0.0} if microscale else {}
    values |= {ANISOTROPY[1]: 0.5} if anisotropic else {}
    model = family.from_parameters(values, transform)
    if anisotropic and ANISOTROPY[1] not in model.parameters():
        raise InvalidInput(
            f"the family {family.family!r} has no geometric anisotropy: leave `anisotropy` out."
        )
    return model


class ParameterTable:
    """Free and fixed parameters of a fit, with their bounds, in the units of the scaled problem.

    The model is any of the family, with anisotropy if that is estimated or fixed; `bounds` are the
    user's; `variance` is that of the values about an ordinary least-squares trend. With `profiled`
    the variance is profiled out: Σ = σ²(R + gI), and σ̂² has a closed form. Known error variances
    exclude this.
    """

    def __init__(self, model, fixed, bounds, observations, variance, extent=None):
        self.fixed, self.bounds = dict(fixed), dict(bounds)
        self.model = model.replace(**fixed)
        self.parameters = {p.name: p for p in model.table}
        self.free = tuple(name for name in self.parameters if name not in fixed)
        self.observations, self.variance = observations, variance
        self.extent = extent or Extent.of(observations)
        self.metric, self.dimensions = observations.metric, observations.dimensions
        self.limits = self._widest_limits()
        linear = {p.name for p in model.table if p.linear}
        noise = linear & set(NOISE)
        self.profiled = (
            observations.error_variance is None
            and linear - noise == {SCALE}
            and NUGGET in noise
            and SCALE in self.free
            and not linear & set(bounds)
            and all(name in self.free or fixed[name] == 0 for name in noise)
        )
        self.anisotropic = ANISOTROPY[1] in self.parameters

    def holding(self, **values):
        """Return the table with some parameters fixed at values as well."""
        for name in [name for name, value in values.items() if name in NUGGETS and value == 0]:
            # nothing correlates with noise of variance 0
            values |= self.model.vanishing(name)
        bounds = {name: box for name, box in self.bounds.items() if name not in values}
        about = self.observations, self.variance, self.extent
        return ParameterTable(self.model, self.fixed | values, bounds, *about)

    @property
    def shapes(self):
        """Free parameters without a unit: those of the correlation function."""
        return [
            name for name in self.free if not self.parameters[name].unit and name not in ANISOTROPY
        ]

    @property
    def covariances(self):
        """Free covariances of nuggets, whose limits depend on the nuggets."""
        return [name for name in self.free if is_nugget_covariance(name)]

    @property
    def of_transform(self):
        """Free parameters of the transformation."""
        known = () if self.model.transform is None else self.model.transform.parameters()
        return [name for name in self.free if name in known]

    # bounds

    def limits_at(self, model):
        """Return the limits of each parameter for the values that the others have in a model."""
        others = {p.name: (p.lower, p.upper) for p in model.table if p.name in ANISOTROPY}
        others |= {name: (model.least_nugget(name), inf) for name in self.nuggets_beside}
        return model.limits(self.metric, self.dimensions) | others

    @property
    def nuggets_beside(self):
        """Free nuggets beside fixed covariances, which are limits of them."""
        fixed = [name for name, x in self.fixed.items() if is_nugget_covariance(name) and x]
        return [name for name in self.free if name in {n for one in fixed for n in nuggets_of(one)}]

    def _widest_limits(self):
        """Return the limits of each parameter for any values of the shapes."""
        widest = self.model.widest_limits(self.metric, self.dimensions)
        if widest is not None:
            return widest
        shapes = [self.parameters[name] for name in self.shapes]
        ends = [
            [min(max(end, p.lower + 1e-12), p.upper) for end in p.search or (1e-3, 1e3)]
            for p in shapes
        ]
        corners = [
            self.limits_at(self.model.replace(**dict(zip(self.shapes, corner, strict=True))))
            for corner in product(*ends)
        ]
        return {
            name: tuple(
                end(limits[name][k] for limits in corners) for k, end in ((0, min), (1, max))
            )
            for name in corners[0]
        }

    def box_at(self, name, model):
        """Return the bounds of a parameter for the values that the others have in a model."""
        lower, upper = self.box(name)
        limited = name in (*self.covariances, *self.nuggets_beside)
        limited |= not self.parameters[name].unit
        if name in self.bounds or not limited:
            return lower, upper
        least, most = self.limits_at(model)[name]
        return max(lower, least), min(upper, most)

    def box(self, name):
        """Return the bounds of a parameter: the user's, or those that the data suggest."""
        if name in self.bounds:
            lower, upper = self.bounds[name]
            if name in NOISE:
                # a logarithm needs a positive lower bound
                lower = max(lower, min(NUGGET_RATIO[0] * self.variance, 1e-6 * upper))
            return lower, upper
        parameter = self.parameters[name]
        if parameter.unit == "value²":
            ends = NUGGET_RATIO if parameter.closed else VARIANCES
            if is_nugget_covariance(name):
                ends = -NUGGET_RATIO[1], NUGGET_RATIO[1]
            return tuple(end * self.variance for end in ends)
        if parameter.unit == "value":
            size, (least, most) = self.variance**0.5, LOADINGS
            return (least if parameter.lower == 0 else -most) * size, most * size
        if parameter.unit == "length":
            return self.lengths()
        if parameter.unit == "time" and self.extent.lags:
            shortest, longest = self.extent.lags
            return LENGTHS[0] * shortest, LENGTHS[1] * longest
        lower, upper = self.limits[name]
        if name in self.of_transform and parameter.search is None:
            return lower, upper
        first, last = parameter.search or (1e-3, 1e3)
        return max(lower, first), min(upper, last)

    def lengths(self):
        """Return the bounds of practical ranges that the data suggest."""
        return LENGTHS[0] * self.extent.shortest, LENGTHS[1] * self.extent.longest

    def practical_bounds(self):
        """Return the bounds of the practical range."""
        if LENGTH not in self.bounds:
            return self.lengths()
        # the user bounds the range itself: the widest over all shapes
        corners = [
            dict(zip(self.shapes, corner, strict=True))
            for corner in product(*(self.box(name) for name in self.shapes))
        ]
        factors = [practical_factor(self.model.replace(**corner)) for corner in corners]
        lower, upper = self.bounds[LENGTH]
        return lower * min(factors), upper * max(factors)

    def search_box(self, name):
        """Return the bounds of what a search moves: practical range, τ²/σ², or the parameter."""
        if name == LENGTH:
            return self.practical_bounds()
        return NUGGET_RATIO if name in NOISE and self.profiled else self.box(name)

    def bounded(self, model):
        """Yield (name, value, lower, upper) of every free parameter, in the terms of its bounds."""
        values = model.parameters()
        for name in self.free:
            value = values[name]
            if self.parameters[name].unit == "degrees" and name not in self.bounds:
                continue
            if name == LENGTH and name not in self.bounds:
                yield name, value * practical_factor(model), *self.practical_bounds()
            elif name in NOISE and self.profiled:
                yield name, value / values[SCALE], *NUGGET_RATIO
            elif not (name == SCALE and self.profiled):
                yield name, value, *self.box_at(name, model)

    def on_bounds(self, model, near=1e-3):
        """Return {name: "lower" or "upper"} of the parameters on a bound.

        `near` is the distance in logarithms (degrees of an angle) that counts as on the bound.
        """
        pinned, values = {}, model.parameters()
        for name, value, lower, upper in self.bounded(model):
            margin = near * (1.0 if self.parameters[name].transform == "identity" else value)
            if is_nugget_covariance(name):
                margin = near * size_of(name, values)
            if value <= lower + margin:
                pinned[name] = "lower"
            elif value >= upper - margin:
                pinned[name] = "upper"
        return pinned

    def outside(self, model):
        """Return the names of the parameters outside their bounds."""
        return [
            name
            for name, value, lower, upper in self.bounded(model)
            if value < lower - 1e-12 * abs(lower) or value > upper + 1e-12 * abs(upper)
        ]

    def within(self, model):
        """Return a model with shapes, ranges in time and correlated noise clipped to their bounds.

        None if another parameter is outside its bounds.
        """
        times = [name for name in self.free if self.parameters[name].unit == "time"]
        for name in (*self.shapes, *times, *self.covariances, *self.nuggets_beside):
            (lower, upper), value = self.box_at(name, model), model.parameters()[name]
            if not lower <= value <= upper:
                model = model.replace(**{name: min(max(value, lower), upper)})
        return model if self.valid(model) and not self.outside(model) else None

    def is_limit(self, name, side, model):
        """Whether a bound of the search is a limit of the parameter itself."""
        k = 0 if side == "lower" else 1
        limit = self.limits_at(model)[name][k]
        return name not in self.bounds and self.box_at(name, model)[k] == limit

    def coupled(self, name, side, model):
        """Whether a bound is a limit that depends on other parameters."""
        k = 0 if side == "lower" else 1
        limit = self.limits_at(model)[name][k]
        return self.is_limit(name, side, model) and limit != self.limits[name][k]

    def binding(self, following, model, score):
        """Return bounds that parameters follow, those of correlated noise only as many as needed.

        Correlation matrices with m eigenvalues of 0 have m(m+1)/2 entries that are functions of the
        others. `following` are pairs (name, side); the names with the steepest score, a dict, are
        kept.
        """
        noise = [name for name, _ in following if name in (*self.covariances, *self.nuggets_beside)]
        if not noise:
            return following
        eigenvalues = np.linalg.eigvalsh(model.nugget_correlations)
        most = sum(range(1, 1 + np.count_nonzero(eigenvalues < SINGULAR)))
        steepest = sorted(noise, key=lambda name: -abs(score[name]))[: max(most, 1)]
        return [pair for pair in following if pair[0] not in noise or pair[0] in steepest]

    def valid(self, model):
        """Whether a model is positive definite on locations of this kind."""
        return model.valid_on(self.metric, self.dimensions)

    # coordinates

    def search_coordinates(self):
        """Return the coordinates of a search without derivatives, with their box."""
        names = [name for name in self.free if not (name == SCALE and self.profiled)]
        return SearchCoordinates(self, names)

    def coordinates(self, model, names=None, following=(), relative=True):
        """Return the coordinates of Newton's method and of standard errors: logarithms, radians.

        `following` are pairs (name, "lower" or "upper") of parameters that stay at a limit, which
        depends on those that move. With `relative` those of nugget covariances are correlations.
        """
        wrap = not set(ANISOTROPY[:1]) & set(self.bounds)
        names = self.free if names is None else names
        about = {"limits": self.limits_at, "following": following, "relative": relative}
        return Coordinates(names, model, wrap=wrap, **about)

    # starts

    def grid(self, given):
        """Return a grid of starts: the length of each axis, and the models in their order.

        `given` are values of some parameters. Axes are those of the free shapes, the range in time,
        the practical range, the nugget's share of the variance, and the angle. None stands for a
        model that is not valid.
        """
        given = self.fixed | given
        free = [self.parameters[name] for name in self.free]
        lengths = [p.name for p in free if p.unit == "length" and p.name not in given]
        shapes = [name for name in self.shapes if name not in given]
        axes = {name: self.shape_axis(name, k == 0) for k, name in enumerate(shapes)}
        lags = [p.name for p in free if p.unit == "time" and p.name not in given]
        lags = lags if self.extent.lags else []
        axes["lag"] = [share * self.extent.lags[1] for share in LAGS] if lags else [None]
        axes["length"] = self._length_axis(coarse=bool(lags)) if lengths else [None]
        axes["share"] = SHARES if self.shapes else FINE_SHARES
        if NUGGET in given:
            axes["share"] = [None]
        angles = self.anisotropic and ANISOTROPY[0] not in given
        axes["angle"] = (0.0, 45.0, 90.0, 135.0) if angles else [None]
        models = []
        for choice in product(*axes.values()):
            values = dict(zip(axes, choice, strict=True))
            named = ("length", "lag", "share", "angle")
            length, lag, share, angle = (values.pop(name) for name in named)
            values = values | dict.fromkeys(lags, lag) | given
            if lengths:
                factor = practical_factor(self.model.replace(**values))
                values |= dict.fromkeys(lengths, length / factor)
            # share: of the variance about the trend that the nugget takes
            values.setdefault(NUGGET, (share or 0.0) * self.variance)
            for parameter in free:
                if parameter.unit == "value²":
                    values.setdefault(parameter.name, (1.0 - (share or 0.05)) * self.variance)
            if angle is not None:
                values[ANISOTROPY[0]] = angle
            model = self.model.replace(**values)
            models.append(model if self.valid(model) else None)
        return [len(axis) for axis in axes.values()], models

    def shape_axis(self, name, first=False):
        """Return the values of a shape parameter in the grid; more for the first one."""
        value, (lower, upper) = self.parameters[name].value, self.box(name)
        known = self.parameters[name].starts
        several = {factor * value for factor in known or (FIRST_SHAPE if first else OTHER_SHAPES)}
        several |= {lower} if self.parameters[name].closed and known is None else set()
        return sorted({min(max(each, lower), upper) for each in several})

    def _length_axis(self, coarse=False):
        """Return practical ranges from the nearest locations to beyond the extent."""
        nearest, longest = self.extent.shortest, REACH * self.extent.longest
        spacing, most = (SPACING**2, MOST_LENGTHS // 2) if coarse else (SPACING, MOST_LENGTHS)
        if not self.shapes:
            spacing = SPACING_WITHOUT_SHAPES
            if is_compact(self.model):
                spacing, most = SUPPORT_SPACING, SUPPORT_LENGTHS
        if is_compact(self.model):
            # the support of locations that are just correlated reaches a little beyond the nearest
            nearest = nearest * self.model.replace(**{LENGTH: 1.0}).practical_range()
        count = min(max(round(log(longest / nearest, spacing)), 3), most)
        return [*np.geomspace(nearest, longest, count + 1), *(far * longest for far in BEYOND)]


def is_nugget_covariance(name):
    """Whether a parameter, by name, is the covariance of two nuggets."""
    return name.startswith(f"{NUGGET_COVARIANCE.name}_")


def covariance_of(first, second):
    """Return the name of the covariance of two nuggets.

    >>> covariance_of("nugget_3", "nugget_1")
    'nugget_covariance_13'
    """
    return f"{NUGGET_COVARIANCE.name}_{''.join(sorted((first[-1], second[-1])))}"


def nuggets_of(covariance):
    """Return the names of the nuggets of a covariance.

    >>> nuggets_of("nugget_covariance_13")
    ['nugget_1', 'nugget_3']
    """
    return [f"{NUGGET}_{number}" for number in covariance[-2:]]


def size_of(covariance, values):
    """Return the product of the standard deviations of the nuggets of a covariance, by its name."""
    first, second = nuggets_of(covariance)
    return (values[first] * values[second]) ** 0.5


def is_compact(model):
    """Whether the covariance is 0 from a finite distance on."""
    return isinstance(model, Isotropic) and model.support is not None


def practical_factor(model):
    """Return the practical range over the range; 1 for a family without a range."""
    if LENGTH not in model.parameters():
        return 1.0
    return model.replace(**{LENGTH: 1.0}).practical_range()


def at_practical_range(model, length):
    """Return the model of another practical range."""
    return model.replace(**{LENGTH: length / practical_factor(model)})


class Coordinates:
    """Map between points x and models: logarithms, radians of an angle.

    The parameters `names` move; the others have their values in `model`. With `wrap` angles are
    brought into [0, 180). `offset` is c of log(θ + c) for parameters that may be 0. `following`
    maps parameters to the end of their `limits` (a function of the model) at which they stay. With
    `relative` covariances of nuggets that move or follow have the coordinates η_ij/(τ_i τ_j): their
    limits do not depend on the nuggets.
    """

    def __init__(
        self, names, model, wrap=True, offset=0.0, limits=None, following=(), relative=False
    ):
        self.names, self.origin = list(names), model
        self.limits_at, self.following = limits, dict(following)
        self.table = {p.name: p for p in model.table}
        self.wrap, self.offset = wrap, offset
        moving = (*self.names, *self.following) if relative else ()
        self.relative = [name for name in moving if is_nugget_covariance(name)]
        # limits that are not linear in the others
        self.curved = list(self.following) if isinstance(model, Multivariate) else []

    def inward(self, name, value):
        """Return the coordinate of a parameter's value."""
        parameter = self.table[name]
        if parameter.transform == "identity":
            return radians(value) if parameter.unit == "degrees" else value
        if parameter.closed:
            value = value + self.offset
        return log(max(value, TINY))

    def outward(self, name, x):
        """Return a parameter's value at a coordinate."""
        parameter = self.table[name]
        if parameter.transform == "identity":
            if parameter.unit != "degrees":
                return min(max(float(x), parameter.lower), parameter.upper)
            angle = float(np.degrees(x))
            return angle % 180.0 if self.wrap else angle
        value = exp(min(x, 600.0))
        if parameter.closed and self.offset:
            # within rounding of c the value is 0
            return value - self.offset if value > self.offset * (1 + 1e-14) else 0.0
        return min(value, parameter.upper)

    def point(self, model):
        """Return the point of a model, (k,)."""
        values = model.parameters()
        relative = self._correlations(values)
        return np.array(
            [relative.get(name, self.inward(name, values[name])) for name in self.names]
        )

    def _correlations(self, values):
        """Return the correlations of the covariances in `relative`, by name."""
        sizes = {name: size_of(name, values) for name in self.relative}
        return {name: values[name] / size if size else 0.0 for name, size in sizes.items()}

    def model(self, x):
        """Return the model at a point."""
        values = {name: self.outward(name, v) for name, v in zip(self.names, x, strict=True)}
        values |= self._covariances(values)
        return self._followed(self.origin.replace(**values))

    def _covariances(self, values):
        """Return the covariances in `relative`, by name, from correlations and other values."""
        if not self.relative:
            return {}
        known = self.origin.parameters()
        correlations, known = self._correlations(known) | values, known | values
        return {name: correlations[name] * size_of(name, known) for name in self.relative}

    def _followed(self, model):
        """Return a model with the parameters that stay at a limit there."""
        for name, side in self.following.items():
            limit = self.limits_at(model)[name][0 if side == "lower" else 1]
            model = model.replace(**{name: limit})
        return model

    def with_followers(self, model):
        """Return the names of all parameters that change, and ∂θ/∂θ_moving, (m, k).

        The derivatives are those by the correlation of nuggets, not by a covariance in `relative`.
        """
        names, values = [*self.names, *self.following], model.parameters()
        slopes = np.eye(len(names), len(self.names))
        x = self.point(model) if self.following else ()
        for j, name in enumerate(self.names[: len(x)]):
            ends = [np.where(np.arange(len(x)) == j, x + step, x) for step in (-1e-4, 1e-4)]
            low, high = (self.model(end).parameters() for end in ends)
            moved = 2e-4 if name in self.relative else high[name] - low[name]
            for i, other in enumerate(self.following, len(self.names)):
                slopes[i, j] = (high[other] - low[other]) / moved
        for i, name in enumerate(self.names):
            if name in self.relative:
                # η_ij = β_ij τ_i τ_j
                slopes[i, i] = size_of(name, values)
                for nugget in set(nuggets_of(name)) & set(self.names):
                    slopes[i, self.names.index(nugget)] = values[name] / (2 * values[nugget])
        return names, slopes

    def absolute(self, model, information):
        """Return the information by covariances of nuggets from that by their correlations.

        It is that at a maximum, where the score is 0.
        """
        if not self.relative:
            return information
        units = self.jacobian(model)
        slopes = self.with_followers(model)[1][: len(units)] * units / units[:, None]
        back = np.linalg.inv(slopes)
        return back.T @ information @ back

    def jacobian(self, model):
        """Return dθ/dx, (k,)."""
        values, result = model.parameters(), []
        for name in self.names:
            parameter = self.table[name]
            if parameter.transform == "identity":
                result.append(np.degrees(1.0) if parameter.unit == "degrees" else 1.0)
            else:
                result.append(values[name] + (self.offset if parameter.closed else 0.0))
        return np.array(result)

    def in_coordinates(self, model, gradient, information=None):
        """Return the score ∂ℓ/∂x, and the information, from those in the parameters."""
        units = self.jacobian(model)
        score = np.array([gradient[name] for name in self.names]) * units
        return score, None if information is None else information * np.outer(units, units)

    def score(self, x, evaluator, monitor):
        """Return the gradient of the log-likelihood at a point; NaN where it has none."""
        model = self.model(x)
        monitor.count += not evaluator.keeps(model)
        names, slopes = self.with_followers(model)
        try:
            gradient = evaluator.gradient(model, names)
        except NotPositiveDefinite:
            return np.full(len(x), np.nan)
        along = slopes.T @ np.array([gradient[name] for name in names])
        return along * self.jacobian(model)

    def information(self, x, evaluator, monitor):
        """Return minus the Hessian of the log-likelihood at a point; NaN where it has none."""
        model = self.model(x)
        monitor.count += 1
        try:
            names, slopes = self.with_followers(model)
            information = slopes.T @ evaluator.observed_information(model, names) @ slopes
        except NotPositiveDefinite:
            return np.full((len(x), len(x)), np.nan)
        units = self.jacobian(model)
        # of logarithms: θ_j θ_k I_jk - δ_jk θ_j ∂_jℓ; untransformed ones have no second term
        curved = [self.table[n].transform == "log" for n in self.names]
        score = self.score(x, evaluator, monitor)
        information = information * np.outer(units, units) - np.diag(np.where(curved, score, 0.0))
        for name in self.relative:
            # η = β τ_i τ_j in log τ²: ∂²η/∂log τ_i² ∂β = τ_i τ_j/2, all others are η/4
            k = self.names.index(name)
            beside = [self.names.index(n) for n in nuggets_of(name) if n in self.names]
            information[k, beside] -= score[k] / 2
            information[beside, k] -= score[k] / 2
            sign = 1 - 2 * np.eye(len(beside))
            information[np.ix_(beside, beside)] -= sign * score[k] * x[k] / 4
        return information

    def standard_errors(self, model, information):
        """Return standard errors of the parameters from the observed information, a dict."""
        errors = np.sqrt(np.diag(np.linalg.inv(information))) * self.jacobian(model)
        return dict(zip(self.names, errors.tolist(), strict=True))


class SearchCoordinates(Coordinates):
    """Coordinates of a search without derivatives: practical range, nugget ratio, degrees.

    `lower` and `upper`, (k,), are the box; `scales`, (k,), are first steps relative to those of a
    logarithm.
    """

    def __init__(self, table, names):
        super().__init__(names, table.model, relative=True)
        self.relative = [name for name in self.relative if name not in table.bounds]
        self.parameters, self.profiled = table, table.profiled
        ends = [
            (-1.0, 1.0)
            if name in self.relative
            else [self._inward(name, end) for end in table.search_box(name)]
            for name in names
        ]
        self.lower, self.upper = np.array(ends).reshape(len(names), 2).T
        angular = [self.table[name].unit == "degrees" for name in names]
        self.scales = np.where(angular, 40.0, 1.0)

    def _inward(self, name, value):
        return value if self.table[name].transform == "identity" else log(max(value, TINY))

    def model(self, x):
        """Return the model at a point; of variance 1 if the variance is profiled out."""
        values = {
            name: exp(v) if self.table[name].transform == "log" else float(v)
            for name, v in zip(self.names, x, strict=True)
        }
        if self.profiled:
            values[SCALE] = 1.0
        if LENGTH in values:
            shapes = {name: v for name, v in values.items() if name in self.parameters.shapes}
            length = values[LENGTH] / practical_factor(self.origin.replace(**shapes))
            lower, upper = self.parameters.bounds.get(LENGTH, (0.0, inf))
            values[LENGTH] = min(max(length, lower), upper)
        angle = ANISOTROPY[0]
        if angle in values and angle not in self.parameters.bounds:
            values[angle] %= 180.0
        return self.origin.replace(**values | self._covariances(values))

    def point(self, model):
        """Return the point of a model, inside the box."""
        values, x = model.parameters(), []
        values |= self._correlations(values)
        for name, lower in zip(self.names, self.lower, strict=True):
            value = values[name]
            if name == LENGTH:
                x.append(log(model.practical_range()))
            elif name in NOISE and self.profiled:
                x.append(log(max(value / values[SCALE], NUGGET_RATIO[0])))
            elif self.table[name].unit == "degrees":
                # angles that differ by 180 degrees are equal: the first above the lower bound
                x.append(lower + (value - lower) % 180.0)
            else:
                x.append(self._inward(name, value))
        return np.clip(x, self.lower, self.upper)

    def slope(self, model, gradient):
        """Return the gradient in these coordinates, (k,), from that in the parameters.

        Where the variance is profiled out, the model has the best one: its slope there is 0.
        """
        at = {
            p.name: gradient[p.name] * (1.0 if p.transform == "identity" else p.value)
            for p in model.table
        }
        values = model.parameters()
        for name in self.relative:
            at |= {n: at[n] + gradient[name] * values[name] / 2 for n in nuggets_of(name)}
            at[name] *= size_of(name, values)
        if LENGTH in self.names:
            # log a = log(practical range) - log f(shapes)
            for name in self.parameters.shapes:
                at[name] -= _practical_slope(model, name) * at[LENGTH]
        return np.array([at[name] for name in self.names])


def _practical_slope(model, name, step=1e-4):
    """Return ∂ log f/∂ log(shape) of the practical range a f, by a difference."""
    value, ends = model.parameters()[name], []
    for sign in (1, -1):
        try:
            moved = practical_factor(model.replace(**{name: value * exp(sign * step)}))
            ends.append((sign * step, log(moved)))
        except InvalidInput:
            # beyond the parameter's limit
            ends.append((0.0, log(practical_factor(model))))
    (above, high), (below, low) = ends
    # accurate to that many digits
    return round((high - low) / (above - below), 7)


def check_bounds(bounds, start, fixed, model):
    """Return bounds (None: none) as a dict of pairs of floats.

    Raises `InvalidInput` if a name is unknown or fixed, a pair is not an interval of the
    parameter's values, or a start lies outside.
    """
    result, known = {}, {p.name: p for p in model.table}
    for name, pair in (bounds or {}).items():
        if name not in known:
            raise InvalidInput(f"`bounds` must name parameters: {', '.join(known)}. Got {name!r}.")
        if name in fixed:
            raise InvalidInput(f"`{name}` is fixed and has bounds: leave one of them out.")
        try:
            lower, upper = (float(value) for value in pair)
        except (TypeError, ValueError, OverflowError):
            raise InvalidInput(f"bounds of `{name}` must be two numbers. Got {pair!r}.") from None
        parameter = known[name]
        least = lower > parameter.lower or (parameter.closed and lower == parameter.lower)
        if not (least and lower < upper < inf):
            least = "" if parameter.lower == -inf else f"{parameter.lower:g} < "
            raise InvalidInput(
                f"bounds of `{name}` must satisfy {least}lower < upper. "
                f"Got {lower:g} and {upper:g}."
            )
        if upper > parameter.upper:
            raise InvalidInput(f"`{name}` is at most {parameter.upper:g}. Got the bound {upper:g}.")
        result[name] = (lower, upper)
        if name in start and not lower <= start[name] <= upper:
            raise InvalidInput(
                f"the start {name}={start[name]:g} lies outside its bounds {lower:g} to {upper:g}."
            )
    return result
