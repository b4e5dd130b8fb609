"""Formats by norm: a matrix that is halved recursively beside tiles, at equal backward errors.

    python experiments/tree/run.py [cpu] [--n 8192] [--rounds 3] [--tiny]
    python experiments/tree/run.py h200 [--tiny]

`cpu` writes results/cpu.csv: factorizations of Matérn matrices on one core, in turns: bytes,
products, CPU seconds and backward errors. Tiles have the largest ε for which the error that their
formats promise is at most that of the tree.

`h200` writes results/h200.csv: one log-likelihood of 65,536 locations with the same ε for all,
predicted for an H200 from the operations that the CUDA emulator records (experiments/h200/model.py;
a problem of 4,096 locations with as many blocks stands for it).
"""

import argparse
import os
import sys
import time
from itertools import count
from pathlib import Path
from statistics import median
from unittest.mock import patch

import numpy as np

import geomxp as gx
from geomxp import testing
from geomxp.likelihood.factors import exact_norms, originals_of, tile_factor
from geomxp.linalg import mixed
from geomxp.tiles.placement import InMemory
from geomxp.tiles.tree import Solve, Tree, Update

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "h200")]
from common import TINY, resume

RESULTS = Path(__file__).parent / "results"
RANGES = {"weak": 0.02627, "medium": 0.078809, "strong": 0.210158}
ACCURACIES = (1e-5, 1e-6, 1e-8)
WHOLE = "whole"
PROBES = 32


def model_of(correlation):
    """Return the model whose matrix is factored."""
    return gx.Matern(1.0, RANGES[correlation], 0.5, 0.01)


# on a CPU


def norms_of(model, seen, tile, rule):
    """Return the norms of tiles and their layout."""
    _, _, originals = originals_of(model, seen, tile, InMemory())
    return exact_norms(rule, originals)(), originals.layout


def promised(model, seen, tile):
    """Return a function from ε to the error that the formats of tiles promise."""
    norms, layout = norms_of(model, seen, tile, gx.by_tile_norm(1.0))

    def error(accuracy):
        rule = gx.by_tile_norm(accuracy)
        if layout.joined:
            return rule.joined(norms, layout.heights, layout.joined).error
        return rule(norms).error

    return error


def as_accurate(error, target, start):
    """Return the largest ε, to 2 %, whose formats promise an error of at most `target`."""
    low, high = start / 1e3, start * 1e3
    while high / low > 1.02:
        middle = np.sqrt(low * high)
        low, high = (middle, high) if error(middle) <= target else (low, middle)
    return float(f"{low:.3g}")


def products_of(factor):
    """Return the numbers of products and solves of a factorization."""
    store, tiles = factor.store, factor.store.layout.tiles
    if not isinstance(store, Tree):
        return tiles * (tiles**2 - 1) // 6, tiles * (tiles - 1) // 2
    numbers = count(len(store.parts))
    steps = [step for part in store.parts for step in store.steps(part, numbers)]
    products = sum(len(step.pairs) for step in steps if isinstance(step, Update))
    return products, sum(isinstance(step, Solve) for step in steps) - tiles


def error_of(factor, model, seen):
    """Estimate ‖Σ - LL'‖_F / ‖Σ‖_F from random vectors."""
    order = factor.order
    x = np.random.default_rng(0).standard_normal((len(seen), PROBES))
    lower = factor.dense()
    missed = lower @ (lower.T @ x)
    inputs, squares = seen.inputs[order], 0.0
    for first in range(0, len(seen), 512):
        rows = slice(first, min(first + 512, len(seen)))
        sigma = model.matrix(inputs[rows], inputs)
        sigma[np.arange(rows.stop - first), np.arange(first, rows.stop)] += model.nugget
        missed[rows] -= sigma @ x
        squares += (sigma**2).sum()
    return float(np.linalg.norm(missed) / np.sqrt(PROBES * squares))


