"""The command line `geomxp`: commands in groups, one-line errors, and the exit status.

Results go to standard output; progress, warnings and errors go to standard error. The exit status
is 0 if done, 1 if the computation failed, 2 for bad usage or bad input, 130 after Ctrl-C.
"""

import sys
import warnings
from typing import Annotated

import typer

from .._version import __version__
from ..errors import GeomxpError, GeomxpWarning, InvalidInput, did_you_mean
from . import commands, interruption
from .options import COMMANDS

app = typer.Typer(
    name="geomxp",
    help="Fit Gaussian-process models to spatial data by maximum likelihood.\n\n"
    "First steps: geomxp fit meuse --report meuse.html",
    epilog="`geomxp COMMAND --help` shows examples. Exit status: 0 done, 1 the computation failed, "
    "2 bad usage or bad input, 130 stopped by Ctrl-C. Add --debug to see where an error arose.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

for group in (commands.ESTIMATE, commands.PREDICT, commands.STUDY, commands.MACHINE):
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
    """Run the command line and return its exit status.

    Parameters
    ----------
    arguments : sequence of str, optional
        Without the program's name; by default those of the process. --debug anywhere shows
        tracebacks.

    Returns
    -------
    int
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    words = [word for word in arguments if word != "--debug"] or ["--help"]
    with warnings.catch_warnings(record=True) as caught, interruption.watched(words):
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", GeomxpWarning)
        try:
            status = app(words, prog_name="geomxp", standalone_mode=False, obj=words) or 0
            if status == interruption.STATUS:
                # typer turns KeyboardInterrupt into a status
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            status = _report(interruption.Stopped(interruption.message_of(words)))
        except Exception as error:
            if debug:
                raise
            status = _report(error, words)
    if status == 0:
        for warning in caught:
            print(f"warning: {warning.message}", file=sys.stderr)
    return status


def _report(error, words=()):
    """Print an error in one line; return the exit status."""
    if isinstance(error, BrokenPipeError):
        return 1
    if isinstance(error, interruption.Stopped):
        # unchanged, because the user may copy the command in it
        print(f"geomxp: {error}", file=sys.stderr)
        return interruption.STATUS
    status, message = 1, str(error)
    if isinstance(error, InvalidInput):
        status = 2
    elif hasattr(error, "format_message"):
        status, message = 2, _usage(error, words)
    elif isinstance(error, MemoryError) and not isinstance(error, GeomxpError):
        message = "out of memory: use fewer locations, or a machine with more memory."
    elif not isinstance(error, GeomxpError):
        message = f"{type(error).__name__}: {error} (an error in geomxp; --debug shows where)"
    print("geomxp: " + " ".join(message.split()), file=sys.stderr)
    return status


def _usage(error, words):
    """Return the parser's message with the value given, a proposal, and where to find help."""
    context = getattr(error, "ctx", None)
    place = f"{context.command_path if context else 'geomxp'} --help."
    message = error.format_message().rstrip(".")
    names = getattr(getattr(error, "param", None), "opts", ())
    values = (interruption.value_after(name, words) for name in names)
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
