"""Options of the command line: one table, how commands choose from it, and what values mean.

A command is registered with `command(group, *names)`. It receives one namespace, `given`, that
holds the value of each of its options by name, `given.screen` and `given.words`.
"""

import json
import shlex
import sys
import warnings
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial, wraps
from glob import escape, glob
from inspect import Parameter, Signature
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import typer

from ..covariance import base
from ..covariance.anisotropy import NAMES as NAMES_OF_MAPS
from ..covariance.parameter import NOISE
from ..covariance.responses import GAUSSIAN, RESPONSES, response_of
from ..covariance.transformation import TRANSFORMS
from ..data import datasets, spatial
from ..data import tables as data_tables
from ..data.names import joined
from ..data.names import split as words
from ..data.observations import read_table
from ..data.options import READER_OPTIONS, check_choice, either, number, pairs
from ..data.readers import TEXT_ENDINGS, layout
from ..data.summaries import few
from ..errors import GeomxpWarning, InvalidInput, did_you_mean, with_article
from ..estimation.options import FAMILY_PARAMETERS, FIT_OPTIONS
from ..estimation.parameters import template
from ..likelihood.automatic import (
    AUTO,
    METHOD_FLAGS,
    MOST_DENSE_LOCATIONS,
    automatic,
    choice_in_words,
    response_choice_in_words,
)
from ..likelihood.exact import WHOLE, Exact
from ..likelihood.trend import TRENDS
from ..likelihood.vecchia import Vecchia
from ..linalg import precision
from ..prediction.validation import FOLDS_IN_TIME
from ..reporting.findings import REPORT_LEVELS
from ..runtime.devices import is_cluster
from ..runtime.progress import notice, noticing
from . import display

DATA, MODEL, SEARCH, METHOD, MACHINE = "Data", "Model", "Search", "Method", "Machine"
GRID, KRIGING, FOLDS, LOCATIONS, OUTPUT = "Grid", "Kriging", "Folds", "Locations", "Output"
"""Panels of the help."""

VALUE_TYPES = {
    "NUMBER": float,
    "N": int,
    "": bool,
    "NAME=VALUE": list[str],
    "NAME=LOW:HIGH": list[str],
}
"""Types of values by their placeholder in the help; all others are text."""

METHOD_CHOICES = (AUTO, "exact", "vecchia")
FIELD_OR_OBSERVATION = ("field", "observation")
INTERVALS = ("wald", "profile")
BENCHMARKS = ("ceilings", "matern", "likelihood", "cholesky", "nested", "batched")
DEVICES = ("cpu", "gpu", "gpu:0")


# Shell completion: proposals for a word that is being typed.


def among(known):
    """Return a completer that proposes those known words that begin with what is typed."""

    def proposals(incomplete: str):
        return [word for word in known if word.startswith(incomplete)]

    return proposals


def tables(incomplete: str):
    """Propose data sets with their descriptions, and files that may hold a table."""
    named = [
        (name, entry.about)
        for name, entry in datasets.DATASETS.items()
        if name.startswith(incomplete)
    ]
    return named + _files(incomplete, data_tables.READABLE_ENDINGS)


def fits(incomplete: str):
    """Propose files that may hold a fit."""
    return _files(incomplete, (".json",))


def columns(ctx: typer.Context, incomplete: str):
    """Propose columns of the table on the command line; after a comma, the next column."""
    before, comma, last = incomplete.rpartition(",")
    taken = before.split(",")
    # while an option still lacks its value, click has not assigned arguments to names
    table = ctx.params.get("table") or ctx.params.get("at") or next(iter(ctx.args), None)
    return [
        f"{before}{comma}{joined((name,))}"
        for name in _columns_of(table)
        if name.startswith(last) and name not in taken
    ]


