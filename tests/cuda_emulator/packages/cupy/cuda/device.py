"""Handles of libraries: each thread has its own for each device, as in CuPy."""

import threading

from cuda_emulator import machine

from . import Device

_local = threading.local()


def _handle(library):
    handles = _local.__dict__.setdefault(library, {})
    device = machine.current_device()
    if device not in handles:
        machine.count("handles created")
        handles[device] = machine.new_handle(library, device)
    return handles[device]


def get_cublas_handle():
    """Return this thread's handle of cuBLAS for the current device."""
    return _handle("cublas")


def get_cusolver_handle():
    """Return this thread's handle of cuSOLVER for the current device."""
    return _handle("cusolver")


def get_compute_capability():
    """Return the current device's generation."""
    return machine.CAPABILITY
