"""Searches reach variances of noise of 0, and nugget covariance matrices of reduced rank."""

from dataclasses import replace

import numpy as np
import pytest

import geomxp as gx
from geomxp.estimation import search as scoring
from geomxp.estimation.coordinates import Coordinates, SpectralCoordinates
from geomxp.likelihood.exact import ExactEvaluator
from geomxp.testing import places

TAU = Coordinates(("variance", "nugget"), gx.Matern(1.0, 1.0, 0.5), vanishing=("nugget",))


def ascend_quadratic(information, top, start, fails=lambda nugget: False):
    """Ascend ℓ = -½(x - top)'I(x - top) with x = (log σ², τ²) from a pair (σ², τ²).

    Returns the end, whether it converged, and the nuggets that were visited.
    """
    visited = []

    def evaluate(model, close):
        visited.append(model.nugget)
        if fails(model.nugget):
            return scoring.Point(model, -np.inf)
        units = np.array([1.0, TAU.jacobian(model)[1]])
        x = np.array([np.log(model.variance), model.nugget]) - top
        score = -(information @ x) * units
        value = float(-0.5 * x @ information @ x)
        return scoring.Point(model, value, score, information * np.outer(units, units))

    start = gx.Matern(start[0], 1.0, 0.5, start[1])
    best, converged = scoring.ascend(
        *(evaluate, lambda model: model, TAU, start), tolerance=1e-10, evaluations=60
    )
    return best, converged, visited


INFORMATION = np.array([[30.0, 12.0], [12.0, 900.0]])


def test_a_variance_reaches_0_in_few_steps_and_the_others_their_maximum_there():
    top = np.array([np.log(2.0), -0.05])
    best, converged, visited = ascend_quadratic(INFORMATION, top, (1.5, 0.1))
    assert converged
    assert best.model.nugget == 0
    # of a quadratic function, at τ² = 0
    expected = top[0] - 12.0 / 30.0 * 0.05
    assert np.log(best.model.variance) == pytest.approx(expected, abs=1e-6)
    # a large variance falls to a twentieth at a time, since a longer step may pass a maximum
    np.testing.assert_allclose(visited[1:3], [0.05 * 0.1, 0.05**2 * 0.1])
    assert visited[3] == 0
    assert len(visited) <= 5


def test_a_variance_leaves_0_where_the_likelihood_rises():
    top = np.array([np.log(2.0), 0.3])
    best, converged, visited = ascend_quadratic(INFORMATION, top, (1.5, 0.0))
    assert converged
    assert best.model.nugget == pytest.approx(0.3, rel=1e-4)
    assert len(visited) <= 4


def test_a_variance_that_raises_the_likelihood_by_too_little_is_0():
    rise = 0.5 * scoring.FLAT_RISE
    top = np.array([np.log(2.0), np.sqrt(2 * rise / 900.0)])
    for start in (0.0, top[1]):
        best, converged, _ = ascend_quadratic(np.diag([30.0, 900.0]), top, (2.0, start))
        assert converged
        assert best.model.nugget == 0


def test_a_failure_at_0_does_not_end_a_search_above():
    top = np.array([np.log(2.0), 1e-5])
    best, converged, visited = ascend_quadratic(
        np.diag([30.0, 1e13]), top, (2.0, 0.5), fails=lambda nugget: nugget < 1e-9
    )
    assert converged
    assert best.model.nugget == pytest.approx(1e-5, rel=1e-3)
    # a maximum at a negative variance: the search goes on towards 0
    top = np.array([np.log(2.0), -1.0])
    best, _, visited = ascend_quadratic(
        np.diag([30.0, 900.0]), top, (2.0, 0.01), fails=lambda nugget: nugget < 1e-9
    )
    assert 1e-9 <= best.model.nugget < 1e-7
    assert 0 in visited


