"""The CUDA sources: compiled without a GPU; their arithmetic on the host; the kernels on a GPU."""

import ctypes
from pathlib import Path

import mpmath
import numpy as np
import pytest
from compilers import architectures, compiled, library
from numba import njit

import geomxp as gx
from geomxp import cuda
from geomxp.covariance import generate, pairs_numba
from geomxp.covariance.table import Table, table_of
from geomxp.linalg.device import copy_on_gpu

SMOOTHNESS = [0.05, 0.3, 0.5, 0.8, 1.0, 1.5, 2.3, 2.5, 5.0, 10.0]
DISTANCES = np.concatenate((np.geomspace(1e-12, 700.0, 60), np.linspace(0.02, 40.0, 30)))

HOST = """
#include "matern.cuh"

static double squared(const double *x, long long n, long long i, const double *y, int d,
                      double inverse, int mapping)
{
    double s = squared_distance(
        x[i] - y[0], d > 1 ? x[n + i] - y[1] : 0.0, d > 2 ? x[2 * n + i] - y[2] : 0.0, inverse);
    s = mapping & 1 ? squared_arc(s, inverse) : s;
    return mapping & 2 ? folded(s) : s;
}

#define VALUES(name, Real, coefficients, form)                                             \\
    long long name(const double *x, long long n, const double *y, int d, double inverse,   \\
                   int mapping, const Real *rows, int count, int base, Real scale,         \\
                   Real *out)                                                              \\
    {                                                                                      \\
        long long missed = 0;                                                              \\
        for (long long i = 0; i < n; ++i) {                                                \\
            Real t, s = (Real)squared(x, n, i, y, d, inverse, mapping);                    \\
            int row = interval_##form(s, base, count - 1, &t);                             \\
            missed += row == 0 && s > 0;                                                   \\
            out[i] = polynomial_##form(rows + row * coefficients, t) * scale;              \\
        }                                                                                  \\
        return missed;                                                                     \\
    }
VALUES(values_fp64, double, 8, fp64)
VALUES(values_fp32, float, 3, fp32)

void to_fp16(const float *x, long long n, unsigned short *out)
{
    for (long long i = 0; i < n; ++i) out[i] = fp16_bits(x[i]);
}

void to_fp8(const float *x, long long n, unsigned char *out)
{
    for (long long i = 0; i < n; ++i) out[i] = fp8_bits(x[i]);
}
"""


@pytest.mark.parametrize("architecture", [80, 90, 100])
def test_kernels_compile_without_warnings(architecture):
    if architecture not in architectures():
        pytest.skip(f"this NVRTC does not know sm_{architecture}")
    assert compiled(cuda.source("matern.cu"), architecture)[:2] == (0, "")


@pytest.mark.parametrize(
    ("name", "beginning"),
    [("matern.cu", "KERNEL(covariances_fp8"), ("matern.cuh", "LEAF unsigned char fp8_bits")],
)
def test_errors_of_the_compiler_name_file_and_line(name, beginning):
    own = (Path(cuda.__file__).parent / name).read_text(encoding="utf-8").splitlines()
    (line,) = (k for k, text in enumerate(own, start=1) if text.startswith(beginning))
    broken = cuda.source("matern.cu").replace(beginning, "int broken = ; " + beginning)
    code, log, _ = compiled(broken, 90)
    assert code
    assert f"{name}({line}): error" in log


def test_python_shares_the_tile_as_the_kernel_does():
    text = cuda.source("matern.cu")
    for name, value in (
        ("THREADS", generate.PANEL_THREADS),
        ("PANEL_ROWS", generate.PANEL_ROWS),
        ("PANEL_COLUMNS", generate.PANEL_COLUMNS),
    ):
        assert f"#define {name} {value}\n" in text
    assert generate.PANEL_ROWS % generate.PANEL_THREADS == 0
    assert f"#define ROWS_PER_THREAD {generate.PANEL_ROWS // generate.PANEL_THREADS}\n" in text


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """The device functions, compiled for the host."""
    folder = tmp_path_factory.mktemp("matern")
    (folder / "matern.cuh").write_text(cuda.source("matern.cuh"))
    functions = library(folder / "host.c", HOST, "-O2")
    for name, real in (("values_fp64", ctypes.c_double), ("values_fp32", ctypes.c_float)):
        function = getattr(functions, name)
        function.restype = ctypes.c_longlong
        function.argtypes = [
            *(ctypes.c_void_p, ctypes.c_longlong, ctypes.c_void_p, ctypes.c_int),
            *(ctypes.c_double, ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int),
            *(real, ctypes.c_void_p),
        ]
    return functions


