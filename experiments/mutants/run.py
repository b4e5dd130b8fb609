"""Mutation testing: draw mutants at random, and run the tests on each of them.

    python experiments/mutants/run.py draw NAME [--count N] [--seed K] [--thinned BEFORE AFTER]
    python experiments/mutants/run.py [--output DIR] catch NAME REACHED LABEL [--every PART OF]
    python experiments/mutants/run.py [--output DIR] branches REACHED LABEL

draw: write a random sample of mutants to results/NAME.csv; --thinned takes only lines executed by
tests that BEFORE has and AFTER lacks. catch: for each mutant of a sample, run the tests that
execute its line until one fails or they have used 60 s of CPU; write DIR/NAME_LABEL.csv. branches:
write the share of branches that the tests reach, by room, to DIR/branches_LABEL.csv. BEFORE, AFTER
and REACHED are folders that the plugin `reach` has written.
"""

import argparse
import random
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import catching
import reach
from mutations import Mutant, applied, mutants, parses
from selection import Selection

# `common` is imported in functions: it imports geomxp, and processes of mutants, which import this
# file, must import the mutated copy
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PACKAGE = ROOT / "geomxp"
SOURCES = (".py", ".cu", ".cuh")


def texts():
    """Return the text of each source of the package, by its path."""
    return {
        str(path.relative_to(PACKAGE)): path.read_text()
        for path in sorted(PACKAGE.rglob("*"))
        if path.suffix in SOURCES
    }


def draw(name, count, seed, lines=None):
    """Draw mutants uniformly from all places, or from those on the given lines of files."""
    from common import write_rows

    sources = texts()
    places = [m for file, text in sources.items() for m in mutants(file, text)]
    if lines is not None:
        places = [m for m in places if lines.get(m.file, 0) >> m.line & 1]
    random.Random(seed).shuffle(places)
    chosen = []
    for mutant in places:
        if len(chosen) < count and parses(mutant, sources[mutant.file]):
            chosen.append(mutant._asdict() | {"same_result": ""})
    write_rows(HERE / "results" / f"{name}.csv", sorted(chosen, key=lambda m: list(m.values())))


def sample(name):
    """Return the mutants of a sample that can change a result."""
    from common import read_rows

    return [
        Mutant(r["file"], int(r["line"]), int(r["column"]), r["kind"], r["old"], r["new"])
        for r in read_rows(HERE / "results" / f"{name}.csv")
        if not r["same_result"]
    ]


def catch(name, reached, label, every, output, anew):
    """Run the tests on each mutant of a sample that is not yet in the results file."""
    from common import resume

    _, tests = reach.read(reached)
    selection, sources = Selection(PACKAGE, tests), texts()

    def rows_of(**cell):
        mutant = Mutant(**cell)
        able = selection.of(mutant)
        text = applied(mutant, sources[mutant.file])
        by, ran, seconds = catching.caught(ROOT, mutant.file, text, able)
        yield {"tests": len(able), "ran": ran, "seconds": round(seconds, 1), "caught_by": by}

    cells = [mutant._asdict() for mutant in sample(name)]
    resume(output / f"{name}_{label}.csv", cells, rows_of, every=every, anew=anew)


def branches(reached, label, output):
    """Write the share of branches that tests reach, by room."""
    from common import write_rows
    from coverage.parser import PythonParser

    arcs, _ = reach.read(reached)
    possible, taken = Counter(), Counter()
    for file, text in texts().items():
        if not file.endswith(".py"):
            continue
        parser = PythonParser(text=text)
        parser.parse_source()
        lines = {first for first, count in parser.exit_counts().items() if count > 1}
        multi = parser.multiline_map
        found = {(multi.get(a, a), multi.get(b, b)) for a, b in arcs.get(file, ())}
        wanted = {arc for arc in parser.arcs() if arc[0] in lines}
        room = file.partition("/")[0]
        possible[room] += len(wanted)
        taken[room] += len(wanted & found)
    rows = [
        {"room": room, "branches": n, "reached": taken[room], "share": round(taken[room] / n, 4)}
        for room, n in sorted(possible.items())
        if n
    ]
    write_rows(output / f"branches_{label}.csv", rows)


def thinned(before, after):
    """Return, by file, the lines executed by tests that are not in the second folder.

    Files must not have changed between the two, nor since then.
    """
    _, old = reach.read(before)
    _, new = reach.read(after)
    lines = Counter()
    for name in old.keys() - new.keys():
        for file, found in old[name][1].items():
            lines[file] |= found
    return dict(lines)


def main():
    """Run a command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=HERE / "results", help="folder of tables")
    parser.add_argument("--dirty", action="store_true", help="run with uncommitted changes")
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("draw")
    one.add_argument("name")
    one.add_argument("--count", type=int, default=120)
    one.add_argument("--seed", type=int, default=1)
    one.add_argument("--thinned", type=Path, nargs=2, metavar=("BEFORE", "AFTER"))
    one = commands.add_parser("catch")
    one.add_argument("name")
    one.add_argument("reached", type=Path)
    one.add_argument("label")
    one.add_argument("--every", type=int, nargs=2, default=(0, 1), metavar=("PART", "OF"))
    one.add_argument("--anew", action="store_true", help="replace the table")
    one = commands.add_parser("branches")
    one.add_argument("reached", type=Path)
    one.add_argument("label")
    options = parser.parse_args()
    if options.command == "draw":
        lines = thinned(*options.thinned) if options.thinned else None
        draw(options.name, options.count, options.seed, lines)
    elif options.command == "catch":
        about = options.every, options.output, options.anew
        catch(options.name, options.reached, options.label, *about)
    else:
        branches(options.reached, options.label, options.output)


if __name__ == "__main__":
    main()
