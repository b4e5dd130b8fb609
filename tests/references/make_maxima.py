"""Write maxima.json: fields in which earlier versions of `fit` ended at a lower maximum.

    python tests/references/make_maxima.py

They are cases of experiments/maxima, with the largest log-likelihood that the reference or a fit
has found there.
"""

import importlib.util
import json
import math
from pathlib import Path

HERE = Path(__file__).parent
STUDY = HERE.parents[1] / "experiments" / "maxima"
CASES = (
    1,
    55,
    490,
    500,
    659,
    804,
    1004,
    1028,
    1668,
    1938,
    1955,
    2633,
    2723,
    2877,
    3320,
    3688,
    4414,
)


def main():
    """Draw the fields, and write the file."""
    spec = importlib.util.spec_from_file_location("maxima", STUDY / "run.py")
    study = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(study)
    maxima = dict.fromkeys(CASES, -math.inf)
    for path in (STUDY / "results" / "reference.csv", *(STUDY / "results").glob("fits_*.csv")):
        for number, row in study.read(path).items():
            if number in maxima and row.get("outcome", "CONVERGED") in study.USABLE:
                maxima[number] = max(maxima[number], study.value_of(row))
    cases = []
    for number in CASES:
        seen, options, *_ = study.case(number)
        case = {"case": number, "metric": seen.metric, "options": options}
        case |= {"locations": seen.locations.tolist(), "values": seen.values.tolist()}
        cases.append(case | {"maximum": maxima[number]})
    (HERE / "maxima.json").write_text(json.dumps({"cases": cases}) + "\n")


if __name__ == "__main__":
    main()
