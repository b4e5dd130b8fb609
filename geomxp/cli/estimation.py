"""The commands `fit` and `log-likelihood`."""

import warnings
from typing import Annotated

import typer

from ..cli import completion, display, interruption, options
from ..errors import GeomxpWarning, InvalidInput, did_you_mean
from .options import option


@options.joined
def fit(
    ctx: typer.Context,
    data: options.Data,
    mean: options.Mean,
    search: options.SearchOptions,
    way: options.Way,
    intervals: Annotated[
        str | None,
        options.option(
            options.OUTPUT,
            "Confidence intervals: wald, or profile (likelihood).",
            options.NAME,
            known=("wald", "profile"),
        ),
    ] = None,
    level: options.Level = 0.95,
    output: Annotated[
        str | None, options.option(options.OUTPUT, "Write the fit as JSON.", options.FILE)
    ] = None,
    report: Annotated[
        str | None, options.option(options.OUTPUT, "Write an HTML report.", options.FILE)
    ] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
):
    r"""Estimate variance, range, smoothness and nugget by maximum likelihood.

    A data set, kept for predictions, and a report of it:
      geomxp fit meuse --output meuse.json --report meuse.html

    Another column, the smoothness held at the exponential model's, intervals:
      geomxp fit jura --value Ni --fix smoothness=0.5 --intervals profile

    A trend by formula, and a search without derivatives:
      geomxp fit meuse --formula "sqrt_dist + elev" --fix smoothness=0.5 \
        --search bobyqa

    1,720 stations by Vecchia's approximation:
      geomxp fit rainfall --method vecchia --fix smoothness=0.5
    """
    from ..data import tables

    screen = display.Screen(as_json, quiet)
    tables.check_writable(output, report, search.checkpoint, inputs=(data.table,))
    about = {
        "method": way.build(),
        **search.settings(),
        "reml": mean.reml,
        "progress": screen.progress,
    }
    about["trend"] = mean.of(data, options.usual_trend(data.table))
    options.check_intervals(intervals, level)
    found = _run(data.observations(mean.formula), about, data.table, output, ctx.obj)
    # printed first: a full disk loses no estimate
    _print(found, intervals, level, screen)
    _write(found, output, report, ctx.obj, screen)
    if not found.outcome.good:
        warnings.warn(str(found.outcome), GeomxpWarning, stacklevel=1)


def _run(seen, about, table, output, words):
    """Fit; where Ctrl-C stops it, keep what there is."""
    from ..estimation.fit import fit as run
    from ..estimation.monitor import Interrupted

    try:
        return run(seen, **about)
    except Interrupted as stopped:
        raise interruption.of_fit(stopped, table, output, words) from None


def _print(found, intervals, level, screen):
    """Print a fit with its intervals."""
    from ..runtime.progress import Line

    with Line("intervals", shown=screen.progress and intervals == "profile"):
        ends = options.intervals_of(found, intervals, level)
    screen.result(
        lambda: found.to_dict() | ({"intervals": ends} if intervals else {}),
        lambda: f"{found}\n{options.interval_lines(ends)}" if ends else str(found),
        lambda: display.fit(found, ends),
    )


def _write(found, output, report, words, screen):
    """Write a fit and its report."""
    if output:
        found.save(output)
        screen.note(f"  fit written to {output}")
    if report:
        from ..reporting.report import write_report

        command = interruption.command_of(words)
        write_report(found, report, command=command, progress=screen.progress)
        screen.note(f"  report written to {report}")


@options.joined
def log_likelihood(
    data: options.Data,
    parameters: options.Parameters,
    mean: options.Mean,
    way: options.Way,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
):
    r"""Evaluate the log-likelihood of a given model.

    In FP64, with a constant mean:
      geomxp log-likelihood meuse --variance 0.6 --range 220 --smoothness 0.5 \
        --nugget 0.06 --trend constant

    In tiles of mixed formats, what they solve refined to FP64's accuracy:
      geomxp log-likelihood medium --variance 1 --range 0.08 --smoothness 0.5 \
        --accuracy 1e-6 --refine cg
    """
    from ..likelihood.evaluate import log_likelihood as run
    from ..runtime.progress import Line

    screen = display.Screen(as_json, quiet)
    model, method, trend = parameters.model(), way.build(), mean.of(data, "zero")
    seen = data.observations(mean.formula)
    with Line("evaluating", shown=screen.progress):
        found = run(seen, model, method, trend=trend, reml=mean.reml)
    screen.result(found.to_dict, lambda: str(found))


