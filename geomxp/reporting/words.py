"""What a report says in words and in rows of numbers."""

from dataclasses import dataclass
from math import ceil, isfinite, sqrt

import numpy as np

from ..inference.estimate import z_value
from ..inference.uncertainty import ridge
from ..inference.vecchia import Vecchia
from ..outcome import Ending
from ..plots import unit_of
from .maps import plain_name, shown

LEVEL = 0.95

SYMBOLS = {
    "variance": "σ²",
    "range": "a",
    "smoothness": "ν",
    "nugget": "τ²",
    "anisotropy_angle": "",
    "anisotropy_ratio": "",
}

ENDINGS = {
    Ending.CONVERGED: "Converged: the log-likelihood is at a maximum.",
    Ending.ON_BOUND: "An estimate on a bound.",
    Ending.COMPUTED: "Computed at given parameters.",
    Ending.UNIDENTIFIED: "The data do not tell all parameters.",
    Ending.NO_FINITE_MAXIMUM: "The likelihood has no finite maximum: there is no estimate.",
    Ending.EVALUATION_LIMIT: "Stopped at the limit of evaluations, before a maximum.",
    Ending.STALLED: "The search stalled before a maximum.",
    Ending.NOT_POSITIVE_DEFINITE: "The covariance matrix has no Cholesky factor.",
}

DERIVED = {
    "effective_range": ("effective range", "where the correlation is 5 %"),
    "microergodic": ("σ²/a²ᵛ", "known better than variance and range by themselves"),
    "nugget_ratio": ("nugget over variance", "τ²/σ²"),
}

SCORES = {
    "rmse": ("RMSE", "root of the mean squared error"),
    "mae": ("MAE", "mean absolute error"),
    "bias": ("bias", "mean of predicted less observed; near 0"),
    "crps": ("CRPS", "continuous ranked probability score; the smaller the better"),
    "log_score": ("log score", "mean of minus log density, in nats; the smaller the better"),
    "interval_score": ("interval score", "of 95 % intervals; the smaller the better"),
    "coverage": ("coverage", "of 95 % intervals; near 0.95"),
    "mean_squared_standardised_error": ("mean squared z", "1 where the variances are right"),
}

WIDER = 1.28
"""By how much the spread of a coverage is larger than that of independent errors, at most."""


@dataclass(frozen=True)
class Row:
    """A parameter in the table of estimates.

    Parameters
    ----------
    name, symbol, estimate, error, wald, profile, unit : str
    """

    name: str
    symbol: str
    estimate: str
    error: str
    wald: str
    profile: str
    unit: str


def number(x, digits=4):
    """Return a number for reading.

    Examples
    --------
    >>> from math import inf
    >>> number(10772.52), number(0.0885686), number(3.876e-7), number(inf), number(-0.0)
    ('10,770', '0.08857', '3.876e-07', '∞', '0')
    """
    if not isfinite(x):
        return ("∞" if x > 0 else "−∞") if x == x else "not a number"
    if x == 0:
        return "0"
    size = abs(float(f"{x:.{digits}g}"))
    if not 1e-4 <= size < 1e9:
        text = f"{size:.{digits - 1}e}"
    else:
        text = f"{size:,.0f}" if size >= 10 ** (digits - 1) else f"{size:.{digits}g}"
    return ("−" if x < 0 else "") + text


def interval(pair, digits=4):
    """Return an interval for reading.

    Examples
    --------
    >>> from math import inf
    >>> interval((0.5, 2.0)), interval((0.5, inf)), interval(None)
    ('0.5 to 2', '0.5 to ∞', '')
    """
    return "" if pair is None else f"{number(pair[0], digits)} to {number(pair[1], digits)}"


def title(fit):
    """Return the report's title."""
    return f"Matérn model of {plain_name(fit.observations.value_name)}"


def _trend(fit):
    """Return the trend in words: below the title, and in a sentence."""
    listed = ", ".join(map(plain_name, fit.trend.needs))
    return {
        "zero": ("no trend", "without a trend"),
        "constant": ("constant mean", "with a constant mean"),
        "linear": ("linear trend", "with a trend linear in the coordinates"),
        "covariates": (f"trend in {listed}", f"with a trend linear in {listed}"),
    }.get(fit.trend.kind, (f"trend {fit.trend.text}", f"with the trend {fit.trend.text}"))


def lead(fit):
    """Return the line below the title."""
    seen = fit.observations
    how = "restricted maximum likelihood" if fit.reml else "maximum likelihood"
    metric = {"euclidean": "Euclidean"}.get(seen.metric, seen.metric)
    approximately = "Vecchia’s approximation, " if isinstance(fit.method, Vecchia) else ""
    return f"{len(seen):,} places, {metric} distances, {_trend(fit)[0]}, {approximately}{how}"


