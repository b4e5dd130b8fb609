import numpy as np
import pytest
from cuda_emulator import session
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import solve_triangular

import geomxp as gx
from geomxp.covariance.ordering import hilbert
from geomxp.likelihood.factors import dense_factor, tile_factor
from geomxp.linalg import loops
from geomxp.linalg.formats import FORMATS, FP64, Tile, quantize
from geomxp.runtime.devices import resolve
from geomxp.tiles.factor import CholeskyFactor, product
from geomxp.tiles.layout import WHOLE

MODEL = gx.Matern(1.7, 0.15, 0.8, 0.05)
U = 2.0**-53
HALF = pytest.mark.skipif(
    not loops.HAS_FP16_CONVERSION, reason="this CPU does not convert FP16 itself"
)
RULES = [
    gx.uniform("fp64"),
    gx.uniform("fp32"),
    gx.uniform("fp8"),
    gx.by_tile_norm(1e-4),
    gx.by_tile_norm(1e-8),
    gx.layered("fp16", "bf16", "fp32"),
    gx.for_divergence(1e-2),
]


def places_of(n, seed=1):
    return np.random.default_rng(seed).random((n, 2))


def seen_at(places):
    return gx.Inputs(places)


def sigma_of(places, model=MODEL):
    return model(places, places) + model.nugget * np.eye(len(places))


def factor_of(places, rule, tile, model=MODEL):
    return tile_factor(model, seen_at(places), rule, tile)


def random(shape, seed=5):
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("unit", [1.0, 4.0**200, 4.0**-200, 3e-100])
@pytest.mark.parametrize(("n", "tile"), [(101, 16), (96, 32), (101, 101), (3, 1)])
def test_fp64_tiles_answer_as_the_dense_factor_does(n, tile, unit):
    places = places_of(n)
    model = gx.Matern(1.7 * unit, 0.15, 0.8, 0.05 * unit)
    tiles = factor_of(places, gx.uniform("fp64"), tile, model)
    dense = dense_factor(model, seen_at(places), resolve("cpu"))
    sigma = sigma_of(places)
    tolerance = 10 * n * U * np.linalg.cond(sigma)
    expected = dense.log_determinant()
    assert abs(tiles.log_determinant() - expected) <= tolerance + 4 * U * abs(expected)
    b = np.asfortranarray(random((n, 4)))
    for got, wanted in (
        (tiles.solve(b), dense.solve(b)),
        (np.linalg.norm(tiles.half_solve(b), axis=0), np.linalg.norm(dense.half_solve(b), axis=0)),
    ):
        assert np.linalg.norm(got - wanted) <= tolerance * np.linalg.norm(wanted)
    eye = np.eye(n, order="F")
    root = tiles.multiply(eye)
    size = unit * np.linalg.norm(sigma)
    assert np.linalg.norm(root @ root.T - unit * sigma) <= 10 * n * U * size
    inverse, wanted = np.tril(tiles.into_inverse()), np.tril(dense.into_inverse())
    assert np.linalg.norm(inverse - wanted) <= tolerance * np.linalg.norm(wanted)


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize(("n", "tile"), [(101, 16), (64, 64)])
def test_what_a_tile_stores_is_what_it_stands_for(rule, n, tile):
    """Answers are exact for Σₐ = LL', however coarse its tiles are."""
    factor = factor_of(places_of(n), rule, tile)
    lower = factor.dense()
    assert (np.triu(lower, 1) == 0).all()
    in_order = lower @ lower.T
    stands_for = np.empty_like(in_order)
    stands_for[np.ix_(factor.order, factor.order)] = in_order
    b = np.asfortranarray(random((n, 3)))
    tolerance = 10 * n * U * np.linalg.cond(stands_for)
    np.testing.assert_allclose(
        factor.log_determinant(), np.linalg.slogdet(stands_for)[1], rtol=0, atol=tolerance
    )
    x = factor.solve(b)
    assert np.linalg.norm(stands_for @ x - b) <= tolerance * np.linalg.norm(b)
    white = factor.half_solve(b)
    assert np.linalg.norm(lower @ white - b[factor.order]) <= tolerance * np.linalg.norm(b)
    back = factor.multiply(white)
    assert np.linalg.norm(back - b) <= tolerance * np.linalg.norm(b)
    inverse = factor.into_inverse()
    np.testing.assert_array_equal(inverse, inverse.T)
    assert np.linalg.norm(inverse @ stands_for - np.eye(n)) <= tolerance * np.sqrt(n)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_places_in_another_order_give_the_same_bits(rule):
    """The factor sorts them itself."""
    places = places_of(130)
    shuffle = np.random.default_rng(2).permutation(130)
    one, other = factor_of(places, rule, 32), factor_of(places[shuffle], rule, 32)
    assert one.precision_map.rows == other.precision_map.rows
    assert one.log_determinant() == other.log_determinant()
    b = random(130)
    np.testing.assert_array_equal(one.solve(b)[shuffle], other.solve(b[shuffle]))
    np.testing.assert_array_equal(one.half_solve(b), other.half_solve(b[shuffle]))
    inverse = one.into_inverse()
    np.testing.assert_array_equal(inverse[np.ix_(shuffle, shuffle)], other.into_inverse())


