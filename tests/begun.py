"""What Dask workers and tests of planted faults are copies of: the libraries and the package."""

import distributed  # noqa: F401
import hypothesis  # noqa: F401
import scipy.linalg  # noqa: F401
import threadpoolctl  # noqa: F401
from warm import prepare_numba

import geomxp.covariance.pairs_numba
import geomxp.linalg.loops
import geomxp.linalg.simd  # noqa: F401

prepare_numba()
