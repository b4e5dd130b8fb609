"""What is known of observations before a fit: checks, variograms, costs and the next command."""

from __future__ import annotations

import shlex
import warnings
from dataclasses import dataclass, replace
from html import escape
from math import inf
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from .._version import __version__
from ..covariance.distance import embed
from ..covariance.responses import HURDLE, Beta
from ..data import checks, datasets, spatial
from ..data.names import in_formula, option
from ..data.observations import LEAST_LOCATIONS, Observations
from ..data.options import READER_OPTIONS, options_of
from ..data.summaries import few, summary, summary_html
from ..errors import GeomxpWarning, InvalidInput, check_whole
from ..estimation.options import FIT_OPTIONS
from ..likelihood.automatic import MOST_EXACT_LOCATIONS
from ..likelihood.cost import Cost, in_words, predicted_cost
from ..likelihood.exact import Exact
from ..likelihood.trend import Trend
from ..likelihood.vecchia import Vecchia
from ..prediction.screening import (
    NOTABLE_SKEWNESS,
    Outliers,
    ScreenedTransformation,
    SuggestedResponse,
    outliers_of,
    skewness,
    suggested,
    suggested_response,
    transformations_of,
    transformed,
)
from ..prediction.variogram import (
    SAMPLE_LOCATIONS,
    Variogram,
    check_squares,
    in_time,
    least_squares,
    step_in_time,
    variogram,
)
from ..runtime.devices import human_bytes
from ..runtime.equality import by_content
from .sources import call, method_text, reading_lines

if TYPE_CHECKING:
    from .._typing import Document, Whole

COSTED_METHODS = {
    "exact": (Exact(), "--method exact"),
    "vecchia, 30 neighbours": (Vecchia(30), "--method vecchia"),
}
"""Methods whose costs are predicted, and their options."""

FREE_PARAMETERS = 4
"""Number of estimated covariance parameters of the next fit."""

VARIOGRAM_DIRECTIONS, LEAST_DIRECTIONAL_LOCATIONS = 4, 150
"""Number of directions, and the least number of locations at which they are compared."""

NEAR_SEMIVARIANCE_SHARE, LEAST_BINS = 0.8, 3
"""Directions are compared in the bins up to the first one whose semivariance reaches this share of
that at long distances, and in so many bins at least."""

COMMON_DIRECTION_RATIO = 1.75
"""Largest ratio of semivariances in two directions that is common by chance. Of 60 simulated
isotropic fields each at 150 and 400 random locations, 5 % had a ratio above 1.2 to 1.8, the larger
the longer the range."""

LEAST_EXPLAINED_SHARE = 0.3
"""Share of the variance explained by a linear trend from which it is mentioned."""

UNCORRELATED_SHARE, RISING_RATIO = 0.9, 1.25
"""Share of the semivariance at long distances above which near values are not alike; ratio of the
last semivariance to their mean from which it still rises."""

LARGEST_OUTLIER_SHARE = 0.1
"""Share of the observations up to which outliers are left out when transformations are judged."""

SPACE_TIME_FAMILY = "gneiting"
"""Family of the next fit of observations of several times."""

SHOWN_OUTLIERS = 10
"""Number of outliers that are listed."""

TEXT_WIDTH_CHARACTERS = 100
"""Columns of the text."""


@dataclass(frozen=True)
class Finding:
    """A sentence about the observations; `caution` if it needs a decision before a fit."""

    topic: str
    text: str
    caution: bool = False


