"""The command line's options: what they are called, what they do, and how a shell completes them.

What people write after them is checked in `geomxp.cli.options`.
"""

import csv
import warnings
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from math import isfinite
from pathlib import Path
from typing import Annotated

import typer

from ..cli import completion
from ..errors import GeomxpError, GeomxpWarning, InvalidInput, did_you_mean

DATA, MODEL, SEARCH, METHOD = "Data", "Model", "Search", "Method"
MACHINE, OUTPUT = "Machine", "Output"
"""Panels of the help."""

NUMBER, WHOLE, NAME, FILE = "NUMBER", "N", "NAME", "FILE"
"""What is written after an option."""


def option(panel, about, what, *names, known=None, **more):
    """Return an option of typer's in a panel of the help.

    Parameters
    ----------
    panel, about, what : str
        `what` stands for what is written after it.
    *names : str
        Called by the parameter's name if not given.
    known : sequence of str, or callable, optional
        Words that a shell proposes, or what finds them.
    **more :
        As of `typer.Option`.
    """
    if known is not None:
        more["autocompletion"] = known if callable(known) else completion.among(known)
    return typer.Option(*names, help=about, metavar=what, rich_help_panel=panel, **more)


def flag(panel, name, about):
    """Return an option without a value and without a contrary."""
    return option(panel, about, "", name)


Table = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="CSV, Parquet, NPZ, GeoPackage, GeoJSON, shapefile or NetCDF file, or a data set's "
        "name (meuse; geomxp info lists them).",
        autocompletion=completion.tables,
    ),
]
FitFile = Annotated[
    str,
    typer.Argument(
        metavar="FIT", help="What geomxp fit --output wrote.", autocompletion=completion.fits
    ),
]
Locations = Annotated[
    str | None,
    option(DATA, "Columns of the coordinates: x,y or lon,lat.", "X,Y", known=completion.columns),
]
Value = Annotated[
    str | None, option(DATA, "Column of the values.", "COLUMN", known=completion.columns)
]
Covariates = Annotated[
    str | None,
    option(
        DATA,
        "Columns of covariates; the trend is then 'covariates'.",
        "A,B",
        known=completion.columns,
    ),
]
METRICS = ("euclidean", "chordal", "great-circle")
Metric = Annotated[
    str | None,
    option(
        DATA,
        "euclidean, chordal or great-circle; chordal for columns lon,lat.",
        NAME,
        known=METRICS,
    ),
]
Crs = Annotated[
    str | None,
    option(DATA, "Coordinate reference system of the columns of coordinates.", "EPSG:N"),
]
DropMissing = Annotated[
    bool, flag(DATA, "--drop-missing", "Leave out rows with missing or infinite numbers.")
]

TRENDS = ("zero", "constant", "linear", "covariates")
Trend = Annotated[
    str | None, option(MODEL, "zero, constant, linear or covariates.", NAME, known=TRENDS)
]
Formula = Annotated[
    str | None,
    option(MODEL, 'The trend by columns and coordinates: "elev + poly(x, 2)".', "FORMULA"),
]
Reml = Annotated[bool, flag(MODEL, "--reml", "Restricted maximum likelihood.")]
Anisotropy = Annotated[bool, flag(MODEL, "--anisotropy", "Estimate geometric anisotropy.")]
PARAMETERS = (
    *("variance=", "range=", "smoothness=", "nugget="),
    *("anisotropy_angle=", "anisotropy_ratio="),
)
Fix = Annotated[
    list[str] | None,
    option(MODEL, "Hold a parameter; repeatable.", "NAME=VALUE", known=PARAMETERS),
]
Bounds = Annotated[
    list[str] | None,
    option(MODEL, "Search between bounds; repeatable.", "NAME=LOW:HIGH", known=PARAMETERS),
]
Variance = Annotated[float, option(MODEL, "σ², in squared units of the values.", NUMBER)]
Range = Annotated[float, option(MODEL, "a, in the units of the locations.", NUMBER, "--range")]
Smoothness = Annotated[float, option(MODEL, "ν; 0.5 is the exponential model.", NUMBER)]
Nugget = Annotated[float, option(MODEL, "τ², a variance.", NUMBER)]

