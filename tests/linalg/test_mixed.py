from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
import scipy.linalg

import geomxp as gx
from geomxp.linalg import mixed
from geomxp.linalg.formats import (
    BF16,
    FORMATS,
    FP8,
    FP16,
    FP16_IN_FP32,
    FP32,
    FP64,
    TF32,
    Tile,
    quantize,
)
from geomxp.linalg.mixed import arithmetic, gemm, potrf, trsm

UNIT = {np.dtype(np.float64): 2.0**-53, np.dtype(np.float32): 2.0**-24}
SHAPES = [(1, 1, 1), (1, 30, 5), (30, 1, 5), (48, 48, 48), (31, 48, 17)]


def random(shape, seed, size=1.0):
    return np.asfortranarray(size * np.random.default_rng(seed).standard_normal(shape))


def stored(numbers, form):
    """A tile as a store keeps it."""
    if form is FP64:
        return Tile(FP64, numbers)
    return quantize(numbers, form, split=mixed.splits())


def known(n, dtype=np.float64):
    """A matrix whose factor is known in closed form: t_ij = 2^-|i-j|."""
    apart = np.subtract.outer(np.arange(n), np.arange(n))
    factor = np.tril(2.0 ** -apart.clip(0))
    return np.asfortranarray((factor @ factor.T).astype(dtype)), factor


@pytest.mark.parametrize(
    ("left", "right", "on_fp64", "on_fp32"),
    [
        *((FP64, other, FP64, low) for other, low in ((FP64, FP32), (FP32, FP32), (FP16, FP16))),
        (FP64, TF32, FP64, TF32),
        (FP64, BF16, FP64, BF16),
        (FP64, FP8, FP64, FP16),
        (FP32, FP32, FP32, FP32),
        (FP32, TF32, TF32, TF32),
        (FP32, BF16, BF16, BF16),
        (FP32, FP16, FP16, FP16),
        (FP64, FP16_IN_FP32, FP64, FP16),
        *((FP16_IN_FP32, other, FP16, FP16) for other in (FP32, FP16_IN_FP32, TF32, FP16, FP8)),
        (FP16_IN_FP32, BF16, BF16, BF16),
        (FP32, FP8, FP16, FP16),
        (TF32, FP16, FP16, FP16),
        (FP16, FP16, FP16, FP16),
        (FP16, BF16, BF16, BF16),
        (FP16, FP8, FP16, FP16),
        (BF16, FP8, FP16, FP16),
        (FP8, FP8, FP8, FP8),
    ],
    ids=str,
)
def test_the_arithmetic_is_the_coarser_operands_and_fp8s_only_between_two(
    left, right, on_fp64, on_fp32
):
    fine, coarse = np.zeros((1, 1)), np.zeros((1, 1), np.float32)
    for a, b in ((left, right), (right, left)):
        a, b = (stored(np.ones((1, 1), order="F"), form) for form in (a, b))
        assert arithmetic(fine, a, b) is on_fp64
        assert arithmetic(coarse, a, b) is on_fp32


@pytest.mark.parametrize("form", FORMATS.values(), ids=str)
def test_a_square_on_the_diagonal_is_summed_in_fp64_where_fp32_would_be_off(form):
    tile = stored(np.ones((1, 1), order="F"), form)
    expected = FP64 if form is FP32 else form.products
    assert arithmetic(np.zeros((1, 1)), tile, tile) is expected
    on_fp32 = FP32 if form is FP64 else form.products
    assert arithmetic(np.zeros((1, 1), np.float32), tile, tile) is on_fp32


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["on fp64", "on fp32"])
@pytest.mark.parametrize("left", FORMATS.values(), ids=str)
@pytest.mark.parametrize("right", FORMATS.values(), ids=str)
def test_gemm_subtracts_the_product_to_the_error_of_its_arithmetic(way, left, right, dtype):
    """What the operands stand for, rounded to the arithmetic, summed in FP32 or FP64."""
    m, n, k = 31, 18, 40
    a, b = stored(random((m, k), 1), left), stored(random((n, k), 2), right)
    c = random((m, n), 3).astype(dtype)
    before, form = c.astype(np.float64), arithmetic(c, a, b)
    c = gemm(c, [(a, b)], form)
    if way == "AVX-512" and form is FP16 and FP8 in (left, right):
        # FP8 is multiplied as BF16
        form = BF16
    sums = FP64.unit_roundoff if form is FP64 else FP32.unit_roundoff
    size = abs(a.widen()) @ abs(b.widen()).T
    bound = 2 * (k + 3) * sums * (size + abs(before))
    # an operand that is finer than the arithmetic is rounded once, the largest entry's error each
    coarse = 0.0 if form is FP64 else max(form.unit_roundoff, 2.0**-22)
    for fine, other in ((a, b), (b, a)):
        rounded = (
            fine.form.unit_roundoff < form.unit_roundoff or fine.form.products is not fine.form
        )
        if rounded or FP32 is form:
            bound = bound + coarse * k * abs(fine.widen()).max() * abs(other.widen()).max()
    assert (abs(c - (before - a.widen() @ b.widen().T)) <= bound).all()


