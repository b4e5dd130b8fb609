"""Logarithms of the parameters: the coordinates of scores, of Newton's method and of errors."""

from math import exp, log, radians

import numpy as np

from ..covariance.matern import Matern
from ..errors import NotPositiveDefinite


def keeps(evaluator, model):
    """Whether an evaluator still has what it found out about a model."""
    return hasattr(evaluator, "keeps") and evaluator.keeps(model)


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
        monitor.count += not keeps(evaluator, model)
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
