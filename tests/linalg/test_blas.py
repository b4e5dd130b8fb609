import threading
import time
from itertools import product

import numpy as np
import pytest
import scipy.linalg

import geomxp as gx
from geomxp.linalg import blas

UNIT = {np.float64: 2.0**-53, np.float32: 2.0**-24}
SHAPES = [(1, 1, 1), (1, 7, 3), (7, 1, 3), (5, 6, 1), (33, 17, 64), (64, 64, 64), (5, 4, 0)]


@pytest.fixture(params=["MKL", "SciPy"], autouse=True)
def library(request):
    """Every law holds with MKL's routines and with those that SciPy brings."""
    if request.param == "MKL" and blas.mkl() is None:
        pytest.skip('MKL is not installed: pip install "geomxp[mkl]"')
    with blas.library(request.param):
        yield request.param


@pytest.fixture(params=[np.float64, np.float32], ids=["fp64", "fp32"])
def dtype(request):
    return request.param


def random(shape, dtype, seed=0):
    numbers = np.random.default_rng(seed).standard_normal(shape).astype(dtype)
    return np.asfortranarray(numbers)


def lower_triangle(n, dtype, seed=0):
    """A well conditioned factor; what stands above its diagonal is not to be read."""
    lower = np.tril(random((n, n), dtype, seed), -1) / dtype(n) + np.eye(n, dtype=dtype)
    lower[np.triu_indices(n, 1)] = np.nan
    return np.asfortranarray(lower)


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_gemm_adds_the_product(m, n, k, dtype):
    a, b, c = random((m, k), dtype, 1), random((n, k), dtype, 2), random((m, n), dtype, 3)
    expected = 0.5 * c.astype(float) - 2.0 * a.astype(float) @ b.astype(float).T
    size = abs(c) + 2 * abs(a) @ abs(b).T
    assert blas.gemm(c, a, b, alpha=-2.0, beta=0.5) is c
    assert (abs(c - expected) <= 2 * (k + 3) * UNIT[dtype] * size).all()


@pytest.mark.parametrize("trans_a", ["N", "T"])
@pytest.mark.parametrize("trans_b", ["N", "T"])
def test_gemm_transposes_what_it_is_told_to(trans_a, trans_b, dtype):
    m, n, k = 5, 4, 3
    a = random((m, k) if trans_a == "N" else (k, m), dtype, 1)
    b = random((k, n) if trans_b == "N" else (n, k), dtype, 2)
    c = np.zeros((m, n), dtype, order="F")
    blas.gemm(c, a, b, trans_a=trans_a, trans_b=trans_b)
    left, right = (a if trans_a == "N" else a.T), (b if trans_b == "N" else b.T)
    assert (abs(c - left @ right) <= 2 * k * UNIT[dtype] * (abs(left) @ abs(right))).all()


def test_parts_of_larger_arrays_are_written_in_place_and_nothing_beside_them(dtype):
    whole = random((20, 15), dtype, 1)
    before = whole.copy()
    rows, columns = slice(3, 9), slice(10, 14)
    a, b = whole[12:18, 2:5], random((10, 5), dtype, 2)[4:8, 1:4]
    expected = before[rows, columns] + a @ b.T
    blas.gemm(whole[rows, columns], a, b)
    tolerance = 8 * UNIT[dtype] * (abs(before).max() + (abs(a) @ abs(b).T).max())
    assert abs(whole[rows, columns] - expected).max() <= tolerance
    whole[rows, columns] = before[rows, columns]
    np.testing.assert_array_equal(whole, before)


@pytest.mark.parametrize("shape", [(1, 1), (1, 6), (6, 1), (33, 17), (17, 33), (64, 64)])
@pytest.mark.parametrize("side", ["R", "L"])
@pytest.mark.parametrize("trans", ["N", "T"])
def test_trsm_is_undone_by_the_product_and_is_scipys(shape, side, trans, dtype):
    b = random(shape, dtype, 4)
    n = shape[1] if side == "R" else shape[0]
    lower = lower_triangle(n, dtype)
    x = b.copy(order="F")
    assert blas.trsm(lower, x, side=side, trans=trans) is x
    factor = np.tril(lower)
    factor = factor.T if trans == "T" else factor
    left, right = (x, factor) if side == "R" else (factor, x)
    allowed = 2 * (n + 1) * UNIT[dtype] * (abs(left) @ abs(right))
    assert (abs(left @ right - b) <= allowed).all()
    solved = scipy.linalg.solve_triangular(
        np.tril(lower), b if side == "L" else b.T, lower=True, trans=(trans == "T") ^ (side == "R")
    )
    condition = np.linalg.cond(np.tril(lower).astype(float))
    difference = x - (solved if side == "L" else solved.T)
    allowed = 4 * (n + 1) * UNIT[dtype] * condition * np.linalg.norm(solved)
    assert np.linalg.norm(difference) <= allowed


