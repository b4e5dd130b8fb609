"""A plugin of pytest that writes the CPU time of each test file.

    pytest -n 2 --dist loadfile -p seconds --seconds docs/pages/development/seconds.md

It counts CPU seconds of the process that runs a test and of its finished child processes, and shows
imports, compilation by numba, g++ and NVRTC, and searches of fits separately. What remains of the
wall-clock time is waiting: for Dask's workers, browsers, disks, timeouts. The suffix of the path
selects the format: `.md` a page of the documentation, otherwise CSV. Runs with several workers
begin with the files that take longest according to the page (see conftest.py).
"""

import csv
import importlib.machinery
import re
import resource
import subprocess
import time
from collections import Counter, defaultdict
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from threading import local

import pytest

PARTS = ("imports", "numba", "NVRTC", "fits", "other")
"""Parts of the CPU time of the process itself; the rest is "other"."""

COLUMNS = ("tests", "wall", "waiting", *PARTS, "g++", "processes", "started")
"""Columns of the table: `processes` is the CPU time of child processes, `started` their number."""

BEGINNING = "(start of the workers: imports and collection)"


def children():
    """Return the CPU seconds of processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Stopwatches:
    """CPU seconds of the calling thread by kind.

    Time in a nested stopwatch is counted by the inner one only.
    """

    def __init__(self):
        self.seconds, self._running = Counter(), local()

    @contextmanager
    def running(self, kind, clock=time.thread_time):
        """Count the block under a kind."""
        outer = self._running.__dict__.setdefault(clock.__name__, [])
        outer.append(0.0)
        began = clock()
        try:
            yield
        finally:
            spent = clock() - began
            self.seconds[kind] += spent - outer.pop()
            if outer:
                outer[-1] += spent

    def around(self, owner, name, kind, clock=time.thread_time):
        """Count the calls of a function or method under a kind."""
        function = getattr(owner, name)

        @wraps(function)
        def counted(*arguments, **options):
            with self.running(kind, clock):
                return function(*arguments, **options)

        setattr(owner, name, counted)


class Seconds:
    """Counts by file, in a worker of pytest-xdist or without workers."""

    def __init__(self):
        self.watches, self.rows = Stopwatches(), defaultdict(Counter)
        self._watch()
        self.last = self._now()

    def _watch(self):
        import compilers
        from cuda_emulator import host_kernels
        from numba.core import event

        from geomxp.estimation.problem import Problem

        watches = self.watches
        for loader in ("SourceFileLoader", "ExtensionFileLoader"):
            watches.around(getattr(importlib.machinery, loader), "exec_module", "imports")
        watches.around(host_kernels, "_compile", "g++", children)
        watches.around(compilers, "compiled", "NVRTC")
        watches.around(Problem, "search", "fits")
        watches.around(Problem, "solve", "fits")
        blocks = []

        class Listener(event.Listener):
            def on_start(self, _):
                blocks.append(watches.running("numba"))
                blocks[-1].__enter__()

            def on_end(self, _):
                blocks.pop().__exit__(None, None, None)

        event.register("numba:compile", Listener())
        start = subprocess.Popen.__init__

        @wraps(start)
        def counted(*arguments, **options):
            watches.seconds["started"] += 1
            start(*arguments, **options)

        subprocess.Popen.__init__ = counted

    def _now(self):
        now = Counter(self.watches.seconds)
        now["wall"], now["own"], now["children"] = time.time(), time.process_time(), children()
        return now

    def add(self, file, tests):
        """Add what has passed since the last call to a file's counts."""
        now = self._now()
        spent = Counter({kind: x - self.last[kind] for kind, x in now.items()})
        self.last, row = now, self.rows[file]
        own, others = spent.pop("own"), spent.pop("children")
        spent["other"] = own - sum(spent[kind] for kind in PARTS[:-1])
        spent["processes"] = others - spent["g++"]
        # less than 0 where processes are counted that ended later than their tests
        spent["waiting"] = spent["wall"] - own - others
        spent["tests"] = tests
        for kind in COLUMNS:
            row[kind] += spent[kind]


def pytest_addoption(parser):
    """Add the option `--seconds`."""
    parser.addoption(
        "--seconds",
        metavar="PATH",
        help="write the CPU time of each test file (.md: a page of the docs; otherwise CSV)",
    )