@by_content
@dataclass(frozen=True)
class Exploration:
    """What is known of observations before a fit, from `geomxp.explore`.

    Parameters
    ----------
    observations : Observations
        Those that were explored: without rows that hold a suspected sentinel.
    kept : (n,) ndarray of int
        Their rows among the observations that were given, from 0.
    rows : int
        Number of observations that were given.
    trend : str
        Trend whose residuals the variograms compare.
    findings : tuple of Finding
        Sentences in plain words, each with `topic`, `text` and `caution`.
    duplicates : dict
        `rows`: observations at the location of an earlier one; `same`: those with its value.
    sentinels : dict of str to dict
        Suspected marks of missing values and their counts, by column.
    outliers : Outliers
        Observations far from the trend or from their neighbours, judged on the suggested scale.
    transformations : tuple of ScreenedTransformation
        Transformations that the values allow, with log-likelihoods of independent residuals.
    apart : int
        Number of outliers by value that the transformations are judged without.
    suggestion : ScreenedTransformation or None
        The one to try, if any.
    response : SuggestedResponse or None
        Response that suits values of this kind, with the reason; None for measurements.
    variogram : Variogram or None
        Of all directions together; None if all locations are the same.
    directional : Variogram or None
        In four directions; None unless the locations have two dimensions.
    spacing : float or None
        Median distance to the nearest other location; None if all locations are the same.
    costs : dict of str to Cost
        Predicted seconds and bytes of a fit by method.
    command : str or None
        Command to run next; None if the observations were not read from a file, or cannot be
        fitted: all values are equal, or all locations the same.
    call : str
        The same in Python; empty if they cannot be fitted.
    """

    observations: Observations
    kept: Whole
    rows: int
    trend: str
    findings: tuple[Finding, ...]
    duplicates: dict[str, int]
    sentinels: dict[str, dict[float, int]]
    outliers: Outliers
    transformations: tuple[ScreenedTransformation, ...]
    apart: int
    suggestion: ScreenedTransformation | None
    response: SuggestedResponse | None
    variogram: Variogram | None
    directional: Variogram | None
    spacing: float | None
    costs: dict[str, Cost]
    command: str | None
    call: str

    def __repr__(self) -> str:
        seen = self.observations
        count = sum(finding.caution for finding in self.findings)
        return (
            f"<Exploration of {seen.value_name}, {seen.count_in_words}: {count} "
            f"caution{'s' if count != 1 else ''}, {len(self.outliers):,} possible outliers>"
        )

    def to_dict(self) -> Document:
        """Return the exploration as a JSON object."""
        seen, values = self.observations, self.observations.values
        return {
            "geomxp": __version__,
            "rows": self.rows,
            "n": len(seen),
            "value": seen.value_name,
            "metric": str(seen.metric),
            "unit": seen.unit,
            "crs": seen.crs,
            "extent": {
                name: [float(column.min()), float(column.max())]
                for name, column in zip(seen.location_names, seen.locations.T, strict=True)
            },
            "spacing": self.spacing,
            "values": {
                "minimum": float(values.min()),
                "median": float(np.median(values)),
                "maximum": float(values.max()),
                "mean": float(values.mean()),
                "standard_deviation": float(values.std(ddof=1)),
                "skewness": skewness(values),
            },
            "duplicates": dict(self.duplicates),
            "sentinels": {
                name: [{"number": number, "rows": count} for number, count in found.items()]
                for name, found in self.sentinels.items()
            },
            "outliers": {"limit": self.outliers.limit, "rows": self.outlier_rows()},
            "transformations": [
                {
                    "name": one.name,
                    "parameter": one.parameter,
                    "log_likelihood": one.log_likelihood if one.known else None,
                    "skewness": one.skewness,
                }
                for one in self.transformations
            ],
            "judged_without": self.apart,
            "suggestion": None if self.suggestion is None else self.suggestion.name,
            "response": None if self.response is None else self.response.name,
            "trend": self.trend,
            "variogram": None if self.variogram is None else self.variogram.to_dict(),
            "directional": None if self.directional is None else self.directional.to_dict(),
            "costs": [{"method": name, **vars(cost)} for name, cost in self.costs.items()],
            "findings": [vars(finding) for finding in self.findings],
            "command": self.command,
            "call": self.call,
        }

    def outlier_rows(self, most: int | None = None) -> list[Document]:
        """Return the outliers, the strongest first, each with its observation's number from 1."""
        found, seen = self.outliers, self.observations
        times = None
        if seen.time is not None:
            times = seen.time_axis.in_words(seen.time)
        return [
            {
                "observation": int(self.kept[row]) + 1,
                **dict(zip(seen.location_names, seen.locations[row].tolist(), strict=True)),
                **({} if times is None else {seen.time_name: times[row]}),
                "value": float(seen.values[row]),
                "by_value": float(value),
                "by_neighbours": float(near),
            }
            for row, value, near in zip(
                found.rows[:most], found.by_value[:most], found.by_neighbours[:most], strict=True
            )
        ]

    def _parts(self):
        """Yield (heading, text) of the tables after the findings."""
        if len(self.outliers):
            more = f", the first {SHOWN_OUTLIERS}" if len(self.outliers) > SHOWN_OUTLIERS else ""
            heads = {"by_value": "from trend", "by_neighbours": "from neighbours"}
            rows = [
                {heads.get(k, k): v for k, v in row.items()}
                for row in self.outlier_rows(SHOWN_OUTLIERS)
            ]
            unit = "differences in robust standard deviations"
            yield f"Possible outliers{more} ({unit}):", _table(rows)
        if len(self.transformations) > 1 and self.response is None:
            rows = [
                {
                    "transformation": one.title,
                    "log-likelihood": one.log_likelihood,
                    "skewness": one.skewness,
                }
                for one in self.transformations
            ]
            yield "Transformations, as if residuals were independent:", _table(rows)
        if self.variogram is not None:
            heading, _, table = str(self.variogram).partition("\n\n")
            yield f"{heading}:", table
        if self.directional is not None:
            yield (
                "Semivariance by direction, degrees counter-clockwise from the first axis:",
                self.directional.table_by("direction"),
            )
        yield (
            f"Predicted cost of a fit of {FREE_PARAMETERS} covariance parameters:",
            _table(cost_rows(self)),
        )

    def __str__(self) -> str:
        lines = [summary(*self.observations._summary()), "", "Findings:"]
        for finding in self.findings:
            mark = "! " if finding.caution else "- "
            lines.append(_filled(finding.text, initial_indent=mark, subsequent_indent="  "))
        for heading, text in self._parts():
            lines += ["", _filled(heading), text]
        if self.command:
            lines += ["", "Run next:", f"  {self.command}"]
        if self.call:
            lines += ["", "In Python:", *(f"  {line}".rstrip() for line in self.call.splitlines())]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        said = "".join(
            f"<li>{'<b>Caution:</b> ' if one.caution else ''}{escape(one.text)}</li>"
            for one in self.findings
        )
        parts = "".join(
            f"<p>{escape(heading)}</p><pre>{escape(text)}</pre>" for heading, text in self._parts()
        )
        following = [f"<pre>{escape(text)}</pre>" for text in (self.command, self.call) if text]
        following = ["<p>Run next:</p>", *following] if following else []
        return (
            f"{summary_html(*self.observations._summary())}<ul>{said}</ul>{parts}"
            f"{''.join(following)}"
        )


