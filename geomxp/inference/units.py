"""The units in which a fit searches."""

import warnings
from math import log

import numpy as np

from ..covariance.distance import power_of_two_near
from ..covariance.matern import Matern
from ..errors import InvalidInput
from ..observations import Observations


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
