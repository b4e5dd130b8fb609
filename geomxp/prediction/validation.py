"""Validation: each observation predicted from others, by leave-one-out or in folds."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np
import scipy

from .._version import __version__
from ..covariance.distance import EARTH_RADIUS, widest_gap
from ..covariance.transformation import Transformation
from ..data.labels import aligned
from ..data.observations import Observations
from ..errors import (
    FitFailed,
    GeomxpWarning,
    InvalidInput,
    NotPositiveDefinite,
    brief_repr,
    check_flags,
    check_one_of,
    check_whole,
    is_finite,
    naming,
)
from ..estimation.bootstrap import refit
from ..estimation.fit import FAILED_ENDINGS
from ..estimation.hurdle import HurdleFit, check_hurdle_columns, check_hurdle_values
from ..estimation.result import Fit, check_fit, design_of, z_value
from ..likelihood.evaluators import evaluator_for
from ..likelihood.factors import check_memory
from ..likelihood.latent import check_values
from ..likelihood.trend import fit_trend
from ..runtime.devices import blas_threads, gpu_memory
from ..runtime.equality import by_content
from ..runtime.progress import Line
from ..runtime.tasks import Tasks
from . import scores
from .kriging import predict_left_out
from .mixtures import HurdleMixture, Mixture
from .supports import targets_of

if TYPE_CHECKING:
    from .._typing import ArrayLike, Client, Document, Floats, Frame, Whole


# Folds: random, spatial blocks, consecutive times, or the user's labels

FOLDS_IN_TIME = ("blocks", "forecast")


def folds_of(observations, folds, blocks=None, seed=0, in_time=None):
    """Return the label of each observation's fold, (n,), and a description of the folds for tables.

    `folds` is their number, or labels; `blocks` is the side of spatial blocks, in the unit of the
    range; for `in_time` see `cross_validate`.
    """
    n = len(observations)
    if in_time is not None:
        return _consecutive(observations, folds, blocks, in_time)
    if not isinstance(folds, Integral) or isinstance(folds, bool):
        if blocks is not None:
            raise InvalidInput("`blocks` needs a number of `folds`, not labels.")
        (folds,) = aligned(observations.row_labels, "the observations", folds=folds)
        labels = _checked_labels(folds, n)
        return labels, f"{len(np.unique(labels))} given folds"
    if not 2 <= folds <= n:
        raise InvalidInput(f"`folds` must be a whole number from 2 to {n}. Got {folds}.")
    check_whole("seed", seed, 0, inf)
    random = np.random.default_rng(seed)
    if blocks is not None:
        cells = block_numbers(observations, blocks)
        kind = f"{folds} folds of blocks of side {blocks:g} (seed {seed})"
        return _shared(cells, folds, blocks, random), kind
    labels = np.empty(n, dtype=np.int64)
    labels[random.permutation(n)] = np.arange(n) % folds
    return labels, f"{folds} random folds (seed {seed})"


def _consecutive(observations, folds, blocks, in_time):
    """Return folds of consecutive times; the first one of a forecast, 0, is not predicted."""
    check_one_of("in_time", in_time, FOLDS_IN_TIME)
    if observations.time is None:
        raise InvalidInput("`in_time` needs observations with times: give `time` (--time).")
    if blocks is not None:
        raise InvalidInput("`in_time` and `blocks` are different folds: give one of them.")
    check_whole("folds", folds, 1 if in_time == "forecast" else 2)
    times, of = np.unique(observations.time, return_inverse=True)
    count = folds + (in_time == "forecast")
    if len(times) < count:
        raise InvalidInput(
            f"`folds` must be at most {len(times) - (in_time == 'forecast')} for {len(times)} "
            f"different times. Got {folds}."
        )
    of_time = np.repeat(np.arange(count), [len(part) for part in np.array_split(times, count)])
    kind = "predicted from all earlier times" if in_time == "forecast" else "of consecutive times"
    return of_time[of.reshape(-1)], f"{folds} folds {kind}"


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
        raise InvalidInput("`folds` must hold labels of one kind, numbers or strings.") from None
    if count < 2:
        raise InvalidInput("`folds` must hold at least 2 different labels. Got one.")
    return labels


def block_numbers(observations, side):
    """Return the number of each location's square block, (n,), from 0 without gaps.

    Blocks begin at the smallest coordinates. For longitude and latitude they form rows of `side` km
    from south to north, and are `side` km long at each row's middle latitude.
    """
    if not (is_finite(side) and side > 0):
        raise InvalidInput(
            f"`blocks` must be the side of a square, greater than 0. Got {brief_repr(side)}."
        )
    points = observations.locations
    if observations.geographic:
        points = _flattened(points, side)
    with np.errstate(over="ignore"):
        cells = np.floor((points - points.min(axis=0)) / side)
    if not np.isfinite(cells).all() or cells.max() > 2**52:
        raise InvalidInput(f"`blocks` must be a larger side for these locations. Got {side!r}.")
    return np.unique(cells, axis=0, return_inverse=True)[1].reshape(-1)


def _flattened(locations, side):
    """Return longitude and latitude in km, with one length of a degree in each row of blocks."""
    degree = np.pi / 180 * EARTH_RADIUS
    lon, lat = locations.T
    # the map is cut at the widest gap between meridians
    west = widest_gap(lon)[0]
    south = lat.min()
    row = np.floor((lat - south) * degree / side)
    middle = np.clip(south + (row + 0.5) * side / degree, -90.0, 90.0)
    east = ((lon % 360.0) - west) % 360.0 * degree * np.cos(np.radians(middle))
    return np.column_stack((east, (lat - south) * degree))


def _shared(cells, folds, side, random):
    """Assign blocks to folds in random order, each to the fold with the fewest locations so far."""
    sizes = np.bincount(cells)
    if len(sizes) < folds:
        raise InvalidInput(
            f"{folds} folds need at least {folds} blocks. Blocks of side {side:g} give "
            f"{len(sizes)}: use a smaller side or fewer folds."
        )
    of_block, filled = np.empty(len(sizes), dtype=np.int64), np.zeros(folds, dtype=np.int64)
    for block in random.permutation(len(sizes)):
        # argmin takes the first empty fold, so that no fold stays empty
        of_block[block] = np.argmin(filled)
        filled[of_block[block]] += sizes[block]
    return of_block[cells]


# Held-out observations from one factor of Σ
#
# With Q = Σ⁻¹ - Σ⁻¹X(X'Σ⁻¹X)⁻¹X'Σ⁻¹ the observations F have, given all others and with the trend
# estimated from those, the mean z_F - Q_FF⁻¹(Qz)_F and the covariance Q_FF⁻¹ (Dubrule 1983, Math.
# Geol. 15:687).


class HeldOut:
    """Predictions of some observations from all others, by one factor of Σ.

    With Vecchia's approximation the factor is that of the covariance matrix that it implies.
    """

    def __init__(self, factor, values, design, device):
        trend = fit_trend(factor, values, design)
        self.factor, self.values, self.device = factor, values, device
        # Qz = Σ⁻¹(z - Xβ̂)
        self.solution = factor.solve(trend.residual)
        # Q = Σ⁻¹ - BB'
        self.trend_part = np.zeros((len(values), 0))
        if design.shape[1]:
            self.trend_part = factor.solve(np.asfortranarray(design @ trend.root))

    def one_by_one(self):
        """Return z_i - (Qz)_i/Q_ii and 1/Q_ii: mean and variance of each given all others, (n,)."""
        diagonal = self.factor.inverse_diagonal(len(self.values))
        diagonal -= np.einsum("ij,ij->i", self.trend_part, self.trend_part)
        if not (diagonal > 0).all():
            row = int(np.argmin(diagonal)) + 1
            raise NotPositiveDefinite(
                f"the variance of row {row} given all others is lost to rounding: use a larger "
                "nugget, or a finer precision."
            )
        return self.values - self.solution / diagonal, 1.0 / diagonal

    def together(self, rows):
        """Return the mean and variance of some observations (rows) given all others, (k,)."""
        n, k = len(self.values), len(rows)
        # whitened columns, a copy of them, and their products
        remedy = f"use more folds, with fewer than {k:,} rows each (--folds, folds=)"
        check_memory(n, (2 * k + k * k / n) / n, self.device, remedy=remedy)
        # Q_FF = E'Σ⁻¹E - (BB')_FF with the columns E of the identity
        columns = np.zeros((n, k), order="F")
        columns[rows, np.arange(k)] = 1.0
        block = self.factor.inner(columns)
        block -= self.trend_part[rows] @ self.trend_part[rows].T
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


# Held-out observations from a fit to the others


def predicted(common, rows):
    """Return mean and variance, (k,), of the observations of one fold, from all others.

    `common` holds the fit; its design, (n, p); the label of each row's fold, (n,); whether to
    estimate again without the fold; whether only folds of smaller labels are known; a `HeldOut` of
    all rows, for an exact fit with parameters held fixed; and the observations that are predicted,
    with the labels of their folds. An error's message names the fold.
    """
    fit, design, labels, again, earlier, held, targets, folds = common
    observations, label = fit.observations, folds[rows[0]]
    response = fit.model.response
    rest = np.flatnonzero(labels < label if earlier else labels != label)
    with naming(f"fold {label}"):
        fit.trend.check_full_rank(design[rest])
        if held is not None:
            with blas_threads(len(observations)):
                return held.together(rows)
        part, method = observations.subset(rest), fit.method.of_rows(rest)
        if again:
            others = refit(fit, part, method)
            if others.outcome.ending in FAILED_ENDINGS:
                raise FitFailed(str(others.outcome), others)
        else:
            others = _with_same_parameters(fit, part, method, design[rest])
        if not others.outcome.attained:
            warnings.warn(f"fold {label}: {others.outcome}", GeomxpWarning, stacklevel=5)
        covariates = None if targets.covariates is None else targets.covariates[rows]
        others = others if response is None else others.gaussian
        mean, variance, noise = predict_left_out(others, targets.inputs[rows], covariates)
        return mean, variance + noise


def _with_same_parameters(fit, part, method, design):
    """Return the fit with a part of the observations: its model, and their coefficients."""
    evaluation = evaluator_for(fit.model, method, part, design, fit.reml)(fit.model)
    if not np.isfinite(evaluation.log_likelihood):
        raise NotPositiveDefinite(evaluation.outcome.message)
    return replace(
        fit,
        observations=part,
        method=method,
        outcome=evaluation.outcome,
        coefficients=evaluation.coefficients,
        coefficient_covariance=evaluation.coefficient_covariance,
    )


# The result, and the two ways to it


@by_content
@dataclass(frozen=True)
class Validation:
    """Observations and their predictions from other observations.

    Parameters
    ----------
    observations : Observations
    mean : (n,) ndarray
    variance : (n,) ndarray
        Variance of the prediction error of the observation, with the nugget and the uncertainty of
        the trend's coefficients.
    folds : (n,) ndarray or None
        Labels of the folds; for leave-one-out the numbers of the rows, from 0; None for a held-out
        table.
    kind : str
        Description of the folds.
    refitted : bool
        Whether the covariance parameters were estimated again without each fold.
    seconds : float
    repeated : int
        Number of observations of a held-out table that the fit has too.
    transform : Transformation or None
        Transformation of the values of a held-out table to the Gaussian scale; None if all numbers
        are on one scale.
    gaussian : ((n,) ndarray, (n,) ndarray) or None
        Mean and variance of the observation on the Gaussian scale, with a transformation.
    mixture : Mixture, HurdleMixture or None
        Distributions of the observations of a response.
    """

    observations: Observations
    mean: Floats
    variance: Floats
    folds: Whole | None
    kind: str
    refitted: bool = False
    seconds: float = field(default=0.0, compare=False)
    repeated: int = 0
    transform: Transformation | None = None
    gaussian: tuple[Floats, Floats] | None = None
    mixture: Mixture | HurdleMixture | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.mean)

    def __repr__(self) -> str:
        folds = "" if self.folds is None else f", {len(np.unique(self.folds)):,} folds"
        return f"<Validation of {len(self):,} observations: {self.kind}{folds}>"

    @property
    def observed(self) -> Floats:
        """The values, (n,)."""
        return self.observations.values

    @property
    def standardised_errors(self) -> Floats:
        """(observed - mean)/standard deviation, (n,): about N(0, 1) for a correct model.

        With a transformation on the Gaussian scale. With a response, and for censored values, the
        normal quantiles of `pit` (Dunn and Smyth 1996, J. Comput. Graph. Stat. 5:236).
        """
        if self.mixture is not None or self.censored.any():
            return scipy.special.ndtri(np.clip(self.pit(), 1e-16, 1 - 1e-16))
        mean, variance, observed = self._normal
        return (observed - mean) / np.sqrt(variance)

    @property
    def censored(self) -> Floats:
        """Whether a value is known only by limits, (n,)."""
        found = self.observations.censored
        return np.zeros(len(self), dtype=bool) if found is None else found

    @property
    def _normal(self):
        """Mean, variance and observed values on the Gaussian scale."""
        if self.transform is None:
            return self.mean, self.variance, self.observed
        return *self.gaussian, self.transform.transform(self.observed)

    def of_variable(self, variable: str | int) -> Validation:
        """Return the part of one of several variables.

        Parameters
        ----------
        variable : str or int
            Name or number, as of `Observations.of_variable`.

        Raises
        ------
        InvalidInput
            If there is no such variable.
        """
        own = self.observations.of_variable(variable)
        labels = self.observations.variable_labels
        rows = self.observations.variable == labels.index(own.value_name)
        return replace(self, observations=own, **self._rows(rows))

    def _rows(self, rows):
        """Return the arrays of some rows by name."""
        return {
            "mean": self.mean[rows],
            "variance": self.variance[rows],
            "folds": None if self.folds is None else self.folds[rows],
            "gaussian": self.gaussian and tuple(column[rows] for column in self.gaussian),
            "transform": self.transform and self.transform.of_rows(rows),
            "mixture": self.mixture and self.mixture.of_rows(np.arange(len(self))[rows]),
        }

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return lower and upper bounds of prediction intervals for the observations, (n,)."""
        half, tail = z_value(level), (1 - level) / 2
        if self.mixture is not None:
            return self.mixture.quantile(tail), self.mixture.quantile(1 - tail)
        mean, variance, _ = self._normal
        half = half * np.sqrt(variance)
        if self.transform is None:
            return mean - half, mean + half
        return self.transform.inverse(mean - half), self.transform.inverse(mean + half)

    def pit(self, seed: int = 0) -> Floats:
        """Return the probability integral transforms, (n,); see `scores.pit`.

        Those of discrete and of censored values are randomized (Czado, Gneiting and Held 2009,
        Biometrics 65:1254), with this seed.
        """
        random = np.random.default_rng(seed)
        if self.mixture is not None:
            return self.mixture.pit(self.observed, random)
        mean, variance, observed = self._normal
        found = scores.pit(mean, np.sqrt(variance), observed)
        if self.censored.any():
            low, high = self._probabilities_of_limits()
            between = low + random.random(len(self)) * (high - low)
            found = np.where(self.censored, between, found)
        return found

    def _probabilities_of_limits(self):
        """Return the probabilities of values below the lower and below the upper limits, (n,)."""
        mean, variance, _ = self._normal
        ends = self.observations.lower, self.observations.upper
        if self.transform is not None:
            with np.errstate(all="ignore"):
                ends = [np.where(np.isinf(x), x, self.transform.transform(x)) for x in ends]
            ends = np.nan_to_num(ends[0], nan=-np.inf, posinf=np.inf, neginf=-np.inf), ends[1]
        return [scipy.special.ndtr((x - mean) / np.sqrt(variance)) for x in ends]

    def scores(self, level: float = 0.95) -> dict[str, float]:
        """Return the mean scores as a dict of str to float; see `scores.summary`.

        Errors of several variables may have different units: see `of_variable`.
        """
        return self._scores(level, slice(None))

    def _scores(self, level, rows):
        """Return the scores of some rows."""
        if self.mixture is not None:
            mixture = self.mixture.of_rows(np.arange(len(self))[rows])
            columns = (column[rows] for column in (self.mean, self.variance, self.observed))
            return scores.mixed_summary(mixture, *columns, level)
        if self.censored[rows].any():
            return self._scores_of_censored(level, np.arange(len(self))[rows])
        mean, variance, observed = (column[rows] for column in self._normal)
        if self.transform is None:
            return scores.summary(mean, variance, observed, level)
        return scores.back_transformed_summary(
            self.mean[rows],
            mean,
            variance,
            self.observed[rows],
            self.transform.of_rows(rows),
            level,
        )

    def _scores_of_censored(self, level, rows):
        """Return the scores of rows, of which some are censored.

        The log score of a censored value is that of its probability; coverage counts intervals
        that meet its limits; other scores are those of the values that are known.
        """
        known, censored = rows[~self.censored[rows]], rows[self.censored[rows]]
        lower, upper = (x[rows] for x in self.interval(level))
        seen = self.observations
        covered = (lower <= seen.upper[rows]) & (upper >= seen.lower[rows])
        low, high = (x[censored] for x in self._probabilities_of_limits())
        with np.errstate(divide="ignore"):
            logs = -np.log(high - low)
        found = dict.fromkeys(scores.NAMES, float("nan"))
        if len(known):
            plain = replace(self, observations=replace(seen, lower=None, upper=None))
            found = plain._scores(level, known)
            logs = np.r_[logs, np.full(len(known), found["log_score"])]
        return found | {"log_score": float(np.mean(logs)), "coverage": float(np.mean(covered))}

    def to_frame(self, level: float = 0.95) -> Frame:
        """Return a pandas frame, one row for each observation.

        Columns: the locations, the times if there are any (dates, if they were given as dates), the
        names of several variables, then fold (except for a held-out table), observed, mean,
        variance, lower, upper, standardised_error, pit. The bounds are of the observation.
        """
        import pandas as pd

        lower, upper = self.interval(level)
        columns = {} if self.folds is None else {"fold": self.folds}
        columns |= {
            "observed": self.observed,
            "mean": self.mean,
            "variance": self.variance,
            "lower": lower,
            "upper": upper,
            "standardised_error": self.standardised_errors,
            "pit": self.pit(),
        }
        seen = self.observations
        places = list(zip(seen.location_names, seen.locations.T, strict=True))
        if seen.time is not None:
            places.append((seen.time_name, seen.time_axis.labels(seen.time)))
        if seen.variable is not None:
            names = np.array(seen.variable_names or range(len(seen.variable_labels)))
            places.append((seen.variable_name, names[seen.variable]))
        for name, _ in places:
            if name in columns:
                raise InvalidInput(f"column {name!r} has the name of a result: rename it.")
        return pd.DataFrame(dict(places) | columns)

    def to_dict(self, level: float = 0.95) -> Document:
        """Return the JSON document of `geomxp validate --json`."""
        return {
            "geomxp": __version__,
            "n": len(self),
            "kind": self.kind,
            "folds": None if self.folds is None else len(np.unique(self.folds)),
            "refitted": self.refitted,
            **({"repeated": self.repeated} if self.folds is None else {}),
            "level": level,
            "scores": _known(self.scores(level)),
            **({"variables": self._known_of_variables(level)} if self._several else {}),
            "seconds": self.seconds,
        }

    def describe(self, level: float = 0.95) -> str:
        """Return the scores as a readable table, with a column for each of several variables."""
        values = {name: [value] for name, value in self.scores(level).items()}
        heads = []
        if self._several:
            each = self._scores_of_variables(level)
            heads = [f"{'':<18}" + "".join(f"{name:>{_width(name)}}" for name in each)]
            widths = [_width(name) for name in each]
            values = {name: [one[name] for one in each.values()] for name in values}
        else:
            widths = [12]
        intervals = f"of {100 * level:g} % intervals"
        notes = {
            "bias": "predicted minus observed",
            "log_score": "-log density, in nats",
            "interval_score": intervals,
            "coverage": intervals,
            "mean_squared_standardised_error": "1 if the variances are right",
        }
        names = {"mean_squared_standardised_error": "mean squared z"}
        names |= {name: name.upper() for name in ("rmse", "mae", "crps")}
        kind = self.kind[0].upper() + self.kind[1:]
        method = "estimated without each fold" if self.refitted else "held"
        lines = [
            f"{kind} of {len(self):,} observations, covariance parameters {method}",
            "",
            *heads,
        ]
        for name, each in values.items():
            shown = names.get(name, name.replace("_", " "))
            numbers = "".join(f"{x:>{width}.6g}" for x, width in zip(each, widths, strict=True))
            lines.append(f"  {shown:<16}{numbers}   {notes.get(name, '')}".rstrip())
        if self.censored.any():
            lines += [
                "",
                f"  {self.observations.limits_in_words}: scored by probability and coverage only",
            ]
        elif not all(isfinite(x) for each in values.values() for x in each):
            lines += [
                "",
                "  inf, nan: the back-transformed mean or a bound is infinite in some rows",
            ]
        if self.repeated:
            lines += ["", f"  {_of_the_fit(self.repeated, len(self))}"]
        return "\n".join(lines)

    def _known_of_variables(self, level):
        return {name: _known(one) for name, one in self._scores_of_variables(level).items()}

    @property
    def _several(self):
        """Whether there are several variables."""
        return len(self.observations.variable_labels) > 1

    def _scores_of_variables(self, level):
        """Return the scores of each variable, by name."""
        seen = self.observations
        numbers = np.unique(seen.variable).tolist()
        labels = seen.variable_labels
        return {labels[k]: self._scores(level, seen.variable == k) for k in numbers}

    def __str__(self) -> str:
        return self.describe()


