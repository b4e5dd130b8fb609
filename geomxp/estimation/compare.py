"""Compare models: information criteria of several fits, and the likelihood-ratio test."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product
from math import exp, inf, isfinite, nan
from typing import TYPE_CHECKING

import numpy as np

from ..covariance.base import Covariance, family_of
from ..covariance.matern import Matern
from ..errors import LACKING, Ending, FitFailed, GeomxpError, InvalidInput
from ..likelihood.base import as_html
from ..likelihood.trend import Trend
from ..runtime.progress import Line
from .fit import fit as fit_model
from .parameters import ANISOTROPY, LENGTH, NUGGET, practical_factor
from .result import Fit, check_is_fit

if TYPE_CHECKING:
    from .._typing import Callable, Criterion, Document, Frame, HeldOrFree, Sequence
    from ..data.observations import Observations
    from ..likelihood.base import Likelihood
    from .result import Fit

CRITERIA = ("aic", "aicc", "bic")

RANKED = (Ending.COMPUTED, Ending.CONVERGED, Ending.ON_BOUND, Ending.UNIDENTIFIED)
"""Outcomes whose log-likelihood is a maximum, even if parameters are not identifiable."""

SLACK = 1e-3
"""Log-likelihood by which a model may stay below one nested in it, for rounding."""

START_NUGGET = 0.05
"""Start of a nugget, in units of the variance, if the model to start from has none."""


@dataclass(frozen=True)
class Choice:
    """One model to be fitted.

    Parameters
    ----------
    trend : str
    anisotropic : bool
    nugget, smoothness : float or "free"
        Held at this value, or estimated; `smoothness` is None for families other than Matérn, whose
        shape parameters are all estimated.
    family : class
    """

    trend: str
    anisotropic: bool
    nugget: float | str
    smoothness: float | str | None
    family: type[Covariance] = Matern

    @property
    def fixed(self):
        """What is held, by name."""
        held = {"nugget": self.nugget, "smoothness": self.smoothness}
        return {name: value for name, value in held.items() if value not in ("free", None)}

    @property
    def words(self):
        """The choice as text, by name."""
        held = {"smoothness": self.smoothness, "nugget": self.nugget}
        return {
            **({} if self.family is Matern else {"family": self.family.family}),
            "trend": self.trend,
            **{k: v if v == "free" else f"{v:g}" for k, v in held.items() if v is not None},
            "anisotropic": "yes" if self.anisotropic else "no",
        }

    def contains(self, other):
        """Whether the other choice is nested in this one."""
        return (
            (self.family, self.trend) == (other.family, other.trend)
            and self.anisotropic >= other.anisotropic
            and self.nugget in ("free", other.nugget)
            and self.smoothness in ("free", other.smoothness)
        )


@dataclass(frozen=True, eq=False)
class Candidate:
    """One model of a comparison.

    Parameters
    ----------
    choice : Choice
    fit : Fit or None
        None where the computation failed.
    outcome : str
        How the fit ended, or why there is none.
    seconds : float
    """

    choice: Choice
    fit: Fit | None
    outcome: str
    seconds: float

    @property
    def ranked(self):
        """Whether the fit has a maximum that can be compared."""
        return self.fit is not None and self.fit.outcome.ending in RANKED

    @property
    def log_likelihood(self):
        """At the maximum; -inf where there is none."""
        return self.fit.log_likelihood if self.ranked else -inf

    def to_dict(self):
        """Return the choice, the criteria, the estimates and the outcome; NaN for what is not."""
        fit = self.fit if self.ranked else None
        values = {} if fit is None else fit.model.parameters()
        return {
            **self.choice.words,
            "parameters": nan if fit is None else fit.degrees_of_freedom,
            "log_likelihood": nan if fit is None else fit.log_likelihood,
            **{name: nan if fit is None else getattr(fit, name) for name in CRITERIA},
            "outcome": self.outcome,
            "seconds": self.seconds,
            **{f"estimate_{name}": value for name, value in values.items()},
        }


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
        found = f"{len(self.candidates)} models at {self.n:,} places by {self.criterion}"
        return f"<ModelComparison of {found}: the best has {best:.120}>"

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

        Columns: trend, smoothness, nugget and anisotropic as they were asked for; parameters (how
        many were estimated), log_likelihood, aic, aicc, bic; delta, the criterion less that of the
        best model, and weight, exp(-delta/2) as a part of the sum; outcome, seconds; the estimates.
        """
        import pandas as pd

        frame = pd.DataFrame(self._rows())
        if not frame["estimate_anisotropy_ratio"].notna().any():
            frame = frame.drop(columns=["estimate_anisotropy_angle", "estimate_anisotropy_ratio"])
        return frame.astype({"parameters": "Int64"})

    def _rows(self):
        least = getattr(self.best, self.criterion)
        rows = []
        for candidate in self.candidates:
            row = candidate.to_dict()
            rows.append({"family": candidate.choice.family.family, **row})
        columns = list(self._columns())
        rows = [{**dict.fromkeys(columns, nan), **row} for row in rows]
        rows = [{name: row[name] for name in columns} for row in rows]
        deltas = [row[self.criterion] - least for row in rows]
        total = sum(exp(-delta / 2) for delta in deltas if isfinite(delta))
        result = []
        for row, delta in zip(rows, deltas, strict=True):
            weight = exp(-delta / 2) / total if isfinite(delta) else nan
            # beside the criteria
            before = list(row)[: list(row).index("outcome")]
            head = {name: row.pop(name) for name in before}
            result.append({**head, "delta": delta, "weight": weight, **row})
        return result

    def _columns(self):
        """Yield the names of the columns of all rows."""
        families = dict.fromkeys(c.choice.family for c in self.candidates)
        if set(families) != {Matern}:
            yield "family"
        yield from ("trend", "smoothness", "nugget", "anisotropic", "parameters")
        yield from ("log_likelihood", *CRITERIA, "outcome", "seconds")
        names = [p.name for family in families for p in family.declared]
        for name in dict.fromkeys((*names, *ANISOTROPY)):
            yield f"estimate_{name}"

    def _repr_html_(self) -> str:
        return as_html(self)

    def __str__(self) -> str:
        frame = self.to_frame()
        columns = {
            **{name: name for name in frame.columns if name == "family"},
            **{name: name for name in ("trend", "smoothness", "nugget")},
            "anisotropic": "anis.",
            "parameters": "k",
            "log_likelihood": "log-lik.",
            self.criterion: self.criterion.upper().replace("AICC", "AICc"),
            **{name: name for name in ("delta", "weight")},
            **{
                name: name.removeprefix("estimate_")[:10]
                for name in frame.columns
                if name.startswith("estimate_anisotropy") < name.startswith("estimate_")
            },
            "outcome": "outcome",
        }
        frame["outcome"] = frame["outcome"].str.split(":").str[0]
        frame["parameters"] = frame["parameters"].astype("string").fillna("")
        shown = frame[list(columns)].rename(columns=columns)
        decimals = {"log-lik.": ".3f", columns[self.criterion]: ".3f", "delta": ".2f"}
        decimals |= {"weight": ".3f"}
        text = shown.to_string(
            index=False,
            header=list(columns.values()),
            formatters={name: f"{{:{form}}}".format for name, form in decimals.items()},
            float_format=lambda value: f"{value:.4g}",
            na_rep="",
        )
        kind = "restricted maximum likelihood" if self.reml else "maximum likelihood"
        lines = [f"{len(frame)} models by {kind}, {self.n:,} places", "", text]
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
        Of Matérn models: values to hold it at, or "free" to estimate it. All shape parameters of
        other families are estimated.
    nuggets : sequence of (float or "free")
        0, say, and "free".
    anisotropy : sequence of bool
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
    >>> seen = gx.datasets.load("meuse")
    >>> found = gx.compare_models(seen, smoothness=(0.5, 1.5), trends=("constant", "sqrt_dist"))
    >>> found.best.trend.text, len(found.candidates), bool(found.to_frame()["delta"][0] == 0)
    ('sqrt_dist', 4, True)
    """
    choices = _choices(observations, families, smoothness, nuggets, anisotropy, trends, reml)
    if criterion not in CRITERIA:
        raise InvalidInput(f"`criterion` must be one of: {', '.join(CRITERIA)}. Got {criterion!r}.")
    done = []
    with Line("fitting", len(choices), "models", progress) as line:
        for choice in choices:
            line.about = " ".join(f"{name} {word}" for name, word in choice.words.items())
            done.append(_fitted(observations, method, choice, reml, done))
            line.advance()
            if each is not None:
                each(done[-1])
    if not any(candidate.ranked for candidate in done):
        raise FitFailed(f"no model could be fitted; the first one: {done[0].outcome}", done[0].fit)
    # stable: ties keep the order of the choices
    done.sort(key=lambda c: getattr(c.fit, criterion) if c.ranked else inf)
    return ModelComparison(tuple(done), criterion, reml, len(observations))


def _choices(observations, families, smoothness, nuggets, anisotropy, trends, reml):
    """Return the choices, each after those nested in it."""
    given = {"smoothness": smoothness, "nuggets": nuggets, "anisotropy": anisotropy}
    for name, values in (given | {"trends": trends, "families": families}).items():
        if (
            isinstance(values, str)
            or not isinstance(values, Iterable)
            or not len(values := [*values])
        ):
            raise InvalidInput(f"`{name}` must be a sequence of choices. Got {values!r}.")
        for value in values:
            if values.count(value) > 1:
                raise InvalidInput(f"`{name}` names {value!r} twice.")
    kinds = [Trend.of(observations, trend) for trend in trends]
    for kind in kinds:
        kind.check_full_rank(kind.design(observations.locations, observations.covariates))
    if reml and len(kinds) > 1:
        raise InvalidInput(
            "restricted likelihoods of different trends are densities of different data and cannot "
            "be compared: compare trends by maximum likelihood (no --reml), or give one trend."
        )
    if not all(isinstance(value, bool) for value in anisotropy):
        raise InvalidInput(f"`anisotropy` must hold True and False. Got {anisotropy!r}.")
    smoothness = _held("smoothness", smoothness, 0.0, inclusive=False)
    nuggets = _held("nuggets", nuggets, 0.0, inclusive=True)
    texts, anisotropy = [kind.text for kind in kinds], sorted(anisotropy)
    choices = []
    for family in map(family_of, families):
        shapes = smoothness if family is Matern else (None,)
        order = product(texts, anisotropy, nuggets, shapes)
        choices += [Choice(*choice, family) for choice in order]
    return choices


def _held(name, values, least, *, inclusive):
    """Return numbers, and "free" after them."""
    for value in values:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if value != "free" and not (
            number and isfinite(value) and (value > least or (inclusive and value == least))
        ):
            raise InvalidInput(f'`{name}` must hold positive numbers or "free". Got {value!r}.')
    return sorted(values, key=lambda value: value == "free")


def _fitted(observations, method, choice, reml, done):
    """Return the candidate of a choice, started from those that are done."""
    began = time.perf_counter()
    inside = [c for c in done if c.ranked and choice.contains(c.choice)]
    nested = max(inside, key=lambda c: c.log_likelihood, default=None)
    least = -inf if nested is None else nested.log_likelihood - SLACK
    warm = nested or _sibling(choice, done)
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
                progress=False,
                raise_on_failure=False,
            )
        except LACKING:
            raise
        except GeomxpError as error:
            best = best if best.fit else replace(best, outcome=str(error))
            continue
        found = Candidate(choice, fit, str(fit.outcome), 0.0)
        if best.fit is None or found.log_likelihood > best.log_likelihood:
            best = found
        if best.ranked and best.log_likelihood >= least:
            break
    return replace(best, seconds=time.perf_counter() - began)


def _sibling(choice, done):
    """Return a candidate that differs only in the value of the smoothness, or None."""
    return next(
        (c for c in done if c.ranked and replace(c.choice, smoothness="free").contains(choice)),
        None,
    )


def _start(model, choice):
    """Return start values for a choice, from the estimates of another one."""
    values, held = model.parameters(), choice.fixed
    start = {name: value for name, value in values.items() if name not in held}
    shapes = {name: value for name, value in held.items() if name != NUGGET}
    if LENGTH in start:
        # the data determine the practical range, almost independently of the shape
        start[LENGTH] *= practical_factor(model)
        start[LENGTH] /= practical_factor(model.replace(**shapes))
    if NUGGET in start:
        start[NUGGET] = start[NUGGET] or START_NUGGET * model.largest_variance
    if not choice.anisotropic:
        start = {name: value for name, value in start.items() if name not in ANISOTROPY}
    return start


# The likelihood-ratio test


RATIO_SLACK = 1e-2
"""Amount by which a restricted fit may be above the full one, both being converged."""


@dataclass(frozen=True)
class LikelihoodRatio:
    """Result of a likelihood-ratio test.

    Parameters
    ----------
    statistic : float
        2(ℓ_full - ℓ_restricted) ≥ 0.
    degrees_of_freedom : int
        Parameters that the full fit estimates and the restricted one does not.
    p_value : float
    message : str
        The reference distribution of the statistic.
    """

    statistic: float
    degrees_of_freedom: int
    p_value: float
    message: str

    def __str__(self) -> str:
        return (
            f"likelihood ratio {self.statistic:.6g}, {self.degrees_of_freedom} degrees of freedom, "
            f"p = {self.p_value:.4g}: {self.message}"
        )


def likelihood_ratio_test(restricted: Fit, full: Fit) -> LikelihoodRatio:
    """Test a restricted fit against a full one by their likelihood ratio.

    2(ℓ_full - ℓ_restricted) is compared with chi-square. A parameter that the restricted fit holds
    at a limit of its range (a nugget of 0) can move to one side only: its contribution is 0 half of
    the time, and with d degrees of freedom the distribution is ½χ²_{d-1} + ½χ²_d (Self and Liang
    1987, JASA 82:605, case 6).

    Parameters
    ----------
    restricted, full : Fit
        Of the same observations by the same method, both maxima; everything that `restricted`
        estimates is estimated by `full`.

    Returns
    -------
    LikelihoodRatio

    Raises
    ------
    InvalidInput
        If the fits cannot be compared or are not nested; the message gives the reason.

    Examples
    --------
    >>> import geomxp as gx
    >>> seen = gx.Observations([[0.0], [1.0], [2.5], [4.0], [4.5]], [1.0, 2.0, 0.5, 0.0, 0.4])
    >>> fit = gx.fit(seen, gx.Matern(1.0, 1.0, 0.5), fixed=("range", "smoothness", "nugget"))
    >>> test = gx.likelihood_ratio_test(fit, fit)
    >>> test.statistic, test.degrees_of_freedom, test.p_value
    (0.0, 0, 1.0)
    """
    _check_comparable(restricted, full)
    extra = _extra_parameters(restricted, full)
    coefficients = _extra_coefficients(restricted, full)
    at_end = [name for name in extra if _holds_at_end(restricted, name)]
    if set(extra) >= set(ANISOTROPY):
        # log-ratio and twice the angle are polar coordinates with isotropy as origin, not an edge
        at_end = [name for name in at_end if name not in ANISOTROPY]
    gain = full.log_likelihood - restricted.log_likelihood
    if gain < -RATIO_SLACK:
        raise InvalidInput(
            f"the log-likelihood of the full fit is {-gain:.4g} below that of the restricted fit, "
            "so it is not at its maximum: fit again from restricted.model, or with more starts."
        )
    statistic, degrees = 2 * max(gain, 0.0), len(extra) + coefficients
    return LikelihoodRatio(
        statistic,
        degrees,
        _tail(statistic, degrees, bool(at_end)),
        _sentence(extra, coefficients, at_end, degrees),
    )


def _tail(statistic, degrees, at_end):
    """Return the probability of a larger statistic."""
    from scipy.stats import chi2

    def tail(d):
        # χ²₀ is 0
        return float(chi2.sf(statistic, d)) if d else float(statistic <= 0)

    if degrees == 0 or statistic == 0:
        return 1.0
    return 0.5 * (tail(degrees - 1) + tail(degrees)) if at_end else tail(degrees)


def _sentence(extra, coefficients, at_end, degrees):
    if not degrees:
        return "both fits estimate the same parameters"
    parts = [name.replace("_", " ") for name in extra]
    if coefficients:
        parts.append(f"{coefficients} coefficient{'s' * (coefficients > 1)} of the trend")
    what = f"tested: {', '.join(parts)}"
    if not at_end:
        return f"{what}; compared with chi-square"
    ends = " and the ".join(name.replace("_", " ") for name in at_end)
    mixture = f"½χ²({degrees - 1}) + ½χ²({degrees})"
    said = f"{what}; {ends} held at its limit: compared with {mixture}"
    if len(at_end) > 1:
        said += ", an upper bound of p"
    return said


def _check_comparable(restricted, full):
    """Validate that both are maxima of the same likelihood of the same data."""
    for fit in (restricted, full):
        check_is_fit(fit)
    if restricted.observations.digest() != full.observations.digest():
        raise InvalidInput("the two fits are of different observations: fit both to the same.")
    if restricted.reml != full.reml:
        raise InvalidInput("one fit is by REML and the other by ML: use one of them for both.")
    if restricted.method.arithmetic != full.method.arithmetic:
        raise InvalidInput(
            "the two fits approximate the likelihood in different ways: use one method for both."
        )
    if type(restricted.model) is not type(full.model):
        raise InvalidInput(
            f"the fits are not nested: their families are {restricted.model.family} and "
            f"{full.model.family}. Compare them by AIC: `geomxp.compare_models`."
        )
    designs = [_design(fit) for fit in (restricted, full)]
    if full.reml and not np.array_equal(*designs):
        raise InvalidInput(
            "restricted likelihoods with different trends are of different data (contrasts): "
            "compare trends by ML (reml=False)."
        )


def _design(fit):
    return fit.trend.design(fit.observations.locations, fit.observations.covariates)


def _estimated(fit):
    return set(fit.free) | set(fit.boundary)


def _extra_parameters(restricted, full):
    """Return the covariance parameters that only the full fit estimates, in their order."""
    ours, theirs = _values(restricted), _values(full)
    more = sorted(_estimated(restricted) - _estimated(full))
    if more:
        raise InvalidInput(
            f"the fits are not nested: `restricted` estimates {', '.join(more)} and `full` does "
            "not. Exchange them, or free the same parameters."
        )
    for name in theirs:
        held = name not in _estimated(full)
        if held and not _isotropic(restricted, name) and ours[name] != theirs[name]:
            raise InvalidInput(
                f"the fits are not nested: {name} is held at {ours[name]:g} in `restricted` and at "
                f"{theirs[name]:g} in `full`."
            )
    if not _is_anisotropic(full) and _is_anisotropic(restricted):
        raise InvalidInput("the fits are not nested: `restricted` is anisotropic, `full` is not.")
    return [name for name in theirs if name in _estimated(full) - _estimated(restricted)]


def _values(fit):
    return fit.model.parameters()


def _is_anisotropic(fit):
    return ANISOTROPY[1] in fit.model.parameters()


def _isotropic(fit, name):
    """Whether a parameter has no meaning in a fit: angle and ratio of an isotropic model."""
    return name in ANISOTROPY and not _is_anisotropic(fit)


def _holds_at_end(restricted, name):
    """Whether a fit holds a parameter at a limit, from where it can move to one side only."""
    if _isotropic(restricted, name):
        return name == ANISOTROPY[1]
    observations, model = restricted.observations, restricted.model
    parameter = next(p for p in model.table if p.name == name)
    limits = model.limits(observations.metric, observations.dimensions)
    return parameter.value in limits.get(name, (parameter.lower, parameter.upper))


def _extra_coefficients(restricted, full):
    """Return how many coefficients the full fit's trend has more; its columns span the other's."""
    small, large = _design(restricted), _design(full)
    if not small.shape[1]:
        return large.shape[1]
    scale = np.abs(large).max(axis=0, initial=1e-300)
    found = np.linalg.lstsq(large / scale, small, rcond=None)[0] if large.shape[1] else None
    left = small if found is None else small - (large / scale) @ found
    # rounding of a projection of n numbers
    if np.abs(left).max() > 64 * len(small) * np.finfo(float).eps * np.abs(small).max():
        raise InvalidInput(
            f"the fits are not nested: the trend of `restricted` ({_kind(restricted.trend)}) is "
            f"no part of that of `full` ({_kind(full.trend)})."
        )
    return large.shape[1] - small.shape[1]


def _kind(trend):
    return trend.text if isinstance(trend, Trend) else str(trend)
