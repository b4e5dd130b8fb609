"""How many files of geomxp a plain fit from the command line runs functions of."""

import json
import subprocess
import sys

import pytest

TRACED = """
import inspect, json, sys, threading
from pathlib import Path
import geomxp
from geomxp.cli.main import main
folder, files = str(Path(geomxp.__file__).parent), set()
def profile(frame, event, argument):
    code = frame.f_code
    # bodies of modules and classes are not functions
    if event == "call" and code.co_flags & inspect.CO_OPTIMIZED:
        if code.co_filename.startswith(folder):
            files.add(code.co_filename[len(folder) + 1 :])
if "--trace" in sys.argv:
    threading.setprofile(profile)
    sys.setprofile(profile)
status = main(["fit", "meuse", "--quiet"])
sys.setprofile(None)
print(json.dumps(sorted(files)), file=sys.stderr)
sys.exit(status)
"""


def files_of_a_fit(*options):
    """Files of geomxp whose functions a fit runs, in a process of its own."""
    words = [sys.executable, "-W", "ignore", "-c", TRACED, *options]
    run = subprocess.run(words, capture_output=True, text=True, check=True)
    return json.loads(run.stderr.splitlines()[-1])


MOST = 64
"""Files at present; the design aims at 35, before starts, bounds of rounding, small-sample tables,
checks of tables, transformations, replicates, the choice of a method, labels of rows, names of
columns, steps of reading, checks of arrays, summaries, tables of options, kinds of files, turns at
BLAS, factors, noise, inputs, sums with the inverse, expected information, responses, evaluators,
limits of values, and names, units and coordinates of parameters had files of their own."""


@pytest.mark.slow
def test_a_plain_fit_runs_functions_in_few_files():
    # once without tracing, so that compiled loops are read from their cache
    files_of_a_fit()
    files = files_of_a_fit("--trace")
    assert "cli/commands.py" in files
    assert len(files) <= MOST, files
