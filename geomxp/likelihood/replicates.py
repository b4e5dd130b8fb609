"""Replicates: observations at one location, reduced to sufficient statistics.

Σ = A C A' + D for n observations at u locations, where A, (n, u), holds a 1 for the location of
each observation, and D the variances of the noise, which are the same for the r replicates of a
location. Means z̄ = (A'A)⁻¹A'z and deviations z - A z̄ are independent. With M = C + D/r

    log|Σ|    = log|M| + Σ ((r-1) log d + log r)
    a'Σ⁻¹b    = ā'M⁻¹b̄ + (a - Aā)'D⁻¹(b - Ab̄)

so that one matrix of the u locations is factored. A trend without covariates that differ between
replicates has the same coefficients, and deviations that do not depend on them.
"""

from dataclasses import dataclass, replace
from math import log, pi

import numpy as np

from ..covariance.inputs import Inputs
from ..data.observations import LEAST_LOCATIONS
from ..errors import Ending, NotPositiveDefinite, Outcome
from ..runtime.devices import blas_threads
from ..tiles.factor import Factor, on_host
from .base import (
    OVERFLOW_MESSAGE,
    Derivatives,
    Evaluation,
    Evaluator,
    GaussianValues,
    Values,
    coincidence,
    noiseless_twins,
)


@dataclass(frozen=True)
class Groups:
    """Locations of observations that are replicates of each other.

    Parameters
    ----------
    inputs : Inputs
        Of the observations.
    first : (u,) ndarray of int
        Row of the first observation at each location.
    of : (n,) ndarray of int
        Number of each observation's location.
    counts : (u,) ndarray
        Number r of observations at each location.

    Examples
    --------
    >>> groups = Groups.of_inputs(Inputs(np.array([[1.0], [2.0], [1.0]])))
    >>> groups.of.tolist(), groups.means(np.array([3.0, 4.0, 6.0])).tolist()
    ([0, 1, 0], [4.5, 4.0])
    """

    inputs: Inputs
    first: np.ndarray
    of: np.ndarray
    counts: np.ndarray

    @classmethod
    def of_inputs(cls, inputs, design=None):
        """Return the groups of rows with equal inputs, noise and design, (n, p); None if not given.

        Rows at one location whose noise or design differs are groups of their own.
        """
        rows, columns = inputs.first_rows(), [inputs.error_variance, inputs.replicates, design]
        keys = [column.reshape(len(inputs), -1) for column in columns if column is not None]
        keys = np.column_stack((rows, *keys))
        _, first, of = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        # in the order of the first rows
        rank = np.argsort(np.argsort(first))
        of = rank[of.reshape(-1)]
        return cls(inputs, np.sort(first), of, np.bincount(of).astype(np.float64))

    def __len__(self):
        return len(self.first)

    @property
    def split(self):
        """Whether rows at one location are in several groups."""
        return len(np.unique(self.inputs.first_rows())) < len(self)

    @property
    def alone(self):
        """Whether no location has replicates."""
        return len(self.first) == len(self.of)

    def sums(self, columns):
        """Return A'x for (n,) or (n, m)."""
        if columns.ndim == 1:
            return np.bincount(self.of, columns, len(self))
        result = np.empty((len(self), columns.shape[1]), order="F")
        for k, column in enumerate(columns.T):
            result[:, k] = self.sums(column)
        return result

    def sorted(self, order):
        """Return the same locations in another order."""
        return Groups(
            self.inputs, self.first[order], np.argsort(order)[self.of], self.counts[order]
        )

    def means(self, columns):
        """Return x̄ for (n,) or (n, m)."""
        sums = self.sums(columns)
        return sums / (self.counts if columns.ndim == 1 else self.counts[:, None])

    def deviations(self, columns):
        """Return x - A x̄ for (n,) or (n, m)."""
        return columns - self.means(columns)[self.of]

    @property
    def reduced_inputs(self):
        """Inputs of the means."""
        inputs, counts = self.inputs[self.first], self.counts
        error, before = inputs.error_variance, inputs.replicates
        return replace(
            inputs,
            error_variance=None if error is None else error / counts,
            replicates=counts if before is None else counts * before,
        )

    def noise(self, model):
        """Return d, the variance of the noise of one observation at each location, (u,)."""
        return model.noise(self.inputs[self.first]).unshared

    def log_determinant(self, model):
        """Return log|Σ| - log|M|."""
        several = self.counts > 1
        r, d = self.counts[several], self.noise(model)[several]
        return float(((r - 1) * np.log(d) + np.log(r)).sum())

    def log_density(self, model, squares):
        """Return the log-density of the deviations, whose sums of squares are (u,)."""
        several = self.counts > 1
        with np.errstate(over="ignore"):
            form = float((squares[several] / self.noise(model)[several]).sum())
        number = len(self.of) - len(self)
        return -0.5 * (number * log(2 * pi) + self.log_determinant(model) + form), form


