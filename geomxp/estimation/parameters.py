"""The table of a fit's parameters: free and fixed ones, their bounds, and starts."""

from functools import cached_property
from itertools import product
from math import inf, log, prod

import numpy as np

from ..covariance.anisotropy import DIP, SECOND_AXIS, THIRD_AXIS, Anisotropy3D
from ..covariance.noise import NoiseParameter, variances_in
from ..errors import InvalidInput, did_you_mean
from .coordinates import NUGGET_RATIO_BOUNDS, Coordinates, SearchCoordinates, practical_factor
from .names import (
    ANISOTROPY,
    MICROSCALE,
    NOISE,
    NUGGET,
    RANGE,
    VARIANCE,
    nuggets_of,
    of_nuggets,
    size_of,
)
from .units import Extent

VARIANCE_BOUNDS = (1e-8, 1e8)
"""Bounds of variances in a search, in units of the variance about the trend."""

LOADING_BOUNDS = (1e-4, 1e4)
"""Bounds of loadings in a search, in units of the standard deviation about the trend. A loading of
either sign lies between minus the upper bound and the upper bound."""

RANGE_BOUNDS = (0.1, 1e3)
"""Bounds of the practical range: times the shortest distance, and times the extent."""

NUGGET_SHARES = (0.02, 0.2, 0.5, 0.85, 0.98, 0.997)
"""Shares of the variance that the nugget takes in the grid of starts."""

FINE_NUGGET_SHARES = (0.02, 0.08, 0.2, 0.4, 0.65, 0.85, 0.94, 0.98, 0.997)
"""These shares in a grid without shape parameters."""

FIRST_SHAPE_FACTORS, OTHER_SHAPE_FACTORS = (0.4, 1.0, 3.0, 12.0, 60.0), (0.3, 1.0, 4.0, 40.0)
"""Shape parameters in the grid of starts, in units of the family's declared values."""

GRID_REACH_EXTENTS, GRID_RANGE_RATIO, MOST_GRID_RANGES = 1.5, 1.7, 20
"""Practical ranges in the grid of starts: from the smallest distance to so many extents; ratio of
successive ones, and limit on their number."""

TIME_RANGE_SHARES = (0.02, 0.1, 0.5, 3.0)
"""Ranges in time in the grid of starts, in units of the longest lag."""

DISTANT_RANGE_EXTENTS = (6.0, 40.0)
"""Practical ranges beyond `GRID_REACH_EXTENTS` in the grid of starts, in extents: the field is then
almost a linear trend."""

SUPPORT_RANGE_RATIO, MOST_SUPPORT_RANGES = 1.1, 80
"""This ratio for compact supports, whose likelihoods have kinks, and limit on the number."""

START_ANGLES, START_AXIS_RATIOS = (0.0, 45.0, 90.0, 135.0), (0.2, 1.0, 5.0)
"""Angles in degrees, and ratios of the ranges of two axes, at which searches start."""

SINGULAR_EIGENVALUE = 1e-3
"""Eigenvalue of the correlations of nuggets that counts as 0, where a bound is as near."""


