"""Stages j and k: exact likelihoods and whole fits, peers' on the same machine, and Vecchia's."""

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
from harness import FAILED, HERE, RANGES, Prediction, load, reason, tried

import geomxp as gx
from geomxp.runtime.devices import usable_cores

NUGGET = 1e-2
PEERS = ("torch", "jax", "gpytorch")
PATIENCE = 240
"""Seconds that a peer may take."""


def exact(machine, budget):
    """Stage j: one likelihood and one whole fit, FP64 and mixed; peers on the same matrices."""
    prediction, whole = Prediction(), {}
    for n in machine.sizes(16_384, 32_768, 65_536, tiny=(256,)):
        places = load("static_schedule_mxp").places(n)
        truth = gx.Matern(1.0, RANGES["medium"], 0.5, NUGGET)
        if why := budget.refuses(prediction.of(n)):
            yield {"what": "log-likelihood", "n": n, "note": why}
            continue
        start = time.perf_counter()
        try:
            seen = gx.Observations(places, _field(machine, truth, places))
        except Exception as error:
            yield {"what": "log-likelihood", "n": n, "note": FAILED + reason(error)}
            continue
        machine.give_back()
        fp64 = None
        for label, method in _ways(machine, n).items():
            row = {"what": "log-likelihood", "method": label, "n": n}
            found = tried(row, partial(_evaluated, machine, seen, truth, method))
            machine.give_back()
            if "log_likelihood" in found:
                fp64 = found["log_likelihood"] if fp64 is None else fp64
                found["from_fp64"] = found["log_likelihood"] - fp64
                whole[label, n] = found["seconds"]
            yield found
        prediction.learn(n, time.perf_counter() - start)
        for peer in PEERS:
            yield from _peer_rows(machine, budget, peer, seen, truth, fp64)
        yield from _fit_rows(machine, budget, seen, truth, whole)


def _tile(machine, n):
    """Return the rows of a tile: a GPU's products want large ones."""
    return min(64, n) if machine.tiny else 4096 if n > 20_000 else 2048


def _ways(machine, n):
    """Return the ways to compute, FP64 first."""
    tile, on = _tile(machine, n), machine.on
    ways = {"FP64, one array": gx.Exact(on=on), "FP64, tiles": gx.Exact(tile=tile, on=on)}
    for accuracy in (1e-5, 1e-6, 1e-8):
        rule = gx.by_tile_norm(accuracy)
        ways[f"by_tile_norm({accuracy:g})"] = gx.Exact(rule, tile, on=on)
    return ways


def _field(machine, model, places):
    """Return a draw of a model, exact, by a factor that the machine makes."""
    seen = gx.Observations(places, np.zeros(len(places)))
    method = gx.Exact(tile=_tile(machine, len(places)), on=machine.on)
    white = np.random.default_rng(0).standard_normal((len(places), 1))
    return method.prepare(seen).factorize(model).multiply(white)[:, 0]


def _evaluated(machine, seen, model, method):
    """Return the seconds of the first evaluation, and of later ones at other ranges."""
    evaluator, seconds = method.prepare(seen), []
    for k in (3, 2, 1, 0):
        other = gx.Matern(model.variance, model.range * 1.01**k, model.smoothness, model.nugget)
        start = time.perf_counter()
        found = evaluator(other)
        machine.finish()
        seconds.append(time.perf_counter() - start)
    formats = getattr(found.precision_map, "counts", dict)()
    return {
        "seconds": float(np.median(seconds[1:])),
        "seconds_first": seconds[0],
        "log_likelihood": found.log_likelihood,
        "formats": " ".join(f"{name}:{count}" for name, count in formats.items()),
        "outcome": str(found.outcome.ending),
    }


def _fit_rows(machine, budget, seen, truth, seconds):
    """Rows of whole fits, variance and range: by scores, three likelihoods each, and by BOBYQA."""
    n, ways = (
        len(seen),
        (("FP64, one array", 42), ("FP64, tiles", 70), ("by_tile_norm(1e-06)", 330)),
    )
    for label, evaluations in ways:
        method, row = _ways(machine, n)[label], {"what": "fit", "method": label, "n": n}
        one = seconds.get((label, n))
        if one is None:
            yield row | {"note": "it has no likelihood"}
            continue
        if why := budget.refuses(evaluations * one):
            yield row | {"note": why}
            continue
        search = "scoring" if method.tile is None else "bobyqa"
        yield tried(row | {"search": search}, partial(_fitted, seen, truth, method, search))
        machine.give_back()


