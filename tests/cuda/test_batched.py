"""Small factorizations in CUDA: compiled without a GPU; on the host, the bits of the CPU's."""

import ctypes
import re
from itertools import count, product

import numpy as np
import pytest
from compilers import compiled, library
from cuda_emulator.session import size as sized

import geomxp as gx
from geomxp import cuda
from geomxp.linalg import batched, batched_gpu
from geomxp.linalg.batched import LOOKING, Variant
from geomxp.linalg.batched_gpu import potrf_text
from geomxp.linalg.simd import FUSED

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
SUFFIX = {np.float64: "fp64", np.float32: "fp32"}
KINDS = ("factor", "solve", "pack", "unpack")
BORDERS = (1, 3, 4, 5, 16, 31, 32, 33, 63, 64, 65, 96, 97, 100, 127, 128)
"""Orders where rows fill tiles of four and warps, or do not."""

WAYS = (None, Variant(chunk=0), Variant(), Variant("top", 4, 2), Variant(chunk="batch"))
"""On a GPU: as shipped; a block for each matrix; a thread for each of 32, of 64 and of all matrices
in a chunk."""


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "variant"),
    [(80, Variant("left", 4)), (90, Variant("top", 4)), (90, Variant("left", 4))],
    ids=str,
)
def test_factorizations_compile_without_warnings(architecture, variant):
    code, log, ptx = compiled(potrf_text(variant), architecture)
    assert (code, log) == (0, "")
    assert set(re.findall(r"\.entry (\w+)\(", ptx)) == {"potrf_fp64", "potrf_fp32"}
    assert ".ftz" not in ptx


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [80, 90])
def test_kernels_with_a_block_for_each_matrix_compile_without_warnings(architecture):
    code, log, ptx = compiled(cuda.source("batched.cu"), architecture)
    assert (code, log) == (0, "")
    names = {f"{kind}_{suffix}" for kind, suffix in product(KINDS, SUFFIX.values())}
    assert set(re.findall(r"\.entry (\w+)\(", ptx)) == names
    for name in SUFFIX.values():
        # the arithmetic keeps subnormal numbers; packing has none
        body = ptx[ptx.index(f".entry factor_{name}(") :]
        assert not re.search(r"(fma|mul|sqrt|rcp|div)\.[\w.]*ftz", body[: body.index("ret;")])


def test_python_launches_kernels_as_they_are_written_for():
    text = cuda.source("batched.cu")
    for name, value in (("MOST", batched.MOST), ("MOVERS", batched_gpu.MOVERS)):
        assert re.search(rf"#define {name} {value}\b", text)


def test_unrolled_right_looking_programs_compile_too():
    for variant, n in ((Variant("top", 4, unroll=True), 7), (Variant("right", 2), None)):
        assert compiled(potrf_text(variant, n), 90)[:2] == (0, "")