@pytest.mark.parametrize("name", ["trsm", "trmm"])
@pytest.mark.parametrize("side", "LR")
@pytest.mark.parametrize("uplo", "LU")
@pytest.mark.parametrize("trans", "NT")
@pytest.mark.parametrize("diag", "NU")
def test_one_column_or_row_is_multiplied_and_solved_as_several(
    name, side, uplo, trans, diag, dtype
):
    n = 19
    whole = random((n + 3, n + 2), dtype, 5)
    t, b = whole[2 : n + 2, 1 : n + 1], random((n + 4, 4), dtype, 6)
    t += n * np.eye(n, dtype=dtype)
    all_of_them, alone = np.s_[2 : n + 2, :], np.s_[2 : n + 2, 1:2]
    if side == "R":
        b, all_of_them, alone = b.T, all_of_them[::-1], alone[::-1]
    several, one = (b.copy(order="F") for _ in range(2))
    blas.triangular(name, side, uplo, trans, diag, t, several[all_of_them])
    blas.triangular(name, side, uplo, trans, diag, t, one[alone])
    np.testing.assert_allclose(one[alone], several[alone], rtol=0, atol=50 * n**2 * UNIT[dtype])
    one[alone] = b[alone]
    np.testing.assert_array_equal(one, b)


@pytest.mark.parametrize("n", [1, 2, 3, 17, 64, 100])
def test_potrf_gives_the_factor_that_is_known_in_closed_form(n, dtype):
    apart = np.subtract.outer(np.arange(n), np.arange(n))
    factor = np.tril(2.0 ** -apart.clip(0))
    a = np.asfortranarray((factor @ factor.T).astype(dtype))
    scipys = scipy.linalg.cholesky(a, lower=True)
    a[np.triu_indices(n, 1)] = np.nan
    assert blas.potrf(a) == 0
    assert abs(np.tril(a) - factor).max() <= 2 * (n + 1) * UNIT[dtype]
    assert abs(np.tril(a) - scipys).max() <= 4 * (n + 1) * UNIT[dtype]
    assert np.isnan(a[np.triu_indices(n, 1)]).all()


@pytest.mark.parametrize("order", [1, 2, 30, 64])
def test_potrf_says_which_minor_is_not_positive(order, dtype):
    a = np.asfortranarray(np.eye(64, dtype=dtype))
    a[order - 1, order - 1] = -1.0
    assert blas.potrf(a) == order


def test_the_calling_thread_keeps_to_one_core_inside_and_is_as_before_after(library):
    if blas.mkl() is None:
        with blas.one_core():
            return
    count = blas.mkl().MKL_Get_Max_Threads
    before = count()
    with blas.one_core():
        assert count() == 1
        with blas.one_core():
            assert count() == 1
        assert count() == 1
    assert count() == before


def test_the_chosen_library_is_used_inside_and_the_earlier_one_after(library):
    assert blas.uses_mkl() == (library == "MKL")
    a, b = random((64, 64), np.float64), random((64, 64), np.float64, 1)
    c = blas.gemm(np.zeros((64, 64), order="F"), a, b, trans_b="N", beta=0.0)
    other = "SciPy" if library == "MKL" or blas.mkl() is None else "MKL"
    with blas.library(other):
        assert blas.uses_mkl() == (other == "MKL")
        again = blas.gemm(np.zeros((64, 64), order="F"), a, b, trans_b="N", beta=0.0)
    assert blas.library(other)(blas.uses_mkl)() == (other == "MKL")
    assert blas.uses_mkl() == (library == "MKL")
    np.testing.assert_allclose(c, again, rtol=0, atol=1e-13)
    np.testing.assert_allclose(c, a @ b, rtol=0, atol=1e-13)


def test_no_library_has_a_routine_of_no_name():
    with pytest.raises((KeyError, AttributeError)):
        blas.routine("dnothing")


@pytest.mark.parametrize("name", ["mkl", "OpenBLAS", ""])
def test_no_other_library_can_be_chosen(name):
    message = "must be MKL, if it is installed, or SciPy"
    with pytest.raises(gx.InvalidInput, match=message), blas.library(name):
        pass


@pytest.mark.parametrize("on_amd", [True, False])
@pytest.mark.parametrize("installed", [True, False])
def test_mkl_is_used_where_it_is_installed_except_on_amd(on_amd, installed, monkeypatch):
    monkeypatch.setattr(blas, "_CHOSEN_LIBRARIES", [])
    monkeypatch.setattr(blas, "_on_amd", lambda: on_amd)
    monkeypatch.setattr(blas, "mkl", lambda: object() if installed else None)
    assert blas.uses_mkl() == (installed and not on_amd)


