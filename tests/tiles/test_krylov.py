"""Iterations to full accuracy: each solves, counts, and says when it cannot."""

import numpy as np
import pytest

from geomxp.benchmarks.spectra import SPECTRA, eigenvalues, infinity_condition, spd_matrix
from geomxp.errors import InvalidInput
from geomxp.tiles.refine import PATIENCE_ITERATIONS, REFINEMENT_METHODS, Progress

N = 60


def progress_for(a, method, tolerance=1e-15, limit=500):
    norm = len(a) * np.abs(a).sum(axis=1).max()

    def view(r, x):
        return np.abs(r).max(axis=0) / norm, np.zeros(x.shape[1])

    return Progress((view,), tolerance, limit, PATIENCE_ITERATIONS[method])


@pytest.mark.parametrize("method", REFINEMENT_METHODS)
def test_with_the_exact_inverse_one_or_two_iterations_are_enough(method):
    a = spd_matrix("geometric", N, 1e3)
    b = np.random.default_rng(0).standard_normal((N, 3))
    inverse, progress = np.linalg.inv(a), progress_for(a, method)
    x = REFINEMENT_METHODS[method](lambda x: a @ x, lambda r: inverse @ r, b, progress)
    assert progress.ending == "converged"
    assert progress.iterations <= 3
    np.testing.assert_allclose(x, np.linalg.solve(a, b), rtol=1e3 * N * 2**-53, atol=1e-12)


@pytest.mark.parametrize("method", ["cg", "gmres"])
@pytest.mark.parametrize("spectrum", ["clustered", "custom-clustered"])
def test_two_different_eigenvalues_take_two_iterations_without_a_preconditioner(method, spectrum):
    a = spd_matrix(spectrum, N, 100.0)
    b = np.random.default_rng(0).standard_normal((N, 1))
    progress = progress_for(a, method, 1e-14)
    REFINEMENT_METHODS[method](lambda x: a @ x, lambda r: r.copy(), b, progress)
    assert progress.ending == "converged"
    assert progress.iterations <= 3


@pytest.mark.parametrize("method", REFINEMENT_METHODS)
def test_columns_do_not_disturb_each_other(method):
    a = spd_matrix("arithmetic", N, 50.0)
    rough = np.linalg.inv(a + 0.02 * np.eye(N))
    b = np.random.default_rng(0).standard_normal((N, 4)) * [1.0, 1e-6, 0.0, 1e3]
    together = REFINEMENT_METHODS[method](
        lambda x: a @ x, lambda r: rough @ r, b, progress_for(a, method)
    )
    np.testing.assert_allclose(together, np.linalg.solve(a, b), rtol=1e-9, atol=1e-9)
    assert not together[:, 2].any()


@pytest.mark.parametrize("method", REFINEMENT_METHODS)
def test_a_useless_preconditioner_is_given_up_aloud(method):
    a = spd_matrix("geometric", N, 1e12)
    b = np.random.default_rng(0).standard_normal((N, 1))
    progress = progress_for(a, method, 1e-30, 150)
    REFINEMENT_METHODS[method](lambda x: a @ x, lambda r: r.copy(), b, progress)
    assert progress.ending in ("stalled", "limit", "diverged")


def test_refinement_that_goes_away_is_stopped():
    a = spd_matrix("arithmetic", N, 10.0)
    b = np.random.default_rng(0).standard_normal((N, 1))
    progress = progress_for(a, "ir")
    REFINEMENT_METHODS["ir"](lambda x: a @ x, lambda r: 10.0 * r, b, progress)
    assert progress.ending == "diverged"


def test_the_limit_of_iterations_is_kept():
    a = spd_matrix("geometric", N, 1e6)
    b = np.random.default_rng(0).standard_normal((N, 1))
    for method in REFINEMENT_METHODS:
        progress = progress_for(a, method, 1e-30, 5)
        REFINEMENT_METHODS[method](lambda x: a @ x, lambda r: r.copy(), b, progress)
        assert progress.iterations <= 5
        assert progress.ending == "limit"


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("n", [1, 2, 11, 64])
def test_matrices_have_the_spectrum_that_is_asked_for(spectrum, n):
    a = spd_matrix(spectrum, n, 1e4, seed=3)
    values = eigenvalues(spectrum, n, 1e4, seed=3)
    assert (a == a.T).all()
    np.testing.assert_allclose(np.linalg.eigvalsh(a)[::-1], values, atol=40 * (n + 1) * 2**-53)
    assert values.max() <= 1.0 + 2**-52
    assert values.min() >= 1e-4 * (1 - 1e-11)


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("n", [1, 30])
def test_the_infinity_condition_is_that_of_the_matrix_and_its_inverse(spectrum, n):
    a = spd_matrix(spectrum, n, 1e3, seed=2)
    expected = np.linalg.norm(a, np.inf) * np.linalg.norm(np.linalg.inv(a), np.inf)
    assert infinity_condition(a, spectrum, 1e3, seed=2) == pytest.approx(expected, rel=1e-10)


def test_another_seed_is_another_matrix():
    assert (spd_matrix("arithmetic", 20, 10.0, 0) != spd_matrix("arithmetic", 20, 10.0, 1)).any()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("flat", 5, 10.0), "`spectrum` must be one of"),
        (("arithmetic", 0, 10.0), "must be at least 1"),
        (("arithmetic", 5, 0.5), "must be at least 1"),
    ],
)
def test_wrong_spectra_are_named(arguments, words):
    with pytest.raises(InvalidInput, match=words):
        spd_matrix(*arguments)
