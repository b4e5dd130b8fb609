"""Products of low-precision tiles on a GPU's matrix units, with FP32 accumulation.

The numbers are those of `geomxp.linalg.products`; the sums are the GPU's own. cuBLAS multiplies
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
from numbers import Real

import numpy as np

from ..errors import MissingDevice
from ..linalg import blas
from .device import copy_on_gpu, cublas_handle
from .formats import BF16, FP8, FP16, FP32, TF32, Tile, coarser
from .formats_gpu import cast, factors, fp8_as_fp16, quantize

TYPES = {FP32: 0, TF32: 0, FP16: 2, BF16: 14, FP8: 28}
"""CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF, CUDA_R_8F_E4M3."""

IN_FP32, IN_TF32 = 68, 77
"""CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32."""

POINTER_MODE, TRANSPOSE_A, FAST_ACCUMULATION = 2, 3, 25
"""CUBLASLT_MATMUL_DESC_POINTER_MODE, _TRANSA and _FAST_ACCUM."""

ON_DEVICE = 1
"""CUBLASLT_POINTER_MODE_DEVICE."""

BETAS = np.array([0.0, 1.0], np.float32)
"""Where α is on a GPU, β must be there as well."""

MOST_WORKSPACE, WORKSPACE_BYTES = 1, 2**25
"""CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, and the 32 MiB that cuBLAS advises for Hopper."""

ALIGNMENTS = (5, 6, 7, 8)
"""CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_{A, B, C, D}_BYTES; 256 where they are not set."""

FP8_SINCE = 89
"""Compute capability of the first GPUs with units for FP8, without its point."""

NOT_SUPPORTED = 15
"""CUBLAS_STATUS_NOT_SUPPORTED."""


def subtract_product(c, left, right, form, alpha=None, beta=1.0):
    """C <- βC - A B' in a format's arithmetic: its numbers, multiplied exactly, summed in FP32.

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
    alpha : (2,) cupy.ndarray of FP32, optional
        -2^-(e + f) for the tiles' own exponents e and f, and for those of their numbers as FP16,
        where both are on the GPU; see `Exponents`. Computed here if not given.
    beta : {0.0, 1.0}
        For 0, C is not read.

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
    own, as_fp16 = (None, None) if alpha is None else (alpha[:1], alpha[1:])
    with c.device:
        if form is FP8 and left.form is right.form is FP8:
            scale = _factor(left, right, own)
            about = c.device.id, *c.shape, left.shape[1]
            plan = _plan(*about, on_device=not isinstance(scale, float))
            if plan is not None:
                a = _by_rows(left)
                return _execute(plan, c, a, a if right is left else _by_rows(right), scale, beta)
        form = FP16 if form is FP8 else form
        a, b = operand(left, form), operand(right, form)
        scale = _factor(a, b, as_fp16)
        trans_a, a = _columns(a.values)
        trans_b, b = _columns(b.values)
        return multiply(c, a, b, form, scale, trans_a, "NT"[trans_b == "N"], beta)


def stands_by_rows(tile_form, shape, partners, index):
    """Return whether a final tile is stored in C order, as units for FP8 need it.

    Parameters
    ----------
    tile_form : Format
    shape : (int, int)
    partners : set of Format
        Of the tiles that it is multiplied with.
    index : int
        Number of the GPU.
    """
    return (
        tile_form is FP8
        and FP8 in partners
        and not any(size % 16 for size in shape)
        and _has_units_for_fp8(index)
    )


@cache
def _has_units_for_fp8(index):
    import cupy

    return int(cupy.cuda.Device(index).compute_capability) >= FP8_SINCE


def cast_formats(tile_form, partners):
    """Return the coarser formats in which a tile is multiplied with its partners.

    Parameters
    ----------
    tile_form : Format
    partners : set of Format
        Of the tiles that it is multiplied with.
    """
    coarse = {form for form in partners if coarser(form, tile_form) is not tile_form}
    # beside a finer tile FP8 is multiplied as FP16
    return {FP16 if form is FP8 else form for form in coarse} - {tile_form}


def operand(tile, form):
    """Return a tile's numbers in the format of an arithmetic; see `matrix_units.operand`."""
    if tile.form is FP8 and form is FP16:
        return fp8_as_fp16(tile)
    if tile.form is form:
        return tile
    tile = tile.casts.get(form) or tile.casts.get(FP32, tile)
    if tile.form is form:
        return tile
    wide = tile.widen(np.float32)
    if form is FP32:
        return Tile(FP32, wide)
    # the CPU waits for the GPU only for formats with exponents
    return cast(wide, form) if form.top is None else quantize(wide, form)


def _columns(values):
    """Return an operand with contiguous columns, and how it is then multiplied: "N" or "T"."""
    return ("N", values) if values.flags.f_contiguous else ("T", values.T)


