"""Report of a fit: one HTML file that holds everything and loads nothing from the network.

`findings` computes what the report shows; the wording is in the templates.
"""

from __future__ import annotations

import base64
import hashlib
import re
import warnings
from dataclasses import replace
from functools import partial
from importlib import resources
from math import inf, isfinite, sqrt
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np

from .. import plots
from .._version import __version__
from ..covariance.responses import Binomial
from ..data import datasets, tables
from ..data.observations import LEAST_LOCATIONS
from ..errors import GeomxpWarning, InvalidInput, brief_repr, check_one_of, is_finite
from ..estimation.diagnose import ridge
from ..estimation.names import titles
from ..estimation.profile import held_values
from ..estimation.result import Fit, response_title, z_value
from ..plots.axes import BLUE, band, plain_name
from ..plots.counts import may_be_zero
from ..plots.diagnostics import errors_in_words
from ..plots.maps import values_shown
from ..prediction.raster import RasterSeries
from ..prediction.scores import summary
from ..prediction.screening import below_zero, transformed
from ..prediction.variogram import several_variables
from .charts import chart
from .exploration import SHOWN_OUTLIERS, Exploration, cost_rows
from .findings import BUDGET_SECONDS, REPORT_LEVELS, findings_of
from .maps import Maps, MapsOfVariables, shown, times_shown
from .sources import date, machine, python_lines, without_home

if TYPE_CHECKING:
    from .._typing import Frame, PathLikeText

INTERVAL_LEVEL = 0.95

OTHER_PACKAGES = (
    *("scikit-learn", "gstools", "gpgp", "gstat"),
    *("geor", "fields", "spmodel", "gpboost"),
)
"""Packages in whose parameters the model is given."""

NEUTRAL_MESSAGE_STARTS = (
    *("All parameters were given", "one more Newton step", "every parameter was given"),
    "in these formats",
)
"""Beginnings of messages that only say how a search ended."""

RING_PIXELS = 6.0
"""Pixels by which a ring around a dot is larger than the dot."""

COVERAGE_SPREAD_FACTOR = 1.28
"""Largest factor by which the spread of a coverage exceeds that of independent errors."""


