"""Small factorizations in CUDA: compiled without a GPU; on the host, the bits of the CPU's."""

import ctypes
import re
from dataclasses import replace
from itertools import count, product

import numpy as np
import pytest
from compilers import compiled, library
from cuda_emulator import machine
from cuda_emulator.session import size as sized

import geomxp as gx
from geomxp import cuda
from geomxp.linalg import batched, batched_gpu
from geomxp.linalg.batched import LOOKING, Variant
from geomxp.linalg.batched_gpu import Limits, panel_options, potrf_text, rows_options
from geomxp.linalg.simd import HAS_FMA

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
KINDS = ("factor", "solve", "solve_by_warps", "pack", "unpack")
BORDERS = (1, 3, 4, 5, 16, 31, 32, 33, 63, 64, 65, 96, 97, 100, 127, 128)
"""Orders where rows fill tiles of four and warps, or do not."""

WAYS = (None, Variant(chunk=0), Variant(), Variant("top", 4, 2), Variant(chunk="batch"))
"""On a GPU: as shipped; a block for each matrix; a thread for each of 32, of 64 and of all matrices
in a chunk."""

PANELS = (
    (1, Variant(chunk=0, panel=1, block=(1, 1, 32))),
    (5, Variant(chunk=0, panel=5, block=(8, 4, 1))),
    (7, Variant(chunk=0, panel=3, block=(2, 4, 8))),
    (9, Variant(chunk=0, panel=2, block=(4, 1, 8))),
    (32, Variant(chunk=0, panel=8, block=(32, 1, 2))),
    (33, Variant(chunk=0, panel=11, block=(16, 2, 1))),
    (40, Variant(chunk=0, panel=17, block=(64, 8, 1))),
    (100, Variant(chunk=0, panel=9, block=(128, 1, 1))),
    (128, Variant(chunk=0, panel=16, block=(32, 4, 1))),
)
"""Orders and panels: in one warp and in several, of all columns and of one, with widths that divide
the order or do not, with blocks as high as a panel, lower, and higher."""

ROWS = tuple(
    (n, Variant(chunk=0, block=(lanes, 1, matrices)))
    for n, lanes, matrices in (
        *((1, 1, 32), (2, 2, 16), (3, 4, 16), (5, 1, 64), (9, 2, 32), (16, 4, 16), (20, 16, 4)),
        *((31, 8, 4), (32, 32, 2), (33, 16, 2), (48, 32, 1)),
    )
)
"""Orders and rows in registers: lanes with one row and with several, as many as rows and more."""

WARPS = tuple(Variant(chunk=0, block=(32, 1, warps)) for warps in (1, 4))
KEPLER = Limits(1024, 64, 2048, 16, 65_536, 65_536, 49_152, 49_152, 0)
"""Of the K40 in paper 004, Section XI."""
HOPPER = Limits(1024, 64, 2048, 32, 65_536, 65_536, 232_448, 233_472, 1024)
"""Of compute capability 9.0."""


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
    values = {
        "LARGEST_ORDER": batched.LARGEST_ORDER,
        "PACKING_THREADS": batched_gpu.PACKING_THREADS,
        "MOST_SUBSTITUTING_WARPS": batched_gpu.MOST_SUBSTITUTING_WARPS,
    }
    for name, value in values.items():
        assert re.search(rf"#define {name} {value}\b", text)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "variant"), PANELS[1::3], ids=str)
def test_kernels_by_panels_compile_without_warnings(n, variant):
    code, log, ptx = compiled(cuda.source("panels.cu"), 90, *panel_options(variant, n))
    assert (code, log) == (0, "")
    assert set(re.findall(r"\.entry (\w+)\(", ptx)) == {"factor_fp64", "factor_fp32"}
    assert not re.search(r"(fma|mul|sqrt|rcp|div)\.[\w.]*ftz", ptx)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "variant"), ROWS[::3], ids=str)
def test_kernels_with_rows_in_registers_compile_without_warnings(n, variant):
    code, log, ptx = compiled(cuda.source("rows.cu"), 90, *rows_options(variant, n))
    assert (code, log) == (0, "")
    assert set(re.findall(r"\.entry (\w+)\(", ptx)) == {"factor_fp64", "factor_fp32"}
    assert not re.search(r"(fma|mul|sqrt|rcp|div)\.[\w.]*ftz", ptx)


