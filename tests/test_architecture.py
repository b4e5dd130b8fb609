"""Imports point one way, and importing geomxp is cheap."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "geomxp"
MODULES = sorted(PACKAGE.rglob("*.py"))

EVERYWHERE = {"annotations", "outcome", "errors", "cuda", "execution.devices", "execution.trace"}
"""Modules that all others may import."""

ALLOWED = {
    "covariance": {"covariance", "cuda"},
    "precision": {"precision"},
    "dense": {"dense", "precision"},
    "tiles": {"tiles", "dense", "precision", "covariance"},
    "execution": {"execution", "tiles", "dense", "precision", "covariance", "datasets"},
    "inference": {
        *("inference", "tiles", "dense", "precision", "covariance", "execution"),
        *("observations", "tables", "datasets", "formulas", "covariates"),
        *("frames", "grids", "places", "crs", "geofiles", "rasters"),
    },
    "observations": {"covariance", "covariates", "frames_observed", "places"},
    "tables": {"observations", "frames", "geofiles"},
    "places": set(),
    "crs": set(),
    "geofiles": {"crs"},
    "frames": {"tables", "crs", "grids", "places"},
    "grids": {"frames", "crs", "places"},
    "rasters": {"tables", "geofiles", "frames", "grids", "crs"},
    "frames_observed": {
        *("frames", "grids", "tables", "crs", "covariates", "formulas", "observations", "places"),
    },
    "frames_written": {"frames", "geofiles", "tables", "crs"},
    "formulas": set(),
    "covariates": {"tables", "formulas"},
    "datasets": {"tables"},
    "plots_axes": set(),
    "plots_maps": {"plots_axes", "inference", "observations"},
    "plots_variogram": {"plots_axes", "inference"},
    "plots_profiles": {"plots_axes", "inference"},
    "plots_validation": {"plots_axes", "plots_maps", "inference"},
    "plots_comparisons": {"plots_axes", "inference"},
    "plots_precision": {"plots_axes", "precision"},
    "plots_execution": {"plots_axes", "plots_precision"},
    "plots": {
        *("inference", "plots_axes", "plots_maps", "plots_variogram", "plots_profiles"),
        *("plots_validation", "plots_comparisons", "plots_precision", "plots_execution"),
    },
    "report_pictures": {"plots"},
    "report_maps": {"plots"},
    "report_layers": {"report_maps"},
    "report_words": {"report_maps", "plots", "inference"},
    "report_ledger": {"inference"},
    "report_work": {"report_ledger", "report_pictures", "plots", "inference", "precision"},
    "report_sources": {"report_words", "datasets", "covariance", "inference", "precision"},
    "report": {
        *("plots", "tables", "inference", "report_layers", "report_maps", "report_pictures"),
        *("report_sources", "report_words", "report_work"),
    },
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
