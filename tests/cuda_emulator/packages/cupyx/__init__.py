"""Pinned host memory."""

import weakref

import numpy as np
from cuda_emulator import machine


def empty_pinned(shape, dtype=float, order="C"):
    """Return a NumPy array in pinned memory, with poison in it."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = np.full(max(count, 1), machine.POISON, np.uint8)
    address = memory.ctypes.data
    machine.register_host(address, len(memory))
    weakref.finalize(memory, machine.unregister_host, address).atexit = False
    return np.ndarray(shape, dtype, memory, order=order)


def zeros_pinned(shape, dtype=float, order="C"):
    """Return zeros in pinned memory."""
    array = empty_pinned(shape, dtype, order)
    array[...] = 0
    return array
