"""What arguments may be and what comes back, as types: for annotations, editors and checkers.

Modules import from here for type checkers only, so that nothing is imported when they run.
"""

from collections.abc import Callable as Callable
from collections.abc import Iterable as Iterable
from collections.abc import Mapping as Mapping
from collections.abc import Sequence as Sequence
from os import PathLike
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar
from typing import Any as Any

import numpy as np
from numpy.typing import ArrayLike as ArrayLike
from numpy.typing import DTypeLike as DTypeLike
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pathlib import Path as Path

    import geopandas
    import pandas
    import xarray
    from distributed import Client as Client
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
    from xarray import DataArray as DataArray

    from .covariance.matern import Anisotropy as Anisotropy
    from .covariance.matern import Matern as Matern
    from .dense.batched_text import Variant as Variant
    from .execution.placement import Placement as Placement
    from .execution.trace import Event as Event
    from .execution.trace import Traffic as Traffic
    from .inference.bootstrap import Bootstrap as Bootstrap
    from .inference.compare_models import Candidate as Candidate
    from .inference.compare_models import ModelComparison as ModelComparison
    from .inference.divergence import Divergence as Divergence
    from .inference.estimate import Fit as Fit
    from .inference.exact import Exact as Exact
    from .inference.exact_evaluator import ExactEvaluator as ExactEvaluator
    from .inference.likelihood import Evaluation as Evaluation
    from .inference.likelihood_ratio import LikelihoodRatio as LikelihoodRatio
    from .inference.predict import Prediction as Prediction
    from .inference.raster import Raster as Raster
    from .inference.uncertainty import Estimate as Estimate
    from .inference.vecchia import Vecchia as Vecchia
    from .inference.vecchia import VecchiaEvaluator as VecchiaEvaluator
    from .observations import Observations as Observations
    from .outcome import Outcome as Outcome
    from .precision.formats import Format as Format
    from .precision.map import PrecisionMap as PrecisionMap
    from .tiles.layout import Layout as Layout
    from .tiles.refine import Refinement as Refinement
    from .validation.misspecification import Misspecification as Misspecification
    from .validation.validate import Validation as Validation

Floats: TypeAlias = NDArray[np.float64]
"""What geomxp computes: FP64 arrays."""

Whole: TypeAlias = NDArray[np.int64]
"""Whole numbers: rows, folds."""

AnyArray = TypeVar("AnyArray")
"""A NumPy or CuPy array; the same kind comes back."""

PathLikeText: TypeAlias = "str | PathLike[str]"
"""A file's name."""

Document: TypeAlias = "dict[str, Any]"
"""What JSON can hold."""

How: TypeAlias = "Exact | Vecchia"
"""A way to compute a likelihood."""

Rule: TypeAlias = "Callable[..., PrecisionMap]"
"""A rule that gives tiles their formats."""

Places: TypeAlias = (
    "ArrayLike | Observations | pandas.DataFrame | geopandas.GeoDataFrame"
    " | geopandas.GeoSeries | xarray.DataArray | xarray.Dataset"
)
"""Where to predict: coordinates, or whatever holds them."""

AxesArray: TypeAlias = NDArray[np.object_]
"""The axes of several pictures."""

Panels: TypeAlias = "Sequence[Axes] | NDArray[Any]"
"""Where to draw several pictures."""

Frame: TypeAlias = "pandas.DataFrame"

Grid: TypeAlias = "xarray.Dataset"

Columns: TypeAlias = "ArrayLike | pandas.DataFrame | Mapping[str, Any]"
"""Covariates: numbers, or columns by name."""

Block: TypeAlias = "ArrayLike | Sequence[Any] | geopandas.GeoDataFrame"
"""Rectangles by their sides, polygons, or sets of points."""

Fixed: TypeAlias = "Iterable[str] | Mapping[str, float]"
"""Names of parameters, or their values by name."""

Interval: TypeAlias = "tuple[float, float]"

Intervals: TypeAlias = "dict[str, tuple[float, float]]"
"""Lower and upper bound by the name of what is estimated."""

Of: TypeAlias = Literal["field", "observation"]
"""The noiseless field, or a new observation, which has the nugget too."""

Kind: TypeAlias = Literal["observed", "expected"]
"""Of Fisher's information."""

Criterion: TypeAlias = Literal["aic", "aicc", "bic"]

Method: TypeAlias = Literal["wald", "profile"]
"""How confidence intervals are made."""

HeldOrFree: TypeAlias = "float | Literal['free']"
"""A value to hold a parameter at, or "free" to estimate it."""
