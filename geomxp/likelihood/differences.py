"""Score of a log-likelihood by differences, where no formula can be afforded.

The differences are taken along directions in which Vecchia's approximation sees one unit of
information, about one standard error: steps of a tenth of it change ℓ by more than its scatter
in coarse formats. Along the scale of Σ the score is exact, ∂ℓ(cΣ)/∂log c = ½(r'Σ⁻¹r - n).
Second differences would magnify the scatter: expected and observed information are those of
Vecchia's approximation, by formula and by differences of its score.
"""

from functools import cached_property

import numpy as np

from ..errors import NotPositiveDefinite
from .base import Derivatives
from .vecchia import Vecchia

INFORMATION_NEIGHBOURS = 60
"""Neighbours of the approximation whose information is used."""

NOISY_STEP, SMOOTH_STEP = 0.1, 1e-2
"""Steps in standard errors, where rounding scatters ℓ and where it does not."""

LONGEST_COORDINATE_STEP = 0.3
"""Longest step of a logarithm, and of other parameters in multiples of 1 + |value|."""

LEAST_EIGENVALUE_RATIO = 1e-10
"""Eigenvalues of the scaled information below this are those of directions without information."""

MOST_STEP_REDUCTIONS = 5
"""How often a step is divided by four, at most, where ℓ is not finite on both sides."""

SCORE_DIFFERENCE_STEP = 1e-3
"""Relative step of the differences of Vecchia's score."""

RELATIVE_SCALE_CHANGE = 1e-6
"""Relative change of Σ of which the change of parameters is observed."""


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
        self.evaluator, self.step = evaluator, NOISY_STEP if noisy else SMOOTH_STEP

    @cached_property
    def _approximation(self):
        evaluator = self.evaluator
        approximation = Vecchia(INFORMATION_NEIGHBOURS)
        return approximation.prepare(evaluator.observations, evaluator.design, evaluator.reml)

    def derivatives(self, model, names, curvature):
        """Return the `Derivatives` at a model, with observed information only with `curvature`.

        They cost 2(k - 1) evaluations for k names besides the one at the model. Raises
        `NotPositiveDefinite` where ℓ is not finite around the model.
        """
        names = tuple(names)
        # with the same neighbours for all differences of its score
        self._approximation.freeze(model)
        known = self._approximation.derivatives(model, names)
        expected = known.part(known.information, names)
        point = _Point(model, names)
        scale = point.scale(self.evaluator)
        directions = _directions(expected * np.outer(point.units, point.units), scale, point.most)
        slopes = self._along(point, directions, scale)
        score = np.linalg.solve(directions.T, slopes) / point.units
        observed = self._observed(point, expected) if curvature else None
        return Derivatives(names, score, expected, expected=expected, observed=observed)

    def _along(self, point, directions, scale):
        """Return slopes along the columns, of which the first is along `scale` if given."""
        slopes = np.zeros(len(directions))
        middle = self._value(point, slopes)
        if middle is None:
            raise NotPositiveDefinite("the log-likelihood is not finite at this model")
        if scale is not None:
            # the column is a multiple of ∂x/∂log c
            slopes[0] = middle[1] * (directions[:, 0] @ scale) / (scale @ scale)
        for j in range(int(scale is not None), len(directions)):
            slopes[j] = self._slope(point, directions[:, j], middle[0])
        return slopes

    def _slope(self, point, direction, middle):
        """Return the slope of ℓ, one-sided where one side has no ℓ, as at a limit."""
        step = self.step
        for _ in range(MOST_STEP_REDUCTIONS):
            above, below = (self._value(point, sign * step * direction) for sign in (1.0, -1.0))
            if above is not None and below is not None:
                return (above[0] - below[0]) / (2 * step)
            if above is not None or below is not None:
                sign, near = (1.0, above) if above is not None else (-1.0, below)
                far = self._value(point, sign * 2 * step * direction)
                if far is not None:
                    return sign * (4 * near[0] - far[0] - 3 * middle) / (2 * step)
            step /= 4
        raise NotPositiveDefinite(
            "the log-likelihood is not finite around the model: its derivatives cannot be computed "
            "by differences."
        )

    def _observed(self, point, expected):
        """Return minus the Hessian of Vecchia's log-likelihood, or `expected` at a limit."""
        rows = []
        for j, (name, value) in enumerate(zip(point.names, point.values, strict=True)):
            step = SCORE_DIFFERENCE_STEP * (abs(value) if point.curved[j] else 1.0)
            ends = [self._at(point.model, name, value + move) for move in (-step, step)]
            if None in ends:
                return expected
            slopes = [self._approximation.gradient(end, point.names) for end in ends]
            below, above = (np.array(list(slope.values())) for slope in slopes)
            rows.append((below - above) / (2 * step))
        rows = np.array(rows)
        return (rows + rows.T) / 2

    def _at(self, model, name, value):
        """Return a model with another value of a parameter, None if it is not valid."""
        parameter = next(p for p in model.table if p.name == name)
        if not parameter.lower <= value <= parameter.upper:
            return None
        return self._if_valid(model.replace(**{name: float(value)}))

    def _if_valid(self, model):
        where = self.evaluator.observations
        return model if model.valid_on(where.metric, where.dimensions) else None

    def _value(self, point, move):
        """Return ℓ and its slope by log c; None without any."""
        model = point.moved(move)
        if model is None or self._if_valid(model) is None:
            return None
        found = self.evaluator(model)
        if not np.isfinite(found.log_likelihood):
            return None
        free = found.n - (len(found.coefficients) if found.reml else 0)
        return found.log_likelihood, 0.5 * (found.quadratic_form - free)


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
        sizes = np.where(self.curved, 1.0, 1 + np.abs(self.values))
        self.most = LONGEST_COORDINATE_STEP * sizes

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
        """Return ∂x/∂log c of cΣ, (k,), or None where not all that changes moves."""
        if evaluator.observations.error_variance is not None or self.model.transform is not None:
            return None
        before = self.model.parameters()
        after = self.model.scaled(1 + RELATIVE_SCALE_CHANGE).parameters()
        slopes = {
            name: (after[name] - value) / RELATIVE_SCALE_CHANGE for name, value in before.items()
        }
        if not set(self.names) >= {name for name, slope in slopes.items() if slope}:
            return None
        found = np.array([slopes[name] for name in self.names]) / self.units
        return found if found.any() else None


def _directions(information, scale, most):
    """Return V, (k, k), with V'IV = 1, the first column along `scale` if given.

    Columns are shortened so that a step along them moves no coordinate by more than `most`.
    """
    size = np.sqrt(np.maximum(np.diag(information), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(information / np.outer(size, size))
    values = np.maximum(values, LEAST_EIGENVALUE_RATIO * values.max(initial=0.0))
    root = (vectors * np.sqrt(values)).T * size
    # root'root = I; an orthonormal basis Q of the whitened space gives V = root⁻¹Q
    k = len(size)
    basis = np.eye(k)
    if scale is not None:
        basis = np.linalg.qr(np.column_stack((root @ scale, np.eye(k))))[0]
        basis[:, 0] *= np.sign(basis[:, 0] @ root @ scale)
    found = np.linalg.solve(root, basis)
    longest = np.max(np.abs(found) / most[:, None], axis=0, initial=0.0)
    return found / np.maximum(1.0, NOISY_STEP * longest)
