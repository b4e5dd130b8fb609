"""Recursions, products and casts on parts of CuPy arrays: as exact as those of NumPy's."""

import re

import numpy as np
import pytest
import scipy.linalg
from cases import by_pairs
from compilers import compiled

import geomxp as gx
from geomxp import cuda
from geomxp.linalg import gpu as cupy_backend
from geomxp.linalg import mixed, nested, products_gpu, recursive
from geomxp.linalg.backend import backend_of
from geomxp.linalg.formats import BF16, FP8, FP16, FP32, FP64, TF32, Tile, cast, named
from geomxp.linalg.nested import SymmetricTree

LAYERS = [
    *(("fp64",), ("fp16", "fp32"), ("bf16", "bf16", "fp32"), ("fp8", "fp16", "fp32")),
    *(("fp32", "fp64"), ("fp16", "fp32", "fp64")),
]
PARTS = {
    "columns": ("F", np.s_[:, :]),
    "rows": ("C", np.s_[:, :]),
    "part of columns": ("F", np.s_[3:-2, 1:-4]),
    "part of rows": ("C", np.s_[3:-2, 1:-4]),
    "strided": ("F", np.s_[::2, ::3]),
}
SIZES = [1, 5, 97, 203]
"""None a multiple of a leaf or of 16; the last two are halved."""

LEAF = 32
LETTERS = ["LLN", "LUN", "RLT", "RUT", "RLN"]


@pytest.mark.slow
def test_every_kernel_takes_the_leading_dimension_of_every_array():
    ptx = compiled(cuda.source("quantize.cu"), 90)[2]
    for name, parameters in re.findall(r"\.entry (\w+)\((.*?)\)", ptx, re.DOTALL):
        if name in ("factors", "factors_of_pairs", "fp32_to_fp8_by_rows"):
            # of arrays without gaps
            continue
        arrays = 1 if name.startswith("exponent") else 3 if "planes" in name else 2
        others = 5 if name.startswith("exponent") else name != "fp8_to_fp16"
        # each array has its address and its leading dimension; all share m and n
        assert len(parameters.split(",")) == 2 * arrays + 2 + others, name


# from here on with a GPU ----------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "order"), [(32, 32), (128, 64), (512, 256)])
def test_gpu_inverts_the_diagonal_blocks_of_a_triangle(n, order, dtype):
    import cupy

    numbers = np.tril(np.random.default_rng(n).random((n + 3, n))[:n] / n) + np.eye(n)
    # as a part of a larger array, with numbers above the diagonal that nobody is to read
    whole = cupy.full((n + 3, n + 1), np.nan, dtype, order="F")
    lower = whole[:n, :n]
    lower[...] = cupy.asarray(np.where(np.tri(n, dtype=bool), numbers, np.nan))
    found = cupy_backend.inverses(lower, order)
    assert len(found) == n // order
    for k, inverse in enumerate(found):
        block = numbers[k * order :, k * order :][:order, :order].astype(dtype)
        assert inverse.dtype == np.float32
        expected = np.linalg.inv(block.astype(np.float64))
        np.testing.assert_allclose(inverse.get(), expected, rtol=1e-6, atol=1e-9)
        assert not np.triu(inverse.get(), 1).any()


@pytest.mark.gpu
@pytest.mark.parametrize("order", ["C", "F"])
def test_gpu_factors_with_inverses_of_leaves_in_any_layout(order):
    """Quarters of leaves have order 32, so that they are inverted all at once."""
    import cupy

    places = np.random.default_rng(1).random((256, 2))
    sigma = gx.Matern(1.0, 0.1, 0.5)(places, places) + 0.01 * np.eye(256)
    a = cupy.asarray(sigma, np.float32, order=order)
    nested.potrf(a, ("fp16", "fp32"), leaf=128)
    lower = np.tril(a.get())
    assert abs(lower @ lower.T - sigma).max() < 2e-3
    # below FP16's rounding where nothing was rounded to it
    assert abs((lower @ lower.T - sigma)[:128, :128]).max() < 1e-5


