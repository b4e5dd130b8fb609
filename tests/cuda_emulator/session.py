"""Where GPU tests run: on a real GPU, on the emulator, or nowhere."""

import os
import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

PACKAGES = str(Path(__file__).resolve().parent / "packages")
ROOTS = ("cupy", "cupyx", "cupy_backends")


def real_gpus():
    """Return the number of GPUs that an installed CuPy sees."""
    try:
        import cupy

        return cupy.cuda.runtime.getDeviceCount()
    except Exception:
        return 0


def compiler():
    """Return the path of the C++ compiler for kernels, or None."""
    return shutil.which(os.environ.get("CXX", "g++"))


def size(on_a_gpu, emulated):
    """Return the size of a test's problem, smaller on the emulator, which is slow."""
    return emulated if sys.path[0] == PACKAGES else on_a_gpu


def _ours():
    return {
        name: module
        for name, module in sys.modules.items()
        if name.startswith("cupy") and name.partition(".")[0] in ROOTS
    }


_emulated = {}


CACHES = {
    "geomxp.cuda": ("module",),
    "geomxp.linalg.batched_gpu": ("_module", "_limits", "_plan"),
    "geomxp.linalg.products_gpu": ("plan", "_cublaslt", "has_units"),
    "geomxp.linalg.gpu": ("_most_blocks",),
    "geomxp.tiles.memories": ("_copy_streams",),
}
"""Functions of the package that keep objects of CuPy."""


def _forget():
    """Drop what the package keeps of the emulator."""
    for name, functions in CACHES.items():
        for function in functions if name in sys.modules else ():
            getattr(sys.modules[name], function).cache_clear()
    if "geomxp.linalg.device" in sys.modules:
        sys.modules["geomxp.linalg.device"]._mine.__dict__.clear()
        sys.modules["geomxp.linalg.device"]._copies.clear()


@contextmanager
def emulation(name):
    """Make `import cupy` give the emulator, here and in processes started in the block.

    Parameters
    ----------
    name : str
        Of the test; it seeds the order of execution.

    Yields
    ------
    module
        The emulated machine; `faults_of` returns what it and the processes have found.
    """
    from . import machine

    others, environment = _ours(), dict(os.environ)
    for module in others:
        del sys.modules[module]
    sys.modules.update(_emulated)
    sys.path.insert(0, PACKAGES)
    known = (PACKAGES, str(Path(PACKAGES).parents[1]), environment.get("PYTHONPATH"))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, known))
    from cupy_backends.cuda.libs import cublas

    cublas.load()
    machine.seed(crc32(name.encode()) ^ int(os.environ.get("GEOMXP_EMULATOR_SEED", "0")))
    try:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["GEOMXP_EMULATOR_FAULTS"] = str(Path(folder) / "faults")
            yield machine
    finally:
        _forget()
        machine.finish()
        machine.reset()
        cublas.unload()
        sys.path.remove(PACKAGES)
        _emulated.update(_ours())
        for module in _ours():
            del sys.modules[module]
        sys.modules.update(others)
        for variable in ("PYTHONPATH", "GEOMXP_EMULATOR_FAULTS"):
            os.environ.pop(variable, None)
            if variable in environment:
                os.environ[variable] = environment[variable]


def faults_of(machine):
    """Return the faults since the last call, those of processes started by the test included."""
    found, reports = machine.finish(), Path(os.environ["GEOMXP_EMULATOR_FAULTS"])
    if reports.exists():
        found += reports.read_text().splitlines()
        reports.unlink()
    return found
