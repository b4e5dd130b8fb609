import numpy as np
import pytest
import scipy.linalg

from geomxp.linalg import views
from geomxp.linalg.backend import NUMPY

UNIT = {np.dtype(np.float64): 2.0**-53, np.dtype(np.float32): 2.0**-24}
SHAPES = [(1, 1, 1), (1, 7, 3), (7, 1, 3), (5, 6, 1), (13, 8, 11), (5, 4, 0), (0, 4, 3), (4, 0, 3)]


@pytest.fixture(params=[np.float64, np.float32], ids=["fp64", "fp32"])
def dtype(request):
    return request.param


def arrange(numbers, layout):
    """Return a copy of an array: its rows or columns contiguous, whole or in a larger array."""
    m, n = numbers.shape
    room = 3 if "part" in layout else 0
    memory = np.full((m + room, n + room), np.nan, numbers.dtype, order=layout[0])
    view = memory[room // 2 : room // 2 + m, room // 2 : room // 2 + n]
    view[...] = numbers
    return view


LAYOUTS = ("C", "F", "C part", "F part")
each_layout = pytest.mark.parametrize("layout", LAYOUTS)
each_other = pytest.mark.parametrize("other", LAYOUTS)


def random(shape, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def lower_triangle(n, dtype):
    lower = np.tril(random((n, n), dtype, 7), -1) / dtype(max(n, 1)) + 2 * np.eye(n, dtype=dtype)
    lower[np.triu_indices(n, 1)] = np.nan
    return lower


@each_layout
@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4)])
def test_a_view_is_by_columns_or_its_transpose_is(layout, shape):
    a = arrange(np.zeros(shape), layout)
    assert views.contiguous(a)
    assert views.contiguous(a.T)
    assert views.by_columns(a) == layout.startswith("F")
    assert views.by_columns(a.T) != views.by_columns(a)


@each_layout
@pytest.mark.parametrize("shape", [(1, 4), (4, 1), (1, 1), (0, 3), (3, 0), (0, 0)])
def test_vectors_and_empty_arrays_are_contiguous_wherever_they_lie(layout, shape):
    assert views.contiguous(arrange(np.zeros(shape), layout))


@pytest.mark.parametrize(
    "view",
    [
        np.zeros((6, 6))[::2, ::2],
        np.zeros((6, 6))[::-1],
        np.zeros((6, 6))[:, ::-1],
        np.zeros((6, 6), order="F")[::-1, ::-1],
        np.zeros((6, 6), order="F")[::2],
        np.broadcast_to(np.zeros(5), (5, 5)),
        np.broadcast_to(np.zeros((5, 1)), (5, 5)),
        np.lib.stride_tricks.sliding_window_view(np.zeros(9), 4),
        np.zeros((6, 6), dtype=[("x", "f8"), ("y", "f4")])["x"],
    ],
    ids=["steps", "up", "left", "both", "rows", "one row", "one column", "windows", "fields"],
)
def test_what_blas_cannot_read_is_not_contiguous(view):
    assert not views.contiguous(view)
    with pytest.raises(ValueError, match="neither rows nor columns are contiguous"):
        views.by_columns(view)


@pytest.mark.slow
@each_layout
@each_other
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_gemm_is_the_product_in_any_layout(m, n, k, layout, other, dtype):
    for last in LAYOUTS:
        a, b = arrange(random((m, k), dtype, 1), layout), arrange(random((k, n), dtype, 2), other)
        c = arrange(random((m, n), dtype, 3), last)
        expected = 0.5 * c.astype(float) - 2.0 * a.astype(float) @ b.astype(float)
        size = abs(c) + 2 * abs(a) @ abs(b)
        assert NUMPY.gemm(c, a, b, -2.0, 0.5) is c
        assert (abs(c - expected) <= 2 * (k + 3) * UNIT[c.dtype] * size).all()


@pytest.mark.slow
@each_layout
@each_other
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 9), (9, 1), (8, 5), (5, 8), (0, 3), (3, 0)])
def test_solves_undo_products_and_read_one_triangle(layout, other, transposed, unit, m, n, dtype):
    t = arrange(lower_triangle(n, dtype), layout)
    if unit:
        np.fill_diagonal(t, np.nan)
    plain = np.tril(np.nan_to_num(t.astype(float)), -1)
    plain += np.eye(n) if unit else np.diag(t.diagonal())
    plain = plain.T if transposed else plain
    b = arrange(random((m, n), dtype, 1), other)
    start = b.astype(float)
    assert NUMPY.trmm(t, b, transposed, unit) is b
    allowed = 2 * (n + 3) * UNIT[b.dtype] * abs(start) @ abs(plain)
    assert (abs(b - start @ plain) <= allowed).all()
    assert NUMPY.trsm(t, b, transposed, unit) is b
    grown = abs(start) @ abs(plain) @ abs(np.linalg.inv(plain)) if n else start
    assert (abs(b - start) <= 8 * (n + 3) * UNIT[b.dtype] * grown).all()


@each_layout
@each_other
@pytest.mark.parametrize(("n", "k"), [(1, 1), (9, 4), (4, 9), (1, 5), (5, 0), (0, 5)])
def test_syrk_updates_the_lower_triangle_alone(layout, other, n, k, dtype):
    a, start = random((n, k), dtype, 1), random((n, n), dtype, 2)
    start[np.triu_indices(n, 1)] = np.nan
    c = arrange(start, other)
    assert NUMPY.syrk(c, arrange(a, layout), -2.0, 0.5) is c
    assert np.isnan(c[np.triu_indices(n, 1)]).all()
    wide = a.astype(float)
    expected = np.tril(0.5 * np.nan_to_num(start.astype(float)) - 2.0 * wide @ wide.T)
    size = np.nan_to_num(abs(start)) + 2 * abs(a) @ abs(a).T
    found = np.nan_to_num(c)
    assert (abs(found - expected) <= 2 * (k + 3) * UNIT[c.dtype] * size).all()


@each_layout
@pytest.mark.parametrize("n", [1, 2, 7, 20])
def test_potrf_is_lapacks_and_tells_its_order(layout, n, dtype):
    g = random((n, n), dtype)
    start = (g @ g.T / n + np.eye(n)).astype(dtype)
    expected = scipy.linalg.cholesky(start.astype(float), lower=True)
    a = arrange(start, layout)
    a[np.triu_indices(n, 1)] = np.nan
    assert NUMPY.potrf(a) == 0
    assert np.isnan(a[np.triu_indices(n, 1)]).all()
    error = abs(np.tril(np.nan_to_num(a)) - expected).max()
    assert error <= 4 * (n + 1) * UNIT[a.dtype] * abs(expected).max()
    start[n // 2, n // 2] = -1.0
    assert NUMPY.potrf(arrange(start, layout)) == n // 2 + 1
