"""The units in which a fit searches."""

import warnings
from dataclasses import dataclass
from math import exp, inf, log, radians

import numpy as np
import scipy

from ..covariance.distance import embed, power_of_two_near
from ..covariance.matern import PARAMETERS as PARAMETER_NAMES
from ..covariance.matern import Matern, practical_range
from ..data.observations import Observations
from ..errors import InvalidInput, NotPositiveDefinite


class Units:
    """Powers of two that bring lengths and values near 1 for the search, and back.

    Parameters
    ----------
    length, value : float
        The unit of the scaled problem in the user's units.
    variance : float
        Variance of the scaled values about the least-squares trend.
    """

    def __init__(self, length, value, variance):
        self.length = length
        self.value = value
        self.variance = variance

    @classmethod
    def of(cls, observations, design):
        """Choose; raise `InvalidInput` if the values cannot have a variance."""
        z = observations.values
        largest = float(np.abs(z).max())
        unit = power_of_two_near(largest)
        residual = z / unit
        if design.shape[1]:
            scaled = design / np.abs(design).max(axis=0)
            residual = residual - scaled @ np.linalg.lstsq(scaled, residual, rcond=None)[0]
        spread = float(np.sqrt(np.mean(residual**2)))
        # what rounding leaves of values that the trend fits exactly
        if spread <= 16 * np.finfo(float).eps * max(1.0, design.shape[1]):
            what = (
                f"the values are all equal ({z[0]:g})"
                if np.ptp(z) == 0
                else "the trend fits the values exactly"
            )
            raise InvalidInput(f"{what}: there is no variance to estimate.")
        value = unit * power_of_two_near(spread)
        if not 1e-145 < value < 1e145:
            raise InvalidInput(
                f"the values spread by about {value:.0e}, whose square is no FP64 number: "
                "divide them by a constant first."
            )
        length = 1.0
        if observations.metric == "euclidean":
            # quarters: the spread of coordinates near ±1e308 is a number still
            spreads = np.ptp(observations.locations / 4, axis=0)
            length = 4 * power_of_two_near(float(spreads.max()))
            length = min(max(length, 2.0**-1000), 2.0**1000)
        return cls(length, value, (spread * unit / value) ** 2)

    def scaled(self, observations):
        """Return the observations in the units of the scaled problem."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said already, about the user's own coordinates
            return Observations(
                observations.locations / self.length
                if self.length != 1
                else observations.locations,
                observations.values / self.value,
                observations.covariates,
                observations.metric,
                observations.location_names,
                observations.value_name,
                observations.covariate_names,
            )

    def _unit(self, name):
        return {"variance": self.value**2, "nugget": self.value**2, "range": self.length}.get(
            name, 1.0
        )

    def inward(self, parameters):
        """Return parameters in the units of the scaled problem."""
        return {name: value / self._unit(name) for name, value in parameters.items()}

    def inward_bounds(self, bounds):
        """Return bounds in the units of the scaled problem."""
        return {
            name: tuple(self.inward({name: value})[name] for value in box)
            for name, box in bounds.items()
        }

    def outward(self, model):
        """Return a model of the scaled problem in the user's units."""
        return Matern.from_parameters(
            {name: value * self._unit(name) for name, value in model.parameters().items()}
        )

    def outward_errors(self, errors):
        """Return standard errors in the user's units."""
        return {
            name: None if value is None else value * self._unit(name)
            for name, value in errors.items()
        }

    def shift(self, design, reml):
        """Return what to add to the scaled problem's log-likelihood."""
        n, p = design.shape
        return -(n - (p if reml else 0)) * log(self.value)


# Where a fit searches: which parameters are free, between which bounds, in which coordinates.
#
# The search moves in logarithms. In place of the range stands the practical range a√(8ν), which
# the data know almost independently of ν; in place of the nugget, where the variance can be
# profiled out, the ratio τ²/σ².


SMOOTHNESS = (0.02, 30.0)
NUGGET_RATIO = (1e-10, 1e4)
ANISOTROPY_RATIO = (0.02, 1.0)
POSITIVE = ("variance", "range", "smoothness", "nugget", "anisotropy_ratio")


