"""Formats in CUDA: compiled without a GPU; the arithmetic on the host; tiles on a GPU."""

import ctypes
import re

import ml_dtypes
import numpy as np
import pytest
import scipy.linalg
from compilers import compiled, library

import geomxp as gx
from geomxp import cuda
from geomxp.likelihood.factors import tile_factor
from geomxp.linalg import gpu, mixed, products_gpu
from geomxp.linalg.formats import (
    BF16,
    FORMATS,
    FP8,
    FP16,
    FP32,
    FP64,
    LARGEST_EXPONENT,
    TF32,
    Tile,
    cast,
    in_planes,
    quantize,
)
from geomxp.linalg.mixed import cast_formats, subtract_product
from geomxp.tiles import assemble
from geomxp.tiles.cholesky import left_looking, run
from geomxp.tiles.placement import Placement
from geomxp.tiles.stores import InCore

REFERENCES = {FP16: np.float16, BF16: ml_dtypes.bfloat16, FP8: ml_dtypes.float8_e4m3fn}
COARSE = [FP32, TF32, BF16, FP16, FP8]
HOST = """
#include "quantize.cuh"

#define EACH(name, From, To, value)                        \\
    void name(const From *numbers, long long n, To *out)   \\
    {                                                      \\
        for (long long i = 0; i < n; ++i) {                \\
            From x = numbers[i];                           \\
            out[i] = value;                                \\
        }                                                  \\
    }
#define INTO_FORMATS(From, x32)                                            \\
    EACH(From##_to_tf32, From, float, tf32_number(x32))                    \\
    EACH(From##_to_bf16, From, unsigned short, bf16_bits(x32))             \\
    EACH(From##_to_fp16, From, unsigned short, fp16_bits_saturated(x32))   \\
    EACH(From##_to_fp8, From, unsigned char, fp8_bits(x32))
INTO_FORMATS(float, product_fp32(x, 1.0f))
INTO_FORMATS(double, rounded_fp32(x))
EACH(from_fp16, unsigned short, double, widened_fp64(fp16_number(x)))
EACH(from_bf16, unsigned short, double, widened_fp64(bf16_number(x)))
EACH(from_fp8, unsigned char, double, widened_fp64(fp8_number(x)))
EACH(fp8_to_fp16, unsigned char, unsigned short, fp8_as_fp16(x))
"""


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [80, 90])
def test_kernels_compile_without_warnings_and_flush_no_subnormal_number(architecture):
    code, log, ptx = compiled(cuda.source("quantize.cu"), architecture)
    assert (code, log) == (0, "")
    assert ".ftz" not in ptx


@pytest.mark.slow
def test_there_is_a_kernel_for_each_source_and_format():
    _, _, ptx = compiled(cuda.source("quantize.cu"), 90)
    wide = ("fp64", "fp32")
    scaled = {f"{source}_to_{form}" for source in wide for form in ("fp16", "fp8")}
    scaled |= {f"{form}_to_{target}" for form in ("fp16", "fp8") for target in wide}
    expected = {f"exponent_{source}" for source in wide} | scaled
    expected |= {"factors", "factors_of_pairs", "fp8_to_fp16", "fp32_to_fp8_by_rows"}
    expected |= {"fp64_to_fp8_by_rows"}
    planes = {f"{form}_to_planes" for form in wide} | {f"planes_to_{form}" for form in wide}
    expected |= planes | {f"{name}_by_pointer" for name in planes}
    expected |= {
        f"{source}_to_{form}" for source in wide for form, about in FORMATS.items() if about.encode
    }
    expected |= {f"{source}_to_{target}" for source in wide for target in wide}
    expected |= {f"bf16_to_{target}" for target in wide}
    expected |= {f"{name}_by_pointer" for name in scaled}
    assert set(re.findall(r"\.entry (\w+)\(", ptx)) == expected


def test_python_and_the_kernels_have_the_same_constants():
    text = cuda.source("quantize.cu")
    assert f"#define THREADS {gpu.THREADS}\n" in text
    assert f"#define SQUARE_SIDE {gpu.SQUARE_SIDE}\n" in text
    assert f"#define LARGEST_EXPONENT {LARGEST_EXPONENT}\n" in text