def explore(
    observations: Observations,
    *,
    trend: str = "constant",
    sample: int = SAMPLE_LOCATIONS,
    seed: int = 0,
) -> Exploration:
    """Explore observations before a fit.

    No covariance is estimated. Observations with a suspected sentinel (a number that marks a
    missing value) are left out of everything else; the next command leaves them out too.

    A transformation is suggested if the residuals of a linear trend (or of `trend`) are skewed.
    Log, square root, logit and the power of Box and Cox are compared by their log-likelihoods as if
    the residuals were independent, with the Jacobian (Box and Cox 1964, J. R. Stat. Soc. B 26:211).
    The simplest one with 90 % of the largest gain is suggested if it halves the skewness. Outliers
    are judged on its scale: by robust standard deviations of the residuals, and of the differences
    from the median of eight neighbours.

    Parameters
    ----------
    observations : Observations
    trend : str
        Trend whose residuals the variograms compare, and trend of the next fit: "constant",
        "linear", "covariates" or a formula.
    sample : int
        Number of locations above which variograms compare a random sample of this size.
    seed : int
        Seed of the sample.

    Returns
    -------
    Exploration

    Raises
    ------
    InvalidInput
        If `observations` are not Observations, or of several variables, or if an argument is out of
        its range.

    Examples
    --------
    >>> import geomxp as gx
    >>> found = gx.explore(gx.datasets.load("meuse", values="zinc"))
    >>> found.suggestion.name
    'log'
    >>> print(found.command)
    geomxp fit meuse --value zinc --transform log --output meuse-fit.json --report meuse-fit.html
    """
    if not isinstance(observations, Observations):
        kind = type(observations).__name__
        raise InvalidInput(f"`observations` must be Observations. Got {kind}.")
    if observations.variable is not None and np.ptp(observations.variable):
        labels = observations.variable_labels
        name = observations.variable_names[0] if observations.variable_names else 0
        raise InvalidInput(
            f"variables are explored one at a time. Got {len(labels)} ({few(labels)}): use "
            f"gx.explore(observations.of_variable({name!r})); on the command line one --value, "
            "or a table with the rows of one variable."
        )
    check_whole("sample", sample, 3)
    check_whole("seed", seed, 0, inf)
    kind = Trend.of(observations, trend)
    given = observations
    sentinels, kept = _without_sentinels(given, kind)
    observations = given if len(kept) == len(given) else given.subset(kept)
    check_squares(observations.values)
    options = {"trend": trend, "sample": sample, "seed": seed}
    omni = around = None
    if np.ptp(observations.locations, axis=0).any():
        omni = variogram(observations, **options)
        if observations.dimensions == 2:
            try:
                around = variogram(observations, directions=VARIOGRAM_DIRECTIONS, **options)
            except InvalidInput:
                # of several times: no two locations are observed at the same time
                around = None
    shape = _trend_of_shape(observations, trend)
    transformations, apart, suggestion, outliers = _judge_values(observations, shape, seed)
    response = suggested_response(observations)
    if suggestion is not None and response is not None and response.name == Beta.name:
        # a transformation is simpler
        response = None
    if response is not None:
        # of values that are not measurements none is far from the others
        suggestion, rows = None, np.zeros(0, dtype=int)
        outliers = replace(outliers, rows=rows, by_value=rows * 1.0, by_neighbours=rows * 1.0)
    first = observations.inputs.first_rows()
    repeated = first != np.arange(len(first))
    same = int((repeated & (observations.values == observations.values[first])).sum())
    costs = {
        name: predicted_cost(
            method, observations.distinct_inputs, observations.dimensions, FREE_PARAMETERS
        )
        for name, (method, _) in COSTED_METHODS.items()
    }
    found = Exploration(
        observations=observations,
        kept=kept,
        rows=len(given),
        trend=kind.text,
        findings=(),
        duplicates={"rows": int(repeated.sum()), "same": same},
        sentinels=sentinels,
        outliers=outliers,
        transformations=transformations,
        apart=apart,
        suggestion=suggestion,
        response=response,
        variogram=omni,
        directional=around,
        spacing=None if omni is None else spacing(observations),
        costs=costs,
        command=None,
        call="",
    )
    found = replace(found, findings=tuple(_findings(found, given, shape)))
    if omni is None or not np.ptp(observations.values) > 0:
        return found
    return replace(found, command=_command(found, given), call=_call(found, given))


