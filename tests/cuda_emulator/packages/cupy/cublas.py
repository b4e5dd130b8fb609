"""CuPy's wrappers of cuBLAS."""

import ctypes

import numpy as np
from cupy_backends.cuda.libs import cublas

import cupy
from cupy.cuda.device import get_cublas_handle


def gemm(transa, transb, a, b, out=None, alpha=1.0, beta=0.0):
    """C <- α op(A) op(B) + βC; arrays that are not in Fortran order are copied, as by CuPy."""
    a, b = (x if x.flags.f_contiguous else x.copy(order="F") for x in (a, b))
    m, k = a.shape if transa == "N" else a.shape[::-1]
    n = b.shape[1] if transb == "N" else b.shape[0]
    target = cupy.empty((m, n), a.dtype, order="F") if out is None else out
    if not target.flags.f_contiguous or not a.dtype == b.dtype == target.dtype:
        raise ValueError("the emulator's gemm takes one type and an output in Fortran order")
    call, real = {
        "float64": (cublas.dgemm, ctypes.c_double),
        "float32": (cublas.sgemm, ctypes.c_float),
    }[np.dtype(a.dtype).name]
    one, two = real(alpha), real(beta)
    call(
        *(get_cublas_handle(), int(transa == "T"), int(transb == "T"), m, n, k),
        *(ctypes.addressof(one), a.data.ptr, len(a), b.data.ptr, len(b)),
        *(ctypes.addressof(two), target.data.ptr, m),
    )
    return target
