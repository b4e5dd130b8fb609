"""Products of low-precision tiles on a GPU's matrix units, with FP32 accumulation.

The numbers are those of `geomxp.dense.matrix_units`; the sums are the GPU's own. cuBLAS multiplies
all formats but FP8, and cuBLASLt that, on GPUs that can. CuPy has no binding of cuBLASLt: here are
the few calls of its C interface, with the numbers of cublasLt.h.
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
from dataclasses import dataclass
from functools import cache

from ..errors import MissingDevice
from ..precision.formats import BF16, FP8, FP16, FP32, TF32, coarser
from ..precision.quantize import Tile
from ..precision.quantize_on_gpu import fp8_as_fp16
from . import blas, matrix_units

TYPES = {FP32: 0, TF32: 0, FP16: 2, BF16: 14, FP8: 28}
"""CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF, CUDA_R_8F_E4M3."""

IN_FP32, IN_TF32 = 68, 77
"""CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32."""

TRANSPOSE_A, FAST_ACCUMULATION = 3, 25
"""CUBLASLT_MATMUL_DESC_TRANSA, CUBLASLT_MATMUL_DESC_FAST_ACCUM."""

MOST_WORKSPACE, WORKSPACE_BYTES = 1, 2**25
"""CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, and the 32 MiB that cuBLAS advises for Hopper."""

ALIGNMENTS = (5, 6, 7, 8)
"""CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_{A, B, C, D}_BYTES; 256 where they are not set."""

FP8_SINCE = 89
"""Compute capability of the first GPUs with units for FP8, without its point."""

NOT_SUPPORTED = 15
"""CUBLAS_STATUS_NOT_SUPPORTED."""


def subtract_product(c, left, right, form):
    """C <- C - A B' in a format's arithmetic: its numbers, multiplied exactly, summed in FP32.

    FP8 is multiplied as FP8 where both tiles are, all dimensions are multiples of 16 and the GPU
    has units for it; elsewhere as FP16, which holds its numbers.

    Parameters
    ----------
    c : (m, n) FP32 cupy.ndarray, Fortran order
        Written over.
    left : Tile, (m, k)
    right : Tile, (n, k)
    form : Format
        FP32 or coarser.

    Returns
    -------
    c

    Raises
    ------
    MissingDevice
        If FP8 is multiplied and cuBLASLt, a part of cuBLAS, is not found.

    Notes
    -----
    Hopper's units add groups of FP8 products with about 14 bits before they go to FP32: DeepSeek-V3
    Technical Report (arXiv 2412.19437), section 3.3.2. That is still far below FP8's own rounding.
    """
    with c.device:
        if form is FP8 and left.form is right.form is FP8:
            plan = _plan(c.device.id, *c.shape, left.shape[1])
            if plan is not None:
                return _by_plan(plan, c, left, right)
        form = FP16 if form is FP8 else form
        return _gemm(c, operand(left, form), operand(right, form))


def operands(tile, partners):
    """Return what each product with a coarser partner would make of a tile, to be made once.

    To find a power of two the CPU waits for the GPU, and units for FP8 want rows: beside a product
    that is long.

    Parameters
    ----------
    tile : Tile
        Final, of CuPy arrays.
    partners : set of Format
        Of the tiles that it is multiplied with.

    Returns
    -------
    dict of Format to Tile
        The same numbers in coarser formats; of FP8 those stored by rows, where units want them.
    """
    device = tile.values.device
    with device:
        if tile.form is FP8:
            wanted = FP8 in partners and int(device.compute_capability) >= FP8_SINCE
            if not wanted or any(size % 16 for size in tile.shape):
                return {}
            return {FP8: Tile(FP8, tile.values.copy(order="C"), tile.exponent)}
        coarse = {form for form in partners if coarser(form, tile.form) is not tile.form}
        # beside a finer tile FP8 is multiplied as FP16
        wanted = {FP16 if form is FP8 else form for form in coarse} - {tile.form}
        return {form: operand(tile, form) for form in wanted}


def operand(tile, form):
    """Return a tile's numbers in the format of an arithmetic; see `matrix_units.operand`."""
    if tile.form is FP8 and form is FP16:
        return fp8_as_fp16(tile)
    return matrix_units.operand(tile, form)


def _gemm(c, a, b):
    """C <- C - A B', A and B in one format."""
    return multiply(c, a.values, b.values, a.form, _factor(a, b), "N", "T")


def multiply(c, a, b, form, alpha, trans_a, trans_b):
    """C <- C + α op(A) op(B) by cuBLAS: numbers of one format but FP8, summed in FP32.

    Parameters
    ----------
    c : (m, n) FP32 cupy.ndarray
    a, b : cupy.ndarray
        Numbers of the format, or their bits; all three with contiguous columns.
    form : Format
    alpha : float
    trans_a, trans_b : {"N", "T"}

    Returns
    -------
    c
    """
    from cupy.cuda.device import get_cublas_handle
    from cupy_backends.cuda.libs import cublas

    (m, n), k = c.shape, a.shape[trans_a == "N"]
    real, one = c_float(alpha), c_float(1.0)
    operation = {"N": cublas.CUBLAS_OP_N, "T": cublas.CUBLAS_OP_T}
    cublas.gemmEx(
        *(get_cublas_handle(), operation[trans_a], operation[trans_b], m, n, k),
        *(addressof(real), a.data.ptr, TYPES[form], blas._leading(a)),
        *(b.data.ptr, TYPES[form], blas._leading(b)),
        *(addressof(one), c.data.ptr, TYPES[FP32], blas._leading(c)),
        *(IN_TF32 if form is TF32 else IN_FP32, cublas.CUBLAS_GEMM_DEFAULT),
    )
    return c


