"""Score and information of a log-likelihood by differences, where no formula can be afforded.

The differences are taken along directions in which Vecchia's approximation sees one unit of
information, about one standard error: steps of a tenth of it change ℓ by more than its scatter
in coarse formats. Along the scale of Σ the score is exact, ∂ℓ(cΣ)/∂log c = ½(r'Σ⁻¹r - n).
"""

from functools import cached_property
from itertools import combinations

import numpy as np

from ..errors import NotPositiveDefinite
from .base import Derivatives
from .vecchia import Vecchia

NEIGHBOURS = 30
"""Neighbours of the approximation whose information gives the directions."""

STEP, SMALLER = 0.1, 1e-2
"""Steps in standard errors, where ℓ scatters and where it does not; second derivatives have twice
the step."""

LONGEST = 0.3
"""Longest step of a logarithm, and of other parameters in multiples of 1 + |value|."""

LEAST = 1e-10
"""Eigenvalues of the scaled information below this are those of directions without information."""

SHORTENED = 5
"""How often a step without ℓ on either side is divided by four, at most."""


class Differences:
    """Derivatives of an evaluator's ℓ by differences.

    Parameters
    ----------
    evaluator : Evaluator
        Its observations and design are also those of Vecchia's approximation.
    noisy : bool
        Whether ℓ scatters.
    """

    def __init__(self, evaluator, noisy):
        self.evaluator, self.step = evaluator, STEP if noisy else SMALLER

    @cached_property
    def _approximation(self):
        evaluator = self.evaluator
        asked = evaluator.observations, evaluator.design, evaluator.reml
        return Vecchia(NEIGHBOURS).prepare(*asked)

    def derivatives(self, model, names, curvature):
        """Return the `Derivatives` at a model; the expected information is the approximation's.

        They cost 2(k - 1) evaluations for k names besides the one at the model, with `curvature`
        twice as many and two for each pair of directions. Raises `NotPositiveDefinite` where ℓ
        is not finite around the model.
        """
        names = tuple(names)
        known = self._approximation.derivatives(model, names)
        expected = known.part(known.information, names)
        point = _Point(model, names)
        scale = point.scale(self.evaluator)
        directions = _directions(expected * np.outer(point.units, point.units), scale, point.most)
        slopes, hessian = self._along(point, directions, scale is not None, curvature)
        back = np.linalg.inv(directions)
        by_coordinate = back.T @ slopes
        score = by_coordinate / point.units
        observed = None
        if curvature:
            bent = -back.T @ hessian @ back + np.diag(np.where(point.curved, by_coordinate, 0.0))
            observed = bent / np.outer(point.units, point.units)
        return Derivatives(names, score, expected, expected=expected, observed=observed)

    def _along(self, point, directions, scaled, curvature):
        """Return slopes along the columns, and with `curvature` second derivatives, else None.

        The first column is the scale of Σ if `scaled`.
        """
        k = len(directions)
        slopes, hessian = np.zeros(k), np.zeros((k, k)) if curvature else None
        middle = self._value(point, np.zeros(k))
        if middle is None:
            raise NotPositiveDefinite("the log-likelihood is not finite at this model")
        length = directions[:, 0].max() if scaled else 0.0
        if scaled:
            slopes[0] = middle[1] * length
            if curvature:
                hessian[0, 0] = -middle[2] * length**2
        ends = {}
        for j in range(int(scaled), k):
            step, above, below = self._both(point, directions[:, j], self.step, middle)
            slopes[j] = (above[0] - below[0]) / (2 * step)
            if not curvature:
                continue
            wide, above, below = ends[j] = self._both(*(point, directions[:, j], 2 * step, middle))
            # as at a step of 0 (Richardson 1911)
            wider, ratio = (above[0] - below[0]) / (2 * wide), (wide / step) ** 2
            if ratio > 1:
                slopes[j] = (ratio * slopes[j] - wider) / (ratio - 1)
            hessian[j, j] = (above[0] - 2 * middle[0] + below[0]) / wide**2
            if scaled:
                across = length * (above[1] - below[1]) / (2 * wide)
                hessian[0, j] = hessian[j, 0] = across
        for i, j in combinations(ends, 2):
            (h, *one), (g, *other) = ends[i], ends[j]
            diagonal = directions[:, [i, j]] @ [h, g]
            corners = [self._value(point, sign * diagonal) for sign in (1.0, -1.0)]
            if None in corners:
                raise NotPositiveDefinite(_NOT_FINITE)
            total = sum(value[0] for value in corners) + 2 * middle[0]
            total -= sum(value[0] for value in (*one, *other))
            hessian[i, j] = hessian[j, i] = total / (2 * h * g)
        return slopes, hessian

    def _both(self, point, direction, step, middle):
        """Return the step, and the values on both sides.

        Where one side has no ℓ, as at a limit, its values are those of the parabola through the
        middle and two steps to the other side. Where none has, the step is shorter.
        """
        for _ in range(SHORTENED):
            ends = [self._value(point, sign * step * direction) for sign in (1.0, -1.0)]
            if None not in ends:
                return step, *ends
            if ends != [None, None]:
                side = ends.index(None)
                sign, near = (1.0, -1.0)[1 - side], ends[1 - side]
                far = self._value(point, sign * 2 * step * direction)
                if far is not None:
                    values = zip(middle, near, far, strict=True)
                    ends[side] = tuple(3 * (a - b) + c for a, b, c in values)
                    return step, *ends
            step /= 4
        raise NotPositiveDefinite(_NOT_FINITE)

    def _value(self, point, move):
        """Return ℓ, its slope and minus its second derivative by log c; None without any."""
        model, evaluator = point.moved(move), self.evaluator
        where = evaluator.observations
        if model is None or not model.valid_on(where.metric, where.dimensions):
            return None
        found = evaluator(model)
        if not np.isfinite(found.log_likelihood):
            return None
        free = found.n - (len(found.coefficients) if found.reml else 0)
        return found.log_likelihood, 0.5 * (found.quadratic_form - free), 0.5 * found.quadratic_form


