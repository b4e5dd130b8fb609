"""CuPy's memory pools over emulated GPUs."""

import threading
from contextlib import contextmanager

from cuda_emulator import machine
from cuda_emulator.arrays import MemoryPointer

from . import runtime

OutOfMemoryError = machine.OutOfMemory


_local = threading.local()


def alloc(size):
    """Return memory of the current device, from its pool except inside `using_allocator`."""
    try:
        return MemoryPointer(machine.Memory(size, pooled=getattr(_local, "pooled", True)))
    except machine.NoDeviceMemory:
        raise runtime.CUDARuntimeError(2, "cudaErrorMemoryAllocation: out of memory") from None


@contextmanager
def using_allocator(allocator=None):
    """Allocate this thread's memory from the device itself; None is the only allocator."""
    if allocator is not None:
        raise TypeError("the emulator's using_allocator takes None only")
    before, _local.pooled = getattr(_local, "pooled", True), False
    try:
        yield
    finally:
        _local.pooled = before


class MemoryPool:
    """The pools of all devices; each call is for the current one."""

    @property
    def _pool(self):
        return machine.pools[machine.current_device()]

    def used_bytes(self):
        """Bytes that arrays use."""
        return self._pool.used_bytes()

    def free_bytes(self):
        """Bytes that the pool keeps for later arrays."""
        return self._pool.free_bytes()

    def total_bytes(self):
        """Bytes taken from the device."""
        self._pool.free_bytes()
        return self._pool.total_bytes()

    def free_all_blocks(self, stream=None):
        """Return unused memory to the device."""
        self._pool.free_bytes()
        self._pool.free_all_blocks()

    def set_limit(self, size=None, fraction=None):
        """Bound the bytes taken from the device; 0 for no bound."""
        self._pool.limit = int(machine.MEMORY * fraction) if size is None else int(size)

    def get_limit(self):
        """Return the bound."""
        return self._pool.limit


class PinnedMemoryPool:
    """The pool of pinned host memory, which keeps nothing."""

    def free_all_blocks(self):
        """Do nothing."""

    def n_free_blocks(self):
        """Return how many blocks are kept."""
        return 0


_pool, _pinned = MemoryPool(), PinnedMemoryPool()


def get_default_memory_pool():
    """Return the pool of device memory."""
    return _pool


def get_default_pinned_memory_pool():
    """Return the pool of pinned memory."""
    return _pinned
