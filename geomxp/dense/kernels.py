"""Cholesky's few operations on one array, NumPy or CuPy: potrf, trsm, trmm, potri, congruence.

Matrices are FP64 in Fortran order, so that LAPACK works in place. Only the lower triangle of
a symmetric or triangular matrix is read or written; what stands above it is never looked at.
The same on tiles, in stated arithmetics: `geomxp.dense.mixed`.
"""

import numpy as np
import scipy

from ..errors import NotPositiveDefinite
from ..execution.devices import usable_cores
from ..precision.formats import FP64
from . import blas as pointers
from . import halves

LARGE = 8192
"""Above this order a factorization is by halves: OpenBLAS 0.3.30's dpotrf on two threads crashes
the process at orders 16,000, 16,300 and 16,384 (not at 15,000)."""


def potrf(a):
    """Overwrite the lower triangle of a symmetric matrix with its Cholesky factor.

    A = L L'

    Parameters
    ----------
    a : (n, n) ndarray, Fortran order

    Returns
    -------
    a

    Raises
    ------
    NotPositiveDefinite
        With the order of the first leading minor that is not positive.
    """
    if isinstance(a, np.ndarray) and len(a) > LARGE:
        with pointers.cores(usable_cores()):
            halves.factor(halves.Triangle(a, (FP64,), LARGE // 2), (FP64,))
        return a
    if isinstance(a, np.ndarray):
        factor, info = scipy.linalg.lapack.dpotrf(a, lower=1, clean=0, overwrite_a=1)
        if factor is not a and not np.shares_memory(factor, a):
            a[...] = factor
    else:
        from . import views_gpu

        most = views_gpu.LARGEST_INDEX // pointers._leading(a)
        if len(a) > most:
            # cuSOLVER cannot count its entries; smaller leaves leave less to cuBLAS's syrk
            halves.factor(halves.Triangle(a, (FP64,), min(LARGE // 4, most)), (FP64,))
            return a
        # cupy.linalg.cholesky ignores failure
        info = views_gpu.factor("L", a)
    if info > 0:
        raise NotPositiveDefinite(f"the leading minor of order {info} is not positive", order=info)
    return a


def trsm(lower, b, transposed=False):
    """Solve L x = b, or L'x = b, for a lower triangular L.

    Parameters
    ----------
    lower : (n, n) ndarray, Fortran order
    b : (n,) or (n, m) ndarray

    Returns
    -------
    ndarray, as b
    """
    trans = "T" if transposed else "N"
    if isinstance(lower, np.ndarray):
        x, info = scipy.linalg.lapack.dtrtrs(lower, b, lower=1, trans=transposed)
        if info:
            raise NotPositiveDefinite(f"diagonal entry {info} of the factor is zero", order=info)
        return x
    from cupyx.scipy.linalg import solve_triangular

    return solve_triangular(lower, b, trans=trans, lower=True)


def trmm(lower, x):
    """Multiply L x for a lower triangular L and an (n, m) array."""
    if isinstance(lower, np.ndarray):
        return scipy.linalg.blas.dtrmm(1.0, lower, x, lower=1)
    import cupy

    return cupy.tril(lower) @ x


def potri(lower):
    """Overwrite a Cholesky factor with the lower triangle of the inverse of its matrix.

    A⁻¹ = L⁻'L⁻¹

    Parameters
    ----------
    lower : (n, n) ndarray, Fortran order

    Returns
    -------
    (n, n) ndarray
        In place on the CPU.
    """
    if isinstance(lower, np.ndarray):
        inverse, info = scipy.linalg.lapack.dpotri(lower, lower=1, overwrite_c=1)
        if info:
            raise NotPositiveDefinite(f"diagonal entry {info} of the factor is zero", order=info)
        return inverse
    import cupy
    from cupyx.scipy.linalg import solve_triangular

    inverse = solve_triangular(lower, cupy.eye(len(lower), order="F"), lower=True, overwrite_b=True)
    # the transpose of a product by rows is one by columns, without a copy
    return cupy.asfortranarray((inverse.T @ inverse).T)


def inverse_gram(lower):
    """Return the lower triangle of L⁻¹L⁻ᵀ.

    Parameters
    ----------
    lower : (n, n) ndarray, Fortran order
        Not changed.

    Returns
    -------
    (n, n) ndarray, Fortran order
    """
    if not isinstance(lower, np.ndarray):
        import cupy
        from cupyx.scipy.linalg import solve_triangular

        inverse = solve_triangular(lower, cupy.eye(len(lower), order="F"), lower=True)
        return cupy.asfortranarray((inverse @ inverse.T).T)
    inverse, info = scipy.linalg.lapack.dtrtri(lower, lower=1)
    if info:
        raise NotPositiveDefinite(f"diagonal entry {info} of the factor is zero", order=info)
    # LAPACK multiplies U U': with rows and columns reversed a lower triangle is an upper one
    turned = np.asfortranarray(inverse[::-1, ::-1])
    product, _ = scipy.linalg.lapack.dlauum(turned, lower=0, overwrite_c=1)
    return np.asfortranarray(product[::-1, ::-1])


def _turned(a):
    """Return a copy with rows and columns reversed: in memory that is one row of numbers."""
    return a.reshape(-1, order="F")[::-1].copy().reshape(a.shape, order="F")


def congruence(lower, a):
    """Overwrite a symmetric matrix with L⁻¹A L⁻ᵀ.

    Parameters
    ----------
    lower : (n, n) ndarray, Fortran order
    a : (n, n) ndarray, Fortran order
        NumPy, also where L is on a GPU.

    Returns
    -------
    (n, n) ndarray, Fortran order
        Where L is; in place on the CPU.
    """
    if not isinstance(lower, np.ndarray):
        import cupy
        from cupyx.scipy.linalg import solve_triangular

        with lower.device:
            a = cupy.asarray(a)
            whole = cupy.asfortranarray(cupy.tril(a) + cupy.tril(a, -1).T)
        half = solve_triangular(lower, whole, lower=True, overwrite_b=True)
        return solve_triangular(lower, half.T, lower=True)
    result, info = scipy.linalg.lapack.dsygst(a, lower, itype=1, lower=1, overwrite_a=1)
    if info:
        raise ValueError(f"argument {-info} of dsygst")
    return result
