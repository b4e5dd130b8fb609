"""geomxp fits Matérn Gaussian-process models to spatial data by maximum likelihood."""

from importlib import import_module
from typing import TYPE_CHECKING

from ._version import __version__ as __version__
from .covariance import (
    Cauchy,
    Coregionalization,
    FlexibleMatern,
    Gaussian,
    Gneiting,
    Independent,
    Matern,
    MaternSpaceTime,
    ParsimoniousMatern,
    PoweredExponential,
    RationalQuadratic,
    Separable,
    Spherical,
    Wendland,
    responses,
)
from .covariance.anisotropy import Anisotropy, Anisotropy3D, AxisRatios, AxisRatios3D
from .covariance.base import Covariance, Isotropic, family_of
from .covariance.distance import Metric
from .covariance.inputs import Inputs
from .covariance.noise import NoiseParameter
from .covariance.parameter import Parameter
from .covariance.transformation import BoxCox, Log, Logit, Sqrt, Transformation, TukeyGH
from .data import datasets
from .data.observations import Observations, read_table
from .data.times import TimeAxis
from .errors import (
    Ending,
    FitFailed,
    GeomxpError,
    GeomxpWarning,
    InvalidInput,
    MissingDevice,
    MissingPackage,
    NotEnoughMemory,
    NotPositiveDefinite,
    Outcome,
)
from .estimation.bootstrap import Bootstrap, bootstrap
from .estimation.compare import ModelComparison, compare_models, precision_influence
from .estimation.diagnose import Estimate
from .estimation.fit import fit
from .estimation.hurdle import HurdleFit
from .estimation.likelihood_ratio import LikelihoodRatio, likelihood_ratio_test
from .estimation.result import Fit, information
from .estimation.small_sample import TrendTest
from .likelihood.base import Evaluation
from .likelihood.divergence import (
    Divergence,
    EstimatedDivergence,
    compare,
    estimate_divergence,
    kl_between,
    kl_divergence,
)
from .likelihood.exact import Exact, log_likelihood
from .likelihood.probes import FormatDivergence
from .likelihood.vecchia import Vecchia
from .linalg.precision import by_band, by_tile_norm, for_divergence, layered, uniform
from .prediction import scores
from .prediction.kriging import Prediction, predict, prediction_covariance
from .prediction.misspecification import Misspecification, mloe_mmom
from .prediction.raster import Raster, RasterSeries, predict_raster
from .prediction.simulate import simulate
from .prediction.validation import Validation, cross_validate, leave_one_out, validate
from .prediction.variogram import Variogram, variogram
from .tiles.placement import MemoryPlan

if TYPE_CHECKING:
    from . import plots
    from .reporting.exploration import Exploration, explore
    from .reporting.report import report

__all__ = [
    "Anisotropy",
    "Anisotropy3D",
    "AxisRatios",
    "AxisRatios3D",
    "Bootstrap",
    "BoxCox",
    "Cauchy",
    "Coregionalization",
    "Covariance",
    "Divergence",
    "Ending",
    "Estimate",
    "EstimatedDivergence",
    "Evaluation",
    "Exact",
    "Exploration",
    "Fit",
    "FitFailed",
    "FlexibleMatern",
    "FormatDivergence",
    "Gaussian",
    "GeomxpError",
    "GeomxpWarning",
    "Gneiting",
    "HurdleFit",
    "Independent",
    "Inputs",
    "InvalidInput",
    "Isotropic",
    "LikelihoodRatio",
    "Log",
    "Logit",
    "Matern",
    "MaternSpaceTime",
    "MemoryPlan",
    "Metric",
    "MissingDevice",
    "MissingPackage",
    "Misspecification",
    "ModelComparison",
    "NoiseParameter",
    "NotEnoughMemory",
    "NotPositiveDefinite",
    "Observations",
    "Outcome",
    "Parameter",
    "ParsimoniousMatern",
    "PoweredExponential",
    "Prediction",
    "Raster",
    "RasterSeries",
    "RationalQuadratic",
    "Separable",
    "Spherical",
    "Sqrt",
    "TimeAxis",
    "Transformation",
    "TrendTest",
    "TukeyGH",
    "Validation",
    "Variogram",
    "Vecchia",
    "Wendland",
    "bootstrap",
    "by_band",
    "by_tile_norm",
    "compare",
    "compare_models",
    "cross_validate",
    "datasets",
    "estimate_divergence",
    "explore",
    "family_of",
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
    "prediction_covariance",
    "read_table",
    "report",
    "responses",
    "scores",
    "simulate",
    "uniform",
    "validate",
    "variogram",
]


def __getattr__(name):
    """Import `plots`, `explore` and `report` when they are first used: most runs need none."""
    if name == "plots":
        return import_module(".plots", __name__)
    if name in ("Exploration", "explore"):
        return getattr(import_module(".reporting.exploration", __name__), name)
    if name == "report":
        return import_module(".reporting.report", __name__).report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted(["__version__", *__all__])
