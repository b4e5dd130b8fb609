import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import geomxp as gx
from geomxp.linalg import recursive
from geomxp.tiles.factor import CholeskyFactor


def known(n):
    """A matrix whose factor is known in closed form: t_ij = 2^-|i-j|."""
    i = np.arange(n)
    factor = np.tril(2.0 ** -(i[:, None] - i[None, :]).astype(float))
    return np.asfortranarray(factor @ factor.T), factor


@given(st.integers(1, 40))
def test_potrf_gives_the_known_factor(n):
    a, expected = known(n)
    a[np.triu_indices(n, 1)] = np.nan  # the upper triangle is never read
    lower = np.tril(recursive.potrf(a))
    np.testing.assert_allclose(lower, expected, rtol=0, atol=2 * (n + 1) * 2.0**-53)


@given(st.integers(1, 20), st.integers(1, 5))
def test_solves_and_products_undo_each_other(n, m):
    a, _ = known(n)
    factor = CholeskyFactor(recursive.potrf(a.copy(order="F")))
    b = np.asfortranarray(np.random.default_rng(n).standard_normal((n, m)))
    tolerance = {"rtol": 0, "atol": 40 * (n + 1) ** 2 * 2.0**-53}
    np.testing.assert_allclose(factor.multiply(factor.half_solve(b)), b, **tolerance)
    np.testing.assert_allclose(a @ factor.solve(b), b, **tolerance)
    assert abs(factor.log_determinant()) <= 4 * (n + 1) * 2.0**-53  # the diagonal of L is 1
    inverse = np.tril(factor.into_inverse())
    np.testing.assert_allclose(inverse, np.tril(np.linalg.inv(a)), **tolerance)


def test_potrf_names_the_minor_that_fails():
    a = np.asfortranarray(np.diag([1.0, 2.0, -1.0, 3.0]))
    with pytest.raises(gx.NotPositiveDefinite) as caught:
        recursive.potrf(a)
    assert caught.value.order == 3


def test_trsm_refuses_a_singular_factor():
    with pytest.raises(gx.NotPositiveDefinite, match="diagonal entry 2"):
        recursive.trsm(np.asfortranarray([[1.0, 0.0], [1.0, 0.0]]), np.ones(2))


def test_subnormal_entries_of_a_small_matrix_are_not_taken_for_zero():
    # beside entries near 1 they are taken for 0, which is faster
    a = np.asfortranarray(np.diag(np.full(3, 1e-160)))
    a[2, 0] = 1e-311
    assert recursive.potrf(a)[2, 0] == pytest.approx(1e-231, rel=1e-10, abs=0)


@pytest.mark.gpu
def test_gpu_kernels_are_the_cpu_kernels():
    import cupy

    a, expected = known(200)
    factor = CholeskyFactor(recursive.potrf(cupy.asfortranarray(cupy.asarray(a))))
    b = np.asfortranarray(np.random.default_rng(0).standard_normal((200, 3)))
    np.testing.assert_allclose(a @ factor.solve(b), b, atol=1e-10)
    np.testing.assert_allclose(factor.multiply(b), expected @ b, atol=1e-12)
    with pytest.raises(gx.NotPositiveDefinite):
        recursive.potrf(cupy.asfortranarray(-cupy.eye(3)))


@pytest.mark.gpu
def test_a_gpu_factors_matrices_whose_entries_cusolver_cannot_count(monkeypatch):
    import cupy

    from geomxp.linalg import gpu

    n = 300
    a, expected = known(n)
    monkeypatch.setattr(gpu, "LARGEST_INDEX", 100 * n)
    lower = recursive.potrf(cupy.asfortranarray(cupy.asarray(a))).get(order="A")
    assert lower.flags.f_contiguous
    np.testing.assert_allclose(np.tril(lower), expected, atol=10 * n * 2.0**-53)
    a[200, 200] = -1.0
    with pytest.raises(gx.NotPositiveDefinite) as found:
        recursive.potrf(cupy.asfortranarray(cupy.asarray(a)))
    assert found.value.order == 201


@pytest.mark.gpu
def test_an_inverse_from_a_gpu_is_that_of_the_cpu_and_in_columns():
    import cupy

    a, _ = known(150)
    inverse = np.linalg.inv(a)
    factor = CholeskyFactor(recursive.potrf(cupy.asfortranarray(cupy.asarray(a))))
    inverted = recursive.inverted(factor.lower.copy(order="F"))
    gram = recursive.whitened_diagonal(inverted, np.ones(150)).get(order="A")
    found = factor.into_inverse()
    assert found.flags.f_contiguous
    tolerance = 10 * 150 * 2.0**-53 * np.linalg.cond(a) * abs(inverse).max()
    assert abs(np.tril(found - inverse)).max() <= tolerance
    white = np.linalg.inv(known(150)[1])
    assert abs(np.tril(gram - white @ white.T)).max() <= tolerance


def test_large_matrices_are_factored_by_halves(monkeypatch):
    n = 300
    a = np.random.default_rng(5).standard_normal((n, n + 9))
    sigma = np.asfortranarray(a @ a.T)
    whole = np.tril(recursive.potrf(sigma.copy(order="F")))
    monkeypatch.setattr(recursive, "LARGEST_DPOTRF_ORDER", 64)
    halved = np.tril(recursive.potrf(sigma.copy(order="F")))
    assert abs(halved - whole).max() <= 10 * n * 2.0**-53 * np.linalg.cond(whole) * abs(whole).max()
    sigma[200, 200] = -1.0
    with pytest.raises(gx.NotPositiveDefinite) as found:
        recursive.potrf(sigma)
    assert found.value.order == 201