@pytest.mark.slow
def test_fast_roots_are_one_instruction_and_only_where_they_are_asked_for():
    n, panels = PANELS[5]
    for fast in (False, True):
        variants = replace(panels, fast=fast), Variant("left", 4, fast=fast), Variant(chunk=0)
        sources = (
            (cuda.source("panels.cu"), panel_options(variants[0], n)),
            (cuda.source("rows.cu"), rows_options(replace(ROWS[5][1], fast=fast), ROWS[5][0])),
            (potrf_text(variants[1]), ()),
            (cuda.source("batched.cu"), ("-DFAST_ROOTS=true",) if fast else ()),
        )
        for text, options in sources:
            code, _, ptx = compiled(text, 90, *options)
            assert code == 0
            assert ("rsqrt.approx" in ptx) == fast


def test_unrolled_right_looking_programs_compile_too():
    for variant, n in ((Variant("top", 4, unroll=True), 7), (Variant("right", 2), None)):
        assert compiled(potrf_text(variant, n), 90)[:2] == (0, "")


@pytest.mark.slow
@pytest.mark.skipif(not HAS_FMA, reason="this CPU has no fused multiply-add: numba rounds twice")
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
    a = positive_definite(3, 5, np.float64)
    for variant in (batched.BLOCK_PER_MATRIX, PANELS[1][1], Variant(fast=True), Variant(panel=4)):
        with pytest.raises(gx.InvalidInput, match=r"chunk=0, .* and fast=True are for a GPU"):
            batched.potrf(a, variant=variant)
    with pytest.raises(gx.InvalidInput, match="fast=True"):
        batched.potrf_interleaved(batched.interleave(a), variant=Variant(fast=True))
    with pytest.raises(gx.InvalidInput, match="leave it out on a CPU"):
        batched.solve(a, a, variant=WARPS[0])
    with pytest.raises(gx.InvalidInput, match=r'variants on a GPU only.* Try on="gpu"'):
        batched.search(5, what="solve")
    with pytest.raises(gx.InvalidInput, match=r"chunk=0, .* are for a GPU"):
        batched.potrf_interleaved(batched.interleave(a), variant=batched.BLOCK_PER_MATRIX)


def test_the_search_space_is_that_of_the_paper():
    # Section VII, for an order of 33 and panels of 11 columns
    shapes = list(batched_gpu.shapes(33))
    assert sorted({panel for panel, *_ in shapes}) == [1, 2, 3, 4, 5, 6, 7, 9, 11, 17, 33]
    assert {height for panel, height, _ in shapes if panel == 11} == {1, 2, 4, 8, 16, 32, 64}
    assert {width for panel, _, width in shapes if panel == 11} == {1, 2, 4, 8, 16}
    assert len(set(shapes)) == len(shapes)


