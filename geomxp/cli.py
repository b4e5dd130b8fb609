"""The command line: parse, call, print.

Results go to standard output; progress, warnings and the one line of an error to standard error.
Exit status: 0 done, 1 the computation failed, 2 bad usage or bad input.
"""

import sys
import warnings
from dataclasses import replace
from typing import Annotated

import typer

from . import __version__, options, studies
from .errors import GeomxpError, GeomxpWarning, InvalidInput

app = typer.Typer(
    name="geomxp",
    help="Fit Matérn Gaussian-process models to spatial data by maximum likelihood.",
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


for command in (studies.compare, studies.bench, studies.info):
    app.command()(command)


@app.command()
def fit(
    table: options.Table,
    locations: options.Locations = None,
    value: options.Value = None,
    covariates: options.Covariates = None,
    trend: options.Trend = None,
    reml: options.Reml = False,
    metric: options.Metric = None,
    anisotropy: Annotated[
        bool, typer.Option("--anisotropy", help="Estimate geometric anisotropy.")
    ] = False,
    drop_missing: options.DropMissing = False,
    starts: Annotated[int, typer.Option(help="From how many points to search.")] = 1,
    start: Annotated[
        list[str] | None, typer.Option(help="Start value, name=value; repeatable.")
    ] = None,
    fix: Annotated[
        list[str] | None, typer.Option(help="Parameter held, name=value; repeatable.")
    ] = None,
    bounds: Annotated[list[str] | None, typer.Option(help="name=lower:upper; repeatable.")] = None,
    accuracy: options.Accuracy = None,
    kl: options.Kl = None,
    layers: options.Layers = None,
    tile: options.Tile = None,
    method: options.Method = "exact",
    neighbours: options.Neighbours = None,
    on: options.On = "cpu",
    memory: options.Memory = None,
    device_memory: options.DeviceMemory = None,
    scratch: options.Scratch = None,
    refine: options.Refine = None,
    tolerance: Annotated[float, typer.Option(help="On the log-likelihood.")] = 1e-6,
    evaluations: Annotated[int, typer.Option(help="Limit on evaluations.")] = 1000,
    output: Annotated[str | None, typer.Option(help="Write the fit as JSON.")] = None,
    report: Annotated[str | None, typer.Option(help="Write an HTML report.")] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="Keep the state here; the same command goes on from it.")
    ] = None,
    seed: options.Seed = 0,
    as_json: options.Json = False,
):
    """Estimate variance, range, smoothness and nugget by maximum likelihood.

    geomxp fit meuse --report meuse.html

    geomxp fit wells.csv --locations x,y --value log_zinc --fix smoothness=0.5 --output fit.json
    """
    from . import datasets, tables
    from .inference.fit import fit as run

    tables.check_writable(output, report, checkpoint, inputs=(table,))
    exact = {"tile": tile, "accuracy": accuracy, "kl": kl, "layers": layers, "refine": refine}
    exact |= {"memory": memory, "device_memory": device_memory, "scratch": scratch}
    how = options.method(method, neighbours, on, exact)
    seen = options.observations(table, locations, value, covariates, metric, drop_missing)
    if trend is None:
        trend = "covariates" if covariates else "constant"
        if table in datasets.DATASETS and not covariates:
            trend = datasets.DATASETS[table].trend
    result = run(
        seen,
        how=how,
        fixed=options.pairs("--fix", fix),
        start=options.pairs("--start", start),
        bounds=options.boxes(bounds),
        trend=trend,
        reml=reml,
        anisotropy=anisotropy,
        starts=starts,
        tolerance=tolerance,
        evaluations=evaluations,
        checkpoint=checkpoint,
        seed=seed,
    )
    # printed first: a full disk loses no estimate
    if as_json:
        options.print_json(result.to_dict())
    else:
        print(result, flush=True)
    if output:
        result.save(output)
    if report:
        from .report import write_report

        write_report(result, report, command="geomxp " + " ".join(sys.argv[1:]))
    for what, path in (("fit", output), ("report", report)):
        if path and not as_json:
            print(f"  {what} written to {path}")
    if not result.outcome.good:
        warnings.warn(str(result.outcome), GeomxpWarning, stacklevel=1)


