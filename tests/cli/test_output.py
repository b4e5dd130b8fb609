"""Standard output that takes nothing: a closed pipe, a closed stream, a full disk."""

import os
import subprocess
import sys

import pytest

LIKELIHOOD = ["log-likelihood", "meuse", "--variance", "1", "--range", "200", "--smoothness", "0.5"]
COMMAND = [sys.executable, "-m", "geomxp", *LIKELIHOOD]


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_pipe_whose_reader_has_gone_ends_a_command_as_sigpipe_does(words):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        run = subprocess.run([*COMMAND, *words], stdout=closed, stderr=subprocess.PIPE, text=True)
    assert (run.returncode, run.stderr) == (141, "")


def test_a_reader_of_the_first_line_is_not_told_that_all_went_well():
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        run.stdout.close()
        assert run.stderr.read() == b""
    assert run.returncode == 141


def test_a_closed_standard_output_is_an_error_before_anything_is_computed(tmp_path):
    output = tmp_path / "fit.json"
    words = "fit", "no_such_table", "--output", str(output)
    run = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", sys.executable, "-m", "geomxp", *words],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.returncode == 1
    assert run.stderr == "geomxp: standard output is closed: add >/dev/null to discard it.\n"
    assert not output.exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_behind_standard_output_is_one_clear_line():
    with open("/dev/full", "w") as full:
        run = subprocess.run(COMMAND, stdout=full, stderr=subprocess.PIPE, text=True)
    assert run.returncode == 1
    assert run.stderr == (
        "geomxp: output cannot be written (No space left on device): free some space and repeat.\n"
    )
