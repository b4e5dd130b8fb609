"""Cholesky's operations on tiles in their formats: gemm, trsm, potrf.

The tile that is being brought to its final value is an array, FP64 for an FP64 tile and FP32 for
all others; what it reads are `Tile`s. The arithmetic of a product is that of the coarser operand:
rounding the other one to it commits no larger an error than the first has already.
"""

import numpy as np

from ..errors import NotPositiveDefinite
from ..precision.formats import FP8, FP16, FP32, FP64, coarser
from . import blas, halves
from .matrix_units import subtract_product
from .tuning import leaf_size


def arithmetic(c, left, right):
    """Return the format in which A_ik - L_ij L_kj' is computed.

    Parameters
    ----------
    c : array
        A_ik: FP64, or FP32 for all formats below.
    left, right : Tile or Format

    Returns
    -------
    Format
        The coarser of the operands' formats; FP16 for FP8 beside a finer one, which gains nothing
        from being rounded to FP8. For an FP64 array FP64 if an operand is, and for an FP32 tile's
        square in a diagonal tile; for an FP32 array FP32 at most.
    """
    a, b = getattr(left, "form", left), getattr(right, "form", right)
    form = coarser(a, b)
    if c.dtype == np.float64 and (FP64 in (a, b) or (form is FP32 and left is right)):
        # a rounded partner is an error in Σ, which Σ⁻¹ magnifies as it does not what L stores;
        # sums of squares in FP32 are off in one direction, and the log-determinant would see it
        return FP64
    if form is FP8 and a is not b:
        form = FP16
    return coarser(form, FP32) if c.dtype == np.float32 else form


def gemm(c, pairs, form):
    """C <- C - Σ_j A_j B_j' in one arithmetic, in the order given.

    An FP32 array takes the products in FP32, one upon the other; to an FP64 array each is added in
    FP64.

    Parameters
    ----------
    c : (m, n) FP64 or FP32 array, Fortran order
        Written over; in a diagonal tile perhaps the lower triangle only.
    pairs : iterable of (Tile, Tile)
        Twice the same tile for a diagonal tile.
    form : Format

    Returns
    -------
    c
    """
    if form is FP64:
        for left, right in pairs:
            _subtract_fp64(c, left.widen(), None if left is right else right.widen())
        return c
    for left, right in pairs:
        if c.dtype == np.float32:
            c = subtract_product(c, left, right, form)
        else:
            _add(c, subtract_product(_zeros_like(c), left, right, form))
    return c


def _zeros_like(c):
    if isinstance(c, np.ndarray):
        return np.zeros(c.shape, np.float32, order="F")
    import cupy

    with c.device:
        return cupy.zeros(c.shape, np.float32, order="F")


def _add(c, total):
    if not isinstance(c, np.ndarray):
        with c.device:
            c += total
        return
    from ..precision import casts

    casts.add(c.reshape(-1, order="F"), total.reshape(-1, order="F"))


def _subtract_fp64(c, a, b):
    if not isinstance(c, np.ndarray):
        from cupy import cublas

        with c.device:
            cublas.gemm("N", "T", a, a if b is None else b, out=c, alpha=-1.0, beta=1.0)
    elif b is None:
        blas.syrk(c, a, alpha=-1.0)
    else:
        blas.gemm(c, a, b, alpha=-1.0)


def trsm(c, diagonal):
    """C <- C L⁻', in the arithmetic of C.

    Parameters
    ----------
    c : (m, n) FP64 or FP32 array, Fortran order
        Written over.
    diagonal : Tile, (n, n)
        Lower triangular, with a cast to FP32 where an FP32 array reads it.

    Returns
    -------
    c
    """
    lower = diagonal
    if c.dtype == np.float32:
        lower = diagonal.casts.get(FP32, diagonal)
    lower = lower.widen(c.dtype)
    if isinstance(c, np.ndarray):
        return blas.trsm(lower, c)
    return _trsm_on_gpu(lower, c)


def _trsm_on_gpu(lower, c):
    """Call cuBLAS, in place (cupyx solves from the left only, and in a copy)."""
    from cupy.cuda.device import get_cublas_handle
    from cupy_backends.cuda.libs import cublas

    (m, n), one = c.shape, np.ones(1, c.dtype)
    solve = cublas.strsm if c.dtype == np.float32 else cublas.dtrsm
    with c.device:
        solve(
            *(get_cublas_handle(), cublas.CUBLAS_SIDE_RIGHT, cublas.CUBLAS_FILL_MODE_LOWER),
            *(cublas.CUBLAS_OP_T, cublas.CUBLAS_DIAG_NON_UNIT, m, n, one.ctypes.data),
            *(lower.data.ptr, n, c.data.ptr, m),
        )
    return c


def potrf(a):
    """Overwrite a diagonal tile by its Cholesky factor, zeros above the diagonal.

    By halves where the tile is large. What stood above the diagonal is not looked at.

    Parameters
    ----------
    a : (n, n) FP64 or FP32 array, Fortran order

    Returns
    -------
    a

    Raises
    ------
    NotPositiveDefinite
        With the order of the first leading minor that is not positive.
    """
    if not isinstance(a, np.ndarray):
        return _potrf_on_gpu(a)
    form = FP64 if a.dtype == np.float64 else FP32
    leaf = leaf_size("potrf", len(a), (form,))
    if len(a) > leaf:
        halves.factor(halves.Triangle(a, (form,), leaf), (form,))
    info = 0 if len(a) > leaf else blas.potrf(a)
    wrong = np.flatnonzero(~np.isfinite(a.diagonal()))
    if info > 0 or wrong.size:
        order = int(min([info or len(a), *(wrong[:1] + 1)]))
        raise NotPositiveDefinite(f"the leading minor of order {order} is not positive", order)
    for j in range(1, len(a)):
        a[:j, j] = 0.0
    return a


def _potrf_on_gpu(a):
    import cupy

    from . import kernels

    with a.device:
        kernels.potrf(a)
        if not cupy.isfinite(a[-1, -1]):
            order = len(a)
            raise NotPositiveDefinite(f"the leading minor of order {order} is not positive", order)
        # no product with zeros, which would keep a NaN that stands there
        cupy.copyto(a, 0.0, where=cupy.tri(len(a), k=-1, dtype=bool).T)
    return a