@app.command("log-likelihood")
def log_likelihood(
    table: options.Table,
    variance: options.Variance,
    range_: options.Range,
    smoothness: options.Smoothness,
    nugget: options.Nugget = 0.0,
    locations: options.Locations = None,
    value: options.Value = None,
    covariates: options.Covariates = None,
    trend: options.Trend = None,
    reml: options.Reml = False,
    metric: options.Metric = None,
    drop_missing: options.DropMissing = False,
    accuracy: options.Accuracy = None,
    kl: options.Kl = None,
    layers: options.Layers = None,
    tile: options.Tile = None,
    method: options.Method = "exact",
    neighbours: options.Neighbours = None,
    on: options.On = "cpu",
    memory: options.Memory = None,
    device_memory: options.DeviceMemory = None,
    scratch: options.Scratch = None,
    refine: options.Refine = None,
    as_json: options.Json = False,
):
    """Evaluate the log-likelihood of a given model.

    geomxp log-likelihood meuse --variance 0.6 --range 220 --smoothness 0.5 --nugget 0.06
    --trend constant
    """
    from .covariance.matern import Matern
    from .inference.likelihood import log_likelihood as run

    model = Matern(variance, range_, smoothness, nugget)
    exact = {"tile": tile, "accuracy": accuracy, "kl": kl, "layers": layers, "refine": refine}
    exact |= {"memory": memory, "device_memory": device_memory, "scratch": scratch}
    how = options.method(method, neighbours, on, exact)
    seen = options.observations(table, locations, value, covariates, metric, drop_missing)
    trend = trend or ("covariates" if covariates else "zero")
    evaluation = run(seen, model, how, trend=trend, reml=reml)
    if as_json:
        options.print_json(evaluation.to_dict())
    else:
        print(evaluation)


@app.command()
def predict(
    fit_file: Annotated[
        str, typer.Argument(metavar="FIT", help="What `geomxp fit --output` wrote.")
    ],
    places: Annotated[
        str | None, typer.Argument(help="Table of places, or a data set's name.")
    ] = None,
    grid: Annotated[
        int | None,
        typer.Option(
            min=2, help="Predict on a regular grid with so many cells along its longer side."
        ),
    ] = None,
    neighbours: Annotated[
        int | None,
        typer.Option(help="Observations for each place, of a fit by Vecchia's approximation."),
    ] = None,
    level: Annotated[float, typer.Option(help="Probability of the intervals.")] = 0.95,
    of: Annotated[str, typer.Option(help="Intervals for the field or an observation.")] = "field",
    on: Annotated[
        str | None, typer.Option(help="cpu, gpu or gpu:N; as the fit if not given.")
    ] = None,
    output: Annotated[str | None, typer.Option(help="CSV, Parquet or NPZ file to write.")] = None,
    as_json: options.Json = False,
):
    """Predict the field at places by kriging.

    geomxp predict fit.json places.csv --output predictions.csv

    geomxp predict fit.json --grid 100 --output map.csv
    """
    import pandas as pd

    from . import tables
    from .inference.estimate import Fit, z_value
    from .inference.predict import grid_over
    from .inference.predict import predict as run

    tables.check_writable(output, inputs=(fit_file, places))
    z_value(level)
    fitted = Fit.load(fit_file)
    if on is not None:
        fitted = replace(fitted, method=replace(fitted.method, on=on))
    seen = fitted.observations
    if (places is None) == (grid is None):
        raise InvalidInput("give either a table of PLACES or --grid.")
    if grid is not None:
        frame = pd.DataFrame(grid_over(seen, grid), columns=list(seen.location_names))
    else:
        frame = options.places_frame(places)
    columns = ("mean", "variance", "lower", "upper", "variance_of_observation")
    taken = [name for name in columns if name in frame.columns]
    if taken:
        raise InvalidInput(f"{places}: column {taken[0]!r} has the name of a result: rename it.")
    used = seen.location_names
    if fitted.trend.kind == "covariates":
        used = (*used, *seen.covariate_names)
    try:
        numbers = tables.number_columns(frame, used)
        d = len(seen.location_names)
        there = run(
            fitted, numbers[:, :d], numbers[:, d:] if len(used) > d else None, neighbours=neighbours
        )
    except InvalidInput as error:
        raise InvalidInput(f"{places or 'grid'}: {error}") from None
    result = pd.concat([frame.reset_index(drop=True), there.to_frame(level, of)], axis=1)
    if output:
        tables.write_frame(result, output)
    if as_json:
        rows = pd.concat(
            [pd.DataFrame(numbers, columns=list(used)), there.to_frame(level, of)], axis=1
        )
        options.print_json(
            {"n": len(result), "level": level, "of": of, "rows": rows.to_dict("records")}
        )
    elif output:
        print(f"{len(result)} predictions written to {output}")
    else:
        print(result.to_string(index=False, max_rows=40))


