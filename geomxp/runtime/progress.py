"""Report progress through a context variable.

The code that works calls `tell`; a `Line` listens and draws on the terminal. Interfaces in between
need no argument for it. Each thread has its own listener.
"""

import sys
import time
import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Timer

from ..errors import GeomxpWarning

_listener = ContextVar("listener", default=None)


@contextmanager
def _during(variable, value):
    """Set a context variable inside the block."""
    before = variable.set(value)
    try:
        yield
    finally:
        variable.reset(before)


def listening(listener):
    """Call listener(done, total, things) at each `tell` inside the block."""
    return _during(_listener, listener)


def tell(done, total, things):
    """Report that `done` of `total` things (a plural noun) are done, if somebody listens."""
    listener = _listener.get()
    if listener is not None:
        listener(done, total, things)


_notices = ContextVar("notices", default=None)


def noticing(show):
    """Call show(message) at each `notice` inside the block."""
    return _during(_notices, show)


def notice(message, warn=True):
    """Report at once what the user should know while the work goes on.

    If nobody listens it becomes a warning, or with `warn=False` nothing.
    """
    show = _notices.get()
    if show is not None:
        show(message)
    elif warn:
        warnings.warn(message, GeomxpWarning, stacklevel=2)


QUIET_SECONDS = 2.0
"""Seconds before the line appears."""


class Line:
    """Progress line on the terminal: the task, how much is done, the rate and the time left.

    A thread of its own draws the line on standard error if that is a terminal and `shown` is true,
    starting after two seconds, and removes it at the end. It also shows what `tell` reports
    meanwhile. `things` is the plural noun for the `total` things to do. `note` is appended to the
    line. `began` and `since` are the start of the work and of the counting, by `time.perf_counter`.
    """

    def __init__(self, what, total=None, things="", shown=True):
        self.what, self.note = what, ""
        self.began = time.perf_counter()
        self.expect(total, things)
        self.shown = shown and sys.stderr is not None and sys.stderr.isatty()
        self._timer = self._live = self._part = self._listening = None

    def __enter__(self):
        self.began = self.since = time.perf_counter()
        if self.shown:
            self._timer = Timer(QUIET_SECONDS, self._draw)
            self._timer.daemon = True
            self._timer.start()
            self._listening = listening(self.hear)
            self._listening.__enter__()
        return self

    def __exit__(self, *_):
        if self._listening:
            self._listening.__exit__(None, None, None)
        if self._timer:
            self._timer.cancel()
            self._timer.join()
        if self._live:
            self._live.stop()

    def expect(self, total, things):
        """Restart the count, up to `total`."""
        self.total, self.things, self.done = total, things, 0
        self.since = time.perf_counter()

    def advance(self, count=1):
        """Count more things as done."""
        self.done += count

    def hear(self, done, total, things):
        """Record the progress of one part of the work, such as one matrix of many."""
        last = self._part
        if last is None or last[1:3] != (total, things) or done < last[0]:
            last = (0, total, things, time.perf_counter())
        # one assignment: another thread reads it
        self._part = None if done >= total else (done, *last[1:])

    def _draw(self):
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner

        # standard output stays the caller's while the line is shown
        kept = {"redirect_stdout": False, "redirect_stderr": False, "transient": True}
        console, spinner = Console(stderr=True), Spinner("dots", self)
        self._live = Live(spinner, console=console, refresh_per_second=5, **kept)
        self._live.start()

    def __rich__(self):
        from rich.text import Text

        return Text(str(self), no_wrap=True, overflow="ellipsis")

    def __str__(self):
        now, parts = time.perf_counter(), [self.what]
        if self.total is not None:
            parts += _counted(self.done, self.total, self.things, now - self.since)
        if self.total is None or not self.done:
            parts.append(clock(now - self.began))
        if self._part is not None:
            *part, since = self._part
            parts += _counted(*part, now - since)
        return "  ".join(part for part in (*parts, self.note) if part)


def _counted(done, total, things, seconds):
    """Return the count, the rate and the time left as text."""
    parts = [f"{done:,} of {total:,} {things}"]
    if done:
        rate = done / max(seconds, 1e-9)
        parts += [rate_in_words(rate), f"{clock(max(total - done, 0) / rate)} left"]
    return parts


def rate_in_words(rate):
    """Return things per second as text; seconds each below 1."""
    if rate < 1:
        return f"{1 / rate:.1f} s each"
    return f"{rate:.1f}/s" if rate < 10 else f"{rate:,.0f}/s"


def clock(seconds):
    """Return a time as 1:02:03 or 2:03."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
