"""What README and the experiments claim to do, they do."""

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from geomxp.cli.main import main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_python_of_readme_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README, re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    shown = capsys.readouterr().out
    assert "CONVERGED" in shown
    assert "KL divergence" in shown


def test_no_text_has_an_open_place():
    for path in (ROOT / "README.md", *ROOT.glob("experiments/*/README.md")):
        assert not re.search(r"@[A-Z]+@", path.read_text()), path


def test_readme_shows_two_commands_first():
    first, second = re.findall(r"```\n(.*?)\n```", README, re.S)[:2]
    assert "venv" in first
    assert "geomxp fit meuse" in first
    assert "\n" not in first
    assert "[test]" in second
    assert second.endswith("pytest")
    assert "\n" not in second


def test_options_that_readme_names_exist(capsys):
    assert main(["fit", "--help"]) == 0
    text = capsys.readouterr().out
    for option in re.findall(r"`(--[a-z-]+)", README):
        assert option in text, option


@pytest.mark.parametrize(
    "name",
    [
        "recovery",
        "covariance",
        "peers",
        "static_schedule_mxp",
        "nested_cholesky",
        "trsm_trmm",
        "out_of_core",
        "batched",
        "vecchia",
        "refinement",
        "kaust",
        "intervals",
        "kaust_likelihood",
        "cluster",
        "h200",
    ],
)
def test_experiments_run_when_tiny(name, tmp_path):
    script = ROOT / "experiments" / name / "run.py"
    run = subprocess.run(
        [sys.executable, script, "--tiny", "--output", tmp_path],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONWARNINGS": "error"},
        check=False,
    )
    assert run.returncode == 0, run.stderr
    files = list(tmp_path.glob("*.csv"))
    assert files
    for file in files:
        lines = file.read_text().splitlines()
        assert lines[0].startswith("# commit: ")
        rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
        assert rows


def test_whole_fits_of_peers_run_when_tiny(tmp_path):
    script = ROOT / "experiments" / "peers" / "fits.py"
    subprocess.run([sys.executable, script, "--tiny", "--output", tmp_path], check=True)
    lines = (tmp_path / "fits.csv").read_text().splitlines()
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    assert {row["method"] for row in rows} == {"geomxp", "scipy", "scipy-plain"}
    assert all(float(row["below_best"]) < 1e-5 for row in rows)


def test_recovery_is_drawn(tmp_path):
    script = ROOT / "experiments" / "recovery" / "plot.py"
    subprocess.run([sys.executable, script, "--output", tmp_path], check=True)
    assert (tmp_path / "recovery.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
