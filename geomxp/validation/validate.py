"""Validation: each observation predicted from others, by leave-one-out or in folds."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InvalidInput
from ..execution.cluster_tasks import Tasks
from ..execution.devices import blas_threads, resolve
from ..inference.estimate import Fit, check_fit, z_value
from ..inference.progress import Line
from ..inference.vecchia import Vecchia
from ..observations import Observations
from . import scores
from .folds import folds_of
from .held_out import HeldOut
from .without import predicted

if TYPE_CHECKING:
    from ..annotations import ArrayLike, Client, Document, Floats, Frame, Whole


@dataclass(frozen=True)
class Validation:
    """Observations beside their predictions from others.

    Parameters
    ----------
    observations : Observations
    mean : (n,) ndarray
    variance : (n,) ndarray
        Of the prediction error of the observation: nugget and the trend's uncertainty included.
    folds : (n,) ndarray
        Labels of what was left out together; for leave-one-out the rows' own numbers, from 0.
    kind : str
        How it was made, in words.
    refitted : bool
        Whether the covariance parameters were estimated anew for each fold.
    seconds : float
    """

    observations: Observations
    mean: Floats
    variance: Floats
    folds: Whole
    kind: str
    refitted: bool = False
    seconds: float = 0.0

    def __len__(self) -> int:
        return len(self.mean)

    def __repr__(self) -> str:
        folds = len(np.unique(self.folds))
        return f"<Validation of {len(self):,} observations: {self.kind}, {folds:,} folds>"

    @property
    def observed(self) -> Floats:
        """The values, (n,)."""
        return self.observations.values

    @property
    def standardised_errors(self) -> Floats:
        """(observed - mean) over the standard deviation, (n,): near N(0, 1) for a good model."""
        return (self.observed - self.mean) / np.sqrt(self.variance)

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return lower and upper bounds of prediction intervals for the observations, (n,)."""
        half = z_value(level) * np.sqrt(self.variance)
        return self.mean - half, self.mean + half

    def pit(self) -> Floats:
        """Return the probability integral transforms, (n,); see `scores.pit`."""
        return scores.pit(self.mean, np.sqrt(self.variance), self.observed)

    def scores(self, level: float = 0.95) -> dict[str, float]:
        """Return the mean scores as a dict of str to float; see `scores.summary`."""
        return scores.summary(self.mean, self.variance, self.observed, level)

    def to_frame(self, level: float = 0.95) -> Frame:
        """Return a pandas frame, one row for each observation.

        Columns: the locations, then fold, observed, mean, variance, lower, upper,
        standardised_error, pit.
        """
        import pandas as pd

        lower, upper = self.interval(level)
        columns = {
            "fold": self.folds,
            "observed": self.observed,
            "mean": self.mean,
            "variance": self.variance,
            "lower": lower,
            "upper": upper,
            "standardised_error": self.standardised_errors,
            "pit": self.pit(),
        }
        names = self.observations.location_names
        for name in names:
            if name in columns:
                raise InvalidInput(f"location {name!r} has the name of a result: rename it.")
        places = dict(zip(names, self.observations.locations.T, strict=True))
        return pd.DataFrame(places | columns)

    def to_dict(self, level: float = 0.95) -> Document:
        """Return what `geomxp validate --json` prints."""
        from .. import __version__

        return {
            "geomxp": __version__,
            "n": len(self),
            "kind": self.kind,
            "folds": len(np.unique(self.folds)),
            "refitted": self.refitted,
            "level": level,
            "scores": self.scores(level),
            "seconds": self.seconds,
        }

    def describe(self, level: float = 0.95) -> str:
        """Return the scores as a readable table."""
        found = self.scores(level)
        intervals = f"of {100 * level:g} % intervals"
        notes = {
            "bias": "predicted less observed",
            "log_score": "-log density, in nats",
            "interval_score": intervals,
            "coverage": intervals,
            "mean_squared_standardised_error": "1 where the variances are right",
        }
        names = {"mean_squared_standardised_error": "mean squared z"}
        names |= {name: name.upper() for name in ("rmse", "mae", "crps")}
        kind = self.kind[0].upper() + self.kind[1:]
        how = "estimated without each fold" if self.refitted else "held"
        lines = [f"{kind} of {len(self):,} observations, covariance parameters {how}", ""]
        for name, value in found.items():
            shown = names.get(name, name.replace("_", " "))
            lines.append(f"  {shown:<16}{value:>12.6g}   {notes.get(name, '')}".rstrip())
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.describe()


def leave_one_out(fit: Fit, *, progress: bool = True) -> Validation:
    """Predict each observation from all others, from one factorization.

    With Q = Σ⁻¹ - Σ⁻¹X(X'Σ⁻¹X)⁻¹X'Σ⁻¹ the i-th has the mean z_i - (Qz)_i/Q_ii and the variance
    1/Q_ii (Dubrule 1983, Math. Geol. 15:687): what n times kriging would give, the covariance
    parameters held and the trend's coefficients estimated each time without the i-th. A fit in
    mixed formats uses its factor's Σ⁻¹, refined if the fit refines. A fit by `Vecchia` uses the
    sparse Σ⁻¹ that the approximation stands for: the full conditionals of the likelihood that was
    maximised, each given all places that are neighbours either way.

    Parameters
    ----------
    fit : Fit
    progress : bool
        Show a line where standard error is a terminal, after two seconds.

    Returns
    -------
    Validation

    Raises
    ------
    NotPositiveDefinite
        If Σ has no Cholesky factor.
    InvalidInput
        If the trend cannot be estimated without one of the observations.

    Examples
    --------
    The second of four is predicted as by a fit that has not seen it:

    >>> import geomxp as gx
    >>> seen = gx.Observations([[0.0], [1.0], [2.0], [4.0]], [1.0, 3.0, 5.0, 4.0])
    >>> model = gx.Matern(1.0, 1.0, 0.5)
    >>> held = tuple(model.parameters())
    >>> left_out = gx.leave_one_out(gx.fit(seen, model, fixed=held))
    >>> others = gx.fit(seen.subset([0, 2, 3]), model, fixed=held)
    >>> bool(np.isclose(left_out.mean[1], gx.predict(others, [[1.0]]).mean[0]))
    True
    """
    start = time.perf_counter()
    check_fit(fit)
    seen = fit.observations
    design = fit.trend.design(seen.locations, seen.covariates)
    _check_leverages(design)
    with Line("leaving out one by one", shown=progress), blas_threads(len(seen)):
        mean, variance = _held_out(fit, design).one_by_one()
    seconds = time.perf_counter() - start
    return Validation(seen, mean, variance, np.arange(len(seen)), "leave-one-out", seconds=seconds)