class Both:
    """One array on the CPU and on the GPU, in a layout, within memory that nobody is to touch."""

    def __init__(self, numbers, layout="columns"):
        import cupy

        order, self.where = PARTS[layout]
        m, n = numbers.shape
        around = {"strided": (2 * m, 3 * n)}.get(layout, (m, n))
        if layout.startswith("part"):
            around = (m + 5, n + 5)
        whole = np.full(around, np.nan, numbers.dtype, order=order)
        whole[self.where] = numbers
        self.before, self.memory = whole.copy(order="K"), cupy.asarray(whole, order=order)
        self.cpu, self.gpu = whole[self.where], self.memory[self.where]
        assert self.gpu.strides == self.cpu.strides

    def assert_only(self, mask):
        """Nothing but the masked entries was written."""
        kept = np.ones(self.before.shape, bool)
        kept[self.where] = ~mask
        np.testing.assert_array_equal(self.memory.get()[kept], self.before[kept])


def assert_as_exact(both, exact, unit, mask=True):
    """The GPU's error is at most twice the CPU's, and c·n·u of the sums."""
    found, reference = (np.where(mask, x, 0.0) for x in (both.gpu.get(), both.cpu))
    exact = np.where(mask, exact, 0.0)
    size = np.linalg.norm(exact)
    allowed = 2 * np.linalg.norm(reference - exact) + 4 * max(exact.shape) * unit * size
    assert np.linalg.norm(found - exact) <= allowed


def positive_definite(n):
    """A well conditioned matrix with entries of many sizes."""
    lower = np.tril(np.random.default_rng(n).standard_normal((n, n)) / (2 * n**0.5), -1)
    lower += np.diag(np.linspace(1.0, 1.5, n))
    return lower @ lower.T, lower


def arithmetic(layers):
    """The type of the arrays and the unit roundoff of the sums."""
    form = named(layers[-1])
    return form.dtype, FP32.unit_roundoff if len(layers) > 1 else form.unit_roundoff


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize(("layers", "layout", "n"), by_pairs(LAYERS, list(PARTS), SIZES), ids=str)
def test_gpu_potrf_is_as_exact_as_numpys_and_writes_the_lower_triangle_only(layers, layout, n):
    sigma, lower = positive_definite(n)
    dtype, unit = arithmetic(layers)
    mask = np.tri(n, dtype=bool)
    both = Both(np.where(mask, sigma, np.nan).astype(dtype), layout)
    for array in (both.cpu, both.gpu):
        assert nested.potrf(array, layers, leaf=LEAF) is array
    assert_as_exact(both, lower, unit, mask)
    both.assert_only(mask)


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("layers", [("fp32",), ("fp16", "fp32"), ("fp8", "fp16", "fp64")], ids=str)
def test_gpu_potrf_has_the_same_bits_in_whatever_order_two_streams_are_executed(layers):
    import cupy

    sigma, lower = positive_definite(256)
    found = []
    for _ in range(6):
        a = cupy.asarray(np.asfortranarray(sigma))
        found.append(np.tril(nested.potrf(a, layers, leaf=LEAF).get()))
    assert np.linalg.norm(found[0] - lower) <= 1e-2 * np.linalg.norm(lower)
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("value", [-1.0, 0.0])
@pytest.mark.parametrize("layout", ["columns", "part of rows"])
def test_gpu_potrf_names_the_leading_minor_that_is_not_positive(layout, value, dtype):
    sigma, _ = positive_definite(97)
    sigma[70, 70] = value
    for layers in (("fp32",), ("fp16", "fp32")):
        with pytest.raises(gx.NotPositiveDefinite) as error:
            nested.potrf(Both(sigma.astype(dtype), layout).gpu, layers, leaf=LEAF)
        assert error.value.order == 71


