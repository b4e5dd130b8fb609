"""Laplace's approximation of the likelihood of responses, with dense or sparse matrices.

Values y have a density p(y | η), with η = Xβ + o + f for a Gaussian field f with covariance matrix
K, and Q = K⁻¹. At the mode f̂ of p(y | η) N(f; 0, K), with W = -∂² log p/∂η², which may be negative,

    ℓ = Σ log p(y | η̂) - ½ f̂'Qf̂ + ½ log|Q| - ½ log|Q + W|

With S = (Q + W)⁻¹, the gradient w of log|Q + W| by W, which is diag(S), g = ∂ log p/∂η = Qf̂, the
third derivatives t of log p, s = ½ w∘t and x = Ss, the derivatives of ℓ are

    by a parameter of Q    -½ f̂'∂Q f̂ - x'∂Q f̂ + ½ ∂log|Q| - ½ ∂log|Q + W| for a fixed W
    by β                   X'(g + s - Wx)
    by one of p            Σ ∂log p + ½ w'∂(∂²log p/∂η²) + x'∂g

because f̂ moves with all of them (Rasmussen and Williams 2006, sections 3.4 and 5.5.1). Vecchia's
approximation gives Q, and the incomplete factor P takes the place of Q + W in the log-determinant
(Zilber and Katzfuss 2021, Comput. Stat. Data Anal. 153:107081): ℓ is then also a smooth function,
with these derivatives, where w and the last term are those of log|PP'|.

Values at one place share the field there, if the model has no nugget: sums over them take the place
of g, W, t and s.

The mode is found by Newton's method, with solves by conjugate gradients and P for Vecchia's
approximation. Where Q + W is not positive definite, negative entries of W count as 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy

from ..covariance.ordering import order_points
from ..covariance.sums import derivative_sums
from ..errors import NotPositiveDefinite
from ..runtime.devices import Device
from ..vecchia.blocks import Blocks, Sums, wanted_for
from ..vecchia.factor import Graph
from .factors import dense_factor, explain
from .replicates import Groups

if TYPE_CHECKING:
    from .._typing import Floats, Sequence
    from ..covariance.base import Covariance
    from ..covariance.responses import Data, Response
    from ..data.observations import Observations

MOST_STEPS, MOST_HALVINGS = 200, 40
"""Most steps to a mode, and most halvings of one step."""

NEAR_MODE, MODE_TOLERANCE = 1e-8, 1e-24
"""Predicted changes of the objective, relative to it. Below the first, rounding hides the change,
and full Newton steps are taken; below the second, the mode is found."""

COEFFICIENT_TOLERANCE, LEAST_INFORMATION = 1e-12, 1e-12
"""Predicted change of ℓ below which steps of the coefficients end; smallest eigenvalue of their
information, relative to the largest, for which they are determined."""

LEAST_SHORTENING, GROWTH_OF_STEPS, SECANT_RATIOS = 1e-3, 3.0, (0.05, 1e5)
"""Of steps of the coefficients: by what one is shortened at most at a time; how many times as long
the next one is at most; the curvatures, relative to the expected ones, that are used."""

MOST_ITERATIONS, SOLVE_TOLERANCE, FIRST_TOLERANCE = 1000, 1e-12, 1e-3
"""Of conjugate gradients: iterations, the reduction of the residual, and that of first steps."""

INFORMATION_TOLERANCE = 1e-6
"""Reduction of the residual for the information on the coefficients."""

KEPT_CHANGE = 0.1
"""Largest change of W, relative to its largest entry, for which a preconditioner is kept."""

LEAST_WEIGHT = 1e-6
"""Least weight of a value in an information, in units of the largest one."""

MOST_EXACT, LEAST_VECTORS, MOST_VECTORS = 3000, 16, 640
"""Locations up to which log|Q + W| is exact; fewest and most random vectors of its estimate.