def report(
    fit: Fit | Exploration,
    path: PathLikeText,
    *,
    command: str | None = None,
    level: str = "full",
    places: Frame | None = None,
    budget: float = BUDGET_SECONDS,
    progress: bool = True,
) -> None:
    """Write a report of a fit, or of an exploration, as one HTML file.

    Maps of a space-time fit show one time at a time: all times if there are at most 12, otherwise
    12 about equally spaced ones. A button plays them, and a slider chooses one.

    Parameters
    ----------
    fit : Fit or Exploration
        An `Exploration` is what `geomxp.explore` returns.
    path : path
    command : str, optional
        Command line of the fit or exploration, which the report shows.
    level : {"full", "quick"}
        A quick report of a fit leaves out maps of predictions, the band of the semivariogram,
        profiles with their intervals, contours, divergences, and all charts of the validation but
        one. It takes one to two seconds for 1,000 locations.
    places : pandas.DataFrame, optional
        Locations of the maps of predictions, the cells of a regular grid in the plane, with the
        covariates of the trend. Cells may be missing. The report says if the table does not suit.
        For a space-time fit, a table without times is used at the times of all maps; one with the
        column of the times has a row for each cell and time.
    budget : float
        Seconds for what the report computes beside the fit: validation, maps, profiles, contours
        and the divergence of an approximation. Parts that would take longer are skipped, and the
        report lists them.
    progress : bool
        Show progress on standard error if it is a terminal.

    Raises
    ------
    InvalidInput
        If `fit` is neither a Fit nor an Exploration, if `level` is not known, if `budget` is not a
        number of at least 0, or if the file cannot be written; this is checked before anything is
        computed.

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
    _check(fit, level, budget)
    tables.check_writable(path)
    text = report_html(
        fit, command=command, level=level, places=places, budget=budget, progress=progress
    )
    tables.write_text(path, text)


def report_html(
    fit: Fit | Exploration,
    *,
    command: str | None = None,
    level: str = "full",
    places: Frame | None = None,
    budget: float = BUDGET_SECONDS,
    progress: bool = False,
) -> str:
    """Return the report as text; parameters as of `report`."""
    import jinja2

    _check(fit, level, budget)
    # autoescape, because names of columns and files come from the user
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= FILTERS
    if isinstance(fit, Exploration):
        text = environment.get_template("explore.html").render(_page_of_exploration(fit, command))
    else:
        text = environment.get_template("report.html").render(
            _page(fit, command, level, places, budget, progress)
        )
    # the name of a file may contain bytes that are not text
    return text.encode("utf-8", "replace").decode("utf-8")


def _check(fit, level, budget):
    plots.checked("fit", fit, Fit, Exploration)
    check_one_of("level", level, REPORT_LEVELS)
    if not ((is_finite(budget) or budget == inf) and budget >= 0):
        raise InvalidInput(f"`budget` must be seconds, 0 or more. Got {brief_repr(budget)}.")


def _asset(name):
    """Return a file of the folder `templates`."""
    return resources.files(__package__).joinpath("templates", name).read_text(encoding="utf-8")


def _frame():
    """Return the variables that all pages have."""
    from markupsafe import Markup

    script = _asset("report.js")
    return {
        "version": __version__,
        "date": date(),
        "style": Markup(_asset("report.css")),
        "script": Markup(script),
        "digest": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii"),
        "machine": machine(),
    }


def _page_of_exploration(found, command):
    """Return the variables of the page of an exploration."""
    observations, maps, ring = found.observations, None, []
    draw = {"histogram": partial(plots.histogram, observations)}
    if observations.dimensions > 1:
        maps = Maps(found)
        ring = [_with_rings(maps, found.outliers.rows)]
    else:
        draw["line"] = partial(plots.values_map, observations)
    one = found.suggestion
    if one is not None:
        z, _ = transformed(observations.values, one.name, one.parameter)
        name = f"{one.name} of {observations.value_name}"
        with warnings.catch_warnings():
            # the coordinates have been checked already
            warnings.simplefilter("ignore", GeomxpWarning)
            after = replace(observations, values=z, value_name=name, lower=None, upper=None)
        draw["transformed"] = partial(plots.histogram, after)
    bins = []
    if found.variogram is not None:
        known = found.variogram
        draw["variogram"] = partial(plots.variogram, known)
        columns = (known.distance, known.pairs, known.semivariance, known.robust)
        lags = [None] * len(known) if known.lag is None else known.lag.tolist()
        bins = [*zip(lags, *(column.tolist() for column in columns), strict=True)]
    if found.directional is not None:
        draw["directional"] = partial(plots.variogram, found.directional)
    return _frame() | {
        "found": found,
        "observations": observations,
        "value_name": plain_name(observations.value_name),
        "table_name": PurePath(observations.source.get("path") or "").name,
        "command": found.command and without_home(found.command),
        "made_by": command and without_home(command),
        "maps": ring,
        "numbers": _numbered(maps, found.kept) if maps else None,
        "shown_locations": len(maps.rows) if maps else 0,
        "maps_notes": maps.notes() if maps else [],
        "away": maps.away if maps and maps.times is not None else "",
        "charts": {name: chart(function, name) for name, function in draw.items()},
        "outliers": found.outlier_rows(SHOWN_OUTLIERS),
        "bins": bins,
        "costs": cost_rows(found),
        "timed": observations.time is not None,
    }


def _numbered(maps, kept):
    """Return the data of the page's script, with the numbers of observations as they were given."""
    numbers = maps.numbers()
    numbers["places"]["rows"] = (kept[maps.rows] + 1).tolist()
    return numbers


def _with_rings(maps, rows):
    """Return the map of the values with a ring around some rows."""
    one = maps.values()
    if not len(rows):
        return one

    def ring(rows):
        path = maps.frame.path(*maps.observations.locations[rows, :2].T)
        return maps.dot + RING_PIXELS, [("dot", "var(--mark)", path)]

    if not one.stills:
        return replace(one, layers=(ring(rows), *one.layers))
    stills = [
        replace(still, layers=(ring(np.intersect1d(rows, maps.rows[drawn])), *still.layers))
        for still, (_, drawn) in zip(one.stills, maps.drawn(), strict=True)
    ]
    return replace(one, stills=tuple(stills))


