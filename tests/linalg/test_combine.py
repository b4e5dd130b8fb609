"""cuda/combine.cu: copies, conversions and sums of matrices in any layout; checks of pivots."""

import numpy as np
import pytest
from compilers import compiled

from geomxp import cuda
from geomxp.linalg import gpu
from geomxp.linalg.gpu import CUPY
from geomxp.runtime.devices import gpu_count

LAYOUTS = {
    "columns": ("F", np.s_[:, :]),
    "rows": ("C", np.s_[:, :]),
    "part of columns": ("F", np.s_[2:-1, 1:-3]),
    "strided": ("C", np.s_[::2, ::3]),
    "reversed": ("F", np.s_[::-1, ::-1]),
}
TYPES = (np.float32, np.float64)
PAIRS = [(a, b) for a in TYPES for b in TYPES]
rng = np.random.default_rng(5)


@pytest.mark.parametrize("architecture", [80, 90])
def test_the_kernels_compile_without_warnings_and_flush_no_subnormal_number(architecture):
    code, log, ptx = compiled(cuda.source("combine.cu"), architecture)
    assert (code, log) == (0, "")
    assert ".ftz" not in ptx


def laid(numbers, layout):
    """Return numbers on the GPU in a layout, with NaN around them, and all of that memory."""
    import cupy

    order, where = LAYOUTS[layout]
    m, n = numbers.shape
    whole = {"strided": (2 * m, 3 * n), "part of columns": (m + 3, n + 4)}.get(layout, (m, n))
    memory = cupy.asarray(np.full(whole, np.nan, numbers.dtype, order=order))
    view = memory[where]
    view[...] = cupy.asarray(numbers)
    return view, memory


def assert_combined(layouts, types, shape):
    """Out is α r_i a_ij c_j + β out, and nothing else is written."""
    import cupy

    a, c = (rng.standard_normal(shape).astype(dtype) for dtype in types)
    rows, columns = (2.0 ** rng.integers(-3, 4, size) for size in shape)
    about = {"rows": cupy.asarray(rows), "columns": cupy.asarray(columns)}
    for scaled in (False, True):
        for lower in (False, True):
            for alpha, beta in ((1.0, 0.0), (-0.3, 1.0), (0.0, 2.0), (0.0, 0.0), (2.0, -0.7)):
                (source, _), (out, memory) = laid(a, layouts[0]), laid(c, layouts[1])
                gpu.combine(out, source, alpha, beta, lower, **(about if scaled else {}))
                x = a.astype(float) * (rows[:, None] * columns if scaled else 1.0)
                expected = (alpha * x + beta * c.astype(float)).astype(types[1])
                mask = np.tri(*shape, dtype=bool) if lower else np.ones(shape, bool)
                np.testing.assert_array_equal(out.get()[mask], expected[mask])
                np.testing.assert_array_equal(out.get()[~mask], c[~mask])
                assert int(cupy.isfinite(memory).sum()) == c.size


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("types", PAIRS, ids=lambda pair: "-".join(t.__name__ for t in pair))
@pytest.mark.parametrize("layouts", [(a, b) for a in LAYOUTS for b in LAYOUTS], ids="-".join)
def test_out_is_alpha_r_a_c_plus_beta_out(layouts, types):
    assert_combined(layouts, types, (65, 33))


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(1, 1), (31, 33), (32, 64), (0, 5)], ids=str)
def test_squares_at_the_border_of_a_matrix_are_whole(shape):
    assert_combined(("columns", "rows"), (np.float64, np.float32), shape)


@pytest.mark.gpu
def test_what_has_a_factor_of_zero_is_not_read():
    import cupy

    for lower in (False, True):
        nothing, some = cupy.full((40, 40), np.nan), cupy.full((40, 40), 3.0)
        gpu.combine(nothing, some, lower=lower)
        gpu.combine(some, cupy.full((40, 40), np.nan), alpha=0.0, beta=2.0, lower=lower)
        mask = np.tri(40, dtype=bool) if lower else np.ones((40, 40), bool)
        assert (nothing.get()[mask] == 3.0).all()
        assert (some.get()[mask] == 6.0).all()


@pytest.mark.gpu
def test_subnormal_numbers_of_fp32_are_kept_and_fp64_is_rounded_to_nearest():
    import cupy

    tiny = np.array([[1e-44, -3e-40], [1.0 + 2.0**-25, 1.0 + 3 * 2.0**-25]])
    out = cupy.empty((2, 2), np.float32)
    gpu.combine(out, cupy.asarray(tiny))
    np.testing.assert_array_equal(out.get(), tiny.astype(np.float32))
    back = cupy.empty((2, 2))
    gpu.combine(back, out)
    np.testing.assert_array_equal(back.get(), tiny.astype(np.float32).astype(float))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_survey_has_the_diagonal_and_the_largest_number_of_the_lower_triangle(layout, dtype):
    a = rng.standard_normal((70, 70)).astype(dtype)
    a[np.triu_indices(70, 1)] = np.nan
    diagonal, largest = CUPY.survey(laid(a, layout)[0])
    np.testing.assert_array_equal(diagonal, a.diagonal())
    assert largest == np.abs(np.tril(a)[np.tri(70, dtype=bool)]).max()
    for where, value in (((69, 0), np.nan), ((40, 33), -np.inf), ((0, 0), np.inf)):
        wrong = a.copy()
        wrong[where] = value
        _, largest = CUPY.survey(laid(wrong, layout)[0])
        assert np.isnan(largest) if np.isnan(value) else largest == np.inf


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("fault", [None, -1.0, np.nan])
def test_an_info_word_also_says_that_a_pivot_is_not_finite(fault, dtype):
    import cupy

    a = np.asfortranarray(np.eye(9, dtype=dtype) + 0.1)
    if fault is not None:
        a[4, 4] = fault
    words = CUPY.zeros(2, np.int32, cupy.asarray(a))
    gpu.factor("L", cupy.asarray(a, order="F"), words[1:])
    first, info = words.get()
    assert first == 0
    assert info == 0 if fault is None else 0 < info <= 9


@pytest.mark.gpu
def test_the_lower_triangle_is_copied_where_the_array_is():
    import cupy

    if gpu_count() < 2:
        pytest.skip("needs two GPUs; this machine has one")
    with cupy.cuda.Device(1):
        a = cupy.asarray(np.full((40, 40), 2.0))
        out = cupy.zeros((40, 40), np.float32)
    CUPY.copy_lower(out, a, np.full(40, 0.5), np.ones(40))
    np.testing.assert_array_equal(out.get(), np.tri(40))