The number of vectors for the same standard error is proportional to n; with the largest number the
error grows with √n, and the time with n."""

MOST_LANCZOS_STEPS, LANCZOS_TOLERANCE = 100, 1e-6
"""Steps of Lanczos' method; it ends where a step changes the trace by less than this times √n."""


@dataclass(frozen=True)
class LaplaceDerivatives:
    """ℓ and its derivatives.

    Attributes
    ----------
    log_likelihood : float
    parameters : dict of str to float
        Derivatives by parameters of the field and of the response.
    coefficients : (p,) array
        Those by β.
    """

    log_likelihood: float
    parameters: dict[str, float]
    coefficients: Floats


class Laplace:
    """Base class of Laplace's approximation for one data set.

    Parameters
    ----------
    observations : Observations
        Only their locations are used.
    data : Data
        The values of the response.
    design : (n, p) array
        X; p may be 0.
    offset : (n,) array or None
        o, on the scale of the link.
    """

    def __init__(
        self,
        observations: Observations,
        data: Data,
        design: Floats | None = None,
        offset: Floats | None = None,
    ):
        n = len(observations)
        self.observations, self.data = observations, data
        self.design = np.zeros((n, 0)) if design is None else design
        self.offset = np.zeros(n) if offset is None else offset
        self._last, self._first = None, observations.inputs.first_rows()
        self._known = {}
        # the last model, and what `_prior` returned for it
        self._prepared_for = self._of_model = None
        # of neighbours that depend on the model; see `Covariance.neighbour_key`
        self.key = None

    def log_likelihood(
        self, model: Covariance, response: Response, coefficients: Floats = ()
    ) -> float:
        """Return Laplace's approximation of ℓ.

        Raises `NotPositiveDefinite` where a matrix has no factor, or the field no mode.
        """
        return self.mode(model, response, coefficients).log_likelihood

    def mode(self, model, response, coefficients=()):
        """Return the mode of the field and ℓ; the search starts at the last mode."""
        places, *about = self._places(model)
        if self._prepared_for != (model, self.key):
            self._of_model = None
            self._of_model = self._prior(model, places, *about)
            self._prepared_for = model, self.key
        if self._last is not None and len(self._last) != len(places):
            self._last = None
        return self._mode(self._of_model, response, self._fixed(coefficients))

    def _places(self, model):
        """Return what `_prepared` makes of the places of a model's field.

        They are `Groups`: rows without noise at one location share its field.
        """
        inputs = self.observations.inputs
        bare = model.noise(inputs).unshared == 0
        known = bare.tobytes(), self.key
        if known not in self._known:
            # by rows, and by first rows where they share the field
            keys = np.where(bare, self._first, np.arange(len(inputs)))
            _, first, of = np.unique(keys, return_index=True, return_inverse=True)
            groups = Groups(
                inputs, first, of.reshape(-1), np.bincount(of.reshape(-1)).astype(float)
            )
            self._known[known] = self._prepared(groups, model)
        return self._known[known]

    def _prepared(self, places, model):
        """Return the places in the order of the factors, and what else `_prior` needs of them."""
        return (places,)

    def _prior(self, model, places, *about):
        """Return what `_mode` needs of a model."""
        raise NotImplementedError

    def _mode(self, prior, response, fixed):
        """Return the mode, with η without the field."""
        raise NotImplementedError

    def derivatives(
        self,
        model: Covariance,
        response: Response,
        coefficients: Floats = (),
        names: Sequence[str] | None = None,
    ) -> LaplaceDerivatives:
        """Return ℓ and its derivatives; `names` are the field's parameters, all if not given."""
        names = tuple(model.parameters() if names is None else names)
        return self._at(model, response, coefficients).derivatives(names)

    def _at(self, model, response, coefficients):
        """Return the `_Slopes` at the mode."""
        mode = self.mode(model, response, coefficients)
        eta, own = self._fixed(coefficients) + mode.eta, tuple(response.parameters())
        return _Slopes(mode, response.derivatives(self.data, eta, own), self.design)

    def information(
        self,
        model: Covariance,
        response: Response,
        coefficients: Floats,
        names: Sequence[str],
    ) -> Floats:
        """Return an information for scoring by parameters of field and response, (k, k).

        For the field's parameters it is that of Gaussian values with error variances 1/W, for the
        response's the sum of products of the scores of the values.
        """
        own = response.parameters()
        mode = self.mode(model, response, coefficients)
        eta = self._fixed(coefficients) + mode.eta
        slopes = response.derivatives(self.data, eta, tuple(own))
        of_field = tuple(name for name in names if name not in own)
        g, second = (mode.places.sums(each) for each in slopes.eta[:2])
        result = np.zeros((len(names),) * 2)
        at = [k for k, name in enumerate(names) if name not in own]
        result[np.ix_(at, at)] = mode.information(of_field, g, second)
        at = [k for k, name in enumerate(names) if name in own]
        scores = np.array([slopes.parameters[names[k]][0] for k in at]).reshape(len(at), len(eta))
        result[np.ix_(at, at)] = scores @ scores.T
        return result

    def at_best_coefficients(
        self,
        model: Covariance,
        response: Response,
        start: Floats | None = None,
        names: Sequence[str] | None = None,
    ) -> tuple[Floats, Floats, LaplaceDerivatives]:
        """Return the β with the largest ℓ, its information, (p, p), and `derivatives` there.

        The information is X'(W - WSW)X: minus the Hessian, without changes of W.
        """
        p = self.design.shape[1]
        best = np.zeros(p) if start is None else np.array(start, dtype=float)
        names = tuple(model.parameters() if names is None else names)
        found = self._at(model, response, best)
        information, along = found.information() if p else (np.zeros((0, 0)), None)
        curved, secants, reach = information, [], np.inf
        for _ in range(MOST_STEPS if p else 0):
            values = np.linalg.eigvalsh(information)
            if not values[0] > LEAST_INFORMATION * values[-1]:
                raise NotPositiveDefinite(
                    "the values do not determine the coefficients of the trend."
                )
            step = np.linalg.solve(curved, found.by_coefficients)
            promise, length = found.by_coefficients @ step, np.sqrt(step @ information @ step)
            size = 1.0 if length <= reach else reach / length
            rounding = np.finfo(float).eps * abs(found.mode.log_likelihood)
            if promise <= max(COEFFICIENT_TOLERANCE, rounding):
                return best, information, found.derivatives(names)
            field = self._last
            for _ in range(MOST_HALVINGS):
                # the field moves with the coefficients
                self._last = field - along @ (size * step)
                trial = self._at(model, response, best + size * step)
                if trial.mode.log_likelihood >= found.mode.log_likelihood:
                    break
                # where the slope along the step would vanish, if it were linear
                rise, end = promise, trial.by_coefficients @ step
                size *= min(max(rise / (rise - end), LEAST_SHORTENING), 0.5) if end < 0 else 0.5
            else:
                # rounding hides what is left to gain
                if promise <= NEAR_MODE * max(1.0, abs(found.mode.log_likelihood)):
                    return best, information, found.derivatives(names)
                break
            reach = np.inf if size == 1.0 else GROWTH_OF_STEPS * size * length
            moved, change = size * step, found.by_coefficients - trial.by_coefficients
            best, found = best + moved, trial
            information, along = found.information()
            # W changes with the coefficients too
            secants, curved = [*secants, (moved, change)][-p:], information
            for secant in secants:
                curved = _with_secant(curved, *secant)
        if p:
            raise NotPositiveDefinite("the search for the trend's coefficients did not converge.")
        return best, information, found.derivatives(names)

    def _fixed(self, coefficients):
        """Return η without the field."""
        return self.offset + self.design @ np.asarray(coefficients, dtype=float)


