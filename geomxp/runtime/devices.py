"""Devices and their free memory: cores, memory, GPUs, and numba's compiler.

A container's limits count, not the numbers of the machine below it: CPU quota and memory limit of
the control group.
"""

import ctypes
import hashlib
import os
import platform
import re
import sys
from collections import deque
from contextlib import ContextDecorator, ExitStack, contextmanager, suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from math import ceil
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread, Timer
from time import perf_counter
from types import ModuleType

from ..errors import InvalidInput, MissingDevice, MissingPackage, NotEnoughMemory, one_line
from .progress import notice
from .turns import turn, working_for

COMPILER_MODULES = {
    "njit": "numba",
    "types": "numba",
    "cgutils": "numba.core",
    "cpu_target": "numba.core.registry",
    "binding": "llvmlite",
    "ir": "llvmlite",
} | dict.fromkeys(("intrinsic", "models", "overload", "register_model"), "numba.extending")
"""Names of numba and llvmlite that modules of compiled loops import from here."""


def __getattr__(name):
    """Import a name of `COMPILER_MODULES`; raise `MissingPackage` if numba is not installed.

    Modules of compiled loops are imported only inside the functions that call their loops, so that
    a fit on a GPU works without numba.
    """
    if name not in COMPILER_MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        # llvmlite's modules are attributes of it once numba is imported
        import_module("numba")
        _announce_compilation()
        return _njit if name == "njit" else getattr(import_module(COMPILER_MODULES[name]), name)
    except ImportError as error:
        raise MissingPackage(
            f"this computation on the CPU needs numba, which cannot be imported ({error}): "
            'pip install numba. Or compute on a GPU: gx.Exact(on="gpu") needs no numba.'
        ) from error


def _njit(*, cache=False, **options):
    """Return a decorator like numba's `njit`, whose kept code also depends on imported modules.

    numba compiles a function again if its file has changed. But functions that it calls, and values
    of constants, can come from other files: old code would stay in use after an upgrade.
    """

    def decorated(function):
        njit = import_module("numba").njit
        if not cache:
            return njit(**options)(function)
        try:
            compiled = njit(cache=True, **options)(function)
            kept = compiled._cache
            key, used = kept._index_key, imported(sys.modules[function.__module__])
        except (AttributeError, OSError, RuntimeError):
            # no directory can be written, or a file cannot be read; numba is switched off, or has
            # other attributes: code is compiled in each process
            return njit(**options)(function)
        kept._index_key = lambda *arguments: (*key(*arguments), used)
        return compiled

    return decorated


def imported(module):
    """Return a hash of what compiled loops of a module take from other modules.

    It covers the files of imported modules that define compiled loops, and the numbers, strings,
    tuples and arrays in all these modules.
    """
    # now, not when the file may have changed: other modules ask for it later
    _text(module)
    found, seen = hashlib.sha256(), {module}

    def add(module):
        for name, value in sorted(vars(module).items()):
            if isinstance(value, (int, float, str, tuple)) and not name.startswith("__"):
                found.update(f"{name}={value!r};".encode())
            elif hasattr(value, "tobytes") and not isinstance(value, type):
                found.update(f"{name}={value.dtype}{value.shape}".encode() + value.tobytes())
            named = getattr(value, "__module__", None)
            owner = value if isinstance(value, ModuleType) else sys.modules.get(named)
            if owner not in seen and not _COMPILING_NAMES.isdisjoint(
                getattr(owner, "__dict__", ())
            ):
                seen.add(owner)
                found.update(owner.__name__.encode() + _text(owner))
                add(owner)

    add(module)
    return found.digest()


_COMPILING_NAMES = {"njit", "intrinsic", "by_llvm"}
"""Names in modules that define compiled loops."""


@cache
def _text(module):
    """Return the text of a module's file; a module without one has its text's hash in its name."""
    path = getattr(module, "__file__", None)
    return module.__loader__.get_data(path) if path else b""


