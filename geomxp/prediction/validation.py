"""Which observations are left out together: at random, by blocks in space, or as the user says."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, replace
from math import isfinite
from numbers import Integral, Real
from typing import TYPE_CHECKING

import numpy as np
import scipy

from ..covariance.distance import EARTH_RADIUS
from ..data.observations import Observations
from ..errors import FitFailed, GeomxpError, GeomxpWarning, InvalidInput, NotPositiveDefinite
from ..estimation.result import Fit, check_fit, z_value
from ..likelihood.exact import check_memory
from ..likelihood.trend import fit_trend
from ..prediction import scores
from ..runtime.devices import blas_threads
from ..runtime.progress import Line
from ..runtime.tasks import Tasks
from ..vecchia.factor import VecchiaFactor

if TYPE_CHECKING:
    from .._typing import ArrayLike, Client, Document, Floats, Frame, Whole


def folds_of(observations, folds, blocks=None, seed=0):
    """Return the folds of a cross-validation.

    Parameters
    ----------
    observations : Observations
    folds : int or (n,) array_like
        How many, or labels.
    blocks : float, optional
        Side of spatial blocks, in the unit of the range.
    seed : int

    Returns
    -------
    labels : (n,) ndarray
        0, 1, … or the user's own.
    kind : str
        In words.

    Raises
    ------
    InvalidInput

    Examples
    --------
    >>> from geomxp import Observations
    >>> seen = Observations(np.arange(6.0), np.zeros(6))
    >>> labels, kind = folds_of(seen, 3)
    >>> np.bincount(labels).tolist(), kind
    ([2, 2, 2], '3 random folds (seed 0)')
    """
    n = len(observations)
    if not isinstance(folds, Integral) or isinstance(folds, bool):
        if blocks is not None:
            raise InvalidInput("`blocks` needs a number of `folds`, not labels of their own.")
        labels = _checked_labels(folds, n)
        return labels, f"{len(np.unique(labels))} given folds"
    if not 2 <= folds <= n:
        raise InvalidInput(f"`folds` must be a whole number from 2 to {n}. Got {folds}.")
    if not (isinstance(seed, Integral) and seed >= 0):
        raise InvalidInput(f"`seed` must be a whole number of at least 0. Got {seed!r}.")
    random = np.random.default_rng(seed)
    if blocks is not None:
        cells = block_numbers(observations, blocks)
        kind = f"{folds} folds of blocks of side {blocks:g} (seed {seed})"
        return _shared(cells, folds, blocks, random), kind
    labels = np.empty(n, dtype=np.int64)
    labels[random.permutation(n)] = np.arange(n) % folds
    return labels, f"{folds} random folds (seed {seed})"


def _checked_labels(folds, n):
    labels = np.asarray(folds)
    if labels.ndim == 0:
        raise InvalidInput(f"`folds` must be a whole number, or {n} labels. Got {folds!r}.")
    if labels.shape != (n,):
        raise InvalidInput(
            f"`folds` must hold one label for each of the {n} observations. "
            f"Got shape {labels.shape}."
        )
    missing = np.array([label is None or label != label for label in labels.tolist()])
    if missing.any():
        raise InvalidInput(f"`folds` has no label in row {int(np.argmax(missing)) + 1}.")
    try:
        count = len(np.unique(labels))
    except TypeError:
        raise InvalidInput("`folds` must hold labels of one kind: numbers, or texts.") from None
    if count < 2:
        raise InvalidInput("`folds` must hold at least 2 different labels. Got one.")
    return labels


def block_numbers(observations, side):
    """Return the number of the square block that each place lies in, (n,), from 0 and without gaps.

    Blocks begin at the least coordinates. For longitude and latitude they are rows of `side` km
    from south to north, cut to `side` km along each row's middle latitude.

    Parameters
    ----------
    observations : Observations
    side : float

    Examples
    --------
    >>> from geomxp import Observations
    >>> seen = Observations([[0.0, 0.0], [0.9, 0.1], [1.1, 0.0], [0.0, 2.5]], np.zeros(4))
    >>> block_numbers(seen, 1.0).tolist()
    [0, 0, 2, 1]
    """
    if not (isinstance(side, Real) and not isinstance(side, bool) and isfinite(side) and side > 0):
        raise InvalidInput(f"`blocks` must be the side of a square, above 0. Got {side!r}.")
    places = observations.locations
    if observations.metric != "euclidean":
        places = _flattened(places, side)
    with np.errstate(over="ignore"):
        cells = np.floor((places - places.min(axis=0)) / side)
    if not np.isfinite(cells).all() or cells.max() > 2**52:
        raise InvalidInput(f"`blocks` is too small a side for these places. Got {side!r}.")
    return np.unique(cells, axis=0, return_inverse=True)[1].reshape(-1)


def _flattened(places, side):
    """Return longitude and latitude in km, each row of blocks with its own width of a degree."""
    degree = np.pi / 180 * EARTH_RADIUS
    lon, lat = places.T
    # the widest gap between meridians is where the map is cut
    turned = np.sort(lon % 360.0)
    gaps = np.diff(np.append(turned, turned[0] + 360.0))
    west = turned[(int(np.argmax(gaps)) + 1) % len(turned)]
    south = lat.min()
    row = np.floor((lat - south) * degree / side)
    middle = np.clip(south + (row + 0.5) * side / degree, -90.0, 90.0)
    east = ((lon % 360.0) - west) % 360.0 * degree * np.cos(np.radians(middle))
    return np.column_stack((east, (lat - south) * degree))


def _shared(cells, folds, side, random):
    """Give blocks to folds in random order, each to the one that has the fewest places so far."""
    sizes = np.bincount(cells)
    if len(sizes) < folds:
        raise InvalidInput(
            f"blocks of side {side:g} divide the places into {len(sizes)}, fewer than {folds} "
            "folds: use a smaller side or fewer folds."
        )
    of_block, filled = np.empty(len(sizes), dtype=np.int64), np.zeros(folds, dtype=np.int64)
    for block in random.permutation(len(sizes)):
        # of empty folds the first, so that none stays empty
        of_block[block] = np.argmin(filled)
        filled[of_block[block]] += sizes[block]
    return of_block[cells]


# What a factor of Σ says of observations that are left out, without another factor.
#
# With Q = Σ⁻¹ - Σ⁻¹X(X'Σ⁻¹X)⁻¹X'Σ⁻¹ the observations F have, given all others and with the trend
# estimated from those, the mean z_F - Q_FF⁻¹(Qz)_F and the covariance Q_FF⁻¹ (Dubrule 1983, Math.
# Geol. 15:687).


class HeldOut:
    """Predictions of some observations from all others, out of one factor of Σ.

    Parameters
    ----------
    factor : CholeskyFactor, TileFactor, RefinedFactor or VecchiaFactor
        A Vecchia factor's Σ is the one that the approximation stands for.
    values : (n,) ndarray
    design : (n, p) ndarray
    device : Device
        Where the factor lives.

    Examples
    --------
    With Σ = I and a constant trend it is the mean of the others:

    >>> from geomxp.runtime.devices import Device
    >>> from geomxp.tiles.factor import CholeskyFactor
    >>> one = CholeskyFactor(np.eye(3, order="F"))
    >>> mean, variance = HeldOut(one, np.array([1.0, 2.0, 6.0]), np.ones((3, 1)),
    ...                          Device("cpu")).one_by_one()
    >>> bool(np.allclose(mean, [4.0, 3.5, 1.5])), bool(np.allclose(variance, 1.5))
    (True, True)
    """

    def __init__(self, factor, values, design, device):
        known = fit_trend(factor, values, design)
        self.factor, self.values, self.device = factor, values, device
        # Qz = Σ⁻¹(z - Xβ̂)
        self.solution = factor.solve(known.residual)
        # Q = Σ⁻¹ - BB'
        self.beside = np.zeros((len(values), 0))
        if design.shape[1]:
            self.beside = factor.solve(np.asfortranarray(design @ known.root))

    def one_by_one(self):
        """Return the mean and variance of each observation given all others, (n,).

        z_i - (Qz)_i/Q_ii and 1/Q_ii.
        """
        diagonal = self._diagonal_of_inverse() - np.einsum("ij,ij->i", self.beside, self.beside)
        if not (diagonal > 0).all():
            row = int(np.argmin(diagonal)) + 1
            raise NotPositiveDefinite(
                f"the variance of row {row} given all others is lost to rounding: use a larger "
                "nugget, or a finer precision.",
            )
        return self.values - self.solution / diagonal, 1.0 / diagonal

    def together(self, rows):
        """Return the mean and variance of some observations given all others, (k,).

        Parameters
        ----------
        rows : (k,) ndarray of int

        Raises
        ------
        NotPositiveDefinite
        NotEnoughMemory
        """
        n, k = len(self.values), len(rows)
        # whitened columns, a copy of them, and their products
        check_memory(n, (2 * k + k * k / n) / n, self.device)
        block = self._block_of_inverse(rows)
        block -= self.beside[rows] @ self.beside[rows].T
        try:
            lower = scipy.linalg.cho_factor(block, lower=True, overwrite_a=True)
        except np.linalg.LinAlgError:
            raise NotPositiveDefinite(
                f"the covariance of the {k} observations held out, given all others, is lost to "
                "rounding: use more folds, a larger nugget or a finer precision."
            ) from None
        mean = self.values[rows] - scipy.linalg.cho_solve(lower, self.solution[rows])
        # (LL')⁻¹ has the squared columns of L⁻¹ for a diagonal
        inverse, _ = scipy.linalg.lapack.dtrtri(lower[0], lower=1, overwrite_c=1)
        inverse = np.tril(inverse)
        return mean, np.einsum("ij,ij->j", inverse, inverse)

    def _block_of_inverse(self, rows):
        """Return (Σ⁻¹)_FF = E'Σ⁻¹E with the columns E of the identity."""
        return self.factor.inner(_columns_of_identity(len(self.values), rows))

    def _diagonal_of_inverse(self):
        """Return the diagonal of Σ⁻¹, (n,)."""
        if isinstance(self.factor, VecchiaFactor):
            return _diagonal_of_precision(self.factor)
        return self.factor.inverse_diagonal(len(self.values))


