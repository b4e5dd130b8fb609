"""Thousands of small Cholesky factorizations and solutions in batches (paper 004).

    python experiments/batched/run.py [STUDY ...] [--tune] [--on gpu] [--tiny]

Studies, each of which writes results/STUDY.csv:

    search     the variants that a search compares, by layout (Section VII)
    size       geomxp beside NumPy and MKL's compact routine (Figures 20 and 21)
    solve      factorizations, substitutions and complete solutions (Figures 13 and 14)
    batch      the same for other numbers of matrices
    variants   tiles, order of evaluation, unrolling and chunks (Figures 15 to 19)

One thread; candidates take turns; medians. `ceiling` is the least time that the peak rates of the
same run allow, as a share of the time. With --tune the winners of `search` are kept for this
machine and used by the studies after it; else the shipped variants are timed.
"""

import argparse
import os
import sys
import time
from functools import partial
from itertools import product
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

from geomxp.benchmarks.batched import matrices, seconds_of, title
from geomxp.benchmarks.bench import interleaved
from geomxp.linalg import batched, blas
from geomxp.linalg.batched_programs import LOOKING, Variant
from geomxp.runtime.devices import blas_threads

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import ceilings, peak, write_rows

HERE = Path(__file__).parent
TYPES = (np.float64, np.float32)
BATCH = 5000
"""Matrices of all studies but `batch`. No power of two: its strides meet in few sets of a cache."""

UNROLLED = 24
"""Largest order that is unrolled: compilation takes seconds there, and minutes above."""


def rate(work, n, dtype, batch, seconds, rates=None):
    """Return columns: seconds, GFLOP/s, and the share of the time that ceilings account for.

    `work` is how many times n³/3 (factorization) and n² (substitution) operations are done, and how
    many times a triangle and a vector are read or written.
    """
    factorizations, substitutions, triangles, vectors = work
    operations = batch * (factorizations * n**3 / 3 + substitutions * n**2)
    columns = {"seconds": seconds, "gflops": operations / seconds / 1e9}
    if rates is None:
        return columns
    kind = np.dtype(dtype)
    moved = batch * kind.itemsize * (triangles * n * (n + 1) / 2 + vectors * n)
    copied = next(row["rate"] for row in rates if row["what"] == "copy" and row["cores"] == 1)
    limits = {
        "products": operations / peak(rates, "fp64" if kind == np.float64 else "fp32") / 1e9,
        "memory": moved / copied / 1e9,
    }
    limit = max(limits, key=limits.get)
    return columns | {"ceiling": limits[limit] / seconds, "limit": limit}


FACTORIZATION = (1, 0, 2, 0)
SUBSTITUTION = (0, 1, 1, 2)
BOTH = (0, 2, 1, 2)
COMPLETE = (1, 2, 2, 2)
"""Work of `rate`: a triangle is read and written, or read; a vector is read and written."""