@dataclass(frozen=True)
class Extent:
    """Lengths of a set of places.

    Parameters
    ----------
    shortest : float
        Smallest distance between two different places.
    longest : float
        Diagonal of the bounding box.
    """

    shortest: float
    longest: float

    @classmethod
    def of(cls, observations):
        """Measure; raise `InvalidInput` if all places are one."""
        points = np.unique(embed(observations.locations, observations.metric), axis=0)
        if len(points) < 2:
            raise InvalidInput(
                "all locations are the same place: there is no distance to fit a range to."
            )
        distances = scipy.spatial.cKDTree(points).query(points, k=2)[0][:, 1]
        return cls(
            float(distances[distances > 0].min()), float(np.linalg.norm(np.ptp(points, axis=0)))
        )


@dataclass(frozen=True)
class Coordinate:
    """One direction of the search.

    Parameters
    ----------
    name : str
        "variance", "practical_range", "smoothness", "nugget", "nugget_ratio",
        "anisotropy_angle" or "anisotropy_ratio".
    lower, upper : float
        In the coordinate's own scale: logarithms but for the angle.
    """

    name: str
    lower: float
    upper: float


class Space:
    """The free parameters of a fit, and the way between models and points of the search.

    Parameters
    ----------
    fixed : dict of str to float
        Parameters that keep their value.
    bounds : dict of str to (float, float)
        The user's bounds.
    extent : Extent
    metric : str
    variance : float
        Variance of the values about an ordinary least-squares trend.
    anisotropic : bool
    """

    def __init__(self, fixed, bounds, extent, metric, variance, anisotropic=False):
        names = PARAMETER_NAMES if anisotropic else PARAMETER_NAMES[:4]
        self.fixed = dict(fixed)
        self.free = tuple(name for name in names if name not in fixed)
        self.bounds = dict(bounds)
        self.extent = extent
        self.metric = metric
        self.variance = variance
        # Σ = σ²(R + gI): σ² drops out unless it, or the nugget itself, is held in a box
        self.profiled = (
            "variance" in self.free
            and not {"variance", "nugget"} & set(bounds)
            and ("nugget" in self.free or fixed["nugget"] == 0)
        )
        self.coordinates = tuple(self._coordinate(name) for name in self.free if self._moves(name))
        self.lower = np.array([c.lower for c in self.coordinates])
        self.upper = np.array([c.upper for c in self.coordinates])

    def _moves(self, name):
        return not (self.profiled and name == "variance")

    def _coordinate(self, name):
        if name == "range":
            lower, upper = self.practical_range_bounds()
            return Coordinate("practical_range", log(lower), log(upper))
        if name == "nugget" and self.profiled:
            return Coordinate("nugget_ratio", *map(log, NUGGET_RATIO))
        lower, upper = self.box(name)
        if name == "anisotropy_angle":
            return Coordinate(name, lower, upper)
        return Coordinate(name, log(lower), log(upper))

    def box(self, name):
        """Return the bounds of a parameter: the user's, or those that the data suggest."""
        if name in self.bounds:
            lower, upper = self.bounds[name]
            if name == "nugget":
                # in logarithms there is no 0
                lower = max(lower, min(NUGGET_RATIO[0] * self.variance, 1e-6 * upper))
            return lower, upper
        return {
            "variance": (1e-8 * self.variance, 1e8 * self.variance),
            "nugget": (NUGGET_RATIO[0] * self.variance, 1e4 * self.variance),
            "smoothness": (SMOOTHNESS[0], 0.5 if self.metric == "great-circle" else SMOOTHNESS[1]),
            "anisotropy_angle": (-180.0, 360.0),
            "anisotropy_ratio": ANISOTROPY_RATIO,
        }[name]

    def practical_range_bounds(self):
        """Return the bounds of a√(8ν): a tenth of the shortest distance to 1000 extents."""
        if "range" in self.bounds:
            smoothness = (
                [self.fixed["smoothness"]] if "smoothness" in self.fixed else self.box("smoothness")
            )
            lower, upper = self.bounds["range"]
            return practical_range(lower, min(smoothness)), practical_range(upper, max(smoothness))
        return 0.1 * self.extent.shortest, 1e3 * self.extent.longest

    def model(self, x):
        """Return the model at a point; of variance 1 where the variance is profiled out."""
        at = {c.name: value for c, value in zip(self.coordinates, x, strict=True)}
        values = dict(self.fixed)
        for name, value in at.items():
            values[name] = value if name == "anisotropy_angle" else exp(value)
        if self.profiled:
            values["variance"] = 1.0
        if "practical_range" in values:
            length = values.pop("practical_range") / practical_range(1.0, values["smoothness"])
            lower, upper = self.bounds.get("range", (0.0, inf))
            values["range"] = min(max(length, lower), upper)
        if "nugget_ratio" in values:
            values["nugget"] = values.pop("nugget_ratio")
        if "anisotropy_angle" in values and "anisotropy_angle" not in self.bounds:
            values["anisotropy_angle"] %= 180.0
        return Matern.from_parameters(values)

    def point(self, model):
        """Return the point of a model, inside the bounds."""
        values = model.parameters()
        x = []
        for c in self.coordinates:
            if c.name == "practical_range":
                x.append(log(practical_range(model.range, model.smoothness)))
            elif c.name == "nugget_ratio":
                x.append(log(max(model.nugget / model.variance, NUGGET_RATIO[0])))
            elif c.name == "anisotropy_angle":
                # a direction has many angles: the one above the lower bound
                x.append(c.lower + (values[c.name] - c.lower) % 180.0)
            else:
                x.append(log(max(values[c.name], 1e-300)))
        return np.clip(x, self.lower, self.upper)

    def slope(self, model, gradient):
        """Return the gradient in the coordinates of the search, (k,), from that in parameters.

        Where the variance is profiled out, the model has the best one: its slope there is 0.
        """
        at = {name: gradient[name] * value for name, value in model.parameters().items()}
        at["anisotropy_angle"] = gradient.get("anisotropy_angle")
        at["nugget_ratio"], at["practical_range"] = at["nugget"], at["range"]
        if "range" in self.free:
            # log a = log(practical range) - ½ log(8ν)
            at["smoothness"] -= 0.5 * at["range"]
        return np.array([at[c.name] for c in self.coordinates])

    def holding(self, **values):
        """Return the space with some parameters fixed at values as well.

        A space that was profiled stays so only where that is still exact.
        """
        bounds = {name: box for name, box in self.bounds.items() if name not in values}
        return Space(
            self.fixed | values,
            bounds,
            self.extent,
            self.metric,
            self.variance,
            "anisotropy_ratio" in self.free or "anisotropy_ratio" in self.fixed,
        )

    def candidates(self, start):
        """Yield models to try first: the user's values, and a coarse grid for the others.

        Parameters
        ----------
        start : dict of str to float
            Values for any of the free parameters.
        """
        given = self.fixed | start
        scales = [f * self.extent.longest for f in (0.08, 0.25, 0.7)]
        top = self.box("smoothness")[1] if "smoothness" in self.free else inf
        for nu in (
            [given["smoothness"]] if "smoothness" in given else [min(0.5, top), min(1.5, top)]
        ):
            for scale in scales if "range" not in given else [None]:
                length = given["range"] if scale is None else scale / practical_range(1.0, nu)
                for share in [0.05, 0.4] if "nugget" not in given else [None]:
                    yield from self._with_directions(given, nu, length, share)

    def _with_directions(self, given, nu, length, share):
        values = {"smoothness": nu, "range": length, **given}
        # share: of the variance about the trend that the nugget takes
        values.setdefault("nugget", (share or 0.0) * self.variance)
        values.setdefault("variance", (1.0 - (share or 0.05)) * self.variance)
        if not ("anisotropy_ratio" in self.free or "anisotropy_ratio" in self.fixed):
            yield Matern.from_parameters(values)
            return
        values.setdefault("anisotropy_ratio", 0.5)
        for angle in (
            [given["anisotropy_angle"]] if "anisotropy_angle" in given else (0, 45, 90, 135)
        ):
            yield Matern.from_parameters(values | {"anisotropy_angle": float(angle)})


