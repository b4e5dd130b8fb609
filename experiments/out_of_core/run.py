"""Matrices larger than memory: policies, volumes, rates, the simulator (paper 001, Figures 5-13).

    python experiments/out_of_core/run.py [NAME ...] [--tiny] [--anew]
    python experiments/out_of_core/run.py gpu --on gpu --device-memory 20GB

Measured on this machine, RAM over a disk: volume.csv (bytes and seconds of all policies, with the
planned bytes and simulated seconds; Figure 8), mixed.csv (planned and measured bytes with formats
by norm; Figure 12), rate.csv (rate against n past the budget, with the resident memory as another
process sees it; Figure 6), fit.csv (whole fits in RAM and in a bounded memory, with and without
derivatives), simulator.csv (simulated beside measured seconds), devices.csv (1 to 4 devices),
resume.csv (a run that is killed), timeline.json (traces by policy; Figure 7) and
correlations.json (traces with formats by norm; Figure 13). Simulated on described GPUs: paper.csv,
paper_mixed.csv, numa.csv and scaling.csv (1 to 4 GPUs by n and size of tiles; Figure 9). All
but `rate`, `fit`, `simulator` and `gpu` if none is named, in a quarter of an hour.

volume.csv, mixed.csv and rate.csv keep the rows of earlier runs, unless --anew is given, and add
what is missing. The runs of rate.csv, fit.csv and resume.csv are processes of their own.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

import geomxp as gx
from geomxp.data.observations import Observations
from geomxp.likelihood.factors import tile_factor
from geomxp.linalg.formats import FP64
from geomxp.linalg.precision import Uniform
from geomxp.prediction.simulate import lay_out
from geomxp.runtime.trace import Trace
from geomxp.tiles.layout import Layout
from geomxp.tiles.placement import Placement
from geomxp.tiles.plan import POLICIES, Sizes
from geomxp.tiles.simulate import MACHINES, SLOW_MEMORY_PLACES, measured, simulate

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import QUIET, TINY, ceilings, peak, resume, write_rows

HERE = Path(__file__).parent
MODEL = gx.Matern(1.0, 0.1, 0.5, 0.01)
CORRELATIONS = {
    name: gx.Matern(1.0, range, 0.5)
    for name, range in (("weak", 0.02627), ("medium", 0.078809), ("strong", 0.210158))
}
ACCURACIES = (1e-5,) if TINY else (1e-5, 1e-6, 1e-7, 1e-8)
THIN = 8
"""Every so many locations give the norms of a large matrix's tiles up to a factor."""

FITTED = ("variance", "range", "nugget")

PAPER = {"A100-PCIe": 935.7, "H100-PCIe": 437.4, "GH200": 480.0}
"""GB that the paper moves for 160k, each at its own tile size."""

PAPER_TERAFLOPS = {"A100-PCIe": 16.1, "H100-PCIe": 54.7, "GH200": 58.9}
"""Largest rates of V3 in Figure 6."""

PAPER_GH200 = replace(MACHINES["GH200"], memory=80_000_000_000)
"""The paper's is a pre-production system with 80 GB."""

PAPERS = (MACHINES["A100-PCIe"], MACHINES["H100-PCIe"], PAPER_GH200)
PAPER_FOUR = {"A100-PCIe": 59.3, "H100-PCIe": 176.3, "GH200": 185.5}
"""Largest rates of four GPUs in Figure 9, TFLOP/s."""


