"""The commands. Each is registered with its options, and prints its result on `given.screen`."""

import os
import shlex
import warnings
from dataclasses import asdict, replace
from functools import partial
from math import isfinite

import numpy as np

from ..covariance.responses import GAUSSIAN, RESPONSES, hurdle_of, response_of
from ..covariance.transformation import TRANSFORMS
from ..data import datasets, rasters, readers, spatial, tables
from ..data.options import FLAG, READER_OPTIONS, check_choice, numbers
from ..data.reading import found_locations, longitude_first
from ..data.times import as_numbers, is_date
from ..errors import (
    FitFailed,
    GeomxpError,
    GeomxpWarning,
    InvalidInput,
    did_you_mean,
    with_article,
)
from ..estimation.compare import compare_models as rank_models
from ..estimation.document import read_as_observed
from ..estimation.fit import fit_with
from ..estimation.hurdle import HurdleFit, load
from ..estimation.likelihood_ratio import likelihood_ratio_test
from ..estimation.names import titles
from ..estimation.options import FIT_OPTIONS, family_named
from ..estimation.problem import Interrupted
from ..estimation.result import Fit, z_value
from ..likelihood.divergence import check_reference
from ..likelihood.divergence import compare as measure
from ..likelihood.exact import log_likelihood as evaluate
from ..likelihood.trend import TRENDS
from ..plots import divergences
from ..prediction import kriging
from ..prediction.raster import check_holds_series, grid_over, in_system, predict_raster
from ..prediction.screening import below_zero
from ..prediction.simulate import check_size, lay_out
from ..prediction.simulate import simulate as draw_fields
from ..prediction.supports import targets_of
from ..prediction.validation import cross_validate, leave_one_out
from ..prediction.validation import validate as score_table
from ..reporting.exploration import explore as explore_observations
from ..reporting.findings import REPORT_LEVELS
from ..reporting.report import report
from ..runtime.devices import human_bytes
from ..runtime.progress import Line, notice
from . import display
from . import options as opt
from .options import command

ESTIMATE, PREDICT = "Estimate and validate", "Predict"
STUDY, INSPECT = "Study a method", "Inspect the machine"
"""Groups of commands in the help."""

SHOWN_TABLE_COLUMNS = 3
"""Columns of a table of locations that a terminal shows beside the predictions."""

COST_FORMATS = {"KL": ".3g", "seconds": ".3g", "× FP64": ".2f"}
"""Formats of numbers in the table of `compare` on a terminal."""


class StoppedFit(Exception):
    """A fit stopped by Ctrl-C: the `Interrupted` fit, its table and its output."""


@command(
    ESTIMATE,
    *(*opt.TABLE_OPTIONS, "trend", "formula", "seed", "report"),
    seed={"panel": opt.DATA, "help": "Seed of the sample of many locations."},
)
def explore(given):
    r"""Explore a table before a fit: checks, variograms, costs and the next command.

    As text, and as a page with pictures:
      geomxp explore meuse --value zinc --report zinc.html

    With variograms of the residuals of a trend:
      geomxp explore meuse --value zinc --formula sqrt_dist

    As JSON, for scripts:
      geomxp explore jura --value Cd --json
    """
    screen = given.screen
    tables.check_writable(given.report, inputs=(given.table,))
    trend = opt.trend_of(given, opt.usual_trend(given.table))
    given.duplicates = given.duplicates or "keep"
    # a finding counts the rows that are left out
    given.drop_missing = True
    with warnings.catch_warnings(record=True) as caught:
        observations = opt.observations(given)
    with Line("exploring", shown=screen.progress):
        found = explore_observations(observations, trend=trend, seed=given.seed)
    for message in (str(warning.message) for warning in caught):
        # the findings have most of them
        if not any(message[1:] in finding.text for finding in found.findings):
            warnings.warn(message, GeomxpWarning, stacklevel=1)
    screen.result(found.to_dict, lambda: str(found))
    if given.report:
        report(found, given.report, command=shlex.join(["geomxp", *given.words]))
        screen.note(f"  report written to {given.report}")


@command(
    ESTIMATE,
    *opt.TABLE_OPTIONS,
    *opt.TREND_OPTIONS,
    *opt.SEARCH_OPTIONS,
    *opt.METHOD_OPTIONS,
    "keep_formats",
    *("intervals", "level", "output", "embed", "report", "report_level", "report_places"),
    output={"help": "JSON file to write the fit to."},
)
def fit(given):
    r"""Estimate variance, range, smoothness and nugget by maximum likelihood.

    Fit a data set, save the fit for predictions, and write a report:
      geomxp fit meuse --output meuse.json --report meuse.html

    Fit another column with the smoothness of the exponential model, with intervals:
      geomxp fit jura --value Ni --fix smoothness=0.5 --intervals profile

    Use a formula for the trend, and a search without derivatives:
      geomxp fit meuse --formula "sqrt_dist + elev" --fix smoothness=0.5 \
        --search bobyqa

    Fit 1,720 stations with Vecchia's approximation, the default above 6,000:
      geomxp fit rainfall --method vecchia --fix smoothness=0.5
    """
    screen, output = given.screen, given.output
    if screen.as_csv:
        raise InvalidInput(
            "--output of a fit must be a file. Got '-': for standard output use --json."
        )
    if given.embed is not None and not output:
        raise InvalidInput("--embed and --no-embed need --output FILE, the file that they concern.")
    if output:
        tables.check_is_for_json(output)
    tables.check_writable(output, given.report, given.checkpoint, inputs=(given.table,))
    method = opt.method_of(given)
    settings = FIT_OPTIONS.parsed(vars(given))
    settings["trend"] = opt.trend_of(given, opt.usual_trend(given.table))
    z_value(given.level)
    check_choice("--report-level", given.report_level, REPORT_LEVELS)
    places = given.report_places
    if places is not None:
        if not given.report:
            raise InvalidInput("--places is for the maps of the report: give --report FILE too.")
        places = tables.read_data(opt.file_of(places), opt.decimal_of(given, places))
    if given.intervals is not None:
        check_choice("--intervals", given.intervals, opt.INTERVALS)
    hurdle = hurdle_of(settings.get("response"))
    for name in ("report", "intervals") if hurdle else ():
        if vars(given)[name] is not None:
            raise InvalidInput(
                f"--{name} is for one model, and a hurdle has two: leave it out, or use the fits "
                "in Python, such as gx.HurdleFit.load(path).amount."
            )
    try:
        observations = opt.observations(given)
        if hurdle is None:
            response = response_of(settings.get("response"))
            method = opt.chosen(given, method, observations, opt.has_table(settings), response)
        fitted = fit_with(observations, None, method, settings, progress=screen.progress)
    except Interrupted as stopped:
        raise StoppedFit(stopped, given.table, output) from None
    except FitFailed as error:
        if hurdle is not None:
            raise
        raise FitFailed(str(_advised(error.fit.outcome, given.words)), error.fit) from None
    if hurdle is None:
        fitted = replace(fitted, outcome=_advised(fitted.outcome, given.words))
    with Line("intervals", shown=screen.progress and given.intervals == "profile"):
        intervals = intervals_of(fitted, given.intervals, given.level)
    # printed before files are written, so that a full disk does not lose the estimates
    screen.result(
        lambda: fitted.to_dict() | ({"intervals": intervals} if given.intervals else {}),
        lambda: str(fitted) + (interval_lines(fitted, intervals) if intervals else ""),
        None if hurdle else lambda: display.fit(fitted, intervals),
    )
    if output:
        fitted.save(output, embed=given.embed)
        screen.note(f"  fit written to {output}")
    if given.report:
        line = shlex.join(["geomxp", *given.words])
        report(
            fitted,
            given.report,
            command=line,
            level=given.report_level,
            places=places,
            progress=screen.progress,
        )
        screen.note(f"  report written to {given.report}")
    if not fitted.outcome.good:
        warnings.warn(str(fitted.outcome), GeomxpWarning, stacklevel=1)