def _page(fit, command, level, places, budget, progress):
    """Return the variables of the page of a fit."""
    findings = findings_of(fit, budget, progress, level, places)
    observations, source = fit.observations, fit.observations.source
    validation, warned = findings.validation, cautions(findings)
    maps, labels = None, observations.variable_labels if several_variables(observations) else ()
    several = observations.time is not None
    if observations.dimensions > 1 and labels and times_shown(observations) is not None:
        findings.notes.append("Maps: left out, because there are several variables and times.")
    elif observations.dimensions > 1:
        raster = findings.rasters if labels else findings.raster
        maps = (MapsOfVariables if labels else Maps)(fit, validation, raster)
        findings.notes += maps.notes()
    return _frame() | {
        "fit": fit,
        "model": fit.model,
        "observations": observations,
        "findings": findings,
        "method": fit.method.describe(len(observations)),
        "value_name": listed([plain_name(one) for one in labels or [observations.value_name]]),
        "labels": labels,
        "names": titles(fit.model, observations),
        "in_time": several,
        "time_span": _time_span(observations) if several else "",
        "away": maps.away if maps and several else "",
        "scale": plain_name(fit.gaussian.observations.value_name),
        **_of_response(fit, validation),
        "held": [titles(fit.model, observations)[name] for name in held_values(fit)],
        "microergodic_told": _tells_ratio(findings),
        "scores": validation.scores(INTERVAL_LEVEL) if validation else {},
        "scores_of": _scores_of(validation, labels) if validation else {},
        "cautions": warned,
        "outcome_notes": _rest(fit.outcome, warned),
        "estimates": _estimates(findings),
        "maps": maps.all() if maps else [],
        "numbers": maps.numbers() if maps else None,
        "neighbours": maps.neighbours(findings.graph) if maps and findings.graph else None,
        "charts": _charts(findings),
        # other packages have a Gaussian noise
        "conventions": _conventions(fit.model) if fit.model.response is None else [],
        "source": source,
        "table_name": PurePath(source.get("path") or "").name,
        "dataset": datasets.DATASETS.get(source.get("dataset")),
        "command": without_home(command) if command else None,
        "python": python_lines(fit),
    }


def _of_response(fit, validation):
    """Return what the page says about the response: its kind, and the spread of known values."""
    response, observations = fit.model.response, fit.observations
    deviation = None
    if validation is not None:
        deviation = float(validation.observed[~validation.censored].std())
    return {
        "response": response,
        "response_title": response_title(response) if response is not None else "",
        # its distribution is not normal, so that predictions are means of values
        "mixed": response is not None and response.normal_noise is None,
        "discrete": response is not None and response.discrete,
        "binomial": isinstance(response, Binomial),
        "binary": _binary(response, observations),
        "laplace": response is not None and getattr(response, "integral", "laplace") == "laplace",
        "predicted_words": _predicted_words(fit),
        "deviation": deviation,
        "censored": observations.limits_in_words if observations.censored is not None else "",
        "quantile_residuals": validation is not None
        and errors_in_words(validation) == "quantile residual",
    }


def _predicted_words(fit):
    """Return what maps and lines of predictions show, in words."""
    response, observations = fit.model.response, fit.observations
    if response is None or response.normal_noise is not None:
        transformed = fit.model.transform is not None
        return (
            "Median of the back-transformed field" if transformed else "Kriging mean of the field"
        )
    if isinstance(response, Binomial):
        return "Probability of a success" if observations.trials is not None else "Probability of 1"
    name = f"Mean of {plain_name(observations.value_name)} given the field"
    standard = []
    if observations.exposure is not None:
        standard.append("an exposure of 1")
    if observations.offset is not None:
        standard.append("an offset of 0")
    return name + (f", for {listed(standard)}" if standard else "")


def _binary(response, observations):
    """Whether values are binary: of one trial each."""
    trials = observations.trials
    return isinstance(response, Binomial) and (trials is None or bool((trials == 1).all()))


def _scores_of(validation, labels):
    """Return the scores of each of several variables by name, with the spread of its values."""
    result = {}
    for k, name in enumerate(labels):
        rows = validation.observations.variable == k
        known = validation.mean[rows], validation.variance[rows], validation.observed[rows]
        result[name] = summary(*known, INTERVAL_LEVEL) | {"deviation": float(known[2].std())}
    return result


def _time_span(observations):
    """Return the column of the times, the first and the last one, and their unit, in words."""
    ends = np.array([observations.time.min(), observations.time.max()])
    first, last = observations.time_axis.in_words(ends)
    unit = f", in {plain_name(observations.time_unit)}s" if observations.time_unit else ""
    return f"{plain_name(observations.time_name)}, from {first} to {last}{unit}"


