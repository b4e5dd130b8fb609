"""A plugin of pytest that records the lines each test executes and its CPU time.

    REACHED=FOLDER pytest -n 2 --dist loadfile -p reach      (with this folder on PYTHONPATH)

Each process of pytest writes one file to the folder, which is made if it is not there. Lines that
compiled loops, kernels and other processes execute are not seen.
"""

import os
import pickle
import resource
import zlib
from pathlib import Path

import coverage
import pytest

COLLECTION = "(collection)"
"""In place of the name of a test: the lines executed while tests are collected."""


def cpu():
    """Return the CPU seconds of this process and of its finished child processes."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def pytest_configure(config):
    """Start recording in each worker of pytest-xdist, or in this process without workers."""
    if hasattr(config, "workerinput") or not getattr(config.option, "numprocesses", None):
        config.pluginmanager.register(_Recorder(Path(os.environ["REACHED"])), "lines reached")


class _Recorder:
    def __init__(self, folder):
        import geomxp

        folder.mkdir(parents=True, exist_ok=True)
        self.root, self.path = Path(geomxp.__file__).parent, folder / f"{os.getpid()}.pickle"
        self.coverage = coverage.Coverage(
            data_file=None, branch=True, source=[str(self.root)], config_file=False
        )
        quiet = ["no-data-collected", "module-not-measured", "module-not-imported"]
        self.coverage.set_option("run:disable_warnings", quiet)
        self.coverage.start()
        self.arcs, self.tests, self.began = {}, {}, cpu()

    def _record(self, name):
        data, lines = self.coverage.get_data(), {}
        for file in data.measured_files():
            arcs = data.arcs(file)
            if arcs:
                short = str(Path(file).relative_to(self.root))
                self.arcs.setdefault(short, set()).update(arcs)
                lines[short] = bits({line for _, line in arcs if line > 0})
        data.erase()
        seconds, _ = self.tests.get(name, (0.0, None))
        self.tests[name] = seconds + cpu() - self.began, zlib.compress(pickle.dumps(lines))
        self.began = cpu()

    def pytest_collection_finish(self):
        self._record(COLLECTION)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        result = yield
        self._record(item.nodeid)
        return result

    def pytest_sessionfinish(self):
        self.coverage.stop()
        self.path.write_bytes(pickle.dumps((self.arcs, self.tests)))


def bits(lines):
    """Return a set of line numbers as a bit mask."""
    return sum(1 << line for line in lines)


def read(folder):
    """Return the arcs by file, and for each test its seconds and its lines by file (see `bits`).

    Parameters
    ----------
    folder : Path
        Written by the plugin.
    """
    arcs, tests = {}, {}
    for path in sorted(folder.glob("*.pickle")):
        some, others = pickle.loads(path.read_bytes())
        for file, found in some.items():
            arcs.setdefault(file, set()).update(found)
        tests.update(others)
    return arcs, {name: (s, pickle.loads(zlib.decompress(z))) for name, (s, z) in tests.items()}
