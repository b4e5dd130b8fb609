"""Where GPU tests run: on a real GPU, on the emulator, or nowhere."""

import os
import sys
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


def size(on_a_gpu, emulated):
    """Return the size of a test's problem, smaller on the emulator, which is slow."""
    return emulated if sys.path[0] == PACKAGES else on_a_gpu


def _ours():
    return {name: m for name, m in sys.modules.items() if name.partition(".")[0] in ROOTS}


_emulated = {}


@contextmanager
def emulation(name):
    """Make `import cupy` give the emulator, here and in processes started in the block.

    Parameters
    ----------
    name : str
        Of the test; it seeds the order of execution.
    """
    from . import machine

    others, path = _ours(), os.environ.get("PYTHONPATH")
    for module in others:
        del sys.modules[module]
    sys.modules.update(_emulated)
    sys.path.insert(0, PACKAGES)
    known = (PACKAGES, str(Path(PACKAGES).parents[1]), path)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, known))
    machine.seed(crc32(name.encode()) ^ int(os.environ.get("GEOMXP_EMULATOR_SEED", "0")))
    try:
        yield machine
    finally:
        sys.path.remove(PACKAGES)
        _emulated.update(_ours())
        for module in _ours():
            del sys.modules[module]
        sys.modules.update(others)
        if path is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = path
