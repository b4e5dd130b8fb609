from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

import geomxp as gx
from geomxp.linalg import nested
from geomxp.linalg.formats import FP32, FP64, named
from geomxp.linalg.nested import SymmetricTree

LAYERS = (
    *(("fp64",), ("fp32",), ("bf16", "fp32"), ("fp16", "fp32"), ("fp16", "fp16", "fp32")),
    *(("fp8", "fp16", "fp32"), ("tf32", "fp32"), ("fp16", "fp64")),
    *(("fp32", "fp64"), ("fp32", "fp32", "fp32", "fp64"), ("fp16", "fp32", "fp64")),
    ("fp32", "fp16", "fp64"),
)
in_all_layers = pytest.mark.parametrize("layers", LAYERS, ids="-".join)


@cache
def paper(n):
    """The paper's matrix: uniform random + n·I."""
    a = np.random.default_rng(0).random((n, n))
    return (a + a.T) / 2 + n * np.eye(n)


@cache
def matern(n):
    """Matérn of smoothness 1/2 with a nugget, in the order of one coordinate."""
    places = np.random.default_rng(1).random((n, 2))
    places = places[np.argsort(places[:, 0])]
    return np.exp(-cdist(places, places) / 0.03) + 0.1 * np.eye(n)


MATRICES = pytest.mark.parametrize("family", [paper, matern], ids=["paper", "matern"])


def off_diagonal(a, layers):
    """The largest u of a layer times the share of what is not on the diagonal, and the leaves'.

    Sums of products are FP32's, which counts where the leaves are FP64.
    """
    *above, last = map(named, layers)
    coarse = [form.unit_roundoff for form in above if form.coarser_than(last.dtype)]
    lower = abs(np.linalg.cholesky(a))
    beside = lower - np.diag(lower.diagonal())
    size = np.linalg.norm(a)
    leaves = 2 * (len(a) + 1) * last.unit_roundoff * np.linalg.norm(lower @ lower.T)
    if not coarse:
        return leaves / size
    share = np.sqrt(2) * np.linalg.norm(beside @ lower.T)
    sums = np.sqrt(len(a)) * FP32.unit_roundoff if last is FP64 else 0.0
    return ((3 * max(coarse) + sums) * share + leaves) / size


@pytest.mark.parametrize("levels", [1, 2, 3, 4])
@pytest.mark.parametrize("leaf", [8, 32])
def test_half_precision_blocks_take_five_eighths_of_fp32s_lower_triangle(levels, leaf):
    n = leaf * 2**levels
    bytes_of_fp32 = 4 * n * (n + 1) // 2
    tree = SymmetricTree(paper(n), ("fp32",), leaf=leaf)
    assert tree.nbytes == bytes_of_fp32
    if levels >= 2:
        tree = SymmetricTree(paper(n), ("fp16", "fp16", "fp32"), leaf=leaf)
        # blocks of n/2 and n/4 in two bytes, four lower triangles of n/4 in four
        assert tree.nbytes == n * n // 2 + n * n // 4 + 4 * (n // 4) * (n // 4 + 1) * 2
        assert abs(tree.nbytes / bytes_of_fp32 - 5 / 8) <= 1 / n
    assert SymmetricTree(paper(n), ("fp64",), leaf=leaf).nbytes == 2 * bytes_of_fp32