@pytest.mark.slow
@pytest.mark.skipif(not FUSED, reason="this CPU has no fused multiply-add: numba rounds twice")
@pytest.mark.parametrize(("looking", "tile"), [*product(LOOKING, (1, 3)), ("top", 5)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_threads_factors_have_the_bits_of_the_cpus(on_host, looking, tile, dtype):
    library = on_host(potrf_text(Variant(looking, tile)) + HOST)
    lanes = batched.lanes_of(dtype)
    for n in (1, 7, 12):
        a = positive_definite(9, n, dtype)
        chunks = batched.interleave(a, lanes)
        getattr(library, f"factor_{SUFFIX[dtype]}")(pointer(chunks), n, len(chunks), lanes)
        expected = batched.potrf(a, variant=Variant())
        np.testing.assert_array_equal(batched.separate(chunks, 9), expected)


def test_a_cpu_refuses_a_variant_of_a_gpu():
    with pytest.raises(gx.InvalidInput, match="chunk=0 is for a GPU"):
        batched.potrf(positive_definite(3, 5, np.float64), variant=batched.ON_GPU)


# from here on with a GPU ----------------------------------------------------------------------


def indefinite(batch, n, dtype):
    """Matrices of which some are not positive definite, or hold a NaN or an infinity."""
    a = positive_definite(batch, n, dtype)
    some = np.random.default_rng(n).permutation(batch)
    rows = sorted({0, n // 3, n // 2, n - 1})
    for k, row in zip(some, rows, strict=False):
        a[k, row, row] = -1.0
    first, last, *others = some[len(rows) :]
    # the first pivot of two, and a pivot of zero
    a[first, rows, rows] = -2.0
    a[last, n - 1, : n - 1] = a[last, n - 1, n - 1] = 0.0
    for k, row, value in zip(others, 2 * rows, (*[np.nan] * 4, *[np.inf] * 4), strict=False):
        a[k, row, row // 2] = a[k, n - 1, 0] = value
    return a


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_gpu_names_the_matrices_without_a_factor_as_the_cpu(dtype):
    import cupy

    for n, way in product((9, 32, 33, 64, 128), WAYS):
        a = indefinite(40, n, dtype)
        expected, info = batched.potrf(a, check=False)
        assert (info > 0).sum() >= 5
        assert (info < 0).sum() >= 6
        lower, found = batched.potrf(cupy.asarray(a), check=False, variant=way)
        np.testing.assert_array_equal(found, info)
        assert found.dtype == info.dtype
        np.testing.assert_array_equal(lower.get(), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("n", [9, 40])
def test_a_gpu_raises_what_the_cpu_raises(n):
    import cupy

    a = positive_definite(5, n, np.float64)
    a[3, 2, 2] = -1.0
    with pytest.raises(gx.NotPositiveDefinite, match=r"matrix 3 of the batch.*order 3") as caught:
        batched.potrf(cupy.asarray(a))
    assert caught.value.members.tolist() == [3]
    np.testing.assert_array_equal(caught.value.lower[:3].get(), batched.potrf(a[:3]))
    a[4, 5, 1] = np.nan
    with pytest.raises(gx.InvalidInput, match=r"matrix 4 of the batch holds a NaN .* in row 5"):
        batched.potrf(cupy.asarray(a))


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_factors_of_a_gpu_multiply_to_their_matrices(dtype, way):
    import cupy

    u = np.finfo(dtype).eps / 2
    for n in (*BORDERS[:8], 100, 128):
        a = positive_definite(35, n, dtype)
        given = cupy.asarray(a)
        lower = batched.potrf(given, variant=way).get().astype(np.float64)
        np.testing.assert_array_equal(given.get(), a)
        # Higham 2002, theorem 10.3
        bound = 2 * (n + 1) * u * (abs(lower) @ abs(lower).transpose(0, 2, 1))
        assert (abs(lower @ lower.transpose(0, 2, 1) - a) <= bound).all()
        assert not np.triu(lower, 1).any()


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_gpu_has_the_bits_of_the_cpu(dtype):
    import cupy

    for n in BORDERS:
        batch = sized(4096, 70 if n < 64 else 7) + n % 2
        a = positive_definite(batch, n, dtype)
        b = np.random.default_rng(n).standard_normal((batch, n, 3)).astype(dtype)
        expected = batched.potrf(a)
        for way in WAYS:
            lower = batched.potrf(cupy.asarray(a), variant=way)
            np.testing.assert_array_equal(lower.get(), expected)
        for call in (batched.solve, batched.forward, batched.backward):
            x = call(lower, cupy.asarray(b))
            np.testing.assert_array_equal(x.get(), call(expected, b))


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("batch", [1, 31, 32, 33, 65])
def test_batches_of_any_number_have_the_bits_of_the_cpu(batch):
    import cupy

    for n, way in product((7, 33), WAYS):
        a = positive_definite(batch, n, np.float64)
        lower = batched.potrf(cupy.asarray(a), variant=way)
        np.testing.assert_array_equal(lower.get(), batched.potrf(a))
        found = batched.solve(lower, cupy.asarray(a[:, 0]))
        np.testing.assert_array_equal(found.get(), batched.solve(lower.get(), a[:, 0]))


def by_columns(cupy, a):
    return cupy.asarray(a.transpose(0, 2, 1).copy()).transpose(0, 2, 1)


def batch_last(cupy, a):
    return cupy.asarray(np.moveaxis(a, 0, -1).copy()).transpose(2, 0, 1)


def part_of_a_larger(cupy, a):
    batch, n, k = a.shape
    larger = np.full((2 * batch + 1, n + 3, 2 * k), np.nan, a.dtype)
    larger[1::2, 2 : n + 2, ::2] = a
    return cupy.asarray(larger)[1::2, 2 : n + 2, ::2]


@pytest.mark.gpu
@pytest.mark.parametrize("layout", [by_columns, batch_last, part_of_a_larger])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_matrices_may_have_any_layout(layout, dtype):
    import cupy

    for n in (7, 32, 33, 70):
        a = positive_definite(35, n, dtype)
        expected, garbage = batched.potrf(a), np.triu(np.full((n, n), np.nan, dtype), 1)
        b = np.random.default_rng(n).standard_normal((35, n, 5)).astype(dtype)
        given = layout(cupy, a + garbage)
        assert not given.flags.c_contiguous
        for way in WAYS:
            for overwrite in (False, True):
                lower = batched.potrf(given, variant=way, overwrite=overwrite)
                assert lower.flags.c_contiguous
                np.testing.assert_array_equal(lower.get(), expected)
        x = batched.solve(layout(cupy, expected + garbage), layout(cupy, b))
        np.testing.assert_array_equal(x.get(), batched.solve(expected, b))


@pytest.mark.gpu
def test_factors_take_the_place_of_their_matrices_if_asked_to():
    import cupy

    for n, way in product((7, 33, 128), WAYS):
        a = indefinite(40, n, np.float64)
        expected, info = batched.potrf(a, check=False)
        given = cupy.asarray(a)
        lower, found = batched.potrf(given, check=False, variant=way, overwrite=True)
        assert lower.data.ptr == given.data.ptr
        np.testing.assert_array_equal(given.get(), expected)
        np.testing.assert_array_equal(found, info)


@pytest.mark.gpu
@pytest.mark.parametrize("n", [9, 40])
def test_numbers_of_other_types_become_fp64(n):
    import cupy

    a = np.stack([np.eye(n, dtype=np.int64) * 4 + 1] * 3)
    lower = batched.potrf(cupy.asarray(a))
    np.testing.assert_array_equal(lower.get(), batched.potrf(a))
    found = batched.solve(lower.astype(np.float32), cupy.asarray(np.ones((3, n))))
    assert found.dtype == np.float64
    expected = batched.solve(lower.get().astype(np.float32), np.ones((3, n)))
    np.testing.assert_array_equal(found.get(), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("columns", [None, 1, 3, 4, 5, 9])
def test_a_gpu_substitutes_in_any_number_of_columns(columns):
    import cupy

    for n in (1, 6, 33, 66):
        lower = batched.potrf(positive_definite(5, n, np.float64))
        shape = (5, n) if columns is None else (5, n, columns)
        b = np.random.default_rng(n).standard_normal(shape)
        for call in (batched.solve, batched.forward, batched.backward):
            found = call(cupy.asarray(lower), cupy.asarray(b))
            assert found.shape == shape
            np.testing.assert_array_equal(found.get(), call(lower, b))


@pytest.mark.gpu
@pytest.mark.parametrize("n", [5, 33, 64])
def test_an_infinity_goes_no_further_on_a_gpu_than_on_the_cpu(n):
    import cupy

    # rows that pad a matrix to whole tiles hand nothing on
    lower = batched.potrf(positive_definite(3, n, np.float64))
    b = np.ones((3, n, 2))
    b[1, n - 1, 0] = np.inf
    found = batched.solve(cupy.asarray(lower), cupy.asarray(b)).get()
    np.testing.assert_array_equal(found, batched.solve(lower, b))
    assert np.isinf(found[1, :, 0]).any()


@pytest.mark.gpu
def test_large_orders_have_a_block_for_each_matrix():
    for n, dtype in product((33, 64, 128), (np.float64, np.float32)):
        assert batched.variant_for(n, dtype, "gpu") == batched.ON_GPU
    assert batched.variant_for(32, np.float64, "gpu") == Variant()
    for n in (4, 16, 17, 128):
        shipped = batched.variant_for(n, np.float64, "gpu")
        assert shipped in batched.candidates(n, "gpu")
        assert batched.ON_GPU in batched.candidates(n, "gpu")


@pytest.mark.gpu
def test_a_search_on_a_gpu_remembers_its_winner(tmp_path, monkeypatch):
    monkeypatch.setenv("GEOMXP_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(
        batched, "race", lambda variants, *_: {v: 1.0 + (v != batched.ON_GPU) for v in variants}
    )
    among = Variant("left", 2), batched.ON_GPU
    winner, _ = batched.search(12, np.float64, "gpu", batch=64, among=among)
    assert winner == batched.ON_GPU
    assert batched.variant_for(12, np.float64, "gpu") == batched.ON_GPU
    assert batched.variant_for(12, np.float64) != batched.ON_GPU


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(4, 6), (5, 5, 2), (3, 5), (4,), (4, 5, 2, 2)])
def test_a_gpu_refuses_right_hand_sides_of_another_shape(shape):
    import cupy

    lower = batched.potrf(cupy.asarray(positive_definite(4, 5, np.float64)))
    with pytest.raises(gx.InvalidInput, match=r"b must be \(batch, n\) or \(batch, n, k\)"):
        batched.solve(lower, cupy.zeros(shape))


@pytest.mark.gpu
def test_a_gpu_refuses_right_hand_sides_in_other_memory():
    import cupy

    lower = batched.potrf(cupy.asarray(positive_definite(4, 5, np.float64)))
    with pytest.raises(gx.InvalidInput, match="b must be on the GPU of lower"):
        batched.solve(lower, np.zeros((4, 5)))


# interleaved batches --------------------------------------------------------------------------


LANES = (None, 32, 96, "batch")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_interleaved_batches_of_a_gpu_have_the_bits_of_the_cpu(dtype):
    import cupy

    for (n, batch), lanes in product(((1, 3), (7, 130), (18, 40)), LANES):
        a = positive_definite(batch, n, dtype)
        b = np.random.default_rng(n).standard_normal((batch, n, 5)).astype(dtype)
        expected = batched.potrf(a)
        chunks = batched.interleave(cupy.asarray(a), lanes)
        assert len(chunks) == 1 or lanes != "batch"
        x = batched.interleave_vectors(cupy.asarray(b), chunks)
        given, found = chunks.copy(), x.copy()
        assert not batched.potrf_interleaved(chunks).any()
        np.testing.assert_array_equal(batched.separate(chunks, batch).get(), expected)
        for in_place, canonical in (
            (batched.forward_interleaved, batched.forward),
            (batched.backward_interleaved, batched.backward),
            (batched.solve_interleaved, batched.solve),
        ):
            y = batched.separate_vectors(in_place(chunks, x.copy()), batch)
            np.testing.assert_array_equal(y.get(), canonical(expected, b))
        assert not batched.posv_interleaved(given, found).any()
        found = batched.separate_vectors(found, batch).get()
        np.testing.assert_array_equal(found, batched.solve(expected, b))


@pytest.mark.gpu
def test_interleaved_matrices_without_a_factor_are_named_as_on_the_cpu():
    import cupy

    for lanes in (32, "batch"):
        a = indefinite(40, 9, np.float64)
        b = np.ones((40, 9))
        chunks = batched.interleave(a, lanes)
        x = batched.interleave_vectors(b, chunks)
        expected = batched.posv_interleaved(chunks, x)
        on_gpu = batched.interleave(cupy.asarray(a), lanes)
        y = batched.interleave_vectors(cupy.asarray(b), on_gpu)
        found = batched.posv_interleaved(on_gpu, y)
        np.testing.assert_array_equal(found[:40], expected[:40])
        assert found.any()
        y, x = batched.separate_vectors(y, 40).get(), batched.separate_vectors(x, 40)
        np.testing.assert_array_equal(y, x)
        first = int(np.flatnonzero(found)[0])
        before = y = batched.interleave_vectors(cupy.asarray(b), on_gpu)
        with pytest.raises(gx.InvalidInput, match=f"diagonal of factor {first} holds"):
            batched.solve_interleaved(on_gpu, y)
        np.testing.assert_array_equal(y.get(), before.get())


@pytest.mark.gpu
def test_a_gpu_refuses_chunks_and_right_hand_sides_of_a_cpu():
    import cupy

    a = positive_definite(4, 5, np.float64)
    for lanes in (8, 0, -32, 48):
        with pytest.raises(gx.InvalidInput, match="lanes must be a multiple of 32"):
            batched.interleave(cupy.asarray(a), lanes)
    chunks = batched.interleave(cupy.asarray(a))
    with pytest.raises(gx.InvalidInput, match="memory of the chunks"):
        batched.interleave_vectors(np.ones((4, 5)), chunks)
    with pytest.raises(gx.InvalidInput, match="in the same memory"):
        batched.solve_interleaved(chunks, np.ones((1, 5, 1, 32)))
    narrow = cupy.zeros((1, 5, 5, 8))
    with pytest.raises(gx.InvalidInput, match="lanes a multiple of 32"):
        batched.potrf_interleaved(narrow)


@pytest.mark.slow
@pytest.mark.gpu
def test_a_search_on_a_gpu_compares_interleaved_batches(tmp_path, monkeypatch):
    monkeypatch.setenv("GEOMXP_CACHE_DIR", str(tmp_path))
    among = Variant("left", 2), Variant(chunk="batch")
    options = {"layout": "interleaved", "batch": 64, "rounds": 1, "among": among}
    winner, seconds = batched.search(6, np.float64, "gpu", **options)
    assert set(seconds) == {batched.UNTUNED, *among}
    assert batched.variant_for(6, np.float64, "gpu", "interleaved") == winner
    assert batched.variant_for(6, np.float64, "gpu") == Variant()


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [80, 90])
def test_interleaved_substitutions_compile_without_warnings(architecture):
    code, log, ptx = compiled(batched_gpu.substitution_text(), architecture)
    assert (code, log) == (0, "")
    assert set(re.findall(r"\.entry (\w+)\(", ptx)) == {"substitute_fp64", "substitute_fp32"}
    assert ".ftz" not in ptx
