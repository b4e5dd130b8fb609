"""Stage n: profiles of factorizations, with CUDA traces from PyTorch's profiler."""

import json
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import vendor
from harness import RANGES, LeftOut, load, tried
from tiles import parts

import geomxp as gx
from geomxp.linalg import nested
from geomxp.tiles.on_gpu import _Run

RUNS = 6
"""Number of timed runs without the profiler, after one run that compiles."""

KERNELS, CALLS = 15, 8
"""Numbers of kernels and of CUDA calls that are listed, those with the longest total time."""

BY_NORM = (("weak", 1e-5), ("medium", 1e-5), ("weak", 1e-6))


def profiles(machine, budget):
    """Stage n: launches, busy seconds, kernels and CUDA calls, by norm and in layers."""
    n, tile, by_norm = (160, 32, BY_NORM[:1]) if machine.tiny else (65_536, 4096, BY_NORM)
    places = load("static_schedule_mxp").places(n)
    operations = {
        f"by norm, {name}, {accuracy:g}, tile {tile}": partial(
            _by_norm, machine, places, name, accuracy, tile
        )
        for name, accuracy in by_norm
    }
    operations["potrf, fp16 x5 fp32"] = partial(_layered, machine, n)
    for operation, prepare in operations.items():
        row = {"operation": operation, "n": n}
        if budget.left < 1:
            yield row | {"note": "the time limit is reached"}
            continue
        kept = {}
        yield tried(row | {"kind": "whole"}, partial(_timed, machine, prepare, kept))
        if kept:
            yield from _traced_rows(machine, row, *kept["work"])
        kept.clear()
        machine.give_back()


def _by_norm(machine, places, name, accuracy, tile):
    """Return functions that prepare nothing, and run one factorization by norm: its seconds."""
    model, rule = gx.Matern(1.0, RANGES[name], 0.5), gx.by_tile_norm(accuracy)
    return lambda: None, lambda: parts(machine, model, places, rule, tile)["seconds"]


def _layered(machine, n):
    """Return functions that fill paper 000's matrix, and factor it in layers: the seconds."""
    target = vendor.empty(machine, (n, n))

    def work():
        start = time.perf_counter()
        nested.potrf(target, ("fp16",) * 5 + ("fp32",))
        machine.finish()
        return time.perf_counter() - start

    return lambda: vendor.fill(machine, target, 2, n), work


def _timed(machine, prepare, kept):
    """Return the seconds of several runs, and the CPU seconds spent issuing tile operations."""
    issuing, issue = [], _Run.issue

    def timed_issue(run):
        start = time.perf_counter()
        issue(run)
        issuing.append(time.perf_counter() - start)

    def run():
        fresh()
        machine.finish()
        return work()

    fresh, work = prepare()
    _Run.issue = timed_issue
    try:
        run()
        issuing.clear()
        seconds = [run() for _ in range(2 if machine.tiny else RUNS)]
    finally:
        _Run.issue = issue
    kept["work"] = fresh, work
    return {
        "seconds": float(np.median(seconds)),
        "seconds_issuing": float(np.median(issuing)) if issuing else None,
        "all_seconds": " ".join(f"{one:.4f}" for one in seconds),
        "all_seconds_issuing": " ".join(f"{one:.4f}" for one in issuing),
    }


def _traced_rows(machine, row, fresh, work):
    """Yield rows of a traced run: its total, and the longest kernels and calls of CUDA."""
    found = {}
    yield tried(row | {"kind": "whole, traced"}, partial(_traced, machine, fresh, work, found))
    for kind, events in found.items():
        for name, (count, seconds) in events:
            yield row | {"kind": kind, "name": name, "count": count, "seconds": seconds}


def _traced(machine, fresh, work, found):
    """Trace a run, norms included; return its seconds, launches, and the GPU's busy seconds."""
    if not machine.gpu:
        raise LeftOut("only runs on a GPU are traced")
    try:
        from torch.profiler import ProfilerActivity, profile
    except ModuleNotFoundError:
        raise LeftOut("PyTorch, whose profiler traces CUDA, is not installed") from None
    fresh()
    machine.finish()
    with profile(activities=[ProfilerActivity.CUDA]) as traced:
        start = time.perf_counter()
        work()
        seconds = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        traced.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    of = {"kernel": ("kernel", "gpu_memcpy", "gpu_memset"), "call": ("cuda_runtime", "cuda_driver")}
    chosen = {kind: [e for e in events if e.get("cat") in cats] for kind, cats in of.items()}
    for kind, most in (("kernel", KERNELS), ("call", CALLS)):
        found[kind] = _longest(chosen[kind], most)
    busy, gaps = _busy(chosen["kernel"])
    return {
        "seconds": seconds,
        "seconds_busy": busy,
        "count": sum(e["cat"] == "kernel" for e in chosen["kernel"]),
        "seconds_in_gaps_above_0.1_ms": sum(gap for gap in gaps if gap > 1e-4),
        "gaps_above_0.1_ms": sum(gap > 1e-4 for gap in gaps),
    }


def _longest(events, most):
    """Return (name, (count, seconds)) of the events that take longest together."""
    sums = {}
    for event in events:
        count, seconds = sums.get(event["name"], (0, 0.0))
        sums[event["name"]] = count + 1, seconds + 1e-6 * event["dur"]
    longest = sorted(sums.items(), key=lambda item: -item[1][1])[:most]
    return [(name[:120], numbers) for name, numbers in longest]


def _busy(events):
    """Return the seconds in which at least one event runs, and the gaps between."""
    busy, gaps, end = 0.0, [], None
    for start, stop in sorted((e["ts"], e["ts"] + e["dur"]) for e in events):
        if end is not None and start > end:
            gaps.append(1e-6 * (start - end))
        busy += max(0.0, stop - (start if end is None else max(start, end)))
        end = stop if end is None else max(end, stop)
    return 1e-6 * busy, gaps
