import pickle

import numpy as np
import pytest
import scipy.linalg

import geomxp as gx
from geomxp.covariance.ordering import spread
from geomxp.linalg.formats import FP32, FP64, quantize
from geomxp.linalg.low_rank import LowRankTile, Sum, interpolated, product, solve, subtract
from geomxp.linalg.mixed import trsm
from geomxp.tiles.cholesky import update_tile


def smooth(m, n, gap, seed=0):
    """Covariances between two groups of locations, a gap apart."""
    random = np.random.default_rng(seed)
    left, right = random.random((m, 2)), random.random((n, 2)) + np.array([1 + gap, 0])
    left, right = left[spread(left, m)], right[spread(right, n)]
    return np.asfortranarray(gx.Matern(1.0, 0.5, 1.5)(left, right))


def low(m, n, rank, seed=0):
    random = np.random.default_rng(seed)
    u, v = random.standard_normal((m, rank)), random.standard_normal((n, rank))
    return LowRankTile(FP64, np.asfortranarray(u), v=np.asfortranarray(v))


def dense(m, n, seed=0):
    array = np.asfortranarray(np.random.default_rng(seed).standard_normal((m, n)))
    return quantize(array, FP64)


# laws


@pytest.mark.parametrize("gap", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-5, 1e-8])
def test_the_error_of_a_compression_is_below_its_tolerance_at_nearly_the_least_rank(gap, tolerance):
    a = smooth(200, 150, gap)
    tile = Sum(a.copy(order="F"), tolerance, FP64).compressed()
    values = scipy.linalg.svdvals(a)
    tail = np.sqrt(np.cumsum(values[::-1] ** 2))[::-1]
    # the truncation has a part of the tolerance
    least = max(1, (tail > 0.5 * tolerance).sum())
    if not isinstance(tile, LowRankTile):
        assert least > 0.2 * 150
        assert np.array_equal(tile, a)
        return
    assert np.linalg.norm(tile.widen() - a) <= tolerance
    assert tile.rank <= least
    assert tile.nbytes == 8 * tile.rank * (200 + 150)
    assert tile.shape == (200, 150)


def test_in_fp32_the_error_is_below_a_tolerance_far_above_its_rounding():
    a = smooth(200, 150, 0.5)
    tolerance = 50 * FP32.unit_roundoff * np.sqrt(a.size)
    tile = Sum(a.astype(np.float32, order="F"), tolerance, FP32).compressed()
    assert tile.values.dtype == tile.v.dtype == np.float32
    assert tile.form is FP32
    assert tile.nbytes == 4 * tile.rank * 350
    assert np.linalg.norm(tile.widen() - a) <= tolerance


@pytest.mark.parametrize("rank", [0, 3, 12])
def test_a_given_rank_is_kept(rank):
    a = smooth(200, 150, 0.5)
    values = scipy.linalg.svdvals(a)
    tail = np.sqrt(np.cumsum(values[::-1] ** 2))[::-1]
    tile = Sum(a.copy(order="F"), tail[rank], FP64, rank).compressed()
    assert np.array_equal(tile, a) if rank == 0 else tile.rank == rank


def test_a_given_rank_that_is_far_too_small_is_not_kept():
    a = smooth(200, 150, 0.5)
    tile = Sum(a.copy(order="F"), 1e-6, FP64, 2).compressed()
    assert tile.rank > 10
    assert np.linalg.norm(tile.widen() - a) <= 1e-6


def test_the_same_tile_is_compressed_to_the_same_bits():
    a = smooth(80, 90, 0.5)
    first, second = (Sum(a.copy(order="F"), 1e-6, FP64).compressed() for _ in range(2))
    assert np.array_equal(first.values, second.values)
    assert np.array_equal(first.v, second.v)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 40), (40, 1), (5, 7)])
def test_few_rows_or_columns_stay_exact(rows, columns):
    a = smooth(rows, columns, 0.5)
    tile = Sum(a.copy(order="F"), 1e-13, FP64).compressed()
    found = tile.widen() if isinstance(tile, LowRankTile) else tile
    assert np.abs(found - a).max() < 1e-13


def test_noise_has_no_low_rank_and_stays_as_it_is():
    a = np.asfortranarray(np.random.default_rng(0).standard_normal((60, 60)))
    tile = Sum(a.copy(order="F"), 1e-6, FP64).compressed()
    assert np.array_equal(tile, a)


