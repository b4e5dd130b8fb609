"""What a whole maximum-likelihood fit costs: geomxp beside its peers, each in its own process.

    python experiments/peers/fits.py [--tiny] [--peers-python /path/to/peers/bin/python]

One CPU, one thread; methods take turns, seed by seed (each seed another simulated field). Writes
results/fits.csv after every process; the log-likelihood of every method's estimates is geomxp's.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
from common import write_rows
from fit_one import places_and_values
from run import measure_with

import geomxp as gx

HERE = Path(__file__).parent
CASES = (
    ("0.5", 2000, ("geomxp", "scipy", "scipy-plain", "gpy", "scikit-learn", "gpytorch", "gpboost")),
    ("free", 2000, ("geomxp", "gpboost")),
    ("0.5", 4000, ("geomxp", "scipy", "scipy-plain")),
)
"""Smoothness, places, methods; the peers of 2,000 places need minutes at 4,000."""
TINY = (("0.5", 60, ("geomxp", "scipy", "scipy-plain")), ("free", 60, ("geomxp",)))
COLUMNS = (
    *("method", "version", "smoothness", "n", "seed", "wall_seconds", "cpu_seconds"),
    *("peak_bytes", "gradient_bytes"),
    *("log_likelihood", "below_best", "variance", "range", "estimated_smoothness", "nugget"),
    *("evaluations", "outcome"),
)


def row_of(line, seen):
    """Return a row with the log-likelihood of a line's estimates."""
    names = ("variance", "range", "smoothness", "nugget")
    # the smoothness asked for, which is a word, is overwritten by the estimate in the line
    model = gx.Matern(**{name: line[name] for name in names})
    value = gx.log_likelihood(seen, model).log_likelihood
    return line | {"log_likelihood": value, "estimated_smoothness": line["smoothness"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="60 places, without peers")
    parser.add_argument("--peers-python", type=Path, help="interpreter with requirements.txt")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    rows = []
    for smoothness, n, methods in TINY if options.tiny else CASES:
        for seed in range(1, 2 if options.tiny else options.seeds + 1):
            truth = 0.8 if smoothness == "free" else float(smoothness)
            seen = gx.Observations(*places_and_values(n, truth, seed))
            mine = []
            for method in methods:
                ours = method in ("geomxp", "scipy", "scipy-plain")
                python = sys.executable if ours else options.peers_python
                if python is None:
                    continue
                words = ["--n", n, "--smoothness", smoothness, "--seed", seed]
                for line in measure_with(HERE / "fit_one.py", python, method, words):
                    mine.append(row_of(line, seen) | {"smoothness": smoothness})
            best = max((row["log_likelihood"] for row in mine), default=None)
            for row in mine:
                rows.append(
                    {name: row.get(name) for name in COLUMNS}
                    | {"below_best": best - row["log_likelihood"]}
                )
                print(
                    "{method:14s} ν {smoothness:5s} n {n:5d}  {cpu_seconds:8.2f} CPU s, "
                    "{below_best:.1e} below the best".format(**rows[-1]),
                    flush=True,
                )
            write_rows(options.output / "fits.csv", rows)


if __name__ == "__main__":
    main()