def on_host(host, x, y, inverse, mapping, rows, base, scale=1.0):
    """The values between the points x, (d, n), and one point y, and how many were missed."""
    single = rows.dtype == np.float32
    function = host.values_fp32 if single else host.values_fp64
    x, out = np.ascontiguousarray(x), np.empty(x.shape[1], dtype=rows.dtype)
    missed = function(
        *(x.ctypes.data, x.shape[1], y.ctypes.data, len(x), inverse, mapping),
        *(rows.ctypes.data, len(rows), base, scale, out.ctypes.data),
    )
    return out, missed


def on_cpu(x, y, inverse, mapping, rows, base, scale=1.0):
    """The same by numba's kernel."""
    out = np.empty(x.shape[1], dtype=rows.dtype)
    missed = pairs_numba.fill(
        *(np.ascontiguousarray(x), 0, x.shape[1], np.ascontiguousarray(y[:, None]), 0, 1),
        *(inverse, mapping, rows, base, rows.dtype.type(scale), -1, out, 0, 0),
    )
    return out, missed


@njit(fastmath={"contract"})
def product_and_sum(a, b, c):
    """a b + c, in one operation where the processor has it."""
    return a * b + c


@pytest.fixture(scope="module")
def processor_has_fma():
    if product_and_sum(1 + 2.0**-30, 1 - 2.0**-30, -1.0) != -(2.0**-60):
        pytest.skip("this processor has no fma, so numba rounds in between")


@pytest.mark.usefixtures("processor_has_fma")
@pytest.mark.parametrize("form", ["fp64", "fp32"])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_bits_are_those_of_the_cpu(host, form, d):
    random = np.random.default_rng(d)
    x, y = random.random((d, 20_000)), random.random(d)
    # from the very near to the very far; some the same place
    x = y[:, None] + (x - 0.5) * 10.0 ** random.uniform(-9, 3, 20_000)
    x[:, ::100] = y[:, None]
    table = Table(gx.Matern(1.0, 1.0, 0.8), -50, 20)
    rows, base = table.rows("correlation"), table.base
    if form == "fp32":
        rows, base = table.rows("correlation", True), table.base_fp32
    found, missed = on_host(host, x, y, 1.7, False, rows, base, 1.3)
    expected, expected_missed = on_cpu(x, y, 1.7, False, rows, base, 1.3)
    np.testing.assert_array_equal(found, expected)
    assert missed == expected_missed > 100


@pytest.mark.slow
@pytest.mark.usefixtures("processor_has_fma")
@pytest.mark.parametrize(
    ("what", "single"), [("correlation", False), ("correlation", True), ("slope", False)]
)
def test_great_circles_have_the_bits_of_the_cpu(host, what, single):
    x = np.random.default_rng(4).normal(size=(3, 20_000))
    x *= 6371.0 / np.linalg.norm(x, axis=0)
    # its antipode, and itself
    x[:, 1:3] = np.array([[-1.0, 1.0]]) * x[:, :1]
    table = Table(gx.Matern(1.0, 1.0, 0.4), -60, 20)
    given = (x, x[:, 0].copy(), 1 / 900.0**2, True, *table.polynomials(what, single))
    found, missed = on_host(host, *given)
    expected, expected_missed = on_cpu(*given)
    np.testing.assert_array_equal(found, expected)
    assert missed == expected_missed == 0


@pytest.mark.slow
@pytest.mark.usefixtures("processor_has_fma")
@pytest.mark.parametrize("single", [False, True])
def test_compact_support_has_the_bits_of_the_cpu(host, single):
    model = gx.Wendland(1.0, 1.0, 0.7, 3.3)
    r = np.random.default_rng(3).uniform(0.0, 1.2, 5000)
    r[:3] = 0.0, 1.0, 1 - 2.0**-53
    given = (r[None, :], np.zeros(1), 1.0, 2)
    given = (*given, *table_of(model, -60, 1).polynomials("correlation", single))
    found, missed = on_host(host, *given)
    expected, expected_missed = on_cpu(*given)
    np.testing.assert_array_equal(found, expected)
    assert missed == expected_missed == 0
    np.testing.assert_allclose(found, model.correlation(r), atol=2e-7 if single else 3e-16)
    assert (found[r >= 1] == 0).all()


