"""Evaluate the log-likelihood of one model."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from ..covariance.base import Covariance
from ..errors import (
    DuplicateLocations,
    Ending,
    GeomxpWarning,
    InvalidInput,
    NotPositiveDefinite,
)
from .base import Evaluation, Likelihood
from .exact import Exact
from .trend import Trend

if TYPE_CHECKING:
    from ..data.observations import Observations


def log_likelihood(
    observations: Observations,
    model: Covariance,
    method: Likelihood | None = None,
    *,
    trend: str = "zero",
    reml: bool = False,
) -> Evaluation:
    """Evaluate the Gaussian log-likelihood of a model.

    Parameters
    ----------
    observations : Observations
    model : Covariance
    method : likelihood, optional
        `Exact()` if not given.
    trend : str
        "zero", "constant", "linear", "covariates", or a formula such as "elev + poly(x, 2)".
        The mean; its coefficients are profiled out by generalised least squares.
    reml : bool
        Restricted likelihood.

    Returns
    -------
    Evaluation

    Raises
    ------
    NotPositiveDefinite
        If Σ has no Cholesky factor; the message names a pair of locations that is too close.
    """
    check_model_and_method(model, method)
    kind = Trend.of(observations, trend)
    design = kind.design(observations.locations, observations.covariates)
    kind.check_full_rank(design)
    evaluation = (method or Exact()).prepare(observations, design, reml)(model)
    if evaluation.outcome.ending is Ending.NOT_POSITIVE_DEFINITE:
        twins = model.nugget == 0 and observations.duplicate()
        raise (DuplicateLocations if twins else NotPositiveDefinite)(evaluation.outcome.message)
    caution(method, evaluation)
    return evaluation


def check_model_and_method(model, method, given=True):
    """Validate the model (if one is given) and the method."""
    if given and not isinstance(model, Covariance):
        raise InvalidInput(
            f"`model` must be a covariance model, such as Matern(...). Got {type(model).__name__}."
        )
    if method is not None and not isinstance(method, Likelihood):
        raise InvalidInput(f"`method` must be an Exact or a Vecchia. Got {method!r:.80}.")


def caution(method, evaluation):
    """Warn if mixed formats may have made an evaluation inaccurate.

    Parameters
    ----------
    method : Likelihood or None
    evaluation : Evaluation
    """
    formats = evaluation.precision_map
    target = None if method is None or method.precision is None else method.precision.kl
    if evaluation.promotions:
        warnings.warn(
            f"{evaluation.promotions} tiles were promoted to finer formats, because Σ had no "
            "Cholesky factor in the formats of the rule. The log-likelihood may differ from "
            "FP64's: `geomxp compare` measures by how much.",
            GeomxpWarning,
            stacklevel=3,
        )
    if target is not None and formats is not None and (formats.divergence or 0.0) > target:
        warnings.warn(
            f"the requested divergence {target:g} cannot be met: even FP64 rounding gives about "
            f"{formats.divergence:.2g}. Give the model a nugget.",
            GeomxpWarning,
            stacklevel=3,
        )