def _without_sentinels(observations, trend):
    """Return suspected sentinels by column, and the rows without them."""
    columns = _columns(observations, trend)
    found = {name: checks.sentinels(column) for name, column in columns.items()}
    found = {name: numbers for name, numbers in found.items() if numbers}
    marked = np.zeros(len(observations), dtype=bool)
    for name, numbers in found.items():
        marked |= np.isin(columns[name], list(numbers))
    if marked.sum() > len(observations) - LEAST_LOCATIONS:
        raise InvalidInput(
            f"{int(marked.sum())} of {len(observations)} observations hold a suspected sentinel "
            f"({', '.join(found)}), and fewer than {LEAST_LOCATIONS} are left: replace these "
            "numbers by measurements."
        )
    return found, np.flatnonzero(~marked)


def _columns(observations, trend):
    """Return the columns of numbers that a fit uses, by name."""
    columns = dict(zip(observations.location_names, observations.locations.T, strict=True))
    for name in trend.needs:
        if name not in observations.levels:
            number = observations.covariate_names.index(name)
            columns[name] = observations.covariates[:, number]
    return columns | {observations.value_name: observations.values}


def _trend_of_shape(observations, trend):
    """Return the trend after which skewness is judged: linear in place of a constant."""
    if trend not in ("zero", "constant"):
        return trend
    try:
        least_squares(observations, "linear")
    except InvalidInput:
        # few locations, or locations on a line
        return "constant"
    return "linear"


def _judge_values(observations, trend, seed):
    """Return transformations, the number of outliers apart, the suggestion, and the outliers."""
    values, apart = observations.values, 0
    found = transformations_of(observations, trend)
    # the second time without outliers, which alone can make values skewed
    for last in (False, True):
        suggestion = suggested(found)
        z = values
        if suggestion is not None:
            z, _ = transformed(z, suggestion.name, suggestion.parameter)
        outliers = outliers_of(observations, least_squares(observations, trend)(z), seed)
        far = outliers.rows[np.abs(outliers.by_value) > outliers.limit]
        if last or not 0 < len(far) <= LARGEST_OUTLIER_SHARE * len(values):
            break
        kept = observations.subset(np.setdiff1d(np.arange(len(values)), far))
        try:
            found = transformations_of(kept, trend, (values.min(), values.max()))
            apart = len(far)
        except InvalidInput:
            # a level of a covariate that only outliers have
            break
    return found, apart, suggestion, outliers


# Findings in words


def _findings(found, given, shape):
    """Yield the findings, in the order of the text."""
    for name, text in (
        ("axes", checks.axes_warning(given.location_names, given.locations)),
        *(("sentinels", _of_sentinels(found, name, given)) for name in found.sentinels),
        *(("coordinates", text) for text in _complaints(given)),
    ):
        if text:
            yield Finding(name, text[0].upper() + text[1:], caution=True)
    yield from filter(None, (_of_missing(given), _of_extent(found), _of_times(found)))
    yield from filter(None, (_of_duplicates(found),))
    yield from filter(None, (_of_errors(found, given),))
    yield from filter(None, (_of_outliers(found), _of_shape(found, shape), _of_distance(found)))
    yield from filter(None, (_of_lag(found), _of_direction(found), _of_trend(found, shape)))
    yield _of_cost(found)


