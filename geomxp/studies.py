"""Commands that study the method: what a precision costs, how fast a part is, what is here."""

import sys
from itertools import product
from typing import Annotated

import typer

from . import options
from .errors import InvalidInput


def compare(
    variance: options.Variance,
    range_: options.Range,
    smoothness: options.Smoothness,
    nugget: options.Nugget = 0.0,
    table: Annotated[
        str | None,
        typer.Argument(metavar="TABLE", help="CSV, Parquet or NPZ file, or a data set's name."),
    ] = None,
    n: Annotated[
        int | None, typer.Option("--n", min=1, help="Number of random places, without a table.")
    ] = None,
    locations: options.Locations = None,
    value: options.Value = None,
    covariates: options.Covariates = None,
    trend: options.Trend = None,
    metric: options.Metric = None,
    drop_missing: options.DropMissing = False,
    accuracies: Annotated[
        str | None, typer.Option(help="ε of the tile norms: 1e-5,1e-6,1e-7,1e-8.")
    ] = None,
    kls: Annotated[str | None, typer.Option(help="Targets of the KL divergence: 1e-3.")] = None,
    layers: options.Layers = None,
    tile: options.Tile = None,
    neighbours: Annotated[
        str | None, typer.Option(help="Numbers of neighbours of Vecchia's approximation: 10,30,60.")
    ] = None,
    seed: options.Seed = 0,
    on: options.On = "cpu",
    output: Annotated[str | None, typer.Option(help="CSV, Parquet or NPZ file to write.")] = None,
    figure: Annotated[str | None, typer.Option(help="PNG, PDF or SVG file to write.")] = None,
    as_json: options.Json = False,
):
    """Say what an approximation costs a model: its KL divergence from FP64, bytes and seconds.

    geomxp compare --n 4096 --variance 1 --range 0.0788 --smoothness 0.5 --accuracies 1e-5,1e-7

    geomxp compare meuse --variance 0.6 --range 220 --smoothness 0.5 --nugget 0.06 --tile 32

    geomxp compare --n 4096 --variance 1 --range 0.0788 --smoothness 0.5 --neighbours 10,30,60
    """
    from . import tables
    from .covariance.matern import Matern
    from .inference.divergence import compare as run
    from .inference.simulate import lay_out

    tables.check_writable(output, figure, inputs=(table,))
    model = Matern(variance, range_, smoothness, nugget)
    ways = options.ways(accuracies, kls, layers, tile, on, neighbours)
    if (n is None) == (table is None):
        raise InvalidInput("give either a TABLE or --n.")
    if table is None and any((locations, value, covariates, trend, drop_missing)):
        raise InvalidInput("--locations, --value, --covariates and --trend need a TABLE.")
    if figure and not figure.lower().endswith((".png", ".pdf", ".svg")):
        raise InvalidInput(f"--figure must end with .png, .pdf or .svg. Got {figure!r}.")
    if figure and len({frozenset(label) for label, _ in ways}) + bool(layers or neighbours) > 1:
        raise InvalidInput("--figure draws --accuracies or --kls, one of them at a time.")
    if table is None:
        places, about = lay_out(n, "uniform", seed), {"metric": metric or "euclidean"}
    else:
        places = options.observations(table, locations, value, covariates, metric, drop_missing)
        about = {"trend": trend or ("covariates" if covariates else "zero")}
    found = run(model, places, [how for _, how in ways], **about)
    rows = [label | row.to_dict() for (label, _), row in zip(ways, found, strict=True)]
    reference = found[0].reference | {"seconds": found[0].reference_seconds}
    frame = _frame(rows)
    if output:
        tables.write_frame(frame, output)
    if figure:
        from . import plots_precision

        plots_precision.divergences(frame, len(places)).figure.savefig(figure, dpi=150)
    if as_json:
        options.print_json({"n": len(places), "reference": reference, "rows": rows})
        return
    print(
        f"{len(places):,} places, FP64: log-determinant {reference['log_determinant']:.10g}, "
        f"{reference['seconds']:.2f} s\n"
    )
    print(frame.to_string(index=False, float_format=lambda x: f"{x:.3g}"))
    for what, path in (("table", output), ("figure", figure)):
        if path:
            print(f"{what} written to {path}")


