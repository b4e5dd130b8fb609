"""Coordinates of searches: maps between points and models.

The search, Newton's method, the information, standard errors and profiles use them with different
options:

    log θ                     positive parameters
    log(θ + c)                parameters that may be 0, in profiles
    radians, or degrees       angles
    log a·f(ν), f = a√(8ν)/a  the range in a search: the practical range, which the data determine
                              almost independently of the shape parameters
    log τ²/σ²                 the nugget in a search with the variance profiled out
    τ²                        variances of noise in Fisher scoring, which may become 0
    Λ, W                      the covariance matrix of nuggets in Fisher scoring
"""

from itertools import combinations
from math import exp, inf, log, radians

import numpy as np
import scipy

from ..covariance.anisotropy import DIP, ROLL
from ..covariance.parameter import Parameter
from ..errors import InvalidInput, NotPositiveDefinite
from .names import ANISOTROPY, NOISE, RANGE, VARIANCE, nuggets_of, of_nuggets, size_of

NUGGET_RATIO_BOUNDS = (1e-13, 1e4)
"""Bounds of τ²/σ² in a search."""

ZERO_EIGENVALUE = 1e-14
"""Eigenvalue of the covariance matrix of nuggets, in units of the largest one, that counts as 0."""

ZERO_IN_LOGARITHMS = 1e-300
"""Stands for 0 in logarithms."""


def practical_factor(model):
    """Return the practical range over the range; 1 for a family without a range."""
    if RANGE not in model.parameters():
        return 1.0
    return model.replace(**{RANGE: 1.0}).practical_range()


def at_practical_range(model, length):
    """Return the model of another practical range."""
    return model.replace(**{RANGE: length / practical_factor(model)})