def cautions(findings):
    """Return warnings about the estimates as sentences."""
    fit, validation, result = findings.fit, findings.validation, []
    if fit.outcome.good:
        message = fit.outcome.message.partition("Rounding in these formats")[0].strip()
        parts = re.split(r"(?<=\.) (?=[A-Z])", message)
        result += [part for part in parts if part and not part.startswith(NEUTRAL_MESSAGE_STARTS)]
        if fit.information is not None:
            sentence = ridge(fit.model, fit.free, fit.information)
            result += [sentence] if sentence and sentence not in fit.outcome.message else []
    names = titles(fit.model, fit.observations)
    for name in (names[one] for one in fit.boundary):
        if not any(name in sentence for sentence in result):
            result.append(f"the {name} is on a boundary")
    result += findings.warnings
    rasters = findings.raster
    rasters = rasters.rasters if isinstance(rasters, RasterSeries) else (rasters,)
    for bounds in (validation, *rasters, findings.transect):
        sentence = bounds is not None and below_zero(fit, bounds.interval()[0])
        if sentence:
            result.append(sentence)
            break
    if validation is not None and not _binary(fit.model.response, fit.observations):
        covered, n = validation.scores(INTERVAL_LEVEL)["coverage"], len(validation)
        deviation = sqrt(INTERVAL_LEVEL * (1 - INTERVAL_LEVEL) / n)
        # intervals of counts hold more, because counts are whole numbers
        discrete = validation.mixture is not None and validation.mixture.discrete
        away = INTERVAL_LEVEL - covered if discrete else abs(covered - INTERVAL_LEVEL)
        if away > z_value(0.99) * COVERAGE_SPREAD_FACTOR * deviation:
            result.append(
                f"95 % prediction intervals cover {100 * covered:.1f} % of the observations left "
                f"out: they are {'too narrow' if covered < INTERVAL_LEVEL else 'too wide'}"
            )
    if findings.divergences and findings.divergences[0][1].kl > 0.1:
        result.append(
            "the approximation’s divergence from the exact likelihood is "
            f"{number(findings.divergences[0][1].kl, 3)} nats: compare the estimates with those of "
            "a finer one"
        )
    return [said[0].upper() + said[1:].rstrip(".") + "." for said in result]


def _rest(outcome, warned):
    """Return an outcome's message without the sentences that warnings repeat."""
    rest = outcome.message
    for sentence in warned if outcome.good else ():
        rest = rest.replace(sentence, "").replace(sentence.rstrip("."), "")
    return " ".join(rest.split()).strip("; ")


def _tells_ratio(findings):
    """Return whether σ²/a²ᵛ is known better than σ² alone, so that it is shown."""
    ratio, fit = findings.derived.get("microergodic"), findings.fit
    error = fit.standard_errors.get("variance")
    if ratio is None or error is None:
        return ratio is not None
    return ratio.standard_error / ratio.value < error / fit.model.variance


def _estimates(findings):
    """Return the rows of the table of estimates: parameters, then coefficients of the trend."""
    fit, observations, rows = findings.fit, findings.fit.gaussian.observations, []
    names = titles(fit.model, observations)
    for parameter in fit.model.table:
        name = parameter.name
        error = fit.standard_errors.get(name)
        missing = "not known" if name in fit.free else "held"
        if name in fit.boundary:
            missing = "on a boundary"
        rows.append(
            {
                "parameter": parameter.group,
                "name": names[name],
                "estimate": parameter.value,
                "error": missing if error is None else f"{error:.4g}",
                "wald": findings.wald.get(name),
                "profile": findings.profile.get(name),
                "unit": plots.unit_of(parameter, observations, fit.model.response) or "",
            }
        )
    for row in fit.coefficient_table(INTERVAL_LEVEL).itertuples():
        name, of = row.coefficient, observations.value_name
        variable = next(
            (one for one in observations.variable_labels if name.startswith(f"{one}: ")), ""
        )
        column = name.removeprefix(f"{variable}: ") if variable else name
        unit = observations.value_unit or f"units of {variable or of}"
        if fit.model.response is not None and not fit.model.response.of_values:
            unit = ""
        per = "" if column == "intercept" else f"per unit of {column}"
        rows.append(
            {
                "parameter": "trend",
                "name": f"trend: {name}",
                "estimate": row.estimate,
                "error": f"{row.standard_error:.4g}",
                "wald": (row.lower, row.upper),
                "profile": None,
                "unit": f"{unit} {per}".strip(),
            }
        )
    return rows


