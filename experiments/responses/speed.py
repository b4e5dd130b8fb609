"""Seconds and errors of Laplace's approximation by Vecchia's, beside GPBoost's.

    python experiments/responses/speed.py --python PEERS/bin/python [--tiny]

PEERS is an environment with gpboost (pip install gpboost). Writes results/speed.csv. Both programs
have the same places, in the order maximin, the same neighbours, values and parameters, and one
thread; they take turns on one core. Without --python only geomxp is timed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["NUMBA_NUM_THREADS"] = "1"

import numpy as np

import geomxp as gx
from geomxp.covariance.responses import Bernoulli, Data, Poisson
from geomxp.likelihood import laplace
from geomxp.likelihood.laplace import VecchiaLaplace
from geomxp.prediction.simulate import lay_out
from geomxp.vecchia.factor import Graph

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import TINY, resume

HERE = Path(__file__).parent
NEIGHBOURS = 20
MODEL, NEAR = gx.Matern(1.0, 0.05, 0.5), gx.Matern(1.05, 0.051, 0.5)
RESPONSES = {"bernoulli": (Bernoulli(), "bernoulli_logit"), "poisson": (Poisson(), "poisson")}
ITERATIVE = ("vadu", "pivoted_cholesky", "fitc", "incomplete_cholesky")
SIZES = {10_000: (ITERATIVE, 3), 50_000: (ITERATIVE[:2], 1)}
"""Locations; preconditioners of GPBoost's iterative method that are timed; rounds."""

ERROR = 0.025
"""Standard error of the reported value."""


def problem(n, response, seed=3):
    """Return places in the order maximin, and values about a simulated field."""
    places = lay_out(n, "uniform", seed)
    graph = Graph.of(places, "maximin", NEIGHBOURS)
    places = np.ascontiguousarray(places[graph.tree.order[graph.sequence]])
    field = gx.simulate(MODEL, places, seed=seed, method=gx.Vecchia(30))[0]
    random = np.random.default_rng(seed)
    return places, response.draw(Data(np.zeros(n)), field, random)


class Ours:
    """The tasks that are timed, of geomxp: from a mode at 0, or from the one of a model near it."""

    def __init__(self, places, values, response):
        n = len(values)
        seen, self._response = gx.Observations(places, np.zeros(n)), response
        design = np.ones((n, 1))
        self._laplace = VecchiaLaplace(seen, Data(values), design, None, NEIGHBOURS, "given")

    def near(self):
        """Have the mode of the model nearby."""
        self._laplace.mode(NEAR, self._response, [0.0])

    def cold(self):
        """Return ℓ from a field of 0, with new weights of the neighbours."""
        self._laplace._last = None
        return self.warm()

    def warm(self):
        """Return ℓ from the last mode."""
        return self._mode().log_likelihood

    def _mode(self):
        return self._laplace.mode(MODEL, self._response, [0.0])

    def derivatives(self):
        """Return ℓ, computed with its derivatives by variance, range and mean."""
        names = "variance", "range"
        found = self._laplace.derivatives(MODEL, self._response, [0.0], names)
        return found.log_likelihood

    def reported(self):
        """Return ℓ with the correction of the log-determinant."""
        mode = self._mode()
        change, self.error = mode.correction(ERROR)
        return mode.log_likelihood + change

    def exact(self):
        """Return ℓ with the log-determinant of a complete sparse factor."""
        kept, laplace.MOST_EXACT = laplace.MOST_EXACT, 10**9
        mode = self._mode()
        change, _ = mode.correction()
        laplace.MOST_EXACT = kept
        return mode.log_likelihood + change

    def timed(self, task):
        """Return seconds and ℓ of a task, after the mode of the model nearby."""
        self.near()
        start = time.perf_counter()
        value = getattr(self, task)()
        return time.perf_counter() - start, value


class Theirs:
    """GPBoost in a process of its own, which waits while others are timed."""

    def __init__(self, python, places, values, likelihood, folder):
        file = Path(folder, f"{likelihood}_{len(values)}.npz")
        np.savez(file, places=places, values=values)
        command = [python, str(HERE / "gpboost_worker.py"), str(file), likelihood, str(NEIGHBOURS)]
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, env=environment
        )

    def timed(self, method):
        """Return seconds and ℓ."""
        found = self.ask(method, MODEL.variance, MODEL.range)
        return found["seconds"], found["log_likelihood"]

    def ask(self, *request):
        """Return the answer of the process to a request."""
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        # other lines are messages of GPBoost
        while not line.startswith("{"):
            if not line:
                sys.exit("GPBoost ended.")
            line = self._process.stdout.readline()
        found = json.loads(line)
        self.version = found["version"]
        return found

    def close(self):
        """End the process."""
        self._process.stdin.close()
        self._process.wait()


TASKS = {
    "cold": "value, from 0",
    "warm": "value, from a mode nearby",
    "derivatives": "value and derivatives, from a mode nearby",
    "reported": "reported value, from a mode nearby",
    "exact": "exact value, from a mode nearby",
}


def rows_of(n, response, python, folder):
    """Yield the rows of a size and a response."""
    response, likelihood = RESPONSES[response]
    iterative, rounds = SIZES.get(n, (ITERATIVE, 1))
    places, values = problem(n, response)
    ours, theirs = Ours(places, values, response), None
    methods = {task: ours.timed for task in TASKS}
    if python is not None:
        theirs = Theirs(python, places, values, likelihood, folder)
        methods |= dict.fromkeys(("cholesky", *iterative), theirs.timed)
    for task in TASKS:
        # compiled
        ours.timed(task)
    seconds, found = {method: [] for method in methods}, {}
    for turn in range(rounds):
        for method in list(methods)[:: 1 if turn % 2 == 0 else -1]:
            # short tasks several times between long ones
            for _ in range(3 if method in TASKS else 1):
                taken, found[method] = methods[method](method)
                seconds[method].append(taken)
    best = min((float(np.median(seconds[m])) for m in methods if m not in TASKS), default=None)
    for method, taken in seconds.items():
        middle = float(np.median(taken))
        yield {
            "package": "geomxp" if method in TASKS else f"gpboost {theirs.version}",
            "task": TASKS.get(method, "value"),
            "method": "" if method in TASKS else method,
            "seconds": float(f"{middle:.4g}"),
            "lowest": float(f"{min(taken):.4g}"),
            "highest": float(f"{max(taken):.4g}"),
            "timings": len(taken),
            "fastest_gpboost_over_this": "" if best is None else round(best / middle, 2),
            "log_likelihood": round(found[method], 4),
            "error": round(found[method] - found["exact"], 4),
            "standard_error": round(ours.error, 4) if method == "reported" else "",
        }
    if theirs is not None:
        theirs.close()


def main():
    """Time all sizes and responses."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", help="of an environment with gpboost")
    parser.add_argument("--anew", action="store_true", help="replace the rows of an earlier run")
    parser.add_argument("--tiny", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    cells = [{"n": n, "response": name} for n in ((300,) if TINY else SIZES) for name in RESPONSES]
    with tempfile.TemporaryDirectory() as folder:
        rows = partial(rows_of, python=options.python, folder=folder)
        resume(options.output / "speed.csv", cells, rows, anew=options.anew)


if __name__ == "__main__":
    main()