LEAST_DEVIATIONS = 10
"""Fewest deviations from means that determine the variance of the noise alone."""


def determine_microscale(observations, design):
    """Whether there are enough replicates to estimate microscale and nugget separately.

    They must have different values, since the nugget of equal ones would vanish.
    """
    groups = Groups.of_inputs(observations.inputs, design)
    if groups.split:
        return False
    if len(groups.of) - len(groups) < LEAST_DEVIATIONS:
        return False
    z = observations.values
    return float(np.abs(groups.deviations(z)).max()) > 1e-12 * float(np.abs(z).max())


def dense_covariance(model, inputs):
    """Return Σ of observations, (n, n), with noise that replicates share (microscale variation)."""
    sigma, noise = model.matrix(inputs, inputs), model.noise(inputs)
    shared = noise.of_locations
    if shared.any():
        first = inputs.first_rows()
        sigma += shared[:, None] * (first[:, None] == first)
    sigma[np.diag_indices(len(sigma))] += noise.unshared
    return sigma


def sufficient(observations, design=None):
    """Return observations with one value for each location, their design, and the first rows.

    The same observations if no location has replicates. The values are means; their likelihood
    does not include the deviations from the means.

    Examples
    --------
    >>> from geomxp import Observations
    >>> seen = Observations([[0.0], [1.0], [2.0], [1.0]], [1.0, 2.0, 3.0, 5.0])
    >>> means, _, _ = sufficient(seen)
    >>> means.values.tolist(), means.replicates.tolist()
    ([1.0, 3.5, 3.0], [1.0, 2.0, 1.0])
    """
    groups = Groups.of_inputs(observations.inputs, design)
    if groups.alone:
        return observations, design, groups.first
    own = None if design is None else design[groups.first]
    return _means(observations, groups), own, groups.first


def _means(observations, groups):
    """Return the observations of the means."""
    inputs = groups.reduced_inputs
    return replace(
        observations.subset(groups.first),
        values=groups.means(observations.values),
        error_variance=inputs.error_variance,
        replicates=inputs.replicates,
    )


def evaluator_of(kind, observations, design, reml, method):
    """Return an evaluator kind(observations, design, reml, method); of means, with replicates.

    Observations without values are not reduced.
    """
    if observations.values is None:
        return kind(observations, design, reml, method)
    groups = Groups.of_inputs(observations.inputs, design)
    if groups.alone or len(groups) < LEAST_LOCATIONS:
        return kind(observations, design, reml, method)
    own = None if design is None else design[groups.first]
    own_method = method.of_rows(groups.first)
    values = Values(observations)
    inner = kind(_means(observations, groups), own, reml, own_method, MeanValues(groups, values))
    return ReplicatesEvaluator(inner, groups, values, observations, design, reml, method)


class MeanValues:
    """Means of transformed values at each location; see `Values`.

    The Jacobian is added by `ReplicatesEvaluator`.
    """

    def __init__(self, groups, values):
        self._groups, self._values, self._last = groups, values, (None, None)

    def at(self, transform):
        """See `Values.at`."""
        z = self._values.at(transform).z
        if self._last[0] is not z:
            self._last = z, GaussianValues(self._groups.means(z), 0.0)
        return self._last[1]

    def slopes(self, transform):
        """See `Values.slopes`."""
        slopes, jacobian = self._values.slopes(transform)
        return self._groups.means(slopes), 0.0 * jacobian

    def bends(self, transform):
        """See `Values.bends`."""
        bends, jacobian = self._values.bends(transform)
        means = self._groups.means(bends.reshape(len(bends), -1))
        return means.reshape(-1, *bends.shape[1:]), 0.0 * jacobian


