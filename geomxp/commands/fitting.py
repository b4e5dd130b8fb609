"""The commands `fit` and `log-likelihood`."""

import warnings
from typing import Annotated

import typer

from ..errors import GeomxpWarning
from . import choices, display, interruption, options


def fit(
    ctx: typer.Context,
    table: options.Table,
    locations: options.Locations = None,
    value: options.Value = None,
    covariates: options.Covariates = None,
    metric: options.Metric = None,
    crs: options.Crs = None,
    drop_missing: options.DropMissing = False,
    trend: options.Trend = None,
    formula: options.Formula = None,
    fix: options.Fix = None,
    bounds: options.Bounds = None,
    anisotropy: options.Anisotropy = False,
    reml: options.Reml = False,
    search: options.Search = "scoring",
    start: options.Start = None,
    starts: options.Starts = 1,
    tolerance: options.Tolerance = 1e-6,
    evaluations: options.Evaluations = 1000,
    checkpoint: options.Checkpoint = None,
    seed: options.Seed = 0,
    method: options.Method = "exact",
    neighbours: options.Neighbours = None,
    accuracy: options.Accuracy = None,
    kl: options.Kl = None,
    layers: options.Layers = None,
    tile: options.Tile = None,
    refine: options.Refine = None,
    fallback: options.Fallback = False,
    on: options.On = "cpu",
    memory: options.Memory = None,
    device_memory: options.DeviceMemory = None,
    scratch: options.Scratch = None,
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
    from .. import tables

    screen = display.Screen(as_json, quiet)
    tables.check_writable(output, report, checkpoint, inputs=(table,))
    exact = {"tile": tile, "accuracy": accuracy, "kl": kl, "layers": layers, "refine": refine}
    exact |= {"memory": memory, "device_memory": device_memory, "scratch": scratch}
    how = choices.method(method, neighbours, on, exact | {"fallback": fallback})
    choices.check_intervals(intervals, level)
    about = {
        "how": how,
        "fixed": choices.pairs("--fix", fix),
        "start": choices.pairs("--start", start),
        "bounds": choices.boxes(bounds),
        "trend": choices.trend_of(trend, formula, covariates, choices.usual_trend(table)),
        "reml": reml,
        "anisotropy": anisotropy,
        "search": search,
        "starts": starts,
        "tolerance": tolerance,
        "evaluations": evaluations,
        "checkpoint": checkpoint,
        "seed": seed,
        "progress": screen.progress,
    }
    seen = choices.observations(
        table, locations, value, covariates, metric, drop_missing, formula, crs
    )
    found = _run(seen, about, table, output, ctx.obj)
    # printed first: a full disk loses no estimate
    _print(found, intervals, level, screen)
    _write(found, output, report, ctx.obj, screen)
    if not found.outcome.good:
        warnings.warn(str(found.outcome), GeomxpWarning, stacklevel=1)


def _run(seen, about, table, output, words):
    """Fit; where Ctrl-C stops it, keep what there is."""
    from ..inference.fit import fit as run
    from ..inference.progress import Interrupted

    try:
        return run(seen, **about)
    except Interrupted as stopped:
        raise interruption.of_fit(stopped, table, output, words) from None


def _print(found, intervals, level, screen):
    """Print a fit with its intervals."""
    from ..inference.progress import Line

    with Line("intervals", shown=screen.progress and intervals == "profile"):
        ends = choices.intervals_of(found, intervals, level)
    screen.result(
        lambda: found.to_dict() | ({"intervals": ends} if intervals else {}),
        lambda: f"{found}\n{choices.interval_lines(ends)}" if ends else str(found),
        lambda: display.fit(found, ends),
    )


def _write(found, output, report, words, screen):
    """Write a fit and its report."""
    if output:
        found.save(output)
        screen.note(f"  fit written to {output}")
    if report:
        from ..report import write_report

        command = interruption.command_of(words)
        write_report(found, report, command=command, progress=screen.progress)
        screen.note(f"  report written to {report}")


def log_likelihood(
    table: options.Table,
    variance: options.Variance,
    range_: options.Range,
    smoothness: options.Smoothness,
    nugget: options.Nugget = 0.0,
    locations: options.Locations = None,
    value: options.Value = None,
    covariates: options.Covariates = None,
    metric: options.Metric = None,
    crs: options.Crs = None,
    drop_missing: options.DropMissing = False,
    trend: options.Trend = None,
    formula: options.Formula = None,
    reml: options.Reml = False,
    method: options.Method = "exact",
    neighbours: options.Neighbours = None,
    accuracy: options.Accuracy = None,
    kl: options.Kl = None,
    layers: options.Layers = None,
    tile: options.Tile = None,
    refine: options.Refine = None,
    fallback: options.Fallback = False,
    on: options.On = "cpu",
    memory: options.Memory = None,
    device_memory: options.DeviceMemory = None,
    scratch: options.Scratch = None,
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
    from ..covariance.matern import Matern
    from ..inference.likelihood import log_likelihood as run
    from ..inference.progress import Line

    screen = display.Screen(as_json, quiet)
    model = Matern(variance, range_, smoothness, nugget)
    exact = {"tile": tile, "accuracy": accuracy, "kl": kl, "layers": layers, "refine": refine}
    exact |= {"memory": memory, "device_memory": device_memory, "scratch": scratch}
    how = choices.method(method, neighbours, on, exact | {"fallback": fallback})
    trend = choices.trend_of(trend, formula, covariates, "zero")
    seen = choices.observations(
        table, locations, value, covariates, metric, drop_missing, formula, crs
    )
    with Line("evaluating", shown=screen.progress):
        found = run(seen, model, how, trend=trend, reml=reml)
    screen.result(found.to_dict, lambda: str(found))
