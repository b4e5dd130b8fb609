"""Triangles inverted and multiplied in place by halves, against LAPACK and their definitions."""

import tracemalloc

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from geomxp.linalg import recursive
from geomxp.linalg.formats import FP32, FP64
from geomxp.linalg.recursive import Triangle

U = 2.0**-53


def triangle(n, dtype=np.float64):
    """A well conditioned L with entries of many sizes; nothing stands above its diagonal."""
    random = np.random.default_rng(n)
    lower = np.tril(random.standard_normal((n, n)) / (2 * n**0.5), -1)
    return (lower + np.diag(random.uniform(1.0, 1.5, n))).astype(dtype)


def stored(lower, layout):
    """L as it is stored: in a layout, in the middle of more, with NaN wherever nothing is read."""
    n = len(lower)
    around = np.full((n + 5, n + 3), np.nan, lower.dtype, order=layout[0])
    view = around[2 : 2 + n, 1 : 1 + n] if "part" in layout else around[:n, :n]
    view[np.tril_indices(n)] = lower[np.tril_indices(n)]
    return around, view


def assert_only_the_triangle_was_written(around, view):
    kept = np.isnan(around).sum()
    assert kept == around.size - len(view) * (len(view) + 1) // 2


SIZES = st.integers(1, 90) | st.sampled_from([128, 129, 255, 256, 257, 300])


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(SIZES, st.sampled_from([8, 16, 100, 128]), st.sampled_from(["F", "C", "F part", "C part"]))
def test_the_inverse_by_halves_is_that_of_lapack(n, leaf, layout):
    lower = triangle(n)
    around, view = stored(lower, layout)
    t = Triangle(view, (FP64,), leaf)
    recursive.invert(t)
    known, _ = scipy.linalg.lapack.dtrtri(np.asfortranarray(lower), lower=1)
    tolerance = 4 * n * U * np.linalg.cond(lower) * np.linalg.norm(known)
    assert np.linalg.norm(np.tril(np.nan_to_num(view)) - known) <= tolerance
    recursive.gram(t)
    known, _ = scipy.linalg.lapack.dpotri(np.asfortranarray(lower), lower=1)
    known = np.tril(known)
    tolerance = 4 * n * U * np.linalg.cond(lower) ** 2 * np.linalg.norm(known)
    assert np.linalg.norm(np.tril(np.nan_to_num(view)) - known) <= tolerance
    assert_only_the_triangle_was_written(around, view)


@settings(deadline=None, max_examples=40)
@given(SIZES, st.sampled_from([8, 16, 100, 128]), st.sampled_from(["F", "C", "F part", "C part"]))
def test_products_of_a_triangle_with_itself_are_their_definitions(n, leaf, layout):
    lower = triangle(n)
    for work, known in ((recursive.gram, lower.T @ lower), (recursive.outer, lower @ lower.T)):
        around, view = stored(lower, layout)
        work(Triangle(view, (FP64,), leaf))
        size = np.linalg.norm(lower) ** 2
        assert np.linalg.norm(np.tril(np.nan_to_num(view) - known)) <= 4 * n * U * size
        assert_only_the_triangle_was_written(around, view)


@pytest.mark.parametrize("n", [1, 7, 129, 200])
def test_a_congruence_by_halves_is_its_definition(n):
    lower, a = triangle(n), np.random.default_rng(1).standard_normal((n, n))
    a = np.asfortranarray(a + a.T)
    back = np.linalg.inv(lower)
    known = back @ a @ back.T
    recursive.congruence_in_place(Triangle(stored(lower, "F")[1], (FP64,), 32), a)
    tolerance = 8 * n * U * np.linalg.cond(lower) ** 2 * np.linalg.norm(known)
    assert np.linalg.norm(a - known) <= tolerance


def test_the_inverse_of_fp32_numbers_is_fp32():
    lower = triangle(150, np.float32)
    view = stored(lower, "F")[1]
    recursive.invert(Triangle(view, (FP32,), 32))
    known = np.linalg.inv(lower.astype(np.float64))
    assert view.dtype == np.float32
    size = np.linalg.norm(known) * np.linalg.cond(lower)
    assert np.linalg.norm(np.tril(np.nan_to_num(view)) - known) <= 4 * 150 * 2.0**-24 * size


