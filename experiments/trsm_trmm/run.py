"""Recursive TRSM and TRMM beside vendor libraries: runtime ratios, as those of paper 003.

    python experiments/trsm_trmm/run.py [ratios] [leaves] [--on gpu] [--tiny]

Writes results/ratios.csv: square matrices, and rectangular right-hand sides of 256 columns (or
rows), in FP64 and FP32, lower triangles, from the left and from the right, transposed or not, on
one core and on all usable cores; worst.csv: the smallest ratio of each case; and leaves.csv: the
ratio by the size of the leaves, on one core. Medians of interleaved runs. A ratio above 1 says that
ours is faster. On a GPU the baseline of TRMM is not a library: see `ON_GPU`.
"""

import argparse
import sys
from itertools import product
from pathlib import Path

import numpy as np
from scipy.linalg import blas as scipy_blas

from geomxp.linalg import blas, nested
from geomxp.runtime.devices import usable_cores

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import ceilings, peak, timings, write_rows

HERE = Path(__file__).parent
COLUMNS = 256
CASES = (("L", "N"), ("L", "T"), ("R", "N"), ("R", "T"))
"""Side and transposition."""

LEAVES = (256, 512, 1024, 2048)
ON_GPU = {"trsm": "cublas", "trmm": "masked_product"}
"""Baselines on a GPU: CuPy has no trmm, and a product by a full copy of the triangle stands in."""


def libraries(what, single, on, side="L", trans="N"):
    """Return {baseline: work(a, b)} for B <- op(L)⁻¹B or op(L)B, or from the right."""
    letters = side, "L", trans, "N"
    if on == "gpu":
        from geomxp.linalg import gpu

        return {ON_GPU[what]: lambda a, b: gpu.triangular(what, *letters, a, b)}
    routine = getattr(scipy_blas, ("s" if single else "d") + what)
    about = {"side": side == "R", "lower": 1, "trans_a": trans == "T", "overwrite_b": 1}
    found = {"scipy": lambda a, b: routine(1.0, a, b, **about)}
    if blas.mkl():
        found["mkl"] = blas.library("MKL")(lambda a, b: blas.triangular(what, *letters, a, b))
    return found


def operands(n, columns, dtype, on, side="L"):
    """Return a triangle and a right-hand side, in Fortran order."""
    random = np.random.default_rng(0)
    a = np.asfortranarray(np.tril(random.random((n, n)) / n + np.eye(n)), dtype=dtype)
    shape = (n, columns) if side == "L" else (columns, n)
    b = np.asfortranarray(random.random(shape), dtype=dtype)
    if on == "gpu":
        import cupy

        a, b = (cupy.asfortranarray(cupy.asarray(x)) for x in (a, b))
    return a, b


def repeats_for(n, tiny):
    """Return how often a case is timed: short ones more often."""
    return 1 if tiny else min(101, max(5, 4 * (4096 // n) ** 2))


def ratio_rows(sizes, on, tiny, rates):
    """Yield rows of ratios.csv."""
    every = (None,) if on == "gpu" else sorted({1, usable_cores()})
    both = ("trsm", "trmm"), (np.float64, np.float32)
    shapes = product(*both, every, CASES, sizes, (None, COLUMNS))
    for what, dtype, cores, (side, trans), n, columns in shapes:
        if columns == n:
            # as the square case
            continue
        a, b = operands(n, columns or n, dtype, on, side)
        form = "fp64" if dtype is np.float64 else "fp32"
        known = libraries(what, dtype is np.float32, on, side, trans)
        call, about = getattr(nested, what), {"side": side, "trans": trans, "layers": (form,)}
        candidates = known | {"ours": lambda a, b, c=call, about=about: c(a, b, **about)}
        seconds = timings(candidates, a, b, repeats_for(n, tiny), cores or 1, len(known) == 1)
        rate = n * b.size / seconds["ours"] / 1e9
        # all rows have the same columns
        ratios = dict.fromkeys(ON_GPU.values() if on == "gpu" else known)
        ratios |= {name: seconds[name] / seconds["ours"] for name in known}
        yield {
            "what": what,
            "format": form,
            "side": side,
            "trans": trans,
            "n": n,
            "columns": columns or n,
            "cores": cores or "",
            "seconds": seconds["ours"],
            "gflops": rate,
            "share_of_product": "" if rates is None else rate / peak(rates, form, cores),
            "ratio": min(seconds[name] for name in known) / seconds["ours"],
            **{f"ratio_{name}": ratio for name, ratio in ratios.items()},
        }


def worst_rows(rows):
    """Return the smallest and the median ratio to the faster library over n, by case."""
    groups = {}
    for row in rows:
        square = row["columns"] == row["n"]
        shape = "square" if square else f"{row['columns']} columns"
        key = *(row[name] for name in ("what", "format", "cores", "side", "trans")), shape
        groups.setdefault(key, []).append(row)
    names = "what", "format", "cores", "side", "trans", "shape"
    result = []
    for key, group in groups.items():
        least = min(group, key=lambda row: row["ratio"])
        ratios = [row["ratio"] for row in group]
        about = {"worst": least["ratio"], "at_n": least["n"], "median": float(np.median(ratios))}
        result.append(dict(zip(names, key, strict=True)) | about)
    return result


def leaf_rows(sizes, tiny):
    """Yield rows of leaves.csv: left, not transposed, on one core."""
    shapes = product(("trsm", "trmm"), (np.float64, np.float32), sizes, (None, COLUMNS))
    for what, dtype, n, columns in shapes:
        a, b = operands(n, columns or n, dtype, "cpu")
        form = "fp64" if dtype is np.float64 else "fp32"
        known, call = libraries(what, dtype is np.float32, "cpu"), getattr(nested, what)
        leaves = [leaf for leaf in LEAVES if leaf < n] + [n]
        candidates = known | {
            leaf: lambda a, b, c=call, leaf=leaf, form=form: c(a, b, layers=(form,), leaf=leaf)
            for leaf in leaves
        }
        seconds = timings(candidates, a, b, repeats_for(n, tiny))
        best = min(seconds[name] for name in known)
        for leaf in leaves:
            about = {"what": what, "format": form, "n": n, "columns": columns or n, "leaf": leaf}
            yield about | {"seconds": seconds[leaf], "ratio": best / seconds[leaf]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", nargs="*", help="ratios, leaves; both if none is named")
    parser.add_argument("--tiny", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--on", default="cpu", choices=("cpu", "gpu"))
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    on, tiny = options.on, options.tiny
    sizes = (64, 512) if tiny else (256, 512, 1024, 2048, 4096)
    rates = None if on == "gpu" else ceilings(256 if tiny else 2048)
    known = {"ratios": lambda: ratio_rows(sizes, on, tiny, rates)}
    if on == "cpu":
        known["leaves"] = lambda: leaf_rows(sizes if tiny else sizes[2:], tiny)
    end = ".csv" if on == "cpu" else "_gpu.csv"
    for name in options.studies or known:
        rows = []
        for row in known[name]():
            rows.append(row)
            shown = (f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items())
            print(name, *shown, flush=True)
            write_rows(options.output / f"{name}{end}", rows, rates)
        if name == "ratios":
            write_rows(options.output / f"worst{end}", worst_rows(rows), rates)


if __name__ == "__main__":
    main()
