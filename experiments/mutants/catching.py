"""Runs the tests on one mutant, in a process that has imported the libraries but not geomxp."""

import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        "matplotlib.pyplot",
        "numba",
        "pandas",
        "pytest",
        "hypothesis",
        "scipy.stats",
        "scipy.optimize",
    ]
)

BUDGET = 60.0
"""CPU seconds of the tests for one mutant, without collection; checked before each test."""

LIMIT = 900.0
"""Wall-clock seconds after which a mutant counts as one that does not end."""

FEW = 8
"""Number of test files that are run before the others are imported."""


def plant(checkout, folder, file, text):
    """Copy a checkout, with another text of one file of the package."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=checkout, capture_output=True, text=True, check=True
    )
    names = listed.stdout.rstrip("\0").split("\0")
    # compiled code
    names += [str(x.relative_to(checkout)) for x in (checkout / "geomxp").rglob("*.nb[ic]")]
    for name in names:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        source = checkout / name
        if source.is_symlink():
            target.symlink_to(os.readlink(source))
            continue
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)
    path = folder / "geomxp" / file
    # the link only: the checkout keeps its file
    path.unlink()
    path.write_text(text)


def caught(checkout, file, text, tests):
    """Run tests until one fails; return (what caught the mutant or "", tests run, CPU seconds)."""
    files = list(dict.fromkeys(name.split("::")[0] for name in tests))
    some = [name for name in tests if name.split("::")[0] in files[:FEW]]
    ran, seconds = 0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        plant(checkout, Path(folder), file, text)
        for names in (some, tests[len(some) :]):
            if names and seconds < BUDGET:
                by, more, spent = _caught_in(Path(folder), names, BUDGET - seconds)
                ran, seconds = ran + more, seconds + spent
                if by:
                    return by, ran, seconds
    return "", ran, seconds


def _caught_in(folder, tests, budget):
    result = folder / "result"
    result.write_text("")
    run = PROCESSES.Process(target=_test, args=(str(folder), tests, budget))
    run.start()
    run.join(LIMIT)
    if run.is_alive():
        os.killpg(run.pid, signal.SIGKILL)
        run.join()
        return "(does not end)", 0, LIMIT
    words = result.read_text().split("\n")
    if len(words) < 3:
        output = (folder / "output").read_text()[-2000:]
        if run.exitcode >= 0:
            raise RuntimeError(f"the tests of a mutant could not be run:\n{output}")
        print(output, file=sys.stderr)
        return "(crash)", 0, 0.0
    return words[0], int(words[1]), float(words[2])


def _test(folder, tests, budget):
    """Run tests on the copy in a folder, and write the first failure to its file `result`."""
    os.setsid()
    with open(Path(folder) / "output", "w") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    os.chdir(folder)
    sys.path.insert(0, folder)
    # without PYTHONSAFEPATH a process that a test starts would look for the package elsewhere
    os.environ |= {"PYTHONPATH": folder, "PYTHONSAFEPATH": "1", "OPENBLAS_NUM_THREADS": "1"}
    os.environ |= {"CI": "1"}
    import pytest

    watch = _Watch(tests, budget)
    files = list(dict.fromkeys(name.split("::")[0] for name in tests))
    options = ["-x", "-q", "-p", "no:cacheprovider", "-Wignore::pytest.PytestAssertRewriteWarning"]
    status = pytest.main([*options, *files], plugins=[watch])
    tested = Path(sys.modules["geomxp"].__file__)
    if not tested.is_relative_to(folder):
        raise ImportError(f"{tested} was tested, without the mutant")
    # 2 and 4: a module or conftest cannot be imported
    if not watch.failed and status not in (0, 5) and not watch.stopped:
        watch.failed = "(collection)"
    words = (watch.failed, str(watch.ran), str(watch.seconds))
    (Path(folder) / "result").write_text("\n".join(words))


class _Watch:
    """Selects and orders tests, and stops when the budget is spent."""

    def __init__(self, tests, budget):
        self.rank, self.budget = {name: k for k, name in enumerate(tests)}, budget
        self.failed, self.ran, self.seconds, self.stopped = "", 0, 0.0, False

    def pytest_collection_modifyitems(self, items):
        items[:] = [item for item in items if item.nodeid in self.rank]
        items.sort(key=lambda item: self.rank[item.nodeid])

    def pytest_runtest_logstart(self):
        self.began = _cpu(), time.time()

    def pytest_runtest_logreport(self, report):
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_runtest_logfinish(self):
        self.ran += 1
        self.seconds += _cpu() - self.began[0]

    def pytest_runtest_protocol(self, item):
        if self.seconds > self.budget:
            item.session.shouldstop, self.stopped = "the budget is spent", True


def _cpu():
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)