COMPILATION_NOTICE_SECONDS = 1.0
"""Seconds of compilation after which the user is told."""


@cache
def _announce_compilation():
    """Arrange for one notice if numba compiles for longer than `COMPILATION_NOTICE_SECONDS`."""
    event, here = import_module("numba.core.event"), copy_context()

    def tell():
        text = "compiling code for this machine; it is kept, so that only the first run waits."
        here.run(notice, text, warn=False)

    class Listener(event.Listener):
        # functions that a function calls are compiled inside it, in the same thread: numba locks
        depth, spent, timer = 0, 0.0, None

        def on_start(self, _):
            self.depth += 1
            if self.depth == 1 and self.spent < COMPILATION_NOTICE_SECONDS:
                self.began = perf_counter()
                self.timer = Timer(COMPILATION_NOTICE_SECONDS - self.spent, tell)
                self.timer.daemon = True
                self.timer.start()

        def on_end(self, _):
            self.depth -= 1
            if self.depth == 0 and self.spent < COMPILATION_NOTICE_SECONDS:
                self.timer.cancel()
                self.spent += perf_counter() - self.began

    event.register("numba:compile", Listener())


_most = ContextVar("most", default=None)


@contextmanager
def at_most(cores):
    """Let `usable_cores` return at most this number in the calling thread."""
    before = _most.set(min(cores, _most.get() or cores))
    try:
        yield
    finally:
        _most.reset(before)


def usable_cores():
    """Return the number of cores that this process may use, at least 1.

    The smallest of its affinity, its container's CPU quota, OMP_NUM_THREADS and `at_most`.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    limits = [cores, ceil(cpu_quota() or cores)]
    requested = _requested("OMP_NUM_THREADS")
    if requested is not None:
        limits.append(requested)
    if _most.get() is not None:
        limits.append(_most.get())
    return max(1, min(limits))


def _requested(variable):
    """Return the number of threads that an environment variable asks for, or None."""
    first = os.environ.get(variable, "").partition(",")[0]
    return int(first) if first.isdigit() else None


@cache
def cpu_quota(root="/sys/fs/cgroup"):
    """Return the cores that the control group grants (v2, then v1), or None without a limit."""
    unified = _read(root, "cpu.max")
    if unified:
        quota, period = [*unified.split(), "100000"][:2]
        return None if quota == "max" else int(quota) / int(period)
    quota = _read(root, "cpu/cpu.cfs_quota_us")
    period = _read(root, "cpu/cpu.cfs_period_us")
    return int(quota) / int(period) if quota and period and int(quota) > 0 else None


def free_memory():
    """Return the bytes of memory that this process can still take without swapping."""
    match = re.search(r"^MemAvailable:\s*(\d+) kB$", _read("/proc/meminfo") or "", re.MULTILINE)
    if match:
        free = 1024 * int(match[1])
    else:
        # not Linux
        import psutil

        free = psutil.virtual_memory().available
    limit = memory_limit()
    return free if limit is None else max(0, min(free, limit))


def require_memory(what, needed, remedy, free=None, kind="memory"):
    """Raise `NotEnoughMemory` if a request needs more bytes than are free.

    `what` begins the message, such as "a tile needs", and `remedy` says what to do instead for this
    request.

    Examples
    --------
    >>> require_memory("a matrix of order 1,000 needs", 8_000_000, "use a smaller one")
    """
    free = free_memory() if free is None else free
    if needed > free:
        raise NotEnoughMemory(
            f"{what} {human_bytes(needed)} of {kind}, {human_bytes(free)} free: {remedy}."
        )


def memory_limit(root="/sys/fs/cgroup"):
    """Return what is left of the control group's memory, or None without a limit."""
    for limit_file, used_file in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        limit, used = _read(root, limit_file), _read(root, used_file)
        if limit and used and limit != "max" and int(limit) < 2**60:
            return int(limit) - int(used)
    return None


def _read(*path):
    try:
        return Path(*path).read_text().strip()
    except OSError:
        return None