def template(
    family,
    turned=None,
    transform=None,
    microscale=False,
    variables=1,
    nugget_covariance=False,
    response=None,
):
    """Return a model of a family at its declared values, with further parameters if requested.

    `turned` is the kind of anisotropy, or None.
    """
    values = {p.name: p.value for p in family.declared_for(variables)}
    values |= {p.name: p.value for p in family.optional_for(variables) if nugget_covariance}
    values |= {MICROSCALE: 0.0} if microscale else {}
    values |= {p.name: p.value for p in turned.declared} if turned else {}
    model = family.from_parameters(values, transform, response)
    if turned and getattr(model, "anisotropy", None) is None:
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
            and model.response is None
            and linear - noise == {VARIANCE}
            and NUGGET in noise
            and VARIANCE in self.free
            and not linear & set(bounds)
            and all(name in self.free or fixed[name] == 0 for name in noise)
        )
        self.anisotropic = bool(set(ANISOTROPY) & set(self.parameters))

    def holding(self, **values):
        """Return the table with some parameters fixed at values as well."""
        for p in variances_in(self.model):
            if p.where and values.get(p.name) == 0:
                # nothing correlates with noise of variance 0
                values |= self.model.vanishing(p.name)
        bounds = {name: box for name, box in self.bounds.items() if name not in values}
        return ParameterTable(
            self.model,
            self.fixed | values,
            bounds,
            self.observations,
            self.variance,
            self.extent,
        )

    @cached_property
    def shapes(self):
        """Free parameters without a unit: those of the correlation function."""
        return [
            name for name in self.free if not self.parameters[name].unit and name not in ANISOTROPY
        ]

    @cached_property
    def covariances(self):
        """Free covariances of nuggets, whose limits depend on the nuggets."""
        return [name for name in self.free if of_nuggets(self.parameters[name])]

    @cached_property
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

    @cached_property
    def nuggets_beside(self):
        """Free nuggets beside fixed covariances, which are limits of them."""
        fixed = [self.parameters[name] for name, x in self.fixed.items() if x]
        fixed = [parameter for parameter in fixed if of_nuggets(parameter)]
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
                lower = max(lower, min(NUGGET_RATIO_BOUNDS[0] * self.variance, 1e-6 * upper))
            return lower, upper
        parameter = self.parameters[name]
        if parameter.unit == "value²":
            ends = NUGGET_RATIO_BOUNDS if parameter.closed else VARIANCE_BOUNDS
            ends = parameter.search or ends
            if of_nuggets(parameter):
                ends = -NUGGET_RATIO_BOUNDS[1], NUGGET_RATIO_BOUNDS[1]
            return tuple(end * self.variance for end in ends)
        if parameter.unit == "value":
            size, (least, most) = self.variance**0.5, LOADING_BOUNDS
            return (least if parameter.lower == 0 else -most) * size, most * size
        if parameter.unit == "length":
            return self.lengths()
        if parameter.unit == "time" and self.extent.lags:
            shortest, longest = self.extent.lags
            return RANGE_BOUNDS[0] * shortest, RANGE_BOUNDS[1] * longest
        lower, upper = self.limits[name]
        if name in self.of_transform and parameter.search is None:
            return lower, upper
        first, last = parameter.search or (1e-3, 1e3)
        return max(lower, first), min(upper, last)

    def lengths(self):
        """Return the bounds of practical ranges that the data suggest."""
        return RANGE_BOUNDS[0] * self.extent.shortest, RANGE_BOUNDS[1] * self.extent.longest

    def practical_bounds(self):
        """Return the bounds of the practical range."""
        if RANGE not in self.bounds:
            return self.lengths()
        # the user bounds the range itself: the widest over all shapes
        corners = [
            dict(zip(self.shapes, corner, strict=True))
            for corner in product(*(self.box(name) for name in self.shapes))
        ]
        factors = [practical_factor(self.model.replace(**corner)) for corner in corners]
        lower, upper = self.bounds[RANGE]
        return lower * min(factors), upper * max(factors)

    def search_box(self, name):
        """Return the bounds of what a search moves: practical range, τ²/σ², or the parameter."""
        if name == RANGE:
            return self.practical_bounds()
        return NUGGET_RATIO_BOUNDS if name in NOISE and self.profiled else self.box(name)

    def bounded(self, model):
        """Yield (name, value, lower, upper) of every free parameter, in the terms of its bounds."""
        values = model.parameters()
        for name in self.free:
            value = values[name]
            if self.parameters[name].unit == "degrees" and name not in self.bounds:
                continue
            if name == RANGE and name not in self.bounds:
                yield name, model.practical_range(), *self.practical_bounds()
            elif value == 0 and self.may_vanish(name):
                continue
            elif name in NOISE and self.profiled:
                yield name, value / values[VARIANCE], *NUGGET_RATIO_BOUNDS
            elif not (name == VARIANCE and self.profiled):
                yield name, value, *self.box_at(name, model)

    def on_bounds(self, model, near=1e-3):
        """Return {name: "lower" or "upper"} of the parameters on a bound.

        `near` is the distance in logarithms (degrees of an angle) that counts as on the bound.
        """
        pinned, values = {}, model.parameters()
        for name, value, lower, upper in self.bounded(model):
            margin = near * (1.0 if self.parameters[name].transform == "identity" else value)
            if of_nuggets(self.parameters[name]):
                margin = near * size_of(self.parameters[name], values)
            if value <= lower + margin:
                pinned[name] = "lower"
            elif value >= upper - margin:
                pinned[name] = "upper"
        return pinned

    def may_vanish(self, name):
        """Whether a parameter is a free variance of noise without bounds, which may be 0."""
        noise = isinstance(self.parameters[name], NoiseParameter)
        return noise and name in self.free and name not in self.bounds

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
        most = sum(range(1, 1 + np.count_nonzero(eigenvalues < SINGULAR_EIGENVALUE)))
        steepest = sorted(noise, key=lambda name: -abs(score[name]))[: max(most, 1)]
        return [pair for pair in following if pair[0] not in noise or pair[0] in steepest]

    def valid(self, model):
        """Whether a model is positive definite on locations of this kind."""
        return model.valid_on(self.metric, self.dimensions)

    def principal(self, model):
        """Return a model with the principal angles of its ellipsoid, where they are free."""
        given = getattr(model, "anisotropy", None)
        if not isinstance(given, Anisotropy3D):
            return model
        return model.replace(**given.principal(set(self.free) - set(self.bounds)).parameters())

    # coordinates

    def search_coordinates(self):
        """Return the coordinates of a search without derivatives, with their box."""
        names = [name for name in self.free if not (name == VARIANCE and self.profiled)]
        return SearchCoordinates(self, names)

    def coordinates(self, model, names=None, following=(), relative=True, vanishing=()):
        """Return the coordinates of Newton's method and of standard errors: logarithms, radians.

        `following` are pairs (name, "lower" or "upper") of parameters that stay at a limit, which
        depends on those that move. With `relative` those of nugget covariances are correlations.
        `vanishing` are variances that may become 0.
        """
        wrap = not set(ANISOTROPY[:1]) & set(self.bounds) and DIP.name not in self.parameters
        names = self.free if names is None else names
        return Coordinates(
            names,
            model,
            wrap=wrap,
            limits=self.limits_at,
            following=following,
            relative=relative,
            vanishing=vanishing,
        )

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
        axes["lag"] = [None]
        if lags:
            axes["lag"] = [share * self.extent.lags[1] for share in TIME_RANGE_SHARES]
        axes["length"] = self._length_axis(coarse=bool(lags)) if lengths else [None]
        axes["share"] = NUGGET_SHARES if self.shapes else FINE_NUGGET_SHARES
        if NUGGET in given:
            axes["share"] = [None]
        ratios = [p.name for p in (SECOND_AXIS, THIRD_AXIS) if p.name in self.free]
        ratios = [name for name in ratios if name not in given]
        axes |= dict.fromkeys(ratios, START_AXIS_RATIOS)
        angles = ANISOTROPY[0] in self.parameters and ANISOTROPY[0] not in given
        axes["angle"] = START_ANGLES if angles else [None]
        variances = [self._variances(share, given) for share in axes["share"]]
        models = []
        for *choice, lag in product(*(axes[name] for name in (*shapes, "lag"))):
            field = dict(zip(shapes, choice, strict=True)) | dict.fromkeys(lags, lag) | given
            of_field = self.model.replace(**field)
            factor = practical_factor(of_field) if lengths else 1.0
            for length in axes["length"]:
                ranges = {name: length / factor for name in lengths}
                # no limit depends on a variance or an angle
                valid = self.valid(of_field.replace(**ranges))
                turns = (*(axes[name] for name in ratios), axes["angle"])
                for shared, *turned, angle in product(variances, *turns):
                    values = field | ranges | shared | dict(zip(ratios, turned, strict=True))
                    if angle is not None:
                        values[ANISOTROPY[0]] = angle
                    models.append(self.model.replace(**values) if valid else None)
        *sizes, turns = (len(axis) for axis in axes.values())
        if ratios:
            # ratios of axes and angles are one axis, the last
            sizes, turns = sizes[: -len(ratios)], turns * prod(sizes[-len(ratios) :])
        return [*sizes, turns], models

    def _variances(self, share, given):
        """Return the variances of a model of the grid that are not given, by name.

        The nugget takes a share of the variance about the trend; None where it is given.
        """
        values = {} if NUGGET in given else {NUGGET: (share or 0.0) * self.variance}
        free = (self.parameters[name] for name in self.free)
        others = [p.name for p in free if p.unit == "value²" and p.name not in {NUGGET, *given}]
        return values | dict.fromkeys(others, (1.0 - (share or 0.05)) * self.variance)

    def shape_axis(self, name, first=False):
        """Return the values of a shape parameter in the grid; more for the first one."""
        value, (lower, upper) = self.parameters[name].value, self.box(name)
        known = self.parameters[name].starts
        factors = known or (FIRST_SHAPE_FACTORS if first else OTHER_SHAPE_FACTORS)
        several = {factor * value for factor in factors}
        several |= {lower} if self.parameters[name].closed and known is None else set()
        return sorted({min(max(each, lower), upper) for each in several})

    def _length_axis(self, coarse=False):
        """Return practical ranges from the nearest locations to beyond the extent."""
        nearest, longest = self.extent.shortest, GRID_REACH_EXTENTS * self.extent.longest
        spacing, most = GRID_RANGE_RATIO, MOST_GRID_RANGES
        if coarse:
            spacing, most = spacing**2, most // 2
        if not self.shapes and is_compact(self.model):
            spacing, most = SUPPORT_RANGE_RATIO, MOST_SUPPORT_RANGES
        if is_compact(self.model):
            # the support of locations that are just correlated reaches a little beyond the nearest
            nearest = nearest * self.model.replace(**{RANGE: 1.0}).practical_range()
        count = min(max(round(log(longest / nearest, spacing)), 3), most)
        distant = [far * longest for far in DISTANT_RANGE_EXTENTS]
        return [*np.geomspace(nearest, longest, count + 1), *distant]


def is_compact(model):
    """Whether the covariance is 0 from a finite distance on."""
    return model.of_distance and model.support is not None


def unknown(argument, name, known):
    """Return the error of a name that is none of some parameters."""
    if not isinstance(name, str):
        hint = ""
    elif name in (SECOND_AXIS.name, THIRD_AXIS.name):
        hint = " It needs axis_ranges=True (--axis-ranges)."
    elif name in ANISOTROPY:
        hint = " It needs anisotropy=True (--anisotropy)."
    else:
        hint = did_you_mean(name, known)
    return InvalidInput(
        f"`{argument}` must name parameters: {', '.join(known)}. Got {name!r}.{hint}"
    )


def check_bounds(bounds, start, fixed, model):
    """Return bounds (None: none) as a dict of pairs of floats.

    Raises `InvalidInput` if a name is unknown or fixed, a pair is not an interval of the
    parameter's values, or a start lies outside.
    """
    result, known = {}, {p.name: p for p in model.table}
    for name, pair in (bounds or {}).items():
        if name not in known:
            raise unknown("bounds", name, known)
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
