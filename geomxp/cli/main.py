"""The command line `geomxp`: commands in groups, one-line errors, and the exit status.

Results go to standard output; progress, warnings and errors go to standard error. The exit status
is 0 if done, 1 if the computation failed, 2 for bad usage or bad input, 130 after Ctrl-C, 141 if
the reader of standard output has closed it.
"""

import errno
import os
import shlex
import signal
import socket
import sys
import threading
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from .._version import __version__
from ..errors import GeomxpError, GeomxpWarning, InvalidInput, did_you_mean
from ..runtime.progress import noticing
from . import commands
from .options import COMMANDS

INTERRUPTED_STATUS = 130
"""Exit status after Ctrl-C, as shells define it."""

CLOSED_PIPE_STATUS = 141
"""Exit status if a pipe is closed before all is written, as of a program that SIGPIPE ends."""

SAVED_FIT_SECONDS = 2.0
"""Seconds after which the state of a fit is saved without --checkpoint."""

INTERRUPT_NOTICE_SECONDS = 1.0
"""Seconds after which the user is told that the current step still runs."""

app = typer.Typer(
    name="geomxp",
    help="Fit Gaussian-process models to spatial data by maximum likelihood.\n\n"
    "First steps: geomxp fit meuse --report meuse.html",
    epilog="`geomxp COMMAND --help` shows examples. Exit status: 0 done, 1 the computation failed, "
    "2 bad usage or bad input, 130 stopped by Ctrl-C, 141 closed pipe. Add --debug "
    "to see where an error arose.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

for group in (commands.ESTIMATE, commands.PREDICT, commands.STUDY, commands.INSPECT):
    for command in COMMANDS[group]:
        app.command(rich_help_panel=group)(command)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
):
    if version:
        print(f"geomxp {__version__}")
        raise typer.Exit


def main(arguments=None):
    """Run the command line, by default that of the process, and return its exit status.

    The arguments are without the program's name; --debug among them shows tracebacks.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    words = [word for word in arguments if word != "--debug"] or ["--help"]
    if sys.stdout is None:
        # a file that is opened later would get its number, and what libraries print
        print("geomxp: standard output is closed: add >/dev/null to discard it.", file=sys.stderr)
        return 1
    with warnings.catch_warnings(record=True) as caught, watched(words), noticing(_notice):
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", GeomxpWarning)
        try:
            status = app(words, prog_name="geomxp", standalone_mode=False, obj=words) or 0
            if status == INTERRUPTED_STATUS:
                # typer turns KeyboardInterrupt into a status
                raise KeyboardInterrupt
            # here, because the interpreter would do it after the status is known
            sys.stdout.flush()
        except (KeyboardInterrupt, commands.StoppedFit) as stopped:
            fit = isinstance(stopped, commands.StoppedFit)
            message = message_of_fit(*stopped.args, words) if fit else message_of(words)
            # not wrapped, because the user may copy the command in it
            print(f"geomxp: {message}", file=sys.stderr)
            status = INTERRUPTED_STATUS
        except SystemExit as ended:
            # typer ends the process if a pipe is closed, and after printing a completion script
            closed = isinstance(ended.__context__, BrokenPipeError)
            status = _close_output() if closed else ended.code or 0
        except BrokenPipeError:
            status = _close_output()
        except Exception as error:
            if debug:
                raise
            status = _report(error, words)
    if status == 0:
        for warning in caught:
            print(f"warning: {warning.message}", file=sys.stderr)
    return status


def _notice(message):
    """Print a message while a command runs, above its progress line."""
    lead = "\r\x1b[K" if sys.stderr.isatty() else ""
    print(f"{lead}geomxp: {message}", file=sys.stderr, flush=True)


def _report(error, words=()):
    """Print an error in one line; return the exit status."""
    status, message = 1, str(error)
    if isinstance(error, InvalidInput):
        status = 2
    elif hasattr(error, "format_message"):
        status, message = 2, _usage(error, words)
    elif isinstance(error, MemoryError) and not isinstance(error, GeomxpError):
        message = (
            "out of memory: use fewer locations, or a machine with more memory. A fit needs less "
            "with --method vecchia, --memory 4GB or --kl 1e-3."
        )
    elif isinstance(error, OSError) and error.errno == errno.ENOSPC:
        message = f"output cannot be written ({error.strerror}): free some space and repeat."
        try:
            sys.stdout.flush()
        except OSError:
            _close_output()
    elif not isinstance(error, GeomxpError):
        message = f"{type(error).__name__}: {error} (an error in geomxp; --debug shows where)"
    print("geomxp: " + " ".join(message.split()), file=sys.stderr)
    return status


def _close_output():
    """Discard what standard output does not take; return the exit status of a closed pipe."""
    # the interpreter flushes once more when it ends
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return CLOSED_PIPE_STATUS


def _usage(error, words):
    """Return the parser's message with the value given, a proposal, and where to find help."""
    context = getattr(error, "ctx", None)
    place = f"{context.command_path if context else 'geomxp'} --help."
    message = error.format_message().rstrip(".")
    names = getattr(getattr(error, "param", None), "opts", ())
    values = (value_after(name, words) for name in names)
    given = next(filter(None, values), None)
    if message.startswith("Invalid value") and given is not None:
        message += f". Got {given!r}"
    if "unexpected extra argument" in message:
        message += "; separate names after an option by commas without spaces: x,y"
    if hasattr(error, "possibilities"):
        # the nearest option is sought without dashes, which all options share
        bare = [option.lstrip("-") for option in error.possibilities or ()]
        meant = did_you_mean(error.option_name.lstrip("-"), bare).replace(" '", " '--")
        message = f"{error.message}.{meant}"
    if message.endswith("?"):
        return f"{message} See {place}"
    return f"{message.rstrip('.')}: see {place}"


