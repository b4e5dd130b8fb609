"""The pages run as printed, with the output printed there, and build a site without a warning."""

import doctest
import html
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from reports import briefly

import geomxp as gx
from geomxp.cli.main import main

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def module(name):
    """Import a script of the folder docs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DOCS))
        return importlib.import_module(name)


architecture, blocks, formulas = module("architecture"), module("blocks"), module("formulas")
reference, results = module("reference"), module("results")
PAGES = blocks.pages()


def to_run():
    """Return the pages; those that start worker processes are marked `cluster`."""
    mark = pytest.mark.cluster
    return [
        pytest.param(
            path,
            id=str(path.relative_to(blocks.PAGES)),
            marks=[mark] if "= LocalCluster(" in path.read_text(encoding="utf-8") else [],
        )
        for path in PAGES
    ]


@pytest.mark.slow
@pytest.mark.parametrize("path", to_run())
def test_a_page_runs_and_prints_the_stated_output(path, tmp_path):
    # what a report shows is not printed
    with briefly():
        for block, namespace in blocks.run(path, tmp_path):
            for said, printed in blocks.differences(block):
                pytest.fail(f"{path.name}:{block.line} says\n{said}\nand prints\n{printed}")
            if block.picture:
                assert (path.parent / block.picture).is_file(), block.picture
                assert blocks.figure_of(namespace).get_axes()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(blocks.PAGES)))
def test_local_clusters_of_a_page_take_any_free_port(path):
    # without an address, or with None, Dask warns if another run has the port 8787
    calls = re.findall(r"= LocalCluster\((.*?)\)", path.read_text(encoding="utf-8"), re.DOTALL)
    assert all('dashboard_address=":0"' in call for call in calls)
    assert not any("port=" in call for call in calls)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(blocks.PAGES)))
def test_every_block_of_a_page_runs_or_gives_a_reason(path):
    text = path.read_text(encoding="utf-8")
    found = blocks.blocks(text)
    assert len(re.findall(r"^\s*(?:```|~~~)", text, re.MULTILINE)) == 2 * sum(
        1 + (block.output is not None) for block in found
    )
    for block in found:
        assert block.runs or blocks.UNTESTED.search(block.about), f"{path.name}:{block.line}"


@pytest.mark.slow
def test_the_diagram_of_the_layers_has_every_room_once():
    rooms = set(architecture.modules()) - set(architecture.FACADE)
    drawn = re.findall(r"<text[^>]*>(\w+)</text>", architecture.diagram())
    assert sorted(drawn) == sorted(rooms)
    listed = re.findall(r"^\| `(\w+)`", architecture.table(), re.MULTILINE)
    assert sorted(listed) == sorted(rooms)


def test_the_table_of_the_layers_has_the_imports_of_the_sources():
    assert "linalg" in architecture.imports("covariance")
    assert "covariance" not in architecture.imports("linalg")
    assert architecture.imports("_typing") == set()


def page_of(tmp_path, text):
    path = tmp_path / "page.md"
    path.write_text(text, encoding="utf-8")
    (tmp_path / "work").mkdir()
    return list(blocks.run(path, tmp_path / "work"))


def test_a_page_with_another_output_is_detected(tmp_path):
    text = "```python\nx = 3.0\nprint('range', x)\n```\n```text\nrange 3.1\n```\n"
    ((block, _),) = page_of(tmp_path, text)
    assert blocks.differences(block) == [("range 3.1\n", "range 3.0")]


def test_a_failing_command_is_detected_unless_the_page_shows_the_error(tmp_path):
    command = "$ geomxp fit no_such_table"
    with pytest.raises(RuntimeError, match=r"ended with 2: geomxp: .*no_such_table"):
        page_of(tmp_path, f"```console\n{command}\n```\n")
    (tmp_path / "again").mkdir()
    ((block, _),) = page_of(tmp_path / "again", f"```console\n{command}\ngeomxp: no.\n```\n")
    ((said, printed),) = blocks.differences(block)
    assert said == "geomxp: no."
    assert "no_such_table" in printed


def test_blocks_share_names_and_files(tmp_path):
    first = "```python\nopen('a.txt', 'w').close()\n```\n"
    second = "```python\nimport os\nprint(os.listdir())\n```\n"
    page = page_of(tmp_path, first + second)
    assert page[1][0].printed == ["['a.txt']"]


def test_times_and_effects_of_rounding_may_differ():
    said = "a  kl       seconds\n1  1.5e-07  0.031\n\n2 evaluations in 1.5 s"
    printed = "a  kl       seconds\n1  1.7e-07  0.012\n\n2 evaluations in 0.2 s"
    assert blocks.alike(said, printed)
    assert not blocks.alike(said, printed.replace("1  1.7", "2  1.7"))


@pytest.mark.parametrize("script", [blocks, formulas, results], ids=lambda script: script.__name__)
def test_examples_of_the_scripts_hold(script):
    found = doctest.testmod(script)
    assert found.attempted
    assert not found.failed


def test_the_index_of_the_reference_links_every_page():
    index = (ROOT / "docs/pages/reference/index.md").read_text()
    pages = [path for group in reference.pages().values() for path in group]
    for path in (*pages, *reference.command_pages()):
        assert f"]({path.removeprefix('reference/')})" in index, path


def test_every_public_name_has_a_page_of_reference():
    assert set(gx.__all__) <= reference.names_with_a_page()


def test_every_picture_is_in_the_gallery():
    text = (blocks.PAGES / "gallery.md").read_text(encoding="utf-8")
    # on the page of space-time models
    series = {"prediction_maps", "prediction_animation"}
    page = (blocks.PAGES / "how-to" / "space-time.md").read_text(encoding="utf-8")
    assert all(f"plots.{name}(" in page for name in series)
    page = (blocks.PAGES / "how-to" / "several-variables.md").read_text(encoding="utf-8")
    variables = {"correlations", "variograms"}
    assert all(f"plots.{name}(" in page for name in variables)
    for name in set(gx.plots.__all__) - reference.HELPERS - series - variables:
        assert f"plots.{name}(" in text, name
        assert f"gallery-{name}.png" in text, name


@pytest.mark.slow
def test_every_option_of_a_command_is_on_its_page(capsys):
    for path, text in reference.command_pages().items():
        name = path.removeprefix("reference/command-").removesuffix(".md")
        assert main([name, "--help"]) == 0
        shown = capsys.readouterr().out
        options = set(re.findall(r"^\W+?(--[a-z-]+)", shown, re.MULTILINE)) - {"--help"}
        assert options
        assert {option for option in options if f"`{option}`" not in text} == set()


@pytest.mark.slow
@pytest.mark.parametrize("folder", results.experiments(), ids=lambda folder: folder.name)
def test_a_page_of_results_has_every_table_of_its_folder(folder):
    text = results.page(folder)
    assert text.startswith("# ")
    for path in (folder / "results").glob("*.csv"):
        about, header, rows = results.read(path)
        assert all(len(row) == len(header) for row in rows)
        assert f"results/{path.name}" in text
        assert about["commit"] in text
        assert all(f"<th>{name}</th>" in text for name in header)
        if len(rows) <= results.SHOWN:
            cells = {results.short(cell) for row in rows for cell in row}
            assert {cell for cell in cells if f"<td>{html.escape(cell)}</td>" not in text} == set()


@pytest.mark.slow
@pytest.mark.parametrize("folder", results.experiments(), ids=lambda folder: folder.name)
def test_every_table_and_figure_of_results_has_a_caption_and_a_machine(folder):
    text = results.written(folder)
    for path in (*folder.glob("results/*.csv"), *folder.glob("results/*.json")):
        said = results.caption(folder, path.name, text)
        assert said, (
            f"describe {path.name} in a row of {folder.name}/README.md, or docs/captions.py"
        )
    page = results.page(folder)
    for path in folder.glob("figures/*.png"):
        about = re.search(rf"!\[([^\]]+)\]\(figures/{path.name}\)", page)
        assert about, path.name
        assert about.group(1) != path.name, f"describe {path.name} in docs/captions.py"
    for path in folder.glob("results/*.csv"):
        about, _, _ = results.read(path)
        assert f"*{results.origin(about)}*" in page
        assert about["machine"] in results.origin(about)


def test_every_study_is_in_the_index_and_every_paper_has_its_name():
    pages = {folder.name: results.page(folder) for folder in results.experiments()}
    listed = results.index(pages)
    for name, text in pages.items():
        assert listed.count(f"({name}/index.md)") == 1
        for number in re.findall(r"[Pp]aper (\d{3})", results.written(results.EXPERIMENTS / name)):
            assert f"Paper {number}: {results.PAPERS[number]}" in text


def test_a_caption_is_the_row_or_the_item_of_a_readme(tmp_path):
    text = (
        "| file | what |\n|---|---|\n| `a.csv` | bytes in |\n\n- `results/b.csv`: two\n  lines.\n"
    )
    assert results.caption(tmp_path, "a.csv", text) == "Bytes in."
    assert results.caption(tmp_path, "b.csv", text) == "Two lines."
    assert results.caption(tmp_path, "c.csv", text) == ""


def test_numbers_of_tables_are_shortened_and_nothing_else():
    assert results.short("0.12345678") == "0.123457"
    assert results.short("3.979039320256561e-13") == "3.97904e-13"
    for cell in ("4096", "1.5", "fp64:4 fp32:6", "", "2bb7b64", "nan"):
        assert results.short(cell) == cell


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_loads_nothing_from_other_sites(tmp_path):
    pytest.importorskip("mkdocs", reason='needs pip install "geomxp[docs]"')
    run = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "WARNING" not in run.stdout + run.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(PAGES) + len(results.experiments())
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert "arithmatex" not in text
        assert "{{ " not in text
        loaded = re.findall(r'<(?:script|img|link|iframe)\b[^>]*(?:src|href)="(https?:[^"]*)', text)
        assert loaded == []
