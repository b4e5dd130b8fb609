"""Whole runs of the tests: seconds, CPU seconds of the machine, and outcomes.

    python experiments/mutants/runs.py CHECKOUT [OPTIONS OF PYTEST]

Runs the tests of a checkout with this Python and adds a row to results/runs.csv. CPU seconds are
those of all processes of the machine, so nothing else may run. The first run of a checkout compiles
what later runs find.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import commits_of, read_rows, write_rows

TABLE = Path(__file__).resolve().parent / "results" / "runs.csv"


def busy():
    """Return the CPU seconds of all processes since the machine started."""
    user, nice, system, _, _, *interrupts = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


def row_of(checkout, options):
    """Run the tests of a checkout; return their row."""
    compiled = any((checkout / "geomxp").rglob("*.nbc"))
    words = ["git", "describe", "--always", "--dirty", "--abbrev=8"]
    commit = subprocess.run(words, cwd=checkout, capture_output=True, text=True, check=True)
    environment = os.environ | {"PYTHONPATH": str(checkout), "OPENBLAS_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    began, spent = time.time(), busy()
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options],
        cwd=checkout,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    seconds, spent = time.time() - began, busy() - spent
    *_, last = run.stdout.splitlines()
    found = {name: int(number) for number, name in re.findall(r"(\d+) (\w+)", last)}
    return {
        "commit": commit.stdout.strip(),
        "compiled_before": compiled,
        "options": " ".join(options),
        "seconds": round(seconds),
        "cpu_seconds": round(spent),
        **{name: found.get(name, 0) for name in ("passed", "skipped", "failed")},
    }


def main():
    """Run the tests once."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path)
    arguments, options = parser.parse_known_args()
    row = row_of(arguments.checkout.resolve(), options)
    print(row)
    write_rows(TABLE, [*read_rows(TABLE), row], commits=commits_of(TABLE))


if __name__ == "__main__":
    main()
