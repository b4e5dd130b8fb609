"""BLAS and LAPACK by pointer: threads run side by side, each on one core.

SciPy's wrappers hold the interpreter's lock while they compute; the same routines called through
their addresses do not. Where MKL is installed (pip install "geomxp[mkl]") it is used instead, but
not on AMD processors, where it may take twice as long as OpenBLAS (`uses_mkl`). MKL also has the
matrix units' routines. Arrays are in Fortran order.
"""

import ctypes
import os
import platform
import sys
import sysconfig
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from ctypes import byref, c_char, c_double, c_float, c_int, c_void_p
from ctypes.util import find_library
from functools import cache
from pathlib import Path

import numpy as np

from ..errors import InvalidInput, MissingPackage
from ..runtime.devices import (
    LIMITS_BY_THREAD,
    at_most,
    blas_threads,
    share,
    usable_cores,
)
from .views import by_columns, leading

BLAS_TYPES = {np.dtype(np.float64): ("d", c_double), np.dtype(np.float32): ("s", c_float)}

MKL_CBWR_AUTO = 2
"""MKL's mode in which equal calls give equal bits, wherever arrays lie; it is as fast."""


@cache
def mkl():
    """Return MKL's library, or None where it is not installed."""
    roots = {sys.prefix, sys.base_prefix, sysconfig.get_config_var("userbase") or sys.prefix}
    patterns = ("lib/libmkl_rt.so*", "lib/libmkl_rt*.dylib", "Library/bin/mkl_rt*.dll")
    paths = [str(path) for root in roots for name in patterns for path in Path(root).glob(name)]
    for name in (*sorted(paths), find_library("mkl_rt")):
        try:
            found = ctypes.CDLL(name) if name else None
        except OSError:
            continue
        if hasattr(found, "MKL_CBWR_Set") and "MKL_CBWR" not in os.environ:
            # without it bits depend on the addresses of arrays; nothing after MKL's first call
            found.MKL_CBWR_Set(c_int(MKL_CBWR_AUTO))
        return found
    return None


CPUINFO = Path("/proc/cpuinfo")
"""Linux's list of processors."""


@cache
def _on_amd():
    """Return whether this is an AMD processor."""
    with suppress(OSError):
        return "AuthenticAMD" in CPUINFO.read_text()
    # Windows: "AMD64 Family 25 Model 33 Stepping 0, AuthenticAMD"
    return "AuthenticAMD" in platform.processor()


_CHOSEN_LIBRARIES = []
"""Stack of the libraries chosen by `library`; the last one is used."""


def uses_mkl():
    """Return whether geomxp calls MKL for BLAS and LAPACK.

    It does where MKL is installed and the CPU is not from AMD, or where `library` chose it.
    On a Zen 5 processor MKL 2026.2 multiplies at about half the rate of OpenBLAS 0.3.30, in FP64
    and in FP32 (`geomxp bench ceilings`).
    """
    if _CHOSEN_LIBRARIES:
        return _CHOSEN_LIBRARIES[-1] == "MKL"
    return not _on_amd() and mkl() is not None


@contextmanager
def library(name):
    """Call MKL ("MKL") or SciPy's BLAS ("SciPy") in all threads, to compare the two.

    A context manager, or a decorator of a function to be called with the library.
    MKL multiplies on matrix units in either case. Blocks of different threads must not overlap.
    """
    if name not in ("MKL", "SciPy") or (name == "MKL" and mkl() is None):
        raise InvalidInput(f"`name` must be MKL, if it is installed, or SciPy. Got {name!r}.")
    _CHOSEN_LIBRARIES.append(name)
    try:
        yield
    finally:
        _CHOSEN_LIBRARIES.pop()


def routine(name):
    """Return a function of BLAS or LAPACK with Fortran's calling convention."""
    return _routine(name, uses_mkl())


@cache
def _routine(name, of_mkl):
    if of_mkl:
        function = getattr(mkl(), name)
        function.restype = None
        return function
    import scipy.linalg.cython_blas as blas
    import scipy.linalg.cython_lapack as lapack

    module = blas if name in blas.__pyx_capi__ else lapack
    capsule = module.__pyx_capi__[name]
    python = ctypes.pythonapi
    python.PyCapsule_GetName.restype = ctypes.c_char_p
    python.PyCapsule_GetName.argtypes = (ctypes.py_object,)
    python.PyCapsule_GetPointer.restype = c_void_p
    python.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    address = python.PyCapsule_GetPointer(capsule, python.PyCapsule_GetName(capsule))
    return ctypes.CFUNCTYPE(None)(address)


