"""Write maxima.json: fields in which earlier versions of `fit` ended at a lower maximum.

    python tests/references/make_maxima.py

They are cases of experiments/maxima, with the largest log-likelihood found there.
"""

import csv
import importlib.util
import json
from pathlib import Path

HERE = Path(__file__).parent
STUDY = HERE.parents[1] / "experiments" / "maxima"
CASES = (1, 55, 206, 490, 500, 659, 954, 1004, 1028, 1668, 1938, 2633, 2723, 2877)


def main():
    """Draw the fields, and write the file."""
    spec = importlib.util.spec_from_file_location("maxima", STUDY / "run.py")
    study = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(study)
    with open(STUDY / "results" / "reference.csv", newline="") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        maxima = {int(row["case"]): float(row["log_likelihood"]) for row in rows}
    cases = []
    for number in CASES:
        seen, options, *_ = study.case(number)
        case = {"case": number, "metric": seen.metric, "options": options}
        case |= {"locations": seen.locations.tolist(), "values": seen.values.tolist()}
        cases.append(case | {"maximum": maxima[number]})
    (HERE / "maxima.json").write_text(json.dumps({"cases": cases}) + "\n")


if __name__ == "__main__":
    main()
