"""Vecchia's approximation of the likelihood, in one process, on a GPU or on a Dask cluster.

Vecchia (1988, JRSS B 50:297): each observation is conditioned on its m nearest predecessors,
p(z_i | z_N(i)) in place of p(z_i | z_1 … z_{i-1}). Covariances are those of observations, nugget
included. Gradient and information: Guinness (2021, Stat. Comput. 31:25).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np
import scipy

from ..covariance.ordering import order_points
from ..errors import Ending, InvalidInput, NotPositiveDefinite, Outcome
from ..runtime.dask import address_of
from ..runtime.devices import blas_threads, is_cluster, resolve
from ..tiles.assemble import covariance_matrix
from ..vecchia.blocks import LocalPasses, Neighbours, Sums, wanted_for
from ..vecchia.factor import VecchiaFactor
from ..vecchia.gpu import GpuPasses
from ..vecchia.shards import DaskPasses
from .base import (
    OVERFLOW_MESSAGE,
    Derivatives,
    Evaluation,
    Evaluator,
    Likelihood,
    Values,
    check_noise,
    coincidence,
    gaussian_log_likelihood,
    noiseless_twins,
)
from .cost import check_neighbours
from .replicates import evaluator_of
from .rounding import from_factor, from_noise
from .trend import GeneralisedLeastSquares, centred

if TYPE_CHECKING:
    from .._typing import ArrayLike, Client, Document, Floats
    from ..data.observations import Observations

SCORE_DRAWS, DRAWS_PER_PASS = 128, 32
"""Simulated data sets of the variance of the score, and those whose scores one pass computes."""

EXACT_DRAWS_LOCATIONS, DRAWS_NEIGHBOURS_FACTOR, LEAST_DRAWS_NEIGHBOURS = 1000, 2, 60
"""Locations up to which these data are drawn from the exact Σ; above, from Vecchia's approximation
with this many times the neighbours, and at least so many."""

MOST_CHECKED_LOCATIONS = 20_000
"""Locations up to which rounding is bounded by another pass where the nugget does not bound it."""

KEPT_NEIGHBOURS_DIVERGENCE = 1e-4
"""Divergence for each observation below which a search keeps its neighbours."""

ONE_GRAPH_LOCATIONS, KEPT_GRAPHS = 50_000, 8
"""Space-time models: locations above which one graph of neighbours is kept, and graphs below."""

ORDERINGS = ("maximin", "morton", "hilbert", "given")


@dataclass(frozen=True)
class Vecchia(Likelihood):
    """Vecchia's approximation: each observation conditioned on its nearest predecessors.

    Parameters
    ----------
    neighbours : int
        Number m of neighbours. With n - 1 the likelihood is exact.
    ordering : str or (n,) array_like of int
        "maximin", "morton", "hilbert", "given" (the rows' own order), or a permutation of the
        rows: `ordering[k]` is the k-th.
    on : str or dask.distributed.Client
        "cpu"; "gpu" or "gpu:1" for up to 128 neighbours; or a Dask cluster: the address of its
        scheduler, "tcp://host:8786", or a client. Each worker then finds and uses the neighbours of
        some locations; no machine holds all of them.

    Notes
    -----
    In space neighbours are the nearest in the metric and are found once for a data set; with
    anisotropy they remain those of the isotropic distance. In time, and of several variables, times
    and variables count as lengths, as much as gives the smallest divergence from the exact model.

    Examples
    --------
    >>> import geomxp as gx
    >>> locations = np.random.default_rng(0).random((300, 2))
    >>> observations, model = gx.Observations(locations, np.ones(300)), gx.Matern(1.0, 0.1, 0.5)
    >>> exact = gx.log_likelihood(observations, model)
    >>> all_neighbours = gx.log_likelihood(observations, model, Vecchia(299))
    >>> abs(all_neighbours.log_likelihood / exact.log_likelihood - 1) < 1e-12
    True
    """

    neighbours: int = 30
    ordering: str | ArrayLike = "maximin"
    on: str | Client = "cpu"

    approximate = True
    replicates = True

    def __post_init__(self):
        m = self.neighbours
        if not (isinstance(m, Integral) and not isinstance(m, bool) and m >= 0):
            raise InvalidInput(f"`neighbours` must be a whole number of at least 0. Got {m!r}.")
        object.__setattr__(self, "neighbours", int(m))
        if isinstance(self.ordering, str):
            if self.ordering not in ORDERINGS:
                known = ", ".join(ORDERINGS)
                raise InvalidInput(f"`ordering` must be one of: {known}. Got {self.ordering!r}.")
        else:
            object.__setattr__(self, "ordering", _permutation(self.ordering))
        if is_cluster(self.on):
            object.__setattr__(self, "on", address_of(self.on))
        else:
            resolve(self.on)

    def __repr__(self) -> str:
        order = self.describe(0)["ordering"]
        return f"Vecchia(neighbours={self.neighbours}, ordering={order!r}, on={self.on!r})"

    def prepare(
        self, observations: Observations, design: Floats | None = None, reml: bool = False
    ) -> Evaluator:
        """Return the evaluator of one data set: orders it and finds the neighbours."""
        return evaluator_of(VecchiaEvaluator, observations, design, reml, self)

    def of_rows(self, rows: ArrayLike) -> Vecchia:
        """Return the method for a subset of the rows, in their original order."""
        if isinstance(self.ordering, str) and self.ordering != "given":
            return self
        positions = np.asarray(rows)
        if self.ordering != "given":
            positions = np.argsort(self.ordering)[rows]
        return replace(self, ordering=np.argsort(positions))

    @property
    def arithmetic(self) -> tuple:
        """Neighbours and ordering change the value of ℓ."""
        return type(self), self.neighbours, self.ordering

    def describe(self, n: int) -> Document:
        """Return the method's entry in the JSON of a fit of n locations."""
        named = isinstance(self.ordering, str)
        return {
            "name": "vecchia",
            "on": self.on,
            "neighbours": self.neighbours,
            "ordering": self.ordering if named else "permutation",
            "permutation": None if named else list(self.ordering),
            "tile": None,
            "accuracy": None,
            "formats": {"fp64": 1},
            "promotions": 0,
        }


def _permutation(ordering):
    """Return an ordering as a tuple of rows, which can be compared."""
    order = np.asarray(ordering)
    whole = order.ndim == 1 and order.dtype.kind in "iu"
    if not whole or not np.array_equal(np.sort(order), np.arange(len(order))):
        raise InvalidInput(
            f"`ordering` must be a name ({', '.join(ORDERINGS)}) or a permutation of the rows "
            "0, 1, …, n - 1, each once. Got neither."
        )
    return tuple(order.tolist())


def _of_covariance(model, names):
    """Return the positions and the names of all parameters but those of a transformation."""
    known = () if model.transform is None else model.transform.parameters()
    rows = [k for k, name in enumerate(names) if name not in known]
    return rows, tuple(names[k] for k in rows)


class VecchiaEvaluator(Evaluator):
    """ℓ(θ), its gradient and its expected information, for one data set."""

    scoring = True

    @blas_threads(0)
    def __init__(self, observations, design, reml, method, values=None):
        n = len(observations)
        self.observations, self.reml, self.method = observations, reml, method
        self.values = Values(observations) if values is None else values
        ordering = method.ordering
        if not isinstance(ordering, str):
            ordering = np.array(ordering)
            if len(ordering) != n:
                raise InvalidInput(
                    f"`ordering` must be a permutation of the {n} rows. Got {len(ordering)}."
                )
        self._graphs, self._held = {}, None
        self.moves = observations.time is not None or observations.variable is not None
        if observations.variable is not None and isinstance(ordering, str):
            # the axes of the variables are for neighbours only
            ordering = order_points(observations.inputs.points, ordering)
        self._ordering = ordering
        self._neighbours = Neighbours(observations.inputs, method.neighbours, method.ordering)
        self._make = partial(self._passes_over, ordering, method)
        self._passes = None if self.moves else self._make()
        self._twins = observations.duplicate()
        self._last = None, ()
        self.design, self._transform = np.zeros((n, 0)) if design is None else design, "unknown"
        p = self.design.shape[1]
        # X = QR; scaled by √n, the columns of Q are of order 1
        units = 2.0 ** np.round(np.log2(np.abs(self.design).max(axis=0))) if p else np.ones(0)
        q, r = np.linalg.qr(self.design / units)
        self._triangle, self._q = r * units / np.sqrt(n), q * np.sqrt(n)

    def _passes_over(self, ordering, method, points=None):
        """Return the passes over the blocks, whose neighbours are nearest as points."""
        inputs, neighbours = self.observations.inputs, method.neighbours
        if is_cluster(method.on):
            return DaskPasses(inputs, ordering, neighbours, points, address=method.on)
        device = resolve(method.on)
        if device.index is None:
            check_neighbours(len(self.observations), neighbours)
            return LocalPasses(inputs, ordering, neighbours, points)
        return GpuPasses(inputs, ordering, neighbours, points, device=device)

    # neighbours of models in time or of several variables: near each other in correlation

    @blas_threads(0)
    def freeze(self, model):
        """Keep the neighbours of a model in time, or of several variables, for all models."""
        self._held = self._key_of(model) if self.moves else None

    @blas_threads(0)
    def would_move(self, model, exactly=False):
        """Whether other neighbours than those that are kept suit a model better."""
        if self._held is None or self._key_of(model) == self._held:
            return False
        return exactly or self._neighbours.loss(model, self._held) > KEPT_NEIGHBOURS_DIVERGENCE

    def _key_of(self, model):
        """Return the key of a model's neighbours; a first guess if the evaluator is rough."""
        if self.rough:
            return model.neighbour_key(self.observations.inputs)
        return self._neighbours.key_of(model)

    def _points(self, model, key):
        """Return the points by which neighbours are found."""
        return model.neighbour_points(self.observations.inputs, key)

    def _meet(self, model):
        """Have the passes over the neighbours of a model."""
        if not self.moves:
            return
        key = self._key_of(model) if self._held is None else self._held
        if key not in self._graphs:
            kept = 1 if len(self.observations) > ONE_GRAPH_LOCATIONS else KEPT_GRAPHS
            while len(self._graphs) >= kept:
                self._graphs.pop(next(iter(self._graphs)))
            self._graphs[key] = self._make(self._points(model, key))
        if self._passes is not self._graphs[key]:
            self._passes = self._graphs[key]
            self._transform, self._last = "unknown", (None, ())

    def _know(self, transform):
        """Keep the columns to whiten under a transformation, unless they are known.

        They are z minus its least-squares trend, which avoids cancellation, Q, and the derivatives
        of z by the parameters of the transformation.
        """
        if self._transform == transform:
            return
        z, offset = centred(self.values.at(transform).z, self.design)
        rest, self._start = self._residuals(z)
        self._offset, columns = offset, [rest[None], self._q.T]
        if transform is not None and transform.declared:
            slopes, self._jacobian = self.values.slopes(transform)
            columns += [self._residuals(slope)[0][None] for slope in slopes.T]
        self._columns = np.ascontiguousarray(np.vstack(columns)[:, self._passes.tree.order])
        self._passes.know(self._columns)
        self._transform, self._last = transform, (None, ())

    def _residuals(self, column):
        """Return a column minus its least-squares trend, and the coefficients of Q."""
        n, q = len(column), self._q
        unit = max(float(np.abs(column).max()), 1e-300)
        start = q.T @ (column / unit) / n
        # a second projection removes rounding errors of the first
        rest = column / unit - q @ start
        more = q.T @ rest / n
        return (rest - q @ more) * unit, (start + more) * unit

    @property
    def _trend(self):
        """Numbers of the columns of Q."""
        return slice(1, 1 + self.design.shape[1])

    def graph_of(self, model):
        """Return the neighbours of all locations with a model: a `geomxp.vecchia.factor.Graph`."""
        self._meet(model)
        return self._passes.graph

    @blas_threads(0)
    def __call__(self, model):
        """Evaluate the log-likelihood; -inf with an outcome if a block has no Cholesky factor."""
        start, n = time.perf_counter(), len(self.observations)
        try:
            sums = self._reduce(model, ())
            least_squares = self._least_squares(sums.gram)
            value = gaussian_log_likelihood(n, sums.log_determinant, least_squares, self.reml)
            log_jacobian = self.values.at(model.transform).log_jacobian
            value += log_jacobian
            if not np.isfinite(value):
                raise NotPositiveDefinite(OVERFLOW_MESSAGE)
        except NotPositiveDefinite as error:
            outcome = Outcome(Ending.NOT_POSITIVE_DEFINITE, str(error))
            return Evaluation.failed(outcome, n, time.perf_counter() - start)
        return Evaluation(
            log_likelihood=value,
            log_determinant=sums.log_determinant,
            quadratic_form=least_squares.quadratic_form,
            outcome=Outcome(Ending.COMPUTED),
            n=n,
            reml=self.reml,
            coefficients=least_squares.coefficients,
            coefficient_covariance=least_squares.coefficient_covariance,
            log_determinant_of_information=least_squares.log_determinant_of_information,
            rounding=from_noise(
                model,
                model.noise(self.observations.inputs),
                n,
                least_squares.quadratic_form,
                sums.log_determinant,
            ),
            seconds=time.perf_counter() - start,
            log_jacobian=log_jacobian,
        )

    @blas_threads(0)
    def carefully(self, model):
        """See `Evaluator.carefully`; on a cluster only what the nugget bounds."""
        evaluation = self(model)
        known = evaluation.rounding is not None or not np.isfinite(evaluation.log_likelihood)
        if known or is_cluster(self.method.on) or len(self.observations) > MOST_CHECKED_LOCATIONS:
            return evaluation
        z = self.values.at(model.transform).z
        residual = z - self.design @ evaluation.coefficients
        noise = model.noise(self.observations.inputs)
        rounding = from_factor(
            self.factorize(model),
            model,
            noise,
            residual,
            evaluation.quadratic_form,
            evaluation.log_determinant,
        )
        return replace(evaluation, rounding=rounding)

    def _check(self, model):
        model.check_inputs(self.observations.inputs)
        check_noise(model, self.observations)
        twins = self._twins and noiseless_twins(model, self.observations)
        if twins:
            raise NotPositiveDefinite(coincidence(self.observations, twins))

    def _reduce(self, model, names):
        """Return `Sums` over all blocks; the last ones are cached."""
        model.check_inputs(self.observations.inputs)
        self._meet(model)
        last, kept = self._last
        if last == model and kept.names >= set(names):
            return kept
        self._check(model)
        self._know(model.transform)
        noise = model.noise(self.observations.inputs)
        out, failed = self._passes.reduce(model, wanted_for(model, names, noise))
        if failed is not None:
            raise self._explain(failed, model)
        sums = Sums(out, len(self._columns), model, set(names), noise)
        self._last = model, sums
        return sums

    def _explain(self, failed, model):
        """Return the exception for a location of the tree, which names rows of the observations."""
        tree, near = self._passes.tree, self._passes.neighbours_of(failed)
        rows = tree.order[[failed, *near[near >= 0]]]
        points = model.isotropic(self.observations.inputs[rows])
        apart = ((points[:, None] - points[None]) ** 2).sum(axis=2)
        i, j = np.unravel_index(np.argmin(apart + np.diag(np.full(len(rows), np.inf))), apart.shape)
        i, j = sorted((rows[i] + 1, rows[j] + 1))
        advice = "give the model a nugget" if model.nugget == 0 else "use a larger nugget"
        return NotPositiveDefinite(
            f"the covariance matrix of row {rows[0] + 1} and its {len(rows) - 1} neighbours is not "
            f"positive definite in FP64; the closest of them are rows {i} and {j}: {advice}, a "
            "shorter range or a smaller smoothness."
        )

    def _least_squares(self, gram):
        """Estimate the trend from W'W, W = B(z, Q); see `gls.fit_trend`."""
        trend = self._trend
        form, cross, information = gram[0, 0], gram[trend, 0], gram[trend, trend]
        if not np.isfinite(gram).all():
            raise NotPositiveDefinite("a whitened value overflows FP64: rescale the values.")
        try:
            lower = scipy.linalg.cholesky(information, lower=True)
        except np.linalg.LinAlgError:
            raise NotPositiveDefinite("X'Σ⁻¹X is not positive definite in FP64.") from None
        white = scipy.linalg.solve_triangular(lower, cross, lower=True)
        beta = scipy.linalg.solve_triangular(lower, white, lower=True, trans="T")
        # β = R⁻¹γ for the coefficients γ of Q
        root = scipy.linalg.solve_triangular(self._triangle, np.linalg.inv(lower).T)
        logs = np.log(np.abs(np.diag(lower))) + np.log(np.abs(np.diag(self._triangle)))
        coefficients = scipy.linalg.solve_triangular(self._triangle, self._start + beta)
        return GeneralisedLeastSquares(
            coefficients + self._offset if self._offset.any() else coefficients,
            root @ root.T,
            float(max(form - white @ white, 0.0)),
            2 * float(logs.sum()),
            beta,
            root,
        )

    @blas_threads(0)
    def derivatives(self, model, names, *, curvature=False):
        """Return score and expected information (of ML), from one pass over the data.

        -2 ∂ℓ = ∂ log|Σ| + γ'∂(W'W)γ + tr(A⁻¹∂A) with γ = (1, -β̂), A = X'Σ⁻¹X; the last for REML.
        `curvature` is ignored: there is no formula for the observed information.
        """
        names, transform = tuple(names), model.transform
        known = () if transform is None else tuple(transform.parameters())
        ours = tuple(name for name in names if name not in known)
        sums, trend = self._reduce(model, ours), self._trend
        gram, gamma = sums.gram, np.zeros(len(sums.gram))
        gamma[0], gamma[trend] = 1.0, -self._least_squares(gram).residual
        score, changes = [], []
        for name in ours:
            trace, change = sums.derivative(name)
            slope = trace + gamma @ change @ gamma
            if self.reml and gram[trend, trend].size:
                slope += np.trace(np.linalg.solve(gram[trend, trend], change[trend, trend]))
            score.append(-0.5 * float(slope))
            changes.append(change @ gamma)
        found = Derivatives(ours, np.array(score), sums.information(ours))
        if ours == names:
            return found
        # the columns ż, with their own coefficients of the trend: -∂ℓ/∂ψ = ż'Pz - ∂J
        rows = [known.index(name) for name in names if name in known]
        at = trend.stop + np.array(rows)
        sides = np.zeros((len(rows), len(gram)))
        sides[np.arange(len(rows)), at] = 1.0
        if gram[trend, trend].size:
            sides[:, trend] = -np.linalg.solve(gram[trend, trend], gram[trend][:, at]).T
        cross = np.array(changes).reshape(len(ours), len(gram)) @ sides.T
        slopes = self._jacobian[rows] - sides @ gram @ gamma
        order = [(*ours, *(known[row] for row in rows)).index(name) for name in names]
        return found.joined(names, order, slopes, cross, sides @ gram @ sides.T)

    @blas_threads(0)
    def expected_information(self, model, names=None):
        """Return Fisher's expected information, (k, k): the sum of each conditional density's."""
        names = tuple(model.parameters() if names is None else names)
        information, rows, ours = self.information(model, names), *_of_covariance(model, names)
        if self.reml and self.design.shape[1]:
            information[np.ix_(rows, rows)] -= self._trend_share(model, ours)
        return information

    @blas_threads(0)
    def score_variance(self, model, names, seed=0):
        """Return K, the covariance of the score under the model itself, (k, k); see `Evaluator`.

        Conditional densities give an unbiased score, whose information J is not its variance K
        (Varin, Reid and Firth 2011, Stat. Sinica 21:5). With scores s of draws from the model (or
        from a richer approximation), and t of draws from the approximation with the same normal
        numbers, K = R (cov R⁻¹t)^-½ (cov R⁻¹s) (cov R⁻¹t)^-½ R' for J = RR', which is J where the
        approximation is exact.
        """
        if is_cluster(self.method.on):
            # in this process, with the same bits
            method = replace(self.method, on="cpu")
            evaluator = method.prepare(self.observations, self.design, self.reml)
            return evaluator.score_variance(model, names, seed)
        names, random = tuple(names), np.random.default_rng(seed)
        rows, ours = _of_covariance(model, names)
        if not names:
            return np.zeros((0, 0))
        if ours != names:
            # the variance of the transformation's scores is their information
            variance = self.expected_information(model, names)
            variance[np.ix_(rows, rows)] = self.score_variance(model, ours, seed)
            return variance
        root = np.linalg.cholesky(self.expected_information(model, names))
        points = self._points(model, self._key_of(model)) if self.moves else None
        inputs = self.observations.inputs
        passes = LocalPasses(inputs, self._ordering, self.method.neighbours, points)
        draws = self._richer(model, points), self.factorize(model).multiply
        scores = [], []
        for _ in range(0, SCORE_DRAWS, DRAWS_PER_PASS):
            white = random.standard_normal((len(self.observations), DRAWS_PER_PASS))
            for found, multiply in zip(scores, draws, strict=True):
                found.append(self._scores(model, names, passes, multiply(white)))
        ours, theirs = (
            np.cov(scipy.linalg.solve_triangular(root, np.hstack(found), lower=True)).reshape(
                2 * (len(names),)
            )
            for found in scores
        )
        values, vectors = np.linalg.eigh(theirs)
        half = root @ (vectors / np.sqrt(values)) @ vectors.T
        return half @ ours @ half.T

    def _richer(self, model, points):
        """Return a function, normal numbers to draws of the observations, in Vecchia's order."""
        if len(self.observations) <= EXACT_DRAWS_LOCATIONS:
            order = self._passes.tree.order[self._passes.graph.sequence]
            inputs = self.observations.inputs[order]
            sigma = covariance_matrix(model, inputs, self.observations.metric)
            try:
                # the upper triangle is not written
                lower = scipy.linalg.cholesky(sigma, lower=True, check_finite=False)
            except np.linalg.LinAlgError:
                # the conditional distributions may still have one
                pass
            else:
                back = np.argsort(order)
                return lambda white: (lower @ white[order])[back]
        neighbours = max(LEAST_DRAWS_NEIGHBOURS, DRAWS_NEIGHBOURS_FACTOR * self.method.neighbours)
        richer = LocalPasses(self.observations.inputs, self._ordering, neighbours, points)
        return VecchiaFactor(richer.graph, *richer.weights(model)).multiply

    def _scores(self, model, names, passes, draws):
        """Return the scores of simulated data (n, b) up to constants, (k, b)."""
        z, trend = draws[passes.tree.order].T, self._columns[self._trend]
        passes.know(np.ascontiguousarray(np.vstack((z, trend))))
        noise, b = model.noise(self.observations.inputs), len(z)
        wanted = wanted_for(model, names, noise)
        reduced = passes.reduce(model, wanted)[0]
        sums = Sums(reduced, b + len(trend), model, set(names), noise)
        # with the trend's coefficients β̂ of each draw profiled out
        beta = np.linalg.solve(sums.gram[b:, b:], sums.gram[b:, :b])
        change = np.array([sums.derivative(name)[1] for name in names])
        forms = np.einsum("kbb->kb", change[:, :b, :b])
        forms = forms - 2 * np.einsum("kpb,pb->kb", change[:, b:, :b], beta)
        return -0.5 * (forms + np.einsum("kpq,pb,qb->kb", change[:, b:, b:], beta, beta))

    def _trend_share(self, model, names):
        """tr(A⁻¹R_j'R_k) - ½tr(A⁻¹∂_jA A⁻¹∂_kA) with R_j = B⁻ᵀ∂_j(B'B)Q, by differences."""
        sums = self._reduce(model, names)
        trend = self._trend
        lower = scipy.linalg.cholesky(sums.gram[trend, trend], lower=True)
        factor = self.factorize(model)
        q = np.empty((len(self.design), len(lower)))
        q[self._passes.tree.order] = self._columns[trend].T
        roots, changes = [], []
        for name in names:
            change = self._change_of_solution(model, name, factor, q)
            root = factor.whiten_transposed(change)
            roots.append(scipy.linalg.solve_triangular(lower, root.T, lower=True))
            changes.append(
                scipy.linalg.cho_solve((lower, True), sums.derivative(name)[1][trend, trend])
            )
        return np.array(
            [
                [np.vdot(a, b) - 0.5 * np.trace(c @ d) for b, d in zip(roots, changes, strict=True)]
                for a, c in zip(roots, changes, strict=True)
            ]
        )

    def _change_of_solution(self, model, name, factor, q):
        """∂(Σ⁻¹Q), by differences of fourth order; to one side of a nugget of 0."""
        value = model.parameters()[name]
        step = 1e-3 * (abs(value) or factor.variances.min())
        stencil = {1: 8, -1: -8, 2: -1, -2: 1} if value else {0: -25, 1: 48, 2: -36, 3: 16, 4: -3}
        change = np.zeros_like(q)
        for k, weight in stencil.items():
            moved = model.replace(**{name: value + k * step})
            # a step may lead beyond a limit, where Σ still has a factor
            change += weight / (12 * step) * self._factor_of(moved).solve(q)
        return change

    @blas_threads(0)
    def factorize(self, model):
        """Return the sparse factor of the precision matrix, a `VecchiaFactor`."""
        model.check_inputs(self.observations.inputs)
        self._meet(model)
        self._check(model)
        return self._factor_of(model)

    def _factor_of(self, model):
        """Return the factor of a model with the neighbours of the last one."""
        weights, variances = self._passes.weights(model)
        try:
            return VecchiaFactor(self._passes.graph, weights, variances)
        except NotPositiveDefinite as error:
            raise self._explain(error.order, model) from None
