"""Stage c: the tests that need a GPU; on a CPU a few of those that do not."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree

from harness import FAILED, HERE

ROOT = HERE.parents[1]
FEW = ("tests/tiles/test_schedule.py",)
"""What the rehearsal runs."""


def tests(machine, budget):
    """Stage c: `pytest -m gpu`, file by file."""
    files = [ROOT / name for name in FEW] if machine.tiny or not machine.gpu else _with_gpu()
    for path in files:
        row = {"file": str(path.relative_to(ROOT))}
        if reason := budget.refuses(20):
            yield row | {"note": reason}
            continue
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.xml"
            yield from _run(machine, budget, path, row, report)


def _with_gpu():
    """Return the test files that have tests for a GPU."""
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    return [path for path in paths if "mark.gpu" in path.read_text(encoding="utf-8")]


def _run(machine, budget, path, row, report):
    """Yield a row of one file, and a row for each test that failed."""
    marks = "gpu" if machine.gpu else "not gpu"
    call = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", marks]
    call += [f"--junitxml={report}", str(path)]
    start = time.perf_counter()
    try:
        done = subprocess.run(
            call,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=min(400, budget.left),
            env={k: v for k, v in os.environ.items() if k != "PYTHONWARNINGS"},
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        yield row | {"note": f"stopped after {error.timeout:.0f} s"}
        return
    row = row | {"seconds": time.perf_counter() - start}
    if not report.exists():
        said = (done.stderr or done.stdout).strip().splitlines() or [f"status {done.returncode}"]
        yield row | {"note": FAILED + said[-1][:300]}
        return
    suite = next(ElementTree.parse(report).iter("testsuite"))
    counts = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
    wrong = counts["failures"] + counts["errors"]
    yield row | {
        "passed": counts["tests"] - wrong - counts["skipped"],
        "failed": wrong,
        "skipped": counts["skipped"],
    }
    for case in suite.iter("testcase"):
        for failure in [*case.iter("failure"), *case.iter("error")]:
            message = " ".join((failure.get("message") or "").split())[:300]
            about = {"test": case.get("name"), "seconds": case.get("time")}
            yield row | about | {"note": FAILED + message}