@pytest.mark.filterwarnings("ignore::geomxp.GeomxpWarning")
def test_a_smooth_field_without_noise_is_fitted():
    # without a nugget Σ has no Cholesky factor at these ranges
    where = places(100, seed=2)
    values = np.sin(3 * where[:, 0]) + np.cos(2 * where[:, 1])
    fit = gx.fit(gx.Observations(where, values), family="gaussian", progress=False,
                 raise_on_failure=False)  # fmt: skip
    nugget = fit.model.nugget / fit.model.variance
    assert nugget < 1e-8
    known = gx.fit(gx.Observations(where, values), family="gaussian", progress=False,
                   fixed={"nugget": 1e-6 * fit.model.variance}, raise_on_failure=False)  # fmt: skip
    assert fit.log_likelihood > known.log_likelihood


@pytest.mark.parametrize("seed", range(3))
def test_a_nugget_of_0_is_a_maximum(seed):
    where = places(120, seed=seed)
    values = gx.simulate(gx.Matern(1.0, 0.15, 0.5, 0.0), where, seed=seed)[0]
    seen = gx.Observations(where, values)
    fit = gx.fit(seen, fixed={"smoothness": 0.5}, progress=False)
    evaluator = fit.method.prepare(seen, np.ones((120, 1)))
    slope = evaluator.gradient(fit.model, ("nugget",))["nugget"]
    if fit.model.nugget == 0:
        assert slope * fit.model.variance < 1.0
    else:
        bare = gx.fit(seen, fixed={"smoothness": 0.5, "nugget": 0.0}, progress=False)
        assert fit.log_likelihood > bare.log_likelihood
        assert slope * fit.model.nugget == pytest.approx(0.0, abs=1e-2)


def test_a_maximum_with_a_small_nugget_takes_few_factorizations(monkeypatch):
    # a nugget of 2 % of the variance; the grid of starts takes most of them
    count, factorize = [], ExactEvaluator.factorize

    def counted(self, *arguments):
        count.append(arguments)
        return factorize(self, *arguments)

    monkeypatch.setattr(ExactEvaluator, "factorize", counted)
    fit = gx.fit(gx.datasets.load("meuse"), fixed={"smoothness": 0.5}, progress=False)
    assert fit.log_likelihood == pytest.approx(-99.128778, abs=1e-6)
    assert fit.evaluations <= 8
    assert len(count) <= 85


TWO = gx.ParsimoniousMatern((1.0, 2.0), 0.2, (0.5, 1.0), 0.4, (0.3, 0.4), nugget_covariance=0.25)
THREE = gx.ParsimoniousMatern(
    *((1.0, 2.0, 1.5), 0.2, (0.5, 1.0, 0.5), (0.4, 0.2, 0.1), (0.3, 0.4, 0.2)),
    nugget_covariance=(0.25, -0.1, 0.0),
)


def of_matrix(model, matrix):
    """Return the model with a covariance matrix of nuggets."""
    p = model.variables
    off = [matrix[i, j] for i in range(p) for j in range(i + 1, p)]
    return replace(model, nugget=tuple(np.diag(matrix)), nugget_covariance=tuple(off))


def of_rank_one(model, root):
    """Return the model whose nuggets are perfectly correlated."""
    return of_matrix(model, np.outer(root, root))


def spectral(model):
    """Return the coordinates of all parameters of a model, and their number."""
    names = [p.name for p in model.table]
    noise = [name for name in names if name.startswith("nugget")]
    others = Coordinates([name for name in names if name not in noise], model)
    return SpectralCoordinates(others, noise, model.variables)


MATRICES = [TWO, THREE, of_rank_one(TWO, [0.5, 0.6]), of_rank_one(THREE, [0.5, -0.6, 0.4])]