def in_threads(work, items, entries):
    """Return [work(item) for item in items], by one thread per core if `entries` is large.

    `work` should release the interpreter's lock. `entries` counts the matrix entries of all items:
    one thread computes fewer than 100,000. If items fail, the first one's error is raised.
    """
    items = list(items)
    threads = min(len(items), 1 + entries // 100_000)
    if threads < 2 or (threads := min(threads, usable_cores())) < 2:
        return [work(item) for item in items]
    from concurrent.futures import ThreadPoolExecutor

    results, remaining = [None] * len(items), iter(range(len(items)))
    failures = []

    @working_for
    def serve(_):
        for k in remaining:
            try:
                results[k] = work(items[k])
            except BaseException as error:
                failures.append((k, error))
                # no thread begins another item
                deque(remaining, 0)

    with ThreadPoolExecutor(threads) as pool:
        try:
            # one task for each thread: a task for each item would add 10 µs per item
            deque(pool.map(serve, range(threads)), 0)
        finally:
            # Ctrl-C interrupts this thread only
            deque(remaining, 0)
    if failures:
        # the error of the first item: those before it were begun earlier, and have ended
        failures.sort(key=lambda failure: failure[0])
        raise failures.pop(0)[1]
    return results


# Kept threads: starting a thread takes about 0.1 ms.

_idle = []
"""The kept threads that are idle, with their task queues; a list's methods need no lock."""

if hasattr(os, "register_at_fork"):
    # a child process has none of the threads
    os.register_at_fork(after_in_child=_idle.clear)


def in_kept_thread(work, elsewhere=False):
    """Call `work`, which must not raise, in a thread that is idle or a new one.

    Return a function that waits until it has ended. With `elsewhere`, on Linux, the thread is not
    woken on the core of the calling thread if there is another: Linux often wakes it there although
    another core is idle, and it waits for milliseconds.
    """
    try:
        thread, tasks = _idle.pop()
    except IndexError:
        tasks = SimpleQueue()
        thread = Thread(target=_serve, args=(tasks,), name="geomxp", daemon=True)
        thread.start()
    cores = None
    if hasattr(os, "sched_setaffinity"):
        cores = set(os.sched_getaffinity(0))
        if elsewhere:
            _run_on(thread.native_id, cores - {_current_core()})
    done = Event()
    tasks.put((work, done, thread, cores))
    return done.wait


def _run_on(thread, cores):
    """Let a thread run on these cores only; 0 is the calling thread."""
    # there may be none, and the system may have taken some away
    with suppress(OSError):
        os.sched_setaffinity(thread, cores)


def _current_core():
    """Return the number of the core on which the calling thread runs, or None."""
    found = getattr(_C_LIBRARY, "sched_getcpu", None)
    return found() if found else None


_C_LIBRARY = ctypes.PyDLL(None) if sys.platform == "linux" else None
"""The C library, called without releasing the interpreter's lock."""


def _serve(tasks):
    _reset_floating_point()
    while True:
        work, done, thread, cores = tasks.get()
        if cores:
            # it is awake: from now on it may run on all cores of the thread that called it
            _run_on(0, cores)
        try:
            work()
        finally:
            # keep no reference to a task's memory while waiting for the next one
            del work
            _idle.append((thread, tasks))
            done.set()


def share(work, items, threads):
    """Call work(item) for each item in `threads` threads: this one and kept ones.

    For brief work that releases the interpreter's lock and leaves little memory to its thread.
    Other work is shared by `in_threads`, whose threads end and free theirs. If items fail, one of
    the errors is raised.
    """
    items, failures = list(items), []
    remaining = iter(items)

    @working_for
    def serve():
        try:
            for item in remaining:
                work(item)
        except BaseException as error:
            failures.append(error)
            # no thread begins another item
            deque(remaining, 0)

    waits = []
    try:
        for _ in range(min(len(items), threads) - 1):
            waits.append(in_kept_thread(serve, elsewhere=True))
        serve()
        for wait in waits:
            wait()
    except BaseException:
        # Ctrl-C: each thread ends after its current item
        deque(remaining, 0)
        for wait in waits:
            wait()
        raise
    if failures:
        raise failures.pop(0)


LEAST_THREADED_ORDER = 600
"""Below this order of a matrix one BLAS thread is fastest."""


def blas_threads(order):
    """Let BLAS use all usable cores inside the block, or one thread for matrices of small order.

    OPENBLAS_NUM_THREADS, if it is set, limits them. The number holds for all Python threads: those
    that need another one take turns (`turns`).
    """
    cores = usable_cores()
    most = min(cores, _requested("OPENBLAS_NUM_THREADS") or cores)
    return turn(1 if order < LEAST_THREADED_ORDER else most)


class _FloatingPoint(ctypes.Structure):
    """Linux's `fenv_t` on x86-64: the environment of the x87 unit, and the register MXCSR."""

    _fields_ = (("x87", ctypes.c_uint32 * 7), ("mxcsr", ctypes.c_uint32))


FLUSH_SUBNORMALS_BITS = 0x8040
"""Bits of MXCSR: subnormal results are 0, and so are subnormal operands."""


def _has_mxcsr():
    return sys.platform == "linux" and platform.machine() == "x86_64"


def _reset_floating_point():
    """Set the default floating-point mode: a thread inherits that of the thread that starts it."""
    if _has_mxcsr():
        default = ctypes.c_void_p(-1)
        ctypes.CDLL(None).fesetenv(default)


@contextmanager
def subnormals_as_zero():
    """Treat subnormal numbers as 0 on this thread, to which BLAS is limited.

    An operation with subnormal numbers takes more than 100 cycles on many processors. Threads that
    start in the block inherit this mode, except kept threads (`share`). On other systems than Linux
    on x86-64 nothing changes.
    """
    if not _has_mxcsr():
        yield
        return
    c, before = ctypes.CDLL(None), _FloatingPoint()
    c.fegetenv(ctypes.byref(before))
    inside = _FloatingPoint(before.x87, before.mxcsr | FLUSH_SUBNORMALS_BITS)
    with blas_threads(1):
        c.fesetenv(ctypes.byref(inside))
        try:
            yield
        finally:
            c.fesetenv(ctypes.byref(before))


LIMITS_BY_THREAD = []
"""Context managers of libraries whose thread count can be set for the calling thread alone.

Each takes a number of cores. A module that loads such a library adds its own (MKL: `linalg.blas`).
"""


@contextmanager
def pinned(cores=1):
    """Enclose a task of a Dask worker, which has one thread for each core that it may use."""
    with ExitStack() as limits:
        limits.enter_context(at_most(cores))
        limits.enter_context(blas_threads(LEAST_THREADED_ORDER))
        for limit in LIMITS_BY_THREAD:
            limits.enter_context(limit(cores))
        yield


@dataclass(frozen=True)
class Device:
    """The CPU, "cpu" without an index, or one GPU, "gpu:N" with index N."""

    name: str
    index: int | None = None

    def free_memory(self):
        """Return the free bytes of this device's memory."""
        if self.index is None:
            return free_memory()
        import cupy

        with cupy.cuda.Device(self.index):
            return cupy.cuda.runtime.memGetInfo()[0] + cupy.get_default_memory_pool().free_bytes()


PER_THREAD_STREAM_VARIABLE = "CUPY_CUDA_PER_THREAD_DEFAULT_STREAM"
"""With this variable set CuPy gives each thread its own stream: tiles could be read too early."""


def resolve(on):
    """Return the `Device` called "cpu", "gpu" or "gpu:N", if it can be used."""
    if on == "cpu":
        return Device("cpu")
    match = re.fullmatch(r"gpu(:\d+)?", str(on), re.ASCII)
    if match is None:
        raise InvalidInput(f'`on` must be "cpu", "gpu" or "gpu:N". Got {on!r}.')
    index, count = int((match[1] or ":0")[1:]), gpu_count()
    if index >= count:
        raise MissingDevice(f'on="{on}" needs GPU number {index}; this machine has {count}.')
    if os.environ.get(PER_THREAD_STREAM_VARIABLE, "0") not in ("", "0"):
        raise InvalidInput(
            f'on="{on}" needs one CUDA stream that all threads share. '
            f"Got {PER_THREAD_STREAM_VARIABLE}={os.environ[PER_THREAD_STREAM_VARIABLE]}: unset it."
        )
    return Device(f"gpu:{index}", index)


def resolve_all(on):
    """Return the devices of a list of names, or of a string of names separated by commas.

    A device named more than once acts as several devices that share its memory.
    """
    names = on.split(",") if isinstance(on, str) else on
    if not isinstance(names, (list, tuple)) or not names:
        raise InvalidInput(f"`on` must be the name of a device, or a list of names. Got {on!r}.")
    devices = tuple(resolve(str(name).strip()) for name in names)
    if len({device.index is None for device in devices}) > 1:
        raise InvalidInput(f"`on` must name CPUs or GPUs, not both. Got {on!r}.")
    return devices


def is_cluster(on):
    """Whether `on` is a Dask cluster: a client, or an address such as "tcp://host:8786"."""
    return (isinstance(on, str) and "://" in on) or is_client(on)


def is_client(on):
    """Whether `on` is a Dask client."""
    # a client exists only after its library was imported; None while a thread imports it
    kind = getattr(sys.modules.get("distributed"), "Client", None)
    return kind is not None and isinstance(on, kind)


def gpu_count():
    """Return the number of GPUs that CuPy finds; raise `MissingDevice` without CuPy or a driver."""
    try:
        import cupy
    except ImportError:
        raise MissingDevice(
            'on="gpu" needs CuPy, which is not installed: pip install "geomxp[gpu]".'
        ) from None
    try:
        return cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise MissingDevice(
            f'on="gpu" needs an NVIDIA GPU and its driver: {one_line(error)}.'
        ) from None


OUT_OF_MEMORY_STATUS = {
    "CUDARuntimeError": 2,
    "CUDADriverError": 2,
    "CUBLASError": 3,
    "CUSOLVERError": 2,
}
"""Status code "out of memory" of each CuPy error class."""


class gpu_memory(ContextDecorator):  # noqa: N801 (used as a function)
    """Turn CuPy's out-of-memory errors into `NotEnoughMemory`, in a block or as a decorator."""

    def __init__(self, remedy=None):
        self.remedy = remedy or (
            'keep most tiles in RAM (--device-memory 20GB, gx.Exact(on="gpu", '
            'device_memory="20GB")), or use Vecchia\'s approximation (--method vecchia, '
            'gx.Vecchia(30, on="gpu")).'
        )

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if not isinstance(error, Exception):
            return
        of_cupy = kind.__module__.partition(".")[0] in ("cupy", "cupy_backends")
        status = OUT_OF_MEMORY_STATUS.get(kind.__name__)
        full = isinstance(error, MemoryError) or (status is not None and error.status == status)
        if not (of_cupy and full):
            return
        raise NotEnoughMemory(
            f"the memory of the GPU is exhausted ({error}): {self.remedy}"
        ) from None


def human_bytes(count):
    """Format a number of bytes, such as "7.5 GB"."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} bytes"


BYTES_PER_UNIT = {"": 1, "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12} | {
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip


def bytes_of(name, text):
    """Parse the argument `name`, a size in bytes: a number, or text such as "1.5GB"."""
    match = re.fullmatch(r"\s*([0-9.]+(?:[eE][0-9]+)?)\s*([A-Za-z]*)\s*", str(text))
    try:
        count = float(match[1]) * BYTES_PER_UNIT[match[2].lower()]
    except (TypeError, ValueError, KeyError):
        count = 0.0
    if not 1 <= count < 2**62:
        raise InvalidInput(f'`{name}` must be a size such as "4GB" or "512MB". Got {text!r}.')
    return int(count)
