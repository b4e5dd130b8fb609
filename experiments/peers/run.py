"""What one exact log-likelihood costs: geomxp beside its peers, LAPACK's dpotrf and SciPy by hand.

    python experiments/peers/run.py [--tiny] [--peers-python /path/to/peers/bin/python]

Each measurement is a process of its own (one.py) on one CPU with one thread; methods take turns,
round by round. Writes results/likelihood.csv: medians over the rounds.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import write_rows

HERE = Path(__file__).parent
OURS = (("geomxp", 0.5), ("geomxp", 0.8), ("scipy", 0.5), ("scipy", 0.8))
PEERS = tuple(
    (method, 0.5) for method in ("scikit-learn", "gpytorch", "gpboost", "gpmp", "fvgp", "openturns")
)
LONGEST = 60.0
"""Seconds: no evaluation is begun that would take longer, judged by n³ from a smaller n."""
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS", "OPENTURNS")}
SAME = 1e-6
"""Relative: a log-likelihood further from geomxp's is of another model."""


def measure(python, method, smoothness, n, repeats):
    """Return the lines of one process of one.py; none where it failed, and say why."""
    words = ["--n", n, "--smoothness", smoothness, "--repeats", repeats]
    return measure_with(HERE / "one.py", python, method, words)


def measure_with(script, python, method, words):
    """Return the lines of one process of a script; none where it failed, and say why."""
    done = subprocess.run(
        [str(word) for word in (python, script, method, *words)],
        capture_output=True,
        text=True,
        env={**os.environ, **ONE_THREAD},
        check=False,
    )
    if done.returncode:
        why = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        print(f"{method} left out: {why[-1]}", flush=True)
        return []
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def rounds(cases, n, count, repeats):
    """Return {(method, smoothness): its lines}, the methods taking turns; failures left out."""
    lines, failed = {}, set()
    for k in range(count):
        for case, python in cases.items():
            if case in failed:
                continue
            found = measure(python, *case, n, repeats)
            if not found:
                failed.add(case)
            for line in found:
                lines.setdefault((line["method"], line["smoothness"]), []).append(line)
            print(
                f"n = {n}, round {k + 1} of {count}: "
                + ", ".join(
                    "{method} {smoothness:g}: {cpu_seconds:.3g} s".format(**line) for line in found
                ),
                flush=True,
            )
    return lines


def summary(lines, n):
    """Return a row for each method: medians over its rounds, beside dpotrf and geomxp."""
    rows = []
    for (method, smoothness), mine in lines.items():

        def median(name, mine=mine):
            values = [line[name] for line in mine if line.get(name) is not None]
            return np.median(values) if values else None

        cpu = [line["cpu_seconds"] for line in mine]
        over = median("over_dpotrf")
        if over is None:
            factorized = lines["dpotrf", smoothness]
            over = np.median(cpu) / np.median([line["cpu_seconds"] for line in factorized])
        likelihood, difference = median("log_likelihood"), None
        if likelihood is not None:
            reference = lines["geomxp", smoothness][0]["log_likelihood"]
            difference = abs(likelihood - reference) / abs(reference)
            if difference > SAME:
                print(f"{method} left out: ℓ = {likelihood}, geomxp's {reference}")
                continue
        rows.append(
            {
                "method": method,
                "version": mine[0]["version"],
                "smoothness": smoothness,
                "n": n,
                "rounds": len(mine),
                "wall_seconds": round(median("wall_seconds"), 6),
                "cpu_seconds": round(np.median(cpu), 6),
                "cpu_seconds_lowest": round(min(cpu), 6),
                "cpu_seconds_highest": round(max(cpu), 6),
                "over_dpotrf": round(over, 4),
                "log_likelihood": likelihood,
                "relative_difference": difference,
                "prepared_bytes": median("prepared_bytes"),
                "peak_bytes": median("peak_bytes"),
            }
        )
    return sorted(rows, key=lambda row: (row["smoothness"], row["cpu_seconds"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="one round at n = 200")
    parser.add_argument("--peers-python", type=Path, help="interpreter with requirements.txt")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3, help="evaluations in each process")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    sizes = (200,) if options.tiny else (4000, 8000)
    count, repeats = (1, 1) if options.tiny else (options.rounds, options.repeats)
    cases = dict.fromkeys(OURS, sys.executable)
    if options.peers_python is not None:
        cases |= dict.fromkeys(PEERS, options.peers_python)
    rows = []
    for n in sizes:
        lines = rounds(cases, n, count, repeats)
        rows += summary(lines, n)
        done = {(row["method"], row["smoothness"]): row for row in rows if row["n"] == n}
        larger = min((size for size in sizes if size > n), default=n)
        cases = {
            case: python
            for case, python in cases.items()
            if case in done and done[case]["cpu_seconds"] * (larger / n) ** 3 < LONGEST
        }
    write_rows(options.output / "likelihood.csv", rows)
    print(f"\n{'method':14s}{'ν':>5s}{'n':>6s}{'CPU s':>9s}{'wall s':>9s}{'/dpotrf':>9s}", end="")
    print(f"{'before':>9s}{'peak':>7s}  (memory in n²·8 bytes)")
    for row in rows:
        matrix = 8 * row["n"] ** 2
        print(
            "{method:14s}{smoothness:5g}{n:6d}{cpu_seconds:9.3f}{wall_seconds:9.3f}"
            "{over_dpotrf:9.2f}".format(**row),
            end="",
        )
        if row["peak_bytes"] is None:
            print()
        else:
            print(f"{row['prepared_bytes'] / matrix:9.2f}{row['peak_bytes'] / matrix:7.2f}")


if __name__ == "__main__":
    main()
