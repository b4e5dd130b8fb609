"""Compare fits: of several models by a criterion, and in several precisions."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import product
from math import exp, inf, isfinite, nan
from typing import TYPE_CHECKING

from ..covariance.anisotropy import AxisRatios
from ..covariance.base import Covariance, family_of
from ..covariance.matern import Matern
from ..covariance.multivariate import Multivariate
from ..covariance.noise import variances_in
from ..covariance.responses import GAUSSIAN, response_of
from ..covariance.transformation import transformation
from ..errors import (
    MACHINE_ERRORS,
    FitFailed,
    GeomxpError,
    GeomxpWarning,
    InvalidInput,
    brief_repr,
    check_one_of,
    is_finite,
)
from ..likelihood.base import as_html
from ..likelihood.exact import Exact, check_is_method
from ..likelihood.trend import Trend
from ..linalg.precision import by_tile_norm, uniform
from ..runtime.equality import by_content
from ..runtime.progress import Line
from .coordinates import practical_factor
from .fit import fit as fit_model
from .likelihood_ratio import START_NUGGET_RATIO, at_supremum, with_ellipse
from .names import ANISOTROPY, MICROSCALE, NUGGET, RANGE, map_of, of_nuggets, unit_of
from .profile import held_values
from .result import Fit

if TYPE_CHECKING:
    from .._typing import Callable, Criterion, Document, Fixed, Frame, HeldOrFree, Sequence
    from ..data.observations import Observations
    from ..likelihood.base import Likelihood

CRITERIA = ("aic", "aicc", "bic")
RESULT_COLUMNS = ("log_likelihood", *CRITERIA)

NESTED_SLACK = 1e-3
"""Log-likelihood by which a model may stay below one nested in it, for rounding."""


@dataclass(frozen=True)
class Choice:
    """A model to be fitted: nugget and smoothness are values to hold, or "free" to estimate them.

    They are those of each of several variables. The smoothness is that of Matérn models; of other
    families all shape parameters are estimated.
    """

    trend: str
    anisotropic: bool
    nugget: float | str
    smoothness: float | str | None
    family: type[Covariance] = Matern
    transform: str | None = None
    response: str | None = None
    variables: int = 1
    nugget_covariance: bool = False
    axis_ranges: bool = False

    @property
    def fixed(self):
        """Values of the parameters held, by name."""
        held = {"nugget": self.nugget, "smoothness": self.smoothness}
        return {
            parameter.name: value
            for group, value in held.items()
            for parameter in self.family.declared_for(self.variables)
            if value not in ("free", None) and parameter.group == group
        }

    @property
    def words(self):
        """The choice as text, by name."""
        held = {"smoothness": self.smoothness, "nugget": self.nugget}
        return {
            **({} if self.family is Matern else {"family": self.family.family}),
            "trend": self.trend,
            **({} if self.transform is None else {"transform": self.transform}),
            **({} if self.response is None else {"response": self.response}),
            **{k: v if v == "free" else f"{v:g}" for k, v in held.items() if v is not None},
            "anisotropic": "axes" if self.axis_ranges else "yes" if self.anisotropic else "no",
            **({"nugget_covariance": "yes"} if self.nugget_covariance else {}),
        }

    def contains(self, other):
        """Whether the other choice is nested in this one."""
        return (
            (self.family, self.trend, self.transform, self.response)
            == (other.family, other.trend, other.transform, other.response)
            and self.anisotropic >= other.anisotropic
            and max(self.anisotropic, self.axis_ranges) >= other.axis_ranges
            and self.nugget_covariance >= other.nugget_covariance
            and self.nugget in ("free", other.nugget)
            and self.smoothness in ("free", other.smoothness)
        )


@by_content
@dataclass(frozen=True, eq=False)
class Candidate:
    """One model of a comparison: its fit, or None if the computation failed, and its outcome."""

    choice: Choice
    fit: Fit | None
    outcome: str
    seconds: float = field(compare=False)

    @property
    def ranked(self):
        """Whether the fit has a maximum that can be compared."""
        return self.fit is not None and at_supremum(self.fit)

    @property
    def log_likelihood(self):
        """At the maximum; -inf if there is no maximum."""
        return self.fit.log_likelihood if self.ranked else -inf

    def to_dict(self):
        """Return the choice, the criteria, the estimates and the outcome; NaN if not ranked."""
        fit = self.fit if self.ranked else None
        values = {} if fit is None else fit.model.parameters()
        return {
            **self.choice.words,
            "parameters": nan if fit is None else fit.degrees_of_freedom,
            **{name: nan if fit is None else getattr(fit, name) for name in RESULT_COLUMNS},
            "outcome": self.outcome,
            "seconds": self.seconds,
            **{f"estimate_{name}": value for name, value in values.items()},
        }


@by_content
@dataclass(frozen=True, eq=False)
class ModelComparison:
    """Models in the order of a criterion, the best one first; those that failed last.

    Parameters
    ----------
    candidates : tuple of Candidate
    criterion : {"aic", "aicc", "bic"}
    reml : bool
    n : int
        Number of observations.
    """

    candidates: tuple[Candidate, ...]
    criterion: str
    reml: bool
    n: int

    def __repr__(self) -> str:
        best = " ".join(map(" ".join, self.candidates[0].choice.words.items()))
        models = f"{len(self.candidates)} models for {self._count} by {self.criterion}"
        return f"<ModelComparison of {models}: the best has {best:.120}>"

    @property
    def _count(self):
        """How many observations there are, in words."""
        return self.best.observations.count_in_words

    @property
    def best(self) -> Fit:
        """The fit of the first model."""
        return self.candidates[0].fit

    def to_dict(self) -> Document:
        """Return what `geomxp compare-models --json` prints."""
        rows = [
            {name: None if value != value else value for name, value in row.items()}
            for row in self._rows()
        ]
        return {"n": self.n, "criterion": self.criterion, "reml": self.reml, "rows": rows}

    def to_frame(self) -> Frame:
        """Return a pandas frame with one row for each model.

        Columns: trend, smoothness, nugget, anisotropic ("axes" for one range for each axis) and
        nugget_covariance as requested; parameters (the number of estimated ones), log_likelihood,
        aic, aicc, bic; delta, the criterion less that of the best model, and weight, exp(-delta/2)
        as a part of the sum; outcome, seconds; the estimates.
        """
        import pandas as pd

        frame = pd.DataFrame(self._rows())
        unused = [f"estimate_{name}" for name in ANISOTROPY[:2]]
        frame = frame.drop(columns=[name for name in unused if frame[name].isna().all()])
        return frame.astype({"parameters": "Int64"})

    def _rows(self):
        rows, columns = [candidate.to_dict() for candidate in self.candidates], self._columns()
        deltas = [row[self.criterion] - getattr(self.best, self.criterion) for row in rows]
        total = sum(exp(-delta / 2) for delta in deltas if isfinite(delta))
        for candidate, row, delta in zip(self.candidates, rows, deltas, strict=True):
            row["family"], row["delta"] = candidate.choice.family.family, delta
            row["transform"] = candidate.choice.transform or "none"
            row["response"] = candidate.choice.response or GAUSSIAN
            row["nugget_covariance"] = "yes" if candidate.choice.nugget_covariance else "no"
            row["weight"] = exp(-delta / 2) / total if isfinite(delta) else nan
        return [{name: row.get(name, nan) for name in columns} for row in rows]

    def _columns(self):
        """Return the names of the columns of all rows."""
        families = dict.fromkeys(c.choice.family for c in self.candidates)
        count = len(self.best.observations.variable_labels)
        names = [p.name for family in families for p in family.declared_for(count)]
        correlated = any(c.choice.nugget_covariance for c in self.candidates)
        if correlated:
            names += [p.name for family in families for p in family.optional_for(count)]
        # of transformations, microscale variation and anisotropy
        names += [name for c in self.candidates if c.fit for name in c.fit.model.parameters()]
        return [
            *(() if set(families) == {Matern} else ("family",)),
            *(("transform",) if any(c.choice.transform for c in self.candidates) else ()),
            *(("response",) if any(c.choice.response for c in self.candidates) else ()),
            *("trend", "smoothness", "nugget", "anisotropic"),
            *(("nugget_covariance",) if correlated else ()),
            *("parameters", *RESULT_COLUMNS),
            *("delta", "weight", "outcome", "seconds"),
            *(f"estimate_{name}" for name in dict.fromkeys((*names, *ANISOTROPY[:2]))),
        ]

    def _repr_html_(self) -> str:
        return as_html(self)

    def __str__(self) -> str:
        frame = self.to_frame()
        estimates = [name for name in frame.columns if name.startswith("estimate_")]
        columns = {
            **{n: n for n in frame.columns if n in ("family", "transform", "response")},
            **{name: name for name in ("trend", "smoothness", "nugget")},
            "anisotropic": "anis.",
            **({"nugget_covariance": "nugget cov."} if "nugget_covariance" in frame else {}),
            "parameters": "k",
            "log_likelihood": "log-lik.",
            self.criterion: self.criterion.upper().replace("AICC", "AICc"),
            **{name: name for name in ("delta", "weight")},
            **{n: n.removeprefix("estimate_") for n in estimates if "anisotropy" not in n},
            "outcome": "outcome",
        }
        frame["outcome"] = frame["outcome"].str.split(":").str[0]
        frame["parameters"] = frame["parameters"].astype("string").fillna("")
        decimals = {"log_likelihood": 3, self.criterion: 3, "delta": 2, "weight": 3}
        text = frame[list(columns)].to_string(
            index=False,
            header=list(columns.values()),
            formatters={name: f"{{:.{digits}f}}".format for name, digits in decimals.items()},
            float_format=lambda value: f"{value:.4g}",
            na_rep="",
        )
        kind = "restricted maximum likelihood" if self.reml else "maximum likelihood"
        lines = [f"{len(frame)} models by {kind}, {self._count}", "", text]
        notes = [
            f"  {' '.join(f'{k} {v}' for k, v in c.choice.words.items())}: {c.outcome}"
            for c in self.candidates
            if not (c.fit is not None and c.fit.outcome.good)
        ]
        return "\n".join([*lines, "", *notes] if notes else lines)


def compare_models(
    observations: Observations,
    method: Likelihood | None = None,
    *,
    families: Sequence[str | type[Covariance]] = ("matern",),
    smoothness: Sequence[HeldOrFree] = (0.5, 1.5, "free"),
    nuggets: Sequence[HeldOrFree] = ("free",),
    anisotropy: Sequence[bool] = (False,),
    axis_ranges: Sequence[bool] = (False,),
    nugget_covariance: Sequence[bool] = (False,),
    transforms: Sequence[str] = ("none",),
    responses: Sequence[str] = (GAUSSIAN,),
    trends: Sequence[str] = ("constant",),
    reml: bool = False,
    criterion: Criterion = "aic",
    progress: bool = True,
    each: Callable[[Candidate], object] | None = None,
) -> ModelComparison:
    """Fit all combinations of some choices, and rank them by an information criterion.

    A model starts from the best of those nested in it and is searched again if it ends below one of
    them, so that differences of the criterion are not artefacts of the search.

    Parameters
    ----------
    observations : Observations
    method : likelihood, optional
        `Exact()` if not given.
    families : sequence of (str or class)
        Covariance families, as `fit` takes them.
    smoothness : sequence of (float or "free")
        Of Matérn models: values to hold it at, or "free" to estimate it; of several variables the
        smoothness of each. All shape parameters of other families are estimated.
    nuggets : sequence of (float or "free")
        0, say, and "free"; of several variables the nugget of each.
    anisotropy : sequence of bool
        Whether geometric anisotropy is estimated.
    axis_ranges : sequence of bool
        Whether one range is estimated for each axis. Combinations with anisotropy are skipped.
    nugget_covariance : sequence of bool
        Whether the covariances of the nuggets of several variables are estimated. Combinations with
        nuggets held at 0 are skipped.
    transforms : sequence of str
        Transformations of the values, as `fit` takes them, or "none". The criteria are those of the
        measured values and can be compared.
    responses : sequence of str
        Distributions of the values, as `fit` takes them: all for counts, or all for measurements.
        A free nugget is treated as in `fit`.
    trends : sequence of str
        Kinds or formulas, as `fit` takes them; one only with `reml`.
    reml : bool
    criterion : {"aic", "aicc", "bic"}
        Akaike's, the same corrected for few data, or Schwarz's.
    progress : bool
        Show a line where standard error is a terminal, after two seconds.
    each : callable, optional
        Called with each `Candidate` as soon as it is fitted.

    Returns
    -------
    ModelComparison

    Raises
    ------
    InvalidInput
        For invalid choices, such as restricted likelihoods of several trends.
    FitFailed
        If no model has a maximum. (Models without one come last, with the reason.)

    Examples
    --------
    >>> import geomxp as gx
    >>> meuse = gx.datasets.load("meuse")
    >>> result = gx.compare_models(meuse, smoothness=(0.5, 1.5), trends=("constant", "sqrt_dist"))
    >>> result.best.trend.text, len(result.candidates), bool(result.to_frame()["delta"][0] == 0)
    ('sqrt_dist', 4, True)
    """
    choices = _choices(
        observations,
        families=families,
        smoothness=smoothness,
        nuggets=nuggets,
        anisotropy=anisotropy,
        axis_ranges=axis_ranges,
        nugget_covariance=nugget_covariance,
        transforms=transforms,
        responses=responses,
        trends=trends,
        reml=reml,
    )
    check_one_of("criterion", criterion, CRITERIA)
    method = Exact() if method is None else method
    check_is_method(method)
    done = []
    with Line("fitting", len(choices), "models", progress) as line:
        for choice in choices:
            line.note = " ".join(f"{name} {word}" for name, word in choice.words.items())
            done.append(_fitted(observations, method, choice, reml, done))
            line.advance()
            if each is not None:
                each(done[-1])
    if not any(candidate.ranked for candidate in done):
        raise FitFailed(f"no model could be fitted; the first one: {done[0].outcome}", done[0].fit)
    # stable: ties keep the order of the choices
    done.sort(key=lambda c: getattr(c.fit, criterion) if c.ranked else inf)
    return ModelComparison(tuple(done), criterion, reml, len(observations))


def _choices(
    observations,
    *,
    families,
    smoothness,
    nuggets,
    anisotropy,
    axis_ranges,
    nugget_covariance,
    transforms,
    responses,
    trends,
    reml,
):
    """Return the choices, each after those nested in it."""
    options = {"smoothness": smoothness, "nuggets": nuggets, "anisotropy": anisotropy}
    yes_or_no = {"axis_ranges": axis_ranges, "nugget_covariance": nugget_covariance}
    options |= yes_or_no | {"transforms": transforms, "responses": responses}
    for name, given in (options | {"trends": trends, "families": families}).items():
        values = [*given] if isinstance(given, Iterable) and not isinstance(given, str) else []
        if not values:
            raise InvalidInput(f"`{name}` must be a sequence of choices. Got {given!r}.")
        for value in values:
            if values.count(value) > 1:
                raise InvalidInput(f"`{name}` names {value!r} twice.")
    kinds = [Trend.of(observations, trend) for trend in trends]
    for kind in kinds:
        design = kind.design(observations.locations, observations.covariates, observations.variable)
        kind.check_full_rank(design)
    if reml and len(kinds) > 1:
        raise InvalidInput(
            "restricted likelihoods of different trends are densities of different data and cannot "
            "be compared: compare trends by maximum likelihood (no --reml), or give one trend."
        )
    for name, values in ({"anisotropy": anisotropy} | yes_or_no).items():
        if not all(isinstance(value, bool) for value in values):
            raise InvalidInput(f"`{name}` must hold True and False. Got {values!r}.")
    for transform in transforms:
        if transform != "none":
            transformation(transform).of(observations.variable).check(observations.values)
    discrete = {each is not None and each.discrete for each in map(response_of, responses)}
    if len(discrete) > 1:
        raise InvalidInput(
            "probabilities of counts and densities of measurements cannot be compared: give "
            f"responses of one kind. Got {', '.join(map(str, responses))}."
        )
    smoothness = _held("smoothness", smoothness, zero=False)
    nuggets = _held("nuggets", nuggets, zero=True)
    texts, variables = [kind.text for kind in kinds], max(len(observations.variable_labels), 1)
    if variables == 1 and any(nugget_covariance):
        raise InvalidInput(
            "nugget covariances are for several variables: leave `nugget_covariance` "
            "(--nugget-covariance) out."
        )
    # covariances of the nuggets, the nuggets
    noise = [pair for pair in product(sorted(nugget_covariance), nuggets) if pair != (True, 0)]
    if not noise:
        raise InvalidInput(
            "nuggets of 0 have no covariances: let `nuggets` hold other values (--nugget), or "
            "`nugget_covariance` hold False (--nugget-covariance no)."
        )
    maps = [pair for pair in product(sorted(anisotropy), sorted(axis_ranges)) if not all(pair)]
    if not maps:
        map_of(True, True, observations.dimensions)
    choices = []
    for family in map(family_of, families):
        several = issubclass(family, Multivariate) and family.in_space is Matern
        shapes = smoothness if several or issubclass(family, Matern) else (None,)
        combinations = product(texts, maps, noise, shapes, transforms, responses)
        choices += [
            Choice(
                trend=text,
                anisotropic=anisotropic,
                nugget=nugget,
                smoothness=shape,
                family=family,
                transform=None if transform == "none" else transform,
                response=None if response == GAUSSIAN else response,
                variables=variables,
                nugget_covariance=correlated,
                axis_ranges=axes,
            )
            for (
                text,
                (anisotropic, axes),
                (correlated, nugget),
                shape,
                transform,
                response,
            ) in combinations
        ]
    return choices


def _held(name, values, *, zero):
    """Return numbers greater than 0 (or at least 0), and "free" after them."""
    for value in values:
        positive = is_finite(value) and (value > 0 or (zero and value == 0))
        if value != "free" and not positive:
            raise InvalidInput(
                f'`{name}` must hold positive numbers or "free". Got {brief_repr(value)}.'
            )
    return sorted(values, key=lambda value: value == "free")


def _fitted(observations, method, choice, reml, done):
    """Return the candidate of a choice, started from those that are done."""
    began = time.perf_counter()
    inside = (c for c in done if c.ranked and choice.contains(c.choice))
    nested = max(inside, key=lambda c: c.log_likelihood, default=None)
    least = -inf if nested is None else nested.log_likelihood - NESTED_SLACK
    # else one that differs only in the value of the smoothness
    alike = (c for c in done if c.ranked and replace(c.choice, smoothness="free").contains(choice))
    warm = nested or next(alike, None)
    best = Candidate(choice, None, "", 0.0)
    for start in [None] if warm is None else [_start(warm.fit.model, choice), None]:
        try:
            fit = fit_model(
                observations,
                method=method,
                family=choice.family,
                fixed=choice.fixed,
                start=start,
                trend=choice.trend,
                reml=reml,
                anisotropy=choice.anisotropic,
                axis_ranges=choice.axis_ranges,
                nugget_covariance=choice.nugget_covariance,
                transform=choice.transform,
                response=choice.response,
                progress=False,
                raise_on_failure=False,
            )
        except MACHINE_ERRORS:
            raise
        except GeomxpError as error:
            best = best if best.fit else replace(best, outcome=str(error))
            continue
        candidate = Candidate(choice, fit, str(fit.outcome), 0.0)
        if best.fit is None or candidate.log_likelihood > best.log_likelihood:
            best = candidate
        if best.ranked and best.log_likelihood >= least:
            break
    return replace(best, seconds=time.perf_counter() - began)


def _start(model, choice):
    """Return start values for a choice, from the estimates of another one."""
    model, held = with_ellipse(model) if choice.anisotropic else model, choice.fixed
    values = model.parameters()
    start = {name: value for name, value in values.items() if name not in held}
    noise = {p.name: p for p in variances_in(model)}
    if choice.response is not None:
        # a nugget that is named is estimated
        start = {name: x for name, x in start.items() if name not in noise or x > 0}
    shapes = {name: value for name, value in held.items() if name not in noise}
    if RANGE in start:
        # the data determine the practical range, almost independently of the shape
        start[RANGE] *= practical_factor(model)
        start[RANGE] /= practical_factor(model.replace(**shapes))
    if NUGGET in start and choice.response is None:
        start[NUGGET] = start[NUGGET] or START_NUGGET_RATIO * model.largest_variance
    for name in [p.name for p in noise.values() if p.where and p.name in start]:
        start[name] = start[name] or START_NUGGET_RATIO * model.variance_of(name)
    if not choice.nugget_covariance:
        covariances = [p.name for p in model.table if of_nuggets(p)]
        start = {name: value for name, value in start.items() if name not in covariances}
    axes = isinstance(getattr(model, "anisotropy", None), AxisRatios)
    if axes != choice.axis_ranges or not (choice.anisotropic or choice.axis_ranges):
        start = {name: value for name, value in start.items() if name not in ANISOTROPY}
    # as large as it is needed, from 0
    start.pop(MICROSCALE, None)
    return start


# Several accuracies of the same likelihood


def precision_influence(
    observations: Observations,
    accuracies: Sequence[float] = (1e-8, 1e-6, 1e-4, 1e-2),
    *,
    model: Covariance | None = None,
    method: Exact | None = None,
    fixed: Fixed = (),
    trend: str = "constant",
    reml: bool = False,
    progress: bool = True,
) -> Frame:
    """Fit in FP64, and again with tiles in formats by their norms at each of some accuracies.

    The fits in mixed formats start at the FP64 estimate, so that differences are due to the formats
    and not to the search. The formats are those asked for, however coarse they are.

    Parameters
    ----------
    observations : Observations
    accuracies : sequence of float
        ε of `by_tile_norm`.
    model : Covariance, optional
        Where the fit in FP64 starts; see `fit`.
    method : Exact, optional
        All options but the precision: tile, device, memory.
    fixed, trend, reml, progress :
        As of `fit`.

    Returns
    -------
    pandas.DataFrame
        A row for FP64 and one for each accuracy: precision, accuracy (NaN for FP64),
        log_likelihood, estimate_ and standard_error_ of each parameter, outcome, promotions,
        seconds, and tiles_ in each format. A fit that fails keeps its row, with the reason as
        outcome. `attrs["parameter_units"]` has the unit of each parameter in words, or None.

    Raises
    ------
    InvalidInput
        If an accuracy is invalid.
    FitFailed
        If there is no estimate in FP64.

    Examples
    --------
    >>> import geomxp as gx
    >>> observations = gx.datasets.load("meuse")
    >>> method, fixed = gx.Exact(tile=32), {"smoothness": 0.5}
    >>> frame = gx.precision_influence(observations, (1e-6,), method=method, fixed=fixed)
    >>> exact, mixed = frame.estimate_nugget
    >>> bool(abs(mixed - exact) < 0.1 * frame.standard_error_nugget[0])
    True
    """
    accuracies = _checked_accuracies(accuracies)
    method = Exact() if method is None else method
    if method.precision is None:
        raise InvalidInput(
            f"`method` must have number formats, as Exact() has. Got {type(method).__name__}."
        )
    options = {"fixed": fixed, "trend": trend, "reml": reml, "progress": progress}
    first = fit_model(observations, model, replace(method, precision=uniform("fp64")), **options)
    rows = [_row(first)]
    options |= {"fixed": list(held_values(first)), "raise_on_failure": False}
    for accuracy in accuracies:
        began = time.perf_counter()
        mixed = replace(method, precision=by_tile_norm(accuracy), keep_formats=True)
        try:
            with warnings.catch_warnings():
                # promotions have a column
                warnings.simplefilter("ignore", GeomxpWarning)
                again = fit_model(observations, first.model, mixed, **options)
            rows.append(_row(again))
        except GeomxpError as error:
            # the row of a fit that failed
            row = {name: nan for name in rows[0] if not name.startswith("tiles_")}
            row |= {"precision": f"{accuracy:.0e}", "accuracy": accuracy, "outcome": str(error)}
            rows.append(row | {"promotions": 0, "seconds": time.perf_counter() - began})
    return _frame(rows, first)


def frame_of_fits(fits):
    """Return the frame of `precision_influence` for fits to the same data made already."""
    rows, fits = [], list(fits)
    for fit in fits:
        if not isinstance(fit, Fit):
            raise InvalidInput(f"`fits` must hold results of gx.fit. Got {type(fit).__name__}.")
        rule = fit.method.precision
        if rule is None or (rule != uniform("fp64") and rule.accuracy is None):
            name = fit.method.describe(len(fit.observations))["name"]
            raise InvalidInput(
                "`fits` must be computed in FP64 or by by_tile_norm(ε). Got a fit by another rule "
                f"or method ({name})."
            )
        rows.append(_row(fit))
    if sum(row["precision"] == "fp64" for row in rows) != 1:
        raise InvalidInput("exactly one of `fits` must be in FP64: the reference.")
    rows.sort(key=lambda row: (row["precision"] != "fp64", row["accuracy"]))
    return _frame(rows, fits[0])


def _checked_accuracies(accuracies):
    try:
        values = [float(value) for value in accuracies]
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(f"`accuracies` must be numbers. Got {accuracies!r}.") from None
    if not values or len(set(values)) < len(values):
        raise InvalidInput(f"`accuracies` must be different numbers. Got {accuracies!r}.")
    for value in values:
        by_tile_norm(value)
    return sorted(values)


def _row(fit):
    accuracy = fit.method.precision.accuracy
    good = at_supremum(fit)
    values = fit.model.parameters() if good else dict.fromkeys(fit.model.parameters(), nan)
    errors = {name: fit.standard_errors.get(name) if good else None for name in values}
    return {
        "precision": "fp64" if accuracy is None else f"{accuracy:.0e}",
        "accuracy": nan if accuracy is None else accuracy,
        "log_likelihood": fit.log_likelihood if good else nan,
        **{f"estimate_{name}": value for name, value in values.items()},
        **{f"standard_error_{n}": nan if e is None else e for n, e in errors.items()},
        "outcome": str(fit.outcome),
        "promotions": fit.promotions,
        "seconds": fit.seconds,
        **{f"tiles_{name}": count for name, count in fit.formats.items()},
    }


def _frame(rows, fit):
    """Return the rows as a frame that knows the units of the parameters of a fit."""
    import pandas as pd

    frame = pd.DataFrame(rows)
    tiles = [name for name in frame.columns if name.startswith("tiles_")]
    rest = [name for name in frame.columns if name not in tiles]
    frame = frame[rest + tiles].assign(**{n: frame[n].fillna(0).astype(int) for n in tiles})
    frame.attrs["parameter_units"] = {
        parameter.name: unit_of(parameter, fit.observations, fit.model.response)
        for parameter in fit.model.table
    }
    return frame
