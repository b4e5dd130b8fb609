"""The first run on a machine: what it compiles and imports, and that it says so."""

import json
import os
import subprocess
import sys

import pytest

FIT = ["fit", "meuse", "--json"]
LIKELIHOOD = ["log-likelihood", "meuse", "--variance", "1", "--range", "9", "--smoothness", "0.5"]

SCRIPT = """
import json, sys
from numba.core import event
from geomxp.cli.main import main
from geomxp.runtime import devices

devices.COMPILATION_NOTICE_SECONDS = float(sys.argv[1])
with event.install_recorder("numba:compile") as recorder:
    status = main(sys.argv[2:])
functions = [found.data["dispatcher"].py_func for _, found in recorder.buffer if found.is_start]
compiled = [one.__name__ for one in functions if one.__module__.startswith("geomxp")]
slow = [name for name in ("scipy.stats", "matplotlib", "formulaic") if name in sys.modules]
print(json.dumps([status, sorted(compiled), slow]))
"""

LEAVES = ["intervals", "polynomial"]
"""Compiled from one text for FP64 and FP32, once for each function that calls them."""

LOOPS = ["_add", "_add_pairs", "_fill", "_inner", "_less", *2 * LEAVES, "squared_distances"]
FEW = ["_fill", *LEAVES, "squared_distances"]
"""Those of a log-likelihood."""

NOTICE = "geomxp: compiling code for this machine; it is kept, so that only the first run waits.\n"


def run(cache, patience, words):
    """Return what a new process compiled and imported, and its standard error."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(patience), *words],
        env=os.environ | {"NUMBA_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.slow
def test_a_plain_fit_compiles_what_it_needs_once_and_says_so(tmp_path):
    (status, compiled, slow), err = run(tmp_path, 1e-6, FIT)
    # one specialization of each, and nothing for other metrics, dimensions or anisotropy
    assert (status, compiled, slow) == (0, sorted(LOOPS), [])
    assert err == NOTICE
    (status, compiled, slow), err = run(tmp_path, 1e-6, FIT)
    assert (status, compiled, slow, err) == (0, [], [], "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("patience", "words"), [(1e6, LIKELIHOOD), (1e-6, [*LIKELIHOOD, "--quiet"])]
)
def test_a_quick_or_a_quiet_compilation_is_silent(tmp_path, patience, words):
    (status, compiled, _), err = run(tmp_path, patience, words)
    assert (status, compiled, err) == (0, sorted(FEW), "")
