"""The import law, and what importing geomxp costs."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "geomxp"
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path
    for path in sorted(PACKAGE.rglob("*.py"))
}

LAYERS = (
    {"_typing", "_version", "cuda"},
    {"errors"},
    {"runtime"},
    {"linalg"},
    {"covariance"},
    {"data", "tiles", "vecchia"},
    {"likelihood"},
    {"estimation"},
    {"prediction"},
    {"plots", "sklearn", "testing"},
    {"reporting"},
    {"benchmarks"},
    {"cli"},
    {"__init__"},
    {"__main__"},
)
"""Rooms of the package from the bottom up. A room imports rooms of lower layers only."""

LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}

CUDA_READERS = {"cuda", "linalg", "covariance", "vecchia"}
"""Rooms that may import `geomxp.cuda`."""


def room_of(module):
    return module.split(".")[0]


@cache
def imports_of(module):
    """Modules of geomxp that a module imports: at once, in functions, or for type checkers."""
    here = module.split(".")
    found = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*here[: len(here) - node.level], *(node.module or "").split(".")]
            base = [part for part in base if part]
            for alias in node.names:
                stem = ".".join([*base, alias.name])
                names = (stem, f"{stem}.__init__", ".".join(base), ".".join([*base, "__init__"]))
                found.add(next(name for name in names if name in MODULES))
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names = (
                [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            )
            assert not any(name.split(".")[0] == "geomxp" for name in names), "import relatively"
    return found


def upward(module):
    """Imports of a module that break the law."""
    room = room_of(module)
    for other in imports_of(module):
        below = LEVEL[room_of(other)] < LEVEL[room] or room_of(other) == room
        if not below or (room_of(other) == "cuda" and room not in CUDA_READERS):
            yield f"{module} imports {other}"


def cycles():
    """Sets of modules that import each other (Tarjan's strongly connected components)."""
    index, low, stack, found = {}, {}, [], []

    def visit(module):
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(imports_of(module)):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            at = stack.index(module)
            component = sorted(stack[at:])
            del stack[at:]
            if len(component) > 1 or module in imports_of(module):
                found.append(component)

    for module in MODULES:
        if module not in index:
            visit(module)
    return found


def test_every_room_has_a_layer():
    assert {room_of(module) for module in MODULES} == set(LEVEL)


@pytest.mark.slow
def test_imports_point_down():
    assert [line for module in MODULES for line in upward(module)] == []


@pytest.mark.slow
def test_no_modules_import_each_other():
    assert cycles() == []


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES)
def test_modules_say_what_they_are(module):
    assert ast.get_docstring(ast.parse(MODULES[module].read_text())), "a docstring is missing"


HEAVY = (
    *("cupy", "dask", "distributed", "mkl", "matplotlib", "pandas", "numba", "llvmlite", "nlopt"),
    *("sklearn", "geopandas", "pyproj", "shapely", "xarray", "netCDF4", "rasterio", "formulaic"),
    *("jinja2", "rich", "typer", "psutil", "threadpoolctl"),
    *("scipy.linalg", "scipy.optimize", "scipy.spatial", "scipy.special", "scipy.stats"),
    *("asyncio", "concurrent.futures", "importlib.metadata", "importlib.resources", "logging"),
    *("geomxp.cli", "geomxp.plots", "geomxp.reporting", "geomxp.sklearn", "geomxp.testing"),
)
"""Modules that take long to import, and that not every use of geomxp needs."""


def test_importing_geomxp_imports_nothing_heavy():
    code = f"import sys, geomxp; print([name for name in {HEAVY} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_public_names_exist_and_have_docstrings():
    import geomxp

    for name in geomxp.__all__:
        assert getattr(geomxp, name).__doc__, name


def classes_asked_for(module):
    """Names of classes in calls of isinstance."""
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
            yield from (
                part.attr if isinstance(part, ast.Attribute) else part.id
                for part in ast.walk(node.args[1])
                if isinstance(part, ast.Attribute | ast.Name)
            )


@pytest.mark.slow
def test_only_the_room_of_likelihoods_tells_methods_apart():
    others = [module for module in MODULES if room_of(module) != "likelihood"]
    asking = {m for m in others if {"Exact", "Vecchia"} & set(classes_asked_for(m))}
    assert asking == set()


@pytest.mark.slow
def test_only_the_backend_asks_what_kind_of_array_it_has():
    # blocks of predictions are what users write: arrays, lists or geometries; == compares anything
    allowed = {"linalg.backend", "prediction.supports", "runtime.equality"}
    assert {m for m in MODULES if "ndarray" in set(classes_asked_for(m))} == allowed


def test_tests_that_are_imported_change_no_setting_of_the_others(changed_by_collection):
    """Each worker of pytest imports all of them, and scripts beside them for their examples."""
    assert not changed_by_collection
