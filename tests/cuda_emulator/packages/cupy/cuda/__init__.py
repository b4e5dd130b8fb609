"""CuPy's devices, streams, events and raw kernels over emulated GPUs."""

import time

from cuda_emulator import machine
from cuda_emulator.raw import RawKernel, RawModule

from . import runtime


class Device:
    """A device; in a `with` statement the current one."""

    def __init__(self, index=None):
        self.id = machine.current_device() if index is None else int(index)
        self._stack = []

    def __int__(self):
        return self.id

    def __repr__(self):
        return f"<CUDA Device {self.id}>"

    def __eq__(self, other):
        return isinstance(other, Device) and self.id == other.id

    def __hash__(self):
        return self.id

    def __enter__(self):
        self._stack.append(machine.current_device())
        machine.set_device(self.id)
        return self

    def __exit__(self, *_):
        machine.set_device(self._stack.pop())

    def use(self):
        """Make it the current one."""
        machine.set_device(self.id)
        return self

    def synchronize(self):
        """Wait for all its streams."""
        machine.synchronize_device(self.id)

    @property
    def compute_capability(self):
        """Its generation: "90" for Hopper."""
        return machine.CAPABILITY

    @property
    def attributes(self):
        """Some of its properties."""
        return {"MultiProcessorCount": machine.PROCESSORS}

    @property
    def mem_info(self):
        """Free and total bytes of its memory."""
        with self:
            return runtime.memGetInfo()


class Stream:
    """A stream of the current device, or its default stream."""

    null = None

    def __init__(self, null=False, non_blocking=False):
        self._queue_or_none = None if null else machine.new_queue(not non_blocking)
        self.device_id = -1 if null else self._queue_or_none.device

    @property
    def _queue(self):
        return self._queue_or_none or machine.default_queue()

    @property
    def ptr(self):
        """The handle: 0 for the default stream."""
        return 0 if self._queue_or_none is None else self._queue_or_none.number

    def __eq__(self, other):
        return isinstance(other, Stream) and self.ptr == other.ptr

    def __hash__(self):
        return self.ptr

    def _check(self):
        if self.device_id not in (-1, machine.current_device()):
            raise RuntimeError(
                f"The device that the stream is created on ({self.device_id}) does not match with "
                f"the current device ({machine.current_device()})"
            )

    def __enter__(self):
        self._check()
        machine.push_queue(self._queue)
        self._entered = machine.current_device()
        return self

    def __exit__(self, *_):
        machine.pop_queue(self._entered)

    @property
    def done(self):
        """Whether nothing is left to do."""
        return self._queue.end.reached

    def synchronize(self):
        """Let the host wait for all that is queued."""
        machine.synchronize([self._queue.end])

    def record(self, event=None):
        """Record an event, a new one if not given, and return it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event):
        """Let later operations wait for an event."""
        machine.wait_for(self._queue, event._moment)


class Event:
    """A moment of a stream; an event that was never recorded counts as past."""

    def __init__(self, block=False, disable_timing=False, interprocess=False):
        self._moment, self._time, self._timed = None, None, not disable_timing
        self._device = machine.current_device()
        machine.count("events created")

    @property
    def done(self):
        """Whether it is past."""
        return self._moment is None or self._moment.reached

    def record(self, stream=None):
        """Take the end of a stream, the current one if not given."""
        queue = machine.current_queue() if stream is None else stream._queue
        if not queue.device == self._device == machine.current_device():
            raise runtime.CUDARuntimeError(
                400, "cudaErrorInvalidResourceHandle: an event of another device's stream"
            )

        def note():
            self._time = time.perf_counter()

        machine.enqueue("event", note, (), queue)
        self._moment = queue.end
        machine.note("record", about=(queue.number, queue.end.count), queue=queue)

    def synchronize(self):
        """Let the host wait for it."""
        if self._moment is not None:
            machine.synchronize([self._moment])


Stream.null = Stream(null=True)


def get_current_stream(device_id=-1):
    """Return this thread's current stream."""
    queue = machine.current_queue(None if device_id == -1 else device_id)
    if queue is machine.default_queue(queue.device):
        return Stream.null
    found = object.__new__(Stream)
    found._queue_or_none, found.device_id = queue, queue.device
    return found


def get_elapsed_time(start_event, end_event):
    """Return the milliseconds between two events that are past."""
    events = start_event, end_event
    if not all(event._timed and event._moment is not None for event in events):
        raise runtime.CUDARuntimeError(400, "cudaErrorInvalidResourceHandle: events without times")
    if not (start_event.done and end_event.done):
        raise runtime.CUDARuntimeError(600, "cudaErrorNotReady: device not ready")
    return (end_event._time - start_event._time) * 1e3


from . import device, memory  # noqa: E402
from .memory import alloc, using_allocator  # noqa: E402
