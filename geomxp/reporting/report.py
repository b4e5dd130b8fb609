"""Report of a fit: one HTML file that holds everything and loads nothing from the network.

`findings` computes what the report shows; the wording is in the templates.
"""

from __future__ import annotations

import base64
import hashlib
import re
from importlib import resources
from math import isfinite, sqrt
from numbers import Real
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np

from .. import plots
from .._version import __version__
from ..data import datasets, tables
from ..errors import InvalidInput
from ..estimation.diagnose import ridge
from ..estimation.result import Fit, z_value
from .charts import chart
from .findings import BUDGET, findings_of
from .maps import Maps, plain_name, shown
from .sources import date, held, machine, python_lines, without_home

if TYPE_CHECKING:
    from .._typing import PathLikeText

LEVEL = 0.95

SYMBOLS = {"variance": "σ²", "range": "a", "smoothness": "ν", "nugget": "τ²"}
FAMILY_SYMBOLS = {
    "powered-exponential": {"power": "p"},
    "cauchy": {"power": "α", "decay": "β"},
    "rational-quadratic": {"shape": "κ"},
    "wendland": {"smoothness": "κ", "shape": "μ"},
}

OTHERS = ("scikit-learn", "gstools", "gpgp", "gstat", "geor", "fields", "spmodel", "gpboost")
"""Packages in whose parameters the model is given."""

NEUTRAL = (
    *("All parameters were given", "one more Newton step", "every parameter was given"),
    "in these formats",
)
"""Beginnings of messages that only say how a search ended."""

WIDER = 1.28
"""Largest factor by which the spread of a coverage exceeds that of independent errors."""


def report(
    fit: Fit,
    path: PathLikeText,
    *,
    command: str | None = None,
    budget: float = BUDGET,
    progress: bool = True,
) -> None:
    """Write a report of a fit as one HTML file.

    Parameters
    ----------
    fit : Fit
    path : path
    command : str, optional
        Command line of the fit, which the report shows.
    budget : float
        Seconds for what the report computes beside the fit: validation, maps, profiles, contours
        and the divergence of an approximation. Parts that would take longer are skipped, and the
        report lists them.
    progress : bool
        Show progress on standard error if it is a terminal.

    Raises
    ------
    InvalidInput
        If `fit` is not a Fit, if `budget` is not a number of at least 0, or if the file cannot be
        written; this is checked before anything is computed.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import geomxp as gx
    >>> fit = gx.fit(gx.datasets.load("meuse"), fixed={"smoothness": 0.5})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     gx.report(fit, Path(folder) / "meuse.html", budget=0.0)
    ...     "Matérn model of log_zinc" in Path(folder, "meuse.html").read_text("utf-8")
    True
    """
    _check(fit, budget)
    tables.check_writable(path)
    text = report_html(fit, command=command, budget=budget, progress=progress)
    tables.write_text(path, text)


def report_html(
    fit: Fit, *, command: str | None = None, budget: float = BUDGET, progress: bool = False
) -> str:
    """Return the report as text; parameters as of `report`."""
    import jinja2

    _check(fit, budget)
    # autoescape, because names of columns and files come from the user
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= FILTERS
    text = environment.get_template("report.html").render(_page(fit, command, budget, progress))
    # the name of a file may contain bytes that are not text
    return text.encode("utf-8", "replace").decode("utf-8")


def _check(fit, budget):
    plots.checked("fit", fit, Fit)
    if not (isinstance(budget, Real) and budget >= 0):
        raise InvalidInput(f"`budget` must be seconds, 0 or more. Got {budget!r}.")


def _asset(name):
    """Return a file of the folder `templates`."""
    return resources.files(__package__).joinpath("templates", name).read_text(encoding="utf-8")


def _page(fit, command, budget, progress):
    """Return the variables of the template."""
    from markupsafe import Markup

    found = findings_of(fit, budget, progress)
    observations, model, script = fit.observations, fit.model, _asset("report.js")
    source, validation = observations.source, found.validation
    about = fit.method.describe(len(observations))
    maps = None if observations.dimensions == 1 else Maps(fit, validation, found.raster)
    if maps:
        found.notes += filter(None, [maps.note()])
    microergodic, error = found.derived.get("microergodic"), fit.standard_errors.get("variance")
    return {
        "version": __version__,
        "date": date(),
        "style": Markup(_asset("report.css")),
        "script": Markup(script),
        "digest": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii"),
        "fit": fit,
        "model": model,
        "observations": observations,
        "found": found,
        "about": about,
        "vecchia": fit.method.approximate,
        "n": len(observations),
        "value_name": plain_name(observations.value_name),
        "first_coordinate": plain_name(observations.location_names[0]),
        "estimated": (*fit.free, *fit.boundary),
        "held": held(fit),
        "nugget_share": model.nugget / (model.nugget + model.largest_variance),
        "anisotropic": "anisotropy_ratio" in model.parameters(),
        # σ²/a²ᵛ is shown where it is known better than σ² alone
        "microergodic_told": microergodic is not None
        and (
            error is None
            or microergodic.standard_error / microergodic.value < error / model.variance
        ),
        "scores": validation.scores(LEVEL) if validation else {},
        "deviation": float(np.std(validation.observed)) if validation else None,
        "cautions": cautions(fit, found),
        "estimates": _estimates(fit, found),
        "maps": maps.all() if maps else [],
        "numbers": maps.numbers() if maps else None,
        "neighbours": maps.neighbours(found.graph) if found.graph else None,
        "line": None if maps else _line(fit, found.line),
        "residuals": _residuals(validation) if validation else {},
        "tile_formats": found.formats
        and chart(lambda ax: plots.precision_map(found.formats, ax=ax), "formats"),
        "divergence_chart": len(found.divergences) > 1 and _divergences(fit, found.divergences),
        "conventions": _conventions(model),
        "source": source,
        "table_name": PurePath(source.get("path") or "").name,
        "dataset": datasets.DATASETS.get(source.get("dataset")),
        "machine": machine(),
        "command": without_home(command) if command else None,
        "python": python_lines(fit),
    }


