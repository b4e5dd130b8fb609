"""An emulated machine with GPUs: memory, streams of deferred operations, counters and faults.

Operations on a device are not done when they are called. Each stream is a queue; the emulator
executes the queued operations in a seeded adversarial order that respects only what CUDA promises:
the order within a stream, events, synchronizations, and the default stream's barriers. A missing
wait therefore gives wrong numbers, NaN poison or a `Fault`.

Every violation is recorded in `faults` besides being raised, since code under test may catch it.
"""

import atexit
import ctypes
import mmap
import os
import random
import sys
import threading
import weakref
from bisect import bisect_right, insort
from collections import Counter, deque
from contextlib import contextmanager
from functools import cache
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

DEVICES = int(os.environ.get("GEOMXP_EMULATOR_DEVICES", "2"))
MEMORY = int(os.environ.get("GEOMXP_EMULATOR_MEMORY", str(4 << 30)))
"""Bytes of each device."""

PROCESSORS = int(os.environ.get("GEOMXP_EMULATOR_PROCESSORS", "3"))
"""Multiprocessors of each device; few, so that grid-stride loops take several turns."""

CAPABILITY = os.environ.get("GEOMXP_EMULATOR_CAPABILITY", "90")
SHARED_MEMORY = 232_448
"""Bytes of shared memory that a block may ask for, as on an H200."""

ALIGNMENT = 512
"""Of allocations, as in CuPy's memory pool."""

POISON = 0xFF
"""Each byte of memory that nobody has written: NaN in every floating-point format."""

HERE = str(Path(__file__).resolve().parent)

counts = Counter()
"""What has been done: launches, library calls, synchronizations, bytes moved, allocations, ..."""

REPORTS = os.environ.get("GEOMXP_EMULATOR_FAULTS")
"""File to which processes started by a test append their faults."""

faults = []
"""All violations so far, as text."""

_lock = threading.RLock()
_local = threading.local()


class Fault(RuntimeError):
    """A violation that may give a wrong result or a crash on a GPU."""


class OutOfMemory(MemoryError):
    """CuPy's OutOfMemoryError."""


OutOfMemory.__module__, OutOfMemory.__name__ = "cupy.cuda.memory", "OutOfMemoryError"


class NoDeviceMemory(Exception):
    """CUDA's error for memory that a device does not have."""


def fault(message):
    """Record a violation and raise it."""
    faults.append(message)
    if REPORTS:
        with open(REPORTS, "a") as file:
            file.write(message + "\n")
    raise Fault(message)


def count(name, by=1):
    """Add to a counter."""
    with _lock:
        counts[name] += by


@contextmanager
def counting():
    """Yield a Counter of the work done in the block, filled at its end."""
    found = Counter()
    with _lock:
        before = counts.copy()
    yield found
    with _lock:
        found.update(counts - before)


recordings = []


@contextmanager
def recording():
    """Yield a list of what is asked of the devices in the block, in order: tuples of `note`."""
    notes = []
    recordings.append(notes)
    try:
        yield notes
    finally:
        # by identity: lists that are equal are not the same recording
        recordings[:] = [other for other in recordings if other is not notes]


def note(kind, name="", operands=(), about=None, queue=None):
    """Add a (kind, name, ((shape, dtype, strides), ...), about, stream) to the recordings.

    Parameters
    ----------
    kind : str
        "library", "kernel", "function", "memset", "to device", "to host", "synchronize"; "record"
        of a moment of a stream, and "wait" for it.
    name : str
    operands : sequence of numpy.ndarray, or of callables that return one
    about : optional
        What the kind adds: an arithmetic, the numbers among a kernel's arguments, the bytes of a
        copy, the moment that is waited for.
    queue : Queue, optional
        The current stream if not given.
    """
    if recordings:
        arrays = (x() if callable(x) else x for x in operands)
        shapes = tuple((x.shape, x.dtype, x.strides) for x in arrays)
        seen = kind, name, shapes, about, (queue or current_queue()).number
        with _lock:
            for notes in recordings:
                notes.append(seen)


class Place(NamedTuple):
    """A line of a file. Its text is made only where a message has it."""

    path: str
    line: int

    def __str__(self):
        return f"{os.path.basename(self.path)}:{self.line}"


@cache
def _is_ours(path):
    return path.startswith(HERE)


def caller():
    """Return the file and line outside the emulator that made the current call."""
    frame = sys._getframe(1)
    while frame is not None and _is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return "?" if frame is None else Place(frame.f_code.co_filename, frame.f_lineno)


