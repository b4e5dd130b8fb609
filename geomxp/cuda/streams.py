"""Streams that live as long as their thread, each with its own handle of cuBLAS.

CuPy has one handle for each thread and GPU. If several streams share a handle, cuBLAS may select
different kernels from run to run (its documentation, "Results reproducibility"), which changes the
last bits of the results. Hence one handle for each stream.
"""

import threading
import weakref

_mine = threading.local()


def streams(index, count):
    """Return this thread's first `count` streams of a GPU, creating those that do not exist yet.

    The default stream is not among them.

    Parameters
    ----------
    index : int
        Number of the GPU.
    count : int

    Returns
    -------
    list of cupy.cuda.Stream
    """
    import cupy
    from cupy_backends.cuda.libs import cublas

    known = _mine.__dict__.setdefault(index, [])
    with cupy.cuda.Device(index):
        while len(known) < count:
            stream, handle = cupy.cuda.Stream(non_blocking=True), cublas.create()
            weakref.finalize(stream, _destroy, handle).atexit = False
            known.append((stream, handle))
    return [stream for stream, _ in known[:count]]


def _destroy(handle):
    """Destroy a handle of cuBLAS whose stream is gone."""
    from cupy_backends.cuda.libs import cublas

    cublas.setStream(handle, 0)
    cublas.destroy(handle)


def cublas_handle():
    """Return the handle of this thread's current stream, or CuPy's for other streams."""
    import cupy
    from cupy.cuda.device import get_cublas_handle

    current = cupy.cuda.get_current_stream().ptr
    known = _mine.__dict__.get(cupy.cuda.Device().id, ()) if current else ()
    return next((handle for stream, handle in known if stream.ptr == current), None) or (
        get_cublas_handle()
    )
