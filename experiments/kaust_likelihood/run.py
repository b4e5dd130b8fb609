"""Log-likelihoods of the KAUST 2021 fields at their true parameters, beside numbers from elsewhere.

    python experiments/kaust_likelihood/run.py --data FOLDER [--tiny]

FOLDER holds G1.npz … of https://github.com/ecrc/exageostatR, data/90_10, as arrays `train` and
`test` (x, y, z). Writes results/likelihood.csv. With --tiny only the subsets of 600 and 800 places.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

import geomxp as gx

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import write_rows

HERE = Path(__file__).parent
REFERENCE = HERE.parents[1] / "tests" / "references" / "kaust_2021.json"


def compared(case, table):
    """Evaluate one case; return it with the reference and the relative difference."""
    seen = gx.Observations(table[:, :2], table[:, 2])
    model = gx.Matern(case["sigma2"], case["range"], case["nu"], case["nugget"])
    found = gx.log_likelihood(seen, model)
    reference = float(case["loglik"])
    return {
        "field": case["dataset"],
        "n": len(seen),
        "smoothness": case["nu"],
        "range": case["range"],
        "nugget": case["nugget"],
        "log_likelihood": found.log_likelihood,
        "reference": reference,
        "relative_difference": abs(found.log_likelihood / reference - 1),
        "seconds": round(found.seconds, 3),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    references = json.loads(REFERENCE.read_text())
    jobs = [
        (case, int(case["rows"].split(":")[1].rstrip("]")))
        for case in references["certified_loglik_kaust_subsets"]
    ]
    if not options.tiny:
        jobs += [(case, 10_000) for case in references["exact_loglik_n10000"]]
    rows = []
    for case, n in jobs:
        with np.load(options.data / case["file"], allow_pickle=False) as archive:
            rows.append(compared(case, archive["test"][:n]))
        print(
            "{field} n = {n}: {log_likelihood:.9f}, off by {relative_difference:.1e}".format(
                **rows[-1]
            )
        )
    write_rows(options.output / "likelihood.csv", rows)


if __name__ == "__main__":
    main()