def _advised(outcome, words):
    """Return an outcome whose remedy is a command, and not a call."""
    if not outcome.options:
        return outcome
    for one in (FIT_OPTIONS[name] for name in outcome.options):
        if one.kind is FLAG:
            words = [word for word in words if word != one.flag]
        elif one.name != "fixed":
            words = without(one.flag, words)
    changed = FIT_OPTIONS.command(outcome.options)
    return replace(outcome, remedy=shlex.join(["geomxp", *adding(changed, words)]))


def adding(options, words):
    """Return the words of a command line with more options, before a -- that ends them."""
    end = words.index("--") if "--" in words else len(words)
    return [*words[:end], *options, *words[end:]]


def without(option, words):
    """Return the words of a command line without an option and its value.

    Examples
    --------
    >>> without("--kl", ["fit", "meuse", "--kl", "1e-3", "--kl=1e-2", "--reml"])
    ['fit', 'meuse', '--reml']
    """
    kept, skip = [], False
    for word in words:
        if not skip and word != option and not word.startswith(f"{option}="):
            kept.append(word)
        skip = word == option and not skip
    return kept


def intervals_of(fitted, method, level):
    """Return the confidence intervals of a fit for JSON; None, with a warning, if it has none.

    An infinite end is None.
    """
    if method is None:
        return None
    try:
        intervals = fitted.confidence_intervals(level, method)
    except GeomxpError as error:
        warnings.warn(f"no intervals: {error}", GeomxpWarning, stacklevel=2)
        return None
    if not intervals:
        warnings.warn("no intervals: no parameter was estimated.", GeomxpWarning, stacklevel=2)
        return None
    ends = {
        name: [float(end) if isfinite(end) else None for end in pair]
        for name, pair in intervals.items()
    }
    return {"method": method, "level": level, "parameters": ends}


def interval_lines(fitted, intervals):
    """Return confidence intervals as lines of text that follow the text of a fit."""
    method = {"wald": "Wald", "profile": "profile likelihood"}[intervals["method"]]
    lines = ["\n", f"  {100 * intervals['level']:g} % confidence intervals, {method}"]
    names = titles(fitted.model, fitted.observations)
    width = max(18, *(len(names[name]) + 2 for name in intervals["parameters"]))
    for name, (lower, upper) in intervals["parameters"].items():
        top = "infinity" if upper is None else f"{upper:.6g}"
        lines.append(f"  {names[name]:<{width}}{lower:>14.6g}{top:>14}")
    return "\n".join(lines)


@command(
    ESTIMATE,
    *(*opt.TABLE_OPTIONS, *opt.MODEL_OPTIONS, "response"),
    *(*opt.TREND_OPTIONS, *opt.METHOD_OPTIONS),
)
def log_likelihood(given):
    r"""Evaluate the log-likelihood of a given model.

    In FP64, with a constant mean:
      geomxp log-likelihood meuse --variance 0.6 --range 220 --smoothness 0.5 \
        --nugget 0.06 --trend constant

    For counts, by Laplace's approximation:
      geomxp log-likelihood nc_sids --variance 0.2 --range 80 --smoothness 0.5 \
        --trend constant --response negative-binomial --parameter size=50

    In tiles of mixed formats, with solutions refined to FP64's accuracy:
      geomxp log-likelihood medium --variance 1 --range 0.08 --smoothness 0.5 \
        --accuracy 1e-6 --refine cg
    """
    model, method, trend = opt.model_of(given), opt.method_of(given), opt.trend_of(given, "zero")
    observations = opt.observations(given)
    method = opt.chosen(given, method, observations, model.tabulated, model.response)
    with Line("evaluating", shown=given.screen.progress):
        evaluation = evaluate(observations, model, method, trend=trend, reml=given.reml)
    given.screen.result(evaluation.to_dict, lambda: str(evaluation))


