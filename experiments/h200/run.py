"""Every claim about a GPU, measured on one: stages a to n, the smallest sizes first.

    python experiments/h200/run.py [a b c ...] [--on gpu|cpu] [--tiny] [--output DIR]
                                   [--seconds N] [--least N] [--only REGEX] [--data DIR]

Each stage prints its rows as they come and writes them at once to DIR/<stage>_<name>.csv, so that a
run that is cut keeps what it has; summary.json says how each stage ended. Time is looked at between
cases: --seconds bounds all stages together. A stage that fails says why in one line, and the next
one goes on; on a GPU each has a process of its own. --only runs the cases whose printed row matches
(--only may be repeated). --tiny --on cpu rehearses all of them.
"""

import argparse
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from batches import batches
from ceilings import ceilings, libraries
from checks import tests
from dense import generation, products, recursions, refinement
from harness import (
    ASKED,
    FAILED,
    HERE,
    NOT_ASKED,
    Budget,
    Machine,
    Table,
    reason,
    shown,
    write_json,
)
from likelihood import exact, vecchia
from profiles import profiles
from satellite import satellite
from tiles import by_norm, out_of_core

from geomxp.errors import GeomxpError
from geomxp.runtime.devices import resolve

STAGES = {
    "a": ceilings,
    "b": libraries,
    "c": tests,
    "d": generation,
    "e": recursions,
    "f": by_norm,
    "g": out_of_core,
    "h": refinement,
    "i": batches,
    "j": exact,
    "k": vecchia,
    "l": satellite,
    "m": products,
    "n": profiles,
}


def run(letter, machine, budget):
    """Run one stage in this process; return how it ended."""
    stage, start = STAGES[letter], time.perf_counter()
    table = Table(machine.output / f"{letter}_{stage.__name__}.csv", machine.about())
    print(f"\n{letter}: {stage.__doc__.splitlines()[0]}", flush=True)
    ended = "done"
    rows = stage(machine, budget)
    try:
        for found in rows:
            # rows that were computed together come in a list
            for row in found if isinstance(found, list) else [found]:
                if row.get("note") == NOT_ASKED:
                    continue
                table.add(row)
                print(letter, shown(row), flush=True)
            if not budget.left:
                ended = "cut: the seconds are used"
                print(f"{letter}: {ended}", flush=True)
                break
    except Exception as error:
        ended = FAILED + reason(error)
        print(f"{letter}: {ended}", flush=True)
    finally:
        rows.close()
    failed = sum(str(row.get("note", "")).startswith(FAILED) for row in table.rows)
    seconds = round(time.perf_counter() - start, 2)
    return {"ended": ended, "rows": len(table.rows), "failed": failed, "seconds": seconds}


def run_apart(letter, options, budget):
    """Run one stage in a process of its own: an error that breaks the GPU's context ends there."""
    words = [sys.executable, __file__, letter, "--on", options.on, "--here"]
    words += ["--output", options.output, *(["--tiny"] if options.tiny else [])]
    words += ["--data", options.data] if options.data else []
    words += ["--least", options.least]
    words += [f"--only={pattern}" for pattern in options.only]
    words += ["--seconds", max(1, round(budget.left))] if options.seconds else []
    start = time.perf_counter()
    with subprocess.Popen([str(word) for word in words]) as child:
        # a stage must not outlive this process, or it disturbs what runs next
        signal.signal(signal.SIGTERM, lambda *_: (child.kill(), sys.exit(1)))
        status = child.wait()
    # what it was writes into the summary; a crash does not
    path = options.output / f"{letter}.json"
    if status == 0 and path.exists():
        document = json.loads(path.read_text())
        path.unlink()
        return document
    seconds = round(time.perf_counter() - start, 2)
    return {"ended": f"{FAILED}exit status {status}", "seconds": seconds}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stages", nargs="*", help=" ".join(STAGES))
    parser.add_argument("--on", default="cpu", choices=("gpu", "cpu"))
    parser.add_argument("--tiny", action="store_true", help="a rehearsal, in seconds")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    parser.add_argument("--seconds", type=float, help="for all stages together")
    parser.add_argument("--data", type=Path, help="folder of heaton_satellite.csv.gz")
    parser.add_argument("--least", type=int, default=0, help="smallest size to run")
    parser.add_argument("--only", action="append", default=[], help="pattern of rows to run")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = [name for name in options.stages if name not in STAGES]
    if unknown:
        parser.error(f"stages are {' '.join(STAGES)}. Got {' '.join(unknown)}")
    try:
        resolve(options.on)
    except GeomxpError as error:
        parser.error(str(error))
    ASKED.extend(re.compile(pattern) for pattern in options.only)
    machine = Machine(options.on, options.tiny, options.output, options.data, options.least)
    budget, summary = Budget(options.seconds), {}
    for letter in options.stages or STAGES:
        if not budget.left:
            summary[letter] = {"ended": "not begun: the seconds are used"}
        elif options.on == "gpu" and not options.here:
            summary[letter] = run_apart(letter, options, budget)
        else:
            summary[letter] = run(letter, machine, budget)
        if options.here:
            write_json(options.output / f"{letter}.json", summary[letter])
        else:
            write_json(options.output / "summary.json", summary)
            print(f"{letter}: {summary[letter]}", flush=True)
    ended = summary.values()
    # a rehearsal is to fail also where a single case does
    cases = options.tiny and any(entry.get("failed") for entry in ended)
    if cases or any(entry["ended"].startswith(FAILED) for entry in ended):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