def _columns_of_identity(n, rows):
    columns = np.zeros((n, len(rows)), order="F")
    columns[rows, np.arange(len(rows))] = 1.0
    return columns


def _diagonal_of_precision(factor):
    """Return the diagonal of Σ⁻¹ = B'B, row i of B being (1 at i, -λ_i at its neighbours)/√d_i."""
    near, d = factor.graph.neighbours, factor.variances
    there = near >= 0
    shares = (factor.weights[there] ** 2) / np.broadcast_to(d[:, None], near.shape)[there]
    sums = 1.0 / d + np.bincount(near[there], shares, minlength=len(d))
    found = np.empty(len(d))
    found[factor.graph.tree.order] = sums
    return found


# Observations predicted by a fit that has not seen them.


def predicted(common, rows):
    """Return mean and variance, (k,), of the observations of one fold, from all others.

    Parameters
    ----------
    common : tuple
        The fit; its design, (n, p); the label of each row's fold, (n,); whether to estimate anew;
        and a `HeldOut` of all rows, for an exact fit whose parameters are held.
    rows : (k,) ndarray of int

    Raises
    ------
    GeomxpError
        One that names the fold.
    """
    fit, design, labels, refit, held = common
    seen, label = fit.observations, labels[rows[0]]
    rest = np.setdiff1d(np.arange(len(seen)), rows)
    try:
        fit.trend.check_full_rank(design[rest])
        if held is not None:
            with blas_threads(len(seen)):
                return held.together(rows)
        if not refit:
            return _predict(_held_without(fit, rest, design), rows, seen)
        again = _fitted_without(fit, rest)
        if not again.outcome.good:
            # of who asks for the validation
            warnings.warn(f"fold {label}: {again.outcome}", GeomxpWarning, stacklevel=4)
        return _predict(again, rows, seen)
    except GeomxpError as error:
        raise _named(error, label) from error