@pytest.mark.parametrize("tile", [16, 101])
def test_one_column_many_columns_and_a_vector_are_the_same(tile):
    factor = factor_of(places_of(101), gx.by_tile_norm(1e-6), tile)
    many = np.asfortranarray(random((101, 3)))
    for answer in (factor.solve, factor.half_solve):
        together = answer(many)
        assert together.shape == many.shape
        # BLAS may sum one column in another order than three
        tolerance = 10 * 101 * U * np.linalg.cond(sigma_of(places_of(101)))
        for j in range(3):
            vector, column = answer(many[:, j].copy()), answer(many[:, [j]])
            assert vector.shape == (101,)
            assert column.shape == (101, 1)
            np.testing.assert_array_equal(vector, column[:, 0])
            size = np.linalg.norm(vector)
            assert np.linalg.norm(together[:, j] - vector) <= tolerance * size
        np.testing.assert_array_equal(answer(np.ascontiguousarray(many)), together)


def test_zeros_at_the_top_of_a_column_change_nothing():
    """Blocks of zeros are skipped: that is faster, and no other answer."""
    factor = factor_of(places_of(101), gx.by_tile_norm(1e-6), 16)
    lower = factor.dense()
    sparse = np.zeros((101, 2), order="F")
    sparse[60:, 0], sparse[80:, 1] = random(41), random(21)
    b = np.empty_like(sparse)
    b[factor.order] = sparse
    tolerance = 10 * 101 * U * np.linalg.cond(lower) ** 2 * np.linalg.norm(b)
    assert np.linalg.norm(lower @ factor.half_solve(b) - sparse) <= tolerance
    np.testing.assert_array_equal(factor.half_solve(0 * b), 0 * b)


def test_answers_leave_the_question_as_it_was():
    factor = factor_of(places_of(60), gx.by_tile_norm(1e-6), 16)
    b = np.asfortranarray(random((60, 2)))
    before = b.copy()
    for answer in (factor.solve, factor.half_solve, factor.multiply):
        first = answer(b)
        np.testing.assert_array_equal(b, before)
        np.testing.assert_array_equal(answer(b), first)


@pytest.mark.parametrize(("first", "last"), [(0, 7), (5, 9), (9, 10), (8, 20)])
def test_columns_of_the_dense_factor_are_lower_triangular(first, last):
    places = places_of(10)
    factor = dense_factor(MODEL, seen_at(places), resolve("cpu"))
    found = factor.columns(first, last)
    np.testing.assert_array_equal(found, np.tril(factor.lower)[:, first:last])
    eye = np.eye(10, order="F")[:, first:last]
    np.testing.assert_allclose(found, factor.multiply(np.asfortranarray(eye)), rtol=4 * U, atol=0)