class Coordinates:
    """Map between points x and models: logarithms, radians of an angle.

    The parameters `names` move; the others have their values in `model`. With `wrap` angles are
    brought into [0, 180). `offset` is c of log(θ + c) for parameters that may be 0. `following`
    maps parameters to the end of their `limits` (a function of the model) at which they stay. With
    `relative` covariances of nuggets that move or follow have the coordinates η_ij/(τ_i τ_j): their
    limits do not depend on the nuggets. Variances in `vanishing` may be 0: they step along a line,
    in units of their value, or at 0 of the variance of the field.
    """

    def __init__(
        self,
        names,
        model,
        wrap=True,
        offset=0.0,
        limits=None,
        following=(),
        relative=False,
        vanishing=(),
    ):
        self.names, self.origin = list(names), model
        self.limits_at, self.following = limits, dict(following)
        self.table = {p.name: p for p in model.table}
        self.wrap, self.offset, self.vanishing = wrap, offset, vanishing
        moving = (*self.names, *self.following) if relative else ()
        self.relative = [name for name in moving if of_nuggets(self.table[name])]
        # limits that are not linear in the others
        self.curved = list(self.following) if model.variables > 1 else []

    def inward(self, name, value):
        """Return the coordinate of a parameter's value."""
        parameter = self.table[name]
        if parameter.transform == "identity":
            return radians(value) if parameter.unit == "degrees" else value
        if parameter.closed:
            value = value + self.offset
        return log(max(value, ZERO_IN_LOGARITHMS))

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
        sizes = {name: size_of(self.table[name], values) for name in self.relative}
        return {name: values[name] / size if size else 0.0 for name, size in sizes.items()}

    def model(self, x):
        """Return the model at a point."""
        values = {name: self.outward(name, v) for name, v in zip(self.names, x, strict=True)}
        values |= self._covariances(values)
        return self._followed(self.origin.replace(**values))

    @property
    def linear(self):
        """Mask of the variances that step along a line, (k,)."""
        return np.array([name in self.vanishing for name in self.names], dtype=bool)

    @property
    def straight(self):
        """Mask of the coordinates that meet bounds, (k,): not of angles, which wrap."""
        return np.array([self.table[name].unit != "degrees" for name in self.names], dtype=bool)

    def shares(self, model):
        """Return the variances of `linear` in units of their fields' variances, (k,); or NaN."""
        values = model.parameters()
        known = [
            values[name] / self.field_variance(model, name) if name in self.vanishing else np.nan
            for name in self.names
        ]
        return np.array(known)

    def moved(self, model, step):
        """Return the model after a step: of a positive variance -1 leads to 0."""
        x, units, values = self.point(model) + step, self.jacobian(model), model.parameters()
        for k in np.flatnonzero(self.linear):
            value = values[self.names[k]] + step[k] * units[k]
            x[k] = log(value) if value > 0 else -inf
        return self.model(x)

    def step(self, model, other):
        """Return the step from a model to another one, see `moved`."""
        step, units = self.point(other) - self.point(model), self.jacobian(model)
        values, others = model.parameters(), other.parameters()
        for k in np.flatnonzero(self.linear):
            step[k] = (others[self.names[k]] - values[self.names[k]]) / units[k]
        return step

    def field_variance(self, model, nugget):
        """Return the variance of the field of which a parameter is the nugget."""
        return model.variance_of(nugget)

    def align(self, model, gradient):
        """Choose the coordinates at a model by the gradient there, a dict; these are fixed."""

    def common(self, model):
        """Return the derivatives of common units by the coordinates at a model, (k, k).

        Units that do not depend on the model are logarithms, and the variances themselves.
        """
        return np.diag(np.where(self.linear, self.jacobian(model), 1.0))

    def common_step(self, model, other):
        """Return the step between models in common units, (k,)."""
        return self.common(model) @ self.step(model, other)

    def bend(self, model, score):
        """Return what the curvature of `moved` adds to the information, (k, k)."""
        return np.zeros((len(self.names), len(self.names)))

    def _covariances(self, values):
        """Return the covariances in `relative`, by name, from correlations and other values."""
        if not self.relative:
            return {}
        known = self.origin.parameters()
        correlations, known = self._correlations(known) | values, known | values
        return {
            name: correlations[name] * size_of(self.table[name], known) for name in self.relative
        }

    def _followed(self, model):
        """Return a model with the parameters that stay at a limit there."""
        for name, side in self.following.items():
            limit = self.limits_at(model)[name][0 if side == "lower" else 1]
            model = model.replace(**{name: limit})
        return model

    @property
    def moving(self):
        """Names of all parameters that change."""
        return [*self.names, *self.following]

    def with_followers(self, model):
        """Return the names of all parameters that change, and ∂θ/∂θ_moving, (m, k).

        The derivatives are those by the correlation of nuggets, not by a covariance in `relative`.
        """
        names, values = self.moving, model.parameters()
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
                slopes[i, i] = size_of(self.table[name], values)
                for nugget in set(nuggets_of(self.table[name])) & set(self.names):
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
            elif name in self.vanishing and values[name] == 0:
                result.append(self.field_variance(model, name))
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
            beside = [self.names.index(n) for n in nuggets_of(self.table[name]) if n in self.names]
            information[k, beside] -= score[k] / 2
            information[beside, k] -= score[k] / 2
            sign = 1 - 2 * np.eye(len(beside))
            information[np.ix_(beside, beside)] -= sign * score[k] * x[k] / 4
        return information

    def standard_errors(self, model, information):
        """Return standard errors of the parameters from the observed information, a dict."""
        errors = np.sqrt(np.diag(np.linalg.inv(information))) * self.jacobian(model)
        return dict(zip(self.names, errors.tolist(), strict=True))


