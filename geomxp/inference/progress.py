"""What a fit shows and keeps while it runs: a line on the terminal, a checkpoint file."""

import hashlib
import sys
import time
import warnings

import numpy as np

from .. import tables
from ..covariance.matern import Matern
from ..errors import GeomxpError, GeomxpWarning, InvalidInput


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
        self.start = time.perf_counter()
        self.status = _status() if shown and sys.stderr.isatty() else None

    def __enter__(self):
        if self.status:
            self.status.start()
        return self

    def __exit__(self, *_):
        if self.status:
            self.status.stop()

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
                self._write(ours, value)
        if self.status:
            self.status.update(self._line())

    def _line(self):
        if not self.history:
            return f"evaluation {self.count}"
        last = self.history[-1]
        parameters = "  ".join(
            f"{name} {value:.4g}"
            for name, value in last.items()
            if name not in ("evaluation", "log_likelihood")
        )
        rate = self.count / max(time.perf_counter() - self.start, 1e-9)
        return (
            f"evaluation {self.count} of at most {self.limit} ({rate:.1f}/s)  "
            f"log-likelihood {last['log_likelihood']:.6f}  {parameters}"
        )

    def _write(self, model, log_likelihood):
        state = {
            "problem": self.fingerprint,
            "model": model.parameters(),
            "log_likelihood": log_likelihood,
            "evaluations": self.count,
        }
        try:
            tables.write_json(self.checkpoint, state)
        except GeomxpError as error:
            # a fit is worth more than its checkpoint
            warnings.warn(f"no checkpoint from here on: {error}", GeomxpWarning, stacklevel=2)
            self.checkpoint = None


def _status():
    from rich.console import Console

    return Console(stderr=True).status("fitting")


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