def test_bytes_are_those_of_the_formats():
    factor = factor_of(places_of(130), gx.by_tile_norm(1e-4), 32)
    assert factor.nbytes == factor.precision_map.bytes(factor.store.layout)
    assert factor.nbytes < factor_of(places_of(130), gx.uniform("fp64"), 32).nbytes
    assert CholeskyFactor(np.eye(10)).nbytes == 8 * 55


@pytest.mark.slow
@pytest.mark.parametrize("columns", [0, 1, 4])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("form", FORMATS)
@given(st.integers(1, 70), st.integers(1, 70), st.integers(-30, 30), st.booleans())
@settings(max_examples=15)
def test_a_product_is_that_of_the_numbers_of_the_tile(form, kind, columns, m, n, power, transposed):
    rng = np.random.default_rng(m * n)
    a = np.asfortranarray(rng.standard_normal((m, n)) * 2.0**power)
    tile = quantize(a, form, split=form == "fp32" and power > 0)
    x = np.asfortranarray(rng.standard_normal((m if transposed else n, columns)), kind)
    found, wide = product(tile, x, transposed), tile.widen().T if transposed else tile.widen()
    assert found.flags.f_contiguous
    assert found.dtype == kind
    # the error of a sum of rounded products in any order
    bound = len(x) * np.finfo(kind).eps * (abs(wide) @ abs(x.astype(float)))
    assert np.all(abs(found - wide @ x) <= bound)


def test_a_product_of_a_tile_by_rows_is_the_same():
    rng = np.random.default_rng(0)
    a, x = rng.standard_normal((5, 7)), rng.standard_normal((7, 1))
    np.testing.assert_allclose(product(Tile(FP64, a), x), a @ x, rtol=1e-13)
    np.testing.assert_allclose(product(Tile(FP64, a), a @ x, True), a.T @ (a @ x), rtol=1e-13)


@pytest.mark.parametrize("form", ["fp64", "fp32", "bf16", pytest.param("fp16", marks=HALF)])
def test_a_product_with_one_column_writes_no_wider_tile(form, monkeypatch):
    rng = np.random.default_rng(0)
    tile, x = quantize(np.asfortranarray(rng.random((5, 7))), form), rng.random((7, 1))
    expected = tile.widen() @ x
    monkeypatch.delattr(Tile, "widen")
    np.testing.assert_allclose(product(tile, x), expected, rtol=1e-13)


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("along_curve", [True, False])
@pytest.mark.parametrize("rule", [gx.uniform("fp64"), gx.by_tile_norm(1e-6), gx.uniform("fp16")])
def test_cupy_arrays_are_whitened_on_their_device(rule, along_curve):
    cupy = pytest.importorskip("cupy")
    places = places_of(130)
    places = places[hilbert(places)] if along_curve else places
    dense = dense_factor(MODEL, seen_at(places), resolve("gpu"))
    tiles = gx.Exact(rule, 32, on="gpu").prepare(seen_at(places)).factorize(MODEL)
    assert (tiles.order == np.arange(130)).all() == along_curve
    columns = dense.columns(40, 61)
    assert isinstance(columns, cupy.ndarray)
    lower = np.tril(dense.lower.get())
    np.testing.assert_array_equal(columns.get(), lower[:, 40:61])
    before = columns.get()
    order = np.arange(130)
    for factor, root, rows in ((dense, lower, order), (tiles, tiles.dense(), tiles.order)):
        found = factor.whiten(columns)
        assert isinstance(found, cupy.ndarray)
        np.testing.assert_array_equal(columns.get(), before)
        expected = solve_triangular(root, before[rows], lower=True)
        np.testing.assert_allclose(found.get(), expected, rtol=1e-10, atol=1e-11)
        np.testing.assert_array_equal(factor.half_solve(before), found.get())