def pytest_configure(config):
    """Begin to count."""
    path = config.getoption("--seconds")
    if path:
        parts = config.option.keyword or config.option.markexpr
        if path.endswith(".md") and (
            parts or config.args_source is not config.ArgsSource.TESTPATHS
        ):
            raise pytest.UsageError(
                "the page of --seconds lists all tests: leave out paths, -k and -m, or write a .csv"
            )
        config.pluginmanager.register(_Plugin(config), "counting seconds")


class _Plugin:
    def __init__(self, config):
        self.config, self.all = config, defaultdict(Counter)
        self.counts = not getattr(config.option, "numprocesses", None) or _is_worker(config)
        if self.counts:
            self.seconds = Seconds()

    def pytest_collection_finish(self):
        if self.counts:
            self.seconds.add(BEGINNING, 0)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        # what a session-wide fixture costs is counted in the file that first asks for it
        result = yield
        self.seconds.add(item.location[0], 1)
        return result

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        self._join(getattr(node, "workeroutput", {}).get("seconds", {}))

    def _join(self, rows):
        for file, row in rows.items():
            self.all[file].update(row)

    def pytest_sessionfinish(self, session):
        if _is_worker(self.config):
            rows = {file: dict(row) for file, row in self.seconds.rows.items()}
            session.config.workeroutput["seconds"] = rows
        elif self.counts:
            self._join(self.seconds.rows)

    def pytest_unconfigure(self):
        if self.all and not _is_worker(self.config):
            write(self.all, Path(self.config.getoption("--seconds")))


def _is_worker(config):
    return hasattr(config, "workerinput")


def cpu(row):
    """Return the CPU seconds of a file, all processes together."""
    return sum(row[kind] for kind in (*PARTS, "g++", "processes"))


def lasting(row):
    """Return the seconds of a file, with waiting."""
    return cpu(row) + row["waiting"]


def write(rows, path):
    """Write the counts of files, those that last longest first."""
    for row in rows.values():
        row["waiting"] = max(0.0, row["waiting"])
    ordered = sorted(rows.items(), key=lambda item: -lasting(item[1]))
    total = sum((row for _, row in ordered), Counter())
    if path.suffix == ".md":
        path.write_text(page(ordered, total), encoding="utf-8")
        return
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["file", "cpu", *COLUMNS])
        for name, row in [*ordered, ("all", total)]:
            writer.writerow([name, *(round(x, 2) for x in (cpu(row), *(row[c] for c in COLUMNS)))])


LEAST = 5.0
"""Seconds, with waiting, below which a file has no row of its own on the page."""


def longest_first(page):
    """Return the files that the text of a page lists: those that last longest, in its order."""
    return re.findall(r"^\| `(tests/\S+\.py)` \|", page, re.MULTILINE)


def page(ordered, total):
    """Return the page of the documentation."""
    large = [(f"`{name}`", row) for name, row in ordered if lasting(row) >= LEAST]
    small = [row for _, row in ordered if lasting(row) < LEAST]
    others = f"{len(small)} other files, each below {LEAST:.0f} s"
    rows = [*large, (others, sum(small, Counter())), ("**all**", total)]
    head = ("file", "tests", "CPU", *PARTS, "g++", "processes", "waiting")
    lines = [
        "# Test times",
        "",
        "CPU time of each test file in seconds, divided into imports, compilation (numba, NVRTC,",
        "g++), searches of fits, other work of the test process, and child processes. Waiting is",
        "wall-clock time in which neither the test process nor its finished child processes used",
        "CPU. Dask workers and planted faults are forked from a process that lives until the end",
        "of the run; their CPU time is shown as waiting. g++ and NVRTC take longer when their",
        "caches are empty.",
        "",
        '```console title="Not run in the tests: runs the whole test suite"',
        "$ pytest -n 2 --dist loadfile -p seconds --seconds docs/pages/development/seconds.md",
        "```",
        "",
        f"| {' | '.join(head)} |",
        f"|---|{'--:|' * (len(head) - 1)}",
    ]
    for name, row in rows:
        numbers = (cpu(row), *(row[c] for c in (*PARTS, "g++", "processes", "waiting")))
        cells = [name, f"{row['tests']:,.0f}", *(f"{x:,.0f}" for x in numbers)]
        lines.append(f"| {' | '.join(cells)} |")
    wall = f"Wall-clock time of all workers together: {total['wall']:,.0f} s."
    return "\n".join([*lines, "", wall, ""])