@app.command()
def simulate(
    variance: options.Variance,
    range_: options.Range,
    smoothness: options.Smoothness,
    nugget: options.Nugget = 0.0,
    n: Annotated[
        int | None, typer.Option("--n", min=1, help="Number of places to lay out.")
    ] = None,
    layout: Annotated[str, typer.Option(help="grid, jittered or uniform.")] = "uniform",
    at: Annotated[str | None, typer.Option(help="Table of places, or a data set's name.")] = None,
    locations: options.Locations = None,
    metric: options.Metric = None,
    draws: Annotated[int, typer.Option(min=1, help="Number of fields.")] = 1,
    seed: options.Seed = 0,
    output: Annotated[str | None, typer.Option(help="CSV, Parquet or NPZ file to write.")] = None,
    as_json: options.Json = False,
):
    """Draw Gaussian fields, the nugget included as noise.

    geomxp simulate --n 1600 --variance 1 --range 0.1 --smoothness 0.5 --output field.csv
    """
    import pandas as pd

    from . import datasets, tables
    from .covariance.matern import Matern
    from .inference.simulate import lay_out
    from .inference.simulate import simulate as run
    from .observations import names_say_degrees

    tables.check_writable(output, inputs=(at,))
    model = Matern(variance, range_, smoothness, nugget)
    if (n is None) == (at is None):
        raise InvalidInput("give either --n or --at.")
    names = options.words(locations) if locations else ("x", "y")
    if len(set(names)) != len(names) or (at is None and len(names) != 2):
        raise InvalidInput(f"--locations needs two different names. Got {locations!r}.")
    if at is None:
        places = lay_out(n, layout, seed)
    else:
        if at in datasets.DATASETS and not locations:
            names = datasets.DATASETS[at].locations
        try:
            places = tables.number_columns(options.places_frame(at), names)
        except InvalidInput as error:
            raise InvalidInput(f"{at}: {error}") from None
    metric = metric or ("chordal" if names_say_degrees(names) else "euclidean")
    fields = run(model, places, draws, seed, metric=metric)
    frame = pd.DataFrame(places, columns=list(names))
    for k, field in enumerate(fields):
        frame["z" if draws == 1 else f"z{k + 1}"] = field
    if output:
        tables.write_frame(frame, output)
    if as_json:
        options.print_json({"n": len(frame), "draws": draws, "rows": frame.to_dict("records")})
    elif output:
        print(f"{draws} field(s) at {len(frame)} places written to {output}")
    else:
        print(frame.to_string(index=False, max_rows=40))


@app.callback(invoke_without_command=True)
def _version(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
):
    if version:
        print(f"geomxp {__version__}")
        raise typer.Exit


def main(arguments=None):
    """Run the command line and return its exit status.

    Parameters
    ----------
    arguments : sequence of str, optional
        Without the program's name; those of the process if not given. `--debug` anywhere shows
        tracebacks.

    Returns
    -------
    int
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    arguments = [word for word in arguments if word != "--debug"] or ["--help"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", GeomxpWarning)
        try:
            status = app(arguments, prog_name="geomxp", standalone_mode=False) or 0
        except Exception as error:
            if debug:
                raise
            status = _report(error)
        except KeyboardInterrupt:
            status = 130
    if status == 130:
        print("geomxp: interrupted; with --checkpoint the same command goes on.", file=sys.stderr)
    if status == 0:
        for warning in caught:
            print(f"warning: {warning.message}", file=sys.stderr)
    return status


def _report(error):
    """Print the one line of an error; return the exit status."""
    if isinstance(error, InvalidInput):
        status, message = 2, str(error)
    elif isinstance(error, GeomxpError):
        status, message = 1, str(error)
    elif hasattr(error, "format_message"):
        # bad usage, as the parser says it
        status, message = 2, error.format_message().rstrip(".") + ": see geomxp --help."
    elif isinstance(error, BrokenPipeError):
        return 1
    elif isinstance(error, MemoryError):
        status, message = 1, "out of memory: use fewer places, or a machine with more memory."
    else:
        status = 1
        message = f"{type(error).__name__}: {error} (an error in geomxp: --debug shows where)"
    print("geomxp: " + " ".join(message.split()), file=sys.stderr)
    return status
