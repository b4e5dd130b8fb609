"""Products of coarse formats on a GPU's matrix units, with FP32 sums.

cuBLAS multiplies all formats but FP8, and cuBLASLt that, on GPUs that can. CuPy has no binding of
cuBLASLt: here are the few calls of its C interface, with the numbers of cublasLt.h.
"""

import ctypes
import sys
from ctypes import (
    addressof,
    byref,
    c_float,
    c_int,
    c_int8,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from functools import cache
from numbers import Real

import numpy as np

from ..errors import MissingDevice
from .device import copy_on_gpu, cublas_handle
from .views import by_columns, leading, operand

CUDA_R_32F, CUBLAS_COMPUTE_32F = 0, 68
"""The type and the arithmetic of sums."""

POINTER_MODE, TRANSPOSE_A, FAST_ACCUMULATION = 2, 3, 25
"""CUBLASLT_MATMUL_DESC_POINTER_MODE, _TRANSA and _FAST_ACCUM."""

POINTERS_ON_DEVICE = 1
"""CUBLASLT_POINTER_MODE_DEVICE."""

BETAS = np.array([0.0, 1.0], np.float32)
"""Where α is on a GPU, β must be on it as well."""

WORKSPACE_LIMIT, WORKSPACE_BYTES = 1, 2**25
"""CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, and the 32 MiB that cuBLAS advises for Hopper."""

ALIGNMENT_ATTRIBUTES = (5, 6, 7, 8)
"""CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_{A, B, C, D}_BYTES; 256 where they are not set."""

NOT_SUPPORTED = 15
"""CUBLAS_STATUS_NOT_SUPPORTED."""


@cache
def has_units(form, index):
    """Return whether a GPU has matrix units for a format."""
    import cupy

    return int(cupy.cuda.Device(index).compute_capability) >= form.cuda_since


def multiply(c, a, b, form, alpha, beta=1.0):
    """C <- βC + α A B' by cuBLAS: numbers of one format but FP8, summed in FP32; return C.

    C, (m, n), is by columns; A and B hold numbers of the format or their bits, in any layout. α is
    a float or an FP32 array on the GPU, whose first entry is read; β is 0 or 1.
    """
    _accumulate(c, operand(a), operand(b), ((0, 0, a.shape[1]),), form, alpha, beta)
    return c


def _accumulate(c, a, b, parts, form, alpha, beta):
    """C <- βC + α Σ A_p B_p', in the order of the parts.

    A and B are results of `views.operand`. Parts are (bytes from the start of A, of B, number of
    columns): only addresses change between the calls, to keep the CPU time of a call small.
    """
    from cupy_backends.cuda.libs import cublas

    m, n = c.shape
    (trans_a, a), (trans_b, b) = a, b
    operation = {"N": cublas.CUBLAS_OP_N, "T": cublas.CUBLAS_OP_T}
    operations = operation[trans_a], operation["NT"[trans_b == "N"]]
    start_a, start_b = a.data.ptr, b.data.ptr
    of_a, of_b = (form.cuda_type, leading(a)), (form.cuda_type, leading(b))
    of_c = c.data.ptr, CUDA_R_32F, leading(c), form.cuda_compute, cublas.CUBLAS_GEMM_DEFAULT
    handle, on_host, (first, second, one), _kept = cublas_handle(), *_scalars(alpha, beta)
    if not on_host:
        cublas.setPointerMode(handle, cublas.CUBLAS_POINTER_MODE_DEVICE)
    try:
        for in_a, in_b, k in parts:
            cublas.gemmEx(
                *(handle, *operations, m, n, k, first, start_a + in_a, *of_a),
                *(start_b + in_b, *of_b, second, *of_c),
            )
            second = one
    finally:
        if not on_host:
            cublas.setPointerMode(handle, cublas.CUBLAS_POINTER_MODE_HOST)


PLANE_PAIRS = ((1, 0), (0, 1), (0, 0))
"""(h + l)(h + l)' = lh' + hl' + hh' to FP32's accuracy, the smallest first."""


def multiply_planes(c, a, b, form, alpha, beta=1.0, columns=0):
    """C <- βC + α A B' for FP32 numbers in two planes, A (m, k, 2) and B (n, k, 2); return C.

    The planes are in a format, FP16. The units sum `columns` columns at once, all if 0. For C, α
    and β see `multiply`.
    """
    width, parts = a.shape[1], []
    for p, q in PLANE_PAIRS:
        # the small products are as exact in one sum
        step = columns if p == q and columns else width
        for start in range(0, width, step):
            in_a, in_b = (
                plane * x.strides[2] + start * x.strides[1] for plane, x in ((p, a), (q, b))
            )
            parts.append((in_a, in_b, min(step, width - start)))
    _accumulate(c, operand(a[..., 0]), operand(b[..., 0]), parts, form, alpha, beta)
    return c


def multiply_fp8(c, a, b, form, alpha):
    """C <- C + α A B' by cuBLASLt, for bits of FP8; return whether this GPU can.

    Parts of arrays are padded with zeros to multiples of 16 where necessary.
    """
    import cupy

    if not has_units(form, c.device.id):
        return False
    (m, n), k = ((size + 15) // 16 * 16 for size in c.shape), -(-a.shape[1] // 16) * 16
    inside = c.shape == (m, n) and c.data.ptr % 16 == 0 and leading(c) % 4 == 0
    a, b = _padded(a, m, k), _padded(b, n, k)
    steps = (leading(a.T), leading(b.T), leading(c) if inside else m)
    chosen = plan(form, c.device.id, m, n, k, steps, not isinstance(alpha, Real))
    if chosen is None:
        return False
    total = c if inside else cupy.zeros((m, n), np.float32, order="F")
    execute(chosen, total, a, b, alpha)
    if not inside:
        c += total[: c.shape[0], : c.shape[1]]
    return True


def _padded(a, rows, columns):
    """Return bits of FP8 as cuBLASLt takes them: unchanged, or a copy padded with zeros."""
    import cupy

    aligned = a.data.ptr % 16 == 0 and a.strides[0] % 16 == 0
    if a.shape == (rows, columns) and aligned and not by_columns(a):
        return a
    whole = cupy.zeros((rows, columns), a.dtype)
    whole[: a.shape[0], : a.shape[1]] = a
    return whole


def _scalars(alpha, beta):
    """Return whether α and β are on the host, the addresses of α, β and 1, and their owners."""
    if isinstance(alpha, Real):
        kept = c_float(alpha), c_float(beta), c_float(1.0)
        return True, tuple(map(addressof, kept)), kept
    betas = copy_on_gpu(BETAS)
    chosen = (betas.data.ptr + BETAS.itemsize * int(value) for value in (beta, 1.0))
    return False, (alpha.data.ptr, *chosen), (alpha, betas)


class _Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", c_uint64 * 8),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


@cache
def plan(form, index, m, n, k, steps=None, on_device=False):
    """Return how cuBLASLt multiplies a format on a GPU, the current one; None if it does not.

    The descriptors of the operation and of A, B and C, which live as long as the process, and the
    algorithm. C is (m, n), A (m, k) and B (n, k); A and B are stored by rows. `steps` are their
    leading dimensions where they are parts of larger arrays, whose addresses are then only assumed
    to be multiples of 16. `on_device` says whether α is a CuPy array.
    """
    if m % 16 or n % 16 or k % 16:
        return None
    operation = _created("MatmulDesc", c_int(CUBLAS_COMPUTE_32F), c_int(CUDA_R_32F))
    # Hopper multiplies A'B only, so that the k numbers of a sum follow each other
    _set("MatmulDesc", operation, TRANSPOSE_A, c_int(1))
    _set("MatmulDesc", operation, FAST_ACCUMULATION, c_int8(0))
    if on_device:
        _set("MatmulDesc", operation, POINTER_MODE, c_int(POINTERS_ON_DEVICE))
    lda, ldb, ldc = steps or (k, k, m)
    a, b = _layout(form.cuda_type, k, m, lda), _layout(form.cuda_type, k, n, ldb)
    c = _layout(CUDA_R_32F, m, n, ldc)
    preference = _created("MatmulPreference")
    _set("MatmulPreference", preference, WORKSPACE_LIMIT, c_uint64(WORKSPACE_BYTES))
    for alignment in ALIGNMENT_ATTRIBUTES if steps else ():
        _set("MatmulPreference", preference, alignment, c_uint32(16))
    chosen, count = _Heuristic(), c_int(0)
    status = _cublaslt().cublasLtMatmulAlgoGetHeuristic(
        *(c_void_p(cublas_handle()), operation, a, b, c, c, preference),
        *(c_int(1), byref(chosen), byref(count)),
    )
    if status == NOT_SUPPORTED or (not status and not count.value):
        return None
    _check(status or chosen.state)
    return operation, a, b, c, chosen


def execute(plan, c, a, b, alpha, beta=1.0):
    """C <- βC + α A B' for stored numbers, laid out as the plan says, α where it says."""
    import cupy

    operation, layout_a, layout_b, layout_c, chosen = plan
    _, addresses, _kept = _scalars(alpha, beta)
    first, second, _ = map(c_void_p, addresses)
    size = chosen.workspace
    workspace = cupy.empty(size, "u1")
    _call(
        "cublasLtMatmul",
        # a handle of cuBLAS is one of cuBLASLt
        *(c_void_p(cublas_handle()), operation),
        *(first, c_void_p(a.data.ptr), layout_a, c_void_p(b.data.ptr), layout_b),
        *(second, c_void_p(c.data.ptr), layout_c, c_void_p(c.data.ptr), layout_c),
        *(byref(chosen.algorithm), c_void_p(workspace.data.ptr), c_size_t(size)),
        c_void_p(cupy.cuda.get_current_stream().ptr),
    )
    return c


def _layout(kind, rows, columns, step):
    """Return the descriptor of a matrix in Fortran order."""
    return _created("MatrixLayout", c_int(kind), c_uint64(rows), c_uint64(columns), c_int64(step))


def _created(kind, *arguments):
    descriptor = c_void_p()
    _call(f"cublasLt{kind}Create", byref(descriptor), *arguments)
    return descriptor


def _set(kind, descriptor, attribute, value):
    size = c_size_t(ctypes.sizeof(value))
    _call(f"cublasLt{kind}SetAttribute", descriptor, c_int(attribute), byref(value), size)


def _call(name, *arguments):
    _check(getattr(_cublaslt(), name)(*arguments))


def _check(status):
    if status:
        from cupy_backends.cuda.libs.cublas import CUBLASError

        raise CUBLASError(status)


@cache
def _cublaslt():
    """Return the cuBLASLt that CuPy's cuBLAS has loaded, by its name."""
    from cupy.cuda import runtime
    from cupy_backends.cuda.libs import cublas  # noqa: F401  (loads it)

    major = runtime.runtimeGetVersion() // 1000
    name = f"cublasLt64_{major}.dll" if sys.platform == "win32" else f"libcublasLt.so.{major}"
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise MissingDevice(
            f"products of FP8 need cuBLASLt, a part of cuBLAS, which is not found: {error}."
        ) from None
