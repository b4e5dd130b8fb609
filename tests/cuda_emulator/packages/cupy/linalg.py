"""CuPy's dense linear algebra, as far as geomxp uses it."""

import numpy as np
import scipy.linalg
from cuda_emulator import arrays, machine


def cholesky(a):
    """Return the lower Cholesky factors of matrices, without an error for an indefinite one.

    Like CuPy it ignores cuSOLVER's info words.
    """
    if a.dtype not in (np.float32, np.float64):
        raise TypeError(f"the emulator's cholesky takes FP32 and FP64. Got {a.dtype}")
    out = a.astype(a.dtype, order="C")
    target = out._a.reshape(-1, *a.shape[-2:])

    def work():
        potrf = scipy.linalg.get_lapack_funcs("potrf", (target,))
        for k, matrix in enumerate(target):
            target[k] = potrf(matrix, lower=1, clean=1)[0]

    machine.count("library calls")
    arrays.launch("potrfBatched" if a.ndim > 2 else "potrf", work, out)
    return out
