"""Names from numba and llvmlite; importing this module without them raises `MissingPackage`.

Modules of compiled loops import these names from here. Such a module is imported only inside the
functions that call its loops, so that a fit on a GPU works without numba.
"""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from math import ceil
from pathlib import Path

from ..errors import InvalidInput, MissingDevice, MissingPackage, NotEnoughMemory

try:
    from llvmlite import binding, ir
    from numba import njit, types
    from numba.core import cgutils
    from numba.extending import intrinsic, models, overload, register_model
except ImportError as error:
    raise MissingPackage(
        f"this computation on the CPU needs numba, which cannot be imported ({error}): "
        'pip install numba. Or compute on a GPU: gx.Exact(on="gpu") needs no numba.'
    ) from error

__all__ = [
    "binding",
    "cgutils",
    "intrinsic",
    "ir",
    "models",
    "njit",
    "overload",
    "register_model",
    "types",
]


# Where work can be done, and how much room there is: cores, memory, GPUs.
#
# Containers are believed: a CPU quota or a memory limit of the control group counts, not the
# machine's own numbers.


_most = ContextVar("most", default=None)


@contextmanager
def at_most(cores):
    """Let the calling thread use so many cores at most inside the block; see `usable_cores`."""
    before = _most.set(cores)
    try:
        yield
    finally:
        _most.reset(before)


def usable_cores():
    """Return how many cores this process may use, at least 1.

    The least of its affinity, its container's CPU quota, OMP_NUM_THREADS and `at_most`.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    limits = [cores, ceil(_cpu_quota() or cores)]
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    if asked.isdigit():
        limits.append(int(asked))
    if _most.get() is not None:
        limits.append(_most.get())
    return max(1, min(limits))


def _cpu_quota(root="/sys/fs/cgroup"):
    """Return the cores that the control group grants (v2, then v1), or None without a limit."""
    unified = _read(Path(root, "cpu.max"))
    if unified:
        quota, period = [*unified.split(), "100000"][:2]
        return None if quota == "max" else int(quota) / int(period)
    quota = _read(Path(root, "cpu/cpu.cfs_quota_us"))
    period = _read(Path(root, "cpu/cpu.cfs_period_us"))
    return int(quota) / int(period) if quota and period and int(quota) > 0 else None


def free_memory():
    """Return the bytes of memory that this process can still take without swapping."""
    free = _available_memory()
    limit = _memory_limit()
    return free if limit is None else max(0, min(free, limit))


def _available_memory(path="/proc/meminfo"):
    """Return the bytes of available memory: MemAvailable on Linux, psutil's figure elsewhere."""
    found = re.search(r"^MemAvailable:\s*(\d+) kB$", _read(Path(path)) or "", re.MULTILINE)
    if found:
        return int(found[1]) * 1024
    import psutil

    return psutil.virtual_memory().available


def _memory_limit(root="/sys/fs/cgroup"):
    """Return what is left of the control group's memory, or None without a limit."""
    for limit_file, used_file in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        limit, used = _read(Path(root, limit_file)), _read(Path(root, used_file))
        if limit and used and limit != "max" and int(limit) < 2**60:
            return int(limit) - int(used)
    return None


def _read(path):
    try:
        return path.read_text().strip()
    except OSError:
        return None


def in_threads(work, items, entries):
    """Return [work(item) for item in items], by a thread a core where that is worth it.

    Parameters
    ----------
    work : callable
        Should release the interpreter's lock.
    items : iterable
    entries : int
        How many matrix entries all of them are: below some 100,000 one thread does it.
    """
    items = list(items)
    threads = min(len(items), 1 + entries // 100_000)
    if threads < 2 or (threads := min(threads, usable_cores())) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, items))


SMALL = 600
"""Orders of matrices that one BLAS thread handles best: more only wait for each other."""


@contextmanager
def blas_threads(order):
    """Let BLAS use the usable cores inside the block, or one thread for a small matrix.

    Without threadpoolctl the number of BLAS's threads is not changed.

    Parameters
    ----------
    order : int
        Of the matrices in the block.
    """
    pools = _threadpools()
    if pools is None:
        yield
        return
    with pools.limit(limits=1 if order < SMALL else usable_cores()):
        yield


@cache
def _threadpools():
    """Return the controller of the BLAS libraries, or None where threadpoolctl is missing."""
    import scipy.linalg  # noqa: F401  (its BLAS must be loaded to be found)

    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()


@dataclass(frozen=True)
class Device:
    """A place where arrays live: the CPU, or one GPU.

    Parameters
    ----------
    name : str
        "cpu" or "gpu:N".
    index : int or None
        The GPU's number.
    """

    name: str
    index: int | None = None

    def free_memory(self):
        """Return the free bytes of this device's memory."""
        if self.index is None:
            return free_memory()
        import cupy

        with cupy.cuda.Device(self.index):
            return cupy.cuda.runtime.memGetInfo()[0] + cupy.get_default_memory_pool().free_bytes()


