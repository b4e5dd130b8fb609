"""What is built is what is here, and works away from here."""

import ast
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import geomxp

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MODULES = sorted((ROOT / "geomxp").rglob("*.py"))

DISTRIBUTIONS = {
    "cupy": "cupy-cuda13x",
    "cupyx": "cupy-cuda13x",
    "cupy_backends": "cupy-cuda13x",
    "netCDF4": "netcdf4",
    "sklearn": "scikit-learn",
    "typing_extensions": "typing-extensions",
    # jinja2 needs the first, geopandas the others: they hand them out
    "markupsafe": "jinja2",
    "pyproj": "geopandas",
    "shapely": "geopandas",
}
"""Whose modules are called otherwise than the distribution."""

HEAVY = {
    *("cupy", "dask", "formulaic", "geopandas", "jinja2", "llvmlite", "matplotlib", "mkl"),
    *("netCDF4", "numba", "pandas", "psutil", "pyarrow", "pyproj", "rasterio", "shapely"),
    *("scipy.linalg", "scipy.optimize", "scipy.sparse", "scipy.spatial", "scipy.special"),
    *("scipy.stats", "sklearn", "threadpoolctl", "xarray"),
}
"""What costs more time to import than geomxp itself, or may not be installed."""


def hatch(folder, output, *targets):
    """Build distributions of a source tree, into another folder."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", output]
    command += [word for target in targets for word in ("-t", target)]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def contents(wheel):
    """Return the files of a wheel, as name to bytes."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with the wheel and the sdist of this tree."""
    folder = tmp_path_factory.mktemp("dist")
    hatch(ROOT, folder, "wheel", "sdist")
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    (path,) = built.glob("*.whl")
    return contents(path)


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """A folder that holds the wheel as installers unpack it."""
    folder = tmp_path_factory.mktemp("site")
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder)
    return folder