SEARCHES = ("scoring", "bobyqa", "lbfgs", "slsqp")
Search = Annotated[
    str,
    option(
        SEARCH,
        "scoring (Fisher's, with exact derivatives), bobyqa (without any), lbfgs or slsqp.",
        NAME,
        known=SEARCHES,
    ),
]
Starts = Annotated[int, option(SEARCH, "From how many points to search.", WHOLE)]
StartsOn = Annotated[
    str,
    option(
        MACHINE,
        "Where --starts are searched: cpu, this process; or a Dask cluster as tcp://host:8786, "
        "each on a worker.",
        "PLACE",
        known=("cpu",),
    ),
]
Start = Annotated[
    list[str] | None,
    option(SEARCH, "Where to start; repeatable.", "NAME=VALUE", known=PARAMETERS),
]
Tolerance = Annotated[float, option(SEARCH, "On the log-likelihood.", NUMBER)]
Evaluations = Annotated[int, option(SEARCH, "Limit on evaluations.", WHOLE)]
Checkpoint = Annotated[
    str | None,
    option(
        SEARCH,
        "Keep the best model here after each improvement; the same command goes on from it.",
        FILE,
    ),
]
Seed = Annotated[int, option(SEARCH, "Seed of the random numbers.", WHOLE, min=0)]

Method = Annotated[str, option(METHOD, "exact or vecchia.", NAME, known=("exact", "vecchia"))]
Neighbours = Annotated[
    int | None, option(METHOD, "Of Vecchia's approximation: 30 if not given.", WHOLE)
]
Accuracy = Annotated[
    float | None,
    option(METHOD, "ε: tiles as coarse as their norms allow for this backward error.", NUMBER),
]
Kl = Annotated[
    float | None,
    option(METHOD, "Tiles as coarse as this KL divergence from FP64 allows.", NUMBER),
]
Layers = Annotated[
    str | None,
    option(METHOD, "Formats from the largest off-diagonal block in: fp16,fp32,fp64.", "FORMAT,…"),
]
Tile = Annotated[int | None, option(METHOD, "Rows of a tile.", WHOLE)]
Refine = Annotated[
    str | None,
    option(
        METHOD,
        "ir, cg or gmres: solutions of a mixed factor refined to FP64's accuracy; or none.",
        NAME,
        known=("none", "ir", "cg", "gmres"),
    ),
]
Fallback = Annotated[
    bool, flag(METHOD, "--fallback", "Finer formats, and FP64 at last, where --refine fails.")
]
On = Annotated[
    str,
    option(
        MACHINE,
        "cpu, gpu or gpu:N; several as gpu:0,gpu:1; a Dask cluster as tcp://host:8786.",
        "DEVICE",
        known=("cpu", "gpu", "gpu:0"),
    ),
]
TasksOn = Annotated[
    str | None,
    option(
        MACHINE,
        "Where: cpu, this process; or a Dask cluster as tcp://host:8786, with --refit or for "
        "Vecchia's approximation. As the fit if not given.",
        "PLACE",
        "--on",
        known=("cpu",),
    ),
]
Memory = Annotated[
    str | None,
    option(MACHINE, "Bound of RAM, as 4GB: what it does not hold lies on a disk.", "SIZE"),
]
DeviceMemory = Annotated[
    str | None,
    option(
        MACHINE, "Bound of each device's memory, as 8GB: the rest lies in (pinned) RAM.", "SIZE"
    ),
]
Scratch = Annotated[
    str | None,
    option(MACHINE, "For --memory's tiles; a stopped run goes on from there.", "FOLDER"),
]

Level = Annotated[float, option(OUTPUT, "Probability of the intervals.", NUMBER)]
TableOut = Annotated[
    str | None, option(OUTPUT, "CSV, Parquet or NPZ file to write.", FILE, "--output")
]
Json = Annotated[bool, flag(OUTPUT, "--json", "Print one JSON object and nothing else.")]
Quiet = Annotated[
    bool, flag(OUTPUT, "--quiet", "Nothing but the result: no progress, notes or warnings.")
]


# Options that several commands have, together with what they mean.
#
# A parameter of a command may be one of these classes: `joined` makes an option of each of its
# fields, and hands the command the whole.


def joined(command):
    """Return a command for typer, which knows no dataclasses: their fields are its parameters."""
    kinds, flat = {}, []
    for name, parameter in signature(command).parameters.items():
        kind = parameter.annotation
        if is_dataclass(kind):
            kinds[name] = kind
            flat += [_parameter(field) for field in fields(kind)]
        else:
            # by name, so that what must be given may stand behind what need not
            flat.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

    @wraps(command)
    def run(**given):
        made = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind)})
            for name, kind in kinds.items()
        }
        return command(**given, **made)

    run.__signature__ = Signature(flat)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    return run


