"""The vendors' routines that the stages compare with, and the operands that both sides get.

On a GPU cuBLAS and cuSOLVER: through CuPy where it binds them, else through ctypes (the 64-bit
`cusolverDnXpotrf`, `cublasDtrmm`, emulated FP64), with the numbers of NVIDIA's headers. On a CPU
the BLAS and LAPACK of `geomxp.linalg.blas` stand in.
"""

import ctypes
import re
from ctypes import addressof, byref, c_double, c_float, c_int, c_int64, c_size_t, c_void_p
from functools import cache
from pathlib import Path

import numpy as np

from geomxp.linalg.backend import backend_of
from geomxp.linalg.views import leading

PANEL = 2048
"""Columns that are made or compared at a time, so that copies stay small."""

R_32F, R_64F, AS_64F, EMULATED_64F = 0, 1, 70, 79
"""CUDA_R_32F, CUDA_R_64F, CUBLAS_COMPUTE_64F, CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT."""

EAGER = 2
"""CUBLAS_EMULATION_STRATEGY_EAGER: emulate also where it may be slower."""


@cache
def loaded(name):
    """Return the library of a name: the one that CuPy has loaded, or else the system's.

    Raises
    ------
    OSError
        If the system does not find it.
    """
    for line in Path("/proc/self/maps").read_text().splitlines():
        found = re.search(rf"(/\S*/{re.escape(name)}\.so[.0-9]*)$", line)
        if found:
            return ctypes.CDLL(found[1])
    return ctypes.CDLL(f"{name}.so")


def potrf(a):
    """Overwrite the lower triangle by its Cholesky factor: cuSOLVER's 64-bit routine, or LAPACK.

    Raises
    ------
    RuntimeError
        If the routine says so, or the matrix has no factor.
    """
    info = _xpotrf(a) if not isinstance(a, np.ndarray) else backend_of(a).potrf(a)
    if info:
        raise RuntimeError(f"potrf: info {info}")


def _xpotrf(a):
    import cupy
    from cupy.cuda.device import get_cusolver_handle
    from cupy_backends.cuda.libs import cusolver

    handle, library = c_void_p(get_cusolver_handle()), loaded("libcusolver")
    cusolver.setStream(handle.value, cupy.cuda.get_current_stream().ptr)
    kind = c_int(R_64F if a.dtype == np.float64 else R_32F)
    # lower triangle; n, the type of A, A, its leading dimension, the type of the sums
    place = (c_int(0), c_int64(len(a)), kind, c_void_p(a.data.ptr))
    place = (*place, c_int64(leading(a)), kind)
    device, host, params = c_size_t(), c_size_t(), c_void_p()
    _check("cusolverDnCreateParams", library.cusolverDnCreateParams(byref(params)))
    try:
        sizes = (byref(device), byref(host))
        status = library.cusolverDnXpotrf_bufferSize(handle, params, *place, *sizes)
        _check("cusolverDnXpotrf_bufferSize", status)
        work, info = cupy.empty(device.value, np.uint8), cupy.zeros(1, np.int32)
        room = ctypes.create_string_buffer(max(1, host.value))
        status = library.cusolverDnXpotrf(
            *(handle, params, *place, c_void_p(work.data.ptr), device),
            *(ctypes.cast(room, c_void_p), host, c_void_p(info.data.ptr)),
        )
        _check("cusolverDnXpotrf", status)
        return int(info[0])
    finally:
        library.cusolverDnDestroyParams(params)


def legacy_potrf(a):
    """As `potrf`, by cuSOLVER's routine with 32-bit sizes."""
    info = backend_of(a).potrf(a)
    if info:
        raise RuntimeError(f"potrf: info {info}")


def syrk(a, c):
    """Lower triangle of C <- C - AA'."""
    backend_of(c).syrk(c, a, -1.0, 1.0)


def trsm(t, b):
    """B <- B T'⁻¹."""
    backend_of(b).trsm(t, b, True)


