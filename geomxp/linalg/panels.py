"""Columns of a matrix in a coarse format, cast once when they are final and read by every product.

A panel is cut at the leaves of the recursion. Where a bound of its values is known, its power of
two follows from the bound: a GPU then need not report the largest magnitude, and the whole panel is
multiplied at once. Otherwise each piece has its own power, and neighbouring pieces whose powers
agree are multiplied together. The range of FP8 is too small for one bound: its pieces have their
own powers (on a GPU, known only there) until `Rows.close` casts the whole panel again.
"""

import numpy as np

from ..errors import InvalidInput
from .backend import backend_of
from .views import by_columns


class Panel:
    """An (m, n) matrix in one format, in pieces of columns.

    Parameters
    ----------
    form : Format
    shape : (int, int)
    like : NumPy or CuPy array
        Its device and layout are those of the panel.
    bound : float, optional
        Upper bound of the magnitudes.
    """

    def __init__(self, form, shape, like, bound=None):
        self.form, self.bound, self.exponents = form, bound, {}
        backend = backend_of(like)
        # whether only the GPU will know the exponents; its units for FP8 read rows
        self._unknown = form.narrow and bound is not None and backend.on_gpu
        order = "C" if self._unknown or not by_columns(like) else "F"
        self.values = padded(shape, form.dtype, like, order)

    @property
    def shape(self):
        """(m, n)."""
        return self.values.shape

    @property
    def nbytes(self):
        """Bytes of the values in their format."""
        return self.values.nbytes

    def put(self, columns, array):
        """Cast some columns, which are final.

        Parameters
        ----------
        columns : slice
        array : (m, k) FP32 or FP64 view

        Raises
        ------
        InvalidInput
            If a value is not finite and no bound is given.
        """
        backend = backend_of(array)
        if self._unknown:
            exponent = backend.exponent_of(array, self.form)
        else:
            bounded = self.bound is not None and not self.form.narrow
            largest = self.bound if bounded else backend.largest(array)
            if not np.isfinite(largest):
                raise InvalidInput(
                    f"the matrix holds or reaches {largest}, which no number format represents: "
                    "check its entries, or scale it."
                )
            exponent = self.form.exponent_for(largest)
            if self.bound is None:
                exponent = exponent // self.form.step * self.form.step
        self.exponents[columns.start, columns.stop] = exponent
        backend.round_into(self.values[:, columns], array, self.form, exponent)

    def runs(self, columns):
        """Yield (columns, exponent) within a range, neighbours of one power joined."""
        joined = []
        for (first, stop), exponent in sorted(self.exponents.items()):
            first, stop = max(first, columns.start), min(stop, columns.stop)
            if first >= stop:
                continue
            if joined and joined[-1][1] == first and _equal(joined[-1][2], exponent):
                joined[-1] = (joined[-1][0], stop, exponent)
            else:
                joined.append((first, stop, exponent))
        for first, stop, exponent in joined:
            yield slice(first, stop), exponent

    def widen(self, rows, columns, out):
        """Write some of the values into an FP32 or FP64 view."""
        backend = backend_of(out)
        for run, exponent in self.runs(columns):
            part = slice(run.start - columns.start, run.stop - columns.start)
            backend.widen_into(out[:, part], self.values[rows, run], self.form, exponent)


def _equal(a, b):
    """Return whether two exponents are known to be equal; on a GPU, whether they are one array."""
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)


def multiply(c, left, rows, right, others, alpha):
    """C <- C + α A B' for rows of two panels of one format: exact products, summed in FP32.

    Parameters
    ----------
    c : (m, n) FP32 or FP64 view
    left, right : Panel
        With the same columns.
    rows, others : slice
        Rows of the left panel, which are those of C, and of the right panel.
    alpha : float
    """
    aligned(c, left, slice(0, left.shape[1]), right, alpha, rows, others)


def aligned(c, left, source, right, alpha, rows, others):
    """C <- C + α L[rows, source] R[others]', where `source` are the columns of R."""
    backend = backend_of(c)
    for run, a in left.runs(source):
        inner = slice(run.start - source.start, run.stop - source.start)
        for part, b in right.runs(inner):
            mine = slice(part.start + source.start, part.stop + source.start)
            x, y = left.values[rows, mine], right.values[others, part]
            backend.product(c, x, y, left.form, backend.scale_of(alpha, a, b))


def aligned_rows(c, left, source, right, alpha):
    """C <- C + α L[:, source] R, where `source` are the rows of R; its pieces are columns of C."""
    backend = backend_of(c)
    for part, b in right.runs(slice(0, right.shape[1])):
        for run, a in left.runs(source):
            inner = slice(run.start - source.start, run.stop - source.start)
            x, y = left.values[:, run], right.values[inner, part].T
            backend.product(c[:, part], x, y, left.form, backend.scale_of(alpha, a, b))


def padded(shape, dtype, like, order):
    """Return an uninitialized array whose long strides are not multiples of 1,024 bytes.

    Columns at such strides share cache lines: products are up to 30 % slower.

    Parameters
    ----------
    shape : (int, int)
    dtype : dtype
    like : NumPy or CuPy array
        On the device of which the array is made.
    order : {"F", "C"}
    """
    dtype = np.dtype(dtype)
    long = shape[0] if order == "F" else shape[1]
    stride = -(-long * dtype.itemsize // 64) * 64
    stride += 64 if stride % 1024 == 0 else 0
    room = stride // dtype.itemsize
    whole = (room, shape[1]) if order == "F" else (shape[0], room)
    return backend_of(like).empty(whole, dtype, like, order)[: shape[0], : shape[1]]