@pytest.mark.gpu
@pytest.mark.parametrize("tile", [32, None])
def test_explained_variances_of_cupy_arrays_come_back_as_vectors_only(tile):
    if not session.size(False, True):
        pytest.skip("the emulator counts bytes")
    import cupy
    from cuda_emulator import machine

    seen, n = seen_at(places_of(130)), 130
    factor = gx.Exact(tile=tile, on="gpu").prepare(seen).factorize(MODEL)
    k, x = random((n, 40)), random((n, 2), 6)
    here = gx.Exact(tile=tile).prepare(seen).factorize(MODEL).explained_by(x)(k)
    explained, there = factor.explained_by(x), cupy.asarray(np.asfortranarray(k))
    explained(there)
    with machine.counting() as counts:
        found = explained(there)
    # squares and products of 40 columns, whether blocks of rows are zero, and the order, which only
    # the emulator reads; the columns would be 8 n · 40
    assert counts["bytes to host"] <= 8 * 40 * 3 + 8 + 8 * n
    for got, expected in zip(found, here, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-9)
    squares, cross = factor.explained_by(np.zeros((n, 0)))(there)
    np.testing.assert_allclose(squares, here[0], rtol=1e-9)
    assert cross.shape == (40, 0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("columns", [slice(0, 1), slice(0, 101), slice(16, 48), slice(70, 101)])
@pytest.mark.parametrize("unit", [1.0, 4.0**9])
@pytest.mark.parametrize(
    ("rule", "tile"),
    [
        *((rule, 16) for rule in (gx.uniform("fp64"), gx.by_tile_norm(1e-4))),
        *((rule, WHOLE) for rule in (gx.by_tile_norm(1e-4), gx.layered("fp16", "fp32"))),
    ],
)
def test_columns_are_those_of_the_inverse_and_of_congruences(rule, tile, unit, columns, dtype):
    n, places = 101, places_of(101)
    method = gx.Exact(rule, tile=tile)
    model = gx.Matern(1.7 * unit, 0.15, 0.8, 0.05 * unit)
    factor = method.prepare(gx.Observations(places, np.ones(n))).factorize(model)
    lower = factor.dense()
    inverse = np.linalg.inv(lower @ lower.T)
    rounding = np.finfo(dtype).eps * np.linalg.cond(sigma_of(places)) * n
    found = factor.inverse_columns(columns, dtype)
    assert found.dtype == dtype
    assert found.flags.f_contiguous
    size = np.abs(inverse).max()
    np.testing.assert_allclose(
        np.tril(found), np.tril(inverse[columns.start :, columns]), rtol=0, atol=rounding * size
    )
    if tile == WHOLE and rule == gx.layered("fp16", "fp32"):
        return
    changes = {"one": random((n, n)), "two": np.diag(np.arange(n) / n)}
    changes["one"] += changes["one"].T
    read = []

    def add_products(z, found):
        read.append(z.copy())
        for name, change in changes.items():
            found[name] += change.astype(dtype) @ z

    parts = factor.congruence_columns(columns, list(changes), add_products, dtype)
    (z,) = read
    assert not z[columns.stop :].any()
    half = np.linalg.inv(lower)
    for name, change in changes.items():
        want = (half @ change @ half.T)[columns.start :, columns]
        scale = np.linalg.norm(half, 2) ** 2 * np.linalg.norm(change, 2)
        np.testing.assert_allclose(parts[name], want, rtol=0, atol=rounding * scale)


@pytest.mark.gpu
@pytest.mark.parametrize("tile", [16, WHOLE])
def test_columns_of_tiles_on_a_gpu_are_those_of_a_cpu(tile):
    places, columns = gx.Observations(places_of(101), np.ones(101)), slice(16, 48)
    found = []
    for on in ("cpu", "gpu"):
        method = gx.Exact(gx.by_tile_norm(1e-12), tile=tile, on=on)
        factor = method.prepare(places).factorize(MODEL)

        def add_products(z, parts):
            parts["range"] += 2.0 * z

        parts = factor.congruence_columns(columns, ["range"], add_products)
        found.append((factor.inverse_columns(columns), parts["range"]))
    for ours, theirs in zip(*found, strict=True):
        assert isinstance(theirs, np.ndarray)
        np.testing.assert_allclose(np.tril(ours), np.tril(theirs), rtol=0, atol=1e-8 * ours.max())