def _of_sentinels(found, name, given):
    column = _columns(given, Trend.of(given, found.trend))[name]
    return f"{checks.sentinel_warning({name: column})} Everything below is without these rows."


def _of_missing(given):
    count = given.source.get("left_out", 0)
    if not count:
        return None
    rows = "1 row has" if count == 1 else f"{count:,} rows have"
    text = f"{rows} no number in a used column: left out (drop_missing=True, --drop-missing)."
    return Finding("missing", text)


GAUSSIAN_ERROR_VARIANCES = {
    None: "{v}",
    "log": "{v} / {y} ** 2",
    "sqrt": "{v} / (4 * {y})",
    "logit": "{v} / ({y} * (1 - {y})) ** 2",
}
"""Error variance t'(y)²v on the Gaussian scale, of values y with error variance v."""


def _of_errors(found, given):
    errors = given.source.get("errors")
    if given.error_variance is not None or not errors:
        return None
    name, kind = next(iter(errors.items()))
    if "value_of" in given.source:
        return _of_converted_errors(found, given, name, kind)
    transform = None if found.suggestion is None else found.suggestion.name
    scale = transform if transform in GAUSSIAN_ERROR_VARIANCES else "log"
    column, value = map(in_formula, (name, given.value_name))
    square = column if kind == "variances" else f"{column} ** 2"
    text = GAUSSIAN_ERROR_VARIANCES[scale].format(v=square, y=value)
    text = name if text == name else f"I({text})"
    words = option("error-variance", text)
    words = words if scale == transform else f"--transform {scale} {words}"
    of_scale = "" if scale is None else f" ({scale} scale)"
    return Finding(
        "errors",
        f"Column {name!r} may hold {kind} of {given.value_name}. If they are those of the "
        f"measurements, a fit uses them with error_variance={text!r} ({words}){of_scale}.",
        caution=True,
    )


def _of_converted_errors(found, given, name, kind):
    """Return the finding for values that are a function of a column."""
    whole, column = given.value_name, given.source["value_of"]
    start = f"Column {name!r} may hold {kind} of {column}. A fit needs error variances of"
    if found.suggestion is not None:
        end = f"{whole} on the scale of the transformation: convert them to that scale first."
        return Finding("errors", f"{start} {end}", caution=True)
    scale = whole.partition("(")[0]
    known = scale in GAUSSIAN_ERROR_VARIANCES and whole == f"{scale}({column})"
    if not known or not (name.isidentifier() and column.isidentifier()):
        return Finding("errors", f"{start} {whole}: convert them first.", caution=True)
    square = name if kind == "variances" else f"{name} ** 2"
    text = f"I({GAUSSIAN_ERROR_VARIANCES[scale].format(v=square, y=column)})"
    return Finding(
        "errors",
        f"{start} {whole}. If they are errors of the measurements, use error_variance={text!r} "
        f"({option('error-variance', text)}).",
        caution=True,
    )


def _filled(text, **indents):
    """Break text into lines; options are not broken at their hyphens."""
    return fill(text, TEXT_WIDTH_CHARACTERS, break_on_hyphens=False, **indents)