@pytest.fixture(scope="module")
def on_host(tmp_path_factory):
    """The device functions, compiled for the host: on_host(name, numbers, dtype)."""
    folder = tmp_path_factory.mktemp("quantize")
    (folder / "quantize.cuh").write_text(cuda.source("quantize.cuh"))
    functions = library(folder / "host.c", HOST, "-O2")

    def call(name, numbers, dtype):
        out = np.empty(len(numbers), dtype)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (numbers, out)]
        getattr(functions, name)(pointers[0], ctypes.c_longlong(len(numbers)), pointers[1])
        return out

    return call


def every(form):
    """All bits of a format of one or two bytes, and the numbers that they stand for."""
    bits = np.arange(2 ** (8 * form.bytes), dtype=f"u{form.bytes}")
    with np.errstate(invalid="ignore"):  # NaNs among them
        return bits, bits.view(REFERENCES[form]).astype(np.float64)


def awkward(form):
    """FP32 numbers: a format's own, the middles between them and their neighbours, random bits."""
    _, own = every(form)
    own = np.unique(own[np.isfinite(own)]).astype(np.float32)
    middle = own[:-1] / 2 + own[1:] / 2
    beside = [np.nextafter(middle, np.float32(end)) for end in (-np.inf, np.inf)]
    rng = np.random.default_rng(1)
    drawn = rng.integers(0, 2**32, 300_000, dtype=np.uint32).view(np.float32)
    near = np.ldexp(rng.random(100_000) - 0.5, rng.integers(-32, 20, 100_000)).astype(np.float32)
    ends = np.float32([0.0, 1e-45, 1e-40, 3.4028235e38, 65504, 65519.99, 65520, 448, 464, 465])
    every_one = np.concatenate((own, middle, *beside, drawn, near, ends, -ends))
    return every_one[np.isfinite(every_one)]


def reference_bits(numbers, form):
    """What NumPy or ml_dtypes stores; beyond the largest number of FP16 and FP8 that number."""
    if form is not BF16:
        numbers = np.clip(numbers, -form.largest, form.largest)
    with np.errstate(over="ignore"):  # BF16 rounds FP32's largest numbers to infinity
        return numbers.astype(REFERENCES[form]).view(f"u{form.bytes}")


@pytest.mark.parametrize("form", REFERENCES, ids=str)
def test_rounding_is_that_of_the_reference_bit_for_bit(on_host, form):
    numbers = awkward(form)
    found = on_host(f"float_to_{form}", numbers, f"u{form.bytes}")
    np.testing.assert_array_equal(found, reference_bits(numbers, form))


def test_tf32_has_eleven_significant_bits_rounded_to_even(on_host):
    numbers = awkward(BF16)
    found = on_host("float_to_tf32", numbers, np.float32)
    _, exponent = np.frexp(numbers.astype(np.float64))
    # below FP32's normal numbers the last place stays where it is
    place = np.ldexp(1.0, np.maximum(exponent, -125) - 11)
    with np.errstate(over="ignore"):  # FP32's largest numbers are rounded to infinity
        expected = (np.rint(numbers / place) * place).astype(np.float32)
    np.testing.assert_array_equal(found, expected)
    assert not (found.view(np.uint32) & 0x1FFF).any()


@pytest.mark.parametrize("form", REFERENCES, ids=str)
def test_infinities_go_to_the_end_of_the_range_and_nans_stay(on_host, form):
    quiet, late = np.float32(np.nan), np.uint32(0x7F800001).view(np.float32)
    numbers = np.array([np.inf, -np.inf, quiet, -quiet, late], np.float32)
    bits = on_host(f"float_to_{form}", numbers, f"u{form.bytes}")
    found = on_host(f"from_{form}", bits, np.float64)
    end = np.inf if form is BF16 else form.largest
    np.testing.assert_array_equal(found[:2], [end, -end])
    assert np.isnan(found[2:]).all()
    assert np.isnan(on_host("float_to_tf32", numbers[2:], np.float32)).all()


