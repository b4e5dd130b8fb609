"""The command line: its commands in groups, one line for an error, and the exit status.

Results go to standard output; progress, warnings and the one line of an error to standard error.
Exit status: 0 done, 1 the computation failed, 2 bad usage or bad input, 130 stopped by Ctrl-C.
"""

import sys
import warnings
from typing import Annotated

import typer

from .._version import __version__
from ..cli import estimation, interruption, prediction
from ..errors import GeomxpError, GeomxpWarning, InvalidInput, did_you_mean

app = typer.Typer(
    name="geomxp",
    help="Fit Matérn Gaussian-process models to spatial data by maximum likelihood.\n\n"
    "First: geomxp fit meuse --report meuse.html",
    epilog="geomxp COMMAND --help shows examples. Exit status: 0 done, 1 the computation failed, "
    "2 bad usage or bad input, 130 stopped by Ctrl-C. With --debug errors show where they arose.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

COMMANDS = {
    "Fit and judge": (
        estimation.fit,
        estimation.log_likelihood,
        prediction.validate,
        estimation.compare_models,
    ),
    "Predict": (prediction.predict, prediction.simulate),
    "Study a method": (estimation.compare,),
    "Know the machine": (estimation.bench, estimation.info),
}

for group, commands in COMMANDS.items():
    for command in commands:
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
        Without the program's name; those of the process if not given. `--debug` anywhere shows
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
                # typer has made a status of it
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            status = _report(interruption.Stopped(interruption.of_other(words)))
        except Exception as error:
            if debug:
                raise
            status = _report(error, words)
    if status == 0:
        for warning in caught:
            print(f"warning: {warning.message}", file=sys.stderr)
    return status


def _report(error, words=()):
    """Print the one line of an error; return the exit status."""
    if isinstance(error, BrokenPipeError):
        return 1
    if isinstance(error, interruption.Stopped):
        # as it is: the command in it may be copied
        print(f"geomxp: {error}", file=sys.stderr)
        return interruption.STATUS
    status, message = 1, str(error)
    if isinstance(error, InvalidInput):
        status = 2
    elif hasattr(error, "format_message"):
        status, message = 2, _usage(error, words)
    elif isinstance(error, MemoryError) and not isinstance(error, GeomxpError):
        message = "out of memory: use fewer places, or a machine with more memory."
    elif not isinstance(error, GeomxpError):
        message = f"{type(error).__name__}: {error} (an error in geomxp: --debug shows where)"
    print("geomxp: " + " ".join(message.split()), file=sys.stderr)
    return status


def _usage(error, words):
    """Return what the parser says, with what was given, what was meant and where to look."""
    context = getattr(error, "ctx", None)
    place = f"{context.command_path if context else 'geomxp'} --help."
    message = error.format_message().rstrip(".")
    names = getattr(getattr(error, "param", None), "opts", ())
    given = next(filter(None, (interruption.after(name, words) for name in names)), None)
    if message.startswith("Invalid value") and given is not None:
        message += f". Got {given!r}"
    if "unexpected extra argument" in message:
        message += "; names after one option have commas between them, x,y, and no spaces"
    if hasattr(error, "possibilities"):
        # dashes are alike in all of them
        bare = [option.lstrip("-") for option in error.possibilities or ()]
        meant = did_you_mean(error.option_name.lstrip("-"), bare).replace(" '", " '--")
        message = f"{error.message}.{meant}"
    if message.endswith("?"):
        return f"{message} See {place}"
    return f"{message.rstrip('.')}: see {place}"
