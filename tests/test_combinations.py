"""Every two choices of a model, its data, a method and an operation work together.

Or they are refused for a reason of mathematics.
"""

import importlib
import re
from pathlib import Path

import cells
import pytest

from geomxp.covariance import combined
from geomxp.covariance.base import FAMILIES

DOCS = Path(__file__).parents[1] / "docs"


REASONS = (
    "not known to be a covariance with great-circle",
    "is not a covariance with great-circle distances",
    "with great-circle distances",
    "it needs a correlation that is a mixture of Gaussian ones",
    r"in \d dimensions a spherical model is not a covariance",
    r"in \d dimensions a .*wendland model needs",
)
"""Reasons of mathematics for which a combination is refused."""

CELLS = cells.pairwise()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell.family}-{cell.operation}")
def test_every_two_choices_work_together(cell, tmp_path):
    message = cells.refusal(cell, tmp_path)
    if message is None:
        return
    assert any(re.search(reason, message) for reason in REASONS), message


def test_the_cells_hold_every_two_choices_that_make_sense():
    found = {
        (a, x, b, y)
        for cell in CELLS
        for a, x in enumerate(cells.levels_of(cell))
        for b, y in enumerate(cells.levels_of(cell))
        if a < b
    }
    assert found == cells.sensible_pairs()
    assert len(CELLS) < 100


def test_the_table_of_the_documentation_says_which_families_combine(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    table = importlib.import_module("combinations").table()
    rows = [line.strip("|").split("|") for line in table.splitlines()]
    names, *cells_of = [[cell.strip() for cell in row] for row in rows if "---" not in row[0]]
    marks = {
        (*row[:2], name): mark for row in cells_of for name, mark in zip(names, row, strict=True)
    }
    assert marks["separable", "one", "spherical"] == "yes"
    assert marks["gneiting", "coregionalization", "spherical"] == "no mixture"
    assert marks["none", "flexible-matern", "cauchy"] == "of Matérn only"
    alone = [kind for kind in FAMILIES.values() if "time" not in kind.uses]
    assert list(marks.values()).count("yes") == len(alone) + len(combined.titles()) == 86