def _parameter(field):
    default = Parameter.empty if field.default is MISSING else field.default
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=field.type)


@dataclass(frozen=True)
class Data:
    """A table, and which of its columns are what."""

    table: Table
    locations: Locations = None
    value: Value = None
    covariates: Covariates = None
    metric: Metric = None
    crs: Crs = None
    drop_missing: DropMissing = False

    def observations(self, formula=None):
        """Return the observations, with the columns that a formula (or several) names."""
        return observations(
            *(self.table, self.locations, self.value, self.covariates, self.metric),
            *(self.drop_missing, formula, self.crs),
        )


@dataclass(frozen=True)
class Mean:
    """The trend, and which likelihood its coefficients are left out of."""

    trend: Trend = None
    formula: Formula = None
    reml: Reml = False

    def of(self, data, default):
        """Return the trend as the library takes it; `default` if none is named."""
        return trend_of(self.trend, self.formula, data.covariates, default)


@dataclass(frozen=True)
class Parameters:
    """A model that is given."""

    variance: Variance
    range_: Range
    smoothness: Smoothness
    nugget: Nugget = 0.0

    def model(self):
        """Return the model."""
        from ..covariance.matern import Matern

        return Matern(self.variance, self.range_, self.smoothness, self.nugget)


@dataclass(frozen=True)
class SearchOptions:
    """What is estimated, and how the maximum is looked for."""

    fix: Fix = None
    bounds: Bounds = None
    anisotropy: Anisotropy = False
    search: Search = "scoring"
    start: Start = None
    starts: Starts = 1
    starts_on: StartsOn = "cpu"
    tolerance: Tolerance = 1e-6
    evaluations: Evaluations = 1000
    checkpoint: Checkpoint = None
    seed: Seed = 0

    def settings(self):
        """Return what `geomxp.fit` takes of it, as a dict."""
        return {
            "fixed": pairs("--fix", self.fix),
            "start": pairs("--start", self.start),
            "bounds": boxes(self.bounds),
            "anisotropy": self.anisotropy,
            "search": self.search,
            "starts": self.starts,
            "starts_on": self.starts_on,
            "tolerance": self.tolerance,
            "evaluations": self.evaluations,
            "checkpoint": self.checkpoint,
            "seed": self.seed,
        }


@dataclass(frozen=True)
class Way:
    """How a likelihood is computed, and where."""

    method: Method = "exact"
    neighbours: Neighbours = None
    accuracy: Accuracy = None
    kl: Kl = None
    layers: Layers = None
    tile: Tile = None
    refine: Refine = None
    fallback: Fallback = False
    on: On = "cpu"
    memory: Memory = None
    device_memory: DeviceMemory = None
    scratch: Scratch = None

    def build(self):
        """Return the way to compute."""
        general = ("method", "neighbours", "on")
        exact = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in general
        }
        return method_of(self.method, self.neighbours, self.on, exact)


# What people write after the command line's options, checked, and as what the library takes.


def words(text):
    """Split `a,b` into names; one with a comma in it stands in quotation marks.

    Examples
    --------
    >>> words('East,"North, m"')
    ('East', 'North, m')
    """
    line = " ".join(text.split())
    parts = next(csv.reader([line], skipinitialspace=True), [])
    return tuple(word.strip() for word in parts if word.strip())


def _number(option, name, text):
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"{option} {name}={text}: {text!r} is not a number.") from None


def pairs(option, items):
    """Parse repeated `name=value`."""
    result = {}
    for item in items or ():
        name, equals, text = item.partition("=")
        if not equals:
            raise InvalidInput(f"{option} needs name=value. Got {item!r}.")
        result[name.strip()] = _number(option, name, text)
    return result


def numbers(option, text):
    """Parse `50,20`."""
    return tuple(_number(option, "number", word) for word in words(text))


def boxes(items):
    """Parse repeated `name=lower:upper`."""
    result = {}
    for item in items or ():
        name, _, text = item.partition("=")
        lower, colon, upper = text.partition(":")
        if not colon:
            raise InvalidInput(f"--bounds needs name=lower:upper. Got {item!r}.")
        result[name.strip()] = tuple(_number("--bounds", name, part) for part in (lower, upper))
    return result


