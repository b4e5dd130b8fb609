"""CuPy's names over emulated GPUs: those that geomxp and its tests use. See `cuda_emulator`."""

import sys
from pathlib import Path

import numpy as np

try:
    import cuda_emulator
except ImportError:
    sys.path.append(str(Path(__file__).resolve().parents[3]))
    import cuda_emulator

from cuda_emulator.arrays import (
    REDUCTIONS,
    UFUNCS,
    allclose,
    arange,
    array,
    asarray,
    ascontiguousarray,
    asfortranarray,
    asnumpy,
    concatenate,
    copyto,
    diagonal,
    empty,
    empty_like,
    eye,
    full,
    full_like,
    matmul,
    ndarray,
    ones,
    shape,
    shares_memory,
    tri,
    tril,
    triu,
    vdot,
    where,
    zeros,
    zeros_like,
)

from . import cuda, linalg, random
from .cuda import RawKernel, RawModule
from .cuda.memory import get_default_memory_pool, get_default_pinned_memory_pool

__version__ = "14.0.0"

bool_, int32, int64, uint8 = np.bool_, np.int32, np.int64, np.uint8
float16, float32, float64 = np.float16, np.float32, np.float64
newaxis, inf, nan = None, np.inf, np.nan
dot = matmul

globals().update(REDUCTIONS)
globals().update(UFUNCS)


def __getattr__(name):
    raise AttributeError(
        f"the CUDA emulator has no cupy.{name}: add it to tests/cuda_emulator/arrays.py"
    )
