"""Drill: an option of the readers, a row of their table and a step, in one file."""

import json
import shlex
from dataclasses import replace

import numpy as np
import pytest
from terminals import run_with_new_options

import geomxp as gx
from geomxp.data import reading, tables
from geomxp.data.options import READER_OPTIONS, Kind, Option
from geomxp.reporting.sources import python_lines

HELD = ("variance=1", "range=200", "smoothness=0.5", "nugget=0.1")


def condition(name, text):
    """Check `column > number`."""
    if text is not None and text.count(">") != 1:
        raise gx.InvalidInput(f"`{name}` must be a condition such as elev > 8. Got {text!r}.")
    return text


def keep_where(state):
    """Keep the rows whose column is greater than a number."""
    if state.options["where"] is None:
        return state
    column, number = state.options["where"].split(">")
    columns = state.table.columns
    kept = tables.number_columns(columns, (column.strip(),))[:, 0] > float(number)
    return replace(state, table=replace(state.table, columns=columns[kept]))


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    where = Option("where", Kind(str, check=condition), "CONDITION", "Rows to keep: elev > 8.")
    monkeypatch.setitem(READER_OPTIONS, "where", where)
    monkeypatch.setattr(reading, "STEPS", (*reading.STEPS[:2], keep_where, *reading.STEPS[2:]))
    monkeypatch.chdir(tmp_path)
    return run_with_new_options(monkeypatch, capsys)


def test_the_help_of_each_command_that_reads_a_table_has_the_option(run):
    for name in ("fit", "explore", "log-likelihood", "compare-models", "compare"):
        status, out, _ = run(name, "--help")
        assert status == 0
        assert "--where" in out, name


def test_the_option_is_checked(run):
    with pytest.raises(gx.InvalidInput, match="`where` must be a condition"):
        gx.datasets.load("meuse", where="elev")
    status, _, err = run("explore", "meuse", "--where", "elev")
    assert (status, "`where` must be a condition" in err) == (2, True)


def test_a_saved_fit_and_its_report_have_the_option(run):
    held = [word for pair in HELD for word in ("--fix", pair)]
    words = ("fit", "meuse", "--where", "elev > 8", *held, "--output", "fit.json", "--no-embed")
    status, _, err = run(*words)
    assert (status, err) == (0, "")
    with open("fit.json", encoding="utf-8") as file:
        assert json.load(file)["table"]["where"] == "elev > 8"
    again, every = gx.Fit.load("fit.json"), gx.datasets.load("meuse", covariates=("elev",))
    kept = every.covariates[:, 0] > 8
    assert 0 < kept.sum() < len(every)
    np.testing.assert_array_equal(again.observations.values, every.values[kept])
    names = {"gx": gx}
    exec("\n".join(python_lines(again).splitlines()[:3]), names)
    assert names["observations"].digest() == again.observations.digest()


def test_the_next_command_and_call_of_an_exploration_have_the_option(run):
    status, out, _ = run("explore", "meuse", "--where", "elev > 8", "--json")
    assert status == 0
    found = json.loads(out)
    words = shlex.split(found["command"])
    assert words[words.index("--where") + 1] == "elev > 8"
    assert "where='elev > 8'" in found["call"]
