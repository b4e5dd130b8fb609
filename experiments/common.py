"""What every experiment writes beside its numbers: commit, machine, versions."""

import csv
import os
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path

import numpy as np
import scipy

import geomxp
from geomxp.linalg import blas
from geomxp.linalg.formats import BF16, FP16
from geomxp.runtime.devices import blas_threads


@cache
def _commit():
    """Return the commit at the first call: later the tables that a run writes make it dirty."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
        check=False,
    )
    return done.stdout.strip() or "unknown"


def provenance():
    """Return commit, date, machine and versions, as a dict of texts."""
    return {
        "commit": _commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": _processor(),
        "matrix_units": " ".join(f.name for f in (FP16, BF16) if blas.has_unit(f)) or "none",
        "cores": str(geomxp.runtime.devices.usable_cores()),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "nlopt": metadata.version("nlopt"),
        "mkl": metadata.version("mkl") if blas.mkl() else "none",
        "geomxp": geomxp.__version__,
    }


def _processor():
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    found = {}
    for line in lines:
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    units = [
        flag
        for flag in ("avx512f", "amx_bf16", "amx_fp16")
        if flag in found.get("flags", "").split()
    ]
    return f"{found.get('model name', platform.machine())} ({', '.join(units) or 'no AVX-512'})"


def write_rows(path, rows):
    """Write dicts as CSV, below comment lines that say where they come from."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # before the file changes
    about = provenance()
    with open(path, "w", newline="") as file:
        file.writelines(f"# {name}: {value}\n" for name, value in about.items())
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def worker(checkout, code, *arguments):
    """Start a process that runs code with the geomxp of a checkout, in one thread, behind pipes."""
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    for threads in ("OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "OMP_NUM_THREADS"):
        environment[threads] = "1"
    command, pipe = [sys.executable, "-c", code, *arguments], subprocess.PIPE
    return subprocess.Popen(
        command, env=environment, cwd=checkout, stdin=pipe, stdout=pipe, text=True
    )


def timings(candidates, a, b, repeats):
    """Return the median seconds of each candidate's work(a, copy of b), in turn, on one core."""
    seconds = {name: [] for name in candidates}
    with blas_threads(0), blas.one_core():
        for k in range(repeats + 1):
            for name, work in candidates.items():
                fresh = b.copy(order="F")
                start = time.perf_counter()
                work(a, fresh)
                if not isinstance(fresh, np.ndarray):
                    # a GPU has finished when a number arrives
                    fresh[-1, -1].get()
                if k:
                    seconds[name].append(time.perf_counter() - start)
    return {name: float(np.median(times)) for name, times in seconds.items()}
