"""Thousands of small Cholesky factorizations: size, tiles, order, chunks, unrolling (paper 004).

    python experiments/batched/run.py [size] [variants] [solve] [--tune] [--on gpu] [--tiny]

Writes results/size.csv (geomxp beside NumPy and MKL's compact routine, 16,384 matrices: Figures 14,
20 and 21), variants.csv (variants on interleaved chunks: Figures 15, 16, 18, 19) and solve.csv
(what factorization and substitutions take of a solution: Figure 13). One thread; candidates take
turns; medians. With --tune variants are searched for first; else the shipped ones are timed.
"""

import argparse
import os
import sys
import time
from dataclasses import replace
from itertools import product
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

from geomxp.benchmarks.batched import matrices, seconds_of
from geomxp.benchmarks.bench import interleaved
from geomxp.linalg import batched
from geomxp.linalg.batched_programs import LOOKING, Variant

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import write_rows

HERE = Path(__file__).parent
TYPES = (np.float64, np.float32)
UNROLLED = 16


def size_rows(sizes, batch, rounds, on, tune):
    """Yield rows of size.csv."""
    for n, dtype in product(sizes, TYPES):
        if tune:
            batched.search(n, dtype, on)
        chosen = batched.variant_for(n, dtype, on)
        seconds = (on_gpu if on == "gpu" else seconds_of)(n, dtype, batch, rounds)
        baseline = seconds["potrfBatched" if on == "gpu" else "numpy"]
        for what, value in seconds.items():
            yield {
                "what": what,
                "dtype": np.dtype(dtype).name,
                "n": n,
                "batch": batch,
                "variant": _variant(what, chosen, n),
                "seconds": value,
                "gflops": batch * n**3 / 3 / value / 1e9,
                "speedup": baseline / value,
            }


def on_gpu(n, dtype, batch, rounds):
    """Return median seconds on a GPU: cuSOLVER's potrfBatched, and ours; packing included."""
    import cupy

    a = cupy.asarray(matrices(n, dtype, batch))
    chosen = batched.variant_for(n, dtype, "gpu")

    def timed(work):
        def run():
            work()
            cupy.cuda.get_current_stream().synchronize()

        return run

    candidates = {
        # of a batch, CuPy's is potrfBatched
        "potrfBatched": timed(lambda: cupy.linalg.cholesky(a)),
        "potrf, tuned": timed(lambda: batched.potrf(a, variant=chosen)),
        "potrf, untuned": timed(lambda: batched.potrf(a, variant=batched.ON_GPU)),
    }
    return interleaved(candidates, rounds)


def variants(n, tiles, chunks):
    """Return the variants to compare for an order."""
    found = [Variant(*each) for each in product(LOOKING, tiles, chunks) if each[1] <= n]
    if n <= UNROLLED:
        written = product(("left", "top"), (min(4, n),), chunks, (True,))
        found += [Variant(*each) for each in written]
    return found


def variant_rows(sizes, batch, rounds, tiles, chunks):
    """Yield rows of variants.csv: factorizations in place of chunks that are interleaved."""
    for n, dtype in product(sizes, TYPES):
        a = matrices(n, dtype, batch)
        layouts = {c: batched.interleave(a, c * batched.lanes_of(a.dtype)) for c in chunks}
        rooms = {c: layout.copy() for c, layout in layouts.items()}
        among = variants(n, tiles, chunks)
        candidates = {
            v: lambda v=v, rooms=rooms: batched.potrf_interleaved(rooms[v.chunk], variant=v)
            for v in among
        }
        fresh = {
            v: lambda v=v, rooms=rooms, layouts=layouts: np.copyto(rooms[v.chunk], layouts[v.chunk])
            for v in among
        }
        for variant, value in interleaved(candidates, rounds, fresh=fresh).items():
            yield {
                "n": n,
                "dtype": np.dtype(dtype).name,
                "looking": variant.looking,
                "tile": variant.tile,
                "chunk": variant.chunk * batched.lanes_of(dtype),
                "unroll": variant.unroll,
                "seconds": value,
                "gflops": batch * n**3 / 3 / value / 1e9,
            }


def solve_rows(sizes, batch, rounds):
    """Yield rows of solve.csv: the parts of a solution with one right-hand side."""
    for n, dtype in product(sizes, TYPES):
        a = matrices(n, dtype, batch)
        lower, b = batched.potrf(a), np.ones((batch, n), dtype)
        candidates = {
            "factorization": lambda a=a: batched.potrf(a),
            "forward": lambda lower=lower, b=b: batched.forward(lower, b),
            "backward": lambda lower=lower, b=b: batched.backward(lower, b),
        }
        seconds = interleaved(candidates, rounds)
        whole = sum(seconds.values())
        for part, value in seconds.items():
            yield {
                "n": n,
                "dtype": np.dtype(dtype).name,
                "part": part,
                "seconds": value,
                "share": value / whole,
            }


def _variant(what, chosen, n):
    if not what.endswith(", tuned"):
        return ""
    made = replace(chosen, chunk=2 if n <= batched.PAIRED else 1)
    return _title(made if what.startswith("interleaved") else chosen)


def _title(variant):
    return f"{variant.looking} {variant.tile} x{variant.chunk}" + " unrolled" * variant.unroll


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", nargs="*", help="size, variants, solve")
    parser.add_argument("--tiny", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--tune", action="store_true", help="search for variants first")
    parser.add_argument("--on", default="cpu", choices=("cpu", "gpu"))
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    tiny, on = options.tiny, options.on
    sizes = (5,) if tiny else (5, 8, 12, 16, 20, 24, 32, 40, 48, 56, 64)
    few = (5,) if tiny else (5, 8, 12, 16, 24, 32, 48, 64)
    batch, rounds = (64, 1) if tiny else (16384, 9)
    tiles, chunks = ((4,), (1,)) if tiny else ((1, 2, 3, 4), (1, 2, 4))
    known = {"size": lambda: size_rows(sizes, batch, rounds, on, options.tune)}
    if on == "cpu":
        known["variants"] = lambda: variant_rows(few, batch // 8, rounds, tiles, chunks)
        known["solve"] = lambda: solve_rows(few, batch // 4, rounds)
    for name in options.studies or known:
        rows, start = [], time.perf_counter()
        for row in known[name]():
            rows.append(row)
            shown = (f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items())
            print(name, *shown, flush=True)
            where = f"{name}.csv" if on == "cpu" else f"{name}_gpu.csv"
            if row is rows[0] or time.perf_counter() - start > 5:
                write_rows(options.output / where, rows)
                start = time.perf_counter()
        write_rows(options.output / where, rows)


if __name__ == "__main__":
    main()
