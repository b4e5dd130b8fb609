"""Python code that repeats a fit, and the software and machine of a report."""

import os
import platform
import time
from dataclasses import fields
from pathlib import Path, PurePath

from ..covariance.base import made_by_name
from ..covariance.responses import RESPONSES
from ..data import datasets
from ..data.options import READER_OPTIONS, options_of
from ..estimation.options import FIT_OPTIONS
from ..likelihood.automatic import MOST_EXACT_LOCATIONS
from ..likelihood.exact import Exact
from ..linalg.precision import describe, in_words, uniform
from ..runtime.devices import usable_cores

REPORTED_LIBRARIES = ("numpy", "scipy", "nlopt", "numba")


def machine():
    """Return the software and the machine in words, without names of people or hosts."""
    # it takes a hundredth of a second to import
    from importlib import metadata

    from threadpoolctl import threadpool_info

    versions = [f"Python {platform.python_version()}"]
    for name in REPORTED_LIBRARIES:
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    blas = {
        f"{lib['internal_api']} {lib.get('version') or ''}".strip()
        + (f" ({lib['architecture']})" if lib.get("architecture") else "")
        for lib in threadpool_info()
        if lib["user_api"] == "blas"
    }
    return {
        "software": ", ".join([*versions, *sorted(blas)]),
        "system": f"{platform.system()} on {platform.machine()}",
        "cores": usable_cores(),
    }


def date():
    """Return the date in UTC, or that of SOURCE_DATE_EPOCH if it is set.

    https://reproducible-builds.org/specs/source-date-epoch/
    """
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    moment = time.gmtime(int(given) if given.isdecimal() else None)
    return time.strftime("%Y-%m-%d", moment)


def without_home(command):
    """Return a command line with $HOME in place of the user's home directory.

    >>> home = str(Path.home())
    >>> without_home(f"geomxp fit {home}/wells.csv --output '{home}/my fit.json'")
    "geomxp fit $HOME/wells.csv --output $HOME'/my fit.json'"
    """
    home = str(Path.home()).rstrip("/")
    if not home:
        return command
    return command.replace(f"'{home}/", "$HOME'/").replace(f"{home}/", "$HOME/")


def python_lines(fit):
    """Return Python code that repeats the fit."""
    method = method_text(fit.method, len(fit.observations))
    options = FIT_OPTIONS.changed(FIT_OPTIONS.kept(fit.options, fit))
    response = fit.model.response
    if response is not None:
        options["response"] = response_text(response)
    if made_by_name(fit.model.family) is not type(fit.model):
        options["family"] = _Code(type(fit.model).__name__)
    arguments = ({} if method is None else {"method": method}) | options
    lines = ["import geomxp as gx", "", *reading_lines(fit.observations)]
    lines += [call("fit = gx.fit(observations", arguments), "print(fit)"]
    return "\n".join([*lines, f"# log-likelihood {fit.log_likelihood:.6f}"])


def response_text(response):
    """Return the name of a response, or the expression of one with settings of its own.

    >>> from geomxp import responses
    >>> response_text(responses.Bernoulli()), response_text(responses.Bernoulli("probit"))
    ('bernoulli', gx.responses.Bernoulli(link='probit'))
    """
    name = type(response).__name__
    if RESPONSES.get(response.name) is not type(response):
        return _Code(f"{name}()")
    estimated = response.parameters()
    given = {
        one.name: getattr(response, one.name)
        for one in fields(response)
        if one.name not in estimated and getattr(response, one.name) != one.default
    }
    if not given:
        return response.name
    texts = ", ".join(f"{key}={value!r}" for key, value in given.items())
    return _Code(f"gx.responses.{name}({texts})")


def reading_lines(observations, source=None):
    """Return the lines that read the observations; without a source, from the file's name alone."""
    if source is None:
        path = PurePath(observations.source.get("path") or "").name
        source = observations.source | {"path": path}
    if source.get("digest") != observations.digest():
        covariates = "" if observations.covariates is None else ", covariates"
        metric = "" if observations.metric == "euclidean" else f", metric={observations.metric!r}"
        metric += "".join(f", {name}={name}" for name in observations.extra())
        return [
            "# locations, values and covariates are your arrays; SHA-256 of their numbers:",
            f"# {observations.digest()}",
            f"observations = gx.Observations(locations, values{covariates}{metric})",
        ]
    entry = datasets.DATASETS.get(source.get("dataset"))
    start = f"observations = gx.read_table({source['path']!r}"
    if entry:
        start = f"observations = gx.datasets.load({source['dataset']!r}"
    return [call(start, READER_OPTIONS.changed(options_of(source), entry and entry.columns))]


class _Code(str):
    """Text of an expression, whose repr has no quotation marks."""

    __slots__ = ()

    def __repr__(self):
        return str(self)


def method_text(method, n):
    """Return the expression of a method for n locations; None for the default."""
    usual, description = Exact(), method.describe(0)
    if description["name"] == "vecchia":
        order = method.ordering if isinstance(method.ordering, str) else _Code("ordering")
        more = "" if order == "maximin" else f", {order!r}"
        return _Code(f"gx.Vecchia({method.neighbours}{more})")
    if description["name"] != "exact":
        return _Code(repr(method))
    if method == usual and n <= MOST_EXACT_LOCATIONS:
        return None
    arguments = []
    if describe(method.precision) is None:
        arguments.append("precision")
    elif method.precision != uniform("fp64"):
        arguments.append(in_words(method.precision))
    for name in ("tile", "on", "memory", "device_memory", "refine", "fallback", "keep_formats"):
        if getattr(method, name) != getattr(usual, name):
            arguments.append(f"{name}={getattr(method, name)!r}")
    return _Code(f"gx.Exact({', '.join(arguments)})")


def call(start, arguments):
    """Return a call with keyword arguments, over several lines if it is long."""
    texts = [f"{name}={value!r}" for name, value in arguments.items()]
    line = ", ".join([start, *texts]) + ")"
    if len(line) <= 80:
        return line
    head, first = start.split("(", 1)
    return f"{head}(\n    " + ",\n    ".join([first, *texts]) + ",\n)"