class ReplicatesEvaluator(Evaluator):
    """ℓ(θ) and its derivatives of observations with replicates, from an evaluator of the means."""

    def __init__(self, inner, groups, values, observations, design, reml, method):
        self.inner, self.groups, self.values = inner, groups, values
        self.observations, self.reml, self.method = observations, reml, method
        self.design = np.zeros((len(observations), 0)) if design is None else design
        self.expensive, self.device = inner.expensive, inner.device
        self._last = None, None
        self._twins = observations.duplicate()

    @property
    def scoring(self):
        """See `Evaluator.scoring`."""
        return self.inner.scoring

    def graph_of(self, model):
        """Return the neighbours of all locations, with Vecchia's approximation."""
        return self.inner.graph_of(model)

    def __call__(self, model):
        """See `Evaluator.__call__`."""
        return self._whole(model, self.inner)

    def carefully(self, model):
        """See `Evaluator.carefully`."""
        return self._whole(model, self.inner.carefully)

    def _whole(self, model, evaluate):
        n = len(self.observations)
        try:
            self._check(model)
        except NotPositiveDefinite as error:
            return Evaluation.failed(Outcome(Ending.NOT_POSITIVE_DEFINITE, str(error)), n)
        found = evaluate(model)
        if not np.isfinite(found.log_likelihood):
            return replace(found, n=n)
        value, form = self.groups.log_density(model, self._squares(model))
        log_jacobian = self.values.at(model.transform).log_jacobian
        value = found.log_likelihood + value + log_jacobian
        if not np.isfinite(value):
            return Evaluation.failed(Outcome(Ending.NOT_POSITIVE_DEFINITE, OVERFLOW_MESSAGE), n)
        return replace(
            found,
            log_likelihood=value,
            log_determinant=found.log_determinant + self.groups.log_determinant(model),
            quadratic_form=found.quadratic_form + form,
            n=n,
            log_jacobian=log_jacobian,
        )

    def _deviations(self, model):
        """Return the deviations from the means, (n,)."""
        z = self.values.at(model.transform).z
        if self._last[0] is not z:
            self._last = z, self.groups.deviations(z)
        return self._last[1]

    def _squares(self, model):
        """Return the sums of squared deviations, (u,)."""
        return self.groups.sums(self._deviations(model) ** 2)

    def _check(self, model):
        """Raise `NotPositiveDefinite` where replicates have no noise."""
        twins = self._twins and noiseless_twins(model, self.observations)
        if twins:
            raise NotPositiveDefinite(coincidence(self.observations, twins))

    def derivatives(self, model, names, *, curvature=False):
        """See `Evaluator.derivatives`."""
        self._check(model)
        found = self.inner.derivatives(model, names, curvature=curvature)
        more = self._of_deviations(model, found.names, found.observed is not None)
        average, expected = more.information, more.expected
        return replace(
            found,
            score=found.score + more.score,
            information=found.information + (average if found.rescalable else expected),
            quadratic=None if found.quadratic is None else found.quadratic + more.quadratic,
            trace=None if found.trace is None else found.trace + more.trace,
            expected=None if found.expected is None else found.expected + expected,
            observed=None if found.observed is None else found.observed + more.observed,
        )

    @blas_threads(0)
    def _of_deviations(self, model, names, curvature):
        """Return the `Derivatives` of the log-density of the deviations, and of the Jacobian."""
        several = self.groups.counts > 1
        spare, d = self.groups.counts[several] - 1, self.groups.noise(model)[several]
        squares = self._squares(model)[several]
        slopes = self._noise_slopes(model, names)
        quadratic, trace = slopes @ (squares / d**2), slopes @ (spare / d)
        # ½α'∂Σ Σ⁻¹∂Σα, and its mean
        average = 0.5 * (slopes * (squares / d**3)) @ slopes.T
        expected = 0.5 * (slopes * (spare / d**2)) @ slopes.T
        observed = 2 * average - expected
        known = [] if model.transform is None else list(model.transform.parameters())
        rows = [k for k, name in enumerate(names) if name in known]
        if rows:
            kept = [known.index(names[row]) for row in rows]
            of_z, jacobian = self.values.slopes(model.transform)
            own = self.groups.noise(model)[self.groups.of]
            alone = self.groups.counts[self.groups.of] == 1
            weights = np.divide(1.0, own, out=np.zeros(len(own)), where=~alone)
            deviations = self._deviations(model)
            of_z = self.groups.deviations(of_z[:, kept])
            along = of_z.T @ (weights * deviations)
            quadratic[rows], trace[rows] = -2 * along, -2 * jacobian[kept]
            square = (of_z * weights[:, None]).T @ of_z
            # -∂²ℓ/∂τ²∂ψ
            products = self.groups.sums(of_z * deviations[:, None])[several]
            cross = -slopes @ (products / d[:, None] ** 2)
            bending = 0.0
            if curvature:
                bends, curved = self.values.bends(model.transform)
                bends = self.groups.deviations(bends.reshape(len(bends), -1)).reshape(bends.shape)
                bending = np.tensordot(weights * deviations, bends, 1) - curved
                bending = bending[np.ix_(kept, kept)]
            for matrix, whole in ((average, 0.0), (expected, bending), (observed, bending)):
                matrix[:, rows] += cross
                matrix[rows, :] += cross.T
                matrix[np.ix_(rows, rows)] += square + whole
        score = 0.5 * (quadratic - trace)
        return Derivatives(names, score, average, quadratic, trace, expected, observed)

    def _noise_slopes(self, model, names):
        """Return ∂d of the locations with replicates by each parameter, (k, l)."""
        several = self.groups.counts > 1
        noise = model.noise(self.groups.inputs[self.groups.first][several])
        slopes = np.zeros((len(names), int(several.sum())))
        for k, name in enumerate(names):
            if name in noise.names and not noise.shared[noise.names.index(name)]:
                slopes[k] = noise.derivative(name)
        return slopes

    def expected_information(self, model, names=None):
        """See `Evaluator.expected_information`."""
        names = tuple(model.parameters() if names is None else names)
        return self._with_deviations(model, names, self.inner.expected_information(model, names))

    def score_variance(self, model, names):
        """See `Evaluator.score_variance`: deviations are independent of the means."""
        found = self.inner.score_variance(model, names)
        return None if found is None else self._with_deviations(model, names, found)

    def _with_deviations(self, model, names, information):
        """Return an information, (k, k), with the expected one of the deviations."""
        return information + self._of_deviations(model, names, True).expected

    def has_curvature(self, names):
        """See `Evaluator.has_curvature`."""
        return self.inner.has_curvature(names)

    def keeps(self, model):
        """See `Evaluator.keeps`."""
        return self.inner.keeps(model)

    @property
    def moves(self):
        """See `Evaluator.moves`."""
        return self.inner.moves

    @property
    def scatter(self):
        """See `Evaluator.scatter`."""
        return self.inner.scatter

    def freeze(self, model):
        """See `Evaluator.freeze`."""
        self.inner.freeze(model)

    def would_move(self, model, exactly=False):
        """See `Evaluator.would_move`."""
        return self.inner.would_move(model, exactly)

    def divergence_at(self, model):
        """See `Evaluator.divergence_at`."""
        return self.inner.divergence_at(model)

    @property
    def notice(self):
        """See `Evaluator.notice`."""
        return self.inner.notice

    def be_rough(self):
        """See `Evaluator.be_rough`."""
        self.inner.be_rough()

    def factorize(self, model):
        """See `Evaluator.factorize`."""
        self._check(model)
        return ReplicatesFactor(self.inner.factorize(model), self.groups, self.groups.noise(model))


