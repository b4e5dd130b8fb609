"""Stage i: thousands of small factorizations at once."""

import multiprocessing
import time
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
from ceilings import DTYPES
from harness import FAILED, Prediction, load, reason, tried

from geomxp.linalg import batched, batched_gpu
from geomxp.runtime.devices import usable_cores


def batches(machine, budget):
    """Stage i: small factorizations, tuned, beside potrfBatched (NumPy's and MKL's on a CPU)."""
    study, batch = load("batched"), 64 if machine.tiny else 16_384
    prediction = Prediction(1)
    sizes = machine.sizes(5, 8, 12, 16, 24, 32, 48, 64, 96, 128, tiny=(5,))
    if machine.gpu:
        _compile(sizes[::-1])
    for n in sizes:
        if why := budget.refuses(prediction.of(n)):
            yield {"n": n, "note": why}
            continue
        start = time.perf_counter()
        for form in ("fp64", "fp32"):
            yield from _searched(machine, n, DTYPES[form], batch)
        try:
            yield from study.size_rows((n,), batch, 1 if machine.tiny else 5, machine.on, False)
        except Exception as error:
            yield {"n": n, "note": FAILED + reason(error)}
        for form in ("fp64", "fp32"):
            yield from _alone(machine, study.matrices(n, DTYPES[form], batch))
        prediction.learn(n, time.perf_counter() - start)
        machine.give_back()


def _compile(sizes):
    """Compile the variants of a search on all cores: CuPy keeps them on disk."""
    start = multiprocessing.get_context("spawn")
    with start.Pool(max(1, usable_cores() - 1)) as pool:
        for _ in pool.imap_unordered(_compiled, product(sizes, DTYPES.values()), 1):
            pass


def _compiled(case):
    import cupy

    n, dtype = case
    a = cupy.asarray(load("batched").matrices(n, dtype, 64))
    for variant in batched.candidates(n, "gpu", dtype):
        batched.potrf(a, variant=variant, check=False)


def _searched(machine, n, dtype, batch):
    """Rows of each variant of a search, whose winners later calls use, and of fast roots.

    The rehearsal times one variant of each kind, and remembers none.
    """
    kinds = {layout: {"layout": layout, "what": "potrf"} for layout in batched.BATCH_LAYOUTS}
    if machine.gpu:
        kinds["solve"] = {"layout": "canonical", "what": "solve"}
    for name, kind in kinds.items():
        row = {"what": f"search, {name}", "dtype": np.dtype(dtype).name, "n": n, "batch": batch}
        try:
            seconds = _race(machine, n, dtype, batch, kind)
        except Exception as error:
            yield row | {"note": FAILED + reason(error)}
            continue
        operations = batch * (2 * n**2 if name == "solve" else n**3 / 3)
        for variant, value in seconds.items():
            rate = {"seconds": value, "gflops": operations / value / 1e9}
            yield row | {"variant": variant.title} | rate


def _race(machine, n, dtype, batch, kind):
    """Return median seconds by variant."""
    if machine.tiny:
        among = batched.candidates(n, machine.on, dtype, **kind)
        kept = {(v.chunk != 0, v.panel > 0, bool(v.block)): v for v in among}.values()
    else:
        winner, seconds = batched.search(n, dtype, machine.on, batch=batch, **kind)
        kept = [winner]
    if machine.gpu and kind["what"] == "potrf":
        kept = [*kept, *(replace(v, fast=True) for v in kept)]
    a = load("batched").matrices(n, dtype, batch)
    raced = batched.race(kept, a, machine.on, 1 if machine.tiny else 7, **kind)
    return raced if machine.tiny else seconds | raced


def _alone(machine, a):
    """Rows without copies, packing or checks: our kernel on chunks, the vendor's in place."""
    batch, n, _ = a.shape
    row = {"dtype": a.dtype.name, "n": n, "batch": batch}
    ways = {"kernel alone, interleaved": _ours}
    if machine.gpu:
        ways["potrfBatched alone, in place"] = _vendors
    for what, way in ways.items():
        yield tried(row | {"what": what}, partial(_timed, machine, a, way))


def _timed(machine, a, way):
    work, fresh, about = way(machine, a)
    seconds, (batch, n, _) = machine.seconds(work, 5, fresh), a.shape
    return about | {"seconds": seconds, "gflops": batch * n**3 / 3 / seconds / 1e9}


def _ours(machine, a):
    """Return the factorization of chunks in place, what makes them anew, and the variant."""
    n, variant = a.shape[1], batched.variant_for(a.shape[1], a.dtype, machine.on)
    if machine.gpu and not variant.chunk:
        # nothing is interleaved
        kept = machine.xp.asarray(a)
        chunks = kept.copy()
        work = batched_gpu.launcher(chunks, chunks, machine.xp.zeros(len(a) + 1, np.int64), variant)
    else:
        variant = batched.variant_for(n, a.dtype, machine.on, layout="interleaved")
        kept = batched.interleave(machine.xp.asarray(a))
        chunks = kept.copy()
        alone = batched_gpu.factor_chunks if machine.gpu else batched.potrf_interleaved
        work = partial(alone, chunks, variant=variant)
    return work, lambda: chunks.__setitem__(..., kept), {"variant": variant.title}


def _vendors(machine, a):
    """As `_ours`, of cuSOLVER, which takes an array of addresses."""
    from cupy.cuda.device import get_cusolver_handle
    from cupy_backends.cuda.libs import cublas, cusolver

    xp, (batch, n, _) = machine.xp, a.shape
    kept = xp.asarray(a)
    room, info = kept.copy(), xp.zeros(batch, np.int32)
    first, step = room.data.ptr, n * n * a.itemsize
    places = xp.asarray(first + step * np.arange(batch, dtype=np.uint64))
    routine = cusolver.spotrfBatched if a.dtype == np.float32 else cusolver.dpotrfBatched
    handle = get_cusolver_handle()

    def work():
        # by rows a lower triangle is an upper one
        upper = cublas.CUBLAS_FILL_MODE_UPPER
        routine(handle, upper, n, places.data.ptr, n, info.data.ptr, batch)

    return work, lambda: room.__setitem__(..., kept), {}