@pytest.mark.parametrize("form", REFERENCES, ids=str)
def test_widening_is_exact_for_all_numbers(on_host, form):
    bits, expected = every(form)
    np.testing.assert_array_equal(on_host(f"from_{form}", bits, np.float64), expected)


def test_fp16_holds_all_numbers_of_fp8(on_host):
    bits, numbers = every(FP8)
    known = np.isfinite(numbers)
    wide = on_host("fp8_to_fp16", bits, np.uint16).view(np.float16)
    np.testing.assert_array_equal(wide[known] * 2.0**8, numbers[known])


@pytest.mark.parametrize("source", ["float", "double"])
@pytest.mark.parametrize("form", [TF32, BF16, FP16, FP8], ids=str)
def test_the_bits_are_those_of_the_cpu(on_host, form, source):
    numbers = awkward(FP16)
    if source == "double":
        # between two FP32 numbers, so that FP64 is rounded twice
        numbers = numbers * (1 + np.random.default_rng(3).uniform(-1, 1, len(numbers)) * 2.0**-24)
        numbers = numbers[abs(numbers) < FP32.largest]
    found = on_host(f"{source}_to_{form}", numbers, f"u{form.bytes}")
    expected = cast(numbers[:, None], form).values[:, 0]
    np.testing.assert_array_equal(found, expected.view(f"u{form.bytes}"))


# from here on with a GPU ----------------------------------------------------------------------


def on_gpu(array):
    import cupy

    return cupy.asarray(array, order="F")


def spread(shape, dtype, size=1.0):
    """Numbers of many sizes, some of them subnormal in FP32."""
    rng = np.random.default_rng(5)
    numbers = np.ldexp(rng.random(shape) - 0.5, rng.integers(-30, 1, shape)) * size
    numbers.flat[::17] *= 1e-40
    return np.asfortranarray(numbers.astype(dtype))


def assert_equal_tiles(found, expected):
    """A tile of the GPU and one of the CPU: format, exponent, bits, order in memory."""
    assert found.form is expected.form
    assert found.exponent == expected.exponent
    assert found.values.flags.f_contiguous
    values = found.values.get()
    assert values.dtype == expected.values.dtype
    unsigned = f"u{values.itemsize}"
    np.testing.assert_array_equal(values.view(unsigned), expected.values.view(unsigned))


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("size", [1.0, 1e-9, 3e7])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("form", FORMATS.values(), ids=str)
def test_gpu_quantizes_and_widens_with_the_bits_of_the_cpu(form, dtype, size, scale):
    # neither whole blocks nor whole warps
    array = spread((301, 77), dtype, size)
    expected = quantize(array, form, scale=scale)
    found = quantize(on_gpu(array), form, scale=scale)
    assert_equal_tiles(found, expected)
    for wide in (np.float64, np.float32):
        again = found.widen(wide)
        assert again.flags.f_contiguous
        np.testing.assert_array_equal(again.get(), expected.widen(wide))


@pytest.mark.gpu
@pytest.mark.parametrize("form", REFERENCES, ids=str)
def test_gpu_rounds_all_awkward_numbers_as_the_reference(form):
    numbers = awkward(form)
    found = quantize(on_gpu(numbers[:, None]), form, scale=False).values.get()[:, 0]
    np.testing.assert_array_equal(found.view(f"u{form.bytes}"), reference_bits(numbers, form))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
def test_gpu_refuses_what_the_cpu_refuses_in_the_same_words(value, dtype):
    array = np.ones((300, 70), dtype, order="F")
    array[-1, -1] = value
    with pytest.raises(gx.InvalidInput) as on_cpu:
        quantize(array, "fp8")
    with pytest.raises(gx.InvalidInput, match=str(on_cpu.value)):
        quantize(on_gpu(array), "fp8")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_gpu_finds_the_largest_magnitude_in_every_warp(dtype):
    for place in range(0, 512, 32):
        array = np.ones((512, 1), dtype)
        array[place] = -2.0 - place
        assert gpu.CUPY.largest(on_gpu(array)) == 2.0 + place