class ReplicatesFactor(Factor):
    """A factor of Σ of observations with replicates, from one of M, the means' matrix.

    `half_solve` returns u + n rows: those of the whitened means, and of the deviations.
    """

    def __init__(self, means, groups, noise):
        self.means, self.groups, self._noise = means, groups, noise
        self.precision_map, self.nbytes = means.precision_map, means.nbytes
        self.promotions = means.promotions
        self.refines, self.vectors = means.refines, means.vectors + 1

    @property
    def last(self):
        """See `Factor`."""
        return self.means.last

    def _each(self, columns):
        """Return d of each observation, to divide columns by."""
        noise = self._noise[self.groups.of]
        return noise if columns.ndim == 1 else noise[:, None]

    def log_determinant(self):
        """Return log|Σ|."""
        r, d = self.groups.counts, self._noise
        several = r > 1
        added = (r[several] - 1) * np.log(d[several]) + np.log(r[several])
        return self.means.log_determinant() + float(added.sum())

    def _deviations(self, columns):
        """Return x - A x̄, 0 where a location has one observation."""
        deviations = self.groups.deviations(columns)
        deviations[self.groups.counts[self.groups.of] == 1] = 0.0
        return deviations

    def _over_noise(self, columns, power):
        """Return D^-power (x - A x̄)."""
        deviations, each = self._deviations(columns), self._each(columns)
        return np.divide(deviations, each**power, out=0.0 * deviations, where=deviations != 0)

    def solve(self, b):
        """Return Σ⁻¹b = A (A'A)⁻¹M⁻¹b̄ + D⁻¹(b - A b̄) for (n,) or (n, m)."""
        solved = self.means.solve(np.asfortranarray(self.groups.means(b)))
        counts = self.groups.counts if b.ndim == 1 else self.groups.counts[:, None]
        return (solved / counts)[self.groups.of] + self._over_noise(b, 1.0)

    def half_solve(self, b):
        """Return W with W'W = b'Σ⁻¹b, for (n,) or (n, m)."""
        b = on_host(b)
        half = self.means.half_solve(np.asfortranarray(self.groups.means(b)))
        return np.concatenate((half, self._over_noise(b, 0.5)))

    def inner(self, a, b=None):
        """Return a'Σ⁻¹b = ā'M⁻¹b̄ + (a - Aā)'D⁻¹(b - Ab̄) for (n, m) and (n, k)."""
        of_means = [None if x is None else np.asfortranarray(self.groups.means(x)) for x in (a, b)]
        half = self._over_noise(a, 0.5)
        other = half if b is None else self._over_noise(b, 0.5)
        return self.means.inner(*of_means) + half.T @ other

    def gram(self, a):
        """Return A'Σ⁻¹A, and Σ⁻¹A, for (n, m), with a refined factor."""
        solution = self.solve(a)
        product = a.T @ solution
        return (product + product.T) / 2, solution

    def times(self, x):
        """Return Σx = A (M - D/r)A'x + Dx for (n, m), with a refined factor."""
        sums = np.asfortranarray(self.groups.sums(x))
        shared = self.means.times(sums) - (self._noise / self.groups.counts)[:, None] * sums
        return shared[self.groups.of] + self._each(x) * x

    def multiply(self, x):
        """Return S x with SS' = Σ, for (n, m)."""
        # coordinates along the means, and the rest
        along = self.groups.sums(x) / np.sqrt(self.groups.counts)[:, None]
        field = self.means.multiply(np.asfortranarray(along))
        return field[self.groups.of] + np.sqrt(self._each(x)) * self._deviations(x)

    def explained_by(self, x):
        """See `Factor.explained_by`."""
        if not self.refines and x.shape[1]:
            return super().explained_by(x)
        explained = self.means.explained_by(np.asfortranarray(self.groups.means(x)))
        weighted = self._over_noise(x, 1.0)

        def whole(k):
            k = on_host(k)
            squares, cross = explained(np.asfortranarray(self.groups.means(k)))
            deviations = self._over_noise(k, 0.5)
            return squares + np.einsum("ij,ij->j", deviations, deviations), cross + k.T @ weighted

        return whole

    def inverse_diagonal(self, n):
        """Return the diagonal of Σ⁻¹, (n,)."""
        inverse, r = self.means.inverse_diagonal(len(self.groups)), self.groups.counts
        deviations = np.divide(1 - 1 / r, self._noise, out=np.zeros(len(r)), where=r > 1)
        return (inverse / r**2 + deviations)[self.groups.of]
