"""The trend (mean) of the field: its design matrix X, and its coefficients by least squares."""

import re
import shlex
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import scipy

from ..covariance.distance import METRICS, Metric, metric_of, widest_gap
from ..data import names as names_of_columns
from ..data.arrays import check_finite
from ..data.formula import Formula
from ..data.observations import Observations
from ..data.summaries import counted
from ..data.tables import check_codes, decode, encode
from ..errors import InvalidInput, NotPositiveDefinite, did_you_mean
from ..runtime.devices import blas_threads

TRENDS = ("zero", "constant", "linear", "covariates")

PERIODIC_TOLERANCE = 1e-6
"""Largest relative change of a periodic trend when longitudes change by 360 degrees: a formula is
periodic only up to rounding."""


@dataclass(frozen=True)
class Trend:
    """A linear model of the mean, E z = Xβ.

    By kind, X has no columns ("zero"); 1 ("constant"); 1 and the coordinates ("linear"); 1 and the
    covariates ("covariates"); the columns of a formula ("formula"). `names` are those of β;
    `levels` the words for the codes of covariates of text; `memory` (formulaic.ModelSpec) the
    means, knots and levels that the formula's transforms learnt from the observations.

    Observations of several variables have one trend for each, with coefficients of its own: `each`
    holds the trends by number of the variable, and `variables` the names for all numbers. X has a
    block of columns for each trend, 0 in the rows of other variables. `kind` is "variables" if the
    trends differ.

    Longitudes are moved to the branch about the `central_meridian` of the observations, of the
    `metric`. Observations all round the globe have no branch: their trend must be the same after a
    turn of 360 degrees.
    """

    kind: str
    names: tuple[str, ...]
    location_names: tuple[str, ...]
    covariate_names: tuple[str, ...] = ()
    levels: dict = field(default_factory=dict)
    formula: Formula | None = None
    memory: object = field(default=None, repr=False, compare=False)
    each: dict = field(default_factory=dict)
    variables: tuple[str, ...] = ()
    metric: Metric = field(default=METRICS["euclidean"], repr=False)
    central_meridian: float | None = None

    @classmethod
    def of(cls, observations, trend, saved=False):
        """Return a trend for these observations: one of `TRENDS`, or a formula.

        Of several variables it may be a dict with a trend for each, or that as text.

        Raises `InvalidInput` if the kind is unknown, the formula is invalid, or covariates are
        missing; unless the trend is that of a `saved` fit, also if a column of text has many levels
        or looks like dates and the formula does not say that it is a factor.

        >>> import geomxp as gx
        >>> seen = gx.datasets.load("meuse")
        >>> Trend.of(seen, "sqrt_dist + I(x / 1000)").names
        ('intercept', 'sqrt_dist', 'I(x / 1000)')
        >>> Trend.of(gx.datasets.load("meuse", values=("zinc", "lead")), "constant").names
        ('zinc: intercept', 'lead: intercept')
        >>> metals = gx.datasets.load("meuse", values=("zinc", "lead"))
        >>> Trend.of(metals, {"zinc": "sqrt_dist", "lead": "constant"}).text
        'zinc: sqrt_dist; lead: constant'
        """
        if not isinstance(observations, Observations):
            kind = type(observations).__name__
            raise InvalidInput(f"`observations` must be Observations. Got {kind}.")
        if observations.variable is None:
            return cls._of_rows(observations, trend, saved)
        labels, each = observations.variable_labels, {}
        numbers = np.unique(observations.variable).tolist()
        trends = by_variable(trend, labels, [labels[k] for k in numbers])
        for k in numbers:
            rows = observations.variable == k
            with _of_variable(labels[k]):
                each[k] = cls._of_rows(observations, trends[labels[k]], saved, rows)
        names = tuple(f"{labels[k]}: {name}" for k, one in each.items() for name in one.names)
        changes = {"names": names, "memory": None, "each": each, "variables": labels}
        if len({one.text for one in each.values()}) > 1:
            levels = {name: words for one in each.values() for name, words in one.levels.items()}
            changes |= {"kind": "variables", "formula": None, "levels": levels}
            changes["covariate_names"] = observations.covariate_names
        return replace(next(iter(each.values())), **changes)

    @classmethod
    def _of_rows(cls, observations, trend, saved, rows=slice(None)):
        """As `of`, for some rows of observations, as of one variable."""
        if isinstance(trend, str) and trend not in TRENDS and trend.strip():
            return cls._by_formula(observations, trend, saved, rows)
        if not isinstance(trend, str) or trend not in TRENDS:
            raise InvalidInput(
                f"`trend` must be one of: {', '.join(TRENDS)}, or a formula. Got {trend!r}."
            )
        covariates = observations.covariate_names
        if trend == "covariates" and observations.covariates is None:
            raise InvalidInput('trend="covariates" needs covariates; the observations have none.')
        if trend == "covariates" and observations.levels:
            text = next(iter(observations.levels))
            formula = " + ".join(map(names_of_columns.in_formula, covariates))
            raise InvalidInput(
                f'trend="covariates" needs numbers, and {text!r} is text: write a formula, '
                f"trend={names_of_columns.in_python(formula)} (--formula {shlex.quote(formula)})."
            )
        names = {
            "zero": (),
            "constant": ("intercept",),
            "linear": ("intercept", *observations.location_names),
            "covariates": ("intercept", *covariates),
        }[trend]
        result = cls(trend, names, observations.location_names, covariates)
        return result._on_branch_of(observations, rows)

    @classmethod
    def _by_formula(cls, observations, text, saved, rows):
        places, covariates = observations.location_names, observations.covariate_names
        if text.isidentifier() and text not in (*places, *covariates):
            # a misspelt kind looks like a formula of one name
            timed = text in ("time", observations.time_name) and observations.time is not None
            name = observations.time_name if timed else text
            give = "give the time as a covariate too" if timed else "a column must be a covariate"
            raise InvalidInput(
                f"`trend` must be one of: {', '.join(TRENDS)}, or a formula of the columns "
                f"{', '.join((*places, *covariates))}. Got {text!r}: {give}, "
                f"covariates=({name!r},) (--covariates {name})."
            )
        formula = Formula.parse(text)
        formula.check_columns((*places, *covariates), observations.levels)
        used = [name for name in covariates if name in formula.variables]
        levels = {name: observations.levels[name] for name in used if name in observations.levels}
        bare = cls("formula", (), places, covariates, levels, formula)
        numbers = None if observations.covariates is None else observations.covariates[rows]
        frame = bare._frame(observations.locations[rows], numbers)
        if not saved:
            formula.check_factors(frame, levels)
        names, memory = formula.learn(frame)
        result = cls("formula", names, places, covariates, levels, formula, memory)
        return result._on_branch_of(observations, rows)

    def _on_branch_of(self, observations, rows):
        """Return the trend of longitudes on the branch of observations; refuse it without one."""
        metric, meridian = metric_of(observations.metric), observations.central_meridian
        longitude = self.location_names[0]
        used = {"linear": self.location_names, "covariates": self.covariate_names}
        used = self.formula.variables if self.formula else used.get(self.kind, ())
        if longitude in used and metric.turns and meridian is None:
            locations = observations.locations[rows]
            if not self._is_periodic(observations, rows):
                name = longitude if longitude.isidentifier() else f"`{longitude}`"
                gap = widest_gap(locations[:, 0])[1]
                raise InvalidInput(
                    f"the observations are all round the globe (the widest gap between longitudes "
                    f"is {gap:.3g} degrees), where a trend in {longitude!r} jumps at one meridian: "
                    f'use trend="constant", or a periodic one such as "cos(radians({name})) + '
                    f'sin(radians({name}))".'
                )
        return replace(self, metric=metric, central_meridian=meridian)

    def _is_periodic(self, observations, rows):
        """Whether the columns are the same after a turn of all longitudes by 360 degrees."""
        if self.formula is None:
            return False
        locations, numbers = observations.locations[rows], observations.covariates
        numbers = None if numbers is None else numbers[rows]
        try:
            here, apart, turned = (
                self.formula.columns(
                    self._frame(locations + np.array([turn, 0.0]), numbers), self.memory
                )
                for turn in (0.0, 77.7, 360.0)
            )
        except InvalidInput:
            # a spline, say, is not defined there
            return False
        # a sine, say, may be 0 at all observations
        size = np.abs(np.vstack((here, apart))).max(axis=0, initial=0.0)
        return bool((np.abs(turned - here) <= PERIODIC_TOLERANCE * size).all())

    @property
    def text(self):
        """The formula or the kind: the argument of `of`."""
        if self.kind == "variables":
            return "; ".join(f"{self.variables[k]}: {one.text}" for k, one in self.each.items())
        if self.formula is None:
            return self.kind
        # a column may be called as a kind is
        return f"~ {self.formula.text}" if self.formula.text in TRENDS else self.formula.text

    @property
    def title(self):
        """Title such as "constant trend", or "trend x + y" for a formula."""
        plain = self.formula is None and self.kind != "variables"
        return f"{self.kind} trend" if plain else f"trend {self.text}"

    @property
    def needs(self):
        """Names of the covariates that a location must have."""
        if self.kind == "covariates":
            return self.covariate_names
        if self.kind == "variables":
            used = {name for one in self.each.values() for name in one.needs}
            return tuple(name for name in self.covariate_names if name in used)
        used = self.formula.variables if self.formula else ()
        return tuple(name for name in self.covariate_names if name in used)

    def design(self, locations, covariates=None, variable=None):
        """Return X, (n, p), at locations, (n, d).

        Covariates: all, (n, q), in the order of the observations'; or by name in a frame, a dict of
        columns or Observations, where only those that the trend uses are needed. `variable`, (n,),
        has the numbers of the variables, for a trend of several. Raises `InvalidInput` if
        covariates are missing, not finite, or of a level that no observation has, if a column of a
        formula is not finite, or for a variable without observations.
        """
        n = len(locations)
        if self.each:
            return self._design_of_each(np.asarray(locations), covariates, variable)
        ones = np.ones((n, 1))
        if self.kind in ("zero", "constant"):
            return ones[:, : len(self.names)]
        locations = self.metric.on_branch(np.asarray(locations), self.central_meridian)
        if self.kind == "linear":
            return np.hstack((ones, locations))
        if self.kind == "formula" and not n:
            return np.empty((0, len(self.names)))
        numbers = self._numbers(covariates, n) if self.needs else None
        if self.kind == "covariates":
            places = dict(zip(self.location_names, np.transpose(locations), strict=True))
            columns = zip(self.covariate_names, np.transpose(numbers), strict=True)
            return np.column_stack((ones, *(places.get(name, column) for name, column in columns)))
        frame = self._frame(locations, numbers)
        design = self.formula.columns(frame, self.memory)
        self._check_finite(design)
        return design

    def _design_of_each(self, locations, covariates, variable):
        """Return X, (n, p), with a block of columns for each variable."""
        n = len(locations)
        result = np.zeros((n, len(self.names)))
        if not self.names:
            return result
        if np.shape(variable) != (n,):
            raise InvalidInput(
                f"a trend of the variables {', '.join(self.variables)} needs the number of the "
                f"variable of each of the {n} locations: give `variable`."
            )
        unknown = sorted({*np.unique(variable).tolist()} - {*self.each})
        if unknown:
            k = unknown[0]
            name = self.variables[k] if 0 <= k < len(self.variables) else k
            raise InvalidInput(
                f"no observation is of the variable {name!r}, so that its trend cannot be "
                'estimated: use trend="zero", or variables that have observations.'
            )
        needed = any(self.each[k].needs for k in np.unique(variable).tolist())
        numbers = self._numbers(covariates, n) if needed else None
        for k, trend, columns in self._blocks():
            rows = np.flatnonzero(variable == k)
            own = None if numbers is None else numbers[rows]
            with _of_variable(self.variables[k]):
                result[rows, columns] = trend.design(locations[rows], own)
        return result

    def _blocks(self):
        """Yield the number of each variable, its trend and the slice of its columns."""
        first = 0
        for k, trend in self.each.items():
            yield k, trend, slice(first, first + len(trend.names))
            first += len(trend.names)

    def _numbers(self, covariates, n):
        """Return all covariates, (n, q), text as codes; unneeded ones may be 0."""
        if isinstance(covariates, Observations):
            known = set(self.needs) <= set(covariates.covariate_names)
            covariates = covariates.covariate_frame() if known else covariates.covariates
        if hasattr(covariates, "keys"):
            return self._by_name(covariates, n)
        if covariates is not None:
            covariates = _array(covariates)
            if covariates.shape == (n, len(self.covariate_names)):
                check_finite(covariates, self.covariate_names, "covariates")
                check_codes(covariates, self.covariate_names, self.levels)
                return covariates
        got = "none" if covariates is None else f"shape {np.shape(covariates)}"
        raise InvalidInput(
            f"the trend needs {len(self.covariate_names)} covariates "
            f"({', '.join(self.covariate_names)}) at each of the {n} locations. Got {got}."
        )

    def _by_name(self, table, n):
        """As `_numbers`, from columns of a frame."""
        import pandas as pd

        columns, _ = encode(pd.DataFrame(table), self.needs, self.levels)
        if len(columns) != n:
            raise InvalidInput(
                f"covariates must have {n} rows, one per location. Got {len(columns)}."
            )
        check_finite(columns, self.needs, "covariates")
        result = np.zeros((n, len(self.covariate_names)))
        result[:, [self.covariate_names.index(name) for name in self.needs]] = columns
        return result

    def _frame(self, locations, numbers):
        """Return a frame of the formula's variables, codes of text decoded."""
        import pandas as pd

        columns = {}
        if numbers is not None:
            columns |= zip(self.covariate_names, np.transpose(numbers), strict=True)
        # a coordinate that is a covariate too is that of the location
        columns |= zip(self.location_names, np.transpose(locations), strict=True)
        for name, levels in self.levels.items():
            columns[name] = decode(columns[name], levels)
        return pd.DataFrame(
            {name: columns[name] for name in self.formula.variables}, index=range(len(locations))
        )

    def _check_finite(self, design):
        bad = ~np.isfinite(design)
        if bad.any():
            row = int(np.argmax(bad.any(axis=1)))
            column = int(np.argmax(bad[row]))
            raise InvalidInput(
                f"formula {self.text!r}: {self.names[column]!r} must be finite. Got "
                f"{design[row, column]} in row {row + 1} ({int(bad.any(axis=1).sum())} such rows)."
            )

    def check_full_rank(self, design):
        """Raise `InvalidInput` if the columns of X are linearly dependent, naming one of them."""
        for k, trend, columns in self._blocks():
            block = design[:, columns]
            with _of_variable(self.variables[k]):
                # other variables have rows of zeros
                trend.check_full_rank(block[block.any(axis=1)])
        n, p = design.shape
        if p == 0 or self.each:
            return
        if n <= p:
            raise InvalidInput(
                f"a trend with {counted(p, 'coefficient')} needs more than "
                f"{counted(p, 'location')}. Got {n}."
            )
        from scipy.linalg import qr

        norms = np.abs(design).max(axis=0)
        scaled = design / np.where(norms > 0, norms, 1.0)
        _, r, order = qr(scaled, mode="economic", pivoting=True)
        diagonal = np.abs(np.diag(r))
        dependent = diagonal <= 8 * n * np.finfo(float).eps * diagonal[0]
        if dependent.any():
            name = self.names[order[int(np.argmax(dependent))]]
            out = "a term" if self.formula else "a covariate"
            raise InvalidInput(
                f"the columns of the trend are linearly dependent: {name!r} is a combination of "
                f'the others. Use trend="constant", or leave {out} out.'
            )


