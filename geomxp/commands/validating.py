"""The command `validate`: how well a fit predicts what it is not shown."""

from dataclasses import replace
from typing import Annotated

from ..errors import InvalidInput
from . import display, options
from .options import option

FOLDS = "Folds"
"""A panel of the help."""


def validate(
    fit_file: options.FitFile,
    folds: Annotated[
        int | None, option(FOLDS, "How many: 10 if nothing else is asked for.", options.WHOLE)
    ] = None,
    leave_one_out: Annotated[
        bool, options.flag(FOLDS, "--leave-one-out", "Leave out each observation by itself.")
    ] = False,
    blocks: Annotated[
        float | None,
        option(
            FOLDS,
            "Folds of square blocks of this side, in the unit of the range.",
            options.NUMBER,
        ),
    ] = None,
    refit: Annotated[
        bool, options.flag(FOLDS, "--refit", "Estimate the parameters anew without each fold.")
    ] = False,
    seed: Annotated[int, option(FOLDS, "Seed of random folds.", options.WHOLE, min=0)] = 0,
    on: options.TasksOn = None,
    level: options.Level = 0.95,
    output: options.TableOut = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
):
    """Predict each observation from others, and score the predictions.

    A fit, and each observation from all others:
      geomxp fit meuse --fix smoothness=0.5 --output meuse.json
      geomxp validate meuse.json --leave-one-out --output errors.csv

    Blocks of 500 m, for predictions away from the data:
      geomxp validate meuse.json --folds 5 --blocks 500

    The parameters estimated anew without each fold:
      geomxp validate meuse.json --folds 4 --refit
    """
    from .. import tables
    from ..execution.cluster_client import is_cluster
    from ..inference.estimate import Fit, z_value
    from ..validation.validate import cross_validate
    from ..validation.validate import leave_one_out as one_by_one

    screen = display.Screen(as_json, quiet)
    given = {"--folds": folds, "--blocks": blocks, "--refit": refit or None}
    given["--on"] = on
    given = [name for name, value in given.items() if value is not None]
    if leave_one_out and given:
        raise InvalidInput(f"--leave-one-out: not with {' and '.join(given)}.")
    tables.check_writable(output, inputs=(fit_file,))
    z_value(level)
    fitted = Fit.load(fit_file)
    if on is not None and is_cluster(fitted.method.on):
        # the fit's own cluster may be gone, and folds share one out better than tiles
        fitted = replace(fitted, method=replace(fitted.method, on="cpu"))
    if leave_one_out:
        found = one_by_one(fitted, progress=screen.progress)
    else:
        count = 10 if folds is None else folds
        about = {"blocks": blocks, "refit": refit, "seed": seed, "on": on or "cpu"}
        found = cross_validate(fitted, count, **about, progress=screen.progress)
    # printed first: a full disk loses no score
    screen.result(lambda: found.to_dict(level), lambda: found.describe(level))
    if output:
        tables.write_frame(found.to_frame(level), output)
        screen.note(f"  predictions written to {output}")