# --- devices ------------------------------------------------------------------------------------


def current_device():
    """Return the number of this thread's current device."""
    return getattr(_local, "device", 0)


def set_device(index):
    """Make a device the current one of this thread."""
    if not 0 <= index < DEVICES:
        raise RuntimeError(f"cudaErrorInvalidDevice: invalid device ordinal {index}")
    _local.device = index


# --- streams and events -------------------------------------------------------------------------


class Moment:
    """The point of a stream after its first `count` operations."""

    __slots__ = ("count", "stream")

    def __init__(self, stream, count):
        self.stream, self.count = stream, count

    @property
    def reached(self):
        """Whether the operations before it are done."""
        return self.stream.executed >= self.count


class Operation:
    """Deferred work, and the moments that it waits for.

    Parameters
    ----------
    label : str
    work : callable or None
    allocations : iterable of Allocation
        Memory read or written, which must not be reused before the operation runs.
    waits : sequence of Moment
    where : str
        File and line of the call.
    """

    __slots__ = ("allocations", "label", "waits", "where", "work")

    def __init__(self, label, work, allocations=(), waits=(), where=""):
        self.label, self.work, self.allocations = label, work, allocations
        self.waits, self.where = waits, where

    def run(self):
        """Do it."""
        for allocation in self.allocations:
            if not allocation.alive:
                fault(
                    f"use after free: {self.label} ({self.where}) ran after memory that it uses "
                    f"({allocation}) was freed and may have been reused"
                )
        if self.work is None:
            return
        try:
            self.work()
        except Fault:
            raise
        except Exception as error:
            fault(f"{self.label} ({self.where}) failed: {type(error).__name__}: {error}")


class Queue:
    """A stream of a device.

    Parameters
    ----------
    device : int
    blocking : bool
        Whether it and the default stream wait for each other.
    """

    _numbers = iter(range(1, 10**9))

    def __init__(self, device, blocking):
        self.device, self.blocking = device, blocking
        self.number = next(self._numbers)
        self.operations = deque()
        self.enqueued = self.executed = 0
        self.pace = 0.0

    def __repr__(self):
        return f"stream {self.number} of device {self.device}"

    @property
    def end(self):
        """The moment after all operations so far."""
        return Moment(self, self.enqueued)

    @property
    def ready(self):
        """Whether the first operation can run: all moments that it waits for are reached."""
        return bool(self.operations) and all(m.reached for m in self.operations[0].waits)

    def step(self):
        """Execute the first operation."""
        operation = self.operations.popleft()
        previous = current_device()
        _local.device = self.device
        try:
            operation.run()
        finally:
            _local.device = previous
            self.executed += 1


_default = {}
"""The legacy default stream of each device."""

_queues = weakref.WeakSet()
_pending = {}
"""Streams with queued operations, by number."""

_random = random.Random(int(os.environ.get("GEOMXP_EMULATOR_SEED", "0")))


def new_queue(blocking):
    """Return a new stream of the current device."""
    queue = Queue(current_device(), blocking)
    queue.pace = _random.choice((0.0, 0.3, 1.0))
    with _lock:
        _queues.add(queue)
    count("streams created")
    return queue


def default_queue(device=None):
    """Return a device's legacy default stream."""
    device = current_device() if device is None else device
    with _lock:
        if device not in _default:
            _default[device] = Queue(device, True)
            _queues.add(_default[device])
        return _default[device]


def current_queue(device=None):
    """Return this thread's current stream of a device, the current one if not given."""
    device = current_device() if device is None else device
    stack = getattr(_local, "streams", {}).get(device)
    return stack[-1] if stack else default_queue(device)


def push_queue(queue):
    """Make a stream this thread's current one of its device."""
    if not hasattr(_local, "streams"):
        _local.streams = {}
    _local.streams.setdefault(queue.device, []).append(queue)


def pop_queue(device):
    """Undo `push_queue`."""
    _local.streams[device].pop()


def seed(number):
    """Seed the order of execution."""
    with _lock:
        _random.seed(number)
        for queue in list(_queues):
            queue.pace = _random.choice((0.0, 0.3, 1.0))


def order():
    """Return a seed for the order of a kernel's blocks and threads."""
    with _lock:
        return _random.randrange(1, 2**31)


