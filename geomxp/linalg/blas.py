"""BLAS and LAPACK by pointer: threads run side by side, each on one core.

SciPy's wrappers hold the interpreter's lock while they compute; the same routines called through
their addresses do not. Where MKL is installed (pip install "geomxp[mkl]") it is used instead: it
also has the matrix units' routines. Arrays are in Fortran order.
"""

import ctypes
import sys
import sysconfig
from contextlib import contextmanager
from ctypes import byref, c_char, c_double, c_float, c_int, c_void_p
from ctypes.util import find_library
from functools import cache
from pathlib import Path

import numpy as np

from ..errors import MissingPackage
from ..runtime.devices import LIMITS_BY_THREAD
from .views import by_columns, leading

LETTERS = {np.dtype(np.float64): ("d", c_double), np.dtype(np.float32): ("s", c_float)}


@cache
def mkl():
    """Return MKL's library, or None where it is not installed."""
    roots = {sys.prefix, sys.base_prefix, sysconfig.get_config_var("userbase") or sys.prefix}
    patterns = ("lib/libmkl_rt.so*", "lib/libmkl_rt*.dylib", "Library/bin/mkl_rt*.dll")
    found = [str(path) for root in roots for name in patterns for path in Path(root).glob(name)]
    for name in (*sorted(found), find_library("mkl_rt")):
        try:
            return ctypes.CDLL(name) if name else None
        except OSError:
            continue
    return None


@cache
def routine(name):
    """Return a function of BLAS or LAPACK with Fortran's calling convention."""
    library = mkl()
    if library is not None:
        function = getattr(library, name)
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


def one_core():
    """Let MKL use one core in the calling thread; see `cores`."""
    return cores(1)


@contextmanager
def cores(count):
    """Limit the cores that MKL uses in the calling thread; `runtime.devices` limits SciPy's."""
    if mkl() is None:
        yield
        return
    before = mkl().MKL_Set_Num_Threads_Local(c_int(count))
    try:
        yield
    finally:
        mkl().MKL_Set_Num_Threads_Local(c_int(before))


LIMITS_BY_THREAD.append(cores)


def _letter(letter):
    return byref(c_char(letter.encode()))


def _number(number):
    return byref(c_int(number))


def _at(a):
    return c_void_p(a.ctypes.data)


def gemm(c, a, b, alpha=1.0, beta=1.0, trans_a="N", trans_b="T"):
    """C <- alpha op(A) op(B) + beta C, all FP64 or all FP32."""
    letter, real = LETTERS[c.dtype]
    m, n = c.shape
    k = a.shape[1] if trans_a == "N" else a.shape[0]
    routine(letter + "gemm")(
        *(_letter(trans_a), _letter(trans_b), _number(m), _number(n), _number(k)),
        *(byref(real(alpha)), _at(a), _number(leading(a)), _at(b), _number(leading(b))),
        *(byref(real(beta)), _at(c), _number(leading(c))),
    )
    return c


def rank_k(uplo, trans, c, a, alpha=1.0, beta=1.0):
    """One triangle of C <- alpha op(A) op(A)' + beta C."""
    letter, real = LETTERS[c.dtype]
    n, k = a.shape if trans == "N" else a.shape[::-1]
    routine(letter + "syrk")(
        *(_letter(uplo), _letter(trans), _number(n), _number(k)),
        *(byref(real(alpha)), _at(a), _number(leading(a))),
        *(byref(real(beta)), _at(c), _number(leading(c))),
    )
    return c


def triangular(name, side, uplo, trans, diag, t, b):
    """B <- B op(T)⁻¹ or op(T)⁻¹ B ("trsm"), B op(T) or op(T) B ("trmm"), for a triangular T."""
    letter, real = LETTERS[b.dtype]
    m, n = b.shape
    routine(letter + name)(
        *(_letter(side), _letter(uplo), _letter(trans), _letter(diag), _number(m), _number(n)),
        *(byref(real(1.0)), _at(t), _number(leading(t)), _at(b), _number(leading(b))),
    )
    return b


def factor(uplo, a, info=None):
    """Overwrite one triangle with the Cholesky factor; return LAPACK's info.

    `info` is for the GPU's function of this name.
    """
    letter, _ = LETTERS[a.dtype]
    info = c_int(0)
    routine(letter + "potrf")(
        *(_letter(uplo), _number(len(a)), _at(a), _number(leading(a)), byref(info))
    )
    return info.value


COLUMN_MAJOR, PLAIN, TRANSPOSED = 102, 111, 112
"""CblasColMajor, CblasNoTrans, CblasTrans."""


@cache
def has_unit(form):
    """Return whether MKL multiplies a format on this CPU's matrix units.

    Parameters
    ----------
    form : Format
    """
    if form.mkl is None or mkl() is None or not hasattr(mkl(), form.mkl[0]):
        return False
    try:
        from ..runtime.devices import binding
    except MissingPackage:
        # the casts to these formats need numba as well
        return False
    return bool(binding.get_host_cpu_features().get(form.mkl[1]))


def multiply_on_units(c, a, b, form, alpha):
    """C <- C + α A B' on matrix units, for FP32 C with contiguous columns; see `has_unit`."""
    (m, n), k = c.shape, a.shape[1]
    (trans_a, a) = (PLAIN, a) if by_columns(a) else (TRANSPOSED, a.T)
    (trans_b, b) = (TRANSPOSED, b) if by_columns(b) else (PLAIN, b.T)
    getattr(mkl(), form.mkl[0])(
        *(c_int(COLUMN_MAJOR), c_int(trans_a), c_int(trans_b), c_int(m), c_int(n), c_int(k)),
        *(c_float(alpha), _at(a), c_int(leading(a)), _at(b), c_int(leading(b))),
        *(c_float(1.0), _at(c), c_int(leading(c))),
    )


def syrk(c, a, alpha=1.0, beta=1.0):
    """Lower triangle of C <- alpha A A' + beta C."""
    return rank_k("L", "N", c, a, alpha, beta)


def symm(a, x):
    """Return A X, of A its lower triangle being looked at."""
    letter, real = LETTERS[x.dtype]
    (m, n), c = x.shape, np.zeros(x.shape, x.dtype, order="F")
    if n == 1:
        routine(letter + "symv")(
            *(_letter("L"), _number(m), byref(real(1.0)), _at(a), _number(leading(a))),
            *(_at(x), _number(1), byref(real(0.0)), _at(c), _number(1)),
        )
        return c
    routine(letter + "symm")(
        *(_letter("L"), _letter("L"), _number(m), _number(n), byref(real(1.0))),
        *(_at(a), _number(leading(a)), _at(x), _number(leading(x))),
        *(byref(real(0.0)), _at(c), _number(leading(c))),
    )
    return c


def trsm(lower, b, side="R", trans="T"):
    """B <- B op(L)⁻¹ (side R) or op(L)⁻¹ B (side L), for a lower triangular L."""
    return triangular("trsm", side, "L", trans, "N", lower, b)


def potrf(a):
    """Overwrite the lower triangle with its Cholesky factor; return LAPACK's info."""
    return factor("L", a)
