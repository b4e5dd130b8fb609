"""What is shown and kept while something runs: a line on the terminal, a fit's checkpoint."""

import hashlib
import sys
import time
import warnings
from threading import Timer

import numpy as np

from .. import tables
from ..covariance.matern import Matern
from ..errors import GeomxpError, GeomxpWarning, InvalidInput

QUIET = 2.0
"""Seconds before a line is drawn."""


class Line:
    """A line about work in progress: what, how far, how fast, how much longer.

    It is drawn on standard error, where that is a terminal, by a thread of its own; not in the
    first two seconds, and gone at the end.

    Parameters
    ----------
    what : str
        What is being done.
    total : int, optional
        How many things are to be done, where that is known.
    things : str
        What they are called.
    shown : bool
        Whether to draw at all.

    Attributes
    ----------
    about : str
        What else the line says.
    shown : bool
        Whether there is a terminal to draw on.
    began, since : float
        When the work and when the counting began, by `time.perf_counter`.

    Examples
    --------
    >>> with Line("predicting", 4, "places") as line:
    ...     line.advance(3)
    >>> str(line).partition(" places")[0]
    'predicting  3 of 4'
    """

    def __init__(self, what, total=None, things="", shown=True):
        self.what, self.about = what, ""
        self.began = time.perf_counter()
        self.expect(total, things)
        self.shown = shown and sys.stderr is not None and sys.stderr.isatty()
        self._timer = self._live = None

    def __enter__(self):
        self.began = self.since = time.perf_counter()
        if self.shown:
            self._timer = Timer(QUIET, self._draw)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *_):
        if self._timer:
            self._timer.cancel()
            self._timer.join()
        if self._live:
            self._live.stop()

    def expect(self, total, things):
        """Begin to count: so many things from now on."""
        self.total, self.things, self.done = total, things, 0
        self.since = time.perf_counter()

    def advance(self, count=1):
        """Take note that so many more things are done."""
        self.done += count

    def _draw(self):
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner

        # standard output is the caller's, also while the line stands
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
            parts.append(f"{self.done:,} of {self.total:,} {self.things}")
        if self.total is not None and self.done:
            rate = self.done / max(now - self.since, 1e-9)
            parts += [_rate(rate), f"{_clock(max(self.total - self.done, 0) / rate)} left"]
        else:
            parts.append(_clock(now - self.began))
        return "  ".join(part for part in (*parts, self.about) if part)


def _rate(rate):
    """Return a number of things per second as people say it."""
    if rate < 1:
        return f"{1 / rate:.1f} s each"
    return f"{rate:.1f}/s" if rate < 10 else f"{rate:,.0f}/s"


def _clock(seconds):
    """Return a time as 1:02:03 or 2:03."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class Interrupted(KeyboardInterrupt):
    """Ctrl-C has stopped a fit.

    Parameters
    ----------
    state : dict or None
        What a checkpoint holds of the best model so far; None before there is one.
    checkpoint : path or None
        Where the state is kept already.
    evaluations : int
    seconds : float
        How long the fit had run.
    """

    def __init__(self, state, checkpoint, evaluations, seconds):
        super().__init__(f"the fit was interrupted after {evaluations} evaluations")
        self.state, self.checkpoint = state, checkpoint
        self.evaluations, self.seconds = evaluations, seconds


class Monitor:
    """Counts evaluations, remembers the best model, draws the progress line, writes checkpoints.

    Parameters
    ----------
    evaluations : int
        Limit, for the progress line.
    rescale : callable
        (model, log_likelihood) of the scaled problem to those of the user's units.
    checkpoint : path or None
    fingerprint : str
        Identifies the problem in the checkpoint.
    shown : bool
        Whether to draw on a terminal.
    """

    def __init__(self, evaluations, rescale, checkpoint, fingerprint, shown):
        self.limit = evaluations
        self.rescale = rescale
        self.checkpoint = checkpoint
        self.fingerprint = fingerprint
        self.count = 0
        self.best = (-np.inf, None)
        self.history = []
        self.line = Line("fitting", shown=shown)

    def __enter__(self):
        self.line.__enter__()
        return self

    def __exit__(self, kind, error, _):
        self.line.__exit__()
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            seconds = time.perf_counter() - self.line.began
            raise Interrupted(self.state(), self.checkpoint, self.count, seconds) from error

    @property
    def left(self):
        """Evaluations that may still be made."""
        return max(0, self.limit - self.count)

    def record(self, model, log_likelihood, counted=True):
        """Take note of one evaluation of the scaled problem, counted if it took a factorization."""
        self.count += counted
        if log_likelihood > self.best[0]:
            self.best = (log_likelihood, model)
            ours, value = self.rescale(model, log_likelihood)
            self.history.append(
                {"evaluation": self.count, **ours.parameters(), "log_likelihood": value}
            )
            if self.checkpoint is not None:
                self._write()
        if self.line.shown:
            self.line.about = self._about()

    def _about(self):
        rate = _rate(max(self.count, 1) / max(time.perf_counter() - self.line.began, 1e-9))
        about = f"evaluation {self.count} of at most {self.limit}  {rate}"
        if not self.history:
            return about
        last = dict(self.history[-1])
        value = last.pop("log_likelihood")
        del last["evaluation"]
        parameters = "  ".join(f"{name} {number:.4g}" for name, number in last.items())
        return f"{about}  log-likelihood {value:.4f}  {parameters}"

    def state(self):
        """Return what a checkpoint holds of the best model so far; None before there is one."""
        if not self.history:
            return None
        model = dict(self.history[-1])
        value = model.pop("log_likelihood")
        del model["evaluation"]
        return {
            "problem": self.fingerprint,
            "model": model,
            "log_likelihood": value,
            "evaluations": self.count,
        }

    def _write(self):
        try:
            tables.write_json(self.checkpoint, self.state())
        except GeomxpError as error:
            # a fit is worth more than its checkpoint
            warnings.warn(f"no checkpoint from here on: {error}", GeomxpWarning, stacklevel=2)
            self.checkpoint = None


def resume(path, fingerprint):
    """Return (model, evaluations) from a checkpoint, or (None, 0) where there is none yet.

    Raises
    ------
    InvalidInput
        If the file is no checkpoint, or one of another problem.
    """
    from pathlib import Path

    if path is None or not Path(path).exists():
        return None, 0
    state = tables.read_json(path)
    if not isinstance(state.get("model"), dict) or not isinstance(state.get("evaluations"), int):
        raise InvalidInput(f"{path}: not a geomxp checkpoint; choose another file.")
    if state.get("problem") != fingerprint:
        raise InvalidInput(
            f"{path}: a checkpoint of another problem (data, trend, bounds or method differ): "
            "delete it or choose another file."
        )
    try:
        return Matern.from_parameters(state["model"]), state["evaluations"]
    except (InvalidInput, KeyError, TypeError):
        raise InvalidInput(f"{path}: not a geomxp checkpoint; choose another file.") from None


def fingerprint(observations, design, *settings):
    """Return a hash of the data and of everything that changes the answer."""
    digest = hashlib.sha256()
    for array in (observations.locations, observations.values, design):
        digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(repr((observations.metric, settings)).encode())
    return digest.hexdigest()
