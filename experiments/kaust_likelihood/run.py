"""Log-likelihoods of the KAUST 2021 fields at their true parameters, beside numbers from elsewhere.

    python experiments/kaust_likelihood/run.py (--data FOLDER | --tiny)

FOLDER holds G1.npz … of https://github.com/ecrc/exageostatR, data/90_10, as arrays `train` and
`test` (x, y, z). Writes results/likelihood.csv: log-likelihood, log-determinant and quadratic form,
each with its relative difference from the reference, and the largest of the three between the two
programs that a reference may have; of small matrices also the condition number. With --tiny only
the subsets of 600 and 800 places; without --data as well, a simulated field in their place, whose
reference is SciPy's.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import gamma, kv

import geomxp as gx
from geomxp.prediction.simulate import lay_out

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import write_rows

HERE = Path(__file__).parent
REFERENCE = HERE.parents[1] / "tests" / "references" / "kaust_2021.json"
QUANTITIES = {"log_likelihood": "loglik", "log_determinant": "logdet", "quadratic_form": "quad"}


def jobs(references, tiny):
    """Yield case, number of places, and decimals of the coordinates or None."""
    for case in references["certified_loglik_kaust_subsets"]:
        yield case, case["n"], None
    for case in () if tiny else references["exact_loglik_n10000"]:
        yield case, 10_000, None
        if "decimals" in case:
            yield case, 10_000, case["decimals"]


def load(case, folder, sums):
    """Return the test array, (n, 3), of a file that is the one the reference is about."""
    path = folder / case["file"]
    if not path.is_file():
        raise SystemExit(f"run.py: --data: there is no {path}.")
    if hashlib.sha256(path.read_bytes()).hexdigest() != sums[case["file"]]:
        raise SystemExit(f"run.py: {path} has another SHA-256 than the references' file.")
    with np.load(path, allow_pickle=False) as archive:
        return archive["test"]


def simulated(n=289):
    """Return a case and its table, the reference computed by SciPy."""
    model = gx.Matern(1.5, 0.1, 0.8, 0.1)
    places = lay_out(n, "jittered", seed=1)
    z = gx.simulate(model, places, seed=2)[0]
    h = np.linalg.norm(places[:, None] - places, axis=2)
    np.fill_diagonal(h, 1.0)
    r, nu = h / model.range, model.smoothness
    sigma = model.variance * 2 ** (1 - nu) / gamma(nu) * r**nu * kv(nu, r)
    np.fill_diagonal(sigma, model.variance + model.nugget)
    factor = cho_factor(sigma, lower=True)
    determinant = 2 * np.log(np.diag(factor[0])).sum()
    form = z @ cho_solve(factor, z)
    case = {
        "dataset": "simulated",
        **{"sigma2": model.variance, "range": model.range, "nu": nu, "nugget": model.nugget},
        "loglik": -0.5 * (n * np.log(2 * np.pi) + determinant + form),
        "logdet": determinant,
        "quad": form,
        "cond2": np.linalg.cond(sigma),
    }
    return case, np.column_stack((places, z))


def condition_number(model, places):
    """Return κ₂(Σ)."""
    return float(np.linalg.cond(model(places, places) + model.nugget * np.eye(len(places))))


def between_tools(case):
    """Return the largest relative difference of the reference's two programs; "" of one."""
    other = case.get("second_tool")
    if not other:
        return ""
    return max(abs(other[key] / case[key] - 1) for key in QUANTITIES.values())


def compared(case, table, decimals):
    """Evaluate one case; return it with the reference and the relative differences."""
    places = table[:, :2] if decimals is None else np.round(table[:, :2], decimals)
    seen = gx.Observations(places, table[:, 2])
    model = gx.Matern(case["sigma2"], case["range"], case["nu"], case["nugget"])
    found = gx.log_likelihood(seen, model)
    row = {
        "field": case["dataset"],
        "n": len(seen),
        "coordinates": "as stored" if decimals is None else f"{decimals} decimals",
        "variance": model.variance,
        "range": model.range,
        "smoothness": model.smoothness,
        "nugget": model.nugget,
    }
    for name, key in QUANTITIES.items():
        value, reference = getattr(found, name), float(case[key])
        row[name] = value
        row[f"reference_{name}"] = reference
        row[f"difference_{name}"] = abs(value / reference - 1)
    return row | {
        "difference_between_tools": between_tools(case),
        "condition_number": condition_number(model, places) if "cond2" in case else "",
        "reference_condition_number": case.get("cond2", ""),
        "seconds": round(found.seconds, 3),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of the data files")
    parser.add_argument("--tiny", action="store_true", help="the subsets only")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    if options.data is None and not options.tiny:
        parser.error("--data FOLDER is needed, or --tiny")
    references = json.loads(REFERENCE.read_text())
    sums = {case["file"]: case["sha256"] for case in references["exact_loglik_n10000"]}
    tables = (
        (case, load(case, options.data, sums)[:n], decimals)
        for case, n, decimals in jobs(references, options.tiny)
    )
    rows = []
    for job in tables if options.data else [(*simulated(), None)]:
        rows.append(compared(*job))
        print(
            "{field} n = {n}, coordinates {coordinates}: {log_likelihood:.9f}, off by "
            "{difference_log_likelihood:.1e}, {difference_log_determinant:.1e}, "
            "{difference_quadratic_form:.1e}".format(**rows[-1]),
            flush=True,
        )
    write_rows(options.output / "likelihood.csv", rows)


if __name__ == "__main__":
    main()