def addresses(names, dtype):
    """Return the addresses of routines for FP64 or FP32, as an array for compiled code."""
    letter = BLAS_TYPES[np.dtype(dtype)][0]
    found = [ctypes.cast(routine(letter + name), c_void_p).value for name in names]
    return np.array(found, np.uint64)


def one_core():
    """Use one core in the calling thread; see `cores`."""
    return cores(1)


@contextmanager
def cores(count):
    """Limit the cores of geomxp and MKL in the calling thread; `runtime.devices` limits SciPy's."""
    with at_most(count), _cores_of_mkl(count):
        yield


@contextmanager
def _cores_of_mkl(count):
    if mkl() is None:
        yield
        return
    before = mkl().MKL_Set_Num_Threads_Local(c_int(count))
    try:
        yield
    finally:
        mkl().MKL_Set_Num_Threads_Local(c_int(before))


_parts = ContextVar("parts", default=1)
"""Number of threads that share a BLAS call of the calling thread; see `own_threads`."""

MULTIPLICATIONS_PER_BLAS_THREAD, LEAST_ROWS_PER_THREAD = 2**24, 64
"""Multiplications for which another thread is worth starting, and the fewest rows or columns that
it gets."""


@contextmanager
def own_threads():
    """Share BLAS's products and triangular solves among geomxp's threads instead of those of BLAS.

    After a call OpenBLAS's threads busy-wait for up to 0.1 s, and MKL's for 0.2 s, and slow other
    threads down. Enclose BLAS by this where its calls alternate with `products_cpu`. Sums may then
    round differently with another number of cores, as in BLAS.
    """
    before = _parts.set(usable_cores())
    try:
        with blas_threads(0), _cores_of_mkl(1):
            yield
    finally:
        _parts.reset(before)