def _known(found):
    """Return scores for JSON: None where a mean or a variance of a transformation is infinite."""
    return {name: value if isfinite(value) else None for name, value in found.items()}


def _of_the_fit(repeated, n):
    """Return a sentence that counts the observations of a held-out table that a fit has too."""
    return f"{repeated:,} of the {n:,} observations are also in the fit: scores are too optimistic"


def _width(name):
    """Return the width of a column of numbers with a name."""
    return max(12, len(name) + 2)


def leave_one_out(fit: Fit | HurdleFit, *, progress: bool = True) -> Validation:
    """Predict each observation from all others, from one factorization.

    With Q = Σ⁻¹ - Σ⁻¹X(X'Σ⁻¹X)⁻¹X'Σ⁻¹ the i-th has the mean z_i - (Qz)_i/Q_ii and the variance
    1/Q_ii (Dubrule 1983, Math. Geol. 15:687). This equals n kriging predictions with the covariance
    parameters held fixed and the trend's coefficients estimated each time without the i-th. A fit
    in mixed formats uses its factor's Σ⁻¹, refined if the fit refines. A fit by `Vecchia` uses the
    sparse Σ⁻¹ of the approximation, that is, the full conditionals of the maximised likelihood,
    each given all locations that are neighbours in either direction. With a transformation all
    values are on the Gaussian scale. For a hurdle, presence and amount are each predicted from all
    other observations.

    Parameters
    ----------
    fit : Fit or HurdleFit
    progress : bool
        Show a progress line after two seconds if standard error is a terminal.

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
    The second of four is predicted as by a fit to the other three:

    >>> import geomxp as gx
    >>> observations = gx.Observations([[0.0], [1.0], [2.0], [4.0]], [1.0, 3.0, 5.0, 4.0])
    >>> model = gx.Matern(1.0, 1.0, 0.5)
    >>> held = tuple(model.parameters())
    >>> left_out = gx.leave_one_out(gx.fit(observations, model, fixed=held))
    >>> others = gx.fit(observations.subset([0, 2, 3]), model, fixed=held)
    >>> bool(np.isclose(left_out.mean[1], gx.predict(others, [[1.0]]).mean[0]))
    True
    """
    start = time.perf_counter()
    hurdle = isinstance(fit, HurdleFit)
    if not hurdle:
        check_fit(fit)
    folds = {"folds": np.arange(len(fit.observations)), "kind": "leave-one-out"}
    if hurdle:
        present = fit.observations.values != 0
        absent = _from_fit(fit.amount, fit.observations.subset(~present), progress)
        amount = np.empty((2, len(present)))
        amount[:, present], amount[:, ~present] = _one_by_one(fit.amount, progress), absent
        moments = _one_by_one(fit.presence, progress), amount
        return _of_hurdle(fit, fit.observations, *moments, start=start, **folds)
    mean, variance = _one_by_one(fit, progress)
    if fit.model.response is not None:
        return _of_values(fit, fit.observations, mean, variance, start=start, **folds)
    seconds = time.perf_counter() - start
    return Validation(fit.gaussian.observations, mean, variance, seconds=seconds, **folds)


