"""One task of GPBoost's Vecchia approximation, in an environment of its own: see peers.py.

    python gpboost_one.py FILE.npz (value|fit) --neighbours 30 --threads 2

Prints one line of JSON. Needs gpboost and NumPy, nothing else.
"""

import argparse
import json
import time
from importlib import metadata

import gpboost
import numpy as np


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("task", choices=("value", "fit"))
    parser.add_argument("--neighbours", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    data = np.load(options.file)
    estimated = options.task == "fit"
    start = time.perf_counter()
    model = gpboost.GPModel(
        gp_coords=data["places"],
        cov_function="matern_estimate_shape" if estimated else "matern",
        cov_fct_shape=float(data["smoothness"]),
        likelihood="gaussian",
        gp_approx="vecchia",
        num_neighbors=options.neighbours,
        vecchia_ordering="none",
        num_parallel_threads=options.threads,
    )
    found = {"version": metadata.version("gpboost"), "prepare": time.perf_counter() - start}
    if estimated:
        start, cpu = time.perf_counter(), time.process_time()
        model.fit(y=data["values"])
        found["seconds"] = time.perf_counter() - start
        found["cpu_seconds"] = time.process_time() - cpu
        found["log_likelihood"] = -float(model.get_current_neg_log_likelihood())
        found["parameters"] = np.ravel(model.get_cov_pars()).tolist()
    else:
        # nugget, variance, range as GPBoost writes them; another range each time
        seconds = []
        for k in range(options.repeats + 1):
            at = data["parameters"] * np.array([1.0, 1.0, 1.0 if k == 0 else 1 + 1e-3 * k])
            start = time.perf_counter()
            value = -float(model.neg_log_likelihood(cov_pars=at, y=data["values"]))
            seconds.append(time.perf_counter() - start)
            found.setdefault("log_likelihood", value)
        found["seconds"] = float(np.median(seconds[1:]))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
