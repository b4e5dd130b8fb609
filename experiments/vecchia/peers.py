"""Vecchia's log-likelihood and the whole fit beside GPBoost's, at the same neighbours and threads.

    python experiments/vecchia/peers.py --python PEERS/bin/python [--tiny]

PEERS is an environment with gpboost (pip install gpboost). Writes results/peers.csv. Both take the
places in the given (random) order and condition on the m nearest before: one definition, and the
log-likelihoods must be equal. The fits have a free smoothness. Without --python, or in an
environment without gpboost, only geomxp is timed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "2"

import numpy as np

import geomxp as gx
from geomxp.prediction.simulate import lay_out

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import write_rows

HERE = Path(__file__).parent
THREADS = 2
MODEL = gx.Matern(1.0, 0.05, 0.8, 0.1)


def data_of(n):
    """Return observations of the model at random places, drawn by Vecchia's own factor."""
    places = lay_out(n, "uniform", 3)
    method = gx.Vecchia(30) if n > 5000 else gx.Exact()
    return gx.Observations(places, gx.simulate(MODEL, places, seed=4, method=method)[0])


def ours(seen, task, m, repeats=5):
    """Return what `gpboost_one.py` returns, of geomxp."""
    method = gx.Vecchia(m, "given")
    if task == "fit":
        start, cpu = time.perf_counter(), time.process_time()
        fit = gx.fit(seen, None, method, trend="zero")
        return {
            "seconds": time.perf_counter() - start,
            "cpu_seconds": time.process_time() - cpu,
            "log_likelihood": fit.log_likelihood,
            "parameters": list(fit.model.parameters().values()),
        }
    start = time.perf_counter()
    evaluator = method.prepare(seen)
    prepare, seconds = time.perf_counter() - start, []
    value = evaluator(MODEL).log_likelihood
    for k in range(repeats):
        start = time.perf_counter()
        evaluator(gx.Matern(1.0, 0.05 * (1 + 1e-3 * (k + 1)), 0.8, 0.1))
        seconds.append(time.perf_counter() - start)
    return {"log_likelihood": value, "seconds": float(np.median(seconds)), "prepare": prepare}


def theirs(python, seen, task, m, limit):
    """Return GPBoost's numbers, or why there are none."""
    if python is None:
        return {"note": "no environment was given"}
    convention = MODEL.to_convention("gpboost")
    parameters = [convention["error_term"], convention["variance"], convention["range"]]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "data.npz")
        np.savez(
            file,
            places=seen.locations,
            values=seen.values,
            smoothness=MODEL.smoothness,
            parameters=parameters,
        )
        call = [python, HERE / "gpboost_one.py", file, task, "--neighbours", m]
        call += ["--threads", THREADS]
        try:
            run = subprocess.run(
                [str(part) for part in call], capture_output=True, text=True, timeout=limit
            )
        except subprocess.TimeoutExpired:
            return {"seconds": float(limit), "note": f"stopped after {limit} s"}
    if run.returncode:
        return {"note": run.stderr.strip().splitlines()[-1]}
    return json.loads(run.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", help="of an environment with gpboost")
    parser.add_argument("--limit", type=float, default=240, help="seconds for a task of GPBoost")
    parser.add_argument("--tiny", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    m = 10 if options.tiny else 30
    rows = []
    tasks = (
        ((500, "value"), (500, "fit"))
        if options.tiny
        else (*((2000, "value"), (2000, "fit"), (100_000, "value"), (100_000, "fit")),)
    )
    for n, task in tasks:
        seen = data_of(n)
        ours(data_of(500), task, m)  # compiled
        found = {"geomxp": ours(seen, task, m)}
        found["gpboost"] = theirs(options.python, seen, task, m, options.limit)
        for package, numbers in found.items():
            row = {"n": n, "neighbours": m, "threads": THREADS, "task": task, "package": package}
            for name in ("version", "prepare", "seconds", "cpu_seconds", "log_likelihood"):
                row[name] = numbers.get(name, "")
            row["parameters"] = " ".join(f"{p:.5g}" for p in numbers.get("parameters", ()))
            row["note"] = numbers.get("note", "")
            rows.append(row)
            print(*(f"{k}={v}" for k, v in row.items()), flush=True)
        write_rows(options.output / "peers.csv", rows)


if __name__ == "__main__":
    main()
