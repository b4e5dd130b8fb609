"""The same call gives the same bits, whatever else runs in the process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_calls_from_many_threads_give_the_bits_of_a_lone_call():
    pytest.importorskip("numba")
    script = Path(__file__).parent / "concurrent_calls.py"
    command = [sys.executable, "-W", "ignore", str(script)]
    found = json.loads(subprocess.check_output(command, text=True))
    assert found["differ"] == {"alone": [], "together": []}
    assert found["after"] == found["before"]
    # BLAS has several threads, and results depend on how many a call asks for
    assert min(found["before"]) > 1
    assert len(found["depend"]) > 3
    assert found["calls"] > 1000