def _charts(findings):
    """Return the charts that are drawn regardless of the time limit, by name."""
    import pandas as pd

    fit, validation, divergences = findings.fit, findings.validation, findings.divergences
    draw = {}
    several = several_variables(fit.observations)
    if fit.observations.dimensions == 1 and not several:
        draw["line"] = partial(_draw_line, findings)
    for k, name in enumerate(fit.observations.variable_labels if several else ()):
        if (fit.observations.variable == k).sum() < LEAST_LOCATIONS:
            continue
        if fit.observations.dimensions == 1:
            draw[f"line-{k}"] = partial(_draw_line, findings, variable=name)
        if validation:
            part = validation.of_variable(name)
            draw[f"errors-{k}"] = partial(plots.residuals_against_prediction, part)
    if fit.model.variables > 1:
        draw["correlations"] = partial(plots.correlations, fit)
    full = findings.level == "full"
    if validation and _binary(fit.model.response, fit.observations):
        # randomized residuals of binary values show the random numbers
        draw["calibration"] = partial(plots.calibration, validation)
    elif validation:
        if not several:
            draw["errors"] = partial(plots.residuals_against_prediction, validation)
        if full:
            draw["quantiles"] = partial(plots.normal_quantiles, validation)
            draw["pit"] = partial(plots.pit, validation)
        if full and validation.mixture is not None and validation.mixture.discrete:
            draw["rootogram"] = partial(plots.rootogram, validation)
        elif full:
            draw["coverage"] = partial(plots.coverage, validation)
        if full and _has_calibration(validation):
            draw["calibration"] = partial(plots.calibration, validation)
    if findings.formats:
        draw["formats"] = partial(plots.precision_map, findings.formats)
    if len(divergences) > 1:
        frame = pd.DataFrame([result.to_dict() | label for label, result in divergences])
        frame = frame.sort_values(next(iter(divergences[0][0])), ascending=False)
        draw["divergences"] = partial(plots.divergences, frame, len(fit.observations))
    return {name: chart(function, name) for name, function in draw.items()}


def _has_calibration(validation):
    """Whether calibration says something: of shares of trials, or if some values are 0."""
    mixture = validation.mixture
    if mixture is None or not may_be_zero(mixture):
        return False
    return isinstance(mixture.response, Binomial) or bool((validation.observed == 0).any())


def _draw_line(findings, ax, variable=None):
    """Draw observations along a line, and their prediction."""
    response = findings.fit.model.response
    observations = values_shown(findings.fit.observations, response)
    plots.values_map(observations, variable=variable, ax=ax)
    prediction = findings.transect
    if prediction is not None and variable is not None:
        labels = observations.variable_labels
        known = observations.variable_names or range(len(labels))
        prediction = prediction.of_variable(known[labels.index(variable)])
    if prediction is not None:
        x, (low, high) = prediction.locations[:, 0], prediction.interval()
        band(ax, x, low, high)
        centre = prediction.median if prediction.response is None else prediction.mean
        ax.plot(x, centre, color=BLUE, linewidth=1.5)


def _conventions(model):
    """Return (package, parameters) of an isotropic model for other packages."""
    rows = []
    if model.variables > 1 or not model.tabulated or model.anisotropy is not None:
        return rows
    for name in filter(model.conventions.get, OTHER_PACKAGES):
        convention = model.conventions[name]
        names, theirs = (
            convention.names,
            convention.from_ours([getattr(model, p.name) for p in model.declared]),
        )
        beyond = convention.beyond(name, theirs)
        if beyond:
            rows.append((name, beyond))
            continue
        range_, nugget = names[1], names[-1]
        rows.append((name, f"{range_} = {theirs[range_]:.6g}, {nugget} = {theirs[nugget]:.6g}"))
    return rows


# Filters of the template.


def number(x, digits=4):
    """Return a number for reading.

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
    """Return an interval for reading; empty for None."""
    return "" if pair is None else f"{number(pair[0], digits)} to {number(pair[1], digits)}"


def listed(words):
    """Join words as a sentence does.

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


FILTERS = {
    "number": number,
    "interval": interval,
    "listed": listed,
    "spaced": spaced,
    "tally": tally,
    "plain_name": plain_name,
    "decimals": shown,
    "six": lambda value: f"{value:.6g}".replace("-", "−"),
    "count": "{:,}".format,
    # no line break before a per cent sign
    "tight": lambda text: text.replace(" %", "\N{NO-BREAK SPACE}%"),
}
