"""The measurements of experiments/h200 are rehearsed on the emulator, in their smallest sizes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parents[2] / "experiments" / "h200" / "run.py"


@pytest.mark.slow
@pytest.mark.usefixtures("machine")
def test_the_measurements_for_a_gpu_run_to_their_ends(tmp_path):
    stages = "abdefghikmn"
    command = [sys.executable, RUN, *stages, "--on", "gpu", "--tiny", "--output", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert {letter: about["ended"] for letter, about in summary.items()} == dict.fromkeys(
        stages, "done"
    )
