"""Units in which a fit computes, so that its numbers are near 1, and the extent of its data."""

import warnings
from dataclasses import dataclass, field, replace

import numpy as np
import scipy

from ..covariance.distance import embed, metric_of, power_of_two_near
from ..covariance.parameter import NOISE
from ..errors import InvalidInput
from ..likelihood.latent import data_of
from ..likelihood.trend import ordinary_residuals
from .names import MICROSCALE

SMALL_SPREAD = 1e-8
"""Spread of η near the values of a response below which searches take it to be 1."""


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
    # whether a value has a density, and is not censored: (n,), or all of them
    dense: np.ndarray | bool = field(default=True, compare=False)

    @classmethod
    def of(cls, observations, design, model):
        """Choose units; raise `InvalidInput` if the values have no variance.

        Values that a transformation of the model maps to the Gaussian scale keep their unit, and so
        do those of a response with another link than the identity.
        """
        transform, response, z = model.transform, model.response, observations.values
        kept = transform is not None or (response is not None and not response.of_values)
        if response is not None:
            data, offset = data_of(observations, transform)[0], observations.total_offset
            offset = np.zeros(len(observations)) if offset is None else offset
            z = response.guess(data) - offset
        elif transform is not None:
            z = transform.of(observations.variable).transform(z)
        largest = float(np.abs(z).max())
        unit = power_of_two_near(largest)
        residual = z / unit
        if design.shape[1]:
            scaled = design / np.abs(design).max(axis=0)
            residual = ordinary_residuals(residual, scaled)
        of_variables = []
        if model.variables > 1 and not kept and response is None:
            of_variables = _units_of_variables(observations, design, residual)
        if of_variables:
            # a model whose parameters are all fixed may have more variables
            of_variables += [1.0] * (model.variables - len(of_variables))
            residual = residual / np.array(of_variables)[observations.variable]
        spread = float(np.sqrt(np.mean(residual**2)))
        # rounding errors of values that the trend fits exactly
        if response is not None and not spread > SMALL_SPREAD:
            spread = 1.0
        if spread <= 16 * np.finfo(float).eps * max(1.0, design.shape[1]):
            what = (
                f"the values are all equal ({z[0]:g})"
                if np.ptp(z) == 0
                else "the trend fits the values exactly"
            )
            raise InvalidInput(f"{what}: there is no variance to estimate.")
        value = 1.0 if kept else unit * power_of_two_near(spread)
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
        if response is not None:
            known = response.variance_about(data, design, offset)
            variance = variance if known is None else known / value**2
        censored = None if response is None else observations.censored
        return cls(
            length,
            value,
            variance,
            replicates,
            time,
            tuple(of_variables),
            rows,
            columns,
            dense=True if censored is None else ~censored,
        )

    def scaled(self, observations):
        """Return the observations in the units of the scaled problem."""
        locations = observations.locations
        with warnings.catch_warnings():
            # the user has been warned about the original coordinates
            warnings.simplefilter("ignore")
            known, counts = observations.error_variance, observations.replicates
            of_link = ("lower", "upper", "offset")
            of_link = {name: getattr(observations, name) for name in of_link}
            return replace(
                observations,
                locations=locations / self.length if self.length != 1 else locations,
                values=observations.values / self.rows,
                error_variance=None if known is None else known / self.rows**2,
                replicates=None if counts is None else counts / self.replicates,
                time=None if observations.time is None else observations.time / self.time,
                **{name: None if x is None else x / self.rows for name, x in of_link.items()},
                source={},
            )

    def of_parameter(self, parameter):
        """Return the unit of a `Parameter`."""
        first = last = self.value
        if self.variables and parameter.unit in ("value²", "value"):
            # the first number of a loading is its variable, the second one its field
            first *= self.variables[parameter.where[0]]
            last *= self.variables[parameter.where[-1]]
        units = {"value²": first * last, "value": first}
        units |= {"length": self.length, "time": self.time}
        unit = units.get(parameter.unit, 1.0)
        of_one = parameter.role == NOISE and parameter.group != MICROSCALE
        return unit * self.replicates if of_one else unit

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
        logs = (np.broadcast_to(np.log(self.rows), n) * self.dense).sum()
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