def stored_by_rows(array, form, exponent):
    """A tile of FP8 in C order, as its matrix units read it."""
    import cupy

    values = cupy.empty(array.shape, form.dtype)
    gpu.CUPY.round_into(values, array, form, exponent)
    return Tile(form, values, exponent)


MAGNITUDES = [
    *(0.0, 1.0, 0.99999997, 2.0, 3.0, 448.0, 65504.0, 1e-30, 1e30, 2.0**-120, 2.0**127, 1e38),
    *(2.0**-126, 1e-40, 2.0**-149, np.inf, np.nan),
]
"""Of FP32: both sides of powers of two, subnormal numbers, numbers whose exponents are clipped."""


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("form", [*FORMATS.values(), None], ids=str)
def test_an_exponent_that_a_gpu_finds_is_that_of_the_cpu(form, dtype):
    largest = np.array(MAGNITUDES + [5e-324, 1e-310, 1e300] * (dtype is np.float64), dtype)
    found = gpu.Exponents(len(largest))
    for number, value in enumerate(largest):
        array = np.full((70, 11), value / 4 if np.isfinite(value) else 0.5, dtype, order="F")
        array[number, number % 11] = -value
        found.find(number, on_gpu(array), form)
    bits, exponents, _ = found.fetch()
    for value, word, (own, as_fp16) in zip(largest, bits, exponents, strict=True):
        np.testing.assert_equal(gpu.magnitude_of(word, dtype), float(value))
        expected = 0 if form is None else form.exponent_for(float(value))
        assert own == expected
        assert as_fp16 == expected - 8 * (form is FP8)


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(301, 77), (1, 40), (40, 1), (64, 32)], ids=str)
@pytest.mark.parametrize("form", FORMATS.values(), ids=str)
def test_bits_do_not_depend_on_where_the_exponent_is(form, shape, dtype):
    for size in (1e-9, 3e7):
        array = spread(shape, dtype, size)
        there, known = on_gpu(array), quantize(array, form)
        exponent = gpu.Exponents(1).find(0, there, form)
        tile = cast(there, form, exponent)
        np.testing.assert_array_equal(tile.values.get(), known.values)
        if form.top is not None:
            for wide in (np.float64, np.float32):
                np.testing.assert_array_equal(tile.widen(wide).get(), known.widen(wide))
        if form is FP8:
            as_fp16 = tile.in_wider()
            np.testing.assert_array_equal(as_fp16.widen().get(), known.widen())
        if form is FP8 and dtype is np.float32:
            rows = stored_by_rows(there, FP8, exponent)
            assert rows.values.flags.c_contiguous
            np.testing.assert_array_equal(rows.values.get(), known.values)
            np.testing.assert_array_equal(rows.widen().get(), known.widen())
            as_fp16 = rows.in_wider()
            assert as_fp16.values.flags.c_contiguous
            np.testing.assert_array_equal(as_fp16.widen().get(), known.widen())


@pytest.mark.gpu
def test_a_cast_has_an_exponent_beside_the_arrays_own_or_none():
    found, array = gpu.Exponents(3, more=2), on_gpu(np.full((5, 4), 3.0))
    found.find(0, array, FP16, own=False)
    found.find(1, array, FP8, scale=False)
    found.find(2, array, None)
    found.more[1] = 7
    _, exponents, more = found.fetch()
    assert exponents.tolist() == [[0, 13], [0, -8], [0, 0]]
    assert more.tolist() == [0, 7]


@pytest.mark.gpu
def test_an_array_that_is_forgotten_can_be_looked_at_again():
    found = gpu.Exponents(3, more=1)
    for number in range(3):
        found.find(number, on_gpu(np.full((5, 4), 100.0)), FP16)
    found.more[0] = 1
    found.forget([0, 2])
    for number in range(3):
        found.find(number, on_gpu(np.ones((900, 4))), FP16)
    _, exponents, more = found.fetch()
    assert exponents[:, 0].tolist() == [14, 8, 14]
    assert more.tolist() == [0]


