"""Working copies of matrices: contiguous, in FP64 or FP32, scaled; and their lower triangles."""

from contextlib import contextmanager

import numpy as np

from ..cuda import device_of
from ..errors import GeomxpError, InvalidInput, NotPositiveDefinite
from . import views, views_gpu
from .panels import LOW, magnitude, module, padded


def empty_like(array, dtype):
    """Return an uninitialized matrix of an array's shape and kind, Fortran order."""
    with device_of(array):
        return module(array).empty(array.shape, dtype, order="F")


def zeros(shape, like):
    """Return zeros of another array's kind, type and order; Fortran order where it has none."""
    by_rows = views.contiguous(like) and not views.by_columns(like)
    with device_of(like):
        return module(like).zeros(shape, like.dtype, order="C" if by_rows else "F")


def add_lower(c, total):
    """Lower triangle of C <- C + total."""
    if not isinstance(c, np.ndarray):
        with c.device:
            views_gpu.put_lower(c, c + total)
        return
    lines = _lines(total, c)
    if lines:
        from ..precision import casts

        (x, step_x), (y, step_y), by_rows = lines
        casts.add_lower(x, step_x, y, step_y, len(c), by_rows)
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
        with device_of(array), np.errstate(over="ignore", under="ignore", invalid="ignore"):
            work = array.astype(form.dtype, order="F")
    yield work
    if write == "lower" and work is not array:
        ones = np.ones(len(array))
        copy_lower(work, ones, ones, array)
    elif write == "whole" and work is not array:
        with device_of(array):
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
    # by columns whatever the array is, so that its bits are the same for all of them
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

    array = array if views.contiguous(array) else array.copy(order="F")
    whole = np.int32 if array.dtype == np.float32 else np.int64
    (bits, step), by_rows = _lines(array.view(whole))
    found = casts.magnitude_of_lower(bits, step, len(array), whole(np.iinfo(whole).max), by_rows)
    _finite(float(whole(found).view(array.dtype)))


def _finite(largest):
    if not np.isfinite(largest):
        raise InvalidInput(f"the lower triangle of the matrix holds {largest}: it has no factor.")


def _lines(*arrays):
    """Return what `casts.flat` has of matrices by columns, or by rows, and if it is by rows.

    Nothing where they are of several kinds, or neither.
    """
    from ..precision import casts

    kinds = {views.by_columns(x) if views.contiguous(x) else None for x in arrays}
    if len(kinds) > 1 or None in kinds:
        return ()
    by_rows = not kinds.pop()
    return (*(casts.flat(x.T if by_rows else x) for x in arrays), by_rows)


def copy_lower(source, rows, columns, out):
    """Lower triangle of out <- rows_i a_ij columns_j."""
    if isinstance(source, np.ndarray) and views.contiguous(source) and views.contiguous(out):
        _copy_lines(source, rows, columns, out)
        return
    xp = module(source)
    # above the diagonal may stand anything
    with device_of(source), np.errstate(over="ignore", under="ignore", invalid="ignore"):
        rows, columns = xp.asarray(rows), xp.asarray(columns)
        for first in range(0, len(source), 512):
            block = slice(first, min(first + 512, len(source)))
            product = source[first:, block] * rows[first:, None] * columns[block]
            corner = out[block, block]
            lower = xp.tri(len(corner), dtype=bool)
            product[: len(corner)] = xp.where(lower, product[: len(corner)], corner)
            out[first:, block] = product


def _copy_lines(source, rows, columns, out):
    """`copy_lower` of matrices by columns or by rows."""
    from ..precision import casts

    lines = _lines(source, out)
    if not lines:
        ((x, step_x), by_rows), ((y, step_y), _) = _lines(source), _lines(out)
        casts.turn_lower(x, step_x, rows, columns, y, step_y, by_rows)
        return
    (x, step_x), (y, step_y), by_rows = lines
    if (rows == 1.0).all() and (columns == 1.0).all():
        casts.convert_lower(x, step_x, y, step_y, len(source), by_rows)
    else:
        along, across = (columns, rows) if by_rows else (rows, columns)
        casts.copy_lower(x, step_x, along, across, y, step_y, by_rows)
