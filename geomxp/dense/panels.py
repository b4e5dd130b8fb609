"""Columns of a matrix in a coarse format, cast once when they are final and read by every product.

A panel is cut at the leaves of the recursion; each piece has its own power of two. Neighbouring
pieces whose powers agree are multiplied in one go.
"""

from contextlib import contextmanager
from ctypes import c_float, c_int

import numpy as np

from ..errors import GeomxpError, InvalidInput, NotPositiveDefinite
from ..precision.formats import BF16, FP8, FP16, TF32
from . import blas, views, views_gpu
from .matrix_units import COLUMN_MAJOR, PLAIN, ROUTINES, TRANSPOSED, has_unit

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
    """

    def __init__(self, form, shape, like):
        self.form = form
        self.values = padded(shape, form.dtype, like)
        self.exponents = {}

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
            If a number is not finite.
        """
        largest = magnitude(array)
        if not np.isfinite(largest):
            raise InvalidInput(f"the matrix holds or reaches {largest}, which no format has.")
        exponent = self.form.exponent_for(largest)
        if self.form is FP16:
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
            if joined and joined[-1][1:] == (first, exponent):
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
            scale = alpha * 2.0 ** -(a + b)
            product(c, left.values[rows, part], right.values[others, part], left.form, scale)


def product(c, a, b, form, alpha):
    """C <- C + α A B' of numbers in one format."""
    if not c.size or not a.size:
        return
    if not isinstance(c, np.ndarray):
        views_gpu.product(c, a, b, form, alpha)
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


def _empty(shape, dtype, like):
    return module(like).empty(shape, dtype, order="F" if views.by_columns(like) else "C")


