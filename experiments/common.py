"""What every experiment writes beside its numbers: commit, machine, versions.

A run that would write into results/ refuses a working tree with uncommitted changes; with --dirty
it runs, and the header of its files says so.
"""

import csv
import ctypes
import os
import platform
import shlex
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
from geomxp.benchmarks.bench import ALL_CORES_ORDER
from geomxp.linalg import blas
from geomxp.linalg.formats import BF16, FP16
from geomxp.runtime.devices import blas_threads

HERE = Path(__file__).resolve().parent

TINY = "--tiny" in sys.argv
"""Whether a study only shows that it runs: its times mean nothing."""

QUIET = {"progress": False, "raise_on_failure": False} | ({"evaluations": 10} if TINY else {})
"""Options of many fits; if tiny, their searches end early."""


def _git(*words):
    try:
        done = subprocess.run(
            ["git", *words], capture_output=True, text=True, cwd=HERE, check=False
        )
    except OSError:
        return ""
    return done.stdout.strip()


def _commit():
    """Return the commit, with "-dirty" if files other than results and figures have changed."""
    own = (f":(exclude,glob)*/{folder}/**" for folder in ("results", "figures"))
    changed = _git("status", "--porcelain", "--", ":/", *own)
    commit = _git("describe", "--always")
    return f"{commit}-dirty" if commit and changed else commit or "unknown"


INHERITED = "GEOMXP_EXPERIMENT_COMMIT"
COMMIT = os.environ.get(INHERITED) or _commit()
"""The commit when the run begins; processes that it starts inherit it."""


def _refuse_dirty():
    """End a run of an experiment that would write results of uncommitted code."""
    if INHERITED in os.environ:
        return
    allowed = "--dirty" in sys.argv
    if allowed:
        sys.argv.remove("--dirty")
    elsewhere = {"--tiny", "--output", "--help", "-h"} & {w.split("=")[0] for w in sys.argv}
    script = Path(sys.argv[0]).resolve()
    ours = HERE in script.parents and script.name != "plot.py"
    if ours and COMMIT.endswith("-dirty") and not (allowed or elsewhere):
        sys.exit(
            "The working tree has uncommitted changes, so its results could not be reproduced. "
            f"Commit the changes, or run: python {shlex.join(sys.argv)} --dirty"
        )
    if ours:
        os.environ[INHERITED] = COMMIT


_refuse_dirty()


@cache
def ceilings(n=2048):
    """Return the peak rates of this run: rows of `geomxp bench ceilings` for products of order n.

    A study of speed may call it first, and relate its rates to `peak`.
    """
    from geomxp.benchmarks import bench

    return bench.ceilings(64, 1, copied=2**16) if TINY else bench.ceilings(n, 3)


def peak(rates, form, cores=1):
    """Return the largest rate of products in a format on so many cores, in GFLOP/s.

    A format without products of its own has the rate of FP32, in which it is multiplied.
    """
    mine = [row for row in rates if row["unit"] == "GFLOP/s" and row.get("cores", 1) == cores]
    fitting = [row["rate"] for row in mine if row["what"].split(",")[0] == form]
    return max(fitting) if fitting else peak(rates, "fp32", cores)


def _in_words(rates):
    return "; ".join(
        f"{row['what']} {row['rate']:.3g} {row['unit']} on {row.get('cores', 1)} core(s)"
        for row in rates
    )


def provenance():
    """Return commit, date, machine and versions, as a dict of texts."""
    forms = FP16, BF16
    return {
        "commit": COMMIT,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": _processor(),
        "matrix_units": " ".join(f.name for f in forms if blas.on_matrix_units(f)) or "none",
        "avx512_products": " ".join(f.name for f in forms if blas.in_avx512(f)) or "none",
        "cores": str(geomxp.runtime.devices.usable_cores()),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "nlopt": metadata.version("nlopt"),
        "openblas": _openblas(),
        "mkl": _mkl(),
        "geomxp": geomxp.__version__,
    }


