"""Cholesky's few operations on one array, NumPy or CuPy: potrf, trsm, trmm, potri, congruence.

Matrices are FP64 in Fortran order, so that LAPACK works in place. Only the lower triangle of
a symmetric or triangular matrix is read or written; what stands above it is never looked at.
The same on tiles, in stated arithmetics: `geomxp.dense.mixed`.
"""

import numpy as np
import scipy

from ..cuda import empty_matrix
from ..errors import NotPositiveDefinite
from ..execution.devices import usable_cores
from ..precision.formats import FP64
from . import blas as pointers
from . import cholesky, halves, inverse

LARGE = 8192
"""Above this order a factorization is by halves: OpenBLAS 0.3.30's dpotrf on two threads crashes
the process at orders 16,000, 16,300 and 16,384 (not at 15,000)."""

GPU_LEAF = 2048
"""Below this order cuBLAS and cuSOLVER do a triangle on a GPU; above, halves. Not measured yet."""


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
            cholesky.factor(halves.Triangle(a, (FP64,), LARGE // 2), (FP64,))
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
            cholesky.factor(halves.Triangle(a, (FP64,), min(GPU_LEAF, most)), (FP64,))
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
    if isinstance(lower, np.ndarray):
        x, info = scipy.linalg.lapack.dtrtrs(lower, b, lower=1, trans=transposed)
        if info:
            raise NotPositiveDefinite(f"diagonal entry {info} of the factor is zero", order=info)
        return x
    # op(L) X = B is X' op(L)' = B'
    return _from_the_right(halves.solve, lower, b, not transposed)


def trmm(lower, x):
    """Multiply L x for a lower triangular L and an (n, m) array."""
    if isinstance(lower, np.ndarray):
        return scipy.linalg.blas.dtrmm(1.0, lower, x, lower=1)
    return _from_the_right(halves.multiply, lower, x, True)


def _from_the_right(work, lower, b, transposed):
    """Return a copy of an array on which a triangle has acted, on their GPU, current or not."""
    with lower.device:
        x = b.astype(lower.dtype, order="F")
    rows = halves.Rows(x.reshape(len(x), -1, order="F").T, ())
    work(_by_halves(lower), rows, slice(0, len(lower)), transposed)
    return x


def _by_halves(lower):
    """Return a triangle on a GPU as the recursions want it."""
    return halves.Triangle(lower, (FP64,), GPU_LEAF)


def potri(lower):
    """Overwrite a Cholesky factor with the lower triangle of the inverse of its matrix.

    A⁻¹ = L⁻'L⁻¹

    Parameters
    ----------
    lower : (n, n) ndarray, Fortran order

    Returns
    -------
    lower
        On a GPU, too, nothing of its size stands beside it.
    """
    if isinstance(lower, np.ndarray):
        inverted, info = scipy.linalg.lapack.dpotri(lower, lower=1, overwrite_c=1)
        if info:
            raise NotPositiveDefinite(f"diagonal entry {info} of the factor is zero", order=info)
        return inverted
    triangle = _by_halves(lower)
    inverse.invert(triangle)
    inverse.gram(triangle)
    return lower


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
        inverted = empty_matrix(len(lower), lower.device.id)
        with lower.device:
            inverted[...] = lower
        triangle = _by_halves(inverted)
        inverse.invert(triangle)
        inverse.outer(triangle)
        return triangle.a
    inverted, info = scipy.linalg.lapack.dtrtri(lower, lower=1)
    if info:
        raise NotPositiveDefinite(f"diagonal entry {info} of the factor is zero", order=info)
    # LAPACK multiplies U U': with rows and columns reversed a lower triangle is an upper one
    turned = np.asfortranarray(inverted[::-1, ::-1])
    product, _ = scipy.linalg.lapack.dlauum(turned, lower=0, overwrite_c=1)
    return np.asfortranarray(product[::-1, ::-1])


def congruence(lower, a):
    """Overwrite a symmetric matrix with L⁻¹A L⁻ᵀ.

    Parameters
    ----------
    lower : (n, n) NumPy or CuPy array, Fortran order
    a : (n, n) array of its kind, Fortran order
        On a GPU its upper triangle is written over as well.

    Returns
    -------
    a
    """
    if not isinstance(lower, np.ndarray):
        _mirror(a)
        inverse.congruence(_by_halves(lower), a)
        return a
    result, info = scipy.linalg.lapack.dsygst(a, lower, itype=1, lower=1, overwrite_a=1)
    if info:
        raise ValueError(f"argument {-info} of dsygst")
    return result


def _mirror(a):
    """Write the upper triangle of a matrix on a GPU from the lower one."""
    import cupy

    with a.device:
        for first in range(0, len(a), GPU_LEAF):
            last = min(first + GPU_LEAF, len(a))
            corner = a[first:last, first:last]
            cupy.copyto(corner, corner.T.copy(), where=cupy.tri(len(corner), dtype=bool).T)
            a[first:last, last:] = a[last:, first:last].T