def _files(incomplete, endings):
    """Return folders, and files with these endings, whose path begins with what is typed."""
    paths = sorted(glob(escape(incomplete) + "*"))
    proposals = [f"{path}/" if Path(path).is_dir() else path for path in paths]
    return [path for path in proposals if path.endswith("/") or path.lower().endswith(endings)]


def _columns_of(table):
    """Return the columns of a data set or a file; empty where reading them would take long."""
    if table is None:
        return []
    file = datasets.path(table) if table in datasets.DATASETS else Path(table)
    try:
        if file.suffix.lower() == ".parquet":
            from pyarrow.parquet import read_schema

            return read_schema(file).names
        if file.suffix.lower() in TEXT_ENDINGS:
            return data_tables.column_names(file, layout(file))
    except (OSError, UnicodeError, ValueError, InvalidInput):
        # a completing shell cannot show an error
        return []
    return []


# The table of options.


@dataclass(frozen=True)
class Option:
    """An option or argument of commands."""

    panel: str | None  # panel of the help; None for an argument
    value: str  # placeholder of the value in the help, which has its type in `VALUE_TYPES`
    help: str
    default: object = None  # Ellipsis if the option must be given
    known: object = None  # words that a shell proposes, or the function that finds them
    least: int | None = None  # smallest whole number that is accepted
    name: str | None = None  # name on the command line, where it is not that of the table

    @classmethod
    def of(cls, option, panel, **changes):
        """Return an option of the library as one of commands."""
        fields = {
            "default": None if option.default == () else option.default,
            "known": columns if option.kind.column else option.kind.known or None,
            "least": option.least,
            "name": option.flag,
        }
        return cls(option.panel or panel, option.value, option.help, **fields | changes)

    def parameter(self, key):
        """Return the option as a parameter of a function, as typer reads it."""
        kind = VALUE_TYPES.get(self.value, str)
        # --yes/--no may also be neither
        pair = "/" in (self.name or "")
        default = False if kind is bool and not pair else self.default
        more = {"help": self.help, "metavar": self.value}
        if self.known is not None:
            more["autocompletion"] = self.known if callable(self.known) else among(self.known)
        if self.least is not None:
            more["min"] = self.least
        if self.panel is None:
            info = typer.Argument(**more)
        else:
            name = self.name or f"--{key.replace('_', '-')}"
            info = typer.Option(name, rich_help_panel=self.panel, **more)
        kind = Annotated[kind if default is not None else kind | None, info]
        default = Parameter.empty if default is ... else default
        return Parameter(key, Parameter.KEYWORD_ONLY, default=default, annotation=kind)


TABLE_FILE = (
    "File of columns (CSV, Parquet, …), points (GeoPackage, GeoJSON, …) or cells (NetCDF, "
    "GeoTIFF, …), or the name of a data set (such as meuse; `geomxp info` lists them)."
)

