import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import geomxp as gx
from geomxp.linalg.backend import NUMPY
from geomxp.linalg.formats import BF16, FP8, FP16, FP32, FP64, TF32, Tile, cast, quantize

REFERENCES = {FP16: np.float16, BF16: ml_dtypes.bfloat16, FP8: ml_dtypes.float8_e4m3fn}
COARSE = (FP32, TF32, BF16, FP16, FP8)
SMALLEST_NORMAL = {FP32: 2.0**-126, TF32: 2.0**-126, BF16: 2.0**-126, FP16: 2.0**-14, FP8: 2.0**-6}

PATIENT = settings(deadline=None)
"""The first call compiles."""


def column(numbers, dtype=np.float64):
    return np.asfortranarray(np.asarray(numbers, dtype).reshape(-1, 1))


def every(form):
    """All finite numbers of a format."""
    bits = np.arange(2 ** (8 * form.bytes), dtype=f"u{form.bytes}")
    with np.errstate(invalid="ignore"):  # NaNs among them
        numbers = bits.view(REFERENCES[form]).astype(np.float64)
    return numbers[np.isfinite(numbers)]


def bits_of(numbers, form):
    """What the reference implementation stores, and saturated where it would overflow."""
    inside = np.clip(numbers, -form.largest, form.largest) if form is not BF16 else numbers
    with np.errstate(over="ignore"):  # BF16 rounds FP32's largest numbers to infinity
        return inside.astype(REFERENCES[form]).view(f"u{form.bytes}")


def stored_bits(numbers, form, **options):
    return quantize(column(numbers, np.float32), form, **options).values.view(f"u{form.bytes}")


def random_bits(count, seed=0):
    bits = np.random.default_rng(seed).integers(0, 2**32, count, dtype=np.uint32)
    numbers = bits.view(np.float32)
    return numbers[np.isfinite(numbers)]


def many_sizes(count, seed=0):
    """Random numbers in the normal and subnormal ranges of FP16 and FP8, and below."""
    rng = np.random.default_rng(seed)
    return np.ldexp(rng.random(count) - 0.5, rng.integers(-28, 10, count)).astype(np.float32)


def halfway(form):
    """The middles between all neighbours in a format, and the FP32 numbers around them."""
    numbers = np.unique(every(form))
    middles = ((numbers[:-1] + numbers[1:]) / 2).astype(np.float32)
    up, down = np.nextafter(middles, np.float32(np.inf)), np.nextafter(middles, np.float32(-np.inf))
    return np.concatenate((middles, up, down))


@pytest.mark.parametrize("form", REFERENCES, ids=str)
@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param(lambda form: random_bits(100_000), id="random bits"),
        pytest.param(lambda form: many_sizes(100_000), id="normal and subnormal"),
        pytest.param(halfway, id="halfway"),
        pytest.param(lambda form: np.float32([0.0, -0.0]), id="zeros"),
    ],
)
def test_rounding_is_that_of_the_reference_bit_for_bit(form, numbers):
    numbers = numbers(form)
    expected = bits_of(numbers, form)
    np.testing.assert_array_equal(stored_bits(numbers, form, scale=False)[:, 0], expected)


@pytest.mark.parametrize("form", [FP8, FP16], ids=str)
def test_unscaled_numbers_beyond_the_largest_become_the_largest(form):
    beyond = form.largest * np.array([1.0, 1.001, 1.03, 1.04, 2.0, 1e6, 1e30])
    tile = quantize(column(np.concatenate((beyond, -beyond))), form, scale=False)
    expected = np.repeat([form.largest, -form.largest], len(beyond))
    np.testing.assert_array_equal(tile.widen()[:, 0], expected)


@PATIENT
@given(arrays(np.float32, 50, elements=st.floats(-1e4, 1e4, width=32)))
def test_tf32_is_fp32_rounded_to_eleven_bits(numbers):
    fraction, exponent = np.frexp(numbers.astype(np.float64))
    expected = np.ldexp(np.rint(fraction * 2**11), exponent - 11)
    normal = abs(expected) >= SMALLEST_NORMAL[TF32]
    got = quantize(column(numbers, np.float32), TF32).widen()[:, 0]
    np.testing.assert_array_equal(got[normal], expected[normal])


