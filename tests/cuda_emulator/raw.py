"""CuPy's raw modules and kernels: CUDA sources compiled for the host."""

import ctypes
from functools import cache

import numpy as np

from . import host_kernels, machine
from .arrays import ndarray

GRANTED = 48 * 1024
"""Bytes of shared memory that a block gets without asking."""


@cache
def _compiled(code, name, options):
    return host_kernels.HostKernel(code, name, options)


class RawModule:
    """A CUDA source.

    Parameters
    ----------
    code : str
    options : tuple of str
    """

    def __init__(self, *, code, options=()):
        self.code, self.options, self._functions = code, tuple(options), {}

    def get_function(self, name):
        """Return a kernel, the same object each time, as CuPy does for a device."""
        key = name, machine.current_device()
        if key not in self._functions:
            self._functions[key] = RawKernel(self.code, name, self.options)
        return self._functions[key]


class RawKernel:
    """A kernel; a call with grid, block and arguments puts it on the current stream."""

    def __init__(self, code, name, options=()):
        self.name, self._kernel = name, _compiled(code, name, tuple(options))
        self.max_dynamic_shared_size_bytes = GRANTED
        self._checked = None

    def __call__(self, grid, block, args, *, shared_mem=0):
        grid, block = ((*sizes, 1, 1)[:3] for sizes in (grid, block))
        limit = max(GRANTED, self.max_dynamic_shared_size_bytes)
        if shared_mem > min(limit, machine.SHARED_MEMORY):
            machine.fault(f"{self.name}: {shared_mem} bytes of shared memory, {limit} allowed")
        values, allocations = [], []
        for position, argument in enumerate(args):
            if isinstance(argument, ndarray):
                device = argument._memory.device
                if device != machine.current_device():
                    machine.fault(
                        f"wrong device: argument {position} of {self.name} is in the memory of "
                        f"device {device}, the current one is {machine.current_device()} "
                        f"({machine.caller()})"
                    )
                allocations.append(argument._memory.allocation)
            values.append(_value(argument))
        signature = [(kind, ctypes.sizeof(value)) for kind, value in values]
        if signature != self._checked:
            try:
                self._kernel.check(signature)
            except host_kernels.KernelError as error:
                machine.fault(str(error))
            self._checked = signature
        machine.count("launches")
        machine.count(f"kernel {self.name}")
        if machine.recordings:
            arrays = [x._a for x in args if isinstance(x, ndarray)]
            scalars = tuple(float(x) for x in args if isinstance(x, (int, float, np.number)))
            machine.note("kernel", self.name, arrays, scalars)
        order, raw = machine.order(), [value for _, value in values]

        def work():
            try:
                self._kernel.launch(grid, block, shared_mem, raw, order=order, shared_limit=limit)
            except host_kernels.KernelError as error:
                machine.fault(str(error))
            for allocation in allocations:
                allocation.check_margins()

        machine.enqueue(self.name, work, allocations)


def _value(argument):
    """Return an argument's kind and its bytes, as CuPy passes it."""
    if isinstance(argument, ndarray):
        return "pointer", ctypes.c_void_p(argument.address)
    if argument is None:
        # CuPy makes 0xffffffff of None, not a null pointer: github.com/cupy/cupy/issues/9046
        raise TypeError("CuPy does not pass None as a null pointer: pass an array and a flag")
    if isinstance(argument, np.generic):
        kind = {"f": "real", "V": "struct"}.get(argument.dtype.kind, "integer")
        return kind, (ctypes.c_char * argument.itemsize).from_buffer_copy(argument.tobytes())
    if isinstance(argument, int):
        return "integer", ctypes.c_int64(argument)
    if isinstance(argument, float):
        return "real", ctypes.c_double(argument)
    raise TypeError(f"Unsupported type {type(argument)}")