OPTIONS = {
    "table": Option(None, "TABLE", TABLE_FILE, ..., tables),
    "fit_file": Option(None, "FIT", "Fit, as written by `geomxp fit --output`.", ..., fits),
    "restricted": Option(None, "RESTRICTED", "Fit of the smaller model.", ..., fits),
    "full": Option(None, "FULL", "Fit of the larger model to the same table.", ..., fits),
    "places": Option(None, "LOCATIONS", "Table of locations, or a data set's name.", None, tables),
    "what": Option(None, "WHAT", f"{either(BENCHMARKS)}.", ..., BENCHMARKS),
    **{name: Option.of(one, DATA) for name, one in READER_OPTIONS.items()},
    **{name: Option.of(one, SEARCH) for name, one in FIT_OPTIONS.items()},
    # the usual trend is that of the data set
    "trend": Option.of(FIT_OPTIONS["trend"], MODEL, default=None),
    "family": Option.of(FIT_OPTIONS["family"], MODEL, default="matern"),
    "n": Option(DATA, "N", "Number of random locations, without a table.", least=1),
    "parameter": Option(
        MODEL,
        "NAME=VALUE",
        "Another parameter of the family, such as power=1.5; repeatable.",
        # the first four have options of their own
        known=FAMILY_PARAMETERS[4:],
    ),
    "variance": Option(MODEL, "NUMBER", "σ², in squared units of the values."),
    "range": Option(MODEL, "NUMBER", "a, in the unit of the locations."),
    "smoothness": Option(MODEL, "NUMBER", "ν; 0.5 is the exponential model."),
    "nugget": Option(MODEL, "NUMBER", "τ², a variance; 0 if not given."),
    "fit": Option(
        MODEL,
        "FILE",
        "Fit, as written by `geomxp fit --output`: draw given its observations, --at locations.",
        None,
        fits,
    ),
    "of": Option(
        OUTPUT,
        "NAME",
        "field: intervals of the noise-free field, with those of a new observation in columns of "
        "their own. observation: only those of a new observation.",
        "field",
        FIELD_OR_OBSERVATION,
    ),
    "transforms": Option(
        MODEL, "A,B,…", "Transformations of the values: none,log,boxcox.", "none", TRANSFORMS
    ),
    "responses": Option(
        MODEL,
        "A,B,…",
        "Distributions of the values to compare: poisson,negative-binomial.",
        GAUSSIAN,
        (GAUSSIAN, *RESPONSES),
    ),
    "trends": Option(MODEL, "A,B,…", "Kinds of trend: constant,linear.", None, TRENDS),
    "formulas": Option(MODEL, "A; B; …", 'Trends by formula: "elev; elev + poly(x, 2)".'),
    "criterion": Option(MODEL, "NAME", "aic, aicc or bic.", "aic", ("aic", "aicc", "bic")),
    "bootstrap": Option(
        SEARCH,
        "N",
        "Number of data sets simulated from the smaller model, such as 499; both models are "
        "fitted to each. 0: the asymptotic distribution.",
        0,
        least=0,
    ),
    "method": Option(
        METHOD,
        "NAME",
        "exact, vecchia, or auto: exact up to 6,000 locations if the matrix fits the memory, "
        "otherwise vecchia; with an option of only one of them, that one.",
        AUTO,
        METHOD_CHOICES,
    ),
    "neighbours": Option(METHOD, "N", "Neighbours of Vecchia's approximation: 30 if not given."),
    "accuracy": Option(
        METHOD, "NUMBER", "ε: choose formats of tiles for this relative backward error."
    ),
    "kl": Option(METHOD, "NUMBER", "Choose formats of tiles for this KL divergence from FP64."),
    "low_rank": Option(METHOD, "", "With --kl: store off-diagonal tiles as low-rank products."),
    "layers": Option(
        METHOD, "FORMAT,…", "Formats from the largest off-diagonal block inwards: fp16,fp32,fp64."
    ),
    "accuracies": Option(METHOD, "ε,ε,…", "Accuracies of tiles: 1e-5,1e-6,1e-7,1e-8."),
    "kls": Option(METHOD, "KL,KL,…", "Targets of the KL divergence: 1e-3."),
    "tile": Option(METHOD, "N|whole", "Rows of a tile; whole: halve the matrix instead."),
    "refine": Option(
        METHOD,
        "NAME",
        "ir, cg or gmres: refine solutions with a mixed factor to FP64's accuracy; or none.",
        None,
        ("none", "ir", "cg", "gmres"),
    ),
    "fallback": Option(
        METHOD, "", "If --refine does not converge, use finer formats and finally FP64."
    ),
    "keep_formats": Option(
        METHOD,
        "",
        "Keep the formats asked for, even if they miss the target of --kl or shift estimates by "
        "more than 0.01 standard errors.",
    ),
    "tune": Option(METHOD, "", "batched: find the fastest variants first, and save them."),
    "on": Option(
        MACHINE,
        "DEVICE",
        "cpu, gpu or gpu:N; several as gpu:0,gpu:1; a Dask cluster as tcp://host:8786.",
        "cpu",
        DEVICES,
    ),
    "memory": Option(
        MACHINE, "SIZE", "Limit of RAM, such as 4GB; tiles beyond it are kept on disk."
    ),
    "device_memory": Option(
        MACHINE,
        "SIZE",
        "Limit of each device's memory, such as 8GB; tiles beyond it are kept in pinned RAM.",
    ),
    "scratch": Option(
        MACHINE,
        "FOLDER",
        "Folder for the tiles of --memory; an interrupted run resumes from it, unless the tiles "
        "are of low rank.",
    ),
    "grid": Option(GRID, "N", "Number of cells along the longer side.", least=2),
    "resolution": Option(GRID, "NUMBER", "Side of a cell."),
    "like": Option(GRID, "FILE", "Use the cells of this raster: GeoTIFF, NetCDF, ESRI ASCII grid."),
    "mask": Option(GRID, "FILE", "Raster file: predict only where its value is not 0."),
    "block": Option(
        KRIGING,
        "SIDES",
        "Predict averages: sides 50,20 (around each location), cell (of a grid) or polygons.",
        None,
        ("cell", "polygons"),
    ),
    "discretisation": Option(
        KRIGING,
        "N",
        "Average a block over this many points along its (longer) side; an integral if not given.",
        least=1,
    ),
    "local_trend": Option(KRIGING, "", "Estimate the trend from the neighbours of each location."),
    "folds": Option(FOLDS, "N", "Number of folds: 10 if not given."),
    "leave_one_out": Option(FOLDS, "", "Leave out one observation at a time."),
    "in_time": Option(
        FOLDS,
        "WHICH",
        "blocks or forecast: folds of consecutive times, each predicted from all others, or from "
        "all earlier ones.",
        None,
        FOLDS_IN_TIME,
    ),
    "blocks": Option(
        FOLDS, "NUMBER", "Make folds of square blocks of this side, in the unit of the range."
    ),
    "refit": Option(FOLDS, "", "Estimate the parameters again without each fold."),
    "count": Option(LOCATIONS, "N", "Number of locations to lay out.", least=1, name="--n"),
    "layout": Option(
        LOCATIONS,
        "NAME",
        "grid, jittered or uniform, in the unit square.",
        "uniform",
        ("grid", "jittered", "uniform"),
    ),
    "at": Option(LOCATIONS, "TABLE", "Table of locations, or a data set's name.", None, tables),
    "draws": Option(OUTPUT, "N", "Number of fields.", 1, least=1),
    "intervals": Option(
        OUTPUT, "NAME", "Confidence intervals: wald, or profile (likelihood).", None, INTERVALS
    ),
    "level": Option(OUTPUT, "NUMBER", "Probability of the intervals.", 0.95),
    "output": Option(OUTPUT, "FILE", "CSV, Parquet or NPZ file to write; - is standard output."),
    "embed": Option(
        OUTPUT,
        "",
        "Write the observations into --output too; if not given, if they take at most 200 kB.",
        name="--embed/--no-embed",
    ),
    "report": Option(OUTPUT, "FILE", "HTML report to write."),
    "report_places": Option(
        OUTPUT,
        "TABLE",
        "Regular grid for the report's maps, with the trend's covariates, and times if any.",
        None,
        tables,
        name="--places",
    ),
    "report_level": Option(
        OUTPUT,
        "NAME",
        "quick or full: a quick report has no maps of predictions, no profiles and no contours.",
        "full",
        REPORT_LEVELS,
    ),
    "figure": Option(OUTPUT, "FILE", "PNG, PDF or SVG file to write."),
    "as_json": Option(OUTPUT, "", "Print one JSON object and nothing else.", name="--json"),
    "quiet": Option(OUTPUT, "", "Print only the result: no progress, notes or warnings."),
}