def exact(r, nu):
    nu = mpmath.mpf(nu)
    return 2 ** (1 - nu) / mpmath.gamma(nu) * r**nu * mpmath.besselk(nu, r)


@pytest.mark.slow
@pytest.mark.parametrize("nu", SMOOTHNESS)
def test_correlations_are_good_to_the_last_bits(host, nu):
    table = Table(gx.Matern(1.0, 1.0, nu), -82, 20)
    given = (DISTANCES[None, :], np.zeros(1), 1.0, False)
    double, missed = on_host(host, *given, table.rows("correlation"), table.base)
    single, missed_single = on_host(host, *given, table.rows("correlation", True), table.base_fp32)
    assert missed == missed_single == 0
    with mpmath.workdps(30):
        expected = [exact(mpmath.mpf(r), nu) for r in DISTANCES]
        assert max(abs(f - e) for f, e in zip(double, expected, strict=True)) <= 4e-16
        assert max(abs(float(f) - e) for f, e in zip(single, expected, strict=True)) <= 4 * 2**-24


@pytest.mark.slow
@pytest.mark.parametrize("nu", SMOOTHNESS)
def test_derivatives_are_good_to_1e_12(host, nu):
    table, some = Table(gx.Matern(1.0, 1.0, nu), -82, 20), DISTANCES[::4]
    given = (some[None, :], np.zeros(1), 1.0, False)
    slope, _ = on_host(host, *given, table.rows("slope"), table.base)
    by_smoothness, _ = on_host(host, *given, table.rows("smoothness"), table.base)
    with mpmath.workdps(40):
        order, step = mpmath.mpf(nu), mpmath.mpf("1e-12")
        c = 2 ** (1 - order) / mpmath.gamma(order)
        for k, r in enumerate(mpmath.mpf(r) for r in some):
            assert abs(slope[k] + c * r ** (order + 1) * mpmath.besselk(order - 1, r)) <= 1e-12
            difference = (exact(r, order + step) - exact(r, order - step)) / (2 * step)
            assert abs(by_smoothness[k] - difference) <= 1e-12


def numbers_of(dtype):
    """All finite numbers of a format, the midpoints, what is just beside them, and random ones."""
    bits = np.arange(2 ** (8 * dtype.itemsize), dtype=f"u{dtype.itemsize}")
    own = bits.view(dtype).astype(np.float32)
    own = np.sort(own[np.isfinite(own)])
    middle = own[:-1] / 2 + own[1:] / 2
    random = np.random.default_rng(2)
    drawn = random.integers(0, 2**32, 300_000, dtype=np.uint32).view(np.float32)
    beyond = np.float32([0.0, -0.0, np.inf, -np.inf, np.nan, 65519.99, 65520, 464, 464.01, 1e-45])
    drawn = np.concatenate((drawn, beyond, random.normal(size=100_000).astype(np.float32)))
    beside = [np.nextafter(middle, np.float32(end)) for end in (-np.inf, np.inf)]
    return np.concatenate((own, middle, *beside, drawn))


def converted(function, numbers, dtype):
    out = np.empty(len(numbers), dtype=dtype)
    function(
        ctypes.c_void_p(numbers.ctypes.data),
        ctypes.c_longlong(len(numbers)),
        ctypes.c_void_p(out.ctypes.data),
    )
    return out


@pytest.mark.filterwarnings("ignore:overflow encountered in cast", "ignore:invalid value")
def test_fp16_is_that_of_numpy(host):
    numbers = numbers_of(np.dtype(np.float16))
    found, expected = converted(host.to_fp16, numbers, np.uint16), numbers.astype(np.float16)
    known = ~np.isnan(numbers)
    np.testing.assert_array_equal(found[known], expected.view(np.uint16)[known])
    assert np.isnan(found[~known].view(np.float16)).all()