def multiply(c, a, b, form, alpha, trans_a, trans_b, beta=1.0):
    """C <- βC + α op(A) op(B) by cuBLAS: numbers of one format but FP8, summed in FP32.

    Parameters
    ----------
    c : (m, n) FP32 cupy.ndarray
    a, b : cupy.ndarray
        Numbers of the format, or their bits; all three with contiguous columns.
    form : Format
    alpha : float or (1,) cupy.ndarray of FP32
    trans_a, trans_b : {"N", "T"}
    beta : {0.0, 1.0}

    Returns
    -------
    c
    """
    from cupy_backends.cuda.libs import cublas

    (m, n), k = c.shape, a.shape[trans_a == "N"]
    operation = {"N": cublas.CUBLAS_OP_N, "T": cublas.CUBLAS_OP_T}
    handle, on_host, (first, second), _kept = cublas_handle(), *_scalars(alpha, beta)
    if not on_host:
        cublas.setPointerMode(handle, cublas.CUBLAS_POINTER_MODE_DEVICE)
    try:
        cublas.gemmEx(
            *(handle, operation[trans_a], operation[trans_b], m, n, k),
            *(first, a.data.ptr, TYPES[form], blas._leading(a)),
            *(b.data.ptr, TYPES[form], blas._leading(b)),
            *(second, c.data.ptr, TYPES[FP32], blas._leading(c)),
            *(IN_TF32 if form is TF32 else IN_FP32, cublas.CUBLAS_GEMM_DEFAULT),
        )
    finally:
        if not on_host:
            cublas.setPointerMode(handle, cublas.CUBLAS_POINTER_MODE_HOST)
    return c


def _scalars(alpha, beta):
    """Return whether α and β are on the host, their addresses, and what keeps them alive."""
    if isinstance(alpha, Real):
        kept = c_float(alpha), c_float(beta)
        return True, tuple(map(addressof, kept)), kept
    betas = copy_on_gpu(BETAS)
    return False, (alpha.data.ptr, betas.data.ptr + BETAS.itemsize * int(beta)), (alpha, betas)


def _factor(a, b, known=None):
    """Return α of C <- C + αAB' for tiles with exponents, on the GPU where one of them is there.

    It is `known`, if given, where both exponents are on the GPU.
    """
    there = [not isinstance(tile.exponent, int) for tile in (a, b)]
    if not any(there):
        return -(2.0 ** -(a.exponent + b.exponent))
    if all(there) and known is not None:
        return known
    return factors(_first(a), _first(b), -1.0)


def _first(tile):
    """Return a tile's own exponent on its GPU."""
    if isinstance(tile.exponent, int):
        import cupy

        return cupy.full(1, tile.exponent, np.int32)
    return tile.exponent[:1]


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
    """How cuBLASLt multiplies FP8 tiles of one shape; descriptors live as long as the process."""

    operation: c_void_p
    a: c_void_p
    b: c_void_p
    c: c_void_p
    chosen: _Heuristic


@cache
def _plan(index, m, n, k, leading=None, on_device=False):
    """Return the plan for a shape on a GPU, which is the current one; None if it has none.

    A and B are stored by rows. `leading` holds the leading dimensions of A, B and C where they are
    parts of larger arrays, of which only multiples of 16 bytes are then asked. With `on_device` α
    is a CuPy array.
    """
    if m % 16 or n % 16 or k % 16:
        return None
    operation = _created("MatmulDesc", c_int(IN_FP32), c_int(TYPES[FP32]))
    # Hopper multiplies A'B only, so that the k numbers of a sum follow each other
    _set("MatmulDesc", operation, TRANSPOSE_A, c_int(1))
    _set("MatmulDesc", operation, FAST_ACCUMULATION, c_int8(0))
    if on_device:
        _set("MatmulDesc", operation, POINTER_MODE, c_int(ON_DEVICE))
    lda, ldb, ldc = leading or (k, k, m)
    a, b, c = _layout(FP8, k, m, lda), _layout(FP8, k, n, ldb), _layout(FP32, m, n, ldc)
    preference = _created("MatmulPreference")
    _set("MatmulPreference", preference, MOST_WORKSPACE, c_uint64(WORKSPACE_BYTES))
    for alignment in ALIGNMENTS if leading else ():
        _set("MatmulPreference", preference, alignment, c_uint32(16))
    chosen, count = _Heuristic(), c_int(0)
    status = _cublaslt().cublasLtMatmulAlgoGetHeuristic(
        *(c_void_p(cublas_handle()), operation, a, b, c, c, preference),
        *(c_int(1), byref(chosen), byref(count)),
    )
    if status == NOT_SUPPORTED or (not status and not count.value):
        return None
    _check(status or chosen.state)
    return _Plan(operation, a, b, c, chosen)


def _by_rows(tile):
    """Return the bits of an FP8 tile as the plan wants them: as they are, or copied."""
    values = tile.values
    return values if values.flags.c_contiguous else values.copy(order="C")


def _execute(plan, c, a, b, alpha, beta=1.0):
    """C <- βC + α A B' for bits of FP8, stored as the plan says, α where it says."""
    import cupy

    _, addresses, _kept = _scalars(alpha, beta)
    first, second = map(c_void_p, addresses)
    size = plan.chosen.workspace
    workspace = cupy.empty(size, "u1")
    _call(
        "cublasLtMatmul",
        # a handle of cuBLAS is one of cuBLASLt
        *(c_void_p(cublas_handle()), plan.operation),
        *(first, c_void_p(a.data.ptr), plan.a, c_void_p(b.data.ptr), plan.b),
        *(second, c_void_p(c.data.ptr), plan.c, c_void_p(c.data.ptr), plan.c),
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
