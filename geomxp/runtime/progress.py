"""Report progress through a context variable.

The code that works calls `tell`; `geomxp.estimation.monitor` listens and draws a line on the
terminal. Interfaces in between need no argument for it. Each thread has its own listener.
"""

from contextlib import contextmanager
from contextvars import ContextVar

_listener = ContextVar("listener", default=None)


@contextmanager
def listening(listener):
    """Call listener(done, total, things) at each `tell` inside the block.

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
    """Report that `done` of `total` things are done; does nothing without a listener.

    Parameters
    ----------
    done, total : int
    things : str
        Plural noun for the progress line, such as "tiles".
    """
    listener = _listener.get()
    if listener is not None:
        listener(done, total, things)
