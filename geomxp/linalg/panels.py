"""Columns of a matrix in a coarse format, cast once when they are final and read by every product.

A panel is cut at the leaves of the recursion. Its power of two follows from a bound of its numbers,
where there is one: then the GPU need not report the largest magnitude, and the whole panel is
multiplied at once. Otherwise each piece has its own, and neighbouring pieces whose powers agree are
multiplied together. FP8's range is too small for one bound: its pieces have their own powers (on a
GPU, known only there) until `Rows.close` casts the whole panel again.
"""

from ctypes import c_float, c_int

import numpy as np

from ..errors import InvalidInput
from ..linalg import blas, gpu, views
from .device import device_of
from .formats import BF16, FP8, FP16, TF32
from .products import COLUMN_MAJOR, PLAIN, ROUTINES, TRANSPOSED, has_unit

STEP = 8
"""FP16's powers are multiples of this, so that most neighbours agree; 21 binades are left."""

LOW = (FP8, FP16, BF16, TF32)
"""Formats that a panel is cast to; FP32 and FP64 are read where they stand."""


class Panel:
    """An (m, n) matrix in one format, in pieces of columns.

    Parameters
    ----------
    form : Format
    shape : (int, int)
    like : array
        NumPy or CuPy.
    bound : float, optional
        Upper bound of its magnitudes.
    """

    def __init__(self, form, shape, like, bound=None):
        self.form, self.bound, self.exponents = form, bound, {}
        self._unknown = form is FP8 and bound is not None and not isinstance(like, np.ndarray)
        # a GPU's units for FP8 want rows
        self.values = padded(shape, form.dtype, like, None if not self._unknown else False)

    @property
    def shape(self):
        """(m, n)."""
        return self.values.shape

    @property
    def nbytes(self):
        """Bytes of the numbers in their format."""
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
            If a number is not finite and no bound is given.
        """
        if self._unknown:
            # the exponent is known to the GPU only
            exponent = gpu.exponent_of(array, FP8)
            self.exponents[columns.start, columns.stop] = exponent
            round_into(self.values[:, columns], array, FP8, exponent)
            return
        largest = magnitude(array) if self.bound is None or self.form is FP8 else self.bound
        if not np.isfinite(largest):
            raise InvalidInput(f"the matrix holds or reaches {largest}, which no format has.")
        exponent = self.form.exponent_for(largest)
        if self.form is FP16 and self.bound is None:
            exponent = exponent // STEP * STEP
        self.exponents[columns.start, columns.stop] = exponent
        round_into(self.values[:, columns], array, self.form, exponent)

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
        """Write some values into an FP32 or FP64 view."""
        for run, exponent in self.runs(columns):
            part = slice(run.start - columns.start, run.stop - columns.start)
            widen_into(out[:, part], self.values[rows, run], self.form, exponent)


def _equal(a, b):
    """Return whether two exponents are known to be equal; on a GPU, whether they are one array."""
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)


def scale_of(alpha, a, b):
    """Return α 2^-(a+b), as a `views_gpu.Scale` where the exponents are on a GPU."""
    if isinstance(a, int) and isinstance(b, int):
        return alpha * 2.0 ** -(a + b)
    return gpu.Scale(alpha, a, b)


def multiply(c, left, rows, right, others, alpha):
    """C <- C + α A B' for rows of two panels of one format: exact products, summed in FP32.

    Parameters
    ----------
    c : (m, n) FP32 or FP64 view
    left, right : Panel
        With the same columns.
    rows, others : slice
        Rows of the left one, which are those of C, and of the right one.
    alpha : float
    """
    for run, a in left.runs(slice(0, left.shape[1])):
        for part, b in right.runs(run):
            scale = scale_of(alpha, a, b)
            product(c, left.values[rows, part], right.values[others, part], left.form, scale)


def product(c, a, b, form, alpha):
    """C <- C + α A B' of numbers in one format."""
    if not c.size or not a.size:
        return
    if not isinstance(c, np.ndarray):
        gpu.product(c, a, b, form, alpha)
        return
    if form is FP8:
        # FP16 holds all numbers of FP8
        a, b, form = _fp8_as_fp16(a), _fp8_as_fp16(b), FP16
        alpha *= 2.0**16
    if c.dtype != np.float32:
        # scaled in FP64: FP32 may not hold what FP64 does
        total = np.zeros(c.shape, np.float32, order="F")
        product(total, a, b, form, 1.0)
        c += total * np.float64(alpha)
    elif has_unit(form):
        _on_units(c, a, b, form, alpha)
    else:
        wide = [_widened(x, form) for x in (a, b)]
        views.gemm(c, wide[0], wide[1].T, alpha, 1.0)