@pytest.mark.parametrize("rank", [20, 40, 60])
def test_a_sample_grows_until_its_last_columns_add_nothing(rank):
    # the first sample has 40 columns, the next one 24 more
    random = np.random.default_rng(rank)
    u, v = (np.linalg.qr(random.standard_normal((size, rank)))[0] for size in (300, 200))
    a = np.asfortranarray(u @ v.T)
    tile = Sum(a.copy(order="F"), 1e-6, FP64).compressed()
    assert tile.rank == rank
    assert np.linalg.norm(tile.widen() - a) <= 1e-6


def test_a_short_last_step_of_a_sample_is_checked_by_six_columns_too():
    # 49 vectors: 40 at first, 9 more; one singular value is missed
    for seed in range(40):
        random = np.random.default_rng(seed)
        u, v = (np.linalg.qr(random.standard_normal((118, 50)))[0] for _ in range(2))
        a = np.asfortranarray(1.2 * u @ v.T)
        for form in (FP64, FP32):
            tile = Sum(a.astype(form.dtype, order="F"), 1.0, form).compressed()
            found = tile.widen() if isinstance(tile, LowRankTile) else tile
            assert np.linalg.norm(found - a) <= 1.0


def test_zero_has_rank_one_at_most():
    tile = Sum(np.zeros((50, 40), order="F"), 1e-9, FP64).compressed()
    assert tile.rank <= 1
    assert not tile.widen().any()


def entries_of(a, asked=None):
    def entries(rows, columns):
        block = a[rows, columns]
        if asked is not None:
            asked.append(block.size)
        return block

    return entries


@pytest.mark.parametrize(("gap", "tolerance"), [(1.0, 1e-2), (1.0, 1e-4), (2.0, 1e-6)])
def test_a_smooth_tile_is_interpolated_from_few_of_its_entries(gap, tolerance):
    a, asked = smooth(600, 500, gap), []
    u, v = interpolated(entries_of(a, asked), a.shape, tolerance)
    assert np.linalg.norm(u @ v.T - a) <= tolerance
    assert sum(asked) < 0.5 * a.size


def test_an_interpolation_that_misses_is_not_used():
    a = smooth(600, 500, 0.5)
    # variation that the first rows do not show
    a[-100:] += np.random.default_rng(0).standard_normal((100, 500))
    assert interpolated(entries_of(a), a.shape, 1e-3) is None


def test_rough_and_small_tiles_are_not_interpolated():
    rough = np.random.default_rng(0).standard_normal((600, 500))
    assert interpolated(entries_of(rough), rough.shape, 1e-3) is None
    small = smooth(100, 90, 0.5)
    assert interpolated(entries_of(small), small.shape, 1e-3) is None


# operations, against dense ones

PAIRS = [
    (low(30, 20, 3, 1), low(40, 20, 5, 2)),
    (low(30, 20, 6, 1), low(40, 20, 2, 2)),
    (low(30, 20, 3, 1), dense(40, 20, 2)),
    (dense(30, 20, 1), low(40, 20, 4, 2)),
]


@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_products_are_those_of_dense_tiles(left, right):
    expected = left.widen() @ right.widen().T
    a, b = product(left, right)
    assert np.allclose(a @ b.T, expected, rtol=0, atol=1e-12)
    c = np.zeros((30, 40), order="F")
    subtract(c, [(left, right)])
    assert np.allclose(c, -expected, rtol=0, atol=1e-12)


def test_the_square_of_a_tile_changes_the_lower_triangle_only():
    tile, c = low(30, 20, 4), np.zeros((30, 30), order="F")
    subtract(c, [(tile, tile)])
    expected = tile.widen() @ tile.widen().T
    assert np.allclose(np.tril(c), -np.tril(expected), rtol=0, atol=1e-12)
    assert not np.triu(c, 1).any()