def _one_by_one(fit, progress):
    """Return mean and variance, (n,), of each Gaussian value, or η, from all other observations."""
    gaussian = fit.gaussian
    observations, design = gaussian.observations, design_of(gaussian)
    _check_leverages(design)
    with Line("leave-one-out", shown=progress), blas_threads(len(observations)):
        mean, variance = _held_out(gaussian, design).one_by_one()
    if fit.model.response is not None:
        variance = np.maximum(variance - observations.error_variance, 0.0)
    return mean, variance


def _of_values(fit, observations, mean, variance, *, start, **given):
    """Return the validation of values of a response, from means and variances of η less offsets."""
    response, transform = fit.model.response, fit.model.transform
    if response.normal_noise is None:
        mixture = _mixture(fit, observations, mean, variance)
        return _of_mixture(observations, mixture, start=start, **given)
    if observations.total_offset is not None:
        mean = mean + observations.total_offset
    given["seconds"] = time.perf_counter() - start
    variance = variance + response.normal_noise
    if transform is None:
        return Validation(observations, mean, variance, **given)
    own = transform.of(observations.variable)
    moments = own.moments(mean, variance)
    return Validation(observations, *moments, transform=own, gaussian=(mean, variance), **given)


def _mixture(fit, observations, mean, variance):
    """Return the distributions of values of a response, from moments of η less offsets."""
    if observations.total_offset is not None:
        mean = mean + observations.total_offset
    return Mixture(fit.model.response, mean, variance, observations.trials)