def enqueue(label, work, allocations=(), queue=None):
    """Put an operation on a stream, the current one if not given; execute some queued ones."""
    queue = current_queue() if queue is None else queue
    with _lock:
        _put(queue, Operation(label, work, tuple(allocations), (), caller()))
        _let_some_run()


def wait_for(queue, moment):
    """Make a stream's later operations wait for a moment."""
    if moment is not None:
        note("wait", about=(moment.stream.number, moment.count), queue=queue)
    with _lock:
        if moment is not None and not moment.reached:
            _put(queue, Operation("wait", None, (), (moment,)))


def _put(queue, operation):
    if queue.blocking:
        # the default stream waits for all blocking ones, and they for it
        first = default_queue(queue.device)
        others = (
            [q for q in _pending.values() if q.blocking and q.device == queue.device]
            if queue is first
            else [first]
        )
        operation.waits = (
            *operation.waits,
            *(q.end for q in others if q is not queue and not q.end.reached),
        )
    queue.operations.append(operation)
    queue.enqueued += 1
    _pending[queue.number] = queue


def _step(queue):
    try:
        queue.step()
    finally:
        if not queue.operations:
            _pending.pop(queue.number, None)


def _let_some_run():
    """Execute some operations by the streams' paces: a GPU may be fast or slow at any time."""
    if _random.random() < 0.02:
        for queue in _pending.values():
            queue.pace = _random.choice((0.0, 0.3, 1.0))
    for queue in list(_pending.values()):
        while queue.ready and _random.random() < queue.pace:
            _step(queue)


def reach(moment):
    """Execute operations until a moment is reached: what it needs, and sometimes others first."""
    with _lock:
        eager = _random.choice((0.0, 0.0, 0.5))
        while not moment.reached:
            if _random.random() < eager:
                ready = [queue for queue in _pending.values() if queue.ready]
                _step(_random.choice(ready))
                continue
            queue = moment.stream
            while not queue.ready:
                queue = next(m.stream for m in queue.operations[0].waits if not m.reached)
            _step(queue)


def synchronize(moments):
    """Let the host wait for some moments."""
    note("synchronize")
    count("synchronizations")
    for moment in moments:
        reach(moment)


def synchronize_device(device=None):
    """Let the host wait for all streams of a device."""
    device = current_device() if device is None else device
    with _lock:
        moments = [queue.end for queue in _queues if queue.device == device]
    synchronize(moments)


def queue_of(handle):
    """Return the stream of a handle: 0 is the current device's default stream."""
    if not handle:
        return default_queue()
    with _lock:
        found = [queue for queue in _queues if queue.number == handle]
    if not found:
        fault(f"{handle} is not a stream ({caller()})")
    if found[0].device != current_device():
        fault(f"wrong device: {found[0]}, the current one is {current_device()} ({caller()})")
    return found[0]


# --- handles of libraries -----------------------------------------------------------------------

_handles = {}


def new_handle(library, device):
    """Return a handle of a library, for this thread and a device."""
    with _lock:
        handle = 0x1000 + 16 * len(_handles)
        _handles[handle] = library, device, threading.get_ident()
    return handle


def check_handle(handle, *libraries):
    """Record a fault unless a handle is of one of these libraries, this thread and this device."""
    library, device, thread = _handles.get(handle, (None, None, None))
    if library not in libraries:
        fault(f"{handle:#x} is not a handle of {' or '.join(libraries)} ({caller()})")
    if device != current_device():
        fault(f"wrong device: a handle of device {device}, not {current_device()} ({caller()})")
    if thread != threading.get_ident():
        fault(f"a handle of another thread ({caller()})")


def _check_apart(name, output, operand):
    try:
        overlap = np.shares_memory(output, operand, max_work=10_000)
    except np.exceptions.TooHardError:
        return
    if overlap:
        fault(f"{name}: the output overlaps an operand")


def library_call(name, work, operands, output=None, in_place=(), about=None):
    """Enqueue a call of a library over `operand`s; `work` takes their arrays.

    Parameters
    ----------
    name : str
    work : callable
    operands : sequence of (callable, list of Allocation)
    output : int or sequence of int, optional
        Positions of operands that are written, which must not overlap the others.
    in_place : sequence of int
        Positions of operands that may be the output.
    about : optional
        Noted in recordings.
    """
    note("library", name, [array for array, _ in operands], about)
    with _lock:
        counts["library calls"] += 1
        counts[name] += 1
        counts["launches"] += 1

    def run():
        arrays = [array() for array, _ in operands]
        written = [output] if isinstance(output, int) else output or ()
        for one, other in product(written, range(len(arrays))):
            if other != one and other not in in_place:
                _check_apart(name, arrays[one], arrays[other])
        with np.errstate(all="ignore"):
            work(*arrays)

    enqueue(name, run, [a for _, allocations in operands for a in allocations])