TABLE_OPTIONS = ("table", *(name for name in READER_OPTIONS if name != "formula"))
TREND_OPTIONS = ("trend", "formula", "reml")
MODEL_OPTIONS = ("family", "variance", "range", "smoothness", "nugget", "parameter")
SEARCH_OPTIONS = tuple(name for name in FIT_OPTIONS if name not in TREND_OPTIONS)
FORMAT_OPTIONS = ("accuracy", "kl", "low_rank", "layers", "tile", "refine", "fallback")
PLACEMENT_OPTIONS = ("on", "memory", "device_memory", "scratch")
METHOD_OPTIONS = ("method", "neighbours", *FORMAT_OPTIONS, *PLACEMENT_OPTIONS)
EXACT_OPTIONS = (*FORMAT_OPTIONS, "keep_formats", *PLACEMENT_OPTIONS[1:])
"""Options that several commands share; those of `PLACEMENT_OPTIONS` say where the method of a saved
fit computes."""

# Results on standard output: JSON, plain text for pipes, and tables on a terminal.


@dataclass(frozen=True)
class Screen:
    """Print results and notes as the options --json, --quiet and `--output -` ask.

    The plain text of a result is `str(result)`, the same on every machine.
    """

    as_json: bool = False
    quiet: bool = False
    as_csv: bool = False

    def __post_init__(self):
        if self.as_json and self.as_csv:
            raise InvalidInput("give only one of --json and --output -: both print the result.")
        if self.quiet:
            # `main` restores the filters
            warnings.simplefilter("ignore", GeomxpWarning)

    @property
    def progress(self):
        """Whether progress may be shown on the terminal."""
        return not (self.as_json or self.quiet)

    def result(self, document, text=None, picture=None, table=None):
        """Print document() as JSON or text(); on a terminal picture(), or the text in colours.

        The frame table() is printed as CSV with `--output -`, and where a result without text does
        not go to a terminal.
        """
        terminal = sys.stdout is not None and sys.stdout.isatty()
        if self.as_json:
            print(json.dumps(document(), allow_nan=False), flush=True)
        elif self.as_csv or (text is None and not terminal):
            table().to_csv(sys.stdout, index=False)
        elif terminal:
            from rich.console import Console

            drawn = picture() if picture else display.styled(text())
            Console(file=sys.stdout, highlight=False).print(drawn)
        else:
            print(text(), flush=True)

    def note(self, text):
        """Print additional information, such as the name of a file that was written."""
        if self.progress:
            print(text, file=sys.stderr if self.as_csv else sys.stdout, flush=True)