def _with_secant(information, step, change):
    """Return an information that agrees with a change of the slope (BFGS update)."""
    expected, curvature = step @ information @ step, change @ step
    low, high = SECANT_RATIOS
    if not low * expected < curvature < high * expected:
        return information
    along = information @ step
    found = information + np.outer(change, change) / curvature
    return found - np.outer(along, along) / expected


class _Slopes:
    """Derivatives at a mode, of which those by the coefficients come first."""

    def __init__(self, mode, slopes, design):
        self.mode, self._slopes, self._design = mode, slopes, design
        places, (g, second, third) = mode.places, slopes.eta
        self._w = mode.by_curvature()[places.of]
        self._pull = 0.5 * self._w * third
        self._x = mode.solve(places.sums(self._pull))
        self.by_coefficients = design.T @ (g + self._pull + second * self._x[places.of])

    def derivatives(self, names):
        """Return the `LaplaceDerivatives`."""
        mode, slopes, x = self.mode, self._slopes, self._x[self.mode.places.of]
        g, second, _ = slopes.eta
        summed = (mode.places.sums(each) for each in (g, second, self._pull))
        found = mode.by_field(names, *summed, self._x) if names else {}
        for name, (direct, of_g, of_second) in slopes.parameters.items():
            found[name] = float((direct + 0.5 * self._w * of_second + x * of_g).sum())
        return LaplaceDerivatives(mode.log_likelihood, found, self.by_coefficients)

    def information(self):
        """Return the information on β, X'(W - WSW)X, and SWX at the places, (u, p)."""
        x, places = self._design, self.mode.places
        weighted = -self._slopes.eta[1][:, None] * x
        summed = places.sums(weighted)
        along = np.column_stack([self.mode.solve(y, INFORMATION_TOLERANCE) for y in summed.T])
        inner = summed.T @ along
        return x.T @ weighted - (inner + inner.T) / 2, along


