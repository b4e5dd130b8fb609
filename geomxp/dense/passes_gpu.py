"""Single passes over matrices on a GPU, in any layout (cuda/combine.cu), and a second stream."""

from contextlib import contextmanager

import numpy as np

from ..cuda import module
from ..cuda.streams import streams

TYPES = {np.dtype(np.float32): "fp32", np.dtype(np.float64): "fp64"}

SIDE, STEP = 32, 8
"""Entries along the side of a block of threads, and its rows of threads, as in cuda/combine.cu."""


def combine(out, a, alpha=1.0, beta=0.0, lower=False, rows=None, columns=None):
    """Out <- α r_i a_ij c_j + β out, in one kernel, for arrays of any types and layouts.

    Parameters
    ----------
    out, a : (m, n) FP64 or FP32 cupy.ndarray
        They may be the same array, but must not overlap otherwise.
    alpha, beta : float
        An array whose factor is 0 is not read. Computed in FP64.
    lower : bool
        Read and write the lower triangle only.
    rows, columns : (m,) and (n,) FP64 cupy.ndarray, optional
        r and c, both or neither; ones if not given.
    """
    if not out.size:
        return
    scaled = rows is not None
    # CuPy does not convert None to a null pointer
    factors = (rows, columns) if scaled else (a, a)
    flags = np.int32(lower), np.int32(scaled)
    with out.device:
        _kernel("combine", a, out)(
            *(_squares(out.shape), (SIDE, STEP)),
            (
                *(a, *_steps(a), out, *_steps(out), *out.shape),
                *(*flags, *factors, np.float64(alpha), np.float64(beta)),
            ),
        )


def survey(a):
    """Return the diagonal of a matrix, and max|a| of its lower triangle, in one transfer.

    Parameters
    ----------
    a : (n, n) FP64 or FP32 cupy.ndarray

    Returns
    -------
    (n,) FP64 ndarray, float
        The largest magnitude is inf or NaN where one stands there.
    """
    import cupy

    n = len(a)
    with a.device:
        found = cupy.zeros(n + 1)
        if n:
            found[:n] = a.diagonal()
            launch = _kernel("largest_of_lower", a)
            launch(_squares(a.shape), (SIDE, STEP), (a, *_steps(a), n, found[n:]))
        found = found.get()
    return found[:n], float(found[n])


def scale_lower(c, beta):
    """Lower triangle of C <- βC; zeros for β = 0, whatever stands there."""
    if beta != 1.0:
        combine(c, c, alpha=beta, lower=True)


def info_words(like, count):
    """Return zeroed info words for `views_gpu.factor`, on the GPU of an array."""
    import cupy

    with like.device:
        return cupy.zeros(count, np.int32)


def check_pivot(a, info):
    """Set an info word of cuSOLVER's potrf to n if it is 0 but the last pivot is not finite.

    Parameters
    ----------
    a : (n, n) view
    info : (1,) cupy.ndarray of int32
    """
    if len(a):
        with a.device:
            _kernel("check_pivot", a)((1,), (1,), (a[-1:, -1:], np.int32(len(a)), info))


@contextmanager
def second_stream(like):
    """Run the enclosed operations on a second stream.

    They follow all earlier ones of the current stream, and run concurrently with those that follow
    this block. Memory allocated in the block is reused by this stream only, so no other stream
    overwrites it.

    Yields
    ------
    cupy.cuda.Stream
    """
    import cupy

    with like.device:
        now = cupy.cuda.get_current_stream().record()
        (stream,) = streams(like.device.id, 1)
        stream.wait_event(now)
        with stream:
            yield stream


def synchronize(like):
    """Wait until the second stream of an array's GPU has done all."""
    with like.device:
        streams(like.device.id, 1)[0].synchronize()


def wait_for(event, like):
    """Make later operations on an array's GPU wait for an event."""
    import cupy

    with like.device:
        cupy.cuda.get_current_stream().wait_event(event)


def _kernel(name, *arrays):
    """Return a kernel of cuda/combine.cu for arrays of some types."""
    return module("combine.cu").get_function("_".join((name, *(TYPES[a.dtype] for a in arrays))))


def _squares(shape):
    """Return the grid of a kernel whose blocks take SIDE by SIDE entries."""
    return tuple(-(-size // SIDE) for size in shape)


def _steps(a):
    """Return how many entries the next row and the next column are away."""
    return tuple(stride // a.itemsize for stride in a.strides)