STANDARD_OUTPUT = "-"
"""Value of --output that writes the table to standard output."""

COMMANDS = {}
"""Commands by their group in the help."""


def command(group, *names, **changes):
    """Register a function as a command with these options and --json and --quiet.

    `group` is its heading in the help; `changes` holds, by the option's name, the fields of
    `Option` that are different for this command.
    """
    keys = (*names, "as_json", "quiet")
    options = {key: replace(OPTIONS[key], **changes.get(key, {})) for key in keys}

    def register(function):
        @wraps(function)
        def run(ctx: typer.Context, **values):
            as_csv = values.get("output") == STANDARD_OUTPUT
            screen = Screen(values["as_json"], values["quiet"], as_csv)
            values |= {"output": None} if as_csv else {}
            with noticing(lambda _: None) if screen.quiet else nullcontext():
                return function(SimpleNamespace(**values, screen=screen, words=ctx.obj))

        context = Parameter("ctx", Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
        listed = [context, *(option.parameter(key) for key, option in options.items())]
        run.__signature__ = Signature(listed)
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in listed}
        COMMANDS.setdefault(group, []).append(run)
        return run

    return register


# Values of options: parsed, checked, and in the form that the library takes.


def number_or_text(text):
    """Return the number that a text holds; any other text unchanged."""
    try:
        return float(text)
    except ValueError:
        return text


def held_or_free(option, text):
    """Parse `0.5,1.5,free`."""
    return tuple(word if word == "free" else number(option, "value", word) for word in words(text))