# Dense matrices: K = LL', f = Lu, and M = I + L'WL


class DenseLaplace(Laplace):
    """Laplace's approximation with dense matrices of the order of n."""

    def _prior(self, model, places):
        """See `Laplace._prior`."""
        inputs = places.inputs[places.first]
        try:
            factor = dense_factor(model, inputs, Device("cpu"))
        except NotPositiveDefinite as error:
            raise explain(error, inputs, model) from None
        return model, places, np.tril(factor.lower)

    def _mode(self, prior, response, fixed):
        """See `Laplace._mode`."""
        (model, places, lower), data = prior, self.data
        start = np.zeros(len(lower))
        if self._last is not None:
            start = scipy.linalg.solve_triangular(lower, self._last, lower=True)

        def at(u):
            slopes = response.derivatives(data, fixed + (lower @ u)[places.of])
            return slopes.value.sum() - 0.5 * u @ u, slopes

        def newton(u, slopes, tolerance, least):
            g, second = map(places.sums, slopes.eta[:2])
            root, exact = _root(lower, -second), True
            if root is None:
                root, exact = _root(lower, np.maximum(-second, 0.0)), False
            if root is None:
                raise NotPositiveDefinite("the curvatures of this response overflow FP64.")
            slope = lower.T @ g - u
            step = scipy.linalg.cho_solve((root, True), slope)
            return step, slope @ step, exact, root

        u, value, slopes, root = ascend(start, at, newton)
        if root is None:
            root = _root(lower, -places.sums(slopes.eta[1]))
            if root is None:
                raise NotPositiveDefinite("the mode of the field is a saddle point.")
        self._last = lower @ u
        value -= np.log(root.diagonal()).sum()
        return _DenseMode(float(value), self._last, lower, root, model, places)


def _root(lower, w):
    """Return the lower Cholesky factor of I + L'WL, None if it has none."""
    m = lower.T @ (w[:, None] * lower)
    m[np.diag_indices_from(m)] += 1.0
    if not np.isfinite(m).all():
        return None
    try:
        return scipy.linalg.cholesky(m, lower=True)
    except np.linalg.LinAlgError:
        return None