# Commands that study models, methods and the machine.


FORMS = {"KL": ".3g", "seconds": ".3g", "× FP64": ".2f"}
"""How a screen shows what an approximation costs."""

BENCHMARKS = ("matern", "likelihood", "cholesky", "nested", "batched")


@options.joined
def compare(
    parameters: options.Parameters,
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="TABLE",
            help="A table of places, or a data set's name.",
            autocompletion=completion.tables,
        ),
    ] = None,
    trend: options.Trend = None,
    n: Annotated[
        int | None,
        option(options.DATA, "Random places, without a table.", options.WHOLE, "--n", min=1),
    ] = None,
    seed: Annotated[int, option(options.DATA, "Of random places.", options.WHOLE, min=0)] = 0,
    locations: options.Locations = None,
    value: options.Value = None,
    covariates: options.Covariates = None,
    metric: options.Metric = None,
    drop_missing: options.DropMissing = False,
    accuracies: Annotated[
        str | None, option(options.METHOD, "ε of the tile norms: 1e-5,1e-6,1e-7,1e-8.", "ε,ε,…")
    ] = None,
    kls: Annotated[
        str | None, option(options.METHOD, "Targets of the KL divergence: 1e-3.", "KL,KL,…")
    ] = None,
    layers: options.Layers = None,
    tile: options.Tile = None,
    neighbours: Annotated[
        str | None, option(options.METHOD, "Of Vecchia's approximation: 10,30,60.", "N,N,…")
    ] = None,
    on: options.On = "cpu",
    output: options.TableOut = None,
    figure: Annotated[
        str | None, option(options.OUTPUT, "PNG, PDF or SVG file to write.", options.FILE)
    ] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
):
    r"""Say what an approximation costs a model: its KL divergence from FP64, bytes and seconds.

    Tiles of mixed formats at two accuracies, random places:
      geomxp compare --n 1000 --variance 1 --range 0.08 --smoothness 0.5 \
        --accuracies 1e-5,1e-7

    A model of a data set, and a figure of it:
      geomxp compare meuse --variance 0.6 --range 220 --smoothness 0.5 \
        --nugget 0.06 --tile 32 --figure divergences.png

    How many neighbours Vecchia's approximation needs:
      geomxp compare --n 1000 --variance 1 --range 0.08 --smoothness 0.5 \
        --neighbours 10,30,60
    """
    from ..data import tables
    from ..likelihood.divergence import compare as run
    from ..prediction.simulate import lay_out

    screen = display.Screen(as_json, quiet)
    tables.check_writable(output, figure, inputs=(table,))
    model = parameters.model()
    ways = options.ways(accuracies, kls, layers, tile, on, neighbours)
    _check_places(n, table, (locations, value, covariates, trend, drop_missing))
    _check_figure(figure, [label for label, _ in ways], several=bool(layers or neighbours))
    if table is None:
        places, about = lay_out(n, "uniform", seed), {"metric": metric or "euclidean"}
    else:
        places = options.observations(table, locations, value, covariates, metric, drop_missing)
        about = {"trend": options.trend_of(trend, None, covariates, "zero")}
    found = run(model, places, [method for _, method in ways], **about, progress=screen.progress)
    rows = [label | row.to_dict() for (label, _), row in zip(ways, found, strict=True)]
    reference = found[0].reference | {"seconds": found[0].reference_seconds}
    _report_costs(rows, reference, len(places), output, figure, screen)


def _check_places(n, table, of_tables):
    """Raise `InvalidInput` unless places come from a table, or are laid out, with what suits."""
    if (n is None) == (table is None):
        raise InvalidInput("give either a TABLE or --n.")
    if table is None and any(of_tables):
        raise InvalidInput("--locations, --value, --covariates and --trend need a TABLE.")


def _check_figure(figure, labels, several):
    """Raise `InvalidInput` for a figure that cannot be drawn."""
    if figure and not figure.lower().endswith((".png", ".pdf", ".svg")):
        raise InvalidInput(f"--figure must end with .png, .pdf or .svg. Got {figure!r}.")
    if figure and len(set(map(frozenset, labels))) + several > 1:
        raise InvalidInput("--figure draws --accuracies or --kls, one of them at a time.")


