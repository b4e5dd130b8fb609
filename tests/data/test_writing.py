"""Files are written whole or not at all, whenever the process is killed."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

import geomxp as gx
from geomxp.data import tables

WRITER = """
import sys
from geomxp.data import tables
document = {"number": 0, "filler": "x" * 3_000_000}
while True:
    document["number"] += 1
    tables.write_json(sys.argv[1], document)
    print("written", flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="this system has no unnamed files")
def test_a_process_killed_at_any_moment_leaves_a_whole_file_and_no_other(tmp_path):
    """Between the last two system calls it may leave a whole one, which the next write removes."""
    path, chance = tmp_path / "state.json", random.Random(0)
    left = 0
    for _ in range(15):
        command = [sys.executable, "-c", WRITER, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout.readline()
            time.sleep(chance.uniform(0, 0.05))
            os.kill(writer.pid, signal.SIGKILL)
        assert json.loads(path.read_text())["number"] >= 1
        others = set(os.listdir(tmp_path)) - {path.name}
        assert others <= {".state.json.new"}
        left += len(others)
    # a temporary file in the folder would be left nearly always
    assert left <= 3
    tables.write_json(path, {})
    assert os.listdir(tmp_path) == [path.name]


def test_a_file_that_a_killed_process_has_left_is_replaced(tmp_path):
    path = tmp_path / "state.json"
    path.write_text("{}")
    (tmp_path / ".state.json.new").write_text("left")
    tables.write_json(path, {"a": 1})
    assert tables.read_json(path)["a"] == 1
    assert os.listdir(tmp_path) == [path.name]


def test_filesystems_without_unnamed_files_are_written_as_well(tmp_path, monkeypatch):
    opened = os.open

    def refused(path, flags, *rest, **options):
        if hasattr(os, "O_TMPFILE") and flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return opened(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", refused)
    path = tmp_path / "state.json"
    for number in range(2):
        tables.write_json(path, {"number": number})
    assert tables.read_json(path)["number"] == 1
    assert os.listdir(tmp_path) == [path.name]


def test_a_folder_that_is_missing_is_one_clear_line(tmp_path):
    path = tmp_path / "missing" / "state.json"
    with pytest.raises(gx.GeomxpError, match=r"state.json: cannot be written \(No such file"):
        tables.write_json(path, {})


HOLDER = """
import sys
from geomxp.data import tables
with tables.replacing(sys.argv[1]) as path:
    path.write_text("unfinished")
    print("writing", flush=True)
    sys.stdin.read()
"""


def holder(path):
    """Start a process that writes a file until its standard input ends."""
    command = [sys.executable, "-c", HOLDER, str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline()
    return process


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".parquet", ".npz", ".gpkg", ".nc"])
def test_what_a_killed_process_has_left_is_removed_by_the_next_write(tmp_path, ending):
    """These formats are written by libraries, to a name in a folder beside the file."""
    xarray = pytest.importorskip("xarray")
    geopandas = pytest.importorskip("geopandas")
    path, frame = tmp_path / f"p{ending}", pd.DataFrame({"x": [0.0, 1.0], "mean": [1.0, 2.0]})
    for _ in range(2):
        with holder(path) as process:
            os.kill(process.pid, signal.SIGKILL)
    (left,) = os.listdir(tmp_path)
    assert left.startswith(f".p{ending}.geomxp-")
    others = [tmp_path / f".p{ending}.notes", tmp_path / f".q{ending}.geomxp-x"]
    for other in others:
        other.mkdir()
    if ending == ".gpkg":
        frame = geopandas.GeoDataFrame(frame, geometry=geopandas.points_from_xy([0, 1], [0, 1]))
    elif ending == ".nc":
        frame = xarray.Dataset({"mean": ("x", [1.0, 2.0])}, {"x": [0.0, 1.0]})
    tables.write_frame(frame, path)
    # folders of other names and of other files are not touched
    assert sorted(os.listdir(tmp_path)) == sorted([path.name, *(one.name for one in others)])


def test_a_process_that_still_writes_the_same_file_is_left_alone(tmp_path):
    path = tmp_path / "p.parquet"
    with holder(path) as process:
        tables.write_frame(pd.DataFrame({"x": [1.0]}), path)
        assert len(os.listdir(tmp_path)) == 2
        process.stdin.close()
        assert process.wait() == 0
    assert path.read_text() == "unfinished"
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="this system has no unnamed files")
def test_a_table_of_text_needs_no_folder_beside_it(tmp_path, monkeypatch):
    def refused(path):
        raise AssertionError(path)

    monkeypatch.setattr(tables, "replacing", refused)
    tables.write_frame(pd.DataFrame({"x": [1.5]}), tmp_path / "p.csv")
    assert (tmp_path / "p.csv").read_text() == "x\n1.5\n"