def _complaints(observations):
    """Return the warnings that observations give when they are made."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GeomxpWarning)
        replace(observations)
    return [str(one.message) for one in caught]


def _of_extent(found):
    seen = found.observations
    text = f"{len(seen):,} observations of {seen.value_name}"
    if found.variogram is None:
        return Finding("extent", f"{text}, all at one location.", caution=True)
    size = np.ptp(seen.locations, axis=0)
    unit = "degrees" if seen.geographic else seen.unit
    sides = " × ".join(f"{side:.4g}" for side in size)
    return Finding(
        "extent",
        f"{text} in a region of {sides} {unit}. The nearest other location is "
        f"{found.spacing:.3g} {seen.unit} away (median).",
    )


def _of_times(found):
    seen = found.observations
    times = in_time(seen)
    if times is None:
        return None
    count, ends = len(np.unique(times)), np.array([times.min(), times.max()])
    ends = seen.time_axis.in_words(ends)
    step = step_in_time(times)
    unit = f" {seen.time_unit}{'' if step == 1 else 's'}" if seen.time_unit else ""
    places = seen.inputs.distinct_locations
    return Finding(
        "times",
        f"There are {places:,} locations and {count:,} times, from {ends[0]} to {ends[1]}"
        + (
            f"; the median step is {step:.4g}{unit}."
            if step is not None
            else "; most times have one observation."
        ),
    )


def spacing(observations):
    """Return the median distance to the nearest other location, in the unit of the metric."""
    from scipy.spatial import KDTree

    points = np.unique(embed(observations.locations, observations.metric), axis=0)
    return float(np.median(KDTree(points).query(points, 2)[0][:, 1]))


def _of_duplicates(found):
    rows, same = found.duplicates["rows"], found.duplicates["same"]
    in_space = in_time(found.observations) is None
    if not rows:
        when = "" if in_space else " at one time"
        return Finding("duplicates", f"No location has more than one observation{when}.")
    where = "location" if in_space else "location and time"
    start = (
        f"{rows:,} observation{'s are' if rows > 1 else ' is'} at the {where} of an earlier one, "
        f"{same:,} with the same value."
    )
    if same == rows:
        return Finding(
            "duplicates",
            f"{start} These are probably rows that were copied: drop them "
            "(duplicates='drop', --duplicates drop). If kept, they are replicates without any "
            "difference, and draw the nugget towards 0.",
            caution=True,
        )
    return Finding(
        "duplicates",
        f"{start} A fit keeps them as replicates, whose differences determine the nugget; it "
        "cannot hold the nugget at 0. duplicates='mean' (--duplicates mean) replaces them by "
        "their mean.",
        caution=same > 0,
    )


def _of_outliers(found):
    if found.response is not None:
        return None
    count, limit = len(found.outliers), found.outliers.limit
    if not count:
        return Finding("outliers", "No outliers: no observation is far from the others.")
    strongest = found.outlier_rows(1)[0]
    seen = found.observations
    where = ", ".join(f"{n} {strongest[n]:.6g}" for n in seen.location_names)
    where += "" if seen.time is None else f", {seen.time_name} {strongest[seen.time_name]}"
    near = abs(strongest["by_neighbours"]) >= abs(strongest["by_value"])
    score = strongest["by_neighbours" if near else "by_value"]
    scale = ""
    if found.suggestion is not None:
        scale = f" after the transformation {found.suggestion.title}"
    return Finding(
        "outliers",
        f"{count:,} possible outlier{'s' if count > 1 else ''}{scale}, beyond {limit:.2g} robust "
        "standard deviations from the trend or from the neighbours. The strongest is observation "
        f"{strongest['observation']:,} ({where}) with {found.observations.value_name} "
        f"{strongest['value']:.6g}: {score:+.1f} from "
        f"{'its neighbours' if near else 'the trend'}. Check them; keep those that are true.",
        caution=True,
    )


def _of_shape(found, shape):
    none, one = found.transformations[0], found.suggestion
    values = found.observations.values
    after = f"after a {shape} trend" if shape in ("linear", "constant") else f"after {shape}"
    if not np.ptp(values) > 0:
        return Finding("values", "All values are equal: there is nothing to fit.", caution=True)
    if found.response is not None:
        name = found.response.name
        return Finding(
            "values",
            f"{found.response.why} Use the response {name}: response={name!r}, --response {name}.",
            caution=True,
        )
    start = f"Skewness {none.skewness:.2f} {after}"
    if found.apart:
        start += f", without {found.apart:,} outlier{'s' if found.apart > 1 else ''}"
    if one is not None:
        gain = one.log_likelihood - none.log_likelihood
        return Finding(
            "values",
            f"{start}. Suggested transformation: {one.title}, --transform {one.name}. It raises "
            f"the log-likelihood of independent residuals by {gain:.1f}, from "
            f"{none.log_likelihood:.1f}, and leaves a skewness of {one.skewness:.2f}.",
            caution=True,
        )
    if abs(none.skewness) < NOTABLE_SKEWNESS:
        return Finding("values", f"{start}: no transformation is needed.")
    why = "none of the transformations halves it"
    if values.min() <= 0:
        zeros = int((values <= 0).sum())
        why = (
            f"log, sqrt and boxcox need values above 0, and {zeros:,} "
            f"value{'s are' if zeros > 1 else ' is'} not"
        )
    return Finding("values", f"{start}, but no transformation is suggested: {why}.")


def _of_distance(found):
    known, when = found.variogram, "At a mean distance"
    if known is not None and known.lags:
        known, when = known.of_lag(known.lags[0]), "At one time and a mean distance"
    if known is None or len(known) < LEAST_BINS:
        return None
    plateau = _plateau(known, known.robust)
    if not plateau > 0:
        return None
    share, near = float(known.robust[0]) / plateau, float(known.distance[0])
    start = (
        f"{when} of {near:.3g} {known.unit}, the semivariance is "
        f"{100 * share:.0f} % of that at long distances"
    )
    if share > UNCORRELATED_SHARE:
        return Finding(
            "distance",
            f"{start}: no spatial correlation is visible. A fit may find it at shorter distances, "
            "or find none.",
            caution=True,
        )
    rising = float(known.robust[-1]) > RISING_RATIO * plateau
    reach = known.distance[np.argmax(known.robust >= 0.95 * plateau)]
    end = (
        "It still rises at the longest ones: a long range, or a trend"
        if rising
        else f"It levels off at about {reach:.3g} {known.unit}"
    )
    return Finding("distance", f"{start}: near values are alike. {end}.")


def _of_lag(found):
    """Say how soon values at one location differ as those at long lags or distances."""
    known = found.variogram
    if known is None or len(known.lags) < LEAST_BINS:
        return None
    own = known.upper == 0
    if not own.any():
        return None
    lags, gamma = known.lag[own], known.robust[own]
    plateau = _plateau(known.of_lag(known.lags[0]), known.of_lag(known.lags[0]).robust)
    if not plateau > 0 or lags[0] == 0:
        return None
    unit, last = (
        f" {known.time_unit}{'' if lag == 1 else 's'}" if known.time_unit else ""
        for lag in (lags[0], lags[-1])
    )
    return Finding(
        "lag",
        f"At one location and a lag of {lags[0]:.3g}{unit}, the semivariance is "
        f"{100 * gamma[0] / plateau:.0f} % of that at one time and long distances; at "
        f"{lags[-1]:.3g}{last}, {100 * gamma[-1] / plateau:.0f} %.",
    )


def _of_direction(found):
    around, known = found.directional, found.variogram
    if known is not None and known.lags:
        known = known.of_lag(known.lags[0])
    if around is None or around.locations < LEAST_DIRECTIONAL_LOCATIONS or len(known) < LEAST_BINS:
        return None
    reached = known.semivariance >= NEAR_SEMIVARIANCE_SHARE * _plateau(known, known.semivariance)
    reach = known.upper[max(int(np.argmax(reached)), LEAST_BINS) - 1]
    near, means = around.upper <= reach, {}
    for direction in around.directions:
        rows = near & (around.direction == direction)
        usual = np.interp(around.distance[rows], known.distance, known.semivariance)
        if not rows.any() or not (usual > 0).all():
            return None
        weights = around.pairs[rows]
        means[direction] = float(np.average(around.semivariance[rows] / usual, weights=weights))
    steep, flat = max(means, key=means.get), min(means, key=means.get)
    if not means[flat] > 0:
        return None
    ratio = means[steep] / means[flat]
    start = (
        f"Up to {reach:.3g} {known.unit}, the semivariance in direction {steep:g}° is {ratio:.2g} "
        f"times that in direction {flat:g}°"
    )
    if ratio > COMMON_DIRECTION_RATIO:
        text = f"{start}: compare a fit with anisotropy (--anisotropy)."
        return Finding("direction", text, caution=True)
    return Finding("direction", f"{start}, which is common by chance in isotropic fields.")


def _plateau(known, semivariance):
    """Return the mean semivariance at the longer half of the distances."""
    far = slice(len(known) // 2, None)
    return float(np.average(semivariance[far], weights=known.pairs[far]))


def _of_trend(found, shape):
    values = found.observations.values
    total = float(((values - values.mean()) ** 2).sum())
    if shape != "linear" or found.trend != "constant" or not total > 0:
        return None
    r = least_squares(found.observations, "linear")(values)
    share = 1.0 - float(np.square(r).sum()) / total
    if share < LEAST_EXPLAINED_SHARE:
        return None
    return Finding(
        "trend",
        f"A linear trend in the coordinates explains {100 * share:.0f} % of the variance (some of "
        "it by chance, as near values are alike): compare trend='linear' (--trend linear).",
    )


def _of_cost(found):
    (name, cost), n = next_method(found), found.observations.distinct_inputs
    method = "the exact method" if name == "exact" else "Vecchia's approximation"
    text = f"A fit by {method} takes {cost} (predicted)."
    if found.observations.time is not None:
        text = f"A fit of a spatial model by {method} takes {cost} (predicted); a space-time model "
        text += "takes longer."
    if name == "exact":
        return Finding("cost", text)
    why = f"there are more than {MOST_EXACT_LOCATIONS:,} locations"
    if n <= MOST_EXACT_LOCATIONS:
        why = "the exact method needs more than the memory of this machine"
    return Finding("cost", f"{text} It is chosen because {why}.")


def next_method(found):
    """Return the name and the cost of the method to use: exact, or Vecchia's approximation."""
    name = "exact"
    if found.observations.distinct_inputs > MOST_EXACT_LOCATIONS or not found.costs[name].fits:
        name = "vecchia, 30 neighbours"
    return name, found.costs[name]