def fp8_bits(numbers):
    """E4M3 by ml_dtypes, which goes to NaN beyond 448: the format of the GPU stays there."""
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="no FP8 to compare with: ml_dtypes")
    return np.clip(numbers, -448.0, 448.0).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)


def test_fp8_is_that_of_ml_dtypes(host):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="no FP8 to compare with: ml_dtypes")
    numbers = numbers_of(np.dtype(ml_dtypes.float8_e4m3fn))
    found, known = converted(host.to_fp8, numbers, np.uint8), ~np.isnan(numbers)
    np.testing.assert_array_equal(found[known], fp8_bits(numbers[known]))
    assert np.isnan(found[~known].view(ml_dtypes.float8_e4m3fn).astype(np.float32)).all()


# from here on with a GPU ----------------------------------------------------------------------

FORMATS = [np.float64, np.float32, np.float16, np.uint8]


def places_of(metric, d, n):
    places = np.random.default_rng(d).uniform(-1, 1, (n, d))
    return places if metric == "euclidean" else places * [170.0, 80.0]


def both(pairs, what, rows, columns, dtype, **options):
    """A block of values from the CPU, before any scale, and what the GPU writes; its norm."""
    import cupy

    shape = (rows.stop - rows.start, columns.stop - columns.start)
    computed = np.float64 if dtype == np.float64 else np.float32
    expected = np.zeros(shape, dtype=computed, order="F")
    out = cupy.zeros(shape, dtype=dtype, order="F")
    triangle = options.get("triangle", False)
    pairs.write(what, rows, columns, expected, triangle=triangle)
    norm = pairs.write_on_gpu(what, rows, columns, out, **options)
    return expected, cupy.asnumpy(out), float(norm)


