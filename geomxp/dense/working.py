"""Working copies of matrices: contiguous, in FP64 or FP32, scaled; and their lower triangles."""

from contextlib import contextmanager

import numpy as np

from ..errors import GeomxpError, InvalidInput, NotPositiveDefinite
from . import views, views_gpu
from .panels import LOW, magnitude, module, padded


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
    if all(views.contiguous(x) and views.by_columns(x) for x in (c, total)):
        from ..precision import casts

        (x, step_x), (y, step_y) = casts.flat(total), casts.flat(c)
        casts.add_lower(x, step_x, y, step_y, len(c))
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
