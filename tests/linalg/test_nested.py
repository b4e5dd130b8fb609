from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg.blas import dsyrk, dtrmm, dtrsm
from scipy.spatial.distance import cdist

import geomxp as gx
from geomxp.linalg import backend, blas, mixed, nested, recursive
from geomxp.linalg.formats import BF16, FP16, FP32, FP64, named
from geomxp.linalg.recursive import halve

UNIT = {np.dtype(np.float64): 2.0**-53, np.dtype(np.float32): 2.0**-24}
SIZES = st.sampled_from([0, 1, 2, 3, 5, 8, 13, 17, 31, 37])
LEAVES = st.sampled_from([1, 2, 3, 5, 8, 16, 64])
DTYPES = st.sampled_from([np.float64, np.float32])
LETTERS = {"side": "LR", "uplo": "LU", "trans": "NT", "diag": "NU"}
LAYERS = (
    *(("bf16", "fp32"), ("fp16", "fp32"), ("fp16", "fp16", "fp32")),
    *(("fp8", "fp16", "fp32"), ("tf32", "fp32"), ("fp16", "fp64")),
    *(("fp32", "fp64"), ("fp32", "fp32", "fp32", "fp64"), ("fp16", "fp32", "fp64")),
)
SLICES = {
    "rows": np.s_[:, :],
    "columns": np.s_[:, :],
    "part of rows": np.s_[1:-1, 2:-3],
    "part of columns": np.s_[1:-1, 2:-3],
    "strided": np.s_[::2, ::3],
    "reversed": np.s_[::-1, ::-1],
    "rows reversed": np.s_[::-1, :],
}
LAYOUTS = st.sampled_from(sorted(SLICES))
sweep = settings(deadline=None, max_examples=60)


class Laid:
    """An array in a layout, and the memory around it, which nobody is to touch."""

    def __init__(self, numbers, layout):
        (m, n), where = numbers.shape, SLICES[layout]
        around = {"strided": (2 * m, 3 * n)}.get(layout, (m, n))
        if layout.startswith("part"):
            around = (m + 2, n + 5)
        order = "F" if "columns" in layout else "C"
        self.memory = np.full(around, np.nan, numbers.dtype, order=order)
        self.view = self.memory[where]
        if layout == "strided":
            self.view = self.view[:m, :n]
        self.view[...] = numbers
        outside = np.ones(around, bool)
        outside[where] = False
        self.outside, self.before = outside, bits(self.memory)

    def is_untouched_outside(self):
        return (bits(self.memory)[self.outside] == self.before[self.outside]).all()


def bits(array):
    return np.ascontiguousarray(array).view(f"i{array.itemsize}").copy()