def check_bounds(bounds, start, fixed):
    """Return bounds as a dict of pairs of floats.

    Raises
    ------
    InvalidInput
        If a name is unknown or fixed, a pair is no interval of the parameter's values, or a
        start lies outside.
    """
    result = {}
    known = (*POSITIVE, "anisotropy_angle")
    for name, pair in (bounds or {}).items():
        if name not in known:
            raise InvalidInput(f"`bounds` knows the parameters {', '.join(known)}. Got {name!r}.")
        if name in fixed:
            raise InvalidInput(f"`{name}` is fixed and has bounds: leave one of them out.")
        try:
            lower, upper = (float(value) for value in pair)
        except (TypeError, ValueError):
            raise InvalidInput(f"bounds of `{name}` must be two numbers. Got {pair!r}.") from None
        least = name == "anisotropy_angle" or lower > 0 or (name == "nugget" and lower == 0)
        if not (least and lower < upper < inf):
            raise InvalidInput(
                f"bounds of `{name}` must satisfy 0 < lower < upper. Got {lower:g} and {upper:g}."
            )
        if name == "anisotropy_ratio" and upper > 1:
            raise InvalidInput(f"`anisotropy_ratio` is at most 1. Got the bound {upper:g}.")
        result[name] = (lower, upper)
        if name in start and not lower <= start[name] <= upper:
            raise InvalidInput(
                f"the start {name}={start[name]:g} lies outside its bounds {lower:g} to {upper:g}."
            )
    return result