def _mkl():
    """Return MKL's version, and whether geomxp uses it here."""
    if not blas.mkl():
        return "none"
    return metadata.version("mkl") + ("" if blas.uses_mkl() else ", as a baseline only")


def let_mkl_rest():
    """Wait until MKL's threads sleep; they spin for 0.2 s after their work."""
    if blas.mkl():
        time.sleep(0.25)


def let_blas_rest():
    """Wait until the threads of MKL and of OpenBLAS sleep; OpenBLAS's busy-wait up to 0.1 s."""
    if not TINY:
        time.sleep(0.25)


@cache
def _openblas():
    """Return the versions of OpenBLAS and the processors whose kernels they use."""
    try:
        from threadpoolctl import threadpool_info
    except ModuleNotFoundError:
        return "unknown"
    found = (lib for lib in threadpool_info() if lib["internal_api"] == "openblas")
    return ", ".join(sorted(f"{lib['version']} ({lib['architecture']})" for lib in found)) or "none"


@cache
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
    name = found.get("model name", platform.machine())
    numbers = (found.get("cpu family"), found.get("model"), found.get("stepping"))
    if all(numbers):
        # virtual machines hide the name
        name += ", family {} model {} stepping {}".format(*numbers)
    return f"{name} ({', '.join(units) or 'no AVX-512'})"


def write_rows(path, rows, ceilings=None, commits=()):
    """Write dicts as CSV, below comment lines that say where they come from.

    `ceilings` are the peak rates of the run, as `ceilings` returns them, for studies of speed;
    `commits` those of earlier runs that wrote some of the rows.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    about = provenance() | {"commit": ", ".join(dict.fromkeys([*commits, COMMIT]))}
    if ceilings is not None:
        about |= {"ceilings": _in_words(ceilings)}
    with open(path, "w", newline="") as file:
        file.writelines(f"# {name}: {value}\n" for name, value in about.items())
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read_rows(path):
    """Return the rows of a results file as dicts of texts, none if it does not exist."""
    if not Path(path).exists():
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def resume(path, cells, rows_of, *, every=(0, 1), anew=False, ceilings=None):
    """Append the rows of each cell that a file does not have yet; with `anew` of all cells.

    A cell is a dict of the first columns of its rows; `rows_of(**cell)` returns the others, as an
    iterable of dicts. The header names the commits of all rows. With `every` = (part, of), process
    `part` takes each of-th cell and writes <name>_part<part>.csv; a run without it joins these
    files first.
    """
    path, (part, of) = Path(path), every
    own = path if of == 1 else path.with_stem(f"{path.stem}_part{part}")
    if anew:
        for file in (path, own, *(_parts(path) if of == 1 else ())):
            file.unlink(missing_ok=True)
    if of == 1:
        _join(path, cells)
    rows, commits = read_rows(own), commits_of(own)
    done = {_key(cells[0], row) for row in (*rows, *read_rows(path))}
    todo = [cell for cell in cells[part::of] if _key(cell, cell) not in done]
    if not todo:
        print(f"{own} has all rows; --anew replaces them.")
    for cell in todo:
        for row in rows_of(**cell):
            if rows and set(rows[0]) != set(cell | row):
                sys.exit(f"The rows of {own} have other columns. Replace them: --anew.")
            rows.append(cell | row)
            short = (f"{v:.4g}" if isinstance(v, float) else v for v in rows[-1].values())
            print(own.stem, *short, flush=True)
        write_rows(own, rows, ceilings, commits)


def _key(cell, row):
    return tuple(str(row[name]) for name in cell)


def commits_of(path):
    """Return the commits in the header of a results file, none if it does not exist."""
    text = Path(path).read_text() if Path(path).exists() else ""
    return text.splitlines()[0].removeprefix("# commit: ").split(", ") if text else []


def _parts(path):
    return sorted(path.parent.glob(f"{path.stem}_part*.csv"))


def _join(path, cells):
    """Move the rows of all parts of a file into it, in the order of the cells."""
    parts = _parts(path)
    if not parts:
        return
    position = {_key(cell, cell): number for number, cell in enumerate(cells)}
    rows = [row for file in (path, *parts) for row in read_rows(file)]
    rows.sort(key=lambda row: position.get(_key(cells[0], row), len(cells)))
    commits = [commit for file in (path, *parts) for commit in commits_of(file)]
    head = [line for line in parts[-1].read_text().splitlines(True) if line.startswith("# ")]
    head[0] = f"# commit: {', '.join(dict.fromkeys(commits))}\n"
    with open(path, "w", newline="") as file:
        file.writelines(head)
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    for part in parts:
        part.unlink()


# Sizes of tests and coverage of intervals


def band(hits, count, level):
    """Return the interval of Clopper and Pearson for a share."""
    # it takes half a second to import, in each process of a study
    from scipy.stats import beta

    tail = (1 - level) / 2
    low = beta.ppf(tail, hits, count - hits + 1) if hits else 0.0
    high = beta.ppf(1 - tail, hits + 1, count - hits) if hits < count else 1.0
    return float(low), float(high)


def compared(restricted, full, seed):
    """Return the best ends of two nested fits, and the statistic of one bootstrap draw.

    The fits are repeated by the searches of `statistic_of`, as those of the draw.
    """
    # few studies need them, and their import takes a third of a second
    from geomxp.estimation.bootstrap import simulated
    from geomxp.estimation.likelihood_ratio import reached, statistic_of

    smaller = reached(restricted, restricted.observations, restricted.model)
    again = reached(full, restricted.observations, smaller.model)
    larger = max(full, again, key=lambda fit: fit.log_likelihood)
    return smaller, larger, statistic_of((restricted, full), simulated(restricted, 1, seed)[0])


def warp_speed(statistics, draws):
    """Return p-values of the bootstrap from one draw for each statistic.

    The draws of all replicates are one reference distribution (Giacomini, Politis and White 2013,
    Econometric Theory 29:567).
    """
    draws = np.asarray(draws)
    return np.array([(1 + np.sum(draws >= value)) / (1 + len(draws)) for value in statistics])


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


def keep_memory():
    """Let glibc's allocator keep freed memory, for arrays to come.

    Otherwise the first touch of new pages, which takes longer than some operations here, is counted
    for the candidate that happens to need them.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    # M_MMAP_MAX: no mappings of their own; M_TRIM_THRESHOLD: never give memory back
    for option, value in ((-4, 0), (-1, -1)):
        mallopt(option, value)


