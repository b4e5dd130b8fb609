"""Several models of one data set, fitted and ranked by an information criterion."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from itertools import product
from math import exp, inf, isfinite, nan
from typing import TYPE_CHECKING

from ..errors import LACKING, FitFailed, GeomxpError, InvalidInput
from ..outcome import Ending
from .estimate import Fit
from .fit import fit as fit_model
from .progress import Line
from .space import PARAMETER_NAMES, practical_range
from .trend import Trend

if TYPE_CHECKING:
    from ..annotations import (
        Callable,
        Criterion,
        Document,
        Frame,
        HeldOrFree,
        How,
        Observations,
        Sequence,
    )

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
    how: How | None = None,
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
    how : likelihood, optional
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
            done.append(_fitted(observations, how, choice, reml, done))
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
            or not hasattr(values, "__iter__")
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


def _fitted(observations, how, choice, reml, done):
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
                how=how,
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
