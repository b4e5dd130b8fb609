"""Imports point one way, and importing geomxp is cheap."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "geomxp"
MODULES = sorted(PACKAGE.rglob("*.py"))

EVERYWHERE = {
    *("annotations", "outcome", "errors", "cuda", "cuda.streams"),
    *("execution.devices", "execution.jit", "execution.trace"),
}
"""Modules that all others may import."""

ALLOWED = {
    "covariance": {"covariance", "cuda"},
    "precision": {"precision"},
    "dense": {"dense", "precision"},
    "tiles": {"tiles", "dense", "precision", "covariance"},
    "execution": {"execution", "tiles", "dense", "precision", "covariance", "datasets"},
    "vecchia": {"vecchia", "covariance"},
    "support": {"support", "covariance", "observations", "exchange"},
    "inference": {
        *(
            "inference",
            "vecchia",
            "support",
            "tiles",
            "dense",
            "precision",
            "covariance",
            "execution",
        ),
        *("observations", "tables", "datasets", "formulas", "covariates"),
        *("exchange", "places"),
    },
    "validation": {
        *("validation", "inference", "execution", "vecchia", "covariance", "observations"),
    },
    "observations": {"covariance", "covariates", "exchange", "places"},
    "tables": {"observations", "exchange"},
    "places": set(),
    "exchange": {"exchange", "tables", "covariates", "formulas", "observations", "places"},
    "formulas": set(),
    "covariates": {"tables", "formulas"},
    "datasets": {"tables"},
    "pictures": {"pictures", "inference", "support", "validation", "observations", "precision"},
    "plots": {"pictures", "inference"},
    "reporting": {
        *("reporting", "plots", "inference", "vecchia", "validation"),
        *("precision", "datasets", "covariance"),
    },
    "report": {"reporting", "plots", "tables", "inference"},
}
"""What a folder or module may import besides; those not named here may import anything."""

ENTRANCES = {"refine.py": {"execution.local"}}
"""Modules below the runners that have a function which factors by itself."""


def imports_of(path):
    """Modules of geomxp that a file imports, as dotted names below the package."""
    here = path.relative_to(PACKAGE).with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = here[: len(here) - node.level]
            module = (*base, *(node.module or "").split(".")) if node.module else base
            if module:
                yield ".".join(module)
            else:
                yield from (alias.name for alias in node.names if alias.name != "__version__")


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    room = path.relative_to(PACKAGE).with_suffix("").parts[0]
    if room not in ALLOWED:
        return
    for module in imports_of(path):
        everywhere = EVERYWHERE | ENTRANCES.get(path.name, set())
        allowed = module in everywhere or module.split(".")[0] in ALLOWED[room] | {room}
        assert allowed, f"{path.name} imports {module}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_modules_are_short_and_say_what_they_are(path):
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text)), "a module's docstring is its purpose"
    assert text.count("\n") <= 400


def test_importing_geomxp_imports_no_accelerator_no_cluster_and_no_pictures():
    code = (
        "import sys, geomxp; heavy = ('cupy', 'dask', 'mkl', 'matplotlib', 'pandas', 'numba', "
        "'sklearn', 'geopandas', 'pyproj', 'xarray', 'netCDF4', 'rasterio'); "
        "print([m for m in heavy if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_public_names_exist_and_have_docstrings():
    import geomxp

    for name in geomxp.__all__:
        assert getattr(geomxp, name).__doc__, name