def _on_units(c, a, b, form, alpha):
    if not views.by_columns(c):
        c, a, b = c.T, b, a
    (m, n), k = c.shape, a.shape[1]
    (trans_a, a) = (PLAIN, a) if views.by_columns(a) else (TRANSPOSED, a.T)
    (trans_b, b) = (TRANSPOSED, b) if views.by_columns(b) else (PLAIN, b.T)
    getattr(blas.mkl(), ROUTINES[form])(
        *(c_int(COLUMN_MAJOR), c_int(trans_a), c_int(trans_b), c_int(m), c_int(n), c_int(k)),
        *(c_float(alpha), blas._at(a), c_int(blas._leading(a))),
        *(blas._at(b), c_int(blas._leading(b))),
        *(c_float(1.0), blas._at(c), c_int(blas._leading(c))),
    )


def module(array):
    """Return NumPy or CuPy, whichever an array is of."""
    if isinstance(array, np.ndarray):
        return np
    import cupy

    return cupy


def empty(shape, dtype, like):
    """Return an uninitialized array of another one's kind and layout."""
    with device_of(like):
        return module(like).empty(shape, dtype, order="F" if views.by_columns(like) else "C")


def padded(shape, dtype, like, by_columns=None):
    """Return an uninitialized array whose long strides are no multiples of 1,024 bytes.

    Columns at such strides fall into the same lines of a cache: products run up to 30 % slower. The
    array is of the other one's kind, and of its layout if `by_columns` is not given.
    """
    by_columns = views.by_columns(like) if by_columns is None else by_columns
    dtype = np.dtype(dtype)
    long = shape[0] if by_columns else shape[1]
    stride = -(-long * dtype.itemsize // 64) * 64
    stride += 64 if stride % 1024 == 0 else 0
    room = stride // dtype.itemsize
    whole, order = ((room, shape[1]), "F") if by_columns else ((shape[0], room), "C")
    with device_of(like):
        return module(like).empty(whole, dtype, order=order)[: shape[0], : shape[1]]


def _widened(x, form):
    out = empty(x.shape, np.float32, x)
    widen_into(out, x, form, 0)
    return out


def _fp8_as_fp16(x):
    from ..linalg import formats

    out = empty(x.shape, np.float16, x)
    source = np.ascontiguousarray(x if not views.by_columns(x) else x.T)
    flat = out if not views.by_columns(out) else out.T
    formats.fp8_as_fp16(source.reshape(-1), flat.reshape(-1).view(np.uint16))
    return out


def _columns(out, source):
    """Return both, or both transposed, so that their columns are contiguous."""
    by_columns = views.by_columns(out)
    if views.by_columns(source) != by_columns:
        source = np.array(source, order="F" if by_columns else "C")
    return (out, source) if by_columns else (out.T, source.T)


def magnitude(array):
    """Return max|a| of an FP32 or FP64 view: inf or NaN where one stands there."""
    if not array.size:
        return 0.0
    if not isinstance(array, np.ndarray):
        return gpu.magnitude(array)
    from ..linalg import formats

    array = array if views.by_columns(array) else array.T
    whole = np.int32 if array.dtype == np.float32 else np.int64
    bits, step = formats.flat(array.view(whole))
    found = formats.magnitude_by_column(bits, step, *array.shape, whole(np.iinfo(whole).max))
    return float(whole(found).view(array.dtype))


def round_into(out, array, form, exponent):
    """Out <- the numbers of array·2^exponent in a format, of one layout with it."""
    if not isinstance(out, np.ndarray):
        gpu.round_into(out, array, form, exponent)
        return
    from ..linalg import formats

    out, array = _columns(out, array)
    out = out.view(np.uint16) if out.dtype == np.float16 else out
    kernels = {
        FP16: formats.to_fp16,
        BF16: formats.to_bf16,
        TF32: formats.to_tf32,
        FP8: formats.to_fp8,
    }
    formats.by_column(kernels[form], array, array.dtype.type(2.0**exponent), out)


def widen_into(out, values, form, exponent):
    """Out <- numbers in a format times 2^-exponent, of one layout with them."""
    if not isinstance(out, np.ndarray):
        gpu.widen_into(out, values, form, exponent)
        return
    from ..linalg import formats

    out, values = _columns(out, values)
    if form is TF32:
        np.multiply(values, out.dtype.type(2.0**-exponent), out=out)
        return
    kernels = {FP16: formats.from_fp16, BF16: formats.from_bf16, FP8: formats.from_fp8}
    values = values.view(np.uint16) if values.dtype == np.float16 else values
    formats.by_column(kernels[form], values, out.dtype.type(2.0**-exponent), out)