# Ctrl-C: save the state of a fit, and say how to resume


def message_of_fit(interrupted, table, output, words):
    """Save the state of an `Interrupted` fit; return the message that says how to resume.

    Without --checkpoint, a fit that has run for `SAVED_FIT_SECONDS` is saved beside its output, or
    in the working directory.
    """
    message = (
        f"interrupted after {interrupted.evaluations} evaluations ({interrupted.seconds:.0f} s)"
    )
    path, state = interrupted.checkpoint, interrupted.state
    if path is None and state is not None and interrupted.seconds > SAVED_FIT_SECONDS:
        path = _unused_path(table, output, state)
        try:
            from ..data import tables

            tables.write_json(path, state)
        except GeomxpError as error:
            return f"{message}; the state is lost: {error}"
    if path is None or not os.path.exists(path):
        return f"{message}; nothing was saved.{_tiles(words)}"
    if state is not None:
        message += f", log-likelihood {state['log_likelihood']:.4f}"
    words = [*words, *([] if interrupted.checkpoint else ["--checkpoint", str(path)])]
    return f"{message}, saved in {path}.{_tiles(words)}{_resume(words)}"


def message_of(words):
    """Return the message for a command that is not a fit, or is not known to have a state."""
    saved = _tiles(words)
    path = value_after("--checkpoint", words)
    if path and os.path.exists(path):
        saved = f" The best model so far is saved in {path}.{saved}"
    return f"interrupted.{saved}" + (_resume(words) if saved else "")


def _resume(words):
    return f" Resume with: {shlex.join(['geomxp', *words])}"


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
def watched(words, patience=INTERRUPT_NOTICE_SECONDS):
    """Watch for Ctrl-C inside the block.

    Python handles the first signal when the current call returns, which takes long in a large
    factorization. After `patience` seconds a message says so, and a second Ctrl-C ends the process
    at once.
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
        os._exit(INTERRUPTED_STATUS)


def _interrupt(stream):
    """Wait for Ctrl-C; return False if the stream ends first."""
    while number := stream.recv(1):
        if number[0] == signal.SIGINT:
            return True
    return False