@command(
    ESTIMATE,
    *("fit_file", "table", "drop_missing", "decimal"),
    *("folds", "leave_one_out", "blocks", "in_time", "refit", "seed"),
    *(*opt.PLACEMENT_OPTIONS, "level", "output"),
    table={
        "help": "Held-out observations to predict and score, with the columns of the fit's table: "
        "a file or a data set. If not given, those of the fit are predicted from each other.",
        "default": None,
    },
    seed={"panel": opt.FOLDS, "help": "Seed of random folds."},
    on={
        "help": "cpu, gpu or gpu:N; several as gpu:0,gpu:1; a Dask cluster as tcp://host:8786. "
        "For --refit and for folds of Vecchia's approximation: cpu, or a cluster whose workers "
        "compute folds.",
    },
)
def validate(given):
    """Predict observations from each other, or a held-out table from the fit, and score it.

    Fit, then predict each observation from all others:
      geomxp fit meuse --fix smoothness=0.5 --output meuse.json
      geomxp validate meuse.json --leave-one-out --output errors.csv

    Predict the observations of a second table, which the fit does not know:
      geomxp fit jura --fix smoothness=0.5 --output jura.json
      geomxp validate jura.json jura_validation

    Use blocks of 500 m, for predictions far from the data:
      geomxp validate meuse.json --folds 5 --blocks 500

    Estimate the parameters again without each fold:
      geomxp validate meuse.json --folds 4 --refit
    """
    screen, on, level = given.screen, given.on, given.level
    excluded = {"--folds": given.folds, "--blocks": given.blocks, "--in-time": given.in_time}
    excluded |= {"--refit": given.refit or None}
    table = given.table
    if table is not None:
        excluded |= {"--leave-one-out": given.leave_one_out or None}
        named = [name for name, value in excluded.items() if value is not None]
        if named:
            raise InvalidInput(
                f"{' and '.join(named)} and a TABLE exclude each other: the fit's observations are "
                "predicted from each other, those of a TABLE from the fit's. Give only one."
            )
    else:
        for name in ("decimal", "drop_missing"):
            if vars(given)[name]:
                raise InvalidInput(f"--{name.replace('_', '-')} needs a TABLE: leave it out.")
    excluded = [name for name, value in excluded.items() if value is not None]
    if given.leave_one_out and excluded:
        raise InvalidInput(f"--leave-one-out excludes {' and '.join(excluded)}.")
    tables.check_writable(given.output, inputs=(given.fit_file, table))
    z_value(level)
    opt.decimal_of(given, table)
    fitted, _ = load(given.fit_file, **opt.where_of(given) | {"on": None})
    separate = given.refit or fitted.method.approximate or isinstance(fitted, HurdleFit)
    if table is not None or given.leave_one_out or not separate:
        # one factorization of all observations
        if on != "cpu":
            fitted = replace(fitted, method=replace(fitted.method, on=on))
        on = "cpu"
    if table is not None:
        file = opt.file_of(table)
        others = read_as_observed(fitted, file, given.decimal, given.drop_missing)
        validation = score_table(fitted, others, progress=screen.progress)
    elif given.leave_one_out:
        validation = leave_one_out(fitted, progress=screen.progress)
    else:
        folds = 10 if given.folds is None else given.folds
        validation = cross_validate(
            fitted,
            folds,
            blocks=given.blocks,
            in_time=given.in_time,
            refit=given.refit,
            seed=given.seed,
            on=on,
            progress=screen.progress,
        )
    # printed before files are written, so that a full disk does not lose the scores
    screen.result(
        lambda: validation.to_dict(level),
        lambda: validation.describe(level),
        table=lambda: validation.to_frame(level),
    )
    if given.output:
        tables.write_frame(validation.to_frame(level), given.output)
        screen.note(f"  predictions written to {given.output}")


@command(
    ESTIMATE,
    *opt.TABLE_OPTIONS,
    *("family", "smoothness", "nugget", "anisotropy", "axis_ranges", "nugget_covariance"),
    *("transforms", "responses", "trends", "formulas", "reml", "criterion"),
    *("method", "neighbours", "on", "output"),
    family={"value": "A,B,…", "help": "Covariance families: matern,spherical."},
    smoothness={
        "value": "A,B,…",
        "help": "Fixed values in Matérn models, or free to estimate it: 0.5,1.5,free.",
        "default": "0.5,1.5,free",
    },
    nugget={
        "value": "A,B,…",
        "help": "Fixed values, or free to estimate it: 0,free.",
        "default": "free",
    },
    anisotropy={
        "value": "NO,YES",
        "help": "no, yes or no,yes.",
        "default": "no",
        "known": ("no", "yes", "no,yes"),
    },
    axis_ranges={
        "value": "NO,YES",
        "help": "Estimate one range for each axis: no, yes or no,yes.",
        "default": "no",
        "known": ("no", "yes", "no,yes"),
    },
    nugget_covariance={
        "value": "NO,YES",
        "help": "Estimate nugget covariances of several variables: no, yes or no,yes.",
        "default": "no",
        "known": ("no", "yes", "no,yes"),
    },
)
def compare_models(given):
    r"""Fit every combination of some choices, and rank them by an information criterion.

    How smooth is the field, and is there a nugget?
      geomxp compare-models meuse --smoothness 0.5,1.5,free --nugget 0,free

    Which covariates explain the values?
      geomxp compare-models meuse --smoothness 0.5 \
        --formulas "1; sqrt_dist; sqrt_dist + poly(elev, 2)" --output models.csv

    Which transformation suits the values?
      geomxp compare-models meuse --value zinc --smoothness 0.5 \
        --transforms none,log,boxcox
    """
    screen = given.screen
    tables.check_writable(given.output, inputs=(given.table,))
    method = opt.method_of(given)
    formulas = tuple(part.strip() for part in (given.formulas or "").split(";") if part.strip())
    kinds = opt.words(given.trends or "")
    for kind in kinds:
        check_choice("--trends", kind, TRENDS, ' Write formulas as --formulas "A; B".')
    families = opt.words(given.family)
    for family in families:
        family_named("--family", family)
    transforms = opt.words(given.transforms)
    for transform in transforms:
        check_choice("--transforms", transform, ("none", *TRANSFORMS))
    responses = opt.words(given.responses)
    for response in responses:
        check_choice("--responses", response, (GAUSSIAN, *RESPONSES))
    observations = opt.observations(given, formulas or None)
    if not (kinds or formulas):
        kinds = ("covariates" if given.covariates else opt.usual_trend(given.table),)
    comparison = rank_models(
        observations,
        opt.chosen(given, method, observations),
        families=families,
        smoothness=opt.held_or_free("--smoothness", given.smoothness),
        nuggets=opt.held_or_free("--nugget", given.nugget),
        anisotropy=opt.yes_or_no("--anisotropy", given.anisotropy),
        axis_ranges=opt.yes_or_no("--axis-ranges", given.axis_ranges),
        nugget_covariance=opt.yes_or_no("--nugget-covariance", given.nugget_covariance),
        transforms=transforms,
        responses=responses,
        # a column may have the name of a kind of trend
        trends=(*kinds, *(f"~ {formula}" for formula in formulas)),
        reml=given.reml,
        criterion=given.criterion,
        progress=screen.progress,
    )
    # printed before files are written, so that a full disk does not lose the ranking
    screen.result(
        comparison.to_dict,
        lambda: str(comparison),
        lambda: display.ranking(comparison),
        comparison.to_frame,
    )
    if given.output:
        tables.write_frame(comparison.to_frame(), given.output)
        screen.note(f"table written to {given.output}")


