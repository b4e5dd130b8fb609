import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geomxp.linalg import blas, mixed
from geomxp.linalg.formats import BF16, FP8, FP16, FP32, FP64, TF32, Tile, quantize
from geomxp.linalg.mixed import cast_formats, operand, subtract_product

U = FP32.unit_roundoff
ARITHMETICS = (FP8, FP16, BF16, TF32, FP32)
SHAPES = [(1, 1, 1), (1, 33, 7), (33, 1, 7), (5, 3, 1), (64, 64, 64), (37, 53, 131), (100, 16, 8)]


def random(shape, seed, size=1.0):
    return np.asfortranarray(size * np.random.default_rng(seed).standard_normal(shape))


def tiles(m, n, k, form, seed=0, sizes=(1.0, 1.0)):
    """Two tiles in a format, FP32 as it stands in a store."""
    return tuple(
        quantize(random(shape, seed + j, size), form, split=mixed.splits())
        for j, (shape, size) in enumerate(zip(((m, k), (n, k)), sizes, strict=True))
    )


def rounding(left, right, before=0.0):
    """The error of AB' summed in FP32; two FP16 planes leave out what is below 2^-22."""
    a, b = abs(left.widen()), abs(right.widen())
    k = left.shape[1]
    planes = 2.0**-22 * k * a.max() * b.max() if left.split else 0.0
    return 2 * (k + 3) * U * (abs(before) + a @ b.T) + planes


@pytest.mark.parametrize("form", ARITHMETICS, ids=str)
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_products_are_those_of_the_rounded_operands_summed_in_fp32(way, form, m, n, k):
    left, right = tiles(m, n, k, form)
    c = random((m, n), 9).astype(np.float32)
    before = c.astype(np.float64)
    assert subtract_product(c, left, right, form) is c
    expected = before - left.widen() @ right.widen().T
    assert (abs(c - expected) <= rounding(left, right, before)).all()


@pytest.mark.parametrize("form", [FP8, FP16, FP32], ids=str)
@pytest.mark.parametrize("sizes", [(1e-20, 1.0), (1e-20, 1e-12), (1e-20, 1e-20), (1e-9, 1e9)])
def test_small_tiles_multiply_as_well_as_large_ones(way, form, sizes):
    m, n, k = 33, 17, 50
    left, right = tiles(m, n, k, form, sizes=sizes)
    unit = 2.0**-22 if left.split else form.unit_roundoff
    for seed, tile in enumerate((left, right)):
        numbers = random(tile.shape, seed, sizes[seed])
        assert abs(tile.widen() - numbers).max() <= 2 * unit * abs(numbers).max()
    c = np.zeros((m, n), np.float32, order="F")
    subtract_product(c, left, right, form)
    # what is below FP32's normal numbers is flushed to zero on matrix units
    allowed = rounding(left, right) + 2.0**-126
    assert (abs(c + left.widen() @ right.widen().T) <= allowed).all()


@pytest.mark.parametrize("form", [FP8, FP16, BF16, FP32], ids=str)
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_units_and_widening_give_the_same_numbers_to_the_sums_rounding(monkeypatch, form, m, n, k):
    if not blas.has_unit(FP16 if form in (FP16, FP32) else BF16):
        pytest.skip("this CPU widens this format to FP32, or MKL is not installed")
    left, right = tiles(m, n, k, form)
    c = random((m, n), 9).astype(np.float32)
    on_units = subtract_product(c.copy(order="F"), left, right, form)
    monkeypatch.setattr(blas, "has_unit", lambda form: False)
    widened_tiles = [quantize(tile.widen(), form) for tile in (left, right)]
    widened = subtract_product(c.copy(order="F"), *widened_tiles, form)
    assert (abs(on_units - widened) <= 2 * rounding(left, right, c)).all()


def test_subnormal_entries_of_fp16_are_multiplied_too(way):
    """Their largest neighbour sets the scale; they are numbers all the same."""
    numbers = np.asfortranarray([[1.0, 2.0**-30], [2.0**-34, 2.0**-38]])
    left, right = quantize(numbers, FP16), quantize(np.eye(2, order="F"), FP16)
    np.testing.assert_array_equal(left.widen(), numbers)
    c = np.zeros((2, 2), np.float32, order="F")
    np.testing.assert_array_equal(subtract_product(c, left, right, FP16), -numbers)


def test_all_products_of_two_fp8_numbers_are_exact(way):
    bits = np.arange(256, dtype=np.uint8)
    bits = bits[(bits & 0x7F) != 0x7F]
    left, right = (Tile(FP8, np.asfortranarray(bits[:, None])) for _ in range(2))
    c = np.zeros((len(bits), len(bits)), np.float32, order="F")
    numbers = left.widen()[:, 0]
    expected = -np.outer(numbers, numbers)
    np.testing.assert_array_equal(subtract_product(c, left, right, FP8), expected)


