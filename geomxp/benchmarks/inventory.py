"""Devices, libraries and caches of this machine, for `geomxp info`."""

import os
import platform
from importlib import metadata
from pathlib import Path

from ..errors import MissingDevice, MissingPackage
from ..runtime import devices

REQUIRED_LIBRARIES = (
    *("numpy", "scipy", "numba", "llvmlite", "nlopt", "pandas", "pyarrow", "formulaic"),
    *("matplotlib", "jinja2", "typer", "rich", "psutil", "shapely", "threadpoolctl"),
)
EXTRAS = {
    "gpu": ("cupy-cuda13x",),
    "mkl": ("mkl",),
    "cluster": ("dask", "distributed", "cloudpickle"),
    "geo": ("geopandas", "pyogrio", "xarray", "netcdf4", "cftime", "rasterio"),
    "sklearn": ("scikit-learn",),
    "notebooks": ("jupyterlab", "nbclient", "ipykernel"),
}
ALTERNATIVE_PACKAGES = {"cupy-cuda13x": ("cupy-cuda12x", "cupy")}
"""Other packages that provide the same module."""

MATRIX_UNIT_FORMATS = ((8.9, "FP8"), (8.0, "BF16"), (8.0, "TF32"), (7.0, "FP16"))
"""(least compute capability, format) of matrix units on NVIDIA's GPUs."""


def inventory():
    """Return what is available and what is missing, as texts and dicts of texts."""
    from .._version import __version__
    from ..data.datasets import DATASETS

    return {
        "geomxp": __version__,
        "Python": platform.python_version(),
        "system": platform.platform(),
        "largest exact fit": f"about {_largest_exact():,} locations in memory",
        "devices": _devices(),
        "matrix units": _matrix_units(),
        "threads": _threads(),
        "libraries": {name: _version(name) or "missing" for name in REQUIRED_LIBRARIES},
        "extras": {name: _extra(name, packages) for name, packages in EXTRAS.items()},
        "caches": {"compiled kernels": _kernels(), "tuned variants": _variants()},
        "data sets": {name: entry.about for name, entry in DATASETS.items()},
    }


def as_text(document):
    """Return an inventory as lines of text, each group below its title."""
    lines = []
    for title, entries in document.items():
        if isinstance(entries, dict):
            width = max(16, 2 + max(map(len, entries), default=0))
            lines += ["", f"{title}:"]
            lines += [f"  {name:<{width}}{text}" for name, text in entries.items()]
        else:
            lines.append(f"{title:<20}{entries}")
    return "\n".join(lines)


def _largest_exact():
    n = int((devices.free_memory() / 8.3) ** 0.5)
    return n // 100 * 100


def _version(package):
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _extra(name, packages):
    """Return the versions of an extra's packages, and the command that installs missing ones."""
    found, missing = [], []
    for package in packages:
        some = [(p, _version(p)) for p in (package, *ALTERNATIVE_PACKAGES.get(package, ()))]
        first = next((f"{p} {version}" for p, version in some if version), None)
        (missing if first is None else found).append(first or package)
    if not missing:
        return ", ".join(found)
    lacking = f"missing {', '.join(missing)}" if found else "missing"
    return f'{", ".join([*found, lacking])}: pip install "geomxp[{name}]"'


def _devices():
    """Return name and memory of the CPU and each GPU."""
    free = devices.human_bytes(devices.free_memory())
    found = {"cpu": f"{devices.usable_cores()} usable cores, {_cpu_name()}"}
    found["cpu"] += f", {free} of memory free"
    try:
        count = devices.gpu_count()
    except MissingDevice as error:
        return found | {"gpu": f"none usable: {error}"}
    if not count:
        return found | {"gpu": "none found"}
    import cupy

    for k in range(count):
        properties = cupy.cuda.runtime.getDeviceProperties(k)
        memory = devices.human_bytes(properties["totalGlobalMem"])
        capability = f"{properties['major']}.{properties['minor']}"
        found[f"gpu:{k}"] = f"{properties['name'].decode()}, {memory}, {capability}"
    return found