def on_cpu(rounds):
    """Return a function that yields the rows of a matrix and an ε."""

    def rows(n, correlation, accuracy):
        model, seen = model_of(correlation), testing.observations(n)
        kinds = (WHOLE, *(tile for tile in (256, 512, 1024) if tile < n))
        target, rules = promised(model, seen, WHOLE)(accuracy), {}
        for tile in kinds:
            own = accuracy
            if tile != WHOLE:
                own = as_accurate(promised(model, seen, tile), target, accuracy)
            rules[tile] = gx.by_tile_norm(own)
        seconds = {tile: [] for tile in kinds}
        for _ in range(rounds):
            for tile, rule in rules.items():
                began = time.process_time()
                tile_factor(model, seen, rule, tile)
                seconds[tile].append(time.process_time() - began)
        for tile, rule in rules.items():
            factor = tile_factor(model, seen, rule, tile)
            products, solves = products_of(factor)
            yield {
                "blocks": "tree" if tile == WHOLE else f"tiles of {tile}",
                "own_accuracy": rule.accuracy,
                "promised_error": factor.precision_map.error,
                "error": error_of(factor, model, seen),
                "bytes": factor.nbytes / (4 * n * (n + 1)),
                "products": products,
                "solves": solves,
                "cpu_seconds": median(seconds[tile]),
            }

    return rows


# on an H200, predicted


BEFORE = "tiles of 4096, squares in FP64"
KINDS = {"tree": WHOLE, "tiles of 4096": 4096, "tiles of 2048": 2048, BEFORE: 4096}


def on_h200(n, correlation, accuracy):
    """Yield the rows of a matrix and an ε."""
    import model as h200

    h200.emulator()
    size, machine = h200.Small(4096, n), h200.Machine("h200", streams=h200.STREAMS)
    for kind, tile in KINDS.items():
        small = tile if tile == WHOLE else int(tile / size.scale)
        largest = n if kind == BEFORE else mixed.LARGEST_FP64_SQUARE
        with patch.object(mixed, "LARGEST_FP64_SQUARE", largest):
            method = gx.Exact(gx.by_tile_norm(accuracy), tile=small, on="gpu")
            evaluator, model = method.prepare(testing.observations(size.n)), model_of(correlation)
            # evaluators keep the last result
            variances = iter((1.5, 1.0))
            work = h200.recorded(
                lambda e=evaluator, m=model, v=variances: e(m.replace(variance=next(v))),
                size.scale,
            )
        done = h200.predict(work, machine)
        shares = sorted(done.shares.items(), key=lambda item: -item[1])[:5]
        yield {
            "blocks": kind,
            "predicted_seconds": done.seconds,
            "launches": done.launches,
            "synchronizations": done.synchronizations,
            "products": sum(operation.kind in ("gemm", "syrk") for operation in work),
            "limit": done.limit,
            "shares": ", ".join(f"{name} {took / done.seconds:.0%}" for name, took in shares),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("cpu", "h200"), nargs="?", default="cpu")
    parser.add_argument("--n", type=int, default=1024 if TINY else 8192)
    parser.add_argument("--rounds", type=int, default=1 if TINY else 3)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--every", default="0/1", help="part/of: some of the matrices")
    parser.add_argument("--anew", action="store_true", help="replace all rows")
    parser.add_argument("--tiny", action="store_true", help="show that it runs")
    given = parser.parse_args()
    n = given.n if given.what == "cpu" else 65_536
    cells = [
        {"n": n, "correlation": correlation, "accuracy": accuracy}
        for correlation in RANGES
        for accuracy in ACCURACIES
    ]
    if given.what == "cpu" and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rows = on_cpu(given.rounds) if given.what == "cpu" else on_h200
    path = given.output / f"{given.what}.csv"
    every = tuple(map(int, given.every.split("/")))
    resume(path, cells[:1] if TINY else cells, rows, every=every, anew=given.anew)


if __name__ == "__main__":
    main()