@pytest.mark.slow
@pytest.mark.parametrize("leaf", [8, 32])
def test_each_block_takes_the_bytes_of_its_format(leaf):
    n = 8 * leaf
    squares, leaves = [(n // 2) ** 2, 2 * (n // 4) ** 2, 4 * leaf**2], 8 * leaf * (leaf + 1) // 2

    def expected(*sizes):
        return sum(b * s for b, s in zip(sizes[:3], squares, strict=True)) + sizes[3] * leaves

    for layers, *sizes in (
        *((("fp32", "fp64"), 4, 8, 8, 8), (("fp32",) * 3 + ("fp64",), 4, 4, 4, 8)),
        *((("fp16", "fp32", "fp64"), 2, 4, 8, 8), (("fp8", "fp16", "fp32", "fp64"), 1, 2, 4, 8)),
        # a format finer than the leaves' is not stored
        (("fp64", "fp32"), 4, 4, 4, 4),
    ):
        tree = SymmetricTree(paper(n), layers, leaf=leaf)
        assert tree.nbytes == expected(*sizes)
        assert tree.potrf().nbytes == expected(*sizes)


@MATRICES
def test_numbers_of_fp32_blocks_are_fp32s_and_those_of_fp64_leaves_are_not(family):
    n = 256
    lower = SymmetricTree(family(n), ("fp32", "fp64"), leaf=32).potrf().to_dense()
    h = n // 2
    # rows and columns are scaled by powers of two
    np.testing.assert_array_equal(lower[h:, :h].astype(np.float32), lower[h:, :h])
    for half in (lower[:h, :h], lower[h:, h:]):
        assert (half.astype(np.float32) != half)[np.tril_indices(h)].mean() > 0.9


@MATRICES
def test_fp32_layers_above_fp64_err_less_than_fp32_and_more_than_fp64(family):
    a = family(250)
    errors = []
    for layers in (("fp64",), ("fp32", "fp64"), ("fp32",) * 3 + ("fp64",), ("fp32",)):
        lower = SymmetricTree(a, layers, leaf=16).potrf().to_dense()
        errors.append(np.linalg.norm(lower @ lower.T - a))
    fp64, one, three, fp32 = errors
    assert 1e4 * fp64 < one < three < fp32


@pytest.mark.slow
@in_all_layers
def test_a_factored_tree_takes_no_more_bytes(layers):
    tree = SymmetricTree(paper(100), layers, leaf=8)
    before = tree.nbytes
    assert not tree.factored
    assert tree.potrf() is tree
    assert tree.factored
    assert tree.nbytes == before


@pytest.mark.parametrize("layers", [("bf16", "fp16", "fp32"), ("fp16", "fp8", "fp32")])
def test_formats_may_come_in_any_order(layers):
    a = paper(200)
    lower = SymmetricTree(a, layers, leaf=16).potrf().to_dense()
    assert np.linalg.norm(lower @ lower.T - a) <= off_diagonal(a, layers) * np.linalg.norm(a)


@in_all_layers
@MATRICES
def test_a_tree_holds_the_matrix_to_its_formats_roundoff(layers, family):
    n = 130
    a = family(n)
    dense = SymmetricTree(a, layers, leaf=16).to_dense()
    u = max(named(name).unit_roundoff for name in layers)
    # formats with a short range: what is far below its piece's largest number
    assert (abs(dense - np.tril(a)) <= 1.01 * u * (np.tril(a) + 2.0**-10)).all()
    assert not dense[np.triu_indices(n, 1)].any()
    assert dense.dtype == np.float64


@in_all_layers
@MATRICES
def test_the_factor_times_its_transpose_is_the_matrix(layers, family):
    a = family(200)
    lower = SymmetricTree(a, layers, leaf=16).potrf().to_dense()
    assert np.linalg.norm(lower @ lower.T - a) <= off_diagonal(a, layers) * np.linalg.norm(a)
    assert not lower[np.triu_indices(200, 1)].any()


@in_all_layers
@MATRICES
def test_solves_and_the_log_determinant_are_those_of_the_factor(layers, family):
    n = 150
    tree = SymmetricTree(family(n), layers, leaf=16).potrf()
    lower = tree.to_dense()
    expected = 2 * np.log(lower.diagonal()).sum()
    assert abs(tree.log_determinant() - expected) <= 4 * n * FP64.unit_roundoff * abs(expected)
    b = np.random.default_rng(2).standard_normal((n, 3))
    x = tree.solve(b)
    residual = np.linalg.norm(lower @ (lower.T @ x) - b)
    size = np.linalg.norm(abs(lower) @ (abs(lower).T @ abs(x)))
    assert residual <= 4 * (n + 1) * FP64.unit_roundoff * size
    np.testing.assert_allclose(tree.solve(b[:, 0]), x[:, 0], rtol=1e3 * n * FP64.unit_roundoff)
    assert tree.solve(b[:, 0]).shape == (n,)
    assert tree.solve(b[:, :0]).shape == (n, 0)


@in_all_layers
@MATRICES
def test_solutions_and_log_determinants_err_as_the_factor_does(layers, family):
    n = 150
    a = family(n)
    tree = SymmetricTree(a, layers, leaf=16).potrf()
    error = off_diagonal(a, layers) * np.linalg.norm(a)
    smallest = np.linalg.eigvalsh(a)[0]
    if error > smallest / 2:
        pytest.skip("the formats' rounding is as large as the smallest eigenvalue")
    b = np.ones(n)
    x = np.linalg.solve(a, b)
    assert np.linalg.norm(tree.solve(b) - x) <= 2 * error / smallest * np.linalg.norm(x)
    truth = np.linalg.slogdet(a).logabsdet
    assert abs(tree.log_determinant() - truth) <= 2 * np.sqrt(n) * error / smallest


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from([0, 1, 2, 3, 17, 31, 64, 100]),
    st.sampled_from([1, 3, 8, 16, 200]),
    st.sampled_from([("fp64",), ("fp32",)]),
    st.sampled_from([np.float64, np.float32]),
    st.sampled_from("CF"),
    st.sampled_from([1, 2]),
)
def test_without_low_formats_a_tree_has_the_bits_of_the_dense_recursion(
    n, leaf, layers, dtype, order, step
):
    if dtype is np.float32:
        layers = ("fp32",)
    a = np.zeros((step * n, step * n), dtype, order=order)[::step, ::step]
    a[...] = paper(n)
    a[np.triu_indices(n, 1)] = np.nan
    found = SymmetricTree(a, layers, leaf=leaf).potrf().to_dense()
    dense = np.tril(nested.potrf(np.array(a, order="F"), layers, leaf=leaf))
    np.testing.assert_array_equal(found[np.tril_indices(n)], dense[np.tril_indices(n)])


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_matrix_given_stays_as_it_was(order):
    a = np.array(paper(60), order=order)
    SymmetricTree(a, ("fp16", "fp32"), leaf=8).potrf()
    np.testing.assert_array_equal(a, paper(60))


@pytest.mark.parametrize(("n", "leaf"), [(3, 2), (5, 2), (3, 1), (129, 128)])
def test_a_block_of_one_row_is_a_copy(n, leaf):
    a = np.full((n, n), 0.2) + 0.8 * np.eye(n)
    SymmetricTree(a, ("fp64",), leaf=leaf).potrf()
    np.testing.assert_array_equal(a, np.full((n, n), 0.2) + 0.8 * np.eye(n))


@in_all_layers
@pytest.mark.parametrize("scale", [1e30, 1e-30])
@MATRICES
def test_matrices_far_from_one_meet_the_same_bound(layers, scale, family):
    n = 120
    a = family(n)
    rows = np.random.default_rng(3).permutation(np.logspace(-30, 30, n))
    for d in (np.full(n, np.sqrt(scale)), rows):
        tree = SymmetricTree(a * d * d[:, None], layers, leaf=16).potrf()
        lower = tree.to_dense() / d[:, None]
        assert np.linalg.norm(lower @ lower.T - a) <= 2 * off_diagonal(a, layers) * np.linalg.norm(
            a
        )
        plain = 2 * np.log(lower.diagonal()).sum()
        size = abs(plain) + 2 * abs(np.log(d)).sum()
        error = abs(tree.log_determinant() - plain - 2 * np.log(d).sum())
        assert error <= 4 * n * FP64.unit_roundoff * size


@pytest.mark.parametrize("n", [0, 1])
def test_the_smallest_trees_are_factored_and_solved_with(n):
    tree = SymmetricTree(4.0 * np.eye(n), ("fp16", "fp32")).potrf()
    assert tree.log_determinant() == n * np.log(4.0)
    np.testing.assert_array_equal(tree.solve(np.ones(n)), np.full(n, 0.25))
    np.testing.assert_array_equal(tree.solve(np.ones((n, 2))), np.full((n, 2), 0.25))
    np.testing.assert_array_equal(tree.to_dense(), 2.0 * np.eye(n))


def test_a_tree_that_is_not_factored_says_so():
    tree = SymmetricTree(paper(20), leaf=8)
    for work in (tree.log_determinant, lambda: tree.solve(np.ones(20))):
        with pytest.raises(ValueError, match=r"not factored: call potrf\(\) first"):
            work()


def test_factoring_twice_is_refused_and_changes_nothing():
    tree = SymmetricTree(paper(20), leaf=8).potrf()
    before = tree.to_dense()
    with pytest.raises(ValueError, match="factored already"):
        tree.potrf()
    np.testing.assert_array_equal(tree.to_dense(), before)


def poisoned(shape, dtype=float, order="C"):
    """An array that was never written: signalling NaNs, which any arithmetic complains about."""
    found = np.zeros(shape, dtype, order=order)
    found.view(f"u{found.itemsize}")[...] = {8: 0x7FF4 << 48, 4: 0x7FA00000}.get(found.itemsize, 0)
    return found


@in_all_layers
def test_what_memory_held_before_does_not_matter(monkeypatch, layers):
    def results():
        a = np.ascontiguousarray(1e-20 * matern(60))
        tree = SymmetricTree(a, layers, leaf=8).potrf()
        numbers = tree.to_dense(), tree.solve(np.ones(60)), tree.log_determinant()
        return *numbers, np.tril(nested.potrf(a, layers, leaf=8))

    expected = results()
    monkeypatch.setattr(np, "empty", poisoned)
    for one, other in zip(results(), expected, strict=True):
        np.testing.assert_array_equal(one, other)


@in_all_layers
@pytest.mark.parametrize("order", [1, 30, 60])
def test_a_tree_that_is_not_positive_definite_raises_with_lapacks_order(layers, order):
    a = paper(60).copy()
    a[order - 1, order - 1] = -1.0
    tree = SymmetricTree(a, layers, leaf=8)
    with pytest.raises(gx.NotPositiveDefinite, match=f"order {order} is not") as error:
        tree.potrf()
    assert error.value.order == order
    with pytest.raises(ValueError, match="not factored"):
        tree.solve(np.ones(60))


@pytest.mark.parametrize("where", [(0, 0), (59, 59), (40, 3)])
@pytest.mark.parametrize(("number", "name"), [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "inf")])
def test_a_nan_or_an_infinity_is_named(where, number, name):
    a = paper(60).copy()
    a[where] = number
    with pytest.raises(gx.InvalidInput, match=f"holds {name}"):
        SymmetricTree(a, ("fp16", "fp32"), leaf=8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SymmetricTree(np.eye(4), ("fp32", "fp16")), "must end with 'fp32' or 'fp64'"),
        (lambda: SymmetricTree(np.eye(4), ("half", "fp32")), "Got 'half'"),
        (lambda: SymmetricTree(np.ones((4, 2))), r"must be a square matrix. Got \(4, 2\)"),
        (lambda: SymmetricTree(np.eye(4, dtype=int)), "must be of float64 or float32. Got int64"),
        (lambda: SymmetricTree([[1.0]]), "must be a square matrix. Got list"),
        (lambda: SymmetricTree(np.eye(4)).potrf().solve(np.ones(3)), r"`b` must.*Got.*\(3,\)"),
        (
            lambda: SymmetricTree(np.eye(4)).potrf().solve(np.ones((2, 4))),
            r"`b` must.*Got.*\(2, 4\)",
        ),
    ],
)
def test_wrong_arguments_give_one_clear_line(call, message):
    with pytest.raises(gx.InvalidInput, match=message) as error:
        call()
    assert "\n" not in str(error.value)
    assert issubclass(type(error.value), ValueError)


def test_fp32_leaves_are_what_a_tree_solves_with():
    """FP64 arithmetic on what is stored: the error is the factor's, not the solve's."""
    n = 100
    tree = SymmetricTree(paper(n), ("fp32",), leaf=16).potrf()
    x = tree.solve(np.ones(n))
    assert x.dtype == np.float64
    error = np.linalg.norm(paper(n) @ x - 1.0) / np.sqrt(n)
    assert FP64.unit_roundoff * n < error <= 4 * n * FP32.unit_roundoff
