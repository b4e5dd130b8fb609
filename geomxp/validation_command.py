"""The command `validate`: how well a fit predicts what it is not shown."""

from typing import Annotated

import typer

from . import options
from .errors import InvalidInput


def validate(
    fit_file: Annotated[
        str, typer.Argument(metavar="FIT", help="What `geomxp fit --output` wrote.")
    ],
    folds: Annotated[
        int | None, typer.Option(help="Number of folds: 10 if nothing else is asked for.")
    ] = None,
    leave_one_out: Annotated[
        bool, typer.Option("--leave-one-out", help="Leave out each observation by itself.")
    ] = False,
    blocks: Annotated[
        float | None,
        typer.Option(help="Folds of square blocks of this side, in the unit of the range."),
    ] = None,
    refit: Annotated[
        bool, typer.Option("--refit", help="Estimate the parameters anew without each fold.")
    ] = False,
    level: Annotated[float, typer.Option(help="Probability of the intervals.")] = 0.95,
    seed: options.Seed = 0,
    output: Annotated[str | None, typer.Option(help="CSV, Parquet or NPZ file to write.")] = None,
    as_json: options.Json = False,
):
    """Predict each observation from others, and score the predictions.

    geomxp validate fit.json --leave-one-out --output errors.csv

    geomxp validate fit.json --folds 10 --blocks 500 --refit
    """
    from . import tables
    from .inference.estimate import Fit, z_value
    from .inference.validate import cross_validate
    from .inference.validate import leave_one_out as one_by_one

    given = {"--folds": folds, "--blocks": blocks, "--refit": refit or None}
    given = [name for name, value in given.items() if value is not None]
    if leave_one_out and given:
        raise InvalidInput(f"--leave-one-out: not with {' and '.join(given)}.")
    tables.check_writable(output, inputs=(fit_file,))
    z_value(level)
    fitted = Fit.load(fit_file)
    if leave_one_out:
        found = one_by_one(fitted)
    else:
        count = 10 if folds is None else folds
        found = cross_validate(fitted, count, blocks=blocks, refit=refit, seed=seed)
    # printed first: a full disk loses no score
    if as_json:
        options.print_json(found.to_dict(level))
    else:
        print(found.describe(level), flush=True)
    if output:
        tables.write_frame(found.to_frame(level), output)
        if not as_json:
            print(f"  predictions written to {output}")
