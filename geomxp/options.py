"""The command line's words: its options, and what people write after them."""

import json
from typing import Annotated

import typer

from .errors import InvalidInput

Table = Annotated[
    str,
    typer.Argument(metavar="TABLE", help="CSV, Parquet or NPZ file, or a data set's name (meuse)."),
]
Locations = Annotated[str | None, typer.Option(help="Columns of the coordinates: x,y or lon,lat.")]
Value = Annotated[str | None, typer.Option(help="Column of the values.")]
Covariates = Annotated[
    str | None, typer.Option(help="Columns of covariates; the trend is then 'covariates'.")
]
Trend = Annotated[str | None, typer.Option(help="zero, constant, linear or covariates.")]
Metric = Annotated[
    str | None,
    typer.Option(help="euclidean, chordal or great-circle; chordal for columns lon,lat."),
]
DropMissing = Annotated[bool, typer.Option(help="Leave out rows with missing numbers.")]
Reml = Annotated[bool, typer.Option("--reml", help="Restricted maximum likelihood.")]
On = Annotated[str, typer.Option(help="cpu, gpu or gpu:N; several as gpu:0,gpu:1.")]
Accuracy = Annotated[
    float | None,
    typer.Option(help="ε: tiles as coarse as their norms allow for this backward error."),
]
Kl = Annotated[
    float | None, typer.Option(help="Tiles as coarse as this KL divergence from FP64 allows.")
]
Layers = Annotated[
    str | None, typer.Option(help="Formats from the largest off-diagonal block in: fp16,fp32,fp64.")
]
Tile = Annotated[int | None, typer.Option(help="Rows of a tile.")]
Method = Annotated[str, typer.Option(help="exact or vecchia.")]
Neighbours = Annotated[
    int | None, typer.Option(help="Of Vecchia's approximation: 30 if not given.")
]
Memory = Annotated[
    str | None, typer.Option(help="Bound of RAM, as 4GB: what it does not hold lies on a disk.")
]
DeviceMemory = Annotated[
    str | None,
    typer.Option(help="Bound of each device's memory, as 8GB: the rest lies in (pinned) RAM."),
]
Refine = Annotated[
    str | None,
    typer.Option(help="ir, cg or gmres: solutions of a mixed factor refined to FP64's accuracy."),
]
Scratch = Annotated[
    str | None,
    typer.Option(help="Directory for --memory's tiles; a killed run goes on from there."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the random numbers.")]
Variance = Annotated[float, typer.Option(help="σ², in squared units of the values.")]
Range = Annotated[float, typer.Option("--range", help="a, in the units of the locations.")]
Smoothness = Annotated[float, typer.Option(help="ν; 0.5 is the exponential model.")]
Nugget = Annotated[float, typer.Option(help="τ², a variance.")]


def print_json(document):
    """Print one JSON object."""
    print(json.dumps(document, allow_nan=False))


def words(text):
    """Split `a,b` into names."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


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


def observations(table, locations, value, covariates, metric, drop_missing):
    """Read a data set by name, or a table file."""
    from . import datasets, tables

    given = None if covariates is None else words(covariates)
    if table in datasets.DATASETS:
        return datasets.load(
            table,
            locations=words(locations) if locations else None,
            values=value,
            covariates=given,
            metric=metric,
            drop_missing=drop_missing,
        )
    tables.check_there(table)
    if not locations or not value:
        raise InvalidInput(f"{table}: name the columns with --locations x,y --value z.")
    return tables.read_table(
        table,
        locations=words(locations),
        values=value,
        covariates=given or (),
        metric=metric,
        drop_missing=drop_missing,
    )


def places_frame(places):
    """Read a table of places; a data set's name stands for its file."""
    from . import datasets, tables

    return tables.read_frame(datasets.path(places) if places in datasets.DATASETS else places)


def exact(
    on, tile, accuracy, kl, layers, memory=None, device_memory=None, scratch=None, refine=None
):
    """Return the exact method with the precision that at most one option names."""
    from .inference.exact import Exact
    from .precision import rules

    options = {"--accuracy": accuracy, "--kl": kl, "--layers": layers}
    given = [name for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise InvalidInput(f"give only one of {' and '.join(given)}.")
    rule = rules.uniform("fp64")
    if accuracy is not None:
        rule = rules.by_tile_norm(accuracy)
    elif kl is not None:
        rule = rules.for_divergence(kl)
    elif layers is not None:
        rule = rules.layered(*words(layers))
    refine = None if refine == "none" else refine
    return Exact(rule, tile, on, memory, device_memory, scratch, refine)


def method(name, neighbours, on, exact_only):
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
        raise InvalidInput(f"--method must be exact or vecchia. Got {name!r}.")
    nothing = (None, "none")
    given = [
        f"--{key.replace('_', '-')}" for key, value in exact_only.items() if value not in nothing
    ]
    if given:
        raise InvalidInput(f"{' and '.join(given)}: not with --method vecchia.")
    from .inference.vecchia import Vecchia

    return Vecchia(30 if neighbours is None else neighbours, on=on)


def ways(accuracies, kls, layers, tile, on, neighbours=None):
    """Return [(label, way to compute)] for `compare`: four accuracies if nothing is asked for."""
    from .inference.vecchia import Vecchia

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