@command(
    ESTIMATE,
    *("restricted", "full", "bootstrap", "seed", "checkpoint", "on"),
    checkpoint={
        "help": "Save the draws' statistics; the same command resumes from this file, also with a "
        "larger --bootstrap.",
    },
    on={
        "value": "PLACE",
        "help": "Where the draws are fitted: cpu (this process) or a Dask cluster, "
        "tcp://host:8786.",
        "known": ("cpu",),
    },
)
def likelihood_ratio(given):
    """Test a fit against one of a larger model by their likelihood ratio.

    Is there a nugget?
      geomxp fit meuse --fix smoothness=0.5 --output free.json
      geomxp fit meuse --fix smoothness=0.5 --fix nugget=0 --output none.json
      geomxp likelihood-ratio none.json free.json

    The same by a parametric bootstrap, whose p-value is accurate for few data too:
      geomxp likelihood-ratio none.json free.json --bootstrap 499 --checkpoint draws.json
    """
    screen = given.screen
    tables.check_writable(given.checkpoint, inputs=(given.restricted, given.full))
    test = likelihood_ratio_test(
        *(Fit.load(path) for path in (given.restricted, given.full)),
        **{name: vars(given)[name] for name in ("bootstrap", "seed", "on", "checkpoint")},
        progress=screen.progress,
    )
    screen.result(lambda: asdict(test), lambda: str(test))


@command(
    PREDICT,
    *("fit_file", "places", "decimal", "grid", "resolution", "bounds", "like", "mask"),
    *("block", "discretisation", "neighbours", "local_trend", "time", "variable"),
    "error_variance",
    *("crs", *opt.PLACEMENT_OPTIONS, "level", "of", "output"),
    crs={
        "panel": opt.GRID,
        "help": "Coordinate reference system of the fit's coordinates, if it has none, and of a "
        "grid of LOCATIONS whose own cannot be read.",
    },
    time={
        "panel": opt.KRIGING,
        "value": "TIME",
        "help": "Time of all new locations, for a space-time model: a number or a date; or the "
        "column of their times. If not given, that of each row, in the column that the "
        "observations have. For maps also a list: 0,1,2.",
        "known": None,
    },
    variable={
        "panel": opt.KRIGING,
        "value": "NAME",
        "help": "Variable to predict, for a fit of several; or several: zinc,lead. If not given, "
        "that of each row, in the column that the observations have, or all; a map shows one.",
        "known": None,
    },
    error_variance={
        "panel": opt.KRIGING,
        "value": "NUMBER|COLUMN",
        "help": "Known error variance of a new observation, of transformed values if the fit has "
        'a transformation: a number, a column of LOCATIONS, or a function: "I(zinc_se ** 2)".',
        "known": None,
    },
    bounds={
        "panel": opt.GRID,
        "value": "L,B,R,T",
        "help": "left,bottom,right,top; a left greater than the right crosses the date line. "
        "Those of the observations if not given.",
        "known": None,
    },
    neighbours={
        "panel": opt.KRIGING,
        "help": "Predict each location from this many nearest observations.",
    },
    output={
        "help": "CSV, Parquet, NPZ, GeoPackage, GeoJSON, FlatGeobuf, NetCDF or GeoTIFF file to "
        "write; - is standard output. Without it, CSV is printed, and a short table on a terminal."
    },
)
def predict(given):
    """Predict the field at new locations by kriging.

    Fit, then predict at the locations of a table:
      geomxp fit jura --output jura.json
      geomxp predict jura.json jura_validation --output predictions.csv

    Draw a map of averages over cells of 100 m (coordinates are in km):
      geomxp predict jura.json --resolution 0.1 --block cell --output map.nc

    Give intervals for new observations, each predicted from its 30 nearest:
      geomxp predict jura.json jura_validation --of observation --neighbours 30
    """
    places = given.places
    tables.check_writable(given.output, inputs=(given.fit_file, places, given.like, given.mask))
    z_value(given.level)
    check_choice("--of", given.of, opt.FIELD_OR_OBSERVATION)
    grid = (given.grid, given.resolution, given.like)
    wanted = any(value is not None for value in grid)
    if (places is None) != wanted or (places and any((*grid, given.bounds, given.mask))):
        raise InvalidInput("give either a table of LOCATIONS, or --grid, --resolution or --like.")
    if given.discretisation is not None and given.block is None:
        raise InvalidInput("--discretisation is for blocks: give --block.")
    fitted, origin = load(given.fit_file, **opt.where_of(given))
    fitted = in_system(fitted, given.crs)
    names = ("discretisation", "neighbours", "local_trend")
    options = {name: vars(given)[name] for name in names} | {"progress": given.screen.progress}
    opt.decimal_of(given, places)
    if given.error_variance is not None:
        if places is None or given.block:
            raise InvalidInput("--error-variance is for a table of LOCATIONS without --block.")
        options["error_variance"] = opt.number_or_text(given.error_variance)
    if given.time is not None:
        each = [opt.number_or_text(word) for word in opt.words(given.time)]
        if not each:
            raise InvalidInput("--time needs a number or a date, or a list of them.")
        if len(each) > 1 and (places is not None or fitted.observations.dimensions != 2):
            raise InvalidInput("a list of --time is for maps of the plane only: give one time.")
        if len(each) > 1 and given.output:
            check_holds_series(given.output)
        options["time"] = each if len(each) > 1 else each[0]
    if given.variable is not None:
        each = opt.words(given.variable)
        if not each:
            raise InvalidInput("--variable needs the name or the number of a variable.")
        options["variable"] = each if len(each) > 1 else each[0]
    if places is None and fitted.observations.dimensions == 2:
        _predict_map(fitted, given, options)
    else:
        _predict_at(fitted, given, options)
    # last, so that an error is the only line
    notice(_about_intervals(given))
    notice(origin)