class _DenseMode:
    """The mode of the field, with S = LM⁻¹L'."""

    def __init__(self, value, field, lower, root, model, places):
        self.log_likelihood, self.field, self.places, self._model = value, field, places, model
        self.eta = field[places.of]
        self._half = scipy.linalg.solve_triangular(root, lower.T, lower=True)

    def by_curvature(self):
        """Return the gradient of log|Q + W| by W."""
        return np.einsum("ij,ij->j", self._half, self._half)

    def solve(self, y, tolerance=SOLVE_TOLERANCE):
        """Return (Q + W)⁻¹y."""
        return self._half.T @ (self._half @ y)

    def by_field(self, names, g, second, pull, x):
        """Return the derivatives by parameters of the field, from sums at the places.

        ½ g'∂K g - ½ tr(R ∂K) + v'∂K g, with R = W - WSW and v = s - Wx.
        """
        weights = np.asfortranarray(-second[:, None] * (self._half.T @ self._half) * second)
        weights[np.diag_indices_from(weights)] -= second
        nothing = np.zeros((len(g), 0))
        inputs = self.places.inputs[self.places.first]
        sums = derivative_sums(self._model, inputs, names, weights, g, nothing)
        found = 0.5 * sums.weighted + (pull + second * x) @ sums.products
        return dict(zip(names, found.tolist(), strict=True))

    def information(self, names, g, second):
        """Return the average information ½ g'∂K R ∂K g, (k, k), with R = W - WSW."""
        weights = np.asfortranarray(-second[:, None] * (self._half.T @ self._half) * second)
        weights[np.diag_indices_from(weights)] -= second
        nothing = np.zeros((len(g), 0))
        inputs = self.places.inputs[self.places.first]
        sums = derivative_sums(self._model, inputs, names, weights, g, nothing)
        return 0.5 * sums.products.T @ weights @ sums.products

    def correction(self, error=0.0, seed=0):
        """Return (0, 0): the log-determinant is exact."""
        return 0.0, 0.0


# Vecchia's approximation: Q = UU'


class VecchiaLaplace(Laplace):
    """Laplace's approximation with Vecchia's approximation of the field.

    Parameters
    ----------
    neighbours : int
    ordering : str
        See `Vecchia`. For the others see `Laplace`.
    """

    def __init__(
        self, observations, data, design=None, offset=None, neighbours=20, ordering="maximin"
    ):
        super().__init__(observations, data, design, offset)
        self._graph_options = ordering, neighbours

    def _prepared(self, places, model):
        """Return the places in the order of elimination, and the pattern of U on them."""
        # which needs numba
        from ..vecchia.incomplete import Pattern

        inputs, (ordering, neighbours) = places.inputs[places.first], self._graph_options
        points = inputs.points
        if inputs.variable is not None:
            # the axes of the variables are for neighbours only
            ordering = order_points(points, ordering)
        if self.key is not None:
            points = model.neighbour_points(inputs, self.key)
        graph = Graph.of(points, ordering, neighbours)
        order, pattern = Pattern.eliminated(graph)
        return places.sorted(graph.tree.order[order]), pattern

    def _prior(self, model, places, pattern):
        """See `Laplace._prior`."""
        try:
            return _Prior(model, places, pattern)
        except NotPositiveDefinite as error:
            row = int(places.first[error.order])
            raise NotPositiveDefinite(
                f"the covariance matrix of row {row + 1} and its neighbours is not positive "
                "definite in FP64: give the model a nugget, a shorter range or a smaller "
                "smoothness.",
                row,
            ) from None

    def _mode(self, prior, response, fixed):
        """See `Laplace._mode`."""
        data, places = self.data, prior.places
        start = np.zeros(len(places)) if self._last is None else self._last

        def at(f):
            slopes = response.derivatives(data, fixed + f[places.of])
            product = prior.times(f)
            return slopes.value.sum() - 0.5 * f @ product, (slopes, product)

        def newton(f, known, tolerance, least):
            slopes, product = known
            g, second = map(places.sums, slopes.eta[:2])
            slope, positive, exact = g - product, np.maximum(-second, 0.0), True
            factor = prior.near(positive)
            step = prior.solve(factor, -second, slope, tolerance, least)
            if step is None:
                step, exact = prior.solve(factor, positive, slope, tolerance, least), False
            return step, slope @ step, exact, None

        f, value, (slopes, _), _ = ascend(start, at, newton)
        self._last, w = f, -places.sums(slopes.eta[1])
        factor = prior.plus(w)
        value += 0.5 * (prior.log_determinant() - factor.log_determinant())
        return _SparseMode(float(value), f, prior, factor, w)


