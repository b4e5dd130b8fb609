"""Several models of one data set, fitted and ranked by an information criterion."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product
from math import exp, inf, isfinite, nan
from typing import TYPE_CHECKING

import numpy as np

from ..errors import LACKING, Ending, FitFailed, GeomxpError, InvalidInput
from ..likelihood.trend import Trend
from ..runtime.progress import Line
from .fit import fit as fit_model
from .intervals import check_is_fit
from .parameters import PARAMETER_NAMES, practical_range
from .result import Fit

if TYPE_CHECKING:
    from .._typing import Callable, Criterion, Document, Frame, HeldOrFree, Sequence
    from ..data.observations import Observations
    from ..likelihood.base import Likelihood
    from .result import Fit

CRITERIA = ("aic", "aicc", "bic")

RANKED = (Ending.COMPUTED, Ending.CONVERGED, Ending.ON_BOUND, Ending.UNIDENTIFIED)
"""Endings whose log-likelihood is a maximum, also where it does not tell parameters apart."""

SLACK = 1e-3
"""Log-likelihood by which a model may stay below one that it contains, for rounding."""

NUGGET = 0.05
"""Of the variance: where to start a nugget that the model before had none of."""


@dataclass(frozen=True)
class Choice:
    """One model to be fitted.

    Parameters
    ----------
    trend : str
    anisotropic : bool
    nugget, smoothness : float or "free"
        Held at this value, or estimated.
    """

    trend: str
    anisotropic: bool
    nugget: float | str
    smoothness: float | str

    @property
    def fixed(self):
        """What is held, by name."""
        held = {"nugget": self.nugget, "smoothness": self.smoothness}
        return {name: value for name, value in held.items() if value != "free"}

    @property
    def words(self):
        """The choice as text, by name."""
        held = {"smoothness": self.smoothness, "nugget": self.nugget}
        return {
            "trend": self.trend,
            **{k: v if v == "free" else f"{v:g}" for k, v in held.items()},
            "anisotropic": "yes" if self.anisotropic else "no",
        }

    def contains(self, other):
        """Whether the other choice is this one with some parameters held."""
        return (
            self.trend == other.trend
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
            **{f"estimate_{name}": values.get(name, nan) for name in PARAMETER_NAMES},
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
        rows = [candidate.to_dict() for candidate in self.candidates]
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

    def __str__(self) -> str:
        frame = self.to_frame()
        columns = {
            **{name: name for name in ("trend", "smoothness", "nugget")},
            "anisotropic": "anis.",
            "parameters": "k",
            "log_likelihood": "log-lik.",
            self.criterion: self.criterion.upper().replace("AICC", "AICc"),
            **{name: name for name in ("delta", "weight")},
            **{f"estimate_{name}": name[:10] for name in PARAMETER_NAMES[:4]},
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
    smoothness: Sequence[HeldOrFree] = (0.5, 1.5, "free"),
    nuggets: Sequence[HeldOrFree] = ("free",),
    anisotropy: Sequence[bool] = (False,),
    trends: Sequence[str] = ("constant",),
    reml: bool = False,
    criterion: Criterion = "aic",
    progress: bool = True,
    each: Callable[[Candidate], object] | None = None,
) -> ModelComparison:
    """Fit every combination of some choices, and rank them by an information criterion.

    A model starts from the best of those that it contains, and no model is left below one of those:
    differences of the criterion are not accidents of the search.

    Parameters
    ----------
    observations : Observations
    method : likelihood, optional
        `Exact()` if not given.
    smoothness : sequence of (float or "free")
        Values to hold it at, or "free" to estimate it.
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
        For choices that make no sense, among them restricted likelihoods of several trends.
    FitFailed
        If no model has a maximum. (Where some have none they stand last, with the reason.)

    Examples
    --------
    >>> import geomxp as gx
    >>> seen = gx.datasets.load("meuse")
    >>> found = gx.compare_models(seen, smoothness=(0.5, 1.5), trends=("constant", "sqrt_dist"))
    >>> found.best.trend.text, len(found.candidates), bool(found.to_frame()["delta"][0] == 0)
    ('sqrt_dist', 4, True)
    """
    choices = _choices(observations, smoothness, nuggets, anisotropy, trends, reml)
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
    # as they were asked for where the criterion cannot tell
    done.sort(key=lambda c: getattr(c.fit, criterion) if c.ranked else inf)
    return ModelComparison(tuple(done), criterion, reml, len(observations))


def _choices(observations, smoothness, nuggets, anisotropy, trends, reml):
    """Return the choices, each after those that it contains."""
    asked = {"smoothness": smoothness, "nuggets": nuggets, "anisotropy": anisotropy}
    for name, values in (asked | {"trends": trends}).items():
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
    order = product((kind.text for kind in kinds), sorted(anisotropy), nuggets, smoothness)
    return [Choice(*choice) for choice in order]


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
    """Return a candidate that differs in the value of the smoothness only, or None."""
    return next(
        (c for c in done if c.ranked and replace(c.choice, smoothness="free").contains(choice)),
        None,
    )


def _start(model, choice):
    """Return start values for a choice, from the estimates of another one."""
    values = model.parameters()
    start = {"variance": values["variance"], "range": values["range"]}
    if choice.smoothness == "free":
        start["smoothness"] = values["smoothness"]
    else:
        # the data know the practical range, almost whatever the smoothness is
        start["range"] *= practical_range(1.0, values["smoothness"])
        start["range"] /= practical_range(1.0, choice.smoothness)
    if choice.nugget == "free":
        start["nugget"] = values["nugget"] or NUGGET * values["variance"]
    if choice.anisotropic:
        turned = ("anisotropy_angle", "anisotropy_ratio")
        start |= {name: values[name] for name in turned if name in values}
    return start


# The likelihood-ratio test of one fit within another.


RATIO_SLACK = 1e-2
"""A restricted fit may be so much above the full one, where both are maxima to their tolerance."""

ANISOTROPY = {"anisotropy_angle", "anisotropy_ratio"}


@dataclass(frozen=True)
class LikelihoodRatio:
    """What a likelihood-ratio test found.

    Parameters
    ----------
    statistic : float
        2(ℓ_full - ℓ_restricted) ≥ 0.
    degrees_of_freedom : int
        Parameters that the full fit estimates and the restricted one does not.
    p_value : float
    message : str
        Which distribution the statistic was compared with.
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
    """Test whether the data ask for what a larger fit estimates and a smaller one holds.

    2(ℓ_full - ℓ_restricted) is compared with chi-square. A parameter that the smaller fit holds at
    the end of its range (a nugget of 0) can only move to one side: its part is 0 half of the time,
    and with d degrees of freedom the distribution is ½χ²_{d-1} + ½χ²_d (Self and Liang 1987, JASA
    82:605, case 6).

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
        If the fits cannot be compared, or are not nested: the message says in what.

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
    if set(extra) >= ANISOTROPY:
        # log-ratio and twice the angle are polar coordinates, isotropy is their origin, not an edge
        at_end = [name for name in at_end if name not in ANISOTROPY]
    gain = full.log_likelihood - restricted.log_likelihood
    if gain < -RATIO_SLACK:
        raise InvalidInput(
            f"the full fit's log-likelihood is {-gain:.4g} below the restricted one's, so it is no "
            "maximum: fit again from restricted.model, or with more starts."
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
    said = f"{what}; the {ends} held at the end of what it can be: compared with {mixture}"
    if len(at_end) > 1:
        said += ", which bounds p from above"
    return said


def _check_comparable(restricted, full):
    """Raise `InvalidInput` unless both are maxima of one likelihood of the same data."""
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
    if full.model.anisotropy is None and restricted.model.anisotropy is not None:
        raise InvalidInput("the fits are not nested: `restricted` is anisotropic, `full` is not.")
    return [name for name in theirs if name in _estimated(full) - _estimated(restricted)]


def _values(fit):
    return fit.model.parameters()


def _isotropic(fit, name):
    """Whether a parameter says nothing of a fit: an angle, or a ratio, of an isotropic model."""
    return name in ANISOTROPY and fit.model.anisotropy is None


def _holds_at_end(restricted, name):
    """Whether a parameter that a fit holds is held where it can move to one side only."""
    if name == "nugget":
        return restricted.model.nugget == 0
    if name == "anisotropy_ratio":
        return restricted.model.anisotropy is None or restricted.model.anisotropy.ratio == 1
    great_circle = restricted.observations.metric == "great-circle"
    return name == "smoothness" and great_circle and restricted.model.smoothness == 0.5


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
