"""Loops over the lower triangle of a symmetric matrix, compiled by numba."""

from numba import njit


@njit(nogil=True, cache=True)
def scaled(a, top, left, scale, multiple, out, diagonal):
    """Write multiple · a_ij / (s_i s_j) of a block; a diagonal one from its lower triangle.

    Parameters
    ----------
    a : (n, n) ndarray, Fortran order
    top, left : int
        Where the block begins.
    scale : (n,) ndarray
    multiple : float
    out : (p, q) ndarray of FP64 or FP32, Fortran order
        Written over.
    diagonal : bool
    """
    for j in range(out.shape[1]):
        factor = multiple / scale[left + j]
        for i in range(j if diagonal else 0, out.shape[0]):
            value = a[top + i, left + j] / scale[top + i] * factor
            out[i, j] = value
            if diagonal:
                out[j, i] = value


@njit(nogil=True, cache=True)
def row_sums(a, first, last, scale, sums):
    """Add |a_ij| / (s_i s_j), and |a_ij|, to the sums of both their rows, for some columns.

    Parameters
    ----------
    a : (n, n) ndarray, Fortran order
    first, last : int
    scale : (n,) ndarray
    sums : (2, n) ndarray
    """
    for j in range(first, last):
        ours, plain, inverse = 0.0, 0.0, 1 / scale[j]
        for i in range(j, a.shape[0]):
            value = abs(a[i, j])
            share = value / scale[i] * inverse
            sums[0, i] += share
            sums[1, i] += value
            if i > j:
                ours += share
                plain += value
        sums[0, j] += ours
        sums[1, j] += plain
