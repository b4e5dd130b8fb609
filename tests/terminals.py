"""Commands in processes of their own, with a real terminal where a test asks for one."""

import os
import pty
import signal
import subprocess
import sys
from functools import partial
from importlib import import_module

from waiting import PATIENCE

import geomxp

ALONE = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "300", "TERM": "xterm"}


SLOWLY = """
import sys, time
from geomxp.cli.main import main
from geomxp.likelihood.exact import ExactEvaluator
def slow(work):
    return lambda *about, **options: (work(*about, **options), time.sleep(0.25))[0]
for name in ("__call__", "derivatives"):
    setattr(ExactEvaluator, name, slow(getattr(ExactEvaluator, name)))
sys.exit(main())
"""
"""`geomxp`, in Python, whose fits take many seconds: time to interrupt them."""


class Run:
    """A command of geomxp (or ``-c`` and Python) in a process of its own.

    Parameters
    ----------
    words : sequence of str
    folder : path
        Working directory.
    terminal : str, optional
        "stdout" or "stderr": the stream that is a terminal; the others are pipes.
    **environment : str
        Variables besides.
    """

    def __init__(self, words, folder, terminal=None, **environment):
        self.shown, self.screen = "", None
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        if terminal:
            self.screen, streams[terminal] = pty.openpty()
        command = [sys.executable, *([] if words[0] == "-c" else ["-m", "geomxp"])]
        self.process = subprocess.Popen(
            [*command, *map(str, words)],
            **streams,
            env=ALONE | environment,
            cwd=folder,
            # a shell has jobs in the background ignore it, and their children inherit that
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )
        if terminal:
            os.close(streams[terminal])

    def read_until(self, word):
        """Read the terminal until a word stands there."""
        while word not in self.shown:
            part = self._read()
            assert part, self.shown
            self.shown += part

    def _read(self):
        try:
            return os.read(self.screen, 4096).decode(errors="replace")
        except OSError:
            # the other end is closed
            return ""

    def interrupt(self):
        """Send SIGINT; return as `finish`."""
        self.process.send_signal(signal.SIGINT)
        return self.finish()

    def finish(self):
        """Wait; return (exit status, what the terminal showed, or else standard error had)."""
        if self.screen is None:
            self.output, errors = self.process.communicate(timeout=PATIENCE)
            return self.process.returncode, errors.decode()
        while part := self._read():
            self.shown += part
        self.output, _ = self.process.communicate(timeout=PATIENCE)
        os.close(self.screen)
        return self.process.returncode, self.shown


def run_with_new_options(monkeypatch, capsys):
    """Return a function that runs a command line made anew, with the options of this test."""
    monkeypatch.setattr(geomxp, "cli", import_module("geomxp.cli"))
    for name in [name for name in sys.modules if name.startswith("geomxp.cli")]:
        monkeypatch.delitem(sys.modules, name)
    main = import_module("geomxp.cli.main").main

    def run(*words):
        status = main(list(map(str, words)))
        return status, *capsys.readouterr()

    return run
