"""Type aliases of arguments and results. This module imports nothing from the package."""

from collections.abc import Callable as Callable
from collections.abc import Collection as Collection
from collections.abc import Hashable as Hashable
from collections.abc import Iterable as Iterable
from collections.abc import Iterator as Iterator
from collections.abc import Mapping as Mapping
from collections.abc import Sequence as Sequence
from os import PathLike
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar
from typing import Any as Any
from typing import ClassVar as ClassVar

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


Floats: TypeAlias = NDArray[np.float64]
"""FP64 arrays, which geomxp computes."""

Whole: TypeAlias = NDArray[np.int64]
"""Arrays of whole numbers, such as rows."""

Texts: TypeAlias = NDArray[np.str_]
"""Arrays of texts, such as names."""

AnyArray = TypeVar("AnyArray")
"""A NumPy or CuPy array; results have the same type."""

PathLikeText: TypeAlias = "str | PathLike[str]"
"""Path of a file."""

Document: TypeAlias = "dict[str, Any]"
"""Contents of a JSON object."""

AxesArray: TypeAlias = NDArray[np.object_]
"""Axes of several plots."""

Panels: TypeAlias = "Sequence[Axes] | NDArray[Any]"
"""Axes on which several plots are drawn."""

Frame: TypeAlias = "pandas.DataFrame"

Grid: TypeAlias = "xarray.Dataset"

Columns: TypeAlias = "ArrayLike | pandas.DataFrame | Mapping[str, Any]"
"""Covariates: numbers, or columns by name."""

Block: TypeAlias = "ArrayLike | Sequence[Any] | geopandas.GeoDataFrame"
"""Rectangles by their sides, polygons, or sets of points."""

TrendLike: TypeAlias = "str | Mapping[str, str]"
"""A trend, or those of several variables by name."""

Fixed: TypeAlias = "Iterable[str] | Mapping[str, float]"
"""Names of parameters, or their values by name."""

Interval: TypeAlias = "tuple[float, float]"

Intervals: TypeAlias = "dict[str, tuple[float, float]]"
"""Lower and upper bound by the name of what is estimated."""

Of: TypeAlias = Literal["field", "observation"]
"""The noiseless field, or a new observation, which includes the nugget."""

Kind: TypeAlias = Literal["observed", "expected"]
"""Kind of Fisher information."""

Criterion: TypeAlias = Literal["aic", "aicc", "bic"]

IntervalMethod: TypeAlias = Literal["wald", "profile"]
"""Method of confidence intervals."""

HeldOrFree: TypeAlias = "float | Literal['free']"
"""A value to hold a parameter at, or "free" to estimate it."""