def trmm(t, b):
    """B <- B T'."""
    if isinstance(b, np.ndarray):
        backend_of(b).trmm(t, b, True)
        return
    from cupy.cuda.device import get_cublas_handle
    from cupy_backends.cuda.libs import cublas

    library, handle, stream = _cublas(get_cublas_handle())
    cublas.setStream(handle.value, stream)
    single = b.dtype == np.float32
    one = c_float(1.0) if single else c_double(1.0)
    name = "cublasStrmm_v2" if single else "cublasDtrmm_v2"
    # right, lower, transposed, with its own diagonal; C may be B
    letters = (c_int(1), c_int(0), c_int(1), c_int(0))
    status = getattr(library, name)(
        *(handle, *letters, *(c_int(size) for size in b.shape), byref(one)),
        *(c_void_p(t.data.ptr), c_int(leading(t))),
        *(c_void_p(b.data.ptr), c_int(leading(b))) * 2,
    )
    _check(name, status)


def emulated_gemm(c, a, b):
    """C <- C + AB' in FP64 that cuBLAS emulates on units for integers.

    Raises
    ------
    RuntimeError, OSError
        If this cuBLAS or this GPU cannot.
    """
    from cupy.cuda.device import get_cublas_handle
    from cupy_backends.cuda.libs import cublas

    library, handle, _ = _cublas(get_cublas_handle())
    strategy = getattr(library, "cublasSetEmulationStrategy", None)
    if strategy is None:
        raise OSError("this cuBLAS has no emulation of FP64")
    _check("cublasSetEmulationStrategy", strategy(handle, c_int(EAGER)))
    one, (m, n) = c_double(1.0), c.shape
    try:
        cublas.gemmEx(
            *(handle.value, cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_T, m, n, a.shape[1]),
            *(addressof(one), a.data.ptr, R_64F, leading(a)),
            *(b.data.ptr, R_64F, leading(b), addressof(one)),
            *(c.data.ptr, R_64F, leading(c), EMULATED_64F, cublas.CUBLAS_GEMM_DEFAULT),
        )
    finally:
        strategy(handle, c_int(0))


def _cublas(handle):
    import cupy

    return loaded("libcublas"), c_void_p(handle), cupy.cuda.get_current_stream().ptr


def _check(name, status):
    if status:
        raise RuntimeError(f"{name} returned {status}")


def empty(machine, shape, dtype=np.float64):
    """Return an uninitialized array of the machine, Fortran order."""
    return machine.xp.empty(shape, dtype, order="F")


def fill(machine, a, seed=0, diagonal=0.0):
    """Fill A with uniform random numbers, and add something on the diagonal."""
    rng = machine.xp.random.default_rng(seed)
    m, n = a.shape
    for first in range(0, n, PANEL):
        last = min(first + PANEL, n)
        a[:, first:last] = rng.random((last - first, m), dtype=np.float32).T
    if diagonal:
        entries = a.reshape(-1, order="F")[:: m + 1]
        entries += a.dtype.type(diagonal)


def fill_matern(machine, a, places, model):
    """Fill the lower triangle of A with the covariances of observations at some places."""
    import geomxp as gx
    from geomxp.tiles.assemble import covariance_matrix

    if machine.gpu:
        whole = slice(0, len(places))
        model.pairs(gx.Inputs(places)).write_on_gpu(
            "correlation", whole, whole, a, triangle=True, noise=model.nugget
        )
    else:
        covariance_matrix(model, places, "euclidean", a)


def lower_difference(machine, a, b):
    """Return ‖A - B‖_F / ‖B‖_F of two lower triangles."""
    xp, error, norm = machine.xp, 0.0, 0.0
    for first in range(0, len(a), PANEL):
        last = min(first + PANEL, len(a))
        left, right = (xp.array(x[first:, first:last], np.float64) for x in (a, b))
        for part in (left, right):
            part[: last - first] = xp.tril(part[: last - first])
        left -= right
        error += float(xp.vdot(left, left))
        norm += float(xp.vdot(right, right))
    return float(np.sqrt(error / norm))


def log_determinant(machine, lower):
    """Return 2 Σ log L_ii."""
    return 2.0 * float(machine.xp.log(lower.diagonal().astype(np.float64)).sum())