def random(shape, dtype=np.float64, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def triangular(n, dtype, uplo, diag, seed=0):
    """A well conditioned triangle; what is not to be read is NaN."""
    numbers = random((n, n), seed=seed) / max(n, 1)
    np.fill_diagonal(numbers, 1.0 + abs(numbers.diagonal()))
    numbers[np.triu_indices(n, 1) if uplo == "L" else np.tril_indices(n, -1)] = np.nan
    if diag == "U":
        np.fill_diagonal(numbers, np.nan)
    return numbers.astype(dtype)


def op(t, uplo, trans, diag):
    """The matrix that a triangle stands for, in FP64."""
    t = np.tril(t) if uplo == "L" else np.triu(t)
    t = np.where(np.isnan(t), 0.0, t).astype(float)
    if diag == "U":
        np.fill_diagonal(t, 1.0)
    return t.T if trans == "T" else t


def definite(n, dtype=np.float64, seed=0):
    a = random((n, n + 3), seed=seed)
    return (a @ a.T / (n + 3) + np.eye(n)).astype(dtype)


def paper(n, seed=0):
    """The paper's matrix: uniform random + n·I."""
    a = np.random.default_rng(seed).random((n, n))
    return (a + a.T) / 2 + n * np.eye(n)


def matern(n, correlation, nugget, seed=0):
    """Matérn of smoothness 1/2 at random places in the unit square, in the order of strips."""
    places = np.random.default_rng(seed).random((n, 2))
    places = places[np.lexsort((places[:, 1], np.floor(places[:, 0] * 8)))]
    return np.exp(-cdist(places, places) / correlation) + nugget * np.eye(n)


MATRICES = {
    "paper": paper,
    "weak": lambda n: matern(n, 0.03, 0.01),
    "medium": lambda n: matern(n, 0.1, 0.1),
    "strong": lambda n: matern(n, 0.3, 0.5),
}


@cache
def case(name, n):
    """A matrix of a family and its factor in FP64."""
    a = MATRICES[name](n)
    return a, np.linalg.cholesky(a)


def backward(lower, a):
    lower = np.tril(lower).astype(float)
    return np.linalg.norm(lower @ lower.T - a) / np.linalg.norm(a)


def shares(lower, forms, leaf):
    """Σ u of what each block coarser than the last format takes part in: L21 L11' and L21 L21'.

    Their sums are FP32's, which counts where the last format is finer.
    """
    n, last = len(lower), forms[-1]
    if n <= leaf:
        return 0.0
    h, inner, form = halve(n, leaf), forms[1:] or forms, forms[0]
    first, block = abs(lower[:h, :h]), abs(lower[h:, :h])
    own = 0.0
    if form.coarser_than(last.dtype):
        norm = np.linalg.norm
        own = np.sqrt(2) * norm(block @ first.T) + norm(block @ block.T)
    rest = shares(lower[:h, :h], inner, leaf) + shares(lower[h:, h:], inner, leaf)
    sums = FP32.unit_roundoff * np.sqrt(n) if last is FP64 else 0.0
    return (form.unit_roundoff + sums) * own + rest


def allowed(lower, layers, leaf, dtype=np.float64):
    """The backward error that the formats allow: each number is rounded twice at most."""
    forms = tuple(map(named, layers))
    u = max(forms[-1].unit_roundoff, UNIT[np.dtype(dtype)])
    whole = np.linalg.norm(abs(lower) @ abs(lower).T)
    size = np.linalg.norm(lower @ lower.T)
    return 2 * shares(lower, forms, leaf) / size + 2 * (len(lower) + 1) * u * whole / size


# plain formats, against SciPy


@pytest.mark.slow
@pytest.mark.parametrize("trans", LETTERS["trans"])
@pytest.mark.parametrize("uplo", LETTERS["uplo"])
@pytest.mark.parametrize("side", LETTERS["side"])
@pytest.mark.parametrize("name", ["trsm", "trmm"])
@settings(deadline=None, max_examples=25)
@given(
    *(SIZES, SIZES, LEAVES, st.sampled_from("NU"), DTYPES, LAYOUTS, LAYOUTS),
    st.sampled_from([1.0, -1.0, 0.0, -2.5, 3.0]),
)
def test_triangular_solves_and_products_are_those_of_scipys_blas(
    name, side, uplo, trans, n, m, leaf, diag, dtype, layout_a, layout_b, alpha
):
    a = Laid(triangular(n, dtype, uplo, diag), layout_a)
    right = random((n, m) if side == "L" else (m, n), dtype, 1)
    b = Laid(right, layout_b)
    before = bits(a.memory)
    letters = {"side": side, "uplo": uplo, "trans": trans, "diag": diag}
    layers = ("fp64",) if dtype is np.float64 else ("fp32",)
    found = getattr(nested, name)(a.view, b.view, **letters, alpha=alpha, layers=layers, leaf=leaf)
    assert found is b.view
    assert b.is_untouched_outside()
    np.testing.assert_array_equal(bits(a.memory), before)
    if not right.size:
        return
    scipys = dtrsm if name == "trsm" else dtrmm
    t = op(a.view, uplo, trans, diag)
    plain = np.asfortranarray(t)
    expected = scipys(
        alpha, plain, right.astype(float), side=side == "R", lower=not (t[0, 1:].any())
    )
    size = abs(t) if name == "trmm" else abs(np.linalg.inv(t)) @ abs(t)
    moved = abs(alpha * right) if name == "trmm" else abs(expected)
    bound = size @ moved if side == "L" else moved @ (size if name == "trmm" else size_right(t))
    assert (abs(found - expected) <= 4 * (n + 3) * UNIT[right.dtype] * bound).all()


def size_right(t):
    return abs(t) @ abs(np.linalg.inv(t))


@pytest.mark.slow
@pytest.mark.parametrize("trans", LETTERS["trans"])
@pytest.mark.parametrize("uplo", LETTERS["uplo"])
@sweep
@given(
    *(SIZES, SIZES, LEAVES, DTYPES, LAYOUTS, LAYOUTS),
    *(st.sampled_from([1.0, -1.0, 0.0, 2.5]), st.sampled_from([0.0, 1.0, -1.0, 0.5])),
)
def test_rank_k_updates_are_those_of_scipys_blas(
    uplo, trans, n, k, leaf, dtype, layout_a, layout_c, alpha, beta
):
    numbers = random((n, k) if trans == "N" else (k, n), dtype, 2)
    a = Laid(numbers, layout_a)
    start = random((n, n), dtype, 3)
    triangle = np.tril_indices(n) if uplo == "L" else np.triu_indices(n)
    other = np.triu_indices(n, 1) if uplo == "L" else np.tril_indices(n, -1)
    start[other] = np.nan
    if beta == 0.0:
        start[triangle] = np.nan
    c = Laid(start, layout_c)
    untouched = bits(c.view)[other]
    layers = ("fp64",) if dtype is np.float64 else ("fp32",)
    options = {"uplo": uplo, "trans": trans, "alpha": alpha, "layers": layers, "leaf": leaf}
    assert nested.syrk(a.view, c.view, beta=beta, **options) is c.view
    assert c.is_untouched_outside()
    np.testing.assert_array_equal(bits(c.view)[other], untouched)
    left = numbers.astype(float) if trans == "N" else numbers.T.astype(float)
    earlier = np.zeros((n, n)) if beta == 0.0 else beta * np.nan_to_num(start.astype(float))
    expected = earlier.copy()
    if n and k:
        expected = earlier + dsyrk(alpha, left, lower=uplo == "L")
    size = abs(alpha) * abs(left) @ abs(left).T + abs(earlier)
    bound = 4 * (k + 3) * UNIT[start.dtype] * size
    assert (abs(c.view - expected)[triangle] <= bound[triangle]).all()
    if beta == 0.0:
        fresh = nested.syrk(a.view, **options)
        assert (abs(fresh - expected)[triangle] <= bound[triangle]).all()
        assert not fresh[other].any()


@sweep
@given(SIZES, LEAVES, DTYPES, LAYOUTS)
def test_the_factor_is_that_of_scipys_lapack(n, leaf, dtype, layout):
    numbers = definite(n, dtype)
    numbers[np.triu_indices(n, 1)] = np.nan
    a = Laid(numbers, layout)
    above = bits(a.view)[np.triu_indices(n, 1)]
    layers = ("fp64",) if dtype is np.float64 else ("fp32",)
    assert nested.potrf(a.view, layers, leaf=leaf) is a.view
    assert a.is_untouched_outside()
    np.testing.assert_array_equal(bits(a.view)[np.triu_indices(n, 1)], above)
    if n:
        expected = scipy.linalg.cholesky(definite(n, dtype).astype(float), lower=True)
        found = np.tril(np.nan_to_num(a.view.astype(float)))
        size = np.linalg.norm(expected)
        assert np.linalg.norm(found - expected) <= 8 * (n + 1) * UNIT[numbers.dtype] * size


@pytest.mark.parametrize("layers", [("fp64",), ("fp32",)], ids=str)
@pytest.mark.parametrize("n", [511, 700])
def test_the_tuned_leaves_give_lapacks_factor_too(layers, n, monkeypatch):
    monkeypatch.setitem(recursive.ONE_FORMAT_LEAVES, "potrf", 512)
    a, lower = case("paper", n)
    found = nested.potrf(a.copy(order="F"), layers)
    u = named(layers[0]).unit_roundoff
    assert np.linalg.norm(np.tril(found) - lower) <= 2 * (n + 1) * u * np.linalg.norm(lower)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_tiles_larger_than_a_leaf_are_factored_by_halves(dtype, monkeypatch):
    monkeypatch.setitem(recursive.ONE_FORMAT_LEAVES, "potrf", 64)
    a, lower = case("paper", 300)
    halved, potrf = [], backend.NUMPY.potrf
    monkeypatch.setattr(
        backend.NumpyBackend, "potrf", lambda self, a: halved.append(len(a)) or potrf(a)
    )
    found = mixed.potrf(a.astype(dtype, order="F"))
    assert len(halved) > 4
    assert max(halved) <= 64
    assert np.linalg.norm(found - lower) <= 600 * UNIT[np.dtype(dtype)] * np.linalg.norm(lower)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("layers", [("fp32",), ("fp16", "fp32"), ("tf32", "fp32")], ids=str)
def test_an_unread_triangle_stays_as_it_was_where_fp64_is_worked_on_in_fp32(layers, order):
    """What stands there may be what FP32 cannot hold."""
    n, above = 60, np.triu_indices(60, 1)
    a = np.array(paper(n), order=order)
    for part in (1.0 / 3.0, np.nan, 1e300):
        for scale in (1.0, 1e-20):
            factored, c = scale * a, np.array(a, order=order)
            factored[above] = c[above] = part
            unread = bits(c)[above]
            nested.potrf(factored, layers, leaf=8)
            nested.syrk(a / n, c, beta=1.0, layers=layers, leaf=8)
            np.testing.assert_array_equal(bits(factored)[above], unread)
            np.testing.assert_array_equal(bits(c)[above], unread)
            t = np.array(np.tril(a), order=order)
            t[above] = part
            for work in (nested.trsm, nested.trmm):
                assert np.isfinite(work(t, np.ones((n, 3)), layers=layers, leaf=8)).all()


# in FP64 the leaves of a row-major matrix are LAPACK's upper case, which rounds otherwise
@pytest.mark.parametrize("layers", [("fp32",), ("fp16", "fp32")])
def test_the_bits_of_a_factor_do_not_depend_on_the_layout(layers):
    a, _ = case("paper", 200)
    found = [np.tril(nested.potrf(Laid(a, layout).view, layers, leaf=16)) for layout in SLICES]
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


# layers


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["fp64", "fp32"])
@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("layers", [*LAYERS, ("fp32",), ("fp64",)], ids="-".join)
def test_the_backward_error_is_what_the_coarse_blocks_take_part_in(way, layers, name, dtype):
    if dtype is np.float32 and layers[-1] == "fp64":
        pytest.skip("layers ending with fp64 need an FP64 array")
    n, leaf = 250, 16
    a, lower = case(name, n)
    found = nested.potrf(np.asfortranarray(a, dtype=dtype), layers, leaf=leaf)
    assert backward(found, a) <= allowed(lower, layers, leaf, dtype)


