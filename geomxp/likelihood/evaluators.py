"""The evaluator for models with a response, or without one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .base import check_gaussian
from .censored import CensoredEvaluator
from .latent import LaplaceEvaluator, check_response

if TYPE_CHECKING:
    from .._typing import Floats
    from ..covariance.base import Covariance
    from ..data.observations import Observations
    from .base import Evaluator, Likelihood


def evaluator_for(
    model: Covariance,
    method: Likelihood,
    observations: Observations,
    design: Floats | None = None,
    reml: bool = False,
) -> Evaluator:
    """Return the evaluator of one data set for models with the response of one.

    Raises
    ------
    InvalidInput
        For observations or a method that such models cannot have.
    """
    response = model.response
    if response is None:
        check_gaussian(observations)
        return method.prepare(observations, design, reml)
    check_response(method, observations, model, reml)
    exact = getattr(response, "integral", "laplace") == "exact"
    kind = CensoredEvaluator if exact else LaplaceEvaluator
    return kind(observations, design, method, response)