@pytest.mark.gpu
def test_gpu_takes_a_matrix_of_zeros():
    for form in FORMATS.values():
        assert_equal_tiles(
            quantize(on_gpu(np.zeros((3, 2))), form), quantize(np.zeros((3, 2)), form)
        )


@pytest.mark.gpu
def test_gpu_widens_fp8_to_fp16_exactly():
    tile = quantize(on_gpu(spread((50, 30), np.float32)), FP8)
    wide = tile.in_wider()
    assert wide.form is FP16
    np.testing.assert_array_equal(wide.widen().get(), tile.widen().get())


@pytest.mark.gpu
def test_gpu_widens_parts_of_fp8_arrays_to_fp16():
    tile = quantize(on_gpu(spread((50, 30), np.float32)), FP8)
    found = gpu.CUPY.as_wider(tile.values[10:40, 5:25], FP8)
    np.testing.assert_array_equal(found.get(), tile.in_wider().values.get()[10:40, 5:25])


@pytest.mark.gpu
@pytest.mark.parametrize("planes", [False, True])
def test_gpu_casts_once_for_each_arithmetic(planes):
    values = spread((40, 40), np.float64)
    wanted = cast_formats({FP64, FP32, FP16, FP8}, planes)
    assert wanted == ({FP32: True} if planes else {FP32: False, FP16: False})
    for form, split in wanted.items():
        found = quantize(on_gpu(values), form, split=split)
        assert_equal_tiles(found, quantize(values, form, split=split))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("known", [True, False])
def test_gpu_splits_fp32_into_the_planes_of_the_cpu(dtype, known):
    numbers = spread((37, 29), dtype)
    tile = quantize(numbers, FP32, split=True)
    array = on_gpu(numbers)
    exponent = tile.exponent if known else gpu.Exponents(1).find(0, array, FP16)
    found = cast(array, FP32, exponent, split=True)
    assert found.split
    np.testing.assert_array_equal(found.values.get(), tile.values)
    assert tile.values[:, :, 1].any()
    for kind in (np.float32, np.float64):
        np.testing.assert_array_equal(found.widen(kind).get(), tile.widen(kind))


@pytest.mark.gpu
@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("columns", [0, 256])
@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_gpu_multiplies_planes_to_the_accuracy_of_fp32(columns, beta, there):
    """With `there`, the exponents of the planes are on the GPU."""
    rng = np.random.default_rng(3)
    a, b, c = (np.asfortranarray(rng.random(s)) for s in ((30, 600), (20, 600), (30, 20)))
    out = on_gpu(c.astype(np.float32) if beta else np.full(c.shape, np.nan, np.float32))
    left, right = (quantize(on_gpu(x), FP32, split=True) for x in (a, b))
    if there:
        wide = [on_gpu(x.astype(np.float32)) for x in (a, b)]
        left, right = (cast(x, FP32, gpu.Exponents(1).find(0, x, FP16), split=True) for x in wide)
    subtract_product(out, left, right, FP32, beta=beta, columns=columns)
    expected = beta * c.astype(np.float32) - a @ b.T
    # the planes hold 2^-22 of the largest entry, and 600 sums are rounded
    assert abs(out.get() - expected).max() <= 600 * 2.0**-21
    # one product of FP16 numbers would be off by this much
    assert abs(a @ b.T - half(a) @ half(b).T).max() > 600 * 2.0**-21


@pytest.mark.gpu
@pytest.mark.parametrize("wrong", [np.inf, -np.inf, np.nan])
def test_planes_do_not_hide_numbers_that_are_not_finite(wrong):
    numbers = np.ones((4, 3), np.float32, order="F")
    numbers[1, 2] = wrong
    tile = cast(on_gpu(numbers), FP32, 3, split=True)
    found = tile.widen().get()
    assert not np.isfinite(found[1, 2])
    assert np.isfinite(np.delete(found, 1, axis=0)).all()
    out = on_gpu(np.zeros((4, 4), np.float32))
    assert not np.isfinite(subtract_product(out, tile, tile, FP32).get()[1]).any()


def half(x):
    return x.astype(np.float16).astype(np.float64)


