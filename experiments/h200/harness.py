"""What all stages share: the machine, its clock, the time that is left, rows kept at once."""

import csv
import importlib.util
import json
import os
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from math import inf
from pathlib import Path

import numpy as np

from geomxp.linalg import blas
from geomxp.linalg.formats import BF16, FP16, FP64
from geomxp.runtime.devices import free_memory, human_bytes, resolve, usable_cores

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from common import provenance  # noqa: E402

FAILED = "failed: "
"""With this begins the note of a case that should have worked."""

RANGES = {"weak": 0.02627, "medium": 0.078809, "strong": 0.210158}
"""Of paper 001, on the unit square."""


def load(name):
    """Return the `run.py` of another experiment as a module; what it does to the environment goes.

    Parameters
    ----------
    name : str
        Of its folder, or of a file in it: "vecchia/heaton".
    """
    folder, _, file = name.partition("/")
    title = f"experiments_{folder}_{file or 'run'}"
    if title not in sys.modules:
        path = HERE.parent / folder / f"{file or 'run'}.py"
        spec = importlib.util.spec_from_file_location(title, path)
        module, before = importlib.util.module_from_spec(spec), dict(os.environ)
        try:
            spec.loader.exec_module(module)
        finally:
            # they set the number of threads for themselves
            os.environ.clear()
            os.environ.update(before)
        sys.modules[title] = module
    return sys.modules[title]


@dataclass(frozen=True)
class Machine:
    """Where a stage runs, and the clock there.

    Parameters
    ----------
    on : {"cpu", "gpu"}
    tiny : bool
        Sizes of a rehearsal.
    output : Path
        Folder of the results.
    data : Path or None
        Folder of data sets that are not part of the repository.
    least : int
        Smallest size to run. Where all sizes are smaller, the largest one is run.
    """

    on: str = "cpu"
    tiny: bool = False
    output: Path = HERE / "results"
    data: Path | None = None
    least: int = 0

    @property
    def gpu(self):
        """Whether this is a GPU."""
        return self.on == "gpu"

    @property
    def xp(self):
        """NumPy or CuPy."""
        if not self.gpu:
            return np
        import cupy

        return cupy

    def sizes(self, *whole, tiny=(96,)):
        """Return the ladder of sizes, smallest first."""
        return tiny if self.tiny else tuple(n for n in whole if n >= self.least) or whole[-1:]

    def finish(self):
        """Wait until all that was asked for is done."""
        if self.gpu:
            self.xp.cuda.Device().synchronize()

    def seconds(self, work, repeats=3, fresh=None, warm=True):
        """Return the median seconds of work(), each time after fresh().

        Parameters
        ----------
        work : callable
        repeats : int
        fresh : callable, optional
            Makes the operands anew; not timed.
        warm : bool
            Whether to run once before: libraries are loaded then, kernels compiled.
        """
        times = []
        for k in range(repeats + warm):
            if fresh is not None:
                fresh()
            self.finish()
            start = time.perf_counter()
            work()
            self.finish()
            if k >= warm:
                times.append(time.perf_counter() - start)
        return float(np.median(times))

    def give_back(self):
        """Give memory that is kept for later back to the device."""
        if self.gpu:
            self.xp.get_default_memory_pool().free_all_blocks()
            self.xp.get_default_pinned_memory_pool().free_all_blocks()

    def free(self):
        """Return the free bytes of the device's memory."""
        return resolve(self.on).free_memory()

    def holds(self, needed):
        """Return why the device cannot hold so many bytes; None if it can."""
        free = self.free()
        if needed < 0.97 * free:
            return None
        return f"needs {human_bytes(needed)} of device memory, {human_bytes(free)} free"

    def library(self, form=FP64):
        """Return the name of what multiplies a format here."""
        if self.gpu:
            return "cuBLASLt" if form.name == "fp8" else "cuBLAS"
        name = "MKL" if blas.uses_mkl() else "SciPy's BLAS"
        widened = form.coarse and not blas.has_unit(form.wider or form)
        return f"{name}, widened to FP32" if widened else name

    def about(self):
        """Return commit, machine and versions, as a dict of texts."""
        try:
            found = provenance()
        except (OSError, metadata.PackageNotFoundError) as error:
            date = datetime.now(UTC).strftime("%Y-%m-%d")
            found = {"commit": "unknown", "date": date, "not told": reason(error)}
        found |= {"on": self.on, "tiny": str(self.tiny), "cores in use": str(usable_cores())}
        found["memory"] = human_bytes(free_memory()) + " free"
        if self.gpu:
            from cupy.cuda import runtime

            properties = runtime.getDeviceProperties(0)
            found |= {
                "gpu": properties["name"].decode(),
                "gpu memory": human_bytes(properties["totalGlobalMem"]),
                "multiprocessors": str(properties["multiProcessorCount"]),
                "driver": str(runtime.driverGetVersion()),
                "cuda": str(runtime.runtimeGetVersion()),
                "cupy": self.xp.__version__,
            }
        else:
            found["matrix units"] = (
                " ".join(f.name for f in (FP16, BF16) if blas.on_matrix_units(f)) or "none"
            )
        return found