def _about_intervals(given):
    """Return a sentence that says what the intervals of `predict` are of, by their names."""
    size = f"{100 * given.level:g} % intervals"
    if given.of == "observation":
        return (
            f"lower_of_observation, upper_of_observation are {size} of a new observation: compare "
            "a measurement with these."
        )
    if given.block is not None:
        return f"lower, upper are {size} of the noise-free field's averages over blocks."
    ends = ", ".join(kriging.ENDS_OF_OBSERVATION)
    return (
        f"lower, upper are {size} of the noise-free field; {ends} are those of a new observation: "
        "compare a measurement with these."
    )


def _predict_at(fitted, given, options):
    """Predict at the rows of a table, or on a grid of one or three dimensions.

    `options` are arguments of `geomxp.predict`.
    """
    import pandas as pd

    output, observations = given.output, fitted.observations
    if given.places is not None:
        data = tables.read_data(opt.file_of(given.places), opt.decimal_of(given, given.places))
        given.time = readers.without_units(given.time, spatial.units_of(data))
        if given.crs is not None and spatial.is_grid(data):
            data = spatial.with_mapping(data, given.crs)
        if given.time is not None and not hasattr(data, "columns"):
            options["time"] = opt.number_or_text(given.time)
        elif given.time is not None:
            options["time"], _ = _times_of(data, given)
            if observations.time is not None and given.time not in data.columns:
                # results stand beside the times that were asked for
                data = data.assign(**{observations.time_name: options.pop("time")})
    elif any((given.resolution, given.bounds, given.like, given.mask)):
        raise InvalidInput("maps need locations in the plane: use --grid for other dimensions.")
    else:
        names = list(observations.location_names)
        data = pd.DataFrame(grid_over(observations, given.grid), columns=names)
    geotiff = bool(output) and output.lower().endswith(rasters.GEOTIFF_ENDINGS)
    if geotiff:
        rasters.check_geotiff(output, data)
    kriging.check_output(data, output)
    polygons = given.block == "polygons"
    try:
        prediction = _kriging(fitted, data, given.block, options)
        frame = prediction.to_frame(given.level, given.of)
    except InvalidInput as error:
        raise InvalidInput(f"{given.places or 'grid'}: {error}") from None
    plain = pd.DataFrame(frame.drop(columns=frame.active_geometry_name)) if polygons else frame
    if output and polygons:
        vector = output.lower().endswith(tables.VECTOR_ENDINGS)
        tables.write_frame(frame if vector else plain, output)
    elif output:
        result = kriging.for_file(prediction, output, observations, given.level, given.of)
        if geotiff:
            rasters.write_dataset(result, output, observations.system)
        else:
            tables.write_frame(result, output)
    _note_below_zero(fitted, frame)
    records = lambda: kriging.records(prediction, fitted, given.level, given.of)  # noqa: E731
    first = "mean"
    if prediction.variable is not None and prediction.variable_name not in data:
        first = prediction.variable_name
    _show_predictions(spatial.tabulate(plain).columns, records, given, first)


def _kriging(fitted, data, block, options):
    """Return predictions at locations, over rectangles around them, or over polygons."""
    if block != "polygons":
        kriging.check_columns(data)
        sides = None if block is None else numbers("--block", block)
        return kriging.predict(fitted, data, block=sides, **options)
    if not spatial.is_geographic_frame(data):
        raise InvalidInput("--block polygons needs a file of polygons, such as a .gpkg.")
    return kriging.predict(fitted, block=data, **options)


def _predict_map(fitted, given, options):
    """Predict on a regular grid of the plane; `options` are arguments of `geomxp.predict`."""
    if given.output:
        rasters.check_libraries(given.output)
    if given.block not in (None, "cell"):
        raise InvalidInput(f"--block of a grid must be cell. Got {given.block!r}.")
    bounds = None if given.bounds is None else numbers("--bounds", given.bounds)
    grid = {"cells": given.grid, "resolution": given.resolution, "bounds": bounds}
    grid |= {"like": given.like, "mask": given.mask, "block": given.block is not None}
    raster = predict_raster(fitted, **grid, **options)
    # warnings of the frame come before the file is written
    frame = raster.to_frame(given.level, given.of)
    _note_below_zero(fitted, frame)
    if given.output:
        raster.save(given.output, given.level, given.of, fitted.observations.value_unit)
    _show_predictions(frame, partial(_records, frame), given)


def _records(frame):
    """Return the rows of a frame for JSON; dates are text."""
    dates = frame.select_dtypes(include=["datetime", "datetimetz"])
    texts = {name: dates[name].dt.strftime("%Y-%m-%dT%H:%M:%S%z") for name in dates}
    return frame.assign(**texts).to_dict("records")


def _note_below_zero(fitted, frame):
    """Suggest a transformation on standard error if intervals of positive values go below 0."""
    if isinstance(fitted, HurdleFit) or not len(frame):
        return
    sentence = below_zero(fitted, frame.filter(like="lower").to_numpy())
    if sentence:
        notice(f"{sentence}.", warn=False)


def _show_predictions(frame, records, given, first="mean"):
    """Print predictions as CSV; on a terminal with few columns of a table of locations.

    `first` is the first column of the results.
    """
    first, head, shown = list(frame.columns).index(first), "", frame
    if first > SHOWN_TABLE_COLUMNS:
        head = f"{first - SHOWN_TABLE_COLUMNS} more columns of the table are written with --output"
        shown = frame.iloc[:, [*range(SHOWN_TABLE_COLUMNS), *range(first, frame.shape[1])]]
    facts = {"n": len(frame), "level": given.level, "of": given.of}
    picture = lambda: display.frame(tables.typed(shown), head)  # noqa: E731
    _show(frame, facts, records, picture, f"{len(frame)} predictions", given)