@pytest.mark.parametrize(
    ("vendor", "amd"), [("AuthenticAMD", True), ("GenuineIntel", False), ("HygonGenuine", False)]
)
@pytest.mark.parametrize("linux", [True, False])
def test_the_vendor_is_read_on_linux_and_on_windows(vendor, amd, linux, tmp_path, monkeypatch):
    listing = tmp_path / "cpuinfo"
    if linux:
        listing.write_text(f"processor\t: 0\nvendor_id\t: {vendor}\n")
    named = "" if linux else f"AMD64 Family 25 Model 33 Stepping 0, {vendor}"
    monkeypatch.setattr(blas.platform, "processor", lambda: named)
    monkeypatch.setattr(blas, "CPUINFO", listing)
    assert blas._on_amd.__wrapped__() == amd


@pytest.fixture
def shared(library):
    """Routines of BLAS cut into parts for three threads, however small they are."""
    with blas.own_threads(), pytest.MonkeyPatch.context() as patch:
        before = blas._parts.set(3)
        patch.setattr(blas, "MULTIPLICATIONS_PER_BLAS_THREAD", 1)
        patch.setattr(blas, "LEAST_ROWS_PER_THREAD", 2)
        yield
        blas._parts.reset(before)


def close(found, expected, dtype):
    return abs(found - expected).max() <= 200 * np.finfo(dtype).eps * abs(expected).max()


@pytest.mark.parametrize(("trans_a", "trans_b"), [*product("NT", "NT")])
@pytest.mark.parametrize(("m", "n"), [(70, 30), (11, 90), (5, 5), (1, 40), (3, 1)])
def test_products_in_parts_are_those_of_the_whole(shared, m, n, trans_a, trans_b, dtype):
    k = 20
    a = random((m, k) if trans_a == "N" else (k, m), dtype)
    b = random((k, n) if trans_b == "N" else (n, k), dtype, 1)
    c = random((m, n), dtype, 2)
    expected = 0.3 * c - 0.5 * (a if trans_a == "N" else a.T) @ (b if trans_b == "N" else b.T)
    assert close(blas.gemm(c, a, b, -0.5, 0.3, trans_a, trans_b), expected, dtype)


@pytest.mark.parametrize(("uplo", "trans"), [*product("LU", "NT")])
@pytest.mark.parametrize("n", [1, 5, 13, 90])
def test_squares_in_parts_are_one_triangle_of_the_whole(shared, n, uplo, trans, dtype):
    a = random((n, 20) if trans == "N" else (20, n), dtype)
    c = random((n, n), dtype, 2)
    one, other = (np.tril, np.triu) if uplo == "L" else (np.triu, np.tril)
    before, whole = c.copy(), 0.3 * c - 0.5 * (a @ a.T if trans == "N" else a.T @ a)
    blas.rank_k(uplo, trans, c, a, -0.5, 0.3)
    assert close(one(c), one(whole), dtype)
    away = 1 if uplo == "L" else -1
    np.testing.assert_array_equal(other(c, away), other(before, away))


@pytest.mark.parametrize("name", ["trsm", "trmm"])
@pytest.mark.parametrize(("side", "uplo", "trans"), [*product("LR", "LU", "NT")])
def test_triangles_act_on_parts_as_on_the_whole(shared, side, uplo, trans, name, dtype):
    t = random((30, 30), dtype) + 20 * np.eye(30, dtype=dtype)
    t = np.asfortranarray(np.tril(t) if uplo == "L" else np.triu(t))
    b = random((30, 47) if side == "L" else (47, 30), dtype, 1)
    op = (t if trans == "N" else t.T).astype(np.float64)
    op = np.linalg.inv(op) if name == "trsm" else op
    expected = op @ b if side == "L" else b @ op
    assert close(blas.triangular(name, side, uplo, trans, "N", t, b), expected, dtype)


def test_routines_in_parts_run_in_several_threads(shared, monkeypatch):
    threads, call = set(), blas._call

    def seen(*arguments):
        threads.add(threading.get_ident())
        time.sleep(0.05)
        call(*arguments)

    monkeypatch.setattr(blas, "_call", seen)
    c = np.zeros((90, 90), order="F")
    blas.gemm(c, c.copy(order="F"), c.copy(order="F"))
    assert len(threads) == 3
    threads.clear()
    blas.rank_k("L", "N", c, c.copy(order="F"))
    assert len(threads) > 1