def by_variable(trend, labels, used):
    """Return the trend of each variable by name, from one for all, a dict, or a dict as text."""
    given = trend
    if isinstance(trend, str):
        # names may have colons and semicolons, and a formula interactions, such as a:b
        known = "|".join(map(re.escape, sorted(labels, key=len, reverse=True)))
        before, *pieces = re.split(rf"(?:^|;)\s*({known})\s*:", trend)
        names = pieces[::2]
        if before or not names:
            return dict.fromkeys(used, trend)
        if len(set(names)) < len(names):
            raise InvalidInput(f"`trend` names a variable twice. Got {trend!r}.")
        given = {name: text.strip() for name, text in zip(names, pieces[1::2], strict=True)}
    elif not isinstance(trend, Mapping):
        return dict.fromkeys(used, trend)
    for name in given:
        if name not in labels:
            raise InvalidInput(
                f"`trend` must have a trend for each of the variables {', '.join(labels)}. Got "
                f"{name!r}.{did_you_mean(str(name), labels)}"
            )
    missing = [name for name in used if name not in given]
    if missing:
        raise InvalidInput(
            f"`trend` must have a trend for each of the variables {', '.join(labels)}. There is "
            f'none for {", ".join(missing)}: add "constant" for a constant mean.'
        )
    return dict(given)


