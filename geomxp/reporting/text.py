"""Where a report's numbers come from, how to make them again, and what to cite."""

import os
import platform
import shlex
import time
from dataclasses import dataclass
from importlib import metadata
from math import ceil, isfinite, sqrt
from pathlib import Path, PurePath

import numpy as np

from ..covariance.matern import PACKAGES
from ..data import datasets
from ..errors import Ending
from ..estimation.intervals import ridge
from ..estimation.result import z_value
from ..likelihood.exact import Exact
from ..linalg.precision import describe, uniform
from ..plots import unit_of
from ..runtime.devices import usable_cores
from .maps import plain_name, shown

LIBRARIES = ("numpy", "scipy", "nlopt", "numba")

WORKS = {
    "Matérn": "Stein, M. L. (1999). Interpolation of Spatial Data: Some Theory for Kriging. "
    "Springer, New York.",
    "REML": "Patterson, H. D. and Thompson, R. (1971). Recovery of inter-block information when "
    "block sizes are unequal. Biometrika 58, 545–554.",
    "Vecchia": "Vecchia, A. V. (1988). Estimation and model identification for continuous spatial "
    "processes. Journal of the Royal Statistical Society B 50, 297–312.",
    "scoring": "Guinness, J. (2021). Gaussian process learning via Fisher scoring of Vecchia’s "
    "approximation. Statistics and Computing 31, 25.",
    "tiles": "Higham, N. J. and Mary, T. (2022). Mixed precision algorithms in numerical linear "
    "algebra. Acta Numerica 31, 347–414.",
    "ridge": "Zhang, H. (2004). Inconsistent estimation and asymptotically equal interpolations in "
    "model-based geostatistics. Journal of the American Statistical Association 99, 250–261.",
    "profile": "Venzon, D. J. and Moolgavkar, S. H. (1988). A method for computing "
    "profile-likelihood-based confidence intervals. Applied Statistics 37, 87–94.",
    "validation": "Dubrule, O. (1983). Cross validation of kriging in a unique neighborhood. "
    "Mathematical Geology 15, 687–699.",
    "scores": "Gneiting, T. and Raftery, A. E. (2007). Strictly proper scoring rules, prediction, "
    "and estimation. Journal of the American Statistical Association 102, 359–378.",
}
"""What a report leans on, with the years and pages of print."""

OTHERS = ("scikit-learn", "gstools", "gpgp", "gstat", "geor", "fields", "spmodel", "gpboost")
"""Packages in whose words the model is given."""


def provenance(seen):
    """Return rows of (what, text) on where the observations come from."""
    source = seen.source
    rows = [("places", f"{len(seen):,}"), ("distances", f"{seen.metric}, in {seen.unit}")]
    if seen.crs:
        rows.append(("coordinate reference system", seen.crs))
    if not source:
        rows.append(("table", "none: arrays given in Python"))
    if source.get("path"):
        # where it lies is the author's own affair
        rows.append(("table", PurePath(source["path"]).name))
    if source.get("sha256"):
        rows.append(("SHA-256 of the table", source["sha256"]))
    rows += [("locations", ", ".join(seen.location_names)), ("values", seen.value_name)]
    if seen.covariate_names:
        rows.append(("covariates", ", ".join(seen.covariate_names)))
    if source.get("drop_missing"):
        rows.append(("missing numbers", "rows with any were left out"))
    entry = datasets.DATASETS.get(source.get("dataset"))
    if entry:
        rows += [
            ("about", entry.about),
            ("source", entry.source.replace("`", "")),
            ("licence", entry.licence),
        ]
    return rows


