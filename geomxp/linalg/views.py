"""BLAS on views of arrays: rows or columns are contiguous, in a larger array or alone.

The transpose of a view is the same memory seen the other way. Row- and column-major, left and
right, upper and lower are therefore one case each: the routines of a library see columns.
"""


def layout(a):
    """Return "F" for a 2-D array with contiguous columns, "C" with contiguous rows, else None."""
    if a.flags.f_contiguous:
        return "F"
    if a.flags.c_contiguous:
        return "C"
    if any(stride % a.itemsize for stride in a.strides):
        # a field of records
        return None
    (m, n), (rows, columns) = a.shape, (stride // a.itemsize for stride in a.strides)
    if (rows == 1 or m <= 1) and (columns >= max(1, m) or n <= 1):
        return "F"
    if (columns == 1 or n <= 1) and (rows >= max(1, n) or m <= 1):
        return "C"
    return None


def contiguous(a):
    """Return whether the rows or the columns of a 2-D array are contiguous."""
    return layout(a) is not None


def order_of(a):
    """Return the `layout` of an array that has one.

    Raises
    ------
    ValueError
        If neither rows nor columns are contiguous; the callers copy such arrays first.
    """
    order = layout(a)
    if order is None:
        raise ValueError("neither rows nor columns are contiguous: copy the array first.")
    return order


def by_columns(a):
    """Return whether the columns of an array are contiguous (Fortran order), else its rows."""
    return order_of(a) == "F"


def leading(a):
    """Return the distance between columns, in entries, of an array with contiguous columns."""
    return max(1, a.strides[1] // a.itemsize if a.shape[1] > 1 else a.shape[0])


def columns_of(*arrays):
    """Return the arrays, or all their transposes, so that the first has contiguous columns."""
    return arrays if by_columns(arrays[0]) else tuple(a.T for a in arrays)


def operand(a):
    """Return "N" and a view with contiguous columns, or "T" and the transpose of one with rows."""
    return ("N", a) if by_columns(a) else ("T", a.T)


class Views:
    """The BLAS part of a `Backend`, for any layout, from routines for contiguous columns.

    A subclass has these routines, which overwrite their array argument `c`, `b` or `a`; letters are
    those of BLAS:

        _gemm(c, a, b, alpha, beta, trans_a, trans_b)
        _triangular(name, side, uplo, trans, diag, t, b)
        _rank_k(uplo, trans, c, a, alpha, beta)
        _factor(uplo, a, info)
    """

    def gemm(self, c, a, b, alpha=1.0, beta=1.0):
        """C <- αAB + βC."""
        if not c.size or not (a.size or beta != 1.0):
            return c
        if by_columns(c):
            (trans_a, left), (trans_b, right) = operand(a), operand(b)
            self._gemm(c, left, right, alpha, beta, trans_a, trans_b)
        else:
            # C' = αB'A' + βC'
            self.gemm(c.T, b.T, a.T, alpha, beta)
        return c

    def trsm(self, lower, b, transposed, unit=False):
        """B <- B T⁻¹ or B T'⁻¹."""
        return self._act("trsm", lower, b, transposed, unit)

    def trmm(self, lower, b, transposed, unit=False):
        """B <- B T or B T'."""
        return self._act("trmm", lower, b, transposed, unit)

    def _act(self, name, lower, b, transposed, unit):
        if not b.size:
            return b
        side, trans, target = "R", transposed, b
        if not by_columns(b):
            # B T = (T'B')'
            side, trans, target = "L", not transposed, b.T
        uplo = "L"
        if not by_columns(lower):
            uplo, lower, trans = "U", lower.T, not trans
        letters = side, uplo, "T" if trans else "N", "U" if unit else "N"
        self._triangular(name, *letters, lower, target)
        return b

    def syrk(self, c, a, alpha=1.0, beta=1.0):
        """Lower triangle of C <- αAA' + βC."""
        if c.size:
            uplo, target = ("L", c) if by_columns(c) else ("U", c.T)
            trans, left = operand(a)
            self._rank_k(uplo, trans, target, left, alpha, beta)
        return c

    def potrf(self, a, info=None):
        """Overwrite the lower triangle with its Cholesky factor; return LAPACK's info."""
        uplo, target = ("L", a) if by_columns(a) else ("U", a.T)
        return self._factor(uplo, target, info)
