"""GPU memory, and streams that live as long as their thread, each with its own cuBLAS handle.

CuPy has one handle for each thread and GPU. If several streams share a handle, cuBLAS may select
different kernels from run to run (its documentation, "Results reproducibility"), which changes the
last bits of the results. Hence one handle for each stream.
"""

import gc
import threading
import weakref

_mine = threading.local()
_copies, _copying = {}, threading.RLock()


def streams(index, count):
    """Return this thread's first `count` streams of GPU `index`, created when first needed.

    The default stream is not among them.
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


def large_memory(count):
    """Allocate bytes of the current GPU outside CuPy's pool; return a cupy.cuda.MemoryPointer.

    They return to the GPU when they are freed. The pool would put small arrays into a freed block,
    and could then neither reuse nor release the rest of the block.
    """
    import cupy

    with cupy.cuda.using_allocator(None):
        try:
            return cupy.cuda.alloc(count)
        except cupy.cuda.runtime.CUDARuntimeError:
            # as the pool does: free arrays in reference cycles, and memory that the pool keeps
            gc.collect()
            cupy.get_default_memory_pool().free_all_blocks()
            return cupy.cuda.alloc(count)


def empty_matrix(n, index, dtype="float64"):
    """Return an uninitialized (n, n) matrix on a GPU, in Fortran order; see `large_memory`."""
    import cupy

    with cupy.cuda.Device(index):
        size = cupy.empty(0, dtype).itemsize
        return cupy.ndarray((n, n), dtype, memptr=large_memory(size * n * n), order="F")


def copy_on_gpu(array):
    """Return the copy of a NumPy array, which nobody changes, on the current GPU.

    It is made once in the life of the array.
    """
    import cupy

    key = cupy.cuda.Device().id, id(array)
    # a second copy would be freed while kernels of other threads still read it
    with _copying:
        if key not in _copies:
            copy = cupy.asarray(array)
            _copies[key] = copy, cupy.cuda.get_current_stream().record()
            weakref.finalize(array, _copies.pop, key, None).atexit = False
        copy, made = _copies[key]
    if made is not None:
        if made.done:
            # it is complete: later calls skip the query
            _copies[key] = copy, None
        else:
            # on another stream, perhaps
            cupy.cuda.get_current_stream().wait_event(made)
    return copy