@pytest.mark.parametrize(
    ("limits", "threads", "registers", "shared", "expected"),
    [
        # Section VI: 16 blocks of one warp are a quarter of 64 warps, those of four are all
        (KEPLER, 32, 32, 0, 0.25),
        (KEPLER, 128, 32, 0, 1.0),
        # 65,536 registers are 1,024 threads with 64; units of 256 make 72 of 65
        (HOPPER, 128, 64, 0, 0.5),
        (HOPPER, 32, 65, 0, 28 / 64),
        (HOPPER, 32, 72, 0, 28 / 64),
        # 12 blocks of 16 and 1 KB in 228 KB, 13 of 16.5 and 1
        (HOPPER, 64, 32, 18 * 1024, 24 / 64),
        (HOPPER, 64, 32, 33 * 512, 26 / 64),
        # one more thread than a warp takes two
        (HOPPER, 33, 32, 0, 1.0),
        (KEPLER, 33, 32, 0, 0.5),
        # a block that does not fit
        (HOPPER, 32, 32, 228 * 1024, 0.0),
    ],
)
def test_occupancy_is_that_of_hand_computed_cases(limits, threads, registers, shared, expected):
    assert batched_gpu.occupancy(limits, threads, registers, shared) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("n", "itemsize", "panel", "block", "limits", "message"),
    [
        (33, 8, 11, (16, 2, 1), KEPLER, None),
        (33, 8, 11, (16, 3, 1), HOPPER, r"powers of two, for example \(32, 1, 4\)"),
        (33, 8, 11, (16, 2), HOPPER, r"Got \(16, 2\)"),
        (33, 8, 11, (16, 0, 2), HOPPER, "powers of two"),
        (33, 8, 34, (16, 2, 1), HOPPER, "`panel` must be 1 to 33 columns"),
        (33, 8, 0, (16, 2, 1), HOPPER, "`panel` must be 1 to 33"),
        (33, 8, 11, (128, 1, 1), HOPPER, "some threads would have no entry"),
        (33, 8, 11, (16, 32, 1), HOPPER, "some threads would have no entry"),
        (33, 8, 11, (8, 2, 1), HOPPER, "whole warps of 32 threads. Got 16"),
        (128, 4, 64, (128, 16, 1), HOPPER, "may have 1024 threads on this GPU. Got 2048"),
        (1, 4, 1, (1, 1, 128), HOPPER, "may have 64 matrices on this GPU. Got 128"),
        # (16 + 1) 8 FP64 entries are 272 registers, and 40 beside them
        (128, 8, 16, (8, 2, 2), HOPPER, "may have 255 registers in a block of 32.*312 are needed"),
        # (4 + 1) 4 FP64 entries are 40 registers: 80 for 1,024 threads are more than 65,536
        (128, 8, 128, (32, 32, 1), HOPPER, "may have 64 registers in a block of 1024.*80 are"),
        # 64 columns of 129 rows are 66,048 bytes, more than 48 KB and less than 227
        (128, 8, 64, (64, 8, 1), KEPLER, "may have 49152 bytes of shared memory.*66056 are needed"),
        (128, 8, 64, (64, 8, 1), HOPPER, None),
        (128, 8, 64, (64, 8, 1), replace(KEPLER, block_shared=66_056), None),
    ],
)
def test_blocks_beyond_a_limit_are_refused(n, itemsize, panel, block, limits, message):
    found = batched_gpu.refusal(Variant(chunk=0, panel=panel, block=block), n, itemsize, limits)
    assert (found is None) if message is None else re.search(message, found)