@pytest.mark.gpu
def test_gpu_multiplies_planes_with_fp32_numbers():
    rng = np.random.default_rng(4)
    a, b = (np.asfortranarray(rng.random(s)) for s in ((12, 40), (9, 40)))
    out = on_gpu(np.zeros((12, 9), np.float32))
    subtract_product(out, quantize(on_gpu(a), FP32, split=True), quantize(on_gpu(b), FP32), FP32)
    np.testing.assert_allclose(out.get(), -a @ b.T, rtol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("n", [128, 96])
@pytest.mark.parametrize(
    ("columns", "form"), [(0, FP32), (256, in_planes(256)), (256, FP16)], ids=str
)
def test_gpu_solves_with_inverses_in_planes(columns, form, n):
    """With 128 rows, quarters of the leaf are inverted all at once; with 96, one by one."""
    rng = np.random.default_rng(5)
    places = rng.random((n, 2))
    sigma = gx.Matern(1.0, 0.1, 0.5)(places, places) + 0.01 * np.eye(n)
    lower = np.asfortranarray(scipy.linalg.cholesky(sigma, lower=True))
    c = np.asfortranarray(rng.uniform(-1, 1, (40, n)))
    diagonal = Tile(FP64, on_gpu(lower))
    found = mixed.trsm(on_gpu(c.astype(np.float32)), diagonal, form, columns=columns).get()
    error = abs(found @ lower.T - c).max()
    assert error < (2e-2 if form is FP16 else 2e-5)


def test_fp32_is_planes_where_a_tolerance_chose_the_formats():
    norms = np.diag(np.ones(8)) + 1e-2
    columns = [
        mixed.columns_of_sum(gx.by_tile_norm(eps)(norms)) for eps in (1e-4, 1e-5, 1e-6, 1e-9)
    ]
    assert columns == [1024, 1024, 256, 0]
    # formats that the caller prescribes are used as they are
    assert not any(mixed.columns_of_sum(gx.uniform(f)(norms)) for f in ("fp32", "fp16", "fp64"))


@pytest.mark.gpu
def test_a_shape_for_which_cublaslt_has_no_kernel_has_no_plan():
    # rows of FP8 must be multiples of 16 bytes apart
    assert products_gpu.plan(FP8, 0, 16, 16, 16, (24, 16, 16)) is None


SHAPES = [(1, 1, 1), (48, 32, 64), (64, 48, 1024), (37, 29, 21), (16, 30, 160)]
"""(m, n, k), some of multiples of 16, which is where FP8 has products of its own."""


def tiles_of(numbers, form):
    """The same tile on the CPU and on the GPU."""
    return quantize(numbers, form), quantize(on_gpu(numbers), form)


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("left", COARSE, ids=str)
@pytest.mark.parametrize("right", COARSE, ids=str)
def test_gpu_multiplies_small_integers_exactly(left, right, shape):
    (m, n, k), rng = shape, np.random.default_rng(7)
    # times powers of two; no sum is beyond 2^11, which even the shortest accumulator holds
    a, b, c = (
        np.asfortranarray(rng.integers(-largest, largest + 1, size) * 2.0**unit)
        for largest, size, unit in ((1, (m, k), 2), (1, (n, k), -30), (9, (m, n), -28))
    )
    out = on_gpu(c.astype(np.float32))
    form = mixed.arithmetic(out, left, right)
    assert subtract_product(out, tiles_of(a, left)[1], tiles_of(b, right)[1], form) is out
    np.testing.assert_array_equal(out.get(), c - a @ b.T)


def tile_with_exponents_on_a_gpu(numbers, form, by_rows):
    """A tile as `tiles.on_gpu` stores it, with its exponent and that of its numbers in FP16."""
    array = on_gpu(numbers.astype(np.float32))
    exponents = gpu.Exponents(1).find(0, array, form)
    return (stored_by_rows if by_rows else cast)(array, form, exponents)


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("beta", [0.0, 1.0])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("left", [FP16, FP8], ids=str)
@pytest.mark.parametrize("right", [FP16, FP8], ids=str)
def test_products_do_not_depend_on_where_the_exponents_are(left, right, shape, beta, given):
    (m, n, k), rng = shape, np.random.default_rng(12)
    a, b, c = (np.asfortranarray(rng.standard_normal(size)) for size in ((m, k), (n, k), (m, n)))
    b *= 1e-7
    form = mixed.arithmetic(np.zeros((1, 1), np.float32), left, right)
    tiles = tiles_of(a.astype(np.float32), left)[1], tiles_of(b.astype(np.float32), right)[1]
    product = subtract_product
    expected = product(on_gpu(c.astype(np.float32)), *tiles, form, beta=beta).get()
    for rows in ((False, False), (True, False), (True, True)):
        there = [
            tile_with_exponents_on_a_gpu(x, f, by_rows and f is FP8)
            for x, f, by_rows in zip((a, b), (left, right), rows, strict=True)
        ]
        alpha = ()
        if given:
            alpha = (gpu.factors(*(tile.exponent for tile in there), -1.0),)
        out = on_gpu(c.astype(np.float32) if beta else np.full((m, n), np.nan, np.float32))
        found = product(out, *there, form, *alpha, beta=beta).get()
        # rows are multiplied as columns of the transpose, whose sums may have another order
        sizes = abs(there[0].widen().get()) @ abs(there[1].widen().get()).T
        bound = any(rows) * 2 * (k + 3) * FP32.unit_roundoff * (sizes + beta * abs(c))
        assert (abs(found - expected) <= bound).all()


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("form", COARSE, ids=str)
def test_gpu_products_have_the_error_of_their_sums(form, shape):
    (m, n, k), rng = shape, np.random.default_rng(8)
    a, b = (np.asfortranarray(rng.standard_normal((rows, k))) for rows in (m, n))
    c = np.asfortranarray(rng.standard_normal((m, n)).astype(np.float32))
    (a, a_tile), (b, b_tile) = tiles_of(a, form), tiles_of(b * 1e-3, form)
    found = subtract_product(on_gpu(c), a_tile, b_tile, form).get()
    expected = c - a.widen() @ b.widen().T
    sizes = abs(a.widen()) @ abs(b.widen()).T
    # units cut off rather than round; those for FP8 have 14 bits in part of the sum
    units = 2.0**-12 if form is FP8 else 0.0
    bound = (2 * (k + 3) * FP32.unit_roundoff + units) * sizes + 2.0**-23 * abs(c)
    assert (abs(found - expected) <= bound).all()


@pytest.mark.gpu
def test_gpu_multiplies_fp8_as_fp8_where_it_can():
    from cupy.cuda import Device

    if int(Device().compute_capability) < 89:
        pytest.skip("this GPU has no units for FP8")
    assert products_gpu.plan(FP8, Device().id, 128, 64, 256) is not None
    assert products_gpu.plan(FP8, Device().id, 128, 65, 256) is None


def positive_definite(n, dtype):
    """A matrix whose factor is known in closed form: t_ij = 2^-|i-j|."""
    lower = np.tril(2.0 ** -abs(np.subtract.outer(np.arange(n), np.arange(n))))
    return np.asfortranarray((lower @ lower.T).astype(dtype)), lower


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_gpu_factors_diagonal_tiles_and_leaves_zeros_above(dtype):
    sigma, lower = positive_definite(100, dtype)
    # what stands above the diagonal is not looked at
    sigma[np.triu_indices(100, 1)] = np.nan
    found = on_gpu(sigma)
    assert mixed.potrf(found) is found
    tolerance = 100 * np.finfo(dtype).eps
    np.testing.assert_allclose(found.get(), lower, rtol=0, atol=tolerance)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("value", "order"), [(-1.0, 41), (np.nan, None)])
