"""CUDA sources, and the few lines that load them."""

import gc
import weakref
from contextlib import nullcontext
from functools import cache
from importlib.resources import files
from threading import RLock

import numpy as np

OPTIONS = ("--std=c++14", "--fmad=false")
"""The sources write out each fma: none is to be added, so that the bits are those of the CPU."""

_copies, _copying = {}, RLock()


def source(name):
    """Return the text of a CUDA source; compilers find its lines by its name.

    Parameters
    ----------
    name : str
        A file of this folder.

    Returns
    -------
    str
        With the text of a file of ours in the place of its `#include "..."`.

    Examples
    --------
    >>> source("matern.cu").splitlines()[0]
    '#line 1 "matern.cu"'
    """
    lines = [f'#line 1 "{name}"']
    text = files(__name__).joinpath(name).read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith('#include "'):
            lines += [source(line.split('"')[1]), f'#line {number + 1} "{name}"']
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


@cache
def module(name, *options):
    """Return a CUDA source as a `cupy.RawModule`, compiled for each GPU when first used there.

    Parameters
    ----------
    name : str
    *options : str
        Of the compiler, besides OPTIONS.
    """
    import cupy

    return cupy.RawModule(code=source(name), options=(*OPTIONS, *options))


def device_of(array):
    """Return a context in which an array's GPU is current; for a NumPy array it does nothing.

    CuPy allocates on the current device, and its kernels refuse arrays of another one.
    """
    return nullcontext() if isinstance(array, np.ndarray) else array.device


def large_memory(count):
    """Allocate memory of the current GPU outside CuPy's pool.

    It returns to the GPU when it is freed. The pool would put small arrays into a freed block, and
    could then neither reuse nor release the rest of the block.

    Parameters
    ----------
    count : int
        Bytes.

    Returns
    -------
    cupy.cuda.MemoryPointer
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


def empty_matrix(n, index):
    """Return an uninitialized (n, n) FP64 matrix on a GPU, in Fortran order; see `large_memory`."""
    import cupy

    with cupy.cuda.Device(index):
        return cupy.ndarray((n, n), memptr=large_memory(8 * n * n), order="F")


def copy_on_gpu(array):
    """Return an array's copy on the current GPU, made once in the life of the array.

    Parameters
    ----------
    array : ndarray
        Which nobody changes.

    Returns
    -------
    cupy.ndarray
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
    if not made.done:
        # on another stream, perhaps
        cupy.cuda.get_current_stream().wait_event(made)
    return copy