# --- memory -------------------------------------------------------------------------------------

PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None)
_POISONED = bytes([POISON]) * PAGE

_spare = {}
"""Mapped memory that no allocation has any more, by bytes: to map new memory takes longer."""
MOST_SPARE, MOST_SPARES = 64 * PAGE, 32
"""The largest that is kept, and how many of one size."""


def _mapped(pages):
    """Return new poisoned memory between two pages without access."""
    mapped = np.frombuffer(mmap.mmap(-1, pages + 2 * PAGE), np.uint8)
    mapped[PAGE:-PAGE].fill(POISON)
    for guard in (mapped[:PAGE], mapped[-PAGE:]):
        _libc.mprotect(ctypes.c_void_p(guard.ctypes.data), ctypes.c_size_t(PAGE), 0)
    return mapped


class Allocation:
    """A range of a device's memory between poisoned margins and pages without access.

    Parameters
    ----------
    nbytes : int
    device : int
    stream : Queue or None
        Its later allocations may reuse the memory when it is freed; None if the device gets it.
    """

    def __init__(self, nbytes, device, stream):
        self.nbytes, self.device, self.stream = nbytes, device, stream
        self.alive = True
        self.where = caller()
        #  | guard page | margin | memory | margin of less than 512 bytes | guard page |
        pages = -(-max(nbytes, 1) // PAGE) * PAGE
        self.mapped = _spare[pages].pop() if _spare.get(pages) else _mapped(pages)
        whole = self.mapped[PAGE:-PAGE]
        first = (pages - nbytes) // ALIGNMENT * ALIGNMENT
        self.before, self.after = whole[:first], whole[first + nbytes :]
        self.memory = whole[first : first + nbytes]
        self.address = whole.ctypes.data + first

    def __repr__(self):
        return f"{self.nbytes} bytes of device {self.device}, allocated at {self.where}"

    def check_margins(self):
        """Record a fault if something was written just before or behind."""
        if not all(_POISONED.startswith(x.tobytes()) for x in (self.before, self.after)):
            self.before[...] = self.after[...] = POISON
            fault(f"written out of bounds: beside {self}")

    def __del__(self, spare=_spare, references=sys.getrefcount):
        mapped, pages = self.mapped, self.mapped.size - 2 * PAGE
        self.__dict__.clear()
        kept = spare.setdefault(pages, [])
        # two references, of the name here and of the call, unless an array still shows the memory
        if references(mapped) == 2 and pages <= MOST_SPARE and len(kept) < MOST_SPARES:
            # a read through a stale address finds poison
            mapped[PAGE:-PAGE].fill(POISON)
            kept.append(mapped)


_live, _by_address, _addresses = set(), {}, []
_freed = deque()
_host = {}
"""Pinned and registered host memory: address to bytes."""


class Memory:
    """The owner of an allocation; views of an array share it.

    Parameters
    ----------
    nbytes : int
    pooled : bool
        Whether it comes from CuPy's pool. Otherwise it comes from the device, and freeing it
        synchronizes the device, as cudaFree does.
    """

    def __init__(self, nbytes, pooled=True):
        self.device = current_device()
        stream = current_queue()
        with _lock:
            _collect()
            pool = pools[self.device]
            self._chunk = pool.take(nbytes, stream) if pooled else pool.take_directly(nbytes)
            _retire(stream)
            self.allocation = Allocation(nbytes, self.device, stream if pooled else None)
            _live.add(self.allocation)
            _by_address[self.allocation.address] = self.allocation
            insort(_addresses, self.allocation.address)
            counts["allocations"] += 1
        weakref.finalize(self, _freed.append, (self.allocation, self._chunk)).atexit = False


def _collect():
    """Return freed memory to its pool; until then `_freed` lists it."""
    while _freed:
        allocation, chunk = _freed.popleft()
        _by_address.pop(allocation.address)
        _addresses.remove(allocation.address)
        if allocation.stream is None:
            pools[allocation.device].direct -= chunk
            for queue in [q for q in _pending.values() if q.device == allocation.device]:
                reach(queue.end)
            _end(allocation)
        else:
            pools[allocation.device].give(chunk)
            _retiring.setdefault(allocation.stream.number, []).append(allocation)


def _end(allocation):
    allocation.alive = False
    _live.discard(allocation)
    allocation.check_margins()


_retiring = {}
"""Freed memory that the next allocation on a stream may reuse, by the stream's number."""


def _retire(stream):
    """Let memory that was freed on a stream be reused, in the order of the stream."""
    gone = _retiring.pop(stream.number, ())
    if not gone:
        return

    def die():
        for allocation in gone:
            _end(allocation)

    _put(stream, Operation("free", die))


class Pool:
    """CuPy's memory pool of one device: chunks are split, joined, and kept for their stream.

    The pool decides only where memory fits; an `Allocation` has the contents.
    """

    def __init__(self, device):
        self.device, self.limit, self.segments, self.direct = device, 0, [], 0

    def take(self, nbytes, stream):
        """Return a chunk, [segment, offset, bytes, free, stream]."""
        size = max(1, -(-nbytes // ALIGNMENT)) * ALIGNMENT
        chunk = self._best(size, stream.number)
        if chunk is None:
            chunk = self._segment(size, stream.number)
        if chunk[2] > size:
            segment = chunk[0]
            rest = [segment, chunk[1] + size, chunk[2] - size, True, stream.number]
            segment.insert(segment.index(chunk) + 1, rest)
            chunk[2] = size
        chunk[3] = False
        return chunk

    def _best(self, size, stream):
        best = None
        for segment in self.segments:
            for chunk in segment:
                # plain loops, which are much faster than `min` of a generator
                if chunk[3] and chunk[4] == stream and chunk[2] >= size:
                    best = chunk if best is None or chunk[2] < best[2] else best
        return best

    def _segment(self, size, stream):
        room = min(self.limit or MEMORY, MEMORY - self.direct)
        if self.total_bytes() + size > room:
            self.free_all_blocks()
        if self.total_bytes() + size > room:
            raise self.error(size)
        segment = []
        segment.append([segment, 0, size, True, stream])
        self.segments.append(segment)
        counts["segments"] += 1
        return segment[0]

    def take_directly(self, nbytes):
        """Take memory from the device, outside the pool; return its bytes."""
        size = max(1, -(-nbytes // ALIGNMENT)) * ALIGNMENT
        if self.total_bytes() + self.direct + size > MEMORY:
            raise NoDeviceMemory(size)
        self.direct += size
        counts["segments"] += 1
        return size

    def error(self, size):
        """Return CuPy's error."""
        return OutOfMemory(
            f"Out of memory allocating {size:,} bytes (allocated so far: {self.total_bytes():,} "
            f"bytes, limit set to: {self.limit:,} bytes)."
        )

    def give(self, chunk):
        """Take a chunk back, and join it with its free neighbours of the same stream."""
        segment, chunk[3] = chunk[0], True
        at = next(k for k, other in enumerate(segment) if other is chunk)
        for other in (at + 1, at - 1):
            if 0 <= other < len(segment) and segment[other][3] and segment[other][4] == chunk[4]:
                one, two = sorted((segment[other], chunk), key=lambda c: c[1])
                one[2] += two[2]
                segment[:] = [c for c in segment if c is not two]
                chunk, at = one, next(k for k, c in enumerate(segment) if c is one)

    def free_all_blocks(self):
        """Return unused segments to the device."""
        self.segments = [s for s in self.segments if len(s) > 1 or not s[0][3]]

    def total_bytes(self):
        """Bytes taken from the device."""
        return sum(chunk[2] for segment in self.segments for chunk in segment)

    def free_bytes(self):
        """Bytes taken from the device that no array uses."""
        _settle()
        return sum(c[2] for segment in self.segments for c in segment if c[3])

    def used_bytes(self):
        """Bytes that arrays use."""
        return self.total_bytes() - self.free_bytes()


def _settle():
    with _lock:
        _collect()


pools = [Pool(device) for device in range(DEVICES)]


class Region:
    """A range of one live allocation: an operand of an operation.

    Parameters
    ----------
    allocation : Allocation
    offset : int
    """

    __slots__ = ("allocation", "offset")

    def __init__(self, allocation, offset):
        self.allocation, self.offset = allocation, offset

    def array(self, shape, dtype, strides=None):
        """Return the memory as a NumPy array, to be used in an operation only."""
        return np.ndarray(
            shape,
            dtype,
            self.allocation.memory,
            self.offset,
            strides,
            "F" if strides is None else None,
        )


def _allocation_at(address, nbytes):
    """Return the allocation that holds a range, or None."""
    with _lock:
        _collect()
        at = bisect_right(_addresses, address) - 1
        found = _by_address[_addresses[at]] if at >= 0 else None
    return found if found and address + nbytes <= found.address + found.nbytes else None


def region(address, nbytes, what):
    """Return a range of the current device's memory as a `Region`; a fault if it is not one."""
    found = _allocation_at(address, nbytes)
    if found is None:
        fault(f"illegal address: {what}, {nbytes} bytes at {address:#x} ({caller()})")
    if found.device != current_device():
        fault(
            f"wrong device: {what} is in the memory of device {found.device}, the current one is "
            f"{current_device()} ({caller()})"
        )
    return Region(found, address - found.address)


def operand(address, rows, columns, leading, dtype, what):
    """Return a function that gives a column-major matrix in device memory, and its allocation.

    Parameters
    ----------
    address : int
    rows, columns, leading : int
    dtype : dtype
    what : str
        For messages.

    Returns
    -------
    callable, list of Allocation
    """
    dtype = np.dtype(dtype)
    if leading < max(1, rows):
        fault(f"leading dimension {leading} of {what} is less than its {rows} rows ({caller()})")
    if not rows or not columns:
        return lambda: np.zeros((rows, columns), dtype, order="F"), []
    if address % dtype.itemsize:
        fault(f"{what} is not aligned to its entries ({caller()})")
    found = region(address, ((columns - 1) * leading + rows) * dtype.itemsize, what)
    strides = (dtype.itemsize, leading * dtype.itemsize)
    return lambda: found.array((rows, columns), dtype, strides), [found.allocation]


# --- host memory --------------------------------------------------------------------------------


def register_host(address, nbytes):
    """Pin a range of host memory; return whether none of it was pinned before."""
    with _lock:
        if any(a < address + nbytes and address < a + size for a, size in _host.items()):
            return False
        _host[address] = nbytes
        counts["host registrations"] += 1
    return True


def unregister_host(address):
    """Undo `register_host`."""
    with _lock:
        if _host.pop(address, None) is None:
            fault(f"host memory at {address:#x} is not registered ({caller()})")


def pinned(address, nbytes):
    """Return whether a range of host memory is pinned."""
    with _lock:
        return any(a <= address and address + nbytes <= a + size for a, size in _host.items())


def copy(to, source, nbytes, queue):
    """Put a copy between pinned host memory and a device, or within one, on a stream."""
    with _lock:
        ends, allocations, directions = [], [], []
        for address, what in ((to, "the target of a copy"), (source, "the source of a copy")):
            if pinned(address, nbytes):
                ends.append(address)
                directions.append("host")
            else:
                found = _allocation_at(address, nbytes)
                if found is None:
                    fault(f"{what} is neither device memory nor pinned host memory ({caller()})")
                allocations.append(found)
                ends.append(address)
                directions.append("device")
        if directions == ["device", "host"]:
            counts["bytes to device"] += nbytes
            note("to device", about=nbytes, queue=queue)
        elif directions == ["host", "device"]:
            counts["bytes to host"] += nbytes
            note("to host", about=nbytes, queue=queue)

    def work():
        for address, kind in zip(ends, directions, strict=True):
            if kind == "host" and not pinned(address, nbytes):
                fault("an asynchronous copy ran after its host memory was no longer pinned")
        ctypes.memmove(to, source, nbytes)

    count("copies")
    enqueue("copy", work, allocations, queue)


def finish():
    """Execute all that is queued and check the margins of all memory.

    Returns
    -------
    list of str
        The faults since the last call.
    """
    with _lock:
        try:
            for queue in list(_queues):
                reach(queue.end)
            _collect()
            for stream in list(_queues):
                _retire(stream)
                reach(stream.end)
        except Fault:
            _pending.clear()
            for queue in _queues:
                queue.operations.clear()
                queue.executed = queue.enqueued
        for allocation in list(_live):
            try:
                allocation.check_margins()
            except Fault:
                continue
        found = faults[:]
        faults.clear()
        return found


def reset():
    """Give this thread and the pools the state of a new process."""
    _local.__dict__.clear()
    for pool in pools:
        pool.limit = 0
        pool.free_bytes()
        pool.free_all_blocks()


if REPORTS:
    atexit.register(finish)
