"""Where a report's numbers come from, how to make them again, and what to cite."""

import os
import platform
import shlex
import time
from importlib import metadata
from pathlib import Path, PurePath

from .. import datasets
from ..covariance.conventions import PACKAGES
from ..execution.devices import usable_cores
from ..inference.exact import Exact
from ..inference.vecchia import Vecchia
from ..precision.rules import describe, uniform
from .words import number

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
    how, n = fit.method, len(fit.observations)
    rows = [("trend", fit.trend.text), ("criterion", "REML" if fit.reml else "likelihood")]
    if isinstance(how, Vecchia):
        about = how.describe(n)
        rows.append(
            ("likelihood", f"Vecchia’s approximation, {about['neighbours']} neighbours, "
             f"{about['ordering']} order")
        )  # fmt: skip
    elif isinstance(how, Exact):
        rows.append(("likelihood", "exact" if not how.noisy else "of mixed precision"))
    counts = ", ".join(f"{count} {name.upper()}" for name, count in fit.formats.items())
    if isinstance(how, Exact) and how.tiled:
        size = how.describe(n)["tile"]
        promoted = f", {fit.promotions} promoted" if fit.promotions else ""
        rows.append(("tiles", f"{size} rows each: {counts}{promoted}"))
        if how.refine:
            rows.append(("refinement", how.refine))
    on = how.on if isinstance(how.on, str) else ", ".join(how.on)
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

    from .. import __version__

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
    asked = {"how": _how(fit.method), "fixed": held or None, "bounds": fit.bounds or None}
    asked["trend"] = None if fit.trend.text == "constant" else fit.trend.text
    asked |= {"reml": fit.reml or None, "anisotropy": fit.model.anisotropy is not None or None}
    return [_call("fit = gx.fit(seen", {k: v for k, v in asked.items() if v is not None})]


class _Code(str):
    """An expression, which stands for itself."""

    __slots__ = ()

    def __repr__(self):
        return str(self)


def _how(how):
    """Return the expression of a way to compute; None for the usual one."""
    if isinstance(how, Vecchia):
        named = isinstance(how.ordering, str)
        order = "" if how.ordering == "maximin" else (
            f", {how.ordering!r}" if named else ", ordering"
        )  # fmt: skip
        return _Code(f"gx.Vecchia({how.neighbours}{order})")
    if how == Exact():
        return None
    rule = describe(how.precision)
    arguments = []
    if rule is None:
        arguments.append("precision")
    elif how.precision != uniform("fp64"):
        given = [tuple(a) if isinstance(a, list) else a for a in rule["arguments"]]
        arguments.append(f"gx.{rule['rule']}({', '.join(map(repr, given))})")
    names = ("tile", "on", "memory", "device_memory", "refine", "fallback")
    usual = Exact()
    for name in names:
        if getattr(how, name) != getattr(usual, name):
            arguments.append(f"{name}={getattr(how, name)!r}")
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
    from .. import __version__

    keys = ["Matérn"]
    keys += ["REML"] if fit.reml else []
    keys += ["Vecchia", "scoring"] if isinstance(fit.method, Vecchia) else []
    keys += ["tiles"] if getattr(fit.method, "noisy", False) else []
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