def _of_mixture(observations, mixture, *, start, **given):
    moments = mixture.mean_value(), mixture.variance_value()
    given["seconds"] = time.perf_counter() - start
    return Validation(observations, *moments, mixture=mixture, **given)


def _check_columns_of_held(fit, observations):
    """Raise `InvalidInput` if held-out observations lack a column that those of the fit have."""
    for name in ("trials", "offset", "exposure"):
        if getattr(fit.observations, name) is not None and getattr(observations, name) is None:
            raise InvalidInput(
                f"the fit has `{name}`, and the held-out observations have none: give it "
                f"(--{name})."
            )


def _of_hurdle(fit, observations, presence, amount, **given):
    """Return the validation of a hurdle, from the moments of η of both parts less offsets."""
    parts = zip(fit.parts.values(), (presence, amount), strict=True)
    mixture = HurdleMixture(*(_mixture(part, observations, *own) for part, own in parts))
    return _of_mixture(observations, mixture, **given)


def cross_validate(
    fit: Fit | HurdleFit,
    folds: int | ArrayLike = 10,
    *,
    blocks: float | None = None,
    in_time: str | None = None,
    refit: bool = False,
    seed: int = 0,
    on: str | Client = "cpu",
    progress: bool = True,
) -> Validation:
    """Predict each fold of observations from all others, or from those of earlier times.

    With the covariance parameters held fixed, an exact fit needs one factorization: fold F has the
    mean z_F - Q_FF⁻¹(Qz)_F and the covariance Q_FF⁻¹, with Q as in `leave_one_out`; the trend is
    estimated without the fold. A fit by `Vecchia` is prepared again without each fold, and predicts
    the fold as `predict` does. With a transformation all values are on the Gaussian scale, and its
    parameters are held fixed.

    Parameters
    ----------
    fit : Fit or HurdleFit
    folds : int or (n,) array_like
        Number of random folds of (nearly) equal size, or a label for each observation: a Series is
        matched by the row labels of the frame that the observations came from.
    blocks : float, optional
        Spatial folds: all locations within a square (a cube, an interval) of this side belong to
        one fold, and squares are assigned to folds at random. In the unit of the range: that of the
        locations, km for longitude and latitude.
    in_time : {"blocks", "forecast"}, optional
        Folds of consecutive times, with as many different times each: "blocks" predicts each from
        all others, "forecast" from all earlier ones, where observations before the first fold, as
        many as in one, are not predicted.
    refit : bool
        Estimate the free parameters again without each fold, within the fit's bounds and started
        at its estimates.
    seed : int
        Seed of the random folds.
    on : str or dask.distributed.Client
        "cpu": one fold after the other, in this process. Or a Dask cluster, by the address of its
        scheduler, "tcp://host:8786", or a client: each fold is then predicted on a worker by the
        fit's own method. Only with `refit` or a fit by `Vecchia`, whose folds are computed
        separately.
    progress : bool
        Show a progress line after two seconds if standard error is a terminal.

    Returns
    -------
    Validation

    Raises
    ------
    InvalidInput
        For folds that are not valid, or without which the trend cannot be estimated; if `on` cannot
        compute them.
    FitFailed
        If there is no estimate without one of the folds; the message names it. An estimate with a
        reservation (a parameter that is not identified) gives a warning that names the fold.
    NotPositiveDefinite, NotEnoughMemory
    LostCluster
        If the scheduler of the cluster is lost, or workers are lost again and again.

    Notes
    -----
    Predictions have the same bits wherever they are computed; see `bootstrap` about cores.

    Examples
    --------
    Folds of one observation each leave one out:

    >>> import geomxp as gx
    >>> observations = gx.datasets.load("meuse")
    >>> model = gx.Matern(0.6, 220.0, 0.5, 0.06)
    >>> fit = gx.fit(observations, model, fixed=tuple(model.parameters()))
    >>> single = gx.cross_validate(fit, folds=len(observations))
    >>> bool(np.allclose(single.mean, gx.leave_one_out(fit).mean))
    True
    """
    start = time.perf_counter()
    hurdle = isinstance(fit, HurdleFit)
    if not hurdle:
        check_fit(fit)
    check_flags(refit=refit)
    if not hurdle and fit.model.response is None:
        fit = fit.gaussian
    observations = fit.observations
    labels, kind = folds_of(observations, folds, blocks, seed, in_time)
    forecast = in_time == "forecast"
    options = {"again": bool(refit), "earlier": forecast, "on": on}
    with Line("validating", shown=progress) as line:
        if hurdle:
            present = observations.values != 0
            moments = (
                _over_folds(fit.presence, labels, line, **options),
                _over_folds(fit.amount, labels[present], line, (observations, labels), **options),
            )
        else:
            moments = _over_folds(fit, labels, line, **options)
    if forecast:
        rows = np.flatnonzero(labels > 0)
        observations, labels = observations.subset(rows), labels[rows]
        moments = np.asarray(moments)[..., rows]
    given = {"folds": labels, "kind": kind, "refitted": bool(refit)}
    if hurdle:
        return _of_hurdle(fit, observations, *moments, start=start, **given)
    if fit.model.response is not None:
        return _of_values(fit, observations, *moments, start=start, **given)
    seconds = time.perf_counter() - start
    return Validation(observations, *moments, seconds=seconds, **given)


