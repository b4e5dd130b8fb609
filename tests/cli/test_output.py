"""Standard output: a closed pipe, a closed stream, a full disk; and tables in place of files."""

import os
import subprocess
import sys
from io import StringIO

import pandas as pd
import pytest

import geomxp as gx
from geomxp.cli.main import main

LIKELIHOOD = ["log-likelihood", "meuse", "--variance", "1", "--range", "200", "--smoothness", "0.5"]
COMMAND = [sys.executable, "-m", "geomxp", *LIKELIHOOD]


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Loops that commands below find on disk, so that no process says that it compiles them."""
    assert main(LIKELIHOOD) == 0


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_pipe_whose_reader_has_gone_ends_a_command_as_sigpipe_does(words):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        run = subprocess.run([*COMMAND, *words], stdout=closed, stderr=subprocess.PIPE, text=True)
    assert (run.returncode, run.stderr) == (141, "")


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_behind_standard_output_is_one_clear_line():
    with open("/dev/full", "w") as full:
        run = subprocess.run(COMMAND, stdout=full, stderr=subprocess.PIPE, text=True)
    assert run.returncode == 1
    assert run.stderr == (
        "geomxp: output cannot be written (No space left on device): free some space and repeat.\n"
    )


# Tables on standard output


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("fit") / "fit.json"
    fixed = [f"--fix={name}" for name in ("smoothness=0.5", "range=200")]
    assert main(["fit", "meuse", *fixed, "--output", str(path)]) == 0
    return path


def printed(capsys, *words):
    """Return the exit status of a command, its standard output and its standard error."""
    capsys.readouterr()
    status = main(list(map(str, words)))
    return status, *capsys.readouterr()


MODEL = ("--variance", "1", "--range", "200", "--smoothness", "0.5")
TABLES = [
    ("predict", "fit.json", "meuse"),
    ("predict", "fit.json", "--grid", "12"),
    ("simulate", "--at", "meuse", *MODEL),
    ("validate", "fit.json", "--leave-one-out"),
    ("compare-models", "meuse", "--smoothness", "0.5", "--nugget", "0"),
]


@pytest.mark.slow
@pytest.mark.parametrize("words", TABLES, ids=lambda words: " ".join(words[:3]))
def test_output_dash_prints_the_whole_table_that_a_file_would_hold(saved, tmp_path, capsys, words):
    words = [saved if word == "fit.json" else word for word in words]
    file = tmp_path / "table.csv"
    assert printed(capsys, *words, "--output", file)[0] == 0
    status, out, _ = printed(capsys, *words, "--output", "-")
    assert status == 0
    same = file.read_text()
    if words[0] == "compare-models":
        out, same = (pd.read_csv(StringIO(text)).drop(columns="seconds") for text in (out, same))
        pd.testing.assert_frame_equal(out, same)
    else:
        assert out == same


@pytest.mark.parametrize("words", TABLES[:3], ids=lambda words: " ".join(words[:3]))
def test_a_redirected_command_prints_every_row_and_column(saved, capsys, words):
    words = [saved if word == "fit.json" else word for word in words]
    status, out, _ = printed(capsys, *words)
    assert status == 0
    assert out == printed(capsys, *words, "--output", "-")[1]
    assert len(out.splitlines()) > 100


def test_output_dash_keeps_notes_out_of_the_table(tmp_path, capsys):
    words = ("compare", "--n", "60", *MODEL[:3], "0.1", *MODEL[4:], "--tile", "20")
    words = (*words, "--accuracies", "1e-3,1e-5", "--figure", tmp_path / "f.png", "--output", "-")
    status, out, err = printed(capsys, *words)
    assert (status, err) == (0, f"figure written to {tmp_path / 'f.png'}\n")
    assert list(pd.read_csv(StringIO(out)).accuracy) == [1e-3, 1e-5]


def test_output_dash_is_refused_where_it_could_not_be_obeyed(saved, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, err = printed(capsys, "fit", "meuse", "--output", "-")
    assert (status, out) == (2, "")
    assert "--output of a fit must be a file. Got '-': for standard output use --json." in err
    status, out, err = printed(capsys, "predict", saved, "meuse", "--output", "-", "--json")
    assert (status, out) == (2, "")
    assert "give only one of --json and --output -" in err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_pipe_that_is_closed_while_a_table_is_printed_ends_the_command(saved):
    words = [sys.executable, "-m", "geomxp", "predict", str(saved), "--grid", "300", "--quiet"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout.readline().startswith(b"x,y,mean")
        run.stdout.close()
        assert run.stderr.read() == b""
    assert run.returncode == 141


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["fit.csv", "fit.csv.gz", "fit.PARQUET", "fit.gpkg", "fit.CSV.GZ", "fit.xlsx"]
)
def test_a_fit_is_not_written_under_the_name_of_a_table(name, tmp_path, capsys):
    assert main(["fit", "meuse", "--output", str(tmp_path / name)]) == 2
    assert "choose a name such as fit.json" in capsys.readouterr().err
    fit = gx.fit(gx.datasets.load("meuse"), gx.Matern(1.0, 300.0, 0.5), fixed=("range",))
    with pytest.raises(gx.InvalidInput, match="a fit is written as JSON"):
        fit.save(tmp_path / name)
    assert not list(tmp_path.iterdir())