def _report_costs(rows, reference, n, output, figure, screen):
    """Print what approximations cost, and write it as a table and as a figure."""
    from ..data import tables

    frame = _frame(rows)
    if output:
        tables.write_frame(frame, output)
    if figure:
        from ..plots import comparisons

        comparisons.divergences(frame, n).figure.savefig(figure, dpi=150)
    head = (
        f"{n:,} places, FP64: log-determinant {reference['log_determinant']:.10g}, "
        f"{reference['seconds']:.2f} s"
    )
    screen.result(
        lambda: {"n": n, "reference": reference, "rows": rows},
        lambda: f"{head}\n\n{frame.to_string(index=False, float_format=lambda x: f'{x:.3g}')}",
        lambda: display.frame(_costs(rows), head, forms=FORMS),
    )
    for what, path in (("table", output), ("figure", figure)):
        if path:
            screen.note(f"{what} written to {path}")


def _costs(rows):
    """Return what a screen has room for of each approximation."""
    import pandas as pd

    from ..runtime.devices import human_bytes

    kinds = {"accuracy": "ε", "kl_target": "KL asked for", "layers": "layers"}
    kinds["neighbours"] = "neighbours"
    result = []
    for row in rows:
        kind = next((name for name in kinds if row.get(name) is not None), "accuracy")
        value = row.get(kind)
        tiles = " ".join(f"{count} {name}" for name, count in row["formats"].items())
        result.append(
            {
                "approximation": value if kind == "layers" else f"{kinds[kind]} {value:g}",
                "tiles": tiles,
                "memory": human_bytes(row["bytes"]),
                "KL": row["kl"],
                "promoted": row["promotions"],
                "seconds": row["seconds"],
                "× FP64": row["speedup"],
            }
        )
    return pd.DataFrame(result)


@options.joined
def compare_models(
    data: options.Data,
    smoothness: Annotated[
        str, option(options.MODEL, "Values to hold it at, and free: 0.5,1.5,free.", "A,B,…")
    ] = "0.5,1.5,free",
    nugget: Annotated[
        str, option(options.MODEL, "Values to hold it at, and free: 0,free.", "A,B,…")
    ] = "free",
    anisotropy: Annotated[
        str,
        option(options.MODEL, "no, yes or no,yes.", "NO,YES", known=("no", "yes", "no,yes")),
    ] = "no",
    trends: Annotated[
        str | None,
        option(options.MODEL, "Kinds of trend: constant,linear.", "A,B,…", known=options.TRENDS),
    ] = None,
    formulas: Annotated[
        str | None,
        option(options.MODEL, 'Trends by formula: "elev; elev + poly(x, 2)".', "A; B; …"),
    ] = None,
    reml: options.Reml = False,
    criterion: Annotated[
        str,
        option(options.MODEL, "aic, aicc or bic.", options.NAME, known=("aic", "aicc", "bic")),
    ] = "aic",
    method: options.Method = "exact",
    neighbours: options.Neighbours = None,
    on: options.On = "cpu",
    output: options.TableOut = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
):
    r"""Fit every combination of some choices, and rank them by an information criterion.

    How smooth is the field, and is there noise?
      geomxp compare-models meuse --smoothness 0.5,1.5,free --nugget 0,free

    Which covariates tell something?
      geomxp compare-models meuse --smoothness 0.5 \
        --formulas "1; sqrt_dist; sqrt_dist + poly(elev, 2)" --output models.csv
    """
    from ..data import tables
    from ..estimation.compare import compare_models as run

    screen = display.Screen(as_json, quiet)
    tables.check_writable(output, inputs=(data.table,))
    exact = dict.fromkeys(("tile", "accuracy", "kl", "layers"))
    how = options.method_of(method, neighbours, on, exact)
    formulas = tuple(part.strip() for part in (formulas or "").split(";") if part.strip())
    kinds = options.kinds_of_trend(trends)
    seen = data.observations(formulas or None)
    if not (kinds or formulas):
        usual = options.usual_trend(data.table)
        kinds = (options.trend_of(None, None, data.covariates, usual),)
    found = run(
        seen,
        how,
        smoothness=options.held_or_free("--smoothness", smoothness),
        nuggets=options.held_or_free("--nugget", nugget),
        anisotropy=options.yes_or_no("--anisotropy", anisotropy),
        trends=(*kinds, *(options.trend_of(None, text, None, None) for text in formulas)),
        reml=reml,
        criterion=criterion,
        progress=screen.progress,
    )
    # printed first: a full disk loses no estimate
    screen.result(found.to_dict, lambda: str(found), lambda: _ranked(found))
    if output:
        tables.write_frame(found.to_frame(), output)
        screen.note(f"table written to {output}")