def method(fit):
    """Return rows of (what, text) on how was computed."""
    method, n = fit.method, len(fit.observations)
    rows = [("trend", fit.trend.text), ("criterion", "REML" if fit.reml else "likelihood")]
    if method.approximate:
        about = method.describe(n)
        rows.append(
            ("likelihood", f"Vecchia’s approximation, {about['neighbours']} neighbours, "
             f"{about['ordering']} order")
        )  # fmt: skip
    else:
        rows.append(("likelihood", "exact" if not method.noisy else "of mixed precision"))
    counts = ", ".join(f"{count} {name.upper()}" for name, count in fit.formats.items())
    if method.tiled:
        size = method.describe(n)["tile"]
        promoted = f", {fit.promotions} promoted" if fit.promotions else ""
        rows.append(("tiles", f"{size} rows each: {counts}{promoted}"))
        if method.refine:
            rows.append(("refinement", method.refine))
    on = method.on if isinstance(method.on, str) else ", ".join(method.on)
    rows.append(("computed on", on))
    held = [name for name in fit.model.parameters() if name not in (*fit.free, *fit.boundary)]
    if held:
        rows.append(("held", ", ".join(name.replace("_", " ") for name in held)))
    for name, (low, high) in fit.bounds.items():
        rows.append((f"bounds of the {name.replace('_', ' ')}", f"{number(low)} to {number(high)}"))
    return rows


