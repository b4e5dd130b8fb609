"""Matrices larger than memory: volumes, rates, devices, the simulator (paper 001, Figures 5-9).

    python experiments/out_of_core/run.py [NAME ...] [--tiny]
    python experiments/out_of_core/run.py gpu --on gpu --device-memory 20GB

Writes results/volume.csv (bytes that move, measured and simulated), paper.csv (simulated at 160k
and above, beside the paper's), rate.csv (rate against n past the budget, RAM over a disk, with the
resident memory as another process sees it), simulator.csv (its times beside measured ones),
devices.csv (1 to 4 devices), resume.csv (a run that is killed) and timeline.json. All but `gpu` if
none is named. The runs of rate.csv and resume.csv are processes of their own.
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
from pathlib import Path

import numpy as np

import geomxp as gx
from geomxp.data.observations import Observations
from geomxp.likelihood.exact import tile_factor
from geomxp.linalg.formats import FP64
from geomxp.linalg.precision import Uniform
from geomxp.prediction.simulate import lay_out
from geomxp.runtime.trace import Trace
from geomxp.tiles.layout import Layout
from geomxp.tiles.placement import Placement
from geomxp.tiles.simulate import MACHINES, measured, simulate

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import write_rows

HERE = Path(__file__).parent
POLICIES = ("sync", "async", "v1", "v2", "v3")
MODEL = gx.Matern(1.0, 0.1, 0.5, 0.01)
PAPER = {"A100-PCIe": 935.7, "H100-PCIe": 437.4, "GH200": 480.0}
"""GB that the paper moves for 160k, each at its own tile size."""


def work(case):
    """Factor one matrix as a case says; return what it took."""
    n, tile = case["n"], case["tile"]
    seen = Observations(lay_out(n, "uniform", 0), np.zeros(n))
    trace = Trace() if case.get("trace") else None
    placement = Placement.of(
        case.get("on", "cpu"), case.get("memory"), case.get("device_memory"), case.get("scratch")
    )
    options = {} if placement.in_core else {"policy": case.get("policy", "v3")}
    placement = replace(placement, trace=trace, **options)
    rule = gx.by_tile_norm(case["accuracy"]) if case.get("accuracy") else gx.uniform("fp64")
    start = time.perf_counter()
    factor = tile_factor(MODEL, seen, rule, tile, placement)
    seconds = time.perf_counter() - start
    moved = factor.store.moved
    document = {
        "seconds": seconds,
        "log_determinant": factor.log_determinant().hex(),
        "factor_bytes": factor.nbytes,
        "width": factor.store.panel_width() if moved else 0,
        "bytes_in": moved.bytes_in if moved else 0,
        "bytes_out": moved.bytes_out if moved else 0,
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
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
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


def volume_rows(sizes, tile, budget, on="cpu"):
    """Yield rows of volume.csv: device memory over RAM, each policy."""
    for n in sizes:
        layout = Layout(n, tile)
        for policy in POLICIES:
            found = run({"n": n, "tile": tile, "device_memory": budget, "policy": policy, "on": on})
            machine = replace(MACHINES["H100-PCIe"], streams=found["streams"])
            played = simulate(
                *(machine, layout, formats_of(layout), policy),
                memory=found["arena"],
                width=found["width"],
            ).moved
            yield {
                "n": n,
                "tile": tile,
                "budget": budget,
                "lower_triangle": layout.lower_bytes,
                "policy": policy,
                "bytes_in": found["bytes_in"],
                "bytes_out": found["bytes_out"],
                "simulated_in": played.bytes_in,
                "simulated_out": played.bytes_out,
            }


def paper_rows(sizes, tile):
    """Yield rows of paper.csv: each machine's memory, simulated, columns one by one."""
    for name, machine in MACHINES.items():
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
                }


