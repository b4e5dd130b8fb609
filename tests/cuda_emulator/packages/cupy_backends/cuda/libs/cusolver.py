"""cuSOLVER's Cholesky factorization by addresses, with CuPy's argument lists."""

import numpy as np
import scipy.linalg.lapack
from cuda_emulator import machine
from cuda_emulator.machine import operand

from .cublas import CUBLAS_FILL_MODE_LOWER, INT, _integers


def _check(handle, n, lda):
    machine.check_handle(handle, "cusolver")
    _integers(n, lda)
    if n * lda > INT:
        machine.fault(f"cuSOLVER's potrf counts {n} columns of {lda} entries with 32 bits")


def _buffer_size(handle, uplo, n, a, lda):
    _check(handle, n, lda)
    return max(1, n)


dpotrf_bufferSize = spotrf_bufferSize = _buffer_size


def _potrf(name, dtype):
    factor = getattr(scipy.linalg.lapack, name)

    def potrf(handle, uplo, n, a, lda, workspace, size, info):
        _check(handle, n, lda)
        if size < max(1, n):
            machine.fault(f"{name}: the workspace has {size} entries of {n}")

        def work(a, workspace, info):
            lower = uplo == CUBLAS_FILL_MODE_LOWER
            mask = np.tri(n, dtype=bool)
            mask = mask if lower else mask.T
            if not np.isfinite(a[mask]).all():
                # cuSOLVER promises nothing of NaN: at worst it goes on, and says 0
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

    return potrf


dpotrf, spotrf = _potrf("dpotrf", np.float64), _potrf("spotrf", np.float32)


def setStream(handle, stream):
    """Do nothing: CuPy's calls take the current stream."""