def _predict(fit, rows, seen):
    """Return mean and variance of observations, from a fit of others."""
    from .kriging import predict

    covariates = None if seen.covariates is None else seen.covariates[rows]
    there = predict(fit, seen.locations[rows], covariates, progress=False)
    return there.mean, there.variance_of_observation


def _of_rows(method, rest):
    """Return the way to compute with the rest of the rows."""
    return method.of_rows(rest)


def _held_without(fit, rest, design):
    """Return the fit with the rest of the observations: its model, their coefficients."""
    part, method = _subset(fit.observations, rest), _of_rows(fit.method, rest)
    found = method.prepare(part, design[rest], fit.reml)(fit.model)
    if not np.isfinite(found.log_likelihood):
        raise NotPositiveDefinite(found.outcome.message)
    return replace(
        fit,
        observations=part,
        method=method,
        coefficients=found.coefficients,
        coefficient_covariance=found.coefficient_covariance,
    )


def _fitted_without(fit, rest):
    """Return a fit to the rest of the observations, made as the fit was, and starting there."""
    from ..estimation.fit import fit as run

    estimated = fit.free + fit.boundary
    values = fit.model.parameters()
    return run(
        _subset(fit.observations, rest),
        fit.model,
        _of_rows(fit.method, rest),
        fixed={name: value for name, value in values.items() if name not in estimated},
        bounds=fit.bounds,
        trend=fit.trend.text,
        reml=fit.reml,
        progress=False,
    )


def _subset(seen, rows):
    with warnings.catch_warnings():
        # said already, about all of the coordinates
        warnings.simplefilter("ignore", GeomxpWarning)
        return seen.subset(rows)


def _named(error, label):
    """Return an error of the same kind that names the fold."""
    message = f"fold {label}: {error}"
    return type(error)(message, error.fit) if isinstance(error, FitFailed) else type(error)(message)


# Validation: each observation predicted from others, by leave-one-out or in folds.


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
        from .._version import __version__

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
        method = "estimated without each fold" if self.refitted else "held"
        lines = [f"{kind} of {len(self):,} observations, covariance parameters {method}", ""]
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
    tasks, apart = Tasks(on, fit.method), bool(refit) or fit.method.approximate
    if not tasks.local and not apart:
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
    device = evaluator.device
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