@pytest.mark.parametrize("form", [FP8, FP16, BF16, TF32, FP64], ids=str)
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_products_of_two_tiles_of_one_format_are_exact_but_for_their_sum(way, form, m, n, k):
    a, b = stored(random((m, k), 1), form), stored(random((n, k), 2), form)
    for dtype in (np.float64, np.float32):
        if form is FP64 and dtype is np.float32:
            continue
        c = random((m, n), 3).astype(dtype)
        before = c.astype(np.float64)
        c = gemm(c, [(a, b)], form)
        sums = FP64.unit_roundoff if form is FP64 else FP32.unit_roundoff
        size = abs(before) * (form is FP64 or dtype is np.float32)
        size = size + abs(a.widen()) @ abs(b.widen()).T
        expected = before - a.widen() @ b.widen().T
        allowed = 2 * (k + 3) * sums * size + UNIT[np.dtype(dtype)] * abs(expected)
        assert (abs(c - expected) <= allowed).all()


@pytest.mark.parametrize("form", [FP64, FP32, FP16, FP8], ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_chain_of_products_is_its_single_products_in_order(way, form, dtype):
    if form is FP64 and dtype is np.float32:
        pytest.skip("an FP32 array is never written in FP64")
    pairs = [
        (stored(random((9, 7), j), form), stored(random((8, 7), 9 + j), form)) for j in range(3)
    ]
    together, alone = (random((9, 8), 5).astype(dtype) for _ in range(2))
    together = gemm(together, iter(pairs), form)
    for pair in pairs:
        alone = gemm(alone, [pair], form)
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize("form", [FP64, FP16], ids=str)
def test_no_products_change_nothing(form):
    c = random((4, 3), 1)
    np.testing.assert_array_equal(gemm(c.copy(order="F"), [], form), c)


@pytest.mark.parametrize("form", [FP8, FP16], ids=str)
def test_an_fp64_array_keeps_its_digits_when_small_products_are_subtracted(way, form):
    """A product of size 1e-20 in FP32 changes an entry near 1 by less than FP64 can hold."""
    a, b = stored(random((6, 5), 1, 1e-10), form), stored(random((6, 5), 2, 1e-10), form)
    c = random((6, 6), 3)
    np.testing.assert_array_equal(gemm(c.copy(order="F"), [(a, b)], form), c)
    zero = gemm(np.zeros((6, 6), order="F"), [(a, b)], form)
    size = abs(a.widen()) @ abs(b.widen()).T
    expected = -a.widen() @ b.widen().T
    assert (abs(zero - expected) <= 2 * 8 * FP32.unit_roundoff * size).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 20), (20, 1), (33, 48), (48, 33)])
@pytest.mark.parametrize("diagonal", [FP64, FP32], ids=str)
def test_trsm_is_undone_by_the_product_and_is_scipys(m, n, dtype, diagonal):
    _, factor = known(n)
    lower = Tile(diagonal, np.asfortranarray(factor.astype(diagonal.dtype)))
    c = random((m, n), 4).astype(dtype)
    b = c.astype(np.float64)
    x = trsm(c, lower)
    assert x.dtype == dtype
    u = UNIT[np.dtype(dtype)]
    assert (abs(x @ factor.T - b) <= 2 * (n + 1) * u * (abs(x) @ factor.T)).all()
    scipys = scipy.linalg.solve_triangular(factor, b.T, lower=True).T
    allowed = 2 * (n + 1) * u * np.linalg.cond(factor) * np.linalg.norm(scipys)
    assert np.linalg.norm(x - scipys) <= allowed