def _cpu_name():
    """Return LLVM's name of this CPU, or its architecture if numba is missing."""
    try:
        from ..runtime.devices import binding
    except MissingPackage:
        return platform.machine()
    return binding.get_host_cpu_name()


def _matrix_units():
    """Return how each device multiplies coarse formats: on matrix units, in AVX-512, or in FP32."""
    from ..linalg import blas
    from ..linalg.formats import BF16, FP16

    names = [form.name for form in (FP16, BF16) if blas.on_matrix_units(form)]
    if names:
        found = {"cpu": f"{' and '.join(names)} on AMX through MKL"}
    elif any(map(blas.cpu_has_unit, (FP16, BF16))):
        advice = 'pip install -U "geomxp[mkl]"'
        found = {"cpu": f"AMX, not used without a recent MKL: {advice}"}
    else:
        found = {"cpu": "none"}
    if blas.in_avx512(BF16):
        found["cpu"] += "; AVX-512 multiplies bf16"
    if FP16.name not in names:
        found["cpu"] += "; fp16 is widened to fp32"
    try:
        count = devices.gpu_count()
    except MissingDevice:
        return found
    for k in range(count):
        found[f"gpu:{k}"] = _tensor_cores(k)
    return found


def _tensor_cores(index):
    import cupy

    capability = int(cupy.cuda.Device(index).compute_capability) / 10
    formats = [name for least, name in MATRIX_UNIT_FORMATS if capability >= least]
    return f"{', '.join(formats)} on tensor cores" if formats else "none"


def _threads():
    """Return the number of threads, and what determines it."""
    import scipy.linalg  # noqa: F401  (loads the BLAS that the listing shows)
    from threadpoolctl import threadpool_info

    from ..linalg import blas

    libraries = {
        f"{lib['internal_api']} {lib.get('version')} for {lib.get('architecture', 'any core')}, "
        f"{lib['num_threads']} threads"
        for lib in threadpool_info()
        if lib["user_api"] == "blas"
    }
    asked, names = os.environ.get("OMP_NUM_THREADS"), sorted(libraries) or ["unknown"]
    if kernels := os.environ.get("OPENBLAS_CORETYPE"):
        # they may be slower than those that OpenBLAS would choose
        names.append(f"kernels chosen by OPENBLAS_CORETYPE={kernels}")
    if blas.uses_mkl():
        names.append("MKL for factorizations and products of tiles")
    elif blas.mkl() is not None:
        names.append("MKL is installed but not used: it is slower on AMD processors")
    return {
        "usable cores": str(devices.usable_cores()),
        "OMP_NUM_THREADS": asked or "not set: all usable cores are used",
        "BLAS": "; ".join(names),
    }


def _kernels():
    """Return the number of numba's cached functions, and their directory."""
    package = Path(__file__).resolve().parent.parent
    named = os.environ.get("NUMBA_CACHE_DIR")
    if named:
        place = Path(named)
    elif os.access(package, os.W_OK):
        place = package
    else:
        try:
            from numba.misc.appdirs import AppDirs
        except ImportError:
            return "none: numba cannot be imported: pip install numba"
        place = Path(AppDirs(appname="numba", appauthor=False).user_cache_dir)
    count, room = (
        len(list(place.rglob("*.nbi"))),
        sum(file.stat().st_size for file in place.rglob("*.nb[ic]")),
    )
    if not count:
        return f"none yet; the first run compiles them into {place}, which takes some seconds"
    return f"{count}, {devices.human_bytes(room)}, in {place}"


def _variants():
    """Return the number of tuned variants of small factorizations, and their file."""
    try:
        from ..linalg.batched import cache_directory, remembered
    except MissingPackage as error:
        return str(error)
    count = len(remembered())
    if not count:
        return f"none in {cache_directory()}: geomxp bench batched --tune"
    return f"{count} in {cache_directory() / 'batched.json'}"