class SpectralCoordinates:
    """Coordinates in which the covariance matrix of nuggets stays positive semidefinite.

    With the standard deviations D of the fields the matrix at a model is N = D U Λ U'D. A step
    leads to D U (I + W) Λ₊ (I + W)'U'D. Eigenvalues Λ step along a line and have an active set at
    0, where N has a reduced rank; W is symmetric, and 0 on its diagonal. The other parameters have
    the coordinates `others`; the parameters `noise` are all nuggets and their covariances.
    """

    def __init__(self, others, noise, variables):
        self.others, self.noise = others, list(noise)
        self.following, self.curved = others.following, [*others.curved, *noise]
        self.pairs = list(combinations(range(variables), 2))
        self.vanishing = [f"eigenvalue_{k + 1}" for k in range(variables)]
        turns = [f"turn_{i + 1}{j + 1}" for i, j in self.pairs]
        self.names = [*others.names, *self.vanishing, *turns]
        self.table = others.table | {n: Parameter(n, 0.0, closed=True) for n in self.vanishing}
        self.table |= {name: Parameter(name, 0.0, "identity", -inf) for name in turns}
        # eigenvectors chosen by `align`, by model
        self._aligned = {}

    @property
    def linear(self):
        """See `Coordinates.linear`."""
        return np.array([name in self.vanishing for name in self.names], dtype=bool)

    @property
    def straight(self):
        """See `Coordinates.straight`: the matrix has no other bounds."""
        return np.r_[self.others.straight, np.zeros(len(self.noise), dtype=bool)]

    def _spectrum(self, model):
        """Return the eigenvalues Λ, (p,), and DU, (p, p)."""
        if model in self._aligned:
            return self._aligned[model]
        deviations = np.sqrt([model.variance_of(name) for name in self.noise[: model.variables]])
        scaled = model.nugget_matrix / np.outer(deviations, deviations)
        values, vectors = np.linalg.eigh(scaled)
        values[values < ZERO_EIGENVALUE * values[-1]] = 0.0
        return np.maximum(values, 0.0), deviations[:, None] * vectors

    def align(self, model, gradient):
        """Choose the eigenvectors of eigenvalues 0 as those of the gradient, a dict."""
        values, basis = self._spectrum(model)
        null = values == 0
        slopes = [gradient[name] for name in self.noise]
        matrix = np.diag(slopes[: len(values)])
        for (i, j), slope in zip(self.pairs, slopes[len(values) :], strict=True):
            # ∂ℓ/∂η is that of both entries
            matrix[i, j] = matrix[j, i] = slope / 2
        turned = basis[:, null] @ np.linalg.eigh(basis[:, null].T @ matrix @ basis[:, null])[1]
        basis = basis.copy()
        basis[:, null] = turned
        self._aligned[model] = values, basis

    def bend(self, model, score):
        """See `Coordinates.bend`: W adds WΛW to Λ, along which ℓ falls from an eigenvalue of 0."""
        k, (values, _) = len(self.others.names), self._spectrum(model)
        slopes = score[k : k + len(values)] / np.where(values > 0, values, 1.0)
        bends = [-2 * (values[j] * slopes[i] + values[i] * slopes[j]) for i, j in self.pairs]
        return np.diag(np.r_[np.zeros(k + len(values)), np.maximum(bends, 0.0)])

    def _entries(self, matrix):
        """Return the nuggets and covariances of a matrix, in the order of `noise`."""
        return np.r_[np.diag(matrix), [matrix[pair] for pair in self.pairs]]

    def shares(self, model):
        """See `Coordinates.shares`."""
        others, turns = np.full(len(self.others.names), np.nan), np.full(len(self.pairs), np.nan)
        return np.r_[others, self._spectrum(model)[0], turns]

    def point(self, model):
        """Return the point of a model, (k,); 0 for eigenvalues and W."""
        return np.r_[self.others.point(model), np.zeros(len(self.noise))]

    def jacobian(self, model):
        """See `Coordinates.jacobian`."""
        values, _ = self._spectrum(model)
        units = np.where(values > 0, values, 1.0)
        return np.r_[self.others.jacobian(model), units, np.ones(len(self.pairs))]

    def moved(self, model, step):
        """See `Coordinates.moved`."""
        k, (values, basis) = len(self.others.names), self._spectrum(model)
        p = len(values)
        values = np.maximum(values + step[k : k + p] * np.where(values > 0, values, 1.0), 0.0)
        turn = np.eye(p)
        for (i, j), w in zip(self.pairs, step[k + p :], strict=True):
            turn[i, j] = turn[j, i] = w
        factor = basis @ turn * np.sqrt(values)
        entries = dict(zip(self.noise, self._entries(factor @ factor.T), strict=True))
        return self.others.moved(model, step[:k]).replace(**entries)

    def step(self, model, other):
        """Return the step from a model to another one, with the others' noise as it is."""
        return np.r_[self.others.step(model, other), np.zeros(len(self.noise))]

    @property
    def moving(self):
        """See `Coordinates.moving`."""
        return [*self.others.moving, *self.noise]

    def with_followers(self, model):
        """See `Coordinates.with_followers`."""
        slopes = self.others.with_followers(model)[1]
        return self.moving, scipy.linalg.block_diag(slopes, self._slopes(model))

    def _slopes(self, model):
        """Return the derivatives of the noise by Λ and W, (k, k)."""
        values, basis = self._spectrum(model)
        columns = [self._entries(np.outer(u, u)) for u in basis.T]
        for i, j in self.pairs:
            outer = np.outer(basis[:, i], basis[:, j])
            columns.append((values[i] + values[j]) * self._entries(outer + outer.T))
        return np.transpose(columns)

    def common(self, model):
        """See `Coordinates.common`: nuggets and covariances themselves."""
        units = self.jacobian(model)[len(self.others.names) :]
        return scipy.linalg.block_diag(self.others.common(model), self._slopes(model) * units)

    def common_step(self, model, other):
        """See `Coordinates.common_step`."""
        noise = self._entries(other.nugget_matrix) - self._entries(model.nugget_matrix)
        return np.r_[self.others.common_step(model, other), noise]


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
        if self.table[name].transform == "identity":
            return value
        return log(max(value, ZERO_IN_LOGARITHMS))

    def model(self, x):
        """Return the model at a point; of variance 1 if the variance is profiled out."""
        values = {
            name: exp(v) if self.table[name].transform == "log" else float(v)
            for name, v in zip(self.names, x, strict=True)
        }
        if self.profiled:
            values[VARIANCE] = 1.0
        if RANGE in values:
            shapes = {name: v for name, v in values.items() if name in self.parameters.shapes}
            length = values[RANGE] / practical_factor(self.origin.replace(**shapes))
            lower, upper = self.parameters.bounds.get(RANGE, (0.0, inf))
            values[RANGE] = min(max(length, lower), upper)
        angle = ANISOTROPY[0]
        if angle in values and angle not in self.parameters.bounds:
            values[angle] %= self._period(angle)
        return self.origin.replace(**values | self._covariances(values))

    def point(self, model):
        """Return the point of a model, inside the box."""
        values, x = self.parameters.principal(model).parameters(), []
        values |= self._correlations(values)
        for name, lower in zip(self.names, self.lower, strict=True):
            value = values[name]
            if name == RANGE:
                x.append(log(model.practical_range()))
            elif name in NOISE and self.profiled:
                x.append(log(max(value / values[VARIANCE], NUGGET_RATIO_BOUNDS[0])))
            elif self.table[name].unit == "degrees":
                # angles that differ by a period are equal: the first above the lower bound
                x.append(lower + (value - lower) % self._period(name))
            else:
                x.append(self._inward(name, value))
        return np.clip(x, self.lower, self.upper)

    def _period(self, name):
        """Return the degrees after which an angle repeats whatever the others are."""
        return 360.0 if DIP.name in self.table and name != ROLL.name else 180.0

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
            at |= {
                n: at[n] + gradient[name] * values[name] / 2 for n in nuggets_of(self.table[name])
            }
            at[name] *= size_of(self.table[name], values)
        if RANGE in self.names:
            # log a = log(practical range) - log f(shapes)
            for name in self.parameters.shapes:
                at[name] -= _practical_slope(model, name) * at[RANGE]
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
