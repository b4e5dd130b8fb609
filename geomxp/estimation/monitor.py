"""Monitor of a fit: counts evaluations, keeps the best model, writes checkpoints."""

import hashlib
import time
import warnings

import numpy as np

from ..data import tables
from ..errors import GeomxpError, GeomxpWarning, InvalidInput
from ..runtime.progress import Line, rate_in_words


class Interrupted(KeyboardInterrupt):
    """A fit interrupted by Ctrl-C.

    Parameters
    ----------
    state : dict or None
        Content of a checkpoint; None before there is a model.
    checkpoint : path or None
        File with this state, if there is one.
    evaluations : int
    seconds : float
        Run time of the fit.
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
        Maps (model, log_likelihood) of the scaled problem to the user's units.
    checkpoint : path or None
    fingerprint : str
        Identifies the problem in the checkpoint.
    shown : bool
        Whether to draw on a terminal.

    Attributes
    ----------
    count : int
        Evaluations so far.
    best : (float, Matern or None)
        The largest log-likelihood and its model, of the scaled problem.
    rises : list of (int, Matern, float)
        Improvements: number of the evaluation, model, log-likelihood.
    """

    def __init__(self, evaluations, rescale, checkpoint, fingerprint, shown):
        self.limit = evaluations
        self.rescale = rescale
        self.checkpoint = checkpoint
        self.fingerprint = fingerprint
        self.count = 0
        self.best = (-np.inf, None)
        self.rises = []
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
    def history(self):
        """Each improvement in the user's units, a list of dict."""
        return [self._row(*rise) for rise in self.rises]

    def _row(self, count, model, log_likelihood):
        ours, value = self.rescale(model, log_likelihood)
        return {"evaluation": count, **ours.parameters(), "log_likelihood": value}

    @property
    def left(self):
        """Evaluations that may still be made."""
        return max(0, self.limit - self.count)

    def record(self, model, log_likelihood, counted=True):
        """Record one evaluation of the scaled problem; count it if it took a factorization."""
        self.count += counted
        self._note([(self.count, model, log_likelihood)])

    def join(self, count, rises):
        """Record the evaluations of another monitor.

        Parameters
        ----------
        count : int
            How many.
        rises : list of (int, Matern, float)
            Its improvements, as in `rises`.
        """
        before = self.count
        self.count += count
        self._note([(before + number, model, value) for number, model, value in rises])

    def _note(self, evaluations):
        """Keep the improvements; update the progress line and the checkpoint."""
        known = len(self.rises)
        for number, model, value in evaluations:
            if value > self.best[0]:
                self.best = (value, model)
                self.rises.append((number, model, value))
        if self.checkpoint is not None and len(self.rises) > known:
            self._write()
        if self.line.shown:
            self.line.about = self._about()

    def _about(self):
        rate = rate_in_words(max(self.count, 1) / max(time.perf_counter() - self.line.began, 1e-9))
        about = f"evaluation {self.count} of at most {self.limit}  {rate}"
        if not self.rises:
            return about
        last = self._row(*self.rises[-1])
        value = last.pop("log_likelihood")
        del last["evaluation"]
        parameters = "  ".join(f"{name} {number:.4g}" for name, number in last.items())
        return f"{about}  log-likelihood {value:.4f}  {parameters}"

    def state(self):
        """Return the content of a checkpoint; None before there is a model."""
        if not self.rises:
            return None
        model = self._row(*self.rises[-1])
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
            # continue the fit without a checkpoint
            warnings.warn(f"no more checkpoints are written: {error}", GeomxpWarning, stacklevel=2)
            self.checkpoint = None


def resume(path, fingerprint, family):
    """Return (model, evaluations) from a checkpoint, or (None, 0) if there is none yet.

    Parameters
    ----------
    path : path or None
    fingerprint : str
        Of the problem.
    family : class

    Raises
    ------
    InvalidInput
        If the file is not a checkpoint, or belongs to another problem.
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
        return family.from_parameters(state["model"]), state["evaluations"]
    except (InvalidInput, KeyError, TypeError):
        raise InvalidInput(f"{path}: not a geomxp checkpoint; choose another file.") from None


def fingerprint(observations, design, *settings):
    """Return a hash of the data and of all settings that change the result."""
    digest = hashlib.sha256()
    extra = [array for array in (observations.time, observations.variable) if array is not None]
    for array in (observations.locations, observations.values, design, *extra):
        digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(repr((observations.metric, settings)).encode())
    return digest.hexdigest()
