"""Calls of each method from many Python threads at once, with two BLAS threads; prints JSON.

The number of BLAS threads is chosen before NumPy is imported: this runs in a process of its own.
"""

import faulthandler
import json
import os
import random
import sys

# idle threads of BLAS sleep at once instead of waiting busily for 0.1 s
os.environ.update(OMP_NUM_THREADS="2", OPENBLAS_NUM_THREADS="2", OPENBLAS_THREAD_TIMEOUT="4")
# far more than it takes: a deadlock ends here, with the stack of each thread
faulthandler.dump_traceback_later(600, exit=True)

from concurrent.futures import ThreadPoolExecutor  # noqa: E402
from dataclasses import replace  # noqa: E402

import numpy as np  # noqa: E402
import threadpoolctl  # noqa: E402

import geomxp as gx  # noqa: E402
from geomxp import linalg  # noqa: E402
from geomxp.runtime import devices  # noqa: E402

devices.LEAST_THREADED_ORDER = 150
"""Instead of 600: BLAS has two threads for small data, whose calls are brief."""

TOGETHER, MANY, FEW = 64, 53, 3
"""Threads; calls of each method; calls of methods that take long."""

rng = np.random.default_rng(58)
model = gx.Matern(1.3, 0.15, 0.8, nugget=0.2)
names = tuple(model.parameters())


def seen(n):
    return gx.Observations(rng.random((n, 2)), rng.standard_normal(n))


small, large = seen(120), seen(230)
places = rng.random((40, 2))
fits = {
    size: gx.fit(data, model, fixed=names, trend="linear")
    for size, data in (("small", small), ("large", large))
}
narrow = gx.Matern(1.0, 0.0005, 0.5)
matrix = rng.standard_normal((230, 230))
matrix = np.asfortranarray(matrix @ matrix.T + 230 * np.eye(230))


def likelihood(data, method, *, of=model, reml=False):
    def call():
        found = gx.log_likelihood(data, of, method, trend="linear", reml=reml)
        return [found.log_likelihood, found.log_determinant, found.quadratic_form]

    return call


def derivatives(data, method):
    def call():
        found = method.prepare(data, np.ones((len(data), 1)), False)
        found = found.derivatives(model, names, curvature=True)
        return [found.score, found.information]

    return call


def predictions(fit, **options):
    def call():
        found = gx.predict(fit, places, **options)
        return [found.mean, found.variance]

    return call


coarse, low_rank = gx.for_divergence(1e-3), gx.for_divergence(1e-3, low_rank=True)
of_tiles = replace(fits["small"], method=gx.Exact(coarse, tile=32))
often = {
    "exact": likelihood(small, gx.Exact()),
    "exact, REML": likelihood(small, gx.Exact(), reml=True),
    "exact, two threads": likelihood(large, gx.Exact()),
    "exact, subnormal numbers": likelihood(large, gx.Exact(), of=narrow),
    "FP64 tiles": likelihood(small, gx.Exact(tile=32)),
    "by_tile_norm": likelihood(small, gx.Exact(gx.by_tile_norm(1e-5), tile=32)),
    "conjugate gradients": likelihood(small, gx.Exact(gx.by_tile_norm(1e-3), tile=40, refine="cg")),
    "layered": likelihood(small, gx.Exact(gx.layered("fp16", "fp32"), tile="whole")),
    "Vecchia": likelihood(large, gx.Vecchia(12)),
    "Vecchia, REML": likelihood(large, gx.Vecchia(12), reml=True),
    "predict": predictions(fits["small"]),
    "predict, two threads": predictions(fits["large"]),
    "predict, neighbours": predictions(fits["large"], neighbours=20),
    "simulate": lambda: [gx.simulate(fits["small"], places, draws=2, seed=3)],
    "simulate, two threads": lambda: [gx.simulate(model, large.locations, draws=2, seed=3)],
    "covariance": lambda: [gx.prediction_covariance(fits["large"], places)],
    "variogram": lambda: [gx.variogram(large, trend="linear").to_frame()["semivariance"]],
    "linalg.potrf": lambda: [linalg.potrf(matrix.copy(order="F"))],
    "linalg.trsm": lambda: [linalg.trsm(matrix, matrix[:, :100].copy(order="F"))],
}
seldom = {
    "for_divergence": likelihood(small, gx.Exact(coarse, tile=32)),
    "tiles, two threads": likelihood(large, gx.Exact(coarse, tile=60)),
    "out of core": likelihood(small, gx.Exact(coarse, tile=32, memory="150kB")),
    "low rank": likelihood(small, gx.Exact(low_rank, tile=40)),
    "predict, tiles": predictions(of_tiles),
    "derivatives": derivatives(small, gx.Exact()),
    "derivatives, two threads": derivatives(large, gx.Exact()),
    "derivatives, tiles": derivatives(small, gx.Exact(coarse, tile=32)),
    "derivatives, Vecchia": derivatives(large, gx.Vecchia(12)),
    "leave-one-out": lambda: [gx.leave_one_out(fits["large"]).mean],
    "folds": lambda: [gx.cross_validate(fits["small"], 3).mean],
    "divergence": lambda: [gx.estimate_divergence(model, small, gx.Exact(coarse, tile=32)).kl],
    "F test": lambda: [
        replace(fits["large"]).coefficient_table().select_dtypes("number").to_numpy()
    ],
    "fit": lambda: [list(gx.fit(small, model, fixed=("smoothness",)).model.parameters().values())],
}
calls = often | seldom


def bits(name):
    return b"".join(np.ascontiguousarray(part, float).tobytes() for part in calls[name]())


def blas():
    libraries = threadpoolctl.threadpool_info()
    return [one["num_threads"] for one in libraries if one["user_api"] == "blas"]


def main():
    alone, differ = {name: bits(name) for name in calls}, {}
    # a lone call has the number of threads that it asks for, whatever that of the process is
    with threadpoolctl.threadpool_limits(1):
        differ["alone"] = [name for name in calls if bits(name) != alone[name]]
    devices.LEAST_THREADED_ORDER, limit = 10**9, devices.LEAST_THREADED_ORDER
    depend = [name for name in calls if bits(name) != alone[name]]
    devices.LEAST_THREADED_ORDER, before = limit, blas()
    todo = [name for name in often for _ in range(MANY)] + [*seldom] * FEW
    random.Random(0).shuffle(todo)
    with ThreadPoolExecutor(TOGETHER) as pool:
        found = list(zip(todo, pool.map(bits, todo), strict=True))
    differ["together"] = sorted({name for name, some in found if some != alone[name]})
    about = {"calls": len(found), "before": before, "after": blas()}
    return about | {"differ": differ, "depend": depend}


if __name__ == "__main__":
    json.dump(main(), sys.stdout)
