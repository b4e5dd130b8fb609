"""Influence of coarse formats on estimates: the same data fitted at several accuracies."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from math import nan
from typing import TYPE_CHECKING

from ..errors import Ending, GeomxpError, GeomxpWarning, InvalidInput
from ..likelihood.exact import Exact
from ..linalg.precision import by_tile_norm, uniform
from .fit import fit as fit_model
from .result import Fit

if TYPE_CHECKING:
    from .._typing import Fixed, Frame, Sequence
    from ..covariance.base import Covariance
    from ..data.observations import Observations

ACCURACIES = (1e-8, 1e-6, 1e-4, 1e-2)

ENDED = (Ending.COMPUTED, Ending.CONVERGED, Ending.ON_BOUND, Ending.UNIDENTIFIED)
"""Outcomes with values to show."""


def precision_influence(
    observations: Observations,
    accuracies: Sequence[float] = ACCURACIES,
    *,
    model: Covariance | None = None,
    method: Exact | None = None,
    fixed: Fixed = (),
    trend: str = "constant",
    reml: bool = False,
    progress: bool = True,
) -> Frame:
    """Fit in FP64, and again with tiles in formats by their norms at each of some accuracies.

    The fits in mixed formats start at the FP64 estimate, so that differences are due to the formats
    and not to the search.

    Parameters
    ----------
    observations : Observations
    accuracies : sequence of float
        ε of `by_tile_norm`.
    model : Covariance, optional
        Where the fit in FP64 starts; see `fit`.
    method : Exact, optional
        All options but the precision: tile, device, memory.
    fixed, trend, reml, progress :
        As of `fit`.

    Returns
    -------
    pandas.DataFrame
        A row for FP64 and one for each accuracy: precision, accuracy (NaN for FP64),
        log_likelihood, estimate_ and standard_error_ of each parameter, outcome, promotions,
        seconds, and tiles_ in each format. A fit that fails keeps its row, with the reason as
        outcome. `attrs` has the name of the values and the unit of lengths.

    Raises
    ------
    InvalidInput
        If an accuracy is invalid.
    FitFailed
        If there is no estimate in FP64.

    Examples
    --------
    >>> import geomxp as gx
    >>> seen = gx.datasets.load("meuse")
    >>> method, fixed = gx.Exact(tile=32), {"smoothness": 0.5}
    >>> frame = gx.precision_influence(seen, (1e-6,), method=method, fixed=fixed)
    >>> exact, mixed = frame.estimate_nugget
    >>> bool(abs(mixed - exact) < 0.1 * frame.standard_error_nugget[0])
    True
    """
    accuracies = _checked(accuracies)
    method = Exact() if method is None else method
    if method.precision is None:
        raise InvalidInput(f"`method` must be an Exact. Got {type(method).__name__}.")
    about = {"fixed": fixed, "trend": trend, "reml": reml, "progress": progress}
    first = fit_model(observations, model, replace(method, precision=uniform("fp64")), **about)
    rows = [_row(first)]
    estimated = first.free + first.boundary
    about["fixed"] = [name for name in first.model.parameters() if name not in estimated]
    for accuracy in accuracies:
        began = time.perf_counter()
        mixed = replace(method, precision=by_tile_norm(accuracy))
        try:
            with warnings.catch_warnings():
                # promotions have a column
                warnings.simplefilter("ignore", GeomxpWarning)
                again = fit_model(observations, first.model, mixed, raise_on_failure=False, **about)
            rows.append(_row(again))
        except GeomxpError as error:
            seconds = time.perf_counter() - began
            rows.append(_empty(first, accuracy, str(error), seconds))
    return _frame(rows, observations)


def frame_of_fits(fits):
    """Return the frame of `precision_influence` for fits that were made already.

    Parameters
    ----------
    fits : sequence of Fit
        To the same data: one in FP64, and others by `by_tile_norm`.

    Returns
    -------
    pandas.DataFrame

    Raises
    ------
    InvalidInput
        For fits by other methods, or without one in FP64.
    """
    rows, fits = [], list(fits)
    for fit in fits:
        if not isinstance(fit, Fit):
            raise InvalidInput(f"`fits` must be what gx.fit returns. Got {type(fit).__name__}.")
        rule = fit.method.precision
        if rule is None or (rule != uniform("fp64") and rule.accuracy is None):
            name = fit.method.describe(len(fit.observations))["name"]
            raise InvalidInput(
                "`fits` must be in FP64 and by by_tile_norm(ε). Got one by another rule or method "
                f"({name})."
            )
        rows.append(_row(fit))
    if sum(row["precision"] == "fp64" for row in rows) != 1:
        raise InvalidInput("one of `fits` must be in FP64: the others stand beside it.")
    rows.sort(key=lambda row: (row["precision"] != "fp64", row["accuracy"]))
    return _frame(rows, fits[0].observations)


def _checked(accuracies):
    try:
        values = [float(value) for value in accuracies]
    except (TypeError, ValueError):
        raise InvalidInput(f"`accuracies` must be numbers. Got {accuracies!r}.") from None
    if not values or len(set(values)) < len(values):
        raise InvalidInput(f"`accuracies` must be different numbers. Got {accuracies!r}.")
    for value in values:
        by_tile_norm(value)
    return sorted(values)


def _row(fit):
    accuracy = fit.method.precision.accuracy
    good = fit.outcome.ending in ENDED
    values = fit.model.parameters() if good else dict.fromkeys(fit.model.parameters(), nan)
    errors = {name: fit.standard_errors.get(name) if good else None for name in values}
    return {
        "precision": "fp64" if accuracy is None else f"{accuracy:.0e}",
        "accuracy": nan if accuracy is None else accuracy,
        "log_likelihood": fit.log_likelihood if good else nan,
        **{f"estimate_{name}": value for name, value in values.items()},
        **{f"standard_error_{n}": nan if e is None else e for n, e in errors.items()},
        "outcome": str(fit.outcome),
        "promotions": fit.promotions,
        "seconds": fit.seconds,
        **{f"tiles_{name}": count for name, count in fit.formats.items()},
    }


def _empty(first, accuracy, reason, seconds):
    """Return the row of a fit that failed."""
    row = {name: nan for name, value in _row(first).items() if not name.startswith("tiles_")}
    about = {"precision": f"{accuracy:.0e}", "accuracy": accuracy, "outcome": reason}
    return row | about | {"promotions": 0, "seconds": seconds}


def _frame(rows, observations):
    """Return the rows as a frame that knows the units of its parameters."""
    import pandas as pd

    frame = pd.DataFrame(rows)
    tiles = [name for name in frame.columns if name.startswith("tiles_")]
    rest = [name for name in frame.columns if name not in tiles]
    frame = frame[rest + tiles].assign(**{n: frame[n].fillna(0).astype(int) for n in tiles})
    frame.attrs.update(value_name=observations.value_name, unit=observations.unit)
    return frame