class _Prior:
    """Q = UU' of a model, on the pattern of places."""

    def __init__(self, model, places, pattern):
        self.places, self.pattern = places, pattern
        self.blocks = Blocks(model, places.inputs[places.first])
        weights, variances = self.blocks.weights(pattern.neighbours)
        bad = ~(variances > 0)
        if bad.any():
            raise NotPositiveDefinite("a conditional variance is not positive", int(bad.argmax()))
        self._log_determinant = -float(np.log(variances).sum())
        self.columns = np.empty((len(variances), weights.shape[1] + 1))
        self.columns[:, -1] = 1.0 / np.sqrt(variances)
        np.multiply(weights, -self.columns[:, -1:], out=self.columns[:, :-1])
        self.columns[:, :-1][pattern.neighbours < 0] = 0.0
        self._product = pattern.product(self.columns)
        # the last W of `near`, and its factor
        self._kept = None, None

    def log_determinant(self):
        """Return log|Q|."""
        return self._log_determinant

    def times(self, f):
        """Return Qf."""
        return self.pattern.times(self.columns, f)

    def plus(self, w):
        """Return the incomplete factor of Q + W."""
        from ..vecchia.incomplete import IncompleteFactor

        return IncompleteFactor(self.pattern, self._product, w)

    def near(self, w):
        """Return the incomplete factor of Q + V for a V near W, to precondition solves."""
        known = self._kept[0]
        if known is None or np.abs(w - known).max() > KEPT_CHANGE * max(w.max(), known.max()):
            self._kept = w, self.plus(w)
        return self._kept[1]

    def solve(self, factor, w, y, tolerance=SOLVE_TOLERANCE, least=0.0):
        """Return (Q + W)⁻¹y by conjugate gradients; None if the matrix is not positive definite.

        They end where r'P⁻ᵀP⁻¹r of the residual r is reduced by the square of `tolerance`, or is
        `least`.
        """
        x, residual = np.zeros_like(y), y.copy()
        z = factor.solve(residual)
        p, size = z.copy(), residual @ z
        wanted = max(size * tolerance**2, least)
        for _ in range(MOST_ITERATIONS):
            if size <= wanted:
                return x
            q = self.times(p) + w * p
            curvature = p @ q
            if not curvature > 0.0:
                return None
            x += size / curvature * p
            residual -= size / curvature * q
            z = factor.solve(residual)
            size, last = residual @ z, size
            p = z + size / last * p
        raise NotPositiveDefinite(
            f"conjugate gradients did not converge in {MOST_ITERATIONS} iterations: use more "
            "neighbours."
        )

    def exact_log_determinant(self, w):
        """Return log|Q + W| by a sparse factor; None if the matrix is not positive definite."""
        u = self.pattern.matrix(self.columns)
        matrix = (u @ u.T + scipy.sparse.diags_array(w)).tocsc()
        options = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0}
        pivots = scipy.sparse.linalg.splu(
            matrix, **options, options={"SymmetricMode": True}
        ).U.diagonal()
        return float(np.log(pivots).sum()) if pivots.min() > 0.0 else None

    def traces_of_log(self, factor, w, z):
        """Return z'log(A)z for A = P⁻¹(Q + W)P⁻ᵀ and eight vectors z, (n, 8), by Lanczos' method.

        Without reorthogonalization: quadrature does not need it.
        """
        squares = np.einsum("ij,ij->j", z, z)
        q, known, ended = z / np.sqrt(squares), np.inf, np.zeros(z.shape[1], dtype=bool)
        diagonals, offs, before = [], [], None
        for _ in range(MOST_LANCZOS_STEPS):
            y = factor.solve_transposed(q)
            y = factor.half_solve(self.times(y) + w[:, None] * y)
            if before is not None:
                y -= offs[-1] * before
            # where the method has ended, q is 0
            diagonals.append(np.where(ended, 1.0, np.einsum("ij,ij->j", q, y)))
            y -= diagonals[-1] * q
            values, turned = np.linalg.eigh(_tridiagonal(diagonals, offs))
            if not values.min() > 0.0:
                raise NotPositiveDefinite("the mode of the field is a saddle point.")
            found = squares * (turned[:, 0] ** 2 * np.log(values)).sum(axis=1)
            off = np.sqrt(np.einsum("ij,ij->j", y, y))
            if np.all(np.abs(found - known) <= LANCZOS_TOLERANCE * np.sqrt(squares)):
                break
            known, before, ended = found, q, ended | (off <= 1e-12)
            q = y / np.where(ended, np.inf, off)
            offs.append(np.where(ended, 0.0, off))
        return found