def cross_validate(
    fit: Fit,
    folds: int | ArrayLike = 10,
    *,
    blocks: float | None = None,
    refit: bool = False,
    seed: int = 0,
    on: str | Client = "cpu",
    progress: bool = True,
) -> Validation:
    """Predict each fold of observations from all others.

    With the covariance parameters held, an exact fit needs one factorization: fold F has the mean
    z_F - Q_FF⁻¹(Qz)_F and the covariance Q_FF⁻¹, Q as in `leave_one_out`, the trend estimated
    without the fold. A fit by `Vecchia` is prepared anew without each fold, and predicts the fold
    as `predict` does.

    Parameters
    ----------
    fit : Fit
    folds : int or (n,) array_like
        How many random folds, of equal size but for one; or a label for each observation.
    blocks : float, optional
        Spatial folds: all places within a square (a cube, an interval) of this side belong to one
        fold, and squares to folds at random. In the unit of the range: that of the locations, km
        for longitude and latitude.
    refit : bool
        Estimate anew without each fold what the fit has estimated, within its bounds and from its
        estimates for a start.
    seed : int
        Of the random folds.
    on : str or dask.distributed.Client
        "cpu": one fold after the other, in this process. Or a Dask cluster: the address of its
        scheduler, "tcp://host:8786", or a client of it; each fold is then predicted on a worker, by
        the fit's own method. For folds that are computed apart: with `refit`, or of `Vecchia`.
    progress : bool
        Show a line where standard error is a terminal, after two seconds.

    Returns
    -------
    Validation

    Raises
    ------
    InvalidInput
        For folds that make no sense, or without which the trend cannot be estimated; if `on` is no
        place for them.
    FitFailed
        If there is no estimate without one of the folds; the message names it. Where it is one
        with a caution (a parameter that the data do not tell), a warning does.
    NotPositiveDefinite, NotEnoughMemory
    LostCluster
        If the scheduler of the cluster is lost, or workers are lost again and again.

    Notes
    -----
    Predictions are the same bits wherever they are made; but see `bootstrap` on cores.

    Examples
    --------
    Folds of one observation each leave one out:

    >>> import geomxp as gx
    >>> seen = gx.datasets.load("meuse")
    >>> model = gx.Matern(0.6, 220.0, 0.5, 0.06)
    >>> fit = gx.fit(seen, model, fixed=tuple(model.parameters()))
    >>> single = gx.cross_validate(fit, folds=len(seen))
    >>> bool(np.allclose(single.mean, gx.leave_one_out(fit).mean))
    True
    """
    start = time.perf_counter()
    check_fit(fit)
    seen = fit.observations
    labels, kind = folds_of(seen, folds, blocks, seed)
    tasks, apart = Tasks(on, fit.method), bool(refit) or isinstance(fit.method, Vecchia)
    if tasks.crew is not None and not apart:
        raise InvalidInput(
            "`on` shares out folds that are computed apart; with the parameters held, those of an "
            "exact fit come from one factorization: leave `on` out, or ask for refit=True."
        )
    design = fit.trend.design(seen.locations, seen.covariates)
    parts = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    mean, variance = np.empty(len(seen)), np.empty(len(seen))
    with Line("validating", shown=progress) as line:
        held = None
        if not apart:
            with blas_threads(len(seen)):
                held = _held_out(fit, design)
        line.expect(len(parts), "folds")
        common = fit, design, labels, bool(refit), held
        found = tasks.over(predicted, common, parts, line.advance)
        for rows, answer in zip(parts, found, strict=True):
            mean[rows], variance[rows] = answer
    seconds = time.perf_counter() - start
    return Validation(seen, mean, variance, labels, kind, bool(refit), seconds)


def _held_out(fit, design):
    evaluator = fit.method.prepare(fit.observations, design, fit.reml)
    device = getattr(evaluator, "device", None) or resolve("cpu")
    return HeldOut(evaluator.factorize(fit.model), fit.observations.values, design, device)


def _check_leverages(design):
    """Raise `InvalidInput` if X without one of its rows has dependent columns."""
    n, p = design.shape
    if p == 0:
        return
    q, _ = np.linalg.qr(design / np.abs(design).max(axis=0))
    left = 1.0 - np.einsum("ij,ij->i", q, q)
    row = int(np.argmin(left))
    if left[row] <= 8 * n * np.finfo(float).eps:
        raise InvalidInput(
            f"row {row + 1} cannot be left out: without it the coefficients of the trend are not "
            'determined. Use trend="constant", or leave a covariate out.'
        )