def cautions(fit, found):
    """Return warnings about the estimates as sentences."""
    result = []
    if fit.outcome.good:
        message = fit.outcome.message.partition("Rounding in these formats")[0].strip()
        # parts of messages in files of earlier versions are not sentences
        sentences = re.split(r"(?<=\.) (?=[A-Z])", message)
        parts = message.split("; ") if message[:1].islower() else sentences
        result += [part for part in parts if part and not part.startswith(NEUTRAL)]
        if fit.information is not None:
            sentence = ridge(fit.model, fit.free, fit.information)
            result += [sentence] if sentence and sentence not in fit.outcome.message else []
    for name in map(spaced, fit.boundary):
        if not any(name in sentence for sentence in result):
            result.append(f"the {name} lies on a boundary")
    result += found.warnings
    if found.validation is not None:
        covered, n = found.validation.scores(LEVEL)["coverage"], len(found.validation)
        if abs(covered - LEVEL) > z_value(0.99) * WIDER * sqrt(LEVEL * (1 - LEVEL) / n):
            result.append(
                f"95 % prediction intervals cover {100 * covered:.1f} % of the observations left "
                f"out: they are {'too narrow' if covered < LEVEL else 'too wide'}"
            )
    if found.divergences and found.divergences[0][1].kl > 0.1:
        result.append(
            "the approximation’s divergence from the exact likelihood is "
            f"{number(found.divergences[0][1].kl, 3)} nats: compare the estimates with those of a "
            "finer one"
        )
    return [said[0].upper() + said[1:].rstrip(".") + "." for said in result]


def _estimates(fit, found):
    """Return the rows of the table of estimates: parameters, then coefficients of the trend."""
    observations, rows = fit.observations, []
    symbols = SYMBOLS | FAMILY_SYMBOLS.get(fit.model.family, {})
    for name, value in fit.model.parameters().items():
        error = fit.standard_errors.get(name)
        missing = "not known" if name in fit.free else "held"
        rows.append(
            {
                "name": spaced(name),
                "symbol": symbols.get(name, ""),
                "estimate": _six(value),
                "error": f"{error:.4g}"
                if error is not None
                else ("on a boundary" if name in fit.boundary else missing),
                "wald": interval(found.wald.get(name)),
                "profile": interval(found.profile.get(name)),
                "unit": plots.unit_of(name, observations) or "",
            }
        )
    z, unit = z_value(LEVEL), f"units of {observations.value_name}"
    coefficients = zip(fit.trend.names, fit.coefficients, fit.coefficient_errors, strict=True)
    for name, value, error in coefficients:
        rows.append(
            {
                "name": f"trend: {name}",
                "symbol": "β",
                "estimate": _six(value),
                "error": f"{error:.4g}",
                "wald": interval((value - z * error, value + z * error)),
                "profile": "",
                "unit": unit + ("" if name == "intercept" else f" per unit of {name}"),
            }
        )
    return rows


def _line(fit, prediction):
    """Return the chart of observations along a line, and of their prediction."""

    def draw(ax):
        plots.values_map(fit.observations, ax=ax)
        if prediction is not None:
            x, (low, high) = prediction.locations[:, 0], prediction.interval()
            ax.fill_between(x, low, high, color="#56b4e9", alpha=0.3, linewidth=0)
            ax.plot(x, prediction.mean, color="#0072b2", linewidth=1.5)

    return chart(draw, "line")


def _residuals(validation):
    """Return charts of the errors of leave-one-out predictions."""
    functions = {
        "errors": plots.residuals_against_prediction,
        "quantiles": plots.normal_quantiles,
        "pit": plots.pit,
        "coverage": plots.coverage,
    }
    return {
        name: chart(lambda ax, draw=draw: draw(validation, ax=ax), name)
        for name, draw in functions.items()
    }


def _divergences(fit, divergences):
    """Return the chart of the divergences of finer and coarser approximations."""
    import pandas as pd

    rows = [known.to_dict() | label for label, known in divergences]
    frame = pd.DataFrame(rows).sort_values(next(iter(divergences[0][0])), ascending=False)
    return chart(lambda ax: plots.divergences(frame, len(fit.observations), ax=ax), "divergences")


def _conventions(model):
    """Return (package, parameters) of an isotropic model for other packages."""
    rows = []
    if not model.tabulated or model.anisotropy is not None:
        return rows
    for name in filter(model.conventions.get, OTHERS):
        names, theirs = model.conventions[name].names, model.to_convention(name)
        range_, nugget = names[1], names[-1]
        rows.append((name, f"{range_} = {theirs[range_]:.6g}, {nugget} = {theirs[nugget]:.6g}"))
    return rows


# Filters of the template.


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


def listed(words):
    """Join words as a sentence does.

    Examples
    --------
    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def spaced(name):
    """Return the name of a parameter in words."""
    return name.replace("_", " ")


def tally(counts, upper=True):
    """Return numbers of tiles by format as text."""
    return ", ".join(f"{k} {name.upper() if upper else name}" for name, k in counts.items())


def _six(value):
    return f"{value:.6g}".replace("-", "−")


FILTERS = {
    "number": number,
    "interval": interval,
    "listed": listed,
    "spaced": spaced,
    "tally": tally,
    "plain_name": plain_name,
    "decimals": shown,
    "count": "{:,}".format,
    # no line break before a per cent sign
    "tight": lambda text: text.replace(" %", "\N{NO-BREAK SPACE}%"),
}