def _over_folds(fit, labels, line, others=None, *, again, earlier, on):
    """Return mean and variance, (n,), of the observations of each fold from those of other folds.

    Of a response they are those of η. They are of `others` with labels instead of the fit's own if
    given. With `earlier` those of the first fold are not predicted.
    """
    targets, folds = others or (fit.observations, labels)
    tasks, separate = Tasks(on, fit.method), again or fit.method.approximate or earlier
    # the mode of the field is another one without a fold
    separate |= fit.model.response is not None
    if not tasks.local and not separate:
        raise InvalidInput(
            "`on` distributes folds that are computed separately, and an exact fit with its "
            "parameters held fixed needs one factorization for all folds: leave `on` out, or give "
            "refit=True."
        )
    design = design_of(fit)
    parts = [np.flatnonzero(folds == label) for label in np.unique(folds)][earlier:]
    mean, variance = np.empty(len(targets)), np.empty(len(targets))
    held = None
    if not separate:
        with blas_threads(len(targets)):
            held = _held_out(fit, design)
    line.expect(len(parts), "folds")
    common = fit, design, labels, again, earlier, held, targets, folds
    for rows, result in zip(parts, tasks.over(predicted, common, parts, line.advance), strict=True):
        mean[rows], variance[rows] = result
    return mean, variance