def held_or_free(option, text):
    """Parse `0.5,1.5,free`."""
    return tuple(word if word == "free" else _number(option, "value", word) for word in words(text))


def yes_or_no(option, text):
    """Parse `no,yes`."""
    answers = {"no": False, "yes": True}
    for word in words(text):
        if word not in answers:
            raise InvalidInput(f"{option} must be no, yes or no,yes. Got {text!r}.")
    return tuple(answers[word] for word in words(text))


def check_of(of):
    """Raise `InvalidInput` unless `of` names what intervals or draws are of."""
    if of not in (None, "field", "observation"):
        raise InvalidInput(f"--of must be field or observation. Got {of!r}.")


def observations(table, locations, value, covariates, metric, drop_missing, formula=None, crs=None):
    """Read a data set by name, or a table file, with the columns that a formula names."""
    from ..data import datasets
    from ..data.observations import read_table

    given = None if covariates is None else words(covariates)
    if table in datasets.DATASETS:
        return datasets.load(
            table,
            locations=words(locations) if locations else None,
            values=value,
            covariates=given,
            formula=formula,
            metric=metric,
            drop_missing=drop_missing,
        )
    _check_there(table)
    _check_named(table, locations, value)
    return read_table(
        table,
        locations=words(locations) if locations else None,
        values=value,
        covariates=given or (),
        formula=formula,
        metric=metric,
        drop_missing=drop_missing,
        crs=crs,
    )


def _check_there(table):
    """Raise `InvalidInput` where there is no such file, with the data set that was meant."""
    from ..data import datasets, tables

    try:
        tables.check_there(table)
    except InvalidInput as error:
        raise InvalidInput(f"{error}{did_you_mean(table, datasets.DATASETS)}") from None


def _check_named(table, locations, value):
    """Raise `InvalidInput` where a file does not know its columns and they are not named."""
    from ..data import files, tables
    from ..data.observations import few

    ending = Path(table).suffix.lower()
    needed = ""
    if ending not in files.ENDINGS and not (locations and value):
        needed = "name the columns with --locations x,y --value z"
    elif ending in files.VECTORS and not value:
        needed = "name the column of the values with --value z"
    if needed:
        names = few(tables.read_frame(table).columns, 12)
        raise InvalidInput(f"{table}: {needed}. The columns are: {names}.")


def file_of(table):
    """Return the file of a table; a data set's name stands for its file."""
    from ..data import datasets

    if table in datasets.DATASETS:
        return datasets.path(table)
    _check_there(table)
    return table


def places_frame(places):
    """Read a table of places as plain columns; a data set's name stands for its file."""
    from ..data import tables

    return tables.read_frame(file_of(places))


def places_data(places):
    """Read places as what their file holds: a frame, points or a grid."""
    from ..data import tables

    return tables.read_data(file_of(places))


def usual_trend(table):
    """Return the trend that a data set is used with; "constant" for a table."""
    from ..data import datasets

    known = datasets.DATASETS.get(table)
    return known.trend if known else "constant"


def trend_of(trend, formula, covariates, default):
    """Return the trend that at most one option names; `default` without any."""
    if trend is not None and formula is not None:
        raise InvalidInput("give only one of --trend and --formula.")
    if trend is not None:
        _check_kind("--trend", trend, "A formula goes into --formula.")
    if formula is not None:
        # a column may be called as a kind of trend is
        return f"~ {formula}"
    return trend or ("covariates" if covariates else default)


def kinds_of_trend(text):
    """Parse `constant,linear`; nothing if not given."""
    kinds = words(text or "")
    for kind in kinds:
        _check_kind("--trends", kind, 'Formulas go into --formulas "A; B".')
    return kinds


def _check_kind(option, word, of_formulas):
    """Raise `InvalidInput` for what is no kind of trend; it may be a formula in a wrong place."""
    if word not in TRENDS:
        near = did_you_mean(word, TRENDS) or f" {of_formulas}"
        raise InvalidInput(f"{option} must be one of: {', '.join(TRENDS)}. Got {word!r}.{near}")


def check_intervals(method, level):
    """Raise `InvalidInput` for intervals that cannot be, before a fit takes its time."""
    from ..estimation.result import z_value

    z_value(level)
    if method not in (None, "wald", "profile"):
        raise InvalidInput(f"--intervals must be wald or profile. Got {method!r}.")