# Tables of the text


def cost_rows(found):
    """Return the rows of the table of costs."""
    return [
        {
            "method": name,
            "evaluation": in_words(cost.seconds_of_evaluation),
            "fit": in_words(cost.seconds_of_fit),
            "memory": human_bytes(cost.bytes) + ("" if cost.fits else ", too much here"),
            "option": COSTED_METHODS[name][1],
        }
        for name, cost in found.costs.items()
    ]


def _table(rows):
    """Return rows as a table of text."""
    import pandas as pd

    return pd.DataFrame(rows).to_string(index=False, float_format=lambda x: f"{x:.6g}")


# What to run next


def _reading(found, given):
    """Return the source of the observations with what the next command should change; or {}."""
    source = given.source
    if source.get("digest") != given.digest():
        return {}
    markers = {number for numbers in found.sentinels.values() for number in numbers}
    # one time for all is no time
    changed = {"time": None} if in_time(given) is None else {}
    if markers:
        missing = sorted({*source.get("missing", ()), *markers})
        changed |= {"missing": missing}
    changed["drop_missing"] = bool(markers or source.get("left_out"))
    rows, same = found.duplicates["rows"], found.duplicates["same"]
    if rows and source.get("duplicates") in (None, "keep"):
        changed["duplicates"] = "drop" if same == rows else "keep"
    elif not rows:
        changed["duplicates"] = None
    path = Path(source["path"])
    if path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    return source | changed | {"path": str(path)}