def test_a_sum_with_products_of_every_kind_is_solved_as_the_dense_one():
    a = smooth(30, 40, 1.0)
    both = [(dense(30, 25, 5), dense(40, 25, 6)), *PAIRS]
    pairs = [(left, right) for left, right in both]
    expected = a - sum(left.widen() @ right.widen().T for left, right in pairs)
    lower = np.asfortranarray(np.tril(np.random.default_rng(0).random((40, 40))) + 5 * np.eye(40))
    for tolerance in (1e-10, 1e3):
        wanted = scipy.linalg.solve_triangular(lower, expected.T, lower=True).T
        bound = tolerance * np.linalg.norm(np.linalg.inv(lower), 2)
        for original in (a.copy(order="F"), (a, np.eye(40))):
            c = update_tile(Sum(original, tolerance, FP64), pairs)
            tile = trsm(c, quantize(lower, FP64))
            found = tile.widen() if isinstance(tile, LowRankTile) else tile
            assert np.linalg.norm(found - wanted) < max(bound, 1e-10)
    assert tile.rank < 30


@pytest.mark.parametrize("form", [FP64, FP32])
def test_a_sum_takes_products_of_fp32_and_fp64_tiles(form):
    a = smooth(200, 150, 1.0)
    left, right = low(200, 180, 4, 1), low(150, 180, 6, 2)
    narrow = LowRankTile(FP32, left.values.astype(np.float32), v=left.v.astype(np.float32))
    expected = a - narrow.widen() @ right.widen().T - left.widen() @ right.widen().T
    c = Sum(a.astype(form.dtype, order="F"), 2e-4 * np.linalg.norm(expected), form)
    c.subtract([(narrow, right), (left, right)])
    tile = c.compressed()
    assert tile.form is form
    assert np.linalg.norm(tile.widen() - expected) <= 2e-4 * np.linalg.norm(expected)


@pytest.mark.slow
def test_arrays_of_a_tile_must_be_in_fortran_order():
    tile = LowRankTile(FP64, np.ones((30, 2)), v=np.ones((20, 2), order="F"))
    c = Sum(np.ones((30, 30), order="F"), 1e-3, FP64)
    c.subtract([(tile, tile)])
    with pytest.raises(ValueError, match="fp64 in Fortran order"):
        c.compressed()
    with pytest.raises(TypeError, match="C order"):
        subtract(np.ones((40, 40), order="F")[5:35, 5:35], [(low(30, 20, 2),) * 2])


@pytest.mark.parametrize("form", [FP64, FP32])
def test_numbers_of_the_other_type_are_converted(form):
    tiles = [low(30, 20, 3, 1), low(40, 20, 5, 2)]
    other = FP32 if form is FP64 else FP64
    tiles = [as_form(tile, one) for tile, one in zip(tiles, (form, other), strict=True)]
    for left, right in (tiles, tiles[::-1]):
        c = Sum(np.zeros((len(left.values), len(right.values)), form.dtype, order="F"), 1e-3, form)
        c.subtract([(left, right)])
        found = c.compressed().widen()
        expected = left.widen() @ right.widen().T
        assert found.dtype == np.float64
        assert np.linalg.norm(found + expected) < 1e-3
    square, c = tiles[1], np.zeros((40, 40), form.dtype, order="F")
    subtract(c, [(square, square)])
    whole = square.values.astype(float) @ square.v.T.astype(float)
    missed = np.tril(c + whole @ whole.T)
    assert np.abs(missed).max() < 40 * np.finfo(form.dtype).eps * np.abs(c).max()


def as_form(tile, form):
    values, v = (np.asfortranarray(part, form.dtype) for part in (tile.values, tile.v))
    return LowRankTile(form, values, v=v)


def test_numbers_beyond_fp32_are_not_finite_in_it():
    tile = low(30, 20, 3)
    tile.values[4, 1] = 1e200
    c = Sum(np.zeros((30, 30), np.float32, order="F"), 1e-3, FP32)
    c.subtract([(tile, tile)])
    assert not np.isfinite(c.compressed()).all()


def test_a_tile_survives_a_pickle():
    tile = low(30, 20, 3)
    again = pickle.loads(pickle.dumps(tile))
    assert np.array_equal(again.values, tile.values)
    assert np.array_equal(again.v, tile.v)
    assert again.form is FP64


def test_a_solved_sum_keeps_its_u():
    a = smooth(60, 50, 1.0)
    lower = np.asfortranarray(np.eye(50) * 2.0)
    before = Sum(a.copy(order="F"), 1e-5, FP64).compressed()
    after = solve(Sum(a.copy(order="F"), 1e-5, FP64), lower.astype)
    assert np.array_equal(after.values, before.values)
    assert np.allclose(after.v, before.v / 2, rtol=1e-14, atol=0)
