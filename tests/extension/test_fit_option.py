"""Drill: an option of `fit`, a row of its table, in one file."""

import json
import shlex

import pytest
from terminals import run_with_new_options

import geomxp as gx
from geomxp.data.options import Kind, Option
from geomxp.estimation.bootstrap import refit
from geomxp.estimation.fit import fit_with
from geomxp.estimation.options import FIT_OPTIONS, MODEL
from geomxp.reporting import exploration
from geomxp.reporting.sources import python_lines

HELD = {"variance": 1.0, "range": 200.0, "smoothness": 0.5, "nugget": 0.1}


def one_line(name, text):
    if text is not None and "\n" in text:
        raise gx.InvalidInput(f"`{name}` must be one line. Got {text!r}.")
    return text


@pytest.fixture(autouse=True)
def note(monkeypatch):
    kind = Kind(str, check=one_line)
    row = Option("note", kind, "TEXT", "Note that the fit keeps.", panel=MODEL)
    monkeypatch.setitem(FIT_OPTIONS, "note", row)


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    return run_with_new_options(monkeypatch, capsys)


def test_the_help_has_the_option(run):
    assert "--note" in run("fit", "--help")[1]


def test_the_option_is_checked(run):
    with pytest.raises(gx.InvalidInput, match="`note` must be one line"):
        fit_with(gx.datasets.load("meuse"), None, None, {"note": "a\nb"})
    status, _, err = run("fit", "meuse", "--note", "a\nb")
    assert (status, "`note` must be one line" in err) == (2, True)


def test_a_saved_fit_and_its_report_have_the_option(run):
    held = FIT_OPTIONS.command({"fixed": HELD})
    status, _, err = run("fit", "meuse", *held, "--note", "no flood", "--output", "fit.json")
    assert (status, err) == (0, "")
    with open("fit.json", encoding="utf-8") as file:
        assert json.load(file)["options"] == {"note": "no flood"}
    fit = gx.Fit.load("fit.json")
    assert fit.options == {"note": "no flood"}
    assert "note='no flood'" in python_lines(fit)


def test_a_fit_of_other_observations_has_the_option():
    seen, options = gx.datasets.load("meuse"), {"fixed": HELD, "note": "no flood", "strict": True}
    fit = fit_with(seen, None, None, options, progress=False)
    again = refit(fit, seen.subset(range(100)), fit.method)
    assert fit.options == {"note": "no flood"}
    assert again.options["note"] == "no flood"


def test_the_next_command_and_call_of_an_exploration_can_have_the_option(monkeypatch):
    chosen = exploration._next_options
    monkeypatch.setattr(
        exploration, "_next_options", lambda *given: chosen(*given) | {"note": "no flood"}
    )
    found = gx.explore(gx.datasets.load("meuse"))
    words = shlex.split(found.command)
    assert words[words.index("--note") + 1] == "no flood"
    assert "note='no flood'" in found.call