@pytest.mark.gpu
def test_gpu_potrf_counts_the_places_between_columns(monkeypatch):
    whole = Both(positive_definite(97)[0])
    monkeypatch.setattr(cupy_backend, "LARGEST_INDEX", 60 * 97 - 1)
    with pytest.raises(gx.InvalidInput, match="60 columns that are 97 apart"):
        cupy_backend.factor("L", whole.gpu[:60, :60])
    monkeypatch.setattr(cupy_backend, "LARGEST_INDEX", 60 * 97)
    assert cupy_backend.factor("L", whole.gpu[:60, :60]) == 0


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("place", [(0, 0), (90, 3), (96, 96), (50, 40)], ids=str)
def test_gpu_potrf_refuses_what_the_cpu_refuses(place, value):
    sigma, _ = positive_definite(97)
    sigma[place] = value
    for layers in LAYERS:
        with pytest.raises(gx.InvalidInput, match=str(value)):
            nested.potrf(Both(sigma).gpu, layers, leaf=LEAF)


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("layers", "layout", "diag", "letters", "name"),
    by_pairs(LAYERS, ["columns", "part of rows", "strided"], "NU", LETTERS, ["trsm", "trmm"]),
    ids=str,
)
def test_gpu_trsm_and_trmm_are_as_exact_as_numpys(layers, layout, diag, letters, name):
    (side, uplo, trans), n, m = letters, 97, 43
    dtype, unit = arithmetic(layers)
    t = positive_definite(n)[1].astype(dtype)
    # what is not read is no number
    stored = np.where(np.tri(n, k=-1 if diag == "U" else 0, dtype=bool), t, np.nan)
    whole = np.tril(t, -1) + np.eye(n) if diag == "U" else np.tril(t)
    if uplo == "U":
        stored, whole = stored.T, whole.T
    b = np.random.default_rng(1).standard_normal((n, m) if side == "L" else (m, n)).astype(dtype)
    triangle, both = Both(stored, layout), Both(b, layout)
    for a, array in ((triangle.cpu, both.cpu), (triangle.gpu, both.gpu)):
        call = getattr(nested, name)
        options = {"side": side, "uplo": uplo, "trans": trans, "diag": diag, "leaf": LEAF}
        assert call(a, array, **options, alpha=0.5, layers=layers) is array
    op = (whole.T if trans == "T" else whole).astype(np.float64)
    op = np.linalg.inv(op) if name == "trsm" else op
    assert_as_exact(both, 0.5 * (op @ b if side == "L" else b @ op), unit)
    both.assert_only(np.ones(b.shape, bool))
    triangle.assert_only(np.zeros(stored.shape, bool))


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("layers", "layout", "beta", "uplo"),
    by_pairs(LAYERS, ["columns", "rows", "part of rows", "strided"], (0.0, 1.0, 0.5), "LU"),
    ids=str,
)
def test_gpu_syrk_is_as_exact_as_numpys_and_writes_one_triangle(
    layers, layout, beta, uplo, monkeypatch
):
    monkeypatch.setattr(cupy_backend, "LARGEST_WHOLE_PRODUCT_ORDER", 40)
    rng, (dtype, unit) = np.random.default_rng(4), arithmetic(layers)
    a, c = rng.standard_normal((97, 61)).astype(dtype), rng.standard_normal((97, 97)).astype(dtype)
    mask = np.tri(97, dtype=bool) if uplo == "L" else np.tri(97, dtype=bool).T
    c[~mask] = np.nan
    if beta == 0.0:
        c[mask] = np.nan
    source, both = Both(a, layout), Both(c, layout)
    for read, array in ((source.cpu, both.cpu), (source.gpu, both.gpu)):
        nested.syrk(read, array, uplo=uplo, alpha=-2.0, beta=beta, layers=layers, leaf=LEAF)
    exact = -2.0 * (a.astype(float) @ a.astype(float).T) + (beta * c if beta else 0.0)
    assert_as_exact(both, exact, unit, mask)
    both.assert_only(mask)


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("layers", LAYERS, ids=str)
def test_blocks_larger_than_a_leaf_are_factored_at_once_on_a_gpu(layers, monkeypatch):
    monkeypatch.setitem(recursive.GPU_LEAVES, "potrf", LEAF)
    monkeypatch.setattr(recursive, "AT_ONCE_ORDER_ON_GPU", 4 * LEAF)
    orders, potrf = [], cupy_backend.CUPY.potrf

    def counted(a, *info):
        orders.append(len(a))
        return potrf(a, *info)

    monkeypatch.setattr(cupy_backend.CUPY, "potrf", counted, raising=False)
    sigma, _ = positive_definite(203)
    at_once, by_leaves = Both(sigma).gpu, Both(sigma).gpu
    nested.potrf(at_once, layers)
    whole = set(layers) == {"fp64"}
    assert sum(orders) == 203
    assert orders == [203] if whole else LEAF < max(orders) <= 4 * LEAF
    nested.potrf(by_leaves, layers, leaf=LEAF)
    size = np.linalg.norm
    errors = [size(np.tril(a.get()) @ np.tril(a.get()).T - sigma) for a in (at_once, by_leaves)]
    assert errors[0] <= 2 * errors[1] + 203 * FP32.unit_roundoff * size(sigma)
    sigma[150, 150] = -1.0
    with pytest.raises(gx.NotPositiveDefinite) as failure:
        nested.potrf(Both(sigma).gpu, layers)
    assert failure.value.order == 151