@gpu_memory()
def validate(
    fit: Fit | HurdleFit, observations: Observations, *, progress: bool = True
) -> Validation:
    """Predict other observations than those of a fit, such as a held-out table, and score them.

    Each is predicted from the observations of the fit, as `predict` does. Its variance has the
    nugget divided by its replicates and its known error variance. With a transformation the scores
    are on the scale of the values: errors are those of the mean that `predict` returns, and the
    other scores those of the back-transformed distribution.

    Parameters
    ----------
    fit : Fit or HurdleFit
    observations : Observations
        Of the quantity that the fit describes, with the covariates of its trend. Locations in
        another coordinate reference system are reprojected. Observations that the fit has too are
        counted, and a warning says so.
    progress : bool
        Show a progress line after two seconds if standard error is a terminal.

    Returns
    -------
    Validation

    Raises
    ------
    InvalidInput
        For observations that do not suit the fit, or that it predicts exactly, because they are at
        its locations and neither it nor they have noise.
    NotPositiveDefinite
        If Σ has no Cholesky factor.

    Examples
    --------
    >>> import geomxp as gx
    >>> columns = {"values": "log(Ni)", "locations": ("x", "y")}
    >>> held = gx.datasets.load("jura_validation", **columns)
    >>> fit = gx.fit(gx.datasets.load("jura", **columns), fixed={"smoothness": 0.5})
    >>> validation = gx.validate(fit, held)
    >>> len(validation), bool(0.9 < validation.scores()["coverage"] <= 1)
    (100, True)
    """
    start = time.perf_counter()
    hurdle = isinstance(fit, HurdleFit)
    if not hurdle:
        check_fit(fit)
    if not isinstance(observations, Observations):
        kind = type(observations).__name__
        raise InvalidInput(f"`observations` must be Observations. Got {kind}.")
    _check_same_quantity(fit.observations, observations)
    if hurdle:
        check_hurdle_values(observations)
        link = fit.presence.model.response.link
        check_hurdle_columns(link, None, observations.offset, observations.exposure)
        _check_columns_of_held(fit, observations)
        moments = (_from_fit(part, observations, progress) for part in fit.parts.values())
        given = {"folds": None, "kind": HELD_OUT}
        return _of_hurdle(fit, observations, *moments, start=start, **given)
    transform, gaussian, response = fit.model.transform, fit.gaussian, fit.model.response
    if response is not None:
        check_values(observations, fit.model)
        _check_columns_of_held(fit, observations)
    elif transform is not None:
        # variables are numbered as those of the fit
        numbers = targets_of(gaussian, observations)[0].variable
        transform = transform.of(numbers)
        transform.check(observations.values)
    inputs, covariates, _ = targets_of(gaussian, observations)
    repeated = 0 if response is not None else _repeated(fit, inputs, observations.values)
    mean, variance, noise = predict_left_out(gaussian, inputs, covariates, progress)
    noisy, on_gaussian_scale = variance + noise, None
    if response is not None:
        given = {"folds": None, "kind": HELD_OUT, "repeated": repeated}
        return _of_values(fit, observations, mean, noisy, start=start, **given)
    if transform is not None:
        on_gaussian_scale = mean, noisy
        mean, noisy = transform.moments(mean, variance)[0], transform.moments(mean, noisy)[1]
    if repeated:
        message = _of_the_fit(repeated, len(observations))
        warnings.warn(f"{message}.", GeomxpWarning, stacklevel=3)
    return Validation(
        observations,
        mean,
        noisy,
        folds=None,
        kind=HELD_OUT,
        seconds=time.perf_counter() - start,
        repeated=repeated,
        transform=transform,
        gaussian=on_gaussian_scale,
    )