def summary(fit, found):
    """Return the result in sentences.

    Parameters
    ----------
    fit : Fit
    found : Findings

    Returns
    -------
    list of str
    """
    sentences = [_what(fit)]
    if fit.outcome.good:
        sentences += [_reach(fit, found), _noise(fit), _smoothness(fit, found)]
    sentences.append(_validation(found.validation))
    return [sentence for sentence in sentences if sentence]


def _what(fit):
    seen = fit.observations
    kind = "restricted maximum likelihood (REML)" if fit.reml else "maximum likelihood"
    estimated = [name.replace("_", " ") for name in (*fit.free, *fit.boundary)]
    which = "all of whose parameters were given"
    if estimated:
        which = f"estimates {_listed(estimated)} by {kind}"
    return (
        f"This Gaussian-process model of {plain_name(seen.value_name)} at {len(seen):,} places, "
        f"{_trend(fit)[1]} and a Matérn covariance, {which}."
    )


def _reach(fit, found):
    known = found.derived.get("effective_range")
    text = (
        f"The field’s correlation falls to 5 % at a distance of "
        f"{number(fit.model.effective_range(), 3)} {fit.observations.unit}"
    )
    if known is None:
        return f"{text}."
    return f"{text} (95 % interval {interval((known.lower, known.upper), 3)})."


def _noise(fit):
    model = fit.model
    share = model.nugget / (model.nugget + model.variance)
    if "nugget" not in (*fit.free, *fit.boundary):
        return f"The nugget was held at {number(model.nugget)}."
    if share == 0:
        return "The nugget is 0: the data show no noise, and nothing at very short distances."
    return (
        f"{number(100 * share, 3)} % of the variance at a place is nugget: noise, or what varies "
        "over distances too short to see."
    )


def _smoothness(fit, found):
    nu = fit.model.smoothness
    times = {0: "continuous and not differentiable", 1: "once differentiable"}
    times[2] = "twice differentiable"
    kind = times.get(ceil(nu) - 1, f"{ceil(nu) - 1} times differentiable")
    if "smoothness" not in (*fit.free, *fit.boundary):
        name = " (the exponential model)" if nu == 0.5 else ""
        return f"The smoothness was held at {number(nu)}{name}: a field that is {kind}."
    known = found.profile.get("smoothness") or found.wald.get("smoothness")
    between = f" (95 % interval {interval(known, 3)})" if known else ""
    return f"The smoothness is estimated as {number(nu, 3)}{between}: a field that is {kind}."


def _validation(validation):
    if validation is None:
        return None
    scores, spread = validation.scores(LEVEL), float(np.std(validation.observed))
    explained = f"{100 * (1 - (scores['rmse'] / spread) ** 2):.0f} % of their variance is explained"
    if scores["rmse"] >= spread:
        explained = "their mean would have done as well"
    return (
        f"Predicted from all the others, an observation is missed by {number(scores['rmse'], 3)} "
        f"(root mean square; the values’ own standard deviation is {number(spread, 3)}, so that "
        f"{explained}), and "
        f"{100 * scores['coverage']:.1f} % lie in their 95 % intervals."
    )


def cautions(fit, found):
    """Return what a reader must know before believing the numbers, as sentences."""
    result = []
    if fit.outcome.good:
        parts = fit.outcome.message.split("; ")
        result += [part for part in parts if part and not _is_promise(part)]
        if fit.information is not None:
            said = ridge(fit.model, fit.free, fit.information)
            result += [said] if said and said not in fit.outcome.message else []
    for name in fit.boundary:
        if not any(name.replace("_", " ") in said for said in result):
            result.append(f"the {name.replace('_', ' ')} lies on a boundary")
    result += [*found.cautions, *filter(None, [_dishonest(found.validation), _coarse(found)])]
    return [said[0].upper() + said[1:].rstrip(".") + "." for said in result]


def _is_promise(part):
    """Whether a part of a message says how exactly the search ended, and nothing else."""
    return part.startswith(
        ("one more Newton step", "every parameter was given", "in these formats")
    )


def _dishonest(validation):
    """Say that intervals cover too few or too many observations."""
    if validation is None:
        return None
    covered, n = validation.scores(LEVEL)["coverage"], len(validation)
    if abs(covered - LEVEL) <= z_value(0.99) * WIDER * sqrt(LEVEL * (1 - LEVEL) / n):
        return None
    which = "too narrow" if covered < LEVEL else "too wide"
    return (
        f"95 % prediction intervals cover {100 * covered:.1f} % of the observations left out: they "
        f"are {which}"
    )


def _coarse(found):
    """Say that an approximation is far from the exact likelihood."""
    if not found.divergences:
        return None
    kl = found.divergences[0][1].kl
    if kl <= 0.1:
        return None
    return (
        f"the approximation’s divergence from the exact likelihood is {number(kl, 3)} nats: "
        "compare the estimates with those of a finer one"
    )