@pytest.mark.gpu
@pytest.mark.parametrize("order", [40, 97])
def test_large_squares_of_tiles_in_fp64_make_the_lower_triangle_only(order, monkeypatch):
    monkeypatch.setattr(cupy_backend, "LARGEST_WHOLE_PRODUCT_ORDER", 40)
    rng = np.random.default_rng(1)
    a, c = rng.standard_normal((order, 20)).astype(np.float32), rng.standard_normal((order, order))
    both, tile = Both(c), Tile(FP32, Both(a).gpu)
    mixed.gemm(both.gpu, [(tile, tile)], FP64)
    expected = c - a.astype(float) @ a.T.astype(float)
    if order > 40:
        expected = np.where(np.tri(order, dtype=bool), expected, c)
    np.testing.assert_allclose(both.gpu.get(), expected, rtol=1e-13, atol=1e-13)


@pytest.mark.gpu
@pytest.mark.parametrize("given", [True, False], ids=["known factors", "unknown factors"])
@pytest.mark.parametrize("order", [40, 97])
def test_squares_of_tiles_in_planes_are_fp64_on_the_diagonal(order, given, monkeypatch):
    monkeypatch.setattr(mixed, "LARGEST_FP64_SQUARE", 25)
    rng, exponents = np.random.default_rng(1), cupy_backend.Exponents(1)
    a, c = rng.standard_normal((order, 300)), rng.standard_normal((order, order))
    both = Both(c)
    exponent = exponents.find(0, Both(1e-3 * a).gpu, FP16)
    tile = cast(Both(1e-3 * a).gpu, FP32, exponent, split=True)
    # of the numbers in their format, and as FP16
    alpha = (cupy_backend.factors(exponent, exponent, -1.0),) if given else ()
    mixed.gemm(both.gpu, [(tile, tile, *alpha)], FP64, 256)
    rounded = tile.widen().get()
    missed = np.abs(np.tril(both.gpu.get() - c + rounded @ rounded.T))
    assert missed.max() < 300 * 1e-6 * 2.0**-22
    # the leaves, whose order is at most 25
    corner = missed[:20, :20]
    assert corner.max() < 1e-15
    assert missed.diagonal().max() < 1e-15
    assert missed.max() > 1e-13


@pytest.mark.gpu
@pytest.mark.parametrize("layers", [("bf16", "fp16", "fp32"), ("fp16", "bf16", "fp32")], ids=str)
def test_gpu_syrk_reads_each_depth_in_the_layer_in_which_the_cpu_reads_it(layers):
    a = np.random.default_rng(4).standard_normal((203, 61)).astype(np.float32)
    both = Both(np.zeros((203, 203), np.float32))
    for read, array in ((a, both.cpu), (Both(a).gpu, both.gpu)):
        nested.syrk(read, array, layers=layers, leaf=LEAF)
    # casts have the same bits and their products are exact; only the sums differ
    bound = 2 * (61 + 3) * FP32.unit_roundoff * abs(a) @ abs(a).T
    found, squares = both.gpu.get(), (a.astype(float) ** 2).sum(axis=1)
    assert (abs(found - both.cpu) <= bound).all()
    # the leaves are in FP32
    assert (abs(found.diagonal() - squares) <= bound.diagonal()).all()


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("layers", LAYERS[1:], ids=str)
def test_a_tree_on_a_gpu_solves_as_one_of_numpy(layers):
    sigma, _ = positive_definite(203)
    b, both = np.random.default_rng(5).standard_normal((203, 3)), Both(sigma)
    trees = [SymmetricTree(array, layers, leaf=LEAF).potrf() for array in (both.cpu, both.gpu)]
    assert trees[0].nbytes == trees[1].nbytes
    exact, size = np.linalg.solve(sigma, b), np.linalg.norm
    cpu, gpu = trees[0].solve(b), trees[1].solve(b).get()
    tolerance = 4 * 203 * FP32.unit_roundoff
    assert size(gpu - exact) <= 2 * size(cpu - exact) + tolerance * size(exact)
    logs = [tree.log_determinant() for tree in trees]
    expected = np.linalg.slogdet(sigma)[1]
    assert abs(logs[1] - expected) <= 2 * abs(logs[0] - expected) + tolerance * 203
    dense = [trees[0].to_dense(), trees[1].to_dense().get()]
    errors = [size(lower @ lower.T - sigma) for lower in dense]
    assert errors[1] <= 2 * errors[0] + tolerance * size(sigma)


