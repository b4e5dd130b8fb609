"""cuSOLVER's Cholesky factorization by addresses, with CuPy's argument lists."""

import ctypes

import numpy as np
import scipy.linalg.lapack
from cuda_emulator import machine
from cuda_emulator.machine import operand

from .cublas import CUBLAS_FILL_MODE_LOWER, INT, LIBRARIES, TYPES, _integers


def _check(handle, n, lda):
    machine.check_handle(handle, "cusolver")
    _integers(n, lda)
    if n * lda > INT:
        machine.fault(f"cuSOLVER's potrf counts {n} columns of {lda} entries with 32 bits")


def _buffer_size(handle, uplo, n, a, lda):
    _check(handle, n, lda)
    return max(1, n)


dpotrf_bufferSize = spotrf_bufferSize = _buffer_size


def _enqueue(name, uplo, n, a, lda, dtype, workspace, size, info):
    """Enqueue a factorization, with a workspace of `size` entries of the matrix's type."""
    factor = getattr(scipy.linalg.lapack, name)
    lower = uplo == CUBLAS_FILL_MODE_LOWER

    def work(a, workspace, info):
        mask = np.tri(n, dtype=bool)
        mask = mask if lower else mask.T
        if not np.isfinite(a[mask]).all():
            # cuSOLVER promises nothing for NaN: at worst it continues, and info is 0
            a[mask], info[0, 0] = np.nan, 0
            return
        found, order = factor(np.array(a, order="F"), lower=lower, clean=0)
        np.copyto(a, found, where=mask)
        info[0, 0] = order

    operands = (
        operand(a, n, n, lda, dtype, "A"),
        operand(workspace, size, 1, size, dtype, "workspace"),
        operand(info, 1, 1, 1, np.int32, "info"),
    )
    machine.library_call(name, work, operands)


def _potrf(name, dtype):
    def potrf(handle, uplo, n, a, lda, workspace, size, info):
        _check(handle, n, lda)
        if size < max(1, n):
            machine.fault(f"{name}: the workspace has {size} entries, and {n} are needed")
        _enqueue(name, uplo, n, a, lda, dtype, workspace, size, info)

    return potrf


dpotrf, spotrf = _potrf("dpotrf", np.float64), _potrf("spotrf", np.float32)


def _potrf_batched(name, dtype):
    factor = getattr(scipy.linalg.lapack, name)

    def potrf(handle, uplo, n, addresses, lda, info, batch):
        """Factor matrices whose addresses are read from device memory."""
        _check(handle, n, lda)

        def work(addresses, info):
            lower = uplo == CUBLAS_FILL_MODE_LOWER
            mask = np.tri(n, dtype=bool) if lower else np.tri(n, dtype=bool).T
            for k, address in enumerate(addresses[:, 0]):
                matrix = operand(int(address), n, n, lda, dtype, f"matrix {k}")[0]()
                found, info[k, 0] = factor(np.array(matrix, order="F"), lower=lower, clean=0)
                np.copyto(matrix, found, where=mask)

        operands = (
            operand(addresses, batch, 1, batch, np.uint64, "the addresses"),
            operand(info, batch, 1, batch, np.int32, "info"),
        )
        machine.library_call(f"{name}Batched", work, operands)

    return potrf


dpotrfBatched = _potrf_batched("dpotrf", np.float64)
spotrfBatched = _potrf_batched("spotrf", np.float32)


def setStream(handle, stream):
    """Do nothing: CuPy's calls take the current stream."""


class Cusolver:
    """cuSOLVER's C interface with 64-bit sizes, of which CuPy has no binding."""

    def cusolverDnCreateParams(self, params):
        ctypes.cast(params, ctypes.POINTER(ctypes.c_void_p))[0] = 1
        return 0

    def cusolverDnDestroyParams(self, params):
        return 0

    def cusolverDnXpotrf_bufferSize(
        self, handle, params, uplo, n, kind, a, lda, compute, device, host
    ):
        machine.check_handle(handle.value, "cusolver")
        sizes = (ctypes.cast(x, ctypes.POINTER(ctypes.c_size_t)) for x in (device, host))
        for size, value in zip(
            sizes, (max(1, n.value) * TYPES[kind.value].itemsize, 64), strict=True
        ):
            size[0] = value
        return 0

    def cusolverDnXpotrf(
        self, handle, params, uplo, n, kind, a, lda, compute, work, size, host, host_size, info
    ):
        machine.check_handle(handle.value, "cusolver")
        dtype = TYPES[kind.value]
        entries = size.value // dtype.itemsize
        if entries < max(1, n.value) or host_size.value < 64 or kind.value != compute.value:
            return 7
        name = "dpotrf" if dtype == np.float64 else "spotrf"
        _enqueue(
            name, uplo.value, n.value, a.value, lda.value, dtype, work.value, entries, info.value
        )
        return 0


LIBRARIES["libcusolver.so"] = Cusolver()