def fit(case):
    """Fit the model as a case says, with its smoothness held; return what it took."""
    n, rule = case["n"], gx.by_tile_norm(1e-5) if case["formats"] == "by norm" else None
    method = gx.Exact(rule or gx.uniform("fp64"), tile=case["tile"], memory=case["memory"])
    places = lay_out(n, "uniform", 0)
    seen = gx.Observations(places, gx.simulate(MODEL, places, seed=1)[0])
    options = {"fixed": {"smoothness": 0.5}, "trend": "zero", **QUIET}
    # loops are compiled
    few = gx.Observations(places[:300], seen.values[:300])
    gx.fit(few, method=replace(method, tile=64, memory="100MB"), **options)
    # the simulation had the whole matrix
    Path("/proc/self/clear_refs").write_text("5")
    before, start = _resident(os.getpid()), time.perf_counter()
    found = gx.fit(seen, MODEL, method, search=case["search"], **options)
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "evaluations": found.evaluations,
        "outcome": found.outcome.ending,
        "resident": _resident(os.getpid()) - before,
        "estimates": [found.model.parameters()[name] for name in FITTED],
        "errors": [found.standard_errors[name] for name in FITTED],
    }


def work(case, host=None):
    """Factor one matrix as a case says; return what it took. `host` is RAM that may be reused."""
    if "search" in case:
        return fit(case)
    n, tile = case["n"], case["tile"]
    model = CORRELATIONS[case["correlation"]] if "correlation" in case else MODEL
    seen = Observations(lay_out(n, "uniform", 0), np.zeros(n))
    trace = Trace() if case.get("trace") else None
    placement = Placement.of(
        case.get("on", "cpu"), case.get("memory"), case.get("device_memory"), case.get("scratch")
    )
    options = {} if placement.in_core else {"policy": case.get("policy", "v3")}
    placement = replace(placement, trace=trace, **options)
    rule = gx.by_tile_norm(case["accuracy"]) if case.get("accuracy") else gx.uniform("fp64")
    first = {}
    if case.get("twice"):
        host = host or placement.host()
        # kernels are compiled and pinned memory is prepared, as after the first step of a fit
        start = time.perf_counter()
        tile_factor(model, seen, rule, tile, replace(placement, trace=None), host)
        first = {"seconds_first": time.perf_counter() - start}
    start = time.perf_counter()
    factor = tile_factor(model, seen, rule, tile, placement, host)
    seconds = time.perf_counter() - start
    moved = factor.store.moved
    document = first | {
        "seconds": seconds,
        "log_determinant": factor.log_determinant().hex(),
        "factor_bytes": factor.nbytes,
        "width": factor.store.panel_width() if moved else 0,
        "bytes_in": moved.bytes_in if moved else 0,
        "bytes_out": moved.bytes_out if moved else 0,
        "promotions": factor.promotions,
    }
    if moved:
        part = factor.store.devices[0]
        document |= {"arena": factor.store.sizes.arena(part.budget), "streams": part.streams}
    if trace:
        document["events"] = [vars(event) for event in trace.events()]
    return document