def yes_or_no(option, text):
    """Parse `no,yes`."""
    answers = {"no": False, "yes": True}
    for word in words(text):
        if word not in answers:
            raise InvalidInput(f"{option} must be no, yes or no,yes. Got {text!r}.")
    return tuple(answers[word] for word in words(text))


def whole(word, needed):
    """Return a whole number that a user has typed; raise `InvalidInput` with what is needed."""
    # of at most 18 digits, which a machine integer holds
    if not (word.isascii() and word.isdecimal() and len(word.lstrip("0")) < 19):
        raise InvalidInput(f"{needed}. Got {word!r:.80}.")
    return int(word)


def observations(given, formulas=None):
    """Read the table, or the data set, that the options name, with the columns of formulas.

    `formulas` are in place of --formula.
    """
    settings = READER_OPTIONS.parsed(vars(given))
    if formulas is not None:
        settings["formula"] = formulas
    if given.table in datasets.DATASETS:
        return datasets.load(given.table, **settings)
    _check_there(given.table)
    _check_named(given)
    observed = read_table(given.table, **settings)
    _note_locations(given, observed)
    return observed


def decimal_of(given, table):
    """Return the decimal sign that --decimal names, or None; it needs a table."""
    if given.decimal is not None:
        READER_OPTIONS["decimal"].kind.parse("--decimal", given.decimal)
        if table is None:
            raise InvalidInput("--decimal needs a table: leave it out.")
    return given.decimal


def _check_there(table):
    """Raise `InvalidInput` if there is no such file, and propose the nearest data set."""
    try:
        data_tables.check_exists(table)
    except InvalidInput as error:
        raise InvalidInput(f"{error}{did_you_mean(table, datasets.DATASETS)}") from None


def _check_named(given):
    """Raise `InvalidInput` if the column of the values is not named, with a command that works."""
    content = data_tables.content(given.table)
    if given.values or content == "grid":
        return
    frame = data_tables.read_frame(given.table)
    if frame.shape[1] < 2:
        # the only name may be a line of a file that is not a table
        raise InvalidInput(
            f"{given.table}: name the columns with --locations x,y --value z. It has one column."
        )
    numbers = [name for name, kind in data_tables.typed(frame).dtypes.items() if kind.kind in "iuf"]
    pairs = spatial.location_pairs(numbers)
    known = content == "points" or given.locations or len(pairs) == 1
    pair = words(given.locations or "") or tuple(pairs[0] if pairs else numbers[:2])
    needed = "column of the values with" if known else "columns with --locations and"
    value = next((name for name in numbers if name not in pair), None)
    example = ""
    if value is not None:
        options = () if known else ("--locations", joined(pair))
        line = shlex.join(["geomxp", *given.words, *options, "--value", joined((value,))])
        example = f", for example: {line}"
    raise InvalidInput(
        f"{given.table}: name the {needed} --value{example}. The columns are: "
        f"{few(frame.columns, 12)}."
    )


def _note_locations(given, observed):
    """Say which columns were taken as coordinates, where the options do not name them."""
    if not given.locations and data_tables.content(given.table) == "columns":
        pair = ",".join(observed.location_names)
        notice(f"{given.table}: columns {pair} are the locations (others: --locations X,Y).")
    if observed.time is not None and given.time is None:
        notice(f"{given.table}: {observed.time_name} is the time (another: --time NAME).")


def file_of(table):
    """Return the file of a table or of a data set."""
    if table in datasets.DATASETS:
        return datasets.path(table)
    _check_there(table)
    return table


def usual_trend(table):
    """Return the usual trend of a data set; "constant" for a table."""
    known = datasets.DATASETS.get(table)
    return known.trend if known else "constant"


