"""The command line's options: what they are called, what they do, and how a shell completes them.

What people write after them is checked in `geomxp.commands.choices`.
"""

from typing import Annotated

import typer

from . import completion

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
