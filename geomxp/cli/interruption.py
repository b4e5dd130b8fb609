"""Ctrl-C on the command line: save the state of a fit, and say how to resume."""

import os
import shlex
import signal
import socket
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

from ..errors import GeomxpError

STATUS = 130
"""Exit status after Ctrl-C, as shells define it."""

WORTH = 2.0
"""Seconds after which the state of a fit is saved without --checkpoint."""

PATIENCE = 1.0
"""Seconds after which the user is told that the current step still runs."""


class Stopped(Exception):
    """The user stopped a command. The message says what was saved and how to resume."""


def of_fit(interrupted, table, output, words):
    """Save the state of an interrupted fit; return the exception that says how to resume.

    Without --checkpoint, a fit that has run for `WORTH` seconds is saved beside its output, or in
    the working directory.

    Parameters
    ----------
    interrupted : Interrupted
    table : str
    output : str or None
    words : sequence of str
        The command line, without the program's name.

    Returns
    -------
    Stopped
    """
    message = (
        f"interrupted after {interrupted.evaluations} evaluations ({interrupted.seconds:.0f} s)"
    )
    path, state = interrupted.checkpoint, interrupted.state
    if path is None and state is not None and interrupted.seconds > WORTH:
        path = _unused_path(table, output, state)
        try:
            from ..data import tables

            tables.write_json(path, state)
        except GeomxpError as error:
            return Stopped(f"{message}; the state is lost: {error}")
    if path is None or not Path(path).exists():
        return Stopped(f"{message}; nothing was saved.{_tiles(words)}")
    if state is not None:
        message += f", log-likelihood {state['log_likelihood']:.4f}"
    words = [*words, *([] if interrupted.checkpoint else ["--checkpoint", str(path)])]
    return Stopped(f"{message}, saved in {path}.{_tiles(words)} Resume with: {command_line(words)}")


def message_of(words):
    """Return the message for a command that is not a fit, or is not known to have a state."""
    saved = _tiles(words)
    path = value_after("--checkpoint", words)
    if path and Path(path).exists():
        saved = f" The best model so far is saved in {path}.{saved}"
    return f"interrupted.{saved}" + (f" Resume with: {command_line(words)}" if saved else "")


def command_line(words):
    """Return the command line as text for a shell."""
    return shlex.join(["geomxp", *words])


def value_after(option, words):
    """Return the value of an option, written after it or after its =; None if it is not given."""
    for word, following in zip(words, [*words[1:], None], strict=True):
        name, equals, rest = word.partition("=")
        if name == option:
            return rest if equals else following
    return None


def _tiles(words):
    """Return a sentence that names the folder of tiles, if there are any."""
    directory = value_after("--scratch", words)
    saved = directory and any(Path(directory).glob("geomxp-*.tiles"))
    return f" Tiles are saved in {directory}." if saved else ""


def _unused_path(table, output, state):
    """Return a path that is unused, or that holds a state of the same problem."""
    from ..data import tables

    folder = Path(output).parent if output else Path()
    name = f"geomxp-{Path(table).stem}-checkpoint"
    for number in range(1, 1000):
        path = folder / (f"{name}.json" if number == 1 else f"{name}-{number}.json")
        try:
            if not path.exists() or tables.read_json(path).get("problem") == state["problem"]:
                return path
        except GeomxpError:
            continue
    return path


@contextmanager
def watched(words, patience=PATIENCE):
    """Watch for Ctrl-C inside the block.

    Python handles the first signal when the current call returns, which takes long in a large
    factorization. After `patience` seconds a message says so, and a second Ctrl-C ends the process
    at once.

    Parameters
    ----------
    words : sequence of str
        The command line, without the program's name.
    patience : float
        Seconds.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    watcher = threading.Thread(target=_watch, args=(ours, words, patience), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        # ends the stream, and with it the watcher
        theirs.close()
        watcher.join()
        ours.close()


def _watch(stream, words, patience):
    """Read numbers of signals, one byte each, until the stream ends."""
    if not _interrupt(stream):
        return
    stream.settimeout(patience)
    try:
        while _interrupt(stream):
            # signals in quick succession count as one
            continue
        return
    except TimeoutError:
        stream.settimeout(None)
    print(
        "\ngeomxp: stops when the current step is done; press Ctrl-C again to stop at once.",
        file=sys.stderr,
    )
    if _interrupt(stream):
        # the progress line has hidden the cursor
        cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
        print(f"{cursor}\ngeomxp: {message_of(words)}", file=sys.stderr, flush=True)
        os._exit(STATUS)


def _interrupt(stream):
    """Wait for Ctrl-C; return False if the stream ends first."""
    while number := stream.recv(1):
        if number[0] == signal.SIGINT:
            return True
    return False
