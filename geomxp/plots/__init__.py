"""Plots of observations and fits. Each function draws on given axes, or makes a figure.

Figures made here have no window and leave matplotlib's global state unchanged. `ax.figure` shows a
figure in a notebook, `ax.figure.savefig(path)` writes it. Colours suit colour-blind readers, and
maps have their true shape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import InvalidInput
from ..estimation.names import unit_of
from ..estimation.result import Fit
from ..prediction.variogram import several_variables
from .axes import LONGEST_NAME, checked, new_figure, plain
from .comparisons import divergences, influence_of_precision, model_weights, precision_map, timeline
from .counts import calibration, rootogram
from .diagnostics import (
    contours,
    correlations,
    coverage,
    histogram,
    normal_quantiles,
    pit,
    profile,
    profiles,
    residuals,
    residuals_against_prediction,
    standardised_residuals_map,
    variogram,
    variograms,
)
from .maps import (
    prediction_animation,
    prediction_error_map,
    prediction_map,
    prediction_maps,
    residuals_map,
    values_map,
)

if TYPE_CHECKING:
    from .._typing import Figure

__all__ = [
    "LONGEST_NAME",
    "calibration",
    "contours",
    "correlations",
    "coverage",
    "divergences",
    "histogram",
    "influence_of_precision",
    "model_weights",
    "new_figure",
    "normal_quantiles",
    "overview",
    "pit",
    "plain",
    "precision_map",
    "prediction_animation",
    "prediction_error_map",
    "prediction_map",
    "prediction_maps",
    "profile",
    "profiles",
    "residuals",
    "residuals_against_prediction",
    "residuals_map",
    "rootogram",
    "standardised_residuals_map",
    "timeline",
    "unit_of",
    "values_map",
    "variogram",
    "variograms",
]


def overview(fit: Fit) -> Figure:
    """Draw four plots of a fit: values, kriging mean, semivariogram and a profile.

    A map of residuals replaces a map of predictions or a profile that cannot be drawn. Of several
    variables the first one is shown, and their correlations in place of a profile.

    Parameters
    ----------
    fit : Fit

    Returns
    -------
    matplotlib.figure.Figure
    """
    checked("fit", fit, Fit)
    figure = new_figure(11.0, 8.5)
    (first, second), (third, fourth) = figure.subplots(2, 2)
    observations = fit.observations
    of = {} if observations.variable is None else {"variable": 0}
    values_map(observations, **of, ax=first)
    try:
        prediction_map(fit, **of, ax=second)
    except InvalidInput:
        residuals_map(fit, **of, ax=second)
    if several_variables(observations):
        variogram(fit, pair=observations.variable_labels[0], ax=third)
        correlations(fit, ax=fourth)
        for ax in (first, second):
            ax.set_title(f"{ax.get_title()}, {plain(observations.variable_labels[0])}")
        return figure
    variogram(fit, ax=third)
    if fit.free:
        profile(fit, "range" if "range" in fit.free else fit.free[0], ax=fourth)
    else:
        residuals_map(fit, ax=fourth)
    return figure
