"""Write space_time.json: log-likelihoods of Gneiting models by GPBoost, which must be installed.

    python -m references.make_space_time    (in tests/)

GPBoost's covariance is equation (16) of Gneiting (2002) with a = b^-2α and c = 1/range, in the
names of geomxp; its first parameter is the nugget. By Vecchia's approximation each value is given
all values before it, in the order of the data.
"""

import json
from importlib.metadata import version
from pathlib import Path

import numpy as np

N = 80
MODELS = (
    {"time_power": 0.7, "interaction": 0.6, "time_decay": 0.4},
    {"time_power": 1.0, "interaction": 1.0, "time_decay": 0.0},
    {"time_power": 0.3, "interaction": 0.0, "time_decay": 1.5},
    {"time_power": 0.9, "interaction": 0.2, "time_decay": 2.0},
)
SCALES = {"variance": 1.3, "range": 0.3, "time_range": 0.8, "nugget": 0.1}


def log_likelihood(points, values, model, **approximation):
    """Return the log-likelihood of zero-mean values at points (time, x, y)."""
    import gpboost

    process = gpboost.GPModel(
        gp_coords=points, cov_function="space_time_gneiting", likelihood="gaussian", **approximation
    )
    b, alpha = model["time_range"], model["time_power"]
    given = [model["nugget"], model["variance"], b ** (-2 * alpha), 1 / model["range"], alpha]
    given += [model[name] for name in ("smoothness", "interaction", "time_decay")]
    return -process.neg_log_likelihood(cov_pars=np.array(given), y=values)


def main():
    """Compute all log-likelihoods and write the file."""
    random = np.random.default_rng(16)
    locations, time = random.random((N, 2)), 5 * random.random(N)
    values, cases = random.standard_normal(N), []
    points = np.column_stack((time, locations))
    given = {"gp_approx": "vecchia", "vecchia_ordering": "none", "num_neighbors": N - 1}
    for shapes in MODELS:
        for smoothness in (0.5, 0.8, 1.5):
            model = SCALES | {"smoothness": smoothness} | shapes
            exact, vecchia = (log_likelihood(points, values, model, **a) for a in ({}, given))
            cases.append({"model": model, "exact": exact, "vecchia": vecchia})
    data = {"locations": locations.tolist(), "time": time.tolist(), "values": values.tolist()}
    document = {"gpboost": version("gpboost"), **data, "cases": cases}
    Path(__file__).with_name("space_time.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