class Budget:
    """The seconds that are left; stages ask before a case, and end between cases."""

    def __init__(self, seconds=None):
        self.end = inf if seconds is None else time.perf_counter() + seconds

    @property
    def left(self):
        """Seconds, 0 at least."""
        return max(0.0, self.end - time.perf_counter())

    def refuses(self, predicted):
        """Return why a case that takes so long is not begun; None if it may."""
        if predicted <= self.left:
            return None
        return f"left out: about {predicted:.0f} s, {self.left:.0f} s left"


class Prediction:
    """Seconds of the next size, from those of the last one and its cost n^power."""

    def __init__(self, power=3):
        self.power, self._last = power, None

    def of(self, n):
        """Return the seconds for n; 0 before anything is known."""
        if self._last is None:
            return 0.0
        size, seconds = self._last
        return seconds * (n / size) ** self.power

    def learn(self, n, seconds):
        """Take note of what n took."""
        self._last = n, seconds


class Table:
    """A CSV file that has each row as soon as it is known: a run that is cut keeps its rows.

    Parameters
    ----------
    path : Path
    about : dict of str to str
        Stands in comment lines above the rows.
    """

    def __init__(self, path, about):
        self.path, self.about, self.rows, self.columns = path, about, [], []

    def add(self, row):
        """Write a row."""
        self.rows.append(row)
        new = [name for name in row if name not in self.columns]
        if new:
            self.columns += new
            self._write("w", self.rows)
        else:
            self._write("a", [row])

    def _write(self, mode, rows):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, mode, newline="") as file:
            if mode == "w":
                for name, value in self.about.items():
                    file.write(f"# {name}: {value}\n")
            writer = csv.DictWriter(file, self.columns, restval="", lineterminator="\n")
            if mode == "w":
                writer.writeheader()
            writer.writerows(rows)
            file.flush()
            os.fsync(file.fileno())


def write_json(path, document):
    """Write a document as JSON, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(document, indent=1, default=str) + "\n")
    part.replace(path)


def reason(error):
    """Return one line that says why something failed."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__


class LeftOut(Exception):
    """Why a case was not begun, or what it needs is not there: no failure."""


ASKED, NOT_ASKED = [], "not asked for"
"""Patterns of --only, and the note of a row that none of them matches: it is not written."""


def asked(row):
    """Return whether --only, if given, matches a row."""
    return not ASKED or any(pattern.search(shown(row)) for pattern in ASKED)


def tried(row, work):
    """Return a row with what work() returns, or with the reason why there is nothing."""
    if not asked(row):
        return row | {"note": NOT_ASKED}
    try:
        return row | work()
    except LeftOut as why:
        return row | {"note": str(why)}
    except Exception as error:
        return row | {"note": FAILED + reason(error)}


def shown(row):
    """Return a row as people read it."""
    return " ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in row.items()
        if value not in (None, "")
    )
