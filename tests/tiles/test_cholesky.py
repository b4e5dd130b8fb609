import numpy as np
import pytest
import scipy.linalg

import geomxp as gx
from geomxp.covariance.ordering import hilbert
from geomxp.linalg.formats import FP8, FP16, FP32, FP64, Tile
from geomxp.linalg.precision import PrecisionMap, count_finer
from geomxp.tiles.assemble import Originals
from geomxp.tiles.cholesky import factorize, finish, finish_tile, left_looking, looking_ahead
from geomxp.tiles.factor import TileFactor
from geomxp.tiles.layout import Layout
from geomxp.tiles.stores import InCore

RANGES = {"weak": 0.02627, "medium": 0.078809, "strong": 0.210158}


class Matrix:
    """Originals of a matrix that is given."""

    exponent = 0

    def __init__(self, a, tile):
        self.a, self.layout = a, Layout(len(a), tile)

    def tile(self, i, k, form=FP64, careful=False):
        part = self.a[self.layout.rows(i), self.layout.rows(k)]
        return np.array(part, dtype=form.dtype, order="F")

    def norms(self):
        tiles = self.layout.tiles
        return np.array(
            [[np.linalg.norm(self.tile(i, k)) for k in range(tiles)] for i in range(tiles)]
        )


def one_by_one(store, tiles):
    for tile in tiles:
        finish(store, *tile)


def factor_of(originals, rule):
    """The factor in tiles, and how many were promoted."""
    store = InCore(originals, rule(originals.norms()))
    promoted = factorize(store, left_looking(originals.layout.tiles), one_by_one)
    return TileFactor(store, np.arange(originals.layout.n), promoted)


def known(n):
    """A matrix whose factor is known in closed form: t_ij = 2^-|i-j|."""
    apart = np.subtract.outer(np.arange(n), np.arange(n))
    factor = np.tril(2.0 ** -apart.clip(0))
    return factor @ factor.T, factor


def field(n, model, tile, seed=1):
    """The originals and the matrix of a model at random places, in the order of the tiles."""
    places = np.random.default_rng(seed).random((n, 2))
    places = places[hilbert(places)]
    originals = Originals(model, places, "euclidean", Layout(n, tile))
    return originals, model(places, places) + model.nugget * np.eye(n)


def backward_error(factor, sigma):
    lower = factor.dense()
    return np.linalg.norm(sigma - lower @ lower.T) / np.linalg.norm(sigma)


# one tile, one entry a tile, one row in the last tile, one row less, a prime, no remainder
SIZES = [(1, 1), (2, 1), (7, 7), (7, 1), (33, 16), (31, 16), (97, 16), (96, 16), (5, 4), (64, 64)]


@pytest.mark.parametrize(("n", "tile"), SIZES)
@pytest.mark.parametrize("form", [FP64, FP32], ids=str)
def test_the_factor_is_the_one_that_is_known_in_closed_form(n, tile, form):
    a, expected = known(n)
    factor = factor_of(Matrix(a, tile), gx.uniform(form))
    u = form.unit_roundoff if form is FP64 else 2.0**-22  # two FP16 planes hold 22 bits
    assert abs(factor.dense() - expected).max() <= 4 * (n + 1) * u
    assert abs(factor.log_determinant()) <= 4 * n * (n + 1) * u
    assert factor.promotions == 0


@pytest.mark.parametrize("form", ["fp8", "fp16", "bf16", "tf32", "fp32", "fp64"])
@pytest.mark.parametrize(("n", "tile"), [(97, 16), (64, 64), (7, 1)])
def test_the_factor_multiplies_back_to_the_error_of_its_formats(form, n, tile):
    """A diagonally dominant matrix, which every format can factor."""
    a, _ = known(n)
    a += 2 * np.eye(n)
    factor = factor_of(Matrix(a, tile), gx.uniform(form))
    unit = max(gx.uniform(form).form.unit_roundoff, 2.0**-24 if form != "fp64" else 0.0)
    assert (
        backward_error(factor, a)
        <= 4 * unit + 4 * (n + 1) * (FP64 if form == "fp64" else FP32).unit_roundoff
    )