def stored(values, dtype):
    """What a GPU keeps of values."""
    return fp8_bits(values) if dtype == np.uint8 else values.astype(dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("triangle", [False, True])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_gpu_writes_the_bits_of_the_cpu(d, triangle, dtype):
    # more rows than a panel has, neither whole panels nor whole warps
    pairs = gx.Matern(1.3, 0.4, 0.8).pairs(gx.Inputs(places_of("euclidean", d, 1100)))
    rows, columns, scale = slice(70, 1093), slice(33, 180), 64.0 if dtype == np.uint8 else 1.0
    expected, found, norm = both(
        pairs, "correlation", rows, columns, dtype, triangle=triangle, scale=scale
    )
    kept = np.ones(expected.shape, dtype=bool)
    if triangle:
        kept = np.add.outer(np.arange(70, 1093), -np.arange(33, 180)) >= 0
    np.testing.assert_array_equal(found[kept], stored(expected[kept] * scale, dtype))
    assert (found[~kept] == 0).all()
    squares = (expected[kept].astype(np.float64) ** 2).sum()
    # sums of the same numbers in another order
    assert norm == pytest.approx(squares, rel=kept.sum() * 2.0**-53)


@pytest.mark.gpu
def test_gpu_sums_the_squares_of_each_panel_for_itself():
    pairs = gx.Matern(1.0, 0.1, 0.8).pairs(gx.Inputs(places_of("euclidean", 2, 1000)))
    # one panel down the columns, more across than there are blocks of threads
    where = slice(0, 200), slice(0, 1000)
    expected, _, norm = both(pairs, "correlation", *where, np.float64)
    assert norm == pytest.approx((expected**2).sum(), rel=expected.size * 2.0**-53)


@pytest.mark.gpu
@pytest.mark.parametrize("what", ["correlation", "smoothness", "range"])
def test_gpu_knows_derivatives_and_the_nugget(what):
    pairs = gx.Matern(2, 0.3, 1.7).pairs(gx.Inputs(places_of("euclidean", 2, 300)))
    whole = slice(0, 300)
    expected, found, norm = both(pairs, what, whole, whole, np.float64, noise=0.25)
    expected += 0.25 * np.eye(300)
    np.testing.assert_array_equal(found, expected)
    assert norm == pytest.approx((expected**2).sum(), rel=300**2 * 2.0**-53)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("metric", ["chordal", "great-circle"])
def test_gpu_knows_the_sphere(metric, dtype):
    pairs = gx.Matern(1.0, 900.0, 0.4).pairs(gx.Inputs(places_of(metric, 2, 400), metric))
    whole = slice(0, 400)
    expected, found, _ = both(pairs, "correlation", whole, whole, dtype)
    # CUDA's asin has other last bits than the C library's
    ulps = 0 if metric == "chordal" else 32
    assert np.abs(found - expected).max() <= ulps * np.finfo(dtype).eps / 2


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", FORMATS)
def test_gpu_scales_by_powers_of_two(dtype):
    import cupy

    pairs = gx.Matern(1e-3, 0.2, 0.5).pairs(gx.Inputs(places_of("euclidean", 2, 600)))
    rows, columns = slice(0, 600), slice(0, 500)
    expected, found, norm = both(pairs, "correlation", rows, columns, dtype, scale=2.0**17)
    np.testing.assert_array_equal(found, stored(expected * expected.dtype.type(2**17), dtype))
    again = pairs.write_on_gpu("correlation", rows, columns, cupy.zeros((600, 500), order="F"))
    assert norm == pytest.approx(float(again), rel=4 * 2.0**-24)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", FORMATS)
def test_rows_of_the_table_outside_shared_memory_change_nothing(dtype, monkeypatch):
    pairs = gx.Matern(1.0, 0.1, 0.8).pairs(gx.Inputs(places_of("euclidean", 2, 700)))
    whole = slice(0, 700)
    _, found, norm = both(pairs, "correlation", whole, whole, dtype)
    monkeypatch.setattr(generate, "SHARED_BYTES", 100 * 64)
    _, again, norm_again = both(pairs, "correlation", whole, whole, dtype)
    np.testing.assert_array_equal(found, again)
    assert norm == norm_again


@pytest.mark.gpu
def test_a_block_stands_at_its_place_in_the_whole_matrix():
    import cupy

    pairs = gx.Matern(1.0, 0.1, 0.8).pairs(gx.Inputs(places_of("euclidean", 2, 90)))
    expected, out = pairs.covariance(), cupy.zeros((90, 90), order="F")
    for rows in (slice(0, 50), slice(50, 90)):
        for columns in (slice(0, 20), slice(20, 90)):
            pairs.write_on_gpu("correlation", rows, columns, out[rows, columns])
    np.testing.assert_array_equal(cupy.asnumpy(out), expected)


@pytest.mark.gpu
@pytest.mark.parametrize(("form", "smoothness"), [("fp64", 0.21), ("fp32", 0.22)])
def test_gpu_counts_missed_pairs_and_extends_the_table(form, smoothness):
    # no other test has a table of this smoothness, which might reach further
    import cupy

    near = [0.5 + 1e-9, 0.5 + 1e-14]
    places = np.concatenate((np.linspace(0.0, 1.0, 201), near))[:, None]
    pairs = gx.Matern(1.0, 0.3, smoothness).pairs(gx.Inputs(places))
    n, single = len(places), form == "fp32"
    real = np.float32 if single else np.float64
    table = Table(gx.Matern(1.0, 1.0, smoothness), *pairs.parts[0].octaves)
    out = cupy.empty((n, n), dtype=real, order="F")
    x = copy_on_gpu(pairs.parts[0].x)
    _, missed = generate._launch(
        form,
        (x, n, x, n, 1, 0, n, 0, n, pairs.parts[0].inverse, 0),
        *table.polynomials("correlation", single),
        (real(1), real(0), x, 0, real(1), -n, out, 0, n),
    )
    # three places that are nearly one: three pairs, each in both orders
    assert int(missed.sum()) == 6
    whole = slice(0, n)
    pairs.write_on_gpu("correlation", whole, whole, out)
    assert pairs.parts[0].octaves[0] < table.low
    expected = np.empty((n, n), dtype=out.dtype, order="F")
    pairs.write("correlation", whole, whole, expected)
    np.testing.assert_array_equal(cupy.asnumpy(out), expected)


@pytest.mark.gpu
def test_a_smoothness_without_table_is_refused_on_a_gpu():
    import cupy

    pairs = gx.Matern(1.0, 0.1, 60.0).pairs(gx.Inputs(places_of("euclidean", 2, 9)))
    with pytest.raises(gx.InvalidInput, match="at most 50"):
        pairs.write_on_gpu("correlation", slice(0, 9), slice(0, 9), cupy.empty((9, 9), order="F"))
