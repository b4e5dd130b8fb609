"""How far a run is: told where the work is done, heard by whoever watches above.

What draws a line on a terminal is `geomxp.estimation.monitor`, which this folder must not import,
and between the two stand interfaces that have nothing to do with progress. So the listener is kept
in a context variable: each thread that begins work has its own, and no result hangs on it.
"""

from contextlib import contextmanager
from contextvars import ContextVar

_listener = ContextVar("listener", default=None)


@contextmanager
def listening(listener):
    """Have `tell` call listener(done, total, things) inside the block.

    Examples
    --------
    >>> with listening(print):
    ...     tell(3, 10, "tiles")
    3 10 tiles
    """
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)


def tell(done, total, things):
    """Say that so many things of a part of the work are done; nothing happens if nobody listens.

    Parameters
    ----------
    done, total : int
    things : str
        What they are called: "tiles".
    """
    listener = _listener.get()
    if listener is not None:
        listener(done, total, things)
