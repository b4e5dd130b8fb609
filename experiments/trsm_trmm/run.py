"""Recursive TRSM and TRMM beside vendor libraries: runtime ratios, as those of paper 003.

    python experiments/trsm_trmm/run.py [--on gpu] [--tiny]

Writes results/ratios.csv: square matrices, and rectangular right-hand sides of 256 columns, in FP64
and FP32; left, lower, not transposed. One thread; medians of interleaved runs. A ratio above 1 says
that ours is faster. On a GPU the baseline of TRMM is not a library: see `ON_GPU`.
"""

import argparse
import os
import sys
from itertools import product
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
from scipy.linalg import blas as scipy_blas

from geomxp.linalg import blas, nested

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import timings, write_rows

HERE = Path(__file__).parent
COLUMNS = 256
ON_GPU = {"trsm": "cublas", "trmm": "masked_product"}
"""Baselines on a GPU: CuPy has no trmm, and a product by a full copy of the triangle stands in."""


def libraries(what, single, on):
    """Return {baseline: work(a, b)} for B <- L⁻¹B or LB."""
    if on == "gpu":
        from geomxp.linalg import gpu

        return {ON_GPU[what]: lambda a, b: gpu.triangular(what, "L", "L", "N", "N", a, b)}
    routine = getattr(scipy_blas, ("s" if single else "d") + what)
    found = {"scipy": lambda a, b: routine(1.0, a, b, lower=1, overwrite_b=1)}
    if blas.mkl():
        found["mkl"] = lambda a, b: blas.triangular(what, "L", "L", "N", "N", a, b)
    return found


def ratio_rows(sizes, repeats, on):
    """Yield rows of ratios.csv."""
    random = np.random.default_rng(0)
    shapes = product(("trsm", "trmm"), (np.float64, np.float32), sizes, (None, COLUMNS))
    for what, dtype, n, columns in shapes:
        a = np.asfortranarray(np.tril(random.random((n, n)) / n + np.eye(n)), dtype=dtype)
        b = np.asfortranarray(random.random((n, columns or n)), dtype=dtype)
        if on == "gpu":
            import cupy

            a, b = (cupy.asfortranarray(cupy.asarray(x)) for x in (a, b))
        form = "fp64" if dtype is np.float64 else "fp32"
        known = libraries(what, dtype is np.float32, on)
        ours = getattr(nested, what)
        candidates = known | {"ours": lambda a, b, f=form, o=ours: o(a, b, layers=(f,))}
        seconds = timings(candidates, a, b, repeats)
        # all rows have the same columns
        ratios = dict.fromkeys(ON_GPU.values() if on == "gpu" else known)
        ratios |= {name: seconds[name] / seconds["ours"] for name in known}
        yield {
            "what": what,
            "format": form,
            "n": n,
            "columns": columns or n,
            "seconds": seconds["ours"],
            **{f"ratio_{name}": ratio for name, ratio in ratios.items()},
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--on", default="cpu", choices=("cpu", "gpu"))
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    sizes = (64,) if options.tiny else (256, 512, 1024, 2048, 4096)
    rows = []
    for row in ratio_rows(sizes, 1 if options.tiny else 5, options.on):
        rows.append(row)
        shown = (f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items())
        print(*shown, flush=True)
        name = "ratios.csv" if options.on == "cpu" else "ratios_gpu.csv"
        write_rows(options.output / name, rows)


if __name__ == "__main__":
    main()