@pytest.mark.slow
def test_coarser_layers_err_more_and_each_format_is_really_used():
    a, _ = case("paper", 250)
    all_layers = (("fp8", "fp32"), ("bf16", "fp32"), ("fp16", "fp32"), ("fp32",), ("fp64",))
    errors = [backward(nested.potrf(a.copy(), layers, leaf=16), a) for layers in all_layers]
    for coarse, fine in pairwise(errors):
        assert coarse > 2 * fine
    deep = backward(nested.potrf(a.copy(), ("fp16", "fp16", "fp16", "fp32"), leaf=16), a)
    assert deep > errors[2]


@pytest.mark.parametrize("name", MATRICES)
def test_fp32_layers_above_fp64_err_less_than_fp32_and_more_than_fp64(name):
    """By the share of the FP32 blocks in A, which grows with their number."""
    a, lower = case(name, 250)
    errors, dense = {}, {}
    for layers in (("fp64",), ("fp32", "fp64"), ("fp32",) * 3 + ("fp64",), ("fp32",)):
        found = nested.potrf(a.copy(order="F"), layers, leaf=16)
        dense[layers], errors[layers] = found, backward(found, a)
        assert errors[layers] <= allowed(lower, layers, 16)
    fp64, one, three, fp32 = errors.values()
    assert 1e4 * fp64 < one <= 1.05 * three < fp32
    # the outermost block alone is FP32: A11 has the bits of FP64 throughout
    h = halve(250, 16)
    first = np.tril(dense["fp64",])[:h, :h]
    np.testing.assert_array_equal(np.tril(dense["fp32", "fp64"])[:h, :h], first)