def _tridiagonal(diagonals, offs):
    """Return symmetric matrices, (8, k, k), from diagonals (k, 8) and those beside, (k - 1, 8)."""
    k = np.arange(len(diagonals))
    out = np.zeros((len(diagonals[0]), len(k), len(k)))
    out[:, k, k] = np.transpose(diagonals)
    if offs:
        out[:, k[1:], k[:-1]] = out[:, k[:-1], k[1:]] = np.transpose(offs)
    return out


class _SparseMode:
    """The mode of the field, with the incomplete factor P in place of Q + W."""

    def __init__(self, value, field, prior, factor, w):
        self.log_likelihood, self.field, self.places = value, field, prior.places
        self.eta = field[prior.places.of]
        self._prior, self._factor, self._w = prior, factor, w

    @cached_property
    def _gradient(self):
        """The gradient of log|PP'| by Q + W on the pattern."""
        return self._factor.gradient()

    def correction(self, error=0.025, seed=0):
        """Return the change of ℓ by log|Q + W| in place of log|PP'|, and its standard error.

        It is exact, with an error of 0, for up to `MOST_EXACT` locations. Otherwise by Lanczos
        quadrature of tr log P⁻¹(Q + W)P⁻ᵀ with random vectors of ±1 (Ubaru, Chen and Saad 2017,
        SIAM J. Matrix Anal. Appl. 38:1075), as many as the standard error `error` needs, but at
        most `MOST_VECTORS`. Models with the same seed have the same vectors.
        """
        prior, n, random, found = self._prior, len(self.field), np.random.default_rng(seed), []
        if n <= MOST_EXACT:
            exact = prior.exact_log_determinant(self._w)
            if exact is None:
                raise NotPositiveDefinite("the mode of the field is a saddle point.")
            return 0.5 * (self._factor.log_determinant() - exact), 0.0
        while True:
            z = 2.0 * random.integers(0, 2, (n, 8)) - 1.0
            found.extend(prior.traces_of_log(self._factor, self._w, z))
            reached = 0.5 * float(np.std(found, ddof=1) / np.sqrt(len(found)))
            if len(found) >= LEAST_VECTORS and (reached <= error or len(found) >= MOST_VECTORS):
                return -0.5 * float(np.mean(found)), reached

    def by_curvature(self):
        """Return the gradient of log|PP'| by W."""
        return self._gradient[:, -1]

    def solve(self, y, tolerance=SOLVE_TOLERANCE):
        """Return (Q + W)⁻¹y."""
        x = self._prior.solve(self._factor, self._w, y, tolerance)
        if x is None:
            raise NotPositiveDefinite("the mode of the field is a saddle point.")
        return x

    def by_field(self, names, g, second, pull, x):
        """Return the derivatives by parameters of the field, from one pass over the blocks."""
        prior = self._prior
        local = prior.pattern.pulled(prior.columns, self._gradient)
        model, noise = prior.blocks.model, prior.blocks.noise
        both, wanted = np.stack((self.field, x)), wanted_for(model, names, noise)
        out, _ = prior.blocks.reduce(prior.pattern.neighbours, both, wanted, local)
        sums, found = Sums(out, 3, model, set(names), noise), {}
        for name in names:
            # log|K|; twice f'Qf and x'Qf; twice the pull on U
            of_log, of_forms = sums.derivative(name)
            change = 0.5 * of_forms[0, 0] + of_forms[0, 1] + 0.5 * of_log + 0.25 * of_forms[2, 2]
            found[name] = -float(change)
        return found

    def information(self, names, g, second):
        """Return the expected information, (k, k), of Gaussian values with error variances 1/W."""
        prior, w = self._prior, np.maximum(-second, 0.0)
        least = LEAST_WEIGHT * max(float(w.max()), 1e-300)
        inputs = replace(self.places.inputs[self.places.first], error_variance=1 / (w + least))
        blocks, model = Blocks(prior.blocks.model, inputs), prior.blocks.model
        wanted = wanted_for(model, names, blocks.noise)
        out, failed = blocks.reduce(prior.pattern.neighbours, self.field[None], wanted)
        if failed is not None:
            raise NotPositiveDefinite("a conditional variance is not positive", int(failed))
        return Sums(out, 1, model, set(names), blocks.noise).information(names)