def test_gpu_names_the_leading_minor_that_is_not_positive(dtype, value, order):
    sigma, _ = positive_definite(100, dtype)
    sigma[40, 40] = value
    with pytest.raises(gx.NotPositiveDefinite) as error:
        mixed.potrf(on_gpu(sigma))
    assert error.value.order == order or order is None
    info = on_gpu(np.zeros(1, np.int32))
    mixed.potrf(on_gpu(sigma), info)
    assert int(info[0]) == error.value.order


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_gpu_solves_and_subtracts_in_place_by_columns(dtype):
    _, lower = positive_definite(60, dtype)
    c = np.asfortranarray(np.random.default_rng(2).standard_normal((90, 60)).astype(dtype))
    form = FP32 if dtype is np.float32 else FP64
    diagonal = Tile(form, on_gpu(np.asfortranarray(lower.astype(dtype))))
    out = on_gpu(c)
    assert mixed.trsm(out, diagonal) is out
    expected = scipy.linalg.solve_triangular(lower, c.T, lower=True).T
    tolerance = 60 * np.finfo(dtype).eps * abs(expected).max()
    np.testing.assert_allclose(out.get(), expected, rtol=0, atol=tolerance)
    tile = Tile(form, out)
    square = on_gpu(np.zeros((90, 90), dtype, order="F"))
    found = mixed.gemm(square, [(tile, tile)], form)
    np.testing.assert_allclose(found.get(), -expected @ expected.T, rtol=0, atol=60 * tolerance)