def _show(frame, facts, records, picture, title, given):
    """Print a table of results as CSV, on a terminal as a picture, or the name of their file.

    `facts` stand beside the rows of the table, records(), in JSON.
    """
    if given.output and not given.as_json:
        given.screen.note(f"{title} written to {given.output}")
        return
    document = lambda: facts | {"rows": records()}  # noqa: E731
    given.screen.result(document, picture=picture, table=lambda: frame)


@command(
    PREDICT,
    *(*opt.MODEL_OPTIONS, "response", "fit", "of", "count", "layout", "at", "locations"),
    *("decimal", "metric"),
    *("time", "draws", "seed", *opt.PLACEMENT_OPTIONS, "output"),
    on={
        "help": "With --fit: cpu, gpu or gpu:N; several as gpu:0,gpu:1; a Dask cluster as "
        "tcp://host:8786.",
        "default": None,
    },
    time={
        "panel": opt.LOCATIONS,
        "value": "TIME|COLUMN",
        "help": "Times for a space-time model. With --at: a column of the table, or one number or "
        "date for all locations. With --n: a number, or a list (0,1,2) at each of which all "
        "locations are drawn.",
        "known": None,
    },
    of={
        "panel": opt.MODEL,
        "help": "field or observation; observations of a model, the field of a fit.",
        "default": None,
    },
    locations={"panel": opt.LOCATIONS, "help": "Columns of the coordinates."},
    metric={"panel": opt.LOCATIONS},
    seed={"panel": opt.OUTPUT},
)
def simulate(given):
    r"""Draw Gaussian fields with the nugget as noise, or the field of a fit given its data.

    Draw a field in the unit square:
      geomxp simulate --n 1600 --variance 1 --range 0.1 --smoothness 0.5 \
        --output field.csv

    Draw twice from a model at the locations of a data set:
      geomxp simulate --at meuse --variance 0.6 --range 220 --smoothness 0.5 \
        --nugget 0.06 --draws 2

    Draw the field of a fit, given its observations:
      geomxp fit jura --output jura.json
      geomxp simulate --fit jura.json --at jura_validation --draws 100 \
        --output draws.csv

    Draw at 100 locations and three times:
      geomxp simulate --n 100 --time 0,1,2 --family separable --variance 1 --range 0.1 \
        --smoothness 0.5 --parameter time_range=2 --parameter time_smoothness=0.5
    """
    import pandas as pd

    draws, output = given.draws, given.output
    tables.check_writable(output, inputs=(given.fit, given.at))
    if given.of is not None:
        check_choice("--of", given.of, opt.FIELD_OR_OBSERVATION)
    draw = _draws_of_model if given.fit is None else _draws_of_fit
    locations, names, times, fields = draw(given)
    columns = ["z"] if draws == 1 else [f"z{k + 1}" for k in range(draws)]
    if set(times) & set(names):
        name = next(iter(times))
        raise InvalidInput(f"{name!r} names a coordinate and the times: rename one of them.")
    taken = [name for name in columns if name in (*names, *times)]
    if taken:
        raise InvalidInput(
            f"column {taken[0]!r} of the locations is the name of a field: rename it."
        )
    frame = pd.DataFrame(locations, columns=list(names)).assign(**times)
    frame = pd.concat((frame, pd.DataFrame(fields.T, columns=columns)), axis=1)
    if output:
        tables.write_frame(frame, output)
    title = f"{draws} field(s) at {len(frame)} locations"
    records, picture = partial(_records, frame), partial(display.frame, frame)
    _show(frame, {"n": len(frame), "draws": draws}, records, picture, title, given)


def _draws_of_model(given):
    """Return locations, the names of their coordinates, times by name, and a model's fields."""
    model = opt.model_of(given, ", or --fit")
    if (given.count is None) == (given.at is None):
        raise InvalidInput("give either --n or --at.")
    for name, value in opt.where_of(given).items():
        if value is not None:
            option = f"--{name.replace('_', '-')}"
            raise InvalidInput(f"{option} is for draws from a fit: give --fit, or leave it out.")
    known = datasets.DATASETS.get(given.at)
    names = opt.words(given.locations or "") or (known.locations if known else ("x", "y"))
    if len(set(names)) != len(names) or (given.at is None and len(names) != 2):
        count = "two different names" if given.at is None else "different names"
        raise InvalidInput(f"--locations needs {count}. Got {given.locations!r}.")
    opt.decimal_of(given, given.at)
    if "variable" in model.uses:
        raise InvalidInput(
            f"geomxp simulate draws models of one variable. Got family {model.family}: use --fit, "
            "or in Python gx.simulate(model, locations, variable=...)."
        )
    timed = "time" in model.uses
    if timed != (given.time is not None):
        need = f"{with_article(model.family)} model needs times: give --time."
        raise InvalidInput(
            need if timed else f"the {model.family} family does not use times: omit --time."
        )
    time, name = None, "time"
    if given.at is None:
        each = numbers("--time", given.time) if timed else [0.0]
        if not each:
            raise InvalidInput("--time needs numbers: 0,1,2.")
        check_size(given.count * len(each), given.draws)
        locations = lay_out(given.count, given.layout, given.seed)
        if timed:
            locations, time = np.tile(locations, (len(each), 1)), np.repeat(each, len(locations))
    else:
        frame = tables.read_frame(opt.file_of(given.at), opt.decimal_of(given, given.at))
        names, given.time = readers.without_units((names, given.time), spatial.units_of(frame))
        if timed:
            try:
                time, name = _times_of(frame, given)
            except InvalidInput as error:
                raise InvalidInput(f"{given.at}: {error}") from None
        try:
            if not (given.locations or known):
                names = found_locations(frame.columns)
            names = longitude_first(names)
            locations = tables.number_columns(frame, names)
        except InvalidInput as error:
            raise InvalidInput(f"{given.at}: {error}") from None
    metric = given.metric or ("chordal" if spatial.names_say_degrees(names) else "euclidean")
    since, axis = (None, None) if time is None else as_numbers(time)
    if axis is not None and axis.origin:
        notice(f"times are in {axis}; --parameter time_range is in {axis.unit}s.")
    fields = draw_fields(model, locations, metric=metric, time=since, **_drawing_options(given))
    return locations, names, {} if time is None else {name: time}, fields


