"""The notebooks run, and what they store is what they show."""

import pickle
import re
from itertools import groupby
from pathlib import Path

import nbclient
import nbformat
import pytest

FOLDER = Path(__file__).parent.parent / "notebooks"
NAMES = (
    "01_fit_and_predict",
    "02_weak_medium_strong",
    "03_accuracy_and_kl",
    "04_larger_than_memory",
    "05_vecchia_millions",
)
SECONDS = 1800
"""Of one cell, or the start of a kernel, on a machine that does other things as well."""

LOCAL = re.compile(
    r"(?<![\w.:/])/(home|root|tmp|work|usr|opt|mnt|var|Users)/|site-packages|[A-Z]:\\"
)
"""Paths of somebody's machine."""


def read(name):
    """Return the notebook as it is stored."""
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def code_of(book):
    """Return the cells of code that have some."""
    return [cell for cell in book.cells if cell.cell_type == "code" and cell.source.strip()]


def kinds(cell):
    """Return what a cell shows, in kind: streams by name, pictures and tables by their formats."""
    found = [
        ("stream", output.name)
        if output.output_type == "stream"
        else (output.output_type, *sorted(output.get("data", ())))
        for output in cell.outputs
    ]
    # a stream arrives in pieces, as its lines were written
    return [kind for kind, _ in groupby(found)]


def shown(book):
    """Return everything that is shown as text."""
    outputs = [output for cell in code_of(book) for output in cell.outputs]
    texts = [output.get("text", "") for output in outputs]
    texts += [
        data
        for output in outputs
        for form, data in output.get("data", {}).items()
        if form.startswith("text/")
    ]
    return "\n".join(texts)


def test_figures_without_a_window_show_themselves():
    from IPython.core.formatters import DisplayFormatter

    from geomxp import plots
    from geomxp.data import datasets

    figure = plots.values_map(datasets.load("meuse")).figure
    shown, _ = DisplayFormatter().format(figure)
    assert shown["image/png"][:8] == b"\x89PNG\r\n\x1a\n"
    assert pickle.loads(pickle.dumps(figure))._repr_png_() == shown["image/png"]


@pytest.mark.parametrize(
    "path", ["/home/x/a.csv", "C:\\Users\\x", "in /home/a", "lib/site-packages/a"]
)
def test_paths_of_a_machine_are_found(path):
    assert LOCAL.search(path)
    assert not LOCAL.search("https://a.org/home/x, experiments/work/x and 1/usr/2")


def test_the_folder_holds_these_notebooks():
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == list(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_short_and_has_been_run_from_top_to_bottom(name):
    book = read(name)
    nbformat.validate(book)
    assert len(book.cells) <= 15
    assert book.cells[0].source.startswith("# ")
    counts = [cell.execution_count for cell in code_of(book)]
    assert counts == list(range(1, len(counts) + 1))
    assert all(cell.outputs for cell in code_of(book))
    assert any("image/png" in kind for cell in code_of(book) for kind in kinds(cell))
    assert (FOLDER / f"{name}.ipynb").stat().st_size < 400_000


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_shows_no_error_no_warning_and_nobodys_paths(name):
    book = read(name)
    assert {kind[:2] for cell in code_of(book) for kind in kinds(cell)}.isdisjoint(
        {("error",), ("stream", "stderr")}
    )
    text = "\n".join([shown(book), *(cell.source for cell in book.cells)])
    assert not LOCAL.search(text)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_and_shows_what_it_stores(name, tmp_path, monkeypatch):
    # makes its cache of fonts now, and not in a notebook, where it would say so
    import matplotlib.font_manager  # noqa: F401

    # a history and settings of its own
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    book, here = read(name), {"metadata": {"path": str(tmp_path)}}
    stored = [kinds(cell) for cell in code_of(book)]
    about = {"timeout": SECONDS, "startup_timeout": SECONDS, "kernel_name": "python3"}
    nbclient.NotebookClient(book, **about, resources=here).execute()
    assert [kinds(cell) for cell in code_of(book)] == stored
    assert {path.name for path in tmp_path.iterdir()} <= {"ipython"}
