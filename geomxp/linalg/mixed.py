"""Cholesky's operations on tiles in their formats: gemm, trsm, potrf.

The tile that is being brought to its final value is an array, FP64 for an FP64 tile and FP32 for
all others; what it reads are `Tile`s. The arithmetic of a product is that of the coarser operand:
rounding the other one to it commits no larger an error than the first has already.
"""

import numpy as np

from ..errors import NotPositiveDefinite
from ..linalg import blas, recursive
from .device import cublas_handle
from .formats import FP8, FP16, FP32, FP64, coarser
from .products import subtract_product
from .recursive import factor_by_halves as factor
from .tuning import leaf_size

LARGEST_ON_GPU = 46_340
"""The largest order of a tile whose entries cuSOLVER counts; above, a tile is factored by halves,
and the CPU waits for the GPU."""


LARGEST_ENTRY = 2.0**0.5
"""A bound of the entries of L: tiles are scaled so that the diagonal of Σ is below 2."""


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
    pairs : iterable of (Tile, Tile) or (Tile, Tile, cupy.ndarray)
        Twice the same tile for a diagonal tile. On a GPU perhaps with the factor of their product,
        see `matrix_units_gpu.subtract_product`.
    form : Format

    Returns
    -------
    c
    """
    if form is FP64:
        for left, right, *_ in pairs:
            a = left.widen()
            _subtract_fp64(c, a, a if left is right else right.widen())
    elif c.dtype == np.float32:
        for left, right, *alpha in pairs:
            c = subtract_product(c, left, right, form, *alpha)
    else:
        (_add if isinstance(c, np.ndarray) else _add_on_gpu)(c, pairs, form)
    return c


def _add(c, pairs, form):
    """Make each product in FP32 and add it to an FP64 array."""
    from ..linalg import formats

    for left, right in pairs:
        total = np.zeros(c.shape, np.float32, order="F")
        total = subtract_product(total, left, right, form)
        formats.add(c.reshape(-1, order="F"), total.reshape(-1, order="F"))


def _add_on_gpu(c, pairs, form):
    import cupy

    from .gpu import combine
    from .products_gpu import subtract_product as multiply

    with c.device:
        total = cupy.empty(c.shape, np.float32, order="F")
        for left, right, *alpha in pairs:
            combine(c, multiply(total, left, right, form, *alpha, beta=0.0), beta=1.0)


def _subtract_fp64(c, a, b):
    if not isinstance(c, np.ndarray):
        _gemm_on_gpu(c, a, b)
    elif b is a:
        blas.syrk(c, a, alpha=-1.0)
    else:
        blas.gemm(c, a, b, alpha=-1.0)


def _gemm_on_gpu(c, a, b):
    """C <- C - A B' in FP64 by cuBLAS."""
    from cupy_backends.cuda.libs import cublas

    (m, n), k, numbers = c.shape, a.shape[1], np.array([-1.0, 1.0])
    with c.device:
        cublas.dgemm(
            *(cublas_handle(), cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_T, m, n, k),
            *(numbers.ctypes.data, a.data.ptr, m, b.data.ptr, n),
            *(numbers.ctypes.data + numbers.itemsize, c.data.ptr, m),
        )


def trsm(c, diagonal, form=FP32, triangle=None):
    """C <- C L⁻', in the arithmetic of C.

    On a GPU an FP32 array is solved by halves. Their products are in the tile's format: it is
    rounded to that in any case, and FP32 is slow there.

    Parameters
    ----------
    c : (m, n) FP64 or FP32 array, Fortran order
        Written over.
    diagonal : Tile, (n, n)
        Lower triangular, with a cast to FP32 where an FP32 array reads it.
    form : Format, optional
        Of the tile that C becomes.
    triangle : Triangle, optional
        What `solver` has made of the diagonal tile, on a GPU.

    Returns
    -------
    c
    """
    if c.dtype == np.float32 and not isinstance(c, np.ndarray):
        form = _of_products(form)
        triangle = solver(diagonal, {form}) if triangle is None else triangle
        rows = recursive.Rows(c, (form,), LARGEST_ENTRY)
        recursive.solve(triangle.read_in(form), rows, slice(0, c.shape[1]), True)
        return c
    lower = _in(c.dtype, diagonal)
    return blas.trsm(lower, c) if isinstance(c, np.ndarray) else _trsm_on_gpu(lower, c)