def tiles(fit, found):
    """Return (name, number, remark) of what one looks at first."""
    model, seen = fit.model, fit.observations
    known = seen.metric != "euclidean" or seen.length_unit
    unit = f"{seen.unit}; " if known else "in the places’ units; "
    result = [
        ("effective range", number(model.effective_range(), 3), f"{unit}correlation 5 %"),
    ]
    if "nugget" in (*fit.free, *fit.boundary):
        share = 100 * model.nugget / (model.nugget + model.variance)
        result.append(("nugget", f"{number(share, 2)} %", "of the variance at a place"))
    if found.validation is not None:
        scores = found.validation.scores(LEVEL)
        result += [
            ("prediction error", number(scores["rmse"], 3), "leave-one-out RMSE"),
            ("coverage", f"{100 * scores['coverage']:.1f} %", "of 95 % prediction intervals"),
        ]
    return result


def estimates(fit, found):
    """Return the rows of the table of estimates: parameters, then the trend's coefficients."""
    seen, rows = fit.observations, []
    for name, value in fit.model.parameters().items():
        error = fit.standard_errors.get(name)
        if error is not None:
            said = f"{error:.4g}"
        elif name in fit.free:
            said = "not known"
        else:
            said = "on a boundary" if name in fit.boundary else "held"
        ends = interval(found.wald.get(name)), interval(found.profile.get(name))
        unit = unit_of(name, seen) or ""
        words = name.replace("_", " ")
        rows.append(Row(words, SYMBOLS[name], _six(value), said, *ends, unit))
    z = z_value(LEVEL)
    coefficients = zip(fit.trend.names, fit.coefficients, fit.coefficient_errors, strict=True)
    for name, value, error in coefficients:
        unit = f"units of {seen.value_name}"
        unit += "" if name == "intercept" else f" per unit of {name}"
        ends = interval((value - z * error, value + z * error)), ""
        rows.append(Row(f"trend: {name}", "β", _six(value), f"{error:.4g}", *ends, unit))
    return rows


def _six(value):
    """Return a number with six digits, as the command line prints it."""
    return f"{value:.6g}".replace("-", "−")


def _is_told(known, fit):
    """Whether σ²/a²ᵛ is known better than σ² alone: where ν is unknown too, so is its unit."""
    error = fit.standard_errors.get("variance")
    return error is None or known.standard_error / known.value < error / fit.model.variance


def derived_rows(found, fit):
    """Return (name, estimate, standard error, interval, remark) of derived quantities."""
    rows = []
    for name, (title, remark) in DERIVED.items():
        known = found.derived.get(name)
        if known is not None and (name != "microergodic" or _is_told(known, fit)):
            numbers = number(known.value), number(known.standard_error)
            remark = remark + (f", in {fit.observations.unit}" if name == "effective_range" else "")
            rows.append((title, *numbers, interval((known.lower, known.upper)), remark))
    return rows


def facts(fit):
    """Return (what, number, remark) on the likelihood and the search."""
    reml = "restricted; compares fits of one trend only" if fit.reml else ""
    return [
        ("log-likelihood", shown(fit.log_likelihood, 6), reml),
        ("estimated parameters", str(fit.degrees_of_freedom), ""),
        ("AIC", shown(fit.aic, 4), ""),
        ("AICc", shown(fit.aicc, 4) if isfinite(fit.aicc) else "∞", "corrected for few data"),
        ("BIC", shown(fit.bic, 4), ""),
        ("evaluations", str(fit.evaluations), f"in {fit.seconds:.2f} s"),
    ]


def score_rows(validation):
    """Return (name, number, remark) of the mean scores."""
    found = validation.scores(LEVEL)
    return [(SCORES[name][0], number(value), SCORES[name][1]) for name, value in found.items()]


def divergence_rows(found):
    """Return the table of approximations: (what, KL, by log-determinants, form, tiles, seconds)."""
    words = {"accuracy": "ε = {:g}", "kl_target": "target {:g}", "neighbours": "{} neighbours"}
    rows = []
    for asked, known in found.divergences:
        name = "; ".join(words[key].format(value) for key, value in asked.items())
        counts = {} if known.formats is None else known.formats.counts()
        tiled = ", ".join(f"{count} {form.upper()}" for form, count in counts.items())
        form = known.quadratic_form_error
        rows.append(
            (
                name or "as fitted",
                number(known.kl, 3),
                number(known.log_determinant_error, 3),
                "" if form is None else number(form, 3),
                tiled,
                number(known.speedup, 2),
            )
        )
    return rows


def _listed(words):
    """Join words as a sentence does.

    Examples
    --------
    >>> _listed(["a", "b", "c"]), _listed(["a"])
    ('a, b and c', 'a')
    """
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + f" and {words[-1]}"
