"""The table of test times, and the order that is read from it."""

import csv
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import seconds

TESTS = Path(__file__).parent


def rows(**spent):
    """Rows of files with so many CPU seconds and so many of waiting."""
    made = {}
    for name, (cpu, waiting) in spent.items():
        row = Counter(dict.fromkeys(seconds.COLUMNS, 0.0))
        made[f"tests/{name}.py"] = row + Counter(tests=3, other=cpu, waiting=waiting)
    return made


def test_the_order_of_the_page_is_that_of_the_files_with_waiting(tmp_path):
    path = tmp_path / "seconds.md"
    seconds.write(
        rows(a=(7.0, 1.0), b=(6.0, 20.0), c=(0.5, 0.5), d=(0.0, 9.0), e=(9.0, -3.0)), path
    )
    text = path.read_text()
    found = seconds.longest_first(text)
    assert found == ["tests/b.py", "tests/d.py", "tests/e.py", "tests/a.py"]
    assert "| 1 other files, each below 5 s | 3 |" in text
    assert "| **all** | 15 | 22 |" in text


def test_workers_begin_with_files_of_the_page():
    page = (TESTS.parent / "docs/pages/development/seconds.md").read_text(encoding="utf-8")
    found = seconds.longest_first(page)
    assert len(found) > 50
    there = [name for name in found if (TESTS.parent / name).exists()]
    assert len(there) > 0.8 * len(found), "write the page anew"


@pytest.mark.slow
def test_a_run_writes_the_seconds_of_each_file(tmp_path):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "seconds", "-p", "no:cacheprovider"]
    some = TESTS / "linalg/test_budgets.py"
    assert some.exists()
    path = tmp_path / "seconds.csv"
    subprocess.run([*command, "--seconds", path, some], cwd=TESTS.parent, check=True)
    with path.open() as file:
        first, second, everything = csv.DictReader(file)
    assert {first["file"], second["file"]} == {seconds.BEGINNING, f"tests/linalg/{some.name}"}
    kinds = (*seconds.PARTS, "g++", "processes")
    for row in (first, second, everything):
        assert sum(float(row[kind]) for kind in kinds) == pytest.approx(float(row["cpu"]), abs=0.05)
    assert float(everything["imports"]) > 0
    assert int(float(everything["tests"])) > 1


@pytest.mark.slow
def test_a_page_of_a_part_of_the_tests_is_refused(tmp_path):
    command = [sys.executable, "-m", "pytest", "-p", "seconds", "--seconds", "a.md", "tests/linalg"]
    run = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, check=False)
    assert run.returncode == 4
    assert "lists all tests" in run.stderr
