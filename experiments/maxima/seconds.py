"""Time default fits of two checkouts of geomxp against each other, one thread each.

    python experiments/maxima/seconds.py BEFORE AFTER [--fields 4 2] [--tiny]

Fields of 1,000 and 2,000 uniform locations: strong, medium and weak correlation, and pure noise,
with the smoothness free and held at ½. Two processes, one of each checkout, fit each field in
turns. results/seconds.csv has one row for each fit: CPU seconds, evaluations, outcome,
log-likelihood; results/seconds_ratios.csv the ratios of the sums over fields.
"""

import argparse
import json
import sys
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import worker, write_rows

RESULTS = Path(__file__).parent / "results"

TRUTHS = {
    "strong": "gx.Matern(1.0, 0.2, 0.5, 0.05)",
    "medium": "gx.Matern(1.0, 0.1, 1.0, 0.3)",
    "weak": "gx.Matern(0.2, 0.05, 0.5, 0.8)",
    "noise": "gx.Matern(1e-12, 0.1, 0.5, 1.0)",
}
HELD = {"free": "{}", "held": "{'smoothness': 0.5}"}

WORKER = """
import json, sys, time, warnings
import numpy as np
import geomxp as gx
warnings.simplefilter("ignore")


def fitted(truth, n, seed, held):
    places = np.random.default_rng(seed).random((n, 2))
    seen = gx.Observations(places, gx.simulate(eval(truth), places, seed=seed)[0])
    began = time.process_time()
    row = {"outcome": "", "log_likelihood": None, "evaluations": None}
    try:
        fit = gx.fit(seen, fixed=eval(held), progress=False, raise_on_failure=False)
        row = {"outcome": str(fit.outcome.ending), "log_likelihood": fit.log_likelihood}
        row["evaluations"] = fit.evaluations
    except gx.GeomxpError as error:
        row["outcome"] = type(error).__name__
    return {"seconds": round(time.process_time() - began, 3)} | row


# compile, and fill the caches, unless times mean nothing
n = int(sys.argv[1])
for held in ({}, {"smoothness": 0.5}) if n else ():
    fitted("gx.Matern(1.0, 0.1, 0.5, 0.1)", n, 0, repr(held))
    fitted("gx.Matern(1e-12, 0.1, 0.5, 1.0)", n, 0, repr(held))
print("ready", flush=True)
for line in sys.stdin:
    print(json.dumps(fitted(*json.loads(line))), flush=True)
"""


def main():
    """Fit all fields and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--fields", type=int, nargs=2, default=(4, 2), help="of each size")
    parser.add_argument("--tiny", action="store_true", help="one field of 80 locations")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    sizes = {80: 1} if options.tiny else dict(zip((1000, 2000), options.fields, strict=True))
    versions = {"before": options.before.resolve(), "after": options.after.resolve()}
    first = "0" if options.tiny else "600"
    workers = {name: worker(path, WORKER, first) for name, path in versions.items()}
    for process in workers.values():
        process.stdout.readline()
    rows = []
    for n, (signal, truth), (smoothness, held) in product(sizes, TRUTHS.items(), HELD.items()):
        for seed in range(1, sizes[n] + 1):
            order = list(workers) if seed % 2 else list(workers)[::-1]
            for version in order:
                process = workers[version]
                process.stdin.write(json.dumps([truth, n, seed, held]) + "\n")
                process.stdin.flush()
                about = {"n": n, "signal": signal, "smoothness": smoothness, "seed": seed}
                rows.append(about | {"version": version} | json.loads(process.stdout.readline()))
                print(*rows[-1].values(), flush=True)
            write_rows(options.output / "seconds.csv", rows)
    for process in workers.values():
        process.stdin.close()
        process.wait()
    ratios = []
    for key in dict.fromkeys((row["n"], row["signal"], row["smoothness"]) for row in rows):
        mine = [row for row in rows if (row["n"], row["signal"], row["smoothness"]) == key]
        sums = {v: sum(row["seconds"] for row in mine if row["version"] == v) for v in versions}
        line = dict(zip(("n", "signal", "smoothness"), key, strict=True))
        line |= {f"seconds_{v}": round(total, 2) for v, total in sums.items()}
        ratios.append(line | {"ratio": round(sums["after"] / sums["before"], 3)})
    write_rows(options.output / "seconds_ratios.csv", ratios)


if __name__ == "__main__":
    main()