def _in_parts(work, size, multiplications, parts=1):
    """Call work(slice) for all of range(size), or for its parts, `parts` for each thread."""
    threads = min(
        _parts.get(),
        size // LEAST_ROWS_PER_THREAD,
        1 + multiplications // MULTIPLICATIONS_PER_BLAS_THREAD,
    )
    if threads < 2:
        work(slice(0, size))
        return

    def alone(part):
        with _cores_of_mkl(1):
            work(part)

    step = -(-size // (parts * threads))
    share(alone, [slice(k, min(k + step, size)) for k in range(0, size, step)], threads)


LIMITS_BY_THREAD.append(cores)


def _at(a):
    return c_void_p(a.ctypes.data)


_OPTION_REFERENCES = {letter: byref(c_char(letter.encode())) for letter in "LRUNT"}
"""The letters of BLAS and LAPACK, by reference."""


def _call(name, dtype, *arguments):
    """Call a routine for FP64 or FP32; an array is passed as its address and leading dimension."""
    letter, real = BLAS_TYPES[dtype]
    references = []
    for x in arguments:
        # small matrices wait for this loop
        kind = type(x)
        if kind is str:
            references.append(_OPTION_REFERENCES[x])
        elif kind is int:
            references.append(byref(c_int(x)))
        elif isinstance(x, float):
            references.append(byref(real(x)))
        elif hasattr(x, "strides"):
            references += [_at(x), byref(c_int(leading(x)))]
        else:
            references.append(x)
    routine(letter + name)(*references)


def gemm(c, a, b, alpha=1.0, beta=1.0, trans_a="N", trans_b="T"):
    """C <- alpha op(A) op(B) + beta C, all FP64 or all FP32."""
    k = a.shape[1] if trans_a == "N" else a.shape[0]
    alpha, beta = float(alpha), float(beta)
    if _parts.get() == 1:
        _call("gemm", c.dtype, trans_a, trans_b, *c.shape, k, alpha, a, b, beta, c)
        return c
    by_rows = c.shape[0] >= c.shape[1]

    def work(part):
        left, right, target = a, b, c[part] if by_rows else c[:, part]
        if by_rows:
            left = a[part] if trans_a == "N" else a[:, part]
        else:
            right = b[part] if trans_b == "T" else b[:, part]
        _call("gemm", c.dtype, trans_a, trans_b, *target.shape, k, alpha, left, right, beta, target)

    _in_parts(work, max(c.shape), c.size * k)
    return c


def rank_k(uplo, trans, c, a, alpha=1.0, beta=1.0):
    """One triangle of C <- alpha op(A) op(A)' + beta C."""
    n, k = a.shape if trans == "N" else a.shape[::-1]
    alpha, beta = float(alpha), float(beta)
    if _parts.get() == 1:
        _call("syrk", c.dtype, uplo, trans, n, k, alpha, a, beta, c)
        return c
    # the letter of the other operand of a product with op(A)'
    other = "T" if trans == "N" else "N"

    def work(part):
        # columns of the triangle: a square on the diagonal, and the rows below it or above
        beside = slice(part.stop, n) if uplo == "L" else slice(0, part.start)
        one, rest = (a[some] if trans == "N" else a[:, some] for some in (part, beside))
        size, block = part.stop - part.start, c[beside, part]
        _call("syrk", c.dtype, uplo, trans, size, k, alpha, one, beta, c[part, part])
        if block.size:
            _call("gemm", c.dtype, trans, other, *block.shape, k, alpha, rest, one, beta, block)

    # the columns take unequal time
    _in_parts(work, n, n * n * k // 2, parts=2)
    return c


def triangular(name, side, uplo, trans, diag, t, b):
    """B <- B op(T)⁻¹ or op(T)⁻¹ B ("trsm"), B op(T) or op(T) B ("trmm"), for a triangular T."""
    letters = side, uplo, trans, diag
    if b.size == len(t):
        # one column or row: several times as fast
        step, turned = (1, trans) if side == "L" else (leading(b), "NT"[trans == "N"])
        _call(f"{name[:-1]}v", b.dtype, uplo, turned, diag, len(t), t, _at(b), step)
        return b

    def work(part):
        mine = b[part] if side == "R" else b[:, part]
        _call(name, b.dtype, *letters, *mine.shape, 1.0, t, mine)

    if _parts.get() == 1:
        _call(name, b.dtype, *letters, *b.shape, 1.0, t, b)
    else:
        _in_parts(work, b.shape[side == "L"], len(t) * b.size)
    return b


ONE_COLUMN_ORDER = 192
"""Order above which one column is solved or multiplied faster by its own routine of BLAS."""

MOST_WRAPPER_MULTIPLICATIONS = 2**29
"""Limit on n²·columns for SciPy's wrappers. They hold the interpreter's lock, for up to 15 ms on
one core, but a call through ctypes takes up to 50 µs longer after other work."""


def triangular_at_once(name, side, uplo, trans, diag, t, b):
    """As `triangular`, for arrays without gaps, with less overhead; other threads may wait."""
    if b.size == len(t) > ONE_COLUMN_ORDER or uses_mkl():
        return triangular(name, side, uplo, trans, diag, t, b)
    wrapper = _wrapper(name, b.dtype)
    result = wrapper(1.0, t, b, side == "R", uplo == "L", trans == "T", diag == "U", True)
    if result is not b:
        # SciPy copies an array that is not aligned
        b[...] = result
    return b


@cache
def _wrapper(name, dtype):
    """Return SciPy's wrapper of a routine."""
    import scipy.linalg.blas

    return getattr(scipy.linalg.blas, BLAS_TYPES[dtype][0] + name)


def factor(uplo, a, info=None):
    """Overwrite one triangle with the Cholesky factor; return LAPACK's info, without `info`."""
    word = c_int(0)
    _call("potrf", a.dtype, uplo, len(a), a, byref(word))
    return word.value


CBLAS_COLUMN_MAJOR, CBLAS_NO_TRANS, CBLAS_TRANS = 102, 111, 112
"""Values of CBLAS_LAYOUT and CBLAS_TRANSPOSE in cblas.h."""


def cpu_has_unit(form):
    """Return whether this CPU has matrix units for a `Format`."""
    if form.mkl is None:
        return False
    try:
        from ..runtime.devices import binding
    except MissingPackage:
        # the casts to these formats need numba as well
        return False
    return bool(binding.get_host_cpu_features().get(form.mkl[1]))


@cache
def _compiles_for(feature):
    """Return whether numba compiles for a feature of CPUs, by LLVM's name."""
    try:
        from ..runtime.devices import cpu_target
    except MissingPackage:
        return False
    # the CPU's own features, unless variables of numba turn them off
    *_, features = cpu_target.target_context.codegen().magic_tuple()
    return f"+{feature}" in features.split(",")


@cache
def on_matrix_units(form):
    """Return whether MKL multiplies a `Format` on this CPU's matrix units."""
    return cpu_has_unit(form) and mkl() is not None and hasattr(mkl(), form.mkl[0])


def in_avx512(form):
    """Return whether `products_cpu` multiplies a `Format` here; never if matrix units do."""
    return form.avx512 is not None and _compiles_for(form.avx512) and not on_matrix_units(form)


def has_unit(form):
    """Return whether products of a `Format` are faster than FP32's on this CPU."""
    return on_matrix_units(form) or in_avx512(form)


def multiply_on_units(c, a, b, form, alpha):
    """C <- C + α A B' for operands in a format that `has_unit`, and a C with contiguous columns.

    C is FP32, or FP64 if the products are in AVX-512.
    """
    if in_avx512(form):
        from .products_cpu import multiply

        multiply(c, a, b, alpha)
        return
    (m, n), k = c.shape, a.shape[1]
    (trans_a, a) = (CBLAS_NO_TRANS, a) if by_columns(a) else (CBLAS_TRANS, a.T)
    (trans_b, b) = (CBLAS_TRANS, b) if by_columns(b) else (CBLAS_NO_TRANS, b.T)
    getattr(mkl(), form.mkl[0])(
        *(c_int(CBLAS_COLUMN_MAJOR), c_int(trans_a), c_int(trans_b), c_int(m), c_int(n), c_int(k)),
        *(c_float(alpha), _at(a), c_int(leading(a)), _at(b), c_int(leading(b))),
        *(c_float(1.0), _at(c), c_int(leading(c))),
    )


def square_on_units(c, a, form, alpha):
    """Lower triangle of C <- C + α A A' in a format that is multiplied `in_avx512`."""
    from .products_cpu import multiply

    multiply(c, a, a, alpha, triangle=True)


def syrk(c, a, alpha=1.0, beta=1.0):
    """Lower triangle of C <- alpha A A' + beta C."""
    return rank_k("L", "N", c, a, alpha, beta)


def symm(a, x):
    """Return A X for a symmetric A, whose lower triangle is read."""
    (m, n), c = x.shape, np.zeros(x.shape, x.dtype, order="F")
    if n == 1:
        one = byref(c_int(1))
        _call("symv", x.dtype, "L", m, 1.0, a, _at(x), one, 0.0, _at(c), one)
    else:
        _call("symm", x.dtype, "L", "L", m, n, 1.0, a, x, 0.0, c)
    return c


def trsm(lower, b, side="R", trans="T"):
    """B <- B op(L)⁻¹ (side R) or op(L)⁻¹ B (side L), for a lower triangular L."""
    return triangular("trsm", side, "L", trans, "N", lower, b)


CONGRUENCE_COLUMNS = 256
"""Columns of a step of `congruence`: LAPACK's own are too few for FP32."""


def congruence(lower, a):
    """Overwrite the lower triangle of a symmetric matrix A with that of L⁻¹A L⁻ᵀ.

        A11 <- L11⁻¹A11 L11⁻ᵀ,  B = (A21 - ½L21 A11 L11')L11⁻ᵀ
        A22 <- A22 - B L21' - L21 B',  A21 <- L22⁻¹(B - ½L21 A11),  and so on with A22

    as LAPACK's sygst.
    """
    n, real, info = len(a), a.dtype, c_int(0)
    for first in range(0, n, CONGRUENCE_COLUMNS):
        last = min(first + CONGRUENCE_COLUMNS, n)
        here, rest = slice(first, last), slice(last, n)
        size, l11, a11 = (n - last, last - first), lower[here, here], a[here, here]
        _call("sygst", real, byref(c_int(1)), "L", last - first, a11, l11, byref(info))
        if last < n:
            l21, a21 = lower[rest, here], a[rest, here]
            _call("trsm", real, "R", "L", "T", "N", *size, 1.0, l11, a21)
            _call("symm", real, "R", "L", *size, -0.5, a11, l21, 1.0, a21)
            _call("syr2k", real, "L", "N", *size, -1.0, a21, l21, 1.0, a[rest, rest])
            _call("symm", real, "R", "L", *size, -0.5, a11, l21, 1.0, a21)
            _call("trsm", real, "L", "L", "N", "N", *size, 1.0, lower[rest, rest], a21)
    return a


def potrf(a):
    """Overwrite the lower triangle with its Cholesky factor; return LAPACK's info."""
    return factor("L", a)