def size_rows(sizes, batch, rounds, on, tune, rates=None):
    """Yield rows of size.csv."""
    for n, dtype in product(sizes, TYPES):
        if tune:
            batched.search(n, dtype, on)
        seconds = (on_gpu if on == "gpu" else seconds_of)(n, dtype, batch, rounds)
        baseline = seconds["potrfBatched" if on == "gpu" else "numpy"]
        for what, value in seconds.items():
            yield {
                "what": what,
                "dtype": np.dtype(dtype).name,
                "n": n,
                "batch": batch,
                "variant": title(n, dtype, what, on),
                **rate(FACTORIZATION, n, dtype, batch, value, rates),
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

    untuned = batched.by_blocks(a.shape[1], a.dtype, "potrf")
    candidates = {
        # of a batch, CuPy's is potrfBatched
        "potrfBatched": timed(lambda: cupy.linalg.cholesky(a)),
        "potrf, tuned": timed(lambda: batched.potrf(a, variant=chosen)),
        "potrf, untuned": timed(lambda: batched.potrf(a, variant=untuned)),
    }
    return interleaved(candidates, rounds)


def search_rows(sizes, batch, rounds, keep, among=None):
    """Yield rows of search.csv: what a search compares in each layout."""
    options = {"batch": batch, "rounds": rounds, "among": among}
    for n, dtype, layout in product(sizes, TYPES, batched.BATCH_LAYOUTS):
        winner, seconds = batched.fastest(n, dtype, layout=layout, **options)
        if keep:
            batched.remember(n, dtype, winner, layout=layout)
        for variant, value in seconds.items():
            yield {
                "n": n,
                "dtype": np.dtype(dtype).name,
                "layout": layout,
                **_parameters(variant),
                "seconds": value,
                "speedup": seconds[batched.UNTUNED] / value,
                "winner": variant == winner,
            }


def _parameters(variant):
    return {"looking": variant.looking, "tile": variant.tile, "chunk": variant.chunk} | {
        "unroll": variant.unroll
    }


def programs(n, tiles):
    """Return the variants of a program for an order: its looking order, tile and unrolling."""
    found = [Variant(*each) for each in product(LOOKING, tiles) if each[1] <= n]
    if n <= UNROLLED:
        found += [Variant(looking, min(4, n), unroll=True) for looking in LOOKING]
    return found


def chunks_of(dtype, most):
    """Return numbers of matrices side by side: registers, then 32 to `most`, and the batch."""
    width = batched.lanes_of(dtype)
    sizes = {width, 2 * width, *(2**k for k in range(5, 10) if 2**k <= most)}
    return [*sorted(sizes), "batch"]


def variant_rows(sizes, batch, rounds, tiles, most, rates):
    """Yield rows of variants.csv: all programs on default chunks; the best on all chunks."""
    for n, dtype in product(sizes, TYPES):
        a = matrices(n, dtype, batch)
        default = batched.interleave(a).shape[3]
        among = [(variant, default) for variant in programs(n, tiles)]
        seconds = _on_chunks(a, among, rounds)
        looped = [key for key in among if not key[0].unroll]
        best = {min(among, key=seconds.get)[0], min(looped, key=seconds.get)[0]}
        layouts = chunks_of(dtype, most)
        again = _on_chunks(a, list(product(best, layouts)), rounds)
        for (variant, lanes), value in (seconds | again).items():
            yield {
                "n": n,
                "dtype": np.dtype(dtype).name,
                "looking": variant.looking,
                "tile": variant.tile,
                "chunk": lanes,
                "unroll": variant.unroll,
                **rate(FACTORIZATION, n, dtype, batch, value, rates),
            }


def _on_chunks(a, among, rounds):
    """Return median seconds of pairs (variant, lanes) on interleaved matrices, in place."""
    kept = {lanes: batched.interleave(a, lanes) for lanes in {lanes for _, lanes in among}}
    rooms = {lanes: chunks.copy() for lanes, chunks in kept.items()}
    candidates = {
        (variant, lanes): partial(batched.potrf_interleaved, rooms[lanes], variant=variant)
        for variant, lanes in among
    }
    fresh = {key: partial(np.copyto, rooms[key[1]], kept[key[1]]) for key in among}
    return _timed(candidates, rounds, fresh)


def _timed(candidates, rounds, fresh):
    with blas_threads(0), blas.one_core():
        return interleaved(candidates, rounds, fresh=fresh)


def solve_rows(sizes, batches, rounds, rates):
    """Yield rows of solve.csv and batch.csv: a solution and its parts, one right-hand side."""
    for n, dtype, batch in product(sizes, TYPES, batches):
        a, b = matrices(n, dtype, batch), np.ones((batch, n), dtype)
        kept = batched.interleave(a)
        lower, vectors = kept.copy(), batched.interleave_vectors(b, kept)
        batched.potrf_interleaved(lower)
        room, x, factors = kept.copy(), vectors.copy(), batched.potrf(a)
        work = a.copy()
        parts = {
            "factorization": FACTORIZATION,
            "forward": SUBSTITUTION,
            "backward": SUBSTITUTION,
            "solve": BOTH,
            "complete": COMPLETE,
        }
        calls = {
            "canonical": (
                partial(batched.potrf, work, overwrite=True),
                partial(batched.forward, factors, b),
                partial(batched.backward, factors, b),
                partial(batched.solve, factors, b),
                lambda work=work, b=b: batched.solve(batched.potrf(work, overwrite=True), b),
            ),
            "interleaved": (
                partial(batched.potrf_interleaved, room),
                partial(batched.forward_interleaved, lower, x),
                partial(batched.backward_interleaved, lower, x),
                partial(batched.solve_interleaved, lower, x),
                partial(batched.posv_interleaved, room, x),
            ),
        }
        candidates = {
            (layout, part): call
            for layout in calls
            for part, call in zip(parts, calls[layout], strict=True)
        }

        def restore(work=work, a=a, room=room, kept=kept, x=x, vectors=vectors):
            for to, original in ((work, a), (room, kept), (x, vectors)):
                np.copyto(to, original)

        seconds = _timed(candidates, rounds, dict.fromkeys(candidates, restore))
        for (layout, part), value in seconds.items():
            separate = sum(seconds[layout, p] for p in ("factorization", "forward", "backward"))
            yield {
                "n": n,
                "dtype": np.dtype(dtype).name,
                "batch": batch,
                "layout": layout,
                "part": part,
                **rate(parts[part], n, dtype, batch, value, rates),
                "share": value / separate,
            }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", nargs="*", help="search, size, solve, batch, variants")
    parser.add_argument("--tiny", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--tune", action="store_true", help="keep and use the winners of search")
    parser.add_argument("--on", default="cpu", choices=("cpu", "gpu"))
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    tiny, on, tune = options.tiny, options.on, options.tune
    sizes = (5,) if tiny else (5, 8, 12, 16, 20, 24, 32, 40, 48, 56, 64, 80, 100)
    few = (5,) if tiny else (5, 8, 12, 16, 20, 24, 32, 48, 64, 100)
    batch, rounds = (64, 1) if tiny else (BATCH, 5)
    batches = (64, 96) if tiny else (1000, 10000, 16384)
    tiles, most = ((4,), 32) if tiny else ((1, 2, 3, 4, 6, 8), 512)
    among = (Variant("top", 2), Variant(chunk="batch")) if tiny else None
    rates = None
    if on == "cpu":
        rates = ceilings(256 if tiny else 2048)
    known = {"size": lambda: size_rows(sizes, batch, rounds, on, tune and on == "gpu", rates)}
    if on == "cpu":
        known = {
            "search": lambda: search_rows(few, batch, rounds, tune, among),
            **known,
            "solve": lambda: solve_rows(sizes, (batch,), rounds, rates),
            "batch": lambda: solve_rows((5,) if tiny else (8, 32), batches, rounds, rates),
            "variants": lambda: variant_rows(few, batch, rounds, tiles, most, rates),
        }
    if unknown := set(options.studies) - set(known):
        parser.error(f"studies are {', '.join(known)}. Got {', '.join(sorted(unknown))}.")
    for name in options.studies or known:
        rows, start = [], time.perf_counter()
        where = options.output / (f"{name}.csv" if on == "cpu" else f"{name}_gpu.csv")
        for row in known[name]():
            rows.append(row)
            shown = (f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items())
            print(name, *shown, flush=True)
            if row is rows[0] or time.perf_counter() - start > 5:
                write_rows(where, rows, rates)
                start = time.perf_counter()
        write_rows(where, rows, rates)


if __name__ == "__main__":
    main()
