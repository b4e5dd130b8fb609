"""What the processes of Dask workers in tests are copies of: the libraries and the package."""

import distributed  # noqa: F401
import scipy.linalg  # noqa: F401
import threadpoolctl  # noqa: F401
from numba.core.registry import cpu_target

import geomxp.covariance.pairs_numba
import geomxp.linalg.loops
import geomxp.linalg.simd  # noqa: F401

# what the first call of a compiled function would load
cpu_target.typing_context.refresh()
cpu_target.target_context.refresh()