STREAM_OF_ITS_OWN = "CUPY_CUDA_PER_THREAD_DEFAULT_STREAM"
"""With this CuPy gives each thread a stream, and a tile could be read before it is written."""


def resolve(on):
    """Return the device that the caller names.

    Parameters
    ----------
    on : str
        "cpu", "gpu" or "gpu:N".

    Raises
    ------
    MissingDevice
        If there is no such GPU or no CuPy to reach it with.
    InvalidInput
        If it is none of these names, or CuPy was told to give each thread a stream of its own.
    """
    if on == "cpu":
        return Device("cpu")
    kind, _, number = str(on).partition(":")
    if kind != "gpu" or not (number.isdigit() or (not number and on == "gpu")):
        raise InvalidInput(f'`on` must be "cpu", "gpu" or "gpu:N". Got {on!r}.')
    index = int(number or 0)
    count = gpu_count()
    if index >= count:
        raise MissingDevice(f'on="{on}" needs GPU number {index}; this machine has {count}.')
    if os.environ.get(STREAM_OF_ITS_OWN, "0") not in ("", "0"):
        raise InvalidInput(
            f'on="{on}" lets threads share one stream, in whose order tiles are finished. '
            f"Got {STREAM_OF_ITS_OWN}={os.environ[STREAM_OF_ITS_OWN]}: unset it."
        )
    return Device(f"gpu:{index}", index)


def resolve_all(on):
    """Return the devices that the caller names: one, or a list of them.

    A device may stand in a list more than once: it is then several logical ones, which share it.

    Parameters
    ----------
    on : str or sequence of str
        See `resolve`; a string may hold several names with commas between them.

    Returns
    -------
    tuple of Device
    """
    names = on.split(",") if isinstance(on, str) else on
    if not isinstance(names, (list, tuple)) or not names:
        raise InvalidInput(f"`on` must be a device's name, or a list of at least one. Got {on!r}.")
    devices = tuple(resolve(str(name).strip()) for name in names)
    if len({device.index is None for device in devices}) > 1:
        raise InvalidInput(f"`on` must name CPUs or GPUs, not both. Got {on!r}.")
    return devices


def gpu_count():
    """Return the number of GPUs that CuPy sees.

    Raises
    ------
    MissingDevice
        If CuPy or the driver is missing, with what to install.
    """
    try:
        import cupy
    except ImportError:
        raise MissingDevice(
            'on="gpu" needs CuPy, which is not installed: pip install "geomxp[gpu]".'
        ) from None
    try:
        return cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        reason = " ".join(str(error).split())
        raise MissingDevice(f'on="gpu" needs an NVIDIA GPU and its driver: {reason}.') from None


OUT_OF_MEMORY = {"CUDARuntimeError": 2, "CUDADriverError": 2, "CUBLASError": 3, "CUSOLVERError": 2}
"""Status of an exhausted memory, by CuPy's class of the error."""


@contextmanager
def gpu_memory():
    """Raise `NotEnoughMemory` when a GPU's memory is exhausted; a context and a decorator.

    Raises
    ------
    NotEnoughMemory
        Instead of CuPy's own errors.
    """
    try:
        yield
    except Exception as error:
        of_cupy = type(error).__module__.partition(".")[0] in ("cupy", "cupy_backends")
        status = OUT_OF_MEMORY.get(type(error).__name__)
        full = isinstance(error, MemoryError) or (status is not None and error.status == status)
        if not (of_cupy and full):
            raise
        raise NotEnoughMemory(
            f"the memory of the GPU is exhausted ({error}): use fewer places, or a method that "
            'needs less: gx.Exact(on="gpu", device_memory="20GB") keeps most tiles in RAM.'
        ) from None


def human_bytes(count):
    """Return a number of bytes as people say it.

    Examples
    --------
    >>> human_bytes(7.5e9)
    '7.5 GB'
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} bytes"


UNITS = {"": 1, "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12} | {
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip


def bytes_of(name, text):
    """Return a number of bytes that people have written.

    Parameters
    ----------
    name : str
        Of the argument, for the message.
    text : str or int

    Examples
    --------
    >>> bytes_of("memory", "1.5GB"), bytes_of("memory", 4096)
    (1500000000, 4096)
    """
    found = re.fullmatch(r"\s*([0-9.]+(?:[eE][0-9]+)?)\s*([A-Za-z]*)\s*", str(text))
    try:
        count = float(found[1]) * UNITS[found[2].lower()]
    except (TypeError, ValueError, KeyError):
        count = 0.0
    if not 1 <= count < 2**62:
        raise InvalidInput(f'`{name}` must be a size such as "4GB" or "512MB". Got {text!r}.')
    return int(count)