def run_away(installed, folder, *words):
    """Run Python in another folder, with the unpacked wheel and warnings as errors."""
    return subprocess.run(
        [sys.executable, "-W", "error", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_wheel_holds_the_package_and_the_data_and_nothing_else(wheel):
    ours = {name: data for name, data in wheel.items() if ".dist-info/" not in name}
    ignored = {".pyc", ".nbi", ".nbc"}
    expected = {
        path.relative_to(ROOT).as_posix(): path.read_bytes()
        for path in (ROOT / "geomxp").rglob("*")
        if path.is_file() and path.suffix not in ignored
    }
    for path in (ROOT / "data").iterdir():
        expected[f"geomxp/data/files/{path.name}"] = path.read_bytes()
    assert ours == expected
    assert {
        "geomxp/py.typed",
        "geomxp/reporting/templates/report.html",
        "geomxp/cuda/matern.cuh",
    } <= set(ours)


@pytest.mark.slow
def test_a_wheel_says_what_it_is(wheel):
    (about,) = (data.decode() for name, data in wheel.items() if name.endswith("/METADATA"))
    assert f"\nVersion: {geomxp.__version__}\n" in about
    assert "\nRequires-Python: >=3.11\n" in about
    assert "\nLicense-Expression: BSD-3-Clause AND GPL-2.0-or-later AND CC0-1.0\n" in about
    (commands,) = (data for name, data in wheel.items() if name.endswith("/entry_points.txt"))
    assert commands.decode().strip() == "[console_scripts]\ngeomxp = geomxp.cli.main:main"


def test_the_licence_covers_the_code_and_every_data_set():
    covered = {
        "GPL (>= 2) of the R package": "GPL-2.0-or-later",
        "CC0": "CC0-1.0",
        # no licence is needed
        "public domain (US government)": None,
    }
    needed = {"BSD-3-Clause"}
    needed |= {covered[entry.licence] for entry in geomxp.datasets.DATASETS.values()} - {None}
    assert set(PROJECT["license"].split(" AND ")) == needed


@pytest.mark.slow
def test_a_package_index_shows_the_readme_without_links_into_the_repository(wheel):
    (about,) = (data.decode() for name, data in wheel.items() if name.endswith("/METADATA"))
    head, _, shown = about.partition("\n\n")
    assert "\nDescription-Content-Type: text/markdown" in head
    links = re.findall(r"\]\(([^)]*)\)", shown)
    assert links
    assert all(link.startswith(("https://", "#")) for link in links)
    # all else is README, word by word
    words = (ROOT / "README.md").read_text()
    words = re.sub(r"!\[[^\]]*\]\(data/[^)]*\)", "", words)
    words = re.sub(r"\[([^\]]*)\]\((?!https:|#)[^)]*\)", r"\1", words)
    assert shown.split() == words.split()


@pytest.mark.slow
def test_a_wheel_carries_the_licence_and_those_of_the_data(wheel):
    licences = {name.split("/licenses/")[1]: name for name in wheel if "/licenses/" in name}
    assert set(licences) == {"LICENSE", "data/README.md", "data/GPL-2.txt"}
    assert wheel[licences["LICENSE"]] == (ROOT / "LICENSE").read_bytes()
    data = wheel[licences["data/README.md"]].decode()
    for entry in geomxp.datasets.DATASETS.values():
        assert f"| `{entry.file}` | {entry.source} | {entry.licence} | `{entry.sha256}` |" in data


@pytest.mark.slow
def test_a_wheel_made_from_the_sdist_is_the_same(built, wheel, tmp_path):
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    hatch(folder, tmp_path / "again", "wheel")
    (again,) = (tmp_path / "again").glob("*.whl")
    assert contents(again) == wheel


@pytest.mark.slow
def test_an_sdist_holds_what_its_tests_read(built):
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    here = {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "mkdocs.yml"}
    for pattern in ("tests/**/*.py", "experiments/*/*.py", "notebooks/*.ipynb", "docs/**/*.md"):
        found = {path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern)}
        assert found
        here |= found
    assert here <= names


@pytest.mark.slow
def test_the_unpacked_wheel_finds_its_data_sources_and_templates(installed, tmp_path):
    code = """
import importlib.metadata, pathlib, sys
import geomxp
from geomxp import cuda, datasets
from geomxp.data import tables
package = pathlib.Path(geomxp.__file__).parent
assert package.parent == pathlib.Path(sys.argv[1]), package
assert importlib.metadata.version("geomxp") == geomxp.__version__
assert datasets.folder() == package / "data" / "files"
for name, entry in datasets.DATASETS.items():
    assert tables.sha256(datasets.path(name)) == entry.sha256, name
for path in sorted((package / "cuda").glob("*.cu")):
    assert "__global__" in cuda.source(path.name)
templates = package / "reporting" / "templates"
assert "<html" in (templates / "head.html").read_text(encoding="utf-8")
assert "<body" in (templates / "report.html").read_text(encoding="utf-8")
"""
    run = run_away(installed, tmp_path, "-c", code, str(installed))
    assert run.returncode == 0, run.stderr


@pytest.mark.slow
def test_the_unpacked_wheel_computes(installed, tmp_path):
    model = ["--variance", "0.6", "--range", "220", "--smoothness", "0.5", "--nugget", "0.06"]
    run = run_away(installed, tmp_path, "-m", "geomxp", "log-likelihood", "meuse", *model)
    assert run.returncode == 0, run.stderr
    # nothing but the notice of the first run
    assert all("compiling code" in line for line in run.stderr.splitlines())
    assert "COMPUTED" in run.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "code", ["import geomxp", "from geomxp.cli.main import main; main(['--help'])"]
)
def test_nothing_heavy_is_imported_for(code):
    code += f"; import sys; print(sorted({HEAVY!r} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"


def statements(body):
    """Yield statements with those inside them, without walking through expressions."""
    for node in body:
        yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from statements(getattr(node, name, ()))


def imported():
    """Yield each module of others that a module of ours imports, and whether at its head."""
    for path in MODULES:
        tree = ast.parse(path.read_text())
        for node in statements(tree.body):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            for name in {name.split(".")[0] for name in names} - set(sys.stdlib_module_names):
                yield name, node in tree.body


def required(lines):
    return {re.match(r"[\w.-]+", line)[0] for line in lines}


@pytest.mark.slow
def test_whatever_is_imported_is_declared():
    core = required(PROJECT["dependencies"])
    optional = set().union(*map(required, PROJECT["optional-dependencies"].values()))
    for name, at_head in imported():
        assert DISTRIBUTIONS.get(name, name) in core | optional, name
        # the adapter alone needs its library, and says so at its head
        assert not at_head or name in core, name


def test_extras_that_messages_and_readme_name_exist():
    texts = [path.read_text() for path in (*MODULES, ROOT / "README.md")]
    named = set(re.findall(r"geomxp\[([\w,]+)\]", "\n".join(texts)))
    assert "gpu" in named
    for extras in named:
        assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