# Logarithms of the parameters: the coordinates of scores, of Newton's method and of errors.


class Natural:
    """Logarithms of parameters (radians of the angle): the coordinates of Newton and of errors.

    Parameters
    ----------
    names : sequence of str
        Parameters that move.
    model : Matern
        Gives the others.
    wrap : bool
        Whether angles are brought into [0, 180).
    """

    def __init__(self, names, model, wrap=True):
        self.names = list(names)
        self.wrap = wrap
        self.others = model.parameters()

    def point(self, model):
        """Return the point of a model."""
        values = model.parameters()
        return np.array(
            [radians(values[n]) if n == "anisotropy_angle" else log(values[n]) for n in self.names]
        )

    def model(self, x):
        """Return the model at a point."""
        values = dict(self.others)
        for name, value in zip(self.names, x, strict=True):
            if name == "anisotropy_angle":
                angle = float(np.degrees(value))
                values[name] = angle % 180.0 if self.wrap else angle
            elif name == "anisotropy_ratio":
                values[name] = min(exp(value), 1.0)
            else:
                values[name] = exp(min(value, 600.0))
        return Matern.from_parameters(values)

    def score(self, x, evaluator, monitor):
        """Return the gradient of the log-likelihood at a point; NaN where it has none."""
        model = self.model(x)
        monitor.count += not evaluator.keeps(model)
        try:
            gradient = evaluator.gradient(model, self.names)
        except NotPositiveDefinite:
            return np.full(len(x), np.nan)
        return np.array([gradient[n] for n in self.names]) * self.units(model)

    def information(self, x, evaluator, monitor):
        """Return minus the Hessian of the log-likelihood at a point; NaN where it has none."""
        model = self.model(x)
        monitor.count += 1
        try:
            information = evaluator.observed_information(model, self.names)
        except NotPositiveDefinite:
            return np.full((len(x), len(x)), np.nan)
        units = self.units(model)
        # of logarithms: θ_j θ_k I_jk - δ_jk θ_j ∂_jℓ; an angle's unit is a constant
        curved = [n != "anisotropy_angle" for n in self.names]
        slope = np.where(curved, self.score(x, evaluator, monitor), 0.0)
        return information * np.outer(units, units) - np.diag(slope)

    def units(self, model):
        """Return dθ/dx, (k,): the parameters, and degrees in a radian for an angle."""
        values = model.parameters()
        return np.array(
            [np.degrees(1.0) if n == "anisotropy_angle" else values[n] for n in self.names]
        )

    def standard_errors(self, summit):
        """Return standard errors of the parameters from the observed information."""
        covariance = np.linalg.inv(summit.information)
        errors = np.sqrt(np.diag(covariance)) * self.units(self.model(summit.point))
        return dict(zip(self.names, errors.tolist(), strict=True))