SHORT_CALL = 0.01
"""Seconds. Cold caches and sleeping threads slow shorter calls down: an untimed call precedes
them."""


def timings(candidates, a, b, repeats, cores=1, one_library=False):
    """Return the median seconds of each candidate's work(a, copy of b), in turn, to and fro.

    On one core, or on all usable ones, which is what another number of cores means; memory is kept.
    On several cores, threads of BLAS may still busy-wait after the previous candidate: each starts
    after a pause, and a short one is first called untimed. With `one_library` all candidates use
    the same threads, and there are no pauses.
    """
    keep_memory()
    let_blas_rest()
    seconds = {name: [] for name in candidates}
    rest = cores != 1 and not one_library

    def time_of(work):
        fresh = b.copy(order="F")
        start = time.perf_counter()
        work(a, fresh)
        if not isinstance(fresh, np.ndarray):
            # a GPU has finished when a number arrives
            fresh[-1, -1].get()
        return time.perf_counter() - start

    with blas_threads(0 if cores == 1 else ALL_CORES_ORDER), blas.cores(cores):
        for k in range(repeats + 1):
            for name in list(candidates)[:: 1 if k % 2 else -1]:
                if rest:
                    let_blas_rest()
                    if k and seconds[name][-1] < SHORT_CALL:
                        time_of(candidates[name])
                seconds[name].append(time_of(candidates[name]))
    # the first of each is not counted
    return {name: float(np.median(times[1:])) for name, times in seconds.items()}