@contextmanager
def _of_variable(name):
    """Name a variable in `InvalidInput`."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(f"variable {name!r}: {error}") from None


def _array(covariates):
    """Return covariates as an (n, q) array of FP64."""
    try:
        covariates = np.asarray(covariates, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"`covariates` must be numbers, or a frame where they hold text: {error}."
        ) from None
    return covariates[:, None] if covariates.ndim == 1 else covariates


# Generalised least squares


@dataclass(frozen=True)
class GeneralisedLeastSquares:
    """Generalised least squares estimate β̂ = (X'Σ⁻¹X)⁻¹X'Σ⁻¹z, its covariance and its residual."""

    # (p,); (p, p), (X'Σ⁻¹X)⁻¹
    coefficients: np.ndarray
    coefficient_covariance: np.ndarray
    # r'Σ⁻¹r with r = z - Xβ̂; log|X'Σ⁻¹X|, 0 without a trend
    quadratic_form: float
    log_determinant_of_information: float
    # r, (n,); (p, p) with root root' = (X'Σ⁻¹X)⁻¹
    residual: np.ndarray
    root: np.ndarray


CENTRING_RATIO = 128.0
"""Ratio of the values to their residuals from the trend above which they are centred: below, at
most 7 of FP64's 53 bits are lost."""


@blas_threads(0)
def ordinary_residuals(values, design):
    """Return values minus their trend by ordinary least squares."""
    if not design.shape[1]:
        return values
    return values - design @ np.linalg.lstsq(design, values, rcond=None)[0]


@blas_threads(0)
def centred(values, design):
    """Return values minus Xβ₀, and β₀, (p,): 0 unless Xβ₀ is much larger than the rest.

    ℓ does not depend on Xβ₀, but its rounding errors grow with it: those of Σ⁻¹z have the size of
    Σ⁻¹Xβ₀, which cancels. The residuals are computed in extended precision.

    >>> rest, start = centred(np.array([2.0**30 + 1, 2.0**30 - 1]), np.ones((2, 1)))
    >>> rest.round(3), start
    (array([ 1., -1.]), array([1.07374182e+09]))
    >>> centred(np.array([1.0, 3.0]), np.ones((2, 1)))
    (array([1., 3.]), array([0.]))
    """
    p = design.shape[1]
    if not p:
        return values, np.zeros(0)
    rest = ordinary_residuals(values, design)
    if not np.abs(values).max() > CENTRING_RATIO * np.abs(rest).max():
        return values, np.zeros(p)
    # powers of two are exact, and keep all within FP64's range
    unit, scale = _power_of_two(np.abs(values).max()), _power_of_two(np.abs(design).max(axis=0))
    design, values = design / scale, values / unit
    start = np.linalg.lstsq(design, values, rcond=None)[0]
    rest = values.astype(np.longdouble) - design.astype(np.longdouble) @ start
    return rest.astype(np.float64) * unit, start * (unit / scale)


SINGULAR_DESIGN_MESSAGE = "X'Σ⁻¹X is not positive definite in FP64."


def _power_of_two(size):
    """Return the largest power of two that is not above a size, 1 for 0."""
    return 2.0 ** np.floor(np.log2(np.where(size > 0, size, 1.0)))


def fit_trend(factor, values, design, start=None):
    """Return the `GeneralisedLeastSquares` of values on a design, (n, p), given a factor of Σ.

    p may be 0. The values are centred, unless β₀ is given: then they are those of `centred`.
    With Σ = I it is ordinary least squares:

    >>> from geomxp.tiles.factor import CholeskyFactor
    >>> one = CholeskyFactor(np.eye(4, order="F"))
    >>> fit_trend(one, np.array([1.0, 2.0, 3.0, 6.0]), np.ones((4, 1))).coefficients
    array([3.])
    """
    if start is None:
        values, start = centred(values, design)
    found = (_from_solutions if factor.refines else _whitened)(factor, values, design)
    return replace(found, coefficients=start + found.coefficients) if start.any() else found


def _whitened(factor, values, design):
    """Estimate as `fit_trend` does, by least squares of L⁻¹z on L⁻¹X."""
    p = design.shape[1]
    # columns near 1 prevent overflow and underflow in QR; powers of two are exact
    scale = 2.0 ** np.round(np.log2(np.abs(design).max(axis=0))) if p else np.ones(0)
    white = factor.half_solve(np.asfortranarray(np.column_stack((design / scale, values))))
    if p == 0:
        z, none = white[:, 0], np.zeros((0, 0))
        return GeneralisedLeastSquares(np.zeros(0), none, float(z @ z), 0.0, values, none)
    # L⁻¹(X, z) = Q (R, Q'z); the last column of R has the length of the residual
    r = np.linalg.qr(white, mode="r")
    # R⁻¹ and β̂; calling LAPACK takes a third of the time of solve_triangular's checks
    solved, info = scipy.linalg.lapack.dtrtrs(r[:p, :p], np.column_stack((np.eye(p), r[:p, p])))
    if info:
        raise NotPositiveDefinite(SINGULAR_DESIGN_MESSAGE)
    inverse, beta = solved[:, :p], solved[:, p]
    left = r[p:, p]
    return GeneralisedLeastSquares(
        beta / scale,
        inverse @ inverse.T / np.outer(scale, scale),
        float(left @ left),
        2 * float((np.log(np.abs(np.diag(r)[:p])) + np.log(scale)).sum()),
        values - design @ (beta / scale),
        inverse / scale[:, None],
    )


def _from_solutions(factor, values, design):
    """Estimate as `fit_trend` does, from refined solutions Σ⁻¹Q and Σ⁻¹z with X = QR."""
    n, p = design.shape
    if not p:
        form = _form(factor, values, factor.solve(values))
        return GeneralisedLeastSquares(np.zeros(0), np.zeros((0, 0)), form, 0.0, values, design[:0])
    scale = 2.0 ** np.round(np.log2(np.abs(design).max(axis=0)))
    # orthonormal columns and residuals of ordinary least squares avoid cancellation
    q, r = np.linalg.qr(design / scale)
    q, r = q * np.sqrt(n), r * scale / np.sqrt(n)
    start = q.T @ values / n
    rest = values - q @ start
    gram, solution = factor.gram(np.asfortranarray(np.column_stack((rest, q))))
    try:
        inner = np.linalg.inv(np.linalg.cholesky(gram[1:, 1:])).T
    except np.linalg.LinAlgError:
        raise NotPositiveDefinite(SINGULAR_DESIGN_MESSAGE) from None
    more = inner @ (inner.T @ gram[1:, 0])
    residual = rest - q @ more
    root = scipy.linalg.solve_triangular(r, inner)
    return GeneralisedLeastSquares(
        scipy.linalg.solve_triangular(r, start + more),
        root @ root.T,
        _form(factor, residual, solution[:, 0] - solution[:, 1:] @ more),
        2 * float((np.log(np.abs(np.diag(r))) - np.log(np.diag(inner))).sum()),
        residual,
        root,
    )


def _form(factor, residual, w):
    """Return r'Σ⁻¹r = 2r'w - w'Σw for w ≈ Σ⁻¹r, accurate to second order in the error of w."""
    return float(2 * residual @ w - w @ factor.times(w[:, None])[:, 0])