@pytest.mark.parametrize("nugget", [0.0, 1e-2])
@pytest.mark.parametrize("tile", [3, 16, 64, 101])
def test_fp64_tiles_have_the_dense_factor(nugget, tile):
    originals, sigma = field(101, gx.Matern(1.3, 0.1, 0.8, nugget), tile)
    factor = factor_of(originals, gx.uniform("fp64"))
    expected = scipy.linalg.cholesky(sigma, lower=True)
    allowed = 10 * 101 * FP64.unit_roundoff * np.linalg.cond(sigma)
    assert abs(factor.dense() - expected).max() <= allowed
    assert backward_error(factor, sigma) <= 10 * 101 * FP64.unit_roundoff


@pytest.mark.slow
@pytest.mark.parametrize("accuracy", [1e-4, 1e-5, 1e-6, 1e-7, 1e-8])
@pytest.mark.parametrize("smoothness", [0.5, 1.5])
@pytest.mark.parametrize("correlation", RANGES)
def test_backward_error_is_what_was_asked_for(correlation, smoothness, accuracy):
    model = gx.Matern(1.0, RANGES[correlation], smoothness, 1e-2)
    originals, sigma = field(701, model, 64)
    factor = factor_of(originals, gx.by_tile_norm(accuracy))
    assert backward_error(factor, sigma) <= 10 * accuracy


@pytest.mark.parametrize("smoothness", [0.5, 1.5])
def test_scaled_tiles_are_five_times_as_accurate_where_a_third_is_fp8(smoothness):
    originals, sigma = field(701, gx.Matern(1.0, RANGES["weak"], smoothness, 1e-2), 64)
    scaled, unscaled = (
        factor_of(originals, gx.by_tile_norm(1e-4, scale=scale)) for scale in (True, False)
    )
    counts = scaled.precision_map.counts()
    assert 3 * counts["fp8"] >= sum(counts.values())
    assert unscaled.precision_map.counts() == counts
    assert unscaled.nbytes == scaled.nbytes
    assert 5 * backward_error(scaled, sigma) <= backward_error(unscaled, sigma)


@pytest.mark.parametrize("form", [FP64, FP32], ids=str)
def test_a_tile_is_finished_by_its_equation(form):
    """L_ik = (A_ik - Σ_j L_ij L_kj') L_kk⁻' and L_kk L_kk' = A_kk - Σ_j L_kj L_kj'."""
    rng = np.random.default_rng(2)

    def tile(*shape):
        return Tile(form, np.asfortranarray(rng.uniform(0.1, 1.0, shape).astype(form.dtype)))

    left, right = [tile(6, 5) for _ in range(3)], [tile(4, 5) for _ in range(3)]
    a = np.asfortranarray(rng.standard_normal((6, 4)).astype(form.dtype))
    diagonal = Tile(
        form, np.asfortranarray(np.tril(np.ones((4, 4), form.dtype)) + np.eye(4, dtype=form.dtype))
    )
    products = sum(x.values @ y.values.T for x, y in zip(left, right, strict=True))
    wanted = a - products
    found = finish_tile(a.copy(order="F"), zip(left, right, strict=True), lambda: diagonal)
    tolerance = 100 * form.unit_roundoff
    np.testing.assert_allclose(found @ diagonal.values.T, wanted, rtol=0, atol=tolerance * 8)

    square = np.asfortranarray(20 * np.eye(4, dtype=form.dtype))
    wanted = square - sum(y.values @ y.values.T for y in right)
    found = finish_tile(square.copy(order="F"), ((y, y) for y in right))
    np.testing.assert_allclose(found @ found.T, wanted, rtol=0, atol=tolerance * 20)
    np.testing.assert_array_equal(np.triu(found, 1), 0.0)


HARD = [
    pytest.param(gx.Matern(1.0, 0.2, 2.5, 1e-6), gx.by_tile_norm(1e-2), id="smooth, norms"),
    pytest.param(gx.Matern(1.0, 0.2, 2.5, 1e-6), gx.uniform("fp16"), id="smooth, uniform"),
    pytest.param(gx.Matern(1.0, 0.2, 1.5, 1e-4), gx.uniform("fp8"), id="rough, uniform"),
    pytest.param(
        gx.Matern(1.0, 0.2, 2.5, 1e-5), gx.layered("fp16", "fp32", "fp64"), id="smooth, layered"
    ),
]


