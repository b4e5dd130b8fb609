"""Working copies of matrices: contiguous, in FP64 or FP32, scaled; and their lower triangles."""

from contextlib import contextmanager

import numpy as np

from ..errors import GeomxpError, InvalidInput, NotPositiveDefinite
from ..linalg import gpu, views
from .device import device_of
from .panels import LOW, module, padded


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
        gpu.combine(c, total, beta=1.0, lower=True)
        return
    lines = _lines(total, c)
    if lines:
        from ..linalg import formats

        (x, step_x), (y, step_y), by_rows = lines
        formats.add_lower(x, step_x, y, step_y, len(c), by_rows)
        return
    for j in range(len(c)):
        c[j:, j] += total[j:, j]


def scale_lower(c, beta):
    """Lower triangle of C <- βC; zeros for β = 0, whatever stands there."""
    if not isinstance(c, np.ndarray):
        gpu.scale_lower(c, beta)
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
        work = _copy(array, form.dtype)
    yield work
    if write == "lower" and work is not array:
        copy_lower(work, array)
    elif write == "whole" and work is not array:
        if isinstance(array, np.ndarray):
            array[...] = work
        else:
            gpu.combine(array, work)


def _copy(array, dtype):
    """Return a copy in FP64 or FP32, Fortran order."""
    if not isinstance(array, np.ndarray):
        work = empty_like(array, dtype)
        gpu.combine(work, array)
        return work
    # what is not read may be anything
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return array.astype(dtype, order="F")


@contextmanager
def one_matrix(array, forms):
    """Give the lower triangle of a symmetric matrix to be factored, and write the factor back.

    In place where the type fits and no format is coarse, or the diagonal is near 1 and varies
    little. Otherwise in FP32 or FP64, in a copy with a diagonal near 1: a power of two for each row
    keeps coarse formats from over- and underflow and changes no digit.

    Yields
    ------
    array, float
        The matrix, and a bound of all |l_ij|: the root of the largest diagonal entry.

    Raises
    ------
    InvalidInput
        If the lower triangle holds a NaN or an infinity.
    """
    n, form = len(array), forms[-1]
    same = array.dtype == form.dtype and views.contiguous(array)
    # a copy is checked only if its factorization fails
    logs = half_logs(_diagonal(array, whole=same))
    coarse = any(f in LOW for f in forms)
    near_one = n == 0 or float(abs(logs).max()) < 8
    # one power of two for all panels of FP16 leaves 28 - 4 binades to the smallest row
    even = n == 0 or float(logs.max() - logs.min()) < 4
    if same and ((near_one and even) or not coarse):
        yield array, float(np.exp2(logs.max(initial=-np.inf)))
        return
    scaled = not (near_one and even)
    steps = np.round(logs) if scaled else 0.0 * logs
    # by columns whatever the array is, so that its bits are the same for all of them
    work = padded(array.shape, form.dtype, array[:0, :0])
    copy_lower(array, work, *((np.exp2(-steps), np.exp2(-steps)) if scaled else ()))
    try:
        yield work, float(np.exp2((logs - steps).max(initial=-np.inf)))
    except GeomxpError as error:
        # a NaN ends as a pivot that is not positive: say what it was
        check_finite(array)
        _check_rows(array, getattr(error, "order", None) or n)
        raise
    copy_lower(work, array, *((np.exp2(steps), np.ones(n)) if scaled else ()))


def _check_rows(array, last):
    """Raise `NotPositiveDefinite` for the first row with a_ii <= 0 or an |a_ij|² >= a_ii a_jj.

    Rows from `last` on, where the factorization has failed, are not looked at.
    """
    array = array if isinstance(array, np.ndarray) else array.get()
    diagonal = array.diagonal().astype(np.float64)
    roots = np.sqrt(np.abs(diagonal))
    for i in range(last - 1):
        too_large = np.abs(array[i, :i].astype(np.float64)) >= roots[i] * roots[:i]
        if diagonal[i] <= 0 or too_large.any():
            raise NotPositiveDefinite(f"the leading minor of order {i + 1} is not positive", i + 1)


