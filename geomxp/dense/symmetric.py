"""Loops over the lower triangle of a symmetric matrix, compiled by numba.

They run over slices, as those of `geomxp.precision.casts`, and for the same reason.
"""

from ..execution.jit import njit

_SUMS = {"reassoc", "nsz", "contract"}


@njit(nogil=True, cache=True, error_model="numpy")
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
    rows = out.shape[0]
    for j in range(out.shape[1]):
        factor = multiple / scale[left + j]
        first = j if diagonal else 0
        x, y = a.T[left + j][top + first : top + rows], out.T[j][first:]
        divisors = scale[top + first : top + rows]
        for i in range(y.size):
            y[i] = x[i] / divisors[i] * factor
    if diagonal:
        _mirror(out)


@njit(nogil=True, cache=True)
def _mirror(out):
    """Upper triangle <- lower one, by squares that the first cache holds."""
    n = out.shape[0]
    for left in range(0, n, 32):
        for top in range(left, n, 32):
            for j in range(left, min(left + 32, n)):
                for i in range(max(top, j + 1), min(top + 32, n)):
                    out[j, i] = out[i, j]


@njit(nogil=True, cache=True, error_model="numpy", fastmath=_SUMS)
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
        column, divisors = a.T[j][j + 1 :], scale[j + 1 :]
        theirs, theirs_plain = sums[0, j + 1 :], sums[1, j + 1 :]
        for i in range(column.size):
            value = abs(column[i])
            theirs_plain[i] += value
            plain += value
        for i in range(column.size):
            share = abs(column[i]) / divisors[i] * inverse
            theirs[i] += share
            ours += share
        value = abs(a[j, j])
        sums[0, j] += ours + value / scale[j] * inverse
        sums[1, j] += plain + value
