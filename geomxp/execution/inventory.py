"""What this machine and this installation can do, for `geomxp info`."""

import platform
from importlib import metadata

from ..errors import MissingDevice
from . import devices

LIBRARIES = ("numpy", "scipy", "nlopt", "pandas", "pyarrow", "matplotlib")
EXTRAS = {
    "gpu": ("cupy-cuda13x", "cupy-cuda12x", "cupy"),
    "mkl": ("mkl",),
    "cluster": ("distributed",),
    "geo": ("geopandas",),
    "sklearn": ("scikit-learn",),
    "notebooks": ("jupyterlab",),
}


def inventory():
    """Return what can be used and what is missing, as a dict of texts and of dicts of texts."""
    from .. import __version__
    from ..datasets import DATASETS

    cores = devices.usable_cores()
    return {
        "geomxp": __version__,
        "Python": platform.python_version(),
        "system": platform.platform(),
        "cores": str(cores),
        "free memory": devices.human_bytes(devices.free_memory()),
        "largest exact fit": f"about {_largest_exact():,} places in memory",
        "BLAS": _blas(),
        "matrix units": _matrix_units(),
        "GPU": _gpu(),
        "libraries": {name: _version(name) or "missing" for name in LIBRARIES},
        "extras": {name: _extra(name, packages) for name, packages in EXTRAS.items()},
        "data sets": {name: entry.about for name, entry in DATASETS.items()},
    }


def _largest_exact():
    n = int((devices.free_memory() / 8.3) ** 0.5)
    return n // 100 * 100


def _version(package):
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _extra(name, packages):
    for package in packages:
        version = _version(package)
        if version:
            return f"{package} {version}"
    return f'missing: pip install "geomxp[{name}]"'


def _blas():
    import scipy.linalg  # noqa: F401  (loads the BLAS that the listing shows)
    from threadpoolctl import threadpool_info

    found = {
        f"{lib['internal_api']} {lib.get('version')} ({lib.get('architecture', 'unknown core')})"
        for lib in threadpool_info()
        if lib["user_api"] == "blas"
    }
    return ", ".join(sorted(found)) or "unknown"


def _matrix_units():
    from ..dense import blas
    from ..dense.matrix_units import has_unit
    from ..precision.formats import BF16, FP16

    names = [form.name for form in (FP16, BF16) if has_unit(form)]
    if names:
        return f"{' and '.join(names)} on AMX through MKL"
    if blas.mkl() is None:
        return 'not looked for without MKL: pip install "geomxp[mkl]"; FP16 is widened to FP32'
    return "none that MKL uses: FP16 is widened to FP32"


def _gpu():
    try:
        count = devices.gpu_count()
    except MissingDevice as error:
        return f"none usable: {error}"
    return f"{count} NVIDIA GPU(s)" if count else "none found"