@pytest.mark.slow
@pytest.mark.parametrize("limits", [KEPLER, HOPPER], ids=["kepler", "hopper"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_panels_are_pruned_by_limits_and_occupancy(limits, dtype):
    size = np.dtype(dtype).itemsize
    for n in (1, 5, 33, 128):
        by_width = batched_gpu.panels(n, dtype, limits)
        assert {v.panel for vs in by_width.values() for v in vs} == set(by_width)
        shares = {}
        for panel, height, width in batched_gpu.shapes(n):
            for k in range(7):
                v = Variant(chunk=0, panel=panel, block=(height, width, 2**k))
                if batched_gpu.refusal(v, n, size, limits) is None:
                    demand = batched_gpu.demand(v, n, size)
                    assert demand[0] % 32 == 0
                    shares[v] = batched_gpu.occupancy(limits, *demand)
        kept = [v for vs in by_width.values() for v in vs]
        assert len(set(kept)) == len(kept) > 0
        assert all(shares[v] >= max(shares.values()) / 2 for v in kept)
        # nothing that qualifies is left out but other numbers of matrices
        shapes = {
            (v.panel, v.block[:2]) for v, s in shares.items() if s >= max(shares.values()) / 2
        }
        assert {(v.panel, v.block[:2]) for v in kept} == shapes
    # 128 columns of 129 FP64 numbers are no block of a K40's 48 KB
    assert 128 not in batched_gpu.panels(128, np.float64, KEPLER)


def test_warps_of_a_block_are_pruned_by_occupancy():
    # a K40 has 16 blocks: one warp each occupies half of what two and more do with 72 registers
    assert [v.block[2] for v in batched_gpu.warps(KEPLER)] == [1, 2, 4, 8, 16]
    few = replace(KEPLER, blocks=4)
    assert [v.block[2] for v in batched_gpu.warps(few)] == [4, 8, 16]


def test_loads_for_each_product_count_idle_threads():
    # a thread of 8 x 1 has 4 rows and 4 columns of 32 x 4: 8 loads for 16 products
    assert batched_gpu.loads(Variant(chunk=0, panel=4, block=(8, 1, 4)), 32) == 0.5
    # 64 rows of threads for 33: as many loads as for 64
    wide = Variant(chunk=0, panel=11, block=(64, 1, 1))
    assert batched_gpu.loads(wide, 33) == pytest.approx(64 * 12 / (33 * 11))


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


def by_columns(cupy, a):
    return cupy.asarray(a.transpose(0, 2, 1).copy()).transpose(0, 2, 1)


def batch_last(cupy, a):
    return cupy.asarray(np.moveaxis(a, 0, -1).copy()).transpose(2, 0, 1)


def part_of_a_larger(cupy, a):
    batch, n, k = a.shape
    larger = np.full((2 * batch + 1, n + 3, 2 * k), np.nan, a.dtype)
    larger[1::2, 2 : n + 2, ::2] = a
    return cupy.asarray(larger)[1::2, 2 : n + 2, ::2]


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_gpu_names_the_matrices_without_a_factor_as_the_cpu(dtype):
    import cupy

    for n, way in product((9, 32, 33, 64, 128), WAYS):
        a = indefinite(sized(40, 40 if n < 64 else 16), n, dtype)
        expected, info = batched.potrf(a, check=False)
        assert (info > 0).sum() >= 5
        assert (info < 0).sum() >= 6
        lower, found = batched.potrf(cupy.asarray(a), check=False, variant=way)
        np.testing.assert_array_equal(found, info)
        assert found.dtype == info.dtype
        np.testing.assert_array_equal(lower.get(), expected)


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("variants", [PANELS, ROWS], ids=["panels", "rows"])
def test_blocks_have_the_bits_of_the_cpu_in_batches_of_any_number(variants, dtype):
    import cupy

    for n, variant in variants:
        for batch in (1, variant.block[2] + 2):
            a = positive_definite(batch, n, dtype)
            given = cupy.asarray(a)
            lower = batched.potrf(given, variant=variant)
            np.testing.assert_array_equal(lower.get(), batched.potrf(a))
            np.testing.assert_array_equal(given.get(), a)


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("n", "variant"), [PANELS[3], PANELS[6], ROWS[4], ROWS[6]], ids=str)
def test_blocks_name_the_matrices_without_a_factor_in_any_layout(dtype, n, variant):
    import cupy

    a = indefinite(40, n, dtype)
    expected, info = batched.potrf(a, check=False)
    for layout in (by_columns, batch_last, part_of_a_larger):
        given = layout(cupy, a + np.triu(np.full((n, n), np.nan, dtype), 1))
        lower, found = batched.potrf(given, check=False, variant=variant)
        np.testing.assert_array_equal(found, info)
        np.testing.assert_array_equal(lower.get(), expected)
    given = cupy.asarray(a)
    lower, found = batched.potrf(given, check=False, variant=variant, overwrite=True)
    assert lower.data.ptr == given.data.ptr
    np.testing.assert_array_equal(given.get(), expected)
    np.testing.assert_array_equal(found, info)


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_all_candidates_give_right_factors(dtype):
    import cupy

    n = 9
    a = positive_definite(35, n, dtype)
    expected, given = batched.potrf(a), cupy.asarray(a)
    found = batched.candidates(n, "gpu", dtype)
    assert {v.panel for v in found} == {0, 1, 2, 3, 5, 9}
    assert {v.block[0] for v in found if v.block and not v.panel} == {1, 2, 4, 8, 16}
    for variant in found:
        lower = batched.potrf(given, variant=variant)
        np.testing.assert_array_equal(lower.get(), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "variant", [Variant(), Variant(chunk=0), PANELS[3][1], ROWS[4][1]], ids=str
)
def test_fast_roots_give_factors_within_the_bound_and_other_bits(variant, dtype):
    import cupy

    n, u = 9, np.finfo(dtype).eps / 2
    a = positive_definite(35, n, dtype)
    found = batched.potrf(cupy.asarray(a), variant=replace(variant, fast=True)).get()
    assert (found != batched.potrf(a)).any()
    lower = found.astype(np.float64)
    # an approximate root adds its error, at most 2 units in the last place, to each column
    bound = 2 * (n + 5) * u * (abs(lower) @ abs(lower).transpose(0, 2, 1))
    assert (abs(lower @ lower.transpose(0, 2, 1) - a) <= bound).all()
    a = indefinite(40, n, dtype)
    _, info = batched.potrf(a, check=False)
    _, failed = batched.potrf(cupy.asarray(a), variant=replace(variant, fast=True), check=False)
    np.testing.assert_array_equal(failed, info)


def test_arrays_on_a_cpu_of_types_that_may_be_on_a_gpu_are_factored_on_the_cpu():
    class Tensor(np.ndarray):
        @property
        def __cuda_array_interface__(self):
            raise AttributeError("this one is on the CPU")

    a = positive_definite(3, 9, np.float64)
    np.testing.assert_array_equal(batched.potrf(a.view(Tensor)), batched.potrf(a))


@pytest.mark.gpu
def test_a_gpu_refuses_blocks_that_do_not_fit():
    import cupy

    large = cupy.asarray(positive_definite(1, 65, np.float64))
    with pytest.raises(gx.InvalidInput, match=r"up to order 64\. Got order 65"):
        batched.potrf(large, variant=Variant(chunk=0, block=(32, 1, 1)))
    with pytest.raises(gx.InvalidInput, match=r"may have 255 registers.*take more lanes"):
        batched.potrf(large[:, :64, :64], variant=Variant(chunk=0, block=(8, 1, 4)))
    with pytest.raises(gx.InvalidInput, match=r"may have 128 registers.*take fewer matrices"):
        batched.potrf(large[:, :48, :48], variant=Variant(chunk=0, block=(32, 1, 16)))
    a = cupy.asarray(positive_definite(3, 9, np.float64))
    for variant, message in (
        (Variant(chunk=0, panel=3), r"powers of two.*Got \(\)"),
        (Variant(chunk=0, panel=10, block=(32, 1, 1)), "`panel` must be 1 to 9"),
        (Variant(chunk=0, block=(8, 1)), r"powers of two.*Got \(8, 1\)"),
        (Variant(chunk=0, block=(8, 2, 4)), r"must be \(lanes, 1, matrices\), .*Got \(8, 2, 4\)"),
        (Variant(chunk=0, block=(8, 1, 3)), r"a multiple of 32\. Got \(8, 1, 3\)"),
        (Variant(chunk=0, block=(32, 1, 1)), "Got 32 lanes for order 9"),
        (Variant(chunk=0, block=(8.0, 1, 4)), r"integers of type int. Got \(8.0, 1, 4\)"),
        (Variant(chunk=0, block=(1, 1, 2048)), "may have 1024 threads on this GPU. Got 2048"),
        (Variant(chunk=0, panel=3, block=(4, 1, 1)), "whole warps of 32 threads. Got 4"),
        (Variant(chunk=1, panel=3, block=(4, 1, 8)), "`panel` and `block` are for chunk=0"),
    ):
        with pytest.raises(gx.InvalidInput, match=message):
            batched.potrf(a, variant=variant)
    for variant in (Variant(), PANELS[3][1], Variant(chunk=0, block=(32, 1, 17))):
        with pytest.raises(gx.InvalidInput, match=r"takes Variant\(chunk=0\), or"):
            batched.solve(a, a, variant=variant)


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_warps_substitute_with_the_bits_of_the_cpu(dtype):
    import cupy

    for n, columns in ((1, 1), (9, 5), (32, 1), (33, 4), (64, 9), (100, 2), (128, 1)):
        lower = batched.potrf(positive_definite(6, n, dtype))
        b = np.random.default_rng(n).standard_normal((6, n, columns)).astype(dtype)
        for call, variant in product((batched.solve, batched.forward, batched.backward), WARPS):
            found = call(cupy.asarray(lower), cupy.asarray(b), variant=variant)
            np.testing.assert_array_equal(found.get(), call(lower, b))


@pytest.mark.gpu
@pytest.mark.parametrize("layout", [by_columns, batch_last, part_of_a_larger])
def test_warps_substitute_in_any_layout(layout):
    import cupy

    n = 37
    lower = batched.potrf(positive_definite(5, n, np.float64))
    garbage = np.triu(np.full((n, n), np.nan), 1)
    b = np.random.default_rng(n).standard_normal((5, n, 3))
    b[1, n - 1, 0] = np.inf
    found = batched.solve(layout(cupy, lower + garbage), layout(cupy, b), variant=WARPS[1])
    np.testing.assert_array_equal(found.get(), batched.solve(lower, b))
    vectors = batched.forward(cupy.asarray(lower), cupy.asarray(b[:, :, 1]), variant=WARPS[0])
    np.testing.assert_array_equal(vectors.get(), batched.forward(lower, b[:, :, 1]))


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
        a = positive_definite(sized(35, 35 if n < 64 else 5), n, dtype)
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
        batch = sized(4096, 70 if n < 17 else 7) + n % 2
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


@pytest.mark.slow
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


@pytest.mark.slow
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
def test_small_orders_have_rows_in_registers_and_large_ones_a_block(tmp_path, monkeypatch):
    monkeypatch.setenv("GEOMXP_CACHE_DIR", str(tmp_path))
    for n, dtype in product(range(1, batched.LARGEST_ORDER + 1), (np.float64, np.float32)):
        shipped = batched.variant_for(n, dtype, "gpu")
        assert (shipped == batched.BLOCK_PER_MATRIX) == (n > 48)
        if n <= 48:
            lanes = shipped.block[0]
            assert shipped in batched_gpu.rows(n, dtype, batched_gpu.limits(), lanes)
        assert not batched.variant_for(n, dtype, "gpu", layout="interleaved").block
    for n in (4, 16, 17, 128):
        assert batched.BLOCK_PER_MATRIX in batched.candidates(n, "gpu")


@pytest.mark.gpu
@pytest.mark.parametrize(("shared", "largest"), [(49_152, 104), (65_536, 124)])
def test_matrices_that_exceed_shared_memory_are_in_global_memory(
    shared, largest, tmp_path, monkeypatch
):
    import cupy

    monkeypatch.setenv("GEOMXP_CACHE_DIR", str(tmp_path))
    limits = replace(batched_gpu.limits(), block_shared=shared)
    monkeypatch.setattr(batched_gpu, "_limits", lambda device: limits)
    batched_gpu._plan.cache_clear()
    for n in (largest, largest + 1):
        exceeds = n > largest
        assert (batched.variant_for(n, np.float64, "gpu") != batched.BLOCK_PER_MATRIX) == exceeds
        assert (batched.BLOCK_PER_MATRIX in batched.candidates(n, "gpu")) != exceeds
    a = positive_definite(3, largest + 1, np.float64)
    b = np.random.default_rng(0).standard_normal((3, largest + 1))
    for n in (104, 108, 120, 124, 128):
        solves = batched.variant_for(n, np.float64, "gpu", what="solve")
        assert (solves == batched.BLOCK_PER_MATRIX) == (n <= min(largest, 120))
    lower = batched.potrf(cupy.asarray(a))
    np.testing.assert_array_equal(lower.get(), batched.potrf(a))
    solution = batched.solve(lower, cupy.asarray(b)).get()
    np.testing.assert_allclose(np.einsum("bij,bj->bi", a, solution), b, atol=1e-10)
    message = f"at most {shared} bytes of shared memory on this GPU.*Leave `variant` out"
    with pytest.raises(gx.InvalidInput, match=message):
        batched.potrf(cupy.asarray(a), variant=batched.BLOCK_PER_MATRIX)
    with pytest.raises(gx.InvalidInput, match=message):
        batched.solve(lower, cupy.asarray(b), variant=batched.BLOCK_PER_MATRIX)
    batched_gpu._plan.cache_clear()


@pytest.mark.gpu
def test_a_search_on_a_gpu_remembers_its_winner(tmp_path, monkeypatch):
    monkeypatch.setenv("GEOMXP_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(
        batched,
        "race",
        lambda variants, *_: {v: 1.0 + (v != batched.BLOCK_PER_MATRIX) for v in variants},
    )
    among = Variant("left", 2), batched.BLOCK_PER_MATRIX
    winner, _ = batched.search(12, np.float64, "gpu", batch=64, among=among)
    assert winner == batched.BLOCK_PER_MATRIX
    assert batched.variant_for(12, np.float64, "gpu") == batched.BLOCK_PER_MATRIX
    assert batched.variant_for(12, np.float64) != batched.BLOCK_PER_MATRIX


@pytest.mark.slow
@pytest.mark.gpu
def test_a_search_goes_on_with_other_blocks_of_the_best_panel_width(tmp_path, monkeypatch):
    raced, n = [], 4
    shapes = batched_gpu.panels(n, np.float64, batched_gpu.limits())[2][
        : batched.COMPARED_BLOCK_SHAPES
    ]
    best = shapes[2]

    def race(variants, *_):
        raced.append(list(variants))
        return {v: 1.0 - 0.3 * (v == shapes[0]) - 0.5 * (v == best) for v in variants}

    monkeypatch.setenv("GEOMXP_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(batched, "race", race)
    winner, _ = batched.search(n, np.float64, "gpu", batch=8)
    assert raced[0] == [Variant(), *(v for v in batched.candidates(n, "gpu") if v != Variant())]
    assert raced[1] == shapes
    assert raced[2] == [Variant(), best]
    assert winner == batched.variant_for(n, np.float64, "gpu") == best


@pytest.mark.slow
@pytest.mark.gpu
def test_a_search_for_substitutions_is_remembered_apart(tmp_path, monkeypatch):
    import cupy

    monkeypatch.setenv("GEOMXP_CACHE_DIR", str(tmp_path))
    assert batched.variant_for(12, np.float32, "gpu", what="solve") == batched.BLOCK_PER_MATRIX
    winner, seconds = batched.search(12, np.float32, "gpu", batch=10, rounds=1, what="solve")
    assert set(seconds) == {batched.BLOCK_PER_MATRIX, *batched_gpu.warps(batched_gpu.limits())}
    assert winner == batched.variant_for(12, np.float32, "gpu", what="solve")
    before = batched.variant_for(12, np.float32, "gpu")
    batched.remember(12, np.float32, WARPS[1], "gpu", what="solve")
    assert batched.variant_for(12, np.float32, "gpu") == before
    lower = batched.potrf(positive_definite(5, 12, np.float32))
    with machine.counting() as counted:
        found = batched.solve(cupy.asarray(lower), cupy.asarray(lower[:, 0]))
    # a GPU counts nothing
    assert counted["kernel solve_by_warps_fp32"] == sized(0, 1)
    np.testing.assert_array_equal(found.get(), batched.solve(lower, lower[:, 0]))


def test_fast_variants_are_not_remembered(tmp_path, monkeypatch):
    monkeypatch.setenv("GEOMXP_CACHE_DIR", str(tmp_path))
    with pytest.raises(gx.InvalidInput, match="Compare fast variants with `race`"):
        batched.search(9, np.float64, "gpu", among=[Variant(fast=True)])
    batched.remember(9, np.float64, Variant(fast=True))
    with pytest.warns(gx.GeomxpWarning, match="an entry is not a variant"):
        assert batched.variant_for(9, np.float64) != Variant(fast=True)


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


@pytest.mark.slow
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
    for variant in (batched.BLOCK_PER_MATRIX, PANELS[1][1], Variant(panel=5)):
        with pytest.raises(gx.InvalidInput, match="chunk=0, which is for matrices that are not"):
            batched.potrf_interleaved(chunks, variant=variant)
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
    assert batched.variant_for(6, np.float64, "gpu", layout="interleaved") == winner
    assert batched.variant_for(6, np.float64, "gpu") == Variant(chunk=0, block=(4, 1, 16))


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [80, 90])
def test_interleaved_substitutions_compile_without_warnings(architecture):
    code, log, ptx = compiled(batched_gpu.substitution_text(), architecture)
    assert (code, log) == (0, "")
    assert set(re.findall(r"\.entry (\w+)\(", ptx)) == {"substitute_fp64", "substitute_fp32"}
    assert ".ftz" not in ptx