def trend_of(given, default):
    """Return the trend that at most one option names; `default` without any."""
    formula = vars(given).get("formula")
    if given.trend is not None and formula is not None:
        raise InvalidInput("give only one of --trend and --formula.")
    if given.trend is not None:
        FIT_OPTIONS["trend"].kind.parse("--trend", given.trend)
    if formula is not None:
        # a column may have the name of a kind of trend
        return f"~ {formula}"
    return given.trend or ("covariates" if given.covariates else default)


def family_of(given):
    """Return the class of the covariance family that --family names."""
    return base.family_of(FIT_OPTIONS["family"].kind.parse("--family", given.family))


def model_of(given, otherwise=""):
    """Return the model whose parameters the options give; `otherwise` ends the message if not."""
    family, own = family_of(given), MODEL_OPTIONS[1:-1]
    values = {name: vars(given)[name] for name in own if vars(given)[name] is not None}
    values |= pairs("--parameter", given.parameter)
    response = response_of(vars(given).get("response"))
    of_response = () if response is None else tuple(response.parameters())
    count = family.count_in(values)
    declared, optional = family.declared_for(count), [p.name for p in family.optional_for(count)]
    names = [parameter.name for parameter in declared] + optional
    turns = NAMES_OF_MAPS & set(family.optional)
    for name in values:
        if name not in names and name not in turns and name not in of_response:
            raise InvalidInput(
                f"{with_article(given.family)} model has no parameter {name!r}; it has "
                f"{', '.join(names)}.{did_you_mean(name, names)}"
            )
    # nuggets of several variables too
    values = {p.name: 0.0 for p in declared if p.role == NOISE} | values
    missing = [
        f"--{name}" if name in own else f"--parameter {name}=VALUE"
        for name in names
        if name not in values and name not in optional
    ]
    if missing:
        raise InvalidInput(f"{' and '.join(missing)} must be given{otherwise}.")
    return family.from_parameters(values, response=response)


def method_of(given):
    """Return the method that the options name, or "auto" if they name none."""
    check_choice("--method", given.method, METHOD_CHOICES)
    exact_only = {name: vars(given).get(name) for name in EXACT_OPTIONS}
    name, of_exact = given.method, _of_exact(given)
    if name == AUTO and given.neighbours is not None:
        name = "vecchia"
    elif name == AUTO and of_exact:
        name = "exact"
    if name == AUTO:
        # a device that does not exist is an error before the table is read
        automatic(1, on=given.on)
        return AUTO
    if name == "exact":
        if given.neighbours is not None:
            raise InvalidInput("--neighbours needs --method vecchia.")
        return exact(given.on, **exact_only)
    options = [option for option in of_exact if option != "--on"]
    if options and given.method == AUTO:
        raise InvalidInput(
            f"--neighbours is for --method vecchia, and {' and '.join(options)} for --method "
            "exact: leave one of them out."
        )
    if options:
        raise InvalidInput(f"{' and '.join(options)} cannot be used with --method vecchia.")
    return Vecchia(30 if given.neighbours is None else given.neighbours, on=given.on)


def _of_exact(given):
    """Return the options given that only the exact method has, and --on of several devices."""
    values = {name: vars(given).get(name) for name in EXACT_OPTIONS}
    names = [
        f"--{name.replace('_', '-')}"
        for name, value in values.items()
        # 0 is a value, which is refused later
        if value not in (None, "none") and value is not False
    ]
    return [*names, "--on"] if is_cluster(given.on) or "," in given.on else names


def where_of(given):
    """Return the options of `PLACEMENT_OPTIONS` as `Fit.load` takes them."""
    return {name: vars(given)[name] for name in PLACEMENT_OPTIONS}


def has_table(settings):
    """Whether the models of the options of `fit` have a table of the correlation."""
    values = settings.get("fixed", {}) | settings.get("start", {})
    model = template(base.family_of(settings["family"]), variables=2)
    try:
        return model.replace(**values).tabulated
    except InvalidInput:
        # `fit` says what is wrong
        return True