def _ranked(found):
    """Return the picture of a comparison: what a screen has room for, and why some have failed."""
    from rich.console import Group

    name = {"aic": "AIC", "aicc": "AICc", "bic": "BIC"}[found.criterion]
    titles = {"anisotropic": "anis.", "parameters": "k", "log_likelihood": "log-lik."}
    frame = found.to_frame().rename(columns=titles | {found.criterion: name})
    frame["outcome"] = frame["outcome"].str.split(":").str[0]
    columns = ["trend", "smoothness", "nugget", "anis.", "k", "log-lik.", name, "delta", "weight"]
    forms = {"log-lik.": ".2f", name: ".2f", "delta": ".2f", "weight": ".3f"}
    head, _, rest = str(found).partition("\n\n")
    table = display.frame(frame[[*columns, "outcome"]], head, best=0, forms=forms)
    return Group(table, *map(display.styled, rest.split("\n\n")[1:]))


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
        str,
        typer.Argument(
            metavar="WHAT",
            help="matern, likelihood, cholesky, nested or batched.",
            autocompletion=completion.among(BENCHMARKS),
        ),
    ],
    n: Annotated[
        int | None,
        option(
            options.MODEL, "Places, or the order of small matrices.", options.WHOLE, "--n", min=1
        ),
    ] = None,
    smoothness: options.Smoothness = 0.8,
    tune: Annotated[
        bool,
        options.flag(
            options.METHOD,
            "--tune",
            "batched: search for the fastest variants first, and keep them.",
        ),
    ] = False,
    on: Annotated[
        str,
        option(
            options.MACHINE,
            "cpu, or gpu or gpu:N; matern: cpu only.",
            "DEVICE",
            known=("cpu", "gpu", "gpu:0"),
        ),
    ] = "cpu",
    as_json: options.Json = False,
    quiet: options.Quiet = False,
):
    """Time geomxp beside named baselines of the same run, on one thread or one GPU.

    A log-likelihood beside LAPACK's factorization of the same matrix:
      geomxp bench likelihood --n 1000

    Mixed formats beside FP64:
      geomxp bench cholesky --n 1000

    Small matrices in batches; --tune finds what is fastest here:
      geomxp bench batched --n 8
    """
    import os

    from ..benchmarks.bench import as_text
    from ..runtime.progress import Line

    screen = display.Screen(as_json, quiet)
    os.environ["OMP_NUM_THREADS"] = "1"
    if what not in BENCHMARKS:
        near = did_you_mean(what, BENCHMARKS)
        raise InvalidInput(
            f"WHAT must be matern, likelihood, cholesky, nested or batched. Got {what!r}.{near}"
        )
    if tune and what != "batched":
        raise InvalidInput(f"--tune is for `bench batched`. Got bench {what}.")
    if on != "cpu" and what == "matern":
        raise InvalidInput(f"`bench matern` runs on the CPU: leave out --on. Got --on {on}.")
    with Line("timing", shown=screen.progress) as line:
        document = _times(what, n, smoothness, tune, on, line)
    screen.result(
        lambda: document,
        lambda: "\n\n".join(as_text(rows) for rows in document.values()),
        lambda: _timed(document),
    )


def _times(what, n, smoothness, tune, on, line):
    """Return the rows of a benchmark's tables by name."""
    from ..benchmarks import bench as benchmarks

    if what == "matern":
        return {
            "rates": benchmarks.matern_rates(n or 2048, smoothness, line=line),
            "table": benchmarks.table_times(smoothness),
            "errors": benchmarks.matern_errors(line=line),
        }
    if what == "batched":
        from ..benchmarks.batched import batched_rates

        return {what: batched_rates(n, tune, on=on, line=line)}
    if what == "nested":
        return {what: benchmarks.nested_rates(n or 4096, on=on, line=line)}
    if what == "likelihood":
        return {what: benchmarks.likelihood_rates(n or 4000, smoothness, on=on, line=line)}
    return {what: benchmarks.cholesky_rates(n or 4096, smoothness, on=on, line=line)}


def _timed(document):
    """Return the picture of benchmarks."""
    import pandas as pd
    from rich.console import Group

    return Group(*(display.frame(pd.DataFrame(rows)) for rows in document.values() if rows))


def info(as_json: options.Json = False, quiet: options.Quiet = False):
    """Say which devices, libraries and data sets can be used here, and what is missing.

    For people, and for scripts:
      geomxp info

      geomxp info --json
    """
    from ..benchmarks.inventory import as_text, inventory

    document = inventory()
    display.Screen(as_json, quiet).result(lambda: document, lambda: as_text(document))