def solver(diagonal, forms):
    """Return a diagonal tile on a GPU as `trsm` uses it for tiles in some formats.

    Parameters
    ----------
    diagonal : Tile
    forms : iterable of Format

    Returns
    -------
    Triangle
    """
    lower = _in(np.float32, diagonal)
    leaf = leaf_size("trsm", len(lower), (FP32,), "gpu")
    triangle = recursive.Triangle(lower, (FP32,), leaf, bound=LARGEST_ENTRY)
    recursive.prepare(triangle, {_of_products(form) for form in forms})
    return triangle


def _of_products(form):
    """Return the format of products for an FP32 array that becomes a tile in a format."""
    return FP16 if form is FP8 else coarser(form, FP32)


def _in(dtype, diagonal):
    """Return the numbers of a diagonal tile in FP64 or FP32."""
    if dtype == np.float32:
        diagonal = diagonal.casts.get(FP32, diagonal)
    return diagonal.widen(dtype)


def _trsm_on_gpu(lower, c):
    """Call cuBLAS, in place (cupyx solves from the left only, and in a copy)."""
    from cupy_backends.cuda.libs import cublas

    (m, n), one = c.shape, np.ones(1, c.dtype)
    with c.device:
        cublas.dtrsm(
            *(cublas_handle(), cublas.CUBLAS_SIDE_RIGHT, cublas.CUBLAS_FILL_MODE_LOWER),
            *(cublas.CUBLAS_OP_T, cublas.CUBLAS_DIAG_NON_UNIT, m, n, one.ctypes.data),
            *(lower.data.ptr, n, c.data.ptr, m),
        )
    return c


def potrf(a, info=None):
    """Overwrite a diagonal tile by its Cholesky factor, zeros above the diagonal.

    By halves where the tile is large. What stood above the diagonal is not looked at.

    Parameters
    ----------
    a : (n, n) FP64 or FP32 array, Fortran order
    info : (1,) cupy.ndarray of int32, optional
        For a tile on a GPU: where the order of the first leading minor that is not positive is
        left, 0 if all are. Without it the CPU waits for the GPU to know.

    Returns
    -------
    a

    Raises
    ------
    NotPositiveDefinite
        With the order of the first leading minor that is not positive.
    """
    if not isinstance(a, np.ndarray):
        return _potrf_on_gpu(a, info)
    form = FP64 if a.dtype == np.float64 else FP32
    leaf = leaf_size("potrf", len(a), (form,))
    if len(a) > leaf:
        factor(recursive.Triangle(a, (form,), leaf), (form,))
    info = 0 if len(a) > leaf else blas.potrf(a)
    wrong = np.flatnonzero(~np.isfinite(a.diagonal()))
    if info > 0 or wrong.size:
        order = int(min([info or len(a), *(wrong[:1] + 1)]))
        raise NotPositiveDefinite(f"the leading minor of order {order} is not positive", order)
    for j in range(1, len(a)):
        a[:j, j] = 0.0
    return a


def _potrf_on_gpu(a, info):
    from ..linalg import gpu, recursive

    if len(a) > LARGEST_ON_GPU:
        recursive.potrf(a)
    else:
        word = gpu.info_words(a, 1) if info is None else info
        gpu.factor("L", a, word)
        if info is None and (order := int(word[0])):
            raise NotPositiveDefinite(f"the leading minor of order {order} is not positive", order)
    # no product with zeros, which would keep a NaN that stands there
    above = a[:-1, 1:].T
    gpu.combine(above, above, alpha=0.0, lower=True)
    return a