def _factor(a, b):
    """Return α of C <- C + αAB', for tiles with exponents."""
    return -(2.0 ** -(a.exponent + b.exponent))


class _Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", c_uint64 * 8),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


@dataclass(frozen=True)
class _Plan:
    """How cuBLASLt multiplies FP8 tiles of one shape; its descriptors live as long as we do."""

    operation: c_void_p
    a: c_void_p
    b: c_void_p
    c: c_void_p
    chosen: _Heuristic


@cache
def _plan(index, m, n, k, leading=None):
    """Return the plan for a shape on a GPU, which is the current one; None if it has none.

    A and B are stored by rows. `leading` holds the leading dimensions of A, B and C where they are
    parts of larger arrays, of which only multiples of 16 bytes are then asked.
    """
    from cupy.cuda.device import get_cublas_handle

    if m % 16 or n % 16 or k % 16:
        return None
    operation = _created("MatmulDesc", c_int(IN_FP32), c_int(TYPES[FP32]))
    # Hopper multiplies A'B only, so that the k numbers of a sum follow each other
    _set("MatmulDesc", operation, TRANSPOSE_A, c_int(1))
    _set("MatmulDesc", operation, FAST_ACCUMULATION, c_int8(0))
    lda, ldb, ldc = leading or (k, k, m)
    a, b, c = _layout(FP8, k, m, lda), _layout(FP8, k, n, ldb), _layout(FP32, m, n, ldc)
    preference = _created("MatmulPreference")
    _set("MatmulPreference", preference, MOST_WORKSPACE, c_uint64(WORKSPACE_BYTES))
    for alignment in ALIGNMENTS if leading else ():
        _set("MatmulPreference", preference, alignment, c_uint32(16))
    chosen, count = _Heuristic(), c_int(0)
    status = _cublaslt().cublasLtMatmulAlgoGetHeuristic(
        *(c_void_p(get_cublas_handle()), operation, a, b, c, c, preference),
        *(c_int(1), byref(chosen), byref(count)),
    )
    if status == NOT_SUPPORTED or (not status and not count.value):
        return None
    _check(status or chosen.state)
    return _Plan(operation, a, b, c, chosen)


def _by_plan(plan, c, left, right):
    """C <- C - A B' for FP8 tiles."""
    a = _by_rows(left)
    b = a if right is left else _by_rows(right)
    return _execute(plan, c, a, b, _factor(left, right))


def _by_rows(tile):
    """Return the bits of an FP8 tile as the plan wants them, made here where nobody kept them."""
    kept = tile.casts.get(FP8)
    return tile.values.copy(order="C") if kept is None else kept.values


def _execute(plan, c, a, b, alpha):
    """C <- C + α A B' for bits of FP8, stored as the plan says."""
    import cupy
    from cupy.cuda.device import get_cublas_handle

    real, one = c_float(alpha), c_float(1.0)
    size = plan.chosen.workspace
    workspace = cupy.empty(size, "u1")
    _call(
        "cublasLtMatmul",
        # a handle of cuBLAS is one of cuBLASLt
        *(c_void_p(get_cublas_handle()), plan.operation),
        *(byref(real), c_void_p(a.data.ptr), plan.a, c_void_p(b.data.ptr), plan.b),
        *(byref(one), c_void_p(c.data.ptr), plan.c, c_void_p(c.data.ptr), plan.c),
        *(byref(plan.chosen.algorithm), c_void_p(workspace.data.ptr), c_size_t(size)),
        c_void_p(cupy.cuda.get_current_stream().ptr),
    )
    return c


def _layout(form, rows, columns, leading):
    """Return the descriptor of a matrix in Fortran order."""
    return _created(
        "MatrixLayout", c_int(TYPES[form]), c_uint64(rows), c_uint64(columns), c_int64(leading)
    )


def _created(what, *arguments):
    """Return a new descriptor."""
    descriptor = c_void_p()
    _call(f"cublasLt{what}Create", byref(descriptor), *arguments)
    return descriptor


def _set(what, descriptor, attribute, value):
    """Set an attribute of a descriptor."""
    size = c_size_t(ctypes.sizeof(value))
    _call(f"cublasLt{what}SetAttribute", descriptor, c_int(attribute), byref(value), size)


def _call(name, *arguments):
    _check(getattr(_cublaslt(), name)(*arguments))


def _check(status):
    if status:
        from cupy_backends.cuda.libs.cublas import CUBLASError

        raise CUBLASError(status)


@cache
def _cublaslt():
    """Return the cuBLASLt that CuPy's cuBLAS has loaded, found by its name."""
    from cupy.cuda import runtime
    from cupy_backends.cuda.libs import cublas  # noqa: F401  (loads it)

    major = runtime.runtimeGetVersion() // 1000
    name = f"cublasLt64_{major}.dll" if sys.platform == "win32" else f"libcublasLt.so.{major}"
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise MissingDevice(
            f"products of FP8 tiles need cuBLASLt beside cuBLAS: {error}."
        ) from None