def _fitted(seen, truth, method, search):
    fit = gx.fit(
        *(seen, truth, method),
        fixed=("smoothness", "nugget"),
        trend="zero",
        search=search,
        progress=False,
        raise_on_failure=False,
    )
    errors = fit.standard_errors
    return {
        "seconds": fit.seconds,
        "log_likelihood": fit.log_likelihood,
        "evaluations": fit.evaluations,
        "variance": fit.model.variance,
        "range": fit.model.range,
        "error_variance": errors["variance"],
        "error_range": errors["range"],
        "outcome": str(fit.outcome),
    }


def _peer_rows(machine, budget, peer, seen, model, ours):
    """Rows of a peer's Cholesky factorization or likelihood, from a process of its own."""
    row = {"what": "peer", "method": peer, "n": len(seen)}
    if why := budget.refuses(PATIENCE / 4):
        yield row | {"note": why}
        return
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data.npz"
        numbers = np.array([model.variance, model.range, model.nugget])
        np.savez(data, places=seen.locations, values=seen.values, model=numbers)
        lines, why = _called([peer, "--data", data, "--on", machine.on], budget)
    for found in lines:
        if ours is not None and "log_likelihood" in found:
            found["from_fp64"] = found["log_likelihood"] - ours
        yield row | found
    if why:
        yield row | {"note": why}


def _called(words, budget):
    """Return the documents that peer_one.py prints, and why there are no more of them."""
    call = [sys.executable, HERE / "peer_one.py", *words]
    # or JAX takes three quarters of the GPU's memory at once
    environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "PYTHONWARNINGS": ""}
    try:
        done = subprocess.run(
            [str(word) for word in call],
            capture_output=True,
            text=True,
            timeout=min(PATIENCE, max(budget.left, 1)),
            env=environment,
            check=False,
        )
        printed, status, errors = done.stdout, done.returncode, done.stderr
    except subprocess.TimeoutExpired as error:
        printed, status = error.stdout or b"", "too late"
        printed, errors = printed.decode(), f"stopped after {error.timeout:.0f} s"
    lines = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    said = errors.strip().splitlines() or [f"exit status {status}"]
    # advice may stand below the error
    wrong = [line for line in said if re.match(r"[\w.]*(Error|Exception|stopped)\b", line)]
    return lines, (wrong or said)[-1][:300] if status else ""


def vecchia(machine, budget):
    """Stage k: Vecchia's likelihood on all cores, and on the GPU where it runs there."""
    places = [("cpu", usable_cores())]
    if machine.gpu:
        try:
            gx.Vecchia(30, on="gpu")
            places.append(("gpu", 1))
        except gx.GeomxpError as error:
            yield {"on": "gpu", "note": f"refused: {reason(error)}"}
    prediction = {on: Prediction(1) for on, _ in places}
    for n in machine.sizes(100_000, 1_000_000, 10_000_000, tiny=(1500,)):
        for on, cores in places:
            row = {"on": on, "n": n, "neighbours": 10 if machine.tiny else 30, "cores": cores}
            # order and search grow a little faster than n
            if why := budget.refuses(1.3 * prediction[on].of(n)):
                yield row | {"note": why}
                continue
            start = time.perf_counter()
            yield tried(row, partial(_vecchia, machine, n, row["neighbours"], on))
            prediction[on].learn(n, time.perf_counter() - start)
            machine.give_back()


def _vecchia(machine, n, m, on):
    random = np.random.default_rng(1)
    seen = gx.Observations(random.random((n, 2)), random.standard_normal(n))
    model, method = gx.Matern(1.0, 0.05, 0.8, 0.1), gx.Vecchia(m, on=on)
    # compiled before anything is timed
    small = method.prepare(seen.subset(np.arange(1000)), np.ones((1000, 1)))
    small(model)
    small.gradient(model)
    start = time.perf_counter()
    evaluator = method.prepare(seen, np.ones((n, 1)))
    prepared = time.perf_counter() - start
    values, slopes = [], []
    for k in range(3):
        # another smoothness each time, as in a fit
        other = gx.Matern(1.0, 0.05, 0.8 + 0.01 * (k + 1), 0.1)
        start = time.perf_counter()
        value = evaluator(other).log_likelihood
        middle = time.perf_counter()
        evaluator.gradient(other)
        values.append(middle - start)
        slopes.append(time.perf_counter() - middle)
    return {
        "seconds_order_and_search": prepared,
        "seconds_evaluation": float(np.median(values)),
        "seconds_gradient_and_information": float(np.median(slopes)),
        "places_per_s": n / float(np.median(values)),
        "resident_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "log_likelihood": value,
    }
