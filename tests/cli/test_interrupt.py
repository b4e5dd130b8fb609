"""Ctrl-C: a real signal to a real process, and what is left to go on from."""

import json
import shlex
import signal
import time
from pathlib import Path

import psutil
import pytest
from terminals import SLOWLY, Run
from waiting import wait_until

import geomxp as gx
from geomxp.cli.main import main, message_of, message_of_fit

# with all values given, no starting values are searched for: no line appears meanwhile
LONG = ["jura", "--search", "bobyqa", "--starts", "1"]
LONG += ["--start", "range=0.5,smoothness=0.5,nugget=0.5"]


# said where a machine is slow to finish a step
PATIENT = "\ngeomxp: stops when the current step is done; press Ctrl-C again to stop at once.\n"


@pytest.mark.slow
def test_a_fit_that_nobody_asked_to_keep_its_state_keeps_it(tmp_path, capsys, monkeypatch):
    output = tmp_path / "fits" / "jura.json"
    output.parent.mkdir()
    run = Run(["-c", SLOWLY, "fit", *LONG, "--output", str(output)], tmp_path, terminal="stderr")
    # the line appears after two seconds: a fit worth a file
    run.read_until("log-likelihood")
    status, shown = run.interrupt()
    assert status == 130
    last = shown.strip().splitlines()[-1]
    kept = output.parent / "geomxp-jura-checkpoint.json"
    assert f"saved in {kept}." in last
    assert not output.exists()
    state = json.loads(kept.read_text())
    # the command that it says is one that goes on, from there
    command = shlex.split(last.partition("Resume with: ")[2])
    assert command[0] == "geomxp"
    assert command[-2:] == ["--checkpoint", str(kept)]
    monkeypatch.chdir(tmp_path)
    assert main([*command[1:], "--trend", "linear"]) == 2
    assert "a checkpoint of another problem" in capsys.readouterr().err
    command[command.index("bobyqa")] = "scoring"
    assert main(command[1:]) == 0
    found = gx.Fit.load(output)
    assert found.outcome.good
    assert found.log_likelihood > state["log_likelihood"] - 1e-6
    assert found.evaluations > state["evaluations"]


@pytest.mark.slow
def test_a_checkpoint_that_was_asked_for_is_named(tmp_path):
    run = Run(["-c", SLOWLY, "fit", *LONG, "--checkpoint", "state.json", "--json"], tmp_path)
    wait_until((tmp_path / "state.json").exists)
    status, errors = run.interrupt()
    errors = errors.replace(PATIENT, "")
    assert status == 130
    assert errors.count("\n") == 1
    assert "saved in state.json. Resume with: geomxp fit jura" in errors
    assert errors.strip().endswith("--checkpoint state.json --json")
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


@pytest.mark.slow
def test_tiles_on_a_disk_stay_and_are_named(tmp_path):
    words = ["--variance", "1", "--range", "0.03", "--smoothness", "0.5", "--tile", "64"]
    words = ["log-likelihood", "usprecip", *words, "--memory", "40MB", "--scratch", "tiles"]
    (tmp_path / "tiles").mkdir()
    run = Run(words, tmp_path)
    journals = (tmp_path / "tiles").glob
    wait_until(lambda: any('"tile"' in path.read_text() for path in journals("*.journal")))
    status, errors = run.interrupt()
    assert status == 130
    # the first line states the choice of the exact method
    assert errors.replace(PATIENT, "").strip().splitlines()[-1] == (
        f"geomxp: interrupted. Tiles are saved in tiles. Resume with: geomxp {shlex.join(words)}"
    )
    assert len(list(journals("*.journal"))) == len(list(journals("*.tiles"))) == 1


@pytest.mark.slow
def test_a_second_interruption_does_not_wait(tmp_path):
    # the first one is heard when the call into C returns: in ten minutes, say
    code = (
        "import hashlib; from geomxp.cli.main import watched\n"
        "with watched(['info'], 0.1):\n"
        "    print('begun', flush=True)\n"
        "    hashlib.pbkdf2_hmac('sha256', b'', b'', 2 * 10**9)\n"
    )
    run = Run(["-c", code], tmp_path, terminal="stderr")
    assert run.process.stdout.readline() == b"begun\n"
    # the call into C is the next thing that happens, and takes all the time
    worked = psutil.Process(run.process.pid).cpu_times
    before = worked().user
    wait_until(lambda: worked().user > before + 0.3)
    run.process.send_signal(signal.SIGINT)
    run.read_until("press Ctrl-C again to stop at once")
    began = time.monotonic()
    status, shown = run.interrupt()
    assert status == 130
    assert time.monotonic() - began < 120
    assert shown.strip().endswith("geomxp: interrupted.")


def stopped(**changes):
    from geomxp.estimation.problem import Interrupted

    state = {"problem": "a", "model": {}, "log_likelihood": -1.0, "evaluations": 7}
    about = {"state": state, "checkpoint": None, "evaluations": 7, "seconds": 3.0}
    return Interrupted(**(about | changes))


def test_a_short_fit_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = message_of_fit(stopped(seconds=1.0), "meuse", None, ["fit", "meuse"])
    assert said == "interrupted after 7 evaluations (1 s); nothing was saved."
    said = message_of_fit(stopped(state=None), "meuse", None, ["fit", "meuse"])
    assert said.endswith("nothing was saved.")
    assert not list(tmp_path.iterdir())


def test_the_state_of_another_fit_is_not_written_over(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = stopped(), stopped(state=stopped().state | {"problem": "b"})
    for found in (first, second, first):
        message_of_fit(found, "some/wells.csv", None, ["fit", "some/wells.csv"])
    names = ["geomxp-wells-checkpoint-2.json", "geomxp-wells-checkpoint.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert json.loads(Path(names[0]).read_text())["problem"] == "b"


def test_a_state_that_cannot_be_written_is_said_to_be_lost(tmp_path):
    said = message_of_fit(stopped(), "meuse", str(tmp_path / "no" / "fit.json"), ["fit"])
    assert "the state is lost" in said


@pytest.mark.parametrize("word", ["--scratch=here", "--scratch here"])
def test_options_are_found_however_they_are_written(word, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["log-likelihood", "meuse", *word.split()]
    assert message_of(words) == message_of(["info"]) == "interrupted."
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "geomxp-1.tiles").touch()
    assert "Tiles are saved in here." in message_of(words)
