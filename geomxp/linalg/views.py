"""Array backends: the operations that linear algebra needs, and BLAS on views of any layout.

The rows or the columns of a view are contiguous, in a larger array or alone. The transpose of a
view is the same memory in the other order. Row- and column-major, left and right, upper and lower
are therefore one case each: the routines of a library see columns.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .._typing import Any


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
    """Return the `layout` of an array that has one, else raise ValueError."""
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


class Backend(Protocol):
    """Linear algebra on one kind of arrays: matrices of FP64 or FP32 unless a format is named.

    Functions overwrite their first array argument, and return it where they return an array. All
    arrays of a call are of one kind and on one device. A panel of a coarse format has an exponent
    e: it holds a·2^e. It is an int, or an array where only the GPU knows it.

    A subclass has `name` ("cpu" or "gpu"), `on_gpu`, `xp` (NumPy or CuPy), and BLAS and LAPACK for
    contiguous columns, which overwrite their argument `c`, `b` or `a`; letters are those of BLAS:

        _gemm(c, a, b, alpha, beta, trans_a, trans_b)
        _triangular(name, side, uplo, trans, diag, t, b)
        _rank_k(uplo, trans, c, a, alpha, beta)
        _factor(uplo, a, info)
    """

    name: str
    on_gpu: bool
    xp: Any

    # BLAS and LAPACK, on views of one type

    def gemm(self, c, a, b, alpha=1.0, beta=1.0):
        """C <- αAB + βC for (m, n), (m, k) and (k, n) views."""
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
        """B <- B T⁻¹, or B T'⁻¹, for the lower triangle T of a view, with ones as its diagonal."""
        return self._act("trsm", lower, b, transposed, unit)

    def trmm(self, lower, b, transposed, unit=False):
        """B <- B T, or B T'; see `trsm`."""
        return self._act("trmm", lower, b, transposed, unit)

    def triangular(self, name, side, uplo, trans, diag, t, b):
        """B <- B op(T)⁻¹ or op(T)⁻¹ B ("trsm"), B op(T) or op(T) B ("trmm"), in Fortran order."""
        self._triangular(name, side, uplo, trans, diag, t, b)

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
        """Lower triangle of C <- αAA' + βC for (n, n) and (n, k) views."""
        if c.size:
            uplo, target = ("L", c) if by_columns(c) else ("U", c.T)
            trans, left = operand(a)
            self._rank_k(uplo, trans, target, left, alpha, beta)
        return c

    def potrf(self, a, info=None):
        """Lower triangle of A <- its Cholesky factor; return LAPACK's info.

        A GPU writes the info into the array `info` instead, if one is given, and also writes n
        where the last pivot is not finite; otherwise the CPU waits for it.
        """
        uplo, target = ("L", a) if by_columns(a) else ("U", a.T)
        return self._factor(uplo, target, info)

    # products of coarse formats, and casts

    def product(self, c, a, b, form, alpha):
        """C <- C + α A B' for stored numbers of a coarse format, in any layout, summed in FP32."""

    def squares(self, panel):
        """Return whether `add_square` takes the numbers of a panel."""
        return False

    def add_square(self, c, a, form, alpha):
        """Lower triangle of C <- C + α A A', as `product`; only for panels that `squares` takes."""

    def threads(self, forms):
        """Return a context manager: the threads of a recursion with products in these formats."""
        return nullcontext()

    def panel_dtype(self, form):
        """Return the type of a panel's numbers: FP32 if the format is multiplied in it."""
        return form.dtype

    def scale_of(self, alpha, a, b):
        """Return α 2^-(a+b) for `product`, from the exponents of its operands."""
        return alpha * 2.0 ** -(a + b)

    def exponent_of(self, array, form):
        """Return the exponent that brings an array to the top of a format's range."""
        return form.exponent_for(self.largest(array))

    def round_into(self, out, array, form, exponent):
        """Out <- the numbers of array·2^exponent in a format, as such or as FP32."""

    def widen_into(self, out, values, form, exponent):
        """Out <- stored numbers times 2^-exponent, as FP64 or FP32."""

    def split(self, array, exponent):
        """Return array·2^exponent to FP32's accuracy as two FP16 planes, (m, n, 2), high and low.

        FP32 or FP64, in Fortran order.
        """

    def join_into(self, out, planes, exponent):
        """Out <- the sum of two FP16 planes times 2^-exponent, as FP64 or FP32."""

    def as_wider(self, values, form):
        """Return 2^-wider_shift times stored numbers in the format's `wider` one, exactly."""

    # copies, norms and lower triangles

    def assign(self, out, a):
        """Out <- A, of any types and layouts."""

    def largest(self, array):
        """Return max|a|: inf or NaN where the array holds one. The CPU waits for a GPU."""

    def survey(self, a):
        """Return the diagonal as a NumPy array, and max|a| of the lower triangle."""

    def copy_lower(self, out, source, rows=None, columns=None):
        """Lower triangle of out <- rows_i a_ij columns_j; both or neither is given."""

    def add_lower(self, c, total, scale=1.0):
        """Lower triangle of C <- C + scale · total, of one layout."""

    def scale_lower(self, c, beta):
        """Lower triangle of C <- βC; zeros for β = 0, for any C."""

    def clear_upper(self, a):
        """Set all entries above the diagonal to zero."""

    # memory

    def index(self, array):
        """Return the number of the array's GPU, None on a CPU."""

    def on(self, array):
        """Return a context in which the array's device is the current one."""

    def empty(self, shape, dtype, like, order="F"):
        """Return an uninitialized array on the device of another one."""
        with self.on(like):
            return self.xp.empty(shape, dtype, order=order)

    def zeros(self, shape, dtype, like, order="F"):
        """Return zeros on the device of another array."""
        with self.on(like):
            return self.xp.zeros(shape, dtype, order=order)

    def put(self, array, like):
        """Return an array on the device of another one, in Fortran order where it is copied."""

    def get(self, array):
        """Return an array as a NumPy array, of its layout. The CPU waits for a GPU."""

    def as_columns(self, array):
        """Return an array in Fortran order: itself, or a copy on its device."""
        with self.on(array):
            return self.xp.asfortranarray(array)
