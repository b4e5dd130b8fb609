"""What happened when: every copy and every kernel of a run, and how many bytes moved.

Kernels are seen from the store: a step begins when what it reads is there, and ends when the next
is asked for. "factor" is the factorization of a diagonal tile with its last update, or with its
generation if it has none.
"""

import json
from dataclasses import dataclass
from threading import Lock

from .devices import human_bytes


@dataclass(frozen=True)
class Traffic:
    """Bytes and copies into the fast memories, and out of them.

    Examples
    --------
    >>> print(Traffic(3_000_000, 1_000_000, copies_in=12, copies_out=4))
    3.0 MB in 12 copies in, 1.0 MB in 4 copies out
    """

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
    """Counts copies, by several threads at one time.

    Examples
    --------
    >>> meter = Meter()
    >>> meter.copied("in", 4096)
    >>> meter.read()
    Traffic(bytes_in=4096, bytes_out=0, copies_in=1, copies_out=0)
    """

    def __init__(self):
        self._lock, self._bytes, self._copies = Lock(), [0, 0], [0, 0]

    def copied(self, way, count):
        """Count one copy, of a kind of `COPIES`."""
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
    """One copy or kernel.

    Parameters
    ----------
    kind : str
        "in", "out"; "leave", "return" for an accumulator that goes out and comes back; "original",
        "update", "solve", "factor" or "write".
    tile : (int, int)
        That moves, or is worked on.
    form : str
        Its format.
    device, stream : int
    begin, end : float
        Seconds since the trace began.
    bytes : int
        That moved.
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
    """Collects the events of one run; see `geomxp.plots.timeline` for the picture."""

    def __init__(self):
        self._raw = []

    def add(self, kind, tile, form, device, stream, begin, end, count=0):
        """Note an event; moments are read when the run is over, so as not to wait for a GPU."""
        self._raw.append((kind, tile, form, device, stream, begin, end, count))

    def events(self):
        """Return all events, by their begin, the first at 0.

        Returns
        -------
        list of Event
        """
        found = [
            Event(*key, device.number, stream, *map(device.memory.seconds, moments), count)
            for *key, device, stream, begin, end, count in self._raw
            for moments in [(begin, end)]
        ]
        return from_zero(found)

    def write(self, path):
        """Write the events as JSON for chrome://tracing and Perfetto."""
        write_chrome(path, self.events())


def from_zero(events):
    """Return events by their begin, the first at 0."""
    first = min((event.begin for event in events), default=0.0)
    shifted = [
        Event(
            *(event.kind, tuple(event.tile), event.form, event.device, event.stream),
            *(event.begin - first, event.end - first, event.bytes),
        )
        for event in events
    ]
    return sorted(shifted, key=lambda event: event.begin)


COPIES = ("in", "out", "leave", "return")


def row_of(event):
    """Return the row of a timeline that an event belongs to; a stream waits for its own copies."""
    return event.kind if event.kind in ("in", "out") else f"stream {event.stream}"


def write_chrome(path, events):
    """Write events in Chrome's trace format: a process a device, a thread a stream."""
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
                "cat": "copy" if event.kind in COPIES else "kernel",
                "pid": event.device,
                "tid": number[event.device, row_of(event)],
                "ts": 1e6 * event.begin,
                "dur": 1e6 * (event.end - event.begin),
                "args": {"tile": [i, k], "format": event.form, "bytes": event.bytes},
            }
        )
    with open(path, "w") as file:
        json.dump({"traceEvents": document, "displayTimeUnit": "ms"}, file)