@pytest.mark.gpu
def test_fp32_layers_above_fp64_are_computed_in_fp32_on_a_gpu_too():
    sigma, _ = positive_definite(203)
    errors, size = [], []
    for layers in (("fp64",), ("fp32", "fp64"), ("fp32",) * 3 + ("fp64",), ("fp32",)):
        both = Both(sigma)
        lower = np.tril(nested.potrf(both.gpu, layers, leaf=LEAF).get())
        tree = SymmetricTree(Both(sigma).gpu, layers, leaf=LEAF).potrf()
        errors.append([np.linalg.norm(x @ x.T - sigma) for x in (lower, tree.to_dense().get())])
        size.append(tree.nbytes)
    fp64, one, three, fp32 = np.array(errors)
    assert (1e4 * fp64 < one).all()
    assert (one <= 1.1 * three).all()
    assert (three < fp32).all()
    half = recursive.halve(203, LEAF)
    assert size[0] - size[1] == 4 * half * (203 - half)


FORMS = [FP32, TF32, BF16, FP16, FP8]


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["columns", "rows", "part of columns", "part of rows"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_gpu_casts_parts_of_arrays_with_the_bits_of_the_cpu(form, dtype, layout):
    rng = np.random.default_rng(6)
    both = Both(np.ldexp(rng.random((301, 77)) - 0.5, rng.integers(-30, 1, (301, 77))), layout)
    both = Both(both.cpu.astype(dtype), layout)
    cpu, gpu = (
        recursive.Panel(form, (301, 77), array, dtype=form.dtype) for array in (both.cpu, both.gpu)
    )
    for columns in (slice(0, 32), slice(32, 77)):
        cpu.put(columns, both.cpu[:, columns])
        gpu.put(columns, both.gpu[:, columns])
    assert gpu.exponents == cpu.exponents
    unsigned = f"u{form.bytes}"
    found = gpu.values.get().view(unsigned)
    np.testing.assert_array_equal(found, cpu.values.view(unsigned))
    wide = Both(np.zeros((200, 50), dtype), layout)
    cpu.widen(slice(60, 260), slice(20, 70), wide.cpu)
    gpu.widen(slice(60, 260), slice(20, 70), wide.gpu)
    np.testing.assert_array_equal(wide.gpu.get(), wide.cpu)
    assert backend_of(both.gpu).largest(both.gpu) == backend_of(both.cpu).largest(both.cpu)


SHAPES = [(1, 1, 1), (48, 32, 64), (37, 29, 21), (16, 30, 160)]
"""(m, n, k), some of multiples of 16, which is where FP8 needs no copies."""


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("layouts", ["FFF", "CFF", "FCC", "CCF", "FCF"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_gpu_products_of_parts_are_exact_for_small_integers(form, dtype, layouts, shape):
    (m, n, k), rng = shape, np.random.default_rng(7)
    names = {"F": "part of columns", "C": "part of rows"}
    a, b = (rng.integers(-1, 2, (rows, k)).astype(float) for rows in (m, n))
    c = Both(rng.integers(-9, 10, (m, n)).astype(dtype), names[layouts[0]])
    cast = [Both(x, names[letter]) for x, letter in zip((a, b), layouts[1:], strict=True)]
    narrow = [recursive.Panel(form, x.gpu.shape, x.gpu) for x in cast]
    for panel, x in zip(narrow, cast, strict=True):
        panel.put(slice(0, k), x.gpu)
    expected = c.cpu - 2.0 * a @ b.T
    recursive.add_product(c.gpu, narrow[0], slice(0, m), narrow[1], slice(0, n), -2.0)
    np.testing.assert_array_equal(c.gpu.get(), expected)
    c.assert_only(np.ones((m, n), bool))


@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["columns", "rows"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_gpu_without_units_for_fp8_has_the_same_products(dtype, layout, monkeypatch):
    monkeypatch.setattr(products_gpu, "has_units", lambda form, index: False)
    rng = np.random.default_rng(7)
    a, b = (Both(rng.integers(-1, 2, (rows, 21)).astype(dtype), layout) for rows in (37, 29))
    c = Both(rng.integers(-9, 10, (37, 29)).astype(dtype), layout)
    narrow = [recursive.Panel(FP8, x.gpu.shape, x.gpu) for x in (a, b)]
    for panel, x in zip(narrow, (a, b), strict=True):
        panel.put(slice(0, 21), x.gpu)
    recursive.add_product(c.gpu, narrow[0], slice(0, 37), narrow[1], slice(0, 29), -2.0)
    np.testing.assert_array_equal(c.gpu.get(), c.cpu - 2.0 * a.cpu @ b.cpu.T)


@pytest.mark.slow
@pytest.mark.gpu
def test_a_gpu_without_units_for_fp8_factors_as_one_with_them(monkeypatch):
    sigma, lower = positive_definite(203)
    found = []
    for has_units in (products_gpu.has_units, lambda form, index: False):
        monkeypatch.setattr(products_gpu, "has_units", has_units)
        both = Both(sigma.astype(np.float32))
        for array in (both.cpu, both.gpu):
            nested.potrf(array, ("fp8", "fp16", "fp32"), leaf=LEAF)
        assert_as_exact(both, lower, FP32.unit_roundoff, np.tri(203, dtype=bool))
        found.append(np.tril(both.gpu.get()))
    # a GPU's units keep about 14 bits of a sum of FP8 products
    assert np.linalg.norm(found[0] - found[1]) <= 2.0**-13 * np.linalg.norm(lower)


@pytest.mark.gpu
def test_gpu_solves_are_as_stable_as_substitution_for_any_triangle():
    import cupy

    tiny = np.eye(64, dtype=np.float32)
    tiny[0, 0] = tiny[1, 1] = 1e-22
    tiny[1, 0] = 1.0
    right = np.zeros((64, 1), np.float32)
    right[1] = 1e-22
    found = nested.trsm(cupy.asarray(tiny), cupy.asarray(right), layers=("fp32",)).get()
    np.testing.assert_array_equal(found, np.eye(64, dtype=np.float32)[:, 1:2])
    rng = np.random.default_rng(0)
    lower = np.tril(rng.uniform(-1, 1, (300, 300)), -1).astype(np.float32)
    whole = lower.astype(float) + np.eye(300)
    b = (whole @ rng.standard_normal((300, 5))).astype(np.float32)
    x = nested.trsm(cupy.asarray(lower), cupy.asarray(b), diag="U", layers=("fp32",)).get()
    backward = abs(whole @ x - b) / (abs(whole) @ abs(x))
    assert backward.max() <= 300 * FP32.unit_roundoff


@pytest.mark.gpu
def test_an_error_in_gpu_potrf_leaves_no_operation_behind(monkeypatch):
    import cupy

    sigma, _ = positive_definite(192)
    update, calls = recursive.rank_k, []

    def interrupted(*about):
        calls.append(about)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return update(*about)

    monkeypatch.setattr(recursive, "rank_k", interrupted)
    for _ in range(8):
        calls.clear()
        with pytest.raises(KeyboardInterrupt):
            nested.potrf(Both(sigma.astype(np.float32)).gpu, ("fp16", "fp32"), leaf=16)
        others = [cupy.zeros((192, 192), np.float32) for _ in range(6)]
        assert not any(other.get().any() for other in others)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_gpu_views_multiply_and_solve_in_all_layouts(dtype):
    rng, names = np.random.default_rng(9), ["part of columns", "part of rows"]
    unit = np.finfo(dtype).eps / 2
    numbers = [rng.standard_normal(s).astype(dtype) for s in ((40, 30), (40, 21), (21, 30))]
    lower = np.tril(positive_definite(30)[1]).astype(dtype)
    for at in range(8):
        c, a, b = (Both(x, names[at >> p & 1]) for p, x in enumerate(numbers))
        exact = 0.5 * numbers[0] - numbers[1].astype(float) @ numbers[2]
        for one in ("cpu", "gpu"):
            arrays = [getattr(x, one) for x in (c, a, b)]
            backend_of(arrays[0]).gemm(*arrays, -1.0, 0.5)
        assert_as_exact(c, exact, unit)
        t, start, transposed = Both(lower, names[at & 1]), np.array(c.cpu, float), bool(at & 4)
        c = Both(start.astype(dtype), names[at >> 1 & 1])
        for one in ("cpu", "gpu"):
            triangle, target = getattr(t, one), getattr(c, one)
            backend_of(target).trsm(triangle, target, transposed)
        exact = scipy.linalg.solve_triangular(lower, start.T, lower=True, trans=not transposed).T
        assert_as_exact(c, exact, unit)