@pytest.mark.parametrize("model", MATRICES)
def test_derivatives_in_eigenvalues_are_those_of_steps(model):
    coordinates = spectral(model)
    names, slopes = coordinates.with_followers(model)
    units, h = coordinates.jacobian(model), 1e-6
    for k in range(len(coordinates.names)):
        step = np.zeros(len(units))
        step[k] = h
        high, low = (coordinates.moved(model, each).parameters() for each in (step, 0 * step))
        found = [(high[name] - low[name]) / h for name in names]
        np.testing.assert_allclose(found, slopes[:, k] * units[k], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("model", MATRICES)
def test_a_step_keeps_the_matrix_semidefinite_and_meets_its_faces(model):
    coordinates, random = spectral(model), np.random.default_rng(0)
    size, others = len(coordinates.names), len(coordinates.others.names)
    for _ in range(20):
        step = np.r_[np.zeros(others), random.standard_normal(size - others)]
        moved = coordinates.moved(model, step)
        assert np.linalg.eigvalsh(moved.nugget_correlations)[0] > -1e-12
        assert moved.valid_on("euclidean", 2)
    for k in np.flatnonzero(coordinates.shares(model) > 0):
        step = np.where(np.arange(size) == k, -1.0, 0.0)
        before, after = (
            np.linalg.matrix_rank(each.nugget_matrix, tol=1e-9)
            for each in (model, coordinates.moved(model, step))
        )
        assert after == before - 1


@pytest.mark.parametrize("model", MATRICES)
def test_the_curvature_of_steps_is_that_of_a_linear_likelihood(model):
    # ℓ = tr(GN) with G negative definite is linear in N: what curves is the step alone
    coordinates, random = spectral(model), np.random.default_rng(1)
    root = random.standard_normal((model.variables, model.variables))
    gradient = -root @ root.T

    def value(step):
        return float((gradient * coordinates.moved(model, step).nugget_matrix).sum())

    size, h = len(coordinates.names), 1e-4
    p, others, score = model.variables, len(coordinates.others.names), np.zeros(size)
    _, basis = coordinates._spectrum(model)
    units = coordinates.jacobian(model)
    for k in range(p):
        score[others + k] = units[others + k] * basis[:, k] @ gradient @ basis[:, k]
    bend = coordinates.bend(model, score)
    for k in range(others + p, size):
        step = np.where(np.arange(size) == k, h, 0.0)
        second = (value(step) - 2 * value(0 * step) + value(-step)) / h**2
        assert bend[k, k] == pytest.approx(-second, rel=1e-3, abs=1e-5)


def field(truth, n=100, seed=0):
    """Values of all variables at n places."""
    p = truth.variables
    where, kinds = np.repeat(places(n, seed=seed), p, axis=0), np.tile(np.arange(p), n)
    values = gx.simulate(truth, where, variable=kinds, seed=seed)[0]
    return gx.Observations(where, values, variable=kinds)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("truth", "seed"),
    [(of_rank_one(TWO, [0.55, -0.55]), 5), (of_rank_one(THREE, [0.5, 0.6, -0.4]), 1)],
    ids=["two variables", "three variables"],
)
def test_a_maximum_on_a_face_of_reduced_rank_is_one_among_all_matrices(truth, seed):
    seen, p = field(truth, n=120 if truth.variables == 2 else 100, seed=seed), truth.variables
    held = {f"smoothness_{k + 1}": nu for k, nu in enumerate(truth.smoothness)}
    fit = gx.fit(seen, family="parsimonious-matern", fixed=held, nugget_covariance=True,
                 progress=False)  # fmt: skip
    assert fit.outcome.good
    nuggets = fit.model.nugget_matrix
    values, vectors = np.linalg.eigh(nuggets)
    null = values < 1e-6 * values[-1]
    assert null.any()
    if p == 2:
        assert null.sum() == 1
    # ∂ℓ/∂N is negative semidefinite across the face, and 0 along it
    evaluator = fit.method.prepare(seen, np.eye(p)[seen.variable])
    names = [name for name in fit.model.parameters() if name.startswith("nugget")]
    slopes = evaluator.gradient(fit.model, names)
    gradient = np.diag([slopes[name] for name in names[:p]])
    for name in names[p:]:
        i, j = (int(digit) - 1 for digit in name[-2:])
        gradient[i, j] = gradient[j, i] = slopes[name] / 2
    across = vectors[:, null].T @ gradient @ vectors[:, null]
    assert np.linalg.eigvalsh(across)[-1] < 0.1
    along = vectors[:, ~null] * np.sqrt(values[~null])
    assert np.abs(along.T @ gradient @ along).max() < 0.05
