"""BLAS on parts of arrays in any layout, NumPy or CuPy: what the recursions end in.

A view has unit stride along its rows or along its columns; its transpose is the same memory seen
the other way, so that row- and column-major, left and right, upper and lower are one case each.
"""

import numpy as np

from ..linalg import blas


def by_columns(a):
    """Return whether a 2-D array has unit stride down its columns (Fortran), else along its rows.

    Raises
    ------
    ValueError
        If neither; the callers copy such arrays first.
    """
    if not a.size:
        return bool(a.flags.f_contiguous)
    if any(stride % a.itemsize for stride in a.strides):
        raise ValueError("neither rows nor columns are contiguous: a field of records")
    rows, columns = (stride // a.itemsize for stride in a.strides)
    if (rows == 1 or a.shape[0] <= 1) and (columns >= max(1, a.shape[0]) or a.shape[1] <= 1):
        return True
    if (columns == 1 or a.shape[1] <= 1) and (rows >= max(1, a.shape[1]) or a.shape[0] <= 1):
        return False
    raise ValueError("neither rows nor columns are contiguous")


def contiguous(a):
    """Return whether `by_columns` has an answer."""
    try:
        by_columns(a)
    except ValueError:
        return False
    return True


def gemm(c, a, b, alpha=1.0, beta=1.0):
    """C <- αAB + βC for FP64 or FP32 views of one type.

    Parameters
    ----------
    c : (m, n) view
    a : (m, k) view
    b : (k, n) view
    alpha, beta : float

    Returns
    -------
    c
    """
    if not c.size or not (a.size or beta != 1.0):
        return c
    if not by_columns(c):
        gemm(c.T, b.T, a.T, alpha, beta)
        return c
    trans_a, a = ("N", a) if by_columns(a) else ("T", a.T)
    trans_b, b = ("N", b) if by_columns(b) else ("T", b.T)
    if isinstance(c, np.ndarray):
        blas.gemm(c, a, b, alpha, beta, trans_a, trans_b)
    else:
        from ..linalg import gpu

        gpu.gemm(c, a, b, alpha, beta, trans_a, trans_b)
    return c


def solve(lower, b, transposed, unit=False):
    """B <- B T⁻¹, or B T'⁻¹, for the lower triangle T of a view.

    Parameters
    ----------
    lower : (n, n) view
    b : (m, n) view
    transposed : bool
    unit : bool
        Take the diagonal for ones.

    Returns
    -------
    b
    """
    return _triangular("trsm", lower, b, transposed, unit)


def multiply(lower, b, transposed, unit=False):
    """B <- B T, or B T'; see `solve`."""
    return _triangular("trmm", lower, b, transposed, unit)


def _triangular(name, lower, b, transposed, unit):
    if not b.size:
        return b
    side, trans = "R", transposed
    target = b
    if not by_columns(b):
        # B T = (T'B')'
        side, trans, target = "L", not transposed, b.T
    uplo = "L"
    if not by_columns(lower):
        uplo, lower, trans = "U", lower.T, not trans
    letters = (side, uplo, "T" if trans else "N", "U" if unit else "N")
    if isinstance(b, np.ndarray):
        blas.triangular(name, *letters, lower, target)
    else:
        from ..linalg import gpu

        gpu.triangular(name, *letters, lower, target)
    return b


def syrk(c, a, alpha, beta):
    """Lower triangle of C <- αAA' + βC for FP64 or FP32 views of one type.

    Parameters
    ----------
    c : (n, n) view
    a : (n, k) view
    alpha, beta : float

    Returns
    -------
    c
    """
    if not c.size:
        return c
    uplo, target = ("L", c) if by_columns(c) else ("U", c.T)
    trans, a = ("N", a) if by_columns(a) else ("T", a.T)
    if isinstance(c, np.ndarray):
        blas.rank_k(uplo, trans, target, a, alpha, beta)
    else:
        from ..linalg import gpu

        gpu.rank_k(uplo, trans, target, a, alpha, beta)
    return c


def potrf(a, info=None):
    """Overwrite the lower triangle of a view with its Cholesky factor; return LAPACK's info.

    Parameters
    ----------
    a : (n, n) view
    info : array, optional
        On a GPU, where the info word is left instead; see `views_gpu.factor`.
    """
    uplo, target = ("L", a) if by_columns(a) else ("U", a.T)
    if isinstance(a, np.ndarray):
        return blas.factor(uplo, target)
    from ..linalg import gpu

    return gpu.factor(uplo, target, info)
