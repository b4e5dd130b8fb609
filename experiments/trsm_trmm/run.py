"""Recursive TRSM and TRMM beside the vendor library: runtime ratios (paper 003, Figures 2 and 3).

    python experiments/trsm_trmm/run.py [--on gpu] [--tiny]

Writes results/ratios.csv: square matrices, and rectangular right-hand sides of 256 columns, in FP64 and
FP32. One thread; medians of interleaved runs.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
from scipy.linalg import blas as scipy_blas

from geomxp.dense import blas, nested

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "nested_cholesky"))
from common import write_rows
from run_shared import timings

HERE = Path(__file__).parent
