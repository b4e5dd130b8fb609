"""Small factorizations in CUDA: compiled without a GPU; on the host, the bits of the CPU's."""

import ctypes
import re
from itertools import count, product

import numpy as np
import pytest
from compilers import compiled, library

import geomxp as gx
from geomxp.dense import batched
from geomxp.dense.batched_gpu import as_batch, in_chunks, judged, potrf_text, substitution_text
from geomxp.dense.batched_text import LOOKING, Variant
from geomxp.dense.batched_vectors import FUSED

HOST = """
#define HOST_FACTOR(name, Real)                                              \\
    extern "C" void name(Real *a, int n, int chunks, int lanes)              \\
    {                                                                        \\
        for (int c = 0; c < chunks; ++c)                                     \\
            for (int m = 0; m < lanes; ++m)                                  \\
                potrf<Real>(a + c * n * n * lanes, n, n, lanes, m);          \\
    }
HOST_FACTOR(factor_fp64, double)
HOST_FACTOR(factor_fp32, float)
"""
HOST_SOLVE = """
#define HOST_SOLVE(name, Real)                                                        \\
    extern "C" void name(Real *a, Real *b, int columns, int n, int lanes)             \\
    {                                                                                 \\
        for (int m = 0; m < lanes; ++m) FUNCTION<Real>(a, b, n, n, lanes, m, columns); \\
    }
HOST_SOLVE(solve_fp64, double)
HOST_SOLVE(solve_fp32, float)
"""
SUFFIX = {np.float64: "fp64", np.float32: "fp32"}


def positive_definite(batch, n, dtype):
    x = np.random.default_rng(n).standard_normal((batch, n, n))
    return (x @ x.transpose(0, 2, 1) + n * np.eye(n)).astype(dtype)


def pointer(array):
    return ctypes.c_void_p(array.ctypes.data)


@pytest.fixture(scope="module")
def on_host(tmp_path_factory):
    """A library made of C++ text."""
    folder, numbers = tmp_path_factory.mktemp("batched"), count()

    def build(text):
        return library(folder / f"host{next(numbers)}.cpp", text, "-O1")

    return build


@pytest.mark.parametrize(
    ("architecture", "variant"),
    [(80, Variant("left", 4)), (90, Variant("top", 8)), (90, Variant("left", 4))],
    ids=str,
)
def test_factorizations_compile_without_a_word(architecture, variant):
    code, log, ptx = compiled(potrf_text(variant), architecture)
    assert (code, log) == (0, "")
    assert set(re.findall(r"\.entry (\w+)\(", ptx)) == {"potrf_fp64", "potrf_fp32"}
    assert ".ftz" not in ptx


@pytest.mark.parametrize("backward", [False, True])
def test_substitutions_compile_without_a_word(backward):
    code, log, ptx = compiled(substitution_text(backward), 90)
    assert (code, log) == (0, "")
    name = "backward" if backward else "forward"
    assert set(re.findall(r"\.entry (\w+)\(", ptx)) == {f"{name}_fp64", f"{name}_fp32"}


def test_unrolled_right_looking_programs_compile_too():
    for variant, n in ((Variant("top", 4, unroll=True), 7), (Variant("right", 2), None)):
        assert compiled(potrf_text(variant, n), 90)[:2] == (0, "")


@pytest.mark.skipif(not FUSED, reason="this CPU has no fused multiply-add: numba rounds twice")
@pytest.mark.parametrize(("looking", "tile"), [*product(LOOKING, (1, 3)), ("top", 5)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_threads_factors_have_the_bits_of_the_cpus(on_host, looking, tile, dtype):
    library = on_host(potrf_text(Variant(looking, tile)) + HOST)
    for n in (1, 7, 12):
        a = positive_definite(9, n, dtype)
        chunks = in_chunks(np, a, 4)
        getattr(library, f"factor_{SUFFIX[dtype]}")(pointer(chunks), n, len(chunks), 4)
        lower, info = judged(np, as_batch(np, chunks, 9), a)
        np.testing.assert_array_equal(lower, batched.potrf(a, variant=Variant()))
        assert not info.any()


@pytest.mark.skipif(not FUSED, reason="this CPU has no fused multiply-add: numba rounds twice")
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_threads_substitutions_have_the_bits_of_the_cpus(on_host, backward, dtype):
    name = "backward" if backward else "forward"
    library = on_host(substitution_text(backward) + HOST_SOLVE.replace("FUNCTION", name))
    for n, columns in ((1, 1), (7, 5), (12, 4)):
        lower = batched.potrf(positive_definite(4, n, dtype), variant=Variant())
        b = np.random.default_rng(n).standard_normal((4, n, columns)).astype(dtype)
        chunk, x = in_chunks(np, lower, 4), in_chunks(np, b, 4, False)
        solve = getattr(library, f"solve_{SUFFIX[dtype]}")
        solve(pointer(chunk), pointer(x), columns, n, 4)
        expected = (batched.backward if backward else batched.forward)(lower, b)
        np.testing.assert_array_equal(as_batch(np, x, 4), expected)


def test_a_gpus_factors_are_judged_as_the_cpus():
    a = positive_definite(5, 9, np.float64)
    a[1, 3, 3], a[3, 4, 2] = -1.0, np.nan
    expected, info = batched.potrf(a, check=False)
    lower = np.linalg.cholesky(np.where(info[:, None, None] == 0, a, np.eye(9)))
    lower[1, 3:, 3:] = lower[3, 4:, 4:] = np.nan
    found = judged(np, lower, a)
    np.testing.assert_array_equal(found[1], info)
    assert (np.isnan(found[0]) == np.isnan(expected)).all()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_gpu_names_the_matrices_without_a_factor_as_the_cpu(dtype):
    import cupy

    a = positive_definite(40, 9, dtype)
    a[1, 3, 3], a[33, 4, 2] = -1.0, np.nan
    expected, info = batched.potrf(a, check=False)
    lower, found = batched.potrf(cupy.asarray(a), check=False)
    assert info[[1, 33]].all()
    np.testing.assert_array_equal(found, info)
    np.testing.assert_array_equal(lower.get(), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_gpu_has_the_bits_of_the_cpu(dtype):
    import cupy

    for n in (1, 5, 16, 33, 128):
        a = positive_definite(70, n, dtype)
        b = np.random.default_rng(n).standard_normal((70, n, 3)).astype(dtype)
        lower = batched.potrf(cupy.asarray(a))
        np.testing.assert_array_equal(lower.get(), batched.potrf(a))
        x = batched.solve(lower, cupy.asarray(b))
        np.testing.assert_array_equal(x.get(), batched.solve(lower.get(), b))


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(4, 6), (5, 5, 2), (3, 5), (4,), (4, 5, 2, 2)])
def test_a_gpu_refuses_right_hand_sides_of_another_shape(shape):
    import cupy

    lower = batched.potrf(cupy.asarray(positive_definite(4, 5, np.float64)))
    with pytest.raises(gx.InvalidInput, match=r"b must be \(batch, n\) or \(batch, n, k\)"):
        batched.solve(lower, cupy.zeros(shape))
