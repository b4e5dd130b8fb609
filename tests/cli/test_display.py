"""What a terminal shows is what the result holds; what is piped has no colour."""

import io
import json
import re

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from terminals import Run

import geomxp as gx
from geomxp.cli import commands, display

COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9][;m]")
MODEL = ["--variance", "0.6", "--range", "220", "--smoothness", "0.5", "--nugget", "0.06"]
LIKELIHOOD = ["log-likelihood", "meuse", *MODEL]


def drawn(picture, width=100, **options):
    """The text that a terminal of some width would show."""
    console = Console(file=io.StringIO(), width=width, force_terminal=True, **options)
    console.print(picture)
    return console.file.getvalue()


@pytest.fixture(scope="module")
def fit():
    seen = gx.datasets.load("meuse", formula="poly(elev, 2)")
    return gx.fit(seen, fixed={"smoothness": 0.5}, trend="poly(elev, 2)")


@pytest.mark.slow
def test_pipes_get_plain_text_whatever_the_environment_wants(tmp_path):
    run = Run(LIKELIHOOD, tmp_path, FORCE_COLOR="1", GITHUB_ACTIONS="true")
    status, errors = run.finish()
    assert (status, errors) == (0, "")
    found = gx.log_likelihood(gx.datasets.load("meuse"), gx.Matern(0.6, 220.0, 0.5, 0.06))
    assert run.output.decode() == f"{found}\n"


@pytest.mark.slow
def test_terminals_get_colour_unless_nobody_wants_it(tmp_path):
    status, shown = Run(LIKELIHOOD, tmp_path, terminal="stdout").finish()
    assert status == 0
    assert COLOUR.search(shown)
    status, plain = Run(LIKELIHOOD, tmp_path, terminal="stdout", NO_COLOR="1").finish()
    assert status == 0
    assert not COLOUR.search(plain)
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown) == re.sub(r"\x1b\[[0-9;]*m", "", plain)


@pytest.mark.slow
def test_json_is_one_object_on_a_terminal_too(tmp_path):
    status, shown = Run([*LIKELIHOOD, "--json"], tmp_path, terminal="stdout").finish()
    assert status == 0
    # numba's colorama resets a terminal at the end
    assert json.loads(shown.removesuffix("\x1b[0m"))["n"] == 155


@pytest.mark.parametrize("width", [60, 100])
def test_a_fit_shows_all_that_its_text_says(fit, width):
    shown = drawn(display.fit(fit), width, no_color=True)
    words = {word for line in str(fit).splitlines() for word in line.split()}
    # a narrow terminal may break a word
    text = re.sub(r"\x1b\[[0-9;]*m|\s", "", shown)
    assert [word for word in words - {"std.", "error"} if word not in text] == []


def test_intervals_stand_beside_their_parameters(fit):
    intervals = commands.intervals_of(fit, "profile", 0.9)
    rows = drawn(display.fit(fit, intervals), color_system=None).splitlines()
    assert "90 % from" in next(row for row in rows if "parameter" in row)
    for name, (lower, upper) in intervals["parameters"].items():
        cells = next(row for row in rows if name in row).split()
        assert cells[-2:] == [f"{lower:.6g}", "infinity" if upper is None else f"{upper:.6g}"]
    held = next(row for row in rows if "smoothness" in row).split()
    assert held == ["smoothness", "0.5"]


@pytest.mark.parametrize("width", [30, 44, 60])
def test_a_narrow_terminal_shows_a_table_in_parts_with_the_names(fit, width):
    intervals = commands.intervals_of(fit, "wald", 0.95)
    shown = drawn(display.fit(fit, intervals), width, color_system=None)
    lines = shown.splitlines()
    assert max(map(len, lines)) <= width
    for row in fit.to_frame().itertuples():
        assert f"{row.estimate:.6g}" in shown
    for name, (lower, upper) in intervals["parameters"].items():
        rows = [line for line in lines if line.strip().startswith(name)]
        assert rows, name
        numbers = " ".join(rows)
        assert f"{lower:.6g}" in numbers
        assert f"{upper:.6g}" in numbers


def test_names_with_brackets_are_no_markup(fit):
    assert "trend: poly(elev, 2)[1]" in drawn(display.fit(fit), color_system=None)


def test_long_tables_show_their_ends():
    rows = np.arange(1000)
    frame = pd.DataFrame({"place": rows, "mean": rows / 7, "missing": np.where(rows, 1.0, np.nan)})
    lines = drawn(display.frame(frame, "a thousand places"), color_system=None).splitlines()
    assert lines[0] == "a thousand places"
    assert "1,000 rows, of which 40 are shown" in lines[1]
    cells = [line.split() for line in lines[5:] if line.strip()]
    assert cells[0] == ["0", "0"]
    assert cells[1] == ["1", f"{1 / 7:.6g}", "1"]
    assert cells[20] == ["…"] * 3
    assert cells[-1] == ["999", f"{999 / 7:.6g}", "1"]
    assert len(cells) == display.SHOWN_ROWS + 1


def test_forms_and_the_best_row():
    frame = pd.DataFrame({"model": ["a", "b"], "AIC": [1.2345, 6.0], "k": [3, 4]})
    picture = display.frame(frame, best=0, formats={"AIC": ".2f"})
    assert drawn(picture, color_system=None).splitlines()[3].split() == ["a", "1.23", "3"]
    first, second = drawn(picture, color_system="standard").splitlines()[3:5]
    assert "\x1b[32m" in first
    assert "\x1b[32m" not in second


def test_endings_are_green_or_yellow():
    text = "a heading\n\noutcome   CONVERGED: done\nother     STALLED: not"
    shown = drawn(display.styled(text), color_system="standard")
    assert "\x1b[1ma heading" in shown
    assert "\x1b[32mCONVERGED" in shown
    assert "\x1b[33mSTALLED" in shown
    assert "\x1b[36moutcome" in shown
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown) == text + "\n"