def _next_options(found, given):
    """Return the options of the next fit."""
    return {
        "family": None if in_time(given) is None else SPACE_TIME_FAMILY,
        "trend": found.trend,
        "transform": None if found.suggestion is None else found.suggestion.name,
        "response": None if found.response is None else found.response.name,
    }


def _command(found, given):
    """Return the command of the next fit; None if the observations were not read from a file."""
    source = _reading(found, given)
    if not source or source.get("variable"):
        return None
    entry = datasets.DATASETS.get(source.get("dataset"))
    words = ["geomxp", "fit", source["dataset"] if entry else source["path"]]
    usual = {"metric": "euclidean"}
    if spatial.names_say_degrees(source["locations"]):
        usual["metric"] = "chordal"
    options = _next_options(found, given)
    kind = Trend.of(given, found.trend)
    columns = options_of(source) | {"formula": None}
    if kind.formula is not None:
        columns["formula"] = kind.formula.text
        del options["trend"]
    if found.trend != "covariates":
        # the trend of a fit with --covariates
        del columns["covariates"]
    words += READER_OPTIONS.command(columns, entry.columns if entry else usual)
    words += FIT_OPTIONS.command(options, {"trend": entry.trend} if entry else None)
    if next_method(found)[0] != "exact" and found.response is None:
        words += ["--method", "vecchia"]
    stem = source["dataset"] if entry else Path(source["path"]).stem
    words += ["--output", f"{stem}-fit.json"]
    # a hurdle has two fits, and no report
    report = [] if options["response"] == HURDLE else ["--report", f"{stem}-fit.html"]
    return shlex.join([*words, *report])


def _call(found, given):
    """Return the next fit in Python."""
    arguments = FIT_OPTIONS.changed(_next_options(found, given))
    if next_method(found)[0] != "exact" and found.response is None:
        method, _ = COSTED_METHODS["vecchia, 30 neighbours"]
        arguments["method"] = method_text(method, given.distinct_inputs)
    source, lines = _reading(found, given), ["import geomxp as gx", ""]
    if source:
        lines += reading_lines(given, source)
    elif found.sentinels:
        # observations from arrays have no file to read again
        columns = _columns(given, Trend.of(given, found.trend))
        marked = np.zeros(len(given), dtype=bool)
        for name, numbers in found.sentinels.items():
            marked |= np.isin(columns[name], [*numbers])
        rows = np.flatnonzero(marked).tolist()
        lines = ["import numpy as np", *lines]
        lines.append(
            f"observations = observations.subset(np.delete(np.arange({len(given)}), {rows}))"
        )
    return "\n".join([*lines, call("fit = gx.fit(observations", arguments), "print(fit)"])