def ascend(start, at, newton):
    """Return a maximum x by Newton's method, the value, and what `at` and `newton` know of it.

    ``at(x)`` returns the objective and anything else. ``newton(x, known, tolerance, least)``, where
    `known` is the latter, returns the step, the change that it predicts, whether the step is
    Newton's and not a safe one in its place, and anything else. Its solves may have the relative
    error `tolerance`, or miss `least` of the predicted change. The last of the results is None for
    a maximum at which `newton` was not called.
    """

    def tried(x):
        with np.errstate(over="ignore", invalid="ignore"):
            value, known = at(x)
        return (value if np.isfinite(value) else -np.inf), known

    x, last, before, tolerance = start, np.inf, None, FIRST_TOLERANCE
    value, known = tried(x)
    if not np.isfinite(value):
        x = np.zeros_like(start)
        value, known = tried(x)
    for _ in range(MOST_STEPS):
        scale = max(1.0, abs(value))
        enough = MODE_TOLERANCE * scale
        step, promise, exact, found = newton(x, known, tolerance, 0.01 * enough)
        if exact and promise <= NEAR_MODE * scale:
            # convergence ends at rounding
            if promise <= enough or promise >= last:
                return x, value, known, found
            # it is quadratic, with the constant of the last step: the next promise
            constant = 1.0 if before is None else promise / before**2
            coming = promise * max(constant * promise, tolerance**2)
            x, last, before, tolerance = x + step, promise, promise, SOLVE_TOLERANCE
            value, known = tried(x)
            if coming <= 0.01 * enough:
                return x, value, known, None
            continue
        tolerance = min(tolerance, max(SOLVE_TOLERANCE, 0.1 * promise / scale))
        size = 1.0
        for _ in range(MOST_HALVINGS):
            trial, known_there = tried(x + size * step)
            if trial >= value + 1e-4 * size * promise:
                break
            size /= 2
        else:
            break
        x, value, known = x + size * step, trial, known_there
        before = promise if exact and size == 1.0 else None
    raise NotPositiveDefinite("no mode of the field was found for this response.")