@pytest.mark.parametrize(("model", "rule"), HARD)
def test_where_coarse_formats_fail_finer_ones_are_counted_and_succeed(model, rule):
    originals, sigma = field(300, model, 32)
    first = rule(originals.norms())
    factor = factor_of(originals, rule)
    assert factor.promotions == count_finer(first, factor.precision_map) > 0
    assert count_finer(factor.precision_map, first) == 0
    assert factor.nbytes == factor.precision_map.bytes(originals.layout)
    diagonal = factor.dense().diagonal()
    assert (diagonal > 0).all()
    # what is stored multiplies back no worse than the coarsest format says
    coarsest = max(form.unit_roundoff for row in first.rows for form in row)
    assert backward_error(factor, sigma) <= 4 * coarsest


def test_promotion_is_of_the_block_row_that_failed_and_of_no_other():
    """Row 2's FP16 tile hides that its pivots are positive; in FP32 they are seen."""
    n, tile = 48, 16
    root = np.eye(n)
    # a row of L that FP16 rounds, and pivots smaller than that rounding's error in its squares
    root[32:, :32] = np.random.default_rng(3).uniform(0.5, 1.0, (16, 32))
    root[32:, 32:] *= 3e-3
    a = root @ root.T
    rows = ((FP64,), (FP64, FP64), (FP16, FP32, FP64))
    originals = Matrix(a, tile)
    store = InCore(originals, PrecisionMap(rows))
    promoted = factorize(store, left_looking(3), one_by_one)
    assert promoted == 2
    assert store.formats.rows == ((FP64,), (FP64, FP64), (FP32, FP64, FP64))
    lower = TileFactor(store, np.arange(n)).dense()
    assert abs(lower @ lower.T - a).max() <= 4 * 2.0**-22 * abs(a).max()


@pytest.mark.parametrize("order", [1, 16, 17, 38, 50])
@pytest.mark.parametrize(
    "rule", [gx.uniform("fp64"), gx.uniform("fp8"), gx.by_tile_norm(1e-4)], ids=repr
)
def test_an_indefinite_matrix_is_an_error_with_the_order_of_its_minor(order, rule):
    a, _ = known(50)
    a[order - 1, order - 1] = -1.0
    dense = scipy.linalg.lapack.dpotrf(a, lower=1)[1]
    assert dense == order
    with pytest.raises(gx.NotPositiveDefinite, match=f"minor of order {order} is not") as caught:
        factor_of(Matrix(a, 16), rule)
    assert caught.value.order == order


def test_a_matrix_that_only_its_last_pivot_makes_indefinite_is_seen_in_fp64():
    """The last entry is just too small, by a hundred roundings."""
    a, _ = known(50)
    a[-1, -1] -= 1.0 + 100 * FP64.unit_roundoff
    with pytest.raises(gx.NotPositiveDefinite) as caught:
        factor_of(Matrix(a, 16), gx.uniform("fp64"))
    assert caught.value.order == 50
    a[-1, -1] += 200 * 50 * FP64.unit_roundoff
    assert factor_of(Matrix(a, 16), gx.uniform("fp64")).dense()[-1, -1] > 0


def test_zeros_below_the_diagonal_cost_nothing_and_change_nothing():
    a = np.kron(np.eye(3), known(16)[0])
    factor = factor_of(Matrix(a, 16), gx.by_tile_norm(1e-10))
    assert factor.precision_map.counts() == {"fp64": 3, "fp8": 3}
    expected = np.kron(np.eye(3), known(16)[1])
    assert abs(factor.dense() - expected).max() <= 4 * 17 * FP64.unit_roundoff
    assert factor.store.final(2, 0).form is FP8


@pytest.mark.parametrize("tiles", range(10))
def test_looking_ahead_has_each_tile_once_after_those_that_it_needs(tiles):
    order = list(looking_ahead(tiles))
    place = {tile: at for at, tile in enumerate(order)}
    assert len(place) == len(order) == tiles * (tiles + 1) // 2
    for (i, k), at in place.items():
        needed = [(row, j) for row in (i, k) for j in range(k)] + [(k, k)] * (i > k)
        assert all(place[tile] < at for tile in needed)


@pytest.mark.parametrize("tiles", range(4, 10))
def test_looking_ahead_has_a_diagonal_tile_before_the_end_of_the_column_before(tiles):
    place = {tile: at for at, tile in enumerate(looking_ahead(tiles))}
    for k in range(1, tiles - 2):
        assert place[k, k] < place[tiles - 1, k - 1]
