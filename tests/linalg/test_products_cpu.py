"""Products of BF16 numbers in AVX-512, against FP64's, in all layouts and in parts."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import geomxp as gx
from geomxp.linalg import blas, products_cpu
from geomxp.linalg.formats import BF16, FP8, FP16, FP32, Tile, quantize
from geomxp.linalg.mixed import subtract_product
from geomxp.linalg.products_cpu import (
    BLOCK_COLUMNS,
    BLOCK_ROWS,
    PACKED_PAIRS,
    PACKED_ROWS_OF_A,
    PACKED_ROWS_OF_B,
    multiply,
)
from geomxp.runtime import devices

pytestmark = pytest.mark.skipif(
    not blas.in_avx512(BF16),
    reason="this CPU has no instructions of AVX-512 for BF16, or MKL multiplies it",
)

ORDERS = st.sampled_from("FC")


def numbers(shape, seed, order="F"):
    """Bits of BF16 numbers inside a larger array of NaNs."""
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    around = np.full((shape[0] + 3, shape[1] + 2), 0x7FC0, np.uint16, order=order)
    inside = around[2:-1, 1:-1]
    inside[...] = values.view(np.uint32) >> np.uint32(16)
    return inside


def wide(bits):
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)


def target(shape, dtype, order, seed=9):
    """An array inside a larger one of NaNs; return both."""
    around = np.full((shape[0] + 2, shape[1] + 3), np.nan, dtype, order=order)
    inside = around[1:-1, 2:-1]
    inside[...] = np.random.default_rng(seed).standard_normal(shape)
    return inside, around


def bound(before, a, b, alpha, dtype):
    """The error of sums in FP32, and of the last one in C's type."""
    size = abs(alpha) * (abs(wide(a)) @ abs(wide(b)).T)
    u = FP32.unit_roundoff
    return 2 * (a.shape[1] + 3) * u * size + 2 * np.finfo(dtype).eps * abs(before)


@settings(max_examples=80)
@given(
    *(st.integers(1, 3 * size) for size in (BLOCK_ROWS, BLOCK_COLUMNS)),
    st.sampled_from(
        [
            1,
            2,
            3,
            31,
            2 * PACKED_PAIRS - 1,
            2 * PACKED_PAIRS,
            2 * PACKED_PAIRS + 1,
            4 * PACKED_PAIRS + 3,
        ]
    ),
    *(ORDERS, ORDERS, ORDERS),
    st.sampled_from([np.float32, np.float64]),
    st.sampled_from([1.0, -1.0, -0.7, 2.0**-20]),
)
def test_products_agree_with_fp64_in_all_memory_orders(
    m, n, k, order_a, order_b, order_c, dtype, alpha
):
    a, b = numbers((m, k), 0, order_a), numbers((n, k), 1, order_b)
    c, around = target((m, n), dtype, order_c)
    before = c.astype(np.float64)
    multiply(c, a, b, alpha)
    assert (
        abs(c - (before + alpha * wide(a) @ wide(b).T)) <= bound(before, a, b, alpha, dtype)
    ).all()
    assert np.isnan(around).sum() == around.size - c.size


@pytest.mark.parametrize("order", "FC")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 7, BLOCK_ROWS, 100, PACKED_ROWS_OF_A + 45])
def test_a_square_changes_only_the_lower_triangle_and_has_the_bits_of_the_product(n, dtype, order):
    a = numbers((n, 70), 0)
    c, _ = target((n, n), dtype, order)
    whole, before = c.copy(order="K"), c.copy(order="K")
    multiply(whole, a, a, -1.0)
    multiply(c, a, a, -1.0, triangle=True)
    np.testing.assert_array_equal(c, np.tril(whole) + np.triu(before, 1))


@pytest.mark.parametrize("triangle", [False, True])
@pytest.mark.parametrize("cores", [2, 3, 7, 64])
def test_any_number_of_threads_gives_the_same_bits(monkeypatch, cores, triangle):
    n = 700
    a = numbers((n, 2 * PACKED_PAIRS + 5), 0)
    b = a if triangle else numbers((n, 2 * PACKED_PAIRS + 5), 1)
    single, shared = (np.zeros((n, n), np.float32, order="F") for _ in range(2))
    with devices.at_most(1):
        multiply(single, a, b, -0.3, triangle)
    pieces, work = [], products_cpu.share
    monkeypatch.setattr(products_cpu, "usable_cores", lambda: cores)
    monkeypatch.setattr(products_cpu, "MULTIPLICATIONS_PER_PRODUCT_THREAD", 1)
    monkeypatch.setattr(
        products_cpu, "share", lambda f, some, n: (pieces.extend(some), work(f, some, n))
    )
    multiply(shared, a, b, -0.3, triangle)
    assert len(pieces) > 1
    np.testing.assert_array_equal(shared, single)


def test_parts_of_a_product_have_the_bits_of_the_whole():
    m, n, k = PACKED_ROWS_OF_A + 70, PACKED_ROWS_OF_B + 40, 9
    a, b = numbers((m, k), 0), numbers((n, k), 1)
    whole, parts = (np.zeros((m, n), np.float32, order="F") for _ in range(2))
    multiply(whole, a, b, 0.1)
    for rows in (slice(0, 5), slice(5, 401), slice(401, m)):
        for columns in (slice(0, 4001), slice(4001, n)):
            multiply(parts[rows, columns], a[rows], b[columns], 0.1)
    np.testing.assert_array_equal(parts, whole)
    assert (abs(whole - 0.1 * wide(a) @ wide(b).T) <= bound(0.0, a, b, 0.1, np.float32)).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_infinity_make_only_their_row_nonfinite(value):
    a, b = numbers((40, 6), 0), numbers((13, 6), 1)
    a[3, 2] = np.float32(value).view(np.uint32) >> np.uint32(16)
    c = np.zeros((40, 13), np.float32, order="F")
    multiply(c, a, b, 1.0)
    rows = np.flatnonzero(~np.isfinite(c).all(axis=1))
    np.testing.assert_array_equal(rows, [3])
    assert not np.isfinite(c[3]).any()