@pytest.mark.parametrize("form", COARSE, ids=str)
@pytest.mark.parametrize("scale", [True, False])
def test_an_fp64_array_is_rounded_by_way_of_fp32(form, scale):
    numbers = np.random.default_rng(1).standard_normal(10_000)
    tile, by_way = (quantize(column(numbers, t), form, scale=scale) for t in ("f8", "f4"))
    np.testing.assert_array_equal(tile.values, by_way.values)
    assert tile.exponent == by_way.exponent


@pytest.mark.parametrize("form", REFERENCES, ids=str)
def test_every_number_of_a_format_comes_back_as_it_was(form):
    numbers = column(every(form))
    tile = quantize(numbers, form, scale=False)
    assert tile.values.nbytes == form.bytes * numbers.size
    for dtype in (np.float64, np.float32):
        np.testing.assert_array_equal(tile.widen(dtype), numbers.astype(dtype))


@pytest.mark.parametrize("form", REFERENCES, ids=str)
def test_every_number_of_a_format_alone_comes_back_through_its_scale(form):
    numbers = every(form)
    numbers = np.random.default_rng(2).permutation(numbers)[:500]
    for number in numbers:
        assert quantize(np.full((1, 1), number), form).widen()[0, 0] == number


@pytest.mark.slow
@pytest.mark.parametrize("form", COARSE, ids=str)
@PATIENT
@given(st.integers(0, 2**32 - 1), st.floats(-40, 40))
def test_error_is_a_unit_roundoff_of_the_entry_and_of_the_largest(form, seed, size):
    """The entry's where the scaled entry is normal, the largest entry's everywhere."""
    rng = np.random.default_rng(seed)
    numbers = rng.standard_normal(200) * 10.0 ** rng.uniform(-8, 0, 200)
    numbers = column(numbers * 2.0**size, np.float32)
    tile = quantize(numbers, form)
    error = abs(tile.widen() - numbers)
    normal = abs(numbers * 2.0**tile.exponent) >= SMALLEST_NORMAL[form]
    assert normal.any()
    assert (error[normal] <= form.unit_roundoff * abs(numbers[normal])).all()
    assert error.max() <= form.unit_roundoff * abs(numbers).max()


@pytest.mark.parametrize("form", COARSE, ids=str)
@pytest.mark.parametrize("size", [1e-9, 1e-20, 1e-30, 1e9, 1e30])
def test_arrays_of_any_size_are_stored_as_accurately_as_those_near_one(form, size):
    numbers = column(size * np.random.default_rng(3).uniform(0.1, 1.0, 500))
    tile = quantize(numbers, form)
    # twice rounded: to FP32, and to the format
    allowed = form.unit_roundoff * (1 + 2.0**-12) + FP32.unit_roundoff
    assert abs(tile.widen() / numbers - 1).max() <= allowed


@pytest.mark.parametrize("form", [FP8, FP16], ids=str)
@pytest.mark.parametrize("size", [1e-9, 1e-30])
def test_small_arrays_are_lost_without_a_scale(form, size):
    tile = quantize(np.full((3, 2), size, order="F"), form, scale=False)
    assert tile.exponent == 0
    np.testing.assert_array_equal(tile.widen(), np.zeros((3, 2)))


@pytest.mark.parametrize("size", [1.0, 1e-9, 1e-30, 1e9])
def test_two_fp16_planes_hold_twenty_two_bits(size):
    rng = np.random.default_rng(4)
    numbers = column(size * rng.standard_normal(5_000) * 10.0 ** rng.uniform(-6, 0, 5_000))
    tile = quantize(numbers, FP32, split=True)
    assert tile.split
    assert tile.values.nbytes == FP32.bytes * numbers.size
    for dtype in (np.float64, np.float32):
        assert abs(tile.widen(dtype) - numbers).max() <= 2.0**-22 * abs(numbers).max()


def test_planes_are_fp16_tiles_that_add_up():
    numbers = np.asfortranarray(np.random.default_rng(5).standard_normal((7, 5)))
    tile = quantize(numbers, FP32, split=True)
    high, low = (tile.plane(p).widen() for p in (0, 1))
    np.testing.assert_array_equal(high + low, tile.widen())
    np.testing.assert_array_equal(tile.plane(0).values, quantize(numbers, FP16).values)
    assert abs(low).max() <= FP16.unit_roundoff * abs(numbers).max()