def _drawing_options(given):
    """Return the options of `simulate` that draws of a model and of a fit have in common."""
    return {
        "draws": given.draws,
        "seed": given.seed,
        "of": given.of,
        "progress": given.screen.progress,
    }


def _times_of(frame, given, name="time"):
    """Return the times of the rows of a table, and the name of their column, or this one."""
    if given.time in frame.columns:
        return frame[given.time].to_numpy(), given.time
    time = opt.number_or_text(given.time)
    if isinstance(time, str) and not is_date(time):
        raise InvalidInput(
            f"no column {given.time!r}.{did_you_mean(given.time, frame.columns)} "
            "--time is a column, a number or a date."
        )
    return np.full(len(frame), time), name


def _draws_of_fit(given):
    """Return locations, the names of their coordinates, times by name, and a fit's fields."""
    excluded = {f"--{name}": vars(given)[name] for name in opt.MODEL_OPTIONS[1:]}
    excluded |= {"--n": given.count, "--locations": given.locations, "--metric": given.metric}
    excluded = [name for name, value in excluded.items() if value is not None]
    if excluded:
        raise InvalidInput(f"--fit gives the model and its coordinates: leave out {excluded[0]}.")
    if given.at is None:
        raise InvalidInput("--fit needs locations: give --at.")
    fitted, _ = load(given.fit, **opt.where_of(given))
    decimal = opt.decimal_of(given, given.at)
    data = tables.read_data(opt.file_of(given.at), decimal)
    given.time = readers.without_units(given.time, spatial.units_of(data))
    try:
        time, name = None, fitted.observations.time_name
        if given.time is not None and hasattr(data, "columns"):
            time, name = _times_of(data, given, name)
        elif given.time is not None:
            time = opt.number_or_text(given.time)
        hurdle = isinstance(fitted, HurdleFit)
        one = fitted.presence if hurdle else fitted
        inputs, covariates, table = targets_of(one, data, time=time)
        # each model of a hurdle has covariates of its own
        where = {"time": time} if hurdle else {"covariates": covariates}
        places = data if hurdle else inputs
        fields = draw_fields(fitted, places, **where, **_drawing_options(given))
    except InvalidInput as error:
        raise InvalidInput(f"{given.at}: {error}") from None
    times, seen = {}, fitted.observations
    if inputs.variable is not None and seen.variable is not None:
        labels = seen.variable_names or range(len(seen.variable_labels))
        times[seen.variable_name] = np.array(labels)[inputs.variable]
    if inputs.time is not None:
        # as they were given, which may be dates
        known = table.columns[name].to_numpy() if time is None else time
        times[name] = known if np.ndim(known) else np.full(len(inputs), known)
    return inputs.locations, fitted.observations.location_names, times, fields


@command(
    STUDY,
    *(*opt.MODEL_OPTIONS, "table", "trend", "n", "seed"),
    *opt.TABLE_OPTIONS[1:],
    *("accuracies", "kls", "low_rank", "layers", "tile", "neighbours", "on", "output", "figure"),
    low_rank={"help": "With --kls: store off-diagonal tiles as low-rank products."},
    table={"help": "Table of locations, or a data set's name.", "default": None},
    seed={"panel": opt.DATA, "help": "Seed of random locations."},
    neighbours={"value": "N,N,…", "help": "Neighbours of Vecchia's approximation: 10,30,60."},
)
def compare(given):
    r"""Measure approximations of a model: KL divergence from FP64, bytes and seconds.

    Tiles of mixed formats at two accuracies, for random locations:
      geomxp compare --n 1000 --variance 1 --range 0.08 --smoothness 0.5 \
        --accuracies 1e-5,1e-7

    A model of a data set, with a figure:
      geomxp compare meuse --variance 0.6 --range 220 --smoothness 0.5 \
        --nugget 0.06 --tile 32 --figure divergences.png

    Numbers of neighbours of Vecchia's approximation:
      geomxp compare --n 1000 --variance 1 --range 0.08 --smoothness 0.5 \
        --neighbours 10,30,60
    """
    screen, output, figure, table = given.screen, given.output, given.figure, given.table
    tables.check_writable(output, figure, inputs=(table,))
    model, approximations = opt.model_of(given), opt.approximations(given)
    if (given.n is None) == (table is None):
        raise InvalidInput("give either a TABLE or --n.")
    of_table = {name: one.flag for name, one in READER_OPTIONS.items() if name != "metric"}
    for name, flag in (of_table | {"trend": "--trend"}).items() if table is None else ():
        if vars(given).get(name):
            raise InvalidInput(f"{flag} needs a TABLE.")
    if figure and not figure.lower().endswith((".png", ".pdf", ".svg")):
        raise InvalidInput(f"--figure must end with .png, .pdf or .svg. Got {figure!r}.")
    kinds = {frozenset(label) for label, _ in approximations}
    if figure and len(kinds) + bool(given.layers or given.neighbours) > 1:
        raise InvalidInput("--figure draws either --accuracies or --kls: give one of them.")
    methods = [method for _, method in approximations]
    if table is None:
        check_reference(given.n, methods)
        locations = lay_out(given.n, "uniform", given.seed)
        options = {"metric": given.metric or "euclidean"}
    else:
        locations, options = opt.observations(given), {"trend": opt.trend_of(given, "zero")}
    result = measure(model, locations, methods, **options, progress=screen.progress)
    rows = [label | row.to_dict() for (label, _), row in zip(approximations, result, strict=True)]
    reference = result[0].reference | {"seconds": result[0].reference_seconds}
    frame = _flat(rows)
    if output:
        tables.write_frame(frame, output)
    if figure:
        divergences(frame, len(locations)).figure.savefig(figure, dpi=150)
    head = (
        f"{len(locations):,} locations, FP64: log-determinant "
        f"{reference['log_determinant']:.10g}, {reference['seconds']:.2f} s"
    )
    screen.result(
        lambda: {"n": len(locations), "reference": reference, "rows": rows},
        lambda: f"{head}\n\n{frame.to_string(index=False, float_format=lambda x: f'{x:.3g}')}",
        lambda: display.frame(_costs(rows), head, formats=COST_FORMATS),
        lambda: frame,
    )
    for what, path in (("table", output), ("figure", figure)):
        if path:
            screen.note(f"{what} written to {path}")
    _caution_accuracy(rows, given.words)