@pytest.mark.slow
def test_layers_are_a_hundred_times_more_accurate_than_pure_fp16_on_the_papers_matrices():
    n = 2048
    a = paper(n)
    rounded = a.astype(np.float16).astype(float)
    pure = np.linalg.cholesky(rounded).astype(np.float16)
    layers = ("fp16", "fp16", "fp16", "fp32")
    layered = nested.potrf(a.copy(order="F"), layers, leaf=256)
    assert 100 * backward(layered, a) <= backward(pure, a)


@pytest.mark.slow
@pytest.mark.parametrize("layers", LAYERS, ids="-".join)
@pytest.mark.parametrize(("dtype", "scale"), [(float, 1e30), (float, 1e-30), ("f4", 1e30)])
def test_entries_far_from_one_meet_the_same_bound(way, layers, dtype, scale):
    if dtype == "f4" and layers[-1] == "fp64":
        pytest.skip("layers ending with fp64 need an FP64 array")
    n, leaf = 150, 16
    a, lower = case("paper", n)
    for order in "CF":
        found = nested.potrf(np.array(scale * a, dtype, order=order), layers, leaf=leaf)
        lows = np.tril(found) / np.sqrt(scale)
        assert backward(lows, a) <= 2 * allowed(lower, layers, leaf, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("layers", LAYERS, ids="-".join)
@pytest.mark.parametrize("span", [2, 30])
@pytest.mark.parametrize("name", ["paper", "weak"])
def test_rows_of_all_magnitudes_meet_the_same_bound(way, layers, span, name):
    """Diag(d) A diag(d) has the factor diag(d) L."""
    n, leaf = 150, 16
    a, lower = case(name, n)
    powers = np.random.default_rng(5).permutation(np.linspace(-span, span, n))
    d = 10.0**powers
    for order in "CF":
        found = nested.potrf(np.array(a * d * d[:, None], order=order), layers, leaf=leaf)
        assert backward(np.tril(found) / d[:, None], a) <= 2 * allowed(lower, layers, leaf)


@pytest.mark.parametrize("layers", [("fp16", "fp32"), ("fp8", "fp16", "fp32")], ids="-".join)
def test_powers_of_two_change_no_digit(layers):
    a, _ = case("medium", 150)
    plain = np.tril(nested.potrf(2.0**-40 * a, layers, leaf=16))
    for power in (-100, 40, 100):
        scaled = np.tril(nested.potrf(2.0**power * a, layers, leaf=16))
        np.testing.assert_array_equal(scaled, 2.0 ** (power / 2 + 20) * plain)


LOW = ("fp8", "bf16", "fp16", "tf32")
ABOVE = (*((low, last) for low in LOW for last in ("fp32", "fp64")), ("fp32", "fp64"))
"""Two layers, the second one finer."""


@pytest.mark.parametrize("layers", [("fp64",), ("fp32",), *((low, "fp32") for low in LOW)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_nothing_is_done_to_arrays_without_entries(layers, order):
    empty, b = np.zeros((0, 0), order=order), np.zeros((9, 0), order=order)
    assert nested.potrf(empty, layers).shape == (0, 0)
    assert nested.syrk(b.T, layers=layers).shape == (0, 0)
    c = np.array(paper(9).astype(np.float32), float, order=order)
    np.testing.assert_array_equal(nested.syrk(b, c.copy(), beta=1.0, layers=layers, leaf=2), c)
    assert not nested.syrk(b, layers=layers, leaf=2).any()
    for work in (nested.trsm, nested.trmm):
        assert work(c, b, layers=layers, leaf=2) is b
        assert work(c, b.T, side="R", layers=layers, leaf=2).shape == (0, 9)
        assert work(empty, b.T, layers=layers, leaf=2).shape == (0, 9)


@pytest.mark.parametrize("layers", [("fp64",), ("fp32",), ("fp16", "fp32")], ids="-".join)
def test_an_alpha_of_zero_reads_nothing_as_in_blas(layers):
    a, b = np.full((20, 20), np.nan), np.full((20, 20), np.nan)
    for work in (nested.trsm, nested.trmm):
        assert not work(a, b.copy(), alpha=0.0, layers=layers, leaf=4).any()
    c = nested.syrk(a, np.ones((20, 20)), alpha=0.0, beta=2.0, layers=layers, leaf=4)
    np.testing.assert_array_equal(np.tril(c), 2.0 * np.tri(20))


@pytest.mark.parametrize("layers", [("fp64",), ("fp16", "fp32")], ids="-".join)
@pytest.mark.parametrize("order", ["C", "F"])
def test_subnormal_matrices_are_factored(layers, order):
    a = np.array(1e-310 * (np.eye(40) + 0.01), order=order)
    lower = np.tril(nested.potrf(a, layers, leaf=8)) / 1e-155
    # the entries themselves have fewer digits, but more than FP16's
    assert backward(lower, np.eye(40) + 0.01) <= 2.0**-11


@pytest.mark.slow
@pytest.mark.parametrize(("low", "last"), ABOVE)
@pytest.mark.parametrize("scales", [(1, 1), (1e-30, 1), (1e30, 1), (1, 1e-30), (1e-15, 1e-18)])
def test_layered_solves_and_products_err_by_their_formats_roundoff(way, low, last, scales):
    n, m, leaf = 100, 30, 8
    u = named(low).unit_roundoff
    b = scales[1] * random((n, m), seed=1)
    for uplo in "LU":
        a = triangular(n, float, uplo, "N")
        for trans in "NT":
            t = op(a, uplo, trans, "N")
            options = {"uplo": uplo, "trans": trans, "layers": (low, last), "leaf": leaf}
            made = nested.trmm(scales[0] * a, b.copy(), **options)
            size = np.linalg.norm((abs(t) - np.diag(t.diagonal())) @ abs(b))
            rest = 4 * n * FP32.unit_roundoff * np.linalg.norm(abs(t) @ abs(b))
            assert np.linalg.norm(made / scales[0] - t @ b) <= 2 * u * size + rest
            solved = nested.trsm(scales[0] * a, b.copy(), **options) * scales[0]
            inverse, x = abs(np.linalg.inv(t)), np.linalg.solve(t, b)
            size = np.linalg.norm(inverse @ (abs(t) - np.diag(t.diagonal())) @ abs(x))
            rest = 4 * n * FP32.unit_roundoff * np.linalg.norm(inverse @ abs(t) @ abs(x))
            assert np.linalg.norm(solved - x) <= 2 * u * size + rest


@pytest.mark.slow
@pytest.mark.parametrize(("low", "last"), ABOVE)
@pytest.mark.parametrize("scale", [1.0, 1e-15, 1e15, 1e-30, 1e30])
def test_layered_rank_k_updates_err_by_their_formats_roundoff(way, low, last, scale):
    if last == "fp32" and not 1e-30 < scale < 1e30:
        pytest.skip("FP32 does not hold the product")
    n, k, leaf = 70, 50, 8
    a, u = random((n, k)), named(low).unit_roundoff
    found = nested.syrk(scale * a, layers=(low, last), leaf=leaf) / scale**2
    size = np.linalg.norm(abs(a) @ abs(a).T)
    bound = (2.1 * u + 2 * k * FP32.unit_roundoff) * size
    assert np.linalg.norm(found - np.tril(a @ a.T)) <= bound


def by_depth(n, leaf, depth=0, first=0):
    """Yield (depth, rows, columns) of the blocks of a lower triangle; depth -1 for the leaves."""
    if n <= leaf:
        yield -1, slice(first, first + n), slice(first, first + n)
        return
    h = halve(n, leaf)
    yield depth, slice(first + h, first + n), slice(first, first + h)
    yield from by_depth(h, leaf, depth + 1, first)
    yield from by_depth(n - h, leaf, depth + 1, first + h)


def units_of_rounding(found, a, rows, columns):
    """The error of a block of AA', over what rounding A in steps of one relative unit causes."""
    found, one, two = np.tril(found)[rows, columns], a[rows], a[columns]
    exact, size = one @ two.T, np.sqrt(one**2 @ two.T**2)
    if rows == columns:
        exact, size = np.tril(exact), np.tril(size)
    return np.linalg.norm(found - exact) / np.linalg.norm(size)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["fp64", "fp32"])
@pytest.mark.parametrize("trans", LETTERS["trans"])
@pytest.mark.parametrize("uplo", LETTERS["uplo"])
@pytest.mark.parametrize(
    "layers",
    [
        *(("fp8", "fp16", "fp32"), ("bf16", "fp16", "fp8", "fp32"), ("fp16", "fp32")),
        *(("fp32", "bf16", "fp32"), ("fp16", "fp16", "fp32"), ("fp16", "tf32", "fp8", "fp64")),
        *(("fp16", "fp32", "fp64"), ("fp32", "fp32", "fp32", "fp64")),
    ],
    ids="-".join,
)
def test_each_depth_of_a_rank_k_update_errs_by_the_roundoff_of_its_own_layer(
    way, layers, uplo, trans, dtype
):
    if dtype is np.float32 and layers[-1] == "fp64":
        pytest.skip("layers ending with fp64 need an FP64 array")
    # four depths of off-diagonal blocks, and leaves
    n, k, leaf = 256, 30, 16
    a = random((n, k), dtype)
    read = a if trans == "N" else np.ascontiguousarray(a.T)
    found = nested.syrk(read, uplo=uplo, trans=trans, layers=layers, leaf=leaf)
    found = found if uplo == "L" else found.T
    depths = set()
    for depth, rows, columns in by_depth(n, leaf):
        depths.add(depth)
        form = layers[-1] if depth == -1 else layers[min(depth, len(layers) - 1)]
        error = units_of_rounding(found, a.astype(float), rows, columns)
        if form in LOW:
            u = named(form).unit_roundoff
            assert 0.2 * u <= error <= u, (depth, form)
        elif form == "fp32":
            # less than FP64's numbers would err, but for what FP32 numbers hold exactly
            least = 0.0 if dtype is np.float32 else 0.2 * FP32.unit_roundoff
            assert least <= error <= 2 * (k + 1) * FP32.unit_roundoff, (depth, form)
        else:
            assert error <= 2 * (k + 1) * named(form).unit_roundoff, (depth, form)
    assert depths == {-1, 0, 1, 2, 3}


def test_finer_inner_layers_make_the_diagonal_halves_of_a_rank_k_update_more_accurate(way):
    n, leaf = 256, 16
    a = random((n, 30))
    coarse = nested.syrk(a, layers=("fp16", "fp16", "fp16", "fp16", "fp32"), leaf=leaf)
    fine = nested.syrk(a, layers=("fp16", "fp32"), leaf=leaf)
    h = halve(n, leaf)
    np.testing.assert_array_equal(bits(fine[h:, :h]), bits(coarse[h:, :h]))
    for half in (slice(0, h), slice(h, n)):
        errors = [units_of_rounding(found, a, half, half) for found in (coarse, fine)]
        assert errors[0] > 100 * errors[1]


def test_rank_k_updates_in_different_layers_have_different_bits(way):
    a = random((128, 30))
    all_layers = (
        *(("fp16", "fp32"), ("fp16", "fp16", "fp32"), ("fp16", "fp16", "fp16", "fp32")),
        *(("fp16", "bf16", "fp32"), ("bf16", "fp16", "fp32"), ("bf16", "fp32")),
        *(("fp32", "fp16", "fp32"), ("fp16", "fp64"), ("fp32",), ("fp64",)),
        *(("fp32", "fp64"), ("fp32", "fp32", "fp64"), ("fp16", "fp32", "fp64")),
    )
    found = {nested.syrk(a, layers=layers, leaf=16).tobytes() for layers in all_layers}
    assert len(found) == len(all_layers)


def test_a_rank_k_update_casts_its_matrix_once_to_each_coarse_format(monkeypatch):
    casts, round_into = [], backend.NUMPY.round_into

    def counted(out, array, form, exponent):
        casts.append((form.name, array.shape))
        round_into(out, array, form, exponent)

    monkeypatch.setattr(backend.NUMPY, "round_into", counted)
    layers = ("fp16", "bf16", "fp16", "fp32")
    nested.syrk(random((128, 30)), layers=layers, leaf=8)
    assert casts == [("fp16", (128, 30)), ("bf16", (128, 30))]
    casts.clear()
    nested.syrk(random((128, 30)), layers=("fp32", "fp16", "fp32", "fp64"), leaf=8)
    assert casts == [("fp32", (128, 30)), ("fp16", (128, 30))]


@pytest.mark.parametrize("layers", [(*["fp16"] * 3, "fp32"), (*["fp32"] * 3, "fp64")], ids="-".join)
def test_without_units_each_block_of_a_factorization_is_updated_by_one_call(layers, monkeypatch):
    called, rank_k = [], blas.rank_k
    monkeypatch.setattr(blas, "has_unit", lambda form: False)
    monkeypatch.setattr(
        backend.NUMPY,
        "_rank_k",
        lambda uplo, trans, c, *rest: (called.append(len(c)), rank_k(uplo, trans, c, *rest)),
    )
    a = np.asfortranarray(definite(1024))
    nested.potrf(a, layers, leaf=128)
    # the trailing half of each triangle, down to the leaves
    assert called == [128, 256, 128, 512, 128, 256, 128]


@pytest.mark.parametrize("layers", [("fp16", "fp32"), ("fp8", "fp16", "fp32")], ids="-".join)
def test_powers_of_two_change_no_digit_of_a_rank_k_update(layers):
    a = random((150, 40))
    plain = nested.syrk(a, layers=layers, leaf=16)
    for power in (-40, 16, 40):
        scaled = nested.syrk(2.0**power * a, layers=layers, leaf=16)
        np.testing.assert_array_equal(scaled, 4.0**power * plain)


@pytest.mark.slow
@pytest.mark.parametrize("last", ["fp32", "fp64"])
@pytest.mark.parametrize("low", ["fp8", "bf16", "fp16"])
def test_units_and_widening_give_the_same_numbers_to_the_sums_rounding(monkeypatch, low, last):
    if not blas.has_unit(BF16 if low == "bf16" else FP16):
        pytest.skip("this CPU widens this format to FP32, or MKL is not installed")
    n, k = 100, 40
    a, t = random((n, k)), triangular(n, float, "L", "N")
    options = {"layers": (low, last), "leaf": 16}

    def made():
        return nested.syrk(a, **options), nested.trmm(t, a.copy(), **options)

    on_units = made()
    monkeypatch.setattr(blas, "has_unit", lambda form: False)
    sizes = abs(a) @ abs(a).T, abs(op(t, "L", "N", "N")) @ abs(a)
    for one, other, size in zip(on_units, made(), sizes, strict=True):
        assert (abs(one - other) <= 4 * (n + 3) * FP32.unit_roundoff * size).all()


# errors


@pytest.mark.slow
@pytest.mark.parametrize("layers", [("fp64",), ("fp32",), *LAYERS], ids="-".join)
@pytest.mark.parametrize("scale", [1.0, 1e30, 1e-30])
@pytest.mark.parametrize("order", [1, 7, 33, 60])
def test_a_matrix_that_is_not_positive_definite_raises_with_lapacks_order(layers, scale, order):
    a = paper(60)
    a[order - 1, order - 1] = -1.0
    *_, info = scipy.linalg.lapack.dpotrf(a, lower=1)
    assert info == order
    for layout in ("columns", "rows", "strided"):
        with pytest.raises(gx.NotPositiveDefinite, match=f"order {order} is not") as error:
            nested.potrf(Laid(scale * a, layout).view, layers, leaf=8)
        assert error.value.order == order


@pytest.mark.parametrize(
    "layers", [("fp64",), ("fp32",), ("fp16", "fp32"), ("fp32", "fp64")], ids="-".join
)
def test_a_large_entry_off_the_diagonal_makes_a_matrix_indefinite(layers):
    a = np.eye(40)
    a[30, 2] = 1e60
    with pytest.raises(gx.NotPositiveDefinite, match="order 31 is not") as error:
        nested.potrf(a, layers, leaf=8)
    assert error.value.order == 31


@pytest.mark.parametrize("ratio", [1.0, 2.0**8, 2.0**40])
def test_the_first_minor_is_named_whatever_the_scale_of_the_rows(ratio):
    scale = np.array([1.0, 1.0, ratio, 1.0, 1.0, 1.0])
    late = np.eye(6)
    late[:3, :3] = [[1, 0.9, 0.9], [0.9, 1, 0], [0.9, 0, 1]]
    late[5, 3] = late[3, 5] = 9.0
    first = np.diag([0.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    last = np.diag([1.0, 1.0, 1.0, 1.0, 0.0, 1.0])
    for a, order in ((late, 3), (first, 1), (last, 5), (-late, 1)):
        for dtype in (np.float32, np.float64):
            for layers in (("fp32",), ("fp16", "fp32")):
                b = np.asfortranarray(a * scale[:, None] * scale, dtype=dtype)
                with pytest.raises(gx.NotPositiveDefinite) as error:
                    nested.potrf(b, layers, leaf=2)
                assert error.value.order == order


@pytest.mark.slow
@pytest.mark.parametrize("layers", [("fp64",), ("fp32",), *LAYERS], ids="-".join)
@pytest.mark.parametrize("where", [(0, 0), (59, 59), (40, 3), (31, 30), (59, 0)])
@pytest.mark.parametrize(("number", "name"), [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "inf")])
def test_a_nan_or_an_infinity_is_named(layers, where, number, name):
    for layout in ("columns", "rows", "strided"):
        for scale in (1.0, 1e30):
            a = scale * paper(60)
            a[where] = number
            with pytest.raises(gx.InvalidInput, match=f"holds {name}"):
                nested.potrf(Laid(a, layout).view, layers, leaf=8)


@pytest.mark.parametrize("name", ["trsm", "trmm", "syrk"])
def test_a_nan_in_a_coarse_block_is_named(name):
    a, b = paper(60), np.ones((60, 5))
    a[50, 3] = np.nan
    arguments = (a,) if name == "syrk" else (a, b)
    with pytest.raises(gx.InvalidInput, match="holds or reaches nan"):
        getattr(nested, name)(*arguments, layers=("fp16", "fp32"), leaf=8)


@pytest.mark.parametrize(
    "layers", [("fp16", "fp32"), ("fp32", "fp16", "fp32"), ("fp32", "fp64")], ids="-".join
)
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_a_rank_k_update_refuses_what_no_coarse_layer_holds(layers, number):
    a = random((60, 5))
    a[50, 3] = number
    with pytest.raises(gx.InvalidInput, match=f"holds or reaches {abs(number)}"):
        nested.syrk(a, layers=layers, leaf=8)


EYE, ONES = np.eye(4), np.ones((4, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nested.potrf(EYE, ()), "must end with 'fp32' or 'fp64'"),
        (lambda: nested.potrf(EYE, "fp16"), r"Got \('fp16',\)"),
        (lambda: nested.potrf(EYE, ("fp32", "fp8")), "must end with 'fp32' or 'fp64'"),
        (lambda: nested.potrf(EYE, ("half", "fp32")), "must be one of: fp64.* Got 'half'"),
        (lambda: nested.potrf(EYE, ("fp32-fp16", "fp32")), "format of tiles.*use 'fp16'"),
        (lambda: nested.potrf(EYE, None), "must end with 'fp32' or 'fp64'.* Got None"),
        (lambda: nested.potrf(EYE.astype("f4")), "need an FP64 array. Got float32"),
        (lambda: nested.potrf(EYE.astype(int)), "of float64 or float32. Got int64"),
        (lambda: nested.potrf(EYE.astype("f2")), "of float64 or float32. Got float16"),
        (lambda: nested.potrf(EYE.astype(">f8")), "of float64 or float32. Got >f8"),
        (lambda: nested.potrf(ONES), r"`a` must be a square matrix. Got \(4, 2\)"),
        (lambda: nested.potrf(EYE[0]), r"`a` must be a square matrix. Got \(4,\)"),
        (lambda: nested.potrf([[1.0]]), "`a` must be a square matrix. Got list"),
        (lambda: nested.potrf(EYE.copy(), leaf=-1), "`leaf` must be"),
        (lambda: nested.potrf(EYE.copy(), leaf=2.5), "`leaf` must be"),
        (lambda: nested.trsm(ONES, ONES), "`a` must be a square matrix"),
        (lambda: nested.trsm(EYE, ONES.T), r"with 4 rows. Got float64 of shape \(2, 4\)"),
        (lambda: nested.trmm(EYE, ONES, side="R"), r"with 4 columns. Got float64 of shape"),
        (lambda: nested.trmm(EYE, ONES.astype("f4")), "must be of float64 .* Got float32"),
        (lambda: nested.trmm(EYE, EYE[0]), "`b` must be a matrix"),
        (lambda: nested.trsm(EYE, ONES, side="l"), "must be one of L, R. Got 'l'"),
        (lambda: nested.trsm(EYE, ONES, uplo="LU"), "must be one of L, U. Got 'LU'"),
        (lambda: nested.trmm(EYE, ONES, trans="C"), "must be one of N, T. Got 'C'"),
        (lambda: nested.trmm(EYE, ONES, diag=None), "must be one of N, U. Got None"),
        (lambda: nested.syrk(EYE, uplo="x"), "uplo L or U"),
        (lambda: nested.syrk(EYE, trans="C"), "trans N or T"),
        (lambda: nested.syrk(EYE[0]), "`a` must be a matrix"),
        (lambda: nested.syrk(ONES, ONES), "`c` must be a square matrix"),
        (lambda: nested.syrk(ONES, EYE[:3, :3]), r"`c` must be 4 by 4 of float64. Got"),
        (lambda: nested.syrk(ONES, EYE.astype("f4")), "of float64. Got float32"),
    ],
)
def test_wrong_arguments_give_one_clear_line(call, message):
    with pytest.raises(gx.InvalidInput, match=message) as error:
        call()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("work", [nested.trsm, nested.trmm])
def test_arrays_that_are_not_aligned_are_overwritten(work):
    n, random = 24, np.random.default_rng(0)
    a = np.asfortranarray(np.tril(random.random((n, n))) + 4 * np.eye(n))
    aligned = np.asfortranarray(random.random((n, n)))
    b = np.zeros(8 * n * n + 1, np.uint8)[1:].view(np.float64).reshape((n, n), order="F")
    b[...] = aligned
    assert not b.flags.aligned
    work(a, aligned)
    work(a, b)
    np.testing.assert_allclose(b, aligned, rtol=1e-14)


@pytest.mark.parametrize(
    "layers", [("fp32", "fp64"), ("fp16", "fp64"), ("bf16", "fp64")], ids="-".join
)
@pytest.mark.parametrize("size", [1e-60, 1e-190, 1e-290, 1e60])
def test_fp64_numbers_far_from_one_keep_the_digits_of_their_layer(layers, size):
    n, random = 256, np.random.default_rng(0)
    a = np.asfortranarray(np.tril(random.random((n, n)) + 1.0))
    b = np.asfortranarray(random.random((n, 16)) * size)
    if layers[0] == "fp16" and size > 1e40:
        with pytest.raises(gx.InvalidInput, match="which fp16 cannot represent"):
            nested.trmm(a, b, layers=layers, leaf=64)
        return
    expected = a @ b
    nested.trmm(a, b, layers=layers, leaf=64)
    unit = named(layers[0]).unit_roundoff
    np.testing.assert_allclose(b, expected, rtol=16 * unit)


def test_a_mapped_file_is_factored(tmp_path):
    a = np.memmap(tmp_path / "a", np.float64, "w+", shape=(40, 40), order="F")
    a[...] = 2.0 * np.eye(40) + 1.0
    expected = np.linalg.cholesky(np.array(a))
    nested.potrf(a)
    np.testing.assert_allclose(np.tril(a), expected, rtol=1e-14)


@pytest.mark.parametrize("routine", ["potrf", "syrk", "trsm", "trmm"])
def test_layers_in_avx512_share_the_calls_of_blas_among_threads_of_geomxp(routine, monkeypatch):
    if not blas.in_avx512(BF16):
        pytest.skip("this CPU has no instructions of AVX-512 for BF16")
    entered, multiply = [], blas.multiply_on_units

    def counted(*arguments):
        entered.append(blas._parts.get())
        return multiply(*arguments)

    monkeypatch.setattr(backend, "usable_cores", lambda: 2)
    monkeypatch.setattr(blas, "usable_cores", lambda: 2)
    monkeypatch.setattr(blas, "multiply_on_units", counted)
    a = np.asfortranarray(np.eye(768) * 4 + np.full((768, 768), 0.001), np.float32)
    other = () if routine == "potrf" else (a.copy(order="F"),)
    getattr(nested, routine)(a, *other, layers=("bf16", "fp32"), leaf=256)
    assert entered
    assert set(entered) == {2}


@pytest.mark.parametrize("routine", ["trsm", "trmm"])
def test_a_plain_triangular_operation_is_one_call_of_the_library(routine, monkeypatch):
    monkeypatch.setattr(nested, "_by_halves", None)
    random, call = np.random.default_rng(0), getattr(nested, routine)
    for dtype, layer in ((np.float64, "fp64"), (np.float32, "fp32")):
        wrapper = getattr(scipy.linalg.blas, ("s" if layer == "fp32" else "d") + routine)
        for side, uplo, trans, diag in product(*nested.OPTION_LETTERS):
            a = np.asfortranarray(random.random((40, 40)) + 40 * np.eye(40), dtype)
            b = np.asfortranarray(random.random((40, 3) if side == "L" else (3, 40)), dtype)
            about = {"side": side == "R", "lower": uplo == "L", "trans_a": trans == "T"}
            expected = wrapper(1.0, a, b, diag=diag == "U", **about)
            letters = {"side": side, "uplo": uplo, "trans": trans, "diag": diag}
            with blas.library("SciPy"):
                assert call(a, b, layers=(layer,), **letters) is b
            np.testing.assert_array_equal(b, expected)


@pytest.mark.parametrize("scale", [1.0, 1e-12])
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("routine", ["potrf", "syrk", "trsm", "trmm"])
def test_layers_have_no_effect_on_a_matrix_of_one_leaf(routine, order, scale, monkeypatch):
    panels, panel = [], recursive.Panel
    monkeypatch.setattr(recursive, "Panel", lambda *args, **names: panels.append(panel) or panel)
    random = np.random.default_rng(0)
    a = (scale * (random.random((40, 40)) + 40 * np.eye(40))).astype(np.float32, order=order)
    other, results = random.random((40, 40)).astype(np.float32), []
    for layers in (("bf16", "fp16", "fp32"), ("fp32",)):
        b = other.copy(order) if routine in ("trsm", "trmm") else a.copy(order)
        arguments = (b,) if routine == "potrf" else (a, b)
        results.append(np.tril(getattr(nested, routine)(*arguments, layers=layers, leaf=40)))
    np.testing.assert_array_equal(*results)
    assert panels == []


@pytest.mark.parametrize("routine", ["trsm", "trmm"])
def test_layers_may_be_any_iterable(routine):
    random, results = np.random.default_rng(0), []
    a = np.asfortranarray(random.random((40, 40)) + 40 * np.eye(40))
    other = np.asfortranarray(random.random((40, 3)))
    named = {"first": "fp64"}
    values = named.values()
    for layers in (("fp64",), iter(["fp64"]), ["fp64"], "fp64", values):
        results.append(getattr(nested, routine)(a, other.copy("F"), layers=layers))
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])
    named["first"] = "int8"
    with pytest.raises(gx.InvalidInput, match="int8"):
        getattr(nested, routine)(a, other.copy("F"), layers=values)