def _from_fit(fit, observations, progress):
    """Return mean and variance, (n,), of η less offsets for observations that a fit lacks."""
    inputs, covariates, _ = targets_of(fit.gaussian, observations)
    mean, variance, noise = predict_left_out(fit.gaussian, inputs, covariates, progress)
    return mean, variance + noise


HELD_OUT = "held-out table"
"""Description of a validation with observations that are not in the fit."""

DEFAULT_VALUE_NAME = "value"
"""Name of values without a name."""


def _check_same_quantity(seen, others):
    """Raise `InvalidInput` for other units or variables; warn about another name."""
    if (seen.variable is None) != (others.variable is None):
        which = ("one variable", "several variables")[seen.variable is not None]
        raise InvalidInput(
            f"the fit is of {which} ({', '.join(seen.variable_labels) or seen.value_name}), and "
            "the observations are not: read them with the same `values` or `variable`."
        )
    if seen.value_unit and others.value_unit and seen.value_unit != others.value_unit:
        raise InvalidInput(
            f"the values of the fit are in {seen.value_unit}, those of the observations in "
            f"{others.value_unit}: convert them to {seen.value_unit}."
        )
    names = seen.value_name, others.value_name
    if seen.variable is None and names[0] != names[1] and DEFAULT_VALUE_NAME not in names:
        warnings.warn(
            f"the fit is of {names[0]}, and the observations are of {names[1]}: the scores compare "
            "their values as they are.",
            GeomxpWarning,
            stacklevel=4,
        )