def test_no_second_matrix_stands_beside_the_first():
    n, leaf = 1024, 64
    a = np.asfortranarray(triangle(n))
    t = Triangle(a, (FP64,), leaf)
    tracemalloc.start()
    recursive.invert(t)
    recursive.gram(t)
    recursive.outer(t)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # a few leaves, of 64 to a matrix of this size 256
    assert peak < a.nbytes / 16


# from here on with a GPU ----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("n", [1, 97, 300, 525])
def test_gpu_inverses_products_and_congruences_are_those_of_the_cpu(n, monkeypatch):
    import cupy

    # the last one has the leaves of a real GPU, by a quarter
    monkeypatch.setattr(recursive, "GPU_LEAF_ORDER", 64 if n < 500 else 256)
    for name, leaf in recursive.GPU_LEAVES.items():
        monkeypatch.setitem(recursive.GPU_LEAVES, name, leaf if n < 500 else leaf // 4)
    lower = triangle(n)
    condition, above = np.linalg.cond(lower), np.triu_indices(n, 1)
    a = np.random.default_rng(1).standard_normal((n, n))
    a = np.asfortranarray(a + a.T)

    def there(array):
        array = np.array(array, order="F")
        array[above] = np.nan
        return cupy.asarray(array, order="F")

    def assert_close(found, known):
        found, known = found.get(), np.asarray(known)
        # of a symmetric matrix what stands above the diagonal may be anything
        found, known = (np.tril(x) if x.shape == (n, n) else x for x in (found, known))
        error = np.linalg.norm(found - known)
        assert error <= 8 * n * U * condition**2 * np.linalg.norm(known)

    back, on_gpu = np.linalg.inv(lower), there(lower)
    inverse = recursive.inverted(there(lower))
    assert_close(inverse, back)
    for diagonal in (np.ones(n), np.arange(1.0, n + 1.0)):
        assert_close(recursive.whitened_diagonal(inverse, diagonal), back * diagonal @ back.T)
    assert_close(recursive.congruence(on_gpu, there(a)), back @ a @ back.T)
    b = np.random.default_rng(2).standard_normal((n, 3))
    for transposed in (False, True):
        solved = np.linalg.solve(lower.T if transposed else lower, b)
        assert_close(recursive.trsm(on_gpu, cupy.asarray(b), transposed), solved)
        assert_close(
            recursive.trsm(on_gpu, cupy.asarray(b[:, 0]), transposed)[:, None], solved[:, :1]
        )
    assert_close(recursive.trmm(on_gpu, cupy.asarray(b)), lower @ b)
    assert recursive.potri(on_gpu) is on_gpu
    assert_close(on_gpu, back.T @ back)


def graded(n, scale=1.0):
    """A covariance matrix whose entries fall to the smallest numbers."""
    x = np.random.default_rng(n).random(n)
    return np.asfortranarray(scale * np.exp(-np.abs(np.subtract.outer(x, x)) * 1000.0))


def test_a_matrix_of_a_short_range_is_factored_without_subnormal_numbers():
    a, tiny = graded(200), np.finfo(np.float64).tiny
    expected = scipy.linalg.lapack.dpotrf(a.copy(order="F"), lower=1)[0]
    assert (np.abs(expected[expected != 0]) < tiny).any()
    lower = np.tril(recursive.potrf(a.copy(order="F")))
    assert np.abs(lower - expected).max() <= 200 * tiny
    inverse = np.tril(recursive.potri(lower.copy(order="F")))
    assert np.abs(inverse - np.tril(np.linalg.inv(a))).max() < 1e-9 * np.abs(inverse).max()


def test_a_covariance_near_the_smallest_numbers_keeps_its_subnormal_entries():
    a = graded(60, 1e-305)
    expected = scipy.linalg.lapack.dpotrf(a.copy(order="F"), lower=1)[0]
    assert np.array_equal(np.tril(recursive.potrf(a)), expected)