def observed(n=700):
    rng = np.random.default_rng(11)
    return gx.Observations(rng.random((n, 2)), rng.standard_normal(n))


MODEL = gx.Matern(1.5, 0.1, 0.5, nugget=0.1)
RULES = [*map(gx.by_tile_norm, (1e-6, 1e-5, 1e-3)), *map(gx.uniform, FORMATS)]


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_gpus_factor_is_as_near_to_the_matrix_as_its_formats_promise(rule):
    seen = observed()
    factor = tile_factor(MODEL, seen, rule, tile=128, placement=Placement.of("gpu"))
    store = factor.store
    for pair in left_looking(store.layout.tiles):
        tile = store.final(*pair)
        assert tile.values.flags.f_contiguous or tile.form is FP8
    places = seen.locations[factor.order]
    sigma = MODEL(places, places) + MODEL.nugget * np.eye(len(places))
    lower = factor.dense()
    error = np.linalg.norm(lower @ lower.T - sigma) / np.linalg.norm(sigma)
    # what is stored has the formats' errors; sums have FP32's where a tile is below FP64
    sums = FP64 if factor.precision_map.all_fp64 else FP32
    allowed = 2 * factor.precision_map.error + len(places) ** 0.5 * sums.unit_roundoff
    assert error <= allowed


@pytest.mark.slow
@pytest.mark.gpu
def test_the_likelihood_on_a_gpu_is_that_of_the_cpu_to_the_accuracy_asked_for():
    accuracy, seen = 1e-6, observed()
    found, expected = (
        gx.log_likelihood(seen, MODEL, gx.Exact(gx.by_tile_norm(accuracy), tile=128, on=on))
        for on in ("gpu", "cpu")
    )
    sigma = MODEL(seen.locations, seen.locations) + MODEL.nugget * np.eye(len(seen))
    inverse = np.linalg.inv(sigma)
    # first order: |tr(Σ⁻¹E) - z'Σ⁻¹EΣ⁻¹z| / 2 for ‖E‖ <= 2ε‖Σ‖, once for each of the two
    weights = np.linalg.norm(inverse @ seen.values) ** 2
    bound = 2 * accuracy * np.linalg.norm(sigma) * (np.linalg.norm(inverse) + weights)
    assert abs(found.log_likelihood - expected.log_likelihood) <= bound


@pytest.mark.slow
@pytest.mark.gpu
def test_any_number_of_threads_gives_the_same_bits_on_a_gpu():
    seen = observed()
    factors = []
    for threads in (1, 4):
        originals = assemble.originals(MODEL, seen.locations, seen.metric, 128, 0)
        store = InCore(originals, gx.by_tile_norm(1e-4)(originals.norms()))
        order = list(left_looking(originals.layout.tiles))
        run(store, order, threads)
        factors.append([store.final(*tile) for tile in order])
    for one, other in zip(*factors, strict=True):
        assert one.exponent == other.exponent
        np.testing.assert_array_equal(one.values.get(), other.values.get())