def padded(shape, dtype, like):
    """Return an uninitialized array whose long strides are no multiples of 1,024 bytes.

    Columns at such strides fall into the same lines of a cache: products run up to 30 % slower.
    """
    by_columns, dtype = views.by_columns(like), np.dtype(dtype)
    long = shape[0] if by_columns else shape[1]
    stride = -(-long * dtype.itemsize // 64) * 64
    stride += 64 if stride % 1024 == 0 else 0
    room = stride // dtype.itemsize
    if by_columns:
        return _empty((room, shape[1]), dtype, like)[: shape[0]]
    return _empty((shape[0], room), dtype, like)[:, : shape[1]]


def _widened(x, form):
    out = _empty(x.shape, np.float32, x)
    widen_into(out, x, form, 0)
    return out


def _fp8_as_fp16(x):
    from ..precision import casts

    out = _empty(x.shape, np.float16, x)
    source = np.ascontiguousarray(x if not views.by_columns(x) else x.T)
    flat = out if not views.by_columns(out) else out.T
    casts.fp8_as_fp16(source.reshape(-1), flat.reshape(-1).view(np.uint16))
    return out


def _columns(*arrays):
    """Return the arrays, or all their transposes, so that the first has contiguous columns."""
    return arrays if views.by_columns(arrays[0]) else tuple(a.T for a in arrays)


def magnitude(array):
    """Return max|a| of an FP32 or FP64 view: inf or NaN where one stands there."""
    if not array.size:
        return 0.0
    if not isinstance(array, np.ndarray):
        return views_gpu.magnitude(array)
    from ..precision import casts

    (array,) = _columns(array)
    whole = np.int32 if array.dtype == np.float32 else np.int64
    bits, step = casts.flat(array.view(whole))
    found = casts.magnitude_by_column(bits, step, *array.shape, whole(np.iinfo(whole).max))
    return float(whole(found).view(array.dtype))


def round_into(out, array, form, exponent):
    """Out <- the numbers of array·2^exponent in a format, of one layout with it."""
    if not isinstance(out, np.ndarray):
        views_gpu.round_into(out, array, form, exponent)
        return
    from ..precision import casts

    array, out = _columns(array, out)
    out = out.view(np.uint16) if out.dtype == np.float16 else out
    kernels = {FP16: casts.to_fp16, BF16: casts.to_bf16, TF32: casts.to_tf32, FP8: casts.to_fp8}
    casts.by_column(kernels[form], array, array.dtype.type(2.0**exponent), out)


def widen_into(out, values, form, exponent):
    """Out <- numbers in a format times 2^-exponent, of one layout with them."""
    if not isinstance(out, np.ndarray):
        views_gpu.widen_into(out, values, form, exponent)
        return
    from ..precision import casts

    out, values = _columns(out, values)
    if form is TF32:
        np.multiply(values, out.dtype.type(2.0**-exponent), out=out)
        return
    kernels = {FP16: casts.from_fp16, BF16: casts.from_bf16, FP8: casts.from_fp8}
    values = values.view(np.uint16) if values.dtype == np.float16 else values
    casts.by_column(kernels[form], values, out.dtype.type(2.0**-exponent), out)


def empty_like(array, dtype):
    """Return an uninitialized matrix of an array's shape and kind, Fortran order."""
    return module(array).empty(array.shape, dtype, order="F")


def zeros(shape, like):
    """Return zeros of another array's kind and type, Fortran order."""
    return module(like).zeros(shape, like.dtype, order="F")


def add_lower(c, total):
    """Lower triangle of C <- C + total."""
    if not isinstance(c, np.ndarray):
        views_gpu.put_lower(c, c + total)
        return
    for j in range(len(c)):
        c[j:, j] += total[j:, j]


def scale_lower(c, beta):
    """Lower triangle of C <- βC; zeros for β = 0, whatever stands there."""
    if not isinstance(c, np.ndarray):
        views_gpu.scale_lower(c, beta)
        return
    for j in range(len(c) if beta != 1.0 else 0):
        if beta == 0.0:
            c[j:, j] = 0.0
        else:
            c[j:, j] *= c.dtype.type(beta)


@contextmanager
def one_array(array, form, write="whole"):
    """Give an array as a contiguous view in FP64 or FP32, and write the result back.

    Parameters
    ----------
    array : 2-D array
    form : Format
        FP64 or FP32.
    write : {"whole", "lower", "nothing"}
        What is written back; the rest of the array keeps its bits.
    """
    work = array
    if array.dtype != form.dtype or not views.contiguous(array):
        # what is not read may be anything
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            work = array.astype(form.dtype, order="F")
    yield work
    if write == "lower" and work is not array:
        ones = np.ones(len(array))
        copy_lower(work, ones, ones, array)
    elif write == "whole" and work is not array:
        array[...] = work


@contextmanager
def one_matrix(array, forms):
    """Give the lower triangle of a symmetric matrix to be factored, and write the factor back.

    In place where no format is coarse. Otherwise in FP32 or FP64 with a diagonal near 1: a power of
    two for each row keeps coarse formats from over- and underflow and changes no digit.

    Raises
    ------
    InvalidInput
        If the lower triangle holds a NaN or an infinity.
    """
    n, form = len(array), forms[-1]
    logs, positive = half_logs(array)
    near_one = n == 0 or float(abs(logs).max()) < 8
    coarse = any(f in LOW for f in forms)
    same = array.dtype == form.dtype and views.contiguous(array)
    if same and (near_one or not coarse or not positive):
        check_finite(array)
        yield array
        return
    d = np.exp2(0.0 * logs if near_one else -np.round(logs))
    work = padded(array.shape, form.dtype, array[:0, :0])
    copy_lower(array, d, d, work)
    try:
        yield work
    except GeomxpError:
        # a NaN ends as a pivot that is not positive: say what it was
        check_finite(array)
        _check_rows(array)
        raise
    copy_lower(work, 1.0 / d, np.ones(n), array)


def _check_rows(array):
    """Raise `NotPositiveDefinite` if |a_ij|² >= a_ii a_jj somewhere, of the first such row."""
    array = array if isinstance(array, np.ndarray) else array.get()
    roots = np.sqrt(np.abs(array.diagonal().astype(np.float64)))
    for i in range(len(array)):
        if (np.abs(array[i, :i].astype(np.float64)) >= roots[i] * roots[:i]).any():
            raise NotPositiveDefinite(f"the leading minor of order {i + 1} is not positive", i + 1)


def half_logs(array):
    """Return log2 of the roots of the diagonal, zeros where it is not positive, and if it is."""
    diagonal = array.diagonal()
    diagonal = diagonal if isinstance(array, np.ndarray) else diagonal.get()
    positive = diagonal > 0
    return np.log2(np.where(positive, diagonal, 1.0).astype(np.float64)) / 2, positive.all()


def check_finite(array):
    """Raise `InvalidInput` if the lower triangle holds a NaN or an infinity."""
    if not len(array):
        return
    if not isinstance(array, np.ndarray):
        for part in views_gpu.parts_of_lower(array):
            _finite(magnitude(part))
        return
    from ..precision import casts

    if not views.contiguous(array):
        array = array.copy(order="F")
    if views.by_columns(array):
        whole = np.int32 if array.dtype == np.float32 else np.int64
        bits, step = casts.flat(array.view(whole))
        found = casts.magnitude_of_lower(bits, step, len(array), whole(np.iinfo(whole).max))
        _finite(float(whole(found).view(array.dtype)))
        return
    for i in range(len(array)):
        _finite(float(abs(array[i, : i + 1]).max()))


def _finite(largest):
    if not np.isfinite(largest):
        raise InvalidInput(f"the lower triangle of the matrix holds {largest}: it has no factor.")


def module(array):
    """Return NumPy or CuPy, whichever an array is of."""
    if isinstance(array, np.ndarray):
        return np
    import cupy

    return cupy


def copy_lower(source, rows, columns, out):
    """Lower triangle of out <- rows_i a_ij columns_j."""
    if isinstance(source, np.ndarray) and all(
        views.contiguous(x) and views.by_columns(x) for x in (source, out)
    ):
        from ..precision import casts

        (x, step_x), (y, step_y) = casts.flat(source), casts.flat(out)
        if (rows == 1.0).all() and (columns == 1.0).all():
            casts.convert_lower(x, step_x, y, step_y, len(source))
        else:
            casts.copy_lower(x, step_x, rows, columns, y, step_y)
        return
    xp = module(source)
    rows, columns = xp.asarray(rows), xp.asarray(columns)
    # above the diagonal may stand anything
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for first in range(0, len(source), 512):
            block = slice(first, min(first + 512, len(source)))
            product = source[first:, block] * rows[first:, None] * columns[block]
            corner = out[block, block]
            lower = xp.tri(len(corner), dtype=bool)
            product[: len(corner)] = xp.where(lower, product[: len(corner)], corner)
            out[first:, block] = product
