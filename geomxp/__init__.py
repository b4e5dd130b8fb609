"""geomxp fits Matérn Gaussian-process models to spatial data by maximum likelihood."""

from . import datasets
from .covariance.matern import Anisotropy, Matern
from .errors import (
    FitFailed,
    GeomxpError,
    GeomxpWarning,
    InvalidInput,
    MissingDevice,
    NotEnoughMemory,
    NotPositiveDefinite,
)
from .inference.divergence import Divergence, kl_between, kl_divergence
from .inference.estimate import Fit
from .inference.exact import Exact
from .inference.fit import fit
from .inference.likelihood import Evaluation, log_likelihood
from .inference.predict import Prediction, predict
from .inference.simulate import simulate
from .inference.vecchia import Vecchia
from .observations import Observations
from .outcome import Ending, Outcome
from .precision.rules import by_band, by_tile_norm, for_divergence, layered, uniform
from .tables import read_table

__version__ = "0.1.0"

__all__ = [
    "Anisotropy",
    "Divergence",
    "Ending",
    "Evaluation",
    "Exact",
    "Fit",
    "FitFailed",
    "GeomxpError",
    "GeomxpWarning",
    "InvalidInput",
    "Matern",
    "MissingDevice",
    "NotEnoughMemory",
    "NotPositiveDefinite",
    "Observations",
    "Outcome",
    "Prediction",
    "Vecchia",
    "by_band",
    "by_tile_norm",
    "datasets",
    "fit",
    "for_divergence",
    "kl_between",
    "kl_divergence",
    "layered",
    "log_likelihood",
    "predict",
    "read_table",
    "simulate",
    "uniform",
]
