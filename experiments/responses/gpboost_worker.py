"""Evaluate GPBoost's Vecchia-Laplace approximation on request, in an environment of its own.

    python gpboost_worker.py FILE.npz LIKELIHOOD NEIGHBOURS

Each line of the standard input is a JSON list: a method of `speed.py`, variance and range. Prints a
line of JSON with the seconds and the log-likelihood. Needs gpboost and NumPy, nothing else.
"""

import json
import sys
import time
from importlib import metadata

import gpboost
import numpy as np


def main():
    """Answer requests until the input ends."""
    file, likelihood, neighbours = sys.argv[1:]
    data, models = np.load(file), {}
    for line in sys.stdin:
        method, *parameters = json.loads(line)
        if method not in models:
            models[method] = gpboost.GPModel(
                gp_coords=data["places"],
                cov_function="exponential",
                likelihood=likelihood,
                gp_approx="vecchia",
                num_neighbors=int(neighbours),
                vecchia_ordering="none",
                matrix_inversion_method="cholesky" if method == "cholesky" else "iterative",
                num_parallel_threads=1,
            )
            if method != "cholesky":
                models[method].set_optim_params(params={"cg_preconditioner_type": method})
        start = time.perf_counter()
        value = models[method].neg_log_likelihood(np.array(parameters), data["values"])
        found = {"seconds": time.perf_counter() - start, "log_likelihood": -float(value)}
        print(json.dumps(found | {"version": metadata.version("gpboost")}), flush=True)


if __name__ == "__main__":
    main()