@pytest.mark.parametrize("partner", [FP8, FP16, FP32], ids=str)
def test_fp8_tiles_are_multiplied_as_bf16_to_a_sixteenth_of_fp8s_roundoff(monkeypatch, partner):
    called = []
    monkeypatch.setattr(blas, "has_unit", lambda form: form is BF16)
    monkeypatch.setattr(
        blas,
        "multiply_on_units",
        lambda *x, work=blas.multiply_on_units: (called.append(x[3]), work(*x)),
    )
    random = np.random.default_rng(2).standard_normal((90, 50))
    left, right = quantize(random[:40].copy("F"), FP8), quantize(random[40:].copy("F"), partner)
    c = np.zeros((40, 50), np.float32, order="F")
    subtract_product(c, left, right, FP8 if partner is FP8 else FP16)
    assert called == [BF16]
    a, b = left.widen(), right.widen()
    size = abs(a) @ abs(b).T
    rounding = 0.0 if partner is FP8 else BF16.unit_roundoff
    assert (abs(c + a @ b.T) <= (rounding + 60 * FP32.unit_roundoff) * size).all()
    assert FP8.unit_roundoff == 16 * BF16.unit_roundoff


def test_an_fp8_tile_times_itself_changes_only_the_lower_triangle():
    tile = quantize(np.random.default_rng(3).standard_normal((200, 60)).copy("F"), FP8)
    same = Tile(FP8, tile.values.copy("F"), tile.exponent)
    whole, c = (np.ones((200, 200), np.float32, order="F") for _ in range(2))
    subtract_product(whole, tile, same, FP8)
    subtract_product(c, tile, tile, FP8)
    np.testing.assert_array_equal(c, np.tril(whole) + np.triu(np.ones_like(c), 1))


@pytest.mark.slow
def test_divergences_with_fp8_tiles_are_within_a_tenth_of_those_with_products_in_fp32(monkeypatch):
    places = np.random.default_rng(0).random((1200, 2))
    model, rule = gx.Matern(1.0, 0.02627, 0.5, nugget=0.01), gx.by_tile_norm(1e-4)
    found = [gx.kl_divergence(model, places, gx.Exact(rule, tile=100))]
    assert found[0].formats.counts()["fp8"] > 10
    monkeypatch.setattr(blas, "has_unit", lambda form: False)
    found.append(gx.kl_divergence(model, places, gx.Exact(rule, tile=100)))
    in_bf16, in_fp32 = (result.kl for result in found)
    assert in_bf16 != in_fp32
    assert in_fp32 > 0
    assert abs(in_bf16 / in_fp32 - 1) < 0.1


@pytest.mark.parametrize("by", ["functions", "numpy"])
def test_tiles_in_a_format_of_the_user_are_rounded_to_bf16(by):
    """Their numbers are widened by the format's own function, or by NumPy."""

    def encode(x, scale, out):
        out[:] = (x * scale).astype(np.float16).view(np.uint16)

    def decode(x, scale, out):
        np.multiply(x.view(np.float16), scale, out=out)

    about = {"unit_roundoff": 2.0**-10, "letter": "X", "color": "#000000", "rounded": None}
    ways = (encode, decode) if by == "functions" else (None, None)
    mine = replace(FP16, name="mine", encode=ways[0], decode=ways[1], **about)
    values = np.random.default_rng(4).standard_normal((30, 20)).copy("F")
    tile, eighth = quantize(values, mine), quantize(values, FP8)
    c = np.zeros((30, 30), np.float32, order="F")
    subtract_product(c, tile, eighth, FP16)
    size = abs(tile.widen()) @ abs(eighth.widen()).T
    assert (abs(c + tile.widen() @ eighth.widen().T) <= 2.0**-8 * size).all()


def test_fp8_tiles_by_rows_have_the_same_products():
    values = np.random.default_rng(5).standard_normal((30, 20)).copy("F")
    tile = quantize(values, FP8)
    by_rows = Tile(FP8, np.ascontiguousarray(tile.values), tile.exponent)
    other, found = quantize(values[:17].copy("F"), FP16), []
    for each in (tile, by_rows):
        found.append(np.zeros((30, 17), np.float32, order="F"))
        subtract_product(found[-1], each, other, FP16)
    np.testing.assert_array_equal(*found)


@pytest.mark.slow
def test_compiled_products_and_casts_are_kept_for_the_next_process(tmp_path):
    code = """
import numpy as np
from geomxp.linalg import loops, products_cpu
bits = np.zeros((4, 4), np.uint16, order="F")
products_cpu.multiply(np.zeros((4, 4), np.float32, order="F"), bits, bits, 1.0)
loops.fp8_to_bf16(np.zeros(4, np.uint8), np.float32(1), bits[:, 0])
loops.fp16_to_bf16(bits[:, 1], np.float32(1), bits[:, 0])
for each in (products_cpu._multiply, loops.fp8_to_bf16, loops.fp16_to_bf16):
    print(sum(each.stats.cache_hits.values()), sum(each.stats.cache_misses.values()))
"""
    about = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    run = [sys.executable, "-c", code]
    outputs = [
        subprocess.run(run, env=about, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert outputs == ["0 1\n" * 3, "1 0\n" * 3]
