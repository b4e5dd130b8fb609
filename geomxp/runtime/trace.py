"""Timeline of a run: every copy and every kernel, and the bytes that moved.

Kernels are timed by the store: a step begins when its operands are loaded and ends when the next
step is requested. "factor" includes the last update of a diagonal tile, or its generation if it has
no updates.
"""

import json
from dataclasses import dataclass, replace
from threading import Lock

from .devices import human_bytes


@dataclass(frozen=True)
class Traffic:
    """Bytes and copies into and out of the fast memories."""

    bytes_in: int = 0
    bytes_out: int = 0
    copies_in: int = 0
    copies_out: int = 0

    def __str__(self) -> str:
        return (
            f"{human_bytes(self.bytes_in)} in {self.copies_in:,} copies in, "
            f"{human_bytes(self.bytes_out)} in {self.copies_out:,} copies out"
        )


class Meter:
    """Thread-safe counter of copies."""

    def __init__(self):
        self._lock, self._bytes, self._copies = Lock(), [0, 0], [0, 0]

    def copied(self, way, count):
        """Count one copy; `way` is one of `COPY_KINDS`."""
        which = 0 if way in ("in", "return") else 1
        with self._lock:
            self._bytes[which] += count
            self._copies[which] += 1

    def read(self):
        """Return the `Traffic` so far."""
        with self._lock:
            return Traffic(*self._bytes, *self._copies)


@dataclass(frozen=True)
class Event:
    """One copy or kernel, with its `begin` and `end` in seconds since the first event.

    Copies are "in", "out", or "leave" and "return" for an accumulator that is swapped out and back;
    kernels are "original", "update", "solve", "factor" and "write". `form` names the tile's format;
    `bytes` are 0 for a kernel.
    """

    kind: str
    tile: tuple
    form: str
    device: int
    stream: int
    begin: float
    end: float
    bytes: int = 0


class Trace:
    """Events of one run; `geomxp.plots.timeline` draws them."""

    def __init__(self):
        self._raw = []

    def add(self, kind, tile, form, device, stream, begin, end, count=0):
        """Add an event; its times are read after the run, because reading a GPU's would wait."""
        self._raw.append((kind, tile, form, device, stream, begin, end, count))

    def events(self):
        """Return all events in order of their begin; the first begins at 0."""
        return from_zero(
            Event(
                *(kind, tile, form, device.number, stream),
                *(device.memory.seconds(begin), device.memory.seconds(end), count),
            )
            for kind, tile, form, device, stream, begin, end, count in self._raw
        )

    def write(self, path):
        """Write the events as JSON for chrome://tracing and Perfetto."""
        write_chrome(path, self.events())


def from_zero(events):
    """Return events in order of their begin, shifted so that the first begins at 0."""
    events = sorted(events, key=lambda event: event.begin)
    return [
        replace(
            event,
            tile=tuple(event.tile),
            begin=event.begin - events[0].begin,
            end=event.end - events[0].begin,
        )
        for event in events
    ]


COPY_KINDS = ("in", "out", "leave", "return")


def row_of(event):
    """Return an event's row in a timeline: "in", "out" or its stream."""
    return event.kind if event.kind in ("in", "out") else f"stream {event.stream}"


def write_chrome(path, events):
    """Write events in Chrome's trace format: a process per device, a thread per stream."""
    rows = sorted({(event.device, row_of(event)) for event in events})
    number = {row: index for index, row in enumerate(rows)}
    document = [
        {"ph": "M", "name": "thread_name", "pid": device, "tid": number[device, row],
         "args": {"name": row}}
        for device, row in rows
    ]  # fmt: skip
    for event in events:
        i, k = (int(index) for index in event.tile)
        document.append(
            {
                "ph": "X",
                "name": f"{event.kind} ({i}, {k})",
                "cat": "copy" if event.kind in COPY_KINDS else "kernel",
                "pid": event.device,
                "tid": number[event.device, row_of(event)],
                "ts": 1e6 * event.begin,
                "dur": 1e6 * (event.end - event.begin),
                "args": {"tile": [i, k], "format": event.form, "bytes": event.bytes},
            }
        )
    with open(path, "w") as file:
        json.dump({"traceEvents": document, "displayTimeUnit": "ms"}, file)