@pytest.mark.parametrize("form", [FP8, FP16, FP32], ids=str)
@PATIENT
@given(st.integers(0, 2**32 - 1), st.integers(-40, 40))
def test_a_power_of_two_changes_the_exponent_and_no_bit_of_the_values(form, seed, power):
    numbers = column(np.random.default_rng(seed).standard_normal(40))
    plain, moved = (quantize(x, form, split=True) for x in (numbers, numbers * 2.0**power))
    np.testing.assert_array_equal(moved.values, plain.values)
    assert moved.exponent == plain.exponent - power
    np.testing.assert_array_equal(moved.widen(), plain.widen() * 2.0**power)


@pytest.mark.parametrize("form", [FP32, TF32, BF16], ids=str)
@PATIENT
@given(st.integers(-60, 60))
def test_formats_of_wide_range_scale_exactly_without_an_exponent(form, power):
    numbers = column(np.random.default_rng(6).standard_normal(40))
    plain, moved = (quantize(x, form) for x in (numbers, numbers * 2.0**power))
    assert plain.exponent == moved.exponent == 0
    np.testing.assert_array_equal(moved.widen(), plain.widen() * 2.0**power)


@pytest.mark.parametrize("form", [FP64, *COARSE], ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_refused_by_name(form, dtype, bad):
    array = np.ones((3, 2), dtype, order="F")
    array[1, 1] = bad
    with pytest.raises(gx.InvalidInput, match=f"a tile holds {abs(bad)}, which {form.name}"):
        quantize(array, form)


@pytest.mark.parametrize("form", COARSE, ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (5, 7), (600, 3)])
@pytest.mark.parametrize("split", [False, True])
def test_entries_stay_where_they_are(form, shape, split):
    numbers = np.asfortranarray(np.random.default_rng(7).standard_normal(shape))
    tile = quantize(numbers, form.name, split=split)
    assert tile.form is form
    assert tile.shape == shape
    for dtype in (np.float64, np.float32):
        wide = tile.widen(dtype)
        assert wide.dtype == dtype
        assert wide.flags.f_contiguous
        bound = max(form.unit_roundoff, FP32.unit_roundoff) * (1 + 2.0**-10)
        bound = 2.0**-22 if tile.split else bound
        assert abs(wide - numbers).max() <= bound * abs(numbers).max()
        out = np.full(shape, np.nan, dtype, order="F")
        assert tile.widen(dtype, out=out) is out
        np.testing.assert_array_equal(out, wide)


def test_fp64_is_kept_as_it_is():
    numbers = np.asfortranarray(np.random.default_rng(8).standard_normal((4, 3)))
    tile = Tile(FP64, numbers)
    assert tile.widen() is numbers
    np.testing.assert_array_equal(quantize(numbers, "fp64").widen(), numbers)


def test_bytes_of_a_tile_are_those_of_its_values_and_casts():
    numbers = np.ones((6, 4), order="F")
    tile = Tile(FP64, numbers, casts={FP16: quantize(numbers, FP16)})
    assert tile.nbytes == (8 + 2) * 24
    tile.casts.clear()
    assert tile.nbytes == 8 * 24


@pytest.mark.parametrize("form", COARSE, ids=str)
def test_a_cast_with_the_right_exponent_is_the_quantization(form):
    numbers = column(np.random.default_rng(9).standard_normal(100))
    tile = quantize(numbers, form)
    again = cast(numbers, form, form.exponent_for(NUMPY.largest(numbers)))
    np.testing.assert_array_equal(again.values, tile.values)
    assert again.exponent == tile.exponent


@PATIENT
@given(arrays(np.float64, st.integers(1, 30), elements=st.floats(allow_nan=False)))
def test_magnitude_is_the_largest_absolute_value(numbers):
    for dtype in (np.float64, np.float32):
        with np.errstate(over="ignore"):
            array = column(numbers).astype(dtype)
        assert NUMPY.largest(array) == abs(array).max()


def test_magnitude_of_what_holds_a_nan_is_a_nan():
    for dtype in (np.float64, np.float32):
        assert np.isnan(NUMPY.largest(column([1.0, np.nan, np.inf], dtype)))