def test_trsm_reads_the_cast_of_an_fp64_diagonal_and_gets_the_same_bits():
    _, factor = known(20)
    factor += np.tril(random((20, 20), 5, 0.01))
    bare, cast = (Tile(FP64, np.asfortranarray(factor)) for _ in range(2))
    cast.casts[FP32] = quantize(cast.values, FP32)
    b = random((12, 20), 6).astype(np.float32)
    np.testing.assert_array_equal(trsm(b.copy(order="F"), bare), trsm(b.copy(order="F"), cast))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [1, 2, 3, 31, 48, 100])
def test_potrf_gives_the_known_factor_with_zeros_above_it(n, dtype):
    a, factor = known(n, dtype)
    scipys = scipy.linalg.cholesky(a, lower=True)
    a[np.triu_indices(n, 1)] = np.nan
    found = potrf(a)
    assert found is a
    u = UNIT[np.dtype(dtype)]
    assert abs(found - factor).max() <= 2 * (n + 1) * u
    assert abs(found - scipys).max() <= 4 * (n + 1) * u
    np.testing.assert_array_equal(found[np.triu_indices(n, 1)], 0.0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [5, 60])
def test_the_factor_of_a_random_matrix_multiplies_back(n, dtype):
    root = random((n, n), 7)
    a = np.asfortranarray((root @ root.T + n * np.eye(n)).astype(dtype))
    lower = potrf(a.copy(order="F")).astype(np.float64)
    allowed = 2 * (n + 1) * UNIT[np.dtype(dtype)] * (abs(lower) @ abs(lower).T)
    assert (abs(lower @ lower.T - a) <= allowed).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("order", [1, 2, 33, 40])
@pytest.mark.parametrize("pivot", [-1.0, 0.0])
def test_potrf_names_the_first_minor_that_is_not_positive(dtype, order, pivot):
    a = np.asfortranarray(np.eye(40, dtype=dtype))
    a[order - 1, order - 1] = pivot
    with pytest.raises(gx.NotPositiveDefinite, match=f"order {order} is not positive") as caught:
        potrf(a)
    assert caught.value.order == order


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("place", [(4, 1), (5, 5)])
@pytest.mark.parametrize("wrong", [np.inf, -np.inf, np.nan])
def test_what_overflowed_has_no_factor(dtype, place, wrong):
    a = np.asfortranarray(np.eye(6, dtype=dtype))
    a[place] = wrong
    with pytest.raises(gx.NotPositiveDefinite):
        potrf(a)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("forms", [(FP8, FP16), (FP8, FP8), (FP16, FP32), (FP32, FP64)])
def test_operands_of_concurrent_products_do_not_share_memory(forms, dtype, way):
    left, right = (stored(random((96, 96), k), form) for k, form in enumerate(forms))
    c = random((96, 96), 2).astype(dtype)
    form = arithmetic(c, left, right)
    expected = gemm(c.copy(order="F"), [(left, right)] * 3, form)
    exact = c - 3.0 * left.widen() @ right.widen().T
    fp8_as_bf16 = way == "AVX-512" and forms == (FP8, FP16)
    tolerance = 1.0 if fp8_as_bf16 else 0.3 if forms == (FP16, FP32) else 1e-3
    np.testing.assert_allclose(expected, exact, atol=tolerance)
    start = Barrier(4)

    def repeated(_):
        start.wait()
        return [gemm(c.copy(order="F"), [(left, right)] * 3, form) for _ in range(20)]

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(repeated, range(4)):
            for one in found:
                np.testing.assert_array_equal(one, expected)


def test_scratch_arrays_of_one_product_differ_and_are_used_again():
    mixed.release()
    one, other = (mixed._scratch((5, 3), np.float32, place) for place in (0, 1))
    assert one.flags.f_contiguous
    assert one.shape == (5, 3)
    assert not np.shares_memory(one, other)
    assert np.shares_memory(one, mixed._scratch((3, 2), np.float64, 0))
    larger = mixed._scratch((50, 30), np.float64, 0)
    assert larger.shape == (50, 30)
    assert not np.shares_memory(one, larger)
    mixed.release()
    assert not vars(mixed._mine)