def _diagonal(array, whole):
    """Return a matrix's diagonal, after a check that it, or the whole lower triangle, is finite."""
    if isinstance(array, np.ndarray):
        diagonal, largest = array.diagonal(), 0.0
    elif whole:
        # one transfer of both: for each the CPU would wait for the GPU
        diagonal, largest = gpu.survey(array)
    else:
        diagonal, largest = array.diagonal().get(), 0.0
    on_cpu = isinstance(array, np.ndarray)
    if (whole and on_cpu) or not (np.isfinite(diagonal).all() and np.isfinite(largest)):
        check_finite(array)
    return diagonal


def half_logs(diagonal):
    """Return log2 of the roots of a diagonal's magnitudes.

    Zeros are replaced by the median of the other magnitudes.
    """
    size = np.abs(diagonal.astype(np.float64))
    size[size == 0] = np.median(size[size > 0]) if size.any() else 1.0
    return np.log2(size) / 2


def check_finite(array):
    """Raise `InvalidInput` if the lower triangle holds a NaN or an infinity."""
    if not len(array):
        return
    if not isinstance(array, np.ndarray):
        _finite(gpu.survey(array)[1])
        return
    from ..linalg import formats

    array = array if views.contiguous(array) else array.copy(order="F")
    whole = np.int32 if array.dtype == np.float32 else np.int64
    (bits, step), by_rows = _lines(array.view(whole))
    found = formats.magnitude_of_lower(bits, step, len(array), whole(np.iinfo(whole).max), by_rows)
    _finite(float(whole(found).view(array.dtype)))


def _finite(largest):
    if not np.isfinite(largest):
        raise InvalidInput(f"the lower triangle of the matrix holds {largest}: it has no factor.")


def _lines(*arrays):
    """Return what `casts.flat` has of matrices by columns, or by rows, and if it is by rows.

    Nothing where they are of several kinds, or neither.
    """
    from ..linalg import formats

    kinds = {views.by_columns(x) if views.contiguous(x) else None for x in arrays}
    if len(kinds) > 1 or None in kinds:
        return ()
    by_rows = not kinds.pop()
    return (*(formats.flat(x.T if by_rows else x) for x in arrays), by_rows)


def copy_lower(source, out, rows=None, columns=None):
    """Lower triangle of out <- rows_i a_ij columns_j; ones if not given, both or neither."""
    if not isinstance(source, np.ndarray):
        with source.device:
            if rows is not None:
                rows, columns = module(source).asarray(rows), module(source).asarray(columns)
            gpu.combine(out, source, lower=True, rows=rows, columns=columns)
        return
    if rows is None:
        rows = columns = np.ones(len(source))
    if views.contiguous(source) and views.contiguous(out):
        _copy_lines(source, rows, columns, out)
        return
    # above the diagonal may stand anything
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for first in range(0, len(source), 512):
            block = slice(first, min(first + 512, len(source)))
            product = source[first:, block] * rows[first:, None] * columns[block]
            corner = out[block, block]
            lower = np.tri(len(corner), dtype=bool)
            product[: len(corner)] = np.where(lower, product[: len(corner)], corner)
            out[first:, block] = product


def _copy_lines(source, rows, columns, out):
    """`copy_lower` of matrices by columns or by rows."""
    from ..linalg import formats

    lines = _lines(source, out)
    if not lines:
        ((x, step_x), by_rows), ((y, step_y), _) = _lines(source), _lines(out)
        formats.turn_lower(x, step_x, rows, columns, y, step_y, by_rows)
        return
    (x, step_x), (y, step_y), by_rows = lines
    if (rows == 1.0).all() and (columns == 1.0).all():
        formats.convert_lower(x, step_x, y, step_y, len(source), by_rows)
    else:
        along, across = (columns, rows) if by_rows else (rows, columns)
        formats.copy_lower(x, step_x, along, across, y, step_y, by_rows)