def rate_rows(cases, tile, on="cpu"):
    """Yield rows of rate.csv: cases of (n, budget or None)."""
    name = "memory" if on == "cpu" else "device_memory"
    for n, budget in cases:
        found = run({"n": n, "tile": tile, name: budget, "on": on})
        yield {
            "n": n,
            "tile": tile,
            "on": on,
            "budget": budget or "in core",
            "triangle_over_budget": round(found["factor_bytes"] / budget, 2) if budget else 0,
            "seconds": found["seconds"],
            "gflops": n**3 / 3 / found["seconds"] / 1e9,
            "peak_resident": found["peak_resident"],
            "resident_over_budget": found["peak_resident"] / budget if budget else None,
            "bytes_in": found["bytes_in"],
            "bytes_out": found["bytes_out"],
            "log_determinant": found["log_determinant"],
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


def device_rows(n, tile, budget):
    """Yield rows of devices.csv: logical devices measured, GPUs simulated."""
    whole = work({"n": n, "tile": tile})
    for devices in (1, 2, 3, 4):
        on = ",".join(["cpu"] * devices)
        found = work({"n": n, "tile": tile, "device_memory": budget, "on": on})
        played = simulate(
            *(MACHINES["GH200"], Layout(160_000, 2048), formats_of(Layout(160_000, 2048)), "v3"),
            devices=devices,
        )
        yield {
            "devices": devices,
            "n": n,
            "same_bits_as_in_core": found["log_determinant"] == whole["log_determinant"],
            "bytes_in": found["bytes_in"],
            "bytes_out": found["bytes_out"],
            "simulated_gh200_160k_teraflops": played.rate / 1e12,
        }


def resume_rows(n, tile, budget):
    """Yield the row of resume.csv: killed half-way, and the rest."""
    with tempfile.TemporaryDirectory() as folder:
        case = {"n": n, "tile": tile, "memory": budget, "scratch": folder}
        whole = run({"n": n, "tile": tile, "memory": budget})
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


def timeline(n, tile, budget, output):
    """Write the events of two short runs: columns one by one without reuse, and V3."""
    document = {}
    for policy in ("sync", "v3"):
        case = {"n": n, "tile": tile, "memory": budget, "policy": policy, "accuracy": 1e-7}
        document[policy] = work(case | {"trace": True})["events"]
    (output / "timeline.json").write_text(json.dumps(document))


def studies(tiny, arguments):
    """Return each study's rows, made when they are asked for."""
    gpu = [(32_768, None), (32_768, arguments.device_memory), (65_536, arguments.device_memory)]
    gpu += [(65_536, None), (131_072, arguments.device_memory)]
    if tiny:
        return {
            "volume": lambda: volume_rows((640,), 32, 200_000),
            "paper": lambda: paper_rows((30_000,), 2048),
            "rate": lambda: rate_rows([(640, None), (640, 1_000_000)], 32),
            "simulator": lambda: simulator_rows([(640, None, "v3"), (640, 1_000_000, "v3")], 32),
            "devices": lambda: device_rows(320, 32, 400_000),
            "resume": lambda: resume_rows(640, 32, 1_000_000),
        }
    two = 2_000_000_000
    return {
        "volume": lambda: volume_rows((4096, 8192, 12_288), 256, 40_000_000),
        "paper": lambda: paper_rows((160_000, 240_000), 4096),
        "rate": lambda: rate_rows(
            [(16_384, None), (16_384, two // 4), (44_900, two), (44_900, None)], 512
        ),
        "simulator": lambda: simulator_rows(
            [
                *((12_288, None, "v3"), (12_288, 150_000_000, "v3"), (12_288, 150_000_000, "v1")),
                *((16_384, None, "v3"), (16_384, 270_000_000, "v3"), (16_384, 270_000_000, "v2")),
            ],
            512,
        ),
        "devices": lambda: device_rows(8192, 256, 60_000_000),
        "resume": lambda: resume_rows(16_384, 512, 300_000_000),
        "gpu": lambda: rate_rows(gpu, 4096, arguments.on),
    }


def main():
    """Read the command line and write the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    parser.add_argument("--on", default="cpu")
    parser.add_argument("--device-memory", default=20_000_000_000)
    parser.add_argument("--case", help="(a run's own process)")
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(work(json.loads(arguments.case))))
        return
    found = studies(arguments.tiny, arguments)
    names = arguments.names or [*(name for name in found if name != "gpu"), "timeline"]
    for name in names:
        if name == "timeline":
            size = (640, 64, 2_000_000) if arguments.tiny else (6144, 512, 40_000_000)
            arguments.output.mkdir(parents=True, exist_ok=True)
            timeline(*size, arguments.output)
            continue
        rows, file = [], "rate_gpu" if name == "gpu" else name
        for row in found[name]():
            rows.append(row)
            print(row, flush=True)
            write_rows(arguments.output / f"{file}.csv", rows)


if __name__ == "__main__":
    main()
