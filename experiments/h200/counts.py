"""Count the launches, synchronizations and transferred bytes of GPU code on the emulator.

    python experiments/h200/counts.py [--output FILE]

The problems are small. Launches and synchronizations depend on the number of blocks and not on
their order, so those at the paper's sizes follow from them. Each kernel and each library call
counts as one launch. Rows are written to results/counts.csv.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
TESTS = HERE.parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "cuda_emulator" / "packages")]

import cupy  # noqa: E402
from cuda_emulator import machine  # noqa: E402
from harness import RANGES, Table, provenance  # noqa: E402

import geomxp as gx  # noqa: E402
from geomxp import testing  # noqa: E402
from geomxp.likelihood.factors import tile_factor  # noqa: E402
from geomxp.linalg import nested  # noqa: E402
from geomxp.tiles.placement import Placement  # noqa: E402

TILE, TILES, LEAF, LEAVES = 64, 16, 32, 32
COUNTED = (
    *("launches", "library calls", "synchronizations", "copies", "bytes to device"),
    *("bytes to host", "allocations", "segments", "handles created", "streams created"),
    "events created",
)
LAYERS = (("fp64",), ("fp32",), ("fp16", "fp32"), ("fp16",) * 5 + ("fp32",))


def counted(work):
    """Return the counts of a second call, when kernels are compiled and lasting copies are made."""
    work()
    machine.synchronize_device()
    with machine.counting() as counts:
        work()
    return {name.replace(" ", "_"): counts[name] for name in COUNTED}


def matrices():
    """Yield names and positive definite matrices: the paper's, and covariances."""
    n = LEAF * LEAVES
    yield "random", np.random.default_rng(0).random((n, n)) + n * np.eye(n)
    places = testing.places(n)
    for name, model_range in RANGES.items():
        model = gx.Matern(1.0, model_range, 0.5, nugget=0.01)
        yield name, model(places, places) + 0.01 * np.eye(n)


def factorizations():
    """Yield the counts of nested POTRF with 32 leaves."""
    for name, matrix in matrices():
        for layers in LAYERS:
            a = cupy.asarray(np.asfortranarray(matrix))

            def work(a=a, matrix=matrix, layers=layers):
                a.set(matrix)
                nested.potrf(a, layers, leaf=LEAF)

            row = counted(work)
            # without the copy of the matrix itself
            row["bytes_to_device"] -= matrix.nbytes
            row["copies"] -= 1
            yield {"what": "nested potrf", "case": f"{name} {' '.join(layers)}"} | row


def tiles():
    """Yield the counts of tile Cholesky by norms, 16 by 16 tiles, in core and out of core (V3)."""
    n = TILE * TILES
    for name, model_range in RANGES.items():
        seen = testing.observations(n)
        model = gx.Matern(1.0, model_range, 0.5, nugget=0.01)
        for accuracy in (1e-5, 1e-8):
            rule = gx.by_tile_norm(accuracy)
            for memory, what in ((None, "by norms"), (2**20, "by norms, out of core")):
                placement = Placement.of("gpu", device_memory=memory)

                def work(placement=placement, seen=seen, model=model, rule=rule):
                    tile_factor(model, seen, rule, TILE, placement).store.close()

                yield {"what": what, "case": f"{name} {accuracy:g}"} | counted(work)


def likelihoods():
    """Yield the counts of one likelihood and one score, exact and by Vecchia's approximation."""
    n, model = TILE * TILES, gx.Matern(1.0, RANGES["medium"], 0.8, nugget=0.01)
    seen, many = testing.observations(n), testing.observations(4 * n)
    methods = {
        "exact fp64": (gx.Exact(on="gpu"), seen),
        "exact by norms": (gx.Exact(gx.by_tile_norm(1e-6), tile=TILE, on="gpu"), seen),
        "vecchia 30": (gx.Vecchia(30, on="gpu"), many),
    }
    for name, (method, observations) in methods.items():
        evaluator, variances = method.prepare(observations), iter(range(1, 100))

        def at(evaluator=evaluator, variances=variances):
            # a new model each time: evaluators keep the results of the last one
            return evaluator, gx.Matern(next(variances), model.range, 0.8, 0.01)

        def likelihood(at=at):
            evaluator, there = at()
            evaluator(there)

        def score(at=at):
            evaluator, there = at()
            evaluator.gradient(there)

        yield {"what": "likelihood", "case": name} | counted(likelihood)
        if name != "exact by norms":
            yield {"what": "score", "case": name} | counted(score)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=HERE / "results" / "counts.csv")
    about = provenance() | {"device": "CUDA emulator"}
    table = Table(parser.parse_args().output, about)
    for stage in (factorizations, tiles, likelihoods):
        for row in stage():
            table.add(row)
            print(row, flush=True)


if __name__ == "__main__":
    main()
