"""The notebooks run, and their stored outputs are those of a run."""

import json
import pickle
import re
from itertools import groupby
from pathlib import Path

import nbclient
import nbformat
import pytest
from warm import python_with

FOLDER = Path(__file__).parent.parent / "notebooks"
NAMES = (
    "01_fit_and_predict",
    "02_weak_medium_strong",
    "03_accuracy_and_kl",
    "04_larger_than_memory",
    "05_vecchia_millions",
    "06_messy_data",
    "07_space_and_time",
    "08_several_variables",
    "09_counts",
)
SECONDS = 1800
"""Time limit of one cell, or of the start of a kernel, on a loaded machine."""

LOCAL = re.compile(
    r"(?<![\w.:/])/(home|root|tmp|work|usr|opt|mnt|var|Users)/|site-packages|[A-Z]:\\"
)
"""Paths of a particular machine."""


def read(name):
    """Return the stored notebook."""
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def code_of(book):
    """Return the code cells that are not empty."""
    return [cell for cell in book.cells if cell.cell_type == "code" and cell.source.strip()]


def kinds(cell):
    """Return the kinds of a cell's outputs: streams by name, pictures and tables by format."""
    found = [
        ("stream", output.name)
        if output.output_type == "stream"
        else (output.output_type, *sorted(output.get("data", ())))
        for output in cell.outputs
    ]
    # a stream arrives in pieces
    return [kind for kind, _ in groupby(found)]


def shown(book):
    """Return all outputs that are text."""
    outputs = [output for cell in code_of(book) for output in cell.outputs]
    texts = [output.get("text", "") for output in outputs]
    texts += [
        data
        for output in outputs
        for form, data in output.get("data", {}).items()
        if form.startswith("text/")
    ]
    return "\n".join(texts)


@pytest.mark.slow
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
def test_a_notebook_shows_no_error_no_warning_and_no_local_path(name):
    book = read(name)
    assert {kind[:2] for cell in code_of(book) for kind in kinds(cell)}.isdisjoint(
        {("error",), ("stream", "stderr")}
    )
    text = "\n".join([shown(book), *(cell.source for cell in book.cells)])
    assert not LOCAL.search(text)


LIBRARIES = ("numpy", "pandas", "scipy.stats", "numba", "matplotlib.pyplot", "ipykernel.kernelapp")
INLINE = "module://matplotlib_inline.backend_inline"
"""Where a kernel has matplotlib draw."""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """A folder that describes the kernel of Python, started with libraries imported."""
    # build the font cache here: in a notebook, building it prints a message
    import matplotlib.font_manager  # noqa: F401

    folder = tmp_path_factory.mktemp("jupyter")
    with python_with(*LIBRARIES, MPLBACKEND=INLINE) as python:
        command = [*python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        about = {"argv": command, "display_name": "Python", "language": "python"}
        (folder / "kernels" / "warm").mkdir(parents=True)
        (folder / "kernels" / "warm" / "kernel.json").write_text(json.dumps(about))
        yield folder


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_and_shows_what_it_stores(name, kernels, tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_PATH", str(kernels))
    # separate history and settings
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    book, here = read(name), {"metadata": {"path": str(tmp_path)}}
    stored = [kinds(cell) for cell in code_of(book)]
    about = {"timeout": SECONDS, "startup_timeout": SECONDS, "kernel_name": "warm"}
    nbclient.NotebookClient(book, **about, resources=here).execute()
    assert [kinds(cell) for cell in code_of(book)] == stored
    assert {path.name for path in tmp_path.iterdir()} <= {"ipython"}