def intervals_of(fit, method, level):
    """Return the JSON of a fit's confidence intervals: null for an end at infinity.

    None, with a warning, where the fit has none.
    """
    if method is None:
        return None
    try:
        found = fit.confidence_intervals(level, method)
    except GeomxpError as error:
        warnings.warn(f"no intervals: {error}", GeomxpWarning, stacklevel=2)
        return None
    if not found:
        warnings.warn("no intervals: no parameter was estimated.", GeomxpWarning, stacklevel=2)
        return None
    ends = {
        name: [float(end) if isfinite(end) else None for end in pair]
        for name, pair in found.items()
    }
    return {"method": method, "level": level, "parameters": ends}


def interval_lines(intervals):
    """Return the intervals as lines below a fit."""
    method = {"wald": "Wald's", "profile": "by profile likelihood"}[intervals["method"]]
    lines = ["", f"  {100 * intervals['level']:g} % confidence intervals, {method}"]
    for name, (lower, upper) in intervals["parameters"].items():
        top = "infinity" if upper is None else f"{upper:.6g}"
        lines.append(f"  {name.replace('_', ' '):<18}{lower:>14.6g}{top:>14}")
    return "\n".join(lines)


def exact(on, tile, accuracy, kl, layers, memory=None, device_memory=None, scratch=None, **refined):
    """Return the exact method with the precision that at most one option names.

    Parameters
    ----------
    on, tile, accuracy, kl, layers, memory, device_memory, scratch :
        What is written after the options of these names.
    **refined :
        refine, fallback: the same.
    """
    from ..likelihood.exact import Exact
    from ..linalg import precision

    options = {"--accuracy": accuracy, "--kl": kl, "--layers": layers}
    given = [name for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise InvalidInput(f"give only one of {' and '.join(given)}.")
    rule = precision.uniform("fp64")
    if accuracy is not None:
        rule = precision.by_tile_norm(accuracy)
    elif kl is not None:
        rule = precision.for_divergence(kl)
    elif layers is not None:
        rule = precision.layered(*words(layers))
    refine, fallback = refined.get("refine"), refined.get("fallback") or False
    refine = None if refine == "none" else refine
    if fallback and refine is None:
        raise InvalidInput("--fallback is for --refine ir, cg or gmres.")
    return Exact(rule, tile, on, memory, device_memory, scratch, refine, fallback)


def method_of(name, neighbours, on, exact_only):
    """Return the way to compute that the options name.

    Parameters
    ----------
    name : {"exact", "vecchia"}
    neighbours : int or None
    on : str
    exact_only : dict
        What `exact` takes besides.
    """
    if name == "exact":
        if neighbours is not None:
            raise InvalidInput("--neighbours needs --method vecchia.")
        return exact(on, **exact_only)
    if name != "vecchia":
        near = did_you_mean(name, ("exact", "vecchia"))
        raise InvalidInput(f"--method must be exact or vecchia. Got {name!r}.{near}")
    given = [
        f"--{key.replace('_', '-')}"
        for key, value in exact_only.items()
        if not (value is None or value is False or value == "none")
    ]
    if given:
        raise InvalidInput(f"{' and '.join(given)}: not with --method vecchia.")
    from ..likelihood.vecchia import Vecchia

    return Vecchia(30 if neighbours is None else neighbours, on=on)


def ways(accuracies, kls, layers, tile, on, neighbours=None):
    """Return [(label, way to compute)] for `compare`: four accuracies if nothing is asked for."""
    from ..likelihood.vecchia import Vecchia

    if accuracies is None and kls is None and layers is None and neighbours is None:
        accuracies = "1e-5,1e-6,1e-7,1e-8"
    found = []
    for word in words(accuracies or ""):
        accuracy = _number("--accuracies", "ε", word)
        found.append(({"accuracy": accuracy}, exact(on, tile, accuracy, None, None)))
    for word in words(kls or ""):
        target = _number("--kls", "KL", word)
        found.append(({"accuracy": None, "kl_target": target}, exact(on, tile, None, target, None)))
    if layers:
        found.append(({"accuracy": None, "layers": layers}, exact(on, tile, None, None, layers)))
    for word in words(neighbours or ""):
        if not word.isdecimal():
            raise InvalidInput(f"--neighbours must be whole numbers, 10,30,60. Got {word!r}.")
        found.append(({"accuracy": None}, Vecchia(int(word), on=on)))
    if not found:
        raise InvalidInput(
            "--accuracies, --kls, --layers and --neighbours need a number or a format each."
        )
    return found