def _version(name):
    """Return the version of a library, or None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def machine():
    """Return rows of (what, text) on software and machine, which name no person and no host."""
    from threadpoolctl import threadpool_info

    from .._version import __version__

    versions = [f"Python {platform.python_version()}"]
    versions += [f"{name} {version}" for name in LIBRARIES if (version := _version(name))]
    blas = {
        f"{lib['internal_api']} {lib.get('version') or ''}".strip()
        + (f" ({lib['architecture']})" if lib.get("architecture") else "")
        for lib in threadpool_info()
        if lib["user_api"] == "blas"
    }
    return [
        ("geomxp", __version__),
        ("software", ", ".join([*versions, *sorted(blas)])),
        ("machine", f"{platform.system()} on {platform.machine()}"),
        ("processor cores", str(usable_cores())),
    ]


def date():
    """Return the day of the report, in UTC: that of SOURCE_DATE_EPOCH where it is given.

    https://reproducible-builds.org/specs/source-date-epoch/
    """
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    moment = time.gmtime(int(given) if given.isdecimal() else None)
    return time.strftime("%Y-%m-%d", moment)


def without_home(command):
    """Return a command line in which the author's home directory has no name.

    Examples
    --------
    >>> home = str(Path.home())
    >>> without_home(f"geomxp fit {home}/wells.csv --output '{home}/my fit.json'")
    "geomxp fit $HOME/wells.csv --output $HOME'/my fit.json'"
    """
    home = str(Path.home()).rstrip("/")
    if not home:
        return command
    return command.replace(f"'{home}/", "$HOME'/").replace(f"{home}/", "$HOME/")


def python_lines(fit):
    """Return Python that makes the fit again.

    Parameters
    ----------
    fit : Fit

    Returns
    -------
    str
    """
    lines = ["import geomxp as gx", "", *_reading(fit.observations), *_fitting(fit)]
    lines += ["print(fit)", f"# log-likelihood {fit.log_likelihood:.6f}"]
    return "\n".join(lines)


def _reading(seen):
    """Return the lines that read the observations."""
    source = seen.source
    if source.get("digest") != seen.digest():
        covariates = "" if seen.covariates is None else ", covariates"
        metric = "" if seen.metric == "euclidean" else f", metric={seen.metric!r}"
        return [
            "# locations, values and covariates are arrays of yours; SHA-256 of their numbers:",
            f"# {seen.digest()}",
            f"seen = gx.Observations(locations, values{covariates}{metric})",
        ]
    entry = datasets.DATASETS.get(source.get("dataset"))
    usual = {"locations": (), "values": None, "covariates": (), "metric": None}
    if entry:
        usual = {"locations": entry.locations, "values": entry.value}
        usual |= {"covariates": entry.covariates, "metric": entry.metric}
        start = f"seen = gx.datasets.load({source['dataset']!r}"
    else:
        start = f"seen = gx.read_table({PurePath(source['path']).name!r}"
    asked = {
        "locations": tuple(source["locations"]),
        "values": source["value"],
        "covariates": tuple(source["covariates"]),
        "formula": source.get("formula"),
        "metric": source["metric"],
        "drop_missing": source["drop_missing"],
        "crs": source.get("crs"),
    }
    usual |= {"formula": None, "drop_missing": False, "crs": None}
    return [_call(start, {name: value for name, value in asked.items() if value != usual[name]})]


def _fitting(fit):
    """Return the lines that fit."""
    values = fit.model.parameters()
    held = {name: v for name, v in values.items() if name not in (*fit.free, *fit.boundary)}
    asked = {"method": _method(fit.method), "fixed": held or None, "bounds": fit.bounds or None}
    asked["trend"] = None if fit.trend.text == "constant" else fit.trend.text
    asked |= {"reml": fit.reml or None, "anisotropy": fit.model.anisotropy is not None or None}
    return [_call("fit = gx.fit(seen", {k: v for k, v in asked.items() if v is not None})]


class _Code(str):
    """An expression, which stands for itself."""

    __slots__ = ()

    def __repr__(self):
        return str(self)


def _method(method):
    """Return the expression of a way to compute; None for the usual one."""
    if method.approximate:
        named = isinstance(method.ordering, str)
        order = "" if method.ordering == "maximin" else (
            f", {method.ordering!r}" if named else ", ordering"
        )  # fmt: skip
        return _Code(f"gx.Vecchia({method.neighbours}{order})")
    if method == Exact():
        return None
    rule = describe(method.precision)
    arguments = []
    if rule is None:
        arguments.append("precision")
    elif method.precision != uniform("fp64"):
        given = [tuple(a) if isinstance(a, list) else a for a in rule["arguments"]]
        arguments.append(f"gx.{rule['rule']}({', '.join(map(repr, given))})")
    names = ("tile", "on", "memory", "device_memory", "refine", "fallback")
    usual = Exact()
    for name in names:
        if getattr(method, name) != getattr(usual, name):
            arguments.append(f"{name}={getattr(method, name)!r}")
    return _Code(f"gx.Exact({', '.join(arguments)})")


def _call(start, asked):
    """Return a call with keyword arguments, over several lines where it is long."""
    arguments = [f"{name}={value!r}" for name, value in asked.items()]
    line = ", ".join([start, *arguments]) + ")"
    if len(line) <= 80:
        return line
    head, first = start.split("(", 1)
    return f"{head}(\n    " + ",\n    ".join([first, *arguments]) + ",\n)"


def citations(fit, found):
    """Return what to cite, as texts: geomxp, the data, and the works that were leaned on."""
    from .._version import __version__

    keys = ["Matérn"]
    keys += ["REML"] if fit.reml else []
    keys += ["Vecchia", "scoring"] if fit.method.approximate else []
    keys += ["tiles"] if fit.method.noisy else []
    keys += ["ridge"] if {"variance", "range"} <= set(fit.free) else []
    keys += ["profile"] if found.profile else []
    keys += ["validation", "scores"] if found.validation is not None else []
    own = (
        f"The geomxp developers (version {__version__}). geomxp: Matérn Gaussian-process models "
        "for spatial data, by maximum likelihood. Python package."
    )
    entry = datasets.DATASETS.get(fit.observations.source.get("dataset"))
    data = [f"Data: {entry.source}.".replace("`", "")] if entry else []
    return [own, *data, *(WORKS[key] for key in keys)]


def conventions(model):
    """Return (package, parameters) of the model in other packages' words; none for anisotropy."""
    if model.anisotropy is not None:
        return []
    rows = []
    for name in OTHERS:
        range_, nugget = PACKAGES[name].names[1], PACKAGES[name].names[3]
        theirs = model.to_convention(name)
        rows.append((name, f"{range_} = {theirs[range_]:.6g}, {nugget} = {theirs[nugget]:.6g}"))
    return rows


def quoted(arguments):
    """Return words as a line that a shell reads as these words."""
    return shlex.join(arguments)


# What a report says in words and in rows of numbers.


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
    method = "restricted maximum likelihood" if fit.reml else "maximum likelihood"
    metric = {"euclidean": "Euclidean"}.get(seen.metric, seen.metric)
    approximately = "Vecchia’s approximation, " if fit.method.approximate else ""
    return f"{len(seen):,} places, {metric} distances, {_trend(fit)[0]}, {approximately}{method}"


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