def compare_models(
    table: options.Table,
    locations: options.Locations = None,
    value: options.Value = None,
    covariates: options.Covariates = None,
    smoothness: Annotated[
        str, typer.Option(help="Values to hold it at, and free: 0.5,1.5,free.")
    ] = "0.5,1.5,free",
    nugget: Annotated[str, typer.Option(help="Values to hold it at, and free: 0,free.")] = "free",
    anisotropy: Annotated[str, typer.Option(help="no, yes or no,yes.")] = "no",
    trends: Annotated[str | None, typer.Option(help="Kinds of trend: constant,linear.")] = None,
    formulas: Annotated[
        str | None, typer.Option(help='Trends by formula: "elev; elev + poly(x, 2)".')
    ] = None,
    reml: options.Reml = False,
    criterion: Annotated[str, typer.Option(help="aic, aicc or bic.")] = "aic",
    metric: options.Metric = None,
    drop_missing: options.DropMissing = False,
    method: options.Method = "exact",
    neighbours: options.Neighbours = None,
    on: options.On = "cpu",
    output: Annotated[str | None, typer.Option(help="CSV, Parquet or NPZ file to write.")] = None,
    as_json: options.Json = False,
):
    """Fit every combination of some choices, and rank them by an information criterion.

    geomxp compare-models meuse --smoothness 0.5,1.5,free --nugget 0,free --trends constant,linear

    geomxp compare-models meuse --formulas "sqrt_dist; sqrt_dist + poly(elev, 2)" --nugget 0,free
    """
    from . import tables
    from .inference.compare_models import compare_models as run

    tables.check_writable(output, inputs=(table,))
    how = options.method(
        method, neighbours, on, dict.fromkeys(("tile", "accuracy", "kl", "layers"))
    )
    formulas = tuple(part.strip() for part in (formulas or "").split(";") if part.strip())
    seen = options.observations(
        table, locations, value, covariates, metric, drop_missing, formulas or None
    )
    kinds = options.words(trends or "")
    if not (kinds or formulas):
        kinds = (options.trend_of(None, None, covariates, options.usual_trend(table)),)
    choices = {
        "smoothness": options.held_or_free("--smoothness", smoothness),
        "nuggets": options.held_or_free("--nugget", nugget),
        "anisotropy": options.yes_or_no("--anisotropy", anisotropy),
        "trends": (*kinds, *(options.trend_of(None, text, None, None) for text in formulas)),
    }
    count = len(list(product(*choices.values())))
    found = run(
        seen, how, **choices, reml=reml, criterion=criterion, progress=False, each=_tells(count)
    )
    if output:
        tables.write_frame(found.to_frame(), output)
    if as_json:
        options.print_json(found.to_dict())
        return
    print(found)
    if output:
        print(f"table written to {output}")


def _tells(count):
    """Return what prints one line for each model that has been fitted, to standard error."""
    numbers = iter(range(1, count + 1))

    def tell(candidate):
        words = ", ".join(f"{name} {word}" for name, word in candidate.choice.words.items())
        said = f"log-likelihood {candidate.log_likelihood:.4f}"
        if not candidate.ranked:
            said = candidate.fit.outcome.ending if candidate.fit else candidate.outcome
        line = f"{next(numbers)} of {count}: {words}: {said} ({candidate.seconds:.1f} s)"
        print(" ".join(line.split()), file=sys.stderr, flush=True)

    return tell


def _frame(rows):
    """Return the rows with one column per format."""
    import pandas as pd

    flat = [
        {k: v for k, v in row.items() if k != "formats"}
        | {f"tiles_{name}": count for name, count in row["formats"].items()}
        for row in rows
    ]
    frame = pd.DataFrame(flat).dropna(axis=1, how="all")
    tiles = [name for name in frame.columns if name.startswith("tiles_")]
    return frame.assign(**{name: frame[name].fillna(0).astype(int) for name in tiles})


def bench(
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help="matern, likelihood, cholesky, nested or batched.")
    ],
    n: Annotated[
        int | None, typer.Option("--n", min=1, help="Places, or the order of small matrices.")
    ] = None,
    smoothness: options.Smoothness = 0.8,
    tune: Annotated[
        bool, typer.Option("--tune", help="batched: search for the fastest variants first.")
    ] = False,
    as_json: options.Json = False,
):
    """Time geomxp beside named baselines of the same run, on one thread.

    geomxp bench matern

    geomxp bench likelihood --n 4000

    geomxp bench cholesky --n 8192

    geomxp bench batched --n 32 --tune
    """
    import os

    from . import bench as benchmarks

    os.environ["OMP_NUM_THREADS"] = "1"
    if tune and what != "batched":
        raise InvalidInput(f"--tune is for `bench batched`. Got bench {what}.")
    if what == "matern":
        document = {
            "rates": benchmarks.matern_rates(n or 2048, smoothness),
            "table": benchmarks.table_times(smoothness),
            "errors": benchmarks.matern_errors(),
        }
    elif what == "likelihood":
        document = {"likelihood": benchmarks.likelihood_rates(n or 4000, smoothness)}
    elif what == "cholesky":
        document = {"cholesky": benchmarks.cholesky_rates(n or 4096, smoothness)}
    elif what == "nested":
        document = {"nested": benchmarks.nested_rates(n or 4096)}
    elif what == "batched":
        from .bench_batched import batched_rates

        document = {"batched": batched_rates(n, tune)}
    else:
        raise InvalidInput(
            f"WHAT must be matern, likelihood, cholesky, nested or batched. Got {what!r}."
        )
    if as_json:
        options.print_json(document)
    else:
        print("\n\n".join(benchmarks.as_text(rows) for rows in document.values()))


def info(as_json: options.Json = False):
    """Say which devices, libraries and data sets can be used here."""
    from .execution.inventory import inventory

    document = inventory()
    if as_json:
        options.print_json(document)
        return
    for title, entries in document.items():
        if isinstance(entries, dict):
            print(f"{title}:")
            for name, text in entries.items():
                print(f"  {name:<16}{text}")
        else:
            print(f"{title:<18}{entries}")