def _repeated(fit, inputs, values):
    """Return the number of observations that a fit has too; refuse those without an error."""
    seen, model = fit.observations, fit.model
    n = len(seen)
    groups = seen.inputs.with_rows_of(inputs).first_rows()
    known = set(zip(groups[:n].tolist(), seen.values.tolist(), strict=True))
    exact = np.isin(groups[n:], groups[:n][model.noise(seen.inputs).variances == 0])
    exact &= model.noise(inputs).variances == 0
    if exact.any():
        raise InvalidInput(
            f"row {int(np.argmax(exact)) + 1} is at a location of the fit's observations "
            f"({int(exact.sum())} such rows). Without a nugget and error variances the prediction "
            "there is exact, and cannot be scored: leave these rows out."
        )
    return sum(pair in known for pair in zip(groups[n:].tolist(), values.tolist(), strict=True))


def _held_out(fit, design):
    evaluator = fit.method.prepare(fit.observations, design, fit.reml)
    factor = evaluator.factorize(fit.model)
    return HeldOut(factor, fit.observations.values, design, evaluator.device)


@blas_threads(0)
def _check_leverages(design):
    """Raise `InvalidInput` if X without one of its rows has dependent columns."""
    n, p = design.shape
    if p == 0:
        return
    q, _ = np.linalg.qr(design / np.abs(design).max(axis=0))
    rest = 1.0 - np.einsum("ij,ij->i", q, q)
    row = int(np.argmin(rest))
    if rest[row] <= 8 * n * np.finfo(float).eps:
        raise InvalidInput(
            f"row {row + 1} cannot be left out, because the others do not determine the "
            'coefficients of the trend: use trend="constant", or leave a covariate out.'
        )