_NOT_FINITE = (
    "the log-likelihood is not finite on both sides of the model: its derivatives cannot be "
    "computed by differences."
)


class _Point:
    """A model in coordinates: logarithms of parameters that have them, or values."""

    def __init__(self, model, names):
        self.model, self.names = model, names
        table = {p.name: p for p in model.table}
        self.parameters = [table[name] for name in names]
        self.values = np.array([p.value for p in self.parameters])
        self.curved = np.array([p.transform == "log" and p.value > 0 for p in self.parameters])
        # ∂θ/∂x
        self.units = np.where(self.curved, self.values, 1.0)
        self.most = np.where(self.curved, LONGEST, LONGEST * (1 + np.abs(self.values)))

    def moved(self, move):
        """Return the model at a distance, None outside the limits of a parameter."""
        if not np.any(move):
            return self.model
        values = np.where(self.curved, self.values * np.exp(move), self.values + move)
        ends = zip(self.parameters, values, strict=True)
        if not all(p.lower <= value <= p.upper for p, value in ends):
            return None
        return self.model.replace(**dict(zip(self.names, values.tolist(), strict=True)))

    def scale(self, evaluator):
        """Return the direction (k,) along which Σ is multiplied by a number, None without one."""
        parts = {p.name: p.value for p in self.model.table if p.linear and p.value}
        if not parts or not set(parts) <= set(self.names):
            return None
        if evaluator.observations.error_variance is not None or self.model.transform is not None:
            return None
        return np.array([float(name in parts) for name in self.names])


def _directions(information, scale, most):
    """Return V, (k, k), with V'IV = 1, the first column along `scale` if given.

    Columns are shortened so that a step along them moves no coordinate by more than `most`.
    """
    size = np.sqrt(np.maximum(np.diag(information), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(information / np.outer(size, size))
    values = np.maximum(values, LEAST * values[-1])
    root = (vectors * np.sqrt(values)).T * size
    # root'root = I; an orthonormal basis Q of the whitened space gives V = root⁻¹Q
    k = len(size)
    basis = np.eye(k)
    if scale is not None:
        basis = np.linalg.qr(np.column_stack((root @ scale, np.eye(k))))[0]
        basis[:, 0] *= np.sign(basis[:, 0] @ root @ scale)
    found = np.linalg.solve(root, basis)
    longest = np.max(np.abs(found) / most[:, None], axis=0)
    return found / np.maximum(1.0, 2 * STEP * longest)