LARGE_DIVERGENCE_NATS = 1e-2
"""Divergence in nats from which `compare` advises to choose formats by divergence."""


def _caution_accuracy(rows, words):
    """Warn if formats chosen for an accuracy have a large divergence."""
    large = [
        row for row in rows if row.get("accuracy") is not None and row["kl"] > LARGE_DIVERGENCE_NATS
    ]
    if not large:
        return
    for option in ("--accuracies", "--layers", "--kls", "--output", "--figure"):
        words = without(option, words)
    command = shlex.join(["geomxp", *adding(["--kls", "1e-3"], words)])
    worst = max(large, key=lambda row: row["kl"])
    warnings.warn(
        f"the divergence at ε = {worst['accuracy']:g} is {worst['kl']:.2g} nats: ε bounds the "
        f"error of the matrix, not the divergence. Choose formats by their divergence: {command}",
        GeomxpWarning,
        stacklevel=1,
    )


def _flat(rows):
    """Return rows of approximations as a frame with one column for each format."""
    import pandas as pd

    flat = [
        {k: v for k, v in row.items() if k != "formats"}
        | {f"tiles_{name}": count for name, count in row["formats"].items()}
        for row in rows
    ]
    frame = pd.DataFrame(flat).dropna(axis=1, how="all")
    tiles = [name for name in frame.columns if name.startswith("tiles_")]
    return frame.assign(**{name: frame[name].fillna(0).astype(int) for name in tiles})


def _costs(rows):
    """Return the columns of approximations that fit on a terminal."""
    import pandas as pd

    kinds = {"accuracy": "ε {:g}", "kl_target": "KL target {:g}", "layers": "{}"}
    kinds["neighbours"] = "neighbours {:g}"
    result = []
    for row in rows:
        kind = next((name for name in kinds if row.get(name) is not None), "accuracy")
        tiles = " ".join(f"{count} {name}" for name, count in row["formats"].items())
        result.append(
            {
                "approximation": kinds[kind].format(row.get(kind)),
                "tiles": tiles,
                "memory": human_bytes(row["bytes"]),
                "KL": row["kl"],
                "promoted": row["promotions"],
                "seconds": row["seconds"],
                "× FP64": row["speedup"],
            }
        )
    return pd.DataFrame(result)


@command(
    INSPECT,
    *("what", "n", "smoothness", "tune", "on"),
    n={"panel": opt.MODEL, "help": "Number of locations, or order of the matrices."},
    smoothness={"help": "ν of matern, likelihood and cholesky; 0.8 if not given."},
    on={"help": "cpu, gpu or gpu:N; matern runs on the CPU only."},
)
def bench(given):
    """Time geomxp and named baselines in the same run, on one core or one GPU.

    Peak rates of this machine, on one core and on all cores:
      geomxp bench ceilings

    A log-likelihood beside LAPACK's factorization of the same matrix:
      geomxp bench likelihood --n 1000

    Mixed formats beside FP64:
      geomxp bench cholesky --n 1000

    Small matrices in batches; --tune searches for the fastest variants:
      geomxp bench batched --n 8
    """
    from ..benchmarks.bench import as_text

    what, on = given.what, given.on
    check_choice("WHAT", what, opt.BENCHMARKS)
    if what != "ceilings":
        os.environ["OMP_NUM_THREADS"] = "1"
    if given.tune and what != "batched":
        raise InvalidInput(f"--tune is for `bench batched`. Got bench {what}.")
    if on != "cpu" and what == "matern":
        raise InvalidInput(f"`bench matern` runs on the CPU: leave out --on. Got --on {on}.")
    if given.smoothness is not None and what in ("ceilings", "nested", "batched"):
        raise InvalidInput(f"`bench {what}` has no covariances: leave out --smoothness.")
    smoothness = 0.8 if given.smoothness is None else given.smoothness
    with Line("timing", shown=given.screen.progress) as line:
        document = _times(what, given.n, smoothness, given.tune, on, line)
    given.screen.result(
        lambda: document,
        lambda: "\n\n".join(as_text(rows) for rows in document.values()),
        lambda: display.tables(document.values()),
    )


def _times(what, n, smoothness, tune, on, line):
    """Return the rows of a benchmark's tables by name."""
    from ..benchmarks import batched
    from ..benchmarks import bench as benchmarks

    if n is not None and what in benchmarks.FP64_MATRICES_HELD:
        benchmarks.check_size(what, n, on)
    if what == "matern":
        return {
            "rates": benchmarks.matern_rates(n or 2048, smoothness, line=line),
            "table": benchmarks.table_times(smoothness),
            "errors": benchmarks.matern_errors(line=line),
        }
    run = {
        "ceilings": partial(benchmarks.ceilings, n or 2048),
        "batched": partial(batched.batched_rates, n, tune),
        "nested": partial(benchmarks.nested_rates, n or 4096),
        "likelihood": partial(benchmarks.likelihood_rates, n or 4000, smoothness),
        "cholesky": partial(benchmarks.cholesky_rates, n or 4096, smoothness),
    }
    return {what: run[what](on=on, line=line)}


@command(INSPECT)
def info(given):
    """List the devices, libraries and data sets that can be used here, and what is missing.

    As a table:
      geomxp info

    As JSON, for scripts:
      geomxp info --json
    """
    from ..benchmarks.inventory import as_text, inventory

    document = inventory()
    given.screen.result(lambda: document, lambda: as_text(document))