def run(case, kill_after=None):
    """Run a case in a process of its own; return its document, with its largest resident memory."""
    command = [sys.executable, __file__, "--case", json.dumps(case)]
    # the solves of a fit are BLAS's; a factorization is shared by geomxp's threads
    one = {} if "search" in case else {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    environment = os.environ | one
    start = time.perf_counter()
    with (
        tempfile.TemporaryFile("w+") as answer,
        subprocess.Popen(command, stdout=answer, env=environment) as child,
    ):
        peak = 0
        while child.poll() is None:
            peak = max(peak, _resident(child.pid))
            if kill_after is not None and kill_after(time.perf_counter() - start):
                child.send_signal(signal.SIGKILL)
                child.wait()
                return None
            time.sleep(0.02)
        answer.seek(0)
        text = answer.read()
    if child.returncode:
        raise SystemExit(f"{case} failed")
    return json.loads(text) | {"peak_resident": peak}


def _resident(process):
    """Return the largest resident memory of another process so far, in bytes."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    found = [line for line in lines if line.startswith("VmHWM")]
    return 1024 * int(found[0].split()[1]) if found else 0


def formats_of(layout):
    """Return a map of FP64 tiles."""
    return Uniform(FP64)(np.ones((layout.tiles, layout.tiles)))


def wider(n, tile, budget):
    """Return the largest multiple of a tile with which one stream fits a budget."""
    fitting = (
        m * tile
        for m in range(1, n // tile + 1)
        if Sizes(layout := Layout(n, m * tile), formats_of(layout)).least <= budget
    )
    return max(fitting)


def volume_rows(n, tile, budget, repeats):
    """Yield the rows of volume.csv for one n: RAM over a disk, all policies in turns.

    The machine is measured in the same run: its products (all cores) and its disk while it computes
    bound the seconds from below, `bound_seconds`. "sync, larger tiles" has the largest tiles that
    its one stream has memory for, and "in core" no budget.
    """
    cases = {"in core": {"n": n, "tile": tile}}
    for policy in POLICIES:
        cases[policy] = {"n": n, "tile": tile, "memory": budget, "policy": policy}
        if policy == "sync":
            cases["sync, larger tiles"] = cases[policy] | {"tile": wider(n, tile, budget)}
    machines = {size: measured(size) for size in {case["tile"] for case in cases.values()}}
    found = {name: [] for name in cases}
    for turn in range(repeats + 1):
        for name, case in cases.items():
            # a small matrix first: what is compiled and loaded once is not timed
            outcome = work(case if turn else case | {"n": 2 * case["tile"]})
            if turn:
                found[name].append(outcome)
    seconds = {name: float(np.median([o["seconds"] for o in many])) for name, many in found.items()}
    for name, case in cases.items():
        one, layout, machine = found[name][0], Layout(n, case["tile"]), machines[case["tile"]]
        played = simulate(
            *(machine, layout, formats_of(layout), case.get("policy", "in core")),
            memory=one.get("arena"),
            width=one["width"] or 1,
        )
        inside = "policy" not in case
        gemm = machine.rates["fp64"] * machine.units
        into, out_of = one["bytes_in"] / machine.into, one["bytes_out"] / machine.out_of
        bound = max(n**3 / 3 / gemm, into, out_of)
        yield {
            "tile": case["tile"],
            "budget": "" if inside else budget,
            "policy": name,
            "streams": one.get("streams", machine.streams),
            "lower_triangle": layout.lower_bytes,
            "bytes_in": one["bytes_in"],
            "bytes_out": one["bytes_out"],
            "simulated_in": 0 if inside else played.moved.bytes_in,
            "simulated_out": 0 if inside else played.moved.bytes_out,
            "seconds": seconds[name],
            "seconds_over_v3": seconds[name] / seconds["v3"],
            "simulated_over_measured": played.seconds / seconds[name],
            "bound_seconds": bound,
            "bound_over_seconds": bound / seconds[name],
            "gflops": n**3 / 3 / seconds[name] / 1e9,
            "gemm_gflops": gemm / 1e9,
            "disk_read_gb": machine.into / 1e9,
            "disk_write_gb": machine.out_of / 1e9,
        }


def rule_of(accuracy):
    """Return the rule of a cell: FP64, or formats by norm."""
    return gx.uniform("fp64") if accuracy == "fp64" else gx.by_tile_norm(float(accuracy))


def mixed_rows(n, correlation, accuracy, tile, budget, largest):
    """Yield the row of a cell of mixed.csv: planned bytes, and measured ones up to an n."""
    seen = Observations(lay_out(n, "uniform", 0), np.zeros(n))
    method = gx.Exact(rule_of(accuracy), tile, memory=budget)
    plan = method.plan(seen, CORRELATIONS[correlation])
    row = {
        "tile": tile,
        "budget": budget,
        "lower_triangle": plan.layout.lower_bytes,
        "formats": " ".join(f"{k}:{v}" for k, v in plan.formats.counts().items()),
        "bytes": plan.bytes,
    }
    for policy, moved in plan.traffic("async", "v3-lru", "v3").items():
        name = policy.replace("-", "_")
        row |= {f"{name}_in": moved.bytes_in, f"{name}_out": moved.bytes_out}
    row |= {"measured_v3_in": None, "measured_v3_out": None, "promotions": None}
    if n <= largest:
        case = {"n": n, "tile": tile, "memory": budget, "correlation": correlation}
        found = work(case if accuracy == "fp64" else case | {"accuracy": float(accuracy)})
        row |= {"measured_v3_in": found["bytes_in"], "measured_v3_out": found["bytes_out"]}
        row["promotions"] = found["promotions"]
    yield row


def mixed_study(sizes, tile, budget, largest):
    """Return the cells of mixed.csv and the function of their rows."""
    cells = [
        {"n": n, "correlation": name, "accuracy": accuracy}
        for n in sizes
        for name in CORRELATIONS
        for accuracy in ("fp64", *map("{:g}".format, ACCURACIES))
    ]
    return cells, partial(mixed_rows, tile=tile, budget=budget, largest=largest)


def paper_rows(sizes, tile):
    """Yield rows of paper.csv: each machine's memory, simulated, columns one by one."""
    for name, machine in (MACHINES | {"GH200": PAPER_GH200}).items():
        for n in sizes:
            layout = Layout(n, tile)
            for policy in POLICIES:
                played = simulate(machine, layout, formats_of(layout), policy)
                yield {
                    "machine": name,
                    "n": n,
                    "tile": tile,
                    "memory": machine.memory,
                    "lower_triangle": layout.lower_bytes,
                    "policy": policy,
                    "bytes_in": played.moved.bytes_in,
                    "bytes_out": played.moved.bytes_out,
                    "paper_gb": PAPER.get(name) if (n, policy) == (160_000, "v3") else None,
                    "seconds": played.seconds,
                    "teraflops": played.rate / 1e12,
                    "paper_teraflops": PAPER_TERAFLOPS.get(name) if policy == "v3" else None,
                }


def paper_mixed_rows(sizes, tile):
    """Yield rows of paper_mixed.csv: a GH200 with formats by norm, simulated (Figures 12, 13)."""
    machine = PAPER_GH200
    for n, name in product(sizes, CORRELATIONS):
        # the norms of every THIN-th location's tiles, whose ratios are nearly those of all
        few = -(-n // THIN)
        seen = Observations(lay_out(few, "uniform", 0), np.zeros(few))
        for accuracy in ("fp64", *map("{:g}".format, ACCURACIES)):
            method = gx.Exact(rule_of(accuracy), tile // THIN)
            formats, layout = method.plan(seen, CORRELATIONS[name]).formats, Layout(n, tile)
            for policy in ("async", "v3-lru", "v3"):
                played = simulate(machine, layout, formats, policy)
                yield {
                    "machine": machine.name,
                    "n": n,
                    "tile": tile,
                    "memory": machine.memory,
                    "correlation": name,
                    "accuracy": accuracy,
                    "policy": policy,
                    "formats": " ".join(f"{k}:{v}" for k, v in formats.counts().items()),
                    "bytes_in": played.moved.bytes_in,
                    "bytes_out": played.moved.bytes_out,
                    "seconds": played.seconds,
                    "teraflops": played.rate / 1e12,
                }


def rate_rows(n, budget, on, tile, rates=None):
    """Yield the row of a cell of rate.csv."""
    limit = None if budget == "in core" else budget
    found = run(
        {"n": n, "tile": tile, "memory" if on == "cpu" else "device_memory": limit, "on": on}
    )
    gflops = n**3 / 3 / found["seconds"] / 1e9
    share = None
    if rates:
        share = gflops / peak(rates, "fp64", max(row.get("cores", 1) for row in rates))
    yield {
        "tile": tile,
        "triangle_over_budget": round(found["factor_bytes"] / limit, 2) if limit else 0,
        "seconds": found["seconds"],
        "gflops": gflops,
        "share_of_dgemm": share,
        "peak_resident": found["peak_resident"],
        "resident_over_budget": found["peak_resident"] / limit if limit else None,
        "bytes_in": found["bytes_in"],
        "bytes_out": found["bytes_out"],
        "log_determinant": found["log_determinant"],
    }


def rate_study(cases, tile, on="cpu", rates=None):
    """Return the cells of rate*.csv for cases of (n, budget or None), and their rows' function."""
    cells = [{"n": n, "budget": budget or "in core", "on": on} for n, budget in cases]
    return cells, partial(rate_rows, tile=tile, rates=rates)


def fit_rows(n, tile, budget):
    """Yield the rows of fit.csv; the first one is FP64 in RAM."""
    ways = [("FP64", None, "scoring"), ("FP64", budget, "scoring"), ("FP64", budget, "bobyqa")]
    ways += [("by norm", None, "scoring"), ("by norm", budget, "scoring")]
    known = None
    for formats, memory, search in ways:
        about = {"n": n, "tile": tile, "formats": formats, "memory": memory, "search": search}
        found = (work if TINY else run)(about)
        known = known or found
        kept, ours = (
            [np.array(one[part], dtype=float) for part in ("estimates", "errors")]
            for one in (known, found)
        )
        shifts = np.abs(ours[0] - kept[0]) / kept[1]
        yield {
            **{"n": n, "tile": tile, "formats": formats, "search": search},
            "memory": memory or "in RAM",
            "memory_in_matrices": round(memory / (8 * n * n), 3) if memory else None,
            "seconds": found["seconds"],
            "times_the_first": found["seconds"] / known["seconds"],
            "evaluations": found["evaluations"],
            "outcome": found["outcome"],
            "resident": found["resident"],
            "largest_shift_in_standard_errors": shifts.max(),
            "largest_change_of_errors": np.abs(ours[1] / kept[1] - 1).max(),
        }


def simulator_rows(cases, tile):
    """Yield rows of simulator.csv: cases of (n, budget or None, policy) on this machine."""
    for n, budget, policy in cases:
        found = work({"n": n, "tile": tile, "memory": budget, "policy": policy})
        layout = Layout(n, tile)
        machine = measured(tile)
        played = simulate(
            *(machine, layout, formats_of(layout), policy if budget else "in core"),
            memory=found.get("arena"),
            width=found["width"] or 1,
        )
        yield {
            "n": n,
            "tile": tile,
            "budget": budget or "in core",
            "policy": policy if budget else "",
            "measured_seconds": found["seconds"],
            "simulated_seconds": played.seconds,
            "simulated_over_measured": played.seconds / found["seconds"],
            "bytes_in": found["bytes_in"],
            "simulated_in": played.moved.bytes_in if budget else 0,
            "gemm_gflops": machine.rates["fp64"] * machine.units / 1e9,
            "disk_read_gb": machine.into / 1e9,
            "disk_write_gb": machine.out_of / 1e9,
        }


def device_rows(n, tile, budget, large=160_000):
    """Yield rows of devices.csv: logical devices measured, GPUs simulated."""
    whole, layout = work({"n": n, "tile": tile}), Layout(large, 2048)
    for devices in (1, 2, 3, 4):
        on = ",".join(["cpu"] * devices)
        found = work({"n": n, "tile": tile, "device_memory": budget, "on": on})
        played = simulate(MACHINES["GH200"], layout, formats_of(layout), "v3", devices=devices)
        yield {
            "devices": devices,
            "n": n,
            "same_bits_as_in_core": found["log_determinant"] == whole["log_determinant"],
            "bytes_in": found["bytes_in"],
            "bytes_out": found["bytes_out"],
            "simulated_gh200_160k_teraflops": played.rate / 1e12,
        }


def numa_rows(n, tile, devices=(1, 2, 3, 4)):
    """Yield rows of numa.csv: GH200s whose host memory is cyclic or in one place (Figure 5b)."""
    # the paper's 100 GB/s, like its 900, are those of both directions
    machine, layout = replace(PAPER_GH200, remote=50e9), Layout(n, tile)
    for count, policy in product(devices, ("v1", "v3")):
        near = simulate(PAPER_GH200, layout, formats_of(layout), policy, devices=count).seconds
        for placed in SLOW_MEMORY_PLACES:
            played = simulate(
                *(machine, layout, formats_of(layout), policy), devices=count, placed=placed
            )
            yield {
                "devices": count,
                "n": n,
                "tile": tile,
                "policy": policy,
                "placed": placed,
                "remote_gb": machine.remote / 1e9,
                "bytes_in": played.moved.bytes_in,
                "bytes_out": played.moved.bytes_out,
                "seconds": played.seconds,
                "teraflops": played.rate / 1e12,
                "seconds_over_all_near": played.seconds / near,
            }


def scaling_rows(cases, counts=(1, 2, 3, 4)):
    """Yield rows of scaling.csv: v3 on GPUs for each (n, tile), with a host link for each, or one.

    Of one link each of m GPUs has 1/m of the rate at all times, which is a lower bound.
    """
    for base, (n, tile), count in product(PAPERS, cases, counts):
        layout = Layout(n, tile)
        for links, part in {"own": 1, "one": count}.items():
            if links == "one" and count == 1:
                continue
            machine = replace(base, into=base.into / part, out_of=base.out_of / part)
            played = simulate(machine, layout, formats_of(layout), "v3", devices=count)
            yield {
                "machine": base.name,
                "devices": count,
                "n": n,
                "tile": tile,
                "links": links,
                "bytes_in": played.moved.bytes_in,
                "bytes_out": played.moved.bytes_out,
                "seconds": played.seconds,
                "teraflops": played.rate / 1e12,
                "paper_largest_teraflops": PAPER_FOUR[base.name] if count == 4 else None,
            }


def resume_rows(n, tile, budget):
    """Yield the row of resume.csv: killed half-way, and the rest."""
    with tempfile.TemporaryDirectory() as folder:
        case = {"n": n, "tile": tile, "memory": budget, "scratch": folder}
        # if tiny, here: its seconds mean nothing
        whole = (work if TINY else run)({"n": n, "tile": tile, "memory": budget})
        tiles = Layout(n, tile).tiles * (Layout(n, tile).tiles + 1) // 2

        def half_way(_):
            journals = list(Path(folder).glob("*.journal"))
            return bool(journals) and journals[0].read_text().count('["tile"') >= tiles // 2

        killed = run(case, kill_after=half_way)
        journal = list(Path(folder).glob("*.journal"))
        done = journal[0].read_text().count('["tile"') if journal else 0
        rest = run(case)
        yield {
            "n": n,
            "tiles": tiles,
            "tiles_of_the_killed_run": done if killed is None else 0,
            "seconds_whole": whole["seconds"],
            "seconds_rest": rest["seconds"],
            "same_bits": rest["log_determinant"] == whole["log_determinant"],
            "files_left": len(list(Path(folder).iterdir())),
        }


def traces(cases, path):
    """Write the events of some runs, {title: events}."""
    document = {}
    for title, case in cases.items():
        # what is compiled and loaded once is not traced
        work(case | {"n": 2 * case["tile"]})
        events = work(case | {"trace": True})["events"]
        document[title] = [
            event | {"begin": round(event["begin"], 6), "end": round(event["end"], 6)}
            for event in events
        ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, separators=(",", ":")))


def timelines(n, tile, budget, output):
    """Write timeline.json: policies in FP64; and correlations.json: formats by norm, ε = 1e-5."""
    case = {"n": n, "tile": tile, "memory": budget}
    by_policy = {policy: case | {"policy": policy} for policy in ("sync", "async", "v3")}
    traces(by_policy, output / "timeline.json")
    mixed = {
        f"{policy}, {name} correlation": case
        | {"policy": policy, "correlation": name, "accuracy": 1e-5}
        for policy, name in product(("async", "v3"), CORRELATIONS)
    }
    traces(mixed, output / "correlations.json")


def studies(tiny, arguments):
    """Return each study: its cells and the function of their rows, or a function of all rows."""
    gpu = [(32_768, None), (32_768, arguments.device_memory), (65_536, arguments.device_memory)]
    gpu += [(65_536, None), (131_072, arguments.device_memory)]
    if tiny:
        return {
            "volume": lambda: (
                [{"n": 192}],
                partial(volume_rows, tile=32, budget=120_000, repeats=1),
            ),
            "mixed": lambda: mixed_study((192,), 32, 120_000, 192),
            "paper": lambda: paper_rows((14_000,), 2048),
            "paper_mixed": lambda: paper_mixed_rows((8_000,), 2048),
            "rate": lambda: rate_study([(320, 250_000)], 32, rates=ceilings(256)),
            "fit": lambda: fit_rows(320, 64, 45_000_000),
            "simulator": lambda: simulator_rows([(192, None, "v3"), (192, 150_000, "v3")], 32),
            "numa": lambda: numa_rows(10_000, 2048, (2,)),
            "scaling": lambda: scaling_rows([(10_000, 2048)], (1, 2)),
            "devices": lambda: device_rows(192, 32, 150_000, 10_000),
            "resume": lambda: resume_rows(320, 32, 250_000),
        }
    two = 2_000_000_000
    sizes = [{"n": n} for n in (4096, 6144, 8192)]
    return {
        "volume": lambda: (sizes, partial(volume_rows, tile=256, budget=40_000_000, repeats=3)),
        "mixed": lambda: mixed_study((4096, 8192, 16_384), 256, 40_000_000, 8192),
        "paper": lambda: paper_rows((160_000, 240_000), 4096),
        "paper_mixed": lambda: paper_mixed_rows((50_000, 100_000, 150_000, 200_000), 4096),
        "rate": lambda: rate_study(
            *([(16_384, None), (16_384, two // 4), (44_900, two), (44_900, None)], 512),
            rates=ceilings(),
        ),
        "fit": lambda: fit_rows(8000, 512, 150_000_000),
        "simulator": lambda: simulator_rows(
            [
                *((12_288, None, "v3"), (12_288, 150_000_000, "v3"), (12_288, 150_000_000, "v1")),
                *((16_384, None, "v3"), (16_384, 270_000_000, "v3"), (16_384, 270_000_000, "v2")),
            ],
            512,
        ),
        "numa": lambda: numa_rows(160_000, 4096),
        "scaling": lambda: scaling_rows(
            [
                *((n, 4096) for n in range(40_000, 240_001, 40_000)),
                *((160_000, tile) for tile in (2048, 8192)),
            ]
        ),
        "devices": lambda: device_rows(8192, 256, 60_000_000),
        "resume": lambda: resume_rows(16_384, 512, 300_000_000),
        "gpu": lambda: rate_study(gpu, 4096, arguments.on),
    }


LONG = ("rate", "fit", "simulator", "gpu")
"""Studies that run only if they are named."""

TIMED = ("volume", "rate", "simulator")
"""Studies whose files have the ceilings of the run in their headers."""


def main():
    """Read the command line and write the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--anew", action="store_true", help="replace the rows of earlier runs")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    parser.add_argument("--on", default="cpu")
    parser.add_argument("--device-memory", default=20_000_000_000)
    parser.add_argument("--case", help="(a run's own process)")
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(work(json.loads(arguments.case))))
        return
    found = studies(arguments.tiny, arguments)
    usual = [name for name in found if arguments.tiny or name not in LONG]
    names = arguments.names or [*usual, "timeline"]
    if unknown := set(names) - {*found, "timeline"}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(found)}, timeline")
    for name in names:
        if name == "timeline":
            size = (192, 32, 150_000) if arguments.tiny else (5120, 512, 40_000_000)
            timelines(*size, arguments.output)
            continue
        path = arguments.output / f"{'rate_gpu' if name == 'gpu' else name}.csv"
        rates = ceilings(256 if arguments.tiny else 2048) if name in TIMED else None
        study = found[name]()
        if isinstance(study, tuple):
            resume(path, *study, anew=arguments.anew, ceilings=rates)
            continue
        rows = []
        for row in study:
            rows.append(row)
            print(row, flush=True)
            write_rows(path, rows, rates)


if __name__ == "__main__":
    main()