ANNOUNCED_CHOICE_LOCATIONS = 2_000
"""Number of locations above which the automatic choice of the method is said."""


def chosen(given, method, observations, tabulated=True, response=None):
    """Return the method, chosen for the observations if it is "auto"; say so in one line.

    `tabulated`: whether the models have a table of the correlation. The line is for many
    locations, and for Vecchia's approximation of few.
    """
    if given.method != AUTO:
        return method
    because = "--neighbours" if given.neighbours is not None else ", ".join(_of_exact(given))
    n = observations.distinct_inputs
    if method == AUTO:
        method = automatic(n, tabulated, given.on, response)
    if response is not None:
        if n > MOST_DENSE_LOCATIONS and not given.quiet:
            notice(response_choice_in_words(method, n, METHOD_FLAGS))
        return method
    if (n > ANNOUNCED_CHOICE_LOCATIONS or method.approximate) and not given.quiet:
        dimensions = observations.dimensions
        notice(choice_in_words(method, n, dimensions, METHOD_FLAGS, because, tabulated))
    return method


def exact(
    on,
    tile=None,
    accuracy=None,
    kl=None,
    low_rank=False,
    layers=None,
    refine=None,
    fallback=None,
    keep_formats=None,
    **memory,
):
    """Return the exact method; at most one of accuracy, kl and layers names its precision."""
    if low_rank and kl is None:
        raise InvalidInput("--low-rank needs a target of the KL divergence: --kl 1e-3.")
    rules = {
        "--accuracy": (accuracy, precision.by_tile_norm),
        "--kl": (kl, partial(precision.for_divergence, low_rank=low_rank)),
        "--layers": (layers, lambda text: precision.layered(*words(text))),
    }
    named = [name for name, (value, _) in rules.items() if value is not None]
    if len(named) > 1:
        raise InvalidInput(f"give only one of {' and '.join(named)}.")
    rule = precision.uniform("fp64")
    if named:
        value, make = rules[named[0]]
        rule = make(value)
    if tile is not None and tile != WHOLE:
        tile = whole(tile, f"--tile must be a number of rows, or {WHOLE}")
    refine = None if refine == "none" else refine
    if fallback and refine is None:
        raise InvalidInput("--fallback needs --refine ir, cg or gmres.")
    if keep_formats and not named:
        raise InvalidInput(
            "--keep-formats needs a choice of formats: --accuracy 1e-5, --kl 1e-3 or --layers "
            "fp16,fp32."
        )
    flags = {"fallback": bool(fallback), "keep_formats": bool(keep_formats)}
    return Exact(rule, tile=tile, on=on, refine=refine, **flags, **memory)


def approximations(given):
    """Return [(label, method)] for `compare`: four accuracies by default."""
    accuracies, on, tile = given.accuracies, given.on, given.tile
    if {accuracies, given.kls, given.layers, given.neighbours} == {None}:
        accuracies = "1e-5,1e-6,1e-7,1e-8"
    result = []
    for word in words(accuracies or ""):
        accuracy = number("--accuracies", "ε", word)
        result.append(({"accuracy": accuracy}, exact(on, tile, accuracy=accuracy)))
    if given.low_rank and not given.kls:
        raise InvalidInput("--low-rank needs targets of the KL divergence: --kls 1e-3.")
    for word in words(given.kls or ""):
        target = number("--kls", "KL", word)
        method = exact(on, tile, kl=target, low_rank=given.low_rank)
        result.append(({"accuracy": None, "kl_target": target}, method))
    if given.layers:
        label = {"accuracy": None, "layers": given.layers}
        result.append((label, exact(on, tile, layers=given.layers)))
    for word in words(given.neighbours or ""):
        count = whole(word, "--neighbours must be whole numbers, 10,30,60")
        result.append(({"accuracy": None}, Vecchia(count, on=on)))
    if not result:
        raise InvalidInput(
            "--accuracies, --kls, --layers and --neighbours need a number or a format each."
        )
    return result
