"""Evaluate or maximize GPBoost's Vecchia-Laplace approximation, in an environment of its own.

    python gpboost_worker.py FILE.npz LIKELIHOOD NEIGHBOURS

Each line of the standard input is a JSON list: a method of `speed.py`, variance and range, and for
a fit that starts there an optimizer. Prints a line of JSON with the seconds and the log-likelihood,
of a fit also the estimates. Needs gpboost and NumPy, nothing else.
"""

import json
import sys
import time
from importlib import metadata

import gpboost
import numpy as np


def model_of(method, data, likelihood, neighbours):
    """Return a new model."""
    model = gpboost.GPModel(
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
        model.set_optim_params(params={"cg_preconditioner_type": method})
    return model


def fitted(model, values, parameters, optimizer):
    """Return the results of a fit with a constant mean."""
    options = {"init_cov_pars": parameters, "optimizer_cov": optimizer}
    try:
        model.fit(y=values, X=np.ones((len(values), 1)), params=options)
    except Exception as error:
        return {"failure": str(error)[:200]}
    return {
        "log_likelihood": -float(model.get_current_neg_log_likelihood()),
        "parameters": np.ravel(model.get_cov_pars(format_pandas=False)).tolist(),
        "coefficients": np.ravel(model.get_coef(format_pandas=False)).tolist(),
        "iterations": int(model._get_num_optim_iter()),
    }


def main():
    """Answer requests until the input ends."""
    file, likelihood, neighbours = sys.argv[1:]
    data, models = np.load(file), {}
    for line in sys.stdin:
        method, *parameters = json.loads(line)
        optimizer = parameters.pop() if isinstance(parameters[-1], str) else None
        if method not in models or optimizer:
            models[method] = model_of(method, data, likelihood, neighbours)
        model, parameters = models[method], np.array(parameters)
        start = time.perf_counter()
        if optimizer:
            found = fitted(model, data["values"], parameters, optimizer)
        else:
            value = model.neg_log_likelihood(parameters, data["values"])
            found = {"log_likelihood": -float(value)}
        found = {"seconds": time.perf_counter() - start} | found
        print(json.dumps(found | {"version": metadata.version("gpboost")}), flush=True)


if __name__ == "__main__":
    main()
