import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import geomxp as gx
from geomxp.linalg.formats import (
    BF16,
    FORMATS,
    FP8,
    FP16,
    FP32,
    FP64,
    TF32,
    coarser,
    named,
    quantize,
)

ALL = list(FORMATS.values())
REFERENCES = {
    FP64: np.float64,
    FP32: np.float32,
    BF16: ml_dtypes.bfloat16,
    FP16: np.float16,
    FP8: ml_dtypes.float8_e4m3fn,
}


def stored(number, form):
    return quantize(np.full((1, 1), number), form, scale=False).widen()[0, 0]


@pytest.mark.parametrize("form", ALL, ids=str)
def test_unit_roundoff_is_half_the_distance_from_one_to_the_next_number(form):
    # u of a format that is rounded for products is theirs
    u, form = form.unit_roundoff, form.products
    assert stored(1 + 2 * u, form) == 1 + 2 * u
    assert stored(1 + u, form) == 1.0
    assert stored(1 + 1.5 * u, form) == 1 + 2 * u


@pytest.mark.parametrize("form", REFERENCES, ids=str)
def test_range_and_bytes_are_those_of_the_format(form):
    about = ml_dtypes.finfo(REFERENCES[form])
    assert form.largest == float(about.max)
    assert form.unit_roundoff == float(about.eps) / 2
    assert form.bytes == np.dtype(REFERENCES[form]).itemsize
    assert stored(form.largest, form) == form.largest


def test_tf32_has_the_range_of_fp32_and_the_digits_of_fp16():
    assert TF32.bytes == FP32.bytes
    assert TF32.unit_roundoff == FP16.unit_roundoff
    assert stored(TF32.largest, TF32) == TF32.largest < FP32.largest


@pytest.mark.parametrize("form", [FP8, FP16], ids=str)
@given(st.floats(2.0**-40, 2.0**40))
def test_scale_brings_the_largest_number_to_the_top_without_overflow(form, largest):
    scaled = largest * 2.0 ** form.exponent_for(largest)
    assert 2.0 ** (form.top - 1) <= scaled < 2.0**form.top <= form.largest


@pytest.mark.parametrize("form", ALL, ids=str)
@pytest.mark.parametrize("nothing", [0.0, np.inf, np.nan])
def test_there_is_no_scale_for_what_has_no_size(form, nothing):
    assert form.exponent_for(nothing) == 0


@pytest.mark.parametrize("form", ALL, ids=str)
def test_names_are_read_in_either_case_and_formats_are_their_own_names(form):
    assert named(form.name) is named(form.name.upper()) is named(form) is form
    assert str(form) == form.name


@pytest.mark.parametrize("name", ["fp13", "", None, 64])
def test_unknown_formats_are_refused_with_a_list_of_the_known(name):
    with pytest.raises(gx.InvalidInput, match=r"must be one of: fp64, fp32, .*Got"):
        named(name)


@pytest.mark.parametrize("form", ALL, ids=str)
def test_promotion_ends_in_fp64_and_is_finer_at_every_step(form):
    steps = 0
    while form is not FP64:
        assert form.finer.unit_roundoff < form.unit_roundoff
        form, steps = form.finer, steps + 1
    assert steps < len(ALL)
    assert FP64.finer is FP64


@pytest.mark.parametrize("a", ALL, ids=str)
@pytest.mark.parametrize("b", ALL, ids=str)
def test_the_coarser_of_two_is_one_of_them_whatever_their_order(a, b):
    found = coarser(a, b)
    assert found is coarser(b, a)
    assert found in (a, b)
    assert found.unit_roundoff == max(a.unit_roundoff, b.unit_roundoff)
    if a.unit_roundoff == b.unit_roundoff:
        assert found.bytes == min(a.bytes, b.bytes)
