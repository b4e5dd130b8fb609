"""The commands `fit` and `log-likelihood`."""

import warnings
from typing import Annotated

import typer

from ..errors import GeomxpWarning
from . import choices, display, groups, interruption, options


@groups.joined
def fit(
    ctx: typer.Context,
    data: groups.Data,
    mean: groups.Mean,
    search: groups.Search,
    way: groups.Way,
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
    tables.check_writable(output, report, search.checkpoint, inputs=(data.table,))
    about = {"how": way.how(), **search.settings(), "reml": mean.reml, "progress": screen.progress}
    about["trend"] = mean.of(data, choices.usual_trend(data.table))
    choices.check_intervals(intervals, level)
    found = _run(data.observations(mean.formula), about, data.table, output, ctx.obj)
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


@groups.joined
def log_likelihood(
    data: groups.Data,
    parameters: groups.Parameters,
    mean: groups.Mean,
    way: groups.Way,
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
    from ..inference.likelihood import log_likelihood as run
    from ..inference.progress import Line

    screen = display.Screen(as_json, quiet)
    model, how, trend = parameters.model(), way.how(), mean.of(data, "zero")
    seen = data.observations(mean.formula)
    with Line("evaluating", shown=screen.progress):
        found = run(seen, model, how, trend=trend, reml=mean.reml)
    screen.result(found.to_dict, lambda: str(found))
