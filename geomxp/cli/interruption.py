"""Ctrl-C on the command line: what is kept, how to go on, and a second one that does not wait."""

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
"""Exit status of what Ctrl-C has stopped, as shells have it."""

WORTH = 2.0
"""Seconds of a fit that are worth a file that nobody has asked for."""

PATIENCE = 1.0
"""Seconds in which a computation may end by itself before people are told to wait."""


class Stopped(Exception):
    """The user has stopped a command; the message says what is kept and how to go on."""


def of_fit(found, table, output, words):
    """Keep the state of a fit, and return what to say.

    Where no checkpoint was asked for, a fit that has run for `WORTH` seconds gets one, beside its
    output or in the working directory.

    Parameters
    ----------
    found : Interrupted
    table : str
    output : str or None
    words : sequence of str
        The command, without the program's name.

    Returns
    -------
    Stopped
    """
    said = f"interrupted after {found.evaluations} evaluations ({found.seconds:.0f} s)"
    path = found.checkpoint
    if path is None and found.state is not None and found.seconds > WORTH:
        path = _spare(table, output, found.state)
        try:
            from ..data import tables

            tables.write_json(path, found.state)
        except GeomxpError as error:
            return Stopped(f"{said}; the state is lost: {error}")
    if path is None or not Path(path).exists():
        return Stopped(f"{said}; nothing is kept.{_tiles(words)}")
    if found.state is not None:
        said += f", log-likelihood {found.state['log_likelihood']:.4f}"
    words = [*words, *([] if found.checkpoint else ["--checkpoint", str(path)])]
    return Stopped(f"{said}, kept in {path}.{_tiles(words)} Go on with: {command_of(words)}")


def of_other(words):
    """Return what to say where nothing but the command is known."""
    kept = _tiles(words)
    path = after("--checkpoint", words)
    if path and Path(path).exists():
        kept = f" {path} holds the best model so far.{kept}"
    return f"interrupted.{kept}" + (f" Go on with: {command_of(words)}" if kept else "")


def command_of(words):
    """Return the command as a shell takes it."""
    return shlex.join(["geomxp", *words])


def _tiles(words):
    """Say where the tiles of a bounded memory are."""
    directory = after("--scratch", words)
    kept = directory and any(Path(directory).glob("geomxp-*.tiles"))
    return f" Tiles are kept in {directory}." if kept else ""


def after(option, words):
    """Return what is written after an option, or after its =; None where it is not given."""
    for word, following in zip(words, [*words[1:], None], strict=True):
        name, equals, rest = word.partition("=")
        if name == option:
            return rest if equals else following
    return None


def _spare(table, output, state):
    """Return a file for a state: a new one, or that of the same problem."""
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

    Python acts on the first one when the present computation returns, which a large factorization
    does late: after some patience a line says so, and another Ctrl-C ends the process at once.

    Parameters
    ----------
    words : sequence of str
        The command, without the program's name.
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
        # the watcher reads the end of the stream
        theirs.close()
        watcher.join()
        ours.close()


def _watch(stream, words, patience):
    """Wait for the numbers of signals, one byte each, until the stream ends."""
    if not _interrupt(stream):
        return
    stream.settimeout(patience)
    try:
        while _interrupt(stream):
            # two at once are one
            continue
        return
    except TimeoutError:
        stream.settimeout(None)
    print(
        "\ngeomxp: stops when the present step is done; Ctrl-C again stops at once.",
        file=sys.stderr,
    )
    if _interrupt(stream):
        # a line in progress has hidden the cursor
        cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
        print(f"{cursor}\ngeomxp: {of_other(words)}", file=sys.stderr, flush=True)
        os._exit(STATUS)


def _interrupt(stream):
    """Wait for Ctrl-C; return whether it was that, not the end of the stream."""
    while number := stream.recv(1):
        if number[0] == signal.SIGINT:
            return True
    return False