def test_a_tile_times_itself_has_the_diagonal_of_fp32(way):
    """Nothing that is positive throughout is left out on the diagonal."""
    k = 400
    tile = quantize(random((8, k), 3), FP32, split=mixed.splits())
    c = np.zeros((8, 8), np.float32, order="F")
    subtract_product(c, tile, tile, FP32)
    expected = np.einsum("ij,ij->i", tile.widen(), tile.widen())
    assert (abs(np.diag(c) + expected) <= 2 * np.sqrt(k) * U * expected).all()


@pytest.mark.parametrize("form", ARITHMETICS, ids=str)
def test_of_a_tile_times_itself_the_lower_triangle_is_computed(way, form):
    (left, _), c = tiles(40, 40, 30, form), random((40, 40), 9).astype(np.float32)
    before = c.astype(np.float64)
    assert subtract_product(c, left, left, form) is c
    error = abs(c - (before - left.widen() @ left.widen().T))
    assert np.tril(error <= rounding(left, left, before)).sum() == 40 * 41 / 2


def test_without_units_a_tile_times_itself_takes_half_the_operations(monkeypatch):
    called, call = [], blas._call
    monkeypatch.setattr(blas, "has_unit", lambda form: False)
    monkeypatch.setattr(blas, "_call", lambda name, *rest: (called.append(name), call(name, *rest)))
    (left, right), c = tiles(40, 40, 30, FP16), random((40, 40), 9).astype(np.float32)
    for b in (left, right):
        subtract_product(c, left, b, FP16)
    assert called == ["syrk", "gemm"]


@pytest.mark.parametrize("form", [FP16, BF16, TF32, FP32], ids=str)
@pytest.mark.parametrize("stored", [FP64, FP32, TF32, BF16, FP16, FP8], ids=str)
def test_operands_have_the_format_of_the_arithmetic_and_the_tiles_numbers(way, form, stored):
    numbers = random((20, 10), 4)
    tile = quantize(numbers, stored, split=mixed.splits())
    found = operand(tile, form)
    assert found.form is form
    coarsest = max(stored.unit_roundoff, form.unit_roundoff, 2.0**-22)
    assert abs(found.widen() - numbers).max() <= 1.5 * coarsest * abs(numbers).max()
    if stored.unit_roundoff >= form.unit_roundoff and stored not in (TF32, BF16):
        np.testing.assert_array_equal(found.widen(), tile.widen())


@pytest.mark.parametrize("stored", [FP32, FP16, FP8], ids=str)
def test_operands_in_fp64_are_exact(stored):
    tile = quantize(random((6, 5), 5), stored)
    np.testing.assert_array_equal(operand(tile, FP64).widen(), tile.widen())


@pytest.mark.parametrize("forms", [{FP8}, {FP16}, {FP32}, {FP16, FP32}, {BF16, FP8}, {FP64}, set()])
def test_casts_are_what_the_readers_would_make_themselves(way, forms):
    """With or without its casts an FP64 tile gives the same operands, bit for bit."""
    values = random((40, 30), 6)
    bare, cast = Tile(FP64, values), Tile(FP64, values)
    wanted = cast_formats(forms, mixed.splits())
    cast.casts.update({form: quantize(values, form, split=s) for form, s in wanted.items()})
    assert FP64 not in cast.casts
    for form in forms - {FP64}:
        form = FP16 if form is FP8 else form
        np.testing.assert_array_equal(operand(cast, form).widen(), operand(bare, form).widen())


@settings(deadline=None)
@given(st.integers(-100, 100), st.integers(-100, 100))
def test_scales_of_both_operands_are_taken_back(one, other):
    left = Tile(FP16, np.full((1, 1), 3.0, np.float16, order="F"), one)
    right = Tile(FP16, np.full((1, 1), 5.0, np.float16, order="F"), other)
    c = np.zeros((1, 1), np.float32, order="F")
    expected = -15.0 * 2.0 ** -(one + other)
    if 2.0**-126 <= abs(expected) < 2.0**127:
        assert subtract_product(c, left, right, FP16)[0, 0] == expected


def test_there_are_units_for_no_format_where_mkl_is_missing(monkeypatch):
    monkeypatch.setattr(blas, "mkl", lambda: None)
    blas.on_matrix_units.cache_clear()
    try:
        assert not any(blas.on_matrix_units(form) for form in (*ARITHMETICS, FP64))
        assert [form for form in ARITHMETICS if blas.has_unit(form)] in ([], [BF16])
        assert not mixed.splits()
    finally:
        blas.on_matrix_units.cache_clear()
