"""geomxp fits Matérn Gaussian-process models to spatial data by maximum likelihood."""

from . import datasets, plots
from .covariance.matern import Anisotropy, Matern
from .errors import (
    FitFailed,
    GeomxpError,
    GeomxpWarning,
    InvalidInput,
    MissingDevice,
    MissingPackage,
    NotEnoughMemory,
    NotPositiveDefinite,
)
from .execution.memory_plan import MemoryPlan
from .inference.bootstrap import Bootstrap, bootstrap
from .inference.compare_models import ModelComparison, compare_models
from .inference.divergence import Divergence, compare, kl_between, kl_divergence
from .inference.estimate import Fit
from .inference.exact import Exact
from .inference.fit import fit
from .inference.likelihood import Evaluation, log_likelihood
from .inference.likelihood_ratio import LikelihoodRatio, likelihood_ratio_test
from .inference.precision_influence import precision_influence
from .inference.predict import Prediction, predict
from .inference.raster import Raster, predict_raster
from .inference.simulate import simulate
from .inference.uncertainty import Estimate, information
from .inference.vecchia import Vecchia
from .observations import Observations
from .outcome import Ending, Outcome
from .precision.rules import by_band, by_tile_norm, for_divergence, layered, uniform
from .tables import read_table
from .validation import scores
from .validation.misspecification import Misspecification, mloe_mmom
from .validation.validate import Validation, cross_validate, leave_one_out

__version__ = "0.1.0"

__all__ = [
    "Anisotropy",
    "Bootstrap",
    "Divergence",
    "Ending",
    "Estimate",
    "Evaluation",
    "Exact",
    "Fit",
    "FitFailed",
    "GeomxpError",
    "GeomxpWarning",
    "InvalidInput",
    "LikelihoodRatio",
    "Matern",
    "MemoryPlan",
    "MissingDevice",
    "MissingPackage",
    "Misspecification",
    "ModelComparison",
    "NotEnoughMemory",
    "NotPositiveDefinite",
    "Observations",
    "Outcome",
    "Prediction",
    "Raster",
    "Validation",
    "Vecchia",
    "bootstrap",
    "by_band",
    "by_tile_norm",
    "compare",
    "compare_models",
    "cross_validate",
    "datasets",
    "fit",
    "for_divergence",
    "information",
    "kl_between",
    "kl_divergence",
    "layered",
    "leave_one_out",
    "likelihood_ratio_test",
    "log_likelihood",
    "mloe_mmom",
    "plots",
    "precision_influence",
    "predict",
    "predict_raster",
    "read_table",
    "scores",
    "simulate",
    "uniform",
]
